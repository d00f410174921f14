//! Warns of connections whose peers can use certificates that have been revoked.

use esplanade_ike::config::RemoteMethod;
use esplanade_pki::RevocationPolicy;

use crate::config::Loaded;

/// Returns the warning and its remedy, if a connection authenticates by certificates and nothing says which of them have
/// been revoked.
pub fn missing(loaded: &Loaded) -> Option<(&'static str, &'static str)> {
    let is_relaxed = |method: &RemoteMethod| match method {
        RemoteMethod::Certificate { revocation, .. } => *revocation == RevocationPolicy::Relaxed,
        RemoteMethod::PublicKey { .. } | RemoteMethod::Psk => false,
    };
    let mut connections = loaded.ike.connections.iter();
    let relaxed = connections.any(|connection| is_relaxed(&connection.remote.method));
    let store = &loaded.ike.revocation;
    (relaxed && store.is_empty()).then_some((
        match store.fetches() {
            true => "a peer's certificate that has been revoked is still accepted, if it names no CRL and no OCSP responder",
            false => "without a CRL, a peer's certificate that has been revoked is still accepted",
        },
        "put the CRLs of the authorities into x509crl/ beside the configuration, or name them in `crl_uris`",
    ))
}
