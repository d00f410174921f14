//! The phase of an authenticated IKE SA: its peer, its child SAs, and what waits to be done.

use std::collections::VecDeque;
use std::time::Instant;

use super::child_sa::{ChildRequest, ChildSa};
use super::deadline;
use super::task::{PendingExchange, QueuedTask, Task};
use crate::config::{Connection, Identity};
use crate::failure::DownReason;
use crate::id::ChildSaId;
use crate::peer::PeerKey;
use crate::protected::ProtectedChannel;
use crate::transport::Window;

#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) channel: ProtectedChannel,
    pub(crate) local_id: Identity,
    pub(crate) remote_id: Identity,
    pub(crate) peer: PeerKey,
    pub(crate) children: Vec<ChildSa>,
    pub(crate) tasks: VecDeque<QueuedTask>,
    /// Our exchange that waits for its response.
    pub(crate) exchange: Option<PendingExchange>,
    /// The time at which the last authenticated message or ESP packet of the peer came in.
    pub(crate) last_heard: Instant,
    pub(crate) established: Instant,
    /// The identifier that was given last when this SA was established. IKE SAs with larger ones were begun later.
    pub(crate) last_id: u64,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

impl Established {
    pub(crate) fn child(&self, id: ChildSaId) -> Option<&ChildSa> {
        self.children.iter().find(|child| child.id == id)
    }

    pub(crate) fn child_mut(&mut self, id: ChildSaId) -> Option<&mut ChildSa> {
        self.children.iter_mut().find(|child| child.id == id)
    }

    /// The SAs of a child that are neither replaced nor being deleted.
    pub(crate) fn current(&self, child: &str) -> impl Iterator<Item = &ChildSa> {
        let current = move |sa: &&ChildSa| sa.config.name == child && sa.state.is_current();
        self.children.iter().filter(current)
    }

    pub(crate) fn is_up(&self, child: &str) -> bool {
        self.current(child).next().is_some()
    }

    /// Says whether the child is up, or an exchange for it is queued or under way.
    pub(crate) fn has_child(&self, request: &ChildRequest) -> bool {
        let current = |child: &ChildSa| {
            request.is_for(&child.config)
                && child.state.is_current()
                && !self.is_child_ending(child.id)
        };
        let pending = match &self.exchange {
            Some(PendingExchange::CreateChild(pending)) => {
                let ending = |old| self.is_child_ending(old);
                request.is_for(pending.config())
                    && !pending.withdrawn
                    && !pending.rekeys.is_some_and(ending)
            }
            _ => false,
        };
        let queued = |queued: &QueuedTask| matches!(&queued.task, Task::CreateChild(child) if request.is_for(&child.config));
        pending || self.children.iter().any(current) || self.tasks.iter().any(queued)
    }

    /// Drops the requests to establish a child. An SA of an exchange that is under way is deleted when it is made.
    pub(crate) fn withdraw_child(&mut self, child: &str) {
        self.tasks.retain(
            |queued| !matches!(&queued.task, Task::CreateChild(c) if c.config.name == child),
        );
        if let Some(PendingExchange::CreateChild(pending)) = &mut self.exchange {
            pending.withdrawn |= pending.rekeys.is_none() && pending.config().name == child;
        }
    }

    /// A delete of the IKE SA is queued.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending().is_some()
    }

    pub(crate) fn ending(&self) -> Option<&DownReason> {
        self.tasks.iter().find_map(|queued| match &queued.task {
            Task::DeleteIke(reason) => Some(reason),
            _ => None,
        })
    }

    /// A delete of the child SA is queued, by command or because its lifetime has ended.
    pub(crate) fn is_child_ending(&self, id: ChildSaId) -> bool {
        let deletes = |queued: &QueuedTask| matches!(&queued.task, Task::DeleteChild(child, _) if *child == id);
        self.tasks.iter().any(deletes)
    }

    pub(crate) fn is_rekeying_ike(&self) -> bool {
        matches!(self.exchange, Some(PendingExchange::RekeyIke(_)))
    }

    /// An exchange of ours about a child is under way.
    pub(crate) fn is_busy_with_children(&self) -> bool {
        matches!(
            self.exchange,
            Some(
                PendingExchange::CreateChild(_)
                    | PendingExchange::DeleteChild(..)
                    | PendingExchange::DeleteUnaccepted(_)
                    | PendingExchange::DeleteEnded
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
