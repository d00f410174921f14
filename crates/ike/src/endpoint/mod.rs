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
use crate::config::{Child, Config, Connection};
use crate::cookie::Cookies;
use crate::event::{Event, Transmit};
use crate::failure::{DownReason, Shortage};
use crate::host::Host;
use crate::id::{ChildSaId, IkeSaId};
use crate::report_limit::ReportLimit;
use crate::sa::{Context, Effect, IkeSa, Task};
use crate::status::{IkeCounters, IkeSaStatus};
use answers::Answers;
use goals::Goals;
use half_open::HalfOpen;
use pacing::Pacing;
use table::IkeSaTable;

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
    #[error("limit of {0} reached")]
    Limit(Shortage),
    #[error("child {0:?} is closed by command until `up` opens it")]
    Closed(String),
    #[error("child {0:?} takes selectors from packets: only traffic can ask for it")]
    NeedsPacket(String),
}

/// All IKE SAs of one gateway. It holds no socket and no clock.
///
/// After every call that takes `now`, and only then, drain [`Endpoint::poll_event`], then
/// [`Endpoint::poll_transmit`], then arm a timer for [`Endpoint::poll_timeout`]. Events come first: an SA must be
/// able to receive before the message leaves that tells the peer to use it.
pub struct Endpoint {
    config: Config,
    /// Indices into the connections of `config`.
    by_name: HashMap<String, usize>,
    host: Host,
    /// The wall clock's time at one moment.
    wall_clock: (Instant, SystemTime),
    table: IkeSaTable,
    claims: Claims,
    goals: Goals,
    pacing: Pacing,
    cookies: Cookies,
    answers: Answers,
    report_limit: ReportLimit,
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
    counters: IkeCounters,
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
    pub fn new(config: Config, mut host: Host, now: Instant) -> Self {
        let cookies = Cookies::new(now, &mut *host.random);
        let table = IkeSaTable::new(HalfOpen::new(&config));
        let mut claims = Claims::default();
        claims.configure(&config);
        Self {
            by_name: index(&config),
            answers: Answers::default(),
            report_limit: ReportLimit::default(),
            config,
            host,
            wall_clock: (now, SystemTime::UNIX_EPOCH),
            table,
            claims,
            goals: Goals::default(),
            pacing: Pacing::default(),
            cookies,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            counters: IkeCounters::default(),
            effects: Vec::new(),
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
        self.by_name = index(&config);
        self.config = config;
        let connections = &self.config.connections;
        let by_name = |name: &str| connections.get(*self.by_name.get(name)?);
        self.table.reconfigure(by_name);
        self.goals.configure(by_name);
        self.claims.configure(&self.config);
        self.table.half_open.configure(&self.config);
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

    /// The data plane has reached a hard limit.
    pub fn expire_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        self.child_task(now, child, |id| Task::DeleteChild(id, DownReason::Expired))
    }

    /// The answer to [`Event::ChildSaIdle`] if there was no traffic.
    pub fn close_idle_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
    ) -> Result<(), CommandError> {
        self.child_task(now, child, |id| Task::DeleteChild(id, DownReason::Inactive))
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
        }
        self.settle(now);
    }

    /// ESP went out on `child`. Its NAT mapping needs no keepalive for a while.
    pub fn note_outbound_traffic(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| {
                sa.note_outbound_traffic(ctx, child);
            });
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
            random: &mut *self.host.random,
            key_exchange: &mut *self.host.key_exchange,
            spis: &mut *self.host.spis,
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
            if of_goals {
                self.goals.follow(now, event);
            }
        }
        self.pacing.note(id, sa.common.remote.ip(), sa.connecting());
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
