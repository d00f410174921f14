//! The security association database for inbound packets.
//!
//! We choose inbound SPIs, so an SPI says where its SA is: the low 20 bits are the slot, the high 12 bits
//! a random tag that tells a slot's occupants apart. Lookups take no lock; the slots come in chunks that are
//! made when first needed and never move. Workers keep copies of the slots that they use, see [`SadReader`].
//!
//! An SPI that somebody else made up costs its lookup two or three loads: there is nothing to collide with.

mod changes;
mod groups;
mod reader;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;
use esplanade_crypto::random;

use crate::sa::InboundSa;

use changes::Changes;
use groups::Groups;
pub use groups::{GROUPS_MAX, GroupKey, GroupRefused};
pub(crate) use reader::SaName;
pub use reader::SadReader;

/// A worker that has missed more changes than this begins its copy anew.
const CHANGES_KEPT: usize = 16 * 1024;

const SLOT_BITS: u32 = 20;
const CHUNK_BITS: u32 = 10;
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << (SLOT_BITS - CHUNK_BITS);
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The number of inbound SAs that there can be.
pub const SLOTS: usize = CHUNKS * CHUNK_SLOTS;

type Chunk = Box<[ArcSwapOption<InboundSa>]>;

pub struct Sad {
    chunks: Box<[OnceLock<Chunk>]>,
    changes: Changes,
    groups: Groups,
    allocator: Mutex<Allocator>,
}

/// Which SPIs are given out. Only the control plane comes here.
#[derive(Default)]
struct Allocator {
    /// Freed slots, the longest free first: a late packet for a deleted SA meets an empty slot.
    free: VecDeque<u32>,
    /// By slot: the tag that is given out, 0 for none.
    tags: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the SPI {0:#010x} was not allocated here")]
pub struct NotAllocated(pub u32);

impl Default for Sad {
    fn default() -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            changes: Changes::new(CHANGES_KEPT),
            groups: Groups::default(),
            allocator: Mutex::default(),
        }
    }
}

impl Sad {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves a slot and gives its SPI; none when the table is full or there is no randomness.
    pub fn allocate_spi(&self) -> Option<u32> {
        let tag = random::next_u32().ok()? >> SLOT_BITS;
        // Tag 0 would make SPIs of less than 256, which are reserved (RFC 4303 §2.1).
        let tag = tag.max(1);
        let mut allocator = self.allocator();
        let slot = match allocator.free.pop_front() {
            Some(slot) => slot,
            None => allocator.grow()?,
        };
        *allocator.tags.get_mut(slot as usize)? = tag as u16;
        Some(tag << SLOT_BITS | slot)
    }

    /// Reserves an SPI that someone else chose, such as that of a manually keyed SA. False if its slot is
    /// taken or its tag is zero.
    pub fn claim_spi(&self, spi: u32) -> bool {
        let (slot, tag) = (slot_of(spi), spi >> SLOT_BITS);
        let mut allocator = self.allocator();
        while allocator.tags.len() <= slot {
            let Some(first) = allocator.grow() else {
                return false;
            };
            allocator.free.push_back(first);
        }
        let free = allocator.free.iter().position(|&s| s as usize == slot);
        let (Some(free), Some(place)) = (free.filter(|_| tag != 0), allocator.tags.get_mut(slot))
        else {
            return false;
        };
        *place = tag as u16;
        allocator.free.remove(free);
        true
    }

    /// Makes an allocated SPI receive. An SA that was there is replaced.
    pub fn insert(&self, sa: Arc<InboundSa>) -> Result<(), NotAllocated> {
        let spi = sa.common.spi;
        let allocator = self.allocator();
        if !allocator.owns(spi) {
            return Err(NotAllocated(spi));
        }
        let slot = slot_of(spi);
        let chunk = self
            .chunks
            .get(slot >> CHUNK_BITS)
            .ok_or(NotAllocated(spi))?;
        let chunk =
            chunk.get_or_init(|| (0..CHUNK_SLOTS).map(|_| ArcSwapOption::empty()).collect());
        let place = chunk.get(slot % CHUNK_SLOTS).ok_or(NotAllocated(spi))?;
        place.store(Some(sa));
        self.changes.record(slot as u32);
        drop(allocator);
        Ok(())
    }

    /// The SA of an SPI from the network.
    pub fn lookup(&self, spi: u32) -> Option<Arc<InboundSa>> {
        let sa = self.place(spi)?.load_full()?;
        (sa.common.spi == spi).then_some(sa)
    }

    /// The SA of a packet whose outer addresses are known, by the longest match (RFC 4301 §4.1): SPI, destination and
    /// source; SPI and destination; SPI.
    pub fn lookup_addressed(
        &self,
        spi: u32,
        destination: IpAddr,
        source: IpAddr,
    ) -> Option<Arc<InboundSa>> {
        let group = self.groups.lookup(spi, destination, source);
        group.or_else(|| self.lookup(spi))
    }

    /// Whether there are SAs that only [`Self::lookup_addressed`] finds.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Makes an SA of a group receive. An SA that was there is replaced.
    pub fn insert_group(&self, key: GroupKey, sa: Arc<InboundSa>) -> Result<(), GroupRefused> {
        let _one_writer = self.allocator();
        self.groups.insert(key, sa)
    }

    pub fn remove_group(&self, key: &GroupKey) -> Option<Arc<InboundSa>> {
        let _one_writer = self.allocator();
        self.groups.remove(key)
    }

    /// Stops receiving and gives the SPI back. Workers finish the batch that they are in with the old SA.
    pub fn remove(&self, spi: u32) -> Option<Arc<InboundSa>> {
        let mut allocator = self.allocator();
        if !allocator.owns(spi) {
            return None;
        }
        let sa = self.place(spi).and_then(|place| place.swap(None));
        self.changes.record(slot_of(spi) as u32);
        allocator.release(spi);
        sa
    }

    /// Every installed SA, for status reports.
    pub fn all(&self) -> Vec<Arc<InboundSa>> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        chunks
            .flat_map(|chunk| chunk.iter())
            .filter_map(ArcSwapOption::load_full)
            .chain(self.groups.all())
            .collect()
    }

    fn place(&self, spi: u32) -> Option<&ArcSwapOption<InboundSa>> {
        let slot = slot_of(spi);
        let chunk = self.chunks.get(slot >> CHUNK_BITS)?.get()?;
        chunk.get(slot % CHUNK_SLOTS)
    }

    fn allocator(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sad").finish_non_exhaustive()
    }
}

impl Allocator {
    /// Opens the next chunk of slots and takes its first.
    fn grow(&mut self) -> Option<u32> {
        let first = self.tags.len();
        if first >= SLOTS {
            return None;
        }
        self.tags.resize(first + CHUNK_SLOTS, 0);
        let first = first as u32;
        self.free.extend(first + 1..first + CHUNK_SLOTS as u32);
        Some(first)
    }

    fn owns(&self, spi: u32) -> bool {
        let tag = spi >> SLOT_BITS;
        tag != 0
            && self
                .tags
                .get(slot_of(spi))
                .is_some_and(|&t| u32::from(t) == tag)
    }

    fn release(&mut self, spi: u32) {
        if let Some(tag) = self.tags.get_mut(slot_of(spi)) {
            *tag = 0;
            self.free.push_back(slot_of(spi) as u32);
        }
    }
}

fn slot_of(spi: u32) -> usize {
    (spi & SLOT_MASK) as usize
}
