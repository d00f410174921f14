//! HMAC (RFC 2104) over lanes, from the states after the two pads.
//!
//! ```text
//! message = SPI ‖ sequence ‖ IV ‖ ciphertext ‖ [high half of the ESN]
//!
//! load      lane ← state after the inner pad; segments: whole blocks in the packet, then a tail of one or two
//!           blocks built beside it: rest ‖ high half ‖ 0x80 ‖ 0 … ‖ length
//! run       compress a block of every lane, as often as the scheduler says
//! complete  finished ← digests of the lanes that are through
//! flush     as soon as all lanes' worth of digests are there: state ← after the outer pad, compress them, write or
//!           compare the ICVs
//! ```
//!
//! 1. Loading notes only addresses. The next run fetches the states of all newly loaded lanes by one transposition.
//! 2. Finished digests are already where a transposed block has its words, so the outer hash shuffles nothing, and it
//!    always has full lanes except at the end.

use std::marker::PhantomData;

use super::hash::Hash;
use super::mac::{Icvs, Mac, MacKey};
use super::simd::{Row, Simd};
use super::streams::{LANES_MAX, Lanes, Streams, each, lanes};
use crate::cpu::Work;
use crate::plain::{Plain, cleanse};

/// Words that depend on keys.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct States {
    /// The inner states.
    running: [Row; 8],
    /// Digests that wait for the outer hash: fewer than all lanes' worth between two calls.
    finished: [[u32; 2 * LANES_MAX]; 8],
}

// SAFETY: integers.
unsafe impl Plain for States {}

#[repr(C, align(64))]
pub(super) struct HmacLanes<'a, 'k, S, H, K> {
    tails: [[u8; 128]; LANES_MAX],
    states: States,
    /// Where each lane's next block is.
    memory: [*const u8; LANES_MAX],
    /// Where the state of each newly loaded lane is.
    initial: [*const u8; LANES_MAX],
    fresh: Lanes,
    packet: [u16; LANES_MAX],
    /// Blocks of the tail, 0 once it has begun.
    tail_blocks: [u8; LANES_MAX],
    /// The packets of [`States::finished`].
    finished_packet: [u16; 2 * LANES_MAX],
    finished: usize,
    work: &'a [Work<'k, K>],
    icvs: Icvs<'a>,
    simd: S,
    hash: PhantomData<H>,
}

impl<'a, 'k, S: Simd, H: Hash, K: Mac> HmacLanes<'a, 'k, S, H, K> {
    #[inline(always)]
    pub(super) fn new(simd: S, work: &'a [Work<'k, K>], icvs: Icvs<'a>) -> Self {
        Self {
            tails: [[0; 128]; LANES_MAX],
            states: States {
                running: [[0; LANES_MAX]; 8],
                finished: [[0; 2 * LANES_MAX]; 8],
            },
            memory: [std::ptr::null(); LANES_MAX],
            initial: [std::ptr::null(); LANES_MAX],
            fresh: 0,
            packet: [0; LANES_MAX],
            tail_blocks: [0; LANES_MAX],
            finished_packet: [0; 2 * LANES_MAX],
            finished: 0,
            work,
            icvs,
            simd,
            hash: PhantomData,
        }
    }

    fn key(&self, packet: u16) -> &'k MacKey {
        self.work[packet as usize].key.mac()
    }

    /// Compresses the next `blocks` blocks of every lane.
    #[inline(always)]
    unsafe fn compress(&mut self, blocks: usize) {
        let s = self.simd;
        let mut state = [s.splat(0); 8];
        for (state, row) in state.iter_mut().zip(&self.states.running).take(H::WORDS) {
            *state = s.load(row);
        }
        if self.fresh != 0 {
            // SAFETY: all lanes are loaded, so that each has an address of an initial state.
            let initial = unsafe { s.transposed(&self.initial, 0) };
            for (state, initial) in state.iter_mut().zip(&initial) {
                *state = s.select(self.fresh, *initial, *state);
            }
            self.fresh = 0;
        }
        for offset in (0..64 * blocks).step_by(64) {
            // SAFETY: every lane has so many blocks.
            let (low, high) = unsafe {
                let low = s.transposed(&self.memory, offset);
                (low, s.transposed(&self.memory, offset + 32))
            };
            let mut block = [
                low[0], low[1], low[2], low[3], low[4], low[5], low[6], low[7], high[0], high[1],
                high[2], high[3], high[4], high[5], high[6], high[7],
            ];
            if H::BIG_ENDIAN {
                for word in &mut block {
                    *word = s.swap_bytes(*word);
                }
            }
            H::compress(s, &mut state, &mut block);
        }
        for (row, state) in self.states.running.iter_mut().zip(&state).take(H::WORDS) {
            s.store(row, *state);
        }
        for memory in self.memory.iter_mut().take(S::LANES) {
            *memory = memory.wrapping_add(64 * blocks);
        }
    }

    /// The outer hash and the ICVs of the first `count` finished digests, at most one a lane.
    #[inline(always)]
    unsafe fn outer(&mut self, count: usize) {
        let s = self.simd;
        let mut outer = [std::ptr::null(); LANES_MAX];
        for (lane, outer) in outer.iter_mut().enumerate().take(S::LANES) {
            let packet = self.finished_packet[if lane < count { lane } else { 0 }];
            *outer = self.key(packet).outer.as_ptr().cast();
        }
        // SAFETY: each is the address of a state.
        let mut state = unsafe { s.transposed(&outer, 0) };
        let mut block = [s.splat(0); 16];
        for (word, digests) in block.iter_mut().zip(&self.states.finished).take(H::WORDS) {
            *word = s.load(digests.first_chunk().unwrap_or(&[0; LANES_MAX]));
        }
        block[H::WORDS] = s.splat(if H::BIG_ENDIAN { 0x80 << 24 } else { 0x80 });
        block[if H::BIG_ENDIAN { 15 } else { 14 }] = s.splat((64 + 4 * H::WORDS as u32) * 8);
        H::compress(s, &mut state, &mut block);
        let mut digest = [state[0], state[1], state[2], state[3]];
        if H::BIG_ENDIAN {
            for word in &mut digest {
                *word = s.swap_bytes(*word);
            }
        }
        let digests = s.columns(digest);
        for (&packet, digest) in self.finished_packet.iter().zip(&digests).take(count) {
            // SAFETY: the packet is valid, as the caller of `schedule` said.
            unsafe { self.icvs.put::<H, K>(self.work, packet, digest) };
        }
    }

    /// Finishes the digests that are left.
    ///
    /// # Safety
    /// The packets are valid.
    #[inline(always)]
    pub(super) unsafe fn flush(&mut self) {
        if self.finished > 0 {
            // SAFETY: as the caller says.
            unsafe { self.outer(self.finished) };
            self.finished = 0;
        }
    }
}

impl<S: Simd, H: Hash, K: Mac> Streams for HmacLanes<'_, '_, S, H, K> {
    const LANES: usize = S::LANES;

    #[inline(always)]
    unsafe fn load(&mut self, lane: usize, packet: usize) -> usize {
        let work = &self.work[packet];
        let key = work.key.mac();
        let message = Message::new::<H, K>(work);
        // SAFETY: the tail's bytes are those of the packet.
        let tail_blocks = unsafe { message.tail::<S, H>(self.simd, &mut self.tails[lane]) };
        self.initial[lane] = key.inner.as_ptr().cast();
        self.fresh |= 1 << lane;
        self.packet[lane] = packet as u16;
        if message.blocks > 0 {
            self.memory[lane] = work.packet;
            self.tail_blocks[lane] = tail_blocks as u8;
            message.blocks
        } else {
            self.memory[lane] = self.tails[lane].as_ptr();
            self.tail_blocks[lane] = 0;
            tail_blocks
        }
    }

    #[inline(always)]
    unsafe fn shadow(&mut self, lane: usize, busy: usize) {
        self.memory[lane] = self.memory[busy];
        self.initial[lane] = self.initial[busy];
    }

    #[inline(always)]
    unsafe fn run(&mut self, blocks: usize) {
        // SAFETY: as the caller says.
        unsafe { self.compress(blocks) };
    }

    #[inline(always)]
    unsafe fn next_segment(&mut self, lane: usize) -> usize {
        self.memory[lane] = self.tails[lane].as_ptr();
        std::mem::take(&mut self.tail_blocks[lane]).into()
    }

    #[inline(always)]
    unsafe fn complete(&mut self, through: Lanes) {
        let (s, at) = (self.simd, self.finished);
        for (digests, row) in self.states.finished.iter_mut().zip(&self.states.running) {
            s.append(digests, at, s.load(row), through);
        }
        for lane in each(through) {
            self.finished_packet[self.finished] = self.packet[lane];
            self.finished += 1;
        }
        if self.finished >= S::LANES {
            // SAFETY: the packets are valid.
            unsafe { self.outer(S::LANES) };
            self.finished -= S::LANES;
            for digests in &mut self.states.finished {
                digests.copy_within(S::LANES..2 * S::LANES, 0);
            }
            self.finished_packet.copy_within(S::LANES..2 * S::LANES, 0);
        }
    }
}

impl<S, H, K> Drop for HmacLanes<'_, '_, S, H, K> {
    fn drop(&mut self) {
        cleanse(&mut self.states);
    }
}

/// What the ICV covers.
pub(super) struct Message {
    pub(super) packet: *const u8,
    /// Whole blocks in the packet, and the bytes after them.
    pub(super) blocks: usize,
    rest: usize,
    /// The high half of the sequence number, most significant byte first.
    high: Option<[u8; 4]>,
}

impl Message {
    #[inline(always)]
    pub(super) fn new<H: Hash, K: Mac>(work: &Work<'_, K>) -> Self {
        let covered = work.len as usize - H::ICV_LEN;
        let high = ((work.sequence >> 32) as u32).to_be_bytes();
        Self {
            packet: work.packet,
            blocks: covered / 64,
            rest: covered % 64,
            high: work.key.mac().esn.then_some(high),
        }
    }

    /// Builds the last blocks, whose number it gives.
    ///
    /// # Safety
    /// The packet is valid.
    #[inline(always)]
    pub(super) unsafe fn tail<S: Simd, H: Hash>(&self, simd: S, tail: &mut [u8; 128]) -> usize {
        let (low, high) = tail.split_at_mut(64);
        let Some(low) = low.first_chunk_mut() else {
            return 0;
        };
        // SAFETY: the packet has so many bytes after its whole blocks.
        unsafe { simd.copy_padded(self.packet.wrapping_add(64 * self.blocks), self.rest, low) };
        high.fill(0);
        let mut end = self.rest;
        if let Some(high) = self.high {
            tail[end..end + 4].copy_from_slice(&high);
            end += 4;
        }
        tail[end] = 0x80;
        let blocks = if end + 9 > 64 { 2 } else { 1 };
        let bits = 8 * (64 + 64 * self.blocks + end) as u64;
        let bits = match H::BIG_ENDIAN {
            true => bits.to_be_bytes(),
            false => bits.to_le_bytes(),
        };
        tail[64 * blocks - 8..64 * blocks].copy_from_slice(&bits);
        blocks
    }
}

const _: () = assert!(lanes(LANES_MAX) == !0);
