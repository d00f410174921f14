//! Reads the section `authorities`, and the CRLs that it and the folder `x509crl` hold. It does not
//! check signatures; `ike` does when a peer's certificate needs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_ike::auth::{Crl, CrlStore};

use super::credentials::{CredentialStore, all_in};
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include::read_bytes;
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, given, parts, read_list, report};

/// The largest file with CRLs. The CRLs of large public authorities have a few MiB.
const CRL_FILE_BYTES_MAX: u64 = 16 << 20;
/// The most bytes in all files with CRLs.
const CRL_BYTES_MAX: u64 = 128 << 20;

/// Collects CRLs while the configuration is read.
struct CrlReader<'a> {
    base: &'a Path,
    crls: Vec<Arc<Crl>>,
    bytes_left: u64,
}

/// Reads the authorities and all CRLs. The CRLs are needed if a connection authenticates its peer
/// by certificate.
pub(super) fn crls(
    node: &SectionNode,
    base: &Path,
    store: &CredentialStore,
    needed: bool,
    d: &mut Diagnostics,
) -> CrlStore {
    let mut reader = CrlReader {
        base,
        crls: Vec::new(),
        bytes_left: CRL_BYTES_MAX,
    };
    let mut with_uri = Vec::new();
    schema::check(node, &schema::AUTHORITIES, false, d);
    for section in node.sections() {
        if let Some(certificate) = authority(section, &mut reader, store, d) {
            with_uri.push(certificate);
        }
    }
    if needed {
        for path in all_in(base, "x509crl", d) {
            // As in x509ca, a file of another kind does not stop the gateway.
            if let Err((what, help)) = reader.read(&path, d) {
                let what = format!("CRL {}: {what}", quoted(&path.display().to_string()));
                d.push(Diagnostic::warning(what).help(help));
            }
        }
    }
    let mut store = CrlStore::new(reader.crls);
    for subject in &with_uri {
        store.expect(subject);
    }
    store
}

/// Reads one authority. Returns its name if it has a URI.
fn authority(
    node: &SectionNode,
    reader: &mut CrlReader<'_>,
    store: &CredentialStore,
    d: &mut Diagnostics,
) -> Option<esplanade_ike::auth::DistinguishedName> {
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
    if let Some(entry) = given(node, "ocsp_uris") {
        let bad = ValueError::new("OCSP is not supported yet", "use `crl_uris` with `file:`");
        report("ocsp_uris", bad, entry.value.at, d);
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
    let paths = read_list(node, "crl_uris", d, crl_path).unwrap_or_default();
    let at = given(node, "crl_uris")?.value.at;
    for path in &paths {
        if let Err((what, help)) = reader.read(path, d) {
            let what = format!("{}: {what}", quoted(&path.display().to_string()));
            report("crl_uris", ValueError::new(what, help), at, d);
        }
    }
    Some(certificates.first()?.subject().clone())
}

impl CrlReader<'_> {
    /// Reads the CRLs of one file: PEM with one or more, or DER with one.
    fn read(&mut self, path: &Path, d: &mut Diagnostics) -> Result<(), (String, String)> {
        let path = self.base.join(path);
        d.sources.note_read(&path);
        let limit = CRL_FILE_BYTES_MAX.min(self.bytes_left);
        let bytes =
            read_bytes(&path, limit).map_err(|problem| (problem.what, problem.help.to_owned()))?;
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
    let Some(rest) = text.strip_prefix("file:") else {
        return match text.contains(':') {
            true => bad(
                "has another scheme than `file`, which is not supported yet",
                example,
            ),
            false => bad("is no URI", example),
        };
    };
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
            assert_eq!(crl_path(text).ok(), path.map(PathBuf::from), "{text}");
        }
    }
}
