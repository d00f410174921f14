//! Turns selectors into ternary entries, of which the core's policy tables consist.

use std::net::IpAddr;

use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector};

use crate::regs::policy_entry as word;

const KEY_WORDS: usize = word::CARE_WORDS;

/// The action for a packet that an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreAction {
    Discard,
    Bypass,
    /// Outbound: the SA in this row protects the packet. Inbound: only an SA of this group may carry it.
    Protect(u16),
    ToHost,
}

impl CoreAction {
    fn result(self) -> u32 {
        match self {
            Self::Discard => 0,
            Self::Bypass => 1,
            Self::Protect(sa) => 2 | u32::from(sa) << word::RESULT_SA_SHIFT & word::RESULT_SA_MASK,
            Self::ToHost => 3,
        }
    }
}

/// An entry: the bits of a packet's key that are compared, and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TernaryEntry {
    pub(crate) value: [u32; KEY_WORDS],
    pub(crate) care: [u32; KEY_WORDS],
    pub(crate) action: CoreAction,
}

impl TernaryEntry {
    /// An entry that matches every packet.
    pub fn any(action: CoreAction) -> Self {
        Self {
            value: [0; KEY_WORDS],
            care: [0; KEY_WORDS],
            action,
        }
    }

    /// Limits the entry to packets that came through an SA, or to those that did not. This is for the inbound lane.
    #[must_use]
    pub fn tunnelled(mut self, tunnelled: bool) -> Self {
        self.set(PACKET, word::PACKET_TUNNELLED, tunnelled);
        self
    }

    /// Returns true if both entries match the same packets.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.value, self.care) == (other.value, other.care)
    }

    /// The words of the entry's row up to the committing one. `generation` is that of the SA that the entry names.
    pub(crate) fn words(&self, generation: u32) -> impl Iterator<Item = u32> {
        let key = self.value.into_iter().chain(self.care);
        key.chain([self.action.result() | generation << word::RESULT_GENERATION_SHIFT])
    }

    fn compare(&mut self, index: usize, mask: u32, value: u32) {
        if let (Some(v), Some(c)) = (self.value.get_mut(index), self.care.get_mut(index)) {
            *v = *v & !mask | value & mask;
            *c |= mask;
        }
    }

    fn set(&mut self, index: usize, bit: u32, value: bool) {
        self.compare(index, bit, if value { bit } else { 0 });
    }

    fn address(&mut self, first: usize, prefix: Prefix) {
        for word in 0..4 {
            let part = |bits: u128| (bits >> (32 * word)) as u32;
            self.compare(first + word, part(prefix.mask), part(prefix.value));
        }
    }
}

const PORTS: usize = word::PORTS as usize / 4;
const PACKET: usize = word::PACKET as usize / 4;
const REMOTE: usize = word::REMOTE as usize / 4;
const LOCAL: usize = word::LOCAL as usize / 4;

/// Returns entries that together match what the selector matches, or `None` if that takes more than `most` entries. A
/// range becomes prefixes. Each prefix of one dimension is combined with each of the others, so the number may reach
/// millions.
pub fn entries(selector: &Selector, action: CoreAction, most: usize) -> Option<Vec<TernaryEntry>> {
    let mut base = TernaryEntry::any(action);
    let v6 = selector.local.first().is_ipv6();
    base.set(PACKET, word::PACKET_IPV6, v6);
    match selector.protocol {
        NextLayer::Any => {}
        NextLayer::Opaque => base.set(PACKET, word::PACKET_PROTOCOL_KNOWN, false),
        NextLayer::Is(number) => {
            base.set(PACKET, word::PACKET_PROTOCOL_KNOWN, true);
            base.compare(PACKET, word::PACKET_PROTOCOL_MASK, number.into());
        }
    }
    let sides = [selector.local_ports, selector.remote_ports];
    if sides.contains(&PortRange::Opaque) {
        if sides
            .iter()
            .any(|side| matches!(side, PortRange::Range(..)))
        {
            // A packet's ports are either seen or not, so nothing matches both ranges.
            return Some(Vec::new());
        }
        base.set(PACKET, word::PACKET_PORTS_KNOWN, false);
    } else if sides != [PortRange::Any; 2] {
        base.set(PACKET, word::PACKET_PORTS_KNOWN, true);
    }
    let port_prefixes = |range| match range {
        PortRange::Range(first, last) => prefixes(first.into(), last.into(), 16),
        PortRange::Any | PortRange::Opaque => Vec::new(),
    };
    let ports = [
        (port_prefixes(selector.local_ports), word::PORTS_LOCAL_SHIFT),
        (
            port_prefixes(selector.remote_ports),
            word::PORTS_REMOTE_SHIFT,
        ),
    ];
    let addresses = [
        (address_prefixes(&selector.local), LOCAL),
        (address_prefixes(&selector.remote), REMOTE),
    ];
    let counts = (ports.iter().map(|(found, _)| found.len().max(1)))
        .chain(addresses.iter().map(|(found, _)| found.len()));
    if counts.fold(1, usize::saturating_mul) > most {
        return None;
    }
    let mut entries = vec![base];
    for (prefixes, shift) in ports.iter().filter(|(prefixes, _)| !prefixes.is_empty()) {
        entries = crossed(&entries, prefixes, |entry, prefix| {
            let (mask, value) = (prefix.mask as u32, prefix.value as u32);
            entry.compare(PORTS, mask << shift, value << shift);
        });
    }
    for (prefixes, first) in &addresses {
        entries = crossed(&entries, prefixes, |entry, prefix| {
            entry.address(*first, prefix);
        });
    }
    Some(entries)
}

/// Does the same as [`entries`] for packets that came through an SA.
pub fn tunnelled(
    selector: &Selector,
    action: CoreAction,
    most: usize,
) -> Option<Vec<TernaryEntry>> {
    let found = entries(selector, action, most)?.into_iter();
    Some(found.map(|entry| entry.tunnelled(true)).collect())
}

fn crossed(
    entries: &[TernaryEntry],
    prefixes: &[Prefix],
    apply: impl Fn(&mut TernaryEntry, Prefix),
) -> Vec<TernaryEntry> {
    let pairs = entries
        .iter()
        .flat_map(|entry| prefixes.iter().map(move |prefix| (*entry, *prefix)));
    pairs
        .map(|(mut entry, prefix)| {
            apply(&mut entry, prefix);
            entry
        })
        .collect()
}

/// The compared bits of a number, and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    value: u128,
    mask: u128,
}

fn address_prefixes(range: &AddressRange) -> Vec<Prefix> {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let bits = if range.first().is_ipv4() { 32 } else { 128 };
    prefixes(number(range.first()), number(range.last()), bits)
}

/// Returns the fewest prefixes that make up an inclusive range of numbers of `bits` bits.
fn prefixes(first: u128, last: u128, bits: u32) -> Vec<Prefix> {
    let all = u128::MAX >> (128 - bits);
    let mut found = Vec::new();
    let mut at = first;
    loop {
        // Finds the largest block that begins here and does not exceed the end.
        let mut host = 0;
        while host < all && at & (host << 1 | 1) == 0 && at | (host << 1 | 1) <= last {
            host = host << 1 | 1;
        }
        found.push(Prefix {
            value: at,
            mask: all & !host,
        });
        match (at | host).checked_add(1) {
            Some(next) if next <= last => at = next,
            _ => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esplanade_ipsec::selector::Flow;

    /// Compares as the core does.
    fn matches(entry: &TernaryEntry, key: &[u32; KEY_WORDS]) -> bool {
        (0..KEY_WORDS).all(|i| (key[i] ^ entry.value[i]) & entry.care[i] == 0)
    }

    /// Makes a packet's key as the core sees it. The layout is written out again from the table of the core's
    /// interface.
    fn key(flow: &Flow) -> [u32; KEY_WORDS] {
        let mut key = 0u128;
        if let Some((local, remote)) = flow.ports {
            key |= u128::from(remote) | u128::from(local) << 16 | 1 << 40;
        }
        if let Some(protocol) = flow.protocol {
            key |= u128::from(protocol) << 32 | 1 << 41;
        }
        key |= u128::from(flow.local.is_ipv6()) << 42;
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_bits().into(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let mut words = [0; KEY_WORDS];
        let (remote, local) = (bits(flow.remote), bits(flow.local));
        for (i, word) in words.iter_mut().enumerate() {
            *word = match i {
                0..2 => (key >> (32 * i)) as u32,
                2..6 => (remote >> (32 * (i - 2))) as u32,
                _ => (local >> (32 * (i - 6))) as u32,
            };
        }
        words
    }

    fn address(v6: bool, low: u8) -> IpAddr {
        match v6 {
            false => [10, 0, 0, low].into(),
            true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, low.into()].into(),
        }
    }

    #[test]
    fn ranges_are_made_of_prefixes() {
        for first in 0..40u128 {
            for last in first..64 {
                let found = prefixes(first, last, 6);
                for number in 0..64 {
                    let hits = found.iter().filter(|p| (number ^ p.value) & p.mask == 0);
                    let expected = usize::from((first..=last).contains(&number));
                    assert_eq!(hits.count(), expected, "{first}..={last}: {number}");
                }
                assert!(found.len() <= 10);
            }
        }
        assert_eq!(prefixes(0, u128::MAX, 128), [Prefix { value: 0, mask: 0 }]);
        assert_eq!(prefixes(7, 7, 16)[0].mask, 0xffff);
        assert_eq!(prefixes(1, u128::MAX, 128).len(), 128);
    }

    #[test]
    fn entries_match_what_the_selector_matches() {
        let ports = [
            PortRange::Any,
            PortRange::Opaque,
            PortRange::Range(0, u16::MAX),
            PortRange::Range(5, 5),
            PortRange::Range(3, 9),
        ];
        let protocols = [
            NextLayer::Any,
            NextLayer::Opaque,
            NextLayer::Is(6),
            NextLayer::Is(0),
        ];
        for v6 in [false, true] {
            let range = |first, last| {
                AddressRange::new(address(v6, first), address(v6, last)).expect("in order")
            };
            for (local_ports, remote_ports) in ports
                .iter()
                .flat_map(|l| ports.iter().map(move |r| (*l, *r)))
            {
                for protocol in protocols {
                    let selector = Selector {
                        local: range(3, 6),
                        remote: range(8, 8),
                        protocol,
                        local_ports,
                        remote_ports,
                    };
                    check(&selector);
                }
            }
        }
    }

    fn check(selector: &Selector) {
        let entries = entries(selector, CoreAction::Bypass, usize::MAX).expect("any number");
        for v6 in [false, true] {
            for (local, remote) in [(3, 8), (6, 8), (7, 8), (2, 8), (4, 9)] {
                for protocol in [None, Some(0), Some(6), Some(17)] {
                    for ports in [
                        None,
                        Some((0, 0)),
                        Some((5, 5)),
                        Some((3, 9)),
                        Some((10, 4)),
                    ] {
                        let flow = Flow {
                            protocol,
                            ..Flow::new(address(v6, local), address(v6, remote), 0, ports)
                        };
                        let key = key(&flow);
                        let found = entries.iter().any(|entry| matches(entry, &key));
                        assert_eq!(found, selector.matches(&flow), "{selector:?} {flow:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_takes_too_many_entries_is_not_made() {
        let range = |v6| AddressRange::new(address(v6, 1), address(v6, 254)).expect("in order");
        let ports = PortRange::Range(1, u16::MAX - 1);
        for v6 in [false, true] {
            let mut selector = Selector::between(range(v6), range(v6));
            let all = entries(&selector, CoreAction::Discard, 14 * 14).expect("just enough");
            assert_eq!(all.len(), 14 * 14);
            assert_eq!(entries(&selector, CoreAction::Discard, 14 * 14 - 1), None);
            // Each port range has 30 prefixes.
            (selector.local_ports, selector.remote_ports) = (ports, ports);
            let most = 30 * 30 * 14 * 14;
            assert_eq!(entries(&selector, CoreAction::Discard, most - 1), None);
            assert!(tunnelled(&selector, CoreAction::Discard, most).is_some());
        }
    }

    #[test]
    fn inbound_entries_are_for_what_an_sa_carried() {
        let range = |low| AddressRange::host(address(false, low));
        let selector = Selector::between(range(1), range(2));
        let out = entries(&selector, CoreAction::Protect(9), 1).expect("one");
        let inbound = tunnelled(&selector, CoreAction::Protect(9), 1).expect("one");
        assert_eq!((out.len(), inbound.len()), (1, 1));
        let flow = Flow::new(address(false, 1), address(false, 2), 1, None);
        let mut plain = key(&flow);
        assert!(matches(&out[0], &plain) && !matches(&inbound[0], &plain));
        plain[1] |= 1 << 11;
        assert!(matches(&inbound[0], &plain));
        assert_eq!(inbound[0].words(5).last(), Some(2 | 9 << 2 | 5 << 12));
    }
}
