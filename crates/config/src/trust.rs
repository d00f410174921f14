//! Finds the authorities that a connection trusts when its peer shows a certificate.

use esplanade_pki::{Authorities, Certificate, FileError};

use super::credentials::CredentialStore;
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::own_credentials::ConnectionFiles;
use super::tree::SectionNode;
use super::value::{given, place};

/// Makes the authorities of a `remote` section from the certificates that `cacerts` names, or else from all of x509ca/.
/// Adds to `files` what lies above those of `cacerts`.
pub(crate) fn authorities(
    section: &SectionNode,
    certificates: &[Certificate],
    store: &mut CredentialStore,
    files: &mut ConnectionFiles,
    d: &mut Diagnostics,
) -> Result<Authorities, FileError> {
    if given(section, "cacerts").is_none() {
        let trusted = Authorities::new(certificates)?;
        for what in rootless(&trusted) {
            let help = "put the certificate of the authority at the top into x509ca/ too, or name this one in `cacerts`, \
                        which ends paths there";
            store.warn_once(what, help, d);
        }
        return Ok(trusted);
    }
    let above = issuers_above(certificates, &store.authorities(d));
    files.certificates.extend(above.iter().cloned());
    let trusted = Authorities::named(certificates, &above)?;
    for what in rootless(&trusted) {
        let help = "add the certificate of the authority at the top, here or to x509ca/";
        let warning = Diagnostic::warning(format!("`cacerts`: {what}")).help(help);
        d.push(warning.at(place(section, "cacerts")));
    }
    Ok(trusted)
}

fn rootless(trusted: &Authorities) -> Vec<String> {
    let rootless = trusted.rootless().into_iter();
    let texts = rootless.map(|(subject, issuer)| {
        format!(
            "no path ends at the authority {}: it is not self-signed, and no self-signed one is known above its issuer {}",
            quoted(&subject.to_string()),
            quoted(&issuer.to_string())
        )
    });
    texts.collect()
}

/// Returns those of `known` that have issued one of these, or one above.
fn issuers_above(certificates: &[Certificate], known: &[Certificate]) -> Vec<Certificate> {
    let mut found = certificates.to_vec();
    let mut at = 0;
    while let Some(below) = found.get(at).cloned() {
        for issuer in known.iter().filter(|one| one.has_issued(&below)) {
            if !found.iter().any(|one| one.der() == issuer.der()) {
                found.push(issuer.clone());
            }
        }
        at += 1;
    }
    found.split_off(certificates.len())
}
