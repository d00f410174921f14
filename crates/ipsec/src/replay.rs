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
const BLOCK_LAST: u64 = u64::MAX >> BLOCK_BITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the sequence number was seen before")]
    Replayed,
    #[error("the sequence number lies left of the window")]
    BeforeWindow,
}

/// What [`ReplayWindow::commit_run`] found. Numbers wanted and neither accepted nor before the window are replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Bit i: number `first + i` is new and may pass.
    pub accepted: u64,
    /// Bit i: number `first + i` lies left of the window.
    pub before: u64,
    /// The highest accepted number is the highest so far.
    pub newest: bool,
}

/// The window of one inbound SA.
#[derive(Debug)]
pub struct ReplayWindow {
    /// The block of the highest number authenticated. With anti-replay off: that number.
    front: AtomicU64,
    /// Empty when anti-replay is off, else a power of two. A word that is left alone while the front moves on by
    /// 2^32 times the ring's length has its tag again and keeps its old bits: what it cannot tell, it refuses.
    ring: Box<[AtomicU64]>,
    ring_bits: u8,
    esn: bool,
    size: u32,
}

impl ReplayWindow {
    /// `size` is brought into bounds. Size 0 switches anti-replay off, which only an SA
    /// without ESN can do: the window is what the high half is inferred from (RFC 4303 §3.3.3).
    pub fn new(size: u32, esn: bool) -> Self {
        let off = size == 0 && !esn;
        let size = size.clamp(WINDOW_MIN, WINDOW_MAX);
        // With this many, a word has passed to a later block only when all of its own is left of the window.
        let words = (size as usize + 31).div_ceil(32).next_power_of_two();
        let words = if off { 0 } else { words };
        Self {
            front: AtomicU64::new(0),
            ring: (0..words).map(|_| AtomicU64::new(0)).collect(),
            ring_bits: words.checked_ilog2().unwrap_or_default() as u8,
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

    /// Infers the 64-bit sequence number and refuses what is surely a replay. Changes nothing.
    pub fn check(&self, sequence_low: u32) -> Result<u64, ReplayError> {
        let top = self.top();
        let sequence = if self.esn {
            self.infer(top, sequence_low)?
        } else {
            u64::from(sequence_low)
        };
        let block = sequence >> BLOCK_BITS;
        let Some(word) = self.word(block).filter(|_| sequence <= top) else {
            return Ok(sequence);
        };
        // Number 0 is never sent (RFC 4303 §2.2).
        if sequence == 0 || top - sequence >= self.size.into() {
            return Err(ReplayError::BeforeWindow);
        }
        match self.seen(block, word.load(Ordering::Relaxed)) & bit(sequence) {
            0 => Ok(sequence),
            _ => Err(ReplayError::Replayed),
        }
    }

    /// Has the processor fetch what [`Self::check`] of a number will read behind a pointer.
    #[inline]
    pub(crate) fn prefetch(&self, sequence_low: u32) {
        // The length of the ring is a power of two: the high half makes no difference.
        if let Some(word) = self.word(u64::from(sequence_low) >> BLOCK_BITS) {
            prefetch_line(word);
        }
    }

    /// Marks an authenticated sequence number. Says whether it is the highest so far.
    pub fn commit(&self, sequence: u64) -> Result<bool, ReplayError> {
        let block = sequence >> BLOCK_BITS;
        let Some(word) = self.word(block) else {
            return Ok(self.commit_unchecked(sequence));
        };
        let committed = self.commit_block(word, block, bit(sequence));
        match (committed.accepted, committed.before) {
            (0, 0) => Err(ReplayError::Replayed),
            (0, _) => Err(ReplayError::BeforeWindow),
            _ => Ok(committed.newest),
        }
    }

    /// Marks several at once, of the 64 numbers from `first` on those whose bit is set in `wanted`: one atomic
    /// operation for each 32 of them. The same as [`Self::commit`] of each, in order.
    pub fn commit_run(&self, first: u64, wanted: u64) -> Committed {
        let mut all = Committed::default();
        if wanted == 0 {
            return all;
        }
        let shift = first as u32 % 32;
        let mut numbers = u128::from(wanted) << shift;
        let mut block = first >> BLOCK_BITS;
        let mut at = 0;
        while numbers != 0 && block <= BLOCK_LAST {
            let wanted = numbers as u32;
            if wanted != 0 {
                let part = match self.word(block) {
                    Some(word) => self.commit_block(word, block, wanted),
                    None => BlockCommitted {
                        accepted: wanted,
                        before: 0,
                        newest: self.commit_unchecked(highest(block, wanted)),
                    },
                };
                all.accepted |= ((u128::from(part.accepted) << at) >> shift) as u64;
                all.before |= ((u128::from(part.before) << at) >> shift) as u64;
                all.newest = part.newest;
            }
            numbers >>= 32;
            at += 32;
            block += 1;
        }
        all
    }

    /// Anti-replay is off: only the highest number is kept.
    fn commit_unchecked(&self, sequence: u64) -> bool {
        sequence > self.front.load(Ordering::Relaxed)
            && sequence > self.front.fetch_max(sequence, Ordering::Relaxed)
    }

    fn commit_block(&self, word: &AtomicU64, block: u64, wanted: u32) -> BlockCommitted {
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
            let done = BlockCommitted {
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

    /// RFC 4303 appendix A2.2. The window spans `bottom..=top`; the names are the RFC's.
    fn infer(&self, top: u64, sequence_low: u32) -> Result<u64, ReplayError> {
        let top_low = top as u32;
        let top_high = (top >> 32) as u32;
        let bottom = top_low.wrapping_sub(self.size - 1);
        let high = if top_low >= self.size - 1 {
            // Case A: the window lies within one subspace.
            if sequence_low >= bottom {
                Some(top_high)
            } else {
                top_high.checked_add(1)
            }
        } else if sequence_low >= bottom {
            // Case B: the window reaches into the subspace before.
            top_high.checked_sub(1)
        } else {
            Some(top_high)
        };
        let high = high.ok_or(ReplayError::BeforeWindow)?;
        Ok(u64::from(high) << 32 | u64::from(sequence_low))
    }

    /// The word of a block; none when anti-replay is off.
    fn word(&self, block: u64) -> Option<&AtomicU64> {
        let mask = self.ring.len().wrapping_sub(1);
        self.ring.get(block as usize & mask)
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

struct BlockCommitted {
    accepted: u32,
    before: u32,
    newest: bool,
}

fn bit(sequence: u64) -> u32 {
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
