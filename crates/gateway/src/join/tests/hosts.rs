//! Engines that carry nothing, for tests of what they are told and where SAs go.

use std::sync::{Arc, Mutex};

use esplanade_crypto::{Direction, Transform};
use esplanade_dataplane::EngineSource;
use esplanade_engines::latency::LatencyCounts;
use esplanade_engines::stats::CoreCounters;
use esplanade_engines::{ChildSaDevice, CpuHost, EngineHost, Engines, Sharing};
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaCommon};

use crate::config::{SaOptions, ShareLimits};
use crate::gpu::GpuLimits;

/// Returns engines with these names, which refuse nothing.
pub fn engines(names: &[&'static str]) -> Engines {
    let host = |name: &&'static str| -> Arc<dyn EngineHost> {
        match *name {
            "cpu" => Arc::new(CpuHost),
            name => Arc::new(FakeHost::named(name)),
        }
    };
    Engines::of(names.iter().map(host).collect())
}

/// An engine of workers.
#[derive(Debug)]
pub struct FakeHost {
    pub name: &'static str,
    /// The limits of what it carries, and how often they have changed.
    pub limits: Mutex<(GpuLimits, u64)>,
    /// It refuses other transforms. `None` means that the limits alone say what it refuses.
    pub carried: Option<Vec<Transform>>,
    /// The SAs that came (true) and that are gone.
    pub told: Mutex<Vec<(bool, Transform)>>,
    pub shares: Option<ShareLimits>,
}

impl FakeHost {
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            limits: Mutex::default(),
            carried: None,
            told: Mutex::default(),
            shares: None,
        }
    }

    pub fn set_limits(&self, limits: GpuLimits) {
        let mut known = self.limits.lock().unwrap();
        *known = (limits, known.1 + 1);
    }
}

impl EngineHost for FakeHost {
    fn name(&self) -> &'static str {
        self.name
    }

    fn source(&self) -> Option<EngineSource> {
        Some(EngineSource::cpu())
    }

    fn refusal(&self, half: &SaCommon, direction: Direction) -> Option<String> {
        let transform = half.transform();
        match &self.carried {
            Some(carried) if carried.contains(&transform) => None,
            Some(_) => Some(format!("no lane for {transform}")),
            None if self.shares.is_some() => self.limits.lock().unwrap().0.refusal(half, direction),
            None => None,
        }
    }

    fn refusals_version(&self) -> u64 {
        self.limits.lock().unwrap().1
    }

    fn came(&self, transform: Transform) {
        self.told.lock().unwrap().push((true, transform));
    }

    fn gone(&self, transform: Transform) {
        self.told.lock().unwrap().push((false, transform));
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        self.shares.as_ref().map(|_| self as &dyn Sharing)
    }
}

impl Sharing for FakeHost {
    fn limits(&self) -> ShareLimits {
        self.shares.unwrap()
    }

    fn latency(&self) -> LatencyCounts {
        LatencyCounts::default()
    }

    fn is_in_service(&self) -> bool {
        true
    }
}

/// A device that takes every SA, or none and says why.
#[derive(Debug)]
pub struct FakeDevice {
    pub refuses: Option<&'static str>,
}

impl EngineHost for FakeDevice {
    fn name(&self) -> &'static str {
        "fpga"
    }

    fn source(&self) -> Option<EngineSource> {
        None
    }

    fn device(&self) -> Option<&dyn ChildSaDevice> {
        Some(self)
    }
}

impl ChildSaDevice for FakeDevice {
    fn install(&self, _: Arc<OutboundSa>, _: Arc<InboundSa>, _: &SaOptions) -> Result<(), String> {
        self.refuses.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn follow(&self) {}

    fn counters(&self) -> CoreCounters {
        CoreCounters::default()
    }
}
