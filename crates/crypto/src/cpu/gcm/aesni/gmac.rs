//! GHASH for AES-GMAC with AES-NI: eight blocks at a time.

use std::arch::x86_64::*;

use super::super::hashed_row::HashedRow;
use super::super::key::GcmKey;
use super::blocks::*;

/// Loads block `at` of the row as a number, with zeros after the row's end. `at` is not 0.
///
/// # Safety
/// The row has a block with this number, and it may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn block(row: &HashedRow, at: usize) -> __m128i {
    let (place, left) = (row.begin.wrapping_add(16 * at), row.len - 16 * at);
    // SAFETY: the caller guarantees that the row may be read.
    reverse(unsafe {
        if left >= 16 {
            _mm_loadu_si128(place.cast())
        } else {
            load_part(place, left)
        }
    })
}

/// Returns the ICV. `mask` is the encrypted first counter block.
///
/// # Safety
/// - The CPU has the tier's features.
/// - The row may be read from its ninth byte on.
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(in super::super) unsafe fn authenticate(
    key: &GcmKey,
    row: &HashedRow,
    mask: __m128i,
) -> __m128i {
    // SAFETY: the row has more than 16 bytes.
    let second = u64::from_be(unsafe { row.begin.add(8).cast::<u64>().read_unaligned() });
    // The first block of the next group, XOR the hash of all blocks before it.
    let mut first = number([second, row.head]);
    let (mut at, mut left) = (0, row.len.div_ceil(16));
    while left > GROUP {
        let mut sum = Sum::new();
        for n in 1..GROUP {
            // SAFETY: more than `GROUP` blocks are left, so this one is whole.
            let block = unsafe { _mm_loadu_si128(row.begin.wrapping_add(16 * (at + n)).cast()) };
            sum.add(reverse(block), key, GROUP - n);
        }
        sum.add(first, key, GROUP);
        at += GROUP;
        left -= GROUP;
        // SAFETY: more blocks were left than the group had.
        first = sum.reduce_onto(unsafe { block(row, at) });
    }
    let mut sum = Sum::new();
    sum.add(number([0, 8 * row.len as u64]), key, 1);
    for n in 1..left {
        // SAFETY: the row has `left` more blocks.
        sum.add(unsafe { block(row, at + n) }, key, left + 1 - n);
    }
    sum.add(first, key, left + 1);
    _mm_xor_si128(reverse(sum.reduce_onto(_mm_setzero_si128())), mask)
}
