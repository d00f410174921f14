//! X.509 certificates: loading them, the trusted authorities, and the check of the peer's path and identity.

use aws_lc_rs::{digest, signature};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::error::{CredentialError, PeerAuthError};
use super::identity::Identity;
use super::name::DistinguishedName;
use super::oid;
use super::path::{Anchors, Chain};
use super::revocation::{OcspAnswer, Revocation, StatusSource};
use super::rules::{CertificateRules, KeyPurposes, SchemeRules};
use super::scheme::{Hash, KeyType, Scheme};
use super::sets::{TOO_LARGE, sets_are_small};
use crate::wire::{Auth, AuthMethod, Cert, CertEncoding, CertReq, IdType};

/// Certificates of a peer that are used. Windows sends roots and cross-signed certificates too.
const CERTIFICATES_MAX: usize = 32;
/// Answers of OCSP responders that are taken from a message.
const ANSWERS_MAX: usize = 8;

/// Authorities that the response to IKE_SA_INIT names. It must fit one datagram.
const AUTHORITIES_ASKED_MAX: usize = 24;

/// A parsed certificate. Nobody has checked whether it can be trusted.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    subject: DistinguishedName,
    alternative_names: Vec<Identity>,
    /// The key may sign: the KeyUsage extension allows it, or there is none.
    may_sign: bool,
    is_authority: bool,
    purposes: Option<Vec<ObjectIdentifier>>,
    key: PublicKey,
    key_hash: [u8; 20],
}

#[derive(Clone)]
pub(super) struct PublicKey {
    /// The type of the key. It is `None` if a key of this kind cannot sign here.
    pub(super) kind: Option<KeyType>,
    /// The content of the BIT STRING in SubjectPublicKeyInfo.
    pub(super) bytes: Vec<u8>,
    algorithm: ObjectIdentifier,
}

impl Certificate {
    pub fn from_der(der: &[u8]) -> Result<Self, CredentialError> {
        Self::parse(der).map_err(CredentialError::Certificate)
    }

    /// All certificates of a file in PEM, or the one certificate of a file in DER.
    pub fn from_file_content(content: &[u8]) -> Result<Vec<Self>, CredentialError> {
        if content.first() == Some(&0x30) {
            return Ok(vec![Self::from_der(content)?]);
        }
        let mut certificates = Vec::new();
        for der in CertificateDer::pem_slice_iter(content) {
            let der = der.map_err(|error| CredentialError::Pem(error.to_string()))?;
            certificates.push(Self::from_der(&der)?);
        }
        if certificates.is_empty() {
            return Err(CredentialError::NoCertificate);
        }
        Ok(certificates)
    }

    fn parse(der: &[u8]) -> Result<Self, String> {
        let text = |error: x509_cert::der::Error| error.to_string();
        if !sets_are_small(der) {
            return Err(TOO_LARGE.to_owned());
        }
        let parsed = x509_cert::Certificate::from_der(der).map_err(text)?;
        let tbs = &parsed.tbs_certificate;
        let subject = DistinguishedName::from_rdns(&tbs.subject).ok_or("subject")?;
        let mut names = (tbs.extensions.iter().flatten())
            .filter(|extension| extension.extn_id == SubjectAltName::OID);
        if !names.all(|names| sets_are_small(names.extn_value.as_bytes())) {
            return Err(TOO_LARGE.to_owned());
        }
        let alternative_names = match tbs.get::<SubjectAltName>().map_err(text)? {
            Some((_, names)) => names
                .0
                .iter()
                .filter_map(Identity::from_alternative_name)
                .collect(),
            None => Vec::new(),
        };
        // Either bit is enough (RFC 4945 §5.1.3.2).
        let may_sign = match tbs.get::<KeyUsage>().map_err(text)? {
            Some((_, usage)) => usage.digital_signature() || usage.non_repudiation(),
            None => true,
        };
        let is_authority = match tbs.get::<BasicConstraints>().map_err(text)? {
            Some((_, basic)) => basic.ca,
            None => false,
        };
        let purposes = tbs.get::<ExtendedKeyUsage>().map_err(text)?;
        let spki = tbs.subject_public_key_info.to_der().map_err(text)?;
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &spki);
        let mut key_hash = [0; 20];
        key_hash.copy_from_slice(hash.as_ref());
        Ok(Self {
            der: CertificateDer::from(der.to_vec()),
            subject,
            alternative_names,
            may_sign,
            is_authority,
            purposes: purposes.map(|(_, purposes)| purposes.0),
            key: public_key(&tbs.subject_public_key_info),
            key_hash,
        })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// Says whether the extended key usage is one of these.
    pub fn is_for(&self, purposes: KeyPurposes) -> bool {
        purposes.accept(self.purposes.as_deref())
    }

    /// SHA-1 of the SubjectPublicKeyInfo. CERTREQ names an authority by it (RFC 7296 §3.7).
    pub fn key_hash(&self) -> [u8; 20] {
        self.key_hash
    }

    /// Says whether the certificate names this identity (RFC 4945 §3.1). The subject names a distinguished name, and
    /// a subjectAltName of the same kind names any other. There are no wildcards.
    pub fn names(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Dn(name) if *name == self.subject => true,
            Identity::Any | Identity::KeyId(_) => false,
            _ => self.alternative_names.contains(identity),
        }
    }

    pub(super) fn public_key(&self) -> &PublicKey {
        &self.key
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({})", self.subject)
    }
}

impl PublicKey {
    pub(super) fn describe(&self) -> String {
        match self.kind {
            Some(kind) => kind.to_string(),
            None => self.algorithm.to_string(),
        }
    }
}

fn public_key(spki: &SubjectPublicKeyInfoOwned) -> PublicKey {
    const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
    const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
    const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
    const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
    const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
    let algorithm = spki.algorithm.oid;
    let curve =
        || -> Option<ObjectIdentifier> { spki.algorithm.parameters.as_ref()?.decode_as().ok() };
    let kind = match algorithm {
        RSA => Some(KeyType::Rsa),
        ED25519 => Some(KeyType::Ed25519),
        EC if curve() == Some(P256) => Some(KeyType::P256),
        EC if curve() == Some(P384) => Some(KeyType::P384),
        EC if curve() == Some(P521) => Some(KeyType::P521),
        _ => None,
    };
    PublicKey {
        kind,
        bytes: spki.subject_public_key.raw_bytes().to_vec(),
        algorithm,
    }
}

/// The certificates of one message of a peer, its own first (RFC 7296 §3.6). They can be checked for several
/// connections, and all checks together have one bound on their work.
pub struct PeerCertificates(Result<(Certificate, Chain), PeerAuthError>);

impl PeerCertificates {
    pub fn new(payloads: &[&Cert]) -> Self {
        Self(Self::parse(payloads))
    }

    fn parse(payloads: &[&Cert]) -> Result<(Certificate, Chain), PeerAuthError> {
        let certificates: Vec<&[u8]> = payloads
            .iter()
            .filter(|cert| cert.encoding == CertEncoding::X509_SIGNATURE)
            .map(|cert| cert.data.as_slice())
            .take(CERTIFICATES_MAX)
            .collect();
        let (own, intermediates) = certificates
            .split_first()
            .ok_or(PeerAuthError::NoCertificate)?;
        let certificate = Certificate::parse(own).map_err(PeerAuthError::Malformed)?;
        let answers = payloads
            .iter()
            .filter(|cert| cert.encoding == CertEncoding::OCSP)
            .take(ANSWERS_MAX)
            .filter_map(|cert| OcspAnswer::from_der(&cert.data).ok());
        let chain = Chain::new(own, intermediates, answers.collect());
        let chain = chain.map_err(PeerAuthError::Malformed)?;
        Ok((certificate, chain))
    }
}

impl std::fmt::Debug for PeerCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerCertificates")
            .field(&self.0.as_ref().map(|(own, _)| own))
            .finish()
    }
}

/// The certification authorities that a connection trusts.
#[derive(Clone)]
pub struct Authorities {
    anchors: Anchors,
    key_hashes: Vec<[u8; 20]>,
}

impl Authorities {
    pub fn new(certificates: &[Certificate]) -> Result<Self, CredentialError> {
        let anchors = Anchors::new(certificates.iter().map(Certificate::der));
        Ok(Self {
            anchors: anchors.map_err(CredentialError::Certificate)?,
            key_hashes: certificates.iter().map(Certificate::key_hash).collect(),
        })
    }

    /// Asks the peer for a certificate below one of these authorities.
    pub fn certreq(&self) -> CertReq {
        CertReq::x509(&self.key_hashes)
    }

    /// Asks the peer for a certificate below an authority of any of these. Returns `None` if there are none. A peer may
    /// offer another certificate, so that authorities beyond a bound can be left out.
    pub(crate) fn certreq_of_all<'a>(all: impl Iterator<Item = &'a Self>) -> Option<CertReq> {
        let mut hashes: Vec<[u8; 20]> = Vec::new();
        let mut any = false;
        for authorities in all {
            any = true;
            for hash in &authorities.key_hashes {
                if hashes.len() < AUTHORITIES_ASKED_MAX && !hashes.contains(hash) {
                    hashes.push(*hash);
                }
            }
        }
        any.then(|| CertReq::x509(&hashes))
    }

    /// Says whether a CERTREQ payload of the peer names one of these authorities.
    pub fn is_requested_by(&self, request: &CertReq) -> bool {
        request.encoding == CertEncoding::X509_SIGNATURE
            && request
                .ca_key_hashes()
                .any(|hash| self.key_hashes.iter().any(|ours| ours == hash))
    }

    /// Checks the peer's certificates. There must be a path to one of the authorities that is valid at `now`, keeps the
    /// rules and has no revoked certificate, and the peer's own must name `identity`. [`VerifiedPeer::check_status`] says
    /// whether the status of a certificate is still to be had.
    pub fn verify(
        &self,
        peer: &mut PeerCertificates,
        identity: &Identity,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        if matches!(identity, Identity::KeyId(_)) {
            return Err(PeerAuthError::IdentityType(IdType::KEY_ID));
        }
        let (certificate, chain) = match &mut peer.0 {
            Ok((certificate, chain)) => (&*certificate, chain),
            Err(error) => return Err(error.clone()),
        };
        let sources = self.anchors.verify(chain, now, rules, revocation)?;
        if certificate.is_authority {
            return Err(PeerAuthError::Authority);
        }
        if !certificate.may_sign {
            return Err(PeerAuthError::KeyUsage);
        }
        if !certificate.names(identity) {
            return Err(PeerAuthError::IdentityMismatch {
                subject: certificate.subject.to_string(),
                identity: identity.clone(),
            });
        }
        let certificate = certificate.clone();
        Ok(VerifiedPeer {
            certificate,
            sources,
        })
    }
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorities({})", self.anchors.len())
    }
}

/// A certificate whose path and identity were checked.
#[derive(Clone, Debug)]
pub struct VerifiedPeer {
    certificate: Certificate,
    sources: Vec<StatusSource>,
}

impl VerifiedPeer {
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns an error while the status of a certificate is still to be had. It names the places to ask.
    pub fn check_status(&self) -> Result<(), PeerAuthError> {
        match self.sources.is_empty() {
            true => Ok(()),
            false => Err(PeerAuthError::StatusNeeded(self.sources.clone())),
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
        let key = &self.certificate.key;
        let unsuitable = || PeerAuthError::KeyType(key.describe());
        let kind = key.kind.ok_or_else(unsuitable)?;
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
                    return check_rsa(&key.bytes, &auth.data, signed_octets, legacy);
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
        signature::UnparsedPublicKey::new(algorithm, &key.bytes)
            .verify(signed_octets, value)
            .map_err(|_| PeerAuthError::BadSignature)
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
    match AlgorithmIdentifierOwned::from_der(identifier) {
        Ok(algorithm) => oid::dotted(&algorithm.oid),
        Err(_) => "(malformed)".to_owned(),
    }
}
