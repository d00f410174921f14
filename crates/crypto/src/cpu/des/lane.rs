//! A lane of the DES kernels: a run of blocks with the key that works on them.

use super::DesCbcKey;

/// A run of blocks that one lane does one after the other.
#[derive(Clone, Copy)]
pub(super) struct DesLane<'a> {
    /// Pointer to the next block.
    pub(super) at: *mut u8,
    /// Number of blocks left.
    pub(super) blocks: u32,
    /// The CBC IV, read from memory as little endian.
    pub(super) iv: u64,
    pub(super) key: &'a DesCbcKey,
}
