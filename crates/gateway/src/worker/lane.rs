//! A worker's engine of one direction, which may be late or lost.

use std::io;
use std::os::fd::BorrowedFd;

use esplanade_crypto::{CpuEngine, Engine};

/// An engine that gives nothing back for so long is lost. Until then the packets behind it wait.
const LATE_MS: u64 = 1000;
/// Finished batches that an engine of the CPU holds.
pub const CPU_BATCHES: usize = 4;

pub(super) struct Lane {
    pub engine: Box<dyn Engine>,
    /// Takes the place of one that is lost.
    spare: Option<Box<CpuEngine>>,
    /// When a batch came back last, or the first one went in.
    moved_ms: u64,
}

impl Lane {
    pub fn new(engine: Box<dyn Engine>) -> io::Result<Self> {
        let spare = CpuEngine::new(CPU_BATCHES).map_err(io::Error::other)?;
        Ok(Self {
            engine,
            spare: Some(Box::new(spare)),
            moved_ms: 0,
        })
    }

    pub fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.engine.ready_fd()
    }

    /// Batches of its walk: one more is being filled.
    pub fn batches_max(&self) -> usize {
        self.engine.depth().max(1) + 1
    }

    /// A batch has come back, or none was inside.
    pub fn moved(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    pub fn is_late(&self, in_engine: usize, now_ms: u64) -> bool {
        in_engine > 0 && now_ms.saturating_sub(self.moved_ms) > LATE_MS
    }

    /// The CPU goes on in its place. False if it is the CPU already.
    pub fn replace(&mut self) -> bool {
        let spare = self.spare.take();
        spare.map(|spare| self.engine = spare).is_some()
    }
}
