//! The phase of an authenticated IKE SA: its peer, its child SAs, and what waits to be done.

use std::collections::VecDeque;
use std::time::Instant;

use esplanade_crypto::secret::Secret;

use super::child_sa::{ChildRequest, ChildSa};
use super::held_message::HeldMessage;
use super::liveness::Liveness;
use super::path_search::PathSearch;
use super::task::{EndedChild, PendingExchange, QueuedTask, Task};
use crate::auth::CertificateHash;
use crate::config::{Connection, Identity};
use crate::failure::DownReason;
use crate::id::{ChildSaId, IkeSaId};
use crate::peer::PeerKey;
use crate::protected::ProtectedChannel;
use crate::status::GoalFailure;
use crate::transport::Window;
use crate::wire::ProtocolId;
use esplanade_pki::attributes::GroupName;

#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) channel: ProtectedChannel,
    pub(crate) local_id: Identity,
    pub(crate) remote_id: Identity,
    /// The groups of the connection that the peer has proved to be in.
    pub(crate) groups: Vec<GroupName>,
    /// The certificate by which the peer has proved its identity.
    pub(crate) certificate: Option<CertificateHash>,
    pub(crate) peer: PeerKey,
    pub(crate) children: Vec<ChildSa>,
    pub(crate) tasks: VecDeque<QueuedTask>,
    /// Our exchange that waits for its response.
    pub(crate) exchange: Option<PendingExchange>,
    /// The message whose key exchange is being answered, or completed.
    pub(crate) held: Option<Box<HeldMessage>>,
    pub(crate) liveness: Liveness,
    pub(crate) path: PathSearch,
    /// The peer has made this SA by a rekey, and may not know it before that time: our answer can be lost. It is `None` when
    /// the peer has used the SA.
    pub(crate) unknown_until: Option<Instant>,
    /// The message IDs are about to be used up, and a rekey was asked for.
    pub(crate) runs_out: bool,
    /// The time since when the peer has answered every CREATE_CHILD_SA request with TEMPORARY_FAILURE.
    pub(crate) busy_since: Option<Instant>,
    /// The token that shows that the peer has lost the SA (RFC 6290).
    pub(crate) peer_token: Option<Secret>,
    pub(crate) established: Instant,
    /// The identifier that was given last when this SA was established. IKE SAs with larger ones were begun later.
    pub(crate) last_id: u64,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
    /// The time at which the peers are to authenticate again. A rekey does not put it off (RFC 7296 §2.8.3).
    pub(crate) reauth_at: Option<Instant>,
    /// The hard end of the SA, unless the peers authenticate again before.
    pub(crate) reauth_limit: Option<Instant>,
    /// The last attempt to authenticate again has failed. A rekey does not change that.
    pub(crate) reauth_failure: Option<GoalFailure>,
    /// The last attempt to rekey the SA has failed.
    pub(crate) rekey_failure: Option<GoalFailure>,
    /// The IKE SA that was begun last to authenticate again, unless it has come to nothing.
    pub(crate) reauthentication: Option<IkeSaId>,
    /// Another SA makes this one redundant, and the peer has until this time to delete it.
    pub(crate) superseded: Option<Instant>,
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

    /// Says whether the child is up, and carries the packet that asks for it, or an exchange for it is queued or under
    /// way.
    pub(crate) fn has_child(&self, request: &ChildRequest) -> bool {
        let current = |child: &ChildSa| {
            request.is_for(&child.config)
                && request.is_met_by(&child.local_ts, &child.remote_ts)
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
            pending.withdrawn |= pending.config().name == child;
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

    /// The peer is to delete the child SA that we sent on with `spi_out`. It has ended here already.
    pub(crate) fn is_child_ended(&self, protocol: ProtocolId, spi_out: u32) -> bool {
        let is_it = |ended: &EndedChild| (ended.protocol, ended.spi_out) == (protocol, spi_out);
        let deletes =
            |queued: &QueuedTask| matches!(&queued.task, Task::DeleteEnded(ended) if is_it(ended));
        self.tasks.iter().any(deletes)
            || matches!(&self.exchange, Some(PendingExchange::DeleteEnded(ended)) if is_it(ended))
    }

    /// Says whether a new child is being established, or is to be.
    pub(crate) fn is_establishing_children(&self) -> bool {
        let creates = |queued: &QueuedTask| matches!(queued.task, Task::CreateChild(_));
        self.tasks.iter().any(creates)
            || matches!(&self.exchange, Some(PendingExchange::CreateChild(pending)) if pending.rekeys.is_none())
    }

    /// The children that are up, and those that are being established.
    pub(crate) fn wanted_children(&self) -> Vec<ChildRequest> {
        let current = self.children.iter().filter(|sa| sa.state.is_current());
        let up = current.map(|sa| ChildRequest {
            succeeds: Some(sa.id),
            ..ChildRequest::from(sa.config.clone())
        });
        let queued = self.tasks.iter().filter_map(|queued| match &queued.task {
            Task::CreateChild(request) => Some(request.clone()),
            _ => None,
        });
        let pending = match &self.exchange {
            Some(PendingExchange::CreateChild(pending))
                if pending.rekeys.is_none() && !pending.withdrawn =>
            {
                Some(pending.request.clone())
            }
            _ => None,
        };
        let mut wanted: Vec<ChildRequest> = Vec::new();
        for request in up.chain(pending).chain(queued) {
            if !wanted.iter().any(|other| other.is_for(&request.config)) {
                wanted.push(request);
            }
        }
        wanted
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
                    | PendingExchange::DeleteEnded(_)
            )
        )
    }

    pub(super) fn next_timeout(&self, connection: &Connection, window: &Window) -> Option<Instant> {
        let of_children = self.children.iter().flat_map(|child| {
            let lapses_at = child.past.lapses_at();
            [child.rekey_at, child.expires_at, child.idle_at(), lapses_at]
        });
        let of_sa = [
            self.rekey_at,
            self.expires_at,
            self.reauth_at,
            self.superseded,
            self.liveness.reach_out_at(connection),
        ];
        let liveness = self.liveness.ask_at(connection);
        let liveness = liveness.filter(|_| !window.asks_for_life());
        let tasks = self.tasks.iter().map(|queued| queued.not_before).min();
        let when_idle = tasks.filter(|_| !window.is_busy());
        of_children
            .chain(of_sa)
            .chain([liveness, when_idle])
            .flatten()
            .min()
    }
}
