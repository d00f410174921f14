//! Every engine as the gateway sees it, whatever carries its batches.

use std::fmt::Debug;
use std::sync::Arc;

use esplanade_config::{SaOptions, ShareLimits};
use esplanade_crypto::{Direction, Transform};
use esplanade_dataplane::EngineSource;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaCommon};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::latency::LatencyCounts;
use crate::stats::CoreCounters;

/// An engine of the gateway. It ends when it is dropped.
///
/// The control thread calls the methods, so none of them may take long.
pub trait EngineHost: Debug + Send + Sync {
    /// The word for it in `engine = NAME`, in commands and in the status.
    fn name(&self) -> &'static str;

    /// The name in messages to people.
    fn title(&self) -> String {
        format!("the engine {}", self.name())
    }

    /// Where the workers get engines from. `None` means that they get none: it is a [`Device`](Self::device).
    fn source(&self) -> Option<EngineSource>;

    /// The device in front of the data plane, if it is one.
    fn device(&self) -> Option<&dyn ChildSaDevice> {
        None
    }

    /// Tells whether the engine refuses nothing and is never late. It takes what other engines refuse.
    fn is_fallback(&self) -> bool {
        false
    }

    /// Tells whether the engine works with the processor's instructions. `explain` shows their tier then.
    fn has_tiers(&self) -> bool {
        false
    }

    /// Returns why it cannot carry a half of an SA, or `None` if it can. The gateway also asks about halves that the
    /// engine has. The answer about a half stays the same until [`Self::refusals_version`] changes.
    fn refusal(&self, half: &SaCommon, direction: Direction) -> Option<String> {
        let _ = (half, direction);
        None
    }

    /// Returns a number that changes when [`Self::refusal`] may give other answers than before. SAs are placed anew then.
    fn refusals_version(&self) -> u64 {
        0
    }

    /// Tells the engine that it has a child SA with this transform, one half of it or both. Its packets come later.
    fn came(&self, transform: Transform) {
        let _ = transform;
    }

    /// Tells the engine that a child SA which came is gone. The same SA may come again at once.
    fn gone(&self, transform: Transform) {
        let _ = transform;
    }

    /// Returns the engine as one that shares the load with the CPU. Its entry says the same
    /// ([`EnginePlace::BesideCpu`](esplanade_config::EnginePlace)). One engine of a gateway shares.
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    fn report(&self) -> HostReport {
        HostReport::default()
    }
}

/// A device that carries child SAs by itself, in front of the data plane. SAs cannot move into or out of it: a child
/// moves with its next SA.
pub trait ChildSaDevice: Debug {
    /// Installs both halves of a child SA, or neither. The error text says why.
    fn install(
        &self,
        outbound: Arc<OutboundSa>,
        inbound: Arc<InboundSa>,
        options: &SaOptions,
    ) -> Result<(), String>;

    /// Updates the device's tables to the current SPD and SAD.
    fn follow(&self);

    fn counters(&self) -> CoreCounters;
}

/// An engine that can share the load with the CPU.
pub trait Sharing {
    fn limits(&self) -> ShareLimits;

    /// Returns how long it has had batches since the gateway's start.
    fn latency(&self) -> LatencyCounts;

    /// Tells whether it takes batches and gives them back.
    fn is_in_service(&self) -> bool;
}

/// The report of an engine about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// Entries of the section `engine` of the status: numbers, texts, lists of these, and maps. An engine that was added
    /// has one entry, with its name.
    pub figures: Map<String, Value>,
    /// A few words behind its name, such as its device.
    pub detail: Option<String>,
    /// Lines of the text form of the status.
    pub lines: Vec<String>,
    /// Lines about what the administrator has to see to.
    pub warnings: Vec<String>,
}

impl HostReport {
    /// Adds an entry to the figures.
    pub fn with(mut self, name: &str, figure: &impl Serialize) -> Self {
        // Only a map with other keys than text has no JSON.
        if let Ok(figure) = serde_json::to_value(figure) {
            self.figures.insert(name.to_owned(), figure);
        }
        self
    }
}

/// An engine cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct StartError {
    pub what: String,
    /// The remedy.
    pub help: Option<&'static str>,
}

impl StartError {
    pub fn new(what: impl Into<String>) -> Self {
        let (what, help) = (what.into(), None);
        Self { what, help }
    }

    pub fn help(self, help: &'static str) -> Self {
        let help = Some(help);
        Self { help, ..self }
    }
}

/// The CPU engine, which works in the workers' own threads.
#[derive(Clone, Copy, Debug)]
pub struct CpuHost;

impl EngineHost for CpuHost {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn title(&self) -> String {
        "the CPU".to_owned()
    }

    fn source(&self) -> Option<EngineSource> {
        Some(EngineSource::cpu())
    }

    fn is_fallback(&self) -> bool {
        true
    }

    fn has_tiers(&self) -> bool {
        true
    }
}
