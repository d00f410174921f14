//! Anti-replay (RFC 4303 §3.4.3) with extended sequence numbers (appendix A2), without locks.
//!
//! `check` runs before the ICV is verified: it reads the window and infers the high half of the number. `commit` runs
//! after the ICV was verified: it tests the number again and marks it. The second test is needed because two copies
//! of a packet can be in one batch, or with two workers.
//!
//! Sequence numbers are grouped into blocks of 32. A ring of words holds the last blocks. The high half of a word is
//! the tag of its block. The low half has one bit for each number seen. So one compare-and-swap takes the word over
//! from an earlier block and marks numbers in it.
//!
//! `front` is the highest block. It moves before any word of that block is written, and it is read after the word. A
//! commit therefore sees that its number is out of the window if a later block has the word. So no interleaving of
//! any number of threads accepts a number twice (`tests/models.rs` checks it).

use std::sync::OnceLock;

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

/// The result of [`ReplayWindow::commit_block`]. Wanted numbers that are neither accepted nor before the window are
/// replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Bit i is set if number i of the block is new and may pass.
    pub accepted: u32,
    /// Bit i is set if number i of the block lies left of the window.
    pub before: u32,
    /// True if the highest accepted number is the highest so far.
    pub newest: bool,
}

/// The edges of a window at one moment, for all packets of a run.
#[derive(Clone, Copy, Debug)]
pub struct Edges {
    top: u64,
    /// The lowest number in the window. It wraps below zero while the window is larger than the highest number.
    bottom: u64,
}

/// The number of words that are kept in the window itself. They are the whole ring of windows up to 1,024 numbers, and the
/// start of larger rings.
const SHORT: usize = 1 << SHORT_BITS;
const SHORT_BITS: u8 = 6;
/// The number of words in the ring of the largest window.
const RING_MAX: usize = (WINDOW_MAX as usize + 31).div_ceil(32).next_power_of_two();

/// The replay window of one inbound SA. The fields that every packet needs come first.
///
/// A word keeps its old bits if it is unused while the front moves on by 2^32 ring lengths. Its tag is then the same
/// again. The window then refuses the numbers of those bits, although they are new.
#[derive(Debug)]
#[repr(C)]
pub struct ReplayWindow {
    /// The block of the highest authenticated number. With anti-replay off: that number itself.
    front: AtomicU64,
    size: u32,
    /// The logarithm of the ring's length to base 2. It is 0 when anti-replay is off.
    ring_bits: u8,
    esn: bool,
    /// The words of a larger ring behind `short`. They are made for the first packet that needs one of them: most SAs of
    /// a gateway with many peers carry few packets before they are rekeyed.
    rest: OnceLock<Box<[AtomicU64]>>,
    short: [AtomicU64; SHORT],
}

impl ReplayWindow {
    /// The number of bytes at the start that every packet needs, besides one word of the ring.
    pub(crate) const HOT: usize = std::mem::offset_of!(Self, rest);

    /// Makes a window of `size` numbers, brought into bounds. Size 0 switches anti-replay off. Only an SA without ESN
    /// can do so, because the high half is inferred from the window (RFC 4303 §3.3.3).
    pub fn new(size: u32, esn: bool) -> Self {
        let off = size == 0 && !esn;
        let size = size.clamp(WINDOW_MIN, WINDOW_MAX);
        // With this many words, a word passes to a later block only when its whole former block lies left of the
        // window.
        let words = (size as usize + 31).div_ceil(32).next_power_of_two();
        let words = words.max(SHORT);
        Self {
            front: AtomicU64::new(0),
            short: std::array::from_fn(|_| AtomicU64::new(0)),
            rest: OnceLock::new(),
            ring_bits: if off { 0 } else { words.ilog2() as u8 },
            esn,
            size: if off { 0 } else { size },
        }
    }

    /// Makes a window as if `top` had been received and nothing before it, for tests near the wrap.
    pub fn starting_at(top: u64, size: u32, esn: bool) -> Self {
        let window = Self::new(size, esn);
        if top > 0 {
            // No other number is marked yet, so the window cannot refuse this one.
            let _ = window.commit(top);
        }
        window
    }

    /// The highest sequence number authenticated.
    pub fn top(&self) -> u64 {
        self.top_at(self.front.load(Ordering::Acquire))
    }

    #[inline]
    fn is_off(&self) -> bool {
        self.ring_bits == 0
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

    /// Infers the 64-bit sequence number and refuses certain replays. Changes nothing.
    pub fn check(&self, sequence_low: u32) -> Result<u64, ReplayError> {
        self.check_between(self.edges(), sequence_low)
    }

    /// Does the work of [`Self::check`] with edges that were read some time ago.
    #[inline]
    pub fn check_between(&self, edges: Edges, sequence_low: u32) -> Result<u64, ReplayError> {
        let mut sequence = u64::from(sequence_low);
        if self.esn {
            // RFC 4303 appendix A2.2: among the 2^32 numbers from the bottom on, exactly one has this low half.
            let above = sequence_low.wrapping_sub(edges.bottom as u32);
            sequence = edges.bottom.wrapping_add(above.into());
            // No number may lie below zero or beyond the last subspace.
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
        let word = self.word(block);
        if word.is_none() && self.is_off() {
            return Ok(sequence);
        }
        // Number 0 is never sent (RFC 4303 §2.2).
        if sequence == 0 || edges.top - sequence >= self.size.into() {
            return Err(ReplayError::BeforeWindow);
        }
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        match self.seen(block, word) & bit(sequence) {
            0 => Ok(sequence),
            _ => Err(ReplayError::Replayed),
        }
    }

    /// Makes the processor fetch the word of a number, if that is one of the first.
    #[inline(always)]
    pub(crate) fn prefetch(&self, sequence_low: u32) {
        // The index of the word does not depend on the high half.
        prefetch_line(&self.short[(sequence_low >> BLOCK_BITS) as usize % SHORT]);
    }

    /// Marks an authenticated sequence number. Returns true if it is the highest so far.
    pub fn commit(&self, sequence: u64) -> Result<bool, ReplayError> {
        let committed = self.commit_block(block_of(sequence), bit(sequence));
        match (committed.accepted, committed.before) {
            (0, 0) => Err(ReplayError::Replayed),
            (0, _) => Err(ReplayError::BeforeWindow),
            _ => Ok(committed.newest),
        }
    }

    /// Marks the numbers of a block whose bits are set in `wanted`. The effect is that of [`Self::commit`] for each
    /// number, in order.
    #[inline]
    pub fn commit_block(&self, block: u64, wanted: u32) -> Committed {
        // A block without authentic numbers must not move the front.
        if wanted == 0 {
            return Committed::default();
        }
        // The word is there before the front moves to its block.
        let word = match self.word(block) {
            None if !self.is_off() => self.make_word(block),
            word => word,
        };
        match word {
            Some(word) => self.commit_in(word, block, wanted),
            None => Committed {
                accepted: wanted,
                before: 0,
                newest: self.commit_unchecked(highest(block, wanted)),
            },
        }
    }

    /// Keeps the highest number only, as anti-replay is off. Returns true if `sequence` is the highest so far.
    fn commit_unchecked(&self, sequence: u64) -> bool {
        sequence > self.front.load(Ordering::Relaxed)
            && sequence > self.front.fetch_max(sequence, Ordering::Relaxed)
    }

    #[inline]
    fn commit_in(&self, word: &AtomicU64, block: u64, wanted: u32) -> Committed {
        let mut found = word.load(Ordering::Acquire);
        loop {
            // The front must be read after the word: see the head of this file.
            let mut front = self.front.load(Ordering::Acquire);
            if block > front {
                let former = self.front.fetch_max(block, Ordering::AcqRel);
                front = former.max(block);
            }
            // Number 0 is never sent (RFC 4303 §2.2). The front block lies in the window as a whole.
            let mut bottom = 1;
            if block < front {
                let top = self.top_at(front);
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

    /// Returns the word of a block. Returns `None` if anti-replay is off, or if no packet has needed the block's part of
    /// the ring yet: nothing is marked there.
    #[inline]
    fn word(&self, block: u64) -> Option<&AtomicU64> {
        match self.ring_bits {
            0 => None,
            SHORT_BITS => Some(&self.short[block as usize % SHORT]),
            _ => {
                let index = self.index(block);
                let in_rest = || self.rest.get()?.get(index - SHORT);
                self.short.get(index).or_else(in_rest)
            }
        }
    }

    #[cold]
    fn make_word(&self, block: u64) -> Option<&AtomicU64> {
        let len = (1_usize << self.ring_bits).clamp(SHORT, RING_MAX) - SHORT;
        let zeros = || (0..len).map(|_| AtomicU64::new(0)).collect();
        let rest = self.rest.get_or_init(zeros);
        rest.get(self.index(block).checked_sub(SHORT)?)
    }

    #[inline]
    fn index(&self, block: u64) -> usize {
        block as usize & ((1 << self.ring_bits) - 1)
    }

    fn tag(&self, block: u64) -> u32 {
        (block >> self.ring_bits) as u32
    }

    /// Returns the bits of the numbers of `block` that were seen, given the contents of its word.
    fn seen(&self, block: u64, word: u64) -> u32 {
        if (word >> 32) as u32 == self.tag(block) {
            word as u32
        } else {
            0
        }
    }

    /// The highest number seen, if `front` is the front. It is the first number of the front block if the thread that
    /// moved the front has not marked a number yet.
    fn top_at(&self, front: u64) -> u64 {
        let seen = match self.word(front) {
            Some(word) => self.seen(front, word.load(Ordering::Acquire)),
            None if self.is_off() => return front,
            None => 0,
        };
        highest(front, seen | 1)
    }
}

/// The block of a sequence number.
#[inline]
pub(crate) fn block_of(sequence: u64) -> u64 {
    sequence >> BLOCK_BITS
}

/// The bit of a sequence number in its block.
#[inline]
pub(crate) fn bit(sequence: u64) -> u32 {
    1 << (sequence % 32)
}

/// The highest number of a block among those whose bits are set.
fn highest(block: u64, bits: u32) -> u64 {
    block << BLOCK_BITS | u64::from(bits.checked_ilog2().unwrap_or_default())
}

/// Sets the bits of those numbers of `block` that are less than `bottom`.
fn numbers_before(bottom: u64, block: u64) -> u32 {
    let count = bottom.saturating_sub(block << BLOCK_BITS).min(32);
    ((1u64 << count) - 1) as u32
}
