//! Numbers for keys that hold in the whole process.

use std::sync::{Mutex, PoisonError};

/// Place where a device that all workers share keeps its form of a key. No two keys have the same index at one time.
/// Keys that have one index in turn differ in their generation, which repeats after 2^32 keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeySlot {
    pub index: u32,
    pub generation: u32,
}

struct SlotPool {
    /// Slots to give out again, the last one first. So there are never more indices than were in use at the busiest
    /// time.
    free: Vec<KeySlot>,
    /// The first index that was never given out.
    fresh: u32,
}

static POOL: Mutex<SlotPool> = Mutex::new(SlotPool {
    free: Vec::new(),
    fresh: 0,
});

/// Owns a slot: no other key has it until this is dropped.
#[derive(Debug)]
pub struct HeldSlot(KeySlot);

impl HeldSlot {
    pub(crate) fn new() -> Self {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        Self(pool.free.pop().unwrap_or_else(|| {
            pool.fresh += 1;
            KeySlot {
                index: pool.fresh - 1,
                generation: 0,
            }
        }))
    }

    pub fn get(&self) -> KeySlot {
        self.0
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.push(KeySlot {
            generation: self.0.generation.wrapping_add(1),
            ..self.0
        });
    }
}
