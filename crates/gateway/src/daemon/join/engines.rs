//! Which of the workers' engines each child SA is with, and how it is moved while packets flow.

use std::collections::{HashMap, HashSet};

use esplanade_ipsec::sa::SaCommon;

use super::{Carrier, ConfiguredPolicy, Installed, Join, Name, PolicyKind};
use crate::config::EngineKind;

/// The engines of the workers, and what was ordered beside the configuration.
#[derive(Debug, Default)]
pub(super) struct Engines {
    /// In the workers' order.
    names: Vec<&'static str>,
    /// Until the gateway ends.
    ordered: HashMap<Name, u8>,
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
    #[error("{0:?} is in the FPGA core, where it stays")]
    InCore(String),
}

impl Engines {
    fn find(&self, name: &str) -> Option<u8> {
        let found = self.names.iter().position(|known| *known == name);
        found.and_then(|index| u8::try_from(index).ok())
    }

    /// Where a child is to be: as ordered, else as configured, else with the first engine.
    fn wanted(&self, name: &Name, configured: Option<EngineKind>) -> u8 {
        if let Some(ordered) = self.ordered.get(name) {
            return *ordered;
        }
        let Some(kind) = configured else {
            return 0;
        };
        self.find(kind.name()).unwrap_or_else(|| {
            let (connection, child) = name;
            let engine = kind.name();
            tracing::warn!(
                connection,
                child,
                "the engine {engine} is there from the next start on"
            );
            0
        })
    }
}

impl Join {
    /// The engines of the workers, in their order.
    pub fn set_engines(&mut self, names: Vec<&'static str>) {
        self.engines.names = names;
    }

    /// Moves the children of this name, in this connection or in any, to an engine, with the SAs that replace theirs. How
    /// many SAs that are up were moved.
    pub fn set_engine(
        &mut self,
        connection: Option<&str>,
        child: &str,
        engine: &str,
    ) -> Result<usize, NotMoved> {
        let Some(index) = self.engines.find(engine) else {
            return Err(NotMoved::NoEngine {
                wanted: engine.to_owned(),
                there: self.engines.names.join(", "),
            });
        };
        let is_meant = |name: &Name| {
            name.1 == child && connection.is_none_or(|connection| name.0 == connection)
        };
        let up = self.children.values();
        let up: Vec<_> = up.filter(|installed| is_meant(&installed.name)).collect();
        if up
            .iter()
            .any(|installed| installed.carrier == Carrier::Fpga)
        {
            return Err(NotMoved::InCore(child.to_owned()));
        }
        let protects = |policy: &&ConfiguredPolicy| {
            matches!(policy.kind, PolicyKind::Protect { .. }) && is_meant(&policy.name())
        };
        let configured = self.configured.iter().filter(protects);
        let mut names: Vec<Name> = configured.map(ConfiguredPolicy::name).collect();
        names.extend(up.iter().map(|installed| installed.name.clone()));
        if names.is_empty() {
            return Err(NotMoved::NoChild(child.to_owned()));
        }
        for installed in &up {
            self.place(installed, index);
        }
        let moved = up.len();
        let ordered = names.into_iter().map(|name| (name, index));
        self.engines.ordered.extend(ordered);
        Ok(moved)
    }

    /// Puts a child SA, through which nothing was sent yet, where its child is to be. Packets may have come in for it.
    pub(super) fn place_new(&self, installed: &Installed, configured: &ConfiguredPolicy) {
        let index = self.engines.wanted(&installed.name, configured.sa.engine);
        installed.outbound.common.placement.begin(index);
        self.place_one(&installed.inbound.common, index);
    }

    /// Follows a new configuration. What was ordered beside it stays.
    pub(super) fn place_again(&mut self) {
        let up: HashSet<_> = self.children.values().map(|child| &child.name).collect();
        let is_known = |name: &Name| self.by_name.contains_key(name) || up.contains(name);
        self.engines.ordered.retain(|name, _| is_known(name));
        for installed in self.children.values() {
            let configured = self.by_name.get(&installed.name);
            let configured = configured.and_then(|index| self.configured.get(*index));
            if let Some(configured) = configured {
                let index = self.engines.wanted(&installed.name, configured.sa.engine);
                self.place(installed, index);
            }
        }
    }

    fn place(&self, installed: &Installed, index: u8) {
        for sa in [&installed.outbound.common, &installed.inbound.common] {
            self.place_one(sa, index);
        }
    }

    fn place_one(&self, sa: &SaCommon, index: u8) {
        if sa.placement.get().engine != index {
            self.database.placements().place(&sa.placement, index);
        }
    }

    /// The engine that a child SA is with, where there are several.
    pub fn engine_of(&self, installed: &Installed) -> Option<&'static str> {
        let index = installed.outbound.common.placement.get().engine;
        let several = self.engines.names.len() > 1;
        let name = self.engines.names.get(usize::from(index)).copied();
        name.filter(|_| several)
    }
}
