//! The CPU engine: seals and opens with aws-lc, and finishes a batch at once.

use std::collections::VecDeque;

use crate::engine::{Engine, RejectReason, Rejected};
use crate::job::{Batch, Direction, Job, JobStatus};
use crate::key::KeyContext;
use crate::self_test::{self, SelfTestError};
use crate::transform::Protocol;
use crate::{ah, esp};

/// Works in the caller's thread.
#[derive(Debug)]
pub struct CpuEngine {
    finished: VecDeque<Batch>,
    capacity: usize,
}

impl CpuEngine {
    /// An engine that holds at most `capacity` finished batches. Refused unless every transform
    /// gives its known answer.
    pub fn new(capacity: usize) -> Result<Self, SelfTestError> {
        self_test::passed()?;
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

/// Does every job of a batch and sets its status.
pub fn process(batch: &mut Batch) {
    for job in &mut batch.jobs {
        job.status = match (batch.keys.get(job.key), packet(&mut batch.buffer, job)) {
            (Some(key), Some(packet)) => one(key, batch.direction, job, packet),
            _ => JobStatus::Malformed,
        };
    }
}

fn packet<'a>(buffer: &'a mut [u8], job: &Job) -> Option<&'a mut [u8]> {
    let start = job.esp as usize;
    buffer.get_mut(start..start.checked_add(job.len as usize)?)
}

fn one(key: &KeyContext, direction: Direction, job: &Job, packet: &mut [u8]) -> JobStatus {
    let icv_at = job.icv as usize;
    match (key.transform().protocol(), direction) {
        (Protocol::Esp, Direction::Seal) => esp::seal(key, job.sequence, packet),
        (Protocol::Esp, Direction::Open) => esp::open(key, job.sequence, packet),
        (Protocol::Ah, Direction::Seal) => ah::seal(key, job.sequence, packet, icv_at),
        (Protocol::Ah, Direction::Open) => ah::open(key, job.sequence, packet, icv_at),
    }
}

/// Seals one ESP packet in place: header, IV, payload with trailer, room for the ICV.
pub fn seal(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    esp::seal(key, sequence, esp)
}

/// Opens one ESP packet in place; a wrong ICV leaves the payload zeroed.
pub fn open(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    esp::open(key, sequence, esp)
}

/// Writes the ICV of one IP packet with AH, of which the mutable fields are zero, at offset `icv_at`.
pub fn seal_ah(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    ah::seal(key, sequence, packet, icv_at)
}

/// Checks the ICV of one IP packet with AH, of which the mutable fields are zero, at offset `icv_at` and
/// leaves zeros there; a wrong one leaves all that follows zeroed.
pub fn open_ah(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    ah::open(key, sequence, packet, icv_at)
}
