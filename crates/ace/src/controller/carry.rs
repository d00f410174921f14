//! Batches: which packets go to which lane, and what the CPU does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::job::EspPacket;
use esplanade_crypto::{
    Batch, Direction, Job, JobStatus, KeyContext, Transform, cost, cpu, lookaside,
};
use zeroize::Zeroizing;

use super::offers::Offer;
use super::{Controller, State, is_key};
use crate::algorithm::Need;
use crate::fabric::{Fabric, FabricError};
use crate::lane::{key_frame, take_answer};

/// One sealed packet of so many is sealed again by the CPU, and compared.
const CHECKED_ONE_IN: u64 = 4096;

/// The number of a job in its batch.
type JobNumber = u32;

impl<F: Fabric> Controller<'_, F> {
    /// Seals or opens all jobs of a batch: those whose lanes are there by these, the others by the CPU. With `cpu_only` the
    /// CPU does all, because too much is waiting.
    pub fn carry(&mut self, batch: &mut Batch, cpu_only: bool) {
        let mut by_place: Vec<Vec<JobNumber>> = vec![Vec::new(); self.places.len()];
        let mut by_cpu: BTreeMap<Option<Need>, Vec<JobNumber>> = BTreeMap::new();
        let now = Instant::now();
        for (number, job) in (0..).zip(&batch.jobs) {
            let need = batch
                .keys
                .get(job.key)
                .and_then(|key| Need::of(key.transform()));
            let ready = need
                .filter(|_| !cpu_only)
                .and_then(|need| self.residency.fabric_for(need));
            match ready.and_then(|place| by_place.get_mut(place)) {
                Some(jobs) => jobs.push(number),
                None => by_cpu.entry(need).or_default().push(number),
            }
        }
        for (place, jobs) in by_place.into_iter().enumerate() {
            if jobs.is_empty() {
                continue;
            }
            let result = self.by_fabric(place, batch, jobs.clone());
            let left = result.unwrap_or_else(|error| {
                self.fail(place, error.to_string());
                let is_left = |number: &JobNumber| {
                    batch
                        .jobs
                        .get(*number as usize)
                        .is_some_and(|job| job.status == JobStatus::Pending)
                };
                jobs.into_iter().filter(is_left).collect()
            });
            for number in left {
                let job = batch.jobs.get(number as usize);
                let key = job.and_then(|job| batch.keys.get(job.key));
                let need = key.and_then(|key| Need::of(key.transform()));
                by_cpu.entry(need).or_default().push(number);
            }
        }
        for (need, jobs) in by_cpu {
            self.by_cpu(batch, need, &jobs, now);
        }
    }

    fn by_cpu(&mut self, batch: &mut Batch, need: Option<Need>, jobs: &[JobNumber], now: Instant) {
        self.counters.cpu_packets += jobs.len() as u64;
        let begun = Instant::now();
        cpu::process_some(batch, jobs);
        let Some(need) = need else {
            return;
        };
        if self.note_wanted(need, now) {
            self.counters.while_loading += jobs.len() as u64;
        }
        let ns = begun.elapsed().as_nanos() as u64;
        let bytes = bytes_of(batch, jobs);
        // An eighth of the new figure: one batch that was interrupted does not count for much.
        if let Some(cost) = self.costs.get_mut(&need).filter(|_| bytes > 0) {
            *cost = cost
                .saturating_mul(7)
                .saturating_add(ns.saturating_mul(1000) / bytes)
                / 8;
        }
        self.residency.cost(need, ns);
    }

    /// Gives jobs to a lane, by key. Returns those that the lane does not take. After an error, jobs that are not done are as
    /// they were.
    pub(super) fn by_fabric(
        &mut self,
        number: usize,
        batch: &mut Batch,
        mut jobs: Vec<JobNumber>,
    ) -> Result<Vec<JobNumber>, FabricError> {
        // The lane has one key at a time. The sort is stable, so packets of a key stay in order.
        jobs.sort_by_key(|number| batch.jobs.get(*number as usize).map(|job| job.key));
        self.frames.clear();
        let (mut left, mut sent) = (Vec::new(), Vec::new());
        let mut waiting = jobs.into_iter().peekable();
        while let Some(job) = waiting.peek().copied() {
            match self.add(number, batch, job)? {
                Added::Yes => sent.push(job),
                Added::Unfit => left.push(job),
                Added::NoRoom => {
                    self.exchange(number, batch, &mut sent)?;
                    continue;
                }
            }
            waiting.next();
        }
        self.exchange(number, batch, &mut sent)?;
        Ok(left)
    }

    /// Adds the frames of a job.
    fn add(&mut self, number: usize, batch: &Batch, job: JobNumber) -> Result<Added, FabricError> {
        let place = self.places.get_mut(number).ok_or(FabricError::NoLane)?;
        let State::Ready(ready) = &mut place.state else {
            return Err(FabricError::NoLane);
        };
        let Some((key, job, bytes)) = batch.packet(job) else {
            return Ok(Added::Unfit);
        };
        if !Need::of(key.transform()).is_some_and(|need| ready.lane.meets(need)) {
            return Ok(Added::Unfit);
        }
        let Some(frame) = self.packet.make(batch.direction, job, key.esn(), bytes) else {
            return Ok(Added::Unfit);
        };
        if !is_key(ready.key.as_ref(), key) {
            let Some(key_words) = key_frame(key) else {
                return Ok(Added::Unfit);
            };
            if !self.frames.push(&*key_words) {
                return Ok(Added::NoRoom);
            }
            ready.key = Some(Arc::downgrade(key));
        }
        // A key frame without its packet does no harm.
        Ok(if self.frames.push(frame) {
            Added::Yes
        } else {
            Added::NoRoom
        })
    }

    /// Gives the lane what was added, and puts its answers into the packets.
    fn exchange(
        &mut self,
        number: usize,
        batch: &mut Batch,
        sent: &mut Vec<JobNumber>,
    ) -> Result<(), FabricError> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let place = self.places.get_mut(number).ok_or(FabricError::NoLane)?;
        self.answers.clear();
        let exchanged = place
            .fabric
            .exchange(&self.frames, sent.len(), &mut self.answers);
        self.frames.clear();
        let answered = exchanged.and_then(|()| match self.answers.len() == sent.len() {
            true => self.take_answers(number, batch, sent),
            false => Err(FabricError::Wrong("another number of answers".to_owned())),
        });
        self.answers.clear();
        sent.clear();
        answered
    }

    fn take_answers(
        &mut self,
        number: usize,
        batch: &mut Batch,
        sent: &[JobNumber],
    ) -> Result<(), FabricError> {
        for (job_number, answer) in sent.iter().zip(self.answers.iter()) {
            let direction = batch.direction;
            let checked = match direction {
                Direction::Seal if self.sealed.is_multiple_of(CHECKED_ONE_IN) => batch
                    .packet(*job_number)
                    .map(|(key, job, bytes)| sealed_again(key, job, bytes)),
                _ => None,
            };
            let Some(job) = batch.jobs.get_mut(*job_number as usize) else {
                continue;
            };
            let range = job.esp as usize..job.esp as usize + job.len as usize;
            let Some(bytes) = batch.buffer.get_mut(range) else {
                continue;
            };
            if let Some(wanted) = checked {
                self.counters.checked += 1;
                let ok = answer.get(1..).is_some_and(|words| is_same(words, &wanted));
                if !ok {
                    return Err(FabricError::Wrong(
                        "a packet is not what the CPU seals".to_owned(),
                    ));
                }
            }
            let status = take_answer(direction, answer, bytes);
            job.status =
                status.ok_or_else(|| FabricError::Wrong("no answer to its packet".to_owned()))?;
            self.sealed += u64::from(direction == Direction::Seal);
            self.counters.fabric_packets += 1;
            let need = batch
                .keys
                .get(job.key)
                .and_then(|key| Need::of(key.transform()));
            if let Some(cost) = need.and_then(|need| self.costs.get(&need)) {
                self.residency
                    .spared(number, u64::from(job.len) * cost / 1000);
            }
        }
        Ok(())
    }
}

enum Added {
    Yes,
    /// No lane takes such a packet.
    Unfit,
    /// Frames that were added before have to go first.
    NoRoom,
}

/// Seals a packet by the CPU. The nonce is the lane's and so is the plaintext, so nothing is revealed.
fn sealed_again(key: &KeyContext, job: &Job, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut copy = Zeroizing::new(bytes.to_vec());
    let mut packets = [EspPacket::new(key, job.sequence, &mut copy)];
    lookaside::seal_esp(&mut packets);
    copy
}

/// Compares what a lane gives of a sealed packet: all behind the IV.
fn is_same(words: &[u32], packet: &[u8]) -> bool {
    let behind_iv = packet.get(16..).unwrap_or_default();
    behind_iv.len() == 4 * words.len()
        && behind_iv
            .chunks_exact(4)
            .zip(words)
            .all(|(bytes, word)| bytes == word.to_be_bytes())
}

fn bytes_of(batch: &Batch, jobs: &[JobNumber]) -> u64 {
    let lens = jobs.iter().filter_map(|job| batch.jobs.get(*job as usize));
    lens.map(|job| u64::from(job.len)).sum()
}

/// Measures what the CPU takes for packets of each need that the library has a lane for. Returns nanoseconds for a thousand
/// bytes.
pub(super) fn measure_costs(offers: &[Offer]) -> BTreeMap<Need, u64> {
    let (mut costs, begun) = (BTreeMap::new(), Instant::now());
    for transform in Transform::ESP {
        let Some(need) = Need::of(transform) else {
            continue;
        };
        if costs.contains_key(&need) || !offers.iter().any(|offer| offer.lane.meets(need)) {
            continue;
        }
        if let Some(ns) = cost::measure(transform, || begun.elapsed()) {
            costs.insert(need, ns);
        }
    }
    costs
}
