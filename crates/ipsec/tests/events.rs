//! Tests which events the control plane gets, and how often.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{POLICY, Tunnel, address, facts, inner};
use esplanade_crypto::Transform;
use esplanade_ipsec::Event;
use esplanade_ipsec::lifetime::{LifetimeEvent, LifetimeLimits};
use esplanade_ipsec::sa::{OutboundSa, SaDirection, SaParameters};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::tunnel::OuterFacts;

const GCM: Transform = Transform::ESP[0];

#[test]
fn an_acquire_is_raised_once_until_it_is_done() {
    let mut tunnel = Tunnel::new(GCM, false);
    tunnel.policy.remove(tunnel.outbound_sa.common.spi);
    let packet = [inner(4, b"first"), inner(4, b"second")];
    tunnel.seal(&packet);
    let events: Vec<Event> = tunnel.outbound.drain_events().collect();
    let [Event::Acquire { policy, flow, .. }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(*policy, POLICY);
    assert_eq!(flow.remote, address("10.2.0.9"));
    tunnel.seal(&packet);
    assert_eq!(tunnel.outbound.drain_events().count(), 0);
    tunnel.policy.acquire_done();
    tunnel.seal(&packet);
    assert_eq!(tunnel.outbound.drain_events().count(), 1);
    tunnel.policy.install(Arc::clone(&tunnel.outbound_sa));
    assert_eq!(tunnel.seal(&packet).len(), 2);
    assert_eq!(tunnel.outbound.drain_events().count(), 0);
}

// RFC 4301 R23
#[test]
fn limits_are_reported_in_both_directions() {
    let change = |p: &mut SaParameters<'_>| {
        p.lifetime = LifetimeLimits {
            packets_soft: Some(3),
            bytes_hard: Some(5 * 128),
            ..LifetimeLimits::default()
        }
    };
    let mut tunnel = Tunnel::with(GCM, false, change);
    let spi = tunnel.outbound_sa.common.spi;
    let expected = |direction, event| Event::Lifetime {
        direction,
        spi,
        policy: POLICY,
        event,
    };
    let mut outbound = Vec::new();
    let mut inbound = Vec::new();
    for _ in 0..8 {
        let sealed = tunnel.seal(&[inner(4, &[0; 100])]);
        tunnel.open(&sealed);
        outbound.extend(tunnel.outbound.drain_events());
        inbound.extend(tunnel.inbound.drain_events());
    }
    for (direction, events) in [
        (SaDirection::Outbound, outbound),
        (SaDirection::Inbound, inbound),
    ] {
        let soft = expected(direction, LifetimeEvent::Soft);
        let hard = expected(direction, LifetimeEvent::Hard);
        assert_eq!(events, [soft, hard]);
    }
    assert_eq!(tunnel.inbound_sa.common.lifetime.packets(), 5);
}

// RFC 4303 R9
#[test]
fn the_end_of_the_sequence_space_is_announced() {
    let mut tunnel = Tunnel::new(GCM, false);
    let key = crate::common::key_material(GCM);
    let spi = tunnel.outbound_sa.common.spi;
    let parameters = crate::common::parameters(GCM, false, spi, &key);
    let near_end = SequenceAllocator::starting_at(u64::from(u32::MAX) - 1, false);
    let sa = OutboundSa::with_sequence(parameters, near_end).expect("good keys");
    tunnel.policy.install(Arc::new(sa));
    let sealed = tunnel.seal(&vec![inner(4, b"x"); 6]);
    assert_eq!(sealed.len(), 2);
    let kinds: Vec<LifetimeEvent> = tunnel
        .outbound
        .drain_events()
        .map(|event| match event {
            Event::Lifetime { event, .. } => event,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [LifetimeEvent::Soft, LifetimeEvent::Hard]);
}

#[test]
fn only_a_new_authentic_packet_moves_the_peer() {
    let mut tunnel = Tunnel::new(GCM, false);
    let sealed = tunnel.seal(&vec![inner(4, b"x"); 4]);
    let moved = SocketAddr::new(address("203.0.113.5"), 1024);
    let elsewhere = OuterFacts {
        remote: moved,
        ..facts()
    };
    tunnel.open(&sealed[1..2]);
    let mut forged = sealed[3].clone();
    forged[20] ^= 1;
    tunnel.open_from(&[forged], &elsewhere);
    tunnel.open_from(&sealed[1..2], &elsewhere);
    assert_eq!(tunnel.open_from(&sealed[0..1], &elsewhere).len(), 1);
    assert_eq!(
        tunnel.inbound.drain_events().count(),
        0,
        "forged, replayed, old"
    );
    tunnel.open_from(&sealed[2..4], &elsewhere);
    let events: Vec<Event> = tunnel.inbound.drain_events().collect();
    let spi = tunnel.inbound_sa.common.spi;
    let expected = Event::PeerMoved {
        spi,
        policy: POLICY,
        from: facts().remote,
        to: moved,
    };
    assert_eq!(events, [expected]);
}

/// IKE moves the peer back, for a message that came late. ESP still comes from elsewhere.
#[test]
fn a_peer_that_ike_moves_back_is_reported_again() {
    let mut tunnel = Tunnel::new(GCM, false);
    let sealed = tunnel.seal(&vec![inner(4, b"x"); 4]);
    let elsewhere = OuterFacts {
        remote: SocketAddr::new(facts().remote.ip(), 4600),
        ..facts()
    };
    let path = tunnel.inbound_sa.common.path();
    for packet in &sealed {
        tunnel.open_from(std::slice::from_ref(packet), &elsewhere);
        let moves = tunnel.inbound.drain_events();
        let to = moves.map(|event| match event {
            Event::PeerMoved { to, .. } => to,
            other => panic!("{other:?}"),
        });
        assert_eq!(to.collect::<Vec<_>>(), [elsewhere.remote]);
        tunnel.inbound_sa.set_path(path);
    }
}

#[test]
fn paths_and_times_follow() {
    let mut tunnel = Tunnel::new(GCM, false);
    let common = &tunnel.outbound_sa.common;
    assert_eq!(common.last_used_ms(), 0);
    let mut path = common.path();
    path.remote = SocketAddr::new(address("203.0.113.5"), 1024);
    common.set_path(path);
    tunnel.outbound.set_now_ms(1234);
    let _ = tunnel
        .outbound
        .push(&tunnel.spd, &inner(4, b"x"))
        .expect("room");
    tunnel
        .outbound
        .submit(&mut tunnel.seal_engine)
        .expect("taken");
    let sealed = tunnel
        .outbound
        .poll(&mut tunnel.seal_engine, &tunnel.spd)
        .expect("one batch");
    let train = sealed
        .trains(crate::common::ONE)
        .next()
        .expect("one packet");
    assert_eq!(train.meta.path(), path);
    assert_eq!(tunnel.outbound_sa.common.last_used_ms(), 1234);
}
