//! The outbound walk: decide, prepare, engine, finish.
//!
//! An `Outbound` belongs to one worker. Its buffers circulate, so nothing is allocated after they are made. Packets
//! come in one of two ways. [`Outbound::push_burst`] takes packets that lie in the arena already, with room around
//! them; it costs least. [`Outbound::decide`] and [`Outbound::reserve`] give slots that lie side by side, for packets
//! that are cut from super-segments and leave in trains.

mod burst;
mod gate;
mod prepare;
mod sealed;
mod side;
mod slots;
mod stage;
mod usual;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use esplanade_crypto::{Direction, Engine, JobStatus, Protocol, RejectReason, random};

use crate::circulation::Circulation;
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::icmp_errors;
use crate::iv::{IvPool, RandomSource};
use crate::sa::{Mode, OutboundSa};
use crate::selector::Flow;
use crate::spd::{FlowCache, FlowKey, Spd, Stripe, Verdict};
use crate::tunnel::{FlowLabelPolicy, OuterMeta};
use crate::wire::IpView;
use crate::wire::ip::PROTOCOL_NONE;

pub use crate::circulation::WalkLimits;
pub use burst::{ArenaPacket, HEADROOM, TAILROOM};
pub use sealed::{SealedBatch, Train, TrainLimits, Trains};
pub use slots::Slots;

use gate::SaGate;
pub(crate) use prepare::set_protocol_and_len;
use prepare::{OUTER_HEADROOM, Plan, Preparer};
use side::OutboundWalkState;

/// Length of the longest ESP packet that fits an outer packet behind the largest outer headers.
const ESP_LEN_MAX: usize = 65_535 - OUTER_HEADROOM;

/// The most bytes that an SA adds to a packet. They are an IPv6 header and AH with the longest ICV, or ESP with header,
/// IV, padding, trailer and the longest ICV.
const OVERHEAD_MAX: usize = 40 + 12 + 32 + 4;

/// Number of flows of each IP version that a walk remembers.
const FLOWS: usize = 4096;

fn flow_cache(flows: usize) -> FlowCache {
    let mut secret = [0; 48];
    // Without randomness the cache works, but a peer could aim at one of its sets.
    let _ = random::fill(&mut secret);
    let (words, _) = secret.as_chunks::<8>();
    let mut key = [0; 6];
    for (key, word) in key.iter_mut().zip(words) {
        *key = u64::from_le_bytes(*word);
    }
    FlowCache::new(flows, key)
}

/// The most SAs that are applied to one packet. RFC 4301 §4.4.1.2 leaves the limit to us.
pub const NESTING_MAX: u8 = 4;

/// The cut of a packet from the protected side: `count` inner packets. All but the last have `segment_len` bytes.
/// Lengths count from the inner IP header.
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

/// The decision on an outbound packet.
#[derive(Debug)]
pub enum Outcome {
    Protect(Arc<OutboundSa>),
    /// The caller sends the packet as it is.
    Bypass,
    /// The packet was dropped and is counted already.
    Dropped(DropReason),
}

/// The reason why [`Outbound::reserve`] returned no slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveRefused {
    /// Submit the batch and try again. Nothing was taken or counted.
    BatchFull,
    /// The packets were dropped and are counted already.
    Dropped(DropReason),
}

/// The outbound walk of one worker.
pub struct Outbound {
    limits: WalkLimits,
    batches: Circulation<OutboundWalkState>,
    ivs: IvPool,
    gate: SaGate,
    counters: Arc<WalkCounters>,
    /// The last identification of IP headers that are written here and not by the back end.
    identification: u16,
    /// A key that keeps flow labels from revealing their flows.
    label_key: RandomState,
    /// The flow cache. It is absent only while a burst uses it.
    flows: Option<FlowCache>,
    /// The interface that packets come from, in the numbering of the SPD.
    interface: u32,
    stripe: Stripe,
    scratch: burst::Scratch,
    /// A sealed packet on its way to the next SA of its bundle.
    nested: Vec<u8>,
    /// Sealed packets that found no batch for the next SA.
    held: VecDeque<HeldOutbound>,
}

/// A sealed packet that waits for a batch, to go through the next SA of its bundle.
struct HeldOutbound {
    sa: Arc<OutboundSa>,
    packet: Vec<u8>,
    /// Nesting depth of the SA that it waits for.
    depth: u8,
}

impl Outbound {
    pub fn new(limits: WalkLimits) -> Self {
        Self::with_random(limits, random::fill, FLOWS)
    }

    /// Makes a walk with another source of unpredictable IVs. `flows` is as in [`Self::with_flows`].
    pub fn with_random(limits: WalkLimits, source: RandomSource, flows: usize) -> Self {
        Self {
            limits,
            batches: Circulation::new(Direction::Seal, &limits, None),
            ivs: IvPool::new(source),
            gate: SaGate::default(),
            counters: Arc::default(),
            identification: 0,
            label_key: RandomState::new(),
            flows: Some(flow_cache(flows)),
            interface: 0,
            stripe: Stripe::next(),
            scratch: burst::Scratch::default(),
            nested: Vec::new(),
            held: VecDeque::new(),
        }
    }

    /// Replaces the arenas by those that the engine wants. The walk must be empty.
    #[must_use]
    pub fn with_arenas_of(self, engine: &dyn Engine) -> Self {
        let batches = Circulation::new(Direction::Seal, &self.limits, Some(engine));
        Self { batches, ..self }
    }

    /// Moves empty batches into arenas that the engine wants, while the walk goes on.
    pub fn use_arenas_of(&mut self, engine: &dyn Engine) {
        self.batches.use_arenas_of(engine);
    }

    /// Sets the size of the flow cache for each IP version. The best size is the number of flows in use at a time.
    #[must_use]
    pub fn with_flows(self, flows: usize) -> Self {
        Self {
            flows: Some(flow_cache(flows)),
            ..self
        }
    }

    /// Makes the walk count together with another walk of the same worker.
    #[must_use]
    pub fn with_counters(self, counters: Arc<WalkCounters>) -> Self {
        Self { counters, ..self }
    }

    /// Sets the interface that the next packets come from (RFC 4301 §4.4.1, the SPD's selection). 0 is the common
    /// interface.
    pub fn set_interface(&mut self, interface: u32) {
        self.interface = interface;
    }

    /// Drops unused SAs from a part of the flow cache. Call it between bursts. It does nothing while packets are
    /// [`Self::waiting`].
    pub fn sweep_flows(&mut self, sets: usize) {
        if self.waiting() == 0
            && let Some(flows) = &mut self.flows
        {
            flows.sweep(sets);
        }
    }

    /// Number of sets that [`Self::sweep_flows`] must visit to have seen all.
    pub fn flow_sets(&self) -> usize {
        self.flows.as_ref().map_or(0, FlowCache::sets)
    }

    pub fn counters(&self) -> &Arc<WalkCounters> {
        &self.counters
    }

    /// Sets the caller's monotonic time. Call it once per burst.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.gate.now_ms = now_ms;
    }

    /// Takes the events that were raised since the last call.
    pub fn drain_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.gate.events.drain(..)
    }

    /// Looks a packet up in the SPD and counts it as `segments.count` packets. `view` must have been parsed from it.
    pub fn decide(
        &mut self,
        spd: &Spd,
        (packet, view): (&[u8], &IpView),
        segments: &Segments,
    ) -> Outcome {
        let packets = u64::from(segments.count);
        self.counters.count_in(packets, segments.bytes() as u64);
        let flow = Flow {
            interface: self.interface,
            ..view.outbound_flow()
        };
        let (reason, entry) = match self.look_up(spd, &flow) {
            Ok(outcome) => {
                if matches!(outcome, Outcome::Bypass) {
                    self.counters.count_bypassed(packets);
                }
                return outcome;
            }
            Err(refusal) => refusal,
        };
        if let Some(sa) = icmp_errors::return_sa(spd, reason, packet, view, self.interface) {
            return Outcome::Protect(sa);
        }
        self.count_unprotected(spd, (reason, entry), packets);
        Outcome::Dropped(reason)
    }

    /// Counts packets that the SPD does not let pass, also with the policy that has no SA for them.
    fn count_unprotected(
        &self,
        spd: &Spd,
        (reason, entry): (DropReason, Option<u32>),
        packets: u64,
    ) {
        self.counters.count_drop(reason, packets);
        if let Some(entry) = entry {
            spd.count_unserved(entry, reason, packets, self.stripe);
        }
    }

    fn look_up(&mut self, spd: &Spd, flow: &Flow) -> Result<Outcome, (DropReason, Option<u32>)> {
        let (Some(flows), Some(key)) = (&mut self.flows, FlowKey::from_flow(flow)) else {
            return Err((DropReason::NoPolicy, None));
        };
        flows.begin_burst(spd, self.interface);
        let verdict = flows.lookup(spd, &key);
        if let Verdict::Acquire(entry) = verdict {
            self.gate.events.extend(spd.acquire(entry, flow));
        }
        match (verdict, verdict.drop_reason()) {
            (_, Some(refusal)) => Err(refusal),
            (Verdict::Protect(slot), None) => match flows.sa(slot) {
                Some(sa) => Ok(Outcome::Protect(Arc::clone(sa))),
                None => Err((DropReason::NoSa, None)),
            },
            (_, None) => Ok(Outcome::Bypass),
        }
    }

    /// Counts a packet that could not be parsed.
    pub fn drop_malformed(&mut self, len: usize) -> DropReason {
        self.drop_packet(DropReason::MalformedInner, len)
    }

    /// Counts a packet that the caller gives up before [`Outbound::decide`].
    pub fn drop_packet(&mut self, reason: DropReason, len: usize) -> DropReason {
        self.counters.count_in(1, len as u64);
        self.counters.count_drop(reason, 1);
        reason
    }

    /// Counts packets that [`Outbound::decide`] let pass and that the caller gives up.
    pub fn drop_decided(&mut self, sa: &OutboundSa, reason: DropReason, segments: &Segments) {
        self.refuse(sa, reason, segments.count);
    }

    /// Counts packets that [`Outbound::decide`] let pass and for which no batch is available.
    pub fn give_up(&mut self, sa: &OutboundSa, segments: &Segments) {
        self.drop_decided(sa, DropReason::EngineFailed, segments);
    }

    /// Reserves one slot per segment and writes everything around the inner packets. The caller fills the slots, see
    /// [`Slots::next_slot`].
    pub fn reserve<'a>(
        &'a mut self,
        sa: &'a Arc<OutboundSa>,
        view: &IpView,
        segments: &Segments,
    ) -> Result<Slots<'a>, ReserveRefused> {
        self.reserve_nested(sa, view, segments, 0)
    }

    fn reserve_nested<'a>(
        &'a mut self,
        sa: &'a Arc<OutboundSa>,
        view: &IpView,
        segments: &Segments,
        depth: u8,
    ) -> Result<Slots<'a>, ReserveRefused> {
        let mut plan = match self.plan(sa, view) {
            Ok(plan) => plan,
            Err(reason) => return Err(self.refuse(sa, reason, segments.count)),
        };
        plan.depth = depth;
        self.slots(sa, plan, segments)
    }

    fn slots<'a>(
        &'a mut self,
        sa: &'a Arc<OutboundSa>,
        plan: Plan,
        segments: &Segments,
    ) -> Result<Slots<'a>, ReserveRefused> {
        let (_, full_len) = plan.room(segments.segment_len);
        let (_, last_len) = plan.room(segments.last_len);
        let count = segments.count as usize;
        let bytes = full_len * count.saturating_sub(1) + last_len;
        let too_long = full_len.max(last_len) > ESP_LEN_MAX
            || bytes > self.limits.buffer_len.saturating_sub(OUTER_HEADROOM)
            || count > self.limits.jobs_max;
        if too_long || count == 0 {
            return Err(self.refuse(sa, DropReason::TooLong, segments.count));
        }
        if !self.fits(count, bytes) {
            return Err(ReserveRefused::BatchFull);
        }
        let sequence = match self.gate.admit(sa, segments.count, segments.bytes() as u64) {
            Ok(sequence) => sequence,
            Err(reason) => return Err(self.refuse(sa, reason, segments.count)),
        };
        if let Some(flows) = &mut self.flows {
            flows.hold(sa);
        }
        // `fits` checked that there is a batch.
        let (batch, side) = self
            .batches
            .filling
            .as_mut()
            .ok_or(ReserveRefused::BatchFull)?;
        if batch.used() == 0 {
            batch.reserve(OUTER_HEADROOM);
        }
        let slot = batch.reserve(bytes).ok_or(ReserveRefused::BatchFull)?;
        let preparer = Preparer {
            batch,
            side,
            ivs: &mut self.ivs,
            identification: &mut self.identification,
        };
        Slots::new(
            preparer,
            &self.counters,
            sa,
            plan,
            sequence,
            *segments,
            slot,
        )
        .map_err(ReserveRefused::Dropped)
    }

    /// Computes the parameters that packets of a run with this header share.
    fn plan(&self, sa: &OutboundSa, view: &IpView) -> Result<Plan, DropReason> {
        let mut meta = sa.outer_meta(view);
        if let Some(reason) = sa.refuses(view, &meta) {
            return Err(reason);
        }
        let common = &sa.common;
        if common.layout.mode == Mode::Tunnel && common.tunnel.flow_label == FlowLabelPolicy::Hash {
            meta.flow_label = self.label_key.hash_one(view.outbound_flow()) as u32 & 0xf_ffff;
        }
        Ok(Plan::new(sa, meta, view.tos, view.version.next_header()))
    }

    fn refuse(&self, sa: &OutboundSa, reason: DropReason, packets: u32) -> ReserveRefused {
        refuse(&self.counters, sa, reason, packets)
    }

    fn fits(&self, packets: usize, bytes: usize) -> bool {
        self.batches.filling.as_ref().is_some_and(|(batch, _)| {
            let headroom = if batch.used() == 0 { OUTER_HEADROOM } else { 0 };
            batch.jobs.len() + packets <= self.limits.jobs_max && batch.free() >= bytes + headroom
        })
    }

    /// Returns true if `segments` packets of `bytes` inner bytes in total fit into the batch with any SA. SAs that
    /// pad for traffic flow confidentiality are excepted.
    pub fn has_room(&self, segments: usize, bytes: usize) -> bool {
        self.fits(segments, bytes + segments * OVERHEAD_MAX)
    }

    /// Parses, decides on and copies one packet: the first half of the walk for packets that are not cut. The only
    /// refusal is `BatchFull`, before anything is counted. Submit then, and push again.
    pub fn push(&mut self, spd: &Spd, packet: &[u8]) -> Result<Outcome, ReserveRefused> {
        // A packet that does not fit an empty batch goes on, and is dropped as too long.
        let empty = self.batches.filling.as_ref();
        let empty = empty.is_some_and(|(batch, _)| batch.jobs.is_empty());
        if !empty && !self.has_room(1, packet.len()) {
            return Err(ReserveRefused::BatchFull);
        }
        let Ok(view) = IpView::parse(packet) else {
            return Ok(Outcome::Dropped(self.drop_malformed(packet.len())));
        };
        let outcome = self.decide(spd, (packet, &view), &Segments::one(view.total_len));
        let Outcome::Protect(sa) = &outcome else {
            return Ok(outcome);
        };
        match self.copy(sa, &view, packet, 0) {
            Ok(()) => Ok(outcome),
            // Padding for traffic flow confidentiality can exceed the room of a batch. Waiting would not help then.
            Err(ReserveRefused::BatchFull) => {
                self.refuse(sa, DropReason::TooLong, 1);
                Ok(Outcome::Dropped(DropReason::TooLong))
            }
            Err(ReserveRefused::Dropped(reason)) => Ok(Outcome::Dropped(reason)),
        }
    }

    fn copy(
        &mut self,
        sa: &Arc<OutboundSa>,
        view: &IpView,
        packet: &[u8],
        depth: u8,
    ) -> Result<(), ReserveRefused> {
        let segments = Segments::one(view.total_len);
        let mut slots = self.reserve_nested(sa, view, &segments, depth)?;
        if let (Some(slot), Some(packet)) = (slots.next_slot(), packet.get(..view.total_len))
            && slot.len() == packet.len()
        {
            slot.copy_from_slice(packet);
        }
        slots.finish().map_err(ReserveRefused::Dropped)
    }

    /// Seals a dummy packet of `len` zero bytes (RFC 4303 §2.6). Only ESP in tunnel mode can do this, because its
    /// outer header does not come from a packet. Other SAs are refused as malformed. The packet counts as a dummy,
    /// not as a packet.
    pub fn push_dummy(&mut self, sa: &Arc<OutboundSa>, len: usize) -> Result<(), ReserveRefused> {
        self.counters.count_dummies(1);
        let common = &sa.common;
        if common.layout.protocol != Protocol::Esp || common.layout.mode != Mode::Tunnel {
            return Err(self.refuse(sa, DropReason::MalformedInner, 1));
        }
        let meta = OuterMeta::of_dummy(common.packed_path(), &common.tunnel);
        let plan = Plan::new(sa, meta, meta.tos, PROTOCOL_NONE);
        let result = self.slots(sa, plan, &Segments::one(len));
        // Slots that are not written are sealed as zeros.
        match result.map(drop) {
            Err(ReserveRefused::BatchFull) => {
                self.counters.uncount_dummies(1);
                Err(ReserveRefused::BatchFull)
            }
            result => result,
        }
    }

    /// Handles the loss of an engine with batches inside. If that engine had a `ready_fd`, its batches are submitted
    /// to the next engine, with the same sequence numbers. Otherwise their packets are dropped and counted. The lost
    /// engine must not be polled any more.
    pub fn engine_lost(&mut self) {
        self.batches.abandon(&self.counters, &());
    }

    /// Number of packets that wait for [`Outbound::submit`], and of batches that are to be submitted again.
    pub fn waiting(&self) -> usize {
        self.batches.waiting() + self.batches.again() + self.held.len()
    }

    /// Bytes of the arena that these packets take.
    pub fn waiting_bytes(&self) -> usize {
        self.batches.used()
    }

    /// Number of batches that were submitted and have not come back.
    pub fn in_engine(&self) -> usize {
        self.batches.in_engine()
    }

    /// Returns true if any packet finds room, possibly after a [`Outbound::submit`]. If not, take no packets until a
    /// batch has come back. `batches_max` must be one more than the engine can hold.
    pub fn can_take(&self) -> bool {
        self.batches.has_empty() && self.held.is_empty()
    }

    /// Returns true if half of a batch is free. That suffices for all but the longest super-segments.
    pub fn is_half_free(&self) -> bool {
        self.batches.is_half_free() && self.held.is_empty()
    }

    /// Submits what was reserved. If the engine refuses, the packets wait. Poll the engine and try again, or submit
    /// to another engine after [`Outbound::engine_lost`]. Without packets, the arena is emptied.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        self.take_held();
        if let (Some((batch, side)), Some(flows)) = (&mut self.batches.filling, &self.flows) {
            batch.keys = flows.tables().keys().clone();
            side.sas = flows.tables().sas().clone();
        }
        self.batches.submit(engine)
    }

    /// Goes on with packets that found no batch.
    fn take_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            let Ok(view) = IpView::parse(&held.packet) else {
                continue;
            };
            if self.copy(&held.sa, &view, &held.packet, held.depth)
                != Err(ReserveRefused::BatchFull)
            {
                continue;
            }
            if !self.batches.is_empty() {
                return self.held.push_front(held);
            }
            self.refuse(&held.sa, DropReason::TooLong, 1);
        }
    }

    /// Takes the next sealed batch, in the order of submission. Packets that another SA protects once more are then
    /// in the batch being filled, or wait for a batch: submit again while packets are [`Self::waiting`]. `spd` has
    /// the policies of those SAs.
    pub fn poll(&mut self, engine: &mut dyn Engine, spd: &Spd) -> Option<SealedBatch> {
        let (batch, side) = self.batches.poll(engine)?;
        let (mut packets, mut bytes) = (0, 0u64);
        for job in &batch.jobs {
            let done = job.status == JobStatus::Done;
            packets += usize::from(done);
            bytes += if done { u64::from(job.len) } else { 0 };
        }
        let mut sealed = SealedBatch { batch, side };
        if packets == sealed.batch.jobs.len() && sealed.side.is_plain() {
            self.counters.count_out(packets as u64, bytes);
        } else {
            self.finish(spd, &mut sealed);
        }
        Some(sealed)
    }

    /// Finishes a batch in which some packets were not sealed, are not complete yet, or do not leave yet.
    fn finish(&mut self, spd: &Spd, sealed: &mut SealedBatch) {
        let SealedBatch { batch, side } = &mut *sealed;
        let (mut packets_out, mut bytes_out) = (0u64, 0u64);
        for run in &side.runs {
            let first = run.first_job as usize;
            let jobs = batch.jobs.get(first..first + run.jobs as usize);
            let done = jobs.unwrap_or_default().iter();
            let done = done.filter(|job| job.status == JobStatus::Done);
            let packets = done.clone().count() as u64;
            let failed = u64::from(run.jobs) - packets;
            if failed > 0
                && let Some(sa) = side.sa(run)
            {
                self.refuse(sa, DropReason::EngineFailed, failed as u32);
            }
            if !run.nested {
                packets_out += packets;
                bytes_out += done.map(|job| u64::from(job.len)).sum::<u64>();
            }
            if run.first_frame.is_some() {
                sealed::complete_frames(batch, side, run);
            }
        }
        self.counters.count_out(packets_out, bytes_out);
        for run in 0..sealed.side.runs.len() {
            self.nest(spd, sealed, run);
        }
    }

    /// Takes the packets of a run to the next SA of their bundle, if there is one (RFC 4301 appendix E).
    fn nest(&mut self, spd: &Spd, sealed: &SealedBatch, run: usize) {
        let Some((run, sa)) = sealed.nested_run(run) else {
            return;
        };
        let mut frame = std::mem::take(&mut self.nested);
        for job in 0..run.jobs as usize {
            let identification = prepare::next(&mut self.identification);
            let Some(built) = sealed.copy_frame(run, job, identification, &mut frame) else {
                continue;
            };
            let nested = built.ok_or(DropReason::TooLong);
            let pushed = nested.and_then(|()| self.push_to_next_sa(spd, sa, &frame, run.depth));
            if let Err(reason) = pushed {
                self.refuse(sa, reason, 1);
            }
        }
        self.nested = frame;
    }

    fn push_to_next_sa(
        &mut self,
        spd: &Spd,
        inner: &OutboundSa,
        packet: &[u8],
        depth: u8,
    ) -> Result<(), DropReason> {
        if depth >= NESTING_MAX {
            return Err(DropReason::NestedTooDeep);
        }
        let policy = inner.next_policy().and_then(|id| spd.policy(id));
        let policy = policy.ok_or(DropReason::NoSa)?;
        let view = IpView::parse(packet).map_err(|_| DropReason::TooLong)?;
        let flow = view.outbound_flow();
        let Some(sa) = policy.outbound_sa_for(&flow) else {
            self.gate.events.extend(policy.acquire_for_nested(&flow));
            return Err(DropReason::NoSa);
        };
        let depth = depth + 1;
        let refused = match self.held.is_empty() {
            true => self.copy(&sa, &view, packet, depth).err(),
            // The packet stays behind those that wait already.
            false => Some(ReserveRefused::BatchFull),
        };
        match refused {
            // The packet is counted already, with the SA that refused it.
            None | Some(ReserveRefused::Dropped(_)) => Ok(()),
            // There are at most as many as were in flight, if the caller respects `can_take`.
            Some(ReserveRefused::BatchFull) if self.held.len() < self.limits.packets_max() => {
                let packet = packet.to_vec();
                self.held.push_back(HeldOutbound { sa, packet, depth });
                Ok(())
            }
            Some(ReserveRefused::BatchFull) => Err(DropReason::EngineFailed),
        }
    }

    /// Takes a sent batch back for its next use.
    pub fn recycle(&mut self, sealed: SealedBatch) {
        self.batches.recycle(sealed.batch, sealed.side);
    }
}

#[cold]
#[inline(never)]
fn refuse(
    counters: &WalkCounters,
    sa: &OutboundSa,
    reason: DropReason,
    packets: u32,
) -> ReserveRefused {
    counters.count_drop(reason, packets.into());
    sa.common.drops.add(reason, packets.into());
    ReserveRefused::Dropped(reason)
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
