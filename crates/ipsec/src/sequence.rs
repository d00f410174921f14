//! Outbound sequence numbers. An SA has one allocator, which is the only source of its sequence numbers and counter
//! IVs.

use crate::atomic::{AtomicU64, Ordering};

/// Consecutive sequence numbers. No number is given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRun {
    pub first: u64,
    pub count: u32,
    /// Few numbers are left: the SA should be rekeyed.
    pub low: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sequence numbers are used up")]
pub struct Exhausted;

/// The value of `next` after [`SequenceAllocator::give_away`]. No run can begin with this number.
const GIVEN_AWAY: u64 = u64::MAX;

#[derive(Debug)]
pub struct SequenceAllocator {
    next: AtomicU64,
    last: u64,
}

impl SequenceAllocator {
    /// Makes an allocator that begins at 1 (RFC 4303 §2.2) and never cycles (RFC 4303 §3.3.3).
    pub fn new(esn: bool) -> Self {
        Self::starting_at(1, esn)
    }

    /// Makes an allocator that begins at `first`, for tests near the end of the sequence space.
    pub fn starting_at(first: u64, esn: bool) -> Self {
        // The number u64::MAX stays unused, so that `next` cannot overflow.
        let last = if esn { u64::MAX - 1 } else { u32::MAX.into() };
        Self {
            next: AtomicU64::new(first.max(1)),
            last,
        }
    }

    /// Takes `count` numbers: all of them, or none.
    #[inline]
    pub fn take(&self, count: u32) -> Result<SequenceRun, Exhausted> {
        let after = |next: u64| {
            next.checked_add(count.into())
                .filter(|&after| after - 1 <= self.last)
        };
        // Relaxed suffices: no other memory access is ordered by these numbers.
        let first = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .map_err(|_| Exhausted)?;
        Ok(SequenceRun {
            first,
            count,
            low: first >= self.last - self.last / 16,
        })
    }

    /// Leaves all numbers to another place, such as a device that seals. From then on this allocator has no numbers.
    /// Returns false and changes nothing if a number was already taken.
    pub fn give_away(&self) -> bool {
        let (ordering, none) = (Ordering::Relaxed, Ordering::Relaxed);
        self.next
            .compare_exchange(1, GIVEN_AWAY, ordering, none)
            .is_ok()
    }

    pub fn is_given_away(&self) -> bool {
        self.next.load(Ordering::Relaxed) == GIVEN_AWAY
    }

    /// The number of the next packet.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}
