//! Takes what the fetcher brings: information about revocation, and the addresses of host names.

use std::collections::BTreeSet;
use std::time::Instant;

use esplanade_ike::auth::StatusSource;

use super::{Daemon, plane, policies};
use crate::config::Loaded;
use crate::fetch::FetchReport;

impl Daemon {
    /// Takes a report, and those that have come behind it. `None` says that the fetcher has ended.
    pub(super) fn on_fetched(&mut self, report: Option<FetchReport>, now: Instant) {
        let mut statuses = false;
        if report.is_none() {
            self.names.give_up(now);
            self.statuses.give_up();
            statuses = true;
        }
        let mut next = report;
        while let Some(report) = next {
            if let Err(report) = self.names.take(&mut self.fetcher, report, now) {
                self.statuses.take(report);
                statuses = true;
            }
            next = self.fetcher.next_report();
        }
        if statuses {
            self.renew_revocation(now);
        }
    }

    pub(super) fn ask_for_status(&mut self, sources: &[StatusSource], now: Instant) {
        if self.statuses.ask(&mut self.fetcher, sources) {
            self.renew_revocation(now);
        }
    }

    /// Tells the endpoint what is known about revocation now.
    pub(super) fn renew_revocation(&mut self, now: Instant) {
        let store = self.statuses.added_to(&self.loaded.ike.revocation);
        self.endpoint.set_revocation(now, store);
    }

    /// Looks up the names of the configuration.
    pub(super) fn look_names_up(&mut self, now: Instant) {
        let names = names_of(&self.loaded);
        self.names.configure(&mut self.fetcher, names, now);
    }

    /// Lets the endpoint and the policies follow the names that were looked up. SAs that are up stay. Returns true if
    /// there were any.
    pub(super) fn follow_names(&mut self, now: Instant) -> bool {
        let answered = self.names.take_answered();
        if answered.is_empty() {
            return false;
        }
        if self.loaded.ike.set_names(|name| self.names.known(name)) {
            self.endpoint.set_config(self.loaded.ike.clone());
            self.renew_revocation(now);
            let source = |remote| plane::source_for(remote, self.loaded.gateway.mark);
            self.join
                .configure(policies::configured(&self.loaded, source));
            self.shielding.renew();
        }
        self.endpoint.names_looked_up(now, &answered);
        true
    }
}

/// The host names of a configuration, each once.
pub(super) fn names_of(loaded: &Loaded) -> BTreeSet<String> {
    let connections = loaded.ike.connections.iter();
    let names = connections.flat_map(|connection| connection.names());
    names.map(|name| name.name.clone()).collect()
}
