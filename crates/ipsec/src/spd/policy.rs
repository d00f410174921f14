//! The policy of a Protect entry: the SAs that carry its traffic.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::UnservedDrops;
use crate::event::Event;
use crate::options::PolicyId;
use crate::sa::OutboundSa;
use crate::selector::{AddressRange, Flow, Selector};

/// The most SAs that a policy sends with. One more SA displaces the oldest, whose traffic then asks for a new SA.
pub const SAS_MAX: usize = 1024;

/// The policy of a Protect entry. It outlives the SPD snapshots that refer to it, and holds the SAs in use. There are
/// several SAs where peers or PFP narrowed the selectors, or where DSCPs have SAs of their own (RFC 4301 §4.1).
#[derive(Debug)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    outbound: ArcSwap<Selection>,
    /// The lock of the control plane. The packet path never takes it.
    changing: Mutex<()>,
    acquire_raised: AtomicBool,
    unserved: Arc<UnservedDrops>,
}

/// The SAs of a policy at one moment, newest first.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// A number that no other selection of any policy has. It is 0 for the first selection, which is empty.
    generation: u64,
    sas: Vec<Arc<OutboundSa>>,
    /// SAs that have retired. They carry what no other SA does.
    leaving: Vec<Arc<OutboundSa>>,
}

impl Selection {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sas.is_empty() && self.leaving.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<OutboundSa>> {
        self.sas.iter().chain(&self.leaving)
    }

    /// Finds the newest SA whose selectors match the packet, and prefers one for its DSCP. Any of these SAs may carry
    /// the packet, because the receiver does not look at DSCPs (RFC 4301 §4.1).
    pub(super) fn find(&self, flow: &Flow) -> Option<&Arc<OutboundSa>> {
        let mut other = None;
        let fit = |sa: &&Arc<OutboundSa>| sa.common.selectors.matches(flow);
        for sa in self.all().filter(fit) {
            if sa.common.dscp.contains(flow.dscp) {
                return Some(sa);
            }
            other = other.or(Some(sa));
        }
        other
    }
}

static GENERATIONS: AtomicU64 = AtomicU64::new(FIRST_GENERATION);
/// The first generation of a selection. A flow cache uses smaller numbers for decisions without an SA.
pub(super) const FIRST_GENERATION: u64 = 256;

impl Policy {
    pub fn new(id: PolicyId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            outbound: ArcSwap::default(),
            changing: Mutex::new(()),
            acquire_raised: AtomicBool::new(false),
            unserved: Arc::default(),
        }
    }

    /// Has the packets that find no SA counted together with those of other policies.
    #[must_use]
    pub fn with_unserved(self, unserved: Arc<UnservedDrops>) -> Self {
        Self { unserved, ..self }
    }

    /// The packets of the policy that none of its SAs carried.
    pub fn unserved(&self) -> &UnservedDrops {
        &self.unserved
    }

    /// Sends with `sa` from now on. The SA replaces an SA with the same selectors and DSCPs, which the function
    /// returns. This is the switch of a rekey (RFC 7296 §2.8): the former inbound SA stays in the SAD until it is
    /// removed there. Other SAs stay, and carry what `sa` does not.
    pub fn install(&self, sa: Arc<OutboundSa>) -> Option<Arc<OutboundSa>> {
        let former = self.change(|Selection { sas, .. }| {
            let same = |old: &Arc<OutboundSa>| {
                old.common.selectors == sa.common.selectors && old.common.dscp == sa.common.dscp
            };
            let former = sas.iter().position(same).map(|at| sas.remove(at));
            sas.insert(0, sa);
            former.or_else(|| (sas.len() > SAS_MAX).then(|| sas.pop())?)
        });
        self.acquire_done();
        former
    }

    /// Stops sending with the SA of this SPI. All other SAs stay in place.
    pub fn remove(&self, spi: u32) -> Option<Arc<OutboundSa>> {
        let has = |sa: &Arc<OutboundSa>| sa.common.spi == spi;
        if !self.outbound.load().sas.iter().any(has) {
            return None;
        }
        self.change(|Selection { sas, .. }| sas.iter().position(has).map(|at| sas.remove(at)))
    }

    /// Has exactly this SA send only what no other SA of the policy can, until [`Self::let_go`]. The SPD may have to be
    /// published before these packets find an SA of another policy. The SPI would not do: it is the peer's choice, and
    /// another SA may have the same SPI.
    pub fn retire(&self, sa: &Arc<OutboundSa>) {
        let is = |other: &Arc<OutboundSa>| Arc::ptr_eq(other, sa);
        if self.outbound.load().sas.iter().any(is) {
            self.change(|Selection { sas, leaving, .. }| {
                sas.retain(|other| !is(other));
                leaving.push(Arc::clone(sa));
            });
        }
    }

    /// Stops sending with the SAs that have retired.
    pub fn let_go(&self) {
        if !self.outbound.load().leaving.is_empty() {
            self.change(|Selection { leaving, .. }| leaving.clear());
        }
    }

    /// Replaces the selection. SAs of the former and of the new selection drop out of all flow caches. The order of
    /// the stores matters: a reader that still chose from the former selection stores its generation, which no SA
    /// carries any more. Only one change runs at a time, or a former generation could come back.
    fn change<T>(&self, edit: impl FnOnce(&mut Selection) -> T) -> T {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let former = self.outbound.load_full();
        let mut now = Selection {
            generation,
            sas: former.sas.clone(),
            leaving: former.leaving.clone(),
        };
        let result = edit(&mut now);
        let now = Arc::new(now);
        self.outbound.store(Arc::clone(&now));
        for sa in former.all().chain(now.all()) {
            sa.selection.store(generation, Ordering::Release);
        }
        result
    }

    /// The newest SA in use that has not retired, whatever its selectors are.
    pub fn outbound_sa(&self) -> Option<Arc<OutboundSa>> {
        self.outbound.load().sas.first().cloned()
    }

    /// The SA for a packet of this flow.
    pub fn outbound_sa_for(&self, flow: &Flow) -> Option<Arc<OutboundSa>> {
        self.outbound.load().find(flow).cloned()
    }

    /// All SAs in use, newest first, without those that have retired.
    pub fn outbound_sas(&self) -> Vec<Arc<OutboundSa>> {
        self.outbound.load().sas.clone()
    }

    pub(super) fn selection(&self) -> arc_swap::Guard<Arc<Selection>> {
        self.outbound.load()
    }

    /// Allows the next packet without an SA to raise an acquire again.
    pub fn acquire_done(&self) {
        self.acquire_raised.store(false, Ordering::Relaxed);
    }

    /// Returns true if traffic has asked for an SA and nobody has answered yet.
    pub fn acquire_is_raised(&self) -> bool {
        self.acquire_raised.load(Ordering::Relaxed)
    }

    /// Asks once for an SA between the two ends of a packet that another SA has sealed.
    pub(crate) fn acquire_for_nested(&self, flow: &Flow) -> Option<Event> {
        let ends = Selector::between(
            AddressRange::host(flow.local),
            AddressRange::host(flow.remote),
        );
        self.raise_acquire().then_some(Event::Acquire {
            policy: self.id,
            flow: *flow,
            selector: ends,
        })
    }

    /// Returns true for the first packet that finds no SA.
    pub(crate) fn raise_acquire(&self) -> bool {
        !self.acquire_is_raised() && !self.acquire_raised.swap(true, Ordering::Relaxed)
    }
}
