//! The errors in our own credentials, and in the peer's proof of identity.

use esplanade_pki::attributes::MembershipError;
use esplanade_pki::{FileError, PathError, StatusSource};

use super::identity::Identity;
use crate::wire::{AuthMethod, HashAlgorithm, IdType};

/// Our own credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no private key in the file (encrypted keys are not supported)")]
    NoPrivateKey,
    #[error("the private key cannot be used: {0}")]
    PrivateKey(String),
    #[error("the private key does not belong to \"{subject}\"")]
    Mismatch { subject: String },
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
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the certificate's key usage does not allow signatures")]
    KeyUsage,
    #[error("the certificate is a certification authority's, not a peer's")]
    Authority,
    /// The places to ask before the path can be accepted.
    #[error("the status of a certificate is still to be had")]
    StatusNeeded(Vec<StatusSource>),
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
