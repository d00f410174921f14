//! The atomics and locks of what workers share. They come from one place, so that the model tests can put loom's in it.

pub use std::sync::Mutex;
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
