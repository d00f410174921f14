//! One IKE SA: its phases, and what every exchange needs.
//!
//! ```text
//! initiator  InitSent ──────> AuthSent ──> Established ──> Closing ──> Closed
//! responder  (no state) ─> InitAnswered ─> Established ──> Rekeyed ──> Gone ──> Closed
//! ```
//! Each file beside this one is one exchange.

mod auth;
mod child;
mod choice;
mod create_child;
mod credentials;
mod established;
mod informational;
mod init;
mod refused;
mod rekey_child;
mod rekey_ike;
mod selectors;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use child::{ChildSa, ChildState, Wanted};
pub(crate) use choice::{Caller, candidates};
pub(crate) use established::{Established, Queued, Task};
pub(crate) use informational::delete_ike;
pub(crate) use init::{Connecting, InitRequest, respond_init};
pub(crate) use refused::{Told, init_refused};
pub(crate) use rekey_ike::Leave;

use crate::claims::Claims;
use crate::config::{Config, Connection};
use crate::event::{
    ChildSaId, Direction, DownReason, Event, IkeSaId, KeyLog, MessageTrace, Transmit,
};
use crate::host::{EspSpiAllocator, Random};
use crate::nat::Nat;
use crate::peer::PeerKey;
use crate::refusal::Refusal;
use crate::report_limit::ReportLimit;
use crate::status::Counters;
use crate::suite::{Keys, OpenError, Opener, Role, Sealer};
use crate::window::{Expiry, Incoming, Window};
use crate::wire::{DecodeError, ExchangeType, Header, Message, Notify, NotifyType, Payload};

/// How long the last reply is kept for a request that comes again after the SA is gone.
const GONE_TIME: Duration = Duration::from_secs(30);
/// How long a rekeyed SA waits for the delete that the peer owes.
const DELETE_TIME: Duration = Duration::from_secs(30);

/// What an IKE SA may use of its endpoint.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) wall_clock: SystemTime,
    pub(crate) config: &'a Config,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) spis: &'a mut dyn EspSpiAllocator,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) transmits: &'a mut VecDeque<Transmit>,
    pub(crate) counters: &'a mut Counters,
    pub(crate) last_id: &'a mut u64,
    pub(crate) by_spi: &'a HashMap<u64, IkeSaId>,
    /// Established IKE SAs by peer.
    pub(crate) peers: &'a HashMap<PeerKey, Vec<IkeSaId>>,
    pub(crate) report_limit: &'a mut ReportLimit,
    pub(crate) claims: &'a mut Claims,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// What an IKE SA asks of its endpoint, because it concerns other SAs.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A rekey has made a new IKE SA.
    Insert(Box<IkeSa>),
    /// The children of `from` go to `to`, which replaces it.
    Adopt {
        from: IkeSaId,
        to: IkeSaId,
        leave: Leave,
    },
    /// `ike_sa` is of our simultaneous rekey that has lost: we delete it.
    Redundant { ike_sa: IkeSaId },
    /// `ike_sa` is of the peer's simultaneous rekey that has lost: the peer deletes it.
    Lost { ike_sa: IkeSaId },
    /// Authenticated; `initial_contact` is the peer's notify.
    Established {
        ike_sa: IkeSaId,
        initial_contact: bool,
    },
    ConnectFailed {
        connection: Arc<Connection>,
        reason: DownReason,
    },
    /// A child was on its way over an IKE SA that has ended.
    Undone { connection: String, child: String },
    /// Another peer asks for the traffic of this child SA: does its own still live?
    Doubt { child: ChildSaId },
}

impl Context<'_> {
    pub(crate) fn next_id(&mut self) -> u64 {
        *self.last_id += 1;
        *self.last_id
    }

    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; 32];
        self.random.fill(&mut nonce);
        nonce
    }

    /// A fresh IKE SPI: never zero, never one of a live SA.
    pub(crate) fn ike_spi(&mut self) -> u64 {
        loop {
            let mut bytes = [0; 8];
            self.random.fill(&mut bytes);
            let spi = u64::from_be_bytes(bytes);
            if spi != 0 && !self.by_spi.contains_key(&spi) {
                return spi;
            }
        }
    }

    /// A random part of `range`.
    pub(crate) fn jitter(&mut self, range: Duration) -> Duration {
        range.mul_f64(self.random.fraction())
    }

    pub(crate) fn jitter_count(&mut self, range: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        match range.checked_add(1) {
            Some(range) => u64::from_be_bytes(bytes) % range,
            None => u64::from_be_bytes(bytes),
        }
    }

    /// Sends a message, with the non-ESP marker where the port asks for it (RFC 3948 section 2.2).
    pub(crate) fn transmit(&mut self, local: SocketAddr, remote: SocketAddr, message: &[u8]) {
        let marker: &[u8] = if local.port() == self.config.ports.nat_t {
            &[0; 4]
        } else {
            &[]
        };
        let payload = [marker, message].concat();
        self.counters.messages_sent += 1;
        self.transmits.push_back(Transmit {
            local,
            remote,
            payload,
        });
    }
}

/// The keys of an IKE SA in use.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) keys: Keys,
    sealer: Sealer,
    opener: Opener,
}

impl Channel {
    pub(crate) fn new(keys: Keys, role: Role) -> Self {
        Self {
            sealer: keys.sealer(role),
            opener: keys.opener(role),
            keys,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    InitSent(Box<init::InitSent>),
    InitAnswered(Box<init::InitAnswered>),
    AuthSent(Box<auth::AuthSent>),
    Established(Box<Established>),
    /// Replaced by the peer's rekey, which the peer is to follow by a delete.
    Rekeyed {
        channel: Channel,
        delete_at: Instant,
    },
    /// Our delete, or our last error, waits for its answer.
    Closing {
        channel: Channel,
    },
    /// Only the last reply is left.
    Gone {
        until: Instant,
        /// The peer never proved who it is.
        stranger: bool,
    },
    /// To be removed.
    Closed,
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::InitSent(_) => "IKE_SA_INIT sent",
            Self::InitAnswered(_) => "IKE_SA_INIT answered",
            Self::AuthSent(_) => "IKE_AUTH sent",
            Self::Established(_) => "established",
            Self::Rekeyed { .. } => "rekeyed",
            Self::Closing { .. } => "closing",
            Self::Gone { .. } => "gone",
            Self::Closed => "closed",
        }
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        match self {
            Self::InitAnswered(state) => Some(&state.channel),
            Self::AuthSent(state) => Some(&state.channel),
            Self::Established(state) => Some(&state.channel),
            Self::Rekeyed { channel, .. } | Self::Closing { channel } => Some(channel),
            Self::InitSent(_) | Self::Gone { .. } | Self::Closed => None,
        }
    }

    fn channel_mut(&mut self) -> Option<&mut Channel> {
        match self {
            Self::InitAnswered(state) => Some(&mut state.channel),
            Self::AuthSent(state) => Some(&mut state.channel),
            Self::Established(state) => Some(&mut state.channel),
            Self::Rekeyed { channel, .. } | Self::Closing { channel } => Some(channel),
            Self::InitSent(_) | Self::Gone { .. } | Self::Closed => None,
        }
    }

    fn into_channel(self) -> Option<Channel> {
        match self {
            Self::InitAnswered(state) => Some(state.channel),
            Self::AuthSent(state) => Some(state.channel),
            Self::Established(state) => Some(state.channel),
            Self::Rekeyed { channel, .. } | Self::Closing { channel } => Some(channel),
            Self::InitSent(_) | Self::Gone { .. } | Self::Closed => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) id: IkeSaId,
    /// A responder's may still change when the peer says who it is.
    pub(crate) connection: Arc<Connection>,
    /// Whether we are the original initiator; after a rekey, whoever began the rekey.
    pub(crate) role: Role,
    pub(crate) spi_i: u64,
    pub(crate) spi_r: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Where this end and the peer were in IKE_SA_INIT, which only who receives there can go through: what selectors
    /// mean by the addresses of the two. Later on one datagram from a false source address moves a peer behind a NAT.
    pub(crate) hosts: (IpAddr, IpAddr),
    pub(crate) nat: Nat,
    pub(crate) window: Window,
    pub(crate) phase: Phase,
    /// Made by the peer's side of a simultaneous rekey that is not decided yet: its messages wait.
    pub(crate) parked: bool,
    /// When something was last sent towards the peer, for NAT keepalives.
    pub(crate) last_sent: Instant,
    /// The IKE SA that this one was made to replace, which may linger.
    pub(crate) predecessor: Option<IkeSaId>,
}

/// One received message and where it came from.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) header: Header,
    pub(crate) datagram: &'a [u8],
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl IkeSa {
    pub(crate) fn own_spi(&self) -> u64 {
        match self.role {
            Role::Initiator => self.spi_i,
            Role::Responder => self.spi_r,
        }
    }

    /// Not authenticated, or refused and not yet forgotten: both are what anybody can make us hold.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(
            self.phase,
            Phase::InitAnswered(_) | Phase::Gone { stranger: true, .. }
        )
    }

    pub(crate) fn established(&self) -> Option<&Established> {
        match &self.phase {
            Phase::Established(state) => Some(state),
            _ => None,
        }
    }

    pub(crate) fn established_mut(&mut self) -> Option<&mut Established> {
        match &mut self.phase {
            Phase::Established(state) => Some(state),
            _ => None,
        }
    }

    /// Why the SA is to be deleted as soon as the exchange under way allows it.
    pub(crate) fn ending(&self) -> Option<&DownReason> {
        match &self.phase {
            Phase::AuthSent(state) => state.doomed.as_ref(),
            Phase::Established(state) => state.ending(),
            _ => None,
        }
    }

    fn header(&self, exchange: ExchangeType, response: bool, message_id: u32) -> Header {
        Header {
            initiator_spi: self.spi_i,
            responder_spi: self.spi_r,
            exchange,
            from_initiator: self.role.is_initiator(),
            response,
            message_id,
        }
    }

    fn transmit(&mut self, ctx: &mut Context<'_>, message: &[u8]) {
        self.last_sent = ctx.now;
        ctx.transmit(self.local, self.remote, message);
    }

    /// Sends a protected request. The caller has made sure that none is outstanding.
    fn send_request(
        &mut self,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) {
        let header = self.header(exchange, false, self.window.next_request_id());
        let Some(channel) = self.phase.channel_mut() else {
            return;
        };
        match channel.sealer.seal(&header, payloads) {
            Ok(datagram) => {
                self.trace(ctx, Direction::Sent, &header, payloads, datagram.len());
                self.transmit(ctx, &datagram);
                let timing = &self.connection.retransmission;
                self.window.sent(ctx.now, datagram, timing, ctx.random);
            }
            Err(error) => self.cannot_send(ctx, &error),
        }
    }

    /// Answers the request that was just received, to where it came from (section 2.11).
    fn send_response(
        &mut self,
        ctx: &mut Context<'_>,
        request: &Received<'_>,
        payloads: &[Payload],
    ) {
        let header = self.header(request.header.exchange, true, request.header.message_id);
        let Some(channel) = self.phase.channel_mut() else {
            return;
        };
        match channel.sealer.seal(&header, payloads) {
            Ok(datagram) => {
                self.trace(ctx, Direction::Sent, &header, payloads, datagram.len());
                self.last_sent = ctx.now;
                ctx.transmit(request.local, request.remote, &datagram);
                self.window.answered(request.datagram, datagram);
            }
            Err(error) => self.cannot_send(ctx, &error),
        }
    }

    fn cannot_send(&mut self, ctx: &mut Context<'_>, error: &crate::suite::SealError) {
        tracing::warn!(ike_sa = %self.id, connection = self.connection.name, %error, "cannot send a message");
        self.close(ctx, DownReason::Resources("a message could not be made"));
    }

    fn trace(
        &self,
        ctx: &mut Context<'_>,
        direction: Direction,
        header: &Header,
        payloads: &[Payload],
        len: usize,
    ) {
        if !ctx.config.trace_messages {
            return;
        }
        let names: Vec<String> = payloads.iter().map(describe).collect();
        ctx.events.push_back(Event::Message(MessageTrace {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            direction,
            local: self.local,
            remote: self.remote,
            exchange: header.exchange.name().unwrap_or("unknown"),
            response: header.response,
            message_id: header.message_id,
            payloads: names.join(" "),
            len,
        }));
    }

    fn log_keys(&self, ctx: &mut Context<'_>) {
        if !ctx.config.key_log {
            return;
        }
        let Some(Channel { keys, .. }) = self.phase.channel() else {
            return;
        };
        ctx.events.push_back(Event::KeyLog(KeyLog {
            ike_sa: self.id,
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            sk_ei: keys.export_encryption(Role::Initiator).clone(),
            sk_er: keys.export_encryption(Role::Responder).clone(),
            sk_ai: keys.export_integrity(Role::Initiator).clone(),
            sk_ar: keys.export_integrity(Role::Responder).clone(),
            suite: keys.suite(),
        }));
    }

    /// Takes a message whose header has led here.
    pub(crate) fn handle(&mut self, ctx: &mut Context<'_>, received: &Received<'_>) {
        if let Phase::InitSent(_) = self.phase {
            if !self.window.awaits(0) {
                return ctx.counters.refuse(Refusal::UnexpectedResponse);
            }
            return self.handle_init_response(ctx, received);
        }
        if received.header.exchange == ExchangeType::IKE_SA_INIT {
            // A copy of the answer that has been used already, or a stray request.
            return ctx.counters.refuse(Refusal::UnexpectedExchange);
        }
        if received.header.response {
            if !self.window.awaits(received.header.message_id) {
                return ctx.counters.refuse(Refusal::UnexpectedResponse);
            }
        } else if !self.admit_request(ctx, received) {
            return;
        }
        let Some(channel) = self.phase.channel() else {
            return ctx.counters.refuse(Refusal::UnexpectedExchange);
        };
        match channel.opener.open(received.datagram) {
            Ok(message) => {
                self.trace(
                    ctx,
                    Direction::Received,
                    &message.header,
                    &message.payloads,
                    received.datagram.len(),
                );
                self.heard(ctx, received);
                self.dispatch(ctx, received, message);
            }
            Err(OpenError::Inner { error, .. }) => self.handle_malformed(ctx, received, &error),
            Err(error) => {
                if received.header.response {
                    self.window.unusable(unusable(&error, received.datagram));
                }
                ctx.counters.refuse(match error {
                    OpenError::Outer(_) => Refusal::Malformed,
                    _ => Refusal::Integrity,
                });
            }
        }
    }

    /// Whether a request is the next one. An identical copy of the last is answered again (section 2.1).
    fn admit_request(&mut self, ctx: &mut Context<'_>, received: &Received<'_>) -> bool {
        if self.parked {
            // It comes again when the simultaneous rekey is decided.
            ctx.counters.refuse(Refusal::UnexpectedExchange);
            return false;
        }
        match self
            .window
            .incoming(received.header.message_id, received.datagram)
        {
            Incoming::New => return true,
            // The address it comes from may be false, even if the peer has authenticated this very message before.
            Incoming::Again => self.repeat(ctx, received, u32::MAX),
            Incoming::Reused => ctx.counters.refuse(Refusal::MessageIdReuse),
            Incoming::Outside => ctx.counters.refuse(Refusal::MessageId),
        }
        false
    }

    /// Answers the last request again, in bounds.
    fn repeat(&mut self, ctx: &mut Context<'_>, received: &Received<'_>, most: u32) {
        match self.window.repeat(ctx.now, most) {
            Some(reply) => {
                ctx.counters.refuse(Refusal::Retransmission);
                ctx.transmit(received.local, received.remote, reply);
            }
            None => ctx.counters.refuse(Refusal::RateLimited),
        }
    }

    /// The peer has authentically said something: it lives, and perhaps elsewhere than before.
    fn heard(&mut self, ctx: &mut Context<'_>, received: &Received<'_>) {
        if let Phase::Established(state) = &mut self.phase {
            state.last_heard = ctx.now;
        }
        self.peer_at(ctx, received.local, received.remote);
    }

    /// Follows a peer behind a NAT whose mapping has changed. Behind a NAT ourselves we do not (section 2.23).
    pub(crate) fn peer_at(&mut self, ctx: &mut Context<'_>, local: SocketAddr, remote: SocketAddr) {
        let moved = (self.local, self.remote) != (local, remote);
        if !moved || !self.nat.remote || self.nat.local || local.port() != ctx.config.ports.nat_t {
            return;
        }
        let Phase::Established(state) = &self.phase else {
            return;
        };
        (self.local, self.remote) = (local, remote);
        let children: Vec<ChildSaId> = state.children.iter().map(|child| child.id).collect();
        ctx.events.push_back(Event::PeerMoved {
            ike_sa: self.id,
            children,
            local,
            remote,
        });
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, received: &Received<'_>, message: Message) {
        match (
            &self.phase,
            received.header.exchange,
            received.header.response,
        ) {
            (Phase::InitAnswered(_), ExchangeType::IKE_AUTH, false) => {
                self.handle_auth_request(ctx, received, message)
            }
            (Phase::AuthSent(_), ExchangeType::IKE_AUTH, true) => {
                self.handle_auth_response(ctx, message)
            }
            (Phase::Established(_), ExchangeType::CREATE_CHILD_SA, false) => {
                self.handle_create_child_request(ctx, received, &message);
            }
            (Phase::Established(_), ExchangeType::INFORMATIONAL, false) => {
                self.handle_informational_request(ctx, received, &message);
            }
            (Phase::Established(_), _, true) => self.handle_exchange_response(ctx, &message),
            (Phase::Rekeyed { .. } | Phase::Closing { .. }, _, false) => {
                self.handle_late_request(ctx, received, &message)
            }
            (Phase::Closing { .. }, _, true) => {
                self.window.completed();
                self.phase = Phase::Closed;
            }
            (Phase::Rekeyed { .. }, _, true) => self.window.completed(),
            _ => {
                if received.header.response {
                    let exchange = received.header.exchange;
                    self.window
                        .unusable(format!("{exchange} is not what was asked"));
                }
                tracing::trace!(phase = self.phase.name(), exchange = %received.header.exchange, "exchange out of place");
                ctx.counters.refuse(Refusal::UnexpectedExchange);
            }
        }
        self.run_tasks(ctx);
    }

    /// An authenticated message whose content is malformed (section 2.21).
    fn handle_malformed(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        error: &DecodeError,
    ) {
        tracing::trace!(ike_sa = %self.id, %error, "the peer sent a malformed message");
        let (kind, data) = error.notification();
        let fatal = kind != NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD
            || received.header.response
            || self.established().is_none();
        ctx.counters
            .refuse(if kind == NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD {
                Refusal::UnsupportedCriticalPayload
            } else {
                Refusal::InvalidSyntax
            });
        self.heard(ctx, received);
        if !received.header.response {
            self.send_response(ctx, received, &[notify(kind, data)]);
        }
        if fatal {
            // INVALID_SYNTAX ends the SA at both ends without a delete (section 2.21.3).
            let reason = match received.header.response {
                true => DownReason::UnusableAnswer(error.to_string()),
                false => DownReason::PeerMisbehaved(error.to_string()),
            };
            self.close(ctx, reason);
        } else {
            self.run_tasks(ctx);
        }
    }

    /// Ends the SA without another word. Its last reply stays for a while, for a request that comes again.
    pub(crate) fn close(&mut self, ctx: &mut Context<'_>, reason: DownReason) {
        let next = match self.phase {
            Phase::InitSent(_) | Phase::AuthSent(_) | Phase::Closed => Phase::Closed,
            _ => Phase::Gone {
                until: ctx.now + GONE_TIME,
                stranger: self.is_half_open(),
            },
        };
        self.window.forget_request();
        match std::mem::replace(&mut self.phase, next) {
            Phase::InitSent(_) => self.connect_failed(ctx, reason),
            Phase::AuthSent(state) => {
                state.release(ctx);
                self.connect_failed(ctx, reason);
            }
            Phase::Established(state) => {
                self.tear_down(ctx, *state, &reason);
            }
            _ => {}
        }
    }

    fn connect_failed(&self, ctx: &mut Context<'_>, reason: DownReason) {
        ctx.counters.connect_failures += 1;
        ctx.effects.push(Effect::ConnectFailed {
            connection: self.connection.clone(),
            reason,
        });
    }

    /// Tells the peer that the SA ends, and forgets the children at once. No request may be outstanding.
    pub(crate) fn close_with(
        &mut self,
        ctx: &mut Context<'_>,
        reason: DownReason,
        farewell: &[Payload],
    ) {
        let channel = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Established(state) => Some(self.tear_down(ctx, *state, &reason)),
            Phase::AuthSent(state) => {
                self.connect_failed(ctx, reason);
                Some(state.release(ctx))
            }
            other => other.into_channel(),
        };
        if let Some(channel) = channel {
            self.phase = Phase::Closing { channel };
            self.send_request(ctx, ExchangeType::INFORMATIONAL, farewell);
        }
    }

    /// Waits for the peer to delete an SA that its rekey, or ours, has replaced.
    pub(crate) fn await_delete(&mut self, ctx: &mut Context<'_>) {
        if let Phase::Established(state) = std::mem::replace(&mut self.phase, Phase::Closed) {
            let channel = self.tear_down(ctx, *state, &DownReason::Rekeyed);
            self.phase = Phase::Rekeyed {
                channel,
                delete_at: ctx.now + DELETE_TIME,
            };
        }
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let timing = &self.connection.retransmission;
        match self.window.handle_timeout(ctx.now, timing, ctx.random) {
            Expiry::Nothing => {}
            Expiry::Retransmit(datagram) => {
                if let Phase::InitSent(state) = &mut self.phase
                    && let Some(reason) = state.refused.take()
                {
                    // Nobody has contradicted the unauthenticated refusal.
                    return self.close(ctx, reason);
                }
                ctx.counters.retransmissions_sent += 1;
                ctx.transmit(self.local, self.remote, datagram);
                self.last_sent = ctx.now;
            }
            Expiry::GiveUp(unusable) => {
                ctx.counters.peers_timed_out += 1;
                let silent = unusable.map_or(DownReason::Timeout, DownReason::UnusableAnswer);
                let reason = self.ending().cloned().unwrap_or(silent);
                return self.close(ctx, reason);
            }
        }
        match &self.phase {
            Phase::InitAnswered(state) if state.deadline <= ctx.now => self.phase = Phase::Closed,
            Phase::Gone { until, .. } if *until <= ctx.now => self.phase = Phase::Closed,
            Phase::Rekeyed { delete_at, .. } if *delete_at <= ctx.now && !self.window.is_busy() => {
                self.close_with(ctx, DownReason::Rekeyed, &[delete_ike()]);
            }
            Phase::Established(_) => {
                self.keep_nat_mapping(ctx);
                self.check_lifetimes(ctx);
                self.run_tasks(ctx);
            }
            _ => {}
        }
    }

    fn keep_nat_mapping(&mut self, ctx: &mut Context<'_>) {
        let interval = ctx.config.nat_keepalive;
        let silence = ctx.now.saturating_duration_since(self.last_sent);
        if self.nat.local && !interval.is_zero() && silence >= interval {
            self.last_sent = ctx.now;
            ctx.events.push_back(Event::NatKeepalive {
                local: self.local,
                remote: self.remote,
            });
        }
    }

    pub(crate) fn next_timeout(&self, config: &Config) -> Option<Instant> {
        let own = match &self.phase {
            Phase::InitAnswered(state) => Some(state.deadline),
            Phase::Established(_) if self.parked => None,
            Phase::Established(state) => state.next_timeout(&self.connection, &self.window),
            Phase::Rekeyed { .. } if self.window.is_busy() => None,
            Phase::Rekeyed { delete_at, .. } => Some(*delete_at),
            Phase::Gone { until, .. } => Some(*until),
            Phase::InitSent(_) | Phase::AuthSent(_) | Phase::Closing { .. } | Phase::Closed => None,
        };
        let kept =
            self.nat.local && self.established().is_some() && !config.nat_keepalive.is_zero();
        let keepalive = deadline(self.last_sent, config.nat_keepalive).filter(|_| kept);
        [own, keepalive, self.window.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Why a response could not be opened. What it says without protection is nobody's word, but helps to find out.
fn unusable(error: &OpenError, datagram: &[u8]) -> String {
    match error {
        OpenError::Outer(error) | OpenError::Inner { error, .. } => error.to_string(),
        OpenError::NotEncrypted => {
            let message = Message::decode(datagram).ok();
            let says = message.as_ref().and_then(|message| {
                let mut errors = message.notifications().map(|notify| notify.kind);
                errors.find(|kind| kind.is_error())
            });
            match says {
                Some(kind) => format!("{kind} without protection"),
                None => "not protected".to_owned(),
            }
        }
        OpenError::Forged => "made with other keys, or damaged".to_owned(),
    }
}

/// Configured times have no upper bound; those that the clock cannot count to never come.
pub(crate) fn deadline(from: Instant, after: Duration) -> Option<Instant> {
    from.checked_add(after)
}

pub(crate) fn notify(kind: NotifyType, data: Vec<u8>) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

fn describe(payload: &Payload) -> String {
    match payload {
        Payload::Notify(notify) => format!("N({})", notify.kind),
        other => other.kind().to_string(),
    }
}
