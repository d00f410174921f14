//! An SPD that changes by differences.
//!
//! Entries that come make a new level, and levels of similar size are merged, as in a log-structured merge tree
//! (O'Neil and others, 1996). So each entry is compiled a few times, however many there are. An entry that goes is
//! marked. A level is compiled anew when most of it is gone.
//!
//! A merge of few entries is made at once. A large one is handed out as a [`LevelMerge`], which any thread can run, so
//! that nobody waits for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::levels::{Compiled, Level};
use super::{EntryPlace, Spd, SpdEntry};

/// Most selectors of a merge that is made at once.
const MERGED_AT_ONCE_MAX: usize = 1024;

/// The entries of an SPD, and their compiled form.
#[derive(Debug, Default)]
pub struct SpdBook {
    levels: Vec<Level>,
    /// Entries that are not compiled yet.
    added: BTreeMap<EntryPlace, SpdEntry>,
    has_changed: bool,
    /// The merge that is under way.
    merging: Option<Merging>,
    compiled_rules: u64,
}

#[derive(Debug)]
struct Merging {
    levels: Vec<Level>,
    /// Entries of these levels that went meanwhile.
    removed: Vec<EntryPlace>,
}

/// The work of merging levels.
#[derive(Debug)]
pub struct LevelMerge(Vec<Level>);

/// The result of a [`LevelMerge`].
#[derive(Debug)]
pub struct MergedLevel(Arc<Compiled>);

/// Levels whose entries are in another one now. Freeing them takes time in proportion to their number, so the last one
/// that holds them should be nobody who has other work to do.
#[derive(Debug)]
#[must_use]
pub struct ReplacedLevels(Vec<Level>);

impl ReplacedLevels {
    /// Says whether no snapshot has these levels any more.
    pub fn are_unused(&self) -> bool {
        self.0.iter().all(Level::is_held_once)
    }
}

impl LevelMerge {
    /// Compiles the entries of all the levels. This takes time in proportion to their number.
    pub fn run(self) -> MergedLevel {
        MergedLevel(Arc::new(Compiled::new(standing(&self.0))))
    }
}

/// The entries that stand in any of the levels, in order.
fn standing(levels: &[Level]) -> Vec<(EntryPlace, SpdEntry)> {
    let of_levels = levels.iter().flat_map(Level::standing);
    let mut all: Vec<_> = of_levels
        .map(|(place, entry)| (place, entry.clone()))
        .collect();
    all.sort_by_key(|(place, _)| *place);
    all
}

impl SpdBook {
    /// Adds an entry. There must be no other one at its place.
    pub fn add(&mut self, place: EntryPlace, entry: SpdEntry) {
        self.added.insert(place, entry);
        self.has_changed = true;
    }

    /// Removes the entry at a place. Returns false if there is none.
    pub fn remove(&mut self, place: EntryPlace) -> bool {
        let removed = self.added.remove(&place).is_some()
            || self.levels.iter_mut().any(|level| level.remove(place));
        self.has_changed |= removed;
        if removed && let Some(merging) = &mut self.merging {
            merging.removed.push(place);
        }
        removed
    }

    /// Returns a snapshot, unless nothing has changed since the last one.
    pub fn take_snapshot(&mut self) -> Option<Spd> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        self.levels.retain(|level| !level.is_empty());
        let added = std::mem::take(&mut self.added);
        if !added.is_empty() {
            self.compile(added.into_iter().collect());
        }
        self.merge_few();
        Some(Spd::of(self.levels.clone()))
    }

    /// Returns the merge that is due, if it is too large to be made at once and no other one is under way.
    pub fn take_merge(&mut self) -> Option<LevelMerge> {
        if self.merging.is_some() {
            return None;
        }
        self.sort();
        let due = Self::due(&self.levels)?;
        let levels = self.levels.split_off(due);
        self.levels.extend_from_slice(&levels);
        self.merging = Some(Merging {
            levels: levels.clone(),
            removed: Vec::new(),
        });
        Some(LevelMerge(levels))
    }

    /// Takes the result of the merge that is under way.
    pub fn merged(&mut self, MergedLevel(compiled): MergedLevel) -> ReplacedLevels {
        let Some(merging) = self.merging.take() else {
            return ReplacedLevels(Vec::new());
        };
        self.levels
            .retain(|level| !merging.levels.iter().any(|merged| merged.is_of(level)));
        self.compiled_rules += compiled.rules() as u64;
        let mut level = Level::new(compiled);
        for place in merging.removed {
            level.remove(place);
        }
        self.levels.push(level);
        self.has_changed = true;
        ReplacedLevels(merging.levels)
    }

    /// The number of selectors that were compiled so far, each as often as it was compiled.
    pub fn compiled_rules(&self) -> u64 {
        self.compiled_rules
    }

    fn compile(&mut self, placed: Vec<(EntryPlace, SpdEntry)>) {
        let compiled = Compiled::new(placed);
        self.compiled_rules += compiled.rules() as u64;
        self.levels.push(Level::new(Arc::new(compiled)));
    }

    /// Merges those of the smallest levels that have few selectors.
    fn merge_few(&mut self) {
        self.sort();
        let (mut sum, mut few) = (0, self.levels.len());
        for (index, level) in self.levels.iter().enumerate().rev() {
            sum += level.rules();
            if sum > MERGED_AT_ONCE_MAX || self.is_merging(level) {
                break;
            }
            few = index;
        }
        let small = self.levels.get(few..).unwrap_or(&[]);
        if let Some(due) = Self::due(small) {
            let merged = self.levels.split_off(few + due);
            self.compile(standing(&merged));
        }
    }

    fn sort(&mut self) {
        self.levels.sort_by_key(|level| Reverse(level.rules()));
    }

    fn is_merging(&self, level: &Level) -> bool {
        let mut merging = self.merging.iter().flat_map(|merging| &merging.levels);
        merging.any(|merged| merged.is_of(level))
    }

    /// Returns the first of the levels that are to be merged with all behind it: those behind have at least half as many
    /// selectors as it has. Afterwards each level is more than twice as large as all smaller ones together. A level of
    /// which most is gone is to be compiled anew.
    fn due(levels: &[Level]) -> Option<usize> {
        let (mut behind, mut due) = (0, None);
        for (index, level) in levels.iter().enumerate().rev() {
            let joined = index + 1 < levels.len() && behind * 2 >= level.rules();
            if joined || level.is_mostly_removed() {
                due = Some(index);
            }
            behind += level.rules();
        }
        due
    }
}
