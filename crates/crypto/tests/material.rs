//! Key material and its forms.

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{KeyError, KeyMaterial, Transform};

fn material(transform: Transform) -> KeyMaterial {
    let bytes: Vec<u8> = (0..transform.key_material_len())
        .map(|at| (at * 7 + 3) as u8)
        .collect();
    KeyMaterial::new(transform, true, &bytes).unwrap()
}

#[test]
fn the_parts_are_the_whole() {
    for transform in Transform::all() {
        let material = material(transform);
        let parts = [
            material.cipher_key(),
            material.salt(),
            material.integrity_key(),
        ];
        assert_eq!(parts.concat(), material.expose(), "{transform}");
        let salt_len = transform.encryption().map_or(0, Encryption::salt_len);
        assert_eq!(material.salt().len(), salt_len, "{transform}");
    }
}

#[test]
fn forms_are_for_their_algorithms_alone() {
    for transform in Transform::all() {
        let material = material(transform);
        let is_gcm = transform.encryption().is_some_and(|cipher| {
            let gcm = [
                Encryption::AesGcm8,
                Encryption::AesGcm12,
                Encryption::AesGcm16,
            ];
            gcm.contains(&cipher)
        });
        assert_eq!(material.hash_key().is_some(), is_gcm, "{transform}");
        let has_states = transform.integrity().is_some_and(|integrity| {
            let short = [
                Integrity::HmacMd5_96,
                Integrity::HmacSha1_96,
                Integrity::HmacSha2_256_128,
            ];
            short.contains(&integrity)
        });
        assert_eq!(material.hmac_states().is_some(), has_states, "{transform}");
    }
}

#[test]
fn lengths_and_weak_keys_are_refused() {
    let transform = Transform::ESP[0];
    let len = transform.key_material_len();
    for wrong in [0, len - 1, len + 1] {
        let refused = KeyMaterial::new(transform, false, &vec![7; wrong]);
        assert!(matches!(refused, Err(KeyError::WrongLength { .. })));
    }
    let refused = KeyMaterial::new(transform, false, &vec![0; len]);
    assert!(matches!(refused, Err(KeyError::Weak { .. })));
}

#[test]
fn nothing_of_it_is_printed() {
    let printed = format!("{:?}", material(Transform::ESP[0]));
    assert!(printed.contains("bytes)"), "{printed}");
    assert!(!printed.contains("10, 17"), "{printed}");
}
