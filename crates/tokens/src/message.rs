//! The messages between gateway, keeper and module processes.

use std::path::PathBuf;

use esplanade_ike::auth::SigningMechanism;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of the input of a signature, and of a certificate.
pub const CONTENT_MAX: usize = 1 << 14;
/// Characters of an error that are told.
const ERROR_MAX: usize = 300;

/// An object on a token: its CKA_ID, and where the token is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenPlace {
    /// The file of the module.
    pub module: PathBuf,
    pub slot: Option<u64>,
    pub handle: Vec<u8>,
}

/// The modules that may be loaded. The keeper takes it once.
#[derive(Debug, Serialize, Deserialize)]
pub struct ModuleRegistration {
    pub modules: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TokenRequest {
    pub id: u64,
    pub place: TokenPlace,
    pub task: TokenTask,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum TokenTask {
    /// Read the certificate.
    Certificate,
    Sign {
        mechanism: Mechanism,
        input: Vec<u8>,
        /// It is sent only after the module has asked for it.
        pin: Option<SentPin>,
    },
}

/// A PIN under way to its token.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct SentPin(pub Vec<u8>);

impl std::fmt::Debug for SentPin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SentPin")
    }
}

/// [`SigningMechanism`] on its way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Mechanism {
    RsaPkcs1,
    RsaPssSha256,
    RsaPssSha384,
    RsaPssSha512,
    Ecdsa,
    Ed25519,
}

impl From<SigningMechanism> for Mechanism {
    fn from(mechanism: SigningMechanism) -> Self {
        match mechanism {
            SigningMechanism::RsaPkcs1 => Self::RsaPkcs1,
            SigningMechanism::RsaPssSha256 => Self::RsaPssSha256,
            SigningMechanism::RsaPssSha384 => Self::RsaPssSha384,
            SigningMechanism::RsaPssSha512 => Self::RsaPssSha512,
            SigningMechanism::Ecdsa => Self::Ecdsa,
            SigningMechanism::Ed25519 => Self::Ed25519,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReply {
    pub id: u64,
    pub outcome: TokenOutcome,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenOutcome {
    /// The signature or the certificate.
    Done(Vec<u8>),
    /// The token wants a PIN.
    PinNeeded,
    /// The token has refused the PIN. It may lock itself after some more tries.
    PinRefused(String),
    Failed(String),
}

impl TokenOutcome {
    pub fn failed(why: impl ToString) -> Self {
        Self::Failed(why.to_string().chars().take(ERROR_MAX).collect())
    }
}
