//! Sixteen lanes in AVX-512.

use std::arch::asm;
use std::arch::x86_64::*;

use super::hash;
use super::simd::{Simd, WordRow};
use super::streams::{LANES_MAX, Lanes};

/// Wraps an expression of AVX-512 intrinsics.
macro_rules! avx512 {
    ($e:expr) => {
        // SAFETY: `self` is the proof that the processor has AVX-512; references are valid for what they refer to.
        unsafe { $e }
    };
}

/// Proves that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512 F, BW, DQ and VL.
    pub(super) const unsafe fn new() -> Self {
        Self(())
    }

    #[inline(always)]
    pub(super) fn load_group(self, row: &SixteenLanes<u32>) -> __m512i {
        avx512!(_mm512_loadu_si512(row.as_ptr().cast()))
    }

    #[inline(always)]
    pub(super) fn store_group(self, row: &mut SixteenLanes<u32>, v: __m512i) {
        avx512!(_mm512_storeu_si512(row.as_mut_ptr().cast(), v));
    }

    /// Does [`Simd::transposed`] for one group of lanes.
    ///
    /// # Safety
    /// The obligations are those of [`Simd::transposed`], for the lanes of this group.
    #[inline(always)]
    pub(super) unsafe fn transposed_group(
        self,
        memory: &SixteenLanes<*const u8>,
        offset: usize,
    ) -> [__m512i; 8] {
        // SAFETY: the caller guarantees the lanes' memory, and `self` proves the instructions.
        unsafe { transposed(memory, offset) }
    }

    /// Does [`Simd::columns`] for one group of lanes.
    #[inline(always)]
    pub(super) fn columns_of_group(self, v: [__m512i; 4], columns: &mut SixteenLanes<[u32; 4]>) {
        avx512!(columns_of(v, columns));
    }
}

/// Sixteen values, one for each lane.
pub(super) type SixteenLanes<T> = [T; 16];

/// The values of lanes 0 … 15 (group 0) or 16 … 31 (group 1).
#[inline(always)]
pub(super) fn group<T>(row: &[T; LANES_MAX], number: usize) -> &SixteenLanes<T> {
    &row.as_chunks().0[number]
}

#[inline(always)]
pub(super) fn group_mut<T>(row: &mut [T; LANES_MAX], number: usize) -> &mut SixteenLanes<T> {
    &mut row.as_chunks_mut().0[number]
}

impl Simd for Avx512 {
    type V = __m512i;
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        avx512!(_mm512_set1_epi32(word as i32))
    }

    #[inline(always)]
    fn load(self, row: &WordRow) -> __m512i {
        self.load_group(group(row, 0))
    }

    #[inline(always)]
    fn store(self, row: &mut WordRow, v: __m512i) {
        self.store_group(group_mut(row, 0), v);
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_xor_si512(a, b))
    }

    #[inline(always)]
    fn xor3(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        avx512!(_mm512_ternarylogic_epi32::<0x96>(a, b, c))
    }

    #[inline(always)]
    fn choose(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        avx512!(_mm512_ternarylogic_epi32::<0xca>(a, b, c))
    }

    #[inline(always)]
    fn majority(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        avx512!(_mm512_ternarylogic_epi32::<0xe8>(a, b, c))
    }

    #[inline(always)]
    fn xor_or_not(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        avx512!(_mm512_ternarylogic_epi32::<0x39>(a, b, c))
    }

    #[inline(always)]
    fn opaque(self, v: __m512i) -> __m512i {
        avx512!(opaque(v))
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, v: __m512i) -> __m512i {
        avx512!(_mm512_rol_epi32::<N>(v))
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, v: __m512i) -> __m512i {
        avx512!(_mm512_srl_epi32(v, _mm_cvtsi32_si128(N)))
    }

    #[inline(always)]
    fn swap_bytes(self, v: __m512i) -> __m512i {
        avx512!(_mm512_shuffle_epi8(
            v,
            _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203)
        ))
    }

    #[inline(always)]
    fn select(self, lanes: Lanes, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_mask_mov_epi32(b, lanes as __mmask16, a))
    }

    #[inline(always)]
    fn append(self, words: &mut [u32; 2 * LANES_MAX], at: usize, v: __m512i, lanes: Lanes) {
        let Some(to) = words.get_mut(at..at + Self::LANES) else {
            return;
        };
        avx512!(_mm512_storeu_si512(
            to.as_mut_ptr().cast(),
            _mm512_maskz_compress_epi32(lanes as __mmask16, v)
        ));
    }

    #[inline(always)]
    unsafe fn transposed(self, memory: &[*const u8; LANES_MAX], offset: usize) -> [__m512i; 8] {
        // SAFETY: the caller guarantees the lanes' memory, and `self` proves the instructions.
        unsafe { self.transposed_group(group(memory, 0), offset) }
    }

    #[inline(always)]
    fn columns(self, v: [__m512i; 4]) -> [[u32; 4]; LANES_MAX] {
        let mut columns = [[0; 4]; LANES_MAX];
        self.columns_of_group(v, group_mut(&mut columns, 0));
        columns
    }

    #[inline(always)]
    unsafe fn copy_padded(self, from: *const u8, len: usize, to: &mut [u8; 64]) {
        avx512!({
            let bytes = _mm512_maskz_loadu_epi8(_bzhi_u64(!0, len as u32), from.cast());
            _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes);
        });
    }

    #[inline(always)]
    fn sha1(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]) {
        hash::sha1(self, state, block);
    }

    #[inline(always)]
    fn sha256(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]) {
        hash::sha256(self, state, block);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn opaque(mut v: __m512i) -> __m512i {
    // SAFETY: the block has no instruction.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// Loads and transposes eight words of each lane. Loads pair halves of 32 bytes, which saves a quarter of the
/// shuffles of a full transposition. w is a word, and the numbers are lanes:
///
/// ```text
/// load      [0: w0 … w3  | 0: w4 … w7  | 4: w0 … w3 | 4: w4 … w7]     and so on: 1 with 5 … 8 with 12 … 11 with 15
/// unpack    [w: 0 … 3    | w+4: 0 … 3  | w: 4 … 7   | w+4: 4 … 7]     for w = 0 … 3, and the same of 8 … 15
/// shuffle   [w: 0 … 3    | w: 4 … 7    | w: 8 … 11  | w: 12 … 15]
/// ```
///
/// # Safety
/// The obligations are those of [`Simd::transposed`].
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn transposed(memory: &SixteenLanes<*const u8>, offset: usize) -> [__m512i; 8] {
    // SAFETY: the caller guarantees the lanes' memory.
    let half = |lane: usize| unsafe { _mm256_loadu_si256(memory[lane].add(offset).cast()) };
    let pair = |lane: usize| {
        let low = _mm512_castsi256_si512(half(lane));
        _mm512_inserti64x4::<1>(low, half(lane + 4))
    };
    let [a0, a1, a2, a3] = unpack([pair(0), pair(1), pair(2), pair(3)]);
    let [b0, b1, b2, b3] = unpack([pair(8), pair(9), pair(10), pair(11)]);
    [
        _mm512_shuffle_i64x2::<0x88>(a0, b0),
        _mm512_shuffle_i64x2::<0x88>(a1, b1),
        _mm512_shuffle_i64x2::<0x88>(a2, b2),
        _mm512_shuffle_i64x2::<0x88>(a3, b3),
        _mm512_shuffle_i64x2::<0xdd>(a0, b0),
        _mm512_shuffle_i64x2::<0xdd>(a1, b1),
        _mm512_shuffle_i64x2::<0xdd>(a2, b2),
        _mm512_shuffle_i64x2::<0xdd>(a3, b3),
    ]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn columns_of(v: [__m512i; 4], columns: &mut SixteenLanes<[u32; 4]>) {
    let (to, _) = columns.as_chunks_mut::<4>();
    let v = unpack(v);
    for i in 0..4 {
        let quarters = [
            _mm512_castsi512_si128(v[i]),
            _mm512_extracti32x4_epi32::<1>(v[i]),
            _mm512_extracti32x4_epi32::<2>(v[i]),
            _mm512_extracti32x4_epi32::<3>(v[i]),
        ];
        for q in 0..4 {
            // SAFETY: each array has 16 bytes.
            unsafe { _mm_storeu_si128(to[q][i].as_mut_ptr().cast(), quarters[q]) };
        }
    }
}

/// Transposes 4 × 4 words within each quarter of the registers.
#[target_feature(enable = "avx512f")]
#[inline]
fn unpack([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}
