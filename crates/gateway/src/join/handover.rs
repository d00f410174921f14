//! The times at which outbound traffic changes to a new SA, and for which an old inbound SPI still receives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::placement::Placements;
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::spd::Policy;

use super::child_sas::{ChildSas, InstalledChild, alike};

/// The time for which the responder of an additional SA goes on with the SA that it has. A packet of the peer on the
/// new SA ends the wait.
pub(super) const HANDOVER: Duration = Duration::from_secs(1);
/// Most SPIs that are freed at a time.
const DRAINED_MAX: usize = 1024;

/// SAs that wait: outbound ones for their peer, inbound ones for packets in flight.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Outbound SAs that wait until their peer has surely installed them, each with the end of the wait.
    waiting: BTreeMap<ChildSaId, Instant>,
    /// SPIs of deleted inbound SAs that wait for packets in flight, each with the end of the wait.
    lingering: VecDeque<(Instant, u32)>,
}

impl Handover {
    /// Lets an SA be sent with. Returns true if the SA is in use at once.
    ///
    /// If the peer has made the SA beside one in use, it has the SA only after our answer arrives. Packets before then
    /// must use the old SA.
    pub fn begin(
        &mut self,
        child: ChildSaId,
        child_sas: &mut ChildSas,
        (policy, placements): (&Policy, &Placements),
        now: Instant,
    ) -> bool {
        let Some(new) = child_sas.get(child) else {
            return false;
        };
        if new.made_by_peer && sends_like(policy, &new.outbound) {
            self.waiting.insert(child, now + HANDOVER);
            child_sas.begin_waiting(child);
            return false;
        }
        self.switch(child, child_sas, (policy, placements))
    }

    /// Sends with this SA. Older SAs for the same packets stop waiting.
    pub fn switch(
        &mut self,
        child: ChildSaId,
        child_sas: &mut ChildSas,
        (policy, placements): (&Policy, &Placements),
    ) -> bool {
        let Some(new) = child_sas.get(child) else {
            return false;
        };
        let mut in_use = policy.outbound_sas().into_iter();
        if in_use.any(|old| takes_over(&new.outbound, &old)) {
            placements.expect(&new.outbound.common.placement);
        }
        policy.install(new.outbound.clone());
        for overtaken in child_sas.end_waiting(child) {
            self.waiting.remove(&overtaken);
        }
        true
    }

    /// Stops sending with an SA that is gone. The newest SA for the same packets carries on. There may be several, for
    /// example after exchanges that collided.
    pub fn end(
        &mut self,
        child: ChildSaId,
        gone: &InstalledChild,
        child_sas: &ChildSas,
        (policy, placements): (&Policy, &Placements),
    ) {
        self.waiting.remove(&child);
        // Packets go through the old SA until they find another one.
        policy.retire(&gone.outbound);
        if !sends_like(policy, &gone.outbound)
            && let Some(next) = child_sas.newest_sending_like(policy.id, &gone.outbound)
        {
            placements.expect(&next.outbound.common.placement);
            policy.install(next.outbound.clone());
        }
    }

    /// Lets a deleted inbound SPI receive packets in flight.
    pub fn linger(&mut self, spi: u32, until: Instant) {
        // IKE lets all SPIs linger for the same time, so that the queue is in order.
        self.lingering.push_back((until, spi));
    }

    /// Returns the outbound SAs that wait for their peer.
    pub fn waiting(&self) -> Vec<ChildSaId> {
        self.waiting.keys().copied().collect()
    }

    /// Returns the outbound SAs that have waited long enough.
    pub fn due(&self, now: Instant) -> Vec<ChildSaId> {
        let due = self.waiting.iter().filter(|(_, until)| **until <= now);
        due.map(|(child, _)| *child).collect()
    }

    /// Takes the next inbound SPIs that have lingered long enough.
    pub fn take_drained(&mut self, now: Instant) -> Vec<u32> {
        let is_over = |(until, _): &mut (Instant, u32)| *until <= now;
        let drained = std::iter::from_fn(|| self.lingering.pop_front_if(is_over));
        drained.map(|(_, spi)| spi).take(DRAINED_MAX).collect()
    }

    /// Returns the time at which the next inbound SPI has lingered long enough.
    pub fn next_drained(&self) -> Option<Instant> {
        self.lingering.front().map(|(until, _)| *until)
    }
}

/// Tells whether an SA for the same packets is in use.
fn sends_like(policy: &Policy, sa: &OutboundSa) -> bool {
    let mut in_use = policy.outbound_sas().into_iter();
    in_use.any(|other| alike(&other, sa))
}

/// Tells whether packets of `old` may go through `new` from now on.
fn takes_over(new: &Arc<OutboundSa>, old: &Arc<OutboundSa>) -> bool {
    !Arc::ptr_eq(new, old) && new.common.selectors.overlaps(&old.common.selectors)
}
