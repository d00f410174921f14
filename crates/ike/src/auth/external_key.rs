//! Private keys that are kept elsewhere, for example on a PKCS#11 token.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use aws_lc_rs::digest;
use esplanade_pki::{Hash, KeyType, Scheme};

use super::error::CredentialError;
use super::identity::Identity;
use crate::wire::Auth;

/// The operation that makes a signature from [`SigningRequest::input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SigningMechanism {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 §8.2). The input is the DigestInfo.
    RsaPkcs1,
    /// RSASSA-PSS (RFC 8017 §8.1). The input is the digest. MGF1 has the same hash, and the salt its length.
    RsaPssSha256,
    RsaPssSha384,
    RsaPssSha512,
    /// ECDSA. The input is the digest. The signature is r and s, each as long as the order of the group.
    Ecdsa,
    /// Ed25519 (RFC 8032). The input is the message.
    Ed25519,
}

/// A signature that a key is to make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SigningRequest {
    pub mechanism: SigningMechanism,
    pub input: Vec<u8>,
    /// The peer that the signature is for, so that no peer keeps the key from others.
    pub peer: Identity,
}

/// A private key that is kept elsewhere.
pub trait ExternalKey: Debug + Send + Sync {
    /// Returns the signature, or the reason why there is none. While neither is there it returns [`Poll::Pending`], and
    /// whoever holds the key calls [`crate::Endpoint::signatures_made`] later, after a bounded time. A request that comes
    /// again soon has the same outcome.
    fn poll_sign(&self, request: &SigningRequest) -> Poll<Result<Vec<u8>, String>>;
}

/// The keys elsewhere of which one belongs to a certificate.
#[derive(Debug)]
pub(super) struct ExternalKeys {
    kind: KeyType,
    keys: Vec<Arc<dyn ExternalKey>>,
    /// The key that has signed.
    found: AtomicUsize,
}

impl ExternalKeys {
    pub fn new(kind: KeyType, keys: Vec<Arc<dyn ExternalKey>>) -> Self {
        let found = AtomicUsize::new(0);
        Self { kind, keys, found }
    }

    pub fn kind(&self) -> KeyType {
        self.kind
    }

    /// Returns the payload that `check` makes of a signature. `check` refuses the signature of another key.
    pub fn sign(
        &self,
        peer: &Identity,
        scheme: Scheme,
        octets: &[u8],
        check: impl Fn(Vec<u8>) -> Option<Auth>,
    ) -> Result<Auth, CredentialError> {
        let unsupported = || CredentialError::ExternalKeyType(self.kind.to_string());
        let request = SigningRequest::new(peer, scheme, octets).ok_or_else(unsupported)?;
        let first = self.found.load(Ordering::Relaxed);
        let others = (0..self.keys.len()).filter(|index| *index != first);
        let mut failures = Vec::new();
        for index in std::iter::once(first).chain(others) {
            let Some(key) = self.keys.get(index) else {
                continue;
            };
            match key.poll_sign(&request) {
                Poll::Pending => return Err(CredentialError::SignatureAwaited),
                Poll::Ready(Err(why)) => failures.push(why),
                Poll::Ready(Ok(value)) => {
                    if let Some(auth) = check(value) {
                        self.found.store(index, Ordering::Relaxed);
                        return Ok(auth);
                    }
                }
            }
        }
        Err(match failures.is_empty() {
            true => CredentialError::OtherKey,
            false => CredentialError::External(failures.join("; ")),
        })
    }
}

impl SigningRequest {
    /// Returns `None` for a scheme without a mechanism here.
    fn new(peer: &Identity, scheme: Scheme, octets: &[u8]) -> Option<Self> {
        let (mechanism, input) = match scheme {
            Scheme::RsaPkcs1(hash) => (
                SigningMechanism::RsaPkcs1,
                [digest_info(hash), &digest_of(hash, octets)].concat(),
            ),
            Scheme::RsaPss(hash) => {
                let mechanism = match hash {
                    Hash::Sha256 => SigningMechanism::RsaPssSha256,
                    Hash::Sha384 => SigningMechanism::RsaPssSha384,
                    Hash::Sha512 => SigningMechanism::RsaPssSha512,
                };
                (mechanism, digest_of(hash, octets))
            }
            Scheme::Ecdsa(hash) => (SigningMechanism::Ecdsa, digest_of(hash, octets)),
            Scheme::Ed25519 => (SigningMechanism::Ed25519, octets.to_vec()),
            Scheme::MlDsa(_) => return None,
        };
        Some(Self {
            mechanism,
            input,
            peer: peer.clone(),
        })
    }
}

fn digest_of(hash: Hash, octets: &[u8]) -> Vec<u8> {
    let algorithm = match hash {
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, octets).as_ref().to_vec()
}

/// DigestInfo without the digest that ends it (RFC 8017 §9.2, note 1).
fn digest_info(hash: Hash) -> &'static [u8] {
    match hash {
        Hash::Sha256 => {
            b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
        }
        Hash::Sha384 => {
            b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"
        }
        Hash::Sha512 => {
            b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"
        }
    }
}
