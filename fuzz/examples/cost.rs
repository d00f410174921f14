//! Fills a message, or an answer of a server, with each shape of `cost`, at two lengths, and counts the steps. The longer
//! one has the most bytes that a datagram carries, and may take little more than twice the steps of the shorter one.
//!
//! `coverage.sh` builds it; without its flags there is nothing to count.

use std::process::ExitCode;

use esplanade_fuzz::cost::{SHAPES, steps_allowed, steps_of};

const SHORT: usize = 30_000;
const LONG: usize = 60_000;

/// Twice as long, and a quarter for what sorting and tables take.
const GROWTH_MAX: f64 = 2.5;

/// The compiler calls it at the start of the program. The regions are counted elsewhere (`coverage.rs`).
// SAFETY: the name and the arguments are those of LLVM's SanitizerCoverage, and no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(_start: *mut u8, _end: *mut u8) {}

/// The compiler calls it with the places of the regions.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(_start: *const usize, _end: *const usize) {}

fn main() -> ExitCode {
    let (mut failed, mut total) = (false, 0);
    println!(
        "{:26} {:>12} {:>12} {:>7} {:>6}",
        "shape", "steps", "twice", "growth", "a byte"
    );
    for shape in SHAPES {
        let steps = |len| {
            let content = shape.content(len);
            (content.len(), steps_of(shape.door, &content))
        };
        // The first call makes what all calls share.
        steps(1000);
        let ((_, short), (len, long)) = (steps(SHORT), steps(LONG));
        total += long;
        let growth = long as f64 / short.max(1) as f64;
        let fits = growth <= GROWTH_MAX && long <= steps_allowed(len);
        let (name, a_byte) = (shape.name, long / len as u64);
        let verdict = if fits { "" } else { "FAILED" };
        println!("{name:26} {short:12} {long:12} {growth:7.2} {a_byte:6} {verdict}");
        failed |= !fits;
    }
    if total == 0 {
        eprintln!("nothing is instrumented: use fuzz/coverage.sh");
        return ExitCode::from(2);
    }
    if failed {
        eprintln!(
            "FAILED: the work of a message grows faster than its length, or a byte costs too much"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
