//! Certification paths (RFC 5280 §6.1): from the peer's certificate to one of the trusted authorities.
//!
//! rustls-webpki ignores a trusted authority's validity, path length and key usage, and an intermediate's key usage
//! and policies. It cannot compare distinguished names with constraints. So only its signature algorithms are used.
//!
//! A trusted authority's own certificate is checked as that of an intermediate is. Revocation comes last, so that only
//! certificates with a valid path make us check the signatures of CRLs.

mod constraints;
mod parsed;
mod policy;
mod presented;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rustls_pki_types::UnixTime;
use x509_cert::certificate::Version;

use self::constraints::Constraints;
use self::parsed::Parsed;
use self::policy::Policies;
use super::date::rfc3339;
use super::error::PeerAuthError;
use super::oid;
use super::revocation::{self, Revocation, RevocationPolicy, Revoked, Status, Subject};
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

    /// Looks for a valid path that keeps the rules.
    pub(super) fn verify(
        &self,
        chain: &mut Chain,
        now: UnixTime,
        rules: &CertificateRules,
        revocation: &Revocation<'_>,
    ) -> Result<(), PeerAuthError> {
        let Chain {
            end_entity,
            intermediates,
            budget,
        } = chain;
        if !self.issued_any(end_entity, intermediates, budget)? {
            return Err(PeerAuthError::UnknownIssuer);
        }
        let mut search = Search {
            anchors: &self.0,
            intermediates,
            now: Duration::from_secs(now.as_secs()),
            budget,
            rules,
            revocation,
            failure: PeerAuthError::UnknownIssuer,
        };
        match search.extend(&mut vec![end_entity]) {
            true => Ok(()),
            false => Err(search.failure),
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

/// The certificates of a peer, its own first. They are parsed once. The work of all checks on them has one bound.
pub(super) struct Chain {
    end_entity: Parsed,
    intermediates: Vec<Parsed>,
    budget: Budget,
}

struct Budget {
    signatures: usize,
    comparisons: usize,
}

impl Chain {
    /// An error says what is malformed in the first certificate. Malformed intermediates are ignored.
    pub(super) fn new(end_entity: &[u8], intermediates: &[&[u8]]) -> Result<Self, String> {
        let parsed = |der: &&[u8]| Parsed::from_der(der).ok();
        Ok(Self {
            end_entity: Parsed::from_der(end_entity)?,
            intermediates: intermediates.iter().filter_map(parsed).collect(),
            budget: Budget {
                signatures: SIGNATURES_MAX,
                comparisons: NAME_COMPARISONS_MAX,
            },
        })
    }
}

struct Search<'a> {
    anchors: &'a [Parsed],
    intermediates: &'a [Parsed],
    now: Duration,
    budget: &'a mut Budget,
    rules: &'a CertificateRules,
    revocation: &'a Revocation<'a>,
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
                Ok(()) => return true,
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

    /// Checks that no certificate of a valid path is revoked (RFC 5280 §6.1.3 (a) (3)).
    fn check_revocation(
        &mut self,
        anchor: &'a Parsed,
        path: &[&'a Parsed],
    ) -> Result<(), PeerAuthError> {
        let above: Vec<&Parsed> = path.iter().copied().skip(1).chain([anchor]).collect();
        // A certificate that is known to be revoked matters more than one of unknown status.
        let mut unknown = Ok(());
        for (index, (&certificate, &issuer)) in path.iter().zip(&above).enumerate() {
            let signers = self.signers(issuer, above.get(index + 1).copied());
            match self.status(certificate, &signers) {
                Status::Good => {}
                Status::Revoked(entry) => return Err(revoked(certificate, entry)),
                Status::Unknown(why) => {
                    unknown = unknown.and(self.accept_unknown(certificate, why))
                }
            }
        }
        // An authority can be trusted below another one. The list of that one counts, if it is trusted too.
        let is_issuer = |other: &&Parsed| other.subject == anchor.issuer;
        let issuers: Vec<_> = self.anchors.iter().filter(is_issuer).collect();
        match self.status(anchor, &issuers) {
            Status::Revoked(entry) if !anchor.is_self_issued() => Err(revoked(anchor, entry)),
            _ => unknown,
        }
    }

    /// Returns the authorities that can sign CRLs for `issuer`: itself, and others with its name (RFC 5280 §6.3.3 (f)).
    /// The others are trusted, or certified by it or by its own issuer `parent`.
    fn signers(&mut self, issuer: &'a Parsed, parent: Option<&'a Parsed>) -> Vec<&'a Parsed> {
        let has_name = |other: &&Parsed| other.subject == issuer.subject && other.key != issuer.key;
        let mut signers = vec![issuer];
        signers.extend(self.anchors.iter().filter(has_name));
        for candidate in self.intermediates.iter().filter(has_name) {
            let certifies = |search: &mut Self, above: &'a Parsed| {
                above.subject == candidate.issuer
                    && search.check_signature(above, candidate).is_ok()
                    && search.check_signer(candidate, above).is_ok()
            };
            let mut above = [Some(issuer), parent].into_iter().flatten();
            if above.any(|above| certifies(self, above)) {
                signers.push(candidate);
            }
        }
        signers
    }

    /// Checks a certificate that only signs CRLs.
    fn check_signer(&self, signer: &Parsed, issuer: &Parsed) -> Result<(), PeerAuthError> {
        self.check_time(signer)?;
        check_known(signer)?;
        match self.status(signer, &[issuer]) {
            Status::Good => Ok(()),
            Status::Revoked(entry) => Err(revoked(signer, entry)),
            Status::Unknown(why) => self.accept_unknown(signer, why),
        }
    }

    /// Returns the status of a certificate, by the CRLs of these authorities.
    fn status(&self, certificate: &Parsed, signers: &[&Parsed]) -> Status {
        let may_sign = |authority: &&&Parsed| {
            let usage = authority.extensions.key_usage.as_ref();
            usage.is_none_or(|usage| usage.crl_sign())
        };
        let keys: Vec<_> = (signers.iter().filter(may_sign))
            .map(|authority| &authority.key)
            .collect();
        let subject = Subject {
            serial: &certificate.serial,
            is_authority: is_authority(certificate),
            points: &certificate.extensions.points,
        };
        let crls = self.revocation.crls;
        crls.status(&subject, &certificate.issuer, &keys, self.now.as_secs())
    }

    /// Accepts a certificate of unknown status, if the policy allows it.
    fn accept_unknown(&self, certificate: &Parsed, why: String) -> Result<(), PeerAuthError> {
        let refused = match self.revocation.policy {
            RevocationPolicy::Strict => true,
            RevocationPolicy::IfUri => {
                certificate.extensions.points.has_uri()
                    || self.revocation.crls.expects(&certificate.issuer)
            }
            RevocationPolicy::Relaxed => false,
        };
        let subject = certificate.subject.to_string();
        match refused {
            true => Err(PeerAuthError::UnknownStatus { subject, why }),
            false => Ok(()),
        }
    }

    fn check_signature(&mut self, issuer: &Parsed, subject: &Parsed) -> Result<(), PeerAuthError> {
        let too_many = || PeerAuthError::Path("it takes too many signatures to check".to_owned());
        self.budget.signatures = self.budget.signatures.checked_sub(1).ok_or_else(too_many)?;
        let verified = subject.signed.verify(&issuer.key);
        verified.map_err(|why| invalid(subject, why))
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

fn revoked(certificate: &Parsed, entry: Revoked) -> PeerAuthError {
    PeerAuthError::Revoked {
        subject: certificate.subject.to_string(),
        serial: certificate.serial.to_string(),
        since: rfc3339(entry.since),
        reason: revocation::reason(entry.reason),
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
