//! Decides whether an SA may take packets, and collects the events about it for the control plane.

use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::lifetime::LifetimeEvent;
use crate::sa::{OutboundSa, SaDirection};

#[derive(Default)]
pub(super) struct SaGate {
    pub events: Vec<Event>,
    pub now_ms: u64,
}

impl SaGate {
    /// Takes sequence numbers for packets that are about to be sealed, if the SA's lifetime allows them. Returns the
    /// first number.
    #[inline(always)]
    pub fn admit(&mut self, sa: &OutboundSa, packets: u32, bytes: u64) -> Result<u64, DropReason> {
        let taken = sa.sequence.take(packets);
        let Ok(sequence) = taken else {
            return Err(self.exhausted(sa, packets, bytes));
        };
        let lifetime = &sa.common.lifetime;
        let admission = lifetime.admit(packets.into(), bytes, self.now_ms);
        if admission.event.is_some() {
            self.raise(sa, admission.event);
        }
        if !admission.passes {
            return Err(DropReason::LifetimeExpired);
        }
        if sequence.low {
            self.raise(sa, lifetime.raise(LifetimeEvent::Soft));
        }
        Ok(sequence.first)
    }

    #[cold]
    #[inline(never)]
    fn exhausted(&mut self, sa: &OutboundSa, packets: u32, bytes: u64) -> DropReason {
        let lifetime = &sa.common.lifetime;
        if !lifetime.expired(self.now_ms) {
            self.raise(sa, lifetime.raise(LifetimeEvent::Hard));
            return DropReason::SequenceExhausted;
        }
        let admission = lifetime.admit(packets.into(), bytes, self.now_ms);
        self.raise(sa, admission.event);
        DropReason::LifetimeExpired
    }

    #[cold]
    #[inline(never)]
    fn raise(&mut self, sa: &OutboundSa, event: Option<LifetimeEvent>) {
        if let Some(event) = event {
            let event = Event::lifetime(SaDirection::Outbound, &sa.common, event);
            self.events.push(event);
        }
    }
}
