//! Key contexts: everything about a key that can be computed once, when the SA is installed.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, LessSafeKey, UnboundKey};

use crate::cbc::CbcHmac;
use crate::iana::Encryption;
use crate::transform::Transform;

pub(crate) const SALT_LEN: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key material has {actual} bytes, {name} needs {expected}", name = .transform)]
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
        let keys = match (transform.encryption(), transform.integrity()) {
            (Some(Encryption::AesGcm16), None) => {
                let algorithm = match transform.key_bits() {
                    128 => &AES_128_GCM,
                    192 => &AES_192_GCM,
                    _ => &AES_256_GCM,
                };
                let (cipher_key, rest) = key_material.split_at(key_material.len() - SALT_LEN);
                let key = UnboundKey::new(algorithm, cipher_key).map_err(|_| KeyError::Refused)?;
                let mut salt = [0; SALT_LEN];
                salt.copy_from_slice(rest);
                Keys::Gcm {
                    key: LessSafeKey::new(key),
                    salt,
                }
            }
            (Some(Encryption::AesCbc), Some(integrity)) => {
                let (cipher_key, rest) = key_material.split_at(transform.encryption_key_len());
                let keys = CbcHmac::new(cipher_key, integrity, rest).ok_or(KeyError::Refused)?;
                Keys::CbcHmac(Box::new(keys))
            }
            _ => return Err(KeyError::Refused),
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
            .field("transform", &format_args!("{}", self.transform))
            .field("esn", &self.esn)
            .finish_non_exhaustive()
    }
}
