//! The engine `gpu`: a thread drives a GPU for all workers.
//!
//! The thread takes batches of all ports and makes launches of them, several of which are under way at once. When the
//! device fails, workers go on with the CPU. The thread then opens the device anew, tests it, and takes batches again.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esplanade_crypto::{Batch, Direction, Engine, EngineInfo, Transform};
use esplanade_gpu::host_memory::HostMemory;
use esplanade_gpu::launch::words_of;
use esplanade_gpu::suite::Suite;
use esplanade_gpu::{Device, DeviceError, Gpu, LaunchChoice, Tables, Wake, self_test};
use esplanade_ipsec::sa::SaCommon;

use crate::engine_port::{EnginePort, PortPlace, PortQueue, PortWork};
use crate::host::{EngineHost, HostReport, Sharing, StartError};
use crate::latency::{LatencyCounters, LatencyCounts};
use crate::stats::GpuStats;
use crate::trials::Trials;
use esplanade_config::{GatewayConfig, GpuConfig, ShareLimits};
use esplanade_dataplane::EngineSource;
use esplanade_host::confine;

/// Batches of a port that the thread holds or that the worker has not fetched. A few launches are under way at once, and
/// one batch waits for the next.
const DEPTH: usize = 6;
/// A batch with so many bytes need not wait for more packets.
const BYTES: usize = 2 << 20;
/// A launch that is under way for so long does not come back. Workers give up a little later.
const HUNG: Duration = Duration::from_millis(900);
/// The longest pause between two looks at the device.
const LOOK: Duration = Duration::from_millis(50);
/// The rest of a failed device before it is opened again.
const REST: Duration = Duration::from_secs(30);
/// The gateway starts without a device that is not opened and tested in this time. A driver may hang.
const START_MAX: Duration = Duration::from_secs(60);
/// A device that fails so often is not opened any more.
const FAILURES_MAX: u32 = 3;
/// The end of the gateway waits so long for the thread. A driver may hang.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread that drives the device.
#[derive(Debug)]
pub struct GpuEngine {
    shared: Arc<GpuShared>,
    thread: Option<JoinHandle<()>>,
}

struct GpuShared {
    config: GpuConfig,
    trials: Trials,
    open: Box<OpenDevice>,
    rest: Duration,
    /// The ports' queue. It is stopped when the device fails, and another one takes its place.
    queue: Mutex<Arc<PortQueue>>,
    /// The device's memory for the workers' batches.
    memory: Mutex<Option<Arc<HostMemory>>>,
    /// The end of the gateway.
    end: PortQueue,
    state: Mutex<DeviceState>,
    begun: Instant,
    /// When the thread last asked the driver something, in milliseconds since `begun`.
    asked_ms: AtomicU64,
    /// The times for which the device has batches.
    latency: Arc<LatencyCounters>,
}

type OpenDevice = dyn Fn(&GpuConfig, Wake) -> Result<Box<dyn Device>, DeviceError> + Send + Sync;

/// The device as other threads see it.
#[derive(Debug)]
struct DeviceState {
    stats: GpuStats,
    limits: GpuLimits,
    /// Counts changes of the limits.
    version: u64,
    /// Why the device is out of service, and since when.
    failed: Option<(Instant, String)>,
}

/// A device that has passed its test, with the queue that it wakes.
struct Opened {
    gpu: Gpu,
    queue: Arc<PortQueue>,
}

/// The limits of what a device carries. They hold until it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLimits {
    /// The kernels have tables.
    pub tables: bool,
    /// Transforms that the device does wrong.
    pub disabled: Vec<Transform>,
    /// Rows of the device's key table. Each key has its own by its number.
    pub keys: usize,
}

impl Default for GpuLimits {
    fn default() -> Self {
        Self {
            tables: false,
            disabled: Vec::new(),
            keys: usize::MAX,
        }
    }
}

impl GpuLimits {
    /// Returns why the device cannot carry a half of an SA, or `None` if it can.
    pub fn refusal(&self, half: &SaCommon, direction: Direction) -> Option<String> {
        let transform = half.transform();
        let seals = match direction {
            Direction::Seal => "seals",
            Direction::Open => "opens",
        };
        if !carries(transform, direction, self.tables) {
            return Some(format!("no kernel of the GPU {seals} {transform}"));
        }
        if self.disabled.contains(&transform) {
            return Some(format!("the GPU gives wrong results for {transform}"));
        }
        let (number, keys) = (half.key_number(), self.keys);
        let text = || format!("the GPU has {keys} keys at most, and this one has number {number}");
        (number as usize >= keys).then(text)
    }
}

/// Tells whether the kernels, which have tables or not, have the transform in this direction.
pub fn carries(transform: Transform, direction: Direction, tables: bool) -> bool {
    Suite::of(transform, tables).is_some_and(|suite| suite.cipher(direction, 1).is_some())
}

impl GpuEngine {
    /// Opens and tests the device, and starts the thread. The device's compiler makes the kernels, which can take a while.
    /// If that takes very long, the engine begins out of service, and the thread goes on.
    pub fn start(config: &GpuConfig, trials: Trials) -> Result<Self, DeviceError> {
        let open = |config: &GpuConfig, wake: Wake| {
            esplanade_gpu::open(config.device.as_deref(), config.tables, wake)
        };
        let shared = GpuShared::new(config.clone(), Box::new(open), REST);
        Self::start_with(GpuShared { trials, ..shared }, START_MAX)
    }

    fn start_with(shared: GpuShared, longest: Duration) -> Result<Self, DeviceError> {
        let shared = Arc::new(shared);
        // A message is received or comes back: nobody waits any more.
        let (tell, told) = mpsc::sync_channel(0);
        let of_thread = |error: io::Error| DeviceError::Call {
            call: "the GPU's thread",
            why: error.to_string(),
        };
        // The driver's own threads have no more rights than the thread that opens the device.
        let thread = std::thread::Builder::new().name("gpu".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let opened = confine::driving().map_err(of_thread);
                let opened = opened.and_then(|()| shared.open());
                let opened = opened.and_then(|untested| shared.test(untested));
                match opened {
                    Ok(opened) => {
                        shared.begin(&opened);
                        let _ = tell.send(Ok(()));
                        shared.run(Some(opened));
                    }
                    Err(error) => {
                        if let Err(mpsc::SendError(Err(error))) = tell.send(Err(error)) {
                            shared.fail(&error.to_string());
                            shared.run(None);
                        }
                    }
                }
            }
        });
        let engine = Self {
            shared,
            thread: Some(thread.map_err(of_thread)?),
        };
        match told.recv_timeout(longest) {
            Ok(opened) => opened?,
            Err(RecvTimeoutError::Timeout) => tracing::error!(
                "the GPU is not opened and tested after {} s: the gateway starts without it, and the CPU carries its SAs",
                longest.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(of_thread(io::Error::other("it panicked")));
            }
        }
        Ok(engine)
    }

    pub fn stats(&self) -> GpuStats {
        let failed = self.shared.failed();
        GpuStats {
            failed_for: failed.as_ref().map(|(since, _)| since.elapsed().as_secs()),
            failed: failed.map(|(_, why)| why),
            ..lock(&self.shared.state).stats.clone()
        }
    }
}

impl EngineHost for GpuEngine {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn title(&self) -> String {
        "the GPU".to_owned()
    }

    fn source(&self) -> Option<EngineSource> {
        let shared = Arc::clone(&self.shared);
        Some(EngineSource::new(self.name(), move || {
            let queue = Arc::clone(&lock(&shared.queue));
            let latency = Arc::clone(&shared.latency);
            let info = EngineInfo {
                depth: DEPTH,
                jobs: shared.config.batch,
                bytes: BYTES,
                wait: shared.config.deadline,
            };
            let port = EnginePort::new(queue, info)?.with_latency(latency);
            let memory = lock(&shared.memory).clone();
            let arena = move |len: usize| memory.as_ref()?.arena(len);
            let port: Box<dyn Engine> = Box::new(port.with_arenas(Arc::new(arena)));
            Ok(port)
        }))
    }

    fn refusal(&self, half: &SaCommon, direction: Direction) -> Option<String> {
        lock(&self.shared.state).limits.refusal(half, direction)
    }

    fn refusals_version(&self) -> u64 {
        lock(&self.shared.state).version
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }

    fn report(&self) -> HostReport {
        let stats = self.stats();
        let failed = stats.failed.as_ref().zip(stats.failed_for);
        let warning = failed.map(|(why, seconds)| {
            format!(
                "the GPU has been out of service for {seconds} s, and the CPU carries all: {why}"
            )
        });
        HostReport {
            detail: Some(stats.device.clone()),
            warnings: warning.into_iter().collect(),
            ..HostReport::default()
        }
        .with(self.name(), &stats)
    }
}

impl Sharing for GpuEngine {
    fn limits(&self) -> ShareLimits {
        self.shared.config.share
    }

    fn latency(&self) -> LatencyCounts {
        self.shared.latency.counts()
    }

    fn is_in_service(&self) -> bool {
        self.shared.failed().is_none()
    }
}

/// Starts the GPU, if the configuration has one.
pub(crate) fn start(
    config: &GatewayConfig,
    trials: &Trials,
) -> Result<Option<Arc<dyn EngineHost>>, StartError> {
    let Some(config) = &config.gpu else {
        return Ok(None);
    };
    Ok(Some(Arc::new(GpuEngine::start(config, *trials)?)))
}

impl From<DeviceError> for StartError {
    fn from(error: DeviceError) -> Self {
        let what = format!("the GPU cannot be used: {error}");
        Self::new(what).help(match error {
            DeviceError::NoLibrary(_) => {
                "install NVIDIA's driver, or the OpenCL loader (Debian: ocl-icd-libopencl1) and the GPU's driver"
            }
            DeviceError::NoDevice { .. } => {
                "install the GPU's driver, or name a part of a name that `esplanade gpu` lists"
            }
            DeviceError::OldDriver(_) => "install a newer driver: that of CUDA 10 or later",
            DeviceError::OldDevice { .. } => {
                "install the GPU's OpenCL driver, or name another device"
            }
            DeviceError::NotWhole { .. } => {
                "set `tables = no`, or `tables = force` if nobody else's programs run there"
            }
            _ => "a gateway with `engine = cpu` and without a gpu section does without",
        })
    }
}

impl Drop for GpuEngine {
    fn drop(&mut self) {
        self.shared.end.stop();
        lock(&self.shared.queue).stop();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > PATIENCE {
                tracing::warn!("the GPU's driver does not return: its thread is left behind");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.join().is_err() {
            tracing::error!("the GPU's thread panicked");
        }
    }
}

/// A device that has not been tested, with the queue that it wakes.
struct Untested {
    device: Box<dyn Device>,
    queue: Arc<PortQueue>,
}

impl GpuShared {
    fn new(config: GpuConfig, open: Box<OpenDevice>, rest: Duration) -> Self {
        let queue = Arc::<PortQueue>::default();
        queue.stop();
        let begun = Instant::now();
        let tables = config.tables != Tables::No;
        Self {
            config,
            trials: Trials::default(),
            open,
            rest,
            queue: Mutex::new(queue),
            memory: Mutex::default(),
            end: PortQueue::default(),
            state: Mutex::new(DeviceState {
                stats: GpuStats::default(),
                limits: GpuLimits {
                    tables,
                    ..GpuLimits::default()
                },
                version: 0,
                failed: Some((begun, "it is being opened and tested".to_owned())),
            }),
            begun,
            asked_ms: AtomicU64::new(0),
            latency: Arc::default(),
        }
    }

    fn open(&self) -> Result<Untested, DeviceError> {
        let queue = Arc::<PortQueue>::default();
        let wake: Wake = Arc::new({
            let queue = Arc::clone(&queue);
            move || queue.wake()
        });
        let device = (self.open)(&self.config, wake)?;
        Ok(Untested { device, queue })
    }

    fn test(&self, Untested { device, queue }: Untested) -> Result<Opened, DeviceError> {
        let choice = LaunchChoice {
            residue: self.trials.gpu_residue,
            ..LaunchChoice::default()
        };
        // A device that fails is not freed: see [`GpuShared::run`].
        let mut gpu = ManuallyDrop::new(Gpu::new(device, choice));
        let passed = self_test::run(&mut gpu);
        let gpu = ManuallyDrop::into_inner(gpu);
        if let Err(error) = passed {
            gpu.abandon();
            return Err(error);
        }
        for transform in gpu.disabled() {
            tracing::error!("the GPU gives wrong results for {transform}: the CPU does it");
        }
        tracing::info!(device = gpu.name(), memory = ?gpu.memory(), "the GPU is ready");
        Ok(Opened { gpu, queue })
    }

    /// Lets the ports use the device.
    fn begin(&self, Opened { gpu, queue }: &Opened) {
        *lock(&self.queue) = Arc::clone(queue);
        *lock(&self.memory) = gpu.memory().cloned();
        self.report(gpu);
        self.ask();
        let mut state = lock(&self.state);
        state.failed = None;
        let limits = GpuLimits {
            tables: gpu.tables(),
            disabled: gpu.disabled().to_vec(),
            keys: gpu.rows(),
        };
        if state.limits != limits {
            state.limits = limits;
            state.version += 1;
        }
    }

    fn fail(&self, why: &str) {
        tracing::error!("the GPU is out of service: {why}");
        lock(&self.state).failed = Some((Instant::now(), why.to_owned()));
    }

    /// Returns why the device is out of service, and since when.
    fn failed(&self) -> Option<(Instant, String)> {
        let failed = lock(&self.state).failed.clone();
        failed.or_else(|| {
            let asked = Duration::from_millis(self.asked_ms.load(Ordering::Relaxed));
            let asked = self.begun + asked;
            let why = || "a call of its driver does not return".to_owned();
            (asked.elapsed() > HUNG).then(|| (asked, why()))
        })
    }

    /// Notes that the thread asks the driver something now.
    fn ask(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.asked_ms.store(now, Ordering::Relaxed);
    }

    /// Drives the device, and opens it again when it fails, until the end of the gateway.
    fn run(&self, opened: Option<Opened>) {
        let (mut opened, mut failures) = (opened, 0);
        loop {
            if opened.is_none() {
                failures += 1;
                opened = self.open_again(&mut failures);
            }
            let Some(Opened { gpu, queue }) = opened.take() else {
                return;
            };
            // The gateway may have ended meanwhile, and has stopped the former queue.
            if !self.end.wait(false, Duration::ZERO) {
                return;
            }
            // A driver that has failed may fail again, or stand still, when it frees what it has. So a failed device is
            // not freed.
            let mut gpu = ManuallyDrop::new(gpu);
            let driven = catch_unwind(AssertUnwindSafe(|| self.drive(&mut gpu, &queue)));
            let gpu = ManuallyDrop::into_inner(gpu);
            let error = match driven {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("its thread panicked".to_owned()),
            };
            // Who finds the queue stopped is to find the device out of service.
            if let Some(error) = &error {
                self.fail(error);
            }
            // Whatever the ports have left behind is done by the CPU, from the workers' copies.
            queue.stop();
            if error.is_none() {
                return drop(gpu);
            }
            self.report(&gpu);
            gpu.abandon();
        }
    }

    /// Opens and tests a device that has failed, each time after a rest, and lets the ports use it. Returns `None` at the
    /// end of the gateway, or when the device has failed too often: what a device has that fails is not freed.
    fn open_again(&self, failures: &mut u32) -> Option<Opened> {
        let panicked = |_| DeviceError::Call {
            call: "the GPU's thread",
            why: "it panicked".to_owned(),
        };
        while *failures < FAILURES_MAX {
            if !self.end.wait(false, self.rest) {
                return None;
            }
            let open = AssertUnwindSafe(|| self.open());
            let untested = match catch_unwind(open).map_err(panicked).flatten() {
                Ok(untested) => untested,
                Err(error) => {
                    tracing::warn!("the GPU cannot be opened again: {error}");
                    continue;
                }
            };
            let test = AssertUnwindSafe(|| self.test(untested));
            match catch_unwind(test).map_err(panicked).flatten() {
                Ok(opened) => {
                    self.begin(&opened);
                    return Some(opened);
                }
                Err(error) => tracing::warn!("the GPU fails its test: {error}"),
            }
            *failures += 1;
        }
        tracing::error!("the GPU has failed {failures} times and stays out of service");
        None
    }

    /// Carries batches until the queue is stopped.
    fn drive(&self, gpu: &mut Gpu, queue: &PortQueue) -> Result<(), DeviceError> {
        let mut under_way = VecDeque::<(Vec<PortPlace>, Instant)>::new();
        let (mut changed, mut reported) = (false, Instant::now());
        loop {
            self.ask();
            while let Some(batches) = gpu.poll()? {
                changed = true;
                if let Some((places, _)) = under_way.pop_front() {
                    give_back(places, batches);
                }
            }
            if changed && reported.elapsed() > LOOK {
                (changed, reported) = (false, Instant::now());
                self.report(gpu);
            }
            let work = match gpu.can_start() {
                true => take(queue, gpu),
                false => Vec::new(),
            };
            if !work.is_empty() {
                changed = true;
                let (places, batches): (Vec<_>, Vec<_>) =
                    work.into_iter().map(|work| (work.from, work.batch)).unzip();
                match gpu.start(batches)? {
                    Some(batches) => give_back(places, batches),
                    None => under_way.push_back((places, Instant::now())),
                }
                if self.trials.gpu_fail_after == Some(gpu.counters().launches) {
                    return Err(DeviceError::Call {
                        call: "a launch",
                        why: "the trial wants it".to_owned(),
                    });
                }
                continue;
            }
            if let Some((_, since)) = under_way.front()
                && since.elapsed() > HUNG
            {
                return Err(DeviceError::Call {
                    call: "a launch",
                    why: format!("it is under way for {} ms", HUNG.as_millis()),
                });
            }
            changed |= gpu.sweep()? > 0;
            if !queue.wait(gpu.can_start(), LOOK) {
                return end(gpu);
            }
        }
    }

    fn report(&self, gpu: &Gpu) {
        let counters = gpu.counters();
        lock(&self.state).stats = GpuStats {
            device: gpu.name().to_owned(),
            tables: gpu.tables(),
            keys: gpu.keys(),
            launches: counters.launches,
            launches_in_place: counters.in_place,
            device_packets: counters.device_jobs,
            cpu_packets: counters.cpu_jobs,
            checked: counters.checked,
            disabled: gpu.disabled().iter().map(ToString::to_string).collect(),
            failed: None,
            failed_for: None,
        };
    }
}

impl std::fmt::Debug for GpuShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuShared")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Waits for the launches under way, so that the keys can be overwritten.
fn end(gpu: &mut Gpu) -> Result<(), DeviceError> {
    let begun = Instant::now();
    while gpu.under_way() > 0 && begun.elapsed() < HUNG {
        if gpu.poll()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Takes batches of one direction, as many as fit a launch. A batch that alone is too much is taken by itself.
fn take(queue: &PortQueue, gpu: &Gpu) -> Vec<PortWork> {
    let limits = gpu.limits();
    let (mut words, mut jobs) = (0, 0);
    let mut direction = None;
    queue.take(|batch| {
        let of_batch = (words_of(batch), batch.jobs.len());
        let is_first = direction.is_none();
        let fits = words + of_batch.0 <= limits.words && jobs + of_batch.1 <= limits.jobs;
        let wants =
            *direction.get_or_insert(batch.direction) == batch.direction && (fits || is_first);
        if wants {
            words += of_batch.0;
            jobs += of_batch.1;
        }
        wants
    })
}

fn give_back(places: Vec<PortPlace>, batches: Vec<Batch>) {
    for (place, batch) in places.into_iter().zip(batches) {
        place.finish(batch);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
