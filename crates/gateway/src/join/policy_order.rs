//! The places of policies in the SPD.
//!
//! The order is the configuration's, but it decides only among children that have an SA. A child without one holds its
//! traffic behind the children that may stand for it: an SA of theirs carries the traffic meanwhile. What may not stand
//! for the child stays behind it.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use esplanade_ipsec::selector::{AddressRange, PortRange, SelectorSet, TrafficSelector};
use esplanade_ipsec::spd::{Action, EntryPlace, PolicyId, SpdEntry};

use super::policy::{ConfiguredPolicy, PolicyKind};
use crate::explain::analysis::earlier_overlaps;

/// The bits of a place, from the lowest up: the policy, whether it is held, the child's place in the configuration. Above
/// them is the child that the entry stands at, and whether it stands just before that one's own entries.
const HOLD_SHIFT: u32 = 32;
const ORDER_SHIFT: u32 = HOLD_SHIFT + 1;
const OWN_SHIFT: u32 = ORDER_SHIFT + 32;
const AT_SHIFT: u32 = OWN_SHIFT + 1;

/// The order of the children of a configuration.
#[derive(Debug, Default)]
pub(super) struct PolicyOrder {
    /// The place that each child without an SA waits before, if others may stand for it.
    waiting: Vec<Option<usize>>,
}

impl PolicyOrder {
    pub fn new(configured: &[ConfiguredPolicy]) -> Self {
        let mut waiting = vec![None; configured.len()];
        let mut by_interface: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, policy) in configured.iter().enumerate() {
            let has_entry = policy.shares_entry_of == policy.child;
            if has_entry {
                let interface = policy.sa.if_ids.outbound;
                by_interface.entry(interface).or_default().push(index);
            }
        }
        for members in by_interface.values() {
            for (index, before) in waits(configured, members) {
                if let Some(waits) = waiting.get_mut(index) {
                    *waits = Some(before);
                }
            }
        }
        Self { waiting }
    }

    /// Tells whether the child's traffic may go elsewhere while the child has no SA.
    pub fn yields(&self, order: usize) -> bool {
        self.waiting.get(order).is_some_and(Option::is_some)
    }

    /// Returns the place of a policy of the child at `order`. A child that is no longer configured is behind all others.
    pub fn place(&self, order: usize, hold: bool, id: PolicyId, has_sa: bool) -> EntryPlace {
        let waits = self.waiting.get(order).copied().flatten();
        let (at, own) = match waits {
            Some(before) if !has_sa => (before, false),
            _ => (order, true),
        };
        let number = |order: usize| u128::from(u32::try_from(order).unwrap_or(u32::MAX));
        EntryPlace(
            number(at) << AT_SHIFT
                | u128::from(own) << OWN_SHIFT
                | number(order) << ORDER_SHIFT
                | u128::from(hold) << HOLD_SHIFT
                | u128::from(id.0),
        )
    }
}

/// Returns those of the children, which are of one interface and in order, that wait behind others, and the child that
/// each waits before.
fn waits(configured: &[ConfiguredPolicy], members: &[usize]) -> Vec<(usize, usize)> {
    let policies: Vec<&ConfiguredPolicy> = members
        .iter()
        .filter_map(|index| configured.get(*index))
        .collect();
    let protects = |policy: &ConfiguredPolicy| matches!(policy.kind, PolicyKind::Protect { .. });
    let entries: Vec<SpdEntry> = policies.iter().map(|policy| entry_of(policy)).collect();
    // Only a child whose addresses are all known holds traffic.
    let holds = |at: usize| {
        let policy = policies.get(at);
        policy.is_some_and(|p| protects(p) && !p.local.is_empty() && !p.remote.is_empty())
    };
    // Children that are too much to compare keep the order of the configuration.
    let Some(earlier) = earlier_overlaps(&entries, holds) else {
        return Vec::new();
    };
    let mut later: Vec<Vec<(usize, bool)>> = vec![Vec::new(); policies.len()];
    for (behind, overlaps) in earlier.iter().enumerate() {
        for before in overlaps {
            if let Some(of) = later.get_mut(before.entry) {
                of.push((behind, before.covers));
            }
        }
    }
    // A child waits no further back than one that it overlaps: of two without SAs, the first is asked.
    let end = policies.len();
    let mut until = vec![end; end];
    let mut waiting = HashSet::new();
    for (at, overlaps) in later.iter().enumerate().rev() {
        let Some(own) = policies.get(at) else {
            continue;
        };
        let mut limit = end;
        for (behind, within) in overlaps {
            let stands = |other: &&&ConfiguredPolicy| may_stand_for(other, own, *within);
            let other = policies.get(*behind).filter(stands);
            let next = match other {
                Some(_) => until.get(*behind).copied().unwrap_or(end),
                None => *behind,
            };
            limit = limit.min(next);
        }
        if let Some(until) = until.get_mut(at) {
            *until = limit;
        }
        for (behind, _) in overlaps.iter().filter(|(behind, _)| *behind < limit) {
            waiting.extend([at, *behind]);
        }
    }
    let place_of = |at: usize| members.get(at).copied().unwrap_or(configured.len());
    let mut found: Vec<_> = waiting
        .into_iter()
        .filter_map(|at| Some((*members.get(at)?, place_of(*until.get(at)?))))
        .collect();
    found.sort_unstable();
    found
}

/// Tells whether an SA of `other`, which comes later, may carry traffic of `own` while `own` has no SA. `within` says
/// that the selectors of `other` lie within those of `own`.
///
/// RFC 4301 §4.4.1 lets the first entry decide, so that this is for traffic that the administrator gives to both: the
/// same rule as that of IKE for traffic that two peers ask for. A trap insists on its own SA, as a narrower trap of
/// strongSwan does.
pub fn may_stand_for(other: &ConfiguredPolicy, own: &ConfiguredPolicy, within: bool) -> bool {
    let PolicyKind::Protect { .. } = other.kind else {
        return false;
    };
    let (theirs, ours) = (other.shared_traffic, own.shared_traffic);
    let given_to_both = theirs.of_one_peer
        || !ours.of_one_peer
        || (theirs.overlap && ours.overlap)
        || other.connection == own.connection;
    // The remote selector of some is `dynamic`: the peer has its own address.
    given_to_both && (within || !ours.trap || other.remote.is_empty())
}

/// Returns the entry of a child for comparisons. An address that is not known may be any.
fn entry_of(policy: &ConfiguredPolicy) -> SpdEntry {
    let known = |ends: &[TrafficSelector]| match ends {
        [] => everything(),
        known => known.to_vec(),
    };
    let selectors = SelectorSet::from_ends(&known(&policy.local), &known(&policy.remote));
    let selectors = selectors.unwrap_or_default();
    SpdEntry {
        interface: policy.sa.if_ids.outbound,
        ..SpdEntry::new(selectors, Action::Discard)
    }
}

fn everything() -> Vec<TrafficSelector> {
    let any = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let all = any
        .into_iter()
        .filter_map(|any| AddressRange::from_prefix(any, 0));
    all.map(|addresses| TrafficSelector {
        addresses,
        protocol: 0,
        ports: PortRange::Any,
    })
    .collect()
}
