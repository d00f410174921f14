//! Tests both walks together: sealed packets are opened, changed packets are refused, and every packet is accounted
//! for.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{
    DeadEngine, SlowEngine, Tunnel, address, assert_reconciled, facts, inner, ipv4,
};
use esplanade_crypto::generators;
use esplanade_crypto::{RejectReason, Transform};
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, ReserveRefused, Segments, TrainLimits, WalkLimits};
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::IpView;
use esplanade_ipsec::{DropReason, Event};
use proptest::prelude::*;

fn any_inner() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..1500);
    (prop_oneof![Just(4), Just(6)], payload).prop_map(|(version, payload)| inner(version, &payload))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // RFC 4301 R1; RFC 4303 R2, R13
    #[test]
    fn opening_undoes_sealing(
        transform in generators::esp(),
        esn in any::<bool>(),
        packets in proptest::collection::vec(any_inner(), 1..20),
    ) {
        let mut tunnel = Tunnel::new(transform, esn);
        let sealed = tunnel.seal(&packets);
        prop_assert_eq!(sealed.len(), packets.len());
        prop_assert_eq!(tunnel.open(&sealed), packets);
        assert_reconciled(tunnel.outbound.counters());
        assert_reconciled(tunnel.inbound.counters());
        prop_assert_eq!(tunnel.inbound.counters().drops.total(), 0);
    }

    // RFC 4303 R39, R44, R47
    #[test]
    fn a_changed_packet_is_refused(
        transform in generators::esp(),
        esn in any::<bool>(),
        packet in any_inner(),
        at in any::<proptest::sample::Index>(),
        mask in 1u8..,
    ) {
        let mut tunnel = Tunnel::new(transform, esn);
        let mut sealed = tunnel.seal(&[packet.clone(), packet]);
        let changed = &mut sealed[1];
        let at = at.index(changed.len());
        changed[at] ^= mask;
        prop_assert!(tunnel.open(&sealed[1..]).is_empty());
        let drops = &tunnel.inbound.counters().drops;
        prop_assert_eq!(drops.total(), 1);
        assert_reconciled(tunnel.inbound.counters());
        if at >= 8 {
            prop_assert_eq!(drops.get(DropReason::AuthenticationFailed), 1);
            let sa_drops = &tunnel.inbound_sa.common.drops;
            prop_assert_eq!(sa_drops.get(DropReason::AuthenticationFailed), 1);
        }
        // A forgery moves nothing: the true packet still passes.
        prop_assert_eq!(tunnel.inbound_sa.replay.top(), 0);
        prop_assert_eq!(tunnel.open(&sealed[..1]).len(), 1);
    }

    #[test]
    fn arbitrary_bytes_are_refused_and_counted(
        transform in generators::esp(),
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        aimed in any::<bool>(),
    ) {
        let mut tunnel = Tunnel::new(transform, false);
        if let (true, Some(spi)) = (aimed, bytes.get_mut(..4)) {
            spi.copy_from_slice(&tunnel.inbound_sa.common.spi.to_be_bytes());
        }
        prop_assert!(tunnel.open(&[bytes]).is_empty());
        prop_assert_eq!(tunnel.inbound.counters().drops.total(), 1);
        assert_reconciled(tunnel.inbound.counters());
    }

    #[test]
    fn arbitrary_authentic_bodies_do_no_harm(
        transform in generators::esp(),
        esn in any::<bool>(),
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..5),
        version in prop_oneof![Just(0x45u8), Just(0x60)],
    ) {
        let mut tunnel = Tunnel::new(transform, esn);
        for mut body in bodies {
            if let Some(first) = body.first_mut() {
                *first = version;
            }
            crate::common::drive_inbound(&mut tunnel, &body);
        }
    }

    #[test]
    fn a_truncated_packet_is_refused(
        transform in generators::esp(),
        packet in any_inner(),
        at in any::<proptest::sample::Index>(),
    ) {
        let mut tunnel = Tunnel::new(transform, true);
        let mut sealed = tunnel.seal(&[packet]);
        let len = at.index(sealed[0].len());
        sealed[0].truncate(len);
        prop_assert!(tunnel.open(&sealed).is_empty());
        prop_assert_eq!(tunnel.inbound.counters().drops.total(), 1);
    }
}

/// Seals a super-segment. Returns the number of segments and the bytes of each train.
fn seal_segments(
    tunnel: &mut Tunnel,
    segments: &Segments,
    limits: TrainLimits,
) -> Vec<(usize, Vec<u8>)> {
    let packet = inner(4, &vec![0x55; segments.segment_len - 28]);
    let view = IpView::parse(&packet).expect("well-formed");
    let sa = Arc::clone(&tunnel.outbound_sa);
    let mut slots = tunnel.outbound.reserve(&sa, &view, segments).expect("room");
    let mut filled = 0;
    while let Some(slot) = slots.next_slot() {
        let packet = inner(4, &vec![filled; slot.len() - 28]);
        slot.copy_from_slice(&packet);
        filled += 1;
    }
    drop(slots);
    assert_eq!(u32::from(filled), segments.count);
    tunnel
        .outbound
        .submit(&mut tunnel.seal_engine)
        .expect("taken");
    let sealed = tunnel
        .outbound
        .poll(&mut tunnel.seal_engine, &tunnel.spd)
        .expect("one batch");
    let trains = sealed.trains(limits);
    let trains = trains.map(|t| {
        assert_eq!(t.esp.len().div_ceil(t.segment_len), t.segments);
        (t.segments, t.esp.to_vec())
    });
    let trains = trains.collect();
    tunnel.outbound.recycle(sealed);
    trains
}

#[test]
fn a_super_segment_becomes_trains_and_is_opened_in_order() {
    let segments = Segments {
        count: 40,
        segment_len: 1400,
        last_len: 700,
    };
    for transform in [Transform::ESP[0], Transform::ESP[3]] {
        let mut tunnel = Tunnel::new(transform, true);
        let limits = TrainLimits {
            segments: 16,
            bytes: 65_000,
        };
        let trains = seal_segments(&mut tunnel, &segments, limits);
        let counts: Vec<usize> = trains.iter().map(|t| t.0).collect();
        assert_eq!(counts, [16, 16, 8]);
        let sealed_len = transform.sealed_len(1400);
        let packets: Vec<Vec<u8>> = trains
            .iter()
            .flat_map(|(_, bytes)| bytes.chunks(sealed_len).map(<[u8]>::to_vec))
            .collect();
        let opened = tunnel.open(&packets);
        assert_eq!(opened.len(), 40);
        for (index, packet) in opened.iter().enumerate() {
            assert_eq!(packet.last(), Some(&(index as u8)));
            assert_eq!(packet.len(), if index == 39 { 700 } else { 1400 });
        }
        let lifetime = &tunnel.outbound_sa.common.lifetime;
        assert_eq!(
            (lifetime.packets(), lifetime.bytes()),
            (40, 39 * 1400 + 700)
        );
    }
}

#[test]
fn small_packets_of_one_flow_join_one_train() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    for payload in [100, 100, 100, 60, 100] {
        let packet = inner(4, &vec![1; payload]);
        let _ = tunnel.outbound.push(&tunnel.spd, &packet).expect("room");
    }
    tunnel
        .outbound
        .submit(&mut tunnel.seal_engine)
        .expect("taken");
    let sealed = tunnel
        .outbound
        .poll(&mut tunnel.seal_engine, &tunnel.spd)
        .expect("one batch");
    let limits = TrainLimits {
        segments: 64,
        bytes: 65_000,
    };
    let segments: Vec<usize> = sealed.trains(limits).map(|t| t.segments).collect();
    assert_eq!(segments, [4, 1], "the shorter one ends a train");
}

/// Pushes `total` numbered packets through an engine that finishes late and finishes all batches at once.
#[test]
fn packets_come_out_in_order_whatever_the_engine_does() {
    let limits = WalkLimits {
        buffer_len: 4096,
        jobs_max: 5,
        batches_max: 4,
    };
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    tunnel.outbound = Outbound::new(limits);
    tunnel.inbound = Inbound::new(limits);
    let mut seal = SlowEngine::new(3, 4);
    let mut open = SlowEngine::new(2, 3);
    let mut sealed: Vec<Vec<u8>> = Vec::new();
    let mut full = 0;
    for number in 0..200u8 {
        let packet = inner(4, &[number; 30]);
        let mut outcome = tunnel.outbound.push(&tunnel.spd, &packet);
        while let Err(refused) = outcome {
            assert_eq!(refused, ReserveRefused::BatchFull);
            if tunnel.outbound.submit(&mut seal) == Err(RejectReason::Full) {
                full += 1;
            }
            if let Some(batch) = tunnel.outbound.poll(&mut seal, &tunnel.spd) {
                sealed.extend(batch.trains(crate::common::ONE).map(|t| t.esp.to_vec()));
                tunnel.outbound.recycle(batch);
            }
            outcome = tunnel.outbound.push(&tunnel.spd, &packet);
        }
    }
    let mut idle = 0;
    while idle < 8 {
        let _ = tunnel.outbound.submit(&mut seal);
        idle += 1;
        if let Some(batch) = tunnel.outbound.poll(&mut seal, &tunnel.spd) {
            idle = 0;
            sealed.extend(batch.trains(crate::common::ONE).map(|t| t.esp.to_vec()));
            tunnel.outbound.recycle(batch);
        }
    }
    assert!(full > 0, "the engine was never full");
    let numbers: Vec<u32> = sealed
        .iter()
        .map(|p| u32::from_be_bytes([p[4], p[5], p[6], p[7]]))
        .collect();
    assert_eq!(numbers, (1..=200).collect::<Vec<u32>>());
    assert_reconciled(tunnel.outbound.counters());

    let mut opened: Vec<u8> = Vec::new();
    let mut packets = sealed.iter().peekable();
    idle = 0;
    while idle < 8 {
        idle += 1;
        while tunnel.inbound.has_room() {
            let Some(packet) = packets.next() else { break };
            let sad = tunnel.database.sad();
            tunnel
                .inbound
                .push_copy(sad, packet, &facts())
                .expect("fresh");
        }
        let _ = tunnel.inbound.submit(&mut open);
        if let Some(batch) = tunnel.inbound.poll(&mut open) {
            idle = 0;
            let last_byte = |d| *batch.packet(d).last().expect("not empty");
            opened.extend(batch.delivered().iter().map(last_byte));
            tunnel.inbound.recycle(batch);
        }
    }
    assert_eq!(opened, (0..200).collect::<Vec<u8>>());
    assert_reconciled(tunnel.inbound.counters());
}

// RFC 4303 R37
#[test]
fn two_copies_in_one_batch_deliver_once() {
    let mut tunnel = Tunnel::new(Transform::ESP[2], true);
    let sealed = tunnel.seal(&[inner(6, b"once")]);
    let twice = vec![sealed[0].clone(), sealed[0].clone()];
    assert_eq!(tunnel.open(&twice).len(), 1);
    assert_eq!(tunnel.inbound.counters().drops.get(DropReason::Replayed), 1);
    assert!(tunnel.open(&sealed).is_empty());
    assert_eq!(tunnel.inbound.counters().drops.get(DropReason::Replayed), 2);
    assert_reconciled(tunnel.inbound.counters());
}

#[test]
fn what_a_dead_engine_refuses_goes_to_another() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    let sealed = tunnel.seal(&[inner(4, b"one")]);
    let _ = tunnel
        .outbound
        .push(&tunnel.spd, &inner(4, b"two"))
        .expect("room");
    let refused = tunnel.outbound.submit(&mut DeadEngine);
    assert_eq!(refused, Err(RejectReason::OutOfService));
    assert_eq!(tunnel.outbound.waiting(), 1);
    let sad = tunnel.database.sad();
    tunnel
        .inbound
        .push_copy(sad, &sealed[0], &facts())
        .expect("fresh");
    let refused = tunnel.inbound.submit(&mut DeadEngine);
    assert_eq!(refused, Err(RejectReason::OutOfService));
    assert!(!tunnel.outbound.can_take() && !tunnel.inbound.can_take());
    let two = tunnel.seal(&[]);
    assert_eq!(tunnel.open(&[]), [inner(4, b"one")]);
    assert_eq!(tunnel.open(&two), [inner(4, b"two")]);
    for counters in [tunnel.outbound.counters(), tunnel.inbound.counters()] {
        assert_eq!(counters.drops.total(), 0);
        assert_reconciled(counters);
    }
}

// RFC 4301 R23
#[test]
fn rekeying_under_traffic_loses_nothing() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], true);
    let before = tunnel.seal(&[inner(4, b"old")]);
    let key = vec![9; Transform::ESP[0].key_material_len()];
    let spi = tunnel.database.sad().allocate_spi().expect("room");
    let mut right = crate::common::parameters(Transform::ESP[0], true, spi, &key);
    right.selectors = crate::common::selectors(crate::common::RIGHT, crate::common::LEFT);
    let sa = esplanade_ipsec::sa::InboundSa::new(right).expect("good keys");
    // The receiver switches first, then the sender (RFC 7296 §2.8).
    tunnel
        .database
        .sad()
        .insert(Arc::new(sa))
        .expect("allocated");
    let left = crate::common::parameters(Transform::ESP[0], true, spi, &key);
    let sa = Arc::new(OutboundSa::new(left).expect("good keys"));
    let former = tunnel.policy.install(sa).expect("the first SA");
    let after = tunnel.seal(&[inner(4, b"new")]);
    assert_ne!(before[0][..4], after[0][..4]);
    assert_eq!(tunnel.open(&[after[0].clone(), before[0].clone()]).len(), 2);

    let old = former.common.spi;
    assert!(tunnel.policy.remove(old).is_none(), "the new SA stays");
    assert!(tunnel.database.sad().remove(old).is_some());
    let again = tunnel.open(&before);
    assert!(again.is_empty());
    assert_eq!(
        tunnel.inbound.counters().drops.get(DropReason::UnknownSpi),
        1
    );
    assert!(tunnel.policy.remove(spi).is_some());
    assert!(tunnel.policy.outbound_sa().is_none());
}

#[test]
fn few_packets_with_an_unknown_spi_raise_an_event() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], true);
    let sealed = tunnel.seal(&[inner(4, b"one")]);
    let (spi, _) = sealed[0].split_first_chunk().expect("an SPI");
    let spi = u32::from_be_bytes(*spi);
    assert!(tunnel.database.sad().remove(spi).is_some());
    let mut reserved = sealed[0].clone();
    reserved[..4].copy_from_slice(&[0, 0, 0, 255]);
    assert!(tunnel.open(&[reserved]).is_empty());
    assert!(tunnel.inbound.drain_events().next().is_none());
    for _ in 0..100 {
        assert!(tunnel.open(&sealed).is_empty());
    }
    let told: Vec<_> = tunnel.inbound.drain_events().collect();
    let ours = |event: &Event| matches!(event, Event::UnknownSpi { spi: told, .. } if *told == spi);
    assert!(
        told.iter().all(ours) && (1..10).contains(&told.len()),
        "{told:?}"
    );
}

#[test]
fn strangers_with_unknown_spis_take_no_event_from_a_peer() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], true);
    let sealed = tunnel.seal(&[inner(4, b"one")]);
    let (spi, _) = sealed[0].split_first_chunk().expect("an SPI");
    let sad = tunnel.database.sad();
    assert!(sad.remove(u32::from_be_bytes(*spi)).is_some());
    let (stranger, peer) = (address("203.0.113.9"), address("198.51.100.7"));
    sad.set_peers([peer].into());
    tunnel.inbound.set_now_ms(1000);
    for from in [stranger, stranger, peer, peer] {
        let remote = SocketAddr::new(from, 4500);
        tunnel.open_from(&sealed, &OuterFacts { remote, ..facts() });
    }
    let told = tunnel.inbound.drain_events().map(|event| match event {
        Event::UnknownSpi { remote, .. } => remote.ip(),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [stranger, peer]);
}

// RFC 4303 R8
#[test]
fn sequence_numbers_are_never_reused_by_workers() {
    let tunnel = Tunnel::new(Transform::ESP[0], true);
    let spd = &tunnel.spd;
    let mut all: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let worker = |_| {
            scope.spawn(move || {
                let mut outbound = Outbound::new(WalkLimits::default());
                let mut engine = crate::common::engine();
                let mut ivs = Vec::new();
                for _ in 0..20 {
                    for _ in 0..25 {
                        let _ = outbound.push(spd, &inner(4, b"x")).expect("room");
                    }
                    outbound.submit(&mut engine).expect("taken");
                    let sealed = outbound.poll(&mut engine, spd).expect("one batch");
                    ivs.extend(
                        sealed
                            .trains(crate::common::ONE)
                            .map(|t| t.esp[4..16].to_vec()),
                    );
                    outbound.recycle(sealed);
                }
                ivs
            })
        };
        let threads: Vec<_> = (0..3).map(worker).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().expect("worker ends"))
            .collect()
    });
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3 * 20 * 25);
}

#[test]
fn a_batch_knows_whether_its_packets_have_one_priority() {
    let expedited = ipv4("10.1.0.7", "10.2.0.9", 17, 0xb8, &[0; 8]);
    let common = ipv4("10.1.0.7", "10.2.0.9", 17, 0, &[0; 8]);
    for (packets, expected) in [
        ([&common, &common], true),
        ([&common, &expedited], false),
        ([&expedited, &expedited], true),
    ] {
        let mut tunnel = Tunnel::new(Transform::ESP[0], false);
        for packet in packets {
            let _ = tunnel.outbound.push(&tunnel.spd, packet).expect("room");
        }
        tunnel
            .outbound
            .submit(&mut tunnel.seal_engine)
            .expect("taken");
        let sealed = tunnel.outbound.poll(&mut tunnel.seal_engine, &tunnel.spd);
        assert_eq!(sealed.expect("a batch").is_of_one_class(), expected);
    }
}
