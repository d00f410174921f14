//! The last refusals of peers, for `status`. Anybody can cause a refusal: what is kept is bounded, and one source cannot
//! push out the others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use esplanade_ike::event::RefusedPeer;
use esplanade_ike::source_of;

use crate::daemon::Daemon;
use crate::daemon::answers::report::since;
use crate::daemon::log_lines::log_refused;
use crate::status::{ListedRefusal, Named};

/// Most sources whose connection is not known. The oldest is forgotten.
const SOURCES_MAX: usize = 16;

/// The last refusal of each configured connection, and of sources that no connection is known for.
#[derive(Debug, Default)]
pub(in crate::daemon) struct RefusalTable {
    of: HashMap<String, Noted>,
    /// The oldest is in front.
    others: VecDeque<(IpAddr, Noted)>,
}

#[derive(Debug)]
struct Noted {
    at: Instant,
    refused: Box<RefusedPeer>,
}

impl Daemon {
    pub(in crate::daemon) fn on_refused(&mut self, refused: Box<RefusedPeer>, now: Instant) {
        log_refused(&refused);
        self.refusals.note(refused, now);
    }
}

impl RefusalTable {
    pub fn note(&mut self, refused: Box<RefusedPeer>, now: Instant) {
        let noted = Noted { at: now, refused };
        if let Some(connection) = noted.refused.connection.clone() {
            self.of.insert(connection, noted);
            return;
        }
        let source = source_of(noted.refused.remote.ip());
        self.others.retain(|(known, _)| *known != source);
        if self.others.len() >= SOURCES_MAX {
            self.others.pop_front();
        }
        self.others.push_back((source, noted));
    }

    /// Forgets what is told of a peer, because it has come in.
    pub fn forget(&mut self, connection: &str, peer: IpAddr) {
        let told = self.of.get(connection);
        if told.is_some_and(|noted| noted.refused.remote.ip() == peer) {
            self.of.remove(connection);
        }
        let source = source_of(peer);
        self.others.retain(|(known, _)| *known != source);
    }

    /// Forgets connections that are no longer configured.
    pub fn retain(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.of.retain(|connection, _| is_configured(connection));
    }

    pub fn of_connection(&self, connection: &str, now: Instant) -> Option<ListedRefusal> {
        self.of.get(connection).map(|noted| noted.listed(now))
    }

    /// Says in words who was refused last, and why.
    pub fn told(&self, connection: &str, now: Instant) -> Option<String> {
        let refused = self.of_connection(connection, now)?;
        let id = refused.remote_id.as_deref().unwrap_or("%any");
        Some(format!(
            "the peer {} \"{id}\" was refused {} s ago: {}",
            refused.remote_host, refused.age, refused.why
        ))
    }

    /// Returns the refusals of other sources, by numbers from 0. The newest is in front.
    pub fn others(&self, now: Instant) -> Named<ListedRefusal> {
        let newest = self.others.iter().rev().enumerate();
        let listed = newest.map(|(index, (_, noted))| (index.to_string(), noted.listed(now)));
        Named(listed.collect())
    }
}

impl Noted {
    fn listed(&self, now: Instant) -> ListedRefusal {
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ListedRefusal {
            remote_host: self.refused.remote.ip(),
            remote_port: self.refused.remote.port(),
            local_id: self.refused.local_id.clone(),
            remote_id: self.refused.remote_id.clone(),
            reason: self.refused.refusal.name(),
            why: self.refused.why.clone(),
            offered: filled(&self.refused.offered),
            configured: filled(&self.refused.configured),
            age: since(now, self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ike::status::Refusal;

    use super::*;

    fn refused(remote: &str, connection: Option<&str>, why: &str) -> Box<RefusedPeer> {
        Box::new(RefusedPeer {
            local: "192.0.2.1:500".parse().unwrap(),
            remote: remote.parse().unwrap(),
            connection: connection.map(str::to_owned),
            local_id: None,
            remote_id: Some("a.example.org".to_owned()),
            refusal: Refusal::AuthenticationFailed,
            why: why.to_owned(),
            offered: String::new(),
            configured: "site: b.example.org".to_owned(),
            unreported: 0,
        })
    }

    #[test]
    fn one_source_pushes_out_nobody() {
        let now = Instant::now();
        let mut refusals = RefusalTable::default();
        refusals.note(refused("192.0.2.7:500", None, "first"), now);
        for port in 1..100 {
            refusals.note(
                refused(&format!("[2001:db8::{port}]:{port}"), None, "many"),
                now,
            );
        }
        let listed = refusals.others(now);
        let whose: Vec<_> = listed.0.iter().map(|(_, one)| one.why.as_str()).collect();
        assert_eq!(whose, ["many", "first"]);
        assert_eq!(listed.0[0].1.remote_port, 99);
        for host in 0..40 {
            refusals.note(
                refused(&format!("198.51.100.{host}:500"), None, "crowd"),
                now,
            );
        }
        assert_eq!(refusals.others(now).0.len(), SOURCES_MAX);
    }

    #[test]
    fn a_connection_has_its_last_refusal() {
        let now = Instant::now();
        let mut refusals = RefusalTable::default();
        for why in ["first", "last"] {
            refusals.note(refused("192.0.2.7:500", Some("site"), why), now);
        }
        assert!(refusals.others(now).is_empty());
        let listed = refusals.of_connection("site", now).unwrap();
        assert_eq!(
            (listed.why.as_str(), listed.age, listed.offered),
            ("last", 0, None)
        );
        refusals.retain(|name| name == "site");
        assert!(refusals.of_connection("site", now).is_some());
        let [other, own] = ["192.0.2.8", "192.0.2.7"].map(|text| text.parse().unwrap());
        refusals.forget("site", other);
        assert!(refusals.of_connection("site", now).is_some());
        refusals.forget("site", own);
        assert!(refusals.of_connection("site", now).is_none());
    }
}
