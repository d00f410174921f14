//! INFORMATIONAL: deletes, liveness checks and errors (RFC 7296 §1.4 and §2.25).

use super::error_reply::{fatal_error, notify};
use super::payloads::InformationalPayloads;
use crate::crash_token;
use crate::failure::DownReason;
use crate::id::ChildSaId;
use crate::protected::ProtectedChannel;
use crate::refusal::Refusal;
use crate::sa::{
    ChildSa, ChildState, Closing, Context, Effect, Ending, Established, IkeSaCommon,
    PendingExchange, Phase, Rekeyed, Retirement,
};
use crate::transport::ReceivedMessage;
use crate::wire::{Delete, ExchangeType, Message, NotifyType, Payload, ProtocolId};

/// SPIs of the peer's deletes that are remembered while our own child SA is being made.
const DELETED_MAX: usize = 64;

fn delete(protocol: ProtocolId, spis: Vec<u32>) -> Payload {
    Payload::Delete(Delete { protocol, spis })
}

fn deletes_ike(message: &Message) -> bool {
    message
        .payloads
        .iter()
        .any(|p| matches!(p, Payload::Delete(d) if d.protocol == ProtocolId::IKE))
}

impl Established {
    /// Sends an empty request, which the peer must answer if it is alive (RFC 7296 §2.4).
    pub(super) fn start_liveness(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        self.exchange = Some(PendingExchange::Liveness);
        let timing = self.liveness.timing(&sa.connection, ctx.now);
        sa.send_liveness(ctx, &mut self.channel, &timing)
    }

    /// Gives the peer our crash token for this IKE SA (RFC 6290 §4.3).
    pub(super) fn send_token(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        let Some(secret) = ctx.config.tokens_from() else {
            return Ok(());
        };
        let token = crash_token::payload(secret, sa.spi_i, sa.spi_r);
        self.exchange = Some(PendingExchange::CrashToken);
        sa.send_request(
            ctx,
            &mut self.channel,
            ExchangeType::INFORMATIONAL,
            &[token],
        )
    }

    pub(super) fn start_delete_child(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) -> Result<(), Ending> {
        let Some(child) = self.child_mut(id) else {
            return Ok(());
        };
        if child.state != ChildState::Rekeyed {
            child.state = ChildState::Deleting;
        }
        let (protocol, spi) = (child.protocol, child.spi_in);
        self.start_delete(
            sa,
            ctx,
            protocol,
            spi,
            PendingExchange::DeleteChild(id, reason),
        )
    }

    /// Has the peer delete the child SA that we receive on with `spi`.
    pub(super) fn start_delete(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        protocol: ProtocolId,
        spi: u32,
        exchange: PendingExchange,
    ) -> Result<(), Ending> {
        self.exchange = Some(exchange);
        let payload = delete(protocol, vec![spi]);
        sa.send_request(
            ctx,
            &mut self.channel,
            ExchangeType::INFORMATIONAL,
            &[payload],
        )
    }

    pub(super) fn handle_informational_request(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Result<(), Ending> {
        if let Some(reason) = fatal_error(message) {
            sa.send_response(ctx, &mut self.channel, received, &[])?;
            return Err(Ending::Silent(reason));
        }
        if deletes_ike(message) {
            sa.send_response(ctx, &mut self.channel, received, &[])?;
            return self.deleted_by_peer(sa, ctx);
        }
        self.keep_token(ctx, message);
        self.keep_lifetime(ctx, message);
        let (deleted, confirmed) = self.find_deleted(message);
        for id in deleted {
            self.child_deleted_by_peer(sa, ctx, id);
        }
        let of_protocol = |protocol| {
            let spis = confirmed.iter().filter(|(of, _)| *of == protocol);
            let spis: Vec<u32> = spis.map(|(_, spi)| *spi).collect();
            (!spis.is_empty()).then(|| delete(protocol, spis))
        };
        let payloads: Vec<_> = [ProtocolId::ESP, ProtocolId::AH]
            .into_iter()
            .filter_map(of_protocol)
            .collect();
        sa.send_response(ctx, &mut self.channel, received, &payloads)
    }

    /// The child SAs that the peer deletes, and those of our SPIs that the response is to delete.
    fn find_deleted(&mut self, message: &Message) -> (Vec<ChildSaId>, Vec<(ProtocolId, u32)>) {
        let (mut deleted, mut confirmed) = (Vec::new(), Vec::new());
        let deleting = match &self.exchange {
            Some(PendingExchange::DeleteChild(id, _)) => Some(*id),
            _ => None,
        };
        let payloads = InformationalPayloads::find(message);
        for Delete { protocol, spis } in payloads.iter().flat_map(|found| &found.deletes) {
            for &spi in spis {
                // The peer names the SPI that it receives with, which is the one that we send with.
                let named = |child: &&ChildSa| (child.protocol, child.spi_out) == (*protocol, spi);
                let Some(child) = self.children.iter().find(named) else {
                    if let Some(PendingExchange::CreateChild(pending)) = &mut self.exchange
                        && pending.protocol() == *protocol
                        && pending.deleted.len() < DELETED_MAX
                    {
                        pending.deleted.push(spi);
                    }
                    continue;
                };
                if deleted.contains(&child.id) {
                    continue;
                }
                deleted.push(child.id);
                // Both ends delete the SA at the same time: the response does not name it (RFC 7296 §1.4.1).
                if deleting != Some(child.id) {
                    confirmed.push((child.protocol, child.spi_in));
                }
            }
        }
        (deleted, confirmed)
    }

    /// The peer deletes the IKE SA. If it has rekeyed the SA at the same time as we, its new SA takes over.
    fn deleted_by_peer(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        let simultaneous = match &self.exchange {
            Some(PendingExchange::RekeyIke(pending)) => pending.simultaneous.as_ref(),
            _ => None,
        };
        let Some(to) = simultaneous.map(|peers| peers.ike_sa) else {
            return Err(Ending::Silent(DownReason::PeerDeleted));
        };
        self.exchange = None;
        sa.window.forget_request();
        sa.suspended = true;
        ctx.effects.push(Effect::Adopt {
            from: sa.id,
            to,
            retirement: Retirement::Deleted,
        });
        Ok(())
    }
}

impl Rekeyed {
    pub(super) fn handle(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        if received.header.response {
            sa.window.response_accepted();
            return Phase::Rekeyed(self);
        }
        let result = answer_late_request(sa, ctx, &mut self.channel, received, message);
        let phase = Phase::Rekeyed(self);
        match result {
            Ok(()) => phase,
            Err(ending) => phase.end(sa, ctx, ending),
        }
    }
}

impl Closing {
    pub(super) fn handle(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        if received.header.response {
            sa.window.response_accepted();
            return Phase::Closed;
        }
        let result = answer_late_request(sa, ctx, &mut self.channel, received, message);
        let phase = Phase::Closing(self);
        match result {
            Ok(()) => phase,
            Err(ending) => phase.end(sa, ctx, ending),
        }
    }
}

/// Answers a request on an SA that is rekeyed or being deleted.
fn answer_late_request(
    sa: &mut IkeSaCommon,
    ctx: &mut Context<'_>,
    channel: &mut ProtectedChannel,
    received: &ReceivedMessage<'_>,
    message: &Message,
) -> Result<(), Ending> {
    if received.header.exchange != ExchangeType::INFORMATIONAL {
        ctx.counters.count(Refusal::TemporaryFailure);
        let busy = notify(NotifyType::TEMPORARY_FAILURE, Vec::new());
        return sa.send_response(ctx, channel, received, &[busy]);
    }
    sa.send_response(ctx, channel, received, &[])?;
    match deletes_ike(message) || fatal_error(message).is_some() {
        true => Err(Ending::Silent(DownReason::PeerDeleted)),
        false => Ok(()),
    }
}
