//! Tests bursts in the arena of which not all packets can be sealed: for the usual kind of SA, which has code of its
//! own, and for another kind.

use std::num::NonZeroU8;

use crate::common::{ONE, Tunnel, assert_reconciled, inner, ipv4, selectors};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::{ArenaPacket, HEADROOM, Outbound, TAILROOM, WalkLimits};

const GCM: Transform = Transform::ESP[0];

/// Pushes packets, each with the given numbers of its own bytes in front and behind.
fn push(tunnel: &mut Tunnel, packets: &[(Vec<u8>, usize, usize)]) {
    let mut places = Vec::new();
    let buffer = tunnel.outbound.receive_buffer().expect("a batch");
    let mut end = 0;
    for (packet, in_front, behind) in packets {
        let at = end + HEADROOM;
        buffer.bytes[at..at + packet.len()].copy_from_slice(packet);
        let place = |at: usize| (buffer.offset + at) as u32;
        places.push(ArenaPacket {
            slot_start: place(at - in_front),
            slot_end: place(at + packet.len() + behind),
            offset: place(at),
            len: packet.len() as u32,
        });
        end = at + packet.len() + TAILROOM;
    }
    assert!(tunnel.outbound.commit_received(end));
    tunnel.outbound.push_burst(&tunnel.spd, &places);
}

/// The packets that arrive at the other end.
fn arrived(tunnel: &mut Tunnel) -> Vec<Vec<u8>> {
    let engine = &mut tunnel.seal_engine;
    tunnel.outbound.submit(engine).expect("it takes all");
    let mut sealed = Vec::new();
    while let Some(batch) = tunnel.outbound.poll(engine, &tunnel.spd) {
        sealed.extend(batch.trains(ONE).map(|train| train.esp.to_vec()));
        tunnel.outbound.recycle(batch);
    }
    tunnel.open(&sealed)
}

fn tunnels() -> [Tunnel; 2] {
    [None, NonZeroU8::new(9)].map(|ttl| Tunnel::with(GCM, false, |p| p.tunnel.ttl = ttl))
}

/// Packets of various lengths. A run of them belongs to one SA.
fn packets(n: u8) -> Vec<Vec<u8>> {
    let payload = |i: u8| vec![i; usize::from(i) + 8];
    (0..n).map(|i| inner(4, &payload(i))).collect()
}

#[test]
fn a_packet_without_room_around_it_is_dropped_alone() {
    for mut tunnel in tunnels() {
        let all = packets(5);
        let mut placed: Vec<_> = all
            .iter()
            .map(|packet| (packet.clone(), HEADROOM, TAILROOM))
            .collect();
        placed[1].1 = 15;
        placed[3].2 = 17;
        push(&mut tunnel, &placed);
        let whole = [&all[0], &all[2], &all[4]];
        assert!(arrived(&mut tunnel).iter().eq(whole));
        let counters = tunnel.outbound.counters();
        assert_eq!(counters.drops.get(DropReason::TooLong), 2);
        assert_eq!(tunnel.outbound_sa.common.drops.get(DropReason::TooLong), 2);
        assert_reconciled(counters);
    }
}

#[test]
fn a_packet_may_fill_its_slot() {
    for mut tunnel in tunnels() {
        // The header and the IV need room in front; the padding, the trailer and the ICV need room behind.
        let packet = inner(4, &[7; 10]);
        let behind = GCM.sealed_len(packet.len()) - packet.len() - 16;
        push(&mut tunnel, &[(packet.clone(), 16, behind)]);
        assert_eq!(arrived(&mut tunnel), [packet]);
    }
}

#[test]
fn a_malformed_packet_does_not_shift_those_behind_it() {
    for mut tunnel in tunnels() {
        let mut all = packets(4);
        all[1][0] = 0x30;
        let placed: Vec<_> = all
            .iter()
            .map(|packet| (packet.clone(), HEADROOM, TAILROOM))
            .collect();
        push(&mut tunnel, &placed);
        let whole = [&all[0], &all[2], &all[3]];
        assert!(arrived(&mut tunnel).iter().eq(whole));
        assert_reconciled(tunnel.outbound.counters());
    }
}

#[test]
fn a_burst_beyond_the_batch_is_dropped_and_counted() {
    for mut tunnel in tunnels() {
        tunnel.outbound = Outbound::new(WalkLimits {
            jobs_max: 4,
            ..WalkLimits::default()
        });
        let all = packets(6);
        for part in [&all[..3], &all[3..]] {
            let placed: Vec<_> = part
                .iter()
                .map(|packet| (packet.clone(), HEADROOM, TAILROOM))
                .collect();
            push(&mut tunnel, &placed);
        }
        assert!(arrived(&mut tunnel).iter().eq(&all[..3]));
        let counters = tunnel.outbound.counters();
        assert_eq!(counters.drops.get(DropReason::TooLong), 3);
        assert_reconciled(counters);
    }
}

#[test]
fn packets_without_an_sa_count_with_their_policy() {
    let counts = |tunnel: &Tunnel| {
        tunnel
            .policy
            .unserved()
            .iter()
            .map(|(_, n)| n)
            .collect::<Vec<_>>()
    };
    for mut tunnel in tunnels() {
        let placed = |n| {
            packets(n)
                .into_iter()
                .map(|packet| (packet, HEADROOM, TAILROOM))
        };
        push(&mut tunnel, &placed(3).collect::<Vec<_>>());
        assert_eq!(counts(&tunnel), [0, 0]);
        arrived(&mut tunnel);

        tunnel.policy.remove(tunnel.outbound_sa.common.spi);
        push(&mut tunnel, &placed(5).collect::<Vec<_>>());
        let echo = ipv4(
            "10.1.0.7",
            "10.2.0.9",
            1,
            0,
            &[8, 0, 0xf7, 0xff, 0, 0, 0, 0],
        );
        push(&mut tunnel, &[(echo, HEADROOM, TAILROOM)]);
        assert!(
            tunnel
                .outbound
                .push(&tunnel.spd, &inner(4, &[1; 8]))
                .is_ok()
        );
        assert_eq!(counts(&tunnel), [7, 0]);
        assert_eq!(tunnel.outbound.counters().drops.get(DropReason::NoSa), 7);
        assert_reconciled(tunnel.outbound.counters());
    }
    let narrow = selectors(
        ["10.1.0.0/30", "fd00:1::/126"],
        ["10.2.0.0/16", "fd00:2::/64"],
    );
    let mut tunnel = Tunnel::with(GCM, false, |p| p.selectors = narrow.clone());
    push(&mut tunnel, &[(inner(4, &[1; 8]), HEADROOM, TAILROOM)]);
    assert_eq!(counts(&tunnel), [0, 1]);
}
