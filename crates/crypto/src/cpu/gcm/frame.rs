//! Describes where the parts of a message are in memory.

use super::Work;
use super::key::Key;
use crate::esp::HEADER_LEN;

/// A message as the kernels see it: a row of 16-byte blocks. Block 0 stands for all that comes before the text.
///
/// A frame is *valid* if all of these hold while a kernel works on it:
/// - `source` points to `text_len` readable bytes and `target` to `text_len` writable bytes, either the same bytes or
///   bytes that do not overlap.
/// - `icv` points to as many readable and writable bytes as the key's ICV has.
/// - For an ESP packet, the ESP header and the IV before the text are readable and writable too.
/// - Nobody else accesses those bytes.
pub(super) trait Frame {
    fn key(&self) -> &Key;

    /// Where the text is read and where the result is written.
    fn source(&self) -> *const u8;
    fn target(&self) -> *mut u8;
    fn text_len(&self) -> usize;

    fn icv(&self) -> *mut u8;

    /// The counter block as two little-endian numbers: bytes 0 … 7 and bytes 8 … 15. Two parts are missing: the
    /// counter, and the salt, which the first round key contains.
    fn nonce(&self) -> [u64; 2];

    /// The last AAD block XOR the hash of the blocks before it, as a number: its low and its high half.
    fn aad(&self) -> [u64; 2];
    /// Length of the AAD in bits.
    fn aad_bits(&self) -> u64;

    /// Whether both frames have the same key and equal lengths.
    #[inline(always)]
    fn alike(&self, other: &Self) -> bool {
        std::ptr::eq(self.key(), other.key())
            && self.text_len() == other.text_len()
            && self.aad_bits() == other.aad_bits()
    }
}

/// Number of blocks of a message, block 0 included.
#[inline(always)]
pub(super) fn blocks(text_len: usize) -> usize {
    (text_len + 31) / 16
}

/// An ESP packet. It carries its IV (RFC 4106), or the sequence number is the IV (RFC 8750).
#[repr(transparent)]
pub(super) struct Esp<'a, const IMPLICIT: bool>(Work<'a, Key>);

impl<'a, const IMPLICIT: bool> Esp<'a, IMPLICIT> {
    /// Offset of the encrypted text in the packet.
    const TEXT: usize = HEADER_LEN + if IMPLICIT { 0 } else { 8 };

    #[inline(always)]
    pub(super) fn of<'w>(work: &'w [Work<'a, Key>]) -> &'w [Self] {
        let first: *const Self = work.as_ptr().cast();
        // SAFETY: `Self` is a transparent wrapper of `Work`, so both slices describe the same memory.
        unsafe { std::slice::from_raw_parts(first, work.len()) }
    }

    /// Reads eight bytes of the packet at offset `at`, in network byte order.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        let from = self.0.packet.wrapping_add(at).cast_const().cast();
        // SAFETY: `at` is at most 8. The shortest packet has 20 bytes without an IV and 28 bytes with one; `at` is 8
        // only for packets with an IV.
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
            // RFC 8750 §4: the IV is the 64-bit sequence number with ESN; otherwise four zero bytes and the 32-bit
            // one.
            (true, true) => self.0.sequence,
            (true, false) => u64::from(self.0.sequence as u32),
        };
        let iv = iv.swap_bytes();
        [iv << 32, iv >> 32]
    }

    /// The AAD is SPI || sequence number; with ESN the high half stands between them (RFC 4106 §5).
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
