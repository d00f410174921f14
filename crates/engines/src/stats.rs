//! The state and the figures of engines. Field names are those of the status.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Named;

/// A GPU and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GpuStats {
    pub device: String,
    /// The kernels look AES and 3DES up in tables.
    pub tables: bool,
    /// Keys on the device.
    pub keys: usize,
    pub launches: u64,
    /// Launches for which no packet was copied: host and device use the same memory.
    pub launches_in_place: u64,
    /// Packets that the device has sealed or opened.
    pub device_packets: u64,
    /// Packets of the engine that the CPU has done: too few for a warp, or of a transform that the kernels lack.
    pub cpu_packets: u64,
    /// Sealed packets that the CPU has compared.
    pub checked: u64,
    /// Transforms that the device does wrong.
    pub disabled: Vec<String>,
    /// The reason why the device is out of service. Then the other figures are those of the moment when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The number of seconds for which it has been out of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_for: Option<u64>,
}

/// The fabrics of the adaptive cryptographic engine, and what they have done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AceStats {
    pub fabrics: Named<FabricStats>,
    /// Packets that lanes have sealed or opened.
    pub fabric_packets: u64,
    /// Packets of the engine that the CPU has done, and those of them whose lane was loading.
    pub cpu_packets: u64,
    pub while_loading: u64,
    /// Sealed packets that the CPU has compared.
    pub checked: u64,
    /// Lanes that were loaded, and those of them that no packet had to wait for.
    pub loads: u64,
    pub hidden_loads: u64,
    /// Loads in the place of another lane.
    pub evictions: u64,
    /// Bitstreams that made no lane or a wrong one.
    pub failed_loads: u64,
    /// The time of all loads, the part of it in which packets wanted the lane, and the time of merging.
    pub load_ms: u64,
    pub wanted_ms: u64,
    pub merge_ms: u64,
    /// Times that a lane has forgotten its key.
    pub wipes: u64,
}

/// A fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FabricStats {
    pub part: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The lane that is being loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loading: Option<String>,
    /// The reason why the fabric is out of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Counters by their names.
pub type NamedCounters = BTreeMap<String, u64>;

/// The counters of the two lanes of the FPGA core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreCounters {
    pub outbound: LaneCounters,
    pub inbound: LaneCounters,
}

/// The counters of one lane of the FPGA core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaneCounters {
    /// Packets that left the lane, also those for the host.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that were dropped, by reason.
    #[serde(flatten)]
    pub drops: NamedCounters,
}
