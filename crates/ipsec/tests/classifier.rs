//! Compares the compiled SPD with a linear search that knows only the definition.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use esplanade_ipsec::selector::{
    AddressRange, Flow, NextLayer, PopulateFromPacket, PortRange, Selector, SelectorSet,
};
use esplanade_ipsec::spd::{
    Action, Decision, EntryPlace, FlowCache, FlowKey, LevelMerge, Policy, PolicyDirection,
    PolicyId, Spd, SpdBook, SpdEntry, Verdict,
};
use esplanade_ipsec::{DropReason, Event};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// The spread of the addresses of a rule set: few addresses, so that rules overlap, or many.
#[derive(Clone, Copy, Debug)]
struct Space {
    addresses: u32,
    span: u32,
}

const CROWDED: Space = Space {
    addresses: 40,
    span: 24,
};
const WIDE: Space = Space {
    addresses: 5000,
    span: 60,
};

fn v4(n: u32) -> IpAddr {
    IpAddr::V4((0x0a00_0000 + n).into())
}

/// Makes addresses that differ in the high and in the low half.
fn v6(n: u32) -> IpAddr {
    let n = u128::from(n);
    IpAddr::V6((0xfd00 << 112 | (n / 3) << 66 | (n % 3) << 20).into())
}

fn number(rng: &mut TestRng, below: u32) -> u32 {
    rng.next_u32() % below
}

fn address_range(rng: &mut TestRng, version: fn(u32) -> IpAddr, space: Space) -> AddressRange {
    let everything = AddressRange::from_prefix(version(0), 0);
    let first = number(rng, space.addresses);
    let range = AddressRange::new(version(first), version(first + number(rng, space.span)));
    match number(rng, 8) {
        0 => everything.expect("a prefix"),
        _ => range.expect("in order"),
    }
}

fn port_range(rng: &mut TestRng) -> PortRange {
    let (a, b) = (number(rng, 12) as u16, number(rng, 12) as u16);
    match number(rng, 6) {
        0 => PortRange::Opaque,
        1 => PortRange::Range(a.min(b), a.max(b)),
        2 => PortRange::Range(a, u16::MAX),
        // An empty range must match nothing.
        3 if a > b => PortRange::Range(a, b),
        _ => PortRange::Any,
    }
}

fn selector(rng: &mut TestRng, space: Space) -> Selector {
    let version = [v4, v6][number(rng, 2) as usize];
    let mut selector = Selector {
        local: address_range(rng, version, space),
        remote: address_range(rng, version, space),
        protocol: match number(rng, 8) {
            0 => NextLayer::Opaque,
            1 | 2 => NextLayer::Is([1, 6, 17, 58, 0, 255][number(rng, 6) as usize]),
            _ => NextLayer::Any,
        },
        local_ports: port_range(rng),
        remote_ports: port_range(rng),
    };
    if number(rng, 6) == 0 {
        let codes = (number(rng, 3) as u8, number(rng, 3) as u8);
        let codes = PortRange::icmp(
            number(rng, 3) as u8,
            codes.0.min(codes.1),
            codes.1.max(codes.0),
        );
        selector.protocol = NextLayer::Is(if selector.local.first().is_ipv4() {
            1
        } else {
            58
        });
        selector.local_ports = codes.expect("in order");
        selector.remote_ports = selector.local_ports;
    }
    if number(rng, 40) == 0 {
        // The ends have different versions, so nothing matches.
        selector.remote = address_range(rng, v4, space);
    }
    selector
}

fn flow(rng: &mut TestRng, space: Space) -> Flow {
    let version = [v4, v6][number(rng, 2) as usize];
    let address = |rng: &mut TestRng| match number(rng, 20) {
        0 => AddressRange::from_prefix(version(0), 0).map_or(version(0), |all| all.last()),
        _ => version(number(rng, space.addresses + space.span)),
    };
    let protocol = [1, 6, 17, 58, 0, 255, 47][number(rng, 7) as usize];
    let ports = (number(rng, 14) as u16, number(rng, 14) as u16);
    let icmp = (number(rng, 3) << 8 | number(rng, 3)) as u16;
    Flow {
        protocol: (number(rng, 10) != 0).then_some(protocol),
        ports: match (protocol, number(rng, 4)) {
            (_, 0) => None,
            (1 | 58, _) => Some((icmp, icmp)),
            (_, 1) => Some((u16::MAX, u16::MAX)),
            _ => Some(ports),
        },
        dscp: 0,
        interface: number(rng, 2) * 7,
        ..Flow::new(address(rng), address(rng), protocol, None)
    }
}

fn entries(rng: &mut TestRng, space: Space, count: usize, selectors_max: u32) -> Vec<SpdEntry> {
    let mut ids = 1..;
    let mut entry = || {
        let id = PolicyId(ids.next().unwrap_or(0));
        let policy = Arc::new(Policy::new(id, "p"));
        let selectors = (0..=number(rng, selectors_max)).map(|_| selector(rng, space));
        let selectors = SelectorSet::new(selectors.collect()).expect("few");
        let action = match number(rng, 3) {
            0 => Action::Protect(policy),
            1 => Action::Bypass,
            _ => Action::Discard,
        };
        SpdEntry {
            direction: match number(rng, 6) {
                0 => PolicyDirection::Inbound,
                1 => PolicyDirection::Outbound,
                _ => PolicyDirection::Both,
            },
            interface: if number(rng, 8) == 0 { 7 } else { 0 },
            ..SpdEntry::new(selectors, action)
        }
    };
    (0..count).map(|_| entry()).collect()
}

/// Reads RFC 4301 §4.4.1 and §5 literally: the first entry decides. A packet without ports does not pass in the clear
/// if an earlier entry might have matched its datagram (RFC 4301 §7.4).
fn naive(entries: &[SpdEntry], flow: &Flow, inbound: bool) -> &'static str {
    let sees = |entry: &&SpdEntry| {
        let other_way = match inbound {
            true => PolicyDirection::Outbound,
            false => PolicyDirection::Inbound,
        };
        entry.interface == flow.interface && entry.direction != other_way
    };
    let mut hidden = false;
    for entry in entries.iter().filter(sees) {
        if entry.selectors.matches(flow) {
            return match entry.action {
                Action::Protect(_) => "protect",
                Action::Bypass if hidden => "discard",
                Action::Bypass => "bypass",
                Action::Discard => "discard",
            };
        }
        let could_be = |selector: &Selector| {
            let empty = |range| matches!(range, PortRange::Range(first, last) if first > last);
            if empty(selector.local_ports) || empty(selector.remote_ports) {
                return false;
            }
            let mut widened = *selector;
            widened.local_ports = PortRange::Any;
            widened.remote_ports = PortRange::Any;
            if flow.protocol.is_none() {
                widened.protocol = NextLayer::Any;
            }
            widened.matches(flow)
        };
        let clear = matches!(entry.action, Action::Bypass);
        hidden |= flow.ports.is_none() && !clear && entry.selectors.as_slice().iter().any(could_be);
    }
    "none"
}

fn compiled(spd: &Spd, flow: &Flow) -> &'static str {
    match spd.outbound(flow) {
        Decision::Acquire(_) | Decision::Protect(_) => "protect",
        Decision::Bypass => "bypass",
        Decision::Discard(DropReason::NoPolicy) => "none",
        Decision::Discard(_) => "discard",
    }
}

fn compare(entries: Vec<SpdEntry>, flows: impl Iterator<Item = Flow>) {
    let spd = Spd::new(entries);
    for flow in flows {
        compare_one(spd.entries(), &spd, &flow);
    }
}

fn compare_one(entries: &[SpdEntry], spd: &Spd, flow: &Flow) {
    let expected = naive(entries, flow, false);
    assert_eq!(compiled(spd, flow), expected, "{flow:?}");
    let passes = naive(entries, flow, true) == "bypass";
    assert_eq!(spd.inbound_bypass(flow).is_ok(), passes, "{flow:?}");
}

/// Compares an SPD with these entries, which came and went one by one, with one that is compiled at once.
fn compare_with_new(entries: Vec<SpdEntry>, spd: &Spd, flows: impl Iterator<Item = Flow>) {
    let alike = |(a, b): (&SpdEntry, &SpdEntry)| Arc::ptr_eq(&a.name, &b.name);
    assert_eq!(spd.entries().len(), entries.len());
    assert!(spd.entries().iter().zip(&entries).all(alike), "the order");
    let at_once = Spd::new(entries);
    assert_eq!(spd.discards(), at_once.discards());
    for flow in flows {
        compare_one(at_once.entries(), spd, &flow);
        assert_eq!(spd.inbound_discards(&flow), at_once.inbound_discards(&flow));
        assert_eq!(spd.ports_decide(&flow), at_once.ports_decide(&flow));
        assert_eq!(asked(spd, &flow), asked(&at_once, &flow), "{flow:?}");
    }
}

/// The name of the policy for which a packet asks, by the number that a flow cache gives.
fn asked(spd: &Spd, flow: &Flow) -> Option<PolicyId> {
    let mut cache = FlowCache::new(8, [1, 2, 3, 4, 5, 6]);
    cache.begin_burst(spd, flow.interface);
    let Verdict::Acquire(entry) = cache.lookup(spd, &FlowKey::from_flow(flow)?) else {
        return None;
    };
    let Event::Acquire { policy, .. } = spd.acquire(entry, flow)? else {
        return None;
    };
    spd.policy(policy)?.acquire_done();
    Some(policy)
}

/// Flows at the ends of ranges, where mistakes are most likely.
fn ends(entries: &[SpdEntry]) -> Vec<Flow> {
    let one_version = |s: &&Selector| s.local.first().is_ipv4() == s.remote.first().is_ipv4();
    let selectors = entries.iter().flat_map(|e| e.selectors.as_slice());
    let flows = selectors.filter(one_version).take(40).flat_map(|s| {
        let (local, remote) = (s.local, s.remote);
        [
            Flow::new(local.first(), remote.last(), 6, None),
            Flow::new(local.last(), remote.first(), 6, Some((1, 1))),
        ]
    });
    flows.collect()
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // RFC 4301 R12, R13, R14, R15, R16, R17, R55, R85, R96, R120, R130
    #[test]
    fn random_rule_sets(seed in any::<u64>(), count in 0usize..150, crowded in any::<bool>()) {
        let mut rng = rng(seed);
        let space = if crowded { CROWDED } else { WIDE };
        let entries = entries(&mut rng, space, count, 3);
        let ends = ends(&entries);
        compare(entries, (0..150).map(|_| flow(&mut rng, space)).chain(ends));
    }
}

/// An SPD to which entries come and from which they go, and the same entries as a list.
struct Changing {
    book: SpdBook,
    standing: BTreeMap<EntryPlace, SpdEntry>,
    /// The merge that another thread would make.
    merge: Option<LevelMerge>,
    spd: Spd,
}

impl Changing {
    /// Changes some entries, and publishes the SPD.
    fn change(&mut self, rng: &mut TestRng, coming: &mut Vec<SpdEntry>) {
        for _ in 0..=number(rng, 60) {
            match number(rng, 5) {
                0 | 1 if !self.standing.is_empty() => {
                    let nth = number(rng, self.standing.len() as u32) as usize;
                    let place = *self.standing.keys().nth(nth).expect("some");
                    self.standing.remove(&place);
                    assert!(self.book.remove(place));
                    assert!(!self.book.remove(place), "once");
                }
                _ => {
                    // Entries go to any place, also to those of entries that went.
                    let place = EntryPlace(number(rng, 4000).into());
                    if let Some(entry) = coming.pop_if(|_| !self.standing.contains_key(&place)) {
                        self.standing.insert(place, entry.clone());
                        self.book.add(place, entry);
                    }
                }
            }
        }
        if let Some(merge) = self.merge.take_if(|_| number(rng, 3) == 0) {
            drop(self.book.merged(merge.run()));
        }
        if self.merge.is_none() {
            self.merge = self.book.take_merge();
        }
        if let Some(spd) = self.book.take_snapshot() {
            self.spd = spd;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    // RFC 4301 R12
    #[test]
    fn an_spd_that_changes_by_differences_decides_as_one_made_at_once(
        seed in any::<u64>(),
        rounds in 1usize..60,
        crowded in any::<bool>(),
    ) {
        let mut rng = rng(seed);
        let space = if crowded { CROWDED } else { WIDE };
        let mut coming = entries(&mut rng, space, 60 * rounds, 3);
        let (book, standing) = (SpdBook::default(), BTreeMap::new());
        let mut changing = Changing { book, standing, merge: None, spd: Spd::default() };
        for round in 0..rounds {
            changing.change(&mut rng, &mut coming);
            if round % 8 == 0 || round + 1 == rounds {
                let standing: Vec<_> = changing.standing.values().cloned().collect();
                let ends = ends(&standing);
                let flows = (0..10).map(|_| flow(&mut rng, space));
                compare_with_new(standing, &changing.spd, flows.chain(ends).take(20));
            }
        }
    }
}

/// Entries come one by one and go again in another order. Counts how many selectors were compiled for that, and the
/// levels at most.
fn work_of_coming_and_going(count: u64) -> (u64, usize) {
    let mut book = SpdBook::default();
    let host = |n: u64| AddressRange::host(v4(n as u32));
    let everything = AddressRange::from_prefix(v4(0), 0).expect("a prefix");
    let mut levels = 0;
    let mut settle = |book: &mut SpdBook| {
        while let Some(merge) = book.take_merge() {
            drop(book.merged(merge.run()));
        }
        let spd = book.take_snapshot().expect("something has changed");
        levels = levels.max(spd.levels());
    };
    for n in 0..count {
        let selector = Selector::between(everything, host(n));
        let set = SelectorSet::new(vec![selector]).expect("one");
        book.add(EntryPlace(n.into()), SpdEntry::new(set, Action::Discard));
        settle(&mut book);
    }
    for n in 0..count {
        // 7919 is a prime, so that each entry goes once.
        assert!(book.remove(EntryPlace((n * 7919 % count).into())));
        settle(&mut book);
    }
    (book.compiled_rules(), levels)
}

#[test]
fn replaced_levels_are_unused_when_no_snapshot_has_them() {
    let mut book = SpdBook::default();
    let everything = AddressRange::from_prefix(v4(0), 0).expect("a prefix");
    let mut former = Spd::default();
    for n in 0..4000u32 {
        let selector = Selector::between(everything, AddressRange::host(v4(n)));
        let set = SelectorSet::new(vec![selector]).expect("one");
        book.add(EntryPlace(n.into()), SpdEntry::new(set, Action::Discard));
        let spd = book.take_snapshot().expect("something has changed");
        let Some(merge) = book.take_merge() else {
            former = spd;
            continue;
        };
        let level = merge.run();
        let replaced = book.merged(level);
        drop(former);
        assert!(!replaced.are_unused(), "the last snapshot has them");
        drop(spd);
        former = book.take_snapshot().expect("a new level");
        assert!(replaced.are_unused());
    }
    assert_eq!(former.entries().len(), 4000);
}

#[test]
fn the_work_for_entries_that_come_and_go_grows_in_proportion() {
    let (few, _) = work_of_coming_and_going(1000);
    let (many, levels) = work_of_coming_and_going(4000);
    assert!(many <= 5 * few, "{many} selectors for 4000, {few} for 1000");
    assert!(levels <= 14, "{levels}");
}

/// The rules are more than a word, a line and a page can hold.
#[test]
fn large_rule_sets() {
    for (seed, count, space) in [(1, 700, CROWDED), (2, 5000, WIDE), (3, 6000, CROWDED)] {
        let mut rng = rng(seed);
        let entries = entries(&mut rng, space, count, 2);
        let flows: Vec<Flow> = (0..400).map(|_| flow(&mut rng, space)).collect();
        compare(entries, flows.into_iter());
    }
}

#[test]
fn a_second_page_is_looked_at_after_the_first() {
    let subnet = |n: u32| AddressRange::new(v4(2 * n), v4(2 * n)).expect("in order");
    let everything = AddressRange::from_prefix(v4(0), 0).expect("a prefix");
    let per_entry = 1000u32;
    let mut entries: Vec<SpdEntry> = (0..70)
        .map(|e| {
            let selectors =
                (0..per_entry).map(|s| Selector::between(everything, subnet(e * per_entry + s)));
            let action = if e % 2 == 0 {
                Action::Bypass
            } else {
                Action::Discard
            };
            SpdEntry::new(SelectorSet::new(selectors.collect()).expect("few"), action)
        })
        .collect();
    let rest = SelectorSet::new(vec![Selector::between(everything, everything)]).expect("one");
    entries.push(SpdEntry::new(rest, Action::Bypass));
    let targets = [
        0, 1, 2000, 64_000, 65_535, 65_536, 65_999, 66_000, 69_999, 70_001,
    ];
    let flows = targets.iter().flat_map(|&n| [v4(2 * n), v4(2 * n + 1)]);
    let flows = flows.flat_map(|remote| {
        let flow = Flow::new(v4(9), remote, 17, Some((1, 2)));
        [
            flow,
            Flow {
                ports: None,
                ..flow
            },
        ]
    });
    compare(entries, flows);
}

#[test]
fn memory_is_bounded_where_every_rule_overlaps_every_other() {
    // The ranges are nested in every dimension, so that every boundary changes a large set.
    let count = 10_000u32;
    let entries: Vec<SpdEntry> = (0..count)
        .map(|n| {
            let range = AddressRange::new(v4(n), v4(4 * count - n)).expect("in order");
            let ports = PortRange::Range(n as u16, (40_000 - n) as u16);
            let selector = Selector {
                local_ports: ports,
                remote_ports: ports,
                ..Selector::between(range, range)
            };
            let set = SelectorSet::new(vec![selector]).expect("one");
            SpdEntry::new(set, Action::Discard)
        })
        .rev()
        .collect();
    let spd = Spd::new(entries);
    let per_rule_and_dimension = spd.compiled_len() / count as usize / 4;
    assert!(per_rule_and_dimension <= 340, "{per_rule_and_dimension}");
    let inside = Flow::new(v4(9999), v4(9999), 6, Some((20_000, 20_000)));
    assert!(matches!(
        spd.outbound(&inside),
        Decision::Discard(DropReason::PolicyDiscard)
    ));
    let outside = Flow {
        local: v4(40_001),
        ..inside
    };
    assert!(matches!(
        spd.outbound(&outside),
        Decision::Discard(DropReason::NoPolicy)
    ));
}

// RFC 4301 R19
#[test]
fn an_acquire_asks_for_what_policy_and_packet_say() {
    let net = |text: &str| AddressRange::from_prefix(text.parse().expect("valid"), 16).expect("16");
    let selector = Selector {
        protocol: NextLayer::Is(6),
        remote_ports: PortRange::Range(400, 500),
        ..Selector::between(net("10.1.0.0"), net("10.2.0.0"))
    };
    let acquired = |populate| {
        let policy = Arc::new(Policy::new(PolicyId(1), "web"));
        let spd = Spd::new(vec![SpdEntry {
            populate,
            ..SpdEntry::new(
                SelectorSet::new(vec![selector]).expect("one"),
                Action::Protect(policy),
            )
        }]);
        let (local, remote) = ("10.1.0.5".parse(), "10.2.0.9".parse());
        let flow = Flow::new(
            local.expect("valid"),
            remote.expect("valid"),
            6,
            Some((40_000, 443)),
        );
        match spd.outbound(&flow) {
            Decision::Acquire(acquire) => {
                assert!(acquire.raise(&flow).is_some());
                assert!(acquire.raise(&flow).is_none(), "once");
                acquire.selector
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(acquired(PopulateFromPacket::NONE), selector);
    let populate = PopulateFromPacket {
        remote: true,
        remote_port: true,
        ..PopulateFromPacket::NONE
    };
    let narrowed = Selector {
        remote: AddressRange::host("10.2.0.9".parse().expect("valid")),
        remote_ports: PortRange::Range(443, 443),
        ..selector
    };
    assert_eq!(acquired(populate), narrowed);
}
