//! IKEv2 (RFC 7296) as sans-IO state machines: no sockets, no clock.
#![forbid(unsafe_code)]

pub mod auth;
mod claims;
pub mod config;
mod cookie;
pub mod endpoint;
pub mod event;
mod nat;
mod negotiate;
mod rate;
mod sa;
pub mod status;
pub mod suite;
pub mod text;
mod ts;
mod window;
pub mod wire;

pub use config::Config;
pub use endpoint::{CommandError, Endpoint, EspSpiAllocator, Random, Routes, SystemRandom};
pub use event::{
    ChildFailure, ChildSaDeleted, ChildSaId, ChildSaInstalled, DownReason, EspSuite, Event,
    IkeSaId, IkeSaUp, KeyLog, Transmit,
};
pub use status::{Counters, IkeSaStatus, Refusal};
pub use wire::TrafficSelector;
