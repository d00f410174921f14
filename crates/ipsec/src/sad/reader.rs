//! One worker's copy of the SAD: a lookup is two loads, with no atomic operation and no reference count.

use std::sync::Arc;

use esplanade_crypto::prefetch;

use super::{Sad, slot_of};
use crate::sa::InboundSa;

/// The SAs that a worker has met. Call [`Self::refresh`] once per burst, and from time to time without traffic: a
/// removed SA, and with it its keys, lives until then.
#[derive(Debug, Default)]
pub struct SadReader {
    seen: u64,
    slots: Vec<Option<Arc<InboundSa>>>,
}

impl SadReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops what was removed or replaced since the last call.
    pub fn refresh(&mut self, sad: &Sad) {
        let slots = &mut self.slots;
        let forget = |slot: u32| {
            if let Some(place) = slots.get_mut(slot as usize) {
                *place = None;
            }
        };
        let before = sad.changes.count();
        match sad.changes.since(self.seen, forget) {
            Ok(seen) => self.seen = seen,
            Err(_) => {
                self.slots.clear();
                self.seen = before;
            }
        }
    }

    /// Has the processor fetch the SA of an SPI, if it is known.
    #[inline]
    pub(crate) fn prefetch(&self, spi: u32) {
        if let Some(Some(sa)) = self.slots.get(slot_of(spi)) {
            prefetch(sa, InboundSa::HOT);
        }
    }

    /// The SA of an SPI from the network. A peer that makes SPIs up costs no memory: only what is found is kept.
    pub fn lookup(&mut self, sad: &Sad, spi: u32) -> Option<&Arc<InboundSa>> {
        let slot = slot_of(spi);
        let known = self.slots.get(slot).and_then(Option::as_ref);
        if known.is_none_or(|sa| sa.common.spi != spi) {
            let sa = sad.lookup(spi)?;
            if slot >= self.slots.len() {
                self.slots.resize(slot + 1, None);
            }
            *self.slots.get_mut(slot)? = Some(sa);
        }
        self.slots.get(slot)?.as_ref()
    }
}
