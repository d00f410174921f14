//! Which traffic routes must lead into the TUN, and which they must keep out of it.

use esplanade_ipsec::selector::{PortRange, TrafficSelector};

use super::{ConfiguredPolicy, PolicyKind};
use crate::net;

/// Traffic that must be led into the TUN, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    pub add: bool,
    pub bypass: bool,
    pub local: Vec<net::AddressRange>,
    pub remote: Vec<net::AddressRange>,
}

impl RouteChange {
    pub(super) fn undone(&self) -> Self {
        Self {
            add: false,
            ..self.clone()
        }
    }
}

/// The Bypass policies whose traffic the ordinary routes may carry, of those on the common interface. A route knows remote addresses only, so nothing else
/// that goes to them may be for another policy; the rest of the bypassed traffic passes the TUN and the SPD.
pub fn thrown_routes(configured: &[ConfiguredPolicy]) -> Vec<RouteChange> {
    let mut thrown = Vec::new();
    for (index, policy) in configured.iter().enumerate() {
        if policy.kind != PolicyKind::Bypass || policy.sa.if_ids.outbound != 0 {
            continue;
        }
        let mut ends = policy.local.iter().chain(&policy.remote);
        let everything = ends.all(|ts| ts.protocol == 0 && ts.ports == PortRange::Any);
        let spoilt = configured.iter().enumerate().any(|(other_index, other)| {
            // Without local selectors: an address that is not known yet.
            let inside = !other.local.is_empty()
                && other
                    .local
                    .iter()
                    .all(|ts| policy.local.iter().any(|wide| covers(wide, ts)));
            other.kind != PolicyKind::Bypass
                && other.sa.if_ids.outbound == 0
                && (other_index < index || !inside)
                && policy
                    .remote
                    .iter()
                    .any(|a| other.remote.iter().any(|b| overlap(a, b)))
        });
        if everything && !spoilt {
            thrown.push(RouteChange {
                add: true,
                bypass: true,
                local: ranges(&policy.local),
                remote: ranges(&policy.remote),
            });
        }
    }
    thrown
}

pub(super) fn covers(wide: &TrafficSelector, ts: &TrafficSelector) -> bool {
    wide.addresses.contains(ts.addresses.first()) && wide.addresses.contains(ts.addresses.last())
}

fn overlap(a: &TrafficSelector, b: &TrafficSelector) -> bool {
    let (a, b) = (a.addresses, b.addresses);
    a.contains(b.first()) || b.contains(a.first())
}

pub fn ranges(selectors: &[TrafficSelector]) -> Vec<net::AddressRange> {
    selectors
        .iter()
        .map(|ts| net::AddressRange {
            first: ts.addresses.first(),
            last: ts.addresses.last(),
        })
        .collect()
}
