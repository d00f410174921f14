//! Anti-replay (RFC 4303 §3.4.3) with extended sequence numbers (appendix A2), without locks.
//!
//! `check` reads and infers the high half before the ICV is verified; `commit` tests again and sets,
//! after it was verified: two copies of a packet can be in one batch, or with two workers.
//!
//! Sequence numbers come in blocks of 32. A ring of words holds the last blocks: a word is the tag of its block
//! in the high half and one bit per number seen in the low half, so that one compare-and-swap takes a word over
//! from an earlier block and marks numbers in it. `front`, the highest block, moves before any word of it is
//! written, and is read after the word: a word that a later block has is then seen to be out of the window. So
//! no interleaving of any number of threads accepts a number twice (`tests/models.rs`).

use esplanade_crypto::prefetch_line;

use crate::atomic::{AtomicU64, Ordering};

pub const WINDOW_MIN: u32 = 32;
pub const WINDOW_MAX: u32 = 65_536;

const BLOCK_BITS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the sequence number was seen before")]
    Replayed,
    #[error("the sequence number lies left of the window")]
    BeforeWindow,
}

/// What [`ReplayWindow::commit_block`] found. Numbers wanted and neither accepted nor before the window are replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Bit i: number i of the block is new and may pass.
    pub accepted: u32,
    /// Bit i: number i of the block lies left of the window.
    pub before: u32,
    /// The highest accepted number is the highest so far.
    pub newest: bool,
}

/// The edges of a window at one moment, for the packets of a run.
#[derive(Clone, Copy, Debug)]
pub struct Edges {
    top: u64,
    /// The lowest number in the window; below zero while the window reaches there.
    bottom: u64,
}

/// Words of a ring that is kept in the window itself: enough for 1,024 numbers.
const SHORT: usize = 1 << SHORT_BITS;
const SHORT_BITS: u8 = 6;

/// The window of one inbound SA. What every packet needs comes first.
///
/// A word that is left alone while the front moves on by 2^32 times the ring's length has its tag again and keeps its old
/// bits: what it cannot tell, it refuses.
#[derive(Debug)]
#[repr(C)]
pub struct ReplayWindow {
    /// The block of the highest number authenticated. With anti-replay off: that number.
    front: AtomicU64,
    size: u32,
    /// 0 when anti-replay is off.
    ring_bits: u8,
    esn: bool,
    /// The ring of a larger window, a power of two; empty with a short one, or when anti-replay is off.
    long: Box<[AtomicU64]>,
    short: [AtomicU64; SHORT],
}

impl ReplayWindow {
    /// The bytes that every packet needs, besides a word of the ring.
    pub(crate) const HOT: usize = std::mem::offset_of!(Self, long);

    /// `size` is brought into bounds. Size 0 switches anti-replay off, which only an SA
    /// without ESN can do: the window is what the high half is inferred from (RFC 4303 §3.3.3).
    pub fn new(size: u32, esn: bool) -> Self {
        let off = size == 0 && !esn;
        let size = size.clamp(WINDOW_MIN, WINDOW_MAX);
        // With this many, a word has passed to a later block only when all of its own is left of the window.
        let words = (size as usize + 31).div_ceil(32).next_power_of_two();
        let words = words.max(SHORT);
        let long = if off || words == SHORT { 0 } else { words };
        Self {
            front: AtomicU64::new(0),
            short: std::array::from_fn(|_| AtomicU64::new(0)),
            long: (0..long).map(|_| AtomicU64::new(0)).collect(),
            ring_bits: if off { 0 } else { words.ilog2() as u8 },
            esn,
            size: if off { 0 } else { size },
        }
    }

    /// As if `top` had been received and nothing before it, for tests near the wrap.
    pub fn starting_at(top: u64, size: u32, esn: bool) -> Self {
        let window = Self::new(size, esn);
        if top > 0 {
            // Nothing else is marked yet: it cannot be refused.
            let _ = window.commit(top);
        }
        window
    }

    /// The highest sequence number authenticated.
    pub fn top(&self) -> u64 {
        let front = self.front.load(Ordering::Acquire);
        self.word(front)
            .map_or(front, |word| self.top_of(front, word))
    }

    /// The number of sequence numbers that the window covers; 0 when anti-replay is off.
    pub fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    pub fn edges(&self) -> Edges {
        let top = self.top();
        Edges {
            top,
            bottom: top.wrapping_sub(u64::from(self.size)).wrapping_add(1),
        }
    }

    /// Infers the 64-bit sequence number and refuses what is surely a replay. Changes nothing.
    pub fn check(&self, sequence_low: u32) -> Result<u64, ReplayError> {
        self.check_between(self.edges(), sequence_low)
    }

    /// The same with what the edges were a while ago.
    #[inline]
    pub fn check_between(&self, edges: Edges, sequence_low: u32) -> Result<u64, ReplayError> {
        let mut sequence = u64::from(sequence_low);
        if self.esn {
            // RFC 4303 appendix A2.2: the one number with this low half in the 2^32 from the bottom on.
            let above = sequence_low.wrapping_sub(edges.bottom as u32);
            sequence = edges.bottom.wrapping_add(above.into());
            // None may lie below zero or beyond the last subspace.
            let below_zero = edges.bottom > edges.top;
            if (sequence < edges.bottom) != below_zero {
                return Err(ReplayError::BeforeWindow);
            }
        }
        match sequence > edges.top {
            true => Ok(sequence),
            false => self.check_seen(edges, sequence),
        }
    }

    fn check_seen(&self, edges: Edges, sequence: u64) -> Result<u64, ReplayError> {
        let block = sequence >> BLOCK_BITS;
        let Some(word) = self.word(block) else {
            return Ok(sequence);
        };
        // Number 0 is never sent (RFC 4303 §2.2).
        if sequence == 0 || edges.top - sequence >= self.size.into() {
            return Err(ReplayError::BeforeWindow);
        }
        match self.seen(block, word.load(Ordering::Relaxed)) & bit(sequence) {
            0 => Ok(sequence),
            _ => Err(ReplayError::Replayed),
        }
    }

    /// Has the processor fetch the word of a number, if the ring is short.
    #[inline(always)]
    pub(crate) fn prefetch(&self, sequence_low: u32) {
        // The high half makes no difference to the place.
        prefetch_line(&self.short[(sequence_low >> BLOCK_BITS) as usize % SHORT]);
    }

    /// Marks an authenticated sequence number. Says whether it is the highest so far.
    pub fn commit(&self, sequence: u64) -> Result<bool, ReplayError> {
        let committed = self.commit_block(block_of(sequence), bit(sequence));
        match (committed.accepted, committed.before) {
            (0, 0) => Err(ReplayError::Replayed),
            (0, _) => Err(ReplayError::BeforeWindow),
            _ => Ok(committed.newest),
        }
    }

    /// Marks several at once, those numbers of a block whose bit is set in `wanted`. The same as [`Self::commit`] of
    /// each, in order.
    #[inline]
    pub fn commit_block(&self, block: u64, wanted: u32) -> Committed {
        // What is not authentic must not move the front.
        if wanted == 0 {
            return Committed::default();
        }
        match self.word(block) {
            Some(word) => self.commit_in(word, block, wanted),
            None => Committed {
                accepted: wanted,
                before: 0,
                newest: self.commit_unchecked(highest(block, wanted)),
            },
        }
    }

    /// Anti-replay is off: only the highest number is kept.
    fn commit_unchecked(&self, sequence: u64) -> bool {
        sequence > self.front.load(Ordering::Relaxed)
            && sequence > self.front.fetch_max(sequence, Ordering::Relaxed)
    }

    #[inline]
    fn commit_in(&self, word: &AtomicU64, block: u64, wanted: u32) -> Committed {
        let mut found = word.load(Ordering::Acquire);
        loop {
            // Read after the word, see above.
            let mut front = self.front.load(Ordering::Acquire);
            if block > front {
                let former = self.front.fetch_max(block, Ordering::AcqRel);
                front = former.max(block);
            }
            // Number 0 is never sent (RFC 4303 §2.2). A block at the front is in the window as a whole.
            let mut bottom = 1;
            if block < front
                && let Some(word) = self.word(front)
            {
                let top = self.top_of(front, word);
                bottom = top.saturating_sub(u64::from(self.size) - 1).max(1);
            }
            let before = wanted & numbers_before(bottom, block);
            let seen = self.seen(block, found);
            let accepted = wanted & !before & !seen;
            let done = Committed {
                accepted,
                before,
                newest: block == front && accepted > seen,
            };
            if accepted == 0 {
                return done;
            }
            let marked = u64::from(self.tag(block)) << 32 | u64::from(seen | accepted);
            match word.compare_exchange(found, marked, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return done,
                Err(changed) => found = changed,
            }
        }
    }

    /// The word of a block; none when anti-replay is off.
    #[inline]
    fn word(&self, block: u64) -> Option<&AtomicU64> {
        match self.ring_bits {
            SHORT_BITS => Some(&self.short[block as usize % SHORT]),
            _ => self
                .long
                .get(block as usize & self.long.len().wrapping_sub(1)),
        }
    }

    fn tag(&self, block: u64) -> u32 {
        (block >> self.ring_bits) as u32
    }

    /// The numbers of `block` that were seen, by what is in its word.
    fn seen(&self, block: u64, word: u64) -> u32 {
        if (word >> 32) as u32 == self.tag(block) {
            word as u32
        } else {
            0
        }
    }

    /// The highest number seen in the front block; its first, if who moved the front has yet to mark.
    fn top_of(&self, front: u64, word: &AtomicU64) -> u64 {
        let seen = self.seen(front, word.load(Ordering::Acquire));
        highest(front, seen | 1)
    }
}

/// The block of a number.
#[inline]
pub(crate) fn block_of(sequence: u64) -> u64 {
    sequence >> BLOCK_BITS
}

/// A number's bit in its block.
#[inline]
pub(crate) fn bit(sequence: u64) -> u32 {
    1 << (sequence % 32)
}

/// The highest number of a block among those whose bits are set.
fn highest(block: u64, bits: u32) -> u64 {
    block << BLOCK_BITS | u64::from(bits.checked_ilog2().unwrap_or_default())
}

/// Bits for the numbers of a block that are less than `bottom`.
fn numbers_before(bottom: u64, block: u64) -> u32 {
    let count = bottom.saturating_sub(block << BLOCK_BITS).min(32);
    ((1u64 << count) - 1) as u32
}
