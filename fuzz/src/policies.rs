//! Fuzzes the search in the SPD: policies that the input chooses, at once and one by one, and the packets that it meets.

use std::net::IpAddr;
use std::sync::Arc;

use esplanade::explain::Explanation;
use esplanade::explain::analysis::analyse;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::selector::{
    AddressRange, Flow, NextLayer, PopulateFromPacket, PortRange, Selector, SelectorSet,
};
use esplanade_ipsec::spd::{
    Action, Decision, EntryPlace, FlowCache, FlowKey, Policy, PolicyDirection, PolicyId, Spd,
    SpdBook, SpdEntry,
};
use esplanade_testkit::net::Rng;

/// The most entries of an SPD, and selectors of an entry.
const ENTRIES_MAX: u64 = 160;
const SELECTORS_MAX: u64 = 12;
const FLOWS: usize = 48;

struct World {
    rng: Rng,
    addresses: u64,
    span: u64,
    selectors: u64,
}

/// Bytes 0 to 3 say how many entries there are, of how many selectors, among how many addresses, and what is common.
/// The rest seeds the choices.
pub fn policies(data: &[u8]) {
    let Some((&[entries, selectors, addresses, span], rest)) = data.split_first_chunk() else {
        return;
    };
    let seed = rest.iter().fold(1, |seed: u64, byte| {
        seed.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte)
    });
    let mut world = World {
        rng: Rng::new(seed),
        addresses: 1 + u64::from(addresses) * u64::from(addresses),
        span: 1 + u64::from(span),
        selectors: 1 + u64::from(selectors) % SELECTORS_MAX,
    };
    let count = u64::from(entries) % ENTRIES_MAX;
    let entries: Vec<SpdEntry> = (0..count).map(|at| world.entry(at)).collect();
    let flows: Vec<Flow> = (0..FLOWS).map(|_| world.flow()).collect();
    let analysis = analyse(&entries);
    assert!(
        analysis
            .findings
            .iter()
            .all(|finding| finding.entry < entries.len())
    );
    let spd = Spd::new(entries.clone());
    for flow in &flows {
        compare(&spd, &spd, flow);
    }
    check_cache(&spd, &flows);
    world.one_by_one(entries, &flows);
}

impl World {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn range(&mut self, v6: bool) -> AddressRange {
        let first = self.below(self.addresses);
        let last = first + self.below(self.span);
        match self.below(8) {
            0 => AddressRange::from_prefix(host(v6, 0), 0).expect("a prefix"),
            1 => AddressRange::from_prefix(host(v6, first), if v6 { 96 } else { 25 })
                .unwrap_or_else(|| AddressRange::host(host(v6, first))),
            _ => AddressRange::new(host(v6, first), host(v6, last)).expect("in order"),
        }
    }

    fn ports(&mut self) -> PortRange {
        let (a, b) = (self.below(12) as u16, self.below(12) as u16);
        match self.below(6) {
            0 => PortRange::Opaque,
            1 => PortRange::Range(a.min(b), a.max(b)),
            2 => PortRange::Range(a, u16::MAX),
            // An empty range matches nothing.
            3 if a > b => PortRange::Range(a, b),
            _ => PortRange::Any,
        }
    }

    fn selector(&mut self) -> Selector {
        let v6 = self.below(3) == 0;
        let other = v6 ^ (self.below(40) == 0);
        let mut selector = Selector {
            local: self.range(v6),
            remote: self.range(other),
            protocol: match self.below(8) {
                0 => NextLayer::Opaque,
                1 | 2 => NextLayer::Is([1, 6, 17, 58, 0, 255][self.below(6) as usize]),
                _ => NextLayer::Any,
            },
            local_ports: self.ports(),
            remote_ports: self.ports(),
        };
        if self.below(6) == 0 {
            let (first, last) = (self.below(3) as u8, 2 + self.below(3) as u8);
            selector.protocol = NextLayer::Is(if v6 { 58 } else { 1 });
            let kind = self.below(3) as u8;
            selector.local_ports = PortRange::icmp(kind, first, last).expect("in order");
            selector.remote_ports = selector.local_ports;
        }
        selector
    }

    fn entry(&mut self, at: u64) -> SpdEntry {
        let count = 1 + self.below(self.selectors);
        let selectors = (0..count).map(|_| self.selector()).collect();
        let selectors = SelectorSet::new(selectors).expect("few");
        let name = format!("policy {at}");
        let policy = Arc::new(Policy::new(PolicyId(at as u32), name));
        let action = match self.below(4) {
            0 | 1 => Action::Protect(policy),
            2 => Action::Bypass,
            _ => Action::Discard,
        };
        SpdEntry {
            direction: match self.below(6) {
                0 => PolicyDirection::Inbound,
                1 => PolicyDirection::Outbound,
                _ => PolicyDirection::Both,
            },
            interface: if self.below(8) == 0 { 7 } else { 0 },
            populate: match self.below(4) {
                0 => PopulateFromPacket {
                    local: true,
                    remote_port: true,
                    ..PopulateFromPacket::NONE
                },
                _ => PopulateFromPacket::NONE,
            },
            ..SpdEntry::new(selectors, action)
        }
    }

    fn flow(&mut self) -> Flow {
        let v6 = self.below(3) == 0;
        let reach = self.addresses + self.span;
        let ends = [self.below(reach), self.below(reach)];
        let protocol = [6, 17, 1, 58, 50, 0][self.below(6) as usize];
        let ports = match self.below(5) {
            0 => None,
            1 => Some(((self.below(3) << 8) as u16, self.below(3) as u16)),
            _ => Some((self.below(12) as u16, self.below(12) as u16)),
        };
        let mut flow = Flow::new(host(v6, ends[0]), host(v6, ends[1]), protocol, ports);
        if self.below(8) == 0 {
            flow.protocol = None;
            flow.ports = None;
        }
        flow.interface = if self.below(6) == 0 { 7 } else { 0 };
        flow
    }

    /// Entries that come and go one by one make the SPD that those left make at once.
    fn one_by_one(&mut self, entries: Vec<SpdEntry>, flows: &[Flow]) {
        let (mut book, mut left) = (SpdBook::default(), Vec::new());
        for (at, entry) in entries.into_iter().enumerate() {
            let place = EntryPlace((at as u128 * 37) % 256);
            book.add(place, entry.clone());
            left.push((place, entry));
            if self.below(4) == 0 {
                let gone = left.swap_remove(self.below(left.len() as u64) as usize);
                assert!(book.remove(gone.0));
            }
            if self.below(6) == 0 {
                let _ = book.take_snapshot();
            }
            if self.below(12) == 0
                && let Some(merge) = book.take_merge()
            {
                let _ = book.merged(merge.run());
            }
        }
        assert!(!book.remove(EntryPlace(9999)));
        left.sort_by_key(|(place, _)| *place);
        let Some(spd) = book.take_snapshot() else {
            return;
        };
        let at_once = Spd::new(left.into_iter().map(|(_, entry)| entry).collect());
        assert_eq!(spd.entries().len(), at_once.entries().len());
        assert_eq!(spd.discards(), at_once.discards());
        for flow in flows {
            compare(&spd, &at_once, flow);
        }
    }
}

fn host(v6: bool, at: u64) -> IpAddr {
    match v6 {
        true => {
            IpAddr::V6((0xfd00 << 112 | u128::from(at / 3) << 66 | u128::from(at % 3) << 20).into())
        }
        false => IpAddr::V4((0x0a00_0000 + at as u32).into()),
    }
}

fn decided(spd: &Spd, flow: &Flow) -> &'static str {
    match spd.outbound(flow) {
        Decision::Acquire(acquire) => {
            if let Some(event) = acquire.raise(flow) {
                assert!(format!("{event:?}").contains("Acquire"));
            }
            "protect"
        }
        Decision::Protect(_) => "protect",
        Decision::Bypass => "bypass",
        Decision::Discard(DropReason::NoPolicy) => "none",
        Decision::Discard(_) => "discard",
    }
}

/// The search and the explanation agree, and so do two SPDs with the same entries.
fn compare(spd: &Spd, other: &Spd, flow: &Flow) {
    let found = decided(spd, flow);
    assert_eq!(found, decided(other, flow), "{flow:?}");
    let explanation = Explanation::of(spd, flow, false);
    let entry = explanation.matched.and_then(|at| spd.entries().get(at));
    let explained = match entry.map(|entry| &entry.action) {
        None => "none",
        Some(Action::Protect(_)) => "protect",
        Some(Action::Bypass) if explanation.doubt.is_none() => "bypass",
        Some(_) => "discard",
    };
    assert_eq!(found, explained, "{flow:?}");
    let inbound = Explanation::of(spd, flow, true);
    assert_eq!(inbound.comparisons.len(), spd.entries().len());
    assert_eq!(spd.ports_decide(flow), other.ports_decide(flow));
    assert_eq!(spd.inbound_discards(flow), other.inbound_discards(flow));
    assert_eq!(spd.inbound_bypass(flow), other.inbound_bypass(flow));
}

/// A flow cache has the verdict of the first time.
fn check_cache(spd: &Spd, flows: &[Flow]) {
    let mut cache = FlowCache::new(16, [1, 2, 3, 4, 5, 6]);
    for interface in [0, 7] {
        cache.begin_burst(spd, interface);
        for flow in flows.iter().filter(|flow| flow.interface == interface) {
            if let Some(key) = FlowKey::from_flow(flow) {
                assert_eq!(key.flow(interface), *flow);
                let first = cache.lookup(spd, &key);
                assert_eq!(first, cache.lookup(spd, &key));
            }
        }
        cache.sweep(cache.sets());
    }
    cache.clear();
}
