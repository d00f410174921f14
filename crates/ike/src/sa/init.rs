//! IKE_SA_INIT (RFC 7296 sections 1.2, 2.6, 2.7, 2.21.1 and 2.23).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::iana::Group;

use super::create_child::{Refuse, ke_payload, wanted_group};
use super::{Channel, Context, IkeSa, Phase, Received, Wanted, notify};
use crate::auth::SIGNATURE_HASHES;
use crate::config::{Connection, RemoteMethod};
use crate::event::{Direction, DownReason, IkeSaId};
use crate::host::Random;
use crate::nat;
use crate::nat::Nat;
use crate::negotiate;
use crate::refusal::Refusal;
use crate::suite::{EphemeralKey, Keys, Nonces, Role, Secret, check_public};
use crate::window::{Incoming, Window};
use crate::wire::{
    ExchangeType, HashAlgorithm, Header, KeyExchange, Message, Notify, NotifyType, Payload,
    Proposal,
};

/// How often IKE_SA_INIT is begun again for a cookie or another group.
const RESTARTS_MAX: u8 = 6;
/// How often the answer to IKE_SA_INIT is repeated: nobody has proved the address that it goes to.
const INIT_REPEATS_MAX: u32 = 8;
/// Section 2.6.
const COOKIE_LEN_MAX: usize = 64;

/// How far the peer has come with an IKE SA that we initiate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connecting {
    /// Not begun.
    Waiting,
    Sent,
    CookieSent,
    /// By an error that nobody has authenticated.
    Refused,
    /// IKE_SA_INIT is answered, IKE_AUTH is not.
    Answered,
    /// A request was sent again.
    Silent,
}

/// Initiator: the request is out, or waits for its turn.
#[derive(Debug)]
pub(crate) struct InitSent {
    key_pair: Box<dyn EphemeralKey>,
    nonce: Vec<u8>,
    offer: Vec<Proposal>,
    request: Vec<u8>,
    cookie: Option<Vec<u8>>,
    restarts: u8,
    /// An unauthenticated error notify. Anybody can send one, so a real answer is still waited for until the next
    /// retransmission is due (section 2.21.1).
    pub(super) refused: Option<DownReason>,
    pub(crate) wanted: Vec<Wanted>,
}

/// What both ends keep of IKE_SA_INIT until IKE_AUTH is done.
#[derive(Debug)]
pub(crate) struct InitDone {
    pub(super) request: Vec<u8>,
    pub(super) response: Vec<u8>,
    pub(super) nonce_i: Vec<u8>,
    pub(super) nonce_r: Vec<u8>,
    /// The peer's SIGNATURE_HASH_ALGORITHMS.
    pub(super) peer_hashes: Vec<HashAlgorithm>,
}

/// Responder: half-open.
#[derive(Debug)]
pub(crate) struct InitAnswered {
    pub(super) channel: Channel,
    pub(super) done: InitDone,
    pub(super) deadline: Instant,
}

/// The payloads of an IKE_SA_INIT message.
pub(crate) struct InitRequest<'a> {
    proposals: &'a [Proposal],
    ke: &'a KeyExchange,
    pub(crate) nonce: &'a [u8],
}

impl<'a> InitRequest<'a> {
    pub(crate) fn find(message: &'a Message) -> Option<Self> {
        let (mut proposals, mut ke, mut nonce) = (None, None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Sa(found) => proposals = Some(found.as_slice()),
                Payload::Ke(found) => ke = Some(found),
                Payload::Nonce(found) => nonce = Some(found.as_slice()),
                _ => {}
            }
        }
        Some(Self {
            proposals: proposals?,
            ke: ke?,
            nonce: nonce?,
        })
    }
}

fn peer_hashes(message: &Message) -> Vec<HashAlgorithm> {
    message
        .notification(NotifyType::SIGNATURE_HASH_ALGORITHMS)
        .map(Notify::as_signature_hashes)
        .unwrap_or_default()
}

impl IkeSa {
    /// An IKE SA that we initiate. Nothing is sent before [`IkeSa::set_out`].
    pub(crate) fn connect(
        ctx: &mut Context<'_>,
        connection: Arc<Connection>,
        local: SocketAddr,
        remote: SocketAddr,
        wanted: Vec<Wanted>,
    ) -> Result<Self, DownReason> {
        let group = negotiate::first_group(&connection.proposals)
            .ok_or_else(|| DownReason::Configuration("no key exchange method".to_owned()))?;
        let key_pair = ctx
            .random
            .ephemeral_key(group)
            .map_err(|_| DownReason::Resources("no key pair could be made"))?;
        let offer = negotiate::ike_offer(&connection.proposals, &[]);
        let forced = connection.encap;
        let state = InitSent {
            key_pair,
            nonce: ctx.nonce(),
            offer,
            request: Vec::new(),
            cookie: None,
            restarts: 0,
            refused: None,
            wanted,
        };
        Ok(Self {
            id: IkeSaId(ctx.next_id()),
            connection,
            role: Role::Initiator,
            spi_i: ctx.ike_spi(),
            spi_r: 0,
            local,
            remote,
            hosts: (local.ip(), remote.ip()),
            nat: Nat {
                forced,
                ..Nat::default()
            },
            window: Window::default(),
            phase: Phase::InitSent(Box::new(state)),
            parked: false,
            last_sent: ctx.now,
            predecessor: None,
        })
    }

    /// An IKE_SA_INIT request from where that of this SA came from, with the same SPI.
    pub(crate) fn handle_init_again(&mut self, ctx: &mut Context<'_>, received: &Received<'_>) {
        match self.window.incoming(0, received.datagram) {
            Incoming::Again => self.repeat(ctx, received, INIT_REPEATS_MAX),
            _ => ctx.counters.refuse(Refusal::MessageIdReuse),
        }
    }

    pub(crate) fn set_out(&mut self, ctx: &mut Context<'_>) {
        if self.connecting() != Some(Connecting::Waiting) {
            return;
        }
        if let Phase::InitSent(state) = std::mem::replace(&mut self.phase, Phase::Closed) {
            self.send_init(ctx, state);
        }
    }

    /// None: not an SA of ours that is on its way up.
    pub(crate) fn connecting(&self) -> Option<Connecting> {
        let silent = self.window.retransmissions() > 0;
        match &self.phase {
            Phase::InitSent(_) if !self.window.is_busy() => Some(Connecting::Waiting),
            Phase::InitSent(_) | Phase::AuthSent(_) if silent => Some(Connecting::Silent),
            Phase::InitSent(state) if state.refused.is_some() => Some(Connecting::Refused),
            Phase::InitSent(state) if state.cookie.is_some() => Some(Connecting::CookieSent),
            Phase::InitSent(_) => Some(Connecting::Sent),
            Phase::AuthSent(_) => Some(Connecting::Answered),
            _ => None,
        }
    }

    fn send_init(&mut self, ctx: &mut Context<'_>, mut state: Box<InitSent>) {
        state.refused = None;
        let mut payloads = Vec::new();
        if let Some(cookie) = &state.cookie {
            // First in the message, the rest unchanged (section 2.6).
            payloads.push(notify(NotifyType::COOKIE, cookie.clone()));
        }
        payloads.push(Payload::Sa(state.offer.clone()));
        payloads.push(ke_payload(&*state.key_pair));
        payloads.push(Payload::Nonce(state.nonce.clone()));
        payloads.extend(nat::notifies(
            self.spi_i,
            0,
            self.local,
            self.remote,
            self.nat.forced,
        ));
        payloads.push(Payload::Notify(Notify::signature_hashes(SIGNATURE_HASHES)));
        let header = self.header(ExchangeType::IKE_SA_INIT, false, 0);
        let message = Message { header, payloads };
        match message.encode() {
            Ok(datagram) => {
                self.trace(
                    ctx,
                    Direction::Sent,
                    &header,
                    &message.payloads,
                    datagram.len(),
                );
                self.transmit(ctx, &datagram);
                state.request.clone_from(&datagram);
                self.phase = Phase::InitSent(state);
                let timing = &self.connection.retransmission;
                self.window.restarted(ctx.now, datagram, timing, ctx.random);
            }
            Err(error) => {
                self.phase = Phase::InitSent(state);
                self.close(
                    ctx,
                    DownReason::Configuration(format!("cannot propose: {error}")),
                );
            }
        }
    }

    pub(super) fn handle_init_response(&mut self, ctx: &mut Context<'_>, received: &Received<'_>) {
        let header = &received.header;
        if header.exchange != ExchangeType::IKE_SA_INIT
            || !header.response
            || header.message_id != 0
        {
            return ctx.counters.refuse(Refusal::UnexpectedExchange);
        }
        let message = match Message::decode(received.datagram) {
            Ok(message) => message,
            Err(error) => {
                tracing::trace!(%error, "malformed IKE_SA_INIT response");
                return self.init_unusable(ctx, Refusal::Malformed, error.to_string());
            }
        };
        self.trace(
            ctx,
            Direction::Received,
            header,
            &message.payloads,
            received.datagram.len(),
        );
        let error = message
            .notifications()
            .find(|n| n.kind.is_error() || n.kind == NotifyType::COOKIE);
        let unusable = match (InitRequest::find(&message), error) {
            (None, Some(notify)) => return self.init_refused(ctx, notify),
            (Some(theirs), _) if header.responder_spi != 0 => {
                match self.init_answered(ctx, received, &message, &theirs) {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            (Some(_), _) => "the responder's SPI is zero".to_owned(),
            (None, None) => "SA, KE or nonce is missing".to_owned(),
        };
        self.init_unusable(ctx, Refusal::UnauthenticatedNotify, unusable);
    }

    /// An answer that is forged or wrong: the right one may still come.
    fn init_unusable(&mut self, ctx: &mut Context<'_>, refusal: Refusal, why: String) {
        ctx.counters.refuse(refusal);
        if let Phase::InitSent(state) = &mut self.phase {
            state.refused = Some(DownReason::UnusableAnswer(why));
        }
    }

    /// A cookie or an error instead of an answer; neither is authenticated.
    fn init_refused(&mut self, ctx: &mut Context<'_>, notify: &Notify) {
        let Phase::InitSent(mut state) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return;
        };
        let offers = |group: &Group| negotiate::offers_group(&self.connection.proposals, *group);
        let group = wanted_group(notify).filter(offers);
        match (notify.kind, group) {
            (NotifyType::COOKIE, _)
                if state.restarts < RESTARTS_MAX && notify.data.len() <= COOKIE_LEN_MAX =>
            {
                state.restarts += 1;
                state.cookie = Some(notify.data.clone());
                return self.send_init(ctx, state);
            }
            (NotifyType::INVALID_KE_PAYLOAD, Some(group))
                if state.restarts < RESTARTS_MAX && group != state.key_pair.group() =>
            {
                if let Ok(key_pair) = ctx.random.ephemeral_key(group) {
                    state.restarts += 1;
                    state.key_pair = key_pair;
                    return self.send_init(ctx, state);
                }
            }
            (kind, _) => {
                let unusable = |why: &str| DownReason::UnusableAnswer(why.to_owned());
                let reason = match kind {
                    NotifyType::NO_PROPOSAL_CHOSEN => DownReason::NoProposalChosen,
                    NotifyType::COOKIE => unusable("it asks for a cookie again and again"),
                    NotifyType::INVALID_KE_PAYLOAD => {
                        unusable("it wants a key exchange method that we do not offer")
                    }
                    other => DownReason::PeerRefused(other.to_string()),
                };
                state.refused = Some(reason);
            }
        }
        ctx.counters.refuse(Refusal::UnauthenticatedNotify);
        self.phase = Phase::InitSent(state);
    }

    fn init_answered(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
        theirs: &InitRequest<'_>,
    ) -> Result<(), String> {
        let Phase::InitSent(state) = &self.phase else {
            return Ok(());
        };
        let spi_r = received.header.responder_spi;
        let group = state.key_pair.group();
        let chosen = negotiate::accept_ike(&state.offer, theirs.proposals)
            .ok_or("its choice is not in our offer")?;
        if chosen.suite.group != group || theirs.ke.group != group.number() {
            return Err(format!(
                "it chooses {} and sends a key for method {}, we sent one for {group}",
                chosen.suite.group, theirs.ke.group
            ));
        }
        let shared = state.key_pair.agree(&theirs.ke.public);
        let shared = shared.map_err(|_| "its public key is not valid")?;
        let Phase::InitSent(state) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return Ok(());
        };
        self.spi_r = spi_r;
        let nonces = Nonces {
            initiator: &state.nonce,
            responder: theirs.nonce,
        };
        let keys = Keys::derive(chosen.suite, &shared, nonces, self.spi_i, spi_r);
        self.nat = nat::detect(
            message.notifications(),
            self.spi_i,
            spi_r,
            received.local,
            received.remote,
            self.connection.encap,
        );
        if self.nat.udp_encap() {
            nat::float(&mut self.local, &mut self.remote, &ctx.config.ports);
        }
        self.window.completed();
        let done = InitDone {
            request: state.request,
            response: received.datagram.to_vec(),
            nonce_i: state.nonce,
            nonce_r: theirs.nonce.to_vec(),
            peer_hashes: peer_hashes(message),
        };
        self.send_auth(ctx, Channel::new(keys, Role::Initiator), done, state.wanted);
        Ok(())
    }
}

/// What the responder tells about the authentication to come.
fn wishes(connection: &Connection) -> impl Iterator<Item = Payload> {
    let certreq = match &connection.remote.method {
        RemoteMethod::Certificate { authorities, .. } => {
            Some(Payload::CertReq(authorities.certreq()))
        }
        RemoteMethod::Psk => None,
    };
    let hashes = Payload::Notify(Notify::signature_hashes(SIGNATURE_HASHES));
    certreq.into_iter().chain([hashes])
}

fn answer_key_exchange(
    random: &mut dyn Random,
    group: Group,
    public: &[u8],
) -> Result<(Box<dyn EphemeralKey>, Secret), Refuse> {
    let invalid = |_| Refuse::syntax();
    // A forged request that leaves no half-open SA behind must not cost an exponentiation.
    check_public(group, public).map_err(invalid)?;
    let key_pair = random
        .ephemeral_key(group)
        .map_err(|_| Refuse::temporary())?;
    let shared = key_pair.agree(public).map_err(invalid)?;
    Ok((key_pair, shared))
}

/// Answers an IKE_SA_INIT request for which there is a connection, and makes the half-open SA.
pub(crate) fn respond_init(
    ctx: &mut Context<'_>,
    candidates: &[Arc<Connection>],
    received: &Received<'_>,
    message: &Message,
    theirs: &InitRequest<'_>,
) -> Result<IkeSa, (Refusal, Payload)> {
    let refuse = |refuse: Refuse| (refuse.refusal, notify(refuse.kind, refuse.data));
    let none = || {
        refuse(Refuse::new(
            Refusal::NoProposalChosen,
            NotifyType::NO_PROPOSAL_CHOSEN,
        ))
    };
    let (connection, chosen) = candidates
        .iter()
        .find_map(|connection| {
            let chosen =
                negotiate::choose_ike(&connection.proposals, theirs.proposals, theirs.ke.group, 0)?;
            Some((connection.clone(), chosen))
        })
        .ok_or_else(none)?;
    let group = chosen.suite.group;
    if theirs.ke.group != group.number() {
        return Err(refuse(Refuse::group(group)));
    }
    let (key_pair, shared) =
        answer_key_exchange(ctx.random, group, &theirs.ke.public).map_err(refuse)?;
    let spi_i = received.header.initiator_spi;
    let spi_r = ctx.ike_spi();
    let nonce = ctx.nonce();
    let nonces = Nonces {
        initiator: theirs.nonce,
        responder: &nonce,
    };
    let keys = Keys::derive(chosen.suite, &shared, nonces, spi_i, spi_r);
    let forced = connection.encap;
    let (local, remote) = (received.local, received.remote);

    let mut payloads = vec![
        Payload::Sa(vec![chosen.answer]),
        ke_payload(&*key_pair),
        Payload::Nonce(nonce.clone()),
    ];
    payloads.extend(nat::notifies(spi_i, spi_r, local, remote, forced));
    payloads.extend(wishes(&connection));
    let header = Header {
        responder_spi: spi_r,
        from_initiator: false,
        response: true,
        ..received.header
    };
    let answer = Message { header, payloads };
    let datagram = answer.encode().map_err(|_| none())?;
    let mut sa = IkeSa {
        id: IkeSaId(ctx.next_id()),
        connection,
        role: Role::Responder,
        spi_i,
        spi_r,
        local,
        remote,
        hosts: (local.ip(), remote.ip()),
        // The initiator did not know our SPI yet.
        nat: nat::detect(message.notifications(), spi_i, 0, local, remote, forced),
        window: Window::default(),
        phase: Phase::Closed,
        parked: false,
        last_sent: ctx.now,
        predecessor: None,
    };
    sa.trace(
        ctx,
        Direction::Received,
        &received.header,
        &message.payloads,
        received.datagram.len(),
    );
    sa.trace(
        ctx,
        Direction::Sent,
        &header,
        &answer.payloads,
        datagram.len(),
    );
    ctx.transmit(local, remote, &datagram);
    sa.window.answered(received.datagram, datagram.clone());
    sa.phase = Phase::InitAnswered(Box::new(InitAnswered {
        channel: Channel::new(keys, Role::Responder),
        done: InitDone {
            request: received.datagram.to_vec(),
            response: datagram,
            nonce_i: theirs.nonce.to_vec(),
            nonce_r: nonce,
            peer_hashes: peer_hashes(message),
        },
        deadline: ctx.now + ctx.config.limits.half_open_timeout,
    }));
    Ok(sa)
}
