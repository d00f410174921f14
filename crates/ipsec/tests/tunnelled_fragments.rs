//! Fragments inside tunnels (RFC 4301 §7): an SA without port selectors carries them all, one with port selectors
//! takes none whose ports cannot be seen.

mod common;

use std::sync::Arc;

use common::{LEFT, RIGHT, Tunnel, ipv4, key_material, parameters, selectors};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::{InboundSa, SaParameters};
use esplanade_ipsec::selector::{NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::wire::checksum;

const TRANSFORM: Transform = Transform::ESP[0];

/// UDP from port 5000 to 40001, as a whole packet.
fn whole() -> Vec<u8> {
    let mut udp = vec![0x13, 0x88, 0x9c, 0x41, 0, 24, 0, 0];
    udp.extend([1; 16]);
    ipv4("10.1.0.7", "10.2.0.9", 17, 0, &udp)
}

/// The same addresses and protocol with other fragment bits.
fn fragment(flags_and_offset: u16) -> Vec<u8> {
    let mut packet = whole();
    packet[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

const FIRST: u16 = 0x2000;
const LATER: u16 = 3;

// RFC 4301 R50
#[test]
fn an_sa_without_ports_carries_every_fragment() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let packets = [fragment(FIRST), fragment(LATER), whole()];
    let sealed = tunnel.seal(&packets);
    assert_eq!(tunnel.open(&sealed), packets);
}

// RFC 4301 R53, R95
#[test]
fn an_sa_with_ports_takes_no_later_fragment() {
    let mut tunnel = Tunnel::new(TRANSFORM, false);
    let key = key_material(TRANSFORM);
    let only = Selector {
        protocol: NextLayer::Is(17),
        local_ports: PortRange::Range(40_001, 40_001),
        ..selectors(RIGHT, LEFT).as_slice()[0]
    };
    let spi = tunnel.outbound_sa.common.spi;
    let narrow = InboundSa::new(SaParameters {
        selectors: SelectorSet::new(vec![only]).expect("one"),
        ..parameters(TRANSFORM, false, spi, &key)
    });
    let narrow = Arc::new(narrow.expect("good keys"));
    tunnel
        .database
        .sad()
        .insert(Arc::clone(&narrow))
        .expect("allocated");
    let sealed = tunnel.seal(&[whole(), fragment(LATER), whole()]);
    assert_eq!(tunnel.open(&sealed), [whole(), whole()]);
    assert_eq!(narrow.common.drops.get(DropReason::SelectorMismatch), 1);
}
