//! Counts for each configured child since the gateway's start, over all its SAs: those that are gone count too.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use esplanade_few::FewSet;
use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::SaCommon;
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::spd::UnservedDrops;

use super::child_sas::{ChildSas, InstalledChild};
use super::policy::ChildName;

/// The packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfTotals {
    pub bytes: u64,
    pub packets: u64,
}

/// The packets that a child has carried, over all its SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildTotals {
    pub inbound: HalfTotals,
    pub outbound: HalfTotals,
    /// Only reasons for which a packet was dropped are there. Packets for which there was no SA count too.
    pub drops: BTreeMap<&'static str, u64>,
    /// The data plane's time since which the child always has had an SA. `None` means that it has none.
    pub up_since_ms: Option<u64>,
}

/// The counts of the children that have, or had, SAs.
#[derive(Debug, Default)]
pub(super) struct Totals {
    of: HashMap<Arc<ChildName>, Box<Total>>,
    /// The children whose inbound SPIs still receive, although the SAs are gone.
    lingering: HashMap<u32, Arc<ChildName>>,
}

#[derive(Debug, Default)]
struct Total {
    /// The counts of SAs that are gone.
    gone: ChildTotals,
    installed: FewSet<ChildSaId>,
    lingering: FewSet<u32>,
}

impl Totals {
    pub fn begin(&mut self, id: ChildSaId, name: &Arc<ChildName>, now_ms: u64) {
        let total = self.of.entry(name.clone()).or_default();
        if total.installed.is_empty() {
            total.gone.up_since_ms = Some(now_ms);
        }
        total.installed.insert(id);
    }

    /// Counts the outbound half of an SA that is gone. Its inbound half receives for a while.
    pub fn linger(&mut self, id: ChildSaId, gone: &InstalledChild) {
        let Some(total) = self.of.get_mut(&gone.name) else {
            return;
        };
        total.installed.remove(&id);
        if total.installed.is_empty() {
            total.gone.up_since_ms = None;
        }
        total.gone.outbound.add(&gone.outbound.common);
        total.gone.add_drops(&gone.outbound.common);
        let spi = gone.inbound.common.spi;
        total.lingering.insert(spi);
        self.lingering.insert(spi, gone.name.clone());
    }

    /// Counts the inbound half of an SA that receives no more.
    pub fn end(&mut self, inbound: &SaCommon) {
        let name = self.lingering.remove(&inbound.spi);
        if let Some(total) = name.and_then(|name| self.of.get_mut(&name)) {
            total.lingering.remove(&inbound.spi);
            total.gone.inbound.add(inbound);
            total.gone.add_drops(inbound);
        }
    }

    /// Forgets children that are no longer configured and have no SAs.
    pub fn retain(&mut self, is_configured: impl Fn(&ChildName) -> bool) {
        self.of.retain(|name, total| {
            !total.installed.is_empty() || !total.lingering.is_empty() || is_configured(name)
        });
    }

    pub fn of(&self, name: &ChildName, child_sas: &ChildSas, sad: &Sad) -> Option<ChildTotals> {
        let total = self.of.get(name)?;
        let mut carried = total.gone.clone();
        for child in total.installed.iter().filter_map(|id| child_sas.get(*id)) {
            let (inbound, outbound) = (&child.inbound.common, &child.outbound.common);
            carried.inbound.add(inbound);
            carried.outbound.add(outbound);
            carried.add_drops(inbound);
            carried.add_drops(outbound);
        }
        for inbound in total.lingering.iter().filter_map(|spi| sad.lookup(*spi)) {
            carried.inbound.add(&inbound.common);
            carried.add_drops(&inbound.common);
        }
        Some(carried)
    }
}

impl HalfTotals {
    fn add(&mut self, half: &SaCommon) {
        self.bytes += half.lifetime.bytes();
        self.packets += half.lifetime.packets();
    }
}

impl ChildTotals {
    fn add_drops(&mut self, half: &SaCommon) {
        self.add_reasons(half.drops.iter());
    }

    fn add_reasons(&mut self, drops: impl Iterator<Item = (DropReason, u64)>) {
        for (reason, count) in drops.filter(|(_, count)| *count > 0) {
            *self.drops.entry(reason.name()).or_default() += count;
        }
    }
}

/// Adds the packets of a child that no SA carried. A child that never had an SA can have such packets too.
pub(super) fn with_unserved(
    carried: Option<ChildTotals>,
    unserved: Option<&UnservedDrops>,
) -> Option<ChildTotals> {
    let never = carried.is_none();
    let mut carried = carried.unwrap_or_default();
    carried.add_reasons(unserved.into_iter().flat_map(UnservedDrops::iter));
    (!never || !carried.drops.is_empty()).then_some(carried)
}
