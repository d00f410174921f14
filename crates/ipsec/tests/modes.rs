//! Tests transport mode, AH, nested SAs, padding and dummies: both walks against each other, on whole packets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::whole::{ends, facts_of, flush, frames, open};
use crate::common::{
    LEFT, RIGHT, SlowEngine, Tunnel, address, assert_reconciled, inner, ipv4, ipv6, key_material,
    parameters, prefix, selectors,
};
use esplanade_crypto::{Protocol, Transform};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::inbound::{Inbound, ReceivedPacket};
use esplanade_ipsec::outbound::{ArenaPacket, HEADROOM, TAILROOM};
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, Path, SaParameters, TfcPadding};
use esplanade_ipsec::sad::GroupKey;
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Spd, SpdEntry};
use esplanade_ipsec::tunnel::{FlowLabelPolicy, OuterFacts};
use esplanade_ipsec::wire::{IpView, checksum};
use esplanade_testkit::model;
use proptest::prelude::*;

const GCM: Transform = Transform::ESP[0];
const AH: Transform = Transform::AH[0];

fn some_packets(version: u8) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = [0, 1, 7, 100, 1400]
        .map(|len| inner(version, &vec![0x5a; len]))
        .into();
    // Back ends may read more bytes than the packet has.
    packets[1].extend([0xee; 5]);
    packets
}

fn trimmed(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let trim = |packet: &Vec<u8>| {
        let view = IpView::parse(packet).expect("well-formed");
        packet[..view.total_len].to_vec()
    };
    packets.iter().map(trim).collect()
}

#[test]
fn every_mode_and_protocol_delivers_what_was_sent() {
    let transforms = [GCM, Transform::ESP[3], AH, Transform::AH[7]];
    for transform in transforms {
        for mode in [Mode::Tunnel, Mode::Transport] {
            for (version, outer) in [(4, 4), (6, 6), (4, 6), (6, 4)] {
                for udp_encap in [false, true] {
                    let esp = transform.protocol() == Protocol::Esp;
                    let mixed = version != outer && mode == Mode::Transport;
                    if mixed || udp_encap && !esp {
                        continue;
                    }
                    let mut tunnel = Tunnel::with(transform, true, |p| {
                        p.mode = mode;
                        p.path = ends(outer, udp_encap);
                    });
                    let packets = some_packets(version);
                    let sent = frames(&mut tunnel, &packets);
                    assert_eq!(sent.len(), packets.len());
                    let name = format!("{transform} {mode:?} {version} in {outer} {udp_encap}");
                    for frame in &sent {
                        let view = IpView::parse(frame).expect(&name);
                        assert_eq!(view.total_len, frame.len(), "{name}");
                    }
                    let opened = open(&mut tunnel, &sent);
                    assert!(opened == trimmed(&packets), "{name}");
                }
            }
        }
    }
}

/// The peer changes the form with every packet, whatever was agreed.
// RFC 7296 R169
#[test]
fn esp_is_taken_with_and_without_udp_at_any_time() {
    for version in [4, 6] {
        for agreed in [true, false] {
            let mut tunnel = Tunnel::with(GCM, true, |p| p.path = ends(version, agreed));
            let packets = some_packets(version);
            for (packet, in_udp) in trimmed(&packets).iter().zip([true, false].iter().cycle()) {
                tunnel.outbound_sa.common.set_path(ends(version, *in_udp));
                let packet = std::slice::from_ref(packet);
                let sent = frames(&mut tunnel, packet);
                assert_eq!(facts_of(&sent[0]).udp_encap, *in_udp);
                let opened = open(&mut tunnel, &sent);
                assert_eq!(opened, packet, "{version} {agreed} {in_udp}");
            }
        }
    }
}

// RFC 4301 R76
#[test]
fn a_receiver_takes_every_dscp() {
    let with = |dscp: u8| {
        let mut packet = inner(4, &[7; 9]);
        model::set_tos(&mut packet, dscp << 2);
        model::set_checksum(&mut packet);
        packet
    };
    let packets: Vec<Vec<u8>> = (0..64).map(with).collect();
    for mode in [Mode::Tunnel, Mode::Transport] {
        let mut tunnel = Tunnel::with(GCM, false, |p| {
            p.mode = mode;
            p.path = ends(4, false);
        });
        let sent = frames(&mut tunnel, &packets);
        assert_eq!(open(&mut tunnel, &sent), packets);
    }
}

fn udp_sum(packet: &[u8], view: &IpView) -> u16 {
    let upper = &packet[view.upper..];
    let mut sum = upper.len() as u64 + 17;
    for address in [view.source, view.destination] {
        sum = match address {
            IpAddr::V4(a) => checksum::sum(sum, &a.octets()),
            IpAddr::V6(a) => checksum::sum(sum, &a.octets()),
        };
    }
    checksum::fold(checksum::sum(sum, upper))
}

/// RFC 4303 §3.1.1: ESP goes behind hop-by-hop and routing headers, and before destination options for the final
/// destination.
#[test]
fn transport_mode_goes_between_the_extension_headers() {
    for transform in [GCM, AH] {
        let mut tunnel = Tunnel::with(transform, false, |p| {
            p.mode = Mode::Transport;
            p.path = ends(6, false);
        });
        let mut payload = vec![60, 0, 1, 4, 0, 0, 0, 0];
        payload.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        payload.extend([0x13, 0x88, 0x9c, 0x41, 0, 12, 0, 0, 1, 2, 3, 4]);
        let packet = ipv6("2001:db8:1::7", "2001:db8:2::9", 0, 0, &payload);
        let sent = frames(&mut tunnel, std::slice::from_ref(&packet));
        let [frame] = &sent[..] else {
            panic!("one packet")
        };
        let number = transform.protocol().number();
        assert_eq!((frame[6], frame[40]), (0, number), "hop-by-hop, then IPsec");
        if number == 51 {
            assert_eq!(frame[48], 60, "AH, then destination options");
        }
        assert_eq!(open(&mut tunnel, &sent), [packet]);
    }
}

#[test]
fn transport_mode_keeps_ipv4_options() {
    for transform in [GCM, AH] {
        let mut tunnel = Tunnel::with(transform, false, |p| {
            p.mode = Mode::Transport;
            p.path = ends(4, false);
        });
        let mut packet = inner(4, b"with router alert");
        packet.splice(20..20, [0x94, 4, 0, 0]);
        packet[0] = 0x46;
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum::fold(checksum::sum(0, &packet[..24]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let sent = frames(&mut tunnel, std::slice::from_ref(&packet));
        assert_eq!(sent[0][..2], [0x46, 0]);
        assert_eq!(sent[0][20..24], [0x94, 4, 0, 0]);
        assert_eq!(open(&mut tunnel, &sent), [packet]);
    }
}

/// A UDP socket does not pass on the outer IP header.
#[test]
fn transport_mode_does_without_the_outer_header() {
    for version in [4, 6] {
        let mut tunnel = Tunnel::with(GCM, false, |p| {
            p.mode = Mode::Transport;
            p.path = ends(version, true);
        });
        let packet = inner(version, b"over a socket");
        let sealed = tunnel.seal(std::slice::from_ref(&packet));
        let facts = OuterFacts::new(ends(version, true).local, true, 0);
        let opened = tunnel.open_from(&sealed, &facts);
        let [opened] = &opened[..] else {
            panic!("one packet")
        };
        let (sent, got) = (IpView::parse(&packet), IpView::parse(opened));
        let (sent, got) = (sent.expect("well-formed"), got.expect("well-formed"));
        assert_eq!(sent.source, got.source);
        assert_eq!(sent.destination, got.destination);
        assert_eq!(opened[got.upper + 8..], *b"over a socket");
    }
}

/// RFC 3948 §3.1.2: behind a NAT the checksum covers addresses that the receiver does not see.
#[test]
fn a_nat_does_not_spoil_the_checksum_in_transport_mode() {
    let mut tunnel = Tunnel::with(GCM, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, true);
    });
    let mut packet = inner(4, b"through a NAT");
    let view = IpView::parse(&packet).expect("well-formed");
    let sum = udp_sum(&packet, &view);
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    let sealed = tunnel.seal(std::slice::from_ref(&packet));
    let facts = OuterFacts::new("10.1.9.9:1024".parse().expect("an address"), true, 0);
    let opened = tunnel.open_from(&sealed, &facts);
    let view = IpView::parse(&opened[0]).expect("well-formed");
    assert_eq!(view.source, address("10.1.9.9"));
    assert_eq!(udp_sum(&opened[0], &view), 0, "the sum with its complement");
}

/// RFC 768: a checksum of 0 says that there is none, so one that comes out as 0 is sent as ffff.
#[test]
fn a_recomputed_udp_checksum_is_never_0() {
    let mut tunnel = Tunnel::with(GCM, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, true);
    });
    let facts = OuterFacts::new("10.1.9.9:1024".parse().expect("an address"), true, 0);
    let sum_of = |packet: &[u8]| udp_sum(packet, &IpView::parse(packet).expect("well-formed"));
    // The first two bytes of the payload make the sum 0 where the NAT has changed the source.
    let mut packet = inner(4, b"\0\0through a NAT");
    let mut translated = packet.clone();
    translated[12..16].copy_from_slice(&[10, 1, 9, 9]);
    model::set_checksum(&mut translated);
    let rest = sum_of(&translated);
    packet[28..30].copy_from_slice(&rest.to_be_bytes());
    translated[28..30].copy_from_slice(&rest.to_be_bytes());
    assert_eq!(sum_of(&translated), 0);
    let unsummed = packet.clone();
    let sum = sum_of(&packet);
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    let sealed = tunnel.seal(&[packet, unsummed]);
    let opened = tunnel.open_from(&sealed, &facts);
    assert_eq!(opened[0][12..16], [10, 1, 9, 9]);
    assert_eq!(opened[0][26..28], [0xff, 0xff]);
    assert_eq!(opened[1][26..28], [0, 0], "it had none before");
}

#[test]
fn transport_mode_is_for_the_sas_ends_only() {
    let mut tunnel = Tunnel::with(GCM, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, false);
    });
    let other = ipv4("10.1.0.8", "10.2.0.9", 17, 0, &[0; 12]);
    assert!(frames(&mut tunnel, &[other]).is_empty());
    let drops = &tunnel.outbound_sa.common.drops;
    assert_eq!(drops.get(DropReason::OutsideSaSelectors), 1);
}

#[test]
fn the_ah_header_must_be_there_and_whole() {
    let mut tunnel = Tunnel::with(AH, false, |p| p.path = ends(4, false));
    let sent = frames(&mut tunnel, &[inner(4, b"hello")]);
    let facts = facts_of(&sent[0]);
    let mut changed = sent[0].clone();
    changed[21] += 1;
    let blind = OuterFacts {
        header_len: 0,
        ..facts
    };
    assert!(tunnel.open_from(&[changed], &facts).is_empty());
    assert!(
        tunnel
            .open_from(&[sent[0][20..].to_vec()], &blind)
            .is_empty()
    );
    assert!(
        tunnel
            .open_from(&[sent[0][..30].to_vec()], &facts)
            .is_empty()
    );
    let drops = &tunnel.inbound.counters().drops;
    assert_eq!(drops.get(DropReason::MalformedAh), 3);
    // Hops change the mutable fields and nothing else.
    let mut travelled = sent[0].clone();
    travelled[8] = 9;
    travelled[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &travelled[..20]));
    travelled[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(open(&mut tunnel, &[travelled]).len(), 1);
}

/// RFC 4303 §2.7.
// RFC 4303 R21, R62
#[test]
fn padding_hides_the_length_and_comes_off_again() {
    let packets = some_packets(4);
    let lengths = |tfc, path_mtu| {
        let mut tunnel = Tunnel::with(GCM, false, |p| p.tfc = TfcPadding::To(tfc));
        tunnel.outbound_sa.set_path_mtu(path_mtu);
        let sent = frames(&mut tunnel, &packets);
        assert_eq!(open(&mut tunnel, &sent), trimmed(&packets));
        sent.iter().map(Vec::len).collect::<Vec<_>>()
    };
    let padded = lengths(500, None);
    assert!(padded[..4].iter().all(|len| *len == padded[0]));
    assert!(padded[4] > padded[0], "longer ones stay as they are");
    assert_eq!(lengths(500, Some(1500)), padded, "it is not filled up");
    // Padding makes no packet too long for its path.
    let to_path = lengths(u16::MAX, Some(1500));
    assert!(to_path.iter().all(|len| *len == to_path[0]));
    assert!((1497..=1500).contains(&to_path[0]), "{to_path:?}");
}

/// RFC 4303 §2.6.
// RFC 4303 R16, R17, R18
#[test]
fn dummies_are_made_and_discarded() {
    let mut tunnel = Tunnel::new(GCM, false);
    let sa = Arc::clone(&tunnel.outbound_sa);
    for len in [0, 1, 1000] {
        tunnel.outbound.push_dummy(&sa, len).expect("room");
    }
    let sent = flush(&mut tunnel);
    assert_eq!(tunnel.outbound.counters().dummies.load(Relaxed), 3);
    assert_eq!(sent.len(), 3);
    assert!(open(&mut tunnel, &sent).is_empty());
    let drops = &tunnel.inbound.counters().drops;
    assert_eq!(drops.get(DropReason::Dummy), 3);

    let mut transport = Tunnel::with(GCM, false, |p| p.mode = Mode::Transport);
    let sa = Arc::clone(&transport.outbound_sa);
    assert!(transport.outbound.push_dummy(&sa, 10).is_err());
    assert_reconciled(transport.outbound.counters());
}

/// RFC 6438: all packets of a flow have one label, and other flows have other labels.
#[test]
fn flow_labels_are_copied_or_hashed() {
    let labels = |policy, in_place| {
        let mut tunnel = Tunnel::with(GCM, false, |p| {
            p.path = ends(6, false);
            p.tunnel.flow_label = policy;
        });
        let mut first = inner(6, b"a");
        first[2..4].copy_from_slice(&[0x12, 0x34]);
        let mut second = first.clone();
        second[41] ^= 1;
        let packets = [first.clone(), first, second];
        let sent = match in_place {
            false => frames(&mut tunnel, &packets),
            true => {
                burst(&mut tunnel, &packets);
                flush(&mut tunnel)
            }
        };
        let label = |f: &Vec<u8>| IpView::parse(f).expect("well-formed").flow_label;
        sent.iter().map(label).collect::<Vec<_>>()
    };
    for in_place in [false, true] {
        assert_eq!(labels(FlowLabelPolicy::Zero, in_place), [0; 3]);
        assert_eq!(labels(FlowLabelPolicy::Copy, in_place), [0x1234; 3]);
        let hashed = labels(FlowLabelPolicy::Hash, in_place);
        assert_eq!(hashed[0], hashed[1]);
        assert_ne!(hashed[0], hashed[2]);
    }
}

/// RFC 4301 §4.1: an SA of a group is found by SPI and destination, even if another SA of ours has the same SPI.
// RFC 4301 R2; RFC 4302 R5; RFC 4303 R4
#[test]
fn a_group_has_its_own_sa() {
    let mut tunnel = Tunnel::with(GCM, false, |p| p.path = ends(4, false));
    let group = Path {
        remote: "239.1.2.3:0".parse().expect("an address"),
        ..ends(4, false)
    };
    let spi = tunnel.inbound_sa.common.spi;
    let key: Vec<u8> = key_material(GCM).iter().map(|byte| byte ^ 0xff).collect();
    let make = |selectors| {
        let p = parameters(GCM, false, spi, &key);
        SaParameters {
            path: group,
            selectors,
            ..p
        }
    };
    let sa = Arc::new(InboundSa::new(make(selectors(RIGHT, LEFT))).expect("good keys"));
    let place = GroupKey {
        spi,
        destination: group.remote.ip(),
        source: None,
    };
    let sad = tunnel.database.sad();
    sad.insert_group(place, Arc::clone(&sa)).expect("room");
    let to_us = frames(&mut tunnel, &vec![inner(4, b"to one"); 2]);
    let sender = OutboundSa::new(make(selectors(LEFT, RIGHT))).expect("good keys");
    tunnel.policy.install(Arc::new(sender));
    let to_all = frames(&mut tunnel, &vec![inner(4, b"to all"); 2]);
    let burst = [&to_all[0], &to_us[0], &to_all[1]].map(Vec::clone);
    let opened = open_burst(&mut tunnel, &burst);
    let expected = [&b"to all"[..], b"to one", b"to all"].map(|payload| inner(4, payload));
    assert_eq!(opened, expected);
    // A group's SA gets nothing that is sent to this end alone, whatever address it has.
    let place = GroupKey {
        destination: ends(4, false).remote.ip(),
        ..place
    };
    let sad = tunnel.database.sad();
    sad.insert_group(place, Arc::clone(&sa)).expect("room");
    assert_eq!(open(&mut tunnel, &to_us[1..]), [inner(4, b"to one")]);
    // No member of the group sent this packet.
    let mut other = to_all[0].clone();
    other[19] ^= 1;
    other[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &other[..20]));
    other[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(open(&mut tunnel, &[other]).is_empty());
}

/// Opens packets that come in one burst.
fn open_burst(tunnel: &mut Tunnel, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let facts: Vec<_> = frames.iter().map(|frame| facts_of(frame)).collect();
    let buffer = tunnel.inbound.receive_buffer().expect("a batch");
    let (mut places, mut end) = (Vec::new(), 0);
    for ((number, frame), facts) in (0..).zip(frames).zip(&facts) {
        buffer.bytes[end..end + frame.len()].copy_from_slice(frame);
        let header_len = usize::from(facts.header_len);
        places.push(ReceivedPacket {
            offset: (buffer.offset + end + header_len) as u32,
            len: (frame.len() - header_len) as u32,
            facts: number,
        });
        end += frame.len();
    }
    assert!(tunnel.inbound.commit_received(end));
    let sad = tunnel.database.sad();
    tunnel.inbound.push_burst(sad, &facts, &places);
    tunnel.open(&[])
}

/// RFC 4301 §4.1: SPI and protocol identify an SA. The packets of both protocols come in one burst.
// RFC 4302 R4; RFC 4303 R3
#[test]
fn an_sa_takes_no_packet_of_the_other_protocol() {
    for (transform, other) in [(GCM, AH), (AH, GCM)] {
        let make = |transform| Tunnel::with(transform, false, |p| p.path = ends(4, false));
        let (mut tunnel, mut others) = (make(transform), make(other));
        let packets = some_packets(4);
        let mut all = frames(&mut tunnel, &packets);
        let mut foreign = frames(&mut others, &packets).remove(0);
        let at = if other == AH { 24 } else { 20 };
        let spi = tunnel.inbound_sa.common.spi;
        foreign[at..at + 4].copy_from_slice(&spi.to_be_bytes());
        for place in [0, 2] {
            all.insert(place, foreign.clone());
        }
        assert_eq!(open_burst(&mut tunnel, &all), trimmed(&packets));
        let drops = &tunnel.inbound.counters().drops;
        assert_eq!((drops.get(DropReason::UnknownSpi), drops.total()), (2, 2));
        assert_eq!(tunnel.inbound_sa.common.drops.total(), 0);
    }
}

#[test]
fn a_lost_engine_takes_its_packets_with_it() {
    let mut tunnel = Tunnel::new(GCM, false);
    let mut lost = SlowEngine::new(4, 1000);
    for _ in 0..3 {
        let _ = tunnel.outbound.push(&tunnel.spd, &inner(4, b"lost"));
        tunnel.outbound.submit(&mut lost).expect("it takes three");
    }
    tunnel.outbound.engine_lost();
    assert_reconciled(tunnel.outbound.counters());
    let sent = frames(&mut tunnel, &[inner(4, b"after")]);
    assert_eq!(open(&mut tunnel, &sent), [inner(4, b"after")]);
    assert_eq!(
        tunnel
            .outbound
            .counters()
            .drops
            .get(DropReason::EngineFailed),
        3
    );
    let of_sa = &tunnel.outbound_sa.common.drops;
    assert_eq!(of_sa.get(DropReason::EngineFailed), 3);
}

/// Raw sockets set the identification of IPv4 packets that have none, and AH covers this field.
#[test]
fn ah_numbers_what_nobody_has() {
    let mut tunnel = Tunnel::with(AH, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, false);
    });
    let mut packet = inner(4, b"atomic");
    packet[4..6].fill(0);
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut sent = frames(&mut tunnel, std::slice::from_ref(&packet));
    assert!(burst(&mut tunnel, std::slice::from_ref(&packet)).is_empty());
    sent.extend(flush(&mut tunnel));
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|frame| frame[4..6] != [0, 0]));
    for opened in open(&mut tunnel, &sent) {
        assert_eq!(opened[20..], packet[20..]);
        assert_eq!(opened[..4], packet[..4]);
    }
    let drops = &tunnel.inbound.counters().drops;
    assert_eq!(drops.get(DropReason::AuthenticationFailed), 0);
}

/// Routers may fragment these packets, so each has a number of its own (RFC 6864 §4.3). It is never 0, which raw sockets
/// replace. AH covers the number.
// RFC 4302 R17
#[test]
fn ah_in_tunnel_mode_numbers_its_packets() {
    let mut tunnel = Tunnel::with(AH, false, |p| p.path = ends(4, false));
    let packets = vec![inner(4, b"the same"); 3];
    let sent = frames(&mut tunnel, &packets);
    let numbers: BTreeSet<_> = sent.iter().map(|frame| [frame[4], frame[5]]).collect();
    assert_eq!(numbers.len(), 3);
    assert!(!numbers.contains(&[0, 0]));
    let mut other = sent[0].clone();
    other[4] ^= 1;
    other[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &other[..20]));
    other[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(open(&mut tunnel, &[other]).is_empty());
    let drops = &tunnel.inbound.counters().drops;
    assert_eq!(drops.get(DropReason::AuthenticationFailed), 1);
    assert_eq!(open(&mut tunnel, &sent), packets);
}

#[test]
fn a_dropped_copy_takes_no_room() {
    let mut tunnel = Tunnel::with(GCM, false, |p| p.path = ends(4, false));
    let frame = frames(&mut tunnel, &[inner(4, b"")]).remove(0);
    let mut unknown = frame.clone();
    unknown[20] ^= 1;
    let facts = facts_of(&frame);
    let sad = tunnel.database.sad();
    let free = |tunnel: &mut Inbound| tunnel.receive_buffer().expect("a batch").bytes.len();
    let before = free(&mut tunnel.inbound);
    assert!(tunnel.inbound.push_copy(sad, &unknown, &facts).is_err());
    assert_eq!(free(&mut tunnel.inbound), before);
    assert!(tunnel.inbound.push_copy(sad, &frame, &facts).is_ok());
    assert_eq!(free(&mut tunnel.inbound), before - frame.len());
}

/// Packets that cannot be laid out must not fill the arena. Without a job in it, nobody would submit the batch and
/// empty it.
#[test]
fn bad_options_do_not_fill_the_arena() {
    let mut tunnel = Tunnel::with(AH, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, false);
    });
    let good = inner(4, &[7; 1400]);
    let mut bad = good.clone();
    bad[0] = 0x46;
    bad[10..12].fill(0);
    bad[20..24].copy_from_slice(&[7, 0, 0, 0]);
    let sum = checksum::fold(checksum::sum(0, &bad[..24]));
    bad[10..12].copy_from_slice(&sum.to_be_bytes());
    for _ in 0..300 {
        let _ = tunnel.outbound.push(&tunnel.spd, &bad).expect("room");
    }
    let drops = &tunnel.outbound.counters().drops;
    assert_eq!(drops.get(DropReason::MalformedInner), 300);
    let sent = frames(&mut tunnel, std::slice::from_ref(&good));
    assert_eq!(open(&mut tunnel, &sent), [good]);
}

#[test]
fn a_fragment_takes_no_whole_packet_with_it() {
    let mut tunnel = Tunnel::with(GCM, false, |p| {
        p.mode = Mode::Transport;
        p.path = ends(4, false);
    });
    let whole = inner(4, b"whole");
    let mut first = whole.clone();
    first[6] = 0x20;
    first[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &first[..20]));
    first[10..12].copy_from_slice(&sum.to_be_bytes());
    burst(&mut tunnel, &[first, whole.clone()]);
    let sent = flush(&mut tunnel);
    assert_eq!(open(&mut tunnel, &sent), [whole]);
    let drops = &tunnel.outbound.counters().drops;
    assert_eq!(drops.get(DropReason::Fragment), 1);
}

/// Puts one packet into the arena, with more or less room around it than it needs.
fn push_at(tunnel: &mut Tunnel, packet: &[u8], in_front: usize, behind: usize) {
    let buffer = tunnel.outbound.receive_buffer().expect("a batch");
    let end = in_front + packet.len();
    buffer.bytes[in_front..end].copy_from_slice(packet);
    let place = ArenaPacket {
        slot_start: buffer.offset as u32,
        slot_end: (buffer.offset + end + behind) as u32,
        offset: (buffer.offset + in_front) as u32,
        len: packet.len() as u32,
    };
    assert!(tunnel.outbound.commit_received(end + behind));
    tunnel.outbound.push_burst(&tunnel.spd, &[place]);
}

#[test]
fn padding_follows_the_path() {
    let mut tunnel = Tunnel::with(GCM, false, |p| p.tfc = TfcPadding::To(1400));
    let mut sent = |path_mtu| {
        tunnel.outbound_sa.set_path_mtu(path_mtu);
        frames(&mut tunnel, &[inner(4, b"short")])[0].len()
    };
    let wide = sent(None);
    assert!(wide > 1400);
    let narrow = sent(Some(1280));
    assert!((1277..=1280).contains(&narrow), "{narrow}");
    assert_eq!(sent(Some(9000)), wide);
    sent(Some(600));
    assert_eq!(sent(None), wide, "what was learned has aged");
}

#[test]
fn padding_makes_no_packet_too_long_to_be_sent() {
    let mut tunnel = Tunnel::with(GCM, false, |p| p.tfc = TfcPadding::To(65_530));
    push_at(&mut tunnel, &inner(4, b"short"), HEADROOM, 70_000);
    assert!(flush(&mut tunnel).is_empty());
    let drops = &tunnel.outbound.counters().drops;
    assert_eq!(drops.get(DropReason::TooLong), 1);
}

#[test]
fn an_outer_header_needs_its_room() {
    let mut tunnel = Tunnel::new(GCM, false);
    push_at(&mut tunnel, &inner(4, b"close"), 20, TAILROOM);
    let engine = &mut tunnel.seal_engine;
    tunnel.outbound.submit(engine).expect("it takes all");
    let mut sealed = tunnel.outbound.poll(engine, &tunnel.spd).expect("a batch");
    let mut sent = 0;
    let failed = sealed.for_each_frame(&mut 0, |_| sent += 1);
    assert_eq!((sent, failed), (0, 1));
}

/// Writes packets into the arena with room around them, and pushes them as a burst.
fn burst(tunnel: &mut Tunnel, packets: &[Vec<u8>]) -> Vec<u32> {
    let mut places = Vec::new();
    let buffer = tunnel.outbound.receive_buffer().expect("a batch");
    let mut end = 0;
    for packet in packets {
        let offset = end + HEADROOM;
        let len = packet.len();
        buffer.bytes[offset..offset + len].copy_from_slice(packet);
        let slot_end = offset + len + TAILROOM;
        places.push(ArenaPacket {
            slot_start: (buffer.offset + end) as u32,
            slot_end: (buffer.offset + slot_end) as u32,
            offset: (buffer.offset + offset) as u32,
            len: len as u32,
        });
        end = slot_end;
    }
    assert!(tunnel.outbound.commit_received(end));
    tunnel.outbound.push_burst(&tunnel.spd, &places);
    tunnel.outbound.bypassed().to_vec()
}

fn with_bypass(tunnel: &mut Tunnel) {
    let host = prefix("10.9.0.0/16");
    let set = SelectorSet::new(vec![Selector::between(host, host)]).expect("one");
    let mut entries = vec![SpdEntry::new(set, Action::Bypass)];
    entries.push(SpdEntry::new(
        selectors(LEFT, RIGHT),
        Action::Protect(Arc::clone(&tunnel.policy)),
    ));
    tunnel.spd = Spd::new(entries);
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    (0..6u8, payload, any::<u8>()).prop_map(|(kind, payload, tos)| match kind {
        0 | 1 => inner(4, &payload),
        2 => inner(6, &payload),
        3 => ipv4(
            "10.9.0.1",
            "10.9.0.2",
            17,
            tos,
            &[&[0; 8], &payload[..]].concat(),
        ),
        4 => ipv4(
            "10.1.0.7",
            "10.2.0.9",
            1,
            tos,
            &[&[8, 0, 0, 0], &payload[..]].concat(),
        ),
        _ => payload,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Both ways into the walk seal the same packets in the same way and count the same, whatever lies between the
    /// packets.
    #[test]
    fn a_burst_is_what_its_packets_are(
        packets in proptest::collection::vec(any_packet(), 1..150),
        mode in prop_oneof![Just(Mode::Tunnel), Just(Mode::Transport)],
        transform in prop_oneof![Just(GCM), Just(AH)],
    ) {
        let change = |p: &mut SaParameters<'_>| {
            p.mode = mode;
            p.path = ends(4, false);
        };
        let mut one_by_one = Tunnel::with(transform, false, change);
        let mut in_place = Tunnel::with(transform, false, change);
        // Both tunnels have the same SPI, so that the bytes can be compared.
        for tunnel in [&mut one_by_one, &mut in_place] {
            let key = key_material(transform);
            let mut p = parameters(transform, false, 0x1234_5678, &key);
            change(&mut p);
            tunnel.policy.remove(tunnel.outbound_sa.common.spi);
            tunnel.policy.install(Arc::new(OutboundSa::new(p).expect("good keys")));
            with_bypass(tunnel);
        }
        let expected = frames(&mut one_by_one, &packets);
        let bypassed = burst(&mut in_place, &packets);
        let got = flush(&mut in_place);
        prop_assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            prop_assert_eq!(got, expected);
        }
        let (a, b) = (one_by_one.outbound.counters(), in_place.outbound.counters());
        prop_assert_eq!(bypassed.len() as u64, b.packets_bypassed.load(Relaxed));
        prop_assert_eq!(a.packets_bypassed.load(Relaxed), b.packets_bypassed.load(Relaxed));
        let drops = |c: &esplanade_ipsec::WalkCounters| c.drops.iter().collect::<Vec<_>>();
        prop_assert_eq!(drops(a), drops(b));
    }
}
