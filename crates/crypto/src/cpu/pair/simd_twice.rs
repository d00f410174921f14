//! Thirty-two lanes in AVX-512: two groups of sixteen. Each instruction is done for one group and then for the other.
//!
//! A hash instruction mostly waits for the one before it. The other group's instruction does not wait and fills the
//! gap.

use super::sha_x32;
use super::simd::{Row, Simd};
use super::simd_avx512::{Avx512, group, group_mut};
use super::streams::{LANES_MAX, Lanes};

/// Two groups of lanes. The first group has lanes 0 … 15.
#[derive(Clone, Copy)]
pub(super) struct TwiceAvx512(pub(super) Avx512);

type Half = <Avx512 as Simd>::V;

const HALF: usize = Avx512::LANES;

const _: () = assert!(LANES_MAX == 2 * HALF);

/// Defines functions that apply the function of the same name to both halves.
macro_rules! either {
    ($($name:ident($($v:ident),+))*) => { $(
        #[inline(always)]
        fn $name(self, $($v: [Half; 2]),+) -> [Half; 2] {
            [self.0.$name($($v[0]),+), self.0.$name($($v[1]),+)]
        }
    )* };
}

impl Simd for TwiceAvx512 {
    type V = [Half; 2];
    const LANES: usize = 2 * HALF;

    either! {
        add(a, b)
        xor(a, b)
        xor3(a, b, c)
        choose(a, b, c)
        majority(a, b, c)
        xor_or_not(a, b, c)
        opaque(v)
        swap_bytes(v)
    }

    #[inline(always)]
    fn splat(self, word: u32) -> [Half; 2] {
        [self.0.splat(word); 2]
    }

    #[inline(always)]
    fn load(self, row: &Row) -> [Half; 2] {
        let second = self.0.load_group(group(row, 1));
        [self.0.load_group(group(row, 0)), second]
    }

    #[inline(always)]
    fn store(self, row: &mut Row, v: [Half; 2]) {
        self.0.store_group(group_mut(row, 0), v[0]);
        self.0.store_group(group_mut(row, 1), v[1]);
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, v: [Half; 2]) -> [Half; 2] {
        [self.0.rotate_left::<N>(v[0]), self.0.rotate_left::<N>(v[1])]
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, v: [Half; 2]) -> [Half; 2] {
        [self.0.shift_right::<N>(v[0]), self.0.shift_right::<N>(v[1])]
    }

    #[inline(always)]
    fn select(self, lanes: Lanes, a: [Half; 2], b: [Half; 2]) -> [Half; 2] {
        [
            self.0.select(lanes, a[0], b[0]),
            self.0.select(lanes >> HALF, a[1], b[1]),
        ]
    }

    #[inline(always)]
    fn append(self, words: &mut [u32; 2 * LANES_MAX], at: usize, v: [Half; 2], lanes: Lanes) {
        let first = lanes & 0xffff;
        self.0.append(words, at, v[0], first);
        let at = at + first.count_ones() as usize;
        self.0.append(words, at, v[1], lanes >> HALF);
    }

    #[inline(always)]
    unsafe fn transposed(self, memory: &[*const u8; LANES_MAX], offset: usize) -> [[Half; 2]; 8] {
        // SAFETY: the caller guarantees the lanes' memory.
        let (low, high) = unsafe {
            let low = self.0.transposed_group(group(memory, 0), offset);
            (low, self.0.transposed_group(group(memory, 1), offset))
        };
        let mut both = [[low[0]; 2]; 8];
        for ((both, low), high) in both.iter_mut().zip(low).zip(high) {
            *both = [low, high];
        }
        both
    }

    #[inline(always)]
    fn columns(self, v: [[Half; 2]; 4]) -> [[u32; 4]; LANES_MAX] {
        let mut columns = [[0; 4]; LANES_MAX];
        let [a, b, c, d] = v;
        for number in 0..2 {
            let v = [a[number], b[number], c[number], d[number]];
            self.0.columns_of_group(v, group_mut(&mut columns, number));
        }
        columns
    }

    #[inline(always)]
    fn sha1(self, state: &mut [[Half; 2]; 8], block: &mut [[Half; 2]; 16]) {
        // SAFETY: `self` proves that the processor has AVX-512.
        unsafe { sha_x32::sha1(state, block) };
    }

    #[inline(always)]
    fn sha256(self, state: &mut [[Half; 2]; 8], block: &mut [[Half; 2]; 16]) {
        // SAFETY: `self` proves that the processor has AVX-512.
        unsafe { sha_x32::sha256(state, block) };
    }

    #[inline(always)]
    unsafe fn copy_padded(self, from: *const u8, len: usize, to: &mut [u8; 64]) {
        // SAFETY: the caller guarantees `len` bytes at `from`.
        unsafe { self.0.copy_padded(from, len, to) };
    }
}
