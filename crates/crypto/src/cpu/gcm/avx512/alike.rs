//! Kernel for four messages of one key and one length, each one or two blocks longer than whole vectors. Packets of
//! about 64 and 256 bytes are of that kind. What the messages have in common is loaded once. The blocks after the
//! whole vectors share vectors, the tails (trick 9):
//!
//! ```text
//!            lane 0    lane 1    lane 2    lane 3
//! a          AAD       text 1    text 2    text 3    W vectors
//! …
//! d          AAD       text 1    text 2    text 3    W vectors
//! tail 0     next a    next b    next c    next d
//! tail 1     last a    last b    last c    last d
//!
//! hash of a = ((Σ the lanes of its vectors · powers of H) + next a)·H³ + last a·H² + lengths·H
//! ```

use std::arch::asm;
use std::arch::x86_64::*;

use super::super::order::Queue;
use super::vectors::*;
use super::{
    Front, Message, apply_first, apply_whole, blocks, finish, first_states, rounds_beside_hash,
    without_counter,
};

/// Number of messages that are worked on together.
const FOUR: usize = 4;

/// The kernel is used if at least so many messages in a row are alike.
const WORTH: usize = 8;

/// Four messages that are encrypted but not hashed yet (trick 4).
struct Unhashed<'a, F, const W: usize, const R: usize> {
    messages: [Message<'a, F>; FOUR],
    numbers: [usize; FOUR],
    /// The ciphertext, byte order reversed for the hash.
    cipher: [[__m512i; W]; FOUR],
    tails: [__m512i; R],
    /// The ICVs' masks, one lane for each message.
    masks: __m512i,
}

impl<'a, F: Front, const W: usize, const R: usize> Unhashed<'a, F, W, R> {
    /// Applies the key streams to the texts.
    ///
    /// # Safety
    /// - The messages are valid and alike.
    /// - Each has `W` whole vectors and `R` further blocks.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn new<const SEAL: bool>(
        messages: [Message<'a, F>; FOUR],
        numbers: [usize; FOUR],
        streams: &[[__m512i; W]; FOUR],
        tails: &[__m512i; R],
    ) -> Self {
        let zero = _mm512_setzero_si512();
        let mut cipher = [[zero; W]; FOUR];
        let mut masks = [zero; FOUR];
        for p in 0..FOUR {
            masks[p] = streams[p][0];
            // SAFETY: the caller guarantees `W` whole vectors of valid messages.
            unsafe {
                cipher[p][0] = apply_first::<F, SEAL>(&messages[p], ALL, streams[p][0]);
                for z in 1..W {
                    cipher[p][z] = apply_whole::<F, SEAL>(&messages[p], z, streams[p][z]);
                }
            }
        }
        let mut cipher_tails = [zero; R];
        // SAFETY: the caller guarantees `R` blocks after the whole vectors.
        unsafe {
            cipher_tails[0] = apply_tail::<F, SEAL>(&messages, VECTOR_LEN * W, tails[0]);
            if R == 2 {
                cipher_tails[R - 1] =
                    apply_tail::<F, SEAL>(&messages, VECTOR_LEN * W + 16, tails[R - 1]);
            }
        }
        Self {
            tails: cipher_tails,
            messages,
            numbers,
            cipher,
            masks: first_lanes(&masks),
        }
    }

    /// Sums the products of message `p`'s whole vectors.
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

    /// Computes the ICVs, then writes or compares them.
    ///
    /// # Safety
    /// The messages are valid.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn finish<const SEAL: bool>(&self, hashes: &[Sum; FOUR], authentic: &mut [bool]) {
        let first = &self.messages[0];
        let hash = _mm512_xor_si512(Sum::fold(hashes).reduce(), self.tails[0]);
        let mut sum = Sum::product(hash, power(first.key, R + 1));
        for r in 1..R {
            sum.add_product(self.tails[r], power(first.key, R + 1 - r));
        }
        sum.add_product(
            _mm512_broadcast_i32x4(_mm512_castsi512_si128(first.lengths())),
            power(first.key, 1),
        );
        let icvs = _mm512_xor_si512(reverse(sum.reduce()), self.masks);
        for p in 0..FOUR {
            // SAFETY: the caller guarantees that the messages are valid.
            let same = unsafe { finish::<F, SEAL>(&self.messages[p], lane(icvs, p)) };
            if !SEAL {
                authentic[self.numbers[p]] = same;
            }
        }
    }
}

/// Encrypts or decrypts one tail block of each message. `at` is the block's offset in bytes, counted from block 0.
/// Returns the ciphertext, byte order reversed for the hash.
///
/// # Safety
/// The messages are valid, alike, and have a block at this offset.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply_tail<F: Front, const SEAL: bool>(
    messages: &[Message<F>; FOUR],
    at: usize,
    stream: __m512i,
) -> __m512i {
    // A block that is not the message's last one is whole.
    let mask = _bzhi_u32(LANE_0 as u32, (messages[0].text_len + 16 - at) as u32);
    let all = u64::from(mask) * 0x0001_0001_0001_0001;
    let mut blocks = [_mm512_setzero_si512(); FOUR];
    for (block, message) in blocks.iter_mut().zip(messages) {
        let from = message.source.wrapping_add(at);
        // SAFETY: the caller guarantees the block; the mask leaves out what is behind the text.
        let text = unsafe { _mm_maskz_loadu_epi8(mask as u16, from.cast()) };
        *block = _mm512_castsi128_si512(text);
    }
    let before = first_lanes(&blocks);
    let after = _mm512_xor_si512(before, _mm512_maskz_mov_epi8(all, stream));
    for (p, message) in messages.iter().enumerate() {
        let to = message.target.wrapping_add(at);
        // SAFETY: as for the load above.
        unsafe { _mm_mask_storeu_epi8(to.cast(), mask as u16, lane(after, p)) };
    }
    reverse(if SEAL { after } else { before })
}

/// Returns the counter blocks of a tail after round 0. `number` is the number of its block, counted from block 0.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn tail_state(nonces: __m512i, number: usize) -> __m512i {
    let counter = (number as u32 + 1).swap_bytes();
    _mm512_xor_si512(nonces, _mm512_maskz_set1_epi32(0x8888, counter as i32))
}

/// Does one AES round for all states, or the last one.
macro_rules! round_of_all {
    ($instruction:literal, $key:expr, $at:expr, $states:ident, $tails:ident) => {
        match ($states.as_flattened_mut(), $tails.as_mut_slice()) {
            ([a, b, c, d], [t]) => with_round_key!($instruction, $key, $at, a b c d t),
            ([a, b, c, d], [t, u]) => with_round_key!($instruction, $key, $at, a b c d t u),
            ([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p], [t]) => {
                with_round_key!($instruction, $key, $at, a b c d e f g h i j k l m n o p t)
            }
            ([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p], [t, u]) => {
                with_round_key!($instruction, $key, $at, a b c d e f g h i j k l m n o p t u)
            }
            _ => {}
        }
    };
}

/// Seals or opens messages of `W` whole vectors (one or four) and `R` further blocks (one or two).
///
/// # Safety
/// - The CPU has the tier's features.
/// - The queue has at least `count` messages, and `count` is a multiple of four.
/// - Those messages are valid, alike and of this length.
#[inline(never)]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn fours<F: Front, const W: usize, const R: usize, const SEAL: bool>(
    queue: &mut Queue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    const { assert!(matches!((W, R), (1 | 4, 1 | 2))) };
    let zero = _mm512_setzero_si512();
    let mut before: Option<Unhashed<F, W, R>> = None;
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
        // This is not a loop over the array: a loop would keep the array in memory.
        let mut tails = [tail_state(first_lanes(&nonces), LANES * W); R];
        if R == 2 {
            tails[R - 1] = tail_state(first_lanes(&nonces), LANES * W + 1);
        }
        let keys = first.key.round_keys().as_ptr();
        macro_rules! rounds {
            ($($at:literal)+) => {
                $(round_of_all!("vaesenc", keys, 16 * $at, states, tails);)+
            };
        }
        rounds_beside_hash!(rounds, before, FOUR, SEAL, authentic);
        let last = first.key.round_keys()[rounds].as_ptr();
        round_of_all!("vaesenclast", last, 0, states, tails);
        // SAFETY: the caller guarantees valid messages of this length.
        before = Some(unsafe { Unhashed::new::<SEAL>(messages, numbers, &states, &tails) });
    }
    if let Some(before) = before {
        let hashes = [
            before.hash(0),
            before.hash(1),
            before.hash(2),
            before.hash(3),
        ];
        // SAFETY: the caller guarantees that the messages are valid.
        unsafe { before.finish::<SEAL>(&hashes, authentic) }
    }
}

/// Does those of the next `count` messages that are alike, and returns how many it did. Opening gains only if one
/// block follows one whole vector.
///
/// # Safety
/// The obligations are those of [`super::run`].
pub(super) unsafe fn run<F: Front, const SEAL: bool>(
    shape: usize,
    rounds: usize,
    queue: &mut Queue<F>,
    count: usize,
    authentic: &mut [bool],
) -> usize {
    let mut done = 0;
    while let Some(frame) = queue.peek() {
        let rest = blocks(frame.text_len()) % LANES;
        if rest != 1 && !(SEAL && rest == 2) {
            break;
        }
        let next = queue.alike(count - done) / FOUR * FOUR;
        if next < WORTH {
            break;
        }
        // SAFETY: the caller guarantees the tier and the messages; the next messages are alike and have the right
        // length.
        unsafe {
            match (shape, rest) {
                (1, 1) => fours::<F, 1, 1, SEAL>(queue, next, rounds, authentic),
                (1, _) => fours::<F, 1, 2, SEAL>(queue, next, rounds, authentic),
                (_, 1) => fours::<F, 4, 1, SEAL>(queue, next, rounds, authentic),
                (_, _) => fours::<F, 4, 2, SEAL>(queue, next, rounds, authentic),
            }
        }
        done += next;
    }
    done
}
