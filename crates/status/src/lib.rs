//! The gateway's reports about itself, as plain structures. The daemon fills them (`daemon::report`); everything that
//! shows them starts from here.
//!
//! | answer to | structure |
//! |---|---|
//! | `stats` | [`GatewayStats`] |
//! | `get-counters` | [`GatewayCounters`] |
//! | `list-sas` | [`ListedIkeSa`] with [`ListedChildSa`]s |
//! | `list-conns` | [`ListedConnection`] |
//! | `list-policies` | [`ListedPolicy`] |
//!
//! Field names are vici's, as stock `swanctl` reads them. `vici::Section::of` turns a structure into an answer. The
//! command line gets the answer over the control socket, prints it as JSON, or as text with [`text`].

#![forbid(unsafe_code)]

mod connections;
mod counters;
mod parts;
mod sas;
mod stats;
pub mod text;

pub use connections::{
    ListedAuthentication, ListedChild, ListedConnection, ListedName, ListedPolicy, Selectors,
};
pub use counters::{GatewayCounters, IkeCounters, OutputCounters, TrafficCounters, WalkTotals};
pub use esplanade_engines::Named;
pub use esplanade_engines::stats::{CoreCounters, LaneCounters, NamedCounters};
pub use sas::{ChildTraffic, HalfTraffic, ListedChildSa, ListedIkeSa};
pub use stats::{
    ConfinementStats, EngineStats, GatewayStats, HoldStats, IkeSaStats, ListedCrl, ShareStats,
    ShieldStats, UptimeStats, WorkerStats, WorkersStats,
};
