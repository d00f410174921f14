//! Measures how busy the workers are, from the clock readings of their loops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esplanade_ipsec::WalkCounters;

use crate::latency::LatencyCounts;
use crate::share::{LoadSample, PERIOD};

use crate::status::{WorkerStats, WorkersStats};
use crate::worker::Worker;

/// Above this share of its time a worker has little left for bursts.
const HIGH_PERCENT: u64 = 90;
/// The time that a worker may be that busy before the log reports it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two warnings about one worker.
const PAUSE: Duration = Duration::from_secs(60);

/// The load of a worker.
#[derive(Debug, Clone, Copy)]
struct WorkerLoad {
    /// The time of the last look, and the nanoseconds that the worker had been busy by then.
    seen: (Instant, u64),
    percent: u64,
    high_since: Option<Instant>,
    /// The log has been told that the worker is busy for long.
    told: bool,
    told_at: Option<Instant>,
}

/// The time after which two readings tell nothing of the load now.
const STALE: Duration = PERIOD.saturating_mul(10);

/// Makes the balancer's samples: what has passed between two readings.
#[derive(Debug, Default)]
pub(super) struct LoadSampler {
    last: Option<LoadReading>,
}

#[derive(Debug)]
struct LoadReading {
    at: Instant,
    busy_ns: Vec<u64>,
    packets: u64,
    bytes: u64,
    latency: LatencyCounts,
}

impl LoadSampler {
    /// Takes a reading. `latency` has what the GPU's ports have counted. Returns `None` if there is no earlier reading,
    /// or only an old one.
    pub fn sample(
        &mut self,
        workers: &[Worker],
        latency: LatencyCounts,
        in_service: bool,
        now: Instant,
    ) -> Option<LoadSample> {
        let sum = |of: fn(&WalkCounters) -> &AtomicU64| {
            let walks = workers.iter().flat_map(|one| [&one.outbound, &one.inbound]);
            walks.map(|walk| of(walk).load(Ordering::Relaxed)).sum()
        };
        let reading = LoadReading {
            at: now,
            busy_ns: workers.iter().map(|one| one.load.busy_ns()).collect(),
            packets: sum(|walk| &walk.packets_out),
            bytes: sum(|walk| &walk.bytes_out),
            latency,
        };
        let sample = self.last.as_ref();
        let sample = sample.and_then(|last| reading.since(last, in_service));
        self.last = Some(reading);
        sample
    }
}

impl LoadReading {
    fn since(&self, last: &Self, in_service: bool) -> Option<LoadSample> {
        let time = self.at.saturating_duration_since(last.at);
        if time.is_zero() || time > STALE {
            return None;
        }
        let busy = self.busy_ns.iter().zip(&last.busy_ns);
        let busiest = busy.map(|(now, before)| now.saturating_sub(*before)).max();
        let busy = Duration::from_nanos(busiest.unwrap_or(0));
        Some(LoadSample {
            time,
            packets: self.packets.saturating_sub(last.packets),
            bytes: self.bytes.saturating_sub(last.bytes),
            busy: busy.div_duration_f64(time).min(1.0),
            latency: self.latency.since(&last.latency),
            in_service,
        })
    }
}

/// The loads of all workers.
#[derive(Debug, Default)]
pub(super) struct Loads {
    workers: Vec<WorkerLoad>,
}

impl WorkerLoad {
    fn new(now: Instant) -> Self {
        Self {
            seen: (now, 0),
            percent: 0,
            high_since: None,
            told: false,
            told_at: None,
        }
    }

    /// Takes a new reading. Returns true if the log is to be told now.
    fn follow(&mut self, busy_ns: u64, now: Instant) -> bool {
        let (seen, busy_before) = std::mem::replace(&mut self.seen, (now, busy_ns));
        let passed = now.saturating_duration_since(seen).as_nanos().max(1);
        let busy = u128::from(busy_ns.saturating_sub(busy_before));
        self.percent = (busy * 100 / passed).min(100) as u64;
        if self.percent <= HIGH_PERCENT {
            self.high_since = None;
            self.told = false;
            return false;
        }
        // The worker has been too busy since the last look.
        self.high_since.get_or_insert(seen);
        let lately = |at: Instant| now.saturating_duration_since(at) < PAUSE;
        if self.told || self.is_high(now).is_none() || self.told_at.is_some_and(lately) {
            return false;
        }
        self.told = true;
        self.told_at = Some(now);
        true
    }

    /// Returns how long the worker has been too busy. Returns `None` if it is not too busy, or not for long.
    fn is_high(&self, now: Instant) -> Option<Duration> {
        let since = now.saturating_duration_since(self.high_since?);
        (since >= PATIENCE).then_some(since)
    }
}

impl Loads {
    /// Takes a reading of each worker. The caller does so about twice a second.
    pub fn follow(&mut self, workers: &[Worker], now: Instant) {
        self.workers
            .resize_with(workers.len(), || WorkerLoad::new(now));
        for (index, (load, worker)) in self.workers.iter_mut().zip(workers).enumerate() {
            if load.follow(worker.load.busy_ns(), now) {
                tracing::warn!(
                    worker = index,
                    "a worker has been busy for more than {HIGH_PERCENT} % of {} seconds: packets may be lost; set more `workers` where there are more processors",
                    PATIENCE.as_secs()
                );
            }
        }
    }

    /// Returns the workers' part of the answer to `stats`.
    pub fn report(&self, workers: &[Worker], now: Instant) -> WorkersStats {
        let stats = workers.iter().enumerate().map(|(index, worker)| {
            let load = self.workers.get(index);
            let out = |walk: &WalkCounters| walk.packets_out.load(Ordering::Relaxed);
            WorkerStats {
                packets_out: out(&worker.outbound),
                packets_in: out(&worker.inbound),
                busy_percent: load.map_or(0, |load| load.percent),
                busy_for: load.and_then(|load| Some(load.is_high(now)?.as_secs())),
            }
        });
        WorkersStats(stats.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the load of the worker in each half second. Returns the half seconds after which the log was told.
    fn told(percents: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let start = Instant::now();
        let (mut load, mut busy_ns) = (WorkerLoad::new(start), 0);
        let looks = percents.into_iter().enumerate();
        let told = looks.filter_map(|(look, percent)| {
            busy_ns += percent * 5_000_000;
            let now = start + Duration::from_millis(500) * (look as u32 + 1);
            let told = load.follow(busy_ns, now);
            assert_eq!(load.percent, percent.min(100));
            told.then_some(look)
        });
        told.collect()
    }

    #[test]
    fn a_sample_is_what_came_between() {
        let at = Instant::now();
        let reading = |ms: u64, busy_ms: [u64; 2], packets| LoadReading {
            at: at + Duration::from_millis(ms),
            busy_ns: busy_ms.map(|ms| ms * 1_000_000).to_vec(),
            packets,
            bytes: packets * 100,
            latency: LatencyCounts::default(),
        };
        let (first, next) = (reading(0, [7, 9], 10), reading(100, [37, 89], 25));
        let sample = next.since(&first, true).unwrap();
        assert_eq!((sample.packets, sample.bytes), (15, 1500));
        assert_eq!((sample.busy, sample.time), (0.8, PERIOD));
        assert!(sample.in_service);
        // A burst may end in another period than it began in.
        let burst = reading(200, [37, 300], 25).since(&next, true).unwrap();
        assert_eq!(burst.busy, 1.0);
        assert!(reading(5000, [0, 0], 25).since(&first, true).is_none());
        assert!(first.since(&first, true).is_none());
    }

    #[test]
    fn what_lasts_is_told_once() {
        assert_eq!(told([91; 300]), [19]);
        assert!(told([100; 19]).is_empty());
        assert!(told([90; 300]).is_empty());
    }

    #[test]
    fn an_end_begins_it_again_but_not_within_a_minute() {
        let often = [95; 25].into_iter().chain([50]).cycle().take(26 * 7);
        let told = told(often);
        assert_eq!(told[0], 19);
        assert!(told.len() == 2 && told[1] - told[0] >= 120, "{told:?}");
    }
}
