//! Makes packets and selectors over few addresses and ports, so that packets often match.

use std::net::IpAddr;

use esplanade_testkit::model::{self, Ports, Protocol, Selector};

use super::choices::Choices;

const PROTOCOLS: [u8; 6] = [17, 6, 1, 58, 132, 89];
const PORTS: [u16; 5] = [53, 80, 443, 5000, 5001];

/// An address. `side` 0 is local to the sender, 1 to the receiver.
fn address(choices: &mut Choices<'_>, v4: bool, side: u8) -> IpAddr {
    let host = choices.of(&[0, 0, 0, 0, 1, 2, 3]);
    let net = choices.of(&[0, 0, 0, 1]);
    address_of(v4, side, net, host)
}

/// The address of a gateway, for the packets of transport mode.
pub fn gateway(v4: bool, side: u8) -> IpAddr {
    address_of(v4, side, 0, 0)
}

fn address_of(v4: bool, side: u8, net: u8, host: u8) -> IpAddr {
    match v4 {
        true => IpAddr::from([10, side, net, host]),
        false => {
            let mut octets = [0; 16];
            octets[..6].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, side]);
            (octets[14], octets[15]) = (net, host);
            IpAddr::from(octets)
        }
    }
}

fn upper(choices: &mut Choices<'_>, protocol: u8) -> Vec<u8> {
    let mut upper = Vec::new();
    match protocol {
        1 | 58 => upper.extend([choices.of(&[0, 3, 8, 128]), choices.below(2) as u8, 0, 0]),
        _ => {
            upper.extend(choices.of(&PORTS).to_be_bytes());
            upper.extend(choices.of(&PORTS).to_be_bytes());
        }
    }
    let len = choices.of(&[0, 4, 8, 9, 30, 61, 200]);
    upper.extend((0..len).map(|i| i as u8));
    // Some packets are too short for the fields that selectors look at.
    if choices.once_in(20) {
        upper.truncate(choices.below(4));
    }
    upper
}

/// Makes a packet from the sender's side to the receiver's. A few packets are malformed.
pub fn packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let v4 = choices.below(3) != 2;
    let (mut from, mut to) = (0, 1);
    if choices.once_in(12) {
        (from, to) = (1, 0);
    }
    let mut packet = match choices.once_in(6) {
        true => icmp_error(choices, v4),
        false => well_formed(choices, v4, from, to),
    };
    spoil(choices, &mut packet);
    packet
}

/// Makes an ICMP error about a packet of the receiver, from an address at the sender's side. Most errors are well
/// formed.
fn icmp_error(choices: &mut Choices<'_>, v4: bool) -> Vec<u8> {
    let mut quoted = well_formed(choices, v4, 1, 0);
    let routers = match v4 {
        true => [IpAddr::from([203, 0, 113, 1]), address_of(v4, 0, 0, 1)],
        false => [IpAddr::from([0x20; 16]), address_of(v4, 0, 0, 1)],
    };
    let mut packet = match choices.of(&routers) {
        IpAddr::V4(router) => {
            let mut packet = vec![0x45, 0xc0, 0, 0, 0, 9, 0, 0, 63, 1, 0, 0];
            packet.extend(router.octets());
            packet.extend(&quoted[12..16]);
            packet
        }
        IpAddr::V6(router) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, 58, 63];
            packet.extend(router.octets());
            packet.extend(&quoted[8..24]);
            packet
        }
    };
    if choices.once_in(10) {
        // The error is for another host.
        *packet.last_mut().expect("an address") ^= 1;
    }
    let upper = packet.len();
    let kind = choices.of(&[1u8, 2, 3, 3, 3, 4, 11, 12, 5, 128]);
    packet.extend([kind, choices.below(5) as u8, 0, 0, 0, 0, 5, 0]);
    if choices.once_in(4) {
        quoted.truncate(choices.below(quoted.len() + 1));
    }
    packet.extend(quoted);
    model::complete(&mut packet);
    let mut covered = Vec::new();
    if !v4 {
        covered.extend(&packet[8..40]);
        covered.extend([0, 0, packet[4], packet[5], 0, 0, 0, 58]);
    }
    covered.extend(&packet[upper..]);
    if !choices.once_in(10) {
        let sum = model::checksum(&covered);
        packet[upper + 2..upper + 4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn well_formed(choices: &mut Choices<'_>, v4: bool, from: u8, to: u8) -> Vec<u8> {
    let (source, destination) = (address(choices, v4, from), address(choices, v4, to));
    let protocol = choices.of(&PROTOCOLS);
    let tos = choices.of(&[0, 0, 1, 2, 3, 0xb8, 0xb9, 0x28]);
    let upper = upper(choices, protocol);
    let mut packet = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let flags = choices.of(&[0u16, 0x4000, 0x4000, 0x4000, 0x2000, 0x0005, 0x2007]);
            let options: &[u8] = choices.of(&[&[], &[], &[], &[0x94, 4, 0, 0], &[1, 1, 1, 0]]);
            let id = choices.of(&[9, 9, 0]);
            let mut packet = vec![0x45 + (options.len() / 4) as u8, tos, 0, 0, 0, id];
            packet.extend(flags.to_be_bytes());
            packet.extend([63, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet.extend(options);
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, 0, 63];
            packet.extend(source.octets());
            packet.extend(destination.octets());
            extension_headers(choices, &mut packet, protocol);
            packet
        }
        _ => unreachable!("both are of one version"),
    };
    packet.extend(upper);
    model::complete(&mut packet);
    packet
}

fn extension_headers(choices: &mut Choices<'_>, packet: &mut Vec<u8>, protocol: u8) {
    let mut field = 6;
    for _ in 0..choices.of(&[0, 0, 0, 1, 2]) {
        let kind = choices.of(&[0u8, 43, 44, 60]);
        packet[field] = kind;
        field = packet.len();
        match kind {
            44 => {
                let offset = choices.of(&[0u16, 1, 8, 9]).to_be_bytes();
                packet.extend([0, 0, offset[0], offset[1], 0, 0, 0, 1]);
            }
            43 => packet.extend([0, 0, 2, 0, 0, 0, 0, 0]),
            _ => packet.extend([0, 0, 1, 4, 0, 0, 0, 0]),
        }
    }
    packet[field] = protocol;
}

fn spoil(choices: &mut Choices<'_>, packet: &mut Vec<u8>) {
    match choices.below(40) {
        39 => packet.truncate(choices.below(packet.len() + 1)),
        38 => {
            // The IPv6 next header stays: the model does not read option headers that nobody wrote.
            let at = choices.below(packet.len());
            if packet[0] >> 4 != 6 || !(6..=40).contains(&at) {
                packet[at] ^= 1 << choices.below(8);
            }
        }
        // Bytes follow the packet, such as an Ethernet trailer.
        37 => packet.extend([0; 7]),
        _ => {}
    }
}

/// Selects every packet of one IP version.
pub fn everything(v4: bool) -> Selector {
    Selector {
        local: all(v4),
        remote: all(v4),
        protocol: Protocol::Any,
        local_ports: Ports::Any,
        remote_ports: Ports::Any,
    }
}

fn all(v4: bool) -> (IpAddr, IpAddr) {
    match v4 {
        true => (IpAddr::from([0; 4]), IpAddr::from([255; 4])),
        false => (IpAddr::from([0; 16]), IpAddr::from([255; 16])),
    }
}

fn range(choices: &mut Choices<'_>, v4: bool, side: u8) -> (IpAddr, IpAddr) {
    let (a, b) = (address(choices, v4, side), address(choices, v4, side));
    match choices.below(4) {
        0 => all(v4),
        1 => (a, a),
        _ => (a.min(b), a.max(b)),
    }
}

fn ports(choices: &mut Choices<'_>) -> Ports {
    match choices.below(6) {
        0 => Ports::Opaque,
        1 => {
            let (a, b) = (choices.of(&PORTS), choices.of(&PORTS));
            Ports::Range(a.min(b), a.max(b))
        }
        // The range covers ICMP type 8 with any code.
        2 => Ports::Range(0x0800, 0x08ff),
        _ => Ports::Any,
    }
}

/// Makes a selector, seen from the sender.
pub fn selector(choices: &mut Choices<'_>) -> Selector {
    let v4 = choices.below(3) != 2;
    let specific = choices.once_in(3);
    Selector {
        local: range(choices, v4, 0),
        remote: range(choices, v4, 1),
        protocol: match choices.below(8) {
            0 => Protocol::Opaque,
            1..4 => Protocol::Is(choices.of(&PROTOCOLS)),
            _ => Protocol::Any,
        },
        local_ports: if specific { ports(choices) } else { Ports::Any },
        remote_ports: if specific { ports(choices) } else { Ports::Any },
    }
}

/// The selector, seen from the other end.
pub fn turned(selector: &Selector) -> Selector {
    Selector {
        local: selector.remote,
        remote: selector.local,
        protocol: selector.protocol,
        local_ports: selector.remote_ports,
        remote_ports: selector.local_ports,
    }
}
