//! AES-GCM with AES-NI and PCLMULQDQ: one block to a register.
//!
//! ```text
//! a packet has blocks 0 … n; block 0 stands for header and IV, blocks 1 … n are the text:
//!     stream[i] = AES(salt | IV | i + 1)
//!     cipher[i] = text[i] + stream[i]                                        1 ≤ i ≤ n
//! for each eight blocks, but for the last ones:
//!     hash  = (hash + cipher[0])·H^8 + cipher[1]·H^7 + … + cipher[7]·H       block 0: the AAD for the ciphertext
//! with the last k:
//!     ICV   = (hash + cipher[0])·H^(k+1) + … + cipher[k−1]·H^2 + lengths·H + stream[0]
//! ```
//!
//! The tricks, by number:
//!
//! 1. *Sums are reduced once*, of up to nine products.
//! 2. *Three multiplications* for a product (Karatsuba). A multiplication takes as long as four rounds of a block, so a
//!    fourth one would take longer than all fourteen. The context has both halves of each power added.
//! 3. *Hash behind.* Each round of eight blocks has the product of one other block in it: when opening of the same
//!    group, when sealing of the one before. The compiler would make one long chain after the other of them, and a
//!    core's schedulers are too small to see so far: the order is that of `asm!` blocks, which it leaves alone.
//! 4. *Counters by exclusive or.* Block `i` has the counter `i + 1`: of eight neighbours all but the last have a multiple
//!    of eight in common.

use std::arch::x86_64::*;

use super::frame::{Frame, blocks};
use super::key::Key;
use super::order::Queue;
use blocks::*;

mod blocks;

/// The rounds of AES of some states but for the last one, which are 9, 11 or 13.
macro_rules! rounds {
    ($key:expr, $states:expr; $($at:literal)+) => {
        $(round::<$at, _>($key, &mut $states);)+
    };
}

/// What is left of the rounds after the ninth.
macro_rules! last_rounds {
    ($key:expr, $rounds:expr, $states:expr) => {
        if $rounds > 10 {
            rounds!($key, $states; 10 11);
        }
        if $rounds > 12 {
            rounds!($key, $states; 12 13);
        }
        last_round($key, $rounds, &mut $states);
    };
}

/// The counter block of a message without the counter, after round 0.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn without_counter<F: Frame>(frame: &F) -> __m128i {
    _mm_xor_si128(load(&frame.key().round_keys()[0]), number(frame.nonce()))
}

/// Text and ciphertext by blocks: where block 0 would be.
#[derive(Clone, Copy)]
struct Places {
    from: *const u8,
    to: *mut u8,
}

impl Places {
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    fn of<F: Frame>(frame: &F) -> Self {
        Self {
            from: frame.source().wrapping_sub(16),
            to: frame.target().wrapping_sub(16),
        }
    }

    /// Encrypts or decrypts block `at` and gives the ciphertext.
    ///
    /// # Safety
    /// It is text of the message, and whole.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn apply<const SEAL: bool>(self, at: usize, stream: __m128i) -> __m128i {
        // SAFETY: the caller's promise.
        unsafe {
            let before = _mm_loadu_si128(self.from.wrapping_add(16 * at).cast());
            let after = _mm_xor_si128(before, stream);
            _mm_storeu_si128(self.to.wrapping_add(16 * at).cast(), after);
            if SEAL { after } else { before }
        }
    }

    /// The same for the last block, of which the message has `len` bytes; zeros follow in the ciphertext.
    ///
    /// # Safety
    /// They are the end of the message.
    #[inline]
    #[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
    unsafe fn apply_last<const SEAL: bool>(
        self,
        at: usize,
        len: usize,
        stream: __m128i,
    ) -> __m128i {
        // SAFETY: the caller's promise.
        unsafe {
            if len == 16 {
                return self.apply::<SEAL>(at, stream);
            }
            let before = load_part(self.from.wrapping_add(16 * at), len);
            let after = first_bytes(_mm_xor_si128(before, stream), len);
            store_part(self.to.wrapping_add(16 * at), len, after);
            if SEAL { after } else { before }
        }
    }
}

/// The products of a group's blocks and powers of H, of which the first is a number and the others are at `blocks`.
///
/// # Safety
/// The group may be read.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn hash_group(key: &Key, first: __m128i, blocks: *const u8) -> __m128i {
    let mut sum = Sum::new();
    for n in 1..GROUP {
        // SAFETY: the caller's promise.
        let block = unsafe { _mm_loadu_si128(blocks.wrapping_add(16 * n).cast()) };
        sum.add(reverse(block), key, GROUP - n);
    }
    sum.add(first, key, GROUP);
    sum.reduce_onto(_mm_setzero_si128())
}

/// Works on the first `groups` groups of a message, at least one. Gives block 0 of the stream and the hash; when
/// sealing that of all groups but the last one, with the last one's first block added.
///
/// # Safety
/// The message is valid and has more blocks than these.
#[inline(never)]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn whole_groups<const SEAL: bool>(
    key: &Key,
    rounds: usize,
    without_counter: __m128i,
    aad: __m128i,
    places: Places,
    groups: usize,
) -> [__m128i; 2] {
    let zero = _mm_setzero_si128();
    let (mut mask, mut hash) = (zero, aad);
    for group in 0..groups {
        let at = GROUP * group;
        let mut states = counters::<GROUP>(without_counter, group);
        if SEAL && group == 0 {
            rounds!(key, states; 1 2 3 4 5 6 7 8 9);
        } else {
            let mut hashed = places.from.wrapping_add(16 * at);
            if SEAL {
                hashed = places.to.cast_const().wrapping_add(16 * (at - GROUP));
            } else if group > 0 {
                // SAFETY: a block of the text.
                let block = unsafe { _mm_loadu_si128(hashed.cast()) };
                hash = _mm_xor_si128(hash, reverse(block));
            }
            let mut sum = Sum::new();
            macro_rules! products {
                ($($at:literal $power:literal,)+) => {
                    $(
                        let block = hashed.wrapping_add(16 * (GROUP - $power));
                        // SAFETY: a block of the text.
                        unsafe { round_and_product::<$at, $power>(key, &mut states, &mut sum, block) };
                    )+
                };
            }
            products!(1 7, 2 6, 3 5, 4 4, 5 3, 6 2, 7 1,);
            // This one waits for the hash of the group before, so it comes last.
            round_and_product_of::<8, 8>(key, &mut states, &mut sum, hash);
            rounds!(key, states; 9);
            hash = sum.reduce_onto(zero);
        }
        last_rounds!(key, rounds, states);
        // SAFETY: blocks of the text.
        unsafe {
            if group == 0 {
                mask = states[0];
            } else {
                let cipher = places.apply::<SEAL>(at, states[0]);
                if SEAL {
                    hash = _mm_xor_si128(hash, reverse(cipher));
                }
            }
            for (n, &stream) in (at + 1..).zip(&states[1..]) {
                places.apply::<SEAL>(n, stream);
            }
        }
    }
    [mask, hash]
}

/// Messages of more than [`GROUP`] blocks, of which `N` are in the last group.
///
/// # Safety
/// As [`run`].
#[inline(never)]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn long<F: Frame, const N: usize, const SEAL: bool>(
    queue: &mut Queue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    for _ in 0..count {
        let (number_of, frame) = queue.take();
        let (key, places) = (frame.key(), Places::of(frame));
        let groups = blocks(frame.text_len()) / GROUP - usize::from(N == GROUP);
        let at = GROUP * groups;
        let without_counter = without_counter(frame);
        let aad = number(frame.aad());
        // SAFETY: the caller's promise.
        unsafe {
            let [mask, mut hash] =
                whole_groups::<SEAL>(key, rounds, without_counter, aad, places, groups);
            let mut states = counters::<N>(without_counter, groups);
            if SEAL {
                let before = places.to.wrapping_add(16 * (at - GROUP));
                hash = hash_group(key, hash, before);
            }
            rounds!(key, states; 1 2 3 4 5 6 7 8 9);
            last_rounds!(key, rounds, states);
            let mut cipher = states;
            for n in 0..N - 1 {
                cipher[n] = places.apply::<SEAL>(at + n, states[n]);
            }
            let last = frame.text_len() - 16 * (at + N - 2);
            cipher[N - 1] = places.apply_last::<SEAL>(at + N - 1, last, states[N - 1]);
            let first = _mm_xor_si128(hash, reverse(cipher[0]));
            let icv = icv_of(frame, first, &cipher, mask);
            let same = finish::<F, SEAL>(frame, icv);
            if !SEAL {
                authentic[number_of] = same;
            }
        }
    }
}

/// Messages of `N` blocks, at most [`GROUP`], `P` at a time (trick 5).
///
/// # Safety
/// As [`run`].
#[inline(never)]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn short<F: Frame, const P: usize, const N: usize, const SEAL: bool>(
    queue: &mut Queue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    for _ in 0..count / P {
        let (number_of, frame) = queue.take();
        let (mut numbers, mut frames) = ([number_of; P], [frame; P]);
        for p in 1..P {
            (numbers[p], frames[p]) = queue.take();
        }
        let mut states = [[_mm_setzero_si128(); N]; P];
        for p in 0..P {
            states[p] = counters::<N>(without_counter(frames[p]), 0);
        }
        macro_rules! rounds_of_all {
            ($($at:literal)+) => {
                $(for p in 0..P {
                    round::<$at, N>(frames[p].key(), &mut states[p]);
                })+
            };
        }
        rounds_of_all!(1 2 3 4 5 6 7 8 9);
        if rounds > 10 {
            rounds_of_all!(10 11);
        }
        if rounds > 12 {
            rounds_of_all!(12 13);
        }
        for p in 0..P {
            last_round(frames[p].key(), rounds, &mut states[p]);
        }
        for p in 0..P {
            let (frame, places) = (frames[p], Places::of(frames[p]));
            let mut cipher = states[p];
            // SAFETY: the caller's promise.
            unsafe {
                for n in 1..N {
                    cipher[n] = if n < N - 1 {
                        places.apply::<SEAL>(n, states[p][n])
                    } else {
                        let last = frame.text_len() - 16 * (N - 2);
                        places.apply_last::<SEAL>(n, last, states[p][n])
                    };
                }
                let icv = icv_of(frame, number(frame.aad()), &cipher, states[p][0]);
                let same = finish::<F, SEAL>(frame, icv);
                if !SEAL {
                    authentic[numbers[p]] = same;
                }
            }
        }
    }
}

/// The ICV from the last blocks of ciphertext, of which the first is a number with the hash.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
fn icv_of<F: Frame, const N: usize>(
    frame: &F,
    first: __m128i,
    cipher: &[__m128i; N],
    mask: __m128i,
) -> __m128i {
    let key = frame.key();
    let lengths = number([frame.text_len() as u64 * 8, frame.aad_bits()]);
    let mut sum = Sum::new();
    sum.add(lengths, key, 1);
    for (n, &block) in (1..).zip(&cipher[1..]) {
        sum.add(reverse(block), key, N + 1 - n);
    }
    sum.add(first, key, N + 1);
    reverse(sum.reduce_onto(reverse(mask)))
}

/// Writes the ICV, or compares it.
///
/// # Safety
/// The message is valid.
#[inline]
#[target_feature(enable = "aes,pclmulqdq,avx2,bmi2")]
unsafe fn finish<F: Frame, const SEAL: bool>(frame: &F, icv: __m128i) -> bool {
    let (key, place) = (frame.key(), frame.icv());
    let len = key.icv_len();
    // SAFETY: only the ICV is read or written.
    unsafe {
        if SEAL {
            if len == 16 {
                _mm_storeu_si128(place.cast(), icv);
            } else {
                store_part(place, len, icv);
            }
            return true;
        }
        let (sent, icv) = if len == 16 {
            (_mm_loadu_si128(place.cast_const().cast()), icv)
        } else {
            (load_part(place, len), first_bytes(icv, len))
        };
        let other = _mm_xor_si128(sent, icv);
        _mm_testz_si128(other, other) == 1
    }
}

/// Shapes of messages: by blocks up to a group, then by blocks in the last one.
pub(super) const SHAPES: usize = 2 * GROUP;

#[inline(always)]
pub(super) fn shape(text_len: usize) -> usize {
    let blocks = blocks(text_len);
    (blocks - 1) % GROUP + if blocks > GROUP { GROUP } else { 0 }
}

/// Seals or opens the next messages of the queue.
///
/// # Safety
/// The CPU has the tier's features; the queue has that many messages, valid, of this shape and with keys of as many rounds.
pub(super) unsafe fn run<F: Frame, const SEAL: bool>(
    shape: usize,
    rounds: usize,
    queue: &mut Queue<F>,
    count: usize,
    authentic: &mut [bool],
) {
    // SAFETY: the caller's promise.
    unsafe {
        match shape {
            0 => short::<F, 1, 1, SEAL>(queue, count, rounds, authentic),
            1 => short::<F, 1, 2, SEAL>(queue, count, rounds, authentic),
            2 => short::<F, 1, 3, SEAL>(queue, count, rounds, authentic),
            3 => short::<F, 1, 4, SEAL>(queue, count, rounds, authentic),
            4 => short::<F, 1, 5, SEAL>(queue, count, rounds, authentic),
            5 => short::<F, 1, 6, SEAL>(queue, count, rounds, authentic),
            6 => short::<F, 1, 7, SEAL>(queue, count, rounds, authentic),
            7 => short::<F, 1, 8, SEAL>(queue, count, rounds, authentic),
            8 => long::<F, 1, SEAL>(queue, count, rounds, authentic),
            9 => long::<F, 2, SEAL>(queue, count, rounds, authentic),
            10 => long::<F, 3, SEAL>(queue, count, rounds, authentic),
            11 => long::<F, 4, SEAL>(queue, count, rounds, authentic),
            12 => long::<F, 5, SEAL>(queue, count, rounds, authentic),
            13 => long::<F, 6, SEAL>(queue, count, rounds, authentic),
            14 => long::<F, 7, SEAL>(queue, count, rounds, authentic),
            _ => long::<F, 8, SEAL>(queue, count, rounds, authentic),
        }
    }
}
