//! Routes: which traffic they must lead into the TUN device, and which they must keep out of it.

use std::collections::HashMap;

use esplanade_ipsec::selector::{PortRange, TrafficSelector};

use super::policy::{ConfiguredPolicy, PolicyKind, covers};
use super::policy_book::PolicyChange;
use crate::net;

/// A change of the routes into the TUN device, or of the routes that lead past it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteChange {
    pub add: bool,
    /// The interface whose device the route is about; 0 is the common one.
    pub interface: u32,
    /// The route keeps its traffic out of the TUN device. Otherwise the route leads it into the device.
    pub bypass: bool,
    pub local: Vec<net::AddressRange>,
    pub remote: Vec<net::AddressRange>,
}

/// The routes that the policies ask for, and what has changed of them.
#[derive(Debug, Default)]
pub(super) struct RouteBook {
    /// Traffic that is kept out of the TUN device.
    bypassed: Vec<RouteChange>,
    changes: Vec<RouteChange>,
}

impl RouteBook {
    /// Follows the Bypass policies of a new configuration.
    pub fn follow_bypasses(&mut self, configured: &[ConfiguredPolicy]) {
        let bypassed = bypass_routes(configured);
        let gone = self.bypassed.iter().filter(|old| !bypassed.contains(old));
        self.changes.extend(gone.map(|old| RouteChange {
            add: false,
            ..old.clone()
        }));
        let new = bypassed.iter().filter(|new| !self.bypassed.contains(new));
        self.changes.extend(new.cloned());
        self.bypassed = bypassed;
    }

    /// Follows a Protect policy that came or went.
    pub fn follow(&mut self, change: &PolicyChange) {
        if change.led {
            self.changes.push(RouteChange {
                add: change.came,
                interface: change.interface,
                bypass: false,
                local: ranges(&change.local),
                remote: ranges(&change.remote),
            });
        }
    }

    /// Takes the changes since the last call, in order. A change and its opposite are left out: each would be work for the
    /// kernel, and a peer can make an SA come and go.
    pub fn take(&mut self) -> Vec<RouteChange> {
        let mut left: Vec<Option<RouteChange>> = Vec::with_capacity(self.changes.len());
        // The places of what is left of each route: all add it, or all remove it.
        let mut places: HashMap<RouteChange, Vec<usize>> = HashMap::new();
        for change in self.changes.drain(..) {
            let route = RouteChange {
                add: true,
                ..change.clone()
            };
            let of_route = places.entry(route).or_default();
            let last = of_route.last().and_then(|at| left.get_mut(*at));
            match last.filter(|last| last.as_ref().is_some_and(|one| one.add != change.add)) {
                Some(opposite) => {
                    *opposite = None;
                    of_route.pop();
                }
                None => {
                    of_route.push(left.len());
                    left.push(Some(change));
                }
            }
        }
        left.into_iter().flatten().collect()
    }
}

/// Returns the traffic of Bypass policies on the common interface that ordinary routes may carry.
pub(super) fn bypass_routes(configured: &[ConfiguredPolicy]) -> Vec<RouteChange> {
    let places = undisputed_bypasses(configured).into_iter();
    let bypasses = places.filter_map(|place| configured.get(place));
    let route = |policy: &ConfiguredPolicy| RouteChange {
        add: true,
        interface: 0,
        bypass: true,
        local: ranges(&policy.local),
        remote: ranges(&policy.remote),
    };
    bypasses.map(route).collect()
}

/// Returns the places of the Bypass policies that no other policy of the configuration keeps from ordinary routes.
///
/// A route knows remote addresses only. So none of the addresses may be for another kind of policy, or for one protocol
/// or port alone. Other bypassed traffic passes the TUN device and the SPD.
fn undisputed_bypasses(configured: &[ConfiguredPolicy]) -> Vec<usize> {
    let is_other = |other: &ConfiguredPolicy| {
        other.kind != PolicyKind::Bypass && other.sa.if_ids.outbound == 0
    };
    let places = || configured.iter().enumerate();
    let others: Vec<_> = places().filter(|(_, other)| is_other(other)).collect();
    let bypasses = places().filter(|(_, policy)| is_for_all_packets(policy));
    let undisputed = bypasses.filter(|bypass| {
        let mut others = others.iter();
        !others.any(|(place, one)| disputes_bypass((*place, &one.local, &one.remote), *bypass))
    });
    undisputed.map(|(place, _)| place).collect()
}

/// Tells whether a policy bypasses all packets of its addresses, on the common interface.
fn is_for_all_packets(policy: &ConfiguredPolicy) -> bool {
    let mut ends = policy.local.iter().chain(&policy.remote);
    policy.kind == PolicyKind::Bypass
        && policy.sa.if_ids.outbound == 0
        && ends.all(|ts| ts.protocol == 0 && ts.ports == PortRange::Any)
}

/// Tells whether a policy of another kind keeps a Bypass policy's traffic from ordinary routes. Each policy comes with
/// its place in the SPD.
fn disputes_bypass(
    (place, local, remote): (usize, &[TrafficSelector], &[TrafficSelector]),
    (bypass_place, bypass): (usize, &ConfiguredPolicy),
) -> bool {
    let mut own = local.iter();
    // A policy whose local address is not known yet has no local selectors.
    let inside =
        !local.is_empty() && own.all(|ts| bypass.local.iter().any(|wide| covers(wide, ts)));
    let mut ends = bypass.remote.iter();
    (place < bypass_place || !inside) && ends.any(|a| remote.iter().any(|b| overlap(a, b)))
}

fn overlap(a: &TrafficSelector, b: &TrafficSelector) -> bool {
    let (a, b) = (a.addresses, b.addresses);
    a.contains(b.first()) || b.contains(a.first())
}

/// Returns the addresses of traffic selectors.
pub fn ranges(selectors: &[TrafficSelector]) -> Vec<net::AddressRange> {
    selectors
        .iter()
        .map(|ts| net::AddressRange {
            first: ts.addresses.first(),
            last: ts.addresses.last(),
        })
        .collect()
}
