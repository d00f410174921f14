//! Sends whole packets that independent implementations sealed through the inbound walk and back.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{address, engine, prefix};
use esplanade_crypto::{CpuEngine, JobStatus, KeyContext, Transform, cpu};
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::replay::ReplayWindow;
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, Path, SaParameters, TunnelOptions};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::{DfPolicy, OuterFacts};
use esplanade_ipsec::{Database, DropReason};
use esplanade_testkit::vectors::{
    PacketCase, PacketFile, PacketMode, PacketProtocol, packet_files,
};

const SMALL: WalkLimits = WalkLimits {
    buffer_len: 4096,
    jobs_max: 4,
    batches_max: 1,
};

/// Runs every case. A transform that the packet path lacks fails the test.
fn for_each_case(mut run: impl FnMut(&PacketFile, &PacketCase)) {
    let mut cases = 0;
    for file in packet_files() {
        file.cases.iter().for_each(|case| run(&file, case));
        cases += file.cases.len();
    }
    assert!(cases > 3000, "there are only {cases} cases");
}

fn transform(file: &PacketFile) -> Transform {
    Transform::from_name(&file.transform)
        .unwrap_or_else(|| panic!("{} is not implemented", file.transform))
}

fn selectors(file: &PacketFile, mode: PacketMode, receiver: bool) -> SelectorSet {
    let pair = |[local, remote]: &[String; 2]| match receiver {
        true => Selector::between(prefix(local), prefix(remote)),
        false => Selector::between(prefix(remote), prefix(local)),
    };
    SelectorSet::new(file.selectors.of(mode).iter().map(pair).collect()).expect("few selectors")
}

/// The ends of the frame, seen from the receiver.
fn path(case: &PacketCase) -> Path {
    let (local, remote) = match case.outer_version() {
        4 => ("192.0.2.1", "198.51.100.2"),
        _ => ("2001:db8:ffff::1", "2001:db8:ffff::2"),
    };
    Path {
        local: SocketAddr::new(address(local), 4500),
        remote: SocketAddr::new(address(remote), 4500),
        udp_encap: case.udp,
    }
}

fn parameters<'a>(file: &PacketFile, case: &'a PacketCase, receiver: bool) -> SaParameters<'a> {
    let mut path = path(case);
    if !receiver {
        (path.local, path.remote) = (path.remote, path.local);
    }
    SaParameters {
        esn: case.esn,
        replay_window: file.replay_window,
        tunnel: TunnelOptions {
            df: DfPolicy::Set,
            ..TunnelOptions::default()
        },
        mode: match case.mode {
            PacketMode::Tunnel => Mode::Tunnel,
            PacketMode::Transport => Mode::Transport,
        },
        ..SaParameters::new(
            file.spi as u32,
            crate::common::POLICY,
            transform(file),
            &case.key,
            selectors(file, case.mode, receiver),
            path,
        )
    }
}

/// The receiver's result for a case: the inner packet, or the name of the drop reason.
fn receive(
    engine: &mut CpuEngine,
    file: &PacketFile,
    case: &PacketCase,
) -> Result<Vec<u8>, &'static str> {
    let database = Database::with_plain_spis();
    let spi = file.spi as u32;
    assert!(database.sad().claim_spi(spi));
    let window = ReplayWindow::starting_at(case.replay_top, file.replay_window, case.esn);
    let sa = InboundSa::with_replay(parameters(file, case, true), window).expect("good keys");
    database.sad().insert(Arc::new(sa)).expect("claimed");
    let facts = OuterFacts {
        header_len: (case.frame.len() - case.payload().len()) as u16,
        protocol: transform(file).protocol(),
        ..OuterFacts::new(path(case).remote, case.udp, case.outer_tos())
    };
    let mut inbound = Inbound::new(SMALL);
    inbound
        .push_copy(database.sad(), &case.frame, &facts)
        .map_err(DropReason::name)?;
    inbound.submit(engine).expect("the engine takes it");
    let opened = inbound.poll(engine).expect("one batch");
    crate::common::assert_reconciled(inbound.counters());
    match opened.delivered() {
        [delivered] => Ok(opened.packet(delivered).to_vec()),
        _ => {
            let drops = &inbound.counters().drops;
            let reason = drops.iter().find(|&(_, packets)| packets > 0);
            Err(reason.expect("a counted reason").0.name())
        }
    }
}

// RFC 4301 R1, R6, R7, R34, R37, R39, R41, R49, R107, R115; RFC 4302 R1, R3, R4, R10, R12, R13, R17, R18, R22, R24, R28, R29, R33, R37; RFC 4303 R1, R2, R3, R10, R15, R16, R18, R19, R30, R38, R39, R43, R45, R47, R51, R68
#[test]
fn every_packet_is_delivered_or_dropped_as_expected() {
    let mut engine = engine();
    for_each_case(|file, case| {
        let outcome = receive(&mut engine, file, case);
        let outcome = outcome.as_deref().map_err(|name| *name);
        assert_eq!(
            outcome,
            case.expected(),
            "{}: {}",
            file.transform,
            case.name
        );
    });
}

#[test]
fn sealing_gives_the_same_packets() {
    for_each_case(|file, case| {
        if case.drop.is_some() || file.protocol == PacketProtocol::Ah {
            return;
        }
        let transform = transform(file);
        let key = KeyContext::new(transform, case.esn, &case.key).expect("good keys");
        let mut packet = case.payload().to_vec();
        assert_eq!(cpu::open(&key, case.sequence, &mut packet), JobStatus::Done);
        let icv = packet.len() - transform.icv_len();
        packet[icv..].fill(0);
        assert_eq!(cpu::seal(&key, case.sequence, &mut packet), JobStatus::Done);
        assert_eq!(packet, case.payload(), "{}: {}", file.transform, case.name);
    });
}

/// Returns true if the sender's packets follow from its sequence numbers alone.
fn deterministic(file: &PacketFile) -> bool {
    let name = &file.transform;
    !(name.contains("_CBC_") || name.starts_with("DES") || name.starts_with("3DES"))
}

/// With a counter as IV, or without an IV, the whole outbound walk is deterministic.
// RFC 4302 R2, R7, R37, R40; RFC 4303 R1, R7, R14, R51, R57; RFC 4301 R107, R110
#[test]
fn the_outbound_walk_gives_the_same_packets() {
    let mut engine = engine();
    for_each_case(|file, case| {
        // These cases cover the axes. Other cases were altered.
        let plain = ["tunnel v", "transport v"];
        if !deterministic(file) || !plain.iter().any(|start| case.name.starts_with(start)) {
            return;
        }
        let sequence = SequenceAllocator::starting_at(case.sequence, case.esn);
        let sa = OutboundSa::with_sequence(parameters(file, case, false), sequence);
        let policy = Policy::new(PolicyId(1), "site");
        policy.install(Arc::new(sa.expect("good keys")));
        let spd = Spd::new(vec![SpdEntry::new(
            selectors(file, case.mode, false),
            Action::Protect(Arc::new(policy)),
        )]);
        let mut outbound = Outbound::new(SMALL);
        let inner = case.delivered.as_ref().expect("valid cases have one");
        let _ = outbound.push(&spd, inner).expect("room");
        outbound.submit(&mut engine).expect("the engine takes it");
        let sealed = outbound.poll(&mut engine, &spd).expect("one batch");
        let mut trains = sealed.trains(crate::common::ONE);
        let train = trains.next().expect("one packet");
        let name = format!("{}: {}", file.transform, case.name);
        assert_eq!(train.esp, case.payload(), "{name}");
        if let Some(frame) = train.frame {
            assert_eq!(frame, case.frame, "{name}");
        }
    });
}
