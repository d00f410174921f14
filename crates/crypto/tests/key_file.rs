//! Encrypted key files.

use esplanade_crypto::key_file::{KeyFileError, decrypt, is_encrypted, open_pkcs12};
use esplanade_crypto::secret::Secret;

#[test]
fn what_is_not_encrypted_is_told_apart() {
    for (file, encrypted) in [
        (&b""[..], false),
        (b"\x30", false),
        (b"\x30\x03\x02\x01\x00", false),
        (b"\x30\x82\x01\x00\x02\x01\x00", false),
        (b"\x30\x82\x01\x00\x30\x10", true),
        (b"\x30\x10\x30\x02", true),
        (b"-----BEGIN PRIVATE KEY-----", false),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", true),
        (
            b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
            true,
        ),
    ] {
        assert_eq!(is_encrypted(file), encrypted, "{file:?}");
    }
}

#[test]
fn no_passphrase_is_hashed_more_often_than_is_left() {
    let mut left = 5_000;
    let asks_for = |count: &[u8; 2]| [&b"\x30\x06\x04\x00\x02\x02"[..], count].concat();
    let file = [&b"\x30\x08"[..], &asks_for(b"\x08\x00")].concat();
    let passphrase = Secret::from(&b"x"[..]);
    let mut opened = || decrypt(&file, &passphrase, &mut left).err();
    assert_eq!(opened(), Some(KeyFileError::NotDecrypted));
    assert_eq!(opened(), Some(KeyFileError::NotDecrypted));
    let refused = KeyFileError::Iterations {
        wanted: 2048,
        left: 904,
    };
    assert_eq!(opened(), Some(refused));
}

#[test]
fn hostile_files_give_an_error() {
    let passphrase = Secret::from(&b"secret"[..]);
    let left = &mut 1;
    for file in [
        &b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n"[..],
        b"\x30\x82\xff\xff\x30\x10",
        b"",
    ] {
        assert_eq!(
            decrypt(file, &passphrase, left).err(),
            Some(KeyFileError::NotDecrypted)
        );
        assert!(open_pkcs12(file, &passphrase, left).is_err());
    }
    let zero = Secret::from(&b"a\0b"[..]);
    assert_eq!(
        open_pkcs12(b"", &zero, left).err(),
        Some(KeyFileError::Passphrase)
    );
}
