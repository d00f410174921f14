//! IKE_SA_INIT (RFC 7296 §1.2, §2.6, §2.7, §2.21.1 and §2.23).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::dh::DhError;
use esplanade_crypto::iana::Group;

use super::error_reply::{ErrorReply, notify, requested_method};
use super::key_exchange;
use super::payloads::{InitPayloads, looks_up_certificates};
use crate::auth::SIGNATURE_HASHES;
use crate::config::{Childless, Connection, Fragmentation};
use crate::event::Direction;
use crate::failure::{ConfigurationFault, DownReason, Shortage, UnusableResponse};
use crate::id::IkeSaId;
use crate::jobs::{KeyExchangeService, PATIENCE, Payer, QueueFull, Work, WorkOutcome};
use crate::nat::{self, Nat, UdpTrial};
use crate::negotiate;
use crate::protected::{OutgoingMessage, ProtectedChannel};
use crate::refusal::Refusal;
use crate::sa::{
    AuthDue, ChildRequest, ConnectProgress, Context, Effect, HeldMessage, IkeSa, IkeSaCommon,
    InitChoice, InitReceived, InitResponded, InitSent, InitTranscript, Phase,
};
use crate::suite::{IkeSaKeys, KeyExchange, KeyExchangeAnswer, Nonces, Role, Secret, Suite};
use crate::text;
use crate::transport::{ReceivedMessage, RequestStatus, Window};
use crate::wire::{
    CertReq, ExchangeType, HashAlgorithm, KePayload, Message, Notify, NotifyType, Payload,
    ProtocolId,
};

/// The number of times that the initiator begins anew, for a cookie or another key exchange method.
const RESTARTS_MAX: u8 = 6;
/// The number of times that the response is repeated. Nobody has proved the address that it goes to.
const INIT_REPEATS_MAX: u32 = 8;
/// RFC 7296 §2.6.
const COOKIE_LEN_MAX: usize = 64;

/// A response that fits our request.
struct AcceptedInit<'a> {
    suite: Suite,
    nonce_r: &'a [u8],
    key_exchange: &'a KePayload,
}

fn peer_hashes(message: &Message) -> Vec<HashAlgorithm> {
    let announced = message
        .notification(NotifyType::SIGNATURE_HASH_ALGORITHMS)
        .map(Notify::as_signature_hashes)
        .unwrap_or_default();
    // A peer can announce as many as fit into a message. Those that we use are few.
    let known = SIGNATURE_HASHES.iter().copied();
    known.filter(|hash| announced.contains(hash)).collect()
}

fn certreqs(message: &Message) -> Vec<CertReq> {
    let all = message.payloads.iter().filter_map(|payload| match payload {
        Payload::CertReq(certreq) => Some(certreq.clone()),
        _ => None,
    });
    all.collect()
}

/// Says whether we tell the peer that we take fragments (RFC 7383 §2.3).
fn announces_fragmentation(connection: &Connection) -> bool {
    connection.fragmentation != Fragmentation::No
}

fn fragmentation_notify(announced: bool) -> Option<Payload> {
    let kind = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
    announced.then(|| notify(kind, Vec::new()))
}

/// Says whether the peer tells that it takes fragments.
fn takes_fragments(message: &Message) -> bool {
    let announced = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
    message.notification(announced).is_some()
}

/// Our announcement that IKE_AUTH may come without a child SA (RFC 6023 §3).
fn childless_notify(announced: bool) -> Option<Payload> {
    let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
    announced.then(|| {
        Payload::Notify(Notify {
            protocol: ProtocolId::IKE,
            ..Notify::new(kind, Vec::new())
        })
    })
}

/// Our announcement that AUTH covers both messages of IKE_SA_INIT (draft-ietf-ipsecme-ikev2-downgrade-prevention).
fn full_transcript_notify(announced: bool) -> Option<Payload> {
    let kind = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
    announced.then(|| notify(kind, Vec::new()))
}

/// Says whether the peer announces the same.
fn signs_full_transcript(message: &Message) -> bool {
    let announced = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
    message.notification(announced).is_some()
}

/// The fields of an IKE SA that begins. `spis` are the initiator's and the responder's, and `ends` are we and the peer.
fn begin(
    ctx: &mut Context<'_>,
    connection: Arc<Connection>,
    role: Role,
    spis: (u64, u64),
    ends: (SocketAddr, SocketAddr),
    payer: Payer,
) -> IkeSaCommon {
    IkeSaCommon {
        id: IkeSaId(ctx.next_id()),
        begun: ctx.now,
        role,
        spi_i: spis.0,
        spi_r: spis.1,
        local: ends.0,
        remote: ends.1,
        mapping: None,
        hosts: (ends.0.ip(), ends.1.ip()),
        nat: Nat {
            forced: connection.encap,
            ..Nat::default()
        },
        udp_trial: UdpTrial::default(),
        connection,
        fragmentation: false,
        full_transcript: false,
        narrow_path: None,
        window: Window::default(),
        suspended: false,
        last_sent: ctx.now,
        predecessor: None,
        was_called: false,
        reauthenticates: None,
        payer,
        job: None,
    }
}

impl IkeSa {
    /// An IKE SA that we initiate. [`IkeSa::send_init`] sends its first request.
    pub(crate) fn connect(
        ctx: &mut Context<'_>,
        connection: Arc<Connection>,
        local: SocketAddr,
        remote: SocketAddr,
        requests: Vec<ChildRequest>,
    ) -> Result<Self, DownReason> {
        let method = negotiate::first_method(&connection.proposals).ok_or(
            DownReason::Configuration(ConfigurationFault::NoKeyExchangeMethod),
        )?;
        let key_exchange = ctx
            .key_exchange
            .start(method)
            .map_err(|_| DownReason::Resources(Shortage::KeyExchange))?;
        let state = InitSent {
            key_exchange,
            nonce: ctx.nonce(),
            offer: negotiate::ike_offer(&connection.proposals, &[]),
            full_transcript: ctx.config.full_transcript_auth,
            request: Vec::new(),
            cookie: None,
            restarts: 0,
            refused: None,
            requests,
            wait: Duration::ZERO,
            held: None,
        };
        let spis = (ctx.ike_spi(), 0);
        let payer = Payer::proven(remote.ip());
        let ends = (local, remote);
        let common = begin(ctx, connection, Role::Initiator, spis, ends, payer);
        Ok(Self {
            common,
            phase: Phase::InitSent(Box::new(state)),
        })
    }

    /// The peer has to answer within this time. Zero means as long as retransmissions last.
    pub(crate) fn wait_for_answer(&mut self, wait: Duration) {
        if let Phase::InitSent(state) = &mut self.phase {
            state.wait = wait;
        }
    }

    /// Sends the first request, unless that was done.
    pub(crate) fn send_init(&mut self, ctx: &mut Context<'_>) {
        if self.connecting() != Some(ConnectProgress::Waiting) {
            return;
        }
        self.advance(|phase, sa| match phase {
            Phase::InitSent(state) => state.send(sa, ctx),
            other => other,
        });
    }

    /// A request with the source and the SPI of the request that made this SA.
    pub(crate) fn handle_repeated_init(
        &mut self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) {
        if let Phase::InitReceived(state) = &self.phase {
            let same = state.held.received().datagram == received.datagram;
            return ctx.counters.count(match same {
                true => Refusal::Retransmission,
                false => Refusal::MessageIdReuse,
            });
        }
        let sa = &mut self.common;
        match sa.window.classify(0, received.datagram) {
            RequestStatus::Repeated => sa.repeat_response(ctx, received, INIT_REPEATS_MAX, None),
            _ => ctx.counters.count(Refusal::MessageIdReuse),
        }
    }
}

impl InitSent {
    fn send(mut self: Box<Self>, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) -> Phase {
        self.refused = None;
        let mut payloads = Vec::new();
        if let Some(cookie) = &self.cookie {
            // The cookie is the first payload; the rest of the request is unchanged (RFC 7296 §2.6).
            payloads.push(notify(NotifyType::COOKIE, cookie.clone()));
        }
        payloads.push(Payload::Sa(self.offer.clone()));
        payloads.push(key_exchange::payload(&*self.key_exchange));
        payloads.push(Payload::Nonce(self.nonce.clone()));
        payloads.extend(nat::notifies(
            sa.spi_i,
            0,
            sa.local,
            sa.remote,
            sa.nat.forced,
        ));
        payloads.push(Payload::Notify(Notify::signature_hashes(SIGNATURE_HASHES)));
        let announced = announces_fragmentation(&sa.connection);
        payloads.extend(fragmentation_notify(announced));
        payloads.extend(full_transcript_notify(self.full_transcript));
        let header = sa.header(ExchangeType::IKE_SA_INIT, false, 0);
        let message = Message { header, payloads };
        let datagram = match message.encode() {
            Ok(datagram) => datagram,
            Err(error) => {
                let fault = ConfigurationFault::CannotPropose(error);
                return Phase::InitSent(self).close(sa, ctx, DownReason::Configuration(fault));
            }
        };
        sa.trace(
            ctx,
            Direction::Sent,
            &header,
            &message.payloads,
            datagram.len(),
        );
        self.request.clone_from(&datagram);
        let mut message = OutgoingMessage::whole(datagram);
        sa.transmit(ctx, &mut message);
        let timing = sa.connection.retransmission.within(self.wait);
        sa.window.init_sent(ctx.now, message, &timing, ctx.random);
        Phase::InitSent(self)
    }

    pub(super) fn handle(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) -> Phase {
        let header = &received.header;
        let refused = if !sa.window.awaits(0) {
            Some(Refusal::UnexpectedResponse)
        } else if header.exchange != ExchangeType::IKE_SA_INIT
            || !header.response
            || header.message_id != 0
        {
            Some(Refusal::UnexpectedExchange)
        } else {
            None
        };
        if let Some(refusal) = refused {
            ctx.counters.count(refusal);
            return Phase::InitSent(self);
        }
        if self.held.is_some() {
            // If that response is forged, the responder repeats the right one for our next request.
            return Phase::InitSent(self);
        }
        let message = match Message::decode(received.datagram) {
            Ok(message) => message,
            Err(error) => {
                tracing::trace!(%error, "malformed IKE_SA_INIT response");
                ctx.counters.count(Refusal::Malformed);
                self.note_unusable(UnusableResponse::Malformed(error));
                return Phase::InitSent(self);
            }
        };
        sa.trace(
            ctx,
            Direction::Received,
            header,
            &message.payloads,
            received.datagram.len(),
        );
        self.decide(sa, ctx, received, &message)
    }

    pub(super) fn decide(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        let header = &received.header;
        let error = message
            .notifications()
            .find(|notify| notify.kind.is_error() || notify.kind == NotifyType::COOKIE);
        let accepted = match (InitPayloads::find(message), error) {
            (None, Some(notify)) => return self.handle_error(sa, ctx, notify),
            (None, None) => Err(UnusableResponse::MissingPayload),
            (Some(_), _) if header.responder_spi == 0 => Err(UnusableResponse::ZeroSpi),
            (Some(_), _)
                if sa.connection.full_transcript_required && !self.has_full_transcript(message) =>
            {
                Err(UnusableResponse::NoFullTranscript)
            }
            (Some(theirs), _) => self.accept(theirs),
        };
        let completed = accepted.and_then(|accepted| match ctx.prepared.take() {
            Some(WorkOutcome::Completed(Ok(shared))) => Ok((accepted, Some(shared))),
            Some(WorkOutcome::Completed(Err(_))) => Err(UnusableResponse::InvalidKeyExchangeData),
            _ => Ok((accepted, None)),
        });
        match completed {
            Ok((accepted, Some(shared))) => {
                self.complete(sa, ctx, (received, message), accepted, &shared)
            }
            Ok((accepted, None)) => {
                let work = Work::Complete {
                    started: self.key_exchange.clone(),
                    responder: accepted.key_exchange.data.clone(),
                };
                if sa
                    .submit(ctx, sa.payer, work, received.datagram.len())
                    .is_ok()
                {
                    self.held = Some(Box::new(HeldMessage::new(ctx.now, received, message)));
                }
                Phase::InitSent(self)
            }
            Err(why) => {
                ctx.counters.count(Refusal::UnauthenticatedNotify);
                self.note_unusable(why);
                Phase::InitSent(self)
            }
        }
    }

    /// A response is forged or wrong. The right one can still come.
    fn note_unusable(&mut self, why: UnusableResponse) {
        self.refused = Some(DownReason::UnusableResponse(why));
    }

    /// A cookie or an error instead of an answer. Nobody has authenticated it.
    fn handle_error(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        notify: &Notify,
    ) -> Phase {
        let offered = |method: &Group| negotiate::offers_method(&sa.connection.proposals, *method);
        let method = requested_method(notify).filter(offered);
        match (notify.kind, method) {
            (NotifyType::COOKIE, _)
                if self.restarts < RESTARTS_MAX && notify.data.len() <= COOKIE_LEN_MAX =>
            {
                self.restarts += 1;
                self.cookie = Some(notify.data.clone());
                return self.send(sa, ctx);
            }
            (NotifyType::INVALID_KE_PAYLOAD, Some(method))
                if self.restarts < RESTARTS_MAX && method != self.key_exchange.method() =>
            {
                if let Ok(key_exchange) = ctx.key_exchange.start(method) {
                    self.restarts += 1;
                    self.key_exchange = key_exchange;
                    return self.send(sa, ctx);
                }
            }
            (NotifyType::NO_PROPOSAL_CHOSEN, _) => {
                let offered = text::proposals(&self.offer);
                self.refused = Some(DownReason::NoProposalChosen { offered });
            }
            (NotifyType::COOKIE, _) => self.note_unusable(UnusableResponse::TooManyCookies),
            (NotifyType::INVALID_KE_PAYLOAD, _) => {
                self.note_unusable(UnusableResponse::KeyExchangeMethodNotOffered);
            }
            (other, _) => self.refused = Some(DownReason::PeerRefused(other)),
        }
        ctx.counters.count(Refusal::UnauthenticatedNotify);
        Phase::InitSent(self)
    }

    /// Says whether both ends have announced that AUTH covers both messages.
    fn has_full_transcript(&self, response: &Message) -> bool {
        self.full_transcript && signs_full_transcript(response)
    }

    /// Checks the responder's choice.
    fn accept<'a>(&self, theirs: InitPayloads<'a>) -> Result<AcceptedInit<'a>, UnusableResponse> {
        let chosen = negotiate::accept_ike(&self.offer, theirs.proposals)
            .ok_or(UnusableResponse::NotOffered)?;
        let started = self.key_exchange.method();
        let other_method = || UnusableResponse::OtherKeyExchangeMethod {
            chosen: chosen.suite.key_exchanges.first(),
            sent: theirs.key_exchange.method,
            started,
        };
        if chosen.suite.key_exchanges.first() != started {
            return Err(other_method());
        }
        if theirs.key_exchange.method != started.number() {
            return Err(other_method());
        }
        Ok(AcceptedInit {
            suite: chosen.suite,
            nonce_r: theirs.nonce,
            key_exchange: theirs.key_exchange,
        })
    }

    /// Derives the keys, and goes on with IKE_AUTH.
    fn complete(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        (received, message): (&ReceivedMessage<'_>, &Message),
        accepted: AcceptedInit<'_>,
        shared: &Secret,
    ) -> Phase {
        let spi_r = received.header.responder_spi;
        sa.spi_r = spi_r;
        let full_transcript = self.has_full_transcript(message);
        let nonces = Nonces {
            initiator: &self.nonce,
            responder: accepted.nonce_r,
        };
        let keys = IkeSaKeys::derive(accepted.suite, shared, nonces, sa.spi_i, spi_r);
        sa.nat = nat::detect(
            message.notifications(),
            sa.spi_i,
            spi_r,
            received.local,
            received.remote,
            sa.nat.forced,
        );
        if sa.nat.udp_encap() {
            nat::float(&mut sa.local, &mut sa.remote, &ctx.config.ports);
        }
        sa.fragmentation = announces_fragmentation(&sa.connection) && takes_fragments(message);
        sa.window.response_accepted();
        let init = InitTranscript {
            request: self.request,
            response: received.datagram.to_vec(),
            nonce_i: self.nonce,
            nonce_r: accepted.nonce_r.to_vec(),
            peer_hashes: peer_hashes(message),
            certreqs: certreqs(message),
            looks_up_certificates: looks_up_certificates(message),
            childless: message
                .notification(NotifyType::CHILDLESS_IKEV2_SUPPORTED)
                .is_some(),
            full_transcript,
        };
        let channel = ProtectedChannel::new(keys, Role::Initiator);
        let due = AuthDue {
            channel,
            init,
            requests: self.requests,
            deadline: ctx.now + PATIENCE,
        };
        sa.send_auth(ctx, due, None)
    }
}

/// Chooses the connection and the proposal for a request. `candidates` are the connections that the peer can mean. Those
/// that have the same proposals as an earlier one can be left out.
pub(crate) fn choose_init(
    key_exchange: &dyn KeyExchange,
    candidates: &[Arc<Connection>],
    theirs: &InitPayloads<'_>,
) -> Result<InitChoice, ErrorReply> {
    let sent = theirs.key_exchange.method;
    let (connection, chosen) = candidates
        .iter()
        .find_map(|connection| {
            let chosen = negotiate::choose_ike(&connection.proposals, theirs.proposals, sent, 0)?;
            Some((connection.clone(), chosen))
        })
        .ok_or_else(ErrorReply::no_proposal_chosen)?;
    let method = chosen.suite.key_exchanges.first();
    if sent != method.number() {
        return Err(ErrorReply::invalid_ke_payload(method));
    }
    key_exchange.check(method, &theirs.key_exchange.data)?;
    Ok(InitChoice { connection, chosen })
}

impl IkeSa {
    /// The half-open SA of a request that can be granted. A job answers its key exchange. The first of the payers pays for
    /// that, and the other for what follows. `proven`: the sender has shown that it receives at its address.
    pub(crate) fn receive_init(
        ctx: &mut Context<'_>,
        choice: InitChoice,
        (received, message): (&ReceivedMessage<'_>, &Message),
        theirs: &InitPayloads<'_>,
        payers: (Payer, Payer),
        proven: bool,
    ) -> Result<Self, QueueFull> {
        let connection = choice.connection.clone();
        let (local, remote) = (received.local, received.remote);
        let work = Work::Answer {
            by: KeyExchangeService(ctx.key_exchange.clone()),
            method: choice.chosen.suite.key_exchanges.first(),
            initiator: theirs.key_exchange.data.clone(),
        };
        let spis = (received.header.initiator_spi, ctx.ike_spi());
        let ends = (local, remote);
        let mut common = begin(ctx, connection, Role::Responder, spis, ends, payers.1);
        let (header, len) = (&message.header, received.datagram.len());
        common.trace(ctx, Direction::Received, header, &message.payloads, len);
        common.submit(ctx, payers.0, work, len)?;
        let state = InitReceived {
            held: HeldMessage::new(ctx.now, received, message),
            choice,
            proven,
            deadline: ctx.now + ctx.config.limits.half_open_timeout,
        };
        Ok(Self {
            common,
            phase: Phase::InitReceived(Box::new(state)),
        })
    }
}

impl InitReceived {
    /// The key exchange is answered, or it cannot be. If nothing is sent, the peer repeats its request, and is heard anew.
    pub(super) fn answer(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        answer: Result<KeyExchangeAnswer, DhError>,
        is_current: bool,
    ) -> Phase {
        let Self {
            held,
            choice,
            proven,
            deadline,
        } = self;
        let (received, message) = (held.received(), &held.message);
        let Some(theirs) = InitPayloads::find(message) else {
            return Phase::Closed;
        };
        let method = choice.chosen.suite.key_exchanges.first();
        let choice = match is_current {
            true => Ok(choice),
            false => {
                let known = ctx.connections.with_proposals(received.hosts());
                choose_init(&**ctx.key_exchange, &known, &theirs)
            }
        };
        let same = |choice: &InitChoice| choice.chosen.suite.key_exchanges.first() == method;
        let Some(choice) = choice.ok().filter(same) else {
            return Phase::Closed;
        };
        match answer {
            Ok(answer) => respond(
                sa,
                ctx,
                (&received, message),
                &theirs,
                choice,
                answer,
                deadline,
            ),
            Err(error) => {
                let error = ErrorReply::from(error).into_payload(ctx.counters);
                ctx.effects.push(Effect::RefuseInit {
                    request: Box::new(held),
                    error,
                    proven,
                });
                Phase::Closed
            }
        }
    }
}

/// Sends the response. The SA is half-open until IKE_AUTH.
fn respond(
    sa: &mut IkeSaCommon,
    ctx: &mut Context<'_>,
    (received, message): (&ReceivedMessage<'_>, &Message),
    theirs: &InitPayloads<'_>,
    choice: InitChoice,
    answer: KeyExchangeAnswer,
    deadline: Instant,
) -> Phase {
    let InitChoice { connection, chosen } = choice;
    let (spi_i, spi_r) = (sa.spi_i, sa.spi_r);
    let nonce = ctx.nonce();
    let nonces = Nonces {
        initiator: theirs.nonce,
        responder: &nonce,
    };
    let keys = IkeSaKeys::derive(chosen.suite, &answer.shared, nonces, spi_i, spi_r);
    let (forced, local, remote) = (connection.encap, received.local, received.remote);

    let mut payloads = vec![
        Payload::Sa(vec![chosen.proposal]),
        key_exchange::answer_payload(chosen.suite.key_exchanges.first(), answer.data),
        Payload::Nonce(nonce.clone()),
    ];
    payloads.extend(nat::notifies(spi_i, spi_r, local, remote, forced));
    // Hints for IKE_AUTH: the authorities that we trust, and the hashes for signatures.
    let certreqs = ctx.connections.certreqs(received.hosts(), &keys.suite());
    payloads.extend(certreqs.into_iter().map(Payload::CertReq));
    let hashes = Notify::signature_hashes(SIGNATURE_HASHES);
    payloads.push(Payload::Notify(hashes));
    let fragmentation = announces_fragmentation(&connection) && takes_fragments(message);
    payloads.extend(fragmentation_notify(fragmentation));
    let childless = connection.childless != Childless::Never;
    payloads.extend(childless_notify(childless));
    // The responder announces it without being asked. Otherwise nobody would notice who took the notify out of the request.
    let announced = ctx.config.full_transcript_auth;
    payloads.extend(full_transcript_notify(announced));
    let header = sa.header(ExchangeType::IKE_SA_INIT, true, 0);
    let response = Message { header, payloads };
    let Ok(datagram) = response.encode() else {
        ctx.counters.count(Refusal::NoProposalChosen);
        return Phase::Closed;
    };
    // The initiator did not know our SPI yet.
    sa.nat = nat::detect(message.notifications(), spi_i, 0, local, remote, forced);
    sa.connection = connection;
    sa.fragmentation = fragmentation;
    sa.trace(
        ctx,
        Direction::Sent,
        &response.header,
        &response.payloads,
        datagram.len(),
    );
    let mut kept = OutgoingMessage::whole(datagram.clone());
    ctx.transmit_message(local, remote, sa.connection.dscp, &mut kept);
    sa.last_sent = ctx.now;
    sa.window.response_sent(received.datagram, kept);
    let init = InitTranscript {
        request: received.datagram.to_vec(),
        response: datagram,
        nonce_i: theirs.nonce.to_vec(),
        nonce_r: nonce,
        peer_hashes: peer_hashes(message),
        certreqs: Vec::new(),
        looks_up_certificates: false,
        childless,
        full_transcript: announced && signs_full_transcript(message),
    };
    let channel = ProtectedChannel::new(keys, Role::Responder);
    Phase::InitResponded(Box::new(InitResponded::new(channel, init, deadline)))
}
