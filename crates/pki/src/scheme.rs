//! Signature schemes: the AlgorithmIdentifier of RFC 7427, and the algorithms of aws-lc for it.

use aws_lc_rs::signature::{self, VerificationAlgorithm};

use x509_cert::der::{Encode, asn1::UintRef};
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::der::decode;
use crate::oid;

/// The type of a key that can sign here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
    MlDsa(ParameterSet),
}

/// A parameter set of ML-DSA (FIPS 204 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSet {
    MlDsa44,
    MlDsa65,
    MlDsa87,
}

impl std::fmt::Display for KeyType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rsa => "RSA",
            Self::P256 => "ECDSA P-256",
            Self::P384 => "ECDSA P-384",
            Self::P521 => "ECDSA P-521",
            Self::Ed25519 => "Ed25519",
            Self::MlDsa(ParameterSet::MlDsa44) => "ML-DSA-44",
            Self::MlDsa(ParameterSet::MlDsa65) => "ML-DSA-65",
            Self::MlDsa(ParameterSet::MlDsa87) => "ML-DSA-87",
        })
    }
}

/// The hash of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// An algorithm for signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    RsaPkcs1(Hash),
    RsaPss(Hash),
    Ecdsa(Hash),
    Ed25519,
    /// Pure ML-DSA with an empty context.
    MlDsa(ParameterSet),
}

/// AlgorithmIdentifiers in DER (RFC 7427 appendix A, RFC 8420 appendix A, RFC 9881 §2). The first entry of a scheme is sent. PSS
/// has entries with and without NULL as the hash's parameters, because RFC 4055 §2.1 asks to accept both.
const IDENTIFIERS: &[(Scheme, &[u8])] = &[
    (
        Scheme::RsaPkcs1(Hash::Sha256),
        b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00",
    ),
    (
        Scheme::RsaPkcs1(Hash::Sha384),
        b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c\x05\x00",
    ),
    (
        Scheme::RsaPkcs1(Hash::Sha512),
        b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d\x05\x00",
    ),
    (Scheme::RsaPss(Hash::Sha256), &pss_with_null(1, 32)),
    (Scheme::RsaPss(Hash::Sha384), &pss_with_null(2, 48)),
    (Scheme::RsaPss(Hash::Sha512), &pss_with_null(3, 64)),
    (Scheme::RsaPss(Hash::Sha256), &pss_without_null(1, 32)),
    (Scheme::RsaPss(Hash::Sha384), &pss_without_null(2, 48)),
    (Scheme::RsaPss(Hash::Sha512), &pss_without_null(3, 64)),
    (
        Scheme::Ecdsa(Hash::Sha256),
        b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02",
    ),
    (
        Scheme::Ecdsa(Hash::Sha384),
        b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03",
    ),
    (
        Scheme::Ecdsa(Hash::Sha512),
        b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04",
    ),
    (Scheme::Ed25519, b"\x30\x05\x06\x03\x2b\x65\x70"),
    (Scheme::MlDsa(ParameterSet::MlDsa44), &ml_dsa(17)),
    (Scheme::MlDsa(ParameterSet::MlDsa65), &ml_dsa(18)),
    (Scheme::MlDsa(ParameterSet::MlDsa87), &ml_dsa(19)),
];

/// id-RSASSA-PSS with SHA-2 number `hash` (2.16.840.1.101.3.4.2.x), MGF1 with the same hash, and `salt` bytes of
/// salt.
const fn pss_with_null(hash: u8, salt: u8) -> [u8; 67] {
    let mut der = *b"\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\
        \xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x00\x05\x00\
        \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
        \x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x00\x05\x00\
        \xa2\x03\x02\x01\x00";
    der[29] = hash;
    der[59] = hash;
    der[66] = salt;
    der
}

const fn pss_without_null(hash: u8, salt: u8) -> [u8; 63] {
    let mut der = *b"\x30\x3d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x30\
        \xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x00\
        \xa1\x1a\x30\x18\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
        \x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x00\
        \xa2\x03\x02\x01\x00";
    der[29] = hash;
    der[57] = hash;
    der[62] = salt;
    der
}

/// 2.16.840.1.101.3.4.3.x without parameters.
const fn ml_dsa(number: u8) -> [u8; 13] {
    let mut der = *b"\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x00";
    der[12] = number;
    der
}

impl ParameterSet {
    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::MlDsa44 => &signature::ML_DSA_44,
            Self::MlDsa65 => &signature::ML_DSA_65,
            Self::MlDsa87 => &signature::ML_DSA_87,
        }
    }
}

impl Scheme {
    /// The scheme of an AlgorithmIdentifier. An error holds the algorithm that is not known, with dots.
    pub fn from_identifier(der: &[u8]) -> Result<Self, String> {
        let known = IDENTIFIERS.iter().find(|(_, known)| *known == der);
        known.map(|(scheme, _)| *scheme).ok_or_else(|| {
            match decode::<AlgorithmIdentifierOwned>(der) {
                Ok(algorithm) => oid::dotted(&algorithm.oid),
                Err(_) => "(malformed)".to_owned(),
            }
        })
    }

    /// The scheme of an AlgorithmIdentifier without its header, as certificates are kept with.
    pub(crate) fn from_algorithm(content: &[u8]) -> Option<Self> {
        let mut known = IDENTIFIERS.iter();
        let (scheme, _) = known.find(|(_, der)| der.get(2..) == Some(content))?;
        Some(*scheme)
    }

    /// Says whether a key of ours signs with the scheme.
    pub fn is_made_by(self, key: KeyType) -> bool {
        if let (Self::MlDsa(scheme), KeyType::MlDsa(key)) = (self, key) {
            return scheme == key;
        }
        matches!(
            (self, key),
            (Self::RsaPkcs1(_) | Self::RsaPss(_), KeyType::Rsa)
                | (Self::Ecdsa(Hash::Sha256), KeyType::P256)
                | (Self::Ecdsa(Hash::Sha384), KeyType::P384)
                | (Self::Ecdsa(Hash::Sha512), KeyType::P521)
                | (Self::Ed25519, KeyType::Ed25519)
        )
    }

    /// The AlgorithmIdentifier that we send.
    pub fn identifier(self) -> &'static [u8] {
        let entry = IDENTIFIERS.iter().find(|(scheme, _)| *scheme == self);
        entry.map_or(&[], |(_, der)| der)
    }

    /// Returns the algorithm that verifies with a key of this type. Returns `None` if the scheme is not for such a key.
    pub fn verification(self, key: KeyType) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, key) {
            (Self::RsaPkcs1(Hash::Sha256), KeyType::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA256,
            (Self::RsaPkcs1(Hash::Sha384), KeyType::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (Self::RsaPkcs1(Hash::Sha512), KeyType::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA512,
            (Self::RsaPss(Hash::Sha256), KeyType::Rsa) => &signature::RSA_PSS_2048_8192_SHA256,
            (Self::RsaPss(Hash::Sha384), KeyType::Rsa) => &signature::RSA_PSS_2048_8192_SHA384,
            (Self::RsaPss(Hash::Sha512), KeyType::Rsa) => &signature::RSA_PSS_2048_8192_SHA512,
            (Self::Ecdsa(Hash::Sha256), KeyType::P256) => &signature::ECDSA_P256_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), KeyType::P256) => &signature::ECDSA_P256_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), KeyType::P256) => &signature::ECDSA_P256_SHA512_ASN1,
            (Self::Ecdsa(Hash::Sha256), KeyType::P384) => &signature::ECDSA_P384_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), KeyType::P384) => &signature::ECDSA_P384_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), KeyType::P384) => &signature::ECDSA_P384_SHA512_ASN1,
            (Self::Ecdsa(Hash::Sha256), KeyType::P521) => &signature::ECDSA_P521_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), KeyType::P521) => &signature::ECDSA_P521_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), KeyType::P521) => &signature::ECDSA_P521_SHA512_ASN1,
            (Self::Ed25519, KeyType::Ed25519) => &signature::ED25519,
            (Self::MlDsa(scheme), KeyType::MlDsa(key)) if scheme == key => key.verification(),
            _ => return None,
        })
    }
}

/// Encodes r and s, which have the same length, as ECDSA-Sig-Value (RFC 3279 §2.2.3).
pub fn ecdsa_signature(fixed: &[u8]) -> Option<Vec<u8>> {
    if fixed.is_empty() || !fixed.len().is_multiple_of(2) {
        return None;
    }
    let (r, s) = fixed.split_at(fixed.len() / 2);
    let parts = [UintRef::new(r).ok()?, UintRef::new(s).ok()?];
    parts.to_vec().to_der().ok()
}
