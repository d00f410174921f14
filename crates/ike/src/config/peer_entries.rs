//! The selectors of single peers, for a connection with many peers.

use std::cmp::Reverse;
use std::ops::Deref;

use super::{Identity, Selector};
use crate::identity_table::IdentityTable;

/// The traffic that peers with a certain identity may have (RFC 4301 §4.4.3.3).
#[derive(Clone, Debug)]
pub struct PeerEntry {
    /// An identity or a pattern.
    pub id: Identity,
    /// The remote selectors of every child are narrowed to these. No other peer gets what one identity has here.
    pub remote_ts: Vec<Selector>,
}

/// The entries of a connection. The one that names a peer most exactly counts; of equal ones, the first. Every request for
/// a child SA asks for it: a table finds it among many.
#[derive(Clone, Debug, Default)]
pub struct PeerEntries {
    entries: Vec<PeerEntry>,
    by_id: IdentityTable,
}

impl From<Vec<PeerEntry>> for PeerEntries {
    fn from(entries: Vec<PeerEntry>) -> Self {
        let mut all = Self::default();
        entries.into_iter().for_each(|entry| all.push(entry));
        all
    }
}

impl Deref for PeerEntries {
    type Target = [PeerEntry];

    fn deref(&self) -> &[PeerEntry] {
        &self.entries
    }
}

impl PeerEntries {
    pub fn push(&mut self, entry: PeerEntry) {
        self.by_id.add(&entry.id, self.entries.len());
        self.entries.push(entry);
    }

    /// The entry that is configured for this peer.
    pub(crate) fn of(&self, peer: &Identity) -> Option<&PeerEntry> {
        let places = self.by_id.accepting(peer).flatten();
        let entries = places.map(|place| (*place, &self.entries[*place]));
        let best = entries.min_by_key(|(place, entry)| (Reverse(entry.id.precision()), *place));
        best.map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::auth::generators::identity_among;

    fn identity() -> impl Strategy<Value = Identity> {
        identity_among(&[
            "a.example",
            "A.Example.",
            "b.example",
            "*.example",
            "*.b.example",
            "%any",
        ])
    }

    proptest! {
        #[test]
        fn the_entry_is_the_one_that_a_scan_gives(ids in vec(identity(), 0..8), peer in identity()) {
            let entries: Vec<_> = ids
                .into_iter()
                .map(|id| PeerEntry { id, remote_ts: vec![] })
                .collect();
            let entries = PeerEntries::from(entries);
            let accepting = entries.iter().filter(|entry| entry.id.accepts(&peer));
            let scanned = accepting.rev().max_by_key(|entry| entry.id.precision());
            let found = entries.of(&peer);
            prop_assert_eq!(found.map(std::ptr::from_ref), scanned.map(std::ptr::from_ref));
        }
    }
}
