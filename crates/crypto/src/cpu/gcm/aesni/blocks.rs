//! Single blocks: the arithmetic of GHASH, rounds of AES, and parts of blocks. The tricks are those of the parent's head.

use std::arch::asm;
use std::arch::x86_64::*;

use super::super::key::{self, HALVES, Key};

/// Blocks of a group.
pub(super) const GROUP: usize = 8;

#[repr(align(16))]
struct Aligned<T>(T);

static REVERSED: Aligned<[u8; 16]> =
    Aligned([15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);

/// The bytes of a block as the hash wants them.
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
    // SAFETY: 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Products yet to be reduced: high·x^128 + middle·x^64 + low, where `middle` still has the two others in it (trick 2).
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
        // SAFETY: the context of this tier has the powers and their halves.
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

    /// The number, plus another one.
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

/// Counters where a counter block has them, in network order.
static COUNTERS: Aligned<[[u32; 4]; GROUP]> = Aligned({
    let mut counters = [[0; 4]; GROUP];
    let mut at = 0;
    while at < GROUP {
        counters[at][3] = (at as u32).swap_bytes();
        at += 1;
    }
    counters
});

/// `without_counter` with the number of a group's first block, a multiple of eight.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn base(without_counter: __m128i, number: u32) -> __m128i {
    let counter = _mm_insert_epi32::<3>(_mm_setzero_si128(), number.swap_bytes() as i32);
    _mm_xor_si128(without_counter, counter)
}

/// The counter blocks of a group's first `N` blocks after round 0 (trick 4).
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn counters<const N: usize>(without_counter: __m128i, group: usize) -> [__m128i; N] {
    let number = (GROUP * group) as u32;
    let mut states = [base(without_counter, number); N];
    for (at, state) in states.iter_mut().enumerate() {
        *state = if at + 1 < GROUP {
            // SAFETY: 16 bytes, aligned.
            let counter = unsafe { _mm_load_si128(COUNTERS.0[at + 1].as_ptr().cast()) };
            _mm_xor_si128(*state, counter)
        } else {
            base(without_counter, number.wrapping_add(GROUP as u32))
        };
    }
    states
}

/// One AES instruction for each state, with the round key at an address (trick 3).
macro_rules! with_round_key {
    ($instruction:literal, $key:expr, $at:expr, $($state:ident)+) => {{
        #[allow(unused_assignments)]
        let mut _round_key: __m128i;
        // SAFETY: reads a round key of the context.
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

/// The same for any number of states up to eight.
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

/// Round `AT` of AES, not the last one.
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

/// Round `AT` of a group, and between its instructions a block times H^`POWER` is added to `sum` (trick 3).
///
/// # Safety
/// 16 bytes may be read at `block`.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn round_and_product<const AT: usize, const POWER: usize>(
    key: &Key,
    states: &mut [__m128i; GROUP],
    sum: &mut Sum,
    block: *const u8,
) {
    // SAFETY: the caller's promise.
    let block = unsafe { _mm_loadu_si128(block.cast()) };
    round_and_product_of::<AT, POWER>(key, states, sum, reverse(block));
}

/// As [`round_and_product`], with a block that is a number already.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn round_and_product_of<const AT: usize, const POWER: usize>(
    key: &Key,
    states: &mut [__m128i; GROUP],
    sum: &mut Sum,
    block: __m128i,
) {
    let [a, b, c, d, e, f, g, h] = states;
    #[allow(unused_assignments)]
    let (mut _round_key, mut _product, mut _block): (__m128i, __m128i, __m128i);
    // SAFETY: reads a round key, a power of H and its halves in the context.
    unsafe {
        asm!(
            "vmovdqa {k}, [{key} + {round}]",
            "vpshufd {y}, {x}, 0x4e",
            "vaesenc {a}, {a}, {k}",
            "vaesenc {b}, {b}, {k}",
            "vpxor {y}, {y}, {x}",
            "vaesenc {c}, {c}, {k}",
            "vaesenc {d}, {d}, {k}",
            "vaesenc {e}, {e}, {k}",
            "vaesenc {f}, {f}, {k}",
            "vaesenc {g}, {g}, {k}",
            "vaesenc {h}, {h}, {k}",
            "vmovq {k}, qword ptr [{key} + {halves}]",
            "vpclmulqdq {y}, {y}, {k}, 0x00",
            "vpclmulqdq {k}, {x}, [{key} + {power}], 0x11",
            "vpclmulqdq {x}, {x}, [{key} + {power}], 0x00",
            "vpxor {middle}, {middle}, {y}",
            "vpxor {high}, {high}, {k}",
            "vpxor {low}, {low}, {x}",
            key = in(reg) std::ptr::from_ref(key),
            round = const key::ROUND_KEYS_AT + 16 * AT,
            power = const key::power_at(POWER),
            halves = const key::halves_at(POWER),
            k = out(xmm_reg) _round_key,
            x = inout(xmm_reg) block => _block,
            y = out(xmm_reg) _product,
            a = inout(xmm_reg) *a,
            b = inout(xmm_reg) *b,
            c = inout(xmm_reg) *c,
            d = inout(xmm_reg) *d,
            e = inout(xmm_reg) *e,
            f = inout(xmm_reg) *f,
            g = inout(xmm_reg) *g,
            h = inout(xmm_reg) *h,
            high = inout(xmm_reg) sum.high,
            middle = inout(xmm_reg) sum.middle,
            low = inout(xmm_reg) sum.low,
            options(readonly, nostack, preserves_flags),
        )
    }
}

/// `len` bytes, fewer than 16, and zeros behind them.
///
/// # Safety
/// They may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn load_part(from: *const u8, len: usize) -> __m128i {
    let (mut value, mut at) = ([0u64; 2], len);
    // SAFETY: the caller's promise: the bytes are taken from the end, the smallest piece first.
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

/// Writes the first `len` bytes, fewer than 16.
///
/// # Safety
/// They may be written.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) unsafe fn store_part(mut to: *mut u8, len: usize, value: __m128i) {
    let mut rest = _mm_cvtsi128_si64(value) as u64;
    // SAFETY: the caller's promise: `to` goes on by what has been written.
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

/// The first `len` bytes, fewer than 16, and zeros for the others.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
pub(super) fn first_bytes(value: __m128i, len: usize) -> __m128i {
    let places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm_and_si128(value, _mm_cmpgt_epi8(_mm_set1_epi8(len as i8), places))
}

const _: () = assert!(GROUP < HALVES);
