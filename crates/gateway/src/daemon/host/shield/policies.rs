//! The policies as the shield needs them: maps of intervals for packets that come in, and sets of destinations for
//! packets that leave. Policies of peers come and go one at a time, each within its peer's share.

use std::collections::{HashMap, HashSet};

use esplanade_ike::config::Identity;
use esplanade_ipsec::selector::{SelectorSet, TrafficSelector};
use esplanade_ipsec::spd::PolicyId;
use esplanade_prefix::Prefix;

use crate::config::{GatewayConfig, InterfaceConfig};
use crate::join::{ConfiguredPolicy, PeerPolicy, PolicyKind, ranges};
use crate::net::Destinations;
use crate::net::classifier::{Classifier, HeldRules, WorkLimit};

use super::rules::{Ends, PolicyRules, RulesByRemote};

/// Most elements of maps and sets that the policies of all peers may take. The kernel has about 256 bytes for each.
const ELEMENTS_MAX: usize = 1 << 17;
/// The part of the elements left by others that one peer may take. So no number of peers takes all that is left.
const SHARES: usize = 8;
/// Most elements for the policies of the configuration.
const CONFIGURED_MAX: usize = 1 << 20;
/// The work that one policy of a peer may make: the number of rules in all intervals that are looked at for it. The
/// 1,024 pairs of selectors of a policy, beside 7,168 others of its peer, make a third of it.
const WORK_MAX: usize = 1 << 17;
/// Most elements that one policy of a peer may change among those of other policies, and for each rule of its own.
const CHANGES_MAX: usize = 1 << 12;
const CHANGES_PER_RULE: usize = 8;
/// The work that one policy of the configuration may make.
const CONFIGURED_WORK_MAX: usize = 1 << 24;

/// The number of the chain for policies of the common interface. An interface's chain has the interface's number.
pub const COMMON: u32 = 0;
/// The number of the chain for packets that leave. No interface has it: it stands for `%unique` where one is named.
pub const LEAVING: u32 = u32::MAX;

/// The reason why the shield takes no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShieldFull {
    #[error("the policies' selectors overlap too often")]
    OverlapsTooOften,
    #[error("the peer's policies take too much room in nf_tables")]
    OfPeer,
    #[error("the policies of all peers take too much room in nf_tables")]
    OfAll,
    #[error("the nftables table does not stand")]
    Fallen,
    #[error("the configuration's policies do not fit into the nftables table")]
    Lacking,
}

/// The first policy of a configuration that the table has no room for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy `{policy}` does not fit into the nftables table: {why}")]
pub struct NoRoom {
    /// In the form `connection/child`.
    pub policy: String,
    pub why: ConfiguredFull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfiguredFull {
    #[error("its selectors, and those of the policies before it, overlap too often")]
    OverlapsTooOften,
    #[error("with the policies before it, it takes more than {CONFIGURED_MAX} elements of maps")]
    Elements,
}

/// A policy of a peer, and the peer whose share it takes.
pub type OwnedPolicy = (PeerPolicy, Option<Identity>);

/// Destinations that packets with an interface's mark must not leave for in the clear.
#[derive(Debug)]
pub struct GuardedDestinations {
    pub interface: u32,
    pub ranges: Destinations,
}

#[derive(Debug, Default)]
pub struct ShieldPolicies {
    interfaces: Vec<InterfaceConfig>,
    configured: Vec<ConfiguredPolicy>,
    /// The places of the policies of children.
    by_child: HashMap<(String, String), usize>,
    /// The networks on the host's links.
    networks: Vec<Prefix>,
    /// For IPv4 and for IPv6.
    classifiers: [Classifier; 2],
    destinations: Vec<GuardedDestinations>,
    /// Policies of peers, each by a number of its own.
    held: HashMap<u64, HeldPolicy>,
    by_id: HashMap<PolicyId, u64>,
    by_selectors: HashMap<(usize, SelectorSet), u64>,
    /// Policies of child SAs that are about to be made.
    reserved: Vec<u64>,
    last_number: u64,
    payers: HashMap<Identity, Payer>,
    /// The size of the table without policies of peers.
    configured_size: usize,
    /// Children of a configuration that did not fit, where the table does not have their policies.
    lacking: HashSet<(String, String)>,
    /// The kernel has refused the table, though it took one before.
    pub fallen: bool,
}

/// A peer with policies.
#[derive(Debug)]
struct Payer {
    number: u64,
    policies: usize,
    /// The ranges of destinations that its policies have, each policy alone.
    destinations: usize,
}

#[derive(Debug)]
struct HeldPolicy {
    place: usize,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    owner: Option<Identity>,
    destinations: usize,
}

impl ShieldPolicies {
    /// Makes the policies of a configuration.
    pub fn of(
        config: &GatewayConfig,
        configured: &[ConfiguredPolicy],
        networks: &[Prefix],
    ) -> Result<Self, NoRoom> {
        let places = configured.iter().enumerate();
        let marked = config.marked_interfaces();
        let marked = marked.filter(|interface| interface.marks.outbound.is_some());
        let interfaces = marked.map(|interface| interface.if_id);
        let destinations = interfaces.map(|interface| GuardedDestinations {
            interface,
            ranges: Destinations::default(),
        });
        let mut new = Self {
            interfaces: config.interfaces.clone(),
            configured: configured.to_vec(),
            by_child: places.map(|(at, policy)| (policy.name(), at)).collect(),
            destinations: destinations.collect(),
            networks: networks.to_vec(),
            ..Self::default()
        };
        for (place, policy) in configured.iter().enumerate() {
            let added = new.add_configured(place, policy);
            let added = added.map_err(|_| ConfiguredFull::OverlapsTooOften);
            let fits = added.and_then(|()| match new.element_count() > CONFIGURED_MAX {
                true => Err(ConfiguredFull::Elements),
                false => Ok(()),
            });
            fits.map_err(|why| NoRoom {
                policy: format!("{}/{}", policy.connection, policy.child),
                why,
            })?;
        }
        new.configured_size = new.size();
        Ok(new)
    }

    /// Follows a new configuration. Returns the policies of peers for which there is no room, or an error if there is
    /// none for the configuration itself. After an error the table is as it was, and takes no policies of children that
    /// it does not have as they are now.
    pub fn configure(
        &mut self,
        config: &GatewayConfig,
        configured: &[ConfiguredPolicy],
        networks: &[Prefix],
        peers: Vec<OwnedPolicy>,
    ) -> Result<Vec<(PolicyId, ShieldFull)>, NoRoom> {
        let mut new = match Self::of(config, configured, networks) {
            Ok(new) => new,
            Err(misfit) => {
                let lacking = configured.iter().filter(|policy| !self.stands_for(policy));
                self.lacking = lacking.map(|policy| policy.name()).collect();
                return Err(misfit);
            }
        };
        new.fallen = self.fallen;
        let mut unfit = Vec::new();
        for (policy, owner) in peers {
            let id = policy.id;
            if let Err(full) = new.add(policy, owner) {
                unfit.push((id, full));
            }
        }
        *self = new;
        Ok(unfit)
    }

    /// Tells whether the table has a child's policy, or takes policies of its peers as it would with this
    /// configuration. The addresses may be others.
    fn stands_for(&self, new: &ConfiguredPolicy) -> bool {
        let place = self.by_child.get(&new.name());
        let own = place.and_then(|place| self.configured.get(*place));
        let protects =
            |policy: &ConfiguredPolicy| matches!(policy.kind, PolicyKind::Protect { .. });
        own.is_some_and(|own| {
            protects(own)
                && protects(new)
                && (own.entry_name(), &own.sa) == (new.entry_name(), &new.sa)
        })
    }

    fn add_configured(
        &mut self,
        place: usize,
        policy: &ConfiguredPolicy,
    ) -> Result<(), ShieldFull> {
        let ends = (&policy.local[..], &policy.remote[..]);
        let mut budget = WorkLimit {
            rules: CONFIGURED_WORK_MAX,
            branches: usize::MAX,
        };
        let rules = PolicyRules::of((place, 0), policy.kind, ends, &self.networks);
        self.add_rules(policy, &rules, None, &mut budget)?;
        self.follow_destinations(true, policy, ends);
        Ok(())
    }

    /// Adds a policy of a peer. `owner` is the peer whose share it takes. After an error nothing has changed.
    pub fn add(&mut self, policy: PeerPolicy, owner: Option<Identity>) -> Result<(), ShieldFull> {
        if self.lacking.contains(&policy.entry) {
            return Err(ShieldFull::Lacking);
        }
        // The SAs of a child that is no longer configured are about to end.
        let place = self.by_child.get(&policy.entry).copied();
        let Some(place) = place.filter(|_| !self.by_id.contains_key(&policy.id)) else {
            return Ok(());
        };
        let known = key(place, (&policy.local, &policy.remote));
        let reserved = known.and_then(|key| self.by_selectors.get(&key).copied());
        let at = reserved.and_then(|number| self.reserved.iter().position(|one| *one == number));
        let number = match at {
            Some(at) => self.reserved.swap_remove(at),
            None => self.hold(place, (policy.local, policy.remote), owner)?,
        };
        self.by_id.insert(policy.id, number);
        Ok(())
    }

    /// Removes a policy of a peer.
    pub fn remove(&mut self, id: PolicyId) {
        if let Some(number) = self.by_id.remove(&id) {
            self.drop_held(number);
        }
    }

    /// Reserves room for the policy of a child SA of this peer, if the SA needs one of its own. The room is the
    /// policy's if it comes before [`Self::release_reserved`].
    pub fn reserve(
        &mut self,
        (connection, child): (&str, &str),
        (local, remote): (Vec<TrafficSelector>, Vec<TrafficSelector>),
        owner: &Identity,
    ) -> Result<(), ShieldFull> {
        let place_of = |name: &(String, String)| {
            let place = *self.by_child.get(name)?;
            Some((place, self.configured.get(place)?))
        };
        let name = (connection.to_owned(), child.to_owned());
        if self.lacking.contains(&name) {
            return Err(ShieldFull::Lacking);
        }
        let entry = place_of(&name).map(|(_, own)| own.entry_name());
        let Some((place, configured)) = entry.as_ref().and_then(place_of) else {
            return Ok(());
        };
        // With PFP the child's own policy has the SAs of all flows, unless it has no addresses before a peer is there.
        let populated = !configured.sa.populate.is_none()
            && !configured.local.is_empty()
            && !configured.remote.is_empty();
        let known = key(place, (&local, &remote));
        let is_held = known.is_some_and(|key| self.by_selectors.contains_key(&key));
        if populated || is_held || configured.covers(&local, &remote) {
            return Ok(());
        }
        if self.fallen {
            return Err(ShieldFull::Fallen);
        }
        let number = self.hold(place, (local, remote), Some(owner.clone()))?;
        self.reserved.push(number);
        Ok(())
    }

    /// Gives up room that no policy has taken. Returns true if there was any.
    pub fn release_reserved(&mut self) -> bool {
        let all = std::mem::take(&mut self.reserved);
        let any = !all.is_empty();
        all.into_iter().for_each(|number| self.drop_held(number));
        any
    }

    /// Makes the rules for selectors of a peer, at the place of a configured policy. Returns their number.
    fn hold(
        &mut self,
        place: usize,
        (local, remote): (Vec<TrafficSelector>, Vec<TrafficSelector>),
        owner: Option<Identity>,
    ) -> Result<u64, ShieldFull> {
        let Some(configured) = self.configured.get(place).cloned() else {
            return Err(ShieldFull::OfAll);
        };
        self.last_number += 1;
        let number = self.last_number;
        let ends = (&local[..], &remote[..]);
        let rules = PolicyRules::of((place, number), configured.kind, ends, &self.networks);
        let destinations = self.destinations_of(&configured, ends);
        let payer = owner.as_ref().map(|owner| self.pay(owner, destinations));
        let mut budget = WorkLimit {
            rules: WORK_MAX,
            branches: CHANGES_MAX + CHANGES_PER_RULE * rules.count(),
        };
        let added = self.add_rules(&configured, &rules, payer, &mut budget);
        if let Err(full) = added.and_then(|()| self.check_room(owner.as_ref(), destinations)) {
            self.remove_rules(&configured, (place, number), payer, &rules);
            owner.inspect(|owner| self.pay_no_more(owner, destinations));
            return Err(full);
        }
        self.follow_destinations(true, &configured, ends);
        if let Some(key) = key(place, ends) {
            self.by_selectors.insert(key, number);
        }
        let held = HeldPolicy {
            place,
            local,
            remote,
            owner,
            destinations,
        };
        self.held.insert(number, held);
        Ok(number)
    }

    fn drop_held(&mut self, number: u64) {
        let Some(held) = self.held.remove(&number) else {
            return;
        };
        let (place, ends) = (held.place, (&held.local[..], &held.remote[..]));
        if let Some(key) = key(place, ends)
            && self.by_selectors.get(&key) == Some(&number)
        {
            self.by_selectors.remove(&key);
        }
        let payer = held.owner.as_ref().and_then(|one| self.payers.get(one));
        let payer = payer.map(|payer| payer.number);
        if let Some(configured) = self.configured.get(place).cloned() {
            let holder = (place, number);
            let rules = PolicyRules::of(holder, configured.kind, ends, &self.networks);
            self.remove_rules(&configured, holder, payer, &rules);
            self.follow_destinations(false, &configured, ends);
        }
        if let Some(owner) = &held.owner {
            self.pay_no_more(owner, held.destinations);
        }
    }

    /// Charges destinations of another policy to a peer. Returns the peer's number.
    fn pay(&mut self, owner: &Identity, destinations: usize) -> u64 {
        let payer = self.payers.entry(owner.clone()).or_insert_with(|| {
            self.last_number += 1;
            Payer {
                number: self.last_number,
                policies: 0,
                destinations: 0,
            }
        });
        payer.policies += 1;
        payer.destinations += destinations;
        payer.number
    }

    fn pay_no_more(&mut self, owner: &Identity, destinations: usize) {
        if let Some(payer) = self.payers.get_mut(owner) {
            payer.policies = payer.policies.saturating_sub(1);
            payer.destinations = payer.destinations.saturating_sub(destinations);
            if payer.policies == 0 {
                self.payers.remove(owner);
            }
        }
    }

    /// Returns the elements that a peer's policies would have if no other peer shared any.
    fn share_of(&mut self, owner: &Identity) -> usize {
        let Some(payer) = self.payers.get(owner) else {
            return 0;
        };
        let (number, destinations) = (payer.number, payer.destinations);
        let classifiers = self.classifiers.iter_mut();
        let elements: usize = classifiers.map(|one| one.charge(number)).sum();
        elements + destinations
    }

    /// Checks the room after the rules of a policy have come. `destinations` are still to come.
    fn check_room(
        &mut self,
        owner: Option<&Identity>,
        destinations: usize,
    ) -> Result<(), ShieldFull> {
        let share = owner.map_or(0, |owner| self.share_of(owner));
        let used = (self.size() + destinations).saturating_sub(self.configured_size);
        let left = ELEMENTS_MAX.saturating_sub(used.saturating_sub(share));
        if share > left / SHARES {
            return Err(ShieldFull::OfPeer);
        }
        match used <= ELEMENTS_MAX {
            true => Ok(()),
            false => Err(ShieldFull::OfAll),
        }
    }

    /// Returns the ranges that a policy's destinations would be alone.
    fn destinations_of(&self, policy: &ConfiguredPolicy, (local, remote): Ends<'_>) -> usize {
        let protects = matches!(policy.kind, PolicyKind::Protect { .. });
        let interface = policy.sa.if_ids.outbound;
        let mut all = self.destinations.iter();
        if !protects || !all.any(|own| own.interface == interface) {
            return 0;
        }
        let mut alone = Destinations::default();
        alone.protect(true, &ranges(local), &ranges(remote));
        alone.count_ranges()
    }

    fn add_rules(
        &mut self,
        policy: &ConfiguredPolicy,
        rules: &PolicyRules,
        payer: Option<u64>,
        budget: &mut WorkLimit,
    ) -> Result<(), ShieldFull> {
        for (chain, rules) in self.chains_of(policy, rules) {
            for ((family, remote), rules) in rules {
                let held = HeldRules {
                    chain,
                    remote: *remote,
                    rules,
                    payer,
                };
                let added = self.classifiers[*family].add(held, budget);
                added.map_err(|_| ShieldFull::OverlapsTooOften)?;
            }
        }
        Ok(())
    }

    fn remove_rules(
        &mut self,
        policy: &ConfiguredPolicy,
        holder: (usize, u64),
        payer: Option<u64>,
        rules: &PolicyRules,
    ) {
        for (chain, rules) in self.chains_of(policy, rules) {
            for (family, remote) in rules.keys() {
                self.classifiers[*family].remove(chain, *remote, holder, payer);
            }
        }
    }

    /// Returns the chains that a policy's rules are in, each with its rules.
    fn chains_of<'a>(
        &self,
        policy: &ConfiguredPolicy,
        rules: &'a PolicyRules,
    ) -> Vec<(u32, &'a RulesByRemote)> {
        let if_ids = policy.sa.if_ids;
        let of_interface = self.interfaces.iter().filter(|interface| {
            match (interface.marks.are_given(), interface.marks.inbound) {
                (false, _) => if_ids.outbound == interface.if_id,
                (true, Some(_)) => if_ids.inbound == interface.if_id,
                (true, None) => false,
            }
        });
        let chains = of_interface.map(|interface| (interface.if_id, &rules.inbound));
        let mut chains: Vec<_> = chains.collect();
        if policy.sa.is_led() && policy.sa.marks.given.is_none() {
            chains.push((COMMON, &rules.inbound));
        }
        if if_ids.outbound == 0 {
            chains.push((LEAVING, &rules.outbound));
        }
        chains
    }

    fn follow_destinations(
        &mut self,
        come: bool,
        policy: &ConfiguredPolicy,
        (local, remote): Ends<'_>,
    ) {
        if !matches!(policy.kind, PolicyKind::Protect { .. }) {
            return;
        }
        let interface = policy.sa.if_ids.outbound;
        let mut all = self.destinations.iter_mut();
        if let Some(own) = all.find(|own| own.interface == interface) {
            own.ranges.protect(come, &ranges(local), &ranges(remote));
        }
    }

    /// Returns the number of elements of all maps.
    pub fn element_count(&mut self) -> usize {
        let classifiers = self.classifiers.iter_mut();
        classifiers.map(Classifier::branch_count).sum()
    }

    /// Returns the number of elements of all maps and sets.
    fn size(&mut self) -> usize {
        let destinations = self.destinations.iter();
        let ranges: usize = destinations.map(|own| own.ranges.count_ranges()).sum();
        self.element_count() + ranges
    }

    pub fn interfaces(&self) -> &[InterfaceConfig] {
        &self.interfaces
    }

    /// Tells whether interfaces have policies that the gateway's own routes do not lead to.
    pub fn has_bound(&self) -> bool {
        self.configured.iter().any(|policy| !policy.sa.is_led())
    }

    /// The classifiers for IPv4 and for IPv6.
    pub fn classifiers(&mut self) -> &mut [Classifier; 2] {
        &mut self.classifiers
    }

    pub fn destinations(&mut self) -> &mut [GuardedDestinations] {
        &mut self.destinations
    }
}

fn key(place: usize, (local, remote): Ends<'_>) -> Option<(usize, SelectorSet)> {
    Some((place, SelectorSet::from_ends(local, remote)?))
}

#[cfg(test)]
mod tests;
