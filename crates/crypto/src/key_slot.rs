//! Numbers for keys that hold in the whole process.

use std::sync::{Mutex, PoisonError};

/// Place where a device that all workers share keeps its form of a key. No two keys have the same index at one time.
/// Keys that have one index in turn differ in their generation, which repeats after 2^32 keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeySlot {
    pub index: u32,
    pub generation: u32,
}

struct Pool {
    /// Slots to give out again, the last one first. So there are never more indices than were in use at the busiest
    /// time.
    free: Vec<KeySlot>,
    /// The first index that was never given out.
    fresh: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    fresh: 0,
});

/// Owns a slot: no other key has it until this is dropped.
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
        // Other tests hold slots too, but few.
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
