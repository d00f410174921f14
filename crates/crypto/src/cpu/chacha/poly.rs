//! Poly1305 (RFC 8439 §2.5) over one message at a time: for what is left beside the lanes, and for powers of r.
//!
//! ```text
//! h = 0
//! for each block m:  h = (h + m + 2^128) * r  mod 2^130 - 5
//! tag = (h mod 2^130 - 5) + s  mod 2^128
//! ```
//!
//! Every block of an AEAD is padded to 16 bytes, so that 2^128 is always added.
//! A number is three limbs of 44, 44 and 42 bits, as in the vector form, and may exceed them by a few bits.
//! 2^130 = 5, and limb 3 would start at 2^132: what goes beyond limb 2 comes back times 20.

use super::flow::OnceBlock;
use super::message::{Message, POLY_BLOCK};
use crate::plain::{Cleansed, Plain};

pub(super) const MASK_44: u64 = (1 << 44) - 1;
pub(super) const MASK_42: u64 = (1 << 42) - 1;
/// 2^128 in limb 2.
pub(super) const HIGH: u64 = 1 << 40;
/// Bits that r must not have (RFC 8439 §2.5.1).
pub(super) const CLAMP_LOW: u64 = 0x0fff_fffc_0fff_ffff;
pub(super) const CLAMP_HIGH: u64 = 0x0fff_fffc_0fff_fffc;

/// A number below 2^131 in three limbs.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) [u64; 3]);

// SAFETY: integers.
unsafe impl Plain for Number {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [Number; N] {}

impl Number {
    pub(super) const ZERO: Self = Self([0; 3]);

    /// From the 128 bits of `low` and `high`.
    #[inline]
    pub(super) fn new(low: u64, high: u64) -> Self {
        Self([
            low & MASK_44,
            (low >> 44 | high << 20) & MASK_44,
            high >> 24,
        ])
    }

    /// The multiplier of a one-time key.
    pub(super) fn clamped(once: &[u8; 16]) -> Self {
        let (low, high) = halves(once);
        Self::new(low & CLAMP_LOW, high & CLAMP_HIGH)
    }

    #[inline]
    pub(super) fn add(self, other: Self) -> Self {
        Self([0, 1, 2].map(|limb| self.0[limb] + other.0[limb]))
    }

    /// The product, its limbs carried.
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

    /// Takes one block in.
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

    /// The least representative, plus the s of a one-time key.
    pub(super) fn tag_of_block(self, once: &OnceBlock) -> [u8; 16] {
        self.tag(&Once::new(once).s.0)
    }

    /// The least representative, plus s.
    pub(super) fn tag(self, s: &[u8; 16]) -> [u8; 16] {
        let [mut h0, mut h1, mut h2] = self.0;
        // Twice around: the first may carry from limb 2 to limb 0 and that on.
        for _ in 0..2 {
            h1 += h0 >> 44;
            h2 += h1 >> 44;
            h0 = (h0 & MASK_44) + 5 * (h2 >> 42);
            h1 &= MASK_44;
            h2 &= MASK_42;
        }
        h1 += h0 >> 44;
        h0 &= MASK_44;
        // h + 5 has bit 130 just if h is 2^130 - 5 or more: then h mod p is that without the bit.
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
    /// As five limbs of 26 bits.
    pub(super) fn limbs_26(self) -> [u64; 5] {
        let [h0, h1, h2] = self.times(Self([1, 0, 0])).0;
        // The limbs have no more than a bit too much.
        let low = u128::from(h0) + (u128::from(h1) << 44) + (u128::from(h2 & 0xffff) << 88);
        let mask = (1 << 26) - 1;
        let limb = |at: u32| (low >> (26 * at)) as u64 & mask;
        let top = (low >> 104) as u64 + (h2 >> 16);
        [limb(0), limb(1), limb(2), limb(3), top]
    }

    /// From five limbs of 26 bits or a little more.
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

/// About what each way to a tag costs on a machine, in cycles.
pub(super) struct Costs {
    /// Lanes of a group.
    pub(super) lanes: usize,
    /// A block in each lane of a group across messages, or of two groups.
    pub(super) one_group: usize,
    pub(super) two_groups: usize,
    /// Along a message: the powers of r, and then each so many blocks.
    pub(super) powers: usize,
    pub(super) along: usize,
    pub(super) along_step: usize,
    /// A block by itself.
    pub(super) alone: usize,
}

impl Costs {
    fn alone(&self, blocks: usize) -> usize {
        (blocks + 3) * self.alone
    }

    fn along(&self, blocks: usize) -> usize {
        self.powers + blocks / self.along * self.along_step
    }

    /// Whether a single message is best done a block at a time.
    pub(super) fn alone_is_best(&self, blocks: usize) -> bool {
        self.alone(blocks) <= self.along(blocks)
    }
}

/// How many messages are better done singly, of those for two groups of lanes. They are sorted, the longest first.
pub(super) fn single_count(costs: &Costs, messages: &[&mut Message<'_>]) -> usize {
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

/// The two little-endian halves of a block.
#[inline]
pub(super) fn halves(block: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    (whole as u64, (whole >> 64) as u64)
}

/// The one-time key of one message, as ChaCha20's block 0 begins with it (RFC 8439 §2.6).
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

    /// The accumulator behind all of the AAD.
    pub(super) fn after_aad(&self, message: &Message<'_>) -> Number {
        let h = self.after_aad_front(message);
        if message.aad_len == 0 {
            return h;
        }
        h.absorb(&message.last_aad, self.r.0)
    }

    /// The accumulator behind the AAD but its last block.
    pub(super) fn after_aad_front(&self, message: &Message<'_>) -> Number {
        let (blocks, _) = message.aad_front().as_chunks::<POLY_BLOCK>();
        blocks
            .iter()
            .fold(Number::ZERO, |h, block| h.absorb(block, self.r.0))
    }

    /// Takes in what follows `from` of a message's ciphertext, and the lengths.
    ///
    /// # Safety
    /// `text` is valid for reads of the message's length.
    pub(super) unsafe fn finish(
        &self,
        message: &Message<'_>,
        text: *const u8,
        from: usize,
        mut h: Number,
    ) -> [u8; 16] {
        // SAFETY: the caller's promise; `from` is at most the length.
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
