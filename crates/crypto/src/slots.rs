//! A table of shared values. A snapshot of it costs one reference count.

use std::sync::Arc;

/// Number of slots in a chunk. While there is a snapshot, a change copies one chunk and the list of chunks at most.
const CHUNK: usize = 256;

type Chunk<T> = [Option<Arc<T>>; CHUNK];
type Chunks<T> = Vec<Option<Arc<Chunk<T>>>>;

/// Values by number. A clone is a snapshot: it keeps the present values, and later changes do not show in it.
///
/// The table is for one writer and many readers, each with its own snapshot. A batch takes a snapshot to its engine,
/// so that no packet counts a reference. A change copies its chunk if a snapshot shares it. Numbers should be small:
/// the table takes 8 bytes for each 256 numbers up to the highest.
pub struct SlotTable<T>(Option<Arc<Chunks<T>>>);

impl<T> SlotTable<T> {
    pub const fn new() -> Self {
        Self(None)
    }

    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&Arc<T>> {
        let number = number as usize;
        let chunk = self.0.as_ref()?.get(number / CHUNK)?.as_ref()?;
        chunk[number % CHUNK].as_ref()
    }

    /// Puts a value into a slot and returns the former value.
    pub fn insert(&mut self, number: u32, value: Arc<T>) -> Option<Arc<T>> {
        let number = number as usize;
        let chunks = Arc::make_mut(self.0.get_or_insert_default());
        if chunks.len() <= number / CHUNK {
            chunks.resize(number / CHUNK + 1, None);
        }
        let chunk = chunks.get_mut(number / CHUNK)?;
        let chunk = chunk.get_or_insert_with(|| Arc::new([const { None }; CHUNK]));
        Arc::make_mut(chunk)[number % CHUNK].replace(value)
    }

    /// Empties a slot. Memory for empty chunks is given back.
    pub fn remove(&mut self, number: u32) -> Option<Arc<T>> {
        // An empty slot needs no copy.
        self.get(number)?;
        let number = number as usize;
        let chunks = Arc::make_mut(self.0.as_mut()?);
        let place = chunks.get_mut(number / CHUNK)?;
        let chunk = Arc::make_mut(place.as_mut()?);
        let value = chunk[number % CHUNK].take();
        if chunk.iter().all(Option::is_none) {
            *place = None;
            let used = chunks.iter().rposition(Option::is_some);
            chunks.truncate(used.map_or(0, |last| last + 1));
        }
        value
    }

    /// Iterates over the values with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        let chunks = self.0.as_deref().into_iter().flatten().enumerate();
        chunks.flat_map(|(index, chunk)| {
            let slots = chunk.iter().flat_map(|chunk| chunk.iter()).enumerate();
            slots.filter_map(move |(slot, value)| {
                Some(((index * CHUNK + slot) as u32, value.as_ref()?))
            })
        })
    }
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for SlotTable<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotTable")
            .field("values", &self.iter().count())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(table: &SlotTable<u32>) -> Vec<(u32, u32)> {
        table.iter().map(|(at, value)| (at, **value)).collect()
    }

    #[test]
    fn values_are_found_by_their_numbers() {
        let mut table = SlotTable::new();
        assert!(table.get(0).is_none() && table.remove(7).is_none());
        for number in [0, 511, 512, 5000] {
            assert_eq!(table.insert(number, Arc::new(number)), None);
        }
        assert_eq!(table.insert(511, Arc::new(9)).as_deref(), Some(&511));
        assert_eq!(table.get(511).map(|v| **v), Some(9));
        assert_eq!(
            numbers(&table),
            [(0, 0), (511, 9), (512, 512), (5000, 5000)]
        );
        assert!(table.get(1).is_none() && table.get(u32::MAX).is_none());
        assert_eq!(table.remove(5000).as_deref(), Some(&5000));
        assert!(table.get(5000).is_none() && table.remove(5000).is_none());
        assert_eq!(numbers(&table), [(0, 0), (511, 9), (512, 512)]);
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut table = SlotTable::new();
        let (old, new) = (Arc::new(1), Arc::new(2));
        table.insert(3, Arc::clone(&old));
        table.insert(600, Arc::clone(&old));
        let snapshot = table.clone();
        table.insert(3, Arc::clone(&new));
        table.insert(4, Arc::clone(&new));
        table.insert(9000, Arc::clone(&new));
        table.remove(600);
        assert_eq!(numbers(&snapshot), [(3, 1), (600, 1)]);
        assert_eq!(numbers(&table), [(3, 2), (4, 2), (9000, 2)]);
        // Nothing is dropped before its last snapshot, and nothing is kept longer.
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (3, 4));
        drop(snapshot);
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 4));
        drop(table);
        assert_eq!(Arc::strong_count(&new), 1);
    }

    #[test]
    fn an_empty_table_keeps_no_memory() {
        let mut table = SlotTable::new();
        table.insert(100_000, Arc::new(1));
        table.insert(100, Arc::new(1));
        table.remove(100_000);
        assert_eq!(table.0.as_ref().map(|chunks| chunks.len()), Some(1));
        table.remove(100);
        assert_eq!(table.0.as_ref().map(|chunks| chunks.len()), Some(0));
    }

    #[test]
    fn a_snapshot_goes_to_another_thread() {
        let mut table = SlotTable::new();
        table.insert(1, Arc::new(5));
        let snapshot = table.clone();
        let reader = std::thread::spawn(move || snapshot.get(1).map(|v| **v));
        table.remove(1);
        assert_eq!(reader.join().ok().flatten(), Some(5));
    }
}
