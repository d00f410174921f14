//! How long a core cycle is, for benches: machines change their clock and do not say so.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Nanoseconds of one core cycle at present: a multiplication and an exclusive or that wait for those before take four.
pub fn cycle_ns() -> f64 {
    const STEPS: u64 = 10_000;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let mut x = black_box(3u64);
        let k = black_box(0x9e37_79b9_7f4a_7c15u64);
        let start = Instant::now();
        for _ in 0..STEPS {
            x = x.wrapping_mul(k) ^ 0x55;
        }
        black_box(x);
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / (4 * STEPS) as f64
}
