//! Takes what the fetcher brings: information about revocation, and the addresses of host names.

use std::collections::BTreeSet;
use std::time::Instant;

use esplanade_pki::{StatusKind, StatusSource};

use super::Daemon;
use super::plane;
use super::settings::policies;
use crate::config::Loaded;
use crate::fetch::{FetchReport, StatusPlaces};

impl Daemon {
    /// Takes a report, and those that have come behind it. `None` says that the fetcher has ended for good.
    pub(super) fn on_fetched(&mut self, report: Option<FetchReport>, now: Instant) {
        let mut statuses = report.is_none();
        if report.is_none() {
            self.give_up_requests(now);
        }
        let mut next = report;
        while let Some(report) = next {
            match report {
                FetchReport::Restarted => {
                    tracing::warn!("the fetcher had ended, and was started again");
                    self.give_up_requests(now);
                    statuses = true;
                }
                FetchReport::Outcome(outcome) => {
                    let other = self.names.take(&mut self.fetcher, outcome, now).err();
                    statuses |= other.is_some();
                    if let Some(outcome) = other {
                        self.statuses.take(&mut self.fetcher, outcome, now);
                    }
                }
            }
            next = self.fetcher.next_report();
        }
        if statuses {
            self.renew_revocation(now);
        }
    }

    fn give_up_requests(&mut self, now: Instant) {
        self.names.give_up(now);
        self.statuses.give_up(now);
    }

    pub(super) fn ask_for_status(&mut self, sources: &[StatusSource], now: Instant) {
        let places = places(&self.loaded);
        if (self.statuses).ask(&mut self.fetcher, sources, places, now) {
            self.renew_revocation(now);
        }
    }

    /// Ends requests that take too long, and begins others.
    pub(super) fn tick_statuses(&mut self, now: Instant) {
        let places = places(&self.loaded);
        if self.statuses.tick(&mut self.fetcher, places, now) {
            self.renew_revocation(now);
        }
    }

    /// Forgets what was fetched, so that the next authentication asks anew.
    pub(super) fn flush_statuses(&mut self, kinds: &[StatusKind], now: Instant) {
        let places = places(&self.loaded);
        self.statuses.flush(&mut self.fetcher, kinds, places, now);
        self.renew_revocation(now);
    }

    /// Keeps what the configuration that is replaced says about revocation.
    pub(super) fn keep_statuses(&mut self, new: &mut Loaded) {
        let old = &self.loaded.ike.revocation;
        self.statuses.keep(old, &mut new.ike.revocation);
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

    /// Returns the time at which [`Self::follow_names`] has something to do.
    pub(super) fn names_due(&self) -> Option<Instant> {
        self.names.has_answered().then(|| self.shielding.next())
    }

    /// Lets the endpoint and the policies follow the names that were looked up, once the table of nf_tables may follow
    /// too. SAs that are up stay. Returns true if there were any.
    pub(super) fn follow_names(&mut self, now: Instant) -> bool {
        if self.names_due().is_none_or(|due| now < due) {
            return false;
        }
        let answered = self.names.take_answered();
        if self.loaded.ike.set_names(|name| self.names.known(name)) {
            self.endpoint.set_config(self.loaded.ike.clone());
            self.renew_revocation(now);
            let source = |remote| plane::source_for(remote, self.loaded.gateway.mark);
            self.join
                .configure(policies::configured(&self.loaded, source));
            self.join
                .set_peers(policies::addresses_of_peers(&self.loaded));
            self.shielding.renew_at(now);
        }
        self.endpoint.names_looked_up(now, &answered);
        true
    }
}

fn places(loaded: &Loaded) -> StatusPlaces<'_> {
    StatusPlaces {
        configured: &loaded.ike.revocation,
        allowed: &loaded.gateway.fetch_allow,
    }
}

/// The host names of a configuration, each once.
pub(super) fn names_of(loaded: &Loaded) -> BTreeSet<String> {
    let connections = loaded.ike.connections.iter();
    let names = connections.flat_map(|connection| connection.names());
    names.map(|name| name.name.clone()).collect()
}
