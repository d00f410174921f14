//! An authenticated IKE SA between exchanges: what waits to be done, and when.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::create_child::PendingChild;
use super::informational::fatal_notify;
use super::rekey_ike::PendingRekey;
use super::{
    Channel, ChildSa, ChildState, Context, Effect, IkeSa, Phase, Wanted, deadline, delete_ike,
};
use crate::config::{Connection, Identity};
use crate::event::{ChildFailure, ChildSaId, DownReason, Event};
use crate::peer::PeerKey;
use crate::refusal::Refusal;
use crate::window::Window;
use crate::wire::{ExchangeType, Message, ProtocolId};

/// Pause before a rekey that the peer has refused is tried again.
const REKEY_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) channel: Channel,
    pub(crate) local_id: Identity,
    pub(crate) remote_id: Identity,
    pub(crate) peer: PeerKey,
    pub(crate) children: Vec<ChildSa>,
    pub(crate) tasks: VecDeque<Queued>,
    pub(crate) exchange: Option<Exchange>,
    pub(crate) last_heard: Instant,
    pub(crate) established: Instant,
    /// The last identifier that was given before: an IKE SA with a larger one was begun later.
    pub(crate) last_id: u64,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

/// Something that needs an exchange of ours.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    CreateChild(Wanted),
    RekeyChild(ChildSaId),
    DeleteChild(ChildSaId, DownReason),
    /// The peer has a child SA that we do not: tell it to forget it.
    Disown(ProtocolId, u32),
    /// The peer still has a child SA that we have ended.
    Farewell(ProtocolId, u32),
    RekeyIke,
    DeleteIke(DownReason),
    Liveness,
}

#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) task: Task,
    not_before: Instant,
}

/// Our exchange that waits for its response.
#[derive(Debug)]
pub(crate) enum Exchange {
    CreateChild(Box<PendingChild>),
    DeleteChild(ChildSaId, DownReason),
    Disown(u32),
    Farewell,
    RekeyIke(Box<PendingRekey>),
    Liveness,
}

impl Task {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateChild(_) => "CHILD_CREATE",
            Self::RekeyChild(_) => "CHILD_REKEY",
            Self::DeleteChild(..) | Self::Disown(..) | Self::Farewell(..) => "CHILD_DELETE",
            Self::RekeyIke => "IKE_REKEY",
            Self::DeleteIke(_) => "IKE_DELETE",
            Self::Liveness => "IKE_DPD",
        }
    }

    /// Whether one of the two in the queue is enough.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::CreateChild(a), Self::CreateChild(b)) => a.is(&b.config),
            (Self::RekeyChild(a), Self::RekeyChild(b)) => a == b,
            (Self::DeleteChild(a, _), Self::DeleteChild(b, _)) => a == b,
            (Self::Disown(protocol, a), Self::Disown(other, b))
            | (Self::Farewell(protocol, a), Self::Farewell(other, b)) => {
                (protocol, a) == (other, b)
            }
            (Self::RekeyIke, Self::RekeyIke)
            | (Self::DeleteIke(_), Self::DeleteIke(_))
            | (Self::Liveness, Self::Liveness) => true,
            _ => false,
        }
    }
}

impl Exchange {
    fn kind(&self) -> ExchangeType {
        match self {
            Self::CreateChild(_) | Self::RekeyIke(_) => ExchangeType::CREATE_CHILD_SA,
            Self::DeleteChild(..) | Self::Disown(..) | Self::Farewell | Self::Liveness => {
                ExchangeType::INFORMATIONAL
            }
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateChild(pending) if pending.rekeys.is_some() => "CHILD_REKEY",
            Self::CreateChild(_) => "CHILD_CREATE",
            Self::DeleteChild(..) | Self::Disown(..) | Self::Farewell => "CHILD_DELETE",
            Self::RekeyIke(_) => "IKE_REKEY",
            Self::Liveness => "IKE_DPD",
        }
    }
}

impl Established {
    pub(crate) fn new(
        ctx: &mut Context<'_>,
        connection: &Connection,
        channel: Channel,
        local_id: Identity,
        remote_id: Identity,
    ) -> Self {
        let soft = connection
            .rekey_time
            .saturating_sub(ctx.jitter(connection.rand_time));
        let over = if connection.over_time.is_zero() {
            connection.rekey_time / 10
        } else {
            connection.over_time
        };
        let limited = !connection.rekey_time.is_zero();
        Self {
            channel,
            peer: PeerKey::new(connection, &local_id, &remote_id),
            local_id,
            remote_id,
            children: Vec::new(),
            tasks: VecDeque::new(),
            exchange: None,
            last_heard: ctx.now,
            established: ctx.now,
            last_id: *ctx.last_id,
            rekey_at: deadline(ctx.now, soft.max(Duration::from_secs(1))).filter(|_| limited),
            expires_at: deadline(ctx.now, connection.rekey_time.saturating_add(over))
                .filter(|_| limited),
        }
    }

    pub(crate) fn child(&self, id: ChildSaId) -> Option<&ChildSa> {
        self.children.iter().find(|child| child.id == id)
    }

    pub(crate) fn child_mut(&mut self, id: ChildSaId) -> Option<&mut ChildSa> {
        self.children.iter_mut().find(|child| child.id == id)
    }

    pub(crate) fn take_child(&mut self, id: ChildSaId) -> Option<ChildSa> {
        let index = self.children.iter().position(|child| child.id == id)?;
        Some(self.children.remove(index))
    }

    /// The current SAs of a child.
    pub(crate) fn current(&self, child: &str) -> impl Iterator<Item = &ChildSa> {
        let current = move |one: &&ChildSa| one.config.name == child && one.state.is_current();
        self.children.iter().filter(current)
    }

    pub(crate) fn is_up(&self, child: &str) -> bool {
        self.current(child).next().is_some()
    }

    /// Whether the child is there, or on its way.
    pub(crate) fn has_child(&self, wanted: &Wanted) -> bool {
        let current = |child: &ChildSa| {
            wanted.is(&child.config) && child.state.is_current() && !self.is_child_ending(child.id)
        };
        let pending = match &self.exchange {
            Some(Exchange::CreateChild(pending)) => {
                let ending = |old| self.is_child_ending(old);
                wanted.is(&pending.config)
                    && !pending.unwanted
                    && !pending.rekeys.is_some_and(ending)
            }
            _ => false,
        };
        pending
            || self.children.iter().any(current)
            || self
                .tasks
                .iter()
                .any(|queued| matches!(&queued.task, Task::CreateChild(c) if wanted.is(&c.config)))
    }

    /// Takes back what was to be established of a child.
    pub(crate) fn unwant(&mut self, child: &str) {
        self.tasks.retain(
            |queued| !matches!(&queued.task, Task::CreateChild(c) if c.config.name == child),
        );
        if let Some(Exchange::CreateChild(pending)) = &mut self.exchange {
            pending.unwanted |= pending.rekeys.is_none() && pending.config.name == child;
        }
    }

    /// Whether a delete of the IKE SA waits for its turn.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending().is_some()
    }

    pub(crate) fn ending(&self) -> Option<&DownReason> {
        self.tasks.iter().find_map(|queued| match &queued.task {
            Task::DeleteIke(reason) => Some(reason),
            _ => None,
        })
    }

    /// Whether the administrator, or a lifetime, wants the child SA to end.
    pub(super) fn is_child_ending(&self, id: ChildSaId) -> bool {
        let deletes =
            |queued: &Queued| matches!(&queued.task, Task::DeleteChild(child, _) if *child == id);
        self.tasks.iter().any(deletes)
    }

    pub(crate) fn is_rekeying_ike(&self) -> bool {
        matches!(self.exchange, Some(Exchange::RekeyIke(_)))
    }

    /// Whether an exchange of ours about a child is under way.
    pub(crate) fn is_busy_with_children(&self) -> bool {
        matches!(
            self.exchange,
            Some(
                Exchange::CreateChild(_)
                    | Exchange::DeleteChild(..)
                    | Exchange::Disown(_)
                    | Exchange::Farewell
            )
        )
    }

    pub(super) fn next_timeout(&self, connection: &Connection, window: &Window) -> Option<Instant> {
        let of_children = self
            .children
            .iter()
            .flat_map(|child| [child.rekey_at, child.expires_at, child.idle_at()]);
        let of_sa = [self.rekey_at, self.expires_at];
        let when_idle = if window.is_busy() {
            [None, None]
        } else {
            let liveness = deadline(self.last_heard, connection.dpd_delay)
                .filter(|_| !connection.dpd_delay.is_zero());
            [
                liveness,
                self.tasks.iter().map(|queued| queued.not_before).min(),
            ]
        };
        of_children.chain(of_sa).chain(when_idle).flatten().min()
    }
}

impl IkeSa {
    /// Ends the children of an IKE SA that is about to be deleted, and what was to be done with them.
    pub(crate) fn end_children(&mut self, ctx: &mut Context<'_>, reason: &DownReason) {
        let Some(state) = self.established_mut() else {
            return;
        };
        let children = std::mem::take(&mut state.children);
        // The SPIs of disowned child SAs are still to be released, one delete of the IKE SA to be sent.
        state
            .tasks
            .retain(|queued| matches!(queued.task, Task::Disown(..) | Task::DeleteIke(_)));
        for child in children {
            child.uninstall(ctx, self, reason.clone());
        }
    }

    /// Ends a child SA by command: here at once, whether the peer answers or not.
    pub(crate) fn end_child(&mut self, ctx: &mut Context<'_>, id: ChildSaId) -> bool {
        let Some(state) = self.established_mut() else {
            return false;
        };
        let rekeying =
            matches!(&state.exchange, Some(Exchange::CreateChild(p)) if p.rekeys == Some(id));
        let Some(child) = state.child(id) else {
            return false;
        };
        let (protocol, spi, ending) = (
            child.protocol,
            child.spi_in,
            child.state == ChildState::Deleting,
        );
        if rekeying || child.state == ChildState::Rekeyed {
            // The peer may have made another in its place: what the answer says is deleted with it.
            self.queue(ctx, Task::DeleteChild(id, DownReason::Terminated));
        } else {
            state.tasks.retain(|queued| {
                !matches!(queued.task, Task::RekeyChild(of) | Task::DeleteChild(of, _) if of == id)
            });
            self.remove_child(ctx, id, DownReason::Terminated);
            if !ending {
                self.queue(ctx, Task::Farewell(protocol, spi));
            }
        }
        self.run_tasks(ctx);
        true
    }

    /// Puts a task in the queue; false if the queue takes no more children. An equal one is not queued twice.
    pub(crate) fn queue(&mut self, ctx: &Context<'_>, task: Task) -> bool {
        self.queue_later(ctx, task, ctx.now)
    }

    pub(crate) fn queue_later(
        &mut self,
        ctx: &Context<'_>,
        task: Task,
        not_before: Instant,
    ) -> bool {
        let Some(state) = self.established_mut() else {
            return false;
        };
        if state.tasks.iter().any(|queued| queued.task.covers(&task)) {
            return true;
        }
        // The others are bounded by the SAs that are there.
        let adds = matches!(task, Task::CreateChild(_));
        if adds && state.tasks.len() >= ctx.config.limits.queued_tasks_max {
            return false;
        }
        let queued = Queued { task, not_before };
        if let Task::DeleteIke(_) = queued.task {
            state.tasks.push_front(queued);
        } else {
            state.tasks.push_back(queued);
        }
        true
    }

    /// Begins the next task that is due, when no request of ours is outstanding.
    pub(crate) fn run_tasks(&mut self, ctx: &mut Context<'_>) {
        while !self.window.is_busy() && !self.parked {
            let Phase::Established(state) = &mut self.phase else {
                return;
            };
            let Some(index) = state
                .tasks
                .iter()
                .position(|queued| queued.not_before <= ctx.now)
            else {
                return;
            };
            let Some(Queued { task, .. }) = state.tasks.remove(index) else {
                return;
            };
            match task {
                Task::CreateChild(child) => self.start_create_child(ctx, &child),
                Task::RekeyChild(id) => self.start_rekey_child(ctx, id),
                Task::DeleteChild(id, reason) => self.start_delete_child(ctx, id, reason),
                Task::Disown(protocol, spi) => {
                    self.start_delete(ctx, protocol, spi, Exchange::Disown(spi));
                }
                Task::Farewell(protocol, spi) => {
                    self.start_delete(ctx, protocol, spi, Exchange::Farewell);
                }
                Task::RekeyIke => self.start_rekey_ike(ctx, None),
                Task::DeleteIke(reason) => self.close_with(ctx, reason, &[delete_ike()]),
                Task::Liveness => self.start_liveness(ctx),
            }
        }
    }

    pub(super) fn begin(&mut self, exchange: Exchange) {
        if let Some(state) = self.established_mut() {
            state.exchange = Some(exchange);
        }
    }

    /// The response to our outstanding request.
    pub(super) fn handle_exchange_response(&mut self, ctx: &mut Context<'_>, message: &Message) {
        let Some(state) = self.established_mut() else {
            return;
        };
        let Some(exchange) = state.exchange.take() else {
            return self.window.completed();
        };
        if exchange.kind() != message.header.exchange {
            state.exchange = Some(exchange);
            let given = message.header.exchange;
            self.window
                .unusable(format!("{given} is not what was asked"));
            return ctx.counters.refuse(Refusal::UnexpectedExchange);
        }
        if exchange.kind() == ExchangeType::INFORMATIONAL
            && let Some(reason) = fatal_notify(message)
        {
            state.exchange = Some(exchange);
            return self.close(ctx, reason);
        }
        self.window.completed();
        match exchange {
            // What the peer has made goes with the IKE SA.
            Exchange::CreateChild(pending) if self.ending().is_some() => pending.release(ctx),
            Exchange::CreateChild(pending) => {
                self.handle_create_child_response(ctx, *pending, message)
            }
            Exchange::DeleteChild(id, reason) => self.remove_child(ctx, id, reason),
            Exchange::Disown(spi) => ctx.spis.release(spi),
            Exchange::RekeyIke(pending) => self.handle_rekey_ike_response(ctx, *pending, message),
            Exchange::Farewell | Exchange::Liveness => {}
        }
    }

    /// Queues what lifetimes and silence ask for.
    pub(super) fn check_lifetimes(&mut self, ctx: &mut Context<'_>) {
        if self.parked {
            return;
        }
        let delay = self.connection.dpd_delay;
        let busy = self.window.is_busy();
        let Some(state) = self.established_mut() else {
            return;
        };
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= ctx.now).is_some();
        let mut tasks = Vec::new();
        if due(&mut state.expires_at) {
            tasks.push(Task::DeleteIke(DownReason::Expired));
        }
        if due(&mut state.rekey_at) {
            tasks.push(Task::RekeyIke);
        }
        for child in &mut state.children {
            if due(&mut child.expires_at) && child.state != ChildState::Deleting {
                let reason = if child.state == ChildState::Rekeyed {
                    DownReason::Rekeyed
                } else {
                    DownReason::Expired
                };
                tasks.push(Task::DeleteChild(child.id, reason));
            }
            if child.idle_at().is_some_and(|at| at <= ctx.now) {
                // Once: another look at it is due when traffic has been missing for as long again.
                child.last_used = ctx.now;
                ctx.events.push_back(Event::ChildSaIdle { child: child.id });
                continue;
            }
            if due(&mut child.rekey_at) && child.state == ChildState::Installed {
                child.state = ChildState::Rekeying;
                tasks.push(Task::RekeyChild(child.id));
            }
        }
        let silence = ctx.now.saturating_duration_since(state.last_heard);
        if !delay.is_zero() && !busy && silence >= delay {
            tasks.push(Task::Liveness);
        }
        for task in tasks {
            self.queue(ctx, task);
        }
    }

    /// A rekey of ours did not come about; the hard lifetime stays.
    pub(super) fn rekey_failed(&mut self, ctx: &mut Context<'_>, child: Option<ChildSaId>) {
        let again = ctx.now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN);
        let Some(state) = self.established_mut() else {
            return;
        };
        match child {
            None => state.rekey_at = Some(again),
            Some(id) => {
                if let Some(child) = state
                    .child_mut(id)
                    .filter(|child| child.state == ChildState::Rekeying)
                {
                    child.state = ChildState::Installed;
                    child.rekey_at = Some(again);
                }
            }
        }
    }

    pub(super) fn child_failed(
        &mut self,
        ctx: &mut Context<'_>,
        child: &str,
        reason: ChildFailure,
    ) {
        ctx.events.push_back(Event::ChildFailed {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            child: child.to_owned(),
            reason,
        });
    }

    fn undone(&self, ctx: &mut Context<'_>, child: &str) {
        ctx.effects.push(Effect::Undone {
            connection: self.connection.name.clone(),
            child: child.to_owned(),
        });
    }

    /// Forgets the children and what waits; gives the keys for a last word to the peer.
    pub(super) fn tear_down(
        &self,
        ctx: &mut Context<'_>,
        state: Established,
        reason: &DownReason,
    ) -> Channel {
        match state.exchange {
            Some(Exchange::CreateChild(pending)) => {
                pending.release(ctx);
                if pending.rekeys.is_none() {
                    self.undone(ctx, &pending.config.name);
                }
            }
            Some(Exchange::Disown(spi)) => ctx.spis.release(spi),
            Some(Exchange::RekeyIke(pending)) => {
                if let Some(rival) = pending.rival {
                    ctx.effects.push(Effect::Redundant {
                        ike_sa: rival.ike_sa,
                    });
                }
            }
            Some(Exchange::DeleteChild(..) | Exchange::Farewell | Exchange::Liveness) | None => {}
        }
        for queued in state.tasks {
            match queued.task {
                Task::Disown(_, spi) => ctx.spis.release(spi),
                Task::CreateChild(wanted) => self.undone(ctx, &wanted.config.name),
                _ => {}
            }
        }
        for child in state.children {
            child.uninstall(ctx, self, reason.clone());
        }
        if *reason != DownReason::Rekeyed {
            ctx.events.push_back(Event::IkeSaDown {
                ike_sa: self.id,
                connection: self.connection.name.clone(),
                reason: reason.clone(),
            });
        }
        state.channel
    }
}
