//! The cipher of the IKE Encrypted payload (RFC 7296 section 3.14, RFC 5282), in place on the message.

use aws_lc_rs::aead;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::cbc::CbcHmac;
use crate::iana::{Encryption, Integrity};

const GCM_SALT_LEN: usize = 4;
const GCM_IV_LEN: usize = 8;
const GCM_ICV_LEN: usize = 16;
const AES_BLOCK: usize = 16;

/// The message was not made by the holder of the key, or was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message does not authenticate")]
pub struct Forged;

/// Key lengths of one direction of an IKE SA: SK_e (with the salt of an AEAD) and SK_a.
pub const fn key_lens(
    encryption: Encryption,
    key_bits: u16,
    integrity: Option<Integrity>,
) -> (usize, usize) {
    let cipher = encryption.key_len(key_bits) + encryption.salt_len();
    match integrity {
        Some(integrity) if !encryption.is_aead() => (cipher, integrity.key_len()),
        _ => (cipher, 0),
    }
}

/// The keys of one direction.
pub struct SkKey(Kind);

enum Kind {
    Gcm {
        key: Box<aead::LessSafeKey>,
        salt: Zeroizing<[u8; GCM_SALT_LEN]>,
    },
    Cbc {
        keys: Box<CbcHmac>,
        icv_len: usize,
    },
}

impl SkKey {
    /// None if a key length does not suit the algorithms, or the algorithms each other.
    pub fn new(
        encryption: Encryption,
        integrity: Option<Integrity>,
        sk_e: &[u8],
        sk_a: &[u8],
    ) -> Option<Self> {
        match (encryption, integrity) {
            (Encryption::AesGcm16, None) => {
                let (key, salt) = sk_e.split_last_chunk::<GCM_SALT_LEN>()?;
                let algorithm = match key.len() {
                    16 => &aead::AES_128_GCM,
                    24 => &aead::AES_192_GCM,
                    32 => &aead::AES_256_GCM,
                    _ => return None,
                };
                let key = aead::UnboundKey::new(algorithm, key).ok()?;
                Some(Self(Kind::Gcm {
                    key: Box::new(aead::LessSafeKey::new(key)),
                    salt: Zeroizing::new(*salt),
                }))
            }
            (Encryption::AesCbc, Some(integrity)) => {
                if sk_a.len() != integrity.key_len() {
                    return None;
                }
                Some(Self(Kind::Cbc {
                    keys: Box::new(CbcHmac::new(sk_e, integrity, sk_a)?),
                    icv_len: sk_a.len() / 2,
                }))
            }
            _ => None,
        }
    }

    pub fn iv_len(&self) -> usize {
        match self.0 {
            Kind::Gcm { .. } => GCM_IV_LEN,
            Kind::Cbc { .. } => AES_BLOCK,
        }
    }

    pub fn icv_len(&self) -> usize {
        match self.0 {
            Kind::Gcm { .. } => GCM_ICV_LEN,
            Kind::Cbc { icv_len, .. } => icv_len,
        }
    }

    /// Padding and its length byte fill the content to a multiple of this.
    pub fn block_len(&self) -> usize {
        match self.0 {
            Kind::Gcm { .. } => 1,
            Kind::Cbc { .. } => AES_BLOCK,
        }
    }

    /// A GCM IV must never repeat under one key; a CBC IV must be unpredictable.
    pub fn iv_is_counter(&self) -> bool {
        matches!(self.0, Kind::Gcm { .. })
    }

    /// Seals a message of which the Encrypted payload's IV begins at `iv_at`, followed by the padded
    /// content; appends the ICV. None if the lengths do not fit; the message is then unusable.
    pub fn seal(&self, message: &mut Vec<u8>, iv_at: usize) -> Option<()> {
        let content_at = iv_at.checked_add(self.iv_len())?;
        let (head, content) = message.split_at_mut_checked(content_at)?;
        let (aad, iv) = head.split_at_checked(iv_at)?;
        if !content.len().is_multiple_of(self.block_len()) {
            return None;
        }
        match &self.0 {
            Kind::Gcm { key, salt } => {
                let nonce = gcm_nonce(salt, iv)?;
                let tag = key
                    .seal_in_place_separate_tag(nonce, aead::Aad::from(aad), content)
                    .ok()?;
                message.extend_from_slice(tag.as_ref());
            }
            Kind::Cbc { keys, icv_len } => {
                keys.encrypt(iv.try_into().ok()?, content);
                let icv = keys.icv(message, &[]);
                message.extend_from_slice(icv.get(..*icv_len)?);
            }
        }
        Some(())
    }

    /// Checks the whole message, of which the Encrypted payload's IV begins at `iv_at` and whose
    /// last bytes are the ICV, and decrypts in place; returns where the padded content lies.
    pub fn open(&self, message: &mut [u8], iv_at: usize) -> Result<std::ops::Range<usize>, Forged> {
        let content_at = iv_at.checked_add(self.iv_len()).ok_or(Forged)?;
        let icv_at = message.len().checked_sub(self.icv_len()).ok_or(Forged)?;
        let range = content_at..icv_at;
        if icv_at < content_at || !range.len().is_multiple_of(self.block_len()) {
            return Err(Forged);
        }
        match &self.0 {
            Kind::Gcm { key, salt } => {
                let (head, sealed) = message.split_at_mut(content_at);
                let (aad, iv) = head.split_at(iv_at);
                let nonce = gcm_nonce(salt, iv).ok_or(Forged)?;
                key.open_in_place(nonce, aead::Aad::from(aad), sealed)
                    .map_err(|_| Forged)?;
            }
            Kind::Cbc { keys, icv_len } => {
                let (covered, icv) = message.split_at_mut(icv_at);
                let expected = keys.icv(covered, &[]);
                let expected = expected.get(..*icv_len).ok_or(Forged)?;
                if !bool::from(expected.ct_eq(icv)) {
                    return Err(Forged);
                }
                let (head, content) = covered.split_at_mut(content_at);
                let iv = head.get(iv_at..).and_then(|iv| iv.try_into().ok());
                keys.decrypt(iv.ok_or(Forged)?, content);
            }
        }
        Ok(range)
    }
}

fn gcm_nonce(salt: &[u8; GCM_SALT_LEN], iv: &[u8]) -> Option<aead::Nonce> {
    let mut nonce = [0; GCM_SALT_LEN + GCM_IV_LEN];
    let (left, right) = nonce.split_first_chunk_mut::<GCM_SALT_LEN>()?;
    *left = *salt;
    if right.len() != iv.len() {
        return None;
    }
    right.copy_from_slice(iv);
    Some(aead::Nonce::assume_unique_for_key(nonce))
}

impl std::fmt::Debug for SkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.0 {
            Kind::Gcm { .. } => "AES-GCM",
            Kind::Cbc { .. } => "AES-CBC with HMAC",
        };
        write!(f, "SkKey({name})")
    }
}
