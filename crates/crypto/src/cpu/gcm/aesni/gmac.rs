//! The hash of AES-GMAC: eight blocks at a time.

use std::arch::x86_64::*;

use super::super::gmac::Row;
use super::super::key::Key;
use super::blocks::*;

/// Block `at` of the row, not the first one, as a number.
///
/// # Safety
/// The row has it.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn block(row: &Row, at: usize) -> __m128i {
    let (place, left) = (row.begin.wrapping_add(16 * at), row.len - 16 * at);
    // SAFETY: the caller's promise.
    reverse(unsafe {
        if left >= 16 {
            _mm_loadu_si128(place.cast())
        } else {
            load_part(place, left)
        }
    })
}

/// The ICV with `mask`, the first block of the stream.
///
/// # Safety
/// The CPU has the tier's features; the row may be read from its ninth byte on.
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(in super::super) unsafe fn authenticate(key: &Key, row: &Row, mask: __m128i) -> __m128i {
    // SAFETY: the row has more than a block.
    let second = u64::from_be(unsafe { row.begin.add(8).cast::<u64>().read_unaligned() });
    // A block with the hash of those before.
    let mut first = number([second, row.head]);
    let (mut at, mut left) = (0, row.len.div_ceil(16));
    while left > GROUP {
        let mut sum = Sum::new();
        for n in 1..GROUP {
            // SAFETY: there are more blocks than these.
            let block = unsafe { _mm_loadu_si128(row.begin.wrapping_add(16 * (at + n)).cast()) };
            sum.add(reverse(block), key, GROUP - n);
        }
        sum.add(first, key, GROUP);
        at += GROUP;
        left -= GROUP;
        // SAFETY: the row has this block.
        first = sum.reduce_onto(unsafe { block(row, at) });
    }
    let mut sum = Sum::new();
    sum.add(number([0, 8 * row.len as u64]), key, 1);
    for n in 1..left {
        // SAFETY: as above.
        sum.add(unsafe { block(row, at + n) }, key, left + 1 - n);
    }
    sum.add(first, key, left + 1);
    _mm_xor_si128(reverse(sum.reduce_onto(_mm_setzero_si128())), mask)
}
