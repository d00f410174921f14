//! The goals: what is wanted of every child, and when a missing child is tried again.
//!
//! Only a child of which something is wanted has an entry, so that the configuration bounds the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Connection, EndAction, StartAction};
use crate::event::{ChildSaDeleted, DownReason, Event};
use crate::status::GoalFailure;
use crate::text;

/// Pause before a child that has ended is established again.
const AT_ONCE: Duration = Duration::from_millis(200);
/// The pause where the child has ended soon once more. It is doubled each time.
const AGAIN: Duration = Duration::from_millis(1500);
/// Pause after an attempt that the peer did not let succeed. It is doubled for each attempt.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Traffic does not wait longer than this after a failure.
const TRAFFIC_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after an attempt for which nothing could be sent. Such an attempt costs nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(20);
/// An SA that has lived for this long did not end soon.
const LASTING: Duration = Duration::from_secs(60);

/// The state that the administrator wants a child to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Wish {
    /// The peer and traffic decide.
    #[default]
    Open,
    /// The child is to be up once: by command, by traffic, by `dpd_action` or `close_action`.
    Once,
    /// The child is to be up at all times: `start_action = start`.
    Always,
    /// A command has closed the child. Neither the configuration nor traffic opens it.
    Down,
}

/// Why a child that is to be up at all times is not pursued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The attempts are used up, or none can be made.
    GivenUp,
    /// The child was closed because nobody used it. The next packet asks for it.
    Idle,
}

/// A child of which something is wanted.
#[derive(Debug, Default)]
struct Goal {
    wish: Wish,
    /// The child is wanted, and not pursued.
    rest: Option<Rest>,
    /// Attempts in a row that the peer did not let succeed.
    failures: u32,
    failed_at: Option<Instant>,
    /// Attempts in a row without a route to the peer.
    unsent: u32,
    /// The number of times in a row that the child has ended soon after it was up.
    relapses: u32,
    up_since: Option<Instant>,
    next_at: Option<Instant>,
    /// The reason why the child is not up, and the time since when it is known.
    failure: Option<GoalFailure>,
    further: FurtherSas,
}

/// The SAs beside the first one of a child. The peer has narrowed the first, and packets ask for what it leaves out.
#[derive(Debug, Default)]
struct FurtherSas {
    asked: bool,
    /// Requests in a row that the peer has refused, or has answered without the packet.
    refusals: u32,
    refused_at: Option<Instant>,
    /// The last refusal has the reason of the one before.
    repeated: bool,
}

impl FurtherSas {
    fn refused(&mut self, now: Instant, repeated: bool) {
        let asked = std::mem::take(&mut self.asked);
        self.repeated = asked && repeated && self.refusals > 0;
        if asked {
            self.refusals = self.refusals.saturating_add(1);
            self.refused_at = Some(now);
        }
    }

    /// The time from which on packets may ask again.
    fn next_at(&self) -> Option<Instant> {
        let times = self.refusals.checked_sub(1)?;
        Some(self.refused_at? + pause(AFTER_FAILURE, times, TRAFFIC_PAUSE_MAX, 0.5))
    }
}

impl Goal {
    fn is_pursued(&self) -> bool {
        matches!(self.wish, Wish::Once | Wish::Always) && self.rest.is_none()
    }

    /// Another SA is wanted in the place of one that has ended.
    fn ask_once(&mut self) {
        if self.wish == Wish::Open {
            self.wish = Wish::Once;
        }
        self.rest = None;
    }

    fn stop(&mut self, rest: Rest) {
        self.failures = 0;
        match self.wish {
            Wish::Once => self.wish = Wish::Open,
            _ => self.rest = Some(rest),
        }
    }
}

pub(super) type GoalName = (String, String);

/// The facts about a goal that others are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GoalState<'a> {
    /// A command has closed the child.
    pub(super) closed: bool,
    /// The child was closed because nobody used it.
    pub(super) idle: bool,
    /// The time of the next attempt.
    pub(super) next_at: Option<Instant>,
    /// The reason why the child is not up.
    pub(super) failure: Option<&'a GoalFailure>,
}

#[derive(Debug, Default)]
pub(super) struct Goals {
    /// The goals by connection and child.
    goals: BTreeMap<GoalName, Goal>,
    timers: BTreeSet<(Instant, GoalName)>,
    /// Children whose SAs have ended since the last look. They may have other SAs.
    ended: Vec<MissingChild>,
    /// Children that the peer or our own configuration has refused since the last look.
    refused: Vec<GoalName>,
}

/// A child that has lost an SA.
#[derive(Debug)]
pub(super) struct MissingChild {
    pub(super) name: GoalName,
    then: EndAction,
    /// The reason why the SA has ended. It is `None` if the SA was not up yet.
    reason: Option<DownReason>,
}

fn name(connection: &str, child: &str) -> GoalName {
    (connection.to_owned(), child.to_owned())
}

/// `first`, doubled `times`, `max` at most, and a quarter more or less. Gateways that lost the same peer at once do
/// not come back at once.
fn pause(first: Duration, times: u32, max: Duration, jitter: f64) -> Duration {
    let doubled = first.saturating_mul(1 << times.min(16)).min(max);
    doubled.mul_f64(0.75 + jitter / 2.0)
}

/// The time until `at`, if it is still to come.
fn left(now: Instant, at: Instant) -> Option<Duration> {
    at.checked_duration_since(now)
        .filter(|left| !left.is_zero())
}

impl Goals {
    /// The child is being established, because the administrator, traffic or the configuration wants it.
    pub(super) fn want_once(&mut self, connection: &str, child: &str) {
        self.stop_timer(&name(connection, child));
        let goal = self.goals.entry(name(connection, child)).or_default();
        if goal.wish != Wish::Always {
            goal.wish = Wish::Once;
        }
        (goal.rest, goal.unsent) = (None, 0);
    }

    /// The configuration wants the child, unless a command has closed it.
    pub(super) fn want_always(&mut self, connection: &str, child: &str) {
        let goal = self.goals.entry(name(connection, child)).or_default();
        if goal.wish != Wish::Down {
            goal.wish = Wish::Always;
            (goal.rest, goal.failures, goal.unsent) = (None, 0, 0);
        }
    }

    /// A command opens a child that a command has closed.
    pub(super) fn reopen(&mut self, connection: &str, child: &str) {
        let goal = self.goals.get_mut(&name(connection, child));
        if let Some(goal) = goal.filter(|goal| goal.wish == Wish::Down) {
            goal.wish = Wish::Open;
        }
    }

    /// Closes the child by command. Returns false if the child was not wanted.
    pub(super) fn close(&mut self, connection: &str, child: &str) -> bool {
        self.stop_timer(&name(connection, child));
        let goal = self.goals.entry(name(connection, child)).or_default();
        let wanted = matches!(goal.wish, Wish::Once | Wish::Always);
        goal.wish = Wish::Down;
        wanted
    }

    pub(super) fn is_closed(&self, connection: &str, child: &str) -> bool {
        let goal = self.goals.get(&name(connection, child));
        goal.is_some_and(|goal| goal.wish == Wish::Down)
    }

    /// An attempt has failed, and it is too early for traffic to ask for the next one. Returns the time until then.
    pub(super) fn holds_traffic(
        &self,
        now: Instant,
        connection: &str,
        child: &str,
    ) -> Option<Duration> {
        let goal = self.goals.get(&name(connection, child));
        let goal = goal.filter(|goal| goal.next_at.is_some() && goal.failures > 0)?;
        let wait = pause(AFTER_FAILURE, goal.failures - 1, TRAFFIC_PAUSE_MAX, 0.5);
        left(now, goal.failed_at? + wait)
    }

    /// The same for packets that the SAs of the child leave out.
    pub(super) fn holds_further(
        &self,
        now: Instant,
        connection: &str,
        child: &str,
    ) -> Option<Duration> {
        let goal = self.goals.get(&name(connection, child))?;
        left(now, goal.further.next_at()?)
    }

    /// The peer is asked for a further SA of the child.
    pub(super) fn ask_further(&mut self, connection: &str, child: &str) {
        let goal = self.goals.entry(name(connection, child)).or_default();
        goal.further.asked = true;
    }

    /// The peer has refused a further SA of the child as it did before.
    pub(super) fn refuses_again(&self, connection: &str, child: &str) -> bool {
        let goal = self.goals.get(&name(connection, child));
        goal.is_some_and(|goal| goal.further.repeated)
    }

    /// Forgets what was wanted of the children of a connection, or of one of them.
    pub(super) fn forget(&mut self, connection: &str, child: Option<&str>) {
        let of = |of: &GoalName| of.0 == connection && child.is_none_or(|child| of.1 == child);
        self.retain(|name| !of(name));
    }

    /// Forgets what was wanted of children that are not configured any more.
    pub(super) fn configure<'a>(&mut self, by_name: impl Fn(&str) -> Option<&'a Arc<Connection>>) {
        let find = |of: &GoalName| {
            let mut children = by_name(&of.0)?.children.iter();
            children.find(|child| child.name == of.1)
        };
        self.retain(|name| find(name).is_some());
        for (name, goal) in &mut self.goals {
            let starts = find(name).is_some_and(|child| child.start_action == StartAction::Start);
            if goal.wish == Wish::Always && !starts {
                goal.wish = Wish::Open;
            }
        }
        let rest = self.goals.iter().filter(|(_, goal)| !goal.is_pursued());
        let rest: Vec<_> = rest.map(|(name, _)| name.clone()).collect();
        rest.iter().for_each(|name| self.stop_timer(name));
    }

    fn retain(&mut self, keep: impl Fn(&GoalName) -> bool) {
        self.goals.retain(|name, _| keep(name));
        self.timers.retain(|(_, name)| keep(name));
    }

    /// The children of the connection that are to be up.
    pub(super) fn pursued(&self, connection: &str) -> Vec<String> {
        let from = name(connection, "");
        let goals = self.goals.range(from..);
        goals
            .take_while(|(name, _)| name.0 == connection)
            .filter(|(_, goal)| goal.is_pursued())
            .map(|(name, _)| name.1.clone())
            .collect()
    }

    /// Follows what happens to children.
    pub(super) fn follow(&mut self, now: Instant, event: &Event) {
        match event {
            Event::ChildSaInstalled(child) => {
                let name = name(&child.connection, &child.name);
                if let Some(goal) = self.goals.get_mut(&name)
                    && child.initiator
                    && child.rekeyed_from.is_none()
                {
                    goal.further = FurtherSas::default();
                }
                self.installed(now, &child.connection, &child.name);
            }
            Event::ChildSaDeleted(deleted) => self.deleted(deleted),
            Event::ChildFailed {
                connection,
                child,
                reason,
                ..
            } => {
                let name = name(connection, child);
                let repeated = !self.note_reason(now, &name, reason);
                if let Some(goal) = self.goals.get_mut(&name) {
                    goal.further.refused(now, repeated);
                }
                self.refused.push(name);
            }
            _ => {}
        }
    }

    fn installed(&mut self, now: Instant, connection: &str, child: &str) {
        self.stop_timer(&name(connection, child));
        if let Some(goal) = self.goals.get_mut(&name(connection, child)) {
            (goal.rest, goal.failures, goal.unsent) = (None, 0, 0);
            if goal.further.refusals == 0 {
                goal.failure = None;
            }
            goal.up_since.get_or_insert(now);
            if goal.wish == Wish::Once {
                goal.wish = Wish::Open;
            }
        }
    }

    fn deleted(&mut self, event: &ChildSaDeleted) {
        if !event.replaced {
            self.ended.push(MissingChild {
                name: name(&event.connection, &event.name),
                then: event.then,
                reason: Some(event.reason.clone()),
            });
        }
    }

    /// A child is not being established any more, because its IKE SA has ended.
    pub(super) fn abandoned(&mut self, connection: &str, child: &str) {
        self.ended.push(MissingChild {
            name: name(connection, child),
            then: EndAction::Clear,
            reason: None,
        });
    }

    /// The children that have lost an SA. The caller says which of them have no other SA.
    pub(super) fn take_ended(&mut self) -> Vec<MissingChild> {
        std::mem::take(&mut self.ended)
    }

    /// The child has ended with its last SA.
    pub(super) fn ended(&mut self, now: Instant, ended: &MissingChild) {
        let (name, Some(reason)) = (&ended.name, &ended.reason) else {
            return;
        };
        let by_command = *reason == DownReason::Terminated;
        if ended.then == EndAction::Start || !by_command {
            self.goals.entry(name.clone()).or_default();
        }
        if !by_command {
            self.explain(now, name, reason);
        }
        let Some(goal) = self.goals.get_mut(name) else {
            return;
        };
        let lasted = goal
            .up_since
            .take()
            .is_none_or(|since| now.saturating_duration_since(since) >= LASTING);
        goal.relapses = if lasted { 0 } else { goal.relapses + 1 };
        match (ended.then, reason) {
            (EndAction::Start, _) => goal.ask_once(),
            (_, DownReason::Inactive) => goal.stop(Rest::Idle),
            // The peer has closed the child in good order. `close_action` says what follows, but for a child that is to
            // be up at all times.
            (_, DownReason::PeerDeleted) if goal.wish != Wish::Always => goal.stop(Rest::GivenUp),
            _ => {}
        }
    }

    /// The child has lost an SA, and another attempt is under way already. If that fails, the child is tried as it would
    /// be without it.
    pub(super) fn ended_under_way(&mut self, ended: &MissingChild) {
        if ended.then == EndAction::Start {
            self.goals.entry(ended.name.clone()).or_default().ask_once();
        }
    }

    pub(super) fn take_refused(&mut self) -> Vec<GoalName> {
        let mut names = std::mem::take(&mut self.refused);
        names.retain(|name| self.goals.get(name).is_some_and(Goal::is_pursued));
        names
    }

    /// The child is missing. If it is pursued, it is established soon.
    pub(super) fn missing(&mut self, now: Instant, connection: &str, child: &str, jitter: f64) {
        let name = name(connection, child);
        let Some(goal) = self.goals.get(&name).filter(|goal| goal.is_pursued()) else {
            return;
        };
        if goal.next_at.is_none() {
            let wait = match goal.relapses.checked_sub(2) {
                None => pause(AT_ONCE, 0, PAUSE_MAX, jitter),
                Some(times) => pause(AGAIN, times, PAUSE_MAX, jitter),
            };
            self.arm(name, now + wait);
        }
    }

    /// Attempts to establish these children have failed at the peer. Returns the pause before the next attempt, if
    /// there is one. `keyingtries` of zero stands for any number of attempts.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        connection: &str,
        children: &[String],
        keyingtries: u32,
        jitter: f64,
    ) -> Option<Duration> {
        let mut again = Vec::new();
        for child in children {
            let name = name(connection, child);
            let Some(goal) = self.goals.get_mut(&name).filter(|goal| goal.is_pursued()) else {
                continue;
            };
            if goal.next_at.is_some() {
                continue;
            }
            goal.failures = goal.failures.saturating_add(1);
            goal.failed_at = Some(now);
            goal.unsent = 0;
            if keyingtries != 0 && goal.failures >= keyingtries {
                goal.stop(Rest::GivenUp);
            } else {
                again.push((name, goal.failures));
            }
        }
        // All these children share one IKE SA, so they get one pause.
        let failures = again.iter().map(|(_, failures)| *failures).min()?;
        let wait = pause(AFTER_FAILURE, failures - 1, PAUSE_MAX, jitter);
        for (name, _) in again {
            self.arm(name, now + wait);
        }
        Some(wait)
    }

    /// There is no route to the peer now, which does not count as an attempt. Returns the pause before the next look,
    /// if this is the first time.
    pub(super) fn unsent(
        &mut self,
        now: Instant,
        connection: &str,
        children: &[String],
        jitter: f64,
    ) -> Option<Duration> {
        let mut news = None;
        for child in children {
            let name = name(connection, child);
            self.stop_timer(&name);
            let Some(goal) = self.goals.get_mut(&name).filter(|goal| goal.is_pursued()) else {
                continue;
            };
            let wait = pause(LOOK_AGAIN, goal.unsent, LOOK_AGAIN_MAX, jitter);
            news = news.or((goal.unsent == 0).then_some(wait));
            goal.unsent = goal.unsent.saturating_add(1);
            self.arm(name, now + wait);
        }
        news
    }

    /// A child that cannot be established under this configuration is not tried again.
    pub(super) fn impossible(&mut self, connection: &str, children: &[String]) {
        for child in children {
            let name = name(connection, child);
            self.stop_timer(&name);
            if let Some(goal) = self.goals.get_mut(&name) {
                goal.stop(Rest::GivenUp);
            }
        }
    }

    /// Remembers why the child is not up.
    pub(super) fn explain(&mut self, now: Instant, name: &GoalName, why: &impl std::fmt::Display) {
        if let Some(goal) = self.goals.get_mut(name) {
            let why = text::clean(&why.to_string());
            goal.failure = Some(GoalFailure { at: now, why });
        }
    }

    /// Remembers why the child is not up, also where nothing is wanted of it. Returns true if the reason is new.
    pub(super) fn note_failure(
        &mut self,
        now: Instant,
        name: &GoalName,
        why: &impl std::fmt::Display,
    ) -> bool {
        self.goals.entry(name.clone()).or_default();
        self.note_reason(now, name, why)
    }

    /// Remembers why the child is not up, and tells whether the reason is new.
    fn note_reason(&mut self, now: Instant, name: &GoalName, why: &impl std::fmt::Display) -> bool {
        let Some(goal) = self.goals.get_mut(name) else {
            return true;
        };
        let before = goal.failure.take().map(|failure| failure.why);
        self.explain(now, name, why);
        let goal = self.goals.get(name);
        goal.and_then(|goal| Some(&goal.failure.as_ref()?.why)) != before.as_ref()
    }

    pub(super) fn look(&self, connection: &str, child: &str) -> GoalState<'_> {
        let goal = self.goals.get(&name(connection, child));
        goal.map_or(GoalState::default(), |goal| GoalState {
            closed: goal.wish == Wish::Down,
            idle: goal.rest == Some(Rest::Idle),
            next_at: goal.next_at,
            failure: goal.failure.as_ref(),
        })
    }

    /// A child that waits for its next attempt is tried at once.
    pub(super) fn hurry(&mut self, now: Instant, connection: &str, child: &str) {
        let name = name(connection, child);
        if self.goals.get(&name).is_some_and(Goal::is_pursued) {
            self.arm(name, now);
        }
    }

    fn arm(&mut self, name: GoalName, at: Instant) {
        self.stop_timer(&name);
        if let Some(goal) = self.goals.get_mut(&name) {
            goal.next_at = Some(at);
            self.timers.insert((at, name));
        }
    }

    fn stop_timer(&mut self, name: &GoalName) {
        let goal = self.goals.get_mut(name);
        if let Some(at) = goal.and_then(|goal| goal.next_at.take()) {
            self.timers.remove(&(at, name.clone()));
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Takes one connection, and those of its children that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(String, Vec<String>)> {
        let (_, (connection, _)) = self.timers.first().filter(|(at, _)| *at <= now)?.clone();
        let of_connection = self.goals.range(name(&connection, "")..);
        let due: Vec<GoalName> = of_connection
            .take_while(|(name, _)| name.0 == connection)
            .filter(|(_, goal)| goal.next_at.is_some_and(|at| at <= now))
            .map(|(name, _)| name.clone())
            .collect();
        due.iter().for_each(|name| self.stop_timer(name));
        Some((connection, due.into_iter().map(|name| name.1).collect()))
    }
}
