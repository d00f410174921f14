//! The choice of the SAs that send dummy packets while they are silent (RFC 4303 §2.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::spd::PolicyId;

use super::child_sas::ChildSas;
use super::policy_book::PolicyBook;
use crate::worker::{DummySa, DummySas};

/// The child SAs that send dummies while they are in use for sending.
#[derive(Debug, Default)]
pub(super) struct DummySchedule {
    /// The silence before a dummy, by the policy and the child SA.
    intervals_ms: BTreeMap<(PolicyId, ChildSaId), u64>,
    changed: bool,
}

impl DummySchedule {
    /// Adds a child SA. With 0 `per_second`, the SA sends no dummies.
    pub fn add(&mut self, policy: PolicyId, child: ChildSaId, per_second: u8) {
        if let Some(interval_ms) = 1000u64.checked_div(per_second.into()) {
            self.intervals_ms.insert((policy, child), interval_ms);
        }
    }

    /// Removes a child SA of the policy.
    pub fn remove(&mut self, policy: PolicyId, child: ChildSaId) {
        // Another SA of the policy may be in use now.
        self.switched(policy);
        self.intervals_ms.remove(&(policy, child));
    }

    /// Notes that other SAs of the policy are in use than before.
    pub fn switched(&mut self, policy: PolicyId) {
        let all = (policy, ChildSaId(0))..=(policy, ChildSaId(u64::MAX));
        self.changed |= self.intervals_ms.range(all).next().is_some();
    }

    /// Returns the outbound SAs in use that send dummies, or `None` if they are the same as at the last call.
    pub fn take(&mut self, child_sas: &ChildSas, policies: &PolicyBook) -> Option<DummySas> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let all = self.intervals_ms.iter();
        let in_use = all.filter_map(|((policy, child), interval_ms)| {
            let outbound = &child_sas.get(*child)?.outbound;
            let sas = policies.policy(*policy)?.outbound_sas();
            let sends = sas.iter().any(|sa| Arc::ptr_eq(sa, outbound));
            sends.then(|| DummySa {
                sa: outbound.clone(),
                interval_ms: *interval_ms,
            })
        });
        Some(in_use.collect())
    }
}
