//! Outbound sequence numbers: one allocator per SA, the only source of sequence numbers and
//! counter IVs.

use crate::atomic::{AtomicU64, Ordering};

/// Consecutive sequence numbers, never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRun {
    pub first: u64,
    pub count: u32,
    /// The SA should be rekeyed: few numbers are left.
    pub low: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sequence numbers are used up")]
pub struct Exhausted;

/// In the place of the next number. No run can begin there.
const GIVEN_AWAY: u64 = u64::MAX;

#[derive(Debug)]
pub struct SequenceAllocator {
    next: AtomicU64,
    last: u64,
}

impl SequenceAllocator {
    /// Begins at 1 (RFC 4303 §2.2) and never cycles (§3.3.3).
    pub fn new(esn: bool) -> Self {
        Self::starting_at(1, esn)
    }

    /// Begins at `first`, for tests near the end of the sequence space.
    pub fn starting_at(first: u64, esn: bool) -> Self {
        // u64::MAX itself stays unused, so that `next` cannot overflow.
        let last = if esn { u64::MAX - 1 } else { u32::MAX.into() };
        Self {
            next: AtomicU64::new(first.max(1)),
            last,
        }
    }

    /// Takes `count` numbers, all or none.
    #[inline]
    pub fn take(&self, count: u32) -> Result<SequenceRun, Exhausted> {
        let after = |next: u64| {
            next.checked_add(count.into())
                .filter(|&after| after - 1 <= self.last)
        };
        // Relaxed: the numbers order nothing but themselves.
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

    /// Leaves all numbers to another place, such as a device that seals: from now on there are none here. False, and
    /// without effect, where one was taken already.
    pub fn give_away(&self) -> bool {
        let (ordering, none) = (Ordering::Relaxed, Ordering::Relaxed);
        self.next
            .compare_exchange(1, GIVEN_AWAY, ordering, none)
            .is_ok()
    }

    pub fn is_given_away(&self) -> bool {
        self.next.load(Ordering::Relaxed) == GIVEN_AWAY
    }

    /// The number that the next packet will have.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}
