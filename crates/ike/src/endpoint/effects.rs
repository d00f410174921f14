//! The requests of an IKE SA that concern other SAs: replacement by a rekey, other SAs of the same peer, liveness.

use std::time::{Duration, Instant};

use super::Endpoint;
use crate::config::Unique;
use crate::event::Event;
use crate::failure::DownReason;
use crate::id::{ChildSaId, IkeSaId};
use crate::sa::{Effect, IkeSa, Retirement, Task};
use crate::suite::Role;

/// If two IKE SAs of opposite directions were established within this time, both peers have initiated at once.
const CROSSING: Duration = Duration::from_secs(30);
/// The time that a peer has to delete an SA that it has replaced by another.
const REPLACEMENT: Duration = Duration::from_secs(10);
/// Silence after which a peer is asked whether it is alive, when another peer asks for its traffic.
const SILENCE: Duration = Duration::from_secs(10);

impl Endpoint {
    /// Carries out the effects that the IKE SAs have asked for, and what follows from them.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            self.apply_all(now);
            self.tell_ends(now);
            if self.effects.is_empty() {
                break;
            }
        }
        while let Some(id) = self.table.half_open.superfluous(&self.config.limits) {
            self.with(now, id, |sa, _| sa.forget());
        }
        self.look_for_missing(now);
    }

    fn apply_all(&mut self, now: Instant) {
        loop {
            while !self.effects.is_empty() {
                for effect in std::mem::take(&mut self.effects) {
                    self.apply(now, effect);
                }
            }
            if let Some(id) = self.pacing.next() {
                if self.with(now, id, |sa, ctx| sa.send_init(ctx)).is_none() {
                    self.pacing.forget(id);
                }
                continue;
            }
            let own = self.host.runs_jobs;
            let Some(job) = own.then(|| self.jobs.next(now)).flatten() else {
                break;
            };
            self.finish_job(now, job.run(), Duration::ZERO);
        }
    }

    fn apply(&mut self, now: Instant, effect: Effect) {
        match effect {
            Effect::Insert(sa) => self.insert(now, sa, None),
            Effect::Adopt {
                from,
                to,
                retirement,
            } => self.adopt(now, from, to, retirement),
            Effect::DeleteRedundant { ike_sa } => {
                self.with(now, ike_sa, |sa, ctx| sa.retire(ctx, Retirement::Delete));
            }
            Effect::AwaitRedundantDelete { ike_sa } => {
                self.with(now, ike_sa, |sa, ctx| {
                    sa.retire(ctx, Retirement::AwaitDelete);
                });
            }
            Effect::Established {
                ike_sa,
                initial_contact,
            } => {
                let sa = self.table.get(ike_sa);
                if let Some(sa) = sa.filter(|sa| sa.is_with_initiation_peer()) {
                    self.failed_addresses.end(&sa.common.connection.name);
                }
                self.established(now, ike_sa, initial_contact);
            }
            Effect::Reauthenticate { ike_sa } => self.reauthenticate_in_time(now, ike_sa),
            Effect::ReachOut { ike_sa } => self.reach_out(now, ike_sa),
            Effect::WithdrawAttempt { ike_sa } => self.withdraw_attempt(now, ike_sa),
            Effect::ForgetReplaced { ike_sa } => {
                self.with(now, ike_sa, |sa, _| sa.forget_replaced());
            }
            Effect::Superseded { ike_sa } => self.superseded(now, ike_sa),
            Effect::Reauthenticated { from, to } => self.reauthenticated(now, from, to),
            Effect::ConnectFailed {
                connection,
                reason,
                remote,
                reauthenticates,
            } => {
                // The children go on over the old SA, as long as there is one.
                let lives = |old: &IkeSaId| self.table.get(*old)?.established();
                let goes_on = reauthenticates.filter(|old| lives(old).is_some());
                match goes_on {
                    Some(old) => self.not_reauthenticated(now, old, reason),
                    None => self.connect_failed(now, &connection, reason, remote),
                }
            }
            Effect::HoldAuth { ike_sa } => {
                self.auth_held.insert(ike_sa);
            }
            Effect::RefuseInit {
                request,
                error,
                proven,
            } => self.error(now, &request.received(), vec![error], proven),
            Effect::JobDropped { ike_sa, ticket } => {
                self.with(now, ike_sa, |sa, ctx| sa.job_dropped(ctx, ticket));
            }
            Effect::PathProbeRefused {
                ike_sa,
                connection,
                remote,
            } => self.path_probe_refused(now, ike_sa, connection, remote),
            Effect::CheckLiveness { child } => self.check_liveness(now, child),
            Effect::ChildAbandoned { connection, child } => {
                self.goals.abandoned(&connection, &child);
            }
        }
    }

    /// Asks the peer of a child SA whether it is alive, if it has been silent.
    fn check_liveness(&mut self, now: Instant, child: ChildSaId) {
        if let Some(id) = self.table.ike_sa_of(child) {
            self.with(now, id, |sa, ctx| sa.check_liveness(ctx, SILENCE));
        }
    }

    /// `to` replaces `from` and takes over its children.
    fn adopt(&mut self, now: Instant, from: IkeSaId, to: IkeSaId, retirement: Retirement) {
        let Some(new) = self.table.get(to) else {
            return;
        };
        let connection = new.common.connection.name.clone();
        let before = self.table.get(from).and_then(|old| old.common.predecessor);
        self.follow_rekey(now, from, to);
        self.ends.follow_rekey(from, to);
        let Some(Some((children, tasks))) =
            self.with(now, from, |sa, ctx| sa.hand_over(ctx, retirement))
        else {
            return;
        };
        // At most one replaced SA is kept, however fast a peer rekeys.
        if let Some(before) = before {
            self.with(now, before, |sa, _| sa.forget());
        }
        self.events.push_back(Event::IkeSaRekeyed {
            old: from,
            new: to,
            connection,
        });
        for child in &children {
            self.table.moved(child.id, to);
        }
        self.with(now, to, |sa, ctx| sa.take_over(ctx, children, tasks));
    }

    /// Looks for other IKE SAs of the same peer (RFC 7296 §2.4 for INITIAL_CONTACT).
    pub(super) fn established(&mut self, now: Instant, id: IkeSaId, initial_contact: bool) {
        let Some(sa) = self.table.get(id) else { return };
        let (role, spi, unique) = (sa.common.role, sa.common.spi_i, sa.common.connection.unique);
        let (replaces, hosts) = (sa.common.reauthenticates, sa.common.hosts);
        let Some(peer) = self.table.peer_of(id).cloned() else {
            return;
        };
        for other in self.table.of_peer(&peer) {
            let Some(old) = self.table.get(other).filter(|_| other != id) else {
                continue;
            };
            if replaces == Some(other) {
                continue;
            }
            let young = old
                .established()
                .is_some_and(|state| now < state.established + CROSSING);
            // Both peers have initiated at once, and neither has lost an SA. Both see the same two SAs.
            let crossing = old.common.role != role && young;
            let newer_stays = !crossing || spi < old.common.spi_i;
            // The peer sends INITIAL_CONTACT after it has our response to IKE_SA_INIT. It knew SAs that were
            // established before. An SA that was not can be one of a simultaneous initiation, and is no sign of a
            // restart.
            let forgotten = old.established().is_some_and(|state| id.0 > state.last_id);
            if initial_contact && forgotten {
                self.with(now, other, |sa, ctx| {
                    sa.close(ctx, DownReason::InitialContact)
                });
                continue;
            }
            let (stays, goes, role_there) = match newer_stays {
                true => (id, other, role),
                false => (other, id, old.common.role),
            };
            let redundant = match unique {
                Unique::Replace => true,
                // Without INITIAL_CONTACT the peer knows the other SA too, whenever its request came here.
                Unique::No => crossing && self.is_covered(goes, stays),
                Unique::Never | Unique::Keep => false,
            };
            // The initiator of the SA that stays knows when both ends have it, and deletes the other. But a peer that
            // authenticates again looks like one whose request came late, or like one that has lost the old SA. It
            // deletes the old SA itself, when it has all children over the new one.
            let late = role == Role::Responder && forgotten;
            // A NAT may have given the peer another address since the old SA was made.
            let moved_to = (old.common.local.ip(), old.common.remote.ip());
            let same_host = old.common.hosts == hosts || moved_to == hosts;
            let by_peer = match crossing {
                true => late || role_there == Role::Responder,
                false => role == Role::Responder && same_host,
            };
            if redundant && by_peer {
                self.with(now, goes, |sa, _| {
                    if let Some((state, _)) = sa.established_mut() {
                        state.superseded = Some(now + REPLACEMENT);
                    }
                });
            } else if redundant {
                self.with(now, goes, |sa, ctx| {
                    sa.do_task(ctx, Task::DeleteIke(DownReason::Superseded));
                });
            }
        }
    }

    /// The peer has not deleted an SA that another made redundant. A rekey may have replaced the other one since.
    fn superseded(&mut self, now: Instant, ike_sa: IkeSaId) {
        let unique = self.table.get(ike_sa).map(|sa| sa.common.connection.unique);
        let peer = self.table.peer_of(ike_sa);
        let others = peer.map_or_else(Vec::new, |peer| self.table.of_peer(peer));
        let redundant = others.into_iter().any(|by| {
            let stays = self.table.get(by);
            let is_other =
                by != ike_sa && stays.is_some_and(|sa| sa.common.predecessor != Some(ike_sa));
            let state = stays.and_then(IkeSa::established).filter(|_| is_other);
            state.is_some_and(|state| !state.is_ending())
                && (unique != Some(Unique::No) || self.is_covered(ike_sa, by))
        });
        if redundant {
            self.with(now, ike_sa, |sa, ctx| {
                sa.do_task(ctx, Task::DeleteIke(DownReason::Superseded));
            });
        }
    }

    /// Says whether every child of the one IKE SA is up over the other too.
    fn is_covered(&self, one: IkeSaId, by: IkeSaId) -> bool {
        let established = |id| {
            let sa = self.table.get(id)?;
            Some((&sa.common.connection.name, sa.established()?))
        };
        let (Some((name, one)), Some((other, by))) = (established(one), established(by)) else {
            return false;
        };
        let mut current = one.children.iter().filter(|child| child.state.is_current());
        name == other && current.all(|child| by.is_up(&child.config.name))
    }
}
