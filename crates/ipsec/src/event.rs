//! What the packet path tells the control plane. At most one event per cause and SA or policy, so that
//! traffic cannot flood it.

use std::net::SocketAddr;

use crate::lifetime::LifetimeEvent;
use crate::sa::SaDirection;
use crate::selector::Flow;
use crate::spd::PolicyId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet needs an SA that the policy does not have. Raised again only after
    /// [`crate::spd::Policy::acquire_done`].
    Acquire { policy: PolicyId, flow: Flow },
    /// An SA reached a limit of bytes, packets or sequence numbers.
    Lifetime {
        direction: SaDirection,
        spi: u32,
        policy: PolicyId,
        event: LifetimeEvent,
    },
    /// An authenticated packet, newer than all before, came from another address (RFC 7296 §2.23).
    PeerMoved {
        spi: u32,
        policy: PolicyId,
        from: SocketAddr,
        to: SocketAddr,
    },
}
