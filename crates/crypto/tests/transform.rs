//! Transforms: their names, lengths and levels.

use esplanade_crypto::Transform;
use esplanade_crypto::iana::{Encryption, Integrity, Requirement};

#[test]
fn lengths_agree_with_each_other() {
    for transform in Transform::ESP {
        let again = transform
            .encryption()
            .and_then(|cipher| Transform::esp(cipher, transform.key_bits(), transform.integrity()));
        assert_eq!(again, Some(transform));
        for payload in 0..200 {
            let sealed = transform.sealed_len(payload);
            assert!(transform.payload_len_max(sealed) >= payload);
            assert_eq!(
                transform.sealed_len(transform.payload_len_max(sealed)),
                sealed
            );
        }
    }
}

#[test]
fn every_transform_is_listed_once_and_found_by_its_name() {
    let mut seen = std::collections::HashSet::new();
    for transform in Transform::all() {
        assert!(seen.insert(transform.name()), "{transform} is listed twice");
        assert_eq!(Transform::from_name(&transform.name()), Some(transform));
    }
    let integrity = || Integrity::ALL.iter().map(|i| Some(*i)).chain([None]);
    for &cipher in Encryption::ALL {
        for &bits in cipher.key_bits() {
            for transform in integrity().filter_map(|i| Transform::esp(cipher, bits, i)) {
                assert!(seen.remove(&transform.name()), "{transform} is not listed");
            }
        }
    }
    for &integrity in Integrity::ALL {
        assert!(seen.remove(&Transform::ah(integrity).name()));
    }
    assert!(seen.is_empty());
}

// RFC 4303 R23, R24, R33; RFC 4301 R70, R78
#[test]
fn aead_and_integrity_do_not_mix_and_encryption_needs_integrity() {
    let sha256 = Some(Integrity::HmacSha2_256_128);
    assert_eq!(Transform::esp(Encryption::AesGcm16, 128, sha256), None);
    assert_eq!(Transform::esp(Encryption::AesCbc, 64, sha256), None);
    assert_eq!(
        Transform::esp(Encryption::ChaCha20Poly1305, 256, None),
        None
    );
    for &cipher in Encryption::ALL.iter().filter(|cipher| !cipher.is_aead()) {
        for &bits in cipher.key_bits() {
            assert_eq!(Transform::esp(cipher, bits, None), None, "{cipher}");
        }
    }
    let sha512 = Some(Integrity::HmacSha2_512_256);
    assert_eq!(Transform::esp(Encryption::MarsCtr, 128, sha512), None);
}

#[test]
fn a_transform_is_as_weak_as_its_weakest_algorithm() {
    let esp = |cipher, bits, integrity| Transform::esp(cipher, bits, integrity).unwrap();
    let sha256 = Some(Integrity::HmacSha2_256_128);
    let des = esp(Encryption::TripleDes, 0, sha256);
    assert!(des.legacy());
    assert_eq!(des.requirement(), Requirement::ShouldNot);
    let md5 = esp(Encryption::AesCbc, 128, Some(Integrity::HmacMd5_96));
    assert!(md5.legacy());
    assert_eq!(md5.requirement(), Requirement::MustNot);
    assert_eq!(
        esp(Encryption::AesCbc, 192, sha256).requirement(),
        Requirement::May
    );
    assert_eq!(
        esp(Encryption::AesGcm16, 128, None).requirement(),
        Requirement::Must
    );
    assert!(!esp(Encryption::Null, 0, sha256).encrypts());
}
