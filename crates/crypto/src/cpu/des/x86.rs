//! Words of 256 and of 512 lanes.

use std::arch::x86_64::*;

use super::lanes::{Lane, Lanes};
use super::word::{PIECE, Word, gate_of_pairs};

// SAFETY of the intrinsics: as `Word` says, they are called only inside functions with the tier's instructions.

/// The AVX2 word.
impl Word for __m256i {
    const COLUMNS: usize = 4;

    #[inline(always)]
    fn splat(bits: u64) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_set1_epi64x(bits as i64) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    fn gate<const TABLE: i32>(a: Self, b: Self, c: Self) -> Self {
        gate_of_pairs!(TABLE, a, b, c)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_and_si256(self, other) }
    }

    #[inline(always)]
    fn left<const BY: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_slli_epi64::<BY>(self) }
    }

    #[inline(always)]
    fn right<const BY: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_srli_epi64::<BY>(self) }
    }
}

/// The AVX-512 word. Every gate is one instruction.
impl Word for __m512i {
    const COLUMNS: usize = 8;

    #[inline(always)]
    fn splat(bits: u64) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi64(bits as i64) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_and_si512(self, other) }
    }

    #[inline(always)]
    fn gate<const TABLE: i32>(a: Self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_ternarylogic_epi64::<TABLE>(a, b, c) }
    }

    #[inline(always)]
    fn left<const BY: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_sll_epi64(self, _mm_cvtsi32_si128(BY)) }
    }

    #[inline(always)]
    fn right<const BY: i32>(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_srl_epi64(self, _mm_cvtsi32_si128(BY)) }
    }

    /// Loads each lane's blocks at once and transposes eight lanes in registers.
    #[inline(always)]
    unsafe fn gather(lanes: &[Lane], row: usize, to: &mut [[Self; 64]; PIECE]) {
        let mut blocks = [Self::splat(0); 8];
        for (blocks, lane) in blocks.iter_mut().zip(lanes) {
            // SAFETY: the caller guarantees the lane's blocks; the mask leaves out what the lane does not have.
            *blocks = unsafe { _mm512_maskz_loadu_epi64(mask(lane), lane.at.cast()) };
        }
        let turned = turn(blocks);
        for (to, blocks) in to.iter_mut().zip(turned) {
            to[row] = blocks;
        }
    }

    #[inline(always)]
    unsafe fn scatter(lanes: &[Lane], row: usize, from: &[[Self; 64]; PIECE]) {
        let mut blocks = [Self::splat(0); 8];
        for (blocks, from) in blocks.iter_mut().zip(from) {
            *blocks = from[row];
        }
        let turned = turn(blocks);
        for (blocks, lane) in turned.into_iter().zip(lanes) {
            // SAFETY: as in `gather`.
            unsafe { _mm512_mask_storeu_epi64(lane.at.cast(), mask(lane), blocks) };
        }
    }
}

#[inline(always)]
fn mask(lane: &Lane) -> u8 {
    if lane.blocks >= 8 {
        0xff
    } else {
        (1u32 << lane.blocks).wrapping_sub(1) as u8
    }
}

macro_rules! pick {
    ($name:ident, $x:ident, $y:ident, $pick:expr) => {
        #[inline(always)]
        fn $name($x: __m512i, $y: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { $pick }
        }
    };
}
pick!(low, x, y, _mm512_unpacklo_epi64(x, y));
pick!(high, x, y, _mm512_unpackhi_epi64(x, y));
// Take the 128-bit parts 0 and 2, or 1 and 3, of both.
pick!(even, x, y, _mm512_shuffle_i64x2::<0x88>(x, y));
pick!(odd, x, y, _mm512_shuffle_i64x2::<0xdd>(x, y));

/// Transposes 8 × 8 quadwords.
#[inline(always)]
fn turn([a, b, c, d, e, f, g, h]: [__m512i; 8]) -> [__m512i; 8] {
    // Each pair of lanes gives quadwords 0, 2, 4, 6 and quadwords 1, 3, 5, 7.
    let (ab, cd, ef, gh) = (low(a, b), low(c, d), low(e, f), low(g, h));
    let (ab1, cd1, ef1, gh1) = (high(a, b), high(c, d), high(e, f), high(g, h));
    // Each four lanes give quadwords k and k + 4.
    let (a0, e0) = (even(ab, cd), even(ef, gh));
    let (a1, e1) = (even(ab1, cd1), even(ef1, gh1));
    let (a2, e2) = (odd(ab, cd), odd(ef, gh));
    let (a3, e3) = (odd(ab1, cd1), odd(ef1, gh1));
    [
        even(a0, e0),
        even(a1, e1),
        even(a2, e2),
        even(a3, e3),
        odd(a0, e0),
        odd(a1, e1),
        odd(a2, e2),
        odd(a3, e3),
    ]
}

/// Runs the lanes with AVX2 words.
///
/// # Safety
/// The obligations are those of [`Lanes::run`].
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) unsafe fn run_256(lanes: &mut Lanes, triple: bool, encrypt: bool) {
    // SAFETY: the caller guarantees the lanes and the instructions.
    unsafe { lanes.run::<__m256i>(triple, encrypt) }
}

/// Runs the lanes with AVX-512 words.
///
/// # Safety
/// The obligations are those of [`Lanes::run`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2")]
pub(super) unsafe fn run_512(lanes: &mut Lanes, triple: bool, encrypt: bool) {
    // SAFETY: the caller guarantees the lanes and the instructions.
    unsafe { lanes.run::<__m512i>(triple, encrypt) }
}
