//! The CPU engine. It finishes each batch at once, with the kernels of the keys' tiers and with aws-lc for the rest.
//!
//! The packets of a batch are sorted by kernel. Each kernel then sees all of its packets together and can overlap
//! several.

use std::collections::VecDeque;

use crate::engine::{Engine, RejectReason, Rejected};
use crate::job::Batch;
use crate::selection::selection;
use crate::tier::SelfTestError;

#[cfg(target_arch = "x86_64")]
pub(crate) mod aes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod chacha;
#[cfg(target_arch = "x86_64")]
pub(crate) mod des;
#[cfg(feature = "generators")]
pub mod fault;
mod gathered;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gcm;
mod group;
pub(crate) mod kernel;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pair;
pub(crate) mod process;
#[cfg(target_arch = "x86_64")]
pub(crate) mod records;
mod registers;
mod row;

pub use crate::tier::Tier;
pub use process::{open, open_ah, process, process_some, seal, seal_ah};

/// An engine that works in the caller's thread.
#[derive(Debug)]
pub struct CpuEngine {
    finished: VecDeque<Batch>,
    capacity: usize,
}

impl CpuEngine {
    /// Makes an engine that holds at most `capacity` finished batches. Fails unless one tier at least gives the known
    /// answer of every transform.
    pub fn new(capacity: usize) -> Result<Self, SelfTestError> {
        selection()?;
        Ok(Self {
            finished: VecDeque::with_capacity(capacity),
            capacity,
        })
    }
}

impl Engine for CpuEngine {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        if self.finished.len() >= self.capacity {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        process(&mut batch);
        self.finished.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.finished.pop_front()
    }
}
