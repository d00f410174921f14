//! The status of the certificates of a path: revoked, good or unknown (RFC 5280 §6.3, RFC 6960).

use std::cmp::Reverse;

use x509_cert::der::asn1::ObjectIdentifier;

use super::parsed::Parsed;
use super::{Search, check_known, is_authority};
use crate::auth::date::rfc3339;
use crate::auth::error::PeerAuthError;
use crate::auth::revocation::{
    self, CertificateName, OcspAnswer, OcspStatus, RevocationPolicy, Revoked, Status, StatusSource,
    Subject,
};

/// The extended key usage of OCSP responders (RFC 6960 §4.2.2.2).
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");

impl<'a> Search<'a> {
    /// Checks that no certificate of a valid path is revoked (RFC 5280 §6.1.3 (a) (3)). Returns the places to ask before
    /// the path is accepted.
    pub(super) fn check_revocation(
        &mut self,
        anchor: &'a Parsed,
        path: &[&'a Parsed],
    ) -> Result<Vec<StatusSource>, PeerAuthError> {
        let above: Vec<&Parsed> = path.iter().copied().skip(1).chain([anchor]).collect();
        // A certificate that is known to be revoked matters more than one of unknown status.
        let mut unknown = Ok(());
        let mut sources = Vec::new();
        for (index, (&certificate, &issuer)) in path.iter().zip(&above).enumerate() {
            let signers = self.signers(issuer, above.get(index + 1).copied());
            match self.status(certificate, issuer, &signers) {
                Status::Good => {}
                Status::Revoked(entry) => return Err(revoked(certificate, entry)),
                Status::Unknown(why) => {
                    let more = self.sources(certificate, issuer);
                    if more.is_empty() {
                        unknown = unknown.and(self.accept_unknown(certificate, why));
                    }
                    sources.extend(more);
                }
            }
        }
        // An authority can be trusted below another one. The list of that one counts, if it is trusted too.
        let is_issuer = |other: &&Parsed| other.subject == anchor.issuer;
        let issuers: Vec<_> = self.anchors.iter().filter(is_issuer).collect();
        match self.status_by_crls(anchor, &issuers) {
            Status::Revoked(entry) if !anchor.is_self_issued() => Err(revoked(anchor, entry)),
            _ => unknown.map(|()| sources),
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
        match self.status_by_crls(signer, &[issuer]) {
            Status::Good => Ok(()),
            Status::Revoked(entry) => Err(revoked(signer, entry)),
            Status::Unknown(why) => self.accept_unknown(signer, why),
        }
    }

    /// Returns the status of a certificate, by the CRLs of the authorities `signers` and by answers of OCSP responders.
    fn status(&mut self, certificate: &Parsed, issuer: &Parsed, signers: &[&Parsed]) -> Status {
        let by_crls = self.status_by_crls(certificate, signers);
        if matches!(by_crls, Status::Revoked(_)) {
            return by_crls;
        }
        match self.status_by_responder(certificate, issuer) {
            OcspStatus::Revoked(entry) => Status::Revoked(entry),
            OcspStatus::Good => Status::Good,
            OcspStatus::Nothing => by_crls,
        }
    }

    /// Returns what the newest answer about a certificate says that comes from a responder of its issuer.
    fn status_by_responder(&mut self, certificate: &Parsed, issuer: &Parsed) -> OcspStatus {
        let (now, store) = (self.now.as_secs(), self.revocation.store);
        let name = name_of(certificate, issuer);
        let all = store.answers().chain(self.answers);
        let mut about: Vec<_> = all
            .filter_map(|answer| Some((answer.about(&name, now)?, answer)))
            .collect();
        // If two answers are as new, the one that says less good counts.
        about.sort_by_key(|((made, status), _)| (Reverse(*made), status.rank()));
        let mut about = about.into_iter();
        let newest = about.find(|(_, answer)| self.is_from_responder(answer, issuer));
        newest.map_or(OcspStatus::Nothing, |((_, status), _)| status)
    }

    /// Says whether the signer of an answer may speak for `issuer` (RFC 6960 §4.2.2.2): it is the issuer, the issuer has
    /// certified it for this, or the configuration trusts it.
    fn is_from_responder(&mut self, answer: &OcspAnswer, issuer: &Parsed) -> bool {
        let trusted = self.revocation.store.trusted_responders();
        let keys = std::iter::once(&issuer.key).chain(trusted);
        for key in keys {
            if self.count_signature().is_ok() && answer.is_signed_by(key) {
                return true;
            }
        }
        let responders = answer.certificates.iter();
        let mut responders = responders.filter_map(|der| Parsed::from_der(der).ok());
        responders.any(|responder| {
            self.is_responder(&responder, issuer)
                && self.count_signature().is_ok()
                && answer.is_signed_by(&responder.key)
        })
    }

    fn is_responder(&mut self, responder: &Parsed, issuer: &Parsed) -> bool {
        let extensions = &responder.extensions;
        let purposes = extensions.purposes.as_deref().unwrap_or_default();
        let usage = extensions.key_usage.as_ref();
        responder.issuer == issuer.subject
            && purposes.contains(&OCSP_SIGNING)
            && usage.is_none_or(|usage| usage.digital_signature())
            && self.check_time(responder).is_ok()
            && check_known(responder).is_ok()
            && self.check_signature(issuer, responder).is_ok()
            && !matches!(
                self.status_by_crls(responder, &[issuer]),
                Status::Revoked(_)
            )
    }

    /// Returns the places to ask about a certificate of unknown status.
    fn sources(&self, certificate: &Parsed, issuer: &Parsed) -> Vec<StatusSource> {
        let store = self.revocation.store;
        let points = &certificate.extensions.points;
        store.sources(&name_of(certificate, issuer), points, self.now.as_secs())
    }

    /// Returns the status of a certificate, by the CRLs of these authorities.
    fn status_by_crls(&self, certificate: &Parsed, signers: &[&Parsed]) -> Status {
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
        let store = self.revocation.store;
        store.status_by_crls(&subject, &certificate.issuer, &keys, self.now.as_secs())
    }

    /// Accepts a certificate of unknown status, if the policy allows it.
    pub(super) fn accept_unknown(
        &self,
        certificate: &Parsed,
        why: String,
    ) -> Result<(), PeerAuthError> {
        let refused = match self.revocation.policy {
            RevocationPolicy::Strict => true,
            RevocationPolicy::IfUri => {
                certificate.extensions.points.has_uri()
                    || self.revocation.store.expects(&certificate.issuer)
            }
            RevocationPolicy::Relaxed => self.revocation.store.has_forgotten(),
        };
        let subject = certificate.subject.to_string();
        match refused {
            true => Err(PeerAuthError::UnknownStatus { subject, why }),
            false => Ok(()),
        }
    }
}

pub(super) fn name_of<'a>(certificate: &'a Parsed, issuer: &'a Parsed) -> CertificateName<'a> {
    CertificateName {
        issuer: &certificate.issuer,
        issuer_key: &issuer.key,
        serial: &certificate.serial,
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
