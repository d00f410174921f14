//! The words that carry one bit of each lane, and what the cipher needs of them.

use super::lanes::Lane;

/// Blocks that are read from a lane at once: a cache line.
pub(super) const PIECE: usize = 8;

/// One bit of each of `64 * COLUMNS` lanes, or the 64-bit blocks of `COLUMNS` lanes.
///
/// The methods use the instructions of a tier: words are made, and methods called, only inside functions that have it.
pub(super) trait Word: Copy {
    /// 64-bit columns; lane `row * COLUMNS + column` is bit `row` of the column.
    const COLUMNS: usize;

    fn splat(bits: u64) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    /// Any function of three bits: that of `a`, `b` and `c` is bit `4 a + 2 b + c` of `TABLE`.
    fn gate<const TABLE: i32>(a: Self, b: Self, c: Self) -> Self;
    /// Shifts within the 64-bit columns.
    fn left<const BY: i32>(self) -> Self;
    fn right<const BY: i32>(self) -> Self;

    /// Blocks of a row of lanes: block `t` of the lanes goes to `to[t][row]`. At most [`PIECE`] of each, nothing of lanes
    /// that are done.
    ///
    /// # Safety
    /// Each lane's blocks can be read; there are `COLUMNS` lanes at most.
    #[inline(always)]
    unsafe fn gather(lanes: &[Lane], row: usize, to: &mut [[Self; 64]; PIECE]) {
        for (column, lane) in lanes.iter().enumerate() {
            for (t, to) in to.iter_mut().enumerate().take(lane.blocks as usize) {
                // SAFETY: the caller's promise; a word is an array of columns.
                unsafe {
                    let block = lane.at.cast::<u64>().add(t).read_unaligned().to_le();
                    (&raw mut to[row]).cast::<u64>().add(column).write(block);
                }
            }
        }
    }

    /// Puts the blocks back.
    ///
    /// # Safety
    /// As [`Word::gather`], and the blocks can be written.
    #[inline(always)]
    unsafe fn scatter(lanes: &[Lane], row: usize, from: &[[Self; 64]; PIECE]) {
        for (column, lane) in lanes.iter().enumerate() {
            for (t, from) in from.iter().enumerate().take(lane.blocks as usize) {
                // SAFETY: as above.
                unsafe {
                    let block = (&raw const from[row]).cast::<u64>().add(column).read();
                    lane.at.cast::<u64>().add(t).write_unaligned(block.to_le());
                }
            }
        }
    }
}

/// A gate from operations on two: its polynomial over GF(2), `p(b, c) ^ a & q(b, c)`.
macro_rules! gate_of_pairs {
    ($table:expr, $a:expr, $b:expr, $c:expr) => {{
        let terms = $crate::cpu::des::word::terms($table);
        let (zero, one) = (Self::splat(0), Self::splat(u64::MAX));
        // A macro and not a closure: closures would not be compiled for the tier.
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

/// Bit `4 a + 2 b + c` says whether that product of the inputs is in the polynomial of a gate.
#[inline(always)]
pub(super) const fn terms(table: i32) -> u8 {
    let t = table as u8;
    let t = t ^ (t << 1 & 0xaa);
    let t = t ^ (t << 2 & 0xcc);
    t ^ (t << 4 & 0xf0)
}

/// For machines without vectors, in tests.
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
