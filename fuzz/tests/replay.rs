//! Replays the corpus of each target, and variations of its inputs. Of a file with many inputs the commit draws some, and
//! it draws the variations: `fuzz/coverage.sh` replays every input.

use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use esplanade_fuzz::{TARGETS, Target, corpus};
use esplanade_testkit::seeds;

const FILES_MAX: usize = 300;
const VARIATIONS: u64 = 300;
/// The time in which one input must be done, even on a slow machine in a debug build.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);
/// The time for the variations of a target.
const VARIATIONS_TIME_MAX: Duration = Duration::from_secs(1);
/// Of so many inputs in a file, one is drawn.
const SHARE: usize = 3;

/// The SplitMix64 generator: small, and the same on every machine.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    fn vary(&mut self, input: &[u8]) -> Vec<u8> {
        let mut varied = input.to_vec();
        for _ in 0..=self.below(4) {
            let position = self.below(varied.len());
            match self.below(4) {
                0 => varied.truncate(position),
                1 => varied.insert(position, self.next().to_le_bytes()[0]),
                _ => {
                    if let Some(byte) = varied.get_mut(position) {
                        *byte = self.next().to_le_bytes()[0];
                    }
                }
            }
        }
        varied
    }
}

/// Runs the target, and prints an input that it does not survive.
fn run(name: &str, target: Target, input: &[u8]) {
    let begin = Instant::now();
    let done = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
    let hangs = begin.elapsed() >= INPUT_TIME_MAX;
    assert!(
        done.is_ok() && !hangs,
        "{name} {} with the input {}",
        if hangs { "hangs" } else { "fails" },
        input.escape_ascii()
    );
}

/// Replays a target's corpus, and returns the number of its files.
fn replay(name: &str, target: Target, seed: u64) -> usize {
    let files = corpus::files(&corpus::folder(name)).unwrap();
    let mut inputs = Vec::new();
    for path in &files {
        let inside = corpus::inputs(path).unwrap();
        let share = inside.len().clamp(1, SHARE);
        let first = usize::try_from(seed % share as u64).unwrap();
        inputs.extend(inside.into_iter().skip(first).step_by(share));
    }
    assert!(!inputs.is_empty(), "{name} has no corpus");
    for input in &inputs {
        run(name, target, input);
    }
    let begin = Instant::now();
    let mut generator = Generator(seed);
    let mut variations = 0;
    'variations: for _ in 0..VARIATIONS {
        for input in &inputs {
            if begin.elapsed() > VARIATIONS_TIME_MAX {
                break 'variations;
            }
            run(name, target, &generator.vary(input));
            variations += 1;
        }
    }
    println!(
        "{name}: {} inputs in {} files, {variations} variations, {:?}",
        inputs.len(),
        files.len(),
        begin.elapsed()
    );
    files.len()
}

#[test]
fn every_target_survives_its_corpus() {
    let targets = Mutex::new(TARGETS.iter());
    let seed = seeds::of("REPLAY", 1).start;
    let some = || {
        let mut files = 0;
        loop {
            // The lock ends with the statement.
            let next = targets.lock().unwrap().next();
            match next {
                Some((name, target)) => files += replay(name, *target, seed),
                None => return files,
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let total: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(total <= FILES_MAX, "{total} corpus files: minimise them");
}

#[test]
fn every_corpus_folder_has_a_target() {
    for entry in std::fs::read_dir(corpus::folder("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name}");
    }
}
