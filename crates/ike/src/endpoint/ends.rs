//! SAs that end. Many can end at once: a peer that was started again has lost all of its SAs, and a command can name
//! thousands. So their ends are told in steps, and other peers wait for one step at most.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use super::Endpoint;
use crate::config::AddressMatch;
use crate::event::Event;
use crate::failure::DownReason;
use crate::id::{ChildSaId, IkeSaId};
use crate::sa::{ChildState, DueEnd, IkeSa};

/// Most work of a step, in units of [`DueEnd::work`].
const STEP_MAX: usize = 128;
/// The work of a last message to a peer.
const MESSAGE: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Ends {
    queue: VecDeque<DueEnd>,
    /// SAs that a command or the configuration ends, and whose turn has not come.
    terminated: BTreeSet<IkeSaId>,
    terminated_children: BTreeSet<ChildSaId>,
    /// The work of the step under way.
    work: usize,
    /// The time of the last step, if work is left.
    next: Option<Instant>,
}

impl Ends {
    /// The ends to tell.
    pub(super) fn queue(&mut self) -> &mut VecDeque<DueEnd> {
        &mut self.queue
    }

    /// The caller has carried out all events.
    pub(super) fn begin_step(&mut self) {
        self.work = 0;
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn is_terminated(&self, id: IkeSaId) -> bool {
        self.terminated.contains(&id)
    }

    /// `new` has taken over from `old`. If that is to end, `new` is to end in its place.
    pub(super) fn follow_rekey(&mut self, old: IkeSaId, new: IkeSaId) {
        if self.terminated.remove(&old) {
            self.terminated.insert(new);
        }
    }

    /// Follows child SAs that take over from one that is to end.
    pub(super) fn follow(&mut self, event: &Event) {
        if let Event::ChildSaInstalled(installed) = event
            && let Some(old) = installed.rekeyed_from
            && self.terminated_children.contains(&old)
        {
            self.terminated_children.insert(installed.child);
        }
    }

    fn is_done(&self) -> bool {
        self.queue.is_empty() && self.terminated.is_empty() && self.terminated_children.is_empty()
    }

    /// Takes an amount of work. Returns false if the step has done its share.
    fn take(&mut self, work: usize) -> bool {
        let takes = self.work < STEP_MAX;
        self.work += if takes { work } else { 0 };
        takes
    }
}

impl Endpoint {
    /// Tells whether SAs have ended, or are to end, whose end no event has told yet.
    pub fn is_ending(&self) -> bool {
        !self.ends.is_done()
    }

    /// Ends the next SAs, and tells of those that have ended.
    pub(super) fn tell_ends(&mut self, now: Instant) {
        loop {
            if let Some(end) = self.ends.queue.front() {
                let work = end.work();
                if !self.ends.take(work) {
                    break;
                }
                self.tell_next(now);
            } else if let Some(child) = self.ends.terminated_children.first().copied() {
                if !self.ends.take(MESSAGE) {
                    break;
                }
                self.ends.terminated_children.remove(&child);
                self.end_child_sa(now, child, DownReason::Terminated);
            } else if let Some(id) = self.ends.terminated.first().copied() {
                if !self.ends.take(MESSAGE) {
                    break;
                }
                self.ends.terminated.remove(&id);
                self.end_ike_sa(now, id);
            } else {
                break;
            }
        }
        self.ends.next = (!self.ends.is_done()).then_some(now);
    }

    fn tell_next(&mut self, now: Instant) {
        let Some(end) = self.ends.queue.pop_front() else {
            return;
        };
        let of_goals = end.of_goals;
        let event = end.tell(&mut self.claims);
        self.table.follow(&event);
        if of_goals {
            self.goals.follow(now, &event);
        }
        self.events.push_back(event);
    }

    /// Ends IKE SAs. Those that we could not make again end in their turn. Returns the number of SAs that end. A half-open
    /// one belongs to no connection yet: the one that its peer means is looked up when the peer says who it is.
    pub(super) fn end_ike_sas(&mut self, now: Instant, ids: &[IkeSaId]) -> usize {
        let mut ended = 0;
        for id in ids {
            let lives = |sa: &&IkeSa| !sa.has_ended() && !sa.phase.is_half_open();
            match self.table.get(*id).filter(lives) {
                None => continue,
                Some(sa) if is_initiated(sa) => {
                    self.end_ike_sa(now, *id);
                }
                Some(_) => {
                    self.ends.terminated.insert(*id);
                }
            }
            ended += 1;
        }
        ended
    }

    /// The SAs of a child. One that the peer has replaced is among them: the peer keeps it as long as it likes.
    pub(super) fn children_to_end(&self, ids: &[IkeSaId], name: &str) -> Vec<ChildSaId> {
        let established = ids
            .iter()
            .filter_map(|id| self.table.get(*id)?.established());
        established
            .flat_map(|state| &state.children)
            .filter(|child| child.config.name == name && child.state != ChildState::Deleting)
            .map(|child| child.id)
            .collect()
    }

    /// Ends child SAs, as [`Self::end_ike_sas`] does IKE SAs.
    pub(super) fn end_child_sas(&mut self, now: Instant, children: Vec<ChildSaId>) -> usize {
        let mut ended = 0;
        for child in children {
            let ike_sa = self.table.ike_sa_of(child);
            let ends = match ike_sa.and_then(|id| self.table.get(id)) {
                Some(sa) if !is_initiated(sa) => self.ends.terminated_children.insert(child),
                _ => self.end_child_sa(now, child, DownReason::Terminated),
            };
            ended += usize::from(ends);
        }
        ended
    }

    /// Ends every IKE SA in its turn.
    pub(super) fn end_all(&mut self) -> usize {
        let living = self.table.iter().filter(|sa| !sa.has_ended());
        let before = self.ends.terminated.len();
        self.ends.terminated.extend(living.map(|sa| sa.common.id));
        self.ends.terminated.len() - before
    }

    /// Ends the SAs of [`Self::end_ike_sas`] whose turn has come. Returns false if the SA has ended already.
    pub(super) fn end_ike_sa(&mut self, now: Instant, ike_sa: IkeSaId) -> bool {
        let ended = self.with(now, ike_sa, |sa, ctx| {
            sa.terminate(ctx, DownReason::Terminated)
        });
        ended == Some(true)
    }

    /// Ends a child SA here at once. Returns false if it has ended already.
    pub(super) fn end_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
        reason: DownReason,
    ) -> bool {
        let Some(ike_sa) = self.table.ike_sa_of(child) else {
            return false;
        };
        let ended = self.with(now, ike_sa, |sa, ctx| sa.end_child(ctx, child, reason));
        ended == Some(true)
    }
}

/// Says whether we can initiate to the peer. Such an SA ends at once, because the next command may ask for it anew.
fn is_initiated(sa: &IkeSa) -> bool {
    let addresses = &sa.common.connection.remote_addrs;
    AddressMatch::hosts_of(addresses).next().is_some() && sa.is_with_initiation_peer()
}
