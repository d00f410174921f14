//! Tests dummy packets in both directions (RFC 4303 §2.6).

use std::sync::Arc;

use crate::common::whole::{ends, frames, open};
use crate::common::{ONE, Tunnel, assert_reconciled, inner, ipv4, ipv6};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::ReserveRefused;
use esplanade_ipsec::sa::Mode;
use esplanade_ipsec::wire::ip::PROTOCOL_NONE as NO_NEXT_HEADER;

// RFC 4303 R16, R17
#[test]
fn dummies_are_sealed_like_packets_and_vanish_without_an_error() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    let sa = Arc::clone(&tunnel.outbound_sa);
    let real = inner(4, &[7; 72]);
    let (engine, walk) = (&mut tunnel.seal_engine, &mut tunnel.outbound);
    assert_eq!(walk.push_dummy(&sa, real.len()), Ok(()));
    walk.push(&tunnel.spd, &real).expect("room in the batch");
    walk.submit(engine).expect("the engine takes it");
    let mut sealed = Vec::new();
    while let Some(batch) = walk.poll(engine, &tunnel.spd) {
        sealed.extend(batch.trains(ONE).map(|train| train.esp.to_vec()));
        walk.recycle(batch);
    }
    let numbers: Vec<&[u8]> = sealed.iter().map(|esp| &esp[4..8]).collect();
    assert_eq!(numbers, [[0, 0, 0, 1], [0, 0, 0, 2]]);
    assert_eq!(sealed[0].len(), sealed[1].len(), "nothing tells them apart");
    assert_eq!(tunnel.open(&sealed), [real]);
    let counters = tunnel.inbound.counters();
    assert_eq!(counters.drops.get(DropReason::Dummy), 1);
    assert_eq!(counters.drops.total(), 1);
    assert_reconciled(counters);
    assert_eq!(
        tunnel.inbound_sa.replay.top(),
        2,
        "it is a packet of the SA"
    );
}

#[test]
fn transport_mode_has_no_header_for_a_dummy() {
    let mut tunnel = Tunnel::with(Transform::ESP[0], false, |p| p.mode = Mode::Transport);
    let sa = Arc::clone(&tunnel.outbound_sa);
    let refused = tunnel.outbound.push_dummy(&sa, 100);
    assert_eq!(
        refused,
        Err(ReserveRefused::Dropped(DropReason::MalformedInner))
    );
    assert_eq!(tunnel.outbound_sa.sequence.next(), 1, "no number is spent");
}

/// A peer makes dummies in transport mode too. It seals packets whose headers say that nothing is behind them.
// RFC 4303 R17
#[test]
fn dummies_of_transport_mode_vanish_without_an_error() {
    for transform in [Transform::ESP[0], Transform::AH[0]] {
        for version in [4, 6] {
            let mut tunnel = Tunnel::with(transform, false, |p| {
                (p.mode, p.path) = (Mode::Transport, ends(version, false));
            });
            let dummy = match version {
                4 => ipv4("10.1.0.7", "10.2.0.9", NO_NEXT_HEADER, 0, &[7; 40]),
                _ => ipv6(
                    "2001:db8:1::7",
                    "2001:db8:2::9",
                    NO_NEXT_HEADER,
                    0,
                    &[7; 40],
                ),
            };
            let real = inner(version, b"real");
            let sent = frames(&mut tunnel, &[dummy, real.clone()]);
            assert_eq!(sent.len(), 2);
            assert_eq!(open(&mut tunnel, &sent), [real], "{transform}");
            let drops = &tunnel.inbound.counters().drops;
            assert_eq!((drops.get(DropReason::Dummy), drops.total()), (1, 1));
            assert_eq!(
                tunnel.inbound_sa.replay.top(),
                2,
                "it is a packet of the SA"
            );
        }
    }
}
