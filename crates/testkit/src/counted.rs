//! An allocator that counts the bytes of the blocks that are in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a count, for a test program's `#[global_allocator]`.
#[derive(Debug)]
pub struct CountedAllocator;

/// Returns the bytes that glibc's allocator takes for a block: a length of its own, multiples of 16, and 32 at least.
fn taken(layout: Layout) -> usize {
    let spare = layout.align().saturating_sub(16);
    (layout.size() + 8 + spare).next_multiple_of(16).max(32)
}

// SAFETY: blocks are those of the system's allocator, with the layouts of the caller.
unsafe impl GlobalAlloc for CountedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller guarantees the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller guarantees that the block is live and has this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Returns the bytes in use, of all threads. It is zero unless [`CountedAllocator`] is the program's allocator.
pub fn bytes_in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}
