//! The core itself, simulated cycle by cycle, as a device.
//!
//! With the feature `simulated`, `build.rs` makes it of the Verilog where Verilator is there (`rtl/.venv`); elsewhere
//! [`Simulated::new`] says that it is not. Nothing else of the crate depends on it.

#[cfg(esp_core_simulated)]
mod pins;
#[cfg(esp_core_simulated)]
mod running;

#[cfg(esp_core_simulated)]
pub use running::Simulated;

/// Whether the simulated core is part of this build.
pub const BUILT: bool = cfg!(esp_core_simulated);

/// The simulated core is not part of this build.
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

    /// There is none: [`Simulated::new`] always fails.
    #[derive(Debug)]
    pub enum Simulated {}

    impl Simulated {
        pub fn new() -> Result<Self, NotBuilt> {
            Err(NotBuilt)
        }

        /// Clock cycles since reset.
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
