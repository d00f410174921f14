//! The ESP core of `rtl/` as a device: registers, descriptor rings, the driver, and the core itself in simulation.
//!
//! The core works in-line: clear packets go into its outbound lane and leave as datagrams, datagrams go into the inbound
//! lane and leave as clear packets. It has policies, SAs, sequence numbers, IVs and keys of its own, which [`Core`] writes
//! through registers. Keys cannot be read back.

pub mod core;
pub mod device;
pub mod device_key;
pub mod dma;
mod fit;
pub mod inline;
pub mod memory;
pub mod policy;
pub mod regs;
pub mod ring;
pub mod sa;
pub mod simulated;

pub use core::{Core, CoreError, Lane};
pub use device::{BusError, Device};
pub use inline::InLine;
