//! Times contenders in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use esplanade_crypto::Direction;
use esplanade_testkit::clock::Watch;

use crate::contender::{Contender, Esplanade};
use crate::plan::{Plan, Random};

/// Time that a sample should take. It is short, so that some samples have the core alone on a busy machine.
const SAMPLE: Duration = Duration::from_micros(150);
/// The most time for giving every key a packet before samples are taken.
const WARM_MAX: Duration = Duration::from_millis(40);
/// Number of samples that are taken after that.
const SAMPLES_OF_TURN: usize = 8;
/// Number of samples that choose the best of a library's interfaces.
const TRIALS: usize = 3;

pub struct Limits {
    pub samples: usize,
    /// Time for one case.
    pub time: Duration,
}

#[derive(Clone, Default)]
pub struct Samples {
    /// Core cycles per packet.
    cycles: Vec<f64>,
    ghz: Vec<f64>,
}

impl Samples {
    pub fn len(&self) -> usize {
        self.cycles.len()
    }

    pub fn least(&self) -> f64 {
        self.cycles.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn median(&self) -> f64 {
        median(&self.cycles)
    }

    pub fn ghz(&self) -> f64 {
        median(&self.ghz)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the time that two readings of the clock take.
fn clock() -> Duration {
    let least = (0..1000).map(|_| Instant::now().elapsed()).min();
    least.unwrap_or_default()
}

/// The work of a contender in its turn.
#[derive(Clone, Copy)]
struct Turn {
    /// Number of batches before the samples.
    warm: usize,
    /// Number of batches in a sample.
    calls: usize,
    samples: usize,
}

/// One case: a plan, a direction and the contenders.
pub struct Race<'a> {
    plan: &'a mut Plan,
    /// Seals the packets that are opened next. It has its own keys, so that the opener's keys are as cold as in real
    /// use.
    sealer: Option<Esplanade>,
    clock: Duration,
}

impl<'a> Race<'a> {
    pub fn new(plan: &'a mut Plan, direction: Direction, sealer: Esplanade) -> Self {
        let sealer = (direction == Direction::Open).then_some(sealer);
        let clock = clock();
        Random(2).fill(&mut plan.batch.buffer);
        Self {
            plan,
            sealer,
            clock,
        }
    }

    /// Runs one batch of the plan and returns the time of the work alone.
    fn call(&mut self, contender: &mut dyn Contender, number: usize) -> Duration {
        let Plan { batches, batch, .. } = &mut *self.plan;
        let packets = &batches[number % batches.len()];
        if let Some(sealer) = &mut self.sealer {
            sealer.set_up(packets, batch);
            assert_eq!(sealer.run(batch), packets.len());
        }
        contender.set_up(packets, batch);
        let start = Instant::now();
        let done = black_box(contender.run(batch));
        let spent = start.elapsed();
        assert_eq!(
            done,
            packets.len(),
            "{:?} refused a packet",
            contender.name()
        );
        spent.saturating_sub(self.clock)
    }

    fn turn(&mut self, contender: &mut dyn Contender) -> Turn {
        let all = self.plan.batches.len();
        self.call(contender, 0);
        let one = self.call(contender, 0).max(Duration::from_nanos(1));
        let calls = (SAMPLE.div_duration_f64(one) as usize).clamp(1, 128);
        match all {
            1 => Turn {
                warm: 1,
                calls,
                samples: 1,
            },
            _ => Turn {
                warm: all.min(WARM_MAX.div_duration_f64(one) as usize),
                calls,
                // A slow contender would take all of the time, so it gets one sample.
                samples: if one > WARM_MAX { 1 } else { SAMPLES_OF_TURN },
            },
        }
    }

    /// Adds samples, except those during which the clock rate changed.
    fn take(&mut self, contender: &mut dyn Contender, round: usize, turn: Turn, to: &mut Samples) {
        let mut from = round * turn.calls * turn.samples;
        for number in from..from + turn.warm {
            self.call(contender, number);
        }
        let mut watch = Watch::start();
        for _ in 0..turn.samples {
            let mut spent = Duration::ZERO;
            for number in from..from + turn.calls {
                spent += self.call(contender, number);
            }
            from += turn.calls;
            if let Some(cycle) = watch.lap() {
                let packets = (turn.calls * self.plan.batches[0].len()) as f64;
                to.cycles.push(spent.as_nanos() as f64 / cycle / packets);
                to.ghz.push(1.0 / cycle);
            }
        }
    }

    /// Takes turns until each contender has `samples` samples.
    fn rounds(
        &mut self,
        contenders: &mut [Box<dyn Contender + '_>],
        limits: &Limits,
    ) -> Vec<Samples> {
        let began = Instant::now();
        let mut taken = vec![Samples::default(); contenders.len()];
        let turns: Vec<Turn> = contenders
            .iter_mut()
            .map(|c| self.turn(c.as_mut()))
            .collect();
        // A busy machine spoils many samples.
        for round in 0..limits.samples * 4 {
            for (i, contender) in contenders.iter_mut().enumerate() {
                if taken[i].len() < limits.samples {
                    self.take(contender.as_mut(), round, turns[i], &mut taken[i]);
                }
            }
            let enough = |least: usize| taken.iter().all(|samples| samples.len() >= least);
            if enough(limits.samples) || enough(1) && began.elapsed() > limits.time {
                break;
            }
        }
        taken
    }

    /// Runs the case. Only the best of several contenders with the same name takes part.
    pub fn run<'c>(
        &mut self,
        mut contenders: Vec<Box<dyn Contender + 'c>>,
        limits: &Limits,
    ) -> Vec<(Box<dyn Contender + 'c>, Samples)> {
        let trials = Limits {
            samples: TRIALS,
            time: limits.time / 2,
        };
        let tried = self.rounds(&mut contenders, &trials);
        let mut best: Vec<(Box<dyn Contender + 'c>, f64)> = Vec::new();
        for (contender, samples) in contenders.into_iter().zip(&tried) {
            let name = contender.name().0;
            match best.iter_mut().find(|(other, _)| other.name().0 == name) {
                Some(other) if samples.median() < other.1 => *other = (contender, samples.median()),
                Some(_) => {}
                None => best.push((contender, samples.median())),
            }
        }
        let mut contenders: Vec<_> = best.into_iter().map(|(contender, _)| contender).collect();
        let taken = self.rounds(&mut contenders, limits);
        contenders.into_iter().zip(taken).collect()
    }
}

/// Returns the core cycles that `make` takes: median and least of groups of sixteen.
pub fn latency<T>(mut make: impl FnMut() -> T) -> Samples {
    const GROUP: usize = 16;
    let mut samples = Samples::default();
    for _ in 0..40 {
        let mut made = Vec::with_capacity(GROUP);
        let mut watch = Watch::start();
        let start = Instant::now();
        for _ in 0..GROUP {
            made.push(make());
        }
        let spent = start.elapsed();
        if let Some(cycle) = watch.lap() {
            samples
                .cycles
                .push(spent.as_nanos() as f64 / cycle / GROUP as f64);
            samples.ghz.push(1.0 / cycle);
        }
        drop(black_box(made));
    }
    samples
}
