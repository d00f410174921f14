//! Certification paths (RFC 5280 §6.1): from the peer's certificate to one of the trusted authorities.
//!
//! rustls-webpki ignores a trusted authority's validity, path length and key usage, and an intermediate's key usage
//! and policies. It cannot compare distinguished names with constraints. So only its signature algorithms are used.
//!
//! A trusted authority's own certificate is checked as that of an intermediate is. Revocation comes last, so that only
//! certificates with a valid path make us check the signatures of CRLs.

mod constraints;
mod own_status;
mod parsed;
mod policy;
mod presented;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rustls_pki_types::UnixTime;
use x509_cert::certificate::Version;

pub(super) use self::own_status::OwnStatus;

use self::constraints::Constraints;
use self::parsed::Parsed;
use self::policy::Policies;
use super::error::PeerAuthError;
use super::oid;
use super::revocation::{OcspAnswer, Revocation, StatusSource};
use super::rules::CertificateRules;
use super::scheme::Scheme;

/// Certificates between the peer's and the trusted authority's. No sane path is longer.
const INTERMEDIATES_MAX: usize = 8;
/// Bounds on the work that one peer can cause, however many connections it could mean.
const SIGNATURES_MAX: usize = 64;
const NAME_COMPARISONS_MAX: usize = 100_000;

/// The trusted authorities.
#[derive(Clone, Default)]
pub(super) struct Anchors(Vec<Parsed>);

impl Anchors {
    pub(super) fn new<'a>(certificates: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        certificates
            .map(Parsed::from_der)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Looks for a valid path that keeps the rules. If the status of its certificates is still to be had, returns the
    /// places to ask.
    pub(super) fn verify(
        &self,
        chain: &mut Chain,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<Vec<StatusSource>, PeerAuthError> {
        if !self.issued_any(&chain.end_entity, &chain.intermediates, &mut chain.budget)? {
            return Err(PeerAuthError::UnknownIssuer);
        }
        let (end_entity, mut search) = chain.search(&self.0, now, rules, revocation);
        match search.extend(&mut vec![end_entity]) {
            true => Ok(Vec::new()),
            false => search.sources.ok_or(search.failure),
        }
    }

    /// Says whether one of the certificates names one of these authorities as its issuer. Otherwise there is no path,
    /// and no signature needs to be checked.
    fn issued_any(
        &self,
        end_entity: &Parsed,
        intermediates: &[Parsed],
        budget: &mut Budget,
    ) -> Result<bool, PeerAuthError> {
        let cost = self.0.len() * (1 + intermediates.len());
        let left = budget.comparisons.checked_sub(cost);
        budget.comparisons = left
            .ok_or_else(|| PeerAuthError::Path("it takes too many names to compare".to_owned()))?;
        let mut all = std::iter::once(end_entity).chain(intermediates);
        Ok(all.any(|one| self.0.iter().any(|anchor| anchor.subject == one.issuer)))
    }
}

/// The certificates of a peer, its own first, and what it sends about their status. They are parsed once. The work of all checks on them has one bound.
pub(super) struct Chain {
    end_entity: Parsed,
    intermediates: Vec<Parsed>,
    answers: Vec<OcspAnswer>,
    budget: Budget,
}

struct Budget {
    signatures: usize,
    comparisons: usize,
}

impl Chain {
    /// An error says what is malformed in the first certificate. Malformed intermediates are ignored.
    pub(super) fn new(
        end_entity: &[u8],
        intermediates: &[&[u8]],
        answers: Vec<OcspAnswer>,
    ) -> Result<Self, String> {
        let parsed = |der: &&[u8]| Parsed::from_der(der).ok();
        Ok(Self {
            end_entity: Parsed::from_der(end_entity)?,
            intermediates: intermediates.iter().filter_map(parsed).collect(),
            answers,
            budget: Budget {
                signatures: SIGNATURES_MAX,
                comparisons: NAME_COMPARISONS_MAX,
            },
        })
    }

    fn search<'a>(
        &'a mut self,
        anchors: &'a [Parsed],
        now: UnixTime,
        rules: &'a CertificateRules,
        revocation: &'a Revocation<'a>,
    ) -> (&'a Parsed, Search<'a>) {
        let search = Search {
            anchors,
            intermediates: &self.intermediates,
            now: Duration::from_secs(now.as_secs()),
            budget: &mut self.budget,
            rules,
            revocation,
            answers: &self.answers,
            sources: None,
            failure: PeerAuthError::UnknownIssuer,
        };
        (&self.end_entity, search)
    }

    /// Checks what holds for the peer's own certificate without a path. Nobody known can say whether it is revoked.
    pub(super) fn verify_alone(
        &mut self,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<(), PeerAuthError> {
        let (own, search) = self.search(&[], now, rules, revocation);
        search.check_time(own)?;
        search.check_purpose(own)?;
        check_known(own)?;
        if !rules.signatures.allow_key(own.key.strength()) {
            return Err(invalid(own, "`auth` does not accept its key"));
        }
        search.accept_unknown(own, "its issuer is not known".to_owned())
    }
}

/// Says whether the key of the first certificate has made the signature of the other one.
pub(super) fn has_signed(issuer: &[u8], subject: &[u8]) -> bool {
    let parsed = Parsed::from_der(issuer).and_then(|one| Ok((one, Parsed::from_der(subject)?)));
    parsed.is_ok_and(|(issuer, subject)| subject.signed.verify(&issuer.key).is_ok())
}

struct Search<'a> {
    anchors: &'a [Parsed],
    intermediates: &'a [Parsed],
    now: Duration,
    budget: &'a mut Budget,
    rules: &'a CertificateRules,
    revocation: &'a Revocation<'a>,
    /// Answers of OCSP responders that the peer has sent.
    answers: &'a [OcspAnswer],
    /// The places to ask about the first path that is valid but for the status of its certificates.
    sources: Option<Vec<StatusSource>>,
    /// The reason why the first path that was found is not valid.
    failure: PeerAuthError,
}

impl<'a> Search<'a> {
    /// Looks for a valid path that begins with `path`, which has the peer's own certificate first.
    fn extend(&mut self, path: &mut Vec<&'a Parsed>) -> bool {
        let Some(&last) = path.last() else {
            return false;
        };
        let anchors = self.anchors;
        for anchor in anchors
            .iter()
            .filter(|anchor| anchor.subject == last.issuer)
        {
            let valid = self.validate(anchor, path);
            match valid.and_then(|()| self.check_revocation(anchor, path)) {
                Ok(sources) if sources.is_empty() => return true,
                Ok(sources) => {
                    self.sources.get_or_insert(sources);
                }
                Err(failure) => self.fail(failure),
            }
        }
        if path.len() > INTERMEDIATES_MAX {
            return false;
        }
        let intermediates = self.intermediates;
        for issuer in intermediates
            .iter()
            .filter(|issuer| issuer.subject == last.issuer)
        {
            let same =
                |other: &&Parsed| (&other.subject, &other.key) == (&issuer.subject, &issuer.key);
            if path.iter().any(same) {
                continue;
            }
            if let Err(failure) = self.check_signature(issuer, last) {
                self.fail(failure);
                continue;
            }
            path.push(issuer);
            if self.extend(path) {
                return true;
            }
            path.pop();
        }
        false
    }

    fn fail(&mut self, failure: PeerAuthError) {
        // That a certificate is revoked matters most.
        let is_revoked = matches!(failure, PeerAuthError::Revoked { .. });
        if is_revoked || self.failure == PeerAuthError::UnknownIssuer {
            self.failure = failure;
        }
    }

    /// Validates a path (RFC 5280 §6.1). The signatures within `path` were checked before.
    fn validate(&mut self, anchor: &Parsed, path: &[&Parsed]) -> Result<(), PeerAuthError> {
        let Some(first) = path.last() else {
            return Err(PeerAuthError::UnknownIssuer);
        };
        self.check_signature(anchor, first)?;
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
            let budget = &mut self.budget.comparisons;
            if (last || !self_issued)
                && !constraints
                    .iter()
                    .all(|authority| authority.allow(certificate, budget))
            {
                return Err(invalid(certificate, "a name constraint forbids its names"));
            }
            let no_policy = || {
                invalid(
                    certificate,
                    "an authority demands a policy, and none is valid",
                )
            };
            if !policies.certificate(&certificate.extensions, last, self_issued) {
                return Err(no_policy());
            }
            check_known(certificate)?;
            if last {
                let wrapped = policies.wrap_up(&certificate.extensions);
                wrapped.then_some(()).ok_or_else(no_policy)?;
                return self.check_rules(anchor, path, &policies);
            }
            if !policies.prepare(&certificate.extensions, self_issued) {
                return Err(invalid(certificate, "it maps anyPolicy"));
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
        Err(PeerAuthError::UnknownIssuer)
    }

    fn check_signature(&mut self, issuer: &Parsed, subject: &Parsed) -> Result<(), PeerAuthError> {
        self.count_signature()?;
        let verified = subject.signed.verify(&issuer.key);
        verified.map_err(|why| invalid(subject, why))
    }

    fn count_signature(&mut self) -> Result<(), PeerAuthError> {
        let too_many = || PeerAuthError::Path("it takes too many signatures to check".to_owned());
        self.budget.signatures = self.budget.signatures.checked_sub(1).ok_or_else(too_many)?;
        Ok(())
    }

    /// Checks the extended key usage.
    fn check_purpose(&self, certificate: &Parsed) -> Result<(), PeerAuthError> {
        let purposes = certificate.extensions.purposes.as_deref();
        let accepted = self.rules.purposes.accept(purposes);
        accepted
            .then_some(())
            .ok_or(PeerAuthError::ExtendedKeyUsage)
    }

    /// Checks what the connection demands of a valid path.
    fn check_rules(
        &self,
        anchor: &Parsed,
        path: &[&Parsed],
        policies: &Policies,
    ) -> Result<(), PeerAuthError> {
        let rules = self.rules;
        let weak = |one: &&&Parsed| {
            let scheme = Scheme::from_algorithm(&one.signed.algorithm);
            !rules.signatures.allow_in_path(scheme)
        };
        if let Some(weak) = path.iter().find(weak) {
            return Err(invalid(weak, "`auth` does not accept its signature"));
        }
        let mut keys = path.iter().chain([&anchor]);
        if let Some(weak) = keys.find(|one| !rules.signatures.allow_key(one.key.strength())) {
            return Err(invalid(weak, "`auth` does not accept its key"));
        }
        let Some((own, authorities)) = path.split_first() else {
            return Err(PeerAuthError::UnknownIssuer);
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
        if let Some(name) = &rules.authority
            && !authorities
                .iter()
                .chain([&anchor])
                .any(|one| one.has_name(name))
        {
            return Err(invalid(own, &format!("no authority of its path is {name}")));
        }
        Ok(())
    }

    fn check_time(&self, certificate: &Parsed) -> Result<(), PeerAuthError> {
        if self.now < certificate.not_before {
            return Err(PeerAuthError::NotYetValid {
                subject: certificate.subject.to_string(),
                not_before: certificate.not_before.as_secs(),
            });
        }
        if self.now > certificate.not_after {
            return Err(PeerAuthError::Expired {
                subject: certificate.subject.to_string(),
                not_after: certificate.not_after.as_secs(),
            });
        }
        Ok(())
    }
}

/// Checks that the certificate may issue others (RFC 5280 §6.1.4 (k) and (n)). `old`: it may have a version without
/// extensions.
fn check_authority(authority: &Parsed, old: bool) -> Result<(), PeerAuthError> {
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

fn is_authority(certificate: &Parsed) -> bool {
    let basic = certificate.extensions.basic_constraints.as_ref();
    basic.is_some_and(|basic| basic.ca)
}

/// No unknown extension is critical (RFC 5280 §6.1.4 (o) and §6.1.5 (f)).
fn check_known(certificate: &Parsed) -> Result<(), PeerAuthError> {
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

fn add_constraints(authority: &Parsed, all: &mut Vec<Constraints>) -> Result<(), PeerAuthError> {
    let own = Constraints::of(authority)
        .ok_or_else(|| invalid(authority, "its name constraints are not supported"))?;
    if !own.is_empty() {
        all.push(own);
    }
    Ok(())
}

fn invalid(certificate: &Parsed, why: &str) -> PeerAuthError {
    PeerAuthError::Path(format!("\"{}\": {why}", certificate.subject))
}
