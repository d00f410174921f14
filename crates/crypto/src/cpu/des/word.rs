//! The words that carry one bit of each lane, and the operations that the cipher needs on them.

use super::lane::DesLane;

/// Number of blocks that are read from a lane at once: one cache line.
pub(super) const PIECE: usize = 8;

/// A word, which holds one bit of each of `64 * COLUMNS` lanes, or the 64-bit blocks of `COLUMNS` lanes.
///
/// The methods use the instructions of a tier. Words are made, and methods called, only inside functions that have
/// them.
pub(super) trait Word: Copy {
    /// Number of 64-bit columns. Lane `row * COLUMNS + column` is bit `row` of that column.
    const COLUMNS: usize;

    fn splat(bits: u64) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    /// Computes any function of three bits. The result for `a`, `b` and `c` is bit `4 a + 2 b + c` of `TABLE`.
    fn gate<const TABLE: i32>(a: Self, b: Self, c: Self) -> Self;
    /// Shifts to the left within the 64-bit columns.
    fn left<const BY: i32>(self) -> Self;
    /// Shifts to the right within the 64-bit columns.
    fn right<const BY: i32>(self) -> Self;

    /// Loads blocks of a row of lanes: block `t` of the lanes goes to `to[t][row]`. It loads at most [`PIECE`] blocks
    /// of each lane, and none that the lane does not have.
    ///
    /// # Safety
    /// - Each lane's blocks may be read.
    /// - There are at most `COLUMNS` lanes.
    #[inline(always)]
    unsafe fn gather(lanes: &[DesLane], row: usize, to: &mut [[Self; 64]; PIECE]) {
        for (column, lane) in lanes.iter().enumerate() {
            for (t, to) in to.iter_mut().enumerate().take(lane.blocks as usize) {
                // SAFETY: the caller guarantees the lane's blocks; a word is an array of columns.
                unsafe {
                    let block = lane.at.cast::<u64>().add(t).read_unaligned().to_le();
                    (&raw mut to[row]).cast::<u64>().add(column).write(block);
                }
            }
        }
    }

    /// Stores the blocks back to their lanes.
    ///
    /// # Safety
    /// - Each lane's blocks may be written.
    /// - There are at most `COLUMNS` lanes.
    #[inline(always)]
    unsafe fn scatter(lanes: &[DesLane], row: usize, from: &[[Self; 64]; PIECE]) {
        for (column, lane) in lanes.iter().enumerate() {
            for (t, from) in from.iter().enumerate().take(lane.blocks as usize) {
                // SAFETY: the caller guarantees the lane's blocks; a word is an array of columns.
                unsafe {
                    let block = (&raw const from[row]).cast::<u64>().add(column).read();
                    lane.at.cast::<u64>().add(t).write_unaligned(block.to_le());
                }
            }
        }
    }
}

/// Builds a gate from operations on two words: its polynomial over GF(2), `p(b, c) ^ a & q(b, c)`.
macro_rules! gate_of_pairs {
    ($table:expr, $a:expr, $b:expr, $c:expr) => {{
        let terms = $crate::cpu::des::word::terms($table);
        let (zero, one) = (Self::splat(0), Self::splat(u64::MAX));
        // This is a macro and not a closure, because a closure would not be compiled for the tier.
        macro_rules! polynomial {
            ($terms:expr) => {{
                let mut sum = if $terms & 1 != 0 { one } else { zero };
                if $terms & 2 != 0 {
                    sum = sum.xor($c);
                }
                if $terms & 4 != 0 {
                    sum = sum.xor($b);
                }
                if $terms & 8 != 0 {
                    sum = sum.xor($b.and($c));
                }
                sum
            }};
        }
        polynomial!(terms).xor($a.and(polynomial!(terms >> 4)))
    }};
}
pub(super) use gate_of_pairs;

/// Returns the terms of a gate's polynomial. Bit `4 a + 2 b + c` says whether that product of inputs is a term.
#[inline(always)]
pub(super) const fn terms(table: i32) -> u8 {
    let t = table as u8;
    let t = t ^ (t << 1 & 0xaa);
    let t = t ^ (t << 2 & 0xcc);
    t ^ (t << 4 & 0xf0)
}

/// Serves tests on machines without vectors.
impl Word for u64 {
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn splat(bits: u64) -> Self {
        bits
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }

    #[inline(always)]
    fn gate<const TABLE: i32>(a: Self, b: Self, c: Self) -> Self {
        gate_of_pairs!(TABLE, a, b, c)
    }

    #[inline(always)]
    fn left<const BY: i32>(self) -> Self {
        self << BY
    }

    #[inline(always)]
    fn right<const BY: i32>(self) -> Self {
        self >> BY
    }
}
