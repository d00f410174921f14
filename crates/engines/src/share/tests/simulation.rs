//! A model of a worker, which carries SA halves itself or copies them to a GPU.
//!
//! Work is measured so that a worker that carries everything does 1 in a second.

use super::*;
use crate::latency::LatencyCounters;

/// Batches that a port holds.
const DEPTH: u32 = 16;
/// Bytes that are one unit of work.
const UNIT: f64 = 1e9;

#[derive(Clone, Debug)]
pub struct World {
    /// The work that comes for each half in a second.
    pub offered: Vec<f64>,
    /// The worker's seconds for a unit of work: in any case, to seal and open, to give it to the GPU.
    pub io: f64,
    pub crypto: f64,
    pub copy: f64,
    /// The work that the GPU does in a second, and the time of a batch without a queue.
    pub gpu: f64,
    pub batch: Duration,
    /// The first halves that the GPU may have are behind so many others.
    pub fixed: usize,
    pub noise: f64,
    pub in_service: bool,
    /// One batch is late in every so many looks.
    pub hiccups: Option<u64>,
}

/// The effect of a placement of the halves.
#[derive(Clone, Copy, Debug)]
pub struct Flowing {
    pub passed: f64,
    pub busy: f64,
    pub p99: Option<Duration>,
    pub is_full: bool,
}

impl World {
    pub fn new(parts: Vec<f64>) -> Self {
        let world = Self {
            offered: parts,
            io: 0.3,
            crypto: 0.7,
            copy: 0.1,
            gpu: 2.0,
            batch: Duration::from_micros(200),
            fixed: 0,
            noise: 0.0,
            in_service: true,
            hiccups: None,
        };
        world.with_load(0.5)
    }

    /// Scales what comes to this load of the worker alone.
    pub fn with_load(mut self, load: f64) -> Self {
        let sum: f64 = self.offered.iter().sum();
        for one in &mut self.offered {
            *one *= load / sum;
        }
        self
    }

    pub fn with_gpu(self, gpu: f64, batch_us: u64) -> Self {
        let batch = Duration::from_micros(batch_us);
        Self { gpu, batch, ..self }
    }

    pub fn flowing(&self, on_gpu: impl Fn(usize) -> bool) -> Flowing {
        let (mut all, mut need, mut of_gpu) = (0.0, 0.0, 0.0);
        for (half, rate) in self.offered.iter().enumerate() {
            let there = on_gpu(half);
            all += rate;
            need += rate * (self.io + if there { self.copy } else { self.crypto });
            of_gpu += if there { *rate } else { 0.0 };
        }
        // The worker does not know whose packets it leaves in the kernel's queue: all halves suffer alike.
        let used = of_gpu / self.gpu;
        let part = (1.0 / need).min(1.0 / used).min(1.0);
        let is_full = used * part > 0.98;
        let queue = match is_full {
            true => f64::from(DEPTH),
            false => (1.0 / (1.0 - used * part)).min(DEPTH.into()),
        };
        Flowing {
            passed: all * part,
            busy: need * part,
            p99: (of_gpu > 0.0).then(|| self.batch.mul_f64(queue)),
            is_full,
        }
    }

    /// Returns what passes with the better of CPU and GPU alone. A GPU that is near the limit of its latency may be the
    /// worse one.
    pub fn best(&self, limits: ShareLimits) -> f64 {
        let cpu = self.flowing(|_| false).passed;
        let gpu = self.flowing(|half| half >= self.fixed);
        match gpu.p99.is_some_and(|p99| p99 < limits.latency.mul_f64(0.8)) {
            true => cpu.max(gpu.passed),
            false => cpu,
        }
    }
}

/// The balancer at work in a world.
pub struct Course {
    pub world: World,
    pub balancer: Balancer<usize>,
    pub on_gpu: Vec<bool>,
    now: Duration,
    carried: Vec<f64>,
    dice: u64,
    looks: u64,
    /// The time for which the worker stands still because halves move.
    pause: f64,
}

impl Course {
    pub fn new(world: World) -> Self {
        let halves = world.offered.len();
        let mut balancer = Balancer::new(LIMITS);
        for half in world.fixed..halves {
            assert!(!balancer.add(half, None));
        }
        Self {
            balancer,
            on_gpu: vec![false; halves],
            now: Duration::ZERO,
            carried: vec![0.0; halves],
            dice: 1,
            looks: 0,
            pause: 0.0,
            world,
        }
    }

    /// Lets time pass for so many looks. Returns what has passed in a second, on average.
    pub fn run(&mut self, looks: usize) -> f64 {
        let passed: f64 = (0..looks).map(|_| self.look()).sum();
        passed / looks as f64
    }

    fn look(&mut self) -> f64 {
        let flowing = self.world.flowing(|half| self.on_gpu[half]);
        let moving = 1.0 - std::mem::take(&mut self.pause) / PERIOD.as_secs_f64();
        let passed = flowing.passed * moving.max(0.0);
        let measured = passed * (1.0 + self.world.noise * self.chance());
        self.now += PERIOD;
        let all: f64 = self.world.offered.iter().sum();
        for half in self.balancer.next_halves(usize::MAX) {
            let rate = self.world.offered[half] * passed / all;
            self.carried[half] += rate * PERIOD.as_secs_f64() * UNIT;
            let carried = self.carried[half] as u64;
            self.balancer.measure(half, 0, carried, self.now);
        }
        let latency = LatencyCounters::default();
        // A batch that takes longer than a period comes back in none.
        if let Some(p99) = flowing.p99.filter(|p99| *p99 < PERIOD) {
            for _ in 0..30 {
                latency.count(p99);
                if flowing.is_full {
                    latency.count_filled();
                }
            }
        }
        self.looks += 1;
        let hiccups = self.world.hiccups;
        if hiccups.is_some_and(|every| self.looks.is_multiple_of(every)) {
            latency.count(PERIOD / 2);
        }
        let hangs = flowing.p99.is_some_and(|p99| p99 >= PERIOD);
        let sample = LoadSample {
            time: PERIOD,
            packets: 0,
            bytes: (measured * PERIOD.as_secs_f64() * UNIT) as u64,
            busy: flowing.busy,
            latency: latency.counts(),
            in_service: self.world.in_service && !hangs,
        };
        let moves = self.balancer.look(&sample, self.now);
        for HalfMove { half, to_gpu } in &moves {
            assert_ne!(self.on_gpu[*half], *to_gpu, "it is there already");
            assert!(*half >= self.world.fixed);
            self.on_gpu[*half] = *to_gpu;
        }
        if !moves.is_empty() {
            // The worker lets its engines finish what they have.
            self.pause = flowing.p99.unwrap_or_default().as_secs_f64().min(1.0);
        }
        passed
    }

    /// Returns a number between -1 and 1.
    fn chance(&mut self) -> f64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % 2001) as f64 / 1000.0 - 1.0
    }
}
