//! Distinguished names as swanctl.conf writes them: "C=CH, O=Example, CN=moon", in the order in which
//! they are encoded (RFC 4514 prints them in reverse).

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{
    Any, Ia5StringRef, ObjectIdentifier, PrintableStringRef, SetOfVec, Utf8StringRef,
};
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

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

/// A distinguished name in DER. Equality compares the attribute values as text, without regard to
/// case, string type and repeated spaces (RFC 5280 section 7.1, simplified).
#[derive(Clone)]
pub struct Name {
    der: Vec<u8>,
    rdns: RdnSequence,
}

impl Name {
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let rdns = RdnSequence::from_der(der).ok()?;
        let der = der.to_vec();
        Some(Self { der, rdns })
    }

    pub fn der(&self) -> &[u8] {
        &self.der
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
        Some(Self { der, rdns })
    }

    fn attributes(&self) -> impl Iterator<Item = &AttributeTypeAndValue> {
        self.rdns.0.iter().flat_map(|rdn| rdn.0.iter())
    }

    /// Whether an attribute's value is "*".
    pub fn has_wildcard(&self) -> bool {
        self.attributes()
            .any(|attribute| text(&attribute.value).as_deref() == Some("*"))
    }

    /// As `==`, but an attribute of `self` whose value is "*" matches any value.
    pub fn matches(&self, other: &Self) -> bool {
        let same_shape = self.rdns.0.len() == other.rdns.0.len()
            && self
                .rdns
                .0
                .iter()
                .zip(&other.rdns.0)
                .all(|(a, b)| a.0.len() == b.0.len());
        same_shape
            && self
                .attributes()
                .zip(other.attributes())
                .all(|(pattern, actual)| {
                    pattern.oid == actual.oid
                        && (text(&pattern.value).as_deref() == Some("*")
                            || values_equal(&pattern.value, &actual.value))
                })
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
            || (self.rdns.0.len() == other.rdns.0.len()
                && self.rdns.0.iter().zip(&other.rdns.0).all(|(a, b)| {
                    a.0.len() == b.0.len()
                        && a.0
                            .iter()
                            .zip(b.0.iter())
                            .all(|(a, b)| a.oid == b.oid && values_equal(&a.value, &b.value))
                }))
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
                None => write!(f, "{}=", attribute.oid)?,
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
        None => ObjectIdentifier::new(keyword).ok()?,
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

fn values_equal(a: &Any, b: &Any) -> bool {
    match (text(a), text(b)) {
        (Some(a), Some(b)) => folded(&a) == folded(&b),
        _ => a == b,
    }
}

fn folded(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}
