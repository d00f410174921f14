//! The fast way in: packets that lie in the arena, with room around them, in bursts.
//!
//! Each step is done for a stage of packets before the next, so that what the processor must fetch for one packet
//! (its flow, its SA) is fetched while it works on others. What is per SA is done once per run of packets.

use std::slice::from_ref;
use std::sync::Arc;

use super::prepare::{Place, Plan, Preparer};
use super::{OVERHEAD_MAX, Outbound};
use crate::circulation::ReceiveBuffer;
use crate::drop_reason::DropReason;
use crate::icmp_errors;
use crate::sa::{Mode, OutboundSa};
use crate::selector::Flow;
use crate::spd::{FlowCache, FlowKey, Located, Spd, Verdict};
use crate::tunnel::{FlowLabelPolicy, OuterMeta};
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

impl Packet {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize;
        start..start + self.len as usize
    }
}

/// What is known about a packet of a stage.
#[derive(Clone, Copy)]
struct Staged {
    key: FlowKey,
    hash: u64,
    at: Located,
    /// The key is that of the packet before.
    again: bool,
    /// What the outer header takes from the packet; packets with the same get the same.
    header: Header,
    len: u32,
    verdict: Verdict,
}

/// TOS, Don't Fragment, version and flow label; and whether it is a fragment, which not every SA takes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header(u64);

impl Header {
    fn v4(tos: u8, dont_fragment: bool) -> Self {
        Self(u64::from(tos) | u64::from(dont_fragment) << 8)
    }

    fn v6(first_word: u32) -> Self {
        Self(u64::from(first_word) << 16 | 1 << 8)
    }

    fn version(self) -> IpVersion {
        match self.0 >> 44 {
            0 => IpVersion::V4,
            _ => IpVersion::V6,
        }
    }

    fn tos(self) -> u8 {
        match self.version() {
            IpVersion::V4 => self.0 as u8,
            IpVersion::V6 => (self.0 >> 36) as u8,
        }
    }

    fn of_fragment(self, fragment: bool) -> Self {
        Self(self.0 | u64::from(fragment) << 9)
    }

    fn dont_fragment(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn flow_label(self) -> u32 {
        (self.0 >> 16) as u32 & 0xf_ffff
    }
}

impl Staged {
    const MALFORMED: Self = Self {
        key: FlowKey::V4 {
            addresses: 0,
            rest: 0,
        },
        hash: 0,
        at: Located::NOWHERE,
        again: false,
        header: Header(0),
        len: 0,
        verdict: Verdict::Discard(DropReason::MalformedInner),
    };

    /// Until it is looked up.
    const UNKNOWN: Verdict = Verdict::Discard(DropReason::NoPolicy);

    /// TCP and UDP without options, extension headers and fragments; false for all others.
    #[inline(always)]
    fn parse_plain(&mut self, packet: &[u8]) -> bool {
        let Some(fixed) = packet.first_chunk::<IPV4_HEADER_LEN>() else {
            return false;
        };
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let key = match fixed[0] {
            0x45 => {
                let words = [word(0), word(4), word(8), word(12), word(16)];
                let sum = words.iter().map(|&word| u64::from(word)).sum();
                self.len = words[0] & 0xffff;
                let header = Header::v4(fixed[1], fixed[6] & 0x40 != 0);
                // Later fragments are not plain.
                self.header = header.of_fragment(fixed[6] & 0x20 != 0);
                FlowKey::from_ipv4(packet).filter(|_| checksum::fold(sum) == 0)
            }
            _ => {
                self.len = IPV6_HEADER_LEN as u32 + (word(4) >> 16);
                self.header = Header::v6(word(0));
                FlowKey::from_ipv6(packet)
            }
        };
        let Some(key) = key else {
            return false;
        };
        self.key = key;
        self.verdict = Self::UNKNOWN;
        self.len as usize <= packet.len()
    }

    #[cold]
    fn other(packet: &[u8], interface: u32) -> Option<Self> {
        let view = IpView::parse(packet).ok()?;
        let flow = Flow {
            interface,
            ..view.outbound_flow()
        };
        let first = u32::from_be_bytes(*packet.first_chunk()?);
        let header = match view.version {
            IpVersion::V4 => Header::v4(view.tos, view.dont_fragment),
            IpVersion::V6 => Header::v6(first),
        };
        Some(Self {
            key: FlowKey::from_flow(&flow)?,
            hash: 0,
            at: Located::NOWHERE,
            again: false,
            header: header.of_fragment(view.fragment),
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
        self.batches.free()
    }

    /// Keeps the first `len` bytes of the receive buffer. False if there are not so many.
    pub fn commit_received(&mut self, len: usize) -> bool {
        self.batches.keep(len)
    }

    /// How many packets the batch still takes.
    pub fn room(&self) -> usize {
        self.batches.room()
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
                Self::fetch_keys(flows, stage);
                self.prepare_stage(spd, packets, stage, flows, first, &mut scratch.bypassed);
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
            if !staged.parse_plain(packet) {
                *staged = Staged::other(packet, self.interface).unwrap_or(Staged::MALFORMED);
            }
        }
        self.counters.count_in(packets.len() as u64, bytes);
    }

    fn find_stage(&mut self, spd: &Spd, flows: &mut FlowCache, stage: &mut [Staged]) {
        // Packets of one flow come in runs, which are looked for once.
        let mut last = Staged::MALFORMED.key;
        for staged in stage.iter_mut() {
            staged.again = staged.key == last;
            if !staged.again {
                last = staged.key;
                staged.hash = flows.hash(&staged.key);
                flows.prefetch_slot(&staged.key, staged.hash);
            }
        }
        let mut at = Located::NOWHERE;
        for staged in stage.iter_mut() {
            if !staged.again {
                at = flows.locate(&staged.key, staged.hash);
                flows.prefetch_sa(at);
            }
            staged.at = at;
        }
        let mut last = (Located::NOWHERE, Staged::UNKNOWN);
        for staged in stage {
            if staged.verdict != Staged::UNKNOWN {
                continue;
            }
            if staged.at == last.0 && last.0 != Located::NOWHERE {
                staged.verdict = last.1;
                continue;
            }
            staged.verdict = flows.settle(spd, &staged.key, staged.at);
            if let Verdict::Acquire(entry) = staged.verdict {
                let flow = staged.key.flow(self.interface);
                self.events.extend(spd.acquire(entry, &flow));
                staged.verdict = Verdict::Discard(DropReason::NoSa);
            }
            last = (staged.at, staged.verdict);
        }
    }

    /// Has the processor fetch the counts of all keys at once: the next steps have locked instructions, and those would
    /// wait one for the other's memory.
    fn fetch_keys(flows: &FlowCache, stage: &[Staged]) {
        let mut last = None;
        for staged in stage {
            if last != Some(staged.verdict)
                && let Verdict::Protect(slot) = staged.verdict
                && let Some(sa) = flows.sa(slot)
            {
                sa.common.prefetch_key();
            }
            last = Some(staged.verdict);
        }
    }

    fn prepare_stage(
        &mut self,
        spd: &Spd,
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
                Verdict::Discard(reason) => {
                    let staged = rest.get(..run_len).unwrap_or_default();
                    self.discard_run(spd, reason, staged, run);
                }
                // `find_stage` has made a drop of it.
                Verdict::Acquire(_) => {}
            }
            at += run_len;
        }
    }

    #[cold]
    fn discard_run(
        &mut self,
        spd: &Spd,
        reason: DropReason,
        staged: &[Staged],
        packets: &[Packet],
    ) {
        for (staged, packet) in staged.iter().zip(packets) {
            let filling = self.batches.filling.as_ref();
            let bytes = filling.and_then(|(batch, _)| batch.buffer.get(packet.range()));
            let view = bytes.filter(|_| staged.key.is_icmp());
            let view = view.and_then(|bytes| Some((bytes, IpView::parse(bytes).ok()?)));
            let sa = view.and_then(|(bytes, view)| {
                icmp_errors::return_sa(spd, reason, bytes, &view, self.interface)
            });
            match sa {
                Some(sa) => self.prepare_run(&sa, from_ref(staged), from_ref(packet)),
                None => self.counters.count_drop(reason, 1),
            }
        }
    }

    /// Prepares packets of one SA whose outer headers are the same.
    fn prepare_run(&mut self, sa: &Arc<OutboundSa>, staged: &[Staged], packets: &[Packet]) {
        let count = packets.len() as u32;
        let bytes = staged.iter().map(|s| u64::from(s.len)).sum();
        let header = staged.first().map_or(Header(0), |staged| staged.header);
        let mut plan = match self.plan_run(sa, header, packets) {
            Ok(plan) => plan,
            Err(reason) => {
                self.refuse(sa, reason, count);
                return;
            }
        };
        let sequence = match self.admit(sa, count, bytes) {
            Ok(sequence) => sequence,
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
        let esp_tunnel = plan.layout.is_esp_tunnel();
        for (index, (staged, packet)) in staged.iter().zip(packets).enumerate() {
            let number = sequence.first + index as u64;
            let place = Place {
                slot_start: packet.slot_start as usize,
                slot_end: packet.slot_end as usize,
                start: packet.offset as usize,
                len: staged.len as usize,
            };
            let result = match esp_tunnel {
                _ if place.len > super::ESP_LEN_MAX => Err(DropReason::TooLong),
                true => preparer.esp_tunnel(&plan, number, &place),
                false => preparer.framed(sa, &plan, number, &place),
            };
            if let Err(reason) = result {
                self.counters.count_drop(reason, 1);
                sa.common.drops.add(reason, 1);
            }
        }
        if esp_tunnel {
            let jobs = batch.jobs.len() as u32 - first_job;
            if jobs > 0 {
                side.add_jobs(sa, &plan.meta, 0, first_job, jobs);
            }
        }
    }

    /// The plan for a run, by the headers of its first packet.
    #[inline(always)]
    fn plan_run(
        &self,
        sa: &OutboundSa,
        header: Header,
        packets: &[Packet],
    ) -> Result<Plan, DropReason> {
        let (batch, _) = self.batches.filling.as_ref().ok_or(DropReason::TooLong)?;
        if batch.jobs.len() + packets.len() > self.limits.jobs_max {
            return Err(DropReason::TooLong);
        }
        let common = &sa.common;
        if common.layout.mode == Mode::Tunnel && common.tunnel.flow_label != FlowLabelPolicy::Hash {
            let (tos, df, label) = (header.tos(), header.dont_fragment(), header.flow_label());
            let meta = OuterMeta::around(common.path(), &common.tunnel, tos, df, label);
            return Ok(Plan::new(sa, meta, tos, header.version().next_header()));
        }
        let first = packets.first().and_then(|packet| {
            let start = packet.offset as usize;
            batch.buffer.get(start..start + packet.len as usize)
        });
        let view = IpView::parse(first.unwrap_or_default());
        self.plan(sa, &view.map_err(|_| DropReason::MalformedInner)?)
    }
}

/// Whether two packets go the same way. Flows have one SA together; in transport mode each has its own addresses, and
/// hashed flow labels are of one flow.
#[inline]
fn same_fate(flows: &FlowCache, a: &Staged, b: &Staged) -> bool {
    if a.verdict == b.verdict {
        return true;
    }
    let (Verdict::Protect(a), Verdict::Protect(b)) = (a.verdict, b.verdict) else {
        return false;
    };
    match (flows.sa(a), flows.sa(b)) {
        (Some(a), Some(b)) => {
            let common = &a.common;
            Arc::ptr_eq(a, b)
                && common.layout.mode == Mode::Tunnel
                && common.tunnel.flow_label != FlowLabelPolicy::Hash
        }
        _ => false,
    }
}
