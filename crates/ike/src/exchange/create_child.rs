//! CREATE_CHILD_SA for a new child SA (RFC 7296 §1.3.1), and the parts that the rekey of a child SA shares with it.

use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::iana::Group;

use super::child_negotiation::{ChildExchange, ChildTerms, lowest};
use super::error_reply::{ErrorReply, child_failure, error_of, requested_method};
use super::key_exchange::{self, CompletionError};
use super::payloads::ChildPayloads;
use crate::config::Child;
use crate::failure::{ChildFailure, ChildResponseFault, DownReason, RequestFault, Shortage};
use crate::id::ChildSaId;
use crate::refusal::Refusal;
use crate::sa::{
    ChildRequest, ChildSa, Context, Ending, Established, IkeSaCommon, PendingChild,
    PendingExchange, Task,
};
use crate::suite::Nonces;
use crate::transport::ReceivedMessage;
use crate::wire::{ExchangeType, Message, Notify, NotifyType, Payload, ProtocolId};

/// Pause after TEMPORARY_FAILURE: the peer is busy with an exchange that collides with ours (RFC 7296 §2.25).
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A child SA that the peer has proposed and that we have made.
pub(super) struct GrantedChild {
    pub(super) child: ChildSa,
    /// The response.
    pub(super) payloads: Vec<Payload>,
    pub(super) lowest_nonce: Vec<u8>,
}

impl Established {
    pub(super) fn start_create_child(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        request: ChildRequest,
    ) -> Result<(), Ending> {
        let name = request.config.name.clone();
        // The configuration bounds the number of children, but not of the SAs that packets ask for.
        let limit = ctx.config.limits.children_per_sa_max;
        let further = request.packet.is_some() && self.is_up(&name);
        if (request.config.from_packet || further) && self.children.len() >= limit {
            let failure = ChildFailure::Resources(Shortage::ChildSas);
            sa.child_failed(ctx, &name, failure);
            return Ok(());
        }
        match sa.propose_child(ctx, ChildExchange::CreateChildSa, request, None, None, None) {
            Ok(pending) => self.send_create_child(sa, ctx, pending),
            Err(failure) => {
                sa.child_failed(ctx, &name, failure);
                Ok(())
            }
        }
    }

    pub(super) fn send_create_child(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: PendingChild,
    ) -> Result<(), Ending> {
        let mut payloads = Vec::new();
        if let Some(old) = pending.rekeys {
            let Some(child) = self.child(old) else {
                ctx.spis.release(pending.spi_in);
                return Ok(());
            };
            payloads.push(Payload::Notify(Notify::about_child(
                NotifyType::REKEY_SA,
                child.protocol,
                child.spi_in,
            )));
        }
        payloads.extend(pending.notifies());
        payloads.push(Payload::Sa(pending.offer.clone()));
        payloads.push(Payload::Nonce(pending.nonce.clone()));
        if let Some(started) = &pending.key_exchange {
            payloads.push(key_exchange::payload(&**started));
        }
        payloads.push(Payload::TsI(pending.local_ts.clone()));
        payloads.push(Payload::TsR(pending.remote_ts.clone()));
        self.exchange = Some(PendingExchange::CreateChild(Box::new(pending)));
        let exchange = ExchangeType::CREATE_CHILD_SA;
        sa.send_request(ctx, &mut self.channel, exchange, &payloads)
    }

    pub(super) fn handle_create_child_response(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        message: &Message,
    ) -> Result<(), Ending> {
        if let Some(error) = error_of(message) {
            ctx.spis.release(pending.spi_in);
            return self.create_child_refused(sa, ctx, pending, error);
        }
        if pending.rekeys.is_some() && pending.withdrawn {
            // The old SA has ended. The peer has the new one, and our SPI is free when the peer has confirmed the delete.
            self.queue(
                ctx,
                Task::DeleteUnaccepted(pending.protocol(), pending.spi_in),
            );
            return Ok(());
        }
        match self.accept_created_child(sa, ctx, &pending, message) {
            Ok((child, lowest_nonce)) => {
                let deleted = pending.deleted.contains(&child.spi_out).then_some(child.id);
                match pending.rekeys {
                    Some(old) => {
                        self.child_rekeyed(ctx, pending.simultaneous, old, child, &lowest_nonce);
                    }
                    None => self.add_child(sa, ctx, child, pending.withdrawn),
                }
                if let Some(id) = deleted {
                    self.child_deleted_by_peer(sa, ctx, id);
                }
            }
            Err(failure) => {
                // The peer has the SA. Our SPI is free when the peer has confirmed the delete.
                let task = Task::DeleteUnaccepted(pending.protocol(), pending.spi_in);
                self.queue(ctx, task);
                sa.child_failed(ctx, &pending.config().name, failure);
                self.child_exchange_failed(ctx, &pending);
            }
        }
        Ok(())
    }

    /// Checks the response and installs the child SA. Returns the lower nonce of the exchange too.
    fn accept_created_child(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: &PendingChild,
        message: &Message,
    ) -> Result<(ChildSa, Vec<u8>), ChildFailure> {
        let misbehaved = ChildFailure::PeerMisbehaved;
        let theirs =
            ChildPayloads::find(message).ok_or(misbehaved(ChildResponseFault::MissingPayload))?;
        let nonce = theirs
            .nonce
            .ok_or(misbehaved(ChildResponseFault::NoNonce))?;
        // Without a KE payload the peer can only have chosen a proposal without a key exchange.
        let shared = match (&pending.key_exchange, theirs.key_exchange) {
            (None, _) | (_, None) => None,
            (Some(started), Some(ke)) => {
                let completed = key_exchange::complete(ctx, &**started, ke);
                Some(completed.map_err(|error| {
                    misbehaved(match error {
                        CompletionError::OtherMethod => ChildResponseFault::OtherKeyExchangeMethod,
                        CompletionError::InvalidData => ChildResponseFault::InvalidKeyExchangeData,
                    })
                })?)
            }
        };
        let nonces = Nonces {
            initiator: &pending.nonce,
            responder: nonce,
        };
        let child = self.accept_child(sa, ctx, pending, &theirs, shared.as_ref(), nonces)?;
        Ok((child, lowest(&pending.nonce, nonce)))
    }

    /// The peer answers with an error. Our SPI was given back.
    fn create_child_refused(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        error: &Notify,
    ) -> Result<(), Ending> {
        let again = ctx.now + TRY_AGAIN + ctx.jitter(2 * TRY_AGAIN);
        // The peer's simultaneous rekey holds (RFC 7296 §2.25.1), or nobody wants the child any more.
        let moot = pending.withdrawn || pending.simultaneous.is_some();
        let failure = match error.kind {
            kind if moot && kind != NotifyType::INVALID_SYNTAX => return Ok(()),
            NotifyType::INVALID_KE_PAYLOAD if !pending.method_changed => {
                let offered = |method: &Group| {
                    let mut proposals = pending.config().esp_proposals.iter();
                    proposals.any(|proposal| proposal.groups.contains(method))
                };
                if let Some(method) = requested_method(error).filter(offered) {
                    return self.retry_with_method(sa, ctx, pending, method);
                }
                ChildFailure::PeerMisbehaved(ChildResponseFault::KeyExchangeMethodNotOffered)
            }
            NotifyType::TEMPORARY_FAILURE => {
                let task = match pending.rekeys {
                    None => Task::CreateChild(pending.request),
                    Some(old) => Task::RekeyChild(old),
                };
                self.queue_later(ctx, task, again);
                return Ok(());
            }
            NotifyType::SINGLE_PAIR_REQUIRED => match pending.request.single_pair() {
                Some(request) => {
                    self.queue(ctx, Task::CreateChild(request));
                    return Ok(());
                }
                None => child_failure(error, &pending.offer, pending.selectors()),
            },
            NotifyType::CHILD_SA_NOT_FOUND if pending.rekeys.is_some() => {
                self.rekeyed_child_not_found(sa, ctx, &pending);
                return Ok(());
            }
            _ => child_failure(error, &pending.offer, pending.selectors()),
        };
        self.child_exchange_failed(ctx, &pending);
        sa.child_failed(ctx, &pending.config().name, failure);
        match error.kind {
            // INVALID_SYNTAX ends the IKE SA at both ends (RFC 7296 §2.21.3).
            NotifyType::INVALID_SYNTAX => Err(Ending::Silent(DownReason::PeerRefused(error.kind))),
            _ => Ok(()),
        }
    }

    /// The child that was to be rekeyed, if any, is rekeyed later.
    fn child_exchange_failed(&mut self, ctx: &mut Context<'_>, pending: &PendingChild) {
        if let (None, Some(old)) = (&pending.simultaneous, pending.rekeys) {
            self.child_rekey_failed(ctx, old);
        }
    }

    fn retry_with_method(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        method: Group,
    ) -> Result<(), Ending> {
        let request = pending.request.clone();
        let exchange = ChildExchange::CreateChildSa;
        let old = pending.rekeys;
        let kept = old.and_then(|old| self.child(old));
        match sa.propose_child(ctx, exchange, request, Some(method), old, kept) {
            Ok(mut again) => {
                again.method_changed = true;
                self.send_create_child(sa, ctx, again)
            }
            Err(failure) => {
                self.child_exchange_failed(ctx, &pending);
                sa.child_failed(ctx, &pending.config().name, failure);
                Ok(())
            }
        }
    }

    /// A CREATE_CHILD_SA request asks for a new child SA, for the rekey of one, or for the rekey of the IKE SA.
    pub(super) fn handle_create_child_request(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Result<(), Ending> {
        let rekeys_ike = message.payloads.iter().any(
            |payload| matches!(payload, Payload::Sa(p) if p.first().is_some_and(|p| p.protocol == ProtocolId::IKE)),
        );
        if rekeys_ike {
            return self.handle_rekey_ike_request(sa, ctx, received, message);
        }
        let granted = match message.notification(NotifyType::REKEY_SA) {
            Some(notify) => self.grant_rekey_child(sa, ctx, message, notify),
            None => self.grant_new_child(sa, ctx, message),
        };
        match granted {
            Ok(payloads) => sa.send_response(ctx, &mut self.channel, received, &payloads),
            Err(reply) => self.reply_with_error(sa, ctx, received, message, reply),
        }
    }

    fn grant_new_child(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        message: &Message,
    ) -> Result<Vec<Payload>, ErrorReply> {
        let granted = self.grant_child(sa, ctx, message, &sa.connection.children, None)?;
        self.add_child(sa, ctx, granted.child, false);
        Ok(granted.payloads)
    }

    /// Answers with an error notify. INVALID_SYNTAX ends the IKE SA.
    pub(super) fn reply_with_error(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        reply: ErrorReply,
    ) -> Result<(), Ending> {
        self.report_refusal(sa, ctx, received, message, &reply);
        let fatal = reply.kind == NotifyType::INVALID_SYNTAX;
        let payload = reply.into_payload(ctx.counters);
        sa.send_response(ctx, &mut self.channel, received, &[payload])?;
        match fatal {
            true => Err(Ending::Silent(DownReason::PeerMisbehaved(
                RequestFault::InvalidSyntax,
            ))),
            false => Ok(()),
        }
    }

    /// Decides on a child SA that the peer proposes, and installs it.
    pub(super) fn grant_child(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        message: &Message,
        candidates: &[Arc<Child>],
        replaces: Option<ChildSaId>,
    ) -> Result<GrantedChild, ErrorReply> {
        // RFC 7296 §2.25.1.
        if self.is_rekeying_ike() || self.is_ending() {
            return Err(ErrorReply::temporary_failure());
        }
        // During a rekey there are two SAs for one, until the old one is deleted.
        let limit = match replaces {
            None => ctx.config.limits.children_per_sa_max,
            Some(_) => 2 * ctx.config.limits.children_per_sa_max,
        };
        if self.children.len() >= limit {
            return Err(ErrorReply::new(
                Refusal::ChildSaLimit,
                NotifyType::NO_ADDITIONAL_SAS,
            ));
        }
        let theirs = ChildPayloads::find(message).ok_or_else(ErrorReply::invalid_syntax)?;
        let nonce_i = theirs.nonce.ok_or_else(ErrorReply::invalid_syntax)?;
        let nonce_r = ctx.nonce();
        let terms = ChildTerms {
            exchange: ChildExchange::CreateChildSa,
            candidates,
            nonces: Nonces {
                initiator: nonce_i,
                responder: &nonce_r,
            },
            replaces,
        };
        let (child, mut payloads) = self.answer_child(sa, ctx, &theirs, &terms)?;
        let lowest_nonce = lowest(nonce_i, &nonce_r);
        payloads.insert(1, Payload::Nonce(nonce_r));
        Ok(GrantedChild {
            child,
            payloads,
            lowest_nonce,
        })
    }
}
