//! IKEv2 (RFC 7296) as sans-IO state machines: bytes and time in, datagrams and events out.
//!
//! The layers, each of which uses those below it:
//!
//! - [`endpoint`]: all IKE SAs of a gateway; datagrams, time and commands.
//! - [`jobs`]: work with public keys, which other threads can run.
//! - `exchange`: one file for each IKE exchange.
//! - `sa`: the phases of an IKE SA as types, and its child SAs.
//! - `protected`: sealed messages. `transport`: UDP payloads, message IDs and retransmission.
//! - [`wire`]: messages and payloads. [`suite`] and [`auth`]: keys and identities. `host`: what the embedder gives.
//!
//! Certificates, their paths and their revocation are `esplanade_pki`'s.
#![forbid(unsafe_code)]

pub mod auth;
mod claims;
pub mod config;
mod connection_choice;
mod cookie;
mod crash_token;
pub mod endpoint;
pub mod event;
mod exchange;
pub mod failure;
mod host;
mod id;
mod identity_table;
pub mod jobs;
mod nat;
mod negotiate;
mod peer;
mod peer_shares;
mod protected;
mod rate;
mod refusal;
mod report_limit;
mod sa;
mod secret_choice;
mod silence;
mod source_network;
pub mod status;
pub mod suite;
pub mod text;
mod transport;
mod ts;
pub mod wire;

pub use config::Config;
pub use endpoint::{CommandError, Endpoint};
pub use event::{ChildSaDeleted, ChildSaInstalled, EspSuite, Event, IkeSaUp, KeyLog, Transmit};
pub use failure::{ChildFailure, DownReason};
pub use host::{EspSpiAllocator, Host, PolicyRoom, Random, Routes, SystemRandom, WantedPolicy};
pub use id::{ChildSaId, IkeSaId};
pub use refusal::Refusal;
pub use source_network::source_of;
pub use status::{IkeCounters, IkeSaStatus};
pub use wire::TrafficSelector;
