//! What the driver needs of a device: registers, and memory that both reach.

use crate::memory::Memory;

/// A register access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("the device refuses access to register {0:#x}")]
    Refused(u32),
    #[error("the device does not answer at register {0:#x}")]
    Silent(u32),
}

/// A board with the core and a DMA engine.
///
/// The registers of [`crate::regs`] are the core's; those of [`crate::ring`] belong to the engine that moves packets
/// between the rings in memory and the core's streams.
pub trait Device: Send {
    fn read(&mut self, address: u32) -> Result<u32, BusError>;

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError>;

    /// Memory that the device reads and writes too, addressed from 0.
    fn memory(&self) -> Memory;

    /// Returns when the device has done what it was given, or that takes long; a device without a clock of its own works now.
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
