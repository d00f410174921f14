//! Gives tests the finalists: blocks without a mode, and parts of their tables.

use super::vector::{Vector, WORDS};
use super::{Block, Finalist, mars, mars_box};

pub use super::FinalistName;
pub use super::boxes::TABLES;

/// The S-box of MARS, and the words that mend its keys.
pub static BOX: &[u32; 512] = &mars_box::BOX;
pub const REPLACEMENTS: [u32; 4] = mars::REPLACEMENTS;

/// An expanded key.
#[allow(missing_debug_implementations, reason = "it holds a key")]
pub struct Key(Finalist);

impl Key {
    pub fn new(name: FinalistName, key: &[u8]) -> Option<Self> {
        Finalist::new(name, key).map(Self)
    }

    pub fn encrypt(&self, blocks: &mut [Block]) {
        self.0.encrypt(blocks);
    }

    pub fn decrypt(&self, blocks: &mut [Block]) {
        self.0.decrypt(blocks);
    }

    pub fn ctr(&self, nonce: [u8; 4], iv: [u8; 8], body: &mut [u8]) {
        self.0.ctr(nonce, iv, body);
    }

    pub fn cbc_encrypt(&self, iv: Block, body: &mut [u8]) {
        self.0.cbc_encrypt(iv, body);
    }

    pub fn cbc_decrypt(&self, iv: Block, body: &mut [u8]) {
        self.0.cbc_decrypt(iv, body);
    }
}

/// Mends a multiplication key of MARS.
pub fn mend(key: u32, before: u32) -> u32 {
    mars::mend(key, before)
}

/// Finds words of the whole S-box.
pub fn look_up_all(indices: [[u32; WORDS]; 2]) -> [[u32; WORDS]; 2] {
    mars::look_up_all(indices.map(Vector::from)).map(Vector::words)
}

/// Finds words of a half of the S-box.
pub fn look_up_half(half: usize, indices: [[u32; WORDS]; 4]) -> [[u32; WORDS]; 4] {
    mars::look_up_half(half, indices.map(Vector::from)).map(Vector::words)
}

/// Finds words of a table as processors without byte shuffles do.
pub fn walk<const N: usize, const INDICES: usize>(
    table: &[u32; N],
    indices: [[u32; WORDS]; INDICES],
) -> [[u32; WORDS]; INDICES] {
    mars::look_up(table, indices.map(Vector::from)).map(Vector::words)
}
