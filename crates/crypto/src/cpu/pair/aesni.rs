//! AES in CBC and CTR mode with AES-NI: one block per register, eight registers in flight.
//!
//! Tricks 1, 3 and 4 of [`super::avx512`] hold here too. CBC encryption works on eight packets in step, all else on
//! eight blocks of one packet. An AES round takes three cycles, and two can begin in each cycle, so six blocks cover
//! the latency. Eight leave room for the other instructions.

use std::arch::x86_64::*;

use super::streams::{Lanes, Streams, schedule};
use super::{Key, Order, RoundKeys};
use crate::cpu::Work;
use crate::plain::{Plain, cleanse};

const ROUNDS_MAX: usize = 14;

/// Repeats a statement for each of the first `N` registers without a loop. The compiler keeps an array in registers
/// only if all indices are constants, and it does not unroll this much by itself.
macro_rules! registers {
    ($n:expr, $i:ident => $do:block) => {
        registers!(@ $n, $i, $do, 0 1 2 3 4 5 6 7)
    };
    (@ $n:expr, $i:ident, $do:block, $($index:literal)*) => {
        $({
            const $i: usize = $index;
            if $i < $n $do
        })*
    };
}

/// Round keys of the lanes.
#[derive(Clone, Copy)]
struct LaneKeys<const LANES: usize>([[__m128i; LANES]; ROUNDS_MAX + 1]);

// SAFETY: the struct consists of vectors of integers, and zero is a valid value.
unsafe impl<const LANES: usize> Plain for LaneKeys<LANES> {}

/// The lanes of CBC encryption, one packet each.
#[repr(C, align(64))]
struct CbcLanes<'a, 'k, const ROUNDS: usize, const LANES: usize> {
    keys: LaneKeys<LANES>,
    /// Pointer to each lane's next block.
    next: [*mut u8; LANES],
    work: &'a [Work<'k, Key>],
}

impl<const ROUNDS: usize, const LANES: usize> Streams for CbcLanes<'_, '_, ROUNDS, LANES> {
    const LANES: usize = LANES;

    #[inline(always)]
    unsafe fn load(&mut self, lane: usize, packet: usize) -> usize {
        let work = &self.work[packet];
        self.next[lane] = work.body();
        for (keys, key) in self
            .keys
            .0
            .iter_mut()
            .zip(&work.key.round_keys)
            .take(ROUNDS + 1)
        {
            // SAFETY: SSE2 is part of the x86-64 baseline.
            keys[lane] = unsafe { block(key) };
        }
        work.body_len() / 16
    }

    #[inline(always)]
    unsafe fn shadow(&mut self, lane: usize, busy: usize) {
        self.next[lane] = self.next[busy];
        for keys in self.keys.0.iter_mut().take(ROUNDS + 1) {
            keys[lane] = keys[busy];
        }
    }

    #[inline(always)]
    unsafe fn run(&mut self, blocks: usize) {
        // SAFETY: the caller guarantees the lanes and their blocks; it is compiled for the features.
        unsafe { self.encrypt(blocks) };
    }

    #[inline(always)]
    unsafe fn next_segment(&mut self, _: usize) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn complete(&mut self, _: Lanes) {}
}

impl<const ROUNDS: usize, const LANES: usize> CbcLanes<'_, '_, ROUNDS, LANES> {
    /// Encrypts the next `blocks` blocks of every lane.
    ///
    /// # Safety
    /// Every lane has so many blocks from its pointer on, and a block or IV before it.
    #[target_feature(enable = "aes,avx")]
    #[inline]
    unsafe fn encrypt(&mut self, blocks: usize) {
        let keys = &self.keys.0;
        let mut state = [_mm_setzero_si128(); LANES];
        registers!(LANES, L => {
            // SAFETY: the caller guarantees a block or IV before the lane's pointer.
            state[L] = unsafe { _mm_loadu_si128(self.next[L].wrapping_sub(16).cast()) };
        });
        for offset in (0..16 * blocks).step_by(16) {
            registers!(LANES, L => {
                // SAFETY: the caller guarantees that the lane has this block.
                let text = unsafe { _mm_loadu_si128(self.next[L].add(offset).cast()) };
                state[L] = _mm_xor_si128(state[L], _mm_xor_si128(text, keys[0][L]));
            });
            for keys in &keys[1..ROUNDS] {
                registers!(LANES, L => {
                    state[L] = _mm_aesenc_si128(state[L], keys[L]);
                });
            }
            registers!(LANES, L => {
                state[L] = _mm_aesenclast_si128(state[L], keys[ROUNDS][L]);
                // SAFETY: same as above.
                unsafe { _mm_storeu_si128(self.next[L].add(offset).cast(), state[L]) };
            });
        }
        for next in &mut self.next {
            *next = next.wrapping_add(16 * blocks);
        }
    }
}

impl<const ROUNDS: usize, const LANES: usize> Drop for CbcLanes<'_, '_, ROUNDS, LANES> {
    fn drop(&mut self) {
        cleanse(&mut self.keys);
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn block(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference covers 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Encrypts the bodies of the packets with AES in CBC mode.
///
/// # Safety
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each key is of AES-CBC with `ROUNDS` rounds.
#[target_feature(enable = "aes,avx2,bmi1,bmi2")]
pub(super) unsafe fn cbc_encrypt<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    // SAFETY: the caller guarantees the packets and their keys.
    unsafe {
        match order.len() {
            0 | 1 => cbc_encrypt_lanes::<ROUNDS, 1>(work, order),
            2 => cbc_encrypt_lanes::<ROUNDS, 2>(work, order),
            3 | 4 => cbc_encrypt_lanes::<ROUNDS, 4>(work, order),
            _ => cbc_encrypt_lanes::<ROUNDS, 8>(work, order),
        }
    }
}

/// Encrypts the bodies in `LANES` lanes.
///
/// # Safety
/// The obligations are those of [`cbc_encrypt`].
#[target_feature(enable = "aes,avx2,bmi1,bmi2")]
unsafe fn cbc_encrypt_lanes<const ROUNDS: usize, const LANES: usize>(
    work: &[Work<'_, Key>],
    order: &Order,
) {
    let mut lanes = CbcLanes::<ROUNDS, LANES> {
        keys: LaneKeys([[_mm_setzero_si128(); LANES]; ROUNDS_MAX + 1]),
        next: [std::ptr::null_mut(); LANES],
        work,
    };
    // SAFETY: the caller guarantees the packets and their keys.
    unsafe { schedule(&mut lanes, order) };
}

/// The round keys of the equivalent inverse cipher (FIPS 197 §5.3.5), in the order of their use.
#[derive(Clone, Copy)]
pub(super) struct InverseKeys([__m128i; ROUNDS_MAX + 1]);

// SAFETY: the struct consists of vectors of integers, and zero is a valid value.
unsafe impl Plain for InverseKeys {}

impl InverseKeys {
    /// Keys that are all zero.
    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn none() -> Self {
        Self([_mm_setzero_si128(); ROUNDS_MAX + 1])
    }

    #[target_feature(enable = "aes")]
    #[inline]
    pub(super) fn new<const ROUNDS: usize>(round_keys: &RoundKeys) -> Self {
        let mut keys = [_mm_setzero_si128(); ROUNDS_MAX + 1];
        keys[0] = block(&round_keys[ROUNDS]);
        for round in 1..ROUNDS {
            keys[round] = _mm_aesimc_si128(block(&round_keys[ROUNDS - round]));
        }
        keys[ROUNDS] = block(&round_keys[0]);
        Self(keys)
    }
}

/// Decrypts the bodies of the packets with AES in CBC mode.
///
/// # Safety
/// The obligations are those of [`cbc_encrypt`].
#[target_feature(enable = "aes,avx2,bmi1,bmi2")]
pub(super) unsafe fn cbc_decrypt<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    let mut of: *const Key = std::ptr::null();
    let mut keys = InverseKeys::none();
    for &packet in order {
        let work = &work[packet as usize];
        if !std::ptr::eq(of, work.key) {
            of = work.key;
            keys = InverseKeys::new::<ROUNDS>(&work.key.round_keys);
        }
        let body = work.body();
        let mut blocks = work.body_len() / 16;
        // SAFETY: the blocks lie in the body, and the IV is in front of it.
        unsafe {
            while blocks >= 8 {
                blocks -= 8;
                cbc_decrypt_blocks::<ROUNDS, 8>(&keys, body.add(16 * blocks));
            }
            while blocks >= 2 {
                blocks -= 2;
                cbc_decrypt_blocks::<ROUNDS, 2>(&keys, body.add(16 * blocks));
            }
            if blocks > 0 {
                cbc_decrypt_blocks::<ROUNDS, 1>(&keys, body);
            }
        }
    }
    cleanse(&mut keys);
}

/// Decrypts `N` blocks.
///
/// # Safety
/// The `N` blocks may be read and written, and the block before them may be read.
#[target_feature(enable = "aes,avx")]
#[inline]
unsafe fn cbc_decrypt_blocks<const ROUNDS: usize, const N: usize>(keys: &InverseKeys, at: *mut u8) {
    let keys = &keys.0;
    let mut state = [_mm_setzero_si128(); N];
    let mut before = state;
    registers!(N, I => {
        let at = at.wrapping_add(16 * I);
        // SAFETY: the caller guarantees the blocks and the one before them.
        unsafe {
            state[I] = _mm_xor_si128(_mm_loadu_si128(at.cast()), keys[0]);
            before[I] = _mm_loadu_si128(at.wrapping_sub(16).cast());
        }
    });
    for &key in &keys[1..ROUNDS] {
        registers!(N, I => {
            state[I] = _mm_aesdec_si128(state[I], key);
        });
    }
    registers!(N, I => {
        let last = _mm_xor_si128(keys[ROUNDS], before[I]);
        let plain = _mm_aesdeclast_si128(state[I], last);
        // SAFETY: the caller guarantees the blocks.
        unsafe { _mm_storeu_si128(at.wrapping_add(16 * I).cast(), plain) };
    });
}

/// Encrypts or decrypts the bodies of the packets with AES in CTR mode (RFC 3686).
///
/// # Safety
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each key is of AES-CTR with `ROUNDS` rounds.
#[target_feature(enable = "aes,avx2,bmi1,bmi2")]
pub(super) unsafe fn ctr<const ROUNDS: usize>(work: &[Work<'_, Key>], order: &Order) {
    for &packet in order {
        let work = &work[packet as usize];
        let keys = &work.key.round_keys;
        let mut at = work.body();
        let mut len = work.body_len();
        // SAFETY: the IV is the eight bytes in front of the body.
        let iv = unsafe { at.wrapping_sub(8).cast::<u64>().read_unaligned() };
        let nonce = u128::from(work.key.salt) | u128::from(iv) << 32;
        let nonce = _mm_xor_si128(block(&keys[0]), block(&nonce.to_le_bytes()));
        let mut counter = 1;
        while len >= 128 {
            let stream = ctr_blocks::<ROUNDS, 8>(keys, nonce, &mut counter);
            // SAFETY: the bytes lie in the body.
            unsafe { add(&stream, at) };
            at = at.wrapping_add(128);
            len -= 128;
        }
        while len >= 32 {
            let stream = ctr_blocks::<ROUNDS, 2>(keys, nonce, &mut counter);
            // SAFETY: the bytes lie in the body.
            unsafe { add(&stream, at) };
            at = at.wrapping_add(32);
            len -= 32;
        }
        if len > 0 {
            let stream = ctr_blocks::<ROUNDS, 2>(keys, nonce, &mut counter);
            let mut rest = [0; 32];
            // SAFETY: `len` is less than 32, and so many bytes are left in the body.
            unsafe {
                rest.as_mut_ptr().copy_from_nonoverlapping(at, len);
                add(&stream, rest.as_mut_ptr());
                at.copy_from_nonoverlapping(rest.as_ptr(), len);
            }
        }
    }
}

/// XORs `N` blocks of key stream onto memory.
///
/// # Safety
/// 16·`N` bytes at `at` may be read and written.
#[target_feature(enable = "avx")]
#[inline]
unsafe fn add<const N: usize>(stream: &[__m128i; N], at: *mut u8) {
    registers!(N, I => {
        let at: *mut __m128i = at.wrapping_add(16 * I).cast();
        // SAFETY: the caller guarantees the bytes.
        unsafe { _mm_storeu_si128(at, _mm_xor_si128(stream[I], _mm_loadu_si128(at))) };
    });
}

/// Returns the next `N` blocks of the key stream. `nonce` already has the first round key XORed in.
#[target_feature(enable = "aes,avx,sse4.1")]
#[inline]
fn ctr_blocks<const ROUNDS: usize, const N: usize>(
    keys: &RoundKeys,
    nonce: __m128i,
    counter: &mut u32,
) -> [__m128i; N] {
    let mut state = [_mm_setzero_si128(); N];
    registers!(N, I => {
        let last = _mm_insert_epi32::<3>(_mm_setzero_si128(), counter.swap_bytes() as i32);
        state[I] = _mm_xor_si128(nonce, last);
        *counter = counter.wrapping_add(1);
    });
    // `black_box` keeps the compiler from copying all keys to the stack for the next blocks.
    let keys = std::hint::black_box(keys);
    for key in &keys[1..ROUNDS] {
        let key = block(key);
        registers!(N, I => {
            state[I] = _mm_aesenc_si128(state[I], key);
        });
    }
    registers!(N, I => {
        state[I] = _mm_aesenclast_si128(state[I], block(&keys[ROUNDS]));
    });
    state
}
