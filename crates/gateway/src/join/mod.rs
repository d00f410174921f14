//! Joins IKE and the data plane: "child SA installed" becomes entries of SAD and SPD, and what the data plane meets
//! becomes questions to IKE. Neither crate knows the other. This folder knows both. It is what PF_KEY is in other
//! systems.
//!
//! | module | decides |
//! |---|---|
//! | `policy_book` | which policies stand in the SPD |
//! | `policy_order` | in which order they stand, and which may stand for others |
//! | `child_sas` | which child SAs are installed, and which of them are used or due |
//! | `handover` | when outbound traffic changes to a new SA, and how long an old SPI receives |
//! | `placement` | which engine or device carries an SA |
//! | `succession` | which SAs may take over packets that engines have from other SAs |
//! | `routes` | which traffic is led into the TUN device |
//! | `dummies` | which SAs send dummy packets |
//! | `totals` | what each child has carried over all its SAs |
//! | `translate` | what a negotiated SA is in terms of the data plane |
//!
//! [`Join`] takes the events of IKE one by one. The SAD follows at once. [`Join::take_changes`] publishes the SPD once for
//! all of them, and has everything else that must follow. Nothing here reads a clock or touches the system.

mod child_sas;
mod dummies;
mod handover;
mod placement;
mod policy;
mod policy_book;
mod policy_order;
mod routes;
mod succession;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod translate;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ike::config::EndAction;
use esplanade_ike::event::{ChildSaDeleted, ChildSaId, ChildSaInstalled};
use esplanade_ipsec::database::Database;
use esplanade_ipsec::sa::{InboundSa, Path, SaCommon, SaDirection};
use esplanade_ipsec::spd::{LevelMerge, MergedLevel, Policy, PolicyId, ReplacedLevels};

use crate::share::{LoadSample, ShareReport};
use crate::worker::DummySas;
use esplanade_engines::Engines;

use child_sas::ChildSas;
use dummies::DummySchedule;
use handover::Handover;
use placement::Placement;
use policy_book::{PolicyBook, PolicySelectors};
use routes::RouteBook;
use succession::{Overlaps, Succession, expect, renew};
use totals::Totals;

pub use child_sas::{Activity, Carrier, InstalledChild};
pub use placement::{AdaptiveEngines, DeviceFailed, Moved, NotMoved};
pub use policy::{ChildPolicy, ConfiguredPolicy, PeerPolicy, PolicyKind, SharedTraffic};
pub use policy_order::may_stand_for;
pub use routes::{RouteChange, ranges};
pub use totals::{ChildTotals, HalfTotals};
pub use translate::{demand, ends};

/// Most SAs that are gone at once whose heirs are looked for. Of more, every other SA counts as an heir.
const GONE_LOOKS_MAX: usize = 16;

/// The reason why a child SA could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("the configuration has no child {child:?} in connection {connection:?} any more")]
    NotConfigured { connection: String, child: String },
    #[error("the negotiated traffic selectors are too many or contradict each other")]
    Selectors,
    #[error(transparent)]
    Key(#[from] esplanade_crypto::KeyError),
    #[error(transparent)]
    Spi(#[from] esplanade_ipsec::sad::NotAllocated),
    #[error(transparent)]
    Device(#[from] DeviceFailed),
}

/// A task that follows from a change of SAD or SPD. A list of tasks has the order in which they are to be done.
#[derive(Debug)]
pub enum Change {
    /// SAD or SPD have changed: the device in front follows them, before peers hear of it.
    Tables,
    /// A policy of a peer came (true) or went.
    PeerPolicy(bool, PeerPolicy),
    Route(RouteChange),
    /// These SAs send dummy packets from now on, and no others.
    Dummies(DummySas),
    /// The SA is to be rekeyed: its successor is to be with another engine.
    Renew(ChildSaId),
}

/// Child SAs, their policies, and what follows from both.
#[derive(Debug)]
pub struct Join {
    database: Arc<Database>,
    policies: PolicyBook,
    child_sas: ChildSas,
    handover: Handover,
    placement: Placement,
    succession: Succession,
    routes: RouteBook,
    dummies: DummySchedule,
    totals: Totals,
    peer_policies: Vec<Change>,
    /// Policies that may have SAs that have retired.
    retired: Vec<Arc<Policy>>,
    /// Child SAs that are gone and whose packets go elsewhere when the SPD is published. Empty with one engine.
    gone: Vec<InstalledChild>,
    /// Policies whose SAs are all expected to take over packets, until the SPD is published.
    expected: HashSet<PolicyId>,
    tables_changed: bool,
}

impl Join {
    pub fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            policies: PolicyBook::default(),
            child_sas: ChildSas::default(),
            handover: Handover::default(),
            placement: Placement::default(),
            succession: Succession::default(),
            routes: RouteBook::default(),
            dummies: DummySchedule::default(),
            totals: Totals::default(),
            peer_policies: Vec::new(),
            retired: Vec::new(),
            gone: Vec::new(),
            expected: HashSet::new(),
            tables_changed: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    /// Sets the engines that there are from now on.
    pub fn set_engines(&mut self, engines: Engines) {
        self.tables_changed |= engines.device().is_some();
        self.placement.set_engines(engines);
    }

    /// Places SAs anew where an engine refuses other SAs than before.
    pub fn follow_refusals(&mut self) {
        let (policies, child_sas) = (&self.policies, &mut self.child_sas);
        self.placement
            .follow_refusals(&self.database, policies, child_sas);
    }

    /// Tells whether there are halves of SAs that move with the load. Then [`Self::balance`] is due in every period.
    pub fn balances(&self) -> bool {
        self.placement.balances()
    }

    /// Moves halves of adaptive children as the load wants it. `now` is the time since any fixed moment.
    pub fn balance(&mut self, sample: &LoadSample, now: Duration) {
        self.placement
            .balance(&self.database, &self.child_sas, sample, now);
    }

    /// Reports the share of the engine that shares the CPU's load. Returns `None` if there is no adaptive child.
    pub fn share(&self) -> Option<ShareReport> {
        self.placement.share()
    }

    /// Follows a new configuration. SAs that are up stay with the selectors that they were negotiated for. Traffic that
    /// is trapped before and after is led into the TUN device all the while.
    pub fn configure(&mut self, configured: Vec<ConfiguredPolicy>) {
        self.routes.follow_bypasses(&configured);
        self.policies.configure(configured);
        self.placement
            .follow(&self.database, &self.policies, &mut self.child_sas);
        self.policies.drop_unused();
        let policies = &self.policies;
        self.totals
            .retain(|name| policies.configured_child(name).is_some());
        self.settle();
        if self.placement.can_overtake() {
            // A flow may have come from an SA of another policy.
            for (_, child) in self.child_sas.iter() {
                renew(self.database.placements(), &child.outbound.common);
            }
        }
    }

    /// Names the addresses of peers, whose ESP without an SA is told of before that of strangers.
    pub fn set_peers(&self, addresses: HashSet<IpAddr>) {
        self.database.sad().set_peers(addresses);
    }

    /// Installs a child SA: from now on it receives. `now_ms` is the data plane's clock.
    pub fn install(&mut self, event: &ChildSaInstalled, now_ms: u64) -> Result<(), InstallError> {
        if self.placement.has_device() {
            // The device makes its tables from the SPD when it takes an SA.
            self.settle();
        }
        let selectors = translate::negotiated(event).ok_or(InstallError::Selectors)?;
        let configured = self.configured_for(event)?;
        let policy = self.policies.policy_for_sa(&configured, selectors.clone());
        let result = self.install_for(event, &configured, policy, &selectors, now_ms);
        self.policies.drop_if_unused(policy);
        result
    }

    fn install_for(
        &mut self,
        event: &ChildSaInstalled,
        configured: &ConfiguredPolicy,
        policy: PolicyId,
        selectors: &PolicySelectors,
        now_ms: u64,
    ) -> Result<(), InstallError> {
        let options = &configured.sa;
        let halves = translate::halves(event, options, &selectors.set, policy, now_ms)?;
        let choice = self.placement.choice(configured);
        let carrier = self.placement.offload(configured, choice, &halves)?;
        let inbound = halves.0.clone();
        let name = (event.connection.clone(), event.name.clone());
        let made_by_peer = !event.initiator && event.rekeyed_from.is_none();
        let mut child = InstalledChild::new(name, policy, halves, carrier, made_by_peer);
        // After a reauthentication an SA replaces another although it does not say so.
        let newest = || self.child_sas.newest_like(policy, &child.outbound);
        let ids = (event.child, event.rekeyed_from.or_else(newest));
        self.placement
            .begin(&self.database, ids, &mut child, choice);
        if self.takes_over(&child, event.rekeyed_from) {
            expect(self.database.placements(), &child);
        }
        if let Err(error) = self.database.sad().insert(inbound) {
            self.placement.forget(event.child);
            return Err(error.into());
        }
        self.policies.add_child_sa(policy);
        self.dummies.add(policy, event.child, options.dummies);
        self.totals.begin(event.child, &child.name, now_ms);
        self.child_sas.insert(event.child, child);
        self.tables_changed = true;
        Ok(())
    }

    /// Tells whether a new SA may take over packets from others. Those of a policy that is new, or comes forward, may have
    /// had any other.
    fn takes_over(&self, new: &InstalledChild, rekeyed_from: Option<ChildSaId>) -> bool {
        if !self.placement.can_overtake() {
            return false;
        }
        let replaced = rekeyed_from.and_then(|id| self.child_sas.get(id));
        let others = self.others(new.policy, self.policies.comes_forward(new.policy));
        self.succession.takes_over(new, others.chain(replaced))
    }

    /// Lets other SAs take over the packets of one that is gone or will be.
    fn expect_heirs(&self, gone: &InstalledChild) {
        let everywhere = self.policies.gives_way(gone.policy);
        let mut overlaps = Overlaps::of(gone);
        let heirs = self.others(gone.policy, everywhere);
        let placements = self.database.placements();
        for (index, heir) in heirs.filter(|heir| overlaps.with_child(heir)).enumerate() {
            expect(placements, heir);
            if index == 0 {
                self.placement.linger(&self.database, gone, heir);
            }
        }
    }

    /// Lets other SAs of the policy take over the packets of one that will be gone. Of a policy with many SAs, all are
    /// expected at once.
    fn expect_heirs_in_policy(&mut self, gone: &InstalledChild) {
        if !self.placement.can_overtake() || self.expected.contains(&gone.policy) {
            return;
        }
        let placements = self.database.placements();
        let of_policy = || self.child_sas.of_policy(gone.policy);
        if of_policy().nth(GONE_LOOKS_MAX).is_none() {
            return self.expect_heirs(gone);
        }
        of_policy().for_each(|(_, heir)| expect(placements, heir));
        self.expected.insert(gone.policy);
    }

    /// Lets other SAs take over the packets of those that are gone, now that the SPD leads these packets to them.
    fn expect_heirs_of_all_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        self.expected.clear();
        if gone.len() <= GONE_LOOKS_MAX {
            gone.iter().for_each(|gone| self.expect_heirs(gone));
        } else {
            let placements = self.database.placements();
            let heirs = self.child_sas.iter();
            heirs.for_each(|(_, heir)| expect(placements, heir));
        }
    }

    /// Returns the SAs of a policy, or those of all policies.
    fn others(
        &self,
        policy: PolicyId,
        everywhere: bool,
    ) -> Box<dyn Iterator<Item = &InstalledChild> + '_> {
        match everywhere {
            true => Box::new(self.child_sas.iter().map(|(_, child)| child)),
            false => Box::new(self.child_sas.of_policy(policy).map(|(_, child)| child)),
        }
    }

    /// Returns the child that an SA is for: as configured, or as it was configured for the SA that this one replaces.
    fn configured_for(&self, event: &ChildSaInstalled) -> Result<ConfiguredPolicy, InstallError> {
        let name = (event.connection.clone(), event.name.clone());
        let former = || {
            let former = self.child_sas.get(event.rekeyed_from?)?;
            self.policies.origin(former.policy)
        };
        let configured = self.policies.configured_child(&name).or_else(former);
        configured
            .cloned()
            .ok_or_else(|| InstallError::NotConfigured {
                connection: event.connection.clone(),
                child: event.name.clone(),
            })
    }

    /// Sends with this SA from now on, or as soon as its peer surely has it.
    pub fn use_outbound(&mut self, child: ChildSaId, now: Instant) {
        let Some(new) = self.child_sas.begin_sending(child) else {
            return;
        };
        let Some(policy) = self.policies.policy(new.policy) else {
            return;
        };
        let placements = self.database.placements();
        let begun = self
            .handover
            .begin(child, &mut self.child_sas, (policy, placements), now);
        if begun {
            self.dummies.switched(policy.id);
            self.tables_changed = true;
            let id = policy.id;
            self.policies.sas_changed(id);
        }
    }

    /// Sends with this SA now.
    fn switch_to(&mut self, child: ChildSaId) {
        let new = self.child_sas.get(child);
        let Some(policy) = new.and_then(|new| self.policies.policy(new.policy)) else {
            return;
        };
        let placements = self.database.placements();
        if self
            .handover
            .switch(child, &mut self.child_sas, (policy, placements))
        {
            self.dummies.switched(policy.id);
            self.tables_changed = true;
            let id = policy.id;
            self.policies.sas_changed(id);
        }
    }

    /// Removes a child SA. Its inbound SPI receives packets in flight for a while.
    pub fn delete(&mut self, event: &ChildSaDeleted, now: Instant) {
        let Some(gone) = self.child_sas.remove(event.child) else {
            // The SA could not be installed. Its SPI was allocated all the same.
            self.database.sad().remove(event.spi_in);
            return;
        };
        self.tables_changed = true;
        self.totals.linger(event.child, &gone);
        self.placement.forget(event.child);
        self.dummies.remove(gone.policy, event.child);
        self.handover.linger(event.spi_in, now + event.linger);
        if !event.replaced {
            self.succession.remember(&gone, now + event.linger);
            self.expect_heirs_in_policy(&gone);
        } else if let Some(heir) = self.child_sas.newest_like(gone.policy, &gone.outbound) {
            let heir = self.child_sas.get(heir);
            heir.inspect(|heir| self.placement.linger(&self.database, &gone, heir));
        }
        if let Some(policy) = self.policies.policy(gone.policy) {
            let (child_sas, placements) = (&self.child_sas, self.database.placements());
            self.handover
                .end(event.child, &gone, child_sas, (policy, placements));
            policy.acquire_done();
            self.retired.push(Arc::clone(policy));
        }
        self.policies.remove_child_sa(gone.policy);
        self.policies.sas_changed(gone.policy);
        if !event.replaced && event.then != EndAction::Clear {
            self.policies.trap_as_configured(gone.policy);
        }
        self.policies.drop_if_unused(gone.policy);
        // Packets of their own may come through the heirs until the SPD is published.
        let goes_on = event.replaced && !self.policies.gives_way(gone.policy);
        if self.placement.can_overtake() && !goes_on {
            self.gone.push(gone);
        }
    }

    /// Does what is due: switches to SAs that have waited long enough.
    pub fn expire(&mut self, now: Instant) {
        for child in self.handover.due(now) {
            self.switch_to(child);
        }
        self.succession.expire(now);
    }

    /// Frees SPIs that have lingered long enough, a bounded number of them.
    pub fn free_spis(&mut self, now: Instant) {
        for spi in self.handover.take_drained(now) {
            if let Some(inbound) = self.database.sad().remove(spi) {
                self.totals.end(&inbound.common);
            }
        }
    }

    /// Returns the time at which [`Self::free_spis`] has something to do.
    pub fn next_drained(&self) -> Option<Instant> {
        self.handover.next_drained()
    }

    /// Changes the addresses of child SAs, ours and the peer's.
    pub fn peer_moved(&mut self, children: &[ChildSaId], local: SocketAddr, remote: SocketAddr) {
        self.tables_changed = true;
        for child in children.iter().filter_map(|id| self.child_sas.get(*id)) {
            let path = |half: &SaCommon| Path {
                local,
                remote,
                udp_encap: half.path().udp_encap,
            };
            child.inbound.set_path(path(&child.inbound.common));
            child.outbound.common.set_path(path(&child.outbound.common));
        }
    }

    /// Moves the children of this name, in this connection or in any, to an engine, with the SAs that replace theirs.
    pub fn set_engine(
        &mut self,
        connection: Option<&str>,
        child: &str,
        engine: &str,
    ) -> Result<Moved, NotMoved> {
        let (policies, child_sas) = (&self.policies, &mut self.child_sas);
        let name = (connection, child);
        self.placement
            .order(&self.database, policies, child_sas, name, engine)
    }

    /// Returns what a configured child has carried and dropped, over all its SAs. Returns `None` if it has had none, and
    /// no packets for one.
    pub fn carried(&self, connection: &str, child: &str) -> Option<ChildTotals> {
        let name = (connection.to_owned(), child.to_owned());
        let unserved = self.policies.unserved(&name);
        let carried = self.totals.of(&name, &self.child_sas, self.database.sad());
        totals::with_unserved(carried, unserved)
    }

    /// Looks at the next slice of child SAs, and at child SAs that wait for their peer. `now_ms` is the data plane's
    /// clock.
    pub fn take_activity(&mut self, now_ms: u64) -> Vec<Activity> {
        let mut active = Vec::new();
        for child in self.handover.waiting() {
            let Some(activity) = self.child_sas.activity_of(child, now_ms) else {
                continue;
            };
            // A peer that sends on an SA has installed the SA.
            if activity.inbound {
                self.switch_to(child);
            }
            active.push(activity);
        }
        active.extend(self.child_sas.take_activity(now_ms));
        active
    }

    /// Returns the activity of one child SA, or `None` if there was none.
    pub fn activity_of(&mut self, child: ChildSaId, now_ms: u64) -> Option<Activity> {
        self.child_sas.activity_of(child, now_ms)
    }

    /// Publishes the SPD if policies came or went, and notes what follows from it.
    fn settle(&mut self) {
        for change in self.policies.take_changes() {
            self.routes.follow(&change);
            let of_peer = change
                .of_peer
                .map(|policy| Change::PeerPolicy(change.came, policy));
            self.peer_policies.extend(of_peer);
        }
        if let Some(spd) = self.policies.take_spd() {
            self.database.publish_spd(spd);
            self.tables_changed = true;
        }
        // From here on, other policies have the packets.
        self.retired.drain(..).for_each(|policy| policy.let_go());
        self.expect_heirs_of_all_gone();
    }

    /// Returns the part of the SPD that is to be compiled anew, if there is a large one. Any thread can do that.
    pub fn take_merge(&mut self) -> Option<LevelMerge> {
        self.policies.take_merge()
    }

    /// Takes the part of the SPD that was compiled.
    pub fn merged(&mut self, level: MergedLevel) -> ReplacedLevels {
        self.policies.merged(level)
    }

    /// The number of selectors that were compiled for the SPD so far, each as often as it was compiled.
    pub fn compiled_rules(&self) -> u64 {
        self.policies.compiled_rules()
    }

    /// Publishes the SPD if policies came or went. Takes the tasks that have come up since the last call, in the order
    /// in which they are to be done.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.settle();
        let mut changes = Vec::new();
        if std::mem::take(&mut self.tables_changed) {
            changes.push(Change::Tables);
        }
        changes.append(&mut self.peer_policies);
        changes.extend(self.routes.take().into_iter().map(Change::Route));
        let dummies = self.dummies.take(&self.child_sas, &self.policies);
        changes.extend(dummies.map(Change::Dummies));
        let renewals = self.placement.take_renewals();
        changes.extend(renewals.into_iter().map(Change::Renew));
        changes
    }

    /// Returns the configured policies in the order of the SPD.
    pub fn configured(&self) -> &[ConfiguredPolicy] {
        self.policies.configured()
    }

    /// Returns the policies that peers have negotiated beside the configured selectors, and that have SAs.
    pub fn peer_policies(&self) -> Vec<PeerPolicy> {
        self.policies.of_peers()
    }

    /// Returns the child SAs of a policy.
    pub fn child_sas_of(&self, policy: PolicyId) -> Vec<ChildSaId> {
        let children = self.child_sas.of_policy(policy);
        children.map(|(child, _)| child).collect()
    }

    pub fn child(&self, child: ChildSaId) -> Option<&InstalledChild> {
        self.child_sas.get(child)
    }

    /// Returns the child from which the policy of a child SA was made.
    pub fn configured_of(&self, child: &InstalledChild) -> Option<&ConfiguredPolicy> {
        self.policies.origin(child.policy)
    }

    /// Returns the child SA that an event of the data plane is about.
    pub fn child_of(
        &self,
        direction: SaDirection,
        policy: PolicyId,
        spi: u32,
    ) -> Option<(ChildSaId, &InstalledChild)> {
        self.child_sas.find(direction, policy, spi)
    }

    /// Returns the engine that a child SA is with, or `None` if there is only one engine.
    pub fn engine_of(&self, child: &InstalledChild) -> Option<&'static str> {
        self.placement.engine_of(child)
    }

    /// Returns the engine that a half of a child SA is with, or `None` if there is only one engine.
    pub fn engine_of_half(
        &self,
        child: &InstalledChild,
        direction: SaDirection,
    ) -> Option<&'static str> {
        self.placement.engine_of_half(child, direction)
    }

    /// Returns why a child SA, or a half of it, is not with the engine that it is to be with.
    pub fn engine_reason(&self, child: &InstalledChild) -> Option<String> {
        let configured = self.policies.configured_child(&child.name);
        self.placement.engine_reason(child, configured)
    }

    /// Returns the engines of an adaptive child. Returns `None` for other children.
    pub fn adaptive_engines(&self, child: &InstalledChild) -> Option<AdaptiveEngines> {
        self.placement.adaptive_engines(child)
    }

    /// Returns the inbound SAs of a policy's child SAs.
    pub fn inbound_sas(&self, policy: PolicyId) -> Vec<Arc<InboundSa>> {
        let children = self.child_sas.of_policy(policy);
        children
            .map(|(_, child)| Arc::clone(&child.inbound))
            .collect()
    }

    /// Tells whether packets of the policy that find no SA ask IKE for one.
    pub fn asks(&self, policy: PolicyId) -> bool {
        self.policies.asks(policy)
    }

    /// Returns the connection and the children that a packet of this DSCP asks for. The packet's own child comes first.
    pub fn children_to_ask(&self, policy: PolicyId, dscp: u8) -> Option<(&str, Vec<&str>)> {
        self.policies.children_to_ask(policy, dscp)
    }

    /// Lets policies without an SA ask again.
    pub fn renew_acquires(&self) {
        self.policies.renew_acquires();
    }
}
