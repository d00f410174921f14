//! Lanes: the blocks that each one works on, and the walk along them.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::bits::{self, Halves, Rotor};
use super::lane::DesLane;
use super::word::{PIECE, Word};
use super::{BLOCK, LANES};
use crate::plain::{Plain, cleanse};

/// The fewest lanes that are worth it. With fewer, the library is faster, although it takes one block after the
/// other.
pub(super) const FEWEST: usize = 9;

/// Lanes, the longest first.
pub(super) struct DesLanes<'a> {
    lanes: arrayvec::ArrayVec<DesLane<'a>, LANES>,
}

/// The working memory of the cipher: about 60 KiB for 512 lanes.
#[derive(Clone, Copy)]
struct Area<W> {
    /// The next blocks of all lanes. First they are words of blocks; then each block in turn becomes words of bits.
    pieces: [[W; 64]; PIECE],
    keys: [Rotor<W>; 3],
    state: Halves<W>,
    /// The previous ciphertext block of each lane. Only decryption uses it.
    before: [W; 64],
}

// SAFETY: words are vectors of integers, and zero is a valid value.
unsafe impl<W: Word> Plain for Area<W> {}

impl<'a> DesLanes<'a> {
    /// Takes lanes in any order and sorts them.
    pub(super) fn new(mut lanes: arrayvec::ArrayVec<DesLane<'a>, LANES>) -> Self {
        if !lanes.is_sorted_by(|a, b| a.blocks >= b.blocks) {
            lanes.sort_unstable_by_key(|lane| std::cmp::Reverse(lane.blocks));
        }
        Self { lanes }
    }

    /// Does all blocks of all lanes in place. `triple` holds for every key.
    ///
    /// # Safety
    /// - The lanes' blocks may be read and written, and nobody else accesses them.
    /// - The machine has the word's instructions, and this is inlined into a function that is compiled for them.
    /// - There are at most as many lanes as the word has.
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
                // SAFETY: the caller guarantees the lanes' blocks.
                unsafe { self.finish() };
                break;
            }
            for (row, lanes) in self.lanes[..active].chunks(W::COLUMNS).enumerate() {
                // SAFETY: the caller guarantees the lanes' blocks and the instructions.
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
                // SAFETY: same as above.
                unsafe { W::scatter(lanes, row, &area.pieces) };
            }
            for lane in &mut self.lanes[..active] {
                lane.advance();
            }
        }
        cleanse(&mut area);
    }

    /// Prefetches the next pieces of some lanes while the cipher works on the present ones.
    #[inline(always)]
    fn prefetch(&self, lanes: std::ops::Range<usize>) {
        for lane in self.lanes.get(lanes).unwrap_or_default() {
            if lane.blocks as usize > PIECE {
                // The line in which the next piece starts was just used, unless the piece starts at the line's first
                // byte.
                let next = lane.at.wrapping_add(2 * PIECE * BLOCK - 1);
                // SAFETY: this is a hint, which the processor ignores if the address is not valid.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(next.cast()) };
            }
        }
    }

    fn active(&self) -> usize {
        self.lanes.iter().take_while(|lane| lane.blocks > 0).count()
    }

    /// Returns true if the library is faster from here on.
    pub(super) fn too_few(&self) -> bool {
        self.active() < FEWEST
    }

    /// Encrypts the remaining blocks with the library.
    ///
    /// # Safety
    /// The lanes' blocks may be read and written, and nobody else accesses them.
    #[cold]
    pub(super) unsafe fn finish(&self) {
        for lane in self.lanes.iter().filter(|lane| lane.blocks > 0) {
            let len = lane.blocks as usize * BLOCK;
            // SAFETY: the caller guarantees the lane's blocks.
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

/// Sets the words to the bits of one block for each lane.
#[inline(always)]
fn spread<W: Word>(words: &mut [W; 64], blocks: impl Iterator<Item = u64>) {
    let columns = std::ptr::from_mut(words).cast::<u64>();
    for (lane, block) in blocks.take(64 * W::COLUMNS).enumerate() {
        // SAFETY: the words are 64 arrays of `COLUMNS` columns.
        unsafe { columns.add(lane).write(block) };
    }
    bits::transpose(words);
}

impl DesLane<'_> {
    /// Moves past a piece.
    #[inline(always)]
    fn advance(&mut self) {
        let done = self.blocks.min(PIECE as u32);
        self.blocks -= done;
        // `wrapping_add` does not wrap here: the address is at most the end of the blocks.
        self.at = self.at.wrapping_add(done as usize * BLOCK);
        // SAFETY: the blocks before are the lane's own, and at least one is done.
        self.iv = unsafe { self.at.sub(BLOCK).cast::<u64>().read_unaligned().to_le() };
    }
}
