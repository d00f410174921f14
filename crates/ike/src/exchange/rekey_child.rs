//! CREATE_CHILD_SA that rekeys a child SA (RFC 7296 §1.3.3, §2.8 and §2.25.1).
//!
//! If both peers rekey one child SA at the same time, there are two new SAs. The SA of the exchange with the lowest of
//! the four nonces is redundant. The initiator of that exchange deletes it, and the other peer deletes the old SA
//! (§2.8.1).

use super::child_negotiation::ChildExchange;
use super::error_reply::ErrorReply;
use crate::failure::DownReason;
use crate::id::ChildSaId;
use crate::sa::{
    ChildSa, ChildState, Context, Ending, Established, IkeSaCommon, PendingChild, PendingExchange,
    SimultaneousChildRekey, Task,
};
use crate::wire::{Message, Notify, Payload, ProtocolId};

impl Established {
    pub(super) fn start_rekey_child(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        old: ChildSaId,
    ) -> Result<(), Ending> {
        let current = |child: &&mut ChildSa| child.state.is_current();
        let Some(child) = self.child_mut(old).filter(current) else {
            return Ok(());
        };
        child.state = ChildState::Rekeying;
        child.rekey_at = None;
        let config = child.config.clone();
        let method = child.key_exchange;
        let request = config.clone().into();
        let exchange = ChildExchange::CreateChildSa;
        let kept = self.child(old);
        match sa.propose_child(ctx, exchange, request, method, Some(old), kept) {
            Ok(pending) => self.send_create_child(sa, ctx, pending),
            Err(failure) => {
                self.child_rekey_failed(ctx, old);
                sa.child_failed(ctx, &config.name, failure);
                Ok(())
            }
        }
    }

    /// Our rekey of `old` has made `child`. `lowest_nonce` is the lower nonce of our exchange.
    pub(super) fn child_rekeyed(
        &mut self,
        ctx: &mut Context<'_>,
        simultaneous: Option<SimultaneousChildRekey>,
        old: ChildSaId,
        mut child: ChildSa,
        lowest_nonce: &[u8],
    ) {
        ctx.counters.child_rekeys += 1;
        let new = child.id;
        let redundant = simultaneous
            .as_ref()
            .is_some_and(|peers| lowest_nonce < peers.lowest_nonce.as_slice());
        if redundant {
            child.set_rekeyed();
            child.replaces = None;
            self.children.push(child);
            // The peer's rekey has replaced the old SA, and the peer deletes that.
            if let Some(old) = self.child_mut(old) {
                old.set_rekeyed();
            }
            self.queue(ctx, Task::DeleteChild(new, DownReason::Rekeyed));
            return;
        }
        child.use_outbound(ctx);
        self.children.push(child);
        let peers = simultaneous.map(|peers| peers.child);
        for id in [Some(old), peers].into_iter().flatten() {
            if let Some(replaced) = self.child_mut(id) {
                replaced.set_rekeyed();
                replaced.replaces = None;
            }
        }
        if self.is_child_ending(old) {
            self.queue(ctx, Task::DeleteChild(new, DownReason::Terminated));
        }
        // The peer deletes the SA of its own rekey.
        self.queue(ctx, Task::DeleteChild(old, DownReason::Rekeyed));
    }

    /// The peer does not have the SA that we wanted to rekey (RFC 7296 §2.25.1). A new one takes its place, unless the old
    /// one is to end.
    pub(super) fn rekeyed_child_not_found(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: &PendingChild,
    ) {
        let Some(old) = pending.rekeys.filter(|old| self.child(*old).is_some()) else {
            return;
        };
        if self.is_child_ending(old) {
            return self.remove_child(sa, ctx, old, DownReason::Terminated);
        }
        self.remove_child(sa, ctx, old, DownReason::PeerDeleted);
        self.queue(ctx, Task::CreateChild(pending.config().clone().into()));
    }

    pub(super) fn grant_rekey_child(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        message: &Message,
        rekeyed: &Notify,
    ) -> Result<Vec<Payload>, ErrorReply> {
        let not_found = || ErrorReply::child_sa_not_found(rekeyed);
        if !matches!(rekeyed.protocol, ProtocolId::ESP | ProtocolId::AH) {
            return Err(not_found());
        }
        let spi = rekeyed.spi_u32().ok_or_else(ErrorReply::invalid_syntax)?;
        let named = |child: &&ChildSa| (child.protocol, child.spi_out) == (rekeyed.protocol, spi);
        let old = self.children.iter().find(named);
        // It can be the SA that we have proposed, if the response was lost, or an SA that we are closing.
        let comes_or_goes = matches!(self.exchange, Some(PendingExchange::CreateChild(_)))
            || self.is_child_ended(rekeyed.protocol, spi);
        let old = old.ok_or_else(|| match comes_or_goes {
            true => ErrorReply::temporary_failure(),
            false => not_found(),
        })?;
        let old_id = old.id;
        if !old.state.is_current() || self.is_child_ending(old_id) {
            return Err(ErrorReply::temporary_failure());
        }
        let candidates = [old.config.clone()];
        let granted = self.grant_child(sa, ctx, message, &candidates, Some(old_id))?;
        ctx.counters.child_rekeys += 1;
        let new = granted.child.id;
        self.children.push(granted.child);
        self.tasks
            .retain(|queued| !matches!(queued.task, Task::RekeyChild(id) if id == old_id));
        match &mut self.exchange {
            // Our response decides which SA is redundant. Until then the old SA carries the traffic.
            Some(PendingExchange::CreateChild(pending)) if pending.rekeys == Some(old_id) => {
                pending.simultaneous = Some(SimultaneousChildRekey {
                    child: new,
                    lowest_nonce: granted.lowest_nonce,
                });
            }
            _ => {
                if let Some(old) = self.child_mut(old_id) {
                    old.set_rekeyed();
                }
            }
        }
        Ok(granted.payloads)
    }
}
