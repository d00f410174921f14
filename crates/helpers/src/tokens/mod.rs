//! The processes that use PKCS#11 tokens.
//!
//! A module is foreign code, so it is not loaded into the gateway. A process of its own, the keeper, starts before the
//! gateway gives up rights ([`keeper`]). For each module that the gateway has started with, the keeper runs a process that
//! loads the module ([`module`]). It starts that process again where it has ended.

pub mod keeper;
mod lines;
pub mod module;
mod token_signer;

pub use token_signer::TokenSigner;
