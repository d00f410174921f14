//! What one receive says about each datagram.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// What the kernel says about a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Where it begins in the buffer.
    pub at: usize,
    pub len: usize,
    pub remote: SocketAddr,
    /// The address it was sent to.
    pub local: Option<IpAddr>,
    /// TOS or traffic class, with the ECN bits.
    pub tos: u8,
    /// Length of the coalesced datagrams (UDP_GRO); `len` if there is only one.
    pub segment: usize,
    /// It did not fit its buffer.
    pub truncated: bool,
}

impl Received {
    pub(super) const NONE: Self = Self {
        at: 0,
        len: 0,
        remote: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        local: None,
        tos: 0,
        segment: 0,
        truncated: false,
    };
}
