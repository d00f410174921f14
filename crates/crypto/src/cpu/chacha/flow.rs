//! The order of work, the same for every tier.
//!
//! ```text
//! sort the messages by length, the longest first
//! for each piece, the messages that fit in the nearest cache:
//!     seal:  one-time keys; bodies ^= keystream; tags
//!     open:  one-time keys; tags; bodies ^= keystream
//! ```
//!
//! ChaCha20 never sees a message, only a stream of lanes, each one block of keystream with its own key, nonce and
//! counter, which the machine takes a vector at a time:
//!
//! ```text
//!  message   A A A A A A A B B B B C C C D D   A long message fills whole vectors, short ones share
//!  counter   1 2 3 4 5 6 7 1 2 3 4 1 2 3 1 2   them; only the last vector of a piece may be part empty.
//! ```
//!
//! One-time keys are the blocks with counter 0, and go to a table instead of to a body.

use std::marker::PhantomData;

use arrayvec::ArrayVec;

use super::message::{CHACHA_BLOCK, Message};
use crate::plain::cleanse_all;

/// The most messages of one call.
pub(super) const MESSAGES: usize = 128;
/// A piece ends when its bodies have these many bytes and its messages fill the vectors of Poly1305.
const PIECE_BYTES: usize = 24 << 10;
const PIECE_STEP: usize = 16;
/// The most lanes of a machine.
const LANES_MAX: usize = 32;

/// ChaCha20's block 0 of a message, of which r and s are the first half (RFC 8439 §2.6).
pub(super) type OnceBlock = [u8; CHACHA_BLOCK];

/// One block of keystream: `dst` = `src` ^ keystream.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) key: *const u8,
    /// The state's last row; its first word is not the counter.
    pub(super) row: *const u8,
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
    pub(super) counter: u32,
    /// A block has 64, whatever more it says here.
    pub(super) len: u32,
}

impl Lane {
    const NONE: Self = Self {
        key: std::ptr::null(),
        row: std::ptr::null(),
        src: std::ptr::null(),
        dst: std::ptr::null_mut(),
        counter: 0,
        len: 0,
    };
}

/// A tier's instructions.
pub(super) trait Machine {
    /// Lanes of one vector.
    const VECTOR: usize;
    /// Blocks that ChaCha20 makes at once, in one or several vectors.
    const LANES: usize;

    /// Does at most `LANES` lanes, a multiple of `VECTOR`.
    ///
    /// # Safety
    /// The processor has the instructions; each lane's pointers are valid: 32 bytes of key, 16 of row, `len` of
    /// source and destination.
    unsafe fn chacha(lanes: &[Lane]);

    /// Computes each message's tag over its ciphertext, which is at `text(message)`. The longest message is first.
    ///
    /// # Safety
    /// The processor has the instructions; the ciphertexts are valid for reads of their messages' lengths.
    unsafe fn tags(messages: &mut [&mut Message<'_>], once: &[OnceBlock], text: Side);
}

/// Where the ciphertext is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

impl Side {
    #[inline(always)]
    pub(super) fn of(self, message: &Message<'_>) -> *const u8 {
        match self {
            Self::Source => message.src,
            Self::Destination => message.dst,
        }
    }
}

/// Encrypts and sets the tags, where the library has not. At most [`MESSAGES`] messages.
///
/// # Safety
/// The processor has the machine's instructions; the messages keep what they promise.
pub(super) unsafe fn seal<M: Machine>(messages: &mut [Message<'_>]) {
    // SAFETY: the caller's promise.
    unsafe {
        pieces(messages, |piece, once| {
            let mut lanes = Lanes::<M>::new();
            one_time_keys(&mut lanes, piece, once);
            bodies(&mut lanes, piece);
            lanes.flush();
            M::tags(piece, once, Side::Destination);
        });
    }
}

/// Sets the tags that the messages should have and decrypts, where the library has not. At most [`MESSAGES`] messages.
///
/// # Safety
/// As [`seal`].
pub(super) unsafe fn open<M: Machine>(messages: &mut [Message<'_>]) {
    // SAFETY: the caller's promise.
    unsafe {
        pieces(messages, |piece, once| {
            let mut lanes = Lanes::<M>::new();
            one_time_keys(&mut lanes, piece, once);
            lanes.flush();
            M::tags(piece, once, Side::Source);
            bodies(&mut lanes, piece);
            lanes.flush();
        });
    }
}

/// Cuts sorted messages in pieces.
fn pieces<'m, 'a>(
    messages: &'m mut [Message<'a>],
    mut work: impl FnMut(&mut [&'m mut Message<'a>], &mut [OnceBlock]),
) {
    let own = messages.iter_mut().filter(|message| !message.by_library);
    let mut order: ArrayVec<&'m mut Message<'a>, MESSAGES> = own.collect();
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
struct Lanes<M: Machine> {
    lanes: [Lane; LANES_MAX],
    count: usize,
    machine: PhantomData<M>,
}

impl<M: Machine> Lanes<M> {
    fn new() -> Self {
        const { assert!(M::LANES <= LANES_MAX && M::LANES.is_multiple_of(M::VECTOR)) };
        Self {
            lanes: [Lane::NONE; LANES_MAX],
            count: 0,
            machine: PhantomData,
        }
    }

    /// # Safety
    /// As [`Machine::chacha`].
    #[inline(always)]
    unsafe fn push(&mut self, lane: Lane) {
        self.lanes[self.count % LANES_MAX] = lane;
        self.count += 1;
        if self.count == M::LANES {
            // SAFETY: the caller's promise.
            unsafe { M::chacha(&self.lanes[..M::LANES]) };
            self.count = 0;
        }
    }

    /// Does what is left: the last vector is filled with a lane of no length.
    ///
    /// # Safety
    /// As [`Machine::chacha`].
    unsafe fn flush(&mut self) {
        let end = self.count.next_multiple_of(M::VECTOR);
        if let Some(&last) = self.lanes[..self.count].last() {
            self.lanes[self.count..end].fill(Lane { len: 0, ..last });
            // SAFETY: the caller's promise.
            unsafe { M::chacha(&self.lanes[..end]) };
            self.count = 0;
        }
    }
}

/// # Safety
/// As [`seal`].
unsafe fn one_time_keys<M: Machine>(
    lanes: &mut Lanes<M>,
    messages: &[&mut Message<'_>],
    once: &mut [OnceBlock],
) {
    static ZEROS: OnceBlock = [0; CHACHA_BLOCK];
    for (message, block) in messages.iter().zip(once) {
        let lane = Lane {
            key: message.key.bytes(),
            row: message.row.as_ptr(),
            src: ZEROS.as_ptr(),
            dst: block.as_mut_ptr(),
            counter: 0,
            len: CHACHA_BLOCK as u32,
        };
        // SAFETY: a block is valid for its length.
        unsafe { lanes.push(lane) };
    }
}

/// # Safety
/// As [`seal`].
unsafe fn bodies<M: Machine>(lanes: &mut Lanes<M>, messages: &[&mut Message<'_>]) {
    for message in messages {
        let mut lane = Lane {
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
            // SAFETY: the lane lies in the body.
            unsafe { lanes.push(lane) };
            lane.src = lane.src.wrapping_add(CHACHA_BLOCK);
            lane.dst = lane.dst.wrapping_add(CHACHA_BLOCK);
            lane.counter = lane.counter.wrapping_add(1);
            left = left.saturating_sub(CHACHA_BLOCK);
        }
    }
}
