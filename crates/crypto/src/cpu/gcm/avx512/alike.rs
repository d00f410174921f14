//! Four messages of one key and one length, each a block longer than whole vectors, as packets of 64 and of 256 bytes are.
//! What they have in common is loaded once, and the blocks that are left over share a vector, the tail (trick 9):
//!
//! ```text
//!            lane 0    lane 1    lane 2    lane 3
//! a          AAD       text 1    text 2    text 3    W vectors
//! …
//! d          AAD       text 1    text 2    text 3    W vectors
//! tail       last a    last b    last c    last d
//!
//! hash of a = ((Σ the lanes of its vectors · powers of H) + last a)·H² + lengths·H
//! ```

use std::arch::asm;
use std::arch::x86_64::*;

use super::super::order::Queue;
use super::vectors::*;
use super::{Front, Message, apply_first, apply_whole, finish, first_states, without_counter};

/// Messages that are worked on together.
pub(super) const FOUR: usize = 4;

/// Four messages whose ciphertext is there and whose hash is not (trick 4).
struct Unhashed<'a, F, const W: usize> {
    messages: [Message<'a, F>; FOUR],
    numbers: [usize; FOUR],
    /// As the hash takes it.
    cipher: [[__m512i; W]; FOUR],
    tail: __m512i,
    /// The ICVs' masks, a lane for each message.
    masks: __m512i,
}

impl<'a, F: Front, const W: usize> Unhashed<'a, F, W> {
    /// Applies the streams.
    ///
    /// # Safety
    /// The messages are valid, alike and that long.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn new<const SEAL: bool>(
        messages: [Message<'a, F>; FOUR],
        numbers: [usize; FOUR],
        streams: &[[__m512i; W]; FOUR],
        tail_stream: __m512i,
    ) -> Self {
        let zero = _mm512_setzero_si512();
        let mut cipher = [[zero; W]; FOUR];
        let mut masks = [zero; FOUR];
        for p in 0..FOUR {
            masks[p] = streams[p][0];
            // SAFETY: the caller's promise.
            unsafe {
                cipher[p][0] = apply_first::<F, SEAL>(&messages[p], ALL, streams[p][0]);
                for z in 1..W {
                    cipher[p][z] = apply_whole::<F, SEAL>(&messages[p], z, streams[p][z]);
                }
            }
        }
        Self {
            // SAFETY: the caller's promise.
            tail: unsafe { apply_tail::<F, W, SEAL>(&messages, tail_stream) },
            messages,
            numbers,
            cipher,
            masks: first_lanes(&masks),
        }
    }

    /// What the vectors of message `p` add up to.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn hash(&self, p: usize) -> Sum {
        let key = self.messages[0].key;
        let mut sum = Sum::product(self.cipher[p][0], powers(key, LANES * W, 0));
        for z in 1..W {
            sum.add_product(self.cipher[p][z], powers(key, LANES * W, z));
        }
        sum
    }

    /// # Safety
    /// The messages are valid.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn finish<const SEAL: bool>(&self, hashes: &[Sum; FOUR], authentic: &mut [bool]) {
        let first = &self.messages[0];
        let hash = _mm512_xor_si512(Sum::fold(hashes).reduce(), self.tail);
        let mut sum = Sum::product(hash, power(first.key, 2));
        sum.add_product(
            _mm512_broadcast_i32x4(_mm512_castsi512_si128(first.lengths())),
            power(first.key, 1),
        );
        let icvs = _mm512_xor_si512(reverse(sum.reduce()), self.masks);
        for p in 0..FOUR {
            // SAFETY: the caller's promise.
            let same = unsafe { finish::<F, SEAL>(&self.messages[p], lane(icvs, p)) };
            if !SEAL {
                authentic[self.numbers[p]] = same;
            }
        }
    }
}

/// Encrypts or decrypts the last blocks and gives their ciphertext as the hash takes it.
///
/// # Safety
/// As [`Unhashed::new`].
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply_tail<F: Front, const W: usize, const SEAL: bool>(
    messages: &[Message<F>; FOUR],
    stream: __m512i,
) -> __m512i {
    let len = messages[0].text_len + 16 - VECTOR_LEN * W;
    let mask = _bzhi_u32(LANE_0 as u32, len as u32);
    let all = u64::from(mask) * 0x0001_0001_0001_0001;
    let mut blocks = [_mm512_setzero_si512(); FOUR];
    for (block, message) in blocks.iter_mut().zip(messages) {
        let from = message.source.wrapping_add(VECTOR_LEN * W);
        // SAFETY: the caller's promise.
        let text = unsafe { _mm_maskz_loadu_epi8(mask as u16, from.cast()) };
        *block = _mm512_castsi128_si512(text);
    }
    let before = first_lanes(&blocks);
    let after = _mm512_xor_si512(before, _mm512_maskz_mov_epi8(all, stream));
    for (p, message) in messages.iter().enumerate() {
        let to = message.target.wrapping_add(VECTOR_LEN * W);
        // SAFETY: the caller's promise.
        unsafe { _mm_mask_storeu_epi8(to.cast(), mask as u16, lane(after, p)) };
    }
    reverse(if SEAL { after } else { before })
}

/// A round of AES for all, or the last one.
macro_rules! round_of_all {
    ($instruction:literal, $key:expr, $at:expr, $states:ident, $tail:ident) => {{
        let tail = &mut $tail;
        match $states.as_flattened_mut() {
            [a, b, c, d] => with_round_key!($instruction, $key, $at, a b c d tail),
            [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] => {
                with_round_key!($instruction, $key, $at, a b c d e f g h i j k l m n o p tail)
            }
            _ => {}
        }
    }};
}

/// Messages of `W` vectors and a block, one vector or four.
///
/// # Safety
/// The CPU has the features, `count` messages are in the queue, a multiple of four, valid, alike and that long.
#[inline(never)]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
pub(super) unsafe fn run<F: Front, const W: usize, const SEAL: bool>(
    queue: &mut Queue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    const { assert!(W == 1 || W == 4) };
    let zero = _mm512_setzero_si512();
    let tail_counter = ((LANES * W) as u32 + 1).swap_bytes();
    let tail_counter = _mm512_maskz_set1_epi32(0x8888, tail_counter as i32);
    let mut before: Option<Unhashed<F, W>> = None;
    for _ in 0..count / FOUR {
        let (numbers, frames) = queue.take_some::<FOUR>();
        let first = Message::of(frames[0]);
        let mut messages = [first; FOUR];
        let mut states = [[zero; W]; FOUR];
        let mut nonces = [zero; FOUR];
        for p in 0..FOUR {
            messages[p] = first.like(frames[p]);
            nonces[p] = without_counter(&messages[p]);
            states[p] = first_states(nonces[p]);
        }
        let mut tail = _mm512_xor_si512(first_lanes(&nonces), tail_counter);
        let keys = first.key.round_keys().as_ptr();
        macro_rules! rounds {
            ($($at:literal)+) => {
                $(round_of_all!("vaesenc", keys, 16 * $at, states, tail);)+
            };
        }
        if let Some(before) = &before {
            let mut hashes = [Sum::zero(); FOUR];
            macro_rules! hash {
                ($p:literal) => {
                    hashes[$p] = before.hash($p);
                    hashes[$p].pin();
                };
            }
            rounds!(1);
            hash!(0);
            rounds!(2 3);
            hash!(1);
            rounds!(4 5);
            hash!(2);
            rounds!(6 7);
            hash!(3);
            rounds!(8 9);
            // SAFETY: the caller's promise.
            unsafe { before.finish::<SEAL>(&hashes, authentic) }
        } else {
            rounds!(1 2 3 4 5 6 7 8 9);
        }
        if rounds > 10 {
            rounds!(10 11);
        }
        if rounds > 12 {
            rounds!(12 13);
        }
        let last = first.key.round_keys()[rounds].as_ptr();
        round_of_all!("vaesenclast", last, 0, states, tail);
        // SAFETY: the caller's promise.
        before = Some(unsafe { Unhashed::new::<SEAL>(messages, numbers, &states, tail) });
    }
    if let Some(before) = before {
        let hashes = [
            before.hash(0),
            before.hash(1),
            before.hash(2),
            before.hash(3),
        ];
        // SAFETY: the caller's promise.
        unsafe { before.finish::<SEAL>(&hashes, authentic) }
    }
}
