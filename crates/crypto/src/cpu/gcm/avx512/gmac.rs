//! GHASH for AES-GMAC with AVX-512: four vectors at a time.

use std::arch::x86_64::*;

use super::super::hashed_row::HashedRow;
use super::super::key::{GcmKey, POWERS};
use super::vectors::*;

/// Loads the vector that begins at byte `at` of the row, with zeros after the row's end.
///
/// # Safety
/// The row may be read from its ninth byte on.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn vector(row: &HashedRow, at: usize) -> __m512i {
    let left = row.len.saturating_sub(at).min(VECTOR_LEN);
    let mut mask = _bzhi_u64(ALL, left as u32);
    if at == 0 {
        mask &= !0xff;
    }
    // SAFETY: the caller guarantees that the row may be read.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, row.begin.wrapping_add(at).cast()) };
    let number = reverse(bytes);
    if at == 0 {
        return _mm512_or_si512(number, lane_0([0, row.head]));
    }
    number
}

/// Returns the ICV. `mask` is the encrypted first counter block.
///
/// # Safety
/// - The CPU has the tier's features.
/// - The row may be read from its ninth byte on.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(in super::super) unsafe fn authenticate(
    key: &GcmKey,
    row: &HashedRow,
    mask: __m128i,
) -> __m128i {
    let mut hash = _mm512_setzero_si512();
    let (mut at, mut left) = (0, row.len.div_ceil(16));
    // The loop stops early enough that the last group has room for the lengths block.
    while left >= POWERS {
        let blocks = POWERS.min(left - 1);
        // SAFETY: the caller guarantees that the row may be read.
        let mut sum = unsafe {
            let first = _mm512_xor_si512(vector(row, at), hash);
            Sum::product(first, powers(key, blocks, 0))
        };
        for z in 1..GROUP {
            let begin = at + VECTOR_LEN * z;
            // SAFETY: same as above.
            let mut blocks_of = unsafe { vector(row, begin) };
            if z == GROUP - 1 && blocks < POWERS {
                blocks_of = _mm512_maskz_mov_epi64(0b0011_1111, blocks_of);
            }
            sum.add_product(blocks_of, powers(key, blocks, z));
        }
        hash = _mm512_zextsi128_si512(lane(fold(&[sum.reduce()]), 0));
        at += 16 * blocks;
        left -= blocks;
    }
    let mut sum = Sum::product(lane_0([0, 8 * row.len as u64]), power(key, 1));
    for z in 0..left.div_ceil(LANES) {
        // SAFETY: same as above.
        let mut blocks = unsafe { vector(row, at + VECTOR_LEN * z) };
        if z == 0 {
            blocks = _mm512_xor_si512(blocks, hash);
        }
        sum.add_product(blocks, powers(key, left + 1, z));
    }
    let hash = _mm512_zextsi128_si512(lane(fold(&[sum.reduce()]), 0));
    _mm_xor_si128(_mm512_castsi512_si128(reverse(hash)), mask)
}
