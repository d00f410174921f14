//! Engines that are late, for tests.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esplanade_crypto::{Batch, Engine, EngineInfo, RejectReason, Rejected, cpu};

use super::EngineSource;

/// Controls the engines of a device. They return nothing while the gate is closed.
#[derive(Debug, Default)]
pub struct EngineGate {
    pub is_open: AtomicBool,
    /// Only every third poll returns a batch.
    pub is_slow: AtomicBool,
    pub looks: AtomicU32,
    pub batches: AtomicU32,
    /// The time for which batches wait for more packets, in microseconds.
    pub wait_us: AtomicU64,
    pub is_out: AtomicBool,
}

#[derive(Debug)]
struct GatedEngine {
    gate: Arc<EngineGate>,
    inside: VecDeque<Batch>,
    ready: PipeReader,
    /// Nobody writes to it.
    _writer: PipeWriter,
}

/// Batches that an engine takes at a time.
pub const DEPTH: usize = 2;
pub const JOBS: usize = 128;
pub const BYTES: usize = 1 << 16;

impl Engine for GatedEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        if self.inside.len() == DEPTH {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        self.inside.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if !self.gate.is_open.load(Ordering::Relaxed) {
            return None;
        }
        let is_slow = self.gate.is_slow.load(Ordering::Relaxed);
        if is_slow && self.gate.looks.fetch_add(1, Ordering::Relaxed) % 3 < 2 {
            return None;
        }
        let mut batch = self.inside.pop_front()?;
        cpu::process(&mut batch);
        self.gate.batches.fetch_add(1, Ordering::Relaxed);
        Some(batch)
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn is_out_of_service(&self) -> bool {
        self.gate.is_out.load(Ordering::Relaxed)
    }

    fn info(&self) -> EngineInfo {
        EngineInfo {
            depth: DEPTH,
            jobs: JOBS,
            bytes: BYTES,
            wait: Duration::from_micros(self.gate.wait_us.load(Ordering::Relaxed)),
        }
    }
}

/// Makes engines of a device.
pub fn behind(gate: &Arc<EngineGate>) -> EngineSource {
    let gate = Arc::clone(gate);
    EngineSource::new("behind", move || {
        let (ready, writer) = io::pipe()?;
        Ok(Box::new(GatedEngine {
            gate: Arc::clone(&gate),
            inside: VecDeque::new(),
            ready,
            _writer: writer,
        }))
    })
}
