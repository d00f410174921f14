//! AES-GCM with AES-NI and PCLMULQDQ: one block to a register.
//!
//! ```text
//! a packet has blocks 0 … n; block 0 stands for header and IV, blocks 1 … n are the text:
//!     stream[i] = AES(salt | IV | i + 1)
//!     cipher[i] = text[i] + stream[i]                                        1 ≤ i ≤ n
//! for each group of blocks, 1 … 8 in the first and 8 in the others:
//!     hash  = (hash + cipher[first])·H^k + … + cipher[last]·H                block 0: the AAD for the ciphertext
//! in the last one:
//!     ICV   = (hash + cipher[first])·H^(k+1) + … + cipher[last]·H^2 + lengths·H + stream[0]
//! ```
//!
//! The tricks, by number:
//!
//! 1. *Sums are reduced once.* A sum has up to nine products.
//! 2. *Three multiplications* make a product (Karatsuba). A core that does two AES rounds a cycle needs two cycles
//!    for each multiplication, so four would take longer than fourteen rounds. The context stores the sum of both
//!    halves of each power.
//! 3. *The hash runs between the AES rounds.* Each round of a group also does the product of one other block. When
//!    opening, that block is of the same group. When sealing, it is of the group before, across packets too. The
//!    compiler would put one long chain behind the other, and a core's schedulers are too small to look that far
//!    ahead. `asm!` blocks fix the order, because the compiler does not reorder them.
//! 4. *Counters by exclusive or.* Eight neighbouring counters with the same multiple of eight share all bits but the
//!    lowest three. The lowest three bits are XORed in from a table.

use std::arch::x86_64::*;

use super::frame::{self, Frame};
use super::key::GcmKey;
use super::order::FrameQueue;
use crate::plain::cleanse;
use blocks::*;

mod blocks;
mod gmac;

pub(super) use gmac::authenticate;

/// Does the rounds after the ninth.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn last_rounds<const N: usize>(key: &GcmKey, rounds: usize, states: &mut [__m128i; N]) {
    if rounds > 10 {
        round::<10, N>(key, states);
        round::<11, N>(key, states);
    }
    if rounds > 12 {
        round::<12, N>(key, states);
        round::<13, N>(key, states);
    }
    last_round(key, rounds, states);
}

/// Does rounds 1 … 9.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn first_rounds<const N: usize>(key: &GcmKey, states: &mut [__m128i; N]) {
    macro_rules! rounds {
        ($($at:literal)+) => {
            $(round::<$at, N>(key, states);)+
        };
    }
    rounds!(1 2 3 4 5 6 7 8 9);
}

/// The parts of a [`Frame`], each computed once.
struct BlockMessage<'a> {
    key: &'a GcmKey,
    places: Places,
    text_len: usize,
    icv: *mut u8,
    nonce: __m128i,
    aad: __m128i,
    /// The lengths block: AAD and text in bits.
    lengths: __m128i,
}

impl<'a> BlockMessage<'a> {
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    fn of<F: Frame>(frame: &'a F) -> Self {
        let text_len = frame.text_len();
        Self {
            key: frame.key(),
            places: Places {
                from: frame.source().wrapping_sub(16),
                to: frame.target().wrapping_sub(16),
            },
            text_len,
            icv: frame.icv(),
            nonce: number(frame.nonce()),
            aad: number(frame.aad()),
            lengths: number([text_len as u64 * 8, frame.aad_bits()]),
        }
    }

    /// Returns the counter blocks with the counter left out, after round 0.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    fn without_counter(&self) -> __m128i {
        _mm_xor_si128(load(&self.key.round_keys()[0]), self.nonce)
    }

    /// Encrypts or decrypts the blocks from `at` on. Returns the ciphertext of the first block and of the last block
    /// as numbers. The first is zero if it is block 0, which is not text.
    ///
    /// # Safety
    /// - The message is valid and has all of these blocks.
    /// - Every block but the last one of the message is whole.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn apply<const N: usize, const SEAL: bool>(
        &self,
        at: usize,
        stream: &[__m128i; N],
    ) -> [__m128i; 2] {
        let mut ends = [_mm_setzero_si128(); 2];
        for (n, &stream) in stream.iter().enumerate() {
            if n == 0 && at == 0 {
                continue;
            }
            // SAFETY: the caller guarantees that the message has block `at + n`; only the last block can be short.
            let cipher = unsafe {
                if n + 1 < N {
                    self.places.apply::<SEAL>(at + n, stream)
                } else {
                    let len = self.text_len - 16 * (at + n - 1);
                    self.places.apply_last::<SEAL>(at + n, len, stream)
                }
            };
            if n == 0 {
                ends[0] = reverse(cipher);
            }
            if n + 1 == N {
                ends[1] = reverse(cipher);
            }
        }
        ends
    }

    /// Returns block `at` of the received ciphertext as a number, with zeros after the text.
    ///
    /// # Safety
    /// The message is valid and has this block.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn received(&self, at: usize) -> __m128i {
        let len = self.text_len - 16 * (at - 1);
        let place = self.places.from.wrapping_add(16 * at);
        // SAFETY: the caller guarantees that the message has `len` bytes from `place` on.
        reverse(unsafe {
            if len >= 16 {
                _mm_loadu_si128(place.cast())
            } else {
                load_part(place, len)
            }
        })
    }
}

/// The addresses that block 0 would have in the text that is read and in the result that is written.
#[derive(Clone, Copy)]
struct Places {
    from: *const u8,
    to: *mut u8,
}

impl Places {
    /// Encrypts or decrypts block `at` and returns its ciphertext.
    ///
    /// # Safety
    /// The block belongs to the message's text, and it is whole.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn apply<const SEAL: bool>(self, at: usize, stream: __m128i) -> __m128i {
        // SAFETY: the caller guarantees 16 bytes at this block in both places.
        unsafe {
            let before = _mm_loadu_si128(self.from.wrapping_add(16 * at).cast());
            let after = _mm_xor_si128(before, stream);
            _mm_storeu_si128(self.to.wrapping_add(16 * at).cast(), after);
            if SEAL { after } else { before }
        }
    }

    /// Encrypts or decrypts block `at`, which has `len` bytes of text or is whole if `len` is 16 or more. Returns its
    /// ciphertext with zeros after the text.
    ///
    /// # Safety
    /// The bytes of block `at`, or its `len` bytes of text, belong to the message's text.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn apply_last<const SEAL: bool>(
        self,
        at: usize,
        len: usize,
        stream: __m128i,
    ) -> __m128i {
        // SAFETY: the caller guarantees that the bytes belong to the text.
        unsafe {
            if len >= 16 {
                return self.apply::<SEAL>(at, stream);
            }
            let before = load_part(self.from.wrapping_add(16 * at), len);
            let after = first_bytes(_mm_xor_si128(before, stream), len);
            store_part(self.to.wrapping_add(16 * at), len, after);
            if SEAL { after } else { before }
        }
    }
}

/// A sealed message whose last `K` blocks are not hashed yet (trick 3).
struct PendingHash<'a, const K: usize> {
    blocks: Hashed<'a>,
    mask: __m128i,
    icv: *mut u8,
}

impl<const K: usize> PendingHash<'_, K> {
    /// Writes the ICV.
    ///
    /// # Safety
    /// - The message is valid.
    /// - `sum` is the hash of this message.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn finish(&self, sum: Sum) {
        let icv = reverse(sum.reduce_onto(self.mask));
        let len = self.blocks.key.icv_len();
        // SAFETY: the caller guarantees that the ICV's bytes may be written.
        unsafe {
            if len == 16 {
                _mm_storeu_si128(self.icv.cast(), icv);
            } else {
                store_part(self.icv, len, icv);
            }
        }
    }
}

/// Seals a message. Its first group has `N` blocks. If `LONG`, further [`GROUP`]s follow and `K` is [`GROUP`];
/// otherwise none follow and `K` is `N`.
///
/// # Safety
/// The obligations are those of [`run`].
#[inline(never)]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn seal<'a, const N: usize, const K: usize, const LONG: bool>(
    message: &BlockMessage<'a>,
    rounds: usize,
    unhashed: &mut Option<PendingHash<'a, K>>,
) {
    let (key, zero) = (message.key, _mm_setzero_si128());
    let without_counter = message.without_counter();
    let mut states = counters::<N>(without_counter, 0, 1);
    if let Some(before) = unhashed {
        // SAFETY: the caller guarantees the tier and the messages.
        unsafe {
            let sum = rounds_and_products::<N, K, true>(key, &mut states, &before.blocks);
            before.finish(sum);
        }
    } else {
        first_rounds(key, &mut states);
    }
    last_rounds(key, rounds, &mut states);
    let mask = reverse(states[0]);
    let mut blocks = Hashed {
        key,
        first: message.aad,
        others: message.places.to.wrapping_add(16).cast_const(),
        last: zero,
        lengths: message.lengths,
    };
    // SAFETY: the caller guarantees the tier and the messages.
    unsafe {
        [_, blocks.last] = message.apply::<N, true>(0, &states);
        if LONG {
            let groups = frame::blocks(message.text_len) / GROUP - usize::from(N == GROUP);
            for group in 0..groups {
                let at = N + GROUP * group;
                let mut states = counters::<GROUP>(without_counter, group, N + 1);
                let sum = if group == 0 {
                    rounds_and_products::<GROUP, N, false>(key, &mut states, &blocks)
                } else {
                    rounds_and_products::<GROUP, GROUP, false>(key, &mut states, &blocks)
                };
                let hash = sum.reduce_onto(zero);
                last_rounds(key, rounds, &mut states);
                let ends = message.apply::<GROUP, true>(at, &states);
                blocks.first = _mm_xor_si128(hash, ends[0]);
                blocks.last = ends[1];
                blocks.others = message.places.to.wrapping_add(16 * at + 16);
            }
        }
    }
    *unhashed = Some(PendingHash {
        blocks,
        mask,
        icv: message.icv,
    });
}

/// Opens a message with groups as in [`seal`] and returns whether it is authentic.
///
/// # Safety
/// The obligations are those of [`run`].
#[inline(never)]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn open<const N: usize, const LONG: bool>(message: &BlockMessage, rounds: usize) -> bool {
    let (key, zero) = (message.key, _mm_setzero_si128());
    let without_counter = message.without_counter();
    let mut states = counters::<N>(without_counter, 0, 1);
    let mut blocks = Hashed {
        key,
        first: message.aad,
        others: message.places.from.wrapping_add(16),
        last: zero,
        lengths: message.lengths,
    };
    // SAFETY: the caller guarantees the tier and the messages.
    let icv = unsafe {
        if !LONG {
            if N > 1 {
                blocks.last = message.received(N - 1);
            }
            let sum = rounds_and_products::<N, N, true>(key, &mut states, &blocks);
            last_rounds(key, rounds, &mut states);
            message.apply::<N, false>(0, &states);
            sum.reduce_onto(reverse(states[0]))
        } else {
            let mut sum = rounds_and_products::<N, N, false>(key, &mut states, &blocks);
            last_rounds(key, rounds, &mut states);
            message.apply::<N, false>(0, &states);
            let mask = reverse(states[0]);
            let groups = frame::blocks(message.text_len) / GROUP - usize::from(N == GROUP);
            let mut at = N;
            for group in 0..groups {
                blocks.first = _mm_xor_si128(sum.reduce_onto(zero), message.received(at));
                blocks.others = message.places.from.wrapping_add(16 * at + 16);
                let mut states = counters::<GROUP>(without_counter, group, N + 1);
                sum = if group + 1 < groups {
                    rounds_and_products::<GROUP, GROUP, false>(key, &mut states, &blocks)
                } else {
                    blocks.last = message.received(at + GROUP - 1);
                    rounds_and_products::<GROUP, GROUP, true>(key, &mut states, &blocks)
                };
                last_rounds(key, rounds, &mut states);
                message.apply::<GROUP, false>(at, &states);
                at += GROUP;
            }
            sum.reduce_onto(mask)
        }
    };
    let (icv, len) = (reverse(icv), key.icv_len());
    // SAFETY: the caller guarantees that the message is valid; only the bytes of the ICV are read.
    unsafe {
        let (sent, icv) = if len == 16 {
            (_mm_loadu_si128(message.icv.cast_const().cast()), icv)
        } else {
            (load_part(message.icv, len), first_bytes(icv, len))
        };
        let other = _mm_xor_si128(sent, icv);
        _mm_testz_si128(other, other) == 1
    }
}

/// Seals or opens messages whose first group has `N` blocks. More groups follow only if `LONG`.
///
/// # Safety
/// The obligations are those of [`run`].
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn messages<F: Frame, const N: usize, const K: usize, const LONG: bool, const SEAL: bool>(
    queue: &mut FrameQueue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    let mut unhashed = None;
    for _ in 0..count {
        let (number, frame) = queue.take();
        let message = BlockMessage::of(frame);
        // SAFETY: the caller guarantees the tier and the messages.
        unsafe {
            if SEAL {
                seal::<N, K, LONG>(&message, rounds, &mut unhashed);
            } else {
                authentic[number] = open::<N, LONG>(&message, rounds);
            }
        }
    }
    if let Some(unhashed) = &mut unhashed {
        // SAFETY: the caller guarantees the tier and the messages.
        unsafe { unhashed.finish(products::<K>(&unhashed.blocks)) }
        // These values reveal the key: the hash of known blocks, and the mask of the ICV.
        cleanse(&mut unhashed.blocks.first);
        cleanse(&mut unhashed.mask);
    }
}

/// Number of shapes. A shape is the number of blocks in the first group, with or without further groups.
pub(super) const SHAPES: usize = 2 * GROUP;

#[inline(always)]
pub(super) fn shape(text_len: usize) -> usize {
    let blocks = frame::blocks(text_len);
    (blocks - 1) % GROUP + if blocks > GROUP { GROUP } else { 0 }
}

/// Seals or opens the next `count` messages of the queue.
///
/// # Safety
/// - The CPU has the tier's features.
/// - The queue has at least `count` messages, and the next `count` of them are valid (see [`Frame`]).
/// - Those messages have this shape, and each of their keys has `rounds` rounds.
pub(super) unsafe fn run<F: Frame, const SEAL: bool>(
    shape: usize,
    rounds: usize,
    queue: &mut FrameQueue<F>,
    count: usize,
    authentic: &mut [bool],
) {
    // SAFETY: the caller guarantees the tier and the messages.
    unsafe {
        match shape {
            0 => messages::<F, 1, 1, false, SEAL>(queue, count, rounds, authentic),
            1 => messages::<F, 2, 2, false, SEAL>(queue, count, rounds, authentic),
            2 => messages::<F, 3, 3, false, SEAL>(queue, count, rounds, authentic),
            3 => messages::<F, 4, 4, false, SEAL>(queue, count, rounds, authentic),
            4 => messages::<F, 5, 5, false, SEAL>(queue, count, rounds, authentic),
            5 => messages::<F, 6, 6, false, SEAL>(queue, count, rounds, authentic),
            6 => messages::<F, 7, 7, false, SEAL>(queue, count, rounds, authentic),
            7 => messages::<F, 8, 8, false, SEAL>(queue, count, rounds, authentic),
            8 => messages::<F, 1, 8, true, SEAL>(queue, count, rounds, authentic),
            9 => messages::<F, 2, 8, true, SEAL>(queue, count, rounds, authentic),
            10 => messages::<F, 3, 8, true, SEAL>(queue, count, rounds, authentic),
            11 => messages::<F, 4, 8, true, SEAL>(queue, count, rounds, authentic),
            12 => messages::<F, 5, 8, true, SEAL>(queue, count, rounds, authentic),
            13 => messages::<F, 6, 8, true, SEAL>(queue, count, rounds, authentic),
            14 => messages::<F, 7, 8, true, SEAL>(queue, count, rounds, authentic),
            _ => messages::<F, 8, 8, true, SEAL>(queue, count, rounds, authentic),
        }
    }
}
