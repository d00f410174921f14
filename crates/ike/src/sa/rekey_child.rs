//! CREATE_CHILD_SA that rekeys a child SA (RFC 7296 sections 1.3.3, 2.8 and 2.25.1).
//!
//! When both peers rekey the same child SA at once there are two new ones. The one made by the exchange with the
//! lowest of the four nonces is redundant: who began that exchange deletes it, and the other deletes the old SA.

use super::create_child::{PendingChild, Refuse, Rival};
use super::established::{Exchange, Task};
use super::{ChildSa, ChildState, Context, IkeSa, Received};
use crate::event::{ChildSaId, DownReason};
use crate::refusal::Refusal;
use crate::wire::{Message, Notify, NotifyType, ProtocolId};

impl IkeSa {
    pub(super) fn start_rekey_child(&mut self, ctx: &mut Context<'_>, old: ChildSaId) {
        let Some(child) = self
            .established_mut()
            .and_then(|state| state.child_mut(old))
        else {
            return;
        };
        if !child.state.is_current() {
            return;
        }
        child.state = ChildState::Rekeying;
        child.rekey_at = None;
        let config = child.config.clone();
        let group = child.group;
        match self.propose_child(ctx, &config.clone().into(), group, Some(old)) {
            Ok(pending) => self.send_create_child(ctx, pending),
            Err(failure) => {
                self.rekey_failed(ctx, Some(old));
                self.child_failed(ctx, &config.name, failure);
            }
        }
    }

    /// Our rekey has made `child`.
    pub(super) fn child_rekeyed(
        &mut self,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        old: ChildSaId,
        mut child: ChildSa,
        lowest: &[u8],
    ) {
        ctx.counters.child_rekeys += 1;
        let new = child.id;
        let redundant = pending
            .rival
            .as_ref()
            .is_some_and(|rival| lowest < rival.nonce.as_slice());
        if redundant {
            child.state = ChildState::Rekeyed;
            child.replaces = None;
            child.rekey_at = None;
        } else {
            child.use_outbound(ctx);
        }
        let rival = pending.rival.map(|rival| rival.child);
        let Some(state) = self.established_mut() else {
            return;
        };
        state.children.push(child);
        if redundant {
            // The peer's rekey has replaced the old one, which is for the peer to delete: not to be rekeyed again.
            if let Some(old) = state.child_mut(old) {
                old.state = ChildState::Rekeyed;
                old.rekey_at = None;
            }
            self.queue(ctx, Task::DeleteChild(new, DownReason::Rekeyed));
            return;
        }
        for id in [Some(old), rival].into_iter().flatten() {
            if let Some(replaced) = state.child_mut(id) {
                replaced.state = ChildState::Rekeyed;
                replaced.rekey_at = None;
                replaced.replaces = None;
            }
        }
        let ending = state.is_child_ending(old);
        if ending {
            self.queue(ctx, Task::DeleteChild(new, DownReason::Terminated));
        }
        // The rival is for the peer to delete.
        self.queue(ctx, Task::DeleteChild(old, DownReason::Rekeyed));
    }

    /// The peer does not have the SA that we wanted to rekey (section 2.25.1).
    pub(super) fn rekeyed_child_not_found(
        &mut self,
        ctx: &mut Context<'_>,
        pending: &PendingChild,
    ) {
        if pending.rival.is_some() {
            return;
        }
        let Some(old) = pending.rekeys else { return };
        if self
            .established()
            .and_then(|state| state.child(old))
            .is_none()
        {
            return;
        }
        self.remove_child(ctx, old, DownReason::PeerDeleted);
        self.queue(ctx, Task::CreateChild(pending.config.clone().into()));
    }

    pub(super) fn handle_rekey_child_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
        rekeyed: &Notify,
    ) {
        match self.grant_rekey_child(ctx, message, rekeyed) {
            Ok(payloads) => self.send_response(ctx, received, &payloads),
            Err(refuse) => self.refuse_request(ctx, received, message, refuse),
        }
    }

    fn grant_rekey_child(
        &mut self,
        ctx: &mut Context<'_>,
        message: &Message,
        rekeyed: &Notify,
    ) -> Result<Vec<crate::wire::Payload>, Refuse> {
        let not_found = || {
            let mut refuse = Refuse::new(Refusal::ChildSaNotFound, NotifyType::CHILD_SA_NOT_FOUND);
            refuse.about = rekeyed.spi_u32().map(|spi| (rekeyed.protocol, spi));
            refuse
        };
        if !matches!(rekeyed.protocol, ProtocolId::ESP | ProtocolId::AH) {
            return Err(not_found());
        }
        let state = self.established().ok_or_else(Refuse::temporary)?;
        let awaits_answer = matches!(state.exchange, Some(Exchange::CreateChild(_)));
        let spi = rekeyed.spi_u32().ok_or_else(Refuse::syntax)?;
        let mut old = state.children.iter();
        let old = old.find(|child| (child.protocol, child.spi_out) == (rekeyed.protocol, spi));
        let old = old.ok_or_else(|| match awaits_answer {
            // It may be the very SA that we have proposed, of which the answer was lost.
            true => Refuse::temporary(),
            false => not_found(),
        })?;
        let old_id = old.id;
        if !old.state.is_current() || state.is_child_ending(old_id) {
            return Err(Refuse::temporary());
        }
        let candidates = [old.config.clone()];
        let answer = self.grant_child(ctx, message, &candidates, Some(old_id))?;
        ctx.counters.child_rekeys += 1;
        let new = answer.child.id;
        let Some(state) = self.established_mut() else {
            return Err(Refuse::temporary());
        };
        state.children.push(answer.child);
        state
            .tasks
            .retain(|queued| !matches!(queued.task, Task::RekeyChild(id) if id == old_id));
        let ours = match &mut state.exchange {
            Some(Exchange::CreateChild(pending)) if pending.rekeys == Some(old_id) => Some(pending),
            _ => None,
        };
        match ours {
            // Decided when our answer comes; until then the old SA carries the traffic.
            Some(pending) => {
                pending.rival = Some(Rival {
                    child: new,
                    nonce: answer.lowest_nonce,
                })
            }
            None => {
                if let Some(old) = state.child_mut(old_id) {
                    old.state = ChildState::Rekeyed;
                    old.rekey_at = None;
                }
            }
        }
        Ok(answer.payloads)
    }
}
