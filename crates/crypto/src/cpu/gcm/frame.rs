//! Where the parts of a message are.

use super::Work;
use super::key::Key;
use crate::esp::HEADER_LEN;

/// A message as the kernels see it: a row of 16-byte blocks, of which block 0 stands for what comes before the text.
pub(super) trait Frame {
    fn key(&self) -> &Key;

    /// Where the text is and where its result goes: the same place, or places apart.
    fn source(&self) -> *const u8;
    fn target(&self) -> *mut u8;
    fn text_len(&self) -> usize;

    fn icv(&self) -> *mut u8;

    /// The counter block without the counter and without what the first round key has in it: bytes 0 … 7, 8 … 15.
    fn nonce(&self) -> [u64; 2];

    /// The last block of AAD plus the hash of those before, as a number: its low and its high half.
    fn aad(&self) -> [u64; 2];
    fn aad_bits(&self) -> u64;

    /// Whether key and lengths are the same.
    #[inline(always)]
    fn alike(&self, other: &Self) -> bool {
        std::ptr::eq(self.key(), other.key())
            && self.text_len() == other.text_len()
            && self.aad_bits() == other.aad_bits()
    }
}

/// Blocks of a message, block 0 among them.
#[inline(always)]
pub(super) fn blocks(text_len: usize) -> usize {
    (text_len + 31) / 16
}

/// An ESP packet, with its IV (RFC 4106) or with the sequence number for it (RFC 8750).
#[repr(transparent)]
pub(super) struct Esp<'a, const IMPLICIT: bool>(Work<'a, Key>);

impl<'a, const IMPLICIT: bool> Esp<'a, IMPLICIT> {
    const TEXT: usize = HEADER_LEN + if IMPLICIT { 0 } else { 8 };

    #[inline(always)]
    pub(super) fn of<'w>(work: &'w [Work<'a, Key>]) -> &'w [Self] {
        let first: *const Self = work.as_ptr().cast();
        // SAFETY: the same memory; the type is transparent.
        unsafe { std::slice::from_raw_parts(first, work.len()) }
    }

    /// Eight bytes of the packet, in network order.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        let from = self.0.packet.wrapping_add(at).cast_const().cast();
        // SAFETY: the shortest packet has 20 bytes, one with an IV 28, and `at` is no more than 8.
        u64::from_be(unsafe { std::ptr::read_unaligned(from) })
    }

    #[inline(always)]
    pub(super) fn sequence_high(&self) -> u32 {
        (self.0.sequence >> 32) as u32
    }
}

impl<const IMPLICIT: bool> Frame for Esp<'_, IMPLICIT> {
    #[inline(always)]
    fn key(&self) -> &Key {
        self.0.key
    }

    #[inline(always)]
    fn source(&self) -> *const u8 {
        self.target().cast_const()
    }

    #[inline(always)]
    fn target(&self) -> *mut u8 {
        self.0.packet.wrapping_add(Self::TEXT)
    }

    #[inline(always)]
    fn text_len(&self) -> usize {
        self.0.body_len()
    }

    #[inline(always)]
    fn icv(&self) -> *mut u8 {
        self.target().wrapping_add(self.text_len())
    }

    #[inline(always)]
    fn nonce(&self) -> [u64; 2] {
        let iv = match (IMPLICIT, self.key().esn()) {
            (false, _) => self.word(HEADER_LEN),
            // RFC 8750 §4: the extended sequence number, or four zero bytes and the short one.
            (true, true) => self.0.sequence,
            (true, false) => u64::from(self.0.sequence as u32),
        };
        let iv = iv.swap_bytes();
        [iv << 32, iv >> 32]
    }

    /// SPI || sequence number, with the high half between them under ESN (RFC 4106 §5).
    #[inline(always)]
    fn aad(&self) -> [u64; 2] {
        let header = self.word(0);
        if self.key().esn() {
            let high = u64::from(self.sequence_high());
            [header << 32, header >> 32 << 32 | high]
        } else {
            [0, header]
        }
    }

    #[inline(always)]
    fn aad_bits(&self) -> u64 {
        64 + 32 * u64::from(self.key().esn())
    }

    #[inline(always)]
    fn alike(&self, other: &Self) -> bool {
        std::ptr::eq(self.key(), other.key()) && self.0.len == other.0.len
    }
}
