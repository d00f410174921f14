//! Tests of the classifier, against a search for the first rule that names a packet.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn add(
    classifier: &mut Classifier,
    chain: u32,
    remote: Span,
    rules: &[(RulePlace, ClassifierRule)],
    work: usize,
) -> Result<(), OverlapsTooOften> {
    let payer = rules.first().map(|(place, _)| place.1);
    let held = HeldRules {
        chain,
        remote,
        rules,
        payer,
    };
    let mut budget = WorkLimit {
        rules: work,
        branches: usize::MAX,
    };
    classifier.add(held, &mut budget)
}

fn remove(classifier: &mut Classifier, chain: u32, remote: Span, holder: Holder) {
    classifier.remove(chain, remote, holder, Some(holder.1));
}

fn wide<T: Into<u128>>((first, last): (T, T)) -> Span {
    (first.into(), last.into())
}

/// The fields that a packet shows. `None` stands for a field that cannot be seen.
#[derive(Clone, Copy, Debug)]
struct Packet {
    remote: u128,
    local: u128,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

type Placed = (RulePlace, ClassifierRule);

/// The rules of one holder, for one range of remote addresses.
type Held = (Span, Vec<Placed>);

/// Goes through the maps as the kernel does.
fn verdict(branches: &[Branch], chain: u32, packet: &Packet) -> Option<u64> {
    let step = |map, node: u64, value: u128| {
        let mut found = branches.iter().filter(|one| {
            (one.map, one.node) == (map, node) && one.span.0 <= value && value <= one.span.1
        });
        let first = found.next().map(|one| one.to);
        assert!(found.next().is_none(), "intervals overlap");
        first
    };
    let remote = step(ClassifierMap::Remote, chain.into(), packet.remote)?;
    let local = step(ClassifierMap::Local, remote, packet.local);
    let by_ports = || {
        let (remote_port, local_port) = packet.ports?;
        let node = step(ClassifierMap::PortProtocol, local?, packet.protocol?.into())?;
        let node = step(ClassifierMap::RemotePort, node, remote_port.into())?;
        step(ClassifierMap::LocalPort, node, local_port.into())
    };
    let by_protocol = || step(ClassifierMap::Protocol, local?, packet.protocol?.into());
    let by_addresses = || step(ClassifierMap::Addresses, remote, packet.local);
    by_ports().or_else(by_protocol).or_else(by_addresses)
}

/// The first rule that names the packet decides.
fn wanted(rules: &[Held], packet: &Packet) -> Option<u64> {
    let within = |span: Span, value: u128| span.0 <= value && value <= span.1;
    let takes = |rule: &ClassifierRule| {
        let protocol = match packet.protocol {
            Some(protocol) => rule.protocol.0 <= protocol && protocol <= rule.protocol.1,
            None => rule.protocol == (0, u8::MAX),
        };
        let ports = match (rule.ports, packet.ports) {
            (None, _) => true,
            (Some([remote, local]), Some(ports)) => {
                within(wide(remote), ports.0.into()) && within(wide(local), ports.1.into())
            }
            (Some(_), None) => false,
        };
        within(rule.local, packet.local) && protocol && ports
    };
    let of_remote = rules
        .iter()
        .filter(|(remote, _)| within(*remote, packet.remote));
    let taking = of_remote
        .flat_map(|(_, rules)| rules)
        .filter(|(_, rule)| takes(rule));
    taking
        .min_by_key(|(place, _)| *place)
        .map(|(_, rule)| rule.verdict())
}

fn span(most: u8) -> impl Strategy<Value = (u8, u8)> {
    (0..=most, 0..=most).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn rule() -> impl Strategy<Value = ClassifierRule> {
    let protocol = prop_oneof![Just((0, u8::MAX)), (0..3_u8).prop_map(|one| (one, one))];
    let port = || {
        prop_oneof![
            Just((0, u16::MAX)),
            span(6).prop_map(|(a, b)| (a.into(), b.into()))
        ]
    };
    let ports = proptest::option::of((port(), port()).prop_map(|(a, b)| [a, b]));
    (span(9), protocol, ports, any::<bool>()).prop_map(|(local, protocol, ports, accepts)| {
        ClassifierRule {
            local: wide(local),
            protocol,
            ports,
            accepts,
        }
    })
}

fn held() -> impl Strategy<Value = (Span, Vec<ClassifierRule>)> {
    (
        span(12).prop_map(wide),
        proptest::collection::vec(rule(), 1..4),
    )
}

fn packets() -> impl Iterator<Item = Packet> {
    let addresses = (0..=13).flat_map(|remote| (0..=10).map(move |local| (remote, local)));
    addresses.flat_map(|(remote, local)| {
        let protocols = [None, Some(0), Some(1), Some(2), Some(9)];
        protocols.into_iter().flat_map(move |protocol| {
            let ports = [None, Some((0, 3)), Some((3, 0)), Some((6, 6)), Some((7, 7))];
            // Where the protocol cannot be seen, ports cannot.
            let ports = ports
                .into_iter()
                .filter(move |ports| protocol.is_some() || ports.is_none());
            ports.map(move |ports| Packet {
                remote,
                local,
                protocol,
                ports,
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_first_rule_decides_whoever_comes_and_goes(
        holders in proptest::collection::vec(held(), 1..7),
        leave in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut classifier = Classifier::default();
        let mut known: BTreeMap<Branch, ()> = BTreeMap::new();
        let mut standing = BTreeMap::new();
        let steps = (0..holders.len()).map(|index| (index, true));
        let leaving = leave.iter().map(|index| (index.index(holders.len()), false));
        for (index, comes) in steps.chain(leaving) {
            let (remote, rules) = &holders[index];
            if comes {
                let place = |(at, rule): (usize, &ClassifierRule)| ((0, index as u64, at), *rule);
                let rules: Vec<Placed> = rules.iter().enumerate().map(place).collect();
                add(&mut classifier, 3, *remote, &rules, 100_000).unwrap();
                standing.insert(index, (*remote, rules));
            } else {
                remove(&mut classifier, 3, *remote, (0, index as u64));
                standing.remove(&index);
            }
            // The changes lead from the branches that were known to those that are there.
            let (gone, come) = classifier.take_changes();
            for branch in gone {
                prop_assert!(known.remove(&branch).is_some());
            }
            for branch in come {
                prop_assert!(known.insert(branch, ()).is_none());
            }
            let all: BTreeSet<_> = classifier.branches().into_iter().collect();
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), known.keys().collect::<Vec<_>>());
            prop_assert_eq!(classifier.branch_count(), all.len());
            let branches = classifier.branches();
            let rules: Vec<_> = standing.values().cloned().collect();
            // Whoever came and went before, the branches and the charges are as if they had never been.
            let mut afresh = Classifier::default();
            for (remote, rules) in standing.values().rev() {
                add(&mut afresh, 3, *remote, rules, 100_000).unwrap();
            }
            prop_assert_eq!(afresh.branch_count(), classifier.branch_count());
            prop_assert_eq!(&afresh.charges, &classifier.charges);
            for packet in packets() {
                prop_assert_eq!(
                    verdict(&branches, 3, &packet), wanted(&rules, &packet), "{:?}", packet
                );
            }
        }
        for (index, (remote, _)) in standing {
            remove(&mut classifier, 3, remote, (0, index as u64));
        }
        prop_assert_eq!((classifier.branch_count(), classifier.nodes.len()), (0, 0));
        prop_assert!(classifier.charges.is_empty() && classifier.by_hash.is_empty());
    }
}

fn of_port(port: u16) -> ClassifierRule {
    ClassifierRule {
        local: (1, 1),
        protocol: (6, 6),
        ports: Some([(0, u16::MAX), (port, port)]),
        accepts: false,
    }
}

#[test]
fn a_rule_more_changes_little() {
    let mut classifier = Classifier::default();
    for holder in 0..16_u16 {
        let rules = (0..250).map(|n| of_port(holder * 1000 + 2 * n));
        let place = |(at, rule)| ((0, holder.into(), at), rule);
        let rules: Vec<_> = rules.enumerate().map(place).collect();
        add(&mut classifier, 0, (9, 9), &rules, 100_000).unwrap();
        let (gone, come) = classifier.take_changes();
        assert!(gone.is_empty(), "{}", gone.len());
        assert!(come.len() <= 250 + 4, "{}", come.len());
    }
    assert_eq!(classifier.branch_count(), 4000 + 4);
    remove(&mut classifier, 0, (9, 9), (0, 3));
    assert_eq!(classifier.take_changes().0.len(), 250);
}

/// The holders of a test, each with eight rules for ports of its own.
fn held_ports(holder: u16) -> Vec<Placed> {
    let ports = 8 * holder..8 * holder + 8;
    let placed = ports.map(|n| ((0, holder.into(), n.into()), of_port(2 * n)));
    placed.collect()
}

fn with_holders(count: u16) -> Classifier {
    let mut classifier = Classifier::default();
    for holder in 0..count {
        add(&mut classifier, 0, (9, 9), &held_ports(holder), 100_000).unwrap();
    }
    classifier.take_changes();
    classifier
}

#[test]
fn a_holder_makes_no_work_with_the_intervals_of_others() {
    // Rules that differ in the last field are looked at once in each field before.
    const LOOKS: u64 = 4;
    for holders in [10, 100, 400] {
        let mut classifier = with_holders(holders);
        let mut before = classifier.work();
        let mut work = |classifier: &mut Classifier| {
            classifier.take_changes();
            classifier.work() - std::mem::replace(&mut before, classifier.work())
        };
        let most = LOOKS * 8 * u64::from(holders + 1) + 100;
        add(&mut classifier, 0, (9, 9), &held_ports(800), 100_000).unwrap();
        let added = work(&mut classifier);
        remove(&mut classifier, 0, (9, 9), (0, 800));
        let removed = work(&mut classifier);
        assert!(added.max(removed) <= most, "{added} {removed} of {most}");
    }
}

#[test]
fn holders_that_go_together_make_the_work_of_one() {
    const STEP: u16 = 64;
    let work = |step: u16| {
        let mut classifier = with_holders(256);
        let before = classifier.work();
        for holder in 0..256 {
            remove(&mut classifier, 0, (9, 9), (0, holder.into()));
            if holder % step == step - 1 {
                classifier.take_changes();
            }
        }
        assert_eq!(classifier.branch_count(), 0);
        classifier.work() - before
    };
    let (one_by_one, together) = (work(1), work(STEP));
    assert!(10 * together < one_by_one, "{together} {one_by_one}");
}

#[test]
fn rules_that_find_no_room_leave_others_as_they_were() {
    let mut classifier = with_holders(100);
    let before = classifier.branches();
    let wide = |n: u16| ClassifierRule {
        ports: Some([(n, 60_000 - n), (0, u16::MAX)]),
        ..of_port(0)
    };
    let rules: Vec<_> = (0..200).map(|n| ((0, 500, n.into()), wide(n))).collect();
    let added = add(&mut classifier, 0, (8, 10), &rules, 20_000);
    assert_eq!(added, Err(OverlapsTooOften));
    assert_eq!(
        classifier.charge(500),
        0,
        "what it would have had is not charged"
    );
    remove(&mut classifier, 0, (8, 10), (0, 500));
    assert_eq!(classifier.branches(), before);
    assert_eq!(classifier.take_changes(), (Vec::new(), Vec::new()));
}

#[test]
fn a_rule_that_cuts_too_many_intervals_is_refused() {
    let mut classifier = with_holders(100);
    let before = classifier.branches();
    let add = |classifier: &mut Classifier, branches| {
        let rule = ClassifierRule {
            ports: None,
            protocol: (0, u8::MAX),
            ..of_port(0)
        };
        let held = HeldRules {
            chain: 0,
            remote: (9, 9),
            rules: &[((0, 500, 0), rule)],
            payer: None,
        };
        let rules = 1 << 20;
        classifier.add(held, &mut WorkLimit { rules, branches })
    };
    // There is a gap behind each of the 800 ports.
    assert_eq!(add(&mut classifier, 800), Err(OverlapsTooOften));
    assert_eq!(classifier.branches(), before);
    assert_eq!(add(&mut classifier, 900), Ok(()));
}

#[test]
fn peers_with_the_same_rules_share_them() {
    let mut classifier = Classifier::default();
    for peer in 0..1000_u64 {
        let rules: Vec<_> = (0..10).map(|n| ((0, peer, n), of_port(n as u16))).collect();
        let remote = u128::from(peer) * 2;
        add(&mut classifier, 0, (remote, remote), &rules, 100_000).unwrap();
    }
    assert_eq!(
        (classifier.nodes.len(), classifier.branch_count()),
        (1, 1000 + 13)
    );
}

#[test]
fn rules_that_overlap_too_often_are_refused_and_leave_nothing() {
    let mut classifier = Classifier::default();
    // Each rule lies around the one before.
    let nested = |n: usize| ClassifierRule {
        local: (5000 - n as u128, 5000 + n as u128),
        ..of_port(1)
    };
    let rules: Vec<_> = (0..1024).map(|n| ((0, 7, n), nested(n))).collect();
    assert_eq!(
        add(&mut classifier, 0, (9, 20), &rules, 262_144),
        Err(OverlapsTooOften)
    );
    remove(&mut classifier, 0, (9, 20), (0, 7));
    assert_eq!(classifier.take_changes(), (Vec::new(), Vec::new()));
    assert_eq!(
        (classifier.branch_count(), classifier.stretches.len()),
        (0, 0)
    );
}
