//! Lifetimes of IKE SAs and their children, liveness checks, crash tokens and NAT keepalives.

use std::time::{Duration, Instant};

use super::child_sa::ChildState;
use super::context::{Context, Effect};
use super::deadline;
use super::established::Established;
use super::ike_sa::IkeSaCommon;
use super::liveness::Liveness;
use super::path_search::PathSearch;
use super::task::{PendingExchange, Task};
use crate::config::{Connection, Identity};
use crate::crash_token;
use crate::event::Event;
use crate::failure::{ChildFailure, DownReason};
use crate::id::ChildSaId;
use crate::jobs::AuthenticatedPeer;
use crate::peer::PeerKey;
use crate::protected::ProtectedChannel;
use crate::transport::Urgency;
use crate::wire::{Message, NotifyType};

/// Pause before a rekey or a reauthentication that has failed is tried again.
const REKEY_AGAIN: Duration = Duration::from_secs(30);
/// The time before the end of an authentication at which the peers authenticate again, at least. Half of a short lifetime
/// is enough.
const EARLY_MIN: Duration = Duration::from_secs(60);
/// The shortest lifetime of an authentication that is obeyed. A peer that tells less has us authenticate no more often.
const LIFETIME_MIN: Duration = Duration::from_secs(5);
/// The time of a peer that seems to have lost the SA, where the connection sets none.
const DOUBT: Duration = Duration::from_secs(10);

impl Established {
    pub(crate) fn new(
        ctx: &mut Context<'_>,
        connection: &Connection,
        channel: ProtectedChannel,
        local_id: Identity,
        peer: AuthenticatedPeer,
    ) -> Self {
        let AuthenticatedPeer {
            identity: remote_id,
            groups,
            certificate,
        } = peer;
        let (rekey, reauth) = (connection.rekey_time, connection.reauth_time);
        let over = if connection.over_time.is_zero() {
            rekey.max(reauth) / 10
        } else {
            connection.over_time
        };
        let mut soft = |time: Duration| {
            let early = time.saturating_sub(ctx.jitter(connection.rand_time));
            deadline(ctx.now, early.max(Duration::from_secs(1))).filter(|_| !time.is_zero())
        };
        let (rekey_at, reauth_at) = (soft(rekey), soft(reauth));
        let hard = |time: Duration| {
            deadline(ctx.now, time.saturating_add(over)).filter(|_| !time.is_zero())
        };
        let reauth_limit = hard(reauth);
        Self {
            channel,
            peer: PeerKey::new(connection, &local_id, &remote_id),
            local_id,
            remote_id,
            groups,
            certificate,
            children: Vec::new(),
            tasks: std::collections::VecDeque::new(),
            exchange: None,
            liveness: Liveness::new(ctx.now),
            path: PathSearch::default(),
            unknown_until: None,
            runs_out: false,
            held: None,
            busy_since: None,
            peer_token: None,
            established: ctx.now,
            last_id: *ctx.last_id,
            rekey_at,
            expires_at: hard(rekey).into_iter().chain(reauth_limit).min(),
            reauth_at,
            reauth_limit,
            reauth_failure: None,
            rekey_failure: None,
            reauthentication: None,
            superseded: None,
        }
    }

    /// The peer as it has proved its identity.
    pub(crate) fn authenticated_peer(&self) -> AuthenticatedPeer {
        AuthenticatedPeer {
            identity: self.remote_id.clone(),
            groups: self.groups.clone(),
            certificate: self.certificate,
        }
    }

    /// A rekey has made this SA from `old`, and authenticates nobody (RFC 7296 §2.8.3).
    pub(crate) fn keep_authentication(&mut self, old: &Self) {
        self.superseded = old.superseded;
        self.path = old.path;
        self.reauth_failure.clone_from(&old.reauth_failure);
        if old.reauth_limit.is_none() {
            return;
        }
        let of_rekey = self
            .expires_at
            .filter(|_| self.expires_at != self.reauth_limit);
        self.expires_at = of_rekey.into_iter().chain(old.reauth_limit).min();
        self.reauth_at = old.reauth_at;
        self.reauth_limit = old.reauth_limit;
    }

    /// The peer says for how long the authentication holds. The peers authenticate again before (RFC 4478 §2).
    pub(crate) fn keep_lifetime(&mut self, ctx: &mut Context<'_>, message: &Message) {
        let told = message.notification(NotifyType::AUTH_LIFETIME);
        let Some(seconds) = told.and_then(|told| <[u8; 4]>::try_from(&*told.data).ok()) else {
            return;
        };
        let lifetime = Duration::from_secs(u32::from_be_bytes(seconds).into());
        let early = (lifetime / 10).max(EARLY_MIN).min(lifetime / 2);
        let soft = lifetime - early - ctx.jitter(early / 2);
        let earlier = |before: Option<Instant>, after: Duration| {
            let own = deadline(ctx.now, after);
            before.into_iter().chain(own).min()
        };
        let hard = lifetime.max(2 * LIFETIME_MIN);
        self.reauth_at = earlier(self.reauth_at, soft.max(LIFETIME_MIN));
        self.reauth_limit = earlier(self.reauth_limit, hard);
        self.expires_at = earlier(self.expires_at, hard);
    }

    /// An authenticated message or ESP packet of the peer has come in.
    pub(crate) fn heard(&mut self, ctx: &mut Context<'_>) {
        if let Some(attempt) = self.liveness.heard(ctx.now) {
            ctx.effects
                .push(Effect::WithdrawAttempt { ike_sa: attempt });
        }
    }

    /// Keeps the crash token that a protected message brings.
    pub(crate) fn keep_token(&mut self, ctx: &Context<'_>, message: &Message) {
        if ctx.config.quick_crash_detection
            && let Some(token) = crash_token::given(message)
        {
            self.peer_token = Some(token);
        }
    }

    /// Queues what lifetimes and silence ask for.
    pub(crate) fn check_lifetimes(&mut self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) {
        if sa.suspended {
            return;
        }
        self.lapse_one_way(sa, ctx);
        let now = ctx.now;
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        let (mut tasks, mut expired) = (Vec::new(), Vec::new());
        if due(&mut self.expires_at) {
            tasks.push(Task::DeleteIke(DownReason::Expired));
        }
        if due(&mut self.superseded) {
            ctx.effects.push(Effect::Superseded { ike_sa: sa.id });
        }
        if due(&mut self.reauth_at) {
            // It is tried again later, within the hard lifetime.
            self.reauth_at = Some(now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN));
            ctx.effects.push(Effect::Reauthenticate { ike_sa: sa.id });
        }
        if due(&mut self.rekey_at) {
            tasks.push(Task::RekeyIke);
        }
        for child in &mut self.children {
            if due(&mut child.expires_at) && child.state != ChildState::Deleting {
                expired.push(child.id);
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
        tasks.extend(expired.into_iter().filter_map(|id| self.expiry(id)));
        for task in tasks {
            self.queue(ctx, task);
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.liveness.reach_out_at(&sa.connection)) {
            self.liveness.reached_out();
            ctx.effects.push(Effect::ReachOut { ike_sa: sa.id });
        }
        if is_due(self.liveness.ask_at(&sa.connection)) && !sa.window.asks_for_life() {
            self.ask_for_life(sa, ctx);
        }
    }

    /// The lifetime of a child SA has ended. Without a rekey that could go on, the IKE SA ends with it (RFC 7296 §2.8).
    pub(crate) fn expiry(&self, id: ChildSaId) -> Option<Task> {
        let child = self.child(id)?;
        let under_way = matches!(
            &self.exchange,
            Some(PendingExchange::CreateChild(pending)) if pending.rekeys == Some(id)
        );
        let waits = child.state == ChildState::Rekeying && !under_way;
        Some(match child.state {
            ChildState::Rekeyed => Task::DeleteChild(id, DownReason::Rekeyed),
            _ if child.rekey_failed || waits => Task::DeleteIke(DownReason::Expired),
            _ => Task::DeleteChild(id, DownReason::Expired),
        })
    }

    /// A message that nobody has authenticated says that the peer has lost an SA. It is no proof, but a reason to ask
    /// the peer (RFC 7296 §2.21.4).
    pub(crate) fn doubt(&mut self, sa: &mut IkeSaCommon, ctx: &Context<'_>) {
        let off = sa.connection.dpd_delay.is_zero();
        if !off && self.liveness.doubts(ctx.now) {
            self.ask_for_life(sa, ctx);
        }
    }

    /// Has the peer asked whether it is alive. A request that is outstanding asks that too.
    pub(crate) fn ask_for_life(&mut self, sa: &mut IkeSaCommon, ctx: &Context<'_>) {
        self.liveness.asked(ctx.now);
        if sa.window.is_busy() {
            let timing = self.liveness.timing(&sa.connection, ctx.now);
            sa.window.hasten(ctx.now, timing, Urgency::Question);
        } else {
            self.queue(ctx, Task::Liveness);
        }
    }

    /// Our rekey of the IKE SA has failed. It is tried again later, within the hard lifetime.
    pub(crate) fn ike_rekey_failed(&mut self, ctx: &mut Context<'_>) {
        self.rekey_at = Some(ctx.now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN));
    }

    /// Tells when this SA, which is to replace another, has all the children that it can have.
    pub(crate) fn note_reauthenticated(&self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) {
        if !sa.suspended
            && !self.is_ending()
            && !self.is_establishing_children()
            && let Some(from) = sa.reauthenticates.take()
        {
            let to = sa.id;
            ctx.effects.push(Effect::Reauthenticated { from, to });
        }
    }

    /// Our rekey of a child SA has failed. It is tried again later, within the hard lifetime.
    pub(crate) fn child_rekey_failed(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let again = ctx.now + REKEY_AGAIN + ctx.jitter(REKEY_AGAIN);
        if let Some(child) = self
            .child_mut(id)
            .filter(|child| child.state == ChildState::Rekeying)
        {
            child.state = ChildState::Installed;
            child.rekey_failed = true;
            child.rekey_at = Some(again);
        }
    }
}

impl IkeSaCommon {
    /// An unprotected response says that the peer does not know this IKE SA. The verdict about our request falls soon,
    /// unless the right response comes.
    pub(crate) fn doubt_request(&mut self, ctx: &Context<'_>) {
        let connection = &self.connection;
        if !connection.dpd_delay.is_zero() {
            let limit = match connection.dpd_timeout.is_zero() {
                true => DOUBT,
                false => connection.dpd_timeout,
            };
            let timing = connection.retransmission.within(limit);
            self.window.hasten(ctx.now, timing, Urgency::Doubt);
        }
    }

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
