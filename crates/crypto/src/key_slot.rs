//! Numbers for keys, the same in all of the process.

use std::sync::{Mutex, PoisonError};

/// Where a device that all workers share keeps what it made of a key. No two keys have the same index at a time; those
/// that have it one after the other differ in their generation, which comes round after 2^32 keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeySlot {
    pub index: u32,
    pub generation: u32,
}

struct Pool {
    /// To be given out next, the last one first: there are never more indices than were in use at the busiest time.
    free: Vec<KeySlot>,
    /// The first index that was never given out.
    fresh: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    fresh: 0,
});

/// A slot that no other key has until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(KeySlot);

impl Held {
    pub fn new() -> Self {
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

impl Drop for Held {
    fn drop(&mut self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.push(KeySlot {
            generation: self.0.generation.wrapping_add(1),
            ..self.0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_slot_is_of_one_key_at_a_time_and_then_of_another() {
        let mut held: Vec<Held> = (0..100).map(|_| Held::new()).collect();
        let indices =
            |held: &[Held]| -> HashSet<u32> { held.iter().map(|held| held.get().index).collect() };
        assert_eq!(indices(&held).len(), 100);
        let highest = indices(&held).into_iter().max();
        let mut all: HashSet<KeySlot> = held.iter().map(Held::get).collect();
        // Other tests hold some too, but few.
        for _ in 0..10_000 {
            held.pop();
            let next = Held::new();
            assert!(all.insert(next.get()), "{:?} was there before", next.get());
            held.push(next);
        }
        assert_eq!(indices(&held).len(), 100);
        assert!(indices(&held).into_iter().max() < highest.map(|highest| highest + 1000));
    }
}
