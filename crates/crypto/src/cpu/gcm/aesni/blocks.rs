//! Operations on single blocks: GHASH arithmetic, AES rounds and parts of blocks. Trick numbers refer to the parent
//! module's head.

use std::arch::asm;
use std::arch::x86_64::*;

use super::super::key::{self, HALVES, Key};

/// Number of blocks in a group.
pub(super) const GROUP: usize = 8;

#[repr(align(16))]
struct Aligned<T>(T);

static REVERSED: Aligned<[u8; 16]> =
    Aligned([15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);

/// Reverses the bytes of a block, as GHASH needs it.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn reverse(block: __m128i) -> __m128i {
    _mm_shuffle_epi8(block, load(&REVERSED.0))
}

#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn number([low, high]: [u64; 2]) -> __m128i {
    _mm_set_epi64x(high as i64, low as i64)
}

#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference covers 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Products that are not reduced yet: high·x^128 + middle·x^64 + low. The field `middle` still contains high and low
/// (Karatsuba, trick 2).
pub(super) struct Sum {
    high: __m128i,
    middle: __m128i,
    low: __m128i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    pub(super) fn new() -> Self {
        let zero = _mm_setzero_si128();
        Self {
            high: zero,
            middle: zero,
            low: zero,
        }
    }

    /// Adds `block`·H^`power`.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    pub(super) fn add(&mut self, block: __m128i, key: &Key, power: usize) {
        // SAFETY: a context of this tier has the powers and the sums of their halves.
        let (h, halves) = unsafe {
            (
                _mm_load_si128(key.powers_from(power).cast()),
                _mm_loadl_epi64(key.halves_of(power).cast()),
            )
        };
        let high = _mm_clmulepi64_si128::<0x11>(block, h);
        let low = _mm_clmulepi64_si128::<0x00>(block, h);
        let folded = _mm_xor_si128(block, _mm_shuffle_epi32::<0x4e>(block));
        let middle = _mm_clmulepi64_si128::<0x00>(folded, halves);
        self.high = _mm_xor_si128(self.high, high);
        self.middle = _mm_xor_si128(self.middle, middle);
        self.low = _mm_xor_si128(self.low, low);
    }

    /// Returns the reduced sum plus `other`.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    pub(super) fn reduce_onto(self, other: __m128i) -> __m128i {
        let both = _mm_xor_si128(self.high, self.low);
        key::reduce(
            _mm_xor_si128(self.high, other),
            _mm_xor_si128(self.middle, both),
            self.low,
        )
    }
}

/// Counters 0 … 7 at their place in a counter block, in network byte order.
static COUNTERS: Aligned<[[u32; 4]; GROUP]> = Aligned({
    let mut counters = [[0; 4]; GROUP];
    let mut at = 0;
    while at < GROUP {
        counters[at][3] = (at as u32).swap_bytes();
        at += 1;
    }
    counters
});

/// Returns `without_counter` with the counter 8·`eights`.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn base(without_counter: __m128i, eights: usize) -> __m128i {
    let counter = ((GROUP * eights) as u32).swap_bytes();
    let counter = _mm_insert_epi32::<3>(_mm_setzero_si128(), counter as i32);
    _mm_xor_si128(without_counter, counter)
}

/// Returns the counter blocks from 8·`eights` + `first` on, after round 0 (trick 4). `first` is at most 9.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn counters<const N: usize>(
    without_counter: __m128i,
    eights: usize,
    first: usize,
) -> [__m128i; N] {
    let bases = [
        base(without_counter, eights + first / GROUP),
        base(without_counter, eights + first / GROUP + 1),
    ];
    let mut states = [bases[0]; N];
    for (counter, state) in (first % GROUP..).zip(&mut states) {
        // SAFETY: each entry has 16 bytes and is aligned to 16.
        let low = unsafe { _mm_load_si128(COUNTERS.0[counter % GROUP].as_ptr().cast()) };
        *state = _mm_xor_si128(bases[counter / GROUP % 2], low);
    }
    states
}

/// Emits one AES instruction for each state, with the round key at `$key` + `$at` (trick 3).
macro_rules! with_round_key {
    ($instruction:literal, $key:expr, $at:expr, $($state:ident)+) => {{
        #[allow(unused_assignments)]
        let mut _round_key: __m128i;
        // SAFETY: the block only reads a round key of the context.
        unsafe {
            asm!(
                "vmovdqa {round_key}, [{key} + {at}]",
                $(concat!(
                    $instruction,
                    " {", stringify!($state), "}, {", stringify!($state), "}, {round_key}"
                ),)+
                key = in(reg) $key,
                at = const $at,
                round_key = out(xmm_reg) _round_key,
                $($state = inout(xmm_reg) *$state,)+
                options(readonly, nostack, preserves_flags),
            )
        }
    }};
}

/// Does the same for a slice of up to eight states.
macro_rules! with_round_key_all {
    ($instruction:literal, $key:expr, $at:expr, $states:expr) => {
        match &mut $states[..] {
            [a] => with_round_key!($instruction, $key, $at, a),
            [a, b] => with_round_key!($instruction, $key, $at, a b),
            [a, b, c] => with_round_key!($instruction, $key, $at, a b c),
            [a, b, c, d] => with_round_key!($instruction, $key, $at, a b c d),
            [a, b, c, d, e] => with_round_key!($instruction, $key, $at, a b c d e),
            [a, b, c, d, e, f] => with_round_key!($instruction, $key, $at, a b c d e f),
            [a, b, c, d, e, f, g] => with_round_key!($instruction, $key, $at, a b c d e f g),
            [a, b, c, d, e, f, g, h] => with_round_key!($instruction, $key, $at, a b c d e f g h),
            _ => {}
        }
    };
}

/// Does round `AT` of AES, which is not the last one.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn round<const AT: usize, const N: usize>(key: &Key, states: &mut [__m128i; N]) {
    let keys = key.round_keys().as_ptr();
    with_round_key_all!("vaesenc", keys, 16 * AT, states);
}

#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn last_round<const N: usize>(key: &Key, rounds: usize, states: &mut [__m128i; N]) {
    let last = key.round_keys()[rounds].as_ptr();
    with_round_key_all!("vaesenclast", last, 0, states);
}

/// Does round `AT` of the states. Between its instructions it adds `block`·H^`power` to the sum (trick 3).
macro_rules! with_product {
    ($key:expr, $at:expr, $sum:expr, $block:expr, $hash_key:expr, $power:expr; $($state:ident)+; $($more:ident)*) => {{
        #[allow(unused_assignments)]
        let (mut _x, mut _y, mut _z): (__m128i, __m128i, __m128i);
        // SAFETY: the block only reads a round key of one context, and a power of H and its halves of the other.
        unsafe {
            asm!(
                "vmovdqa {z}, [{key} + {round}]",
                "vpshufd {y}, {x}, 0x4e",
                $(concat!("vaesenc {", stringify!($state), "}, {", stringify!($state), "}, {z}"),)+
                "vpxor {y}, {y}, {x}",
                $(concat!("vaesenc {", stringify!($more), "}, {", stringify!($more), "}, {z}"),)*
                "vmovq {z}, qword ptr [{hash_key} + {halves}]",
                "vpclmulqdq {y}, {y}, {z}, 0x00",
                "vpclmulqdq {z}, {x}, [{hash_key} + {power}], 0x11",
                "vpclmulqdq {x}, {x}, [{hash_key} + {power}], 0x00",
                "vpxor {middle}, {middle}, {y}",
                "vpxor {high}, {high}, {z}",
                "vpxor {low}, {low}, {x}",
                key = in(reg) std::ptr::from_ref($key),
                hash_key = in(reg) std::ptr::from_ref($hash_key),
                round = const key::ROUND_KEYS_AT + 16 * $at,
                power = const key::power_at($power),
                halves = const key::halves_at($power),
                x = inout(xmm_reg) $block => _x,
                y = out(xmm_reg) _y,
                z = out(xmm_reg) _z,
                $($state = inout(xmm_reg) *$state,)+
                $($more = inout(xmm_reg) *$more,)*
                high = inout(xmm_reg) $sum.high,
                middle = inout(xmm_reg) $sum.middle,
                low = inout(xmm_reg) $sum.low,
                options(readonly, nostack, preserves_flags),
            )
        }
    }};
}

/// The blocks of a group that the hash takes. The group is the last one of a message, or one before it.
pub(super) struct Hashed<'a> {
    pub(super) key: &'a Key,
    /// The first block XOR the hash of all blocks before it.
    pub(super) first: __m128i,
    /// Where the second block is in memory.
    pub(super) others: *const u8,
    /// The last block, padded with zeros. It is used only in the last group, and only if that has more than one
    /// block.
    pub(super) last: __m128i,
    /// The lengths block. It is used only in the last group.
    pub(super) lengths: __m128i,
}

/// Returns the power of H for the product of round `at`. The group has `blocks` blocks, and the lengths follow at the
/// `end` of a message. Rounds without a product get a power that nobody uses.
const fn power_in_round(blocks: usize, end: bool, at: usize) -> usize {
    let all = blocks + end as usize;
    if at < all { all - at } else { all }
}

/// Does rounds 1 … 9 of the states, and beside them the products of `K` blocks. At the `END` of a message the lengths
/// are multiplied too.
///
/// # Safety
/// The `K` blocks may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn rounds_and_products<const N: usize, const K: usize, const END: bool>(
    key: &Key,
    states: &mut [__m128i; N],
    hashed: &Hashed,
) -> Sum {
    let mut sum = Sum::new();
    macro_rules! rounds {
        ($($at:literal)+) => {
            $(
                let block = if $at + 1 == K && END {
                    Some(hashed.last)
                } else if $at < K {
                    // SAFETY: the caller guarantees that the blocks may be read.
                    Some(reverse(unsafe { _mm_loadu_si128(hashed.others.wrapping_add(16 * ($at - 1)).cast()) }))
                } else if $at == K && END {
                    Some(hashed.lengths)
                } else if $at == K + END as usize {
                    // The first block needs the hash of the blocks before it, so it comes last.
                    Some(hashed.first)
                } else {
                    None
                };
                match block {
                    Some(block) => round_and_product::<$at, N, K, END>(key, states, &mut sum, block, hashed.key),
                    None => round::<$at, N>(key, states),
                }
            )+
        };
    }
    rounds!(1 2 3 4 5 6 7 8 9);
    sum
}

#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn round_and_product<const AT: usize, const N: usize, const K: usize, const END: bool>(
    key: &Key,
    states: &mut [__m128i; N],
    sum: &mut Sum,
    block: __m128i,
    hash_key: &Key,
) {
    macro_rules! with {
        ($($states:ident)+; $($more:ident)*) => {
            with_product!(
                key, AT, sum, block, hash_key, power_in_round(K, END, AT);
                $($states)+; $($more)*
            )
        };
    }
    match &mut states[..] {
        [a] => with!(a;),
        [a, b] => with!(a; b),
        [a, b, c] => with!(a b; c),
        [a, b, c, d] => with!(a b; c d),
        [a, b, c, d, e] => with!(a b c; d e),
        [a, b, c, d, e, f] => with!(a b c; d e f),
        [a, b, c, d, e, f, g] => with!(a b c; d e f g),
        [a, b, c, d, e, f, g, h] => with!(a b c; d e f g h),
        _ => {}
    }
}

/// Does the products of the last blocks of a message and of the lengths, without AES rounds.
///
/// # Safety
/// The `K` blocks may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn products<const K: usize>(hashed: &Hashed) -> Sum {
    let (mut sum, key) = (Sum::new(), hashed.key);
    for at in 1..K {
        let block = if at == K - 1 {
            hashed.last
        } else {
            // SAFETY: the caller guarantees that the blocks may be read.
            reverse(unsafe { _mm_loadu_si128(hashed.others.wrapping_add(16 * (at - 1)).cast()) })
        };
        sum.add(block, key, K + 1 - at);
    }
    sum.add(hashed.lengths, key, 1);
    sum.add(hashed.first, key, K + 1);
    sum
}

/// Loads `len` bytes, fewer than 16, with zeros after them.
///
/// # Safety
/// The `len` bytes from `from` on may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn load_part(from: *const u8, len: usize) -> __m128i {
    let (mut value, mut at) = ([0u64; 2], len);
    // SAFETY: `at` goes down from `len`, so each read stays inside the `len` bytes; the pieces grow from one byte to
    // eight.
    unsafe {
        let mut odd = 0;
        if len & 1 != 0 {
            at -= 1;
            odd = u64::from(*from.add(at));
        }
        if len & 2 != 0 {
            at -= 2;
            odd = odd << 16 | u64::from(from.add(at).cast::<u16>().read_unaligned());
        }
        if len & 4 != 0 {
            at -= 4;
            odd = odd << 32 | u64::from(from.add(at).cast::<u32>().read_unaligned());
        }
        if len & 8 != 0 {
            value = [from.cast::<u64>().read_unaligned(), odd];
        } else {
            value[0] = odd;
        }
    }
    number(value)
}

/// Writes the first `len` bytes, fewer than 16, of `value`.
///
/// # Safety
/// The `len` bytes from `to` on may be written.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn store_part(mut to: *mut u8, len: usize, value: __m128i) {
    let mut rest = _mm_cvtsi128_si64(value) as u64;
    // SAFETY: `to` advances by what was written, so each write stays inside the `len` bytes.
    unsafe {
        if len & 8 != 0 {
            to.cast::<u64>().write_unaligned(rest);
            to = to.add(8);
            rest = _mm_extract_epi64::<1>(value) as u64;
        }
        if len & 4 != 0 {
            to.cast::<u32>().write_unaligned(rest as u32);
            to = to.add(4);
            rest >>= 32;
        }
        if len & 2 != 0 {
            to.cast::<u16>().write_unaligned(rest as u16);
            to = to.add(2);
            rest >>= 16;
        }
        if len & 1 != 0 {
            *to = rest as u8;
        }
    }
}

/// Returns the first `len` bytes, fewer than 16, with zeros in place of the others.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn first_bytes(value: __m128i, len: usize) -> __m128i {
    let places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm_and_si128(value, _mm_cmpgt_epi8(_mm_set1_epi8(len as i8), places))
}

const _: () = assert!(GROUP < HALVES);
