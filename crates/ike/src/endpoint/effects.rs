//! What one IKE SA means for the others.

use std::time::{Duration, Instant};

use super::Endpoint;
use crate::config::Unique;
use crate::event::{DownReason, Event, IkeSaId};
use crate::sa::{ChildSa, Context, Effect, IkeSa, Leave, Phase, Queued, Task, delete_ike};

/// Two IKE SAs that were established within this time in both directions crossed each other.
const CROSSING: Duration = Duration::from_secs(30);
/// Silence after which the peer of an SA that is in another's way is asked whether it lives.
const DOUBT_AFTER: Duration = Duration::from_secs(10);

impl Endpoint {
    /// Carries out what the IKE SAs have asked for, and what follows from that.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            while !self.effects.is_empty() {
                for effect in std::mem::take(&mut self.effects) {
                    self.apply(now, effect);
                }
            }
            let Some(id) = self.pacing.next() else { break };
            if self.with(now, id, |sa, ctx| sa.set_out(ctx)).is_none() {
                self.pacing.forget(id);
            }
        }
        while let Some(id) = self.table.half_open.superfluous(&self.config.limits) {
            self.with(now, id, |sa, _| sa.forget());
        }
        self.look_for_missing(now);
    }

    fn apply(&mut self, now: Instant, effect: Effect) {
        match effect {
            Effect::Insert(sa) => self.insert(now, sa, None),
            Effect::Adopt { from, to, leave } => self.adopt(now, from, to, leave),
            Effect::Redundant { ike_sa } => {
                self.with(now, ike_sa, |sa, ctx| {
                    sa.parked = false;
                    sa.close_with(ctx, DownReason::Rekeyed, &[delete_ike()]);
                });
            }
            Effect::Lost { ike_sa } => {
                self.with(now, ike_sa, |sa, ctx| sa.leave(ctx, Leave::Await));
            }
            Effect::Established {
                ike_sa,
                initial_contact,
            } => self.established(now, ike_sa, initial_contact),
            Effect::ConnectFailed { connection, reason } => {
                self.connect_failed(now, &connection, reason);
            }
            Effect::Doubt { child } => {
                if let Some(id) = self.table.ike_sa_of(child) {
                    self.with(now, id, |sa, ctx| sa.doubt(ctx));
                }
            }
            Effect::Undone { connection, child } => self.goals.undone(&connection, &child),
        }
    }

    /// The children of `from` go to `to`, which takes its place.
    fn adopt(&mut self, now: Instant, from: IkeSaId, to: IkeSaId, leave: Leave) {
        let Some(new) = self.table.get(to) else {
            return;
        };
        let connection = new.connection.name.clone();
        let before = self.table.get(from).and_then(|old| old.predecessor);
        let Some(Some((children, tasks))) =
            self.with(now, from, |sa, ctx| sa.hand_over(ctx, leave))
        else {
            return;
        };
        // However fast a peer rekeys, one replaced SA lingers.
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

    /// Looks for other IKE SAs of the same peer (RFC 7296 section 2.4 for INITIAL_CONTACT).
    fn established(&mut self, now: Instant, id: IkeSaId, initial_contact: bool) {
        let Some(sa) = self.table.get(id) else { return };
        let (role, spi, unique) = (sa.role, sa.spi_i, sa.connection.unique);
        let Some(peer) = self.table.peer_of(id).cloned() else {
            return;
        };
        for other in self.table.of_peer(&peer) {
            let Some(old) = self.table.get(other).filter(|_| other != id) else {
                continue;
            };
            let young = old
                .established()
                .is_some_and(|state| now < state.established + CROSSING);
            // Both peers have initiated at once; neither has lost anything. Both see the same two SAs.
            let crossing = old.role != role && young;
            let newer_stays = !crossing || spi < old.spi_i;
            // The peer sends INITIAL_CONTACT after we have answered its IKE_SA_INIT. An SA that stood by then it would know;
            // one that did not may have crossed with this one, and is no sign of a restart.
            let forgotten = old.established().is_some_and(|state| id.0 > state.last_id);
            if initial_contact && forgotten {
                self.with(now, other, |sa, ctx| {
                    sa.close(ctx, DownReason::InitialContact)
                });
            } else if unique == Unique::Replace {
                let victim = if newer_stays { other } else { id };
                self.with(now, victim, |sa, ctx| {
                    sa.queue(ctx, Task::DeleteIke(DownReason::Superseded));
                    sa.run_tasks(ctx);
                });
            }
        }
    }
}

impl IkeSa {
    /// Asks a peer that has been silent whether it lives.
    fn doubt(&mut self, ctx: &mut Context<'_>) {
        let silent = |heard| ctx.now.saturating_duration_since(heard) >= DOUBT_AFTER;
        if self
            .established()
            .is_some_and(|state| silent(state.last_heard))
        {
            self.queue(ctx, Task::Liveness);
            self.run_tasks(ctx);
        }
    }

    /// Gives away the children and what was to be done with them.
    fn hand_over(
        &mut self,
        ctx: &mut Context<'_>,
        leave: Leave,
    ) -> Option<(Vec<ChildSa>, Vec<Queued>)> {
        let state = self.established_mut()?;
        let children = std::mem::take(&mut state.children);
        let tasks = std::mem::take(&mut state.tasks).into();
        self.leave(ctx, leave);
        Some((children, tasks))
    }

    /// Ends an SA that another has replaced.
    fn leave(&mut self, ctx: &mut Context<'_>, leave: Leave) {
        self.parked = false;
        match leave {
            Leave::Delete => self.close_with(ctx, DownReason::Rekeyed, &[delete_ike()]),
            Leave::Gone => self.close(ctx, DownReason::Rekeyed),
            Leave::Await => self.await_delete(ctx),
        }
    }

    pub(super) fn forget(&mut self) {
        if matches!(
            self.phase,
            Phase::InitAnswered(_)
                | Phase::Rekeyed { .. }
                | Phase::Closing { .. }
                | Phase::Gone { .. }
        ) {
            self.phase = Phase::Closed;
        }
    }

    fn take_over(&mut self, ctx: &mut Context<'_>, children: Vec<ChildSa>, tasks: Vec<Queued>) {
        self.parked = false;
        if let Phase::Established(state) = &mut self.phase {
            state.children = children;
            // What was about the old IKE SA itself has been done; the administrator's delete has not.
            let kept = tasks
                .into_iter()
                .filter(|queued| !matches!(queued.task, Task::RekeyIke | Task::Liveness));
            state.tasks = kept.collect();
        }
        self.run_tasks(ctx);
    }
}
