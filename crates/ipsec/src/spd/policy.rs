//! A Protect entry's policy: the SAs that carry its traffic.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::event::Event;
use crate::options::PolicyId;
use crate::sa::OutboundSa;
use crate::selector::{AddressRange, Flow, Selector};

/// More SAs than this a policy does not send with: the oldest gives way. Its traffic asks for a new one.
pub const SAS_MAX: usize = 1024;

/// A Protect entry's policy. It outlives the SPD snapshots that refer to it, and holds the SAs in use: several where
/// peers or PFP narrowed the selectors, or where DSCPs have SAs of their own (RFC 4301 §4.1).
#[derive(Debug)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    outbound: ArcSwap<Selection>,
    /// Held by the control plane only; packets never wait for it.
    changing: Mutex<()>,
    acquire_raised: AtomicBool,
}

/// The SAs of a policy at one time, newest first.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Differs from that of every other selection of every policy; none for the first, empty one.
    generation: u64,
    sas: Vec<Arc<OutboundSa>>,
}

impl Selection {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sas.is_empty()
    }

    /// The newest SA for a packet of these selectors, one for its DSCP rather than another: any of them may carry it,
    /// as the receiver does not look at DSCPs (RFC 4301 §4.1).
    pub(super) fn find(&self, flow: &Flow) -> Option<&Arc<OutboundSa>> {
        let mut other = None;
        let fit = |sa: &&Arc<OutboundSa>| sa.common.selectors.matches(flow);
        for sa in self.sas.iter().filter(fit) {
            if sa.common.dscp.contains(flow.dscp) {
                return Some(sa);
            }
            other = other.or(Some(sa));
        }
        other
    }
}

static GENERATIONS: AtomicU64 = AtomicU64::new(FIRST_GENERATION);
/// Those below mean something else in a flow cache.
pub(super) const FIRST_GENERATION: u64 = 256;

impl Policy {
    pub fn new(id: PolicyId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            outbound: ArcSwap::default(),
            changing: Mutex::new(()),
            acquire_raised: AtomicBool::new(false),
        }
    }

    /// Sends from now on with `sa`. It takes the place of an SA with the same selectors and DSCPs, which is given
    /// back; this is the switch of a rekey (RFC 7296 §2.8): the former inbound SA stays in the SAD until it is removed
    /// there. Others stay, and carry what `sa` does not.
    pub fn install(&self, sa: Arc<OutboundSa>) -> Option<Arc<OutboundSa>> {
        let former = self.change(|sas| {
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

    /// Stops sending with the SA of this SPI; leaves all others in place.
    pub fn remove(&self, spi: u32) -> Option<Arc<OutboundSa>> {
        let has = |sa: &Arc<OutboundSa>| sa.common.spi == spi;
        if !self.outbound.load().sas.iter().any(has) {
            return None;
        }
        self.change(|sas| sas.iter().position(has).map(|at| sas.remove(at)))
    }

    /// Stops sending with this very SA: its SPI is the peer's choice, and another SA may have the same one.
    pub fn withdraw(&self, sa: &Arc<OutboundSa>) {
        let is = |other: &Arc<OutboundSa>| Arc::ptr_eq(other, sa);
        if self.outbound.load().sas.iter().any(is) {
            self.change(|sas| sas.retain(|other| !is(other)));
        }
    }

    /// Replaces the selection; SAs of the former and of the new one drop out of all flow caches. In this order a
    /// reader that still chose from the former one has its generation, which no SA carries any more. One change at a
    /// time, or a former generation could come back.
    fn change<T>(&self, edit: impl FnOnce(&mut Vec<Arc<OutboundSa>>) -> T) -> T {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let former = self.outbound.load_full();
        let mut sas = former.sas.clone();
        let result = edit(&mut sas);
        let now = Arc::new(Selection { generation, sas });
        self.outbound.store(Arc::clone(&now));
        for sa in former.sas.iter().chain(&now.sas) {
            sa.selection.store(generation, Ordering::Release);
        }
        result
    }

    /// The newest SA in use, whatever it is for.
    pub fn outbound_sa(&self) -> Option<Arc<OutboundSa>> {
        self.outbound.load().sas.first().cloned()
    }

    /// The SA for this packet.
    pub fn outbound_sa_for(&self, flow: &Flow) -> Option<Arc<OutboundSa>> {
        self.outbound.load().find(flow).cloned()
    }

    /// All SAs in use, newest first.
    pub fn outbound_sas(&self) -> Vec<Arc<OutboundSa>> {
        self.outbound.load().sas.clone()
    }

    pub(super) fn selection(&self) -> arc_swap::Guard<Arc<Selection>> {
        self.outbound.load()
    }

    /// The next packet without an SA raises an acquire again.
    pub fn acquire_done(&self) {
        self.acquire_raised.store(false, Ordering::Relaxed);
    }

    /// Whether traffic has asked for an SA, and nobody has answered yet.
    pub fn acquire_is_raised(&self) -> bool {
        self.acquire_raised.load(Ordering::Relaxed)
    }

    /// For a packet that another SA has sealed: asks once for an SA between its two ends.
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

    /// True for the first packet that finds no SA.
    pub(crate) fn raise_acquire(&self) -> bool {
        !self.acquire_is_raised() && !self.acquire_raised.swap(true, Ordering::Relaxed)
    }
}
