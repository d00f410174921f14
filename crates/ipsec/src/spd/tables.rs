//! The SAs that the flows of one worker use, and their keys, by the SAs' numbers.
//!
//! Batches take snapshots of these tables, so that a packet names its SA by number and counts no reference. An SA
//! stays here as long as a flow of the cache uses it, and after that until [`SaTables::release`].

use std::sync::Arc;

use esplanade_crypto::{KeyContext, SlotTable};

use crate::sa::OutboundSa;

#[derive(Debug, Default)]
pub(crate) struct SaTables {
    keys: SlotTable<KeyContext>,
    sas: SlotTable<OutboundSa>,
    /// The number of flows that use each SA, by the number of the SA.
    uses: Vec<Use>,
    /// The numbers that no flow uses any more, each once.
    left: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    flows: u32,
    /// True if the number is in [`SaTables::left`].
    left: bool,
}

impl SaTables {
    pub fn keys(&self) -> &SlotTable<KeyContext> {
        &self.keys
    }

    pub fn sas(&self) -> &SlotTable<OutboundSa> {
        &self.sas
    }

    /// Records that one more flow uses this SA.
    pub fn enter(&mut self, sa: &Arc<OutboundSa>) {
        let number = sa.number();
        let index = number as usize;
        // As long as an SA is in a table, no other SA has its number.
        if self.sas.get(number).is_none() {
            self.sas.insert(number, Arc::clone(sa));
            self.keys.insert(number, Arc::clone(&sa.common.key));
        }
        if self.uses.len() <= index {
            self.uses.resize(index + 1, Use::default());
        }
        if let Some(of) = self.uses.get_mut(index) {
            of.flows += 1;
        }
    }

    /// Records that one flow less uses this SA.
    pub fn leave(&mut self, sa: &OutboundSa) {
        let number = sa.number();
        if let Some(of) = self.uses.get_mut(number as usize) {
            of.flows = of.flows.saturating_sub(1);
            if of.flows == 0 && !of.left {
                of.left = true;
                self.left.push(number);
            }
        }
    }

    /// Keeps the SA until the next release, for packets whose flow is not in the cache.
    pub fn hold(&mut self, sa: &Arc<OutboundSa>) {
        if self.sas.get(sa.number()).is_none() {
            self.enter(sa);
            self.leave(sa);
        }
    }

    /// Drops the SAs that no flow uses. The caller guarantees that no batch that has not taken its snapshot yet has a
    /// packet of such an SA.
    pub fn release(&mut self) {
        for number in self.left.drain(..) {
            let Some(of) = self.uses.get_mut(number as usize) else {
                continue;
            };
            of.left = false;
            if of.flows == 0 {
                self.keys.remove(number);
                self.sas.remove(number);
            }
        }
    }
}
