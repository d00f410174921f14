//! Identities, as configured and as the ID payload carries them (RFC 7296 section 3.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::Name;
use crate::wire::{Id, IdType};

/// Who a party says it is. In a configuration it may be a pattern: [`Identity::Any`], a
/// leading "*" in a name or address ("*.example.org", "*@example.org"), or "*" as a value in a
/// distinguished name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Any,
    Ip(IpAddr),
    Fqdn(String),
    Email(String),
    Dn(Name),
    KeyId(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("identity type {0} is not supported")]
    Type(IdType),
    #[error("malformed {0} identity")]
    Malformed(IdType),
    #[error("\"{0}\" is not an identity: {1}")]
    Text(String, &'static str),
}

impl Identity {
    /// Reads an ID payload.
    pub fn from_payload(id: &Id) -> Result<Self, IdentityError> {
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
            IdType::DER_ASN1_DN => Name::from_der(&id.data).map(Self::Dn).ok_or_else(malformed),
            IdType::KEY_ID if id.data.is_empty() => Err(malformed()),
            IdType::KEY_ID => Ok(Self::KeyId(id.data.clone())),
            other => Err(IdentityError::Type(other)),
        }
    }

    /// The ID payload for this identity; None for [`Identity::Any`], which nobody can be.
    pub fn to_payload(&self) -> Option<Id> {
        Some(match self {
            Self::Any => return None,
            Self::Ip(IpAddr::V4(ip)) => Id::new(IdType::IPV4_ADDR, ip.octets().to_vec()),
            Self::Ip(IpAddr::V6(ip)) => Id::new(IdType::IPV6_ADDR, ip.octets().to_vec()),
            Self::Fqdn(name) => Id::new(IdType::FQDN, name.clone().into_bytes()),
            Self::Email(address) => Id::new(IdType::RFC822_ADDR, address.clone().into_bytes()),
            Self::Dn(name) => Id::new(IdType::DER_ASN1_DN, name.der().to_vec()),
            Self::KeyId(key) => Id::new(IdType::KEY_ID, key.clone()),
        })
    }

    /// Whether `self`, as configured, allows the identity that a peer presents.
    pub fn accepts(&self, presented: &Self) -> bool {
        match (self, presented) {
            (_, Self::Any) => false,
            (Self::Any, _) => true,
            (Self::Fqdn(pattern), Self::Fqdn(name)) | (Self::Email(pattern), Self::Email(name)) => {
                text_matches(pattern, name)
            }
            (Self::Dn(pattern), Self::Dn(name)) => pattern.matches(name),
            (ours, theirs) => ours == theirs,
        }
    }

    /// How exactly [`Identity::accepts`] matches: prefer the connection with the greatest value.
    pub fn precision(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Fqdn(pattern) | Self::Email(pattern) if pattern.starts_with('*') => 1,
            Self::Dn(name) if name.has_wildcard() => 1,
            _ => 2,
        }
    }
}

fn text_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        // At least one character stands for the star.
        Some(suffix) => {
            name.len() > suffix.len()
                && name
                    .get(name.len() - suffix.len()..)
                    .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => pattern.eq_ignore_ascii_case(name),
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    /// The notation of swanctl.conf: `%any`; an address; `name.example.org` or `@name.example.org`;
    /// `user@example.org` or `@@user@example.org`; a distinguished name; `@#` and hexadecimal
    /// digits for a key ID; or a type before a colon (`ipv4`, `ipv6`, `fqdn`, `dns`, `email`,
    /// `rfc822`, `dn`, `asn1dn`, `keyid`).
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let text = text.trim();
        let error = |why| IdentityError::Text(text.to_owned(), why);
        if matches!(text, "" | "%any" | "%any4" | "%any6" | "*") {
            return Ok(Self::Any);
        }
        if let Some((kind, value)) = text.split_once(':')
            && let Some(identity) = typed(kind, value)
        {
            return identity.map_err(error);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        if let Some(digits) = text.strip_prefix("@#") {
            let key = hexadecimal(digits).ok_or_else(|| error("not hexadecimal digits"))?;
            return Ok(Self::KeyId(key));
        }
        if let Some(address) = text.strip_prefix("@@") {
            return plain(address).map(Self::Email).map_err(error);
        }
        if let Some(name) = text.strip_prefix('@') {
            return plain(name).map(Self::Fqdn).map_err(error);
        }
        if text.contains('=') {
            return Name::parse(text)
                .map(Self::Dn)
                .ok_or_else(|| error("not a distinguished name"));
        }
        let make = if text.contains('@') {
            Self::Email
        } else {
            Self::Fqdn
        };
        plain(text).map(make).map_err(error)
    }
}

/// `kind:value`; None if `kind` is no type, so that an IPv6 address is not taken for one.
fn typed(kind: &str, value: &str) -> Option<Result<Identity, &'static str>> {
    Some(match kind {
        "ipv4" | "ipv6" => value
            .parse::<IpAddr>()
            .ok()
            .filter(|ip| ip.is_ipv4() == (kind == "ipv4"))
            .map(Identity::Ip)
            .ok_or("not an address of that family"),
        "fqdn" | "dns" => plain(value).map(Identity::Fqdn),
        "email" | "rfc822" => plain(value).map(Identity::Email),
        "dn" | "asn1dn" => Name::parse(value)
            .map(Identity::Dn)
            .ok_or("not a distinguished name"),
        "keyid" => match value.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits).ok_or("not hexadecimal digits"),
            None if value.is_empty() => Err("empty"),
            None => Ok(value.as_bytes().to_vec()),
        }
        .map(Identity::KeyId),
        _ => return None,
    })
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

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    (!pairs.is_empty()).then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

impl std::fmt::Display for Identity {
    /// Prints what [`Identity::from_str`] reads back as the same identity.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("%any"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Fqdn(name) if ambiguous_name(name) => write!(f, "fqdn:{name}"),
            Self::Fqdn(name) => f.write_str(name),
            Self::Email(address) if ambiguous_address(address) => write!(f, "email:{address}"),
            Self::Email(address) => f.write_str(address),
            Self::Dn(name) if name.to_string().contains('=') => write!(f, "{name}"),
            Self::Dn(name) => write!(f, "dn:{name}"),
            Self::KeyId(key) => {
                f.write_str("@#")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

fn ambiguous_name(name: &str) -> bool {
    name.parse::<Identity>() != Ok(Identity::Fqdn(name.to_owned()))
}

fn ambiguous_address(address: &str) -> bool {
    address.parse::<Identity>() != Ok(Identity::Email(address.to_owned()))
}
