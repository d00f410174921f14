//! Liveness of the peer (RFC 7296 §2.4): when it was heard, and when it is asked.
//!
//! Traffic that stays unanswered has the peer asked. A question that stays unanswered has a new IKE SA tried, and ends
//! this one in the end. Each of these times counts from its own cause. Whatever is heard of the peer ends all of them.

use std::time::{Duration, Instant};

use super::deadline;
use crate::config::{Connection, Retransmission};
use crate::id::IkeSaId;
use crate::rate::{Due, Rate};

/// Unanswered traffic after which the peer is asked whether it is alive, if it was not asked for long. A peer that has
/// lost its SAs says so at once.
const ASK_EARLY: Duration = Duration::from_secs(5);
/// The time after a question without an answer at which a new IKE SA is tried beside this one. A peer that was started
/// again may say nothing about the SA that it has lost. The question is sent at least twice by then, and the second
/// answer has more than two seconds.
const REACH_OUT: Duration = Duration::from_secs(7);
/// The rate at which unauthenticated messages make us ask one peer.
const DOUBTS: Rate = Rate {
    every: Duration::from_secs(10),
    burst: 1,
};

#[derive(Debug)]
pub(crate) struct Liveness {
    /// The time at which the last authenticated message or ESP packet of the peer came in.
    last_heard: Instant,
    /// The time at which ESP went out first after the peer was heard last.
    unanswered_since: Option<Instant>,
    /// The time at which the peer was last asked whether it is alive.
    asked_at: Option<Instant>,
    /// The peer was not heard since it was asked.
    awaits_answer: bool,
    /// A new IKE SA was tried since the peer was heard last.
    reached_out: bool,
    /// That IKE SA.
    pub(crate) attempt: Option<IkeSaId>,
    /// The next time at which a message that nobody has authenticated may have the peer asked.
    next_doubt: Due,
}

impl Liveness {
    /// The peer is heard now.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last_heard: now,
            unanswered_since: None,
            asked_at: None,
            awaits_answer: false,
            reached_out: false,
            attempt: None,
            next_doubt: None,
        }
    }

    /// An authenticated message or ESP packet of the peer has come in. Returns the IKE SA that was tried because the peer
    /// seemed to be gone.
    pub(crate) fn heard(&mut self, now: Instant) -> Option<IkeSaId> {
        self.last_heard = now;
        self.unanswered_since = None;
        (self.awaits_answer, self.reached_out) = (false, false);
        self.attempt.take()
    }

    /// ESP went out.
    pub(crate) fn sent(&mut self, now: Instant) {
        // Nobody knows which came first in one look at the data plane. An answer may have come.
        if self.last_heard < now {
            self.unanswered_since.get_or_insert(now);
        }
    }

    /// The peer is asked now.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked_at = Some(now);
        self.awaits_answer = true;
    }

    pub(crate) fn reached_out(&mut self) {
        self.reached_out = true;
    }

    /// A message that nobody has authenticated says that the peer has lost an SA. Returns true if the peer is to be asked.
    pub(crate) fn doubts(&mut self, now: Instant) -> bool {
        let allowed = DOUBTS.allows(now, self.next_doubt);
        if allowed {
            DOUBTS.take(now, &mut self.next_doubt);
        }
        allowed
    }

    /// The time at which the peer was last heard. `None`: it is being asked whether it lives.
    pub(crate) fn alive_at(&self) -> Option<Instant> {
        (!self.awaits_answer).then_some(self.last_heard)
    }

    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_heard)
    }

    /// The time to ask the peer whether it is alive, unless it is heard before.
    pub(crate) fn ask_at(&self, connection: &Connection) -> Option<Instant> {
        let delay = connection.dpd_delay;
        if delay.is_zero() {
            return None;
        }
        if !connection.dpd_by_traffic {
            return deadline(self.last_heard, delay);
        }
        let early = deadline(self.unanswered_since?, delay.min(ASK_EARLY))?;
        match self.asked_at {
            Some(asked) => deadline(asked, delay).map(|at| at.max(early)),
            None => Some(early),
        }
    }

    /// The time to try a new IKE SA, unless the peer is heard before. Traffic is unanswered, and so is a question.
    pub(crate) fn reach_out_at(&self, connection: &Connection) -> Option<Instant> {
        let asked = self.asked_at.filter(|_| self.awaits_answer)?;
        let due = !self.reached_out && connection.dpd_by_traffic;
        let since = self.unanswered_since.filter(|_| due)?;
        deadline(asked, REACH_OUT).map(|at| at.max(since))
    }

    /// The timing of the question whether the peer is alive. A peer that is asked early has as long to answer as one
    /// that is asked late, because a path can be down for a while.
    pub(crate) fn timing(&self, connection: &Connection, now: Instant) -> Retransmission {
        let limit = connection.dpd_timeout;
        if limit.is_zero() {
            return connection.retransmission;
        }
        let since = self.unanswered_since.filter(|_| connection.dpd_by_traffic);
        let whole = connection.dpd_delay.saturating_add(limit);
        let verdict = since.and_then(|since| deadline(since, whole));
        let left = verdict.map(|at| at.saturating_duration_since(now));
        let limit = left.map_or(limit, |left| left.max(limit));
        connection.retransmission.within(limit)
    }
}
