//! Memory of the host that the device reaches too, for arenas.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esplanade_crypto::arena::Memory;
use esplanade_crypto::{Arena, Batch};

/// Arenas begin at a page, so that no two share a cache line or a page.
pub(super) const PAGE: usize = 4096;

/// A block of the driver's memory. Dropping it gives the memory back.
///
/// # Safety
///
/// The bytes stay where they are until the value is dropped, begin at a page, and nobody else uses them but a device
/// that was told to.
pub unsafe trait HostBlock: Send + Sync {
    fn start(&self) -> NonNull<u8>;
    fn size(&self) -> usize;
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
    block: Box<dyn HostBlock>,
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
    pub fn new(block: Box<dyn HostBlock>, use_: HostMemoryUse) -> Arc<Self> {
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
            HostMemoryUse::InPlace => self.block.size() / 2,
            HostMemoryUse::Copied => self.block.size(),
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
            let arena = self.arena_before(self.block.size(), batch.buffer.len())?;
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
        (offset < self.block.size()).then_some(offset)
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.block.start().as_ptr()
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
        write!(
            f,
            "HostMemory({} bytes, {:?})",
            self.block.size(),
            self.use_
        )
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::sync::atomic::{AtomicBool, Ordering};

    use esplanade_crypto::Direction;

    use super::*;

    struct Heap {
        start: NonNull<u8>,
        layout: Layout,
        freed: Arc<AtomicBool>,
    }

    // SAFETY: the bytes are the value's own.
    unsafe impl Send for Heap {}
    // SAFETY: the value gives nothing but an address.
    unsafe impl Sync for Heap {}

    // SAFETY: the bytes are freed on drop, and nobody else has them.
    unsafe impl HostBlock for Heap {
        fn start(&self) -> NonNull<u8> {
            self.start
        }

        fn size(&self) -> usize {
            self.layout.size()
        }
    }

    impl Drop for Heap {
        fn drop(&mut self) {
            self.freed.store(true, Ordering::Relaxed);
            // SAFETY: the bytes come from `alloc_zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }

    fn memory(pages: usize, use_: HostMemoryUse) -> (Arc<HostMemory>, Arc<AtomicBool>) {
        let layout = Layout::from_size_align(pages * PAGE, PAGE).unwrap();
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let freed = Arc::<AtomicBool>::default();
        let block = Heap {
            start,
            layout,
            freed: Arc::clone(&freed),
        };
        (HostMemory::new(Box::new(block), use_), freed)
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
        let all = memory.block.size();
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
