//! NAT detection, and the change to the NAT-T port (RFC 7296 §2.23).

use std::net::SocketAddr;

use crate::config::Ports;
use crate::suite::nat_detection_hash;
use crate::wire::{Notify, NotifyType, Payload};

/// The ends that are behind a NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nat {
    /// This end is behind a NAT.
    pub(crate) local: bool,
    /// The peer is behind a NAT.
    pub(crate) remote: bool,
    /// UDP encapsulation is wanted in any case.
    pub(crate) forced: bool,
    /// Both ends support NAT traversal.
    pub(crate) supported: bool,
}

/// The trial of UDP encapsulation where ESP does not pass and no NAT was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpTrial {
    #[default]
    Untried,
    /// The IKE SA that replaces this one is to try it.
    Wanted,
    UnderWay,
    Helped,
    /// Nothing has come in UDP either, so that the next IKE SA leaves it again.
    Failed,
}

impl UdpTrial {
    /// Returns the state of an IKE SA that replaces one with this state.
    pub(crate) fn of_successor(self) -> Self {
        match self {
            Self::Wanted => Self::UnderWay,
            other => other,
        }
    }

    /// Says whether ESP goes in UDP because of a trial.
    pub(crate) fn is_in_udp(self) -> bool {
        matches!(self, Self::UnderWay | Self::Helped)
    }
}

impl Nat {
    pub(crate) fn udp_encap(self) -> bool {
        self.local || self.remote || self.forced
    }
}

/// The two NAT detection notifies of an IKE_SA_INIT message. With `forced` the source hash is false, so that the peer
/// sees a NAT.
pub(crate) fn notifies(
    spi_i: u64,
    spi_r: u64,
    local: SocketAddr,
    remote: SocketAddr,
    forced: bool,
) -> [Payload; 2] {
    let mut source = nat_detection_hash(spi_i, spi_r, local);
    if forced {
        source[0] ^= 0xff;
    }
    let destination = nat_detection_hash(spi_i, spi_r, remote);
    [
        Payload::Notify(Notify::new(
            NotifyType::NAT_DETECTION_SOURCE_IP,
            source.to_vec(),
        )),
        Payload::Notify(Notify::new(
            NotifyType::NAT_DETECTION_DESTINATION_IP,
            destination.to_vec(),
        )),
    ]
}

/// Evaluates the peer's NAT detection notifies. A peer that sends none does not support NAT traversal.
pub(crate) fn detect<'a>(
    notifies: impl Iterator<Item = &'a Notify>,
    spi_i: u64,
    spi_r: u64,
    local: SocketAddr,
    remote: SocketAddr,
    forced: bool,
) -> Nat {
    // Each hash is computed once: a message has room for thousands of these notifies.
    let of_remote = nat_detection_hash(spi_i, spi_r, remote);
    let of_local = nat_detection_hash(spi_i, spi_r, local);
    let (mut sources, mut source_matches) = (false, false);
    let (mut destinations, mut destination_matches) = (false, false);
    for notify in notifies {
        match notify.kind {
            NotifyType::NAT_DETECTION_SOURCE_IP => {
                sources = true;
                source_matches |= notify.data == of_remote;
            }
            NotifyType::NAT_DETECTION_DESTINATION_IP => {
                destinations = true;
                destination_matches |= notify.data == of_local;
            }
            _ => {}
        }
    }
    let supported = sources && destinations;
    Nat {
        local: supported && !destination_matches,
        remote: supported && !source_matches,
        forced: supported && forced,
        supported,
    }
}

/// Changes both ports to those for use behind a NAT, from IKE_AUTH on.
pub(crate) fn float(local: &mut SocketAddr, remote: &mut SocketAddr, ports: &Ports) {
    if local.port() != ports.nat_t {
        local.set_port(ports.nat_t);
    }
    if remote.port() == Ports::default().ike {
        remote.set_port(Ports::default().nat_t);
    }
}
