//! Which slots have changed, for readers that keep copies of them. One writer at a time, any number of readers, no
//! waiting.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The last changes, in a ring.
#[derive(Debug)]
pub struct Changes {
    /// The number of changes ever.
    count: AtomicU64,
    /// A power of two.
    slots: Box<[AtomicU32]>,
}

/// More has changed than the ring still tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl Changes {
    pub fn new(kept: usize) -> Self {
        let kept = kept.next_power_of_two();
        Self {
            count: AtomicU64::new(0),
            slots: (0..kept).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Tells that `slot` has its new content. The caller sees to it that there is one writer.
    pub fn record(&self, slot: u32) {
        let count = self.count.load(Ordering::Relaxed);
        if let Some(place) = self.place(count) {
            // Release: who reads this finds `count` at least at its present value, and so notices.
            place.store(slot, Ordering::Release);
        }
        self.count.store(count.wrapping_add(1), Ordering::Release);
    }

    /// Gives every slot changed since `seen` was the count, and the count now.
    pub fn since(&self, seen: u64, mut changed: impl FnMut(u32)) -> Result<u64, Unknown> {
        let count = self.count();
        let kept = self.slots.len() as u64;
        if count.wrapping_sub(seen) > kept {
            return Err(Unknown);
        }
        let mut at = seen;
        while at != count {
            if let Some(place) = self.place(at) {
                changed(place.load(Ordering::Acquire));
            }
            at = at.wrapping_add(1);
        }
        // The writer may by now have come round to what was read, and is one ahead of its count.
        if seen != count && self.count().wrapping_sub(seen) >= kept {
            return Err(Unknown);
        }
        Ok(count)
    }

    fn place(&self, change: u64) -> Option<&AtomicU32> {
        self.slots.get(change as usize & (self.slots.len() - 1))
    }
}
