//! One child SA: its keys and its life.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::iana::Group;

use super::{Context, IkeSa, deadline};
use crate::config::{Action, Child};
use crate::event::{ChildSaDeleted, ChildSaId, ChildSaInstalled, DownReason, EspSuite, Event};
use crate::negotiate::ChosenEsp;
use crate::suite::{Keys, Nonces, Secret};
use crate::wire::TrafficSelector;

/// How long the inbound half of a deleted SA stays, for packets in flight.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    Installed,
    /// Our rekey waits for its turn or its answer.
    Rekeying,
    /// Another has taken its place; its delete is under way, from here or from the peer.
    Rekeyed,
    Deleting,
}

#[derive(Debug)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    pub(crate) config: Arc<Child>,
    pub(crate) state: ChildState,
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
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

/// What two peers have agreed on for a child SA.
pub(crate) struct Agreement<'a> {
    pub(crate) config: &'a Arc<Child>,
    pub(crate) chosen: &'a ChosenEsp,
    pub(crate) spi_in: u32,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
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
        ctx.counters.child_sas_installed += 1;
        ctx.events
            .push_back(Event::ChildSaInstalled(Box::new(ChildSaInstalled {
                ike_sa: sa.id,
                child: id,
                connection: sa.connection.name.clone(),
                name: agreed.config.name.clone(),
                initiator: agreed.initiator,
                mode: agreed.config.mode,
                local_ts: agreed.local_ts.clone(),
                remote_ts: agreed.remote_ts.clone(),
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
                replay_window: agreed.config.replay_window,
                rekeyed_from: agreed.replaces,
            })));
        Some(Self {
            id,
            config: agreed.config.clone(),
            state: ChildState::Installed,
            spi_in: agreed.spi_in,
            spi_out: agreed.chosen.peer_spi,
            esp,
            group: agreed.chosen.group,
            local_ts: agreed.local_ts,
            remote_ts: agreed.remote_ts,
            outbound: false,
            replaces: agreed.replaces,
            installed: ctx.now,
            rekey_at: deadline(ctx.now, rekey_in.max(Duration::from_secs(1)))
                .filter(|_| !life.rekey_time.is_zero()),
            expires_at: deadline(ctx.now, life.life_time).filter(|_| !life.life_time.is_zero()),
        })
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
                DownReason::Timeout | DownReason::Expired | DownReason::PeerMisbehaved(_) => {
                    self.config.dpd_action
                }
                DownReason::PeerDeleted => self.config.close_action,
                _ => Action::Clear,
            }
        };
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
        if then == Action::Start {
            ctx.effects.push(super::Effect::Reinitiate {
                connection: sa.connection.clone(),
                children: vec![self.config.name.clone()],
                local: sa.local,
            });
        }
    }
}
