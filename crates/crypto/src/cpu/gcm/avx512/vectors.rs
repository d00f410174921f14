//! Operations on vectors of four blocks: GHASH arithmetic and AES rounds. Trick numbers refer to the parent module's
//! head.

use std::arch::asm;
use std::arch::x86_64::*;

use super::super::frame::blocks;
use super::super::key::{GcmKey, POLYNOMIAL, POWERS};
use crate::plain::Plain;

/// Number of blocks in a vector.
pub(super) const LANES: usize = 4;
pub(super) const VECTOR_LEN: usize = 16 * LANES;

/// Number of vectors that a key context has powers for.
pub(super) const GROUP: usize = POWERS / LANES;

/// Number of vectors in a group of a long packet. The AES rounds of so many take as long as the latency of one.
pub(super) const WIDE: usize = 2 * GROUP;

/// All bytes of a vector, and the bytes of its first lane.
pub(super) const ALL: u64 = !0;
pub(super) const LANE_0: u64 = 0xffff;

#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// The shuffle that reverses the bytes of each lane.
const REVERSED: [u8; 64] = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 64 {
        order[at] = 15 - at as u8 % 16;
        at += 1;
    }
    order
};
pub(super) static REVERSE: Aligned<[u8; 64]> = Aligned(REVERSED);

/// The same shuffle for a first vector in memory. It turns SPI and sequence number into the AAD. Entry 0 is without
/// ESN. Entry 1 has a gap for the high half of the sequence number.
pub(super) static REVERSE_ESP: Aligned<[[u8; 64]; 2]> = Aligned({
    const NOTHING: u8 = 0x80;
    let mut orders = [REVERSED; 2];
    let mut at = 0;
    while at < 4 {
        orders[0][at] = NOTHING;
        orders[0][4 + at] = NOTHING;
        orders[1][at] = NOTHING;
        orders[1][4 + at] = 7 - at as u8;
        orders[1][8 + at] = NOTHING;
        at += 1;
    }
    orders
});

/// The most vectors whose counters are in [`COUNTERS`].
const VECTORS: usize = 3 * GROUP;

/// Counters from 1 on at their place in a counter block, in network byte order.
pub(super) static COUNTERS: Aligned<[[u32; 16]; VECTORS]> = Aligned({
    let mut counters = [[0; 16]; VECTORS];
    let mut at = 0;
    while at < LANES * VECTORS {
        counters[at / LANES][at % LANES * 4 + 3] = (at as u32 + 1).swap_bytes();
        at += 1;
    }
    counters
});

/// Products that are not reduced yet, of three multiplications each (trick 7). Each of the four lanes stands for
/// high·x^128 + middle·x^64 + low. The field `cross` is the product of both factors' half sums: high + middle + low.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    high: __m512i,
    cross: __m512i,
    low: __m512i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn zero() -> Self {
        let zero = _mm512_setzero_si512();
        Self {
            high: zero,
            cross: zero,
            low: zero,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn of(blocks: __m512i, powers: __m512i, halves: __m512i) -> Self {
        Self {
            high: _mm512_clmulepi64_epi128::<0x11>(blocks, powers),
            cross: _mm512_clmulepi64_epi128::<0x00>(add_halves(blocks), halves),
            low: _mm512_clmulepi64_epi128::<0x00>(blocks, powers),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn product(blocks: __m512i, powers: __m512i) -> Self {
        Self::of(blocks, powers, add_halves(powers))
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn add(&mut self, other: Self) {
        self.high = _mm512_xor_si512(self.high, other.high);
        self.cross = _mm512_xor_si512(self.cross, other.cross);
        self.low = _mm512_xor_si512(self.low, other.low);
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn add_product(&mut self, blocks: __m512i, powers: __m512i) {
        self.add(Self::product(blocks, powers));
    }

    /// Adds the product of vector `at` of a group. The compiler may not move it behind this place (trick 5).
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn add_wide(&mut self, blocks: __m512i, by: &WidePowers, at: usize) {
        let (powers, halves) = (broadcast(&by.powers[at]), broadcast(&by.halves[at]));
        self.add(Self::of(blocks, powers, halves));
        self.pin();
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn pin(&mut self) {
        pin(&mut self.high);
        pin(&mut self.cross);
        pin(&mut self.low);
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn reduce(self) -> __m512i {
        let Self { high, cross, low } = self;
        let polynomial = _mm512_set1_epi64(POLYNOMIAL);
        let folded = _mm512_clmulepi64_epi128::<0x00>(low, polynomial);
        let middle = xor3(xor3(cross, high, low), swap_halves(low), folded);
        let folded = _mm512_clmulepi64_epi128::<0x00>(middle, polynomial);
        xor3(high, swap_halves(middle), folded)
    }

    /// Adds up the lanes of each sum. Lane `p` of the result has the total of sum `p`; there are up to four.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn fold<const P: usize>(sums: &[Self; P]) -> Self {
        let zero = _mm512_setzero_si512();
        let (mut high, mut cross, mut low) = ([zero; P], [zero; P], [zero; P]);
        for p in 0..P {
            Self {
                high: high[p],
                cross: cross[p],
                low: low[p],
            } = sums[p];
        }
        Self {
            high: fold(&high),
            cross: fold(&cross),
            low: fold(&low),
        }
    }
}

/// The powers that the vectors of a group are multiplied by in a long packet.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct WidePowers {
    /// H^32, H^28 … H^4.
    powers: [[u8; 16]; WIDE],
    /// The sum of each power's high and low half, in both halves.
    halves: [[u8; 16]; WIDE],
}

// SAFETY: the struct consists of bytes.
unsafe impl Plain for WidePowers {}

impl WidePowers {
    pub(super) const NONE: Self = Self {
        powers: [[0; 16]; WIDE],
        halves: [[0; 16]; WIDE],
    };

    /// Sets the powers of a key for groups of `vectors` vectors: [`GROUP`] or [`WIDE`].
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    pub(super) fn set(&mut self, key: &GcmKey, vectors: usize) {
        let (h16, h12, h8, h4) = (power(key, 16), power(key, 12), power(key, 8), power(key, 4));
        let near = _mm512_mask_blend_epi64(
            0xf0,
            _mm512_mask_blend_epi64(0x0c, h16, h12),
            _mm512_mask_blend_epi64(0xc0, h8, h4),
        );
        self.set_half(1, near);
        if vectors > GROUP {
            self.set_half(0, Sum::product(near, h16).reduce());
        }
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn set_half(&mut self, at: usize, vector: __m512i) {
        // SAFETY: each array is two vectors long and aligned to 64; `at` is 0 or 1.
        unsafe {
            let (powers, halves) = (self.powers.as_mut_ptr(), self.halves.as_mut_ptr());
            _mm512_store_si512(powers.cast::<__m512i>().add(at), vector);
            _mm512_store_si512(halves.cast::<__m512i>().add(at), add_halves(vector));
        }
    }
}

/// Returns high half + low half of each lane, in both halves.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn add_halves(lanes: __m512i) -> __m512i {
    _mm512_xor_si512(lanes, swap_halves(lanes))
}

/// Returns the same block in each lane.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn broadcast(block: &[u8; 16]) -> __m512i {
    // SAFETY: the reference covers 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(block.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn swap_halves(lanes: __m512i) -> __m512i {
    _mm512_shuffle_epi32::<0x4e>(lanes)
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Reverses the bytes of each lane, as GHASH needs it.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn reverse(blocks: __m512i) -> __m512i {
    _mm512_shuffle_epi8(blocks, load(&REVERSE.0))
}

/// Returns the number in lane 0 and zeros in the other lanes.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn lane_0([low, high]: [u64; 2]) -> __m512i {
    _mm512_zextsi128_si512(_mm_set_epi64x(high as i64, low as i64))
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn lengths(text_len: usize, aad_bits: u64) -> __m512i {
    lane_0([text_len as u64 * 8, aad_bits])
}

/// Masks for the lane behind the text: of its low half and of its high half. The index is the number of lanes with
/// text in the last vector.
static BEHIND: Aligned<[[[u64; 8]; 2]; LANES]> = Aligned({
    let mut lanes = [[[0; 8]; 2]; LANES];
    let mut used = 1;
    while used < LANES {
        lanes[used][0][2 * used] = !0;
        lanes[used][1][2 * used + 1] = !0;
        used += 1;
    }
    lanes
});

/// Adds the lengths to the last vector in the lane behind the text, if a lane is free (trick 3).
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn with_lengths(last: __m512i, text_len: usize, aad_bits: u64) -> __m512i {
    let [low, high] = &BEHIND.0[blocks(text_len) % LANES];
    // SAFETY: each mask has 64 bytes and is aligned to 64.
    let (low, high) = unsafe {
        let low = _mm512_load_si512(low.as_ptr().cast());
        (low, _mm512_load_si512(high.as_ptr().cast()))
    };
    // Computes a | b & c.
    let last = _mm512_ternarylogic_epi64::<0xf8>(last, _mm512_set1_epi64(text_len as i64 * 8), low);
    _mm512_ternarylogic_epi64::<0xf8>(last, _mm512_set1_epi64(aad_bits as i64), high)
}

/// Returns true if the last vector has no free lane, so that the lengths need a vector of their own.
#[inline(always)]
pub(super) fn lengths_apart(text_len: usize) -> bool {
    blocks(text_len).is_multiple_of(LANES)
}

/// Returns H^`power` in each lane.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn power(key: &GcmKey, power: usize) -> __m512i {
    // SAFETY: the context has the powers 1 … 16.
    _mm512_broadcast_i32x4(unsafe { _mm_load_si128(key.powers_from(power).cast()) })
}

/// Returns the powers H^(`first` − 4·`at`) … for the vector `at` of a group. The lanes behind H meet zeros.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn powers(key: &GcmKey, first: usize, at: usize) -> __m512i {
    let from = key.powers_from(first).wrapping_add(LANES * at);
    // SAFETY: `first` is 1 … 16 and `at` is less than 4, so the load stays inside the context.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

/// Adds up the lanes of each vector. Lane `p` of the result is the total of vector `p`; there are up to four (trick
/// 6).
///
/// ```text
///     a0 a1 b2 b3 + a2 a3 b0 b1 = ab,   of c and d likewise   = cd
///     ab0 ab2 cd0 cd2 + ab1 ab3 cd1 cd3                       = a b c d
/// ```
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn fold<const P: usize>(vectors: &[__m512i; P]) -> __m512i {
    let (a, b, c, d) = (vectors[0], vectors[1 % P], vectors[2 % P], vectors[3 % P]);
    let ab = fold_halves(a, b);
    let cd = if P > 2 { fold_halves(c, d) } else { ab };
    _mm512_xor_si512(
        _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd),
        _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd),
    )
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn fold_halves(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(
        _mm512_mask_blend_epi64(0xf0, a, b),
        _mm512_shuffle_i64x2::<0b01_00_11_10>(a, b),
    )
}

/// Returns lane 0 of each of up to four vectors.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn first_lanes<const P: usize>(vectors: &[__m512i; P]) -> __m512i {
    let mut lanes = vectors[0];
    if P > 1 {
        lanes = _mm512_inserti32x4::<1>(lanes, _mm512_castsi512_si128(vectors[1 % P]));
    }
    if P > 2 {
        lanes = _mm512_inserti32x4::<2>(lanes, _mm512_castsi512_si128(vectors[2 % P]));
        lanes = _mm512_inserti32x4::<3>(lanes, _mm512_castsi512_si128(vectors[3 % P]));
    }
    lanes
}

/// Returns the lane with this number.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn lane(lanes: __m512i, number: usize) -> __m128i {
    match number {
        0 => _mm512_castsi512_si128(lanes),
        1 => _mm512_extracti32x4_epi32::<1>(lanes),
        2 => _mm512_extracti32x4_epi32::<2>(lanes),
        _ => _mm512_extracti32x4_epi32::<3>(lanes),
    }
}

/// Emits one AES instruction for each state, with the round key at `$key` + `$at` (trick 5).
macro_rules! with_round_key {
    ($instruction:literal, $key:expr, $at:expr, $($state:ident)+) => {{
        #[allow(unused_assignments)]
        let mut _round_key: __m512i;
        // SAFETY: the block only reads a round key of the context.
        unsafe {
            asm!(
                "vbroadcasti32x4 {round_key}, [{key} + {at}]",
                $(concat!(
                    $instruction,
                    " {", stringify!($state), "}, {", stringify!($state), "}, {round_key}"
                ),)+
                key = in(reg) $key,
                at = const $at,
                round_key = out(zmm_reg) _round_key,
                $($state = inout(zmm_reg) *$state,)+
                options(readonly, nostack, preserves_flags),
            )
        }
    }};
}

pub(super) use with_round_key;

/// Does the same for any number of states.
macro_rules! with_round_key_all {
    ($instruction:literal, $key:expr, $at:expr, $states:expr) => {{
        let (eights, rest) = $states.as_chunks_mut::<8>();
        for [a, b, c, d, e, f, g, h] in eights {
            with_round_key!($instruction, $key, $at, a b c d e f g h);
        }
        match rest {
            [a] => with_round_key!($instruction, $key, $at, a),
            [a, b] => with_round_key!($instruction, $key, $at, a b),
            [a, b, c] => with_round_key!($instruction, $key, $at, a b c),
            [a, b, c, d] => with_round_key!($instruction, $key, $at, a b c d),
            [a, b, c, d, e] => with_round_key!($instruction, $key, $at, a b c d e),
            [a, b, c, d, e, f] => with_round_key!($instruction, $key, $at, a b c d e f),
            [a, b, c, d, e, f, g] => with_round_key!($instruction, $key, $at, a b c d e f g),
            _ => {}
        }
    }};
}

/// Does round `AT` of AES, which is not the last one.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn round<const AT: usize, const N: usize>(key: &GcmKey, states: &mut [__m512i; N]) {
    let keys = key.round_keys().as_ptr();
    with_round_key_all!("vaesenc", keys, 16 * AT, states);
}

#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn last_round<const N: usize>(key: &GcmKey, rounds: usize, states: &mut [__m512i; N]) {
    let last = key.round_keys()[rounds].as_ptr();
    with_round_key_all!("vaesenclast", last, 0, states);
}

/// Makes the compiler compute the value before this place and not later (trick 5).
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) fn pin(value: &mut __m512i) {
    // SAFETY: the block is empty.
    unsafe {
        asm!(
            "/* {0} */",
            inout(zmm_reg) * value,
            options(nomem, nostack, preserves_flags)
        )
    }
}
