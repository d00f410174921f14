//! The outbound walk: decide, prepare, engine, finish.
//!
//! One `Outbound` belongs to one worker. Its buffers circulate: nothing is allocated once they are made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_crypto::{Batch, Direction, Engine, IvKind, Job, JobStatus, RejectReason, random};

use crate::circulation::{self, Circulation};
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::iv::{IvPool, RandomSource};
use crate::lifetime::LifetimeEvent;
use crate::sa::{OutboundSa, SaDirection};
use crate::sequence::SequenceRun;
use crate::spd::{Decision, Spd};
use crate::tunnel::OuterMeta;
use crate::wire::{IpView, esp};

/// An ESP packet fits an outer packet behind the largest outer headers.
const ESP_LEN_MAX: usize = 65_535 - 48;

/// No transform adds more than this: header, CBC IV, padding, trailer and the longest ICV.
const OVERHEAD_MAX: usize = 8 + 16 + 15 + 2 + 32;

/// Sizes of one walk's buffers.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// Bytes of one batch's arena. At least one super-segment with its ESP overhead must fit.
    pub buffer_len: usize,
    /// Packets in a batch.
    pub jobs_max: usize,
    /// Batches that are being filled, in the engine, or waiting to be sent.
    pub batches_max: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            buffer_len: 256 * 1024,
            jobs_max: 1024,
            batches_max: 4,
        }
    }
}

/// How a packet read from the protected side is cut: `segments` inner packets, all of `segment_len` bytes but
/// the last. Lengths count from the inner IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    pub count: u32,
    pub segment_len: usize,
    pub last_len: usize,
}

impl Segments {
    /// A packet that is not cut.
    pub const fn one(len: usize) -> Self {
        Self {
            count: 1,
            segment_len: len,
            last_len: len,
        }
    }

    const fn bytes(&self) -> usize {
        self.segment_len * (self.count as usize).saturating_sub(1) + self.last_len
    }
}

/// What becomes of an outbound packet.
#[derive(Debug)]
pub enum Outcome {
    Protect(Arc<OutboundSa>),
    /// The caller sends it as it is.
    Bypass,
    /// Counted already.
    Dropped(DropReason),
}

/// Why [`Outbound::reserve`] gave no slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Submit the batch and try again; nothing was taken or counted.
    BatchFull,
    /// Counted already.
    Dropped(DropReason),
}

/// Consecutive jobs of one SA with the same outer header.
#[derive(Clone, Copy, Debug)]
struct Run {
    sa: u32,
    meta: OuterMeta,
    first_job: u32,
    jobs: u32,
}

/// What the walk knows about a batch that the engine does not need.
#[derive(Debug, Default)]
struct Side {
    runs: Vec<Run>,
    sas: Vec<Arc<OutboundSa>>,
}

impl circulation::Side for Side {
    fn clear(&mut self) {
        self.runs.clear();
        self.sas.clear();
    }
}

impl Side {
    fn add_jobs(&mut self, sa: &Arc<OutboundSa>, meta: OuterMeta, first_job: u32, jobs: u32) {
        let same_sa = self.sas.last().is_some_and(|last| Arc::ptr_eq(last, sa));
        if !same_sa {
            self.sas.push(Arc::clone(sa));
        }
        match self.runs.last_mut() {
            Some(run) if same_sa && run.meta == meta => run.jobs += jobs,
            _ => self.runs.push(Run {
                sa: (self.sas.len() - 1) as u32,
                meta,
                first_job,
                jobs,
            }),
        }
    }
}

/// The outbound walk of one worker.
pub struct Outbound {
    limits: WalkLimits,
    batches: Circulation<Side>,
    ivs: IvPool,
    events: Vec<Event>,
    counters: Arc<WalkCounters>,
    now_ms: u64,
}

impl Outbound {
    pub fn new(limits: WalkLimits) -> Self {
        Self::with_random(limits, random::fill)
    }

    /// With another source of the IVs that must be unpredictable.
    pub fn with_random(limits: WalkLimits, source: RandomSource) -> Self {
        Self {
            limits,
            batches: Circulation::new(Direction::Seal, &limits),
            ivs: IvPool::new(source),
            events: Vec::new(),
            counters: Arc::default(),
            now_ms: 0,
        }
    }

    pub fn counters(&self) -> &Arc<WalkCounters> {
        &self.counters
    }

    /// The caller's monotonic time; call it once per burst.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Takes the events raised since the last call.
    pub fn drain_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Looks a parsed packet up in the SPD and counts it as `segments.count` packets.
    pub fn decide(&mut self, spd: &Spd, view: &IpView, segments: &Segments) -> Outcome {
        let packets = u64::from(segments.count);
        self.counters.count_in(packets, segments.bytes() as u64);
        let flow = view.outbound_flow();
        let reason = match spd.outbound(&flow) {
            Decision::Protect(sa) => return Outcome::Protect(sa),
            Decision::Bypass => {
                let bypassed = &self.counters.packets_bypassed;
                bypassed.fetch_add(packets, Ordering::Relaxed);
                return Outcome::Bypass;
            }
            Decision::Discard(reason) => reason,
            Decision::Acquire(acquire) => {
                self.events.extend(acquire.raise(&flow));
                DropReason::NoSa
            }
        };
        self.counters.drops.add(reason, packets);
        Outcome::Dropped(reason)
    }

    /// Counts a packet that did not parse.
    pub fn drop_malformed(&mut self, len: usize) -> DropReason {
        let reason = DropReason::MalformedInner;
        self.counters.count_in(1, len as u64);
        self.counters.drops.add(reason, 1);
        reason
    }

    /// Counts packets that [`Outbound::decide`] let pass and for which no batch can be had.
    pub fn give_up(&mut self, sa: &OutboundSa, segments: &Segments) {
        self.refuse(sa, DropReason::EngineFailed, segments);
    }

    /// Reserves one slot per segment, with everything around the inner packets written. The caller
    /// fills the slots: see [`Slots::next_slot`].
    pub fn reserve(
        &mut self,
        sa: &Arc<OutboundSa>,
        view: &IpView,
        segments: &Segments,
    ) -> Result<Slots<'_>, Refused> {
        let transform = sa.common.transform();
        let full_len = transform.sealed_len(segments.segment_len);
        let last_len = transform.sealed_len(segments.last_len);
        let count = segments.count as usize;
        let bytes = full_len * count.saturating_sub(1) + last_len;
        let too_long = full_len.max(last_len) > ESP_LEN_MAX
            || bytes > self.limits.buffer_len
            || count > self.limits.jobs_max;
        if too_long || count == 0 {
            return Err(self.refuse(sa, DropReason::TooLong, segments));
        }
        let fits = self.batches.filling.as_ref().is_some_and(|(batch, _)| {
            batch.free() >= bytes && batch.jobs.len() + count <= self.limits.jobs_max
        });
        if !fits {
            return Err(Refused::BatchFull);
        }
        if sa.common.lifetime.expired(self.now_ms) {
            return Err(self.refuse(sa, DropReason::LifetimeExpired, segments));
        }
        let Ok(sequence) = sa.sequence.take(segments.count) else {
            self.raise(sa, sa.common.lifetime.raise(LifetimeEvent::Hard));
            return Err(self.refuse(sa, DropReason::SequenceExhausted, segments));
        };
        if sequence.low {
            self.raise(sa, sa.common.lifetime.raise(LifetimeEvent::Soft));
        }
        let Ok(first_job) = self.prepare(sa, view, segments, sequence) else {
            return Err(self.refuse(sa, DropReason::NoRandomness, segments));
        };
        let passed = sa
            .common
            .lifetime
            .count(count as u64, segments.bytes() as u64, self.now_ms);
        self.raise(sa, passed);
        // `fits` saw that there is a batch.
        let (batch, side) = self.batches.filling.as_mut().ok_or(Refused::BatchFull)?;
        let meta = OuterMeta::new(sa.common.path(), &sa.common.tunnel, view);
        side.add_jobs(sa, meta, first_job as u32, segments.count);
        Ok(Slots {
            batch,
            job: first_job,
            payload: esp::HEADER_LEN + transform.iv_len(),
            lens: *segments,
        })
    }

    /// Writes ESP header, IV and trailer of every segment and adds the jobs. Gives the first job's index.
    fn prepare(
        &mut self,
        sa: &OutboundSa,
        view: &IpView,
        segments: &Segments,
        sequence: SequenceRun,
    ) -> Result<usize, DropReason> {
        let (batch, _) = self.batches.filling.as_mut().ok_or(DropReason::TooLong)?;
        let transform = sa.common.transform();
        let key = batch.add_key(&sa.common.key);
        let (first_job, arena) = (batch.jobs.len(), batch.used());
        for index in 0..segments.count {
            let inner_len = match index + 1 == segments.count {
                true => segments.last_len,
                false => segments.segment_len,
            };
            let len = transform.sealed_len(inner_len);
            let number = sequence.first + u64::from(index);
            let offset = batch.reserve(len).ok_or(DropReason::TooLong)?;
            let packet = &mut batch.buffer[offset..offset + len];
            let (header, rest) = packet.split_at_mut(esp::HEADER_LEN);
            header[..4].copy_from_slice(&sa.common.spi.to_be_bytes());
            header[4..].copy_from_slice(&(number as u32).to_be_bytes());
            let (iv, rest) = rest.split_at_mut(transform.iv_len());
            match transform.iv_kind() {
                IvKind::None | IvKind::Implicit => {}
                // Unique because sequence numbers are.
                IvKind::Sequence => iv.copy_from_slice(&number.to_be_bytes()),
                IvKind::Random => match self.ivs.next() {
                    Ok(random) => iv.copy_from_slice(&random[..iv.len()]),
                    Err(_) => {
                        batch.jobs.truncate(first_job);
                        batch.release(arena);
                        return Err(DropReason::NoRandomness);
                    }
                },
            }
            let body_len = rest.len() - transform.icv_len();
            let next_header = view.version.next_header();
            esp::write_trailer(&mut rest[..body_len], inner_len, next_header);
            batch.jobs.push(Job {
                key,
                esp: offset as u32,
                len: len as u32,
                icv: 0,
                sequence: number,
                class: view.tos >> 5,
                status: JobStatus::Pending,
            });
        }
        Ok(first_job)
    }

    fn refuse(&self, sa: &OutboundSa, reason: DropReason, segments: &Segments) -> Refused {
        let packets = u64::from(segments.count);
        self.counters.drops.add(reason, packets);
        sa.common.drops.add(reason, packets);
        Refused::Dropped(reason)
    }

    fn raise(&mut self, sa: &OutboundSa, event: Option<LifetimeEvent>) {
        if let Some(event) = event {
            self.events.push(Event::Lifetime {
                direction: SaDirection::Outbound,
                spi: sa.common.spi,
                policy: sa.common.policy,
                event,
            });
        }
    }

    /// Whether `segments` packets of `bytes` inner bytes in all fit into the batch, whatever their SA.
    pub fn has_room(&self, segments: usize, bytes: usize) -> bool {
        self.batches.filling.as_ref().is_some_and(|(batch, _)| {
            batch.jobs.len() + segments <= self.limits.jobs_max
                && batch.free() >= bytes + segments * OVERHEAD_MAX
        })
    }

    /// Parses, decides and copies one packet: the whole of the walk's first half for packets that are
    /// not cut. The only refusal is `BatchFull`, before anything is counted: submit and push again.
    pub fn push(&mut self, spd: &Spd, packet: &[u8]) -> Result<Outcome, Refused> {
        // A packet that does not even fit an empty batch goes on, and is dropped as too long.
        let empty = self
            .batches
            .filling
            .as_ref()
            .is_some_and(|(b, _)| b.jobs.is_empty());
        if !empty && !self.has_room(1, packet.len()) {
            return Err(Refused::BatchFull);
        }
        let Ok(view) = IpView::parse(packet) else {
            return Ok(Outcome::Dropped(self.drop_malformed(packet.len())));
        };
        let segments = Segments::one(view.total_len);
        let outcome = self.decide(spd, &view, &segments);
        let Outcome::Protect(sa) = &outcome else {
            return Ok(outcome);
        };
        match self.reserve(sa, &view, &segments) {
            Ok(mut slots) => {
                if let (Some(slot), Some(packet)) =
                    (slots.next_slot(), packet.get(..view.total_len))
                {
                    slot.copy_from_slice(packet);
                }
                Ok(outcome)
            }
            Err(Refused::Dropped(reason)) => Ok(Outcome::Dropped(reason)),
            Err(Refused::BatchFull) => Err(Refused::BatchFull),
        }
    }

    /// The number of packets that wait for [`Outbound::submit`].
    pub fn waiting(&self) -> usize {
        self.batches.waiting()
    }

    /// Gives what was reserved to the engine. If the engine is full, poll it and try again; the packets wait.
    /// If it is out of service, they are dropped and counted.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        self.batches.submit(engine, &self.counters.drops)
    }

    /// The next sealed batch, in the order of submission.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<SealedBatch> {
        let (batch, side) = self.batches.poll(engine)?;
        for run in &side.runs {
            let jobs = batch.jobs.iter().skip(run.first_job as usize);
            let (mut packets, mut bytes) = (0u64, 0u64);
            for job in jobs.take(run.jobs as usize) {
                if job.status == JobStatus::Done {
                    packets += 1;
                    bytes += u64::from(job.len);
                }
            }
            self.counters.count_out(packets, bytes);
            let failed = u64::from(run.jobs) - packets;
            if failed > 0 {
                let reason = DropReason::EngineFailed;
                self.counters.drops.add(reason, failed);
                if let Some(sa) = side.sas.get(run.sa as usize) {
                    sa.common.drops.add(reason, failed);
                }
            }
        }
        Some(SealedBatch { batch, side })
    }

    /// Takes a sent batch back for its next use.
    pub fn recycle(&mut self, sealed: SealedBatch) {
        self.batches.recycle(sealed.batch, sealed.side);
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbound")
            .field("limits", &self.limits)
            .field("waiting", &self.waiting())
            .field("in_engine", &self.batches.in_engine())
            .finish_non_exhaustive()
    }
}

/// The places for a packet's segments. A place that is not asked for is sealed as zeros: the arena
/// still has the bytes of earlier packets.
#[derive(Debug)]
pub struct Slots<'a> {
    batch: &'a mut Batch,
    job: usize,
    payload: usize,
    lens: Segments,
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        while let Some(slot) = self.next_slot() {
            slot.fill(0);
        }
    }
}

impl Slots<'_> {
    /// The place for the next inner packet, exactly as long as [`Segments`] said. Its bytes are left
    /// over from earlier packets: write all of them.
    pub fn next_slot(&mut self) -> Option<&mut [u8]> {
        self.lens.count = self.lens.count.checked_sub(1)?;
        let len = match self.lens.count {
            0 => self.lens.last_len,
            _ => self.lens.segment_len,
        };
        let job = self.batch.jobs.get(self.job)?;
        self.job += 1;
        let start = job.esp as usize + self.payload;
        self.batch.buffer.get_mut(start..start + len)
    }
}

/// A batch of sealed packets, ready to be sent.
#[derive(Debug)]
pub struct SealedBatch {
    batch: Batch,
    side: Side,
}

/// Bounds of one [`Train`], after what one send can take.
#[derive(Clone, Copy, Debug)]
pub struct TrainLimits {
    pub segments: usize,
    pub bytes: usize,
}

/// Sealed packets that lie one behind the other and have the same outer header: what one UDP GSO send takes.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    pub meta: &'a OuterMeta,
    pub esp: &'a [u8],
    /// The length of every packet but perhaps the last, which may be shorter.
    pub segment_len: usize,
    pub segments: usize,
}

impl SealedBatch {
    /// The batch's packets in order. With limits of one segment, each packet alone.
    pub fn trains(&self, limits: TrainLimits) -> Trains<'_> {
        Trains {
            sealed: self,
            limits,
            run: 0,
            done_in_run: 0,
        }
    }
}

#[derive(Debug)]
pub struct Trains<'a> {
    sealed: &'a SealedBatch,
    limits: TrainLimits,
    run: usize,
    done_in_run: usize,
}

impl<'a> Iterator for Trains<'a> {
    type Item = Train<'a>;

    fn next(&mut self) -> Option<Train<'a>> {
        let (batch, side) = (&self.sealed.batch, &self.sealed.side);
        loop {
            let run = side.runs.get(self.run)?;
            let first = run.first_job as usize;
            let jobs = batch.jobs.get(first..first + run.jobs as usize)?;
            let rest = jobs.get(self.done_in_run..)?;
            let Some(head) = rest.first() else {
                self.run += 1;
                self.done_in_run = 0;
                continue;
            };
            if head.status != JobStatus::Done {
                self.done_in_run += 1;
                continue;
            }
            let (segments, bytes) = train_of(rest, &self.limits);
            self.done_in_run += segments;
            let start = head.esp as usize;
            return Some(Train {
                meta: &run.meta,
                esp: batch.buffer.get(start..start + bytes)?,
                segment_len: head.len as usize,
                segments,
            });
        }
    }
}

/// How many packets from the first on make one train, and their bytes.
fn train_of(jobs: &[Job], limits: &TrainLimits) -> (usize, usize) {
    let Some(head) = jobs.first() else {
        return (0, 0);
    };
    let (mut segments, mut bytes) = (1, head.len as usize);
    for job in jobs.iter().skip(1).take(limits.segments.saturating_sub(1)) {
        let contiguous = job.esp as usize == head.esp as usize + bytes;
        let joins = job.status == JobStatus::Done && contiguous && job.len <= head.len;
        if !joins || bytes + job.len as usize > limits.bytes {
            break;
        }
        segments += 1;
        bytes += job.len as usize;
        if job.len < head.len {
            break;
        }
    }
    (segments, bytes)
}
