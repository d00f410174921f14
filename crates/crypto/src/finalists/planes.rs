//! Words of many blocks as planes: plane n of a word has bit n of this word of every block.

use super::Block;
use super::vector::Vector;

/// Blocks that are in the planes together.
pub(super) const BLOCKS: usize = 128;

/// One bit of every block.
pub(super) type Plane = Vector;
/// A word of every block, the lowest bit first.
pub(super) type Word = [Plane; 32];

/// Bits of a word for 64 blocks; another 64 have the same.
pub(super) type NarrowWord = [u64; 32];

/// A word for every block, which is the first one for blocks with a bit in `select`, and the other one elsewhere.
pub(super) fn constants(select: u64, first: u32, other: u32) -> NarrowWord {
    std::array::from_fn(|bit| {
        let ones = |word: u32| u64::from(word >> bit & 1).wrapping_neg();
        ones(first) & select | ones(other) & !select
    })
}

#[inline(always)]
pub(super) fn rol(word: &Word, by: usize) -> Word {
    std::array::from_fn(|bit| word[(bit + 32 - by) % 32])
}

#[inline(always)]
pub(super) fn xor(a: &Word, b: &Word) -> Word {
    std::array::from_fn(|bit| a[bit] ^ b[bit])
}

/// The same word for every block.
#[inline(always)]
pub(super) fn constant(word: u32) -> Word {
    std::array::from_fn(|bit| Plane::splat((word >> bit & 1).wrapping_neg()))
}

/// The sum modulo 2^32, bit by bit.
#[inline(always)]
pub(super) fn add(a: &Word, b: &Word) -> Word {
    let mut carry = Plane::splat(0);
    std::array::from_fn(|bit| {
        let half = a[bit] ^ b[bit];
        let sum = half ^ carry;
        carry = a[bit] & b[bit] ^ carry & half;
        sum
    })
}

/// Applies `cipher` to blocks in place. Places without a block hold zeros.
pub(super) fn each(blocks: &mut [Block], cipher: impl Fn(&mut [Word; 4])) {
    for blocks in blocks.chunks_mut(BLOCKS) {
        // Rows are halves of blocks, then planes for 64 blocks.
        let mut halves = [[[0u64; 64]; 2]; 2];
        for (blocks, halves) in blocks.chunks(64).zip(&mut halves) {
            for (half, matrix) in halves.iter_mut().enumerate() {
                for (row, block) in matrix.iter_mut().zip(blocks) {
                    *row = u64::from_le_bytes(block.as_chunks().0[half]);
                }
                transpose(matrix);
            }
        }
        let mut state: [Word; 4] = std::array::from_fn(|word| {
            std::array::from_fn(|bit| {
                let row = word % 2 * 32 + bit;
                Plane::of(halves.map(|halves| halves[word / 2][row]))
            })
        });
        cipher(&mut state);
        for (planes, row) in state.as_flattened().iter().zip(0..) {
            let [low, high] = planes.halves();
            halves[0][row / 64][row % 64] = low;
            halves[1][row / 64][row % 64] = high;
        }
        for (blocks, halves) in blocks.chunks_mut(64).zip(&mut halves) {
            for (half, matrix) in halves.iter_mut().enumerate() {
                transpose(matrix);
                for (row, block) in matrix.iter().zip(blocks.iter_mut()) {
                    block.as_chunks_mut().0[half] = row.to_le_bytes();
                }
            }
        }
    }
}

/// Fills a table with what `permutation` makes of its indices.
pub(super) fn every_byte(table: &mut [u8; 256], permutation: impl Fn([Plane; 8]) -> [Plane; 8]) {
    // Bit n of these is the bit of the number n, for the lowest six bits.
    const NUMBERS: [u64; 6] = [
        0xaaaa_aaaa_aaaa_aaaa,
        0xcccc_cccc_cccc_cccc,
        0xf0f0_f0f0_f0f0_f0f0,
        0xff00_ff00_ff00_ff00,
        0xffff_0000_ffff_0000,
        0xffff_ffff_0000_0000,
    ];
    let (halves, _) = table.as_chunks_mut::<BLOCKS>();
    for (half, highest) in halves.iter_mut().zip([0, u64::MAX]) {
        let [a, b, c, d, e, f] = NUMBERS.map(|bits| Plane::of([bits; 2]));
        let high = [Plane::of([0, u64::MAX]), Plane::of([highest; 2])];
        let output = permutation([a, b, c, d, e, f, high[0], high[1]]);
        for (plane, bit) in output.iter().zip(0..) {
            for (at, byte) in half.iter_mut().enumerate() {
                *byte |= ((plane.halves()[at / 64] >> (at % 64) & 1) as u8) << bit;
            }
        }
    }
}

/// Makes rows of columns: squares of half the size are exchanged, then those of a quarter, and so on.
fn transpose(matrix: &mut [u64; 64]) {
    let mut size = 32;
    let mut low = u64::from(u32::MAX);
    while size > 0 {
        for start in (0..64).step_by(2 * size) {
            for row in start..start + size {
                let differs = (matrix[row] >> size ^ matrix[row + size]) & low;
                matrix[row] ^= differs << size;
                matrix[row + size] ^= differs;
            }
        }
        size /= 2;
        low ^= low << size;
    }
}
