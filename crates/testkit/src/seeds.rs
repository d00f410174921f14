//! Which seeds a test runs that could run any number of them.

use std::ops::Range;
use std::process::Command;

/// Returns `count` seeds, of which the commit draws the first: each commit tries others, and a run can be had again.
/// `ESPLANADE_{name}_SEEDS` and `ESPLANADE_{name}_FIRST_SEED` say how many, and where they begin.
#[must_use]
pub fn of(name: &str, count: u64) -> Range<u64> {
    let first = from_environment(name, "FIRST_SEED").unwrap_or_else(drawn_by_commit);
    let count = from_environment(name, "SEEDS").unwrap_or(count);
    println!("{count} seeds from {first} on");
    first..first.saturating_add(count)
}

/// Returns the words that run one seed alone.
#[must_use]
pub fn alone(name: &str, seed: u64) -> String {
    format!("ESPLANADE_{name}_FIRST_SEED={seed} ESPLANADE_{name}_SEEDS=1")
}

fn from_environment(name: &str, what: &str) -> Option<u64> {
    std::env::var(format!("ESPLANADE_{name}_{what}"))
        .ok()?
        .parse()
        .ok()
}

/// Returns a number that the commit draws, or 0 where there is no commit.
fn drawn_by_commit() -> u64 {
    let git = Command::new("git")
        .args(["-c", "safe.directory=*", "rev-parse", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let commit = git.ok().and_then(|git| String::from_utf8(git.stdout).ok());
    let digits = commit.and_then(|commit| commit.get(..8).map(str::to_owned));
    digits.map_or(0, |digits| u64::from_str_radix(&digits, 16).unwrap_or(0))
}
