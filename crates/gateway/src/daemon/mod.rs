//! The daemon: joins IKE, the data plane and the control socket.
//!
//! A control thread owns everything here and runs a loop. It takes one input (an IKE datagram, an event of the data
//! plane, a command or a timer) and lets the endpoint work on it. Then it carries out the results, events before
//! datagrams. So an SA can receive before the message leaves that tells the peer to use it.
//!
//! | module | does |
//! |---|---|
//! | `start`, `reload`, `ending`, `signals` | begin, change and end the gateway's run |
//! | `settings` | turns the configuration into policies, tiers and proposals |
//! | `plane` | holds the data plane: devices, sockets, workers |
//! | `host` | changes the host's devices, routes and tables, and looks at them |
//! | `answers` | carries out commands of the control socket |
//! | `job_pool`, `spd_compiler`, `settings::load_queue` | are threads for what takes long |
//! | `counts`, `load`, `holds` | count and measure |
//! | `certificates`, `revocation`, `silence`, `path_probes`, `log_lines` | tell the administrator what to know |
//! | `fetched` | takes what the fetcher brings |
//! | `keys` | writes session keys for Wireshark |

mod answers;
pub mod certificates;
pub mod counts;
mod ending;
#[cfg(test)]
mod example;
mod fetched;
mod holds;
pub mod host;
mod job_pool;
mod keys;
mod load;
mod log_lines;
mod path_probes;
mod plane;
mod reload;
pub mod revocation;
pub mod settings;
mod signals;
mod silence;
mod spd_compiler;
mod start;

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_crypto::Tier;
use esplanade_crypto::secret::Secret;
use esplanade_ike::config::Identity;
use esplanade_ike::event::{ChildSaId, Event, IkeSaId};
use esplanade_ike::{Endpoint, IkeSaUp};
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::SaDirection;
use esplanade_ipsec::spd::PolicyId;
use tokio::sync::mpsc;

use crate::config::Loaded;
use crate::confine::{self, ControlConfinement, InForce};
use crate::failure::Failure;
use crate::fetch::{FetcherSocket, NameStore, StatusFetcher};
use crate::io::sys::give_back_memory;
use crate::join::{self, Activity, Change, Join};
use crate::notify::Manager;
use crate::rate::LineLimit;
use crate::share::PERIOD;
use crate::tokens::TokenSigner;
use crate::updown::keeper::RunnerSocket;
use crate::updown::{CallsRefused, ChildCalls, ChildFacts, UpdownScripts};
use crate::vici::Section;
use crate::vici::server::{Events, Request};
use crate::worker::{Clock, IkeDatagram};

use answers::control::Waiter;
use answers::refusals::RefusalTable;
use fetched::names_of;
use holds::{Holds, Wake};
use host::shielding::Shielding;
use host::{forwarding, own_traffic};
use job_pool::JobPool;
use keys::KeyFile;
use log_lines::{
    log_address_failed, log_child_failed, log_deleted, log_down, log_limit, log_renewal, log_up,
    plain, trace_message,
};
use path_probes::PathProbes;
use plane::{Ending, FromPlane, Plane};
use settings::load_queue::{ConfigurationInForce, LoadQueue};
use settings::{speeds, tier};
use signals::{Asked, Signals};
use silence::SilentPeers;
use spd_compiler::SpdCompiler;

/// The interval at which the data plane is asked which SAs are in use, and which have reached a limit of their
/// lifetime.
const TICK: Duration = Duration::from_millis(500);
/// Most IKE messages that are taken from their queue at a time.
const ROUND_MAX: usize = 64;
/// The time after which no further message is taken at a time.
const ROUND_TIME: Duration = Duration::from_millis(3);
/// Most commands that may wait for the control thread.
const REQUESTS_WAITING_MAX: usize = 64;

/// The options of `esplanade run`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file, read again at a reload.
    pub config: PathBuf,
    /// The file to append the session keys to, for Wireshark.
    pub export_keys: Option<PathBuf>,
    /// Overrides `cpu_tier` of the configuration.
    pub cpu_tier: Option<Tier>,
}

/// Runs the gateway until it is told to stop. `runner` runs the updown scripts, and `tokens` has keys sign.
pub fn run(
    mut loaded: Loaded,
    options: Options,
    runner: Option<RunnerSocket>,
    tokens: TokenSigner,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start the control thread: {error}")))?;
    runtime.block_on(async {
        confine::settle(loaded.gateway.confine);
        let read = std::mem::take(&mut loaded.read);
        let scripts = scripts_of(&loaded);
        let updown = UpdownScripts::start(runner, scripts)
            .await
            .map_err(|error| {
                Failure::runtime(format!(
                    "cannot reach the runner of updown scripts: {error}"
                ))
            })?;
        let fetches = loaded.ike.revocation.fetches() || !names_of(&loaded).is_empty();
        let fetcher = match fetches {
            true => FetcherSocket::start()
                .map_err(|error| Failure::runtime(format!("cannot start the fetcher: {error}")))?,
            false => FetcherSocket::default(),
        };
        let helpers = Helpers {
            updown,
            fetcher,
            tokens,
        };
        let (mut daemon, inputs) = Daemon::start(loaded, options, helpers).await?;
        let gateway = &daemon.loaded.gateway;
        daemon.confined = confine::controlling(&ControlConfinement {
            config: &daemon.options.config,
            read: &read,
            readable: &gateway.readable,
            socket: &gateway.socket,
            gpu: gateway.gpu.is_some(),
            xdp: !gateway.xdp.is_empty(),
        })
        .map_err(|error| Failure::runtime(format!("cannot give up rights: {error}")))?;
        if let Some(reach) = daemon.confined.reach.take() {
            crate::config::reach::limit(reach);
        }
        daemon.serve(inputs).await
    })
}

/// The connections to processes that help the gateway.
#[derive(Debug)]
struct Helpers {
    updown: UpdownScripts,
    fetcher: FetcherSocket,
    tokens: TokenSigner,
}

#[derive(Debug)]
struct Daemon {
    options: Options,
    loaded: Loaded,
    loads: LoadQueue,
    in_force: ConfigurationInForce,
    started: Instant,
    clock: Clock,
    endpoint: Endpoint,
    job_pool: JobPool,
    join: Join,
    plane: Plane,
    keys: Option<KeyFile>,
    waiters: Vec<Waiter>,
    /// The waiters are to be looked at without an event: a confirmed deletion raises none.
    look_at_waiters: bool,
    events: Events,
    /// Policies whose traffic asked for an SA in vain. The log has one line about each of them.
    refused: HashSet<PolicyId>,
    silent_peers: SilentPeers,
    probed: PathProbes,
    /// The time to put back what others have changed of the network's settings.
    repair_at: Option<Instant>,
    shielding: Shielding,
    next_tick: Instant,
    /// When the own certificates are looked at again.
    certificates_at: Instant,
    /// The time of the next look at the load, which matters while children are adaptive.
    next_balance: Instant,
    updown: UpdownScripts,
    /// The limit for lines about peers that move.
    moves_logged: LineLimit,
    fetcher: FetcherSocket,
    statuses: StatusFetcher,
    names: NameStore,
    refusals: RefusalTable,
    tokens: TokenSigner,
    compiler: SpdCompiler,
    holds: Holds,
    confined: InForce,
}

/// The sources of the loop's work.
#[derive(Debug)]
struct Inputs {
    plane: FromPlane,
    requests: mpsc::Receiver<Request>,
    signals: Signals,
}

impl Daemon {
    async fn serve(mut self, mut inputs: Inputs) -> Result<(), Failure> {
        self.flush(Instant::now()).await;
        self.plane.settle_routes().await;
        tracing::info!(
            connections = self.loaded.ike.connections.len(),
            socket = %self.loaded.gateway.socket.display(),
            "the gateway is ready"
        );
        let mut manager = Manager::from_environment();
        manager.ready();
        give_back_memory();
        let result = loop {
            let (deadline, wake) = (manager.deadline(self.deadline()), Wake::default());
            tokio::select! {
                Some(datagram) = wake.on(inputs.plane.ike.recv()) => {
                    let now = Instant::now();
                    self.on_datagram(&datagram, now);
                    // The datagrams that have queued up make one round of work.
                    for _ in 0..ROUND_MAX {
                        if now.elapsed() >= ROUND_TIME {
                            break;
                        }
                        match inputs.plane.ike.try_recv() {
                            Ok(datagram) => self.on_datagram(&datagram, now),
                            Err(_) => break,
                        }
                    }
                }
                finished = wake.on(self.job_pool.finished()) => self.on_finished(finished, Instant::now()),
                Some(event) = wake.on(inputs.plane.events.recv()) => self.on_plane_event(event, Instant::now()),
                Some(request) = wake.on(inputs.requests.recv()) => self.handle_request(request, Instant::now()),
                () = wake.on(tokio::time::sleep_until(deadline.into())) => {}
                () = wake.on(self.updown.proceed()) => {}
                level = wake.on(self.compiler.compiled()) => {
                    let replaced = self.join.merged(level);
                    self.compiler.free(replaced);
                }
                done = wake.on(self.loads.done()) => self.on_loaded(done, Instant::now()).await,
                report = wake.on(self.fetcher.report()) => self.on_fetched(report, Instant::now()),
                () = wake.on(self.tokens.answered()) => self.endpoint.signatures_made(Instant::now()),
                () = wake.on(inputs.plane.watch.changed()) => {
                    let now = Instant::now();
                    self.repair_at = Some(now);
                    self.endpoint.addresses_changed(now);
                }
                asked = wake.on(inputs.signals.asked()) => match asked {
                    Asked::Stop => break Ok(()),
                    Asked::Reload => self.ask_reload(None),
                },
            }
            if self.repair_at.is_some_and(|at| at <= Instant::now()) {
                let now = Instant::now();
                let again = self.plane.repair(now).await;
                if self.plane.keeper().networks_have_changed() {
                    self.shielding.renew_at(now);
                }
                self.repair_at = again;
            }
            self.tick(Instant::now());
            self.flush(Instant::now()).await;
            manager.keep_alive(Instant::now());
            self.holds.note(&wake);
            let threads = [
                (self.plane.workers_run(), "a data worker has ended"),
                (self.job_pool.runs(), "the threads for IKE have ended"),
                (self.compiler.runs(), "the thread for the SPD has ended"),
            ];
            if let Some((_, what)) = threads.iter().find(|(runs, _)| !runs) {
                break Err(Failure::runtime(*what).help("the log says why"));
            }
        };
        tracing::info!("the gateway stops");
        manager.stopping();
        self.say_goodbye(&mut inputs).await;
        self.finish_scripts().await;
        self.plane
            .stop(match result {
                Ok(()) => Ending::Ordered,
                Err(_) => Ending::Failure,
            })
            .await;
        result
    }

    /// Returns the time to wake up although nothing comes in.
    fn deadline(&self) -> Instant {
        let waiter = self.waiters.iter().map(|waiter| waiter.look_at).min();
        let drained = self.join.next_drained();
        [
            self.endpoint.poll_timeout(),
            waiter,
            self.repair_at,
            drained,
            self.names_due(),
        ]
        .into_iter()
        .flatten()
        .chain(self.join.balances().then_some(self.next_balance))
        .fold(self.next_tick, Instant::min)
    }

    /// Does what is due by the clock.
    fn tick(&mut self, now: Instant) {
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.join.free_spis(now);
        if now >= self.next_balance && self.join.balances() {
            self.next_balance = now + PERIOD;
            if let Some(sample) = self.plane.load_sample(now) {
                let time = now.saturating_duration_since(self.started);
                self.join.balance(&sample, time);
            }
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.endpoint.set_wall_clock(now, SystemTime::now());
            for active in self.join.take_activity(self.clock.now_ms()) {
                self.on_activity(active, now);
            }
            self.join.renew_acquires();
            self.join.expire(now);
            // A device that was opened again may do less, or more.
            self.join.follow_refusals();
            self.names.tick(&mut self.fetcher, now);
            self.tick_statuses(now);
            self.tick_shield(now);
            self.plane.follow_loads(now);
            // The kernel announces this too, but an announcement can be lost.
            if self.plane.has_lost_tun() {
                self.repair_at.get_or_insert(now);
            }
            self.look_at_waiters = true;
            if self.tokens.expire(now) {
                self.endpoint.signatures_made(now);
            }
            if now >= self.certificates_at {
                self.certificates_at = now + certificates::TOLD_EVERY;
                certificates::warn(&self.loaded.ike, SystemTime::now());
            }
            confine::log_refused();
            self.updown.tick(now);
            if let Some(suppressed) = self.moves_logged.take_suppressed(now) {
                tracing::info!(suppressed, "peers have moved, not logged one by one");
            }
        }
    }

    /// Carries out what the endpoint wants: events first, then what follows from them, then datagrams.
    async fn flush(&mut self, now: Instant) {
        let mut events = false;
        if self.tokens.pursue() {
            self.endpoint.signatures_made(now);
        }
        loop {
            while let Some(event) = self.endpoint.poll_event() {
                events = true;
                self.on_event(event, now);
            }
            if self.follow_names(now) || self.shield_if_due(now) {
                continue;
            }
            let changes = self.join.take_changes();
            if changes.is_empty() {
                break;
            }
            for change in changes {
                // Each change waits for the table: nothing is led anywhere before its packets are shielded.
                if !matches!(change, Change::PeerPolicy(..)) {
                    self.settle_shield(now);
                }
                self.follow(change, now).await;
            }
            self.settle_shield(now);
        }
        self.release_shield(now);
        self.updown.hand_out_due();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.plane.send_ike(&transmit, self.clock.now_ms());
        }
        while self.job_pool.has_idle_thread()
            && let Some(job) = self.endpoint.poll_job(now)
        {
            self.job_pool.run(job);
        }
        if let Some(merge) = self.join.take_merge() {
            self.compiler.compile(merge);
        }
        // A tunnel is up only now that the routes are there. The check looks at every SA, so it does not run for every
        // message.
        let look = std::mem::take(&mut self.look_at_waiters) || events;
        if look || self.waiters.iter().any(|waiter| waiter.look_at <= now) {
            self.check_waiters(now);
        }
    }

    /// Makes the rest of the system follow SAD and SPD.
    async fn follow(&mut self, change: Change, now: Instant) {
        match change {
            Change::Tables => self.plane.follow_tables(),
            Change::PeerPolicy(came, policy) => self.shield_peer(came, policy, now),
            Change::Route(route) => {
                if !self.plane.change_route(&route).await {
                    self.repair_at.get_or_insert(now + TICK);
                }
            }
            Change::Dummies(sas) => self.plane.schedule_dummies(sas),
            Change::Renew(child) => {
                // An SA that is about to end needs no rekey: its successor goes to the right engine.
                if let Err(error) = self.endpoint.rekey_child_sa(now, child) {
                    tracing::debug!("an SA is not renewed for another engine: {error}");
                }
            }
        }
    }

    fn on_datagram(&mut self, datagram: &IkeDatagram, now: Instant) {
        self.endpoint
            .handle_datagram(now, datagram.local, datagram.remote, &datagram.payload);
    }

    fn on_plane_event(&mut self, event: esplanade_ipsec::Event, now: Instant) {
        match event {
            esplanade_ipsec::Event::Acquire {
                policy,
                flow,
                selector,
            } => {
                let wanted = self.join.children_to_ask(policy, flow.dscp);
                let demand = join::demand(&flow, &selector);
                let (Some((connection, children)), Some(demand)) = (wanted, demand) else {
                    return;
                };
                let connection = connection.to_owned();
                let children: Vec<_> = children.into_iter().map(str::to_owned).collect();
                let mut refused = None;
                for child in children {
                    tracing::trace!(connection, child, "traffic asks for an SA");
                    let result = self.endpoint.acquire(now, &connection, &child, &demand);
                    refused = refused.or(result.err().map(|error| (child, error)));
                }
                // Traffic asks again and again; the log has the first refusal.
                match refused {
                    None => {
                        self.refused.remove(&policy);
                    }
                    Some((child, error)) if self.refused.insert(policy) => {
                        tracing::warn!(connection, child, "cannot negotiate: {error}");
                    }
                    Some(_) => {}
                }
            }
            esplanade_ipsec::Event::Lifetime {
                direction,
                spi,
                policy,
                event,
            } => {
                let Some((child, installed)) = self.join.child_of(direction, policy, spi) else {
                    return;
                };
                let common = match direction {
                    SaDirection::Inbound => &installed.inbound.common,
                    SaDirection::Outbound => &installed.outbound.common,
                };
                // The look at the SA may have been earlier.
                if common.lifetime.take(event) {
                    self.on_lifetime(child, event, now);
                }
            }
            esplanade_ipsec::Event::PeerMoved {
                spi, policy, to, ..
            } => {
                let found = self.join.child_of(SaDirection::Inbound, policy, spi);
                let Some((child, installed)) = found else {
                    return;
                };
                let local = installed.inbound.common.path().local;
                self.endpoint.note_peer_address(now, child, local, to);
            }
            esplanade_ipsec::Event::UnknownSpi { spi, remote } => {
                self.endpoint.note_unknown_spi(now, remote, spi);
            }
        }
    }

    fn on_activity(&mut self, active: Activity, now: Instant) {
        if active.inbound {
            self.endpoint.note_inbound_traffic(now, active.child);
        }
        if active.outbound {
            self.endpoint.note_outbound_traffic(now, active.child);
        }
        if let Some(event) = active.due {
            self.on_lifetime(active.child, event, now);
        }
    }

    fn on_lifetime(&mut self, child: ChildSaId, event: LifetimeEvent, now: Instant) {
        let result = match event {
            LifetimeEvent::Soft => self.endpoint.rekey_child_sa(now, child),
            LifetimeEvent::Hard => self.endpoint.expire_child_sa(now, child),
            LifetimeEvent::Idle => self.endpoint.close_idle_child_sa(now, child),
        };
        if let Err(error) = result {
            tracing::debug!(%child, ?event, "lifetime event: {error}");
        }
    }

    /// Closes a child SA that IKE has heard no traffic of for `inactivity`, unless there was some since the last look.
    fn on_idle(&mut self, child: ChildSaId, now: Instant) {
        let active = self.join.activity_of(child, self.clock.now_ms());
        match active.filter(Activity::is_used) {
            Some(active) => self.on_activity(active, now),
            None => self.on_lifetime(child, LifetimeEvent::Idle, now),
        }
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        self.note_renewals(&event);
        self.follow_paths(&event, now);
        match event {
            Event::ChildSaIdle { child } => self.on_idle(child, now),
            Event::IkeSaUp(up) => self.on_ike_up(&up),
            Event::IkeSaRekeyed {
                old,
                new,
                connection,
            } => {
                tracing::info!(connection, %old, %new, "IKE SA rekeyed");
                self.emit("ike-rekey", &connection, None);
            }
            Event::IkeSaDown {
                ike_sa,
                connection,
                reason,
            } => {
                log_down(ike_sa, &connection, &reason);
                self.emit("ike-updown", &connection, None);
            }
            Event::ChildSaInstalled(sa) => self.install(&sa, now),
            Event::ChildSaUseOutbound { child } => self.join.use_outbound(child, now),
            Event::ChildSaDeleted(deleted) => {
                log_deleted(&deleted);
                self.join.delete(&deleted, now);
                self.updown.deleted(&deleted);
                if !deleted.replaced {
                    self.emit("child-updown", &deleted.connection, None);
                }
            }
            Event::StatusNeeded(sources) => self.ask_for_status(&sources, now),
            Event::NamesNeeded(names) => self.names.ask(&mut self.fetcher, names, now),
            Event::PeerMoved {
                ike_sa,
                children,
                local,
                remote,
            } => {
                self.log_move(ike_sa, remote, now);
                self.join.peer_moved(&children, local, remote);
            }
            Event::AddressGone {
                ike_sa,
                connection,
                gone,
                local,
            } => {
                tracing::warn!(connection, %ike_sa, %gone, %local, "our address is gone");
            }
            Event::NatKeepalive { local, remote } => {
                self.plane.send_nat_keepalive(local, remote);
            }
            Event::AddressFailed {
                connection,
                remote,
                reason,
            } => log_address_failed(&connection, remote, &reason),
            Event::ConnectFailed {
                connection,
                reason,
                retry_in,
            } => self.on_connect_failed(&connection, &reason, retry_in),
            Event::ChildFailed {
                ike_sa,
                connection,
                child,
                reason,
            } => {
                let why = plain(&reason);
                let again = self.endpoint.refuses_again(&connection, &child);
                log_child_failed(ike_sa, (&connection, &child), &why, again);
                self.fail_waiters(&connection, Some(&child), &why);
            }
            Event::IkeSaReauthenticated { .. }
            | Event::ReauthenticationFailed { .. }
            | Event::RekeyFailed { .. } => log_renewal(&event),
            Event::PathProbeDue { .. } | Event::PathProbed { .. } => {}
            Event::OneWay(told) => self.log_one_way(&told),
            Event::Unanswered(attempt) => self.log_unanswered(&attempt),
            Event::Refused(refused) => self.on_refused(refused, now),
            Event::LimitNear {
                peer,
                limit,
                used,
                most,
            } => log_limit(&peer, limit, used, most),
            Event::Message(trace) => trace_message(&trace),
            Event::KeyLog(log) => {
                if let Some(keys) = &self.keys {
                    keys.ike(&log);
                }
            }
        }
    }

    fn on_ike_up(&mut self, up: &IkeSaUp) {
        log_up(up);
        self.silent_peers.remove(&up.connection);
        self.emit("ike-updown", &up.connection, Some("yes"));
    }

    /// Peers can move as often as they like, so few of their moves are logged.
    fn log_move(&mut self, ike_sa: IkeSaId, remote: SocketAddr, now: Instant) {
        if self.moves_logged.admits(now) {
            tracing::info!(%ike_sa, %remote, "the peer has moved");
        }
    }

    fn install(&mut self, sa: &esplanade_ike::ChildSaInstalled, now: Instant) {
        self.refusals.forget(&sa.connection, sa.remote.ip());
        let Ok(calls) = self.script_calls(sa, now) else {
            let _ = self.endpoint.reject_child_sa(now, sa.child);
            return;
        };
        if let Err(error) = self.join.install(sa, self.clock.now_ms()) {
            tracing::error!(
                connection = sa.connection,
                child = sa.name,
                "cannot install the child SA: {error}"
            );
            let _ = self.endpoint.reject_child_sa(now, sa.child);
            return;
        }
        if let Some(keys) = &self.keys {
            keys.esp(sa);
        }
        let installed = self.join.child(sa.child);
        let engine = installed.and_then(|installed| self.join.engine_of(installed));
        tracing::info!(
            connection = sa.connection,
            child = sa.name,
            spi_in = format_args!("{:08x}", sa.spi_in),
            spi_out = format_args!("{:08x}", sa.spi_out),
            mode = ?sa.mode,
            suite = %sa.esp,
            udp_encap = sa.udp_encap,
            engine = engine.unwrap_or("cpu"),
            rekey = sa.rekeyed_from.is_some(),
            "child SA installed"
        );
        self.updown.installed(sa, calls);
        match sa.rekeyed_from {
            Some(_) => self.emit("child-rekey", &sa.connection, None),
            None => self.emit("child-updown", &sa.connection, Some("yes")),
        }
    }

    /// Returns the calls of the child's updown script for an SA that is about to come up.
    fn script_calls(
        &mut self,
        sa: &esplanade_ike::ChildSaInstalled,
        now: Instant,
    ) -> Result<Option<ChildCalls>, CallsRefused> {
        if !self.updown.has_scripts() {
            return Ok(None);
        }
        let policy = self.loaded.policy(&sa.connection, &sa.name);
        let status = self.endpoint.status_around(sa.child);
        let (Some(policy), Some(status)) = (policy, status) else {
            return Ok(None);
        };
        let id = |id: Option<Identity>| id.map_or_else(String::new, |id| id.to_string());
        let facts = ChildFacts {
            sa,
            policy,
            interface: self
                .loaded
                .gateway
                .interface_name(policy.sa.if_ids.outbound),
            local_id: id(status.local_id),
            remote_id: id(status.remote_id),
        };
        self.updown.admit(&facts, now)
    }

    fn emit(&self, event: &str, connection: &str, up: Option<&str>) {
        let mut message = Section::new();
        if let Some(up) = up {
            message.set("up", up);
        }
        message.section(connection, Section::new());
        self.events.emit(event, message);
    }
}

fn warn_of_missing(loaded: &Loaded) {
    let forwarding = forwarding::missing(loaded).into_iter();
    let forwarding = forwarding.chain(forwarding::filtered(loaded));
    for (what, help) in forwarding.chain(own_traffic::taken(loaded)) {
        tracing::warn!("{what}: {help}");
    }
    if let Some((what, help)) = revocation::missing(loaded) {
        tracing::warn!("{what}: {help}");
    }
    certificates::warn(&loaded.ike, SystemTime::now());
}

/// The updown scripts of a configuration, each once.
fn scripts_of(loaded: &Loaded) -> Vec<String> {
    let scripts = loaded
        .policies
        .iter()
        .filter_map(|policy| policy.updown.clone());
    let unique: BTreeSet<_> = scripts.collect();
    unique.into_iter().collect()
}

/// Removes what a gateway with this configuration has left to keep traffic off the wire.
pub fn clear_guards(loaded: &Loaded) -> Result<(), Failure> {
    if UnixStream::connect(&loaded.gateway.socket).is_ok() {
        let socket = loaded.gateway.socket.display();
        let what = format!("a gateway runs at {socket}: it would put them back");
        return Err(Failure::runtime(what).help("stop it first"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::runtime)?;
    runtime.block_on(plane::clear_guards(&loaded.gateway))
}

/// Sets the parts of IKE's configuration that are not the administrator's. The CPU engine's tier must have been chosen.
fn settle_ike(loaded: &mut Loaded, key_log: bool, token_secret: Option<Arc<Secret>>) {
    loaded.ike.key_log = key_log;
    loaded.ike.token_secret = token_secret;
    loaded.ike.trace_messages = tracing::enabled!(tracing::Level::TRACE);
    let children = loaded.ike.connections.iter();
    let children = children.flat_map(|connection| &connection.children);
    let proposals = children.flat_map(|child| &child.esp_proposals);
    tier::settle(proposals.flat_map(|one| speeds::transforms(&one.encryption, &one.integrity)));
    for policy in loaded
        .policies
        .iter()
        .filter(|policy| policy.adaptive_proposals)
    {
        let connections = loaded.ike.connections.iter_mut();
        let children = connections
            .filter(|connection| connection.name == policy.connection)
            .flat_map(|connection| &mut Arc::make_mut(connection).children);
        for child in children.filter(|child| child.name == policy.child) {
            speeds::order(&mut Arc::make_mut(child).esp_proposals);
        }
    }
}
