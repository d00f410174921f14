//! Limits how often something is logged.

use std::time::Instant;

use esplanade_dataplane::rate::RateLimiter;

/// A limit for lines of one kind in the log, which others can cause.
#[derive(Debug)]
pub struct LineLimit {
    rate: RateLimiter,
    since: Instant,
    suppressed: u64,
}

impl LineLimit {
    pub fn new(burst: u64, per_second: u64) -> Self {
        Self {
            rate: RateLimiter::new(burst, per_second),
            since: Instant::now(),
            suppressed: 0,
        }
    }

    /// Returns true if a line may be written. Otherwise it is counted.
    pub fn admits(&mut self, now: Instant) -> bool {
        let admitted = self.take(now);
        self.suppressed += u64::from(!admitted);
        admitted
    }

    /// Takes the number of lines that were not written, if a line about them may be written.
    pub fn take_suppressed(&mut self, now: Instant) -> Option<u64> {
        let due = self.suppressed > 0 && self.take(now);
        due.then(|| std::mem::take(&mut self.suppressed))
    }

    fn take(&mut self, now: Instant) -> bool {
        let ms = now.saturating_duration_since(self.since).as_millis();
        self.rate.take(u64::try_from(ms).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told() {
        let mut limit = LineLimit::new(2, 1);
        let (start, mut written, mut told) = (Instant::now(), 0, 0);
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            told += limit.take_suppressed(now).unwrap_or(0);
            written += u64::from(limit.admits(now));
        }
        assert!(written <= 12 && told > 8000, "{written} {told}");
        let later = start + Duration::from_secs(20);
        told += limit.take_suppressed(later).unwrap_or(0);
        assert_eq!(written + told, 10_000);
        assert_eq!(limit.take_suppressed(later), None);
    }
}
