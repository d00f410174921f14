//! The notation of identities in swanctl.conf, as strongSwan reads it. A text that strongSwan would take for an identity
//! that we do not have, or for a name that no peer can have, is refused.

use std::net::IpAddr;

use esplanade_pki::{DistinguishedName, hexadecimal};

use super::Identity;
use crate::wire::{Id, IdType};

/// The words for types, which stand before a colon.
pub(super) const TYPES: &[(&str, IdType)] = &[
    ("ipv4", IdType::IPV4_ADDR),
    ("ipv6", IdType::IPV6_ADDR),
    ("fqdn", IdType::FQDN),
    ("dns", IdType::FQDN),
    ("email", IdType::RFC822_ADDR),
    ("rfc822", IdType::RFC822_ADDR),
    ("userfqdn", IdType::RFC822_ADDR),
    ("asn1dn", IdType::DER_ASN1_DN),
    ("dn", IdType::DER_ASN1_DN),
    ("keyid", IdType::KEY_ID),
];

/// strongSwan's words for types that are not supported.
const OTHER_TYPES: &[&str] = &[
    "ipv4net",
    "ipv6net",
    "ipv4range",
    "ipv6range",
    "asn1gn",
    "xmppaddr",
    "uri",
];

pub(super) fn parse(text: &str) -> Result<Identity, &'static str> {
    if matches!(text, "%any" | "%any4" | "%any6" | "*") {
        return Ok(Identity::Any);
    }
    if let Some((kind, value)) = text.split_once(':') {
        if let Some(kind) = type_of(kind)? {
            return typed(kind, value);
        }
        if OTHER_TYPES
            .iter()
            .any(|other| other.eq_ignore_ascii_case(kind))
        {
            return Err("identities of this type are not supported");
        }
    }
    if let Ok(ip) = text.parse() {
        return Ok(Identity::Ip(ip));
    }
    if let Some(digits) = text.strip_prefix("@#") {
        let key = hexadecimal(digits).ok_or("not hexadecimal digits")?;
        return Ok(Identity::KeyId(key));
    }
    if let Some(address) = text.strip_prefix("@@") {
        return plain(address).map(Identity::Email);
    }
    if let Some(name) = text.strip_prefix('@') {
        return plain(name).map(Identity::Fqdn);
    }
    if text.contains('=') {
        let name = DistinguishedName::parse(text).ok_or("not a distinguished name")?;
        return Ok(Identity::Dn(name));
    }
    without_type(text)
}

/// Reads what stands before a colon: a word, or a number in braces. Returns `None` if it is neither.
fn type_of(kind: &str) -> Result<Option<IdType>, &'static str> {
    if let Some(number) = kind.strip_prefix('{') {
        let number = number
            .strip_suffix('}')
            .and_then(|number| number.parse().ok());
        let id_type = IdType(number.ok_or("not the number of a type in braces")?);
        return match TYPES.iter().any(|(_, known)| *known == id_type) {
            true => Ok(Some(id_type)),
            false => Err("identities of this type are not supported"),
        };
    }
    let mut types = TYPES.iter();
    let found = types.find(|(word, _)| word.eq_ignore_ascii_case(kind));
    Ok(found.map(|(_, id_type)| *id_type))
}

/// Reads the value behind a type: hexadecimal digits behind a number sign, or text.
fn typed(id_type: IdType, value: &str) -> Result<Identity, &'static str> {
    if let Some(digits) = value.strip_prefix('#') {
        let octets = hexadecimal(digits).ok_or("no hexadecimal digits behind the number sign")?;
        return Identity::from_payload(&Id::new(id_type, octets))
            .map_err(|_| "the octets are no identity of this type");
    }
    match id_type {
        IdType::FQDN => plain(value).map(Identity::Fqdn),
        IdType::RFC822_ADDR => plain(value).map(Identity::Email),
        IdType::DER_ASN1_DN => {
            let name = DistinguishedName::parse(value).ok_or("not a distinguished name")?;
            Ok(Identity::Dn(name))
        }
        IdType::KEY_ID if value.is_empty() => Err("empty"),
        IdType::KEY_ID => Ok(Identity::KeyId(value.as_bytes().to_vec())),
        _ => {
            let ip: Option<IpAddr> = value.parse().ok();
            let fits = |ip: &IpAddr| ip.is_ipv4() == (id_type == IdType::IPV4_ADDR);
            let ip = ip.filter(fits).ok_or("not an address of that family")?;
            Ok(Identity::Ip(ip))
        }
    }
}

/// Reads a text whose type follows from its characters: an email address with an @, a key ID with a colon, or a domain
/// name.
fn without_type(text: &str) -> Result<Identity, &'static str> {
    let text = plain(text)?;
    if is_network(&text) {
        return Err("a subnet or a range is the identity of no peer");
    }
    if text.contains(',') {
        return Err("a list is no identity");
    }
    if text.starts_with('{') {
        return Err("not the number of a type in braces, with a colon behind it");
    }
    if text.get(1..).is_some_and(|rest| rest.contains('*')) {
        return Err("a star stands for what is in front of a name, and nowhere else");
    }
    if text.contains('@') {
        return Ok(Identity::Email(text));
    }
    if text.contains(':') {
        return Ok(Identity::KeyId(text.into_bytes()));
    }
    if text.contains(['/', '{', '}']) || text.starts_with('%') {
        return Err("a domain name does not have these characters");
    }
    if text.split('.').count() == 4 && text.bytes().all(|c| c.is_ascii_digit() || c == b'.') {
        return Err("not an address");
    }
    Ok(Identity::Fqdn(text))
}

/// Tells whether this is an address with a prefix length, or with another address behind a dash.
fn is_network(text: &str) -> bool {
    let parts = text.split_once(['/', '-']);
    parts.is_some_and(|(first, _)| first.parse::<IpAddr>().is_ok())
}

fn plain(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("empty");
    }
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        return Err("only printable ASCII without spaces is allowed");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// strongSwan makes the same of these texts.
    #[test]
    fn texts_mean_what_they_mean_in_strongswan() {
        let key = |text: &str| Identity::KeyId(text.as_bytes().to_vec());
        let name = |text: &str| Identity::Fqdn(text.to_owned());
        for (text, expected) in [
            ("site:7", key("site:7")),
            ("http://gw.example.org/", key("http://gw.example.org/")),
            ("keyid:0x0102", key("0x0102")),
            ("keyid:a b", key("a b")),
            ("keyid:#616263", key("abc")),
            ("KEYID:abc", key("abc")),
            ("{11}:abc", key("abc")),
            ("{2}:a.example.org", name("a.example.org")),
            ("{2}:#612e62", name("a.b")),
            ("Fqdn:a.example.org", name("a.example.org")),
            ("fqdn:a,b", name("a,b")),
            ("@a:b", name("a:b")),
            ("2001", name("2001")),
            ("*.example.org", name("*.example.org")),
            ("{3}:a@b", Identity::Email("a@b".to_owned())),
            ("userfqdn:a@b", Identity::Email("a@b".to_owned())),
            ("a:b@c", Identity::Email("a:b@c".to_owned())),
            ("{1}:#0a000001", Identity::Ip([10, 0, 0, 1].into())),
            ("ipv4:#0a000001", Identity::Ip([10, 0, 0, 1].into())),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_identity_is_no_domain_name() {
        for (text, why) in [
            ("", "empty"),
            ("fqdn:", "empty"),
            ("keyid:", "empty"),
            ("two words", "spaces"),
            ("10.0.0.0/8", "subnet"),
            ("10.0.0.1-10.0.0.9", "range"),
            ("2001:db8::/32", "subnet"),
            ("10.0.0.256", "not an address"),
            ("ipv4net:10.0.0.0/8", "not supported"),
            ("XMPPADDR:a@b", "not supported"),
            ("uri:http://a", "not supported"),
            ("asn1gn:x", "not supported"),
            ("{7}:x", "not supported"),
            ("{x}:a", "number of a type"),
            ("{2:a", "number of a type"),
            ("{2}a", "number of a type"),
            ("a.example,b.example", "a list"),
            ("a@b,c@d", "a list"),
            ("a:1,a:2", "a list"),
            ("a/b", "characters"),
            ("a{b", "characters"),
            ("%dynamic", "characters"),
            ("a*.example", "a star"),
            ("**", "a star"),
            ("a@*", "a star"),
            ("ipv6:10.0.0.1", "family"),
            ("ipv4:#0a", "octets"),
            ("keyid:#0", "hexadecimal"),
            ("@#0", "hexadecimal"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
