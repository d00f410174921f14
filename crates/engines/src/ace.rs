//! The engine `ace`: a thread drives fabrics whose configuration follows the SAs.
//!
//! The thread takes batches of all ports. It merges and loads bitstreams between batches, and carries packets by the CPU
//! where their lane is not there.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esplanade_ace::controller::{Controller, Event, Progress};
use esplanade_ace::fabric::{Fabric, FabricError};
use esplanade_ace::library::{Library, LibraryError};
use esplanade_ace::simulated::{self, Simulated};
use esplanade_crypto::{Direction, EngineInfo, Transform};
use esplanade_ipsec::sa::SaCommon;

use crate::Named;
use crate::engine_port::{EnginePort, PortQueue};
use crate::host::{EngineHost, HostReport, StartError};
use crate::stats::{AceStats, FabricStats};
use crate::trials::Trials;
use esplanade_config::{AceConfig, GatewayConfig};
use esplanade_dataplane::EngineSource;
use esplanade_host::confine;

/// Each port has at most so many batches that the thread holds or that the worker has not fetched.
const INFO: EngineInfo = EngineInfo {
    depth: 16,
    ..EngineInfo::AT_ONCE
};
/// With more batches waiting the CPU carries what waits.
const WAITING_MAX: usize = 4;
/// The longest pause between two looks at keys whose SAs are gone.
const LOOK: Duration = Duration::from_millis(50);

/// The reason why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AceError {
    #[error("the library of bitstreams: {0}")]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error("the list of known lanes: {0}")]
    Lanes(String),
    #[error("its thread: {0}")]
    Thread(#[from] io::Error),
}

/// The thread that drives the fabrics.
#[derive(Debug)]
pub struct AceEngine {
    shared: Arc<AceShared>,
    carried: Arc<[Transform]>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct AceShared {
    queue: Arc<PortQueue>,
    /// SAs that have come and gone since the thread has looked, by transform: their number, or that of those that are gone.
    orders: Mutex<BTreeMap<Transform, i64>>,
    stats: Mutex<AceStats>,
}

impl AceEngine {
    /// Opens the library and starts the thread.
    pub fn start(config: &AceConfig) -> Result<Self, AceError> {
        let library = Library::open(&config.library, &config.trust, 0)?;
        let known = simulated::shipped_lanes().map_err(AceError::Lanes)?;
        let fabric = || Simulated::new(&config.part, known.clone(), config.interface_rate);
        let fabrics: Vec<_> = (0..config.fabrics)
            .map(|_| fabric())
            .collect::<Result<_, _>>()?;
        let carried = carried(&library, &config.part);
        // The thread reports when it has measured the CPU.
        let empty = fabrics.iter().map(|fabric| FabricStats {
            part: fabric.part().to_owned(),
            ..FabricStats::default()
        });
        let numbered = (0..).zip(empty);
        let numbered = numbered.map(|(number, fabric): (usize, _)| (number.to_string(), fabric));
        let shared = Arc::new(AceShared {
            stats: Mutex::new(AceStats {
                fabrics: Named(numbered.collect()),
                ..AceStats::default()
            }),
            ..AceShared::default()
        });
        let thread = confine::start_writing("ace".to_owned(), {
            let shared = Arc::clone(&shared);
            move || {
                let drives = AssertUnwindSafe(|| shared.drive(&library, fabrics));
                if catch_unwind(drives).is_err() {
                    tracing::error!(
                        "the thread of the engine ace panicked: the CPU takes its place"
                    );
                    shared.queue.stop();
                }
            }
        })?;
        Ok(Self {
            shared,
            carried,
            thread: Some(thread),
        })
    }

    fn give(&self, transform: Transform, sas: i64) {
        *lock(&self.shared.orders).entry(transform).or_default() += sas;
        self.shared.queue.wake();
    }

    pub fn stats(&self) -> AceStats {
        lock(&self.shared.stats).clone()
    }
}

impl Drop for AceEngine {
    fn drop(&mut self) {
        self.shared.queue.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the engine ace panicked");
        }
    }
}

impl EngineHost for AceEngine {
    fn name(&self) -> &'static str {
        "ace"
    }

    fn source(&self) -> Option<EngineSource> {
        let queue = Arc::clone(&self.shared.queue);
        Some(EngineSource::new(self.name(), move || {
            let port = EnginePort::new(Arc::clone(&queue), INFO)?;
            Ok(Box::new(port))
        }))
    }

    fn refusal(&self, half: &SaCommon, _: Direction) -> Option<String> {
        let transform = half.transform();
        let lacks = !self.carried.contains(&transform);
        lacks.then(|| format!("the library has no lane for {transform}"))
    }

    /// The lane is loaded if that is worth it.
    fn came(&self, transform: Transform) {
        self.give(transform, 1);
    }

    fn gone(&self, transform: Transform) {
        self.give(transform, -1);
    }

    fn report(&self) -> HostReport {
        let stats = self.stats();
        HostReport {
            lines: lines(&stats),
            ..HostReport::default()
        }
        .with(self.name(), &stats)
    }
}

/// Starts the fabrics, if the configuration has a library for them.
pub(crate) fn start(
    config: &GatewayConfig,
    _: &Trials,
) -> Result<Option<Arc<dyn EngineHost>>, StartError> {
    let Some(config) = &config.ace else {
        return Ok(None);
    };
    let engine = AceEngine::start(config).map_err(|error| {
        let what = format!("the engine ace cannot be used: {error}");
        StartError::new(what).help(match error {
            AceError::Library(_) => {
                "name the folder of a library in `library`, and its signer's key in `signer` (docs/ace.md)"
            }
            _ => "a gateway with `engine = cpu` and without a section `ace` does without",
        })
    })?;
    Ok(Some(Arc::new(engine)))
}

/// Writes the figures out for people.
fn lines(stats: &AceStats) -> Vec<String> {
    let fabrics = stats.fabrics.0.iter();
    let mut lines: Vec<_> = fabrics
        .map(|(number, fabric)| {
            let state = match (&fabric.failed, &fabric.loading, &fabric.lane) {
                (Some(why), ..) => format!("out of service: {why}"),
                (_, Some(lane), _) => format!("loading {lane}"),
                (_, _, Some(lane)) => lane.clone(),
                _ => "empty".to_owned(),
            };
            format!("fabric {number} ({}): {state}", fabric.part)
        })
        .collect();
    lines.push(format!(
        "packets: {} by lanes, {} by the CPU, of these {} while a lane was loading; loads: {}, hidden: {}, failed: {}",
        stats.fabric_packets,
        stats.cpu_packets,
        stats.while_loading,
        stats.loads,
        stats.hidden_loads,
        stats.failed_loads
    ));
    lines
}

/// Returns the transforms that lanes of the library carry.
fn carried(library: &Library, part: &str) -> Arc<[Transform]> {
    let lanes = esplanade_ace::controller::lanes_of(library, part);
    let carries = |transform: &Transform| lanes.iter().any(|lane| lane.carries(*transform));
    Transform::ESP.into_iter().filter(carries).collect()
}

impl AceShared {
    /// Carries batches until the queue is stopped.
    fn drive(&self, library: &Library, fabrics: Vec<Simulated>) {
        let mut controller = Controller::new(library, fabrics);
        self.report(&controller);
        // Reports are made when the thread comes to rest, and now and then.
        let (mut changed, mut reported) = (false, Instant::now());
        loop {
            self.follow_orders(&mut controller);
            let progress = controller.step();
            tell(&mut controller);
            let mut work = self.queue.take(|_| true).into_iter();
            if work.len() == 0 {
                controller.sweep();
                let rests = progress == Progress::Idle;
                if rests && changed || reported.elapsed() > LOOK {
                    (changed, reported) = (false, Instant::now());
                    self.report(&controller);
                }
                changed |= !rests;
                let longest = match progress {
                    Progress::Idle => LOOK,
                    Progress::After(time) => time,
                };
                if !self.queue.wait(true, longest) {
                    return controller.wipe();
                }
                continue;
            }
            while let Some(mut next) = work.next() {
                controller.carry(&mut next.batch, work.len() > WAITING_MAX);
                next.from.finish(next.batch);
                controller.step();
            }
            changed = true;
            if reported.elapsed() > LOOK {
                reported = Instant::now();
                self.report(&controller);
            }
        }
    }

    fn follow_orders(&self, controller: &mut Controller<'_, Simulated>) {
        for (transform, sas) in std::mem::take(&mut *lock(&self.orders)) {
            for _ in 0..sas {
                controller.request(transform);
            }
            for _ in sas..0 {
                controller.release(transform);
            }
        }
    }

    fn report(&self, controller: &Controller<'_, Simulated>) {
        let counters = controller.counters();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let fabrics = controller.report().into_iter().enumerate();
        let fabrics = fabrics.map(|(number, fabric)| {
            let stats = FabricStats {
                part: fabric.part,
                lane: fabric.lane.map(|lane| lane.to_string()),
                loading: fabric.loading.map(|lane| lane.to_string()),
                failed: fabric.failed,
            };
            (number.to_string(), stats)
        });
        let stats = AceStats {
            fabrics: Named(fabrics.collect()),
            fabric_packets: counters.fabric_packets,
            cpu_packets: counters.cpu_packets,
            while_loading: counters.while_loading,
            checked: counters.checked,
            loads: counters.loads,
            hidden_loads: counters.hidden_loads,
            evictions: counters.evictions,
            failed_loads: counters.failed_loads,
            load_ms: ms(counters.load_time),
            wanted_ms: ms(counters.wanted_time),
            merge_ms: ms(counters.merge_time),
            wipes: counters.wipes,
        };
        *lock(&self.stats) = stats;
    }
}

/// Writes what has happened into the log.
fn tell(controller: &mut Controller<'_, Simulated>) {
    for event in controller.take_events() {
        match event {
            Event::Loaded {
                fabric,
                lane,
                replaced,
                time,
                bytes,
                partial,
                hidden,
            } => {
                let replaced = replaced.map(|lane| lane.to_string());
                tracing::info!(fabric, %lane, ?replaced, ms = time.as_millis() as u64, bytes, partial, hidden, "a lane is loaded");
            }
            Event::Refused { fabric, lane, why } => {
                tracing::error!(fabric, %lane, "the bitstream does not make its lane, and is not loaded again: {why}");
            }
            Event::PartialRefused { fabric, lane, why } => {
                tracing::warn!(
                    fabric,
                    %lane,
                    "the partial stream does not make the lane, and whole bitstreams are loaded from now on: {why}"
                );
            }
            Event::Failed { fabric, why } => {
                tracing::error!(
                    fabric,
                    "the fabric is out of service, and the CPU is in its place: {why}"
                );
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
