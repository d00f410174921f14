//! The policies that stand in the SPD, and their order.
//!
//! The SPD has an entry for each set of selectors that a child of the configuration has in force. A child that is to be
//! protected has an entry for its own selectors, which holds the traffic while there is no SA. A peer that narrows the
//! selectors gets an entry of its own in front, for as long as it has SAs with them. [`PolicyOrder`] has the places.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use esplanade_few::FewSet;
use esplanade_ipsec::selector::{PopulateFromPacket, SelectorSet, TrafficSelector};
use esplanade_ipsec::spd::{
    Action, EntryPlace, LevelMerge, MergedLevel, Policy, PolicyId, ReplacedLevels, Spd, SpdBook,
    SpdEntry, UnservedDrops,
};

use super::policy::{ChildName, ConfiguredPolicy, PeerPolicy, PolicyKind};
use super::policy_order::PolicyOrder;

/// The selectors that a policy is for: as a set, and as the two ends that routes and nftables see.
#[derive(Clone, Debug)]
pub(super) struct PolicySelectors {
    pub set: SelectorSet,
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
}

impl PolicySelectors {
    /// Returns `None` if there are too many selectors, or if they select nothing.
    pub fn new(local: Vec<TrafficSelector>, remote: Vec<TrafficSelector>) -> Option<Self> {
        let set = SelectorSet::from_ends(&local, &remote).filter(|set| !set.is_empty())?;
        Some(Self { set, local, remote })
    }

    fn of(policy: &ConfiguredPolicy) -> Option<Self> {
        Self::new(policy.local.clone(), policy.remote.clone())
    }
}

/// A Protect policy that came or went.
#[derive(Clone, Debug)]
pub(super) struct PolicyChange {
    pub came: bool,
    /// The interface that the policy is bound to; 0 is the common one.
    pub interface: u32,
    /// The gateway's own routes lead traffic to the policy.
    pub led: bool,
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
    /// The policy, if its selectors came with a peer: the configuration does not cover them.
    pub of_peer: Option<PeerPolicy>,
}

/// A Protect policy, for a child SA and for those that replace it.
#[derive(Debug)]
struct PolicyGroup {
    policy: Arc<Policy>,
    configured: ConfiguredPolicy,
    selectors: PolicySelectors,
    /// Child SAs that are installed for the policy.
    child_sas: usize,
    /// The policy is configured. It stands without SAs too, so that its traffic never leaves in the clear.
    hold: bool,
    /// Traffic asks for an SA.
    trap: bool,
    /// The place of the child in the configuration. A child that is no longer configured is behind all others.
    order: usize,
    /// The entry of the policy in the SPD: its place, and what it takes from packets.
    entry: Option<(EntryPlace, PopulateFromPacket)>,
}

/// The key that makes two policies the same: the child with the entry, the interface, the selectors.
type GroupKey = (ChildName, u32, SelectorSet);

/// All policies.
#[derive(Debug)]
pub(super) struct PolicyBook {
    configured: Vec<ConfiguredPolicy>,
    /// Indices into `configured`.
    by_name: HashMap<ChildName, usize>,
    /// Indices into `configured`, by the child with the entry.
    by_entry: HashMap<ChildName, FewSet<usize>>,
    order: PolicyOrder,
    groups: BTreeMap<PolicyId, Box<PolicyGroup>>,
    by_selectors: HashMap<GroupKey, PolicyId>,
    /// The packets without an SA, by the child with the entry. The policies of a child count together.
    unserved: HashMap<ChildName, Arc<UnservedDrops>>,
    next_id: u32,
    spd: SpdBook,
    /// Policies whose entries may have to change.
    lagging: BTreeSet<PolicyId>,
    /// The policies of the configuration that have no group, by their places.
    unprotected: BTreeMap<EntryPlace, ConfiguredPolicy>,
    changes: Vec<PolicyChange>,
}

impl Default for PolicyBook {
    fn default() -> Self {
        Self {
            configured: Vec::new(),
            by_name: HashMap::new(),
            by_entry: HashMap::new(),
            order: PolicyOrder::default(),
            groups: BTreeMap::new(),
            by_selectors: HashMap::new(),
            unserved: HashMap::new(),
            next_id: 1,
            spd: SpdBook::default(),
            lagging: BTreeSet::new(),
            unprotected: BTreeMap::new(),
            changes: Vec::new(),
        }
    }
}

impl PolicyBook {
    /// Follows a new configuration. Policies with SAs stay with the selectors that were negotiated. Policies without
    /// SAs stay until [`Self::drop_unused`], so that the routes of new ones come before the routes of old ones go.
    pub fn configure(&mut self, configured: Vec<ConfiguredPolicy>) {
        self.configured = configured;
        self.by_name = (self.configured.iter().enumerate())
            .map(|(index, policy)| (policy.name(), index))
            .collect();
        self.by_entry.clear();
        for (index, policy) in self.configured.iter().enumerate() {
            let sharing = self.by_entry.entry(policy.entry_name());
            sharing.or_default().insert(index);
        }
        self.order = PolicyOrder::new(&self.configured);
        self.lagging.extend(self.groups.keys());
        for group in self.groups.values_mut() {
            group.order = order(&self.by_name, &group.configured.entry_name());
            let now = self.configured.get(group.order);
            let same = now.is_some_and(|policy| *policy == group.configured);
            group.hold &= same;
            group.trap &= same;
        }
        for policy in self.configured.clone() {
            if SelectorSet::from_ends(&policy.local, &policy.remote).is_none() {
                tracing::error!(
                    connection = policy.connection,
                    child = policy.child,
                    "the policy has too many traffic selectors and is left out"
                );
            } else if let PolicyKind::Protect { trap } = policy.kind
                // A tunnel interface discards what no policy takes: it needs no policy to hold its traffic.
                && (trap || policy.sa.is_led())
            {
                self.hold(&policy, trap);
            }
        }
        let by_name = &self.by_name;
        self.unserved.retain(|name, _| by_name.contains_key(name));
        self.place_unprotected();
    }

    /// Returns the packets of a child for which there was no SA. A child without an entry of its own has none.
    pub fn unserved(&self, name: &ChildName) -> Option<&UnservedDrops> {
        self.unserved.get(name).map(Arc::as_ref)
    }

    /// Lets the entries of the configuration that bypass or discard follow it.
    fn place_unprotected(&mut self) {
        let configured = self.configured.iter().enumerate();
        let unprotected = configured
            .filter(|(_, policy)| !matches!(policy.kind, PolicyKind::Protect { .. }))
            .map(|(index, policy)| {
                let place = self.order.place(index, false, PolicyId(0), true);
                (place, policy.clone())
            });
        let former = std::mem::replace(&mut self.unprotected, unprotected.collect());
        for (place, policy) in &former {
            if self.unprotected.get(place) != Some(policy) {
                self.spd.remove(*place);
            }
        }
        for (place, policy) in &self.unprotected {
            if former.get(place) != Some(policy)
                && let Some(entry) = unprotected_entry(policy)
            {
                self.spd.add(*place, entry);
            }
        }
    }

    /// Lets a configured policy stand without SAs; with `trap` its traffic asks for one.
    fn hold(&mut self, policy: &ConfiguredPolicy, trap: bool) {
        let Some(selectors) = PolicySelectors::of(policy) else {
            return;
        };
        let id = self.group_for(policy, selectors);
        if let Some(group) = self.groups.get_mut(&id) {
            self.lagging.insert(id);
            group.hold = true;
            group.trap |= trap;
            group.configured = policy.clone();
        }
    }

    /// Lets the traffic of a policy's child ask for a new SA, as `dpd_action = trap` says. The configured selectors are
    /// trapped and not the negotiated ones: peers could narrow the negotiated selectors differently each time, without
    /// end.
    pub fn trap_as_configured(&mut self, id: PolicyId) {
        let group = self.groups.get(&id);
        let configured = group.and_then(|group| self.configured.get(group.order));
        if let Some(configured) = configured.cloned() {
            self.hold(&configured, true);
        }
    }

    /// Returns the policy of an SA with these selectors, and makes it if there is none. With PFP (RFC 4301 §4.4.1), it
    /// is the child's own policy, which has the SAs of all flows.
    pub fn policy_for_sa(
        &mut self,
        configured: &ConfiguredPolicy,
        negotiated: PolicySelectors,
    ) -> PolicyId {
        let entry = order(&self.by_name, &configured.entry_name());
        let entry = self.configured.get(entry).unwrap_or(configured).clone();
        let whole = match entry.sa.populate.is_none() {
            true => None,
            false => PolicySelectors::of(&entry),
        };
        self.group_for(&entry, whole.unwrap_or(negotiated))
    }

    fn group_for(&mut self, configured: &ConfiguredPolicy, selectors: PolicySelectors) -> PolicyId {
        let interface = configured.sa.if_ids.outbound;
        let key = (configured.entry_name(), interface, selectors.set.clone());
        if let Some(id) = self.by_selectors.get(&key) {
            return *id;
        }
        let id = self.free_id();
        let unserved = self.unserved.entry(key.0.clone()).or_default();
        let policy = Policy::new(id, configured.full_name()).with_unserved(Arc::clone(unserved));
        let group = PolicyGroup {
            policy: Arc::new(policy),
            configured: configured.clone(),
            selectors,
            child_sas: 0,
            hold: false,
            trap: false,
            order: order(&self.by_name, &key.0),
            entry: None,
        };
        self.changes.push(group.change(true, &self.configured));
        self.groups.insert(id, Box::new(group));
        self.by_selectors.insert(key, id);
        self.lagging.insert(id);
        id
    }

    /// A number that no policy has. Peers make policies, so that the numbers may all have been used once.
    fn free_id(&mut self) -> PolicyId {
        loop {
            let id = PolicyId(self.next_id);
            // Policy 0 stands for all policies that are not Protect.
            self.next_id = self.next_id.wrapping_add(1).max(1);
            if !self.groups.contains_key(&id) {
                return id;
            }
        }
    }

    #[cfg(test)]
    pub fn number_from(&mut self, next_id: u32) {
        self.next_id = next_id;
    }

    /// Counts a child SA that was installed for the policy.
    pub fn add_child_sa(&mut self, id: PolicyId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.child_sas += 1;
        }
    }

    /// Removes a child SA of the policy from the count. The policy stays until [`Self::drop_if_unused`].
    pub fn remove_child_sa(&mut self, id: PolicyId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.child_sas = group.child_sas.saturating_sub(1);
        }
    }

    /// Drops a policy that has no SA and is not configured.
    pub fn drop_if_unused(&mut self, id: PolicyId) {
        let group = self.groups.get(&id);
        if !group.is_some_and(|group| !group.hold && group.child_sas == 0) {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            self.changes.push(group.change(false, &self.configured));
            let interface = group.configured.sa.if_ids.outbound;
            let key = (
                group.configured.entry_name(),
                interface,
                group.selectors.set,
            );
            self.by_selectors.remove(&key);
            self.lagging.remove(&id);
            if let Some((place, _)) = group.entry {
                self.spd.remove(place);
            }
        }
    }

    /// Drops all policies that have no SA and are not configured.
    pub fn drop_unused(&mut self) {
        let all: Vec<_> = self.groups.keys().copied().collect();
        all.into_iter().for_each(|id| self.drop_if_unused(id));
    }

    /// Returns the configured policies in the order of the configuration.
    pub fn configured(&self) -> &[ConfiguredPolicy] {
        &self.configured
    }

    /// Returns a child of the configuration.
    pub fn configured_child(&self, name: &ChildName) -> Option<&ConfiguredPolicy> {
        self.configured.get(*self.by_name.get(name)?)
    }

    /// Returns the child from which a policy was made, also if it is no longer configured.
    pub fn origin(&self, id: PolicyId) -> Option<&ConfiguredPolicy> {
        Some(&self.groups.get(&id)?.configured)
    }

    /// Returns a policy as the data plane has it.
    pub fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        Some(&self.groups.get(&id)?.policy)
    }

    /// Tells whether the policy's packets belonged to other policies before its first SA: the policy is not in the SPD
    /// yet, or stands behind others.
    pub fn comes_forward(&self, id: PolicyId) -> bool {
        let with_sa = |group: &PolicyGroup| group.place(&self.order, true);
        let group = self.groups.get(&id);
        group.is_some_and(|group| group.entry.is_none_or(|(at, _)| at != with_sa(group)))
    }

    /// Tells whether the policy's packets belong to other policies without its last SA: the policy is gone, or stands
    /// behind others.
    pub fn gives_way(&self, id: PolicyId) -> bool {
        let group = self.groups.get(&id);
        let waits = |group: &PolicyGroup| group.hold && !group.has_sa();
        group.is_none_or(|group| waits(group) && self.order.yields(group.order))
    }

    /// Notes that the SAs that the policy sends with have changed. Its entry may have to move.
    pub fn sas_changed(&mut self, id: PolicyId) {
        self.lagging.insert(id);
    }

    /// Tells whether packets of the policy that find no SA ask IKE for one.
    pub fn asks(&self, id: PolicyId) -> bool {
        self.groups.get(&id).is_some_and(|group| group.asks())
    }

    /// Returns the connection, and the children that a packet of this DSCP asks for. The packet's own child comes
    /// first. The other children that share the entry follow. The first SA that comes up carries their packets too, so
    /// no packet would ask for their own SAs.
    pub fn children_to_ask(&self, id: PolicyId, dscp: u8) -> Option<(&str, Vec<&str>)> {
        let group = self.groups.get(&id).filter(|group| group.asks())?;
        let indices = self.by_entry.get(&group.configured.entry_name());
        let sharing = || {
            let indices = indices.into_iter().flat_map(FewSet::iter);
            indices.filter_map(|index| self.configured.get(*index))
        };
        let own = sharing().find(|other| other.sa.dscp.contains(dscp));
        let own = own.unwrap_or(&group.configured);
        let others = sharing().filter(|other| {
            other.kind == PolicyKind::Protect { trap: true } && other.child != own.child
        });
        let children = std::iter::once(own).chain(others);
        let names = children.map(|policy| policy.child.as_str()).collect();
        Some((&group.configured.connection, names))
    }

    /// Lets policies without an SA ask again: an acquire can get lost, or lead to nothing.
    pub fn renew_acquires(&self) {
        for group in self.groups.values() {
            // With PFP, another flow can always ask.
            let flows = !group.configured.sa.populate.is_none();
            if flows || group.policy.outbound_sa().is_none() {
                group.policy.acquire_done();
            }
        }
    }

    /// Returns the policies that peers have negotiated beside the configured selectors, and that have SAs.
    pub fn of_peers(&self) -> Vec<PeerPolicy> {
        self.groups
            .values()
            .filter_map(|group| group.of_peer(&self.configured))
            .collect()
    }

    /// Takes the policies that came and went since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<PolicyChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the SPD if it has changed since the last call. Negotiated selectors stand before the wider ones that are
    /// held, and policies that are no longer configured stand last.
    pub fn take_spd(&mut self) -> Option<Spd> {
        for id in std::mem::take(&mut self.lagging) {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let place = group.place(&self.order, group.has_sa());
            let wanted = (place, group.configured.sa.populate);
            if group.entry == Some(wanted) {
                continue;
            }
            if let Some((former, _)) = group.entry.replace(wanted) {
                self.spd.remove(former);
            }
            self.spd.add(wanted.0, group.spd_entry());
        }
        self.spd.take_snapshot()
    }

    /// Returns the part of the SPD that is to be compiled anew, if there is a large one.
    pub fn take_merge(&mut self) -> Option<LevelMerge> {
        self.spd.take_merge()
    }

    /// Takes the part that was compiled.
    pub fn merged(&mut self, level: MergedLevel) -> ReplacedLevels {
        self.spd.merged(level)
    }

    /// The number of selectors that were compiled so far, each as often as it was compiled.
    pub fn compiled_rules(&self) -> u64 {
        self.spd.compiled_rules()
    }
}

impl PolicyGroup {
    /// The place with an SA to send with, or without one. Only what is configured may wait behind others: negotiated
    /// selectors can be those of an earlier configuration.
    fn place(&self, order: &PolicyOrder, has_sa: bool) -> EntryPlace {
        order.place(self.order, self.hold, self.policy.id, has_sa || !self.hold)
    }

    fn has_sa(&self) -> bool {
        self.policy.outbound_sa().is_some()
    }

    fn spd_entry(&self) -> SpdEntry {
        SpdEntry {
            interface: self.configured.sa.if_ids.outbound,
            populate: self.configured.sa.populate,
            name: self.policy.name.as_str().into(),
            ..SpdEntry::new(
                self.selectors.set.clone(),
                Action::Protect(self.policy.clone()),
            )
        }
    }

    fn change(&self, came: bool, configured: &[ConfiguredPolicy]) -> PolicyChange {
        PolicyChange {
            came,
            interface: self.configured.sa.if_ids.outbound,
            led: self.configured.sa.is_led(),
            local: self.selectors.local.clone(),
            remote: self.selectors.remote.clone(),
            of_peer: self.of_peer(configured),
        }
    }

    /// Tells whether packets without an SA ask for one. While the policy has SAs, such a packet belongs to another
    /// flow, and asks too.
    fn asks(&self) -> bool {
        self.trap || self.child_sas > 0
    }

    /// Returns the policy, if the configuration as it is now does not cover its selectors. A child can have other
    /// addresses than when the policy was made, as names do.
    fn of_peer(&self, configured: &[ConfiguredPolicy]) -> Option<PeerPolicy> {
        let (local, remote) = (&self.selectors.local, &self.selectors.remote);
        let now = configured.get(self.order).unwrap_or(&self.configured);
        (!now.covers(local, remote)).then(|| PeerPolicy {
            id: self.policy.id,
            entry: self.configured.entry_name(),
            local: local.clone(),
            remote: remote.clone(),
        })
    }
}

/// Returns the entry of a policy that bypasses or discards.
fn unprotected_entry(policy: &ConfiguredPolicy) -> Option<SpdEntry> {
    let action = match policy.kind {
        PolicyKind::Bypass => Action::Bypass,
        PolicyKind::Discard => Action::Discard,
        PolicyKind::Protect { .. } => return None,
    };
    let selectors = SelectorSet::from_ends(&policy.local, &policy.remote)?;
    Some(SpdEntry {
        interface: policy.sa.if_ids.outbound,
        name: policy.full_name().into(),
        ..SpdEntry::new(selectors, action)
    })
}

fn order(by_name: &HashMap<ChildName, usize>, name: &ChildName) -> usize {
    by_name.get(name).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TRAP, ends, policy};
    use super::*;

    #[test]
    fn a_peer_that_narrows_differently_each_time_leaves_one_policy() {
        let configured = policy("net", TRAP, "10.2.0.0/16");
        let mut book = PolicyBook::default();
        book.configure(vec![configured.clone()]);
        for n in 0..50 {
            let narrow = ends(&format!("10.2.{n}.0/24"));
            let selectors = PolicySelectors::new(ends("10.1.0.0/16"), narrow).unwrap();
            let id = book.policy_for_sa(&configured, selectors);
            book.add_child_sa(id);
            assert_eq!(book.groups.len(), 2);
            book.remove_child_sa(id);
            book.trap_as_configured(id);
            book.drop_if_unused(id);
        }
        assert_eq!((book.groups.len(), book.by_selectors.len()), (1, 1));
        let changes = book.take_changes();
        assert_eq!(changes.len(), 101);
        let standing = changes
            .iter()
            .map(|change| if change.came { 1 } else { -1 });
        assert_eq!(standing.sum::<i32>(), 1);
    }

    #[test]
    fn the_spd_is_built_only_when_policies_change() {
        let mut book = PolicyBook::default();
        assert!(book.take_spd().is_none());
        book.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
        assert_eq!(book.take_spd().unwrap().entries().len(), 1);
        assert!(book.take_spd().is_none());
        book.drop_unused();
        assert!(book.take_spd().is_none(), "what is configured stays");
        book.configure(Vec::new());
        book.drop_unused();
        assert_eq!(book.take_spd().unwrap().entries().len(), 0);
    }
}
