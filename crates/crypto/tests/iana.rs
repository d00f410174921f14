//! IANA's numbers.

use esplanade_crypto::iana::{Encryption, Group, Integrity, Requirement};

#[test]
fn numbers_round_trip() {
    for &member in Group::ALL {
        assert_eq!(Group::from_number(member.number()), Some(member));
    }
    for &member in Encryption::ALL {
        assert_eq!(Encryption::from_number(member.number()), Some(member));
    }
    assert_eq!(Group::from_number(1), None, "MODP_768 is not spoken");
    // These are strongSwan's: no cipher, DES-ECB, RC2, AES-ECB, AES-CFB.
    for number in [1024, 1025, 1028, 1029, 1030] {
        assert_eq!(Encryption::from_number(number), None, "{number}");
    }
}

/// Checks the tables of RFC 8221 §5 and §6, with their notes.
#[test]
fn levels_are_those_of_rfc_8221() {
    use Requirement::*;
    let ciphers = [
        (Encryption::Des, [(0, MustNot)].as_slice()),
        (Encryption::TripleDes, &[(0, ShouldNot)]),
        (Encryption::Null, &[(0, Must)]),
        (Encryption::AesCbc, &[(128, Must), (192, May), (256, Must)]),
        (
            Encryption::AesCcm8,
            &[(128, Should), (192, May), (256, May)],
        ),
        (
            Encryption::AesGcm16,
            &[(128, Must), (192, May), (256, Must)],
        ),
        (Encryption::ChaCha20Poly1305, &[(0, Should)]),
        (Encryption::AesCtr, &[(128, May), (192, May), (256, May)]),
        (Encryption::AesGcm8, &[(128, May), (192, May), (256, May)]),
    ];
    for (cipher, levels) in ciphers {
        let bits: Vec<u16> = levels.iter().map(|(bits, _)| *bits).collect();
        assert_eq!(bits, cipher.key_bits(), "{cipher}");
        for &(bits, level) in levels {
            assert_eq!(cipher.requirement(bits), level, "{cipher} {bits}");
        }
    }
    let integrity = [
        (Integrity::HmacMd5_96, MustNot),
        (Integrity::HmacSha1_96, MustMinus),
        (Integrity::AesXcbc96, May),
        (Integrity::Aes128Gmac, May),
        (Integrity::Aes256Gmac, May),
        (Integrity::HmacSha2_256_128, Must),
        (Integrity::HmacSha2_512_256, Should),
    ];
    for (algorithm, level) in integrity {
        assert_eq!(algorithm.requirement(), level, "{algorithm}");
    }
}
