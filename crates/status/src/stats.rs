//! The state of the gateway as a whole, as `stats` shows it.

use esplanade_engines::Named;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::connections::ListedRefusal;
use super::parts::is_no;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatewayStats {
    pub uptime: UptimeStats,
    pub ikesas: IkeSaStats,
    pub workers: WorkersStats,
    pub control: HoldStats,
    pub engine: EngineStats,
    /// The certificates that the gateway sends, by numbers from 0. Those that end first are in front.
    pub certificates: Named<ListedCertificate>,
    /// The CRLs, by numbers from 0.
    pub crls: Named<ListedCrl>,
    /// The links on which ESP goes past the kernel's stack (`xdp`), by name.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub links: Named<LinkStats>,
    pub confinement: ConfinementStats,
    pub shield: ShieldStats,
    /// Peers that were refused and that no connection is known for, by numbers from 0. The last is in front.
    pub refusals: Named<ListedRefusal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UptimeStats {
    /// The running time with its unit: `12 s`.
    pub running: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct IkeSaStats {
    pub total: usize,
    /// IKE SAs whose peer has not proved its identity yet.
    pub half_open: usize,
}

/// The turns of the control thread's loop: while one lasts, IKE and commands wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HoldStats {
    pub longest_us: u64,
    /// The number of turns by their duration: up to each bound and beyond the one before, and longer ones.
    pub turns: Named<u64>,
}

/// All workers, by their numbers from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkersStats(pub Vec<WorkerStats>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerStats {
    /// Packets sealed and sent.
    pub packets_out: u64,
    /// Packets opened and delivered.
    pub packets_in: u64,
    /// The share of the last half second in which the worker did not wait.
    pub busy_percent: u64,
    /// The number of seconds for which the worker has been too busy. `None` means that it is not too busy, or not for
    /// long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_for: Option<u64>,
}

impl Serialize for WorkersStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("total", &self.0.len())?;
        for (number, worker) in self.0.iter().enumerate() {
            map.serialize_entry(&number.to_string(), worker)?;
        }
        map.end()
    }
}

/// The engines that seal and open packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EngineStats {
    /// The engine of SAs for which no other engine is chosen.
    pub name: &'static str,
    /// The same with its details. `None` means that there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<String>,
    /// The other engines with their details.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The figures of each engine.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
    /// The same for people, by the name of the engine.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub lines: Named<Vec<String>>,
    /// Matters that the administrator has to see to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The GPU's share of the load. `None` means that no child is adaptive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareStats>,
    /// The health of each of the workers' engines.
    pub states: Named<&'static str>,
    /// Costs of transforms in `esp_proposals = adaptive`, in nanoseconds of the CPU for a thousand bytes.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub costs: Named<u64>,
    /// The instructions of the CPU engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The tiers of transforms for which a lower one was measured to be cheaper.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub tiers: Named<&'static str>,
    /// Better tiers that failed their self-test, and why.
    pub disabled: Vec<String>,
}

/// The part of the load that the GPU carries beside the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ShareStats {
    /// The engine that shares the CPU's load, as people call it.
    pub with: String,
    pub percent: u64,
    /// Halves of SAs that may move, and those of them that are with the GPU.
    pub halves: usize,
    pub gpu_halves: usize,
    /// The share of its time for which the busiest worker was busy lately, and the percentage up to which the CPU
    /// carries everything.
    pub busy_percent: u64,
    pub threshold: u64,
    /// The GPU takes batches and gives them back. If not, the CPU carries everything.
    pub in_service: bool,
    /// The time within which 99 of 100 batches came back lately, and the time that they may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    pub latency_us: u64,
    /// Moves of halves.
    pub moves: u64,
    /// Steps that were tried, and those of them that were undone.
    pub trials: u64,
    pub undone: u64,
}

/// A certificate that the gateway sends. Times are as RFC 3339 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedCertificate {
    pub subject: String,
    pub not_before: String,
    pub not_after: String,
    /// `valid`, `ends-soon`, `expired` or `not-yet-valid`.
    pub state: &'static str,
    pub connections: Vec<String>,
}

/// A CRL. Times are as RFC 3339 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedCrl {
    pub issuer: String,
    /// The CRL number, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
    /// The CRL has only the changes since another one.
    #[serde(skip_serializing_if = "is_no")]
    pub delta: bool,
    pub entries: usize,
    pub this_update: String,
    /// After this time the CRL proves no more that a certificate is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_update: Option<String>,
    /// The reason why nothing follows from the CRL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

/// The table of nf_tables that stands behind the routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShieldStats {
    /// The table is as the policies say.
    pub stands: bool,
    /// The elements of the table's maps.
    pub elements: usize,
    /// The reason why the table does not stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A link on which ESP goes past the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LinkStats {
    /// False while the link is gone, and where it could not be opened again.
    pub attached: bool,
    /// The number of workers that have a queue of the link.
    pub queues: u32,
    /// The driver runs the program, and not the stack.
    pub in_driver: bool,
}

/// The means that confine the process besides its reduced rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConfinementStats {
    /// The version of Landlock. Zero means that Landlock is not in force.
    pub landlock: u32,
    pub seccomp: bool,
}
