//! The effects of commands, the configuration and the data plane on an IKE SA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Child;
use crate::failure::DownReason;
use crate::id::ChildSaId;
use crate::sa::{
    ChildRequest, ChildSa, ChildState, Context, Ending, IkeSa, PeerMapping, Phase, QueuedTask,
    Retirement, Task,
};

/// The time that packets on the children of a reauthenticated IKE SA have to reach the peer.
const DELETE_REAUTHENTICATED_AFTER: Duration = Duration::from_millis(500);

impl IkeSa {
    /// Ends the SA. Returns false if it has ended already.
    pub(crate) fn terminate(&mut self, ctx: &mut Context<'_>, reason: DownReason) -> bool {
        if self.has_ended() {
            return false;
        }
        self.advance(|phase, sa| match phase {
            Phase::Established(mut state) => {
                // The SA is down at this end now, however long the peer takes to answer.
                state.end_children(sa, ctx, &reason);
                state.queue(ctx, Task::DeleteIke(reason));
                Phase::Established(state).run_tasks(sa, ctx)
            }
            // The peer may be about to establish it, so that it is deleted when it is up.
            Phase::AuthSent(mut state) => {
                state.delete_when_up = Some(reason);
                Phase::AuthSent(state)
            }
            // The peer owes a delete, or our own waits for its turn.
            Phase::Rekeyed(state) if !sa.window.is_busy() => {
                Phase::Rekeyed(state).end(sa, ctx, Ending::delete(DownReason::Rekeyed))
            }
            other => other.close(sa, ctx, reason),
        });
        true
    }

    pub(crate) fn close(&mut self, ctx: &mut Context<'_>, reason: DownReason) {
        self.advance(|phase, sa| phase.close(sa, ctx, reason));
    }

    /// Drops an attempt that the peer has not answered yet.
    pub(crate) fn withdraw(&mut self, ctx: &mut Context<'_>) {
        self.advance(|phase, sa| phase.withdraw(sa, ctx));
    }

    /// The peer has been silent for long, and is asked whether it is alive.
    pub(crate) fn check_liveness(&mut self, ctx: &mut Context<'_>, silence: Duration) {
        let Some((state, sa)) = self.established_mut() else {
            return;
        };
        if state.liveness.silence(ctx.now) >= silence && !sa.window.asks_for_life() {
            state.ask_for_life(sa, ctx);
            self.advance(|phase, sa| phase.run_tasks(sa, ctx));
        }
    }

    /// Drops an SA that waits for the peer's delete.
    pub(crate) fn forget_replaced(&mut self) {
        self.advance(|phase, _| phase.forget_replaced());
    }

    /// Drops an SA that is not established.
    pub(crate) fn forget(&mut self) {
        self.advance(|phase, _| phase.forget());
    }

    /// Queues a task. Returns false if the SA is not established, or if its queue is full.
    pub(crate) fn do_task(&mut self, ctx: &mut Context<'_>, task: Task) -> bool {
        let Some((state, _)) = self.established_mut() else {
            return false;
        };
        let queued = state.queue(ctx, task);
        self.advance(|phase, sa| phase.run_tasks(sa, ctx));
        queued
    }

    pub(crate) fn end_child(
        &mut self,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) -> bool {
        let Some((state, sa)) = self.established_mut() else {
            return false;
        };
        let ended = state.end_child(sa, ctx, id, reason);
        if ended {
            self.advance(|phase, sa| phase.run_tasks(sa, ctx));
        }
        ended
    }

    /// Says whether the child is up, or on its way over this SA.
    pub(crate) fn has_child(&self, request: &ChildRequest) -> bool {
        match &self.phase {
            Phase::InitSent(_) | Phase::AuthDue(_) => {
                let mut requests = self.phase.unsent().iter();
                requests.any(|other| request.is_for(&other.config))
            }
            Phase::AuthSent(state) => {
                state.will_establish(request) && state.delete_when_up.is_none()
            }
            Phase::Established(state) => !state.is_ending() && state.has_child(request),
            _ => false,
        }
    }

    /// Says whether further children can be established over this SA.
    pub(crate) fn takes_children(&self) -> bool {
        match &self.phase {
            Phase::InitSent(_) | Phase::AuthDue(_) => true,
            Phase::AuthSent(state) => state.delete_when_up.is_none(),
            Phase::Established(state) => !self.common.suspended && !state.is_ending(),
            _ => false,
        }
    }

    /// Has the SA establish a child. Returns false if the SA takes no more children.
    pub(crate) fn request_child(&mut self, ctx: &mut Context<'_>, request: &ChildRequest) -> bool {
        let limit = ctx.config.limits.queued_tasks_max;
        let requests = match &mut self.phase {
            Phase::InitSent(state) => &mut state.requests,
            Phase::AuthDue(state) => &mut state.requests,
            Phase::AuthSent(state) => &mut state.requests,
            _ => return self.do_task(ctx, Task::CreateChild(request.clone())),
        };
        let room = requests.len() < limit;
        if room {
            requests.push(request.clone());
        }
        room
    }

    /// Drops the requests to establish a child. An SA without any other request ends.
    pub(crate) fn withdraw_child(&mut self, ctx: &mut Context<'_>, child: &str) {
        let requests = match &mut self.phase {
            Phase::InitSent(state) => &mut state.requests,
            Phase::AuthDue(state) => &mut state.requests,
            Phase::AuthSent(state) => return state.withdraw_child(child),
            Phase::Established(state) => return state.withdraw_child(child),
            _ => return,
        };
        requests.retain(|other| other.config.name != child);
        if requests.is_empty() {
            self.close(ctx, DownReason::Terminated);
        }
    }

    /// ESP came in on the child SA. The peer is alive, and sends on it (RFC 7296 §2.8).
    pub(crate) fn note_inbound_traffic(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let Some((state, sa)) = self.established_mut() else {
            return;
        };
        state.heard(ctx);
        sa.window.calm(ctx.now, sa.connection.retransmission);
        let current = |child: &&mut ChildSa| child.state != ChildState::Rekeyed;
        if let Some(child) = state.child_mut(id).filter(current) {
            child.last_used = ctx.now;
            child.use_outbound(ctx);
        }
        if let Some(name) = state.child(id).map(|child| child.config.clone()) {
            state.traffic_received(sa, ctx, &name.name, false);
        }
    }

    /// ESP of a child of this name came in over another IKE SA of the peer.
    pub(crate) fn note_traffic_elsewhere(&mut self, ctx: &mut Context<'_>, name: &str) {
        if let Some((state, sa)) = self.established_mut() {
            state.traffic_received(sa, ctx, name, true);
        }
    }

    /// ESP went out on the child SA.
    pub(crate) fn note_outbound_traffic(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        self.common.last_sent = ctx.now;
        let Some((state, sa)) = self.established_mut() else {
            return;
        };
        state.liveness.sent(ctx.now);
        if let Some(child) = state.child_mut(id) {
            child.last_used = ctx.now;
        }
        state.traffic_sent(sa, ctx, id);
    }

    /// ESP came from another outer address.
    pub(crate) fn note_peer_address(
        &mut self,
        ctx: &mut Context<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        if let Some((state, sa)) = self.established_mut() {
            state.note_peer_address(sa, ctx, PeerMapping::saw_esp, (local, remote));
        }
    }

    /// A message that nobody has authenticated says that the peer does not know the child SA that we send on with `spi`.
    pub(crate) fn doubt_child(&mut self, ctx: &mut Context<'_>, spi: u32) {
        let Some((state, sa)) = self.established_mut() else {
            return;
        };
        if state.children.iter().any(|child| child.spi_out == spi) {
            state.doubt(sa, ctx);
            self.advance(|phase, sa| phase.run_tasks(sa, ctx));
        }
    }

    /// `successor` has authenticated the peers again. This SA ends, with the children that are up there. A peer can drop
    /// the children as soon as it reads the delete, so that packets on their way to it are waited for.
    pub(crate) fn give_way(&mut self, ctx: &mut Context<'_>, successor: &[Arc<Child>]) {
        let Some((state, sa)) = self.established_mut() else {
            return;
        };
        // The peer is alive. What it was asked here in vain has some more time, so that this SA ends there too.
        state.heard(ctx);
        let timing = state.liveness.timing(&sa.connection, ctx.now);
        sa.window.calm(ctx.now, timing);
        for child in &mut state.children {
            let own = ChildRequest::from(child.config.clone());
            if child.state.is_current() && successor.iter().any(|other| own.is_for(other)) {
                child.set_rekeyed();
            }
        }
        state.tasks.clear();
        (state.rekey_at, state.reauth_at) = (None, None);
        let delete = Task::DeleteIke(DownReason::Reauthenticated);
        state.queue_later(ctx, delete, ctx.now + DELETE_REAUTHENTICATED_AFTER);
    }

    /// Gives away the children and the tasks of an SA that another has replaced.
    pub(crate) fn hand_over(
        &mut self,
        ctx: &mut Context<'_>,
        retirement: Retirement,
    ) -> Option<(Vec<ChildSa>, Vec<QueuedTask>)> {
        let (state, _) = self.established_mut()?;
        let children = std::mem::take(&mut state.children);
        let tasks = std::mem::take(&mut state.tasks).into();
        self.retire(ctx, retirement);
        Some((children, tasks))
    }

    /// Ends an SA that another has replaced.
    pub(crate) fn retire(&mut self, ctx: &mut Context<'_>, retirement: Retirement) {
        self.common.suspended = false;
        self.advance(|phase, sa| match retirement {
            Retirement::Delete => phase.end(sa, ctx, Ending::delete(DownReason::Rekeyed)),
            Retirement::Deleted => phase.close(sa, ctx, DownReason::Rekeyed),
            Retirement::AwaitDelete => phase.await_delete(sa, ctx),
        });
    }

    /// Takes the children and the tasks of the SA that this one has replaced.
    pub(crate) fn take_over(
        &mut self,
        ctx: &mut Context<'_>,
        children: Vec<ChildSa>,
        tasks: Vec<QueuedTask>,
    ) {
        self.common.suspended = false;
        if let Some((state, _)) = self.established_mut() {
            state.children = children;
            // Tasks about the replaced IKE SA itself are done. The administrator's delete is not.
            let kept = tasks.into_iter().filter(|queued| {
                !matches!(
                    queued.task,
                    Task::RekeyIke | Task::Liveness | Task::CrashToken
                )
            });
            state.tasks.extend(kept);
        }
        self.advance(|phase, sa| phase.run_tasks(sa, ctx));
    }
}
