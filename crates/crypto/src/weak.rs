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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iana::Integrity;

    const SHA256: Option<Integrity> = Some(Integrity::HmacSha2_256_128);

    fn checked(cipher: Encryption, key: &[u8]) -> Result<(), WeakKey> {
        let transform = Transform::esp(cipher, 0, SHA256).expect("a transform");
        check(transform, &[key, &[7; 32]].concat())
    }

    /// The keys of FIPS 74 and SP 800-67: first the four weak keys, then the twelve semi-weak ones.
    #[test]
    fn weak_des_keys_are_refused_with_any_parity() {
        let weak = [
            "0101010101010101",
            "fefefefefefefefe",
            "1f1f1f1f0e0e0e0e",
            "e0e0e0e0f1f1f1f1",
            "01fe01fe01fe01fe",
            "fe01fe01fe01fe01",
            "1fe01fe00ef10ef1",
            "e01fe01ff10ef10e",
            "01e001e001f101f1",
            "e001e001f101f101",
            "1ffe1ffe0efe0efe",
            "fe1ffe1ffe0efe0e",
            "011f011f010e010e",
            "1f011f010e010e01",
            "e0fee0fef1fef1fe",
            "fee0fee0fef1fef1",
        ];
        for key in weak {
            let key = u64::from_str_radix(key, 16).expect("hex").to_be_bytes();
            assert_eq!(checked(Encryption::Des, &key), Err(WeakKey::Des));
            let other_parity = key.map(|byte| byte ^ 1);
            let expected = match other_parity {
                [0, 0, 0, 0, 0, 0, 0, 0] => WeakKey::ZeroEncryption,
                _ => WeakKey::Des,
            };
            assert_eq!(checked(Encryption::Des, &other_parity), Err(expected));
            let good = *b"\x01\x23\x45\x67\x89\xab\xcd\xef";
            let triple = [good, [0x5b; 8], key].concat();
            assert_eq!(checked(Encryption::TripleDes, &triple), Err(WeakKey::Des));
        }
        assert_eq!(
            checked(Encryption::Des, b"\x01\x23\x45\x67\x89\xab\xcd\xef"),
            Ok(())
        );
    }

    #[test]
    fn equal_parts_are_refused_whatever_their_parity() {
        let (a, b, c) = ([0x10; 8], [0x32; 8], [0x54; 8]);
        let same = a.map(|byte| byte ^ 1);
        for parts in [[a, same, c], [b, a, same], [a, b, same], [a, a, a]] {
            let key = parts.concat();
            assert_eq!(
                checked(Encryption::TripleDes, &key),
                Err(WeakKey::EqualParts)
            );
        }
        assert_eq!(checked(Encryption::TripleDes, &[a, b, c].concat()), Ok(()));
    }

    #[test]
    fn zero_keys_are_refused_and_zero_salts_are_not() {
        for transform in Transform::all() {
            let mut key = vec![0; transform.key_material_len()];
            for (at, byte) in key.iter_mut().enumerate() {
                *byte = (at as u8).wrapping_mul(30) ^ 1;
            }
            assert_eq!(check(transform, &key), Ok(()), "{transform}");
            let split = transform.encryption_key_len();
            if let Some(cipher) = transform.encryption().filter(|c| *c != Encryption::Null) {
                let mut zero = key.clone();
                zero[split - cipher.salt_len()..split].fill(0);
                assert_eq!(check(transform, &zero), Ok(()), "{transform}");
                zero[..split].fill(0);
                assert_eq!(
                    check(transform, &zero),
                    Err(WeakKey::ZeroEncryption),
                    "{transform}"
                );
            }
            if transform.integrity().is_some() {
                let mut zero = key.clone();
                zero[split..].fill(0);
                assert_eq!(
                    check(transform, &zero),
                    Err(WeakKey::ZeroIntegrity),
                    "{transform}"
                );
            }
        }
    }
}
