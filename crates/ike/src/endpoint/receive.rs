//! From a datagram to its IKE SA, and what is answered without an SA (RFC 7296 §2.5, §2.6 and §2.21).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::iana::Group;

use super::Endpoint;
use super::answers::{Sender, SenderKind};
use super::half_open::HalfOpenPlace;
use crate::config::{AddressMatch, Connection};
use crate::crash_token;
use crate::exchange::{InitPayloads, OFFERS_SHOWN, RefusalDetails, choose_init, init_refusal};
use crate::id::IkeSaId;
use crate::jobs::Payer;
use crate::refusal::Refusal;
use crate::sa::IkeSa;
use crate::suite::Role;
use crate::transport::{ReceivedMessage, ike_message};
use crate::wire::{
    DecodeError, ExchangeType, HEADER_LEN, Header, MAJOR_VERSION, Message, Notify, NotifyType,
    Payload, PayloadType, Problem,
};

const FLAG_RESPONSE: u8 = 0x20;
/// Place of the first payload's type in the header (RFC 7296 §3.1).
const NEXT_PAYLOAD: usize = 16;
/// The message begins with an Encrypted payload, or a fragment of one.
fn is_protected(datagram: &[u8]) -> bool {
    let first = datagram.get(NEXT_PAYLOAD).map(|first| PayloadType(*first));
    matches!(first, Some(PayloadType::SK | PayloadType::SKF))
}

/// The facts that are known about the sender of an IKE_SA_INIT request.
#[derive(Clone, Copy)]
struct Admission {
    /// The sender's address, if it has shown a cookie.
    proven: Option<IpAddr>,
    /// The SA that makes room if the request makes a half-open SA.
    instead: Option<IkeSaId>,
}

impl Endpoint {
    pub(super) fn receive(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) {
        self.counters.messages_received += 1;
        let nat_t = local.port() == self.config.ports.nat_t;
        let datagram = match ike_message(payload, nat_t) {
            Ok(Some(datagram)) => datagram,
            Ok(None) => return,
            Err(refusal) => return self.counters.count(refusal),
        };
        let header = match Header::decode(datagram) {
            Ok(header) => header,
            Err(error) => return self.reject_header(now, local, remote, datagram, &error),
        };
        let received = ReceivedMessage {
            header,
            datagram,
            len: datagram.len(),
            local,
            remote,
        };
        match header.exchange {
            ExchangeType::IKE_SA_INIT if !header.response => self.receive_init(now, &received),
            ExchangeType::INFORMATIONAL if !header.response && !is_protected(datagram) => {
                self.receive_hint(now, &received);
            }
            ExchangeType::IKE_SA_INIT
            | ExchangeType::IKE_AUTH
            | ExchangeType::CREATE_CHILD_SA
            | ExchangeType::INFORMATIONAL => self.receive_for_sa(now, &received),
            _ => self.counters.count(Refusal::ExchangeType),
        }
    }

    fn reject_header(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        datagram: &[u8],
        error: &DecodeError,
    ) {
        tracing::trace!(%error, %remote, "no IKE header");
        let &Problem::MajorVersion(version) = &error.problem else {
            return self.counters.count(Refusal::Malformed);
        };
        self.counters.count(Refusal::Version);
        let Some((head, _)) = datagram.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        // Lower versions get no answer: RFC 7296 §2.5 asks for one to higher versions only.
        if version <= MAJOR_VERSION || head[19] & FLAG_RESPONSE != 0 {
            return;
        }
        let (spis, rest) = head.split_at(16);
        let (initiator_spi, responder_spi) = spis.split_at(8);
        let spi = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |spi, byte| spi << 8 | u64::from(*byte))
        };
        let header = Header {
            initiator_spi: spi(initiator_spi),
            responder_spi: spi(responder_spi),
            exchange: ExchangeType(rest[2]),
            from_initiator: true,
            response: false,
            message_id: rest[4..8]
                .iter()
                .fold(0, |id, byte| id << 8 | u32::from(*byte)),
        };
        let received = ReceivedMessage {
            header,
            datagram,
            len: datagram.len(),
            local,
            remote,
        };
        self.error_notify(
            now,
            &received,
            NotifyType::INVALID_MAJOR_VERSION,
            vec![MAJOR_VERSION],
        );
    }

    /// Answers a request with an unprotected notify, within the limits (RFC 7296 §2.21).
    fn error_notify(
        &mut self,
        now: Instant,
        received: &ReceivedMessage<'_>,
        kind: NotifyType,
        data: Vec<u8>,
    ) {
        let error = Payload::Notify(Notify::new(kind, data));
        self.error(now, received, vec![error], false);
    }

    /// The sender of an unauthenticated message, by its source address.
    fn sender_at(&self, source: IpAddr) -> Sender {
        let of_peer = self.table.half_open.is_configured(source) || self.table.is_peers(source);
        let kind = match of_peer {
            true => SenderKind::AtPeersAddress,
            false => SenderKind::Stranger,
        };
        Sender { source, kind }
    }

    pub(super) fn error(
        &mut self,
        now: Instant,
        received: &ReceivedMessage<'_>,
        errors: Vec<Payload>,
        proven: bool,
    ) {
        let per_second = self.config.limits.error_notifies_per_second;
        let mut sender = self.sender_at(received.remote.ip());
        if proven {
            sender.kind = SenderKind::Proven;
        }
        if self.answers.take(now, sender, per_second) {
            self.unprotected(now, received, errors);
        } else {
            self.counters.count(Refusal::RateLimited);
        }
    }

    fn unprotected(
        &mut self,
        now: Instant,
        received: &ReceivedMessage<'_>,
        payloads: Vec<Payload>,
    ) {
        let header = Header {
            from_initiator: !received.header.from_initiator,
            response: true,
            ..received.header
        };
        let message = Message { header, payloads };
        if let Ok(datagram) = message.encode() {
            let (local, remote) = (received.local, received.remote);
            self.in_context(now, |ctx| ctx.transmit(local, remote, &datagram));
        }
    }

    /// A message of an IKE SA that does not exist. Only a protected request gets a response (RFC 7296 §1.5, §2.21.4).
    fn unknown_ike_sa(&mut self, now: Instant, received: &ReceivedMessage<'_>, spis: [u64; 2]) {
        self.counters.count(Refusal::UnknownSpi);
        let header = &received.header;
        if header.response || !is_protected(received.datagram) {
            return;
        }
        let unknown = Notify::new(NotifyType::INVALID_IKE_SPI, Vec::new());
        let mut errors = vec![Payload::Notify(unknown)];
        // A token for an SA that lives would let anybody end it (RFC 6290 §9.2).
        let lives = spis.iter().any(|spi| self.table.by_own_spi(*spi).is_some());
        if let Some(secret) = self.config.tokens_from().filter(|_| !lives) {
            let (spi_i, spi_r) = (header.initiator_spi, header.responder_spi);
            errors.push(crash_token::payload(secret, spi_i, spi_r));
        }
        self.error(now, received, errors, false);
    }

    /// An INFORMATIONAL message outside an IKE SA. INVALID_SPI is a reason to ask its sender whether it is alive. The
    /// message gets no response (RFC 7296 §1.5).
    fn receive_hint(&mut self, now: Instant, received: &ReceivedMessage<'_>) {
        self.counters.count(Refusal::UnauthenticatedNotify);
        // A stranger's hint is about no SA, and takes nothing from a peer's.
        let source = received.remote.ip();
        if !self.table.is_peers(source) {
            return;
        }
        if !self.answers.hear_hint(now, source) {
            return self.counters.count(Refusal::RateLimited);
        }
        let message = Message::decode(received.datagram).ok();
        let invalid = message
            .as_ref()
            .and_then(|message| message.notification(NotifyType::INVALID_SPI));
        let spi = invalid.and_then(|notify| <[u8; 4]>::try_from(notify.data.as_slice()).ok());
        let Some(spi) = spi.map(u32::from_be_bytes) else {
            return;
        };
        for id in self.table.of_remote(source) {
            self.with(now, id, |sa, ctx| sa.doubt_child(ctx, spi));
        }
    }

    /// ESP or AH came in with an SPI that no SA has. The sender may have an SA that we have lost, and is told so
    /// (RFC 7296 §1.5). It must be at an address that a connection is for.
    pub fn note_unknown_spi(&mut self, now: Instant, remote: SocketAddr, spi: u32) {
        let Some(known) = self.connections.first_at(remote.ip()) else {
            return;
        };
        let own = AddressMatch::hosts_of(&known.local_addrs)
            .find(|own| own.is_ipv4() == remote.is_ipv4());
        let Some(source) = self.host.routes.source(remote.ip(), own) else {
            return;
        };
        // ESP without UDP has no ports.
        let ports = match remote.port() {
            0 => (self.config.ports.ike, known.remote_port),
            port => (self.config.ports.nat_t, port),
        };
        let local = SocketAddr::new(source, ports.0);
        let remote = SocketAddr::new(remote.ip(), ports.1);
        let per_second = self.config.limits.error_notifies_per_second;
        let sender = self.sender_at(remote.ip());
        if !self.answers.take_hint(now, sender, per_second) {
            return;
        }
        let notify = Notify::new(NotifyType::INVALID_SPI, spi.to_be_bytes().to_vec());
        let message = Message {
            header: Header {
                initiator_spi: 0,
                responder_spi: 0,
                exchange: ExchangeType::INFORMATIONAL,
                from_initiator: true,
                response: false,
                message_id: 0,
            },
            payloads: vec![Payload::Notify(notify)],
        };
        if let Ok(datagram) = message.encode() {
            self.in_context(now, |ctx| ctx.transmit(local, remote, &datagram));
        }
    }

    fn receive_for_sa(&mut self, now: Instant, received: &ReceivedMessage<'_>) {
        let header = &received.header;
        let (own, peers, role) = if header.from_initiator {
            (header.responder_spi, header.initiator_spi, Role::Responder)
        } else {
            (header.initiator_spi, header.responder_spi, Role::Initiator)
        };
        let found = self.table.by_own_spi(own).filter(|sa| {
            let expected = if role.is_initiator() {
                sa.common.spi_r
            } else {
                sa.common.spi_i
            };
            // The response to IKE_SA_INIT brings the responder's SPI. With an error it can be zero.
            sa.common.role == role
                && (expected == peers
                    || (expected == 0 && header.exchange == ExchangeType::IKE_SA_INIT))
        });
        let Some(id) = found.map(|sa| sa.common.id) else {
            // The sender has the role that is ours in the SA with this SPI: it is our own message.
            if self
                .table
                .by_own_spi(peers)
                .is_some_and(|sa| sa.common.role != role)
            {
                return self.counters.count(Refusal::Reflected);
            }
            return self.unknown_ike_sa(now, received, [own, peers]);
        };
        self.with(now, id, |sa, ctx| sa.handle(ctx, received));
    }

    fn receive_init(&mut self, now: Instant, received: &ReceivedMessage<'_>) {
        let header = &received.header;
        let fresh = header.responder_spi == 0 && header.from_initiator && header.message_id == 0;
        if !fresh || header.initiator_spi == 0 {
            return self.counters.count(Refusal::Malformed);
        }
        if self
            .table
            .by_own_spi(header.initiator_spi)
            .is_some_and(|sa| sa.common.role.is_initiator())
        {
            return self.counters.count(Refusal::Reflected);
        }
        if let Some(sa) = self.table.by_init(received.remote, header.initiator_spi) {
            let id = sa.common.id;
            self.with(now, id, |sa, ctx| sa.handle_repeated_init(ctx, received));
            return;
        }
        let message = match Message::decode(received.datagram) {
            Ok(message) => message,
            Err(error) => {
                let (kind, data) = error.notification();
                let refusal = match kind {
                    NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD => Refusal::UnsupportedCriticalPayload,
                    _ => Refusal::InvalidSyntax,
                };
                self.counters.count(refusal);
                self.in_context(now, |ctx| {
                    ctx.report_refusal(received, None, refusal, |_| RefusalDetails {
                        why: error.to_string(),
                        ..RefusalDetails::default()
                    });
                });
                return self.error_notify(now, received, kind, data);
            }
        };
        let Some(theirs) = InitPayloads::find(&message) else {
            self.counters.count(Refusal::InvalidSyntax);
            return self.error_notify(now, received, NotifyType::INVALID_SYNTAX, Vec::new());
        };
        let Some(admission) = self.admit_init(now, received, &message, &theirs) else {
            return;
        };
        let candidates = self.connections.with_proposals(received.hosts());
        let is_known = self.table.half_open.is_configured(received.remote.ip());
        // The peer repeats its message, and a name may have its address by then.
        if !is_known && self.looks_for_stranger(now) && candidates.is_empty() {
            return self.counters.count(Refusal::NamesUnknown);
        }
        if candidates.is_empty() {
            self.counters.count(Refusal::NoConnection);
            self.in_context(now, |ctx| {
                let why = "no connection is for these addresses";
                let proven = admission.proven;
                ctx.report_refusal(received, proven, Refusal::NoConnection, |ctx| {
                    init_refusal(&message, why, &ctx.config.connections, false)
                });
            });
            let error = Notify::new(NotifyType::NO_PROPOSAL_CHOSEN, Vec::new());
            return self.error(
                now,
                received,
                vec![Payload::Notify(error)],
                admission.proven.is_some(),
            );
        }
        self.begin(now, received, admission, &candidates, &message, &theirs);
    }

    /// Says whether there is room for another half-open SA. Under load, and when no error notify could be sent, the
    /// sender must show a cookie (RFC 7296 §2.6). The message with the cookie is shorter than the request.
    fn admit_init(
        &mut self,
        now: Instant,
        received: &ReceivedMessage<'_>,
        message: &Message,
        theirs: &InitPayloads<'_>,
    ) -> Option<Admission> {
        let limits = self.config.limits;
        let source = received.remote.ip();
        if !self.table.has_room(limits.ike_sas_max) {
            self.counters.count(Refusal::IkeSaLimit);
            return None;
        }
        let instead =
            match self
                .table
                .half_open
                .place(now, source, received.datagram.len(), &limits)
            {
                HalfOpenPlace::Free => None,
                HalfOpenPlace::Instead(other) => Some(other),
                HalfOpenPlace::None(refusal) => {
                    self.counters.count(refusal);
                    return None;
                }
            };
        let errors = limits.error_notifies_per_second;
        let known = self.table.half_open.is_configured(source);
        let sender = self.sender_at(source);
        let payer = Payer::unproven(source, known);
        let method = Group::from_number(theirs.key_exchange.method);
        if self.table.half_open.takes_unproven(source, &limits)
            && self.answers.has_left(now, sender, errors)
            && !self.jobs.wants_proof(now, method, payer)
        {
            let proven = None;
            return Some(Admission { proven, instead });
        }
        let spi = received.header.initiator_spi;
        let cookie = message
            .notification(NotifyType::COOKIE)
            .map(|notify| notify.data.as_slice());
        let random = &mut *self.host.random;
        let valid = cookie.map(|cookie| {
            self.cookies
                .verify(now, random, cookie, theirs.nonce, source, spi)
        });
        if valid == Some(true) {
            if !self.table.half_open.take_turn(now, source, &limits) {
                self.counters.count(Refusal::RefusedPerSource);
                return None;
            }
            let proven = Some(source);
            return Some(Admission { proven, instead });
        }
        self.counters.count(if valid.is_none() {
            Refusal::CookieRequired
        } else {
            Refusal::CookieInvalid
        });
        let cookie = self
            .cookies
            .make(now, &mut *self.host.random, theirs.nonce, source, spi);
        self.unprotected(
            now,
            received,
            vec![Payload::Notify(Notify::new(NotifyType::COOKIE, cookie))],
        );
        None
    }

    /// Begins an IKE SA for a request that can be granted.
    fn begin(
        &mut self,
        now: Instant,
        received: &ReceivedMessage<'_>,
        admission: Admission,
        candidates: &[Arc<Connection>],
        message: &Message,
        theirs: &InitPayloads<'_>,
    ) {
        let choice = match choose_init(&*self.host.key_exchange, candidates, theirs) {
            Ok(choice) => choice,
            Err(reply) => {
                let refusal = reply.refusal;
                let payload = reply.into_payload(&mut self.counters);
                if refusal == Refusal::NoProposalChosen {
                    self.in_context(now, |ctx| {
                        let why = "its proposals and ours have nothing in common";
                        ctx.report_refusal(received, admission.proven, refusal, |ctx| {
                            let known = ctx.connections.first(received.hosts(), OFFERS_SHOWN);
                            init_refusal(message, why, &known, true)
                        });
                    });
                }
                let proven = admission.proven.is_some();
                return self.error(now, received, vec![payload], proven);
            }
        };
        let source = received.remote.ip();
        let network = Payer::unproven(source, self.table.half_open.is_configured(source));
        // Whoever gets through IKE_SA_INIT receives at its address.
        let proven = admission.proven.is_some();
        let first = match proven {
            true => network,
            false => Payer::nobody(),
        };
        let begun = self.in_context(now, |ctx| {
            let payers = (first, network);
            IkeSa::receive_init(ctx, choice, (received, message), theirs, payers, proven)
        });
        // The peer repeats its request.
        let Ok(sa) = begun else { return };
        if let Some(other) = admission.instead {
            self.counters.half_open_dropped += 1;
            self.with(now, other, |sa, _| sa.forget());
        }
        self.insert(now, Box::new(sa), Some(received.remote));
    }
}
