//! Entries of the configuration, found by the identities that they accept.

use std::collections::HashMap;

use crate::auth::Identity;

/// Places in a list of the configuration, by an identity or a pattern that the entry there has. Places are added in
/// their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityTable {
    places: HashMap<Identity, Vec<usize>>,
    /// The keys that are patterns. A configuration has few.
    patterns: Vec<Identity>,
}

impl IdentityTable {
    pub(crate) fn add(&mut self, id: &Identity, place: usize) {
        if id.is_pattern() && !self.places.contains_key(id) {
            self.patterns.push(id.clone());
        }
        let places = self.places.entry(id.clone()).or_default();
        if places.last() != Some(&place) {
            places.push(place);
        }
    }

    /// The places whose entries accept an identity that is presented: a list for each identity or pattern that does.
    pub(crate) fn accepting<'a>(&'a self, id: &'a Identity) -> impl Iterator<Item = &'a [usize]> {
        // A peer can present a name that looks like a pattern. Only patterns accept it.
        let same = Some(id).filter(|id| !id.is_pattern());
        let patterns = self.patterns.iter().filter(|pattern| pattern.accepts(id));
        let keys = same.into_iter().chain(patterns);
        keys.filter_map(|key| self.places.get(key).map(Vec::as_slice))
    }
}
