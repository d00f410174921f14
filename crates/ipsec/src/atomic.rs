//! The atomics and locks that workers share. They come from one module, so that the model tests can replace them by
//! loom's.

pub use std::sync::Mutex;
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
