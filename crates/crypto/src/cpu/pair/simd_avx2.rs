//! Eight lanes in AVX2.

use std::arch::asm;
use std::arch::x86_64::*;

use super::simd::{Row, Simd};
use super::streams::{LANES_MAX, Lanes, each};

/// Proves that the processor has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2.
    pub(super) const unsafe fn new() -> Self {
        Self(())
    }
}

/// Wraps an expression of AVX2 intrinsics.
macro_rules! avx2 {
    ($e:expr) => {
        // SAFETY: `self` is the proof that the processor has AVX2; references are valid for what they refer to.
        unsafe { $e }
    };
}

impl Simd for Avx2 {
    type V = __m256i;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        avx2!(_mm256_set1_epi32(word as i32))
    }

    #[inline(always)]
    fn load(self, row: &Row) -> __m256i {
        avx2!(_mm256_loadu_si256(row.as_ptr().cast()))
    }

    #[inline(always)]
    fn store(self, row: &mut Row, v: __m256i) {
        avx2!(_mm256_storeu_si256(row.as_mut_ptr().cast(), v));
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        avx2!(_mm256_add_epi32(a, b))
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        avx2!(_mm256_xor_si256(a, b))
    }

    #[inline(always)]
    fn xor3(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        self.xor(self.xor(a, b), c)
    }

    #[inline(always)]
    fn choose(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        self.xor(c, avx2!(_mm256_and_si256(a, self.xor(b, c))))
    }

    #[inline(always)]
    fn majority(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        avx2!(_mm256_or_si256(
            _mm256_and_si256(a, b),
            _mm256_and_si256(c, _mm256_or_si256(a, b))
        ))
    }

    #[inline(always)]
    fn xor_or_not(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        let not_c = self.xor(c, self.splat(!0));
        self.xor(b, avx2!(_mm256_or_si256(a, not_c)))
    }

    #[inline(always)]
    fn opaque(self, v: __m256i) -> __m256i {
        avx2!(opaque(v))
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, v: __m256i) -> __m256i {
        avx2!(_mm256_or_si256(
            _mm256_sll_epi32(v, _mm_cvtsi32_si128(N)),
            _mm256_srl_epi32(v, _mm_cvtsi32_si128(32 - N))
        ))
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, v: __m256i) -> __m256i {
        avx2!(_mm256_srl_epi32(v, _mm_cvtsi32_si128(N)))
    }

    #[inline(always)]
    fn swap_bytes(self, v: __m256i) -> __m256i {
        avx2!(_mm256_shuffle_epi8(
            v,
            _mm256_broadcastsi128_si256(_mm_set_epi64x(
                0x0c0d_0e0f_0809_0a0b,
                0x0405_0607_0001_0203
            ))
        ))
    }

    #[inline(always)]
    fn select(self, lanes: Lanes, a: __m256i, b: __m256i) -> __m256i {
        avx2!({
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let set = _mm256_and_si256(_mm256_set1_epi32(lanes as i32), bits);
            _mm256_blendv_epi8(b, a, _mm256_cmpeq_epi32(set, bits))
        })
    }

    #[inline(always)]
    fn append(self, words: &mut [u32; 2 * LANES_MAX], at: usize, v: __m256i, lanes: Lanes) {
        let mut row = [0; LANES_MAX];
        self.store(&mut row, v);
        for (to, lane) in words.iter_mut().skip(at).zip(each(lanes)) {
            *to = row[lane];
        }
    }

    #[inline(always)]
    unsafe fn transposed(self, memory: &[*const u8; LANES_MAX], offset: usize) -> [__m256i; 8] {
        // SAFETY: the caller guarantees the lanes' memory, and `self` proves the instructions.
        unsafe { transposed(memory, offset) }
    }

    #[inline(always)]
    fn columns(self, v: [__m256i; 4]) -> [[u32; 4]; LANES_MAX] {
        avx2!(columns(v))
    }

    #[inline(always)]
    unsafe fn copy_padded(self, from: *const u8, len: usize, to: &mut [u8; 64]) {
        to.fill(0);
        // SAFETY: the caller guarantees `len` bytes at `from`.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, len.min(64)) };
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: the block has no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// Loads and transposes eight words of each lane. Below, the memory is shown in quarters; w is a word, and the
/// numbers are lanes:
///
/// ```text
/// load      [0: w0 … w3  | 4: w0 … w3]     1 with 5, 2 with 6, 3 with 7; and the same of w4 … w7
/// unpack    [w: 0 … 3    | w: 4 … 7]
/// ```
///
/// # Safety
/// The obligations are those of [`Simd::transposed`].
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn transposed(memory: &[*const u8; LANES_MAX], offset: usize) -> [__m256i; 8] {
    let pair = |lane: usize, offset: usize| {
        // SAFETY: the caller guarantees the lanes' memory.
        let quarter = |lane: usize| unsafe { _mm_loadu_si128(memory[lane].add(offset).cast()) };
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(quarter(lane)), quarter(lane + 4))
    };
    let o = offset;
    let [a, b, c, d] = unpack([pair(0, o), pair(1, o), pair(2, o), pair(3, o)]);
    let o = offset + 16;
    let [e, f, g, h] = unpack([pair(0, o), pair(1, o), pair(2, o), pair(3, o)]);
    [a, b, c, d, e, f, g, h]
}

#[target_feature(enable = "avx2")]
#[inline]
fn columns(v: [__m256i; 4]) -> [[u32; 4]; LANES_MAX] {
    let mut columns = [[0; 4]; LANES_MAX];
    for (lane, v) in unpack(v).iter().enumerate() {
        let halves = [
            _mm256_castsi256_si128(*v),
            _mm256_extracti128_si256::<1>(*v),
        ];
        for (half, &v) in halves.iter().enumerate() {
            // SAFETY: each array has 16 bytes.
            unsafe { _mm_storeu_si128(columns[lane + 4 * half].as_mut_ptr().cast(), v) };
        }
    }
    columns
}

/// Transposes 4 × 4 words within each half of the registers.
#[target_feature(enable = "avx2")]
#[inline]
fn unpack([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}
