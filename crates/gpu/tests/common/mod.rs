//! Keys, batches and the comparison with the CPU engine.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod plain;
pub mod stand_in;

use std::sync::Arc;

use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, SlotTable, Transform, cpu};
use esplanade_gpu::suite::Suite;
use esplanade_gpu::{Device, DeviceError, DeviceOptions, Gpu, LaunchChoice, OpenCl, Tables};

/// The device that `ESPLANADE_GPU` names by a part of its name. The default is PoCL, which runs the kernels on the CPU.
fn wanted() -> String {
    std::env::var("ESPLANADE_GPU").unwrap_or_else(|_| "Portable".to_owned())
}

/// The forms of the kernels. A CPU that carries OpenCL has tables only by force.
pub const FORMS: [Tables; 2] = [Tables::No, Tables::Force];

/// Opens the device. Returns `None`, saying so, where there is none.
pub fn device(tables: Tables) -> Option<Box<dyn Device>> {
    or_skip(esplanade_gpu::open(
        Some(&wanted()),
        tables,
        Arc::new(|| {}),
    ))
}

/// Opens the device by OpenCL.
pub fn opencl_with(options: DeviceOptions) -> Option<OpenCl> {
    or_skip(OpenCl::open_with(Some(&wanted()), Arc::new(|| {}), options))
}

fn or_skip<T>(opened: Result<T, DeviceError>) -> Option<T> {
    match opened {
        Ok(device) => Some(device),
        Err(error @ (DeviceError::NoLibrary(_) | DeviceError::NoDevice { .. })) => {
            println!("SKIP opencl: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// An engine that gives the device all jobs that its kernels have.
pub fn gpu(device: impl Device + 'static) -> Gpu {
    gpu_of(Box::new(device))
}

/// The same, over a device of any library.
pub fn gpu_of(device: Box<dyn Device>) -> Gpu {
    let choice = LaunchChoice {
        residue: true,
        ..LaunchChoice::default()
    };
    Gpu::new(device, choice)
}

/// A generator of numbers that are the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.below(256) as u8);
    }
}

/// The transforms that the kernels have, in one direction at least.
pub fn carried() -> Vec<Transform> {
    let has = |transform: &Transform| Suite::of(*transform, false).is_some();
    Transform::all().filter(has).collect()
}

/// Makes keys of the transforms in turn, half of them with ESN.
pub fn keys(
    transforms: &[Transform],
    count: usize,
    numbers: &mut Numbers,
) -> SlotTable<KeyContext> {
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
pub fn batch(
    keys: &SlotTable<KeyContext>,
    count: usize,
    jobs: usize,
    numbers: &mut Numbers,
) -> Batch {
    batch_up_to(1500, keys, count, jobs, numbers)
}

/// The same, with payloads below a length.
pub fn batch_up_to(
    longest: usize,
    keys: &SlotTable<KeyContext>,
    count: usize,
    jobs: usize,
    numbers: &mut Numbers,
) -> Batch {
    let mut batch = Batch::new(Direction::Seal, jobs * 1700, jobs);
    batch.keys = keys.clone();
    numbers.fill(&mut batch.buffer);
    for _ in 0..jobs {
        let key = numbers.below(count) as u32;
        let transform = keys.get(key).unwrap().transform();
        let payload = match numbers.below(4) {
            0 => numbers.below(64),
            1 => longest - numbers.below(longest / 15),
            _ => numbers.below(longest),
        };
        let len = transform.sealed_len(payload);
        let gap = numbers.below(3) * 20;
        let esp = batch.reserve(gap + len).unwrap() + gap;
        batch.jobs.push(Job {
            key,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence: ((numbers.below(1 << 20) as u64) << 30) | numbers.below(1 << 30) as u64,
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

/// Moves a batch into the memory that host and device share. Returns `None` if the device has no such memory.
pub fn in_memory(gpu: &Gpu, batch: &Batch) -> Option<Batch> {
    let arena = gpu.memory()?.arena(batch.buffer.len())?;
    let mut moved = Batch::in_arena(batch.direction, arena, batch.jobs.len());
    assert!(moved.copy_from(batch, None), "the arenas are of one length");
    Some(moved)
}

/// Carries batches by the device, in one launch, and compares each with what the CPU makes of it.
pub fn carry(gpu: &mut Gpu, batches: Vec<Batch>, what: &str) -> Vec<Batch> {
    let expected: Vec<Batch> = batches
        .iter()
        .map(|batch| {
            let mut expected = batch.copied();
            cpu::process(&mut expected);
            expected
        })
        .collect();
    let done = gpu.carry(batches).unwrap();
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
        // The bytes between the packets come back too.
        let used = ..done.used();
        assert!(done.buffer[used] == expected.buffer[used], "{what}");
    }
    done
}

/// Seals the batches, spoils some packets, and opens them.
pub fn there_and_back(gpu: &mut Gpu, batches: Vec<Batch>, numbers: &mut Numbers) {
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
