//! The ciphers that are not AEADs.

use crate::aes::{self, DecryptKey, EncryptKey};
use crate::des::{self, DesKey};
use crate::finalists::{self, Finalist, FinalistName};
use crate::iana::Encryption;
use crate::plain::Cleansed;

/// A cipher key.
pub(crate) enum Cipher {
    Null,
    AesCbc {
        encrypt: EncryptKey,
        /// This is boxed because an SA needs only one of the two keys, and cache memory is scarce.
        decrypt: Box<DecryptKey>,
    },
    AesCtr {
        key: EncryptKey,
        /// The nonce of the key material (RFC 3686 §4).
        salt: Cleansed<[u8; 4]>,
    },
    Des(DesKey),
    FinalistCbc(Finalist),
    FinalistCtr {
        key: Finalist,
        /// The nonce of the key material, as in AES-CTR.
        nonce: Cleansed<[u8; 4]>,
    },
}

/// The IV does not have the cipher's IV length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrongIv;

impl Cipher {
    /// Makes a key from key and salt. Returns `None` for an AEAD, and if the length does not suit the cipher.
    pub(crate) fn new(encryption: Encryption, key: &[u8]) -> Option<Self> {
        match encryption {
            Encryption::Null => key.is_empty().then_some(Self::Null),
            Encryption::AesCbc => Some(Self::AesCbc {
                encrypt: EncryptKey::new(key)?,
                decrypt: Box::new(DecryptKey::new(key)?),
            }),
            Encryption::AesCtr => {
                let (key, salt) = key.split_last_chunk::<4>()?;
                Some(Self::AesCtr {
                    key: EncryptKey::new(key)?,
                    salt: Cleansed(*salt),
                })
            }
            Encryption::Des | Encryption::TripleDes if key.len() == encryption.key_len(0) => {
                DesKey::new(key).map(Self::Des)
            }
            Encryption::SerpentCbc => finalist_cbc(FinalistName::Serpent, key),
            Encryption::TwofishCbc => finalist_cbc(FinalistName::Twofish, key),
            Encryption::MarsCtr => finalist_ctr(FinalistName::Mars, key),
            Encryption::Rc6Ctr => finalist_ctr(FinalistName::Rc6, key),
            Encryption::SerpentCtr => finalist_ctr(FinalistName::Serpent, key),
            Encryption::TwofishCtr => finalist_ctr(FinalistName::Twofish, key),
            _ => None,
        }
    }

    /// Encrypts in place. `body` must consist of whole blocks.
    pub(crate) fn encrypt(&self, iv: &[u8], body: &mut [u8]) -> Result<(), WrongIv> {
        match self {
            Self::Null => {}
            Self::AesCbc { encrypt, .. } => encrypt.cbc(whole::<{ aes::BLOCK }>(iv)?, body),
            Self::AesCtr { key, salt } => key.ctr(counter(&salt.0, whole(iv)?), body),
            Self::Des(key) => key.encrypt(whole::<{ des::BLOCK }>(iv)?, body),
            Self::FinalistCbc(key) => key.cbc_encrypt(whole::<{ finalists::BLOCK }>(iv)?, body),
            Self::FinalistCtr { key, nonce } => key.ctr(nonce.0, whole(iv)?, body),
        }
        Ok(())
    }

    /// Decrypts in place. `body` must consist of whole blocks.
    pub(crate) fn decrypt(&self, iv: &[u8], body: &mut [u8]) -> Result<(), WrongIv> {
        match self {
            Self::Null => {}
            Self::AesCbc { decrypt, .. } => decrypt.cbc(whole::<{ aes::BLOCK }>(iv)?, body),
            Self::AesCtr { key, salt } => key.ctr(counter(&salt.0, whole(iv)?), body),
            Self::Des(key) => key.decrypt(whole::<{ des::BLOCK }>(iv)?, body),
            Self::FinalistCbc(key) => key.cbc_decrypt(whole::<{ finalists::BLOCK }>(iv)?, body),
            Self::FinalistCtr { key, nonce } => key.ctr(nonce.0, whole(iv)?, body),
        }
        Ok(())
    }
}

fn finalist_cbc(name: FinalistName, key: &[u8]) -> Option<Cipher> {
    Finalist::new(name, key).map(Cipher::FinalistCbc)
}

fn finalist_ctr(name: FinalistName, key: &[u8]) -> Option<Cipher> {
    let (key, nonce) = key.split_last_chunk::<4>()?;
    Some(Cipher::FinalistCtr {
        key: Finalist::new(name, key)?,
        nonce: Cleansed(*nonce),
    })
}

fn whole<const N: usize>(iv: &[u8]) -> Result<[u8; N], WrongIv> {
    iv.try_into().map_err(|_| WrongIv)
}

/// Returns the first counter block: nonce || IV || 1 (RFC 3686 §4).
fn counter(salt: &[u8; 4], iv: [u8; 8]) -> [u8; aes::BLOCK] {
    let mut block = [0; aes::BLOCK];
    block[..4].copy_from_slice(salt);
    block[4..12].copy_from_slice(&iv);
    block[aes::BLOCK - 1] = 1;
    block
}
