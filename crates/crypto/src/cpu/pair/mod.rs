//! A cipher with an HMAC: AES-CBC, AES-CTR or NULL with HMAC-SHA2-256-128, HMAC-SHA1-96 or HMAC-MD5-96.
//!
//! ```text
//! order ← the packets, the longest first
//! seal:
//!     encrypt the bodies, one cipher after the other
//!     hash, one algorithm after the other; write the ICVs
//! open:
//!     hash; compare the ICVs
//!     decrypt the bodies of the authentic packets
//! ```
//!
//! A call's packets stay in the second-level cache between the two steps, and that is near enough. Smaller pieces of
//! a call would leave lanes empty and gain nothing.
//!
//! On the tier `aesni`, CTR and CBC decryption run between the rounds of SHA-NI instead ([`stitch`]). A single short
//! packet is the exception. A body is then decrypted before its ICV is known. As with every kernel, the caller of
//! [`Kernel::open`] wipes the bodies of packets that are not authentic.
//!
//! Work that is parallel across packets (CBC encryption, hashes) uses the lanes of [`streams`]. Work that is parallel
//! across the blocks of one packet (CBC decryption, CTR) is a loop over packets, which the processor overlaps.
//!
//! Another cipher plugs in with its own key type that holds a [`MacKey`]. It implements [`HasMacKey`], does its ciphering
//! over a [`Sorted`] order, and calls [`hash()`] before or after.

#![cfg(target_arch = "x86_64")]

mod aesni;
mod avx512;
mod beside;
mod hash;
mod hmac;
mod mac;
mod order;
mod sha_ni;
mod sha_x32;
mod simd;
mod simd_avx2;
mod simd_avx512;
mod simd_twice;
mod stitch;
mod streams;

pub(crate) use mac::{HasMacKey, Icvs, MacKey};
pub(crate) use order::{Order, Sorted, filter};

use super::aes::{self, RoundKeys};
use super::kernel::{Kernel, Unsealed, Work};
use crate::iana::Encryption;
use crate::plain::CleansedBlock;
use crate::tier::Tier;
use crate::transform::Transform;
use beside::{CbcDecrypt, Ctr, Nothing, StitchedCipher};
use hash::{Md5, Sha1, Sha256};
use hmac::HmacLanes;
use mac::HashName;
use sha_ni::ShaNi;
use simd_avx2::Avx2;
use simd_avx512::Avx512;
use simd_twice::TwiceAvx512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CipherName {
    Null,
    Cbc,
    Ctr,
}

/// The keys of one SA direction in the form of this family.
#[repr(C, align(64))]
pub(crate) struct CipherHmacKey {
    mac: MacKey,
    cipher: CipherName,
    rounds: u8,
    /// The nonce of the key material (RFC 3686 §4); zero for other ciphers.
    salt: u32,
    round_keys: RoundKeys,
}

const _: () = assert!(size_of::<CipherHmacKey>() == 320);

impl CipherHmacKey {
    /// Makes a key. The key material must have the transform's length. Returns `None` if there is no kernel for the
    /// transform.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        key_material: &[u8],
    ) -> Option<CleansedBlock<Self>> {
        if tier == Tier::Portable {
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
        let mut context = CleansedBlock::new(Self {
            mac: MacKey::new(transform.integrity()?, esn, integrity_key)?,
            cipher,
            rounds: 0,
            salt,
            round_keys: [[0; 16]; 15],
        });
        if let Some(key) = key {
            // SAFETY: every tier but the portable one has AES-NI and SSSE3.
            context.rounds = unsafe { aes::expand(key, &mut context.round_keys)? as u8 };
        }
        Some(context)
    }

    /// A number below 8 that identifies cipher and key length.
    fn cipher_class(&self) -> u32 {
        match self.cipher {
            CipherName::Null => 0,
            CipherName::Cbc => u32::from(self.rounds) / 2 - 4,
            CipherName::Ctr => u32::from(self.rounds) / 2,
        }
    }

    /// The cipher class for SHA-1, and 8 more for SHA-256. Returns 0 if cipher and hash do not run side by side.
    fn stitch_class(&self, seal: bool) -> u32 {
        match (self.mac.hash, self.cipher) {
            (HashName::Md5, _) | (_, CipherName::Null) => 0,
            (_, CipherName::Cbc) if seal => 0,
            (HashName::Sha1, _) => self.cipher_class(),
            (HashName::Sha256, _) => 8 + self.cipher_class(),
        }
    }
}

impl HasMacKey for CipherHmacKey {
    fn mac(&self) -> &MacKey {
        &self.mac
    }
}

impl Kernel for CipherHmacKey {
    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed {
        // SAFETY: the caller guarantees the tier and the packets.
        order::in_order(work, |order| unsafe { run(tier, work, order, Icvs::Write) });
        Unsealed::NONE
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller guarantees the tier and the packets.
        order::in_order(work, |order| unsafe {
            run(tier, work, order, Icvs::Check(authentic));
        });
    }
}

/// Body length in bytes from which a single packet gains by stitching.
const STITCH_WORTH: usize = 256;

/// Seals the packets, or opens them if `icvs` are to be checked.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
unsafe fn run(tier: Tier, work: &[Work<'_, CipherHmacKey>], order: &Order, mut icvs: Icvs<'_>) {
    let short = |packet: &Work<'_, CipherHmacKey>| packet.body_len() < STITCH_WORTH;
    if tier != Tier::AesNi || matches!(work, [packet] if short(packet)) {
        // SAFETY: the caller guarantees the tier and the packets.
        return unsafe { one_after_the_other(tier, work, order, icvs) };
    }
    let seal = matches!(icvs, Icvs::Write);
    let class = |packet: usize| work[packet].key.stitch_class(seal);
    order::by_class(order, class, |class, order| {
        let icvs = icvs.reborrow();
        // SAFETY: the caller guarantees the packets; the tier is `aesni`, and the keys are of this class.
        unsafe {
            match class {
                0 => one_after_the_other(tier, work, order, icvs),
                1..8 => stitched::<Sha1>(class, work, order, icvs),
                _ => stitched::<Sha256>(class - 8, work, order, icvs),
            }
        }
    });
}

/// Ciphers and hashes the packets in separate passes.
///
/// # Safety
/// The obligations are those of [`run`].
unsafe fn one_after_the_other(
    tier: Tier,
    work: &[Work<'_, CipherHmacKey>],
    order: &Order,
    mut icvs: Icvs<'_>,
) {
    // SAFETY: the caller guarantees the tier and the packets.
    unsafe {
        if let Icvs::Write = icvs {
            cipher(tier, work, order, Way::Encrypt);
        }
        hash(tier, work, order, icvs.reborrow());
        if let Icvs::Check(authentic) = icvs {
            if authentic.iter().all(|&authentic| authentic) {
                cipher(tier, work, order, Way::Decrypt);
            } else {
                let opened = filter(order, |packet| authentic[packet]);
                cipher(tier, work, opened.all(), Way::Decrypt);
            }
        }
    }
}

/// Ciphers and hashes the packets in one pass.
///
/// # Safety
/// - The obligations are those of [`run`], on a machine with the tier `aesni`.
/// - The keys are of this hash and this class of ciphers.
unsafe fn stitched<H: ShaNi>(
    cipher_class: u32,
    work: &[Work<'_, CipherHmacKey>],
    order: &Order,
    icvs: Icvs<'_>,
) {
    // SAFETY: the caller guarantees the machine, the packets and their keys.
    unsafe {
        match cipher_class {
            1 => two_packets::<H, CipherHmacKey, CbcDecrypt<10>>(work, order, icvs),
            2 => two_packets::<H, CipherHmacKey, CbcDecrypt<12>>(work, order, icvs),
            3 => two_packets::<H, CipherHmacKey, CbcDecrypt<14>>(work, order, icvs),
            5 => two_packets::<H, CipherHmacKey, Ctr<10>>(work, order, icvs),
            6 => two_packets::<H, CipherHmacKey, Ctr<12>>(work, order, icvs),
            7 => two_packets::<H, CipherHmacKey, Ctr<14>>(work, order, icvs),
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Encrypt,
    Decrypt,
}

/// Encrypts or decrypts the bodies.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
unsafe fn cipher(tier: Tier, work: &[Work<'_, CipherHmacKey>], order: &Order, way: Way) {
    let class = |packet: usize| work[packet].key.cipher_class();
    macro_rules! by_class {
        ($tier:ident, $class:expr, $order:expr) => {
            match ($class, way) {
                (1, Way::Encrypt) => $tier::cbc_encrypt::<10>(work, $order),
                (2, Way::Encrypt) => $tier::cbc_encrypt::<12>(work, $order),
                (3, Way::Encrypt) => $tier::cbc_encrypt::<14>(work, $order),
                (1, Way::Decrypt) => $tier::cbc_decrypt::<10>(work, $order),
                (2, Way::Decrypt) => $tier::cbc_decrypt::<12>(work, $order),
                (3, Way::Decrypt) => $tier::cbc_decrypt::<14>(work, $order),
                (5, _) => $tier::ctr::<10>(work, $order),
                (6, _) => $tier::ctr::<12>(work, $order),
                (7, _) => $tier::ctr::<14>(work, $order),
                _ => {}
            }
        };
    }
    order::by_class(order, class, |class, order| {
        // SAFETY: the caller guarantees the tier and the packets; the keys are of this class.
        unsafe {
            match tier {
                Tier::Portable => {}
                Tier::AesNi => by_class!(aesni, class, order),
                Tier::Avx512 => by_class!(avx512, class, order),
            }
        }
    });
}

/// Computes the ICVs of the packets in `order`, the longest first.
///
/// # Safety
/// - The machine has the tier.
/// - Each packet's bytes may be read and written, and nobody else accesses them.
/// - Each packet is at least as long as its ICV.
pub(crate) unsafe fn hash<K: HasMacKey>(
    tier: Tier,
    work: &[Work<'_, K>],
    order: &Order,
    mut icvs: Icvs<'_>,
) {
    const MD5: u32 = HashName::Md5 as u32;
    const SHA1: u32 = HashName::Sha1 as u32;
    const SHA256: u32 = HashName::Sha256 as u32;
    let class = |packet: usize| work[packet].key.mac().hash as u32;
    order::by_class(order, class, |class, order| {
        let icvs = icvs.reborrow();
        let lanes = |worth| tier == Tier::Avx512 && order::fill_lanes(work, order, worth);
        // SAFETY: the caller guarantees the tier and the packets; the keys are of this class.
        unsafe {
            match class {
                SHA1 if lanes(SHA1_TWICE_WORTH) => sha1_avx512_twice(work, order, icvs),
                SHA1 if lanes(SHA1_LANES_WORTH) => sha1_avx512(work, order, icvs),
                SHA1 => two_packets::<Sha1, K, Nothing>(work, order, icvs),
                SHA256 if lanes(SHA256_TWICE_WORTH) => sha256_avx512_twice(work, order, icvs),
                SHA256 if lanes(SHA256_LANES_WORTH) => sha256_avx512(work, order, icvs),
                SHA256 => two_packets::<Sha256, K, Nothing>(work, order, icvs),
                MD5 if lanes(MD5_TWICE_WORTH) => md5_avx512_twice(work, order, icvs),
                MD5 if tier == Tier::Avx512 => md5_avx512(work, order, icvs),
                _ => md5_avx2(work, order, icvs),
            }
        }
    });
}

/// Number of packets that SHA-NI hashes in the time of sixteen lanes, whether these are full or not.
const SHA1_LANES_WORTH: usize = 7;
const SHA256_LANES_WORTH: usize = 9;

/// Number of packets that sixteen lanes hash in the time of thirty-two lanes.
const SHA1_TWICE_WORTH: usize = 28;
const SHA256_TWICE_WORTH: usize = 26;
const MD5_TWICE_WORTH: usize = 17;

macro_rules! lanes {
    ($name:ident, $hash:ty, $simd:expr, $features:literal) => {
        /// Hashes the packets with these lanes.
        ///
        /// # Safety
        /// The obligations are those of [`hash()`].
        #[target_feature(enable = $features)]
        unsafe fn $name<K: HasMacKey>(work: &[Work<'_, K>], order: &Order, icvs: Icvs<'_>) {
            // SAFETY: the caller guarantees the tier and the packets.
            unsafe {
                let mut lanes = HmacLanes::<_, $hash, K>::new($simd, work, icvs);
                streams::schedule(&mut lanes, order);
                lanes.flush();
            }
        }
    };
}

/// Hashes two packets at a time with SHA-NI, with the cipher between the rounds.
///
/// # Safety
/// - The obligations are those of [`hash()`].
/// - The keys are of the cipher `C`.
#[target_feature(enable = "sha,aes,sse4.1,ssse3,avx,avx2,bmi1,bmi2")]
unsafe fn two_packets<H: ShaNi, K: HasMacKey, C: StitchedCipher<K>>(
    work: &[Work<'_, K>],
    order: &Order,
    icvs: Icvs<'_>,
) {
    // SAFETY: the caller guarantees the packets and their keys.
    unsafe { stitch::hmac::<H, K, C>(work, order, icvs) }
}

lanes!(
    sha1_avx512,
    Sha1,
    Avx512::new(),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(
    sha256_avx512,
    Sha256,
    Avx512::new(),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(
    md5_avx512,
    Md5,
    Avx512::new(),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(
    sha1_avx512_twice,
    Sha1,
    TwiceAvx512(Avx512::new()),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(
    sha256_avx512_twice,
    Sha256,
    TwiceAvx512(Avx512::new()),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(
    md5_avx512_twice,
    Md5,
    TwiceAvx512(Avx512::new()),
    "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2"
);
lanes!(md5_avx2, Md5, Avx2::new(), "avx2,bmi1,bmi2");
