//! The fast way in: packets that lie in the arena, with room around them, in bursts.
//!
//! Each step is done for a stage of packets before the next, so that what the processor must fetch for one packet
//! (its flow, its SA) is fetched while it works on others. What is per flow and what is per SA is done once for
//! consecutive packets.

use std::slice::from_ref;

use super::prepare::{self, Place, Plan, Preparer, Shape};
use super::{OVERHEAD_MAX, Outbound};
use crate::circulation::ReceiveBuffer;
use crate::drop_reason::DropReason;
use crate::icmp_errors;
use crate::sa::{Mode, OutboundSa};
use crate::selector::Flow;
use crate::spd::{FlowCache, FlowKey, Located, Spd, Verdict};
use crate::tunnel::{FlowLabelPolicy, OfInner};
use crate::wire::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use crate::wire::{IpVersion, IpView};

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

/// Consecutive packets of a stage that are of one flow and get the same outer header, and what is known about them.
#[derive(Clone, Copy)]
struct Staged {
    key: FlowKey,
    hash: u64,
    /// What the outer header takes from the packets.
    header: Header,
    at: Located,
    verdict: Verdict,
    /// Of the SA, if there is one.
    sa: u32,
    /// The first packet's index in the stage.
    first: u32,
    count: u32,
    bytes: u32,
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

/// What a packet's headers say.
struct Parsed {
    key: FlowKey,
    header: Header,
    len: u32,
}

/// The first 24 bytes of an IPv4 packet: a header without options, and the ports.
#[derive(Clone, Copy)]
struct FirstWords([u64; 3]);

impl FirstWords {
    const NONE: Self = Self([0; 3]);
    /// What packets of one flow have in common: all but lengths, identifications, TTLs and checksums.
    const COMMON: [u64; 3] = [
        u64::from_le_bytes([255, 255, 0, 0, 0, 0, 255, 255]),
        u64::from_le_bytes([0, 255, 0, 0, 255, 255, 255, 255]),
        u64::MAX,
    ];

    #[inline(always)]
    fn of(packet: &[u8]) -> Option<Self> {
        let first = packet.first_chunk::<24>()?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&first[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Some(Self([word(0), word(8), word(16)]))
    }

    #[inline(always)]
    fn total_len(&self) -> u32 {
        u32::from(((self.0[0] >> 16) as u16).swap_bytes())
    }

    /// RFC 1071; the order of bytes does not matter for whether the sum is zero.
    #[inline(always)]
    fn has_good_checksum(&self) -> bool {
        let [a, b, c] = self.0;
        let low = |word: u64| word & u64::from(u32::MAX);
        let sum = (a >> 32) + low(a) + (b >> 32) + low(b) + low(c);
        sum.is_multiple_of(0xffff)
    }

    /// Whether a packet that is sound has the flow and the outer header of this one.
    #[inline(always)]
    fn is_like(&self, other: &Self) -> bool {
        let (a, b, [x, y, z]) = (self.0, other.0, Self::COMMON);
        (a[0] ^ b[0]) & x | (a[1] ^ b[1]) & y | (a[2] ^ b[2]) & z == 0
    }
}

impl Parsed {
    /// TCP and UDP without options, extension headers and fragments; none for all others.
    #[inline(always)]
    fn plain(packet: &[u8], words: &FirstWords) -> Option<Self> {
        let fixed = packet.first_chunk::<IPV4_HEADER_LEN>()?;
        let (key, header, len) = match fixed[0] {
            0x45 => {
                let key = FlowKey::from_ipv4(packet).filter(|_| words.has_good_checksum());
                let header = Header::v4(fixed[1], fixed[6] & 0x40 != 0);
                // Later fragments are not plain.
                let header = header.of_fragment(fixed[6] & 0x20 != 0);
                (key, header, words.total_len())
            }
            _ => {
                let first = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
                let payload_len = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
                let len = IPV6_HEADER_LEN as u32 + payload_len;
                (FlowKey::from_ipv6(packet), Header::v6(first), len)
            }
        };
        let parsed = Self {
            key: key?,
            header,
            len,
        };
        (len as usize <= packet.len()).then_some(parsed)
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
            header: header.of_fragment(view.fragment),
            len: view.total_len as u32,
        })
    }
}

/// What is known about a stage; kept, so that its memory need not be made again.
#[derive(Default)]
pub(super) struct Scratch {
    stage: Vec<Staged>,
    /// Of each packet of the stage, as its header says.
    lens: Vec<u32>,
    bypassed: Vec<u32>,
}

/// Of packets that were not looked up yet.
const UNKNOWN: Verdict = Verdict::Discard(DropReason::NoPolicy);
const MALFORMED: Verdict = Verdict::Discard(DropReason::MalformedInner);
const NO_KEY: FlowKey = FlowKey::V4 {
    addresses: 0,
    rest: 0,
};

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
                self.parse_stage(packets, flows, &mut scratch);
                self.find_stage(spd, flows, &mut scratch.stage);
                self.prepare_stage(spd, packets, flows, &mut scratch, first);
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

    fn parse_stage(&self, packets: &[Packet], flows: &FlowCache, scratch: &mut Scratch) {
        let Scratch { stage, lens, .. } = scratch;
        stage.clear();
        lens.clear();
        let filling = self.batches.filling.as_ref();
        let buffer = filling.map_or(&[][..], |(batch, _)| &batch.buffer);
        let mut bytes = 0;
        // Of the last entry, if its packets are of plain IPv4.
        let (mut last, mut is_v4) = (FirstWords::NONE, false);
        for (index, packet) in packets.iter().enumerate() {
            let start = packet.offset as usize;
            bytes += u64::from(packet.len);
            let packet = buffer.get(start..start + packet.len as usize);
            let packet = packet.unwrap_or_default();
            let words = FirstWords::of(packet).unwrap_or(FirstWords::NONE);
            let len = words.total_len();
            let fits = (len as usize <= packet.len()) & (len >= 24);
            if is_v4 & fits & words.is_like(&last)
                && words.has_good_checksum()
                && let Some(staged) = stage.last_mut()
            {
                staged.count += 1;
                staged.bytes += len;
                lens.push(len);
                continue;
            }
            let plain = Parsed::plain(packet, &words);
            (last, is_v4) = (words, plain.is_some() && words.0[0] as u8 == 0x45);
            let parsed = plain.or_else(|| Parsed::other(packet, self.interface));
            lens.push(parsed.as_ref().map_or(0, |parsed| parsed.len));
            Self::add_parsed(flows, stage, parsed, index as u32);
        }
        self.counters.count_in(packets.len() as u64, bytes);
    }

    #[inline(always)]
    fn add_parsed(flows: &FlowCache, stage: &mut Vec<Staged>, parsed: Option<Parsed>, index: u32) {
        let verdict = if parsed.is_some() { UNKNOWN } else { MALFORMED };
        let Parsed { key, header, len } = parsed.unwrap_or(Parsed {
            key: NO_KEY,
            header: Header(0),
            len: 0,
        });
        match stage.last_mut() {
            Some(staged)
                if staged.key == key && (staged.header, staged.verdict) == (header, verdict) =>
            {
                staged.count += 1;
                staged.bytes += len;
            }
            _ => {
                let hash = flows.hash(&key);
                flows.prefetch_slot(&key, hash);
                stage.push(Staged {
                    key,
                    hash,
                    header,
                    at: Located::NOWHERE,
                    verdict,
                    sa: 0,
                    first: index,
                    count: 1,
                    bytes: len,
                });
            }
        }
    }

    fn find_stage(&mut self, spd: &Spd, flows: &mut FlowCache, stage: &mut [Staged]) {
        for staged in stage.iter_mut() {
            staged.at = flows.locate(&staged.key, staged.hash);
            flows.prefetch_sa(staged.at);
        }
        // Nothing here is locked: what is still on its way from memory for one entry does not keep the next waiting.
        for staged in stage.iter_mut().filter(|staged| staged.verdict == UNKNOWN) {
            staged.verdict = flows.settle(spd, &staged.key, staged.at);
            match staged.verdict {
                Verdict::Protect(slot) => staged.sa = flows.sa(slot).map_or(0, |sa| sa.number()),
                Verdict::Acquire(entry) => {
                    let flow = staged.key.flow(self.interface);
                    self.events.extend(spd.acquire(entry, &flow));
                    staged.verdict = Verdict::Discard(DropReason::NoSa);
                }
                Verdict::Bypass | Verdict::Discard(_) => {}
            }
        }
    }

    fn prepare_stage(
        &mut self,
        spd: &Spd,
        packets: &[Packet],
        flows: &mut FlowCache,
        scratch: &mut Scratch,
        first: u32,
    ) {
        let Scratch {
            stage,
            lens,
            bypassed,
        } = scratch;
        let mut stage = stage.iter().peekable();
        while let Some(head) = stage.next() {
            match head.verdict {
                Verdict::Protect(slot) => {
                    let Some(sa) = flows.sa(slot) else {
                        continue;
                    };
                    let (mut count, mut bytes) = (head.count, u64::from(head.bytes));
                    while let Some(next) = stage.next_if(|next| joins(sa, head, next)) {
                        count += next.count;
                        bytes += u64::from(next.bytes);
                    }
                    let run = head.first as usize..(head.first + count) as usize;
                    let packets = packets.get(run.clone()).unwrap_or_default();
                    let lens = lens.get(run).unwrap_or_default();
                    self.prepare_run(sa, head.header, packets, lens, bytes);
                }
                Verdict::Bypass => {
                    self.counters.count_bypassed(head.count.into());
                    let from = first + head.first;
                    bypassed.extend(from..from + head.count);
                }
                Verdict::Discard(reason) if head.key.is_icmp() => {
                    let run = head.first as usize..(head.first + head.count) as usize;
                    let packets = packets.get(run.clone()).unwrap_or_default();
                    let lens = lens.get(run).unwrap_or_default();
                    self.discard_icmp(spd, flows, (reason, head.header), packets, lens);
                }
                Verdict::Discard(reason) => self.counters.count_drop(reason, head.count.into()),
                // `find_stage` has made a drop of it.
                Verdict::Acquire(_) => {}
            }
        }
    }

    /// Drops packets, but for errors about packets of an SA.
    #[cold]
    fn discard_icmp(
        &mut self,
        spd: &Spd,
        flows: &mut FlowCache,
        (reason, header): (DropReason, Header),
        packets: &[Packet],
        lens: &[u32],
    ) {
        for (packet, len) in packets.iter().zip(lens) {
            let filling = self.batches.filling.as_ref();
            let bytes = filling.and_then(|(batch, _)| batch.buffer.get(packet.range()));
            let view = bytes.and_then(|bytes| Some((bytes, IpView::parse(bytes).ok()?)));
            let sa = view.and_then(|(bytes, view)| {
                icmp_errors::return_sa(spd, reason, bytes, &view, self.interface)
            });
            match sa {
                Some(sa) => {
                    flows.hold(&sa);
                    self.prepare_run(&sa, header, from_ref(packet), from_ref(len), (*len).into());
                }
                None => self.counters.count_drop(reason, 1),
            }
        }
    }

    /// Prepares packets of one SA whose outer headers are the same.
    #[inline(always)]
    fn prepare_run(
        &mut self,
        sa: &OutboundSa,
        header: Header,
        packets: &[Packet],
        lens: &[u32],
        bytes: u64,
    ) {
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

    /// ESP in tunnel mode, where the first packet's flow says all that there is to know. Gives how many packets are
    /// dropped.
    #[inline(always)]
    fn prepare_tunnelled(
        &mut self,
        sa: &OutboundSa,
        header: Header,
        packets: &[Packet],
        lens: &[u32],
        bytes: u64,
    ) -> Result<(), (DropReason, u32)> {
        let count = packets.len() as u32;
        self.has_room_for(packets)?;
        let sequence = self.admit(sa, count, bytes);
        let sequence = sequence.map_err(|reason| (reason, count))?;
        let Some((batch, side)) = self.batches.filling.as_mut() else {
            return Ok(());
        };
        let first_job = batch.jobs.len();
        let (tos, next_header) = (header.tos(), header.version().next_header());
        let shape = Shape::new(sa, tos, next_header);
        let places = places(packets, lens);
        let failed = prepare::esp_tunnel(batch, &mut self.ivs, &shape, sequence, places);
        let jobs = batch.jobs.len() - first_job;
        if jobs > 0 {
            let inner = OfInner {
                tos,
                dont_fragment: header.dont_fragment(),
                flow_label: header.flow_label(),
            };
            side.add_tunnelled(sa, inner, first_job as u32, jobs as u32);
        }
        failed.map_or(Ok(()), Err)
    }

    /// All others.
    #[inline(never)]
    fn prepare_planned(
        &mut self,
        sa: &OutboundSa,
        packets: &[Packet],
        lens: &[u32],
        bytes: u64,
    ) -> Result<(), (DropReason, u32)> {
        let count = packets.len() as u32;
        self.has_room_for(packets)?;
        let plan = self.plan_run(sa, packets);
        let plan = plan.map_err(|reason| (reason, count))?;
        let sequence = self.admit(sa, count, bytes);
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
                self.counters.count_drop(reason, 1);
                sa.common.drops.add(reason, 1);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn has_room_for(&self, packets: &[Packet]) -> Result<(), (DropReason, u32)> {
        match packets.len() <= self.batches.room() {
            true => Ok(()),
            false => Err((DropReason::TooLong, packets.len() as u32)),
        }
    }

    /// The plan for a run, by the headers of its first packet.
    fn plan_run(&self, sa: &OutboundSa, packets: &[Packet]) -> Result<Plan, DropReason> {
        let filling = self.batches.filling.as_ref();
        let (batch, _) = filling.ok_or(DropReason::TooLong)?;
        let first = packets.first().and_then(|packet| {
            let start = packet.offset as usize;
            batch.buffer.get(start..start + packet.len as usize)
        });
        let view = IpView::parse(first.unwrap_or_default());
        self.plan(sa, &view.map_err(|_| DropReason::MalformedInner)?)
    }
}

#[inline(always)]
fn places(packets: &[Packet], lens: &[u32]) -> impl Iterator<Item = Place> {
    packets.iter().zip(lens).map(|(packet, len)| Place {
        slot_start: packet.slot_start as usize,
        slot_end: packet.slot_end as usize,
        start: packet.offset as usize,
        len: *len as usize,
    })
}

/// Whether the packets of `next` can be prepared together with those of `head`, which are of `sa`: in transport mode
/// each flow has its own addresses, and hashed flow labels are of one flow.
#[inline(always)]
fn joins(sa: &OutboundSa, head: &Staged, next: &Staged) -> bool {
    next.sa == head.sa
        && next.header == head.header
        && matches!(next.verdict, Verdict::Protect(_))
        && sa.common.layout.mode == Mode::Tunnel
        && sa.common.tunnel.flow_label != FlowLabelPolicy::Hash
}
