//! What the kernels work on: one AEAD message (RFC 8439 §2.8), whoever it comes from.

use std::marker::PhantomData;

use super::Key;

/// Poly1305 works on these many bytes at a time.
pub(super) const POLY_BLOCK: usize = 16;
/// ChaCha20 makes these many bytes at a time.
pub(super) const CHACHA_BLOCK: usize = 64;

/// One message. Its tag is an output of sealing and of opening: whether it is the right one is for the caller to say.
pub(super) struct Message<'a> {
    pub(super) key: &'a Key,
    /// The last row of ChaCha20's state: room for the counter, nonce.
    pub(super) row: [u8; 16],
    /// The AAD's last block, padded with zeros.
    pub(super) aad: [u8; POLY_BLOCK],
    /// The blocks of AAD before that one; none in ESP.
    pub(super) aad_front: &'a [u8],
    pub(super) aad_len: usize,
    /// The body is read from here and written there: the same place, or apart.
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
    pub(super) len: usize,
    pub(super) tag: [u8; 16],
    pub(super) buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Message<'a> {
    /// # Safety
    /// `src` is valid for reads and `dst` for writes of `len` bytes for `'a`.
    #[inline]
    pub(super) unsafe fn new(
        key: &'a Key,
        nonce: &[u8; 12],
        src: *const u8,
        dst: *mut u8,
        len: usize,
    ) -> Self {
        let mut row = [0; 16];
        row[4..].copy_from_slice(nonce);
        Self {
            key,
            row,
            aad: [0; POLY_BLOCK],
            aad_front: &[],
            aad_len: 0,
            src,
            dst,
            len,
            tag: [0; 16],
            buffers: PhantomData,
        }
    }

    /// With AAD of any length.
    #[cfg(test)]
    pub(super) fn with_aad(mut self, aad: &'a [u8]) -> Self {
        let (front, last) = aad.split_at(aad.len().saturating_sub(1) / POLY_BLOCK * POLY_BLOCK);
        self.aad[..last.len()].copy_from_slice(last);
        self.aad_front = front;
        self.aad_len = aad.len();
        self
    }

    /// Poly1305 blocks of the body, the last one perhaps short.
    #[inline]
    pub(super) fn poly_blocks(&self) -> usize {
        self.len.div_ceil(POLY_BLOCK)
    }
}
