//! Tests route-based use: several interfaces have the same selectors, and each has its own SAs.

use std::sync::Arc;

use crate::common::*;
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::inbound::OpenedBatch;
use esplanade_ipsec::outbound::Outcome;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};

const IDS: [u32; 2] = [42, 43];

fn everything() -> SelectorSet {
    let any = prefix("0.0.0.0/0");
    SelectorSet::new(vec![Selector::between(any, any)]).expect("one is not too many")
}

/// Makes an entry for all packets from the interface, with an SA whose other end is in the SAD of `tunnel`.
fn bound(tunnel: &Tunnel, interface: u32) -> SpdEntry {
    let transform = Transform::ESP[0];
    let key = key_material(transform);
    let spi = tunnel.database.sad().allocate_spi().expect("room");
    let make = || SaParameters {
        selectors: everything(),
        interface,
        ..parameters(transform, false, spi, &key)
    };
    let mut turned = make();
    (turned.path.local, turned.path.remote) = (turned.path.remote, turned.path.local);
    let inbound = InboundSa::new(turned).expect("good keys");
    let sad = tunnel.database.sad();
    sad.insert(Arc::new(inbound)).expect("allocated");
    let policy = Arc::new(Policy::new(PolicyId(interface), "all"));
    policy.install(Arc::new(OutboundSa::new(make()).expect("good keys")));
    SpdEntry {
        interface,
        ..SpdEntry::new(everything(), Action::Protect(policy))
    }
}

fn opened(tunnel: &mut Tunnel, frames: &[Vec<u8>]) -> OpenedBatch {
    let sad = tunnel.database.sad();
    for frame in frames {
        let _ = tunnel.inbound.push_copy(sad, frame, &facts());
    }
    let engine = &mut tunnel.open_engine;
    tunnel.inbound.submit(engine).expect("the engine takes it");
    tunnel.inbound.poll(engine).expect("one batch")
}

// RFC 4301 R10
#[test]
fn packets_stay_with_their_interface() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    tunnel.spd = Spd::new(IDS.map(|interface| bound(&tunnel, interface)).into());
    // The flow is the same every time, so that the flow cache has to tell the interfaces apart.
    let packet = inner(4, b"to and fro");
    let from = |tunnel: &mut Tunnel, interface| {
        tunnel.outbound.set_interface(interface);
        tunnel.seal(std::slice::from_ref(&packet))
    };
    let order = [42, 43, 43, 42, 42];
    let sealed = order.map(|interface| from(&mut tunnel, interface));
    let frames = sealed.concat();
    assert_eq!(frames.len(), order.len());
    for other in [0, 44] {
        tunnel.outbound.set_interface(other);
        let outcome = tunnel.outbound.push(&tunnel.spd, &packet);
        assert!(matches!(
            outcome,
            Ok(Outcome::Dropped(DropReason::NoPolicy))
        ));
    }

    let opened = opened(&mut tunnel, &frames);
    assert_eq!(opened.delivered().len(), order.len());
    let shares = shares(&opened);
    assert_eq!(shares, [(42, 0..1), (43, 1..3), (42, 3..5)]);
}

fn shares(opened: &OpenedBatch) -> Vec<(u32, std::ops::Range<usize>)> {
    let shares = opened.by_interface();
    shares.map(|one| (one.interface, one.packets)).collect()
}

#[test]
fn packets_that_are_refused_are_nobodys() {
    let mut tunnel = Tunnel::new(Transform::ESP[0], false);
    tunnel.spd = Spd::new(IDS.map(|interface| bound(&tunnel, interface)).into());
    let mut frames = Vec::new();
    for interface in [42, 43, 42] {
        tunnel.outbound.set_interface(interface);
        frames.extend(tunnel.seal(&[inner(4, b"x")]));
    }
    if let Some(byte) = frames[1].last_mut() {
        *byte ^= 1;
    }
    let opened = opened(&mut tunnel, &frames);
    let shares = shares(&opened);
    assert_eq!(shares, [(42, 0..1), (43, 1..1), (42, 1..2)]);
}
