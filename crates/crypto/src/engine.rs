//! The engine seam: who does the work of a batch.

use std::os::fd::BorrowedFd;

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

/// Seals and opens batches.
///
/// `submit` never blocks and `poll` never waits. Batches come back in the order of submission with
/// every job's status set, whatever the order in which they were finished. The queue is bounded: a
/// full one rejects. An engine chooses no nonce and no sequence number.
pub trait Engine: Send {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected>;
    fn poll(&mut self) -> Option<Batch>;

    /// Readable when there may be something to poll, until a poll finds nothing. None for an engine that has finished
    /// when `submit` returns.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Batches that it can have inside: as many keep it busy.
    fn depth(&self) -> usize {
        1
    }
}
