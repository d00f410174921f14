//! Lifetimes of IKE SAs and their children, liveness checks and NAT keepalives.

use std::time::{Duration, Instant};

use super::child_sa::ChildState;
use super::context::Context;
use super::deadline;
use super::established::Established;
use super::ike_sa::IkeSaCommon;
use super::task::Task;
use crate::config::{Connection, Identity};
use crate::event::Event;
use crate::failure::{ChildFailure, DownReason};
use crate::id::ChildSaId;
use crate::peer::PeerKey;
use crate::protected::ProtectedChannel;

/// Pause before a rekey that has failed is tried again.
const REKEY_AGAIN: Duration = Duration::from_secs(30);

impl Established {
    pub(crate) fn new(
        ctx: &mut Context<'_>,
        connection: &Connection,
        channel: ProtectedChannel,
        local_id: Identity,
        remote_id: Identity,
    ) -> Self {
        let soft = connection
            .rekey_time
            .saturating_sub(ctx.jitter(connection.rand_time));
        let over = if connection.over_time.is_zero() {
            connection.rekey_time / 10
        } else {
            connection.over_time
        };
        let limited = !connection.rekey_time.is_zero();
        Self {
            channel,
            peer: PeerKey::new(connection, &local_id, &remote_id),
            local_id,
            remote_id,
            children: Vec::new(),
            tasks: std::collections::VecDeque::new(),
            exchange: None,
            last_heard: ctx.now,
            established: ctx.now,
            last_id: *ctx.last_id,
            rekey_at: deadline(ctx.now, soft.max(Duration::from_secs(1))).filter(|_| limited),
            expires_at: deadline(ctx.now, connection.rekey_time.saturating_add(over))
                .filter(|_| limited),
        }
    }

    /// Queues what lifetimes and silence ask for.
    pub(crate) fn check_lifetimes(&mut self, sa: &IkeSaCommon, ctx: &mut Context<'_>) {
        if sa.suspended {
            return;
        }
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= ctx.now).is_some();
        let mut tasks = Vec::new();
        if due(&mut self.expires_at) {
            tasks.push(Task::DeleteIke(DownReason::Expired));
        }
        if due(&mut self.rekey_at) {
            tasks.push(Task::RekeyIke);
        }
        for child in &mut self.children {
            if due(&mut child.expires_at) && child.state != ChildState::Deleting {
                let reason = if child.state == ChildState::Rekeyed {
                    DownReason::Rekeyed
                } else {
                    DownReason::Expired
                };
                tasks.push(Task::DeleteChild(child.id, reason));
            }
            if child.idle_at().is_some_and(|at| at <= ctx.now) {
                // The event is given once; the next one is due when traffic has been missing for as long again.
                child.last_used = ctx.now;
                ctx.events.push_back(Event::ChildSaIdle { child: child.id });
                continue;
            }
            if due(&mut child.rekey_at) && child.state == ChildState::Installed {
                child.state = ChildState::Rekeying;
                tasks.push(Task::RekeyChild(child.id));
            }
        }
        let delay = sa.connection.dpd_delay;
        let silence = ctx.now.saturating_duration_since(self.last_heard);
        if !delay.is_zero() && !sa.window.is_busy() && silence >= delay {
            tasks.push(Task::Liveness);
        }
        for task in tasks {
            self.queue(ctx, task);
        }
    }

    /// Our rekey of the IKE SA has failed. It is tried again later, within the hard lifetime.
    pub(crate) fn ike_rekey_failed(&mut self, ctx: &mut Context<'_>) {
        self.rekey_at = Some(ctx.now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN));
    }

    /// Our rekey of a child SA has failed. It is tried again later, within the hard lifetime.
    pub(crate) fn child_rekey_failed(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let again = ctx.now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN);
        if let Some(child) = self
            .child_mut(id)
            .filter(|child| child.state == ChildState::Rekeying)
        {
            child.state = ChildState::Installed;
            child.rekey_at = Some(again);
        }
    }
}

impl IkeSaCommon {
    pub(crate) fn child_failed(&self, ctx: &mut Context<'_>, child: &str, reason: ChildFailure) {
        ctx.events.push_back(Event::ChildFailed {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            child: child.to_owned(),
            reason,
        });
    }

    /// Asks for a NAT keepalive when nothing was sent for a while (RFC 3948 §4).
    pub(crate) fn keep_nat_mapping(&mut self, ctx: &mut Context<'_>) {
        let interval = ctx.config.nat_keepalive;
        let silence = ctx.now.saturating_duration_since(self.last_sent);
        if self.nat.local && !interval.is_zero() && silence >= interval {
            self.last_sent = ctx.now;
            ctx.events.push_back(Event::NatKeepalive {
                local: self.local,
                remote: self.remote,
            });
        }
    }
}
