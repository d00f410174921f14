//! Whole ESP packets sealed by independent implementations, through the inbound walk and back.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{address, engine, prefix};
use esplanade_crypto::{CpuEngine, JobStatus, KeyContext, Transform, cpu};
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::replay::ReplayWindow;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::{Database, DropReason};
use esplanade_testkit::vectors::{EspCase, EspFile, esp_files};

const SMALL: WalkLimits = WalkLimits {
    buffer_len: 4096,
    jobs_max: 4,
    batches_max: 1,
};

fn transform(file: &EspFile) -> Transform {
    Transform::from_name(&file.transform).expect("a known transform")
}

fn selectors(file: &EspFile, receiver: bool) -> SelectorSet {
    let pair = |[local, remote]: &[String; 2]| match receiver {
        true => Selector::between(prefix(local), prefix(remote)),
        false => Selector::between(prefix(remote), prefix(local)),
    };
    SelectorSet::new(file.selectors.iter().map(pair).collect()).expect("few selectors")
}

fn parameters<'a>(file: &EspFile, case: &'a EspCase, receiver: bool) -> SaParameters<'a> {
    SaParameters {
        replay_window: file.replay_window,
        selectors: selectors(file, receiver),
        ..common::parameters(transform(file), case.esn, file.spi as u32, &case.key)
    }
}

/// What the receiver makes of a case: the inner packet, or the name of the drop reason.
fn receive(engine: &mut CpuEngine, file: &EspFile, case: &EspCase) -> Result<Vec<u8>, String> {
    let database = Database::new();
    let spi = file.spi as u32;
    assert!(database.sad().claim_spi(spi));
    let window = ReplayWindow::starting_at(case.replay_top, file.replay_window, case.esn);
    // The highest number itself has been seen.
    window.lock().commit(case.replay_top).expect("not yet seen");
    let sa = InboundSa::with_replay(parameters(file, case, true), window).expect("good keys");
    database.sad().insert(Arc::new(sa)).expect("claimed");
    let facts = OuterFacts {
        remote: SocketAddr::new(address("198.51.100.2"), 4500),
        udp_encap: case.udp,
        tos: case.outer_tos,
    };
    let mut inbound = Inbound::new(SMALL);
    let name = |reason: DropReason| reason.name().to_owned();
    inbound
        .push_copy(database.sad(), case.esp(), &facts)
        .map_err(name)?;
    inbound.submit(engine).expect("the engine takes it");
    let opened = inbound.poll(engine).expect("one batch");
    common::assert_reconciled(inbound.counters());
    match opened.delivered() {
        [delivered] => Ok(opened.packet(delivered).to_vec()),
        _ => {
            let drops = &inbound.counters().drops;
            let reason = drops.iter().find(|&(_, packets)| packets > 0);
            Err(name(reason.expect("a counted reason").0))
        }
    }
}

#[test]
fn every_packet_is_delivered_or_dropped_as_expected() {
    let mut engine = engine();
    for file in esp_files() {
        for case in &file.cases {
            let expected = match (&case.inner, &case.drop) {
                (Some(inner), None) => Ok(inner.clone()),
                (None, Some(drop)) => Err(drop.clone()),
                _ => panic!("{}: {} expects nothing or both", file.transform, case.name),
            };
            let outcome = receive(&mut engine, &file, case);
            assert_eq!(outcome, expected, "{}: {}", file.transform, case.name);
        }
    }
}

#[test]
fn sealing_gives_the_same_packets() {
    for file in esp_files() {
        let transform = transform(&file);
        let valid = |case: &&EspCase| case.drop.is_none();
        for case in file.cases.iter().filter(valid) {
            let key = KeyContext::new(transform, case.esn, &case.key).expect("good keys");
            let mut packet = case.esp().to_vec();
            assert_eq!(cpu::open(&key, case.sequence, &mut packet), JobStatus::Done);
            let icv = packet.len() - transform.icv_len();
            packet[icv..].fill(0);
            assert_eq!(cpu::seal(&key, case.sequence, &mut packet), JobStatus::Done);
            assert_eq!(packet, case.esp(), "{}: {}", file.transform, case.name);
        }
    }
}

/// With a counter as IV the whole outbound walk is deterministic.
#[test]
fn the_outbound_walk_gives_the_same_packets() {
    let mut engine = engine();
    for file in esp_files().iter().filter(|f| transform(f).iv_len() == 8) {
        let plain = |case: &&EspCase| case.name.contains(" in ");
        for case in file.cases.iter().filter(plain) {
            let sequence = SequenceAllocator::starting_at(case.sequence, case.esn);
            let sa = OutboundSa::with_sequence(parameters(file, case, false), sequence)
                .expect("good keys");
            let policy = Policy::new(PolicyId(1), "site");
            policy.install(Arc::new(sa));
            let spd = Spd::new(vec![Entry {
                selectors: selectors(file, false),
                action: Action::Protect(Arc::new(policy)),
            }]);
            let mut outbound = Outbound::new(SMALL);
            let inner = case.inner.as_ref().expect("valid cases have one");
            let _ = outbound.push(&spd, inner).expect("room");
            outbound.submit(&mut engine).expect("the engine takes it");
            let sealed = outbound.poll(&mut engine).expect("one batch");
            let mut trains = sealed.trains(common::ONE);
            let train = trains.next().expect("one packet");
            assert_eq!(train.esp, case.esp(), "{}: {}", file.transform, case.name);
        }
    }
}
