//! The placement of child SAs: the engine or device that carries each SA, and the move of an SA while packets flow.
//!
//! The workers' engines share an SA's sequence numbers, so an SA moves between them as it is. A device in front of them
//! takes numbers of its own. So a child moves into or out of the device with its next SA, which is negotiated at once.
//!
//! Engines are known by their indices in [`Engines`]. Adaptive children are with the CPU or with the engine that shares
//! its load, each half as the balancer decides (`share`).

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::{Direction, Transform};
use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::Database;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaCommon, SaDirection};

use super::child_sas::{Carrier, ChildSas, InstalledChild};
use super::policy::{ChildName, ConfiguredPolicy, PolicyKind};
use super::policy_book::PolicyBook;
use crate::config::{EngineKind, GatewayConfig};
use crate::share::{Balancer, HalfMove, LoadSample, ShareReport};
use esplanade_engines::{EngineHost, Engines};

/// Most SA halves whose traffic is looked at in one period.
const LOOKS: usize = 4096;
/// Packets of this class and of higher ones wait for no batch. The class is that of DSCP CS5, and EF has it too.
const URGENT_CLASS: u8 = 5;

/// The place where a child's SAs are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineChoice {
    /// The device in front. The workers' first engine does what the device cannot do.
    Device,
    /// An engine of the workers, by its index.
    Worker(u8),
    /// The CPU or the engine that shares its load, as the load wants it.
    Adaptive,
}

/// A half of a child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HalfId {
    child: ChildSaId,
    is_outbound: bool,
}

/// The beginning of a child SA as an adaptive one.
#[derive(Clone, Copy, Debug)]
enum AdaptedFrom {
    /// The SA is new. It may replace another.
    Replaced(Option<ChildSaId>),
    /// The SA is up, and stays where it is.
    ItsPlace,
}

impl HalfId {
    fn both(child: ChildSaId) -> [Self; 2] {
        [true, false].map(|is_outbound| Self { child, is_outbound })
    }

    fn of(self, child: &InstalledChild) -> &SaCommon {
        match self.is_outbound {
            true => &child.outbound.common,
            false => &child.inbound.common,
        }
    }

    fn direction(self) -> Direction {
        match self.is_outbound {
            true => Direction::Seal,
            false => Direction::Open,
        }
    }
}

/// The engines of the halves of an adaptive child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveEngines {
    pub outbound: &'static str,
    pub inbound: &'static str,
}

/// The numbers of established SAs that follow an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// SAs that the ordered engine carries now.
    pub at_once: usize,
    /// SAs that are renewed. The ordered engine will carry their successors.
    pub renewed: usize,
}

/// The reason why a child was not moved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    #[error("this gateway has no engine {wanted:?} (it has {there}){help}")]
    NoEngine {
        wanted: String,
        there: String,
        help: String,
    },
    #[error("no child that is protected is called {0:?}")]
    NoChild(String),
}

/// The device in front may have begun to use an SA and then refused it: neither it nor the CPU can carry the SA.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device} has not taken it: {why}")]
pub struct DeviceFailed {
    device: String,
    why: String,
}

/// The engines of the gateway, and what was ordered beside the configuration.
#[derive(Debug, Default)]
pub(super) struct Placement {
    engines: Engines,
    /// The versions of the refusals of the workers' engines, as they were seen last.
    versions: Vec<u64>,
    /// The engines that know of a child, and the transform that they were told.
    told: HashMap<ChildSaId, (Vec<u8>, Transform)>,
    /// Orders of the administrator. They hold until the gateway ends.
    ordered: HashMap<ChildName, EngineChoice>,
    /// SAs whose successors are to be with another engine.
    renewals: Vec<ChildSaId>,
    /// Decides about the halves of adaptive children. `None` means that no engine shares the CPU's load.
    balancer: Option<Balancer<HalfId>>,
}

impl Placement {
    /// Sets the engines that there are from now on.
    pub fn set_engines(&mut self, engines: Engines) {
        self.versions = versions(&engines);
        let shared = engines.shared();
        self.balancer = shared.map(|(_, host)| Balancer::new(host.limits()));
        self.engines = engines;
    }

    /// Tells whether packets of one SA can overtake those of another: one engine gives them back in their order.
    pub fn can_overtake(&self) -> bool {
        self.engines.workers().len() > 1 || self.has_device()
    }

    /// Places SAs anew where an engine refuses other SAs than before. What it carries no more goes to the CPU.
    pub fn follow_refusals(
        &mut self,
        database: &Database,
        policies: &PolicyBook,
        child_sas: &mut ChildSas,
    ) {
        let now = versions(&self.engines);
        let before = std::mem::replace(&mut self.versions, now);
        let changed = before.iter().zip(&self.versions).map(|(a, b)| a != b);
        let changed: Vec<bool> = changed.collect();
        if !changed.contains(&true) {
            return;
        }
        let is_changed = |index: u8| changed.get(usize::from(index)) == Some(&true);
        let shared = self.shared();
        let concerned = child_sas.iter().filter_map(|(id, child)| {
            let choice = match child.is_adaptive {
                true => Some(EngineChoice::Adaptive),
                false => self.wanted(policies.configured_child(&child.name)?),
            };
            let choice = choice.filter(|choice| match choice {
                EngineChoice::Device => false,
                EngineChoice::Worker(index) => is_changed(*index),
                EngineChoice::Adaptive => is_changed(shared),
            })?;
            matches!(child.carrier, Carrier::Engine(_)).then_some((id, choice))
        });
        for (id, choice) in concerned.collect::<Vec<_>>() {
            self.settle(database, child_sas, id, choice);
        }
    }

    pub fn has_device(&self) -> bool {
        self.engines.device().is_some()
    }

    /// Returns the place for the next SA of a child: as ordered, else as configured, else the usual engine.
    pub fn choice(&self, configured: &ConfiguredPolicy) -> EngineChoice {
        self.wanted(configured).unwrap_or_else(|| {
            tracing::warn!(
                connection = configured.connection,
                child = configured.child,
                "the engine {} is there from the next start on",
                configured.sa.engine.map_or("-", EngineKind::name)
            );
            self.usual()
        })
    }

    /// Returns the place that a child is to have. Returns `None` if the gateway has no such engine.
    fn wanted(&self, configured: &ConfiguredPolicy) -> Option<EngineChoice> {
        if let Some(ordered) = self.ordered.get(&configured.name()) {
            return Some(*ordered);
        }
        match configured.sa.engine {
            Some(kind) => self.find(kind.name()),
            None => Some(self.usual()),
        }
    }

    fn find(&self, name: &str) -> Option<EngineChoice> {
        if self
            .engines
            .device()
            .is_some_and(|device| device.name() == name)
        {
            return Some(EngineChoice::Device);
        }
        if self.engines.share_name() == Some(name) {
            return Some(EngineChoice::Adaptive);
        }
        self.engines.index_of(name).map(EngineChoice::Worker)
    }

    /// Returns the engine of children without an order or a configured engine.
    fn usual(&self) -> EngineChoice {
        match self.engines.device() {
            Some(_) => EngineChoice::Device,
            None if self.engines.shares_usually() => EngineChoice::Adaptive,
            None => EngineChoice::Worker(0),
        }
    }

    /// Offers both halves of a new child SA to the device in front, if that is the choice. The CPU does what the device
    /// cannot do.
    pub fn offload(
        &self,
        configured: &ConfiguredPolicy,
        choice: EngineChoice,
        (inbound, outbound): &(Arc<InboundSa>, Arc<OutboundSa>),
    ) -> Result<Carrier, DeviceFailed> {
        let wanted = self
            .engines
            .device()
            .filter(|_| choice == EngineChoice::Device);
        let Some((host, device)) = wanted.and_then(|host| Some((host, host.device()?))) else {
            return Ok(Carrier::Engine(None));
        };
        match device.install(outbound.clone(), inbound.clone(), &configured.sa) {
            Ok(()) => Ok(Carrier::Device),
            Err(why) if outbound.sequence.is_given_away() => Err(DeviceFailed {
                device: host.title(),
                why,
            }),
            Err(why) => {
                tracing::warn!(
                    connection = configured.connection,
                    child = configured.child,
                    "the CPU carries the child SA: {why}"
                );
                Ok(Carrier::Engine(Some(why)))
            }
        }
    }

    /// Assigns a new child SA to an engine, before packets can come for the SA. Halves of an adaptive child begin where
    /// those of the SA are that they replace.
    pub fn begin(
        &mut self,
        database: &Database,
        (id, replaces): (ChildSaId, Option<ChildSaId>),
        child: &mut InstalledChild,
        choice: EngineChoice,
    ) {
        let [sealing, opening] = match choice {
            EngineChoice::Device => return,
            EngineChoice::Worker(index) => self.able(index, child),
            EngineChoice::Adaptive => self.adapt(id, AdaptedFrom::Replaced(replaces), child),
        };
        self.tell(id, [sealing, opening], child);
        child.is_adaptive = choice == EngineChoice::Adaptive;
        child.outbound.common.placement.begin(sealing);
        place(database, &child.inbound.common, opening);
    }

    /// Lets the last packets that come in for an SA that is gone go where those of its heir go, because they may come
    /// between those.
    pub fn linger(&self, database: &Database, gone: &InstalledChild, heir: &InstalledChild) {
        let by_engines = |child: &InstalledChild| matches!(child.carrier, Carrier::Engine(_));
        if by_engines(gone) && by_engines(heir) {
            let index = heir.inbound.common.placement.get().engine;
            let [_, opening] = self.able(index, gone);
            place(database, &gone.inbound.common, opening);
        }
    }

    /// Forgets a child SA that is gone.
    pub fn forget(&mut self, id: ChildSaId) {
        if let Some(balancer) = &mut self.balancer {
            for half in HalfId::both(id) {
                balancer.remove(half);
            }
        }
        self.tell_gone(id);
    }

    /// Tells engines which children they have, before the first packets come. The fallback needs no word.
    fn tell(&mut self, id: ChildSaId, engines: [u8; 2], child: &InstalledChild) {
        let fallback = self.engines.fallback();
        let mut with = Vec::from(engines);
        with.dedup();
        with.retain(|index| *index != fallback);
        if self.told.get(&id).map_or(&[][..], |(told, _)| told) == with {
            return;
        }
        self.tell_gone(id);
        if with.is_empty() {
            return;
        }
        let transform = child.outbound.common.transform();
        for host in with.iter().filter_map(|index| self.engines.worker(*index)) {
            host.came(transform);
        }
        self.told.insert(id, (with, transform));
    }

    fn tell_gone(&mut self, id: ChildSaId) {
        if let Some((told, transform)) = self.told.remove(&id) {
            for host in told.iter().filter_map(|index| self.engines.worker(*index)) {
                host.gone(transform);
            }
        }
    }

    /// Returns the engines that seal and open for a child that is to be with this one. The fallback has all transforms,
    /// others some of them, or some for one direction only.
    fn able(&self, index: u8, child: &InstalledChild) -> [u8; 2] {
        let able = |half: &SaCommon, direction| match self.refusal(index, half, direction) {
            Some(_) => self.engines.fallback(),
            None => index,
        };
        [
            able(&child.outbound.common, Direction::Seal),
            able(&child.inbound.common, Direction::Open),
        ]
    }

    /// Returns why an engine cannot carry a half of an SA, or `None` if it can.
    fn refusal(&self, index: u8, half: &SaCommon, direction: Direction) -> Option<String> {
        self.engines.worker(index)?.refusal(half, direction)
    }

    /// Gives the halves that may move to the balancer. Returns the engines that seal and open now.
    fn adapt(&mut self, id: ChildSaId, from: AdaptedFrom, child: &InstalledChild) -> [u8; 2] {
        let (cpu, other) = (self.engines.fallback(), self.shared());
        let Some(balancer) = &mut self.balancer else {
            return [cpu; 2];
        };
        let host = self.engines.worker(other);
        HalfId::both(id).map(|half| {
            let sa = half.of(child);
            let refusal = host.and_then(|host| host.refusal(sa, half.direction()));
            if is_urgent(sa) || refusal.is_some() {
                balancer.remove(half);
                return cpu;
            }
            let on_other = match from {
                AdaptedFrom::Replaced(replaced) => {
                    balancer.add(half, replaced.map(|child| HalfId { child, ..half }))
                }
                AdaptedFrom::ItsPlace => balancer.adopt(half, sa.placement.get().engine == other),
            };
            if on_other { other } else { cpu }
        })
    }

    /// Puts the halves of an SA that is up where they are to be.
    fn settle(
        &mut self,
        database: &Database,
        child_sas: &ChildSas,
        id: ChildSaId,
        choice: EngineChoice,
    ) {
        let Some(child) = child_sas.get(id) else {
            return;
        };
        let [sealing, opening] = match choice {
            EngineChoice::Device => return,
            EngineChoice::Worker(index) => self.able(index, child),
            EngineChoice::Adaptive => self.adapt(id, AdaptedFrom::ItsPlace, child),
        };
        self.tell(id, [sealing, opening], child);
        place(database, &child.outbound.common, sealing);
        place(database, &child.inbound.common, opening);
    }

    /// Returns the engine that shares the CPU's load.
    fn shared(&self) -> u8 {
        let shared = self.engines.shared().map(|(index, _)| index);
        shared.unwrap_or_else(|| self.engines.fallback())
    }

    /// Tells whether there are halves that move with the load.
    pub fn balances(&self) -> bool {
        let balancer = self.balancer.as_ref();
        balancer.is_some_and(|balancer| !balancer.is_empty())
    }

    /// Moves halves of adaptive children as the load wants it. `now` is the time since any fixed moment.
    pub fn balance(
        &mut self,
        database: &Database,
        child_sas: &ChildSas,
        sample: &LoadSample,
        now: Duration,
    ) {
        let (cpu, other) = (self.engines.fallback(), self.shared());
        let Some(balancer) = &mut self.balancer else {
            return;
        };
        for half in balancer.next_halves(LOOKS) {
            if let Some(child) = child_sas.get(half.child) {
                let lifetime = &half.of(child).lifetime;
                balancer.measure(half, lifetime.packets(), lifetime.bytes(), now);
            }
        }
        let before = balancer.on_gpu();
        let moves = balancer.look(sample, now);
        let (after, report) = (balancer.on_gpu(), balancer.report());
        for HalfMove { half, to_gpu } in moves {
            if let Some(child) = child_sas.get(half.child) {
                let (spi, index) = (half.of(child).spi, if to_gpu { other } else { cpu });
                tracing::debug!(child = child.name.1, spi, to_gpu, "a half of an SA moves");
                let mut engines = child.engines();
                engines[usize::from(!half.is_outbound)] = index;
                self.tell(half.child, engines, child);
                place(database, half.of(child), index);
            }
        }
        match (before, after) {
            (0, 1..) => {
                let ShareReport {
                    percent,
                    busy_percent,
                    ..
                } = report;
                let host = self.engines.worker(other).map(EngineHost::title);
                let host = host.unwrap_or_default();
                tracing::info!(percent, busy_percent, "{host} carries a share of the load");
            }
            (1.., 0) => {
                let p99 = report.p99;
                tracing::info!(?p99, "the CPU carries the whole load");
            }
            _ => {}
        }
    }

    /// Reports the share of the engine that shares the CPU's load. Returns `None` if there is no adaptive child.
    pub fn share(&self) -> Option<ShareReport> {
        let balancer = self.balancer.as_ref();
        let balancer = balancer.filter(|balancer| !balancer.is_empty());
        balancer.map(Balancer::report)
    }

    /// Returns the engines of an adaptive child. Returns `None` for other children.
    pub fn adaptive_engines(&self, child: &InstalledChild) -> Option<AdaptiveEngines> {
        child.is_adaptive.then_some(())?;
        let names = child.engines().map(|index| self.name_of(index));
        let [outbound, inbound] = names;
        Some(AdaptiveEngines {
            outbound: outbound?,
            inbound: inbound?,
        })
    }

    /// Follows a new configuration. Orders for a child stay as long as the child is configured or up.
    pub fn follow(&mut self, database: &Database, policies: &PolicyBook, child_sas: &mut ChildSas) {
        let up: HashSet<_> = child_sas.iter().map(|(_, child)| &*child.name).collect();
        let is_known =
            |name: &ChildName| policies.configured_child(name).is_some() || up.contains(name);
        self.ordered.retain(|name, _| is_known(name));
        let choices = child_sas.iter().filter_map(|(id, child)| {
            let choice = self.choice(policies.configured_child(&child.name)?);
            // The device would refuse the successor too.
            let refused = matches!(child.carrier, Carrier::Engine(Some(_)));
            (choice != EngineChoice::Device || !refused).then_some((id, choice))
        });
        for (id, choice) in choices.collect::<Vec<_>>() {
            self.move_to(database, child_sas, id, choice);
        }
    }

    /// Moves the children of this name, in this connection or in any, to an engine, with the SAs that replace theirs.
    pub fn order(
        &mut self,
        database: &Database,
        policies: &PolicyBook,
        child_sas: &mut ChildSas,
        (connection, child): (Option<&str>, &str),
        engine: &str,
    ) -> Result<Moved, NotMoved> {
        let Some(choice) = self.find(engine) else {
            return Err(NotMoved::NoEngine {
                wanted: engine.to_owned(),
                there: self.engines.names().join(", "),
                help: how_to_add(engine),
            });
        };
        let is_meant = |name: &ChildName| {
            name.1 == child && connection.is_none_or(|connection| name.0 == connection)
        };
        let protects = |policy: &&ConfiguredPolicy| {
            matches!(policy.kind, PolicyKind::Protect { .. }) && is_meant(&policy.name())
        };
        let up = child_sas.iter().filter(|(_, child)| is_meant(&child.name));
        let (up, of_up): (Vec<_>, Vec<_>) = up
            .map(|(id, child)| (id, ChildName::clone(&child.name)))
            .unzip();
        let configured = policies.configured().iter().filter(protects);
        let names = configured.map(|policy| policy.name()).chain(of_up);
        let orders: HashMap<_, _> = names.map(|name| (name, choice)).collect();
        if orders.is_empty() {
            return Err(NotMoved::NoChild(child.to_owned()));
        }
        self.ordered.extend(orders);
        let mut moved = Moved::default();
        for id in up {
            match self.move_to(database, child_sas, id, choice) {
                true => moved.at_once += 1,
                false => moved.renewed += 1,
            }
        }
        Ok(moved)
    }

    /// Moves an SA that is up. Returns false if only the SA's successor can be there.
    fn move_to(
        &mut self,
        database: &Database,
        child_sas: &mut ChildSas,
        id: ChildSaId,
        choice: EngineChoice,
    ) -> bool {
        let Some(child) = child_sas.get_mut(id) else {
            return true;
        };
        match (choice, &child.carrier) {
            (EngineChoice::Device, Carrier::Device) => true,
            (EngineChoice::Adaptive, Carrier::Engine(_)) if child.is_adaptive => true,
            (EngineChoice::Worker(_) | EngineChoice::Adaptive, Carrier::Engine(_)) => {
                // The CPU is the choice now, whatever the device has said of the SA.
                child.carrier = Carrier::Engine(None);
                child.is_adaptive = choice == EngineChoice::Adaptive;
                if !child.is_adaptive {
                    self.forget(id);
                }
                self.settle(database, child_sas, id, choice);
                true
            }
            (EngineChoice::Device, Carrier::Engine(_)) | (_, Carrier::Device) => {
                self.renewals.push(id);
                false
            }
        }
    }

    /// Takes the SAs that are to be rekeyed since the last call, because their successors are to be with another
    /// engine.
    pub fn take_renewals(&mut self) -> Vec<ChildSaId> {
        std::mem::take(&mut self.renewals)
    }

    /// Returns the engine that a child SA is with, or `None` if there is only one engine.
    pub fn engine_of(&self, child: &InstalledChild) -> Option<&'static str> {
        if child.carrier == Carrier::Device {
            return self.engines.device().map(EngineHost::name);
        }
        let [outbound, _] = child.engines();
        let several = self.can_overtake();
        self.name_of(outbound).filter(|_| several)
    }

    /// Returns the engine that a half of a child SA is with, or `None` if there is only one engine.
    pub fn engine_of_half(
        &self,
        child: &InstalledChild,
        direction: SaDirection,
    ) -> Option<&'static str> {
        let usual = self.engine_of(child)?;
        let [outbound, inbound] = child.engines();
        let index = match direction {
            SaDirection::Inbound => inbound,
            SaDirection::Outbound => outbound,
        };
        match child.carrier {
            Carrier::Device => Some(usual),
            Carrier::Engine(_) => self.name_of(index),
        }
    }

    /// Returns why a child SA, or a half of it, is not with the engine that it is to be with.
    pub fn engine_reason(
        &self,
        child: &InstalledChild,
        configured: Option<&ConfiguredPolicy>,
    ) -> Option<String> {
        let Carrier::Engine(of_device) = &child.carrier else {
            return None;
        };
        if of_device.is_some() {
            return of_device.clone();
        }
        let wanted = match child.is_adaptive {
            true => self.shared(),
            false => match self.wanted(configured?)? {
                EngineChoice::Worker(index) => index,
                _ => return None,
            },
        };
        let of = |half: &SaCommon, direction| match child.is_adaptive && is_urgent(half) {
            true => {
                let host = self.engines.worker(wanted).map(EngineHost::title);
                let host = host.unwrap_or_default();
                Some(format!("packets of its class wait for no batch of {host}"))
            }
            false => self.refusal(wanted, half, direction),
        };
        let sealing = of(&child.outbound.common, Direction::Seal);
        let opening = of(&child.inbound.common, Direction::Open);
        let is_same = sealing == opening;
        let reasons = sealing.into_iter().chain(opening.filter(|_| !is_same));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        (!reasons.is_empty()).then_some(reasons)
    }

    fn name_of(&self, index: u8) -> Option<&'static str> {
        self.engines.worker(index).map(EngineHost::name)
    }

    /// Forgets the orders of the administrator.
    #[cfg(test)]
    pub fn forget_orders(&mut self) {
        self.ordered.clear();
    }
}

fn place(database: &Database, half: &SaCommon, index: u8) {
    if half.placement.get().engine != index {
        database.placements().place(&half.placement, index);
    }
}

/// Tells whether no packet of the SA may wait for a batch.
fn is_urgent(half: &SaCommon) -> bool {
    let of_dscp = |dscp: u8| dscp >> 3;
    match half.class {
        Some(class) => class >= URGENT_CLASS,
        None => half.dscp.iter().all(|dscp| of_dscp(dscp) >= URGENT_CLASS),
    }
}

fn versions(engines: &Engines) -> Vec<u64> {
    let hosts = engines.workers().iter();
    hosts.map(|host| host.refusals_version()).collect()
}

/// Says how a gateway gets an engine that it lacks.
fn how_to_add(name: &str) -> String {
    let lack = |kind: EngineKind| kind.lack(&GatewayConfig::default().engines());
    match EngineKind::named(name).and_then(lack) {
        Some(lack) => format!(": {}", lack.help),
        None => String::new(),
    }
}
