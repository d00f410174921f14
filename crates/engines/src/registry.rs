//! The engines that a gateway has.

use std::sync::{Arc, Mutex, PoisonError};

use esplanade_config::{
    EngineEntry, EngineKind, EnginePlace, GatewayConfig, NameTaken, add_engine,
};
use esplanade_dataplane::EngineSource;

use crate::host::{CpuHost, EngineHost, HostReport, Sharing, StartError};
use crate::trials::{self, Trials};

/// Starts an engine, if the configuration has it.
pub type StartEngine =
    fn(&GatewayConfig, &Trials) -> Result<Option<Arc<dyn EngineHost>>, StartError>;

/// The engines beside the CPU, in the order of their places behind it.
static BUILT_IN: &[StartEngine] = &[
    crate::pool::start,
    crate::gpu::start,
    #[cfg(ace_lanes_simulated)]
    crate::ace::start,
];
static ADDED: Mutex<Vec<StartEngine>> = Mutex::new(Vec::new());

/// Adds an engine to those that configurations can name. It is to be called before a configuration is read.
pub fn add(entry: &'static EngineEntry, start: StartEngine) -> Result<(), NameTaken> {
    add_engine(entry)?;
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.push(start);
    Ok(())
}

/// The engines of a gateway. The workers' engines are known by their indices.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    workers: Vec<Arc<dyn EngineHost>>,
    device: Option<Arc<dyn EngineHost>>,
    shares_usually: bool,
}

impl Engines {
    /// Returns the CPU engine alone.
    pub fn cpu() -> Self {
        Self::of(vec![Arc::new(CpuHost)])
    }

    /// Returns these engines of workers. The first carries what no other is chosen for.
    pub fn of(workers: Vec<Arc<dyn EngineHost>>) -> Self {
        Self {
            workers,
            ..Self::default()
        }
    }

    /// Starts the engines that a configuration has. That which it names comes first.
    pub fn start(config: &GatewayConfig) -> Result<Self, StartError> {
        let trials = trials()?;
        let mut engines = Self {
            shares_usually: config.engine == EngineKind::ADAPTIVE,
            ..Self::cpu()
        };
        let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for start in BUILT_IN.iter().chain(&added) {
            if let Some(host) = start(config, &trials)? {
                if host.source().is_none() {
                    let what = format!("{} has no source of engines for workers", host.title());
                    return Err(StartError::new(what));
                }
                let is_first = host.name() == config.engine.name();
                let at = if is_first { 0 } else { engines.workers.len() };
                engines.workers.insert(at, host);
            }
        }
        let named = config.engine;
        let of_workers = matches!(named.place(), EnginePlace::Workers | EnginePlace::BesideCpu);
        if of_workers && engines.index_of(named.name()).is_none() {
            let what = format!("the engine {} has not started", named.name());
            return Err(StartError::new(what));
        }
        Ok(engines)
    }

    /// Puts a device in front of the workers' engines.
    pub fn with_device(self, device: Option<Arc<dyn EngineHost>>) -> Self {
        Self { device, ..self }
    }

    /// Lets children share the load between CPU and another engine unless something else is said of them.
    pub fn sharing_usually(self) -> Self {
        Self {
            shares_usually: true,
            ..self
        }
    }

    /// Returns the sources of the workers' engines.
    pub fn sources(&self) -> Vec<EngineSource> {
        let hosts = self.workers.iter();
        hosts.filter_map(|host| host.source()).collect()
    }

    pub fn workers(&self) -> &[Arc<dyn EngineHost>] {
        &self.workers
    }

    pub fn worker(&self, index: u8) -> Option<&dyn EngineHost> {
        self.workers.get(usize::from(index)).map(Arc::as_ref)
    }

    pub fn device(&self) -> Option<&dyn EngineHost> {
        self.device.as_deref()
    }

    pub fn index_of(&self, name: &str) -> Option<u8> {
        self.index_where(|host| host.name() == name)
    }

    /// Returns the engine that takes what others refuse.
    pub fn fallback(&self) -> u8 {
        self.index_where(|host| host.is_fallback()).unwrap_or(0)
    }

    /// Returns the engine that shares the load with the CPU, if there is one.
    pub fn shared(&self) -> Option<(u8, &dyn Sharing)> {
        let index = self.index_where(|host| host.sharing().is_some())?;
        Some((index, self.worker(index)?.sharing()?))
    }

    /// Tells whether children share the load unless something else is said of them.
    pub fn shares_usually(&self) -> bool {
        self.shares_usually
    }

    /// Returns the name of the policy that shares the load, if there is an engine to share it with.
    pub fn share_name(&self) -> Option<&'static str> {
        self.shared().map(|_| EngineKind::ADAPTIVE.name())
    }

    /// Returns the names that a child's engine can have.
    pub fn names(&self) -> Vec<&'static str> {
        let hosts = self.workers.iter().chain(&self.device);
        hosts
            .map(|host| host.name())
            .chain(self.share_name())
            .collect()
    }

    /// Tells what carries the children that no other engine is chosen for, and what else there is. The details are those
    /// of [`Self::reports`].
    pub fn in_words(&self, reports: &[(&'static str, HostReport)]) -> EngineNames {
        let detail = |name: &str| {
            let mut reports = reports.iter();
            let found = reports.find(|(engine, _)| *engine == name)?;
            found.1.detail.as_deref()
        };
        let described = |name: &str| match detail(name) {
            Some(detail) => format!("{name} ({detail})"),
            None => name.to_owned(),
        };
        let names: Vec<_> = self.workers.iter().map(|host| host.name()).collect();
        let cpu = names.get(usize::from(self.fallback())).copied();
        let shared = self.shared().and_then(|(index, _)| self.worker(index));
        let (name, usual, of_usual) = match (self.device(), shared) {
            (Some(device), _) => {
                let text = format!("{}, else cpu", described(device.name()));
                (device.name(), text, [cpu, None])
            }
            (None, Some(host)) if self.shares_usually => {
                let (name, with) = (EngineKind::ADAPTIVE.name(), host.name());
                let text = format!("{name} (cpu and {})", detail(with).unwrap_or(with));
                (name, text, [cpu, Some(with)])
            }
            _ => {
                let first = names.first().copied();
                let name = first.unwrap_or("cpu");
                (name, described(name), [first, None])
            }
        };
        let others = names
            .iter()
            .filter(|name| !of_usual.contains(&Some(**name)));
        EngineNames {
            name,
            usual,
            others: others.map(|name| described(name)).collect(),
        }
    }

    /// Returns what each engine says of itself, by its name. A device may take a while to answer.
    pub fn reports(&self) -> Vec<(&'static str, HostReport)> {
        let hosts = self.workers.iter().chain(&self.device);
        hosts.map(|host| (host.name(), host.report())).collect()
    }

    fn index_where(&self, is_wanted: impl Fn(&dyn EngineHost) -> bool) -> Option<u8> {
        let found = self
            .workers
            .iter()
            .position(|host| is_wanted(host.as_ref()))?;
        found.try_into().ok()
    }
}

/// The engines in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineNames {
    /// The name of the usual engine, or of the policy that chooses one.
    pub name: &'static str,
    /// The usual engine with its details.
    pub usual: String,
    /// The others with theirs.
    pub others: Vec<String>,
}

/// Returns the trials that the environment asks for.
fn trials() -> Result<Trials, StartError> {
    let Some(list) = std::env::var_os(trials::VARIABLE) else {
        return Ok(Trials::default());
    };
    let trials = Trials::read(&list.to_string_lossy()).map_err(StartError::new)?;
    if trials != Trials::default() {
        tracing::warn!(
            ?trials,
            "engines are slow or fail on purpose: {} is set",
            trials::VARIABLE
        );
    }
    Ok(trials)
}
