//! An engine of one direction, as a worker has it: in service, or lost, with the CPU in its place.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use esplanade_crypto::self_test::Trial;
use esplanade_crypto::{CpuEngine, Direction, Engine, EngineInfo};
use esplanade_ipsec::outbound::WalkLimits;

use super::{JOBS_MAX, PACKETS_MAX};

/// An engine that gives nothing back for so long is told of. The packets behind it wait.
pub const SUSPECT_MS: u64 = 100;
/// After so long it is lost.
const LATE_MS: u64 = 1000;
/// How long a lost engine is left alone before it is tried again.
const REST_MS: u64 = 10_000;
/// Finished batches that an engine of the CPU holds.
const CPU_BATCHES: usize = 4;

/// Most bytes of a batch that waits for more, whatever the engine would like.
const WAITING_MAX: usize = 16 << 20;

type Open = dyn Fn() -> io::Result<Box<dyn Engine>> + Send + Sync;

/// Where workers have an engine from: a new one for each direction, and in the place of one that is lost.
#[derive(Clone)]
pub struct EngineSource {
    name: &'static str,
    /// It goes on behind its `submit`.
    may_be_late: bool,
    open: Arc<Open>,
}

impl EngineSource {
    pub fn new(
        name: &'static str,
        open: impl Fn() -> io::Result<Box<dyn Engine>> + Send + Sync + 'static,
    ) -> Self {
        let open = Arc::new(open);
        Self {
            name,
            may_be_late: true,
            open,
        }
    }

    /// The processor, in the worker's own thread.
    pub fn cpu() -> Self {
        Self {
            may_be_late: false,
            ..Self::new("cpu", cpu)
        }
    }

    pub(in crate::worker) fn may_be_late(&self) -> bool {
        self.may_be_late
    }

    pub fn name(&self) -> &'static str {
        self.name
    }
}

fn cpu() -> io::Result<Box<dyn Engine>> {
    let engine = CpuEngine::new(CPU_BATCHES).map_err(io::Error::other)?;
    Ok(Box::new(engine))
}

impl std::fmt::Debug for EngineSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EngineSource").field(&self.name).finish()
    }
}

/// How an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    #[default]
    InService,
    /// It is late.
    Suspect,
    /// The CPU is in its place, until it passes a trial.
    Lost,
}

impl Health {
    pub fn name(self) -> &'static str {
        match self {
            Self::InService => "in service",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
        }
    }
}

/// How one engine of a worker is in each direction, for others to see.
#[derive(Clone, Debug, Default)]
pub struct EngineHealth(Arc<[AtomicU8; 2]>);

impl EngineHealth {
    /// The worse of both directions.
    pub fn get(&self) -> Health {
        let states = self
            .0
            .iter()
            .map(|state| match state.load(Ordering::Relaxed) {
                0 => Health::InService,
                1 => Health::Suspect,
                _ => Health::Lost,
            });
        states.max().unwrap_or_default()
    }
}

pub(super) struct Lane {
    source: EngineSource,
    direction: Direction,
    pub engine: Box<dyn Engine>,
    /// Of `engine`.
    info: EngineInfo,
    /// Takes the place of one that is lost.
    spare: Option<Box<dyn Engine>>,
    /// When a batch came back last, or the first one went in.
    moved_ms: u64,
    health: EngineHealth,
    /// When it was lost, or failed a trial.
    lost_ms: u64,
    attempt: Option<Attempt>,
}

/// An engine on trial.
struct Attempt {
    engine: Box<dyn Engine>,
    trial: Trial,
    begun_ms: u64,
}

impl Lane {
    pub fn new(
        source: EngineSource,
        direction: Direction,
        health: EngineHealth,
    ) -> io::Result<Self> {
        let engine = (source.open)()?;
        Ok(Self {
            info: engine.info(),
            engine,
            source,
            direction,
            spare: Some(cpu()?),
            moved_ms: 0,
            health,
            lost_ms: 0,
            attempt: None,
        })
    }

    pub fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.engine.ready_fd()
    }

    /// Of the engine that is in service, or of the one in its place.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Sizes for its walk: one batch more than the engine has inside is being filled. At least `len` bytes are free when a
    /// batch need not wait for more.
    pub fn limits(&self, len: usize) -> WalkLimits {
        let EngineInfo {
            depth, jobs, bytes, ..
        } = self.info;
        let (jobs, bytes) = match self.info.wait.is_zero() {
            true => (0, 0),
            false => (jobs.min(JOBS_MAX - PACKETS_MAX), bytes.min(WAITING_MAX)),
        };
        WalkLimits {
            buffer_len: len + bytes,
            jobs_max: PACKETS_MAX + jobs,
            batches_max: depth.max(1) + 1,
        }
    }

    /// A batch has come back, or none was inside.
    pub fn moved(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
        if self.health() == Health::Suspect {
            self.set_health(Health::InService);
        }
    }

    /// Whether it is lost. Before that it becomes suspect.
    pub fn is_late(&mut self, in_engine: usize, now_ms: u64) -> bool {
        let waits = match in_engine {
            0 => 0,
            _ => now_ms.saturating_sub(self.moved_ms),
        };
        if waits > SUSPECT_MS && self.health() == Health::InService {
            self.set_health(Health::Suspect);
        }
        waits > LATE_MS
    }

    /// The CPU goes on in its place. False if it does so already.
    pub fn replace(&mut self, now_ms: u64) -> bool {
        let Some(spare) = self.spare.take() else {
            return false;
        };
        self.info = spare.info();
        self.engine = spare;
        self.lost_ms = now_ms;
        self.set_health(Health::Lost);
        true
    }

    /// Tries a lost engine again, from time to time. True when it has passed: it is in service from now on. Nothing must
    /// be in the one in its place.
    pub fn comes_back(&mut self, now_ms: u64) -> bool {
        if self.spare.is_some() {
            return false;
        }
        let Some(mut attempt) = self.attempt.take() else {
            if now_ms.saturating_sub(self.lost_ms) > REST_MS {
                self.attempt = self.begin(now_ms);
                self.lost_ms = now_ms;
                if self.attempt.is_none() {
                    tracing::warn!("the engine {self} cannot be tried again yet");
                }
            }
            return false;
        };
        let Some(batch) = attempt.engine.poll() else {
            if now_ms.saturating_sub(attempt.begun_ms) > LATE_MS {
                tracing::warn!("the engine {self} still gives nothing back");
                self.lost_ms = now_ms;
            } else {
                self.attempt = Some(attempt);
            }
            return false;
        };
        if let Err(transform) = attempt.trial.check(&batch) {
            let what = transform.map_or_else(|| "its trial".to_owned(), |wrong| wrong.to_string());
            tracing::error!(
                "the engine {self} gives wrong results for {what}, and stays out of service"
            );
            self.lost_ms = now_ms;
            return false;
        }
        self.info = attempt.engine.info();
        self.spare = Some(std::mem::replace(&mut self.engine, attempt.engine));
        self.moved_ms = now_ms;
        self.set_health(Health::InService);
        true
    }

    fn begin(&self, now_ms: u64) -> Option<Attempt> {
        let (trial, batch) = Trial::new(self.direction)?;
        let mut engine = (self.source.open)().ok()?;
        engine.submit(batch).ok()?;
        Some(Attempt {
            engine,
            trial,
            begun_ms: now_ms,
        })
    }

    fn cell(&self) -> &AtomicU8 {
        let [seal, open] = &*self.health.0;
        match self.direction {
            Direction::Seal => seal,
            Direction::Open => open,
        }
    }

    fn health(&self) -> Health {
        match self.cell().load(Ordering::Relaxed) {
            0 => Health::InService,
            1 => Health::Suspect,
            _ => Health::Lost,
        }
    }

    fn set_health(&self, health: Health) {
        self.cell().store(health as u8, Ordering::Relaxed);
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.direction {
            Direction::Seal => "seals",
            Direction::Open => "opens",
        };
        write!(f, "{} that {what} packets", self.source.name)
    }
}

#[cfg(test)]
mod tests;
