//! A TUN device as the data plane knows it: what belongs to its packets only.

use super::fragments::Fragments;
use crate::io::gro::Coalescer;

#[derive(Debug)]
pub(in crate::worker) struct Port {
    /// As in the SPD's entries.
    pub(super) interface: u32,
    /// Packets that go to the queues of their flows.
    pub(super) coalescer: Coalescer,
    /// Packets of SAs that are not for several workers: they go to this worker's queue, and the reverse flows come by it.
    pub(super) unshared: Coalescer,
    /// Fragments from different interfaces never make one datagram.
    pub(super) fragments: Fragments,
    /// Lower the segment size of TCP to what fits packets of this length.
    pub(super) mss_clamp: Option<u16>,
}

impl Port {
    /// `udp`: the device takes super-segments of UDP.
    pub fn new(interface: u32, udp: bool, mss_clamp: Option<u16>) -> Self {
        Self {
            interface,
            coalescer: Coalescer::new(udp),
            unshared: Coalescer::new(udp),
            fragments: Fragments::new(interface),
            mss_clamp,
        }
    }
}
