//! The information about revocation that the gateway has, and the places where more of it is to be had.

use std::collections::HashSet;
use std::sync::Arc;

use super::crl::Crl;
use super::ocsp::{CertificateName, OcspAnswer, OcspStatus};
use super::points::Points;
use crate::der::{DerError, decode};
use crate::name::DistinguishedName;
use crate::signed::SubjectKey;

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

    pub(super) fn request(&self) -> Option<&[u8]> {
        match self {
            Self::Crl { .. } => None,
            Self::Ocsp { request, .. } => Some(request),
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

/// An OCSP responder that the configuration trusts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Responder {
    pub(crate) name: DistinguishedName,
    pub(crate) key: SubjectKey,
}

/// CRLs, answers of OCSP responders, and the places where they are to be had.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RevocationStore {
    crls: Vec<Arc<Crl>>,
    answers: Vec<Arc<OcspAnswer>>,
    authorities: Vec<AuthoritySources>,
    /// The OCSP responders that the configuration trusts for every certificate.
    trusted: Vec<Responder>,
    /// The caller fetches what [`crate::PathOutcome::Needs`] names.
    fetches: bool,
    /// Places that were asked lately. They are not asked again.
    tried: Arc<HashSet<StatusSource>>,
    /// Revocations had to be forgotten, so that an unknown status may be one of them.
    has_forgotten: bool,
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
        let tbs = &parsed.tbs_certificate;
        self.trusted.push(Responder {
            name: DistinguishedName::from_rdns(&tbs.subject).ok_or("malformed name")?,
            key: SubjectKey::new(&tbs.subject_public_key_info).map_err(text)?,
        });
        Ok(())
    }

    /// Says that the caller fetches what is needed. Without it nothing is waited for.
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

    /// Notes that a place was asked lately. It is not asked again.
    pub fn note_tried(&mut self, source: StatusSource) {
        Arc::make_mut(&mut self.tried).insert(source);
    }

    /// Replaces the places that were asked lately.
    pub fn set_tried(&mut self, tried: Arc<HashSet<StatusSource>>) {
        self.tried = tried;
    }

    pub(super) fn note_forgotten(&mut self) {
        self.has_forgotten = true;
    }

    /// Revocations had to be forgotten, so that an unknown status may be one of them.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Says whether the configuration names this place. Then the administrator has chosen it.
    pub fn names(&self, source: &StatusSource) -> bool {
        let mut authorities = self.authorities.iter();
        authorities.any(|one| match source {
            StatusSource::Crl { uri } => one.crls.contains(uri),
            StatusSource::Ocsp { uri, .. } => one.responders.contains(uri),
        })
    }

    pub fn crls(&self) -> &[Arc<Crl>] {
        &self.crls
    }

    pub(super) fn crls_mut(&mut self) -> &mut [Arc<Crl>] {
        &mut self.crls
    }

    pub(crate) fn answers(&self) -> impl Iterator<Item = &OcspAnswer> {
        self.answers.iter().map(AsRef::as_ref)
    }

    pub(crate) fn trusted_responders(&self) -> &[Responder] {
        &self.trusted
    }

    /// Says whether there is a CRL with this authority's name that its key has not signed.
    pub(crate) fn has_crl_by_another_key(
        &self,
        issuer: &DistinguishedName,
        key: &SubjectKey,
    ) -> bool {
        let mut own = self.crls.iter().filter(|crl| crl.issuer() == issuer);
        own.any(|crl| !crl.is_signed_by(key))
    }

    /// Says whether there is no information about revocation at all.
    pub fn is_empty(&self) -> bool {
        self.crls.is_empty() && self.authorities.is_empty()
    }

    /// Says whether the status of this authority's certificates should be known: there is a URI or an old CRL.
    pub(crate) fn expects(&self, issuer: &DistinguishedName) -> bool {
        self.of(issuer).next().is_some() || self.crls.iter().any(|crl| crl.issuer() == issuer)
    }

    fn of(&self, issuer: &DistinguishedName) -> impl Iterator<Item = &AuthoritySources> {
        let all = self.authorities.iter();
        all.filter(move |sources| sources.authority == *issuer)
    }

    /// Says whether the complete CRLs of a scope, or the certificate, name delta CRLs to fetch, and no current one is
    /// there. A delta that is older than the complete CRL adds nothing to it.
    pub(super) fn lacks_delta(&self, scope: &[&Crl], points: &Points, now: u64) -> bool {
        let is_complete = |crl: &&&Crl| !crl.is_delta() && crl.is_current(now);
        let newest = scope
            .iter()
            .filter(is_complete)
            .max_by_key(|crl| crl.edition());
        let Some(complete) = newest.filter(|_| self.fetches) else {
            return false;
        };
        let mut uris = complete.freshest().iter().chain(points.freshest_uris());
        let mut deltas = scope.iter().filter(|crl| crl.is_delta());
        uris.any(|uri| is_http(uri))
            && !deltas.any(|delta| delta.is_current(now) && delta.fits(complete))
    }

    /// Returns the places of the delta CRLs that are missing.
    fn delta_uris<'a>(
        &'a self,
        issuer: &DistinguishedName,
        points: &'a Points,
        now: u64,
    ) -> Vec<&'a String> {
        let own = self.crls.iter().map(AsRef::as_ref);
        let own = own.filter(|crl| crl.issuer() == issuer && crl.is_verified());
        let own: Vec<&Crl> = own.collect();
        let mut uris = Vec::new();
        for complete in &own {
            let scope = own.iter().filter(|crl| crl.has_scope_of(complete));
            let scope: Vec<&Crl> = scope.copied().collect();
            if !complete.is_delta() && self.lacks_delta(&scope, points, now) {
                uris.extend(complete.freshest().iter().chain(points.freshest_uris()));
            }
        }
        uris
    }

    /// Returns the places to ask next about a certificate: OCSP responders first, then those of delta CRLs for what is
    /// there, and then those of complete CRLs.
    pub(crate) fn sources(
        &self,
        certificate: &CertificateName<'_>,
        points: &Points,
        now: u64,
    ) -> Vec<StatusSource> {
        let responders = self.responders(certificate, points);
        if !responders.is_empty() || !self.fetches {
            return responders;
        }
        let deltas = self.delta_uris(certificate.issuer, points, now);
        let deltas = self.awaited_crls(http_uris(deltas.into_iter()));
        if !deltas.is_empty() {
            return deltas;
        }
        let configured = self.of(certificate.issuer).flat_map(|one| &one.crls);
        self.awaited_crls(http_uris(configured.chain(points.crl_uris())))
    }

    fn awaited_crls(&self, uris: impl Iterator<Item = String>) -> Vec<StatusSource> {
        self.first_awaited(uris.map(|uri| StatusSource::Crl { uri }))
    }

    /// Returns the OCSP responders to ask about a certificate.
    pub(crate) fn responders(
        &self,
        certificate: &CertificateName<'_>,
        points: &Points,
    ) -> Vec<StatusSource> {
        let Some(request) = certificate.request().filter(|_| self.fetches) else {
            return Vec::new();
        };
        let configured = self.of(certificate.issuer).flat_map(|one| &one.responders);
        let uris = http_uris(configured.chain(points.responder_uris()));
        let sources = uris.map(|uri| StatusSource::Ocsp {
            uri,
            request: request.clone(),
        });
        self.first_awaited(sources)
    }

    /// Returns the first few places that were not asked lately, each once. The others have their turn when these were
    /// asked.
    fn first_awaited(&self, sources: impl Iterator<Item = StatusSource>) -> Vec<StatusSource> {
        let mut first: Vec<StatusSource> = Vec::new();
        for source in sources.filter(|source| self.is_awaited(source)) {
            if first.len() >= SOURCES_MAX {
                break;
            }
            if !first.contains(&source) {
                first.push(source);
            }
        }
        first
    }

    /// Returns the newest answer that tells the status of a certificate now. Nobody has checked its signature.
    pub(crate) fn current_answer(
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
    pub fn is_awaited(&self, source: &StatusSource) -> bool {
        !self.tried.contains(source)
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

fn http_uris<'a>(all: impl Iterator<Item = &'a String>) -> impl Iterator<Item = String> {
    all.filter(|uri| is_http(uri)).cloned()
}

/// Other schemes, as LDAP, are not fetched.
fn is_http(uri: &str) -> bool {
    let scheme = uri.get(..7);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}
