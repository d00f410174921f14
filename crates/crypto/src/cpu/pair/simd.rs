//! Vectors of 32-bit words, one word a lane: what a hash over lanes needs of the processor.

use super::hash;
use super::streams::{LANES_MAX, Lanes};

/// One word of every lane, in memory.
pub(super) type Row = [u32; LANES_MAX];

/// A set of vector instructions. A value is the proof that the processor has them, which makes the arithmetic safe.
///
/// All functions are `inline(always)` and without `target_feature`: they become part of a caller that has it.
pub(super) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;

    fn splat(self, word: u32) -> Self::V;
    fn load(self, row: &Row) -> Self::V;
    fn store(self, row: &mut Row, v: Self::V);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Bits of `b` where `a` has ones, of `c` elsewhere.
    fn choose(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The bits that two or three have.
    fn majority(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `b ^ (a | !c)`
    fn xor_or_not(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `v`, of which the compiler does not know how it came about: it does not reorder the sums before and after.
    fn opaque(self, v: Self::V) -> Self::V;
    fn rotate_left<const N: i32>(self, v: Self::V) -> Self::V;
    fn shift_right<const N: i32>(self, v: Self::V) -> Self::V;
    /// Big endian to little endian and back.
    fn swap_bytes(self, v: Self::V) -> Self::V;

    /// `a` in these lanes, `b` in the others.
    fn select(self, lanes: Lanes, a: Self::V, b: Self::V) -> Self::V;

    /// Writes the words of these lanes, close together, from word `at` on; it is at most the number of
    /// lanes. What follows them is undefined.
    fn append(self, words: &mut [u32; 2 * LANES_MAX], at: usize, v: Self::V, lanes: Lanes);

    /// Eight words from the memory of each lane: word `i` of all lanes in vector `i`.
    ///
    /// # Safety
    /// 32 bytes at `offset` of every lane's pointer can be read.
    unsafe fn transposed(self, memory: &[*const u8; LANES_MAX], offset: usize) -> [Self::V; 8];

    /// The other way: lane by lane, its words of the four vectors.
    fn columns(self, v: [Self::V; 4]) -> [[u32; 4]; LANES_MAX];

    /// SHA-1's compression of a block, which is overwritten; of the state five words count.
    #[inline(always)]
    fn sha1(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]) {
        hash::sha1(self, state, block);
    }

    /// SHA-256's compression of a block, which is overwritten.
    #[inline(always)]
    fn sha256(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]) {
        hash::sha256(self, state, block);
    }

    /// Copies `len` bytes, at most 64, and fills up with zeros.
    ///
    /// # Safety
    /// So many bytes at `from` can be read.
    unsafe fn copy_padded(self, from: *const u8, len: usize, to: &mut [u8; 64]);
}
