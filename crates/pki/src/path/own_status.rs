//! The status of our own certificates, which we can send to peers (RFC 4806).

use super::parsed::Parsed;
use super::status::name_of;
use crate::revocation::{RevocationStore, StatusSource};

/// Our certificate and the authorities above it. OCSP names each of them by its issuer.
#[derive(Clone, Default)]
pub struct OwnStatus(Vec<Parsed>);

impl OwnStatus {
    /// `path` has our own certificate first, and behind each certificate its issuer.
    pub fn new<'a>(path: impl Iterator<Item = &'a [u8]>) -> Self {
        let parsed = path.map_while(|der| Parsed::from_der(der).ok());
        Self(parsed.collect())
    }

    fn pairs(&self) -> impl Iterator<Item = (&Parsed, &Parsed)> {
        self.0.iter().zip(self.0.iter().skip(1))
    }

    /// Returns current answers of responders, as OCSPResponse in DER.
    pub fn answers(&self, store: &RevocationStore, now: u64) -> Vec<Vec<u8>> {
        let answers = self.pairs().filter_map(|(certificate, issuer)| {
            let answer = store.current_answer(&name_of(certificate, issuer), now)?;
            Some(answer.der().to_vec())
        });
        answers.collect()
    }

    /// Returns the responders to ask where there is no current answer.
    pub fn sources(&self, store: &RevocationStore, now: u64) -> Vec<StatusSource> {
        let mut sources = Vec::new();
        for (certificate, issuer) in self.pairs() {
            let name = name_of(certificate, issuer);
            if store.current_answer(&name, now).is_none() {
                sources.extend(store.responders(&name, &certificate.extensions.points));
            }
        }
        sources
    }
}

impl std::fmt::Debug for OwnStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnStatus({})", self.0.len())
    }
}
