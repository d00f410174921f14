//! Keys in the form that the core keeps. Values that the core does not compute itself are computed here, once.

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{KeyMaterial, Transform};
use zeroize::Zeroizing;

/// A cipher suite of the ESP core, with its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-GCM with a key of 256 bits and an ICV of 16 bytes (RFC 4106).
    Gcm256 = 0,
    /// AES-GCM with a key of 128 bits and an ICV of 16 bytes (RFC 4106).
    Gcm128 = 1,
    /// AES-CTR with a key of 256 bits (RFC 3686) and HMAC-SHA2-256-128 (RFC 4868).
    Ctr256Sha2 = 2,
    /// AES-CTR with a key of 128 bits (RFC 3686) and HMAC-SHA2-256-128 (RFC 4868).
    Ctr128Sha2 = 3,
}

impl Suite {
    pub const ALL: [Self; 4] = [
        Self::Gcm256,
        Self::Gcm128,
        Self::Ctr256Sha2,
        Self::Ctr128Sha2,
    ];

    /// Returns the suite for a transform, or `None` if the core does not have it.
    pub fn of(transform: Transform) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.transform() == Some(transform))
    }

    /// The transform of this suite.
    pub const fn transform(self) -> Option<Transform> {
        let sha2 = Some(Integrity::HmacSha2_256_128);
        match self {
            Self::Gcm256 => Transform::esp(Encryption::AesGcm16, 256, None),
            Self::Gcm128 => Transform::esp(Encryption::AesGcm16, 128, None),
            Self::Ctr256Sha2 => Transform::esp(Encryption::AesCtr, 256, sha2),
            Self::Ctr128Sha2 => Transform::esp(Encryption::AesCtr, 128, sha2),
        }
    }

    const fn is_gcm(self) -> bool {
        matches!(self, Self::Gcm256 | Self::Gcm128)
    }
}

/// Number of powers of H. The core sums the products of as many blocks before it reduces them.
const POWERS: usize = 4;
const AES_WORDS: usize = 8;
const AUTHENTICATION_WORDS: usize = 4 * POWERS;

/// A key as words, each with its first byte in the top byte. It is zeroised on drop.
pub struct DeviceKey {
    pub suite: Suite,
    /// The AES key. Words behind the end of a shorter key are zero.
    aes: Zeroizing<[u32; AES_WORDS]>,
    authentication: Zeroizing<[u32; AUTHENTICATION_WORDS]>,
    salt: Zeroizing<u32>,
}

impl DeviceKey {
    /// Converts key material. Returns `None` if the core does not have the transform.
    pub fn new(material: &KeyMaterial) -> Option<Self> {
        let suite = Suite::of(material.transform())?;
        let salt = material.salt().try_into().ok()?;
        let mut made = Self {
            suite,
            aes: Zeroizing::new([0; AES_WORDS]),
            authentication: Zeroizing::new([0; AUTHENTICATION_WORDS]),
            salt: Zeroizing::new(u32::from_be_bytes(salt)),
        };
        let words = material.cipher_key().chunks_exact(4);
        for (word, bytes) in made.aes.iter_mut().zip(words) {
            *word = u32::from_be_bytes(bytes.try_into().ok()?);
        }
        if suite.is_gcm() {
            made.powers(u128::from_be_bytes(*material.hash_key()?));
        } else {
            let states = material.hmac_states()?;
            for (place, state) in made.authentication.chunks_exact_mut(8).zip(&states) {
                place.copy_from_slice(&**state);
            }
        }
        Some(made)
    }

    /// Sets the powers of H, from H itself on.
    fn powers(&mut self, h: u128) {
        let mut power = h;
        for place in self.authentication.chunks_exact_mut(4) {
            for (index, word) in place.iter_mut().enumerate() {
                *word = (power >> (96 - 32 * index)) as u32;
            }
            power = times(power, h);
        }
    }

    pub fn aes(&self) -> &[u32] {
        &*self.aes
    }

    /// With GCM: H, H², H³, H⁴. With CTR: the states of SHA-256 after the inner and after the outer pad.
    pub fn authentication(&self) -> &[u32] {
        &*self.authentication
    }

    /// The salt (RFC 4106) or the nonce (RFC 3686).
    pub fn salt(&self) -> u32 {
        *self.salt
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceKey")
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

/// Multiplies in GCM's field (SP 800-38D §6.3). The steps do not depend on the factors.
fn times(x: u128, y: u128) -> u128 {
    const REDUCTION: u128 = 0xe1 << 120;
    let (mut sum, mut shifted) = (0, y);
    for bit in (0..128).rev() {
        sum ^= shifted & (x >> bit & 1).wrapping_neg();
        shifted = shifted >> 1 ^ REDUCTION & (shifted & 1).wrapping_neg();
    }
    sum
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::{JobStatus, KeyContext, Tier, cpu};

    use super::*;

    fn context(transform: Transform) -> KeyContext {
        let bytes: Vec<u8> = (0..transform.key_material_len())
            .map(|i| (i * 7 + 3) as u8)
            .collect();
        let material = KeyMaterial::new(transform, false, &bytes).unwrap();
        KeyContext::of(Tier::Portable, material).unwrap()
    }

    fn block(words: &[u32]) -> u128 {
        words
            .iter()
            .fold(0, |sum, word| sum << 32 | u128::from(*word))
    }

    #[test]
    fn powers_of_h_authenticate_as_the_library_does() {
        for suite in [Suite::Gcm128, Suite::Gcm256] {
            let context = context(suite.transform().unwrap());
            let key = DeviceKey::new(context.material()).unwrap();
            // The two packets have one sequence number, so one counter block: their ICVs differ by their hashes
            // alone. Two blocks of text, one of AAD and one of lengths use all four powers.
            let [one, two] = [0x5a, 0xa5].map(|byte| {
                let mut packet = vec![byte; 8 + 8 + 32 + 16];
                packet[..16].fill(0x5a);
                assert_eq!(cpu::seal(&context, 1, &mut packet), JobStatus::Done);
                packet
            });
            let hash = |packet: &[u8]| {
                let at = |range: std::ops::Range<usize>| {
                    let mut bytes = [0; 16];
                    bytes[..range.len()].copy_from_slice(&packet[range]);
                    u128::from_be_bytes(bytes)
                };
                let lengths = 64 << 64 | 256;
                let blocks = [at(0..8), at(16..32), at(32..48), lengths];
                let powers = key.authentication().chunks(4).map(block);
                let summed = blocks.iter().rev().zip(powers);
                summed.fold(0, |sum, (x, power)| sum ^ times(*x, power))
            };
            let icv = |packet: &[u8]| u128::from_be_bytes(packet[48..].try_into().unwrap());
            assert_eq!(hash(&one) ^ hash(&two), icv(&one) ^ icv(&two));
            assert_ne!(icv(&one), icv(&two));
        }
    }

    #[test]
    fn keys_and_salts_are_words() {
        for suite in Suite::ALL {
            let context = context(suite.transform().unwrap());
            let material = context.material();
            let key = DeviceKey::new(material).unwrap();
            let bytes: Vec<u8> = key.aes().iter().flat_map(|w| w.to_be_bytes()).collect();
            let (used, rest) = bytes.split_at(material.cipher_key().len());
            assert_eq!(used, material.cipher_key());
            assert!(rest.iter().all(|byte| *byte == 0));
            assert_eq!(key.salt().to_be_bytes(), material.salt());
        }
    }

    #[test]
    fn the_states_of_the_pads_are_kept() {
        for suite in [Suite::Ctr128Sha2, Suite::Ctr256Sha2] {
            let context = context(suite.transform().unwrap());
            let key = DeviceKey::new(context.material()).unwrap();
            let [inner, outer] = context.material().hmac_states().unwrap();
            assert_eq!(key.authentication(), [*inner, *outer].concat());
            assert_ne!(inner, outer);
        }
    }

    #[test]
    fn other_transforms_have_no_form() {
        for transform in Transform::all() {
            let has = DeviceKey::new(context(transform).material()).is_some();
            assert_eq!(has, Suite::of(transform).is_some(), "{transform}");
        }
        let known = Transform::all().filter(|transform| Suite::of(*transform).is_some());
        assert_eq!(known.count(), Suite::ALL.len());
    }
}
