//! The fast way in: bursts of packets that lie in the arena, with room around them.
//!
//! Each step is done for a whole stage of packets before the next step. What the processor must fetch for one packet
//! (its flow, its SA) is thus fetched while it works on other packets. Work per flow and per SA is done once for
//! consecutive packets.

use std::slice::from_ref;

use super::prepare::{self, PacketPlace, Plan, Preparer, Shape};
use super::stage::{self, Header, NO_SA, OutboundStage, Staged};
use super::{OVERHEAD_MAX, Outbound, refuse};
use crate::circulation::ReceiveBuffer;
use crate::drop_reason::DropReason;
use crate::icmp_errors;
use crate::sa::{Mode, OutboundSa};
use crate::spd::{FlowCache, Spd, Verdict};
use crate::tunnel::FlowLabelPolicy;
use crate::wire::IpView;

/// Bytes that must be free in front of a packet in its slot, for any SA and its outer headers.
pub const HEADROOM: usize = 96;
/// Bytes that must be free behind a packet, for any SA without traffic flow confidentiality.
pub const TAILROOM: usize = OVERHEAD_MAX;

/// A packet in the arena: `offset..offset + len`, within its own slot.
#[derive(Clone, Copy, Debug)]
pub struct ArenaPacket {
    pub slot_start: u32,
    pub slot_end: u32,
    pub offset: u32,
    pub len: u32,
}

impl ArenaPacket {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize;
        start..start + self.len as usize
    }
}

/// Memory that a burst uses for a while.
#[derive(Default)]
pub(super) struct Scratch {
    stage: OutboundStage,
    bypassed: Vec<u32>,
}

impl Outbound {
    /// Returns the free part of the arena, or `None` while every batch is busy. Put packets into it, call
    /// [`Outbound::commit_received`] for the used part, then [`Outbound::push_burst`].
    pub fn receive_buffer(&mut self) -> Option<ReceiveBuffer<'_>> {
        self.batches.free()
    }

    /// Reserves the first `len` bytes of the receive buffer. Returns false if fewer are free.
    pub fn commit_received(&mut self, len: usize) -> bool {
        self.batches.keep(len)
    }

    /// The number of packets for which the batch still has room.
    pub fn room(&self) -> usize {
        self.batches.room()
    }

    /// Decides on packets that lie in the arena, and makes them ready for the engine, in order. Packets beyond
    /// [`Self::room`] are dropped as too long. Packets that the SPD bypasses are listed in [`Self::bypassed`].
    pub fn push_burst(&mut self, spd: &Spd, packets: &[ArenaPacket]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // The cache is taken out, so that one of its SAs can be used while the rest of `self` changes.
        let mut flows = self.flows.take();
        if let Some(flows) = &mut flows {
            scratch.bypassed.clear();
            flows.begin_burst(spd, self.interface);
            let mut first = 0;
            for packets in packets.chunks(stage::PACKETS) {
                self.parse_stage(packets, flows, &mut scratch.stage);
                self.find_stage(spd, flows, &mut scratch.stage.flows);
                self.prepare_stage(spd, packets, flows, &mut scratch, first);
                first += packets.len() as u32;
            }
        }
        self.flows = flows;
        self.scratch = scratch;
    }

    /// The packets of the last burst, by their index in it, that the caller sends as they are.
    pub fn bypassed(&self) -> &[u32] {
        &self.scratch.bypassed
    }

    #[inline(never)]
    fn parse_stage(&self, packets: &[ArenaPacket], flows: &FlowCache, stage: &mut OutboundStage) {
        let filling = self.batches.filling.as_ref();
        let buffer = filling.map_or(&[][..], |(batch, _)| &batch.buffer);
        let mut bytes = 0;
        let packets_in = packets.iter().map(|packet| {
            bytes += u64::from(packet.len);
            buffer.get(packet.range()).unwrap_or_default()
        });
        let malformed = stage.parse(packets_in, flows, self.interface);
        self.counters.count_in(packets.len() as u64, bytes);
        if malformed > 0 {
            self.counters
                .count_drop(DropReason::MalformedInner, malformed);
        }
    }

    #[inline(never)]
    fn find_stage(&mut self, spd: &Spd, flows: &mut FlowCache, stage: &mut [Staged]) {
        // Memory accesses are issued in short loops, so that many are under way at once. Page table walks overlap
        // that way too.
        for staged in stage.iter() {
            flows.prefetch_slot(&staged.key, staged.hash);
        }
        for staged in stage.iter_mut() {
            staged.at = flows.locate(&staged.key, staged.hash);
        }
        // Nothing here is a locked instruction, so a pending fetch for one entry does not block the next.
        for staged in stage {
            if let Some((slot, number)) = flows.protected(staged.at) {
                staged.verdict = Verdict::Protect(slot);
                staged.sa = number;
                continue;
            }
            staged.verdict = flows.settle(spd, &staged.key, staged.at);
            match staged.verdict {
                Verdict::Protect(slot) => {
                    staged.sa = flows.sa(slot).map_or(NO_SA, |sa| sa.number())
                }
                Verdict::Acquire(entry) => {
                    let flow = staged.key.flow(self.interface);
                    self.gate.events.extend(spd.acquire(entry, &flow));
                }
                Verdict::Bypass | Verdict::Discard(_) | Verdict::Outside(_) => {}
            }
        }
    }

    fn prepare_stage(
        &mut self,
        spd: &Spd,
        packets: &[ArenaPacket],
        flows: &mut FlowCache,
        scratch: &mut Scratch,
        first: u32,
    ) {
        let Scratch { stage, bypassed } = scratch;
        let OutboundStage {
            flows: staged,
            lens,
        } = stage;
        let mut at = 0;
        while let Some(head) = staged.get(at) {
            at += 1;
            match head.verdict {
                Verdict::Protect(slot) => {
                    let Some(sa) = flows.sa(slot) else {
                        continue;
                    };
                    if sa.is_usual() {
                        let after = self.prepare_usual(packets, flows, (staged, lens), at - 1);
                        if after >= at {
                            at = after;
                            continue;
                        }
                    }
                    let (mut more, mut bytes) = (0, u64::from(head.bytes));
                    while let Some(next) = staged.get(at)
                        && joins(sa, head, next)
                        && head.range(more).end == next.first as usize
                    {
                        more += next.count;
                        bytes += u64::from(next.bytes);
                        at += 1;
                    }
                    let run = head.range(more);
                    if let (Some(packets), Some(lens)) = (packets.get(run.clone()), lens.get(run)) {
                        self.prepare_run(sa, head.header, packets, lens, bytes);
                    }
                }
                Verdict::Bypass => {
                    self.counters.count_bypassed(head.count.into());
                    let from = first + head.first;
                    bypassed.extend(from..from + head.count);
                }
                Verdict::Discard(_) | Verdict::Acquire(_) | Verdict::Outside(_) => {
                    let run = head.range(0);
                    let packets = packets.get(run.clone()).unwrap_or_default();
                    let lens = lens.get(run).unwrap_or_default();
                    self.discard(spd, flows, head, (packets, lens));
                }
            }
        }
    }

    /// Drops the packets of a flow, except ICMP errors about packets of an SA.
    #[inline(never)]
    fn discard(
        &mut self,
        spd: &Spd,
        flows: &mut FlowCache,
        head: &Staged,
        (packets, lens): (&[ArenaPacket], &[u32]),
    ) {
        let Some((reason, entry)) = head.verdict.drop_reason() else {
            return;
        };
        let mut dropped = u64::from(head.count);
        if head.key.is_icmp() {
            let refusal = (reason, head.header);
            let returned = self.return_errors(spd, flows, refusal, packets, lens);
            dropped = dropped.saturating_sub(returned);
        }
        if dropped > 0 {
            self.count_unprotected(spd, (reason, entry), dropped);
        }
    }

    /// Prepares ICMP errors about packets of an SA, and returns how many they are.
    #[cold]
    fn return_errors(
        &mut self,
        spd: &Spd,
        flows: &mut FlowCache,
        (reason, header): (DropReason, Header),
        packets: &[ArenaPacket],
        lens: &[u32],
    ) -> u64 {
        let mut returned = 0;
        for (packet, len) in packets.iter().zip(lens) {
            let filling = self.batches.filling.as_ref();
            let bytes = filling.and_then(|(batch, _)| batch.buffer.get(packet.range()));
            let view = bytes.and_then(|bytes| Some((bytes, IpView::parse(bytes).ok()?)));
            let sa = view.and_then(|(bytes, view)| {
                icmp_errors::return_sa(spd, reason, bytes, &view, self.interface)
            });
            if let Some(sa) = sa {
                flows.hold(&sa);
                self.prepare_run(&sa, header, from_ref(packet), from_ref(len), (*len).into());
                returned += 1;
            }
        }
        returned
    }

    /// Prepares packets of one SA whose outer headers are equal.
    #[inline(always)]
    fn prepare_run(
        &mut self,
        sa: &OutboundSa,
        header: Header,
        packets: &[ArenaPacket],
        lens: &[u32],
        bytes: u64,
    ) {
        if packets.len() > self.batches.room() {
            self.refuse(sa, DropReason::TooLong, packets.len() as u32);
            return;
        }
        let layout = &sa.common.layout;
        let plain = layout.is_esp_tunnel() && sa.common.tunnel.flow_label != FlowLabelPolicy::Hash;
        let result = match plain {
            true => self.prepare_tunnelled(sa, header, packets, lens, bytes),
            false => self.prepare_planned(sa, packets, lens, bytes),
        };
        if let Err((reason, count)) = result {
            self.refuse(sa, reason, count);
        }
    }

    /// Prepares packets of an ESP tunnel, for which the header fields of the first packet suffice. There must be room
    /// for all packets. The error has the number of dropped packets.
    // The function is not inlined, because the code around it would take the registers.
    #[inline(never)]
    fn prepare_tunnelled(
        &mut self,
        sa: &OutboundSa,
        header: Header,
        packets: &[ArenaPacket],
        lens: &[u32],
        bytes: u64,
    ) -> Result<(), (DropReason, u32)> {
        let count = packets.len() as u32;
        let sequence = self.gate.admit(sa, count, bytes);
        let sequence = sequence.map_err(|reason| (reason, count))?;
        let Some((batch, side)) = self.batches.filling.as_mut() else {
            return Ok(());
        };
        let first_job = batch.jobs.len();
        let (inner, next_header) = (header.of_inner(), header.version().next_header());
        let shape = Shape::new(sa, inner.tos, next_header);
        let places = places(packets, lens);
        let result = prepare::esp_tunnel(batch, &mut self.ivs, &shape, sequence, places);
        let jobs = batch.jobs.len() - first_job;
        if jobs > 0 {
            side.add_tunnelled(sa, inner, first_job as u32, jobs as u32);
        }
        result
    }

    /// Prepares packets of all other SAs.
    #[inline(never)]
    fn prepare_planned(
        &mut self,
        sa: &OutboundSa,
        packets: &[ArenaPacket],
        lens: &[u32],
        bytes: u64,
    ) -> Result<(), (DropReason, u32)> {
        let count = packets.len() as u32;
        let plan = self.plan_run(sa, packets);
        let plan = plan.map_err(|reason| (reason, count))?;
        let sequence = self.gate.admit(sa, count, bytes);
        let sequence = sequence.map_err(|reason| (reason, count))?;
        let Some((batch, side)) = self.batches.filling.as_mut() else {
            return Ok(());
        };
        let mut preparer = Preparer {
            batch,
            side,
            ivs: &mut self.ivs,
            identification: &mut self.identification,
        };
        for (place, sequence) in places(packets, lens).zip(sequence..) {
            let result = match place.len > super::ESP_LEN_MAX {
                true => Err(DropReason::TooLong),
                false => preparer.packet(sa, &plan, sequence, &place),
            };
            if let Err(reason) = result {
                refuse(&self.counters, sa, reason, 1);
            }
        }
        Ok(())
    }

    /// Makes the plan for a run from the headers of its first packet.
    fn plan_run(&self, sa: &OutboundSa, packets: &[ArenaPacket]) -> Result<Plan, DropReason> {
        let filling = self.batches.filling.as_ref();
        let (batch, _) = filling.ok_or(DropReason::TooLong)?;
        let first = packets.first();
        let first = first.and_then(|packet| batch.buffer.get(packet.range()));
        let view = IpView::parse(first.unwrap_or_default());
        self.plan(sa, &view.map_err(|_| DropReason::MalformedInner)?)
    }
}

#[inline(always)]
fn places(packets: &[ArenaPacket], lens: &[u32]) -> impl Iterator<Item = PacketPlace> {
    packets.iter().zip(lens).map(|(packet, len)| PacketPlace {
        slot_start: packet.slot_start as usize,
        slot_end: packet.slot_end as usize,
        start: packet.offset as usize,
        len: *len as usize,
    })
}

/// Returns true if the packets of `next` can be prepared together with those of `head`, which belong to `sa`. In
/// transport mode each flow has its own addresses, and a hashed flow label belongs to one flow.
#[inline(always)]
fn joins(sa: &OutboundSa, head: &Staged, next: &Staged) -> bool {
    next.sa == head.sa
        && next.header == head.header
        && sa.common.layout.mode == Mode::Tunnel
        && sa.common.tunnel.flow_label != FlowLabelPolicy::Hash
}
