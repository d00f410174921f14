//! The engines that a gateway has.

use std::sync::{Arc, Mutex, PoisonError};

use esplanade_config::{EngineEntry, EngineKind, GatewayConfig, NameTaken, add_engine};
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
#[derive(Clone, Debug)]
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
            device: None,
            shares_usually: false,
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
                let is_first = host.name() == config.engine.name();
                let at = if is_first { 0 } else { engines.workers.len() };
                engines.workers.insert(at, host);
            }
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
        let sources = self.workers.iter().map(|host| host.source());
        sources
            .map(|own| own.unwrap_or_else(EngineSource::cpu))
            .collect()
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

    /// Tells what carries the children that no other engine is chosen for, and what else there is.
    pub fn in_words(&self) -> EngineNames {
        let described = |host: &dyn EngineHost| match host.report().detail {
            Some(detail) => format!("{} ({detail})", host.name()),
            None => host.name().to_owned(),
        };
        let cpu = self.fallback();
        let shared = self.shared().map(|(index, _)| index);
        let first = self.worker(0);
        let (name, usual, of_usual) = match (self.device(), shared, first) {
            (Some(device), ..) => {
                let text = format!("{}, else cpu", described(device));
                (device.name(), text, vec![cpu])
            }
            (None, Some(index), _) if self.shares_usually => {
                let host = self.worker(index);
                let name = EngineKind::ADAPTIVE.name();
                let with =
                    host.and_then(|host| host.report().detail.or(Some(host.name().to_owned())));
                let text = format!("{name} (cpu and {})", with.unwrap_or_default());
                (name, text, vec![cpu, index])
            }
            (None, _, Some(host)) => (host.name(), described(host), vec![0]),
            (None, _, None) => ("cpu", "cpu".to_owned(), vec![]),
        };
        let numbered = (0..).zip(&self.workers);
        let others = numbered.filter(|(index, _)| !of_usual.contains(index));
        EngineNames {
            name,
            usual,
            others: others.map(|(_, host)| described(host.as_ref())).collect(),
        }
    }

    /// Returns what each engine says of itself, by its name.
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
