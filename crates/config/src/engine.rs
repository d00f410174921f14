//! The engines that a configuration can name, and what a gateway needs for each.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::value::{ValueError, ValueResult, word};

/// An engine that carries SAs, or a policy that chooses one. Two are the same if their names are.
#[derive(Clone, Copy)]
pub struct EngineKind(&'static EngineEntry);

/// The configuration's view of an engine.
#[derive(Debug)]
pub struct EngineEntry {
    /// The word for it in `engine = NAME`.
    pub name: &'static str,
    pub place: EnginePlace,
    /// The keys of its section in the gateway section, which has its name. Empty means that there is no such section.
    pub keys: &'static [&'static str],
    /// Returns what a gateway that has this lacks to have the engine.
    pub lacks: fn(&Given<'_>) -> Option<Lack>,
}

/// The place of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnginePlace {
    /// Workers give it batches.
    Workers,
    /// The same, and it can share the load with the CPU.
    BesideCpu,
    /// It is a device in front of the data plane.
    Front,
    /// It is no engine, but chooses between two.
    Policy,
}

/// The engines that a configuration has given a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The engine of the gateway section.
    pub engine: EngineKind,
    pub has_pool: bool,
    pub has_gpu: bool,
    pub has_ace: bool,
    /// An engine can share the load with the CPU.
    pub can_share: bool,
    /// The sections of engines that were added.
    pub settings: &'a [EngineSettings],
}

/// The settings of an engine that was added, from the section with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    pub engine: &'static str,
    /// Keys with their values, as the file has them.
    pub values: Vec<(&'static str, String)>,
}

impl EngineSettings {
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn can_share(&self) -> bool {
        let kind = EngineKind::named(self.engine);
        kind.is_some_and(|kind| kind.place() == EnginePlace::BesideCpu)
    }
}

impl Given<'_> {
    /// Tells whether there is a section with the name of this engine, which was added.
    pub fn has_section(&self, engine: &str) -> bool {
        self.settings.iter().any(|section| section.engine == engine)
    }
}

/// The reason why a gateway does not have an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    pub what: &'static str,
    /// The remedy.
    pub help: &'static str,
}

impl Lack {
    /// Returns the reason unless the gateway has what it takes.
    pub fn unless(has: bool, what: &'static str, help: &'static str) -> Option<Self> {
        (!has).then_some(Self { what, help })
    }
}

/// The name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name {0:?} is taken: choose another one for the engine")]
pub struct NameTaken(pub &'static str);

pub(super) const NO_DEVICE: Lack = Lack {
    what: "this build of Esplanade has no FPGA device",
    help: "set `engine = cpu`, or build it with the simulated core: `cargo build --features fpga-sim` with Verilator (docs/fpga-core.md)",
};

static CPU: EngineEntry = EngineEntry {
    name: "cpu",
    place: EnginePlace::Workers,
    keys: &[],
    lacks: |_| None,
};
/// The CPU engine in helper threads.
static POOL: EngineEntry = EngineEntry {
    name: "pool",
    place: EnginePlace::Workers,
    keys: &[],
    lacks: |given| {
        Lack::unless(
            given.has_pool,
            "the gateway has no pool",
            "set `pool_threads`, or `engine = pool`, in the gateway section",
        )
    },
};
/// The FPGA core. The CPU carries the SAs that the core cannot.
static FPGA: EngineEntry = EngineEntry {
    name: "fpga",
    place: EnginePlace::Front,
    keys: &[],
    lacks: |given| match esplanade_fpga::simulated::BUILT {
        false => Some(NO_DEVICE),
        true => Lack::unless(
            given.engine == EngineKind::FPGA,
            "the gateway has no FPGA core",
            "set `engine = fpga` in the gateway section",
        ),
    },
};
/// A GPU. The CPU carries the SAs whose transforms the kernels lack.
static GPU: EngineEntry = EngineEntry {
    name: "gpu",
    place: EnginePlace::BesideCpu,
    keys: &[],
    lacks: |given| {
        Lack::unless(
            given.has_gpu,
            "the gateway has no GPU",
            "add a section `gpu`, or `engine = gpu`, to the gateway section",
        )
    },
};
/// The CPU, and with much load also the GPU.
static ADAPTIVE: EngineEntry = EngineEntry {
    name: "adaptive",
    place: EnginePlace::Policy,
    keys: &[],
    lacks: |given| {
        Lack::unless(
            given.can_share,
            "the gateway has no GPU to share the load with",
            "add a section `gpu` to the gateway section",
        )
    },
};
/// Fabrics whose configuration follows the SAs. The CPU carries the SAs for which the library has no lane.
static ACE: EngineEntry = EngineEntry {
    name: "ace",
    place: EnginePlace::Workers,
    keys: &[],
    lacks: |given| match esplanade_ace::simulated::BUILT {
        false => Some(NO_DEVICE),
        true => Lack::unless(
            given.has_ace,
            "the gateway has no engine ace, which takes bitstreams from a library",
            "add a section `ace` to the gateway section",
        ),
    },
};

static BUILT_IN: [&EngineEntry; 6] = [&CPU, &POOL, &FPGA, &GPU, &ADAPTIVE, &ACE];
static ADDED: Mutex<Vec<&'static EngineEntry>> = Mutex::new(Vec::new());

/// Names that mean something else in the gateway section or in the section `engine` of the status.
const TAKEN: [&str; 20] = [
    "also",
    "costs",
    "device",
    "disabled",
    "failed",
    "installed-in",
    "installed-out",
    "interfaces",
    "lines",
    "name",
    "none",
    "pkcs11",
    "share",
    "states",
    "threads",
    "tier",
    "tiers",
    "usual",
    "warnings",
    "",
];

/// Lets configurations name an engine that this crate does not know. `engines::add` calls it.
pub fn add_engine(entry: &'static EngineEntry) -> Result<(), NameTaken> {
    let mut added = lock();
    let mut known = BUILT_IN.iter().chain(added.iter());
    if TAKEN.contains(&entry.name) || known.any(|known| known.name == entry.name) {
        return Err(NameTaken(entry.name));
    }
    added.push(entry);
    Ok(())
}

fn lock() -> MutexGuard<'static, Vec<&'static EngineEntry>> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EngineKind {
    pub const CPU: Self = Self(&CPU);
    pub const POOL: Self = Self(&POOL);
    pub const FPGA: Self = Self(&FPGA);
    pub const GPU: Self = Self(&GPU);
    pub const ADAPTIVE: Self = Self(&ADAPTIVE);
    pub const ACE: Self = Self(&ACE);

    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub fn place(self) -> EnginePlace {
        self.0.place
    }

    /// Returns what a gateway that has this lacks to have the engine.
    pub fn lack(self, given: &Given<'_>) -> Option<Lack> {
        (self.0.lacks)(given)
    }

    /// Returns the engine with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name() == name)
    }

    /// Returns all engines that a configuration can name.
    pub fn all() -> Vec<Self> {
        let added = lock();
        let all = BUILT_IN.iter().chain(added.iter());
        all.map(|entry| Self(entry)).collect()
    }
}

impl Default for EngineKind {
    fn default() -> Self {
        Self::CPU
    }
}

impl PartialEq for EngineKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for EngineKind {}

impl Hash for EngineKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the keys of an engine's section, by the name of the section. The sections of older engines have schemas.
pub(super) fn engine_section(name: &str) -> Option<(&'static str, &'static [&'static str])> {
    let added = lock();
    let mut known = BUILT_IN.iter().chain(added.iter());
    let found = known.find(|entry| entry.name == name)?;
    (!found.keys.is_empty()).then_some((found.name, found.keys))
}

/// Parses the name of an engine.
pub(super) fn engine(text: &str) -> ValueResult<EngineKind> {
    let kinds = EngineKind::all();
    let words: Vec<_> = kinds.iter().map(|kind| (kind.name(), *kind)).collect();
    word(text, &words)
}

/// Refuses an engine that the gateway does not have.
pub(super) fn engine_of(given: &Given<'_>, text: &str) -> ValueResult<EngineKind> {
    let kind = engine(text)?;
    match kind.lack(given) {
        Some(lack) => Err(ValueError::new(lack.what, lack.help)),
        None => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Given<'_> = Given {
        engine: EngineKind::CPU,
        has_pool: false,
        has_gpu: false,
        has_ace: false,
        can_share: false,
        settings: &[],
    };
    static OTHER: EngineEntry = EngineEntry {
        name: "other",
        place: EnginePlace::Workers,
        keys: &["size"],
        lacks: |given| Lack::unless(given.has_section("other"), "no other", "add it"),
    };

    #[test]
    fn an_added_engine_is_named_like_others() {
        add_engine(&OTHER).unwrap();
        assert_eq!(add_engine(&OTHER), Err(NameTaken("other")));
        for name in ["cpu", "pkcs11", "tier"] {
            let entry = EngineEntry { name, ..OTHER };
            let refused = add_engine(Box::leak(Box::new(entry)));
            assert_eq!(refused, Err(NameTaken(name)));
        }
        let kind = EngineKind::named("other").unwrap();
        assert_eq!(engine("other").ok(), Some(kind));
        let refused = engine_of(&NOTHING, "other").err().unwrap();
        assert_eq!(refused.what, "no other");
        assert!(EngineKind::all().contains(&kind));
        assert_eq!(engine_section("other"), Some(("other", &["size"][..])));
        assert_eq!(engine_section("gpu"), None);
    }

    #[test]
    fn a_build_without_a_device_says_so() {
        for (kind, built) in [
            (EngineKind::FPGA, esplanade_fpga::simulated::BUILT),
            (EngineKind::ACE, esplanade_ace::simulated::BUILT),
        ] {
            let lack = kind.lack(&NOTHING).unwrap();
            assert_eq!(lack == NO_DEVICE, !built, "{kind:?}");
        }
    }
}
