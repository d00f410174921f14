//! SHA-1 and SHA-256 with SHA-NI: several streams side by side, with other work between their rounds.
//!
//! 1. The rounds of one stream wait for each other: each takes four cycles, although the processor can begin one
//!    every three. Two streams side by side close the gap.
//! 2. The work beside a block of the hash comes in quarters. Each follows the same number of rounds.

use std::arch::asm;
use std::arch::x86_64::*;

use super::beside::Beside;
use super::hash::{Hash, SHA256_K, Sha1, Sha256, unroll};

/// A hash whose rounds are instructions of the processor.
///
/// The functions are `inline(always)` and have no `target_feature`: they become part of a caller that has it.
pub(super) trait ShaNi: Hash + Sized {
    type State: Copy;

    /// Converts the words of a state to the order of the instructions.
    ///
    /// # Safety
    /// The processor has SHA-NI.
    unsafe fn state(words: &[u32; 8]) -> Self::State;

    /// Converts a state back to words.
    ///
    /// # Safety
    /// The processor has SHA-NI.
    unsafe fn words(state: Self::State) -> [u32; 8];

    /// Absorbs the next `count` blocks of each stream. Beside each block it does four blocks of `beside`.
    ///
    /// # Safety
    /// - The processor has SHA-NI.
    /// - The `count` blocks of each stream may be read.
    /// - The obligations of [`Beside::block`] hold for the blocks beside them.
    unsafe fn blocks<B: Beside, const N: usize>(
        streams: &mut [Stream<Self::State>; N],
        count: usize,
        beside: &mut [B; N],
    );
}

#[derive(Clone, Copy)]
pub(super) struct Stream<S> {
    pub(super) state: S,
    /// Pointer to the next block.
    pub(super) at: *const u8,
}

#[derive(Clone, Copy)]
pub(super) struct Sha1State {
    /// The words a, b, c, d, with `a` in the highest word.
    abcd: __m128i,
    /// The word e in the highest word.
    e: __m128i,
}

impl ShaNi for Sha1 {
    type State = Sha1State;

    #[inline(always)]
    unsafe fn state(words: &[u32; 8]) -> Sha1State {
        // SAFETY: the caller guarantees SHA-NI, which comes with SSE2; the loads stay inside the words.
        unsafe {
            Sha1State {
                abcd: _mm_shuffle_epi32::<0x1b>(_mm_loadu_si128(words.as_ptr().cast())),
                e: _mm_set_epi32(words[4] as i32, 0, 0, 0),
            }
        }
    }

    #[inline(always)]
    unsafe fn words(state: Sha1State) -> [u32; 8] {
        let mut words = [0; 8];
        // SAFETY: the caller guarantees SHA-NI, which comes with SSE4.1; the stores stay inside the words.
        unsafe {
            let abcd = _mm_shuffle_epi32::<0x1b>(state.abcd);
            _mm_storeu_si128(words.as_mut_ptr().cast(), abcd);
            words[4] = _mm_extract_epi32::<3>(state.e) as u32;
        }
        words
    }

    #[inline(always)]
    unsafe fn blocks<B: Beside, const N: usize>(
        streams: &mut [Stream<Self::State>; N],
        count: usize,
        beside: &mut [B; N],
    ) {
        // SAFETY: the caller guarantees the instructions, the streams and the blocks beside them.
        unsafe { sha1_blocks(streams, count, beside) }
    }
}

/// Absorbs blocks of SHA-1.
///
/// # Safety
/// The obligations are those of [`ShaNi::blocks`].
#[target_feature(enable = "sha,aes,sse4.1,ssse3,avx")]
#[inline]
unsafe fn sha1_blocks<B: Beside, const N: usize>(
    streams: &mut [Stream<Sha1State>; N],
    count: usize,
    beside: &mut [B; N],
) {
    let big_endian = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    // The copy stays in registers, whatever is written to memory.
    let mut copy = *beside;
    for _ in 0..count {
        let mut now = *streams;
        let mut w = [[_mm_setzero_si128(); 4]; N];
        macro_rules! four_rounds {
            ($g:literal) => {
                for n in 0..N {
                    let Sha1State { abcd, e } = now[n].state;
                    let w = &mut w[n];
                    if $g < 4 {
                        // SAFETY: the caller guarantees this block.
                        let bytes = unsafe { _mm_loadu_si128(now[n].at.add(16 * $g).cast()) };
                        w[$g % 4] = _mm_shuffle_epi8(bytes, big_endian);
                    } else {
                        let x = _mm_sha1msg1_epu32(w[$g % 4], w[($g + 1) % 4]);
                        let x = _mm_xor_si128(x, w[($g + 2) % 4]);
                        w[$g % 4] = _mm_sha1msg2_epu32(x, w[($g + 3) % 4]);
                    }
                    let e = match $g {
                        0 => _mm_add_epi32(e, w[0]),
                        _ => _mm_sha1nexte_epu32(e, w[$g % 4]),
                    };
                    // The next e is the present a, rotated.
                    now[n].state.e = abcd;
                    now[n].state.abcd = _mm_sha1rnds4_epu32::<{ $g / 5 }>(abcd, e);
                    if B::SOME && $g % 5 == 3 + n {
                        let Sha1State { abcd, e } = &mut now[n].state;
                        here(abcd, e);
                        // SAFETY: the caller guarantees the blocks beside the hash.
                        unsafe { copy[n].block() };
                    }
                }
            };
        }
        unroll!(four_rounds 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        for (stream, Stream { state, at }) in streams.iter_mut().zip(&now) {
            stream.state.e = _mm_sha1nexte_epu32(state.e, stream.state.e);
            stream.state.abcd = _mm_add_epi32(state.abcd, stream.state.abcd);
            stream.at = at.wrapping_add(64);
        }
    }
    *beside = copy;
}

/// Stops the compiler from moving instructions across this place.
#[target_feature(enable = "sse2")]
#[inline]
fn here(one: &mut __m128i, other: &mut __m128i) {
    // SAFETY: the block has no instruction.
    unsafe {
        asm!(
            "/* {0} {1} */",
            inout(xmm_reg) * one,
            inout(xmm_reg) * other,
            options(nostack, preserves_flags)
        );
    }
}

/// A SHA-256 state in the order of the instructions, the first word highest.
#[derive(Clone, Copy)]
pub(super) struct Sha256State {
    abef: __m128i,
    cdgh: __m128i,
}

impl ShaNi for Sha256 {
    type State = Sha256State;

    #[inline(always)]
    unsafe fn state(words: &[u32; 8]) -> Sha256State {
        // SAFETY: the caller guarantees SHA-NI; the loads stay inside the words.
        unsafe {
            let cdab = _mm_shuffle_epi32::<0xb1>(_mm_loadu_si128(words.as_ptr().cast()));
            let efgh = _mm_shuffle_epi32::<0x1b>(_mm_loadu_si128(words.as_ptr().add(4).cast()));
            Sha256State {
                abef: _mm_alignr_epi8::<8>(cdab, efgh),
                cdgh: _mm_blend_epi16::<0xf0>(efgh, cdab),
            }
        }
    }

    #[inline(always)]
    unsafe fn words(state: Sha256State) -> [u32; 8] {
        let mut words = [0u32; 8];
        // SAFETY: the caller guarantees SHA-NI; the stores stay inside the words.
        unsafe {
            let feba = _mm_shuffle_epi32::<0x1b>(state.abef);
            let dchg = _mm_shuffle_epi32::<0xb1>(state.cdgh);
            let to: *mut __m128i = words.as_mut_ptr().cast();
            _mm_storeu_si128(to, _mm_blend_epi16::<0xf0>(feba, dchg));
            _mm_storeu_si128(to.add(1), _mm_alignr_epi8::<8>(dchg, feba));
        }
        words
    }

    #[inline(always)]
    unsafe fn blocks<B: Beside, const N: usize>(
        streams: &mut [Stream<Self::State>; N],
        count: usize,
        beside: &mut [B; N],
    ) {
        // SAFETY: the caller guarantees the instructions, the streams and the blocks beside them.
        unsafe { sha256_blocks(streams, count, beside) }
    }
}

/// Absorbs blocks of SHA-256.
///
/// # Safety
/// The obligations are those of [`ShaNi::blocks`].
#[target_feature(enable = "sha,aes,sse4.1,ssse3,avx")]
#[inline]
unsafe fn sha256_blocks<B: Beside, const N: usize>(
    streams: &mut [Stream<Sha256State>; N],
    count: usize,
    beside: &mut [B; N],
) {
    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    // The copy stays in registers, whatever is written to memory.
    let mut copy = *beside;
    for _ in 0..count {
        let mut now = *streams;
        let mut w = [[_mm_setzero_si128(); 4]; N];
        macro_rules! four_rounds {
            ($g:literal) => {
                // SAFETY: the load takes four words of the table.
                let k = unsafe { _mm_loadu_si128(SHA256_K.as_ptr().add(4 * $g).cast()) };
                for n in 0..N {
                    let w = &mut w[n];
                    if $g < 4 {
                        // SAFETY: the caller guarantees this block.
                        let bytes = unsafe { _mm_loadu_si128(now[n].at.add(16 * $g).cast()) };
                        w[$g % 4] = _mm_shuffle_epi8(bytes, big_endian);
                    } else {
                        let x = _mm_sha256msg1_epu32(w[$g % 4], w[($g + 1) % 4]);
                        let y = _mm_alignr_epi8::<4>(w[($g + 3) % 4], w[($g + 2) % 4]);
                        w[$g % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(x, y), w[($g + 3) % 4]);
                    }
                    let Sha256State { abef, cdgh } = now[n].state;
                    let wk = _mm_add_epi32(w[$g % 4], k);
                    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
                    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(wk));
                    now[n].state = Sha256State { abef, cdgh };
                    if B::SOME && $g % 4 == 2 + n {
                        let Sha256State { abef, cdgh } = &mut now[n].state;
                        here(abef, cdgh);
                        // SAFETY: the caller guarantees the blocks beside the hash.
                        unsafe { copy[n].block() };
                    }
                }
            };
        }
        unroll!(four_rounds 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for (stream, Stream { state, at }) in streams.iter_mut().zip(&now) {
            stream.state.abef = _mm_add_epi32(state.abef, stream.state.abef);
            stream.state.cdgh = _mm_add_epi32(state.cdgh, stream.state.cdgh);
            stream.at = at.wrapping_add(64);
        }
    }
    *beside = copy;
}
