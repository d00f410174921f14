//! Reads and writes IP packets field by field.

use std::net::IpAddr;

use super::policy::Flow;

/// Most IPv6 extension headers of a packet. A packet with more is refused.
const EXTENSION_HEADERS_MAX: usize = 16;

/// The fields of an IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    pub version: u8,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub tos: u8,
    pub dont_fragment: bool,
    /// Length of header and content. More bytes may follow them.
    pub total_len: usize,
    pub protocol: u8,
    /// Offset of the upper layer.
    pub upper: usize,
    /// The packet is a fragment. This includes the first fragment, and an IPv6 fragment that is the
    /// only one.
    pub fragment: bool,
    /// The packet is a fragment other than the first.
    pub later: bool,
    pub ports: Option<(u16, u16)>,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl Ip {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => None,
        }
    }

    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 20 {
            return None;
        }
        let upper = usize::from(bytes[0] & 15) * 4;
        let total_len = usize::from(word(bytes, 2));
        if upper < 20 || total_len < upper || total_len > bytes.len() {
            return None;
        }
        if checksum(&bytes[..upper]) != 0 {
            return None;
        }
        let fragmentation = word(bytes, 6);
        let later = fragmentation & 0x1fff != 0;
        let octets = |at: usize| -> [u8; 4] { bytes[at..at + 4].try_into().expect("four bytes") };
        Some(Self {
            version: 4,
            source: octets(12).into(),
            destination: octets(16).into(),
            tos: bytes[1],
            dont_fragment: fragmentation & 0x4000 != 0,
            total_len,
            protocol: bytes[9],
            upper,
            fragment: fragmentation & 0x3fff != 0,
            later,
            ports: ports(bytes[9], later, &bytes[upper..total_len]),
        })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 40 {
            return None;
        }
        let total_len = 40 + usize::from(word(bytes, 4));
        let bytes = bytes.get(..total_len)?;
        let (mut protocol, mut upper) = (bytes[6], 40);
        let (mut fragment, mut later) = (false, false);
        let mut headers = 0;
        while !later && matches!(protocol, 0 | 43 | 44 | 60) {
            headers += 1;
            if headers > EXTENSION_HEADERS_MAX {
                return None;
            }
            let header = bytes.get(upper..).filter(|header| header.len() >= 8)?;
            let len = match protocol {
                44 => {
                    later = word(header, 2) >> 3 != 0;
                    fragment = true;
                    8
                }
                _ => 8 + usize::from(header[1]) * 8,
            };
            protocol = header[0];
            upper += len;
            if upper > total_len {
                return None;
            }
        }
        // The packet has one header more than is permitted.
        if headers == EXTENSION_HEADERS_MAX && !later {
            return None;
        }
        let octets = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().expect("sixteen") };
        Some(Self {
            version: 6,
            source: octets(8).into(),
            destination: octets(24).into(),
            tos: bytes[0] << 4 | bytes[1] >> 4,
            dont_fragment: true,
            total_len,
            protocol,
            upper,
            fragment,
            later,
            ports: ports(protocol, later, &bytes[upper..]),
        })
    }

    /// A later fragment of IPv6 may begin amid the extension headers, and then its protocol is not
    /// visible.
    fn visible_protocol(&self) -> Option<u8> {
        let hidden = self.version == 6 && matches!(self.protocol, 0 | 43 | 44 | 60);
        (!hidden).then_some(self.protocol)
    }

    pub fn outbound_flow(&self) -> Flow {
        Flow {
            local: self.source,
            remote: self.destination,
            protocol: self.visible_protocol(),
            ports: self.ports,
        }
    }

    pub fn inbound_flow(&self) -> Flow {
        Flow {
            local: self.destination,
            remote: self.source,
            protocol: self.visible_protocol(),
            ports: self
                .ports
                .map(|(source, destination)| (destination, source)),
        }
    }
}

/// Returns the source and destination port. For ICMP, returns type and code in both places.
fn ports(protocol: u8, later_fragment: bool, upper: &[u8]) -> Option<(u16, u16)> {
    match protocol {
        _ if later_fragment => None,
        6 | 17 | 33 | 132 | 136 if upper.len() >= 4 => Some((word(upper, 0), word(upper, 2))),
        1 | 58 if upper.len() >= 2 => Some((word(upper, 0), word(upper, 0))),
        _ => None,
    }
}

/// Computes the Internet checksum (RFC 1071). The result over a header with the right checksum is
/// zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (index, &byte) in bytes.iter().enumerate() {
        sum += u32::from(byte) << if index % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Corrects the checksum of TCP or UDP after a NAT changed the addresses under it (RFC 3948 §3.1.2).
pub fn correct_upper_checksum(packet: &mut [u8], ip: &Ip) {
    let (offset, udp) = match ip.protocol {
        6 => (16, false),
        17 => (6, true),
        _ => return,
    };
    let at = ip.upper + offset;
    let absent = at + 2 > ip.total_len || udp && packet[at..at + 2] == [0, 0];
    if absent {
        return;
    }
    packet[at..at + 2].fill(0);
    let mut covered = Vec::new();
    for address in [ip.source, ip.destination] {
        match address {
            IpAddr::V4(address) => covered.extend(address.octets()),
            IpAddr::V6(address) => covered.extend(address.octets()),
        }
    }
    covered.extend(((ip.total_len - ip.upper) as u32).to_be_bytes());
    covered.extend([0, 0, 0, ip.protocol]);
    covered.extend(&packet[ip.upper..ip.total_len]);
    let sum = match checksum(&covered) {
        0 if udp => 0xffff,
        sum => sum,
    };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the total length and the checksum of an IPv4 packet, or the payload length of an IPv6
/// packet.
pub fn complete(packet: &mut [u8]) {
    let len = packet.len();
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        return;
    }
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    set_checksum(packet);
}

pub fn set_checksum(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Changes the TOS or the traffic class.
pub fn set_tos(packet: &mut [u8], tos: u8) {
    if packet[0] >> 4 == 4 {
        packet[1] = tos;
        set_checksum(packet);
    } else {
        packet[0] = 0x60 | tos >> 4;
        packet[1] = tos << 4 | packet[1] & 15;
    }
}

/// Makes an outer header without its lengths, which [`complete`] sets.
pub fn outer_header(local: IpAddr, remote: IpAddr, tos: u8, df: bool, protocol: u8) -> Vec<u8> {
    match (local, remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let flags = if df { 0x40 } else { 0 };
            let mut header = vec![0x45, tos, 0, 0, 0, 0, flags, 0, 64, protocol, 0, 0];
            header.extend(local.octets());
            header.extend(remote.octets());
            header
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let mut header = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, protocol, 64];
            header.extend(local.octets());
            header.extend(remote.octets());
            header
        }
        _ => panic!("a path has one IP version"),
    }
}

/// Makes a UDP datagram. It has no checksum over IPv4 (RFC 3948 §2.1), and a right one over IPv6.
pub fn udp(local: (IpAddr, u16), remote: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let mut datagram = Vec::new();
    for field in [local.1, remote.1, len, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(payload);
    if let (IpAddr::V6(source), IpAddr::V6(destination)) = (local.0, remote.0) {
        let mut covered = [source.octets(), destination.octets()].concat();
        covered.extend([0, 0]);
        covered.extend(len.to_be_bytes());
        covered.extend([0, 0, 0, 17]);
        covered.extend(&datagram);
        let sum = match checksum(&covered) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    datagram
}
