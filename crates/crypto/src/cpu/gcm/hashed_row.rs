//! The input of GHASH in AES-GMAC.

/// The bytes that are hashed: the eight bytes of `head`, then bytes from memory.
pub(super) struct HashedRow {
    /// The first eight bytes of the row as a big-endian number.
    pub(super) head: u64,
    /// The address that byte 0 of the row would have. The bytes in memory start at `begin` + 8.
    pub(super) begin: *const u8,
    /// Length of the row in bytes, `head` included: more than 16.
    pub(super) len: usize,
}
