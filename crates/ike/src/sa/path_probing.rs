//! Probes of the path by an IKE SA: when one is sent, and what its answer says. [`super::path_search`] chooses the sizes.
//!
//! A probe must never harm the IKE SA. It is sent while nothing else is to be sent. If it brings no answer in time, an
//! empty request with its message ID goes in its place, and after that both, now without DF.
//! Where the probe was lost, the empty request is the only one that the peer sees. Where only the answer was lost, the
//! path takes the probe, which is then repeated as RFC 7296 §2.1 has it. Most peers answer the empty request too,
//! because they know a retransmission by its message ID. The others ignore it.
//!
//! Fragments (RFC 7383) of the probe instead of the empty request would be the same request. But strongSwan with its
//! mediation extension, as Debian has it, drops fragments of INFORMATIONAL requests, and the IKE SA would end.

use std::time::Duration;

use super::context::{Context, Effect};
use super::ending::Ending;
use super::established::Established;
use super::ike_sa::{IkeSa, IkeSaCommon};
use super::path_search::Next;
use super::phase::Phase;
use super::task::PendingExchange;
use crate::event::{Direction, Event, PathFound};
use crate::failure::DownReason;
use crate::protected::ProtectedChannel;
use crate::transport::{ProbeOutcome, message_len};
use crate::wire::{ExchangeType, Message, Notify, NotifyType, Payload};

/// The notify that fills a probe: a status type for private use. Whoever does not know it ignores it (RFC 7296 §3.10.1).
const PATH_PROBE: NotifyType = NotifyType(48_899);
/// The bytes of a Notify payload without its data (RFC 7296 §3.10).
const NOTIFY_LEN: usize = 8;

impl IkeSa {
    /// The embedder says how long packets to the peer may be.
    pub(crate) fn probe_path(&mut self, ctx: &mut Context<'_>, top: Option<u16>) {
        self.advance(|phase, sa| match phase {
            Phase::Established(mut state) => {
                let result = state.probe_path(sa, ctx, top);
                state.settle(sa, ctx, result)
            }
            other => other,
        });
    }

    /// The peer gets no more probes over this SA.
    pub(crate) fn leave_path_alone(&mut self) {
        if let Some((state, _)) = self.established_mut() {
            state.path.give_up();
        }
    }
}

impl Established {
    /// Packets go out, or a probe has been answered: asks how long packets may be, if a probe is due.
    pub(crate) fn ask_for_path(&mut self, sa: &IkeSaCommon, ctx: &mut Context<'_>) {
        let may = sa.connection.path_mtu_probe
            && !sa.suspended
            && !self.is_ending()
            && self.liveness.alive_at().is_some();
        if may && !sa.window.is_busy() && self.path.is_due(ctx.now) {
            ctx.events.push_back(Event::PathProbeDue {
                ike_sa: sa.id,
                local: sa.local,
                remote: sa.remote,
            });
        }
    }

    fn probe_path(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        top: Option<u16>,
    ) -> Result<(), Ending> {
        self.path.answered();
        let waits = self.tasks.iter().any(|queued| queued.not_before <= ctx.now);
        if waits || sa.window.is_busy() || sa.window.runs_out() || sa.suspended {
            // A later packet asks again.
            return Ok(());
        }
        match self.path.next(ctx.now, top, sa.remote.ip()) {
            Next::Nothing(found) => self.tell_path(sa, ctx, found),
            Next::Probe(size) => {
                let wait = self.path.wait();
                match sa.send_path_probe(ctx, &mut self.channel, size, wait)? {
                    Some(sent) => self.exchange = Some(PendingExchange::PathProbe(sent)),
                    None => self.path.give_up(),
                }
            }
        }
        Ok(())
    }

    /// The probe, whose packet had `sent` bytes, is answered in one of its forms.
    pub(crate) fn path_probe_answered(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        (sent, outcome): (u16, Option<ProbeOutcome>),
        message: &Message,
    ) {
        if message.notifications().any(|notify| notify.kind.is_error()) {
            self.path.give_up();
            sa.path_refused(ctx);
            return;
        }
        let found = match outcome {
            Some(ProbeOutcome::Sent) => self.path.arrived(ctx.now, sent),
            Some(ProbeOutcome::Lost) => {
                ctx.counters.path_probes_lost += 1;
                self.path.lost(ctx.now, sa.remote.ip())
            }
            Some(ProbeOutcome::Void) | None => None,
        };
        self.tell_path(sa, ctx, found);
        if self.path.is_under_way() {
            self.ask_for_path(sa, ctx);
        }
    }

    fn tell_path(&self, sa: &IkeSaCommon, ctx: &mut Context<'_>, found: Option<PathFound>) {
        if let Some(found) = found {
            ctx.events.push_back(Event::PathProbed {
                ike_sa: sa.id,
                connection: sa.connection.name.clone(),
                remote: sa.remote.ip(),
                found,
            });
        }
    }
}

impl IkeSaCommon {
    /// Sends a probe of the path whose packet has `size` bytes. It has `wait` to be answered. Returns the true size, or
    /// `None` if no message is that short.
    fn send_path_probe(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        size: u16,
        wait: Duration,
    ) -> Result<Option<u16>, Ending> {
        let id = self.window.next_request_id();
        let header = self.header(ExchangeType::INFORMATIONAL, false, id);
        let len = message_len(size, self.remote.ip(), ctx.is_nat_t(self.local));
        let notify = |room: usize| {
            let data = vec![0; room.checked_sub(NOTIFY_LEN)?];
            Some(Payload::Notify(Notify::new(PATH_PROBE, data)))
        };
        let sealed = channel.seal_path_probe(&header, notify, len);
        let Some(mut message) = sealed.map_err(|error| self.cannot_send(&error))? else {
            return Ok(None);
        };
        let missing = len.saturating_sub(message.len());
        let sent = size.saturating_sub(u16::try_from(missing).unwrap_or(u16::MAX));
        let shown = [Payload::Notify(Notify::new(PATH_PROBE, Vec::new()))];
        self.trace(ctx, Direction::Sent, &header, &shown, message.len());
        self.transmit(ctx, &mut message);
        ctx.counters.path_probes_sent += 1;
        let timing = self.connection.retransmission;
        (self.window).request_sent(ctx.now, message, &timing, ctx.random);
        self.window.begin_probe(ctx.now, wait);
        Ok(Some(sent))
    }

    fn path_refused(&self, ctx: &mut Context<'_>) {
        ctx.effects.push(Effect::PathProbeRefused {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            remote: self.remote.ip(),
        });
    }

    /// The SA ends. If it waits for the answer to a probe, the probe may be the cause.
    pub(super) fn ended_over_path_probe(&self, ctx: &mut Context<'_>, reason: &DownReason) {
        match reason {
            DownReason::Timeout
            | DownReason::PeerDeleted
            | DownReason::PeerRefused(_)
            | DownReason::UnusableResponse(_) => self.path_refused(ctx),
            _ => {}
        }
    }
}
