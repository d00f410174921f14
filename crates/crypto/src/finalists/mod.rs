//! The AES finalists besides Rijndael, in counter mode and CBC: the ciphers of an adaptive cryptographic engine
//! (docs/ace.md), for the time in which its FPGA cannot carry a packet, and to compare its bytes with.
//!
//! No load or branch depends on a key or on a text. Many blocks are worked on at once. So counter mode and opening with
//! CBC are fast, and sealing with CBC, where each block needs the one before, is slow.

mod boxes;
mod lanes;
mod mars;
mod mars_box;
#[cfg(target_arch = "x86_64")]
mod mars_rows;
mod planes;
mod rc6;
mod serpent;
#[cfg(feature = "generators")]
pub mod testing;
mod twofish;
mod vector;

use lanes::WordCipher;
use mars::Mars;
use rc6::Rc6;
use serpent::Serpent;
use twofish::Twofish;

use crate::plain::cleanse_all;

/// Length of a block in bytes.
pub(crate) const BLOCK: usize = 16;

type Block = [u8; BLOCK];

/// Blocks that counter mode and CBC take at once.
const CHUNK: usize = planes::BLOCKS;

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalistName {
    Serpent,
    Twofish,
    Rc6,
    Mars,
}

/// An expanded key. It serves both directions, and is zeroised on drop.
pub(crate) struct Finalist(Expanded);

/// The keys are boxed because their sizes differ much.
enum Expanded {
    Serpent(Box<Serpent>),
    Twofish(Box<Twofish>),
    Rc6(Box<Rc6>),
    Mars(Box<Mars>),
}

impl Finalist {
    /// Returns `None` unless the key has 16, 24 or 32 bytes.
    pub(crate) fn new(name: FinalistName, key: &[u8]) -> Option<Self> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        Some(Self(match name {
            FinalistName::Serpent => Expanded::Serpent(Box::new(Serpent::new(key))),
            FinalistName::Twofish => Expanded::Twofish(Box::new(Twofish::new(key))),
            FinalistName::Rc6 => Expanded::Rc6(Box::new(Rc6::new(key))),
            FinalistName::Mars => Expanded::Mars(Box::new(Mars::new(key))),
        }))
    }

    fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            Expanded::Serpent(key) => lanes::each(blocks, |state| key.encrypt(state)),
            Expanded::Twofish(key) => key.encrypt(blocks),
            Expanded::Rc6(key) => lanes::each(blocks, |state| key.encrypt(state)),
            Expanded::Mars(key) => lanes::each(blocks, |state| key.encrypt(state)),
        }
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            Expanded::Serpent(key) => lanes::each(blocks, |state| key.decrypt(state)),
            Expanded::Twofish(key) => key.decrypt(blocks),
            Expanded::Rc6(key) => lanes::each(blocks, |state| key.decrypt(state)),
            Expanded::Mars(key) => lanes::each(blocks, |state| key.decrypt(state)),
        }
    }

    /// Applies counter mode in place, with one as the first block's counter (RFC 3686 §4). `body` must be shorter than
    /// 2^32 blocks, so that no counter comes twice.
    pub(crate) fn ctr(&self, nonce: [u8; 4], iv: [u8; 8], body: &mut [u8]) {
        let mut stream = [[0; BLOCK]; CHUNK];
        let mut counter = 1u32;
        for part in body.chunks_mut(CHUNK * BLOCK) {
            let stream = &mut stream[..part.len().div_ceil(BLOCK)];
            for block in stream.iter_mut() {
                block[..4].copy_from_slice(&nonce);
                block[4..12].copy_from_slice(&iv);
                block[12..].copy_from_slice(&counter.to_be_bytes());
                counter = counter.wrapping_add(1);
            }
            self.encrypt(stream);
            for (byte, key) in part.iter_mut().zip(stream.as_flattened()) {
                *byte ^= key;
            }
        }
        cleanse_all(&mut stream);
    }

    /// Encrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn cbc_encrypt(&self, iv: Block, body: &mut [u8]) {
        let (blocks, rest) = body.as_chunks_mut::<BLOCK>();
        assert!(rest.is_empty());
        let mut before = iv;
        for block in blocks {
            xor(block, &before);
            self.encrypt(std::slice::from_mut(block));
            before = *block;
        }
    }

    /// Decrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn cbc_decrypt(&self, iv: Block, body: &mut [u8]) {
        let (blocks, rest) = body.as_chunks_mut::<BLOCK>();
        assert!(rest.is_empty());
        let mut before = iv;
        let mut sealed = [[0; BLOCK]; CHUNK];
        for blocks in blocks.chunks_mut(CHUNK) {
            let sealed = &mut sealed[..blocks.len()];
            sealed.copy_from_slice(blocks);
            self.decrypt(blocks);
            for (block, sealed) in blocks.iter_mut().zip(sealed) {
                xor(block, &before);
                before = *sealed;
            }
        }
    }
}

fn xor(block: &mut Block, with: &Block) {
    for (byte, with) in block.iter_mut().zip(with) {
        *byte ^= with;
    }
}
