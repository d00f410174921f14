//! Counts steps. A step is the passage from one basic block of the instrumented crates to the next, in our code and in
//! the decoders that it uses. Time is another thing: it differs from run to run, and steps do not.
//!
//! `instrument.sh` and `run.sh` have the compiler call the functions here. In other builds there is nothing to count.

use std::sync::atomic::{AtomicU64, Ordering};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// libFuzzer has functions of these names, which end the program. `run.sh` puts those here in their place, for one target.
#[cfg(any(feature = "steps", not(feature = "libfuzzer")))]
mod callbacks {
    use super::{Ordering, STEPS};

    /// The compiler calls it at each step.
    // SAFETY: the name and the argument are those of LLVM's SanitizerCoverage.
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc_guard(_guard: *mut u32) {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }

    /// The compiler calls it when the program starts, for each instrumented crate.
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc_guard_init(_start: *mut u32, _end: *mut u32) {}
}

/// Returns the steps that the call takes. They are none where nothing is instrumented.
pub fn count<T>(call: impl FnOnce() -> T) -> u64 {
    let before = STEPS.load(Ordering::Relaxed);
    drop(call());
    STEPS.load(Ordering::Relaxed) - before
}
