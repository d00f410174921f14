//! Connections that we are establishing, and when they are tried again.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Attempts {
    by_connection: HashMap<String, Attempt>,
    timers: BTreeSet<(Instant, String)>,
}

/// One connection on its way up.
struct Attempt {
    children: BTreeSet<String>,
    local: SocketAddr,
    failures: u32,
    /// None while an IKE SA is being established.
    next_at: Option<Instant>,
}

impl Attempts {
    /// An attempt is under way.
    pub(super) fn begin(
        &mut self,
        connection: &str,
        children: impl Iterator<Item = String>,
        local: SocketAddr,
    ) {
        self.stop_timer(connection);
        let attempt = self
            .by_connection
            .entry(connection.to_owned())
            .or_insert_with(|| Attempt {
                children: BTreeSet::new(),
                local,
                failures: 0,
                next_at: None,
            });
        attempt.children.extend(children);
        attempt.local = local;
    }

    /// The children are wanted again after a pause.
    pub(super) fn later(
        &mut self,
        at: Instant,
        connection: &str,
        children: Vec<String>,
        local: SocketAddr,
    ) {
        let under_way = self
            .by_connection
            .get(connection)
            .is_some_and(|attempt| attempt.next_at.is_none());
        self.begin(connection, children.into_iter(), local);
        if !under_way {
            self.arm(connection, at);
        }
    }

    /// The attempt has failed. Gives the pause before the next, if there is one; `keyingtries` of zero is without end.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        connection: &str,
        keyingtries: u32,
        jitter: f64,
    ) -> Option<Duration> {
        let attempt = self.by_connection.get_mut(connection)?;
        attempt.failures = attempt.failures.saturating_add(1);
        if keyingtries != 0 && attempt.failures >= keyingtries {
            self.remove(connection);
            return None;
        }
        let doubled = PAUSE
            .saturating_mul(1 << (attempt.failures - 1).min(10))
            .min(PAUSE_MAX);
        // Gateways that lost the same peer at once do not come back at once.
        let pause = doubled.mul_f64(0.75 + jitter / 2.0);
        self.arm(connection, now + pause);
        Some(pause)
    }

    fn arm(&mut self, connection: &str, at: Instant) {
        self.stop_timer(connection);
        if let Some(attempt) = self.by_connection.get_mut(connection) {
            attempt.next_at = Some(at);
            self.timers.insert((at, connection.to_owned()));
        }
    }

    fn stop_timer(&mut self, connection: &str) {
        let at = self
            .by_connection
            .get_mut(connection)
            .and_then(|attempt| attempt.next_at.take());
        if let Some(at) = at {
            self.timers.remove(&(at, connection.to_owned()));
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Takes one that is due: its connection, children and source address.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(String, Vec<String>, SocketAddr)> {
        let (_, connection) = self.timers.first().filter(|(at, _)| *at <= now)?.clone();
        self.stop_timer(&connection);
        let attempt = self.by_connection.get(&connection)?;
        Some((
            connection,
            attempt.children.iter().cloned().collect(),
            attempt.local,
        ))
    }

    pub(super) fn remove(&mut self, connection: &str) -> bool {
        self.stop_timer(connection);
        self.by_connection.remove(connection).is_some()
    }

    pub(super) fn remove_child(&mut self, connection: &str, child: &str) {
        let Some(attempt) = self.by_connection.get_mut(connection) else {
            return;
        };
        attempt.children.remove(child);
        if attempt.children.is_empty() {
            self.remove(connection);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self
            .by_connection
            .keys()
            .filter(|name| !keep(name))
            .cloned()
            .collect();
        for name in gone {
            self.remove(&name);
        }
    }
}
