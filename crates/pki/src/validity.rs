//! The time for which a certificate is valid (RFC 5280 §4.1.2.5).

use std::time::Duration;

use crate::date::rfc3339;

/// The first and the last moment at which a certificate is valid, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Duration,
    pub not_after: Duration,
}

/// The part of a certificate's validity that a moment falls into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidityPhase {
    /// It begins so much later.
    NotYet(Duration),
    /// It lasts for so long.
    Within(Duration),
    /// It ended so long ago.
    Ended(Duration),
}

impl Validity {
    pub fn phase(&self, now: Duration) -> ValidityPhase {
        match (
            self.not_before.checked_sub(now),
            now.checked_sub(self.not_after),
        ) {
            (Some(until), _) if !until.is_zero() => ValidityPhase::NotYet(until),
            (_, Some(since)) if !since.is_zero() => ValidityPhase::Ended(since),
            _ => ValidityPhase::Within(self.not_after.saturating_sub(now)),
        }
    }

    /// The first moment, as RFC 3339 has it.
    pub fn begins(&self) -> String {
        rfc3339(self.not_before.as_secs())
    }

    /// The last moment, as RFC 3339 has it.
    pub fn ends(&self) -> String {
        rfc3339(self.not_after.as_secs())
    }
}

/// Writes a span of time in the largest unit that fits: `332 days`.
pub fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_before_within_or_after() {
        let seconds = Duration::from_secs;
        let validity = Validity {
            not_before: seconds(100),
            not_after: seconds(200),
        };
        for (now, phase) in [
            (99, ValidityPhase::NotYet(seconds(1))),
            (100, ValidityPhase::Within(seconds(100))),
            (200, ValidityPhase::Within(seconds(0))),
            (201, ValidityPhase::Ended(seconds(1))),
        ] {
            assert_eq!(validity.phase(seconds(now)), phase);
        }
        assert_eq!(validity.ends(), "1970-01-01T00:03:20Z");
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (7_199, "1 hour"),
            (172_799, "47 hours"),
            (332 * 86_400 + 5, "332 days"),
        ] {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
    }
}
