//! The first half of the inbound walk: from bytes in the arena to jobs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use esplanade_crypto::{Batch, Job, JobStatus, Protocol};

use super::Inbound;
use super::early::{EarlyPacket, EarlyPackets};
use super::opened::{Facts, InboundRun, InboundWalkState, Tag};
use super::reports::Reports;
use crate::drop_reason::DropReason;
use crate::replay::ReplayError;
use crate::sa::InboundSa;
use crate::sad::{SaName, Sad, SadReader};
use crate::tunnel::OuterFacts;
use crate::wire::IpVersion;
use crate::wire::ah::{self, AhHeader};

/// A received packet in the arena, from ESP or AH on.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket {
    pub offset: u32,
    pub len: u32,
    /// The index of its outer header in the burst's facts.
    pub facts: u32,
}

/// Number of packets that go through the steps together, so that their cache misses overlap.
const STAGE: usize = 128;

/// The packets of a stage and the runs of packets of one SA.
#[derive(Default)]
pub(super) struct InboundStage {
    heads: Vec<Head>,
    runs: Vec<StageRun>,
}

#[derive(Clone, Copy)]
struct Head {
    packet: ReceivedPacket,
    spi: u32,
    /// The slot that the SPI encodes.
    slot: u32,
    sequence_low: u32,
    protocol: Protocol,
    tos: u8,
}

/// Consecutive heads of one SA.
#[derive(Clone, Copy)]
struct StageRun {
    first: usize,
    sa: SaName,
    protocol: Protocol,
}

/// Values that packets of one push share.
#[derive(Clone, Copy)]
struct Burst<'a> {
    facts: &'a [OuterFacts],
    /// Index of the first packet's outer header in [`InboundWalkState::facts`].
    first_facts: u32,
    /// The number of tunnels that were around the packets.
    depth: u8,
    /// The most jobs in a batch.
    jobs_max: usize,
    now_ms: u64,
}

impl Burst<'_> {
    #[inline]
    fn outer(&self, packet: &ReceivedPacket) -> &OuterFacts {
        self.facts.get(packet.facts as usize).unwrap_or(&NO_FACTS)
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

impl Inbound {
    /// Takes one packet that lies in the arena at `offset`, from ESP or AH to its end. Packets must not overlap. A
    /// drop is counted already.
    pub fn push(
        &mut self,
        sad: &Sad,
        offset: usize,
        len: usize,
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        self.reports.counters.count_in(1, len as u64);
        self.push_one(sad, offset, len, facts, 0)
    }

    pub(super) fn push_one(
        &mut self,
        sad: &Sad,
        offset: usize,
        len: usize,
        facts: &OuterFacts,
        depth: u8,
    ) -> Result<(), DropReason> {
        let (Ok(offset), Ok(len)) = (u32::try_from(offset), u32::try_from(len)) else {
            self.reports.drop_of(DropReason::TooLong, None, None, facts);
            return Err(DropReason::TooLong);
        };
        let received = ReceivedPacket {
            offset,
            len,
            facts: 0,
        };
        let burst = self.begin(sad, std::slice::from_ref(facts), depth);
        self.stage(sad, &burst, &[received])
    }

    /// Takes packets that lie in the arena, in order. They must not overlap. Drops are counted.
    pub fn push_burst(&mut self, sad: &Sad, facts: &[OuterFacts], packets: &[ReceivedPacket]) {
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.len)).sum();
        self.reports.counters.count_in(packets.len() as u64, bytes);
        let burst = self.begin(sad, facts, 0);
        for stage in packets.chunks(STAGE) {
            // Drops are counted by the callee.
            let _ = self.stage(sad, &burst, stage);
        }
    }

    fn begin<'a>(&mut self, sad: &Sad, facts: &'a [OuterFacts], depth: u8) -> Burst<'a> {
        self.refresh(sad);
        let mut first_facts = 0;
        if let Some((_, side)) = &mut self.batches.filling {
            first_facts = side.facts.len() as u32;
            let outer = facts.iter().map(|&outer| Facts { outer, depth });
            side.facts.extend(outer);
        }
        Burst {
            facts,
            first_facts,
            depth,
            jobs_max: self.limits.jobs_max,
            now_ms: self.now_ms,
        }
    }

    /// Prepares a stage. The error is the last drop's reason.
    fn stage(
        &mut self,
        sad: &Sad,
        burst: &Burst<'_>,
        packets: &[ReceivedPacket],
    ) -> Result<(), DropReason> {
        let Self {
            batches,
            reader,
            stage,
            reports,
            early,
            ..
        } = self;
        let Some((batch, side)) = &mut batches.filling else {
            for packet in packets {
                reports.drop_of(DropReason::TooLong, None, None, burst.outer(packet));
            }
            return Err(DropReason::TooLong);
        };
        let read = stage.read((sad, reader), reports, batch, burst, packets);
        stage.find(sad, reader, batch, burst);
        let databases = (sad, &*reader);
        let prepared = stage.prepare(databases, (reports, early), batch, side, burst);
        prepared.and(read)
    }
}

impl InboundStage {
    /// Reads the unencrypted fields of the packets.
    #[inline(always)]
    fn read(
        &mut self,
        (sad, reader): (&Sad, &SadReader),
        reports: &mut Reports,
        batch: &Batch,
        burst: &Burst<'_>,
        packets: &[ReceivedPacket],
    ) -> Result<(), DropReason> {
        self.heads.clear();
        let mut result = Ok(());
        // The slot is decoded here, where no packet waits for the one before.
        let (mut last, mut slot) = (0, sad.slot_of(0));
        for &packet in packets {
            let outer = burst.outer(&packet);
            let Some((spi, sequence_low)) = clear_fields(batch, outer.protocol, &packet) else {
                let reason = malformed(outer.protocol);
                reports.drop_of(reason, None, None, outer);
                result = Err(reason);
                continue;
            };
            if spi != last {
                (last, slot) = (spi, sad.slot_of(spi));
                reader.prefetch(slot);
            }
            self.heads.push(Head {
                packet,
                spi,
                slot,
                sequence_low,
                protocol: outer.protocol,
                tos: outer.tos,
            });
        }
        result
    }

    /// Finds the SAs of the packets.
    #[inline(always)]
    fn find(&mut self, sad: &Sad, reader: &mut SadReader, batch: &Batch, burst: &Burst<'_>) {
        self.runs.clear();
        let has_groups = sad.has_groups();
        let mut last = None;
        for (first, head) in self.heads.iter().enumerate() {
            // An SPI alone does not identify the SA of a group.
            if last == Some((head.spi, head.protocol)) && !has_groups {
                continue;
            }
            last = Some((head.spi, head.protocol));
            let group = match has_groups {
                true => find_group(sad, reader, batch, burst.outer(&head.packet), head),
                false => None,
            };
            self.runs.push(StageRun {
                first,
                sa: group
                    .unwrap_or_else(|| reader.find(sad, (head.slot, head.spi), head.sequence_low)),
                protocol: head.protocol,
            });
        }
    }

    /// Checks the packets and turns them into jobs. A packet that waits for its SA has an unknown SPI until then.
    #[inline(always)]
    fn prepare(
        &self,
        (sad, reader): (&Sad, &SadReader),
        (reports, early): (&mut Reports, &mut EarlyPackets),
        batch: &mut Batch,
        side: &mut InboundWalkState,
        burst: &Burst<'_>,
    ) -> Result<(), DropReason> {
        let mut result = Ok(());
        for (at, run) in self.runs.iter().enumerate() {
            let end = self
                .runs
                .get(at + 1)
                .map_or(self.heads.len(), |next| next.first);
            let heads = self.heads.get(run.first..end).unwrap_or_default();
            // Protocol and SPI identify the SA (RFC 4301 §4.1).
            let sa = reader.get(run.sa);
            let sa = sa.filter(|sa| sa.layout.protocol == run.protocol);
            // The SA may have come while packets before these wait for it. None overtakes them.
            let spi = heads.first().map_or(0, |head| head.spi);
            let is_behind = early.holds(spi);
            let Some(sa) = sa.filter(|_| !is_behind) else {
                let waits = is_behind
                    || sad.awaits(spi)
                    || sad
                        .lookup(spi)
                        .is_some_and(|sa| sa.layout.protocol == run.protocol);
                for head in heads {
                    if waits && let Some(lost) = hold_early(early, batch, burst, head) {
                        for lost in lost {
                            let EarlyPacket { spi, facts, .. } = &lost;
                            let name = (*spi, lost.sequence_low);
                            reports.drop_unknown(sad, name, facts, burst.now_ms);
                        }
                        continue;
                    }
                    let outer = burst.outer(&head.packet);
                    let name = (head.spi, head.sequence_low);
                    reports.drop_unknown(sad, name, outer, burst.now_ms);
                }
                result = Err(DropReason::UnknownSpi);
                continue;
            };
            let first_job = batch.jobs.len() as u32;
            let prepared = prepare_run(sa, run.sa.number, heads, reports, batch, side, burst);
            result = prepared.and(result);
            let jobs = batch.jobs.len() as u32 - first_job;
            match side.runs.last_mut() {
                Some(last) if last.sa == run.sa => last.jobs += jobs,
                _ if jobs > 0 => side.runs.push(InboundRun {
                    sa: run.sa,
                    first_job,
                    jobs,
                }),
                _ => {}
            }
        }
        result
    }
}

#[inline]
fn prepare_run(
    sa: &InboundSa,
    key: u32,
    heads: &[Head],
    reports: &mut Reports,
    batch: &mut Batch,
    side: &mut InboundWalkState,
    burst: &Burst<'_>,
) -> Result<(), DropReason> {
    let mut result = Ok(());
    let layout = &sa.layout;
    let expired = sa.common.lifetime.expired(burst.now_ms);
    let edges = sa.replay.edges();
    for head in heads {
        let saved = side.saved.len() as u32;
        let checked = if batch.jobs.len() >= burst.jobs_max {
            Err(DropReason::TooLong)
        } else if layout.protocol == Protocol::Esp && !layout.fits(head.packet.len as usize) {
            Err(DropReason::MalformedEsp)
        } else if expired {
            Err(DropReason::LifetimeExpired)
        } else {
            let sequence = sa.replay.check_between(edges, head.sequence_low);
            sequence.map_err(DropReason::from)
        };
        let job = checked.and_then(|sequence| {
            let (start, len, icv) = match layout.protocol {
                Protocol::Esp => (head.packet.offset, head.packet.len, 0),
                Protocol::Ah => {
                    let outer = burst.outer(&head.packet);
                    prepare_ah(sa, batch, &mut side.saved, outer, &head.packet)?
                }
            };
            Ok(Job {
                key,
                esp: start,
                len,
                icv,
                sequence,
                class: layout.class(head.tos),
                status: JobStatus::Pending,
            })
        });
        match job {
            Ok(job) => {
                batch.jobs.push(job);
                side.tags.push(Tag {
                    facts: burst.first_facts + head.packet.facts,
                    saved,
                });
            }
            Err(reason) => {
                let outer = burst.outer(&head.packet);
                reports.drop_packet(reason, sa, Some(head.sequence_low.into()), outer);
                result = Err(reason);
            }
        }
    }
    result
}

const NO_FACTS: OuterFacts = OuterFacts {
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    udp_encap: false,
    tos: 0,
    header_len: 0,
    protocol: Protocol::Esp,
};

fn malformed(protocol: Protocol) -> DropReason {
    match protocol {
        Protocol::Esp => DropReason::MalformedEsp,
        Protocol::Ah => DropReason::MalformedAh,
    }
}

/// Returns SPI and sequence number, or `None` if the packet is not in the arena or is too short.
#[inline]
fn clear_fields(batch: &Batch, protocol: Protocol, packet: &ReceivedPacket) -> Option<(u32, u32)> {
    let start = packet.offset as usize;
    let bytes = batch
        .buffer
        .get(start..start.checked_add(packet.len as usize)?)?;
    let at = match protocol {
        Protocol::Esp => 0,
        Protocol::Ah => 4,
    };
    let fields = u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    Some(((fields >> 32) as u32, fields as u32))
}

/// Copies a packet whose SA is still negotiated. Returns the packets for which there is no room.
#[cold]
fn hold_early(
    early: &mut EarlyPackets,
    batch: &Batch,
    burst: &Burst<'_>,
    head: &Head,
) -> Option<Vec<EarlyPacket>> {
    let ReceivedPacket { offset, len, .. } = head.packet;
    let facts = *burst.outer(&head.packet);
    let end = offset as usize + len as usize;
    let start = (offset as usize).checked_sub(facts.header_len.into());
    let packet = start.and_then(|start| batch.buffer.get(start..end));
    let packet = EarlyPacket {
        spi: head.spi,
        packet: packet?.to_vec(),
        facts,
        sequence_low: head.sequence_low,
        depth: burst.depth,
        since_ms: burst.now_ms,
    };
    Some(early.hold(packet))
}

/// Finds the SA of a packet to a multicast group, whose controller chooses the SPIs (RFC 4301 §4.1). The outer header
/// must be there.
fn find_group(
    sad: &Sad,
    reader: &mut SadReader,
    batch: &Batch,
    outer: &OuterFacts,
    head: &Head,
) -> Option<SaName> {
    let at = head.packet.offset as usize;
    let start = at.checked_sub(outer.header_len.into())?;
    let (source, destination) = batch.buffer.get(start..at).and_then(ends)?;
    if !destination.is_multicast() {
        return None;
    }
    let sa = sad.lookup_addressed(head.spi, destination, source)?;
    Some(reader.hold(sa))
}

/// Returns source and destination of an IP header.
fn ends(header: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 =
        |at: usize| -> Option<IpAddr> { Some((*header.get(at..)?.first_chunk::<4>()?).into()) };
    let v6 =
        |at: usize| -> Option<IpAddr> { Some((*header.get(at..)?.first_chunk::<16>()?).into()) };
    match IpVersion::of_packet(header)? {
        IpVersion::V4 => Some((v4(12)?, v4(16)?)),
        IpVersion::V6 => Some((v6(8)?, v6(24)?)),
    }
}

/// Checks an AH packet, and replaces the mutable fields by zeros while the engine works (RFC 4302 §3.4). Returns
/// offset and length of the engine's input, and the ICV's offset in it.
fn prepare_ah(
    sa: &InboundSa,
    batch: &mut Batch,
    saved: &mut Vec<u8>,
    outer: &OuterFacts,
    packet: &ReceivedPacket,
) -> Result<(u32, u32, u32), DropReason> {
    let at = usize::from(outer.header_len);
    let start = (packet.offset as usize).checked_sub(at);
    let end = packet.offset as usize + packet.len as usize;
    let frame = start
        .and_then(|start| batch.buffer.get_mut(start..end))
        .ok_or(DropReason::MalformedAh)?;
    let layout = &sa.layout;
    let version = IpVersion::of_packet(frame).ok_or(DropReason::MalformedAh)?;
    let expected = ah::header_len(version, layout.iv_len() + layout.icv_len());
    let header = frame.get(at..).and_then(AhHeader::parse);
    if header.is_none_or(|header| header.header_len != expected) {
        return Err(DropReason::MalformedAh);
    }
    let before = saved.len();
    match ah::zero_mutable(frame, saved) {
        Ok(found) if found == at => {}
        Ok(_) => {
            ah::restore(frame, saved.get(before..).unwrap_or_default());
            saved.truncate(before);
            return Err(DropReason::MalformedAh);
        }
        Err(_) => return Err(DropReason::MalformedAh),
    }
    let icv = at + ah::FIXED_LEN + layout.iv_len();
    Ok((
        packet.offset - at as u32,
        packet.len + at as u32,
        icv as u32,
    ))
}
