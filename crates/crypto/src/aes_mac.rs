//! AES-XCBC-MAC (RFC 3566) and AES-CMAC (RFC 4493): CBC-MAC whose last block is masked.
//!
//! The two algorithms differ only in how the masks, and XCBC's block key, are derived from the key:
//!
//! ```text
//! XCBC  block key = E(K, 01…)   mask of a whole block = E(K, 02…)   of a padded one = E(K, 03…)
//! CMAC  block key = K           mask of a whole block = E(K, 0)·x   of a padded one = E(K, 0)·x²
//! ```

use crate::aes::{BLOCK, EncryptKey};
use crate::plain::Cleansed;

pub(crate) struct AesMac {
    key: EncryptKey,
    whole: Cleansed<[u8; BLOCK]>,
    padded: Cleansed<[u8; BLOCK]>,
}

impl AesMac {
    pub(crate) fn xcbc(key: &[u8]) -> Option<Self> {
        let key = EncryptKey::new(key)?;
        let derived = |byte| Cleansed(key.encrypt_block([byte; BLOCK]));
        Some(Self {
            key: EncryptKey::new(&derived(1).0)?,
            whole: derived(2),
            padded: derived(3),
        })
    }

    pub(crate) fn cmac(key: &[u8]) -> Option<Self> {
        let key = EncryptKey::new(key)?;
        let zero = Cleansed(key.encrypt_block([0; BLOCK]));
        let whole = Cleansed(doubled(&zero.0));
        let padded = Cleansed(doubled(&whole.0));
        Some(Self { key, whole, padded })
    }

    /// Computes the MAC over `message` and `suffix`, not truncated.
    pub(crate) fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; BLOCK] {
        // The last block, whole or not, is held back. Everything before it is chained.
        let mut last = Tail::default();
        let mut state = [0; BLOCK];
        for part in [message, suffix] {
            state = last.take(&self.key, state, part);
        }
        let Tail { mut block, len } = last;
        let mask = match block.get_mut(len) {
            None => &self.whole.0,
            Some(next) => {
                *next = 0x80;
                &self.padded.0
            }
        };
        for ((byte, mask), state) in block.iter_mut().zip(mask).zip(state) {
            *byte ^= mask ^ state;
        }
        self.key.encrypt_block(block)
    }
}

/// Up to one block that is not chained yet. Zeros follow its `len` bytes.
#[derive(Default)]
struct Tail {
    block: [u8; BLOCK],
    len: usize,
}

impl Tail {
    /// Chains all blocks of the tail and `part` but the last one, and keeps that block.
    fn take(&mut self, key: &EncryptKey, mut state: [u8; BLOCK], part: &[u8]) -> [u8; BLOCK] {
        let (fill, rest) = part.split_at(part.len().min(BLOCK - self.len));
        self.block[self.len..self.len + fill.len()].copy_from_slice(fill);
        self.len += fill.len();
        if rest.is_empty() {
            return state;
        }
        state = key.chain(state, &self.block);
        let (chained, kept) = rest.split_at((rest.len() - 1) / BLOCK * BLOCK);
        self.block = [0; BLOCK];
        self.block[..kept.len()].copy_from_slice(kept);
        self.len = kept.len();
        key.chain(state, chained)
    }
}

/// Multiplies by x in GF(2^128), in constant time (RFC 4493 §2.3).
fn doubled(block: &[u8; BLOCK]) -> [u8; BLOCK] {
    let value = u128::from_be_bytes(*block);
    ((value << 1) ^ ((value >> 127) * 0x87)).to_be_bytes()
}
