//! A worker's copy of the SAD. A lookup is two loads, with no atomic operation and no reference count.
//!
//! Batches name an SA and its key by a number of this copy. The number of a removed or replaced SA is not reused
//! while a batch that may name it is under way. Until then the SA and its key stay.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use esplanade_crypto::{KeyContext, SlotTable, prefetch_line};

use super::Sad;
use crate::numbers::NumberPool;
use crate::sa::InboundSa;

/// The SAs that a worker has met. Call [`Self::refresh`] once per burst, and from time to time without traffic. A
/// removed SA and its keys live until then.
#[derive(Debug, Default)]
pub struct SadReader {
    seen: u64,
    slots: Vec<ReaderSlot>,
    keys: SlotTable<KeyContext>,
    /// SAs that are in no slot any more, by number.
    retired: HashMap<u32, Arc<InboundSa>>,
    /// The numbers of those SAs, each with the last batch that may name it.
    retiring: VecDeque<(u64, u32)>,
    pool: NumberPool,
    /// The number of the batch being filled.
    batch: u64,
}

/// A slot's SA, as far as this worker has met it.
#[derive(Clone, Debug)]
struct ReaderSlot {
    sa: Option<Arc<InboundSa>>,
    spi: u32,
    number: u32,
}

const NONE: u32 = u32::MAX;
const EMPTY: ReaderSlot = ReaderSlot {
    sa: None,
    spi: 0,
    number: NONE,
};

/// The name of an SA in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaName {
    /// The slot where the SA was, and mostly still is.
    slot: u32,
    /// The number of the SA, which is also the number of its key.
    pub number: u32,
}

impl SaName {
    /// The name of no SA.
    pub const NONE: Self = Self {
        slot: NONE,
        number: NONE,
    };
}

impl SadReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops the SAs that were removed or replaced since the last call.
    pub fn refresh(&mut self, sad: &Sad) {
        self.refresh_between(sad, 0, 0);
    }

    /// Does the same while batches are under way. Batches have ascending numbers. `filling` is the next to be
    /// submitted; batches up to `finished` are not looked at any more.
    pub(crate) fn refresh_between(&mut self, sad: &Sad, filling: u64, finished: u64) {
        self.batch = filling;
        let before = sad.changes.count();
        if before != self.seen {
            let mut changed = Vec::new();
            let told = sad.changes.since(self.seen, |slot| changed.push(slot));
            if told.is_err() {
                changed = (0..self.slots.len() as u32).collect();
            }
            self.seen = told.unwrap_or(before);
            for slot in changed {
                self.put(slot as usize, EMPTY);
            }
        }
        while let Some(&(batch, number)) = self.retiring.front()
            && batch <= finished
        {
            self.retiring.pop_front();
            self.retired.remove(&number);
            self.keys.remove(number);
            self.pool.give_back(number);
        }
    }

    /// Finds the SA of an SPI from the network. Invented SPIs cost no memory, because only SAs that are found are
    /// kept.
    pub fn lookup(&mut self, sad: &Sad, spi: u32) -> Option<&Arc<InboundSa>> {
        let name = self.find(sad, (sad.slot_of(spi), spi), 0);
        let slot = self.slots.get(name.slot as usize)?;
        slot.sa.as_ref()
    }

    /// Prefetches what [`Self::find`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(slot) = self.slots.get(slot as usize) {
            prefetch_line(slot);
        }
    }

    /// Finds the name of an SPI's SA. It also prefetches what a packet with this sequence number needs of the SA.
    #[inline]
    pub(crate) fn find(&mut self, sad: &Sad, (at, spi): (u32, u32), sequence_low: u32) -> SaName {
        if let Some(slot) = self.slots.get(at as usize)
            && let (Some(sa), true) = (&slot.sa, slot.spi == spi)
        {
            sa.prefetch(sequence_low);
            return SaName {
                slot: at,
                number: slot.number,
            };
        }
        self.meet(sad, spi).unwrap_or(SaName::NONE)
    }

    #[inline]
    pub(crate) fn get(&self, name: SaName) -> Option<&InboundSa> {
        match self.slots.get(name.slot as usize) {
            Some(slot) if slot.number == name.number => slot.sa.as_deref(),
            _ => self.get_retired(name),
        }
    }

    #[cold]
    fn get_retired(&self, name: SaName) -> Option<&InboundSa> {
        self.retired.get(&name.number).map(Arc::as_ref)
    }

    /// The keys, by the numbers of their SAs.
    pub(crate) fn keys(&self) -> &SlotTable<KeyContext> {
        &self.keys
    }

    fn meet(&mut self, sad: &Sad, spi: u32) -> Option<SaName> {
        let sa = sad.lookup(spi)?;
        let at = sad.slot_of(spi) as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, EMPTY);
        }
        let number = self.number(&sa);
        let slot = ReaderSlot {
            sa: Some(sa),
            spi,
            number,
        };
        self.put(at, slot);
        Some(SaName {
            slot: at as u32,
            number,
        })
    }

    /// Names an SA that is in no slot, for the batch being filled.
    pub(crate) fn hold(&mut self, sa: Arc<InboundSa>) -> SaName {
        let number = self.number(&sa);
        self.retire(number, sa);
        SaName { slot: NONE, number }
    }

    /// Gives a number to an SA and its key.
    fn number(&mut self, sa: &InboundSa) -> u32 {
        let number = self.pool.take();
        self.keys.insert(number, Arc::clone(&sa.common.key));
        number
    }

    fn put(&mut self, at: usize, slot: ReaderSlot) {
        let Some(place) = self.slots.get_mut(at) else {
            return;
        };
        let former = std::mem::replace(place, slot);
        if let Some(sa) = former.sa {
            self.retire(former.number, sa);
        }
    }

    fn retire(&mut self, number: u32, sa: Arc<InboundSa>) {
        self.retired.insert(number, sa);
        self.retiring.push_back((self.batch, number));
    }
}
