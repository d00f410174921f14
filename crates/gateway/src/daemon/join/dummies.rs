//! Which SAs send dummy packets while they are silent.

use std::collections::BTreeMap;
use std::sync::Arc;

use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::spd::PolicyId;

use super::Join;
use crate::worker::{DummySa, DummySas};

/// The children that send dummies when they send.
#[derive(Debug, Default)]
pub(super) struct Dummies {
    /// The silence before a dummy, by the child's group.
    intervals_ms: BTreeMap<(PolicyId, ChildSaId), u64>,
    stale: bool,
}

impl Dummies {
    pub fn add(&mut self, group: PolicyId, child: ChildSaId, a_second: u8) {
        if let Some(interval_ms) = 1000u64.checked_div(a_second.into()) {
            self.intervals_ms.insert((group, child), interval_ms);
        }
    }

    pub fn remove(&mut self, group: PolicyId, child: ChildSaId) {
        self.stale |= self.intervals_ms.remove(&(group, child)).is_some();
    }

    /// Other SAs of the group are in use than before.
    pub fn switched(&mut self, group: PolicyId) {
        let all = (group, ChildSaId(0))..=(group, ChildSaId(u64::MAX));
        self.stale |= self.intervals_ms.range(all).next().is_some();
    }
}

impl Join {
    /// The outbound SAs in use that send dummies, if they are others than at the last call.
    pub fn take_dummies(&mut self) -> Option<DummySas> {
        if !std::mem::take(&mut self.dummies.stale) {
            return None;
        }
        let all = self.dummies.intervals_ms.iter();
        let in_use = all.filter_map(|((group, child), interval_ms)| {
            let installed = self.children.get(child)?;
            let sas = self.groups.get(group)?.policy.outbound_sas();
            let sends = sas.iter().any(|sa| Arc::ptr_eq(sa, &installed.outbound));
            sends.then(|| DummySa {
                sa: installed.outbound.clone(),
                interval_ms: *interval_ms,
            })
        });
        Some(in_use.collect())
    }
}
