//! Keys in the form that hardware keeps them: what it does not compute by itself is computed here, once.

use crate::aes::EncryptKey;
use crate::hmac::Hmac;
use crate::iana::{Encryption, Integrity};
use crate::plain::Cleansed;
use crate::transform::Transform;

/// What the ESP core of `rtl/` can do, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// RFC 4106 with an ICV of 16 bytes.
    Gcm256 = 0,
    Gcm128 = 1,
    /// RFC 3686 with HMAC-SHA2-256-128 (RFC 4868).
    Ctr256Sha2 = 2,
    Ctr128Sha2 = 3,
}

impl Suite {
    pub const ALL: [Self; 4] = [
        Self::Gcm256,
        Self::Gcm128,
        Self::Ctr256Sha2,
        Self::Ctr128Sha2,
    ];

    /// None if the core does not have the transform.
    pub fn of(transform: Transform) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.transform() == Some(transform))
    }

    /// The transform that it is.
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

const SALT_LEN: usize = 4;
/// Powers of H: as many blocks are summed before they are reduced.
const POWERS: usize = 4;
const AES_WORDS: usize = 8;
const AUTHENTICATION_WORDS: usize = 4 * POWERS;

/// A key as words, the first byte of each in its top byte. Zeroised on drop.
pub struct DeviceKey {
    pub suite: Suite,
    /// As many words as the key has; the rest is zero.
    aes: Cleansed<[u32; AES_WORDS]>,
    authentication: Cleansed<[u32; AUTHENTICATION_WORDS]>,
    salt: Cleansed<[u32; 1]>,
}

impl DeviceKey {
    /// From key material laid out as [`Transform::key_material_len`] says. None if the core does not have the transform, or
    /// the material is not as long as it must be.
    pub fn new(transform: Transform, key_material: &[u8]) -> Option<Self> {
        let suite = Suite::of(transform)?;
        if key_material.len() != transform.key_material_len() {
            return None;
        }
        let (cipher, integrity) = key_material.split_at_checked(transform.encryption_key_len())?;
        let (key, salt) = cipher.split_at_checked(cipher.len().checked_sub(SALT_LEN)?)?;
        let mut made = Self {
            suite,
            aes: Cleansed([0; AES_WORDS]),
            authentication: Cleansed([0; AUTHENTICATION_WORDS]),
            salt: Cleansed([u32::from_be_bytes(salt.try_into().ok()?)]),
        };
        for (word, bytes) in made.aes.0.iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().ok()?);
        }
        if suite.is_gcm() {
            made.powers(key)?;
        } else {
            let states = Hmac::new(transform.integrity()?, integrity)?.states()?;
            for (place, state) in made.authentication.0.chunks_exact_mut(8).zip(&states) {
                place.copy_from_slice(&state.0);
            }
        }
        Some(made)
    }

    /// H, the zero block encrypted (SP 800-38D §6.4), and its powers.
    fn powers(&mut self, key: &[u8]) -> Option<()> {
        let block = Cleansed(EncryptKey::new(key)?.encrypt_block([0; 16]));
        let h = u128::from_be_bytes(block.0);
        let mut power = h;
        for place in self.authentication.0.chunks_exact_mut(4) {
            for (index, word) in place.iter_mut().enumerate() {
                *word = (power >> (96 - 32 * index)) as u32;
            }
            power = times(power, h);
        }
        Some(())
    }

    pub fn aes(&self) -> &[u32] {
        &self.aes.0
    }

    /// GCM: H, H², H³, H⁴. CTR: the states of SHA-256 after the inner and after the outer pad.
    pub fn authentication(&self) -> &[u32] {
        &self.authentication.0
    }

    /// Salt (RFC 4106) or nonce (RFC 3686).
    pub fn salt(&self) -> u32 {
        self.salt.0[0]
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceKey")
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

/// The product in GCM's field (SP 800-38D §6.3), the same steps whatever the factors.
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
    use super::*;
    use crate::{JobStatus, KeyContext, cpu};

    fn material(transform: Transform) -> Vec<u8> {
        (0..transform.key_material_len())
            .map(|i| (i * 7 + 3) as u8)
            .collect()
    }

    fn block(words: &[u32]) -> u128 {
        words
            .iter()
            .fold(0, |sum, word| sum << 32 | u128::from(*word))
    }

    #[test]
    fn powers_of_h_authenticate_as_the_library_does() {
        for suite in [Suite::Gcm128, Suite::Gcm256] {
            let transform = suite.transform().unwrap();
            let key_material = material(transform);
            let key = DeviceKey::new(transform, &key_material).unwrap();
            let context = KeyContext::new(transform, false, &key_material).unwrap();
            // Two blocks: with those of AAD and lengths one for each power.
            let mut packet = vec![0x5a; 8 + 8 + 32 + 16];
            assert_eq!(cpu::seal(&context, 1, &mut packet), JobStatus::Done);
            let (sealed, icv) = packet.split_at(48);
            let at = |range: std::ops::Range<usize>| {
                let mut bytes = [0; 16];
                bytes[..range.len()].copy_from_slice(&sealed[range]);
                u128::from_be_bytes(bytes)
            };
            let lengths = 64 << 64 | 256;
            let blocks = [at(0..8), at(16..32), at(32..48), lengths];
            let powers = key.authentication().chunks(4).map(block);
            let hash = blocks
                .iter()
                .rev()
                .zip(powers)
                .fold(0, |sum, (x, power)| sum ^ times(*x, power));
            let mut counter = [0; 16];
            counter[..4].copy_from_slice(&key.salt().to_be_bytes());
            counter[4..12].copy_from_slice(&sealed[8..16]);
            counter[15] = 1;
            let aes: Vec<u8> = key
                .aes()
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect();
            let aes = &aes[..transform.encryption_key_len() - SALT_LEN];
            let mask = EncryptKey::new(aes).unwrap().encrypt_block(counter);
            assert_eq!((hash ^ u128::from_be_bytes(mask)).to_be_bytes(), icv);
        }
    }

    #[test]
    fn the_states_of_the_pads_are_kept() {
        for suite in [Suite::Ctr128Sha2, Suite::Ctr256Sha2] {
            let transform = suite.transform().unwrap();
            let key_material = material(transform);
            let key = DeviceKey::new(transform, &key_material).unwrap();
            let (cipher, integrity) = key_material.split_at(transform.encryption_key_len());
            let hmac = Hmac::new(Integrity::HmacSha2_256_128, integrity).unwrap();
            let [inner, outer] = hmac.states().unwrap();
            assert_eq!(key.authentication(), [inner.0, outer.0].concat());
            assert_ne!(inner.0, outer.0);
            assert_eq!(key.aes()[0].to_be_bytes(), cipher[..4]);
            assert_eq!(key.salt().to_be_bytes(), cipher[cipher.len() - 4..]);
        }
    }

    #[test]
    fn other_transforms_and_lengths_have_no_form() {
        let known = Transform::all().filter(|transform| Suite::of(*transform).is_some());
        assert_eq!(known.count(), Suite::ALL.len());
        let transform = Suite::Gcm256.transform().unwrap();
        assert!(DeviceKey::new(transform, &[0; 35]).is_none());
        assert!(DeviceKey::new(transform, &[0; 37]).is_none());
    }
}
