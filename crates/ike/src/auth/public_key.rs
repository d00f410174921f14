//! Public keys: those of certificates, and raw ones (RFC 7670), with the check of the signature in AUTH.

use aws_lc_rs::{digest, signature};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::{self, PemObject};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::der::{self, decode};
use super::error::{CredentialError, PeerAuthError};
use super::identity::Identity;
use super::oid;
use super::rules::SchemeRules;
use super::scheme::{Hash, KeyType, ParameterSet, Scheme};
use crate::wire::{Auth, AuthMethod, CertEncoding, CertReq};

#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The type of the key. It is `None` if a key of this kind cannot sign here.
    pub(super) kind: Option<KeyType>,
    /// The content of the BIT STRING in SubjectPublicKeyInfo.
    pub(super) bytes: Vec<u8>,
    algorithm: ObjectIdentifier,
    /// The SubjectPublicKeyInfo in DER.
    der: Vec<u8>,
}

impl PublicKey {
    /// The key of a file: a SubjectPublicKeyInfo in PEM or DER. Keys that cannot sign here are refused.
    pub fn from_file_content(content: &[u8]) -> Result<Self, CredentialError> {
        let parsed = match content.first() {
            Some(&0x30) => decode(content),
            _ => match SubjectPublicKeyInfoDer::from_pem_slice(content) {
                Ok(der) => decode(&der),
                Err(pem::Error::NoItemsFound) => return Err(CredentialError::NoPublicKey),
                Err(error) => return Err(CredentialError::Pem(error.to_string())),
            },
        };
        let key = parsed
            .and_then(|parsed| Self::new(&parsed))
            .map_err(|error| CredentialError::PublicKey(error.to_string()))?;
        match key.kind {
            Some(_) => Ok(key),
            None => Err(CredentialError::KeyType(key.describe())),
        }
    }

    pub(super) fn new(spki: &SubjectPublicKeyInfoOwned) -> der::Result<Self> {
        const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
        const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
        const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
        const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
        const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
        const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
        const ML_DSA_44: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.17");
        const ML_DSA_65: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.18");
        const ML_DSA_87: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.19");
        let algorithm = spki.algorithm.oid;
        let curve = || {
            let parameters = spki.algorithm.parameters.as_ref()?;
            let is_named = parameters.tag() == Tag::ObjectIdentifier;
            is_named.then(|| ObjectIdentifier::from_bytes(parameters.value()).ok())?
        };
        let kind = match algorithm {
            RSA => Some(KeyType::Rsa),
            ED25519 => Some(KeyType::Ed25519),
            ML_DSA_44 => Some(KeyType::MlDsa(ParameterSet::MlDsa44)),
            ML_DSA_65 => Some(KeyType::MlDsa(ParameterSet::MlDsa65)),
            ML_DSA_87 => Some(KeyType::MlDsa(ParameterSet::MlDsa87)),
            EC if curve() == Some(P256) => Some(KeyType::P256),
            EC if curve() == Some(P384) => Some(KeyType::P384),
            EC if curve() == Some(P521) => Some(KeyType::P521),
            _ => None,
        };
        Ok(Self {
            kind,
            bytes: spki.subject_public_key.raw_bytes().to_vec(),
            algorithm,
            der: spki.to_der()?,
        })
    }

    /// The SubjectPublicKeyInfo in DER, which is the data of a raw key in CERT (RFC 7670 §3).
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// SHA-1 of the SubjectPublicKeyInfo.
    pub fn hash(&self) -> [u8; 20] {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &self.der);
        let mut bytes = [0; 20];
        bytes.copy_from_slice(hash.as_ref());
        bytes
    }

    /// The identity of an end that has the key and no name. strongSwan's is the same.
    pub fn identity(&self) -> Identity {
        Identity::KeyId(self.hash().to_vec())
    }

    /// Asks the peer for its raw key. There are no authorities that the request could name.
    pub(crate) fn certreq() -> CertReq {
        CertReq {
            encoding: CertEncoding::RAW_PUBLIC_KEY,
            data: Vec::new(),
        }
    }

    pub(super) fn describe(&self) -> String {
        const ED448: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.113");
        match self.kind {
            Some(kind) => kind.to_string(),
            // The cryptographic library does not have it.
            None if self.algorithm == ED448 => "Ed448".to_owned(),
            None => self.algorithm.to_string(),
        }
    }

    /// Checks the signature scheme of AUTH. RSA by RFC 7296 names no hash, so that rules refuse it.
    pub fn check_scheme(&self, auth: &Auth, rules: &SchemeRules) -> Result<(), PeerAuthError> {
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
    pub fn check_auth(
        &self,
        auth: &Auth,
        signed_octets: &[u8],
        legacy: bool,
    ) -> Result<(), PeerAuthError> {
        let unsuitable = || PeerAuthError::KeyType(self.describe());
        let kind = self.kind.ok_or_else(unsuitable)?;
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
                    return check_rsa(&self.bytes, &auth.data, signed_octets, legacy);
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
        signature::UnparsedPublicKey::new(algorithm, &self.bytes)
            .verify(signed_octets, value)
            .map_err(|_| PeerAuthError::BadSignature)
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.identity())
    }
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
        Some(scheme) => Ok((scheme, value)),
        None => Err(PeerAuthError::SignatureAlgorithm(describe(identifier))),
    }
}

fn describe(identifier: &[u8]) -> String {
    use x509_cert::spki::AlgorithmIdentifierOwned;
    match decode::<AlgorithmIdentifierOwned>(identifier) {
        Ok(algorithm) => oid::dotted(&algorithm.oid),
        Err(_) => "(malformed)".to_owned(),
    }
}
