//! Revocation (RFC 5280 §6.3): is a certificate of a path revoked, good, or of unknown status?
//!
//! The CRLs of [`RevocationStore`] come from the administrator, or from the places that certificates name. Their issuer is
//! the issuer of the certificates. Indirect CRLs of other issuers are not used. Answers of OCSP responders count beside
//! CRLs: a certificate is revoked if one of the two says so, and good if one of the two says that.
//!
//! A listed certificate is revoked, also if the CRL that lists it has expired: its issuer has said so. That a
//! certificate is good follows only from current CRLs for all reasons.

mod cache;
mod crl;
mod ocsp;
mod points;
mod serial;
mod store;

use std::fmt::Write;

use x509_cert::ext::pkix::crl::CrlReason;

use crate::date::rfc3339;
use crate::name::DistinguishedName;
use crate::signed::SubjectKey;
use points::Reasons;

pub use cache::{RevocationCache, StatusKind};
pub use crl::{Crl, CrlError};
pub(crate) use crl::{Revoked, Subject};
pub(crate) use ocsp::{CertificateName, OcspStatus};
pub use ocsp::{OcspAnswer, OcspError};
pub(crate) use points::Points;
pub(crate) use serial::Serial;
pub use store::{AuthoritySources, RevocationStore, StatusSource};

/// The certificates of a path that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RevocationPolicy {
    /// All that are not known to be good.
    Strict,
    /// Those that are revoked, and those whose status is unknown although a CRL or a responder exists for them.
    IfUri,
    /// Those that are revoked.
    #[default]
    Relaxed,
}

/// The policy, and the information, by which the certificates of a path are judged.
#[derive(Clone, Copy, Debug)]
pub struct Revocation<'a> {
    pub policy: RevocationPolicy,
    pub store: &'a RevocationStore,
    /// The peer was asked for the answers of OCSP responders. Answers that it sends unasked can only revoke.
    pub asked: bool,
}

/// The status of a certificate.
pub(crate) enum Status {
    Good,
    Revoked(Revoked),
    /// The text says why.
    Unknown(String),
}

impl RevocationStore {
    /// Returns the status of a certificate of `issuer`, by the CRLs that one of the keys `signers` has signed.
    pub(crate) fn status_by_crls(
        &self,
        subject: &Subject<'_>,
        issuer: &DistinguishedName,
        signers: &[&SubjectKey],
        now: u64,
    ) -> Status {
        let own: Vec<&Crl> = (self.crls().iter().map(AsRef::as_ref))
            .filter(|crl| crl.issuer() == issuer)
            .collect();
        let signed = |crl: &&Crl| signers.iter().any(|key| crl.is_signed_by(key));
        let usable: Vec<&Crl> = (own.iter().copied())
            .filter(|crl| crl.unusable().is_none())
            .filter(signed)
            .collect();
        let mut covered = Reasons::NONE;
        let mut lacks_delta = false;
        for (index, first) in usable.iter().enumerate() {
            // Each scope is looked at once.
            if usable[..index].iter().any(|crl| crl.has_scope_of(first)) {
                continue;
            }
            let scope: Vec<&Crl> = (usable.iter().copied())
                .filter(|crl| crl.has_scope_of(first))
                .collect();
            match status_by(&scope, subject, now) {
                ScopeStatus::Listed(revoked) => return Status::Revoked(revoked),
                ScopeStatus::NotListed(reasons) => {
                    match self.lacks_delta(&scope, subject.points, now) {
                        true => lacks_delta = true,
                        false => covered = covered.or(reasons),
                    }
                }
            }
        }
        match covered == Reasons::ALL {
            true => Status::Good,
            false if lacks_delta => {
                let what = "is to be completed by a delta CRL, and no current one is there";
                Status::Unknown(format!("the CRL of \"{issuer}\" {what}"))
            }
            false => Status::Unknown(why_unknown(issuer, &own, &usable, now)),
        }
    }
}

/// The status of a certificate by CRLs of one scope.
enum ScopeStatus {
    Listed(Revoked),
    /// The certificate is good, for these reasons.
    NotListed(Reasons),
}

/// Looks at the newest complete CRL of a scope and at the newest delta (RFC 5280 §6.3.3 (i) to (k)). A CRL that is made
/// later than now is not the newest, but what it lists counts.
fn status_by(scope: &[&Crl], subject: &Subject<'_>, now: u64) -> ScopeStatus {
    let listed = |crls: &[&Crl]| {
        let entries = crls.iter().filter_map(|crl| crl.entry(subject.serial));
        let listed = entries.filter(|entry| entry.reason != CrlReason::RemoveFromCRL);
        listed.max_by_key(Revoked::weight)
    };
    let (early, made): (Vec<&Crl>, Vec<&Crl>) =
        (scope.iter().copied()).partition(|crl| crl.this_update() > now);
    let (mut deltas, complete): (Vec<&Crl>, Vec<&Crl>) =
        made.into_iter().partition(|crl| crl.is_delta());
    let complete = newest(complete);
    deltas.retain(|delta| complete.iter().all(|crl| delta.edition() >= crl.edition()));
    // A delta whose base is missing says what it lists, and nothing else. So does an older one, as far as the newer does
    // not reach back.
    let is_replaced = |delta: &Crl| {
        let mut others = deltas.iter();
        others.any(|other| other.edition() > delta.edition() && other.has_changes_of(delta))
    };
    let telling: Vec<&Crl> = (deltas.iter().copied())
        .filter(|delta| !is_replaced(delta))
        .collect();
    if let Some(revoked) = listed(&early).or(listed(&telling)) {
        return ScopeStatus::Listed(revoked);
    }
    let mut deltas = newest(deltas);
    deltas.retain(|delta| delta.is_current(now) && complete.iter().all(|crl| delta.continues(crl)));
    let removed = deltas
        .iter()
        .any(|delta| delta.entry(subject.serial).is_some());
    // A removal ends a hold. After any other revocation it says that the certificate has expired (RFC 5280 §5.3.1).
    let lifts = |revoked: &Revoked| removed && revoked.reason == CrlReason::CertificateHold;
    if let Some(revoked) = listed(&complete).filter(|revoked| !lifts(revoked)) {
        return ScopeStatus::Listed(revoked);
    }
    let current = (complete.iter()).find(|crl| crl.is_current(now) || !deltas.is_empty());
    ScopeStatus::NotListed(current.map_or(Reasons::NONE, |crl| crl.reasons_of(subject)))
}

/// Returns the newest CRL, and others that are as new.
fn newest(mut crls: Vec<&Crl>) -> Vec<&Crl> {
    let newest = crls.iter().map(|crl| crl.edition()).max();
    crls.retain(|crl| Some(crl.edition()) == newest);
    crls
}

fn why_unknown(issuer: &DistinguishedName, own: &[&Crl], usable: &[&Crl], now: u64) -> String {
    let complete = || usable.iter().filter(|crl| !crl.is_delta());
    if own.is_empty() {
        return format!("there is no CRL of \"{issuer}\"");
    }
    if let Some(why) = own.iter().find_map(|crl| crl.unusable()) {
        return format!("the CRL of \"{issuer}\" cannot be used: {why}");
    }
    if usable.is_empty() {
        return format!(
            "no CRL of \"{issuer}\" has a signature of an authority that may sign CRLs"
        );
    }
    if complete().next().is_none() {
        return format!("there is only a delta CRL of \"{issuer}\"");
    }
    if complete().all(|crl| !crl.is_current(now)) {
        let last = complete().max_by_key(|crl| crl.edition());
        let mut text = format!("the CRL of \"{issuer}\" is not current");
        if let Some(next) = last.and_then(|crl| crl.next_update()) {
            // Writing to a String does not fail.
            let _ = write!(text, " (next update {})", rfc3339(next));
        }
        return text;
    }
    format!("no current CRL of \"{issuer}\" is about it, for all reasons")
}

/// The name of a reason, as RFC 5280 §5.3.1 has it.
pub(crate) fn reason(reason: CrlReason) -> &'static str {
    match reason {
        CrlReason::Unspecified => "unspecified",
        CrlReason::KeyCompromise => "keyCompromise",
        CrlReason::CaCompromise => "cACompromise",
        CrlReason::AffiliationChanged => "affiliationChanged",
        CrlReason::Superseded => "superseded",
        CrlReason::CessationOfOperation => "cessationOfOperation",
        CrlReason::CertificateHold => "certificateHold",
        CrlReason::RemoveFromCRL => "removeFromCRL",
        CrlReason::PrivilegeWithdrawn => "privilegeWithdrawn",
        CrlReason::AaCompromise => "aACompromise",
    }
}
