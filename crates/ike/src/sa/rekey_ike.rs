//! CREATE_CHILD_SA that rekeys the IKE SA (RFC 7296 sections 1.3.2, 2.18 and 2.25.2).
//!
//! Simultaneous rekeys are decided as those of child SAs are. The new IKE SA of the peer's exchange is parked
//! until our own exchange has ended; requests on it come again.

use esplanade_crypto::iana::Group;

use super::create_child::{Refuse, ke_payload, lowest, refused, wanted_group};
use super::established::Exchange;
use super::{Channel, Context, Effect, Established, IkeSa, Phase, Received};
use crate::event::{DownReason, Event, IkeSaId};
use crate::negotiate;
use crate::refusal::Refusal;
use crate::suite::{EphemeralKey, Keys, Nonces, Role};
use crate::window::Window;
use crate::wire::{ExchangeType, KeyExchange, Message, NotifyType, Payload, Proposal};

const IKE_SPI_LEN: usize = 8;

/// A rekey of the IKE SA that we have proposed.
#[derive(Debug)]
pub(crate) struct PendingRekey {
    spi: u64,
    nonce: Vec<u8>,
    key_pair: Box<dyn EphemeralKey>,
    offer: Vec<Proposal>,
    pub(super) rival: Option<Rival>,
    group_changed: bool,
}

/// The IKE SA that the peer's simultaneous rekey has made.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) ike_sa: IkeSaId,
    nonce: Vec<u8>,
}

/// How the replaced IKE SA ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// We delete it.
    Delete,
    /// The peer is to delete it.
    Await,
    /// The peer has deleted it.
    Gone,
}

struct RekeyPayloads<'a> {
    proposals: &'a [Proposal],
    nonce: &'a [u8],
    ke: &'a KeyExchange,
}

impl<'a> RekeyPayloads<'a> {
    fn find(message: &'a Message) -> Option<Self> {
        let (mut proposals, mut nonce, mut ke) = (None, None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Sa(found) => proposals = Some(found.as_slice()),
                Payload::Nonce(found) => nonce = Some(found.as_slice()),
                Payload::Ke(found) => ke = Some(found),
                _ => {}
            }
        }
        Some(Self {
            proposals: proposals?,
            nonce: nonce?,
            ke: ke?,
        })
    }
}

impl IkeSa {
    pub(super) fn start_rekey_ike(&mut self, ctx: &mut Context<'_>, group: Option<Group>) {
        let group_changed = group.is_some();
        let current = || Some(self.phase.channel()?.keys.suite().group);
        let Some(group) = group.or_else(current) else {
            return;
        };
        let Ok(key_pair) = ctx.random.ephemeral_key(group) else {
            return self.rekey_failed(ctx, None);
        };
        let spi = ctx.ike_spi();
        let pending = PendingRekey {
            spi,
            nonce: ctx.nonce(),
            key_pair,
            offer: negotiate::ike_offer(&self.connection.proposals, &spi.to_be_bytes()),
            rival: None,
            group_changed,
        };
        let payloads = [
            Payload::Sa(pending.offer.clone()),
            Payload::Nonce(pending.nonce.clone()),
            ke_payload(&*pending.key_pair),
        ];
        if let Some(state) = self.established_mut() {
            state.rekey_at = None;
        }
        self.begin(Exchange::RekeyIke(Box::new(pending)));
        self.send_request(ctx, ExchangeType::CREATE_CHILD_SA, &payloads);
    }

    pub(super) fn handle_rekey_ike_response(
        &mut self,
        ctx: &mut Context<'_>,
        pending: PendingRekey,
        message: &Message,
    ) {
        if let Some(error) = message
            .notifications()
            .find(|notify| notify.kind.is_error())
        {
            if let Some(rival) = &pending.rival {
                self.parked = true;
                ctx.effects.push(Effect::Adopt {
                    from: self.id,
                    to: rival.ike_sa,
                    leave: Leave::Await,
                });
                return;
            }
            let group = wanted_group(error)
                .filter(|group| negotiate::offers_group(&self.connection.proposals, *group));
            return match (error.kind, group) {
                (NotifyType::INVALID_KE_PAYLOAD, Some(group)) if !pending.group_changed => {
                    self.start_rekey_ike(ctx, Some(group));
                }
                (NotifyType::INVALID_SYNTAX, _) => {
                    self.close(ctx, DownReason::PeerRefused(error.kind.to_string()));
                }
                _ => {
                    let busy = error.kind == NotifyType::TEMPORARY_FAILURE;
                    if !busy {
                        ctx.events.push_back(Event::RekeyFailed {
                            ike_sa: self.id,
                            connection: self.connection.name.clone(),
                            reason: refused(error),
                        });
                    }
                    self.rekey_failed(ctx, None)
                }
            };
        }
        let Some(new) = self.accept_rekey_ike(ctx, &pending, message) else {
            tracing::trace!(ike_sa = %self.id, "unusable answer to a rekey");
            return match pending.rival {
                Some(rival) => {
                    self.parked = true;
                    ctx.effects.push(Effect::Adopt {
                        from: self.id,
                        to: rival.ike_sa,
                        leave: Leave::Await,
                    });
                }
                // The peer believes in an SA that we cannot derive: nothing of it can be saved.
                None => self.close_with(
                    ctx,
                    DownReason::UnusableAnswer(
                        "it rekeys the IKE SA otherwise than we offered".to_owned(),
                    ),
                    &[super::delete_ike()],
                ),
            };
        };
        let (new, nonce) = new;
        ctx.counters.ike_rekeys += 1;
        let (from, id) = (self.id, new.id);
        // Nothing is begun here any more.
        self.parked = true;
        ctx.effects.push(Effect::Insert(Box::new(new)));
        match pending.rival {
            Some(rival) if nonce < rival.nonce => {
                ctx.effects.push(Effect::Adopt {
                    from,
                    to: rival.ike_sa,
                    leave: Leave::Await,
                });
                ctx.effects.push(Effect::Redundant { ike_sa: id });
            }
            Some(rival) => {
                ctx.effects.push(Effect::Adopt {
                    from,
                    to: id,
                    leave: Leave::Delete,
                });
                ctx.effects.push(Effect::Lost {
                    ike_sa: rival.ike_sa,
                });
            }
            None => ctx.effects.push(Effect::Adopt {
                from,
                to: id,
                leave: Leave::Delete,
            }),
        }
    }

    fn accept_rekey_ike(
        &self,
        ctx: &mut Context<'_>,
        pending: &PendingRekey,
        message: &Message,
    ) -> Option<(IkeSa, Vec<u8>)> {
        let theirs = RekeyPayloads::find(message)?;
        let chosen = negotiate::accept_ike(&pending.offer, theirs.proposals)?;
        let group = pending.key_pair.group();
        if chosen.suite.group != group || theirs.ke.group != group.number() {
            return None;
        }
        let peer_spi = chosen.peer_spi.filter(|spi| *spi != 0)?;
        let shared = pending.key_pair.agree(&theirs.ke.public).ok()?;
        let nonces = Nonces {
            initiator: &pending.nonce,
            responder: theirs.nonce,
        };
        let keys =
            self.phase
                .channel()?
                .keys
                .rekey(chosen.suite, &shared, nonces, pending.spi, peer_spi);
        let new = self.successor(ctx, Role::Initiator, pending.spi, peer_spi, keys)?;
        Some((new, lowest(&pending.nonce, theirs.nonce)))
    }

    pub(super) fn handle_rekey_ike_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
    ) {
        match self.grant_rekey_ike(ctx, message) {
            Ok((mut new, payloads, nonce)) => {
                ctx.counters.ike_rekeys += 1;
                let id = new.id;
                let from = self.id;
                self.send_response(ctx, received, &payloads);
                let Some(state) = self.established_mut() else {
                    return;
                };
                if let Some(Exchange::RekeyIke(pending)) = &mut state.exchange {
                    pending.rival = Some(Rival { ike_sa: id, nonce });
                    new.parked = true;
                    ctx.effects.push(Effect::Insert(Box::new(new)));
                } else {
                    self.parked = true;
                    ctx.effects.push(Effect::Insert(Box::new(new)));
                    ctx.effects.push(Effect::Adopt {
                        from,
                        to: id,
                        leave: Leave::Await,
                    });
                }
            }
            Err(refuse) => self.refuse_request(ctx, received, message, refuse),
        }
    }

    fn grant_rekey_ike(
        &self,
        ctx: &mut Context<'_>,
        message: &Message,
    ) -> Result<(IkeSa, Vec<Payload>, Vec<u8>), Refuse> {
        let state = self.established().ok_or_else(Refuse::temporary)?;
        let decided =
            matches!(&state.exchange, Some(Exchange::RekeyIke(pending)) if pending.rival.is_some());
        if state.is_busy_with_children() || decided || state.is_ending() {
            return Err(Refuse::temporary());
        }
        let theirs = RekeyPayloads::find(message).ok_or_else(Refuse::syntax)?;
        let mut chosen = negotiate::choose_ike(
            &self.connection.proposals,
            theirs.proposals,
            theirs.ke.group,
            IKE_SPI_LEN,
        )
        .ok_or_else(|| Refuse::new(Refusal::NoProposalChosen, NotifyType::NO_PROPOSAL_CHOSEN))?;
        let group = chosen.suite.group;
        if theirs.ke.group != group.number() {
            return Err(Refuse::group(group));
        }
        let peer_spi = chosen
            .peer_spi
            .filter(|spi| *spi != 0)
            .ok_or_else(Refuse::syntax)?;
        let key_pair = ctx
            .random
            .ephemeral_key(group)
            .map_err(|_| Refuse::temporary())?;
        let shared = key_pair
            .agree(&theirs.ke.public)
            .map_err(|_| Refuse::syntax())?;
        let spi = ctx.ike_spi();
        let nonce = ctx.nonce();
        let nonces = Nonces {
            initiator: theirs.nonce,
            responder: &nonce,
        };
        let keys = state
            .channel
            .keys
            .rekey(chosen.suite, &shared, nonces, peer_spi, spi);
        let new = self
            .successor(ctx, Role::Responder, peer_spi, spi, keys)
            .ok_or_else(Refuse::temporary)?;
        chosen.answer.spi = spi.to_be_bytes().to_vec();
        let lowest = lowest(theirs.nonce, &nonce);
        let payloads = vec![
            Payload::Sa(vec![chosen.answer]),
            Payload::Nonce(nonce),
            ke_payload(&*key_pair),
        ];
        Ok((new, payloads, lowest))
    }

    /// The IKE SA that takes over from this one; as yet without children.
    fn successor(
        &self,
        ctx: &mut Context<'_>,
        role: Role,
        spi_i: u64,
        spi_r: u64,
        keys: Keys,
    ) -> Option<IkeSa> {
        let old = self.established()?;
        let channel = Channel::new(keys, role);
        let (local_id, remote_id) = (old.local_id.clone(), old.remote_id.clone());
        let state = Established::new(ctx, &self.connection, channel, local_id, remote_id);
        let new = IkeSa {
            id: IkeSaId(ctx.next_id()),
            connection: self.connection.clone(),
            role,
            spi_i,
            spi_r,
            local: self.local,
            remote: self.remote,
            hosts: self.hosts,
            nat: self.nat,
            window: Window::default(),
            phase: Phase::Established(Box::new(state)),
            parked: false,
            last_sent: ctx.now,
            predecessor: Some(self.id),
        };
        new.log_keys(ctx);
        Some(new)
    }
}
