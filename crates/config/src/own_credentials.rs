//! Reads the certificates and public keys of a `local` section, and finds their private keys. It does not choose among
//! them: the peer's requests do.

use esplanade_ike::auth::{Identity, SchemeRules};
use esplanade_ike::config::Credential;
use esplanade_pki::{Certificate, KeyPurposes, PublicKey};
use esplanade_tokens::TokenPlace;

use super::credentials::CredentialStore;
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::schema;
use super::source::Location;
use super::tree::SectionNode;
use super::value::{ValueError, given, parts, place, refuse, report};

/// The certificates and keys of other files than those of the section.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFiles {
    pub certificates: Vec<Certificate>,
    pub keys: Vec<PublicKey>,
}

impl ConnectionFiles {
    /// The content of all of them.
    pub fn into_der(self) -> Vec<Vec<u8>> {
        let certificates = self.certificates.iter().map(Certificate::der);
        let keys = self.keys.iter().map(PublicKey::der);
        certificates.chain(keys).map(<[u8]>::to_vec).collect()
    }
}

/// The public part of a credential, and its place in the configuration.
enum Own {
    /// The place is that of a certificate on a token.
    Chain(Vec<Certificate>, Location, Option<TokenPlace>),
    Key(PublicKey, Location),
}

/// Reads all credentials of the section: those of `certs`, then those of `pubkeys`. Without either it takes the
/// certificates in x509/ that name the identity, or else a PKCS#12 file of the secrets. A
/// certificate on a token that is not read yet is left out. Returns `None` if there is none, or if one was refused. Adds what was read to `files`.
pub(crate) fn own_credentials(
    section: &SectionNode,
    id: &Identity,
    signatures: &SchemeRules,
    connection: &str,
    store: &mut CredentialStore,
    files: &mut ConnectionFiles,
    d: &mut Diagnostics,
) -> Option<Vec<Credential>> {
    let errors = d.errors();
    let (own, absent) = find(section, id, connection, store, d);
    check_names(section, id, &own, d);
    let mut credentials = Vec::new();
    for one in own {
        let credential = match one {
            Own::Chain(chain, at, place) => {
                warn_of_purposes(&chain, at, d);
                warn_of_signatures(&chain, at, d);
                let known = [store.authorities(d), files.certificates.clone()].concat();
                let credential = store.credential(chain, place.as_ref(), at, d);
                let attributes = store.attribute_certificates(d);
                credential.map(|credential| {
                    let credential = credential.with_authorities(&known);
                    credential.with_attributes(&attributes)
                })
            }
            Own::Key(key, at) => {
                files.keys.push(key.clone());
                store.credential_of_key(key, at, d)
            }
        };
        let Some(credential) = credential else {
            continue;
        };
        files.certificates.extend(credential.chain().to_vec());
        match credential.with_signatures(signatures) {
            Ok(credential) => credentials.push(credential),
            Err(error) => {
                let help = "name a signature of the key, or `pubkey`";
                let bad = ValueError::new(error.to_string(), help);
                report("auth", bad, place(section, "auth"), d);
            }
        }
    }
    (errors == d.errors() && (!credentials.is_empty() || absent)).then_some(credentials)
}

fn find(
    section: &SectionNode,
    id: &Identity,
    connection: &str,
    store: &mut CredentialStore,
    d: &mut Diagnostics,
) -> (Vec<Own>, bool) {
    let (mut own, mut absent) = (Vec::new(), false);
    let certs: Vec<_> = section
        .sections()
        .iter()
        .filter(|inner| inner.name.value.starts_with("cert"))
        .collect();
    for cert in &certs {
        schema::check(cert, &schema::LOCAL_CERT, false, d);
        let at = cert.name.at;
        if let Some(entry) = given(cert, "file") {
            let why = "`file` names the certificate, which is on no token";
            let help = "remove one of the two";
            refuse(cert, &["handle", "slot", "module"], why, help, d);
            let chain = store.certificates("x509", entry.value.value.obey(), entry.value.at, d);
            if !chain.is_empty() {
                own.push(Own::Chain(chain, at, None));
            }
            continue;
        }
        match store.on_token(cert, d) {
            Some((place, certificate)) => {
                own.push(Own::Chain(vec![certificate], at, Some(place)));
            }
            None => absent = true,
        }
    }
    if let Some(entry) = given(section, "certs") {
        let at = entry.value.at;
        for file in parts("certs", entry, d) {
            let chain = store.certificates("x509", file, at, d);
            if !chain.is_empty() {
                own.push(Own::Chain(chain, at, None));
            }
        }
    }
    if let Some(entry) = given(section, "pubkeys") {
        let at = entry.value.at;
        for file in parts("pubkeys", entry, d) {
            own.extend(store.public_key(file, at, d).map(|key| Own::Key(key, at)));
        }
    }
    let named = given(section, "certs").is_some() || given(section, "pubkeys").is_some();
    if !named && certs.is_empty() {
        let at = section.name.at;
        let in_folder = store.own_in_folder(id, d);
        own.extend(
            in_folder
                .into_iter()
                .map(|chain| Own::Chain(chain, at, None)),
        );
        if !own.is_empty() {
            return (own, absent);
        }
        let contained = store.contained(id);
        if contained.is_none() {
            let what = format!(
                "connection {} has no certificate of its own",
                quoted(connection)
            );
            let help = "add `certs = …` (a file in x509/) or an `id` that a certificate in x509/ names, `pubkeys = …` (a \
                        file in pubkey/), a PKCS#12 file to the secrets, or `auth = psk`";
            d.push(Diagnostic::error(what).at(at).help(help));
        }
        own.extend(contained.map(|chain| Own::Chain(chain, at, None)));
    }
    (own, absent)
}

/// Every certificate must name our identity: the peer decides which one we send. Without `id` the first one gives it.
fn check_names(section: &SectionNode, id: &Identity, own: &[Own], d: &mut Diagnostics) {
    let chains = own.iter().filter_map(|one| match one {
        Own::Chain(chain, at, _) => Some((chain.first()?, *at)),
        Own::Key(..) => None,
    });
    let mut claimed = id.clone();
    for (own, at) in chains {
        if claimed == Identity::Any {
            claimed = Identity::Dn(own.subject().clone());
        } else if !claimed.is_named_by(own) && *id == Identity::Any {
            let what = format!(
                "`certs`: the certificate {} does not name {claimed}",
                own.subject()
            );
            let help = "set `id` to an identity that every certificate names";
            d.push(Diagnostic::error(what).at(at).help(help));
        } else if !claimed.is_named_by(own) {
            let what = format!("`id`: the certificate does not name {claimed}");
            let help = format!(
                "the peer would refuse it; leave `id` out to be {}",
                own.subject()
            );
            d.push(Diagnostic::error(what).at(place(section, "id")).help(help));
        }
    }
}

fn warn_of_purposes(chain: &[Certificate], at: Location, d: &mut Diagnostics) {
    if chain
        .first()
        .is_some_and(|own| !own.is_for(KeyPurposes::Ike))
    {
        let what = "`certs`: the extended key usage of the certificate does not have ipsecIKE";
        let help = "peers that follow RFC 4945 strictly refuse it; ask the authority for one with ipsecIKE";
        d.push(Diagnostic::warning(what).at(at).help(help));
    }
}

fn warn_of_signatures(chain: &[Certificate], at: Location, d: &mut Diagnostics) {
    for certificate in chain {
        if let Some(algorithm) = certificate.unsupported_signature() {
            let what = format!(
                "`certs`: the certificate {} has a signature with the algorithm {algorithm}, which Esplanade does not check",
                quoted(&certificate.subject().to_string())
            );
            let help = "a gateway of this kind refuses it; have it issued with SHA-256";
            d.push(Diagnostic::warning(what).at(at).help(help));
        }
    }
}
