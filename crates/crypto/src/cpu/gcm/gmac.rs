//! AES-GMAC in ESP (RFC 4543): AES-GCM without a text. Everything before the ICV is AAD; with ESN the high half of
//! the sequence number stands after the SPI.
//!
//! ```text
//!     row = SPI | SEQ | IV | payload, or SPI | HIGH | SEQ | IV | payload, in blocks 0 … n − 1
//!     ICV = row[0]·H^(n+1) + … + row[n−1]·H^2 + lengths·H + AES(salt | IV | 1)
//! ```

use std::arch::x86_64::*;

use super::hashed_row::HashedRow;
use super::key::{GcmKey, rounds_of};
use super::{aesni, avx512};
use crate::cpu::kernel::{Kernel, Unsealed, Work};
use crate::spec::ESP_HEADER_LEN as HEADER_LEN;
use crate::tier::Tier;

/// An AES-GCM key that is used for AES-GMAC.
#[repr(transparent)]
pub(crate) struct GmacKey(GcmKey);

impl GmacKey {
    pub(super) fn of_gcm(key: Box<GcmKey>) -> Box<Self> {
        let key: *mut GcmKey = Box::into_raw(key);
        // SAFETY: `key` came from a box, and `Self` is a transparent wrapper of `GcmKey`.
        unsafe { Box::from_raw(key.cast()) }
    }
}

impl Kernel for GmacKey {
    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed {
        for work in work {
            // SAFETY: the caller guarantees the tier and the packet; the ICV is part of the packet.
            unsafe { write_icv(work, icv(tier, work)) }
        }
        Unsealed::NONE
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        for (work, authentic) in work.iter().zip(authentic) {
            // SAFETY: as in `seal`.
            *authentic = unsafe { has_icv(work, icv(tier, work)) };
        }
    }
}

impl HashedRow {
    /// Describes the hashed bytes of a packet.
    ///
    /// # Safety
    /// - The packet's bytes may be read.
    /// - The packet's length fits its layout.
    #[inline(always)]
    unsafe fn of(work: &Work<'_, GmacKey>) -> Self {
        let packet = work.packet.cast_const();
        let len = work.len as usize - work.key.0.icv_len();
        // SAFETY: the first eight bytes are the ESP header.
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

/// Computes the ICV of a packet.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
#[inline(always)]
unsafe fn icv(tier: Tier, work: &Work<'_, GmacKey>) -> __m128i {
    // SAFETY: the caller guarantees the tier and the packet.
    unsafe {
        let mask = mask(work);
        let row = HashedRow::of(work);
        match tier {
            Tier::Avx512 => avx512::authenticate(&work.key.0, &row, mask),
            _ => aesni::authenticate(&work.key.0, &row, mask),
        }
    }
}

/// Returns the encrypted first counter block, which masks the ICV.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
#[target_feature(enable = "aes,sse2")]
unsafe fn mask(work: &Work<'_, GmacKey>) -> __m128i {
    let keys = work.key.0.round_keys();
    // SAFETY: the IV is the eight bytes after the ESP header; the context holds the round keys.
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

/// Writes the packet's ICV.
///
/// # Safety
/// The packet's bytes may be written.
unsafe fn write_icv(work: &Work<'_, GmacKey>, icv: __m128i) {
    // SAFETY: the ICV of AES-GMAC has 16 bytes.
    unsafe { _mm_storeu_si128(place(work).cast(), icv) }
}

/// Returns true if the packet's ICV is `icv`.
///
/// # Safety
/// The packet's bytes may be read.
unsafe fn has_icv(work: &Work<'_, GmacKey>, icv: __m128i) -> bool {
    // SAFETY: the ICV of AES-GMAC has 16 bytes; SSE2 is part of the x86-64 baseline.
    unsafe {
        let sent = _mm_loadu_si128(place(work).cast_const().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(sent, icv)) == 0xffff
    }
}

/// Pointer to the packet's ICV.
fn place(work: &Work<'_, GmacKey>) -> *mut u8 {
    work.packet
        .wrapping_add(work.len as usize - work.key.0.icv_len())
}
