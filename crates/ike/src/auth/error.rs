//! The errors in our own credentials, and in the peer's proof of identity.

use std::fmt;

use super::attributes::{GroupName, GroupNames};
use super::identity::Identity;
use super::limit::Exhausted;
use super::revocation::StatusSource;
use crate::wire::{AuthMethod, HashAlgorithm, IdType};

/// Refused attribute certificates whose reasons are shown.
const REASONS_MAX: usize = 8;

/// Our own credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
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
    #[error("no private key in the file (encrypted keys are not supported)")]
    NoPrivateKey,
    #[error("the private key cannot be used: {0}")]
    PrivateKey(String),
    #[error("the private key does not belong to \"{subject}\"")]
    Mismatch { subject: String },
    #[error(
        "a {0} key is not supported: use RSA (2048 bits or more), ECDSA P-256, P-384 or P-521, Ed25519, ML-DSA"
    )]
    KeyType(String),
    #[error(
        "the peer does not support any signature that our key can make (it announced {announced:?})"
    )]
    NoCommonHash { announced: Vec<HashAlgorithm> },
    #[error(
        "the peer announces no signature hashes (RFC 7427), and RSA without them means SHA-1, which needs `legacy = yes`"
    )]
    Sha1,
    #[error("`auth` has no signature that a {0} key can make")]
    Scheme(String),
    #[error("signing failed")]
    Signing,
    #[error("the token has not signed: {0}")]
    External(String),
    #[error("a {0} key on a token is not supported")]
    ExternalKeyType(String),
    #[error("the key on the token does not belong to the certificate")]
    OtherKey,
    #[error(
        "the peer announces no signature hashes (RFC 7427), and a key on a token makes no signature with SHA-1"
    )]
    ExternalSha1,
    /// The endpoint is told when the signature can be had.
    #[error("the signature is still to be had")]
    SignatureAwaited,
    #[error("none of our certificates could be had")]
    NoCredential,
}

/// The peer has not proved that it is who it says it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerAuthError {
    #[error("no X.509 certificate received")]
    NoCertificate,
    #[error("malformed certificate: {0}")]
    Malformed(String),
    #[error("certificate \"{subject}\" expired at {not_after} (seconds since 1970)")]
    Expired { subject: String, not_after: u64 },
    #[error("certificate \"{subject}\" is not valid before {not_before} (seconds since 1970)")]
    NotYetValid { subject: String, not_before: u64 },
    #[error("no trusted authority issued the certificate")]
    UnknownIssuer,
    #[error("the certificate's extended key usage does not allow IKE")]
    ExtendedKeyUsage,
    #[error("the certificate's key usage does not allow signatures")]
    KeyUsage,
    #[error("the certificate is a certification authority's, not a peer's")]
    Authority,
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
    /// The places to ask before the path can be accepted.
    #[error("the status of a certificate is still to be had")]
    StatusNeeded(Vec<StatusSource>),
    #[error("the certificate path is not valid: {0}")]
    Path(String),
    #[error("certificate \"{subject}\" is not for identity {identity}")]
    IdentityMismatch { subject: String, identity: Identity },
    #[error("not one of the certificates that are configured for the peer")]
    NotPinned,
    #[error("not one of the public keys that are configured for the peer")]
    UnknownKey,
    #[error("identity {0} is not the identifier of the peer's public key")]
    NotKeyIdentity(Identity),
    #[error("it takes too many keys to check")]
    TooManyKeys,
    /// A limit ran out before anything was decided.
    #[error("it takes too many {0}")]
    TooMuchWork(&'static str),
    #[error(transparent)]
    NotMember(Box<MembershipError>),
    #[error("identity type {0} cannot be proved with a certificate")]
    IdentityType(IdType),
    #[error("authentication method {0} is not supported")]
    Method(AuthMethod),
    #[error("`auth` does not accept the signature scheme of the peer")]
    Scheme,
    #[error("malformed digital signature payload")]
    SignatureSyntax,
    #[error("signature algorithm {0} is not supported")]
    SignatureAlgorithm(String),
    #[error("the signature algorithm does not suit the {0} key of the certificate")]
    KeyType(String),
    #[error("the signature is made with SHA-1, which needs `legacy = yes`")]
    Sha1,
    #[error("the signature does not verify")]
    BadSignature,
}

impl From<Exhausted> for PeerAuthError {
    fn from(Exhausted(what): Exhausted) -> Self {
        Self::TooMuchWork(what)
    }
}

/// An attribute certificate does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("malformed: {0}")]
    Malformed(String),
    #[error("it is for another holder than the peer's certificate")]
    OtherHolder,
    #[error("it expired at {0}")]
    Expired(String),
    #[error("it is not valid before {0}")]
    NotYetValid(String),
    #[error("it has no noRevAvail, and CRLs for attribute certificates are not supported")]
    Revocable,
    #[error("extension {0} is critical and not known")]
    CriticalExtension(String),
    #[error("no attribute authority that is trusted is called \"{0}\"")]
    UnknownIssuer(String),
    #[error("issued by \"{issuer}\": {why}")]
    Signature { issuer: String, why: &'static str },
    #[error("we are none of its targets")]
    OtherTarget,
    #[error("its issuer: {0}")]
    Issuer(Box<PeerAuthError>),
    #[error("the peer has sent too many others")]
    TooMany,
}

/// No membership that is wanted is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipError {
    pub wanted: Vec<GroupName>,
    /// The groups of the attribute certificates that count.
    pub proved: Vec<GroupName>,
    /// The attribute certificates that do not count.
    pub refused: Vec<AttributeError>,
}

impl std::error::Error for MembershipError {}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it takes one of the groups {}, and ",
            GroupNames(&self.wanted)
        )?;
        match (self.proved.is_empty(), self.refused.is_empty()) {
            (true, true) => return f.write_str("the peer has no attribute certificate"),
            (true, false) => f.write_str("no group is proved")?,
            (false, _) => write!(f, "those proved are {}", GroupNames(&self.proved))?,
        }
        for refused in self.refused.iter().take(REASONS_MAX) {
            write!(f, "; attribute certificate refused: {refused}")?;
        }
        Ok(())
    }
}
