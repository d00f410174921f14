//! The life of a child SA: installed in the data plane, used outbound, and taken out of service.

use std::sync::Arc;
use std::time::Duration;

use super::child_sa::{ChildSa, ChildState};
use super::context::Context;
use super::deadline;
use super::established::Established;
use super::ike_sa::IkeSaCommon;
use super::task::{EndedChild, PendingExchange, Task};
use crate::claims::{Claim, Claims, SelectorPair};
use crate::config::{Child, EndAction, Mode};
use crate::event::{ChildSaDeleted, ChildSaInstalled, Event};
use crate::failure::DownReason;
use crate::id::{ChildSaId, IkeSaId};
use crate::negotiate::ChosenEsp;
use crate::suite::{Nonces, Secret};

/// The time for which the inbound half of a deleted SA stays, for packets in flight.
const LINGER: Duration = Duration::from_secs(5);

/// The parameters that two peers have agreed on for a child SA.
pub(crate) struct AgreedChild<'a> {
    pub(crate) config: &'a Arc<Child>,
    /// The traffic of the SA. No other peer has any of it.
    pub(crate) claim: Claim,
    pub(crate) chosen: &'a ChosenEsp,
    pub(crate) mode: Mode,
    /// The peer accepts TFC padding.
    pub(crate) tfc: bool,
    /// Both ends accept non-first fragments (RFC 4301 §7.3).
    pub(crate) non_first_fragments: bool,
    pub(crate) spi_in: u32,
    /// The secret of the child's own key exchange.
    pub(crate) shared: Option<&'a Secret>,
    pub(crate) nonces: Nonces<'a>,
    /// We began the exchange.
    pub(crate) initiator: bool,
    pub(crate) replaces: Option<ChildSaId>,
    /// The SA of another IKE SA that this one takes over from.
    pub(crate) succeeds: Option<ChildSaId>,
}

impl ChildSa {
    /// Derives the keys and gives the SA to the data plane (RFC 7296 §2.17). Returns `None` if the keys cannot be
    /// derived.
    pub(crate) fn install(
        ctx: &mut Context<'_>,
        sa: &IkeSaCommon,
        state: &Established,
        agreed: AgreedChild<'_>,
    ) -> Option<Self> {
        let esp = agreed.chosen.suite;
        let len = esp.transform.key_material_len();
        let keys = state.channel.keys();
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
        let SelectorPair {
            local: local_ts,
            remote: remote_ts,
        } = SelectorPair::clone(&agreed.claim.selectors);
        ctx.claims.add(id, agreed.claim);
        ctx.tell_of_child_limits(&state.peer);
        let replaced = agreed.replaces.and_then(|old| state.child(old));
        let last_used = replaced.map_or(ctx.now, |old| old.last_used);
        let past = replaced.map(|old| old.past).unwrap_or_default();
        ctx.counters.child_sas_installed += 1;
        let (local, remote) = sa.esp_ends();
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
                local,
                remote,
                udp_encap: sa.nat.udp_encap(),
                soft_bytes,
                hard_bytes: life.life_bytes,
                soft_packets,
                hard_packets: life.life_packets,
                life_time: life.life_time,
                replay_window: agreed.config.replay_window,
                peer_replay_window: agreed.config.peer_replay_window,
                rekeyed_from: agreed.replaces.or(agreed.succeeds),
            })));
        Some(Self {
            id,
            config: agreed.config.clone(),
            state: ChildState::Installed,
            mode: agreed.mode,
            protocol: agreed.chosen.proposal.protocol,
            spi_in: agreed.spi_in,
            spi_out: agreed.chosen.peer_spi,
            esp,
            key_exchange: agreed.chosen.key_exchange,
            local_ts,
            remote_ts,
            outbound: false,
            replaces: agreed.replaces,
            installed: ctx.now,
            last_used,
            past,
            rekey_failed: false,
            rekey_at: deadline(ctx.now, rekey_in.max(Duration::from_secs(1)))
                .filter(|_| !life.rekey_time.is_zero()),
            expires_at: deadline(ctx.now, life.life_time).filter(|_| !life.life_time.is_zero()),
        })
    }

    /// From now on the data plane sends on this SA.
    pub(crate) fn use_outbound(&mut self, ctx: &mut Context<'_>) {
        if !self.outbound {
            self.outbound = true;
            ctx.events
                .push_back(Event::ChildSaUseOutbound { child: self.id });
        }
    }

    /// Takes the SA out of the data plane.
    pub(crate) fn uninstall(
        self,
        claims: &mut Claims,
        ike_sa: IkeSaId,
        connection: &str,
        reason: DownReason,
    ) -> Event {
        // A peer that authenticates again makes the new SA before it deletes the old IKE SA.
        let of_peer = matches!(reason, DownReason::PeerDeleted | DownReason::Superseded);
        let replaced =
            self.state == ChildState::Rekeyed || of_peer && claims.is_taken_over(self.id);
        let then = if replaced {
            EndAction::Clear
        } else {
            match reason {
                DownReason::Timeout
                | DownReason::PeerRestarted
                | DownReason::PeerBusy
                | DownReason::UnusableResponse(_)
                | DownReason::Expired
                | DownReason::AddressGone
                | DownReason::PeerMisbehaved(_) => self.config.dpd_action,
                DownReason::PeerDeleted => self.config.close_action,
                _ => EndAction::Clear,
            }
        };
        claims.remove(self.id);
        Event::ChildSaDeleted(ChildSaDeleted {
            ike_sa,
            child: self.id,
            connection: connection.to_owned(),
            name: self.config.name.clone(),
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            linger: LINGER,
            replaced,
            reason,
            then,
        })
    }
}

impl Established {
    /// Takes a child SA out of service. The SA that has replaced it sends from now on. The delete of the old SA tells
    /// that the initiator of the rekey can receive on the new SA (RFC 7296 §2.8).
    pub(crate) fn remove_child(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) {
        let mut successors = self.children.iter_mut();
        if let Some(successor) = successors.find(|child| child.replaces == Some(id)) {
            successor.replaces = None;
            successor.use_outbound(ctx);
        }
        if let Some(index) = self.children.iter().position(|child| child.id == id) {
            let child = self.children.remove(index);
            self.children.shrink_to_fit();
            let ended = child.uninstall(ctx.claims, sa.id, &sa.connection.name, reason);
            ctx.events.push_back(ended);
        }
    }

    pub(crate) fn child_deleted_by_peer(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        let reason = match self.child(id).map(|child| child.state) {
            Some(ChildState::Rekeyed) => DownReason::Rekeyed,
            _ => DownReason::PeerDeleted,
        };
        self.remove_child(sa, ctx, id, reason);
    }

    /// Ends the children of an IKE SA that is about to be deleted, and drops the tasks for them.
    pub(crate) fn end_children(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        reason: &DownReason,
    ) {
        let children = std::mem::take(&mut self.children);
        // The SPIs of unaccepted child SAs are still to be released, and one delete of the IKE SA is to be sent.
        self.tasks.retain(|queued| {
            matches!(queued.task, Task::DeleteUnaccepted(..) | Task::DeleteIke(_))
        });
        sa.end_later(ctx, children, reason);
    }

    /// Ends a child SA by our own decision. The SA ends here at once, whether the peer answers or not. Returns false if
    /// there is no such SA.
    pub(crate) fn end_child(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: DownReason,
    ) -> bool {
        let Some(child) = self.child(id) else {
            return false;
        };
        let state = child.state;
        let ended = EndedChild {
            protocol: child.protocol,
            spi_in: child.spi_in,
            spi_out: child.spi_out,
        };
        if let Some(PendingExchange::CreateChild(pending)) = &mut self.exchange
            && pending.rekeys == Some(id)
        {
            pending.withdrawn = true;
        }
        self.tasks.retain(|queued| {
            !matches!(queued.task, Task::RekeyChild(of) | Task::DeleteChild(of, _) if of == id)
        });
        self.remove_child(sa, ctx, id, reason);
        if state != ChildState::Deleting {
            self.queue(ctx, Task::DeleteEnded(ended));
        }
        true
    }
}
