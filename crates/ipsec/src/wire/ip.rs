//! IPv4 and IPv6 headers: the fields that the packet path looks at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{be16, checksum};
use crate::selector::Flow;

pub const PROTOCOL_ICMP: u8 = 1;
pub const PROTOCOL_IPV4: u8 = 4;
pub const PROTOCOL_TCP: u8 = 6;
pub const PROTOCOL_UDP: u8 = 17;
pub const PROTOCOL_IPV6: u8 = 41;
pub const PROTOCOL_ICMPV6: u8 = 58;
pub const PROTOCOL_NONE: u8 = 59;
pub const PROTOCOL_DCCP: u8 = 33;
pub const PROTOCOL_SCTP: u8 = 132;
pub const PROTOCOL_UDP_LITE: u8 = 136;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// The most extension headers of a packet. A packet with more is taken for an attack on the parser.
const EXTENSION_HEADERS_MAX: usize = 16;

pub const IPV4_HEADER_LEN: usize = 20;
pub const IPV6_HEADER_LEN: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// The version of a packet, from its first byte.
    pub(crate) fn of_packet(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Some(Self::V4),
            6 => Some(Self::V6),
            _ => None,
        }
    }

    /// The ESP next header value of a tunnelled packet of this version.
    pub const fn next_header(self) -> u8 {
        match self {
            Self::V4 => PROTOCOL_IPV4,
            Self::V6 => PROTOCOL_IPV6,
        }
    }
}

/// The bytes are not a well-formed IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a well-formed IP packet")]
pub struct Malformed;

/// The fields of a checked IP packet: every length in it has been compared with the number of bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpView {
    pub version: IpVersion,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    pub tos: u8,
    pub ttl: u8,
    /// The IPv6 flow label; 0 in IPv4.
    pub flow_label: u32,
    /// The IPv4 Don't Fragment flag. It is always true in IPv6, whose routers never fragment.
    pub dont_fragment: bool,
    /// The length in bytes from the IP header to the end of the packet. Bytes behind it are not part of the packet.
    pub total_len: usize,
    /// The length in bytes of the IPv4 header with options, or of the fixed IPv6 header.
    pub header_len: usize,
    /// The upper-layer protocol, behind any IPv6 extension headers.
    pub protocol: u8,
    /// The offset of the upper-layer header.
    pub upper: usize,
    pub fragment: bool,
    /// The packet is a fragment and not the first one, so it has no upper-layer header.
    pub later_fragment: bool,
    /// The source and the destination port. ICMP type and code stand in both (RFC 7296 §3.13.1).
    pub ports: Option<(u16, u16)>,
}

/// The fields at fixed places of an IP header, read without checks. The lengths may exceed the bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedHeader {
    pub version: IpVersion,
    /// The header length in bytes, as in [`IpView`].
    pub header_len: usize,
    pub total_len: usize,
    /// The upper-layer protocol. In IPv6 it may be that of an extension header.
    pub protocol: u8,
    /// The packet is a fragment. It is never set in IPv6, where an extension header would say so.
    pub fragment: bool,
}

impl FixedHeader {
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => packet.first_chunk().map(Self::of_v4),
            6 => packet.first_chunk().map(Self::of_v6),
            _ => None,
        }
    }

    #[inline]
    fn of_v4(fixed: &[u8; IPV4_HEADER_LEN]) -> Self {
        Self {
            version: IpVersion::V4,
            header_len: usize::from(fixed[0] & 0x0f) * 4,
            total_len: usize::from(u16::from_be_bytes([fixed[2], fixed[3]])),
            protocol: fixed[9],
            fragment: u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0,
        }
    }

    #[inline]
    fn of_v6(fixed: &[u8; IPV6_HEADER_LEN]) -> Self {
        let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        Self {
            version: IpVersion::V6,
            header_len: IPV6_HEADER_LEN,
            total_len: IPV6_HEADER_LEN + payload_len,
            protocol: fixed[6],
            fragment: false,
        }
    }

    /// The source and the destination address of the packet that this header was read from, as adjacent bytes.
    #[inline]
    pub fn addresses<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let range = match self.version {
            IpVersion::V4 => 12..20,
            IpVersion::V6 => 8..40,
        };
        packet.get(range).unwrap_or_default()
    }
}

impl IpView {
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        Self::checked(packet).ok_or(Malformed)
    }

    #[inline]
    fn checked(packet: &[u8]) -> Option<Self> {
        let fixed = FixedHeader::of(packet)?;
        let view = Self::read(packet, &fixed)?;
        let is_sound = match view.version {
            IpVersion::V4 => {
                let header = packet.get(..view.header_len)?;
                checksum::fold(checksum::sum(0, header)) == 0
            }
            IpVersion::V6 => true,
        };
        is_sound.then_some(view)
    }

    /// Reads the beginning of a packet that an ICMP error quotes. `total_len` is then the number of bytes that are
    /// there. The checksum of an IPv4 header may be wrong, because routers change the header before they quote it.
    pub(crate) fn parse_quoted(quoted: &[u8]) -> Option<Self> {
        let fixed = FixedHeader::of(quoted)?;
        let total_len = fixed.total_len.min(quoted.len());
        Self::read(quoted, &FixedHeader { total_len, ..fixed })
    }

    #[inline]
    fn read(packet: &[u8], fixed: &FixedHeader) -> Option<Self> {
        match fixed.version {
            IpVersion::V4 => Self::read_v4(packet, fixed),
            IpVersion::V6 => Self::read_v6(packet, fixed),
        }
    }

    #[inline]
    fn read_v4(packet: &[u8], header: &FixedHeader) -> Option<Self> {
        let fixed = packet.first_chunk::<IPV4_HEADER_LEN>()?;
        let FixedHeader {
            header_len,
            total_len,
            protocol,
            fragment,
            ..
        } = *header;
        if header_len < IPV4_HEADER_LEN || total_len < header_len || total_len > packet.len() {
            return None;
        }
        let flags = u16::from_be_bytes([fixed[6], fixed[7]]);
        let source = Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]);
        let destination = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
        let later_fragment = flags & 0x1fff != 0;
        let upper = packet.get(header_len..total_len)?;
        Some(Self {
            version: IpVersion::V4,
            source: source.into(),
            destination: destination.into(),
            tos: fixed[1],
            ttl: fixed[8],
            flow_label: 0,
            dont_fragment: flags & 0x4000 != 0,
            total_len,
            header_len,
            protocol,
            upper: header_len,
            fragment,
            later_fragment,
            ports: ports(protocol, later_fragment, upper),
        })
    }

    #[inline]
    fn read_v6(packet: &[u8], header: &FixedHeader) -> Option<Self> {
        let fixed = packet.first_chunk::<IPV6_HEADER_LEN>()?;
        let packet = packet.get(..header.total_len)?;
        let chain = ExtensionChain::walk(packet, header.protocol)?;
        let upper = packet.get(chain.upper..)?;
        let address = |at: usize| -> Option<Ipv6Addr> {
            Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?))
        };
        Some(Self {
            version: IpVersion::V6,
            source: address(8)?.into(),
            destination: address(24)?.into(),
            tos: (fixed[0] << 4) | (fixed[1] >> 4),
            ttl: fixed[7],
            flow_label: u32::from_be_bytes([0, fixed[1] & 0x0f, fixed[2], fixed[3]]),
            dont_fragment: true,
            total_len: header.total_len,
            header_len: IPV6_HEADER_LEN,
            protocol: chain.protocol,
            upper: chain.upper,
            fragment: chain.fragment,
            later_fragment: chain.later_fragment,
            ports: ports(chain.protocol, chain.later_fragment, upper),
        })
    }

    /// The next layer protocol, if it can be seen. A later fragment of IPv6 may begin with an extension header, and
    /// does not hold the rest of the chain.
    fn next_layer(&self) -> Option<u8> {
        let hidden = self.later_fragment
            && self.version == IpVersion::V6
            && matches!(
                self.protocol,
                HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
            );
        (!hidden).then_some(self.protocol)
    }

    /// The selector fields of a packet that leaves the protected side.
    pub fn outbound_flow(&self) -> Flow {
        Flow {
            local: self.source,
            remote: self.destination,
            protocol: self.next_layer(),
            ports: self.ports,
            dscp: self.tos >> 2,
            interface: 0,
        }
    }

    /// The selector fields of a packet that enters the protected side.
    pub fn inbound_flow(&self) -> Flow {
        Flow {
            local: self.destination,
            remote: self.source,
            protocol: self.next_layer(),
            ports: self
                .ports
                .map(|(source, destination)| (destination, source)),
            dscp: self.tos >> 2,
            interface: 0,
        }
    }
}

/// The end of a chain of IPv6 extension headers.
struct ExtensionChain {
    protocol: u8,
    upper: usize,
    fragment: bool,
    later_fragment: bool,
}

impl ExtensionChain {
    /// Skips the extension headers that RFC 4301 §4.4.1.1 skips by default.
    fn walk(packet: &[u8], first: u8) -> Option<Self> {
        let mut chain = Self {
            protocol: first,
            upper: IPV6_HEADER_LEN,
            fragment: false,
            later_fragment: false,
        };
        for _ in 0..EXTENSION_HEADERS_MAX {
            let len = match chain.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    8 + usize::from(*packet.get(chain.upper + 1)?) * 8
                }
                FRAGMENT => {
                    chain.fragment = true;
                    chain.later_fragment = be16(packet, chain.upper + 2)? & 0xfff8 != 0;
                    8
                }
                _ => return Some(chain),
            };
            let at = chain.upper;
            chain.upper = at.checked_add(len).filter(|&end| end <= packet.len())?;
            chain.protocol = *packet.get(at)?;
            if chain.later_fragment {
                return Some(chain);
            }
        }
        None
    }
}

fn ports(protocol: u8, later_fragment: bool, upper: &[u8]) -> Option<(u16, u16)> {
    if later_fragment {
        return None;
    }
    match protocol {
        PROTOCOL_TCP | PROTOCOL_UDP | PROTOCOL_SCTP | PROTOCOL_DCCP | PROTOCOL_UDP_LITE => {
            Some((be16(upper, 0)?, be16(upper, 2)?))
        }
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => be16(upper, 0).map(|type_code| (type_code, type_code)),
        _ => None,
    }
}
