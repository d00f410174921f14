//! Our own signature, as a job.

use std::sync::Arc;

use crate::auth::{Credential, CredentialError};
use crate::config::Identity;
use crate::wire::{Auth, HashAlgorithm};

/// The AUTH payload, and the credential that has made it.
pub(crate) type SignedAuth = Result<(Arc<Credential>, Auth), CredentialError>;

/// A signature that the first possible credential is to make.
#[derive(Debug)]
pub(crate) struct Signing {
    /// The best one first.
    pub(crate) credentials: Vec<Arc<Credential>>,
    /// The peer, as far as it is known.
    pub(crate) peer: Identity,
    /// The hashes that the peer has announced.
    pub(crate) peer_hashes: Vec<HashAlgorithm>,
    pub(crate) octets: Vec<u8>,
    pub(crate) legacy: bool,
}

impl Signing {
    pub(crate) fn run(&self) -> SignedAuth {
        let mut failure = None;
        for own in &self.credentials {
            match own.sign_for(&self.peer, &self.peer_hashes, &self.octets, self.legacy) {
                Ok(auth) => return Ok((own.clone(), auth)),
                Err(error @ CredentialError::SignatureAwaited) => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(CredentialError::NoCredential))
    }

    /// A key elsewhere signs by itself: asking it takes no time.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.credentials.iter().any(|own| own.is_external())
    }
}
