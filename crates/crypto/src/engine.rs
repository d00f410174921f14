//! The engine seam: who does the work of a batch.

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
}
