//! AES between the rounds of a hash: one block of one packet at a time.
//!
//! 1. A block does its ten to fourteen rounds in a row, in one register. Long before they end, the processor has
//!    begun the hash's rounds and the next blocks. Several blocks in step would take registers that the hash needs.
//! 2. Round keys are memory operands.

use std::arch::x86_64::*;

use super::aesni::InverseKeys;
use super::hash::unroll;
use super::{Key, RoundKeys};
use crate::cpu::Work;
use crate::plain::Plain;

/// Work that is done between the rounds of a hash.
///
/// The functions are `inline(always)` and have no `target_feature`: they become part of a caller that has it.
pub(super) trait Beside: Copy {
    /// Whether there is any such work.
    const SOME: bool;

    /// Does one block and goes on to the next.
    ///
    /// # Safety
    /// - The processor has AES-NI, SSE4.1 and AVX.
    /// - The block may be read and written.
    /// - The keys may be read.
    unsafe fn block(&mut self);
}

/// The cipher of a packet that is hashed.
pub(super) trait Cipher<K>: Beside {
    /// Keys that are derived for each packet.
    type Keys: Plain;

    /// Returns an empty place for derived keys.
    ///
    /// # Safety
    /// The processor has AES-NI and AVX.
    unsafe fn no_keys() -> Self::Keys;

    /// Starts at the first block of the packet's body. `keys` belongs to an earlier packet or is empty. The cipher
    /// keeps the address of `keys`.
    ///
    /// # Safety
    /// - The processor has AES-NI and AVX.
    /// - The packet's bytes may be read and written.
    /// - `keys` stays in its place as long as the cipher is used.
    unsafe fn new(work: &Work<'_, K>, keys: &mut Self::Keys) -> Self;

    /// Moves to piece number `piece`, whose four blocks are at `at`. With CBC the pieces must be visited one after
    /// the other.
    fn go_to(&mut self, piece: usize, at: *mut u8);
}

#[derive(Clone, Copy)]
pub(super) struct NoKeys;

// SAFETY: the struct has no bytes.
unsafe impl Plain for NoKeys {}

#[derive(Clone, Copy)]
pub(super) struct Nothing;

impl Beside for Nothing {
    const SOME: bool = false;

    #[inline(always)]
    unsafe fn block(&mut self) {}
}

impl<K> Cipher<K> for Nothing {
    type Keys = NoKeys;

    #[inline(always)]
    unsafe fn no_keys() -> NoKeys {
        NoKeys
    }

    #[inline(always)]
    unsafe fn new(_: &Work<'_, K>, _: &mut NoKeys) -> Self {
        Self
    }

    #[inline(always)]
    fn go_to(&mut self, _: usize, _: *mut u8) {}
}

/// CTR mode (RFC 3686).
#[derive(Clone, Copy)]
pub(super) struct Ctr<const ROUNDS: usize> {
    nonce: __m128i,
    keys: *const RoundKeys,
    at: *mut u8,
    counter: u32,
}

impl<const ROUNDS: usize> Beside for Ctr<ROUNDS> {
    const SOME: bool = true;

    #[inline(always)]
    unsafe fn block(&mut self) {
        let keys: *const __m128i = self.keys.cast();
        // SAFETY: the caller guarantees the block and the keys.
        unsafe {
            let counter = _mm_insert_epi32::<3>(self.nonce, self.counter.swap_bytes() as i32);
            let mut state = _mm_xor_si128(counter, _mm_loadu_si128(keys));
            macro_rules! round {
                ($round:literal) => {
                    if $round < ROUNDS {
                        state = _mm_aesenc_si128(state, _mm_loadu_si128(keys.add($round)));
                    }
                };
            }
            unroll!(round 1 2 3 4 5 6 7 8 9 10 11 12 13);
            let stream = _mm_aesenclast_si128(state, _mm_loadu_si128(keys.add(ROUNDS)));
            let at: *mut __m128i = self.at.cast();
            _mm_storeu_si128(at, _mm_xor_si128(stream, _mm_loadu_si128(at)));
        }
        self.at = self.at.wrapping_add(16);
        self.counter = self.counter.wrapping_add(1);
    }
}

impl<const ROUNDS: usize> Cipher<Key> for Ctr<ROUNDS> {
    type Keys = NoKeys;

    #[inline(always)]
    unsafe fn no_keys() -> NoKeys {
        NoKeys
    }

    #[inline(always)]
    unsafe fn new(work: &Work<'_, Key>, _: &mut NoKeys) -> Self {
        // SAFETY: the IV is the eight bytes in front of the body.
        let iv = unsafe { work.body().wrapping_sub(8).cast::<u64>().read_unaligned() };
        let nonce = u128::from(work.key.salt) | u128::from(iv) << 32;
        Self {
            // SAFETY: the number has 16 bytes.
            nonce: unsafe { _mm_loadu_si128((&raw const nonce).cast()) },
            keys: &work.key.round_keys,
            at: work.body(),
            counter: 1,
        }
    }

    #[inline(always)]
    fn go_to(&mut self, piece: usize, at: *mut u8) {
        self.at = at;
        self.counter = 1 + 4 * piece as u32;
    }
}

/// CBC decryption.
#[derive(Clone, Copy)]
pub(super) struct CbcDecrypt<const ROUNDS: usize> {
    /// The ciphertext block before the next one.
    before: __m128i,
    keys: *const InverseKeys,
    at: *mut u8,
}

/// The derived keys of a packet, and the key they come from.
#[derive(Clone, Copy)]
pub(super) struct DerivedKeys {
    of: *const Key,
    keys: InverseKeys,
}

// SAFETY: the struct consists of a pointer and integers, for which zero is a valid value.
unsafe impl Plain for DerivedKeys {}

impl<const ROUNDS: usize> Beside for CbcDecrypt<ROUNDS> {
    const SOME: bool = true;

    #[inline(always)]
    unsafe fn block(&mut self) {
        let keys: *const __m128i = self.keys.cast();
        let at: *mut __m128i = self.at.cast();
        // SAFETY: the caller guarantees the block and the keys.
        unsafe {
            let mut state = _mm_xor_si128(_mm_loadu_si128(at), _mm_loadu_si128(keys));
            macro_rules! round {
                ($round:literal) => {
                    if $round < ROUNDS {
                        state = _mm_aesdec_si128(state, _mm_loadu_si128(keys.add($round)));
                    }
                };
            }
            unroll!(round 1 2 3 4 5 6 7 8 9 10 11 12 13);
            let last = _mm_xor_si128(self.before, _mm_loadu_si128(keys.add(ROUNDS)));
            self.before = _mm_loadu_si128(at);
            _mm_storeu_si128(at, _mm_aesdeclast_si128(state, last));
        }
        self.at = self.at.wrapping_add(16);
    }
}

impl<const ROUNDS: usize> Cipher<Key> for CbcDecrypt<ROUNDS> {
    type Keys = DerivedKeys;

    #[inline(always)]
    unsafe fn no_keys() -> DerivedKeys {
        DerivedKeys {
            of: std::ptr::null(),
            // SAFETY: the caller guarantees SSE2.
            keys: unsafe { InverseKeys::none() },
        }
    }

    #[inline(always)]
    unsafe fn new(work: &Work<'_, Key>, keys: &mut DerivedKeys) -> Self {
        // SAFETY: the caller guarantees AES-NI and the packet; the IV is in front of the body.
        unsafe {
            if !std::ptr::eq(keys.of, work.key) {
                keys.of = work.key;
                keys.keys = InverseKeys::new::<ROUNDS>(&work.key.round_keys);
            }
            Self {
                before: _mm_loadu_si128(work.body().wrapping_sub(16).cast()),
                keys: &raw const keys.keys,
                at: work.body(),
            }
        }
    }

    #[inline(always)]
    fn go_to(&mut self, _: usize, at: *mut u8) {
        self.at = at;
    }
}
