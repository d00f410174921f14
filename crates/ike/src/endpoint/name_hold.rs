//! Attempts that wait until the host names of their connection are looked up, so that each attempt goes to the addresses
//! that the names have now. The embedder looks them up; the endpoint goes on without waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::{CommandError, Endpoint};
use crate::config::{AddressMatch, Connection, HostName};
use crate::event::Event;
use crate::failure::{DownReason, Shortage};
use crate::sa::ChildRequest;

/// Peers at addresses that no connection has have the names looked up this often at most.
const STRANGERS_PAUSE: Duration = Duration::from_secs(10);

/// A connection with children that are established as soon as its names are looked up.
#[derive(Debug, Default)]
pub(super) struct HeldConnection {
    /// The names that are still to be looked up.
    names: BTreeSet<String>,
    pub(super) children: Vec<ChildRequest>,
    /// A command waits for the outcome.
    pub(super) by_command: bool,
}

/// The attempts that wait for names, and what strangers have asked for.
#[derive(Debug, Default)]
pub(super) struct NameHold {
    /// The attempts by connection.
    attempts: BTreeMap<String, HeldConnection>,
    /// Names that are looked up because of a stranger.
    for_strangers: BTreeSet<String>,
    next_for_strangers: Option<Instant>,
}

impl NameHold {
    /// Forgets the children of a connection, or one of them. Returns the number of children.
    pub(super) fn forget(&mut self, connection: &str, child: Option<&str>) -> usize {
        let Some(attempt) = self.attempts.get_mut(connection) else {
            return 0;
        };
        let before = attempt.children.len();
        let stays =
            |request: &ChildRequest| child.is_some_and(|child| request.config.name != child);
        attempt.children.retain(stays);
        let left = attempt.children.len();
        if left == 0 {
            self.attempts.remove(connection);
        }
        before - left
    }

    /// Notes that names are looked up. Returns the attempts that wait for nothing more.
    fn take_answered(&mut self, names: &BTreeSet<String>) -> Vec<(String, HeldConnection)> {
        self.for_strangers.retain(|name| !names.contains(name));
        for attempt in self.attempts.values_mut() {
            attempt.names.retain(|name| !names.contains(name));
        }
        let answered = self
            .attempts
            .extract_if(.., |_, attempt| attempt.names.is_empty());
        answered.collect()
    }
}

impl HeldConnection {
    fn add(&mut self, wanted: Vec<ChildRequest>, most: usize) -> Result<(), CommandError> {
        for request in wanted {
            let same = |other: &ChildRequest| other.is_for(&request.config);
            if self.children.iter().any(same) {
                continue;
            }
            if self.children.len() >= most {
                return Err(CommandError::Limit(Shortage::QueuedTasks));
            }
            self.children.push(request);
        }
        Ok(())
    }
}

impl Endpoint {
    /// Forgets children that wait for names. Returns their number. If no other child waits, the attempt is over.
    pub(super) fn forget_held(&mut self, connection: &str, child: Option<&str>) -> usize {
        let forgotten = self.name_hold.forget(connection, child);
        if forgotten > 0 && !self.name_hold.attempts.contains_key(connection) {
            self.events.push_back(Event::ConnectFailed {
                connection: connection.to_owned(),
                reason: DownReason::Terminated,
                retry_in: None,
            });
        }
        forgotten
    }

    /// Holds children until the names of their connection are looked up. Returns false if the connection has no names.
    pub(super) fn hold_for_names(
        &mut self,
        connection: &Connection,
        wanted: &[ChildRequest],
        by_command: bool,
    ) -> Result<bool, CommandError> {
        let names: BTreeSet<_> = connection.names().map(|name| name.name.clone()).collect();
        if names.is_empty() {
            return Ok(false);
        }
        let most = self.config.limits.queued_tasks_max;
        let attempts = &mut self.name_hold.attempts;
        let is_new = !attempts.contains_key(&connection.name);
        let attempt = attempts.entry(connection.name.clone()).or_default();
        if is_new {
            attempt.names.clone_from(&names);
            let names = names.into_iter().collect();
            self.events.push_back(Event::NamesNeeded(names));
        }
        attempt.by_command |= by_command;
        attempt.add(wanted.to_vec(), most)?;
        Ok(true)
    }

    /// These host names are looked up, whatever came of it: the answer to [`Event::NamesNeeded`]. Before this call,
    /// [`Endpoint::set_config`] has given their addresses, where those have changed. Attempts that have waited for the
    /// names go on.
    pub fn names_looked_up(&mut self, now: Instant, names: &BTreeSet<String>) {
        for (name, attempt) in self.name_hold.take_answered(names) {
            let Ok(connection) = self.connection(&name) else {
                continue;
            };
            let mut children: Vec<_> = (attempt.children.iter())
                .map(|child| child.config.name.clone())
                .collect();
            children.dedup();
            if let Err(error) = self.establish_now(now, &connection, attempt.children) {
                self.unreachable(now, &connection, &children, &error, attempt.by_command);
            }
        }
        self.settle(now);
    }

    /// An attempt that has waited for names cannot be made. Traffic asks often, so that the same failure of it is not
    /// told again.
    fn unreachable(
        &mut self,
        now: Instant,
        connection: &Connection,
        children: &[String],
        error: &CommandError,
        by_command: bool,
    ) {
        let mut tells = by_command;
        for child in children {
            let of = (connection.name.clone(), child.clone());
            tells |= self.goals.note_failure(now, &of, error);
        }
        self.held_up(now, connection, children, error, tells);
    }

    /// A peer asks for an IKE SA from an address that no connection has. It can be the new address of a name. Returns
    /// true while the names are looked up.
    pub(super) fn looks_for_stranger(&mut self, now: Instant) -> bool {
        let due = self.name_hold.next_for_strangers.is_none_or(|at| at <= now);
        if due {
            let names = self.connections.remote_names();
            self.name_hold.for_strangers.clone_from(names);
            if !names.is_empty() {
                self.name_hold.next_for_strangers = Some(now + STRANGERS_PAUSE);
                let names = names.iter().cloned().collect();
                self.events.push_back(Event::NamesNeeded(names));
            }
        }
        !self.name_hold.for_strangers.is_empty()
    }
}

/// The error of a list of addresses whose names have no address.
pub(super) fn no_address(list: &[AddressMatch]) -> Option<CommandError> {
    let mut names = list.iter().filter_map(AddressMatch::name);
    names.find_map(|HostName { name, addresses }| match addresses {
        Ok(_) => None,
        Err(why) => Some(CommandError::NoAddress {
            name: name.clone(),
            why: why.clone(),
        }),
    })
}
