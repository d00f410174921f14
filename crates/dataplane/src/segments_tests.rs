//! Tests splitting and coalescing against each other, against a simple checksum, and with hostile
//! headers.

use proptest::prelude::*;

use super::checksum::tests::naive;
use super::gro::{Coalescer, Packets};
use super::gso::{GsoError, GsoSegments};
use super::virtio::{GsoKind, HEADER_LEN, VnetHeader};

const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
const TCP_FIN: u8 = 0x01;
const TCP_CWR: u8 = 0x80;

/// A super-segment as the kernel delivers it: its checksum field holds the sum of the
/// pseudo-header.
#[derive(Debug, Clone)]
struct Super {
    v4: bool,
    tcp: bool,
    flags: u8,
    segment: u16,
    payload: Vec<u8>,
    sequence: u32,
    identification: u16,
}

impl Super {
    fn transport(&self) -> usize {
        if self.v4 { 20 } else { 40 }
    }

    fn headers(&self) -> usize {
        self.transport() + if self.tcp { 32 } else { 8 }
    }

    fn kind(&self) -> GsoKind {
        match (self.tcp, self.v4) {
            (true, true) => GsoKind::TcpV4,
            (true, false) => GsoKind::TcpV6,
            _ => GsoKind::UdpL4,
        }
    }

    fn header(&self) -> VnetHeader {
        VnetHeader {
            gso: Some((self.kind(), self.segment)),
            checksum: Some((self.transport() as u16, if self.tcp { 16 } else { 6 })),
            header_len: self.headers() as u16,
        }
    }

    fn packet(&self) -> Vec<u8> {
        let length = self.headers() + self.payload.len();
        let protocol = if self.tcp { 6 } else { 17 };
        let mut packet = if self.v4 {
            let mut ip = vec![
                0x45, 0x02, 0, 0, 0, 0, 0, 0, 63, protocol, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2,
            ];
            ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
            let checksum = !naive(&ip, 0);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            ip
        } else {
            let mut ip = vec![0x60, 0x20, 1, 2, 0, 0, protocol, 63];
            ip[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
            ip.extend((0..32).map(|byte| byte * 7));
            ip
        };
        let at = packet.len();
        packet.extend([0x12, 0x34, 0x13, 0x89]);
        let field = if self.tcp {
            packet.extend(self.sequence.to_be_bytes());
            packet.extend([1, 2, 3, 4, 0x80, self.flags, 0x10, 0, 0, 0, 0, 0]);
            packet.extend([1, 1, 8, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
            16
        } else {
            packet.extend(((length - at) as u16).to_be_bytes());
            packet.extend([0, 0]);
            6
        };
        let partial = naive(&pseudo(&packet, at, length - at), 0);
        packet[at + field..at + field + 2].copy_from_slice(&partial.to_be_bytes());
        packet.extend_from_slice(&self.payload);
        packet
    }
}

fn pseudo(packet: &[u8], transport: usize, length: usize) -> Vec<u8> {
    let (addresses, protocol) = if transport == 20 {
        (&packet[12..20], packet[9])
    } else {
        (&packet[8..40], packet[6])
    };
    let mut bytes = addresses.to_vec();
    bytes.extend([0, protocol]);
    bytes.extend((length as u16).to_be_bytes());
    bytes
}

fn assert_checksums(packet: &[u8], transport: usize) {
    if transport == 20 {
        assert_eq!(naive(&packet[..20], 0), 0xffff, "IPv4 header");
    }
    let initial = naive(&pseudo(packet, transport, packet.len() - transport), 0);
    assert_eq!(
        naive(&packet[transport..], u32::from(initial)),
        0xffff,
        "transport"
    );
}

fn split(packet: &Super) -> Vec<Vec<u8>> {
    let bytes = packet.packet();
    let segments = GsoSegments::new(&packet.header(), &bytes).unwrap();
    (0..segments.count())
        .map(|index| {
            let mut out = vec![0xaa; segments.len(index)];
            segments.write(index, &mut out);
            out
        })
        .collect()
}

impl Packets for Vec<Vec<u8>> {
    fn packet(&self, index: usize) -> &[u8] {
        &self[index]
    }

    fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self[index]
    }
}

/// Coalesces the packets, and returns each write as its virtio header and its packet.
fn coalesce(packets: &[Vec<u8>]) -> Vec<(VnetHeader, Vec<u8>)> {
    let mut coalescer = Coalescer::new(true);
    let mut packets = packets.to_vec();
    for index in 0..packets.len() {
        coalescer.push(&packets, index);
    }
    let mut writes = Vec::new();
    let mut total = 0;
    coalescer.flush(&mut packets, |slices, count| {
        total += usize::from(count);
        let header: [u8; HEADER_LEN] = (*slices[0]).try_into().unwrap();
        let packet = slices[1..]
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        writes.push((VnetHeader::decode(&header).unwrap(), packet));
    });
    assert_eq!(total, packets.len());
    assert!(coalescer.is_empty());
    writes
}

fn any_super() -> impl Strategy<Value = Super> {
    let payload = proptest::collection::vec(any::<u8>(), 2..9000);
    (
        any::<bool>(),
        any::<bool>(),
        150u16..1500,
        payload,
        any::<u32>(),
        any::<u16>(),
        any::<bool>(),
    )
        .prop_map(
            |(v4, tcp, segment, payload, sequence, identification, push)| Super {
                v4,
                tcp,
                flags: TCP_ACK | if push { TCP_PSH } else { 0 },
                segment,
                payload,
                sequence,
                identification,
            },
        )
}

proptest! {
    #[test]
    fn splitting_then_coalescing_gives_the_super_segment_back(packet in any_super()) {
        let segments = split(&packet);
        prop_assert_eq!(segments.len(), packet.payload.len().div_ceil(usize::from(packet.segment)));
        for segment in &segments {
            assert_checksums(segment, packet.transport());
        }
        let writes = coalesce(&segments);
        prop_assert_eq!(writes.len(), 1);
        if segments.len() > 1 {
            prop_assert_eq!(&writes[0].0, &packet.header());
            prop_assert_eq!(&writes[0].1, &packet.packet());
        } else {
            prop_assert_eq!(&writes[0].1, &segments[0]);
        }
    }

    #[test]
    fn a_damaged_packet_is_never_repaired(packet in any_super(), victim: prop::sample::Index, place: prop::sample::Index, bit in 0u8..8) {
        let mut segments = split(&packet);
        let victim = victim.index(segments.len());
        let length = segments[victim].len();
        let place = packet.transport() + place.index(length - packet.transport());
        segments[victim][place] ^= 1 << bit;
        let damaged = segments[victim].clone();
        // Whatever was merged, splitting it again yields exactly the packets that went in.
        let mut out = Vec::new();
        for (header, bytes) in coalesce(&segments) {
            let again = GsoSegments::new(&header, &bytes).unwrap();
            for index in 0..again.count() {
                let mut segment = vec![0; again.len(index)];
                again.write(index, &mut segment);
                out.push(segment);
            }
        }
        prop_assert!(out.contains(&damaged));
        // A damaged port belongs to another flow, which may be written later.
        out.sort();
        segments.sort();
        prop_assert_eq!(out, segments);
    }

    #[test]
    fn hostile_headers_are_refused_or_stay_inside(
        header in any::<[u8; HEADER_LEN]>(),
        kind in prop::sample::select(vec![0u8, 1, 4, 5, 0x81]),
        version in prop::sample::select(vec![0x45u8, 0x4f, 0x60, 0x00]),
        mut packet in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut header = header;
        header[1] = kind;
        header[7] = 0;
        if let Some(first) = packet.first_mut() {
            *first = version;
        }
        if let Ok(header) = VnetHeader::decode(&header)
            && let Ok(segments) = GsoSegments::new(&header, &packet)
        {
            for index in 0..segments.count() {
                let mut out = vec![0; segments.len(index)];
                segments.write(index, &mut out);
            }
        }
    }

    #[test]
    fn any_bytes_pass_the_coalescer_in_order(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..40),
    ) {
        let total: usize = coalesce(&packets).iter().map(|(_, packet)| packet.len()).sum();
        prop_assert_eq!(total, packets.iter().map(Vec::len).sum::<usize>());
    }
}

fn sample(tcp: bool, flags: u8) -> Super {
    let payload = (0..5000u32).map(|byte| byte as u8).collect();
    Super {
        v4: true,
        tcp,
        flags,
        segment: 1000,
        payload,
        sequence: u32::MAX - 1500,
        identification: 0xfffe,
    }
}

#[test]
fn flags_and_identification_follow_the_segments() {
    let segments = split(&sample(true, TCP_ACK | TCP_PSH | TCP_FIN | TCP_CWR));
    let flags: Vec<u8> = segments.iter().map(|segment| segment[33]).collect();
    assert_eq!(
        flags,
        [
            TCP_ACK | TCP_CWR,
            TCP_ACK,
            TCP_ACK,
            TCP_ACK,
            TCP_ACK | TCP_PSH | TCP_FIN
        ]
    );
    let identifications: Vec<u16> = segments
        .iter()
        .map(|segment| u16::from_be_bytes([segment[4], segment[5]]))
        .collect();
    assert_eq!(identifications, [0xfffe, 0xffff, 0, 1, 2]);
}

/// Inserts headers between IP and transport. With them, the pseudo-header has other addresses than
/// the IP header.
fn routed(
    sample: &Super,
    between: &[u8],
    source: &[u8],
    destination: &[u8],
) -> (VnetHeader, Vec<u8>, u16) {
    let mut packet = sample.packet();
    let at = sample.transport();
    packet.splice(at..at, between.iter().copied());
    let (length, transport) = (packet.len(), at + between.len());
    if sample.v4 {
        packet[0] += between.len() as u8 / 4;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&((length - at) as u16).to_be_bytes());
    }
    let protocol = if sample.tcp { 6 } else { 17 };
    let without_length = naive(&[source, destination, &[0, protocol]].concat(), 0);
    let partial = naive(
        &((length - transport) as u16).to_be_bytes(),
        u32::from(without_length),
    );
    let mut header = sample.header();
    let (_, field) = header.checksum.unwrap();
    let place = transport + usize::from(field);
    packet[place..place + 2].copy_from_slice(&partial.to_be_bytes());
    header.checksum = Some((transport as u16, field));
    (header, packet, without_length)
}

#[test]
fn segments_on_a_route_are_summed_for_their_last_destination() {
    let last4 = [192, 0, 2, 77];
    let (last6, home) = ([0x20; 16], [0x3f; 16]);
    // RFC 791: a NOP, then a loose or strict source route with one address left.
    let source_route = |kind| [&[1, kind, 7, 4][..], &last4].concat();
    for tcp in [true, false] {
        let protocol = if tcp { 6 } else { 17 };
        // RFC 8754 with one segment left, and the home address option of RFC 6275.
        let segment_routing = [&[protocol, 2, 4, 1, 0, 0, 0, 0][..], &last6].concat();
        let home_address = [&[protocol, 2, 1, 2, 0, 0, 201, 16][..], &home].concat();
        let v4 = sample(tcp, TCP_ACK);
        let v6 = Super {
            v4: false,
            ..v4.clone()
        };
        let (v4_packet, v6_packet) = (v4.packet(), v6.packet());
        let (source, destination) = (&v6_packet[8..24], &v6_packet[24..40]);
        for (sample, next, between, source, destination) in [
            (&v4, None, source_route(131), &v4_packet[12..16], &last4[..]),
            (&v4, None, source_route(137), &v4_packet[12..16], &last4[..]),
            (&v6, Some(43), segment_routing, source, &last6[..]),
            (&v6, Some(60), home_address, &home[..], destination),
        ] {
            let (header, mut packet, without_length) =
                routed(sample, &between, source, destination);
            if let Some(next) = next {
                packet[6] = next;
            }
            let transport = sample.transport() + between.len();
            let segments = GsoSegments::new(&header, &packet).unwrap();
            assert_eq!(segments.count(), 5);
            for index in 0..segments.count() {
                let mut out = vec![0; segments.len(index)];
                segments.write(index, &mut out);
                assert_eq!(out[sample.transport()..transport], between);
                let length = ((out.len() - transport) as u16).to_be_bytes();
                let initial = naive(&length, u32::from(without_length));
                assert_eq!(naive(&out[transport..], u32::from(initial)), 0xffff);
                assert!(!sample.v4 || naive(&out[..transport], 0) == 0xffff);
            }
        }
    }
}

#[test]
fn an_unfinished_checksum_of_one_packet_is_completed() {
    for tcp in [true, false] {
        let packet = sample(tcp, TCP_ACK);
        let header = VnetHeader {
            gso: None,
            ..packet.header()
        };
        let bytes = packet.packet();
        let segments = GsoSegments::new(&header, &bytes).unwrap();
        let mut out = vec![0; segments.len(0)];
        segments.write(0, &mut out);
        assert_checksums(&out, 20);
        let outside = VnetHeader {
            checksum: Some((4990, 100)),
            ..header
        };
        assert_eq!(
            GsoSegments::new(&outside, &bytes).unwrap_err(),
            GsoError::ChecksumOutside
        );
    }
}

#[test]
fn what_may_not_be_merged_is_not_and_keeps_its_order() {
    let whole = sample(true, TCP_ACK);
    let check = |change: &dyn Fn(&mut Vec<Vec<u8>>), expected: usize| {
        let mut segments = split(&whole);
        change(&mut segments);
        let writes = coalesce(&segments);
        assert_eq!(writes.len(), expected);
        let order: Vec<u8> = writes
            .iter()
            .flat_map(|(_, packet)| packet[52..].to_vec())
            .collect();
        let sent: Vec<u8> = segments
            .iter()
            .flat_map(|packet| packet[52..].to_vec())
            .collect();
        assert_eq!(order, sent);
    };
    check(&|_| {}, 1);
    check(&|segments| drop(segments.remove(2)), 2);
    check(&|segments| segments.swap(1, 2), 4);
    // Each changes one field and keeps the checksums right: TTL, TOS, window, acknowledgement,
    // option.
    for place in [8, 1, 35, 28, 45] {
        check(
            &|segments| {
                let segment = &mut segments[2];
                segment[place] ^= 4;
                segment[10..12].fill(0);
                let ip = !naive(&segment[..20], 0);
                segment[10..12].copy_from_slice(&ip.to_be_bytes());
                segment[36..38].fill(0);
                let initial = naive(&pseudo(segment, 20, segment.len() - 20), 0);
                let tcp = !naive(&segment[20..], u32::from(initial));
                segment[36..38].copy_from_slice(&tcp.to_be_bytes());
            },
            3,
        );
    }
}

#[test]
fn flows_interleave_without_disturbing_each_other() {
    let first = split(&sample(true, TCP_ACK));
    let second = split(&Super {
        v4: false,
        ..sample(false, 0)
    });
    let mixed: Vec<Vec<u8>> = first
        .iter()
        .zip(&second)
        .flat_map(|(a, b)| [a.clone(), b.clone()])
        .collect();
    let writes = coalesce(&mixed);
    assert_eq!(writes.len(), 2);
    assert_eq!(writes[0].1, sample(true, TCP_ACK).packet());
    assert_eq!(writes[1].0.gso, Some((GsoKind::UdpL4, 1000)));
}
