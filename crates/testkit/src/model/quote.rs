//! The packet inside an ICMP error (RFC 4301 §6.2).

use super::packet::{Ip, checksum, set_checksum};

/// The header by which an SA decides about ICMP errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpErrors {
    #[default]
    Quoted,
    Header,
    Strict,
}

pub enum Quote {
    /// The packet is no error about another packet.
    None,
    /// The packet is an error, but does not show which packet it is about.
    Useless,
    About(Ip),
}

/// Tells whether an error of this type is about a packet and travels further than one link.
fn reports(version: u8, kind: u8) -> bool {
    match version {
        4 => [3, 11, 12].contains(&kind),
        _ => (1..=4).contains(&kind),
    }
}

/// Tells whether the packet is itself an error, about which no error may be sent.
fn is_error(ip: &Ip, kind: u8) -> bool {
    match (ip.version, ip.protocol) {
        (4, 1) => ![0, 8, 9, 10, 13, 14, 15, 16, 17, 18].contains(&kind),
        (6, 58) => kind < 128 || kind == 137,
        _ => false,
    }
}

fn is_host(ip: &Ip) -> bool {
    let source = ip.source;
    let class_e = matches!(source, std::net::IpAddr::V4(a) if a.octets()[0] >= 240);
    !(source.is_unspecified() || source.is_loopback() || source.is_multicast() || class_e)
}

pub fn quote(packet: &[u8], ip: &Ip) -> Quote {
    let icmp = (ip.version, ip.protocol) == (4, 1) || (ip.version, ip.protocol) == (6, 58);
    let message = &packet[ip.upper..ip.total_len];
    if !icmp || ip.later || message.is_empty() || !reports(ip.version, message[0]) {
        return Quote::None;
    }
    match about(packet, ip, message) {
        Some(about) => Quote::About(about),
        None => Quote::Useless,
    }
}

fn about(packet: &[u8], ip: &Ip, message: &[u8]) -> Option<Ip> {
    let mut covered = Vec::new();
    if ip.version == 6 {
        covered.extend(&packet[8..40]);
        covered.extend((message.len() as u32).to_be_bytes());
        covered.extend([0, 0, 0, 58]);
    }
    covered.extend(message);
    if ip.fragment || !is_host(ip) || checksum(&covered) != 0 {
        return None;
    }
    let there = message.get(8..)?;
    let about = Ip::parse(&mended(there)?)?;
    let kind = *there.get(about.upper)?;
    let usable = about.version == ip.version
        && about.source == ip.destination
        && !about.later
        && there.len() >= about.upper + 8
        && !is_error(&about, kind);
    usable.then_some(about)
}

/// Returns the beginning of a packet with its lengths adjusted, as if it were the whole packet.
fn mended(there: &[u8]) -> Option<Vec<u8>> {
    let mut packet = there.to_vec();
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            if header < 20 || packet.len() < header {
                return None;
            }
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let total = total.min(packet.len()) as u16;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            set_checksum(&mut packet);
        }
        6 if packet.len() >= 40 => {
            let payload = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let payload = payload.min(packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        _ => return None,
    }
    Some(packet)
}
