//! Limits log lines that clients can cause again and again.

use std::time::{Duration, Instant};

/// The interval between two lines of one kind.
const TOLD_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    next: Option<Instant>,
    untold: u64,
}

impl LogLimit {
    /// Returns how often a line was left out since the last one, if another one may be written.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.untold += 1;
            return None;
        }
        self.next = Some(now + TOLD_EVERY);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process without descriptors fails five times a second.
    #[test]
    fn lines_are_seldom_and_say_how_many_were_left_out() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let lines: Vec<u64> = (0..150)
            .filter_map(|tries| limit.admit(start + Duration::from_millis(200 * tries)))
            .collect();
        assert_eq!(lines, [0, 49, 49]);
    }
}
