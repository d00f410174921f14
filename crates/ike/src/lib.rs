//! IKEv2 (RFC 7296) as sans-IO state machines: no sockets, no clock.
#![forbid(unsafe_code)]

pub mod auth;
pub mod config;
pub mod suite;
pub mod wire;
