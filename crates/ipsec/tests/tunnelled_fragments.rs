//! Tests fragments inside tunnels (RFC 4301 §7). An SA without port selectors carries all fragments. An SA with port
//! selectors takes a fragment with hidden ports only after its first fragment.

use std::sync::Arc;

use crate::common::{
    LEFT, RIGHT, Tunnel, assert_reconciled, ipv4, key_material, parameters, selectors,
};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::wire::checksum;

const TRANSFORM: Transform = Transform::ESP[0];

/// A whole UDP packet from port 5000 to port 40001.
fn whole() -> Vec<u8> {
    let mut udp = vec![0x13, 0x88, 0x9c, 0x41, 0, 24, 0, 0];
    udp.extend([1; 16]);
    ipv4("10.1.0.7", "10.2.0.9", 17, 0, &udp)
}

/// The same addresses and protocol with other fragment bits.
fn fragment(flags_and_offset: u16) -> Vec<u8> {
    let mut packet = whole();
    packet[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
    fix_checksum(&mut packet);
    packet
}

fn fix_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

const FIRST: u16 = 0x2000;
const MORE: u16 = 0x2000;
/// The offset right behind the first fragment, in units of 8 bytes.
const LATER: u16 = 3;

// RFC 4301 R50
#[test]
fn an_sa_without_ports_carries_every_fragment() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let packets = [fragment(FIRST), fragment(LATER), whole()];
    let sealed = tunnel.seal(&packets);
    assert_eq!(tunnel.open(&sealed), packets);
}

/// Makes the right end accept only packets that `selector` matches. With `agreed` it also accepts later fragments.
fn narrow(tunnel: &Tunnel, selector: Selector, agreed: bool) -> Arc<InboundSa> {
    let key = key_material(TRANSFORM);
    let narrow = InboundSa::new(SaParameters {
        selectors: SelectorSet::new(vec![selector]).expect("one"),
        non_first_fragments: agreed,
        ..parameters(TRANSFORM, false, tunnel.outbound_sa.common.spi, &key)
    });
    let narrow = Arc::new(narrow.expect("good keys"));
    let sad = tunnel.database.sad();
    sad.insert(Arc::clone(&narrow)).expect("allocated");
    narrow
}

fn of_version(version: usize, protocol: u8, ports: PortRange) -> Selector {
    Selector {
        protocol: NextLayer::Is(protocol),
        local_ports: ports,
        ..selectors(RIGHT, LEFT).as_slice()[version]
    }
}

const SERVICE: PortRange = PortRange::Range(40_001, 40_001);

// RFC 4301 R53, R95
#[test]
fn an_sa_with_ports_takes_no_later_fragment() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(0, 17, SERVICE), false);
    let sealed = tunnel.seal(&[whole(), fragment(FIRST), fragment(LATER), whole()]);
    assert_eq!(tunnel.open(&sealed), [whole(), fragment(FIRST), whole()]);
    assert_eq!(narrow.common.drops.get(DropReason::SelectorMismatch), 1);
}

// RFC 4301 R52, R53, R54
#[test]
fn later_fragments_pass_behind_their_first_where_the_ends_agreed() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(0, 17, SERVICE), true);
    let early = tunnel.seal(&[fragment(LATER)]);
    assert!(tunnel.open(&early).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::UnknownFragment), 1);

    let packets = [fragment(FIRST), fragment(MORE | LATER), fragment(LATER + 3)];
    let sealed = tunnel.seal(&packets);
    assert_eq!(tunnel.open(&sealed), packets);
    // The first fragment has 24 bytes of data. Fragments that overlap them are refused.
    let sealed = tunnel.seal(&[fragment(1), fragment(2), fragment(MORE | 2)]);
    assert!(tunnel.open(&sealed).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::FragmentRefused), 3);
    // One fragment has another identification, and one has another source.
    let mut other = fragment(LATER);
    other[5] += 1;
    let mut neighbour = fragment(LATER);
    neighbour[15] += 1;
    for packet in [&mut other, &mut neighbour] {
        fix_checksum(packet);
    }
    let sealed = tunnel.seal(&[other, neighbour]);
    assert!(tunnel.open(&sealed).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::UnknownFragment), 3);
    let audits: Vec<_> = tunnel.inbound.drain_audits().collect();
    let [(event, count)] = audits[..] else {
        panic!("{audits:?}");
    };
    assert_eq!((event.kind.name(), count), ("refused-fragment", 6));
    let path = narrow.common.path();
    assert_eq!(event.destination, Some(path.local.ip()));
    assert_eq!(
        (event.spi, event.sequence),
        (Some(narrow.common.spi), Some(1))
    );
    assert_reconciled(tunnel.inbound.counters());
}

#[test]
fn a_first_fragment_that_does_not_pass_lets_no_other_pass() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(0, 17, PortRange::Range(53, 53)), true);
    let sealed = tunnel.seal(&[fragment(FIRST), fragment(LATER)]);
    assert!(tunnel.open(&sealed).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::SelectorMismatch), 1);
    assert_eq!(narrow.common.drops.get(DropReason::UnknownFragment), 1);
}

#[test]
fn what_is_known_about_fragments_ages() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(0, 17, SERVICE), true);
    let sealed = tunnel.seal(&[fragment(FIRST), fragment(LATER), fragment(LATER)]);
    tunnel.inbound.set_now_ms(1000);
    assert_eq!(tunnel.open(&sealed[..1]).len(), 1);
    tunnel.inbound.set_now_ms(30_999);
    assert_eq!(tunnel.open(&sealed[1..2]).len(), 1);
    tunnel.inbound.set_now_ms(31_000);
    assert!(tunnel.open(&sealed[2..]).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::UnknownFragment), 1);
}

/// Adds a second SA with the same selectors to the SAD of `tunnel`, and makes its sender.
fn second(tunnel: &Tunnel) -> (Tunnel, Arc<InboundSa>) {
    let other = Tunnel::new(TRANSFORM, false);
    let spi = tunnel.database.sad().allocate_spi().expect("room");
    let key = key_material(TRANSFORM);
    let sa = InboundSa::new(SaParameters {
        selectors: SelectorSet::new(vec![of_version(0, 17, SERVICE)]).expect("one"),
        non_first_fragments: true,
        ..parameters(TRANSFORM, false, spi, &key)
    });
    let sa = Arc::new(sa.expect("good keys"));
    let sad = tunnel.database.sad();
    sad.insert(Arc::clone(&sa)).expect("allocated");
    let outbound = OutboundSa::new(parameters(TRANSFORM, false, spi, &key));
    other.policy.remove(other.outbound_sa.common.spi);
    other.policy.install(Arc::new(outbound.expect("good keys")));
    (other, sa)
}

/// A fragment that passes on one SA says nothing about the other SA.
// RFC 4301 R54
#[test]
fn fragments_pass_on_the_sa_of_their_first() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    narrow(&tunnel, of_version(0, 17, SERVICE), true);
    let (mut other, sa) = second(&tunnel);
    let first = tunnel.seal(&[fragment(FIRST)]);
    let later = other.seal(&[fragment(LATER)]);
    assert_eq!(tunnel.open(&[first, later].concat()), [fragment(FIRST)]);
    assert_eq!(sa.common.drops.get(DropReason::UnknownFragment), 1);
}

/// Flags at the end of TCP's first 16 bytes (RFC 1858, RFC 3128), and packets that are no fragments.
#[test]
fn tiny_first_fragments_are_refused() {
    for (protocol, len, passes) in [(17, 8, true), (6, 8, false), (6, 16, true), (17, 12, false)] {
        let mut tunnel = Tunnel::new(TRANSFORM, false);
        let narrow = narrow(&tunnel, of_version(0, protocol, SERVICE), true);
        let mut first = whole()[..20 + len].to_vec();
        (first[3], first[6], first[9]) = (first.len() as u8, 0x20, protocol);
        fix_checksum(&mut first);
        let sealed = tunnel.seal(&[first]);
        assert_eq!(
            tunnel.open(&sealed).len(),
            usize::from(passes),
            "{protocol} {len}"
        );
        let refused = narrow.common.drops.get(DropReason::FragmentRefused);
        assert_eq!(refused, u64::from(!passes));
    }
}

/// On an SA for fragments only, no fragment may lie where the ports were.
// RFC 4301 R51
#[test]
fn an_sa_for_fragments_checks_their_offset() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(0, 6, PortRange::Opaque), false);
    let tcp = |field| {
        let mut packet = fragment(field);
        packet[9] = 6;
        fix_checksum(&mut packet);
        packet
    };
    let sealed = tunnel.seal(&[tcp(2), tcp(1), tcp(FIRST)]);
    assert_eq!(tunnel.open(&sealed), [tcp(2)]);
    assert_eq!(narrow.common.drops.get(DropReason::FragmentRefused), 1);
    assert_eq!(narrow.common.drops.get(DropReason::SelectorMismatch), 1);
}

#[test]
fn fragments_of_ipv6_too() {
    let piece = |offset: u16, more: u8, id: u8| {
        let mut payload = vec![17, 0];
        payload.extend((offset << 3 | u16::from(more)).to_be_bytes());
        payload.extend([0, 0, 0, id]);
        payload.extend([0x13, 0x88, 0x9c, 0x41, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        crate::common::ipv6("2001:db8:1::7", "2001:db8:2::9", 44, 0, &payload)
    };
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let narrow = narrow(&tunnel, of_version(1, 17, SERVICE), true);
    let packets = [piece(0, 1, 1), piece(2, 1, 1), piece(0, 0, 2)];
    let sealed = tunnel.seal(&packets);
    assert_eq!(tunnel.open(&sealed), packets);
    let sealed = tunnel.seal(&[piece(1, 0, 1), piece(2, 0, 2)]);
    assert!(tunnel.open(&sealed).is_empty());
    assert_eq!(narrow.common.drops.get(DropReason::FragmentRefused), 1);
    assert_eq!(narrow.common.drops.get(DropReason::UnknownFragment), 1);
}

/// A peer cannot make the gateway remember without end, nor make it forget another peer's fragments.
#[test]
fn the_oldest_first_fragment_of_an_sa_is_forgotten() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    narrow(&tunnel, of_version(0, 17, SERVICE), true);
    let (mut other, _) = second(&tunnel);
    let numbered = |id: u16, field| {
        let mut packet = fragment(field);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        fix_checksum(&mut packet);
        packet
    };
    let first = other.seal(&[numbered(0, FIRST)]);
    assert_eq!(tunnel.open(&first).len(), 1);
    for first in (0..=256u16).collect::<Vec<_>>().chunks(64) {
        let packets: Vec<_> = first.iter().map(|id| numbered(*id, FIRST)).collect();
        let sealed = tunnel.seal(&packets);
        assert_eq!(tunnel.open(&sealed).len(), packets.len());
    }
    let sealed = tunnel.seal(&[numbered(0, LATER), numbered(1, LATER)]);
    assert_eq!(tunnel.open(&sealed), [numbered(1, LATER)]);
    let later = other.seal(&[numbered(0, LATER)]);
    assert_eq!(tunnel.open(&later), [numbered(0, LATER)]);
}
