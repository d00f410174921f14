//! Poly1305 with 52-bit multiplications in eight lanes.
//!
//! A number is three vectors of limbs of 44, 44 and 42 bits (see [`super::poly`]). A product of limbs comes in a low
//! part of 52 bits and a high part. The high part stands 8 bits above the place of the next limb.
//!
//! ```text
//! across messages (lane = message):              along one message (lane = every sixteenth block):
//!   h[0..8] = 0                                    h[0..16] = 0
//!   for each block number b, in all at once:       for each sixteen blocks:
//!     h = (h + m[b] + 2^128) * r                     h = (h + m[0..16] + 2^128) * r^16
//!   those that have no block b keep h              the last time * (r^16, r^15, … r), and add the lanes up
//! ```
//!
//! 1. Across messages there is no setup and no final sum, whatever the length. That is best for messages of similar
//!    length. Two groups of eight hide each other's latencies.
//! 2. Powers of r cost a few hundred cycles. Going along a message pays for a long one among short ones.
//!    [`single_count`] decides by the lengths alone how many of the longest messages go that way.
//! 3. Two vectors with four blocks each become low and high halves by two shuffles. The lanes are then in the order
//!    of [`ORDER`], which does not matter to a sum.
//! 4. If the number of blocks is no multiple of sixteen, zeros are put in front. Zeros in front change nothing.

use std::arch::x86_64::*;

use super::flow::{CiphertextSide, OnceBlock};
use super::message::{AeadMessage, POLY_BLOCK};
use super::poly::{
    CLAMP_HIGH, CLAMP_LOW, Costs, HIGH, MASK_42, MASK_44, Number, Once, single_count,
};
use crate::plain::Cleansed;

const LANES: usize = 8;
/// Number of messages that are done at once across lanes.
const ACROSS: usize = 2 * LANES;

const COSTS: Costs = Costs {
    lanes: LANES,
    one_group: 35,
    two_groups: 52,
    powers: 420,
    along: 16,
    along_step: 56,
    alone: 17,
};

/// Sets each message's tag.
///
/// # Safety
/// The obligations are those of [`super::flow::Machine::tags`].
pub(super) unsafe fn tags(
    messages: &mut [&mut AeadMessage<'_>],
    once: &[OnceBlock],
    text: CiphertextSide,
) {
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
/// - The processor has AVX-512 with IFMA.
/// - `text` is valid for reads of the message's length.
unsafe fn single(message: &AeadMessage<'_>, once: &OnceBlock, text: *const u8) -> [u8; 16] {
    let once = Once::new(once);
    let h = once.after_aad(message);
    // SAFETY: the caller guarantees the instructions and the text.
    unsafe {
        if COSTS.alone_is_best(message.poly_blocks()) {
            return once.finish(message, text, 0, h);
        }
        let whole = message.len / POLY_BLOCK;
        let h = along(&once, h, text, whole);
        once.finish(message, text, whole * POLY_BLOCK, h)
    }
}

/// Eight numbers. A vector holds one limb of each.
#[derive(Clone, Copy)]
struct Numbers([__m512i; 3]);

/// Eight multipliers: all limbs, and the upper two limbs times 20.
#[derive(Clone, Copy)]
struct Multipliers {
    r: [__m512i; 3],
    s1: __m512i,
    s2: __m512i,
}

impl Multipliers {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(r: [__m512i; 3]) -> Self {
        let times_20 = |x| _mm512_add_epi64(_mm512_slli_epi64::<4>(x), _mm512_slli_epi64::<2>(x));
        Self {
            r,
            s1: times_20(r[1]),
            s2: times_20(r[2]),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(value: u64) -> __m512i {
    _mm512_set1_epi64(value as i64)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[u64; LANES]) -> __m512i {
    // SAFETY: the array has eight numbers.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// Splits the 128 bits of `low` and `high` into limbs.
#[inline]
#[target_feature(enable = "avx512f")]
fn split(low: __m512i, high: __m512i) -> [__m512i; 3] {
    let mask = splat(MASK_44);
    let middle = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    [
        _mm512_and_si512(low, mask),
        _mm512_and_si512(middle, mask),
        _mm512_srli_epi64::<24>(high),
    ]
}

impl Numbers {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> Self {
        Self([_mm512_setzero_si512(); 3])
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(self, other: [__m512i; 3]) -> Self {
        Self([
            _mm512_add_epi64(self.0[0], other[0]),
            _mm512_add_epi64(self.0[1], other[1]),
            _mm512_add_epi64(self.0[2], other[2]),
        ])
    }

    /// Adds a block and its 2^128 in each lane.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add_block(self, low: __m512i, high: __m512i) -> Self {
        let [m0, m1, m2] = split(low, high);
        self.add([m0, m1, _mm512_or_si512(m2, splat(HIGH))])
    }

    /// Returns the products with their limbs carried.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn times(self, by: &Multipliers) -> Self {
        let [h0, h1, h2] = self.0;
        let [r0, r1, r2] = by.r;
        // Limb 1 is used last, because the multiplication before has it ready last.
        let sum = |x0, x1, x2| {
            let zero = _mm512_setzero_si512();
            let low = _mm512_madd52lo_epu64(zero, h2, x2);
            let high = _mm512_madd52hi_epu64(zero, h2, x2);
            let low = _mm512_madd52lo_epu64(low, h0, x0);
            let high = _mm512_madd52hi_epu64(high, h0, x0);
            (
                _mm512_madd52lo_epu64(low, h1, x1),
                _mm512_madd52hi_epu64(high, h1, x1),
            )
        };
        let (low0, high0) = sum(r0, by.s2, by.s1);
        let (low1, high1) = sum(r1, r0, by.s2);
        let (low2, high2) = sum(r2, r1, r0);
        let mask = splat(MASK_44);
        let carry = |low, high| {
            _mm512_add_epi64(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<8>(high))
        };
        let low1 = _mm512_add_epi64(low1, carry(low0, high0));
        let low2 = _mm512_add_epi64(low2, carry(low1, high1));
        // Whatever is at 2^130 or above comes back to limb 0 times five.
        let over = _mm512_add_epi64(
            _mm512_srli_epi64::<42>(low2),
            _mm512_slli_epi64::<10>(high2),
        );
        let five = _mm512_add_epi64(over, _mm512_slli_epi64::<2>(over));
        let h0 = _mm512_add_epi64(_mm512_and_si512(low0, mask), five);
        let h1 = _mm512_add_epi64(_mm512_and_si512(low1, mask), _mm512_srli_epi64::<44>(h0));
        Self([
            _mm512_and_si512(h0, mask),
            h1,
            _mm512_and_si512(low2, splat(MASK_42)),
        ])
    }

    /// Takes a lane from `other` where the mask has a one, and from `self` where it has a zero.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn replaced(self, mask: __mmask8, other: Self) -> Self {
        let pick = |limb: usize| _mm512_mask_mov_epi64(self.0[limb], mask, other.0[limb]);
        Self([pick(0), pick(1), pick(2)])
    }

    /// Returns the tags, numbers modulo p plus s, as low and high halves.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn tags(self, s_low: __m512i, s_high: __m512i) -> (__m512i, __m512i) {
        let [mut h0, mut h1, mut h2] = self.0;
        let (mask_44, mask_42) = (splat(MASK_44), splat(MASK_42));
        let over = |x, y| _mm512_add_epi64(y, _mm512_srli_epi64::<44>(x));
        // The steps are those of `Number::tag`.
        for _ in 0..2 {
            h1 = over(h0, h1);
            h2 = over(h1, h2);
            let beyond = _mm512_srli_epi64::<42>(h2);
            let five = _mm512_add_epi64(beyond, _mm512_slli_epi64::<2>(beyond));
            h0 = _mm512_add_epi64(_mm512_and_si512(h0, mask_44), five);
            h1 = _mm512_and_si512(h1, mask_44);
            h2 = _mm512_and_si512(h2, mask_42);
        }
        h1 = over(h0, h1);
        h0 = _mm512_and_si512(h0, mask_44);
        let g0 = _mm512_add_epi64(h0, splat(5));
        let g1 = over(g0, h1);
        let g2 = over(g1, h2);
        let take = _mm512_cmpgt_epu64_mask(g2, mask_42);
        let h0 = _mm512_mask_and_epi64(h0, take, g0, mask_44);
        let h1 = _mm512_mask_and_epi64(h1, take, g1, mask_44);
        let h2 = _mm512_mask_and_epi64(h2, take, g2, mask_42);
        let low = _mm512_or_si512(h0, _mm512_slli_epi64::<44>(h1));
        let high = _mm512_or_si512(_mm512_srli_epi64::<20>(h1), _mm512_slli_epi64::<24>(h2));
        let tag_low = _mm512_add_epi64(low, s_low);
        let carry = _mm512_cmplt_epu64_mask(tag_low, low);
        let tag_high = _mm512_add_epi64(high, s_high);
        let tag_high = _mm512_mask_add_epi64(tag_high, carry, tag_high, splat(1));
        (tag_low, tag_high)
    }
}

/// Returns the low and the high halves of eight blocks that lie apart.
///
/// # Safety
/// Each pointer is valid for reads of 16 bytes from `offset` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_blocks(at: &[*const u8; LANES], offset: usize) -> (__m512i, __m512i) {
    // SAFETY: the caller guarantees 16 bytes at this address.
    columns(|lane| unsafe { _mm_loadu_si128(at[lane].add(offset).cast()) })
}

/// Returns the low and the high halves of eight blocks.
#[inline(always)]
fn columns(block: impl Fn(usize) -> __m128i) -> (__m512i, __m512i) {
    // SAFETY: the function is inlined only into functions with AVX-512 enabled, and only those call it.
    unsafe {
        let four = |first: usize| {
            let z = _mm512_castsi128_si512(block(first));
            let z = _mm512_inserti64x2::<1>(z, block(first + 2));
            let z = _mm512_inserti64x2::<2>(z, block(first + 4));
            _mm512_inserti64x2::<3>(z, block(first + 6))
        };
        let (even, odd) = (four(0), four(1));
        (
            _mm512_unpacklo_epi64(even, odd),
            _mm512_unpackhi_epi64(even, odd),
        )
    }
}

/// Sets the tags of up to eight messages in each of `G` groups (trick 1).
///
/// # Safety
/// - The obligations are those of [`tags`].
/// - There is at least one message, and at most 8·`G`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512ifma,bmi2")]
unsafe fn across<const G: usize>(
    messages: &mut [&mut AeadMessage<'_>],
    once: &[OnceBlock],
    text: CiphertextSide,
) {
    // Lanes without a message repeat the last message.
    let lane_of = |group: usize, lane: usize| (group * LANES + lane).min(messages.len() - 1);
    let table: [[usize; LANES]; G] =
        std::array::from_fn(|g| std::array::from_fn(|lane| lane_of(g, lane)));
    let at = table.map(|lanes| lanes.map(|lane| text.of(messages[lane])));
    let len = table.map(|lanes| lanes.map(|lane| messages[lane].len));
    let mut h = [Numbers::zero(); G];
    let mut r = [Multipliers::new(h[0].0); G];
    let mut s = [(splat(0), splat(0)); G];
    for g in 0..G {
        // SAFETY: both blocks lie inside the 64 bytes of block 0.
        unsafe {
            let keys = table[g].map(|lane| once[lane].as_ptr());
            let (low, high) = load_blocks(&keys, 0);
            let low = _mm512_and_si512(low, splat(CLAMP_LOW));
            let high = _mm512_and_si512(high, splat(CLAMP_HIGH));
            r[g] = Multipliers::new(split(low, high));
            s[g] = load_blocks(&keys, 16);
        }
        h[g] = after_aad(&table[g], messages, once, &r[g]);
    }

    let longest = messages[0].poly_blocks();
    let shortest = len.iter().flatten().min().map_or(0, |len| len / POLY_BLOCK);
    for block in 0..shortest {
        for g in 0..G {
            // SAFETY: every message has this block.
            let (low, high) = unsafe { load_blocks(&at[g], block * POLY_BLOCK) };
            h[g] = h[g].add_block(low, high).times(&r[g]);
        }
    }
    for block in shortest..longest {
        for g in 0..G {
            let from = block * POLY_BLOCK;
            let left = len[g].map(|len| len.saturating_sub(from).min(POLY_BLOCK) as u32);
            // SAFETY: the mask leaves out the bytes behind the message.
            let (low, high) = columns(|lane| unsafe {
                let mask = _bzhi_u32(0xffff, left[lane]) as __mmask16;
                _mm_maskz_loadu_epi8(mask, at[g][lane].wrapping_add(from).cast())
            });
            let ends = load(&len[g].map(|len| len as u64));
            let here = _mm512_cmpgt_epu64_mask(ends, splat(from as u64));
            h[g] = h[g].replaced(here, h[g].add_block(low, high).times(&r[g]));
        }
    }
    for g in 0..G {
        let aad_len = load(&table[g].map(|lane| messages[lane].aad_len as u64));
        let body_len = load(&len[g].map(|len| len as u64));
        let h = h[g].add_block(aad_len, body_len).times(&r[g]);
        let (low, high) = h.tags(s[g].0, s[g].1);
        let mut tags = [0u128; LANES];
        let (first, second) = (
            _mm512_unpacklo_epi64(low, high),
            _mm512_unpackhi_epi64(low, high),
        );
        // SAFETY: the array has 128 bytes.
        unsafe {
            _mm512_storeu_si512(tags.as_mut_ptr().cast(), first);
            _mm512_storeu_si512(tags.as_mut_ptr().add(4).cast(), second);
        }
        let own = messages.iter_mut().skip(g * LANES);
        for (message, lane) in own.zip([0, 4, 1, 5, 2, 6, 3, 7]) {
            message.tag = tags[lane].to_le_bytes();
        }
    }
}

/// Returns the accumulators after the AAD.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512ifma")]
fn after_aad(
    table: &[usize; LANES],
    messages: &[&mut AeadMessage<'_>],
    once: &[OnceBlock],
    r: &Multipliers,
) -> Numbers {
    let mut h = Numbers::zero();
    if table
        .iter()
        .any(|&lane| !messages[lane].aad_front().is_empty())
    {
        let fronts = table.map(|lane| Once::new(&once[lane]).after_aad_front(messages[lane]));
        h = transposed(&fronts);
    }
    let aad = table.map(|lane| messages[lane].last_aad.as_ptr());
    // SAFETY: a block of AAD has 16 bytes.
    let (low, high) = unsafe { load_blocks(&aad, 0) };
    let lengths = load(&table.map(|lane| messages[lane].aad_len as u64));
    let any = _mm512_test_epi64_mask(lengths, lengths);
    h.replaced(any, h.add_block(low, high).times(r))
}

/// Puts one number into each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(numbers: &[Number; LANES]) -> Numbers {
    Numbers([
        load(&numbers.map(|number| number.0[0])),
        load(&numbers.map(|number| number.0[1])),
        load(&numbers.map(|number| number.0[2])),
    ])
}

/// The number of the block in each lane (trick 3).
const ORDER: [usize; LANES] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Absorbs `blocks` whole blocks after `h` (trick 2).
///
/// # Safety
/// - The processor has AVX-512 with IFMA.
/// - `text` is valid for reads of these blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512ifma")]
unsafe fn along(once: &Once, h: Number, text: *const u8, blocks: usize) -> Number {
    // powers.0[i] = r^(16 - i), for block i of sixteen.
    let mut powers = Cleansed([Number::ZERO; 16]);
    powers.0[15] = once.r.0;
    for exponent in 2..=16 {
        let (half, rest) = (exponent / 2, exponent - exponent / 2);
        powers.0[16 - exponent] = powers.0[16 - half].times(powers.0[16 - rest]);
    }
    let of_group = |g: usize| Multipliers::new(transposed(&ORDER.map(|i| powers.0[8 * g + i])).0);
    let last = [of_group(0), of_group(1)];
    let stride = Multipliers::new(transposed(&[powers.0[0]; LANES]).0);

    // `missing` blocks are zeros at the front (trick 4). `h` is added in the lane of the first real block.
    let missing = blocks.wrapping_neg() % 16;
    let mut start = [[Number::ZERO; LANES]; 2];
    let first = ORDER
        .iter()
        .position(|&i| i == missing % LANES)
        .unwrap_or(0);
    start[missing / LANES][first] = h;
    let mut sums = [transposed(&start[0]), transposed(&start[1])];

    let rounds = blocks.div_ceil(16);
    for round in 0..rounds {
        for g in 0..2 {
            let number = 16 * round + 8 * g;
            let skip = (missing.saturating_sub(number)).min(LANES);
            let at = text
                .wrapping_add(number * POLY_BLOCK)
                .wrapping_sub(missing * POLY_BLOCK);
            let words: u16 = 0xffffu16.checked_shl(2 * skip as u32).unwrap_or(0);
            // SAFETY: the masks leave out the bytes in front of the text.
            let (a, b) = unsafe {
                (
                    _mm512_maskz_loadu_epi64(words as u8, at.cast()),
                    _mm512_maskz_loadu_epi64((words >> 8) as u8, at.wrapping_add(64).cast()),
                )
            };
            let (low, high) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
            let [m0, m1, m2] = split(low, high);
            let order = load(&ORDER.map(|i| i as u64));
            let real = _mm512_cmpge_epu64_mask(order, splat(skip as u64));
            let m2 = _mm512_mask_or_epi64(m2, real, m2, splat(HIGH));
            let by = if round + 1 == rounds {
                &last[g]
            } else {
                &stride
            };
            sums[g] = sums[g].add([m0, m1, m2]).times(by);
        }
    }
    let total = sums[0].add(sums[1].0);
    // The sum covers sixteen limbs of at most 45 bits.
    let number = Number(total.0.map(|limb| _mm512_reduce_add_epi64(limb) as u64));
    // Multiplying by 1 carries the limbs.
    number.times(Number([1, 0, 0]))
}
