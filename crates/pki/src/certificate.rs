//! X.509 certificates: reading them, and the names and uses that they have.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_cert::der::Encode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};

use crate::der::{DerError, decode, extension};
use crate::error::{FileError, PathError};
use crate::name::DistinguishedName;
use crate::path::has_signed;
use crate::public_key::PublicKey;
use crate::revocation::Serial;
use crate::rules::KeyPurposes;
use crate::signed::Signed;
use crate::subject_name::SubjectName;
use crate::validity::Validity;

/// A parsed certificate. Nobody has checked whether it can be trusted.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// It is `None` if the number is longer than a certificate of a path may have.
    serial: Option<Serial>,
    validity: Validity,
    subject: DistinguishedName,
    issuer: DistinguishedName,
    alternative_names: Vec<SubjectName<'static>>,
    may_sign: bool,
    is_authority: bool,
    purposes: Option<Vec<ObjectIdentifier>>,
    key: PublicKey,
}

impl Certificate {
    pub fn from_der(der: &[u8]) -> Result<Self, FileError> {
        Self::parse(der).map_err(FileError::Certificate)
    }

    /// As [`Self::from_der`], for a certificate that a peer has sent.
    pub fn presented(der: &[u8]) -> Result<Self, PathError> {
        Self::parse(der).map_err(PathError::Malformed)
    }

    /// All certificates of a file in PEM, or the one certificate of a file in DER.
    pub fn from_file_content(content: &[u8]) -> Result<Vec<Self>, FileError> {
        if content.first() == Some(&0x30) {
            return Ok(vec![Self::from_der(content)?]);
        }
        let mut certificates = Vec::new();
        for der in CertificateDer::pem_slice_iter(content) {
            let der = der.map_err(|error| FileError::Pem(error.to_string()))?;
            certificates.push(Self::from_der(&der)?);
        }
        if certificates.is_empty() {
            return Err(FileError::NoCertificate);
        }
        Ok(certificates)
    }

    fn parse(der: &[u8]) -> Result<Self, String> {
        let text = |error: DerError| error.to_string();
        let parsed: x509_cert::Certificate = decode(der).map_err(text)?;
        let tbs = &parsed.tbs_certificate;
        let subject = DistinguishedName::from_rdns(&tbs.subject).ok_or("subject")?;
        let issuer = DistinguishedName::from_rdns(&tbs.issuer).ok_or("issuer")?;
        let alternative_names = match extension::<SubjectAltName>(tbs).map_err(text)? {
            Some(names) => names
                .0
                .iter()
                .filter_map(SubjectName::from_alternative_name)
                .collect(),
            None => Vec::new(),
        };
        // Either bit is enough (RFC 4945 §5.1.3.2).
        let may_sign = match extension::<KeyUsage>(tbs).map_err(text)? {
            Some(usage) => usage.digital_signature() || usage.non_repudiation(),
            None => true,
        };
        let is_authority = match extension::<BasicConstraints>(tbs).map_err(text)? {
            Some(basic) => basic.ca,
            None => false,
        };
        let purposes: Option<ExtendedKeyUsage> = extension(tbs).map_err(text)?;
        let key = PublicKey::new(&tbs.subject_public_key_info).map_err(text)?;
        let serial = tbs
            .serial_number
            .to_der()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            der: CertificateDer::from(der.to_vec()),
            serial: Serial::from_der(&serial),
            validity: Validity {
                not_before: tbs.validity.not_before.to_unix_duration(),
                not_after: tbs.validity.not_after.to_unix_duration(),
            },
            subject,
            issuer,
            alternative_names,
            may_sign,
            is_authority,
            purposes: purposes.map(|purposes| purposes.0),
            key,
        })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn validity(&self) -> Validity {
        self.validity
    }

    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    pub(crate) fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    pub(crate) fn serial(&self) -> Option<&Serial> {
        self.serial.as_ref()
    }

    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Says whether the key may sign: the KeyUsage extension allows it, or there is none.
    pub fn may_sign(&self) -> bool {
        self.may_sign
    }

    /// Says whether this authority has signed the other certificate.
    pub fn has_issued(&self, other: &Self) -> bool {
        self.is_authority && self.subject == other.issuer && has_signed(self.der(), other.der())
    }

    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Returns the identifier of the signature's algorithm, with dots, if no peer of our kind can check the signature.
    /// Nobody checks that of a self-issued certificate.
    pub fn unsupported_signature(&self) -> Option<String> {
        let signed = Signed::from_der(&self.der).ok()?;
        let unsupported = !self.is_self_issued() && !signed.is_supported();
        unsupported.then(|| signed.algorithm_name())
    }

    /// Says whether the extended key usage is one of these.
    pub fn is_for(&self, purposes: KeyPurposes) -> bool {
        purposes.accept(self.purposes.as_deref())
    }

    /// SHA-1 of the SubjectPublicKeyInfo. CERTREQ names an authority by it (RFC 7296 §3.7).
    pub fn key_hash(&self) -> [u8; 20] {
        self.key.hash()
    }

    /// Says whether the certificate has this name (RFC 4945 §3.1): a distinguished name as its subject, and any name as a
    /// subjectAltName of the same kind. There are no wildcards.
    pub fn names(&self, name: &SubjectName<'_>) -> bool {
        name.as_directory() == Some(&self.subject) || self.alternative_names.contains(name)
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.key
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({})", self.subject)
    }
}
