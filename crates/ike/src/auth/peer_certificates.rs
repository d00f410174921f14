//! The certificates that a peer sends, and the check that they prove its identity (RFC 7296 §3.6, RFC 4945).

use aws_lc_rs::digest::{SHA256, digest};
use esplanade_pki::{
    Authorities, Certificate, Chain, OcspAnswer, PathOutcome, PublicKey, Revocation, UnixTime,
};

use super::error::PeerAuthError;
use super::identity::Identity;
use super::rules::CertificateRules;
use super::signature::check_auth;
use crate::wire::{Auth, Cert, CertEncoding, IdType};

/// Certificates of a peer that are used. Windows sends roots and cross-signed certificates too.
const CERTIFICATES_MAX: usize = 32;
/// Answers of OCSP responders that are taken from a message.
const ANSWERS_MAX: usize = 8;

/// Checks that the key of the certificate may sign for this identity.
fn check_use(certificate: &Certificate, identity: &Identity) -> Result<(), PeerAuthError> {
    if !certificate.may_sign() {
        return Err(PeerAuthError::KeyUsage);
    }
    match identity.is_named_by(certificate) {
        true => Ok(()),
        false => Err(PeerAuthError::IdentityMismatch {
            subject: certificate.subject().to_string(),
            identity: identity.clone(),
        }),
    }
}

/// A certificate as other certificates cannot pass for it: the SHA-256 of its DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CertificateHash([u8; 32]);

impl CertificateHash {
    pub(crate) fn of(certificate: &Certificate) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, certificate.der()).as_ref());
        Self(hash)
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
        let certificate = Certificate::presented(own)?;
        let answers = payloads
            .iter()
            .filter(|cert| cert.encoding == CertEncoding::OCSP)
            .take(ANSWERS_MAX)
            .filter_map(|cert| OcspAnswer::from_der(&cert.data).ok());
        let chain = Chain::new(own, intermediates, answers.collect())?;
        Ok((certificate, chain))
    }

    /// The peer sends no certificate, and this is its own. The others can be those of its issuers.
    pub(crate) fn known(own: &Certificate, others: &[Certificate]) -> Self {
        let others: Vec<&[u8]> = others.iter().map(Certificate::der).collect();
        let chain = Chain::new(own.der(), &others, Vec::new());
        Self(chain.map_or_else(|error| Err(error.into()), |chain| Ok((own.clone(), chain))))
    }

    /// Checks the certificates. There must be a path to one of the authorities that is valid at `now`, keeps the rules
    /// and has no revoked certificate, and the peer's own must name `identity`. [`VerifiedPeer::check_status`] says
    /// whether the status of a certificate is still to be had.
    pub fn verify(
        &mut self,
        authorities: &Authorities,
        identity: &Identity,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        if matches!(identity, Identity::KeyId(_)) {
            return Err(PeerAuthError::IdentityType(IdType::KEY_ID));
        }
        let (certificate, chain) = self.parts()?;
        let outcome = authorities.verify(chain, now, &rules.of_path(), revocation)?;
        if certificate.is_authority() {
            return Err(PeerAuthError::Authority);
        }
        check_use(certificate, identity)?;
        let certificate = certificate.clone();
        Ok(VerifiedPeer {
            certificate,
            outcome,
        })
    }

    /// Checks the peer's own certificate, for which the configuration vouches in place of an authority.
    pub(crate) fn verify_alone(
        &mut self,
        authorities: &Authorities,
        identity: &Identity,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        let (certificate, chain) = self.parts()?;
        let outcome = authorities.verify_alone(chain, now, &rules.of_path(), revocation)?;
        check_use(certificate, identity)?;
        Ok(VerifiedPeer {
            certificate: certificate.clone(),
            outcome,
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
            Ok((certificate, _)) => Ok(certificate.public_key()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Says whether one of the authorities can have issued any of the certificates, by the names alone.
    pub(crate) fn may_be_issued_by(&mut self, authorities: &Authorities) -> bool {
        let parts = self.parts();
        parts.is_ok_and(|(_, chain)| authorities.may_have_issued(chain))
    }

    /// The peer is refused whatever else it could prove, and by every connection.
    pub(crate) fn have_verdict(&self) -> bool {
        (self.0.as_ref()).is_ok_and(|(_, chain)| chain.check_verdict().is_err())
    }

    /// The peer's own certificate.
    pub(crate) fn own(&self) -> Option<CertificateHash> {
        let own = self.0.as_ref().ok();
        own.map(|(own, _)| CertificateHash::of(own))
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

/// A certificate whose path and identity were checked.
#[derive(Clone, Debug)]
pub struct VerifiedPeer {
    certificate: Certificate,
    outcome: PathOutcome,
}

impl VerifiedPeer {
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns an error while the status of a certificate is still to be had. It names the places to ask.
    pub fn check_status(&self) -> Result<(), PeerAuthError> {
        match &self.outcome {
            PathOutcome::Verified => Ok(()),
            PathOutcome::Needs(sources) => Err(PeerAuthError::StatusNeeded(sources.clone())),
        }
    }

    /// Checks the peer's AUTH payload over its signed octets, with the key of the certificate. It can be a digital
    /// signature (RFC 7427), ECDSA by RFC 4754, or RSA by RFC 7296. RSA with SHA-1 needs `legacy`.
    pub fn check_auth(
        &self,
        auth: &Auth,
        signed_octets: &[u8],
        legacy: bool,
    ) -> Result<(), PeerAuthError> {
        check_auth(self.certificate.public_key(), auth, signed_octets, legacy)
    }
}
