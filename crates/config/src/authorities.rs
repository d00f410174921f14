//! Reads the section `authorities`, the CRLs that it and the folder `x509crl` hold, and the OCSP responders that the
//! folder `x509ocsp` trusts. It does not check signatures; `ike` does when a peer's certificate needs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_ike::auth::CertificateUriBase;
use esplanade_pki::{AuthoritySources, Certificate, Crl, RevocationStore};

use super::credentials::{CredentialStore, all_in, certificates_of};
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include::read_bytes;
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, given, parts, read, read_list, report};

/// The largest file with CRLs. The CRLs of large public authorities have a few MiB.
const CRL_FILE_BYTES_MAX: u64 = 16 << 20;
/// The most characters of a URI.
const URI_LEN_MAX: usize = 1024;
/// The most bytes in all files with CRLs.
const CRL_BYTES_MAX: u64 = 128 << 20;

/// A section of `authorities`, for those who list them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    pub name: String,
    /// The subject of its certificate.
    pub subject: String,
    /// Its certificate's CRLs, files among them.
    pub crl_uris: Vec<String>,
    pub ocsp_uris: Vec<String>,
    pub cert_uri_base: Option<String>,
}

/// The section `authorities`, with the folders of CRLs and responders, as they were read.
pub(crate) struct AuthoritySections {
    pub revocation: RevocationStore,
    /// The places of our own certificates.
    pub uri_bases: Vec<CertificateUriBase>,
    pub listed: Vec<Authority>,
}

/// Collects CRLs while the configuration is read.
struct CrlReader<'a> {
    base: &'a Path,
    crls: Vec<Arc<Crl>>,
    bytes_left: u64,
}

/// Reads the authorities, all CRLs, and the trusted responders. They are needed if a connection
/// authenticates its peer by certificate.
pub(crate) fn authorities(
    node: &SectionNode,
    base: &Path,
    store: &CredentialStore,
    needed: bool,
    d: &mut Diagnostics,
) -> AuthoritySections {
    let mut reader = CrlReader {
        base,
        crls: Vec::new(),
        bytes_left: CRL_BYTES_MAX,
    };
    let (mut with_uri, mut uri_bases, mut listed) = (Vec::new(), Vec::new(), Vec::new());
    schema::check(node, &schema::AUTHORITIES, false, d);
    for section in node.sections() {
        if let Some(certificate) = authority_certificate(section, store, d) {
            let mut authority = Authority {
                name: section.name.value.clone(),
                subject: certificate.subject().to_string(),
                crl_uris: Vec::new(),
                ocsp_uris: Vec::new(),
                cert_uri_base: read(section, "cert_uri_base", d, http_uri),
            };
            with_uri.extend(sources(
                section,
                &certificate,
                &mut authority,
                &mut reader,
                d,
            ));
            let base = authority.cert_uri_base.clone();
            uri_bases.extend(base.map(|base| CertificateUriBase::new(certificate, base)));
            listed.push(authority);
        }
    }
    let mut responders = Vec::new();
    if needed {
        for path in all_in(base, "x509ocsp", d) {
            match certificates_of(&path) {
                Ok(certificates) => responders.extend(certificates),
                Err((what, help)) => {
                    let what = format!(
                        "OCSP responder {}: {what}",
                        quoted(&path.display().to_string())
                    );
                    d.push(Diagnostic::warning(what).help(help));
                }
            }
        }
        for path in all_in(base, "x509crl", d) {
            let is_too_large = reader.is_too_large(&path);
            if let Err((what, help)) = reader.read(&path, d) {
                let what = format!("CRL {}: {what}", quoted(&path.display().to_string()));
                // As in x509ca, a file of another kind does not stop the gateway. A CRL that is left out for its size would
                // revoke nobody.
                let diagnostic = match is_too_large {
                    true => Diagnostic::error(what),
                    false => Diagnostic::warning(what),
                };
                d.push(diagnostic.help(help));
            }
        }
    }
    let mut store = RevocationStore::new(reader.crls);
    for sources in with_uri {
        store.expect(sources);
    }
    for responder in &responders {
        if let Err(what) = store.trust_responder(responder.der()) {
            let what = format!("OCSP responder \"{}\": {what}", responder.subject());
            d.push(Diagnostic::warning(what).help("its key must be of a kind that signs answers"));
        }
    }
    AuthoritySections {
        revocation: store,
        uri_bases,
        listed,
    }
}

/// Reads the certificate of an authority.
fn authority_certificate(
    node: &SectionNode,
    store: &CredentialStore,
    d: &mut Diagnostics,
) -> Option<Certificate> {
    schema::check(node, &schema::AUTHORITY, false, d);
    for (key, help) in [
        (
            "file",
            "name the file in `cacert`, which also takes an absolute path",
        ),
        (
            "handle",
            "export the certificate to a file, and name the file in `cacert`",
        ),
        (
            "slot",
            "export the certificate to a file, and name the file in `cacert`",
        ),
        (
            "module",
            "export the certificate to a file, and name the file in `cacert`",
        ),
    ] {
        if let Some(entry) = given(node, key) {
            let bad = ValueError::new("certificates come from files in `cacert` only", help);
            report(key, bad, entry.value.at, d);
        }
    }
    let Some(entry) = given(node, "cacert") else {
        let what = format!("the authority {} has no `cacert`", quoted(&node.name.value));
        let help = "name the file with its certificate, which lies in x509ca/";
        d.push(Diagnostic::error(what).at(node.name.at).help(help));
        return None;
    };
    let [file] = parts("cacert", entry, d)[..] else {
        let bad = ValueError::new("an authority has one certificate", "name one file");
        report("cacert", bad, entry.value.at, d);
        return None;
    };
    let certificates = store.certificates("x509ca", file, entry.value.at, d);
    certificates.into_iter().next()
}

/// Returns the places where the status of the authority's certificates is to be had, if it names any.
fn sources(
    node: &SectionNode,
    certificate: &Certificate,
    authority: &mut Authority,
    reader: &mut CrlReader<'_>,
    d: &mut Diagnostics,
) -> Option<AuthoritySources> {
    let places = read_list(node, "crl_uris", d, crl_place);
    let responders = read_list(node, "ocsp_uris", d, http_uri);
    if places.is_none() && responders.is_none() {
        return None;
    }
    let mut uris = Vec::new();
    for place in places.unwrap_or_default() {
        let path = match place {
            CrlPlace::Uri(uri) => {
                authority.crl_uris.push(uri.clone());
                uris.push(uri);
                continue;
            }
            CrlPlace::File(path) => path,
        };
        authority
            .crl_uris
            .push(format!("file://{}", path.display()));
        if let Err((what, help)) = reader.read(&path, d) {
            let what = format!("{}: {what}", quoted(&path.display().to_string()));
            let at = given(node, "crl_uris")?.value.at;
            report("crl_uris", ValueError::new(what, help), at, d);
        }
    }
    authority.ocsp_uris = responders.unwrap_or_default();
    Some(AuthoritySources {
        authority: certificate.subject().clone(),
        crls: uris,
        responders: authority.ocsp_uris.clone(),
    })
}

/// The place of a CRL.
#[derive(Debug, PartialEq, Eq)]
enum CrlPlace {
    File(PathBuf),
    Uri(String),
}

fn crl_place(text: &str) -> ValueResult<CrlPlace> {
    match text.starts_with("file:") {
        true => crl_path(text).map(CrlPlace::File),
        false => http_uri(text).map(CrlPlace::Uri),
    }
}

/// Reads a URI of the scheme `http` (RFC 9110 §4.2.1). What it gives is signed, so that it needs no TLS.
fn http_uri(text: &str) -> ValueResult<String> {
    let bad =
        |what: &str, help: &str| Err(ValueError::new(format!("{} {what}", quoted(text)), help));
    let example = "write it as http://ca.example.org/ca.crl";
    let (scheme, rest) = match text.split_once(':') {
        Some(parts) => parts,
        None => return bad("is no URI", example),
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return bad(
            "has a scheme that is not supported",
            "use `http:`, or `file:` for a CRL: what they give is signed, so that it needs no TLS",
        );
    }
    let host = rest
        .strip_prefix("//")
        .and_then(|rest| rest.split('/').next());
    let plain = text.len() <= URI_LEN_MAX && text.chars().all(|c| c.is_ascii_graphic());
    match host.is_some_and(|host| !host.is_empty()) && plain {
        true => Ok(text.to_owned()),
        false => bad("is no URI of a web server", example),
    }
}

impl CrlReader<'_> {
    fn limit(&self) -> u64 {
        CRL_FILE_BYTES_MAX.min(self.bytes_left)
    }

    fn is_too_large(&self, path: &Path) -> bool {
        let metadata = std::fs::metadata(self.base.join(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > self.limit())
    }

    /// Reads the CRLs of one file: PEM with one or more, or DER with one.
    fn read(&mut self, path: &Path, d: &mut Diagnostics) -> Result<(), (String, String)> {
        let path = self.base.join(path);
        d.sources.note_read(&path);
        let bytes = read_bytes(&path, self.limit())
            .map_err(|problem| (problem.what, problem.help.to_owned()))?;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        let help = "write the CRL in PEM (`-----BEGIN X509 CRL-----`) or DER";
        let found =
            Crl::from_file_content(&bytes).map_err(|error| (error.to_string(), help.to_owned()))?;
        self.crls.extend(found.into_iter().map(Arc::new));
        Ok(())
    }
}

/// Reads the path in a URI of the scheme `file` (RFC 8089).
fn crl_path(text: &str) -> ValueResult<PathBuf> {
    let bad =
        |what: &str, help: &str| Err(ValueError::new(format!("{} {what}", quoted(text)), help));
    let example = "write it as file:///etc/esplanade/ca.crl";
    let rest = text.strip_prefix("file:").unwrap_or(text);
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    match path.starts_with('/') {
        true => match percent_decoded(path) {
            Some(path) => Ok(PathBuf::from(path)),
            None => bad(
                "has a `%` without two hexadecimal digits",
                "write `%25` for `%`",
            ),
        },
        false => bad("has no absolute path of this host", example),
    }
}

/// Decodes octets that are written as `%20` (RFC 3986 §2.1).
fn percent_decoded(text: &str) -> Option<String> {
    let mut octets = Vec::new();
    let mut parts = text.split('%');
    octets.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let digit = |at: usize| {
            digits
                .as_bytes()
                .get(at)
                .copied()
                .filter(u8::is_ascii_hexdigit)
        };
        digit(0).and(digit(1))?;
        octets.push(u8::from_str_radix(digits, 16).ok()?);
        octets.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_web_servers() {
        let long = format!("http://crl.example.org/{}", "a".repeat(1024));
        for (text, right) in [
            ("http://crl.example.org/ca.crl", true),
            ("HTTP://[2001:db8::1]:8080/?a=b", true),
            ("https://crl.example.org/ca.crl", false),
            ("ldap://crl.example.org/", false),
            ("http:crl.example.org", false),
            ("http:///ca.crl", false),
            ("http://crl.example.org/a b", false),
            (&long, false),
        ] {
            let uri = right.then(|| CrlPlace::Uri(text.to_owned()));
            assert_eq!(crl_place(text).ok(), uri, "{text}");
        }
    }

    #[test]
    fn uris_of_files() {
        for (text, path) in [
            ("file:///etc/ca.crl", Some("/etc/ca.crl")),
            ("file:/etc/ca.crl", Some("/etc/ca.crl")),
            ("file://localhost/etc/a%20b%c3%a9", Some("/etc/a bé")),
            ("file://host/etc/ca.crl", None),
            ("file:ca.crl", None),
            ("file:///etc/%2", None),
            ("file:///etc/%+1", None),
            ("file:///etc/%ff", None),
            ("ftp://crl.example.org/ca.crl", None),
            ("/etc/ca.crl", None),
        ] {
            let place = path.map(|path| CrlPlace::File(PathBuf::from(path)));
            assert_eq!(crl_place(text).ok(), place, "{text}");
        }
    }
}
