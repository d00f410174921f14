//! The certification authorities that are trusted, and the check of a peer's certificates against them.

use rustls_pki_types::UnixTime;

use crate::certificate::Certificate;
use crate::error::{FileError, PathError};
use crate::name::DistinguishedName;
use crate::path::{Anchors, Chain};
use crate::revocation::{Revocation, StatusSource};
use crate::rules::PathRules;

/// The certification authorities that a connection trusts.
#[derive(Clone)]
pub struct Authorities {
    anchors: Anchors,
    key_hashes: Vec<[u8; 20]>,
}

/// The outcome for certificates that are not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOutcome {
    Verified,
    /// All is right but the status of a certificate, which is still to be had. These are the places to ask.
    Needs(Vec<StatusSource>),
}

impl PathOutcome {
    fn new(sources: Vec<StatusSource>) -> Self {
        match sources.is_empty() {
            true => Self::Verified,
            false => Self::Needs(sources),
        }
    }
}

impl Authorities {
    /// Paths end at self-signed certificates. The others only need not be sent.
    pub fn new(certificates: &[Certificate]) -> Result<Self, FileError> {
        let anchors = Anchors::new(certificates.iter().map(Certificate::der));
        Self::from_anchors(anchors, certificates)
    }

    /// A path must have one of `named`. It goes on to the issuer of that one if the issuer is among `named` and `known`, and
    /// ends there otherwise.
    pub fn named(named: &[Certificate], known: &[Certificate]) -> Result<Self, FileError> {
        let known = known.iter().map(Certificate::der);
        let anchors = Anchors::named(named.iter().map(Certificate::der), known);
        Self::from_anchors(anchors, named)
    }

    fn from_anchors(
        anchors: Result<Anchors, String>,
        asked: &[Certificate],
    ) -> Result<Self, FileError> {
        Ok(Self {
            anchors: anchors.map_err(FileError::Certificate)?,
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

    /// SHA-1 of each SubjectPublicKeyInfo, by which a peer is asked for a certificate below the authority.
    pub fn key_hashes(&self) -> &[[u8; 20]] {
        &self.key_hashes
    }

    /// Says whether one of the authorities can have issued any of the certificates, by the names alone.
    pub fn may_have_issued(&self, chain: &mut Chain) -> bool {
        self.anchors.may_have_issued(chain).unwrap_or(false)
    }

    /// Checks a peer's certificates. There must be a path to one of the authorities that is valid at `now`, keeps the
    /// rules and has no revoked certificate.
    pub fn verify(
        &self,
        chain: &mut Chain,
        now: UnixTime,
        rules: &PathRules,
        revocation: &Revocation<'_>,
    ) -> Result<PathOutcome, PathError> {
        let sources = self.anchors.verify(chain, now, rules, revocation);
        sources.map(PathOutcome::new)
    }

    /// Checks the peer's own certificate, for which the configuration vouches in place of an authority. Self-signed
    /// certificates often are those of an authority.
    pub fn verify_alone(
        &self,
        chain: &mut Chain,
        now: UnixTime,
        rules: &PathRules,
        revocation: &Revocation<'_>,
    ) -> Result<PathOutcome, PathError> {
        let sources = chain.verify_alone(&self.anchors, now, rules, revocation);
        sources.map(PathOutcome::new)
    }
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorities({})", self.anchors.len())
    }
}
