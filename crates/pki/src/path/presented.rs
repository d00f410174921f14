//! The names in a certificate that name constraints apply to (RFC 5280 §4.2.1.10).

use std::net::IpAddr;

use x509_cert::ext::pkix::name::GeneralName;

use crate::name::DistinguishedName;
use crate::octets::ip_address;

/// A name that a certificate has, or that a constraint is about. The two encode addresses in different ways.
#[derive(Clone)]
pub(super) enum ConstrainedName<Address> {
    Directory(DistinguishedName),
    Dns(String),
    Email(String),
    Uri(String),
    Ip(Address),
    Other,
}

/// A name of a certificate that constraints apply to.
pub(super) type Presented = ConstrainedName<IpAddr>;

impl<Address> ConstrainedName<Address> {
    /// Reads a name. Returns `None` if the name is malformed.
    pub(super) fn new(
        name: &GeneralName,
        address: impl FnOnce(&[u8]) -> Option<Address>,
    ) -> Option<Self> {
        Some(match name {
            GeneralName::DirectoryName(name) => {
                Self::Directory(DistinguishedName::from_rdns(name)?)
            }
            GeneralName::DnsName(name) => Self::Dns(name.as_str().to_ascii_lowercase()),
            GeneralName::Rfc822Name(name) => Self::Email(name.to_string()),
            GeneralName::UniformResourceIdentifier(name) => {
                Self::Uri(name.as_str().to_ascii_lowercase())
            }
            GeneralName::IpAddress(octets) => Self::Ip(address(octets.as_bytes())?),
            _ => Self::Other,
        })
    }
}

/// Returns the subject with its email addresses, and the alternative names. Returns `None` if one of the names is
/// malformed.
pub(super) fn presented(
    subject: &DistinguishedName,
    emails: impl Iterator<Item = String>,
    alternative_names: &[GeneralName],
) -> Option<Vec<Presented>> {
    let subject = Some(subject).filter(|subject| !subject.is_empty());
    let subject = subject.cloned().map(Presented::Directory).into_iter();
    let own = subject.chain(emails.map(Presented::Email)).map(Some);
    let others = alternative_names.iter();
    own.chain(others.map(|name| Presented::new(name, ip_address)))
        .collect()
}
