//! One child SA: its keys and its life.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::iana::Group;

use super::{Context, IkeSa, deadline};
use crate::claims::{Claim, Ends};
use crate::config::{Action, Child, Mode};
use crate::event::{ChildSaDeleted, ChildSaId, ChildSaInstalled, DownReason, EspSuite, Event};
use crate::negotiate::ChosenEsp;
use crate::suite::{Keys, Nonces, Secret};
use crate::wire::{ProtocolId, TrafficSelector};

/// How long the inbound half of a deleted SA stays, for packets in flight.
const LINGER: Duration = Duration::from_secs(5);

/// A child to be established, and the packet that asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) config: Arc<Child>,
    /// Its ends, ours and the peer's, come first in the proposed selectors, so that narrowing keeps it (RFC 7296 section 2.9).
    pub(crate) packet: Option<(TrafficSelector, TrafficSelector)>,
}

impl Wanted {
    /// Whether both mean the same SA. Children whose selectors come from packets share one name.
    pub(crate) fn is(&self, other: &Child) -> bool {
        let own = &self.config;
        own.name == other.name
            && (!own.from_packet
                || (&own.local_ts, &own.remote_ts) == (&other.local_ts, &other.remote_ts))
    }
}

impl From<Arc<Child>> for Wanted {
    fn from(config: Arc<Child>) -> Self {
        Self {
            config,
            packet: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    Installed,
    /// Our rekey waits for its turn or its answer.
    Rekeying,
    /// Another has taken its place; its delete is under way, from here or from the peer.
    Rekeyed,
    Deleting,
}

impl ChildState {
    /// Neither replaced nor about to go.
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
    /// Of the fresh key exchange, if there was one.
    pub(crate) group: Option<Group>,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
    /// `ChildSaUseOutbound` was given.
    pub(crate) outbound: bool,
    /// The SA that this one replaces, until it is deleted.
    pub(crate) replaces: Option<ChildSaId>,
    pub(crate) installed: Instant,
    /// The last time that it, or what it replaces, carried a packet.
    pub(crate) last_used: Instant,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

/// What two peers have agreed on for a child SA.
pub(crate) struct Agreement<'a> {
    pub(crate) config: &'a Arc<Child>,
    /// Examined: nobody else's traffic.
    pub(crate) claim: Claim,
    pub(crate) chosen: &'a ChosenEsp,
    pub(crate) mode: Mode,
    /// The peer takes TFC padding.
    pub(crate) tfc: bool,
    /// Both ends take later fragments.
    pub(crate) non_first_fragments: bool,
    pub(crate) spi_in: u32,
    pub(crate) shared: Option<&'a Secret>,
    pub(crate) nonces: Nonces<'a>,
    /// Whether we began the exchange.
    pub(crate) initiator: bool,
    pub(crate) replaces: Option<ChildSaId>,
}

impl ChildSa {
    /// Derives the keys and gives them to the data plane (RFC 7296 section 2.17).
    pub(crate) fn install(
        ctx: &mut Context<'_>,
        sa: &IkeSa,
        keys: &Keys,
        agreed: Agreement<'_>,
    ) -> Option<Self> {
        let esp = agreed.chosen.suite;
        let len = esp.transform.key_material_len();
        let keymat = keys.child_keymat(agreed.shared, agreed.nonces, 2 * len)?;
        let (from_initiator, from_responder) = (keymat.part(0, len)?, keymat.part(len, len)?);
        let (key_out, key_in) = if agreed.initiator {
            (from_initiator, from_responder)
        } else {
            (from_responder, from_initiator)
        };
        let life = &agreed.config.lifetime;
        let rekey_in = life.rekey_time.saturating_sub(ctx.jitter(life.rand_time));
        let soft = |ctx: &mut Context<'_>, limit: u64, rand: u64| match limit {
            0 => 0,
            limit => limit.saturating_sub(ctx.jitter_count(rand)).max(1),
        };
        let soft_bytes = soft(ctx, life.rekey_bytes, life.rand_bytes);
        let soft_packets = soft(ctx, life.rekey_packets, life.rand_packets);
        let id = ChildSaId(ctx.next_id());
        let Ends {
            local: local_ts,
            remote: remote_ts,
        } = agreed.claim.ends.clone();
        ctx.claims.add(id, agreed.claim);
        let replaced = agreed.replaces.and_then(|old| sa.established()?.child(old));
        let last_used = replaced.map_or(ctx.now, |old| old.last_used);
        ctx.counters.child_sas_installed += 1;
        ctx.events
            .push_back(Event::ChildSaInstalled(Box::new(ChildSaInstalled {
                ike_sa: sa.id,
                child: id,
                connection: sa.connection.name.clone(),
                name: agreed.config.name.clone(),
                initiator: agreed.initiator,
                mode: agreed.mode,
                tfc: agreed.tfc,
                non_first_fragments: agreed.non_first_fragments,
                local_ts: local_ts.clone(),
                remote_ts: remote_ts.clone(),
                spi_in: agreed.spi_in,
                spi_out: agreed.chosen.peer_spi,
                esp,
                key_in,
                key_out,
                local: sa.local,
                remote: sa.remote,
                udp_encap: sa.nat.udp_encap(),
                soft_bytes,
                hard_bytes: life.life_bytes,
                soft_packets,
                hard_packets: life.life_packets,
                life_time: life.life_time,
                replay_window: agreed.config.replay_window,
                peer_replay_window: agreed.config.peer_replay_window,
                rekeyed_from: agreed.replaces,
            })));
        Some(Self {
            id,
            config: agreed.config.clone(),
            state: ChildState::Installed,
            mode: agreed.mode,
            protocol: agreed.chosen.answer.protocol,
            spi_in: agreed.spi_in,
            spi_out: agreed.chosen.peer_spi,
            esp,
            group: agreed.chosen.group,
            local_ts,
            remote_ts,
            outbound: false,
            replaces: agreed.replaces,
            installed: ctx.now,
            last_used,
            rekey_at: deadline(ctx.now, rekey_in.max(Duration::from_secs(1)))
                .filter(|_| !life.rekey_time.is_zero()),
            expires_at: deadline(ctx.now, life.life_time).filter(|_| !life.life_time.is_zero()),
        })
    }

    /// When it is closed for want of traffic.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        let limit = self.config.inactivity;
        deadline(self.last_used, limit).filter(|_| self.state.is_current() && !limit.is_zero())
    }

    pub(crate) fn use_outbound(&mut self, ctx: &mut Context<'_>) {
        if !self.outbound {
            self.outbound = true;
            ctx.events
                .push_back(Event::ChildSaUseOutbound { child: self.id });
        }
    }

    /// Tells the data plane that the SA is no more.
    pub(crate) fn uninstall(self, ctx: &mut Context<'_>, sa: &IkeSa, reason: DownReason) {
        let replaced = self.state == ChildState::Rekeyed;
        let then = if replaced {
            Action::Clear
        } else {
            match reason {
                DownReason::Timeout
                | DownReason::UnusableAnswer(_)
                | DownReason::Expired
                | DownReason::PeerMisbehaved(_) => self.config.dpd_action,
                DownReason::PeerDeleted => self.config.close_action,
                _ => Action::Clear,
            }
        };
        ctx.claims.remove(self.id);
        ctx.events.push_back(Event::ChildSaDeleted(ChildSaDeleted {
            ike_sa: sa.id,
            child: self.id,
            connection: sa.connection.name.clone(),
            name: self.config.name.clone(),
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            linger: LINGER,
            replaced,
            reason,
            then,
        }));
    }
}
