//! The times for which an engine has its batches: a histogram that the engine's threads write and the control thread
//! reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bits of a time that tell the buckets of one power of two apart.
const FINE_BITS: u32 = 3;
const FINE: usize = 1 << FINE_BITS;
/// Number of buckets. The last one has the times from nearly eight seconds on.
const BUCKETS: usize = 21 * FINE;

/// Counts batches by the time for which an engine had them.
#[derive(Debug)]
pub struct LatencyCounters {
    buckets: [AtomicU64; BUCKETS],
    /// Batches after which their port had no room.
    filled: AtomicU64,
}

/// The counts up to one moment, or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    buckets: [u64; BUCKETS],
    filled: u64,
}

impl Default for LatencyCounters {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            filled: AtomicU64::new(0),
        }
    }
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            filled: 0,
        }
    }
}

impl LatencyCounters {
    pub fn count(&self, time: Duration) {
        if let Some(bucket) = self.buckets.get(bucket_of(time)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn count_filled(&self) {
        self.filled.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts {
            buckets: self.buckets.each_ref().map(|of| of.load(Ordering::Relaxed)),
            filled: self.filled.load(Ordering::Relaxed),
        }
    }
}

impl LatencyCounts {
    /// Returns what was counted after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.clone();
        for (count, before) in counts.buckets.iter_mut().zip(before.buckets) {
            *count = count.saturating_sub(before);
        }
        counts.filled = counts.filled.saturating_sub(before.filled);
        counts
    }

    pub fn add(&mut self, other: &Self) {
        for (count, other) in self.buckets.iter_mut().zip(other.buckets) {
            *count += other;
        }
        self.filled += other.filled;
    }

    pub fn batches(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Tells whether most batches found the last place of their port.
    pub fn is_full(&self) -> bool {
        self.filled > 0 && self.filled * 2 >= self.batches()
    }

    /// Returns the time that 99 of 100 batches did not exceed, rounded up by an eighth at most. Returns `None` if there
    /// was no batch.
    pub fn p99(&self) -> Option<Duration> {
        self.longest_but(self.batches() / 100)
    }

    /// Returns the time that half of the batches did not exceed.
    pub fn median(&self) -> Option<Duration> {
        self.longest_but(self.batches() / 2)
    }

    /// Returns the longest time besides those of so many batches.
    fn longest_but(&self, beyond: u64) -> Option<Duration> {
        let mut longer = 0;
        let found = self.buckets.iter().enumerate().rev().find(|(_, count)| {
            longer += **count;
            longer > beyond
        });
        found.map(|(bucket, _)| end_of(bucket))
    }
}

fn bucket_of(time: Duration) -> usize {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let Some(power) = us.checked_ilog2().filter(|power| *power >= FINE_BITS) else {
        return us as usize;
    };
    let fine = (us >> (power - FINE_BITS)) as usize % FINE;
    let bucket = (power - FINE_BITS + 1) as usize * FINE + fine;
    bucket.min(BUCKETS - 1)
}

/// Returns the end of the times in a bucket.
fn end_of(bucket: usize) -> Duration {
    let (power, fine) = (bucket / FINE, bucket % FINE);
    let us = match power {
        0 => fine + 1,
        _ => (FINE + fine + 1) << (power - 1),
    };
    Duration::from_micros(us as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_narrow_and_ends_behind_its_times() {
        let mut former = 0;
        for us in 0..2_000_000 {
            let bucket = bucket_of(Duration::from_micros(us));
            assert!(bucket == former || bucket == former + 1, "{us}");
            former = bucket;
            let end = end_of(bucket).as_micros() as u64;
            assert!(us < end && end <= us + us / 8 + 1, "{us}: {end}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
        assert!(bucket_of(Duration::from_millis(3900)) < BUCKETS - 1);
    }

    #[test]
    fn one_batch_of_a_hundred_may_be_later() {
        let counters = LatencyCounters::default();
        assert_eq!(counters.counts().p99(), None);
        counters.count(Duration::from_micros(100));
        assert_eq!(counters.counts().p99(), Some(Duration::from_micros(104)));
        let before = counters.counts();
        counters.count(Duration::from_millis(50));
        for _ in 0..99 {
            counters.count(Duration::from_micros(7));
        }
        let late = counters.counts();
        let mut since = late.since(&before);
        assert_eq!(since.p99(), Some(Duration::from_micros(8)));
        assert_eq!(late.median(), Some(Duration::from_micros(8)));
        since.add(&since.clone());
        assert_eq!(since.batches(), 200);
        counters.count(Duration::from_millis(50));
        let p99 = counters.counts().since(&before).p99().unwrap();
        assert!(p99 > Duration::from_millis(50) && p99 < Duration::from_millis(57));
    }

    #[test]
    fn a_port_is_full_if_most_batches_fill_it() {
        let counters = LatencyCounters::default();
        assert!(!counters.counts().is_full());
        for _ in 0..3 {
            counters.count(Duration::ZERO);
        }
        counters.count_filled();
        assert!(!counters.counts().is_full());
        counters.count_filled();
        assert!(counters.counts().is_full());
    }
}
