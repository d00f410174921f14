//! The names that a certificate gives its subject: the subject itself, and the alternative names (RFC 5280 §4.2.1.6).

use std::borrow::Cow;
use std::net::IpAddr;

use x509_cert::ext::pkix::name::GeneralName;

use crate::name::DistinguishedName;
use crate::octets::ip_address;

/// A name that a certificate can have, in the form in which names are compared:
/// - Domain names are in ASCII lower case (RFC 4343), without the dot of the root at the end.
/// - Email addresses are in ASCII lower case. RFC 5321 §2.4 leaves the case of the part before the @ to its host. No
///   mail system has two users who differ in nothing else.
/// - Distinguished names are compared by RFC 5280 §7.1, see [`DistinguishedName`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubjectName<'a>(Kind<'a>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind<'a> {
    Ip(IpAddr),
    Domain(Cow<'a, str>),
    Email(Cow<'a, str>),
    Directory(Cow<'a, DistinguishedName>),
}

fn lower(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

impl<'a> SubjectName<'a> {
    pub fn ip(ip: IpAddr) -> Self {
        Self(Kind::Ip(ip))
    }

    pub fn domain(name: &'a str) -> Self {
        let relative = name.strip_suffix('.').filter(|rest| !rest.is_empty());
        Self(Kind::Domain(lower(relative.unwrap_or(name))))
    }

    pub fn email(address: &'a str) -> Self {
        Self(Kind::Email(lower(address)))
    }

    pub fn directory(name: &'a DistinguishedName) -> Self {
        Self(Kind::Directory(Cow::Borrowed(name)))
    }

    pub fn into_owned(self) -> SubjectName<'static> {
        SubjectName(match self.0 {
            Kind::Ip(ip) => Kind::Ip(ip),
            Kind::Domain(name) => Kind::Domain(Cow::Owned(name.into_owned())),
            Kind::Email(address) => Kind::Email(Cow::Owned(address.into_owned())),
            Kind::Directory(name) => Kind::Directory(Cow::Owned(name.into_owned())),
        })
    }

    /// Says whether this name, as a pattern, allows the other one. Patterns have a leading "*" in a domain name or an
    /// address, or "*" as a value in a distinguished name.
    pub fn accepts(&self, other: &SubjectName<'_>) -> bool {
        match (&self.0, &other.0) {
            (Kind::Domain(pattern), Kind::Domain(name))
            | (Kind::Email(pattern), Kind::Email(name)) => text_matches(pattern, name),
            (Kind::Directory(pattern), Kind::Directory(name)) => pattern.matches(name),
            (pattern, name) => pattern == name,
        }
    }

    pub(crate) fn as_directory(&self) -> Option<&DistinguishedName> {
        match &self.0 {
            Kind::Directory(name) => Some(name),
            _ => None,
        }
    }

    /// Reads an alternative name, if it is of a kind that is supported.
    pub(crate) fn from_alternative_name(name: &GeneralName) -> Option<SubjectName<'static>> {
        Some(match name {
            GeneralName::DnsName(name) => SubjectName::domain(name.as_str()).into_owned(),
            GeneralName::Rfc822Name(address) => SubjectName::email(address.as_str()).into_owned(),
            GeneralName::DirectoryName(name) => {
                let name = DistinguishedName::from_rdns(name)?;
                SubjectName(Kind::Directory(Cow::Owned(name)))
            }
            GeneralName::IpAddress(octets) => SubjectName::ip(ip_address(octets.as_bytes())?),
            _ => return None,
        })
    }
}

fn text_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        // The star stands for at least one character.
        Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
        None => pattern == name,
    }
}
