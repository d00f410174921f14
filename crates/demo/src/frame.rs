//! Parses Ethernet frames as captured on a link, and reconstructs the frames of a real wire.
//!
//! A veth pair carries super-frames: the kernel leaves segmentation and checksums to hardware that
//! does not exist. [`wire_frames`] does both, so that the capture file shows packets as a real link
//! would.

use std::net::IpAddr;

pub const ETHERNET_LEN: usize = 14;
/// The largest frame of the demo's links, in bytes.
pub const FRAME_LEN_MAX: usize = ETHERNET_LEN + 1500;
const UDP_LEN: usize = 8;
const IKE_PORT: u16 = 500;
const NAT_T_PORT: u16 = 4500;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ESP: u8 = 50;
const PROTOCOL_ICMPV6: u8 = 58;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind<'a> {
    /// An IKE message without the non-ESP marker.
    Ike(&'a [u8]),
    /// An ESP packet, starting with its SPI.
    Esp(&'a [u8]),
    /// The single octet that keeps a NAT mapping (RFC 3948 §2.3).
    Keepalive,
    /// ARP and IPv6 neighbour discovery, which belong to the link itself.
    Link,
    /// Any other packet with an IP header. It is in clear.
    Clear,
    Unreadable,
}

#[derive(Debug, Clone, Copy)]
pub struct FrameView<'a> {
    pub kind: FrameKind<'a>,
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub ports: Option<(u16, u16)>,
    protocol: u8,
    /// The bytes after the IP header.
    body: &'a [u8],
    /// Length in bytes of the IP packet, by its header.
    pub packet_len: usize,
}

impl<'a> FrameView<'a> {
    pub fn of(frame: &'a [u8]) -> Self {
        let ethertype = read_u16(frame, 12);
        let packet = frame.get(ETHERNET_LEN..).unwrap_or_default();
        let view = match ethertype {
            Some(0x0800) => ipv4(packet),
            Some(0x86dd) => ipv6(packet),
            Some(0x0806) => Some(Self::without_ip(FrameKind::Link)),
            _ => None,
        };
        view.unwrap_or(Self::without_ip(FrameKind::Unreadable))
    }

    fn without_ip(kind: FrameKind<'a>) -> Self {
        Self {
            kind,
            source: None,
            destination: None,
            ports: None,
            protocol: 0,
            body: &[],
            packet_len: 0,
        }
    }

    /// Returns the SPI and the sequence number of an ESP packet.
    pub fn esp_header(&self) -> Option<(u32, u32)> {
        match self.kind {
            FrameKind::Esp(esp) => Some((read_u32(esp, 0)?, read_u32(esp, 4)?)),
            _ => None,
        }
    }

    /// Describes the packet in one line.
    pub fn describe(&self) -> String {
        let what = match (self.kind, self.protocol) {
            (FrameKind::Esp(_), _) => {
                let (spi, sequence) = self.esp_header().unwrap_or_default();
                let carrier = if self.ports.is_some() {
                    "ESP in UDP"
                } else {
                    "ESP"
                };
                format!("{carrier}, SPI {spi:08x}, sequence {sequence}")
            }
            (FrameKind::Ike(_), _) => "IKE".into(),
            (FrameKind::Keepalive, _) => "NAT keepalive".into(),
            (FrameKind::Link, _) => "link housekeeping".into(),
            (FrameKind::Unreadable, _) => "unreadable".into(),
            (FrameKind::Clear, PROTOCOL_ICMP) => match self.body.first() {
                Some(8) => "ICMP echo request".into(),
                Some(0) => "ICMP echo reply".into(),
                _ => "ICMP".into(),
            },
            (FrameKind::Clear, PROTOCOL_TCP) => "TCP".into(),
            (FrameKind::Clear, PROTOCOL_UDP) => "UDP".into(),
            (FrameKind::Clear, protocol) => format!("IP protocol {protocol}"),
        };
        match (self.source, self.destination) {
            (Some(source), Some(destination)) => {
                format!(
                    "{source} > {destination}  {what}, {} bytes",
                    self.packet_len
                )
            }
            _ => what,
        }
    }
}

fn ipv4(packet: &[u8]) -> Option<FrameView<'_>> {
    let header_len = usize::from(packet.first()? & 0x0f) * 4;
    let packet_len = usize::from(read_u16(packet, 2)?);
    let fragment = read_u16(packet, 6)? & 0x1fff != 0;
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let end = packet_len.min(packet.len());
    let mut view = FrameView {
        kind: FrameKind::Clear,
        source: Some(source.into()),
        destination: Some(destination.into()),
        ports: None,
        protocol: *packet.get(9)?,
        body: packet.get(header_len..end)?,
        packet_len,
    };
    if !fragment {
        classify(&mut view);
    }
    Some(view)
}

fn ipv6(packet: &[u8]) -> Option<FrameView<'_>> {
    let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    let destination: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
    let packet_len = 40 + usize::from(read_u16(packet, 4)?);
    let mut view = FrameView {
        kind: FrameKind::Clear,
        source: Some(source.into()),
        destination: Some(destination.into()),
        ports: None,
        protocol: *packet.get(6)?,
        body: packet.get(40..packet_len.min(packet.len()))?,
        packet_len,
    };
    classify(&mut view);
    Some(view)
}

fn classify(view: &mut FrameView<'_>) {
    let body = view.body;
    match view.protocol {
        PROTOCOL_ESP => view.kind = FrameKind::Esp(body),
        PROTOCOL_UDP => {
            let (Some(source), Some(destination)) = (read_u16(body, 0), read_u16(body, 2)) else {
                return;
            };
            view.ports = Some((source, destination));
            let payload = body.get(UDP_LEN..).unwrap_or_default();
            match (source, destination) {
                (IKE_PORT, IKE_PORT) => view.kind = FrameKind::Ike(payload),
                (NAT_T_PORT, NAT_T_PORT) => view.kind = udp_encapsulated(payload),
                _ => {}
            }
        }
        // Neighbour discovery, and multicast listener reports, which start with a hop-by-hop
        // header.
        PROTOCOL_ICMPV6 | 0
            if view
                .source
                .is_some_and(|source| source.is_ipv6() && !global(source)) =>
        {
            view.kind = FrameKind::Link;
        }
        _ => {}
    }
}

/// Classifies a UDP payload. An SPI of zero is the non-ESP marker (RFC 3948 §2).
fn udp_encapsulated(payload: &[u8]) -> FrameKind<'_> {
    match payload {
        [0xff] => FrameKind::Keepalive,
        [0, 0, 0, 0, ike @ ..] => FrameKind::Ike(ike),
        esp => FrameKind::Esp(esp),
    }
}

fn global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_unicast_link_local(),
    }
}

/// Returns the frames that a wire would carry for one captured frame.
///
/// The ESP headers show where a super-frame of ESP in UDP is divided. Any other super-frame stays
/// whole.
pub fn wire_frames(frame: &[u8]) -> Vec<Vec<u8>> {
    let Some(at) = udp_payload_offset(frame) else {
        return vec![frame.to_vec()];
    };
    let payload = frame.get(at..).unwrap_or_default();
    let Some(size) = esp_segment_size(payload) else {
        let mut single = frame.to_vec();
        fill_udp_checksum(&mut single, at);
        return vec![single];
    };
    let first_id = read_u16(frame, ETHERNET_LEN + 4).unwrap_or_default();
    let headers = frame.get(..at).unwrap_or_default();
    let segment = |(index, part): (usize, &[u8])| {
        let mut segment = headers.to_vec();
        segment.extend_from_slice(part);
        let total = segment.len() - ETHERNET_LEN;
        write_u16(&mut segment, ETHERNET_LEN + 2, total as u16);
        // The kernel's own segmentation counts the identification up too.
        write_u16(
            &mut segment,
            ETHERNET_LEN + 4,
            first_id.wrapping_add(index as u16),
        );
        write_u16(&mut segment, ETHERNET_LEN + 10, 0);
        let sum = checksum(&[segment.get(ETHERNET_LEN..at - UDP_LEN).unwrap_or_default()]);
        write_u16(&mut segment, ETHERNET_LEN + 10, sum);
        write_u16(&mut segment, at - 4, (part.len() + UDP_LEN) as u16);
        fill_udp_checksum(&mut segment, at);
        segment
    };
    payload.chunks(size).enumerate().map(segment).collect()
}

/// Returns the offset of the payload of an unfragmented IPv4 UDP packet.
fn udp_payload_offset(frame: &[u8]) -> Option<usize> {
    if read_u16(frame, 12)? != 0x0800 || *frame.get(ETHERNET_LEN + 9)? != PROTOCOL_UDP {
        return None;
    }
    // The packet has neither a fragment offset nor "more fragments".
    if read_u16(frame, ETHERNET_LEN + 6)? & 0x3fff != 0 {
        return None;
    }
    let at = ETHERNET_LEN + usize::from(frame.get(ETHERNET_LEN)? & 0x0f) * 4 + UDP_LEN;
    (at <= frame.len()).then_some(at)
}

/// Returns the size of the segments if the payload belongs to a super-frame. The size is the
/// distance to the next ESP header, with the same SPI and a later sequence number. Ciphertext
/// practically never looks like this by chance.
fn esp_segment_size(payload: &[u8]) -> Option<usize> {
    const GAP_MAX: u32 = 4096;
    let (spi, first) = (read_u32(payload, 0)?, read_u32(payload, 4)?);
    if spi == 0 {
        return None;
    }
    // The length of an ESP packet is a multiple of four bytes (RFC 4303 §2.4).
    (16..payload.len()).step_by(4).find(|&at| {
        read_u32(payload, at) == Some(spi)
            && read_u32(payload, at + 4)
                .is_some_and(|next| (1..=GAP_MAX).contains(&next.wrapping_sub(first)))
    })
}

/// Completes the checksum that the sender left to the hardware. A checksum of zero means "none" and
/// stays.
fn fill_udp_checksum(frame: &mut [u8], payload_at: usize) {
    let udp_at = payload_at - UDP_LEN;
    if read_u16(frame, udp_at + 6).unwrap_or_default() == 0 {
        return;
    }
    write_u16(frame, udp_at + 6, 0);
    let Some(udp) = frame.get(udp_at..) else {
        return;
    };
    let addresses = frame
        .get(ETHERNET_LEN + 12..ETHERNET_LEN + 20)
        .unwrap_or_default();
    let [high, low] = (udp.len() as u16).to_be_bytes();
    let sum = match checksum(&[addresses, &[0, PROTOCOL_UDP, high, low], udp]) {
        0 => 0xffff,
        sum => sum,
    };
    write_u16(frame, udp_at + 6, sum);
}

/// Computes the Internet checksum (RFC 1071) over several parts. Only the last part may have an odd
/// length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or_default();
            sum += u64::from(u16::from_be_bytes([
                pair.first().copied().unwrap_or_default(),
                low,
            ]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an Ethernet frame with IPv4 and UDP between the NAT traversal ports.
    fn udp_frame(payload: &[u8], checksum: u16) -> Vec<u8> {
        let total = (20 + 8 + payload.len()) as u16;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([
            0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 2, 198, 51, 100, 2,
        ]);
        let sum = super::checksum(&[&frame[14..34]]);
        write_u16(&mut frame, 24, sum);
        frame.extend([0x11, 0x94, 0x11, 0x94]);
        frame.extend((total - 20).to_be_bytes());
        frame.extend(checksum.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn esp(spi: u32, sequence: u32, len: usize) -> Vec<u8> {
        let mut packet = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
        packet.resize(len, 0xa5);
        packet
    }

    fn udp_checksum_is_right(frame: &[u8]) -> bool {
        let len = (frame.len() - 34) as u16;
        let [high, low] = len.to_be_bytes();
        checksum(&[&frame[26..34], &[0, 17, high, low], &frame[34..]]) == 0
    }

    #[test]
    fn a_super_frame_becomes_its_segments() {
        let mut payload = Vec::new();
        for sequence in 7..17 {
            payload.extend(esp(0xc0ff_ee01, sequence, 1444));
        }
        payload.extend(esp(0xc0ff_ee01, 17, 100));
        let frames = wire_frames(&udp_frame(&payload, 0xbeef));
        assert_eq!(frames.len(), 11);
        for (index, frame) in frames.iter().enumerate() {
            let view = FrameView::of(frame);
            assert_eq!(view.esp_header(), Some((0xc0ff_ee01, 7 + index as u32)));
            assert_eq!(view.packet_len, frame.len() - ETHERNET_LEN);
            assert_eq!(checksum(&[&frame[14..34]]), 0, "IP header checksum");
            assert!(udp_checksum_is_right(frame));
            assert_eq!(read_u16(frame, 18), Some(0x1234 + index as u16));
        }
        assert_eq!(frames[10].len(), 42 + 100);
    }

    #[test]
    fn a_small_super_frame_is_split_too() {
        let payload: Vec<u8> = (1..5).flat_map(|sequence| esp(77, sequence, 88)).collect();
        let frames = wire_frames(&udp_frame(&payload, 1));
        assert_eq!(frames.len(), 4);
        assert!(frames.iter().all(|frame| udp_checksum_is_right(frame)));
    }

    #[test]
    fn a_partial_checksum_is_filled_in_and_none_stays_none() {
        let partial = wire_frames(&udp_frame(&esp(1 << 20, 1, 120), 0x0a0a));
        assert!(udp_checksum_is_right(&partial[0]));
        let none = wire_frames(&udp_frame(&esp(1 << 20, 1, 120), 0));
        assert_eq!(read_u16(&none[0], 40), Some(0));
    }

    #[test]
    fn udp_payloads_are_told_apart() {
        let kind = |payload: &[u8]| format!("{:?}", FrameView::of(&udp_frame(payload, 0)).kind);
        assert_eq!(kind(&[0xff]), "Keepalive");
        assert_eq!(kind(&[0, 0, 0, 0, 9]), "Ike([9])");
        assert_eq!(kind(&[0, 0, 1, 0, 9]), "Esp([0, 0, 1, 0, 9])");
    }

    #[test]
    fn a_fragment_or_other_protocol_is_clear() {
        let mut fragment = udp_frame(&[1; 64], 0);
        fragment[21] = 1;
        assert_eq!(FrameView::of(&fragment).kind, FrameKind::Clear);
        let mut tcp = udp_frame(&[1; 64], 0);
        tcp[23] = PROTOCOL_TCP;
        assert_eq!(FrameView::of(&tcp).kind, FrameKind::Clear);
    }

    #[test]
    fn no_truncation_panics() {
        let whole = udp_frame(&esp(5, 6, 64), 1);
        for len in 0..whole.len() {
            let _ = FrameView::of(&whole[..len]).describe();
            let _ = wire_frames(&whole[..len]);
        }
    }
}
