//! AES-GCM with AVX-512, vector AES and vector carry-less multiplication: four blocks to a register.
//!
//! ```text
//! a packet has blocks 0 … n; block 0 stands for header and IV, blocks 1 … n are the text:
//!     stream[i] = AES(salt | IV | i + 1)
//!     cipher[i] = text[i] + stream[i]                                        1 ≤ i ≤ n
//!     ICV       = AAD·H^(n+2) + Σ cipher[i]·H^(n+2−i) + lengths·H + stream[0]
//! ```
//!
//! The tricks, by number:
//!
//! 1. *Block 0 comes first.* The AAD of ESP is one block, and the first counter is that of the ICV's mask. Both
//!    belong to the 16 bytes before the text. With vectors that begin there, no block is a special case.
//!
//!    ```text
//!               lane 0           lane 1      lane 2      lane 3     │ lane 0
//!    memory     SPI │ SEQ │ IV   text 1      text 2      text 3     │ text 4      …
//!    AES of     counter 1        counter 2   counter 3   counter 4  │ counter 5   …
//!    hash of    AAD              cipher 1    cipher 2    cipher 3   │ cipher 4    …
//!    times      H^(n+2)          H^(n+1)     H^n         H^(n−1)    │ H^(n−2)     …
//!    ```
//!
//! Masks keep loads and stores away from bytes before and behind the message.
//! 2. *Lanes are added last.* Each lane runs its own Horner scheme in H^16. All four lanes are reduced at once.
//! 3. *The lengths stand behind the text*, in the free lane of the last vector, if there is one. Otherwise they take
//!    a step of their own, (hash + lengths)·H, because the context has no seventeenth power for a full group.
//! 4. *The hash runs one group behind.* A group is encrypted while the group before is hashed between the rounds,
//!    across packets too. A core's schedulers are too small to find so much parallel work alone. Packets of one or
//!    two vectors do not need this: for them the number of instructions per packet counts.
//! 5. *AES rounds are in assembler.* The compiler would load round keys early, run out of registers and put the
//!    states one behind the other. It keeps the order of `asm!` blocks. Each round is one block, and an empty block
//!    pins a hash.
//! 6. *ICVs of four packets* are summed by one transposition and masked together. With four packets, the sum comes
//!    before the reduction.
//! 7. *Three multiplications* make a product (Karatsuba). A multiplication takes as long as four AES rounds of a
//!    vector.
//! 8. *Groups of eight vectors* serve long packets. An AES round of eight vectors takes as long as the latency of
//!    one, and eight multiplications hide under the rounds. The context has no room for the powers above H^16, so
//!    they are computed when the key changes. Up to eleven vectors are encrypted as one group instead.
//! 9. *Common parts are loaded once.* Four packets of one key and one length share the round keys, and their blocks
//!    after whole vectors share vectors ([`alike`]).

use std::arch::x86_64::*;

use super::frame::{Esp, Frame, blocks};
use super::key::GcmKey;
use super::order::FrameQueue;
use crate::plain::Cleansed;
use vectors::*;

mod alike;
mod gmac;
mod vectors;

pub(super) use gmac::authenticate;

/// A message whose block 0 is put into vectors (trick 1).
pub(super) trait Front: Frame {
    /// The bytes of the first vector that are read and written back. Bytes that are not text are written back
    /// unchanged.
    const MASK: u64 = ALL & !LANE_0;

    /// Returns the nonce in each lane.
    ///
    /// # Safety
    /// - The message is valid.
    /// - The CPU has the tier's features.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn nonces(&self) -> __m512i {
        let [low, high] = self.nonce();
        _mm512_broadcast_i32x4(_mm_set_epi64x(high as i64, low as i64))
    }

    /// Returns the first vector with its bytes reversed for the hash and the AAD in lane 0.
    ///
    /// # Safety
    /// The obligations are those of [`Front::nonces`].
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn with_aad(&self, first: __m512i) -> __m512i {
        let text = _mm512_maskz_shuffle_epi8(ALL & !LANE_0, first, load(&REVERSE.0));
        _mm512_or_si512(text, lane_0(self.aad()))
    }
}

impl Front for Esp<'_, true> {}

impl Front for Esp<'_, false> {
    const MASK: u64 = ALL;

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn nonces(&self) -> __m512i {
        let from = self.source().wrapping_sub(12).cast();
        // SAFETY: reads from the sequence number to four bytes behind the IV; every valid packet has these 16 bytes.
        let around = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(from) });
        _mm512_maskz_mov_epi32(0b0110_0110_0110_0110, around)
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn with_aad(&self, first: __m512i) -> __m512i {
        if self.key().esn() {
            let reversed = _mm512_shuffle_epi8(first, load(&REVERSE_ESP.0[1]));
            _mm512_mask_set1_epi32(reversed, 1 << 2, self.sequence_high() as i32)
        } else {
            _mm512_shuffle_epi8(first, load(&REVERSE_ESP.0[0]))
        }
    }
}

/// A message with the values that its frame would compute again and again.
struct VectorMessage<'a, F> {
    frame: &'a F,
    key: &'a GcmKey,
    /// The address that block 0 has or would have.
    source: *const u8,
    target: *mut u8,
    text_len: usize,
}

impl<F> Clone for VectorMessage<'_, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for VectorMessage<'_, F> {}

impl<'a, F: Frame> VectorMessage<'a, F> {
    #[inline(always)]
    fn of(frame: &'a F) -> Self {
        Self {
            frame,
            key: frame.key(),
            source: frame.source().wrapping_sub(16),
            target: frame.target().wrapping_sub(16),
            text_len: frame.text_len(),
        }
    }

    /// Describes a frame that has the same key and lengths as this message.
    #[inline(always)]
    fn like(&self, frame: &'a F) -> Self {
        Self {
            frame,
            source: frame.source().wrapping_sub(16),
            target: frame.target().wrapping_sub(16),
            ..*self
        }
    }

    #[inline(always)]
    fn blocks(&self) -> usize {
        blocks(self.text_len)
    }

    /// Returns a bit for each byte of the last vector that belongs to the message.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn last_bytes(&self, vectors: usize) -> u64 {
        let len = 16 + self.text_len - VECTOR_LEN * (vectors - 1);
        _bzhi_u64(ALL, len as u32)
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn lengths(&self) -> __m512i {
        lengths(self.text_len, self.frame.aad_bits())
    }
}

/// Returns the counter blocks of a message with the counters left out, after round 0.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn without_counter<F: Front>(message: &VectorMessage<F>) -> __m512i {
    // SAFETY: reads a round key of the context, and the message is valid.
    unsafe {
        let round_0 = _mm_load_si128(message.key.round_keys()[0].as_ptr().cast());
        _mm512_xor_si512(_mm512_broadcast_i32x4(round_0), message.frame.nonces())
    }
}

/// Returns the states of a message's first vectors after round 0.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn first_states<const N: usize>(without_counter: __m512i) -> [__m512i; N] {
    const { assert!(N <= COUNTERS.0.len()) };
    let mut states = [without_counter; N];
    for (state, counters) in states.iter_mut().zip(&COUNTERS.0) {
        // SAFETY: each entry has 64 bytes and is aligned to 64.
        let counters = unsafe { _mm512_load_si512(counters.as_ptr().cast()) };
        *state = _mm512_xor_si512(*state, counters);
    }
    states
}

/// Encrypts or decrypts the bytes of vector `at` that are in `mask`. Returns the ciphertext of the vector. Bytes
/// where `stream` is zero stay as they are.
///
/// # Safety
/// The bytes in `mask` belong to the message and may be read and written.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply<F: Front, const SEAL: bool>(
    message: &VectorMessage<F>,
    at: usize,
    mask: u64,
    stream: __m512i,
) -> __m512i {
    let from = message.source.wrapping_add(VECTOR_LEN * at);
    let to = message.target.wrapping_add(VECTOR_LEN * at);
    // SAFETY: the caller guarantees the bytes in `mask`.
    unsafe {
        let before = _mm512_maskz_loadu_epi8(mask, from.cast());
        let after = _mm512_xor_si512(before, stream);
        _mm512_mask_storeu_epi8(to.cast(), mask, after);
        if SEAL { after } else { before }
    }
}

/// Does the first vector and returns it for the hash, AAD included. `text` has a bit for each byte up to the
/// message's end.
///
/// # Safety
/// The message is valid.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply_first<F: Front, const SEAL: bool>(
    message: &VectorMessage<F>,
    text: u64,
    stream: __m512i,
) -> __m512i {
    let stream = _mm512_maskz_mov_epi8(text & !LANE_0, stream);
    // SAFETY: the caller guarantees that the message is valid; `F::MASK` leaves out what is before it.
    unsafe {
        let first = apply::<F, SEAL>(message, 0, text & F::MASK, stream);
        message.frame.with_aad(first)
    }
}

/// Does a whole vector in the middle and returns its ciphertext for the hash.
///
/// # Safety
/// The message is valid, and vector `at` lies in it.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply_whole<F: Front, const SEAL: bool>(
    message: &VectorMessage<F>,
    at: usize,
    stream: __m512i,
) -> __m512i {
    // SAFETY: the caller guarantees that the whole vector lies in the message.
    reverse(unsafe { apply::<F, SEAL>(message, at, ALL, stream) })
}

/// Does the last vector and returns its ciphertext for the hash.
///
/// # Safety
/// The message is valid, and `text` has a bit for each byte of the vector that belongs to it.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn apply_last<F: Front, const SEAL: bool>(
    message: &VectorMessage<F>,
    at: usize,
    text: u64,
    stream: __m512i,
) -> __m512i {
    let stream = _mm512_maskz_mov_epi8(text, stream);
    // SAFETY: the caller guarantees that `text` names bytes of the message.
    let last = reverse(unsafe { apply::<F, SEAL>(message, at, text, stream) });
    with_lengths(last, message.text_len, message.frame.aad_bits())
}

/// Writes the ICV, or compares the received ICV with it. Returns whether they agree; true when sealing.
///
/// # Safety
/// The message is valid.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn finish<F: Frame, const SEAL: bool>(message: &VectorMessage<F>, icv: __m128i) -> bool {
    let mask = message.key.icv_mask();
    let at = message.frame.icv();
    // SAFETY: only the ICV is read or written.
    unsafe {
        if SEAL {
            _mm_mask_storeu_epi8(at.cast(), mask, icv);
            true
        } else {
            let sent = _mm_maskz_loadu_epi8(mask, at.cast());
            _mm_mask_cmpneq_epi8_mask(mask, sent, icv) == 0
        }
    }
}

/// Hashes the last group's text and the lengths.
#[inline]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
fn hash_last<F: Frame>(message: &VectorMessage<F>, cipher: [__m512i; GROUP]) -> Sum {
    let (key, blocks) = (message.key, message.blocks());
    let apart = lengths_apart(message.text_len);
    let first = blocks - LANES * (blocks.div_ceil(LANES) - GROUP) + usize::from(!apart);
    // Vector 0 needs the hash of the group before it, so it comes last.
    let mut sum = Sum::product(cipher[1], powers(key, first, 1));
    sum.add_product(cipher[2], powers(key, first, 2));
    sum.add_product(cipher[3], powers(key, first, 3));
    sum.add_product(cipher[0], powers(key, first, 0));
    if apart {
        let hash = _mm512_xor_si512(sum.reduce(), message.lengths());
        sum = Sum::product(hash, power(key, 1));
    }
    sum
}

/// `P` packets of `Z` vectors each that are encrypted but not hashed yet (trick 4).
struct PendingHashes<'a, F, const P: usize, const Z: usize> {
    messages: [VectorMessage<'a, F>; P],
    numbers: [usize; P],
    /// The ciphertext, byte order reversed for the hash.
    cipher: [[__m512i; Z]; P],
    /// The ICVs' masks: lane `p` has that of packet `p`.
    masks: __m512i,
}

impl<'a, F: Front, const P: usize, const Z: usize> PendingHashes<'a, F, P, Z> {
    /// Applies the key streams to the texts.
    ///
    /// # Safety
    /// The messages are valid, and each has `Z` vectors.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn new<const SEAL: bool>(
        messages: [VectorMessage<'a, F>; P],
        numbers: [usize; P],
        stream: &[[__m512i; Z]; P],
    ) -> Self {
        let zero = _mm512_setzero_si512();
        let mut cipher = [[zero; Z]; P];
        let mut masks = [zero; P];
        for p in 0..P {
            let (message, stream, cipher) = (&messages[p], &stream[p], &mut cipher[p]);
            let end = message.last_bytes(Z);
            masks[p] = stream[0];
            // SAFETY: the caller guarantees valid messages of `Z` vectors.
            unsafe {
                let in_first = if Z == 1 { end } else { ALL };
                cipher[0] = apply_first::<F, SEAL>(message, in_first, stream[0]);
                for z in 1..Z {
                    cipher[z] = if z < Z - 1 {
                        apply_whole::<F, SEAL>(message, z, stream[z])
                    } else {
                        apply_last::<F, SEAL>(message, z, end, stream[z])
                    };
                }
            }
            if Z == 1 {
                cipher[0] = with_lengths(cipher[0], message.text_len, message.frame.aad_bits());
            }
        }
        Self {
            messages,
            numbers,
            cipher,
            masks: first_lanes(&masks),
        }
    }

    /// Returns the unreduced hash of packet `p`.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn hash(&self, p: usize) -> Sum {
        let (message, cipher) = (&self.messages[p], &self.cipher[p]);
        let key = message.key;
        if Z < GROUP {
            let first = message.blocks() + 1;
            let mut sum = Sum::product(cipher[0], powers(key, first, 0));
            for (z, &cipher) in cipher.iter().enumerate().skip(1) {
                sum.add_product(cipher, powers(key, first, z));
            }
            if lengths_apart(message.text_len) {
                sum.add_product(message.lengths(), power(key, 1));
            }
            return sum;
        }
        // Horner's scheme in groups. The first group may be short; the last one has powers of its own.
        let mut hash = _mm512_setzero_si512();
        let mut at = 0;
        while at + GROUP < Z {
            let vectors = (Z - at - 1) % GROUP + 1;
            let first = _mm512_xor_si512(cipher[at], hash);
            let mut sum = Sum::product(first, power(key, LANES * vectors));
            for z in 1..vectors {
                sum.add_product(cipher[at + z], power(key, LANES * (vectors - z)));
            }
            hash = sum.reduce();
            at += vectors;
        }
        let mut last = [cipher[Z - 4], cipher[Z - 3], cipher[Z - 2], cipher[Z - 1]];
        last[0] = _mm512_xor_si512(last[0], hash);
        hash_last(message, last)
    }

    /// Computes the ICVs, then writes or compares them.
    ///
    /// # Safety
    /// The messages are valid.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    unsafe fn finish<const SEAL: bool>(&self, hashes: &[Sum; P], authentic: &mut [bool]) {
        let hashes = if P == 4 {
            Sum::fold(hashes).reduce()
        } else {
            let mut reduced = [_mm512_setzero_si512(); P];
            for p in 0..P {
                reduced[p] = hashes[p].reduce();
            }
            fold(&reduced)
        };
        let icvs = _mm512_xor_si512(reverse(hashes), self.masks);
        for p in 0..P {
            // SAFETY: the caller guarantees that the messages are valid.
            let same = unsafe { finish::<F, SEAL>(&self.messages[p], lane(icvs, p)) };
            if !SEAL {
                authentic[self.numbers[p]] = same;
            }
        }
    }
}

/// Does packets of `Z` vectors each, `P` at a time. They are so short that the processor overlaps them by itself.
///
/// # Safety
/// - The CPU has the tier's features.
/// - The queue has at least `count` messages, valid and of this shape.
#[inline(never)]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn tiny<F: Front, const P: usize, const Z: usize, const SEAL: bool>(
    queue: &mut FrameQueue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    for _ in 0..count / P {
        let (numbers, frames) = queue.take_some::<P>();
        let mut messages = [VectorMessage::of(frames[0]); P];
        let mut states = [[_mm512_setzero_si512(); Z]; P];
        for p in 0..P {
            messages[p] = VectorMessage::of(frames[p]);
            states[p] = first_states(without_counter(&messages[p]));
        }
        macro_rules! rounds {
            ($($at:literal)+) => {
                $(for p in 0..P {
                    round::<$at, Z>(messages[p].key, &mut states[p]);
                })+
            };
        }
        rounds!(1 2 3 4 5 6 7 8 9);
        if rounds > 10 {
            rounds!(10 11);
        }
        if rounds > 12 {
            rounds!(12 13);
        }
        for p in 0..P {
            last_round(messages[p].key, rounds, &mut states[p]);
        }
        let mut hashes = [Sum::zero(); P];
        // SAFETY: the caller guarantees valid messages of `Z` vectors.
        unsafe {
            let packets = PendingHashes::new::<SEAL>(messages, numbers, &states);
            for (p, hash) in hashes.iter_mut().enumerate() {
                *hash = packets.hash(p);
            }
            packets.finish::<SEAL>(&hashes, authentic)
        }
    }
}

/// Does all rounds but the last one. Beside them it hashes up to four packets of the iteration before, if any (trick
/// 4). `rounds` names both a macro that does the given rounds and a variable with the number of rounds. The caller
/// meets the obligations of [`PendingHashes::finish`].
macro_rules! rounds_beside_hash {
    ($rounds:ident, $before:ident, $packets:expr, $seal:ident, $authentic:ident) => {
        if let Some(before) = &$before {
            let mut hashes = [Sum::zero(); $packets];
            $rounds!(1);
            rounds_beside_hash!(@hash before, hashes, $packets, 0);
            $rounds!(2 3);
            rounds_beside_hash!(@hash before, hashes, $packets, 1);
            $rounds!(4 5);
            rounds_beside_hash!(@hash before, hashes, $packets, 2);
            $rounds!(6 7);
            rounds_beside_hash!(@hash before, hashes, $packets, 3);
            $rounds!(8 9);
            // SAFETY: the user of this macro guarantees that the messages are valid.
            unsafe { before.finish::<$seal>(&hashes, $authentic) }
        } else {
            $rounds!(1 2 3 4 5 6 7 8 9);
        }
        if $rounds > 10 {
            $rounds!(10 11);
        }
        if $rounds > 12 {
            $rounds!(12 13);
        }
    };
    (@hash $before:ident, $hashes:ident, $packets:expr, $p:literal) => {
        if $p < $packets {
            $hashes[$p % $packets] = $before.hash($p % $packets);
            $hashes[$p % $packets].pin();
        }
    };
}

use rounds_beside_hash;

/// Does packets of `Z` vectors each, `P` at a time, with the hash one iteration behind (trick 4).
///
/// # Safety
/// - The CPU has the tier's features.
/// - The queue has at least `count` messages, valid and of this shape.
#[inline(never)]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn short<F: Front, const P: usize, const Z: usize, const SEAL: bool>(
    queue: &mut FrameQueue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    let zero = _mm512_setzero_si512();
    let mut before: Option<PendingHashes<F, P, Z>> = None;
    for _ in 0..count / P {
        let (numbers, frames) = queue.take_some::<P>();
        let mut messages = [VectorMessage::of(frames[0]); P];
        for p in 1..P {
            messages[p] = VectorMessage::of(frames[p]);
        }
        let mut states = [[zero; Z]; P];
        for p in 0..P {
            states[p] = first_states(without_counter(&messages[p]));
        }
        macro_rules! rounds {
            ($($at:literal)+) => {
                $(for p in 0..P {
                    round::<$at, Z>(messages[p].key, &mut states[p]);
                })+
            };
        }
        rounds_beside_hash!(rounds, before, P, SEAL, authentic);
        for p in 0..P {
            last_round(messages[p].key, rounds, &mut states[p]);
        }
        // SAFETY: the caller guarantees valid messages of `Z` vectors.
        before = Some(unsafe { PendingHashes::new::<SEAL>(messages, numbers, &states) });
    }
    if let Some(before) = before {
        let mut hashes = [Sum::zero(); P];
        for (p, hash) in hashes.iter_mut().enumerate() {
            *hash = before.hash(p);
        }
        // SAFETY: the caller guarantees that the messages are valid.
        unsafe { before.finish::<SEAL>(&hashes, authentic) }
    }
}

/// Does packets of more vectors than [`short`] handles: `A` in the first group, `W` ([`GROUP`] or [`WIDE`]) in each
/// other.
///
/// # Safety
/// The obligations are those of [`short`].
#[inline(never)]
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
unsafe fn long<F: Front, const A: usize, const W: usize, const SEAL: bool>(
    queue: &mut FrameQueue<F>,
    count: usize,
    rounds: usize,
    authentic: &mut [bool],
) {
    let mut powers = Cleansed(WidePowers::NONE);
    let mut powers_of: *const GcmKey = std::ptr::null();
    let mut before: Option<PendingHashes<F, 1, W>> = None;
    for _ in 0..count {
        let (number, frame) = queue.take();
        let message = VectorMessage::of(frame);
        let (key, vectors) = (message.key, message.blocks().div_ceil(LANES));
        let without_counter = without_counter(&message);

        let mut states = first_states::<A>(without_counter);
        macro_rules! rounds {
            ($states:ident: $($at:literal)+) => {
                $(round::<$at, _>(key, &mut $states);)+
            };
            ($states:ident: last) => {
                if rounds > 10 {
                    rounds!($states: 10 11);
                }
                if rounds > 12 {
                    rounds!($states: 12 13);
                }
                last_round(key, rounds, &mut $states);
            };
        }
        rounds!(states: 1 2);
        if let Some(before) = &before {
            // SAFETY: the caller guarantees that the messages are valid.
            unsafe { before.finish::<SEAL>(&[before.hash(0)], authentic) }
        }
        rounds!(states: 3 4 5 6 7 8 9);
        rounds!(states: last);
        if !std::ptr::eq(powers_of, key) {
            powers_of = key;
            powers.0.set(key, W);
        }
        // The first group fills the last `A` places. Zeros before them do not change the hash.
        let mut cipher = [_mm512_setzero_si512(); W];
        let mask = states[0];
        // SAFETY: the caller guarantees that the first group lies in the message.
        unsafe {
            cipher[W - A] = apply_first::<F, SEAL>(&message, ALL, states[0]);
            for z in 1..A {
                cipher[W - A + z] = apply_whole::<F, SEAL>(&message, z, states[z]);
            }
        }

        let mut counters = CounterVector::from(LANES * A);
        let mut at = A;
        while at < vectors {
            let mut states: [_; W] = counters.next_states(without_counter);
            let mut sum = Sum::zero();
            macro_rules! rounds_and_products {
                ($($at:literal $z:literal,)+) => {
                    $(
                        rounds!(states: $at);
                        if $z < W {
                            sum.add_wide(cipher[$z % W], &powers.0, WIDE - W + $z % W);
                        }
                    )+
                };
            }
            // The first vector needs the hash of the group before it, so it comes last.
            rounds_and_products!(1 1, 2 2, 3 3, 4 4, 5 5, 6 6, 7 7, 8 0,);
            rounds!(states: 9);
            let mut hash = sum.reduce();
            pin(&mut hash);
            rounds!(states: last);
            // SAFETY: the caller guarantees a message of this many vectors.
            unsafe {
                for z in 0..W - 1 {
                    cipher[z] = apply_whole::<F, SEAL>(&message, at + z, states[z]);
                }
                let z = W - 1;
                cipher[z] = if at + W == vectors {
                    apply_last::<F, SEAL>(&message, at + z, message.last_bytes(vectors), states[z])
                } else {
                    apply_whole::<F, SEAL>(&message, at + z, states[z])
                };
            }
            cipher[0] = _mm512_xor_si512(cipher[0], hash);
            at += W;
        }
        before = Some(PendingHashes {
            messages: [message],
            numbers: [number],
            cipher: [cipher],
            masks: mask,
        });
    }
    if let Some(before) = before {
        // SAFETY: the caller guarantees that the messages are valid.
        unsafe { before.finish::<SEAL>(&[before.hash(0)], authentic) }
    }
}

/// The counters of a group in the middle of a message: a number in the fourth word of each lane.
struct CounterVector(__m512i);

impl CounterVector {
    /// The counters of the blocks from `at` on.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn from(at: usize) -> Self {
        let first = at as i32 + 1;
        let lanes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3);
        Self(_mm512_add_epi32(
            lanes,
            _mm512_maskz_set1_epi32(0x8888, first),
        ))
    }

    /// Returns the states of the next group after round 0.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,bmi2")]
    fn next_states<const N: usize>(&mut self, without_counter: __m512i) -> [__m512i; N] {
        let network_order = _mm512_set4_epi32(0x0c0d_0e0f, !0, !0, !0);
        let step = _mm512_set4_epi32(LANES as i32, 0, 0, 0);
        let mut states = [without_counter; N];
        for state in &mut states {
            *state = _mm512_xor_si512(*state, _mm512_shuffle_epi8(self.0, network_order));
            self.0 = _mm512_add_epi32(self.0, step);
        }
        states
    }
}

/// Number of shapes. Up to three [`GROUP`]s a shape is the number of vectors, above that the number in the first
/// group.
pub(super) const SHAPES: usize = 3 * GROUP + WIDE;

#[inline(always)]
pub(super) fn shape(text_len: usize) -> usize {
    let vectors = blocks(text_len).div_ceil(LANES);
    if vectors <= 3 * GROUP {
        vectors - 1
    } else {
        3 * GROUP + (vectors - 1) % WIDE
    }
}

/// Seals or opens the next `count` messages of the queue.
///
/// # Safety
/// - The CPU has the tier's features.
/// - The queue has at least `count` messages, and the next `count` of them are valid (see [`Frame`]).
/// - Those messages have this shape, and each of their keys has `rounds` rounds.
pub(super) unsafe fn run<F: Front, const SEAL: bool>(
    shape: usize,
    rounds: usize,
    queue: &mut FrameQueue<F>,
    mut count: usize,
    authentic: &mut [bool],
) {
    if shape == 1 || SEAL && shape == 4 {
        // SAFETY: the caller guarantees the same to `alike::run`.
        count -= unsafe { alike::run::<F, SEAL>(shape, rounds, queue, count, authentic) };
    }
    // SAFETY: the caller guarantees the tier, the messages, their shape and their rounds.
    unsafe {
        match shape {
            0 => tiny::<F, 4, 1, SEAL>(queue, count, rounds, authentic),
            1 => tiny::<F, 4, 2, SEAL>(queue, count, rounds, authentic),
            2 => short::<F, 2, 3, SEAL>(queue, count, rounds, authentic),
            3 => short::<F, 2, 4, SEAL>(queue, count, rounds, authentic),
            4 => short::<F, 2, 5, SEAL>(queue, count, rounds, authentic),
            5 => short::<F, 1, 6, SEAL>(queue, count, rounds, authentic),
            6 => short::<F, 1, 7, SEAL>(queue, count, rounds, authentic),
            7 => short::<F, 1, 8, SEAL>(queue, count, rounds, authentic),
            8 => short::<F, 1, 9, SEAL>(queue, count, rounds, authentic),
            9 => short::<F, 1, 10, SEAL>(queue, count, rounds, authentic),
            10 => short::<F, 1, 11, SEAL>(queue, count, rounds, authentic),
            11 => long::<F, 4, 4, SEAL>(queue, count, rounds, authentic),
            12 => long::<F, 1, 8, SEAL>(queue, count, rounds, authentic),
            13 => long::<F, 2, 8, SEAL>(queue, count, rounds, authentic),
            14 => long::<F, 3, 8, SEAL>(queue, count, rounds, authentic),
            15 => long::<F, 4, 8, SEAL>(queue, count, rounds, authentic),
            16 => long::<F, 5, 8, SEAL>(queue, count, rounds, authentic),
            17 => long::<F, 6, 8, SEAL>(queue, count, rounds, authentic),
            18 => long::<F, 7, 8, SEAL>(queue, count, rounds, authentic),
            _ => long::<F, 8, 8, SEAL>(queue, count, rounds, authentic),
        }
        // The messages that do not fill a group are done one at a time.
        match shape {
            0 => tiny::<F, 1, 1, SEAL>(queue, count % 4, rounds, authentic),
            1 => tiny::<F, 1, 2, SEAL>(queue, count % 4, rounds, authentic),
            2 => short::<F, 1, 3, SEAL>(queue, count % 2, rounds, authentic),
            3 => short::<F, 1, 4, SEAL>(queue, count % 2, rounds, authentic),
            4 => short::<F, 1, 5, SEAL>(queue, count % 2, rounds, authentic),
            _ => {}
        }
    }
}
