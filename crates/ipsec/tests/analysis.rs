//! Findings about an SPD, against trying every packet of a small world.

use std::net::IpAddr;
use std::sync::Arc;

use esplanade_ipsec::selector::{AddressRange, Flow, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::analysis::{FindingKind, analyse};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId};
use proptest::prelude::*;

const ADDRESSES: u8 = 5;
const PORTS: u16 = 4;

fn address(n: u8) -> IpAddr {
    IpAddr::V4([10, 0, 0, n].into())
}

/// Address ranges, protocol and remote ports within the small world; `None` is any.
type Line = (Vec<([u8; 2], [u8; 2], Option<u8>, Option<[u16; 2]>)>, u8);

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let addresses = || (0..ADDRESSES, 0..ADDRESSES).prop_map(|(a, b)| [a.min(b), a.max(b)]);
    let ports = (0..PORTS, 0..PORTS).prop_map(|(a, b)| [a.min(b), a.max(b)]);
    let selector = (
        addresses(),
        addresses(),
        proptest::option::weighted(0.4, prop_oneof![Just(6u8), Just(17)]),
        proptest::option::weighted(0.4, ports),
    );
    let line = (proptest::collection::vec(selector, 1..3), 0u8..3);
    proptest::collection::vec(line, 1..7)
}

fn entry((selectors, action): &Line, policy: &Arc<Policy>) -> Entry {
    let selectors = selectors.iter().map(|(local, remote, protocol, ports)| {
        let range = |[a, b]: [u8; 2]| AddressRange::new(address(a), address(b)).expect("in order");
        Selector {
            protocol: protocol.map_or(NextLayer::Any, NextLayer::Is),
            remote_ports: ports.map_or(PortRange::Any, |[a, b]| PortRange::Range(a, b)),
            ..Selector::between(range(*local), range(*remote))
        }
    });
    let action = match action {
        0 => Action::Protect(Arc::clone(policy)),
        1 => Action::Bypass,
        _ => Action::Discard,
    };
    Entry::new(SelectorSet::new(selectors.collect()).expect("few"), action)
}

/// All packets of the world, with a port and a protocol beside those that rules name, and hidden ports.
fn world() -> Vec<Flow> {
    let mut flows = Vec::new();
    for local in 0..ADDRESSES {
        for remote in 0..ADDRESSES {
            for protocol in [6, 17, 50] {
                let ports = (0..=PORTS).map(|port| Some((1, port))).chain([None]);
                flows
                    .extend(ports.map(|p| Flow::new(address(local), address(remote), protocol, p)));
            }
        }
    }
    flows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn findings_are_what_trying_all_packets_shows(lines in lines()) {
        let policy = Arc::new(Policy::new(PolicyId(1), "p"));
        let entries: Vec<Entry> = lines.iter().map(|line| entry(line, &policy)).collect();
        let analysis = analyse(&entries);
        prop_assert!(analysis.undecided.is_empty());
        let world = world();
        let mut reached = vec![false; entries.len()];
        for flow in &world {
            if let Some(first) = entries.iter().position(|e| e.selectors.matches(flow)) {
                reached[first] = true;
            }
        }
        for (index, reached) in reached.into_iter().enumerate() {
            let of = |kind: fn(&FindingKind) -> bool| {
                analysis.findings.iter().any(|f| f.entry == index && kind(&f.kind))
            };
            let dead = of(|kind| !matches!(kind, FindingKind::Overlaps { .. }));
            prop_assert_eq!(dead, !reached, "entry {}: {:?}", index, analysis);
        }
        let matches = |index: usize, flow: &&Flow| entries[index].selectors.matches(flow);
        for finding in &analysis.findings {
            match &finding.kind {
                FindingKind::Empty => prop_assert!(false, "every selector matches something"),
                FindingKind::Shadowed { by } => {
                    let own = world.iter().filter(|flow| matches(finding.entry, flow));
                    prop_assert!(own.into_iter().all(|flow| matches(*by, &flow)));
                }
                FindingKind::Unreachable { by } => {
                    let own = world.iter().filter(|flow| matches(finding.entry, flow));
                    prop_assert!(own.into_iter().all(|flow| by.iter().any(|b| matches(*b, &flow))));
                    prop_assert!(by.len() > 1);
                }
                FindingKind::Overlaps { with } => {
                    prop_assert!(lines[*with].1 != lines[finding.entry].1);
                    let both = |flow: &Flow| matches(*with, &flow) && matches(finding.entry, &flow);
                    prop_assert!(world.iter().any(both));
                }
            }
        }
    }
}

/// A narrow exception before a wide rule is how policies are written; it is no finding.
#[test]
fn exceptions_are_not_reported() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let line = |remote: [u8; 2], action| (vec![([0, 4], remote, None, None)], action);
    let entries = [line([1, 2], 1), line([0, 4], 0)];
    let entries: Vec<Entry> = entries.iter().map(|line| entry(line, &policy)).collect();
    assert!(analyse(&entries).findings.is_empty());
}

#[test]
fn hostile_rules_are_undecided_and_not_endless() {
    let random = |n: u32| (n.wrapping_mul(2_654_435_761) >> 16) as u16;
    let mut entries: Vec<Entry> = (0..1500u32)
        .map(|n| {
            let host = |n: u32| AddressRange::host(IpAddr::V4(u32::from(random(n)).into()));
            let port = |n: u32| PortRange::Range(random(n), random(n));
            let selector = Selector {
                protocol: NextLayer::Is(random(n) as u8),
                local_ports: port(n + 1),
                remote_ports: port(n + 2),
                ..Selector::between(host(n + 3), host(n + 4))
            };
            let set = SelectorSet::new(vec![selector]).expect("one");
            Entry::new(set, Action::Discard)
        })
        .collect();
    let all = AddressRange::from_prefix(address(0), 0).expect("a prefix");
    let set = SelectorSet::new(vec![Selector::between(all, all)]).expect("one");
    entries.push(Entry::new(set, Action::Bypass));
    assert_eq!(analyse(&entries).undecided, [1500]);
}
