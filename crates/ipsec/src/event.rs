//! What the packet path tells the control plane. At most one event per cause and SA or policy, so that
//! traffic cannot flood it.

use std::net::SocketAddr;

use crate::lifetime::LifetimeEvent;
use crate::options::{PolicyId, SaDirection};
use crate::sa::SaCommon;
use crate::selector::{Flow, Selector};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet needs an SA that the policy does not have. Raised again only after
    /// [`crate::spd::Policy::acquire_done`]. The SA is to be negotiated for `selector`: the policy's, with the fields
    /// that come from the packet (RFC 4301 §4.4.1.2).
    Acquire {
        policy: PolicyId,
        flow: Flow,
        selector: Selector,
    },
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

impl Event {
    pub(crate) fn lifetime(direction: SaDirection, sa: &SaCommon, event: LifetimeEvent) -> Self {
        Self::Lifetime {
            direction,
            spi: sa.spi,
            policy: sa.policy,
            event,
        }
    }
}
