//! Joins IKE and the data plane: "child SA installed" becomes entries of SAD and SPD, and what the data plane meets
//! becomes questions to IKE. Neither crate knows the other; this file knows both.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ike::config::{Demand, EndAction as Then, Mode as IkeMode};
use esplanade_ike::event::{ChildSaDeleted, ChildSaId, ChildSaInstalled};
use esplanade_ike::wire;
use esplanade_ipsec::database::Database;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::sa::{
    InboundSa, Mode, OutboundSa, Path, SaDirection, SaParameters, TfcPadding,
};
use esplanade_ipsec::selector::{
    AddressRange, Flow, NextLayer, PortRange, Selector, SelectorSet, TrafficSelector,
};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};

use crate::config::SaOptions;
use crate::worker::CoreHandle;

use dummies::Dummies;
use engines::Engines;

pub use activity::Activity;
pub use engines::Moved;
pub use routes::{RouteChange, ranges, thrown_routes};

/// How long the responder of an additional SA goes on with the SA that it has, unless the peer sends on the new one before.
const HANDOVER: Duration = Duration::from_secs(1);

/// One child of the configuration, as the SPD needs it. The order of the list is the order of the SPD.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredPolicy {
    pub connection: String,
    pub child: String,
    pub kind: PolicyKind,
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
    /// The child of the same connection whose entry of the SPD it shares: itself, or the first of those that differ in
    /// DSCPs only.
    pub leader: String,
    pub sa: SaOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    Bypass,
    Discard,
    /// Traffic is held to the policy also while there is no SA; with `trap` it asks for one.
    Protect {
        trap: bool,
    },
}

/// Why a child SA could not be installed.
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
    #[error("the FPGA core has not taken it: {0}")]
    Core(String),
}

/// What carries an SA. It stays there: sequence numbers are taken in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The workers' engines. Where the FPGA core was to have it: why it has not.
    Cpu(Option<String>),
    Fpga,
}

/// What the data plane knows of one child SA.
#[derive(Debug)]
pub struct Installed {
    name: Name,
    pub inbound: Arc<InboundSa>,
    pub outbound: Arc<OutboundSa>,
    pub carrier: Carrier,
    group: PolicyId,
    /// The peer has made this SA beside those that there are.
    of_peer: bool,
    sending: bool,
    /// `last_used_ms` of both halves when IKE was last told.
    seen: (u64, u64),
}

/// The names of a connection and of a child of it.
type Name = (String, String);

/// SAs that carry the same traffic: a child SA, and those that replace it.
#[derive(Debug)]
struct Group {
    policy: Arc<Policy>,
    configured: ConfiguredPolicy,
    selectors: SelectorSet,
    /// The same, local and remote, as routes and nf_tables see them.
    ends: (Vec<TrafficSelector>, Vec<TrafficSelector>),
    children: Vec<ChildSaId>,
    /// Configured, and so there also without SAs: what is to be protected never leaves in the clear.
    hold: bool,
    /// Traffic asks for an SA.
    trap: bool,
    /// The place of the child in the configuration; behind all others where it is there no more.
    order: usize,
}

#[derive(Debug)]
pub struct Join {
    database: Arc<Database>,
    configured: Vec<ConfiguredPolicy>,
    /// Indices into `configured`.
    by_name: HashMap<Name, usize>,
    groups: BTreeMap<PolicyId, Group>,
    by_selectors: HashMap<(Name, u32, SelectorSet), PolicyId>,
    children: BTreeMap<ChildSaId, Installed>,
    /// The last one of the last look at a slice of them, if more follow.
    looked_at: Option<ChildSaId>,
    /// By the inbound SPI, which is ours and unique. Peers choose outbound ones.
    by_spi: HashMap<u32, ChildSaId>,
    /// Inbound SAs that wait for packets in flight.
    lingering: Vec<(Instant, u32)>,
    /// Outbound SAs that wait until their peer has surely installed them.
    handovers: Vec<(Instant, ChildSaId)>,
    routes: Vec<RouteChange>,
    /// Policies whose selectors came with a peer have come or gone.
    shield_stale: bool,
    /// Bypassed traffic that is kept out of the TUN.
    thrown: Vec<RouteChange>,
    next_policy: u32,
    /// The SPD lags behind `groups`.
    stale: bool,
    dummies: Dummies,
    engines: Engines,
    core: Option<CoreHandle>,
    /// The core lags behind SPD and SAD.
    core_stale: bool,
}

impl Join {
    pub fn new(database: Arc<Database>) -> Self {
        Self {
            core: None,
            core_stale: false,
            database,
            configured: Vec::new(),
            by_name: HashMap::new(),
            groups: BTreeMap::new(),
            by_selectors: HashMap::new(),
            children: BTreeMap::new(),
            looked_at: None,
            by_spi: HashMap::new(),
            lingering: Vec::new(),
            handovers: Vec::new(),
            routes: Vec::new(),
            shield_stale: false,
            thrown: Vec::new(),
            next_policy: 1,
            stale: false,
            dummies: Dummies::default(),
            engines: Engines::default(),
        }
    }

    /// From now on SAs may go to the core.
    pub fn set_core(&mut self, core: Option<CoreHandle>) {
        self.engines.has_core = core.is_some();
        self.core = core;
        self.core_stale = true;
    }

    /// Route changes since the last call, in order.
    pub fn take_route_changes(&mut self) -> Vec<RouteChange> {
        std::mem::take(&mut self.routes)
    }

    /// Follows a new configuration. SAs that are up stay with the selectors that they were negotiated for. What is
    /// trapped before and after is led into the TUN all the while.
    pub fn configure(&mut self, configured: Vec<ConfiguredPolicy>) {
        let thrown = thrown_routes(&configured);
        let gone = self.thrown.iter().filter(|old| !thrown.contains(old));
        self.routes.extend(gone.map(RouteChange::undone));
        let new = thrown.iter().filter(|new| !self.thrown.contains(new));
        self.routes.extend(new.cloned());
        self.thrown = thrown;

        self.configured = configured;
        self.by_name = (self.configured.iter().enumerate())
            .map(|(index, policy)| (policy.name(), index))
            .collect();
        for group in self.groups.values_mut() {
            group.order = order(&self.by_name, &group.configured.entry());
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
                // What a tunnel interface gets is discarded where no policy takes it, and does not get out.
                && (trap || policy.sa.if_ids.outbound == 0)
            {
                self.hold(&policy, trap);
            }
        }
        self.place_again();
        let empty: Vec<_> = self.groups.keys().copied().collect();
        empty.into_iter().for_each(|id| self.drop_if_empty(id));
        self.stale = true;
        self.publish();
    }

    /// Holds traffic to the policy while there is no SA; with `trap` it asks for one.
    fn hold(&mut self, policy: &ConfiguredPolicy, trap: bool) {
        let selectors = SelectorSet::from_ends(&policy.local, &policy.remote);
        let Some(selectors) = selectors.filter(|selectors| !selectors.is_empty()) else {
            return;
        };
        let id = self.group_for(policy, selectors, &policy.local, &policy.remote);
        if let Some(group) = self.groups.get_mut(&id) {
            self.stale |= !group.hold;
            group.hold = true;
            group.trap |= trap;
            group.configured = policy.clone();
        }
    }

    /// `now_ms` is the data plane's clock.
    pub fn install(&mut self, event: &ChildSaInstalled, now_ms: u64) -> Result<(), InstallError> {
        let local: Vec<_> = event.local_ts.iter().filter_map(selector).collect();
        let remote: Vec<_> = event.remote_ts.iter().filter_map(selector).collect();
        let selectors = SelectorSet::from_ends(&local, &remote).ok_or(InstallError::Selectors)?;
        if selectors.is_empty() {
            return Err(InstallError::Selectors);
        }
        let former = event
            .rekeyed_from
            .and_then(|old| self.children.get(&old))
            .map(|old| old.group);
        let name = (event.connection.clone(), event.name.clone());
        let configured = self
            .configured
            .get(order(&self.by_name, &name))
            .or_else(|| Some(&self.groups.get(&former?)?.configured))
            .ok_or_else(|| InstallError::NotConfigured {
                connection: event.connection.clone(),
                child: event.name.clone(),
            })?
            .clone();
        let if_ids = configured.sa.if_ids;
        let parameters = |spi, key_material, interface, group| SaParameters {
            interface,
            esn: event.esp.sequence_numbers == esplanade_crypto::iana::SequenceNumbers::Bits64,
            tunnel: configured.sa.tunnel.clone(),
            lifetime: limits(event),
            replay_window: event.replay_window,
            peer_replay_window: event.peer_replay_window,
            mode: mode(event.mode),
            tfc: match event.tfc {
                true => configured.sa.tfc,
                false => TfcPadding::None,
            },
            dscp: configured.sa.dscp,
            class: configured.sa.class,
            icmp_errors: configured.sa.icmp_errors,
            non_first_fragments: event.non_first_fragments,
            installed_ms: now_ms,
            ..SaParameters::new(
                spi,
                group,
                event.esp.transform,
                key_material,
                selectors.clone(),
                Path {
                    local: event.local,
                    remote: event.remote,
                    udp_encap: event.udp_encap,
                },
            )
        };
        let group = self.group_of(&configured, selectors.clone(), &local, &remote);
        let (key_in, key_out) = (event.key_in.expose(), event.key_out.expose());
        let inbound = parameters(event.spi_in, key_in, if_ids.inbound, group);
        let inbound = InboundSa::new(inbound).map(Arc::new);
        let outbound = parameters(event.spi_out, key_out, if_ids.outbound, group);
        let outbound = OutboundSa::new(outbound).map(Arc::new);
        let result = inbound
            .and_then(|inbound| Ok((inbound, outbound?)))
            .map_err(InstallError::from);
        let place = self.place_of(&configured);
        let result = result.and_then(|pair| {
            let carrier = self.offload(&configured, place, &pair)?;
            self.database.sad().insert(pair.0.clone())?;
            Ok((pair, carrier))
        });
        let ((inbound, outbound), carrier) = match result {
            Ok(pair) => pair,
            Err(error) => {
                self.drop_if_empty(group);
                self.publish();
                return Err(error);
            }
        };
        if let Some(group) = self.groups.get_mut(&group) {
            group.children.push(event.child);
        }
        self.by_spi.insert(event.spi_in, event.child);
        self.dummies.add(group, event.child, configured.sa.dummies);
        let installed = Installed {
            name,
            inbound,
            outbound,
            carrier,
            group,
            of_peer: !event.initiator && event.rekeyed_from.is_none(),
            sending: false,
            seen: (0, 0),
        };
        self.place_new(&installed, place);
        self.children.insert(event.child, installed);
        self.core_stale = true;
        self.publish();
        Ok(())
    }

    /// Sends with this SA from now on. Where the peer has made it beside an SA in use, it has it only once our answer has
    /// reached it: what is sent before then must go the old way.
    pub fn use_outbound(&mut self, child: ChildSaId, now: Instant) {
        let Some(installed) = self.children.get_mut(&child) else {
            return;
        };
        installed.sending = true;
        let of_peer = installed.of_peer;
        let installed = &*installed;
        let in_use = self.groups.get(&installed.group);
        if of_peer && in_use.is_some_and(|group| group.sends_like(&installed.outbound)) {
            self.handovers.push((now + HANDOVER, child));
        } else {
            self.switch_to(child);
        }
    }

    /// Sends with this SA; older ones no longer wait to be switched to.
    fn switch_to(&mut self, child: ChildSaId) {
        let Some(installed) = self.children.get(&child) else {
            return;
        };
        let Some(group) = self.groups.get(&installed.group) else {
            return;
        };
        group.policy.install(installed.outbound.clone());
        self.core_stale = true;
        self.dummies.switched(installed.group);
        let older = group.children.iter().take_while(|other| **other != child);
        let alike = |other: &&ChildSaId| {
            let other = self.children.get(other);
            other.is_some_and(|other| alike(&other.outbound, &installed.outbound))
        };
        let done: Vec<_> = older.filter(alike).copied().chain([child]).collect();
        self.handovers
            .retain(|(_, waiting)| !done.contains(waiting));
    }

    pub fn delete(&mut self, event: &ChildSaDeleted, now: Instant) {
        let Some(installed) = self.children.remove(&event.child) else {
            // Installing it failed; the SPI was allocated all the same.
            self.database.sad().remove(event.spi_in);
            return;
        };
        self.by_spi.remove(&event.spi_in);
        self.core_stale = true;
        self.dummies.switched(installed.group);
        self.dummies.remove(installed.group, event.child);
        self.handovers
            .retain(|(_, waiting)| *waiting != event.child);
        self.lingering.push((now + event.linger, event.spi_in));
        if let Some(group) = self.groups.get_mut(&installed.group) {
            group.children.retain(|child| *child != event.child);
            group.policy.withdraw(&installed.outbound);
            // Redundant SAs of simultaneous exchanges: the newest that is left carries on.
            if !group.sends_like(&installed.outbound) {
                let mut left = group
                    .children
                    .iter()
                    .rev()
                    .filter_map(|child| self.children.get(child));
                let next = left.find(|sa| sa.sending && alike(&sa.outbound, &installed.outbound));
                if let Some(next) = next {
                    group.policy.install(next.outbound.clone());
                }
            }
            group.policy.acquire_done();
            // `dpd_action = trap` and the like: traffic may ask for a new SA. What is configured is trapped and not what
            // was negotiated: peers could narrow that differently each time, without end.
            let configured = self.configured.get(group.order).cloned();
            if let Some(configured) = configured
                && !event.replaced
                && event.then != Then::Clear
            {
                self.hold(&configured, true);
            }
        }
        self.drop_if_empty(installed.group);
        self.publish();
    }

    /// Frees what has lingered long enough, and switches to what has waited long enough; when to come back.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        let due = self.handovers.iter().filter(|(until, _)| *until <= now);
        let due: Vec<_> = due.map(|(_, child)| *child).collect();
        due.into_iter().for_each(|child| self.switch_to(child));
        let sad = self.database.sad();
        self.lingering.retain(|(until, spi)| {
            let keep = *until > now;
            if !keep {
                sad.remove(*spi);
            }
            keep
        });
        let lingering = self.lingering.iter().map(|(until, _)| *until);
        lingering
            .chain(self.handovers.iter().map(|(until, _)| *until))
            .min()
    }

    pub fn peer_moved(&mut self, children: &[ChildSaId], local: SocketAddr, remote: SocketAddr) {
        self.core_stale = true;
        for installed in children.iter().filter_map(|child| self.children.get(child)) {
            for common in [&installed.inbound.common, &installed.outbound.common] {
                let udp_encap = common.path().udp_encap;
                common.set_path(Path {
                    local,
                    remote,
                    udp_encap,
                });
            }
        }
    }

    /// The child SA that an event of the data plane is about. Two peers may choose the same outbound SPI, and one that
    /// is an inbound SPI of ours.
    pub fn child_of(
        &self,
        direction: SaDirection,
        policy: PolicyId,
        spi: u32,
    ) -> Option<(ChildSaId, &Installed)> {
        let child = match direction {
            SaDirection::Inbound => *self.by_spi.get(&spi)?,
            SaDirection::Outbound => {
                let mut children = self.groups.get(&policy)?.children.iter().copied();
                children.find(|child| {
                    let installed = self.children.get(child);
                    installed.is_some_and(|sa| sa.outbound.common.spi == spi)
                })?
            }
        };
        Some((child, self.children.get(&child)?))
    }

    /// The inbound SAs of a policy's children.
    pub fn inbound_sas(&self, policy: PolicyId) -> Vec<Arc<InboundSa>> {
        let group = self.groups.get(&policy);
        let children = group.into_iter().flat_map(|group| &group.children);
        let installed = children.filter_map(|child| self.children.get(child));
        installed.map(|sa| Arc::clone(&sa.inbound)).collect()
    }

    /// Whether packets without an SA ask for one.
    pub fn asks(&self, policy: PolicyId) -> bool {
        self.groups.get(&policy).is_some_and(Group::asks)
    }

    pub fn child(&self, child: ChildSaId) -> Option<&Installed> {
        self.children.get(&child)
    }

    /// The connection, and the children that a packet of this DSCP asks for: its own first. The SA of the first that comes
    /// up carries the packets of the others too, so that none would ask for theirs.
    pub fn wanted(&self, policy: PolicyId, dscp: u8) -> Option<(&str, Vec<&str>)> {
        let group = self.groups.get(&policy)?;
        if !group.asks() {
            return None;
        }
        let configured = &group.configured;
        let family =
            || (self.configured.iter()).filter(|other| other.entry() == configured.entry());
        let own = family().find(|other| other.sa.dscp.contains(dscp));
        let own = own.unwrap_or(configured);
        let trapped = |other: &&ConfiguredPolicy| {
            other.kind == PolicyKind::Protect { trap: true } && other.child != own.child
        };
        let others = family().filter(trapped);
        let children = std::iter::once(own).chain(others);
        let names = children.map(|policy| policy.child.as_str()).collect();
        Some((&configured.connection, names))
    }

    /// Lets policies without an SA ask again: an acquire can get lost, or lead to nothing.
    pub fn renew_acquires(&self) {
        for group in self.groups.values() {
            // With PFP there is always another flow.
            let flows = !group.configured.sa.populate.is_none();
            if flows || group.policy.outbound_sa().is_none() {
                group.policy.acquire_done();
            }
        }
    }

    /// The group of an SA with these selectors: its own, or with PFP that of the policy, which holds the SAs of all
    /// flows.
    fn group_of(
        &mut self,
        configured: &ConfiguredPolicy,
        selectors: SelectorSet,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> PolicyId {
        let leader = self.leader(configured).clone();
        let whole = SelectorSet::from_ends(&leader.local, &leader.remote);
        match whole.filter(|set| !set.is_empty() && !leader.sa.populate.is_none()) {
            Some(whole) => self.group_for(&leader, whole, &leader.local, &leader.remote),
            None => self.group_for(&leader, selectors, local, remote),
        }
    }

    fn leader<'a>(&'a self, configured: &'a ConfiguredPolicy) -> &'a ConfiguredPolicy {
        let leader = order(&self.by_name, &configured.entry());
        self.configured.get(leader).unwrap_or(configured)
    }

    /// The group of these selectors, made if there is none.
    fn group_for(
        &mut self,
        configured: &ConfiguredPolicy,
        selectors: SelectorSet,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> PolicyId {
        let interface = configured.sa.if_ids.outbound;
        let key = (configured.entry(), interface, selectors.clone());
        if let Some(id) = self.by_selectors.get(&key) {
            return *id;
        }
        let id = PolicyId(self.next_policy);
        self.next_policy = self.next_policy.wrapping_add(1);
        let name = format!("{}/{}", configured.connection, configured.child);
        let group = Group {
            policy: Arc::new(Policy::new(id, name)),
            configured: configured.clone(),
            selectors,
            ends: (local.to_vec(), remote.to_vec()),
            children: Vec::new(),
            hold: false,
            trap: false,
            order: order(&self.by_name, &key.0),
        };
        if interface == 0 {
            self.routes.push(group.routes(true));
        }
        self.shield_stale |= group.is_late();
        self.groups.insert(id, group);
        self.by_selectors.insert(key, id);
        self.stale = true;
        id
    }

    fn drop_if_empty(&mut self, id: PolicyId) {
        let empty = |group: &Group| !group.hold && group.children.is_empty();
        if !self.groups.get(&id).is_some_and(empty) {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            let interface = group.configured.sa.if_ids.outbound;
            if interface == 0 {
                self.routes.push(group.routes(false));
            }
            self.shield_stale |= group.is_late();
            let key = (group.configured.entry(), interface, group.selectors);
            self.by_selectors.remove(&key);
            self.stale = true;
        }
    }

    /// Publishes the SPD: in the order of the configuration, negotiated selectors before the wider ones that are held;
    /// SAs whose configuration is gone come last.
    fn publish(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.core_stale = true;
        let protect = |group: &Group| {
            let action = Action::Protect(group.policy.clone());
            let selectors = group.selectors.clone();
            let place = (group.order, group.hold, group.policy.id);
            let entry = SpdEntry {
                interface: group.configured.sa.if_ids.outbound,
                populate: group.configured.sa.populate,
                name: group.policy.name.as_str().into(),
                ..SpdEntry::new(selectors, action)
            };
            (place, entry)
        };
        let mut entries: Vec<_> = self.groups.values().map(protect).collect();
        for (index, configured) in self.configured.iter().enumerate() {
            let action = match configured.kind {
                PolicyKind::Bypass => Action::Bypass,
                PolicyKind::Discard => Action::Discard,
                PolicyKind::Protect { .. } => continue,
            };
            if let Some(selectors) = SelectorSet::from_ends(&configured.local, &configured.remote) {
                let place = (index, false, PolicyId(0));
                let name = format!("{}/{}", configured.connection, configured.child);
                let entry = SpdEntry {
                    interface: configured.sa.if_ids.outbound,
                    name: name.into(),
                    ..SpdEntry::new(selectors, action)
                };
                entries.push((place, entry));
            }
        }
        entries.sort_unstable_by_key(|(place, _)| *place);
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        self.database.publish_spd(Spd::new(entries));
    }
}

impl ConfiguredPolicy {
    fn name(&self) -> Name {
        (self.connection.clone(), self.child.clone())
    }

    /// The child whose entry of the SPD it is in.
    fn entry(&self) -> Name {
        (self.connection.clone(), self.leader.clone())
    }
}

impl Group {
    fn routes(&self, add: bool) -> RouteChange {
        RouteChange {
            add,
            bypass: false,
            local: ranges(&self.ends.0),
            remote: ranges(&self.ends.1),
        }
    }

    /// Whether a packet without an SA makes IKE negotiate one: with SAs there, it is another flow of theirs.
    fn asks(&self) -> bool {
        self.trap || !self.children.is_empty()
    }

    /// Whether an SA for the same packets is in use.
    fn sends_like(&self, sa: &OutboundSa) -> bool {
        let mut in_use = self.policy.outbound_sas().into_iter();
        in_use.any(|other| alike(&other, sa))
    }
}

/// Whether two SAs of one policy are for the same packets.
fn alike(a: &OutboundSa, b: &OutboundSa) -> bool {
    (&a.common.selectors, a.common.dscp) == (&b.common.selectors, b.common.dscp)
}

fn mode(mode: IkeMode) -> Mode {
    match mode {
        IkeMode::Tunnel => Mode::Tunnel,
        IkeMode::Transport => Mode::Transport,
    }
}

fn order(by_name: &HashMap<Name, usize>, name: &Name) -> usize {
    by_name.get(name).copied().unwrap_or(usize::MAX)
}

fn limits(event: &ChildSaInstalled) -> LifetimeLimits {
    let limit = |value: u64| (value != 0).then_some(value);
    LifetimeLimits {
        bytes_soft: limit(event.soft_bytes),
        bytes_hard: limit(event.hard_bytes),
        packets_soft: limit(event.soft_packets),
        packets_hard: limit(event.hard_packets),
        // IKE has timers for this and the others in time. The keys end in time also where it is late.
        time_hard_ms: limit(event.life_time.as_millis() as u64),
        ..LifetimeLimits::default()
    }
}

/// What IKE is asked for when a packet finds no SA. None for a flow whose protocol PFP takes and that hides it: in traffic
/// selectors that would be any protocol (RFC 7296 section 3.13.1).
pub fn demand(flow: &Flow, selector: &Selector) -> Option<Demand> {
    let protocol = match selector.protocol {
        NextLayer::Is(protocol) => Some(protocol),
        NextLayer::Any => None,
        NextLayer::Opaque => return None,
    };
    let end = |first, last, protocol: Option<u8>, ports: (u16, u16)| wire::TrafficSelector {
        protocol: protocol.unwrap_or(0),
        start_port: ports.0,
        end_port: ports.1,
        start: first,
        end: last,
    };
    let of_range = |range: &AddressRange, ports: &PortRange| {
        let ports = match *ports {
            PortRange::Any => (0, u16::MAX),
            PortRange::Opaque => (u16::MAX, 0),
            PortRange::Range(first, last) => (first, last),
        };
        end(range.first(), range.last(), protocol, ports)
    };
    let of_packet = |address, port: Option<u16>| {
        let ports = port.map_or((0, u16::MAX), |port| (port, port));
        end(address, address, flow.protocol, ports)
    };
    Some(Demand {
        packet: (
            of_packet(flow.local, flow.ports.map(|ports| ports.0)),
            of_packet(flow.remote, flow.ports.map(|ports| ports.1)),
        ),
        selectors: (
            of_range(&selector.local, &selector.local_ports),
            of_range(&selector.remote, &selector.remote_ports),
        ),
    })
}

/// A selector from the wire; None if it selects nothing.
fn selector(ts: &wire::TrafficSelector) -> Option<TrafficSelector> {
    Some(TrafficSelector {
        addresses: AddressRange::new(ts.start, ts.end)?,
        protocol: ts.protocol,
        ports: PortRange::from_wire(ts.start_port, ts.end_port)?,
    })
}

mod activity;
mod core;
mod dummies;
mod engines;
mod late;
mod routes;
#[cfg(test)]
mod tests;
