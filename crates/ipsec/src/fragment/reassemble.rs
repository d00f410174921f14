//! Reassembly with bounds (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! An overlap makes the whole datagram refused, in IPv4 too (RFC 5722). A receiver that resolves the overlap
//! differently would see other ports than the policy was asked about.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::{Fragment, FragmentKey, payload_max};
use crate::wire::ip::{IPV6_HEADER_LEN, IpView, PROTOCOL_TCP};
use crate::wire::{IpVersion, checksum};

/// Bounds of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyLimits {
    /// Bytes of all unfinished datagrams, bookkeeping included.
    pub bytes: usize,
    /// Bytes of unfinished datagrams of one source address.
    pub bytes_per_source: usize,
    /// Fragments of one datagram.
    pub fragments: usize,
    /// Time limit for a datagram, counted from the first fragment that was seen.
    pub timeout_ms: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            bytes_per_source: 512 << 10,
            // This many fragments carry 65,535 bytes over a path with an MTU of 576 bytes.
            fragments: 120,
            timeout_ms: 30_000,
        }
    }
}

/// The result of pushing a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The fragment is kept until the others come.
    Held,
    /// The fragment completed its datagram, which is handed to the caller.
    Whole(Vec<u8>),
    Refused(FragmentRefusal),
}

/// The reason why a fragment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentRefusal {
    /// The fragment has no data, or its data is no multiple of 8 although more follow.
    Malformed,
    /// The fragment overlaps another one, or its datagram had an overlap (RFC 5722).
    Overlap,
    /// A first fragment lacks the ports, or a later one lies inside a TCP header (RFC 1858, RFC 3128, RFC 7112).
    Tiny,
    /// The datagram would be longer than IP can carry.
    TooLong,
    /// The datagram has too many fragments, or its source too many bytes in this reassembler.
    Limit,
    /// Congestion was signalled to a flow that does not support ECN (RFC 3168 §5.3).
    Ecn,
}

/// Bytes that a datagram costs beside its data.
const DATAGRAM_COST: usize = 256;
/// Bytes that a fragment costs beside its data.
const PART_COST: usize = 64;

#[derive(Debug)]
struct Part {
    offset: usize,
    data: Vec<u8>,
}

#[derive(Debug)]
struct PartialDatagram {
    serial: u64,
    /// The headers of the first fragment, once it has come.
    head: Option<Head>,
    /// The fragments' data, sorted by offset and without overlap.
    parts: Vec<Part>,
    received: usize,
    /// The length of the whole data, once the last fragment has come.
    total: Option<usize>,
    /// A mask with one bit for each ECN value that was seen.
    ecn: u8,
    cost: usize,
    /// True if the datagram had an overlap. All of its further fragments are refused.
    refused: bool,
}

#[derive(Debug)]
struct Head {
    bytes: Vec<u8>,
    next_header_at: usize,
    next_header: u8,
}

/// The unfinished datagrams of one worker.
#[derive(Debug)]
pub struct Reassembler {
    limits: ReassemblyLimits,
    /// The hash is SipHash with random keys, because senders choose addresses and identifications.
    datagrams: HashMap<FragmentKey, PartialDatagram>,
    sources: HashMap<IpAddr, usize>,
    /// Deadline, key and serial of each datagram, the oldest first. Finished datagrams stay here for a while.
    deadlines: VecDeque<(u64, FragmentKey, u64)>,
    bytes: usize,
    serial: u64,
    /// Number of unfinished datagrams that were forgotten since the last report.
    given_up: usize,
}

impl Reassembler {
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self {
            limits,
            datagrams: HashMap::new(),
            sources: HashMap::new(),
            deadlines: VecDeque::new(),
            bytes: 0,
            serial: 0,
            given_up: 0,
        }
    }

    /// Bytes that are held, bookkeeping included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets datagrams that took too long. Returns the number of datagrams forgotten since the last call, for this
    /// reason or to make room.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        self.forget_expired(now_ms);
        std::mem::take(&mut self.given_up)
    }

    fn forget_expired(&mut self, now_ms: u64) {
        while let Some(&(deadline_ms, key, serial)) = self.deadlines.front() {
            if deadline_ms > now_ms {
                break;
            }
            self.deadlines.pop_front();
            self.give_up(&key, serial);
        }
    }

    /// Takes one fragment, which must have been parsed from `packet`.
    pub fn push(&mut self, packet: &[u8], fragment: &Fragment, now_ms: u64) -> Pushed {
        self.forget_expired(now_ms);
        let Some(data) = packet.get(fragment.data.clone()) else {
            return Pushed::Refused(FragmentRefusal::Malformed);
        };
        if let Err(refusal) = check(packet, fragment, data) {
            return Pushed::Refused(refusal);
        }
        if fragment.is_atomic() {
            // An atomic fragment stands alone, whatever other fragments have its identification (RFC 6946 §4).
            let head = Head::new(packet, fragment);
            let whole = head.and_then(|head| head.build(data.len(), [data].into_iter(), 0));
            return whole.map_or(Pushed::Refused(FragmentRefusal::Malformed), delivered);
        }
        match self.insert(packet, fragment, data, now_ms) {
            Ok(false) => Pushed::Held,
            Ok(true) => self.finish(&fragment.key),
            Err(refusal) => Pushed::Refused(refusal),
        }
    }

    /// Adds a fragment. Returns whether the datagram is complete.
    fn insert(
        &mut self,
        packet: &[u8],
        fragment: &Fragment,
        data: &[u8],
        now_ms: u64,
    ) -> Result<bool, FragmentRefusal> {
        let key = fragment.key;
        let is_new = !self.datagrams.contains_key(&key);
        let head_len = if fragment.offset == 0 {
            fragment.unfragmentable_len
        } else {
            0
        };
        let cost = data.len() + head_len + PART_COST + if is_new { DATAGRAM_COST } else { 0 };
        let of_source = self.sources.get(&key.source).copied().unwrap_or(0);
        if of_source + cost > self.limits.bytes_per_source || cost > self.limits.bytes {
            return Err(FragmentRefusal::Limit);
        }
        if is_new {
            self.serial += 1;
            let datagram = PartialDatagram {
                serial: self.serial,
                head: None,
                parts: Vec::new(),
                received: 0,
                total: None,
                ecn: 0,
                cost: 0,
                refused: false,
            };
            self.datagrams.insert(key, datagram);
            let deadline_ms = now_ms.saturating_add(self.limits.timeout_ms);
            self.deadlines.push_back((deadline_ms, key, self.serial));
            self.charge(&key, DATAGRAM_COST);
        }
        let fragments_max = self.limits.fragments;
        let Some(datagram) = self.datagrams.get_mut(&key) else {
            return Err(FragmentRefusal::Limit);
        };
        match datagram.insert(packet, fragment, data, fragments_max) {
            Ok(Inserted::Duplicate) => return Ok(false),
            Ok(Inserted::New) => {}
            Err(refusal) => {
                if refusal == FragmentRefusal::Overlap {
                    self.refuse(&key);
                }
                return Err(refusal);
            }
        }
        let complete = datagram.total == Some(datagram.received) && datagram.head.is_some();
        self.charge(&key, data.len() + head_len + PART_COST);
        self.make_room(&key);
        Ok(complete)
    }

    fn finish(&mut self, key: &FragmentKey) -> Pushed {
        let Some(datagram) = self.remove(key) else {
            return Pushed::Refused(FragmentRefusal::Limit);
        };
        const NOT_ECT: u8 = 1 << 0;
        const CE: u8 = 1 << 3;
        let mark = match datagram.ecn {
            ecn if ecn & CE != 0 && ecn & NOT_ECT != 0 => {
                return Pushed::Refused(FragmentRefusal::Ecn);
            }
            ecn if ecn & CE != 0 => 3,
            _ => 0,
        };
        let parts = datagram.parts.iter().map(|part| &part.data[..]);
        let whole = datagram
            .head
            .and_then(|head| head.build(datagram.received, parts, mark));
        whole.map_or(Pushed::Refused(FragmentRefusal::TooLong), delivered)
    }

    /// Drops the data of a datagram, and keeps only the mark that refuses its further fragments.
    fn refuse(&mut self, key: &FragmentKey) {
        let Some(datagram) = self.datagrams.get_mut(key) else {
            return;
        };
        datagram.refused = true;
        datagram.parts = Vec::new();
        datagram.head = None;
        let freed = datagram.cost - DATAGRAM_COST;
        datagram.cost = DATAGRAM_COST;
        self.release(&key.source, freed);
    }

    fn charge(&mut self, key: &FragmentKey, cost: usize) {
        if let Some(datagram) = self.datagrams.get_mut(key) {
            datagram.cost += cost;
            self.bytes += cost;
            *self.sources.entry(key.source).or_default() += cost;
        }
    }

    fn release(&mut self, source: &IpAddr, cost: usize) {
        self.bytes -= cost;
        if let Some(bytes) = self.sources.get_mut(source) {
            *bytes -= cost;
            if *bytes == 0 {
                self.sources.remove(source);
            }
        }
    }

    fn remove(&mut self, key: &FragmentKey) -> Option<PartialDatagram> {
        let datagram = self.datagrams.remove(key)?;
        self.release(&key.source, datagram.cost);
        // Finished datagrams must not accumulate in the queue of deadlines.
        if self.deadlines.len() > 2 * self.datagrams.len() + 64 {
            let datagrams = &self.datagrams;
            self.deadlines
                .retain(|(_, key, serial)| datagrams.get(key).is_some_and(|d| d.serial == *serial));
        }
        Some(datagram)
    }

    fn give_up(&mut self, key: &FragmentKey, serial: u64) {
        let live = self.datagrams.get(key);
        let Some(datagram) = live.filter(|datagram| datagram.serial == serial) else {
            return;
        };
        // Every fragment of a refused datagram has been counted already.
        self.given_up += usize::from(!datagram.refused);
        self.remove(key);
    }

    /// Gives up the oldest datagrams, except `keep`, until the byte limit holds.
    fn make_room(&mut self, keep: &FragmentKey) {
        let mut kept = None;
        while self.bytes > self.limits.bytes {
            let Some(oldest) = self.deadlines.pop_front() else {
                break;
            };
            if oldest.1 == *keep
                && self
                    .datagrams
                    .get(keep)
                    .is_some_and(|d| d.serial == oldest.2)
            {
                kept = Some(oldest);
            } else {
                self.give_up(&oldest.1, oldest.2);
            }
        }
        if let Some(kept) = kept {
            self.deadlines.push_front(kept);
        }
    }
}

/// Hands out a reassembled packet. A second fragment header in an IPv6 packet would make the result a fragment again,
/// whose ports are unknown. No conforming sender writes one (RFC 8200 §4.1), so such a packet is refused.
fn delivered(whole: Vec<u8>) -> Pushed {
    match IpView::parse(&whole) {
        Ok(view) if !view.fragment => Pushed::Whole(whole),
        _ => Pushed::Refused(FragmentRefusal::Malformed),
    }
}

enum Inserted {
    New,
    /// An exact copy of a fragment that came before. Networks may duplicate packets (RFC 8200 §4.5).
    Duplicate,
}

impl PartialDatagram {
    fn insert(
        &mut self,
        packet: &[u8],
        fragment: &Fragment,
        data: &[u8],
        fragments_max: usize,
    ) -> Result<Inserted, FragmentRefusal> {
        if self.refused {
            return Err(FragmentRefusal::Overlap);
        }
        let (start, end) = (fragment.offset, fragment.offset + data.len());
        let index = self.parts.partition_point(|part| part.offset < start);
        if let Some(same) = self.parts.get(index)
            && same.offset == start
            && same.data == data
            && fragment.more == (self.total != Some(end))
        {
            return Ok(Inserted::Duplicate);
        }
        let before = index
            .checked_sub(1)
            .and_then(|before| self.parts.get(before));
        let overlaps_before = before.is_some_and(|part| part.offset + part.data.len() > start);
        let overlaps_behind = self.parts.get(index).is_some_and(|part| part.offset < end);
        // A second end, or data behind the end, contradicts like an overlap.
        let last_end = self
            .parts
            .last()
            .map_or(0, |part| part.offset + part.data.len());
        let contradicts = match (self.total, fragment.more) {
            (Some(total), true) => end >= total,
            (Some(_), false) => true,
            (None, false) => end < last_end,
            (None, true) => false,
        };
        if overlaps_before || overlaps_behind || contradicts {
            return Err(FragmentRefusal::Overlap);
        }
        if self.parts.len() >= fragments_max {
            return Err(FragmentRefusal::Limit);
        }
        if start == 0 {
            self.head = Some(Head::new(packet, fragment).ok_or(FragmentRefusal::Malformed)?);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        self.received += data.len();
        self.ecn |= 1 << (fragment.ecn & 3);
        let data = data.to_vec();
        let part = Part {
            offset: start,
            data,
        };
        self.parts.insert(index, part);
        Ok(Inserted::New)
    }
}

impl Head {
    fn new(packet: &[u8], fragment: &Fragment) -> Option<Self> {
        Some(Self {
            bytes: packet.get(..fragment.unfragmentable_len)?.to_vec(),
            next_header_at: fragment.next_header_at,
            next_header: fragment.next_header,
        })
    }

    /// Builds the whole packet. `mark` is OR-ed into its ECN field.
    fn build<'a>(
        self,
        len: usize,
        parts: impl Iterator<Item = &'a [u8]>,
        mark: u8,
    ) -> Option<Vec<u8>> {
        let mut packet = self.bytes;
        *packet.get_mut(self.next_header_at)? = self.next_header;
        let head_len = packet.len();
        packet.reserve_exact(len);
        parts.for_each(|part| packet.extend_from_slice(part));
        let header = packet.get_mut(..head_len)?;
        if header.first()? >> 4 == 4 {
            let total = u16::try_from(head_len + len).ok()?;
            header.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
            header[1] |= mark;
            // DF is cleared, because the sender allowed fragmentation.
            header.get_mut(6..8)?.fill(0);
            header.get_mut(10..12)?.fill(0);
            let sum = checksum::fold(checksum::sum(0, header));
            header.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        } else {
            let payload = u16::try_from(head_len + len - IPV6_HEADER_LEN).ok()?;
            header
                .get_mut(4..6)?
                .copy_from_slice(&payload.to_be_bytes());
            header[1] |= mark << 4;
        }
        Some(packet)
    }
}

/// Checks all that can be checked about one fragment alone.
pub(super) fn check(
    packet: &[u8],
    fragment: &Fragment,
    data: &[u8],
) -> Result<(), FragmentRefusal> {
    let version = match fragment.key.source {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    };
    if (data.is_empty() && !fragment.is_atomic())
        || (fragment.more && !data.len().is_multiple_of(8))
    {
        return Err(FragmentRefusal::Malformed);
    }
    if fragment.offset + data.len() > payload_max(version, fragment.unfragmentable_len) {
        return Err(FragmentRefusal::TooLong);
    }
    // The TCP flags must be in the fragment that has the ports (RFC 1858 §3, RFC 3128).
    if fragment.next_header == PROTOCOL_TCP && (1..16).contains(&fragment.offset) {
        return Err(FragmentRefusal::Tiny);
    }
    if fragment.offset == 0 && fragment.more {
        let view = IpView::parse(packet).map_err(|_| FragmentRefusal::Tiny)?;
        let upper_len = view.total_len.saturating_sub(view.upper);
        let needed = if view.protocol == PROTOCOL_TCP { 16 } else { 8 };
        if upper_len < needed {
            return Err(FragmentRefusal::Tiny);
        }
    }
    Ok(())
}
