//! The security association database for inbound packets.
//!
//! We choose inbound SPIs, so an SPI can encode the place of its SA, readable only by us (see `spi.rs`). 20 bits are
//! the slot, and 12 bits are a random tag that tells a slot's successive SAs apart. Lookups take no lock. Slots come
//! in chunks, which are made when first needed and never move. Workers keep copies of the slots that they use, see
//! [`SadReader`].
//!
//! A lookup of an invented SPI costs two or three loads. There is no hash table whose chains an attacker could
//! lengthen.

mod changes;
mod groups;
mod reader;
mod spi;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use esplanade_crypto::random;

use crate::sa::InboundSa;

use changes::Changes;
use groups::Groups;
pub use groups::{GROUPS_MAX, GroupKey, GroupRefused};
pub(crate) use reader::SaName;
pub use reader::SadReader;
use spi::{SLOT_BITS, SpiCode, SpiPlace};

/// The smallest SPI; lower ones are reserved (RFC 4303 §2.1).
const SPI_MIN: u32 = 256;

/// A worker that missed more changes than this rebuilds its copy.
const CHANGES_KEPT: usize = 16 * 1024;

const CHUNK_BITS: u32 = 10;
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << (SLOT_BITS - CHUNK_BITS);

/// The most inbound SAs that can exist.
pub const SLOTS: usize = CHUNKS * CHUNK_SLOTS;

type Chunk = Box<[SadSlot]>;

#[derive(Default)]
struct SadSlot {
    sa: ArcSwapOption<InboundSa>,
    /// The SPI that was allocated and has no SA yet, or 0.
    awaited: AtomicU32,
}

pub struct Sad {
    code: SpiCode,
    /// False if there was no randomness for the key of the code. Then no SPI is given out.
    has_spis: bool,
    chunks: Box<[OnceLock<Chunk>]>,
    changes: Changes,
    groups: Groups,
    /// The addresses at which peers are known to be.
    peers: ArcSwap<HashSet<IpAddr>>,
    allocator: Mutex<Allocator>,
}

/// The SPIs that are given out. Only the control plane uses this.
#[derive(Default)]
struct Allocator {
    /// Freed slots, the one free for longest first. A late packet for a deleted SA thus meets an empty slot.
    free: VecDeque<u32>,
    /// The first slot that was never given out. Later slots may have been claimed.
    next: u32,
    /// The tags of the SPIs that are given out, by slot.
    tags: HashMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the SPI {0:#010x} was not allocated here")]
pub struct NotAllocated(pub u32);

impl Default for Sad {
    fn default() -> Self {
        let code = SpiCode::new();
        let has_spis = code.is_ok();
        Self::with(code.unwrap_or_else(|_| SpiCode::plain()), has_spis)
    }
}

impl Sad {
    pub fn new() -> Self {
        Self::default()
    }

    /// A SAD whose SPIs contain their slots unencoded. It is for SAs whose SPIs others chose: a few such SPIs then
    /// lie close together. Anybody can guess the other SPIs of such a SAD.
    pub fn plain() -> Self {
        Self::with(SpiCode::plain(), true)
    }

    fn with(code: SpiCode, has_spis: bool) -> Self {
        Self {
            code,
            has_spis,
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            changes: Changes::new(CHANGES_KEPT),
            groups: Groups::default(),
            peers: ArcSwap::default(),
            allocator: Mutex::default(),
        }
    }

    /// Names the addresses of peers. Packets from others with unknown SPIs take no event from theirs.
    pub fn set_peers(&self, addresses: HashSet<IpAddr>) {
        self.peers.store(Arc::new(addresses));
    }

    pub(crate) fn has_peer_at(&self, address: IpAddr) -> bool {
        self.peers.load().contains(&address)
    }

    /// Reserves a slot and returns its SPI. Returns `None` if the table is full or there is no randomness.
    pub fn allocate_spi(&self) -> Option<u32> {
        if !self.has_spis {
            return None;
        }
        let mut allocator = self.allocator();
        let slot = allocator.take()?;
        let Some((tag, spi)) = draw(&self.code, slot) else {
            allocator.free.push_front(slot);
            return None;
        };
        allocator.tags.insert(slot, tag);
        if let Some(place) = self.slot_to_fill(slot) {
            place.awaited.store(spi, Ordering::Release);
        }
        Some(spi)
    }

    /// Reserves an SPI that somebody else chose, such as that of a manually keyed SA. Returns false if the SPI is
    /// below 256, or if its slot is taken.
    pub fn claim_spi(&self, spi: u32) -> bool {
        let SpiPlace { slot, tag } = self.code.decode(spi);
        let mut allocator = self.allocator();
        let free = spi >= SPI_MIN && !allocator.tags.contains_key(&slot);
        if free {
            allocator.free.retain(|freed| *freed != slot);
            allocator.tags.insert(slot, tag);
        }
        free
    }

    /// Installs an SA with an allocated SPI. An SA that was there is replaced.
    pub fn insert(&self, sa: Arc<InboundSa>) -> Result<(), NotAllocated> {
        let spi = sa.common.spi;
        let allocator = self.allocator();
        let place = self.code.decode(spi);
        if !allocator.owns(place) {
            return Err(NotAllocated(spi));
        }
        let to_fill = self.slot_to_fill(place.slot).ok_or(NotAllocated(spi))?;
        to_fill.sa.store(Some(sa));
        to_fill.awaited.store(0, Ordering::Release);
        self.changes.record(place.slot);
        drop(allocator);
        Ok(())
    }

    /// Finds the SA of an SPI from the network.
    pub fn lookup(&self, spi: u32) -> Option<Arc<InboundSa>> {
        let sa = self.slot(spi)?.sa.load_full()?;
        (sa.common.spi == spi).then_some(sa)
    }

    /// Tells whether an SPI was allocated and has no SA yet: an exchange under way has offered it.
    pub fn awaits(&self, spi: u32) -> bool {
        let slot = self.slot(spi);
        slot.is_some_and(|slot| spi != 0 && slot.awaited.load(Ordering::Acquire) == spi)
    }

    /// Finds the SA of a packet whose outer addresses are known, by the longest match (RFC 4301 §4.1). SPI, destination
    /// and source come first, then SPI and destination, then SPI alone.
    pub fn lookup_addressed(
        &self,
        spi: u32,
        destination: IpAddr,
        source: IpAddr,
    ) -> Option<Arc<InboundSa>> {
        let group = self.groups.lookup(spi, destination, source);
        group.or_else(|| self.lookup(spi))
    }

    /// Returns true if there are SAs that only [`Self::lookup_addressed`] finds.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Installs an SA of a multicast group. An SA that was there is replaced.
    pub fn insert_group(&self, key: GroupKey, sa: Arc<InboundSa>) -> Result<(), GroupRefused> {
        let _one_writer = self.allocator();
        self.groups.insert(key, sa)
    }

    pub fn remove_group(&self, key: &GroupKey) -> Option<Arc<InboundSa>> {
        let _one_writer = self.allocator();
        self.groups.remove(key)
    }

    /// Removes an SA and frees its SPI. Workers finish their present batch with the old SA.
    pub fn remove(&self, spi: u32) -> Option<Arc<InboundSa>> {
        let mut allocator = self.allocator();
        let place = self.code.decode(spi);
        if !allocator.owns(place) {
            return None;
        }
        let slot = self.slot(spi);
        let sa = slot.and_then(|slot| slot.sa.swap(None));
        if let Some(slot) = slot {
            slot.awaited.store(0, Ordering::Release);
        }
        self.changes.record(place.slot);
        allocator.release(place.slot);
        sa
    }

    /// Returns every installed SA, for status reports.
    pub fn all(&self) -> Vec<Arc<InboundSa>> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        chunks
            .flat_map(|chunk| chunk.iter())
            .filter_map(|slot| slot.sa.load_full())
            .chain(self.groups.all())
            .collect()
    }

    /// The slot that an SPI encodes.
    #[inline]
    pub(crate) fn slot_of(&self, spi: u32) -> u32 {
        self.code.decode(spi).slot
    }

    fn slot(&self, spi: u32) -> Option<&SadSlot> {
        let slot = self.slot_of(spi) as usize;
        let chunk = self.chunks.get(slot >> CHUNK_BITS)?.get()?;
        chunk.get(slot % CHUNK_SLOTS)
    }

    /// Returns a slot, whose chunk is made where it is missing.
    fn slot_to_fill(&self, slot: u32) -> Option<&SadSlot> {
        let slot = slot as usize;
        let chunk = self.chunks.get(slot >> CHUNK_BITS)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK_SLOTS).map(|_| SadSlot::default()).collect());
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
    /// Takes a free slot. New slots come first, up to the end of their chunk, so that freed slots stay unused for a
    /// while.
    fn take(&mut self) -> Option<u32> {
        loop {
            let opens_chunk = (self.next as usize).is_multiple_of(CHUNK_SLOTS);
            if opens_chunk && let Some(freed) = self.free.pop_front() {
                return Some(freed);
            }
            let slot = self.next;
            if slot as usize >= SLOTS {
                return None;
            }
            self.next += 1;
            if !self.tags.contains_key(&slot) {
                return Some(slot);
            }
        }
    }

    fn owns(&self, place: SpiPlace) -> bool {
        self.tags.get(&place.slot) == Some(&place.tag)
    }

    fn release(&mut self, slot: u32) {
        self.tags.remove(&slot);
        if slot < self.next {
            self.free.push_back(slot);
        }
    }
}

/// Draws a tag for a slot, and returns the tag and the SPI. Returns `None` if there is no randomness.
fn draw(code: &SpiCode, slot: u32) -> Option<(u32, u32)> {
    loop {
        let tag = random::next_u32().ok()? >> SLOT_BITS;
        let spi = code.encode(SpiPlace { slot, tag });
        // Only 256 of four billion SPIs are refused, so the loop ends.
        if spi >= SPI_MIN {
            return Some((tag, spi));
        }
    }
}
