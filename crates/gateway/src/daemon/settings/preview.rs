//! The SPD that a configuration leads to, without a running gateway: for `explain` and `check`.

use std::collections::HashMap;
use std::sync::Arc;

use esplanade_ike::config::Connection;
use esplanade_ipsec::sa::DscpSet;
use esplanade_ipsec::selector::SelectorSet;
use esplanade_ipsec::spd::{self, Action, PolicyId, SpdEntry};

use crate::config::{Loaded, Policy};
use crate::daemon::settings::policies;
use crate::join::{ConfiguredPolicy, PolicyKind};

/// An entry that the SPD would have. A list of these has the order of the SPD.
#[derive(Clone, Debug)]
pub struct Planned {
    pub entry: SpdEntry,
    /// The children that share the entry, as indices into [`Loaded::policies`], with the DSCPs of each.
    pub members: Vec<(usize, DscpSet)>,
    /// While no SA is up, packets ask for one.
    pub asks: bool,
    /// The first of the children.
    pub policy: ConfiguredPolicy,
}

/// A policy that has no entry.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// The index of the policy in [`Loaded::policies`].
    pub policy: usize,
    pub why: Why,
}

/// The reason why a policy has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The policy is for transport mode, and its selectors leave out the two hosts.
    NoHosts,
    /// No local selector goes with a remote one.
    Contradicts,
    /// An address is not known before a peer connects.
    AddressUnknown,
}

/// Returns the entries of the configuration, and the policies that have no entry. Protect entries are shown as if they
/// were in force.
pub fn preview(loaded: &Loaded) -> (Vec<Planned>, Vec<Missing>) {
    let configured = policies::configured(loaded, |_| None);
    let connections = policies::by_name(loaded);
    let mut planned: Vec<Planned> = Vec::new();
    // The index of the entry in `planned`, by the name of the entry.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut missing = Vec::new();
    for (index, policy) in configured.iter().enumerate() {
        let name = format!("{}/{}", policy.connection, policy.shares_entry_of);
        if policy.shares_entry_of != policy.child
            && let Some(first) = places.get(&name).and_then(|at| planned.get_mut(*at))
        {
            first.members.push((index, policy.sa.dscp));
            continue;
        }
        let selectors = SelectorSet::from_ends(&policy.local, &policy.remote);
        let Some(selectors) = selectors.filter(|selectors| !selectors.is_empty()) else {
            let configured = loaded.policies.get(index);
            let why = configured.map_or(Why::AddressUnknown, |of| {
                why(connections.get(of.connection.as_str()).copied(), of, policy)
            });
            missing.push(Missing { policy: index, why });
            continue;
        };
        let (action, asks) = match policy.kind {
            PolicyKind::Bypass => (Action::Bypass, true),
            PolicyKind::Discard => (Action::Discard, true),
            PolicyKind::Protect { trap } => {
                let policy = spd::Policy::new(PolicyId(index as u32), name.clone());
                (Action::Protect(Arc::new(policy)), trap)
            }
        };
        places.entry(name.clone()).or_insert(planned.len());
        planned.push(Planned {
            entry: SpdEntry {
                interface: policy.sa.if_ids.outbound,
                populate: policy.sa.populate,
                name: name.into(),
                ..SpdEntry::new(selectors, action)
            },
            members: vec![(index, policy.sa.dscp)],
            asks,
            policy: policy.clone(),
        });
    }
    (planned, missing)
}

/// `resolved` lacks the selectors of `policy` whose address is not known.
fn why(connection: Option<&Connection>, policy: &Policy, resolved: &ConfiguredPolicy) -> Why {
    let all_known = resolved.local.len() == policy.local_ts.len()
        && resolved.remote.len() == policy.remote_ts.len();
    if policies::leaves_hosts_out(connection, policy) {
        Why::NoHosts
    } else if all_known {
        Why::Contradicts
    } else {
        Why::AddressUnknown
    }
}
