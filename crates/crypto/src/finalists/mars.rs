//! MARS (Burwick and others, "MARS - a candidate cipher for AES", revised in September 1999).
//!
//! Words of the S-box are found by a walk over all of them, in byte shuffles where the processor has them. The key
//! expansion mends the multiplication keys without a branch.

use super::lanes::{WordCipher, Words, words};
use super::mars_box::BOX;
#[cfg(target_arch = "x86_64")]
use super::mars_rows;
use super::vector::Vector;
use crate::plain::Cleansed;

const SUBKEYS: usize = 40;
/// Words of the key expansion's state.
const STATE: usize = 15;
/// Words that replace runs of equal bits, by the two lowest bits of the key.
pub(super) const REPLACEMENTS: [u32; 4] = [0xa4a8_d57b, 0x5b5d_193b, 0xc8a8_309b, 0x73f9_a978];
/// Words of the S-box that share all but the lowest four bits of their index.
const ROW: usize = 16;

pub(super) struct Mars(Cleansed<[u32; SUBKEYS]>);

impl Mars {
    /// The key has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut t = Cleansed([0u32; STATE]);
        for (place, word) in t.0.iter_mut().zip(words(key)) {
            *place = word;
        }
        t.0[key.len() / 4] = key.len() as u32 / 4;
        let mut subkeys = Cleansed([0u32; SUBKEYS]);
        for (round, part) in (0..).zip(subkeys.0.chunks_mut(SUBKEYS / 4)) {
            expand(&mut t.0, round);
            for (at, subkey) in part.iter_mut().enumerate() {
                *subkey = t.0[4 * at % STATE];
            }
        }
        for at in (5..=35).step_by(2) {
            subkeys.0[at] = mend(subkeys.0[at], subkeys.0[at - 1]);
        }
        Self(subkeys)
    }

    #[inline(always)]
    fn subkey(&self, at: usize) -> Words {
        Words::splat(self.0.0[at])
    }

    /// E of the core with the keys of a round: the outputs L, M and R.
    #[inline(always)]
    fn expansion(&self, round: usize, x: Words) -> [Words; 3] {
        let m = x + self.subkey(2 * round + 4);
        let r = (x.rol(13) * self.subkey(2 * round + 5)).rol(5);
        let left = Words(look_up_all(m.0)) ^ r;
        let m = m.rol_by(r);
        let r = r.rol(5);
        [(left ^ r).rol_by(r), m, r]
    }
}

/// An iteration of the key expansion: the linear part, then the stirring.
fn expand(t: &mut [u32; STATE], round: u32) {
    for (at, i) in (0..STATE).zip(0u32..) {
        let sum = t[(at + STATE - 7) % STATE] ^ t[(at + STATE - 2) % STATE];
        t[at] ^= sum.rotate_left(3) ^ (4 * i + round);
    }
    for _ in 0..4 {
        for at in 0..STATE {
            // One index in all lanes: the key is expanded once, and not in a hurry.
            let found = look_up_all([Vector::splat(t[(at + STATE - 1) % STATE]); 2]);
            t[at] = t[at].wrapping_add(found[0].words()[0]).rotate_left(9);
        }
    }
}

/// Makes a multiplication key: the two lowest bits are set, and inner bits of runs of ten equal bits or more change.
pub(super) fn mend(key: u32, before: u32) -> u32 {
    let w = key | 3;
    // Bit n: bits n and n + 1 are equal.
    let equal = !(w ^ (w >> 1)) & 0x7fff_ffff;
    // Bit n: a run of ten begins at n. Nine bits of `equal` in a row say so.
    let by_2 = equal & equal >> 1;
    let by_4 = by_2 & by_2 >> 2;
    let begins = by_4 & by_4 >> 4 & equal >> 8;
    let to_2 = begins | begins << 1;
    let to_4 = to_2 | to_2 << 2;
    let member = to_4 | to_4 << 4 | to_2 << 8;
    // Only bits 2 to 30 that are like both of their neighbours change.
    let mask = member & equal & equal << 1 & 0x7fff_fffc;
    let replacement = (0..).zip(REPLACEMENTS).fold(0, |found, (at, word)| {
        let differs = (key & 3) ^ at;
        // All ones where nothing differs.
        found | word & (differs.wrapping_sub(1) >> 31).wrapping_neg()
    });
    w ^ replacement.rotate_left(before & 31) & mask
}

/// Finds a word for each index, of which as many bits count as the table needs. Every word of the table is read: first
/// the one of each row that the lowest four bits name, then the row.
#[inline(always)]
pub(super) fn look_up<const N: usize, const INDICES: usize>(
    table: &[u32; N],
    indices: [Vector; INDICES],
) -> [Vector; INDICES] {
    let none = Vector::splat(0);
    let low = indices.map(|index| index & Vector::splat(ROW as u32 - 1));
    let high = indices.map(|index| index & Vector::splat((N - ROW) as u32));
    let columns: [[Vector; INDICES]; ROW] =
        std::array::from_fn(|column| low.map(|index| index.equal(Vector::splat(column as u32))));
    let mut found = [none; INDICES];
    for (row, words) in table.as_chunks::<ROW>().0.iter().enumerate() {
        let mut of_row = [none; INDICES];
        for (word, column) in words.iter().zip(&columns) {
            let word = Vector::splat(*word);
            for (of_row, column) in of_row.iter_mut().zip(column) {
                *of_row = *of_row | word & *column;
            }
        }
        let row = Vector::splat((row * ROW) as u32);
        for ((found, of_row), index) in found.iter_mut().zip(of_row).zip(high) {
            *found = *found | of_row & index.equal(row);
        }
    }
    found
}

/// Finds words of the whole S-box.
#[inline(never)]
pub(super) fn look_up_all(indices: [Vector; 2]) -> [Vector; 2] {
    #[cfg(target_arch = "x86_64")]
    if mars_rows::available() {
        // SAFETY: the processor has the instructions.
        return unsafe { mars_rows::look_up(indices) };
    }
    look_up(&BOX, indices)
}

/// Finds words of a half of the S-box.
#[inline(never)]
pub(super) fn look_up_half(half: usize, indices: [Vector; 4]) -> [Vector; 4] {
    #[cfg(target_arch = "x86_64")]
    if mars_rows::available() {
        // SAFETY: the processor has the instructions.
        return unsafe { mars_rows::look_up_half(half, indices) };
    }
    let (halves, _) = BOX.as_chunks::<256>();
    look_up(&halves[half], indices)
}

fn look_up_pair(half: usize, [first, second]: [Words; 2]) -> [Words; 2] {
    let ([a, b], [c, d]) = (first.0, second.0);
    let [a, b, c, d] = look_up_half(half, [a, b, c, d]);
    [Words([a, b]), Words([c, d])]
}

/// The words that a word's bytes name: the lowest and the third byte in S0, the others in S1.
#[inline(always)]
fn mixing_words(a: Words, [s0, s1]: [[u32; 2]; 2]) -> [Words; 4] {
    let [first, second] = look_up_pair(0, s0.map(|by| a.shr(by)));
    let [third, fourth] = look_up_pair(1, s1.map(|by| a.shr(by)));
    [first, second, third, fourth]
}

/// Shifts that bring the indices of forward mixing down, for S0 and S1.
const FORWARD: [[u32; 2]; 2] = [[0, 16], [8, 24]];
/// The same for backward mixing.
const BACKWARD: [[u32; 2]; 2] = [[8, 24], [0, 16]];

#[inline(always)]
fn forward([mut a, mut b, mut c, mut d]: [Words; 4], round: usize) -> [Words; 4] {
    let [s0_0, s0_16, s1_8, s1_24] = mixing_words(a, FORWARD);
    b = (b ^ s0_0) + s1_8;
    c = c + s0_16;
    d = d ^ s1_24;
    a = a.rol(8);
    match round {
        0 | 4 => a = a + d,
        1 | 5 => a = a + b,
        _ => {}
    }
    [b, c, d, a]
}

#[inline(always)]
fn forward_back([b, c, d, a]: [Words; 4], round: usize) -> [Words; 4] {
    let a = match round {
        0 | 4 => a - d,
        1 | 5 => a - b,
        _ => a,
    };
    let a = a.ror(8);
    let [s0_0, s0_16, s1_8, s1_24] = mixing_words(a, FORWARD);
    [a, (b - s1_8) ^ s0_0, c - s0_16, d ^ s1_24]
}

#[inline(always)]
fn backward([mut a, mut b, mut c, mut d]: [Words; 4], round: usize) -> [Words; 4] {
    match round {
        2 | 6 => a = a - d,
        3 | 7 => a = a - b,
        _ => {}
    }
    let [s0_8, s0_24, s1_0, s1_16] = mixing_words(a, BACKWARD);
    b = b ^ s1_0;
    c = c - s0_24;
    d = (d - s1_16) ^ s0_8;
    [b, c, d, a.rol(24)]
}

#[inline(always)]
fn backward_back([b, c, d, a]: [Words; 4], round: usize) -> [Words; 4] {
    let a = a.ror(24);
    let [s0_8, s0_24, s1_0, s1_16] = mixing_words(a, BACKWARD);
    let d = (d ^ s0_8) + s1_16;
    let c = c + s0_24;
    let b = b ^ s1_0;
    let a = match round {
        2 | 6 => a + d,
        3 | 7 => a + b,
        _ => a,
    };
    [a, b, c, d]
}

impl WordCipher for Mars {
    fn encrypt(&self, mut x: [Words; 4]) -> [Words; 4] {
        x = std::array::from_fn(|at| x[at] + self.subkey(at));
        for round in 0..8 {
            x = forward(x, round);
        }
        for round in 0..16 {
            let [a, b, c, d] = x;
            let [left, m, r] = self.expansion(round, a);
            let (b, d) = match round < 8 {
                true => (b + left, d ^ r),
                false => (b ^ r, d + left),
            };
            x = [b, c + m, d, a.rol(13)];
        }
        for round in 0..8 {
            x = backward(x, round);
        }
        std::array::from_fn(|at| x[at] - self.subkey(SUBKEYS - 4 + at))
    }

    fn decrypt(&self, mut x: [Words; 4]) -> [Words; 4] {
        x = std::array::from_fn(|at| x[at] + self.subkey(SUBKEYS - 4 + at));
        for round in (0..8).rev() {
            x = backward_back(x, round);
        }
        for round in (0..16).rev() {
            let [b, c, d, a] = x;
            let a = a.ror(13);
            let [left, m, r] = self.expansion(round, a);
            let (b, d) = match round < 8 {
                true => (b - left, d ^ r),
                false => (b ^ r, d - left),
            };
            x = [a, b, c - m, d];
        }
        for round in (0..8).rev() {
            x = forward_back(x, round);
        }
        std::array::from_fn(|at| x[at] - self.subkey(at))
    }
}
