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

/// Tells of each sample in a row whether it counts.
#[derive(Debug)]
pub struct Watch {
    cycle_ns: f64,
}

impl Watch {
    /// How much the clock may move during a sample that counts.
    const MOVED_MAX: f64 = 0.03;

    pub fn start() -> Self {
        Self {
            cycle_ns: cycle_ns(),
        }
    }

    /// Nanoseconds of a core cycle since the start or the last call. None if the clock moved: a busy machine spoils many
    /// samples.
    pub fn lap(&mut self) -> Option<f64> {
        let before = std::mem::replace(&mut self.cycle_ns, cycle_ns());
        let cycle = (before + self.cycle_ns) / 2.0;
        let steady = (before - self.cycle_ns).abs() / cycle <= Self::MOVED_MAX;
        steady.then_some(cycle)
    }
}
