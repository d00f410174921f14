//! Holds the device against the CPU engine, byte for byte. `ESPLANADE_OPENCL` names the device by a part of its name;
//! the default is PoCL, which runs the kernels on the CPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esplanade_crypto::self_test::Trial;
use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, SlotTable, Transform, cpu};
use esplanade_gpu::suite::Suite;
use esplanade_gpu::{Arrangement, DeviceError, Gpu, GpuOptions, OpenCl};

/// One test at a time uses the device.
static DEVICE: Mutex<()> = Mutex::new(());

/// Returns the device with everything sent to it, or `None`, saying so, where there is no OpenCL.
fn gpu(arrangement: Arrangement, residue: bool) -> Option<(MutexGuard<'static, ()>, Gpu)> {
    let guard = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = std::env::var("ESPLANADE_OPENCL").unwrap_or_else(|_| "Portable".to_owned());
    let device = match OpenCl::open(Some(&wanted), Arc::new(|| {})) {
        Ok(device) => device,
        Err(error @ (DeviceError::NoLibrary | DeviceError::NoDevice { .. })) => {
            println!("SKIP opencl: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let options = GpuOptions {
        arrangement,
        residue,
    };
    Some((guard, Gpu::new(Box::new(device), options)))
}

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.below(256) as u8);
    }
}

fn carried() -> Vec<Transform> {
    let has = |transform: &Transform| Suite::of(*transform).is_some();
    Transform::all().filter(has).collect()
}

/// Makes keys of the transforms in turn, half of them with ESN.
fn keys(transforms: &[Transform], count: usize, numbers: &mut Numbers) -> SlotTable<KeyContext> {
    let mut keys = SlotTable::new();
    for number in 0..count {
        let transform = transforms[number % transforms.len()];
        let mut material = vec![0; transform.key_material_len()];
        numbers.fill(&mut material);
        let esn = number / transforms.len() % 2 == 1;
        let key = KeyContext::new(transform, esn, &material).unwrap();
        keys.insert(number as u32, Arc::new(key));
    }
    keys
}

/// Makes a batch of packets to be sealed, with gaps between some of them.
fn batch(keys: &SlotTable<KeyContext>, count: usize, jobs: usize, numbers: &mut Numbers) -> Batch {
    let mut batch = Batch::new(Direction::Seal, jobs * 1700, jobs);
    batch.keys = keys.clone();
    numbers.fill(&mut batch.buffer);
    for _ in 0..jobs {
        let key = numbers.below(count) as u32;
        let transform = keys.get(key).unwrap().transform();
        let payload = match numbers.below(4) {
            0 => numbers.below(64),
            1 => 1400 + numbers.below(100),
            _ => numbers.below(1500),
        };
        let len = transform.sealed_len(payload);
        let gap = numbers.below(3) * 20;
        let esp = batch.reserve(gap + len).unwrap() + gap;
        batch.jobs.push(Job {
            key,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence: (numbers.below(1 << 20) as u64) << 30 | numbers.below(1 << 30) as u64,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    // The sequence number in the packet is the low half (RFC 4303 §2.2.1).
    for job in &batch.jobs {
        let low = (job.sequence as u32).to_be_bytes();
        batch.buffer[job.esp as usize + 4..][..4].copy_from_slice(&low);
    }
    batch
}

fn copy(batch: &Batch) -> Batch {
    let mut copied = Batch::new(batch.direction, batch.buffer.len(), batch.jobs.len());
    copied.copy_from(batch, None);
    copied
}

/// Carries batches by the device, in one launch, and compares each with what the CPU makes of it.
fn carry(gpu: &mut Gpu, batches: Vec<Batch>, what: &str) -> Vec<Batch> {
    let expected: Vec<Batch> = batches
        .iter()
        .map(|batch| {
            let mut expected = copy(batch);
            cpu::process(&mut expected);
            expected
        })
        .collect();
    let done = match gpu.start(batches).unwrap() {
        Some(done) => done,
        None => gpu.wait().unwrap().unwrap(),
    };
    assert_eq!(done.len(), expected.len());
    for (done, expected) in done.iter().zip(&expected) {
        for (number, (job, wanted)) in done.jobs.iter().zip(&expected.jobs).enumerate() {
            let transform = done.keys.get(job.key).unwrap().transform();
            assert_eq!(job.status, wanted.status, "{what} {number}: {transform}");
            let range = job.esp as usize..(job.esp + job.len) as usize;
            let at = done.buffer[range.clone()]
                .iter()
                .zip(&expected.buffer[range])
                .position(|(byte, wanted)| byte != wanted);
            assert_eq!(at, None, "{what} {number}: {transform}, {} bytes", job.len);
        }
        // What lies between the packets comes back too.
        assert!(
            done.buffer[..done.used()] == expected.buffer[..done.used()],
            "{what}"
        );
    }
    done
}

/// Seals the batches, spoils some packets, and opens them.
fn there_and_back(gpu: &mut Gpu, batches: Vec<Batch>, numbers: &mut Numbers) {
    let mut sealed = carry(gpu, batches, "sealing");
    let mut forged = 0;
    for batch in &mut sealed {
        batch.direction = Direction::Open;
        for number in 0..batch.jobs.len() {
            let job = &mut batch.jobs[number];
            assert_eq!(job.status, JobStatus::Done);
            job.status = JobStatus::Pending;
            if numbers.below(8) == 0 {
                let at = job.esp as usize + numbers.below(job.len as usize);
                batch.buffer[at] ^= 1 << numbers.below(8);
                forged += 1;
            }
        }
    }
    let opened = carry(gpu, sealed, "opening");
    let refused = opened
        .iter()
        .flat_map(|batch| &batch.jobs)
        .filter(|job| job.status == JobStatus::AuthFailed)
        .count();
    assert_eq!(refused, forged);
}

#[test]
fn every_transform_is_as_the_cpu_has_it() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, true) else {
        return;
    };
    for (number, transform) in carried().into_iter().enumerate() {
        let numbers = &mut Numbers(number as u64 + 1);
        let keys = keys(&[transform], 4, numbers);
        let batches = vec![batch(&keys, 4, 70, numbers)];
        there_and_back(&mut gpu, batches, numbers);
    }
    assert_eq!(gpu.counters().cpu_jobs, 0);
}

#[test]
fn a_mix_of_all_transforms_is_as_the_cpu_has_it() {
    for arrangement in [Arrangement::Full, Arrangement::ByKind, Arrangement::Arrival] {
        let Some((_guard, mut gpu)) = gpu(arrangement, true) else {
            return;
        };
        let numbers = &mut Numbers(99);
        let (transforms, keys_count) = (carried(), 500);
        let keys = keys(&transforms, keys_count, numbers);
        let jobs = if arrangement == Arrangement::Full {
            10_000
        } else {
            1000
        };
        for _ in 0..jobs / 1000 {
            let batches = [300, 1, 500, 199]
                .map(|jobs| batch(&keys, keys_count, jobs, numbers))
                .into_iter()
                .collect();
            there_and_back(&mut gpu, batches, numbers);
        }
        // A thousand packets do not name every key.
        assert!((400..=keys_count).contains(&gpu.keys()));
        assert_eq!(gpu.counters().device_jobs, 2 * jobs as u64);
        assert!(gpu.counters().checked > 0);
        drop(keys);
        // All keys are wiped when their SAs are gone.
        (0..64).for_each(|_| gpu.sweep().unwrap());
        assert_eq!(gpu.keys(), 0);
    }
}

#[test]
fn the_cpu_gets_what_the_kernels_lack_and_what_fills_no_warp() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, false) else {
        return;
    };
    let numbers = &mut Numbers(7);
    let transforms: Vec<_> = Transform::ESP.to_vec();
    let keys = keys(&transforms, transforms.len(), numbers);
    let batches = (0..4)
        .map(|_| batch(&keys, transforms.len(), 400, numbers))
        .collect();
    there_and_back(&mut gpu, batches, numbers);
    let counters = gpu.counters();
    assert!(counters.cpu_jobs > 0 && counters.device_jobs > 0);
    assert_eq!(counters.cpu_jobs + counters.device_jobs, 3200);
    assert_eq!(counters.device_jobs % 32, 0);
}

#[test]
fn known_answers_of_every_transform() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, true) else {
        return;
    };
    for direction in [Direction::Seal, Direction::Open] {
        let (trial, batch) = Trial::new(direction).unwrap();
        let done = match gpu.start(vec![batch]).unwrap() {
            Some(done) => done,
            None => gpu.wait().unwrap().unwrap(),
        };
        assert_eq!(trial.check(&done[0]), Ok(()));
    }
}

#[test]
fn several_launches_are_under_way_and_come_back_in_order() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, true) else {
        return;
    };
    let numbers = &mut Numbers(31);
    let transforms = carried();
    let keys = keys(&transforms, 40, numbers);
    let mut expected = Vec::new();
    while gpu.can_start() {
        let batch = batch(&keys, 40, 64 + expected.len(), numbers);
        let mut wanted = copy(&batch);
        cpu::process(&mut wanted);
        expected.push(wanted);
        assert!(gpu.start(vec![batch]).unwrap().is_none());
    }
    assert!(expected.len() >= 2);
    for wanted in expected {
        let done = gpu.wait().unwrap().unwrap();
        let used = ..wanted.used();
        assert!(done[0].buffer[used] == wanted.buffer[used]);
    }
    assert!(gpu.wait().unwrap().is_none());
}
