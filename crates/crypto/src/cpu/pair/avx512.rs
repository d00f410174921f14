//! AES in CBC and CTR mode with AVX-512 and vector AES: four blocks per register.
//!
//! ```text
//! CBC, encryption: c[i] = AES(p[i] ⊕ c[i-1]), one block after the other, hence sixteen packets in step
//!
//!              zmm 0                 zmm 1          zmm 2          zmm 3
//! keys[round]  k of lanes 0 1 2 3    4 5 6 7        8 9 10 11      12 13 14 15
//! state        c of lanes 0 1 2 3    4 5 6 7        8 9 10 11      12 13 14 15
//!
//!     state ← the block in front of the next one, of each lane
//!     for each block: state ← AES(keys, state ⊕ block); block ← state
//!
//! CBC, decryption: p[i] = AES⁻¹(c[i]) ⊕ c[i-1], and CTR: p[i] ⊕ AES(nonce ‖ i), sixteen blocks of one packet
//! ```
//!
//! 1. In ESP the IV stands in front of the body, and a body is encrypted in place. The chaining value is therefore
//!    always the block before the next one, and a lane's only state is its address.
//! 2. Loading a lane notes only the address of its keys. Before the next run, loads collect the keys of the lane's
//!    register from its four packets. No store of 16 bytes delays these loads.
//! 3. Decryption goes from the end of the body to its start. `c[i-1]` is then still in memory when `p[i]` is made.
//! 4. Decryption keys are derived from encryption keys when a packet has another key than the one before. A key
//!    context is thus half as large, and 10,000 of them stay in the cache.

use std::arch::x86_64::*;

use super::streams::{Lanes, Streams, schedule};
use super::{Key, Order, RoundKeys, aesni};
use crate::cpu::Work;
use crate::plain::{Plain, cleanse};

const ROUNDS_MAX: usize = 14;
/// The counters of the four blocks in a register, little endian, in the last word of each block.
const FIRST_COUNTERS: [u32; 16] = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];

/// Round keys of the lanes, four lanes per register.
#[derive(Clone, Copy)]
struct LaneKeys<const QUARTERS: usize>([[__m512i; QUARTERS]; ROUNDS_MAX + 1]);

// SAFETY: the struct consists of vectors of integers, and zero is a valid value.
unsafe impl<const QUARTERS: usize> Plain for LaneKeys<QUARTERS> {}

#[repr(C, align(64))]
struct CbcLanes<'a, 'k, const ROUNDS: usize, const QUARTERS: usize> {
    keys: LaneKeys<QUARTERS>,
    of: [*const RoundKeys; 16],
    /// Pointer to each lane's next block.
    next: [*mut u8; 16],
    /// The lanes whose keys are not in `keys` yet.
    fresh: Lanes,
    work: &'a [Work<'k, Key>],
}

impl<const ROUNDS: usize, const QUARTERS: usize> Streams for CbcLanes<'_, '_, ROUNDS, QUARTERS> {
    const LANES: usize = 4 * QUARTERS;

    #[inline(always)]
    unsafe fn load(&mut self, lane: usize, packet: usize) -> usize {
        let work = &self.work[packet];
        self.of[lane] = &work.key.round_keys;
        self.next[lane] = work.body();
        self.fresh |= 1 << lane;
        work.body_len() / 16
    }

    #[inline(always)]
    unsafe fn shadow(&mut self, lane: usize, busy: usize) {
        self.of[lane] = self.of[busy];
        self.next[lane] = self.next[busy];
        self.fresh |= 1 << lane;
    }

    #[inline(always)]
    unsafe fn run(&mut self, blocks: usize) {
        // SAFETY: the caller guarantees the lanes and their blocks; it is compiled for the features.
        unsafe {
            for quarter in 0..QUARTERS {
                if self.fresh & 0xf << (4 * quarter) != 0 {
                    self.collect_keys(quarter);
                }
            }
            self.fresh = 0;
            self.encrypt(blocks);
        }
    }

    #[inline(always)]
    unsafe fn next_segment(&mut self, _: usize) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn complete(&mut self, _: Lanes) {}
}

impl<const ROUNDS: usize, const QUARTERS: usize> CbcLanes<'_, '_, ROUNDS, QUARTERS> {
    /// Collects the round keys of four lanes.
    ///
    /// # Safety
    /// The key pointers of these lanes are valid.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn collect_keys(&mut self, quarter: usize) {
        let of = &self.of[4 * quarter..4 * quarter + 4];
        for (round, keys) in self.keys.0.iter_mut().enumerate().take(ROUNDS + 1) {
            // SAFETY: the caller guarantees that the pointers are valid.
            keys[quarter] = unsafe {
                let key = |lane: usize| (&raw const (*of[lane])[round]).cast_mut().cast();
                gather([key(0), key(1), key(2), key(3)])
            };
        }
    }

    /// Encrypts the next `blocks` blocks of every lane.
    ///
    /// # Safety
    /// Every lane has so many blocks from its pointer on, and a block or IV before it.
    #[target_feature(enable = "avx512f,vaes")]
    #[inline]
    unsafe fn encrypt(&mut self, blocks: usize) {
        let keys = &self.keys.0;
        let next = self.next;
        let at = |q: usize, offset: usize| {
            let at = &next[4 * q..4 * q + 4];
            [0, 1, 2, 3].map(|lane| at[lane].wrapping_add(offset))
        };
        let mut state = [_mm512_setzero_si512(); QUARTERS];
        for (q, state) in state.iter_mut().enumerate() {
            // SAFETY: the caller guarantees a block or IV before each lane's pointer.
            *state = unsafe { gather(at(q, 16usize.wrapping_neg())) };
        }
        for offset in (0..16 * blocks).step_by(16) {
            for q in 0..QUARTERS {
                // SAFETY: the caller guarantees that each lane has this block.
                let block = unsafe { gather(at(q, offset)) };
                state[q] = _mm512_ternarylogic_epi64::<0x96>(state[q], block, keys[0][q]);
            }
            for keys in &keys[1..ROUNDS] {
                for q in 0..QUARTERS {
                    state[q] = _mm512_aesenc_epi128(state[q], keys[q]);
                }
            }
            for q in 0..QUARTERS {
                state[q] = _mm512_aesenclast_epi128(state[q], keys[ROUNDS][q]);
                // SAFETY: same as above.
                unsafe { scatter(at(q, offset), state[q]) };
            }
        }
        for next in &mut self.next {
            *next = next.wrapping_add(16 * blocks);
        }
    }
}

impl<const ROUNDS: usize, const QUARTERS: usize> Drop for CbcLanes<'_, '_, ROUNDS, QUARTERS> {
    fn drop(&mut self) {
        cleanse(&mut self.keys);
    }
}

/// Loads one block from each pointer.
///
/// # Safety
/// 16 bytes at each pointer may be read.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather([a, b, c, d]: [*mut u8; 4]) -> __m512i {
    // SAFETY: the caller guarantees 16 readable bytes at each pointer.
    unsafe {
        let z = _mm512_castsi128_si512(_mm_loadu_si128(a.cast()));
        let z = _mm512_inserti32x4::<1>(z, _mm_loadu_si128(b.cast()));
        let z = _mm512_inserti32x4::<2>(z, _mm_loadu_si128(c.cast()));
        _mm512_inserti32x4::<3>(z, _mm_loadu_si128(d.cast()))
    }
}

/// Stores one block to each pointer.
///
/// # Safety
/// 16 bytes at each pointer may be written.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn scatter([a, b, c, d]: [*mut u8; 4], z: __m512i) {
    // SAFETY: the caller guarantees 16 writable bytes at each pointer.
    unsafe {
        _mm_storeu_si128(a.cast(), _mm512_castsi512_si128(z));
        _mm_storeu_si128(b.cast(), _mm512_extracti32x4_epi32::<1>(z));
        _mm_storeu_si128(c.cast(), _mm512_extracti32x4_epi32::<2>(z));
        _mm_storeu_si128(d.cast(), _mm512_extracti32x4_epi32::<3>(z));
    }
}

/// Encrypts the bodies of the packets with AES in CBC mode.
///
/// # Safety
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each key is of AES-CBC with `ROUNDS` rounds.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes,avx2,bmi1,bmi2")]
pub(super) unsafe fn cbc_encrypt<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    // SAFETY: the caller guarantees the packets and their keys.
    unsafe {
        match order.len() {
            0 | 1 => aesni::cbc_encrypt::<ROUNDS>(work, order),
            2..=4 => cbc_encrypt_lanes::<ROUNDS, 1>(work, order),
            5..=8 => cbc_encrypt_lanes::<ROUNDS, 2>(work, order),
            _ => cbc_encrypt_lanes::<ROUNDS, 4>(work, order),
        }
    }
}

/// Encrypts the bodies in 4·`QUARTERS` lanes.
///
/// # Safety
/// The obligations are those of [`cbc_encrypt`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,bmi1,bmi2")]
unsafe fn cbc_encrypt_lanes<const ROUNDS: usize, const QUARTERS: usize>(
    work: &[Work<'_, Key>],
    order: &Order,
) {
    let mut lanes = CbcLanes::<ROUNDS, QUARTERS> {
        keys: LaneKeys([[_mm512_setzero_si512(); QUARTERS]; ROUNDS_MAX + 1]),
        of: [std::ptr::null(); 16],
        next: [std::ptr::null_mut(); 16],
        fresh: 0,
        work,
    };
    // SAFETY: the caller guarantees the packets and their keys.
    unsafe { schedule(&mut lanes, order) };
}

/// The round keys of one packet, each in all four parts of a register.
#[derive(Clone, Copy)]
struct BroadKeys([__m512i; ROUNDS_MAX + 1]);

// SAFETY: the struct consists of vectors of integers, and zero is a valid value.
unsafe impl Plain for BroadKeys {}

impl BroadKeys {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn new<const ROUNDS: usize>(round_keys: &RoundKeys) -> Self {
        let mut keys = [_mm512_setzero_si512(); ROUNDS_MAX + 1];
        for (broad, key) in keys.iter_mut().zip(round_keys).take(ROUNDS + 1) {
            *broad = broadcast(key);
        }
        Self(keys)
    }

    /// The round keys of the equivalent inverse cipher (FIPS 197 §5.3.5), in the order of their use.
    #[target_feature(enable = "avx512f,aes")]
    #[inline]
    fn inverse<const ROUNDS: usize>(round_keys: &RoundKeys) -> Self {
        let mut keys = [_mm512_setzero_si512(); ROUNDS_MAX + 1];
        keys[0] = broadcast(&round_keys[ROUNDS]);
        for round in 1..ROUNDS {
            // SAFETY: a round key has 16 bytes.
            let key = unsafe { _mm_loadu_si128(round_keys[ROUNDS - round].as_ptr().cast()) };
            keys[round] = _mm512_broadcast_i32x4(_mm_aesimc_si128(key));
        }
        keys[ROUNDS] = broadcast(&round_keys[0]);
        Self(keys)
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn broadcast(block: &[u8; 16]) -> __m512i {
    // SAFETY: a block has 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(block.as_ptr().cast()) })
}

/// Decrypts the bodies of the packets with AES in CBC mode.
///
/// # Safety
/// The obligations are those of [`cbc_encrypt`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,aes,bmi1,bmi2")]
pub(super) unsafe fn cbc_decrypt<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    let mut of: *const Key = std::ptr::null();
    let mut keys = BroadKeys([_mm512_setzero_si512(); ROUNDS_MAX + 1]);
    for &packet in order {
        let work = &work[packet as usize];
        if !std::ptr::eq(of, work.key) {
            of = work.key;
            keys = BroadKeys::inverse::<ROUNDS>(&work.key.round_keys);
        }
        let body = work.body();
        let mut blocks = work.body_len() / 16;
        // SAFETY: the blocks lie in the body, and the IV is in front of it.
        unsafe {
            while blocks >= 16 {
                blocks -= 16;
                cbc_decrypt_blocks::<ROUNDS, 4>(&keys, body.add(16 * blocks), !0);
            }
            while blocks >= 4 {
                blocks -= 4;
                cbc_decrypt_blocks::<ROUNDS, 1>(&keys, body.add(16 * blocks), !0);
            }
            if blocks > 0 {
                cbc_decrypt_blocks::<ROUNDS, 1>(&keys, body, !(!0 << (2 * blocks)));
            }
        }
    }
    cleanse(&mut keys);
}

/// Decrypts `N` registers full of blocks. Only the half blocks that are in `mask` are read and written.
///
/// # Safety
/// The half blocks in `mask` may be read and written, and those one block before them may be read.
#[target_feature(enable = "avx512f,vaes")]
#[inline]
unsafe fn cbc_decrypt_blocks<const ROUNDS: usize, const N: usize>(
    keys: &BroadKeys,
    at: *mut u8,
    mask: __mmask8,
) {
    let keys = &keys.0;
    let mut state = [_mm512_setzero_si512(); N];
    let mut before = state;
    for i in 0..N {
        let at = at.wrapping_add(64 * i);
        // SAFETY: the caller guarantees the half blocks in `mask`.
        unsafe {
            state[i] = _mm512_maskz_loadu_epi64(mask, at.cast());
            before[i] = _mm512_maskz_loadu_epi64(mask, at.wrapping_sub(16).cast());
        }
    }
    for state in &mut state {
        *state = _mm512_xor_si512(*state, keys[0]);
    }
    for &key in &keys[1..ROUNDS] {
        for state in &mut state {
            *state = _mm512_aesdec_epi128(*state, key);
        }
    }
    for (i, (&state, &before)) in state.iter().zip(&before).enumerate() {
        let last = _mm512_xor_si512(keys[ROUNDS], before);
        let plain = _mm512_aesdeclast_epi128(state, last);
        // SAFETY: the caller guarantees the half blocks in `mask`.
        unsafe { _mm512_mask_storeu_epi64(at.wrapping_add(64 * i).cast(), mask, plain) };
    }
}

/// Encrypts or decrypts the bodies of the packets with AES in CTR mode (RFC 3686).
///
/// # Safety
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each key is of AES-CTR with `ROUNDS` rounds.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes,bmi1,bmi2")]
pub(super) unsafe fn ctr<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    for &packet in order {
        let work = &work[packet as usize];
        let keys = BroadKeys::new::<ROUNDS>(&work.key.round_keys);
        let mut at = work.body();
        let mut len = work.body_len();
        // SAFETY: the IV is the eight bytes in front of the body.
        let iv = unsafe { at.wrapping_sub(8).cast::<u64>().read_unaligned() };
        let nonce = u128::from(work.key.salt) | u128::from(iv) << 32;
        let nonce = _mm512_xor_si512(keys.0[0], broadcast(&nonce.to_le_bytes()));
        // SAFETY: the array has sixteen words.
        let mut counter = unsafe { _mm512_loadu_si512(FIRST_COUNTERS.as_ptr().cast()) };
        while len >= 256 {
            // SAFETY: the bytes lie in the body.
            unsafe { ctr_blocks::<ROUNDS, 4>(&keys, nonce, &mut counter, at, !0) };
            at = at.wrapping_add(256);
            len -= 256;
        }
        while len > 0 {
            let mask = _bzhi_u64(!0, len.min(64) as u32);
            // SAFETY: the bytes in the mask lie in the body.
            unsafe { ctr_blocks::<ROUNDS, 1>(&keys, nonce, &mut counter, at, mask) };
            at = at.wrapping_add(64);
            len = len.saturating_sub(64);
        }
    }
}

/// XORs the key stream onto `N` registers full of bytes. Only the bytes in `mask` are read and written.
///
/// # Safety
/// The bytes in `mask` may be read and written.
#[target_feature(enable = "avx512f,avx512bw,vaes")]
#[inline]
unsafe fn ctr_blocks<const ROUNDS: usize, const N: usize>(
    keys: &BroadKeys,
    nonce: __m512i,
    counter: &mut __m512i,
    at: *mut u8,
    mask: __mmask64,
) {
    let keys = &keys.0;
    let four = _mm512_set4_epi32(4, 0, 0, 0);
    let big_endian = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let mut state = [_mm512_setzero_si512(); N];
    for state in &mut state {
        *state = _mm512_xor_si512(nonce, _mm512_shuffle_epi8(*counter, big_endian));
        *counter = _mm512_add_epi32(*counter, four);
    }
    for &key in &keys[1..ROUNDS] {
        for state in &mut state {
            *state = _mm512_aesenc_epi128(*state, key);
        }
    }
    for (i, &state) in state.iter().enumerate() {
        let at = at.wrapping_add(64 * i);
        // SAFETY: the caller guarantees the bytes in `mask`.
        unsafe {
            let text = _mm512_maskz_loadu_epi8(mask, at.cast());
            let last = _mm512_xor_si512(keys[ROUNDS], text);
            _mm512_mask_storeu_epi8(at.cast(), mask, _mm512_aesenclast_epi128(state, last));
        }
    }
}
