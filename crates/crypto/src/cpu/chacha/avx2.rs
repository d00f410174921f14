//! ChaCha20 on eight lanes of AVX2: the algorithm of [`super::avx512`] with vectors of half the size.
//!
//! 1. One vector holds one word of all lanes. As there, rows become columns by loads of halves and by a transposition
//!    of 4 × 4 words in each half.
//! 2. Rotations by 16 and by 8 bits are byte shuffles. Rotations by 12 and by 7 bits are two shifts and an OR.
//! 3. Sixteen registers hold one group of lanes. Two groups take turns, one double round each, through the nearest
//!    cache. That costs a few loads and stores and hides many latencies.

use std::arch::x86_64::*;

use super::flow::{Lane, Machine, OnceBlock, Side};
use super::message::{CHACHA_BLOCK, CONSTANTS, Message};
use super::poly256;
use crate::plain::cleanse;

/// Number of lanes in one vector.
const LANES: usize = 8;

/// The AVX2 tier.
pub(super) struct Avx2;

impl Machine for Avx2 {
    const VECTOR: usize = LANES;
    const LANES: usize = 2 * LANES;

    unsafe fn chacha(lanes: &[Lane]) {
        // SAFETY: the caller guarantees the instructions and the lanes' pointers.
        unsafe {
            match lanes.as_chunks().0 {
                [one] => chacha([one]),
                [one, two] => chacha([one, two]),
                _ => debug_assert!(false, "lanes come in one or two vectors"),
            }
        }
    }

    unsafe fn tags(messages: &mut [&mut Message<'_>], once: &[OnceBlock], text: Side) {
        // SAFETY: the caller guarantees the instructions and the ciphertexts.
        unsafe { poly256::tags(messages, once, text) }
    }
}

/// Four rows of four words. A vector holds one word of eight lanes.
type State = [[__m256i; 4]; 4];

/// Does `G` groups of lanes.
///
/// # Safety
/// The obligations are those of [`Machine::chacha`].
#[target_feature(enable = "avx2")]
unsafe fn chacha<const G: usize>(lanes: [&[Lane; LANES]; G]) {
    let mut start = [[[_mm256_setzero_si256(); 4]; 4]; G];
    for g in 0..G {
        // SAFETY: the caller guarantees the lanes' pointers.
        unsafe { load(lanes[g], &mut start[g]) };
    }
    // `black_box` hides the shuffles' values. Otherwise the compiler would replace one shuffle by two.
    let turns = std::hint::black_box(byte_turns());
    let mut x = start;
    for _ in 0..10 {
        for state in &mut x {
            double_round(state, &turns);
        }
    }
    for g in 0..G {
        for row in 0..4 {
            for i in 0..4 {
                x[g][row][i] = _mm256_add_epi32(x[g][row][i], start[g][row][i]);
            }
            x[g][row] = transpose_4x4(x[g][row]);
        }
        let [a, b, c, d] = x[g];
        for j in 0..4 {
            let low = [
                _mm256_permute2x128_si256::<0x20>(a[j], b[j]),
                _mm256_permute2x128_si256::<0x20>(c[j], d[j]),
            ];
            let high = [
                _mm256_permute2x128_si256::<0x31>(a[j], b[j]),
                _mm256_permute2x128_si256::<0x31>(c[j], d[j]),
            ];
            // SAFETY: the caller guarantees the lanes' pointers for their lengths.
            unsafe {
                xor(&lanes[g][j], low);
                xor(&lanes[g][4 + j], high);
            }
        }
    }
}

/// Returns the shuffles that rotate words by 16 and by 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn byte_turns() -> [__m256i; 2] {
    let both = |low, high| _mm256_set_epi64x(high, low, high, low);
    [
        both(0x0504_0706_0100_0302, 0x0d0c_0f0e_0908_0b0a),
        both(0x0605_0407_0201_0003, 0x0e0d_0c0f_0a09_080b),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn double_round(x: &mut State, turns: &[__m256i; 2]) {
    let [mut a, mut b, mut c, mut d] = *x;
    // All four quarter rounds do one operation before any does the next.
    macro_rules! step {
        ($sum:ident += $term:ident, $turned:ident <<< $turn:expr) => {
            for i in 0..4 {
                $sum[i] = _mm256_add_epi32($sum[i], $term[i]);
            }
            for i in 0..4 {
                $turned[i] = $turn(_mm256_xor_si256($turned[i], $sum[i]));
            }
        };
    }
    let rotate_16 = |x| _mm256_shuffle_epi8(x, turns[0]);
    let rotate_8 = |x| _mm256_shuffle_epi8(x, turns[1]);
    let rotate_12 = |x| _mm256_or_si256(_mm256_slli_epi32::<12>(x), _mm256_srli_epi32::<20>(x));
    let rotate_7 = |x| _mm256_or_si256(_mm256_slli_epi32::<7>(x), _mm256_srli_epi32::<25>(x));
    macro_rules! quarter_rounds {
        () => {
            step!(a += b, d <<< rotate_16);
            step!(c += d, b <<< rotate_12);
            step!(a += b, d <<< rotate_8);
            step!(c += d, b <<< rotate_7);
        };
    }
    quarter_rounds!();
    // Moves diagonals into columns. The second shuffle moves them back.
    b = [b[1], b[2], b[3], b[0]];
    c = [c[2], c[3], c[0], c[1]];
    d = [d[3], d[0], d[1], d[2]];
    quarter_rounds!();
    b = [b[3], b[0], b[1], b[2]];
    c = [c[2], c[3], c[0], c[1]];
    d = [d[1], d[2], d[3], d[0]];
    *x = [a, b, c, d];
}

/// Loads the initial state of any lanes.
///
/// # Safety
/// In each lane, `key` points to 32 readable bytes and `row` to 16.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(lanes: &[Lane; LANES], x: &mut State) {
    // Loads sixteen bytes each of lanes j and 4 + j, for each j.
    macro_rules! columns {
        (|$lane:ident| $at:expr) => {{
            let mut z = [_mm256_setzero_si256(); 4];
            for j in 0..4 {
                let half = |g: usize| {
                    let $lane = &lanes[4 * g + j];
                    // SAFETY: the caller guarantees 16 bytes at this address.
                    unsafe { _mm_loadu_si128($at.cast()) }
                };
                z[j] = _mm256_set_m128i(half(1), half(0));
            }
            transpose_4x4(z)
        }};
    }
    let mut counters = [0; LANES];
    for (counter, lane) in counters.iter_mut().zip(lanes) {
        *counter = lane.counter;
    }
    for at in 0..4 {
        x[0][at] = _mm256_set1_epi32(CONSTANTS[at] as i32);
    }
    x[1] = columns!(|lane| lane.key);
    x[2] = columns!(|lane| lane.key.add(16));
    x[3] = columns!(|lane| lane.row);
    // SAFETY: the array has eight words.
    let counters = unsafe { _mm256_loadu_si256(counters.as_ptr().cast()) };
    x[3][0] = _mm256_add_epi32(x[3][0], counters);
}

/// Transposes the 4 × 4 words in each half of four vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_4x4(x: [__m256i; 4]) -> [__m256i; 4] {
    let low_01 = _mm256_unpacklo_epi32(x[0], x[1]);
    let high_01 = _mm256_unpackhi_epi32(x[0], x[1]);
    let low_23 = _mm256_unpacklo_epi32(x[2], x[3]);
    let high_23 = _mm256_unpackhi_epi32(x[2], x[3]);
    [
        _mm256_unpacklo_epi64(low_01, low_23),
        _mm256_unpackhi_epi64(low_01, low_23),
        _mm256_unpacklo_epi64(high_01, high_23),
        _mm256_unpackhi_epi64(high_01, high_23),
    ]
}

/// XORs the keystream onto a lane's text.
///
/// # Safety
/// The lane's `src` and `dst` are valid for its length.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn xor(lane: &Lane, keystream: [__m256i; 2]) {
    if lane.len as usize >= CHACHA_BLOCK {
        for (half, keystream) in keystream.into_iter().enumerate() {
            // SAFETY: a whole block has two halves of 32 bytes.
            unsafe {
                let text = _mm256_loadu_si256(lane.src.add(32 * half).cast());
                let done = _mm256_xor_si256(text, keystream);
                _mm256_storeu_si256(lane.dst.add(32 * half).cast(), done);
            }
        }
        return;
    }
    let mut bytes = [0; CHACHA_BLOCK];
    // SAFETY: the array has 64 bytes, and the lane's length is less; the loop touches only that many bytes of text.
    unsafe {
        _mm256_storeu_si256(bytes.as_mut_ptr().cast(), keystream[0]);
        _mm256_storeu_si256(bytes.as_mut_ptr().add(32).cast(), keystream[1]);
        for (at, byte) in bytes.iter().enumerate().take(lane.len as usize) {
            lane.dst.add(at).write(lane.src.add(at).read() ^ byte);
        }
    }
    cleanse(&mut bytes);
}
