//! The times at which outbound traffic changes to a new SA, and for which an old inbound SPI still receives.

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

/// SAs that wait: outbound ones for their peer, inbound ones for packets in flight.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Outbound SAs that wait until their peer has surely installed them, each with the end of the wait.
    waiting: Vec<(Instant, ChildSaId)>,
    /// SPIs of deleted inbound SAs that wait for packets in flight, each with the end of the wait.
    lingering: Vec<(Instant, u32)>,
}

impl Handover {
    /// Lets an SA be sent with. Returns true if the SA is in use at once.
    ///
    /// If the peer has made the SA beside one in use, it has the SA only after our answer arrives. Packets before then
    /// must use the old SA.
    pub fn begin(
        &mut self,
        child: ChildSaId,
        child_sas: &ChildSas,
        (policy, placements): (&Policy, &Placements),
        now: Instant,
    ) -> bool {
        let Some(new) = child_sas.get(child) else {
            return false;
        };
        if new.made_by_peer && sends_like(policy, &new.outbound) {
            self.waiting.push((now + HANDOVER, child));
            return false;
        }
        self.switch(child, child_sas, (policy, placements))
    }

    /// Sends with this SA. Older SAs for the same packets stop waiting.
    pub fn switch(
        &mut self,
        child: ChildSaId,
        child_sas: &ChildSas,
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
        let older = child_sas.of_policy(policy.id);
        let older = older.take_while(|(other, _)| *other != child);
        let overtaken: Vec<_> = older
            .filter(|(_, other)| alike(&other.outbound, &new.outbound))
            .map(|(other, _)| other)
            .chain([child])
            .collect();
        self.waiting.retain(|(_, other)| !overtaken.contains(other));
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
        self.waiting.retain(|(_, other)| *other != child);
        policy.withdraw(&gone.outbound);
        if !sends_like(policy, &gone.outbound) {
            let mut left = child_sas.of_policy(policy.id).rev();
            let next = left.find(|(_, sa)| sa.is_sending() && alike(&sa.outbound, &gone.outbound));
            if let Some((_, next)) = next {
                placements.expect(&next.outbound.common.placement);
                policy.install(next.outbound.clone());
            }
        }
    }

    /// Lets a deleted inbound SPI receive packets in flight.
    pub fn linger(&mut self, spi: u32, until: Instant) {
        self.lingering.push((until, spi));
    }

    /// Returns the outbound SAs that wait for their peer.
    pub fn waiting(&self) -> Vec<ChildSaId> {
        self.waiting.iter().map(|(_, child)| *child).collect()
    }

    /// Returns the outbound SAs that have waited long enough.
    pub fn due(&self, now: Instant) -> Vec<ChildSaId> {
        let due = self.waiting.iter().filter(|(until, _)| *until <= now);
        due.map(|(_, child)| *child).collect()
    }

    /// Takes the inbound SPIs that have lingered long enough.
    pub fn take_drained(&mut self, now: Instant) -> Vec<u32> {
        let drained = self.lingering.extract_if(.., |(until, _)| *until <= now);
        drained.map(|(_, spi)| spi).collect()
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
