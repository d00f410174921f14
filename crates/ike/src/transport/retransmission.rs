//! The timing of retransmissions (RFC 7296 §2.4). The pauses grow, and chance makes them shorter.

use std::time::Duration;

use crate::config::Retransmission;
use crate::host::Random;

/// The longest pause between two retransmissions.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The part of a pause that chance may take away. Requests that were lost together are so not repeated together.
/// RFC 7296 §2.4 leaves the timing to us.
const JITTER: f64 = 0.2;

/// The pause after `retransmissions` retransmissions of one request.
pub(super) fn pause(
    timing: &Retransmission,
    retransmissions: u32,
    random: &mut dyn Random,
) -> Duration {
    let exponent = i32::try_from(retransmissions).unwrap_or(i32::MAX);
    let seconds = timing.timeout.as_secs_f64() * timing.base.max(1.0).powi(exponent);
    Duration::try_from_secs_f64(seconds * (1.0 - JITTER * random.fraction()))
        .unwrap_or(PAUSE_MAX)
        .clamp(Duration::from_millis(10), PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives no jitter.
    struct Zero;

    impl Random for Zero {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    #[test]
    fn a_pause_is_bounded() {
        let timing = Retransmission {
            tries: 5000,
            timeout: Duration::from_secs(4),
            base: 1e300,
        };
        let random = &mut Zero;
        assert_eq!(pause(&timing, 4000, random), PAUSE_MAX);
        assert!(
            pause(
                &Retransmission {
                    timeout: Duration::ZERO,
                    ..timing
                },
                1,
                random
            ) > Duration::ZERO
        );
    }
}
