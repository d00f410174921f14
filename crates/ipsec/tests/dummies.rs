//! Dummy packets in both directions (RFC 4303 §2.6).

mod common;

use std::sync::Arc;

use common::{ONE, Tunnel, assert_reconciled, inner};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::Refused;
use esplanade_ipsec::sa::Mode;

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
    assert_eq!(refused, Err(Refused::Dropped(DropReason::MalformedInner)));
    assert_eq!(tunnel.outbound_sa.sequence.next(), 1, "no number is spent");
}
