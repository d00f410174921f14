//! The security policy database: an ordered list, first match wins, no match is Discard (RFC 4301 §4.4.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::drop_reason::DropReason;
use crate::sa::OutboundSa;
use crate::selector::{Flow, SelectorSet};

/// Names a policy towards the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(pub u32);

/// A Protect entry's policy. It outlives the SPD snapshots that refer to it, and holds the SA in use.
#[derive(Debug)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    outbound: ArcSwapOption<OutboundSa>,
    acquire_raised: AtomicBool,
}

impl Policy {
    pub fn new(id: PolicyId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            outbound: ArcSwapOption::empty(),
            acquire_raised: AtomicBool::new(false),
        }
    }

    /// Sends from now on with `sa`; gives the SA that was in use before. This is the switch of a rekey
    /// (RFC 7296 §2.8): the former inbound SA stays in the SAD until it is removed there.
    pub fn install(&self, sa: Arc<OutboundSa>) -> Option<Arc<OutboundSa>> {
        let former = self.outbound.swap(Some(sa));
        self.acquire_done();
        former
    }

    /// Stops sending with the SA of this SPI; leaves a newer one in place.
    pub fn remove(&self, spi: u32) -> Option<Arc<OutboundSa>> {
        let current = self.outbound.load();
        if current.as_ref().is_none_or(|sa| sa.common.spi != spi) {
            return None;
        }
        let former = self.outbound.compare_and_swap(&*current, None);
        let swapped = former.as_ref().is_some_and(|sa| sa.common.spi == spi);
        if swapped {
            Guard::into_inner(former)
        } else {
            None
        }
    }

    /// The SA in use.
    pub fn outbound_sa(&self) -> Option<Arc<OutboundSa>> {
        self.outbound.load_full()
    }

    /// The next packet without an SA raises an acquire again.
    pub fn acquire_done(&self) {
        self.acquire_raised.store(false, Ordering::Relaxed);
    }

    /// True for the first packet that finds no SA.
    pub(crate) fn raise_acquire(&self) -> bool {
        !self.acquire_raised.load(Ordering::Relaxed)
            && !self.acquire_raised.swap(true, Ordering::Relaxed)
    }
}

#[derive(Clone, Debug)]
pub enum Action {
    Protect(Arc<Policy>),
    Bypass,
    Discard,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub selectors: SelectorSet,
    pub action: Action,
}

/// What to do with an outbound packet.
#[derive(Debug)]
pub enum Decision<'a> {
    Protect(Arc<OutboundSa>),
    Bypass,
    Discard(DropReason),
    /// Protect, but there is no SA yet.
    Acquire(&'a Policy),
}

/// A snapshot: the control plane publishes a new one, workers load it once per burst.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    entries: Vec<Entry>,
}

impl Spd {
    pub fn new(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn find(&self, flow: &Flow) -> Option<(usize, &Action)> {
        let mut entries = self.entries.iter().enumerate();
        let (index, entry) = entries.find(|(_, e)| e.selectors.matches(flow))?;
        Some((index, &entry.action))
    }

    /// Whether an entry before `index` could be the one for this packet if only its ports were known: a later
    /// fragment must not pass in the clear when its datagram would not (RFC 4301 §7.4).
    fn may_belong_before(&self, index: usize, flow: &Flow) -> bool {
        let mut before = self.entries.iter().take(index);
        flow.ports.is_none()
            && before.any(|e| {
                !matches!(e.action, Action::Bypass) && e.selectors.matches_whatever_ports(flow)
            })
    }

    /// The outbound decision (RFC 4301 §5.1).
    pub fn outbound(&self, flow: &Flow) -> Decision<'_> {
        match self.find(flow) {
            None => Decision::Discard(DropReason::NoPolicy),
            Some((_, Action::Discard)) => Decision::Discard(DropReason::PolicyDiscard),
            Some((index, Action::Bypass)) if self.may_belong_before(index, flow) => {
                Decision::Discard(DropReason::PolicyDiscard)
            }
            Some((_, Action::Bypass)) => Decision::Bypass,
            Some((_, Action::Protect(policy))) => match policy.outbound_sa() {
                None => Decision::Acquire(policy),
                Some(sa) if sa.common.selectors.matches(flow) => Decision::Protect(sa),
                Some(_) => Decision::Discard(DropReason::OutsideSaSelectors),
            },
        }
    }

    /// Whether a packet that came without protection may pass (RFC 4301 §5.2, step 3b).
    pub fn inbound_bypass(&self, flow: &Flow) -> Result<(), DropReason> {
        match self.outbound(flow) {
            Decision::Bypass => Ok(()),
            _ => Err(DropReason::NotProtected),
        }
    }
}
