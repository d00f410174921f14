//! The information about revocation that the gateway has, and the places where more of it is to be had.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::der::{DerError, decode};
use super::super::name::DistinguishedName;
use super::super::signed::SubjectKey;
use super::crl::Crl;
use super::ocsp::{CertificateName, OcspAnswer, OcspStatus};
use super::points::Points;

/// Places of one kind that are asked about one certificate.
const SOURCES_MAX: usize = 4;

/// A place that can say whether certificates are revoked. Its URI has the scheme `http`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StatusSource {
    /// The URI gives a CRL in DER or PEM.
    Crl { uri: String },
    /// The responder answers a request in DER (RFC 6960 appendix A.1).
    Ocsp { uri: String, request: Vec<u8> },
}

impl StatusSource {
    pub fn uri(&self) -> &str {
        match self {
            Self::Crl { uri } | Self::Ocsp { uri, .. } => uri,
        }
    }
}

impl std::fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Crl { uri } => write!(f, "Crl({uri})"),
            Self::Ocsp { uri, .. } => write!(f, "Ocsp({uri})"),
        }
    }
}

/// The places that the configuration names for the certificates of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySources {
    pub authority: DistinguishedName,
    pub crls: Vec<String>,
    pub responders: Vec<String>,
}

/// CRLs, answers of OCSP responders, and the places where they are to be had.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RevocationStore {
    crls: Vec<Arc<Crl>>,
    answers: Vec<Arc<OcspAnswer>>,
    authorities: Vec<AuthoritySources>,
    /// The keys of OCSP responders that the configuration trusts for every certificate.
    trusted: Vec<SubjectKey>,
    /// The embedder fetches what [`crate::Event::StatusNeeded`] asks for.
    fetches: bool,
    /// Places that were asked lately, and the time until which they are not asked again.
    tried: HashMap<StatusSource, u64>,
}

impl RevocationStore {
    pub fn new(crls: Vec<Arc<Crl>>) -> Self {
        Self {
            crls,
            ..Self::default()
        }
    }

    /// Notes where the configuration says that the status of an authority's certificates is to be had.
    pub fn expect(&mut self, sources: AuthoritySources) {
        self.authorities.push(sources);
    }

    /// Trusts the key of an OCSP responder. An error says what is wrong with its certificate.
    pub fn trust_responder(&mut self, certificate: &[u8]) -> Result<(), String> {
        let text = |error: DerError| error.to_string();
        let parsed: x509_cert::Certificate = decode(certificate).map_err(text)?;
        let key = SubjectKey::new(&parsed.tbs_certificate.subject_public_key_info);
        self.trusted.push(key.map_err(text)?);
        Ok(())
    }

    /// Says that the embedder fetches what is needed. Without it nothing is waited for.
    pub fn set_fetches(&mut self) {
        self.fetches = true;
    }

    pub fn fetches(&self) -> bool {
        self.fetches
    }

    pub fn add_crls(&mut self, crls: impl IntoIterator<Item = Arc<Crl>>) {
        self.crls.extend(crls);
    }

    pub fn add_answer(&mut self, answer: Arc<OcspAnswer>) {
        self.answers.push(answer);
    }

    /// Notes that a place was asked. It is not asked again until `until`, in seconds since 1970.
    pub fn note_tried(&mut self, source: StatusSource, until: u64) {
        self.tried.insert(source, until);
    }

    pub fn crls(&self) -> &[Arc<Crl>] {
        &self.crls
    }

    pub(in crate::auth) fn answers(&self) -> impl Iterator<Item = &OcspAnswer> {
        self.answers.iter().map(AsRef::as_ref)
    }

    pub(in crate::auth) fn trusted_responders(&self) -> &[SubjectKey] {
        &self.trusted
    }

    /// Says whether there is no information about revocation at all.
    pub fn is_empty(&self) -> bool {
        self.crls.is_empty() && self.authorities.is_empty()
    }

    /// Says whether the status of this authority's certificates should be known: there is a URI or an old CRL.
    pub(in crate::auth) fn expects(&self, issuer: &DistinguishedName) -> bool {
        self.of(issuer).next().is_some() || self.crls.iter().any(|crl| crl.issuer() == issuer)
    }

    fn of(&self, issuer: &DistinguishedName) -> impl Iterator<Item = &AuthoritySources> {
        let all = self.authorities.iter();
        all.filter(move |sources| sources.authority == *issuer)
    }

    /// Returns the places to ask next about a certificate: OCSP responders first, and then those of CRLs.
    pub(in crate::auth) fn sources(
        &self,
        certificate: &CertificateName<'_>,
        points: &Points,
        now: u64,
    ) -> Vec<StatusSource> {
        let responders = self.responders(certificate, points, now);
        if !responders.is_empty() || !self.fetches {
            return responders;
        }
        let configured = self.of(certificate.issuer).flat_map(|one| &one.crls);
        let uris = http_uris(configured.chain(points.crl_uris()));
        let sources = uris.into_iter().map(|uri| StatusSource::Crl { uri });
        sources
            .filter(|source| self.is_awaited(source, now))
            .collect()
    }

    /// Returns the OCSP responders to ask about a certificate.
    pub(in crate::auth) fn responders(
        &self,
        certificate: &CertificateName<'_>,
        points: &Points,
        now: u64,
    ) -> Vec<StatusSource> {
        let Some(request) = certificate.request().filter(|_| self.fetches) else {
            return Vec::new();
        };
        let configured = self.of(certificate.issuer).flat_map(|one| &one.responders);
        let uris = http_uris(configured.chain(points.responder_uris()));
        let sources = uris.into_iter().map(|uri| StatusSource::Ocsp {
            uri,
            request: request.clone(),
        });
        sources
            .filter(|source| self.is_awaited(source, now))
            .collect()
    }

    /// Returns the newest answer that tells the status of a certificate now. Nobody has checked its signature.
    pub(in crate::auth) fn current_answer(
        &self,
        certificate: &CertificateName<'_>,
        now: u64,
    ) -> Option<&OcspAnswer> {
        let tells = |answer: &&OcspAnswer| {
            let about = answer.about(certificate, now);
            about.is_some_and(|(_, status)| status != OcspStatus::Nothing)
        };
        let made = |answer: &&OcspAnswer| answer.about(certificate, now).map(|(made, _)| made);
        self.answers().filter(tells).max_by_key(made)
    }

    /// Says whether a place was not asked lately.
    pub(crate) fn is_awaited(&self, source: &StatusSource, now: u64) -> bool {
        self.tried.get(source).is_none_or(|until| *until <= now)
    }
}

impl std::fmt::Debug for RevocationStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevocationStore")
            .field("crls", &self.crls)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

/// Returns the first few URIs that can be fetched, each once.
fn http_uris<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut uris: Vec<String> = Vec::new();
    for uri in all {
        if is_http(uri) && uris.len() < SOURCES_MAX && !uris.contains(uri) {
            uris.push(uri.clone());
        }
    }
    uris
}

/// Other schemes, as LDAP, are not fetched.
fn is_http(uri: &str) -> bool {
    let scheme = uri.get(..7);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}
