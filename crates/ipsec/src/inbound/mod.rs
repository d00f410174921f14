//! The inbound walk: look up, check for replay, engine, finish.
//!
//! One `Inbound` belongs to one worker. Its buffers circulate: nothing is allocated once they are made.

use std::sync::Arc;

use esplanade_crypto::{Batch, Direction, Engine, Job, JobStatus, RejectReason};

use crate::circulation::{self, Circulation, Side as _};
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::lifetime::LifetimeEvent;
use crate::outbound::WalkLimits;
use crate::replay::{ReplayError, ReplayWindow};
use crate::sa::{InboundSa, SaDirection};
use crate::sad::Sad;
use crate::tunnel::{self, OuterFacts};
use crate::wire::esp::{self, EspHeader};
use crate::wire::ip::{PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_NONE};
use crate::wire::{IpVersion, IpView};

/// What the walk knows about a batch that the engine does not need.
#[derive(Debug, Default)]
struct Side {
    /// One per job: index into `sas`.
    sa_of_job: Vec<u32>,
    /// One per job.
    facts: Vec<OuterFacts>,
    sas: Vec<Arc<InboundSa>>,
    delivered: Vec<Delivered>,
}

impl circulation::Side for Side {
    fn clear(&mut self) {
        self.sa_of_job.clear();
        self.facts.clear();
        self.sas.clear();
        self.delivered.clear();
    }
}

impl Side {
    /// The SA of an SPI. Packets of one SA come in runs, and a batch keeps to one snapshot of the SA.
    fn sa_index(&mut self, sad: &Sad, spi: u32) -> Option<u32> {
        let same = self.sas.last().is_some_and(|sa| sa.common.spi == spi);
        if !same {
            self.sas.push(sad.lookup(spi)?);
        }
        Some((self.sas.len() - 1) as u32)
    }
}

/// An inner packet that may pass.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    offset: u32,
    /// The inner packet as it is delivered, with the outer ECN brought in.
    pub view: IpView,
}

/// The inbound walk of one worker.
pub struct Inbound {
    limits: WalkLimits,
    batches: Circulation<Side>,
    events: Vec<Event>,
    counters: Arc<WalkCounters>,
    now_ms: u64,
}

impl Inbound {
    pub fn new(limits: WalkLimits) -> Self {
        Self {
            limits,
            batches: Circulation::new(Direction::Open, &limits),
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

    /// The part of the arena that is free: receive into it, [`Inbound::commit_received`] what was used,
    /// then [`Inbound::push`] each packet by its offset. None while every batch is busy.
    pub fn receive_buffer(&mut self) -> Option<ReceiveBuffer<'_>> {
        let (batch, _) = self.batches.filling.as_mut()?;
        let offset = batch.used();
        let bytes = batch.buffer.get_mut(offset..)?;
        Some(ReceiveBuffer { offset, bytes })
    }

    /// Keeps the first `len` bytes of the receive buffer. False if there are not so many.
    pub fn commit_received(&mut self, len: usize) -> bool {
        let batch = self.batches.filling.as_mut().map(|(batch, _)| batch);
        batch.and_then(|batch| batch.reserve(len)).is_some()
    }

    /// Whether the batch takes another packet.
    pub fn has_room(&self) -> bool {
        let filling = self.batches.filling.as_ref();
        filling.is_some_and(|(batch, _)| batch.jobs.len() < self.limits.jobs_max)
    }

    /// Takes one ESP packet, SPI to ICV, that lies in the arena at `offset`. Packets must not overlap.
    /// A drop is counted already.
    pub fn push(
        &mut self,
        sad: &Sad,
        offset: usize,
        len: usize,
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        self.counters.count_in(1, len as u64);
        let result = self.prepare(sad, offset, len, facts);
        if let Err((reason, sa)) = &result {
            self.counters.drops.add(*reason, 1);
            let sa = sa.and_then(|sa| self.batches.filling.as_ref()?.1.sas.get(sa as usize));
            if let Some(sa) = sa {
                sa.common.drops.add(*reason, 1);
            }
        }
        result.map_err(|(reason, _)| reason)
    }

    /// Copies one ESP packet into the arena and takes it.
    pub fn push_copy(
        &mut self,
        sad: &Sad,
        esp: &[u8],
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        let place = self.batches.filling.as_mut().and_then(|(batch, _)| {
            let offset = batch.reserve(esp.len())?;
            let place = batch.buffer.get_mut(offset..offset + esp.len())?;
            place.copy_from_slice(esp);
            Some(offset)
        });
        // No packet can be at the end of the address space: it is refused and counted as too long.
        self.push(sad, place.unwrap_or(usize::MAX), esp.len(), facts)
    }

    fn prepare(
        &mut self,
        sad: &Sad,
        offset: usize,
        len: usize,
        facts: &OuterFacts,
    ) -> Result<(), (DropReason, Option<u32>)> {
        let jobs_max = self.limits.jobs_max;
        let room = self.batches.filling.as_mut();
        let (batch, side) = room
            .filter(|(batch, _)| batch.jobs.len() < jobs_max)
            .ok_or((DropReason::TooLong, None))?;
        let end = offset.checked_add(len).ok_or((DropReason::TooLong, None))?;
        let packet = batch
            .buffer
            .get(offset..end)
            .ok_or((DropReason::TooLong, None))?;
        let header = EspHeader::parse(packet).ok_or((DropReason::MalformedEsp, None))?;
        let index = side
            .sa_index(sad, header.spi)
            .ok_or((DropReason::UnknownSpi, None))?;
        let drop = |reason| (reason, Some(index));
        let sa = side
            .sas
            .get(index as usize)
            .ok_or((DropReason::UnknownSpi, None))?;
        let transform = sa.common.transform();
        let overhead = esp::HEADER_LEN + transform.iv_len() + transform.icv_len();
        if len < transform.sealed_len_min()
            || !(len - overhead).is_multiple_of(transform.block_align())
        {
            return Err(drop(DropReason::MalformedEsp));
        }
        if sa.common.lifetime.expired(self.now_ms) {
            return Err(drop(DropReason::LifetimeExpired));
        }
        let sequence = sa
            .replay
            .check(header.sequence_low)
            .map_err(|e| drop(e.into()))?;
        let key = batch.add_key(&sa.common.key);
        batch.jobs.push(Job {
            key,
            esp: offset as u32,
            len: len as u32,
            icv: 0,
            sequence,
            class: facts.tos >> 5,
            status: JobStatus::Pending,
        });
        side.sa_of_job.push(index);
        side.facts.push(*facts);
        Ok(())
    }

    /// The number of packets that wait for [`Inbound::submit`].
    pub fn waiting(&self) -> usize {
        self.batches.waiting()
    }

    /// Gives what was pushed to the engine. If the engine is full, poll it and try again; the packets wait.
    /// If it is out of service, they are dropped and counted. Without packets, the arena is emptied.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        // What was received and gave no job still takes up the arena.
        if let Some((batch, side)) = &mut self.batches.filling
            && batch.jobs.is_empty()
        {
            batch.clear();
            side.clear();
        }
        self.batches.submit(engine, &self.counters.drops)
    }

    /// The next opened batch, in the order of submission, with what may be delivered.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<OpenedBatch> {
        let (mut batch, mut side) = self.batches.poll(engine)?;
        let mut delivered = std::mem::take(&mut side.delivered);
        let mut job = 0;
        while job < side.sa_of_job.len() {
            job = self.finish_run(&mut batch, &side, job, &mut delivered);
        }
        let bytes: usize = delivered.iter().map(|d| d.view.total_len).sum();
        self.counters
            .count_out(delivered.len() as u64, bytes as u64);
        side.delivered = delivered;
        Some(OpenedBatch { batch, side })
    }

    /// Finishes consecutive packets of one SA, from job `first` on, and gives the first job behind them.
    fn finish_run(
        &mut self,
        batch: &mut Batch,
        side: &Side,
        first: usize,
        delivered: &mut Vec<Delivered>,
    ) -> usize {
        let index = side.sa_of_job.get(first).copied().unwrap_or_default();
        let same = |&&i: &&u32| i == index;
        let run_len = side.sa_of_job.iter().skip(first).take_while(same).count();
        let after = first + run_len.max(1);
        let Some(sa) = side.sas.get(index as usize) else {
            return after;
        };
        let (mut packets, mut bytes) = (0u64, 0u64);
        // Only the newest packet of all says where the peer is now.
        let mut newest_from = None;
        let buffer = &mut batch.buffer;
        let run = batch.jobs.iter().zip(&side.facts).skip(first).take(run_len);
        for (job, facts) in run {
            let finished = authenticated(job, &sa.replay).and_then(|newest| {
                packets += 1;
                if newest {
                    newest_from = Some(facts);
                }
                decapsulate(sa, buffer, job, facts)
            });
            match finished {
                Ok(packet) => {
                    bytes += packet.view.total_len as u64;
                    delivered.push(packet);
                }
                Err(reason) => {
                    self.counters.drops.add(reason, 1);
                    sa.common.drops.add(reason, 1);
                }
            }
        }
        if let Some(facts) = newest_from.filter(|facts| facts.udp_encap) {
            self.observe(sa, facts);
        }
        if packets > 0 {
            let event = sa.common.lifetime.count(packets, bytes, self.now_ms);
            self.raise(sa, event);
        }
        after
    }

    fn observe(&mut self, sa: &InboundSa, facts: &OuterFacts) {
        if let Some(from) = sa.observe(facts.remote) {
            self.events.push(Event::PeerMoved {
                spi: sa.common.spi,
                policy: sa.common.policy,
                from,
                to: facts.remote,
            });
        }
    }

    fn raise(&mut self, sa: &InboundSa, event: Option<LifetimeEvent>) {
        if let Some(event) = event {
            self.events.push(Event::Lifetime {
                direction: SaDirection::Inbound,
                spi: sa.common.spi,
                policy: sa.common.policy,
                event,
            });
        }
    }

    /// Takes a delivered batch back for its next use.
    pub fn recycle(&mut self, opened: OpenedBatch) {
        self.batches.recycle(opened.batch, opened.side);
    }
}

impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbound")
            .field("limits", &self.limits)
            .field("waiting", &self.waiting())
            .field("in_engine", &self.batches.in_engine())
            .finish_non_exhaustive()
    }
}

impl From<ReplayError> for DropReason {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Replayed => Self::Replayed,
            ReplayError::BeforeWindow => Self::BeforeWindow,
        }
    }
}

/// Accepts the engine's verdict and marks the sequence number. Says whether it is the newest.
fn authenticated(job: &Job, window: &ReplayWindow) -> Result<bool, DropReason> {
    match job.status {
        JobStatus::Done => Ok(window.commit(job.sequence)?),
        JobStatus::AuthFailed => Err(DropReason::AuthenticationFailed),
        JobStatus::Malformed | JobStatus::Pending => Err(DropReason::EngineFailed),
    }
}

/// From an authenticated packet to the inner packet that may pass.
fn decapsulate(
    sa: &InboundSa,
    buffer: &mut [u8],
    job: &Job,
    facts: &OuterFacts,
) -> Result<Delivered, DropReason> {
    let transform = sa.common.transform();
    let start = job.esp as usize + esp::HEADER_LEN + transform.iv_len();
    let end = (job.esp as usize + job.len as usize).saturating_sub(transform.icv_len());
    let body = buffer.get_mut(start..end).ok_or(DropReason::EngineFailed)?;
    let trailer = esp::parse_trailer(body).ok_or(DropReason::BadPadding)?;
    let version = match trailer.next_header {
        PROTOCOL_IPV4 => IpVersion::V4,
        PROTOCOL_IPV6 => IpVersion::V6,
        PROTOCOL_NONE => return Err(DropReason::Dummy),
        _ => return Err(DropReason::BadNextHeader),
    };
    let payload = body
        .get_mut(..trailer.payload_len)
        .ok_or(DropReason::BadPadding)?;
    // The inner packet may be shorter than the payload: traffic flow confidentiality (RFC 4303 §2.7).
    let mut view = IpView::parse(payload).map_err(|_| DropReason::MalformedInner)?;
    if view.version != version {
        return Err(DropReason::MalformedInner);
    }
    if !sa.common.selectors.matches(&view.inbound_flow()) {
        return Err(DropReason::SelectorMismatch);
    }
    if !tunnel::decapsulate_ecn(payload, &mut view, facts.tos) {
        return Err(DropReason::EcnNotCapable);
    }
    let offset = start as u32;
    Ok(Delivered { offset, view })
}

/// Free space of the arena; `bytes[0]` is at `offset`.
#[derive(Debug)]
pub struct ReceiveBuffer<'a> {
    pub offset: usize,
    pub bytes: &'a mut [u8],
}

/// A batch of opened packets.
#[derive(Debug)]
pub struct OpenedBatch {
    batch: Batch,
    side: Side,
}

impl OpenedBatch {
    /// What may be delivered, in order.
    pub fn delivered(&self) -> &[Delivered] {
        &self.side.delivered
    }

    /// The bytes of an inner packet of this batch.
    pub fn packet(&self, delivered: &Delivered) -> &[u8] {
        let start = delivered.offset as usize;
        let range = start..start + delivered.view.total_len;
        self.batch.buffer.get(range).unwrap_or_default()
    }

    /// The same to write to: coalescing changes headers in place.
    pub fn packet_mut(&mut self, delivered: &Delivered) -> &mut [u8] {
        let start = delivered.offset as usize;
        let range = start..start + delivered.view.total_len;
        self.batch.buffer.get_mut(range).unwrap_or_default()
    }
}
