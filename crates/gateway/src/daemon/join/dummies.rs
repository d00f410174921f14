//! Which SAs send dummy packets while they are silent.

use std::sync::Arc;

use super::Join;
use crate::worker::{DummySa, DummySas};

impl Join {
    /// The outbound SAs in use that send dummies, if they are others than at the last call.
    pub fn take_dummies(&mut self) -> Option<DummySas> {
        if !std::mem::take(&mut self.dummies_stale) {
            return None;
        }
        let in_use = self.with_dummies.iter().filter_map(|child| {
            let installed = self.children.get(child)?;
            let sas = self.groups.get(&installed.group)?.policy.outbound_sas();
            let sends = sas.iter().any(|sa| Arc::ptr_eq(sa, &installed.outbound));
            sends.then(|| DummySa {
                sa: installed.outbound.clone(),
                interval_ms: (1000 / u64::from(installed.dummies.max(1))).max(1),
            })
        });
        Some(in_use.collect())
    }
}
