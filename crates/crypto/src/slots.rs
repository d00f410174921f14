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
pub struct SlotTable<T>(pub(crate) Option<Arc<Chunks<T>>>);

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
