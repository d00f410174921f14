//! A vector of 128 bits, as four words of 32 or as bits. On x86-64 it is a register of SSE2, which every such processor
//! has, because the compiler does not keep arrays in vector registers over a whole cipher.
//!
//! No operation takes a time that depends on its operands: products and rotations by a variable amount take the same
//! time for every value on x86-64 (Intel's list for DOITM has them) and on ARM (FEAT_DIT).

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Not, Sub};

#[derive(Clone, Copy)]
pub(super) struct Vector(machine::Register);

/// Words of 32 bits in a vector.
pub(super) const WORDS: usize = 4;
pub(super) const BYTES: usize = 16;

macro_rules! operators {
    ($($name:ident $method:ident $function:ident),*) => {
        $(impl $name for Vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(machine::$function(self.0, other.0))
            }
        })*
    };
}

// Sums are modulo 2^32.
operators!(BitXor bitxor xor, BitAnd bitand and, BitOr bitor or, Add add add, Sub sub sub);

impl Not for Vector {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        self ^ Self::from([u32::MAX; WORDS])
    }
}

/// The product modulo 2^32.
impl Mul for Vector {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.with(other, u32::wrapping_mul)
    }
}

impl From<[u32; WORDS]> for Vector {
    #[inline(always)]
    fn from(words: [u32; WORDS]) -> Self {
        Self(machine::of_words(words))
    }
}

impl Vector {
    /// The same word four times.
    #[inline(always)]
    pub(super) fn splat(word: u32) -> Self {
        Self::from([word; WORDS])
    }

    #[inline(always)]
    pub(super) fn of(halves: [u64; 2]) -> Self {
        let [low, high] = halves;
        Self::from([
            low as u32,
            (low >> 32) as u32,
            high as u32,
            (high >> 32) as u32,
        ])
    }

    #[inline(always)]
    pub(super) fn halves(self) -> [u64; 2] {
        let [a, b, c, d] = self.words().map(u64::from);
        [a | b << 32, c | d << 32]
    }

    #[inline(always)]
    pub(super) fn words(self) -> [u32; WORDS] {
        machine::words(self.0)
    }

    #[inline(always)]
    fn with(self, other: Self, operation: impl Fn(u32, u32) -> u32) -> Self {
        let (a, b) = (self.words(), other.words());
        Self::from(std::array::from_fn(|at| operation(a[at], b[at])))
    }

    #[inline(always)]
    pub(super) fn shl(self, by: u32) -> Self {
        Self(machine::shl(self.0, by))
    }

    #[inline(always)]
    pub(super) fn shr(self, by: u32) -> Self {
        Self(machine::shr(self.0, by))
    }

    #[inline(always)]
    pub(super) fn rol(self, by: u32) -> Self {
        self.shl(by) | self.shr(32 - by)
    }

    #[inline(always)]
    pub(super) fn ror(self, by: u32) -> Self {
        self.rol(32 - by)
    }

    /// Rotates each word by the lowest five bits of another.
    #[inline(always)]
    pub(super) fn rol_by(self, by: Self) -> Self {
        self.with(by, |word, by| word.rotate_left(by & 31))
    }

    #[inline(always)]
    pub(super) fn ror_by(self, by: Self) -> Self {
        self.with(by, |word, by| word.rotate_right(by & 31))
    }

    /// The same byte sixteen times.
    #[inline(always)]
    pub(super) fn splat_byte(byte: u8) -> Self {
        Self::splat(u32::from_ne_bytes([byte; 4]))
    }

    #[inline(always)]
    pub(super) fn of_bytes(bytes: &[u8; BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        Self::from(std::array::from_fn(|at| u32::from_ne_bytes(words[at])))
    }

    /// All ones in the bytes that are equal, zero in the others.
    #[inline(always)]
    pub(super) fn equal_bytes(self, other: Self) -> Self {
        Self(machine::equal_bytes(self.0, other.0))
    }

    /// The sum (XOR) of all bytes.
    #[inline(always)]
    pub(super) fn sum_bytes(self) -> u8 {
        let [low, high] = self.halves();
        let sum = low ^ high;
        let sum = sum ^ sum >> 32;
        let sum = sum ^ sum >> 16;
        (sum ^ sum >> 8) as u8
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn register(self) -> std::arch::x86_64::__m128i {
        self.0
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn of_register(register: std::arch::x86_64::__m128i) -> Self {
        Self(register)
    }

    /// All ones in the words that are equal, zero in the others.
    #[inline(always)]
    pub(super) fn equal(self, other: Self) -> Self {
        Self(machine::equal(self.0, other.0))
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::x86_64::*;

    use super::WORDS;

    pub(super) type Register = __m128i;

    macro_rules! functions {
        ($($name:ident $intrinsic:ident),*) => {
            $(#[inline(always)]
            pub(super) fn $name(a: Register, b: Register) -> Register {
                // SAFETY: SSE2 is part of x86-64.
                unsafe { $intrinsic(a, b) }
            })*
        };
    }

    functions!(
        xor _mm_xor_si128, and _mm_and_si128, or _mm_or_si128, add _mm_add_epi32, sub _mm_sub_epi32,
        equal _mm_cmpeq_epi32, equal_bytes _mm_cmpeq_epi8
    );

    #[inline(always)]
    pub(super) fn shl(a: Register, by: u32) -> Register {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_sll_epi32(a, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    pub(super) fn shr(a: Register, by: u32) -> Register {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_srl_epi32(a, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    pub(super) fn of_words(words: [u32; WORDS]) -> Register {
        // SAFETY: both types have 16 bytes, and every value is valid.
        unsafe { std::mem::transmute(words) }
    }

    #[inline(always)]
    pub(super) fn words(a: Register) -> [u32; WORDS] {
        // SAFETY: both types have 16 bytes, and every value is valid.
        unsafe { std::mem::transmute(a) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::WORDS;

    pub(super) type Register = [u32; WORDS];

    macro_rules! functions {
        ($($name:ident $operation:expr),* $(,)?) => {
            $(#[inline(always)]
            pub(super) fn $name(a: Register, b: Register) -> Register {
                std::array::from_fn(|at| $operation(a[at], b[at]))
            })*
        };
    }

    functions!(
        xor std::ops::BitXor::bitxor,
        and std::ops::BitAnd::bitand,
        or std::ops::BitOr::bitor,
        add u32::wrapping_add,
        sub u32::wrapping_sub,
        equal |a, b| u32::from(a == b).wrapping_neg(),
        equal_bytes |a: u32, b: u32| {
            let [a, b] = [a, b].map(u32::to_ne_bytes);
            u32::from_ne_bytes(std::array::from_fn(|at| u8::from(a[at] == b[at]).wrapping_neg()))
        },
    );

    #[inline(always)]
    pub(super) fn shl(a: Register, by: u32) -> Register {
        a.map(|word| word << by)
    }

    #[inline(always)]
    pub(super) fn shr(a: Register, by: u32) -> Register {
        a.map(|word| word >> by)
    }

    #[inline(always)]
    pub(super) fn of_words(words: [u32; WORDS]) -> Register {
        words
    }

    #[inline(always)]
    pub(super) fn words(a: Register) -> [u32; WORDS] {
        a
    }
}
