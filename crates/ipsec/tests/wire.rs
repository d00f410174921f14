//! Tests parsers on bytes from outside, and the outer header.

use std::net::SocketAddr;

use crate::common::{LEFT, RIGHT, address, inner, ipv4, ipv6, selectors};
use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{Mode, OutboundSa, Path, SaParameters, TunnelOptions};
use esplanade_ipsec::selector::SelectorSet;
use esplanade_ipsec::spd::PolicyId;
use esplanade_ipsec::tunnel::{
    self, DfPolicy, DscpPolicy, OuterMeta, decapsulated_ecn, inner_mtu, write_outer,
};
use esplanade_ipsec::wire::{IpVersion, IpView, checksum, esp, ip, udp_encap};
use proptest::prelude::*;

fn parse(packet: &[u8]) -> IpView {
    IpView::parse(packet).expect("well-formed")
}

proptest! {
    #[test]
    fn parsers_survive_arbitrary_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0u8..16) {
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | *first & 0x0f;
        }
        if let Ok(view) = IpView::parse(&bytes) {
            prop_assert!(view.header_len <= view.upper);
            prop_assert!(view.upper <= view.total_len);
            prop_assert!(view.total_len <= bytes.len());
        }
        let _ = esp::EspHeader::parse(&bytes);
        let _ = udp_encap::classify(&bytes);
        if let Some(trailer) = esp::parse_trailer(&bytes) {
            prop_assert!(trailer.payload_len + esp::TRAILER_LEN <= bytes.len());
        }
    }

    /// Next headers and lengths are random, so that chains of extension headers occur.
    #[test]
    fn extension_headers_stay_within_the_packet(
        first in proptest::sample::select(vec![0u8, 43, 44, 60, 17]),
        mut payload in proptest::collection::vec(proptest::sample::select(vec![0u8, 1, 2, 6, 17, 43, 44, 60]), 0..120),
    ) {
        payload.push(17);
        let packet = ipv6("2001:db8:1::7", "2001:db8:2::9", first, 0, &payload);
        if let Ok(view) = IpView::parse(&packet) {
            prop_assert!(view.upper <= packet.len());
        }
    }

    #[test]
    fn truncated_packets_are_refused(version in prop_oneof![Just(4u8), Just(6)], payload in 0usize..100, cut in 1usize..60) {
        let packet = inner(version, &vec![0; payload]);
        prop_assert!(IpView::parse(&packet[..packet.len() - cut.min(packet.len())]).is_err());
    }

    #[test]
    fn selectors_do_not_depend_on_the_rest_of_the_packet(version in prop_oneof![Just(4u8), Just(6)], payload in 0usize..100) {
        let view = parse(&inner(version, &vec![0; payload]));
        prop_assert!(selectors(LEFT, RIGHT).matches(&view.outbound_flow()));
        prop_assert!(selectors(RIGHT, LEFT).matches(&view.inbound_flow()));
        prop_assert!(!selectors(RIGHT, LEFT).matches(&view.outbound_flow()));
    }
}

#[test]
fn ipv4_fields() {
    let packet = ipv4(
        "10.1.0.7",
        "10.2.0.9",
        ip::PROTOCOL_TCP,
        0xb8,
        &[1, 187, 156, 64, 9],
    );
    let view = parse(&packet);
    assert_eq!(view.source, address("10.1.0.7"));
    assert_eq!(view.destination, address("10.2.0.9"));
    assert_eq!((view.tos, view.ttl, view.protocol), (0xb8, 63, 6));
    assert_eq!(view.ports, Some((443, 40_000)));
    assert_eq!((view.header_len, view.upper, view.total_len), (20, 20, 25));
    assert_eq!(view.inbound_flow().ports, Some((40_000, 443)));

    let mut broken = packet.clone();
    broken[8] ^= 1;
    assert!(
        IpView::parse(&broken).is_err(),
        "the header checksum is wrong"
    );
    let icmp = ipv4("10.1.0.7", "10.2.0.9", ip::PROTOCOL_ICMP, 0, &[8, 0, 0, 0]);
    assert_eq!(parse(&icmp).ports, Some((0x0800, 0x0800)));
    let cut = ipv4("10.1.0.7", "10.2.0.9", ip::PROTOCOL_TCP, 0, &[1, 187, 156]);
    assert_eq!(parse(&cut).ports, None);
    let gre = ipv4("10.1.0.7", "10.2.0.9", 47, 0, &[0; 8]);
    assert_eq!(parse(&gre).ports, None);
}

/// RFC 4301 §4.4.1.1 says which headers are skipped. ESP and AH end the search.
// RFC 4301 R94
#[test]
fn the_default_extension_headers_are_skipped() {
    let ports = [1, 2, 3, 4, 0, 8, 0, 0];
    for skipped in [0u8, 43, 44, 60] {
        let payload = [&[17, 0, 0, 0, 0, 0, 0, 0], &ports[..]].concat();
        let view = parse(&ipv6("fd00:1::1", "fd00:2::1", skipped, 0, &payload));
        assert_eq!((view.protocol, view.upper), (17, 48), "{skipped}");
        assert_eq!(view.ports, Some((0x0102, 0x0304)));
    }
    for kept in [50u8, 51] {
        let view = parse(&ipv6("fd00:1::1", "fd00:2::1", kept, 0, &ports));
        assert_eq!((view.protocol, view.upper, view.ports), (kept, 40, None));
    }
}

#[test]
fn later_fragments_have_no_ports() {
    let mut packet = ipv4("10.1.0.7", "10.2.0.9", ip::PROTOCOL_UDP, 0, &[0; 16]);
    packet[6..8].copy_from_slice(&[0x00, 0x02]);
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let view = parse(&packet);
    assert!(view.later_fragment);
    assert_eq!(view.ports, None);

    for (offset, ports) in [([0, 1], Some((0x0102, 0x0304))), ([0, 8], None)] {
        let header = [17, 0, offset[0], offset[1], 0, 0, 0, 1, 1, 2, 3, 4];
        let view = parse(&ipv6("2001:db8:1::7", "2001:db8:2::9", 44, 0, &header));
        assert_eq!((view.protocol, view.upper, view.ports), (17, 48, ports));
    }
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    // The payload has hop-by-hop options, a routing header of 16 bytes, destination options, and TCP.
    let mut payload = vec![43, 0, 1, 4, 0, 0, 0, 0];
    payload.extend([60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    payload.extend([0, 80, 0, 81]);
    let packet = ipv6("2001:db8:1::7", "2001:db8:2::9", 0, 0x2e, &payload);
    let view = parse(&packet);
    assert_eq!((view.protocol, view.upper), (6, 40 + 32));
    assert_eq!(view.ports, Some((80, 81)));
    assert_eq!(view.tos, 0x2e);
    let mut short = payload.clone();
    short[1] = 200;
    assert!(IpView::parse(&ipv6("::1", "::2", 0, 0, &short)).is_err());
    let endless: Vec<u8> = [0u8; 8].repeat(40);
    assert!(IpView::parse(&ipv6("::1", "::2", 0, 0, &endless)).is_err());
}

/// RFC 6040 §4.2, figure 4. The rows are the arriving inner field and the columns the outer field, in the order of
/// the figure.
// RFC 4301 R37; RFC 7296 R179
#[test]
fn ecn_at_the_end_of_the_tunnel() {
    const NOT: u8 = 0;
    const ECT1: u8 = 1;
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    let outer = [NOT, ECT0, ECT1, CE];
    let figure = [
        (NOT, [Some(NOT), Some(NOT), Some(NOT), None]),
        (ECT0, [Some(ECT0), Some(ECT0), Some(ECT1), Some(CE)]),
        (ECT1, [Some(ECT1), Some(ECT1), Some(ECT1), Some(CE)]),
        (CE, [Some(CE); 4]),
    ];
    for (inner, row) in figure {
        for (outer, expected) in outer.into_iter().zip(row) {
            assert_eq!(decapsulated_ecn(inner | 0xb8, outer | 0x28), expected);
        }
    }
}

fn meta(version: IpVersion, udp_encap: bool, options: &TunnelOptions, inner: &[u8]) -> OuterMeta {
    let (local, remote) = match version {
        IpVersion::V4 => ("192.0.2.1", "198.51.100.2"),
        IpVersion::V6 => ("2001:db8:ffff::1", "2001:db8:ffff::2"),
    };
    let path = Path {
        local: SocketAddr::new(address(local), 4500),
        remote: SocketAddr::new(address(remote), 40_500),
        udp_encap,
    };
    OuterMeta::new(path, options, &parse(inner))
}

// RFC 4301 R34
#[test]
fn outer_headers_parse_back() {
    let inner = ipv4("10.1.0.7", "10.2.0.9", 17, 0xba, &[0; 8]);
    for version in [IpVersion::V4, IpVersion::V6] {
        for udp_encap in [false, true] {
            let meta = meta(version, udp_encap, &TunnelOptions::default(), &inner);
            let mut frame = vec![0xaa; meta.header_len()];
            frame.extend(b"sealed packet");
            write_outer(&meta, 0x1234, &mut frame).expect("it fits");
            let view = parse(&frame);
            assert_eq!(view.version, version);
            assert_eq!(view.total_len, frame.len());
            assert_eq!(view.source, meta.path().local.ip());
            assert_eq!(view.destination, meta.path().remote.ip());
            assert_eq!((view.tos, view.ttl), (0xba, tunnel::OUTER_TTL));
            let protocol = if udp_encap {
                ip::PROTOCOL_UDP
            } else {
                esp::PROTOCOL
            };
            assert_eq!(view.protocol, protocol);
            assert_eq!(&frame[meta.header_len()..], b"sealed packet");
            if udp_encap {
                assert_eq!(view.ports, Some((4500, 40_500)));
                assert_udp_checksum(&view, &frame[view.upper..]);
            }
            assert!(write_outer(&meta, 0, &mut [0; 19]).is_none());
            assert!(write_outer(&meta, 0, &mut vec![0; 70_000]).is_none());
        }
    }
}

fn assert_udp_checksum(view: &IpView, datagram: &[u8]) {
    let stored = [datagram[6], datagram[7]];
    match view.version {
        IpVersion::V4 => assert_eq!(stored, [0, 0]),
        IpVersion::V6 => {
            let octets = |a: std::net::IpAddr| match a {
                std::net::IpAddr::V6(a) => a.octets(),
                std::net::IpAddr::V4(_) => panic!("an IPv6 packet"),
            };
            let mut pseudo = octets(view.source).to_vec();
            pseudo.extend(octets(view.destination));
            pseudo.extend((datagram.len() as u32).to_be_bytes());
            pseudo.extend([0, 0, 0, 17]);
            assert_eq!(
                checksum::fold(checksum::sum(checksum::sum(0, &pseudo), datagram)),
                0
            );
            assert_ne!(stored, [0, 0]);
        }
    }
}

#[test]
fn mixed_ip_versions_have_no_outer_header() {
    let inner = inner(4, b"");
    let path = Path {
        local: SocketAddr::new(address("::1"), 4500),
        remote: SocketAddr::new(address("192.0.2.1"), 4500),
        udp_encap: true,
    };
    let meta = OuterMeta::new(path, &TunnelOptions::default(), &parse(&inner));
    assert!(write_outer(&meta, 0, &mut [0; 100]).is_none());
}

// RFC 4301 R34, R35, R36, R57, R58
#[test]
fn df_and_dscp_follow_their_policies() {
    let plain = ipv4("10.1.0.7", "10.2.0.9", 17, 0xba, &[0; 8]);
    let v6 = inner(6, b"");
    let df = |df, inner: &[u8]| {
        let options = TunnelOptions {
            df,
            ..TunnelOptions::default()
        };
        let meta = meta(IpVersion::V4, false, &options, inner);
        let mut frame = vec![0; meta.header_len()];
        write_outer(&meta, 0, &mut frame).expect("it fits");
        parse(&frame).dont_fragment
    };
    assert!(!df(DfPolicy::Copy, &plain));
    assert!(df(DfPolicy::Copy, &v6));
    assert!(df(DfPolicy::Set, &plain));
    assert!(!df(DfPolicy::Clear, &v6));
    let fixed = TunnelOptions {
        dscp: DscpPolicy::fixed(10),
        ..TunnelOptions::default()
    };
    let meta = meta(IpVersion::V4, false, &fixed, &plain);
    assert_eq!(meta.tos, 10 << 2 | 0b10, "ECN is copied all the same");
}

#[test]
fn the_length_of_the_outer_packet_fits_the_inner_mtu() {
    for transform in Transform::all().filter(|t| !t.legacy()) {
        for (mode, udp_encap) in [
            (Mode::Tunnel, false),
            (Mode::Tunnel, true),
            (Mode::Transport, false),
        ] {
            let key = vec![7; transform.key_material_len()];
            let path = Path {
                local: "192.0.2.1:4500".parse().expect("valid"),
                remote: "192.0.2.2:4500".parse().expect("valid"),
                udp_encap,
            };
            let selectors = SelectorSet::new(Vec::new()).expect("none");
            let parameters = SaParameters {
                mode,
                ..SaParameters::new(300, PolicyId(1), transform, &key, selectors, path)
            };
            let sa = OutboundSa::new(parameters).expect("good keys");
            for path_mtu in 1280..1300 {
                let inner_mtu = sa.inner_mtu(path_mtu);
                assert!(sa.outer_len(inner_mtu) <= path_mtu, "{transform} {mode:?}");
                assert!(
                    sa.outer_len(inner_mtu + 1) > path_mtu,
                    "{transform} {mode:?}"
                );
            }
        }
    }
}

#[test]
fn the_inner_mtu_fills_the_path() {
    for transform in Transform::ESP {
        for version in [IpVersion::V4, IpVersion::V6] {
            for udp in [false, true] {
                let mtu = inner_mtu(1500, transform, version, udp);
                let ip = if version == IpVersion::V4 { 20 } else { 40 };
                let headers = ip + if udp { 8 } else { 0 };
                assert!(headers + transform.sealed_len(mtu) <= 1500);
                assert!(headers + transform.sealed_len(mtu + 1) > 1500);
            }
        }
    }
    assert_eq!(inner_mtu(10, Transform::ESP[0], IpVersion::V6, true), 0);
}

// RFC 4303 R13
#[test]
fn each_byte_of_the_padding_is_compared() {
    for padding_len in 1..=20u8 {
        let mut body = vec![0xee; 12];
        body.extend(1..=padding_len);
        body.extend([padding_len, 4]);
        assert_eq!(esp::parse_trailer(&body).expect("sound").payload_len, 12);
        for at in 12..12 + usize::from(padding_len) {
            let mut wrong = body.clone();
            wrong[at] ^= 0x80;
            assert_eq!(esp::parse_trailer(&wrong), None, "{padding_len} {at}");
        }
    }
}
