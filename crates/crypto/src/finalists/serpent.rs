//! Serpent (Anderson, Biham and Knudsen, "Serpent: A Proposal for the Advanced Encryption Standard"), in its bitslice
//! form: an S-box works on the 32 bits of four words.

use zeroize::Zeroizing;

use super::boxes::*;
use super::lanes::{WordCipher, Words, words};
use crate::plain::Cleansed;

const ROUNDS: usize = 32;

pub(super) struct Serpent(Cleansed<[u32; 4 * (ROUNDS + 1)]>);

impl Serpent {
    /// The key has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut prekeys = Zeroizing::new([0u32; 8 + 4 * (ROUNDS + 1)]);
        for (place, word) in prekeys.iter_mut().zip(words(key)) {
            *place = word;
        }
        // A shorter key is padded with a one bit.
        if let Some(place) = prekeys[..8].get_mut(key.len() / 4) {
            *place = 1;
        }
        for at in 8..prekeys.len() {
            let sum = prekeys[at - 8] ^ prekeys[at - 5] ^ prekeys[at - 3] ^ prekeys[at - 1];
            prekeys[at] = (sum ^ 0x9e37_79b9 ^ (at as u32 - 8)).rotate_left(11);
        }
        let mut subkeys = Cleansed([0; 4 * (ROUNDS + 1)]);
        let (prekeys, _) = prekeys[8..].as_chunks::<4>();
        for (at, (subkey, prekey)) in subkeys
            .0
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(prekeys)
            .enumerate()
        {
            *subkey = substitute((ROUNDS + 3 - at) % 8, *prekey);
        }
        Self(subkeys)
    }

    #[inline(always)]
    fn mix(&self, round: usize, state: [Words; 4]) -> [Words; 4] {
        std::array::from_fn(|at| state[at] ^ Words::splat(self.0.0[4 * round + at]))
    }
}

/// The number of the box is public.
fn substitute(number: usize, x: [u32; 4]) -> [u32; 4] {
    match number {
        0 => serpent_0(x),
        1 => serpent_1(x),
        2 => serpent_2(x),
        3 => serpent_3(x),
        4 => serpent_4(x),
        5 => serpent_5(x),
        6 => serpent_6(x),
        _ => serpent_7(x),
    }
}

#[inline(always)]
fn linear([mut a, mut b, mut c, mut d]: [Words; 4]) -> [Words; 4] {
    a = a.rol(13);
    c = c.rol(3);
    b = (b ^ a ^ c).rol(1);
    d = (d ^ c ^ a.shl(3)).rol(7);
    a = (a ^ b ^ d).rol(5);
    c = (c ^ d ^ b.shl(7)).rol(22);
    [a, b, c, d]
}

#[inline(always)]
fn inverse([mut a, mut b, mut c, mut d]: [Words; 4]) -> [Words; 4] {
    c = c.ror(22) ^ d ^ b.shl(7);
    a = a.ror(5) ^ b ^ d;
    d = d.ror(7) ^ c ^ a.shl(3);
    b = b.ror(1) ^ a ^ c;
    [a.ror(13), b, c.ror(3), d]
}

impl WordCipher for Serpent {
    #[inline(always)]
    fn encrypt(&self, mut x: [Words; 4]) -> [Words; 4] {
        for round in (0..ROUNDS).step_by(8) {
            x = linear(serpent_0(self.mix(round, x)));
            x = linear(serpent_1(self.mix(round + 1, x)));
            x = linear(serpent_2(self.mix(round + 2, x)));
            x = linear(serpent_3(self.mix(round + 3, x)));
            x = linear(serpent_4(self.mix(round + 4, x)));
            x = linear(serpent_5(self.mix(round + 5, x)));
            x = linear(serpent_6(self.mix(round + 6, x)));
            x = serpent_7(self.mix(round + 7, x));
            // The last round has a second subkey in the place of the linear transform.
            x = match round + 8 {
                ROUNDS => self.mix(ROUNDS, x),
                _ => linear(x),
            };
        }
        x
    }

    #[inline(always)]
    fn decrypt(&self, mut x: [Words; 4]) -> [Words; 4] {
        for round in (0..ROUNDS).step_by(8).rev() {
            x = match round + 8 {
                ROUNDS => self.mix(ROUNDS, x),
                _ => inverse(x),
            };
            x = self.mix(round + 7, serpent_inverse_7(x));
            x = self.mix(round + 6, serpent_inverse_6(inverse(x)));
            x = self.mix(round + 5, serpent_inverse_5(inverse(x)));
            x = self.mix(round + 4, serpent_inverse_4(inverse(x)));
            x = self.mix(round + 3, serpent_inverse_3(inverse(x)));
            x = self.mix(round + 2, serpent_inverse_2(inverse(x)));
            x = self.mix(round + 1, serpent_inverse_1(inverse(x)));
            x = self.mix(round, serpent_inverse_0(inverse(x)));
        }
        x
    }
}
