//! Compares the findings about an SPD with a trial of every packet of a small world.

use std::net::IpAddr;
use std::sync::Arc;

use esplanade_explain::analysis::{FindingKind, analyse};
use esplanade_ipsec::selector::{AddressRange, Flow, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyDirection, PolicyId, SpdEntry};
use proptest::prelude::*;

const ADDRESSES: u8 = 3;
const PORTS: u16 = 3;

fn address(n: u8) -> IpAddr {
    IpAddr::V4([10, 0, 0, n].into())
}

/// The ports of a selector: any, hidden, or a range from the first to the second.
type Ports = Option<Option<[u16; 2]>>;
/// A selector: local and remote addresses, protocol (none is any), local and remote ports.
type Box = ([u8; 2], [u8; 2], Option<u8>, Ports, Ports);
/// An entry: selectors, action, direction and interface.
type Line = (Vec<Box>, u8, u8, u32);

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let addresses = || (0..ADDRESSES, 0..ADDRESSES).prop_map(|(a, b)| [a.min(b), a.max(b)]);
    let ports = || {
        let range = (0..PORTS, 0..PORTS).prop_map(|(a, b)| Some(Some([a.min(b), a.max(b)])));
        let all = Just(Some(Some([0, u16::MAX])));
        prop_oneof![4 => Just(None), 1 => Just(Some(None)), 3 => range, 1 => all]
    };
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17), Just(50)];
    let of_protocol = (protocol, ports(), ports()).prop_map(|(p, l, r)| (Some(p), l, r));
    let upper = prop_oneof![3 => Just((None, None, None)), 4 => of_protocol];
    let selector =
        (addresses(), addresses(), upper).prop_map(|(l, r, (p, lp, rp))| (l, r, p, lp, rp));
    let line = (
        proptest::collection::vec(selector, 1..3),
        0u8..3,
        prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => Just(2)],
        prop_oneof![5 => Just(0u32), 1 => Just(7)],
    );
    proptest::collection::vec(line, 1..7)
}

fn entry((selectors, action, direction, interface): &Line, policy: &Arc<Policy>) -> SpdEntry {
    let ports = |ports: &Ports| match ports {
        None => PortRange::Any,
        Some(None) => PortRange::Opaque,
        Some(Some([a, b])) => PortRange::Range(*a, *b),
    };
    let selectors = selectors
        .iter()
        .map(|(local, remote, protocol, locals, remotes)| {
            let range =
                |[a, b]: [u8; 2]| AddressRange::new(address(a), address(b)).expect("in order");
            Selector {
                protocol: protocol.map_or(NextLayer::Any, NextLayer::Is),
                local_ports: ports(locals),
                remote_ports: ports(remotes),
                ..Selector::between(range(*local), range(*remote))
            }
        });
    let action = match action {
        0 => Action::Protect(Arc::clone(policy)),
        1 => Action::Bypass,
        _ => Action::Discard,
    };
    let set = SelectorSet::new(selectors.collect()).expect("few");
    SpdEntry {
        direction: match direction {
            0 => PolicyDirection::Both,
            1 => PolicyDirection::Outbound,
            _ => PolicyDirection::Inbound,
        },
        interface: *interface,
        ..SpdEntry::new(set, action)
    }
}

/// A packet, and whether it is inbound.
type Seen = (Flow, bool);

fn sees(entry: &SpdEntry, (flow, inbound): &Seen) -> bool {
    let other_way = match inbound {
        true => PolicyDirection::Outbound,
        false => PolicyDirection::Inbound,
    };
    entry.interface == flow.interface
        && entry.direction != other_way
        && entry.selectors.matches(flow)
}

/// All packets of the world. They include hidden ports, and a port and a protocol that no rule names. Both ports can
/// be seen or neither. ICMP has its type and code in both, and ESP has no ports.
fn world() -> Vec<Seen> {
    let mut upper: Vec<(u8, Option<(u16, u16)>)> = [1, 6, 17, 50, 47].map(|p| (p, None)).to_vec();
    for a in 0..=PORTS {
        upper.push((1, Some((a, a))));
        upper.extend((0..=PORTS).flat_map(|b| [6, 17].map(|p| (p, Some((a, b))))));
    }
    let mut flows = Vec::new();
    for local in 0..ADDRESSES {
        for remote in 0..ADDRESSES {
            for (protocol, ports) in &upper {
                let flow = Flow::new(address(local), address(remote), *protocol, *ports);
                for interface in [0, 7] {
                    let flow = Flow { interface, ..flow };
                    flows.extend([(flow, false), (flow, true)]);
                }
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
        let entries: Vec<SpdEntry> = lines.iter().map(|line| entry(line, &policy)).collect();
        let analysis = analyse(&entries);
        prop_assert!(analysis.undecided.is_empty());
        let world = world();
        let mut reached = vec![false; entries.len()];
        for flow in &world {
            if let Some(first) = entries.iter().position(|e| sees(e, flow)) {
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
        let matches = |index: usize, flow: &&Seen| sees(&entries[index], flow);
        for finding in &analysis.findings {
            match &finding.kind {
                FindingKind::Empty => {
                    prop_assert!(!world.iter().any(|flow| matches(finding.entry, &flow)));
                }
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
                    let both = |flow: &Seen| matches(*with, &flow) && matches(finding.entry, &flow);
                    prop_assert!(world.iter().any(both));
                }
            }
        }
    }
}

/// Policies are usually written with a narrow exception before a wide rule, so that is no finding.
#[test]
fn exceptions_are_not_reported() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let line = |remote: [u8; 2], action| (vec![([0, 4], remote, None, None, None)], action, 0, 0);
    let entries = [line([1, 2], 1), line([0, 4], 0)];
    let entries: Vec<SpdEntry> = entries.iter().map(|line| entry(line, &policy)).collect();
    assert!(analyse(&entries).findings.is_empty());
}

#[test]
fn hostile_rules_are_undecided_and_not_endless() {
    let random = |n: u32| (n.wrapping_mul(2_654_435_761) >> 16) as u16;
    let mut entries: Vec<SpdEntry> = (0..1500u32)
        .map(|n| {
            let host = |n: u32| AddressRange::host(IpAddr::V4(u32::from(random(n)).into()));
            let port = |n: u32| PortRange::Range(random(n), random(n));
            let selector = Selector {
                protocol: NextLayer::Is([6, 17, 33, 132, 136][usize::from(random(n) % 5)]),
                local_ports: port(n + 1),
                remote_ports: port(n + 2),
                ..Selector::between(host(n + 3), host(n + 4))
            };
            let set = SelectorSet::new(vec![selector]).expect("one");
            SpdEntry::new(set, Action::Discard)
        })
        .collect();
    let all = AddressRange::from_prefix(address(0), 0).expect("a prefix");
    let set = SelectorSet::new(vec![Selector::between(all, all)]).expect("one");
    entries.push(SpdEntry::new(set, Action::Bypass));
    assert_eq!(analyse(&entries).undecided, [1500]);
}

#[test]
fn fifty_thousand_policies_are_all_examined() {
    let host = |n: u32| AddressRange::host(IpAddr::V4((0x0a00_0000 + n).into()));
    let net = AddressRange::from_prefix(IpAddr::V4([172, 16, 0, 0].into()), 12).expect("a prefix");
    let entry = |local, remote, action| {
        let set = SelectorSet::new(vec![Selector::between(local, remote)]).expect("one");
        SpdEntry::new(set, action)
    };
    // All entries have one end in common: first the local end, then the remote end.
    let mut entries: Vec<SpdEntry> = (0..25_000)
        .map(|n| entry(net, host(n), Action::Bypass))
        .collect();
    entries.extend((0..25_000).map(|n| entry(host(n), net, Action::Bypass)));
    entries.push(entry(host(24_999), net, Action::Discard));
    let analysis = analyse(&entries);
    assert!(
        analysis.undecided.is_empty(),
        "{}",
        analysis.undecided.len()
    );
    let [finding] = &analysis.findings[..] else {
        panic!("{:?}", analysis.findings)
    };
    assert_eq!(finding.entry, 50_000);
    assert_eq!(finding.kind, FindingKind::Shadowed { by: 49_999 });
}
