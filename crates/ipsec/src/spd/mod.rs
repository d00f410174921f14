//! The security policy database (RFC 4301 §4.4.1): an ordered list of entries. The first entry that matches a packet
//! decides; a packet that no entry matches is discarded.

mod book;
pub mod cache;
mod classifier;
mod entry_set;
mod levels;
mod policy;
mod snapshot;
mod tables;
mod unserved;

use std::sync::Arc;

use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::sa::OutboundSa;
use crate::selector::{Flow, PopulateFromPacket, Selector, SelectorSet};

pub use crate::options::PolicyId;
pub use book::{LevelMerge, MergedLevel, ReplacedLevels, SpdBook};
pub(crate) use cache::Located;
pub use cache::{FlowCache, FlowKey, SaSlot, Verdict};
pub use policy::{Policy, SAS_MAX};
pub use snapshot::Spd;
pub(crate) use tables::SaTables;
pub(crate) use unserved::Stripe;
pub use unserved::UnservedDrops;

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

    /// The number of selectors.
    fn rules(&self) -> usize {
        self.selectors.as_slice().len()
    }

    fn discards(&self) -> bool {
        matches!(self.action, Action::Discard)
    }

    fn policy(&self) -> Option<&Arc<Policy>> {
        match &self.action {
            Action::Protect(policy) => Some(policy),
            Action::Bypass | Action::Discard => None,
        }
    }
}

/// The place of an entry in the order of the SPD. The lowest place comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace(pub u128);

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
    /// The policy's SAs are for narrower selectors.
    Outside {
        entry: u32,
    },
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
