//! ICMP errors (RFC 792, RFC 4443): makes them for inner senders (RFC 4301 §6 and §8.2), and reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, IpView, PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use super::{IpVersion, be16, be32, checksum};

/// The longest IPv4 error message in bytes (RFC 1812 §4.3.2.3).
const V4_LEN_MAX: usize = 576;
/// The longest IPv6 error message in bytes: the minimum MTU (RFC 4443 §2.4).
const V6_LEN_MAX: usize = 1280;
const ICMP_HEADER_LEN: usize = 8;

const V4_UNREACHABLE: u8 = 3;
const V4_FRAGMENTATION_NEEDED: u8 = 4;
const V4_TIME_EXCEEDED: u8 = 11;
const V4_PARAMETER_PROBLEM: u8 = 12;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_PARAMETER_PROBLEM: u8 = 4;
const V6_REDIRECT: u8 = 137;

/// The problem that an ICMP error reports about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpProblem {
    /// The packet needs fragmentation and forbids it. `mtu` is the length in bytes of the largest packet that would
    /// pass.
    TooBig { mtu: u32 },
    /// A policy discards the packet (RFC 4301 §6: communication administratively prohibited).
    Prohibited,
}

impl IcmpProblem {
    fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::TooBig { mtu } => (V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED, mtu.min(0xffff)),
            Self::Prohibited => (V4_UNREACHABLE, 13, 0),
        }
    }

    fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::TooBig { mtu } => (V6_TOO_BIG, 0, mtu),
            Self::Prohibited => (V6_UNREACHABLE, 1, 0),
        }
    }
}

/// Makes the error message about `packet`, from which `view` was parsed, for the sender of the packet. Returns `None`
/// if no error is allowed (RFC 1122 §3.2.2, RFC 4443 §2.4). No error is about ICMP errors, later fragments, or packets
/// whose source or destination is not a single host.
///
/// The source of the message is the packet's destination. On the protected side an address of the gateway would look
/// spoofed; the packet's destination does not, because the route to it leads here.
pub fn error_about(packet: &[u8], view: &IpView, problem: IcmpProblem) -> Option<Vec<u8>> {
    if view.later_fragment || !is_host(view.source) || !is_host(view.destination) {
        return None;
    }
    let packet = packet.get(..view.total_len)?;
    if is_error(packet, view) {
        return None;
    }
    match (view.destination, view.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => error_v4(packet, from, to, problem),
        (IpAddr::V6(from), IpAddr::V6(to)) => error_v6(packet, from, to, problem),
        _ => None,
    }
}

fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            // The block 240/4 has no hosts, and its last address is the broadcast address.
            let unusable = a.is_unspecified() || a.is_loopback() || a.is_multicast();
            !unusable && a.octets()[0] < 240
        }
        IpAddr::V6(a) => !a.is_unspecified() && !a.is_loopback() && !a.is_multicast(),
    }
}

/// Returns true for ICMP errors, and for ICMP that is cut off before its type.
fn is_error(packet: &[u8], view: &IpView) -> bool {
    let kind = packet.get(view.upper);
    match (view.version, view.protocol) {
        (IpVersion::V4, PROTOCOL_ICMP) => !matches!(kind, Some(0 | 8..=10 | 13..=18)),
        // Types below 128 are errors (RFC 4443 §2.1). Redirects count as errors here (RFC 4443 §2.4 e.2).
        (IpVersion::V6, PROTOCOL_ICMPV6) => {
            kind.is_none_or(|kind| *kind < 128 || *kind == V6_REDIRECT)
        }
        _ => false,
    }
}

fn error_v4(about: &[u8], from: Ipv4Addr, to: Ipv4Addr, problem: IcmpProblem) -> Option<Vec<u8>> {
    let room = V4_LEN_MAX - IPV4_HEADER_LEN - ICMP_HEADER_LEN;
    let quoted = about.get(..about.len().min(room))?;
    let total = (IPV4_HEADER_LEN + ICMP_HEADER_LEN + quoted.len()) as u16;
    let [from, to] = [from.octets(), to.octets()];
    let [len_high, len_low] = total.to_be_bytes();
    // The header has DSCP CS6 (RFC 1812 §4.3.2.5), no identification, DF, and TTL 64.
    let fixed = [
        0x45,
        0xc0,
        len_high,
        len_low,
        0,
        0,
        0x40,
        0,
        64,
        PROTOCOL_ICMP,
    ];
    let sum = checksum::sum(checksum::sum(checksum::sum(0, &fixed), &from), &to);
    let mut message = Vec::with_capacity(total.into());
    message.extend_from_slice(&fixed);
    message.extend_from_slice(&checksum::fold(sum).to_be_bytes());
    message.extend_from_slice(&from);
    message.extend_from_slice(&to);
    push_icmp(&mut message, problem.v4(), quoted, 0);
    Some(message)
}

fn error_v6(about: &[u8], from: Ipv6Addr, to: Ipv6Addr, problem: IcmpProblem) -> Option<Vec<u8>> {
    let room = V6_LEN_MAX - IPV6_HEADER_LEN - ICMP_HEADER_LEN;
    let quoted = about.get(..about.len().min(room))?;
    let payload = (ICMP_HEADER_LEN + quoted.len()) as u16;
    let mut message = Vec::with_capacity(IPV6_HEADER_LEN + usize::from(payload));
    message.extend_from_slice(&[0x60, 0, 0, 0]);
    message.extend_from_slice(&payload.to_be_bytes());
    message.extend_from_slice(&[PROTOCOL_ICMPV6, 64]);
    message.extend_from_slice(&from.octets());
    message.extend_from_slice(&to.octets());
    let pseudo = u64::from(payload) + u64::from(PROTOCOL_ICMPV6);
    let pseudo = checksum::sum(checksum::sum(pseudo, &from.octets()), &to.octets());
    push_icmp(&mut message, problem.v6(), quoted, pseudo);
    Some(message)
}

fn push_icmp(
    message: &mut Vec<u8>,
    (kind, code, value): (u8, u8, u32),
    quoted: &[u8],
    pseudo: u64,
) {
    let [head, value] = [[kind, code, 0, 0], value.to_be_bytes()];
    let sum = checksum::sum(checksum::sum(checksum::sum(pseudo, &head), &value), quoted);
    message.extend_from_slice(&[kind, code]);
    message.extend_from_slice(&checksum::fold(sum).to_be_bytes());
    message.extend_from_slice(&value);
    message.extend_from_slice(quoted);
}

/// An ICMP error, as parsed: it quotes a packet that somebody sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported<'a> {
    pub kind: u8,
    pub code: u8,
    /// The MTU that "fragmentation needed" and "packet too big" report. It is zero from routers older than RFC 1191.
    pub mtu: Option<u32>,
    /// The quoted packet: an IP header and at least eight bytes, cut off somewhere.
    pub about: &'a [u8],
}

/// Reads the ICMP error in a packet from which `view` was parsed. Returns `None` unless the bytes are an ICMP error
/// with an intact quote.
pub fn parse_error<'a>(packet: &'a [u8], view: &IpView) -> Option<Reported<'a>> {
    if view.later_fragment || !is_error(packet, view) {
        return None;
    }
    let message = packet.get(view.upper..view.total_len)?;
    let pseudo = match (view.source, view.destination, view.version) {
        (IpAddr::V6(from), IpAddr::V6(to), IpVersion::V6) if view.protocol == PROTOCOL_ICMPV6 => {
            let pseudo = message.len() as u64 + u64::from(PROTOCOL_ICMPV6);
            checksum::sum(checksum::sum(pseudo, &from.octets()), &to.octets())
        }
        (_, _, IpVersion::V4) if view.protocol == PROTOCOL_ICMP => 0,
        _ => return None,
    };
    if checksum::fold(checksum::sum(pseudo, message)) != 0 {
        return None;
    }
    read_error(view.version, message)
}

/// Returns true if the packet is an ICMP error that a router or host on the way sends about another packet. Source
/// Quench is excluded because it is no longer sent (RFC 6633). A Redirect is excluded because it says nothing beyond
/// its own link.
pub fn is_transit_error(packet: &[u8], view: &IpView) -> bool {
    if view.later_fragment {
        return false;
    }
    let kind = packet.get(view.upper).copied();
    match (view.version, view.protocol) {
        (IpVersion::V4, PROTOCOL_ICMP) => matches!(
            kind,
            Some(V4_UNREACHABLE | V4_TIME_EXCEEDED | V4_PARAMETER_PROBLEM)
        ),
        (IpVersion::V6, PROTOCOL_ICMPV6) => {
            matches!(kind, Some(V6_UNREACHABLE..=V6_PARAMETER_PROBLEM))
        }
        _ => false,
    }
}

/// Returns the packet that a transit error quotes, as far as it is quoted. Returns `None` unless the error is whole,
/// its checksum is right, and its destination is the sender of the quoted packet. The quoted packet must also be a
/// packet that errors are sent about (RFC 1122 §3.2.2, RFC 4443 §2.4 e). It is no ICMP error and no later fragment.
pub fn quoted(packet: &[u8], view: &IpView) -> Option<IpView> {
    if view.fragment || !is_transit_error(packet, view) || !is_host(view.source) {
        return None;
    }
    let about = parse_error(packet, view)?.about;
    let quoted = IpView::parse_quoted(about)?;
    let sound = quoted.version == view.version
        && quoted.source == view.destination
        && !quoted.later_fragment
        && about.len() >= quoted.upper + 8
        && !is_error(about, &quoted);
    sound.then_some(quoted)
}

/// Reads an ICMP error whose checksum the caller has already verified.
pub fn read_error(version: IpVersion, message: &[u8]) -> Option<Reported<'_>> {
    let (head, about) = message.split_first_chunk::<ICMP_HEADER_LEN>()?;
    let (kind, code) = (head[0], head[1]);
    let mtu = match (version, kind, code) {
        (IpVersion::V4, V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED) => be16(head, 6).map(u32::from),
        (IpVersion::V6, V6_TOO_BIG, _) => be32(head, 4),
        _ => None,
    };
    let header_len = match about.first()? >> 4 {
        4 => usize::from(about.first()? & 0x0f) * 4,
        6 => IPV6_HEADER_LEN,
        _ => return None,
    };
    (about.len() >= header_len + 8).then_some(Reported {
        kind,
        code,
        mtu,
        about,
    })
}
