//! A TUN device as a worker has it, with what belongs to its packets only.

use super::fragments::Fragments;
use super::queues::Queues;
use crate::io::gro::Coalescer;

/// A TUN device that policies are bound to.
#[derive(Debug)]
pub struct Interface {
    /// As in the SPD's entries; not 0, which is the common one.
    pub id: u32,
    pub tun: Queues,
    pub mtu: u16,
}

#[derive(Debug)]
pub(super) struct Port {
    pub interface: u32,
    pub tun: Queues,
    /// Packets that go to the queues of their flows.
    pub coalescer: Coalescer,
    /// Packets of SAs that are not for several workers: they go to this worker's queue, and the reverse flows come by it.
    pub unshared: Coalescer,
    /// Fragments from different interfaces never make one datagram.
    pub fragments: Fragments,
    /// Lower the segment size of TCP to what fits packets of this length.
    pub mss_clamp: Option<u16>,
}

impl Port {
    pub fn new(interface: u32, tun: Queues, mss_clamp: Option<u16>) -> Self {
        Self {
            interface,
            coalescer: Coalescer::new(tun.own().udp_segmentation()),
            unshared: Coalescer::new(tun.own().udp_segmentation()),
            tun,
            fragments: Fragments::new(interface),
            mss_clamp,
        }
    }
}
