//! Certification paths (RFC 5280 §6.1): from the peer's certificate to one of the trusted authorities.
//!
//! rustls-webpki ignores a trusted authority's validity, path length and key usage, and an intermediate's key usage
//! and policies. It cannot compare distinguished names with constraints. So only its signature algorithms are used.
//!
//! A trusted authority's own certificate is checked as that of an intermediate is. Revocation comes last, so that only
//! certificates with a valid path make us check the signatures of CRLs.

mod anchors;
mod constraints;
mod own_status;
mod parsed;
mod peer_answer;
mod policy;
mod presented;
mod search;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rustls_pki_types::UnixTime;

pub(crate) use self::anchors::Anchors;
pub use self::own_status::OwnStatus;

use self::parsed::Parsed;
use self::peer_answer::PeerAnswer;
use self::search::{Failure, Limits, Search};
use crate::error::PathError;
use crate::revocation::{OcspAnswer, Revocation, StatusSource};
use crate::rules::PathRules;

impl Anchors {
    /// Looks for a valid path that keeps the rules. If the status of its certificates is still to be had, returns the
    /// places to ask.
    pub(crate) fn verify(
        &self,
        chain: &mut Chain,
        now: UnixTime,
        rules: &PathRules,
        revocation: &Revocation<'_>,
    ) -> Result<Vec<StatusSource>, PathError> {
        if !self.may_have_issued(chain)? {
            return Err(PathError::UnknownIssuer);
        }
        let (end_entity, mut search) = chain.search(self, now, rules, revocation);
        let found = search.extend(&mut vec![end_entity]);
        let (sources, failure) = (search.sources, search.failure);
        match chain.note(found)? {
            true => Ok(Vec::new()),
            false => sources.ok_or(failure),
        }
    }

    /// Says whether one of the certificates names one of these authorities as its issuer. Otherwise there is no path,
    /// and no signature needs to be checked.
    pub(crate) fn may_have_issued(&self, chain: &mut Chain) -> Result<bool, PathError> {
        chain.check_verdict()?;
        let cost = self.all().count() * (1 + chain.sent.len());
        let taken = chain.limits.comparisons.take(cost);
        chain.note(taken.map_err(PathError::from))?;
        let mut all = std::iter::once(&chain.end_entity).chain(&chain.sent);
        Ok(all.any(|one| self.all().any(|known| known.subject == one.issuer)))
    }
}

/// The certificates of a peer, its own first, and what it sends about their status. They are parsed once. The work of all
/// checks on them has one bound.
pub struct Chain {
    end_entity: Parsed,
    /// The other certificates that the peer has sent.
    sent: Vec<Parsed>,
    answers: Vec<PeerAnswer>,
    limits: Limits,
    /// The peer is refused, whatever else it could prove: its certificate is revoked, or a limit ran out.
    verdict: Option<PathError>,
}

impl Chain {
    /// Fails if the first certificate is malformed. Malformed intermediates are ignored.
    pub fn new(
        end_entity: &[u8],
        intermediates: &[&[u8]],
        answers: Vec<OcspAnswer>,
    ) -> Result<Self, PathError> {
        let sent = |parsed: Parsed| Parsed {
            sent: true,
            ..parsed
        };
        let own = Parsed::from_der(end_entity).map_err(PathError::Malformed)?;
        let read = |der: &&[u8]| Parsed::from_der(der).ok();
        Ok(Self {
            end_entity: sent(own),
            sent: intermediates.iter().filter_map(read).map(sent).collect(),
            answers: answers.into_iter().map(PeerAnswer::new).collect(),
            limits: Limits::default(),
            verdict: None,
        })
    }

    /// Returns an error if the peer is refused whatever else it could prove.
    pub fn check_verdict(&self) -> Result<(), PathError> {
        self.verdict.clone().map_or(Ok(()), Err)
    }

    /// Keeps an error as the verdict.
    fn note<T>(&mut self, outcome: Result<T, PathError>) -> Result<T, PathError> {
        if let Err(error) = &outcome {
            self.verdict = Some(error.clone());
        }
        outcome
    }

    fn search<'a>(
        &'a mut self,
        trusted: &'a Anchors,
        now: UnixTime,
        rules: &'a PathRules,
        revocation: &'a Revocation<'a>,
    ) -> (&'a Parsed, Search<'a>) {
        let search = Search {
            trusted,
            sent: &self.sent,
            now: Duration::from_secs(now.as_secs()),
            own_signatures: self.limits.own_signatures,
            limits: &mut self.limits,
            rules,
            revocation,
            answers: &self.answers,
            sources: None,
            failure: PathError::UnknownIssuer,
        };
        (&self.end_entity, search)
    }

    /// Checks what holds for the peer's own certificate without a path. An authority that the configuration has can say
    /// whether it is revoked, also if no path leads from that authority to an anchor. Returns the places to ask.
    pub(crate) fn verify_alone(
        &mut self,
        trusted: &Anchors,
        now: UnixTime,
        rules: &PathRules,
        revocation: &Revocation<'_>,
    ) -> Result<Vec<StatusSource>, PathError> {
        self.check_verdict()?;
        let (own, mut search) = self.search(trusted, now, rules, revocation);
        let checked = search.check_alone(own);
        match checked {
            Ok(sources) => Ok(sources),
            Err(Failure::Path(error)) => Err(error),
            Err(Failure::Final(error)) => self.note(Err(error)),
        }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chain({}, {})", self.end_entity.subject, self.sent.len())
    }
}

/// Says whether the key of the first certificate has made the signature of the other one.
pub(crate) fn has_signed(issuer: &[u8], subject: &[u8]) -> bool {
    let parsed = Parsed::from_der(issuer).and_then(|one| Ok((one, Parsed::from_der(subject)?)));
    parsed.is_ok_and(|(issuer, subject)| subject.signed.verify(&issuer.key).is_ok())
}
