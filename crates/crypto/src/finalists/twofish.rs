//! Twofish (Schneier and others, "Twofish: A 128-Bit Block Cipher").
//!
//! Many blocks are bitsliced: a plane is the same bit of each, and the S-boxes are computed from boxes of four bits.
//! Few blocks, as in sealing with CBC, are done one by one. Then each byte of an S-box is found by a walk over the 256
//! bytes that the key made of it.

use std::ops::BitXor;

use super::Block;
use super::boxes::*;
use super::lanes;
use super::planes::{self, Plane, Word};
use super::vector::{self, Vector};
use crate::plain::Cleansed;

const ROUNDS: usize = 16;
const SUBKEYS: usize = 8 + 2 * ROUNDS;
/// Blocks from which on planes are faster.
const MANY: usize = 32;
/// Words of the longest key, and of the S-boxes' key that comes from it.
const BOX_KEYS: usize = 4;

pub(super) struct Twofish {
    subkeys: Cleansed<[u32; SUBKEYS]>,
    /// S of the specification, its last word first: in the order in which h uses it.
    box_keys: Cleansed<[u32; BOX_KEYS]>,
    /// Words of `box_keys` that the key's length makes.
    box_key_len: usize,
    /// The byte that the chain of q of each place makes of every byte.
    boxes: [Cleansed<[u8; 256]>; 4],
}

impl Twofish {
    /// The key has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let box_key_len = key.len() / 8;
        let mut box_keys = Cleansed([0; BOX_KEYS]);
        for (place, part) in box_keys.0.iter_mut().zip(key.as_chunks().0) {
            *place = reed_solomon(part);
        }
        let mut made = Self {
            subkeys: subkeys(key),
            box_keys,
            box_key_len,
            boxes: std::array::from_fn(|_| Cleansed([0; 256])),
        };
        let keys = made.box_planes();
        for (place, filled) in made.boxes.iter_mut().enumerate() {
            planes::every_byte(&mut filled.0, |byte| chain(place, byte, &keys));
        }
        made
    }

    /// The key of the S-boxes as planes, for every block alike.
    fn box_planes(&self) -> BoxKeys {
        BoxKeys::new(self.box_key_len, |at| {
            planes::constants(0, 0, self.box_keys.0[at])
        })
    }

    fn subkey(&self, at: usize) -> u32 {
        self.subkeys.0[at]
    }

    /// F of a round: what its two outputs add to or take from the other half of the block.
    fn f(&self, round: usize, box_keys: &BoxKeys, x0: &Word, x1: &Word) -> [Word; 2] {
        let t0 = h(x0, box_keys);
        let t1 = h(&planes::rol(x1, 8), box_keys);
        let once = planes::add(&t0, &t1);
        let twice = planes::add(&once, &t1);
        [
            planes::add(&once, &planes::constant(self.subkey(2 * round + 8))),
            planes::add(&twice, &planes::constant(self.subkey(2 * round + 9))),
        ]
    }

    fn whiten(&self, state: &mut [Word; 4], first: usize) {
        for (at, word) in (first..).zip(state) {
            *word = planes::xor(word, &planes::constant(self.subkey(at)));
        }
    }

    pub(super) fn encrypt(&self, blocks: &mut [Block]) {
        if blocks.len() < MANY {
            blocks.iter_mut().for_each(|block| self.encrypt_one(block));
            return;
        }
        let box_keys = self.box_planes();
        planes::each(blocks, |state| {
            self.whiten(state, 0);
            for round in 0..ROUNDS {
                let [x0, x1, x2, x3] = state;
                let [f0, f1] = self.f(round, &box_keys, x0, x1);
                let new0 = planes::rol(&planes::xor(x2, &f0), 31);
                let new1 = planes::xor(&planes::rol(x3, 1), &f1);
                *state = [new0, new1, *x0, *x1];
            }
            let [x0, x1, x2, x3] = *state;
            *state = [x2, x3, x0, x1];
            self.whiten(state, 4);
        });
    }

    pub(super) fn decrypt(&self, blocks: &mut [Block]) {
        if blocks.len() < MANY {
            blocks.iter_mut().for_each(|block| self.decrypt_one(block));
            return;
        }
        let box_keys = self.box_planes();
        planes::each(blocks, |state| {
            self.whiten(state, 4);
            for round in (0..ROUNDS).rev() {
                let [x0, x1, x2, x3] = state;
                let [f0, f1] = self.f(round, &box_keys, x0, x1);
                let new0 = planes::xor(&planes::rol(x2, 1), &f0);
                let new1 = planes::rol(&planes::xor(x3, &f1), 31);
                *state = [new0, new1, *x0, *x1];
            }
            let [x0, x1, x2, x3] = *state;
            *state = [x2, x3, x0, x1];
            self.whiten(state, 0);
        });
    }

    /// g of the specification: h with the key of the S-boxes.
    fn g(&self, x: u32) -> u32 {
        let bytes = x.to_le_bytes();
        let bytes = std::array::from_fn(|place| look_up(&self.boxes[place].0, bytes[place]));
        let half = bytes.map(halved_byte);
        u32::from_le_bytes(mds([bytes, half, half.map(halved_byte)]))
    }

    fn f_one(&self, round: usize, x0: u32, x1: u32) -> [u32; 2] {
        let (t0, t1) = (self.g(x0), self.g(x1.rotate_left(8)));
        let once = t0.wrapping_add(t1);
        [
            once.wrapping_add(self.subkey(2 * round + 8)),
            once.wrapping_add(t1)
                .wrapping_add(self.subkey(2 * round + 9)),
        ]
    }

    /// The words of a block with the subkeys from `first` on added to them (XOR).
    fn whitened(&self, words: [u32; 4], first: usize) -> [u32; 4] {
        std::array::from_fn(|at| words[at] ^ self.subkey(first + at))
    }

    fn encrypt_one(&self, block: &mut Block) {
        let mut state = self.whitened(words(block), 0);
        for round in 0..ROUNDS {
            let [x0, x1, x2, x3] = state;
            let [f0, f1] = self.f_one(round, x0, x1);
            state = [(x2 ^ f0).rotate_right(1), x3.rotate_left(1) ^ f1, x0, x1];
        }
        let [x0, x1, x2, x3] = state;
        set_words(block, self.whitened([x2, x3, x0, x1], 4));
    }

    fn decrypt_one(&self, block: &mut Block) {
        let mut state = self.whitened(words(block), 4);
        for round in (0..ROUNDS).rev() {
            let [x0, x1, x2, x3] = state;
            let [f0, f1] = self.f_one(round, x0, x1);
            state = [x2.rotate_left(1) ^ f0, (x3 ^ f1).rotate_right(1), x0, x1];
        }
        let [x0, x1, x2, x3] = state;
        set_words(block, self.whitened([x2, x3, x0, x1], 0));
    }
}

fn words(block: &Block) -> [u32; 4] {
    let (words, _) = block.as_chunks();
    std::array::from_fn(|at| u32::from_le_bytes(words[at]))
}

fn set_words(block: &mut Block, words: [u32; 4]) {
    for (place, word) in block.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// Finds the byte at a secret index. Every byte of the table is read.
#[inline(always)]
fn look_up(table: &[u8; 256], index: u8) -> u8 {
    let index = Vector::splat_byte(index);
    let mut found = Vector::splat(0);
    let (rows, _) = table.as_chunks::<{ vector::BYTES }>();
    for (row, bytes) in rows.iter().enumerate() {
        let indices = std::array::from_fn(|at| (row * vector::BYTES + at) as u8);
        let here = index.equal_bytes(Vector::of_bytes(&indices));
        found = found ^ (here & Vector::of_bytes(bytes));
    }
    found.sum_bytes()
}

/// Half of a byte, as [`halved`] makes it.
fn halved_byte(byte: u8) -> u8 {
    byte >> 1 ^ 0xb4 & (byte & 1).wrapping_neg()
}

/// The permutations q0 and q1 of the specification, on the planes of a byte.
macro_rules! permutation {
    ($name:ident $t0:ident $t1:ident $t2:ident $t3:ident) => {
        #[inline(always)]
        fn $name([b0, b1, b2, b3, a0, a1, a2, a3]: Byte) -> Byte {
            let (a, b) = nibbles([a0, a1, a2, a3], [b0, b1, b2, b3]);
            let (a, b) = nibbles($t0(a), $t1(b));
            let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = ($t2(a), $t3(b));
            [a0, a1, a2, a3, b0, b1, b2, b3]
        }
    };
}

/// The planes of a byte, the lowest bit first.
type Byte = [Plane; 8];

permutation!(q0 twofish_q0_t0 twofish_q0_t1 twofish_q0_t2 twofish_q0_t3);
permutation!(q1 twofish_q1_t0 twofish_q1_t1 twofish_q1_t2 twofish_q1_t3);

/// a ⊕ b, and a ⊕ (b rotated right) ⊕ 8a.
#[inline(always)]
fn nibbles(a: [Plane; 4], b: [Plane; 4]) -> ([Plane; 4], [Plane; 4]) {
    let sum = std::array::from_fn(|at| a[at] ^ b[at]);
    let turned = [a[0] ^ b[1], a[1] ^ b[2], a[2] ^ b[3], a[3] ^ b[0] ^ a[0]];
    (sum, turned)
}

/// Which q a byte goes through in front of each key word, of words 3, 2, 1, 0, and behind them all: true is q1.
const ORDER: [[bool; 5]; 4] = [
    [true, true, false, false, true],
    [false, true, true, false, false],
    [false, false, false, true, true],
    [true, false, true, true, false],
];

#[inline(always)]
fn q(second: bool, byte: Byte) -> Byte {
    match second {
        true => q1(byte),
        false => q0(byte),
    }
}

/// Key words of h as planes, in the order of use: the last word of the specification first.
struct BoxKeys {
    planes: Cleansed<[u64; 32 * BOX_KEYS]>,
    len: usize,
}

impl BoxKeys {
    fn new(len: usize, word: impl Fn(usize) -> planes::NarrowWord) -> Self {
        let mut planes = Cleansed([0; 32 * BOX_KEYS]);
        for (at, place) in planes.0.as_chunks_mut().0.iter_mut().enumerate().take(len) {
            *place = word(at);
        }
        Self { planes, len }
    }

    /// Adds the byte at this place of a key word to a byte.
    #[inline(always)]
    fn add(&self, word: usize, place: usize, byte: &mut Byte) {
        let planes = &self.planes.0[32 * word + 8 * place..];
        for (plane, key) in byte.iter_mut().zip(planes) {
            *plane = *plane ^ Plane::of([*key; 2]);
        }
    }
}

/// The byte that leaves the chain of q of a place.
#[inline(always)]
fn chain(place: usize, mut byte: Byte, keys: &BoxKeys) -> Byte {
    let order = &ORDER[place];
    for (word, second) in order[BOX_KEYS - keys.len..BOX_KEYS].iter().enumerate() {
        byte = q(*second, byte);
        keys.add(word, place, &mut byte);
    }
    q(order[BOX_KEYS], byte)
}

/// h of the specification.
fn h(x: &Word, keys: &BoxKeys) -> Word {
    let (bytes, _) = x.as_chunks();
    let bytes: [Byte; 4] = std::array::from_fn(|place| chain(place, bytes[place], keys));
    let half = bytes.map(halved);
    let quarter = half.map(halved);
    let bits: [[Plane; 4]; 8] = std::array::from_fn(|bit| {
        mds([bytes, half, quarter].map(|bytes| bytes.map(|byte| byte[bit])))
    });
    std::array::from_fn(|plane| bits[plane % 8][plane / 8])
}

/// The product of the MDS matrix and four bytes, or one bit of each; their halves and quarters go in with them. The
/// matrix' numbers 5B and EF are 1 + 1/4 and 1 + 1/2 + 1/4 in the field.
#[inline(always)]
fn mds<T: Copy + BitXor<Output = T>>([one, half, quarter]: [[T; 4]; 3]) -> [T; 4] {
    let x5b: [T; 4] = std::array::from_fn(|at| one[at] ^ quarter[at]);
    let xef: [T; 4] = std::array::from_fn(|at| x5b[at] ^ half[at]);
    [
        one[0] ^ xef[1] ^ x5b[2] ^ x5b[3],
        x5b[0] ^ xef[1] ^ xef[2] ^ one[3],
        xef[0] ^ x5b[1] ^ one[2] ^ xef[3],
        xef[0] ^ one[1] ^ xef[2] ^ x5b[3],
    ]
}

/// Half of a byte in GF(2^8) modulo x^8 + x^6 + x^5 + x^3 + 1.
#[inline(always)]
fn halved([b0, b1, b2, b3, b4, b5, b6, b7]: Byte) -> Byte {
    [b1, b2, b3 ^ b0, b4, b5 ^ b0, b6 ^ b0, b7, b0]
}

/// The word of the S-boxes' key that eight bytes of the key make: the product with RS.
fn reed_solomon(part: &[u8; 8]) -> u32 {
    const RS: [[u8; 8]; 4] = [
        [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
        [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
        [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
        [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
    ];
    u32::from_le_bytes(RS.map(|row| {
        let products = row
            .iter()
            .zip(part)
            .map(|(factor, byte)| times(*factor, *byte));
        products.fold(0, |sum, product| sum ^ product)
    }))
}

/// The product in GF(2^8) modulo x^8 + x^6 + x^3 + x^2 + 1. The steps depend on the public factor alone.
fn times(public: u8, mut secret: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= secret & (public >> bit & 1).wrapping_neg();
        secret = secret << 1 ^ 0x4d & (secret >> 7).wrapping_neg();
    }
    product
}

/// Expands the key. 20 lanes have h of the even numbers under the even words of the key, and 20 that of the odd ones.
fn subkeys(key: &[u8]) -> Cleansed<[u32; SUBKEYS]> {
    const EVEN: u64 = (1 << (SUBKEYS / 2)) - 1;
    let mut words = Cleansed([0; 2 * BOX_KEYS]);
    for (place, word) in words.0.iter_mut().zip(lanes::words(key)) {
        *place = word;
    }
    let len = key.len() / 8;
    let keys = BoxKeys::new(len, |at| {
        let pair = 2 * (len - 1 - at);
        planes::constants(EVEN, words.0[pair], words.0[pair + 1])
    });
    let number = |lane: u64| match lane < 20 {
        true => 2 * lane,
        false => 2 * (lane - 20) + 1,
    };
    // All four bytes of an input are its number.
    let input = std::array::from_fn(|bit| {
        let lanes = 0..SUBKEYS as u64;
        Plane::of([
            lanes
                .map(|lane| (number(lane) >> (bit % 8) & 1) << lane)
                .sum(),
            0,
        ])
    });
    let output = Cleansed(h(&input, &keys).map(|plane| plane.halves()[0]));
    let word = |lane: usize| {
        let bits = output
            .0
            .iter()
            .zip(0..)
            .map(|(plane, bit)| ((plane >> lane & 1) as u32) << bit);
        bits.fold(0, |word, bit| word | bit)
    };
    let mut subkeys = Cleansed([0; SUBKEYS]);
    for (at, [even, odd]) in subkeys.0.as_chunks_mut().0.iter_mut().enumerate() {
        let (a, b): (u32, u32) = (word(at), word(at + SUBKEYS / 2).rotate_left(8));
        *even = a.wrapping_add(b);
        *odd = even.wrapping_add(b).rotate_left(9);
    }
    subkeys
}
