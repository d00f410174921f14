//! Tells of the gateway's own certificates that peers refuse, or will refuse soon.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esplanade_ike::config::{Config, LocalMethod};
use esplanade_pki::{Certificate, ValidityPhase, rough};

use crate::log::first_names;
use crate::status::{ListedCertificate, Named};

/// The time before the end of a certificate from which on it is warned of.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);
/// The interval between two warnings of the same certificate.
pub(super) const TOLD_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The number of connections that a warning names.
const NAMED: usize = 3;

/// A certificate that the gateway sends, and the connections that do so.
struct OwnCertificate<'a> {
    certificate: &'a Certificate,
    connections: Vec<&'a str>,
}

/// Returns each certificate that the gateway sends, once.
fn own(config: &Config) -> Vec<OwnCertificate<'_>> {
    let mut found: BTreeMap<&[u8], OwnCertificate<'_>> = BTreeMap::new();
    for connection in &config.connections {
        let LocalMethod::Signature(credentials) = &connection.local.method else {
            continue;
        };
        for certificate in credentials.iter().flat_map(|own| own.chain()) {
            let entry = found.entry(certificate.der()).or_insert(OwnCertificate {
                certificate,
                connections: Vec::new(),
            });
            entry.connections.push(&connection.name);
        }
    }
    found.into_values().collect()
}

fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns what is to be said of the certificates at this time, with the remedy.
pub fn doubtful(config: &Config, now: SystemTime) -> Vec<(String, &'static str)> {
    const RENEW: &str =
        "have the authority issue a new one, and reload; is this machine's clock right?";
    let now = since_1970(now);
    let told = own(config).into_iter().filter_map(|own| {
        let validity = own.certificate.validity();
        let (what, help) = match validity.phase(now) {
            ValidityPhase::Within(rest) if rest > SOON => return None,
            ValidityPhase::Within(rest) => (
                format!("ends in {}, at {}", rough(rest), validity.ends()),
                "have the authority issue a new one, and reload",
            ),
            ValidityPhase::Ended(since) => (
                format!("expired {} ago, at {}", rough(since), validity.ends()),
                RENEW,
            ),
            ValidityPhase::NotYet(until) => (
                format!(
                    "is valid in {}, from {} on",
                    rough(until),
                    validity.begins()
                ),
                "peers refuse it until then; is this machine's clock right?",
            ),
        };
        let subject = own.certificate.subject();
        let users: Vec<_> = own
            .connections
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let users = first_names(&users, NAMED);
        Some((
            format!("the own certificate \"{subject}\" of {users} {what}"),
            help,
        ))
    });
    told.collect()
}

/// Writes the warnings into the log.
pub(super) fn warn(config: &Config, now: SystemTime) {
    for (what, help) in doubtful(config, now) {
        tracing::warn!("{what}: {help}");
    }
}

/// Reports the certificates, those that end first in front.
pub(super) fn report(config: &Config, now: SystemTime) -> Named<ListedCertificate> {
    let now = since_1970(now);
    let mut all = own(config);
    all.sort_by_key(|own| own.certificate.validity().not_after);
    let listed = all.into_iter().enumerate().map(|(index, own)| {
        let validity = own.certificate.validity();
        let state = match validity.phase(now) {
            ValidityPhase::NotYet(_) => "not-yet-valid",
            ValidityPhase::Within(rest) if rest > SOON => "valid",
            ValidityPhase::Within(_) => "ends-soon",
            ValidityPhase::Ended(_) => "expired",
        };
        let listed = ListedCertificate {
            subject: own.certificate.subject().to_string(),
            not_before: validity.begins(),
            not_after: validity.ends(),
            state,
            connections: own
                .connections
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
        };
        (index.to_string(), listed)
    });
    Named(listed.collect())
}
