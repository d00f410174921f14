//! The security policy database (RFC 4301 §4.4.1): an ordered list of entries. The first entry that matches a packet
//! decides; a packet that no entry matches is discarded.

pub mod analysis;
pub mod cache;
mod classifier;
pub mod explain;
mod policy;
mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::sa::OutboundSa;
use crate::selector::{Flow, PopulateFromPacket, Selector, SelectorSet};
use classifier::Classifier;

pub use crate::options::PolicyId;
pub(crate) use cache::Located;
pub use cache::{FlowCache, FlowKey, SaSlot, Verdict};
pub use policy::{Policy, SAS_MAX};
pub(crate) use tables::SaTables;

#[derive(Clone, Debug)]
pub enum Action {
    Protect(Arc<Policy>),
    Bypass,
    Discard,
}

/// The direction of the packets that an entry matches. A Protect entry for inbound packets demands that they come
/// through an SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyDirection {
    #[default]
    Both,
    Outbound,
    Inbound,
}

/// An entry of the SPD.
#[derive(Clone, Debug)]
pub struct SpdEntry {
    pub selectors: SelectorSet,
    pub direction: PolicyDirection,
    /// The interface that the entry is bound to; 0 is the common interface. See [`Flow::interface`].
    pub interface: u32,
    pub action: Action,
    /// The fields that SAs of a Protect entry take from the packet.
    pub populate: PopulateFromPacket,
    /// The name in reports; empty if the entry has none.
    pub name: Arc<str>,
}

impl SpdEntry {
    /// Makes an entry for both directions on the common interface.
    pub fn new(selectors: SelectorSet, action: Action) -> Self {
        Self {
            selectors,
            direction: PolicyDirection::Both,
            interface: 0,
            action,
            populate: PopulateFromPacket::NONE,
            name: Arc::from(""),
        }
    }
}

/// The decision about an outbound packet.
#[derive(Debug)]
pub enum Decision<'a> {
    Protect(Arc<OutboundSa>),
    Bypass,
    Discard(DropReason),
    /// The packet must be protected, but there is no SA yet.
    Acquire(Acquire<'a>),
}

/// A [`Decision`] with the data that a flow cache keeps of it.
enum Resolved<'a> {
    Protect {
        sa: Arc<OutboundSa>,
        /// The generation of the policy's selection that the SA was chosen from.
        generation: u64,
    },
    Bypass,
    Discard(DropReason),
    Acquire {
        entry: u32,
        acquire: Acquire<'a>,
    },
}

/// A request for an SA that is missing.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    pub policy: &'a Policy,
    /// The selector to negotiate: the policy's selector, with the fields that come from the packet (PFP).
    pub selector: Selector,
}

impl Acquire<'_> {
    /// Returns the event once per policy, until [`Policy::acquire_done`].
    pub fn raise(&self, flow: &Flow) -> Option<Event> {
        self.policy.raise_acquire().then_some(Event::Acquire {
            policy: self.policy.id,
            flow: *flow,
            selector: self.selector,
        })
    }
}

/// A snapshot of the SPD. The control plane publishes new snapshots, and each worker loads the snapshot once per
/// burst.
#[derive(Debug)]
pub struct Spd {
    id: u64,
    entries: Vec<SpdEntry>,
    /// The policies of the Protect entries, sorted by their ids.
    policies: Vec<Arc<Policy>>,
    classifier: Classifier,
    discards: bool,
}

impl Default for Spd {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

fn policies(entries: &[SpdEntry]) -> Vec<Arc<Policy>> {
    let protecting = entries.iter().filter_map(|entry| match &entry.action {
        Action::Protect(policy) => Some(Arc::clone(policy)),
        Action::Bypass | Action::Discard => None,
    });
    let mut policies: Vec<_> = protecting.collect();
    policies.sort_by_key(|policy| policy.id);
    policies.dedup_by_key(|policy| policy.id);
    policies
}

static SNAPSHOTS: AtomicU64 = AtomicU64::new(1);

impl Spd {
    /// Compiles the entries. SAs are not part of a snapshot: they come and go in the [`Policy`].
    pub fn new(entries: Vec<SpdEntry>) -> Self {
        Self {
            id: SNAPSHOTS.fetch_add(1, Ordering::Relaxed),
            classifier: Classifier::new(&entries),
            discards: entries
                .iter()
                .any(|entry| matches!(entry.action, Action::Discard)),
            policies: policies(&entries),
            entries,
        }
    }

    /// The number of this snapshot. No other snapshot has the same number.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn entries(&self) -> &[SpdEntry] {
        &self.entries
    }

    /// The policy of this id, if a Protect entry has it.
    pub fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        let at = self.policies.binary_search_by_key(&id, |policy| policy.id);
        self.policies.get(at.ok()?)
    }

    /// The number of bytes that the compiled form takes.
    pub fn compiled_len(&self) -> usize {
        self.classifier.memory()
    }

    /// Finds the first entry that matches and its selector that matches.
    fn find(&self, flow: &Flow, inbound: bool) -> Option<(u32, &SpdEntry, &Selector)> {
        let found = self.classifier.find(flow, inbound)?;
        let entry = self.entries.get(found.entry as usize)?;
        let selectors = entry.selectors.as_slice();
        Some((
            found.entry,
            entry,
            selectors.get(usize::from(found.selector))?,
        ))
    }

    /// Returns true if an entry before `index` might match the packet if its ports were known. A later fragment must
    /// not pass in the clear if its datagram would not (RFC 4301 §7.4).
    fn may_belong_before(&self, index: u32, flow: &Flow, inbound: bool) -> bool {
        let first = || self.classifier.first_possible(flow, inbound, false);
        flow.ports.is_none() && first().is_some_and(|possible| possible.entry < index)
    }

    /// Returns true if the decision on an outbound datagram depends on ports or a protocol that its later fragments
    /// lack. The datagram must then be reassembled before the decision (RFC 4301 §7.3). An entry with OPAQUE ports
    /// takes fragments as they are (RFC 4301 §7.2).
    pub fn ports_decide(&self, flow: &Flow) -> bool {
        let fragment = Flow {
            ports: None,
            ..*flow
        };
        let Some(possible) = self.classifier.first_possible(&fragment, false, true) else {
            return false;
        };
        let populates = |entry: &SpdEntry| entry.populate.local_port || entry.populate.remote_port;
        let entry = self.entries.get(possible.entry as usize);
        if possible.certain && !entry.is_some_and(populates) {
            return false;
        }
        let found = self.find(&fragment, false);
        !found.is_some_and(|(_, _, selector)| selector.has_opaque_ports())
    }

    /// Asks for the SA that a packet of this flow lacks, once per policy until [`Policy::acquire_done`]. `entry`
    /// comes from [`cache::Verdict::Acquire`].
    pub fn acquire(&self, entry: u32, flow: &Flow) -> Option<Event> {
        let entry = self.entries.get(entry as usize)?;
        let Action::Protect(policy) = &entry.action else {
            return None;
        };
        if policy.acquire_is_raised() {
            return None;
        }
        let mut selectors = entry.selectors.as_slice().iter();
        let selector = entry
            .populate
            .narrow(selectors.find(|s| s.matches(flow))?, flow);
        Acquire { policy, selector }.raise(flow)
    }

    /// Makes the outbound decision (RFC 4301 §5.1).
    pub fn outbound(&self, flow: &Flow) -> Decision<'_> {
        match self.resolve(flow) {
            Resolved::Protect { sa, .. } => Decision::Protect(sa),
            Resolved::Bypass => Decision::Bypass,
            Resolved::Discard(reason) => Decision::Discard(reason),
            Resolved::Acquire { acquire, .. } => Decision::Acquire(acquire),
        }
    }

    fn resolve(&self, flow: &Flow) -> Resolved<'_> {
        let Some((index, entry, selector)) = self.find(flow, false) else {
            return Resolved::Discard(DropReason::NoPolicy);
        };
        match &entry.action {
            Action::Discard => Resolved::Discard(DropReason::PolicyDiscard),
            Action::Bypass if self.may_belong_before(index, flow, false) => {
                Resolved::Discard(DropReason::PolicyDiscard)
            }
            Action::Bypass => Resolved::Bypass,
            Action::Protect(policy) => {
                let selection = policy.selection();
                if let Some(sa) = selection.find(flow) {
                    let (sa, generation) = (Arc::clone(sa), selection.generation());
                    return Resolved::Protect { sa, generation };
                }
                if !selection.is_empty() && entry.populate.is_none() {
                    return Resolved::Discard(DropReason::OutsideSaSelectors);
                }
                let selector = entry.populate.narrow(selector, flow);
                Resolved::Acquire {
                    entry: index,
                    acquire: Acquire { policy, selector },
                }
            }
        }
    }

    /// Returns true if any entry discards. Otherwise [`Spd::inbound_discards`] returns false for every packet.
    pub fn discards(&self) -> bool {
        self.discards
    }

    /// Returns true if a packet must not pass although it came through an SA that is for it. This is so if the first
    /// entry that matches discards the packet (RFC 4301 §4.4.1).
    pub fn inbound_discards(&self, flow: &Flow) -> bool {
        let first = self.find(flow, true);
        first.is_some_and(|(_, entry, _)| matches!(entry.action, Action::Discard))
    }

    /// Returns an error unless a packet that came without protection may pass (RFC 4301 §5.2, step 3b).
    pub fn inbound_bypass(&self, flow: &Flow) -> Result<(), DropReason> {
        match self.classifier.find(flow, true) {
            Some(found) if found.bypass && !self.may_belong_before(found.entry, flow, true) => {
                Ok(())
            }
            _ => Err(DropReason::NotProtected),
        }
    }
}
