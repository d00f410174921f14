//! Identities, as configured and as the ID payload carries them (RFC 7296 §3.5).

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use esplanade_pki::{Certificate, DistinguishedName, PublicKey, SubjectName};

use crate::wire::{Id, IdType};

/// The octets of an identity in an ID payload. Distinguished names of real certificates have a few hundred.
const IDENTITY_LEN_MAX: usize = 1024;

#[cfg(feature = "generators")]
pub mod generators;
mod notation;

/// The identity that a peer or this end claims. In a configuration it can be a pattern. Patterns are [`Identity::Any`],
/// a leading "*" in a name or address ("*.example.org", "*@example.org"), and "*" as a value in a distinguished name.
///
/// The spelling stays as it was written, for the ID payload and for people. Equality, hashing and
/// [`Identity::accepts`] see the form in which names are compared, see [`SubjectName`]. Addresses and key IDs are as
/// they are.
#[derive(Clone, Debug)]
pub enum Identity {
    Any,
    Ip(IpAddr),
    Fqdn(String),
    Email(String),
    Dn(DistinguishedName),
    KeyId(Vec<u8>),
}

/// The form in which identities are compared and hashed.
#[derive(PartialEq, Eq, Hash)]
enum Canonical<'a> {
    Any,
    Name(SubjectName<'a>),
    KeyId(&'a [u8]),
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("identity type {0} is not supported")]
    Type(IdType),
    #[error("malformed {0} identity")]
    Malformed(IdType),
    #[error("an identity of {0} octets, and {IDENTITY_LEN_MAX} are allowed")]
    TooLong(usize),
    #[error("\"{0}\" is not an identity: {1}")]
    Text(String, &'static str),
}

impl Identity {
    /// The identity as a name that certificates can have.
    pub fn subject_name(&self) -> Option<SubjectName<'_>> {
        match self {
            Self::Any | Self::KeyId(_) => None,
            Self::Ip(ip) => Some(SubjectName::ip(*ip)),
            Self::Fqdn(name) => Some(SubjectName::domain(name)),
            Self::Email(address) => Some(SubjectName::email(address)),
            Self::Dn(name) => Some(SubjectName::directory(name)),
        }
    }

    fn canonical(&self) -> Canonical<'_> {
        match (self.subject_name(), self) {
            (Some(name), _) => Canonical::Name(name),
            (None, Self::KeyId(key)) => Canonical::KeyId(key),
            (None, _) => Canonical::Any,
        }
    }

    /// The identity of an end that has the key and no name. strongSwan's is the same.
    pub fn of_key(key: &PublicKey) -> Self {
        Self::KeyId(key.hash().to_vec())
    }

    /// Says whether the certificate proves this identity (RFC 4945 §3.1). No certificate proves a key ID.
    pub fn is_named_by(&self, certificate: &Certificate) -> bool {
        let name = self.subject_name();
        name.is_some_and(|name| certificate.names(&name))
    }

    /// Reads an ID payload.
    pub fn from_payload(id: &Id) -> Result<Self, IdentityError> {
        if id.data.len() > IDENTITY_LEN_MAX {
            return Err(IdentityError::TooLong(id.data.len()));
        }
        let malformed = || IdentityError::Malformed(id.kind);
        let name = || {
            let text = std::str::from_utf8(&id.data).ok()?;
            let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
            plain.then(|| text.to_owned())
        };
        match id.kind {
            IdType::IPV4_ADDR => <[u8; 4]>::try_from(id.data.as_slice())
                .map(|octets| Self::Ip(Ipv4Addr::from(octets).into()))
                .map_err(|_| malformed()),
            IdType::IPV6_ADDR => <[u8; 16]>::try_from(id.data.as_slice())
                .map(|octets| Self::Ip(Ipv6Addr::from(octets).into()))
                .map_err(|_| malformed()),
            IdType::FQDN => name().map(Self::Fqdn).ok_or_else(malformed),
            IdType::RFC822_ADDR => name().map(Self::Email).ok_or_else(malformed),
            // An empty name is not an identity (RFC 4945 §3.1.5).
            IdType::DER_ASN1_DN => DistinguishedName::from_der(&id.data)
                .filter(|name| !name.is_empty())
                .map(Self::Dn)
                .ok_or_else(malformed),
            IdType::KEY_ID if id.data.is_empty() => Err(malformed()),
            IdType::KEY_ID => Ok(Self::KeyId(id.data.clone())),
            other => Err(IdentityError::Type(other)),
        }
    }

    /// Returns the ID payload for this identity. Returns `None` for [`Identity::Any`], which is no identity.
    pub fn to_payload(&self) -> Option<Id> {
        Some(match self {
            Self::Any => return None,
            Self::Ip(ip) => Self::address_payload(*ip),
            Self::Fqdn(name) => Id::new(IdType::FQDN, name.clone().into_bytes()),
            Self::Email(address) => Id::new(IdType::RFC822_ADDR, address.clone().into_bytes()),
            Self::Dn(name) => Id::new(IdType::DER_ASN1_DN, name.der().to_vec()),
            Self::KeyId(key) => Id::new(IdType::KEY_ID, key.clone()),
        })
    }

    /// The ID payload of an address.
    pub(crate) fn address_payload(ip: IpAddr) -> Id {
        match ip {
            IpAddr::V4(ip) => Id::new(IdType::IPV4_ADDR, ip.octets().to_vec()),
            IpAddr::V6(ip) => Id::new(IdType::IPV6_ADDR, ip.octets().to_vec()),
        }
    }

    /// The words for types that a configuration can write before a colon.
    pub fn types() -> impl Iterator<Item = &'static str> {
        notation::TYPES.iter().map(|(word, _)| *word)
    }

    /// Says whether this identity, as configured, allows the one that a peer presents.
    pub fn accepts(&self, presented: &Self) -> bool {
        match (self.canonical(), presented.canonical()) {
            (_, Canonical::Any) => false,
            (Canonical::Any, _) => true,
            (Canonical::Name(pattern), Canonical::Name(name)) => pattern.accepts(&name),
            (ours, theirs) => ours == theirs,
        }
    }

    /// Returns how exactly [`Identity::accepts`] matches. The connection with the greatest value is preferred.
    pub fn precision(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Fqdn(pattern) | Self::Email(pattern) if pattern.starts_with('*') => 1,
            Self::Dn(name) if name.has_wildcard() => 1,
            _ => 2,
        }
    }

    /// Tells whether this identity, as configured, can accept several that peers present.
    pub fn is_pattern(&self) -> bool {
        self.precision() < 2
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// Reads the notation of swanctl.conf. It has `%any`, addresses, distinguished names, and key IDs as `@#` with
    /// hexadecimal digits, or as text with a colon. Names are `name.example.org` or `@name.example.org`, and
    /// `user@example.org` or `@@user@example.org`. A type can stand before a colon: one of the words of
    /// [`Identity::types`], or its number in braces. Behind the colon, `#` announces hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let text = text.trim();
        notation::parse(text).map_err(|why| IdentityError::Text(text.to_owned(), why))
    }
}

impl std::fmt::Display for Identity {
    /// Prints what [`Identity::from_str`] reads back as the same identity.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("%any"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Fqdn(name) if ambiguous_name(name) => write_typed(f, "fqdn", name),
            Self::Fqdn(name) => f.write_str(name),
            Self::Email(address) if ambiguous_address(address) => write_typed(f, "email", address),
            Self::Email(address) => f.write_str(address),
            Self::Dn(name) if name.to_string().contains('=') => write!(f, "{name}"),
            Self::Dn(name) => write!(f, "dn:{name}"),
            Self::KeyId(key) => {
                f.write_str("@#")?;
                write_hexadecimal(f, key)
            }
        }
    }
}

/// Writes a name behind its type. A number sign at the beginning would announce hexadecimal digits.
fn write_typed(f: &mut std::fmt::Formatter<'_>, kind: &str, name: &str) -> std::fmt::Result {
    if !name.starts_with('#') {
        return write!(f, "{kind}:{name}");
    }
    write!(f, "{kind}:#")?;
    write_hexadecimal(f, name.as_bytes())
}

fn write_hexadecimal(f: &mut std::fmt::Formatter<'_>, octets: &[u8]) -> std::fmt::Result {
    octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
}

fn ambiguous_name(name: &str) -> bool {
    name.parse::<Identity>() != Ok(Identity::Fqdn(name.to_owned()))
}

fn ambiguous_address(address: &str) -> bool {
    address.parse::<Identity>() != Ok(Identity::Email(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_identity_are_equal_and_hash_alike() {
        for (same, others) in [
            (
                vec![
                    "gw.example",
                    "GW.Example",
                    "gw.example.",
                    "fqdn:GW.EXAMPLE.",
                ],
                vec!["gw.example..", "email:gw.example", "keyid:gw.example"],
            ),
            (
                vec!["Carol@Example.org", "carol@example.org"],
                vec!["carol@example.org.", "fqdn:carol@example.org"],
            ),
            (
                vec!["O=Example  Org, CN=\" Moon\"", "O=example org, CN=moon"],
                vec!["CN=moon, O=example org", "O=exampleorg, CN=moon"],
            ),
            (vec!["keyid:abc", "@#616263"], vec!["keyid:ABC"]),
            (vec!["2001:db8::1", "2001:DB8:0::1"], vec!["2001:db8::2"]),
            (
                vec!["192.0.2.1"],
                vec!["::ffff:192.0.2.1", "fqdn:192.0.2.1"],
            ),
        ] {
            let read = |text: &&str| text.parse::<Identity>().unwrap();
            let same: Vec<_> = same.iter().map(read).collect();
            for one in &same {
                assert_eq!(*one, same[0]);
                assert!(one.accepts(&same[0]) && same[0].accepts(one), "{one}");
            }
            let mut set: HashSet<_> = same.iter().cloned().collect();
            assert_eq!(set.len(), 1, "{same:?}");
            for other in others.iter().map(read) {
                assert!(!same[0].accepts(&other), "{other}");
                assert!(set.insert(other));
            }
        }
    }

    #[test]
    fn the_spelling_of_a_pattern_does_not_count() {
        let accepts = |pattern: &str, id: &str| {
            let pattern: Identity = pattern.parse().unwrap();
            pattern.accepts(&id.parse().unwrap())
        };
        assert!(accepts("*.Example", "gw.example."));
        assert!(accepts("*.example.", "GW.EXAMPLE"));
        assert!(!accepts("*.example", ".example"));
        assert!(accepts("*@Example.org", "Carol@example.ORG"));
        assert!(accepts("O=example, CN=*", "O=Example, CN=Moon"));
        assert!(!accepts("O=example, CN=*", "O=Example, OU=Moon"));
    }

    #[test]
    fn an_arc_that_is_too_large_is_no_other_arc() {
        for text in ["1.2.99999999999=x", "1.2.4294967297=x", "/1.2.4294967296=x"] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
        for text in ["1.2.128=x", "1.2.4294967=x, CN=moon"] {
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn identities_come_back_from_text_and_from_payloads(identity in generators::identity()) {
            prop_assert_eq!(identity.to_string().parse(), Ok(identity.clone()));
            let payload = identity.to_payload().unwrap();
            prop_assert_eq!(Identity::from_payload(&payload), Ok(identity.clone()));
            prop_assert!(identity.accepts(&identity));
        }
    }

    /// Names that peers can send.
    #[test]
    fn every_name_is_printed_as_text_that_means_it() {
        let attribute = |kind: &[u8], tag: u8, value: &[u8]| {
            let value = [&[tag, value.len() as u8], value].concat();
            let kind = [&[6, kind.len() as u8], kind].concat();
            [&[0x30, (kind.len() + value.len()) as u8], &kind[..], &value].concat()
        };
        let name = |rdns: &[&[Vec<u8>]]| {
            let set = |rdn: &&[Vec<u8>]| {
                let content = rdn.concat();
                [&[0x31, content.len() as u8], &content[..]].concat()
            };
            let content = rdns.iter().map(set).collect::<Vec<_>>().concat();
            let der = [&[0x30, content.len() as u8], &content[..]].concat();
            Identity::from_payload(&Id::new(IdType::DER_ASN1_DN, der))
        };
        let cn = |tag, value: &[u8]| attribute(b"\x55\x04\x03", tag, value);
        let ou = |tag, value: &[u8]| attribute(b"\x55\x04\x0b", tag, value);
        let email = |value: &[u8]| attribute(b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01", 12, value);
        for (rdns, shown) in [
            (&[&[cn(12, b"a"), ou(12, b"b")][..]][..], "CN=a+OU=b"),
            (&[&[cn(12, b"a")], &[ou(12, b"b")]], "CN=a, OU=b"),
            (&[&[cn(12, b"a+OU=b")]], "CN=a\\+OU=b"),
            (&[&[cn(12, b"a\nOU=b")]], "CN=#0c06610a4f553d62"),
            (&[&[cn(12, b"")]], "CN=#0c00"),
            (&[&[cn(12, b" ")]], "CN=#0c0120"),
            (&[&[cn(12, b"#0c00")]], "CN=\\#0c00"),
            (&[&[cn(12, b"  ##0c00 #")]], "CN=  \\##0c00 #"),
            (&[&[cn(2, b"\x05")]], "CN=#020105"),
            (&[&[cn(12, b"\xff")]], "CN=#0c01ff"),
            (&[&[cn(20, b"\xe9")]], "CN=\u{e9}"),
            (&[&[email(b"\xc3\xa9")]], "E=#0c02c3a9"),
            (&[&[cn(12, b"a"), cn(19, b"a")]], "CN=#0c0161+CN=#130161"),
        ] {
            let name = name(rdns).unwrap();
            assert_eq!(name.to_string(), shown);
            assert_eq!(shown.parse(), Ok(name), "{shown}");
        }
        // No text stands for these.
        let malformed = Err(IdentityError::Malformed(IdType::DER_ASN1_DN));
        assert_eq!(name(&[]), malformed);
        assert_eq!(name(&[&[cn(12, b"a")], &[]]), malformed);
    }

    #[test]
    fn plus_and_number_sign_are_text_where_they_are_no_syntax() {
        let parse = |text: &str| text.parse::<Identity>().unwrap();
        assert_eq!(parse("CN=a+b").to_string(), "CN=a\\+b");
        assert_eq!(parse("CN=a\\+OU=b"), parse("CN=\"a+OU=b\""));
        assert_ne!(parse("CN=a\\+OU=b"), parse("CN=a+OU=b"));
        assert_eq!(parse("OU=b+CN=A"), parse("cn=a + ou=b"));
        assert_eq!(parse("CN=#1").to_string(), "CN=\\#1");
        assert!("CN=a+OU=".parse::<Identity>().is_err());
        assert!("CN=a+CN=a".parse::<Identity>().is_err());
        assert!(parse("CN=*+OU=b").accepts(&parse("OU=B+CN=moon")));
    }

    #[test]
    fn the_attributes_of_an_rdn_are_a_set() {
        // SET OF sorts by encoding: a shorter value comes first, and its string type is compared before it.
        let name = |first: &[u8], second: &[u8]| {
            let set = [&[0x31, (first.len() + second.len()) as u8], first, second].concat();
            DistinguishedName::from_der(&[&[0x30, set.len() as u8], &set[..]].concat()).unwrap()
        };
        let cn: &[u8] = &[0x30, 8, 6, 3, 0x55, 4, 3, 0x0c, 1, b'a'];
        let ou: &[u8] = &[0x30, 8, 6, 3, 0x55, 4, 11, 0x0c, 1, b'b'];
        let longer_cn: &[u8] = &[0x30, 9, 6, 3, 0x55, 4, 3, 0x0c, 2, b'A', b' '];
        assert_eq!(name(cn, ou), name(ou, longer_cn));
    }
}
