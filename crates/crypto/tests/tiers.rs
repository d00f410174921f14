//! Tests every tier against the portable one, on random batches.
//!
//! A batch mixes transforms, keys, lengths, forged and malformed packets, and jobs outside of the arena. Both whole
//! arenas must be equal in the end, including the bytes between packets. A lane that writes into another packet is
//! thus found.

use std::sync::Arc;

use crate::common::{self, Bytes, fill, key, on_each_tier, with_kernel};
use esplanade_crypto::{Batch, Direction, Job, JobStatus, Tier, Transform, cpu};
use proptest::prelude::*;

/// The fault of a job.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// One bit is flipped before opening.
    Flip(proptest::sample::Index, u8),
    /// This many bytes are missing at the end.
    Short(u32),
    /// The job begins this many bytes behind the arena's end.
    Outside(u32),
    NoKey,
}

#[derive(Clone, Debug)]
struct Spec {
    transform: Transform,
    esn: bool,
    sequence: u64,
    body: usize,
    /// Number of bytes to the next packet.
    gap: usize,
    fault: Fault,
}

fn body_len() -> impl Strategy<Value = usize> {
    let boundary = proptest::sample::select(vec![
        16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048,
    ]);
    prop_oneof![
        20 => 0usize..300,
        6 => (boundary, 0usize..40).prop_map(|(at, off)| (at + off).saturating_sub(20)),
        1 => 1400usize..9000,
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        3 => (any::<proptest::sample::Index>(), 0u8..8).prop_map(|(at, bit)| Fault::Flip(at, bit)),
        1 => (1u32..60).prop_map(Fault::Short),
        1 => (0u32..100).prop_map(Fault::Outside),
        1 => Just(Fault::NoKey),
    ]
}

fn spec(transforms: Vec<Transform>) -> impl Strategy<Value = Spec> {
    let sequence = prop_oneof![any::<u64>(), any::<u32>().prop_map(u64::from)];
    let transform = proptest::sample::select(transforms);
    let gap = prop_oneof![Just(0usize), 1usize..70];
    (transform, any::<bool>(), sequence, body_len(), gap, fault()).prop_map(
        |(transform, esn, sequence, body, gap, fault)| Spec {
            transform,
            esn,
            sequence,
            body,
            gap,
            fault,
        },
    )
}

/// A batch of a few transforms, so that lanes are filled, or of all transforms.
fn specs(kernels: Vec<Transform>) -> impl Strategy<Value = Vec<Spec>> {
    let few = proptest::sample::subsequence(kernels.clone(), 1..=kernels.len().min(4));
    let transforms = prop_oneof![
        4 => few,
        1 => Just(kernels),
        1 => Just(Transform::ESP.to_vec()),
    ];
    transforms.prop_flat_map(|transforms| proptest::collection::vec(spec(transforms), 1..140))
}

/// Makes the batch with keys for the tier. The bytes are the same for every tier.
fn batch(tier: Tier, specs: &[Spec], seed: u64) -> Batch {
    let mut random = Bytes::new(seed);
    let len = |spec: &Spec| common::len(spec.transform, spec.body);
    let room: usize = specs.iter().map(|spec| len(spec) + spec.gap).sum();
    let mut batch = Batch::new(Direction::Seal, room, specs.len());
    random.fill(&mut batch.buffer);
    for (number, spec) in (0u32..).zip(specs) {
        let len = len(spec);
        let at = batch.reserve(len + spec.gap).expect("there is room");
        let bytes = &mut batch.buffer[at..at + len];
        fill(spec.transform, spec.sequence, bytes, &mut random);
        let made = key(tier, spec.transform, spec.esn, seed ^ u64::from(number));
        batch.keys.insert(number, Arc::new(made));
        batch.jobs.push(Job {
            key: number,
            esp: at as u32,
            len: len as u32,
            icv: 0,
            sequence: spec.sequence,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    batch
}

/// Makes those jobs faulty that are to be faulty from the beginning.
fn misshape(batch: &mut Batch, specs: &[Spec]) {
    let end = batch.buffer.len() as u32;
    for (job, spec) in batch.jobs.iter_mut().zip(specs) {
        match spec.fault {
            Fault::None | Fault::Flip(..) => {}
            Fault::Short(by) => job.len = job.len.saturating_sub(by),
            Fault::Outside(by) => job.esp = (end + 1 - job.len).saturating_add(by),
            Fault::NoKey => job.key = u32::MAX,
        }
    }
}

fn flip(batch: &mut Batch, specs: &[Spec]) {
    for (job, spec) in batch.jobs.iter().zip(specs) {
        if let Fault::Flip(at, bit) = spec.fault {
            let at = at.index(job.len as usize);
            batch.buffer[job.esp as usize + at] ^= 1 << bit;
        }
    }
}

fn statuses(batch: &Batch) -> Vec<JobStatus> {
    batch.jobs.iter().map(|job| job.status).collect()
}

/// Returns the bytes that belong to no job.
fn between(batch: &Batch) -> Vec<u8> {
    let mut free = vec![true; batch.buffer.len()];
    for job in &batch.jobs {
        let (start, end) = (job.esp as usize, (job.esp + job.len) as usize);
        if let Some(taken) = free.get_mut(start..end) {
            taken.fill(false);
        }
    }
    let bytes = batch.buffer.iter().zip(free);
    bytes
        .filter_map(|(byte, free)| free.then_some(*byte))
        .collect()
}

fn compare(tier: Tier, specs: &[Spec], seed: u64) -> Result<(), TestCaseError> {
    let mut ours = batch(tier, specs, seed);
    let mut reference = batch(Tier::Portable, specs, seed);
    let untouched = between(&ours);
    // All packets are sealed; faulty jobs stay untouched. A shortened packet that fits its transform counts as a
    // packet.
    for batch in [&mut ours, &mut reference] {
        misshape(batch, specs);
        cpu::process(batch);
    }
    prop_assert_eq!(statuses(&ours), statuses(&reference));
    same(&ours, &reference)?;
    for batch in [&mut ours, &mut reference] {
        flip(batch, specs);
        batch.direction = Direction::Open;
        cpu::process(batch);
    }
    prop_assert_eq!(statuses(&ours), statuses(&reference));
    same(&ours, &reference)?;
    if specs
        .iter()
        .all(|spec| matches!(spec.fault, Fault::None | Fault::Flip(..)))
    {
        prop_assert_eq!(between(&ours), untouched);
    }
    for (job, spec) in ours.jobs.iter().zip(specs) {
        match job.status {
            JobStatus::Done => {}
            JobStatus::AuthFailed => {
                let packet = &ours.buffer[job.esp as usize..][..job.len as usize];
                let body = common::body(spec.transform, packet);
                prop_assert!(body.iter().all(|&byte| byte == 0));
            }
            JobStatus::Malformed => {
                prop_assert!(!matches!(spec.fault, Fault::None | Fault::Flip(..)))
            }
            JobStatus::Pending => prop_assert!(false, "a job was forgotten"),
        }
    }
    Ok(())
}

/// Checks that the arenas are equal, and names the first job that differs.
fn same(ours: &Batch, reference: &Batch) -> Result<(), TestCaseError> {
    let differs = |job: &&Job| {
        let range = job.esp as usize..(job.esp + job.len) as usize;
        ours.buffer.get(range.clone()) != reference.buffer.get(range)
    };
    if let Some(job) = ours.jobs.iter().find(differs) {
        let range = job.esp as usize..(job.esp + job.len) as usize;
        let transform = ours.keys.get(job.key).map(|key| key.transform().name());
        let at = ours.buffer[range.clone()]
            .iter()
            .zip(&reference.buffer[range])
            .position(|(a, b)| a != b);
        return Err(TestCaseError::fail(format!(
            "{transform:?}, {} bytes: byte {at:?} differs",
            job.len
        )));
    }
    prop_assert!(
        ours.buffer == reference.buffer,
        "a byte between packets differs"
    );
    Ok(())
}

fn run(tier: Tier, cases: u32) {
    // Transforms without a kernel would compare the library with itself, so they are left out.
    let mut transforms = with_kernel(tier);
    if transforms.is_empty() {
        transforms = Transform::ESP.to_vec();
    }
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(specs in specs(transforms.clone()), seed: u64)| compare(tier, &specs, seed)?);
}

#[test]
fn random_batches() {
    on_each_tier(|tier| {
        run(tier, if tier == Tier::Portable { 4 } else { 40 });
    });
}

/// Runs all lengths up to 300 bytes in batches as large as possible, with neighbours of different lengths.
#[test]
fn every_short_length() {
    on_each_tier(|tier| {
        for transform in with_kernel(tier) {
            let align = transform.block_align();
            let lengths = (300 / align + 1).min(140);
            let specs: Vec<Spec> = (0..140)
                .map(|number| Spec {
                    transform,
                    esn: number % 3 == 0,
                    sequence: number as u64 * 0x1_0000_0001,
                    // The order of the lengths makes neighbours differ much.
                    body: (number * 37) % lengths * align,
                    gap: number % 5,
                    fault: Fault::None,
                })
                .collect();
            compare(tier, &specs, 7).expect("as the portable tier");
        }
    });
}

/// A caller may name the same bytes in several jobs. The contents of those bytes are then unspecified. No other byte
/// changes, and every job gets a status.
#[test]
fn overlapping_jobs_harm_nobody_else() {
    on_each_tier(|tier| {
        let mut random = Bytes::new(0x0e11a9);
        for (round, transform) in with_kernel(tier).into_iter().enumerate() {
            let specs = vec![
                Spec {
                    transform,
                    esn: false,
                    sequence: 5,
                    body: 250,
                    gap: 0,
                    fault: Fault::None,
                };
                130
            ];
            let mut batch = batch(tier, &specs, round as u64);
            let (from, to) = (1000, 3000);
            for job in &mut batch.jobs {
                let len = common::len(transform, random.below(300));
                job.len = len as u32;
                job.esp = (from + random.below(to - from - len)) as u32;
            }
            let before = batch.buffer.to_vec();
            for direction in [Direction::Seal, Direction::Open] {
                batch.direction = direction;
                cpu::process(&mut batch);
                assert!(
                    !statuses(&batch).contains(&JobStatus::Pending),
                    "{transform}"
                );
                assert!(before[..from] == batch.buffer[..from], "{transform}");
                assert!(before[to..] == batch.buffer[to..], "{transform}");
            }
        }
    });
}
