//! DES (FIPS 46-3) on words that carry one bit of each lane.
//!
//! A permutation costs nothing here: it only selects other words. A round consists of three steps. It XORs the key's
//! words onto the right half, evaluates the gates of eight S-boxes, and XORs the result onto the left half.
//!
//! ```text
//! word:      0   1   …  63               bit n of a block, for all lanes; bit 8 p + k is bit k of byte p
//! lane 0   [ b0  b1  …  b63 ]  ← block of lane 0
//! lane 1   [ b0  b1  …  b63 ]
//!   ⋮
//! ```
//!
//! Tricks:
//! 1. The key's two rotating halves are stored twice in a row. The rotation of a round is then an offset. The loop
//!    over the rounds has one body, which is small enough for the processor's cache of decoded instructions.
//! 2. The final permutation of one pass and the initial one of the next cancel out. Between the passes of 3DES the
//!    halves are only swapped.
//! 3. In CBC the same holds from block to block. The state stays in halves, and the next block is XORed onto them,
//!    swapped.
//! 4. The S-boxes run in an order in which the first of a round does not need the last of the round before.

use super::networks;
use super::word::Word;

pub(super) type Half<W> = [W; 32];
/// The form of a key as C, C, D, D (trick 1).
pub(super) type Rotor<W> = [W; 112];

/// Converts the standard's bit number to an index in a block. The standard counts from 1, from the first byte's most
/// significant bit on.
const fn bit(n: usize) -> usize {
    (n - 1) / 8 * 8 + 7 - (n - 1) % 8
}

/// The initial permutation: the index of each bit of the left half, then of the right half.
const INITIAL: [usize; 64] = {
    let mut table = [0; 64];
    let mut at = 0;
    while at < 64 {
        let row = at / 8;
        let first = if row < 4 {
            58 + 2 * row
        } else {
            57 + 2 * (row - 4)
        };
        table[at] = bit(first - at % 8 * 8);
        at += 1;
    }
    table
};

/// Permuted choice 1: the bits of C, then of D.
const CHOICE_1: [usize; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60,
    52, 44, 36, 63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29,
    21, 13, 5, 28, 20, 12, 4,
];

/// Permuted choice 2: the bits of a round key.
const CHOICE_2: [usize; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52,
    31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

/// Total rotation of C and D to the left in each round.
const ROTATIONS: [usize; 16] = [1, 2, 4, 6, 8, 10, 12, 14, 15, 17, 19, 21, 23, 25, 27, 28];

/// The permutation P, inverted: the place of each S-box output in the half.
const DESTINATION: [usize; 32] = {
    const P: [usize; 32] = [
        16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9,
        19, 13, 30, 6, 22, 11, 4, 25,
    ];
    let mut table = [0; 32];
    let mut at = 0;
    while at < 32 {
        table[P[at] - 1] = at;
        at += 1;
    }
    table
};

/// Sets up one key from the words of its 64 bits.
#[inline(always)]
pub(super) fn rotor<W: Word>(key: &[W; 64], rotor: &mut Rotor<W>) {
    for (at, &n) in CHOICE_1.iter().enumerate() {
        let word = key[bit(n)];
        let at = at + at / 28 * 28;
        rotor[at] = word;
        rotor[at + 28] = word;
    }
}

/// The words of one round's key: C from index 0 on, D from index 56 on.
type Round<W> = [W; 84];

/// XORs the output of S-box number `$number` onto the left half.
macro_rules! with_box {
    ($number:literal, $network:ident, $left:ident, $right:ident, $round:ident) => {{
        const FIRST: usize = 4 * ($number - 1);
        const KEY: [usize; 6] = {
            let mut words = [0; 6];
            let mut at = 0;
            while at < 6 {
                let n = CHOICE_2[6 * ($number - 1) + at] - 1;
                words[at] = n + n / 28 * 28;
                at += 1;
            }
            words
        };
        let outputs = networks::$network([
            $right[(FIRST + 31) % 32].xor($round[KEY[0]]),
            $right[FIRST].xor($round[KEY[1]]),
            $right[FIRST + 1].xor($round[KEY[2]]),
            $right[FIRST + 2].xor($round[KEY[3]]),
            $right[FIRST + 3].xor($round[KEY[4]]),
            $right[(FIRST + 4) % 32].xor($round[KEY[5]]),
        ]);
        const TO: [usize; 4] = [
            DESTINATION[FIRST],
            DESTINATION[FIRST + 1],
            DESTINATION[FIRST + 2],
            DESTINATION[FIRST + 3],
        ];
        $left[TO[0]] = $left[TO[0]].xor(outputs[0]);
        $left[TO[1]] = $left[TO[1]].xor(outputs[1]);
        $left[TO[2]] = $left[TO[2]].xor(outputs[2]);
        $left[TO[3]] = $left[TO[3]].xor(outputs[3]);
    }};
}

/// Does one round. Every S-box needs the results of six S-boxes of the round before (trick 4).
#[inline(always)]
fn round<W: Word>(left: &mut Half<W>, right: &Half<W>, round: &Round<W>) {
    with_box!(1, s1, left, right, round);
    with_box!(2, s2, left, right, round);
    with_box!(4, s4, left, right, round);
    with_box!(5, s5, left, right, round);
    with_box!(6, s6, left, right, round);
    with_box!(7, s7, left, right, round);
    with_box!(8, s8, left, right, round);
    with_box!(3, s3, left, right, round);
}

/// Does sixteen rounds. They leave in `left` and `right` what the standard calls L16 and R16.
#[inline(always)]
fn pass<W: Word>(left: &mut Half<W>, right: &mut Half<W>, key: &Rotor<W>, encrypt: bool) {
    let (mut left, mut right) = (left, right);
    for number in 0..16 {
        let rotation = ROTATIONS[if encrypt { number } else { 15 - number }];
        if let Some(words) = key[rotation..].first_chunk() {
            round(left, right, words);
        }
        (left, right) = (right, left);
    }
}

/// The state of a block between the initial and the final permutation.
#[derive(Clone, Copy)]
pub(super) struct Halves<W> {
    pub(super) left: Half<W>,
    pub(super) right: Half<W>,
}

impl<W: Word> Halves<W> {
    /// Does DES, or 3DES in EDE order, on the halves. The result is swapped: its first bits are in `right`.
    #[inline(always)]
    pub(super) fn cipher(&mut self, keys: &[Rotor<W>; 3], triple: bool, encrypt: bool) {
        let passes = if triple { 3 } else { 1 };
        let (mut left, mut right) = (&mut self.left, &mut self.right);
        for number in 0..passes {
            let key = if encrypt { number } else { passes - 1 - number };
            pass(left, right, &keys[key], encrypt == (number != 1));
            // Trick 2: after an odd number of passes the names are right again, except for the last swap.
            (left, right) = (right, left);
        }
    }

    /// Starts a CBC chain. The state becomes what it would be if `iv` were the result of a block before.
    #[inline(always)]
    pub(super) fn start(&mut self, iv: &[W; 64]) {
        for at in 0..32 {
            self.right[at] = iv[INITIAL[at]];
            self.left[at] = iv[INITIAL[at + 32]];
        }
    }

    /// XORs a plaintext block onto the swapped state (trick 3).
    #[inline(always)]
    pub(super) fn add_to_swapped(&mut self, block: &[W; 64]) {
        for at in 0..32 {
            let left = self.right[at].xor(block[INITIAL[at]]);
            let right = self.left[at].xor(block[INITIAL[at + 32]]);
            (self.left[at], self.right[at]) = (left, right);
        }
    }

    /// Sets the state to a block.
    #[inline(always)]
    pub(super) fn set(&mut self, block: &[W; 64]) {
        for at in 0..32 {
            self.left[at] = block[INITIAL[at]];
            self.right[at] = block[INITIAL[at + 32]];
        }
    }

    /// Writes the result to `block`.
    #[inline(always)]
    pub(super) fn put(&self, block: &mut [W; 64]) {
        for at in 0..32 {
            block[INITIAL[at]] = self.right[at];
            block[INITIAL[at + 32]] = self.left[at];
        }
    }

    /// Writes the result of a decryption. `block` changes from ciphertext to plaintext, and its ciphertext moves to
    /// `before`.
    #[inline(always)]
    pub(super) fn put_with(&self, before: &mut [W; 64], block: &mut [W; 64]) {
        for (at, &to) in INITIAL.iter().enumerate() {
            let half = if at < 32 { &self.right } else { &self.left };
            let plain = before[to].xor(half[at % 32]);
            before[to] = block[to];
            block[to] = plain;
        }
    }
}

/// Transposes the 64 × 64 bits of each column: from blocks of lanes to bits of lanes, or back.
///
/// Six steps swap smaller and smaller squares across the diagonal, from 32 × 32 bits to single bits. Each half of the
/// steps stays within eight words, which fit the registers.
#[inline(always)]
pub(super) fn transpose<W: Word>(words: &mut [W; 64]) {
    for first in 0..8 {
        let mut part = [words[first]; 8];
        for (at, part) in part.iter_mut().enumerate() {
            *part = words[first + 8 * at];
        }
        step::<W, 32>(&mut part, 4, 0x0000_0000_ffff_ffff);
        step::<W, 16>(&mut part, 2, 0x0000_ffff_0000_ffff);
        step::<W, 8>(&mut part, 1, 0x00ff_00ff_00ff_00ff);
        for (at, part) in part.iter().enumerate() {
            words[first + 8 * at] = *part;
        }
    }
    for part in words.as_chunks_mut::<8>().0 {
        step::<W, 4>(part, 4, 0x0f0f_0f0f_0f0f_0f0f);
        step::<W, 2>(part, 2, 0x3333_3333_3333_3333);
        step::<W, 1>(part, 1, 0x5555_5555_5555_5555);
    }
}

/// Swaps squares of `BY` bits between words whose indices differ by `apart`.
#[inline(always)]
fn step<W: Word, const BY: i32>(part: &mut [W; 8], apart: usize, mask: u64) {
    let mask = W::splat(mask);
    for at in 0..8 {
        if at & apart == 0 {
            let (x, y) = (part[at], part[at + apart]);
            // Computes (x >> BY ^ y) & mask.
            let swap = W::gate::<0x28>(x.right::<BY>(), y, mask);
            part[at] = x.xor(swap.left::<BY>());
            part[at + apart] = y.xor(swap);
        }
    }
}
