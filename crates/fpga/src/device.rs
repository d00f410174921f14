//! The device as the driver sees it: registers, and memory that both sides reach.

use crate::memory::Memory;

/// The reason why a register access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("the device refuses access to register {0:#x}")]
    Refused(u32),
    #[error("the device does not answer at register {0:#x}")]
    Silent(u32),
}

/// A board with the core and a DMA engine.
///
/// The registers of [`crate::regs`] belong to the core. The registers of [`crate::ring`] belong to the DMA engine,
/// which moves packets between the rings in memory and the core's streams.
pub trait Device: Send {
    fn read(&mut self, address: u32) -> Result<u32, BusError>;

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError>;

    /// Memory that the device reads and writes too. Addresses are in bytes, from 0 on.
    fn memory(&self) -> Memory;

    /// Gives a device without a clock of its own time to work. Returns when the device has done all it was given, or
    /// when that takes too long. A device with a clock does nothing here.
    fn work(&mut self) {}
}

impl std::fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device for Box<dyn Device> {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        (**self).read(address)
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        (**self).write(address, value)
    }

    fn memory(&self) -> Memory {
        (**self).memory()
    }

    fn work(&mut self) {
        (**self).work();
    }
}
