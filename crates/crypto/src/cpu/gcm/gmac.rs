//! AES-GMAC in ESP (RFC 4543): AES-GCM without a text. All before the ICV is AAD, with the high half of the sequence
//! number behind the SPI under ESN.
//!
//! ```text
//!     row = SPI | SEQ | IV | payload, or SPI | HIGH | SEQ | IV | payload, in blocks 0 … n − 1
//!     ICV = row[0]·H^(n+1) + … + row[n−1]·H^2 + lengths·H + AES(salt | IV | 1)
//! ```

use std::arch::x86_64::*;

use super::key::{Key as GcmKey, rounds_of};
use super::{Kernel, Tier, Work, aesni, avx512};
use crate::esp::HEADER_LEN;
use crate::key::Keys;

/// A key of AES-GCM, used otherwise.
#[repr(transparent)]
pub(crate) struct Key(GcmKey);

impl Key {
    pub(super) fn of_gcm(key: Box<GcmKey>) -> Box<Self> {
        let key: *mut GcmKey = Box::into_raw(key);
        // SAFETY: it was a box, and the type is transparent.
        unsafe { Box::from_raw(key.cast()) }
    }
}

impl Kernel for Key {
    fn of(keys: &Keys) -> Option<&Self> {
        match keys {
            Keys::GmacKernel(key) => Some(key),
            _ => None,
        }
    }

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) {
        for work in work {
            // SAFETY: the caller's promise; the ICV is the packet's.
            unsafe { write_icv(work, icv(tier, work)) }
        }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        for (work, authentic) in work.iter().zip(authentic) {
            // SAFETY: as above.
            *authentic = unsafe { has_icv(work, icv(tier, work)) };
        }
    }
}

/// What is hashed: `head` in network order, and what follows it.
pub(super) struct Row {
    pub(super) head: u64,
    /// Eight bytes before what follows.
    pub(super) begin: *const u8,
    /// With the head; more than a block.
    pub(super) len: usize,
}

impl Row {
    /// # Safety
    /// The packet may be read, and its length is right.
    #[inline(always)]
    unsafe fn of(work: &Work<'_, Key>) -> Self {
        let packet = work.packet.cast_const();
        let len = work.len as usize - work.key.0.icv_len();
        // SAFETY: the header.
        let header = u64::from_be(unsafe { packet.cast::<u64>().read_unaligned() });
        if work.key.0.esn() {
            return Self {
                head: header >> 32 << 32 | work.sequence >> 32,
                begin: packet.wrapping_sub(4),
                len: len + 4,
            };
        }
        Self {
            head: header,
            begin: packet,
            len,
        }
    }
}

/// # Safety
/// As [`Kernel::seal`].
#[inline(always)]
unsafe fn icv(tier: Tier, work: &Work<'_, Key>) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = mask(work);
        let row = Row::of(work);
        match tier {
            Tier::Avx512 => avx512::authenticate(&work.key.0, &row, mask),
            _ => aesni::authenticate(&work.key.0, &row, mask),
        }
    }
}

/// The first block of the stream.
///
/// # Safety
/// As [`Kernel::seal`].
#[target_feature(enable = "aes,sse2")]
unsafe fn mask(work: &Work<'_, Key>) -> __m128i {
    let keys = work.key.0.round_keys();
    // SAFETY: the IV, eight bytes behind the header; round keys.
    unsafe {
        let key = |at: usize| _mm_load_si128(keys[at].as_ptr().cast());
        let iv = work
            .packet
            .add(HEADER_LEN)
            .cast::<[u32; 2]>()
            .read_unaligned();
        let nonce = _mm_setr_epi32(0, iv[0] as i32, iv[1] as i32, 1u32.to_be() as i32);
        let mut state = _mm_xor_si128(nonce, key(0));
        let rounds = rounds_of(work.key.0.sort());
        for at in 1..rounds {
            state = _mm_aesenc_si128(state, key(at));
        }
        _mm_aesenclast_si128(state, key(rounds))
    }
}

/// # Safety
/// The packet may be written.
unsafe fn write_icv(work: &Work<'_, Key>, icv: __m128i) {
    // SAFETY: an ICV has 16 bytes.
    unsafe { _mm_storeu_si128(place(work).cast(), icv) }
}

/// # Safety
/// The packet may be read.
unsafe fn has_icv(work: &Work<'_, Key>, icv: __m128i) -> bool {
    // SAFETY: an ICV has 16 bytes; SSE2 is part of the baseline.
    unsafe {
        let sent = _mm_loadu_si128(place(work).cast_const().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(sent, icv)) == 0xffff
    }
}

/// Where the ICV is.
fn place(work: &Work<'_, Key>) -> *mut u8 {
    work.packet
        .wrapping_add(work.len as usize - work.key.0.icv_len())
}
