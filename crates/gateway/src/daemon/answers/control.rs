//! The commands of the control socket. Names and keys are vici's, so that stock `swanctl` works; `reload`,
//! `get-counters`, `explain` and `set-engine` are ours.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_ike::config::Connection;
use esplanade_ike::event::{ChildSaId, Event, IkeSaId};
use esplanade_ike::status::{ChildSaState, ChildSaStatus, IkeSaState};
use esplanade_pki::StatusKind;

use crate::config::Subject;
use crate::daemon::Daemon;
use crate::daemon::answers::renewals::{Renewals, Sa};
use crate::daemon::answers::report;
use crate::daemon::certificates;
use crate::daemon::log_lines;
use crate::daemon::settings::tier;
use crate::join::Moved;
use crate::log;
use crate::status::{
    EngineStats, GatewayCounters, GatewayStats, IkeSaStats, ListedChildSa, ListedConnection,
    ListedIkeSa, Named, UptimeStats,
};
use crate::vici::Section;
use crate::vici::server::{self, Request};

/// The time that `initiate` and `terminate` wait for an outcome, unless the client sets a time.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The time that a deletion waits for the peer to confirm it. Our side is down from the beginning.
const CONFIRM_MAX: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Most commands that wait at one time. Further commands are answered at once.
const WAITING_MAX: usize = 256;
// Otherwise waiting commands could take all connections, and no other client would get an answer.
const _: () = assert!(WAITING_MAX < server::CONNECTIONS_MAX);

/// A command that waits for IKE.
#[derive(Debug)]
pub(in crate::daemon) struct Waiter {
    request: Request,
    /// The time to look at the goal again, although nothing has happened.
    pub(in crate::daemon) look_at: Instant,
    deadline: Instant,
    timeout: Duration,
    goal: Goal,
}

#[derive(Debug)]
enum Goal {
    Up {
        connection: String,
        child: Option<String>,
    },
    Down {
        ike_sas: Vec<IkeSaId>,
        children: Vec<ChildSaId>,
        matches: usize,
    },
    Renewed(Renewals),
}

/// The names and numbers by which `terminate`, `rekey` and `list-sas` select SAs.
#[derive(Debug, Default)]
struct SaFilter {
    ike: Option<String>,
    child: Option<String>,
    ike_id: Option<u64>,
    child_id: Option<u64>,
}

impl SaFilter {
    fn read(message: &Section) -> Self {
        let text = |key| message.text(key).map(str::to_owned);
        let number = |key| message.text(key).and_then(|text| text.parse().ok());
        Self {
            ike: text("ike"),
            child: text("child"),
            ike_id: number("ike-id"),
            child_id: number("child-id"),
        }
    }

    /// Returns why the message does not say which SAs are meant.
    fn misread(message: &Section) -> Option<String> {
        ["ike-id", "child-id"].iter().find_map(|key| {
            let text = message.text(key)?;
            let fault = format!("`{key}` is no number: {}", log_lines::plain(&text));
            text.parse::<u64>().is_err().then_some(fault)
        })
    }

    fn is_empty(&self) -> bool {
        self.ike.is_none()
            && self.child.is_none()
            && self.ike_id.is_none()
            && self.child_id.is_none()
    }

    fn takes_ike(&self, sa: &esplanade_ike::status::IkeSaStatus) -> bool {
        self.ike
            .as_ref()
            .is_none_or(|name| sa.connection.as_ref() == Some(name))
            && self.ike_id.is_none_or(|id| sa.id.0 == id)
    }

    fn takes_child(&self, sa: &ChildSaStatus) -> bool {
        self.child.as_ref().is_none_or(|name| sa.name == *name)
            && self.child_id.is_none_or(|id| sa.id.0 == id)
    }

    fn wants_children(&self) -> bool {
        self.child.is_some() || self.child_id.is_some()
    }
}

impl Daemon {
    pub(in crate::daemon) fn handle_request(&mut self, request: Request, now: Instant) {
        tracing::debug!(command = request.command, "control command");
        if let Some(fault) = SaFilter::misread(&request.message) {
            return request.fail(fault);
        }
        match request.command.as_str() {
            "version" => request.reply(version()),
            "stats" => request.answer(&self.stats(now)),
            "get-counters" => request.answer(&self.counters()),
            "list-sas" => self.list_sas(request, now),
            "list-conns" => self.list_conns(request, now),
            "list-policies" => self.list_policies(request),
            "list-authorities" => self.list_authorities(request),
            "get-conns" => {
                let connections = self.loaded.ike.connections.iter();
                reply_names(request, "conns", connections.map(|one| &one.name));
            }
            "get-authorities" => {
                let authorities = self.loaded.authorities.iter();
                reply_names(request, "authorities", authorities.map(|one| &one.name));
            }
            "initiate" => self.initiate(request, now),
            "terminate" => self.terminate(request, now),
            "rekey" => self.rekey(request, now),
            "flush-certs" => self.flush_certs(request, now),
            "set-engine" => self.set_engine(request),
            "explain" => self.explain(request),
            "reload" => self.ask_reload(Some(request)),
            _ => request.unknown(),
        }
    }

    /// Forgets what was fetched about certificates of a type. Types of which nothing is kept are known too.
    fn flush_certs(&mut self, request: Request, now: Instant) {
        let name = request.message.text("type").unwrap_or("ANY");
        let kinds: &[StatusKind] = match name.to_ascii_uppercase().as_str() {
            "ANY" => &[StatusKind::Crl, StatusKind::Ocsp],
            "X509_CRL" => &[StatusKind::Crl],
            "OCSP_RESPONSE" => &[StatusKind::Ocsp],
            "X509" | "X509_AC" | "PUBKEY" | "OCSP_REQUEST" | "PKCS10_REQUEST" | "GPG" => &[],
            _ => {
                let what = format!("invalid certificate type '{}'", log_lines::plain(&name));
                return request.fail(what);
            }
        };
        self.flush_statuses(kinds, now);
        request.succeed();
    }

    fn stats(&mut self, now: Instant) -> GatewayStats {
        let is_half_open = |state: &IkeSaState| *state == IkeSaState::Connecting;
        let running = now.saturating_duration_since(self.started).as_secs();
        GatewayStats {
            uptime: UptimeStats {
                running: format!("{running} s"),
            },
            ikesas: IkeSaStats {
                total: self.endpoint.states().count(),
                half_open: self.endpoint.states().filter(is_half_open).count(),
            },
            workers: self.plane.report_workers(now),
            control: self.holds.report(),
            engine: self.engine_stats(),
            certificates: certificates::report(&self.loaded.ike, SystemTime::now()),
            crls: report::crls(&self.statuses.added_to(&self.loaded.ike.revocation)),
            links: self.plane.report_links(),
            confinement: report::confinement(&self.confined),
            shield: self.plane.keeper().shield_stats(),
            refusals: self.refusals.others(now),
        }
    }

    fn engine_stats(&self) -> EngineStats {
        let engines = self.plane.engines();
        let shared = engines.shared().and_then(|(index, shared)| {
            let title = engines.worker(index)?.title();
            Some((title, shared.limits()))
        });
        let share = self.join.share().zip(shared);
        EngineStats {
            share: share.map(|(share, (with, limits))| report::share(with, &share, limits)),
            ..tier::report(engines, &self.plane.engine_health())
        }
    }

    /// Counts what was carried, and what was refused or dropped for which reason.
    fn counters(&self) -> GatewayCounters {
        GatewayCounters {
            ike: report::ike_counters(self.endpoint.counters()),
            traffic: self.plane.counters(),
            log: report::output(log::report()),
            key_export: (self.keys.as_ref()).map(|keys| report::output(keys.report())),
        }
    }

    fn list_sas(&self, request: Request, now: Instant) {
        let filter = SaFilter::read(&request.message);
        let status = self.endpoint.status();
        let mut complete = true;
        for sa in status.iter().filter(|sa| filter.takes_ike(sa)) {
            let children = sa.children.iter().filter(|child| filter.takes_child(child));
            let children = children.map(|child| {
                let unique = format!("{}-{}", child.name, child.id.0);
                (unique, self.listed_child(child, now))
            });
            let children = Named(children.collect());
            if filter.wants_children() && children.0.is_empty() {
                continue;
            }
            let name = sa.connection.as_deref().unwrap_or("(unnamed)");
            let path = self.plane.narrow_path(sa.remote.ip(), self.clock.now_ms());
            let listed = report::ike_sa(sa, path, children, now);
            let halves = |sa: &ListedIkeSa| Named::halves(sa, |sa| &mut sa.child_sas);
            complete &= request.emit_divided("list-sa", name, &listed, &halves);
        }
        end_list(request, complete);
    }

    fn listed_child(&self, child: &ChildSaStatus, now: Instant) -> ListedChildSa {
        let installed = self.join.child(child.id);
        let reqid = installed.map(|installed| installed.inbound.common.policy.0);
        let traffic = installed.map(|installed| {
            let engine = self.join.engine_of(installed);
            let engines = (engine, self.join.adaptive_engines(installed));
            let configured = self.join.configured_of(installed);
            let marks = configured.map(|policy| policy.sa.marks).unwrap_or_default();
            let reason = self.join.engine_reason(installed);
            report::child_traffic(installed, marks, engines, reason, self.clock.now_ms())
        });
        report::child_sa(child, reqid, traffic, now)
    }

    fn list_conns(&self, request: Request, now: Instant) {
        let wanted = request.message.text("ike").map(str::to_owned);
        let children = self.endpoint.configured();
        let mut of_connection = HashMap::<_, Vec<_>>::new();
        for child in &children {
            of_connection
                .entry(child.connection.as_str())
                .or_default()
                .push(child);
        }
        let mut complete = true;
        for connection in &self.loaded.ike.connections {
            if wanted.as_ref().is_none_or(|name| connection.name == *name) {
                let children = of_connection.get(connection.name.as_str());
                let children = children.map_or(&[][..], Vec::as_slice);
                let last_refusal = self.refusals.of_connection(&connection.name, now);
                let carried = |child: &str| {
                    let carried = self.join.carried(&connection.name, child)?;
                    Some(report::totals(carried, self.clock.now_ms()))
                };
                let mut listed =
                    report::connection(connection, children, carried, last_refusal, now);
                let children = listed.children.0.iter_mut();
                for attempt in children.filter_map(|(_, child)| child.attempt.as_mut()) {
                    attempt.hint = self.unreachable(attempt.remote_host);
                }
                let name = &connection.name;
                let halves = |one: &ListedConnection| Named::halves(one, |one| &mut one.children);
                complete &= request.emit_divided("list-conn", name, &listed, &halves);
            }
        }
        end_list(request, complete);
    }

    fn list_policies(&self, request: Request) {
        let mut complete = true;
        for policy in &self.loaded.policies {
            let name = format!("{}/{}", policy.connection, policy.child);
            complete &= request.emit_named("list-policy", &name, &report::policy(policy));
        }
        end_list(request, complete);
    }

    fn list_authorities(&self, request: Request) {
        let wanted = request.message.text("name").map(str::to_owned);
        let mut complete = true;
        for authority in &self.loaded.authorities {
            if wanted.as_ref().is_none_or(|name| authority.name == *name) {
                let listed = report::authority(authority);
                complete &= request.emit_named("list-authority", &authority.name, &listed);
            }
        }
        end_list(request, complete);
    }

    fn initiate(&mut self, request: Request, now: Instant) {
        let filter = SaFilter::read(&request.message);
        let connection = filter
            .ike
            .clone()
            .or_else(|| self.connection_of_child(filter.child.as_deref()?));
        let Some(connection) = connection else {
            let name = filter.child.or(filter.ike).unwrap_or_default();
            return request.fail(format!("no connection or child is called {name:?}"));
        };
        if let Err(error) = self
            .endpoint
            .initiate(now, &connection, filter.child.as_deref())
        {
            return request.fail(error);
        }
        self.wait(
            request,
            now,
            Goal::Up {
                connection,
                child: filter.child,
            },
        );
    }

    fn terminate(&mut self, request: Request, now: Instant) {
        let filter = SaFilter::read(&request.message);
        if filter.is_empty() {
            return request.fail("terminate needs the name or the id of an SA");
        }
        let (ike_sas, children) = self.select(&filter);
        let mut attempts = 0;
        let mut result = Ok(());
        if filter.ike_id.is_none() && filter.child_id.is_none() {
            // A termination by name also ends the attempts to establish the connection or child.
            for connection in self.connections_of(&filter) {
                let child = filter.child.as_deref();
                attempts += self
                    .endpoint
                    .terminate(now, &connection, child)
                    .unwrap_or(0);
            }
        } else if filter.wants_children() {
            for child in &children {
                result = result.and(self.endpoint.terminate_child_sa(now, *child));
            }
        } else {
            for ike_sa in &ike_sas {
                result = result.and(self.endpoint.terminate_ike_sa(now, *ike_sa));
            }
        }
        if let Err(error) = result {
            return request.fail(error);
        }
        let matches = if filter.wants_children() {
            children.len()
        } else {
            ike_sas.len()
        };
        if matches == 0 && attempts == 0 {
            return request.fail("no SA matches");
        }
        let ike_sas = if filter.wants_children() {
            Vec::new()
        } else {
            ike_sas
        };
        self.wait(
            request,
            now,
            Goal::Down {
                ike_sas,
                children,
                matches,
            },
        );
    }

    /// Renews SAs. A client that gives a `timeout` hears the outcome, others that it has begun, as with strongSwan.
    fn rekey(&mut self, request: Request, now: Instant) {
        let filter = SaFilter::read(&request.message);
        let said = |key| request.message.text(key) == Some("yes");
        let (all, reauth) = (said("all"), said("reauth"));
        if filter.is_empty() && !all {
            return request.fail("rekey needs the name or the id of an SA");
        }
        if reauth && filter.wants_children() {
            return request.fail("only whole IKE SAs can be reauthenticated");
        }
        let mut renewals = Renewals::new(reauth);
        for (of, sa, subject) in self.current(&filter, all && !reauth) {
            let begun = match sa {
                Sa::Child(child) => self.endpoint.rekey_child_sa(now, child),
                Sa::Ike(ike_sa) if reauth => self.endpoint.reauthenticate_ike_sa(now, ike_sa),
                Sa::Ike(ike_sa) => self.endpoint.rekey_ike_sa(now, ike_sa),
            };
            renewals.begin(of, sa, subject, begun.map_err(|error| error.to_string()));
        }
        match request.message.text("timeout") {
            None | Some("-1") => request.reply(renewals.answer()),
            Some(_) => self.wait(request, now, Goal::Renewed(renewals)),
        }
    }

    /// The SAs that a filter selects and that nothing has replaced, with their IKE SAs: IKE SAs or children, or both.
    fn current(&self, filter: &SaFilter, both: bool) -> Vec<(IkeSaId, Sa, Subject)> {
        let mut current = Vec::new();
        for sa in self.endpoint.status() {
            let lives = matches!(sa.state, IkeSaState::Established | IkeSaState::Rekeying);
            let Some(connection) = sa.connection.as_ref().filter(|_| filter.takes_ike(&sa)) else {
                continue;
            };
            let subject = |child| Subject {
                connection: connection.clone(),
                child,
            };
            if lives && (both || !filter.wants_children()) {
                current.push((sa.id, Sa::Ike(sa.id), subject(None)));
            }
            for child in sa.children.iter().filter(|child| filter.takes_child(child)) {
                let lives = matches!(
                    child.state,
                    ChildSaState::Installed | ChildSaState::Rekeying
                );
                if lives && (both || filter.wants_children()) {
                    let name = Some(child.name.clone());
                    current.push((sa.id, Sa::Child(child.id), subject(name)));
                }
            }
        }
        current
    }

    /// Tells the commands that wait for fresh SAs what has happened.
    pub(in crate::daemon) fn note_renewals(&mut self, event: &Event) {
        for waiter in &mut self.waiters {
            if let Goal::Renewed(renewals) = &mut waiter.goal {
                renewals.note(event);
            }
        }
    }

    fn set_engine(&mut self, request: Request) {
        let filter = SaFilter::read(&request.message);
        let engine = request.message.text("engine").map(str::to_owned);
        let (Some(child), Some(engine)) = (filter.child, engine) else {
            return request.fail("set-engine needs the name of a child, and of an engine");
        };
        if filter.ike_id.is_some() || filter.child_id.is_some() {
            return request.fail("set-engine moves children by their names, not single SAs by `ike-id` or `child-id`");
        }
        match self.join.set_engine(filter.ike.as_deref(), &child, &engine) {
            Ok(Moved { at_once, renewed }) => {
                tracing::info!(
                    child,
                    engine,
                    at_once,
                    renewed,
                    "the child has another engine"
                );
                let mut message = Section::new();
                message
                    .set("success", "yes")
                    .set("matches", at_once + renewed)
                    .set("renewed", renewed);
                request.reply(message);
            }
            Err(error) => request.fail(error),
        }
    }

    /// Returns the IKE SAs that a filter selects, and the children of these SAs that it selects.
    fn select(&self, filter: &SaFilter) -> (Vec<IkeSaId>, Vec<ChildSaId>) {
        let status = self.endpoint.status();
        let sas: Vec<_> = status.iter().filter(|sa| filter.takes_ike(sa)).collect();
        let children = sas
            .iter()
            .flat_map(|sa| &sa.children)
            .filter(|child| filter.takes_child(child));
        (
            sas.iter().map(|sa| sa.id).collect(),
            children.map(|child| child.id).collect(),
        )
    }

    fn connection_of_child(&self, child: &str) -> Option<String> {
        let connections = &self.loaded.ike.connections;
        let has = |connection: &&Arc<Connection>| has_child(connection, child);
        connections
            .iter()
            .find(has)
            .map(|connection| connection.name.clone())
    }

    /// Returns the connections that a filter names: configured ones, and connections that only live on in their SAs.
    fn connections_of(&self, filter: &SaFilter) -> BTreeSet<String> {
        let configured = self.loaded.ike.connections.iter().filter(|connection| {
            let child = filter.child.as_deref();
            child.is_none_or(|child| has_child(connection, child))
        });
        let mut names: BTreeSet<_> = configured.map(|one| one.name.clone()).collect();
        names.extend(
            self.endpoint
                .status()
                .into_iter()
                .filter_map(|sa| sa.connection),
        );
        names.retain(|name| filter.ike.as_ref().is_none_or(|wanted| wanted == name));
        names
    }

    fn wait(&mut self, request: Request, now: Instant, goal: Goal) {
        // swanctl sends milliseconds, and -1 for "do not wait".
        let timeout = match request.message.text("timeout").map(str::parse::<i64>) {
            Some(Ok(-1)) => return request.succeed(),
            Some(Ok(milliseconds @ 1..)) => {
                Duration::from_millis(milliseconds.unsigned_abs()).min(WAIT_MAX)
            }
            _ => WAIT_DEFAULT,
        };
        self.waiters.retain(|waiter| !waiter.request.is_abandoned());
        if self.waiters.len() >= WAITING_MAX {
            return request
                .fail("too many commands are waiting; the SA is being worked on all the same");
        }
        let deadline = now + timeout;
        let look_at = match goal {
            Goal::Up { .. } | Goal::Renewed(_) => deadline,
            Goal::Down { .. } => deadline.min(now + CONFIRM_MAX),
        };
        self.waiters.push(Waiter {
            request,
            look_at,
            deadline,
            timeout,
            goal,
        });
        self.check_waiters(now);
    }

    /// Answers the commands whose goal is reached or whose time is up.
    pub(in crate::daemon) fn check_waiters(&mut self, now: Instant) {
        if self.waiters.is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut self.waiters);
        for mut waiter in waiters {
            if waiter.request.is_abandoned() {
                continue;
            }
            let unconfirmed_counts = waiter.look_at <= now;
            let reached = match &mut waiter.goal {
                Goal::Up { connection, child } => {
                    self.endpoint.is_established(connection, child.as_deref())
                }
                // Nothing is down before all of it is: a look at every SA after each step would cost their square.
                Goal::Down { .. } if self.endpoint.is_ending() => false,
                Goal::Down {
                    ike_sas, children, ..
                } => {
                    ike_sas.retain(|id| {
                        let state = self.endpoint.state_of(*id);
                        let deleting = state == Some(IkeSaState::Deleting);
                        state.is_some() && !(unconfirmed_counts && deleting)
                    });
                    children.retain(|id| {
                        let state = self.endpoint.child_state_of(*id);
                        let deleting = state == Some(ChildSaState::Deleting);
                        state.is_some() && !(unconfirmed_counts && deleting)
                    });
                    ike_sas.is_empty() && children.is_empty()
                }
                Goal::Renewed(renewals) => renewals.pending() == 0,
            };
            if reached {
                waiter.request.reply(reached_answer(&waiter.goal));
            } else if waiter.deadline <= now {
                let answer = self.missed_answer(waiter.goal, waiter.timeout);
                waiter.request.reply(answer);
            } else {
                if unconfirmed_counts {
                    waiter.look_at = waiter.deadline;
                }
                self.waiters.push(waiter);
            }
        }
    }

    /// The answer to a command whose time is up.
    fn missed_answer(&self, goal: Goal, waited: Duration) -> Section {
        let within = format!("within {} s", waited.as_secs());
        let why = match goal {
            Goal::Renewed(mut renewals) => {
                renewals.give_up(waited);
                return renewals.answer();
            }
            Goal::Down { .. } => format!("not down {within}; the gateway goes on"),
            Goal::Up { connection, child } => {
                let why = self.not_up_because(&connection, child.as_deref());
                let attempt = self.explain_attempt(&connection);
                let how = attempt.map(|text| format!(": {text}")).unwrap_or_default();
                let subject = Subject { connection, child };
                format!("{subject} is not up {within}: {why}; the gateway goes on trying{how}")
            }
        };
        server::failure(why)
    }

    /// Returns the reason why a connection or a child is not up.
    fn not_up_because(&self, connection: &str, child: Option<&str>) -> String {
        let status = self.endpoint.status();
        let mut connecting = status.iter().filter(|sa| {
            sa.connection.as_deref() == Some(connection) && sa.state == IkeSaState::Connecting
        });
        if let Some(sa) = connecting.next() {
            return format!("the peer at {} has not answered", sa.remote);
        }
        let children = self.endpoint.configured().into_iter();
        let failure = children
            .filter(|one| one.connection == connection)
            .filter(|one| child.is_none_or(|child| one.child == child))
            .find_map(|one| one.failure);
        match failure {
            Some(failure) => log_lines::plain(&failure.why),
            None => "the peer's answer is still to come".to_owned(),
        }
    }

    /// Fails the commands that wait for a connection, or for one of its children, because it did not come up.
    pub(in crate::daemon) fn fail_waiters(
        &mut self,
        connection: &str,
        child: Option<&str>,
        why: &str,
    ) {
        let waiters = std::mem::take(&mut self.waiters);
        for waiter in waiters {
            match &waiter.goal {
                Goal::Up {
                    connection: wanted,
                    child: wanted_child,
                } if wanted == connection
                    && (child.is_none()
                        || wanted_child
                            .as_deref()
                            .is_none_or(|name| Some(name) == child)) =>
                {
                    waiter.request.fail(why);
                }
                _ => self.waiters.push(waiter),
            }
        }
    }
}

fn reply_names<'a>(request: Request, key: &str, names: impl Iterator<Item = &'a String>) {
    let mut message = Section::new();
    message.list(key, names);
    request.reply(message);
}

/// Ends a list of events. Whoever judges by the list has to know that something is left out.
fn end_list(request: Request, complete: bool) {
    match complete {
        true => request.reply(Section::new()),
        false => {
            request.fail("an entry is too long for one message, so that the list is not complete")
        }
    }
}

/// The answer to a command that has reached its goal.
fn reached_answer(goal: &Goal) -> Section {
    let mut message = Section::new();
    message.set("success", "yes");
    match goal {
        Goal::Renewed(renewals) => return renewals.answer(),
        Goal::Down { matches, .. } => {
            message.set("matches", matches).set("terminated", matches);
        }
        Goal::Up { .. } => {}
    }
    message
}

fn has_child(connection: &Connection, child: &str) -> bool {
    connection.children.iter().any(|known| known.name == child)
}

fn version() -> Section {
    let mut message = Section::new();
    message
        .set("daemon", "esplanade")
        .set("version", env!("CARGO_PKG_VERSION"))
        .set("sysname", std::env::consts::OS)
        .set("machine", std::env::consts::ARCH);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    message.set("release", release.trim());
    message
}
