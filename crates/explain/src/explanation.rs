//! Explains, entry by entry, why the SPD decides as it does.

use esplanade_ipsec::selector::{Flow, Selector};
use esplanade_ipsec::spd::{Action, PolicyDirection, Spd, SpdEntry};

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

impl Explanation {
    /// Compares a packet with every entry.
    pub fn of(spd: &Spd, flow: &Flow, inbound: bool) -> Self {
        let entries = spd.entries().iter();
        let comparisons: Vec<Comparison> =
            entries.map(|entry| compare(entry, flow, inbound)).collect();
        let matches = |comparison: &Comparison| matches!(comparison, Comparison::Matches(_));
        let matched = comparisons.iter().position(matches);
        let bypass = matched
            .and_then(|index| spd.entries().get(index))
            .is_some_and(|entry| matches!(entry.action, Action::Bypass));
        let doubt = matched.filter(|_| bypass && flow.ports.is_none());
        let doubt = doubt.and_then(|index| {
            let possible = spd.first_to_hold(flow, inbound);
            possible.filter(|first| *first < index)
        });
        Self {
            comparisons,
            matched,
            doubt,
        }
    }
}

fn compare(entry: &SpdEntry, flow: &Flow, inbound: bool) -> Comparison {
    if entry.interface != flow.interface {
        return Comparison::Differs(DifferingField::Interface, None);
    }
    let other_way = match inbound {
        true => PolicyDirection::Outbound,
        false => PolicyDirection::Inbound,
    };
    if entry.direction == other_way {
        return Comparison::Differs(DifferingField::Direction, None);
    }
    let mut closest = Comparison::Differs(DifferingField::Remote, None);
    for (index, selector) in entry.selectors.as_slice().iter().enumerate() {
        let Some(field) = difference(selector, flow) else {
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

/// The first field in which the packet differs from the selector, or none if the selector matches.
fn difference(selector: &Selector, flow: &Flow) -> Option<DifferingField> {
    if !selector.remote.contains(flow.remote) {
        Some(DifferingField::Remote)
    } else if !selector.local.contains(flow.local) {
        Some(DifferingField::Local)
    } else if !selector.protocol.contains(flow.protocol) {
        Some(DifferingField::Protocol)
    } else if !selector
        .remote_ports
        .contains(flow.ports.map(|(_, remote)| remote))
    {
        Some(DifferingField::RemotePort)
    } else if !selector
        .local_ports
        .contains(flow.ports.map(|(local, _)| local))
    {
        Some(DifferingField::LocalPort)
    } else {
        None
    }
}
