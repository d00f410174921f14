//! First match in bounded time: the SPD's rules compiled to bitmaps.
//!
//! Every dimension (remote and local address, ports, protocol, direction) is cut at the boundaries of all rules into
//! intervals. For each interval the set of the rules that cover it is kept. A lookup finds the interval of each field;
//! the first rule in the intersection of the sets is the answer:
//!
//! 1. The interval comes from a table of slots over the boundaries ([`ranks`]): two dependent loads unless the
//!    boundaries are crowded.
//! 2. A set of up to eight rules is a list: those rules are compared with the packet and the lookup is done.
//! 3. Other sets are bitmaps ([`sets`]), cut into lines of 512 rules that neighbouring intervals share. A table says where
//!    the lines are and which of their words are not zero; only words that no dimension rules out are read, lowest
//!    rule first ("aggregated bit vector", Baboescu and Varghese, 2001). No line before the first rule of any of the
//!    sets is looked at, and that rule is compared with the packet before bitmaps are read far down the list.
//! 4. The sets of the addresses come first, and up to sixteen rules that are in both are compared with the packet. Only
//!    if none of them matches are the other dimensions asked.
//!
//! What a hostile set of n rules can cost: a lookup reads n / 64 words a dimension. Memory is at most 1.4 kB a rule and
//! dimension, 340 bytes with 10,000 rules: a rule has two boundaries, each changes one line of 64 bytes and has a table of
//! n / 512 places with 4 bytes. Compiling sorts the boundaries and writes that memory once. Beyond 65,536 rules there are
//! several pages, which are searched one after the other.

mod page;
mod ranks;
mod sets;

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Action, Entry, PolicyDirection};
use crate::selector::{Flow, NextLayer, PortRange, Selector};
use page::{PORT_HIDDEN, PROTOCOL_HIDDEN, Page, Query, Rule};
use ranks::Value;
use sets::PAGE_RULES;

/// The entry that matched and which of its selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) entry: u32,
    pub(super) selector: u16,
    /// The entry's action is Bypass.
    pub(super) bypass: bool,
}

/// An entry that a packet may be for, as far as can be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Possible {
    pub(super) entry: u32,
    /// What cannot be seen makes no difference.
    pub(super) certain: bool,
}

impl Possible {
    fn of<V: Value>(rule: &Rule<V>, q: &Query<V>) -> Self {
        Self {
            entry: rule.entry,
            certain: rule.ignores_hidden(q),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Classifier {
    common: Tables,
    /// Of the interfaces other than 0.
    interfaces: BTreeMap<u32, Tables>,
}

/// The rules of one interface. Almost always one page each.
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
    pub(super) fn new(entries: &[Entry]) -> Self {
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

    /// The first selector of the first entry that matches.
    pub(super) fn find(&self, flow: &Flow, inbound: bool) -> Option<Match> {
        let tables = self.tables(flow.interface)?;
        match (flow.local, flow.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                tables
                    .v4
                    .iter()
                    .find_map(|page| page.find(&q))
                    .map(Match::of)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                tables
                    .v6
                    .iter()
                    .find_map(|page| page.find(&q))
                    .map(Match::of)
            }
            _ => None,
        }
    }

    /// The first selector that would match with some ports, and some protocol where it cannot be seen; without
    /// `bypass`, the first of the entries that are not Bypass.
    pub(super) fn first_possible(
        &self,
        flow: &Flow,
        inbound: bool,
        bypass: bool,
    ) -> Option<Possible> {
        let tables = self.tables(flow.interface)?;
        match (flow.local, flow.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                let mut pages = tables.v4.iter();
                let rule = pages.find_map(|page| page.first_possible(&q, bypass))?;
                Some(Possible::of(rule, &q))
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let q = query(flow, local.to_bits(), remote.to_bits(), inbound);
                let mut pages = tables.v6.iter();
                let rule = pages.find_map(|page| page.first_possible(&q, bypass))?;
                Some(Possible::of(rule, &q))
            }
            _ => None,
        }
    }

    /// Bytes on the heap.
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
        fn pages<V: Value>(rules: &[Rule<V>]) -> Vec<Page<V>> {
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
    /// Selectors that select nothing are left out.
    fn add(&mut self, entry: &Entry, selector: &Selector, index: u32, number: u16) {
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
    entry: &Entry,
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
