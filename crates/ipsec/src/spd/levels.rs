//! The compiled parts of an SPD: entries that were compiled together, and which of them were taken out since.

use std::sync::Arc;

use super::classifier::{Classifier, Match, Possible};
use super::entry_set::EntrySet;
use super::{EntryPlace, Policy, SpdEntry};
use crate::options::PolicyId;
use crate::selector::Flow;

/// Entries that were compiled together, in their order.
#[derive(Debug)]
pub(super) struct Compiled {
    places: Vec<EntryPlace>,
    entries: Vec<SpdEntry>,
    /// The Protect entries, sorted by the ids of their policies.
    policies: Vec<(PolicyId, u32)>,
    classifier: Classifier,
    /// The number of selectors of all entries.
    rules: usize,
}

impl Compiled {
    /// Compiles entries. Their places are in order.
    pub(super) fn new(placed: Vec<(EntryPlace, SpdEntry)>) -> Self {
        let (places, entries): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        let protect = entries.iter().zip(0..).filter_map(|(entry, index)| {
            let policy = entry.policy()?;
            Some((policy.id, index))
        });
        let mut policies: Vec<_> = protect.collect();
        policies.sort_unstable();
        Self {
            policies,
            classifier: Classifier::new(&entries),
            rules: entries.iter().map(SpdEntry::rules).sum(),
            places,
            entries,
        }
    }

    pub(super) fn rules(&self) -> usize {
        self.rules
    }
}

/// A part of an SPD. Levels are searched one after the other, and the lowest place decides.
#[derive(Clone, Debug)]
pub(super) struct Level {
    compiled: Arc<Compiled>,
    removed: Arc<EntrySet>,
    /// The entries that stand, and their selectors.
    entries: usize,
    rules: usize,
    /// The Discard entries that stand.
    discards: usize,
}

impl Level {
    pub(super) fn new(compiled: Arc<Compiled>) -> Self {
        let discards = compiled.entries.iter().filter(|entry| entry.discards());
        Self {
            removed: Arc::default(),
            entries: compiled.entries.len(),
            rules: compiled.rules,
            discards: discards.count(),
            compiled,
        }
    }

    /// Takes an entry out. Returns false if none stands at this place.
    pub(super) fn remove(&mut self, place: EntryPlace) -> bool {
        let Some(at) = self.position(place) else {
            return false;
        };
        let Some(entry) = self.compiled.entries.get(at as usize) else {
            return false;
        };
        self.entries -= 1;
        self.rules -= entry.rules();
        self.discards -= usize::from(entry.discards());
        Arc::make_mut(&mut self.removed).add(at);
        true
    }

    /// The number of the entry that stands at this place.
    pub(super) fn position(&self, place: EntryPlace) -> Option<u32> {
        let at = self.compiled.places.binary_search(&place).ok()? as u32;
        (!self.removed.has(at)).then_some(at)
    }

    /// The number of selectors that stand.
    pub(super) fn rules(&self) -> usize {
        self.rules
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Tells whether most of what was compiled is gone.
    pub(super) fn is_mostly_removed(&self) -> bool {
        self.entries * 2 < self.compiled.entries.len() || self.rules * 2 < self.compiled.rules
    }

    pub(super) fn is_held_once(&self) -> bool {
        Arc::strong_count(&self.compiled) == 1
    }

    pub(super) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    pub(super) fn discards(&self) -> bool {
        self.discards > 0
    }

    /// The number of entries, with those that were taken out.
    pub(super) fn len(&self) -> usize {
        self.compiled.entries.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.compiled.classifier.memory()
    }

    /// The entries that stand, in their order.
    pub(super) fn standing(&self) -> impl Iterator<Item = (EntryPlace, &SpdEntry)> {
        let all = self.compiled.places.iter().zip(&self.compiled.entries);
        let standing = all.zip(0..).filter(|(_, at)| !self.removed.has(*at));
        standing.map(|((place, entry), _)| (*place, entry))
    }

    #[inline]
    pub(super) fn find(&self, flow: &Flow, inbound: bool) -> Option<Match> {
        self.compiled.classifier.find(flow, inbound, &self.removed)
    }

    pub(super) fn first_possible(
        &self,
        flow: &Flow,
        inbound: bool,
        bypass: bool,
    ) -> Option<Possible> {
        let classifier = &self.compiled.classifier;
        classifier.first_possible(flow, inbound, bypass, &self.removed)
    }

    pub(super) fn place(&self, entry: u32) -> Option<EntryPlace> {
        self.compiled.places.get(entry as usize).copied()
    }

    pub(super) fn entry(&self, entry: u32) -> Option<&SpdEntry> {
        self.compiled.entries.get(entry as usize)
    }

    pub(super) fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        let policies = &self.compiled.policies;
        let from = policies.partition_point(|(of, _)| *of < id);
        let own = policies.iter().skip(from).take_while(|(of, _)| *of == id);
        let mut standing = own.filter(|(_, entry)| !self.removed.has(*entry));
        self.entry(standing.next()?.1)?.policy()
    }
}
