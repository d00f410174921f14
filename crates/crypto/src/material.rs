//! Raw keys, from which each engine makes its own form.

use zeroize::Zeroizing;

use crate::aes::{BLOCK, EncryptKey};
use crate::hmac::Hmac;
use crate::iana::Encryption;
use crate::secret::Secret;
use crate::tier::MissingFeature;
use crate::transform::Transform;
use crate::weak::{self, WeakKey};

/// The reason why no context was made. It reveals nothing about the key's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key material has {actual} bytes, {transform} needs {expected}")]
    WrongLength {
        transform: Transform,
        expected: usize,
        actual: usize,
    },
    #[error("the key for {transform} is refused: {weakness}")]
    Weak {
        transform: Transform,
        weakness: WeakKey,
    },
    #[error("the cryptographic library refused the key")]
    Refused,
    #[error(transparent)]
    Missing(#[from] MissingFeature),
}

/// The keys of one SA direction and their transform. They are zeroised on drop and never printed.
#[derive(Debug)]
pub struct KeyMaterial {
    transform: Transform,
    esn: bool,
    bytes: Secret,
}

impl KeyMaterial {
    /// Makes key material from bytes laid out as [`Transform::key_material_len`] says. Weak keys are refused.
    pub fn new(transform: Transform, esn: bool, bytes: &[u8]) -> Result<Self, KeyError> {
        let expected = transform.key_material_len();
        if bytes.len() != expected {
            return Err(KeyError::WrongLength {
                transform,
                expected,
                actual: bytes.len(),
            });
        }
        weak::check(transform, bytes).map_err(|weakness| KeyError::Weak {
            transform,
            weakness,
        })?;
        Ok(Self {
            transform,
            esn,
            bytes: Secret::from(bytes),
        })
    }

    pub fn transform(&self) -> Transform {
        self.transform
    }

    /// Returns true if the SA uses 64-bit extended sequence numbers (RFC 4303 §2.2.1).
    pub fn esn(&self) -> bool {
        self.esn
    }

    /// All bytes. The name makes every use easy to find in a review.
    pub fn expose(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// The cipher's key without its salt; empty if there is no cipher key.
    pub fn cipher_key(&self) -> &[u8] {
        self.cipher().0
    }

    /// The bytes that precede the IV in a nonce: salt (RFC 4106 §4) or nonce (RFC 3686 §4). The slice is empty if the
    /// cipher has none.
    pub fn salt(&self) -> &[u8] {
        self.cipher().1
    }

    /// The integrity algorithm's key with its salt, if it has one; empty if there is no integrity algorithm.
    pub fn integrity_key(&self) -> &[u8] {
        let bytes = self.bytes.expose();
        bytes
            .get(self.transform.encryption_key_len()..)
            .unwrap_or_default()
    }

    fn cipher(&self) -> (&[u8], &[u8]) {
        let bytes = self.bytes.expose();
        let cipher = bytes.get(..self.transform.encryption_key_len());
        let cipher = cipher.unwrap_or_default();
        let salt_len = self.transform.encryption().map_or(0, Encryption::salt_len);
        cipher.split_at(cipher.len().saturating_sub(salt_len))
    }

    /// Returns H of AES-GCM, which is the encrypted zero block (SP 800-38D §6.4). Returns `None` for other ciphers.
    pub fn hash_key(&self) -> Option<Zeroizing<[u8; BLOCK]>> {
        match self.transform.encryption()? {
            Encryption::AesGcm8 | Encryption::AesGcm12 | Encryption::AesGcm16 => {
                let key = EncryptKey::new(self.cipher_key())?;
                Some(Zeroizing::new(key.encrypt_block([0; BLOCK])))
            }
            _ => None,
        }
    }

    /// Returns the chaining values of an HMAC's hash after its inner and after its outer pad (RFC 2104), padded with
    /// zeros. Returns `None` for other algorithms, and if the hash has 64-bit words.
    pub fn hmac_states(&self) -> Option<[Zeroizing<[u32; 8]>; 2]> {
        let hmac = Hmac::new(self.transform.integrity()?, self.integrity_key())?;
        let states = hmac.states()?;
        Some(states.map(|state| Zeroizing::new(state.0)))
    }
}
