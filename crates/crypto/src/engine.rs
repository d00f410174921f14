//! The engine seam: the interface of everything that seals and opens batches.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::arena::Arena;
use crate::job::Batch;

/// The reason why an engine did not take a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    #[error("the engine's queue is full")]
    Full,
    #[error("the engine is out of service")]
    OutOfService,
}

/// A refused batch, handed back unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    pub batch: Batch,
    pub reason: RejectReason,
}

/// Properties of an engine that help its user to fill batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Number of batches that the engine can hold. This many batches keep it busy.
    pub depth: usize,
    /// A batch with this many jobs need not wait for more.
    pub jobs: usize,
    /// A batch whose packets take this many bytes of the arena need not wait for more.
    pub bytes: usize,
    /// The time that a smaller batch waits for more jobs. With zero it is submitted when its packets have come.
    pub wait: Duration,
}

impl EngineInfo {
    /// An engine that has finished when `submit` returns, and that gains nothing from larger batches.
    pub const AT_ONCE: Self = Self {
        depth: 1,
        jobs: 128,
        bytes: usize::MAX,
        wait: Duration::ZERO,
    };
}

/// Seals and opens batches.
///
/// `submit` never blocks, and `poll` never waits. Batches come back in the order of submission, whatever the order in
/// which they were finished. Every job's status is then set. The queue is bounded, and a full queue rejects. An
/// engine chooses no nonce and no sequence number. It takes batches with any arena.
pub trait Engine: Send {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected>;
    fn poll(&mut self) -> Option<Batch>;

    /// Returns a descriptor that is readable when there may be something to poll, until a poll finds nothing. Returns
    /// `None` for an engine that has finished when `submit` returns.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Tells that the engine takes nothing any more and gives nothing back, so that its user need not find that out by a
    /// batch. An engine that fails may tell it later, or never.
    fn is_out_of_service(&self) -> bool {
        false
    }

    fn info(&self) -> EngineInfo {
        EngineInfo::AT_ONCE
    }

    /// Returns memory for batches that the engine can use with the least work.
    fn arena(&self, len: usize) -> Arena {
        Arena::heap(len)
    }
}
