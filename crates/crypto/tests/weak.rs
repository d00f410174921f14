//! Weak keys.

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::testing::check_weak;
use esplanade_crypto::{Transform, WeakKey};

const SHA256: Option<Integrity> = Some(Integrity::HmacSha2_256_128);

fn checked(cipher: Encryption, key: &[u8]) -> Result<(), WeakKey> {
    let transform = Transform::esp(cipher, 0, SHA256).expect("a transform");
    check_weak(transform, &[key, &[7; 32]].concat())
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
        assert_eq!(check_weak(transform, &key), Ok(()), "{transform}");
        let split = transform.encryption_key_len();
        if let Some(cipher) = transform.encryption().filter(|c| *c != Encryption::Null) {
            let mut zero = key.clone();
            zero[split - cipher.salt_len()..split].fill(0);
            assert_eq!(check_weak(transform, &zero), Ok(()), "{transform}");
            zero[..split].fill(0);
            assert_eq!(
                check_weak(transform, &zero),
                Err(WeakKey::ZeroEncryption),
                "{transform}"
            );
        }
        if transform.integrity().is_some() {
            let mut zero = key.clone();
            zero[split..].fill(0);
            assert_eq!(
                check_weak(transform, &zero),
                Err(WeakKey::ZeroIntegrity),
                "{transform}"
            );
        }
    }
}
