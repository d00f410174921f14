//! The IKE exchanges, one file each, and the dispatch of messages and timeouts to them.
//!
//! | file | exchange |
//! |---|---|
//! | `ike_sa_init` | IKE_SA_INIT: algorithms, key exchange, NAT detection |
//! | `ike_auth` | IKE_AUTH: identities, and the first child SA |
//! | `create_child` | CREATE_CHILD_SA for a new child SA |
//! | `rekey_child`, `rekey_ike` | CREATE_CHILD_SA for a rekey |
//! | `informational` | INFORMATIONAL: deletes, liveness, errors |
//!
//! The other files have what several exchanges share. An exchange takes its phase by value and returns the next phase.
//! Or it works on an [`Established`] SA, and returns an [`Ending`] if the SA is to end.

mod authenticator;
mod child_negotiation;
mod child_selectors;
mod commands;
mod create_child;
mod error_reply;
mod ike_auth;
mod ike_sa_init;
mod informational;
mod key_exchange;
mod payloads;
mod peer_limits;
mod refusal_report;
mod rekey_child;
mod rekey_ike;

pub(crate) use ike_sa_init::choose_init;
pub(crate) use payloads::InitPayloads;
pub(crate) use refusal_report::{OFFERS_SHOWN, RefusalDetails, init_refusal};

use std::net::SocketAddr;
use std::time::Duration;

use crate::crash_token;
use crate::event::{Direction, Event};
use crate::failure::{DownReason, RequestFault, Shortage, UnusableResponse};
use crate::jobs::{PATIENCE, Ticket, WorkOutcome};
use crate::protected::ProtectedChannel;
use crate::refusal::Refusal;
use crate::sa::{
    Context, Effect, Ending, Established, HeldMessage, IkeSa, IkeSaCommon, PeerMapping,
    PendingExchange, Phase, Task, send_again,
};
use crate::suite::OpenError;
use crate::transport::{
    Expiry, FragmentEffect, ReassemblyFull, ReassemblyLimits, ReceivedMessage, RequestStatus,
};
use crate::wire::{
    DecodeError, ExchangeType, FragmentPlace, Message, Notify, NotifyType, Payload, fragment_place,
};

/// The time for which a peer may answer with TEMPORARY_FAILURE (RFC 7296 §2.25: several minutes).
const BUSY_MAX: Duration = Duration::from_secs(180);

impl IkeSa {
    /// Takes a message whose header has led to this SA.
    pub(crate) fn handle(&mut self, ctx: &mut Context<'_>, received: &ReceivedMessage<'_>) {
        self.advance(|phase, sa| match phase {
            Phase::InitSent(state) => state.handle(sa, ctx, received),
            phase => phase.handle_protected(sa, ctx, received),
        });
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.advance(|phase, sa| phase.handle_timeout(sa, ctx));
    }

    /// The job that a message was held for is done.
    pub(crate) fn job_done(&mut self, ctx: &mut Context<'_>, ticket: Ticket, outcome: WorkOutcome) {
        if self.common.job != Some(ticket) {
            return;
        }
        self.common.job = None;
        let is_current = ctx.jobs.is_current(ticket);
        self.advance(|phase, sa| phase.job_done(sa, ctx, outcome, is_current));
    }

    /// Goes on with a held IKE_AUTH, if all that it waits for has been asked.
    pub(crate) fn resume_auth(&mut self, ctx: &mut Context<'_>) {
        self.advance(|phase, sa| phase.resume_auth(sa, ctx));
    }
}

impl Phase {
    fn handle_protected(
        mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) -> Self {
        let place = fragment_place(received.datagram);
        if !sa.admits(ctx, received, place, self.channel_mut()) {
            return self;
        }
        let Some(channel) = self.channel() else {
            ctx.counters.count(Refusal::UnexpectedExchange);
            return self;
        };
        match place {
            None => {
                let opened = channel.open(received.datagram);
                self.handle_opened(sa, ctx, received, opened, received.datagram.len())
            }
            Some(place) => self.handle_fragment(sa, ctx, received, place),
        }
    }

    /// Takes a fragment of a message that is awaited, and the message when it is complete (RFC 7383 §2.6).
    fn handle_fragment(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        place: FragmentPlace,
    ) -> Self {
        let effect = match sa.window.fragment_effect(received.header.response, place) {
            Ok(effect) => effect,
            Err(refusal) => {
                ctx.counters.count(refusal);
                return self;
            }
        };
        let opened = match self.channel() {
            Some(channel) => channel.open_fragment(received.datagram),
            None => return self,
        };
        let fragment = match opened {
            Ok(fragment) => fragment,
            Err(error) => {
                let len = received.datagram.len();
                return self.handle_opened(sa, ctx, received, Err(error), len);
            }
        };
        ctx.counters.fragments_received += 1;
        if effect == FragmentEffect::StartsOver {
            ctx.counters.count(Refusal::FragmentsIncomplete);
        }
        let limits = &ctx.config.limits;
        let limits = ReassemblyLimits {
            fragments: limits.fragments_max,
            len: match self.is_half_open() {
                true => limits.half_open_fragmented_len_max,
                false => limits.fragmented_len_max,
            },
        };
        match sa.window.add_fragment(ctx.now, fragment, received, limits) {
            Ok(None) => self,
            Ok(Some(message)) => {
                ctx.counters.messages_reassembled += 1;
                if !received.header.response && message.total > 1 {
                    sa.follow_fragments(ctx, received, message.longest);
                }
                let whole = message.received(received);
                self.handle_opened(sa, ctx, &whole, message.open(), message.len())
            }
            Err(ReassemblyFull) => {
                // RFC 7383 §5.
                ctx.counters.count(Refusal::FragmentLimit);
                let reason = match received.header.response {
                    true => DownReason::UnusableResponse(UnusableResponse::TooLarge),
                    false => DownReason::PeerMisbehaved(RequestFault::TooLarge),
                };
                self.close(sa, ctx, reason)
            }
        }
    }

    /// Takes what was made of a message: its payloads, or the reason why it is not used. `len` is the message's length.
    fn handle_opened(
        mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        opened: Result<Message, OpenError>,
        len: usize,
    ) -> Self {
        match opened {
            Ok(message) => {
                let (header, payloads) = (&message.header, &message.payloads);
                sa.trace(ctx, Direction::Received, header, payloads, len);
                self.note_heard(sa, ctx, received);
                self.dispatch(sa, ctx, received, &message)
                    .run_tasks(sa, ctx)
            }
            Err(OpenError::Inner { error, .. }) => self.handle_malformed(sa, ctx, received, error),
            Err(error) => {
                ctx.counters.count(match error {
                    OpenError::Outer(_) => Refusal::Malformed,
                    _ => Refusal::Integrity,
                });
                if received.header.response {
                    let unprotected = error == OpenError::NotEncrypted;
                    sa.window.note_unusable(unusable(error, received.datagram));
                    if unprotected {
                        return self.handle_unprotected(sa, ctx, received);
                    }
                }
                self
            }
        }
    }

    /// An unprotected response to our outstanding request. INVALID_IKE_SPI from the peer's address is a reason to ask
    /// the peer whether it is alive. With the token that the peer gave us it is proof (RFC 6290 §4.5).
    fn handle_unprotected(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) -> Self {
        let Self::Established(state) = &self else {
            return self;
        };
        let Ok(message) = Message::decode(received.datagram) else {
            return self;
        };
        let lost = message.notification(NotifyType::INVALID_IKE_SPI).is_some();
        if !lost || received.remote.ip() != sa.remote.ip() {
            return self;
        }
        if state.unknown_until.is_some_and(|until| ctx.now < until) {
            // Our answer to its rekey has not come yet.
            return self;
        }
        let token = state.peer_token.as_ref();
        if token.is_some_and(|token| crash_token::shows(&message, token)) {
            return self.close(sa, ctx, DownReason::PeerRestarted);
        }
        sa.doubt_request(ctx);
        self
    }

    fn dispatch(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Self {
        match self {
            Self::InitResponded(state) => state.handle(sa, ctx, received, message),
            Self::AuthSent(state) => state.handle(sa, ctx, received, message),
            Self::Established(state) => state.handle(sa, ctx, received, message),
            Self::Rekeyed(state) => state.handle(sa, ctx, received, message),
            Self::Closing(state) => state.handle(sa, ctx, received, message),
            // A message was opened, and these phases have no keys.
            Self::InitSent(_)
            | Self::InitReceived(_)
            | Self::AuthDue(_)
            | Self::Gone(_)
            | Self::Closed => self,
        }
    }

    /// The peer has sent an authenticated message. It is alive, and perhaps at another address. A copy of a message that
    /// waits says nothing: whoever saw that can send it again, from elsewhere too.
    fn note_heard(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) {
        if let Self::Established(state) = self
            && !state.is_held(received)
        {
            state.heard(ctx);
            state.unknown_until = None;
            state.note_peer_address(
                sa,
                ctx,
                PeerMapping::saw_ike,
                (received.local, received.remote),
            );
        }
    }

    /// An authenticated message whose content is malformed (RFC 7296 §2.21).
    fn handle_malformed(
        mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        error: DecodeError,
    ) -> Self {
        tracing::trace!(ike_sa = %sa.id, %error, "the peer sent a malformed message");
        let (kind, data) = error.notification();
        let critical = kind == NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD;
        let response = received.header.response;
        let fatal = !critical || response || self.established().is_none();
        ctx.counters.count(match critical {
            true => Refusal::UnsupportedCriticalPayload,
            false => Refusal::InvalidSyntax,
        });
        self.note_heard(sa, ctx, received);
        if !response && let Some(channel) = self.channel_mut() {
            let notify = Payload::Notify(Notify::new(kind, data));
            if let Err(ending) = sa.send_response(ctx, channel, received, &[notify]) {
                return self.end(sa, ctx, ending);
            }
        }
        if !fatal {
            return self.run_tasks(sa, ctx);
        }
        // INVALID_SYNTAX ends the SA at both ends without a delete (RFC 7296 §2.21.3).
        let reason = match response {
            true => DownReason::UnusableResponse(UnusableResponse::Malformed(error)),
            false => DownReason::PeerMisbehaved(RequestFault::Malformed(error)),
        };
        self.close(sa, ctx, reason)
    }

    /// Begins the tasks that are due.
    pub(crate) fn run_tasks(self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) -> Self {
        match self {
            Self::Established(mut state) => {
                let result = state.start_due_tasks(sa, ctx);
                state.note_reauthenticated(sa, ctx);
                state.settle(sa, ctx, result)
            }
            other => other,
        }
    }

    /// Decides on the message that was held for a job. What a job has said about proofs holds only under the
    /// configuration that it was made for.
    fn job_done(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        outcome: WorkOutcome,
        is_current: bool,
    ) -> Self {
        let next = match (self, outcome) {
            (Self::InitReceived(state), WorkOutcome::Answered(answer)) => {
                state.answer(sa, ctx, answer, is_current)
            }
            (Self::InitSent(mut state), outcome) => match state.held.take() {
                Some(held) => {
                    ctx.prepared = Some(outcome);
                    state.decide(sa, ctx, &held.received(), &held.message)
                }
                None => Self::InitSent(state),
            },
            (Self::AuthDue(state), WorkOutcome::Signed(signed)) => {
                sa.send_auth(ctx, *state, Some(signed).filter(|_| is_current))
            }
            (Self::InitResponded(mut state), outcome) => match state.held.take() {
                Some(held) => {
                    let (held, known) = held.with(outcome).known_under(ctx.jobs.generation());
                    state.decide(sa, ctx, (&held.received(), &held.message), known)
                }
                None => Self::InitResponded(state),
            },
            (Self::AuthSent(mut state), outcome) => match state.held.take() {
                Some(held) => {
                    let (held, known) = held.with(outcome).known_under(ctx.jobs.generation());
                    state.decide(sa, ctx, (&held.received(), &held.message), known)
                }
                None => Self::AuthSent(state),
            },
            (Self::Established(mut state), outcome) => match state.held.take() {
                // A simultaneous rekey came between. When it is decided, the peer sends its request again.
                Some(held) if sa.suspended && !held.received().header.response => {
                    Self::Established(state)
                }
                Some(held) => {
                    ctx.prepared = Some(outcome);
                    state.decide(sa, ctx, &held.received(), &held.message)
                }
                None => Self::Established(state),
            },
            (other, _) => other,
        };
        ctx.prepared = None;
        next.run_tasks(sa, ctx)
    }

    fn resume_auth(self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) -> Self {
        if sa.job.is_some() {
            return self;
        }
        let store = ctx.config.revocation.clone();
        let sources = self.held().into_iter().flat_map(|held| &held.sources);
        let awaited = sources.filter(|source| store.is_awaited(source));
        let awaited: Vec<_> = awaited.cloned().collect();
        if !awaited.is_empty() {
            // Places that were asked are remembered up to a bound.
            ctx.events.push_back(Event::StatusNeeded(awaited));
            ctx.effects.push(Effect::HoldAuth { ike_sa: sa.id });
            return self;
        }
        let next = match self {
            Self::InitResponded(mut state) => match state.held.take() {
                Some(proof) => {
                    let (held, known) = proof.known_under(ctx.jobs.generation());
                    state.decide(sa, ctx, (&held.received(), &held.message), known)
                }
                None => Self::InitResponded(state),
            },
            Self::AuthSent(mut state) => match state.held.take() {
                Some(proof) => {
                    let (held, known) = proof.known_under(ctx.jobs.generation());
                    state.decide(sa, ctx, (&held.received(), &held.message), known)
                }
                None => Self::AuthSent(state),
            },
            Self::AuthDue(state) => sa.send_auth(ctx, *state, None),
            other => other,
        };
        next.run_tasks(sa, ctx)
    }

    fn handle_timeout(mut self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) -> Self {
        let incomplete = sa.window.expire_fragments(ctx.now);
        (0..incomplete).for_each(|_| ctx.counters.count(Refusal::FragmentsIncomplete));
        let addresses = sa.ends_again();
        match sa.window.handle_timeout(ctx.now, ctx.random) {
            Expiry::Nothing => {}
            Expiry::Retransmit(message) => {
                if let Self::InitSent(state) = &mut self
                    && let Some(reason) = state.refused.take()
                {
                    // No better response has come than the unauthenticated refusal.
                    return self.close(sa, ctx, reason);
                }
                ctx.counters.retransmissions_sent += 1;
                let dscp = sa.connection.dscp;
                let narrow = send_again(ctx, self.channel_mut(), message, addresses, dscp);
                sa.narrow_path = narrow.or(sa.narrow_path);
                sa.last_sent = ctx.now;
                self.tell_silence(sa, ctx);
            }
            Expiry::GiveUp(unusable) => {
                ctx.counters.peers_timed_out += 1;
                let silent = unusable.map_or(DownReason::Timeout, DownReason::UnusableResponse);
                let reason = self.ending().cloned().unwrap_or(silent);
                return self.close(sa, ctx, reason);
            }
        }
        match self {
            Self::InitReceived(state) if state.deadline <= ctx.now => Self::Closed,
            Self::InitResponded(state) if state.deadline <= ctx.now => Self::Closed,
            Self::AuthDue(state) if state.deadline <= ctx.now => {
                let reason = DownReason::Resources(Shortage::Signature);
                Self::AuthDue(state).close(sa, ctx, reason)
            }
            Self::Gone(state) if state.until <= ctx.now => Self::Closed,
            Self::Rekeyed(state) if state.delete_at <= ctx.now && !sa.window.is_busy() => {
                Self::Rekeyed(state).end(sa, ctx, Ending::delete(DownReason::Rekeyed))
            }
            Self::Established(mut state) => {
                sa.keep_nat_mapping(ctx);
                state.check_lifetimes(sa, ctx);
                Self::Established(state).run_tasks(sa, ctx)
            }
            other => other,
        }
    }
}

impl Established {
    fn handle(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        if self.is_held(received) {
            let late = |held: &HeldMessage| ctx.now >= held.since + PATIENCE;
            if !self.held.as_deref().is_some_and(late) {
                return Phase::Established(self);
            }
            // Its job is lost, so that it is taken anew.
            self.held = None;
            if let Some(ticket) = sa.job.take() {
                ctx.jobs.cancel(ticket);
            }
        }
        if self.held.is_none()
            && let Some(work) = self.key_exchange_work(sa, ctx, message)
        {
            if sa.submit(ctx, sa.payer, work, received.len).is_ok() {
                self.held = Some(Box::new(HeldMessage::new(ctx.now, received, message)));
            }
            return Phase::Established(self);
        }
        self.decide(sa, ctx, received, message)
    }

    /// Says whether the message waits already.
    fn is_held(&self, received: &ReceivedMessage<'_>) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.is_copy(received))
    }

    fn decide(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        let result = match (received.header.exchange, received.header.response) {
            (_, true) => self.handle_response(sa, ctx, message),
            (ExchangeType::CREATE_CHILD_SA, false) => {
                self.handle_create_child_request(sa, ctx, received, message)
            }
            (ExchangeType::INFORMATIONAL, false) => {
                self.handle_informational_request(sa, ctx, received, message)
            }
            _ => self.refuse_request(sa, ctx, received),
        };
        self.settle(sa, ctx, result)
    }

    /// A request of an exchange that has no place on an established SA. Each request with an error gets a response that
    /// names it. INVALID_SYNTAX ends the SA at both ends (RFC 7296 §2.21.3).
    fn refuse_request(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
    ) -> Result<(), Ending> {
        sa.refuse_exchange(ctx, received, "established");
        let error = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, Vec::new()));
        sa.send_response(ctx, &mut self.channel, received, &[error])?;
        Err(Ending::Silent(DownReason::PeerMisbehaved(
            RequestFault::OtherExchange(received.header.exchange),
        )))
    }

    /// The response to our outstanding request.
    fn handle_response(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        message: &Message,
    ) -> Result<(), Ending> {
        let Some(exchange) = self.exchange.take() else {
            sa.window.response_accepted();
            return Ok(());
        };
        let received = message.header.exchange;
        if exchange.exchange_type() != received {
            self.exchange = Some(exchange);
            sa.window
                .note_unusable(UnusableResponse::OtherExchange(received));
            ctx.counters.count(Refusal::UnexpectedExchange);
            return Ok(());
        }
        if exchange.exchange_type() == ExchangeType::INFORMATIONAL
            && let Some(reason) = error_reply::fatal_error(message)
        {
            self.exchange = Some(exchange);
            return Err(Ending::Silent(reason));
        }
        let outcome = sa.window.probe_outcome();
        sa.window.response_accepted();
        if received == ExchangeType::CREATE_CHILD_SA && self.is_busy_for_long(ctx, message) {
            self.exchange = Some(exchange);
            return Err(Ending::delete(DownReason::PeerBusy));
        }
        match exchange {
            // The IKE SA is about to be deleted, and the new child SA with it.
            PendingExchange::CreateChild(pending) if self.is_ending() => {
                ctx.spis.release(pending.spi_in);
            }
            PendingExchange::CreateChild(pending) => {
                return self.handle_create_child_response(sa, ctx, *pending, message);
            }
            PendingExchange::DeleteChild(id, reason) => self.remove_child(sa, ctx, id, reason),
            PendingExchange::DeleteUnaccepted(spi) => ctx.spis.release(spi),
            PendingExchange::RekeyIke(pending) => {
                return self.handle_rekey_ike_response(sa, ctx, *pending, message);
            }
            PendingExchange::PathProbe(sent) => {
                self.path_probe_answered(sa, ctx, (sent, outcome), message);
            }
            PendingExchange::DeleteEnded(_)
            | PendingExchange::Liveness
            | PendingExchange::CrashToken => {}
        }
        Ok(())
    }

    /// Says whether the peer has been busy for so long that the IKE SA is to end (RFC 7296 §2.25).
    fn is_busy_for_long(&mut self, ctx: &Context<'_>, message: &Message) -> bool {
        let error = error_reply::error_of(message).map(|error| error.kind);
        if error != Some(NotifyType::TEMPORARY_FAILURE) {
            self.busy_since = None;
            return false;
        }
        let since = *self.busy_since.get_or_insert(ctx.now);
        ctx.now.saturating_duration_since(since) >= BUSY_MAX
    }

    /// Begins the tasks that are due, while no request of ours is outstanding.
    fn start_due_tasks(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        if sa.window.runs_out() && !std::mem::replace(&mut self.runs_out, true) {
            self.rekey_at = Some(ctx.now);
        }
        if self.tasks.iter().any(|queued| queued.not_before <= ctx.now) {
            sa.window.hurry_probe(ctx.now);
        }
        while !sa.window.is_busy() && !sa.suspended {
            if sa.window.has_run_out() {
                return Err(Ending::delete(DownReason::Expired));
            }
            let Some(task) = self.take_due_task(ctx.now) else {
                break;
            };
            match task {
                Task::CreateChild(request) => self.start_create_child(sa, ctx, request)?,
                Task::RekeyChild(id) => self.start_rekey_child(sa, ctx, id)?,
                Task::DeleteChild(id, reason) => self.start_delete_child(sa, ctx, id, reason)?,
                Task::DeleteUnaccepted(protocol, spi) => {
                    let exchange = PendingExchange::DeleteUnaccepted(spi);
                    self.start_delete(sa, ctx, protocol, spi, exchange)?;
                }
                Task::DeleteEnded(ended) => {
                    let exchange = PendingExchange::DeleteEnded(ended);
                    self.start_delete(sa, ctx, ended.protocol, ended.spi_in, exchange)?;
                }
                Task::RekeyIke => self.start_rekey_ike(sa, ctx, None)?,
                Task::DeleteIke(reason) => return Err(Ending::delete(reason)),
                Task::Liveness => self.start_liveness(sa, ctx)?,
                Task::CrashToken => self.send_token(sa, ctx)?,
            }
        }
        Ok(())
    }

    /// Follows a peer whose NAT mapping has changed. An end that is behind a NAT itself does not do so (RFC 7296 §2.23).
    pub(crate) fn note_peer_address(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        saw: impl Fn(&mut PeerMapping, (SocketAddr, SocketAddr)),
        ends: (SocketAddr, SocketAddr),
    ) {
        let of_nat_t = ends.0.port() == ctx.config.ports.nat_t;
        if !sa.nat.remote || sa.nat.local || !of_nat_t {
            return;
        }
        let before = ((sa.local, sa.remote), sa.esp_ends());
        if sa.mapping.is_none() && before.0 == ends {
            return;
        }
        let mut mapping = sa.mapping.unwrap_or_else(|| PeerMapping::new(before.0));
        saw(&mut mapping, ends);
        (sa.local, sa.remote) = mapping.ike();
        sa.mapping = Some(mapping);
        let hosts = |(local, remote): (SocketAddr, SocketAddr)| (local.ip(), remote.ip());
        if hosts(before.0) != hosts(mapping.ike()) {
            self.path.restart();
        }
        if before == (mapping.ike(), mapping.esp()) {
            return;
        }
        let esp_moves = before.1 != mapping.esp();
        let (local, remote) = match esp_moves {
            true => mapping.esp(),
            false => mapping.ike(),
        };
        let children = self.children.iter().filter(|_| esp_moves);
        let children = children.map(|child| child.id).collect();
        ctx.events.push_back(Event::PeerMoved {
            ike_sa: sa.id,
            children,
            local,
            remote,
        });
    }
}

impl IkeSaCommon {
    /// Says whether the window takes a message, or the fragment with this place. A copy of the last request gets the
    /// same response again (RFC 7296 §2.1).
    fn admits(
        &mut self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        place: Option<FragmentPlace>,
        channel: Option<&mut ProtectedChannel>,
    ) -> bool {
        let header = &received.header;
        let refusal = if header.exchange == ExchangeType::IKE_SA_INIT {
            // A copy of the response that was used already, or a request.
            Refusal::UnexpectedExchange
        } else if place.is_some() && !self.fragmentation {
            Refusal::FragmentNotAgreed
        } else if header.response {
            match self.window.awaits(header.message_id) {
                true => return true,
                false => Refusal::UnexpectedResponse,
            }
        } else if self.suspended {
            // The peer sends it again when the simultaneous rekey is decided.
            Refusal::UnexpectedExchange
        } else {
            match self.window.classify(header.message_id, received.datagram) {
                RequestStatus::New => return true,
                // The source address can be false, though the peer has authenticated this very message before.
                RequestStatus::Repeated => {
                    self.repeat_response(ctx, received, u32::MAX, channel);
                    return false;
                }
                RequestStatus::IdReused => match (place, channel) {
                    (Some(FragmentPlace { number: 1, .. }), Some(channel)) => {
                        // The peer has cut the request anew. The first fragment stands for the request, and the others
                        // are ignored (RFC 7383 §2.6.1).
                        if channel.open_fragment(received.datagram).is_ok() {
                            self.repeat_response(ctx, received, u32::MAX, Some(channel));
                            return false;
                        }
                        Refusal::Integrity
                    }
                    (Some(_), _) => Refusal::FragmentDuplicate,
                    (None, _) => Refusal::MessageIdReuse,
                },
                RequestStatus::OutsideWindow => Refusal::MessageId,
            }
        };
        ctx.counters.count(refusal);
        false
    }

    /// Sends the last response again, within the limits.
    fn repeat_response(
        &mut self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        most: u32,
        channel: Option<&mut ProtectedChannel>,
    ) {
        match self.window.repeat_response(ctx.now, most) {
            Some(response) => {
                ctx.counters.count(Refusal::Retransmission);
                let addresses = (received.local, received.remote);
                let dscp = self.connection.dscp;
                let narrow = send_again(ctx, channel, response, addresses, dscp);
                self.narrow_path = narrow.or(self.narrow_path);
            }
            None => ctx.counters.count(Refusal::RateLimited),
        }
    }

    /// The exchange does not fit the phase of the SA.
    fn refuse_exchange(
        &mut self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        phase: &'static str,
    ) {
        let exchange = received.header.exchange;
        if received.header.response {
            self.window
                .note_unusable(UnusableResponse::OtherExchange(exchange));
        }
        tracing::trace!(phase, %exchange, "exchange out of place");
        ctx.counters.count(Refusal::UnexpectedExchange);
    }
}

/// Returns the reason why a response could not be opened. Nobody has authenticated the response, but its content helps
/// to find the cause.
fn unusable(error: OpenError, datagram: &[u8]) -> UnusableResponse {
    match error {
        OpenError::Outer(error) | OpenError::Inner { error, .. } => {
            UnusableResponse::Malformed(error)
        }
        OpenError::NotEncrypted => {
            let message = Message::decode(datagram).ok();
            let error = message.as_ref().and_then(error_reply::error_of);
            error.map_or(UnusableResponse::NotProtected, |notify| {
                UnusableResponse::UnprotectedError(notify.kind)
            })
        }
        OpenError::Forged => UnusableResponse::Forged,
    }
}
