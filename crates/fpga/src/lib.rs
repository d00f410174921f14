//! The ESP core of `rtl/` as a device: registers, descriptor rings, the driver, and the core itself in simulation.
//!
//! The core works in-line. Clear packets go into its outbound lane and leave as datagrams; datagrams go into its
//! inbound lane and leave as clear packets. The core has its own policies, SAs, sequence numbers, IVs and keys, which
//! [`Core`] writes through registers. Keys cannot be read back.

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
