//! The endpoint: all IKE SAs of one gateway, driven by datagrams, time and commands.

mod answers;
mod drive;
mod effects;
mod ends;
mod goals;
mod half_open;
mod name_hold;
mod own_addresses;
mod pacing;
mod path_probes;
mod reauthentication;
mod receive;
mod snapshot;
mod table;
mod turns;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_few::FewSet;

use crate::claims::Claims;
use crate::config::{Child, Config, Connection};
use crate::connection_choice::ConnectionTable;
use crate::cookie::Cookies;
use crate::event::{Event, Transmit};
use crate::failure::{DownReason, Shortage};
use crate::host::Host;
use crate::id::{ChildSaId, IkeSaId};
use crate::jobs::{Job, JobDone, Jobs, WorkOutcome};
use crate::report_limit::ReportLimit;
use crate::sa::{Context, Effect, Established, IkeSa, Task};
use crate::secret_choice::SecretTable;
use crate::status::{IkeCounters, IkeSaStatus};
use answers::Answers;
use ends::Ends;
use esplanade_pki::RevocationStore;
use goals::Goals;
use half_open::HalfOpen;
use name_hold::NameHold;
use own_addresses::AddressWatch;
use pacing::Pacing;
use path_probes::ProbeRefusals;
use table::IkeSaTable;
use turns::FailedAddresses;

/// The reason why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("no connection named {0:?}")]
    NoConnection(String),
    #[error("connection {0:?} has no child named {1:?}")]
    NoChild(String, String),
    #[error("no such SA")]
    NoSa,
    #[error("connection {0:?} has no single remote address to initiate to")]
    NoRemoteAddress(String),
    #[error(
        "there is no route to the peer of connection {0:?}, or no local address to initiate from"
    )]
    NoRoute(String),
    #[error("the name {name} has no address: {why}")]
    NoAddress { name: String, why: String },
    #[error("the peer of connection {0:?} is behind a NAT: only the peer can reauthenticate")]
    BehindNat(String),
    #[error("the IKE SA of connection {0:?} has no child SA that a new one could go on with")]
    WithoutChildren(String),
    #[error("limit of {0} reached")]
    Limit(Shortage),
    #[error("child {0:?} is closed by command until `up` opens it")]
    Closed(String),
    #[error("child {0:?} takes selectors from packets: only traffic can ask for it")]
    NeedsPacket(String),
}

/// Most IKE SAs whose timers are looked at in one call.
const TIMERS_MAX: usize = 128;
/// Most IKE SAs of one identity that are looked at for what one of them has shown.
const PEER_SAS_MAX: usize = 8;

/// All IKE SAs of one gateway. It holds no socket and no clock.
///
/// After every call that takes `now`, and only then, drain [`Endpoint::poll_event`], then
/// [`Endpoint::poll_transmit`], then arm a timer for [`Endpoint::poll_timeout`]. Events come first: an SA must be
/// able to receive before the message leaves that tells the peer to use it.
///
/// If [`Host::runs_jobs`] is not set, take a job with [`Endpoint::poll_job`] whenever a thread is free to run it, and
/// bring it back with [`Endpoint::job_done`]. Which job is next is decided late, so take none in advance.
///
/// Much work at once is done in steps: a time-out that has passed already asks for the next step. In between the
/// caller can bring other peers' datagrams.
pub struct Endpoint {
    config: Config,
    connections: ConnectionTable,
    secrets: SecretTable,
    /// Indices into the connections of `config`.
    by_name: HashMap<String, usize>,
    host: Host,
    /// The wall clock's time at one moment.
    wall_clock: (Instant, SystemTime),
    table: IkeSaTable,
    claims: Claims,
    goals: Goals,
    address_watch: AddressWatch,
    name_hold: NameHold,
    pacing: Pacing,
    failed_addresses: FailedAddresses,
    probe_refusals: ProbeRefusals,
    cookies: Cookies,
    answers: Answers,
    report_limit: ReportLimit,
    /// The next time at which a hint that nobody has authenticated is looked at.
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
    counters: IkeCounters,
    effects: Vec<Effect>,
    jobs: Jobs,
    ends: Ends,
    /// IKE SAs whose IKE_AUTH waits for the status of certificates, or for our own signature.
    auth_held: HashSet<IkeSaId>,
    last_id: u64,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("ike_sas", &self.table.len())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    pub fn new(config: Config, mut host: Host, now: Instant) -> Self {
        let cookies = Cookies::new(now, &mut *host.random);
        let table = IkeSaTable::new(HalfOpen::new(&config));
        let mut claims = Claims::default();
        claims.configure(&config);
        Self {
            connections: ConnectionTable::new(&config.connections),
            secrets: SecretTable::new(&config.secrets),
            by_name: index(&config),
            answers: Answers::default(),
            report_limit: ReportLimit::default(),
            config,
            host,
            wall_clock: (now, SystemTime::UNIX_EPOCH),
            table,
            claims,
            goals: Goals::default(),
            address_watch: AddressWatch::default(),
            name_hold: NameHold::default(),
            pacing: Pacing::default(),
            failed_addresses: FailedAddresses::default(),
            probe_refusals: ProbeRefusals::default(),
            cookies,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            counters: IkeCounters::default(),
            effects: Vec::new(),
            jobs: Jobs::default(),
            ends: Ends::default(),
            auth_held: HashSet::new(),
            last_id: 0,
        }
    }

    /// Sets the wall-clock time, for the validity of certificates. Until then it is 1970, when no certificate is
    /// valid.
    pub fn set_wall_clock(&mut self, now: Instant, wall_clock: SystemTime) {
        self.wall_clock = (now, wall_clock);
    }

    /// Replaces the configuration. IKE SAs go on under the connection of the same name, so that children can be added
    /// and removed. Call [`Endpoint::withdraw`] before, for what must not go on. SAs of removed connections stay
    /// until they are terminated. Nothing is initiated: call [`Endpoint::start`].
    pub fn set_config(&mut self, config: Config) {
        self.connections = ConnectionTable::new(&config.connections);
        self.secrets = SecretTable::new(&config.secrets);
        self.by_name = index(&config);
        self.config = config;
        self.jobs.reconfigure();
        let connections = &self.config.connections;
        let by_name = |name: &str| connections.get(*self.by_name.get(name)?);
        self.table
            .reconfigure(by_name, |id| self.ends.is_terminated(id));
        self.goals.configure(by_name);
        let by_name = &self.by_name;
        self.failed_addresses
            .retain(|name| by_name.contains_key(name));
        self.claims.configure(&self.config);
        self.table.half_open.configure(&self.config);
    }

    /// Replaces the information about revocation, and decides on the peers that have waited for it.
    pub fn set_revocation(&mut self, now: Instant, store: Arc<RevocationStore>) {
        self.config.revocation = store;
        self.jobs.reconfigure();
        self.resume_auth(now);
    }

    /// An [`crate::auth::ExternalKey`] has an outcome that was pending before.
    pub fn signatures_made(&mut self, now: Instant) {
        self.resume_auth(now);
    }

    fn resume_auth(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.auth_held) {
            self.with(now, id, |sa, ctx| sa.resume_auth(ctx));
        }
        self.settle(now);
    }

    /// Takes one UDP payload. On the NAT-T port, which `local.port()` tells, it begins with the non-ESP marker.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) {
        self.receive(now, local, remote, payload);
        self.settle(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for id in self.table.due(now, TIMERS_MAX) {
            self.with(now, id, |sa, ctx| sa.handle_timeout(ctx));
        }
        self.settle(now);
        self.look_at_addresses(now);
        self.pursue(now);
        self.settle(now);
    }

    /// The job that is to be done next.
    pub fn poll_job(&mut self, now: Instant) -> Option<Job> {
        self.jobs.next(now)
    }

    /// Takes the outcome of a job. `cost` is the time that it has taken a processor.
    pub fn job_done(&mut self, now: Instant, done: JobDone, cost: Duration) {
        self.finish_job(now, done, cost);
        self.settle(now);
    }

    fn finish_job(&mut self, now: Instant, done: JobDone, cost: Duration) {
        self.jobs.settle(now, done.ticket, cost);
        if let WorkOutcome::Checked(verdict) = &done.outcome
            && let (Some(certificate), Err(why)) = (verdict.revoked, &verdict.peer)
        {
            self.end_sas_of(now, certificate, why);
        }
        self.with(now, done.ike_sa, |sa, ctx| {
            sa.job_done(ctx, done.ticket, done.outcome);
        });
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            self.ends.begin_step();
        }
        event
    }

    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let watch = self.address_watch.next_timeout();
        let ends = self.ends.next_timeout();
        let goals = self.goals.next_timeout();
        [self.table.next_timeout(), goals, watch, ends]
            .into_iter()
            .flatten()
            .min()
    }

    /// The data plane has reached a hard limit.
    pub fn expire_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        let ike_sa = self.table.ike_sa_of(child).ok_or(CommandError::NoSa)?;
        let state = self.table.get(ike_sa).and_then(IkeSa::established);
        let task = state.and_then(|state| state.expiry(child));
        self.ike_task(now, ike_sa, task.ok_or(CommandError::NoSa)?)
    }

    /// The answer to [`Event::ChildSaIdle`] if there was no traffic.
    pub fn close_idle_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
    ) -> Result<(), CommandError> {
        let ike_sa = self.table.ike_sa_of(child).ok_or(CommandError::NoSa)?;
        let state = self.table.get(ike_sa).and_then(IkeSa::established);
        let current = |state: &Established| {
            let current = state.children.iter().filter(|one| one.state.is_current());
            current.map(|one| one.id).eq([child])
        };
        let only = state.is_some_and(current);
        let task = match self.config.inactivity_close_ike && only {
            true => Task::DeleteIke(DownReason::Inactive),
            false => Task::DeleteChild(child, DownReason::Inactive),
        };
        self.ike_task(now, ike_sa, task)
    }

    /// Rekeys the IKE SAs of the connection, or the SAs of one of its children. Returns their number.
    pub fn rekey(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
    ) -> Result<usize, CommandError> {
        let ids = self.table.of_connection(connection);
        if ids.is_empty() {
            self.connection(connection)?;
        }
        Ok(match child {
            None => ids
                .iter()
                .filter(|id| self.rekey_ike_sa(now, **id).is_ok())
                .count(),
            Some(name) => {
                let children = self.children_named(&ids, name);
                children
                    .iter()
                    .filter(|id| self.rekey_child_sa(now, **id).is_ok())
                    .count()
            }
        })
    }

    pub fn rekey_ike_sa(&mut self, now: Instant, ike_sa: IkeSaId) -> Result<(), CommandError> {
        self.ike_task(now, ike_sa, Task::RekeyIke)
    }

    /// The data plane has reached a soft limit in bytes, packets or sequence numbers, or the administrator asks.
    pub fn rekey_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        self.child_task(now, child, Task::RekeyChild)
    }

    /// Authenticated ESP traffic came in on `child`. Its peer is alive (RFC 7296 §2.4), and has begun to use the SA.
    pub fn note_inbound_traffic(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| sa.note_inbound_traffic(ctx, child));
            self.note_traffic_of_peer(now, id, child);
        }
        self.settle(now);
    }

    /// A peer with several IKE SAs may answer over another one than we send over.
    fn note_traffic_of_peer(&mut self, now: Instant, id: IkeSaId, child: ChildSaId) {
        let Some(peer) = self.table.peer_of(id) else {
            return;
        };
        // Many peers can have one identity. The SAs of one of them are few.
        let count = self.table.peers().get(peer).map_or(0, FewSet::len);
        if !(2..=PEER_SAS_MAX).contains(&count) {
            return;
        }
        let others = self.table.of_peer(peer);
        let state = self.table.get(id).and_then(IkeSa::established);
        let config = state.and_then(|state| Some(state.child(child)?.config.clone()));
        let Some(config) = config else { return };
        for other in others.into_iter().filter(|other| *other != id) {
            self.with(now, other, |sa, ctx| {
                sa.note_traffic_elsewhere(ctx, &config.name)
            });
        }
    }

    /// ESP went out on `child`. Its NAT mapping needs no keepalive for a while.
    pub fn note_outbound_traffic(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| {
                sa.note_outbound_traffic(ctx, child);
            });
        }
        if !self.effects.is_empty() {
            self.settle(now);
        }
    }

    /// Authenticated ESP traffic came from a new outer address (RFC 7296 §2.23).
    pub fn note_peer_address(
        &mut self,
        now: Instant,
        child: ChildSaId,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| sa.note_peer_address(ctx, local, remote));
        }
        self.settle(now);
    }

    /// The status of every IKE SA, oldest first. This clones each SA's status; see [`Endpoint::status_around`] for
    /// one SA.
    pub fn status(&self) -> Vec<IkeSaStatus> {
        self.table.iter().filter_map(snapshot::ike_sa).collect()
    }

    /// The status of the IKE SA that has the child SA.
    pub fn status_around(&self, child: ChildSaId) -> Option<IkeSaStatus> {
        snapshot::ike_sa(self.table.get(self.table.ike_sa_of(child)?)?)
    }

    /// The identity of the peer of a child SA.
    pub fn peer_of(&self, child: ChildSaId) -> Option<&crate::config::Identity> {
        let peer = self.table.peer_of(self.table.ike_sa_of(child)?)?;
        Some(peer.remote())
    }

    pub fn counters(&self) -> &IkeCounters {
        &self.counters
    }

    /// IKE SAs that peers have begun and that are not authenticated yet.
    pub fn half_open(&self) -> usize {
        self.table.half_open.len()
    }

    fn connection(&self, name: &str) -> Result<Arc<Connection>, CommandError> {
        let index = self.by_name.get(name);
        index
            .and_then(|index| self.config.connections.get(*index))
            .cloned()
            .ok_or_else(|| CommandError::NoConnection(name.to_owned()))
    }

    fn children_named(&self, ids: &[IkeSaId], name: &str) -> Vec<ChildSaId> {
        ids.iter()
            .filter_map(|id| self.table.get(*id)?.established())
            .flat_map(|state| state.current(name))
            .map(|child| child.id)
            .collect()
    }

    fn child_task(
        &mut self,
        now: Instant,
        child: ChildSaId,
        task: impl FnOnce(ChildSaId) -> Task,
    ) -> Result<(), CommandError> {
        let ike_sa = self.table.ike_sa_of(child).ok_or(CommandError::NoSa)?;
        self.ike_task(now, ike_sa, task(child))
    }

    fn ike_task(&mut self, now: Instant, ike_sa: IkeSaId, task: Task) -> Result<(), CommandError> {
        let queued = self.with(now, ike_sa, |sa, ctx| {
            sa.established()?;
            sa.do_task(ctx, task);
            Some(())
        });
        self.settle(now);
        queued.flatten().ok_or(CommandError::NoSa)
    }

    /// Lends out everything but the SAs themselves.
    fn in_context<R>(&mut self, now: Instant, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (at, wall_clock) = self.wall_clock;
        let mut ctx = Context {
            now,
            wall_clock: wall_clock + now.saturating_duration_since(at),
            config: &self.config,
            connections: &self.connections,
            secrets: &self.secrets,
            random: &mut *self.host.random,
            key_exchange: &self.host.key_exchange,
            jobs: &mut self.jobs,
            prepared: None,
            spis: &mut *self.host.spis,
            policies: &mut *self.host.policies,
            events: &mut self.events,
            transmits: &mut self.transmits,
            counters: &mut self.counters,
            last_id: &mut self.last_id,
            by_spi: self.table.by_spi(),
            established: self.table.established(),
            peers: self.table.peers(),
            by_remote: self.table.by_remote(),
            report_limit: &mut self.report_limit,
            claims: &mut self.claims,
            effects: &mut self.effects,
            ends: self.ends.queue(),
        };
        f(&mut ctx)
    }

    fn insert(&mut self, now: Instant, sa: Box<IkeSa>, init: Option<SocketAddr>) {
        if let Some(ended) = self.table.superfluous(self.config.limits.ike_sas_max) {
            self.with(now, ended, |sa, _| sa.forget());
        }
        let timeout = sa.next_timeout(&self.config);
        self.pacing
            .note(sa.common.id, sa.common.remote.ip(), sa.connecting());
        self.table.insert(now, sa, init, timeout);
    }

    /// Works on one IKE SA, and keeps the tables up to date.
    fn with<R>(
        &mut self,
        now: Instant,
        id: IkeSaId,
        f: impl FnOnce(&mut IkeSa, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let mut sa = self.table.take(id)?;
        let before = self.events.len();
        let result = self.in_context(now, |ctx| {
            let result = f(&mut sa, ctx);
            let at = sa.next_timeout(ctx.config);
            (result, at)
        });
        let of_goals = sa.is_with_initiation_peer();
        for event in self.events.iter().skip(before) {
            self.table.follow(event);
            self.ends.follow(event);
            if of_goals {
                self.goals.follow(now, event);
            }
            if let Event::ChildSaInstalled(new) = event
                && let Some(past) = new.rekeyed_from.and_then(|old| self.table.past_of(old))
            {
                sa.inherit_past(new.child, past);
            }
        }
        self.pacing.note(id, sa.common.remote.ip(), sa.connecting());
        if !sa.phase.awaits_job()
            && let Some(ticket) = sa.common.job.take()
        {
            self.jobs.cancel(ticket);
        }
        self.table.put_back(now, sa, result.1);
        Some(result.0)
    }
}

fn index(config: &Config) -> HashMap<String, usize> {
    // If several connections have one name, the first one is used.
    let names = config.connections.iter().enumerate().rev();
    names
        .map(|(at, connection)| (connection.name.clone(), at))
        .collect()
}

fn find_child(connection: &Connection, name: &str) -> Result<Arc<Child>, CommandError> {
    let child = connection.children.iter().find(|child| child.name == name);
    child
        .cloned()
        .ok_or_else(|| CommandError::NoChild(connection.name.clone(), name.to_owned()))
}

/// The end of the message IDs, which no test reaches by sending messages (RFC 7296 §2.2).
#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use esplanade_crypto::iana::{Encryption, Group, Prf, SequenceNumbers};
    use esplanade_crypto::secret::Secret as SecretBytes;

    use super::*;
    use crate::config::generators::plain_connection;
    use crate::config::{
        AddressMatch, EspProposal, Identity, IkeProposal, LocalAuth, LocalMethod, RemoteAuth,
        RemoteMethod, Secret, Selector,
    };
    use crate::host::{EspSpiAllocator, Routes};

    const ADDRESSES: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

    struct Spis(u32);

    impl EspSpiAllocator for Spis {
        fn allocate(&mut self) -> Option<u32> {
            self.0 += 1;
            Some(self.0)
        }

        fn release(&mut self, _spi: u32) {}
    }

    struct Here(IpAddr);

    impl Routes for Here {
        fn source(&self, _remote: IpAddr, _local: Option<IpAddr>) -> Option<IpAddr> {
            Some(self.0)
        }
    }

    fn end(own: usize, now: Instant) -> Endpoint {
        let address = |at: usize| -> IpAddr { ADDRESSES[at].parse().unwrap() };
        let peer = 1 - own;
        let selector = |at: usize| vec![Selector::range(address(at), address(at))];
        let child = Child {
            name: "net".to_owned(),
            local_ts: selector(own),
            remote_ts: selector(peer),
            esp_proposals: vec![EspProposal {
                encryption: vec![(Encryption::AesGcm16, 128)],
                integrity: vec![],
                groups: vec![],
                sequence_numbers: vec![SequenceNumbers::Bits32],
            }],
            ..Child::default()
        };
        let connection = Connection {
            local_addrs: vec![AddressMatch::Host(address(own))],
            remote_addrs: vec![AddressMatch::Host(address(peer))],
            proposals: vec![IkeProposal {
                encryption: vec![(Encryption::AesGcm16, 128)],
                integrity: vec![],
                prf: vec![Prf::HmacSha2_256],
                groups: vec![Group::Curve25519],
            }],
            local: LocalAuth {
                id: Identity::Ip(address(own)),
                method: LocalMethod::Psk,
            },
            remote: RemoteAuth {
                id: Identity::Ip(address(peer)),
                method: RemoteMethod::Psk,
            },
            children: vec![Arc::new(child)],
            ..plain_connection()
        };
        let config = Config {
            connections: vec![Arc::new(connection)],
            secrets: vec![Secret {
                owners: vec![],
                key: Arc::new(SecretBytes::from(b"a shared secret".as_slice())),
            }],
            ..Config::default()
        };
        let spis = Spis(0x1000 << own);
        let host = Host::new(Box::new(spis), Box::new(Here(address(own))));
        Endpoint::new(config, host, now)
    }

    /// Delivers messages until there are none, and returns the events of both ends.
    fn settle(ends: &mut [Endpoint; 2], now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let mut moved = false;
            for at in 0..2 {
                events.extend(std::iter::from_fn(|| ends[at].poll_event()));
                while let Some(sent) = ends[at].poll_transmit() {
                    let (to, from): (SocketAddr, SocketAddr) = (sent.remote, sent.local);
                    ends[1 - at].handle_datagram(now, to, from, &sent.payload);
                    moved = true;
                }
            }
            if !moved {
                return events;
            }
        }
    }

    fn established(now: Instant) -> [Endpoint; 2] {
        let mut ends = [end(0, now), end(1, now)];
        ends[0].initiate(now, "site", None).unwrap();
        let events = settle(&mut ends, now);
        let up = |event: &&Event| matches!(event, Event::IkeSaUp(_));
        assert_eq!(events.iter().filter(up).count(), 2);
        ends
    }

    fn skip(ends: &mut [Endpoint; 2], ids: (u32, u32)) {
        for (at, ids) in [(0, ids), (1, (ids.1, ids.0))] {
            for sa in ends[at].table.iter_mut() {
                sa.common.window.skip_to(ids.0, ids.1);
            }
        }
    }

    /// One exchange of the first end.
    fn exchange(ends: &mut [Endpoint; 2], now: Instant) -> Vec<Event> {
        ends[0].rekey(now, "site", Some("net")).unwrap();
        let mut events = settle(ends, now);
        let later = now + Duration::from_millis(10);
        ends.iter_mut().for_each(|end| end.handle_timeout(later));
        events.extend(settle(ends, later));
        events
    }

    // RFC 7296 R54
    #[test]
    fn an_ike_sa_is_rekeyed_before_its_message_ids_run_out() {
        let now = Instant::now();
        for ids in [(u32::MAX - 900_000, 5), (5, u32::MAX - 900_000)] {
            let mut ends = established(now);
            assert!(
                !exchange(&mut ends, now)
                    .iter()
                    .any(|event| matches!(event, Event::IkeSaRekeyed { .. }))
            );
            skip(&mut ends, ids);
            let events = exchange(&mut ends, now);
            let rekeyed = events
                .iter()
                .filter(|event| matches!(event, Event::IkeSaRekeyed { .. }));
            assert!(rekeyed.count() >= 2, "at both ends: {events:#?}");
        }
    }

    // RFC 7296 R54
    #[test]
    fn an_ike_sa_without_message_ids_is_closed() {
        let now = Instant::now();
        for ids in [(u32::MAX - 1, 5), (5, u32::MAX - 1)] {
            let mut ends = established(now);
            skip(&mut ends, ids);
            // No rekey succeeds in time.
            for end in &mut ends {
                for sa in end.table.iter_mut() {
                    if let Some((state, _)) = sa.established_mut() {
                        state.runs_out = true;
                    }
                }
            }
            let by = usize::from(ids.0 == 5);
            ends[by].rekey(now, "site", Some("net")).unwrap();
            let events = settle(&mut ends, now);
            let expired = |event: &&Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::Expired);
            assert!(events.iter().any(|event| expired(&event)), "{events:#?}");
            let mut sas = ends.iter().flat_map(|end| end.table.iter());
            assert!(sas.all(|sa| sa.established().is_none()));
        }
    }
}
