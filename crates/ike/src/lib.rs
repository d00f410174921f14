//! IKEv2 (RFC 7296) as sans-IO state machines: no sockets, no clock.
#![forbid(unsafe_code)]

pub mod auth;
mod claims;
pub mod config;
mod cookie;
pub mod endpoint;
pub mod event;
mod host;
mod id;
mod nat;
mod negotiate;
mod peer;
mod rate;
mod refusal;
mod report_limit;
mod sa;
mod source_network;
pub mod status;
pub mod suite;
pub mod text;
mod ts;
mod window;
pub mod wire;

pub use config::Config;
pub use endpoint::{CommandError, Endpoint};
pub use event::{
    ChildFailure, ChildSaDeleted, ChildSaId, ChildSaInstalled, DownReason, EspSuite, Event,
    IkeSaId, IkeSaUp, KeyLog, Transmit,
};
pub use host::{EspSpiAllocator, Random, Routes, SystemRandom};
pub use refusal::Refusal;
pub use status::{Counters, IkeSaStatus};
pub use wire::TrafficSelector;
