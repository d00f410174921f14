//! Lets the table of nf_tables follow the policies, and ends SAs whose policies it cannot have.

use std::time::{Duration, Instant};

use esplanade_ike::config::Identity;
use esplanade_ike::{PolicyRoom, WantedPolicy};
use esplanade_ipsec::spd::PolicyId;

use crate::daemon::Daemon;
use crate::daemon::host::shield::{SharedPolicies, ShieldFull, ShieldPolicies};
use crate::join::{self, PeerPolicy};
use crate::rate::LineLimit;

/// The time between two tables that are made anew because names have other addresses, for each element. It is many
/// times what an element takes.
const PAUSE_PER_ELEMENT: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The tasks about the table.
#[derive(Debug)]
pub(in crate::daemon) struct Shielding {
    /// The time to make the table anew, for other policies of the configuration.
    at: Option<Instant>,
    /// The earliest time to do so because of names.
    next: Instant,
    /// The table has not followed the policies of peers that have come and gone.
    lags: bool,
    /// Policies of peers that have come since the table has followed last.
    come: Vec<PolicyId>,
    /// The limit of log lines about SAs that the table has no room for.
    told: LineLimit,
}

impl Shielding {
    pub fn new(now: Instant) -> Self {
        Self {
            at: Some(now),
            next: now,
            lags: false,
            come: Vec::new(),
            told: LineLimit::new(10, 1),
        }
    }

    /// The policies of the configuration are others.
    pub fn renew_at(&mut self, now: Instant) {
        self.at = Some(now);
    }

    /// Returns the time from which the policies may be others because of names. SPD, routes and table follow together.
    pub fn next(&self) -> Instant {
        self.next
    }
}

impl Daemon {
    /// Makes the table anew, if its time has come. Returns true if SAs end.
    pub(in crate::daemon) fn shield_if_due(&mut self, now: Instant) -> bool {
        if self.shielding.at.is_some_and(|at| at <= now) {
            self.shielding.at = None;
            let peers = self.join.peer_policies().into_iter();
            let peers = peers.map(|policy| {
                let owner = self.owner_of(policy.id);
                (policy, owner)
            });
            let (peers, configured) = (peers.collect(), self.join.configured());
            let keeper = self.plane.keeper();
            let unfit = keeper.shield(configured, peers, now);
            let elements = keeper.shield_policies().with(ShieldPolicies::element_count);
            let elements = u32::try_from(elements).unwrap_or(u32::MAX);
            let pause = PAUSE_PER_ELEMENT.saturating_mul(elements).min(PAUSE_MAX);
            self.shielding.next = now + pause;
            let any = !unfit.is_empty();
            for (policy, why) in unfit {
                self.end_unshielded(policy, why, now);
            }
            return any;
        }
        false
    }

    /// Makes the table again if that has failed before, and tells of log lines that were not written.
    pub(in crate::daemon) fn tick_shield(&mut self, now: Instant) {
        self.plane.keeper().keep_shield(now);
        if let Some(suppressed) = self.shielding.told.take_suppressed(now) {
            tracing::error!(
                suppressed,
                "child SAs have ended for want of room in the nftables table, not logged one by one"
            );
        }
    }

    /// Follows a policy of a peer that came or went.
    pub(in crate::daemon) fn shield_peer(&mut self, came: bool, policy: PeerPolicy, now: Instant) {
        let id = policy.id;
        self.shielding.lags = true;
        let policies = self.plane.keeper().shield_policies();
        if !came {
            policies.with(|own| own.remove(id));
            return;
        }
        let owner = self.owner_of(id);
        match policies.with(|own| own.add(policy, owner)) {
            Ok(()) => self.shielding.come.push(id),
            Err(why) => self.end_unshielded(id, why, now),
        }
    }

    /// Returns the peer whose SAs a policy has.
    fn owner_of(&self, policy: PolicyId) -> Option<Identity> {
        let children = self.join.child_sas_of(policy);
        self.endpoint.peer_of(*children.first()?).cloned()
    }

    /// Lets the kernel's table follow the policies of peers. SAs whose policies it does not take end.
    pub(in crate::daemon) fn settle_shield(&mut self, now: Instant) {
        if !std::mem::take(&mut self.shielding.lags) {
            return;
        }
        let keeper = self.plane.keeper();
        keeper.keep_shield(now);
        let fallen = keeper.shield_has_fallen();
        for policy in std::mem::take(&mut self.shielding.come) {
            if fallen {
                self.end_unshielded(policy, ShieldFull::Fallen, now);
            }
        }
    }

    /// Gives up room in the table that was kept for child SAs that have not come up.
    pub(in crate::daemon) fn release_shield(&mut self, now: Instant) {
        let policies = self.plane.keeper().shield_policies();
        // The table may have had their rules since others came.
        self.shielding.lags |= policies.with(ShieldPolicies::release_reserved);
        self.settle_shield(now);
    }

    /// Ends the SAs of a policy that the table does not have.
    fn end_unshielded(&mut self, policy: PolicyId, why: ShieldFull, now: Instant) {
        for child in self.join.child_sas_of(policy) {
            let peer = self.endpoint.peer_of(child).map(ToString::to_string);
            let ended = self.endpoint.reject_child_sa(now, child).is_ok();
            if !ended || !self.shielding.told.admits(now) {
                continue;
            }
            let peer = peer.unwrap_or_default();
            tracing::error!(
                peer,
                "a child SA ends, as packets in the clear could pass for its: {why}"
            );
        }
    }
}

impl PolicyRoom for SharedPolicies {
    fn has_room(&mut self, wanted: &WantedPolicy<'_>) -> bool {
        let child = (wanted.connection, wanted.child);
        let ends = (join::ends(wanted.local_ts), join::ends(wanted.remote_ts));
        self.with(|own| own.reserve(child, ends, wanted.peer))
            .is_ok()
    }
}
