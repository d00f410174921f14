//! Turns the configuration into the policies that the SPD is filled with.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use esplanade_ike::config::{
    AddressMatch, Connection, Mode, Selector, SelectorAddresses, StartAction,
};
use esplanade_ipsec::sa::DscpSet;
use esplanade_ipsec::selector::{AddressRange, PortRange, TrafficSelector};

use crate::config::{Loaded, Policy, PolicyAction, SaOptions};
use crate::join::{ChildPolicy, ConfiguredPolicy, PolicyKind, SharedTraffic};

/// Returns the connections by their names.
pub(in crate::daemon) fn by_name(loaded: &Loaded) -> HashMap<&str, &Connection> {
    let connections = loaded.ike.connections.iter();
    connections
        .map(|connection| (connection.name.as_str(), &**connection))
        .collect()
}

/// Returns the single addresses at which connections have peers.
pub(in crate::daemon) fn addresses_of_peers(loaded: &Loaded) -> HashSet<IpAddr> {
    let connections = loaded.ike.connections.iter();
    connections
        .flat_map(|connection| AddressMatch::hosts_of(&connection.remote_addrs))
        .collect()
}

/// Returns the policies in the order of the SPD. `source` finds the local address towards a peer.
pub fn configured(
    loaded: &Loaded,
    source: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Vec<ConfiguredPolicy> {
    let with_dscps: HashSet<&str> = (loaded.policies.iter())
        .filter(|policy| policy.sa.dscp != DscpSet::ALL)
        .map(|policy| policy.connection.as_str())
        .collect();
    let connections = by_name(loaded);
    let mut of_connection: HashMap<&str, Vec<&Policy>> = HashMap::new();
    for policy in &loaded.policies {
        let name = policy.connection.as_str();
        // Most configurations name no DSCP: then there is nothing to compare.
        if with_dscps.contains(name) {
            of_connection.entry(name).or_default().push(policy);
        }
    }
    let resolve = |policy: &Policy| {
        let connection = connections.get(policy.connection.as_str());
        let remote = connection.and_then(|connection| host(&connection.remote_addrs));
        let local = connection
            .and_then(|connection| host(&connection.local_addrs).or_else(|| source(remote?)));
        let child = connection.and_then(|connection| {
            let mut children = connection.children.iter();
            children.find(|child| child.name == policy.child)
        });
        let starts = child.is_some_and(|child| child.start_action == StartAction::Start);
        let siblings = of_connection.get(policy.connection.as_str());
        let (first, dscp) = sharing(siblings.map_or(&[], Vec::as_slice), policy);
        ConfiguredPolicy::new(ChildPolicy {
            connection: policy.connection.clone(),
            child: policy.child.clone(),
            kind: match policy.action {
                PolicyAction::Bypass => PolicyKind::Bypass,
                PolicyAction::Discard => PolicyKind::Discard,
                // A child that starts by itself should always be up: its traffic also asks for an SA while the child is
                // down.
                PolicyAction::Protect => PolicyKind::Protect {
                    trap: policy.trap || starts,
                },
            },
            local: selectors(&policy.local_ts, local, policy.mode),
            remote: selectors(&policy.remote_ts, remote, policy.mode),
            shares_entry_of: first.to_owned(),
            shared_traffic: SharedTraffic {
                of_one_peer: connection.is_some_and(|connection| connection.names_one_peer()),
                overlap: child.is_some_and(|child| child.overlap),
                trap: policy.trap,
            },
            sa: SaOptions {
                dscp,
                ..policy.sa.clone()
            },
        })
    };
    loaded.policies.iter().map(resolve).collect()
}

/// Children with the same selectors whose packets differ in DSCPs (RFC 4301 §4.1) share one entry of the SPD: that of
/// the first child. Returns the name of the first child, and the DSCPs of `policy`: its own, or the DSCPs that the
/// others leave. `siblings` are the policies of the connection. The slice is empty if no DSCP is named.
fn sharing<'a>(siblings: &[&'a Policy], policy: &'a Policy) -> (&'a str, DscpSet) {
    let same = |other: &&Policy| {
        (other.action, other.mode, other.priority) == (policy.action, policy.mode, policy.priority)
            && (&other.local_ts, &other.remote_ts) == (&policy.local_ts, &policy.remote_ts)
            && other.sa.populate == policy.sa.populate
            && other.sa.if_ids == policy.sa.if_ids
    };
    let members: Vec<_> = siblings.iter().copied().filter(same).collect();
    let named: Vec<_> = (members.iter().map(|member| member.sa.dscp))
        .filter(|set| *set != DscpSet::ALL)
        .collect();
    let rest: DscpSet = (0..64)
        .filter(|code_point| !named.iter().any(|set| set.contains(*code_point)))
        .collect();
    let first = members.first().map(|first| first.child.as_str());
    match first {
        Some(first) if rest != DscpSet::ALL => match policy.sa.dscp {
            DscpSet::ALL => (first, rest),
            own => (first, own),
        },
        _ => (&policy.child, DscpSet::ALL),
    }
}

/// Returns the new policies whose child was there before, but whose SAs are made differently now.
pub fn changed<'a>(
    old: &[ConfiguredPolicy],
    new: &'a [ConfiguredPolicy],
) -> Vec<&'a ConfiguredPolicy> {
    let name = |policy: &ConfiguredPolicy| (policy.connection.clone(), policy.child.clone());
    let old: HashMap<_, _> = old.iter().map(|policy| (name(policy), policy)).collect();
    let differs = |policy: &&ConfiguredPolicy| {
        let old = old.get(&name(policy));
        old.is_some_and(|old| {
            (&old.shares_entry_of, &old.sa) != (&policy.shares_entry_of, &policy.sa)
        })
    };
    new.iter().filter(differs).collect()
}

/// Tells whether a child in transport mode can carry nothing, because its selectors leave out a host. Both hosts must
/// be known for that.
pub(in crate::daemon) fn leaves_hosts_out(
    connection: Option<&Connection>,
    policy: &Policy,
) -> bool {
    let ends = connection.map(|own| (host(&own.local_addrs), host(&own.remote_addrs)));
    let Some((local @ Some(_), remote @ Some(_))) = ends else {
        return false;
    };
    let none = |list, outer| selectors(list, outer, Mode::Transport).is_empty();
    policy.action == PolicyAction::Protect
        && policy.mode == Mode::Transport
        && (none(&policy.local_ts, local) || none(&policy.remote_ts, remote))
}

fn host(addresses: &[AddressMatch]) -> Option<IpAddr> {
    AddressMatch::hosts_of(addresses).next()
}

/// Resolves selectors. In transport mode, only the part remains that the host at `outer` itself can send or receive.
fn selectors(list: &[Selector], outer: Option<IpAddr>, mode: Mode) -> Vec<TrafficSelector> {
    let host = |ts: TrafficSelector| {
        let outer = outer.filter(|outer| ts.addresses.contains(*outer))?;
        Some(TrafficSelector {
            addresses: AddressRange::host(outer),
            ..ts
        })
    };
    let resolved = list.iter().filter_map(|ts| selector(ts, outer));
    let mut selectors: Vec<_> = match mode {
        Mode::Tunnel => resolved.collect(),
        Mode::Transport => resolved.filter_map(host).collect(),
    };
    selectors.shrink_to_fit();
    selectors
}

/// Returns `None` for `dynamic` if the address is not known: such a policy exists only while its SA does.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::example::site;

    fn read(children: &str) -> Vec<ConfiguredPolicy> {
        configured(&site(children), |_| None)
    }

    #[test]
    fn children_that_differ_in_dscps_share_an_entry() {
        let of = |policies: &[ConfiguredPolicy]| -> Vec<(String, String, Vec<u8>)> {
            let dscps = |policy: &ConfiguredPolicy| policy.sa.dscp.iter().collect::<Vec<_>>();
            let one = |p: &ConfiguredPolicy| (p.child.clone(), p.shares_entry_of.clone(), dscps(p));
            policies.iter().map(one).collect()
        };
        let all: Vec<u8> = (0..64).collect();
        let rest: Vec<u8> = (0..64)
            .filter(|dscp| ![40, 46, 48].contains(dscp))
            .collect();
        let net = "remote_ts = 10.2.0.0/16";
        let policies = read(&format!(
            "data {{ {net} }}
             voice {{ {net}\n dscp = ef, cs5 }}
             control {{ {net}\n dscp = cs6 }}
             other {{ remote_ts = 10.3.0.0/16 }}"
        ));
        let named = |child: &str, first: &str, dscps: &[u8]| {
            (child.to_owned(), first.to_owned(), dscps.to_vec())
        };
        assert_eq!(
            of(&policies),
            [
                named("data", "data", &rest),
                named("voice", "data", &[40, 46]),
                named("control", "data", &[48]),
                named("other", "other", &all),
            ]
        );
        let twins = read(&format!("a {{ {net} }} b {{ {net} }}"));
        assert_eq!(of(&twins), [named("a", "a", &all), named("b", "b", &all)]);
    }

    // RFC 4301 R5
    #[test]
    fn transport_mode_is_for_the_two_hosts() {
        let ends = |children: &str| {
            let [policy] = &read(children)[..] else {
                panic!("one child")
            };
            let host = |list: &[TrafficSelector]| -> Vec<String> {
                let text = |ts: &TrafficSelector| {
                    format!("{}-{}", ts.addresses.first(), ts.addresses.last())
                };
                list.iter().map(text).collect()
            };
            (host(&policy.local), host(&policy.remote))
        };
        let hosts = (
            vec!["192.0.2.1-192.0.2.1".to_owned()],
            vec!["192.0.2.2-192.0.2.2".to_owned()],
        );
        assert_eq!(ends("a { mode = transport }"), hosts);
        let wide =
            "a { mode = transport\n local_ts = 0.0.0.0/0, 10.0.0.0/8\n remote_ts = 192.0.2.0/24 }";
        assert_eq!(ends(wide), hosts);
        assert!(
            ends("a { mode = transport\n local_ts = 10.0.0.0/8 }")
                .0
                .is_empty()
        );
    }
}
