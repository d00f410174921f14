//! Tests selectors, the SPD and the SAD.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LEFT, RIGHT, address, key_material, parameters, selectors};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::InboundSa;
use esplanade_ipsec::sad::{NotAllocated, SLOTS, Sad};
use esplanade_ipsec::selector::{
    AddressRange, Flow, NextLayer, PopulateFromPacket, PortRange, Selector, SelectorSet,
    TrafficSelector, generators,
};
use esplanade_ipsec::spd::{Action, Decision, Policy, PolicyId, Spd, SpdEntry};
use proptest::prelude::*;

/// The definition (RFC 7296 §2.9): one selector of each side matches.
fn end_matches(end: &TrafficSelector, address: IpAddr, protocol: u8, port: Option<u16>) -> bool {
    let as_number = |a: IpAddr| match a {
        IpAddr::V4(a) => (4, u128::from(a.to_bits())),
        IpAddr::V6(a) => (6, a.to_bits()),
    };
    let (first, last) = (
        as_number(end.addresses.first()),
        as_number(end.addresses.last()),
    );
    let ports = match end.ports {
        PortRange::Any => true,
        PortRange::Opaque => port.is_none(),
        PortRange::Range(first, last) => port.is_some_and(|p| p >= first && p <= last),
    };
    let a = as_number(address);
    ports && (end.protocol == 0 || end.protocol == protocol) && first <= a && a <= last
}

type Ends = (Vec<TrafficSelector>, Vec<TrafficSelector>);

fn any_ends() -> impl Strategy<Value = Ends> {
    let side = || proptest::collection::vec(generators::traffic_selector(), 1..4);
    (side(), side())
}

fn naive_match((local, remote): &Ends, flow: &Flow) -> bool {
    let local_port = flow.ports.map(|p| p.0);
    let remote_port = flow.ports.map(|p| p.1);
    local
        .iter()
        .any(|end| end_matches(end, flow.local, flow.protocol.unwrap_or(0), local_port))
        && remote
            .iter()
            .any(|end| end_matches(end, flow.remote, flow.protocol.unwrap_or(0), remote_port))
        && flow.local.is_ipv4() == flow.remote.is_ipv4()
}

/// The kind of the first entry that matches. A packet with a hidden protocol or hidden ports is discarded instead of
/// bypassed if an earlier entry would have matched it with some of them (RFC 4301 §7.4).
fn naive_kind(entries: &[(Ends, u8)], flow: &Flow) -> Option<u8> {
    let first = entries
        .iter()
        .position(|(ends, _)| naive_match(ends, flow))?;
    // One protocol has to match both ends: a local selector for UDP beside a remote one for TCP selects nothing.
    let protocols = match flow.protocol {
        None => (0..=255).map(Some).collect(),
        seen => vec![seen],
    };
    let some_packet_matches = |(local, remote): &Ends| {
        let any_ports = |ends: &[TrafficSelector]| {
            let widen = |end: &TrafficSelector| TrafficSelector {
                ports: PortRange::Any,
                ..*end
            };
            ends.iter().map(widen).collect()
        };
        let ends = (any_ports(local), any_ports(remote));
        let with = |protocol| Flow { protocol, ..*flow };
        protocols.iter().any(|&p| naive_match(&ends, &with(p)))
    };
    let mut earlier = entries[..first].iter();
    let doubtful =
        flow.ports.is_none() && earlier.any(|(ends, kind)| *kind != 1 && some_packet_matches(ends));
    match entries[first].1 {
        1 if doubtful => Some(2),
        kind => Some(kind),
    }
}

proptest! {
    // RFC 4301 R9, R13, R28, R40, R83, R84, R90
    #[test]
    fn the_spd_takes_the_first_match(
        entries in proptest::collection::vec((any_ends(), 0u8..3), 0..8),
        flows in proptest::collection::vec(generators::flow(), 1..30),
    ) {
        let policy = Arc::new(Policy::new(PolicyId(1), "p"));
        let action = |kind| match kind {
            0 => Action::Protect(Arc::clone(&policy)),
            1 => Action::Bypass,
            _ => Action::Discard,
        };
        let spd = Spd::new(entries.iter().map(|((local, remote), kind)| SpdEntry::new(SelectorSet::from_ends(local, remote).expect("few"), action(*kind))).collect());
        prop_assert_eq!(spd.discards(), entries.iter().any(|(_, kind)| *kind == 2));
        for flow in &flows {
            let first = naive_kind(&entries, flow);
            let decision = spd.outbound(flow);
            let agrees = match first {
                None => matches!(decision, Decision::Discard(DropReason::NoPolicy)),
                Some(0) => matches!(decision, Decision::Acquire(a) if a.policy.id == PolicyId(1)),
                Some(1) => matches!(decision, Decision::Bypass),
                Some(_) => matches!(decision, Decision::Discard(DropReason::PolicyDiscard)),
            };
            prop_assert!(agrees, "{:?} gave {:?}, not {:?}", flow, decision, first);
            prop_assert_eq!(spd.inbound_bypass(flow).is_ok(), first == Some(1));
            let of_them = entries.iter().find(|(ends, _)| naive_match(ends, flow));
            prop_assert_eq!(spd.inbound_discards(flow), of_them.is_some_and(|(_, kind)| *kind == 2));
        }
    }

    // RFC 4301 R19
    #[test]
    fn a_selector_narrowed_by_a_packet_selects_it(
        selector in generators::selector(), flow in generators::flow(), populate in any::<[bool; 5]>(),
    ) {
        let [local, remote, protocol, local_port, remote_port] = populate;
        let populate = PopulateFromPacket { local, remote, protocol, local_port, remote_port };
        let narrowed = populate.narrow(&selector, &flow);
        prop_assert!(!selector.matches(&flow) || narrowed.matches(&flow));
    }

    // RFC 4301 R14
    #[test]
    fn prefixes_contain_what_shares_their_bits(a in any::<u32>(), b in any::<u32>(), len in 0u8..=33) {
        let range = AddressRange::from_prefix(IpAddr::V4(a.into()), len);
        prop_assert_eq!(range.is_some(), len <= 32);
        if let Some(range) = range {
            let shared = (a ^ b).leading_zeros() >= u32::from(len);
            prop_assert_eq!(range.contains(IpAddr::V4(b.into())), shared);
            prop_assert!(!range.contains(address("::1")));
        }
    }
}

// RFC 4301 R16
#[test]
fn ports_from_the_wire() {
    assert_eq!(PortRange::from_wire(0, 65_535), Some(PortRange::Any));
    assert_eq!(PortRange::from_wire(65_535, 0), Some(PortRange::Opaque));
    assert_eq!(PortRange::from_wire(80, 80), Some(PortRange::Range(80, 80)));
    assert_eq!(PortRange::from_wire(2, 1), None);
}

#[test]
fn selector_sets_are_bounded() {
    let range = AddressRange::from_prefix(address("10.0.0.0"), 8).expect("a prefix");
    let any = TrafficSelector {
        addresses: range,
        protocol: 0,
        ports: PortRange::Any,
    };
    assert!(SelectorSet::from_ends(&[any; 32], &[any; 32]).is_some());
    assert!(SelectorSet::from_ends(&[any; 33], &[any; 32]).is_none());
    assert!(SelectorSet::new(vec![Selector::between(range, range); 2000]).is_none());
    let later = AddressRange::new(address("10.0.0.2"), address("10.0.0.1"));
    assert_eq!(later, None);
    assert_eq!(AddressRange::new(address("10.0.0.2"), address("::1")), None);
}

fn inbound_sa(spi: u32) -> Arc<InboundSa> {
    let transform = Transform::ESP[0];
    let key = key_material(transform);
    let mut parameters = parameters(transform, false, spi, &key);
    parameters.selectors = selectors(RIGHT, LEFT);
    Arc::new(InboundSa::new(parameters).expect("good keys"))
}

// RFC 4302 R4, R6; RFC 4303 R3, R6, R60
#[test]
fn the_sad_finds_what_was_inserted_and_nothing_else() {
    let sad = Sad::new();
    let mut spis = HashMap::new();
    for _ in 0..3000 {
        let spi = sad.allocate_spi().expect("room");
        assert!(spi > 255, "small SPIs are reserved");
        assert!(sad.lookup(spi).is_none(), "allocated is not installed");
        let sa = inbound_sa(spi);
        sad.insert(Arc::clone(&sa)).expect("allocated");
        assert!(spis.insert(spi, sa).is_none(), "an SPI was given twice");
    }
    for (&spi, sa) in &spis {
        assert!(sad.lookup(spi).is_some_and(|found| Arc::ptr_eq(&found, sa)));
        let guess = spi ^ 1 << 31;
        assert!(spis.contains_key(&guess) || sad.lookup(guess).is_none());
    }
    assert_eq!(sad.all().len(), spis.len());
    let unknown = [0, 1, 255, 256, u32::MAX, 0x0010_0000 | (SLOTS as u32 - 1)];
    for unknown in unknown.into_iter().filter(|spi| !spis.contains_key(spi)) {
        assert!(sad.lookup(unknown).is_none());
        assert!(sad.remove(unknown).is_none());
        assert_eq!(sad.insert(inbound_sa(unknown)), Err(NotAllocated(unknown)));
    }
    for &spi in spis.keys() {
        assert!(sad.remove(spi).is_some());
        assert!(sad.remove(spi).is_none(), "removed once");
        assert!(sad.lookup(spi).is_none());
    }
    assert!(sad.all().is_empty());
}

#[test]
fn spis_can_be_claimed_once() {
    for sad in [Sad::new(), Sad::plain()] {
        claim_once(&sad);
    }
    let sad = Sad::plain();
    assert!(sad.claim_spi(0x5e10_1234));
    assert!(!sad.claim_spi(0x6e10_1234), "the same slot");
}

fn claim_once(sad: &Sad) {
    let first = sad.allocate_spi().expect("room");
    assert!(!sad.claim_spi(first));
    assert!(!sad.claim_spi(255));
    assert!(sad.claim_spi(0x5e10_1234));
    assert!(!sad.claim_spi(0x5e10_1234));
    sad.insert(inbound_sa(0x5e10_1234)).expect("claimed");
    assert!(sad.lookup(0x5e10_1234).is_some());
    for _ in 0..10_000 {
        let spi = sad.allocate_spi().expect("room");
        assert!(spi != 0x5e10_1234 && spi != first);
    }
}

/// A host that is not on our packets' path sees no SPI, and an ICMP error counts only with the right SPI.
#[test]
fn spis_are_not_to_be_guessed() {
    let mut seen: HashSet<u32> = HashSet::new();
    let (mut ones, mut zeros) = (0, 0);
    for _ in 0..200 {
        let spi = Sad::new().allocate_spi().expect("room");
        seen.insert(spi);
        (ones, zeros) = (ones | spi, zeros | !spi);
    }
    assert!(
        seen.len() >= 199,
        "the first SPI of a gateway is any of 2^32"
    );
    assert_eq!((ones, zeros), (u32::MAX, u32::MAX));
    // A host that has an SPI of ours does not know the neighbouring SPI.
    let steps: HashSet<u32> = (0..200)
        .map(|_| Sad::new())
        .filter_map(|sad| Some(sad.allocate_spi()?.wrapping_sub(sad.allocate_spi()?)))
        .collect();
    assert!(steps.len() >= 199);
}

#[test]
fn the_sad_refuses_when_full() {
    let sad = Sad::new();
    let allocated = (0..SLOTS).filter(|_| sad.allocate_spi().is_some()).count();
    assert_eq!(allocated, SLOTS);
    assert_eq!(sad.allocate_spi(), None);
}

#[test]
fn lookups_go_on_while_sas_come_and_go() {
    let sad = Sad::new();
    let stable = sad.allocate_spi().expect("room");
    sad.insert(inbound_sa(stable)).expect("allocated");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // The loop runs at least once, however late the thread starts.
            loop {
                assert!(sad.lookup(stable).is_some_and(|sa| sa.common.spi == stable));
                for slot in 0..32 {
                    // A found SA must have the SPI that was asked for.
                    let spi = stable & 0xfff0_0000 | slot;
                    assert!(sad.lookup(spi).is_none_or(|sa| sa.common.spi == spi));
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..500 {
            let spi = sad.allocate_spi().expect("room");
            sad.insert(inbound_sa(spi)).expect("allocated");
            sad.remove(spi);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("no assertion failed");
    });
}

// RFC 4301 R54, R56
#[test]
fn a_later_fragment_does_not_slip_past_a_policy_for_ports() {
    let web = Selector {
        protocol: NextLayer::Is(6),
        remote_ports: PortRange::Range(443, 443),
        ..selectors(LEFT, RIGHT).as_slice()[0]
    };
    let entry = SpdEntry::new;
    let web = SelectorSet::new(vec![web]).expect("one");
    let spd = Spd::new(vec![
        entry(
            web,
            Action::Protect(Arc::new(Policy::new(PolicyId(1), "web"))),
        ),
        entry(selectors(LEFT, RIGHT), Action::Bypass),
    ]);
    let flow =
        |protocol, ports| Flow::new(address("10.1.0.7"), address("10.2.0.9"), protocol, ports);
    let other_port = flow(6, Some((1, 80)));
    assert!(matches!(spd.outbound(&other_port), Decision::Bypass));
    let fragment = flow(6, None);
    let discarded = Decision::Discard(DropReason::PolicyDiscard);
    assert_eq!(
        format!("{:?}", spd.outbound(&fragment)),
        format!("{discarded:?}")
    );
    assert!(spd.inbound_bypass(&fragment).is_err());
    let other_protocol = flow(17, None);
    assert!(matches!(spd.outbound(&other_protocol), Decision::Bypass));
}
