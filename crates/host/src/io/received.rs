//! The description of a received datagram.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// A received datagram, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Offset of the datagram in the buffer.
    pub at: usize,
    pub len: usize,
    pub remote: SocketAddr,
    /// The destination address of the datagram, if the kernel reports it.
    pub local: Option<IpAddr>,
    /// TOS or traffic class, including the ECN bits.
    pub tos: u8,
    /// Length in bytes of each coalesced datagram (UDP_GRO). It equals `len` if there is only one.
    pub segment: usize,
    /// The datagram did not fit into its buffer.
    pub truncated: bool,
}

impl ReceivedDatagram {
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
