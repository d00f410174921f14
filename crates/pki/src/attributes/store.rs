//! The attribute authorities that are trusted, and the check of a peer's attribute certificates (RFC 5755 §5).

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls_pki_types::UnixTime;
use x509_cert::ext::pkix::SubjectKeyIdentifier;

use super::certificate::AttributeCertificate;
use super::error::{AttributeError, MembershipError};
use super::group::GroupName;
use crate::certificate::Certificate;
use crate::der::{DerError, decode, extension};
use crate::error::{FileError, PathError};
use crate::path::{Anchors, Chain};
use crate::revocation::{Revocation, RevocationPolicy, StatusSource};
use crate::rules::{KeyPurposes, PathRules};
use crate::signed::SubjectKey;
use crate::subject_name::SubjectName;

/// Attribute certificates of a message that are looked at.
const SENT_MAX: usize = 8;
/// Attribute certificates of the administrator that are looked at for one peer.
const KNOWN_MAX: usize = 8;
/// Authorities of one name that are tried. One that changes its key has two.
const SAME_NAME_MAX: usize = 8;

/// An authority whose attribute certificates count.
#[derive(Clone)]
pub struct AttributeAuthority {
    certificate: Certificate,
    key: SubjectKey,
    /// The identifiers that attribute certificates may have for the key.
    key_identifiers: Vec<Vec<u8>>,
}

impl AttributeAuthority {
    /// Checks that the certificate may be that of an attribute authority (RFC 5755 §4.5).
    pub fn new(certificate: Certificate) -> Result<Self, FileError> {
        if certificate.is_authority() {
            return Err(FileError::AttributesOfAuthority);
        }
        if !certificate.may_sign() {
            return Err(FileError::KeyUsage);
        }
        let malformed = |error: DerError| FileError::Certificate(error.to_string());
        let parsed: x509_cert::Certificate = decode(certificate.der()).map_err(malformed)?;
        let tbs = &parsed.tbs_certificate;
        let key = SubjectKey::new(&tbs.subject_public_key_info).map_err(malformed)?;
        let own: Option<SubjectKeyIdentifier> = extension(tbs).map_err(malformed)?;
        // Some programs always write the identifier that RFC 5280 §4.2.1.2 (1) suggests.
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &key.bits);
        let own = own.map(|identifier| identifier.0.as_bytes().to_vec());
        let key_identifiers = own.into_iter().chain([hash.as_ref().to_vec()]).collect();
        Ok(Self {
            certificate,
            key,
            key_identifiers,
        })
    }

    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Says whether the attribute certificate names this authority as its issuer.
    fn is_named_by(&self, attributes: &AttributeCertificate) -> bool {
        self.certificate.subject() == attributes.issuer()
            && attributes.authority_key().is_none_or(|identifier| {
                let mut own = self.key_identifiers.iter();
                own.any(|own| own == identifier)
            })
    }
}

/// The outcome for a peer that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memberships {
    /// Those of the groups that the peer is in.
    Proved(Vec<GroupName>),
    /// The status of an issuer is still to be had. These are the places to ask.
    Needs(Vec<StatusSource>),
}

/// The attribute authorities, and the attribute certificates that need not be sent.
#[derive(Clone, Default)]
pub struct AttributeStore {
    authorities: Vec<AttributeAuthority>,
    /// The certification authorities that may have issued the certificates of the attribute authorities.
    anchors: Anchors,
    known: Vec<Arc<AttributeCertificate>>,
}

impl AttributeStore {
    pub fn new(
        authorities: Vec<AttributeAuthority>,
        anchors: &[Certificate],
        known: Vec<Arc<AttributeCertificate>>,
    ) -> Result<Self, FileError> {
        let anchors = Anchors::new(anchors.iter().map(Certificate::der));
        Ok(Self {
            authorities,
            anchors: anchors.map_err(FileError::Certificate)?,
            known,
        })
    }

    /// Looks for those of the groups that the holder of the certificate is in. An error says why there is none.
    pub fn memberships(
        &self,
        peer: &mut PeerAttributes,
        holder: &Certificate,
        wanted: &[GroupName],
        terms: &AttributeTerms<'_>,
    ) -> Result<Memberships, Box<MembershipError>> {
        let judged = peer
            .judged
            .take()
            .filter(|last| last.holder == holder.der());
        let judged = judged.unwrap_or_else(|| peer.judge(self, holder, terms.now));
        let mut error = MembershipError {
            wanted: wanted.to_vec(),
            proved: Vec::new(),
            refused: judged.refused.clone(),
        };
        let mut needed = None;
        for (attributes, issuer) in &judged.usable {
            if !attributes.is_for(terms.is_ours) {
                error.refused.push(AttributeError::OtherTarget);
                continue;
            }
            let groups = attributes.groups();
            match self.check_issuer(&mut peer.paths, *issuer, terms) {
                Ok(sources) if sources.is_empty() => error.proved.extend(groups.iter().cloned()),
                Ok(sources) => {
                    if wanted.iter().any(|group| groups.contains(group)) {
                        needed.get_or_insert(sources);
                    }
                }
                Err(why) => error.refused.push(AttributeError::Issuer(Box::new(why))),
            }
        }
        peer.judged = Some(judged);
        let is_proved = |group: &&GroupName| error.proved.contains(group);
        let proved: Vec<GroupName> = wanted.iter().filter(is_proved).cloned().collect();
        match (proved.is_empty(), needed) {
            (false, _) => Ok(Memberships::Proved(proved)),
            (true, Some(needed)) => Ok(Memberships::Needs(needed)),
            (true, None) => Err(Box::new(error)),
        }
    }

    fn check_issuer(
        &self,
        paths: &mut Vec<IssuerPath>,
        issuer: usize,
        terms: &AttributeTerms<'_>,
    ) -> Result<Vec<StatusSource>, PathError> {
        let policy = terms.revocation.policy;
        let mut known = paths.iter();
        if let Some(known) = known.find(|one| (one.issuer, one.policy) == (issuer, policy)) {
            return known.outcome.clone();
        }
        let authority = self.authorities.get(issuer);
        let authority = authority.ok_or(PathError::UnknownIssuer)?;
        let outcome = self.check_path(authority, terms.now, &terms.revocation);
        paths.push(IssuerPath {
            issuer,
            policy,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// Returns the authority that has signed the attribute certificate, by its place.
    fn issuer_of(&self, attributes: &AttributeCertificate) -> Result<usize, AttributeError> {
        let named = self.authorities.iter().enumerate();
        let named = named.filter(|(_, authority)| authority.is_named_by(attributes));
        let mut failure = AttributeError::UnknownIssuer(attributes.issuer().to_string());
        for (index, authority) in named.take(SAME_NAME_MAX) {
            match attributes.check_signature(&authority.key) {
                Ok(()) => return Ok(index),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    /// Checks the path of an authority, if the issuer of its certificate is known. Otherwise the administrator vouches for
    /// the certificate, and nobody can revoke it. Returns the places to ask.
    fn check_path(
        &self,
        authority: &AttributeAuthority,
        now: UnixTime,
        revocation: &Revocation<'_>,
    ) -> Result<Vec<StatusSource>, PathError> {
        let mut chain = Chain::new(authority.certificate.der(), &[], Vec::new())?;
        let rules = PathRules {
            purposes: KeyPurposes::Any,
            ..PathRules::default()
        };
        let vouched = Revocation {
            policy: RevocationPolicy::Relaxed,
            ..*revocation
        };
        let has_issuer =
            !authority.certificate.is_self_issued() && self.anchors.may_have_issued(&mut chain)?;
        match has_issuer {
            false => chain.verify_alone(&Anchors::default(), now, &rules, &vouched),
            true => match self.anchors.verify(&mut chain, now, &rules, revocation) {
                Err(PathError::UnknownIssuer) => {
                    chain.verify_alone(&self.anchors, now, &rules, revocation)
                }
                verified => verified,
            },
        }
    }
}

impl PartialEq for AttributeStore {
    /// Certification authorities are not compared: connections name them.
    fn eq(&self, other: &Self) -> bool {
        let authorities = |one: &Self| -> Vec<Vec<u8>> {
            let authorities = one.authorities.iter();
            authorities
                .map(|one| one.certificate.der().to_vec())
                .collect()
        };
        let known = |one: &Self| -> Vec<Vec<u8>> {
            let known = one.known.iter();
            known.map(|one| one.der().to_vec()).collect()
        };
        authorities(self) == authorities(other) && known(self) == known(other)
    }
}

impl Eq for AttributeStore {}

impl std::fmt::Debug for AttributeAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttributeAuthority({})", self.certificate.subject())
    }
}

impl std::fmt::Debug for PeerAttributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerAttributes({} sent)", self.sent.len())
    }
}

impl std::fmt::Debug for AttributeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (authorities, known) = (self.authorities.len(), self.known.len());
        write!(
            f,
            "AttributeStore({authorities} authorities, {known} known)"
        )
    }
}

/// The terms under which attribute certificates are checked for one connection.
pub struct AttributeTerms<'a> {
    pub now: UnixTime,
    pub revocation: Revocation<'a>,
    /// Says whether a name is ours. Some attribute certificates are for certain targets only.
    pub is_ours: &'a dyn Fn(&SubjectName<'_>) -> bool,
}

impl std::fmt::Debug for AttributeTerms<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttributeTerms")
            .field("now", &self.now)
            .field("revocation", &self.revocation)
            .finish_non_exhaustive()
    }
}

/// The attribute certificates of one message of a peer. They can be checked for several connections. Each signature is
/// checked once.
#[derive(Default)]
pub struct PeerAttributes {
    /// In DER.
    sent: Vec<Vec<u8>>,
    /// There are others, which are not looked at.
    more: bool,
    judged: Option<Judged>,
    paths: Vec<IssuerPath>,
}

/// The outcome for the path of an authority under a policy.
struct IssuerPath {
    /// The place of the authority.
    issuer: usize,
    policy: RevocationPolicy,
    outcome: Result<Vec<StatusSource>, PathError>,
}

/// The outcome of what is the same for all connections.
struct Judged {
    /// The holder's certificate in DER.
    holder: Vec<u8>,
    /// With the place of the issuer.
    usable: Vec<(Arc<AttributeCertificate>, usize)>,
    refused: Vec<AttributeError>,
}

impl PeerAttributes {
    /// `sent` are in DER.
    pub fn new<'a>(mut sent: impl Iterator<Item = &'a [u8]>) -> Self {
        let kept = sent.by_ref().take(SENT_MAX);
        Self {
            sent: kept.map(<[u8]>::to_vec).collect(),
            more: sent.next().is_some(),
            ..Self::default()
        }
    }

    fn judge(&self, store: &AttributeStore, holder: &Certificate, now: UnixTime) -> Judged {
        let sent = self.sent.iter().map(|der| {
            let attributes = AttributeCertificate::from_der(der)?;
            match attributes.is_of(holder) {
                true => Ok(Arc::new(attributes)),
                false => Err(AttributeError::OtherHolder),
            }
        });
        // Files of former certificates do not hide a valid one.
        let known = store.known.iter().filter(|known| known.is_of(holder));
        let (valid, stale): (Vec<_>, Vec<_>) = known.partition(|one| one.check_time(now).is_ok());
        let known = valid.into_iter().chain(stale).take(KNOWN_MAX);
        let known = known.cloned().map(Ok);
        let mut judged = Judged {
            holder: holder.der().to_vec(),
            usable: Vec::new(),
            refused: Vec::new(),
        };
        for attributes in sent.chain(known) {
            let checked = attributes.and_then(|attributes| {
                attributes.check(now)?;
                let issuer = store.issuer_of(&attributes)?;
                Ok((attributes, issuer))
            });
            match checked {
                Ok(usable) => judged.usable.push(usable),
                Err(why) => judged.refused.push(why),
            }
        }
        if self.more {
            judged.refused.push(AttributeError::TooMany);
        }
        judged
    }
}
