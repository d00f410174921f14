//! The errors in files, and in the certificates of a peer.

use std::time::Duration;

use crate::limit::Exhausted;
use crate::validity::{Validity, rough};

/// A file of the administrator cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("no certificate in the file")]
    NoCertificate,
    #[error("not a PEM file: {0}")]
    Pem(String),
    #[error("malformed certificate: {0}")]
    Certificate(String),
    #[error("no attribute certificate in the file")]
    NoAttributeCertificate,
    #[error("an issuer of certificates must not issue attribute certificates (RFC 5755 §4.5)")]
    AttributesOfAuthority,
    #[error("the key usage does not allow signatures")]
    KeyUsage,
    #[error("no public key in the file")]
    NoPublicKey,
    #[error("malformed public key: {0}")]
    PublicKey(String),
    #[error(
        "a {0} key is not supported: use RSA (2048 bits or more), ECDSA P-256, P-384 or P-521, Ed25519, ML-DSA"
    )]
    KeyType(String),
}

/// The certificates of a peer have no valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("malformed certificate: {0}")]
    Malformed(String),
    #[error(
        "certificate \"{subject}\" expired {} ago, at {}: is this machine's clock right?",
        rough(*since),
        validity.ends()
    )]
    Expired {
        subject: String,
        validity: Validity,
        since: Duration,
    },
    #[error(
        "certificate \"{subject}\" is valid in {}, from {} on: is this machine's clock right?",
        rough(*until),
        validity.begins()
    )]
    NotYetValid {
        subject: String,
        validity: Validity,
        until: Duration,
    },
    #[error("no trusted authority issued the certificate")]
    UnknownIssuer,
    #[error("the certificate's extended key usage does not allow IKE")]
    ExtendedKeyUsage,
    #[error("certificate \"{subject}\" (serial number {serial}) was revoked at {since}: {reason}")]
    Revoked {
        subject: String,
        serial: String,
        /// The time as RFC 3339 has it.
        since: String,
        /// The reason as RFC 5280 §5.3.1 has it.
        reason: &'static str,
    },
    #[error("nobody says whether certificate \"{subject}\" is revoked: {why}")]
    UnknownStatus { subject: String, why: String },
    #[error("the certificate path is not valid: {0}")]
    Invalid(String),
    /// A limit ran out before anything was decided.
    #[error("it takes too many {0}")]
    TooMuchWork(&'static str),
}

impl From<Exhausted> for PathError {
    fn from(Exhausted(what): Exhausted) -> Self {
        Self::TooMuchWork(what)
    }
}
