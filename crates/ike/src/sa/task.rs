//! Exchanges of ours: those that are queued, and the one that waits for its response.
//!
//! The window has room for one request (RFC 7296 §2.3), so that all others wait as tasks.

use std::sync::Arc;
use std::time::Instant;

use super::child_sa::ChildRequest;
use crate::config::Child;
use crate::failure::DownReason;
use crate::id::{ChildSaId, IkeSaId};
use crate::suite::ActiveKeyExchange;
use crate::wire::{ExchangeType, Proposal, ProtocolId, TrafficSelector};

/// Something that needs an exchange of ours.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    CreateChild(ChildRequest),
    RekeyChild(ChildSaId),
    DeleteChild(ChildSaId, DownReason),
    /// Deletes a child SA that the peer has made and that we could not accept. Our SPI is free when the peer confirms.
    DeleteUnaccepted(ProtocolId, u32),
    DeleteEnded(EndedChild),
    RekeyIke,
    DeleteIke(DownReason),
    Liveness,
    /// Gives the peer our crash token for an IKE SA that a rekey has made (RFC 6290 §4.3).
    CrashToken,
}

#[derive(Debug)]
pub(crate) struct QueuedTask {
    pub(crate) task: Task,
    pub(crate) not_before: Instant,
}

/// A child SA that has ended here, and that the peer is to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedChild {
    pub(crate) protocol: ProtocolId,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
}

/// Our exchange that waits for its response.
#[derive(Debug)]
pub(crate) enum PendingExchange {
    CreateChild(Box<PendingChild>),
    DeleteChild(ChildSaId, DownReason),
    DeleteUnaccepted(u32),
    DeleteEnded(EndedChild),
    RekeyIke(Box<PendingIkeRekey>),
    Liveness,
    CrashToken,
    /// A probe of the path, whose packet has this many bytes.
    PathProbe(u16),
}

/// A child SA that we have proposed.
#[derive(Debug)]
pub(crate) struct PendingChild {
    pub(crate) request: ChildRequest,
    pub(crate) spi_in: u32,
    pub(crate) nonce: Vec<u8>,
    /// The child's own key exchange. It is `None` if the child's keys come from the IKE SA's keys alone, as they always
    /// do in IKE_AUTH.
    pub(crate) key_exchange: Option<Arc<dyn ActiveKeyExchange>>,
    pub(crate) offer: Vec<Proposal>,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
    /// The child SA that this one is to replace.
    pub(crate) rekeys: Option<ChildSaId>,
    /// The peer has rekeyed the same child SA at the same time (RFC 7296 §2.8.1).
    pub(crate) simultaneous: Option<SimultaneousChildRekey>,
    /// Unknown SPIs that the peer has deleted since our request. If the response was lost, our new SA can be among them.
    pub(crate) deleted: Vec<u32>,
    /// The method of the key exchange was changed once, as INVALID_KE_PAYLOAD asked.
    pub(crate) method_changed: bool,
    /// The child is not wanted any more: the new SA is deleted when it is made.
    pub(crate) withdrawn: bool,
}

impl PendingChild {
    pub(crate) fn config(&self) -> &Arc<Child> {
        &self.request.config
    }

    /// The selectors that we have proposed, ours first.
    pub(crate) fn selectors(&self) -> (&[TrafficSelector], &[TrafficSelector]) {
        (&self.local_ts, &self.remote_ts)
    }

    /// ESP or AH: the proposals of a child have one protocol.
    pub(crate) fn protocol(&self) -> ProtocolId {
        self.offer
            .first()
            .map_or(ProtocolId::ESP, |proposal| proposal.protocol)
    }
}

/// The child SA that the peer's simultaneous rekey has made.
#[derive(Debug)]
pub(crate) struct SimultaneousChildRekey {
    pub(crate) child: ChildSaId,
    /// The lower nonce of the peer's exchange.
    pub(crate) lowest_nonce: Vec<u8>,
}

/// A rekey of the IKE SA that we have proposed.
#[derive(Debug)]
pub(crate) struct PendingIkeRekey {
    pub(crate) spi: u64,
    pub(crate) nonce: Vec<u8>,
    pub(crate) key_exchange: Arc<dyn ActiveKeyExchange>,
    pub(crate) offer: Vec<Proposal>,
    /// The peer has rekeyed the IKE SA at the same time (RFC 7296 §2.8.2).
    pub(crate) simultaneous: Option<SimultaneousIkeRekey>,
    /// The method of the key exchange was changed once, as INVALID_KE_PAYLOAD asked.
    pub(crate) method_changed: bool,
}

/// The IKE SA that the peer's simultaneous rekey has made.
#[derive(Debug)]
pub(crate) struct SimultaneousIkeRekey {
    pub(crate) ike_sa: IkeSaId,
    /// The lower nonce of the peer's exchange.
    pub(crate) lowest_nonce: Vec<u8>,
}

impl Task {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateChild(_) => "CHILD_CREATE",
            Self::RekeyChild(_) => "CHILD_REKEY",
            Self::DeleteChild(..) | Self::DeleteUnaccepted(..) | Self::DeleteEnded(_) => {
                "CHILD_DELETE"
            }
            Self::RekeyIke => "IKE_REKEY",
            Self::DeleteIke(_) => "IKE_DELETE",
            Self::Liveness => "IKE_DPD",
            Self::CrashToken => "IKE_CRASH_TOKEN",
        }
    }

    /// Says whether one of the two in the queue is enough.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::CreateChild(a), Self::CreateChild(b)) => a.is_for(&b.config),
            (Self::RekeyChild(a), Self::RekeyChild(b)) => a == b,
            (Self::DeleteChild(a, _), Self::DeleteChild(b, _)) => a == b,
            (Self::DeleteUnaccepted(protocol, a), Self::DeleteUnaccepted(other, b)) => {
                (protocol, a) == (other, b)
            }
            (Self::DeleteEnded(a), Self::DeleteEnded(b)) => a == b,
            (Self::RekeyIke, Self::RekeyIke)
            | (Self::DeleteIke(_), Self::DeleteIke(_))
            | (Self::Liveness, Self::Liveness)
            | (Self::CrashToken, Self::CrashToken) => true,
            _ => false,
        }
    }
}

impl PendingExchange {
    pub(crate) fn exchange_type(&self) -> ExchangeType {
        match self {
            Self::CreateChild(_) | Self::RekeyIke(_) => ExchangeType::CREATE_CHILD_SA,
            Self::DeleteChild(..)
            | Self::DeleteUnaccepted(..)
            | Self::DeleteEnded(_)
            | Self::Liveness
            | Self::CrashToken
            | Self::PathProbe(_) => ExchangeType::INFORMATIONAL,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateChild(pending) if pending.rekeys.is_some() => "CHILD_REKEY",
            Self::CreateChild(_) => "CHILD_CREATE",
            Self::DeleteChild(..) | Self::DeleteUnaccepted(..) | Self::DeleteEnded(_) => {
                "CHILD_DELETE"
            }
            Self::RekeyIke(_) => "IKE_REKEY",
            Self::Liveness => "IKE_DPD",
            Self::CrashToken => "IKE_CRASH_TOKEN",
            Self::PathProbe(_) => "IKE_PATH_PROBE",
        }
    }
}
