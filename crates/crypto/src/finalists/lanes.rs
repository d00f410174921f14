//! The words of several blocks side by side.

use std::ops::{Add, BitAnd, BitXor, Mul, Not, Sub};

use super::Block;
use super::vector::{self, Vector};

/// Vectors that are worked on together. Two keep a processor busier than one.
const VECTORS: usize = 2;
/// Number of blocks whose words lie side by side.
const BLOCKS: usize = VECTORS * vector::WORDS;

/// The same word of several blocks.
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) [Vector; VECTORS]);

macro_rules! operators {
    ($($name:ident $method:ident),*) => {
        $(impl $name for Words {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.with(other, Vector::$method)
            }
        })*
    };
}

operators!(BitXor bitxor, BitAnd bitand, Add add, Sub sub, Mul mul);

impl Not for Words {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        self.each(Vector::not)
    }
}

impl Words {
    /// The same word for every block.
    #[inline(always)]
    pub(super) fn splat(word: u32) -> Self {
        Self([Vector::splat(word); VECTORS])
    }

    #[inline(always)]
    fn each(self, operation: impl Fn(Vector) -> Vector) -> Self {
        Self(self.0.map(operation))
    }

    #[inline(always)]
    fn with(self, other: Self, operation: impl Fn(Vector, Vector) -> Vector) -> Self {
        Self(std::array::from_fn(|at| operation(self.0[at], other.0[at])))
    }

    #[inline(always)]
    pub(super) fn shl(self, by: u32) -> Self {
        self.each(|vector| vector.shl(by))
    }

    #[inline(always)]
    pub(super) fn shr(self, by: u32) -> Self {
        self.each(|vector| vector.shr(by))
    }

    #[inline(always)]
    pub(super) fn rol(self, by: u32) -> Self {
        self.each(|vector| vector.rol(by))
    }

    #[inline(always)]
    pub(super) fn ror(self, by: u32) -> Self {
        self.each(|vector| vector.ror(by))
    }

    /// Rotates each word by the lowest five bits of another.
    #[inline(always)]
    pub(super) fn rol_by(self, by: Self) -> Self {
        self.with(by, Vector::rol_by)
    }

    #[inline(always)]
    pub(super) fn ror_by(self, by: Self) -> Self {
        self.with(by, Vector::ror_by)
    }

    #[inline(always)]
    fn of(words: [u32; BLOCKS]) -> Self {
        let (vectors, _) = words.as_chunks();
        Self(std::array::from_fn(|at| Vector::from(vectors[at])))
    }

    #[inline(always)]
    fn words(self) -> [u32; BLOCKS] {
        let vectors = self.0.map(Vector::words);
        std::array::from_fn(|at| vectors[at / vector::WORDS][at % vector::WORDS])
    }
}

/// A cipher that works on several blocks at once, given as their four words.
pub(super) trait WordCipher {
    fn encrypt(&self, state: [Words; 4]) -> [Words; 4];
    fn decrypt(&self, state: [Words; 4]) -> [Words; 4];
}

/// Applies `cipher` to blocks in place. Lanes without a block hold zeros.
#[inline(always)]
pub(super) fn each(blocks: &mut [Block], cipher: impl Fn([Words; 4]) -> [Words; 4]) {
    for blocks in blocks.chunks_mut(BLOCKS) {
        let mut state = [[0; BLOCKS]; 4];
        for (lane, block) in blocks.iter().enumerate() {
            for (word, bytes) in state.iter_mut().zip(block.as_chunks().0) {
                word[lane] = u32::from_le_bytes(*bytes);
            }
        }
        let state = cipher(state.map(Words::of)).map(Words::words);
        for (lane, block) in blocks.iter_mut().enumerate() {
            for (word, bytes) in state.iter().zip(block.as_chunks_mut().0) {
                *bytes = word[lane].to_le_bytes();
            }
        }
    }
}

/// The words of a key, whose bytes are little-endian in all four ciphers.
pub(super) fn words(key: &[u8]) -> impl Iterator<Item = u32> {
    key.as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
}
