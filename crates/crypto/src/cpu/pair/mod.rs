//! A cipher and an HMAC: AES-CBC, AES-CTR or NULL with HMAC-SHA2-256-128, HMAC-SHA1-96 or HMAC-MD5-96.
//!
//! ```text
//! order ← the packets, the longest first
//! seal: for each piece of the order that fits the cache:
//!     encrypt the bodies, one cipher after the other
//!     hash, one algorithm after the other; write the ICVs
//! open: for each such piece:
//!     hash; compare the ICVs
//!     decrypt the bodies of the authentic packets
//! ```
//!
//! What goes across packets (CBC encryption, hashes) goes through the lanes of [`streams`]; what goes across the blocks of
//! one packet (CBC decryption, CTR) is a loop over packets, which the processor overlaps.
//!
//! Another cipher plugs in with a key type of its own that holds a [`MacKey`]: it implements [`Mac`], does its
//! ciphering over a [`Sorted`] order and calls [`hash`] before or after.

#![cfg(target_arch = "x86_64")]

mod avx512;
mod expand;
mod hash;
mod hmac;
mod mac;
mod order;
mod simd;
mod simd_avx512;
mod streams;
#[cfg(test)]
mod tests;

pub(crate) use mac::{Icvs, Mac, MacKey};
pub(crate) use order::{Order, Sorted};

use super::{Kernel, Tier, Work};
use crate::iana::Encryption;
use crate::key::Keys;
use crate::plain::cleanse;
use crate::transform::Transform;
use hash::{Md5, Sha1, Sha256};
use hmac::HmacLanes;
use mac::HashName;
use simd_avx512::Avx512;

type RoundKeys = [[u8; 16]; 15];

/// SPI and sequence number.
const HEADER_LEN: usize = 8;
/// Packets that are ciphered and hashed before the next ones.
const PIECE: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CipherName {
    Null,
    Cbc,
    Ctr,
}

/// One direction's or both directions' keys of an SA.
#[repr(C, align(64))]
pub(crate) struct Key {
    mac: MacKey,
    cipher: CipherName,
    rounds: u8,
    /// SPI to IV.
    head: u8,
    icv_len: u8,
    /// The nonce of RFC 3686.
    salt: u32,
    round_keys: RoundKeys,
}

const _: () = assert!(size_of::<Key>() == 320);

impl Key {
    /// The key material has the transform's length. None if there is no kernel for the transform.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        key_material: &[u8],
    ) -> Option<Box<Self>> {
        if tier != Tier::Avx512 {
            return None;
        }
        let (key, integrity_key) = key_material.split_at_checked(transform.encryption_key_len())?;
        let (cipher, key, salt) = match transform.encryption()? {
            Encryption::Null => (CipherName::Null, None, 0),
            Encryption::AesCbc => (CipherName::Cbc, Some(key), 0),
            Encryption::AesCtr => {
                let (key, salt) = key.split_last_chunk::<4>()?;
                (CipherName::Ctr, Some(key), u32::from_le_bytes(*salt))
            }
            _ => return None,
        };
        let mut context = Box::new(Self {
            mac: MacKey::new(transform.integrity()?, esn, integrity_key)?,
            cipher,
            rounds: 0,
            head: (HEADER_LEN + transform.iv_len()) as u8,
            icv_len: transform.icv_len() as u8,
            salt,
            round_keys: [[0; 16]; 15],
        });
        if let Some(key) = key {
            // SAFETY: the tier has AES-NI.
            context.rounds = unsafe { expand::expand(key, &mut context.round_keys)? };
        }
        Some(context)
    }

    fn head(&self) -> usize {
        self.head.into()
    }

    fn body_len(&self, len: u32) -> usize {
        len as usize - self.head() - usize::from(self.icv_len)
    }

    /// Less than 16, a number for cipher and key length.
    fn cipher_class(&self) -> u32 {
        match self.cipher {
            CipherName::Null => 0,
            CipherName::Cbc => u32::from(self.rounds) / 2 - 4,
            CipherName::Ctr => u32::from(self.rounds) / 2,
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        for key in &mut self.round_keys {
            cleanse(key);
        }
    }
}

impl Mac for Key {
    fn mac(&self) -> &MacKey {
        &self.mac
    }
}

impl Kernel for Key {
    fn of(keys: &Keys) -> Option<&Self> {
        match keys {
            Keys::PairKernel(key) => Some(key),
            _ => None,
        }
    }

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) {
        for piece in Sorted::new(work).all().chunks(PIECE) {
            // SAFETY: the caller's promise.
            unsafe {
                cipher(tier, work, piece, Way::Encrypt);
                hash(tier, work, piece, Icvs::Write);
            }
        }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        for piece in Sorted::new(work).all().chunks(PIECE) {
            // SAFETY: the caller's promise.
            unsafe {
                hash(tier, work, piece, Icvs::Check(authentic));
                let opened = order::filter(piece, |packet| authentic[packet]);
                cipher(tier, work, opened.all(), Way::Decrypt);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Encrypt,
    Decrypt,
}

/// # Safety
/// As [`Kernel::seal`].
unsafe fn cipher(_: Tier, work: &[Work<'_, Key>], order: &Order, way: Way) {
    let class = |packet: usize| work[packet].key.cipher_class();
    order::by_class(order, class, |class, order| {
        // SAFETY: the caller's promise; the keys are of this class.
        unsafe {
            match (class, way) {
                (1, Way::Encrypt) => avx512::cbc_encrypt::<10>(work, order),
                (2, Way::Encrypt) => avx512::cbc_encrypt::<12>(work, order),
                (3, Way::Encrypt) => avx512::cbc_encrypt::<14>(work, order),
                (1, Way::Decrypt) => avx512::cbc_decrypt::<10>(work, order),
                (2, Way::Decrypt) => avx512::cbc_decrypt::<12>(work, order),
                (3, Way::Decrypt) => avx512::cbc_decrypt::<14>(work, order),
                (5, _) => avx512::ctr::<10>(work, order),
                (6, _) => avx512::ctr::<12>(work, order),
                (7, _) => avx512::ctr::<14>(work, order),
                _ => {}
            }
        }
    });
}

/// Computes the ICVs of the packets in `order`, the longest first.
///
/// # Safety
/// The machine has the tier; the packets are valid and at least as long as their ICV.
pub(crate) unsafe fn hash<K: Mac>(
    _: Tier,
    work: &[Work<'_, K>],
    order: &Order,
    mut icvs: Icvs<'_>,
) {
    let class = |packet: usize| work[packet].key.mac().hash as u32;
    order::by_class(order, class, |class, order| {
        let icvs = icvs.reborrow();
        // SAFETY: the caller's promise; the keys are of this class.
        unsafe {
            const SHA1: u32 = HashName::Sha1 as u32;
            const SHA256: u32 = HashName::Sha256 as u32;
            match class {
                SHA1 => hmac_sha1(work, order, icvs),
                SHA256 => hmac_sha256(work, order, icvs),
                _ => hmac_md5(work, order, icvs),
            }
        }
    });
}

macro_rules! hmac {
    ($name:ident, $hash:ty) => {
        /// # Safety
        /// As [`hash`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2")]
        unsafe fn $name<K: Mac>(work: &[Work<'_, K>], order: &Order, icvs: Icvs<'_>) {
            // SAFETY: the caller's promise.
            unsafe {
                let mut lanes = HmacLanes::<_, $hash, K>::new(Avx512::new(), work, icvs);
                streams::schedule(&mut lanes, order);
                lanes.flush();
            }
        }
    };
}

hmac!(hmac_sha1, Sha1);
hmac!(hmac_sha256, Sha256);
hmac!(hmac_md5, Md5);
