//! INFORMATIONAL: deletes, liveness and errors (RFC 7296 sections 1.4 and 2.25).

use super::established::Exchange;
use super::rekey_ike::Leave;
use super::{ChildSa, ChildState, Context, Effect, IkeSa, Received, notify};
use crate::event::{ChildSaId, DownReason};
use crate::refusal::Refusal;
use crate::wire::{Delete, ExchangeType, Message, NotifyType, Payload, ProtocolId};

/// SPIs remembered while an answer is waited for.
const DELETED_MAX: usize = 64;

pub(crate) fn delete_ike() -> Payload {
    Payload::Delete(Delete {
        protocol: ProtocolId::IKE,
        spis: Vec::new(),
    })
}

fn delete_children(protocol: ProtocolId, spis: Vec<u32>) -> Payload {
    Payload::Delete(Delete { protocol, spis })
}

fn deletes_ike(message: &Message) -> bool {
    message
        .payloads
        .iter()
        .any(|p| matches!(p, Payload::Delete(d) if d.protocol == ProtocolId::IKE))
}

/// An error notify that ends the IKE SA wherever it comes (section 2.21.2).
pub(super) fn fatal_notify(message: &Message) -> Option<DownReason> {
    message
        .notifications()
        .find_map(|notify| match notify.kind {
            NotifyType::AUTHENTICATION_FAILED => Some(DownReason::AuthenticationFailed(
                "the peer does not accept us".to_owned(),
            )),
            NotifyType::INVALID_SYNTAX => Some(DownReason::PeerRefused(notify.kind.to_string())),
            _ => None,
        })
}

impl IkeSa {
    pub(super) fn start_liveness(&mut self, ctx: &mut Context<'_>) {
        self.begin(Exchange::Liveness);
        self.send_request(ctx, ExchangeType::INFORMATIONAL, &[]);
    }

    pub(super) fn start_delete_child(
        &mut self,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) {
        let Some(child) = self.established_mut().and_then(|state| state.child_mut(id)) else {
            return;
        };
        if child.state != ChildState::Rekeyed {
            child.state = ChildState::Deleting;
        }
        let delete = delete_children(child.protocol, vec![child.spi_in]);
        self.begin(Exchange::DeleteChild(id, reason));
        self.send_request(ctx, ExchangeType::INFORMATIONAL, &[delete]);
    }

    /// Has the peer delete a child SA that is none here.
    pub(super) fn start_delete(
        &mut self,
        ctx: &mut Context<'_>,
        protocol: ProtocolId,
        spi: u32,
        exchange: Exchange,
    ) {
        self.begin(exchange);
        let delete = delete_children(protocol, vec![spi]);
        self.send_request(ctx, ExchangeType::INFORMATIONAL, &[delete]);
    }

    pub(super) fn handle_informational_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
    ) {
        if let Some(reason) = fatal_notify(message) {
            self.send_response(ctx, received, &[]);
            return self.close(ctx, reason);
        }
        if deletes_ike(message) {
            self.send_response(ctx, received, &[]);
            return self.deleted_by_peer(ctx);
        }
        let mut answer: Vec<(ProtocolId, u32)> = Vec::new();
        let mut gone = Vec::new();
        let Some(state) = self.established_mut() else {
            return;
        };
        let deleting = match &state.exchange {
            Some(Exchange::DeleteChild(id, _)) => Some(*id),
            _ => None,
        };
        for payload in &message.payloads {
            let Payload::Delete(Delete { protocol, spis }) = payload else {
                continue;
            };
            for &spi in spis {
                // The peer names what it receives on, which is what we send on.
                let named = |child: &&ChildSa| (child.protocol, child.spi_out) == (*protocol, spi);
                let Some(child) = state.children.iter().find(named) else {
                    if let Some(Exchange::CreateChild(pending)) = &mut state.exchange
                        && pending.protocol() == *protocol
                        && pending.deleted.len() < DELETED_MAX
                    {
                        pending.deleted.push(spi);
                    }
                    continue;
                };
                if gone.contains(&child.id) {
                    continue;
                }
                gone.push(child.id);
                // Deletes that cross each other are answered without the SPI (section 1.4.1).
                if deleting != Some(child.id) {
                    answer.push((child.protocol, child.spi_in));
                }
            }
        }
        for id in gone {
            self.child_deleted_by_peer(ctx, id);
        }
        let of = |protocol| {
            let spis = answer.iter().filter(|(of, _)| *of == protocol);
            let spis: Vec<u32> = spis.map(|(_, spi)| *spi).collect();
            (!spis.is_empty()).then(|| delete_children(protocol, spis))
        };
        let answer: Vec<_> = [ProtocolId::ESP, ProtocolId::AH]
            .into_iter()
            .filter_map(of)
            .collect();
        self.send_response(ctx, received, &answer);
    }

    /// The peer ends the IKE SA. If that follows a rekey of its own that collided with ours, its one holds.
    fn deleted_by_peer(&mut self, ctx: &mut Context<'_>) {
        let rival = match self
            .established_mut()
            .and_then(|state| state.exchange.as_ref())
        {
            Some(Exchange::RekeyIke(pending)) => pending.rival.as_ref().map(|rival| rival.ike_sa),
            _ => None,
        };
        match rival {
            Some(to) => {
                if let Some(state) = self.established_mut() {
                    state.exchange = None;
                }
                self.window.forget_request();
                self.parked = true;
                ctx.effects.push(Effect::Adopt {
                    from: self.id,
                    to,
                    leave: Leave::Gone,
                });
            }
            None => self.close(ctx, DownReason::PeerDeleted),
        }
    }

    pub(super) fn child_deleted_by_peer(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let state = self
            .established()
            .and_then(|state| state.child(id))
            .map(|child| child.state);
        let reason = match state {
            Some(ChildState::Rekeyed) => DownReason::Rekeyed,
            _ => DownReason::PeerDeleted,
        };
        self.remove_child(ctx, id, reason);
    }

    /// Takes a child SA out of service. What has replaced it sends from now on: with the delete of the old SA the
    /// initiator of the rekey tells that it can receive on the new one (section 2.8).
    pub(super) fn remove_child(
        &mut self,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) {
        let Some(state) = self.established_mut() else {
            return;
        };
        let mut successors = state.children.iter_mut();
        if let Some(successor) = successors.find(|child| child.replaces == Some(id)) {
            successor.replaces = None;
            successor.use_outbound(ctx);
        }
        if let Some(child) = state.take_child(id) {
            child.uninstall(ctx, self, reason);
        }
    }

    /// A request on an SA that is rekeyed or being deleted.
    pub(super) fn handle_late_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
    ) {
        if received.header.exchange == ExchangeType::INFORMATIONAL {
            self.send_response(ctx, received, &[]);
            if deletes_ike(message) || fatal_notify(message).is_some() {
                self.close(ctx, DownReason::PeerDeleted);
            }
            return;
        }
        ctx.counters.refuse(Refusal::TemporaryFailure);
        self.send_response(
            ctx,
            received,
            &[notify(NotifyType::TEMPORARY_FAILURE, Vec::new())],
        );
    }
}
