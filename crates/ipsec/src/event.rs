//! Events that the packet path reports to the control plane. A cause is reported at most once per SA or policy, so
//! that traffic cannot flood the control plane.

use std::net::SocketAddr;

use crate::lifetime::LifetimeEvent;
use crate::options::{PolicyId, SaDirection};
use crate::sa::SaCommon;
use crate::selector::{Flow, Selector};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet needs an SA that the policy does not have. The event is raised again only after
    /// [`crate::spd::Policy::acquire_done`]. The SA is to be negotiated for `selector`: the policy's selector, with
    /// the fields that come from the packet (RFC 4301 §4.4.1.2).
    Acquire {
        policy: PolicyId,
        flow: Flow,
        selector: Selector,
    },
    /// An SA reached a limit of bytes, packets or sequence numbers. The event is raised once. If it is lost,
    /// [`Lifetime::poll`](crate::lifetime::Lifetime::poll) has it.
    Lifetime {
        direction: SaDirection,
        spi: u32,
        policy: PolicyId,
        event: LifetimeEvent,
    },
    /// An authenticated packet with the highest sequence number so far came from another address (RFC 7296 §2.23).
    PeerMoved {
        spi: u32,
        policy: PolicyId,
        from: SocketAddr,
        to: SocketAddr,
    },
    /// A packet came in with an SPI that no SA has. Its sender may have an SA that we have lost (RFC 7296 §1.5). The
    /// event is raised for few such packets, because anybody can send them.
    UnknownSpi {
        spi: u32,
        /// The port is 0 without UDP encapsulation.
        remote: SocketAddr,
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
