//! The engines beside the CPU. Each is a thread or several that take batches from ports, and give workers a source of
//! ports.
//!
//! | module | carries batches with |
//! |---|---|
//! | [`pool`] | helper threads |
//! | [`gpu`] | a GPU |
//! | [`ace`] | lanes of the adaptive cryptographic engine |
//!
//! [`share`] decides how much the GPU carries beside the CPU, by what [`latency`] measures.

#![forbid(unsafe_code)]

pub mod ace;
pub mod engine_port;
pub mod gpu;
pub mod latency;
mod named;
pub mod pool;
pub mod share;
pub mod stats;
pub mod trials;

pub use named::Named;
