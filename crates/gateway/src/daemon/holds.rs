//! Measures for how long the control thread works without a look at its inputs. All peers' IKE waits meanwhile.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::status::{HoldStats, Named};

/// The upper bounds of the classes of holds, in milliseconds.
const BOUNDS_MS: [u64; 7] = [1, 3, 10, 30, 100, 300, 1000];

/// The turns of the control thread's loop, by their duration.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// The last class is for turns beyond all bounds.
    classes: [u64; BOUNDS_MS.len() + 1],
    longest: Duration,
}

impl Holds {
    /// Counts a turn, which ends now.
    pub fn note(&mut self, wake: &Wake) {
        if let Some(woken) = wake.0.get() {
            self.count(woken.elapsed());
        }
    }

    fn count(&mut self, held: Duration) {
        let class = BOUNDS_MS.partition_point(|bound| Duration::from_millis(*bound) < held);
        if let Some(count) = self.classes.get_mut(class) {
            *count += 1;
        }
        self.longest = self.longest.max(held);
    }

    pub fn report(&self) -> HoldStats {
        let names = BOUNDS_MS.iter().map(|bound| format!("to-{bound}-ms"));
        let names = names.chain(["longer".to_owned()]);
        HoldStats {
            longest_us: u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX),
            turns: Named(names.zip(self.classes).collect()),
        }
    }
}

/// The moment at which an input wakes the control thread.
#[derive(Debug, Default)]
pub(super) struct Wake(Cell<Option<Instant>>);

impl Wake {
    /// Waits for an input, and notes when it comes.
    pub async fn on<T>(&self, input: impl Future<Output = T>) -> T {
        let input = input.await;
        self.0.set(Some(Instant::now()));
        input
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_their_duration() {
        let mut holds = Holds::default();
        for ms in [0, 1, 2, 10, 11, 999, 1000, 1001, 7100] {
            holds.count(Duration::from_millis(ms));
        }
        let HoldStats { longest_us, turns } = holds.report();
        assert_eq!(longest_us, 7_100_000);
        let counts: Vec<_> = turns
            .0
            .iter()
            .map(|(name, n)| (name.as_str(), *n))
            .collect();
        assert_eq!(
            counts,
            [
                ("to-1-ms", 2),
                ("to-3-ms", 1),
                ("to-10-ms", 1),
                ("to-30-ms", 1),
                ("to-100-ms", 0),
                ("to-300-ms", 0),
                ("to-1000-ms", 2),
                ("longer", 2),
            ]
        );
        // A turn that no input has begun is none.
        holds.note(&Wake::default());
        assert_eq!(holds.classes.iter().sum::<u64>(), 9);
    }
}
