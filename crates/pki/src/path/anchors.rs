//! The certificates that the administrator trusts: those at which a path may end, and authorities between.
//!
//! Where a file lies makes no trust anchor. An authority that another one has certified is only a part of paths: its
//! issuer can revoke it, and limits what it certifies.

use super::parsed::Parsed;
use crate::name::DistinguishedName;
use crate::signed::Signed;

#[derive(Clone, Default)]
pub(crate) struct Anchors {
    /// A path ends at one of these.
    pub(super) anchors: Vec<Parsed>,
    /// Authorities that need not be sent.
    pub(super) intermediates: Vec<Parsed>,
    /// A path has one of these. `None` stands for any.
    named: Option<Vec<Signed>>,
}

fn parse<'a>(certificates: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Parsed>, String> {
    certificates.map(Parsed::from_der).collect()
}

impl Anchors {
    /// Self-signed certificates are anchors, and the others are not.
    pub(crate) fn new<'a>(certificates: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let all = parse(certificates)?.into_iter();
        let (anchors, intermediates) = all.partition(Parsed::is_self_signed);
        Ok(Self {
            anchors,
            intermediates,
            named: None,
        })
    }

    /// A path must have one of the certificates `named`. It goes on to the issuer of that one if the issuer is among `named`
    /// and `known`, and ends there otherwise.
    pub(crate) fn named<'a>(
        named: impl Iterator<Item = &'a [u8]>,
        known: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, String> {
        let (named, known) = (parse(named)?, parse(known)?);
        let all = || named.iter().chain(&known);
        let has_issuer = |one: &Parsed| {
            let mut others = all().filter(|other| other.signed != one.signed);
            others.any(|other| one.is_issued_by(other))
        };
        let mut anchors: Vec<Parsed> = named
            .iter()
            .filter(|one| one.is_self_signed() || !has_issuer(one))
            .cloned()
            .collect();
        anchors.extend(known.iter().filter(|one| one.is_self_signed()).cloned());
        let is_anchor = |one: &Parsed| anchors.iter().any(|anchor| anchor.signed == one.signed);
        let intermediates = all().filter(|one| !is_anchor(one)).cloned().collect();
        Ok(Self {
            intermediates,
            named: Some(named.into_iter().map(|one| one.signed).collect()),
            anchors,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.anchors.len()
    }

    /// All certificates, those at which a path may end first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Parsed> {
        self.anchors.iter().chain(&self.intermediates)
    }

    /// Says whether the configuration has this certificate, or a root that it could only stand in for.
    pub(super) fn have(&self, other: &Parsed) -> bool {
        let is_root = |anchor: &Parsed| {
            other.is_self_issued() && (&anchor.subject, &anchor.key) == (&other.subject, &other.key)
        };
        self.anchors.iter().any(is_root) || self.all().any(|one| one.signed == other.signed)
    }

    /// Says whether the configuration names a certificate of the path, or names none.
    pub(super) fn name_one_of<'a>(&self, mut path: impl Iterator<Item = &'a Parsed>) -> bool {
        let named = self.named.as_ref();
        named.is_none_or(|named| path.any(|one| named.contains(&one.signed)))
    }

    /// Returns subject and issuer of those from which no way leads to an anchor.
    pub(crate) fn rootless(&self) -> Vec<(&DistinguishedName, &DistinguishedName)> {
        let mut rooted: Vec<&Parsed> = self.anchors.iter().collect();
        let mut others: Vec<&Parsed> = self.intermediates.iter().collect();
        loop {
            let has_root = |one: &&Parsed| rooted.iter().any(|above| one.is_issued_by(above));
            let (more, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(has_root);
            if more.is_empty() {
                return rest.iter().map(|one| (&one.subject, &one.issuer)).collect();
            }
            rooted.extend(more);
            others = rest;
        }
    }
}
