//! The inbound walk: look up, check for replay, engine, finish.
//!
//! One `Inbound` belongs to one worker. Its buffers circulate: nothing is allocated once they are made.

mod finish;
mod opened;
mod prepare;

use std::sync::Arc;

use esplanade_crypto::{Batch, Direction, Engine, JobStatus, Protocol, RejectReason};

use crate::audit::{AuditEvent, AuditKind};
use crate::circulation::Circulation;
pub use crate::circulation::ReceiveBuffer;
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::fragment::Arrivals;
use crate::lifetime::LifetimeEvent;
use crate::outbound::{NESTING_MAX, WalkLimits};
use crate::replay::{Committed, ReplayWindow};
use crate::sa::{InboundSa, SaDirection};
use crate::sad::{Sad, SadReader};
use crate::tunnel::OuterFacts;

pub use opened::{Delivered, OpenedBatch};
pub use prepare::Received;

use opened::{Content, Run, Side};

/// The inbound walk of one worker.
pub struct Inbound {
    limits: WalkLimits,
    batches: Circulation<Side>,
    events: Vec<Event>,
    audits: Vec<(AuditEvent, u64)>,
    counters: Arc<WalkCounters>,
    now_ms: u64,
    reader: SadReader,
    arrivals: Arrivals,
}

impl Inbound {
    pub fn new(limits: WalkLimits) -> Self {
        Self {
            limits,
            batches: Circulation::new(Direction::Open, &limits),
            events: Vec::new(),
            audits: Vec::with_capacity(AuditKind::ALL.len()),
            counters: Arc::default(),
            now_ms: 0,
            reader: SadReader::new(),
            arrivals: Arrivals::default(),
        }
    }

    /// Lets go of SAs that were removed. Every push does; call it when there is nothing to push.
    pub fn refresh(&mut self, sad: &Sad) {
        self.reader.refresh(sad);
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

    /// Takes what is to be audited (RFC 4303 §4): of each kind the first packet since the last call, and how many
    /// there were.
    pub fn drain_audits(&mut self) -> std::vec::Drain<'_, (AuditEvent, u64)> {
        self.audits.drain(..)
    }

    /// The part of the arena that is free: receive into it, [`Inbound::commit_received`] what was used,
    /// then push each packet by its offset. None while every batch is busy.
    pub fn receive_buffer(&mut self) -> Option<ReceiveBuffer<'_>> {
        self.batches.free()
    }

    /// Keeps the first `len` bytes of the receive buffer. False if there are not so many.
    pub fn commit_received(&mut self, len: usize) -> bool {
        self.batches.keep(len)
    }

    /// Whether the batch takes another packet.
    pub fn has_room(&self) -> bool {
        self.batches.room() > 0
    }

    /// Copies one packet into the arena and takes it. It begins [`OuterFacts::header_len`] bytes in front of ESP or AH.
    pub fn push_copy(
        &mut self,
        sad: &Sad,
        packet: &[u8],
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        let len = packet.len().saturating_sub(facts.header_len.into());
        self.counters.count_in(1, len as u64);
        self.copy(sad, packet, facts, 0)
    }

    fn copy(
        &mut self,
        sad: &Sad,
        packet: &[u8],
        facts: &OuterFacts,
        depth: u8,
    ) -> Result<(), DropReason> {
        let header_len = usize::from(facts.header_len);
        let place = self.batches.filling.as_mut().and_then(|(batch, _)| {
            let start = batch.reserve(packet.len())?;
            let place = batch.buffer.get_mut(start..start + packet.len())?;
            place.copy_from_slice(packet);
            Some(start)
        });
        // No packet can be at the end of the address space: it is refused and counted as too long.
        let offset = place.map_or(usize::MAX, |start| start + header_len);
        let len = packet.len().saturating_sub(header_len);
        let result = self.push_one(sad, offset, len, facts, depth);
        if let (Err(_), Some(start), Some((batch, _))) = (result, place, &mut self.batches.filling)
        {
            batch.release(start);
        }
        result
    }

    /// When the engine is replaced with batches inside: drops and counts their packets. What the former engine may
    /// still give must not be polled.
    pub fn engine_lost(&mut self) {
        self.batches.abandon(&self.counters);
    }

    /// The number of packets that wait for [`Inbound::submit`].
    pub fn waiting(&self) -> usize {
        self.batches.waiting()
    }

    /// Gives what was pushed to the engine. If the engine is full, poll it and try again; the packets wait.
    /// If it is out of service, they are dropped and counted. Without packets, the arena is emptied.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        self.batches.submit(engine, &self.counters)
    }

    /// The next opened batch, in the order of submission, with what may be delivered. Give it to
    /// [`Inbound::push_nested`] before it is recycled.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<OpenedBatch> {
        let (mut batch, mut side) = self.batches.poll(engine)?;
        let mut content = std::mem::take(&mut side.content);
        std::mem::swap(&mut content.arrivals, &mut self.arrivals);
        content.arrivals.now_ms = self.now_ms;
        for run in &side.runs {
            self.finish_run(&mut batch, &side, run, &mut content);
        }
        std::mem::swap(&mut content.arrivals, &mut self.arrivals);
        let delivered = &content.delivered;
        let bytes = delivered.iter().map(|d| u64::from(d.len)).sum();
        self.counters.count_out(delivered.len() as u64, bytes);
        side.content = content;
        Some(OpenedBatch { batch, side })
    }

    /// Finishes the packets of a run, as many at a time as the replay window takes in one step.
    fn finish_run(&mut self, batch: &mut Batch, side: &Side, run: &Run, content: &mut Content) {
        let first = run.first_job as usize;
        let jobs = first..first + run.jobs as usize;
        let (Some(sa), Some(tags)) = (side.sas.get(run.sa as usize), side.tags.get(jobs.clone()))
        else {
            return;
        };
        content.turn_to(sa.common.interface);
        let (mut packets, mut bytes) = (0u64, 0u64);
        // Only the newest packet of all says where the peer is now.
        let mut newest_from = None;
        let mut tags = tags.iter();
        let mut next = first;
        while next < jobs.end {
            let group = Group::of(batch, next, jobs.end, &sa.replay);
            next += group.len;
            for (job, tag) in (next - group.len..next).zip(&mut tags) {
                let Some(facts) = side.facts.get(tag.facts as usize) else {
                    continue;
                };
                let finished = group.verdict(batch, job).and_then(|newest| {
                    packets += 1;
                    if newest {
                        newest_from = Some(facts);
                    }
                    finish::finish(sa, batch, side, job, tag, facts, content)
                });
                match finished {
                    Ok(passed) => bytes += passed as u64,
                    Err(reason) => {
                        let sequence = batch.jobs.get(job).map(|job| job.sequence);
                        self.drop_packet(reason, Some(sa), sequence, &facts.outer);
                    }
                }
            }
        }
        if let Some(facts) = newest_from.filter(|facts| facts.outer.udp_encap) {
            self.observe(sa, &facts.outer);
        }
        if packets > 0 {
            let event = sa.common.lifetime.count(packets, bytes, self.now_ms);
            self.raise(sa, event);
        }
    }

    /// Takes the packets of an opened batch that are IPsec again and addressed to us (RFC 4301 §5.2, step 5: nested
    /// SAs) into the batch being filled. Deliver what the batch has before; submit again while packets are waiting.
    pub fn push_nested(&mut self, sad: &Sad, opened: &mut OpenedBatch) {
        for nested in std::mem::take(&mut opened.side.content.nested) {
            let view = &nested.view;
            let facts = OuterFacts {
                remote: std::net::SocketAddr::new(view.source, 0),
                udp_encap: false,
                tos: view.tos,
                header_len: view.upper as u16,
                protocol: match view.protocol {
                    crate::wire::ah::PROTOCOL => Protocol::Ah,
                    _ => Protocol::Esp,
                },
            };
            let packet = opened.packet(&nested.packet);
            if nested.depth >= NESTING_MAX {
                self.drop_packet(DropReason::NestedTooDeep, None, None, &facts);
            } else {
                // A drop is counted there.
                let _ = self.copy(sad, packet, &facts, nested.depth + 1);
            }
        }
    }

    fn drop_packet(
        &mut self,
        reason: DropReason,
        sa: Option<&InboundSa>,
        sequence: Option<u64>,
        facts: &OuterFacts,
    ) {
        let spi = sa.map(|sa| {
            sa.common.drops.add(reason, 1);
            sa.common.spi
        });
        self.drop_of(reason, spi, sequence, facts);
    }

    fn drop_of(
        &mut self,
        reason: DropReason,
        spi: Option<u32>,
        sequence: Option<u64>,
        facts: &OuterFacts,
    ) {
        self.counters.count_drop(reason, 1);
        let Some(kind) = AuditKind::of(reason) else {
            return;
        };
        match self.audits.iter_mut().find(|(event, _)| event.kind == kind) {
            Some((_, count)) => *count += 1,
            None => self.audits.push((
                AuditEvent {
                    kind,
                    spi,
                    sequence,
                    source: Some(facts.remote.ip()),
                    destination: None,
                    flow_label: None,
                },
                1,
            )),
        }
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
        for nested in &opened.side.content.nested {
            let facts = OuterFacts::new(std::net::SocketAddr::new(nested.view.source, 0), false, 0);
            self.drop_of(DropReason::NestedTooDeep, None, None, &facts);
        }
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

/// Consecutive jobs whose sequence numbers are marked in one step: all within 64 of the first, none twice.
struct Group {
    len: usize,
    base: u64,
    committed: Committed,
}

impl Group {
    /// From job `first` on, before job `end`.
    #[inline]
    fn of(batch: &Batch, first: usize, end: usize, window: &ReplayWindow) -> Self {
        let jobs = batch.jobs.get(first..end).unwrap_or_default();
        let base = jobs.first().map_or(0, |job| job.sequence);
        let (mut wanted, mut len) = (0u64, 0);
        for job in jobs {
            let at = job.sequence.wrapping_sub(base);
            if at >= 64 || wanted >> at & 1 == 1 {
                break;
            }
            wanted |= u64::from(job.status == JobStatus::Done) << at;
            len += 1;
        }
        Self {
            // Job `first` is always in it.
            len: len.max(1),
            base,
            committed: window.commit_run(base, wanted),
        }
    }

    /// Whether the packet may pass; if so, whether it is the newest of all.
    #[inline]
    fn verdict(&self, batch: &Batch, job: usize) -> Result<bool, DropReason> {
        let job = batch.jobs.get(job).ok_or(DropReason::EngineFailed)?;
        match job.status {
            JobStatus::Done => {}
            JobStatus::AuthFailed => return Err(DropReason::AuthenticationFailed),
            JobStatus::Malformed | JobStatus::Pending => return Err(DropReason::EngineFailed),
        }
        let at = job.sequence.wrapping_sub(self.base) & 63;
        let Committed {
            accepted,
            before,
            newest,
        } = self.committed;
        if accepted >> at & 1 == 1 {
            // The highest one that was accepted.
            Ok(newest && accepted >> at == 1)
        } else if before >> at & 1 == 1 {
            Err(DropReason::BeforeWindow)
        } else {
            Err(DropReason::Replayed)
        }
    }
}
