//! Explains, entry by entry, why the SPD decides as it does. The explanation is for people; the packet path does not
//! use it.

use super::{Action, PolicyDirection, Spd, SpdEntry};
use crate::selector::{Flow, Selector};

/// The first field in which a packet and a selector differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferingField {
    Interface,
    Direction,
    /// The IP version or the address.
    Remote,
    Local,
    Protocol,
    RemotePort,
    LocalPort,
}

/// The result of comparing one entry with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The entry matches; its selector of this number does.
    Matches(usize),
    /// The entry does not match. The fields name the difference to the selector that came closest, and that
    /// selector's number. The number is none if no selector was compared.
    Differs(DifferingField, Option<usize>),
}

/// The SPD's view of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The comparisons with all entries, in order.
    pub comparisons: Vec<Comparison>,
    /// The first entry that matches.
    pub matched: Option<usize>,
    /// An earlier entry that might match the whole datagram, of which this fragment hides ports or protocol. A Bypass
    /// does not apply then (RFC 4301 §7.4).
    pub doubt: Option<usize>,
}

impl Spd {
    /// Compares a packet with every entry.
    pub fn explain(&self, flow: &Flow, inbound: bool) -> Explanation {
        let compare = |entry: &SpdEntry| entry.compare(flow, inbound);
        let comparisons: Vec<Comparison> = self.entries().iter().map(compare).collect();
        let matches = |comparison: &Comparison| matches!(comparison, Comparison::Matches(_));
        let matched = comparisons.iter().position(matches);
        let bypass = matched
            .and_then(|index| self.entries().get(index))
            .is_some_and(|entry| matches!(entry.action, Action::Bypass));
        let doubt = matched.filter(|_| bypass && flow.ports.is_none());
        let doubt = doubt.and_then(|index| {
            let possible = self.first_to_hold(flow, inbound)?;
            let possible = self.ordered().places.binary_search(&possible).ok();
            possible.filter(|first| *first < index)
        });
        Explanation {
            comparisons,
            matched,
            doubt,
        }
    }
}

impl SpdEntry {
    fn compare(&self, flow: &Flow, inbound: bool) -> Comparison {
        if self.interface != flow.interface {
            return Comparison::Differs(DifferingField::Interface, None);
        }
        let other_way = match inbound {
            true => PolicyDirection::Outbound,
            false => PolicyDirection::Inbound,
        };
        if self.direction == other_way {
            return Comparison::Differs(DifferingField::Direction, None);
        }
        let mut closest = Comparison::Differs(DifferingField::Remote, None);
        for (index, selector) in self.selectors.as_slice().iter().enumerate() {
            let Some(field) = selector.difference(flow) else {
                return Comparison::Matches(index);
            };
            let closer = match closest {
                Comparison::Differs(other, Some(_)) => field > other,
                _ => true,
            };
            if closer {
                closest = Comparison::Differs(field, Some(index));
            }
        }
        closest
    }
}

impl Selector {
    /// The first field in which the packet differs from this selector, or none if the selector matches.
    fn difference(&self, flow: &Flow) -> Option<DifferingField> {
        if !self.remote.contains(flow.remote) {
            Some(DifferingField::Remote)
        } else if !self.local.contains(flow.local) {
            Some(DifferingField::Local)
        } else if !self.protocol.contains(flow.protocol) {
            Some(DifferingField::Protocol)
        } else if !self
            .remote_ports
            .contains(flow.ports.map(|(_, remote)| remote))
        {
            Some(DifferingField::RemotePort)
        } else if !self
            .local_ports
            .contains(flow.ports.map(|(local, _)| local))
        {
            Some(DifferingField::LocalPort)
        } else {
            None
        }
    }
}
