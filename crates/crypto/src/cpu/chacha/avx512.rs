//! ChaCha20 (RFC 8439 §2.3) on sixteen lanes of AVX-512. Each lane is a block with its own key, nonce and counter.
//!
//! ```text
//! x[0..16] = constants | key | counter | nonce      one vector a word, one lane a block
//! ten times:  quarter rounds down the columns, quarter rounds down the diagonals
//! keystream = x + the same state as at the start, transposed to one vector a block
//! ```
//!
//! 1. One vector holds one word of all lanes. A diagonal is then only another choice of registers, and the rounds
//!    need no shuffles. Lanes share nothing, so each may have its own key.
//! 2. Sixteen rows become sixteen columns in two steps. Loads put lanes 0, 4, 8, 12 in one vector, lanes 1, 5, 9, 13
//!    in the next, and so on. A transposition of 4 × 4 words inside each quarter then leaves all lanes in order:
//!
//!    ```text
//!    z0 = | lane 0: a b c d | lane 4: a b c d | …        a = | 0 1 2 3 | 4 5 6 7 | …
//!    z1 = | lane 1: a b c d | lane 5: a b c d | …   →    b = | 0 1 2 3 | 4 5 6 7 | …
//!    z2, z3                                              c, d
//!    ```
//!
//!    On the way out the same transposition comes first, then a transposition of 4 × 4 quarters.
//! 3. If all lanes are of one message, the load ports broadcast its key and nonce instead.
//! 4. Two groups of sixteen lanes, in 32 registers, hide each other's latencies. A quarter round is a chain of twelve
//!    operations, which take two cycles each on some processors. A single group would fill only half of the cycles.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::flow::{CiphertextSide, KeystreamLane, Machine, OnceBlock};
use super::message::{AeadMessage, CHACHA_BLOCK, CONSTANTS};
use super::poly512;

/// Number of lanes in one vector.
const LANES: usize = 16;

/// The AVX-512 tier, with 52-bit multiplication (IFMA).
pub(super) struct Avx512;

impl Machine for Avx512 {
    const VECTOR: usize = LANES;
    const LANES: usize = 2 * LANES;

    unsafe fn chacha(lanes: &[KeystreamLane]) {
        // SAFETY: the caller guarantees the instructions and the lanes' pointers.
        unsafe {
            match lanes.as_chunks().0 {
                [one] => chacha([one]),
                [one, two] => chacha([one, two]),
                _ => debug_assert!(false, "lanes come in one or two vectors"),
            }
        }
    }

    unsafe fn tags(
        messages: &mut [&mut AeadMessage<'_>],
        once: &[OnceBlock],
        text: CiphertextSide,
    ) {
        // SAFETY: the caller guarantees the instructions and the ciphertexts.
        unsafe { poly512::tags(messages, once, text) }
    }
}

/// The words of the initial state. A vector holds one word of sixteen lanes.
type Start = [MaybeUninit<__m512i>; 16];

/// Does `G` groups of lanes.
///
/// # Safety
/// The obligations are those of [`Machine::chacha`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
unsafe fn chacha<const G: usize>(lanes: [&[KeystreamLane; LANES]; G]) {
    let mut start = [[MaybeUninit::uninit(); 16]; G];
    for g in 0..G {
        // SAFETY: the caller guarantees the lanes' pointers.
        unsafe {
            if lanes[g].iter().all(|lane| lane.row == lanes[g][0].row) {
                one_message(lanes[g], &mut start[g]);
            } else {
                many_messages(lanes[g], &mut start[g]);
            }
        }
    }
    // SAFETY: both functions above set all words.
    let start = |g: usize, at: usize| unsafe { start[g][at].assume_init() };

    let [mut a, mut b, mut c, mut d] = [[[_mm512_setzero_si512(); 4]; G]; 4];
    for g in 0..G {
        for i in 0..4 {
            (a[g][i], b[g][i]) = (start(g, i), start(g, 4 + i));
            (c[g][i], d[g][i]) = (start(g, 8 + i), start(g, 12 + i));
        }
    }
    // All quarter rounds do one operation before any does the next (trick 4).
    macro_rules! all {
        ($x:ident = $op:ident$(::<$n:literal>)?($($y:ident),*)) => {
            for g in 0..G {
                for i in 0..4 {
                    $x[g][i] = $op$(::<$n>)?($($y[g][i]),*);
                }
            }
        };
    }
    macro_rules! quarter_rounds {
        () => {
            all!(a = _mm512_add_epi32(a, b));
            all!(d = _mm512_xor_si512(d, a));
            all!(d = _mm512_rol_epi32::<16>(d));
            all!(c = _mm512_add_epi32(c, d));
            all!(b = _mm512_xor_si512(b, c));
            all!(b = _mm512_rol_epi32::<12>(b));
            all!(a = _mm512_add_epi32(a, b));
            all!(d = _mm512_xor_si512(d, a));
            all!(d = _mm512_rol_epi32::<8>(d));
            all!(c = _mm512_add_epi32(c, d));
            all!(b = _mm512_xor_si512(b, c));
            all!(b = _mm512_rol_epi32::<7>(b));
        };
    }
    for _ in 0..10 {
        quarter_rounds!();
        // Moves diagonals into columns. The second shuffle moves them back.
        for g in 0..G {
            b[g] = [b[g][1], b[g][2], b[g][3], b[g][0]];
            c[g] = [c[g][2], c[g][3], c[g][0], c[g][1]];
            d[g] = [d[g][3], d[g][0], d[g][1], d[g][2]];
        }
        quarter_rounds!();
        for g in 0..G {
            b[g] = [b[g][3], b[g][0], b[g][1], b[g][2]];
            c[g] = [c[g][2], c[g][3], c[g][0], c[g][1]];
            d[g] = [d[g][1], d[g][2], d[g][3], d[g][0]];
        }
    }
    for g in 0..G {
        let mut rows = [a[g], b[g], c[g], d[g]];
        for (at, row) in rows.iter_mut().enumerate() {
            for (i, word) in row.iter_mut().enumerate() {
                *word = _mm512_add_epi32(*word, start(g, 4 * at + i));
            }
            *row = transpose_4x4(*row);
        }
        let [a, b, c, d] = rows;
        for j in 0..4 {
            let blocks = gather_quarters(a[j], b[j], c[j], d[j]);
            for (quarter, keystream) in blocks.into_iter().enumerate() {
                // SAFETY: the caller guarantees the lane's pointers for its length.
                unsafe { xor(&lanes[g][4 * quarter + j], keystream) };
            }
        }
    }
}

/// Sets the initial state of lanes that are all of one message (trick 3).
///
/// # Safety
/// In each lane, `key` points to 32 readable bytes and `row` to 16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn one_message(lanes: &[KeystreamLane; LANES], x: &mut Start) {
    // SAFETY: the caller guarantees 32 bytes of key and 16 of row, at any alignment.
    let (key, row) = unsafe {
        (
            lanes[0].key.cast::<[i32; 8]>().read_unaligned(),
            lanes[0].row.cast::<[i32; 4]>().read_unaligned(),
        )
    };
    for (at, word) in CONSTANTS.iter().enumerate() {
        x[at].write(_mm512_set1_epi32(*word as i32));
    }
    for (at, word) in key.iter().enumerate() {
        x[4 + at].write(_mm512_set1_epi32(*word));
    }
    x[12].write(counters(lanes));
    for at in 1..4 {
        x[12 + at].write(_mm512_set1_epi32(row[at]));
    }
}

/// Sets the initial state of any lanes (trick 2).
///
/// # Safety
/// In each lane, `key` points to 32 readable bytes and `row` to 16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn many_messages(lanes: &[KeystreamLane; LANES], x: &mut Start) {
    // Loads sixteen bytes each of lanes j, 4 + j, 8 + j and 12 + j, for each j.
    macro_rules! columns {
        (|$lane:ident| $at:expr) => {{
            let mut z = [_mm512_setzero_si512(); 4];
            for j in 0..4 {
                let quarter = |g: usize| {
                    let $lane = &lanes[4 * g + j];
                    // SAFETY: the caller guarantees 16 bytes at this address.
                    unsafe { _mm_loadu_si128($at.cast()) }
                };
                z[j] = _mm512_castsi128_si512(quarter(0));
                z[j] = _mm512_inserti32x4::<1>(z[j], quarter(1));
                z[j] = _mm512_inserti32x4::<2>(z[j], quarter(2));
                z[j] = _mm512_inserti32x4::<3>(z[j], quarter(3));
            }
            transpose_4x4(z)
        }};
    }
    let low = columns!(|lane| lane.key);
    let high = columns!(|lane| lane.key.add(16));
    let mut last = columns!(|lane| lane.row);
    last[0] = _mm512_add_epi32(last[0], counters(lanes));
    for at in 0..4 {
        x[at].write(_mm512_set1_epi32(CONSTANTS[at] as i32));
        x[4 + at].write(low[at]);
        x[8 + at].write(high[at]);
        x[12 + at].write(last[at]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn counters(lanes: &[KeystreamLane; LANES]) -> __m512i {
    let mut counters = [0; LANES];
    for (counter, lane) in counters.iter_mut().zip(lanes) {
        *counter = lane.counter;
    }
    // SAFETY: the array has sixteen words.
    unsafe { _mm512_loadu_si512(counters.as_ptr().cast()) }
}

/// Transposes the 4 × 4 words in each quarter of four vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_4x4(x: [__m512i; 4]) -> [__m512i; 4] {
    let (low_01, high_01) = unpack_32(x[0], x[1]);
    let (low_23, high_23) = unpack_32(x[2], x[3]);
    [
        _mm512_unpacklo_epi64(low_01, low_23),
        _mm512_unpackhi_epi64(low_01, low_23),
        _mm512_unpacklo_epi64(high_01, high_23),
        _mm512_unpackhi_epi64(high_01, high_23),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn unpack_32(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
}

/// Result g has quarter g of a, b, c and d.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather_quarters(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 4] {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let ab_even = _mm512_shuffle_i32x4::<EVEN>(a, b);
    let ab_odd = _mm512_shuffle_i32x4::<ODD>(a, b);
    let cd_even = _mm512_shuffle_i32x4::<EVEN>(c, d);
    let cd_odd = _mm512_shuffle_i32x4::<ODD>(c, d);
    [
        _mm512_shuffle_i32x4::<EVEN>(ab_even, cd_even),
        _mm512_shuffle_i32x4::<EVEN>(ab_odd, cd_odd),
        _mm512_shuffle_i32x4::<ODD>(ab_even, cd_even),
        _mm512_shuffle_i32x4::<ODD>(ab_odd, cd_odd),
    ]
}

/// XORs the keystream onto a lane's text.
///
/// # Safety
/// The lane's `src` and `dst` are valid for its length.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
unsafe fn xor(lane: &KeystreamLane, keystream: __m512i) {
    // SAFETY: a whole block has 64 bytes; in a short one the mask leaves out the bytes behind the text.
    unsafe {
        if lane.len as usize >= CHACHA_BLOCK {
            let text = _mm512_loadu_si512(lane.src.cast());
            _mm512_storeu_si512(lane.dst.cast(), _mm512_xor_si512(text, keystream));
        } else {
            let mask = _bzhi_u64(u64::MAX, lane.len);
            let text = _mm512_maskz_loadu_epi8(mask, lane.src.cast());
            _mm512_mask_storeu_epi8(lane.dst.cast(), mask, _mm512_xor_si512(text, keystream));
        }
    }
}
