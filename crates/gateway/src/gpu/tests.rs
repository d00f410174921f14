//! Tests that the thread gives batches back in order, and that the CPU does what the device cannot.

use std::os::fd::AsFd;

use esplanade_crypto::RejectReason;
use esplanade_crypto::self_test::Trial;
use esplanade_gpu::Device;
use esplanade_gpu::device::FinishedLaunch;
use esplanade_gpu::keys::RawKey;
use esplanade_gpu::launch::{Launch, LaunchLimits};

use super::*;
use crate::io::sys::{EVENTS_MAX, Epoll};

/// Starts the engine on PoCL, or says that there is no OpenCL.
fn engine() -> Option<GpuEngine> {
    let config = GpuConfig {
        device: Some("Portable".to_owned()),
        residue: true,
        ..GpuConfig::default()
    };
    match GpuEngine::start(&config) {
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
        stats.device.contains("pthread") && stats.cpu_packets > 0,
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
    let shared = GpuShared {
        memory: Mutex::default(),
        config: GpuConfig::default(),
        queue: Mutex::default(),
        end: PortQueue::default(),
        stats: Mutex::default(),
        latency: Arc::default(),
    };
    let choice = LaunchChoice {
        residue: true,
        ..LaunchChoice::default()
    };
    let mut gpu = Gpu::new(Box::new(Hanging::default()), choice);
    let queue = Arc::clone(&lock(&shared.queue));
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
