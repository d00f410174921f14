//! The ESP core of `rtl/` as a device.

pub mod regs;
