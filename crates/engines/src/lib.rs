//! The engines of a gateway. Each is an [`EngineHost`]: `docs/add-an-engine.md` adds one. [`registry`]
//! starts those that a configuration names.
//!
//! An engine beside the CPU is a thread or several that take batches from ports, and give workers a source of ports.
//!
//! | module | carries batches with |
//! |---|---|
//! | [`pool`] | helper threads |
//! | [`gpu`] | a GPU |
//! | [`ace`] | lanes of the adaptive cryptographic engine |
//!
//! [`share`] decides how much the GPU carries beside the CPU, by what [`latency`] measures.

#![forbid(unsafe_code)]

#[cfg(ace_lanes_simulated)]
pub mod ace;
pub mod engine_port;
pub mod gpu;
pub mod host;
pub mod latency;
mod named;
pub mod pool;
pub mod registry;
pub mod share;
pub mod stats;
pub mod trials;

pub use host::{ChildSaDevice, CpuHost, EngineHost, HostReport, Sharing, StartError};
pub use named::Named;
pub use registry::{EngineNames, Engines, add};
