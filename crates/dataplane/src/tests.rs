//! Tests the packet path between two data planes, without a host around them.

mod engines;

use std::sync::atomic::{AtomicU64, Ordering};

use esplanade_crypto::Transform;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::pmtu::Evidence;
use esplanade_ipsec::tunnel::DfPolicy;
use proptest::prelude::*;

use super::*;
use crate::checksum::{fold, length_term, pseudo_header};
use crate::doors::Doors;
use crate::packet_io::{ReceiveSocket, SendSocket, TunQueue};
use crate::pair::{
    CLEAR_PORT, CLOSED_PORT, OTHER, PairOptions, PairSite, balance, ipv4, packets, pair,
    seal_header, udp, whole,
};
use crate::virtio::{GsoKind, VnetHeader};

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A list of dummies that does not change.
#[derive(Debug)]
struct Once(Option<DummySas>);

impl DummySource for Once {
    fn take_new(&mut self) -> Option<DummySas> {
        self.0.take()
    }
}

/// Carries what one site sent to the other. Returns what the other wrote.
fn carry([from, to]: [&mut PairSite; 2]) -> Vec<Vec<u8>> {
    for datagrams in from.take_sent().chunks(64) {
        to.receive(datagrams);
    }
    to.take_written()
}

#[test]
fn the_sweep_goes_with_time() {
    assert_eq!(swept(8192, 0), 0);
    assert_eq!(swept(8192, 1), SWEPT);
    assert_eq!(swept(8192, 10), 10 * SWEPT);
    assert_eq!(swept(8192, u64::MAX), SWEPT_MAX);
    // A round stays within its time for every configured number of flows.
    for flows in [1024, 600_000, 1_100_000] {
        let sets = Outbound::new(WalkLimits::default())
            .with_flows(flows)
            .flow_sets();
        assert!(sets * 8 >= flows, "{flows}: {sets} sets");
        assert!(swept(sets, 1) * ROUND_MS >= sets, "{flows}: {sets} sets");
    }
}

#[test]
fn packets_come_out_as_they_went_in() {
    for transform in Transform::ESP {
        for udp_encap in [true, false] {
            let [mut a, mut b] = pair(PairOptions {
                transform,
                udp_encap,
                ..PairOptions::default()
            });
            let there = packets(0, 0..300);
            a.read(0, &there);
            let send_socket = if udp_encap {
                SendSocket::NatT(0)
            } else {
                SendSocket::Esp(0)
            };
            assert!(
                a.plane
                    .io
                    .sent
                    .iter()
                    .all(|sent| sent.send_socket == send_socket)
            );
            assert_eq!(carry([&mut a, &mut b]), there, "{transform}");
            let back = packets(1, 0..300);
            b.read(0, &back);
            assert_eq!(carry([&mut b, &mut a]), back, "{transform}");
        }
    }
}

/// Two sites of which the second has two engines, and no inbound SA yet.
fn early_pair() -> [PairSite; 2] {
    pair(PairOptions {
        engines: [
            vec![EngineSource::cpu()],
            vec![EngineSource::cpu(), EngineSource::cpu()],
        ],
        early: true,
        ..PairOptions::default()
    })
}

/// The SA comes, with another engine than packets without an SA have.
fn install_elsewhere(site: &PairSite) {
    let placement = &site.inbound.common.placement;
    site.database.placements().place(placement, 1);
    let sa = Arc::clone(&site.inbound);
    site.database.sad().insert(sa).unwrap();
}

/// The peer sends as soon as its IKE response is on the way. Here the SA has another engine than
/// packets without an SA have.
#[test]
fn packets_wait_for_an_sa_that_ike_has_offered() {
    let [mut a, mut b] = early_pair();
    let there = packets(0, 0..20);
    a.read(0, &there);
    assert!(carry([&mut a, &mut b]).is_empty());
    assert!(b.plane.timeout() <= Duration::from_millis(EARLY_MS));
    b.plane.follow_early(|_, _, _| false);
    assert!(b.take_written().is_empty());
    install_elsewhere(&b);
    b.plane.follow_early(|_, _, _| false);
    assert_eq!(b.take_written(), there);
    assert!(b.plane.timeout() > Duration::from_millis(EARLY_MS));
    assert_eq!(count(&b.counters.early_packets), 20);
    let (given, counted) = balance(&b.plane.walk_counters()[1]);
    assert_eq!((given, counted), (20, 20));
    // An exchange that fails gives its SPI up.
    a.read(0, &there);
    carry([&mut a, &mut b]);
    assert!(!b.plane.has_early());
}

/// A worker may get the SA and the next datagrams at one time.
#[test]
fn datagrams_do_not_overtake_packets_that_wait_for_their_sa() {
    let [mut a, mut b] = pair(PairOptions {
        early: true,
        ..PairOptions::default()
    });
    let there = packets(0, 0..20);
    a.read(0, &there[..10]);
    assert!(carry([&mut a, &mut b]).is_empty());
    b.database.sad().insert(Arc::clone(&b.inbound)).unwrap();
    assert!(Doors::room(&mut b.plane).is_some());
    a.read(0, &there[10..]);
    assert_eq!(carry([&mut a, &mut b]), there);
}

/// The SA may come after the look at the packets that wait, and to another engine than theirs.
#[test]
fn datagrams_wait_behind_packets_that_wait_for_their_sa() {
    let [mut a, mut b] = early_pair();
    let there = packets(0, 0..20);
    a.read(0, &there[..10]);
    assert!(carry([&mut a, &mut b]).is_empty());
    install_elsewhere(&b);
    a.read(0, &there[10..]);
    assert!(carry([&mut a, &mut b]).is_empty());
    b.plane.follow_early(|_, _, _| false);
    assert_eq!(b.take_written(), there);
}

#[test]
fn a_super_segment_is_cut_and_put_together() {
    let [mut a, mut b] = pair(PairOptions::default());
    let mut packet = ipv4(0, 6, 40 + 30_000);
    packet.extend([
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 255, 255,
    ]);
    // The kernel leaves the sum of the pseudo-header in the checksum field.
    let pseudo = pseudo_header(&packet[12..20], 6) + length_term(20 + 30_000);
    packet.extend(fold(pseudo).to_ne_bytes());
    packet.extend([0, 0]);
    packet.extend((0..30_000u32).map(|at| (at * 7) as u8));
    let header = VnetHeader {
        gso: Some((GsoKind::TcpV4, 1300)),
        checksum: Some((20, 16)),
        header_len: 40,
    };
    a.read_as(0, &header, &packet);
    a.plane.seal_and_send();
    let counters = a.plane.walk_counters();
    assert_eq!(count(&counters[0].packets_out), 30_000u64.div_ceil(1300));
    assert_eq!(a.plane.io.sent.len(), 1, "one send for all");
    let out = carry([&mut a, &mut b]);
    assert_eq!(out.len(), 1, "one write for all");
    assert_eq!(out[0][40..], packet[40..]);
}

#[test]
fn what_is_not_protected_is_let_out_or_dropped() {
    let processing = Processing {
        report_discards: true,
        ..Processing::default()
    };
    let [mut a, _] = pair(PairOptions {
        processing,
        ..PairOptions::default()
    });
    let (clear, closed) = (udp(0, CLEAR_PORT, b"clear"), udp(0, CLOSED_PORT, b"closed"));
    a.read(0, [&clear, &closed]);
    assert_eq!(a.plane.io.bypassed, [clear]);
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(a.outbound_drops(DropReason::PolicyDiscard), 1);
    // RFC 792: the sender gets an error (type 3, code 13) by the queue of its worker.
    let [told] = &a.plane.io.written[..] else {
        panic!("{:?}", a.plane.io.written);
    };
    assert_eq!((told.port, told.queue), (0, TunQueue::Own));
    assert_eq!(told.packet[9], 1);
    assert_eq!(told.packet[20..22], [3, 13]);
    // One read is no packet, and the other has no policy in the SPD.
    let mut strange = udp(0, 7000, b"strange");
    strange[16] = 172;
    seal_header(&mut strange);
    a.read(0, [&vec![0x45; 10], &strange]);
    assert_eq!(a.outbound_drops(DropReason::MalformedInner), 1);
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 1);
}

#[test]
fn ports_are_kept_apart() {
    let [mut a, mut b] = pair(PairOptions::default());
    // The SPD has entries for the common port only.
    a.read(1, &packets(0, 0..3));
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 3);
    let there = packets(0, 3..6);
    a.read(0, &there);
    assert_eq!(carry([&mut a, &mut b]), there);
}

#[test]
fn an_sa_delivers_to_the_port_of_its_interface() {
    for (interface, port) in [(0, Some(0)), (OTHER, Some(1)), (OTHER + 1, None)] {
        let [mut a, mut b] = pair(PairOptions {
            interface,
            ..PairOptions::default()
        });
        let there = packets(0, 0..3);
        a.read(0, &there);
        b.receive(&a.take_sent());
        let written = b.plane.io.written.iter().map(|written| written.port);
        let expected = port.iter().flat_map(|port| [*port; 3]);
        assert_eq!(written.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let lost = if port.is_none() { 3 } else { 0 };
        assert_eq!(count(&b.counters.tun_write_errors), lost);
    }
}

#[test]
fn ike_is_for_others() {
    let [_, mut b] = pair(PairOptions::default());
    let ike = [&[0; 4][..], &[0x11; 28]].concat();
    b.receive(&[&ike[..], &[0xff], &[1, 2], &[]]);
    let [datagram] = &b.ike[..] else {
        panic!("{:?}", b.ike);
    };
    assert_eq!(datagram.payload, ike, "with its marker");
    assert_eq!(datagram.local.to_string(), "192.0.2.2:4500");
    assert_eq!(datagram.remote.to_string(), "192.0.2.1:4500");
    assert_eq!(count(&b.counters.keepalives), 1);
    assert_eq!(count(&b.counters.runts), 2);
    // The IKE port receives nothing else.
    let received = b.write_down(&[&[0x22; 28][..]]);
    let bound = "0.0.0.0:500".parse().unwrap();
    let mut told = Vec::new();
    b.plane
        .handle_outer(ReceiveSocket::Ike(bound), &received, |ike| told.push(ike));
    assert_eq!(told[0].payload, [0x22; 28]);
    assert_eq!(told[0].local.to_string(), "192.0.2.2:500");
}

/// The bytes that did fit may look like a whole packet, or like a whole IKE message.
#[test]
fn a_truncated_datagram_is_dropped() {
    for udp_encap in [true, false] {
        let [mut a, mut b] = pair(PairOptions {
            udp_encap,
            ..PairOptions::default()
        });
        let there = packets(0, 0..3);
        a.read(0, &there);
        let mut received = b.write_down(&a.take_sent());
        received[1].truncated = true;
        let receive_socket = b.receive_socket();
        b.plane.handle_outer(receive_socket, &received, |_| {});
        assert_eq!(b.take_written(), [there[0].clone(), there[2].clone()]);
        assert_eq!(count(&b.counters.receive_truncated), 1);
        assert_eq!(count(&b.counters.receives), 3);
    }
    let [_, mut b] = pair(PairOptions::default());
    let ike = [&[0; 4][..], &[0x11; 28]].concat();
    for (receive_socket, message) in [
        (b.receive_socket(), &ike[..]),
        (
            ReceiveSocket::Ike("0.0.0.0:500".parse().unwrap()),
            &ike[4..],
        ),
    ] {
        let mut received = b.write_down(&[message, message]);
        received[0].truncated = true;
        let mut told = Vec::new();
        b.plane
            .handle_outer(receive_socket, &received, |ike| told.push(ike.payload));
        assert_eq!(told, [message]);
    }
    assert_eq!(count(&b.counters.receive_truncated), 2);
}

#[test]
fn long_packets_are_cut_or_their_senders_told() {
    let [mut a, mut b] = pair(PairOptions {
        df: DfPolicy::Set,
        ..PairOptions::default()
    });
    let remote = a.outbound.common.path().remote.ip();
    a.paths.learn(remote, 1000, Evidence::Local, 1000).unwrap();
    let long = udp(0, 7000, &[5; 1200]);
    a.read(0, [&whole(long.clone())]);
    assert_eq!(a.outbound_drops(DropReason::TooBig), 1);
    assert!(a.plane.io.sent.is_empty());
    let told = a.take_written();
    assert_eq!(told[0][20..22], [3, 4], "fragmentation needed");
    let mtu = u16::from_be_bytes([told[0][26], told[0][27]]);
    assert!((900..1000).contains(&mtu), "{mtu}");

    // The sender permits fragmentation, but the policy forbids it after encryption.
    a.read(0, [&long]);
    let out = carry([&mut a, &mut b]);
    assert_eq!(out.len(), 2);
    assert_eq!([&out[0][20..], &out[1][20..]].concat(), long[20..]);
    assert_eq!(count(&a.counters.fragmented), 1);
    let (given, counted) = balance(&a.plane.walk_counters()[0]);
    assert_eq!(given, counted);
}

/// RFC 4301 §7.4: a port selector makes the plane put datagrams together.
#[test]
fn fragments_that_make_no_datagram_are_refused() {
    let processing = Processing {
        reassemble: true,
        ..Processing::default()
    };
    let [mut a, _] = pair(PairOptions {
        processing,
        ..PairOptions::default()
    });
    // `at` is where the data begins, in units of eight bytes; more fragments follow.
    let fragment = |identification: u8, at: u8| {
        let mut packet = ipv4(0, 17, 20 + 64);
        packet[5] = identification;
        packet[6..8].copy_from_slice(&[0x20, at]);
        seal_header(&mut packet);
        packet.extend([1; 64]);
        packet
    };
    a.read(0, [&fragment(1, 0), &fragment(1, 8)]);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 0);
    // This fragment overlaps the second one.
    a.read(0, [&fragment(1, 12)]);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 1);

    // No other fragment of this datagram comes.
    a.read(0, [&fragment(2, 0)]);
    a.at(120_000);
    a.plane.finish();
    assert_eq!(count(&a.counters.reassembly_timeouts), 1);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 2);
    assert!(a.plane.io.sent.is_empty());
}

#[test]
fn what_nothing_serves_is_counted() {
    let [mut a, _] = pair(PairOptions::default());
    a.plane.io.is_shut = true;
    a.read(0, &packets(0, 0..5));
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(count(&a.counters.send_errors), 5);
}

#[test]
fn silence_is_filled_when_it_is_time() {
    let [mut a, mut b] = pair(PairOptions::default());
    let sa = Arc::clone(&a.outbound);
    let interval_ms = 100;
    let sas = DummySas::from([DummySa { sa, interval_ms }]);
    a.plane.dummies = Some(DummyScheduler::new(Box::new(Once(Some(sas)))));
    a.at(1001);
    a.plane.finish();
    assert_eq!(a.plane.timeout(), Duration::from_millis(100));
    a.at(1101);
    a.plane.finish();
    assert_eq!(carry([&mut a, &mut b]), Vec::<Vec<u8>>::new());
    assert_eq!(b.inbound_drops(DropReason::Dummy), 1);
}

/// A thing that happens to a datagram on its way.
#[derive(Clone, Debug)]
enum Tampering {
    Whole,
    Lost,
    Twice,
    Flipped(usize),
    Cut(usize),
}

fn way() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        3 => Just(Tampering::Whole),
        1 => Just(Tampering::Lost),
        1 => Just(Tampering::Twice),
        1 => any::<usize>().prop_map(Tampering::Flipped),
        1 => any::<usize>().prop_map(Tampering::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_comes_is_protected_opened_or_counted(
        reads in proptest::collection::vec(
            prop_oneof![
                (0u32..4000).prop_map(|number| packets(0, number..number + 1).remove(0)),
                proptest::collection::vec(any::<u8>(), 0..200),
            ],
            0..40,
        ),
        headers in proptest::collection::vec(any::<[u8; 10]>(), 0..4),
        ways in proptest::collection::vec(way(), 64),
        udp_encap in any::<bool>(),
    ) {
        let [mut a, mut b] = pair(PairOptions { udp_encap, ..PairOptions::default() });
        let spd = a.database.spd();
        for (number, read) in reads.iter().enumerate() {
            let plain = VnetHeader::default().encode();
            let header = headers.get(number).unwrap_or(&plain);
            a.plane.handle_inner(&spd, 0, &mut [&header[..], read].concat());
        }
        a.plane.seal_and_send();
        let [outbound, _] = a.plane.walk_counters();
        let (given, counted) = balance(&outbound);
        prop_assert_eq!(given, counted);
        let sent = a.take_sent();
        prop_assert_eq!(sent.len() as u64, count(&outbound.packets_out));
        // One receive takes this many datagrams, and each ESP packet is counted.
        let (mut datagrams, mut unaltered) = (Vec::new(), 0);
        for (datagram, way) in sent.iter().zip(&ways) {
            let mut altered = datagram.clone();
            match *way {
                Tampering::Lost => continue,
                Tampering::Whole => {}
                Tampering::Twice => datagrams.push(datagram.clone()),
                Tampering::Flipped(at) => altered[at % datagram.len()] ^= 1 << (at % 8),
                Tampering::Cut(at) => altered.truncate(at % datagram.len()),
            }
            unaltered += u64::from(matches!(way, Tampering::Whole | Tampering::Twice));
            datagrams.push(altered);
        }
        b.receive(&datagrams);
        let [_, inbound] = b.plane.walk_counters();
        let (given, counted) = balance(&inbound);
        prop_assert_eq!(given, counted);
        prop_assert_eq!(count(&inbound.packets_out), unaltered);
        let others = b.ike.len() as u64 + count(&b.counters.runts) + count(&b.counters.keepalives);
        prop_assert_eq!(given + others, datagrams.len() as u64);
        prop_assert!(b.take_written().len() as u64 <= unaltered);
    }
}
