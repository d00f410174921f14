//! The outer form that certificates, CRLs and OCSP responses share (RFC 5280 §4.1.1 and §5.1.1): content, algorithm and
//! signature.

use rustls_pki_types::alg_id;
use x509_cert::der::asn1::{BitString, Uint};
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::der::{self, DerReader, value_of};
use super::scheme::{KeyType, ParameterSet};

/// A structure with its signature.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Signed {
    /// The signed bytes, with their header.
    pub(super) content: Vec<u8>,
    /// The AlgorithmIdentifier without its header.
    pub(super) algorithm: Vec<u8>,
    signature: Vec<u8>,
}

/// The public key of an issuer.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SubjectKey {
    /// The AlgorithmIdentifier without its header.
    algorithm: Vec<u8>,
    pub(super) bits: Vec<u8>,
}

impl SubjectKey {
    pub(super) fn new(spki: &SubjectPublicKeyInfoOwned) -> der::Result<Self> {
        Ok(Self {
            algorithm: value_of(&spki.algorithm.to_der()?)?.to_vec(),
            bits: spki.subject_public_key.raw_bytes().to_vec(),
        })
    }

    /// The type and the size in bits, or `None` if a key of this type cannot sign here.
    pub(super) fn strength(&self) -> Option<(KeyType, u32)> {
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
    pub(super) fn from_der(der: &[u8]) -> der::Result<Self> {
        let mut reader = DerReader::within(der, Tag::Sequence)?;
        let signed = Self::read(&mut reader)?;
        reader.finish(signed)
    }

    /// Reads the three elements. Others may follow.
    pub(super) fn read(reader: &mut DerReader<'_>) -> der::Result<Self> {
        let content = reader.whole()?;
        let algorithm = reader.element()?;
        algorithm.tag().assert_eq(Tag::Sequence)?;
        let signature: BitString = reader.decode()?;
        let signature = signature.as_bytes().unwrap_or_default().to_vec();
        Ok(Self {
            content: content.to_vec(),
            algorithm: algorithm.value().to_vec(),
            signature,
        })
    }

    /// Checks the signature. An error says what is wrong.
    pub(super) fn verify(&self, key: &SubjectKey) -> Result<(), &'static str> {
        let known = webpki::ALL_VERIFICATION_ALGS
            .iter()
            .filter(|known| known.signature_alg_id().as_ref() == self.algorithm);
        let mut known = known.peekable();
        if known.peek().is_none() {
            return Err("its signature algorithm is not supported");
        }
        known
            .filter(|known| key.is_for(known.public_key_alg_id()))
            .any(|known| {
                let verified = known.verify_signature(&key.bits, &self.content, &self.signature);
                verified.is_ok()
            })
            .then_some(())
            .ok_or("its signature does not verify")
    }
}
