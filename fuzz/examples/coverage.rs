//! Replays the corpora and says how many regions of the instrumented crates no input reaches. `coverage.sh` builds it;
//! without its flags there is nothing to count.
//!
//! The argument is a file with the highest number allowed. A change that adds code without inputs for it raises the
//! number, and fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use esplanade_fuzz::TARGETS;

/// Start and end of each array of counters. Object files of one program share an array, and each reports it.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The compiler calls it at the start of the program, with a counter for each region.
// SAFETY: the name and the arguments are those of LLVM's SanitizerCoverage, and no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let array = (start as usize, end as usize);
    let mut counters = COUNTERS.lock().expect("no thread has panicked");
    if !counters.contains(&array) {
        counters.push(array);
    }
}

/// The regions that were not reached, and all regions.
fn count() -> (usize, usize) {
    let counters = COUNTERS.lock().expect("no thread has panicked");
    let mut counts = (0, 0);
    for &(start, end) in counters.iter() {
        for at in start..end {
            // SAFETY: LLVM gave this array of bytes, which lives as long as the program. Other threads may write to it.
            let counter = unsafe { std::ptr::read_volatile(at as *const u8) };
            counts.0 += usize::from(counter == 0);
            counts.1 += 1;
        }
    }
    counts
}

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let entries = fs::read_dir(folder).expect("a corpus");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// The number in the line `uncovered_max = NUMBER`.
fn ceiling(path: &str) -> Option<usize> {
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("uncovered_max = "))?;
    line.parse().ok()
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: coverage FILE");
        return ExitCode::from(2);
    };
    for (name, target) in TARGETS {
        for file in corpus(name) {
            target(&fs::read(file).expect("a readable file"));
        }
    }
    let (uncovered, regions) = count();
    println!(
        "{uncovered} of {regions} regions of ike, pki and ipsec are not reached by any corpus"
    );
    let Some(ceiling) = ceiling(&path).filter(|_| regions > 0) else {
        eprintln!(
            "{path} has no line `uncovered_max = NUMBER`, or nothing is instrumented: use fuzz/coverage.sh"
        );
        return ExitCode::from(2);
    };
    if uncovered > ceiling {
        eprintln!(
            "FAILED: {path} allows {ceiling}; add inputs that reach the new code to fuzz/corpus, or raise the number and say why"
        );
        return ExitCode::FAILURE;
    }
    if uncovered + ceiling / 20 < ceiling {
        println!("{path} allows {ceiling}: lower the number");
    }
    ExitCode::SUCCESS
}
