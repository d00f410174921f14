//! The first half: from bytes in the arena to jobs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use esplanade_crypto::{Batch, Job, JobStatus, Protocol};

use super::Inbound;
use super::opened::{Facts, Run, Side, Tag};
use crate::drop_reason::DropReason;
use crate::replay::ReplayError;
use crate::sa::InboundSa;
use crate::sad::{Sad, SadReader};
use crate::tunnel::OuterFacts;
use crate::wire::IpVersion;
use crate::wire::ah::{self, AhHeader};

/// A received packet in the arena, from ESP or AH on.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub offset: u32,
    pub len: u32,
    /// Its outer header: an index into the burst's facts.
    pub facts: u32,
}

/// Packets that go through the steps together, so that their cache misses overlap.
const STAGE: usize = 64;

/// The fields in the clear and what was found by them.
#[derive(Clone, Copy)]
struct Head {
    spi: u32,
    sequence_low: u32,
    /// Index into [`Side::sas`], or one of the following.
    sa: u32,
    /// A hard limit of the SA is reached.
    expired: bool,
}

const NO_SA: u32 = u32::MAX;
/// Too short for an SPI and a sequence number.
const MALFORMED: u32 = u32::MAX - 1;
const WANTS_ESP: u32 = u32::MAX - 2;
const WANTS_AH: u32 = u32::MAX - 3;

impl From<ReplayError> for DropReason {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Replayed => Self::Replayed,
            ReplayError::BeforeWindow => Self::BeforeWindow,
        }
    }
}

impl Inbound {
    /// Takes one packet, ESP or AH to its end, that lies in the arena at `offset`. Packets must not overlap.
    /// A drop is counted already.
    pub fn push(
        &mut self,
        sad: &Sad,
        offset: usize,
        len: usize,
        facts: &OuterFacts,
    ) -> Result<(), DropReason> {
        self.counters.count_in(1, len as u64);
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
            self.drop_packet(DropReason::TooLong, None, None, facts);
            return Err(DropReason::TooLong);
        };
        let received = Received {
            offset,
            len,
            facts: 0,
        };
        self.stage(sad, std::slice::from_ref(facts), depth, &[received])
    }

    /// Takes packets that lie in the arena and must not overlap, in order. Drops are counted.
    pub fn push_burst(&mut self, sad: &Sad, facts: &[OuterFacts], packets: &[Received]) {
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.len)).sum();
        self.counters.count_in(packets.len() as u64, bytes);
        for stage in packets.chunks(STAGE) {
            // Drops are counted there.
            let _ = self.stage(sad, facts, 0, stage);
        }
    }

    /// Gives the last drop's reason.
    fn stage(
        &mut self,
        sad: &Sad,
        facts: &[OuterFacts],
        depth: u8,
        packets: &[Received],
    ) -> Result<(), DropReason> {
        let Some((mut batch, mut side)) = self.batches.filling.take() else {
            for packet in packets {
                let facts = facts.get(packet.facts as usize).unwrap_or(&NO_FACTS);
                self.drop_packet(DropReason::TooLong, None, None, facts);
            }
            return Err(DropReason::TooLong);
        };
        let facts_base = side.facts.len() as u32;
        let outer = facts.iter().map(|&outer| Facts { outer, depth });
        side.facts.extend(outer);
        let mut heads = [NO_HEAD; STAGE];
        let heads = heads.get_mut(..packets.len()).unwrap_or_default();
        parse_heads(&batch, facts, packets, heads);
        self.reader.refresh(sad);
        if sad.has_groups() {
            look_up_groups(sad, &batch, facts, packets, &mut side, heads);
        }
        fetch(sad, &mut self.reader, heads);
        look_up(sad, &mut self.reader, &mut side, heads);
        let mut result = Ok(());
        // Of the SA of the packet before: its limits are looked at once per run.
        let (mut last, mut expired) = (NO_SA, false);
        for (packet, head) in packets.iter().zip(heads) {
            if head.sa != last {
                last = head.sa;
                let sa = side.sas.get(last as usize);
                expired = sa.is_some_and(|sa| sa.common.lifetime.expired(self.now_ms));
            }
            head.expired = expired;
            let outer = facts.get(packet.facts as usize).unwrap_or(&NO_FACTS);
            let tag = Tag {
                facts: facts_base + packet.facts,
                saved: side.saved.len() as u32,
            };
            let prepared = self.prepare(&mut batch, &mut side, packet, head, outer, tag);
            if let Err(reason) = prepared {
                result = Err(reason);
                let sa = side.sas.get(head.sa as usize).map(Arc::as_ref);
                if let Some(sa) = sa {
                    sa.common.drops.add(reason, 1);
                }
                let spi = (head.sa != MALFORMED).then_some(head.spi);
                let sequence = u64::from(head.sequence_low);
                self.drop_of(reason, spi, spi.map(|_| sequence), outer);
            }
        }
        self.batches.filling = Some((batch, side));
        result
    }

    #[inline]
    fn prepare(
        &mut self,
        batch: &mut Batch,
        side: &mut Side,
        packet: &Received,
        head: &Head,
        outer: &OuterFacts,
        tag: Tag,
    ) -> Result<(), DropReason> {
        if batch.jobs.len() >= self.limits.jobs_max {
            return Err(DropReason::TooLong);
        }
        let Some(sa) = side.sas.get(head.sa as usize) else {
            return Err(match (head.sa, outer.protocol) {
                (NO_SA, _) => DropReason::UnknownSpi,
                (_, Protocol::Esp) => DropReason::MalformedEsp,
                (_, Protocol::Ah) => DropReason::MalformedAh,
            });
        };
        let layout = &sa.common.layout;
        let len = packet.len as usize;
        if layout.protocol == Protocol::Esp && !layout.fits(len) {
            return Err(DropReason::MalformedEsp);
        }
        if head.expired {
            return Err(DropReason::LifetimeExpired);
        }
        let sequence = sa.replay.check(head.sequence_low)?;
        let range = match layout.protocol {
            Protocol::Esp => Range {
                start: packet.offset,
                len: packet.len,
                icv: 0,
            },
            Protocol::Ah => prepare_ah(sa, batch, &mut side.saved, outer, packet)?,
        };
        let key = batch.add_key(&sa.common.key);
        let index = batch.jobs.len() as u32;
        batch.jobs.push(Job {
            key,
            esp: range.start,
            len: range.len,
            icv: range.icv,
            sequence,
            class: layout.class(outer.tos),
            status: JobStatus::Pending,
        });
        side.tags.push(tag);
        match side.runs.last_mut() {
            Some(run) if run.sa == head.sa => run.jobs += 1,
            _ => side.runs.push(Run {
                sa: head.sa,
                first_job: index,
                jobs: 1,
            }),
        }
        Ok(())
    }
}

const NO_HEAD: Head = Head {
    spi: 0,
    sequence_low: 0,
    sa: MALFORMED,
    expired: false,
};

const NO_FACTS: OuterFacts = OuterFacts {
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    udp_encap: false,
    tos: 0,
    header_len: 0,
    protocol: Protocol::Esp,
};

fn parse_heads(batch: &Batch, facts: &[OuterFacts], packets: &[Received], heads: &mut [Head]) {
    for (packet, head) in packets.iter().zip(heads) {
        let start = packet.offset as usize;
        let bytes = start
            .checked_add(packet.len as usize)
            .and_then(|end| batch.buffer.get(start..end));
        let ah = facts
            .get(packet.facts as usize)
            .is_some_and(|facts| facts.protocol == Protocol::Ah);
        let fields = bytes.and_then(|bytes| bytes.get(if ah { 4 } else { 0 }..));
        if let Some(fields) = fields.and_then(|fields| fields.first_chunk::<8>()) {
            let fields = u64::from_be_bytes(*fields);
            *head = Head {
                spi: (fields >> 32) as u32,
                sequence_low: fields as u32,
                // An SPI alone does not say the protocol: see `look_up`.
                sa: if ah { WANTS_AH } else { WANTS_ESP },
                expired: false,
            };
        }
    }
}

/// Has the processor fetch what the next steps need of each SA, all at once: they have locked instructions, and those
/// would wait one for the other's memory.
fn fetch(sad: &Sad, reader: &mut SadReader, heads: &[Head]) {
    let mut last = 0;
    for head in heads {
        if head.spi != last {
            reader.prefetch(head.spi);
        }
        last = head.spi;
    }
    last = 0;
    for head in heads {
        if head.spi != last
            && let Some(sa) = reader.lookup(sad, head.spi)
        {
            sa.replay.prefetch(head.sequence_low);
            sa.common.prefetch_key();
        }
        last = head.spi;
    }
}

/// Finds the SAs of packets to groups, whose controllers choose the SPIs (RFC 4301 §4.1). The outer header must be
/// there.
fn look_up_groups(
    sad: &Sad,
    batch: &Batch,
    facts: &[OuterFacts],
    packets: &[Received],
    side: &mut Side,
    heads: &mut [Head],
) {
    for (packet, head) in packets.iter().zip(heads) {
        let protocol = match head.sa {
            WANTS_AH => Protocol::Ah,
            WANTS_ESP => Protocol::Esp,
            _ => continue,
        };
        let at = packet.offset as usize;
        let outer = facts.get(packet.facts as usize);
        let header = outer
            .filter(|outer| outer.header_len > 0)
            .and_then(|outer| at.checked_sub(outer.header_len.into()))
            .and_then(|start| batch.buffer.get(start..at));
        let Some((source, destination)) = header.and_then(ends) else {
            continue;
        };
        if !destination.is_multicast() {
            continue;
        }
        let found = sad.lookup_addressed(head.spi, destination, source);
        head.sa = match found.filter(|sa| sa.common.layout.protocol == protocol) {
            Some(sa) => {
                side.sas.push(sa);
                (side.sas.len() - 1) as u32
            }
            None => NO_SA,
        };
    }
}

/// Source and destination of an IP header.
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

/// Finds each packet's SA. Packets of one SA come in runs, and a run keeps to one snapshot of the SA.
fn look_up(sad: &Sad, reader: &mut SadReader, side: &mut Side, heads: &mut [Head]) {
    // Not an SA of a group, which may have the same SPI.
    let mut last: Option<u32> = None;
    for head in heads {
        let protocol = match head.sa {
            WANTS_AH => Protocol::Ah,
            WANTS_ESP => Protocol::Esp,
            _ => continue,
        };
        let known = last.filter(|last| {
            let sa = side.sas.get(*last as usize);
            sa.is_some_and(|sa| sa.common.spi == head.spi)
        });
        let index = known.unwrap_or_else(|| match reader.lookup(sad, head.spi) {
            Some(sa) => {
                side.sas.push(Arc::clone(sa));
                (side.sas.len() - 1) as u32
            }
            None => NO_SA,
        });
        // Protocol and SPI name the SA (RFC 4301 §4.1).
        head.sa = match side.sas.get(index as usize) {
            Some(sa) if sa.common.layout.protocol == protocol => index,
            _ => NO_SA,
        };
        last = Some(index);
    }
}

/// What the engine is given.
struct Range {
    start: u32,
    len: u32,
    icv: u32,
}

/// Checks an AH and takes the mutable fields away while the engine works (RFC 4302 §3.4).
fn prepare_ah(
    sa: &InboundSa,
    batch: &mut Batch,
    saved: &mut Vec<u8>,
    outer: &OuterFacts,
    packet: &Received,
) -> Result<Range, DropReason> {
    let at = usize::from(outer.header_len);
    let start = (packet.offset as usize).checked_sub(at);
    let end = packet.offset as usize + packet.len as usize;
    let frame = start
        .and_then(|start| batch.buffer.get_mut(start..end))
        .ok_or(DropReason::MalformedAh)?;
    let layout = &sa.common.layout;
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
    Ok(Range {
        start: packet.offset - at as u32,
        len: packet.len + at as u32,
        icv: (at + ah::FIXED_LEN + layout.iv_len()) as u32,
    })
}
