//! Coalesces the packets of one burst. Consecutive TCP segments of a flow, or UDP datagrams of
//! equal length, become one super-segment, which the kernel's stack handles once. Payloads are not
//! copied: the write gathers them.
//!
//! A super-segment reaches the kernel with an unfinished checksum. So the checksum of every packet
//! is verified before it joins: a damaged packet is written alone and unchanged, and its receiver
//! rejects it. The rules of merging are those of the kernel's GRO (net/ipv4/tcp_offload.c,
//! udp_offload.c). If the kernel splits the super-segment again, the original packets result.

use std::io::IoSlice;

use esplanade_ipsec::inbound::OpenedBatch;
use esplanade_ipsec::wire::{FixedHeader, IpVersion};

use super::checksum::{fold, length_term, pseudo_header, sum};
use super::virtio::{GsoKind, VnetHeader};

const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
const TCP_ECE: u8 = 0x40;

/// Most segments of a super-segment. This is the limit of older kernels for UDP (UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: u16 = 64;
/// Most bytes of a super-segment, which is one IP packet.
const LENGTH_MAX: usize = 65_535;
/// The number of newest groups that are searched for a packet's flow.
const OPEN_GROUPS: usize = 8;
const NONE: u32 = u32::MAX;

/// The header fields of a packet that decide whether it can join others.
#[derive(Debug, Clone, Copy)]
struct FlowHeaders {
    v4: bool,
    protocol: u8,
    transport: usize,
    headers: usize,
    sequence: u32,
    push: bool,
    /// The packet may start a super-segment or join one.
    mergeable: bool,
}

/// The packets of a burst in order of arrival. Each is an IP packet without padding.
pub trait Packets {
    fn packet(&self, index: usize) -> &[u8];
    fn packet_mut(&mut self, index: usize) -> &mut [u8];
}

impl Packets for OpenedBatch {
    fn packet(&self, index: usize) -> &[u8] {
        self.delivered()
            .get(index)
            .map_or(&[], |delivered| self.packet(delivered))
    }

    fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        match self.delivered().get(index).copied() {
            Some(delivered) => self.packet_mut(&delivered),
            None => &mut [],
        }
    }
}

/// An element of the linked list of a group's packets.
#[derive(Debug, Clone, Copy)]
struct PacketLink {
    packet: u32,
    next: u32,
}

/// Packets that are written together, in order of arrival.
#[derive(Debug)]
struct PacketGroup {
    first: u32,
    last: u32,
    count: u16,
    view: Option<FlowHeaders>,
    /// Payload bytes of every segment except the last.
    segment: usize,
    /// Length of the super-segment in bytes.
    length: usize,
    next_sequence: u32,
    /// The checksum of the first packet was verified.
    verified: bool,
    closed: bool,
}

/// Collects the packets of a burst. [`Coalescer::flush`] writes them.
#[derive(Debug)]
pub struct Coalescer {
    udp: bool,
    links: Vec<PacketLink>,
    groups: Vec<PacketGroup>,
}

impl Coalescer {
    /// Creates an empty coalescer. `udp` means that the TUN device accepts UDP super-segments.
    pub fn new(udp: bool) -> Self {
        Self {
            udp,
            links: Vec::new(),
            groups: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Adds packet `index` of the burst.
    pub fn push(&mut self, packets: &impl Packets, index: usize) {
        let bytes = packets.packet(index);
        let view = parse(bytes);
        if let Some(view) = view
            && let Some(found) = self.find(packets, bytes, &view)
        {
            if self.append(packets, found, index, &view) {
                return;
            }
            // The packet starts a new group. Close the old group of the flow, so that no later
            // packet overtakes this one.
            self.groups[found].closed = true;
        }
        if view.is_none() {
            // The flow of this packet is unknown; it may be a fragment. Close the open groups, so
            // that no later packet overtakes it.
            let newest = self.groups.len().saturating_sub(OPEN_GROUPS);
            self.groups[newest..]
                .iter_mut()
                .for_each(|group| group.closed = true);
        }
        let link = self.add_link(index);
        let len = bytes.len();
        let segment = view.map_or(0, |view| len - view.headers);
        self.groups.push(PacketGroup {
            first: link,
            last: link,
            count: 1,
            view,
            segment,
            length: len,
            next_sequence: view.map_or(0, |view| view.sequence.wrapping_add(segment as u32)),
            verified: false,
            closed: view.is_none_or(|view| {
                !view.mergeable || view.push || (view.protocol == UDP && !self.udp)
            }),
        });
    }

    fn add_link(&mut self, packet: usize) -> u32 {
        self.links.push(PacketLink {
            packet: packet as u32,
            next: NONE,
        });
        (self.links.len() - 1) as u32
    }

    /// Returns the first packet of a group.
    fn head<'a>(&self, packets: &'a impl Packets, group: &PacketGroup) -> &'a [u8] {
        packets.packet(self.links[group.first as usize].packet as usize)
    }

    /// Returns the newest group of the packet's flow. Older groups of the flow stay closed, which
    /// keeps its order.
    fn find(&self, packets: &impl Packets, bytes: &[u8], view: &FlowHeaders) -> Option<usize> {
        let newest = self.groups.len().saturating_sub(OPEN_GROUPS);
        (newest..self.groups.len()).rev().find(|&index| {
            let group = &self.groups[index];
            let Some(other) = group.view else {
                return false;
            };
            other.v4 == view.v4
                && other.protocol == view.protocol
                && other.transport == view.transport
                && same_flow(self.head(packets, group), bytes, view)
        })
    }

    fn append(
        &mut self,
        packets: &impl Packets,
        found: usize,
        index: usize,
        view: &FlowHeaders,
    ) -> bool {
        let group = &self.groups[found];
        let Some(first_view) = group.view else {
            return false;
        };
        let bytes = packets.packet(index);
        let payload = bytes.len() - view.headers;
        let first_bytes = self.head(packets, group);
        if group.closed
            || !view.mergeable
            || view.headers != first_view.headers
            || payload > group.segment
            || group.count >= SEGMENTS_MAX
            || group.length + payload > LENGTH_MAX
            || (view.protocol == TCP && view.sequence != group.next_sequence)
            || !headers_agree(first_bytes, bytes, view, group.count)
            || !checksum_holds(bytes, view)
        {
            return false;
        }
        if !group.verified && !checksum_holds(first_bytes, &first_view) {
            return false;
        }
        let link = self.add_link(index);
        let group = &mut self.groups[found];
        self.links[group.last as usize].next = link;
        group.verified = true;
        group.last = link;
        group.count += 1;
        group.length += payload;
        group.next_sequence = view.sequence.wrapping_add(payload as u32);
        // A short segment ends a super-segment. So does PSH, which must stay on the last segment.
        group.closed = payload < group.segment || view.push;
        true
    }

    /// Passes every packet or super-segment to `write`, as a virtio header and slices of the
    /// packets. The order is that of the first packets. Rewrites the headers of the packets.
    pub fn flush(
        &mut self,
        packets: &mut impl Packets,
        mut write: impl FnMut(&[IoSlice<'_>], u16),
    ) {
        for group in &self.groups {
            let first = self.links[group.first as usize];
            let header = match group.view {
                Some(view) if group.count > 1 => {
                    let last = self.links[group.last as usize].packet as usize;
                    let push = view.protocol == TCP
                        && packets.packet(last)[view.transport + 13] & TCP_PSH != 0;
                    merge_headers(
                        packets.packet_mut(first.packet as usize),
                        &view,
                        group,
                        push,
                    )
                }
                _ => VnetHeader::default(),
            }
            .encode();
            let headers = group.view.map_or(0, |view| view.headers);
            let mut slices = [IoSlice::new(&[]); SEGMENTS_MAX as usize + 1];
            slices[0] = IoSlice::new(&header);
            slices[1] = IoSlice::new(packets.packet(first.packet as usize));
            let mut used = 2;
            let mut next = first.next;
            while let Some(link) = self.links.get(next as usize) {
                slices[used] = IoSlice::new(&packets.packet(link.packet as usize)[headers..]);
                used += 1;
                next = link.next;
            }
            write(&slices[..used], group.count);
        }
        self.groups.clear();
        self.links.clear();
    }
}

/// Parses a packet. Returns `None` for anything except TCP or UDP in a form that can be merged;
/// such a packet has no flow here.
fn parse(bytes: &[u8]) -> Option<FlowHeaders> {
    let ip = FixedHeader::of(bytes)?;
    let (v4, transport) = (ip.version == IpVersion::V4, ip.header_len);
    // Options, fragments and padding are never merged.
    let has_options = v4 && transport != IPV4_HEADER;
    if has_options || ip.fragment || ip.total_len != bytes.len() {
        return None;
    }
    let (protocol, header) = (ip.protocol, &bytes[transport..]);
    match protocol {
        TCP if header.len() >= 20 => {
            let headers = transport + usize::from(header[12] >> 4) * 4;
            if headers < transport + 20 || headers > bytes.len() {
                return None;
            }
            let flags = header[13];
            let plain = flags & !(TCP_ACK | TCP_PSH | TCP_ECE) == 0
                && flags & TCP_ACK != 0
                && header[12] & 15 == 0;
            Some(FlowHeaders {
                v4,
                protocol,
                transport,
                headers,
                sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                push: flags & TCP_PSH != 0,
                mergeable: plain && headers < bytes.len(),
            })
        }
        UDP if header.len() >= UDP_HEADER => {
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let checksummed = header[6] | header[7] != 0;
            Some(FlowHeaders {
                v4,
                protocol,
                transport,
                headers: transport + UDP_HEADER,
                sequence: 0,
                push: false,
                mergeable: length == header.len() && length > UDP_HEADER && checksummed,
            })
        }
        _ => None,
    }
}

/// Tells whether addresses and ports are equal. The caller has compared IP version and protocol.
fn same_flow(first: &[u8], other: &[u8], view: &FlowHeaders) -> bool {
    let addresses = if view.v4 { 12..20 } else { 8..40 };
    let ports = view.transport..view.transport + 4;
    first[ports.clone()] == other[ports] && first[addresses.clone()] == other[addresses]
}

/// Tells whether the kernel, splitting a super-segment with the headers `first`, would produce the
/// headers `other`.
fn headers_agree(first: &[u8], other: &[u8], view: &FlowHeaders, count: u16) -> bool {
    let ip = if view.v4 {
        let identification = |bytes: &[u8]| u16::from_be_bytes([bytes[4], bytes[5]]);
        // With DF set, the identification has no meaning (RFC 6864 §4.1).
        let in_sequence = first[6] & 0x40 != 0
            || identification(other) == identification(first).wrapping_add(count);
        // The fields are TOS, flags and TTL.
        first[1] == other[1] && first[6] == other[6] && first[8] == other[8] && in_sequence
    } else {
        // The fields are traffic class with flow label, and hop limit.
        first[..4] == other[..4] && first[7] == other[7]
    };
    if view.protocol == UDP {
        return ip;
    }
    let (a, b) = (
        &first[view.transport..view.headers],
        &other[view.transport..view.headers],
    );
    // The fields are acknowledgement, data offset, flags without PSH, window, urgent pointer and
    // options.
    ip && a[8..13] == b[8..13]
        && (a[13] ^ b[13]) & !TCP_PSH == 0
        && a[14..16] == b[14..16]
        && a[18..] == b[18..]
}

fn checksum_holds(bytes: &[u8], view: &FlowHeaders) -> bool {
    let addresses = if view.v4 {
        &bytes[12..20]
    } else {
        &bytes[8..40]
    };
    let transport = &bytes[view.transport..];
    let total =
        pseudo_header(addresses, view.protocol) + length_term(transport.len()) + sum(transport);
    // On splitting, the kernel writes a new IPv4 header checksum. A damaged header would be
    // repaired, so verify it too.
    fold(total) == 0xffff && (!view.v4 || fold(sum(&bytes[..IPV4_HEADER])) == 0xffff)
}

fn merge_headers(
    bytes: &mut [u8],
    view: &FlowHeaders,
    group: &PacketGroup,
    push: bool,
) -> VnetHeader {
    if view.v4 {
        bytes[2..4].copy_from_slice(&(group.length as u16).to_be_bytes());
        bytes[10..12].fill(0);
        let checksum = !fold(sum(&bytes[..IPV4_HEADER]));
        bytes[10..12].copy_from_slice(&checksum.to_ne_bytes());
    } else {
        bytes[4..6].copy_from_slice(&((group.length - IPV6_HEADER) as u16).to_be_bytes());
    }
    let addresses = if view.v4 {
        &bytes[12..20]
    } else {
        &bytes[8..40]
    };
    let length = group.length - view.transport;
    let partial = fold(pseudo_header(addresses, view.protocol) + length_term(length));
    let field = if view.protocol == TCP { 16 } else { 6 };
    let transport = &mut bytes[view.transport..];
    transport[field..field + 2].copy_from_slice(&partial.to_ne_bytes());
    let kind = match (view.protocol, view.v4) {
        (TCP, true) => GsoKind::TcpV4,
        (TCP, false) => GsoKind::TcpV6,
        _ => GsoKind::UdpL4,
    };
    if kind == GsoKind::UdpL4 {
        transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    } else if push {
        transport[13] |= TCP_PSH;
    }
    VnetHeader {
        gso: Some((kind, group.segment as u16)),
        checksum: Some((view.transport as u16, field as u16)),
        header_len: view.headers as u16,
    }
}
