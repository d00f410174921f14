//! The fast way in: packets that lie in the arena, with room around them, in bursts.
//!
//! Each step is done for a stage of packets before the next, so that what the processor must fetch for one packet
//! (its flow, its SA) is fetched while it works on others. What is per SA is done once per run of packets.

use std::sync::Arc;

use super::prepare::{Place, Plan, Preparer};
use super::{OVERHEAD_MAX, Outbound};
use crate::drop_reason::DropReason;
use crate::inbound::ReceiveBuffer;
use crate::sa::{Mode, OutboundSa};
use crate::selector::Flow;
use crate::spd::{FlowCache, FlowKey, Spd, Verdict};
use crate::wire::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use crate::wire::{IpVersion, IpView, checksum};

/// Room that a packet must have in front of it in its slot, for any SA and its outer headers.
pub const HEADROOM: usize = 96;
/// Room that it must have behind it, for any SA without traffic flow confidentiality.
pub const TAILROOM: usize = OVERHEAD_MAX;

/// Packets that go through the steps together: enough for their cache misses to overlap, few enough for what is
/// known about them to stay near.
const STAGE: usize = 64;

/// A packet in the arena: `offset..offset + len`, within a slot that is its own.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub slot_start: u32,
    pub slot_end: u32,
    pub offset: u32,
    pub len: u32,
}

/// What is known about a packet of a stage.
#[derive(Clone, Copy)]
struct Staged {
    key: FlowKey,
    hash: u64,
    /// What the outer header takes from the packet; packets with the same get the same.
    header: Header,
    len: u32,
    verdict: Verdict,
}

/// TOS, Don't Fragment, version and flow label.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header(u64);

impl Header {
    fn v4(tos: u8, dont_fragment: bool) -> Self {
        Self(u64::from(tos) | u64::from(dont_fragment) << 8)
    }

    fn v6(first_word: u32) -> Self {
        Self(u64::from(first_word) << 16)
    }
}

impl Staged {
    const MALFORMED: Self = Self {
        key: FlowKey::V4 {
            addresses: 0,
            rest: 0,
        },
        hash: 0,
        header: Header(0),
        len: 0,
        verdict: Verdict::Discard(DropReason::MalformedInner),
    };

    /// Until it is looked up.
    const UNKNOWN: Verdict = Verdict::Discard(DropReason::NoPolicy);

    /// TCP and UDP without options, extension headers and fragments; none for all others.
    #[inline]
    fn plain(packet: &[u8]) -> Option<Self> {
        let fixed = packet.first_chunk::<IPV4_HEADER_LEN>()?;
        if fixed[0] == 0x45 {
            let key = FlowKey::from_ipv4(packet)?;
            let len = u16::from_be_bytes([fixed[2], fixed[3]]);
            let sound =
                usize::from(len) <= packet.len() && checksum::fold(checksum::sum(0, fixed)) == 0;
            return sound.then_some(Self {
                key,
                hash: 0,
                header: Header::v4(fixed[1], fixed[6] & 0x40 != 0),
                len: len.into(),
                verdict: Self::UNKNOWN,
            });
        }
        let key = FlowKey::from_ipv6(packet)?;
        let len = IPV6_HEADER_LEN + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        (len <= packet.len()).then_some(Self {
            key,
            hash: 0,
            header: Header::v6(u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]])),
            len: len as u32,
            verdict: Self::UNKNOWN,
        })
    }

    #[cold]
    fn other(packet: &[u8], interface: u32) -> Option<Self> {
        let view = IpView::parse(packet).ok()?;
        let flow = Flow {
            interface,
            ..view.outbound_flow()
        };
        let first = u32::from_be_bytes(*packet.first_chunk()?);
        Some(Self {
            key: FlowKey::from_flow(&flow)?,
            hash: 0,
            header: match view.version {
                IpVersion::V4 => Header::v4(view.tos, view.dont_fragment),
                IpVersion::V6 => Header::v6(first),
            },
            len: view.total_len as u32,
            verdict: Self::UNKNOWN,
        })
    }
}

/// What is known about the packets of a stage; kept, so that it need not be made again.
pub(super) struct Scratch {
    stage: Box<[Staged; STAGE]>,
    bypassed: Vec<u32>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            stage: Box::new([Staged::MALFORMED; STAGE]),
            bypassed: Vec::new(),
        }
    }
}

impl Outbound {
    /// The part of the arena that is free: put packets into it, [`Outbound::commit_received`] what was used, then
    /// [`Outbound::push_burst`] them. None while every batch is busy.
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

    /// How many packets the batch still takes.
    pub fn room(&self) -> usize {
        let filling = self.batches.filling.as_ref();
        filling.map_or(0, |(batch, _)| {
            self.limits.jobs_max.saturating_sub(batch.jobs.len())
        })
    }

    /// Decides on packets that lie in the arena and makes them ready for the engine, in order. More than there is
    /// [`Self::room`] for are dropped as too long. The SPD lets some pass as they are: see [`Self::bypassed`].
    pub fn push_burst(&mut self, spd: &Spd, packets: &[Packet]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // The cache is out of the way, so that an SA of it can be used while the rest changes.
        let mut flows = self.flows.take();
        if let Some(flows) = &mut flows {
            scratch.bypassed.clear();
            flows.begin_burst(spd, self.interface);
            let mut first = 0;
            for packets in packets.chunks(STAGE) {
                let stage = scratch.stage.get_mut(..packets.len()).unwrap_or_default();
                self.parse_stage(packets, stage);
                self.find_stage(spd, flows, stage);
                self.prepare_stage(packets, stage, flows, first, &mut scratch.bypassed);
                first += packets.len() as u32;
            }
        }
        self.flows = flows;
        self.scratch = scratch;
    }

    /// Of the last burst, the packets (by their index in it) that the caller sends as they are.
    pub fn bypassed(&self) -> &[u32] {
        &self.scratch.bypassed
    }

    fn parse_stage(&self, packets: &[Packet], stage: &mut [Staged]) {
        let filling = self.batches.filling.as_ref();
        let buffer = filling.map_or(&[][..], |(batch, _)| &batch.buffer);
        let mut bytes = 0;
        for (packet, staged) in packets.iter().zip(stage) {
            let start = packet.offset as usize;
            bytes += u64::from(packet.len);
            let packet = buffer.get(start..start + packet.len as usize);
            let packet = packet.unwrap_or_default();
            *staged = match Staged::plain(packet) {
                Some(plain) => plain,
                None => Staged::other(packet, self.interface).unwrap_or(Staged::MALFORMED),
            };
        }
        self.counters.count_in(packets.len() as u64, bytes);
    }

    fn find_stage(&mut self, spd: &Spd, flows: &mut FlowCache, stage: &mut [Staged]) {
        for staged in stage.iter_mut() {
            staged.hash = flows.hash(&staged.key);
        }
        for staged in stage {
            if staged.verdict != Staged::UNKNOWN {
                continue;
            }
            staged.verdict = flows.find(spd, &staged.key, staged.hash);
            if let Verdict::Acquire(entry) = staged.verdict {
                let flow = staged.key.flow(self.interface);
                self.events.extend(spd.acquire(entry, &flow));
                staged.verdict = Verdict::Discard(DropReason::NoSa);
            }
        }
    }

    fn prepare_stage(
        &mut self,
        packets: &[Packet],
        stage: &[Staged],
        flows: &FlowCache,
        first: u32,
        bypassed: &mut Vec<u32>,
    ) {
        let mut at = 0;
        while let (Some(head), Some(rest)) = (stage.get(at), stage.get(at..)) {
            let same = |s: &&Staged| s.header == head.header && same_fate(flows, head, s);
            let run_len = rest.iter().take_while(same).count().max(1);
            let run = packets.get(at..at + run_len).unwrap_or_default();
            match head.verdict {
                Verdict::Protect(slot) => {
                    let staged = rest.get(..run_len).unwrap_or_default();
                    if let Some(sa) = flows.sa(slot) {
                        self.prepare_run(sa, staged, run);
                    }
                }
                Verdict::Bypass => {
                    self.counters.count_bypassed(run_len as u64);
                    let from = first + at as u32;
                    bypassed.extend(from..from + run_len as u32);
                }
                Verdict::Discard(reason) => self.counters.count_drop(reason, run_len as u64),
                // `find_stage` has made a drop of it.
                Verdict::Acquire(_) => {}
            }
            at += run_len;
        }
    }

    /// Prepares packets of one SA whose outer headers are the same.
    fn prepare_run(&mut self, sa: &Arc<OutboundSa>, staged: &[Staged], packets: &[Packet]) {
        let count = packets.len() as u32;
        let bytes = staged.iter().map(|s| u64::from(s.len)).sum();
        let ready = self.plan_run(sa, packets);
        let ready = ready.and_then(|plan| Ok((plan, self.admit(sa, count, bytes)?)));
        let (mut plan, sequence) = match ready {
            Ok(ready) => ready,
            Err(reason) => {
                self.refuse(sa, reason, count);
                return;
            }
        };
        let Some((batch, side)) = self.batches.filling.as_mut() else {
            return;
        };
        plan.key = batch.add_key(&sa.common.key);
        let first_job = batch.jobs.len() as u32;
        let mut preparer = Preparer {
            batch,
            side,
            ivs: &mut self.ivs,
            identification: &mut self.identification,
        };
        let mut number = sequence.first;
        for (staged, packet) in staged.iter().zip(packets) {
            let place = Place {
                slot_start: packet.slot_start as usize,
                slot_end: packet.slot_end as usize,
                start: packet.offset as usize,
                len: staged.len as usize,
            };
            let result = prepare(&mut preparer, sa, &plan, number, &place);
            number += 1;
            if let Err(reason) = result {
                self.counters.count_drop(reason, 1);
                sa.common.drops.add(reason, 1);
            }
        }
        if plan.layout.is_esp_tunnel() {
            let jobs = batch.jobs.len() as u32 - first_job;
            if jobs > 0 {
                side.add_jobs(sa, &plan.meta, 0, first_job, jobs);
            }
        }
    }

    /// The plan for a run, by the headers of its first packet.
    fn plan_run(&self, sa: &OutboundSa, packets: &[Packet]) -> Result<Plan, DropReason> {
        let (batch, _) = self.batches.filling.as_ref().ok_or(DropReason::TooLong)?;
        if batch.jobs.len() + packets.len() > self.limits.jobs_max {
            return Err(DropReason::TooLong);
        }
        let first = packets.first().and_then(|packet| {
            let start = packet.offset as usize;
            batch.buffer.get(start..start + packet.len as usize)
        });
        let view = IpView::parse(first.unwrap_or_default());
        self.plan(sa, &view.map_err(|_| DropReason::MalformedInner)?)
    }
}

/// Whether two packets go the same way. Flows have one SA together; in transport mode each has its own addresses.
#[inline]
fn same_fate(flows: &FlowCache, a: &Staged, b: &Staged) -> bool {
    if a.verdict == b.verdict {
        return true;
    }
    let (Verdict::Protect(a), Verdict::Protect(b)) = (a.verdict, b.verdict) else {
        return false;
    };
    match (flows.sa(a), flows.sa(b)) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) && a.common.layout.mode == Mode::Tunnel,
        _ => false,
    }
}

#[inline]
fn prepare(
    preparer: &mut Preparer<'_>,
    sa: &Arc<OutboundSa>,
    plan: &Plan,
    sequence: u64,
    place: &Place,
) -> Result<(), DropReason> {
    if place.len > super::ESP_LEN_MAX {
        return Err(DropReason::TooLong);
    }
    match plan.layout.is_esp_tunnel() {
        true => preparer.esp_tunnel(plan, sequence, place),
        false => preparer.framed(sa, plan, sequence, place),
    }
}
