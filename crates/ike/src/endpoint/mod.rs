//! The endpoint: all IKE SAs of one gateway, driven by datagrams, time and commands.

mod answers;
mod drive;
mod effects;
mod goals;
mod half_open;
mod pacing;
mod receive;
mod snapshot;
mod table;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::claims::Claims;
use crate::config::{AddressMatch, Child, Config, Connection};
use crate::cookie::Cookies;
use crate::event::{ChildSaId, DownReason, Event, IkeSaId, Transmit};
use crate::host::{EspSpiAllocator, Random, Routes};
use crate::report_limit::ReportLimit;
use crate::sa::{ChildState, Context, Effect, IkeSa, Phase, Task, Wanted, delete_ike};
use crate::status::{Counters, IkeSaStatus};
use answers::Answers;
use goals::Goals;
use half_open::HalfOpen;
use pacing::Pacing;
use table::Table;

/// Why a command was not carried out.
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
    #[error("limit of {0} reached")]
    Limit(&'static str),
    #[error("child {0:?} is closed by command until `up` opens it")]
    Closed(String),
    #[error("child {0:?} takes selectors from packets: only traffic can ask for it")]
    NeedsPacket(String),
}

/// All IKE SAs of one gateway. Holds no socket and no clock.
///
/// After every call that takes `now` (and only then) drain [`Endpoint::poll_event`], then
/// [`Endpoint::poll_transmit`], then arm a timer for [`Endpoint::poll_timeout`]. Events first: an SA must be able to
/// receive before the message that tells the peer to use it leaves.
pub struct Endpoint {
    config: Config,
    /// Indices into its connections.
    by_name: HashMap<String, usize>,
    spis: Box<dyn EspSpiAllocator>,
    routes: Box<dyn Routes>,
    random: Box<dyn Random>,
    /// The wall clock at one moment.
    wall_clock: (Instant, SystemTime),
    table: Table,
    claims: Claims,
    goals: Goals,
    pacing: Pacing,
    cookies: Cookies,
    answers: Answers,
    report_limit: ReportLimit,
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
    counters: Counters,
    effects: Vec<Effect>,
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
    pub fn new(
        config: Config,
        spis: Box<dyn EspSpiAllocator>,
        routes: Box<dyn Routes>,
        mut random: Box<dyn Random>,
        now: Instant,
    ) -> Self {
        let cookies = Cookies::new(now, &mut *random);
        let table = Table::new(HalfOpen::new(&config));
        let mut claims = Claims::default();
        claims.configure(&config);
        Self {
            by_name: index(&config),
            answers: Answers::default(),
            report_limit: ReportLimit::default(),
            config,
            spis,
            routes,
            random,
            wall_clock: (now, SystemTime::UNIX_EPOCH),
            table,
            claims,
            goals: Goals::default(),
            pacing: Pacing::default(),
            cookies,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            counters: Counters::default(),
            effects: Vec::new(),
            last_id: 0,
        }
    }

    /// Wall-clock time, for the validity of certificates. Never set: 1970, where no certificate is valid.
    pub fn set_wall_clock(&mut self, now: Instant, wall_clock: SystemTime) {
        self.wall_clock = (now, wall_clock);
    }

    /// Replaces the configuration. IKE SAs go on under the connection of their name, so that children can be added and
    /// others taken away; call [`Endpoint::withdraw`] before for what must not go on. SAs of connections that are no longer
    /// there stay until they are terminated. Nothing is initiated: call [`Endpoint::start`].
    pub fn set_config(&mut self, config: Config) {
        self.by_name = index(&config);
        self.config = config;
        let connections = &self.config.connections;
        let by_name = |name: &str| connections.get(*self.by_name.get(name)?);
        self.table.reconfigure(by_name);
        self.goals.configure(by_name);
        self.claims.configure(&self.config);
        self.table.half_open.configure(&self.config);
    }

    /// Takes one UDP payload; `local.port()` tells whether it begins with the non-ESP marker.
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
        for id in self.table.due(now) {
            self.with(now, id, |sa, ctx| sa.handle_timeout(ctx));
        }
        self.settle(now);
        self.pursue(now);
        self.settle(now);
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.table.next_timeout(), self.goals.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// A hard limit was reached in the data plane.
    pub fn expire_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        self.child_task(now, child, |id| Task::DeleteChild(id, DownReason::Expired))
    }

    /// The answer to [`Event::ChildSaIdle`] where there was no traffic.
    pub fn close_idle_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
    ) -> Result<(), CommandError> {
        self.child_task(now, child, |id| Task::DeleteChild(id, DownReason::Inactive))
    }

    /// Rekeys the IKE SAs of the connection, or the SAs of one of its children. Returns how many.
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

    /// A soft limit in bytes, packets or sequence numbers was reached in the data plane, or the administrator asks.
    pub fn rekey_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        self.child_task(now, child, Task::RekeyChild)
    }

    /// Authenticated ESP traffic came in on `child`: its peer lives (RFC 7296 section 2.4), and has begun to use the
    /// SA.
    pub fn note_inbound_traffic(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| sa.note_inbound_traffic(ctx, child));
        }
        self.settle(now);
    }

    /// ESP went out on `child`: its NAT mapping needs no keepalive for a while.
    pub fn note_outbound_traffic(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| {
                sa.last_sent = ctx.now;
                let state = sa.established_mut();
                if let Some(child) = state.and_then(|state| state.child_mut(child)) {
                    child.last_used = ctx.now;
                }
            });
        }
    }

    /// Authenticated ESP traffic came from a new outer address (RFC 7296 section 2.23).
    pub fn note_peer_address(
        &mut self,
        now: Instant,
        child: ChildSaId,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| sa.peer_at(ctx, local, remote));
        }
        self.settle(now);
    }

    /// Every IKE SA, oldest first.
    pub fn status(&self) -> Vec<IkeSaStatus> {
        self.table.iter().filter_map(snapshot::ike_sa).collect()
    }

    /// The IKE SA that a child SA is of.
    pub fn status_around(&self, child: ChildSaId) -> Option<IkeSaStatus> {
        snapshot::ike_sa(self.table.get(self.table.ike_sa_of(child)?)?)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// IKE SAs that the peer has begun and not yet authenticated.
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
            sa.queue(ctx, task);
            sa.run_tasks(ctx);
            Some(())
        });
        self.settle(now);
        queued.flatten().ok_or(CommandError::NoSa)
    }

    /// Lends out everything but the table's SAs.
    fn in_context<R>(&mut self, now: Instant, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (at, wall_clock) = self.wall_clock;
        let mut ctx = Context {
            now,
            wall_clock: wall_clock + now.saturating_duration_since(at),
            config: &self.config,
            random: &mut *self.random,
            spis: &mut *self.spis,
            events: &mut self.events,
            transmits: &mut self.transmits,
            counters: &mut self.counters,
            last_id: &mut self.last_id,
            by_spi: self.table.by_spi(),
            peers: self.table.peers(),
            report_limit: &mut self.report_limit,
            claims: &mut self.claims,
            effects: &mut self.effects,
        };
        f(&mut ctx)
    }

    fn insert(&mut self, now: Instant, sa: Box<IkeSa>, init: Option<SocketAddr>) {
        let timeout = sa.next_timeout(&self.config);
        self.pacing.note(sa.id, sa.remote.ip(), sa.connecting());
        self.table.insert(now, sa, init, timeout);
    }

    /// Works on one IKE SA and keeps the tables right.
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
        let of_goals = sa.is_with_whom_we_call();
        for event in self.events.iter().skip(before) {
            self.table.follow(event);
            if of_goals {
                self.goals.follow(now, event);
            }
        }
        self.pacing.note(id, sa.remote.ip(), sa.connecting());
        self.table.put_back(now, sa, result.1);
        Some(result.0)
    }
}

fn index(config: &Config) -> HashMap<String, usize> {
    // The first of a name counts.
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

impl IkeSa {
    /// False if it has ended already.
    fn terminate(&mut self, ctx: &mut Context<'_>, reason: DownReason) -> bool {
        match &mut self.phase {
            Phase::Established(_) => {
                // Our side is down now, however long the peer takes to answer.
                self.end_children(ctx, &reason);
                self.queue(ctx, Task::DeleteIke(reason));
                self.run_tasks(ctx);
            }
            // The peer may be about to believe in it: it is deleted once it is up.
            Phase::AuthSent(state) => state.doomed = Some(reason),
            Phase::InitSent(_) | Phase::InitAnswered(_) => self.close(ctx, reason),
            // The peer owes a delete. There is nothing to wait for any more.
            Phase::Rekeyed { .. } if self.window.is_busy() => self.close(ctx, reason),
            Phase::Rekeyed { .. } => self.close_with(ctx, DownReason::Rekeyed, &[delete_ike()]),
            Phase::Closing { .. } | Phase::Gone { .. } | Phase::Closed => return false,
        }
        true
    }

    /// What is wanted of a connection is wanted with the peer at its remote addresses. Others that call us over the same
    /// connection, as with `remote_addrs = 192.0.2.1, %any`, are not that peer.
    fn is_with_whom_we_call(&self) -> bool {
        let addresses = self.connection.remote_addrs.iter();
        let mut hosts = addresses.filter_map(AddressMatch::host).peekable();
        self.connection.names_one_peer()
            || hosts.peek().is_none()
            || hosts.any(|host| host == self.hosts.1)
    }

    /// Whether the child is up or on its way here.
    fn has_child(&self, wanted: &Wanted) -> bool {
        match &self.phase {
            Phase::InitSent(state) => state.wanted.iter().any(|other| wanted.is(&other.config)),
            Phase::AuthSent(state) => state.wants(wanted) && state.doomed.is_none(),
            Phase::Established(state) => !state.is_ending() && state.has_child(wanted),
            _ => false,
        }
    }

    /// Takes back what was to be established of a child.
    fn unwant(&mut self, ctx: &mut Context<'_>, child: &str) {
        let others = |wanted: &mut Vec<Wanted>| wanted.retain(|other| other.config.name != child);
        match &mut self.phase {
            Phase::InitSent(state) => {
                others(&mut state.wanted);
                if state.wanted.is_empty() {
                    self.close(ctx, DownReason::Terminated);
                }
            }
            Phase::AuthSent(state) => {
                others(&mut state.wanted);
                state.unwant(child);
            }
            Phase::Established(state) => state.unwant(child),
            _ => {}
        }
    }

    fn takes_children(&self) -> bool {
        match &self.phase {
            Phase::InitSent(_) => true,
            Phase::AuthSent(state) => state.doomed.is_none(),
            Phase::Established(state) => !self.parked && !state.is_ending(),
            _ => false,
        }
    }

    fn want_child(&mut self, ctx: &mut Context<'_>, child: &Wanted) -> bool {
        let limit = ctx.config.limits.queued_tasks_max;
        match &mut self.phase {
            Phase::InitSent(state) if state.wanted.len() < limit => {
                state.wanted.push(child.clone())
            }
            Phase::AuthSent(state) if state.wanted.len() < limit => {
                state.wanted.push(child.clone())
            }
            Phase::Established(_) => {
                let queued = self.queue(ctx, Task::CreateChild(child.clone()));
                self.run_tasks(ctx);
                return queued;
            }
            _ => return false,
        }
        true
    }

    fn note_inbound_traffic(&mut self, ctx: &mut Context<'_>, child: ChildSaId) {
        let Some(state) = self.established_mut() else {
            return;
        };
        state.last_heard = ctx.now;
        if let Some(child) = state
            .child_mut(child)
            .filter(|child| child.state != ChildState::Rekeyed)
        {
            child.last_used = ctx.now;
            child.use_outbound(ctx);
        }
    }
}
