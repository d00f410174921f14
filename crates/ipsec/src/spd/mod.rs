//! The security policy database: an ordered list, first match wins, no match is Discard (RFC 4301 §4.4.1).

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

/// Which packets an entry is for. A Protect entry for inbound packets says that they must come through an SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyDirection {
    #[default]
    Both,
    Outbound,
    Inbound,
}

/// One line of the SPD.
#[derive(Clone, Debug)]
pub struct Entry {
    pub selectors: SelectorSet,
    pub direction: PolicyDirection,
    /// The interface that the entry is bound to, 0 is the common one: see [`Flow::interface`].
    pub interface: u32,
    pub action: Action,
    /// For Protect.
    pub populate: PopulateFromPacket,
    /// For reports; empty if it has none.
    pub name: Arc<str>,
}

impl Entry {
    /// For both directions, on the common interface.
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

/// What to do with an outbound packet.
#[derive(Debug)]
pub enum Decision<'a> {
    Protect(Arc<OutboundSa>),
    Bypass,
    Discard(DropReason),
    /// Protect, but there is no SA yet.
    Acquire(Acquire<'a>),
}

/// A [`Decision`] with what a flow cache needs to keep it.
enum Resolved<'a> {
    Protect {
        sa: Arc<OutboundSa>,
        /// Of the policy's selection that the SA was chosen from.
        generation: u64,
    },
    Bypass,
    Discard(DropReason),
    Acquire {
        entry: u32,
        acquire: Acquire<'a>,
    },
}

/// An SA that is wanting.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    pub policy: &'a Policy,
    /// What to negotiate: the policy's selector, with the fields that come from the packet (PFP).
    pub selector: Selector,
}

impl Acquire<'_> {
    /// The event, once per policy until [`Policy::acquire_done`].
    pub fn raise(&self, flow: &Flow) -> Option<Event> {
        self.policy.raise_acquire().then_some(Event::Acquire {
            policy: self.policy.id,
            flow: *flow,
            selector: self.selector,
        })
    }
}

/// A snapshot: the control plane publishes a new one, workers load it once per burst.
#[derive(Debug)]
pub struct Spd {
    id: u64,
    entries: Vec<Entry>,
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

fn policies(entries: &[Entry]) -> Vec<Arc<Policy>> {
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
    pub fn new(entries: Vec<Entry>) -> Self {
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

    /// Differs from that of every other snapshot.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The policy of this id, if a Protect entry has it.
    pub fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        let at = self.policies.binary_search_by_key(&id, |policy| policy.id);
        self.policies.get(at.ok()?)
    }

    /// Bytes that the compiled form takes.
    pub fn compiled_len(&self) -> usize {
        self.classifier.memory()
    }

    /// The first entry that matches, and its selector that does.
    fn find(&self, flow: &Flow, inbound: bool) -> Option<(u32, &Entry, &Selector)> {
        let found = self.classifier.find(flow, inbound)?;
        let entry = self.entries.get(found.entry as usize)?;
        let selectors = entry.selectors.as_slice();
        Some((
            found.entry,
            entry,
            selectors.get(usize::from(found.selector))?,
        ))
    }

    /// Whether an entry before `index` could be the one for this packet if only its ports were known: a later
    /// fragment must not pass in the clear when its datagram would not (RFC 4301 §7.4).
    fn may_belong_before(&self, index: u32, flow: &Flow, inbound: bool) -> bool {
        let first = || self.classifier.first_possible(flow, inbound, false);
        flow.ports.is_none() && first().is_some_and(|possible| possible.entry < index)
    }

    /// Whether the decision on an outbound datagram depends on ports, or a protocol, that its later fragments do not
    /// have: then it must be put together before (RFC 4301 §7.3). An entry with OPAQUE ports takes fragments as they
    /// are (§7.2).
    pub fn ports_decide(&self, flow: &Flow) -> bool {
        let fragment = Flow {
            ports: None,
            ..*flow
        };
        let Some(possible) = self.classifier.first_possible(&fragment, false, true) else {
            return false;
        };
        let populates = |entry: &Entry| entry.populate.local_port || entry.populate.remote_port;
        let entry = self.entries.get(possible.entry as usize);
        if possible.certain && !entry.is_some_and(populates) {
            return false;
        }
        let found = self.find(&fragment, false);
        !found.is_some_and(|(_, _, selector)| selector.has_opaque_ports())
    }

    /// Asks for the SA that a packet of this flow has not got: once per policy until [`Policy::acquire_done`].
    /// `entry` is [`cache::Verdict::Acquire`]'s.
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

    /// The outbound decision (RFC 4301 §5.1).
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

    /// Whether any entry discards: without one, [`Spd::inbound_discards`] says no to every packet.
    pub fn discards(&self) -> bool {
        self.discards
    }

    /// Whether a packet must not pass although it came through an SA that is for it: the entries are in order, and the
    /// first that matches discards it (RFC 4301 §4.4.1).
    pub fn inbound_discards(&self, flow: &Flow) -> bool {
        let first = self.find(flow, true);
        first.is_some_and(|(_, entry, _)| matches!(entry.action, Action::Discard))
    }

    /// Whether a packet that came without protection may pass (RFC 4301 §5.2, step 3b).
    pub fn inbound_bypass(&self, flow: &Flow) -> Result<(), DropReason> {
        match self.classifier.find(flow, true) {
            Some(found) if found.bypass && !self.may_belong_before(found.entry, flow, true) => {
                Ok(())
            }
            _ => Err(DropReason::NotProtected),
        }
    }
}
