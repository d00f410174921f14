//! The choice of a signature scheme by the hashes that a peer announces (RFC 7427 §4).

use esplanade_pki::{Hash, KeyType, Scheme};

use crate::wire::HashAlgorithm;

/// The hashes that SIGNATURE_HASH_ALGORITHMS announces, best first. SHA-1 is not among them (RFC 8247 §4.2).
pub const SIGNATURE_HASHES: &[HashAlgorithm] = &[
    HashAlgorithm::SHA2_256,
    HashAlgorithm::SHA2_384,
    HashAlgorithm::SHA2_512,
    HashAlgorithm::IDENTITY,
];

/// The hash that a peer announces if it verifies the scheme.
pub(super) fn announced_hash(scheme: Scheme) -> HashAlgorithm {
    match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) | Scheme::Ecdsa(hash) => match hash {
            Hash::Sha256 => HashAlgorithm::SHA2_256,
            Hash::Sha384 => HashAlgorithm::SHA2_384,
            Hash::Sha512 => HashAlgorithm::SHA2_512,
        },
        Scheme::Ed25519 | Scheme::MlDsa(_) => HashAlgorithm::IDENTITY,
    }
}

/// The scheme that one of our keys signs with, for the hashes that the peer has announced. RSA signs with PSS
/// (RFC 8247 §4.2).
pub(super) fn choose(key: KeyType, announced: &[HashAlgorithm]) -> Option<Scheme> {
    let candidates: &[Scheme] = match key {
        KeyType::Rsa => &[
            Scheme::RsaPss(Hash::Sha256),
            Scheme::RsaPss(Hash::Sha384),
            Scheme::RsaPss(Hash::Sha512),
        ],
        KeyType::P256 => &[Scheme::Ecdsa(Hash::Sha256)],
        KeyType::P384 => &[Scheme::Ecdsa(Hash::Sha384)],
        KeyType::P521 => &[Scheme::Ecdsa(Hash::Sha512)],
        KeyType::Ed25519 => &[Scheme::Ed25519],
        KeyType::MlDsa(set) => &[Scheme::MlDsa(set)],
    };
    let mut candidates = candidates.iter().copied();
    candidates.find(|scheme| announced.contains(&announced_hash(*scheme)))
}
