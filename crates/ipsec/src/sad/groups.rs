//! SAs that are identified by addresses too, as multicast needs (RFC 4301 §4.1). The controller of a group chooses
//! the SPI, so the SPI encodes no slot here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::SPI_MIN;
use crate::sa::InboundSa;

/// The most such SAs that can exist.
pub const GROUPS_MAX: usize = 4096;

/// The key by which an SA of a group is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey {
    pub spi: u32,
    pub destination: IpAddr,
    /// The source address; `None` stands for any source.
    pub source: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more than {GROUPS_MAX} group SAs can be installed, with SPIs from 256 on")]
pub struct GroupRefused;

type GroupTable = HashMap<GroupKey, Arc<InboundSa>>;

/// The table is copied on every change, because there are few groups, and they change rarely. Its hash is keyed.
#[derive(Debug, Default)]
pub(super) struct Groups(ArcSwapOption<GroupTable>);

impl Groups {
    pub fn is_empty(&self) -> bool {
        self.0.load().is_none()
    }

    /// Finds the longest match: SPI, destination and source before SPI and destination.
    pub fn lookup(&self, spi: u32, destination: IpAddr, source: IpAddr) -> Option<Arc<InboundSa>> {
        let table = self.0.load();
        let table = table.as_ref()?;
        let with = |source| {
            table.get(&GroupKey {
                spi,
                destination,
                source,
            })
        };
        with(Some(source)).or_else(|| with(None)).cloned()
    }

    /// Installs an SA. The caller ensures that there is one writer at a time.
    pub fn insert(&self, key: GroupKey, sa: Arc<InboundSa>) -> Result<(), GroupRefused> {
        let mut table = self.copy();
        if key.spi < SPI_MIN || (table.len() >= GROUPS_MAX && !table.contains_key(&key)) {
            return Err(GroupRefused);
        }
        table.insert(key, sa);
        self.0.store(Some(Arc::new(table)));
        Ok(())
    }

    /// Removes an SA. The caller ensures that there is one writer at a time.
    pub fn remove(&self, key: &GroupKey) -> Option<Arc<InboundSa>> {
        let mut table = self.copy();
        let sa = table.remove(key)?;
        let table = Some(table).filter(|table| !table.is_empty());
        self.0.store(table.map(Arc::new));
        Some(sa)
    }

    pub fn all(&self) -> Vec<Arc<InboundSa>> {
        self.copy().into_values().collect()
    }

    fn copy(&self) -> GroupTable {
        let table = self.0.load();
        table.as_deref().cloned().unwrap_or_default()
    }
}
