//! Distinguished names as swanctl.conf writes them: "C=CH, O=Example, CN=moon", in the order in which
//! they are encoded (RFC 4514 prints them in reverse).

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{
    Any, Ia5StringRef, ObjectIdentifier, PrintableStringRef, SetOfVec, Utf8StringRef,
};
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

use super::oid;

/// Keywords with their attribute types; the first keyword of a type is the one printed.
const ATTRIBUTES: &[(&str, ObjectIdentifier)] = &[
    ("CN", ObjectIdentifier::new_unwrap("2.5.4.3")),
    ("S", ObjectIdentifier::new_unwrap("2.5.4.4")),
    ("SN", ObjectIdentifier::new_unwrap("2.5.4.5")),
    ("serialNumber", ObjectIdentifier::new_unwrap("2.5.4.5")),
    ("C", ObjectIdentifier::new_unwrap("2.5.4.6")),
    ("L", ObjectIdentifier::new_unwrap("2.5.4.7")),
    ("ST", ObjectIdentifier::new_unwrap("2.5.4.8")),
    ("street", ObjectIdentifier::new_unwrap("2.5.4.9")),
    ("O", ObjectIdentifier::new_unwrap("2.5.4.10")),
    ("OU", ObjectIdentifier::new_unwrap("2.5.4.11")),
    ("T", ObjectIdentifier::new_unwrap("2.5.4.12")),
    ("D", ObjectIdentifier::new_unwrap("2.5.4.13")),
    ("postalCode", ObjectIdentifier::new_unwrap("2.5.4.17")),
    ("N", ObjectIdentifier::new_unwrap("2.5.4.41")),
    ("G", ObjectIdentifier::new_unwrap("2.5.4.42")),
    ("I", ObjectIdentifier::new_unwrap("2.5.4.43")),
    ("dnQualifier", ObjectIdentifier::new_unwrap("2.5.4.46")),
    ("E", EMAIL),
    ("emailAddress", EMAIL),
    (
        "UID",
        ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"),
    ),
    ("DC", DOMAIN_COMPONENT),
];
const EMAIL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");
const DOMAIN_COMPONENT: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25");

/// A distinguished name in DER, compared by RFC 5280 section 7.1: attribute values as text, without
/// regard to case, string type and repeated spaces. Unicode is lowered and not normalised.
#[derive(Clone)]
pub struct Name {
    der: Vec<u8>,
    rdns: RdnSequence,
    canonical: CanonicalName,
}

/// The form in which names are compared: attributes of one RDN, which are a set, are sorted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct CanonicalName(Vec<Vec<(ObjectIdentifier, Value)>>);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Value {
    Text(String),
    /// The DER of a value that is no text.
    Other(Vec<u8>),
}

impl CanonicalName {
    fn new(rdns: &RdnSequence) -> Self {
        let rdn = |rdn: &RelativeDistinguishedName| {
            let mut attributes: Vec<_> = (rdn.0.iter())
                .map(|attribute| (attribute.oid, Value::new(&attribute.value)))
                .collect();
            attributes.sort_unstable();
            attributes
        };
        Self(rdns.0.iter().map(rdn).collect())
    }

    fn attributes(&self) -> impl Iterator<Item = &(ObjectIdentifier, Value)> {
        self.0.iter().flatten()
    }

    /// As `==`, but an attribute of `self` whose value is "*" matches any value.
    pub(super) fn matches(&self, other: &Self) -> bool {
        let same_shape = self.0.iter().map(Vec::len).eq(other.0.iter().map(Vec::len));
        same_shape
            && (self.attributes().zip(other.attributes())).all(|(pattern, actual)| {
                pattern.0 == actual.0 && (pattern.1.is_wildcard() || pattern.1 == actual.1)
            })
    }
}

impl Value {
    fn new(value: &Any) -> Self {
        match text(value) {
            Some(text) => Self::Text(folded(&text)),
            None => Self::Other(value.to_der().unwrap_or_default()),
        }
    }

    fn is_wildcard(&self) -> bool {
        matches!(self, Self::Text(text) if text == "*")
    }
}

impl Name {
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let rdns = RdnSequence::from_der(der).ok()?;
        Some(Self::new(der.to_vec(), rdns))
    }

    fn new(der: Vec<u8>, rdns: RdnSequence) -> Self {
        let canonical = CanonicalName::new(&rdns);
        Self {
            der,
            rdns,
            canonical,
        }
    }

    pub(super) fn canonical(&self) -> &CanonicalName {
        &self.canonical
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub(super) fn is_empty(&self) -> bool {
        self.canonical.0.is_empty()
    }

    /// Whether `base` is a beginning of this name: the subtree of a name constraint (RFC 5280 section 4.2.1.10).
    pub(super) fn is_within(&self, base: &Self) -> bool {
        self.canonical.0.starts_with(&base.canonical.0)
    }

    /// Parses "C=CH, O=Example, CN=moon" or "/C=CH/O=Example/CN=moon". A separator inside a value is
    /// escaped with a backslash, or the value is put in double quotes.
    pub fn parse(text: &str) -> Option<Self> {
        let (separator, text) = match text.strip_prefix('/') {
            Some(rest) => ('/', rest),
            None => (',', text),
        };
        let mut rdns = RdnSequence::default();
        for part in split(text, separator)? {
            let (keyword, value) = part.split_once('=')?;
            let attribute = attribute(keyword.trim(), value.trim())?;
            let mut set = SetOfVec::new();
            set.insert(attribute).ok()?;
            rdns.0.push(RelativeDistinguishedName(set));
        }
        let der = rdns.to_der().ok()?;
        Some(Self::new(der, rdns))
    }

    fn attributes(&self) -> impl Iterator<Item = &AttributeTypeAndValue> {
        self.rdns.0.iter().flat_map(|rdn| rdn.0.iter())
    }

    /// Whether an attribute's value is "*".
    pub fn has_wildcard(&self) -> bool {
        let mut attributes = self.canonical.attributes();
        attributes.any(|(_, value)| value.is_wildcard())
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Name {}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, attribute) in self.attributes().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match ATTRIBUTES.iter().find(|(_, oid)| *oid == attribute.oid) {
                Some((keyword, _)) => write!(f, "{keyword}=")?,
                None => write!(f, "{}=", oid::dotted(&attribute.oid))?,
            }
            match text(&attribute.value) {
                Some(value) => {
                    for c in value.chars() {
                        match c {
                            ',' | '\\' | '"' => write!(f, "\\{c}")?,
                            c if c.is_control() => write!(f, "{}", c.escape_default())?,
                            c => write!(f, "{c}")?,
                        }
                    }
                }
                None => {
                    f.write_str("#")?;
                    for byte in attribute.value.value() {
                        write!(f, "{byte:02x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Splits at separators outside quotes and escapes, and takes quotes and escapes away.
fn split(text: &str, separator: char) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let part = parts.last_mut()?;
        match c {
            '\\' => part.push(chars.next()?),
            '"' => quoted = !quoted,
            c if c == separator && !quoted => parts.push(String::new()),
            c => part.push(c),
        }
    }
    (!quoted).then_some(parts)
}

fn attribute(keyword: &str, value: &str) -> Option<AttributeTypeAndValue> {
    let known = ATTRIBUTES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(keyword));
    let oid = match known {
        Some((_, oid)) => *oid,
        None => oid::parse(keyword)?,
    };
    if value.is_empty() {
        return None;
    }
    let value = if oid == EMAIL || oid == DOMAIN_COMPONENT {
        Any::from(Ia5StringRef::new(value).ok()?)
    } else if let Ok(printable) = PrintableStringRef::new(value) {
        Any::from(printable)
    } else {
        Any::from(Utf8StringRef::new(value).ok()?)
    };
    Some(AttributeTypeAndValue { oid, value })
}

/// The text of the string types that occur in names.
fn text(value: &Any) -> Option<String> {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(value.value().to_vec()).ok()
        }
        // Latin-1 is what T.61 means in practice.
        Tag::TeletexString => Some(value.value().iter().map(|&byte| char::from(byte)).collect()),
        Tag::BmpString => {
            let (units, []) = value.value().as_chunks::<2>() else {
                return None;
            };
            String::from_utf16(
                &units
                    .iter()
                    .map(|&u| u16::from_be_bytes(u))
                    .collect::<Vec<_>>(),
            )
            .ok()
        }
        _ => None,
    }
}

fn folded(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}
