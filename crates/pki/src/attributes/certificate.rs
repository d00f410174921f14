//! X.509 attribute certificates (RFC 5755 §4): reading them, and what can be said about one alone.

use std::collections::BTreeSet;
use std::time::Duration;

use rustls_pki_types::UnixTime;
use x509_cert::der::asn1::{GeneralizedTime, ObjectIdentifier};
use x509_cert::der::{AnyRef, Document, Tag, TagNumber, Tagged};
use x509_cert::ext::Extension;

use super::error::AttributeError;
use super::group::GroupName;
use super::holder::{Holder, context, directory_name, targets, text};
use crate::certificate::Certificate;
use crate::date::rfc3339;
use crate::der::{DerReader, decode, element, value_of};
use crate::error::FileError;
use crate::name::DistinguishedName;
use crate::oid;
use crate::revocation::Serial;
use crate::signed::{Signed, SubjectKey, authority_key};
use crate::subject_name::SubjectName;

/// Octets of one attribute certificate.
const LEN_MAX: usize = 16 << 10;
/// Groups of one attribute certificate.
const GROUPS_MAX: usize = 512;
/// The label of a PEM file, as OpenSSL and strongSwan write it.
const LABEL: &str = "ATTRIBUTE CERTIFICATE";

/// The attribute `group` (RFC 5755 §4.4.4).
const GROUP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.10.4");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
const TARGET_INFORMATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.55");
const NO_REV_AVAIL: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.56");

/// A parsed attribute certificate. Nobody has checked its signature.
pub struct AttributeCertificate {
    der: Vec<u8>,
    signed: Signed,
    holder: Holder,
    issuer: DistinguishedName,
    not_before: Duration,
    not_after: Duration,
    groups: Vec<GroupName>,
    extensions: AttributeExtensions,
}

#[derive(Default)]
struct AttributeExtensions {
    /// Who may use the certificate. `None` stands for everybody.
    targets: Option<Vec<SubjectName<'static>>>,
    /// The identifier of the issuer's key.
    authority_key: Option<Vec<u8>>,
    no_rev_avail: bool,
    /// The first critical extension that is not processed.
    unknown_critical: Option<ObjectIdentifier>,
}

impl AttributeCertificate {
    pub fn from_der(der: &[u8]) -> Result<Self, AttributeError> {
        Self::parse(der).map_err(AttributeError::Malformed)
    }

    /// The one attribute certificate of a file in PEM or DER.
    pub fn from_file_content(content: &[u8]) -> Result<Self, FileError> {
        if content.first() == Some(&0x30) {
            return Self::parse(content).map_err(FileError::Certificate);
        }
        let pem = std::str::from_utf8(content).map_err(|_| FileError::NoAttributeCertificate)?;
        let (label, document) =
            Document::from_pem(pem).map_err(|error| FileError::Pem(error.to_string()))?;
        match label == LABEL {
            true => Self::parse(document.as_bytes()).map_err(FileError::Certificate),
            false => Err(FileError::NoAttributeCertificate),
        }
    }

    fn parse(der: &[u8]) -> Result<Self, String> {
        if der.len() > LEN_MAX {
            return Err("it is too long".to_owned());
        }
        let signed = Signed::from_der(der).map_err(text)?;
        let mut reader = DerReader::within(&signed.content, Tag::Sequence).map_err(text)?;
        let version: u8 = reader
            .decode()
            .map_err(|_| "it has no version".to_owned())?;
        if version != 1 {
            return Err("its version is not 2".to_owned());
        }
        let holder = Holder::read(value_of(sequence(&mut reader)?).map_err(text)?)?;
        let issuer = issuer(reader.element().map_err(text)?)?;
        let algorithm = value_of(sequence(&mut reader)?).map_err(text)?;
        if algorithm != signed.algorithm {
            return Err("it names two signature algorithms".to_owned());
        }
        let serial = reader.whole().map_err(text)?;
        Serial::from_der(serial).ok_or("its serial number is malformed")?;
        let (not_before, not_after) = validity(sequence(&mut reader)?)?;
        let groups = groups(sequence(&mut reader)?)?;
        let mut extensions = AttributeExtensions::default();
        while !reader.is_finished() {
            let part = reader.whole().map_err(text)?;
            match element(part).map_err(text)?.tag() {
                // The issuerUniqueID has no use (RFC 5755 §4.2.8).
                Tag::BitString => {}
                Tag::Sequence if reader.is_finished() => {
                    extensions = AttributeExtensions::read(part)?;
                }
                _ => return Err("it has an unknown part".to_owned()),
            }
        }
        Ok(Self {
            der: der.to_vec(),
            holder,
            issuer,
            not_before,
            not_after,
            groups,
            extensions,
            signed,
        })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    pub fn groups(&self) -> &[GroupName] {
        &self.groups
    }

    /// Says whether this certificate is its holder's.
    pub fn is_of(&self, certificate: &Certificate) -> bool {
        self.holder.is(certificate)
    }

    pub(super) fn authority_key(&self) -> Option<&[u8]> {
        self.extensions.authority_key.as_deref()
    }

    pub fn check_time(&self, now: UnixTime) -> Result<(), AttributeError> {
        let now = Duration::from_secs(now.as_secs());
        if now < self.not_before {
            let since = rfc3339(self.not_before.as_secs());
            return Err(AttributeError::NotYetValid(since));
        }
        match now > self.not_after {
            true => Err(AttributeError::Expired(rfc3339(self.not_after.as_secs()))),
            false => Ok(()),
        }
    }

    /// Checks what holds whoever asks: validity, revocation and critical extensions (RFC 5755 §5).
    pub(super) fn check(&self, now: UnixTime) -> Result<(), AttributeError> {
        self.check_time(now)?;
        if let Some(id) = &self.extensions.unknown_critical {
            return Err(AttributeError::CriticalExtension(oid::dotted(id)));
        }
        // Without noRevAvail somebody could revoke it, and we would not hear of that (RFC 5755 §6).
        match self.extensions.no_rev_avail {
            true => Ok(()),
            false => Err(AttributeError::Revocable),
        }
    }

    /// Says whether it is for one who has these names.
    pub(super) fn is_for(&self, has_name: impl Fn(&SubjectName<'static>) -> bool) -> bool {
        let targets = self.extensions.targets.as_ref();
        targets.is_none_or(|targets| targets.iter().any(has_name))
    }

    pub(super) fn check_signature(&self, key: &SubjectKey) -> Result<(), AttributeError> {
        let issuer = || self.issuer.to_string();
        let verified = self.signed.verify(key);
        verified.map_err(|why| AttributeError::Signature {
            issuer: issuer(),
            why,
        })
    }
}

impl std::fmt::Debug for AttributeCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttributeCertificate({})", self.issuer)
    }
}

/// Reads an element that must be a SEQUENCE.
fn sequence<'a>(reader: &mut DerReader<'a>) -> Result<&'a [u8], String> {
    let sequence = reader.optional(Tag::Sequence).map_err(text)?;
    sequence.ok_or_else(|| "it lacks a SEQUENCE".to_owned())
}

/// The issuer is a v2Form with one name and nothing else (RFC 5755 §4.2.3).
fn issuer(element: AnyRef<'_>) -> Result<DistinguishedName, String> {
    if element.tag() != context(TagNumber::N0) {
        return Err("its issuer is no v2Form".to_owned());
    }
    let mut reader = DerReader::new(element.value()).map_err(text)?;
    let names = sequence(&mut reader)?;
    reader.finish(()).map_err(text)?;
    directory_name(value_of(names).map_err(text)?)
}

fn validity(element: &[u8]) -> Result<(Duration, Duration), String> {
    let mut reader = DerReader::within(element, Tag::Sequence).map_err(text)?;
    let not_before: GeneralizedTime = reader.decode().map_err(text)?;
    let not_after: GeneralizedTime = reader.decode().map_err(text)?;
    reader.finish(()).map_err(text)?;
    Ok((not_before.to_unix_duration(), not_after.to_unix_duration()))
}

/// Reads the groups among the attributes. Other attributes say nothing here.
fn groups(element: &[u8]) -> Result<Vec<GroupName>, String> {
    let mut groups = Vec::new();
    let mut attributes = DerReader::within(element, Tag::Sequence).map_err(text)?;
    while !attributes.is_finished() {
        let mut attribute =
            DerReader::within(sequence(&mut attributes)?, Tag::Sequence).map_err(text)?;
        let kind: ObjectIdentifier = attribute.decode().map_err(text)?;
        let values = attribute.whole().map_err(text)?;
        attribute.finish(()).map_err(text)?;
        if kind != GROUP {
            continue;
        }
        let mut values = DerReader::within(values, Tag::Set).map_err(text)?;
        while !values.is_finished() {
            add_groups(sequence(&mut values)?, &mut groups)?;
        }
    }
    Ok(groups)
}

/// Reads IetfAttrSyntax (RFC 5755 §4.4). The policyAuthority in front says who has thought of the groups. Their issuer is
/// trusted for all groups, so it says nothing here, as in strongSwan.
fn add_groups(element: &[u8], groups: &mut Vec<GroupName>) -> Result<(), String> {
    let mut reader = DerReader::within(element, Tag::Sequence).map_err(text)?;
    let mut part = reader.whole().map_err(text)?;
    if self::element(part).map_err(text)?.tag() == context(TagNumber::N0) {
        part = reader.whole().map_err(text)?;
    }
    reader.finish(()).map_err(text)?;
    let mut values = DerReader::within(part, Tag::Sequence).map_err(text)?;
    while !values.is_finished() {
        if groups.len() >= GROUPS_MAX {
            return Err("it has too many groups".to_owned());
        }
        let part = values.whole().map_err(text)?;
        let value = self::element(part).map_err(text)?;
        let name = match value.tag() {
            // Octets are no text by themselves, but nothing else can be written in a configuration.
            Tag::Utf8String | Tag::OctetString => String::from_utf8(value.value().to_vec()).ok(),
            Tag::ObjectIdentifier => {
                let id: ObjectIdentifier = decode(part).map_err(text)?;
                Some(oid::dotted(&id))
            }
            _ => return Err("a group is neither octets nor oid nor string".to_owned()),
        };
        if value.tag() == Tag::Utf8String && name.is_none() {
            return Err("a group is no UTF-8".to_owned());
        }
        let Some(name) = name else {
            continue;
        };
        groups.push(GroupName::presented(name).ok_or("the name of a group is too long")?);
    }
    Ok(())
}

impl AttributeExtensions {
    fn read(element: &[u8]) -> Result<Self, String> {
        let mut known = Self::default();
        let mut seen = BTreeSet::new();
        let mut reader = DerReader::within(element, Tag::Sequence).map_err(text)?;
        while !reader.is_finished() {
            let extension: Extension = reader.decode().map_err(text)?;
            let id = extension.extn_id;
            // An extension comes once (RFC 5280 §4.2).
            if !seen.insert(id) {
                return Err(format!("it has extension {} twice", oid::dotted(&id)));
            }
            let value = extension.extn_value.as_bytes();
            match id {
                TARGET_INFORMATION => known.targets = Some(targets(value)?),
                NO_REV_AVAIL => known.no_rev_avail = true,
                AUTHORITY_KEY_IDENTIFIER => {
                    known.authority_key = authority_key(value).map_err(text)?
                }
                id if extension.critical => {
                    known.unknown_critical.get_or_insert(id);
                }
                _ => {}
            }
        }
        Ok(known)
    }
}
