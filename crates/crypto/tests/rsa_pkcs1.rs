//! RSA signatures.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RsaKeyPair, UnparsedPublicKey,
};
use esplanade_crypto::rsa_pkcs1::{RsaHash, RsaSha1Key};

#[test]
fn signs_what_another_interface_verifies() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der = pair.as_der().unwrap();
    let key = RsaSha1Key::from_der(der.as_ref()).unwrap();
    let signature = key.sign(b"octets").unwrap();
    let public = UnparsedPublicKey::new(
        &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        pair.public_key().as_ref(),
    );
    assert!(public.verify(b"octets", &signature).is_ok());
    assert!(public.verify(b"other", &signature).is_err());
    assert!(RsaSha1Key::from_der(&der.as_ref()[1..]).is_none());
}

#[test]
fn refuses_keys_and_signatures_that_are_none() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let key = pair.public_key().as_ref();
    for hash in [RsaHash::Sha224, RsaHash::Sha3_256] {
        assert!(!hash.verifies(key, b"octets", &[]));
        assert!(!hash.verifies(key, b"octets", &[1; 256]));
        assert!(!hash.verifies(&key[1..], b"octets", &[1; 256]));
        assert!(!hash.verifies(&[], b"octets", &[1; 256]));
    }
}
