//! Replays every corpus file through its target, and variations of it that are the same in every run.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use esplanade_fuzz::{TARGETS, corpus};

const FILES_MAX: usize = 300;
const VARIATIONS: u64 = 300;
/// The time in which one input must be done, even on a slow machine in a debug build.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);
/// The time for the variations of a target. The files themselves are always replayed.
const TARGET_TIME_MAX: Duration = Duration::from_secs(3);

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

/// Replays a target's corpus, and returns the number of its files.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let files = corpus::files(&corpus::folder(name)).unwrap();
    let mut inputs = Vec::new();
    for path in &files {
        let inside = corpus::inputs(path).unwrap().into_iter();
        inputs.extend(inside.map(|input| (path, input)));
    }
    assert!(!inputs.is_empty(), "{name} has no corpus");
    let begin = Instant::now();
    for (path, input) in &inputs {
        let one = Instant::now();
        target(input);
        assert!(one.elapsed() < INPUT_TIME_MAX, "{} hangs", path.display());
    }
    let mut generator = Generator(1);
    let mut variations = 0;
    'variations: for _ in 0..VARIATIONS {
        for (_, input) in &inputs {
            if begin.elapsed() > TARGET_TIME_MAX {
                break 'variations;
            }
            target(&generator.vary(input));
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
    let some = || {
        let mut files = 0;
        loop {
            // The lock ends with the statement.
            let next = targets.lock().unwrap().next();
            match next {
                Some((name, target)) => files += replay(name, *target),
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
