//! SAs that may take over packets from others. Engines may still have some of those packets, and an SA with another
//! engine must not overtake them: it is [expected](esplanade_ipsec::placement::Placements::expect).

use std::time::{Duration, Instant};

use esplanade_ipsec::placement::Placements;
use esplanade_ipsec::sa::SaCommon;
use esplanade_ipsec::selector::SelectorSet;

use super::child_sas::InstalledChild;

/// The time after which no engine has packets of an SA that is gone. An engine that gives nothing back is lost after
/// one second.
pub(super) const GONE: Duration = Duration::from_secs(2);
/// Most SAs that are remembered after they are gone.
const GONE_MAX: usize = 256;
/// Most pairs of selectors that are compared for one SA. Peers choose how many selectors there are.
const COMPARISONS_MAX: usize = 4096;

/// The SAs that were deleted a short time ago.
#[derive(Debug, Default)]
pub(super) struct Succession {
    gone: Vec<(Instant, SelectorSet)>,
    /// Until then there are more than are remembered.
    more: Option<Instant>,
}

impl Succession {
    /// Remembers an SA that was deleted. Packets come in for it until `last`.
    pub fn remember(&mut self, gone: &InstalledChild, last: Instant) {
        let until = last + GONE;
        match self.gone.len() < GONE_MAX {
            true => self.gone.push((until, selectors(gone).clone())),
            false => self.more = self.more.max(Some(until)),
        }
    }

    /// Forgets SAs that were deleted long ago.
    pub fn expire(&mut self, now: Instant) {
        self.gone.retain(|(until, _)| *until > now);
        self.more = self.more.filter(|until| *until > now);
    }

    /// Tells whether a new SA may take over packets from one of the others, or from one that is gone.
    pub fn takes_over<'a>(
        &self,
        new: &InstalledChild,
        mut others: impl Iterator<Item = &'a InstalledChild>,
    ) -> bool {
        let mut overlaps = Overlaps::of(new);
        let mut gone = self.gone.iter();
        self.more.is_some()
            || gone.any(|(_, gone)| overlaps.with(gone))
            || others.any(|other| overlaps.with_child(other))
    }
}

/// The SAs whose packets may be those of one SA. After many comparisons every other SA counts as such: to wait in vain
/// costs little.
pub(super) struct Overlaps<'a> {
    of: &'a SelectorSet,
    left: usize,
}

impl<'a> Overlaps<'a> {
    pub fn of(child: &'a InstalledChild) -> Self {
        Self {
            of: selectors(child),
            left: COMPARISONS_MAX,
        }
    }

    pub fn with_child(&mut self, other: &InstalledChild) -> bool {
        self.with(selectors(other))
    }

    fn with(&mut self, other: &SelectorSet) -> bool {
        let pairs = self.of.as_slice().len() * other.as_slice().len();
        let left = self.left.checked_sub(pairs);
        self.left = left.unwrap_or(0);
        left.is_none() || self.of.overlaps(other)
    }
}

/// Lets both halves of an SA take over packets.
pub(super) fn expect(placements: &Placements, child: &InstalledChild) {
    for half in [&child.outbound.common, &child.inbound.common] {
        placements.expect(&half.placement);
    }
}

/// Lets packets through a half only after those that came before and have another engine, because policies have
/// changed. All halves of one engine wait together.
pub(super) fn renew(placements: &Placements, half: &SaCommon) {
    placements.place(&half.placement, half.placement.get().engine);
}

fn selectors(child: &InstalledChild) -> &SelectorSet {
    &child.outbound.common.selectors
}
