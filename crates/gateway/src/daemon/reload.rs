//! Reads the configuration again while the gateway runs.

use std::path::Path;
use std::time::Instant;

use super::Daemon;
use super::answers::answer_lists::add_list;
use super::fetched::names_of;
use super::host::keeper::Keeper;
use super::plane;
use super::scripts_of;
use super::settings::load_queue::{LoadDone, NotLoaded};
use super::settings::policies;
use super::settle_ike;
use super::warn_of_missing;
use crate::config::{self, Diff, GatewayConfig, Loaded};
use crate::failure::{Exit, Failure};
use crate::io::sys::give_back_memory;
use crate::tokens::TokenSigner;
use crate::vici::Section;
use crate::vici::server::{self, Request};

impl Daemon {
    /// Has the configuration read again, for a command or for a signal.
    pub(super) fn ask_reload(&mut self, asker: Option<Request>) {
        if let Err(command) = self.loads.ask(asker) {
            command.fail("too many reloads wait");
        }
        self.load_next();
    }

    fn load_next(&mut self) {
        let (path, tokens) = (self.options.config.clone(), self.tokens.clone());
        self.loads.begin(move || load(&path, &tokens));
    }

    /// Applies a configuration that was read, and tells those who asked for it.
    pub(super) async fn on_loaded(&mut self, done: LoadDone, now: Instant) {
        let result = match done.outcome {
            Ok(loaded) => self.apply(loaded, now).await.map_err(NotLoaded::from),
            Err(not_loaded) => Err(not_loaded),
        };
        let answer = match &result {
            Ok(diff) => difference(diff),
            Err(not_loaded) => {
                let stays = self.in_force.stays(now);
                log_not_loaded(not_loaded, &stays);
                refusal(not_loaded, &stays)
            }
        };
        for command in done.askers.into_iter().flatten() {
            command.reply(answer.clone());
        }
        give_back_memory();
        self.load_next();
    }

    async fn drop_marks(&mut self, now: Instant) {
        self.plane.drop_marks().await;
        // The table names their devices.
        self.shielding.renew_at(now);
    }

    /// Lets the gateway follow a configuration. With errors, everything stays as it is.
    async fn apply(&mut self, mut loaded: Loaded, now: Instant) -> Result<Diff, Failure> {
        let mut modules = loaded.gateway.modules.iter();
        if let Some(module) = modules.find(|one| !self.tokens.knows(&one.path)) {
            let what = format!(
                "this gateway did not start with the PKCS#11 module `{}`",
                module.name
            );
            let failure = Failure::new(Exit::Configuration, what);
            return Err(
                failure.help("restart the gateway: it gives up the right to run other programs")
            );
        }
        let token_secret = self.loaded.ike.token_secret.clone();
        settle_ike(&mut loaded, self.keys.is_some(), token_secret);
        let mut diff = self.loaded.diff(&loaded);
        let running = self.loaded.gateway.with_marks_of(&loaded.gateway);
        if let Some(name) = without_interface(&loaded, &running) {
            let what =
                format!("{name} is bound to an interface that this gateway did not start with");
            let failure = Failure::new(Exit::Configuration, what);
            return Err(failure.help("restart the gateway: interfaces are made when it starts"));
        }
        if let Some(script) = scripts_of(&loaded)
            .iter()
            .find(|script| !self.updown.knows(script))
        {
            let what = format!("this gateway did not start with the updown script `{script}`");
            let failure = Failure::new(Exit::Configuration, what);
            return Err(
                failure.help("restart the gateway: it gives up the right to run other programs")
            );
        }
        // The gateway cannot start the fetcher any more.
        if let Some(name) = names_of(&loaded).first()
            && !self.fetcher.is_running()
            && names_of(&self.loaded).is_empty()
        {
            let what = format!("this gateway did not start with a host name such as `{name}`");
            let failure = Failure::new(Exit::Configuration, what);
            return Err(failure.help("restart the gateway, or write the address"));
        }
        loaded.ike.set_names(|name| self.names.known(name));
        check_shield(&running, &loaded)?;
        self.plane.add_marks(&running).await?;
        if diff.gateway {
            tracing::warn!(
                "the gateway section has changed: but for `on_stop`, `fetch_allow` and `pkcs11` that takes effect at the next start"
            );
            let on_stop = loaded.gateway.on_stop;
            self.plane.set_on_stop(on_stop);
            loaded.gateway = GatewayConfig {
                on_stop,
                fetch_allow: loaded.gateway.fetch_allow,
                modules: loaded.gateway.modules,
                ..running
            };
            loaded.ike.ports = self.loaded.ike.ports;
            loaded.ike.quick_crash_detection = self.loaded.ike.quick_crash_detection;
        }
        let source = |remote| plane::source_for(remote, self.loaded.gateway.mark);
        let configured = policies::configured(&loaded, source);
        for policy in policies::changed(&policies::configured(&self.loaded, source), &configured) {
            diff.affect(&policy.connection, &policy.child);
        }
        // SAs of removed or changed children end under the configuration that they were made with.
        for subject in diff.ended() {
            self.endpoint
                .withdraw(now, &subject.connection, subject.child.as_deref());
        }
        self.keep_statuses(&mut loaded);
        self.endpoint.set_config(loaded.ike.clone());
        self.endpoint.signatures_made(now);
        self.loaded = loaded;
        self.renew_revocation(now);
        self.join.configure(configured);
        self.join
            .set_peers(policies::addresses_of_peers(&self.loaded));
        self.shielding.renew_at(now);
        self.refused.clear();
        let connections = policies::by_name(&self.loaded);
        self.refusals.retain(|name| connections.contains_key(name));
        warn_of_missing(&self.loaded);
        self.look_names_up(now);
        self.endpoint.start(now);
        let subjects = [&diff.added, &diff.changed, &diff.removed];
        let [added, changed, removed] =
            subjects.map(|subjects| subjects.iter().map(ToString::to_string).collect::<Vec<_>>());
        self.in_force = self.in_force.next(now);
        let configuration = self.in_force.number;
        tracing::info!(
            configuration,
            ?added,
            ?changed,
            ?removed,
            "configuration reloaded"
        );
        self.flush(now).await;
        self.drop_marks(now).await;
        Ok(diff)
    }
}

/// Reads the configuration, and the certificates on tokens that it names.
fn load(path: &Path, tokens: &TokenSigner) -> Result<Loaded, NotLoaded> {
    let load = || {
        config::load(path).map_err(|diagnostics| {
            let what = format!("{} in {}", diagnostics.count(), path.display());
            NotLoaded {
                failure: Failure::new(Exit::Configuration, what),
                diagnostics: Some(Box::new(diagnostics)),
            }
        })
    };
    let mut loaded = load()?;
    if tokens.read_certificates(&loaded.absent_certificates) {
        loaded = load()?;
    }
    loaded.forget_text();
    Ok(loaded)
}

/// Most errors of a configuration that are logged one by one. Their asker gets all of them.
const ERRORS_LOGGED_MAX: usize = 10;

fn log_not_loaded(not_loaded: &NotLoaded, stays: &str) {
    let NotLoaded {
        failure,
        diagnostics,
    } = not_loaded;
    let errors = diagnostics.iter().flat_map(|all| all.error_lines());
    for error in errors.take(ERRORS_LOGGED_MAX) {
        tracing::error!("configuration: {error}");
    }
    let what = &failure.what;
    match &failure.help {
        Some(help) => tracing::error!("not reloaded: {what}: {help}; {stays}"),
        None => tracing::error!("not reloaded: {what}; {stays}"),
    }
}

/// Most lines about errors in an answer. The control protocol bounds its messages.
const LINES_MAX: usize = 1000;

/// The answer to those who asked for a configuration that is not loaded.
fn refusal(not_loaded: &NotLoaded, stays: &str) -> Section {
    let failure = &not_loaded.failure;
    let rendered = not_loaded.diagnostics.as_ref().map(ToString::to_string);
    let mut message = server::failure(format!("{}; {stays}", failure.what));
    message.set("exit", failure.exit as u8).list(
        "diagnostics",
        rendered
            .iter()
            .flat_map(|text| text.lines())
            .take(LINES_MAX),
    );
    if let Some(help) = &failure.help {
        message.set("help", help);
    }
    message
}

fn difference(diff: &Diff) -> Section {
    let mut message = Section::new();
    message.set("success", "yes");
    let subjects = [
        ("added", &diff.added),
        ("changed", &diff.changed),
        ("removed", &diff.removed),
    ];
    for (key, subjects) in subjects {
        let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
        add_list(&mut message, key, &names);
    }
    message.list("others", diff.others());
    message
}

/// Refuses policies that the table of nf_tables has no room for.
fn check_shield(running: &GatewayConfig, loaded: &Loaded) -> Result<(), Failure> {
    let source = |remote| plane::source_for(remote, running.mark);
    let configured = policies::configured(loaded, source);
    Keeper::check_shield(running, &configured).map_err(|misfit| {
        Failure::new(Exit::Configuration, misfit)
            .help("write fewer selectors, or wider ones that overlap less")
    })
}

/// Returns the name, in the form `connection/child`, of a child that needs an interface that `running` does not have.
fn without_interface(loaded: &Loaded, running: &GatewayConfig) -> Option<String> {
    let has = |id: u32| id == 0 || running.interfaces.iter().any(|one| one.if_id == id);
    let policy = loaded.policies.iter().find(|policy| {
        let if_ids = policy.sa.if_ids;
        !has(if_ids.inbound) || !has(if_ids.outbound)
    })?;
    Some(format!("{}/{}", policy.connection, policy.child))
}
