//! Key contexts: everything about a key that can be computed once, when the SA is installed.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, LessSafeKey, UnboundKey};

use crate::cbc::CbcHmac;
use crate::transform::{AesKeyLength, SALT_LEN, Transform};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key material has {actual} bytes, {name} needs {expected}", name = .transform.name())]
    WrongLength {
        transform: Transform,
        expected: usize,
        actual: usize,
    },
    #[error("the cryptographic library refused the key")]
    Refused,
}

/// One direction of one SA: transform, ESN flag and the expanded keys. Immutable; zeroised on drop.
pub struct KeyContext {
    transform: Transform,
    esn: bool,
    pub(crate) keys: Keys,
}

pub(crate) enum Keys {
    /// aws-lc cleanses the context when it frees it.
    Gcm {
        key: LessSafeKey,
        salt: [u8; SALT_LEN],
    },
    CbcHmac(Box<CbcHmac>),
}

impl KeyContext {
    /// Expands `key_material`, laid out as [`Transform::key_material_len`] says.
    pub fn new(transform: Transform, esn: bool, key_material: &[u8]) -> Result<Self, KeyError> {
        if key_material.len() != transform.key_material_len() {
            return Err(KeyError::WrongLength {
                transform,
                expected: transform.key_material_len(),
                actual: key_material.len(),
            });
        }
        let (cipher_key, rest) = key_material.split_at(transform.aes_key_length().bytes());
        let keys = match transform {
            Transform::AesGcm16(length) => {
                let algorithm = match length {
                    AesKeyLength::Bits128 => &AES_128_GCM,
                    AesKeyLength::Bits192 => &AES_192_GCM,
                    AesKeyLength::Bits256 => &AES_256_GCM,
                };
                let key = UnboundKey::new(algorithm, cipher_key).map_err(|_| KeyError::Refused)?;
                let mut salt = [0; SALT_LEN];
                salt.copy_from_slice(rest);
                Keys::Gcm {
                    key: LessSafeKey::new(key),
                    salt,
                }
            }
            Transform::AesCbcHmac(_, integrity) => {
                let keys = CbcHmac::new(cipher_key, integrity, rest).ok_or(KeyError::Refused)?;
                Keys::CbcHmac(Box::new(keys))
            }
        };
        Ok(Self {
            transform,
            esn,
            keys,
        })
    }

    pub fn transform(&self) -> Transform {
        self.transform
    }

    /// Whether the SA uses 64-bit extended sequence numbers (RFC 4303 §2.2.1).
    pub fn esn(&self) -> bool {
        self.esn
    }
}

impl Drop for KeyContext {
    fn drop(&mut self) {
        if let Keys::Gcm { salt, .. } = &mut self.keys {
            zeroize::Zeroize::zeroize(salt);
        }
    }
}

impl std::fmt::Debug for KeyContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyContext")
            .field("transform", &self.transform)
            .field("esn", &self.esn)
            .finish_non_exhaustive()
    }
}
