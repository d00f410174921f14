//! Puts the core in the place of the software path: one end of a tunnel is the core, the other is software.

#[path = "../../ipsec/tests/common/mod.rs"]
mod common;
mod device;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{Tunnel, address, facts, inner, path, prefix};
use esplanade_crypto::Transform;
use esplanade_fpga::InLine;
use esplanade_fpga::core::Lane;
use esplanade_fpga::device_key::Suite;
use esplanade_fpga::inline::{InstallRefused, Opened, OutboundOutcome};
use esplanade_fpga::simulated::Simulated;
use esplanade_ipsec::sa::{Mode, Path};
use esplanade_ipsec::selector::{PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Spd, SpdEntry};

fn core(test: &str) -> Option<InLine<Simulated>> {
    device::simulated(test).map(|device| InLine::new(device).expect("a core"))
}

fn transform(suite: Suite) -> Transform {
    suite.transform().expect("known")
}

/// Gives the core the tunnel's outbound SA and its policy.
fn take_outbound(core: &mut InLine<Simulated>, tunnel: &Tunnel) {
    core.install_outbound(&tunnel.outbound_sa, &tunnel.spd)
        .expect("room");
    follow(core, &tunnel.spd);
}

/// Brings the core's tables up to date, and checks that no SA ends by it.
fn follow(core: &mut InLine<Simulated>, spd: &Spd) {
    assert_eq!(core.follow(spd), Ok(Vec::new()));
}

/// Returns the next packet from the inbound lane.
fn opened(core: &mut InLine<Simulated>) -> Option<Vec<u8>> {
    let mut packet = Vec::new();
    match core.opened(&mut packet, 1).expect("it answers")? {
        Opened::Packet(_, event) => assert_eq!(event, None),
        Opened::Dropped(reason) => panic!("{reason}"),
    }
    Some(packet)
}

/// Returns the core's result for a clear packet, and the frame.
fn send(core: &mut InLine<Simulated>, packet: &[u8]) -> Option<(OutboundOutcome, Vec<u8>)> {
    assert_eq!(core.send(packet), Ok(true));
    core.work();
    let mut frame = Vec::new();
    let (sent, event) = core.sent(&mut frame, 5).expect("it answers")?;
    assert_eq!(event, None);
    Some((sent, frame))
}

#[test]
fn packets_go_both_ways() {
    let Some(mut core) = core("in_line") else {
        return;
    };
    for suite in Suite::ALL {
        let mut there = Tunnel::new(transform(suite), true);
        let mut back = Tunnel::new(transform(suite), false);
        core.install_inbound(&back.inbound_sa, &back.spd)
            .expect("room");
        take_outbound(&mut core, &there);
        for round in 1..=4u64 {
            let packet = inner(4 + 2 * (round % 2) as u8, &[round as u8; 700]);
            let (sent, frame) = send(&mut core, &packet).expect("it is sent");
            let OutboundOutcome::Sealed(sealed) = sent else {
                panic!("not protected: {sent:?}");
            };
            assert!(Arc::ptr_eq(&sealed.sa, &there.outbound_sa));
            let esp = frame[sealed.header_len..].to_vec();
            assert_eq!(there.open(&[esp]), std::slice::from_ref(&packet));

            let [esp] = &back.seal(std::slice::from_ref(&packet))[..] else {
                panic!("one packet");
            };
            assert_eq!(core.open(esp, &facts()), Ok(true));
            core.work();
            let mut opened = Vec::new();
            let came = core.opened(&mut opened, 6).expect("it answers");
            let Some(Opened::Packet(sa, None)) = came else {
                panic!("not delivered: {came:?}");
            };
            assert!(Arc::ptr_eq(&sa, &back.inbound_sa));
            assert_eq!(opened, packet);
            assert_eq!(there.outbound_sa.common.lifetime.packets(), round);
        }
        assert_eq!(there.outbound_sa.common.last_used_ms(), 5);
        assert_eq!(back.inbound_sa.common.last_used_ms(), 6);
        assert_eq!(core.installed(), (1, 1));
        // When the last owner drops it, the SA leaves the core.
        drop((there, back));
        follow(&mut core, &Spd::default());
        assert_eq!(core.installed(), (0, 0));
        let packet = inner(4, b"in the clear?");
        let (sent, frame) = send(&mut core, &packet).expect("it comes back");
        assert!(matches!(sent, OutboundOutcome::ToHost) && frame == packet);
    }
    let counters = core.counters(Lane::Outbound).expect("it answers");
    assert_eq!(counters.packets, 20);
    assert_eq!(
        counters
            .reasons(Lane::Outbound)
            .map(|(_, count)| count)
            .sum::<u32>(),
        0
    );
}

#[test]
fn frames_of_an_sa_that_is_gone_are_dropped() {
    let Some(mut core) = core("gone") else {
        return;
    };
    let suite = Suite::Gcm256;
    let packet = inner(4, b"late");
    let first = Tunnel::new(transform(suite), true);
    take_outbound(&mut core, &first);
    assert_eq!(core.send(&packet), Ok(true));
    core.work();
    drop(first);
    // This happens before anybody has looked at what came out.
    follow(&mut core, &Spd::default());
    let second = Tunnel::new(transform(suite), true);
    take_outbound(&mut core, &second);
    let mut frame = Vec::new();
    let late = core.sent(&mut frame, 5).expect("it answers");
    assert!(
        matches!(late, Some((OutboundOutcome::Expired, None))),
        "{late:?}"
    );
    let (sent, _) = send(&mut core, &packet).expect("it is sent");
    assert!(matches!(sent, OutboundOutcome::Sealed(_)));
}

#[test]
fn what_has_no_sa_comes_back_and_peers_move() {
    let Some(mut core) = core("acquire") else {
        return;
    };
    let suite = Suite::Gcm256;
    let mut tunnel = Tunnel::new(transform(suite), true);
    let packet = inner(4, b"first");
    follow(&mut core, &tunnel.spd);
    let (sent, frame) = send(&mut core, &packet).expect("it comes back");
    assert!(matches!(sent, OutboundOutcome::ToHost) && frame == packet);

    take_outbound(&mut core, &tunnel);
    let mut sealed = Vec::new();
    for port in [4500, 61_000] {
        tunnel.outbound_sa.common.set_path(Path {
            remote: SocketAddr::new(address("203.0.113.9"), port),
            ..path()
        });
        follow(&mut core, &tunnel.spd);
        let (_, frame) = send(&mut core, &packet).expect("it is sent");
        assert_eq!(frame[16..20], [203, 0, 113, 9]);
        assert_eq!(frame[22..24], port.to_be_bytes());
        sealed.push(frame[28..].to_vec());
    }
    // The SA keeps its sequence numbers, so both packets are accepted.
    assert_eq!(tunnel.open(&sealed), [packet.clone(), packet.clone()]);

    tunnel.policy.retire(&tunnel.outbound_sa);
    follow(&mut core, &tunnel.spd);
    let (sent, _) = send(&mut core, &packet).expect("it comes back");
    assert!(matches!(sent, OutboundOutcome::ToHost));
}

#[test]
fn what_the_core_cannot_do_is_refused() {
    let Some(mut core) = core("refusals") else {
        return;
    };
    let other = Transform::ESP.into_iter().find(|t| Suite::of(*t).is_none());
    let other = other.expect("the core has four");
    let tunnel = Tunnel::new(other, false);
    let refused = core.install_outbound(&tunnel.outbound_sa, &tunnel.spd);
    assert!(matches!(refused, Err(InstallRefused::Unsupported(_))));
    let suite = Suite::Gcm128;
    let tunnel = Tunnel::with(transform(suite), false, |p| p.mode = Mode::Transport);
    let refused = core.install_inbound(&tunnel.inbound_sa, &tunnel.spd);
    assert_eq!(refused, Err(InstallRefused::Unsupported("transport mode")));
    // Later fragments have no ports.
    let all = Selector::between(prefix("10.1.0.0/16"), prefix("10.2.0.0/16"));
    let by_port = Selector {
        remote_ports: PortRange::Range(80, 80),
        ..all
    };
    let tunnel = Tunnel::with(transform(suite), false, |p| {
        p.selectors = SelectorSet::new(vec![by_port]).expect("one");
    });
    let refused = core.install_outbound(&tunnel.outbound_sa, &tunnel.spd);
    assert_eq!(
        refused,
        Err(InstallRefused::Unsupported("ports as selectors"))
    );
    assert_eq!(core.installed(), (0, 0));
    // Two SAs whose SPIs have equal low bits would lie in one row.
    let tunnel = Tunnel::new(transform(suite), false);
    core.install_inbound(&tunnel.inbound_sa, &tunnel.spd)
        .expect("room");
    let refused = core.install_inbound(&tunnel.inbound_sa, &tunnel.spd);
    assert_eq!(refused, Err(InstallRefused::Full));
}

/// One policy's SAs are in the core, and the other's in software. Only one of the two has an SA's sequence numbers.
#[test]
fn an_sa_is_in_one_place() {
    let Some(mut core) = core("one_place") else {
        return;
    };
    let suite = Suite::Gcm256;
    let mut tunnel = Tunnel::new(transform(suite), true);
    let installed = core.install_outbound(&tunnel.outbound_sa, &tunnel.spd);
    installed.expect("room");
    assert!(tunnel.outbound_sa.sequence.is_given_away());
    assert!(tunnel.seal(&[inner(4, b"by software?")]).is_empty());
    // An SA that software has sealed with stays in software.
    let mut other = Tunnel::new(transform(suite), true);
    assert_eq!(other.seal(&[inner(4, b"first")]).len(), 1);
    let refused = core.install_outbound(&other.outbound_sa, &tunnel.spd);
    assert_eq!(refused, Err(InstallRefused::Used));
    assert_eq!(other.seal(&[inner(4, b"second")]).len(), 1);
    // Its other half stays there too.
    let refused = core.install(&other.outbound_sa, &other.inbound_sa, &tunnel.spd);
    assert_eq!(refused, Err(InstallRefused::Used));
    assert_eq!(core.installed(), (1, 0));
    assert!(!core.opens(other.inbound_sa.common.spi));
}

#[test]
fn discards_in_front_hold_for_what_is_opened() {
    let Some(mut core) = core("discards") else {
        return;
    };
    let suite = Suite::Gcm128;
    let mut tunnel = Tunnel::new(transform(suite), false);
    core.install_inbound(&tunnel.inbound_sa, &tunnel.spd)
        .expect("room");
    assert!(core.opens(tunnel.inbound_sa.common.spi));
    assert!(!core.opens(tunnel.inbound_sa.common.spi ^ 1 << 31));
    // This is the far end's view: packets from the left are for its local side.
    let from = |left: &str| Selector::between(prefix("10.2.0.0/16"), prefix(left));
    let entry = |selector, action| {
        let selectors = SelectorSet::new(vec![selector]).expect("one");
        SpdEntry::new(selectors, action)
    };
    let protect = || entry(from("10.1.0.0/16"), Action::Protect(tunnel.policy.clone()));
    let discard = || entry(from("10.1.0.7/32"), Action::Discard);
    let spds = [
        (vec![discard(), protect()], false),
        (vec![protect(), discard()], true),
    ];
    for (entries, passes) in spds {
        follow(&mut core, &Spd::new(entries));
        for esp in tunnel.seal(&[inner(4, b"from 10.1.0.7")]) {
            assert_eq!(core.open(&esp, &facts()), Ok(true));
        }
        core.work();
        assert_eq!(opened(&mut core).is_some(), passes);
    }
    let counters = core.counters(Lane::Inbound).expect("it answers");
    let dropped: Vec<_> = counters
        .reasons(Lane::Inbound)
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(dropped, [("selector-mismatch", 1)]);
}

#[test]
fn ends_of_lifetimes_and_narrow_paths_are_followed() {
    let Some(mut core) = core("limits") else {
        return;
    };
    let suite = Suite::Gcm256;
    let tunnel = Tunnel::with(transform(suite), true, |p| {
        p.lifetime.packets_hard = Some(2);
    });
    take_outbound(&mut core, &tunnel);
    core.set_path_mtus(|_| Some(1400));
    follow(&mut core, &tunnel.spd);
    let (sent, _) = send(&mut core, &inner(4, &[1; 1450])).expect("it comes back");
    assert!(matches!(sent, OutboundOutcome::ToHost));
    let mut ends = Vec::new();
    for _ in 0..4 {
        assert_eq!(core.send(&inner(4, &[1; 300])), Ok(true));
        core.work();
        let mut frame = Vec::new();
        let (sent, event) = core.sent(&mut frame, 5).expect("it answers").expect("one");
        ends.push((matches!(sent, OutboundOutcome::Sealed(_)), event.is_some()));
    }
    assert_eq!(
        ends,
        [(true, false), (true, true), (false, false), (false, false)]
    );
}
