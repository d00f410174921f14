//! Counters of what was carried, refused and dropped since the start, as `get-counters` shows them. Every counter is
//! there, also while it is zero; `docs/counters.md` explains each counter.

use esplanade_counters::Counter;
use esplanade_engines::stats::{CoreCounters, NamedCounters};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayCounters {
    pub ike: IkeCounters,
    #[serde(flatten)]
    pub traffic: TrafficCounters,
    pub log: OutputCounters,
    /// The lines of the key file. `None` means that no keys are exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_export: Option<OutputCounters>,
}

/// The counters of IKE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IkeCounters {
    #[serde(flatten)]
    pub counts: NamedCounters,
    /// Messages that were refused, wholly or in part, by reason.
    pub refused: NamedCounters,
}

/// The counters of the data plane: sums over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficCounters {
    pub outbound: NamedCounters,
    pub inbound: NamedCounters,
    /// Packets that were dropped, in both directions, by reason.
    pub drops: NamedCounters,
    /// The counters of the workers' I/O.
    pub io: NamedCounters,
    /// The counters of the FPGA core. `None` means that there is no core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreCounters>,
}

/// Lines on their way to the log or to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputCounters {
    pub lost: u64,
    /// Lines that are not written yet: a level, not a count.
    pub waiting: usize,
    /// The reason why nothing can be written at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OutputCounters {
    pub const COUNTERS: &[Counter] = esplanade_counters::table!(
        /// Lines that found no room and are lost.
        lost: Lines,
        /// Lines that wait to be written at this moment: a level, which falls too.
        waiting: Lines,
    );
}
