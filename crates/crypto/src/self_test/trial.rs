//! Gives an engine that answers later the known answers as a batch.

use std::ops::Range;
use std::sync::Arc;

use super::{KnownAnswer, answers};
use crate::job::{Batch, Direction, Job, JobStatus};
use crate::slots::SlotTable;
use crate::tier::Tier;
use crate::transform::{Protocol, Transform};

/// The expected result of the batch.
#[derive(Debug)]
pub struct Trial {
    expected: Vec<Expected>,
}

#[derive(Debug)]
struct Expected {
    transform: Transform,
    status: JobStatus,
    at: Range<usize>,
    bytes: Vec<u8>,
}

impl Trial {
    /// Makes a batch with a known packet of every transform. When the packets are to be opened, it also has a forged
    /// packet of each. Returns `None` if this build cannot make the keys.
    pub fn new(direction: Direction) -> Option<(Self, Batch)> {
        Self::of(direction, |_| true)
    }

    /// Makes such a batch with packets of some transforms.
    pub fn of(direction: Direction, wants: impl Fn(Transform) -> bool) -> Option<(Self, Batch)> {
        let mut packets = Vec::new();
        for (transform, known) in answers().filter(|(one, _)| wants(*one)) {
            for answer in known {
                packets.push(KnownAnswer::parse(Tier::of(transform), transform, answer).ok()?);
            }
        }
        let len = packets.iter().map(|answer| 2 * answer.sealed.len()).sum();
        let mut trial = Self {
            expected: Vec::new(),
        };
        let mut batch = Batch::new(direction, len, 2 * packets.len());
        let mut keys = SlotTable::new();
        for (number, answer) in packets.into_iter().enumerate() {
            let key = number as u32;
            match direction {
                Direction::Seal => {
                    trial.add(&mut batch, &answer, key, (&answer.plain, &answer.sealed))?
                }
                Direction::Open => {
                    trial.add(&mut batch, &answer, key, (&answer.sealed, &answer.plain))?;
                    let mut forged = answer.sealed.clone();
                    *forged.last_mut()? ^= 1;
                    trial.add(&mut batch, &answer, key, (&forged, &[]))?;
                }
            }
            keys.insert(key, Arc::new(answer.key));
        }
        batch.keys = keys;
        Some((trial, batch))
    }

    /// `after` is the packet that is expected; an empty one stands for a packet that is refused.
    fn add(
        &mut self,
        batch: &mut Batch,
        answer: &KnownAnswer,
        key: u32,
        (before, after): (&[u8], &[u8]),
    ) -> Option<()> {
        let transform = answer.key.transform();
        let is_esp = transform.protocol() == Protocol::Esp;
        let start = batch.reserve(before.len())?;
        batch
            .buffer
            .get_mut(start..start + before.len())?
            .copy_from_slice(before);
        batch.jobs.push(Job {
            key,
            esp: start as u32,
            len: before.len() as u32,
            icv: if is_esp { 0 } else { answer.icv_at as u32 },
            sequence: answer.sequence,
            class: 0,
            status: JobStatus::Pending,
        });
        // After opening, the bytes of the ICV are unspecified.
        let len = match batch.direction {
            Direction::Open if is_esp => after.len().saturating_sub(transform.icv_len()),
            _ => after.len(),
        };
        self.expected.push(Expected {
            transform,
            status: match after {
                [] => JobStatus::AuthFailed,
                _ => JobStatus::Done,
            },
            at: start..start + len,
            bytes: after.get(..len)?.to_vec(),
        });
        Some(())
    }

    /// Checks that the batch came back as expected. Otherwise returns the first transform that is wrong.
    pub fn check(&self, batch: &Batch) -> Result<(), Option<Transform>> {
        if batch.jobs.len() != self.expected.len() {
            return Err(None);
        }
        for (job, expected) in batch.jobs.iter().zip(&self.expected) {
            let bytes = batch.buffer.get(expected.at.clone());
            if job.status != expected.status || bytes != Some(&expected.bytes) {
                return Err(Some(expected.transform));
            }
        }
        Ok(())
    }
}
