//! The inbound walk: look up the SA, check for replay, engine, finish.
//!
//! An `Inbound` belongs to one worker. Its buffers circulate, so nothing is allocated after they are made.

mod early;
mod finish;
mod opened;
mod prepare;
mod reports;

use std::collections::VecDeque;
use std::sync::Arc;

use esplanade_crypto::{Batch, Direction, Engine, Job, JobStatus, RejectReason};

use crate::audit::AuditEvent;
use crate::circulation::Circulation;
pub use crate::circulation::ReceiveBuffer;
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::outbound::{NESTING_MAX, WalkLimits};
use crate::replay::{self, Committed, ReplayWindow};
use crate::sa::InboundSa;
use crate::sad::{Sad, SadReader};
use crate::spd::Spd;
use crate::tunnel::OuterFacts;

pub use early::EarlyPacket;
pub use opened::{Delivered, OpenedBatch, Share};
pub use prepare::ReceivedPacket;

use early::EarlyPackets;
use opened::{Arrival, Content, InboundRun, InboundWalkState};
use reports::Reports;

/// The inbound walk of one worker.
pub struct Inbound {
    limits: WalkLimits,
    batches: Circulation<InboundWalkState>,
    /// The number of batches that were ever submitted.
    submitted: u64,
    reader: SadReader,
    stage: prepare::InboundStage,
    reports: Reports,
    now_ms: u64,
    /// Decapsulated packets that are IPsec again and found no batch.
    held: VecDeque<HeldInbound>,
    /// Packets whose SAs are still negotiated.
    early: EarlyPackets,
}

/// A packet that waits for a batch.
struct HeldInbound {
    packet: Vec<u8>,
    facts: OuterFacts,
    depth: u8,
}

impl Inbound {
    pub fn new(limits: WalkLimits) -> Self {
        Self {
            limits,
            batches: Circulation::new(Direction::Open, &limits, None),
            submitted: 0,
            reader: SadReader::new(),
            stage: prepare::InboundStage::default(),
            reports: Reports::new(),
            now_ms: 0,
            held: VecDeque::new(),
            early: EarlyPackets::default(),
        }
    }

    /// Replaces the arenas by those that the engine wants. The walk must be empty.
    #[must_use]
    pub fn with_arenas_of(self, engine: &dyn Engine) -> Self {
        let batches = Circulation::new(Direction::Open, &self.limits, Some(engine));
        Self { batches, ..self }
    }

    /// Moves empty batches into arenas that the engine wants, while the walk goes on.
    pub fn use_arenas_of(&mut self, engine: &dyn Engine) {
        self.batches.use_arenas_of(engine);
    }

    /// Drops removed SAs, except those that a batch under way needs. Every push does this too. Call it when there is
    /// nothing to push.
    pub fn refresh(&mut self, sad: &Sad) {
        let filling = self.submitted + 1;
        let in_engine = self.batches.in_engine() as u64;
        let finished = match self.batches.waiting() + self.batches.in_engine() {
            0 => filling,
            _ => self.submitted - in_engine,
        };
        self.reader.refresh_between(sad, filling, finished);
    }

    /// Makes the walk count together with another walk of the same worker.
    #[must_use]
    pub fn with_counters(mut self, counters: Arc<WalkCounters>) -> Self {
        self.reports.counters = counters;
        self
    }

    pub fn counters(&self) -> &Arc<WalkCounters> {
        &self.reports.counters
    }

    /// Sets the caller's monotonic time. Call it once per burst.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Takes the events that were raised since the last call.
    pub fn drain_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.reports.events.drain(..)
    }

    /// Takes the auditable events (RFC 4303 §4). For each kind it returns the first packet since the last call, and the
    /// number of packets.
    pub fn drain_audits(&mut self) -> std::vec::Drain<'_, (AuditEvent, u64)> {
        self.reports.audits.drain(..)
    }

    /// Returns the free part of the arena, or `None` while every batch is busy. Receive into it, call
    /// [`Inbound::commit_received`] for the used part, then push each packet by its offset.
    pub fn receive_buffer(&mut self) -> Option<ReceiveBuffer<'_>> {
        self.batches.free()
    }

    /// Reserves the first `len` bytes of the receive buffer. Returns false if fewer are free.
    pub fn commit_received(&mut self, len: usize) -> bool {
        self.batches.keep(len)
    }

    /// Returns true if the batch takes another packet.
    pub fn has_room(&self) -> bool {
        self.batches.room() > 0
    }

    /// Copies one packet into the arena and takes it. The packet begins [`OuterFacts::header_len`] bytes in front of
    /// ESP or AH.
    pub fn push_copy(
        &mut self,
        sad: &Sad,
        packet: &[u8],
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        let len = packet.len().saturating_sub(facts.header_len.into());
        self.reports.counters.count_in(1, len as u64);
        self.copy(sad, packet, facts, 0)
    }

    fn copy(
        &mut self,
        sad: &Sad,
        packet: &[u8],
        facts: &OuterFacts,
        depth: u8,
    ) -> Result<(), DropReason> {
        let Some(start) = self.place(packet) else {
            let reason = DropReason::TooLong;
            self.reports.drop_of(reason, None, None, facts);
            return Err(reason);
        };
        self.push_placed(sad, packet.len(), start, facts, depth)
    }

    /// Copies a packet into the arena, if there is room, and returns its offset.
    fn place(&mut self, packet: &[u8]) -> Option<usize> {
        let (batch, _) = self.batches.filling.as_mut()?;
        let start = batch.reserve(packet.len())?;
        let place = batch.buffer.get_mut(start..start + packet.len())?;
        place.copy_from_slice(packet);
        Some(start)
    }

    /// Takes the packet that was placed last.
    fn push_placed(
        &mut self,
        sad: &Sad,
        len: usize,
        start: usize,
        facts: &OuterFacts,
        depth: u8,
    ) -> Result<(), DropReason> {
        let header_len = usize::from(facts.header_len);
        let len = len.saturating_sub(header_len);
        let result = self.push_one(sad, start + header_len, len, facts, depth);
        if let (Err(_), Some((batch, _))) = (result, &mut self.batches.filling) {
            batch.release(start);
        }
        result
    }

    /// Handles the loss of an engine with batches inside. If that engine had a `ready_fd`, its batches are submitted
    /// to the next engine again. Otherwise their packets are dropped and counted. The lost engine must not be polled
    /// any more.
    pub fn engine_lost(&mut self) {
        self.batches.abandon(&self.reports.counters, &self.reader);
    }

    /// Number of packets that wait for [`Inbound::submit`], and of batches that are to be submitted again.
    pub fn waiting(&self) -> usize {
        self.batches.waiting() + self.batches.again() + self.held.len()
    }

    /// Number of batches that were submitted and have not come back.
    pub fn in_engine(&self) -> usize {
        self.batches.in_engine()
    }

    /// Returns true if a whole empty arena is available to receive into. If not, receive nothing until a batch has
    /// come back.
    pub fn can_take(&self) -> bool {
        self.batches.is_empty() && self.held.is_empty()
    }

    /// Bytes of the arena that were received into or copied to.
    pub fn waiting_bytes(&self) -> usize {
        self.batches.used()
    }

    /// Returns true if this many bytes of the arena and this many packets are free, so that another receive can join
    /// the batch.
    pub fn has_free(&self, bytes: usize, packets: usize) -> bool {
        self.held.is_empty() && self.batches.free_len() >= bytes && self.batches.room() >= packets
    }

    /// Submits what was pushed. If the engine refuses, the packets wait. Poll the engine and try again, or submit to
    /// another engine after [`Inbound::engine_lost`]. Without packets, the arena is emptied.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        if let Some((batch, _)) = &mut self.batches.filling {
            batch.keys = self.reader.keys().clone();
        }
        let any = self.batches.waiting() > 0;
        self.batches.submit(engine)?;
        self.submitted += u64::from(any);
        Ok(())
    }

    /// Takes the next opened batch, in the order of submission, with its deliverable packets. Pass it to
    /// [`Inbound::push_nested`] before it is recycled.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<OpenedBatch> {
        self.finish_next(engine, None)
    }

    /// Does the same for an SPD that has Discard entries. SPD entries are ordered. Traffic that matches a Discard
    /// entry in front of the SA's own entry does not pass, even if the SA accepts it (RFC 4301 §4.4.1).
    pub fn poll_against(&mut self, engine: &mut dyn Engine, spd: &Spd) -> Option<OpenedBatch> {
        self.finish_next(engine, spd.discards().then_some(spd))
    }

    fn finish_next(&mut self, engine: &mut dyn Engine, spd: Option<&Spd>) -> Option<OpenedBatch> {
        let (mut batch, mut side) = self.batches.poll(engine)?;
        let mut content = std::mem::take(&mut side.content);
        for run in &side.runs {
            if let Some(sa) = self.reader.get(run.sa) {
                let reports = &mut self.reports;
                let finishing = Finishing {
                    reports,
                    spd,
                    now_ms: self.now_ms,
                };
                finishing.run(sa, &mut batch, &side, run, &mut content);
            }
        }
        let delivered = content.delivered.len() as u64;
        self.reports.counters.count_out(delivered, content.bytes());
        side.content = content;
        Some(OpenedBatch { batch, side })
    }

    /// Moves the nested packets of an opened batch into the batch being filled (RFC 4301 §5.2, step 5). Nested packets
    /// are IPsec again and are addressed to us. Deliver the batch's packets before. Submit again while packets are
    /// waiting. Packets that find no room are taken by [`Inbound::push_held`] when a batch has come back.
    pub fn push_nested(&mut self, sad: &Sad, opened: &mut OpenedBatch) {
        for nested in std::mem::take(&mut opened.side.content.nested) {
            let facts = nested.outer();
            let packet = opened.packet(&nested.packet);
            if nested.depth >= NESTING_MAX {
                self.reports
                    .drop_of(DropReason::NestedTooDeep, None, None, &facts);
            } else {
                self.push_or_hold(sad, packet, &facts, nested.depth + 1);
            }
        }
    }

    fn push_or_hold(&mut self, sad: &Sad, packet: &[u8], facts: &OuterFacts, depth: u8) {
        if self.held.is_empty() {
            if self.has_room()
                && let Some(start) = self.place(packet)
            {
                // A drop is counted by the callee.
                let _ = self.push_placed(sad, packet.len(), start, facts, depth);
                return;
            }
            if self.batches.is_empty() {
                return self.reports.drop_of(DropReason::TooLong, None, None, facts);
            }
        }
        // There are at most as many as were in flight, if the caller respects `can_take`.
        if self.held.len() == self.limits.packets_max() {
            return self
                .reports
                .drop_of(DropReason::EngineFailed, None, None, facts);
        }
        // The packet stays behind those that wait.
        self.held.push_back(HeldInbound {
            packet: packet.to_vec(),
            facts: *facts,
            depth,
        });
    }

    /// Goes on with packets that found no batch. Call it before the next [`Inbound::submit`].
    pub fn push_held(&mut self, sad: &Sad) {
        while let Some(held) = self.held.pop_front() {
            let place = match self.has_room() {
                true => self.place(&held.packet),
                false => None,
            };
            let HeldInbound {
                packet,
                facts,
                depth,
            } = &held;
            match place {
                Some(start) => drop(self.push_placed(sad, packet.len(), start, facts, *depth)),
                None if self.batches.is_empty() => {
                    self.reports.drop_of(DropReason::TooLong, None, None, facts);
                }
                None => return self.held.push_front(held),
            }
        }
    }

    /// Takes a delivered batch back for its next use.
    pub fn recycle(&mut self, opened: OpenedBatch) {
        for nested in &opened.side.content.nested {
            let reason = DropReason::NestedTooDeep;
            self.reports.drop_of(reason, None, None, &nested.outer());
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

/// The context that packets are finished in.
struct Finishing<'a> {
    reports: &'a mut Reports,
    /// The SPD, if it may discard packets that an SA accepts.
    spd: Option<&'a Spd>,
    now_ms: u64,
}

impl Finishing<'_> {
    /// Finishes the packets of a run, as many at a time as the replay window takes in one step.
    fn run(
        self,
        sa: &InboundSa,
        batch: &mut Batch,
        side: &InboundWalkState,
        run: &InboundRun,
        content: &mut Content,
    ) {
        let Self {
            reports,
            spd,
            now_ms,
        } = self;
        let Batch { jobs, buffer, .. } = batch;
        let first = run.first_job as usize;
        let of_run = first..first + run.jobs as usize;
        let mut jobs = jobs.get(of_run.clone()).unwrap_or_default();
        let mut tags = side.tags.get(of_run).unwrap_or_default().iter();
        content.turn_to(sa.interface, sa.shared);
        let (mut packets, mut bytes) = (0u64, 0u64);
        // Only the newest packet of all shows where the peer is now.
        let mut newest_from = None;
        while !jobs.is_empty() {
            let group = ReplayGroup::of(jobs, &sa.replay);
            let (of_group, rest) = jobs.split_at_checked(group.len).unwrap_or_default();
            jobs = rest;
            for (job, tag) in of_group.iter().zip(&mut tags) {
                let Some(facts) = side.facts.get(tag.facts as usize) else {
                    continue;
                };
                let finished = group.verdict(job).and_then(|newest| {
                    packets += 1;
                    if newest {
                        newest_from = Some(facts);
                    }
                    let before = content.delivered.len();
                    let arrival = Arrival {
                        tag,
                        facts,
                        saved: &side.saved,
                        now_ms,
                    };
                    let passed = finish::finish(sa, buffer, job, arrival, content)?;
                    if let Some(spd) = spd {
                        finish::hold_against(spd, sa, buffer, content, before)?;
                    }
                    Ok(passed)
                });
                match finished {
                    Ok(passed) => bytes += u64::from(passed),
                    Err(reason) => {
                        reports.drop_packet(reason, sa, Some(job.sequence), &facts.outer);
                    }
                }
            }
        }
        if let Some(facts) = newest_from.filter(|facts| facts.outer.udp_encap) {
            reports.observe(sa, &facts.outer);
        }
        if packets > 0
            && let Some(event) = sa.common.lifetime.count(packets, bytes, now_ms)
        {
            reports.raise(sa, event);
        }
    }
}

/// Consecutive jobs whose sequence numbers are marked in one step. All are in one block of the window, and none
/// occurs twice.
struct ReplayGroup {
    len: usize,
    committed: Committed,
}

impl ReplayGroup {
    /// Forms a group of the first jobs.
    #[inline]
    fn of(jobs: &[Job], window: &ReplayWindow) -> Self {
        let block = jobs.first().map_or(0, |job| replay::block_of(job.sequence));
        let (mut seen, mut wanted, mut len) = (0u32, 0u32, 0);
        for job in jobs {
            let bit = replay::bit(job.sequence);
            if replay::block_of(job.sequence) != block || seen & bit != 0 {
                break;
            }
            seen |= bit;
            if job.status == JobStatus::Done {
                wanted |= bit;
            }
            len += 1;
        }
        Self {
            len,
            committed: window.commit_block(block, wanted),
        }
    }

    /// Returns an error unless the packet may pass. Returns true if it is the newest of all.
    #[inline]
    fn verdict(&self, job: &Job) -> Result<bool, DropReason> {
        let bit = replay::bit(job.sequence);
        let Committed {
            accepted,
            before,
            newest,
        } = self.committed;
        // The window was asked only about jobs that are done.
        if accepted & bit != 0 {
            // The newest packet is the highest number that was accepted.
            return Ok(newest && accepted ^ bit < bit);
        }
        Err(match job.status {
            JobStatus::Done if before & bit != 0 => DropReason::BeforeWindow,
            JobStatus::Done => DropReason::Replayed,
            JobStatus::AuthFailed => DropReason::AuthenticationFailed,
            JobStatus::Malformed | JobStatus::Pending => DropReason::EngineFailed,
        })
    }
}
