//! HMAC-SHA1-96 and HMAC-SHA2-256-128 with SHA-NI, two packets at a time.
//!
//! ```text
//! for each two packets of the order, which have about the same length:
//!     run the blocks that both have, side by side; then those of the longer one
//!     the same with the tails; then the outer hash
//! ```
//!
//! 1. Rounds of one stream wait for each other: four cycles for what the processor can begin every three. Two streams
//!    side by side close the gap.

use std::arch::x86_64::*;

use super::Order;
use super::hash::{Hash, SHA256_K, Sha1, Sha256, unroll};
use super::hmac::Message;
use super::mac::{Icvs, Mac};
use super::simd_avx2::Avx2;
use crate::cpu::Work;

/// A hash whose rounds are instructions of the processor.
///
/// The functions are `inline(always)` and without `target_feature`: they become part of a caller that has it.
pub(super) trait ShaNi: Hash {
    type State: Copy;

    /// # Safety
    /// The processor has SHA-NI.
    unsafe fn state(words: &[u32; 8]) -> Self::State;

    /// # Safety
    /// The processor has SHA-NI.
    unsafe fn words(state: Self::State) -> [u32; 8];

    /// Takes `count` blocks into each of `N` states.
    ///
    /// # Safety
    /// The processor has SHA-NI, and the blocks can be read.
    unsafe fn blocks<const N: usize>(
        state: &mut [Self::State; N],
        at: [*const u8; N],
        count: usize,
    );
}

#[derive(Clone, Copy)]
pub(super) struct Sha1State {
    /// `a` in the highest word.
    abcd: __m128i,
    /// In the highest word.
    e: __m128i,
}

impl ShaNi for Sha1 {
    type State = Sha1State;

    #[inline(always)]
    unsafe fn state(words: &[u32; 8]) -> Sha1State {
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe {
            let abcd = _mm_shuffle_epi32::<0x1b>(state.abcd);
            _mm_storeu_si128(words.as_mut_ptr().cast(), abcd);
            words[4] = _mm_extract_epi32::<3>(state.e) as u32;
        }
        words
    }

    #[inline(always)]
    unsafe fn blocks<const N: usize>(state: &mut [Sha1State; N], at: [*const u8; N], count: usize) {
        // SAFETY: the caller's promise.
        unsafe { sha1_blocks(state, at, count) }
    }
}

/// # Safety
/// As [`ShaNi::blocks`].
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
#[inline]
unsafe fn sha1_blocks<const N: usize>(
    state: &mut [Sha1State; N],
    at: [*const u8; N],
    count: usize,
) {
    let big_endian = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    for offset in (0..64 * count).step_by(64) {
        let before = *state;
        let mut w = [[_mm_setzero_si128(); 4]; N];
        macro_rules! four_rounds {
            ($g:literal) => {
                for n in 0..N {
                    let Sha1State { abcd, e } = state[n];
                    let w = &mut w[n];
                    if $g < 4 {
                        // SAFETY: the caller's promise.
                        let bytes = unsafe { _mm_loadu_si128(at[n].add(offset + 16 * $g).cast()) };
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
                    state[n].e = abcd;
                    state[n].abcd = _mm_sha1rnds4_epu32::<{ $g / 5 }>(abcd, e);
                }
            };
        }
        unroll!(four_rounds 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        for (state, before) in state.iter_mut().zip(&before) {
            state.e = _mm_sha1nexte_epu32(state.e, before.e);
            state.abcd = _mm_add_epi32(state.abcd, before.abcd);
        }
    }
}

/// Words in the order of the instructions, the highest first.
#[derive(Clone, Copy)]
pub(super) struct Sha256State {
    abef: __m128i,
    cdgh: __m128i,
}

impl ShaNi for Sha256 {
    type State = Sha256State;

    #[inline(always)]
    unsafe fn state(words: &[u32; 8]) -> Sha256State {
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
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
    unsafe fn blocks<const N: usize>(
        state: &mut [Sha256State; N],
        at: [*const u8; N],
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { sha256_blocks(state, at, count) }
    }
}

/// # Safety
/// As [`ShaNi::blocks`].
#[target_feature(enable = "sha,sse4.1,ssse3,avx")]
#[inline]
unsafe fn sha256_blocks<const N: usize>(
    state: &mut [Sha256State; N],
    at: [*const u8; N],
    count: usize,
) {
    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    for offset in (0..64 * count).step_by(64) {
        let before = *state;
        let mut w = [[_mm_setzero_si128(); 4]; N];
        macro_rules! four_rounds {
            ($g:literal) => {
                // SAFETY: four words of the table.
                let k = unsafe { _mm_loadu_si128(SHA256_K.as_ptr().add(4 * $g).cast()) };
                for n in 0..N {
                    let w = &mut w[n];
                    if $g < 4 {
                        // SAFETY: the caller's promise.
                        let bytes = unsafe { _mm_loadu_si128(at[n].add(offset + 16 * $g).cast()) };
                        w[$g % 4] = _mm_shuffle_epi8(bytes, big_endian);
                    } else {
                        let x = _mm_sha256msg1_epu32(w[$g % 4], w[($g + 1) % 4]);
                        let y = _mm_alignr_epi8::<4>(w[($g + 3) % 4], w[($g + 2) % 4]);
                        w[$g % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(x, y), w[($g + 3) % 4]);
                    }
                    let Sha256State { abef, cdgh } = state[n];
                    let wk = _mm_add_epi32(w[$g % 4], k);
                    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
                    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(wk));
                    state[n] = Sha256State { abef, cdgh };
                }
            };
        }
        unroll!(four_rounds 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for (state, before) in state.iter_mut().zip(&before) {
            state.abef = _mm_add_epi32(state.abef, before.abef);
            state.cdgh = _mm_add_epi32(state.cdgh, before.cdgh);
        }
    }
}

/// Runs two streams, side by side as far as both go.
///
/// # Safety
/// As [`ShaNi::blocks`].
#[inline(always)]
unsafe fn two<H: ShaNi>(state: &mut [H::State; 2], at: [*const u8; 2], count: [usize; 2]) {
    let both = count[0].min(count[1]);
    // SAFETY: the caller's promise.
    unsafe {
        H::blocks(state, at, both);
        for n in 0..2 {
            if count[n] > both {
                let mut one = [state[n]];
                H::blocks(&mut one, [at[n].add(64 * both)], count[n] - both);
                state[n] = one[0];
            }
        }
    }
}

/// The ICVs of the packets in `order`.
///
/// # Safety
/// The processor has SHA-NI, AVX2 and BMI2; the packets are valid.
#[inline(always)]
pub(super) unsafe fn hmac<H: ShaNi, K: Mac>(
    work: &[Work<'_, K>],
    order: &Order,
    mut icvs: Icvs<'_>,
) {
    // SAFETY: the caller's promise.
    let simd = unsafe { Avx2::new() };
    let mut tails = [[0; 128]; 2];
    for packets in order.chunks(2) {
        // SAFETY: the caller's promise.
        unsafe {
            if let &[first, second] = packets {
                let packets = [first, second];
                let works = packets.map(|packet| &work[packet as usize]);
                let keys = works.map(|work| work.key.mac());
                let messages = works.map(|work| Message::new::<H, K>(work));
                let mut state = [H::state(&keys[0].inner), H::state(&keys[1].inner)];
                let at = messages.each_ref().map(|message| message.packet);
                two::<H>(
                    &mut state,
                    at,
                    messages.each_ref().map(|message| message.blocks),
                );
                let blocks = [
                    messages[0].tail::<_, H>(simd, &mut tails[0]),
                    messages[1].tail::<_, H>(simd, &mut tails[1]),
                ];
                two::<H>(
                    &mut state,
                    tails.each_ref().map(|tail| tail.as_ptr()),
                    blocks,
                );
                let last = [outer_block::<H>(state[0]), outer_block::<H>(state[1])];
                let mut state = [H::state(&keys[0].outer), H::state(&keys[1].outer)];
                H::blocks(
                    &mut state,
                    last.each_ref().map(|last| last.as_ptr().cast()),
                    1,
                );
                for (packet, state) in packets.into_iter().zip(&state) {
                    icvs.put::<H, K>(work, packet, &digest::<H>(*state));
                }
            } else if let &[packet] = packets {
                let key = work[packet as usize].key.mac();
                let message = Message::new::<H, K>(&work[packet as usize]);
                let mut state = [H::state(&key.inner)];
                H::blocks(&mut state, [message.packet], message.blocks);
                let blocks = message.tail::<_, H>(simd, &mut tails[0]);
                H::blocks(&mut state, [tails[0].as_ptr()], blocks);
                let last = outer_block::<H>(state[0]);
                let mut state = [H::state(&key.outer)];
                H::blocks(&mut state, [last.as_ptr().cast()], 1);
                icvs.put::<H, K>(work, packet, &digest::<H>(state[0]));
            }
        }
    }
}

/// The padded block of the inner digest.
///
/// # Safety
/// The processor has SHA-NI.
#[inline(always)]
unsafe fn outer_block<H: ShaNi>(state: H::State) -> [u32; 16] {
    let mut block = [0u32; 16];
    // SAFETY: the caller's promise.
    let words = unsafe { H::words(state) };
    for (to, word) in block.iter_mut().zip(words).take(H::WORDS) {
        *to = word.swap_bytes();
    }
    block[H::WORDS] = 0x80;
    block[15] = ((64 + 4 * H::WORDS as u32) * 8).swap_bytes();
    block
}

/// As it stands in memory.
///
/// # Safety
/// The processor has SHA-NI.
#[inline(always)]
unsafe fn digest<H: ShaNi>(state: H::State) -> [u32; 4] {
    // SAFETY: the caller's promise.
    let words = unsafe { H::words(state) };
    [words[0], words[1], words[2], words[3]].map(u32::swap_bytes)
}
