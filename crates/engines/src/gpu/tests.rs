//! Tests that the thread gives batches back in order, and that the CPU does what the device cannot.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use esplanade_crypto::RejectReason;
use esplanade_crypto::self_test::Trial;
use esplanade_gpu::Device;
use esplanade_gpu::device::FinishedLaunch;
use esplanade_gpu::keys::RawKey;
use esplanade_gpu::launch::{Launch, LaunchLimits};

use super::*;
use esplanade_host::io::sys::{EVENTS_MAX, Epoll};

/// Starts the engine on PoCL, or says that there is no OpenCL.
fn engine() -> Option<GpuEngine> {
    let config = GpuConfig {
        device: Some("Portable".to_owned()),
        ..GpuConfig::default()
    };
    let trials = Trials {
        gpu_residue: true,
        ..Trials::default()
    };
    match GpuEngine::start(&config, trials) {
        Ok(engine) => Some(engine),
        Err(error @ (DeviceError::NoLibrary(_) | DeviceError::NoDevice { .. })) => {
            println!("SKIP opencl: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn port(engine: &GpuEngine) -> EnginePort {
    let queue = Arc::clone(&lock(&engine.shared.queue));
    let info = EngineInfo {
        depth: DEPTH,
        ..EngineInfo::AT_ONCE
    };
    EnginePort::new(queue, info).unwrap()
}

fn wait(port: &mut EnginePort) -> Batch {
    let epoll = Epoll::new().unwrap();
    epoll.add(port.ready_fd().unwrap().as_fd(), 0).unwrap();
    loop {
        if let Some(batch) = port.poll() {
            return batch;
        }
        let ready = epoll.wait(&mut [0; EVENTS_MAX], Duration::from_secs(10));
        assert!(ready.unwrap() > 0, "nothing comes back");
    }
}

#[test]
fn batches_of_several_ports_come_back_in_order() {
    let Some(engine) = engine() else { return };
    let mut ports = [port(&engine), port(&engine)];
    for _ in 0..3 {
        let mut trials = Vec::new();
        for (number, port) in ports.iter_mut().enumerate() {
            for round in 0..DEPTH {
                let direction = match (round + number) % 3 {
                    0 => Direction::Open,
                    _ => Direction::Seal,
                };
                let (trial, batch) = Trial::new(direction).unwrap();
                port.submit(batch).unwrap();
                trials.push(trial);
            }
            let (_, batch) = Trial::new(Direction::Seal).unwrap();
            let refused = port.submit(batch).unwrap_err();
            assert_eq!(refused.reason, RejectReason::Full);
        }
        let mut trials = trials.into_iter();
        for port in &mut ports {
            for trial in trials.by_ref().take(DEPTH) {
                assert_eq!(trial.check(&wait(port)), Ok(()));
            }
        }
    }
    // The thread reports after it has given back.
    let begun = Instant::now();
    while engine.stats().device_packets == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = engine.stats();
    assert!(
        stats.device.contains("Portable Computing Language") && stats.cpu_packets > 0,
        "{stats:?}"
    );
    assert!(stats.disabled.is_empty() && stats.failed.is_none());
}

#[test]
fn an_engine_that_ended_takes_nothing() {
    let Some(engine) = engine() else { return };
    let mut port = port(&engine);
    drop(engine);
    let (_, batch) = Trial::new(Direction::Seal).unwrap();
    let refused = port.submit(batch).unwrap_err();
    assert_eq!(refused.reason, RejectReason::OutOfService);
}

/// A device that takes launches and never answers.
#[derive(Default)]
struct Hanging {
    launches: Vec<(Launch, Vec<Batch>)>,
}

impl Device for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn limits(&self) -> LaunchLimits {
        LaunchLimits {
            words: 1 << 20,
            jobs: 4096,
        }
    }

    fn depth(&self) -> usize {
        2
    }

    fn rows(&self) -> usize {
        1 << 16
    }

    fn load_keys(&mut self, _: &[RawKey]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn wipe_keys(&mut self, _: &[u32]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError> {
        self.launches.push((launch, batches));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        Ok(None)
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        Ok(None)
    }

    fn under_way(&self) -> usize {
        self.launches.len()
    }
}

#[test]
fn a_device_that_hangs_is_given_up() {
    let open = |_: &GpuConfig, _: Wake| -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(Hanging::default()))
    };
    let shared = GpuShared::new(GpuConfig::default(), Box::new(open), REST);
    let choice = LaunchChoice {
        residue: true,
        ..LaunchChoice::default()
    };
    let mut gpu = Gpu::new(Box::new(Hanging::default()), choice);
    let queue = Arc::<PortQueue>::default();
    let mut port = EnginePort::new(Arc::clone(&queue), EngineInfo::AT_ONCE).unwrap();
    let (_, batch) = Trial::new(Direction::Seal).unwrap();
    port.submit(batch).unwrap();
    let error = shared.drive(&mut gpu, &queue).unwrap_err();
    assert!(
        error.to_string().contains("under way for 900 ms"),
        "{error}"
    );
    assert!(port.poll().is_none());
}

#[test]
fn tables_seal_3des_too() {
    let carried = |direction, tables| -> Vec<Transform> {
        let all = Transform::ESP.into_iter();
        all.filter(|transform| carries(*transform, direction, tables))
            .collect()
    };
    let opened = carried(Direction::Open, false);
    assert_eq!(carried(Direction::Open, true), opened);
    assert_eq!(carried(Direction::Seal, true), opened);
    let sealed = carried(Direction::Seal, false);
    let lacking = opened
        .iter()
        .filter(|transform| !sealed.contains(transform));
    let names: Vec<_> = lacking.map(|transform| transform.name()).collect();
    assert_eq!(names.len(), 3);
    assert!(
        names.iter().all(|name| name.starts_with("3DES/")),
        "{names:?}"
    );
}

fn started(
    open: impl Fn() -> Result<Box<dyn Device>, DeviceError> + Send + Sync + 'static,
    longest: Duration,
) -> Result<GpuEngine, DeviceError> {
    let open = move |_: &GpuConfig, _: Wake| open();
    let rest = Duration::from_millis(20);
    let shared = GpuShared::new(GpuConfig::default(), Box::new(open), rest);
    GpuEngine::start_with(shared, longest)
}

fn trial_error() -> DeviceError {
    DeviceError::Call {
        call: "the trial",
        why: "it was told to".to_owned(),
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_self_test_that_hangs_does_not_hold_the_start() {
    let open = || -> Result<Box<dyn Device>, DeviceError> { Ok(Box::new(Hanging::default())) };
    let engine = started(open, Duration::from_millis(50)).unwrap();
    assert!(!engine.is_in_service());
    let stats = engine.stats();
    assert_eq!(
        stats.failed.as_deref(),
        Some("it is being opened and tested")
    );
    assert!(stats.failed_for.is_some());
    let mut port = port(&engine);
    assert!(port.is_out_of_service());
    let (_, batch) = Trial::new(Direction::Seal).unwrap();
    let refused = port.submit(batch).unwrap_err();
    assert_eq!(refused.reason, RejectReason::OutOfService);
}

#[test]
fn a_device_that_fails_late_is_tried_again() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let open = move || {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        Err(trial_error())
    };
    let engine = started(open.clone(), Duration::from_millis(50)).unwrap();
    wait_until("it fails", || {
        engine.stats().failed == Some(trial_error().to_string())
    });
    wait_until("it is opened again", || calls.load(Ordering::Relaxed) > 2);
    drop(engine);
    // Whoever waits is told.
    let error = started(open, Duration::from_secs(60)).unwrap_err();
    assert_eq!(error, trial_error());
}

/// PoCL's device, which fails when it is told to.
struct Failing {
    inner: Box<dyn Device>,
    fails: Arc<AtomicBool>,
}

impl Device for Failing {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn memory(&self) -> Option<&Arc<HostMemory>> {
        self.inner.memory()
    }

    fn load_keys(&mut self, keys: &[RawKey]) -> Result<(), DeviceError> {
        self.inner.load_keys(keys)
    }

    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError> {
        self.inner.wipe_keys(rows)
    }

    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError> {
        self.inner.start(launch, batches)
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        match self.fails.swap(false, Ordering::Relaxed) {
            true => Err(trial_error()),
            false => self.inner.poll(),
        }
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        self.inner.wait()
    }

    fn under_way(&self) -> usize {
        self.inner.under_way()
    }
}

#[test]
fn idle_ports_see_that_a_device_has_failed() {
    let fails = Arc::<AtomicBool>::default();
    let told = Arc::clone(&fails);
    let open = move || -> Result<Box<dyn Device>, DeviceError> {
        let inner = esplanade_gpu::open(Some("Portable"), Tables::No, Arc::new(|| {}))?;
        let fails = Arc::clone(&told);
        Ok(Box::new(Failing { inner, fails }))
    };
    let engine = match started(open, START_MAX) {
        Ok(engine) => engine,
        Err(error @ (DeviceError::NoLibrary(_) | DeviceError::NoDevice { .. })) => {
            return println!("SKIP opencl: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert!(engine.is_in_service() && engine.stats().failed_for.is_none());
    assert!(limits(&engine).keys > 1000 && limits(&engine).disabled.is_empty());
    let memory = lock(&engine.shared.memory).clone();
    let idle = port(&engine);
    assert!(!idle.is_out_of_service());
    fails.store(true, Ordering::Relaxed);
    wait_until("it fails", || idle.is_out_of_service());
    wait_until("it is back", || engine.is_in_service());
    assert!(idle.is_out_of_service());
    let mut next = port(&engine);
    let (trial, batch) = Trial::new(Direction::Open).unwrap();
    next.submit(batch).unwrap();
    assert_eq!(trial.check(&wait(&mut next)), Ok(()));
    // Ports give out arenas of the device that is there now.
    let former = memory.map(|memory| Arc::as_ptr(&memory));
    let now = lock(&engine.shared.memory).as_ref().map(Arc::as_ptr);
    assert_ne!(former, now);
}

#[test]
fn a_call_that_does_not_return_is_seen() {
    let shared = GpuShared::new(
        GpuConfig::default(),
        Box::new(|_, _| Err(trial_error())),
        REST,
    );
    lock(&shared.state).failed = None;
    shared.ask();
    assert!(shared.failed().is_none());
    std::thread::sleep(HUNG + Duration::from_millis(20));
    let (since, why) = shared.failed().unwrap();
    assert!(why.contains("does not return") && since.elapsed() >= HUNG);
}

fn limits(engine: &GpuEngine) -> GpuLimits {
    lock(&engine.shared.state).limits.clone()
}
