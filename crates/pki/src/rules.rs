//! Demands on the certificates of a path, beside what RFC 5280 demands.

use std::str::FromStr;

use x509_cert::der::asn1::ObjectIdentifier;

use crate::oid;
use crate::scheme::{KeyType, Scheme};
use crate::subject_name::SubjectName;

/// Demands on the certificates of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    pub purposes: KeyPurposes,
    pub signatures: PathSchemes,
    /// The peer's certificate has all of these policies, and the whole path allows them.
    pub policies: Vec<CertificatePolicy>,
    /// An authority of the path has this name, as subject or as subjectAltName.
    pub authority: Option<AuthorityName>,
}

/// The name that an authority of a path must have. It can be a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityName {
    /// It is `None` if no certificate can have such a name.
    pub name: Option<SubjectName<'static>>,
    /// The name as it was written.
    pub text: String,
}

const IKE: [ObjectIdentifier; 3] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.17"), // id-kp-ipsecIKE
    ObjectIdentifier::new_unwrap("2.5.29.37.0"),        // anyExtendedKeyUsage
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.8.2.2"),  // iKEIntermediate
];
const TLS: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"), // id-kp-serverAuth
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2"), // id-kp-clientAuth
];

/// The extended key usages that are accepted. A certificate without the extension is accepted in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyPurposes {
    /// Those for IKE, and those for TLS servers and clients. Many authorities issue no others.
    #[default]
    IkeOrTls,
    /// Those for IKE (RFC 4945 §5.1.3.12).
    Ike,
    /// All.
    Any,
}

impl KeyPurposes {
    /// `purposes` is the content of the extension, if there is one.
    pub(crate) fn accept(self, purposes: Option<&[ObjectIdentifier]>) -> bool {
        let mut purposes = purposes.unwrap_or(&IKE).iter();
        match self {
            Self::IkeOrTls => {
                purposes.any(|purpose| IKE.contains(purpose) || TLS.contains(purpose))
            }
            Self::Ike => purposes.any(|purpose| IKE.contains(purpose)),
            Self::Any => true,
        }
    }
}

/// The object identifier of a certificate policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificatePolicy(pub(crate) ObjectIdentifier);

impl FromStr for CertificatePolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        oid::parse(text).map(Self).ok_or(())
    }
}

/// Signatures and keys that are accepted in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSchemes {
    /// The least size of each kind of key. Other kinds are refused. An empty list accepts all keys.
    pub strengths: Vec<(KeyFamily, u32)>,
    /// An empty list accepts all.
    pub schemes: Vec<Scheme>,
}

/// Keys that come in several sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFamily {
    Rsa,
    Ecdsa,
}

impl PathSchemes {
    /// Says whether a key of this type and size may be in a path. `None` stands for a key of another type.
    pub fn allow_key(&self, key: Option<(KeyType, u32)>) -> bool {
        let enough = |(kind, least): &(KeyFamily, u32)| match key {
            Some((KeyType::Rsa, bits)) => *kind == KeyFamily::Rsa && bits >= *least,
            Some((KeyType::P256 | KeyType::P384 | KeyType::P521, bits)) => {
                *kind == KeyFamily::Ecdsa && bits >= *least
            }
            Some((KeyType::Ed25519 | KeyType::MlDsa(_), _)) | None => false,
        };
        self.strengths.is_empty() || self.strengths.iter().any(enough)
    }

    /// Says whether a certificate may be signed so. `None` stands for a scheme that has no name here.
    pub fn allow_scheme(&self, scheme: Option<Scheme>) -> bool {
        self.schemes.is_empty() || scheme.is_some_and(|scheme| self.schemes.contains(&scheme))
    }
}
