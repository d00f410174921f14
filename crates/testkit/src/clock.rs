//! Measures the length of a CPU cycle for benchmarks, because machines change their clock rate
//! without notice.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Returns the present length of a CPU cycle in nanoseconds. A chain of a multiplication and an
/// exclusive or takes four cycles per step.
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

/// Decides for each of several samples whether the clock rate was steady.
#[derive(Debug)]
pub struct Watch {
    cycle_ns: f64,
}

impl Watch {
    /// Greatest relative change of the clock rate during a valid sample.
    const MOVED_MAX: f64 = 0.03;

    pub fn start() -> Self {
        Self {
            cycle_ns: cycle_ns(),
        }
    }

    /// Returns the nanoseconds of a CPU cycle since the start or the last call. Returns `None` if
    /// the clock rate changed, as it often does on a busy machine.
    pub fn lap(&mut self) -> Option<f64> {
        let before = std::mem::replace(&mut self.cycle_ns, cycle_ns());
        let cycle = (before + self.cycle_ns) / 2.0;
        let steady = (before - self.cycle_ns).abs() / cycle <= Self::MOVED_MAX;
        steady.then_some(cycle)
    }
}
