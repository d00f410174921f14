//! Distinguished names as swanctl.conf writes them, for example "C=CH, O=Example, CN=moon". Attributes are in the
//! order of the encoding, which is the reverse of RFC 4514.

use std::hash::{Hash, Hasher};

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{
    Any, Ia5StringRef, ObjectIdentifier, PrintableStringRef, SetOfVec, Utf8StringRef,
};
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

use crate::der::{ELEMENTS_MAX, decode};
use crate::octets::hexadecimal;
use crate::oid;

/// Keywords with their attribute types. If a type has several keywords, the first one is printed.
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
pub(crate) const EMAIL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");
const DOMAIN_COMPONENT: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25");

/// A distinguished name in DER, compared by RFC 5280 §7.1: attribute values as text, without regard to case, string
/// type and repeated spaces. Unicode is put in lower case, and not normalised.
#[derive(Clone)]
pub struct DistinguishedName {
    der: Vec<u8>,
    rdns: RdnSequence,
    canonical: CanonicalName,
}

/// The form in which names are compared. The attributes of one RDN are a set, so that they are sorted.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CanonicalName(Vec<Vec<(ObjectIdentifier, Value)>>);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Value {
    Text(String),
    /// The DER of a value that is not text.
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

    /// The same as `==`, but an attribute of `self` with the value "*" matches any value.
    fn matches(&self, other: &Self) -> bool {
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

impl DistinguishedName {
    /// Reads a name in DER. Returns `None` if the name is malformed, or if no text can stand for it. No text stands for
    /// an RDN without attributes, which X.501 clause 9.3 does not allow. The same holds for object identifiers that are
    /// too large to be read again. An RDN has 32 attributes at most.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let rdns: RdnSequence = decode(der).ok()?;
        let readable = |attribute: &AttributeTypeAndValue| {
            oid::parse(&oid::dotted(&attribute.oid)) == Some(attribute.oid)
        };
        let has_text = (rdns.0.iter()).all(|rdn| !rdn.0.is_empty() && rdn.0.iter().all(readable));
        has_text.then(|| Self::new(der.to_vec(), rdns))
    }

    /// The name in DER, as in certificates.
    pub(crate) fn from_rdns(rdns: &RdnSequence) -> Option<Self> {
        Self::from_der(&rdns.to_der().ok()?)
    }

    fn new(der: Vec<u8>, rdns: RdnSequence) -> Self {
        let canonical = CanonicalName::new(&rdns);
        Self {
            der,
            rdns,
            canonical,
        }
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn is_empty(&self) -> bool {
        self.canonical.0.is_empty()
    }

    /// Says whether this name begins with `base`, and so is in the subtree of a name constraint (RFC 5280 §4.2.1.10).
    pub(crate) fn is_within(&self, base: &Self) -> bool {
        self.canonical.0.starts_with(&base.canonical.0)
    }

    /// Parses "C=CH, O=Example, CN=moon" or "/C=CH/O=Example/CN=moon". A backslash escapes a separator inside a
    /// value, or the value is in double quotes. As in RFC 4514, "+" is between the attributes of one RDN, and "#"
    /// precedes a value in DER as hexadecimal digits. Elsewhere both are text.
    pub fn parse(text: &str) -> Option<Self> {
        let (separator, text) = match text.strip_prefix('/') {
            Some(rest) => ('/', rest),
            None => (',', text),
        };
        let tokens = tokens(text)?;
        let parts = tokens.split(|token| *token == (separator, true));
        let rdns = RdnSequence(parts.map(rdn).collect::<Option<_>>()?);
        let der = rdns.to_der().ok()?;
        Some(Self::new(der, rdns))
    }

    /// The same as `==`, but an attribute of `self` with the value "*" matches any value.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.canonical.matches(&other.canonical)
    }

    /// Says whether the value of an attribute is "*".
    pub fn has_wildcard(&self) -> bool {
        let mut attributes = self.canonical.attributes();
        attributes.any(|(_, value)| value.is_wildcard())
    }
}

impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for DistinguishedName {}

impl Hash for DistinguishedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl std::fmt::Display for DistinguishedName {
    /// Prints what [`DistinguishedName::parse`] reads back as an equal name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, RelativeDistinguishedName(rdn)) in self.rdns.0.iter().enumerate() {
            // Two attributes of one type with equal text would be one attribute when they are read.
            let mut types: Vec<_> = rdn.iter().map(|attribute| attribute.oid).collect();
            types.sort_unstable();
            let distinct = types.windows(2).all(|pair| pair[0] != pair[1]);
            for (place, attribute) in rdn.iter().enumerate() {
                f.write_str(match (index, place) {
                    (0, 0) => "",
                    (_, 0) => ", ",
                    _ => "+",
                })?;
                write_attribute(f, attribute, distinct)?;
            }
        }
        Ok(())
    }
}

fn write_attribute(
    f: &mut std::fmt::Formatter<'_>,
    attribute: &AttributeTypeAndValue,
    as_text: bool,
) -> std::fmt::Result {
    match ATTRIBUTES.iter().find(|(_, oid)| *oid == attribute.oid) {
        Some((keyword, _)) => write!(f, "{keyword}=")?,
        None => write!(f, "{}=", oid::dotted(&attribute.oid))?,
    }
    let text = text(&attribute.value).filter(|text| as_text && reads_back(attribute, text));
    let Some(text) = text else {
        f.write_str("#")?;
        let der = attribute.value.to_der().unwrap_or_default();
        return der.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    };
    let first = text.len() - text.trim_start().len();
    for (at, c) in text.char_indices() {
        match c {
            ',' | '+' | '\\' | '"' => write!(f, "\\{c}")?,
            '#' if at == first => f.write_str("\\#")?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

/// Says whether the text is one line, and reads back as a value that is equal to the attribute's.
fn reads_back(attribute: &AttributeTypeAndValue, text: &str) -> bool {
    let read = string(attribute.oid, text.trim());
    !text.chars().any(char::is_control)
        && read.is_some_and(|read| Value::new(&read) == Value::new(&attribute.value))
}

impl std::fmt::Debug for DistinguishedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DistinguishedName({self})")
    }
}

/// A character, and whether it can be syntax. Quoted and escaped characters cannot.
type Token = (char, bool);

/// Removes quotes and escapes.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => tokens.push((chars.next()?, false)),
            '"' => quoted = !quoted,
            c => tokens.push((c, !quoted)),
        }
    }
    (!quoted).then_some(tokens)
}

fn rdn(mut part: &[Token]) -> Option<RelativeDistinguishedName> {
    let mut set = SetOfVec::new();
    loop {
        let (oid, value) = attribute_type(part)?;
        // "CN=a+b" is one attribute.
        let end = (0..value.len())
            .find(|&at| value[at] == ('+', true) && attribute_type(&value[at + 1..]).is_some());
        let own = &value[..end.unwrap_or(value.len())];
        let own = attribute_value(oid, own)?;
        if set.len() == ELEMENTS_MAX {
            return None;
        }
        set.insert(AttributeTypeAndValue { oid, value: own }).ok()?;
        match end {
            Some(end) => part = &value[end + 1..],
            None => return Some(RelativeDistinguishedName(set)),
        }
    }
}

/// The parts before and after the first "=".
fn attribute_type(tokens: &[Token]) -> Option<(ObjectIdentifier, &[Token])> {
    let end = |token: &Token| token.0 == '=' || *token == ('+', true);
    let end = tokens.iter().position(end)?;
    let keyword: String = tokens[..end].iter().map(|token| token.0).collect();
    let keyword = keyword.trim();
    let known = ATTRIBUTES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(keyword));
    let oid = match known {
        Some((_, oid)) => *oid,
        None => oid::parse(keyword)?,
    };
    (tokens[end].0 == '=').then_some((oid, &tokens[end + 1..]))
}

fn attribute_value(oid: ObjectIdentifier, tokens: &[Token]) -> Option<Any> {
    let first = tokens.iter().find(|token| !token.0.is_whitespace())?;
    let text: String = tokens.iter().map(|token| token.0).collect();
    let text = text.trim();
    let encoded = text
        .strip_prefix('#')
        .filter(|_| first.1)
        .and_then(|digits| decode::<Any>(&hexadecimal(digits)?).ok());
    encoded.or_else(|| string(oid, text))
}

fn string(oid: ObjectIdentifier, text: &str) -> Option<Any> {
    if text.is_empty() {
        return None;
    }
    Some(if oid == EMAIL || oid == DOMAIN_COMPONENT {
        Any::from(Ia5StringRef::new(text).ok()?)
    } else if let Ok(printable) = PrintableStringRef::new(text) {
        Any::from(printable)
    } else {
        Any::from(Utf8StringRef::new(text).ok()?)
    })
}

/// The text of the string types that occur in names.
pub(crate) fn text(value: &Any) -> Option<String> {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(value.value().to_vec()).ok()
        }
        // In practice T.61 means Latin-1.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(value: &str) -> DistinguishedName {
        let value = Any::from(Utf8StringRef::new(value).unwrap());
        let (oid, _) = attribute_type(&[('D', true), ('=', true)]).unwrap();
        let set = SetOfVec::try_from([AttributeTypeAndValue { oid, value }]).unwrap();
        let rdns = RdnSequence(vec![RelativeDistinguishedName(set)]);
        DistinguishedName::from_der(&rdns.to_der().unwrap()).unwrap()
    }

    /// An IKE message holds this many. The time must not grow with their square.
    #[test]
    fn number_signs_behind_blanks_are_printed_once() {
        let (blanks, signs) = (" ".repeat(30_000), "#".repeat(30_000));
        let name = name(&format!("{blanks}{signs}"));
        let text = name.to_string();
        assert_eq!(text, format!("D={blanks}\\{signs}"));
        assert_eq!(DistinguishedName::parse(&text), Some(name));
    }
}
