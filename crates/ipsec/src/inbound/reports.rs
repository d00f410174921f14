//! The reports of a walk: counters, events and audit events.

use std::net::IpAddr;
use std::sync::Arc;

use crate::audit::{AuditEvent, AuditKind};
use crate::drop_reason::{DropReason, WalkCounters};
use crate::event::Event;
use crate::lifetime::LifetimeEvent;
use crate::sa::{InboundSa, SaDirection};
use crate::sad::Sad;
use crate::tunnel::OuterFacts;

/// SPIs up to here are reserved (RFC 4303 §2.1).
const RESERVED_MAX: u32 = 255;
/// The shortest time between two events about unknown SPIs: from strangers, and from addresses of peers.
const UNKNOWN_EVERY_MS: u64 = 10;
const UNKNOWN_OF_PEERS_EVERY_MS: u64 = 1;

#[derive(Debug)]
pub(super) struct Reports {
    pub counters: Arc<WalkCounters>,
    pub events: Vec<Event>,
    pub audits: Vec<(AuditEvent, u64)>,
    /// The next time at which an unknown SPI of a stranger may raise an event, and one from an address of a peer.
    unknown_ms: u64,
    unknown_of_peers_ms: u64,
}

impl Reports {
    pub fn new() -> Self {
        Self {
            counters: Arc::default(),
            events: Vec::new(),
            audits: Vec::with_capacity(AuditKind::ALL.len()),
            unknown_ms: 0,
            unknown_of_peers_ms: 0,
        }
    }

    /// Counts a dropped packet of an SA.
    #[cold]
    pub fn drop_packet(
        &mut self,
        reason: DropReason,
        sa: &InboundSa,
        sequence: Option<u64>,
        facts: &OuterFacts,
    ) {
        sa.common.drops.add(reason, 1);
        let (spi, local) = (sa.common.spi, sa.common.path().local.ip());
        self.drop_at(reason, Some(spi), sequence, facts, Some(local));
    }

    /// Counts a dropped packet that belongs to no known SA.
    #[cold]
    pub fn drop_of(
        &mut self,
        reason: DropReason,
        spi: Option<u32>,
        sequence: Option<u64>,
        facts: &OuterFacts,
    ) {
        self.drop_at(reason, spi, sequence, facts, None);
    }

    /// Counts a dropped packet whose SPI no SA has.
    #[cold]
    pub fn drop_unknown(
        &mut self,
        sad: &Sad,
        (spi, sequence): (u32, u32),
        facts: &OuterFacts,
        now_ms: u64,
    ) {
        let (reason, sequence) = (DropReason::UnknownSpi, Some(sequence.into()));
        self.drop_of(reason, Some(spi), sequence, facts);
        let remote = facts.remote;
        let (next_ms, every_ms) = match sad.has_peer_at(remote.ip()) {
            true => (&mut self.unknown_of_peers_ms, UNKNOWN_OF_PEERS_EVERY_MS),
            false => (&mut self.unknown_ms, UNKNOWN_EVERY_MS),
        };
        if spi > RESERVED_MAX && now_ms >= *next_ms {
            *next_ms = now_ms + every_ms;
            self.events.push(Event::UnknownSpi { spi, remote });
        }
    }

    fn drop_at(
        &mut self,
        reason: DropReason,
        spi: Option<u32>,
        sequence: Option<u64>,
        facts: &OuterFacts,
        local: Option<IpAddr>,
    ) {
        self.counters.count_drop(reason, 1);
        let Some(kind) = AuditKind::of(reason) else {
            return;
        };
        match self.audits.iter_mut().find(|(event, _)| event.kind == kind) {
            Some((_, count)) => *count += 1,
            None => self.audits.push((
                AuditEvent {
                    kind,
                    spi,
                    sequence,
                    source: Some(facts.remote.ip()),
                    destination: local.filter(|local| !local.is_unspecified()),
                    flow_label: None,
                },
                1,
            )),
        }
    }

    /// Follows a peer whose UDP port a NAT has changed (RFC 7296 §2.23).
    #[inline(always)]
    pub fn observe(&mut self, sa: &InboundSa, facts: &OuterFacts) {
        if let Some(from) = sa.observe(facts.remote) {
            self.events.push(Event::PeerMoved {
                spi: sa.common.spi,
                policy: sa.common.policy,
                from,
                to: facts.remote,
            });
        }
    }

    #[cold]
    pub fn raise(&mut self, sa: &InboundSa, event: LifetimeEvent) {
        let event = Event::lifetime(SaDirection::Inbound, &sa.common, event);
        self.events.push(event);
    }
}
