//! Traffic selectors: the configured form, and the set operations of narrowing (RFC 7296 §2.9).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::{TRAFFIC_SELECTORS_MAX as SELECTORS_MAX, TrafficSelector};

/// Pairs of a local and a remote selector that one child SA may have. Each pair becomes an entry of the SPD.
const PAIRS_MAX: usize = 1024;

/// A traffic selector as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    pub addresses: SelectorAddresses,
    /// The IP protocol. Zero stands for any protocol.
    pub protocol: u8,
    /// The first and the last port. `(0, 65535)` stands for any port.
    pub ports: (u16, u16),
}

impl Selector {
    /// The outer address of its side, with any protocol and port.
    pub const DYNAMIC: Self = Self {
        addresses: SelectorAddresses::Dynamic,
        protocol: 0,
        ports: (0, u16::MAX),
    };

    pub const fn range(from: IpAddr, to: IpAddr) -> Self {
        Self {
            addresses: SelectorAddresses::Range(from, to),
            protocol: 0,
            ports: (0, u16::MAX),
        }
    }
}

impl From<TrafficSelector> for Selector {
    fn from(ts: TrafficSelector) -> Self {
        Self {
            addresses: SelectorAddresses::Range(ts.start, ts.end),
            protocol: ts.protocol,
            ports: (ts.start_port, ts.end_port),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorAddresses {
    /// The outer address of its side.
    Dynamic,
    /// The first and the last address, of one IP version.
    Range(IpAddr, IpAddr),
}

/// The configured selectors. The outer address of their side replaces `dynamic`.
pub(crate) fn resolve(selectors: &[Selector], outer: IpAddr) -> Vec<TrafficSelector> {
    selectors
        .iter()
        .map(|selector| {
            let (start, end) = match selector.addresses {
                SelectorAddresses::Dynamic => (outer, outer),
                SelectorAddresses::Range(start, end) => (start, end),
            };
            TrafficSelector {
                protocol: selector.protocol,
                start_port: selector.ports.0,
                end_port: selector.ports.1,
                start,
                end,
            }
        })
        .take(SELECTORS_MAX)
        .collect()
}

/// The configured selectors that do not depend on the outer address.
pub(crate) fn fixed(selectors: &[Selector]) -> Vec<TrafficSelector> {
    let fixed = |selector: &Selector| match selector.addresses {
        SelectorAddresses::Dynamic => None,
        SelectorAddresses::Range(start, _) => Some((*selector, start)),
    };
    let fixed = selectors.iter().filter_map(fixed);
    fixed
        .flat_map(|(selector, outer)| resolve(&[selector], outer))
        .take(SELECTORS_MAX)
        .collect()
}

/// Selectors for every packet.
pub(crate) fn everything() -> Vec<TrafficSelector> {
    vec![
        TrafficSelector::addresses(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::BROADCAST),
        ),
        TrafficSelector::addresses(
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
        ),
    ]
}

/// The part of the selectors that transport mode can carry: packets of the host at `outer`.
pub(crate) fn of_host(selectors: &[TrafficSelector], outer: IpAddr) -> Vec<TrafficSelector> {
    narrow(selectors, &[TrafficSelector::addresses(outer, outer)])
}

/// The packets that both selectors select.
pub(crate) fn intersect(a: &TrafficSelector, b: &TrafficSelector) -> Option<TrafficSelector> {
    if a.start.is_ipv4() != b.start.is_ipv4() {
        return None;
    }
    let protocol = match (a.protocol, b.protocol) {
        (0, protocol) | (protocol, 0) => protocol,
        (x, y) if x == y => x,
        _ => return None,
    };
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    // OPAQUE (65535 to 0) stands for packets without visible ports. It has packets in common with itself and with
    // "any".
    let (start_port, end_port) = match (a.is_opaque_port(), b.is_opaque_port()) {
        (true, true) => (u16::MAX, 0),
        (true, false) if is_any_port(b) => (u16::MAX, 0),
        (false, true) if is_any_port(a) => (u16::MAX, 0),
        (false, false) => {
            let ports = (a.start_port.max(b.start_port), a.end_port.min(b.end_port));
            if ports.0 > ports.1 {
                return None;
            }
            ports
        }
        _ => return None,
    };
    (start <= end).then_some(TrafficSelector {
        protocol,
        start_port,
        end_port,
        start,
        end,
    })
}

fn is_any_port(selector: &TrafficSelector) -> bool {
    (selector.start_port, selector.end_port) == (0, u16::MAX)
}

/// Says whether `outer` selects all that `inner` selects.
pub(crate) fn contains(outer: &TrafficSelector, inner: &TrafficSelector) -> bool {
    intersect(outer, inner).is_some_and(|common| common == *inner)
}

/// Says whether `outer` selects all that `inner` selects, in one selector or in several that divide the addresses.
pub(crate) fn covered(inner: &TrafficSelector, outer: &[TrafficSelector]) -> bool {
    let of_all_else = |one: &&TrafficSelector| {
        let (start, end) = (inner.start, inner.end);
        contains(
            &TrafficSelector {
                start,
                end,
                ..**one
            },
            inner,
        )
    };
    let mut ranges: Vec<_> = outer
        .iter()
        .filter(|one| one.start.is_ipv4() == inner.start.is_ipv4())
        .filter(of_all_else)
        .map(|one| (number(one.start), number(one.end)))
        .collect();
    ranges.sort_unstable();
    let (mut next, end) = (number(inner.start), number(inner.end));
    for (first, last) in ranges {
        if first > next {
            return false;
        }
        if last >= end {
            return true;
        }
        next = next.max(last.saturating_add(1));
    }
    false
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The part of `proposed` that `own` allows, in the order of the proposal. A selector that another one contains is
/// left out. An empty result means TS_UNACCEPTABLE.
pub(crate) fn narrow(
    proposed: &[TrafficSelector],
    own: &[TrafficSelector],
) -> Vec<TrafficSelector> {
    let mut narrowed: Vec<TrafficSelector> = Vec::new();
    for theirs in proposed {
        for ours in own {
            let Some(common) = intersect(theirs, ours) else {
                continue;
            };
            if narrowed.iter().any(|earlier| contains(earlier, &common)) {
                continue;
            }
            narrowed.retain(|earlier| !contains(&common, earlier));
            if narrowed.len() < SELECTORS_MAX {
                narrowed.push(common);
            }
        }
    }
    narrowed
}

/// Narrows further until there are [`PAIRS_MAX`] pairs at most (RFC 7296 §2.9). The first selectors stay.
pub(crate) fn bound_pairs(local: &mut Vec<TrafficSelector>, remote: &mut Vec<TrafficSelector>) {
    let (short, long) = if local.len() < remote.len() {
        (local, remote)
    } else {
        (remote, local)
    };
    short.truncate(PAIRS_MAX.isqrt());
    long.truncate(PAIRS_MAX / short.len().max(1));
}

/// Puts `specific` in front of the selectors, if one of them contains it (RFC 7296 §2.9).
pub(crate) fn put_first(selectors: &mut Vec<TrafficSelector>, specific: TrafficSelector) {
    if selectors.first() != Some(&specific) && selectors.iter().any(|own| contains(own, &specific))
    {
        selectors.truncate(SELECTORS_MAX - 1);
        selectors.insert(0, specific);
    }
}

/// Puts the selector of a packet in front, and then the one that contains it: strongSwan chooses a child by the selectors
/// that come first.
pub(crate) fn put_packet_first(selectors: &mut Vec<TrafficSelector>, packet: TrafficSelector) {
    if let Some(at) = selectors.iter().position(|own| contains(own, &packet)) {
        selectors[..=at].rotate_right(1);
    }
    put_first(selectors, packet);
}

/// Puts those of the selectors in front that others here contain, in their order.
pub(crate) fn put_all_first(selectors: &mut Vec<TrafficSelector>, specific: &[TrafficSelector]) {
    for one in specific.iter().rev() {
        match selectors.iter().position(|own| own == one) {
            Some(at) => selectors[..=at].rotate_right(1),
            None => put_first(selectors, *one),
        }
    }
}

/// Says whether a responder has only narrowed what was proposed, as it must.
pub(crate) fn is_narrowing(answer: &[TrafficSelector], proposed: &[TrafficSelector]) -> bool {
    !answer.is_empty()
        && answer
            .iter()
            .all(|theirs| proposed.iter().any(|ours| contains(ours, theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(start: &str, end: &str) -> TrafficSelector {
        TrafficSelector::addresses(start.parse().unwrap(), end.parse().unwrap())
    }

    #[test]
    fn several_selectors_cover_one_that_they_divide() {
        let whole = ts("10.1.0.0", "10.1.255.255");
        let (low, high) = (
            ts("10.1.0.0", "10.1.127.255"),
            ts("10.1.128.0", "10.1.255.255"),
        );
        assert!(covered(&whole, &[whole]) && covered(&low, &[whole]));
        assert!(covered(&whole, &[high, low]));
        assert!(covered(&whole, &[ts("10.1.100.0", "10.2.0.0"), low]));
        assert!(!covered(&whole, &[low]) && !covered(&whole, &[high]) && !covered(&whole, &[]));
        assert!(!covered(&whole, &[low, ts("10.1.128.1", "10.1.255.255")]));
        assert!(!covered(&whole, &[low, tcp(high, 80)]));
        assert!(covered(&tcp(whole, 80), &[low, tcp(high, 80)]));
        let all = ts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert!(covered(&all, &[all]) && !covered(&whole, &[all]));
    }

    #[test]
    fn the_selectors_of_an_sa_come_first() {
        let (whole, part) = (
            ts("10.0.0.0", "10.255.255.255"),
            ts("10.1.0.0", "10.1.255.255"),
        );
        let other = ts("192.0.2.0", "192.0.2.255");
        let mut proposed = vec![other, whole];
        put_all_first(&mut proposed, &[part, ts("172.16.0.0", "172.16.0.1")]);
        assert_eq!(proposed, [part, other, whole]);
        let same = proposed.clone();
        put_all_first(&mut proposed, &same);
        assert_eq!(proposed, same);
    }

    fn tcp(mut ts: TrafficSelector, port: u16) -> TrafficSelector {
        (ts.protocol, ts.start_port, ts.end_port) = (6, port, port);
        ts
    }

    // RFC 7296 R113
    #[test]
    fn narrowing_keeps_the_common_part() {
        let any = ts("0.0.0.0", "255.255.255.255");
        let net = ts("10.1.0.0", "10.1.255.255");
        let host = ts("10.1.2.3", "10.1.2.3");
        assert_eq!(narrow(&[any], &[net]), [net]);
        assert_eq!(narrow(&[net], &[any]), [net]);
        // The selector of the packet comes first. The selector of the network contains it.
        assert_eq!(narrow(&[host, net], &[any]), [net]);
        assert_eq!(narrow(&[tcp(any, 80)], &[net]), [tcp(net, 80)]);
        assert!(narrow(&[tcp(any, 80)], &[tcp(net, 443)]).is_empty());
        let mut udp = tcp(net, 80);
        udp.protocol = 17;
        assert!(narrow(&[tcp(any, 80)], &[udp]).is_empty());
        assert!(narrow(&[ts("::", "::ffff")], &[any]).is_empty());
        assert!(narrow(&[ts("10.2.0.0", "10.2.0.255")], &[net]).is_empty());
    }

    #[test]
    fn an_answer_may_not_widen() {
        let net = ts("10.1.0.0", "10.1.255.255");
        let host = ts("10.1.2.3", "10.1.2.3");
        assert!(is_narrowing(&[host], &[net]));
        assert!(!is_narrowing(&[net], &[host]));
        assert!(!is_narrowing(&[host, ts("10.2.0.0", "10.2.0.1")], &[net]));
        assert!(!is_narrowing(&[], &[net]));
    }

    // RFC 7296 R251
    #[test]
    fn opaque_ports_meet_any_ports_only() {
        let mut opaque = ts("10.0.0.0", "10.0.0.255");
        (opaque.start_port, opaque.end_port) = (u16::MAX, 0);
        let any = ts("10.0.0.0", "10.0.0.255");
        assert_eq!(intersect(&opaque, &any), Some(opaque));
        assert_eq!(intersect(&opaque, &opaque), Some(opaque));
        assert_eq!(intersect(&opaque, &tcp(any, 80)), None);
    }

    // RFC 7296 R109, R115
    #[test]
    fn a_packet_is_put_in_front_of_what_contains_it() {
        let wide = ts("10.0.0.0", "10.0.255.255");
        let packet = TrafficSelector {
            protocol: 17,
            start_port: 53,
            end_port: 53,
            ..ts("10.0.0.9", "10.0.0.9")
        };
        let mut list = vec![wide];
        put_first(&mut list, packet);
        put_first(&mut list, packet);
        assert_eq!(list, [packet, wide]);
        put_first(&mut list, ts("10.1.0.0", "10.1.0.0"));
        assert_eq!(list.len(), 2, "what is not ours is not proposed");
        let (other, around) = (ts("10.9.0.0", "10.9.0.255"), ts("10.0.0.0", "10.0.0.255"));
        let mut list = vec![other, around, wide];
        put_packet_first(&mut list, packet);
        put_packet_first(&mut list, packet);
        assert_eq!(list, [packet, around, other, wide]);
        let mut full = vec![wide; SELECTORS_MAX];
        put_first(&mut full, packet);
        assert_eq!((full.len(), full[0]), (SELECTORS_MAX, packet));
    }

    // RFC 7296 R111
    #[test]
    fn a_child_keeps_a_bounded_number_of_pairs() {
        let hosts = |count: u8| -> Vec<_> {
            let host = |last| ts(&format!("10.0.0.{last}"), &format!("10.0.0.{last}"));
            (0..count).map(host).collect()
        };
        for (local, remote, kept) in [
            (255, 1, (255, 1)),
            (255, 4, (255, 4)),
            (255, 5, (204, 5)),
            (5, 255, (5, 204)),
            (255, 255, (32, 32)),
        ] {
            let (mut local, mut remote) = (hosts(local), hosts(remote));
            let first = (local[0], remote[0]);
            bound_pairs(&mut local, &mut remote);
            assert_eq!((local.len(), remote.len()), kept);
            assert_eq!((local[0], remote[0]), first);
        }
    }
}
