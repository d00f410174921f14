//! The names that strongSwan's vici interface has for algorithms. Programs that read `list-sas` know these.

use esplanade_crypto::iana::{Encryption, Group, Integrity};

/// The name of a cipher: IANA's without its prefix, but for the oldest.
pub fn encryption(cipher: Encryption) -> &'static str {
    match cipher {
        Encryption::Des => "DES_CBC",
        Encryption::TripleDes => "3DES_CBC",
        Encryption::NullAuthAesGmac => "NULL_AES_GMAC",
        _ => without(cipher.name(), "ENCR_"),
    }
}

pub fn integrity(algorithm: Integrity) -> &'static str {
    without(algorithm.name(), "AUTH_")
}

pub fn group(group: Group) -> &'static str {
    match group {
        Group::Curve25519 => "CURVE_25519",
        _ => group.name(),
    }
}

fn without(name: &'static str, prefix: &str) -> &'static str {
    name.strip_prefix(prefix).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use esplanade_crypto::iana::Prf;

    use super::*;

    /// The names of charon 5.9.8, of which each is in libstrongswan.
    const OF_CHARON: &[&str] = &[
        "DES_CBC",
        "3DES_CBC",
        "NULL",
        "AES_CBC",
        "AES_CTR",
        "AES_CCM_8",
        "AES_CCM_12",
        "AES_CCM_16",
        "AES_GCM_8",
        "AES_GCM_12",
        "AES_GCM_16",
        "NULL_AES_GMAC",
        "CHACHA20_POLY1305",
        "SERPENT_CBC",
        "TWOFISH_CBC",
        "HMAC_MD5_96",
        "HMAC_SHA1_96",
        "AES_XCBC_96",
        "AES_CMAC_96",
        "AES_128_GMAC",
        "AES_192_GMAC",
        "AES_256_GMAC",
        "HMAC_SHA2_256_128",
        "HMAC_SHA2_384_192",
        "HMAC_SHA2_512_256",
        "PRF_HMAC_SHA1",
        "PRF_AES128_XCBC",
        "PRF_HMAC_SHA2_256",
        "PRF_HMAC_SHA2_384",
        "PRF_HMAC_SHA2_512",
        "PRF_AES128_CMAC",
        "MODP_1024",
        "MODP_1536",
        "MODP_2048",
        "MODP_3072",
        "MODP_4096",
        "MODP_6144",
        "MODP_8192",
        "ECP_256",
        "ECP_384",
        "ECP_521",
        "MODP_1024_160",
        "MODP_2048_224",
        "MODP_2048_256",
        "CURVE_25519",
    ];

    /// Algorithms that strongSwan does not have.
    const OURS: &[&str] = &[
        "AES_CCM_8_IIV",
        "AES_GCM_16_IIV",
        "CHACHA20_POLY1305_IIV",
        "MARS_CTR",
        "RC6_CTR",
        "SERPENT_CTR",
        "TWOFISH_CTR",
    ];

    #[test]
    fn every_algorithm_has_strongswans_name() {
        let ciphers = Encryption::ALL.iter().map(|one| encryption(*one));
        let integrities = Integrity::ALL.iter().map(|one| integrity(*one));
        let prfs = Prf::ALL.iter().map(|one| one.name());
        let groups = Group::ALL.iter().map(|one| group(*one));
        let names: BTreeSet<_> = ciphers
            .chain(integrities)
            .chain(prfs)
            .chain(groups)
            .collect();
        let expected: BTreeSet<_> = OF_CHARON.iter().chain(OURS).copied().collect();
        assert_eq!(names, expected);
    }
}
