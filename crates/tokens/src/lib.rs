//! Private keys and certificates on PKCS#11 tokens, as IKE and the configuration see them.
//!
//! Another process uses the tokens. IKE waits for a signature without holding anything else up: the desk has what is asked
//! ([`desk`]) and what was answered.

#![forbid(unsafe_code)]

pub mod desk;
pub mod message;

pub use desk::{TokenKey, certificate};
pub use message::TokenPlace;
