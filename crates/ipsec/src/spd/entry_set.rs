//! Sets of entries by their numbers.

/// A set of entries that were compiled together, one bit for each.
#[derive(Clone, Debug, Default)]
pub(super) struct EntrySet(Vec<u64>);

impl EntrySet {
    #[inline]
    pub(super) fn has(&self, entry: u32) -> bool {
        let word = self.0.get(entry as usize / 64);
        word.is_some_and(|word| word >> (entry % 64) & 1 != 0)
    }

    pub(super) fn add(&mut self, entry: u32) {
        let at = entry as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at) {
            *word |= 1 << (entry % 64);
        }
    }
}
