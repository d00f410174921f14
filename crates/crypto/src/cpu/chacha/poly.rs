//! Poly1305 (RFC 8439 §2.5) over one message at a time. It does the messages and blocks that the lanes leave, and the
//! powers of r.
//!
//! ```text
//! h = 0
//! for each block m:  h = (h + m + 2^128) * r  mod 2^130 - 5
//! tag = (h mod 2^130 - 5) + s  mod 2^128
//! ```
//!
//! An AEAD pads every block to 16 bytes, so the addend is always 2^128. A number has three limbs of 44, 44 and 42 bits,
//! as in the vector form. A limb may exceed its size by a few bits. 2^130 equals 5, and a limb 3 would start at 2^132.
//! Therefore what exceeds limb 2 is multiplied by 20 and added at the bottom.

use super::flow::OnceBlock;
use super::message::{AeadMessage, POLY_BLOCK};
use crate::plain::{Cleansed, Plain};

pub(super) const MASK_44: u64 = (1 << 44) - 1;
pub(super) const MASK_42: u64 = (1 << 42) - 1;
/// 2^128, in limb 2.
pub(super) const HIGH: u64 = 1 << 40;
/// The bits that r may have (RFC 8439 §2.5.1), as masks of its two halves.
pub(super) const CLAMP_LOW: u64 = 0x0fff_fffc_0fff_ffff;
pub(super) const CLAMP_HIGH: u64 = 0x0fff_fffc_0fff_fffc;

/// A number below 2^131 in three limbs.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) [u64; 3]);

// SAFETY: the struct consists of integers, and zero is a valid value.
unsafe impl Plain for Number {}
// SAFETY: same as above.
unsafe impl<const N: usize> Plain for [Number; N] {}

impl Number {
    pub(super) const ZERO: Self = Self([0; 3]);

    /// Splits the 128-bit number with halves `low` and `high` into limbs.
    #[inline]
    pub(super) fn new(low: u64, high: u64) -> Self {
        Self([
            low & MASK_44,
            (low >> 44 | high << 20) & MASK_44,
            high >> 24,
        ])
    }

    /// The multiplier r of a one-time key.
    pub(super) fn clamped(once: &[u8; 16]) -> Self {
        let (low, high) = halves(once);
        Self::new(low & CLAMP_LOW, high & CLAMP_HIGH)
    }

    #[inline]
    pub(super) fn add(self, other: Self) -> Self {
        Self([0, 1, 2].map(|limb| self.0[limb] + other.0[limb]))
    }

    /// Returns the product with its limbs carried.
    #[inline]
    pub(super) fn times(self, r: Self) -> Self {
        let [h0, h1, h2] = self.0.map(u128::from);
        let [r0, r1, r2] = r.0.map(u128::from);
        let (s1, s2) = (20 * r1, 20 * r2);
        let d0 = h0 * r0 + h1 * s2 + h2 * s1;
        let d1 = h0 * r1 + h1 * r0 + h2 * s2 + (d0 >> 44);
        let d2 = h0 * r2 + h1 * r1 + h2 * r0 + (d1 >> 44);
        let h0 = (d0 as u64 & MASK_44) + 5 * (d2 >> 42) as u64;
        let h1 = (d1 as u64 & MASK_44) + (h0 >> 44);
        Self([h0 & MASK_44, h1, d2 as u64 & MASK_42])
    }

    /// Adds one block and multiplies by r.
    #[inline]
    pub(super) fn absorb(self, block: &[u8; 16], r: Self) -> Self {
        let (low, high) = halves(block);
        self.absorb_halves(low, high, r)
    }

    #[inline]
    pub(super) fn absorb_halves(self, low: u64, high: u64, r: Self) -> Self {
        let mut block = Self::new(low, high);
        block.0[2] |= HIGH;
        self.add(block).times(r)
    }

    /// Returns the tag: the number modulo p plus the s of a one-time key.
    pub(super) fn tag_of_block(self, once: &OnceBlock) -> [u8; 16] {
        self.tag(&Once::new(once).s.0)
    }

    /// Returns the tag: the number modulo p plus s.
    pub(super) fn tag(self, s: &[u8; 16]) -> [u8; 16] {
        let [mut h0, mut h1, mut h2] = self.0;
        // Carries twice: the first pass may carry from limb 2 into limb 0, and from there on.
        for _ in 0..2 {
            h1 += h0 >> 44;
            h2 += h1 >> 44;
            h0 = (h0 & MASK_44) + 5 * (h2 >> 42);
            h1 &= MASK_44;
            h2 &= MASK_42;
        }
        h1 += h0 >> 44;
        h0 &= MASK_44;
        // h + 5 has bit 130 exactly if h is at least 2^130 - 5. Then h mod p is h + 5 without that bit.
        let g0 = h0 + 5;
        let g1 = h1 + (g0 >> 44);
        let g2 = h2 + (g1 >> 44);
        let take = (g2 >> 42 & 1).wrapping_neg();
        let pick = |h: u64, g: u64| h & !take | g & take;
        let (h0, h1, h2) = (
            pick(h0, g0 & MASK_44),
            pick(h1, g1 & MASK_44),
            pick(h2, g2 & MASK_42),
        );
        let whole = u128::from(h0) + (u128::from(h1) << 44) + (u128::from(h2) << 88);
        whole.wrapping_add(u128::from_le_bytes(*s)).to_le_bytes()
    }
}

impl Number {
    /// Converts to five limbs of 26 bits.
    pub(super) fn limbs_26(self) -> [u64; 5] {
        let [h0, h1, h2] = self.times(Self([1, 0, 0])).0;
        // After the multiplication each limb exceeds its size by one bit at most.
        let low = u128::from(h0) + (u128::from(h1) << 44) + (u128::from(h2 & 0xffff) << 88);
        let mask = (1 << 26) - 1;
        let limb = |at: u32| (low >> (26 * at)) as u64 & mask;
        let top = (low >> 104) as u64 + (h2 >> 16);
        [limb(0), limb(1), limb(2), limb(3), top]
    }

    /// Converts from five limbs of 26 bits or a little more.
    pub(super) fn from_limbs_26(limbs: [u64; 5]) -> Self {
        let low = (0..4).fold(0, |sum, at| sum + (u128::from(limbs[at]) << (26 * at)));
        let limb = |bits: u32| (low >> bits) as u64;
        Self([
            limb(0) & MASK_44,
            limb(44) & MASK_44,
            limb(88) + (limbs[4] << 16),
        ])
    }
}

/// Approximate costs, in cycles, of each way to compute tags on a machine.
pub(super) struct Costs {
    /// Number of lanes in a group.
    pub(super) lanes: usize,
    /// The cost of one block in each lane of one group, across messages.
    pub(super) one_group: usize,
    /// The cost of one block in each lane of two groups, across messages.
    pub(super) two_groups: usize,
    /// The cost of the powers of r, along one message.
    pub(super) powers: usize,
    /// The number of blocks in a step, along one message.
    pub(super) along: usize,
    /// The cost of each step, along one message.
    pub(super) along_step: usize,
    /// The cost of one block by itself.
    pub(super) alone: usize,
}

impl Costs {
    fn alone(&self, blocks: usize) -> usize {
        (blocks + 3) * self.alone
    }

    fn along(&self, blocks: usize) -> usize {
        self.powers + blocks / self.along * self.along_step
    }

    /// Returns true if a single message is best done one block at a time.
    pub(super) fn alone_is_best(&self, blocks: usize) -> bool {
        self.alone(blocks) <= self.along(blocks)
    }
}

/// Returns how many of the messages are better done singly. The messages are sorted, the longest first, and are at
/// most as many as two groups of lanes take.
pub(super) fn single_count(costs: &Costs, messages: &[&mut AeadMessage<'_>]) -> usize {
    let (mut best, mut best_cost, mut singles) = (0, usize::MAX, 0);
    for split in 0..=messages.len() {
        let across = messages.get(split).map_or(0, |longest| {
            let few = messages.len() - split <= costs.lanes;
            let step = if few {
                costs.one_group
            } else {
                costs.two_groups
            };
            (longest.poly_blocks() + 4) * step
        });
        if singles + across < best_cost {
            (best, best_cost) = (split, singles + across);
        }
        if let Some(message) = messages.get(split) {
            let blocks = message.poly_blocks();
            singles += costs.alone(blocks).min(costs.along(blocks));
        }
    }
    best
}

/// Returns the two little-endian halves of a block.
#[inline]
pub(super) fn halves(block: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    (whole as u64, (whole >> 64) as u64)
}

/// The one-time key of a message: the first 32 bytes of ChaCha20's block 0 (RFC 8439 §2.6).
pub(super) struct Once {
    pub(super) r: Cleansed<Number>,
    pub(super) s: Cleansed<[u8; 16]>,
}

impl Once {
    pub(super) fn new(block: &OnceBlock) -> Self {
        let (mut r, mut s) = ([0; 16], [0; 16]);
        r.copy_from_slice(&block[..16]);
        s.copy_from_slice(&block[16..32]);
        let number = Number::clamped(&r);
        crate::plain::cleanse(&mut r);
        Self {
            r: Cleansed(number),
            s: Cleansed(s),
        }
    }

    /// Returns the accumulator after the whole AAD.
    pub(super) fn after_aad(&self, message: &AeadMessage<'_>) -> Number {
        let h = self.after_aad_front(message);
        if message.aad_len == 0 {
            return h;
        }
        h.absorb(&message.last_aad, self.r.0)
    }

    /// Returns the accumulator after the AAD without its last block.
    pub(super) fn after_aad_front(&self, message: &AeadMessage<'_>) -> Number {
        let (blocks, _) = message.aad_front().as_chunks::<POLY_BLOCK>();
        blocks
            .iter()
            .fold(Number::ZERO, |h, block| h.absorb(block, self.r.0))
    }

    /// Returns the tag. It absorbs the ciphertext from offset `from` on, and then the lengths.
    ///
    /// # Safety
    /// - `text` is valid for reads of the message's length.
    /// - `from` is at most that length.
    pub(super) unsafe fn finish(
        &self,
        message: &AeadMessage<'_>,
        text: *const u8,
        from: usize,
        mut h: Number,
    ) -> [u8; 16] {
        // SAFETY: the caller guarantees `message.len` bytes, and `from` is at most that.
        let rest = unsafe { std::slice::from_raw_parts(text.add(from), message.len - from) };
        let (blocks, last) = rest.as_chunks::<POLY_BLOCK>();
        for block in blocks {
            h = h.absorb(block, self.r.0);
        }
        if !last.is_empty() {
            let mut block = [0; POLY_BLOCK];
            block[..last.len()].copy_from_slice(last);
            h = h.absorb(&block, self.r.0);
        }
        h.absorb_halves(message.aad_len as u64, message.len as u64, self.r.0)
            .tag(&self.s.0)
    }
}
