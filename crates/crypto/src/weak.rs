//! Weak keys that must not be used, wherever they come from.

use aws_lc_sys as lc;
use subtle::ConstantTimeEq;

use crate::des::BLOCK;
use crate::iana::Encryption;
use crate::plain::Cleansed;
use crate::transform::Transform;

/// The reason why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WeakKey {
    #[error("the encryption key is all zeros")]
    ZeroEncryption,
    #[error("the integrity key is all zeros")]
    ZeroIntegrity,
    #[error("it is a weak or semi-weak DES key")]
    Des,
    #[error("two of the three DES keys are equal")]
    EqualParts,
}

/// Checks key material of the right length for weaknesses. Salts may have any value.
pub(crate) fn check(transform: Transform, key_material: &[u8]) -> Result<(), WeakKey> {
    let (cipher_key, integrity_key) = key_material.split_at(transform.encryption_key_len());
    if let Some(cipher) = transform.encryption() {
        let key = &cipher_key[..cipher_key.len() - cipher.salt_len()];
        if !key.is_empty() && is_zero(key) {
            return Err(WeakKey::ZeroEncryption);
        }
        if matches!(cipher, Encryption::Des | Encryption::TripleDes) {
            check_des(key)?;
        }
    }
    if let Some(integrity) = transform.integrity()
        && is_zero(&integrity_key[..integrity.key_len()])
    {
        return Err(WeakKey::ZeroIntegrity);
    }
    Ok(())
}

fn is_zero(key: &[u8]) -> bool {
    key.iter().fold(0, |all, byte| all | byte) == 0
}

/// Checks that no DES key is weak or semi-weak, and that no two are equal (RFC 2451 §2.6, SP 800-67). Parity bits are
/// ignored, because they are no part of a DES key.
fn check_des(key: &[u8]) -> Result<(), WeakKey> {
    let parts: Vec<_> = key.as_chunks::<BLOCK>().0.iter().map(odd).collect();
    // SAFETY: each pointer is valid for one key.
    let weak = |part: &Cleansed<lc::DES_cblock>| unsafe { lc::DES_is_weak_key(&part.0) } != 0;
    if parts.iter().any(weak) {
        return Err(WeakKey::Des);
    }
    let same = |a: usize, b: usize| match (parts.get(a), parts.get(b)) {
        (Some(a), Some(b)) => bool::from(a.0.bytes.ct_eq(&b.0.bytes)),
        _ => false,
    };
    if same(0, 1) | same(1, 2) | same(0, 2) {
        return Err(WeakKey::EqualParts);
    }
    Ok(())
}

/// Returns the key with odd parity.
fn odd(key: &[u8; BLOCK]) -> Cleansed<lc::DES_cblock> {
    let mut key = Cleansed(lc::DES_cblock { bytes: *key });
    // SAFETY: the pointer is valid for one key.
    unsafe { lc::DES_set_odd_parity(&mut key.0) };
    key
}
