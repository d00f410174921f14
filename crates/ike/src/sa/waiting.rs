//! IKE SAs that wait for a job.

use super::context::{Context, Effect};
use super::held_message::{HeldMessage, HeldProof, KnownProofs};
use super::ike_sa::{IkeSa, IkeSaCommon};
use super::phase::Phase;
use esplanade_pki::StatusSource;

use crate::event::Event;
use crate::jobs::{Payer, QueueFull, Ticket, Work};
use crate::refusal::Refusal;
use crate::transport::ReceivedMessage;
use crate::wire::Message;

impl IkeSaCommon {
    /// Queues work for a message of `bytes`. If there is no room, the message is to be dropped: its sender repeats it.
    pub(crate) fn submit(
        &mut self,
        ctx: &mut Context<'_>,
        payer: Payer,
        work: Work,
        bytes: usize,
    ) -> Result<(), QueueFull> {
        let (ticket, dropped) = ctx.jobs.submit(ctx.now, self.id, payer, (work, bytes));
        let effects = dropped.into_iter();
        ctx.effects
            .extend(effects.map(|(ike_sa, ticket)| Effect::JobDropped { ike_sa, ticket }));
        self.job = Some(ticket.inspect_err(|_| ctx.counters.count(Refusal::JobQueueFull))?);
        Ok(())
    }

    /// Keeps a proof that cannot be decided on before these places have been asked, or before we can sign.
    pub(crate) fn hold(
        &self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        (sources, known): (&[StatusSource], KnownProofs),
    ) -> Box<HeldProof> {
        if !sources.is_empty() {
            ctx.events.push_back(Event::StatusNeeded(sources.to_vec()));
        }
        ctx.effects.push(Effect::HoldAuth { ike_sa: self.id });
        Box::new(HeldProof {
            held: HeldMessage::new(ctx.now, received, message),
            sources: sources.to_vec(),
            known,
            generation: ctx.jobs.generation(),
        })
    }

    /// Keeps a proof that a job is needed for. If there is no room for the job, the peer is to repeat its message.
    pub(crate) fn hold_for_job(
        &mut self,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        (work, known): (Work, KnownProofs),
    ) -> Option<Box<HeldProof>> {
        let payer = match &work {
            // The peer has proved who it is.
            Work::Sign(_) => Payer::proven(self.hosts.1),
            _ => self.payer,
        };
        self.submit(ctx, payer, work, received.len).ok()?;
        Some(Box::new(HeldProof {
            held: HeldMessage::new(ctx.now, received, message),
            sources: Vec::new(),
            known,
            generation: ctx.jobs.generation(),
        }))
    }
}

impl IkeSa {
    /// The job has made room for others. The peer repeats its message.
    pub(crate) fn job_dropped(&mut self, ctx: &mut Context<'_>, ticket: Ticket) {
        if self.common.job != Some(ticket) {
            return;
        }
        self.common.job = None;
        ctx.counters.count(Refusal::JobQueueFull);
        self.advance(|phase, _| match phase {
            Phase::InitReceived(_) => Phase::Closed,
            Phase::InitResponded(mut state) => {
                state.held = None;
                Phase::InitResponded(state)
            }
            other => other,
        });
    }
}
