//! The status of the certificates of a path: revoked, good or unknown (RFC 5280 §6.3, RFC 6960).

use std::cmp::Reverse;

use x509_cert::der::asn1::ObjectIdentifier;

use super::parsed::Parsed;
use super::peer_answer::responders;
use super::search::{Failure, Search, check_known, is_authority};
use crate::date::rfc3339;
use crate::error::PathError;
use crate::limit::{Exhausted, Limit};
use crate::revocation::{
    self, CertificateName, OcspAnswer, OcspStatus, RevocationPolicy, Revoked, Status, StatusSource,
    Subject,
};

/// The extended key usage of OCSP responders (RFC 6960 §4.2.2.2).
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");

/// The content of an answer about one certificate.
struct Statement<'a> {
    /// Seconds since 1970.
    made: u64,
    status: OcspStatus,
    answer: &'a OcspAnswer,
}

impl Statement<'_> {
    /// The newest is the least. Of two that are as new, it is the one that says less good.
    fn order(&self) -> (Reverse<u64>, u8) {
        (Reverse(self.made), self.status.rank())
    }
}

impl<'a> Search<'a> {
    /// Checks that no certificate of a valid path is revoked (RFC 5280 §6.1.3 (a) (3)). Returns the places to ask before
    /// the path is accepted.
    pub(super) fn check_revocation(
        &mut self,
        anchor: &'a Parsed,
        path: &[&'a Parsed],
    ) -> Result<Vec<StatusSource>, Failure> {
        let above: Vec<&Parsed> = path.iter().copied().skip(1).chain([anchor]).collect();
        // A certificate that is known to be revoked matters more than one of unknown status.
        let mut unknown = Ok(());
        let mut sources = Vec::new();
        for (index, (&certificate, &issuer)) in path.iter().zip(&above).enumerate() {
            let signers = self.signers(issuer, above.get(index + 1).copied())?;
            match self.status(certificate, issuer, &signers)? {
                Status::Good => {}
                // No other path takes back what the issuer of the peer's own certificate has said.
                Status::Revoked(entry) if index == 0 => {
                    return Err(Failure::Final(revoked(certificate, entry)));
                }
                Status::Revoked(entry) => return Err(revoked(certificate, entry).into()),
                Status::Unknown(why) => {
                    let more = self.sources(certificate, issuer);
                    if more.is_empty() {
                        unknown = unknown.and(self.accept_unknown(certificate, why));
                    }
                    sources.extend(more);
                }
            }
        }
        unknown?;
        Ok(sources)
    }

    /// Returns the authorities that can sign CRLs for `issuer`: itself, and others with its name that it or its own issuer
    /// `parent` has certified (RFC 5280 §6.3.3 (f)). Another anchor with its name is another authority.
    fn signers(
        &mut self,
        issuer: &'a Parsed,
        parent: Option<&'a Parsed>,
    ) -> Result<Vec<&'a Parsed>, Exhausted> {
        let mut signers = vec![issuer];
        let store = self.revocation.store;
        if !store.has_crl_by_another_key(&issuer.subject, &issuer.key) {
            return Ok(signers);
        }
        let all = self.trusted.intermediates.iter().chain(self.sent);
        let candidates =
            all.filter(|other| other.subject == issuer.subject && other.key != issuer.key);
        for candidate in candidates {
            for above in [Some(issuer), parent].into_iter().flatten() {
                if self.certifies_signer(above, candidate)? {
                    signers.push(candidate);
                    break;
                }
            }
        }
        Ok(signers)
    }

    fn certifies_signer(&mut self, issuer: &Parsed, signer: &Parsed) -> Result<bool, Exhausted> {
        if issuer.subject != signer.issuer {
            return Ok(false);
        }
        let limit = self.signatures(signer.sent);
        let verified = signer.signed.verify_within(&issuer.key, limit)?;
        Ok(verified.is_ok() && self.check_signer(signer, issuer).is_ok())
    }

    /// Checks a certificate that only signs CRLs.
    fn check_signer(&self, signer: &Parsed, issuer: &Parsed) -> Result<(), PathError> {
        self.check_time(signer)?;
        check_known(signer)?;
        match self.status_by_crls(signer, &[issuer]) {
            Status::Good => Ok(()),
            Status::Revoked(entry) => Err(revoked(signer, entry)),
            Status::Unknown(why) => self.accept_unknown(signer, why),
        }
    }

    /// Returns the status of a certificate, by the CRLs of the authorities `signers` and by answers of OCSP responders.
    fn status(
        &mut self,
        certificate: &Parsed,
        issuer: &Parsed,
        signers: &[&Parsed],
    ) -> Result<Status, Exhausted> {
        let by_crls = self.status_by_crls(certificate, signers);
        if matches!(by_crls, Status::Revoked(_)) {
            return Ok(by_crls);
        }
        Ok(match self.status_by_responders(certificate, issuer)? {
            OcspStatus::Revoked(entry) => Status::Revoked(entry),
            OcspStatus::Good => Status::Good,
            OcspStatus::Nothing => by_crls,
        })
    }

    /// Returns what the newest answer about a certificate says that comes from a responder of its issuer. The peer's
    /// answers come last, and take nothing back.
    fn status_by_responders(
        &mut self,
        certificate: &Parsed,
        issuer: &Parsed,
    ) -> Result<OcspStatus, Exhausted> {
        let (now, revocation) = (self.now.as_secs(), self.revocation);
        let name = name_of(certificate, issuer);
        let statement = |answer: &'a OcspAnswer| {
            let (made, status) = answer.about(&name, now)?;
            Some(Statement {
                made,
                status,
                answer,
            })
        };
        let mut own: Vec<_> = revocation.store.answers().filter_map(statement).collect();
        own.sort_by_key(Statement::order);
        let mut newest = None;
        for one in own {
            let responders = responders(one.answer);
            if self.is_from_responder(one.answer, &responders, issuer, false)? {
                newest = Some(one);
                break;
            }
        }
        if let Some(Statement {
            status: status @ OcspStatus::Revoked(_),
            ..
        }) = newest
        {
            return Ok(status);
        }
        let answers = self.answers;
        let mut sent = Vec::new();
        for (index, stapled) in answers.iter().enumerate() {
            let Some(mut one) = statement(&stapled.answer) else {
                continue;
            };
            let Some(status) = one.status.sent_by_peer(revocation.asked, one.made, now) else {
                continue;
            };
            one.status = status;
            let is_newer = |known: &Statement<'_>| one.order() < known.order();
            if newest.as_ref().is_none_or(is_newer) {
                sent.push((one, index));
            }
        }
        sent.sort_by_key(|(one, _)| one.order());
        for (one, index) in sent {
            let Some(stapled) = answers.get(index) else {
                continue;
            };
            if self.is_from_responder(one.answer, stapled.responders(), issuer, true)? {
                if one.status != OcspStatus::Nothing {
                    newest = Some(one);
                }
                break;
            }
        }
        Ok(newest.map_or(OcspStatus::Nothing, |one| one.status))
    }

    /// Says whether the signer of an answer may speak for `issuer` (RFC 6960 §4.2.2.2): it is the issuer, the issuer has
    /// certified it for this, or the configuration trusts it. `responders` are the certificates in the answer, which the
    /// peer has sent or the gateway has.
    fn is_from_responder(
        &mut self,
        answer: &OcspAnswer,
        responders: &[Parsed],
        issuer: &Parsed,
        sent: bool,
    ) -> Result<bool, Exhausted> {
        let trusted = self.revocation.store.trusted_responders().iter();
        let trusted = trusted.map(|one| (&one.name, &one.key));
        let known = std::iter::once((&issuer.subject, &issuer.key)).chain(trusted);
        for (_, key) in known.filter(|(name, key)| answer.names_signer(name, key)) {
            if answer
                .signed
                .verify_within(key, self.signatures(sent))?
                .is_ok()
            {
                return Ok(true);
            }
        }
        for responder in responders {
            if answer.names_signer(&responder.subject, &responder.key)
                && self.may_respond(responder, issuer)
                && (responder.signed)
                    .verify_within(&issuer.key, self.signatures(sent))?
                    .is_ok()
                && (answer.signed)
                    .verify_within(&responder.key, self.signatures(sent))?
                    .is_ok()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The limit for what the peer has sent, or for what the gateway has.
    fn signatures(&mut self, sent: bool) -> &mut Limit {
        match sent {
            true => &mut self.limits.signatures,
            false => &mut self.own_signatures,
        }
    }

    /// Checks the certificate of a responder, but for its signature.
    fn may_respond(&self, responder: &Parsed, issuer: &Parsed) -> bool {
        let extensions = &responder.extensions;
        let purposes = extensions.purposes.as_deref().unwrap_or_default();
        let usage = extensions.key_usage.as_ref();
        responder.issuer == issuer.subject
            && purposes.contains(&OCSP_SIGNING)
            && usage.is_none_or(|usage| usage.digital_signature())
            && self.check_time(responder).is_ok()
            && check_known(responder).is_ok()
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

    /// Accepts a certificate of unknown status, if the policy allows it. No policy does once a revocation was forgotten.
    pub(super) fn accept_unknown(
        &self,
        certificate: &Parsed,
        why: String,
    ) -> Result<(), PathError> {
        let store = self.revocation.store;
        let refused = store.has_forgotten()
            || match self.revocation.policy {
                RevocationPolicy::Strict => true,
                RevocationPolicy::IfUri => {
                    certificate.extensions.points.has_uri() || store.expects(&certificate.issuer)
                }
                RevocationPolicy::Relaxed => false,
            };
        let subject = certificate.subject.to_string();
        match refused {
            true => Err(PathError::UnknownStatus { subject, why }),
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

fn revoked(certificate: &Parsed, entry: Revoked) -> PathError {
    PathError::Revoked {
        subject: certificate.subject.to_string(),
        serial: certificate.serial.to_string(),
        since: rfc3339(entry.since),
        reason: revocation::reason(entry.reason),
    }
}
