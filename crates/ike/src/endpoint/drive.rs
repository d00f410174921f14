//! Commands, and the loop that drives the children towards what commands and the configuration want.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::goals::Goals;
use super::name_hold::NameHold;
use super::{CommandError, Endpoint, find_child};
use crate::config::{AddressMatch, Child, Connection, Demand, StartAction};
use crate::event::Event;
use crate::failure::{DownReason, Shortage};
use crate::id::{ChildSaId, IkeSaId};
use crate::sa::{ChildRequest, Effect, IkeSa};

impl Endpoint {
    /// From now on every child with `start_action = start` is to be up, except those that a command has closed. A
    /// child that is neither up nor being established is tried at once.
    pub fn start(&mut self, now: Instant) {
        for connection in self.config.connections.clone() {
            let starts = connection
                .children
                .iter()
                .filter(|child| child.start_action == StartAction::Start && !child.from_packet);
            for child in starts {
                self.goals.want_always(&connection.name, &child.name);
                if !self.is_there(&connection.name, &ChildRequest::from(child.clone())) {
                    self.goals.hurry(now, &connection.name, &child.name);
                }
            }
        }
        self.pursue(now);
        self.settle(now);
    }

    /// Establishes `child`, or every child of the connection, over the connection's IKE SA or a new one. Children
    /// that are up or being established are left alone.
    pub fn initiate(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
    ) -> Result<(), CommandError> {
        let connection = self.connection(connection)?;
        let wanted = match child {
            None => {
                let children = connection.children.iter().cloned();
                children.filter(|child| !child.from_packet).collect()
            }
            Some(name) => vec![find_child(&connection, name)?],
        };
        if let Some(child) = wanted.iter().find(|child| child.from_packet) {
            return Err(CommandError::NeedsPacket(child.name.clone()));
        }
        for child in &wanted {
            self.goals.reopen(&connection.name, &child.name);
            if child.start_action == StartAction::Start {
                self.goals.want_always(&connection.name, &child.name);
            }
        }
        let names: Vec<_> = wanted.iter().map(|child| child.name.clone()).collect();
        let wanted = wanted.into_iter().map(ChildRequest::from).collect();
        let result = self.establish(now, &connection, wanted, true);
        if let Err(error) = &result {
            self.held_up(now, &connection, &names, error, false);
        }
        self.settle(now);
        result
    }

    /// A packet has met a policy without an SA. This is [`Endpoint::initiate`] of one child, with the packet's
    /// selectors in front of the configured ones. A child with [`Child::from_packet`] has the packet's selectors
    /// only.
    ///
    /// Where the child is up, the peer has narrowed its selectors, and is asked for a further SA (RFC 7296 §2.9).
    pub fn acquire(
        &mut self,
        now: Instant,
        connection: &str,
        child: &str,
        demand: &Demand,
    ) -> Result<(), CommandError> {
        let connection = self.connection(connection)?;
        let mut config = find_child(&connection, child)?;
        if self.is_closed_to_traffic(&connection.name, child) {
            return Err(CommandError::Closed(child.to_owned()));
        }
        if (self.goals.holds_traffic(now, &connection.name, child)).is_some() {
            return Ok(());
        }
        if config.from_packet {
            config = Arc::new(config.populated(demand.selectors));
        }
        let wanted = ChildRequest {
            config,
            packet: Some(demand.packet),
            succeeds: None,
        };
        let result = match self.leaves_out(&connection, &wanted) {
            true => self.ask_further(now, &connection, &wanted),
            false => self.establish(now, &connection, vec![wanted], false),
        };
        self.settle(now);
        result
    }

    /// Says whether the child is up, but without this packet.
    fn leaves_out(&self, connection: &Connection, wanted: &ChildRequest) -> bool {
        let all = ChildRequest::from(wanted.config.clone());
        !wanted.config.from_packet
            && self.is_there(&connection.name, &all)
            && !self.is_there(&connection.name, wanted)
    }

    /// Asks for a further SA of a child that is up. The IKE SA may be about to be replaced: then a later packet asks.
    fn ask_further(
        &mut self,
        now: Instant,
        connection: &Connection,
        wanted: &ChildRequest,
    ) -> Result<(), CommandError> {
        let (name, child) = (&connection.name, &wanted.config.name);
        let held = self.goals.holds_further(now, name, child);
        let usable = self.usable(connection).filter(|_| held.is_none());
        let Some(id) = usable else {
            return Ok(());
        };
        self.goals.ask_further(name, child);
        match self.with(now, id, |sa, ctx| sa.request_child(ctx, wanted)) {
            Some(true) => Ok(()),
            _ => Err(CommandError::Limit(Shortage::QueuedTasks)),
        }
    }

    /// Tells whether packets of the child ask for no SA because a command has closed it. Traffic opens such a child only
    /// if it has `start_action = trap`.
    pub fn is_closed_to_traffic(&self, connection: &str, child: &str) -> bool {
        let found = self.connection(connection);
        let config = found.and_then(|connection| find_child(&connection, child));
        let starts = config.is_ok_and(|config| config.start_action == StartAction::Start);
        starts && self.goals.is_closed(connection, child)
    }

    /// The time for which packets of the child ask for no SA, because the peer has refused one, and the peer's reason.
    pub fn refuses_traffic(
        &self,
        now: Instant,
        connection: &str,
        child: &str,
    ) -> Option<(Duration, &str)> {
        let held = self.goals.holds_traffic(now, connection, child);
        let held = held.or_else(|| self.goals.holds_further(now, connection, child))?;
        let failure = self.goals.look(connection, child).failure;
        Some((held, failure.map_or("", |failure| &failure.why)))
    }

    /// Tells whether the peer has refused a further SA of the child with the reason that it had before.
    pub fn refuses_again(&self, connection: &str, child: &str) -> bool {
        self.goals.refuses_again(connection, child)
    }

    /// Deletes every IKE SA of the connection, or every SA of one of its children. They stay down until a command or
    /// the peer asks for them, or traffic with `start_action = trap`. Returns the number of SAs, or of attempts where
    /// there is no SA.
    pub fn terminate(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
    ) -> Result<usize, CommandError> {
        let configured = self.connection(connection);
        if self.table.of_connection(connection).is_empty() {
            configured.as_ref().map_err(Clone::clone)?;
        }
        let mut attempts = 0;
        for one in configured.iter().flat_map(|found| &found.children) {
            if child.is_none_or(|name| one.name == name) {
                attempts += usize::from(self.goals.close(connection, &one.name));
            }
        }
        attempts += self.forget_held(connection, child);
        let concerned = self.end(now, connection, child);
        self.settle(now);
        Ok(if concerned == 0 { attempts } else { concerned })
    }

    /// Deletes what the configuration no longer has, or has in another form: the IKE SAs of a connection, or the SAs
    /// of one child. The endpoint forgets what was wanted of them.
    pub fn withdraw(&mut self, now: Instant, connection: &str, child: Option<&str>) {
        self.goals.forget(connection, child);
        self.forget_held(connection, child);
        self.end(now, connection, child);
        self.settle(now);
    }

    fn end(&mut self, now: Instant, connection: &str, child: Option<&str>) -> usize {
        let ids = self.table.of_connection(connection);
        match child {
            None => self.end_ike_sas(now, &ids),
            Some(name) => {
                for id in &ids {
                    self.with(now, *id, |sa, ctx| sa.withdraw_child(ctx, name));
                }
                let children = self.children_to_end(&ids, name);
                self.end_child_sas(now, children)
            }
        }
    }

    pub fn terminate_ike_sa(&mut self, now: Instant, ike_sa: IkeSaId) -> Result<(), CommandError> {
        let sa = self.table.get(ike_sa).ok_or(CommandError::NoSa)?;
        let connection = sa.common.connection.clone();
        let children = connection.children.iter().cloned();
        let of_goal = |child: &Arc<Child>| {
            sa.is_with_initiation_peer() && sa.has_child(&ChildRequest::from(child.clone()))
        };
        let here: Vec<_> = children.filter(of_goal).collect();
        let successor = self.reauthentication_of(ike_sa);
        if !self.end_ike_sa(now, ike_sa) {
            return Err(CommandError::NoSa);
        }
        if let Some(successor) = successor {
            self.end_ike_sa(now, successor);
        }
        for child in here {
            self.close_goal(&connection, child);
        }
        self.settle(now);
        Ok(())
    }

    pub fn terminate_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
    ) -> Result<(), CommandError> {
        let ike_sa = self.table.ike_sa_of(child).ok_or(CommandError::NoSa)?;
        let sa = self.table.get(ike_sa).ok_or(CommandError::NoSa)?;
        let connection = sa.common.connection.clone();
        let state = sa.established().filter(|_| sa.is_with_initiation_peer());
        let ended = state.and_then(|state| state.child(child));
        let config = ended.map(|ended| ended.config.clone());
        if !self.end_child_sa(now, child, DownReason::Terminated) {
            return Err(CommandError::NoSa);
        }
        if let Some(config) = config {
            self.close_goal(&connection, config);
        }
        self.settle(now);
        Ok(())
    }

    /// A command has closed one SA of the child. If that was the only one, the child is closed.
    fn close_goal(&mut self, connection: &Connection, child: Arc<Child>) {
        let name = child.name.clone();
        if !self.is_there(&connection.name, &ChildRequest::from(child)) {
            self.goals.close(&connection.name, &name);
        }
    }

    /// Ends an SA that the data plane cannot carry. It ends at once, whether the peer answers or not.
    pub fn reject_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        let reason = DownReason::Resources(Shortage::DataPlane);
        let ended = self.end_child_sa(now, child, reason);
        self.settle(now);
        ended.then_some(()).ok_or(CommandError::NoSa)
    }

    /// Deletes every IKE SA, for a graceful stop. Returns their number.
    pub fn terminate_all(&mut self, now: Instant) -> usize {
        self.goals = Goals::default();
        self.name_hold = NameHold::default();
        let ended = self.end_all();
        self.settle(now);
        ended
    }

    /// Establishes the children that are due.
    pub(super) fn pursue(&mut self, now: Instant) {
        while let Some((name, children)) = self.goals.take_due(now) {
            let Ok(connection) = self.connection(&name) else {
                self.goals.forget(&name, None);
                continue;
            };
            let wanted = connection
                .children
                .iter()
                .filter(|child| children.contains(&child.name) && !child.from_packet)
                .cloned()
                .map(ChildRequest::from)
                .collect();
            if let Err(error) = self.establish(now, &connection, wanted, false) {
                self.held_up(now, &connection, &children, &error, false);
            }
        }
    }

    /// Nothing could be sent. The cause can go away without notice, so that it is tried again. The event comes with the
    /// first of such failures in a row, and where `tells` asks for it.
    pub(super) fn held_up(
        &mut self,
        now: Instant,
        connection: &Connection,
        children: &[String],
        error: &CommandError,
        tells: bool,
    ) {
        let jitter = self.host.random.fraction();
        let name = &connection.name;
        for child in children {
            let of = (name.clone(), child.clone());
            self.goals.explain(now, &of, error);
        }
        let reason = match error {
            CommandError::NoRoute(_) => DownReason::NoRoute,
            CommandError::NoAddress { name, why } => DownReason::NoAddress {
                name: name.clone(),
                why: why.clone(),
            },
            CommandError::Limit(limit) => DownReason::Resources(*limit),
            _ => {
                self.goals.impossible(name, children);
                return;
            }
        };
        let news = self.goals.unsent(now, name, children, jitter);
        if news.is_some() || tells {
            let next = |child: &String| self.goals.look(name, child).next_at;
            let next = children.iter().filter_map(next).min();
            self.events.push_back(Event::ConnectFailed {
                connection: name.clone(),
                reason,
                retry_in: news.or_else(|| Some(next?.saturating_duration_since(now))),
            });
        }
    }

    /// Our attempt to establish an IKE SA has failed.
    pub(super) fn connect_failed(
        &mut self,
        now: Instant,
        connection: &Arc<Connection>,
        reason: DownReason,
        remote: Option<IpAddr>,
    ) {
        let jitter = self.host.random.fraction();
        let has_next = remote.filter(|remote| self.next_turn(connection, *remote, &reason));
        let retry_in = match reason {
            DownReason::Terminated => None,
            _ => {
                let mut children = self.goals.pursued(&connection.name);
                children.retain(|child| !self.is_child_there(&connection.name, child));
                if let Some(remote) = has_next.filter(|_| !children.is_empty()) {
                    return self.try_next_address(now, connection, &children, reason, remote);
                }
                for child in &children {
                    let of = (connection.name.clone(), child.clone());
                    self.goals.explain(now, &of, &reason);
                }
                let tries = connection.keyingtries;
                self.goals
                    .failed(now, &connection.name, &children, tries, jitter)
            }
        };
        self.events.push_back(Event::ConnectFailed {
            connection: connection.name.clone(),
            reason,
            retry_in,
        });
    }

    /// The attempt towards `remote` has failed, and the peer has another address.
    fn try_next_address(
        &mut self,
        now: Instant,
        connection: &Connection,
        children: &[String],
        reason: DownReason,
        remote: IpAddr,
    ) {
        for child in children {
            let of = (connection.name.clone(), child.clone());
            self.goals.explain(now, &of, &reason);
            self.goals.hurry(now, &connection.name, child);
        }
        self.events.push_back(Event::AddressFailed {
            connection: connection.name.clone(),
            remote,
            reason,
        });
    }

    /// Finds children that are wanted and have ended or were refused, and plans their next attempts.
    pub(super) fn look_for_missing(&mut self, now: Instant) {
        // Many SAs of one child can end together.
        let mut there = HashMap::new();
        for ended in self.goals.take_ended() {
            let (connection, child) = &ended.name;
            let is_there = there.entry(ended.name.clone());
            if !*is_there.or_insert_with(|| self.is_child_there(connection, child)) {
                self.goals.ended(now, &ended);
                let jitter = self.host.random.fraction();
                self.goals.missing(now, connection, child, jitter);
            } else if !self.is_child_up(connection, child) {
                self.goals.ended_under_way(&ended);
            }
        }
        for (name, child) in self.goals.take_refused() {
            let Ok(connection) = self.connection(&name) else {
                continue;
            };
            if !self.is_child_there(&name, &child) {
                let (jitter, tries) = (self.host.random.fraction(), connection.keyingtries);
                self.goals.failed(now, &name, &[child], tries, jitter);
            }
        }
    }

    fn is_child_there(&self, connection: &str, child: &str) -> bool {
        let config = self.connection(connection);
        let config = config.and_then(|connection| find_child(&connection, child));
        config.is_ok_and(|config| self.is_there(connection, &ChildRequest::from(config)))
    }

    fn is_child_up(&self, connection: &str, child: &str) -> bool {
        let ids = self.table.of_connection(connection);
        let mut sas = ids.iter().filter_map(|id| self.table.get(*id));
        let is_up = |sa: &IkeSa| sa.established().is_some_and(|state| state.is_up(child));
        sas.any(|sa| sa.is_with_initiation_peer() && is_up(sa))
    }

    /// Says whether the child is up or being established, with the peer that it is wanted with.
    fn is_there(&self, connection: &str, wanted: &ChildRequest) -> bool {
        let ids = self.table.of_connection(connection);
        let mut sas = ids.iter().filter_map(|id| self.table.get(*id));
        sas.any(|sa| sa.is_with_initiation_peer() && sa.has_child(wanted))
    }

    /// Establishes those of the children that are neither up nor being established. A new IKE SA waits until the host
    /// names of the connection are looked up.
    fn establish(
        &mut self,
        now: Instant,
        connection: &Arc<Connection>,
        mut wanted: Vec<ChildRequest>,
        by_command: bool,
    ) -> Result<(), CommandError> {
        wanted.retain(|child| !self.is_there(&connection.name, child));
        let needs_sa = !wanted.is_empty() && self.usable(connection).is_none();
        if needs_sa && self.hold_for_names(connection, &wanted, by_command)? {
            return Ok(());
        }
        self.establish_now(now, connection, wanted)
    }

    /// The IKE SA of the connection that can have further children.
    fn usable(&self, connection: &Connection) -> Option<IkeSaId> {
        let ids = self.table.of_connection(&connection.name);
        let takes = |sa: &IkeSa| sa.is_with_initiation_peer() && sa.takes_children();
        (ids.into_iter()).find(|id| self.table.get(*id).is_some_and(takes))
    }

    /// Establishes the children over the connection's IKE SA, or over a new one to the addresses that are known.
    pub(super) fn establish_now(
        &mut self,
        now: Instant,
        connection: &Arc<Connection>,
        mut wanted: Vec<ChildRequest>,
    ) -> Result<(), CommandError> {
        wanted.retain(|child| !self.is_there(&connection.name, child));
        if wanted.is_empty() {
            return Ok(());
        }
        // A child with the selectors of a packet is not remembered: traffic asks for it again.
        let lasting: Vec<_> = (wanted.iter().map(|child| &child.config))
            .filter(|child| !child.from_packet)
            .map(|child| child.name.clone())
            .collect();
        if let Some(id) = self.usable(connection) {
            let queued = self.with(now, id, |sa, ctx| {
                wanted.iter().all(|child| sa.request_child(ctx, child))
            });
            if queued != Some(true) {
                return Err(CommandError::Limit(Shortage::QueuedTasks));
            }
            for child in &lasting {
                self.goals.want_once(&connection.name, child);
            }
            return Ok(());
        }
        if !self.table.has_room(self.config.limits.ike_sas_max) {
            return Err(CommandError::Limit(Shortage::IkeSas));
        }
        let (local, remote, wait) = self.addresses(connection)?;
        for child in &lasting {
            self.goals.want_once(&connection.name, child);
        }
        let connection = connection.clone();
        let made = self.in_context(now, |ctx| {
            IkeSa::connect(ctx, connection.clone(), local, remote, wanted)
        });
        match made {
            Ok(mut sa) => {
                sa.wait_for_answer(wait);
                self.insert(now, Box::new(sa), None);
            }
            Err(reason) => self.effects.push(Effect::ConnectFailed {
                connection,
                reason,
                remote: None,
                reauthenticates: None,
            }),
        }
        Ok(())
    }

    /// Our address when we initiate to this one: the first of `local_addrs` that can be used.
    pub(super) fn source_for(&self, connection: &Connection, remote: IpAddr) -> Option<IpAddr> {
        let locals = AddressMatch::hosts_of(&connection.local_addrs);
        let mut alike = locals
            .filter(|local| local.is_ipv4() == remote.is_ipv4())
            .peekable();
        let routes = &self.host.routes;
        match alike.peek() {
            Some(_) => alike.find_map(|local| routes.source(remote, Some(local))),
            None => routes.source(remote, None),
        }
    }
}
