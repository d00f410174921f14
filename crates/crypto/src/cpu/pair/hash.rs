//! MD5, SHA-1 and SHA-256 over lanes: vector `i` of a state or a block holds word `i` of every lane.
//!
//! ```text
//!             lane 0    lane 1   …   lane 15
//! state a     a of 0    a of 1       a of 15       the rounds of the standards, written for words,
//!       b     b of 0    b of 1       b of 15       work on all lanes at once
//! block w0    w0 of 0   w0 of 1      w0 of 15
//! ```
//!
//! 1. All rounds are unrolled. The variables change their names, not their places, and the message schedule is a ring
//!    of sixteen registers.
//! 2. A round waits for the round before it. Terms that do not depend on that round are added first. They are made
//!    opaque to the compiler, which would otherwise add the constant last.
//! 3. Choice, majority and the sum of three bits are one instruction each if the processor has such an instruction.

use super::simd::Simd;

/// A Merkle–Damgård hash with blocks of 64 bytes.
pub(super) trait Hash {
    /// Number of 32-bit words of the state and of the digest.
    const WORDS: usize;
    /// Length in bytes of the HMAC that ESP sends: 12 (RFC 2403, RFC 2404) or 16 (RFC 4868).
    const ICV_LEN: usize;
    /// Whether the words and the message length are big endian.
    const BIG_ENDIAN: bool;

    /// Absorbs one block into the state; `block` is overwritten. Only the first [`Hash::WORDS`] words of the state
    /// count.
    fn compress<S: Simd>(s: S, state: &mut [S::V; 8], block: &mut [S::V; 16]);
}

macro_rules! unroll {
    ($round:ident $($t:literal)*) => { $($round!($t);)* };
}
pub(super) use unroll;

pub(super) struct Sha1;

impl Hash for Sha1 {
    const WORDS: usize = 5;
    const ICV_LEN: usize = 12;
    const BIG_ENDIAN: bool = true;

    #[inline(always)]
    fn compress<S: Simd>(s: S, state: &mut [S::V; 8], w: &mut [S::V; 16]) {
        s.sha1(state, w);
    }
}

/// The compression function of FIPS 180-4 §6.1.2.
#[inline(always)]
pub(super) fn sha1<S: Simd>(s: S, state: &mut [S::V; 8], w: &mut [S::V; 16]) {
    // In round t, a … e are v[(80 - t) % 5] and the words after it.
    let mut v = [state[0], state[1], state[2], state[3], state[4]];
    macro_rules! round {
        ($t:literal, $f:ident, $k:expr) => {
            const A: usize = (80 - $t) % 5;
            const B: usize = (A + 1) % 5;
            const E: usize = (A + 4) % 5;
            if $t >= 16 {
                let x = s.xor3(w[($t + 13) % 16], w[($t + 8) % 16], w[($t + 2) % 16]);
                w[$t % 16] = s.rotate_left::<1>(s.xor(x, w[$t % 16]));
            }
            let f = s.$f(v[B], v[(A + 2) % 5], v[(A + 3) % 5]);
            let sum = s.opaque(s.add(s.add(w[$t % 16], $k), v[E]));
            let sum = s.opaque(s.add(sum, f));
            v[E] = s.add(sum, s.rotate_left::<5>(v[A]));
            v[B] = s.rotate_left::<30>(v[B]);
        };
    }
    {
        let k = s.splat(0x5a82_7999);
        macro_rules! choose {
            ($t:literal) => {{
                round!($t, choose, k);
            }};
        }
        unroll!(choose 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
    }
    {
        let k = s.splat(0x6ed9_eba1);
        macro_rules! xor3 {
            ($t:literal) => {{
                round!($t, xor3, k);
            }};
        }
        unroll!(xor3 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
    }
    {
        let k = s.splat(0x8f1b_bcdc);
        macro_rules! majority {
            ($t:literal) => {{
                round!($t, majority, k);
            }};
        }
        unroll!(majority 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
    }
    {
        let k = s.splat(0xca62_c1d6);
        macro_rules! xor3 {
            ($t:literal) => {{
                round!($t, xor3, k);
            }};
        }
        unroll!(xor3 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
    }
    for (state, v) in state.iter_mut().zip(&v) {
        *state = s.add(*state, *v);
    }
}

pub(super) struct Sha256;

impl Hash for Sha256 {
    const WORDS: usize = 8;
    const ICV_LEN: usize = 16;
    const BIG_ENDIAN: bool = true;

    #[inline(always)]
    fn compress<S: Simd>(s: S, state: &mut [S::V; 8], w: &mut [S::V; 16]) {
        s.sha256(state, w);
    }
}

/// The compression function of FIPS 180-4 §6.2.2.
#[inline(always)]
pub(super) fn sha256<S: Simd>(s: S, state: &mut [S::V; 8], w: &mut [S::V; 16]) {
    // In round t, a … h are v[(64 - t) % 8] and the words after it.
    let mut v = *state;
    macro_rules! round {
        ($t:literal) => {{
            const A: usize = (64 - $t) % 8;
            const D: usize = (A + 3) % 8;
            const H: usize = (A + 7) % 8;
            if $t >= 16 {
                let (x, y) = (w[($t + 1) % 16], w[($t + 14) % 16]);
                let s0 = s.xor3(
                    s.rotate_left::<25>(x),
                    s.rotate_left::<14>(x),
                    s.shift_right::<3>(x),
                );
                let s1 = s.xor3(
                    s.rotate_left::<15>(y),
                    s.rotate_left::<13>(y),
                    s.shift_right::<10>(y),
                );
                let sum = s.add(w[$t % 16], w[($t + 9) % 16]);
                w[$t % 16] = s.add(s.add(sum, s0), s1);
            }
            let (a, e) = (v[A], v[(A + 4) % 8]);
            let s1 = s.xor3(
                s.rotate_left::<26>(e),
                s.rotate_left::<21>(e),
                s.rotate_left::<7>(e),
            );
            let s0 = s.xor3(
                s.rotate_left::<30>(a),
                s.rotate_left::<19>(a),
                s.rotate_left::<10>(a),
            );
            let choice = s.choose(e, v[(A + 5) % 8], v[(A + 6) % 8]);
            let majority = s.majority(a, v[(A + 1) % 8], v[(A + 2) % 8]);
            let sum = s.opaque(s.add(v[H], s.add(w[$t % 16], s.splat(SHA256_K[$t]))));
            let sum = s.opaque(s.add(s.add(sum, choice), s1));
            v[D] = s.add(v[D], sum);
            v[H] = s.add(sum, s.add(s0, majority));
        }};
    }
    unroll!(round 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    unroll!(round 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    unroll!(round 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47);
    unroll!(round 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    for (state, v) in state.iter_mut().zip(&v) {
        *state = s.add(*state, *v);
    }
}

pub(super) struct Md5;

impl Hash for Md5 {
    const WORDS: usize = 4;
    const ICV_LEN: usize = 12;
    const BIG_ENDIAN: bool = false;

    /// The compression function of RFC 1321 §3.4.
    #[inline(always)]
    fn compress<S: Simd>(s: S, state: &mut [S::V; 8], w: &mut [S::V; 16]) {
        // In step t, a … d are v[(64 - t) % 4] and the words after it.
        let mut v = [state[0], state[1], state[2], state[3]];
        macro_rules! step {
            ($t:literal, $f:ident [$x:literal $y:literal $z:literal], $word:expr, $rotations:expr) => {{
                const A: usize = (64 - $t) % 4;
                const ROTATIONS: [i32; 4] = $rotations;
                let f = s.$f(v[(A + $x) % 4], v[(A + $y) % 4], v[(A + $z) % 4]);
                let sum = s.opaque(s.add(s.add(v[A], s.splat(MD5_T[$t])), w[$word % 16]));
                let sum = s.rotate_left::<{ ROTATIONS[$t % 4] }>(s.add(sum, f));
                v[A] = s.add(v[(A + 1) % 4], sum);
            }};
        }
        macro_rules! f {
            ($t:literal) => {
                step!($t, choose [1 2 3], $t, [7, 12, 17, 22])
            };
        }
        macro_rules! g {
            ($t:literal) => {
                step!($t, choose [3 1 2], 5 * $t + 1, [5, 9, 14, 20])
            };
        }
        macro_rules! h {
            ($t:literal) => {
                step!($t, xor3 [1 2 3], 3 * $t + 5, [4, 11, 16, 23])
            };
        }
        macro_rules! i {
            ($t:literal) => {
                step!($t, xor_or_not [1 2 3], 7 * $t, [6, 10, 15, 21])
            };
        }
        unroll!(f 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        unroll!(g 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
        unroll!(h 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47);
        unroll!(i 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
        for (state, v) in state.iter_mut().zip(&v) {
            *state = s.add(*state, *v);
        }
    }
}

/// The round constants of FIPS 180-4 §4.2.2.
#[rustfmt::skip]
pub(super) const SHA256_K: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// The step constants of RFC 1321 §3.4.
#[rustfmt::skip]
const MD5_T: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];
