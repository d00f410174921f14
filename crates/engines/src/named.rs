//! Sections of the status whose names are data.

use serde::{Serialize, Serializer};

/// Sections by name, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes two of a whole, each with one half of the sections that `part` finds in it. Returns `None` if there are not
    /// several.
    pub fn halves<W: Clone>(whole: &W, part: impl Fn(&mut W) -> &mut Self) -> Option<[W; 2]> {
        let mut halves = [whole.clone(), whole.clone()];
        let [first, second] = halves.each_mut().map(part);
        let middle = first.0.len() / 2;
        first.0.truncate(middle);
        second.0.drain(..middle);
        (middle > 0).then_some(halves)
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, content)| (name, content)))
    }
}
