//! An allocator that shows a test what stands in blocks when they are freed, so that it finds secrets there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::ptr::null_mut;

/// The system's allocator with a look at every block, for a test program's `#[global_allocator]`. New blocks are zero,
/// so that nothing comes from an earlier use of the memory.
#[derive(Debug)]
pub struct WatchedAllocator;

/// The contents of blocks.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Those that were allocated and not freed, as they are at the end.
    pub left: Vec<Vec<u8>>,
    /// Those that were freed, as they were then, whoever has allocated them.
    pub freed: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Log {
    left: Vec<(*mut u8, usize)>,
    freed: Vec<Vec<u8>>,
}

thread_local! {
    /// Null where nobody watches, and while the log itself allocates.
    static LOG: Cell<*mut Log> = const { Cell::new(null_mut()) };
}

/// Ends the watch.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        LOG.set(null_mut());
    }
}

fn with_log(write: impl FnOnce(&mut Log)) {
    let log = LOG.replace(null_mut());
    // SAFETY: a pointer that is not null is that of `watch`, which holds the log until it has ended the watch. It was
    // taken out of `LOG`, so nobody else uses it meanwhile.
    if let Some(log) = unsafe { log.as_mut() } {
        write(log);
        LOG.set(log);
    }
}

/// # Safety
/// The block is live and has this length.
unsafe fn content(block: *mut u8, len: usize) -> Vec<u8> {
    // SAFETY: the caller guarantees the block. The allocator has written all of it.
    let byte = |at| unsafe { block.add(at).read_volatile() };
    (0..len).map(byte).collect()
}

// SAFETY: blocks are those of the system's allocator, with the layouts of the caller.
unsafe impl GlobalAlloc for WatchedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the layout.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            with_log(|log| log.left.push((block, layout.size())));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        with_log(|log| {
            log.left.retain(|(left, _)| *left != block);
            // SAFETY: the caller guarantees that the block is live and has this layout.
            log.freed.push(unsafe { content(block, layout.size()) });
        });
        // SAFETY: same as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Does the work, and shows the blocks that this thread has allocated or freed meanwhile. There are none unless
/// [`WatchedAllocator`] is the program's allocator.
pub fn watch<T>(work: impl FnOnce() -> T) -> (T, Watched) {
    let mut log = Log::default();
    assert!(LOG.get().is_null(), "one watch at a time");
    LOG.set(&raw mut log);
    let end = End;
    let result = black_box(work());
    drop(end);
    let left = log.left.iter();
    // SAFETY: these blocks were not freed.
    let left = left.map(|(block, len)| unsafe { content(*block, *len) });
    let left = left.collect();
    let freed = log.freed;
    (result, Watched { left, freed })
}
