//! The S-box of MARS in byte shuffles: sixteen indices at once. Every row of the table is read for every index, and a
//! shuffle takes the same time for every index.

use std::arch::x86_64::*;

use super::mars_box::BOX;
use super::vector::Vector;

const ROW: usize = 16;
/// Rows of a half of the S-box.
const ROWS: usize = 16;

/// The words of a row, byte by byte: all lowest bytes, then the others.
type Row = [[u8; ROW]; 4];

static HALVES: [[Row; ROWS]; 2] = {
    let mut halves = [[[[0; ROW]; 4]; ROWS]; 2];
    let mut at = 0;
    while at < BOX.len() {
        let bytes = BOX[at].to_le_bytes();
        let row = &mut halves[at / (ROWS * ROW)][at / ROW % ROWS];
        let mut byte = 0;
        while byte < bytes.len() {
            row[byte][at % ROW] = bytes[byte];
            byte += 1;
        }
        at += 1;
    }
    halves
};

/// Tells whether the processor has the shuffles.
#[inline(always)]
pub(super) fn available() -> bool {
    is_x86_feature_detected!("ssse3")
}

/// Finds the words of a half for the lowest bytes of the indices.
#[target_feature(enable = "ssse3")]
pub(super) fn look_up_half(half: usize, indices: [Vector; 4]) -> [Vector; 4] {
    let mut found = [_mm_setzero_si128(); 4];
    let here = _mm_setzero_si128();
    add(&mut found, &HALVES[half], bytes(indices, 0), here);
    words(found)
}

/// Finds words of the whole S-box for the lowest nine bits of the indices.
#[target_feature(enable = "ssse3")]
pub(super) fn look_up(indices: [Vector; 2]) -> [Vector; 2] {
    let [a, b] = indices;
    let indices = [a, b, a, b];
    let low = bytes(indices, 0);
    let half = _mm_and_si128(bytes(indices, 8), _mm_set1_epi8(1));
    let mut found = [_mm_setzero_si128(); 4];
    for (rows, other) in HALVES.iter().zip([1, 0]) {
        let elsewhere = _mm_cmpeq_epi8(half, _mm_set1_epi8(other));
        add(&mut found, rows, low, elsewhere);
    }
    let [a, b, ..] = words(found);
    [a, b]
}

/// Adds the words that the indices name, byte by byte, except where all bits of `elsewhere` are set.
#[target_feature(enable = "ssse3")]
#[inline]
fn add(found: &mut [__m128i; 4], rows: &[Row; ROWS], indices: __m128i, elsewhere: __m128i) {
    for (row, number) in rows.iter().zip(0u8..) {
        // An index of this row becomes 0x70 to 0x7f. For the others the highest bit is set, so the shuffle gives zero.
        let difference = _mm_xor_si128(indices, _mm_set1_epi8((number << 4) as i8));
        let place = _mm_adds_epu8(difference, _mm_set1_epi8(0x70));
        let place = _mm_or_si128(place, elsewhere);
        for (found, bytes) in found.iter_mut().zip(row) {
            // SAFETY: the row has 16 bytes.
            let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
            *found = _mm_or_si128(*found, _mm_shuffle_epi8(bytes, place));
        }
    }
}

/// A byte of each word, from the bit `shift` on.
#[target_feature(enable = "ssse3")]
#[inline]
fn bytes(words: [Vector; 4], shift: u32) -> __m128i {
    let [a, b, c, d] = words.map(|vector| (vector.shr(shift) & Vector::splat(0xff)).register());
    _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d))
}

/// The words that the four bytes of each make.
#[target_feature(enable = "ssse3")]
#[inline]
fn words([first, second, third, fourth]: [__m128i; 4]) -> [Vector; 4] {
    let low = [
        _mm_unpacklo_epi8(first, second),
        _mm_unpacklo_epi8(third, fourth),
    ];
    let high = [
        _mm_unpackhi_epi8(first, second),
        _mm_unpackhi_epi8(third, fourth),
    ];
    [
        _mm_unpacklo_epi16(low[0], low[1]),
        _mm_unpackhi_epi16(low[0], low[1]),
        _mm_unpacklo_epi16(high[0], high[1]),
        _mm_unpackhi_epi16(high[0], high[1]),
    ]
    .map(Vector::of_register)
}
