//! Tests of the shield's policies: rules, differences, and the room of each peer.

use esplanade_ipsec::selector::AddressRange as Addresses;

use super::*;
use crate::daemon::shield::{SharedPolicies, Shield, Tables};
use crate::join::tests::{TRAP, ends, policy};

const PEER: &str = "192.0.2.9/32";

/// A child whose remote end is the peer's address, and another whose networks are known.
fn shield() -> Shield {
    let mut known = policy("net", TRAP, "10.2.0.0/16");
    known.remote.clear();
    let configured = [known, policy("other", TRAP, "10.3.0.0/16")];
    let config = GatewayConfig::default();
    let policies = SharedPolicies::default();
    policies
        .with(|own| own.configure(&config, &configured, Vec::new()))
        .unwrap();
    Shield {
        config,
        devices: vec!["esp0".to_owned()],
        policies,
    }
}

fn owner(name: &str) -> Identity {
    name.parse().unwrap()
}

/// A policy of a peer with selectors for some ports.
fn of_ports(id: u32, remote: &str, ports: std::ops::Range<u16>) -> PeerPolicy {
    let port = |port| TrafficSelector {
        protocol: 6,
        ports: PortRange::Range(port, port),
        ..ends("10.1.0.1/32")[0]
    };
    PeerPolicy {
        id: PolicyId(id),
        entry: ("site".to_owned(), "net".to_owned()),
        local: ports.map(|at| port(at * 2)).collect(),
        remote: ends(remote),
    }
}

#[test]
fn the_rules_are_as_many_however_many_selectors_there_are() {
    let mut shield = shield();
    let rules = |shield: &mut Shield| shield.whole().first().unwrap().rules();
    let before = rules(&mut shield);
    for id in 1..=16 {
        let policy = of_ports(id, PEER, (id as u16 * 250)..(id as u16 * 250 + 250));
        let added = shield
            .policies
            .with(|own| own.add(policy, Some(owner("a.example"))));
        assert_eq!(added, Ok(()));
        assert_eq!(shield.difference().unwrap().rules(), 0);
    }
    assert!(shield.policies.with(|own| own.element_count()) >= 4000);
    assert_eq!(rules(&mut shield), before);
    assert!(before < 60, "{before}");
}

#[test]
fn what_comes_and_goes_is_a_difference() {
    let mut shield = shield();
    let whole = shield.whole();
    assert!(shield.difference().is_none(), "the whole has everything");
    let add = |shield: &Shield, id| {
        let policy = of_ports(id, PEER, 0..250);
        shield.policies.with(|own| own.add(policy, None)).unwrap();
    };
    add(&shield, 1);
    assert!(shield.difference().is_some() && shield.difference().is_none());
    add(&shield, 2);
    shield.policies.with(|own| own.remove(PolicyId(2)));
    assert!(shield.difference().is_none(), "nothing has changed");
    shield.policies.with(|own| own.remove(PolicyId(1)));
    assert!(shield.difference().is_some());
    assert_eq!(shield.whole(), whole);
}

#[test]
fn one_peer_takes_no_room_of_others() {
    let shield = shield();
    let add = |id: u32, owner: Identity| {
        // Each has an address of its own, so that nothing is shared.
        let remote = format!("192.{}.{}.9/32", id / 250, id % 250);
        let from = (id % 200) as u16 * 100;
        let policy = of_ports(id, &remote, from..from + 100 + (id % 97) as u16);
        shield.policies.with(|own| own.add(policy, Some(owner)))
    };
    let mut id = 0;
    let refused = loop {
        id += 1;
        if let Err(full) = add(id, owner("greedy.example")) {
            break full;
        }
    };
    assert_eq!(refused, ShieldFull::OfPeer);
    let used = shield.policies.with(|own| own.used);
    assert!(used <= ELEMENTS_PER_PEER_MAX && used > ELEMENTS_PER_PEER_MAX - 300);
    assert_eq!(add(id + 1, owner("honest.example")), Ok(()));
    shield.policies.with(|own| own.remove(PolicyId(1)));
    assert_eq!(
        add(1, owner("greedy.example")),
        Ok(()),
        "there is room again"
    );
}

#[test]
fn room_is_reserved_until_the_policy_comes() {
    let shield = shield();
    let peer = owner("a.example");
    let policy = of_ports(1, PEER, 0..250);
    let reserve = |remote: &str| {
        let ends = (policy.local.clone(), ends(remote));
        let child = ("site", "net");
        shield.policies.with(|own| own.reserve(child, ends, &peer))
    };
    let nothing = (shield.policies.with(|own| own.element_count()), 0, 0);
    let used = || {
        shield.policies.with(|own| {
            (
                own.element_count(),
                own.used,
                own.shares.len() + own.held.len(),
            )
        })
    };
    assert_eq!(reserve(PEER), Ok(()));
    shield.policies.with(ShieldPolicies::release_reserved);
    assert_eq!(used(), nothing);
    assert_eq!(reserve(PEER), Ok(()));
    let reserved = used();
    assert_eq!(reserve(PEER), Ok(()));
    assert_eq!(used(), reserved, "there is room already");
    shield.policies.with(|own| {
        own.add(policy.clone(), None).unwrap();
        own.release_reserved();
        assert_eq!(own.shares[&peer], own.used);
        own.fallen = true;
    });
    assert_eq!(used(), reserved);
    assert_eq!(reserve(PEER), Ok(()), "a rekey");
    assert_eq!(reserve("192.0.2.10/32"), Err(ShieldFull::Fallen));
    shield.policies.with(|own| own.remove(PolicyId(1)));
    assert_eq!(used(), nothing);
}

#[test]
fn selectors_that_overlap_too_often_are_refused() {
    let shield = shield();
    // Each selector lies around the one before.
    let nested = |n: u16| TrafficSelector {
        protocol: 17,
        ports: PortRange::Range(30_000 - n, 30_000 + n),
        addresses: Addresses::new(
            IpAddr::from([10, 1, 100, 0]),
            IpAddr::from([10, 1, 100, 255]),
        )
        .unwrap(),
    };
    let mut policy = of_ports(1, PEER, 0..1);
    policy.local = (0..1000).map(nested).collect();
    let result = shield.policies.with(|own| own.add(policy, None));
    assert_eq!(result, Err(ShieldFull::OverlapsTooOften));
    assert_eq!(
        shield.policies.with(|own| (own.used, own.held.len())),
        (0, 0)
    );
}

#[test]
fn every_selector_that_a_packet_can_show_has_a_rule() {
    let with = |protocol, ports| TrafficSelector {
        protocol,
        ports,
        ..ends("10.1.0.1/32")[0]
    };
    let any = with(0, PortRange::Any);
    let range = PortRange::Range(22, 80);
    let rules = |to, from| {
        let rules = pair(&to, &from, false);
        let shown = rules
            .iter()
            .map(|rule| (rule.protocol.0, rule.protocol.1, rule.ports));
        shown.collect::<Vec<_>>()
    };
    let all = (0, u16::MAX);
    assert_eq!(rules(any, any), [(0, 255, None)]);
    assert_eq!(rules(with(47, PortRange::Any), any), [(47, 47, None)]);
    assert_eq!(rules(with(6, range), any), [(6, 6, Some([all, (22, 80)]))]);
    assert_eq!(rules(any, with(6, range)), [(6, 6, Some([(22, 80), all]))]);
    assert!(rules(with(6, range), with(17, range)).is_empty());
    assert!(rules(with(47, range), any).is_empty(), "GRE has no ports");
    assert!(rules(with(6, PortRange::Opaque), any).is_empty());
    // Ports without a protocol select packets of every protocol that has ports, or a type and a code.
    let of_any: Vec<_> = rules(with(0, range), any)
        .iter()
        .map(|rule| rule.0)
        .collect();
    assert_eq!(of_any, [6, 17, 132, 33, 136, 1, 58]);
    let echo = PortRange::icmp(8, 0, 255).unwrap();
    let icmp = |ports| with(1, ports);
    assert_eq!(
        rules(icmp(echo), any),
        [(1, 1, Some([(0x800, 0x8ff), all]))]
    );
    let unreachable = PortRange::icmp(3, 0, 255).unwrap();
    assert!(rules(icmp(echo), icmp(unreachable)).is_empty());
}
