//! The share of the load that the GPU carries beside the CPU, by measurement.
//!
//! SA halves move between the two, one by one. Below a threshold the CPU carries everything. Above it the GPU gets more
//! and more, elephants first, for as long as more passes and its batches come back in time. Each move is a trial: what
//! did not help is undone. Trials cost little in the long run, because what a trial has cost is paid for by a pause.
//!
//! Nothing here reads a clock, and nothing touches an SA.

mod half;
mod window;

use std::time::Duration;

use half::Halves;
use window::Window;

use esplanade_config::ShareLimits;

pub use half::HalfMove;
pub use window::LoadSample;

/// The time between two looks at the load.
pub const PERIOD: Duration = Duration::from_millis(100);
/// Least change of what passes that counts as one.
const CHANGE: f64 = 0.02;
/// The part of its threshold below which the load is low. Between the two nothing moves.
const LOW: f64 = 0.75;
/// The part of the load of a usual first step, and of the smallest one.
const STEP: f64 = 1.0 / 8.0;
const STEP_MIN: f64 = 1.0 / 64.0;
/// Trials may cost this part of what passes.
const BUDGET: f64 = 0.015;
/// The first pauses after a trial in vain and after one with late batches, and the longest. Each pause is twice the one
/// before.
const PAUSE: Duration = Duration::from_millis(400);
const LATE_PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A failure is forgotten after so long without another, not counting the pause after it.
const GOOD_TIME: Duration = Duration::from_secs(60);
/// The GPU's share ends at once if most batches take so many times the limit.
const FAR_TOO_LATE: u32 = 8;
/// A load that differs by this factor from that of a trial in vain is worth another trial.
const OTHER_LOAD: f64 = 1.3;
/// A worker that works for this part of its time is full.
const FULL: f64 = 0.97;

/// The deeds of the balancer, and its view of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareReport {
    /// The percentage of the load that the GPU carries.
    pub percent: u64,
    /// SA halves that may move, and those of them that are with the GPU.
    pub halves: usize,
    pub on_gpu: usize,
    pub p99: Option<Duration>,
    pub busy_percent: u64,
    /// The GPU takes batches and gives them back.
    pub in_service: bool,
    pub moves: u64,
    pub trials: u64,
    /// Trials that were undone.
    pub undone: u64,
}

/// A step that shows its worth by what passes after it.
#[derive(Debug)]
struct Trial<K> {
    to_gpu: bool,
    /// The halves that were moved.
    moved: Vec<K>,
    before: Before,
}

/// The load when a trial began.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// The work that passed in a second.
    passed: f64,
    /// The busiest worker was full: nobody knows how much more there was to do.
    is_full: bool,
}

/// When trials in one direction may go on. Trials in vain and late batches have different causes, so each has its own
/// pauses.
#[derive(Debug, Default)]
struct Patience {
    vain: Pauses,
    late: Pauses,
    /// The load when a trial was in vain last. A very different load is worth another trial before its time.
    load: Option<Before>,
}

/// Pauses after failures of one cause.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    until: Duration,
}

/// Decides which SA halves the GPU carries. `K` names a half.
#[derive(Debug)]
pub struct Balancer<K> {
    limits: ShareLimits,
    halves: Halves<K>,
    window: Window,
    /// The next look belongs to the moment of a move and shows nothing.
    settles: bool,
    trial: Option<Trial<K>>,
    /// A trial was undone: this passed before it.
    recovers: Option<f64>,
    /// Seconds of work that trials have cost and that no pause has paid for.
    debt: f64,
    affordable: Duration,
    up: Patience,
    down: Patience,
    /// The part of the load that the next step moves, in each direction.
    step_up: f64,
    step_down: f64,
    /// Windows in a row with late batches.
    late: u32,
    in_service: bool,
    report: ShareReport,
}

impl<K: Copy + Ord> Balancer<K> {
    pub fn new(limits: ShareLimits) -> Self {
        Self {
            limits,
            halves: Halves::default(),
            window: Window::default(),
            settles: false,
            trial: None,
            recovers: None,
            debt: 0.0,
            affordable: Duration::ZERO,
            up: Patience::default(),
            down: Patience::default(),
            step_up: STEP,
            step_down: STEP,
            late: 0,
            in_service: true,
            report: ShareReport::default(),
        }
    }

    /// Takes a half into account. It begins where the half is that it replaces, else with the CPU. Returns whether that
    /// is the GPU.
    pub fn add(&mut self, half: K, replaces: Option<K>) -> bool {
        let on_gpu = self.halves.add(half, replaces);
        if let (Some(trial), Some(replaced)) = (&mut self.trial, replaces)
            && trial.moved.contains(&replaced)
        {
            trial.moved.push(half);
        }
        on_gpu
    }

    /// Takes a half into account that is up, and leaves it where it is. Returns whether that is the GPU.
    pub fn adopt(&mut self, half: K, on_gpu: bool) -> bool {
        if let Some(known) = self.halves.is_on_gpu(half) {
            return known;
        }
        self.halves.add(half, None);
        self.halves.place(half, on_gpu);
        on_gpu
    }

    /// Forgets a half: it is gone, or somebody else decides about it.
    pub fn remove(&mut self, half: K) {
        self.halves.remove(half);
        if self.is_empty() {
            // Without halves there are no looks. What comes later is another load.
            (self.trial, self.recovers, self.debt) = (None, None, 0.0);
        }
    }

    /// Returns the number of halves with the GPU.
    pub fn on_gpu(&self) -> usize {
        self.halves.on_gpu()
    }

    pub fn is_empty(&self) -> bool {
        self.halves.len() == 0
    }

    /// Returns the halves to measure now, at most so many. Each comes up in turn.
    pub fn next_halves(&mut self, most: usize) -> Vec<K> {
        self.halves.next(most)
    }

    /// Takes note of what a half has carried in all.
    pub fn measure(&mut self, half: K, packets: u64, bytes: u64, now: Duration) {
        self.halves.measure(half, window::work(packets, bytes), now);
    }

    /// Looks at what has passed since the last look, and decides what moves.
    pub fn look(&mut self, sample: &LoadSample, now: Duration) -> Vec<HalfMove<K>> {
        let moves = self.decide(sample, now);
        for HalfMove { half, to_gpu } in &moves {
            self.halves.place(*half, *to_gpu);
        }
        if !moves.is_empty() {
            self.settles = true;
            self.window = Window::default();
        }
        self.report.moves += moves.len() as u64;
        moves
    }

    pub fn report(&self) -> ShareReport {
        let (all, of_gpu) = self.halves.rates();
        ShareReport {
            percent: (of_gpu / all.max(1.0) * 100.0).round() as u64,
            halves: self.halves.len(),
            on_gpu: self.halves.on_gpu(),
            in_service: self.in_service,
            ..self.report
        }
    }

    fn decide(&mut self, sample: &LoadSample, now: Duration) -> Vec<HalfMove<K>> {
        self.pay(sample);
        if !sample.in_service || self.is_far_too_late(sample) {
            return self.give_up(sample, now);
        }
        self.in_service = true;
        if std::mem::take(&mut self.settles) {
            return Vec::new();
        }
        self.window.add(sample);
        if !self.window.is_whole() {
            return Vec::new();
        }
        let window = std::mem::take(&mut self.window);
        self.report.p99 = window.latency.p99();
        self.report.busy_percent = (window.busy() * 100.0).round() as u64;
        if self.recovers.take().is_some() {
            self.settle_debt(now);
        }
        match self.trial.take() {
            Some(trial) => self.judge(trial, &window, now),
            None => self.choose(&window, now),
        }
    }

    /// Counts what a trial costs, while it goes on and until its undoing has had its effect.
    fn pay(&mut self, sample: &LoadSample) {
        let before = self.trial.as_ref().map(|trial| trial.before.passed);
        // If everybody has time left, less passes because less comes.
        let is_idle = sample.busy < self.threshold() && !sample.latency.is_full();
        if let Some(before) = before.or(self.recovers)
            && !is_idle
        {
            let lacking = 1.0 - sample.passed() / before.max(1.0);
            self.debt += lacking.max(0.0) * sample.time.as_secs_f64();
        }
    }

    fn settle_debt(&mut self, now: Duration) {
        let pause = std::mem::take(&mut self.debt) / BUDGET;
        let pause = pause.min(PAUSE_MAX.as_secs_f64());
        self.affordable = self.affordable.max(now + Duration::from_secs_f64(pause));
    }

    fn is_far_too_late(&self, sample: &LoadSample) -> bool {
        let longest = self.limits.latency.saturating_mul(FAR_TOO_LATE);
        sample.latency.median() > Some(longest)
    }

    /// Takes everything from the GPU at once.
    fn give_up(&mut self, sample: &LoadSample, now: Duration) -> Vec<HalfMove<K>> {
        let is_first = self.halves.on_gpu() > 0 || (self.in_service && !sample.in_service);
        self.in_service = sample.in_service;
        self.window = Window::default();
        self.report.p99 = sample
            .latency
            .p99()
            .or(self.report.p99.filter(|_| self.in_service));
        self.report.busy_percent = (sample.busy * 100.0).round() as u64;
        if !is_first {
            if self.recovers.take().is_some() {
                self.settle_debt(now);
            }
            return Vec::new();
        }
        if let Some(trial) = self.trial.take() {
            self.report.undone += 1;
            self.recovers = Some(trial.before.passed);
        }
        self.step_up = STEP_MIN;
        self.up.late(now);
        let all = self.halves.all_on_gpu();
        moves(all, false)
    }

    fn judge(&mut self, trial: Trial<K>, window: &Window, now: Duration) -> Vec<HalfMove<K>> {
        let (passed, before) = (window.passed(), trial.before.passed);
        let is_late = self.is_late(window);
        let relieves = window.busy() < self.threshold();
        let holds = passed >= before * (1.0 - CHANGE);
        let succeeds = match trial.to_gpu {
            true => !is_late && (relieves && holds || passed >= before * (1.0 + CHANGE)),
            false => relieves,
        };
        if succeeds {
            self.settle_debt(now);
            let (patience, step) = self.of_direction(trial.to_gpu);
            // After a failure the end is near, and larger steps would miss it.
            if !patience.succeed(now) {
                *step = (*step * 2.0).min(1.0);
            }
            return Vec::new();
        }
        self.report.undone += 1;
        self.recovers = Some(before);
        let (patience, step) = self.of_direction(trial.to_gpu);
        *step = match trial.to_gpu && holds && !is_late {
            // It changed nothing: perhaps more does.
            true => (*step * 2.0).min(1.0),
            false => (*step / 2.0).max(STEP_MIN),
        };
        match is_late {
            true => patience.late(now),
            false => patience.in_vain(trial.before, now),
        }
        let there = |half: &K| self.halves.is_on_gpu(*half) == Some(trial.to_gpu);
        let undone = trial.moved.into_iter().filter(there).collect();
        moves(undone, !trial.to_gpu)
    }

    fn choose(&mut self, window: &Window, now: Duration) -> Vec<HalfMove<K>> {
        let (busy, threshold) = (window.busy(), self.threshold());
        let has_share = self.halves.on_gpu() > 0;
        self.late = if has_share && self.is_late(window) {
            self.late + 1
        } else {
            0
        };
        // One late window may be a chance of the system, unless most batches of it are late.
        let most_are_late = window.latency.median() > Some(self.limits.latency);
        if self.late > 1 || self.late == 1 && most_are_late {
            self.late = 0;
            self.step_up = (self.step_up / 2.0).max(STEP_MIN);
            self.up.late(now);
            return moves(self.halves.smallest_on_gpu(2.0 * STEP), false);
        }
        let load = Before {
            passed: window.passed(),
            is_full: busy >= FULL,
        };
        let may = |patience: &mut Patience| {
            patience.follow(load);
            now >= patience.until() && now >= self.affordable
        };
        if busy >= threshold {
            return match may(&mut self.up) {
                true => self.begin(true, load),
                false => Vec::new(),
            };
        }
        let is_short = busy < threshold * LOW || window.latency.is_full();
        if has_share && is_short && may(&mut self.down) {
            return self.begin(false, load);
        }
        if !has_share {
            self.step_down = STEP;
        }
        Vec::new()
    }

    fn begin(&mut self, to_gpu: bool, before: Before) -> Vec<HalfMove<K>> {
        let moved = match to_gpu {
            true => self.halves.largest_on_cpu(self.step_up),
            false => self.halves.smallest_on_gpu(self.step_down),
        };
        if moved.is_empty() {
            return Vec::new();
        }
        self.report.trials += 1;
        self.trial = Some(Trial {
            to_gpu,
            moved: moved.clone(),
            before,
        });
        moves(moved, to_gpu)
    }

    fn of_direction(&mut self, to_gpu: bool) -> (&mut Patience, &mut f64) {
        match to_gpu {
            true => (&mut self.up, &mut self.step_up),
            false => (&mut self.down, &mut self.step_down),
        }
    }

    fn is_late(&self, window: &Window) -> bool {
        window.latency.p99() > Some(self.limits.latency)
    }

    fn threshold(&self) -> f64 {
        self.limits.threshold as f64 / 100.0
    }
}

impl Patience {
    fn in_vain(&mut self, load: Before, now: Duration) {
        self.vain.fail(PAUSE, now);
        self.load = Some(load);
    }

    fn late(&mut self, now: Duration) {
        self.late.fail(LATE_PAUSE, now);
    }

    /// Forgets a failure of each cause. Returns false if there is none.
    fn succeed(&mut self, now: Duration) -> bool {
        let all = [&mut self.vain, &mut self.late];
        let any = all.map(|pauses| pauses.succeed(now));
        any.contains(&true)
    }

    fn until(&self) -> Duration {
        self.vain.until.max(self.late.until)
    }

    /// Begins anew where the load is quite another one. Where a worker is full and was not, more may come than passes.
    fn follow(&mut self, load: Before) {
        let Before { passed, is_full } = load;
        let is_other = |load: Before| {
            passed > load.passed * OTHER_LOAD
                || passed * OTHER_LOAD < load.passed
                || is_full && !load.is_full
        };
        if self.load.is_some_and(is_other) {
            (self.vain, self.load) = (Pauses::default(), None);
        }
    }
}

impl Pauses {
    /// Begins a pause, twice as long as the one before.
    fn fail(&mut self, first: Duration, now: Duration) {
        self.forget(now);
        let pause = first.saturating_mul(1 << self.failures);
        self.until = now + pause.min(PAUSE_MAX);
        // Longer pauses would not come, and would take long to be forgotten.
        self.failures += u32::from(pause < PAUSE_MAX);
    }

    /// Forgets a failure, and those that time has healed. Returns false if there is none.
    fn succeed(&mut self, now: Duration) -> bool {
        self.forget(now);
        let any = self.failures > 0;
        self.failures = self.failures.saturating_sub(1);
        any
    }

    /// Forgets failures after good time.
    fn forget(&mut self, now: Duration) {
        let good = now.saturating_sub(self.until);
        let healed = good.as_secs() / GOOD_TIME.as_secs();
        self.failures = self
            .failures
            .saturating_sub(healed.min(u32::MAX.into()) as u32);
    }
}

fn moves<K>(halves: Vec<K>, to_gpu: bool) -> Vec<HalfMove<K>> {
    let moves = halves.into_iter();
    moves.map(|half| HalfMove { half, to_gpu }).collect()
}

#[cfg(test)]
mod tests;
