//! Loads configurations as administrators write them, with and without mistakes.

#[path = "config/engines.rs"]
mod engines;
#[path = "config/ignored.rs"]
mod ignored;
#[path = "config/interfaces.rs"]
mod interfaces;
#[path = "config/links.rs"]
mod links;
#[path = "config/marks.rs"]
mod marks;
#[path = "config/misread.rs"]
mod misread;
#[path = "config/options.rs"]
mod options;
#[path = "config/peers.rs"]
mod peers;

use std::fs;
use std::path::{Path, PathBuf};

use esplanade::config::{
    DEFAULT_SOCKET, Diagnostics, Diff, GatewayConfig, Loaded, PolicyAction, load, load_text,
};
use esplanade_crypto::Tier;
use esplanade_ike::auth::Identity;
use esplanade_ike::config::{
    AddressMatch, EndAction, HostName, LocalMethod, Selector, StartAction,
};
use esplanade_ipsec::tunnel::DscpPolicy;
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(name)
}

fn read(text: &str) -> Result<Loaded, Diagnostics> {
    load_text(Path::new("test.conf"), text)
}

/// Returns the findings as text.
fn refusal(text: &str) -> String {
    read(text).expect_err("it should be refused").render(false)
}

fn good(text: &str) -> Loaded {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Makes a connection with `keys`, whose child has `child_keys`.
fn site(keys: &str, child_keys: &str) -> String {
    format!(
        "connections {{ site {{\n remote_addrs = 198.51.100.1\n {keys}\n local {{ auth = psk }}\n \
         remote {{ auth = psk }}\n children {{ net {{\n {child_keys}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = s }} }}\n"
    )
}

#[test]
fn files_of_administrators_load_unchanged() {
    for entry in fs::read_dir(fixture("good")).unwrap() {
        let path = entry.unwrap().path();
        let loaded = load(&path).unwrap_or_else(|errors| panic!("{}:\n{errors}", path.display()));
        assert!(!loaded.ike.connections.is_empty(), "{}", path.display());
    }
}

#[test]
fn ike_messages_have_a_dscp() {
    let dscp = |keys: &str| good(&site(keys, "")).ike.connections[0].dscp;
    assert_eq!(
        [dscp(""), dscp("dscp = 101110"), dscp("dscp = cs6")],
        [0, 46, 48]
    );
    assert!(refusal(&site("dscp = 46", "")).contains("write six binary digits"));
}

#[test]
fn host_names_stand_among_addresses() {
    let text = |remote: &str| {
        format!(
            "connections {{ site {{\n local_addrs = moon\n remote_addrs = {remote}\n local {{ auth = psk }}\n \
             remote {{ auth = psk }}\n children {{ net {{ start_action = start }} }} }} }}\n\
             secrets {{ ike {{ secret = \"a long enough secret\" }} }}\n"
        )
    };
    let path = Path::new("esplanade.conf");
    let loaded = load_text(path, &text("sun.example.org, 192.0.2.1, 10.0.0.0/8, %any")).unwrap();
    let connection = &loaded.ike.connections[0];
    let name = |text: &str| AddressMatch::Name(HostName::new(text));
    assert_eq!(connection.local_addrs, [name("moon")]);
    let given = &connection.remote_addrs;
    assert_eq!(given.len(), 4);
    assert_eq!(given[0], name("sun.example.org"));
    assert_eq!(given[3], AddressMatch::Any);
    let names: Vec<_> = connection.names().map(|name| &name.name).collect();
    assert_eq!(names, ["moon", "sun.example.org"]);
    // Another name is another connection. Other addresses of the same name are not.
    let mut looked_up = loaded.clone();
    let address = HostName {
        addresses: Ok(vec!["192.0.2.9".parse().unwrap()]),
        ..HostName::new("moon")
    };
    let known = |name: &str| (name == "moon").then_some(&address);
    assert!(looked_up.ike.set_names(known) && !looked_up.ike.set_names(known));
    assert!(loaded.diff(&looked_up).is_empty());
    let other = load_text(path, &text("moon.example.org")).unwrap();
    assert_eq!(loaded.diff(&other).changed.len(), 1);
    let wrong = load_text(path, &text("sun_.example.256")).unwrap_err();
    assert!(
        wrong
            .to_string()
            .contains("neither an address nor a host name")
    );
}

// RFC 4301 R108
#[test]
fn site_to_site_is_understood() {
    let loaded = load(&fixture("good/site-to-site.conf")).unwrap();
    let connection = &loaded.ike.connections[0];
    assert_eq!(connection.name, "gw-gw");
    assert_eq!(
        connection.local_addrs,
        [AddressMatch::Host("192.0.2.1".parse().unwrap())]
    );
    assert_eq!(
        connection.remote_addrs,
        [AddressMatch::Host("198.51.100.1".parse().unwrap())]
    );
    assert_eq!(connection.rekey_time.as_secs(), 5 * 3600 + 30 * 60);
    assert_eq!(connection.dpd_delay.as_secs(), 30);
    assert!(matches!(connection.local.method, LocalMethod::Psk));
    assert_eq!(
        connection.remote.id,
        Identity::Fqdn("sun.strongswan.org".to_owned())
    );
    let child = &connection.children[0];
    assert_eq!(child.start_action, StartAction::Trap);
    assert_eq!(child.dpd_action, EndAction::Start);
    let net = |from: &str, to: &str| Selector::range(from.parse().unwrap(), to.parse().unwrap());
    assert_eq!(child.local_ts, [net("10.1.0.0", "10.1.255.255")]);
    assert_eq!(child.lifetime.rekey_bytes, 500_000_000);
    assert_eq!(child.lifetime.life_bytes, 550_000_000);
    assert_eq!(loaded.ike.secrets.len(), 1);
    assert_eq!(loaded.ike.secrets[0].owners.len(), 2);
    assert_eq!(loaded.gateway, GatewayConfig::default());
}

#[test]
fn inheritance_follows_strongswan() {
    let loaded = load(&fixture("good/inheritance.conf")).unwrap();
    let names: Vec<&str> = loaded
        .ike
        .connections
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["conn-a", "conn-b", "conn-c"]);
    let [a, b, c] = [0, 1, 2].map(|at| &loaded.ike.connections[at]);
    assert_eq!(a.dpd_delay.as_secs(), 30);
    // An empty value clears an inherited value, so that the default counts.
    assert!(b.dpd_by_traffic && !a.dpd_by_traffic);
    assert_eq!(c.dpd_delay.as_secs(), 30);
    assert_eq!(c.children[0].name, "child-a");
    assert_eq!(a.children[0].replay_window, 256);
    assert_eq!(
        c.remote_addrs,
        [AddressMatch::Host("203.0.113.7".parse().unwrap())]
    );
}

// RFC 4301 R11, R12, R86
#[test]
fn policies_are_in_order() {
    let loaded = load(&fixture("good/shunts.conf")).unwrap();
    let order: Vec<_> = loaded
        .policies
        .iter()
        .map(|one| (one.child.as_str(), one.action))
        .collect();
    assert_eq!(
        order,
        [
            ("first", PolicyAction::Discard),
            ("lan", PolicyAction::Bypass),
            ("narrow", PolicyAction::Protect),
            ("wide", PolicyAction::Protect),
            ("rest", PolicyAction::Discard),
        ]
    );
    assert_eq!(loaded.policies[2].sa.tunnel.dscp, DscpPolicy::fixed(0));
    assert!(loaded.policies[2].trap);
    assert_eq!(loaded.ike.connections.len(), 1, "shunts need no IKE");
}

// RFC 4301 R33
#[test]
fn the_gateway_section_is_read() {
    let loaded = good(
        "gateway {\n listen = 192.0.2.1, 2001:db8::1\n port = 1500\n port_nat_t = 14500\n raw_esp = no\n \
         tun = vpn0\n mtu = 1380\n workers = 4\n flow_cache_size = 262144\n cpu_tier = aesni\n table = 220\n mark = 0x20\n socket = unix:///tmp/e.vici\n \
         log_level = info,esplanade_ike=debug\n fragment_size = 1400\n nat_keepalive = 0\n retransmit_timeout = 2.5s\n retransmit_base = 1.5\n \
         retransmit_tries = 3\n cookie_threshold = 5\n half_open_max = 50\n half_open_per_source_max = 6\n \
         half_open_per_network_max = 7\n half_open_timeout = 8\n ike_sas_per_peer_max = 9\n child_sas_per_ike_sa_max = 10\n \
         child_sas_per_peer_max = 11\n selectors_per_peer_max = 12\n child_requests_per_second = 13\n mss_clamp = no\n reassemble = no\n icmp_unreachable = yes\n inactivity_close_ike = yes\n}\n",
    );
    assert!(loaded.ike.inactivity_close_ike && !good("").ike.inactivity_close_ike);
    let gateway = loaded.gateway;
    assert_eq!(gateway.listen.len(), 2);
    assert_eq!((gateway.ports.ike, gateway.ports.nat_t), (1500, 14500));
    assert!(!gateway.raw_esp);
    assert_eq!(
        (gateway.workers, gateway.table, gateway.mark),
        (4, 220, 0x20)
    );
    assert_eq!(gateway.flow_cache_size, 262_144);
    assert_eq!(gateway.cpu_tier, Some(Tier::AesNi));
    assert_eq!(gateway.socket, Path::new("/tmp/e.vici"));
    assert_eq!(gateway.retransmission.timeout.as_millis(), 2500);
    let limits = gateway.limits;
    assert_eq!((limits.cookie_threshold, limits.half_open_max), (5, 50));
    assert_eq!(limits.half_open_per_source_max, 6);
    assert_eq!(limits.half_open_per_network_max, 7);
    assert_eq!(limits.half_open_timeout.as_secs(), 8);
    let children = (limits.children_per_sa_max, limits.children_per_peer_max);
    assert_eq!((limits.ike_sas_per_peer_max, children), (9, (10, 11)));
    assert_eq!(limits.selectors_per_peer_max, 12);
    assert_eq!(limits.child_requests_per_second, 13);
    assert_eq!(gateway.fragment_size, 1400);
    assert!(!gateway.mss_clamp && !gateway.reassemble && gateway.icmp_unreachable);
    assert_eq!(good("").gateway.socket, Path::new(DEFAULT_SOCKET));
    assert_eq!(good("").gateway.cpu_tier, None);
}

#[test]
fn the_flow_cache_has_a_size_within_bounds() {
    let read = |size: &str| {
        let text = format!("gateway {{\n flow_cache_size = {size}\n}}\n");
        load_text(Path::new("test.conf"), &text).map(|loaded| loaded.gateway.flow_cache_size)
    };
    assert_eq!(read("1024").unwrap(), 1024);
    assert_eq!(read("16777216").unwrap(), 16_777_216);
    for refused in ["1023", "16777217", "0", "-1", "many"] {
        let error = read(refused).unwrap_err().render(false);
        assert!(error.contains("--> test.conf:2:20"), "{error}");
        assert!(error.contains("1024"), "{error}");
    }
    assert_eq!(good("").gateway.flow_cache_size, 65_536);
}

#[test]
fn without_raw_sockets_everything_is_encapsulated() {
    let text = site("encap = no", "");
    assert!(!good(&text).ike.connections[0].encap);
    let text = format!("gateway {{ raw_esp = no\n }}\n{text}");
    assert!(good(&text).ike.connections[0].encap);
}

#[test]
fn all_errors_come_at_once_with_their_places() {
    let text = fs::read_to_string(fixture("bad/many.conf")).unwrap();
    let expected = fs::read_to_string(fixture("bad/many.txt")).unwrap();
    let rendered = load_text(Path::new("many.conf"), &text)
        .unwrap_err()
        .render(false);
    if rendered != expected && std::env::var_os("BLESS").is_some() {
        fs::write(fixture("bad/many.txt"), &rendered).unwrap();
        return;
    }
    assert_eq!(
        rendered, expected,
        "run again with BLESS=1 if the new text is right"
    );
}

#[test]
fn keys_of_strongswan_are_named_as_such() {
    for (text, expected) in [
        (
            site("vips = 0.0.0.0", ""),
            "`vips` in a connection is not supported yet",
        ),
        (
            site("ppk_required = yes", ""),
            "`ppk_required` in a connection is not supported yet",
        ),
        (
            site("", "interface = eth0"),
            "`interface` in a child is not supported: policies hold",
        ),
        (
            site("", "dpd_delay = 30s"),
            "`dpd_delay` belongs into a connection",
        ),
        (site("version = 1", ""), "IKEv1 is not supported"),
        (site("local = x", ""), "`local` is a section"),
        (
            "pools { a { addrs = 10.0.0.0/24 } }".to_owned(),
            "the section `pools` is not supported yet",
        ),
    ] {
        let rendered = refusal(&text);
        assert!(rendered.contains(expected), "{rendered}");
    }
    // Values that change nothing are accepted.
    good(&site(
        "aggressive = no\n pull = yes",
        "ipcomp = no\n tfc_padding = 0",
    ));
}

#[test]
fn surprises_are_warned_about() {
    for (text, expected) in [
        (site("mobike = yes", ""), "mobike"),
        (site("rekey_time = 1h\n rekey_time = 2h", ""), "set twice"),
        (
            site(
                "",
                "mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8",
            ),
            "take effect at once",
        ),
        (
            site("", "mode = transport\n copy_df = no"),
            "`copy_df`: transport mode",
        ),
        (
            site("", "mode = transport\n dscp_map = *:0"),
            "`dscp_map`: transport mode",
        ),
        (
            site("", "mode = transport\n copy_ecn = no\n ttl = 3"),
            "`ttl`: transport mode",
        ),
        (
            site("", "copy_dscp = yes\n dscp_map = *:0"),
            "`dscp_map`: with `copy_dscp = yes`",
        ),
        (
            site("", "tfc_dummies = 5"),
            "`tfc_dummies`: without `tfc_padding`",
        ),
        (
            site("", "tfc_dummies = 5\n tfc_padding = mtu\n inactivity = 1m"),
            "`tfc_dummies`: `inactivity` never",
        ),
        (
            site("", "tfc_padding = 1500"),
            "`tfc_padding`: longer than the longest packet",
        ),
        (
            site(
                "",
                "mode = drop\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n replay_window = 64",
            ),
            "`replay_window`: pass and drop",
        ),
        (
            site(
                "",
                "mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n non_first_fragments = yes",
            ),
            "`non_first_fragments`: pass and drop",
        ),
        (
            site(
                "",
                "mode = drop\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n copy_ecn = no",
            ),
            "`copy_ecn`: pass and drop",
        ),
        (
            site("", "").replace("secrets { ike { secret = s } }", ""),
            "no secret belongs to",
        ),
    ] {
        let rendered = good(&text).warnings.render(false);
        assert!(rendered.contains(expected), "{expected}: {rendered}");
    }
    let quiet = site(
        "",
        "tfc_dummies = 5\n tfc_padding = mtu\n inactivity = 0\n dscp_map = *:0\n copy_ecn = no\n ttl = 9",
    );
    let rendered = good(&quiet).warnings.render(false);
    assert!(!rendered.contains("`tfc_") && !rendered.contains("`dscp_map`"));
    assert!(!rendered.contains("`copy_ecn`") && !rendered.contains("`ttl`"));
}

#[test]
fn includes_are_relative_bounded_and_not_circular() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("conf.d")).unwrap();
    fs::write(
        at("main.conf"),
        "include conf.d/*.conf\ninclude nothing/*.conf\n",
    )
    .unwrap();
    fs::write(at("conf.d/10-a.conf"), site("", "")).unwrap();
    fs::write(
        at("conf.d/20-b.conf"),
        "connections { site { dpd_delay = 7s } }\n",
    )
    .unwrap();
    fs::write(at("conf.d/.hidden.conf"), "broken").unwrap();
    let loaded = load(&at("main.conf")).unwrap();
    assert_eq!(
        loaded.ike.connections[0].dpd_delay.as_secs(),
        7,
        "a later file replaces values"
    );

    // An error in an included file is reported at its place in that file.
    fs::write(
        at("conf.d/20-b.conf"),
        "connections { site {\n  dpd_dely = 7s } }\n",
    )
    .unwrap();
    let rendered = load(&at("main.conf")).unwrap_err().render(false);
    assert!(rendered.contains("20-b.conf:2:3"), "{rendered}");

    for (text, expected) in [
        ("include main.conf", "includes itself"),
        ("include ../escape-that-is-missing.conf", "does not exist"),
        ("include", "neither a setting"),
        ("include \"unfinished", "never closed"),
        ("include conf.d", "it is a directory"),
    ] {
        fs::write(at("main.conf"), text).unwrap();
        let rendered = load(&at("main.conf")).unwrap_err().render(false);
        assert!(rendered.contains(expected), "{text}: {rendered}");
    }

    fs::write(at("a.conf"), "include b.conf").unwrap();
    fs::write(at("b.conf"), "section { include a.conf\n }").unwrap();
    assert!(
        load(&at("a.conf"))
            .unwrap_err()
            .render(false)
            .contains("includes itself")
    );

    fs::write(at("binary.conf"), b"a {\n \xff\xfe\n}").unwrap();
    assert!(
        load(&at("binary.conf"))
            .unwrap_err()
            .render(false)
            .contains("line 2 is not UTF-8")
    );
    assert!(
        load(&at("absent.conf"))
            .unwrap_err()
            .render(false)
            .contains("does not exist")
    );
}

#[test]
fn references_that_lead_nowhere_or_in_circles_are_refused() {
    for (text, expected) in [
        (
            "connections { a : connections.b { }\n b : connections.a { } }",
            "refers to itself",
        ),
        (
            "base { }\nconnections { a : bsae { } }",
            "the nearest section there is `base`",
        ),
        ("connections { a : , b { } }", "a reference is missing"),
    ] {
        let rendered = refusal(text);
        assert!(rendered.contains(expected), "{rendered}");
    }
    // The size doubles at each level. Without a bound there would be 2^40 copies.
    let mut text = "s0 { k = v }\n".to_owned();
    for level in 1..=40 {
        text += &format!(
            "s{level} {{ a : s{0} {{ }}\n b : s{0} {{ }} }}\n",
            level - 1
        );
    }
    text += "connections { x : s40 { } }";
    let rendered = refusal(&text);
    assert!(
        rendered.contains("expand to more than") || rendered.contains("in a row"),
        "{rendered}"
    );
}

#[test]
fn huge_inputs_are_bounded() {
    for text in [
        "a {".repeat(100_000),
        "}".repeat(100_000),
        "a { b = c } ".repeat(100_000),
        "x ".repeat(500_000),
        "\"".repeat(100_001),
        format!("a = {}", "y".repeat(1 << 20)),
        format!("include {}", "*/".repeat(10_000)),
        format!(
            "connections {{ {} }}",
            "c { local { auth = psk } remote { auth = psk } } ".repeat(20_000)
        ),
    ] {
        if let Err(errors) = read(&text) {
            assert!(errors.render(false).len() < 1 << 20);
        }
    }
}

#[test]
fn no_more_selectors_than_a_message_can_count() {
    let text = |count| {
        let nets: Vec<_> = (0..count).map(|n| format!("10.{n}.0.0/16")).collect();
        site("", &format!("local_ts = {}\n", nets.join(", ")))
    };
    let loaded = good(&text(255));
    assert_eq!(loaded.ike.connections[0].children[0].local_ts.len(), 255);
    let error = load_text(Path::new("test.conf"), &text(256)).unwrap_err();
    assert!(error.render(false).contains("more than 255 selectors"));
}

#[test]
fn many_connections_load() {
    let mut text = "defaults { local { auth = psk }\n remote { auth = psk }\n children { net { } } }\nconnections {\n".to_owned();
    for number in 0..10_000 {
        text += &format!(
            "c{number} : defaults {{ remote_addrs = 10.0.{}.{} }}\n",
            number / 250,
            number % 250 + 1
        );
    }
    text += "}\nsecrets { ike { secret = s } }";
    let loaded = good(&text);
    assert_eq!(loaded.ike.connections.len(), 10_000);
    assert_eq!(loaded.policies.len(), 10_000);
}

/// No message may ever contain this text.
const SECRET: &str = "hunter2hunter2";

#[test]
fn secrets_never_show() {
    for text in [
        format!("secrets {{ ike {{ secret = {SECRET} }} }}"),
        format!("secrets {{ ike {{ secrte = {SECRET}\n }} }}"),
        format!("secrets {{ ike {{ secret = 0x{SECRET}\n id = @#0\n }} }}"),
        format!("secrets {{ ike {{ secret = \"{SECRET}\n }} }}"),
        format!("secrets {{ ike {{ secret = \"a\" {SECRET} bad {{\n }} }}"),
        format!("secrets {{ ike {{ {SECRET}\n secret = x }} }}"),
        format!("secrets {{ ike {{ secret = x}}{SECRET} }} }}"),
        format!("secrets {{ ike {{ secret = x}}}}{SECRET}\n"),
        format!("secrets {{ eap-a {{ secret = {SECRET} }} }}"),
        format!("sercets {{ ike {{ secret = {SECRET} }} }}"),
        format!("sercets {{ ike {{ scret = {SECRET} }} }}"),
        format!("base {{ secret = \"0x{SECRET}\" }}\nsecrets {{ ike-a : base {{ }} }}"),
        format!("connections {{ a {{ local {{ secret = {SECRET} }} }} }}"),
        format!("secret = {SECRET}"),
        format!(
            "connections {{ a {{ local {{ id = \"x\\\n}}}}}}secrets{{ike{{secret = {SECRET}\"\n }} }} }}"
        ),
        format!("connections {{ a {{ version = \"2\\\nsecret = {SECRET}\"\n }} }}"),
        format!("secrets {{ ike {{ secret = x\nid = \"ipv4:\\\n{SECRET} \"\n }} }}"),
        format!("include \"x\\\nsecret = {SECRET}\""),
        format!("= {SECRET}"),
        format!("\"{SECRET}\" {{ }}"),
    ] {
        let shown = match read(&text) {
            Ok(loaded) => format!("{loaded:?}{}", loaded.warnings.render(true)),
            Err(errors) => format!("{errors:?}{errors}{}", errors.render(true)),
        };
        assert!(!shown.contains("hunter2"), "{text}\n{shown}");
    }
}

#[test]
fn a_quote_left_open_shows_no_secret() {
    for opened in ["id = \"CN", "id = \"CN, O=Example", "certs = \"a, b"] {
        let text = format!(
            "connections {{ site {{ remote_addrs = 198.51.100.1\n remote {{ auth = psk\n {opened}\n\
             secrets {{ ike {{ id = a, secret = HUNTER2, x\n }} }}\n id = \"\n }} }} }}\n"
        );
        let shown = read(&text).map_or_else(
            |errors| errors.render(false),
            |loaded| format!("{loaded:?}"),
        );
        assert!(!shown.contains("HUNTER2"), "{shown}");
    }
    let text = "connections { site { remote_addrs = \"1\nsecrets { ike { id = a, secret = HUNTER2, x\n\" } }";
    let shown = refusal(text);
    assert!(shown.contains("a list goes on one line"), "{shown}");
    assert!(!shown.contains("HUNTER2"), "{shown}");
}

#[test]
fn readable_secret_files_are_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("e.conf");
    fs::write(&path, site("", "")).unwrap();
    for (mode, warned) in [(0o644, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let warnings = load(&path).unwrap().warnings.render(false);
        assert_eq!(
            warnings.contains("every user may read it"),
            warned,
            "{mode:o}: {warnings}"
        );
    }
}

#[test]
fn reloads_see_what_changed() {
    let three = |a: &str, c: &str, secret: &str| {
        let one = |name: &str, keys: &str| {
            format!("{name} {{ {keys}\n local {{ auth = psk }}\n remote {{ auth = psk }} }}\n")
        };
        let c = if c.is_empty() {
            String::new()
        } else {
            one(c, "")
        };
        good(&format!(
            "connections {{ {}{}{c} }}\nsecrets {{ ike {{ secret = {secret} }} }}",
            one("a", a),
            one("b", "encap = yes")
        ))
    };
    let old = three("dpd_delay = 1s", "c", "s");
    assert!(
        old.diff(&three("dpd_delay = 1s # same", "c", "s"))
            .is_empty()
    );
    let diff = old.diff(&three("dpd_delay = 2s", "d", "t"));
    assert_eq!(subjects(&diff), ["+d", "~a", "-c"]);
    assert!(diff.secrets && !diff.gateway);
}

fn subjects(diff: &Diff) -> Vec<String> {
    let lists = [
        ("+", &diff.added),
        ("~", &diff.changed),
        ("-", &diff.removed),
    ];
    let named = lists
        .into_iter()
        .flat_map(|(sign, list)| list.iter().map(move |subject| format!("{sign}{subject}")));
    named.collect()
}

#[test]
fn reloads_tell_children_apart() {
    let of = |keys: &str, children: &str| {
        good(&format!(
            "connections {{ site {{\n {keys}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n \
             children {{ {children} }} }} }}\nsecrets {{ ike {{ secret = s }} }}\n"
        ))
    };
    let old = of("", "net { remote_ts = 10.1.0.0/16 } old { }");
    let diff = |keys: &str, children: &str| subjects(&old.diff(&of(keys, children)));
    let (net, other) = (
        "net { remote_ts = 10.1.0.0/16 }",
        "net { remote_ts = 10.2.0.0/16 }",
    );
    assert_eq!(diff("", &format!("{net} old {{ }}")), [""; 0]);
    assert_eq!(
        diff("", &format!("old {{ }} {net} new {{ }}")),
        ["+site/new"]
    );
    assert_eq!(diff("", net), ["-site/old"]);
    assert_eq!(
        diff("", &format!("{other} old {{ }} new {{ }}")),
        ["+site/new", "~site/net"]
    );
    // A change that affects all children marks the whole connection.
    assert_eq!(diff("encap = yes", &format!("{net} new {{ }}")), ["~site"]);
}

fn fragment() -> impl Strategy<Value = String> {
    let words = [
        "connections",
        "secrets",
        "gateway",
        "site",
        "local",
        "remote",
        "children",
        "net",
        "ike",
        "auth",
        "psk",
        "pubkey",
        "id",
        "certs",
        "secret",
        "remote_addrs",
        "10.0.0.0/8",
        "%any",
        "rekey_time",
        "4h",
        "local_ts",
        "dynamic[tcp/80]",
        "proposals",
        "aes128gcm16-prfsha256-x25519",
        "include",
        "x*",
        " { ",
        " } ",
        " = ",
        "\n",
        "#",
        "\"",
        "\\",
        ":",
        ",",
        ".",
        " ",
        "\t",
        "\r\n",
        "é",
        "0x00",
        "0sAA==",
        "asn1dn:#30",
        "C=CH,CN=*",
    ];
    prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,8}"]
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(parts in proptest::collection::vec(fragment(), 0..60)) {
        if let Err(errors) = read(&parts.concat()) {
            prop_assert!(errors.errors() > 0);
            errors.render(true);
        }
    }
}
