//! Memory of the host that the device reaches too, for arenas.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esplanade_crypto::arena::Memory;
use esplanade_crypto::{Arena, Batch};

/// Arenas begin at a page, so that no two share a cache line or a page.
pub(super) const PAGE: usize = 4096;

/// Bytes of a block. The driver may have less.
const BLOCK_BYTES: usize = 512 << 20;
/// Less memory for arenas is not worth having.
const BLOCK_BYTES_MIN: usize = 16 << 20;

/// A block of memory that the device can reach. Dropping it gives the memory back.
pub struct HostBlock {
    memory: NonNull<u8>,
    /// The first page of the memory, and the bytes from there on.
    start: NonNull<u8>,
    len: usize,
    free: Option<Free>,
}

type Free = Box<dyn FnOnce(NonNull<u8>) + Send + Sync>;

// SAFETY: the memory is the block's own, and so is the right to free it.
unsafe impl Send for HostBlock {}
// SAFETY: a shared block gives nothing but its place.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// # Safety
    ///
    /// The `len` bytes, more than a page, are valid until `free` is called with their address. Nobody else uses them but
    /// a device that was told to.
    pub unsafe fn new(
        memory: NonNull<u8>,
        len: usize,
        free: impl FnOnce(NonNull<u8>) + Send + Sync + 'static,
    ) -> Self {
        // A driver may give memory anywhere.
        let before = memory.align_offset(PAGE).min(len);
        Self {
            memory,
            // SAFETY: the place is in the memory, or at its end.
            start: unsafe { memory.add(before) },
            len: len - before,
            free: Some(Box::new(free)),
        }
    }

    /// Takes as large a block as the driver has, up to `most` bytes.
    pub(super) fn largest(most: usize, take: impl Fn(usize) -> Option<Self>) -> Option<Self> {
        let halves = std::iter::successors(Some(BLOCK_BYTES.min(most)), |len| Some(len / 2));
        let mut lens = halves.take_while(|len| *len >= BLOCK_BYTES_MIN);
        lens.find_map(take)
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free(self.memory);
        }
    }
}

impl std::fmt::Debug for HostBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostBlock({} bytes)", self.len)
    }
}

/// The use that a device makes of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemoryUse {
    /// The kernels read packets there and write them there: nothing is copied.
    InPlace,
    /// The device copies from there and to there without the host's help.
    Copied,
}

/// Hands out parts of a block as arenas. The block lives as long as the last of them.
pub struct HostMemory {
    block: HostBlock,
    use_: HostMemoryUse,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// Bytes from here on were never handed out.
    begun: usize,
    /// Offsets of parts that came back, by their length.
    free: HashMap<usize, Vec<usize>>,
}

/// A part of the block.
struct Part {
    of: Arc<HostMemory>,
    offset: usize,
    len: usize,
}

/// A batch's place in the block, and the arena into which the kernels write its packets.
#[derive(Debug)]
pub(crate) struct PlaceInBlock {
    pub input: usize,
    pub output: usize,
    pub arena: Arena,
}

impl HostMemory {
    pub fn new(block: HostBlock, use_: HostMemoryUse) -> Arc<Self> {
        Arc::new(Self {
            block,
            use_,
            parts: Mutex::default(),
        })
    }

    /// Returns an arena with arbitrary bytes, or `None` if there is no room left. Half of a block in which kernels work
    /// is kept for their results.
    pub fn arena(self: &Arc<Self>, len: usize) -> Option<Arena> {
        let limit = match self.use_ {
            HostMemoryUse::InPlace => self.block.len / 2,
            HostMemoryUse::Copied => self.block.len,
        };
        self.arena_before(limit, len)
    }

    fn arena_before(self: &Arc<Self>, limit: usize, len: usize) -> Option<Arena> {
        let room = len.checked_next_multiple_of(PAGE)?;
        let mut parts = self.parts();
        let again = parts.free.get_mut(&room).and_then(Vec::pop);
        let offset = match again {
            Some(offset) => offset,
            None => {
                let end = parts.begun.checked_add(room)?;
                if end > limit {
                    return None;
                }
                std::mem::replace(&mut parts.begun, end)
            }
        };
        drop(parts);
        Some(Arena::of(Box::new(Part {
            of: Arc::clone(self),
            offset,
            len,
        })))
    }

    /// Finds the batches in the block and takes an arena for each one's results. Returns `None` if the kernels do not
    /// work in place, or if a batch is elsewhere.
    pub(crate) fn places(self: &Arc<Self>, batches: &[Batch]) -> Option<Vec<PlaceInBlock>> {
        if self.use_ != HostMemoryUse::InPlace {
            return None;
        }
        let place = |batch: &Batch| {
            let input = self.offset(&batch.buffer)?;
            let arena = self.arena_before(self.block.len, batch.buffer.len())?;
            let output = self.offset(&arena)?;
            Some(PlaceInBlock {
                input,
                output,
                arena,
            })
        };
        batches.iter().map(place).collect()
    }

    /// Only this block's own arenas can lie between its ends.
    pub(super) fn offset(&self, arena: &Arena) -> Option<usize> {
        let offset = (arena.as_ptr() as usize).checked_sub(self.start() as usize)?;
        (offset < self.block.len).then_some(offset)
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.block.start.as_ptr()
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for Part {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies in the block, which lives as long as `of`. No other part overlaps it, and the device
        // uses it only while a launch owns the arena.
        unsafe { std::slice::from_raw_parts(self.of.start().add(self.offset), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.of.start().add(self.offset), self.len) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let room = self.len.next_multiple_of(PAGE);
        let mut parts = self.of.parts();
        parts.free.entry(room).or_default().push(self.offset);
    }
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostMemory({} bytes, {:?})", self.block.len, self.use_)
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::sync::atomic::{AtomicBool, Ordering};

    use esplanade_crypto::Direction;

    use super::*;

    fn memory(pages: usize, use_: HostMemoryUse) -> (Arc<HostMemory>, Arc<AtomicBool>) {
        let layout = Layout::from_size_align(pages * PAGE, PAGE).unwrap();
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let freed = Arc::<AtomicBool>::default();
        let tells = Arc::clone(&freed);
        let free = move |memory: NonNull<u8>| {
            tells.store(true, Ordering::Relaxed);
            // SAFETY: the bytes come from `alloc_zeroed` with this layout.
            unsafe { dealloc(memory.as_ptr(), layout) };
        };
        // SAFETY: the bytes are valid until they are freed, and nobody else has them.
        let block = unsafe { HostBlock::new(start, layout.size(), free) };
        (HostMemory::new(block, use_), freed)
    }

    #[test]
    fn arenas_do_not_overlap_and_come_back() {
        let (memory, freed) = memory(4, HostMemoryUse::Copied);
        let mut first = memory.arena(5000).unwrap();
        let mut second = memory.arena(4096).unwrap();
        assert_eq!((first.len(), second.len()), (5000, 4096));
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|byte| *byte == 1));
        assert!(memory.arena(4097).is_none() && memory.arena(usize::MAX).is_none());
        assert!(memory.arena(1).is_some());
        // A part is used again by arenas that need as many pages.
        let address = first.as_ptr();
        drop(first);
        assert_eq!(memory.arena(8000).unwrap().as_ptr(), address);
        drop(memory);
        assert!(!freed.load(Ordering::Relaxed));
        drop(second);
        assert!(freed.load(Ordering::Relaxed));
    }

    #[test]
    fn batches_of_the_block_are_found() {
        let (memory, _) = memory(8, HostMemoryUse::InPlace);
        let batch = |arena| Batch::in_arena(Direction::Seal, arena, 1);
        let ours = || batch(memory.arena(4096).unwrap());
        let places = memory.places(&[ours(), ours()]).unwrap();
        let offsets: Vec<_> = places.iter().map(|at| (at.input, at.output)).collect();
        assert_eq!(offsets, [(0, 8192), (4096, 12288)]);
        assert_eq!(memory.offset(&places[1].arena), Some(12288));
        assert!(memory.places(&[ours(), batch(Arena::heap(4096))]).is_none());
        // No room for the results.
        let last = ours();
        let all = memory.block.len;
        let others: Vec<_> = std::iter::from_fn(|| memory.arena_before(all, 4096)).collect();
        assert!(memory.places(std::slice::from_ref(&last)).is_none());
        drop(others);
        assert!(memory.places(&[last]).is_some());
    }

    #[test]
    fn memory_for_copies_is_not_used_in_place() {
        let (memory, _) = memory(2, HostMemoryUse::Copied);
        let arena = memory.arena(4096).unwrap();
        let batch = Batch::in_arena(Direction::Seal, arena, 1);
        assert!(memory.places(&[batch]).is_none());
    }
}
