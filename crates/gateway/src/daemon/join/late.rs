//! Policies whose selectors come with the peer: `dynamic` where its address is not known before.

use std::collections::HashMap;

use esplanade_ipsec::selector::TrafficSelector;

use super::routes::covers;
use super::{ConfiguredPolicy, Group, Join};

impl Join {
    /// What must not be in the clear, in the order of the SPD: the configured policies, and what was negotiated beside
    /// their selectors, for as long as its SAs are there.
    pub fn shielded(&self) -> Vec<ConfiguredPolicy> {
        let mut late: HashMap<usize, Vec<&Group>> = HashMap::new();
        for group in self.groups.values().filter(|group| group.is_late()) {
            late.entry(group.order).or_default().push(group);
        }
        let mut policies = Vec::with_capacity(self.configured.len() + late.len());
        for (index, policy) in self.configured.iter().enumerate() {
            policies.push(policy.clone());
            let groups = late.get(&index).into_iter().flatten();
            policies.extend(groups.map(|group| ConfiguredPolicy {
                local: group.ends.0.clone(),
                remote: group.ends.1.clone(),
                ..policy.clone()
            }));
        }
        policies
    }

    /// Whether [`Join::shielded`] is another than at the last call.
    pub fn take_shield_change(&mut self) -> bool {
        std::mem::take(&mut self.shield_stale)
    }
}

impl Group {
    pub(super) fn is_late(&self) -> bool {
        let within = |wide: &[TrafficSelector], ends: &[TrafficSelector]| {
            let mut ends = ends.iter();
            ends.all(|ts| wide.iter().any(|wide| covers(wide, ts)))
        };
        !within(&self.configured.local, &self.ends.0)
            || !within(&self.configured.remote, &self.ends.1)
    }
}
