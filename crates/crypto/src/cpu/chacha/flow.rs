//! The order of work, which is the same for every tier.
//!
//! ```text
//! sort the messages by length, the longest first
//! for each piece, the messages that fit in the nearest cache:
//!     seal:  one-time keys; bodies ^= keystream; tags
//!     open:  one-time keys; tags; bodies ^= keystream
//! ```
//!
//! ChaCha20 never sees a message, only a stream of lanes. A lane is one block of keystream with its own key, nonce
//! and counter. The machine takes as many lanes at a time as a vector holds:
//!
//! ```text
//!  message   A A A A A A A B B B B C C C D D   A long message fills whole vectors, short ones share
//!  counter   1 2 3 4 5 6 7 1 2 3 4 1 2 3 1 2   them; only the last vector of a piece may be part empty.
//! ```
//!
//! A one-time key is the block with counter 0. It goes to a table, not to a body.

use std::marker::PhantomData;

use arrayvec::ArrayVec;

use super::message::{AeadMessage, CHACHA_BLOCK};
use crate::plain::cleanse_all;

/// The most messages in one call.
pub(super) const MESSAGES: usize = 128;
/// A piece ends when its bodies have at least this many bytes. The limit keeps them in the nearest cache.
const PIECE_BYTES: usize = 24 << 10;
/// Messages are added to a piece in steps of this many, so that they fill the vectors of Poly1305.
const PIECE_STEP: usize = 16;
/// The most lanes that any machine takes at once.
const LANES_MAX: usize = 32;

/// ChaCha20's block 0 of a message. Its first 32 bytes are the one-time key r and s (RFC 8439 §2.6).
pub(super) type OnceBlock = [u8; CHACHA_BLOCK];

/// A block of keystream and its places: `dst` = `src` ^ keystream.
#[derive(Clone, Copy)]
pub(super) struct KeystreamLane {
    pub(super) key: *const u8,
    /// The last row of ChaCha20's state. Its first word is zero; the counter is added to it.
    pub(super) row: *const u8,
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
    pub(super) counter: u32,
    /// Bytes of text in this block. Values above 64 count as 64.
    pub(super) len: u32,
}

impl KeystreamLane {
    const NONE: Self = Self {
        key: std::ptr::null(),
        row: std::ptr::null(),
        src: std::ptr::null(),
        dst: std::ptr::null_mut(),
        counter: 0,
        len: 0,
    };
}

/// The instructions of a tier.
pub(super) trait Machine {
    /// Number of lanes in one vector.
    const VECTOR: usize;
    /// Number of blocks that ChaCha20 makes at once, in one or two vectors.
    const LANES: usize;

    /// Does at most `LANES` lanes. Their number is a multiple of `VECTOR`.
    ///
    /// # Safety
    /// - The processor has the machine's instructions.
    /// - In each lane, `key` points to 32 readable bytes and `row` to 16.
    /// - In each lane, `src` points to `len` readable bytes and `dst` to `len` writable bytes.
    unsafe fn chacha(lanes: &[KeystreamLane]);

    /// Computes each message's tag over its ciphertext, which `text` locates. The longest message comes first.
    ///
    /// # Safety
    /// - The processor has the machine's instructions.
    /// - Each ciphertext may be read for the length of its message.
    /// - `once` has one block for each message.
    unsafe fn tags(messages: &mut [&mut AeadMessage<'_>], once: &[OnceBlock], text: CiphertextSide);
}

/// Tells where a message's ciphertext is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CiphertextSide {
    Source,
    Destination,
}

impl CiphertextSide {
    #[inline(always)]
    pub(super) fn of(self, message: &AeadMessage<'_>) -> *const u8 {
        match self {
            Self::Source => message.src,
            Self::Destination => message.dst,
        }
    }
}

/// Encrypts the messages and sets their tags, unless the library has done them. There are at most [`MESSAGES`].
///
/// # Safety
/// - The processor has the machine's instructions.
/// - Each message meets the obligations of [`AeadMessage::new`].
pub(super) unsafe fn seal<M: Machine>(messages: &mut [AeadMessage<'_>]) {
    // SAFETY: the caller guarantees the instructions and the messages.
    unsafe {
        pieces(messages, |piece, once| {
            let mut lanes = LaneQueue::<M>::new();
            one_time_keys(&mut lanes, piece, once);
            bodies(&mut lanes, piece);
            lanes.flush();
            M::tags(piece, once, CiphertextSide::Destination);
        });
    }
}

/// Sets the tags that the messages should have, then decrypts them, unless the library has done them. There are at
/// most [`MESSAGES`].
///
/// # Safety
/// The obligations are those of [`seal`].
pub(super) unsafe fn open<M: Machine>(messages: &mut [AeadMessage<'_>]) {
    // SAFETY: the caller guarantees the instructions and the messages.
    unsafe {
        pieces(messages, |piece, once| {
            let mut lanes = LaneQueue::<M>::new();
            one_time_keys(&mut lanes, piece, once);
            lanes.flush();
            M::tags(piece, once, CiphertextSide::Source);
            bodies(&mut lanes, piece);
            lanes.flush();
        });
    }
}

/// Sorts the messages by length, cuts them into pieces and calls `work` on each piece.
fn pieces<'m, 'a>(
    messages: &'m mut [AeadMessage<'a>],
    mut work: impl FnMut(&mut [&'m mut AeadMessage<'a>], &mut [OnceBlock]),
) {
    let own = messages.iter_mut().filter(|message| !message.by_library);
    let mut order: ArrayVec<&'m mut AeadMessage<'a>, MESSAGES> = own.collect();
    if !order.is_sorted_by(|a, b| a.len >= b.len) {
        order.sort_unstable_by_key(|message| std::cmp::Reverse(message.len));
    }
    let mut once: ArrayVec<OnceBlock, MESSAGES> = order.iter().map(|_| [0; CHACHA_BLOCK]).collect();
    let mut rest = &mut order[..];
    while !rest.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < rest.len() && bytes < PIECE_BYTES {
            let step = &rest[count..rest.len().min(count + PIECE_STEP)];
            count += step.len();
            bytes += step.iter().map(|message| message.len).sum::<usize>();
        }
        let (piece, after) = rest.split_at_mut(count);
        work(piece, &mut once[..count]);
        rest = after;
    }
    cleanse_all(&mut once);
}

/// Collects lanes until they fill the machine.
struct LaneQueue<M: Machine> {
    lanes: [KeystreamLane; LANES_MAX],
    count: usize,
    machine: PhantomData<M>,
}

impl<M: Machine> LaneQueue<M> {
    fn new() -> Self {
        const { assert!(M::LANES <= LANES_MAX && M::LANES.is_multiple_of(M::VECTOR)) };
        Self {
            lanes: [KeystreamLane::NONE; LANES_MAX],
            count: 0,
            machine: PhantomData,
        }
    }

    /// Adds a lane, and does all lanes once they fill the machine.
    ///
    /// # Safety
    /// The obligations are those of [`Machine::chacha`], until the lanes are flushed.
    #[inline(always)]
    unsafe fn push(&mut self, lane: KeystreamLane) {
        self.lanes[self.count % LANES_MAX] = lane;
        self.count += 1;
        if self.count == M::LANES {
            // SAFETY: the caller guarantees the pointers of every lane.
            unsafe { M::chacha(&self.lanes[..M::LANES]) };
            self.count = 0;
        }
    }

    /// Does the lanes that are left. The last vector is filled up with lanes of length 0.
    ///
    /// # Safety
    /// The obligations are those of [`Machine::chacha`].
    unsafe fn flush(&mut self) {
        let end = self.count.next_multiple_of(M::VECTOR);
        if let Some(&last) = self.lanes[..self.count].last() {
            self.lanes[self.count..end].fill(KeystreamLane { len: 0, ..last });
            // SAFETY: the caller guarantees the pointers of every lane.
            unsafe { M::chacha(&self.lanes[..end]) };
            self.count = 0;
        }
    }
}

/// Adds the lanes that make the one-time keys.
///
/// # Safety
/// The obligations are those of [`seal`].
unsafe fn one_time_keys<M: Machine>(
    lanes: &mut LaneQueue<M>,
    messages: &[&mut AeadMessage<'_>],
    once: &mut [OnceBlock],
) {
    static ZEROS: OnceBlock = [0; CHACHA_BLOCK];
    for (message, block) in messages.iter().zip(once) {
        let lane = KeystreamLane {
            key: message.key.bytes(),
            row: message.row.as_ptr(),
            src: ZEROS.as_ptr(),
            dst: block.as_mut_ptr(),
            counter: 0,
            len: CHACHA_BLOCK as u32,
        };
        // SAFETY: source and destination are whole blocks.
        unsafe { lanes.push(lane) };
    }
}

/// Adds the lanes that encrypt or decrypt the bodies.
///
/// # Safety
/// The obligations are those of [`seal`].
unsafe fn bodies<M: Machine>(lanes: &mut LaneQueue<M>, messages: &[&mut AeadMessage<'_>]) {
    for message in messages {
        let mut lane = KeystreamLane {
            key: message.key.bytes(),
            row: message.row.as_ptr(),
            src: message.src,
            dst: message.dst,
            counter: 1,
            len: CHACHA_BLOCK as u32,
        };
        let mut left = message.len;
        while left > 0 {
            lane.len = left.min(CHACHA_BLOCK) as u32;
            // SAFETY: the caller guarantees the message; the lane lies in its body.
            unsafe { lanes.push(lane) };
            lane.src = lane.src.wrapping_add(CHACHA_BLOCK);
            lane.dst = lane.dst.wrapping_add(CHACHA_BLOCK);
            lane.counter = lane.counter.wrapping_add(1);
            left = left.saturating_sub(CHACHA_BLOCK);
        }
    }
}
