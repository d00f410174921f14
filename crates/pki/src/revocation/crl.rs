//! Certificate revocation lists (RFC 5280 §5): reading them, and the search for a serial number.

use std::collections::HashSet;
use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{Tag, TagNumber, Tagged};
use x509_cert::ext::pkix::crl::dp::IssuingDistributionPoint;
use x509_cert::ext::pkix::crl::{BaseCrlNumber, CrlNumber, CrlReason, FreshestCrl};
use x509_cert::ext::pkix::name::GeneralNames;
use x509_cert::ext::{Extension, Extensions};
use x509_cert::time::Time;

use super::points::{PointName, Reasons, freshest_uris, names_of, point_names};
use super::serial::Serial;
use crate::date::rfc3339;
use crate::der::{DerError, DerReader, decode, value_of};
use crate::name::DistinguishedName;
use crate::oid;
use crate::signed::{Signed, SubjectKey};

/// x509-cert has the identifier of another extension for this one.
const ISSUING_DISTRIBUTION_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");
const INVALIDITY_DATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.24");
const CERTIFICATE_ISSUER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.29");

/// The tag of the CRL's own extensions.
const EXTENSIONS: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N0,
};

/// CRLs that one place may give at a time.
const FETCHED_MAX: usize = 8;

/// A CRL cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    #[error("no CRL in the file")]
    NoCrl,
    #[error("not a PEM file: {0}")]
    Pem(String),
    #[error("malformed CRL: {0}")]
    Malformed(String),
}

/// A parsed CRL. Its signature is checked when a path needs it.
pub struct Crl {
    signed: Arc<Signed>,
    list: Arc<List>,
    /// It proves no more that a certificate is good, as if its next update were over.
    ended: bool,
}

/// The signed content.
struct List {
    issuer: DistinguishedName,
    this_update: u64,
    next_update: Option<u64>,
    number: Option<Serial>,
    /// The CRL that this one is a delta to (RFC 5280 §5.2.4).
    base: Option<Serial>,
    scope: Scope,
    /// Where its delta CRLs are (RFC 5280 §5.2.6).
    freshest: Vec<String>,
    /// Sorted by serial number.
    entries: Vec<Entry>,
    /// The reason why nothing follows from this CRL.
    unusable: Option<String>,
}

/// The certificates and reasons that a CRL is about (RFC 5280 §5.2.5).
#[derive(Default)]
struct Scope {
    /// The extension in DER. A delta has the scope of its base (RFC 5280 §5.2.4).
    der: Option<Vec<u8>>,
    point: Option<HashSet<PointName>>,
    only_users: bool,
    only_authorities: bool,
    only_attributes: bool,
    reasons: Option<u16>,
}

#[derive(Clone, Copy)]
struct Entry {
    serial: Serial,
    revoked: Revoked,
}

/// The entry of a revoked certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revoked {
    /// Seconds since 1970.
    pub(crate) since: u64,
    pub(crate) reason: CrlReason,
}

impl Revoked {
    /// The greater, the harder it is to lift.
    pub(super) fn weight(&self) -> u8 {
        match self.reason {
            CrlReason::RemoveFromCRL => 0,
            CrlReason::CertificateHold => 1,
            _ => 2,
        }
    }
}

/// The properties of a certificate that decide whether a CRL is about it.
pub(crate) struct Subject<'a> {
    pub(crate) serial: &'a Serial,
    pub(crate) is_authority: bool,
    pub(crate) points: &'a super::points::Points,
}

impl Crl {
    /// All CRLs of a file in PEM, or the one CRL of a file in DER.
    pub fn from_file_content(content: &[u8]) -> Result<Vec<Self>, CrlError> {
        if content.first() == Some(&0x30) {
            return Ok(vec![Self::from_der(content)?]);
        }
        let mut crls = Vec::new();
        for der in CertificateRevocationListDer::pem_slice_iter(content) {
            let der = der.map_err(|error| CrlError::Pem(error.to_string()))?;
            crls.push(Self::from_der(&der)?);
        }
        match crls.is_empty() {
            true => Err(CrlError::NoCrl),
            false => Ok(crls),
        }
    }

    pub fn from_der(der: &[u8]) -> Result<Self, CrlError> {
        Self::parse(der).map_err(CrlError::Malformed)
    }

    fn parse(der: &[u8]) -> Result<Self, String> {
        let signed = Signed::from_der(der).map_err(|error| error.to_string())?;
        let list = List::read(&signed)?;
        Ok(Self {
            signed: Arc::new(signed),
            list: Arc::new(list),
            ended: false,
        })
    }

    /// Checks the form of what a server has given, in PEM or DER. Returns its CRLs in DER, one behind the other.
    pub fn reduce(content: &[u8]) -> Result<Vec<u8>, CrlError> {
        if content.first() == Some(&0x30) {
            Self::from_der(content)?;
            return Ok(content.to_vec());
        }
        let mut reduced = Vec::new();
        for der in CertificateRevocationListDer::pem_slice_iter(content).take(FETCHED_MAX) {
            let der = der.map_err(|error| CrlError::Pem(error.to_string()))?;
            Self::from_der(&der)?;
            reduced.extend_from_slice(&der);
        }
        match reduced.is_empty() {
            true => Err(CrlError::NoCrl),
            false => Ok(reduced),
        }
    }

    /// Reads what [`Self::reduce`] gives.
    pub fn from_reduced(content: &[u8]) -> Result<Vec<Self>, CrlError> {
        let text = |error: DerError| CrlError::Malformed(error.to_string());
        let mut reader = DerReader::new(content).map_err(text)?;
        let mut crls = Vec::new();
        while !reader.is_finished() && crls.len() < FETCHED_MAX {
            crls.push(Self::from_der(reader.whole().map_err(text)?)?);
        }
        Ok(crls)
    }

    pub fn issuer(&self) -> &DistinguishedName {
        &self.list.issuer
    }

    /// The time at which the CRL was made, as RFC 3339 has it.
    pub fn made(&self) -> String {
        rfc3339(self.list.this_update)
    }

    /// The time by which there is a newer CRL, as RFC 3339 has it.
    pub fn expires(&self) -> Option<String> {
        self.list.next_update.map(rfc3339)
    }

    /// Seconds since 1970.
    pub(super) fn this_update(&self) -> u64 {
        self.list.this_update
    }

    /// Seconds since 1970.
    pub(super) fn next_update(&self) -> Option<u64> {
        self.list.next_update
    }

    /// The bytes that it takes in memory.
    pub(super) fn size(&self) -> usize {
        self.signed.content.len() + self.list.entries.len() * size_of::<Entry>()
    }

    /// The same CRL, which proves no more that a certificate is good.
    pub(super) fn to_ended(&self) -> Self {
        Self {
            signed: self.signed.clone(),
            list: self.list.clone(),
            ended: true,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Where the delta CRLs to this one are.
    pub(super) fn freshest(&self) -> &[String] {
        &self.list.freshest
    }

    /// The CRL number in hexadecimal digits.
    pub fn number(&self) -> Option<String> {
        self.list.number.map(|number| number.to_string())
    }

    /// The CRL has only the changes since another one.
    pub fn is_delta(&self) -> bool {
        self.list.base.is_some()
    }

    /// The number of entries.
    pub fn entries(&self) -> usize {
        self.list.entries.len()
    }

    /// The reason why nothing follows from this CRL.
    pub fn unusable(&self) -> Option<&str> {
        self.list.unusable.as_deref()
    }

    pub(super) fn is_current(&self, now: u64) -> bool {
        let next_update = self.list.next_update.filter(|_| !self.ended);
        self.list.this_update <= now && next_update.is_some_and(|next| now <= next)
    }

    /// Checks the signature.
    pub(super) fn is_signed_by(&self, key: &SubjectKey) -> bool {
        self.signed.verify(key).is_ok()
    }

    /// An authority of a valid path has signed it.
    pub(super) fn is_verified(&self) -> bool {
        self.signed.has_verified()
    }

    /// Authorities of valid paths have its issuer's name, and none of them has signed it.
    pub(super) fn is_refuted(&self) -> bool {
        self.signed.has_failed()
    }

    /// Says whether the older CRL has nothing to say any more. One authority has signed both.
    pub(super) fn supersedes(&self, older: &Self, now: u64) -> bool {
        let is_newer = match (&self.list.base, &older.list.base) {
            (None, None) => {
                self.edition() > older.edition() || (older.ended && !self.ended && self == older)
            }
            (None, Some(_)) => self.edition() >= older.edition(),
            (Some(_), None) => false,
            (Some(_), Some(_)) => self.edition() > older.edition() && self.has_changes_of(older),
        };
        is_newer
            && self.list.this_update <= now
            && self.list.unusable.is_none()
            && self.issuer() == older.issuer()
            && self.has_scope_of(older)
            && self.signed.shares_key_with(&older.signed)
    }

    /// Says whether this delta reaches back as far as the other one.
    pub(super) fn has_changes_of(&self, other: &Self) -> bool {
        matches!((&self.list.base, &other.list.base), (Some(own), Some(base)) if own <= base)
    }

    /// Says whether this delta needs no newer complete CRL than this one.
    pub(super) fn fits(&self, complete: &Self) -> bool {
        let number = complete.list.number.as_ref();
        (self.list.base.as_ref()).is_some_and(|base| number.is_some_and(|number| base <= number))
    }

    /// Returns the entry of a serial number. Of several, the one that is hardest to lift counts.
    pub(super) fn entry(&self, serial: &Serial) -> Option<Revoked> {
        // They lie side by side.
        let from = self
            .list
            .entries
            .partition_point(|entry| entry.serial < *serial);
        let same = self.list.entries.get(from..)?.iter();
        let same = same.take_while(|entry| entry.serial == *serial);
        same.map(|entry| entry.revoked).max_by_key(Revoked::weight)
    }

    /// Returns the reasons that the CRL covers for a certificate of its issuer (RFC 5280 §6.3.3 (b), (d) and (e)).
    pub(super) fn reasons_of(&self, subject: &Subject<'_>) -> Reasons {
        let scope = &self.list.scope;
        let left_out = scope.only_attributes
            || (scope.only_users && subject.is_authority)
            || (scope.only_authorities && !subject.is_authority);
        if left_out {
            return Reasons::NONE;
        }
        let of_point = subject
            .points
            .reasons_of(scope.point.as_ref(), &self.list.issuer);
        of_point.and(Reasons::new(scope.reasons))
    }

    /// Says whether the two CRLs are about the same certificates and reasons.
    pub(super) fn has_scope_of(&self, other: &Self) -> bool {
        self.list.scope.der == other.list.scope.der
    }

    /// The newer of two CRLs with one scope has the greater value. One without a number is older.
    pub(super) fn edition(&self) -> (Option<Serial>, u64) {
        (self.list.number, self.list.this_update)
    }

    /// Says whether this delta holds what has changed since `complete` (RFC 5280 §5.2.4).
    pub(super) fn continues(&self, complete: &Self) -> bool {
        let (Some(base), Some(number), Some(complete)) =
            (&self.list.base, &self.list.number, &complete.list.number)
        else {
            return false;
        };
        base <= complete && complete <= number
    }
}

impl List {
    fn read(signed: &Signed) -> Result<Self, String> {
        let text = |error: DerError| error.to_string();
        let mut reader = DerReader::within(&signed.content, Tag::Sequence).map_err(text)?;
        let version = reader.optional(Tag::Integer).map_err(text)?;
        if version.is_some_and(|version| value_of(version) != Ok(&[1])) {
            return Err("it has neither version 1 nor 2".to_owned());
        }
        let algorithm = reader.whole().map_err(text)?;
        if value_of(algorithm).map_err(text)? != signed.algorithm {
            return Err("it names two signature algorithms".to_owned());
        }
        let issuer = reader.whole().map_err(text)?;
        let issuer = DistinguishedName::from_der(issuer).ok_or("malformed issuer")?;
        let seconds = |time: Time| time.to_unix_duration().as_secs();
        let this_update = seconds(reader.decode().map_err(text)?);
        let next_update = match is_time(reader.next_tag()) {
            true => Some(seconds(reader.decode().map_err(text)?)),
            false => None,
        };
        let entries = reader.optional(Tag::Sequence).map_err(text)?;
        let extensions = reader.optional(EXTENSIONS).map_err(text)?;
        reader.finish(()).map_err(text)?;
        let mut list = Self {
            issuer,
            this_update,
            next_update,
            number: None,
            base: None,
            scope: Scope::default(),
            freshest: Vec::new(),
            entries: Vec::new(),
            unusable: None,
        };
        if let Some(der) = extensions {
            let extensions: Extensions = decode(value_of(der).map_err(text)?).map_err(text)?;
            for extension in unique(&extensions)? {
                list.take_extension(extension)?;
            }
        }
        if let Some(entries) = entries {
            list.take_entries(entries)?;
        }
        Ok(list)
    }

    fn take_extension(&mut self, extension: &Extension) -> Result<(), String> {
        let value = extension.extn_value.as_bytes();
        let number = |value| Serial::from_der(value).ok_or("malformed CRL number");
        match extension.extn_id {
            CrlNumber::OID => self.number = Some(number(value)?),
            BaseCrlNumber::OID => self.base = Some(number(value)?),
            ISSUING_DISTRIBUTION_POINT => self.scope = Scope::new(value, &self.issuer)?,
            FreshestCrl::OID => self.freshest = freshest_uris(value).unwrap_or_default(),
            id if extension.critical => {
                let id = oid::dotted(&id);
                let why = format!("its extension {id} is critical and not known");
                self.unusable.get_or_insert(why);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_entries(&mut self, der: &[u8]) -> Result<(), String> {
        let text = |error: DerError| error.to_string();
        let mut reader = DerReader::within(der, Tag::Sequence).map_err(text)?;
        // The issuer of an entry is that of the entry before, and of the first one the CRL's (RFC 5280 §5.3.3).
        let mut own = true;
        while !reader.is_finished() {
            let entry = reader.whole().map_err(text)?;
            let mut entry = DerReader::within(entry, Tag::Sequence).map_err(text)?;
            let serial = entry.element().map_err(text)?;
            if serial.tag() != Tag::Integer {
                return Err("a serial number is no INTEGER".to_owned());
            }
            let since: Time = entry.decode().map_err(text)?;
            let extensions = entry.optional(Tag::Sequence).map_err(text)?;
            entry.finish(()).map_err(text)?;
            let mut reason = CrlReason::Unspecified;
            if let Some(der) = extensions {
                let extensions: Extensions = decode(der).map_err(text)?;
                for extension in unique(&extensions)? {
                    match extension.extn_id {
                        CrlReason::OID => {
                            // A reason that is not known is a reason nevertheless.
                            let read = decode(extension.extn_value.as_bytes());
                            reason = read.unwrap_or(CrlReason::Unspecified);
                        }
                        CERTIFICATE_ISSUER => {
                            own = self.is_issuer(extension.extn_value.as_bytes())?
                        }
                        INVALIDITY_DATE => {}
                        id if extension.critical => {
                            let id = oid::dotted(&id);
                            let why =
                                format!("the extension {id} of an entry is critical and not known");
                            self.unusable.get_or_insert(why);
                        }
                        _ => {}
                    }
                }
            }
            // RFC 5280 §5.3.1 has removeFromCRL in deltas only.
            if reason == CrlReason::RemoveFromCRL && self.base.is_none() {
                reason = CrlReason::Unspecified;
            }
            // No certificate that is accepted has a longer number.
            if let Some(serial) = Serial::new(serial).filter(|_| own) {
                let since = since.to_unix_duration().as_secs();
                let revoked = Revoked { since, reason };
                self.entries.push(Entry { serial, revoked });
            }
        }
        self.entries.shrink_to_fit();
        self.entries.sort_unstable_by_key(|entry| entry.serial);
        Ok(())
    }

    /// Says whether the names in a certificateIssuer extension include our issuer.
    fn is_issuer(&self, value: &[u8]) -> Result<bool, String> {
        let names: GeneralNames = decode(value).map_err(|error| error.to_string())?;
        let names = point_names(&names).ok_or("malformed certificate issuer")?;
        Ok(names.iter().any(|name| name.is_directory(&self.issuer)))
    }
}

impl PartialEq for Crl {
    fn eq(&self, other: &Self) -> bool {
        self.signed == other.signed
    }
}

impl Eq for Crl {}

impl std::fmt::Debug for Crl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crl({}, {} entries)", self.issuer(), self.entries())
    }
}

impl Scope {
    fn new(value: &[u8], issuer: &DistinguishedName) -> Result<Self, String> {
        let read: IssuingDistributionPoint =
            decode(value).map_err(|error| format!("issuing distribution point: {error}"))?;
        let names = |name| names_of(name, issuer).ok_or("malformed distribution point");
        let point = read.distribution_point.as_ref().map(names).transpose()?;
        Ok(Self {
            der: Some(value.to_vec()),
            point: point.map(HashSet::from_iter),
            only_users: read.only_contains_user_certs,
            only_authorities: read.only_contains_ca_certs,
            only_attributes: read.only_contains_attribute_certs,
            reasons: read.only_some_reasons.map(|reasons| reasons.bits()),
        })
    }
}

fn is_time(tag: Option<Tag>) -> bool {
    matches!(tag, Some(Tag::UtcTime | Tag::GeneralizedTime))
}

/// An extension comes once (RFC 5280 §4.2).
fn unique(extensions: &[Extension]) -> Result<&[Extension], String> {
    let mut ids: Vec<_> = extensions
        .iter()
        .map(|extension| extension.extn_id)
        .collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("it has extension {} twice", oid::dotted(&pair[0]))),
        None => Ok(extensions),
    }
}
