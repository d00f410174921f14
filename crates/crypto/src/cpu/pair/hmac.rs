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
//! 1. Loading a lane notes only addresses. The next run fetches the states of all newly loaded lanes by one
//!    transposition.
//! 2. Finished digests already lie where a transposed block has its words. The outer hash therefore shuffles nothing,
//!    and its lanes are always full except at the end.

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
    /// The states of the inner hash, one lane per packet.
    running: [Row; 8],
    /// Digests that wait for the outer hash. Between two calls there are fewer than lanes.
    finished: [[u32; 2 * LANES_MAX]; 8],
}

// SAFETY: the struct consists of integers, and zero is a valid value.
unsafe impl Plain for States {}

#[repr(C, align(64))]
pub(super) struct HmacLanes<'a, 'k, S, H, K> {
    tails: [[u8; 128]; LANES_MAX],
    states: States,
    /// Pointer to each lane's next block.
    memory: [*const u8; LANES_MAX],
    /// Pointer to the initial state of each lane.
    initial: [*const u8; LANES_MAX],
    fresh: Lanes,
    packet: [u16; LANES_MAX],
    /// Number of blocks in each lane's tail; 0 once the tail has begun.
    tail_blocks: [u8; LANES_MAX],
    /// The packets whose digests are in [`States::finished`].
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
            // SAFETY: all lanes are loaded or shadows, so each has the address of an initial state.
            let initial = unsafe { s.transposed(&self.initial, 0) };
            for (state, initial) in state.iter_mut().zip(&initial) {
                *state = s.select(self.fresh, *initial, *state);
            }
            self.fresh = 0;
        }
        for offset in (0..64 * blocks).step_by(64) {
            // SAFETY: the caller of `run` guarantees that every lane has so many blocks.
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

    /// Computes the outer hash of the first `count` finished digests, then writes or compares the ICVs. `count` is at
    /// most the number of lanes.
    #[inline(always)]
    unsafe fn outer(&mut self, count: usize) {
        let s = self.simd;
        let mut outer = [std::ptr::null(); LANES_MAX];
        for (lane, outer) in outer.iter_mut().enumerate().take(S::LANES) {
            let packet = self.finished_packet[if lane < count { lane } else { 0 }];
            *outer = self.key(packet).outer.as_ptr().cast();
        }
        // SAFETY: each pointer is the address of a state.
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
            // SAFETY: the caller of `schedule` guarantees that the packets are valid.
            unsafe { self.icvs.put::<H, K>(self.work, packet, digest) };
        }
    }

    /// Finishes the digests that are left.
    ///
    /// # Safety
    /// The obligations are those of [`hash()`](super::hash()).
    #[inline(always)]
    pub(super) unsafe fn flush(&mut self) {
        if self.finished > 0 {
            // SAFETY: the caller guarantees the packets.
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
        // SAFETY: the caller guarantees the packet, and the tail's bytes are part of it.
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
        // SAFETY: the caller guarantees the lanes and their blocks.
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
            // SAFETY: the caller of `schedule` guarantees that the packets are valid.
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

/// The bytes that an ICV covers.
pub(super) struct Message {
    pub(super) packet: *const u8,
    /// Number of whole 64-byte blocks in the packet.
    pub(super) blocks: usize,
    /// Number of covered bytes after the whole blocks.
    rest: usize,
    /// With ESN, the high half of the sequence number in network byte order.
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

    /// Builds the last one or two blocks in `tail` and returns their number.
    ///
    /// # Safety
    /// The packet's bytes may be read, and its length fits the transform.
    #[inline(always)]
    pub(super) unsafe fn tail<S: Simd, H: Hash>(&self, simd: S, tail: &mut [u8; 128]) -> usize {
        let (low, high) = tail.split_at_mut(64);
        let Some(low) = low.first_chunk_mut() else {
            return 0;
        };
        // SAFETY: the packet has `rest` covered bytes after its whole blocks.
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
