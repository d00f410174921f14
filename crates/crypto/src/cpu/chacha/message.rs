//! Describes one AEAD message (RFC 8439 §2.8) for the kernels, whether it is an ESP packet or a record.

use std::marker::PhantomData;

use super::{ChaChaKey, TAG_LEN};

/// Poly1305 takes this many bytes at a time.
pub(super) const POLY_BLOCK: usize = 16;
/// ChaCha20 makes this many bytes of keystream at a time.
pub(super) const CHACHA_BLOCK: usize = 64;

/// The first row of ChaCha20's state, "expand 32-byte k".
pub(super) const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// An AEAD message.
pub(super) struct AeadMessage<'a> {
    pub(super) key: &'a ChaChaKey,
    /// The last row of ChaCha20's state: four bytes for the counter, then the nonce.
    pub(super) row: [u8; 16],
    /// The AAD's last block, padded with zeros.
    pub(super) last_aad: [u8; POLY_BLOCK],
    /// The whole AAD. It is empty if the AAD fits `last_aad`.
    pub(super) aad: &'a [u8],
    pub(super) aad_len: usize,
    /// The places where the body is read and written: the same bytes, or bytes that do not overlap.
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
    pub(super) len: usize,
    /// The right tag. Sealing sets it, and so does opening by a kernel.
    pub(super) tag: [u8; TAG_LEN],
    /// The tag that came with the message. Only opening uses it.
    pub(super) received: [u8; TAG_LEN],
    /// `received` is the right tag. Only opening sets this.
    pub(super) authentic: bool,
    /// The library has done this message.
    pub(super) by_library: bool,
    /// The library could not seal this message, which must not leave. Only sealing sets this.
    pub(super) unsealed: bool,
    pub(super) buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> AeadMessage<'a> {
    /// # Safety
    /// - `src` is valid for reads and `dst` for writes of `len` bytes for `'a`.
    /// - Both are the same, or do not overlap.
    /// - Nobody else accesses those bytes for `'a`.
    #[inline]
    pub(super) unsafe fn new(
        key: &'a ChaChaKey,
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
            last_aad: [0; POLY_BLOCK],
            aad: &[],
            aad_len: 0,
            src,
            dst,
            len,
            tag: [0; TAG_LEN],
            received: [0; TAG_LEN],
            authentic: false,
            by_library: false,
            unsealed: false,
            buffers: PhantomData,
        }
    }

    /// Sets an AAD of any length.
    pub(super) fn with_aad(mut self, aad: &'a [u8]) -> Self {
        let (_, last) = aad.split_at(front_len(aad));
        self.last_aad[..last.len()].copy_from_slice(last);
        self.aad = aad;
        self.aad_len = aad.len();
        self
    }

    /// Sets the tag that came with the message.
    pub(super) fn with_received(mut self, tag: [u8; TAG_LEN]) -> Self {
        self.received = tag;
        self
    }

    /// The AAD without its last block.
    pub(super) fn aad_front(&self) -> &'a [u8] {
        &self.aad[..front_len(self.aad)]
    }

    /// Number of Poly1305 blocks of the body. The last one may be short.
    #[inline]
    pub(super) fn poly_blocks(&self) -> usize {
        self.len.div_ceil(POLY_BLOCK)
    }

    pub(super) fn seal_by_library(&mut self) {
        let (nonce, aad) = (self.nonce(), self.whole_aad());
        // SAFETY: the caller of `new` guaranteed the pointers.
        let body = unsafe { self.moved_body() };
        let mut tag = [0; TAG_LEN];
        let sealed = self.key.library.seal(&nonce, aad, body, &mut tag);
        self.unsealed = sealed.is_none();
        self.tag = tag;
        self.by_library = true;
    }

    pub(super) fn open_by_library(&mut self) {
        let (nonce, aad) = (self.nonce(), self.whole_aad());
        // SAFETY: the caller of `new` guaranteed the pointers.
        let body = unsafe { self.moved_body() };
        let opened = self.key.library.open(&nonce, aad, body, &self.received);
        self.authentic = opened.is_some();
        self.by_library = true;
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&self.row[4..]);
        nonce
    }

    fn whole_aad(&self) -> &[u8] {
        if self.aad.is_empty() {
            &self.last_aad[..self.aad_len]
        } else {
            self.aad
        }
    }

    /// Copies the body to its destination and returns it there.
    ///
    /// # Safety
    /// The obligations of [`AeadMessage::new`] still hold.
    unsafe fn moved_body<'b>(&self) -> &'b mut [u8] {
        // SAFETY: the caller guarantees `len` bytes at `src` and at `dst`.
        unsafe {
            if self.src != self.dst {
                self.src.copy_to(self.dst, self.len);
            }
            std::slice::from_raw_parts_mut(self.dst, self.len)
        }
    }
}

/// Length in bytes of the AAD before its last block.
fn front_len(aad: &[u8]) -> usize {
    aad.len().saturating_sub(1) / POLY_BLOCK * POLY_BLOCK
}
