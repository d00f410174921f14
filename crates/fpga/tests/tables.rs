//! Tests the core's tables while policies and SAs come and go, with entries that do not fit and packets that are
//! under way.

#[path = "../../ipsec/tests/common/mod.rs"]
mod common;
mod device;

use std::sync::Arc;

use common::{LEFT, RIGHT, Tunnel, address, facts, inner, key_material, parameters, prefix};
use esplanade_fpga::core::Lane;
use esplanade_fpga::device::BusError;
use esplanade_fpga::device_key::Suite;
use esplanade_fpga::inline::{Opened, Refused, Sent};
use esplanade_fpga::memory::Memory;
use esplanade_fpga::simulated::Simulated;
use esplanade_fpga::{Device, InLine, regs};
use esplanade_ipsec::event::Event;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::{DscpSet, InboundSa, OutboundSa, SaDirection};
use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};

const SUITE: Suite = Suite::Gcm256;

fn core(test: &str) -> Option<InLine<Simulated>> {
    device::simulated(test).map(|device| InLine::new(device).expect("a core"))
}

fn tunnel(suite: Suite) -> Tunnel {
    let transform = suite.transform().expect("known");
    Tunnel::new(transform, true)
}

fn between(local: [&str; 2], remote: [&str; 2]) -> Selector {
    let range = |[first, last]: [&str; 2]| {
        AddressRange::new(address(first), address(last)).expect("in order")
    };
    Selector::between(range(local), range(remote))
}

/// Returns ranges whose prefixes combine to 900 entries.
fn wide() -> Selector {
    between(["10.1.0.1", "10.1.255.254"], ["10.3.0.1", "10.3.255.254"])
}

fn entry(selector: Selector, action: Action) -> Entry {
    Entry::new(SelectorSet::new(vec![selector]).expect("one"), action)
}

fn protect(tunnel: &Tunnel) -> Entry {
    let action = Action::Protect(Arc::clone(&tunnel.policy));
    Entry::new(common::selectors(LEFT, RIGHT), action)
}

/// Returns the result for a clear packet.
fn send(core: &mut InLine<Simulated>, packet: &[u8]) -> Option<Sent> {
    assert_eq!(core.send(packet), Ok(true));
    core.work();
    let sent = core.sent(&mut Vec::new(), 5).expect("it answers");
    sent.map(|(sent, _)| sent)
}

/// Returns the number of opened packets.
fn delivered(core: &mut InLine<Simulated>) -> usize {
    let mut count = 0;
    while let Some(opened) = core.opened(&mut Vec::new(), 1).expect("it answers") {
        count += usize::from(matches!(opened, Opened::Packet(..)));
    }
    count
}

/// A policy of another peer, in front, takes more entries than there are. The SA behind it ends, and nothing else
/// does.
#[test]
fn sas_behind_what_does_not_fit_end() {
    let Some(mut core) = core("no_room") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    let before = Spd::new(vec![protect(&tunnel)]);
    core.install_outbound(&tunnel.outbound_sa, &before)
        .expect("room");
    core.install_inbound(&tunnel.inbound_sa, &before)
        .expect("room");
    assert_eq!(core.follow(&before), Ok(Vec::new()));
    let mine = inner(4, b"mine");
    assert!(matches!(send(&mut core, &mine), Some(Sent::Sealed(_))));

    let other = Action::Protect(Arc::new(Policy::new(PolicyId(3), "other")));
    let after = Spd::new(vec![entry(wide(), other), protect(&tunnel)]);
    let ended = core.follow(&after).expect("it answers");
    let [
        Event::Lifetime {
            direction: SaDirection::Outbound,
            event: LifetimeEvent::Hard,
            ..
        },
    ] = ended[..]
    else {
        panic!("one outbound SA ends: {ended:?}");
    };
    // Only discards are in front of inbound entries.
    assert_eq!(core.installed(), (0, 1));
    for packet in [
        &mine,
        &common::ipv4("172.16.0.1", "172.17.0.1", 17, 0, &[0; 12]),
    ] {
        assert!(matches!(send(&mut core, packet), Some(Sent::ToHost)));
    }
    let discard = Spd::new(vec![entry(wide(), Action::Discard), protect(&tunnel)]);
    let ended = core.follow(&discard).expect("it answers");
    assert!(matches!(
        ended[..],
        [Event::Lifetime {
            direction: SaDirection::Inbound,
            event: LifetimeEvent::Hard,
            ..
        }]
    ));
    assert_eq!(core.installed(), (0, 0));
    // Packets of the SA still belong to the core.
    assert!(core.opens(tunnel.inbound_sa.common.spi));
    assert_eq!(core.follow(&discard), Ok(Vec::new()));
}

#[test]
fn what_finds_no_room_is_not_installed() {
    let Some(mut core) = core("refused") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    let ports = PortRange::Range(1, u16::MAX - 1);
    // This selector would make millions of entries.
    let huge = Selector {
        protocol: NextLayer::Is(17),
        local_ports: ports,
        remote_ports: ports,
        ..between(
            ["10.0.0.1", "10.255.255.254"],
            ["172.16.0.1", "172.31.255.254"],
        )
    };
    for (action, inbound) in [(Action::Discard, false), (Action::Bypass, true)] {
        let spd = Spd::new(vec![entry(huge, action), protect(&tunnel)]);
        assert_eq!(core.follow(&spd), Ok(Vec::new()));
        let refused = core.install_outbound(&tunnel.outbound_sa, &spd);
        assert_eq!(refused, Err(Refused::Policies(64)));
        let installed = core.install_inbound(&tunnel.inbound_sa, &spd);
        assert_eq!(installed.is_ok(), inbound, "{installed:?}");
    }
    // The SA stays in software.
    assert!(!tunnel.outbound_sa.sequence.is_given_away());
    // The same holds if the SPD has no policy of the SA yet. What is behind the SA takes no room.
    let spd = Spd::new(vec![entry(huge, Action::Bypass)]);
    let refused = core.install_outbound(&tunnel.outbound_sa, &spd);
    assert_eq!(refused, Err(Refused::Policies(64)));
    let spd = Spd::new(vec![protect(&tunnel), entry(huge, Action::Bypass)]);
    core.install_outbound(&tunnel.outbound_sa, &spd)
        .expect("room");
    assert_eq!(core.follow(&spd), Ok(Vec::new()));
    assert!(matches!(
        send(&mut core, &inner(4, b"mine")),
        Some(Sent::Sealed(_))
    ));
}

#[test]
fn policies_without_an_sa_take_no_room() {
    let Some(mut core) = core("software") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    let spd = Spd::new(vec![entry(wide(), Action::Discard), protect(&tunnel)]);
    assert_eq!(core.follow(&spd), Ok(Vec::new()));
    let sent = send(&mut core, &inner(4, b"software's"));
    assert!(matches!(sent, Some(Sent::ToHost)));
}

/// Inner packets meet their policy long after their frames were taken.
#[test]
fn a_discard_holds_while_another_is_put_in_front() {
    for (suite, count, looks) in [
        (Suite::Gcm256, 8, 4),
        (Suite::Gcm256, 30, 8),
        (Suite::Ctr256Sha2, 8, 2),
        (Suite::Ctr256Sha2, 30, 20),
    ] {
        let Some(mut core) = core("while_changing") else {
            return;
        };
        let mut tunnel = tunnel(suite);
        let policy = Arc::clone(&tunnel.policy);
        let from = |left: &str| Selector::between(prefix("10.2.0.0/16"), prefix(left));
        let protect = || entry(from("10.1.0.0/16"), Action::Protect(Arc::clone(&policy)));
        let seven = || entry(from("10.1.0.7/32"), Action::Discard);
        let other = || entry(from("10.77.0.7/32"), Action::Discard);
        let before = Spd::new(vec![seven(), protect()]);
        core.install_inbound(&tunnel.inbound_sa, &before)
            .expect("room");
        assert_eq!(core.follow(&before), Ok(Vec::new()));
        let packets: Vec<_> = (0..count).map(|_| inner(4, &[7; 600])).collect();
        for esp in tunnel.seal(&packets) {
            assert_eq!(core.open(&esp, &facts()), Ok(true));
        }
        // Time passes with every register access.
        for _ in 0..looks {
            core.counters(Lane::Inbound).expect("it answers");
        }
        let after = Spd::new(vec![other(), seven(), protect()]);
        assert_eq!(core.follow(&after), Ok(Vec::new()));
        core.work();
        assert_eq!(delivered(&mut core), 0, "{suite:?}, {count}, {looks}");
        let counters = core.counters(Lane::Inbound).expect("it answers");
        let dropped: u32 = counters.reasons(Lane::Inbound).map(|(_, n)| n).sum();
        assert_eq!(dropped, count);
    }
}

/// Packets that are dropped inside cause no beats to wait for.
#[test]
fn a_good_packet_behind_bad_ones_comes_at_once() {
    for suite in [Suite::Gcm256, Suite::Ctr256Sha2] {
        for bad in [4, 20] {
            let Some(mut core) = core("behind_bad") else {
                return;
            };
            let mut tunnel = tunnel(suite);
            let from = Selector::between(prefix("10.2.0.0/16"), prefix("10.1.0.0/16"));
            let policy = Action::Protect(Arc::clone(&tunnel.policy));
            let spd = Spd::new(vec![entry(from, policy)]);
            core.install_inbound(&tunnel.inbound_sa, &spd)
                .expect("room");
            assert_eq!(core.follow(&spd), Ok(Vec::new()));
            let packets: Vec<_> = (0..=bad).map(|_| inner(4, &[7; 1300])).collect();
            for (at, mut esp) in tunnel.seal(&packets).into_iter().enumerate() {
                if let Some(last) = esp.last_mut().filter(|_| at < bad) {
                    *last ^= 1;
                }
                assert_eq!(core.open(&esp, &facts()), Ok(true));
            }
            core.work();
            assert_eq!(delivered(&mut core), 1, "{suite:?}, {bad}");
            assert_eq!(core.progress(), Ok(None));
        }
    }
}

/// Software chooses among such SAs for each packet, and the core knows nothing of them.
#[test]
fn an_sa_beside_one_for_certain_dscps_is_not_the_cores() {
    let Some(mut core) = core("dscps") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    let key = key_material(SUITE.transform().expect("known"));
    let transform = tunnel.outbound_sa.common.transform();
    let spd = Spd::new(vec![protect(&tunnel)]);
    core.install_outbound(&tunnel.outbound_sa, &spd)
        .expect("room");
    assert_eq!(core.follow(&spd), Ok(Vec::new()));
    let mut for_voice = parameters(transform, true, 0x5000_0001, &key);
    for_voice.dscp = DscpSet::EMPTY.with(46);
    let for_voice = OutboundSa::new(for_voice).expect("sound");
    tunnel.policy.install(Arc::new(for_voice));
    let ended = core.follow(&spd).expect("it answers");
    assert!(matches!(
        ended[..],
        [Event::Lifetime {
            direction: SaDirection::Outbound,
            event: LifetimeEvent::Hard,
            ..
        }]
    ));
    let next = OutboundSa::new(parameters(transform, true, 0x5000_0002, &key)).expect("sound");
    let refused = core.install_outbound(&Arc::new(next), &spd);
    assert!(
        matches!(refused, Err(Refused::Unsupported(_))),
        "{refused:?}"
    );
}

/// If all other rows are taken, a row is reused at once.
#[test]
fn a_late_frame_of_the_sa_before_is_dropped() {
    let Some(mut core) = core("late") else {
        return;
    };
    let first = tunnel(SUITE);
    let key = key_material(SUITE.transform().expect("known"));
    let transform = first.outbound_sa.common.transform();
    let sa = |spi: u32| {
        let sa = OutboundSa::new(parameters(transform, true, spi, &key)).expect("sound");
        Arc::new(sa)
    };
    let none = Spd::default();
    core.install_outbound(&first.outbound_sa, &none)
        .expect("room");
    assert_eq!(core.follow(&first.spd), Ok(Vec::new()));
    let others: Vec<_> = (0..1023).map(|n| sa(0x2000_0000 + n)).collect();
    for other in &others {
        core.install_outbound(other, &none).expect("room");
    }
    assert_eq!(core.send(&inner(4, b"late")), Ok(true));
    core.work();
    drop(first);
    let second = sa(0x3333_3333);
    core.install_outbound(&second, &none)
        .expect("the first one's row");
    let late = core.sent(&mut Vec::new(), 5);
    assert!(matches!(late, Ok(Some((Sent::Expired, None)))), "{late:?}");
}

#[test]
fn a_row_whose_sa_is_gone_is_free() {
    let Some(mut core) = core("free") else {
        return;
    };
    let one = tunnel(SUITE);
    let key = key_material(SUITE.transform().expect("known"));
    let transform = one.inbound_sa.common.transform();
    let none = Spd::default();
    core.install_inbound(&one.inbound_sa, &none).expect("room");
    let spi = one.inbound_sa.common.spi ^ 1 << 30;
    drop(one);
    let next = InboundSa::new(parameters(transform, true, spi, &key)).expect("sound");
    core.install_inbound(&Arc::new(next), &none)
        .expect("the row is free");
    assert!(core.opens(spi));
}

#[test]
fn an_ipv6_packet_of_1280_bytes_fits_every_path() {
    let Some(mut core) = core("narrow") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    core.install_outbound(&tunnel.outbound_sa, &tunnel.spd)
        .expect("room");
    core.set_path_mtus(|_| Some(1000));
    assert_eq!(core.follow(&tunnel.spd), Ok(Vec::new()));
    let packet = |len: usize| inner(6, &vec![0; len - inner(6, &[]).len()]);
    assert!(matches!(
        send(&mut core, &packet(1280)),
        Some(Sent::Sealed(_))
    ));
    assert!(matches!(send(&mut core, &packet(1400)), Some(Sent::ToHost)));
}

/// A core whose events were lost, and which says that an SA's numbers are at their end.
#[derive(Debug)]
struct Late(Simulated);

impl Device for Late {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        match address {
            regs::NEXT_EVENT => Ok(0),
            regs::IRQ_STATUS => Ok(regs::IRQ_STATUS_EVENT_LOST),
            regs::OUT_SNAPSHOT => Ok(u32::MAX - 9),
            _ => self.0.read(address),
        }
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        self.0.write(address, value)
    }

    fn memory(&self) -> Memory {
        self.0.memory()
    }
}

#[test]
fn what_lost_events_have_said_is_found_out() {
    let Some(device) = device::simulated("lost_events").map(Late) else {
        return;
    };
    let mut core = InLine::new(device).expect("a core");
    let key = key_material(SUITE.transform().expect("known"));
    for (spi, esn) in [(1, true), (2, false)] {
        let transform = SUITE.transform().expect("known");
        let sa = OutboundSa::new(parameters(transform, esn, spi, &key)).expect("sound");
        let sa = Arc::new(sa);
        core.install_outbound(&sa, &Spd::default()).expect("room");
        // Extended numbers go on, and an event is raised once.
        for soft in [!esn, false] {
            let missed = core.missed().expect("it answers");
            let is_it = matches!(
                missed[..],
                [Event::Lifetime {
                    spi: 2,
                    event: LifetimeEvent::Soft,
                    ..
                }]
            );
            assert_eq!(is_it, soft, "{missed:?}");
            assert_eq!(missed.is_empty(), !soft);
        }
        drop(sa);
    }
}

#[test]
fn a_core_that_is_given_up_has_no_keys() {
    let Some(mut core) = core("wiped") else {
        return;
    };
    let tunnel = tunnel(SUITE);
    let sealed =
        Tunnel::new(tunnel.inbound_sa.common.transform(), true).seal(&[inner(4, b"before")]);
    core.install_inbound(&tunnel.inbound_sa, &tunnel.spd)
        .expect("room");
    core.install_outbound(&tunnel.outbound_sa, &tunnel.spd)
        .expect("room");
    assert_eq!(core.follow(&tunnel.spd), Ok(Vec::new()));
    assert_eq!(core.open(&sealed[0], &facts()), Ok(true));
    assert_eq!(core.send(&inner(4, b"after")), Ok(true));
    core.wipe();
    core.work();
    assert_eq!(delivered(&mut core), 0);
    assert!(matches!(core.sent(&mut Vec::new(), 1), Ok(None)));
    // Nobody else gets the packets of the SA.
    assert!(core.opens(tunnel.inbound_sa.common.spi));
}
