//! Distribution points: which CRLs are for a certificate, and where information about its revocation is to be had.

use std::collections::HashSet;

use x509_cert::der::Encode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::ext::pkix::AuthorityInfoAccessSyntax;
use x509_cert::ext::pkix::crl::dp::DistributionPoint;
use x509_cert::ext::pkix::crl::{CrlDistributionPoints, FreshestCrl};
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::name::RdnSequence;

use crate::der::decode;
use crate::name::DistinguishedName;

/// OCSP as an access method (RFC 5280 §4.2.2.1).
const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");

/// Distribution points of one certificate. No sane certificate has more.
const POINTS_MAX: usize = 64;

/// The reasons for which a certificate can be revoked, as bits of ReasonFlags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Reasons(u16);

impl Reasons {
    pub(super) const NONE: Self = Self(0);
    /// Bits 1 to 8 of ReasonFlags (RFC 5280 §4.2.1.13).
    pub(super) const ALL: Self = Self(0x1fe);

    pub(super) fn new(flags: Option<u16>) -> Self {
        flags.map_or(Self::ALL, |flags| Self(flags & Self::ALL.0))
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One name of a distribution point.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum PointName {
    Directory(DistinguishedName),
    /// A name of another kind, in DER.
    Other(Vec<u8>),
}

impl PointName {
    pub(super) fn is_directory(&self, name: &DistinguishedName) -> bool {
        matches!(self, Self::Directory(own) if own == name)
    }
}

/// The information about its own revocation that a certificate points to.
#[derive(Clone, Default)]
pub(crate) struct Points {
    crls: Vec<DistributionPoint>,
    crl_uris: Vec<String>,
    /// Where delta CRLs are (RFC 5280 §4.2.1.15).
    freshest_uris: Vec<String>,
    responder_uris: Vec<String>,
    /// An extension with places cannot be read.
    unreadable: bool,
}

impl Points {
    /// Takes an extension of the certificate. Returns false if the extension is another one, or cannot be read.
    pub(crate) fn read(&mut self, id: ObjectIdentifier, value: &[u8]) -> bool {
        let read = match id {
            CrlDistributionPoints::OID => self.read_crls(value),
            FreshestCrl::OID => freshest_uris(value).map(|uris| self.freshest_uris = uris),
            AuthorityInfoAccessSyntax::OID => self.read_responders(value),
            _ => return false,
        };
        self.unreadable |= read.is_none();
        read.is_some()
    }

    fn read_crls(&mut self, value: &[u8]) -> Option<()> {
        let CrlDistributionPoints(points) = decode(value).ok()?;
        if points.len() > POINTS_MAX {
            return None;
        }
        self.crl_uris = uris_of(&points);
        self.crls = points;
        Some(())
    }

    fn read_responders(&mut self, value: &[u8]) -> Option<()> {
        let AuthorityInfoAccessSyntax(list) = decode(value).ok()?;
        let ocsp = list.iter().filter(|access| access.access_method == OCSP);
        let uris = ocsp.filter_map(|access| uri(&access.access_location));
        self.responder_uris.extend(uris);
        Some(())
    }

    /// There is a URI of a CRL or of an OCSP responder, or what could have one cannot be read.
    pub(crate) fn has_uri(&self) -> bool {
        self.unreadable || !self.crl_uris.is_empty() || !self.responder_uris.is_empty()
    }

    pub(super) fn crl_uris(&self) -> &[String] {
        &self.crl_uris
    }

    pub(super) fn freshest_uris(&self) -> &[String] {
        &self.freshest_uris
    }

    pub(super) fn responder_uris(&self) -> &[String] {
        &self.responder_uris
    }

    /// Returns the reasons that a CRL with these names covers for a certificate of `issuer` (RFC 5280 §6.3.3 (b)). No
    /// names: the CRL is for all of its issuer's certificates.
    pub(super) fn reasons_of(
        &self,
        names: Option<&HashSet<PointName>>,
        issuer: &DistinguishedName,
    ) -> Reasons {
        let Some(names) = names else {
            return Reasons::ALL;
        };
        // A CRL that no point names counts as one at a point with the issuer's name (RFC 5280 §6.3.3).
        if names.contains(&PointName::Directory(issuer.clone())) {
            return Reasons::ALL;
        }
        let of_issuer = |point: &&DistributionPoint| {
            let names = point
                .crl_issuer
                .as_ref()
                .and_then(|names| point_names(names));
            point.crl_issuer.is_none()
                || names.is_some_and(|names| names.iter().any(|name| name.is_directory(issuer)))
        };
        self.crls
            .iter()
            .filter(of_issuer)
            .filter(|point| {
                let own = point.distribution_point.as_ref();
                let own = own.and_then(|name| names_of(name, issuer));
                own.is_some_and(|own| own.iter().any(|name| names.contains(name)))
            })
            .map(|point| Reasons::new(point.reasons.map(|reasons| reasons.bits())))
            .fold(Reasons::NONE, Reasons::or)
    }
}

/// Returns the URIs of a FreshestCRL extension. Returns `None` if it is malformed or has too many points.
pub(super) fn freshest_uris(value: &[u8]) -> Option<Vec<String>> {
    let FreshestCrl(points) = decode(value).ok()?;
    (points.len() <= POINTS_MAX).then(|| uris_of(&points))
}

fn uris_of(points: &[DistributionPoint]) -> Vec<String> {
    let full = |point: &DistributionPoint| match &point.distribution_point {
        Some(DistributionPointName::FullName(names)) => names.iter().filter_map(uri).collect(),
        _ => Vec::new(),
    };
    points.iter().flat_map(full).collect()
}

fn uri(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
        _ => None,
    }
}

/// Returns the names of a distribution point. Returns `None` if one of them is malformed.
pub(super) fn names_of(
    name: &DistributionPointName,
    issuer: &DistinguishedName,
) -> Option<Vec<PointName>> {
    match name {
        DistributionPointName::FullName(names) => point_names(names),
        DistributionPointName::NameRelativeToCRLIssuer(rdn) => {
            let mut whole: RdnSequence = decode(issuer.der()).ok()?;
            whole.0.push(rdn.clone());
            let name = DistinguishedName::from_rdns(&whole)?;
            Some(vec![PointName::Directory(name)])
        }
    }
}

pub(super) fn point_names(names: &[GeneralName]) -> Option<Vec<PointName>> {
    let point_name = |name: &GeneralName| match name {
        GeneralName::DirectoryName(name) => {
            DistinguishedName::from_rdns(name).map(PointName::Directory)
        }
        other => other.to_der().ok().map(PointName::Other),
    };
    names.iter().map(point_name).collect()
}
