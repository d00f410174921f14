//! The AES-GCM key context: powers of H and round keys in 512 bytes. It is small so that the contexts of ten thousand
//! SAs stay in a core's caches.

use std::arch::x86_64::*;

use crate::cpu::aes::{self, RoundKeys};
use crate::plain::{Plain, cleanse};
use crate::tier::Tier;

/// Number of powers of H in a context.
pub(super) const POWERS: usize = 16;

/// In a context for `aesni`, number of powers of H whose two halves are also stored as a sum. The sums take the place
/// of the higher powers, because that tier does not use them.
pub(super) const HALVES: usize = 10;

/// Number of key sorts: with and without an explicit IV, each with 10, 12 and 14 rounds.
pub(super) const SORTS: usize = 6;

/// Returns the number of AES rounds for keys of this sort.
pub(super) fn rounds_of(sort: usize) -> usize {
    10 + 2 * (sort % (SORTS / 2))
}

/// Length of the salt in bytes (RFC 4106 §4).
const SALT_LEN: usize = 4;

/// An expanded AES-GCM key.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Expanded {
    /// For `avx512`: H^16 … H^1, in the form that [`multiply`] takes. A kernel may read past them into the round
    /// keys. For `aesni`: first the sums of both halves of H^10 … H^1, eight bytes each, then H^10 … H^1.
    powers: [[u8; 16]; POWERS],
    /// The AES round keys. The first one is XORed with the salt at the salt's place in the counter block.
    round_keys: RoundKeys,
    /// A mask with one bit for each byte of the ICV.
    icv_mask: u16,
    /// Less than [`SORTS`]; see [`GcmKey::sort`].
    sort: u8,
    esn: bool,
    unused: [u8; 12],
}

const _: () = assert!(size_of::<GcmKey>() == 512 && align_of::<GcmKey>() == 64);
const _: () = assert!(8 * HALVES <= 16 * (POWERS - HALVES));

/// Offset of the round keys in a context.
pub(super) const ROUND_KEYS_AT: usize = std::mem::offset_of!(Expanded, round_keys);

/// Offset of H^`power` in a context.
pub(super) const fn power_at(power: usize) -> usize {
    16 * (POWERS - power)
}

/// Offset of the sum of the halves of H^`power` in a context for `aesni`.
pub(super) const fn halves_at(power: usize) -> usize {
    8 * (HALVES - power)
}

// SAFETY: the struct consists of bytes, integers and a flag, and zero is a valid value for each of them.
unsafe impl Plain for Expanded {}

/// An AES-GCM key context; zeroised on drop.
#[repr(transparent)]
pub(crate) struct GcmKey(Expanded);

impl Drop for GcmKey {
    fn drop(&mut self) {
        cleanse(&mut self.0);
    }
}

/// The properties of a key besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// ICV length in bytes: 16, 12 or 8.
    pub(super) icv_len: usize,
    pub(super) esn: bool,
    /// The sequence number serves as the IV (RFC 8750).
    pub(super) implicit_iv: bool,
}

impl GcmKey {
    /// Makes a context from an AES key and a salt. The salt is zero for keys of a general AEAD. Returns `None` unless
    /// the key has 16, 24 or 32 bytes.
    ///
    /// # Safety
    /// - The CPU has the features of `tier`.
    /// - `tier` is not the portable tier.
    pub(super) unsafe fn new(
        tier: Tier,
        key: &[u8],
        salt: [u8; SALT_LEN],
        purpose: Use,
    ) -> Option<Box<Self>> {
        let mut context = Box::new(Self(Expanded {
            powers: [[0; 16]; POWERS],
            round_keys: [[0; 16]; 15],
            icv_mask: !(!0u32 << purpose.icv_len) as u16,
            sort: 0,
            esn: purpose.esn,
            unused: [0; 12],
        }));
        // SAFETY: the caller guarantees that the CPU has the features.
        let rounds = unsafe { expand(tier, &mut context.0, key)? };
        let without_iv = if purpose.implicit_iv { SORTS / 2 } else { 0 };
        context.0.sort = (rounds / 2 - 5 + without_iv) as u8;
        for (byte, salt) in context.0.round_keys[0].iter_mut().zip(salt) {
            *byte ^= salt;
        }
        Some(context)
    }

    /// The sort of this key, less than [`SORTS`]. A kernel may work on packets together whose keys are of one sort.
    #[inline(always)]
    pub(crate) fn sort(&self) -> usize {
        usize::from(self.0.sort)
    }

    #[inline(always)]
    pub(super) fn icv_mask(&self) -> u16 {
        self.0.icv_mask
    }

    #[inline(always)]
    pub(super) fn icv_len(&self) -> usize {
        self.0.icv_mask.count_ones() as usize
    }

    #[inline(always)]
    pub(super) fn esn(&self) -> bool {
        self.0.esn
    }

    /// Pointer to H^`power`, H^(`power` − 1) … H, for 1 ≤ `power` ≤ 16. The context is readable up to its end.
    #[inline(always)]
    pub(super) fn powers_from(&self, power: usize) -> *const [u8; 16] {
        let context: *const Expanded = &raw const self.0;
        context.cast::<[u8; 16]>().wrapping_add(POWERS - power)
    }

    /// Pointer to the sum of the halves of H^`power`, for 1 ≤ `power` ≤ 10, in a context for `aesni`.
    #[inline(always)]
    pub(super) fn halves_of(&self, power: usize) -> *const [u8; 8] {
        let context: *const Expanded = &raw const self.0;
        context.cast::<[u8; 8]>().wrapping_add(HALVES - power)
    }

    #[inline(always)]
    pub(super) fn round_keys(&self) -> &RoundKeys {
        &self.0.round_keys
    }
}

/// Computes the round keys and the powers of H. Returns the number of rounds, or `None` if the key's length is wrong.
#[target_feature(enable = "aes,pclmulqdq,ssse3,sse4.1")]
fn expand(tier: Tier, context: &mut Expanded, key: &[u8]) -> Option<usize> {
    let rounds = aes::expand(key, &mut context.round_keys)?;
    // H = AES(0) (SP 800-38D §6.3). H is stored multiplied by x, because the product of two bit-reflected factors
    // lacks that factor.
    let keys = &context.round_keys;
    let mut h = load(&keys[0]);
    for round in &keys[1..rounds] {
        h = _mm_aesenc_si128(h, load(round));
    }
    h = _mm_aesenclast_si128(h, load(&keys[rounds]));
    let mut bytes = [0; 16];
    store(&mut bytes, h);
    let h = u128::from_be_bytes(bytes);
    let carry = 0u128.wrapping_sub(h >> 127);
    let h = (h << 1) ^ (carry & (0xc2 << 120 | 1));
    context.powers[POWERS - 1] = h.to_le_bytes();
    cleanse(&mut bytes);
    // H^n = H^⌈n/2⌉ · H^⌊n/2⌋. No chain is longer than four products, and every second product is a square.
    let powers = if tier == Tier::Avx512 { POWERS } else { HALVES };
    for n in 2..=powers {
        let half = load(&context.powers[POWERS - n / 2]);
        let product = if n % 2 == 0 {
            square(half)
        } else {
            multiply(half, load(&context.powers[POWERS - n / 2 - 1]))
        };
        store(&mut context.powers[POWERS - n], product);
    }
    if tier != Tier::Avx512 {
        let (sums, powers) = context.powers.split_at_mut(POWERS - HALVES);
        let sums = sums.as_flattened_mut().as_chunks_mut::<8>().0;
        for (sum, power) in sums.iter_mut().zip(powers) {
            let power = u128::from_le_bytes(*power);
            *sum = (power as u64 ^ (power >> 64) as u64).to_le_bytes();
        }
    }
    Some(rounds)
}

/// Returns the GHASH state before the last AAD block is multiplied: the hash of all earlier blocks XOR the last
/// block, padded with zeros.
#[target_feature(enable = "pclmulqdq,sse2")]
pub(super) fn hash_aad(key: &GcmKey, aad: &[u8]) -> u128 {
    let h = load(&key.0.powers[POWERS - 1]);
    let (front, last) = aad.split_at(aad.len().saturating_sub(1) / 16 * 16);
    let mut hash = 0;
    for block in front.as_chunks().0 {
        let mut sum = (hash ^ u128::from_be_bytes(*block)).to_le_bytes();
        let product = multiply(load(&sum), h);
        store(&mut sum, product);
        hash = u128::from_le_bytes(sum);
        cleanse(&mut sum);
    }
    let mut padded = [0; 16];
    padded[..last.len()].copy_from_slice(last);
    hash ^ u128::from_be_bytes(padded)
}

#[target_feature(enable = "sse2")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference covers 16 readable bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
fn store(bytes: &mut [u8; 16], value: __m128i) {
    // SAFETY: the reference covers 16 writable bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), value) }
}

/// x^64 · (x^63 + x^62 + x^57): the bit-reflected field polynomial without its highest and lowest terms.
pub(super) const POLYNOMIAL: i64 = 0xc2u64.rotate_right(8) as i64;

/// Returns the product of two bit-reflected field elements, one of which carries the extra factor x.
#[target_feature(enable = "pclmulqdq,sse2")]
fn multiply(a: __m128i, b: __m128i) -> __m128i {
    let low = _mm_clmulepi64_si128::<0x00>(a, b);
    let high = _mm_clmulepi64_si128::<0x11>(a, b);
    let middle = _mm_xor_si128(
        _mm_clmulepi64_si128::<0x01>(a, b),
        _mm_clmulepi64_si128::<0x10>(a, b),
    );
    reduce(high, middle, low)
}

/// Returns the square of such an element. The two products of different halves are equal and cancel out.
#[target_feature(enable = "pclmulqdq,sse2")]
fn square(a: __m128i) -> __m128i {
    let low = _mm_clmulepi64_si128::<0x00>(a, a);
    let high = _mm_clmulepi64_si128::<0x11>(a, a);
    reduce(high, _mm_setzero_si128(), low)
}

/// Reduces `high`·x^128 + `middle`·x^64 + `low` modulo the field polynomial, 64 bits at a time.
#[inline]
#[target_feature(enable = "pclmulqdq,sse2")]
pub(super) fn reduce(high: __m128i, middle: __m128i, low: __m128i) -> __m128i {
    let polynomial = _mm_set1_epi64x(POLYNOMIAL);
    let folded = fold(low, polynomial);
    let folded = fold(_mm_xor_si128(middle, folded), polynomial);
    _mm_xor_si128(high, folded)
}

#[inline]
#[target_feature(enable = "pclmulqdq,sse2")]
fn fold(value: __m128i, polynomial: __m128i) -> __m128i {
    _mm_xor_si128(
        _mm_shuffle_epi32::<0x4e>(value),
        _mm_clmulepi64_si128::<0x00>(value, polynomial),
    )
}
