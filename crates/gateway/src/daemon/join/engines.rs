//! Which engine each child SA is with, and how it is moved while packets flow.
//!
//! The workers' engines share an SA's sequence numbers, and an SA moves between them as it is. The FPGA core takes its own
//! numbers: into it and out of it a child goes with its next SA, which is negotiated at once.

use std::collections::{HashMap, HashSet};

use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::Database;
use esplanade_ipsec::sa::SaCommon;

use super::{Carrier, ConfiguredPolicy, Installed, Join, Name, PolicyKind};
use crate::config::EngineKind;

/// The engines of the gateway, and what was ordered beside the configuration.
#[derive(Debug, Default)]
pub(super) struct Engines {
    /// In the workers' order.
    names: Vec<&'static str>,
    pub(super) has_core: bool,
    /// Until the gateway ends.
    pub(super) ordered: HashMap<Name, Place>,
    /// SAs whose successors are to be elsewhere.
    pub(super) renewals: Vec<ChildSaId>,
}

/// Where a child's SAs are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The FPGA core. What it cannot do the workers' first engine does.
    Core,
    /// An engine of the workers.
    Worker(u8),
}

/// How many SAs that are up follow an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// They are there.
    pub at_once: usize,
    /// They are renewed, and their successors will be there.
    pub renewed: usize,
}

/// Why a child was not moved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    #[error(
        "this gateway has no engine {wanted:?} (it has {there}); `pool_threads` in the gateway section adds the pool"
    )]
    NoEngine { wanted: String, there: String },
    #[error("no child that is protected is called {0:?}")]
    NoChild(String),
}

impl Engines {
    fn find(&self, name: &str) -> Option<Place> {
        if self.has_core && name == EngineKind::Fpga.name() {
            return Some(Place::Core);
        }
        let found = self.names.iter().position(|known| *known == name);
        found.and_then(|index| Some(Place::Worker(index.try_into().ok()?)))
    }

    /// The engine of children for which nothing is said.
    fn usual(&self) -> Place {
        match self.has_core {
            true => Place::Core,
            false => Place::Worker(0),
        }
    }

    /// Where a child is to be: as ordered, else as configured, else with the usual engine.
    fn wanted(&self, name: &Name, configured: Option<EngineKind>) -> Place {
        if let Some(ordered) = self.ordered.get(name) {
            return *ordered;
        }
        let Some(kind) = configured else {
            return self.usual();
        };
        self.find(kind.name()).unwrap_or_else(|| {
            let (connection, child) = name;
            let engine = kind.name();
            tracing::warn!(
                connection,
                child,
                "the engine {engine} is there from the next start on"
            );
            self.usual()
        })
    }

    fn all(&self) -> String {
        let core = self.has_core.then_some(EngineKind::Fpga.name());
        let names: Vec<_> = self.names.iter().copied().chain(core).collect();
        names.join(", ")
    }
}

impl Join {
    /// The engines of the workers, in their order.
    pub fn set_engines(&mut self, names: Vec<&'static str>) {
        self.engines.names = names;
    }

    /// Moves the children of this name, in this connection or in any, to an engine, with the SAs that replace theirs.
    pub fn set_engine(
        &mut self,
        connection: Option<&str>,
        child: &str,
        engine: &str,
    ) -> Result<Moved, NotMoved> {
        let Some(place) = self.engines.find(engine) else {
            return Err(NotMoved::NoEngine {
                wanted: engine.to_owned(),
                there: self.engines.all(),
            });
        };
        let is_meant = |name: &Name| {
            name.1 == child && connection.is_none_or(|connection| name.0 == connection)
        };
        let up = self.children.iter();
        let up = up.filter(|(_, installed)| is_meant(&installed.name));
        let up: Vec<_> = up
            .map(|(id, installed)| (*id, installed.name.clone()))
            .collect();
        let protects = |policy: &&ConfiguredPolicy| {
            matches!(policy.kind, PolicyKind::Protect { .. }) && is_meant(&policy.name())
        };
        let configured = self.configured.iter().filter(protects);
        let mut names: Vec<Name> = configured.map(ConfiguredPolicy::name).collect();
        names.extend(up.iter().map(|(_, name)| name.clone()));
        if names.is_empty() {
            return Err(NotMoved::NoChild(child.to_owned()));
        }
        let ordered = names.into_iter().map(|name| (name, place));
        self.engines.ordered.extend(ordered);
        let mut moved = Moved::default();
        for (id, _) in up {
            match self.place(id, place) {
                true => moved.at_once += 1,
                false => moved.renewed += 1,
            }
        }
        Ok(moved)
    }

    /// SAs that are to be rekeyed since the last call, because their successors are to be elsewhere.
    pub fn take_renewals(&mut self) -> Vec<ChildSaId> {
        std::mem::take(&mut self.engines.renewals)
    }

    /// Where the next SA of a child is to be.
    pub(super) fn place_of(&self, configured: &ConfiguredPolicy) -> Place {
        self.engines
            .wanted(&configured.name(), configured.sa.engine)
    }

    /// Puts a child SA with an engine, through which nothing was sent yet. Packets may have come in for it.
    pub(super) fn place_new(&self, installed: &Installed, place: Place) {
        if let Place::Worker(index) = place {
            installed.outbound.common.placement.begin(index);
            place_one(&self.database, &installed.inbound.common, index);
        }
    }

    /// Follows a new configuration. What was ordered beside it stays.
    pub(super) fn place_again(&mut self) {
        let up: HashSet<_> = self.children.values().map(|child| &child.name).collect();
        let is_known = |name: &Name| self.by_name.contains_key(name) || up.contains(name);
        self.engines.ordered.retain(|name, _| is_known(name));
        let wanted = |installed: &Installed| {
            let configured = self.configured.get(*self.by_name.get(&installed.name)?)?;
            Some(self.engines.wanted(&installed.name, configured.sa.engine))
        };
        let children = self.children.iter();
        let places = children.filter_map(|(id, installed)| Some((*id, wanted(installed)?)));
        for (id, place) in places.collect::<Vec<_>>() {
            let installed = self.children.get(&id);
            let refused =
                |installed: &Installed| matches!(installed.carrier, Carrier::Cpu(Some(_)));
            // The core would refuse its successor too.
            if !(place == Place::Core && installed.is_some_and(refused)) {
                self.place(id, place);
            }
        }
    }

    /// Moves an SA that is up. False if only its successor can be there.
    fn place(&mut self, id: ChildSaId, place: Place) -> bool {
        let Some(installed) = self.children.get_mut(&id) else {
            return true;
        };
        match (place, &installed.carrier) {
            (Place::Core, Carrier::Fpga) => {}
            (Place::Worker(index), Carrier::Cpu(_)) => {
                // By order, whatever the core has said of it.
                installed.carrier = Carrier::Cpu(None);
                for sa in [&installed.outbound.common, &installed.inbound.common] {
                    place_one(&self.database, sa, index);
                }
            }
            (Place::Core, Carrier::Cpu(_)) | (Place::Worker(_), Carrier::Fpga) => {
                self.engines.renewals.push(id);
                return false;
            }
        }
        true
    }

    /// The engine that a child SA is with, where there are several.
    pub fn engine_of(&self, installed: &Installed) -> Option<&'static str> {
        if installed.carrier == Carrier::Fpga {
            return Some(EngineKind::Fpga.name());
        }
        let index = installed.outbound.common.placement.get().engine;
        let several = self.engines.names.len() > 1 || self.engines.has_core;
        let name = self.engines.names.get(usize::from(index)).copied();
        name.filter(|_| several)
    }
}

fn place_one(database: &Database, sa: &SaCommon, index: u8) {
    if sa.placement.get().engine != index {
        database.placements().place(&sa.placement, index);
    }
}
