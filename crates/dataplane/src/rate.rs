//! Limits how often something is done.

/// A token bucket.
#[derive(Debug)]
pub struct RateLimiter {
    /// Tokens in thousandths.
    tokens: u64,
    burst: u64,
    per_second: u64,
    filled_ms: u64,
}

impl RateLimiter {
    pub fn new(burst: u64, per_second: u64) -> Self {
        Self {
            tokens: burst * 1000,
            burst,
            per_second,
            filled_ms: 0,
        }
    }

    /// Takes a token. Returns false if there is none.
    pub fn take(&mut self, now_ms: u64) -> bool {
        let gained = now_ms
            .saturating_sub(self.filled_ms)
            .saturating_mul(self.per_second);
        self.filled_ms = self.filled_ms.max(now_ms);
        self.tokens = self.tokens.saturating_add(gained).min(self.burst * 1000);
        let has = self.tokens >= 1000;
        if has {
            self.tokens -= 1000;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4301 R33
    #[test]
    fn a_rate_has_a_burst_and_a_long_run() {
        let mut rate = RateLimiter::new(3, 2);
        let taken = |rate: &mut RateLimiter, now_ms| (0..10).filter(|_| rate.take(now_ms)).count();
        assert_eq!(taken(&mut rate, 1), 3);
        assert_eq!(taken(&mut rate, 499), 0);
        assert_eq!(taken(&mut rate, 501), 1);
        assert_eq!(taken(&mut rate, 1_000_000), 3);
    }
}
