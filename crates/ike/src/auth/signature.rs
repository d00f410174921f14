//! The check of the signature in AUTH, with the key of a certificate or a raw one (RFC 7296 §2.15, RFC 7427).

use aws_lc_rs::signature;
use esplanade_pki::{Hash, KeyType, PublicKey, Scheme};

use super::error::PeerAuthError;
use super::rules::SchemeRules;
use crate::wire::{Auth, AuthMethod};

/// Checks the signature scheme of AUTH. RSA by RFC 7296 names no hash, so that rules refuse it.
pub(crate) fn check_scheme(auth: &Auth, rules: &SchemeRules) -> Result<(), PeerAuthError> {
    let scheme = match auth.method {
        AuthMethod::DIGITAL_SIGNATURE => Some(split_digital_signature(&auth.data)?.0),
        AuthMethod::ECDSA_SHA2_256_P256 => Some(Scheme::Ecdsa(Hash::Sha256)),
        AuthMethod::ECDSA_SHA2_384_P384 => Some(Scheme::Ecdsa(Hash::Sha384)),
        AuthMethod::ECDSA_SHA2_512_P521 => Some(Scheme::Ecdsa(Hash::Sha512)),
        _ => None,
    };
    let accepted = rules.allow_in_ike(scheme);
    accepted.then_some(()).ok_or(PeerAuthError::Scheme)
}

/// Checks the peer's AUTH payload over its signed octets. It can be a digital signature (RFC 7427), ECDSA by
/// RFC 4754, or RSA by RFC 7296. RSA with SHA-1 needs `legacy`.
pub(crate) fn check_auth(
    key: &PublicKey,
    auth: &Auth,
    signed_octets: &[u8],
    legacy: bool,
) -> Result<(), PeerAuthError> {
    let unsuitable = || PeerAuthError::KeyType(key.describe());
    let kind = key.kind().ok_or_else(unsuitable)?;
    let (algorithm, value): (&dyn signature::VerificationAlgorithm, &[u8]) =
        match (auth.method, kind) {
            (AuthMethod::DIGITAL_SIGNATURE, _) => {
                let (scheme, value) = split_digital_signature(&auth.data)?;
                (scheme.verification(kind).ok_or_else(unsuitable)?, value)
            }
            (AuthMethod::ECDSA_SHA2_256_P256, KeyType::P256) => {
                (&signature::ECDSA_P256_SHA256_FIXED, &auth.data)
            }
            (AuthMethod::ECDSA_SHA2_384_P384, KeyType::P384) => {
                (&signature::ECDSA_P384_SHA384_FIXED, &auth.data)
            }
            (AuthMethod::ECDSA_SHA2_512_P521, KeyType::P521) => {
                (&signature::ECDSA_P521_SHA512_FIXED, &auth.data)
            }
            (AuthMethod::RSA_SIGNATURE, KeyType::Rsa) => {
                return check_rsa(key.bytes(), &auth.data, signed_octets, legacy);
            }
            (
                AuthMethod::ECDSA_SHA2_256_P256
                | AuthMethod::ECDSA_SHA2_384_P384
                | AuthMethod::ECDSA_SHA2_512_P521
                | AuthMethod::RSA_SIGNATURE,
                _,
            ) => return Err(unsuitable()),
            (other, _) => return Err(PeerAuthError::Method(other)),
        };
    signature::UnparsedPublicKey::new(algorithm, key.bytes())
        .verify(signed_octets, value)
        .map_err(|_| PeerAuthError::BadSignature)
}

/// The method names no hash, so that each is tried (RFC 7296 §3.8).
fn check_rsa(
    key: &[u8],
    value: &[u8],
    signed_octets: &[u8],
    legacy: bool,
) -> Result<(), PeerAuthError> {
    let verifies = |algorithm: &'static signature::RsaParameters| {
        signature::UnparsedPublicKey::new(algorithm, key)
            .verify(signed_octets, value)
            .is_ok()
    };
    if verifies(&signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY) {
        return legacy.then_some(()).ok_or(PeerAuthError::Sha1);
    }
    let sha2 = [
        &signature::RSA_PKCS1_2048_8192_SHA256,
        &signature::RSA_PKCS1_2048_8192_SHA384,
        &signature::RSA_PKCS1_2048_8192_SHA512,
    ];
    match sha2.into_iter().any(verifies) {
        true => Ok(()),
        false => Err(PeerAuthError::BadSignature),
    }
}

/// Splits the value of AUTH (RFC 7427 §3): one byte of length, the AlgorithmIdentifier, the signature.
fn split_digital_signature(data: &[u8]) -> Result<(Scheme, &[u8]), PeerAuthError> {
    let (&len, rest) = data.split_first().ok_or(PeerAuthError::SignatureSyntax)?;
    let (identifier, value) = rest
        .split_at_checked(len.into())
        .ok_or(PeerAuthError::SignatureSyntax)?;
    match Scheme::from_identifier(identifier) {
        Ok(scheme) => Ok((scheme, value)),
        Err(algorithm) => Err(PeerAuthError::SignatureAlgorithm(algorithm)),
    }
}
