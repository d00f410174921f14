//! The SPD that a configuration leads to, without a running gateway: for `explain` and `check`.

use std::sync::Arc;

use esplanade_ipsec::sa::DscpSet;
use esplanade_ipsec::selector::SelectorSet;
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId};

use super::join::PolicyKind;
use super::policies;
use crate::config::{self, Loaded};

/// One entry, in the order of the SPD.
#[derive(Clone, Debug)]
pub struct Planned {
    pub entry: Entry,
    /// The children that share it, as indices into [`Loaded::policies`], with the DSCPs of each.
    pub members: Vec<(usize, DscpSet)>,
    /// In force also while no SA is up.
    pub held: bool,
}

/// A policy that has no entry.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// Into [`Loaded::policies`].
    pub policy: usize,
    /// No local selector goes with a remote one; otherwise an address is not known before a peer connects.
    pub contradicts: bool,
}

/// Entries of the configuration, those of Protect as if they were in force, and the policies that have none.
pub fn preview(loaded: &Loaded) -> (Vec<Planned>, Vec<Missing>) {
    let configured = policies::configured(loaded, |_| None);
    let mut planned: Vec<Planned> = Vec::new();
    let mut unknown = Vec::new();
    for (index, policy) in configured.iter().enumerate() {
        let name = format!("{}/{}", policy.connection, policy.leader);
        if policy.leader != policy.child
            && let Some(leader) = planned.iter_mut().find(|p| *p.entry.name == *name)
        {
            leader.members.push((index, policy.sa.dscp));
            continue;
        }
        let selectors = SelectorSet::from_ends(&policy.local, &policy.remote);
        let Some(selectors) = selectors.filter(|selectors| !selectors.is_empty()) else {
            let all_known = loaded.policies.get(index).is_some_and(|configured| {
                policy.local.len() == configured.local_ts.len()
                    && policy.remote.len() == configured.remote_ts.len()
            });
            unknown.push(Missing {
                policy: index,
                contradicts: all_known,
            });
            continue;
        };
        let (action, held) = match policy.kind {
            PolicyKind::Bypass => (Action::Bypass, true),
            PolicyKind::Discard => (Action::Discard, true),
            PolicyKind::Protect { trap } => {
                let policy = Policy::new(PolicyId(index as u32), name.clone());
                (Action::Protect(Arc::new(policy)), trap)
            }
        };
        planned.push(Planned {
            entry: Entry {
                interface: policy.sa.if_ids.outbound,
                populate: policy.sa.populate,
                name: name.into(),
                ..Entry::new(selectors, action)
            },
            members: vec![(index, policy.sa.dscp)],
            held,
        });
    }
    (planned, unknown)
}

/// Whether a child in transport mode can carry nothing: its selectors leave out the two hosts.
pub fn leaves_hosts_out(loaded: &Loaded, policy: &config::Policy) -> bool {
    policies::leaves_hosts_out(loaded, policy)
}
