//! A device that is wrong in one lane, or refuses a launch, is noticed.

mod common;

use std::sync::{Arc, Mutex};

use common::plain::Plain;
use common::{Numbers, batch, carried, keys};
use esplanade_crypto::{Batch, Direction, Transform};
use esplanade_gpu::device::FinishedLaunch;
use esplanade_gpu::keys::RawKey;
use esplanade_gpu::launch::{Launch, LaunchLimits};
use esplanade_gpu::{Device, DeviceError, Gpu, self_test};

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A byte of this job's payload is wrong after sealing.
    WrongSeal(usize),
    /// The verdict of this job is that it is authentic.
    Accepts(usize),
    /// The verdict of this job is none.
    NoVerdict(usize),
    RefusesLaunch,
    RefusesKeys,
    None,
}

/// A device that works but for one fault. It notes the rows that it is to wipe.
struct Faulty {
    inner: Plain,
    fault: Fault,
    wiped: Arc<Mutex<Vec<u32>>>,
}

fn refused() -> DeviceError {
    DeviceError::Call {
        call: "the trial",
        why: "it was told to".to_owned(),
    }
}

impl Device for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn tables(&self) -> bool {
        self.inner.tables()
    }

    fn limits(&self) -> LaunchLimits {
        self.inner.limits()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn load_keys(&mut self, keys: &[RawKey]) -> Result<(), DeviceError> {
        match self.fault {
            Fault::RefusesKeys => Err(refused()),
            _ => self.inner.load_keys(keys),
        }
    }

    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError> {
        self.wiped.lock().unwrap().extend(rows);
        self.inner.wipe_keys(rows)
    }

    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError> {
        match self.fault {
            Fault::RefusesLaunch => Err(refused()),
            _ => self.inner.start(launch, batches),
        }
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        let mut finished = self.inner.poll()?;
        if let Some(finished) = &mut finished {
            spoil(finished, self.fault);
        }
        Ok(finished)
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        self.poll()
    }

    fn under_way(&self) -> usize {
        self.inner.under_way()
    }
}

fn spoil(finished: &mut FinishedLaunch, fault: Fault) {
    let seals = finished.launch.direction == Direction::Seal;
    match fault {
        Fault::WrongSeal(job) if seals => {
            if let Some((batch, number)) = finished.launch.places.get(job) {
                let batch = &mut finished.batches[*batch as usize];
                let at = batch.jobs[*number as usize].esp as usize + 24;
                batch.buffer[at] ^= 4;
            }
        }
        Fault::Accepts(job) if !seals => {
            if let Some(verdict) = finished.verdicts.get_mut(job) {
                *verdict = 1;
            }
        }
        Fault::NoVerdict(job) => {
            if let Some(verdict) = finished.verdicts.get_mut(job) {
                *verdict = 0;
            }
        }
        _ => {}
    }
}

fn faulty(fault: Fault, tables: bool) -> Option<Gpu> {
    let inner = Plain::compile(tables)?;
    let wiped = Arc::default();
    Some(common::gpu(Faulty {
        inner,
        fault,
        wiped,
    }))
}

#[test]
fn the_self_test_disables_what_is_wrong() {
    // Job 2 of a batch that fills lanes is forged, so the second fault accepts a forged packet.
    for (fault, tables) in [
        (Fault::WrongSeal(130), false),
        (Fault::Accepts(132), false),
        (Fault::WrongSeal(130), true),
    ] {
        let Some(mut gpu) = faulty(fault, tables) else {
            return;
        };
        self_test::run(&mut gpu).unwrap();
        let disabled = gpu.disabled();
        assert!(disabled.len() > 30, "{fault:?}: {disabled:?}");
        // Kernels without tables never seal 3DES, so a wrong seal there goes unseen.
        let des = Transform::from_name("3DES/HMAC_SHA1_96").unwrap();
        let seals_des = tables || matches!(fault, Fault::Accepts(_));
        assert_eq!(disabled.contains(&des), seals_des, "{fault:?}");
    }
}

#[test]
fn a_device_that_cannot_be_tested_is_refused() {
    for fault in [
        Fault::NoVerdict(3),
        Fault::RefusesLaunch,
        Fault::RefusesKeys,
    ] {
        let Some(mut gpu) = faulty(fault, false) else {
            return;
        };
        self_test::run(&mut gpu).unwrap_err();
    }
}

#[test]
fn the_cpu_notices_a_wrong_packet() {
    let Some(mut gpu) = faulty(Fault::WrongSeal(0), false) else {
        return;
    };
    let numbers = &mut Numbers(3);
    let transform: Transform = carried()[0];
    let keys = keys(&[transform], 1, numbers);
    // The first sealed packet is compared.
    let error = gpu.carry(vec![batch(&keys, 1, 40, numbers)]).unwrap_err();
    assert_eq!(error, DeviceError::Wrong(transform.name()));
}

#[test]
fn a_key_leaves_the_device_when_its_sa_is_gone() {
    let Some(inner) = Plain::compile(false) else {
        return;
    };
    let wiped = Arc::new(Mutex::new(Vec::new()));
    let mut gpu = common::gpu(Faulty {
        inner,
        fault: Fault::None,
        wiped: Arc::clone(&wiped),
    });
    let numbers = &mut Numbers(5);
    let keys = keys(&[carried()[0]], 1, numbers);
    let row = keys.get(0).unwrap().slot().index;
    let done = gpu.carry(vec![batch(&keys, 1, 40, numbers)]).unwrap();
    drop(done);
    assert_eq!((gpu.sweep(), gpu.keys()), (Ok(0), 1));
    assert!(wiped.lock().unwrap().is_empty(), "its SA is there");
    drop(keys);
    let count: usize = (0..64).map(|_| gpu.sweep().unwrap()).sum();
    assert_eq!((count, gpu.keys()), (1, 0));
    assert_eq!(*wiped.lock().unwrap(), [row]);
}

/// The kernels read and write whole words.
#[test]
fn a_packet_that_begins_within_a_word_is_the_cpus() {
    let Some(plain) = Plain::compile(false) else {
        return;
    };
    let mut gpu = common::gpu(plain);
    let numbers = &mut Numbers(6);
    let transform = carried()[0];
    let keys = keys(&[transform], 1, numbers);
    let mut batch = batch(&keys, 1, 40, numbers);
    let len = transform.sealed_len(100);
    let esp = batch.reserve(len + 4).unwrap() + 2;
    let mut job = batch.jobs[0];
    (job.esp, job.len) = (esp as u32, len as u32);
    batch.buffer[esp + 4..][..4].copy_from_slice(&(job.sequence as u32).to_be_bytes());
    batch.jobs.push(job);
    common::carry(&mut gpu, vec![batch], "a packet within a word");
    assert_eq!(gpu.counters().cpu_jobs, 1);
}
