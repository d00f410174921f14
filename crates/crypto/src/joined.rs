//! Byte strings put together for a library call that takes only one.

use std::cell::RefCell;

thread_local! {
    /// Grows to the longest packet that the thread has seen and is then used again.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_it` with the parts in a row. They must be public: the copy is not cleansed.
pub(crate) fn with<T>(parts: &[&[u8]], use_it: impl FnOnce(&[u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        for part in parts {
            scratch.extend_from_slice(part);
        }
        use_it(scratch)
    })
}
