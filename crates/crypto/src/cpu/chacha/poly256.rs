//! Poly1305 with 32-bit multiplications in four lanes of AVX2: the algorithm of [`super::poly512`] with vectors of
//! half the size.
//!
//! A number is five vectors of limbs of 26 bits. Their products, and sums of those products, fit 64 bits. Across
//! messages a lane is one message. Along one message a lane is every eighth block, and powers of r are used. The
//! blocks that are left are done one at a time.

use std::arch::x86_64::*;

use super::flow::{OnceBlock, Side};
use super::message::{Message, POLY_BLOCK};
use super::poly::{CLAMP_HIGH, CLAMP_LOW, Costs, Number, Once, single_count};
use crate::plain::Cleansed;

const LANES: usize = 4;
/// Number of messages that are done at once across lanes.
const ACROSS: usize = 2 * LANES;
const MASK: u64 = (1 << 26) - 1;

const COSTS: Costs = Costs {
    lanes: LANES,
    one_group: 50,
    two_groups: 62,
    powers: 260,
    along: 8,
    along_step: 64,
    alone: 17,
};

/// Sets each message's tag.
///
/// # Safety
/// The obligations are those of [`super::flow::Machine::tags`].
pub(super) unsafe fn tags(messages: &mut [&mut Message<'_>], once: &[OnceBlock], text: Side) {
    for (messages, once) in messages.chunks_mut(ACROSS).zip(once.chunks(ACROSS)) {
        let split = single_count(&COSTS, messages);
        let (singles, rest) = messages.split_at_mut(split);
        for (message, once) in singles.iter_mut().zip(once) {
            // SAFETY: the caller guarantees the instructions and the ciphertexts.
            message.tag = unsafe { single(message, once, text.of(message)) };
        }
        // SAFETY: same as above.
        unsafe {
            match rest.len() {
                0 => {}
                1..=LANES => across::<1>(rest, &once[split..], text),
                _ => across::<2>(rest, &once[split..], text),
            }
        }
    }
}

/// Returns the tag of one message, computed along it or one block at a time.
///
/// # Safety
/// - The processor has AVX2.
/// - `text` is valid for reads of the message's length.
unsafe fn single(message: &Message<'_>, once: &OnceBlock, text: *const u8) -> [u8; 16] {
    let once = Once::new(once);
    let h = once.after_aad(message);
    let blocks = message.len / POLY_BLOCK / ACROSS * ACROSS;
    // SAFETY: the caller guarantees the instructions and the text.
    unsafe {
        if COSTS.alone_is_best(message.poly_blocks()) {
            return once.finish(message, text, 0, h);
        }
        let h = along(&once, h, text, blocks);
        once.finish(message, text, blocks * POLY_BLOCK, h)
    }
}

/// Four numbers. A vector holds one limb of each.
#[derive(Clone, Copy)]
struct Numbers([__m256i; 5]);

/// Four multipliers: all limbs, and each limb times 5.
#[derive(Clone, Copy)]
struct Multipliers {
    r: [__m256i; 5],
    s: [__m256i; 5],
}

impl Multipliers {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(r: [__m256i; 5]) -> Self {
        let mut s = r;
        for limb in &mut s {
            *limb = _mm256_add_epi64(*limb, _mm256_slli_epi64::<2>(*limb));
        }
        Self { r, s }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(value: u64) -> __m256i {
    _mm256_set1_epi64x(value as i64)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &[u64; LANES]) -> __m256i {
    // SAFETY: the array has four numbers.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// Splits the 128 bits of `low` and `high` into limbs.
#[inline]
#[target_feature(enable = "avx2")]
fn split(low: __m256i, high: __m256i) -> [__m256i; 5] {
    let mask = splat(MASK);
    let middle = _mm256_or_si256(_mm256_srli_epi64::<52>(low), _mm256_slli_epi64::<12>(high));
    [
        _mm256_and_si256(low, mask),
        _mm256_and_si256(_mm256_srli_epi64::<26>(low), mask),
        _mm256_and_si256(middle, mask),
        _mm256_and_si256(_mm256_srli_epi64::<14>(high), mask),
        _mm256_srli_epi64::<40>(high),
    ]
}

impl Numbers {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        Self([_mm256_setzero_si256(); 5])
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn from_numbers(numbers: &[Number; LANES]) -> Self {
        let mut limbs = [[0; LANES]; 5];
        for (lane, number) in numbers.iter().enumerate() {
            for (limb, value) in limbs.iter_mut().zip(number.limbs_26()) {
                limb[lane] = value;
            }
        }
        let mut out = Self::zero();
        for (vector, limb) in out.0.iter_mut().zip(&limbs) {
            *vector = load(limb);
        }
        out
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn to_numbers(self) -> [Number; LANES] {
        let mut limbs = [[0u64; LANES]; 5];
        for (limb, vector) in limbs.iter_mut().zip(self.0) {
            // SAFETY: the array has room for four numbers.
            unsafe { _mm256_storeu_si256(limb.as_mut_ptr().cast(), vector) };
        }
        [0, 1, 2, 3].map(|lane| Number::from_limbs_26(limbs.map(|limb| limb[lane])))
    }

    /// Adds a block and its 2^128 in each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_block(self, low: __m256i, high: __m256i) -> Self {
        let mut m = split(low, high);
        m[4] = _mm256_or_si256(m[4], splat(1 << 24));
        for (limb, h) in m.iter_mut().zip(self.0) {
            *limb = _mm256_add_epi64(*limb, h);
        }
        Self(m)
    }

    /// Returns the products with their limbs carried.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn times(self, by: &Multipliers) -> Self {
        let (h, r, s) = (self.0, &by.r, &by.s);
        let mut d = [_mm256_setzero_si256(); 5];
        for (at, sum) in d.iter_mut().enumerate() {
            for i in 0..5 {
                // Limb i times limb j counts for limb i + j, or five times for limb i + j - 5.
                let other = if i <= at { r[at - i] } else { s[5 + at - i] };
                *sum = _mm256_add_epi64(*sum, _mm256_mul_epu32(h[i], other));
            }
        }
        let mask = splat(MASK);
        // Two chains of carries run side by side: 0 to 1 to 2 to 3, and 3 to 4 to 0 to 1.
        macro_rules! carry {
            ($from:literal to $to:literal) => {
                d[$to] = _mm256_add_epi64(d[$to], _mm256_srli_epi64::<26>(d[$from]));
                d[$from] = _mm256_and_si256(d[$from], mask);
            };
        }
        carry!(0 to 1);
        carry!(3 to 4);
        carry!(1 to 2);
        let over = _mm256_srli_epi64::<26>(d[4]);
        d[4] = _mm256_and_si256(d[4], mask);
        d[0] = _mm256_add_epi64(d[0], _mm256_add_epi64(over, _mm256_slli_epi64::<2>(over)));
        carry!(2 to 3);
        carry!(0 to 1);
        carry!(3 to 4);
        Self(d)
    }

    /// Takes a lane from `other` where the mask is all ones, and from `self` where it is zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn replaced(self, mask: __m256i, other: Self) -> Self {
        let mut out = self;
        for (limb, other) in out.0.iter_mut().zip(other.0) {
            *limb = _mm256_blendv_epi8(*limb, other, mask);
        }
        out
    }
}

/// Returns the low and the high halves of four blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn columns(blocks: [__m128i; LANES]) -> (__m256i, __m256i) {
    let even = _mm256_set_m128i(blocks[2], blocks[0]);
    let odd = _mm256_set_m128i(blocks[3], blocks[1]);
    (
        _mm256_unpacklo_epi64(even, odd),
        _mm256_unpackhi_epi64(even, odd),
    )
}

/// Returns the low and the high halves of four blocks that lie apart.
///
/// # Safety
/// Each pointer is valid for reads of 16 bytes from `offset` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_blocks(at: &[*const u8; LANES], offset: usize) -> (__m256i, __m256i) {
    let mut blocks = [_mm_setzero_si128(); LANES];
    for (block, at) in blocks.iter_mut().zip(at) {
        // SAFETY: the caller guarantees 16 bytes at this address.
        *block = unsafe { _mm_loadu_si128(at.add(offset).cast()) };
    }
    columns(blocks)
}

/// Returns a block whose first `left` bytes are loaded and whose other bytes are zero.
///
/// # Safety
/// `at` is valid for reads of `left` bytes.
unsafe fn short_block(at: *const u8, left: usize) -> u128 {
    let mut block = [0; POLY_BLOCK];
    // SAFETY: copies at most `left` bytes, and at most as many as the block has.
    unsafe { at.copy_to_nonoverlapping(block.as_mut_ptr(), left.min(POLY_BLOCK)) };
    u128::from_le_bytes(block)
}

/// Sets the tags of up to four messages in each of `G` groups.
///
/// # Safety
/// - The obligations are those of [`tags`].
/// - There is at least one message, and at most 4·`G`.
#[target_feature(enable = "avx2")]
unsafe fn across<const G: usize>(
    messages: &mut [&mut Message<'_>],
    once: &[OnceBlock],
    text: Side,
) {
    // Lanes without a message repeat the last message.
    let mut table = [[0; LANES]; G];
    for (slot, lane) in table.as_flattened_mut().iter_mut().enumerate() {
        *lane = slot.min(messages.len() - 1);
    }
    let at = table.map(|lanes| lanes.map(|lane| text.of(messages[lane])));
    let len = table.map(|lanes| lanes.map(|lane| messages[lane].len));
    let mut h = [Numbers::zero(); G];
    let mut r = [Multipliers::new(h[0].0); G];
    for g in 0..G {
        // SAFETY: the block lies inside the 64 bytes of block 0.
        let (low, high) = unsafe { load_blocks(&table[g].map(|lane| once[lane].as_ptr()), 0) };
        let low = _mm256_and_si256(low, splat(CLAMP_LOW));
        let high = _mm256_and_si256(high, splat(CLAMP_HIGH));
        r[g] = Multipliers::new(split(low, high));
        h[g] = after_aad(&table[g], messages, once, &r[g]);
    }
    let longest = messages[0].poly_blocks();
    let shortest = len.as_flattened().iter().min();
    let shortest = shortest.map_or(0, |len| len / POLY_BLOCK);
    for block in 0..shortest {
        for g in 0..G {
            // SAFETY: every message has this block.
            let (low, high) = unsafe { load_blocks(&at[g], block * POLY_BLOCK) };
            h[g] = h[g].add_block(low, high).times(&r[g]);
        }
    }
    for from in (shortest..longest).map(|block| block * POLY_BLOCK) {
        for g in 0..G {
            let (mut blocks, mut here) = ([0u128; LANES], [0u64; LANES]);
            for lane in 0..LANES {
                let left = len[g][lane].saturating_sub(from);
                if left > 0 {
                    here[lane] = u64::MAX;
                    // SAFETY: `left` bytes of the message follow.
                    blocks[lane] = unsafe { short_block(at[g][lane].add(from), left) };
                }
            }
            // SAFETY: each block has 16 bytes.
            let (low, high) =
                unsafe { load_blocks(&blocks.each_ref().map(|b| std::ptr::from_ref(b).cast()), 0) };
            h[g] = h[g].replaced(load(&here), h[g].add_block(low, high).times(&r[g]));
        }
    }
    for g in 0..G {
        let aad_len = load(&table[g].map(|lane| messages[lane].aad_len as u64));
        let body_len = load(&len[g].map(|len| len as u64));
        let sums = h[g].add_block(aad_len, body_len).times(&r[g]).to_numbers();
        let own = messages.iter_mut().zip(once).skip(g * LANES);
        for ((message, once), h) in own.zip(sums) {
            message.tag = h.tag_of_block(once);
        }
    }
}

/// Returns the accumulators after the AAD.
#[inline]
#[target_feature(enable = "avx2")]
fn after_aad(
    table: &[usize; LANES],
    messages: &[&mut Message<'_>],
    once: &[OnceBlock],
    r: &Multipliers,
) -> Numbers {
    let mut h = Numbers::zero();
    if table
        .iter()
        .any(|&lane| !messages[lane].aad_front().is_empty())
    {
        let fronts = table.map(|lane| Once::new(&once[lane]).after_aad_front(messages[lane]));
        h = Numbers::from_numbers(&fronts);
    }
    let aad = table.map(|lane| messages[lane].last_aad.as_ptr());
    // SAFETY: a block of AAD has 16 bytes.
    let (low, high) = unsafe { load_blocks(&aad, 0) };
    let any = table.map(|lane| {
        if messages[lane].aad_len > 0 {
            u64::MAX
        } else {
            0
        }
    });
    h.replaced(load(&any), h.add_block(low, high).times(r))
}

/// Absorbs `blocks` whole blocks after `h`. Their number is a multiple of eight.
///
/// # Safety
/// - The processor has AVX2.
/// - `text` is valid for reads of these blocks.
#[target_feature(enable = "avx2")]
unsafe fn along(once: &Once, h: Number, text: *const u8, blocks: usize) -> Number {
    if blocks == 0 {
        return h;
    }
    // powers.0[i] = r^(8 - i), for block i of eight. Two vectors of two blocks each become halves in the order 0, 2,
    // 1, 3.
    const ORDER: [usize; LANES] = [0, 2, 1, 3];
    let mut powers = Cleansed([Number::ZERO; ACROSS]);
    powers.0[ACROSS - 1] = once.r.0;
    for exponent in 2..=ACROSS {
        let (half, rest) = (exponent / 2, exponent - exponent / 2);
        powers.0[ACROSS - exponent] = powers.0[ACROSS - half].times(powers.0[ACROSS - rest]);
    }
    let mut last = [Multipliers::new(Numbers::zero().0); 2];
    for (g, last) in last.iter_mut().enumerate() {
        let of_group = ORDER.map(|i| powers.0[LANES * g + i]);
        *last = Multipliers::new(Numbers::from_numbers(&of_group).0);
    }
    let stride = Multipliers::new(Numbers::from_numbers(&[powers.0[0]; LANES]).0);
    let first = [h, Number::ZERO, Number::ZERO, Number::ZERO];
    let mut sums = [Numbers::from_numbers(&first), Numbers::zero()];
    let rounds = blocks / ACROSS;
    for round in 0..rounds {
        for g in 0..2 {
            // SAFETY: the address lies inside the blocks.
            let (a, b) = unsafe {
                let at = text.add((ACROSS * round + LANES * g) * POLY_BLOCK);
                (
                    _mm256_loadu_si256(at.cast()),
                    _mm256_loadu_si256(at.add(2 * POLY_BLOCK).cast()),
                )
            };
            let (low, high) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let by = if round + 1 == rounds {
                &last[g]
            } else {
                &stride
            };
            sums[g] = sums[g].add_block(low, high).times(by);
        }
    }
    let all = sums.map(|sum| sum.to_numbers());
    let total = all
        .as_flattened()
        .iter()
        .fold(Number::ZERO, |sum, &n| sum.add(n));
    // Multiplying by 1 carries the limbs.
    total.times(Number([1, 0, 0]))
}
