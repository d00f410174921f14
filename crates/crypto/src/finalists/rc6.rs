//! RC6-32/20/b (Rivest, Robshaw, Sidney and Yin, "The RC6 Block Cipher").

use zeroize::Zeroizing;

use super::lanes::{WordCipher, Words, words};
use crate::plain::Cleansed;

const ROUNDS: usize = 20;
const SUBKEYS: usize = 2 * ROUNDS + 4;

pub(super) struct Rc6(Cleansed<[u32; SUBKEYS]>);

impl Rc6 {
    /// The key has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut s = Cleansed([0u32; SUBKEYS]);
        for (at, word) in (0..).zip(&mut s.0) {
            *word = 0x9e37_79b9_u32.wrapping_mul(at).wrapping_add(0xb7e1_5163);
        }
        let mut l: Zeroizing<Vec<u32>> = Zeroizing::new(words(key).collect());
        let (mut a, mut b) = (0u32, 0u32);
        for step in 0..3 * SUBKEYS {
            let (i, j) = (step % SUBKEYS, step % l.len());
            a = s.0[i].wrapping_add(a).wrapping_add(b).rotate_left(3);
            s.0[i] = a;
            let sum = a.wrapping_add(b);
            b = l[j].wrapping_add(sum).rotate_left(sum & 31);
            l[j] = b;
        }
        Self(s)
    }

    #[inline(always)]
    fn subkey(&self, at: usize) -> Words {
        Words::splat(self.0.0[at])
    }
}

#[inline(always)]
fn f(x: Words) -> Words {
    (x * (x + x + Words::splat(1))).rol(5)
}

impl WordCipher for Rc6 {
    #[inline(always)]
    fn encrypt(&self, [mut a, mut b, mut c, mut d]: [Words; 4]) -> [Words; 4] {
        b = b + self.subkey(0);
        d = d + self.subkey(1);
        for round in 1..=ROUNDS {
            let (t, u) = (f(b), f(d));
            a = (a ^ t).rol_by(u) + self.subkey(2 * round);
            c = (c ^ u).rol_by(t) + self.subkey(2 * round + 1);
            (a, b, c, d) = (b, c, d, a);
        }
        [
            a + self.subkey(SUBKEYS - 2),
            b,
            c + self.subkey(SUBKEYS - 1),
            d,
        ]
    }

    #[inline(always)]
    fn decrypt(&self, [mut a, mut b, mut c, mut d]: [Words; 4]) -> [Words; 4] {
        a = a - self.subkey(SUBKEYS - 2);
        c = c - self.subkey(SUBKEYS - 1);
        for round in (1..=ROUNDS).rev() {
            (a, b, c, d) = (d, a, b, c);
            let (t, u) = (f(b), f(d));
            a = (a - self.subkey(2 * round)).ror_by(u) ^ t;
            c = (c - self.subkey(2 * round + 1)).ror_by(t) ^ u;
        }
        [a, b - self.subkey(0), c, d - self.subkey(1)]
    }
}
