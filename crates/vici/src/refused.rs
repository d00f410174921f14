//! Commands of strongSwan's daemon that a gateway with a configuration file of its own refuses.

const FROM_FILE: &str = "nothing is loaded: connections, secrets and certificates come from the gateway's \
                         configuration file alone, which `esplanade reload` reads again";
const BY_ITSELF: &str =
    "the gateway sets up the policies of all configured children by itself, as long as it runs";

/// Returns why a command is refused. Only commands are here whose answer says `success`: clients look at it. `swanctl`
/// takes any other answer for success, and fails only if the command is unknown. `clear-creds` is such a command.
pub(crate) fn why(command: &str) -> Option<&'static str> {
    Some(match command {
        "load-conn" | "unload-conn" | "load-cert" | "load-key" | "unload-key" | "load-token"
        | "load-shared" | "unload-shared" | "load-authority" | "unload-authority" => FROM_FILE,
        "reload-settings" => "`esplanade reload` reads the configuration again",
        "load-pool" | "unload-pool" => "the gateway hands out no addresses",
        "install" | "uninstall" => BY_ITSELF,
        "redirect" => "the gateway redirects no peers",
        "reset-counters" => "the counters count from the start of the gateway on",
        _ => return None,
    })
}
