//! A child SA, and the request for a child SA.

use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::iana::Group;

use super::{TrafficPast, deadline};
use crate::claims::SelectorPair;
use crate::config::{Child, Mode};
use crate::event::EspSuite;
use crate::id::ChildSaId;
use crate::ts;
use crate::wire::{ProtocolId, TrafficSelector};

/// A child to be established, and the packet that asks for it.
#[derive(Clone, Debug)]
pub(crate) struct ChildRequest {
    pub(crate) config: Arc<Child>,
    /// The packet's local and remote selector. They come first in the proposed selectors, so that the responder's narrowing
    /// keeps them (RFC 7296 §2.9).
    pub(crate) packet: Option<(TrafficSelector, TrafficSelector)>,
    /// The SA of another IKE SA that the new one takes over from: the peers authenticate again.
    pub(crate) succeeds: Option<ChildSaId>,
}

impl ChildRequest {
    /// Says whether the request and `other` mean the same SA. Children whose selectors come from packets share one name.
    pub(crate) fn is_for(&self, other: &Child) -> bool {
        let own = &self.config;
        own.name == other.name
            && (!own.from_packet
                || (&own.local_ts, &own.remote_ts) == (&other.local_ts, &other.remote_ts))
    }

    /// Says whether an SA with these selectors carries the packet that asks, if one does.
    pub(crate) fn is_met_by(&self, local: &[TrafficSelector], remote: &[TrafficSelector]) -> bool {
        let has = |list: &[TrafficSelector], end: TrafficSelector| {
            list.iter().any(|own| ts::contains(own, &end))
        };
        let packet = self.packet.filter(|_| !self.config.from_packet);
        packet.is_none_or(|(own, theirs)| has(local, own) && has(remote, theirs))
    }
}

impl ChildRequest {
    /// The request for an SA of the packet alone, which SINGLE_PAIR_REQUIRED asks for (RFC 7296 §2.9). It is made once:
    /// the new request has no packet.
    pub(crate) fn single_pair(&self) -> Option<Self> {
        let pair = self.packet?;
        Some(Arc::new(self.config.populated(pair)).into())
    }
}

impl From<Arc<Child>> for ChildRequest {
    fn from(config: Arc<Child>) -> Self {
        Self {
            config,
            packet: None,
            succeeds: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    Installed,
    /// Our rekey is queued, or waits for its response.
    Rekeying,
    /// Another SA has replaced it. Its delete is under way, from us or from the peer.
    Rekeyed,
    Deleting,
}

impl ChildState {
    /// The SA is neither replaced nor being deleted.
    pub(crate) fn is_current(self) -> bool {
        matches!(self, Self::Installed | Self::Rekeying)
    }
}

#[derive(Debug)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    pub(crate) config: Arc<Child>,
    pub(crate) state: ChildState,
    pub(crate) mode: Mode,
    pub(crate) protocol: ProtocolId,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) esp: EspSuite,
    /// The method of its own key exchange. It is `None` if the child's keys come from the IKE SA's keys alone.
    pub(crate) key_exchange: Option<Group>,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
    /// [`crate::Event::ChildSaUseOutbound`] was given.
    pub(crate) outbound: bool,
    /// The SA that this one replaces, until that one is deleted.
    pub(crate) replaces: Option<ChildSaId>,
    pub(crate) installed: Instant,
    /// The time at which the SA, or the SA that it replaces, last carried a packet.
    pub(crate) last_used: Instant,
    /// The past of the traffic of the SA, and of those that it has replaced.
    pub(crate) past: TrafficPast,
    /// Our last attempt to rekey the SA has failed.
    pub(crate) rekey_failed: bool,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

impl ChildSa {
    /// Returns the time at which the SA has carried no packet for as long as `inactivity` allows.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        let limit = self.config.inactivity;
        deadline(self.last_used, limit).filter(|_| self.state.is_current() && !limit.is_zero())
    }

    pub(crate) fn selectors(&self) -> SelectorPair {
        SelectorPair {
            local: self.local_ts.clone(),
            remote: self.remote_ts.clone(),
        }
    }

    /// The SA was replaced, so that it is not rekeyed again.
    pub(crate) fn set_rekeyed(&mut self) {
        self.state = ChildState::Rekeyed;
        self.rekey_at = None;
    }
}
