//! ChaCha20 (RFC 8439 §2.3) on sixteen lanes of AVX-512, each a block with its own key, nonce and counter.
//!
//! ```text
//! x[0..16] = constants | key | counter | nonce      one vector a word, one lane a block
//! ten times:  quarter rounds down the columns, quarter rounds down the diagonals
//! keystream = x + the same state as at the start, transposed to one vector a block
//! ```
//!
//! 1. A word of all lanes is one vector, so that a diagonal is only another choice of registers: no shuffle in the
//!    rounds. Lanes share nothing, so that they may belong to as many keys.
//! 2. Sixteen rows become sixteen columns in two steps. Loads put lanes 0, 4, 8, 12 in one vector, 1, 5, 9, 13 in the
//!    next and so on; a transposition of 4 × 4 words inside each quarter then leaves all lanes in order:
//!
//!    ```text
//!    z0 = | lane 0: a b c d | lane 4: a b c d | …        a = | 0 1 2 3 | 4 5 6 7 | …
//!    z1 = | lane 1: a b c d | lane 5: a b c d | …   →    b = | 0 1 2 3 | 4 5 6 7 | …
//!    z2, z3                                              c, d
//!    ```
//!
//!    On the way out the same transposition comes first, then one of 4 × 4 quarters.
//! 3. When all lanes are of one message, its key and nonce are broadcast by the load ports instead.
//! 4. Two groups of sixteen lanes, 32 registers, hide the latencies of each other: a quarter round is a chain of twelve
//!    operations, of two cycles each on some processors, and those of one group fill half of the cycles.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::flow::{Lane, Machine, OnceBlock, Side};
use super::message::{CHACHA_BLOCK, CONSTANTS, Message};
use super::poly512;

/// Lanes of one vector.
const LANES: usize = 16;

/// AVX-512 with its 52-bit multiplication.
pub(super) struct Avx512;

impl Machine for Avx512 {
    const VECTOR: usize = LANES;
    const LANES: usize = 2 * LANES;

    unsafe fn chacha(lanes: &[Lane]) {
        // SAFETY: the caller's promise.
        unsafe {
            match lanes.as_chunks().0 {
                [one] => chacha([one]),
                [one, two] => chacha([one, two]),
                _ => debug_assert!(false, "lanes come in one or two vectors"),
            }
        }
    }

    unsafe fn tags(messages: &mut [&mut Message<'_>], once: &[OnceBlock], text: Side) {
        // SAFETY: the caller's promise.
        unsafe { poly512::tags(messages, once, text) }
    }
}

/// The words of the state at the start, each of sixteen lanes.
type Start = [MaybeUninit<__m512i>; 16];

/// G groups of lanes.
///
/// # Safety
/// As [`Machine::chacha`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
unsafe fn chacha<const G: usize>(lanes: [&[Lane; LANES]; G]) {
    let mut start = [[MaybeUninit::uninit(); 16]; G];
    for g in 0..G {
        // SAFETY: the lanes' pointers are valid.
        unsafe {
            if lanes[g].iter().all(|lane| lane.row == lanes[g][0].row) {
                one_message(lanes[g], &mut start[g]);
            } else {
                many_messages(lanes[g], &mut start[g]);
            }
        }
    }
    // SAFETY: both ways set all words.
    let start = |g: usize, at: usize| unsafe { start[g][at].assume_init() };

    let [mut a, mut b, mut c, mut d] = [[[_mm512_setzero_si512(); 4]; G]; 4];
    for g in 0..G {
        for i in 0..4 {
            (a[g][i], b[g][i]) = (start(g, i), start(g, 4 + i));
            (c[g][i], d[g][i]) = (start(g, 8 + i), start(g, 12 + i));
        }
    }
    // All quarter rounds do an operation before any does the next (trick 4).
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
        // Diagonals become columns, and columns again.
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
                // SAFETY: the lane's pointers are valid for its length.
                unsafe { xor(&lanes[g][4 * quarter + j], keystream) };
            }
        }
    }
}

/// The start of lanes that are of one message (trick 3).
///
/// # Safety
/// The pointers are valid.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn one_message(lanes: &[Lane; LANES], x: &mut Start) {
    // SAFETY: 32 bytes of key and 16 of row, at any alignment.
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

/// The start of any lanes (trick 2).
///
/// # Safety
/// The pointers are valid.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn many_messages(lanes: &[Lane; LANES], x: &mut Start) {
    // Sixteen bytes each of the lanes j, 4 + j, 8 + j and 12 + j, for each j.
    macro_rules! columns {
        (|$lane:ident| $at:expr) => {{
            let mut z = [_mm512_setzero_si512(); 4];
            for j in 0..4 {
                let quarter = |g: usize| {
                    let $lane = &lanes[4 * g + j];
                    // SAFETY: valid for 16 bytes.
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
fn counters(lanes: &[Lane; LANES]) -> __m512i {
    let mut counters = [0; LANES];
    for (counter, lane) in counters.iter_mut().zip(lanes) {
        *counter = lane.counter;
    }
    // SAFETY: sixteen words.
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

/// Result g is the quarters g of a, b, c and d.
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

/// # Safety
/// The lane's pointers are valid for its length.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
unsafe fn xor(lane: &Lane, keystream: __m512i) {
    // SAFETY: whole blocks have 64 bytes; a mask leaves out what is not the lane's.
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
