//! X.509 certificates: loading them, the trusted authorities, and the check of the peer's path and identity.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::der::Encode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};

use super::der::{DerError, decode, extension};
use super::error::{CredentialError, PeerAuthError};
use super::identity::Identity;
use super::name::DistinguishedName;
use super::path::{Anchors, Chain, has_signed};
use super::public_key::PublicKey;
use super::revocation::{OcspAnswer, Revocation, Serial, StatusSource};
use super::rules::{CertificateRules, KeyPurposes, SchemeRules};
use super::signed::Signed;
use crate::wire::{Auth, Cert, CertEncoding, CertReq, IdType};

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
    /// It is `None` if the number is longer than a certificate of a path may have.
    serial: Option<Serial>,
    subject: DistinguishedName,
    issuer: DistinguishedName,
    alternative_names: Vec<Identity>,
    /// The key may sign: the KeyUsage extension allows it, or there is none.
    may_sign: bool,
    is_authority: bool,
    purposes: Option<Vec<ObjectIdentifier>>,
    key: PublicKey,
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
        let text = |error: DerError| error.to_string();
        let parsed: x509_cert::Certificate = decode(der).map_err(text)?;
        let tbs = &parsed.tbs_certificate;
        let subject = DistinguishedName::from_rdns(&tbs.subject).ok_or("subject")?;
        let issuer = DistinguishedName::from_rdns(&tbs.issuer).ok_or("issuer")?;
        let alternative_names = match extension::<SubjectAltName>(tbs).map_err(text)? {
            Some(names) => names
                .0
                .iter()
                .filter_map(Identity::from_alternative_name)
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

    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    pub(super) fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    pub(super) fn serial(&self) -> Option<&Serial> {
        self.serial.as_ref()
    }

    pub(super) fn is_authority(&self) -> bool {
        self.is_authority
    }

    pub(super) fn may_sign(&self) -> bool {
        self.may_sign
    }

    /// Says whether this authority has signed the other certificate.
    pub fn has_issued(&self, other: &Self) -> bool {
        self.is_authority && self.subject == other.issuer && has_signed(self.der(), other.der())
    }

    pub(super) fn is_self_issued(&self) -> bool {
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

    /// Says whether the certificate names this identity (RFC 4945 §3.1). The subject names a distinguished name, and
    /// a subjectAltName of the same kind names any other. There are no wildcards.
    pub fn names(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Dn(name) if *name == self.subject => true,
            Identity::Any | Identity::KeyId(_) => false,
            _ => self.alternative_names.contains(identity),
        }
    }

    /// Checks that the key may sign for this identity.
    fn check_use(&self, identity: &Identity) -> Result<(), PeerAuthError> {
        if !self.may_sign {
            return Err(PeerAuthError::KeyUsage);
        }
        match self.names(identity) {
            true => Ok(()),
            false => Err(PeerAuthError::IdentityMismatch {
                subject: self.subject.to_string(),
                identity: identity.clone(),
            }),
        }
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

impl PeerCertificates {
    /// The peer sends no certificate, and this is its own. The others can be those of its issuers.
    pub(crate) fn known(own: &Certificate, others: &[Certificate]) -> Self {
        let others: Vec<&[u8]> = others.iter().map(Certificate::der).collect();
        let chain = Chain::new(own.der(), &others, Vec::new()).map_err(PeerAuthError::Malformed);
        Self(chain.map(|chain| (own.clone(), chain)))
    }

    /// Checks the peer's own certificate, for which the configuration vouches in place of an authority. Self-signed
    /// certificates often are those of an authority.
    pub(crate) fn verify_alone(
        &mut self,
        authorities: &Authorities,
        identity: &Identity,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        let (certificate, chain) = self.parts()?;
        let sources = chain.verify_alone(&authorities.anchors, now, rules, revocation)?;
        certificate.check_use(identity)?;
        Ok(VerifiedPeer {
            certificate: certificate.clone(),
            sources,
        })
    }

    fn parts(&mut self) -> Result<(&Certificate, &mut Chain), PeerAuthError> {
        match &mut self.0 {
            Ok((certificate, chain)) => Ok((&*certificate, chain)),
            Err(error) => Err(error.clone()),
        }
    }

    /// The key of the peer's own certificate.
    pub(crate) fn public_key(&self) -> Result<&PublicKey, PeerAuthError> {
        match &self.0 {
            Ok((certificate, _)) => Ok(&certificate.key),
            Err(error) => Err(error.clone()),
        }
    }

    /// Says whether one of the authorities can have issued any of the certificates, by the names alone.
    pub(crate) fn may_be_issued_by(&mut self, authorities: &Authorities) -> bool {
        let possible =
            (self.parts()).and_then(|(_, chain)| authorities.anchors.may_have_issued(chain));
        possible.unwrap_or(false)
    }

    /// The peer is refused whatever else it could prove, and by every connection.
    pub(crate) fn have_verdict(&self) -> bool {
        (self.0.as_ref()).is_ok_and(|(_, chain)| chain.check_verdict().is_err())
    }

    /// Says whether the peer's own certificate is one of these.
    pub(crate) fn are_of_one_of(&self, known: &[Certificate]) -> bool {
        let own = self.0.as_ref();
        own.is_ok_and(|(own, _)| known.iter().any(|one| one.der() == own.der()))
    }

    /// The peer has sent none.
    pub(crate) fn are_missing(&self) -> bool {
        matches!(self.0, Err(PeerAuthError::NoCertificate))
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
    /// Paths end at self-signed certificates. The others only need not be sent.
    pub fn new(certificates: &[Certificate]) -> Result<Self, CredentialError> {
        let anchors = Anchors::new(certificates.iter().map(Certificate::der));
        Self::from_anchors(anchors, certificates)
    }

    /// A path must have one of `named`. It goes on to the issuer of that one if the issuer is among `named` and `known`, and
    /// ends there otherwise.
    pub fn named(named: &[Certificate], known: &[Certificate]) -> Result<Self, CredentialError> {
        let known = known.iter().map(Certificate::der);
        let anchors = Anchors::named(named.iter().map(Certificate::der), known);
        Self::from_anchors(anchors, named)
    }

    fn from_anchors(
        anchors: Result<Anchors, String>,
        asked: &[Certificate],
    ) -> Result<Self, CredentialError> {
        Ok(Self {
            anchors: anchors.map_err(CredentialError::Certificate)?,
            key_hashes: asked.iter().map(Certificate::key_hash).collect(),
        })
    }

    /// No path can be valid.
    pub fn are_without_anchor(&self) -> bool {
        self.anchors.len() == 0
    }

    /// Returns subject and issuer of each certificate from which no way leads to an anchor.
    pub fn rootless(&self) -> Vec<(&DistinguishedName, &DistinguishedName)> {
        self.anchors.rootless()
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
        let (certificate, chain) = peer.parts()?;
        let sources = self.anchors.verify(chain, now, rules, revocation)?;
        if certificate.is_authority {
            return Err(PeerAuthError::Authority);
        }
        certificate.check_use(identity)?;
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

    /// As [`PublicKey::check_scheme`].
    pub fn check_scheme(&self, auth: &Auth, rules: &SchemeRules) -> Result<(), PeerAuthError> {
        self.certificate.key.check_scheme(auth, rules)
    }

    /// As [`PublicKey::check_auth`], with the key of the certificate.
    pub fn check_auth(
        &self,
        auth: &Auth,
        signed_octets: &[u8],
        legacy: bool,
    ) -> Result<(), PeerAuthError> {
        self.certificate.key.check_auth(auth, signed_octets, legacy)
    }
}
