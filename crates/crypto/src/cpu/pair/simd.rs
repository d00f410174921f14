//! Vectors of 32-bit words, one word per lane: the operations that a hash over lanes needs.

use super::streams::{LANES_MAX, Lanes};

/// A word of every lane, in memory.
pub(super) type WordRow = [u32; LANES_MAX];

/// A set of vector instructions. A value proves that the processor has them, which makes the arithmetic safe.
///
/// All functions are `inline(always)` and have no `target_feature`: they become part of a caller that has it.
pub(super) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;

    fn splat(self, word: u32) -> Self::V;
    fn load(self, row: &WordRow) -> Self::V;
    fn store(self, row: &mut WordRow, v: Self::V);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Takes the bits of `b` where `a` has ones, and of `c` elsewhere.
    fn choose(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns the bits that at least two arguments have.
    fn majority(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns `b ^ (a | !c)`.
    fn xor_or_not(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns `v` and hides its origin from the compiler, so that sums before and after are not reordered.
    fn opaque(self, v: Self::V) -> Self::V;
    fn rotate_left<const N: i32>(self, v: Self::V) -> Self::V;
    fn shift_right<const N: i32>(self, v: Self::V) -> Self::V;
    /// Reverses the bytes of each word.
    fn swap_bytes(self, v: Self::V) -> Self::V;

    /// Takes `a` in these lanes and `b` in the others.
    fn select(self, lanes: Lanes, a: Self::V, b: Self::V) -> Self::V;

    /// Writes the words of these lanes next to each other from `words[at]` on. `at` is at most the number of lanes.
    /// The words after them are unspecified.
    fn append(self, words: &mut [u32; 2 * LANES_MAX], at: usize, v: Self::V, lanes: Lanes);

    /// Loads eight words from the memory of each lane. Vector `i` of the result has word `i` of all lanes.
    ///
    /// # Safety
    /// 32 bytes at `offset` from every lane's pointer may be read.
    unsafe fn transposed(self, memory: &[*const u8; LANES_MAX], offset: usize) -> [Self::V; 8];

    /// Does the reverse of [`Simd::transposed`]: returns for each lane its words of the four vectors.
    fn columns(self, v: [Self::V; 4]) -> [[u32; 4]; LANES_MAX];

    /// SHA-1's compression of one block, which is overwritten. Only the first five words of the state count.
    fn sha1(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]);

    /// SHA-256's compression of one block, which is overwritten.
    fn sha256(self, state: &mut [Self::V; 8], block: &mut [Self::V; 16]);

    /// Copies `len` bytes, at most 64, and fills the rest of `to` with zeros.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read.
    unsafe fn copy_padded(self, from: *const u8, len: usize, to: &mut [u8; 64]);
}
