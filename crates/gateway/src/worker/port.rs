//! A TUN device as a worker has it, with what belongs to its packets only.

use super::fragments::Fragments;
use crate::io::gro::Coalescer;
use crate::io::tun::Tun;

/// One queue of a TUN device that policies are bound to.
#[derive(Debug)]
pub struct Interface {
    /// As in the SPD's entries; not 0, which is the common one.
    pub id: u32,
    pub tun: Tun,
    pub mtu: u16,
}

#[derive(Debug)]
pub(super) struct Port {
    pub interface: u32,
    pub tun: Tun,
    pub coalescer: Coalescer,
    /// Fragments from different interfaces never make one datagram.
    pub fragments: Fragments,
    /// Lower the segment size of TCP to what fits packets of this length.
    pub mss_clamp: Option<u16>,
}

impl Port {
    pub fn new(interface: u32, tun: Tun, mss_clamp: Option<u16>) -> Self {
        Self {
            interface,
            coalescer: Coalescer::new(tun.udp_segmentation()),
            tun,
            fragments: Fragments::new(interface),
            mss_clamp,
        }
    }
}
