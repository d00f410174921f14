//! Gives tests a limit of the kernels of AES-GCM.

/// The most packets of one call.
pub const PACKETS: usize = super::PACKETS;
