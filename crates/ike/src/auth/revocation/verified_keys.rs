//! Which keys have made a signature, as far as somebody has tried.

use std::sync::{Mutex, PoisonError};

use super::super::signed::{Signed, SubjectKey};

/// Keys that are remembered for one signature. An authority seldom has two.
const KEYS_MAX: usize = 8;

/// The keys that were tried, and whether the signature verifies with each.
#[derive(Default)]
pub(super) struct VerifiedKeys(Mutex<Vec<(SubjectKey, bool)>>);

impl VerifiedKeys {
    /// Checks the signature. The result is kept, since a large CRL takes a while.
    pub(super) fn check(&self, signed: &Signed, key: &SubjectKey) -> bool {
        let mut tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, verified)) = tried.iter().find(|(other, _)| other == key) {
            return *verified;
        }
        let verified = signed.verify(key).is_ok();
        if tried.len() >= KEYS_MAX {
            // A key that has verified matters longest.
            let failed = tried.iter().position(|(_, verified)| !verified);
            tried.remove(failed.unwrap_or_default());
        }
        tried.push((key.clone(), verified));
        verified
    }

    /// The signature verifies with a key.
    pub(super) fn has_succeeded(&self) -> bool {
        self.read(|tried| tried.iter().any(|(_, verified)| *verified))
    }

    /// Keys were tried, and none has made the signature.
    pub(super) fn has_failed(&self) -> bool {
        self.read(|tried| !tried.is_empty() && tried.iter().all(|(_, verified)| !verified))
    }

    /// One key has made both signatures.
    pub(super) fn shares_key_with(&self, other: &Self) -> bool {
        let verified = |tried: &[(SubjectKey, bool)]| -> Vec<SubjectKey> {
            let keys = tried.iter().filter(|(_, verified)| *verified);
            keys.map(|(key, _)| key.clone()).collect()
        };
        let keys = self.read(verified);
        other.read(|tried| {
            let mut tried = tried.iter();
            tried.any(|(key, verified)| *verified && keys.contains(key))
        })
    }

    fn read<T>(&self, look: impl FnOnce(&[(SubjectKey, bool)]) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clone for VerifiedKeys {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.read(<[_]>::to_vec)))
    }
}
