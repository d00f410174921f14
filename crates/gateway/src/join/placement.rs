//! The placement of child SAs: the engine or device that carries each SA, and the move of an SA while packets flow.
//!
//! The workers' engines share an SA's sequence numbers, so an SA moves between them as it is. The FPGA core takes its
//! own numbers. So a child moves into or out of the core with its next SA, which is negotiated at once.
//!
//! Adaptive children are with the CPU or with the GPU, each half as the balancer decides (`share`).

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
use crate::config::ShareLimits;
use crate::config::{EngineKind, SaOptions};
use crate::gpu::GpuLimits;
use crate::share::{Balancer, HalfMove, LoadSample, ShareReport};
use crate::worker::CoreHandle;
use esplanade_engines::ace::LaneOrders;

/// Most SA halves whose traffic is looked at in one period.
const LOOKS: usize = 4096;
/// Packets of this class and of higher ones wait for no batch. The class is that of DSCP CS5, and EF has it too.
const URGENT_CLASS: u8 = 5;

/// The place where a child's SAs are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineChoice {
    /// The FPGA core. The workers' first engine does what the core cannot do.
    Core,
    /// An engine of the workers, by its index.
    Worker(u8),
    /// The CPU or the GPU, as the load wants it.
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
    #[error(
        "this gateway has no engine {wanted:?} (it has {there}); `pool_threads` in the gateway section adds the pool, \
         a section `gpu` the GPU"
    )]
    NoEngine { wanted: String, there: String },
    #[error("no child that is protected is called {0:?}")]
    NoChild(String),
}

/// The FPGA core may have begun to use an SA and then refused it: neither it nor the CPU can carry the SA.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the FPGA core has not taken it: {0}")]
pub struct CoreFailed(String);

/// The FPGA core, as far as child SAs are installed in it.
pub trait ChildSaDevice: Debug {
    /// Installs both halves of a child SA, or neither. The error text says why.
    fn install(&self, outbound: Arc<OutboundSa>, inbound: Arc<InboundSa>) -> Result<(), String>;
}

impl ChildSaDevice for CoreHandle {
    fn install(&self, outbound: Arc<OutboundSa>, inbound: Arc<InboundSa>) -> Result<(), String> {
        Self::install(self, outbound, inbound)
    }
}

/// The engines of the gateway, and what was ordered beside the configuration.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The workers' engines, in their order.
    engines: Vec<&'static str>,
    /// The limits of the GPU.
    gpu: GpuLimits,
    core: Option<Box<dyn ChildSaDevice>>,
    /// The adaptive cryptographic engine, and the children that have asked it for a lane.
    ace: Option<Box<dyn LaneOrders>>,
    with_lane: HashMap<ChildSaId, Transform>,
    /// Orders of the administrator. They hold until the gateway ends.
    ordered: HashMap<ChildName, EngineChoice>,
    /// SAs whose successors are to be with another engine.
    renewals: Vec<ChildSaId>,
    /// Decides about the halves of adaptive children. `None` means that there is no GPU.
    balancer: Option<Balancer<HalfId>>,
    /// Children are adaptive unless something else is said of them.
    is_adaptive: bool,
}

impl Placement {
    pub fn set_engines(&mut self, engines: Vec<&'static str>) {
        self.engines = engines;
    }

    /// Tells whether packets of one SA can overtake those of another: one engine gives them back in their order.
    pub fn can_overtake(&self) -> bool {
        self.engines.len() > 1
    }

    /// Sets what the GPU carries. Halves that it carries no more go to the CPU, and others may go to it.
    pub fn set_gpu_limits(
        &mut self,
        limits: GpuLimits,
        database: &Database,
        policies: &PolicyBook,
        child_sas: &mut ChildSas,
    ) {
        if self.gpu == limits {
            return;
        }
        self.gpu = limits;
        let gpu = self.index_of(EngineKind::Gpu.name());
        let concerned = child_sas.iter().filter_map(|(id, child)| {
            let choice = match child.is_adaptive {
                true => Some(EngineChoice::Adaptive),
                false => self.wanted(policies.configured_child(&child.name)?),
            };
            let is_gpu = |choice: &EngineChoice| {
                *choice == EngineChoice::Adaptive || gpu.map(EngineChoice::Worker) == Some(*choice)
            };
            let choice = choice.filter(is_gpu)?;
            matches!(child.carrier, Carrier::Cpu(_)).then_some((id, choice))
        });
        for (id, choice) in concerned.collect::<Vec<_>>() {
            self.settle(database, child_sas, id, choice);
        }
    }

    pub fn set_ace(&mut self, ace: Option<Box<dyn LaneOrders>>) {
        self.ace = ace;
    }

    /// Sets the limits of the GPU's share, if there is a GPU, and whether children are adaptive unless something else is
    /// said of them.
    pub fn set_share(&mut self, limits: Option<ShareLimits>, is_adaptive: bool) {
        self.balancer = limits.map(Balancer::new);
        self.is_adaptive = is_adaptive;
    }

    pub fn set_core(&mut self, core: Option<Box<dyn ChildSaDevice>>) {
        self.core = core;
    }

    pub fn has_core(&self) -> bool {
        self.core.is_some()
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
        if self.core.is_some() && name == EngineKind::Fpga.name() {
            return Some(EngineChoice::Core);
        }
        if self.balancer.is_some() && name == EngineKind::Adaptive.name() {
            return Some(EngineChoice::Adaptive);
        }
        self.index_of(name).map(EngineChoice::Worker)
    }

    fn index_of(&self, name: &str) -> Option<u8> {
        let found = self.engines.iter().position(|known| *known == name)?;
        found.try_into().ok()
    }

    /// Returns the engine of children without an order or a configured engine.
    fn usual(&self) -> EngineChoice {
        match self.core {
            Some(_) => EngineChoice::Core,
            None if self.is_adaptive => EngineChoice::Adaptive,
            None => EngineChoice::Worker(0),
        }
    }

    /// Offers both halves of a new child SA to the FPGA core, if that is the choice. The CPU does what the core cannot
    /// do.
    pub fn offload(
        &self,
        configured: &ConfiguredPolicy,
        choice: EngineChoice,
        (inbound, outbound): &(Arc<InboundSa>, Arc<OutboundSa>),
    ) -> Result<Carrier, CoreFailed> {
        let wanted = self.core.as_ref();
        let Some(core) = wanted.filter(|_| choice == EngineChoice::Core) else {
            return Ok(Carrier::Cpu(None));
        };
        let taken = match unfit(&configured.sa) {
            Some(what) => Err(format!("the FPGA core cannot do {what}")),
            None => core.install(outbound.clone(), inbound.clone()),
        };
        match taken {
            Ok(()) => Ok(Carrier::Fpga),
            Err(why) if outbound.sequence.is_given_away() => Err(CoreFailed(why)),
            Err(why) => {
                tracing::warn!(
                    connection = configured.connection,
                    child = configured.child,
                    "the CPU carries the child SA: {why}"
                );
                Ok(Carrier::Cpu(Some(why)))
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
            EngineChoice::Core => return,
            EngineChoice::Worker(index) => self.able(index, child),
            EngineChoice::Adaptive => self.adapt(id, AdaptedFrom::Replaced(replaces), child),
        };
        self.settle_lane(id, [sealing, opening], child);
        child.is_adaptive = choice == EngineChoice::Adaptive;
        child.outbound.common.placement.begin(sealing);
        place(database, &child.inbound.common, opening);
    }

    /// Lets the last packets that come in for an SA that is gone go where those of its heir go, because they may come
    /// between those.
    pub fn linger(&self, database: &Database, gone: &InstalledChild, heir: &InstalledChild) {
        let by_engines = |child: &InstalledChild| matches!(child.carrier, Carrier::Cpu(_));
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
        self.give_lane_back(id);
    }

    /// Asks the adaptive cryptographic engine for a lane if it carries a half of the child. An SA begins with this, so
    /// that its lane is loaded before its packets come.
    fn settle_lane(&mut self, id: ChildSaId, engines: [u8; 2], child: &InstalledChild) {
        let index = self.index_of(EngineKind::Ace.name());
        let is_with_ace = index.is_some_and(|index| engines.contains(&index));
        let wanted = is_with_ace.then(|| child.outbound.common.transform());
        if self.with_lane.get(&id) == wanted.as_ref() {
            return;
        }
        self.give_lane_back(id);
        if let Some((ace, transform)) = self.ace.as_ref().zip(wanted) {
            ace.request(transform);
            self.with_lane.insert(id, transform);
        }
    }

    fn give_lane_back(&mut self, id: ChildSaId) {
        if let Some((ace, transform)) = self.ace.as_ref().zip(self.with_lane.remove(&id)) {
            ace.release(transform);
        }
    }

    /// Returns the engines that seal and open for a child that is to be with this one. The CPU has all transforms, a GPU
    /// some of them, and some for one direction only.
    fn able(&self, index: u8, child: &InstalledChild) -> [u8; 2] {
        let cpu = self.index_of(EngineKind::Cpu.name());
        let able = |half: &SaCommon, direction| match cpu {
            Some(cpu) if self.refusal(index, half, direction).is_some() => cpu,
            _ => index,
        };
        [
            able(&child.outbound.common, Direction::Seal),
            able(&child.inbound.common, Direction::Open),
        ]
    }

    /// Returns why an engine cannot carry a half of an SA, or `None` if it can.
    fn refusal(&self, index: u8, half: &SaCommon, direction: Direction) -> Option<String> {
        let transform = half.transform();
        match (self.engines.get(usize::from(index))?, &self.ace) {
            (name, _) if *name == EngineKind::Gpu.name() => self.gpu.refusal(half, direction),
            (name, Some(ace)) if *name == EngineKind::Ace.name() && !ace.carries(transform) => {
                Some(format!("the library has no lane for {transform}"))
            }
            _ => None,
        }
    }

    /// Gives the halves that the GPU may carry to the balancer. Returns the engines that seal and open now.
    fn adapt(&mut self, id: ChildSaId, from: AdaptedFrom, child: &InstalledChild) -> [u8; 2] {
        let [cpu, gpu] = self.shared();
        let limits = &self.gpu;
        let Some(balancer) = &mut self.balancer else {
            return [cpu; 2];
        };
        HalfId::both(id).map(|half| {
            let sa = half.of(child);
            if is_urgent(sa) || limits.refusal(sa, half.direction()).is_some() {
                balancer.remove(half);
                return cpu;
            }
            let on_gpu = match from {
                AdaptedFrom::Replaced(replaced) => {
                    balancer.add(half, replaced.map(|child| HalfId { child, ..half }))
                }
                AdaptedFrom::ItsPlace => balancer.adopt(half, sa.placement.get().engine == gpu),
            };
            if on_gpu { gpu } else { cpu }
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
            EngineChoice::Core => return,
            EngineChoice::Worker(index) => self.able(index, child),
            EngineChoice::Adaptive => self.adapt(id, AdaptedFrom::ItsPlace, child),
        };
        self.settle_lane(id, [sealing, opening], child);
        place(database, &child.outbound.common, sealing);
        place(database, &child.inbound.common, opening);
    }

    /// Returns the engines between which adaptive children move.
    fn shared(&self) -> [u8; 2] {
        [EngineKind::Cpu, EngineKind::Gpu].map(|kind| self.index_of(kind.name()).unwrap_or(0))
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
        let [cpu, gpu] = self.shared();
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
        for HalfMove { half, to_gpu } in balancer.look(sample, now) {
            if let Some(child) = child_sas.get(half.child) {
                let (spi, index) = (half.of(child).spi, if to_gpu { gpu } else { cpu });
                tracing::debug!(child = child.name.1, spi, to_gpu, "a half of an SA moves");
                place(database, half.of(child), index);
            }
        }
        match (before, balancer.on_gpu()) {
            (0, 1..) => {
                let ShareReport {
                    percent,
                    busy_percent,
                    ..
                } = balancer.report();
                tracing::info!(percent, busy_percent, "the GPU carries a share of the load");
            }
            (1.., 0) => {
                let p99 = balancer.report().p99;
                tracing::info!(?p99, "the CPU carries the whole load");
            }
            _ => {}
        }
    }

    /// Reports the GPU's share. Returns `None` if there is no adaptive child.
    pub fn share(&self) -> Option<ShareReport> {
        let balancer = self.balancer.as_ref();
        let balancer = balancer.filter(|balancer| !balancer.is_empty());
        balancer.map(Balancer::report)
    }

    /// Returns the engines of an adaptive child. Returns `None` for other children.
    pub fn adaptive_engines(&self, child: &InstalledChild) -> Option<AdaptiveEngines> {
        let of = |half: &SaCommon| {
            let index = usize::from(half.placement.get().engine);
            self.engines.get(index).copied()
        };
        child.is_adaptive.then_some(())?;
        Some(AdaptiveEngines {
            outbound: of(&child.outbound.common)?,
            inbound: of(&child.inbound.common)?,
        })
    }

    /// Follows a new configuration. Orders for a child stay as long as the child is configured or up.
    pub fn follow(&mut self, database: &Database, policies: &PolicyBook, child_sas: &mut ChildSas) {
        let up: HashSet<_> = child_sas.iter().map(|(_, child)| &child.name).collect();
        let is_known =
            |name: &ChildName| policies.configured_child(name).is_some() || up.contains(name);
        self.ordered.retain(|name, _| is_known(name));
        let choices = child_sas.iter().filter_map(|(id, child)| {
            let choice = self.choice(policies.configured_child(&child.name)?);
            // The core would refuse the successor too.
            let refused = matches!(child.carrier, Carrier::Cpu(Some(_)));
            (choice != EngineChoice::Core || !refused).then_some((id, choice))
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
                there: self.all_names(),
            });
        };
        let is_meant = |name: &ChildName| {
            name.1 == child && connection.is_none_or(|connection| name.0 == connection)
        };
        let protects = |policy: &&ConfiguredPolicy| {
            matches!(policy.kind, PolicyKind::Protect { .. }) && is_meant(&policy.name())
        };
        let up = child_sas.iter().filter(|(_, child)| is_meant(&child.name));
        let (up, of_up): (Vec<_>, Vec<_>) = up.map(|(id, child)| (id, child.name.clone())).unzip();
        let configured = policies.configured().iter().filter(protects);
        let names = configured.map(ConfiguredPolicy::name).chain(of_up);
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
            (EngineChoice::Core, Carrier::Fpga) => true,
            (EngineChoice::Adaptive, Carrier::Cpu(_)) if child.is_adaptive => true,
            (EngineChoice::Worker(_) | EngineChoice::Adaptive, Carrier::Cpu(_)) => {
                // The CPU is the choice now, whatever the core has said of the SA.
                child.carrier = Carrier::Cpu(None);
                child.is_adaptive = choice == EngineChoice::Adaptive;
                if !child.is_adaptive {
                    self.forget(id);
                }
                self.settle(database, child_sas, id, choice);
                true
            }
            (EngineChoice::Core, Carrier::Cpu(_)) | (_, Carrier::Fpga) => {
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
        if child.carrier == Carrier::Fpga {
            return Some(EngineKind::Fpga.name());
        }
        let index = child.outbound.common.placement.get().engine;
        let several = self.engines.len() > 1 || self.core.is_some();
        let name = self.engines.get(usize::from(index)).copied();
        name.filter(|_| several)
    }

    /// Returns the engine that a half of a child SA is with, or `None` if there is only one engine.
    pub fn engine_of_half(
        &self,
        child: &InstalledChild,
        direction: SaDirection,
    ) -> Option<&'static str> {
        let half = match direction {
            SaDirection::Inbound => &child.inbound.common,
            SaDirection::Outbound => &child.outbound.common,
        };
        let usual = self.engine_of(child)?;
        let index = usize::from(half.placement.get().engine);
        match child.carrier {
            Carrier::Fpga => Some(usual),
            Carrier::Cpu(_) => self.engines.get(index).copied(),
        }
    }

    /// Returns why a child SA, or a half of it, is not with the engine that it is to be with.
    pub fn engine_reason(
        &self,
        child: &InstalledChild,
        configured: Option<&ConfiguredPolicy>,
    ) -> Option<String> {
        let Carrier::Cpu(of_core) = &child.carrier else {
            return None;
        };
        if of_core.is_some() {
            return of_core.clone();
        }
        let wanted = match child.is_adaptive {
            true => self.index_of(EngineKind::Gpu.name()),
            false => match self.wanted(configured?)? {
                EngineChoice::Worker(index) => Some(index),
                _ => None,
            },
        };
        let wanted = wanted?;
        let of = |half: &SaCommon, direction| match child.is_adaptive && is_urgent(half) {
            true => Some("packets of its class wait for no batch of the GPU".to_owned()),
            false => self.refusal(wanted, half, direction),
        };
        let sealing = of(&child.outbound.common, Direction::Seal);
        let opening = of(&child.inbound.common, Direction::Open);
        let is_same = sealing == opening;
        let reasons = sealing.into_iter().chain(opening.filter(|_| !is_same));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        (!reasons.is_empty()).then_some(reasons)
    }

    fn all_names(&self) -> String {
        let core = self.core.as_ref().map(|_| EngineKind::Fpga.name());
        let balancer = self.balancer.as_ref();
        let adaptive = balancer.map(|_| EngineKind::Adaptive.name());
        let names = self.engines.iter().copied().chain(core).chain(adaptive);
        let names: Vec<_> = names.collect();
        names.join(", ")
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

/// Returns a demand of the child that the FPGA core cannot meet and that the child's SAs do not show.
fn unfit(options: &SaOptions) -> Option<&'static str> {
    if !options.populate.is_none() {
        return Some("an SA for each flow");
    }
    (options.dummies > 0).then_some("dummy packets")
}
