//! The SA halves that may move, with their rates.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Most halves of one step.
const MOVES_MAX: usize = 4096;
/// Most halves that are compared for one step. There can be two million.
const COMPARED_MAX: usize = 4 * MOVES_MAX;
/// A step may be larger than wanted by this factor, because a half moves as a whole.
const OVER: f64 = 1.25;
/// A half with a smaller part of the load is too small to be tried alone.
const SMALL: f64 = 1.0 / 256.0;

/// A half goes to the GPU, or back to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfMove<K> {
    pub half: K,
    pub to_gpu: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Half {
    on_gpu: bool,
    /// The work that the half had done at the last look, and when that was. `None` is before the first look.
    seen: Option<(u64, Duration)>,
    /// Work in a second.
    rate: f64,
}

#[derive(Debug)]
pub(super) struct Halves<K> {
    halves: BTreeMap<K, Half>,
    on_gpu: usize,
    /// The half that was looked at last.
    looked_at: Option<K>,
}

impl<K> Default for Halves<K> {
    fn default() -> Self {
        Self {
            halves: BTreeMap::new(),
            on_gpu: 0,
            looked_at: None,
        }
    }
}

impl<K: Copy + Ord> Halves<K> {
    pub fn add(&mut self, half: K, replaces: Option<K>) -> bool {
        let replaced = replaces.and_then(|replaced| self.halves.get(&replaced));
        let new = Half {
            seen: None,
            ..replaced.copied().unwrap_or_default()
        };
        self.remove(half);
        self.on_gpu += usize::from(new.on_gpu);
        self.halves.insert(half, new);
        new.on_gpu
    }

    pub fn remove(&mut self, half: K) {
        if let Some(gone) = self.halves.remove(&half) {
            self.on_gpu -= usize::from(gone.on_gpu);
        }
    }

    pub fn place(&mut self, half: K, on_gpu: bool) {
        if let Some(half) = self.halves.get_mut(&half)
            && half.on_gpu != on_gpu
        {
            half.on_gpu = on_gpu;
            match on_gpu {
                true => self.on_gpu += 1,
                false => self.on_gpu -= 1,
            }
        }
    }

    pub fn len(&self) -> usize {
        self.halves.len()
    }

    pub fn on_gpu(&self) -> usize {
        self.on_gpu
    }

    pub fn is_on_gpu(&self, half: K) -> Option<bool> {
        Some(self.halves.get(&half)?.on_gpu)
    }

    /// Returns the next halves in turn, at most so many, each once.
    pub fn next(&mut self, most: usize) -> Vec<K> {
        let keys = |from, to| {
            let range = self.halves.range((from, to));
            range.map(|(half, _)| *half)
        };
        let next: Vec<K> = match self.looked_at {
            Some(last) => {
                let rest = keys(Bound::Excluded(last), Bound::Unbounded);
                let begin = keys(Bound::Unbounded, Bound::Included(last));
                rest.chain(begin).take(most).collect()
            }
            None => keys(Bound::Unbounded, Bound::Unbounded)
                .take(most)
                .collect(),
        };
        self.looked_at = next.last().copied();
        next
    }

    pub fn measure(&mut self, half: K, work: u64, now: Duration) {
        let Some(half) = self.halves.get_mut(&half) else {
            return;
        };
        let Some((before, then)) = half.seen.replace((work, now)) else {
            return;
        };
        let seconds = now.saturating_sub(then).as_secs_f64().max(1e-3);
        let rate = work.saturating_sub(before) as f64 / seconds;
        // The mean smooths bursts. The first rate stands alone.
        half.rate = match half.rate > 0.0 {
            true => (half.rate + rate) / 2.0,
            false => rate,
        };
    }

    /// Returns the work in a second of all halves, and of those on the GPU.
    pub fn rates(&self) -> (f64, f64) {
        let halves = self.halves.values();
        halves.fold((0.0, 0.0), |(all, of_gpu), half| {
            let on_gpu = if half.on_gpu { half.rate } else { 0.0 };
            (all + half.rate, of_gpu + on_gpu)
        })
    }

    pub fn all_on_gpu(&self) -> Vec<K> {
        let halves = self.halves.iter().filter(|(_, half)| half.on_gpu);
        halves.map(|(half, _)| *half).collect()
    }

    /// Returns the elephants among the halves with the CPU that are about `part` of the load together.
    pub fn largest_on_cpu(&self, part: f64) -> Vec<K> {
        let (all, _) = self.rates();
        let wanted = part * all;
        let mut candidates = self.busy(false, true);
        let (mut chosen, mut sum) = (Vec::new(), 0.0);
        candidates.retain(|(rate, half)| {
            let fits = sum < wanted && sum + rate <= wanted * OVER && chosen.len() < MOVES_MAX;
            if fits {
                sum += rate;
                chosen.push(*half);
            }
            !fits
        });
        if sum >= wanted / 2.0 || chosen.len() == MOVES_MAX {
            return chosen;
        }
        // The others are elephants. The smallest of them is nearest to what is wanted.
        let smallest = candidates
            .iter()
            .rev()
            .find(|(rate, _)| *rate >= all * SMALL);
        let elephant = smallest.or(candidates.last()).map(|(_, half)| *half);
        chosen.extend(elephant);
        chosen
    }

    /// Returns the halves with the GPU that carry least and are about `part` of the load together, one at least.
    pub fn smallest_on_gpu(&self, part: f64) -> Vec<K> {
        let (all, _) = self.rates();
        let mut sum = 0.0;
        let candidates = self.busy(true, false).into_iter();
        let chosen = candidates.enumerate().take_while(|(place, (rate, _))| {
            sum += rate;
            *place == 0 || sum <= part * all * OVER
        });
        let chosen = chosen.map(|(_, (_, half))| half);
        chosen.take(MOVES_MAX).collect()
    }

    /// Returns the halves with one engine by their rates, the largest or the smallest first. Silent halves stay with
    /// the CPU, and leave the GPU first.
    fn busy(&self, on_gpu: bool, largest_first: bool) -> Vec<(f64, K)> {
        let halves = self.halves.iter();
        let there = halves.filter(|(_, half)| half.on_gpu == on_gpu && (on_gpu || half.rate > 0.0));
        let mut there: Vec<_> = there.map(|(key, half)| (half.rate, *key)).collect();
        let by_rate = |a: &(f64, K), b: &(f64, K)| match largest_first {
            true => b.0.total_cmp(&a.0),
            false => a.0.total_cmp(&b.0),
        };
        if there.len() > COMPARED_MAX {
            there.select_nth_unstable_by(COMPARED_MAX, by_rate);
            there.truncate(COMPARED_MAX);
        }
        there.sort_unstable_by(by_rate);
        there
    }
}
