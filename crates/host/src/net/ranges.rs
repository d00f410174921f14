//! Computes with sets of addresses, as lists of ranges that do not overlap.

use std::collections::BTreeMap;
use std::net::IpAddr;

use esplanade_prefix::{Prefix, from_bits, to_bits};

use super::AddressRange;
use super::routing::{shadowed, wanted};

/// An inclusive range of numbers.
type Span = (u128, u128);

/// Destinations that a wider prefix never leads into a TUN device.
const OF_THE_LINK: [&str; 4] = ["224.0.0.0", "255.255.255.255", "ff00::", "fe80::"];
const OF_THE_LINK_LENGTHS: [u8; 4] = [4, 32, 8, 10];

/// Returns multicast, broadcast and link-local addresses. Their packets end at the next router.
pub fn of_the_link() -> impl Iterator<Item = Prefix> {
    let all = OF_THE_LINK.iter().zip(OF_THE_LINK_LENGTHS);
    all.filter_map(|(address, length)| Prefix::new(address.parse().ok()?, length))
}

/// The destinations whose longest prefix leads into a TUN device, as policies come and go.
#[derive(Debug)]
pub struct Destinations {
    prefixes: BTreeMap<Prefix, Reasons>,
    /// The last address of each range, by its first.
    ranges: BTreeMap<IpAddr, IpAddr>,
    /// Ranges that have come (1) or gone (-1) since they were taken last.
    changes: BTreeMap<AddressRange, i8>,
    /// Prefixes that were looked at so far.
    work: u64,
}

/// How many policies lead a prefix into the device, and how many keep it out. A prefix that one leads in is led in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Reasons {
    into: usize,
    out: usize,
}

impl Default for Destinations {
    fn default() -> Self {
        let mut own = Self {
            prefixes: BTreeMap::new(),
            ranges: BTreeMap::new(),
            changes: BTreeMap::new(),
            work: 0,
        };
        own.count(of_the_link().collect(), true, |reasons| &mut reasons.out);
        own
    }
}

impl Destinations {
    /// Follows a policy that protects, and that has come or gone.
    pub fn protect(&mut self, come: bool, local: &[AddressRange], remote: &[AddressRange]) {
        self.count(shadowed(local, remote), come, |reasons| &mut reasons.out);
        self.count(wanted(remote), come, |reasons| &mut reasons.into);
    }

    /// Keeps the remote end of a policy that bypasses out of the device, or no longer does.
    pub fn bypass(&mut self, come: bool, remote: &[AddressRange]) {
        self.count(wanted(remote), come, |reasons| &mut reasons.out);
    }

    /// Returns all ranges.
    pub fn ranges(&self) -> Vec<AddressRange> {
        let range = |(first, last): (&IpAddr, &IpAddr)| AddressRange {
            first: *first,
            last: *last,
        };
        self.ranges.iter().map(range).collect()
    }

    /// Takes the ranges that have gone, and those that have come, since the last call.
    pub fn take_changes(&mut self) -> (Vec<AddressRange>, Vec<AddressRange>) {
        let changes = std::mem::take(&mut self.changes);
        let of = |wanted: i8| {
            let of_kind = changes.iter().filter(move |(_, change)| **change == wanted);
            of_kind.map(|(range, _)| *range).collect()
        };
        (of(-1), of(1))
    }

    /// Returns the number of ranges.
    pub fn count_ranges(&self) -> usize {
        self.ranges.len()
    }

    fn count(&mut self, prefixes: Vec<Prefix>, come: bool, of: fn(&mut Reasons) -> &mut usize) {
        for prefix in prefixes {
            let before = self.is_wanted(prefix);
            let reasons = self.prefixes.entry(prefix).or_default();
            let count = of(reasons);
            *count = match come {
                true => *count + 1,
                false => count.saturating_sub(1),
            };
            if *reasons == Reasons::default() {
                self.prefixes.remove(&prefix);
            }
            let after = self.is_wanted(prefix);
            if before != after {
                self.follow(prefix, after);
            }
        }
    }

    /// Tells whether the addresses of a prefix that no longer prefix is for are led into the device.
    fn is_wanted(&self, prefix: Prefix) -> bool {
        let around = (0..=prefix.length()).rev();
        let mut around = around.filter_map(|len| Prefix::new(prefix.address(), len));
        let reasons = around.find_map(|one| self.prefixes.get(&one));
        reasons.is_some_and(|reasons| reasons.into > 0)
    }

    /// Puts the ranges right inside a prefix whose own addresses are led in from now on, or no longer.
    fn follow(&mut self, prefix: Prefix, wanted: bool) {
        let v4 = prefix.address().is_ipv4();
        let (first, last) = (to_bits(prefix.address()), to_bits(prefix.last()));
        let inside = self.prefixes.range(prefix..);
        let inside = inside.take_while(|(one, _)| one.address() <= prefix.last());
        let inside = inside.filter(|(one, _)| **one != prefix);
        let span = |(one, reasons): (&Prefix, &Reasons)| {
            let span = (to_bits(one.address()), to_bits(one.last()));
            (span, reasons.into > 0)
        };
        let own = std::iter::once(((first, last), wanted));
        let mut looked_at = 0;
        let all = own.chain(inside.map(span)).inspect(|_| looked_at += 1);
        let mut spans = nested(all);
        self.work += looked_at;
        for former in self.touching(prefix) {
            self.ranges.remove(&former.first);
            self.note(former, -1);
            let (from, to) = (to_bits(former.first), to_bits(former.last));
            if from < first {
                spans.push((from, to.min(first - 1)));
            }
            if to > last {
                spans.push((from.max(last + 1), to));
            }
        }
        spans.sort_unstable();
        let mut joined: Vec<Span> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(open) if open.1.checked_add(1) == Some(span.0) => open.1 = span.1,
                _ => joined.push(span),
            }
        }
        for span in joined {
            let one = range(span, v4);
            self.ranges.insert(one.first, one.last);
            self.note(one, 1);
        }
    }

    /// Returns the ranges that lie in a prefix, reach into it or end beside it.
    fn touching(&self, prefix: Prefix) -> Vec<AddressRange> {
        let v4 = prefix.address().is_ipv4();
        let (first, last) = (to_bits(prefix.address()), to_bits(prefix.last()));
        let highest = if v4 { u32::MAX.into() } else { u128::MAX };
        let beside = from_bits(last.saturating_add(1).min(highest), v4);
        let of = |(first, last): (&IpAddr, &IpAddr)| AddressRange {
            first: *first,
            last: *last,
        };
        let before = self.ranges.range(..prefix.address()).next_back().map(of);
        let before = before.filter(|one| {
            one.first.is_ipv4() == v4 && to_bits(one.last).saturating_add(1) >= first
        });
        let inside = self.ranges.range(prefix.address()..=beside).map(of);
        before.into_iter().chain(inside).collect()
    }

    fn note(&mut self, range: AddressRange, change: i8) {
        let total = self.changes.entry(range).or_default();
        *total += change;
        if *total == 0 {
            self.changes.remove(&range);
        }
    }
}

/// Returns the numbers whose innermost span is wanted. The spans are nested or apart, and each span precedes the spans
/// inside it. The first span has all others inside.
fn nested(spans: impl Iterator<Item = (Span, bool)>) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    let mut add = |span: Span, wanted: bool| {
        if !wanted || span.0 > span.1 {
            return;
        }
        match found.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(span.0) => last.1 = span.1,
            _ => found.push(span),
        }
    };
    let mut open: Vec<(Span, bool)> = Vec::new();
    // The first number without a decision. `None` after the last number.
    let mut at = Some(0_u128);
    for (span, wanted) in spans {
        while let Some(((_, last), inner)) = open.pop_if(|((_, last), _)| *last < span.0) {
            if let Some(from) = at {
                add((from, last), inner);
            }
            at = last.checked_add(1);
        }
        if let (Some((_, around)), Some(from)) = (open.last(), at)
            && span.0 > 0
        {
            add((from, span.0 - 1), *around);
        }
        at = Some(span.0);
        open.push((span, wanted));
    }
    while let Some(((_, last), inner)) = open.pop() {
        if let Some(from) = at {
            add((from, last), inner);
        }
        at = last.checked_add(1);
    }
    found
}

fn range((first, last): Span, v4: bool) -> AddressRange {
    AddressRange {
        first: from_bits(first, v4),
        last: from_bits(last, v4),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of(text: &str) -> AddressRange {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        AddressRange {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    fn text(ranges: &[AddressRange]) -> Vec<String> {
        let one = |range: &AddressRange| format!("{}-{}", range.first, range.last);
        ranges.iter().map(one).collect()
    }

    #[test]
    fn the_longest_prefix_decides() {
        let guarded = |guards: &[(Vec<AddressRange>, Vec<AddressRange>)],
                       bypassed: &[Vec<AddressRange>]| {
            let mut own = Destinations::default();
            for (local, remote) in guards {
                own.protect(true, local, remote);
            }
            bypassed.iter().for_each(|remote| own.bypass(true, remote));
            own.ranges()
        };
        let everything = vec![of("0.0.0.0-255.255.255.255")];
        let guards = [
            (vec![of("10.1.0.0-10.1.255.255")], everything),
            (
                Vec::new(),
                vec![of("10.1.2.0-10.1.2.255"), of("fd00::-fd00::ff")],
            ),
        ];
        let bypassed = [vec![of("10.1.2.8-10.1.2.15"), of("192.0.2.0-192.0.2.255")]];
        assert_eq!(
            text(&guarded(&guards, &bypassed)),
            [
                "0.0.0.0-10.0.255.255",
                "10.1.2.0-10.1.2.7",
                "10.1.2.16-10.1.2.255",
                "10.2.0.0-192.0.1.255",
                "192.0.3.0-223.255.255.255",
                "240.0.0.0-255.255.255.254",
                "fd00::-fd00::ff",
            ]
        );
        let whole = [(
            Vec::new(),
            vec![of("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")],
        )];
        assert_eq!(
            text(&guarded(&whole, &[])),
            [
                "::-fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "fec0::-feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
            ]
        );
    }

    #[test]
    fn destinations_come_and_go_with_their_policies() {
        let policies = [
            ("10.1.0.0-10.1.255.255", "0.0.0.0-255.255.255.255"),
            ("10.1.0.0-10.1.255.255", "10.2.0.0-10.2.255.255"),
            ("10.2.3.0-10.2.3.255", "10.2.0.0-10.2.255.255"),
            ("10.1.0.0-10.1.255.255", "10.3.0.0-10.3.0.255"),
            ("10.1.0.0-10.1.255.255", "10.2.255.0-10.3.0.0"),
            ("fd01::-fd01::ff", "fd02::-fd02::ff"),
        ];
        let mut standing: Vec<usize> = Vec::new();
        let mut own = Destinations::default();
        let mut known = BTreeSet::new();
        own.take_changes();
        // Each comes and goes, in two orders, with all others there and without them.
        let steps = (0..6)
            .chain(0..6)
            .chain((0..6).rev())
            .chain([3, 0, 5, 1, 4, 2]);
        for step in steps {
            let come = !standing.contains(&step);
            let (local, remote) = policies[step];
            own.protect(come, &[of(local)], &[of(remote)]);
            match come {
                true => standing.push(step),
                false => standing.retain(|other| *other != step),
            }
            let (gone, come) = own.take_changes();
            assert!(gone.iter().all(|range| known.remove(range)));
            assert!(come.iter().all(|range| known.insert(*range)));
            assert_eq!(own.ranges(), known.iter().copied().collect::<Vec<_>>());
            let mut afresh = Destinations::default();
            for one in &standing {
                let (local, remote) = policies[*one];
                afresh.protect(true, &[of(local)], &[of(remote)]);
            }
            assert_eq!(own.ranges(), afresh.ranges());
        }
        assert!(own.ranges().is_empty());
    }

    #[test]
    fn a_prefix_that_comes_costs_what_lies_inside_it() {
        let work = |peers: u32| {
            let mut own = Destinations::default();
            let local = [of("10.0.0.1")];
            own.protect(true, &local, &[of("0.0.0.0-255.255.255.255")]);
            own.protect(true, &local, &[of("172.16.0.0-172.31.255.255")]);
            let peer = |n: u32| {
                let address = IpAddr::from((0xac10_0000 + 2 * n).to_be_bytes());
                [AddressRange {
                    first: address,
                    last: address,
                }]
            };
            (0..peers).for_each(|n| own.bypass(true, &peer(n)));
            let standing = own.ranges();
            assert!(standing.len() >= peers as usize);
            (0..peers).for_each(|n| own.bypass(false, &peer(n)));
            (0..peers).for_each(|n| own.protect(true, &[], &peer(n)));
            assert!(own.ranges().len() < 10);
            own.work
        };
        let (few, many) = (work(100), work(1000));
        assert!(many <= 11 * few, "{many} prefixes for 1000, {few} for 100");
    }
}
