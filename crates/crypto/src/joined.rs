//! Joins byte strings for a library call that takes only one.

use std::cell::RefCell;

thread_local! {
    /// A buffer that grows to the longest packet the thread has seen. It is reused.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_it` with the parts joined. The parts must be public, because the copy is not erased.
pub(crate) fn with<T>(parts: &[&[u8]], use_it: impl FnOnce(&[u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        for part in parts {
            scratch.extend_from_slice(part);
        }
        use_it(scratch)
    })
}
