//! A log of changed slots, for readers that keep copies of the slots. There is one writer at a time and any number of
//! readers, and nobody waits.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The last changes, in a ring.
#[derive(Debug)]
pub struct Changes {
    /// The total number of changes.
    count: AtomicU64,
    /// The changed slots. Their number is a power of two.
    slots: Box<[AtomicU32]>,
}

/// The ring no longer has all changes since the reader's last look.
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

    /// Records that `slot` has new content. The caller ensures that there is one writer at a time.
    pub fn record(&self, slot: u32) {
        let count = self.count.load(Ordering::Relaxed);
        if let Some(place) = self.place(count) {
            // Release: a reader that sees this slot also sees `count` at its present value or above, and so notices
            // the overwriting.
            place.store(slot, Ordering::Release);
        }
        self.count.store(count.wrapping_add(1), Ordering::Release);
    }

    /// Passes every slot that changed since the count was `seen` to `changed`, and returns the present count.
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
        // The writer may meanwhile have overwritten what was read. It is also one slot ahead of its count.
        if seen != count && self.count().wrapping_sub(seen) >= kept {
            return Err(Unknown);
        }
        Ok(count)
    }

    fn place(&self, change: u64) -> Option<&AtomicU32> {
        self.slots.get(change as usize & (self.slots.len() - 1))
    }
}
