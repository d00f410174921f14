//! A snapshot of the SPD, and the searches in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::classifier::{Match, Possible};
use super::levels::{Compiled, Level};
use super::{Acquire, Action, Decision, EntryPlace, Policy, Resolved, SpdEntry, Stripe};
use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::options::PolicyId;
use crate::selector::{Flow, Selector};

/// A snapshot of the SPD. The control plane publishes new snapshots, and each worker loads the snapshot once per
/// burst.
#[derive(Debug)]
pub struct Spd {
    pub(super) id: u64,
    levels: Box<[Level]>,
    /// All entries in order, for those who do not search. They are gathered at the first use.
    ordered: OnceLock<OrderedEntries>,
    discards: bool,
}

#[derive(Debug)]
struct OrderedEntries {
    places: Vec<EntryPlace>,
    entries: Vec<SpdEntry>,
}

/// The first entry that matches a packet, and its selector that matches.
struct Found<'a> {
    place: EntryPlace,
    entry: &'a SpdEntry,
    selector: &'a Selector,
}

impl Default for Spd {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

static SNAPSHOTS: AtomicU64 = AtomicU64::new(1);

impl Spd {
    /// Compiles the entries. SAs are not part of a snapshot: they come and go in the [`Policy`].
    pub fn new(entries: Vec<SpdEntry>) -> Self {
        let placed = (0..).map(EntryPlace).zip(entries).collect();
        Self::of(vec![Level::new(Arc::new(Compiled::new(placed)))])
    }

    pub(super) fn of(levels: Vec<Level>) -> Self {
        Self {
            id: SNAPSHOTS.fetch_add(1, Ordering::Relaxed),
            discards: levels.iter().any(Level::discards),
            levels: levels.into(),
            ordered: OnceLock::new(),
        }
    }

    /// The number of this snapshot. No other snapshot has the same number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The entries in order. The first call gathers them.
    pub fn entries(&self) -> &[SpdEntry] {
        &self.ordered().entries
    }

    fn ordered(&self) -> &OrderedEntries {
        self.ordered.get_or_init(|| {
            let mut all: Vec<_> = self.levels.iter().flat_map(Level::standing).collect();
            all.sort_by_key(|(place, _)| *place);
            OrderedEntries {
                places: all.iter().map(|(place, _)| *place).collect(),
                entries: all.into_iter().map(|(_, entry)| entry.clone()).collect(),
            }
        })
    }

    /// The policy of this id, if a Protect entry has it.
    pub fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        self.levels.iter().find_map(|level| level.policy(id))
    }

    /// The number of levels that a lookup searches.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The number of bytes that the compiled form takes.
    pub fn compiled_len(&self) -> usize {
        self.levels.iter().map(Level::memory).sum()
    }

    /// Finds the first entry that matches, and the level that it is in.
    #[inline]
    fn locate(&self, flow: &Flow, inbound: bool) -> Option<(&Level, Match)> {
        let mut first: Option<(&Level, Match)> = None;
        for level in &self.levels {
            let Some(found) = level.find(flow, inbound) else {
                continue;
            };
            let is_later = first.is_some_and(|(other, before)| {
                other.place(before.entry) < level.place(found.entry)
            });
            if !is_later {
                first = Some((level, found));
            }
        }
        first
    }

    fn find(&self, flow: &Flow, inbound: bool) -> Option<Found<'_>> {
        let (level, found) = self.locate(flow, inbound)?;
        let entry = level.entry(found.entry)?;
        let selectors = entry.selectors.as_slice();
        Some(Found {
            place: level.place(found.entry)?,
            entry,
            selector: selectors.get(usize::from(found.selector))?,
        })
    }

    /// Finds the first entry that might match a packet, of which some fields are hidden.
    fn first_possible(
        &self,
        flow: &Flow,
        inbound: bool,
        bypass: bool,
    ) -> Option<(EntryPlace, &SpdEntry, Possible)> {
        let of_levels = self.levels.iter().filter_map(|level| {
            let possible = level.first_possible(flow, inbound, bypass)?;
            let entry = level.entry(possible.entry)?;
            Some((level.place(possible.entry)?, entry, possible))
        });
        of_levels.min_by_key(|(place, ..)| *place)
    }

    /// The number, in [`Self::entries`], of the first entry that might match a packet and is not Bypass.
    pub fn first_to_hold(&self, flow: &Flow, inbound: bool) -> Option<usize> {
        let (place, ..) = self.first_possible(flow, inbound, false)?;
        self.ordered().places.binary_search(&place).ok()
    }

    /// The number of an entry in this snapshot.
    fn number(&self, place: EntryPlace) -> Option<u32> {
        let mut before = 0;
        for level in &self.levels {
            if let Some(at) = level.position(place) {
                return Some(before + at);
            }
            before += level.len() as u32;
        }
        None
    }

    /// The entry of a number in this snapshot.
    fn numbered(&self, number: u32) -> Option<&SpdEntry> {
        let mut number = number;
        for level in &self.levels {
            match number.checked_sub(level.len() as u32) {
                None => return level.entry(number),
                Some(behind) => number = behind,
            }
        }
        None
    }

    /// Returns true if an entry before `place` might match the packet if its ports were known. A later fragment must
    /// not pass in the clear if its datagram would not (RFC 4301 §7.4).
    fn may_belong_before(&self, place: EntryPlace, flow: &Flow, inbound: bool) -> bool {
        let first = || self.first_possible(flow, inbound, false);
        flow.ports.is_none() && first().is_some_and(|(possible, ..)| possible < place)
    }

    /// Returns true if the decision on an outbound datagram depends on ports or a protocol that its later fragments
    /// lack. The datagram must then be reassembled before the decision (RFC 4301 §7.3). An entry with OPAQUE ports
    /// takes fragments as they are (RFC 4301 §7.2).
    pub fn ports_decide(&self, flow: &Flow) -> bool {
        let fragment = Flow {
            ports: None,
            ..*flow
        };
        let Some((_, entry, possible)) = self.first_possible(&fragment, false, true) else {
            return false;
        };
        let populates = entry.populate.local_port || entry.populate.remote_port;
        if possible.certain && !populates {
            return false;
        }
        let found = self.find(&fragment, false);
        !found.is_some_and(|found| found.selector.has_opaque_ports())
    }

    /// Asks for the SA that a packet of this flow lacks, once per policy until [`Policy::acquire_done`]. `entry`
    /// comes from [`super::Verdict::Acquire`].
    pub fn acquire(&self, entry: u32, flow: &Flow) -> Option<Event> {
        let entry = self.numbered(entry)?;
        let policy = entry.policy()?;
        if policy.acquire_is_raised() {
            return None;
        }
        let mut selectors = entry.selectors.as_slice().iter();
        let selector = entry
            .populate
            .narrow(selectors.find(|s| s.matches(flow))?, flow);
        Acquire { policy, selector }.raise(flow)
    }

    /// Counts packets of a Protect entry that none of its SAs carries. `entry` comes from a [`super::Verdict`].
    pub(crate) fn count_unserved(
        &self,
        entry: u32,
        reason: DropReason,
        packets: u64,
        stripe: Stripe,
    ) {
        if let Some(policy) = self.numbered(entry).and_then(SpdEntry::policy) {
            policy.unserved().add(stripe, reason, packets);
        }
    }

    /// Makes the outbound decision (RFC 4301 §5.1).
    pub fn outbound(&self, flow: &Flow) -> Decision<'_> {
        match self.resolve(flow) {
            Resolved::Protect { sa, .. } => Decision::Protect(sa),
            Resolved::Bypass => Decision::Bypass,
            Resolved::Discard(reason) => Decision::Discard(reason),
            Resolved::Outside { .. } => Decision::Discard(DropReason::OutsideSaSelectors),
            Resolved::Acquire { acquire, .. } => Decision::Acquire(acquire),
        }
    }

    pub(super) fn resolve(&self, flow: &Flow) -> Resolved<'_> {
        let Some(found) = self.find(flow, false) else {
            return Resolved::Discard(DropReason::NoPolicy);
        };
        let entry = found.entry;
        match &entry.action {
            Action::Discard => Resolved::Discard(DropReason::PolicyDiscard),
            Action::Bypass if self.may_belong_before(found.place, flow, false) => {
                Resolved::Discard(DropReason::PolicyDiscard)
            }
            Action::Bypass => Resolved::Bypass,
            Action::Protect(policy) => {
                let selection = policy.selection();
                if let Some(sa) = selection.find(flow) {
                    let (sa, generation) = (Arc::clone(sa), selection.generation());
                    return Resolved::Protect { sa, generation };
                }
                let number = self.number(found.place).unwrap_or(u32::MAX);
                if !selection.is_empty() && entry.populate.is_none() {
                    return Resolved::Outside { entry: number };
                }
                let selector = entry.populate.narrow(found.selector, flow);
                Resolved::Acquire {
                    entry: number,
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
        first.is_some_and(|found| found.entry.discards())
    }

    /// Returns an error unless a packet that came without protection may pass (RFC 4301 §5.2, step 3b).
    pub fn inbound_bypass(&self, flow: &Flow) -> Result<(), DropReason> {
        let first = self.locate(flow, true);
        let passed = first.filter(|(_, found)| found.bypass);
        let place = passed.and_then(|(level, found)| level.place(found.entry));
        match place {
            Some(place) if !self.may_belong_before(place, flow, true) => Ok(()),
            _ => Err(DropReason::NotProtected),
        }
    }
}
