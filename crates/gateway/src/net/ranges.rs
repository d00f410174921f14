//! Computes with sets of addresses and of address pairs, as lists of ranges that do not overlap.

use std::collections::BTreeMap;

use super::prefix::{from_bits, to_bits};
use super::routing::{shadowed, wanted};
use super::{AddressRange, Prefix};

/// An inclusive range of numbers.
type Span = (u128, u128);

/// Destinations that a wider prefix never leads into a TUN device: multicast, broadcast and
/// link-local addresses. Their packets end at the next router.
const OF_THE_LINK: [&str; 4] = ["224.0.0.0", "255.255.255.255", "ff00::", "fe80::"];
const OF_THE_LINK_LENGTHS: [u8; 4] = [4, 32, 8, 10];

/// Returns the destinations whose longest prefix leads into the TUN device. `guards` are the local
/// and the remote ends of policies that protect. `bypassed` are the remote ends of policies that
/// bypass.
pub fn guarded(
    guards: &[(Vec<AddressRange>, Vec<AddressRange>)],
    bypassed: &[Vec<AddressRange>],
) -> Vec<AddressRange> {
    let mut prefixes: BTreeMap<Prefix, bool> = BTreeMap::new();
    for (address, length) in OF_THE_LINK.iter().zip(OF_THE_LINK_LENGTHS) {
        let address = address.parse().ok();
        let prefix = address.and_then(|address| Prefix::new(address, length));
        prefixes.extend(prefix.map(|prefix| (prefix, false)));
    }
    let out = guards
        .iter()
        .flat_map(|(local, remote)| shadowed(local, remote));
    prefixes.extend(out.map(|prefix| (prefix, false)));
    let out = bypassed.iter().flat_map(|remote| wanted(remote));
    prefixes.extend(out.map(|prefix| (prefix, false)));
    let into = guards.iter().flat_map(|(_, remote)| wanted(remote));
    prefixes.extend(into.map(|prefix| (prefix, true)));
    // In this order, a prefix precedes the prefixes inside it.
    let spans = |v4: bool| {
        let of_family = prefixes
            .iter()
            .filter(move |(one, _)| one.address().is_ipv4() == v4);
        let span = |(prefix, into): (&Prefix, &bool)| {
            ((to_bits(prefix.address()), to_bits(prefix.last())), *into)
        };
        nested(of_family.map(span))
            .into_iter()
            .map(move |span| range(span, v4))
            .collect::<Vec<_>>()
    };
    [spans(true), spans(false)].concat()
}

/// Returns the numbers whose innermost span is wanted. The spans are nested or apart, and each span
/// precedes the spans inside it.
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
    let close = |((_, last), wanted): (Span, bool),
                 at: &mut Option<u128>,
                 add: &mut dyn FnMut(Span, bool)| {
        if let Some(from) = *at {
            add((from, last), wanted);
        }
        *at = last.checked_add(1);
    };
    for (span, wanted) in spans {
        while let Some(top) = open.pop_if(|((_, last), _)| *last < span.0) {
            close(top, &mut at, &mut add);
        }
        if let (Some((_, around)), Some(from)) = (open.last(), at)
            && span.0 > 0
        {
            add((from, span.0 - 1), *around);
        }
        at = Some(span.0);
        open.push((span, wanted));
    }
    while let Some(top) = open.pop() {
        close(top, &mut at, &mut add);
    }
    found
}

/// Splits pairs of addresses of one family into rectangles that do not overlap and cover the same
/// pairs. Returns `None` if there are more than `most` rectangles, or no pairs.
pub fn disjoint(
    pairs: &[(AddressRange, AddressRange)],
    most: usize,
) -> Option<Vec<(AddressRange, AddressRange)>> {
    let v4 = pairs.first()?.0.first.is_ipv4();
    let span = |range: &AddressRange| (to_bits(range.first), to_bits(range.last));
    let mut rectangles: Vec<(Span, Span)> =
        (pairs.iter()).map(|(a, b)| (span(a), span(b))).collect();
    rectangles.sort_unstable();
    rectangles.dedup();
    let mut edges: Vec<u128> = (rectangles.iter())
        .flat_map(|((first, last), _)| [Some(*first), last.checked_add(1)])
        .flatten()
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut found: Vec<(Span, Span)> = Vec::new();
    let mut active: Vec<(Span, Span)> = Vec::new();
    let mut coming = rectangles.into_iter().peekable();
    for (index, edge) in edges.iter().enumerate() {
        active.retain(|((_, last), _)| last >= edge);
        while let Some(next) = coming.next_if(|((first, _), _)| first == edge) {
            active.push(next);
        }
        let last = edges.get(index + 1).map_or(u128::MAX, |next| next - 1);
        let last = active
            .iter()
            .map(|((_, end), _)| *end)
            .fold(last, u128::min);
        let mut others: Vec<Span> = active.iter().map(|(_, other)| *other).collect();
        others.sort_unstable();
        let mut merged: Vec<Span> = Vec::new();
        for other in others {
            match merged.last_mut() {
                Some(before) if other.0 <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(other.1);
                }
                _ => merged.push(other),
            }
        }
        found.extend(merged.into_iter().map(|other| ((*edge, last), other)));
        if found.len() > most {
            return None;
        }
    }
    let back = |(a, b)| (range(a, v4), range(b, v4));
    Some(found.into_iter().map(back).collect())
}

fn range((first, last): Span, v4: bool) -> AddressRange {
    AddressRange {
        first: from_bits(first, v4),
        last: from_bits(last, v4),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

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
    fn rectangles_cover_the_same_and_do_not_overlap() {
        let spans = [(0_u32, 9), (3, 5), (5, 12), (20, 20), (0, 3)];
        let range = |(first, last): (u32, u32)| AddressRange {
            first: Ipv4Addr::from(first).into(),
            last: Ipv4Addr::from(last).into(),
        };
        let pairs: Vec<_> = (spans.iter().enumerate())
            .map(|(index, span)| (range(*span), range(spans[(index * 3 + 1) % spans.len()])))
            .collect();
        let cut = disjoint(&pairs, 1000).unwrap();
        let holding = |list: &[(AddressRange, AddressRange)], a: u32, b: u32| {
            let (a, b) = (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into());
            let within =
                |range: &AddressRange, one: IpAddr| range.first <= one && one <= range.last;
            list.iter()
                .filter(|(x, y)| within(x, a) && within(y, b))
                .count()
        };
        for a in 0..24 {
            for b in 0..24 {
                let wanted = usize::from(holding(&pairs, a, b) > 0);
                assert_eq!(holding(&cut, a, b), wanted, "{a} {b}");
            }
        }
        assert!(disjoint(&pairs, 2).is_none());
    }
}
