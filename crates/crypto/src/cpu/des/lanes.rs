//! Lanes: what each of them works on, and the walk along them.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::bits::{self, Halves, Rotor};
use super::word::{PIECE, Word};
use super::{BLOCK, Key, LANES};
use crate::plain::{Plain, cleanse};

/// Below this many lanes the library, which takes one block after the other, is faster.
pub(super) const FEWEST: usize = 9;

/// A run of blocks that depend on each other, or are to be worked on one after the other.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    /// The next block.
    pub(super) at: *mut u8,
    /// Blocks left.
    pub(super) blocks: u32,
    /// As in memory, little end first.
    pub(super) iv: u64,
    pub(super) key: &'a Key,
}

/// Lanes, the longest first.
pub(super) struct Lanes<'a> {
    lanes: arrayvec::ArrayVec<Lane<'a>, LANES>,
}

/// What the cipher works in: about 60 KiB for 512 lanes.
#[derive(Clone, Copy)]
struct Area<W> {
    /// The next blocks of all lanes: as words of blocks, then each block in turn as words of bits.
    pieces: [[W; 64]; PIECE],
    keys: [Rotor<W>; 3],
    state: Halves<W>,
    /// Decryption: the ciphertext before.
    before: [W; 64],
}

// SAFETY: words are vectors of integers.
unsafe impl<W: Word> Plain for Area<W> {}

impl<'a> Lanes<'a> {
    /// In any order.
    pub(super) fn new(mut lanes: arrayvec::ArrayVec<Lane<'a>, LANES>) -> Self {
        if !lanes.is_sorted_by(|a, b| a.blocks >= b.blocks) {
            lanes.sort_unstable_by_key(|lane| std::cmp::Reverse(lane.blocks));
        }
        Self { lanes }
    }

    /// All blocks of all lanes, in place. `triple` is of every key.
    ///
    /// # Safety
    /// The lanes' blocks can be read and written; the machine has the word's instructions, and the function that this is inlined
    /// into is compiled for them. There are no more lanes than the word has.
    #[inline(always)]
    pub(super) unsafe fn run<W: Word>(&mut self, triple: bool, encrypt: bool) {
        let mut area = area::<W>();
        self.load_keys(&mut area, triple);
        self.load_ivs(&mut area, encrypt);
        loop {
            let active = self.active();
            let steps = match self.lanes.first() {
                Some(longest) if active > 0 => (longest.blocks as usize).min(PIECE),
                _ => break,
            };
            if encrypt && self.too_few() {
                // SAFETY: the caller's promise.
                unsafe { self.finish() };
                break;
            }
            for (row, lanes) in self.lanes[..active].chunks(W::COLUMNS).enumerate() {
                // SAFETY: the caller's promise.
                unsafe { W::gather(lanes, row, &mut area.pieces) };
            }
            for (step, block) in area.pieces[..steps].iter_mut().enumerate() {
                self.prefetch(step * active / steps..(step + 1) * active / steps);
                bits::transpose(block);
                if encrypt {
                    area.state.add_to_swapped(block);
                    area.state.cipher(&area.keys, triple, true);
                    area.state.put(block);
                } else {
                    area.state.set(block);
                    area.state.cipher(&area.keys, triple, false);
                    area.state.put_with(&mut area.before, block);
                }
                bits::transpose(block);
            }
            for (row, lanes) in self.lanes[..active].chunks(W::COLUMNS).enumerate() {
                // SAFETY: the caller's promise.
                unsafe { W::scatter(lanes, row, &area.pieces) };
            }
            for lane in &mut self.lanes[..active] {
                lane.advance();
            }
        }
        cleanse(&mut area);
    }

    /// The next pieces of some lanes, while the cipher works on these.
    #[inline(always)]
    fn prefetch(&self, lanes: std::ops::Range<usize>) {
        for lane in self.lanes.get(lanes).unwrap_or_default() {
            if lane.blocks as usize > PIECE {
                // The line in which the next piece starts has just been used, unless that is its first byte.
                let next = lane.at.wrapping_add(2 * PIECE * BLOCK - 1);
                // SAFETY: a hint, which is ignored if the address is not valid.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(next.cast()) };
            }
        }
    }

    fn active(&self) -> usize {
        self.lanes.iter().take_while(|lane| lane.blocks > 0).count()
    }

    /// Whether the library is faster from here on.
    pub(super) fn too_few(&self) -> bool {
        self.active() < FEWEST
    }

    /// Encrypts what is left with the library.
    ///
    /// # Safety
    /// As [`Lanes::run`].
    #[cold]
    pub(super) unsafe fn finish(&self) {
        for lane in self.lanes.iter().filter(|lane| lane.blocks > 0) {
            let len = lane.blocks as usize * BLOCK;
            // SAFETY: the caller's promise.
            let body = unsafe { std::slice::from_raw_parts_mut(lane.at, len) };
            lane.key.library().encrypt(lane.iv.to_le_bytes(), body);
        }
    }

    #[inline(always)]
    fn load_keys<W: Word>(&self, area: &mut Area<W>, triple: bool) {
        for (number, rotor) in area.keys.iter_mut().enumerate() {
            if number > 0 && !triple {
                break;
            }
            let words = &mut area.pieces[0];
            spread(
                words,
                self.lanes.iter().map(|lane| lane.key.parts.0[number]),
            );
            bits::rotor(words, rotor);
        }
    }

    #[inline(always)]
    fn load_ivs<W: Word>(&self, area: &mut Area<W>, encrypt: bool) {
        let words = &mut area.pieces[0];
        spread(words, self.lanes.iter().map(|lane| lane.iv));
        if encrypt {
            area.state.start(words);
        } else {
            area.before = *words;
        }
    }
}

#[inline(always)]
fn area<W: Word>() -> Area<W> {
    let zero = W::splat(0);
    Area {
        pieces: [[zero; 64]; PIECE],
        keys: [[zero; 112]; 3],
        state: Halves {
            left: [zero; 32],
            right: [zero; 32],
        },
        before: [zero; 64],
    }
}

/// One block for each lane, as words of bits.
#[inline(always)]
fn spread<W: Word>(words: &mut [W; 64], blocks: impl Iterator<Item = u64>) {
    let columns = std::ptr::from_mut(words).cast::<u64>();
    for (lane, block) in blocks.take(64 * W::COLUMNS).enumerate() {
        // SAFETY: the words are 64 arrays of `COLUMNS` columns.
        unsafe { columns.add(lane).write(block) };
    }
    bits::transpose(words);
}

impl Lane<'_> {
    /// Past a piece.
    #[inline(always)]
    fn advance(&mut self) {
        let done = self.blocks.min(PIECE as u32);
        self.blocks -= done;
        // Not beyond the end of the blocks.
        self.at = self.at.wrapping_add(done as usize * BLOCK);
        // SAFETY: the blocks before are the lane's own, and one at least is done.
        self.iv = unsafe { self.at.sub(BLOCK).cast::<u64>().read_unaligned().to_le() };
    }
}
