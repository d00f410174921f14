//! Tests the options of the tunnel header, from one end to the other.

use std::num::NonZeroU8;
use std::sync::Arc;

use crate::common::{ONE, Tunnel, facts, inner, ipv4, ipv6};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::Segments;
use esplanade_ipsec::sa::{Path, TunnelOptions};
use esplanade_ipsec::tunnel::{self, DscpMap, DscpPolicy, EcnPolicy, OuterFacts, OuterMeta};
use esplanade_ipsec::wire::{IpView, checksum};

const GCM: Transform = Transform::ESP[0];

/// Inner packets of both versions with this TOS.
fn both(tos: u8) -> [Vec<u8>; 2] {
    [
        ipv4("10.1.0.7", "10.2.0.9", 17, tos, &[0; 8]),
        ipv6("2001:db8:1::7", "2001:db8:2::9", 17, tos, &[0; 8]),
    ]
}

fn tunnel(options: &TunnelOptions) -> Tunnel {
    Tunnel::with(GCM, false, |left| left.tunnel = options.clone())
}

/// The outer header that one packet leaves with.
fn outer(options: &TunnelOptions, packet: &[u8]) -> OuterMeta {
    let mut tunnel = tunnel(options);
    let _ = tunnel.outbound.push(&tunnel.spd, packet).expect("room");
    tunnel
        .outbound
        .submit(&mut tunnel.seal_engine)
        .expect("it is in service");
    let sealed = tunnel.outbound.poll(&mut tunnel.seal_engine, &tunnel.spd);
    let sealed = sealed.expect("it is done");
    let mut trains = sealed.trains(ONE).map(|train| *train.meta);
    trains.next().expect("one packet")
}

/// The TOS of a packet behind the tunnel. `packet` has its own TOS, and `outer_tos` is that of the outer header.
fn delivered(options: &TunnelOptions, packet: &[u8], outer_tos: u8) -> Option<u8> {
    let mut tunnel = tunnel(options);
    let sealed = tunnel.seal(&[packet.to_vec()]);
    let facts = OuterFacts {
        tos: outer_tos,
        ..facts()
    };
    let opened = tunnel.open_from(&sealed, &facts);
    let opened = opened.first()?;
    let view = IpView::parse(opened).expect("a sound packet");
    if opened[0] >> 4 == 4 {
        let header = &opened[..20];
        assert_eq!(checksum::fold(checksum::sum(0, header)), 0, "IPv4 checksum");
    }
    assert_eq!(opened.len(), packet.len());
    Some(view.tos)
}

// RFC 4301 R36, R114
#[test]
fn dscps_are_mapped() {
    let map = DscpMap::fixed(8).with(46, 40).with(10, 10);
    let options = TunnelOptions {
        dscp: DscpPolicy::Map(Arc::new(map)),
        ..TunnelOptions::default()
    };
    for (inner, expected) in [(46, 40), (10, 10), (0, 8), (63, 8)] {
        for packet in both(inner << 2 | 0b10) {
            let meta = outer(&options, &packet);
            assert_eq!(meta.tos, expected << 2 | 0b10, "ECN is copied all the same");
            assert_eq!(
                delivered(&options, &packet, meta.tos),
                Some(inner << 2 | 0b10)
            );
        }
    }
}

#[test]
fn maps_know_64_code_points() {
    let map = DscpMap::identity().with(64, 1).with(255, 1).with(3, 67);
    let changed = (0..=255).filter(|&inner| map.get(inner) != inner & 63);
    // The value 67 is 3 in six bits. Every octet is accepted.
    assert_eq!(changed.count(), 0);
    assert_eq!(DscpMap::fixed(200).get(1), 200 & 63);
    assert_eq!(format!("{:?}", DscpMap::identity().with(46, 0)), "{46: 0}");
}

// RFC 4301 R37
#[test]
fn ecn_can_be_kept_from_the_outer_header() {
    let options = TunnelOptions {
        ecn: EcnPolicy::Clear,
        ..TunnelOptions::default()
    };
    for ecn in 0..4 {
        for packet in both(0xb8 | ecn) {
            let meta = outer(&options, &packet);
            assert_eq!(meta.tos, 0xb8, "RFC 6040 §4.1, compatibility mode");
            assert_eq!(delivered(&options, &packet, meta.tos), Some(0xb8 | ecn));
        }
    }
    // The end of the tunnel has one set of rules, whatever the other end does.
    let [not_ect, ect] = [0xb8, 0xba].map(|tos| both(tos)[0].clone());
    assert_eq!(delivered(&options, &not_ect, 0xbb), None);
    assert_eq!(delivered(&options, &ect, 0xbb), Some(0xbb));
}

// RFC 4301 R34
#[test]
fn outer_headers_have_the_hop_limit_that_is_set() {
    for ttl in [None, NonZeroU8::new(1), NonZeroU8::new(255)] {
        let options = TunnelOptions {
            ttl,
            ..TunnelOptions::default()
        };
        let meta = outer(&options, &inner(4, b""));
        assert_eq!(meta.ttl, ttl);
        let v6 = OuterMeta {
            path: Path {
                local: "[2001:db8::1]:0".parse().expect("an address"),
                remote: "[2001:db8::2]:0".parse().expect("an address"),
                udp_encap: false,
            }
            .into(),
            ..meta
        };
        for meta in [meta, v6] {
            let mut frame = vec![0; meta.header_len() + 8];
            tunnel::write_outer(&meta, 1, &mut frame).expect("it fits");
            let view = IpView::parse(&frame).expect("a header");
            assert_eq!(view.ttl, ttl.map_or(tunnel::OUTER_TTL, NonZeroU8::get));
        }
    }
}

// RFC 4301 R36
#[test]
fn the_outer_dscp_can_replace_the_inner_one() {
    let into = TunnelOptions {
        dscp_from_outer: true,
        ..TunnelOptions::default()
    };
    for packet in both(0xb8) {
        // The rule also holds where the outer header has no ECN: no shortcut skips it.
        assert_eq!(delivered(&into, &packet, 0x28), Some(0x28));
        assert_eq!(delivered(&into, &packet, 0), Some(0));
        assert_eq!(
            delivered(&TunnelOptions::default(), &packet, 0x28),
            Some(0xb8)
        );
    }
    for packet in both(0xba) {
        assert_eq!(
            delivered(&into, &packet, 0x2b),
            Some(0x2b),
            "and ECN goes in"
        );
    }
}

#[test]
fn packets_outside_the_selectors_are_dropped_all_the_same() {
    let into = TunnelOptions {
        dscp_from_outer: true,
        ..TunnelOptions::default()
    };
    let mut tunnel = tunnel(&into);
    let elsewhere = ipv4("10.1.0.7", "10.9.0.9", 17, 0xb8, &[0; 8]);
    let sa = Arc::clone(&tunnel.outbound_sa);
    let view = IpView::parse(&elsewhere).expect("a packet");
    let segments = Segments::one(elsewhere.len());
    let mut slots = tunnel
        .outbound
        .reserve(&sa, &view, &segments)
        .expect("room");
    slots.next_slot().expect("one").copy_from_slice(&elsewhere);
    slots.finish().expect("it fits");
    let sealed = tunnel.seal(&[]);
    assert_eq!(sealed.len(), 1);
    let facts = OuterFacts {
        tos: 0x28,
        ..facts()
    };
    assert!(tunnel.open_from(&sealed, &facts).is_empty());
    let reason = DropReason::SelectorMismatch;
    assert_eq!(tunnel.inbound.counters().drops.get(reason), 1);
}
