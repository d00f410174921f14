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

#[derive(Debug)]
pub struct SequenceAllocator {
    next: AtomicU64,
    last: u64,
    soft: u64,
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
            soft: last - last / 16,
        }
    }

    /// Takes `count` numbers, all or none.
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
            low: first >= self.soft,
        })
    }

    /// The number that the next packet will have.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_one_and_refuses_before_it_wraps() {
        let allocator = SequenceAllocator::new(false);
        assert_eq!(allocator.take(3).map(|r| r.first), Ok(1));
        assert_eq!(allocator.take(1).map(|r| r.first), Ok(4));

        let end = SequenceAllocator::starting_at(u64::from(u32::MAX) - 1, false);
        assert_eq!(end.take(3), Err(Exhausted), "all or none");
        let run = end.take(2).expect("exactly what is left");
        assert!(run.low);
        assert_eq!(run.first + 1, u64::from(u32::MAX));
        assert_eq!(end.take(1), Err(Exhausted));
        assert_eq!(end.take(1), Err(Exhausted), "and stays so");
    }

    #[test]
    fn esn_goes_past_32_bits() {
        let allocator = SequenceAllocator::starting_at(u32::MAX.into(), true);
        let run = allocator.take(2).expect("64 bits are left");
        assert_eq!(run.first + 1, 1 << 32);
        assert!(!run.low);
        let end = SequenceAllocator::starting_at(u64::MAX - 1, true);
        assert!(end.take(1).is_ok());
        assert_eq!(end.take(1), Err(Exhausted));
    }

    #[test]
    fn threads_never_share_a_number() {
        let allocator = SequenceAllocator::new(true);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let worker = |_| {
                scope.spawn(|| {
                    let take = |i: u32| {
                        let run = allocator.take(i % 5 + 1).expect("plenty is left");
                        run.first..run.first + u64::from(run.count)
                    };
                    (0..2000).flat_map(take).collect::<Vec<_>>()
                })
            };
            let threads: Vec<_> = (0..4).map(worker).collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().expect("worker ends"))
                .collect()
        });
        let taken = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), taken);
        assert_eq!(all.last(), Some(&(taken as u64)), "no number is skipped");
    }
}
