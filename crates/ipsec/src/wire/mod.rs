//! Checked views of bytes that come from outside. No function here indexes bytes without a length test before it.

pub mod ah;
pub mod checksum;
pub mod esp;
pub mod icmp;
pub mod ip;
pub mod udp_encap;

pub use ip::{FixedHeader, IpVersion, IpView, Malformed};

/// Reads a 16-bit field. `None` if the bytes end before it does.
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}
