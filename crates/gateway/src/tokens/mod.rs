//! Private keys and certificates on PKCS#11 tokens.
//!
//! A module is foreign code, so it is not loaded into the gateway. A process of its own, the keeper, starts before the
//! gateway gives up rights ([`keeper`]). For each module that the gateway has started with, the keeper runs a process that
//! loads the module ([`module`]). It starts that process again where it has ended. IKE waits for a signature without
//! holding anything else up: the desk has what is asked and what was answered.

mod desk;
pub mod keeper;
mod message;
pub mod module;
mod token_signer;

pub use desk::TokenKey;
pub use message::TokenPlace;
pub use token_signer::TokenSigner;

pub(crate) use desk::certificate;
