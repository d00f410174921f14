//! CREATE_CHILD_SA that rekeys the IKE SA (RFC 7296 §1.3.2, §2.18 and §2.25.2).
//!
//! Nonces decide simultaneous rekeys, as those of child SAs. The new IKE SA of the peer's exchange is suspended until our
//! own exchange has ended; the peer retransmits requests on it.

use esplanade_crypto::iana::Group;

use super::child_negotiation::lowest;
use super::error_reply::{ErrorReply, child_failure, error_of, requested_method};
use super::key_exchange;
use super::payloads::RekeyIkePayloads;
use crate::crash_token;
use crate::event::Event;
use crate::failure::{DownReason, UnusableResponse};
use crate::id::IkeSaId;
use crate::negotiate;
use crate::protected::ProtectedChannel;
use crate::sa::{
    Context, Effect, Ending, Established, IkeSa, IkeSaCommon, PendingExchange, PendingIkeRekey,
    Phase, Retirement, SimultaneousIkeRekey, Task,
};
use crate::status::GoalFailure;
use crate::suite::{IkeSaKeys, Nonces, Role};
use crate::transport::{ReceivedMessage, Window};
use crate::wire::{ExchangeType, Message, Notify, NotifyType, Payload};

const IKE_SPI_LEN: usize = 8;

/// The IKE SA that a rekey has made.
struct NewIkeSa {
    sa: IkeSa,
    lowest_nonce: Vec<u8>,
}

impl Established {
    /// `method` is the key exchange method, where it is not that of this IKE SA.
    pub(super) fn start_rekey_ike(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        method: Option<Group>,
    ) -> Result<(), Ending> {
        let method_changed = method.is_some();
        let current = self.channel.keys().suite().key_exchanges.first();
        let Ok(started) = ctx.key_exchange.start(method.unwrap_or(current)) else {
            self.ike_rekey_failed(ctx);
            return Ok(());
        };
        let spi = ctx.ike_spi();
        let pending = PendingIkeRekey {
            spi,
            nonce: ctx.nonce(),
            key_exchange: started,
            offer: negotiate::ike_offer(&sa.connection.proposals, &spi.to_be_bytes()),
            simultaneous: None,
            method_changed,
        };
        let payloads = [
            Payload::Sa(pending.offer.clone()),
            Payload::Nonce(pending.nonce.clone()),
            key_exchange::payload(&*pending.key_exchange),
        ];
        self.rekey_at = None;
        self.exchange = Some(PendingExchange::RekeyIke(Box::new(pending)));
        let exchange = ExchangeType::CREATE_CHILD_SA;
        sa.send_request(ctx, &mut self.channel, exchange, &payloads)
    }

    pub(super) fn handle_rekey_ike_response(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: PendingIkeRekey,
        message: &Message,
    ) -> Result<(), Ending> {
        if let Some(error) = error_of(message) {
            return self.rekey_ike_refused(sa, ctx, &pending, error);
        }
        let Some(new) = self.accept_rekey_ike(sa, ctx, &pending, message) else {
            tracing::trace!(ike_sa = %sa.id, "unusable response to a rekey");
            return match pending.simultaneous {
                Some(peers) => {
                    replace(sa, ctx, peers.ike_sa, Retirement::AwaitDelete);
                    Ok(())
                }
                // The peer has replaced the SA by one that we cannot derive, so that both are lost.
                None => Err(Ending::delete(DownReason::UnusableResponse(
                    UnusableResponse::InvalidIkeRekey,
                ))),
            };
        };
        ctx.counters.ike_rekeys += 1;
        let id = new.sa.common.id;
        ctx.effects.push(Effect::Insert(Box::new(new.sa)));
        match pending.simultaneous {
            Some(peers) if new.lowest_nonce < peers.lowest_nonce => {
                replace(sa, ctx, peers.ike_sa, Retirement::AwaitDelete);
                ctx.effects.push(Effect::DeleteRedundant { ike_sa: id });
            }
            Some(peers) => {
                replace(sa, ctx, id, Retirement::Delete);
                ctx.effects.push(Effect::AwaitRedundantDelete {
                    ike_sa: peers.ike_sa,
                });
            }
            None => replace(sa, ctx, id, Retirement::Delete),
        }
        Ok(())
    }

    fn rekey_ike_refused(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: &PendingIkeRekey,
        error: &Notify,
    ) -> Result<(), Ending> {
        if let Some(peers) = &pending.simultaneous {
            replace(sa, ctx, peers.ike_sa, Retirement::AwaitDelete);
            return Ok(());
        }
        let offered = |method: &Group| negotiate::offers_method(&sa.connection.proposals, *method);
        let method = requested_method(error).filter(offered);
        match (error.kind, method) {
            (NotifyType::INVALID_KE_PAYLOAD, Some(method)) if !pending.method_changed => {
                return self.start_rekey_ike(sa, ctx, Some(method));
            }
            (NotifyType::INVALID_SYNTAX, _) => {
                return Err(Ending::Silent(DownReason::PeerRefused(error.kind)));
            }
            (NotifyType::TEMPORARY_FAILURE, _) => {}
            _ => {
                let reason = child_failure(error, &pending.offer, (&[], &[]));
                self.rekey_failure = Some(GoalFailure {
                    at: ctx.now,
                    why: reason.to_string(),
                });
                ctx.events.push_back(Event::RekeyFailed {
                    ike_sa: sa.id,
                    connection: sa.connection.name.clone(),
                    reason,
                });
            }
        }
        self.ike_rekey_failed(ctx);
        Ok(())
    }

    /// Checks the response and makes the new IKE SA.
    fn accept_rekey_ike(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: &PendingIkeRekey,
        message: &Message,
    ) -> Option<NewIkeSa> {
        let theirs = RekeyIkePayloads::find(message)?;
        let chosen = negotiate::accept_ike(&pending.offer, theirs.proposals)?;
        let started = &*pending.key_exchange;
        if chosen.suite.key_exchanges.first() != started.method() {
            return None;
        }
        let peer_spi = chosen.peer_spi.filter(|spi| *spi != 0)?;
        let shared = key_exchange::complete(ctx, started, theirs.key_exchange).ok()?;
        let nonces = Nonces {
            initiator: &pending.nonce,
            responder: theirs.nonce,
        };
        let old_keys = self.channel.keys();
        let keys = old_keys.rekey(chosen.suite, &shared, nonces, pending.spi, peer_spi);
        let mut new = self.successor(sa, ctx, Role::Initiator, (pending.spi, peer_spi), keys);
        if let Some((state, _)) = new.established_mut() {
            state.keep_token(ctx, message);
            // The request could not bring ours: the responder's SPI was not known (RFC 6290 §4.3).
            if ctx.config.tokens_from().is_some() {
                state.queue(ctx, Task::CrashToken);
            }
        }
        Some(NewIkeSa {
            sa: new,
            lowest_nonce: lowest(&pending.nonce, theirs.nonce),
        })
    }

    pub(super) fn handle_rekey_ike_request(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Result<(), Ending> {
        let (mut new, payloads) = match self.grant_rekey_ike(sa, ctx, message) {
            Ok(granted) => granted,
            Err(reply) => return self.reply_with_error(sa, ctx, received, message, reply),
        };
        ctx.counters.ike_rekeys += 1;
        sa.send_response(ctx, &mut self.channel, received, &payloads)?;
        let id = new.sa.common.id;
        if let Some(PendingExchange::RekeyIke(pending)) = &mut self.exchange {
            pending.simultaneous = Some(SimultaneousIkeRekey {
                ike_sa: id,
                lowest_nonce: new.lowest_nonce,
            });
            new.sa.common.suspended = true;
            ctx.effects.push(Effect::Insert(Box::new(new.sa)));
        } else {
            ctx.effects.push(Effect::Insert(Box::new(new.sa)));
            replace(sa, ctx, id, Retirement::AwaitDelete);
        }
        Ok(())
    }

    /// Decides on a rekey that the peer proposes. Returns the new IKE SA and the payloads of the response.
    fn grant_rekey_ike(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        message: &Message,
    ) -> Result<(NewIkeSa, Vec<Payload>), ErrorReply> {
        let decided = matches!(
            &self.exchange,
            Some(PendingExchange::RekeyIke(pending)) if pending.simultaneous.is_some()
        );
        if self.is_busy_with_children() || decided || self.is_ending() {
            return Err(ErrorReply::temporary_failure());
        }
        let theirs = RekeyIkePayloads::find(message).ok_or_else(ErrorReply::invalid_syntax)?;
        self.charge_work(ctx, 0)?;
        let own = &sa.connection.proposals;
        let sent = theirs.key_exchange.method;
        let mut chosen = negotiate::choose_ike(own, theirs.proposals, sent, IKE_SPI_LEN)
            .ok_or_else(ErrorReply::no_proposal_chosen)?;
        let method = chosen.suite.key_exchanges.first();
        if sent != method.number() {
            return Err(ErrorReply::invalid_ke_payload(method));
        }
        let peer_spi = chosen
            .peer_spi
            .filter(|spi| *spi != 0)
            .ok_or_else(ErrorReply::invalid_syntax)?;
        let (ke_payload, shared) = key_exchange::answer(ctx, method, Some(theirs.key_exchange))?;
        let spi = ctx.ike_spi();
        let nonce = ctx.nonce();
        let nonces = Nonces {
            initiator: theirs.nonce,
            responder: &nonce,
        };
        let old_keys = self.channel.keys();
        let keys = old_keys.rekey(chosen.suite, &shared, nonces, peer_spi, spi);
        let new = NewIkeSa {
            sa: self.successor(sa, ctx, Role::Responder, (peer_spi, spi), keys),
            lowest_nonce: lowest(theirs.nonce, &nonce),
        };
        chosen.proposal.spi = spi.to_be_bytes().to_vec();
        let mut payloads = vec![
            Payload::Sa(vec![chosen.proposal]),
            Payload::Nonce(nonce),
            ke_payload,
        ];
        if let Some(secret) = ctx.config.tokens_from() {
            payloads.push(crash_token::payload(secret, peer_spi, spi));
        }
        Ok((new, payloads))
    }

    /// The IKE SA that takes over from this one. It has no children yet.
    fn successor(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        role: Role,
        (spi_i, spi_r): (u64, u64),
        keys: IkeSaKeys,
    ) -> IkeSa {
        let channel = ProtectedChannel::new(keys, role);
        let (local_id, peer) = (self.local_id.clone(), self.authenticated_peer());
        let mut state = Established::new(ctx, &sa.connection, channel, local_id, peer);
        state.keep_authentication(self);
        if !role.is_initiator() {
            state.unknown_until = Some(ctx.now + sa.connection.retransmission.patience());
        }
        let common = IkeSaCommon {
            id: IkeSaId(ctx.next_id()),
            begun: sa.begun,
            connection: sa.connection.clone(),
            role,
            spi_i,
            spi_r,
            local: sa.local,
            remote: sa.remote,
            mapping: sa.mapping,
            hosts: sa.hosts,
            nat: sa.nat,
            udp_trial: sa.udp_trial,
            fragmentation: sa.fragmentation,
            full_transcript: sa.full_transcript,
            narrow_path: sa.narrow_path,
            window: Window::default(),
            suspended: false,
            last_sent: ctx.now,
            predecessor: Some(sa.id),
            was_called: sa.was_called,
            reauthenticates: sa.reauthenticates,
            payer: sa.payer,
            job: None,
        };
        common.log_keys(ctx, state.channel.keys());
        IkeSa {
            common,
            phase: Phase::Established(Box::new(state)),
        }
    }
}

/// `to` replaces the SA. The replaced SA begins no exchange any more.
fn replace(sa: &mut IkeSaCommon, ctx: &mut Context<'_>, to: IkeSaId, retirement: Retirement) {
    sa.suspended = true;
    ctx.effects.push(Effect::Adopt {
        from: sa.id,
        to,
        retirement,
    });
}
