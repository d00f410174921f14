//! The search for a valid path (RFC 5280 §6.1), depth first from the peer's certificate.

use std::time::Duration;

use x509_cert::certificate::Version;

use super::anchors::Anchors;
use super::constraints::Constraints;
use super::parsed::Parsed;
use super::peer_answer::PeerAnswer;
use super::policy::Policies;
use crate::error::PathError;
use crate::limit::{Exhausted, Limit};
use crate::oid;
use crate::revocation::{Revocation, StatusSource};
use crate::rules::{AuthorityName, PathRules};
use crate::scheme::Scheme;
use crate::subject_name::SubjectName;
use crate::validity::ValidityPhase;

/// Certificates between the peer's and the trusted authority's. No sane path is longer.
const INTERMEDIATES_MAX: usize = 8;
/// Signatures that are checked for what the peer has sent.
const SIGNATURES_MAX: usize = 16;
/// Signatures that are checked for what the gateway has itself. The peer cannot use them up.
const OWN_SIGNATURES_MAX: usize = 64;
const STEPS_MAX: usize = 128;
const NAME_COMPARISONS_MAX: usize = 200_000;

/// The work that one message can cause, however many connections it could mean.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) signatures: Limit,
    /// For one search, and not for the message: the peer has no part in it.
    pub(super) own_signatures: Limit,
    /// Certificates that are tried as the issuer of another.
    pub(super) steps: Limit,
    pub(super) comparisons: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            signatures: Limit::new(SIGNATURES_MAX, "signatures to check"),
            own_signatures: Limit::new(OWN_SIGNATURES_MAX, "signatures to check"),
            steps: Limit::new(STEPS_MAX, "paths to try"),
            comparisons: Limit::new(NAME_COMPARISONS_MAX, "names to compare"),
        }
    }
}

/// A path is not valid.
pub(super) enum Failure {
    /// Another path may be.
    Path(PathError),
    /// No other path or connection can change it.
    Final(PathError),
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl From<Exhausted> for Failure {
    fn from(limit: Exhausted) -> Self {
        Self::Final(limit.into())
    }
}

pub(super) struct Search<'a> {
    pub(super) trusted: &'a Anchors,
    /// Certificates that the peer has sent beside its own.
    pub(super) sent: &'a [Parsed],
    pub(super) now: Duration,
    pub(super) limits: &'a mut Limits,
    pub(super) own_signatures: Limit,
    pub(super) rules: &'a PathRules,
    pub(super) revocation: &'a Revocation<'a>,
    pub(super) answers: &'a [PeerAnswer],
    /// The places to ask about the first path that is valid but for the status of its certificates.
    pub(super) sources: Option<Vec<StatusSource>>,
    /// The reason why the first path that was found is not valid.
    pub(super) failure: PathError,
}

impl<'a> Search<'a> {
    /// Looks for a valid path that begins with `path`, which has the peer's own certificate first. An error ends the whole
    /// search.
    pub(super) fn extend(&mut self, path: &mut Vec<&'a Parsed>) -> Result<bool, PathError> {
        let Some(&last) = path.last() else {
            return Ok(false);
        };
        for anchor in issuers(self.trusted.anchors.iter(), last) {
            match self.check_path(anchor, path) {
                Ok(sources) if sources.is_empty() => return Ok(true),
                Ok(sources) => {
                    self.sources.get_or_insert(sources);
                }
                Err(Failure::Path(failure)) => self.fail(failure),
                Err(Failure::Final(failure)) => return Err(failure),
            }
        }
        if path.len() > INTERMEDIATES_MAX {
            return Ok(false);
        }
        let known = self.trusted.intermediates.iter();
        for issuer in issuers(known.chain(self.sent), last) {
            let same =
                |other: &&Parsed| (&other.subject, &other.key) == (&issuer.subject, &issuer.key);
            if path.iter().any(same) || (issuer.sent && self.trusted.have(issuer)) {
                continue;
            }
            match self.check_issuer(issuer, last) {
                Ok(()) => {}
                Err(Failure::Path(failure)) => {
                    self.fail(failure);
                    continue;
                }
                Err(Failure::Final(failure)) => return Err(failure),
            }
            path.push(issuer);
            if self.extend(path)? {
                return Ok(true);
            }
            path.pop();
        }
        Ok(false)
    }

    /// Checks a path with its anchor. Returns the places to ask before it is accepted.
    fn check_path(
        &mut self,
        anchor: &'a Parsed,
        path: &[&'a Parsed],
    ) -> Result<Vec<StatusSource>, Failure> {
        self.validate(anchor, path)?;
        self.check_revocation(anchor, path)
    }

    /// Checks the peer's own certificate without a path.
    pub(super) fn check_alone(&mut self, own: &'a Parsed) -> Result<Vec<StatusSource>, Failure> {
        self.check_time(own)?;
        self.check_purpose(own)?;
        check_known(own)?;
        if !self.rules.signatures.allow_key(own.key.strength()) {
            return Err(invalid(own, "`auth` does not accept its key").into());
        }
        for issuer in issuers(self.trusted.all(), own) {
            match self.check_issuer(issuer, own) {
                Ok(()) => return self.check_revocation(issuer, &[own]),
                Err(Failure::Path(_)) => {}
                Err(limit) => return Err(limit),
            }
        }
        self.accept_unknown(own, "its issuer is not known".to_owned())?;
        Ok(Vec::new())
    }

    fn fail(&mut self, failure: PathError) {
        // That a certificate is revoked matters most.
        let is_revoked = matches!(failure, PathError::Revoked { .. });
        if is_revoked || self.failure == PathError::UnknownIssuer {
            self.failure = failure;
        }
    }

    /// Validates a path (RFC 5280 §6.1). The signatures within `path` were checked before.
    fn validate(&mut self, anchor: &Parsed, path: &[&Parsed]) -> Result<(), Failure> {
        let Some(first) = path.last() else {
            return Err(PathError::UnknownIssuer.into());
        };
        self.check_issuer(anchor, first)?;
        self.check_time(anchor)?;
        check_authority(anchor, anchor.version != Version::V3)?;
        let mut path_length_max = path_length(anchor).unwrap_or(path.len());
        let mut constraints = Vec::new();
        add_constraints(anchor, &mut constraints)?;
        let mut policies = Policies::new(path.len());
        for (left, certificate) in path.iter().enumerate().rev() {
            let last = left == 0;
            let self_issued = certificate.is_self_issued();
            self.check_time(certificate)?;
            self.check_purpose(certificate)?;
            for authority in constraints.iter().filter(|_| last || !self_issued) {
                if !authority.allow(certificate, &mut self.limits.comparisons)? {
                    return Err(invalid(certificate, "a name constraint forbids its names").into());
                }
            }
            let no_policy = || {
                invalid(
                    certificate,
                    "an authority demands a policy, and none is valid",
                )
            };
            if !policies.certificate(&certificate.extensions, last, self_issued) {
                return Err(no_policy().into());
            }
            check_known(certificate)?;
            if last {
                let wrapped = policies.wrap_up(&certificate.extensions);
                wrapped.then_some(()).ok_or_else(no_policy)?;
                return Ok(self.check_rules(anchor, path, &policies)?);
            }
            if !policies.prepare(&certificate.extensions, self_issued) {
                return Err(invalid(certificate, "it maps anyPolicy").into());
            }
            add_constraints(certificate, &mut constraints)?;
            check_authority(certificate, false)?;
            if !self_issued {
                path_length_max = path_length_max.checked_sub(1).ok_or_else(|| {
                    invalid(certificate, "the path is longer than an authority allows")
                })?;
            }
            if let Some(limit) = path_length(certificate) {
                path_length_max = path_length_max.min(limit);
            }
        }
        Err(PathError::UnknownIssuer.into())
    }

    /// Checks that a certificate with the name of the issuer is the issuer.
    pub(super) fn check_issuer(
        &mut self,
        issuer: &Parsed,
        subject: &Parsed,
    ) -> Result<(), Failure> {
        self.limits.steps.take(1)?;
        let limit = match issuer.sent || subject.sent {
            true => &mut self.limits.signatures,
            false => &mut self.own_signatures,
        };
        let verified = subject.signed.verify_within(&issuer.key, limit)?;
        Ok(verified.map_err(|why| invalid(subject, why))?)
    }

    /// Checks the extended key usage.
    pub(super) fn check_purpose(&self, certificate: &Parsed) -> Result<(), PathError> {
        let purposes = certificate.extensions.purposes.as_deref();
        let accepted = self.rules.purposes.accept(purposes);
        accepted.then_some(()).ok_or(PathError::ExtendedKeyUsage)
    }

    /// Checks what the connection demands of a valid path.
    fn check_rules(
        &self,
        anchor: &Parsed,
        path: &[&Parsed],
        policies: &Policies,
    ) -> Result<(), PathError> {
        let rules = self.rules;
        let weak = |one: &&&Parsed| {
            let scheme = Scheme::from_algorithm(&one.signed.algorithm);
            !rules.signatures.allow_scheme(scheme)
        };
        if let Some(weak) = path.iter().find(weak) {
            return Err(invalid(weak, "`auth` does not accept its signature"));
        }
        let mut keys = path.iter().chain([&anchor]);
        if let Some(weak) = keys.find(|one| !rules.signatures.allow_key(one.key.strength())) {
            return Err(invalid(weak, "`auth` does not accept its key"));
        }
        let Some((own, authorities)) = path.split_first() else {
            return Err(PathError::UnknownIssuer);
        };
        if let Some(policy) = rules
            .policies
            .iter()
            .find(|policy| !policies.has(&policy.0))
        {
            let policy = oid::dotted(&policy.0);
            return Err(invalid(
                own,
                &format!("its path does not have the policy {policy}"),
            ));
        }
        if !self
            .trusted
            .name_one_of(path.iter().copied().chain([anchor]))
        {
            return Err(invalid(own, "no authority of its path is one of `cacerts`"));
        }
        if let Some(AuthorityName { name, text }) = &rules.authority {
            let mut all = authorities.iter().chain([&anchor]);
            let named = |name: &SubjectName<'_>| all.any(|one| one.has_name(name));
            if !name.as_ref().is_some_and(named) {
                return Err(invalid(own, &format!("no authority of its path is {text}")));
            }
        }
        Ok(())
    }

    pub(super) fn check_time(&self, certificate: &Parsed) -> Result<(), PathError> {
        let validity = certificate.validity;
        let subject = || certificate.subject.to_string();
        match validity.phase(self.now) {
            ValidityPhase::Within(_) => Ok(()),
            ValidityPhase::NotYet(until) => Err(PathError::NotYetValid {
                subject: subject(),
                validity,
                until,
            }),
            ValidityPhase::Ended(since) => Err(PathError::Expired {
                subject: subject(),
                validity,
                since,
            }),
        }
    }
}

/// Returns the certificates that can be the issuer of `subject`, the likeliest first.
fn issuers<'p>(
    all: impl Iterator<Item = &'p Parsed>,
    subject: &Parsed,
) -> impl Iterator<Item = &'p Parsed> {
    let mut found: Vec<&Parsed> = all.filter(|one| one.subject == subject.issuer).collect();
    found.sort_by_key(|issuer| subject.rank_of_issuer(issuer));
    found.into_iter()
}

/// Checks that the certificate may issue others (RFC 5280 §6.1.4 (k) and (n)). `old`: it may have a version without
/// extensions.
fn check_authority(authority: &Parsed, old: bool) -> Result<(), PathError> {
    let extensions = &authority.extensions;
    check_known(authority)?;
    if !is_authority(authority) && !old {
        return Err(invalid(authority, "it is no certification authority's"));
    }
    match &extensions.key_usage {
        Some(usage) if !usage.key_cert_sign() => Err(invalid(
            authority,
            "its key usage does not allow it to sign certificates",
        )),
        _ => Ok(()),
    }
}

pub(super) fn is_authority(certificate: &Parsed) -> bool {
    let basic = certificate.extensions.basic_constraints.as_ref();
    basic.is_some_and(|basic| basic.ca)
}

/// No unknown extension is critical (RFC 5280 §6.1.4 (o) and §6.1.5 (f)).
pub(super) fn check_known(certificate: &Parsed) -> Result<(), PathError> {
    match &certificate.extensions.unknown_critical {
        Some(id) => {
            let id = oid::dotted(id);
            Err(invalid(
                certificate,
                &format!("extension {id} is critical and not known"),
            ))
        }
        None => Ok(()),
    }
}

fn path_length(authority: &Parsed) -> Option<usize> {
    let basic = authority.extensions.basic_constraints.as_ref()?;
    basic.path_len_constraint.map(usize::from)
}

fn add_constraints(authority: &Parsed, all: &mut Vec<Constraints>) -> Result<(), PathError> {
    let own = Constraints::of(authority)
        .ok_or_else(|| invalid(authority, "its name constraints are not supported"))?;
    if !own.is_empty() {
        all.push(own);
    }
    Ok(())
}

pub(super) fn invalid(certificate: &Parsed, why: &str) -> PathError {
    PathError::Invalid(format!("\"{}\": {why}", certificate.subject))
}
