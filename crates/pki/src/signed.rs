//! The outer form that certificates, CRLs and OCSP responses share (RFC 5280 §4.1.1 and §5.1.1): content, algorithm and
//! signature.

use std::sync::{Mutex, PoisonError};

use esplanade_crypto::rsa_pkcs1::RsaHash;
use rustls_pki_types::{SignatureVerificationAlgorithm, alg_id};
use x509_cert::der::asn1::{BitString, ObjectIdentifier, Uint};
use x509_cert::der::{Encode, Tag, TagNumber, Tagged};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use crate::der::{self, DerReader, value_of};
use crate::limit::{Exhausted, Limit};
use crate::oid;
use crate::scheme::{KeyType, ParameterSet};

/// Keys for which it is known whether a signature verifies. An authority seldom has two.
const KEYS_MAX: usize = 8;

/// A structure with its signature.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The signed bytes, with their header.
    pub(crate) content: Vec<u8>,
    /// The AlgorithmIdentifier without its header.
    pub(crate) algorithm: Vec<u8>,
    signature: Vec<u8>,
    tried: Tried,
}

/// The keys that were tried, and the outcome for each. A signature is checked once for a key: it can be that of a large
/// CRL, and one message can mean several connections.
#[derive(Default)]
struct Tried(Mutex<Vec<Outcome>>);

type Outcome = (SubjectKey, Result<(), &'static str>);

impl Tried {
    fn outcome(&self, key: &SubjectKey) -> Option<Result<(), &'static str>> {
        self.read(|tried| {
            let known = tried.iter().find(|(other, _)| other == key);
            known.map(|(_, outcome)| *outcome)
        })
    }

    fn note(&self, key: &SubjectKey, outcome: Result<(), &'static str>) {
        let mut tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= KEYS_MAX {
            // A key that verifies matters longest.
            let failed = tried.iter().position(|(_, outcome)| outcome.is_err());
            drop(tried.remove(failed.unwrap_or_default()));
        }
        tried.push((key.clone(), outcome));
    }

    fn read<T>(&self, look: impl FnOnce(&[Outcome]) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clone for Tried {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.read(<[_]>::to_vec)))
    }
}

/// Two structures are the same whatever keys were tried.
impl PartialEq for Tried {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Tried {}

/// RSA signatures that rustls-webpki does not have: the AlgorithmIdentifiers without their headers. SHA-224 is of
/// RFC 4055 §5, SHA-3 of NIST's registry of algorithms.
const RSA: &[(&[u8], RsaHash)] = &[
    (
        b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0e\x05\x00",
        RsaHash::Sha224,
    ),
    (
        b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x0e\x05\x00",
        RsaHash::Sha3_256,
    ),
    (
        b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x0f\x05\x00",
        RsaHash::Sha3_384,
    ),
    (
        b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x10\x05\x00",
        RsaHash::Sha3_512,
    ),
];

/// The public key of an issuer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SubjectKey {
    /// The AlgorithmIdentifier without its header.
    algorithm: Vec<u8>,
    pub(crate) bits: Vec<u8>,
}

impl SubjectKey {
    pub(crate) fn new(spki: &SubjectPublicKeyInfoOwned) -> der::Result<Self> {
        Ok(Self {
            algorithm: value_of(&spki.algorithm.to_der()?)?.to_vec(),
            bits: spki.subject_public_key.raw_bytes().to_vec(),
        })
    }

    /// The type and the size in bits, or `None` if a key of this type cannot sign here.
    pub(crate) fn strength(&self) -> Option<(KeyType, u32)> {
        let fixed = [
            (alg_id::ECDSA_P256, (KeyType::P256, 256)),
            (alg_id::ECDSA_P384, (KeyType::P384, 384)),
            (alg_id::ECDSA_P521, (KeyType::P521, 521)),
            (alg_id::ED25519, (KeyType::Ed25519, 255)),
            (
                alg_id::ML_DSA_44,
                (KeyType::MlDsa(ParameterSet::MlDsa44), 44),
            ),
            (
                alg_id::ML_DSA_65,
                (KeyType::MlDsa(ParameterSet::MlDsa65), 65),
            ),
            (
                alg_id::ML_DSA_87,
                (KeyType::MlDsa(ParameterSet::MlDsa87), 87),
            ),
        ];
        if self.is_for(alg_id::RSA_ENCRYPTION) {
            return Some((KeyType::Rsa, modulus_bits(&self.bits)?));
        }
        let found = fixed
            .into_iter()
            .find(|(algorithm, _)| self.is_for(*algorithm));
        found.map(|(_, strength)| strength)
    }

    fn is_for(&self, algorithm: alg_id::AlgorithmIdentifier) -> bool {
        self.algorithm == algorithm.as_ref()
    }
}

/// The size of an RSAPublicKey (RFC 8017 appendix A.1.1).
fn modulus_bits(key: &[u8]) -> Option<u32> {
    let modulus: Uint = DerReader::within(key, Tag::Sequence).ok()?.decode().ok()?;
    let (first, rest) = modulus.as_bytes().split_first()?;
    let rest = u32::try_from(rest.len()).ok()?;
    rest.checked_mul(8)?
        .checked_add(u8::BITS - first.leading_zeros())
}

impl Signed {
    pub(crate) fn from_der(der: &[u8]) -> der::Result<Self> {
        let mut reader = DerReader::within(der, Tag::Sequence)?;
        let signed = Self::read(&mut reader)?;
        reader.finish(signed)
    }

    /// Reads the three elements. Others may follow.
    pub(crate) fn read(reader: &mut DerReader<'_>) -> der::Result<Self> {
        let content = reader.whole()?;
        let algorithm = reader.element()?;
        algorithm.tag().assert_eq(Tag::Sequence)?;
        let signature: BitString = reader.decode()?;
        let signature = signature.as_bytes().unwrap_or_default().to_vec();
        Ok(Self {
            content: content.to_vec(),
            algorithm: algorithm.value().to_vec(),
            signature,
            tried: Tried::default(),
        })
    }

    /// Checks the signature. An error says what is wrong.
    pub(crate) fn verify(&self, key: &SubjectKey) -> Result<(), &'static str> {
        if let Some(known) = self.tried.outcome(key) {
            return known;
        }
        let outcome = self.compute(key);
        self.tried.note(key, outcome);
        outcome
    }

    /// As [`Self::verify`]. A key that was tried before costs nothing.
    pub(crate) fn verify_within(
        &self,
        key: &SubjectKey,
        limit: &mut Limit,
    ) -> Result<Result<(), &'static str>, Exhausted> {
        if self.tried.outcome(key).is_none() {
            limit.take(1)?;
        }
        Ok(self.verify(key))
    }

    /// The signature verifies with a key.
    pub(crate) fn has_verified(&self) -> bool {
        self.tried
            .read(|tried| tried.iter().any(|(_, one)| one.is_ok()))
    }

    /// Keys were tried, and none has made the signature.
    pub(crate) fn has_failed(&self) -> bool {
        let failed = |tried: &[Outcome]| tried.iter().all(|(_, one)| one.is_err());
        (self.tried).read(|tried| !tried.is_empty() && failed(tried))
    }

    /// One key has made both signatures.
    pub(crate) fn shares_key_with(&self, other: &Self) -> bool {
        let verified = |tried: &[Outcome]| -> Vec<SubjectKey> {
            let keys = tried.iter().filter(|(_, one)| one.is_ok());
            keys.map(|(key, _)| key.clone()).collect()
        };
        let keys = self.tried.read(verified);
        other.tried.read(|tried| {
            let mut tried = tried.iter();
            tried.any(|(key, one)| one.is_ok() && keys.contains(key))
        })
    }

    /// Says whether signatures of this algorithm can be checked.
    pub(crate) fn is_supported(&self) -> bool {
        self.rsa_hash().is_some() || self.algorithms().next().is_some()
    }

    /// The object identifier of the algorithm, with dots.
    pub(crate) fn algorithm_name(&self) -> String {
        let parts = DerReader::new(&self.algorithm);
        let id = parts.and_then(|mut parts| parts.decode::<ObjectIdentifier>());
        id.map_or_else(|_| "(malformed)".to_owned(), |id| oid::dotted(&id))
    }

    /// The algorithms of rustls-webpki for this signature.
    fn algorithms(&self) -> impl Iterator<Item = &'static dyn SignatureVerificationAlgorithm> {
        let all = webpki::ALL_VERIFICATION_ALGS.iter().copied();
        all.filter(|known| known.signature_alg_id().as_ref() == self.algorithm)
    }

    fn rsa_hash(&self) -> Option<RsaHash> {
        let known = RSA.iter().find(|(known, _)| *known == self.algorithm)?;
        Some(known.1)
    }

    fn compute(&self, key: &SubjectKey) -> Result<(), &'static str> {
        if !self.is_supported() {
            return Err("its signature algorithm is not supported");
        }
        let by_rsa = self.rsa_hash().is_some_and(|hash| {
            key.is_for(alg_id::RSA_ENCRYPTION)
                && hash.verifies(&key.bits, &self.content, &self.signature)
        });
        let verified = by_rsa
            || (self.algorithms())
                .filter(|known| key.is_for(known.public_key_alg_id()))
                .any(|known| {
                    let verified =
                        known.verify_signature(&key.bits, &self.content, &self.signature);
                    verified.is_ok()
                });
        verified
            .then_some(())
            .ok_or("its signature does not verify")
    }
}

/// Reads the keyIdentifier of an AuthorityKeyIdentifier (RFC 5280 §4.2.1.1). The name and the number of the issuer's
/// certificate change when the certificate is renewed, so they do not count.
pub(crate) fn authority_key(value: &[u8]) -> der::Result<Option<Vec<u8>>> {
    const KEY_IDENTIFIER: Tag = Tag::ContextSpecific {
        constructed: false,
        number: TagNumber::N0,
    };
    let mut reader = DerReader::within(value, Tag::Sequence)?;
    if reader.is_finished() {
        return Ok(None);
    }
    let first = reader.element()?;
    Ok((first.tag() == KEY_IDENTIFIER).then(|| first.value().to_vec()))
}
