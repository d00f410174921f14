//! Finds the first match in bounded time: the SPD's rules compiled to bitmaps.
//!
//! Every dimension (remote and local address, ports, protocol, direction) is cut into intervals at the boundaries of
//! all rules. For each interval the set of the rules that cover it is kept. A lookup finds the interval of each
//! field. The first rule in the intersection of the sets is the answer:
//!
//! 1. A table of slots over the boundaries gives the interval ([`ranks`]). It takes two dependent loads unless the
//!    boundaries are crowded.
//! 2. A set of up to eight rules is a list. Its rules are compared with the packet, and the lookup ends.
//! 3. Other sets are bitmaps ([`sets`]), cut into lines of 512 rules. Neighbouring intervals share equal lines. A
//!    table says where the lines are and which of their words are not zero. Only words that no dimension rules out
//!    are read, lowest rule first ("aggregated bit vector", Baboescu and Varghese, 2001). The search begins with the
//!    highest of the sets' first rules. That rule is compared with the packet before bitmaps far down the list are
//!    read.
//! 4. The sets of the addresses come first. Up to sixteen rules that are in both sets are compared with the packet.
//!    Only if none of them matches are the other dimensions asked.
//!
//! The cost of a hostile set of n rules is bounded. A lookup reads n / 64 words per dimension. Memory is at most 1.4
//! kB per rule and dimension, and 340 bytes with 10,000 rules. The reason is that a rule has two boundaries. Each
//! boundary changes one line of 64 bytes, and has a table of n / 512 places with 4 bytes each. Compiling sorts the
//! boundaries and writes that memory once. More than 65,536 rules make several pages, which are searched one after
//! the other.

mod page;
mod ranks;
mod sets;

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::entry_set::EntrySet;
use super::{Action, PolicyDirection, SpdEntry};
use crate::selector::{Flow, NextLayer, PortRange, Selector};
use page::{PORT_HIDDEN, PROTOCOL_HIDDEN, Page, Query, Rule};
use ranks::DimensionValue;
use sets::PAGE_RULES;

/// The entry that matched, and the number of its selector that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) entry: u32,
    pub(super) selector: u16,
    /// True if the entry's action is Bypass.
    pub(super) bypass: bool,
}

/// The first entry that might match a packet, as far as its fields can be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Possible {
    pub(super) entry: u32,
    /// True if the hidden fields make no difference.
    pub(super) certain: bool,
}

impl Possible {
    fn of<V: DimensionValue>(rule: &Rule<V>, q: &Query<V>) -> Self {
        Self {
            entry: rule.entry,
            certain: rule.ignores_hidden(q),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Classifier {
    common: Tables,
    /// The tables of the interfaces other than 0.
    interfaces: BTreeMap<u32, Tables>,
}

/// The rules of one interface. Each IP version almost always has one page.
#[derive(Debug, Default)]
struct Tables {
    v4: Vec<Page<u32>>,
    v6: Vec<Page<u128>>,
}

#[derive(Default)]
struct Rules {
    v4: Vec<Rule<u32>>,
    v6: Vec<Rule<u128>>,
}

impl Classifier {
    pub(super) fn new(entries: &[SpdEntry]) -> Self {
        let mut rules: BTreeMap<u32, Rules> = BTreeMap::new();
        for (entry, index) in entries.iter().zip(0..) {
            let rules = rules.entry(entry.interface).or_default();
            for (selector, number) in entry.selectors.as_slice().iter().zip(0..) {
                rules.add(entry, selector, index, number);
            }
        }
        let mut interfaces: BTreeMap<u32, Tables> = rules
            .into_iter()
            .map(|(interface, rules)| (interface, Tables::new(rules)))
            .collect();
        Self {
            common: interfaces.remove(&0).unwrap_or_default(),
            interfaces,
        }
    }

    fn tables(&self, interface: u32) -> Option<&Tables> {
        match interface {
            0 => Some(&self.common),
            other => self.interfaces.get(&other),
        }
    }

    /// Finds the first selector of the first entry that matches and is not `removed`.
    #[inline]
    pub(super) fn find(&self, flow: &Flow, inbound: bool, removed: &EntrySet) -> Option<Match> {
        let tables = self.tables(flow.interface)?;
        match (flow.local, flow.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                tables
                    .v4
                    .iter()
                    .find_map(|page| page.find(&q, removed))
                    .map(Match::of)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                tables
                    .v6
                    .iter()
                    .find_map(|page| page.find(&q, removed))
                    .map(Match::of)
            }
            _ => None,
        }
    }

    /// Finds the first selector that would match with some ports, and with some protocol if that is hidden. Entries that
    /// are `removed` are skipped, and without `bypass` those whose action is Bypass.
    pub(super) fn first_possible(
        &self,
        flow: &Flow,
        inbound: bool,
        bypass: bool,
        removed: &EntrySet,
    ) -> Option<Possible> {
        let tables = self.tables(flow.interface)?;
        match (flow.local, flow.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                let mut pages = tables.v4.iter();
                let rule = pages.find_map(|page| page.first_possible(&q, bypass, removed))?;
                Some(Possible::of(rule, &q))
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                let mut pages = tables.v6.iter();
                let rule = pages.find_map(|page| page.first_possible(&q, bypass, removed))?;
                Some(Possible::of(rule, &q))
            }
            _ => None,
        }
    }

    /// The number of bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let tables = std::iter::once(&self.common).chain(self.interfaces.values());
        tables.map(Tables::memory).sum()
    }
}

impl Match {
    fn of<V>(rule: &Rule<V>) -> Self {
        Self {
            entry: rule.entry,
            selector: rule.selector,
            bypass: rule.bypass,
        }
    }
}

impl Tables {
    fn new(rules: Rules) -> Self {
        fn pages<V: DimensionValue>(rules: &[Rule<V>]) -> Vec<Page<V>> {
            rules
                .chunks(PAGE_RULES)
                .map(|rules| Page::new(rules.to_vec()))
                .collect()
        }
        Self {
            v4: pages(&rules.v4),
            v6: pages(&rules.v6),
        }
    }

    fn memory(&self) -> usize {
        let v4 = self.v4.iter().map(Page::memory);
        v4.chain(self.v6.iter().map(Page::memory)).sum()
    }
}

impl Rules {
    /// Adds the rule of a selector. Selectors that select nothing are left out.
    fn add(&mut self, entry: &SpdEntry, selector: &Selector, index: u32, number: u16) {
        let (local, remote) = (&selector.local, &selector.remote);
        if let (Some(local), Some(remote)) = (local.v4(), remote.v4()) {
            self.v4
                .extend(rule(entry, selector, (local, remote), index, number));
        } else if let (Some(local), Some(remote)) = (local.v6(), remote.v6()) {
            self.v6
                .extend(rule(entry, selector, (local, remote), index, number));
        }
    }
}

fn rule<V>(
    entry: &SpdEntry,
    selector: &Selector,
    (local, remote): ((V, V), (V, V)),
    index: u32,
    number: u16,
) -> Option<Rule<V>> {
    Some(Rule {
        local,
        remote,
        protocol: match selector.protocol {
            NextLayer::Any => (0, PROTOCOL_HIDDEN),
            NextLayer::Opaque => (PROTOCOL_HIDDEN, PROTOCOL_HIDDEN),
            NextLayer::Is(number) => (number.into(), number.into()),
        },
        local_ports: ports(selector.local_ports)?,
        remote_ports: ports(selector.remote_ports)?,
        direction: match entry.direction {
            PolicyDirection::Both => (0, 1),
            PolicyDirection::Outbound => (0, 0),
            PolicyDirection::Inbound => (1, 1),
        },
        bypass: matches!(entry.action, Action::Bypass),
        entry: index,
        selector: number,
    })
}

fn ports(range: PortRange) -> Option<(u32, u32)> {
    match range {
        PortRange::Any => Some((0, PORT_HIDDEN)),
        PortRange::Opaque => Some((PORT_HIDDEN, PORT_HIDDEN)),
        PortRange::Range(first, last) if first <= last => Some((first.into(), last.into())),
        PortRange::Range(..) => None,
    }
}

fn query<V>(flow: &Flow, local: V, remote: V, inbound: bool) -> Query<V> {
    let (local_port, remote_port) = match flow.ports {
        Some((local, remote)) => (local.into(), remote.into()),
        None => (PORT_HIDDEN, PORT_HIDDEN),
    };
    Query {
        local,
        remote,
        protocol: flow.protocol.map_or(PROTOCOL_HIDDEN, u32::from),
        local_port,
        remote_port,
        direction: inbound.into(),
    }
}
