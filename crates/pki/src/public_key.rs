//! Public keys: those of certificates, and raw ones (RFC 7670).

use aws_lc_rs::digest;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::{self, PemObject};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use crate::der::{self, decode};
use crate::error::FileError;
use crate::scheme::{KeyType, ParameterSet};

#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The type of the key. It is `None` if a key of this kind cannot sign here.
    kind: Option<KeyType>,
    /// The content of the BIT STRING in SubjectPublicKeyInfo.
    bytes: Vec<u8>,
    algorithm: ObjectIdentifier,
    /// The SubjectPublicKeyInfo in DER.
    der: Vec<u8>,
}

impl PublicKey {
    /// The key of a file: a SubjectPublicKeyInfo in PEM or DER. Keys that cannot sign here are refused.
    pub fn from_file_content(content: &[u8]) -> Result<Self, FileError> {
        let parsed = match content.first() {
            Some(&0x30) => decode(content),
            _ => match SubjectPublicKeyInfoDer::from_pem_slice(content) {
                Ok(der) => decode(&der),
                Err(pem::Error::NoItemsFound) => return Err(FileError::NoPublicKey),
                Err(error) => return Err(FileError::Pem(error.to_string())),
            },
        };
        let key = parsed
            .and_then(|parsed| Self::new(&parsed))
            .map_err(|error| FileError::PublicKey(error.to_string()))?;
        match key.kind {
            Some(_) => Ok(key),
            None => Err(FileError::KeyType(key.describe())),
        }
    }

    pub(crate) fn new(spki: &SubjectPublicKeyInfoOwned) -> der::Result<Self> {
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

    /// The type of the key, or `None` if a key of this type cannot sign here.
    pub fn kind(&self) -> Option<KeyType> {
        self.kind
    }

    /// The content of the BIT STRING in SubjectPublicKeyInfo.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The name of the type for people.
    pub fn describe(&self) -> String {
        const ED448: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.113");
        match self.kind {
            Some(kind) => kind.to_string(),
            // The cryptographic library does not have it.
            None if self.algorithm == ED448 => "Ed448".to_owned(),
            None => self.algorithm.to_string(),
        }
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PublicKey(")?;
        let hash = self.hash();
        hash.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}
