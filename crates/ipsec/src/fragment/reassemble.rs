//! Reassembly with bounds (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Overlapping fragments refuse their whole datagram, in IPv4 too (RFC 5722): a receiver that resolved the
//! overlap in another way than we do would see other ports than the policy was asked about.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::{Fragment, FragmentKey, payload_max};
use crate::wire::ip::{IPV6_HEADER_LEN, IpView, PROTOCOL_TCP};
use crate::wire::{IpVersion, checksum};

/// How much a reassembler holds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all unfinished datagrams, bookkeeping included.
    pub bytes: usize,
    /// Bytes of one source address.
    pub bytes_per_source: usize,
    /// Fragments of one datagram.
    pub fragments: usize,
    /// How long a datagram may take, from its first fragment seen.
    pub timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            bytes_per_source: 512 << 10,
            // 65,535 bytes through a path of 576.
            fragments: 120,
            timeout_ms: 30_000,
        }
    }
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Kept until the others come; the datagram that it completed is the caller's.
    Held,
    Whole(Vec<u8>),
    Refused(Refusal),
}

/// Why a fragment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No data, data before the end that is no multiple of 8, or data behind the end.
    Malformed,
    /// Overlaps another one, or belongs to a datagram that had an overlap (RFC 5722).
    Overlap,
    /// A first fragment without the ports, or a second one inside a TCP header (RFC 1858, RFC 3128, RFC 7112).
    Tiny,
    /// The datagram would be longer than IP can carry.
    TooLong,
    /// The datagram has too many fragments, or its source too many bytes here.
    Limit,
    /// Congestion was signalled to a flow that does not know the signal (RFC 3168 §5.3).
    Ecn,
}

/// Bytes that a datagram and each of its parts cost beside their data.
const DATAGRAM_COST: usize = 256;
const PART_COST: usize = 64;

#[derive(Debug)]
struct Part {
    offset: usize,
    data: Vec<u8>,
}

#[derive(Debug)]
struct Datagram {
    serial: u64,
    /// Headers of the first fragment, once it is here.
    head: Option<Head>,
    /// In order, without overlap.
    parts: Vec<Part>,
    received: usize,
    /// Known from the last fragment on.
    total: Option<usize>,
    /// One bit for each ECN value seen.
    ecn: u8,
    cost: usize,
    /// Had an overlap: what still comes is refused.
    refused: bool,
}

#[derive(Debug)]
struct Head {
    bytes: Vec<u8>,
    next_header_at: usize,
    next_header: u8,
}

/// Unfinished datagrams of one worker.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    /// SipHash with random keys: senders choose addresses and identifications.
    datagrams: HashMap<FragmentKey, Datagram>,
    sources: HashMap<IpAddr, usize>,
    /// Oldest first; finished datagrams stay in it for a while.
    deadlines: VecDeque<(u64, FragmentKey, u64)>,
    bytes: usize,
    serial: u64,
    /// Unfinished datagrams that were forgotten.
    given_up: usize,
}

impl Reassembler {
    pub fn new(limits: Limits) -> Self {
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

    /// Bytes held, bookkeeping included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets datagrams that took too long. Gives the number of those forgotten since the last call, for this reason
    /// or to make room.
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

    /// Takes one fragment of `packet`, from which `fragment` was parsed.
    pub fn push(&mut self, packet: &[u8], fragment: &Fragment, now_ms: u64) -> Pushed {
        self.forget_expired(now_ms);
        let Some(data) = packet.get(fragment.data.clone()) else {
            return Pushed::Refused(Refusal::Malformed);
        };
        if let Err(refusal) = check(packet, fragment, data) {
            return Pushed::Refused(refusal);
        }
        if fragment.is_atomic() {
            // On its own, whatever else has its identification (RFC 6946 §4).
            let head = Head::new(packet, fragment);
            let whole = head.and_then(|head| head.build(data.len(), [data].into_iter(), 0));
            return whole.map_or(Pushed::Refused(Refusal::Malformed), delivered);
        }
        match self.insert(packet, fragment, data, now_ms) {
            Ok(false) => Pushed::Held,
            Ok(true) => self.finish(&fragment.key),
            Err(refusal) => Pushed::Refused(refusal),
        }
    }

    /// True once everything is there.
    fn insert(
        &mut self,
        packet: &[u8],
        fragment: &Fragment,
        data: &[u8],
        now_ms: u64,
    ) -> Result<bool, Refusal> {
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
            return Err(Refusal::Limit);
        }
        if is_new {
            self.serial += 1;
            let datagram = Datagram {
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
            return Err(Refusal::Limit);
        };
        match datagram.insert(packet, fragment, data, fragments_max) {
            Ok(Inserted::Duplicate) => return Ok(false),
            Ok(Inserted::New) => {}
            Err(refusal) => {
                if refusal == Refusal::Overlap {
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
            return Pushed::Refused(Refusal::Limit);
        };
        const NOT_ECT: u8 = 1 << 0;
        const CE: u8 = 1 << 3;
        let mark = match datagram.ecn {
            ecn if ecn & CE != 0 && ecn & NOT_ECT != 0 => return Pushed::Refused(Refusal::Ecn),
            ecn if ecn & CE != 0 => 3,
            _ => 0,
        };
        let parts = datagram.parts.iter().map(|part| &part.data[..]);
        let whole = datagram
            .head
            .and_then(|head| head.build(datagram.received, parts, mark));
        whole.map_or(Pushed::Refused(Refusal::TooLong), delivered)
    }

    /// Keeps only what refuses the rest of a datagram.
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

    fn remove(&mut self, key: &FragmentKey) -> Option<Datagram> {
        let datagram = self.datagrams.remove(key)?;
        self.release(&key.source, datagram.cost);
        // Finished datagrams must not pile up in the queue of deadlines.
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
        // Of a refused datagram every fragment was answered for.
        self.given_up += usize::from(!datagram.refused);
        self.remove(key);
    }

    /// Gives up the oldest datagrams, but not `keep`, until the limit is kept.
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

/// A second fragment header in an IPv6 packet would make what was put together a fragment again, whose ports nobody
/// knows. No sender writes one (RFC 8200 §4.1).
fn delivered(whole: Vec<u8>) -> Pushed {
    match IpView::parse(&whole) {
        Ok(view) if !view.fragment => Pushed::Whole(whole),
        _ => Pushed::Refused(Refusal::Malformed),
    }
}

enum Inserted {
    New,
    /// The very same fragment again, which networks do (RFC 8200 §4.5).
    Duplicate,
}

impl Datagram {
    fn insert(
        &mut self,
        packet: &[u8],
        fragment: &Fragment,
        data: &[u8],
        fragments_max: usize,
    ) -> Result<Inserted, Refusal> {
        if self.refused {
            return Err(Refusal::Overlap);
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
        // Two ends, or data behind the end, are a contradiction of the same kind.
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
            return Err(Refusal::Overlap);
        }
        if self.parts.len() >= fragments_max {
            return Err(Refusal::Limit);
        }
        if start == 0 {
            self.head = Some(Head::new(packet, fragment).ok_or(Refusal::Malformed)?);
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

    /// The whole packet; `mark` is or-ed into its ECN field.
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
            // Without DF: its sender let it be fragmented.
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

/// Everything that one fragment tells by itself.
pub(super) fn check(packet: &[u8], fragment: &Fragment, data: &[u8]) -> Result<(), Refusal> {
    let version = match fragment.key.source {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    };
    if (data.is_empty() && !fragment.is_atomic())
        || (fragment.more && !data.len().is_multiple_of(8))
    {
        return Err(Refusal::Malformed);
    }
    if fragment.offset + data.len() > payload_max(version, fragment.unfragmentable_len) {
        return Err(Refusal::TooLong);
    }
    // The TCP flags must come with the ports (RFC 1858 §3, RFC 3128).
    if fragment.next_header == PROTOCOL_TCP && (1..16).contains(&fragment.offset) {
        return Err(Refusal::Tiny);
    }
    if fragment.offset == 0 && fragment.more {
        let view = IpView::parse(packet).map_err(|_| Refusal::Tiny)?;
        let upper_len = view.total_len.saturating_sub(view.upper);
        let needed = if view.protocol == PROTOCOL_TCP { 16 } else { 8 };
        if upper_len < needed {
            return Err(Refusal::Tiny);
        }
    }
    Ok(())
}
