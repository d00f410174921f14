//! Tests ICMP errors through SAs for certain ports only (RFC 4301 §6.2). The quoted packet decides about them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::common::{
    LEFT, RIGHT, Tunnel, address, assert_reconciled, ipv4, ipv6, key_material, parameters, prefix,
};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::outbound::{ArenaPacket, Outbound, Outcome, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, Mode, SaParameters};
use esplanade_ipsec::selector::{NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Spd, SpdEntry};
use esplanade_ipsec::wire::checksum;
use proptest::prelude::*;

const TRANSFORM: Transform = Transform::ESP[0];
const UDP: u8 = 17;
const HOSTS: [[&str; 2]; 2] = [["10.1.0.7", "10.2.0.9"], ["2001:db8:1::7", "2001:db8:2::9"]];
const ROUTERS: [&str; 2] = ["203.0.113.1", "2001:db8:77::1"];

/// Selects UDP between any port and port 40001 of the right site.
fn narrow([local, remote]: [[&str; 2]; 2], at_local: bool) -> SelectorSet {
    let service = PortRange::Range(40_001, 40_001);
    let (local_ports, remote_ports) = match at_local {
        true => (service, PortRange::Any),
        false => (PortRange::Any, service),
    };
    let of_version = |i: usize| Selector {
        protocol: NextLayer::Is(UDP),
        local_ports,
        remote_ports,
        ..Selector::between(prefix(local[i]), prefix(remote[i]))
    };
    SelectorSet::new(vec![of_version(0), of_version(1)]).expect("two")
}

fn tunnel(left: IcmpErrors, right: IcmpErrors) -> Tunnel {
    let selectors = narrow([LEFT, RIGHT], false);
    let mut tunnel = Tunnel::with(TRANSFORM, false, |parameters| {
        parameters.selectors = selectors.clone();
        parameters.icmp_errors = left;
    });
    let protect = Action::Protect(Arc::clone(&tunnel.policy));
    tunnel.spd = Spd::new(vec![SpdEntry::new(selectors.clone(), protect)]);
    receive_with(&mut tunnel, narrow([RIGHT, LEFT], true), right);
    tunnel
}

fn receive_with(tunnel: &mut Tunnel, selectors: SelectorSet, icmp_errors: IcmpErrors) {
    let key = key_material(TRANSFORM);
    let inbound = InboundSa::new(SaParameters {
        selectors,
        icmp_errors,
        ..parameters(TRANSFORM, false, tunnel.outbound_sa.common.spi, &key)
    });
    tunnel.inbound_sa = Arc::new(inbound.expect("good keys"));
    let sad = tunnel.database.sad();
    sad.insert(Arc::clone(&tunnel.inbound_sa))
        .expect("allocated");
}

fn ip(source: &str, destination: &str, protocols: [u8; 2], payload: &[u8]) -> Vec<u8> {
    match address(source) {
        IpAddr::V4(_) => ipv4(source, destination, protocols[0], 0, payload),
        IpAddr::V6(_) => ipv6(source, destination, protocols[1], 0, payload),
    }
}

/// A datagram as the right site sent it to the left site.
fn datagram(version: usize, port: u16) -> Vec<u8> {
    let mut udp = port.to_be_bytes().to_vec();
    udp.extend([0x13, 0x88, 0, 24, 0, 0]);
    udp.extend([7; 16]);
    ip(HOSTS[version][1], HOSTS[version][0], [UDP, UDP], &udp)
}

fn fill_checksum(packet: &mut [u8]) {
    let v6 = packet[0] >> 4 == 6;
    let upper = if v6 { 40 } else { 20 };
    packet[upper + 2..upper + 4].fill(0);
    let pseudo = match v6 {
        true => checksum::sum((packet.len() - 40 + 58) as u64, &packet[8..40]),
        false => 0,
    };
    let sum = checksum::fold(checksum::sum(pseudo, &packet[upper..]));
    packet[upper + 2..upper + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Makes "fragmentation needed" or "packet too big" from a router behind the left gateway to the right site's host.
fn error_about(version: usize, quoted: &[u8]) -> Vec<u8> {
    let kind = [[3, 4, 0, 0, 0, 0, 4, 0], [2, 0, 0, 0, 0, 0, 5, 0]][version];
    error_of(version, kind, HOSTS[version][1], quoted)
}

fn error_of(version: usize, head: [u8; 8], destination: &str, quoted: &[u8]) -> Vec<u8> {
    let message = [&head, quoted].concat();
    let mut packet = ip(ROUTERS[version], destination, [1, 58], &message);
    fill_checksum(&mut packet);
    packet
}

/// Returns an error unless the left gateway has an SA for the packet.
fn leaves(tunnel: &mut Tunnel, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    match tunnel.outbound.push(&tunnel.spd, packet).expect("room") {
        Outcome::Protect(_) => Ok(tunnel.seal(&[]).remove(0)),
        Outcome::Bypass => panic!("there is no Bypass"),
        Outcome::Dropped(reason) => Err(reason),
    }
}

/// The right gateway's result for a packet that arrives through the SA, whatever the left gateway would do.
fn arrives(tunnel: &mut Tunnel, packet: &[u8]) -> Result<(), DropReason> {
    let any = |i: usize| {
        Selector::between(
            prefix(["0.0.0.0/0", "::/0"][i]),
            prefix(["0.0.0.0/0", "::/0"][i]),
        )
    };
    let all = SelectorSet::new(vec![any(0), any(1)]).expect("two");
    let protect = Action::Protect(Arc::clone(&tunnel.policy));
    let spd = std::mem::replace(
        &mut tunnel.spd,
        Spd::new(vec![SpdEntry::new(all.clone(), protect)]),
    );
    let before: Vec<_> = tunnel.inbound.counters().drops.iter().collect();
    let narrow = Arc::clone(&tunnel.outbound_sa);
    let key = key_material(TRANSFORM);
    let wide = SaParameters {
        selectors: all,
        ..parameters(TRANSFORM, false, narrow.common.spi, &key)
    };
    let next = tunnel.inbound_sa.replay.top() + 1;
    let sequence = esplanade_ipsec::sequence::SequenceAllocator::starting_at(next, false);
    let wide = esplanade_ipsec::sa::OutboundSa::with_sequence(wide, sequence);
    tunnel.policy.remove(narrow.common.spi);
    tunnel.policy.install(Arc::new(wide.expect("good keys")));
    let sealed = tunnel.seal(&[packet.to_vec()]);
    tunnel.policy.remove(narrow.common.spi);
    tunnel.policy.install(narrow);
    tunnel.spd = spd;
    let opened = tunnel.open(&sealed);
    assert_reconciled(tunnel.inbound.counters());
    let after = tunnel.inbound.counters().drops.iter();
    let dropped = after.zip(before).find(|(after, before)| after != before);
    match dropped {
        None => {
            assert_eq!(opened, [packet.to_vec()]);
            Ok(())
        }
        Some(((reason, _), _)) => {
            assert!(opened.is_empty());
            assert_eq!(tunnel.inbound_sa.common.drops.get(reason), 1);
            Err(reason)
        }
    }
}

fn default_tunnel() -> Tunnel {
    tunnel(IcmpErrors::default(), IcmpErrors::default())
}

// RFC 4301 R47, R48, R49, R123
#[test]
fn an_error_goes_and_comes_with_the_flow_that_it_is_about() {
    let mut tunnel = default_tunnel();
    for version in [0, 1] {
        let error = error_about(version, &datagram(version, 40_001));
        let sealed = leaves(&mut tunnel, &error).expect("the SA of the flow");
        assert_eq!(tunnel.open(&[sealed]), [error]);
    }
    assert_reconciled(tunnel.outbound.counters());
    assert_reconciled(tunnel.inbound.counters());
}

// RFC 4301 R48, R49
#[test]
fn an_error_about_other_traffic_goes_nowhere() {
    let mut tunnel = default_tunnel();
    for version in [0, 1] {
        let error = error_about(version, &datagram(version, 40_002));
        assert_eq!(leaves(&mut tunnel, &error), Err(DropReason::NoPolicy));
    }
    for version in [0, 1] {
        let mut tunnel = default_tunnel();
        let error = error_about(version, &datagram(version, 40_002));
        let mismatch = Err(DropReason::IcmpErrorMismatch);
        assert_eq!(arrives(&mut tunnel, &error), mismatch);
    }
    assert_reconciled(tunnel.outbound.counters());
}

/// An error raises no acquire (RFC 4301 §6.2).
#[test]
fn an_error_asks_for_no_sa() {
    let mut tunnel = default_tunnel();
    tunnel.policy.remove(tunnel.outbound_sa.common.spi);
    let error = error_about(0, &datagram(0, 40_001));
    assert_eq!(leaves(&mut tunnel, &error), Err(DropReason::NoPolicy));
    assert_eq!(tunnel.outbound.drain_events().count(), 0);
}

/// An administrator's Discard applies to errors too.
#[test]
fn an_explicit_discard_stands() {
    let mut tunnel = default_tunnel();
    let any = prefix("0.0.0.0/0");
    let icmp = Selector {
        protocol: NextLayer::Is(1),
        ..Selector::between(any, any)
    };
    let icmp = SelectorSet::new(vec![icmp]).expect("one");
    let protect = Action::Protect(Arc::clone(&tunnel.policy));
    tunnel.spd = Spd::new(vec![
        SpdEntry::new(icmp, Action::Discard),
        SpdEntry::new(narrow([LEFT, RIGHT], false), protect),
    ]);
    let error = error_about(0, &datagram(0, 40_001));
    assert_eq!(leaves(&mut tunnel, &error), Err(DropReason::PolicyDiscard));
}

// RFC 4301 R47
#[test]
fn a_child_can_go_by_the_header_alone() {
    let mut tunnel = tunnel(IcmpErrors::Header, IcmpErrors::Header);
    let error = error_about(0, &datagram(0, 40_001));
    assert_eq!(leaves(&mut tunnel, &error), Err(DropReason::NoPolicy));
    let mismatch = Err(DropReason::SelectorMismatch);
    assert_eq!(arrives(&mut tunnel, &error), mismatch);
}

/// With selectors for any protocol, an error about other traffic passes unless the SA is strict.
// RFC 4301 R47
#[test]
fn a_child_can_be_strict_where_the_header_would_do() {
    for (mode, expected) in [
        (IcmpErrors::Quoted, Ok(())),
        (IcmpErrors::Header, Ok(())),
        (IcmpErrors::Strict, Err(DropReason::IcmpErrorMismatch)),
    ] {
        let mut tunnel = default_tunnel();
        receive_with(&mut tunnel, crate::common::selectors(RIGHT, LEFT), mode);
        let others = ip(HOSTS[0][1], "192.0.2.99", [UDP, UDP], &[0; 16]);
        let mut error = ip(
            "10.1.0.1",
            HOSTS[0][1],
            [1, 58],
            &[&[3, 1, 0, 0, 0, 0, 0, 0], &others[..]].concat(),
        );
        fill_checksum(&mut error);
        assert_eq!(arrives(&mut tunnel, &error), expected, "{mode:?}");
        let mut tunnel = default_tunnel();
        receive_with(&mut tunnel, crate::common::selectors(RIGHT, LEFT), mode);
        // The right host sent this packet into the tunnel.
        let sent = ip(HOSTS[0][1], HOSTS[0][0], [UDP, UDP], &[0; 16]);
        let good = error_of(0, [3, 1, 0, 0, 0, 0, 0, 0], HOSTS[0][1], &sent);
        let expected = match mode {
            IcmpErrors::Header => Err(DropReason::SelectorMismatch),
            _ => Ok(()),
        };
        assert_eq!(arrives(&mut tunnel, &good), expected, "{mode:?}");
        assert_eq!(arrives(&mut tunnel, &crate::common::inner(4, b"x")), Ok(()));
    }
}

/// Errors without a usable quote are dropped at both ends.
// RFC 4301 R48, R49
#[test]
fn hostile_errors_are_refused() {
    let sent = datagram(0, 40_001);
    let good = error_about(0, &sent);
    let mut damaged = good.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    let mut fragment = good.clone();
    fragment[6] = 0x20;
    fragment[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &fragment[..20]));
    fragment[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut later = sent.clone();
    later[7] = 9;
    let mut in_error = error_about(0, &sent);
    // The error looks as if the right host had reported about our packet.
    in_error[12..16].copy_from_slice(&[10, 2, 0, 9]);
    in_error[16..20].copy_from_slice(&[10, 1, 0, 7]);
    let mut short_header = sent.clone();
    short_header[0] = 0x44;
    let v6 = datagram(1, 40_001);
    let malformed = [
        ("damaged", damaged),
        ("a fragment", fragment),
        (
            "for another host",
            error_of(0, [3, 4, 0, 0, 0, 0, 4, 0], "10.2.0.10", &sent),
        ),
        ("about a later fragment", error_about(0, &later)),
        ("about an error", error_about(0, &in_error)),
        ("quotes too little", error_about(0, &sent[..27])),
        ("quotes no header", error_about(0, &sent[..12])),
        ("quotes nothing", error_about(0, &[])),
        ("quotes a short header", error_about(0, &short_header)),
        ("quotes IPv6 in IPv4", error_about(0, &v6)),
    ];
    for (what, error) in malformed {
        let mut tunnel = default_tunnel();
        let reason = arrives(&mut tunnel, &error);
        assert_eq!(reason, Err(DropReason::MalformedIcmpError), "{what}");
        let reason = leaves(&mut tunnel, &error);
        assert_eq!(reason, Err(DropReason::NoPolicy), "{what}");
        let kinds: Vec<_> = tunnel
            .inbound
            .drain_audits()
            .map(|(e, n)| (e.kind.name(), n))
            .collect();
        assert_eq!(kinds, [("icmp-error", 1)], "{what}");
    }
    // A Redirect, an echo request and a Source Quench are no errors about a path.
    for kind in [5, 8, 4] {
        let mut tunnel = default_tunnel();
        let other = error_of(0, [kind, 0, 0, 0, 0, 0, 0, 0], HOSTS[0][1], &sent);
        let mismatch = Err(DropReason::SelectorMismatch);
        assert_eq!(arrives(&mut tunnel, &other), mismatch);
        assert_eq!(leaves(&mut tunnel, &other), Err(DropReason::NoPolicy));
    }
    // A router must quote only eight bytes of the upper layer, and it may have changed the header.
    let mut quoted = sent[..28].to_vec();
    quoted[8] -= 1;
    let mut tunnel = default_tunnel();
    assert_eq!(arrives(&mut tunnel, &error_about(0, &quoted)), Ok(()));
}

#[test]
fn extension_headers_of_the_quoted_packet_are_skipped() {
    let plain = datagram(1, 40_001);
    let mut sent = plain[..40].to_vec();
    sent[6] = 60;
    sent.extend([UDP, 0, 1, 4, 0, 0, 0, 0]);
    sent.extend(&plain[40..]);
    let mut tunnel = default_tunnel();
    assert_eq!(arrives(&mut tunnel, &error_about(1, &sent)), Ok(()));
    let cut = error_about(1, &sent[..48]);
    let reason = arrives(&mut tunnel, &cut);
    assert_eq!(reason, Err(DropReason::MalformedIcmpError));
}

/// In transport mode, errors of the peer itself come with the SA for one of its ports.
#[test]
fn transport_mode_takes_the_peers_own_errors() {
    let mut tunnel = default_tunnel();
    let key = key_material(TRANSFORM);
    let host = |text: &str| {
        let address = address(text);
        esplanade_ipsec::selector::AddressRange::new(address, address).expect("one address")
    };
    let only = Selector {
        protocol: NextLayer::Is(UDP),
        local_ports: PortRange::Range(40_001, 40_001),
        ..Selector::between(host("198.51.100.2"), host("192.0.2.1"))
    };
    let inbound = InboundSa::new(SaParameters {
        selectors: SelectorSet::new(vec![only]).expect("one"),
        mode: Mode::Transport,
        path: esplanade_ipsec::sa::Path {
            local: "198.51.100.2:0".parse().expect("an address"),
            remote: "192.0.2.1:0".parse().expect("an address"),
            udp_encap: false,
        },
        ..parameters(TRANSFORM, false, tunnel.outbound_sa.common.spi, &key)
    });
    let inbound = Arc::new(inbound.expect("good keys"));
    let sad = tunnel.database.sad();
    sad.insert(Arc::clone(&inbound)).expect("allocated");
    let mut udp = 40_001u16.to_be_bytes().to_vec();
    udp.extend([0x13, 0x88, 0, 24, 0, 0]);
    udp.extend([7; 16]);
    let sent = ipv4("198.51.100.2", "192.0.2.1", UDP, 0, &udp);
    let unreachable = [&[3, 3, 0, 0, 0, 0, 0, 0], &sent[..]].concat();
    let mut error = ipv4("192.0.2.1", "198.51.100.2", 1, 0, &unreachable);
    fill_checksum(&mut error);

    let key = esplanade_crypto::KeyContext::new(TRANSFORM, false, &key).expect("good keys");
    let mut esp = inbound.common.spi.to_be_bytes().to_vec();
    esp.extend(1u32.to_be_bytes());
    esp.extend(1u64.to_be_bytes());
    esp.extend(&error[20..]);
    let pad = (4 - (error.len() - 20 + 2) % 4) % 4;
    esp.extend((1..=pad as u8).chain([pad as u8, 1]));
    esp.extend([0; 16]);
    let done = esplanade_crypto::cpu::seal(&key, 1, &mut esp);
    assert_eq!(done, esplanade_crypto::JobStatus::Done);
    let outer = ipv4("192.0.2.1", "198.51.100.2", 50, 0, &esp);
    let facts = esplanade_ipsec::tunnel::OuterFacts {
        header_len: 20,
        ..esplanade_ipsec::tunnel::OuterFacts::new("192.0.2.1:0".parse().expect("one"), false, 0)
    };
    assert_eq!(tunnel.open_from(&[outer], &facts), [error]);
}

/// The walk for bursts finds the same SA.
// RFC 4301 R48
#[test]
fn bursts_do_the_same() {
    let mut tunnel = default_tunnel();
    tunnel.outbound = Outbound::new(WalkLimits::default());
    let flow = |port: u16| {
        let mut packet = datagram(0, 5000);
        packet[12..16].copy_from_slice(&[10, 1, 0, 7]);
        packet[16..20].copy_from_slice(&[10, 2, 0, 9]);
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet
    };
    let packets = [
        flow(40_001),
        error_about(0, &datagram(0, 40_001)),
        error_about(0, &datagram(0, 40_002)),
        error_about(1, &datagram(1, 40_001)),
        flow(40_002),
        flow(40_001),
    ];
    let slot = 512;
    let buffer = tunnel.outbound.receive_buffer().expect("free");
    let base = buffer.offset;
    let mut places = Vec::new();
    for (index, packet) in packets.iter().enumerate() {
        let start = index * slot + 96;
        buffer.bytes[start..start + packet.len()].copy_from_slice(packet);
        places.push(ArenaPacket {
            slot_start: (base + index * slot) as u32,
            slot_end: (base + (index + 1) * slot) as u32,
            offset: (base + start) as u32,
            len: packet.len() as u32,
        });
    }
    assert!(tunnel.outbound.commit_received(packets.len() * slot));
    tunnel.outbound.push_burst(&tunnel.spd, &places);
    let sealed = tunnel.seal(&[]);
    let expected = [0, 1, 3, 5].map(|index: usize| packets[index].clone());
    assert_eq!(tunnel.open(&sealed), expected);
    let drops = &tunnel.outbound.counters().drops;
    assert_eq!(drops.get(DropReason::NoPolicy), 2);
    assert_reconciled(tunnel.outbound.counters());
}

proptest! {
    /// Whatever an error quotes, it is judged, and counted once.
    #[test]
    fn any_quote_is_judged(
        version in 0..2usize,
        kind in 0..=255u8,
        len in 0..80usize,
        changes in prop::collection::vec((0..80usize, any::<u8>()), 0..6),
    ) {
        let mut quoted = datagram(version, 40_001);
        for (at, value) in changes {
            if let Some(byte) = quoted.get_mut(at) {
                *byte = value;
            }
        }
        quoted.truncate(len);
        let mut tunnel = default_tunnel();
        let error = error_of(version, [kind, 0, 0, 0, 0, 0, 0, 0], HOSTS[version][1], &quoted);
        let left = leaves(&mut tunnel, &error);
        let arrived = arrives(&mut tunnel, &error);
        // An error that one end sends must be accepted by the other.
        prop_assert_eq!(left.is_ok(), arrived.is_ok());
        assert_reconciled(tunnel.outbound.counters());
    }
}
