//! The gateway's reports about itself, as plain structures. The daemon fills them (`daemon::answers`); everything that
//! shows them starts from here.
//!
//! | answer to | structure |
//! |---|---|
//! | `stats` | [`GatewayStats`] |
//! | `get-counters` | [`GatewayCounters`] |
//! | `list-sas` | [`ListedIkeSa`] with [`ListedChildSa`]s |
//! | `list-conns` | [`ListedConnection`] |
//! | `list-policies` | [`ListedPolicy`] |
//! | `list-authorities` | [`ListedAuthority`] |
//!
//! Field names are vici's, as stock `swanctl` reads them. `vici::Section::of` turns a structure into an answer. The
//! command line gets the answers over the control socket. It prints them as [`json`], for which it asks for answers with
//! types, or as [`text`]. [`tunnels`] has one entry for each tunnel. [`rates`] compares two answers.

#![forbid(unsafe_code)]

mod connections;
mod counters;
pub mod json;
mod parts;
mod printable;
pub mod rates;
mod sas;
mod stats;
pub mod text;
pub mod tunnels;

pub use connections::{
    ListedAttempt, ListedAuthentication, ListedAuthority, ListedChild, ListedConnection,
    ListedName, ListedPolicy, ListedRefusal, ListedTotals, Selectors,
};
pub use counters::{GatewayCounters, IkeCounters, OutputCounters, TrafficCounters};
pub use esplanade_engines::Named;
pub use esplanade_engines::stats::{CoreCounters, LaneCounters, NamedCounters};
pub use sas::{ChildTraffic, HalfTraffic, ListedChildSa, ListedIkeSa, ListedOneWay};
pub use stats::{
    ConfinementStats, EngineStats, GatewayStats, HoldStats, IkeSaStats, LinkStats,
    ListedCertificate, ListedCrl, ShareStats, ShieldStats, UptimeStats, WorkerStats, WorkersStats,
};
