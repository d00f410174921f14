//! The engine seam: who does the work of a batch.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::arena::Arena;
use crate::job::Batch;

/// Why an engine did not take a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    #[error("the engine's queue is full")]
    Full,
    #[error("the engine is out of service")]
    OutOfService,
}

/// A refused batch, handed back untouched.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    pub batch: Batch,
    pub reason: RejectReason,
}

/// What whoever fills batches for an engine does well to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Batches that it can have inside: as many keep it busy.
    pub depth: usize,
    /// A batch with so many jobs need not wait for more.
    pub jobs: usize,
    /// Nor one whose packets take so many bytes of the arena.
    pub bytes: usize,
    /// So long a smaller batch waits for more. Zero: it is given when its packets have come.
    pub wait: Duration,
}

impl EngineInfo {
    /// Of an engine that has finished when `submit` returns, and has as much of many packets as of few.
    pub const AT_ONCE: Self = Self {
        depth: 1,
        jobs: 128,
        bytes: usize::MAX,
        wait: Duration::ZERO,
    };
}

/// Seals and opens batches.
///
/// `submit` never blocks and `poll` never waits. Batches come back in the order of submission with
/// every job's status set, whatever the order in which they were finished. The queue is bounded: a
/// full one rejects. An engine chooses no nonce and no sequence number. It takes batches with any arena.
pub trait Engine: Send {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected>;
    fn poll(&mut self) -> Option<Batch>;

    /// Readable when there may be something to poll, until a poll finds nothing. None for an engine that has finished
    /// when `submit` returns.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn info(&self) -> EngineInfo {
        EngineInfo::AT_ONCE
    }

    /// Memory for batches that it has the least work with.
    fn arena(&self, len: usize) -> Arena {
        Arena::heap(len)
    }
}
