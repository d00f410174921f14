//! Lets the table of nf_tables follow the policies, and ends SAs whose policies it cannot have.

use std::time::{Duration, Instant};

use esplanade_ike::{PolicyRoom, WantedPolicy};
use esplanade_ipsec::spd::PolicyId;

use super::Daemon;
use super::shield::{SharedPolicies, ShieldFull, ShieldPolicies};
use crate::join::{self, PeerPolicy};

/// The shortest time between two tables that are made anew because names have other addresses.
const PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between two log lines about SAs that the table has no room for.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The tasks about the table.
#[derive(Debug)]
pub(super) struct Shielding {
    /// The time to make the table anew, for other policies of the configuration.
    at: Option<Instant>,
    /// The earliest time to do so again.
    next: Instant,
    /// The table has not followed the policies of peers that have come and gone.
    lags: bool,
    /// Policies of peers that have come since the table has followed last.
    come: Vec<PolicyId>,
    tell_at: Instant,
    untold: usize,
}

impl Shielding {
    pub fn new(now: Instant) -> Self {
        Self {
            at: Some(now),
            next: now,
            lags: false,
            come: Vec::new(),
            tell_at: now,
            untold: 0,
        }
    }

    /// The policies of the configuration are others, since an administrator has ordered it.
    pub fn renew_at(&mut self, now: Instant) {
        self.at = Some(now);
    }

    /// The policies of the configuration are others, since names have other addresses.
    pub fn renew(&mut self) {
        self.at.get_or_insert(self.next);
    }
}

impl Daemon {
    /// Makes the table anew, if its time has come.
    pub(super) fn shield_if_due(&mut self, now: Instant) {
        if self.shielding.at.is_some_and(|at| at <= now) {
            self.shielding.at = None;
            self.shielding.next = now + PAUSE;
            let (configured, peers) = (self.join.configured(), self.join.peer_policies());
            let unfit = self.plane.keeper().shield(configured, peers, now);
            for (policy, why) in unfit {
                self.end_unshielded(policy, why, now);
            }
        }
    }

    /// Follows a policy of a peer that came or went.
    pub(super) fn shield_peer(&mut self, came: bool, policy: PeerPolicy, now: Instant) {
        let id = policy.id;
        self.shielding.lags = true;
        let policies = self.plane.keeper().shield_policies();
        if !came {
            policies.with(|own| own.remove(id));
            return;
        }
        let children = self.join.child_sas_of(id);
        let owner = children
            .first()
            .and_then(|child| self.endpoint.peer_of(*child));
        let owner = owner.cloned();
        match policies.with(|own| own.add(policy, owner)) {
            Ok(()) => self.shielding.come.push(id),
            Err(why) => self.end_unshielded(id, why, now),
        }
    }

    /// Lets the kernel's table follow the policies of peers. SAs whose policies it does not take end.
    pub(super) fn settle_shield(&mut self, now: Instant) {
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
    pub(super) fn release_shield(&mut self) {
        let policies = self.plane.keeper().shield_policies();
        policies.with(ShieldPolicies::release_reserved);
    }

    /// Ends the SAs of a policy that the table does not have.
    fn end_unshielded(&mut self, policy: PolicyId, why: ShieldFull, now: Instant) {
        for child in self.join.child_sas_of(policy) {
            if self.endpoint.reject_child_sa(now, child).is_err() {
                continue;
            }
            if now < self.shielding.tell_at {
                self.shielding.untold += 1;
                continue;
            }
            self.shielding.tell_at = now + TOLD_EVERY;
            let untold = std::mem::take(&mut self.shielding.untold);
            let peer = self.endpoint.peer_of(child).map(ToString::to_string);
            let peer = peer.unwrap_or_default();
            tracing::error!(
                peer,
                untold,
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
