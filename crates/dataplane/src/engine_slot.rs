//! An engine of one direction, as one worker uses it. The engine is in service, or it is lost and
//! the CPU works in its place.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use esplanade_crypto::self_test::Trial;
use esplanade_crypto::{CpuEngine, Direction, Engine, EngineInfo};
use esplanade_ipsec::outbound::WalkLimits;

use super::{JOBS_MAX, PACKETS_MAX};

/// An engine that returns nothing for this long, in milliseconds, is reported as suspect. Its
/// packets wait.
pub const SUSPECT_MS: u64 = 100;
/// An engine that returns nothing for this long, in milliseconds, is lost.
pub const LATE_MS: u64 = 1000;
/// The same while the worker stands still and waits for the engine, because an SA moves.
pub const STANDING_MS: u64 = 250;
/// The time, in milliseconds, that a lost engine rests before it is tried again.
const REST_MS: u64 = 10_000;
/// Number of finished batches that a CPU engine holds.
const CPU_BATCHES: usize = 4;

/// Upper bound of the bytes in a batch that waits for more packets, whatever the engine prefers.
const WAITING_MAX: usize = 16 << 20;

type Open = dyn Fn() -> io::Result<Box<dyn Engine>> + Send + Sync;

/// Opens engines for the workers. Each worker needs an engine per direction, and a new one after a
/// loss.
#[derive(Clone)]
pub struct EngineSource {
    name: &'static str,
    /// The engine works asynchronously.
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

    /// Returns the source of the CPU engine, which runs in the worker's own thread.
    pub fn cpu() -> Self {
        Self {
            may_be_late: false,
            ..Self::new("cpu", cpu)
        }
    }

    pub fn may_be_late(&self) -> bool {
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

/// State of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    #[default]
    InService,
    /// The engine is late.
    Suspect,
    /// The CPU works in place of the engine until the engine passes a trial.
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

/// The state of one engine of a worker, in both directions. Other threads may read it.
#[derive(Clone, Debug, Default)]
pub struct EngineHealth(Arc<[AtomicU8; 2]>);

impl EngineHealth {
    /// Returns the worse state of the two directions.
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

pub(crate) struct EngineSlot {
    source: EngineSource,
    direction: Direction,
    pub engine: Box<dyn Engine>,
    /// Properties of `engine`.
    info: EngineInfo,
    /// The CPU engine that replaces a lost engine.
    spare: Option<Box<dyn Engine>>,
    /// The time, in milliseconds, when a batch last came back or went into the empty engine.
    moved_ms: u64,
    health: EngineHealth,
    /// The time, in milliseconds, when the engine was lost or failed a trial.
    lost_ms: u64,
    attempt: Option<Attempt>,
}

/// An engine on trial.
struct Attempt {
    engine: Box<dyn Engine>,
    trial: Trial,
    begun_ms: u64,
}

impl EngineSlot {
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

    /// Returns the properties of the engine that works now.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Returns the limits of the engine's walk. While the engine holds all its batches, one more is
    /// filled. A batch that does not wait for more packets leaves at least `len` bytes free.
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

    /// Records that a batch came back, or that the engine was empty.
    pub fn moved(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
        if self.health() == Health::Suspect {
            self.set_health(Health::InService);
        }
    }

    /// Tells whether the engine is lost, because it returns nothing for so long. Before that, it becomes suspect.
    pub fn is_late(&mut self, in_engine: usize, late_ms: u64, now_ms: u64) -> bool {
        let waits = match in_engine {
            0 => 0,
            _ => now_ms.saturating_sub(self.moved_ms),
        };
        if waits > SUSPECT_MS && self.health() == Health::InService {
            self.set_health(Health::Suspect);
        }
        waits > late_ms
    }

    /// Puts the CPU in place of the engine. Returns false if that was done before.
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

    /// Tries a lost engine again from time to time. Returns true when the engine passed its trial
    /// and is in service. The caller guarantees that the CPU in its place holds no batch.
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

impl std::fmt::Display for EngineSlot {
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
