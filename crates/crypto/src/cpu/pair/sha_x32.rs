//! SHA-1 and SHA-256 over thirty-two lanes: the rounds of two groups of sixteen lanes take turns.
//!
//! A round of one group mostly waits for its own sums. The other group's round fills the gaps, until the four vector
//! units are the limit. The variables of two groups take up to half of the registers, so the message stays in memory.
//! The compiler would keep the message in registers and put the variables on the stack. Therefore this is assembly.
//!
//! ```text
//! w    ring of sixteen words, of which each is two rows: [word 0: lanes 0 … 15 | lanes 16 … 31] [word 1: …] …
//!
//! SHA-256, for t = 0 … 63, for both groups:
//!     w[t] ← σ1(w[t - 2]) + w[t - 7] + σ0(w[t - 15]) + w[t - 16]       from t = 16 on
//!     h ← h + (w[t] + K[t]) + Ch(e, f, g) + Σ1(e);  d ← d + h;  h ← h + Maj(a, b, c) + Σ0(a)
//! SHA-1, for t = 0 … 79, for both groups:
//!     w[t] ← (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]) <<< 1       from t = 16 on
//!     e ← e + (w[t] + K) + f(b, c, d) + (a <<< 5);  b ← b <<< 30
//! the variables change their names: the sum is the next round's a
//! ```
//!
//! 1. The term that waits longest, Σ1(e) or a <<< 5, is added last.
//! 2. The loop body is sixteen rounds of SHA-256. All 64 rounds would exceed the cache of decoded instructions.
//! 3. The last three words of SHA-1 stay in registers. The way through memory would take longer than three rounds.

use std::arch::asm;
use std::arch::x86_64::*;

use super::hash::SHA256_K;

/// A word of every lane of both groups: lanes 0 … 15 and lanes 16 … 31.
type Rows = [__m512i; 2];

const _: () = assert!(size_of::<Rows>() == 128);

/// The address of word `t + after`.
macro_rules! word {
    ($t:literal + $after:literal) => {
        concat!("[{w} + ((", $t, " + ", $after, ") % 16) * 128]")
    };
}

/// SHA-256: `s` ← `w[t] + K[t]` for a word of the message itself.
macro_rules! sha256_given {
    ($t:literal) => {
        concat!(
            "vmovdqa64 {s}, ",
            word!($t + 0),
            "\n",
            "vpaddd {s}, {s}, [{k} + 4 * ",
            $t,
            "]{{1to16}}\n",
        )
    };
}

/// SHA-256: `s` ← `w[t] + K[t]` for a word of the extended message. In the ring, word `t + 1` is word `t - 15`.
#[rustfmt::skip]
macro_rules! sha256_extended {
    ($t:literal) => {
        concat!(
            "vmovdqa64 {t0}, ", word!($t + 1), "\n",
            "vmovdqa64 {t3}, ", word!($t + 14), "\n",
            "vmovdqa64 {s}, ", word!($t + 0), "\n",
            "vprord {t1}, {t0}, 7\n",
            "vprord {t2}, {t0}, 18\n",
            "vpsrld {t0}, {t0}, 3\n",
            "vpaddd {s}, {s}, ", word!($t + 9), "\n",
            "vpternlogd {t0}, {t1}, {t2}, 0x96\n",
            "vprord {t1}, {t3}, 17\n",
            "vprord {t2}, {t3}, 19\n",
            "vpsrld {t3}, {t3}, 10\n",
            "vpaddd {s}, {s}, {t0}\n",
            "vpternlogd {t1}, {t2}, {t3}, 0x96\n",
            "vpaddd {s}, {s}, {t1}\n",
            "vmovdqa64 ", word!($t + 0), ", {s}\n",
            "vpaddd {s}, {s}, [{k} + 4 * ", $t, "]{{1to16}}\n",
        )
    };
}

macro_rules! sha256_group {
    ($word:ident $t:literal of $group:literal, $v:ident, $w:ident, $k:ident) => {
        let (_t0, _t1, _t2, _t3, _s): (__m512i, __m512i, __m512i, __m512i, __m512i);
        // SAFETY: the block reads and writes the ring and reads sixteen constants; the caller has AVX-512.
        unsafe {
            asm!(
                $word!($t),
                "vpaddd {h}, {h}, {s}",
                "vmovdqa64 {t3}, {e}",
                "vprord {t0}, {e}, 6",
                "vprord {t1}, {e}, 11",
                "vprord {t2}, {e}, 25",
                "vpternlogd {t3}, {f}, {g}, 0xca",
                "vpaddd {h}, {h}, {t3}",
                "vpternlogd {t0}, {t1}, {t2}, 0x96",
                "vpaddd {h}, {h}, {t0}",
                "vpaddd {d}, {d}, {h}",
                "vprord {t0}, {a}, 2",
                "vprord {t1}, {a}, 13",
                "vprord {t2}, {a}, 22",
                "vmovdqa64 {t3}, {a}",
                "vpternlogd {t3}, {b}, {c}, 0xe8",
                "vpternlogd {t0}, {t1}, {t2}, 0x96",
                "vpaddd {h}, {h}, {t3}",
                "vpaddd {h}, {h}, {t0}",
                a = in(zmm_reg) $v[(16 - $t) % 8][$group],
                b = in(zmm_reg) $v[(17 - $t) % 8][$group],
                c = in(zmm_reg) $v[(18 - $t) % 8][$group],
                d = inout(zmm_reg) $v[(19 - $t) % 8][$group],
                e = in(zmm_reg) $v[(20 - $t) % 8][$group],
                f = in(zmm_reg) $v[(21 - $t) % 8][$group],
                g = in(zmm_reg) $v[(22 - $t) % 8][$group],
                h = inout(zmm_reg) $v[(23 - $t) % 8][$group],
                s = out(zmm_reg) _s,
                t0 = out(zmm_reg) _t0,
                t1 = out(zmm_reg) _t1,
                t2 = out(zmm_reg) _t2,
                t3 = out(zmm_reg) _t3,
                w = in(reg) &raw mut $w[0][$group],
                k = in(reg) $k.as_ptr(),
                options(nostack, preserves_flags)
            );
        }
    };
}

macro_rules! sha256_rounds {
    ($word:ident, $v:ident, $w:ident, $k:ident: $($t:literal)*) => { $(
        sha256_group!($word $t of 0, $v, $w, $k);
        sha256_group!($word $t of 1, $v, $w, $k);
    )* };
}

/// Absorbs one block into the state; `w` is overwritten.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn sha256(state: &mut [Rows; 8], w: &mut [Rows; 16]) {
    // In round t, a … h are v[(16 - t) % 8] and the words after it.
    let mut v = *state;
    let (k, _) = SHA256_K.as_chunks::<16>();
    for (i, k) in k.iter().enumerate() {
        if i == 0 {
            sha256_rounds!(sha256_given, v, w, k: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        } else {
            sha256_rounds!(sha256_extended, v, w, k: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
    for (state, v) in state.iter_mut().zip(&v) {
        for (state, v) in state.iter_mut().zip(v) {
            *state = _mm512_add_epi32(*state, *v);
        }
    }
}

/// SHA-1: `last` ← `w[t]` for a word of the message itself.
macro_rules! sha1_given {
    ($t:literal) => {
        concat!("vmovdqa64 {last}, ", word!($t + 0), "\n")
    };
}

/// SHA-1: `last` ← `w[t]` for a word of the extended message. On entry `last` has `w[t - 3]`.
#[rustfmt::skip]
macro_rules! sha1_extended {
    ($t:literal) => {
        concat!(
            "vmovdqa64 {t0}, ", word!($t + 8), "\n",
            "vpxord {t0}, {t0}, ", word!($t + 0), "\n",
            "vpternlogd {last}, {t0}, ", word!($t + 2), ", 0x96\n",
            "vprold {last}, {last}, 1\n",
            "vmovdqa64 ", word!($t + 0), ", {last}\n",
        )
    };
}

macro_rules! sha1_group {
    ($word:ident $f:literal $t:literal of $group:literal, $v:ident, $last:ident, $w:ident, $k:ident) => {
        let (_t0, _t1, _s): (__m512i, __m512i, __m512i);
        // SAFETY: the block reads and writes the ring; the caller has AVX-512.
        unsafe {
            asm!(
                $word!($t),
                "vpaddd {s}, {last}, {k}",
                "vmovdqa64 {t0}, {b}",
                "vpaddd {e}, {e}, {s}",
                "vprold {t1}, {a}, 5",
                concat!("vpternlogd {t0}, {c}, {d}, ", $f),
                "vprold {b}, {b}, 30",
                "vpaddd {e}, {e}, {t0}",
                "vpaddd {e}, {e}, {t1}",
                a = in(zmm_reg) $v[(80 - $t) % 5][$group],
                b = inout(zmm_reg) $v[(81 - $t) % 5][$group],
                c = in(zmm_reg) $v[(82 - $t) % 5][$group],
                d = in(zmm_reg) $v[(83 - $t) % 5][$group],
                e = inout(zmm_reg) $v[(84 - $t) % 5][$group],
                last = inout(zmm_reg) $last[$t % 3][$group],
                s = out(zmm_reg) _s,
                t0 = out(zmm_reg) _t0,
                t1 = out(zmm_reg) _t1,
                w = in(reg) &raw mut $w[0][$group],
                k = in(zmm_reg) $k,
                options(nostack, preserves_flags)
            );
        }
    };
}

macro_rules! sha1_rounds {
    ($word:ident $f:literal, $v:ident, $last:ident, $w:ident, $k:ident: $($t:literal)*) => { $(
        sha1_group!($word $f $t of 0, $v, $last, $w, $k);
        sha1_group!($word $f $t of 1, $v, $last, $w, $k);
    )* };
}

/// Absorbs one block into the state, of which five words count; `w` is overwritten.
#[target_feature(enable = "avx512f")]
#[inline]
#[rustfmt::skip]
#[expect(unused_assignments, reason = "no round follows that would want the last words")]
pub(super) fn sha1(state: &mut [Rows; 8], w: &mut [Rows; 16]) {
    // In round t, a … e are v[(80 - t) % 5] and the words after it.
    let mut v = [state[0], state[1], state[2], state[3], state[4]];
    // Word t is in last[t % 3].
    let mut last = [w[0]; 3];
    // The round functions are choice, exclusive or, majority, and exclusive or again.
    let k = _mm512_set1_epi32(0x5a82_7999);
    sha1_rounds!(sha1_given "0xca", v, last, w, k: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    sha1_rounds!(sha1_extended "0xca", v, last, w, k: 16 17 18 19);
    let k = _mm512_set1_epi32(0x6ed9_eba1);
    sha1_rounds!(sha1_extended "0x96", v, last, w, k: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
    let k = _mm512_set1_epi32(0x8f1b_bcdc_u32 as i32);
    sha1_rounds!(sha1_extended "0xe8", v, last, w, k: 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
    let k = _mm512_set1_epi32(0xca62_c1d6_u32 as i32);
    sha1_rounds!(sha1_extended "0x96", v, last, w, k: 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
    for (state, v) in state.iter_mut().zip(&v) {
        for (state, v) in state.iter_mut().zip(v) {
            *state = _mm512_add_epi32(*state, *v);
        }
    }
}
