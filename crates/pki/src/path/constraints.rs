//! Name constraints (RFC 5280 §4.2.1.10).

use std::net::IpAddr;

use x509_cert::ext::pkix::constraints::name::GeneralSubtree;

use super::parsed::Parsed;
use super::presented::{ConstrainedName, Presented};
use crate::limit::{Exhausted, Limit};

/// The names that one authority permits and excludes.
pub(super) struct Constraints {
    permitted: Vec<Subtree>,
    excluded: Vec<Subtree>,
}

/// The subtree of a constraint, with the octets of an address and its mask.
type Subtree = ConstrainedName<Vec<u8>>;

/// The spellings of a mailbox or a host that a constraint is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// RFC 5280 §7.5: the local part of a mailbox as it is, hosts without regard to case.
    Exact,
    /// All that somebody could take for the same. Identities of peers are compared without regard to case, so that an
    /// exclusion must not depend on it.
    Any,
}

impl Constraints {
    /// Reads the constraints of an authority. Returns `None` if a constraint cannot be enforced.
    pub(super) fn of(authority: &Parsed) -> Option<Self> {
        let constraints = authority.extensions.name_constraints.as_ref();
        let read = |subtrees: Option<&Vec<GeneralSubtree>>| {
            let subtrees = subtrees.map_or(&[][..], Vec::as_slice).iter();
            subtrees.map(subtree).collect::<Option<Vec<_>>>()
        };
        Some(Self {
            permitted: read(constraints.and_then(|list| list.permitted_subtrees.as_ref()))?,
            excluded: read(constraints.and_then(|list| list.excluded_subtrees.as_ref()))?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.permitted.is_empty() && self.excluded.is_empty()
    }

    /// Checks the names of a certificate (RFC 5280 §6.1.3 (b) and (c)). `limit` bounds the comparisons.
    pub(super) fn allow(&self, certificate: &Parsed, limit: &mut Limit) -> Result<bool, Exhausted> {
        let Some(names) = &certificate.names else {
            return Ok(false);
        };
        limit.take(names.len() * (self.permitted.len() + self.excluded.len()))?;
        Ok(names.iter().all(|name| self.allow_name(name)))
    }

    fn allow_name(&self, name: &Presented) -> bool {
        // A name that cannot be compared is refused by any constraint of its kind.
        let excluded = |subtree: &Subtree| {
            subtree
                .contains(name, Spelling::Any)
                .is_some_and(|within| within.unwrap_or(true))
        };
        if self.excluded.iter().any(excluded) {
            return false;
        }
        let mut of_kind = self
            .permitted
            .iter()
            .filter_map(|subtree| subtree.contains(name, Spelling::Exact));
        match of_kind.next() {
            None => true,
            Some(first) => std::iter::once(first)
                .chain(of_kind)
                .any(|within| within.unwrap_or(false)),
        }
    }
}

/// Reads one subtree. Returns `None` if the constraint cannot be enforced.
fn subtree(subtree: &GeneralSubtree) -> Option<Subtree> {
    if subtree.minimum != 0 || subtree.maximum.is_some() {
        return None;
    }
    let network = |octets: &[u8]| matches!(octets.len(), 8 | 32).then(|| octets.to_vec());
    Subtree::new(&subtree.base, network)
}

impl Subtree {
    /// Tells whether the subtree contains the name. Returns `None` if the name is of another kind, and `Some(None)` if
    /// the two cannot be compared.
    fn contains(&self, name: &Presented, spelling: Spelling) -> Option<Option<bool>> {
        Some(match (self, name) {
            (Self::Directory(base), Presented::Directory(name)) => Some(name.is_within(base)),
            (Self::Dns(base), Presented::Dns(name)) => {
                Some(domain_within(name, spelling.host(base)))
            }
            (Self::Email(base), Presented::Email(name)) => email_within(name, base, spelling),
            (Self::Uri(base), Presented::Uri(name)) => {
                host_of_uri(name).map(|host| host_within(spelling.host(&host), spelling.host(base)))
            }
            (Self::Ip(base), Presented::Ip(address)) => Some(ip_within(*address, base)),
            (Self::Other, Presented::Other) => None,
            _ => return None,
        })
    }
}

/// Accepts the domain itself and all domains below it. A base with a leading dot accepts only those below.
fn domain_within(name: &str, base: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.strip_suffix(base) {
        Some("") => true,
        Some(rest) => base.is_empty() || base.starts_with('.') || rest.ends_with('.'),
        None => false,
    }
}

/// Accepts one host. A base with a leading dot accepts all hosts below that domain.
fn host_within(host: &str, base: &str) -> bool {
    match base.starts_with('.') {
        true => host.len() > base.len() && host.ends_with(base),
        false => host == base,
    }
}

impl Spelling {
    /// A final dot only says that the name is complete.
    fn host(self, host: &str) -> &str {
        match self {
            Self::Exact => host,
            Self::Any => host.strip_suffix('.').unwrap_or(host),
        }
    }

    fn same_local_part(self, one: &str, other: &str) -> bool {
        match self {
            Self::Exact => one == other,
            // An email address in a subject can have other letters than those of ASCII.
            Self::Any => one.to_lowercase() == other.to_lowercase(),
        }
    }
}

/// Accepts one mailbox, or all mailboxes of a host. A base with a leading dot accepts those of all hosts of a domain.
fn email_within(name: &str, base: &str, spelling: Spelling) -> Option<bool> {
    let (local, host) = name.rsplit_once('@')?;
    let host = spelling.host(host).to_ascii_lowercase();
    Some(match base.rsplit_once('@') {
        Some((base_local, base_host)) => {
            spelling.same_local_part(local, base_local)
                && host.eq_ignore_ascii_case(spelling.host(base_host))
        }
        None => host_within(&host, spelling.host(&base.to_ascii_lowercase())),
    })
}

/// Returns the host of a URI, or `None` if the URI has no host name. Constraints do not cover addresses
/// (RFC 5280 §4.2.1.10).
fn host_of_uri(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    if host.starts_with('[') {
        return None;
    }
    let host = host.split(':').next()?;
    let is_name = !host.is_empty() && host.parse::<IpAddr>().is_err();
    is_name.then(|| host.to_owned())
}

fn ip_within(address: IpAddr, base: &[u8]) -> bool {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    // A constraint has two addresses of the same IP version.
    if base.len() != 2 * octets.len() {
        return false;
    }
    let (network, mask) = base.split_at(octets.len());
    let mut parts = octets.iter().zip(network).zip(mask);
    parts.all(|((octet, network), mask)| octet & mask == network & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn email(address: &str) -> Presented {
        Presented::Email(address.to_owned())
    }

    fn constraints(permitted: &[&str], excluded: &[&str]) -> Constraints {
        let subtrees = |list: &[&str]| {
            let list = list.iter().map(|text| Subtree::Email((*text).to_owned()));
            list.collect()
        };
        Constraints {
            permitted: subtrees(permitted),
            excluded: subtrees(excluded),
        }
    }

    /// Identities are compared without regard to case, so that each of these proves `root@example.org`.
    #[test]
    fn an_excluded_mailbox_is_excluded_in_every_spelling() {
        for base in ["root@example.org", "ROOT@Example.Org", "root@example.org."] {
            let excluded = constraints(&[], &[base]);
            for name in [
                "root@example.org",
                "Root@example.org",
                "rOOT@EXAMPLE.org",
                "root@example.org.",
            ] {
                assert!(!excluded.allow_name(&email(name)), "{name}, {base}");
            }
            assert!(excluded.allow_name(&email("carol@example.org")));
            assert!(excluded.allow_name(&email("root@sub.example.org")));
        }
        let host = constraints(&[], &["example.org"]);
        assert!(!host.allow_name(&email("Carol@EXAMPLE.org.")));
        let domain = constraints(&[], &[".example.org"]);
        assert!(!domain.allow_name(&email("carol@sub.EXAMPLE.org.")));
    }

    #[test]
    fn a_final_dot_leaves_no_exclusion() {
        for (base, host) in [
            ("example.org", "example.org."),
            ("example.org.", "example.org"),
        ] {
            let excluded = Constraints {
                permitted: Vec::new(),
                excluded: vec![Subtree::Uri(base.to_owned()), Subtree::Dns(base.to_owned())],
            };
            let uri = Presented::Uri(format!("https://{host}/"));
            assert!(!excluded.allow_name(&uri), "{host}");
            assert!(
                !excluded.allow_name(&Presented::Dns(host.to_owned())),
                "{host}"
            );
        }
    }

    /// RFC 5280 §7.5.
    #[test]
    fn a_permitted_mailbox_has_an_exact_local_part() {
        let permitted = constraints(&["root@example.org"], &[]);
        assert!(permitted.allow_name(&email("root@EXAMPLE.org")));
        for name in [
            "Root@example.org",
            "root@example.org.",
            "root@other.example",
        ] {
            assert!(!permitted.allow_name(&email(name)), "{name}");
        }
        assert!(!constraints(&["example.org"], &[]).allow_name(&email("root@example.org.")));
    }
}
