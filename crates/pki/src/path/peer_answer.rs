//! Answers of OCSP responders that the peer has sent.

use std::sync::OnceLock;

use super::parsed::Parsed;
use crate::revocation::OcspAnswer;

/// An answer, with the certificates of responders in it. They are read when they are first needed.
pub(super) struct PeerAnswer {
    pub(super) answer: OcspAnswer,
    responders: OnceLock<Vec<Parsed>>,
}

impl PeerAnswer {
    pub(super) fn new(answer: OcspAnswer) -> Self {
        Self {
            answer,
            responders: OnceLock::new(),
        }
    }

    pub(super) fn responders(&self) -> &[Parsed] {
        self.responders.get_or_init(|| responders(&self.answer))
    }
}

/// The certificates of responders in an answer. Malformed ones are ignored.
pub(super) fn responders(answer: &OcspAnswer) -> Vec<Parsed> {
    let certificates = answer.certificates.iter();
    let parsed = certificates.filter_map(|der| Parsed::from_der(der).ok());
    parsed.collect()
}
