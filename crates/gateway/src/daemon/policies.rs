//! From the configuration to what the SPD is filled with.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use esplanade_ike::config::{
    AddressMatch, Connection, Ports, Selector, SelectorAddresses, StartAction,
};
use esplanade_ipsec::sa::TunnelOptions;
use esplanade_ipsec::selector::{AddressRange, PortRange, TrafficSelector};
use esplanade_ipsec::tunnel::{DfPolicy, DscpPolicy};

use super::join::{ConfiguredPolicy, PolicyKind};
use crate::config::{Loaded, Policy, PolicyAction};

/// The policies in the order of the SPD. `source` finds the local address towards a peer.
pub(super) fn configured(
    loaded: &Loaded,
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Vec<ConfiguredPolicy> {
    let resolve = |policy: &Policy| {
        let connection = loaded
            .ike
            .connections
            .iter()
            .find(|known| known.name == policy.connection);
        let remote = connection.and_then(|connection| host(&connection.remote_addrs));
        let local = connection
            .and_then(|connection| host(&connection.local_addrs).or_else(|| source(remote?)));
        let starts = connection.is_some_and(|connection| {
            let child = connection
                .children
                .iter()
                .find(|child| child.name == policy.child);
            child.is_some_and(|child| child.start_action == StartAction::Start)
        });
        ConfiguredPolicy {
            connection: policy.connection.clone(),
            child: policy.child.clone(),
            kind: match policy.action {
                PolicyAction::Bypass => PolicyKind::Bypass,
                PolicyAction::Discard => PolicyKind::Discard,
                // What should always be up is held to its policy also while it is down: nothing leaves in clear.
                PolicyAction::Protect => PolicyKind::Protect {
                    trap: policy.trap || starts,
                },
            },
            local: policy
                .local_ts
                .iter()
                .filter_map(|ts| selector(ts, local))
                .collect(),
            remote: policy
                .remote_ts
                .iter()
                .filter_map(|ts| selector(ts, remote))
                .collect(),
            tunnel: TunnelOptions {
                df: if policy.outer.copy_df {
                    DfPolicy::Copy
                } else {
                    DfPolicy::Clear
                },
                dscp: if policy.outer.copy_dscp {
                    DscpPolicy::Copy
                } else {
                    DscpPolicy::Fixed(0)
                },
                ..TunnelOptions::default()
            },
        }
    };
    loaded.policies.iter().map(resolve).collect()
}

/// Connection and child of everything with `start_action = start`.
pub(super) fn to_start(loaded: &Loaded) -> Vec<(String, String)> {
    let children = |connection: &Arc<Connection>| {
        let name = connection.name.clone();
        let starts = connection
            .children
            .iter()
            .filter(|child| child.start_action == StartAction::Start);
        starts
            .map(|child| (name.clone(), child.name.clone()))
            .collect::<Vec<_>>()
    };
    loaded.ike.connections.iter().flat_map(children).collect()
}

/// The address and port that a connection without a fixed local address initiates from.
pub(super) fn local_address(
    connection: &Connection,
    ports: Ports,
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Option<SocketAddr> {
    if host(&connection.local_addrs).is_some() {
        return None;
    }
    let local = source(host(&connection.remote_addrs)?)?;
    Some(SocketAddr::new(
        local,
        connection.local_port.unwrap_or(ports.ike),
    ))
}

fn host(addresses: &[AddressMatch]) -> Option<IpAddr> {
    addresses.iter().find_map(|address| match address {
        AddressMatch::Host(host) => Some(*host),
        _ => None,
    })
}

/// None for `dynamic` where the address is not known: such a policy exists only while its SA does.
fn selector(ts: &Selector, outer: Option<IpAddr>) -> Option<TrafficSelector> {
    let (first, last) = match ts.addresses {
        SelectorAddresses::Dynamic => (outer?, outer?),
        SelectorAddresses::Range(first, last) => (first, last),
    };
    Some(TrafficSelector {
        addresses: AddressRange::new(first, last)?,
        protocol: ts.protocol,
        ports: PortRange::from_wire(ts.ports.0, ts.ports.1)?,
    })
}
