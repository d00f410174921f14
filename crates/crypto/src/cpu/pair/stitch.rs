//! HMAC of two packets at a time with SHA-NI, with their cipher between the rounds.
//!
//! ```text
//! body = pieces of 64 bytes, the last one perhaps shorter
//! a ‖ b: the four AES blocks of a piece between the rounds of a block of the hash, for two packets at once
//!
//! seal: the cipher goes ahead                       open: it follows
//!
//!     (pair before: tail      ‖ piece 0             hash block 0
//!                   outer hash ‖ last piece)        hash block 1    ‖ piece 0
//!     hash block 0             ‖ piece 1            hash block 2    ‖ piece 1
//!     hash block 1             ‖ piece 2            …
//!     …                                             the last block  ‖ piece n
//!     tail                     ‖ next: piece 0      tail            ‖ piece n + 1
//!     outer hash               ‖ next: last piece   outer hash      ‖ piece n + 2
//! ```
//!
//! 1. SHA-NI leaves the AES units idle. AES hides in its rounds, except for the blocks that a call begins with.
//! 2. A body begins 16 or 24 bytes behind the start of the hashed bytes. A piece may therefore be opened in place
//!    once the hash block after the one in which it begins is loaded. A piece sealed beside one block is read by the
//!    next.
//! 3. Pieces that are not whole are worked on in a copy. Only the two *edges*, which go with the tail and the outer
//!    hash, can be such pieces.
//! 4. Packets come in the order of their lengths, so neighbours end at about the same time. The rest of the longer
//!    one goes on alone.

use std::array::from_mut;

use super::Order;
use super::beside::{Beside, Cipher, Nothing};
use super::hmac::Message;
use super::mac::{Icvs, Mac};
use super::sha_ni::{ShaNi, Stream};
use super::simd_avx2::Avx2;
use crate::cpu::Work;
use crate::plain::{Plain, cleanse};

/// Number of body bytes that go with one block of the hash.
const PIECE: usize = 64;

/// The body of a packet and its cipher.
#[derive(Clone, Copy)]
struct Body<C> {
    cipher: C,
    at: *mut u8,
    len: usize,
    /// The numbers of the two pieces that go with no whole block of the hash.
    edges: [usize; 2],
}

impl<C: Beside> Beside for Body<C> {
    const SOME: bool = C::SOME;

    #[inline(always)]
    unsafe fn block(&mut self) {
        // SAFETY: the caller guarantees what the cipher needs.
        unsafe { self.cipher.block() };
    }
}

impl<C> Body<C> {
    /// Returns the address of a piece and its length in bytes.
    #[inline(always)]
    fn piece(&self, piece: usize) -> (*mut u8, usize) {
        let at = PIECE * piece;
        let len = self.len.saturating_sub(at).min(PIECE);
        (self.at.wrapping_add(at), len)
    }

    #[inline(always)]
    fn has(&self, edge: usize) -> bool {
        self.len > PIECE * self.edges[edge]
    }

    /// Moves the cipher to an edge, or to a copy of the edge if it is not whole.
    ///
    /// # Safety
    /// The packet's bytes may be read and written.
    #[inline(always)]
    unsafe fn go_to<K>(&mut self, edge: usize, copy: &mut [u8; PIECE])
    where
        C: Cipher<K>,
    {
        let (mut at, len) = self.piece(self.edges[edge]);
        if len < PIECE {
            // SAFETY: `len` bytes of the body follow.
            unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(at, len) };
            at = copy.as_mut_ptr();
        }
        self.cipher.go_to(self.edges[edge], at);
    }

    /// Copies the result back if the cipher worked on a copy.
    ///
    /// # Safety
    /// - The packet's bytes may be read and written.
    /// - [`Body::go_to`] was called before with the same edge and copy.
    #[inline(always)]
    unsafe fn put(&self, edge: usize, copy: &[u8; PIECE]) {
        let (at, len) = self.piece(self.edges[edge]);
        if len < PIECE {
            // SAFETY: `len` bytes of the body follow.
            unsafe { at.copy_from_nonoverlapping(copy.as_ptr(), len) };
        }
    }
}

/// Memory that the packets of a call use one after the other.
#[derive(Clone, Copy)]
struct Room<T> {
    keys: [T; 2],
    copies: [[u8; PIECE]; 2],
}

// SAFETY: all parts are plain.
unsafe impl<T: Plain> Plain for Room<T> {}

struct Stitch<'a, 'k, K, C: Cipher<K>> {
    work: &'a [Work<'k, K>],
    icvs: Icvs<'a>,
    /// Whether the cipher goes ahead of the hash.
    ahead: bool,
    tails: [[u8; 128]; 2],
    room: Room<C::Keys>,
}

impl<K: Mac, C: Cipher<K>> Stitch<'_, '_, K, C> {
    /// Prepares the bodies of the packets. If nothing else does it (`alone`), their edges are encrypted now.
    ///
    /// # Safety
    /// The obligations are those of [`hmac`].
    #[inline(always)]
    unsafe fn bodies<H: ShaNi, const N: usize>(
        &mut self,
        packets: [u16; N],
        alone: bool,
    ) -> [Body<C>; N] {
        // SAFETY: the caller guarantees the processor and the packets.
        unsafe {
            let mut bodies = [self.body::<H>(packets[0], 0); N];
            for n in 1..N {
                bodies[n] = self.body::<H>(packets[n], n);
            }
            if C::SOME && alone {
                for edge in 0..2 {
                    for (body, copy) in bodies.iter_mut().zip(&mut self.room.copies) {
                        body.go_to(edge, copy);
                    }
                    for _ in 0..PIECE / 16 {
                        for body in &mut bodies {
                            body.block();
                        }
                    }
                    for (body, copy) in bodies.iter().zip(&self.room.copies) {
                        body.put(edge, copy);
                    }
                }
            }
            bodies
        }
    }

    /// Prepares the body of one packet, which uses place `n` of the room.
    ///
    /// # Safety
    /// The obligations are those of [`hmac`].
    #[inline(always)]
    unsafe fn body<H: ShaNi>(&mut self, packet: u16, n: usize) -> Body<C> {
        let work = &self.work[packet as usize];
        let len = work.body_len();
        let second = match self.ahead {
            true => len / PIECE,
            false => Message::new::<H, K>(work).blocks,
        };
        let second = second.max(1);
        Body {
            // SAFETY: the caller guarantees the processor and the packet.
            cipher: unsafe { C::new(work, &mut self.room.keys[n]) },
            at: work.body(),
            len,
            edges: [if self.ahead { 0 } else { second - 1 }, second],
        }
    }

    /// Does `N` packets. When sealing, their edges have been sealed before, and the edges of the next packets are
    /// sealed here.
    ///
    /// # Safety
    /// The obligations are those of [`hmac`].
    #[inline(always)]
    unsafe fn run<H: ShaNi, const N: usize>(
        &mut self,
        packets: [u16; N],
        bodies: &mut [Body<C>; N],
        next: Option<&mut [Body<C>; N]>,
    ) {
        let works = packets.map(|packet| &self.work[packet as usize]);
        // SAFETY: the caller guarantees the processor and the packets.
        unsafe {
            let simd = Avx2::new();
            let mut streams = works.map(|work| Stream {
                state: H::state(&work.key.mac().inner),
                at: work.packet.cast_const(),
            });
            let messages = works.map(|work| Message::new::<H, K>(work));
            let blocks = messages.each_ref().map(|message| message.blocks);
            let nothing = &mut [Nothing; N];
            if !C::SOME {
                side_by_side::<H, _, N>(&mut streams, blocks, nothing);
            } else if self.ahead {
                for body in &mut *bodies {
                    body.cipher.go_to(1, body.piece(1).0);
                }
                let with = bodies.each_ref().map(|body| body.edges[1] - 1);
                side_by_side::<H, _, N>(&mut streams, with, bodies);
                let mut left = blocks;
                for (left, with) in left.iter_mut().zip(with) {
                    *left -= with;
                }
                side_by_side::<H, _, N>(&mut streams, left, nothing);
            } else {
                side_by_side::<H, _, N>(&mut streams, blocks.map(|blocks| blocks.min(1)), nothing);
                let with = blocks.map(|blocks| blocks.saturating_sub(1));
                side_by_side::<H, _, N>(&mut streams, with, bodies);
            }

            let mut left = [0; N];
            for n in 0..N {
                left[n] = messages[n].tail::<_, H>(simd, &mut self.tails[n]) - 1;
                streams[n].at = self.tails[n].as_ptr();
            }
            let mut bodies = if self.ahead { next } else { Some(bodies) };
            self.block::<H, N>(&mut streams, bodies.as_deref_mut(), 0);
            side_by_side::<H, _, N>(&mut streams, left, nothing);

            let mut last = [[0; 16]; N];
            for n in 0..N {
                last[n] = outer_block::<H>(streams[n].state);
                streams[n] = Stream {
                    state: H::state(&works[n].key.mac().outer),
                    at: last[n].as_ptr().cast(),
                };
            }
            self.block::<H, N>(&mut streams, bodies, 1);
            for (packet, stream) in packets.into_iter().zip(&streams) {
                let digest = digest::<H>(stream.state);
                self.icvs.put::<H, K>(self.work, packet, &digest);
            }
        }
    }

    /// Hashes one block of each stream, with an edge of the bodies beside it if any body has that edge.
    ///
    /// # Safety
    /// The obligations are those of [`hmac`] and of [`ShaNi::blocks`].
    #[inline(always)]
    unsafe fn block<H: ShaNi, const N: usize>(
        &mut self,
        streams: &mut [Stream<H::State>; N],
        bodies: Option<&mut [Body<C>; N]>,
        edge: usize,
    ) {
        // SAFETY: the caller guarantees the processor, the streams and the packets.
        unsafe {
            match bodies {
                Some(bodies) if C::SOME && bodies.iter().any(|body| body.has(edge)) => {
                    for (body, copy) in bodies.iter_mut().zip(&mut self.room.copies) {
                        body.go_to(edge, copy);
                    }
                    H::blocks(streams, 1, bodies);
                    for (body, copy) in bodies.iter().zip(&self.room.copies) {
                        body.put(edge, copy);
                    }
                }
                _ => H::blocks(streams, 1, &mut [Nothing; N]),
            }
        }
    }
}

/// Hashes `blocks[n]` blocks of each stream `n`, side by side as far as all streams go.
///
/// # Safety
/// The obligations are those of [`ShaNi::blocks`].
#[inline(always)]
unsafe fn side_by_side<H: ShaNi, B: Beside, const N: usize>(
    streams: &mut [Stream<H::State>; N],
    blocks: [usize; N],
    beside: &mut [B; N],
) {
    let all = blocks
        .iter()
        .fold(usize::MAX, |all, &blocks| all.min(blocks));
    // SAFETY: the caller guarantees the streams and the blocks beside them.
    unsafe {
        if all > 0 {
            H::blocks(streams, all, beside);
        }
        for ((stream, beside), blocks) in streams.iter_mut().zip(beside).zip(blocks) {
            if blocks > all {
                let (stream, beside) = (from_mut(stream), from_mut(beside));
                H::blocks(stream, blocks - all, beside);
            }
        }
    }
}

/// Computes the ICVs of the packets in `order`. Their bodies are encrypted before, or decrypted after.
///
/// # Safety
/// - The processor has SHA-NI, AES-NI, AVX2 and BMI2.
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each packet's length fits its transform.
#[inline(always)]
pub(super) unsafe fn hmac<H: ShaNi, K: Mac, C: Cipher<K>>(
    work: &[Work<'_, K>],
    order: &Order,
    icvs: Icvs<'_>,
) {
    let ahead = matches!(icvs, Icvs::Write);
    let mut stitch = Stitch::<K, C> {
        work,
        icvs,
        ahead,
        tails: [[0; 128]; 2],
        room: Room {
            // SAFETY: the caller guarantees the processor.
            keys: [unsafe { C::no_keys() }; 2],
            copies: [[0; PIECE]; 2],
        },
    };
    let (pairs, odd) = order.as_chunks::<2>();
    let mut ready = None;
    // SAFETY: the caller guarantees the processor and the packets.
    unsafe {
        for (number, &pair) in pairs.iter().enumerate() {
            let mut bodies = match ready.take() {
                Some(bodies) => bodies,
                None => stitch.bodies::<H, 2>(pair, ahead),
            };
            if let (true, Some(&next)) = (ahead, pairs.get(number + 1)) {
                ready = Some(stitch.bodies::<H, 2>(next, false));
            }
            stitch.run::<H, 2>(pair, &mut bodies, ready.as_mut());
        }
        if let &[packet] = odd {
            let mut bodies = stitch.bodies::<H, 1>([packet], ahead);
            stitch.run::<H, 1>([packet], &mut bodies, None);
        }
    }
    if C::SOME {
        cleanse(&mut stitch.room);
    }
}

/// Returns the padded block that holds the inner digest.
///
/// # Safety
/// The processor has SHA-NI.
#[inline(always)]
unsafe fn outer_block<H: ShaNi>(state: H::State) -> [u32; 16] {
    let mut block = [0u32; 16];
    // SAFETY: the caller guarantees the processor.
    let words = unsafe { H::words(state) };
    for (to, word) in block.iter_mut().zip(words).take(H::WORDS) {
        *to = word.swap_bytes();
    }
    block[H::WORDS] = 0x80;
    block[15] = ((64 + 4 * H::WORDS as u32) * 8).swap_bytes();
    block
}

/// Returns the digest's first four words in the byte order of memory.
///
/// # Safety
/// The processor has SHA-NI.
#[inline(always)]
unsafe fn digest<H: ShaNi>(state: H::State) -> [u32; 4] {
    // SAFETY: the caller guarantees the processor.
    let words = unsafe { H::words(state) };
    [words[0], words[1], words[2], words[3]].map(u32::swap_bytes)
}
