//! Tests of the shield's policies: rules, differences, and the room of each peer.

use std::net::IpAddr;
use std::sync::Arc;

use esplanade_ipsec::selector::{AddressRange as Addresses, PortRange};

use super::super::rules::pair;
use super::*;
use crate::daemon::host::shield::{SharedPolicies, Shield, Tables};
use crate::join::tests::{TRAP, ends, policy};

const PEER: &str = "192.0.2.9/32";

/// A child whose remote end is the peer's address, and another whose networks are known.
fn shield() -> Shield {
    let mut known = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut known).remote.clear();
    let configured = [known, policy("other", TRAP, "10.3.0.0/16")];
    let config = GatewayConfig::default();
    let policies = SharedPolicies::default();
    policies
        .with(|own| own.configure(&config, &configured, &[], Vec::new()))
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
    let used = shield.policies.with(|own| own.size() - own.configured_size);
    let most = ELEMENTS_MAX / SHARES;
    assert!(used <= most && used > most - 500, "{used} of {most}");
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
    let nothing = (shield.policies.with(|own| own.element_count()), 0);
    let used = || {
        shield.policies.with(|own| {
            let elements = own.element_count();
            assert_eq!(own.share_of(&peer) > 0, !own.held.is_empty());
            (elements, own.payers.len() + own.held.len())
        })
    };
    assert_eq!(reserve(PEER), Ok(()));
    assert!(shield.policies.with(ShieldPolicies::release_reserved));
    assert!(!shield.policies.with(ShieldPolicies::release_reserved));
    assert_eq!(used(), nothing);
    assert_eq!(reserve(PEER), Ok(()));
    let reserved = used();
    assert_eq!(reserve(PEER), Ok(()));
    assert_eq!(used(), reserved, "there is room already");
    shield.policies.with(|own| {
        own.add(policy.clone(), None).unwrap();
        assert!(!own.release_reserved());
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
    let nothing = shield
        .policies
        .with(|own| own.held.is_empty() && own.size() == own.configured_size);
    assert!(nothing);
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

/// A policy of a peer for this many ports, from one on.
fn of_peer(id: u32, from: u16, count: u16) -> PeerPolicy {
    of_ports(id, PEER, from..from + count)
}

#[test]
fn what_a_peer_takes_does_not_depend_on_who_came_first() {
    let share = |order: &[u32]| {
        let shield = shield();
        shield.policies.with(|own| {
            for id in order {
                // Two peers have the same selectors, at addresses of their own.
                let (name, remote) = match id % 2 {
                    0 => ("a.example", "192.0.2.9/32"),
                    _ => ("b.example", "192.0.2.10/32"),
                };
                let from = (id / 2) as u16 * 50;
                let policy = of_ports(*id, remote, from..from + 100);
                own.add(policy, Some(owner(name))).unwrap();
            }
            // The first policies go.
            own.remove(PolicyId(0));
            own.remove(PolicyId(1));
            let shares = ["a.example", "b.example"].map(|name| own.share_of(&owner(name)));
            (shares, own.size())
        })
    };
    let one = share(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(one.0[0], one.0[1], "the same selectors cost the same");
    assert!(
        one.0[0] > 150 && one.1 < one.0.iter().sum::<usize>(),
        "{one:?}"
    );
    for other in [[5, 4, 3, 2, 1, 0], [4, 2, 0, 1, 3, 5], [3, 0, 5, 2, 1, 4]] {
        // How much is shared with others depends on the order.
        assert_eq!(share(&other).0, one.0);
    }
}

#[test]
fn no_number_of_peers_takes_all_room() {
    let shield = shield();
    let mut id = 0;
    shield.policies.with(|own| {
        for peer in 0..12 {
            let name = owner(&format!("greedy-{peer}.example"));
            loop {
                id += 1;
                let remote = format!("192.{}.{}.9/32", id / 250, id % 250);
                let from = (id % 200) as u16 * 100;
                let policy = of_ports(id, &remote, from..from + 400 + (id % 97) as u16);
                if let Err(full) = own.add(policy, Some(name.clone())) {
                    assert_eq!(full, ShieldFull::OfPeer);
                    break;
                }
            }
        }
        assert!(own.size() < ELEMENTS_MAX - ELEMENTS_MAX / 8);
        let policy = of_ports(id + 1, "198.51.100.1/32", 0..250);
        assert_eq!(own.add(policy, Some(owner("honest.example"))), Ok(()));
    });
}

#[test]
fn a_share_is_charged_when_the_table_is_made_anew() {
    let shield = shield();
    shield.policies.with(|own| {
        let policy = of_peer(1, 0, 250);
        let configured = own.configured.clone();
        let config = GatewayConfig::default();
        let peers = vec![(policy, Some(owner("a.example")))];
        assert_eq!(
            own.configure(&config, &configured, &[], peers),
            Ok(Vec::new())
        );
        assert!(own.share_of(&owner("a.example")) > 250);
        own.remove(PolicyId(1));
        assert_eq!((own.payers.len(), own.held.len()), (0, 0));
    });
}

/// A child with so many selectors, each around the one before, that the table has no room.
fn too_many() -> ConfiguredPolicy {
    let mut policy = policy("large", TRAP, "10.4.0.0/16");
    let nested = |n: u16| TrafficSelector {
        protocol: 17,
        ports: PortRange::Range(30_000 - n, 30_000 + n),
        ..ends("10.1.0.1/32")[0]
    };
    Arc::make_mut(&mut policy).local = (0..6000).map(nested).collect();
    policy
}

#[test]
fn children_of_a_configuration_that_does_not_fit_come_up_if_the_table_has_them() {
    let shield = shield();
    let config = GatewayConfig::default();
    let (peer, policy_of) = (owner("a.example"), |name: &str, id| PeerPolicy {
        entry: ("site".to_owned(), name.to_owned()),
        ..of_peer(id, 0, 10)
    });
    shield.policies.with(|own| {
        let before = own.size();
        let mut configured = own.configured.clone();
        // One child is new, one is bound elsewhere, one has other addresses.
        configured.push(policy("new", TRAP, "10.5.0.0/16"));
        Arc::make_mut(&mut configured[1]).sa.if_ids.outbound = 7;
        Arc::make_mut(&mut configured[0]).remote = ends("203.0.113.0/24");
        let fits = ShieldPolicies::of(&config, &configured, &[]);
        assert!(fits.is_ok());
        configured.push(too_many());
        let misfit = own
            .configure(&config, &configured, &[], Vec::new())
            .unwrap_err();
        assert_eq!(misfit.policy, "site/large");
        assert_eq!(misfit.why, ConfiguredFull::OverlapsTooOften);
        assert_eq!(own.size(), before, "the table is as it was");
        let mut reserve = |child: &str, remote: &str| {
            let ends = (ends("10.1.0.0/16"), ends(remote));
            own.reserve(("site", child), ends, &peer)
        };
        assert_eq!(reserve("net", "203.0.113.0/24"), Ok(()));
        for child in ["new", "other", "large"] {
            assert_eq!(reserve(child, "10.3.0.0/16"), Err(ShieldFull::Lacking));
        }
        assert!(own.size() > before, "the table has the selectors");
        assert_eq!(own.add(policy_of("net", 1), None), Ok(()));
        let added = own.add(policy_of("new", 2), None);
        assert_eq!(added, Err(ShieldFull::Lacking));
        configured.pop();
        assert_eq!(
            own.configure(&config, &configured, &[], Vec::new()),
            Ok(Vec::new())
        );
        assert_eq!(own.add(policy_of("new", 2), None), Ok(()));
    });
}

#[test]
fn a_first_configuration_that_does_not_fit_lets_no_child_come_up() {
    let mut own = ShieldPolicies::default();
    let configured = [policy("net", TRAP, "10.2.0.0/16"), too_many()];
    let config = GatewayConfig::default();
    assert!(
        own.configure(&config, &configured, &[], Vec::new())
            .is_err()
    );
    for child in ["net", "large"] {
        let ends = (ends("10.1.0.0/16"), ends("10.2.0.0/16"));
        let reserved = own.reserve(("site", child), ends, &owner("a.example"));
        assert_eq!(reserved, Err(ShieldFull::Lacking));
    }
}

#[test]
fn policies_that_go_together_are_one_change() {
    let mut shield = shield();
    shield.whole();
    let policies = shield.policies.clone();
    let add = |id: u32| {
        let policy = of_peer(id, id as u16 * 8, 8);
        policies.with(|own| own.add(policy, None)).unwrap();
    };
    let work = || {
        let of = |own: &mut ShieldPolicies| own.classifiers[0].work();
        policies.with(of)
    };
    (1..=128).for_each(add);
    shield.difference();
    let before = work();
    policies.with(|own| (1..=128).for_each(|id| own.remove(PolicyId(id))));
    assert!(shield.difference().is_some() && shield.difference().is_none());
    // Each element goes, once.
    let work = work() - before;
    assert!(work < 2 * 128 * 8, "{work}");
}
