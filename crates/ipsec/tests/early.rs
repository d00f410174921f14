//! Packets that are here before the IKE message which makes their SA.

use std::sync::Arc;

use crate::common::{Tunnel, inner};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::{InboundSa, OutboundSa};
use esplanade_ipsec::tunnel::OuterFacts;

/// A tunnel whose left end has a second SA already. The right end has only its SPI.
struct EarlyTunnel {
    tunnel: Tunnel,
    sa: Arc<InboundSa>,
}

fn early_tunnel() -> EarlyTunnel {
    let tunnel = Tunnel::new(Transform::ESP[0], true);
    let key = crate::common::key_material(Transform::ESP[0]);
    let spi = tunnel.database.sad().allocate_spi().expect("room");
    let mut right = crate::common::parameters(Transform::ESP[0], true, spi, &key);
    right.selectors = crate::common::selectors(crate::common::RIGHT, crate::common::LEFT);
    let sa = Arc::new(InboundSa::new(right).expect("good keys"));
    let left = crate::common::parameters(Transform::ESP[0], true, spi, &key);
    let left = Arc::new(OutboundSa::new(left).expect("good keys"));
    tunnel.policy.install(left);
    EarlyTunnel { tunnel, sa }
}

impl EarlyTunnel {
    fn install(&self) {
        let inserted = self.tunnel.database.sad().insert(Arc::clone(&self.sa));
        inserted.expect("allocated");
    }

    /// Goes on with the packets whose SAs have come. Returns the number of packets and what was delivered.
    fn follow(&mut self) -> (usize, Vec<Vec<u8>>) {
        let Tunnel {
            inbound, database, ..
        } = &mut self.tunnel;
        let ready = inbound.take_early(database.sad());
        for early in &ready {
            let _ = inbound.push_early(database.sad(), early);
        }
        (ready.len(), self.tunnel.open(&[]))
    }

    fn unknown(&self) -> u64 {
        self.tunnel
            .inbound
            .counters()
            .drops
            .get(DropReason::UnknownSpi)
    }
}

fn packets(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| inner(4, &vec![number as u8; len]))
        .collect()
}

#[test]
fn packets_wait_for_the_sa_whose_spi_was_offered() {
    let mut early = early_tunnel();
    let there = packets(3, 100);
    let sealed = early.tunnel.seal(&there);
    assert!(early.tunnel.open(&sealed).is_empty());
    assert!(early.tunnel.inbound.has_early());
    assert_eq!(early.follow(), (0, Vec::new()), "the SA is not there yet");
    early.install();
    assert_eq!(early.follow(), (3, there));
    assert!(!early.tunnel.inbound.has_early());
    assert_eq!(early.unknown(), 0);
    assert!(
        early.tunnel.inbound.drain_events().next().is_none(),
        "nobody is told of an unknown SPI"
    );
    // They were received once, and a second copy is a replay.
    assert!(early.tunnel.open(&sealed).is_empty());
    let counters = early.tunnel.inbound.counters();
    assert_eq!(counters.drops.get(DropReason::Replayed), 3);
    assert_eq!(
        counters
            .packets_in
            .load(std::sync::atomic::Ordering::Relaxed),
        6
    );
}

/// The SA may come between a look at the packets that wait and the next datagrams.
#[test]
fn packets_wait_behind_those_that_wait() {
    let mut early = early_tunnel();
    let there = packets(3, 100);
    let sealed = early.tunnel.seal(&there);
    early.tunnel.open(&sealed[..1]);
    early.install();
    assert!(early.tunnel.open(&sealed[1..]).is_empty());
    assert_eq!(early.tunnel.inbound.early_spis(), [early.sa.common.spi]);
    assert_eq!(early.follow(), (3, there));
    assert_eq!(early.unknown(), 0);
}

#[test]
fn nothing_waits_for_an_spi_that_was_not_offered() {
    let mut early = early_tunnel();
    let sealed = early.tunnel.seal(&packets(1, 100));
    let sad = early.tunnel.database.sad();
    assert!(sad.awaits(early.sa.common.spi) && !sad.awaits(0));
    sad.remove(early.sa.common.spi);
    assert!(!sad.awaits(early.sa.common.spi));
    assert!(early.tunnel.open(&sealed).is_empty());
    assert!(!early.tunnel.inbound.has_early());
    assert_eq!(early.unknown(), 1);
}

#[test]
fn packets_of_an_exchange_that_fails_are_dropped() {
    let mut early = early_tunnel();
    let sealed = early.tunnel.seal(&packets(2, 100));
    early.tunnel.open(&sealed);
    assert_eq!(early.unknown(), 0);
    early.tunnel.database.sad().remove(early.sa.common.spi);
    assert_eq!(early.follow(), (2, Vec::new()));
    assert_eq!(early.unknown(), 2);
}

#[test]
fn few_packets_wait_and_not_for_long() {
    let mut early = early_tunnel();
    early.tunnel.inbound.set_now_ms(5000);
    let there = packets(40, 100);
    let sealed = early.tunnel.seal(&there);
    early.tunnel.open(&sealed);
    assert_eq!(early.unknown(), 8, "32 packets wait for one SA");
    early.tunnel.inbound.set_now_ms(5999);
    assert_eq!(early.follow().0, 0);
    assert_eq!(early.unknown(), 8);
    early.tunnel.inbound.set_now_ms(6000);
    assert_eq!(early.follow().0, 0);
    assert_eq!(early.unknown(), 40);
    assert!(!early.tunnel.inbound.has_early());
    // Their places are free again, for 128 KiB in all.
    let long = early.tunnel.seal(&packets(3, 60_000));
    early.tunnel.open(&long);
    assert_eq!(early.unknown(), 41);
    early.install();
    assert_eq!(early.follow().1.len(), 2);
}

#[test]
fn packets_wait_for_a_bounded_number_of_sas() {
    let mut early = early_tunnel();
    let mut packet = early.tunnel.seal(&packets(1, 100)).remove(0);
    for _ in 0..300 {
        let spi = early.tunnel.database.sad().allocate_spi().expect("room");
        packet[..4].copy_from_slice(&spi.to_be_bytes());
        early.tunnel.open(&[packet.clone()]);
    }
    assert_eq!(early.unknown(), 300 - 256);
}

/// A peer that fills the room gives way to others, and keeps what is left.
#[test]
fn no_sender_keeps_the_packets_of_others_out() {
    let mut early = early_tunnel();
    let packet = early.tunnel.seal(&packets(1, 100)).remove(0);
    let from = |address: &str| OuterFacts {
        remote: format!("{address}:4500").parse().expect("an address"),
        ..crate::common::facts()
    };
    let send = |early: &mut EarlyTunnel, sender: &str, count: usize| {
        for _ in 0..count {
            let spi = early.tunnel.database.sad().allocate_spi().expect("room");
            let mut packet = packet.clone();
            packet[..4].copy_from_slice(&spi.to_be_bytes());
            early.tunnel.open_from(&[packet], &from(sender));
        }
        early.unknown()
    };
    assert_eq!(send(&mut early, "192.0.2.66", 300), 300 - 256);
    // Each packet of another sender takes a place of the first one's.
    assert_eq!(send(&mut early, "192.0.2.2", 100), 44 + 100);
    // Their shares are equal in the end.
    assert_eq!(send(&mut early, "192.0.2.2", 100), 44 + 200);
    assert_eq!(send(&mut early, "192.0.2.66", 10), 44 + 210);
    assert_eq!(send(&mut early, "192.0.2.3", 1), 44 + 211);
    // A network is one sender over IPv6.
    for host in 1..100 {
        send(&mut early, &format!("[2001:db8::{host:x}]"), 1);
    }
    assert_eq!(send(&mut early, "[2001:db8::ff]", 1), 44 + 311);
    let sad = early.tunnel.database.sad();
    early.tunnel.inbound.set_now_ms(10_000);
    early.tunnel.inbound.take_early(sad);
    assert_eq!(early.unknown(), 300 + 200 + 10 + 1 + 100);
}
