//! AES-CCM (RFC 3610) with the parameters of RFC 4309: nonces of 11 bytes, and a length field of 4 bytes.
//!
//! aws-lc's CCM needs a context that each packet would have to allocate. CBC-MAC and counter mode over one key
//! schedule need none.

use subtle::ConstantTimeEq;

use crate::aes::{BLOCK, EncryptKey};

pub(crate) const NONCE_LEN: usize = 11;
/// L - 1 in the flags. L = 4 bytes hold the length of the message and the block counter.
const L_FLAGS: u8 = 3;
/// The longest AAD. Longer AADs have another encoding of their length (RFC 3610 §2.2).
const AAD_LEN_MAX: usize = 0xfeff;

pub(crate) struct Ccm {
    key: EncryptKey,
}

impl Ccm {
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        EncryptKey::new(key).map(|key| Self { key })
    }

    /// Encrypts in place and writes an ICV of 4 to 16 bytes. Returns `None` if a length does not fit.
    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        body: &mut [u8],
        icv: &mut [u8],
    ) -> Option<()> {
        let tag = self.tag(nonce, aad, body, icv.len())?;
        self.key.ctr(counter(nonce, 1), body);
        icv.copy_from_slice(tag.get(..icv.len())?);
        Some(())
    }

    /// Decrypts in place and checks the ICV. If the ICV is wrong, the body is zeroed and the result is `None`.
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8],
    ) -> Option<()> {
        self.key.ctr(counter(nonce, 1), body);
        let tag = self.tag(nonce, aad, body, icv.len());
        let same = tag.is_some_and(|tag| {
            tag.get(..icv.len())
                .is_some_and(|tag| bool::from(tag.ct_eq(icv)))
        });
        if !same {
            body.fill(0);
            return None;
        }
        Some(())
    }

    /// Returns the encrypted CBC-MAC over first block, AAD and plaintext (RFC 3610 §2.2, §2.3).
    fn tag(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        body: &[u8],
        icv_len: usize,
    ) -> Option<[u8; BLOCK]> {
        if aad.len() > AAD_LEN_MAX || !(4..=BLOCK).contains(&icv_len) || !icv_len.is_multiple_of(2)
        {
            return None;
        }
        let len = u32::try_from(body.len()).ok()?;
        let mut first = counter(nonce, len);
        first[0] |= ((icv_len as u8 - 2) / 2) << 3;
        first[0] |= u8::from(!aad.is_empty()) << 6;
        let mut state = self.key.encrypt_block(first);
        if !aad.is_empty() {
            // The length shares the first block with the first 14 bytes of AAD.
            let (head, rest) = aad.split_at(aad.len().min(BLOCK - 2));
            let mut block = [0; BLOCK];
            block[..2].copy_from_slice(&(aad.len() as u16).to_be_bytes());
            block[2..2 + head.len()].copy_from_slice(head);
            state = self.padded(self.key.chain(state, &block), rest);
        }
        state = self.padded(state, body);
        let mask = self.key.encrypt_block(counter(nonce, 0));
        for (byte, mask) in state.iter_mut().zip(mask) {
            *byte ^= mask;
        }
        Some(state)
    }

    /// Chains `bytes`, padded with zeros to whole blocks.
    fn padded(&self, state: [u8; BLOCK], bytes: &[u8]) -> [u8; BLOCK] {
        let (blocks, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        let state = self.key.chain(state, blocks);
        if rest.is_empty() {
            return state;
        }
        let mut block = [0; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        self.key.chain(state, &block)
    }
}

/// Returns the block flags || nonce || 32-bit number.
fn counter(nonce: &[u8; NONCE_LEN], number: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[0] = L_FLAGS;
    block[1..1 + NONCE_LEN].copy_from_slice(nonce);
    block[1 + NONCE_LEN..].copy_from_slice(&number.to_be_bytes());
    block
}
