//! The core itself, simulated cycle by cycle, as a device.
//!
//! With the feature `simulated` and with Verilator (`rtl/.venv`), `build.rs` compiles it from the Verilog. Otherwise
//! [`Simulated::new`] returns an error. Nothing else in the crate depends on it.

#[cfg(esp_core_simulated)]
mod pins;
#[cfg(esp_core_simulated)]
mod running;

#[cfg(esp_core_simulated)]
pub use running::Simulated;

/// Whether the simulated core is part of this build.
pub const BUILT: bool = cfg!(esp_core_simulated);

/// The error that the simulated core is not part of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the simulated core is not part of this build: it takes the feature `simulated`, Verilator (tools/deps.sh) and a C++ compiler"
)]
pub struct NotBuilt;

#[cfg(not(esp_core_simulated))]
mod absent {
    use super::NotBuilt;
    use crate::device::{BusError, Device};
    use crate::memory::Memory;

    /// A type without values: [`Simulated::new`] always fails.
    #[derive(Debug)]
    pub enum Simulated {}

    impl Simulated {
        pub fn new() -> Result<Self, NotBuilt> {
            Err(NotBuilt)
        }

        /// Number of clock cycles since reset.
        pub fn cycles(&self) -> u64 {
            match *self {}
        }
    }

    impl Device for Simulated {
        fn read(&mut self, _: u32) -> Result<u32, BusError> {
            match *self {}
        }

        fn write(&mut self, _: u32, _: u32) -> Result<(), BusError> {
            match *self {}
        }

        fn memory(&self) -> Memory {
            match *self {}
        }
    }
}
#[cfg(not(esp_core_simulated))]
pub use absent::Simulated;
