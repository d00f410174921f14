//! A TUN device as the data plane sees it, with the state that belongs to its packets only.

use super::fragments::Fragments;
use crate::io::gro::Coalescer;

#[derive(Debug)]
pub struct TunPort {
    /// The interface that the SPD's entries name.
    pub(super) interface: u32,
    /// Collects packets for the queues of their flows.
    pub(super) coalescer: Coalescer,
    /// Collects packets of SAs that one worker alone serves. They go to this worker's queue, so
    /// that their reverse flows arrive by it.
    pub(super) unshared: Coalescer,
    /// The fragments of this interface. Fragments of different interfaces never make one datagram.
    pub(super) fragments: Fragments,
    /// Lower TCP's segment size to what fits into packets of this many bytes.
    pub(super) mss_clamp: Option<u16>,
}

impl TunPort {
    /// Creates a port. `udp` means that the device accepts UDP super-segments.
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
