//! Every tier gives the library's results, whatever the mix of lengths, keys and algorithms.

use std::sync::Arc;

use esplanade_crypto::testing::{Family, family};
use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, Tier, Transform, cpu};

/// A small random generator. The tests need variety, not secrecy.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let x = self.0 >> 16;
        x ^ (x >> 21)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll() as u8).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct PairCase {
    transform: Transform,
    /// Body length in units of the transform's alignment; at least one.
    units: usize,
    esn: bool,
    key: u8,
}

impl PairCase {
    fn len(&self) -> usize {
        let transform = self.transform;
        8 + transform.iv_len() + transform.icv_len() + transform.block_align() * self.units
    }

    fn key(&self, tier: Tier) -> Arc<KeyContext> {
        let mut dice = Dice(self.key.into());
        let material = dice.bytes(self.transform.key_material_len());
        let key = KeyContext::for_tier(tier, self.transform, self.esn, &material);
        Arc::new(key.expect("the length is right"))
    }
}

fn tiers() -> impl Iterator<Item = Tier> {
    let kernels = [Tier::AesNi, Tier::Avx512];
    kernels.into_iter().filter(|tier| tier.available())
}

fn transforms(tier: Tier) -> Vec<Transform> {
    let has_kernel = |&transform: &Transform| {
        let case = PairCase {
            transform,
            units: 1,
            esn: false,
            key: 1,
        };
        matches!(family(&case.key(tier)), Family::Pair | Family::Des)
    };
    let transforms: Vec<_> = Transform::ESP.into_iter().filter(has_kernel).collect();
    // The ciphers are AES-CBC and AES-CTR with three key lengths, DES, 3DES and NULL; there are three hashes.
    assert_eq!(transforms.len(), 9 * 3);
    transforms
}

/// Lays out the packets with gaps between them, and makes their jobs.
fn batch(tier: Tier, direction: Direction, cases: &[PairCase], seed: u64) -> Batch {
    let mut dice = Dice(seed);
    let room = cases.iter().map(|case| case.len() + 64).sum::<usize>() + 64;
    let mut batch = Batch::new(direction, room, cases.len());
    batch.buffer.copy_from_slice(&dice.bytes(room));
    for (index, case) in cases.iter().enumerate() {
        batch.keys.insert(index as u32, case.key(tier));
        batch.reserve(dice.below(64)).expect("room");
        let esp = batch.reserve(case.len()).expect("room") as u32;
        batch.jobs.push(Job {
            key: index as u32,
            esp,
            len: case.len() as u32,
            icv: 0,
            sequence: dice.roll() << 20,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    batch
}

fn statuses(batch: &Batch) -> Vec<JobStatus> {
    batch.jobs.iter().map(|job| job.status).collect()
}

/// Seals with the tier and with the library, then opens, some packets forged. Both must leave the same bytes
/// everywhere.
fn agree(tier: Tier, cases: &[PairCase], seed: u64) {
    let make = |tier, direction| batch(tier, direction, cases, seed);
    let (mut ours, mut theirs) = (
        make(tier, Direction::Seal),
        make(Tier::Portable, Direction::Seal),
    );
    cpu::process(&mut ours);
    cpu::process(&mut theirs);
    assert_eq!(statuses(&ours), vec![JobStatus::Done; cases.len()]);
    assert!(
        ours.buffer == theirs.buffer,
        "{tier}: sealed otherwise: {cases:?}"
    );

    let mut sealed = ours.buffer;
    let mut dice = Dice(seed ^ 1);
    let mut forged = vec![JobStatus::Done; cases.len()];
    for (job, status) in ours.jobs.iter().zip(&mut forged) {
        if dice.below(4) == 0 {
            let at = dice.below(job.len as usize);
            sealed[job.esp as usize + at] ^= 1 << dice.below(8);
            *status = JobStatus::AuthFailed;
        }
    }
    let (mut ours, mut theirs) = (
        make(tier, Direction::Open),
        make(Tier::Portable, Direction::Open),
    );
    ours.buffer.copy_from_slice(&sealed);
    theirs.buffer.copy_from_slice(&sealed);
    cpu::process(&mut ours);
    cpu::process(&mut theirs);
    assert_eq!(statuses(&ours), forged, "{tier}: {cases:?}");
    assert!(
        ours.buffer == theirs.buffer,
        "{tier}: opened otherwise: {cases:?}"
    );
}

#[test]
fn every_length_of_every_transform() {
    for tier in tiers() {
        for transform in transforms(tier) {
            let units = 1..=360 / transform.block_align();
            let case = |units| PairCase {
                transform,
                units,
                esn: units % 2 == 0,
                key: units as u8,
            };
            agree(tier, &units.clone().map(case).collect::<Vec<_>>(), 3);
            let other = |units| PairCase {
                esn: units % 2 == 1,
                ..case(units)
            };
            agree(tier, &units.map(other).collect::<Vec<_>>(), 4);
        }
    }
}

#[test]
fn one_packet_alone() {
    for tier in tiers() {
        for transform in transforms(tier) {
            for units in [1, 2, 3, 5, 8, 13, 16, 17, 40, 90] {
                let esn = units % 2 == 0;
                agree(
                    tier,
                    &[PairCase {
                        transform,
                        units,
                        esn,
                        key: 9,
                    }],
                    units as u64,
                );
            }
        }
    }
}

#[test]
fn any_number_of_packets_of_any_lengths() {
    let mut dice = Dice(7);
    for tier in tiers() {
        for transform in transforms(tier) {
            for count in [2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 128, 129, 300] {
                let longest = [4, 40, 400][dice.below(3)];
                let cases: Vec<PairCase> = (0..count)
                    .map(|_| PairCase {
                        transform,
                        units: 1 + dice.below(longest),
                        esn: dice.below(2) == 0,
                        key: dice.roll() as u8,
                    })
                    .collect();
                agree(tier, &cases, dice.roll());
            }
        }
    }
}

#[test]
fn any_mix_of_transforms() {
    let mut dice = Dice(8);
    for tier in tiers() {
        let transforms = transforms(tier);
        for count in [1, 5, 16, 40, 100, 256, 600] {
            let cases: Vec<PairCase> = (0..count)
                .map(|_| PairCase {
                    transform: transforms[dice.below(transforms.len())],
                    units: 1 + dice.below(100),
                    esn: dice.below(2) == 0,
                    key: dice.roll() as u8,
                })
                .collect();
            agree(tier, &cases, dice.roll());
        }
    }
}

/// AES with the hashes of SHA-NI. These transforms exist twice: one after the other, and side by side.
fn stitched(tier: Tier) -> impl Iterator<Item = Transform> {
    transforms(tier).into_iter().filter(|transform| {
        let name = transform.name();
        name.starts_with("AES_") && !name.contains("MD5")
    })
}

#[test]
fn two_packets_of_any_two_lengths() {
    for tier in tiers() {
        for transform in stitched(tier) {
            // The hashed part ends around whole blocks of the hash, and the body around whole pieces.
            let ends = [0, 64, 128, 192, 448, 1024];
            let around = |end: usize| (end.max(16) - 16..end + 52).step_by(4);
            let units: Vec<usize> = ends
                .into_iter()
                .flat_map(around)
                .filter(|len| len % transform.block_align() == 0)
                .map(|len| (len / transform.block_align()).max(1))
                .collect();
            for (at, &one) in units.iter().enumerate() {
                let others = units.iter().skip(at % 5).step_by(5);
                for (number, &other) in others.enumerate() {
                    let case = |units, key| PairCase {
                        transform,
                        units,
                        esn: number % 2 == 0,
                        key,
                    };
                    let cases = [case(one, 1), case(other, 2), case(one, 3)];
                    agree(tier, &cases[..2 + number % 2], (at * 100 + number) as u64);
                }
            }
        }
    }
}

#[test]
fn one_refused_packet_among_good_ones() {
    const PACKETS: usize = 7;
    for tier in tiers() {
        for transform in stitched(tier) {
            let case = |number: usize| PairCase {
                transform,
                units: 40 + 3 * (number % 3),
                esn: false,
                key: number as u8 / 2,
            };
            let cases: Vec<PairCase> = (0..PACKETS).map(case).collect();
            let plain = batch(tier, Direction::Seal, &cases, 11);
            let mut sealed = batch(tier, Direction::Seal, &cases, 11);
            cpu::process(&mut sealed);
            for refused in 0..PACKETS {
                let mut opened = batch(tier, Direction::Open, &cases, 11);
                opened.buffer.copy_from_slice(&sealed.buffer);
                let icv = opened.jobs[refused].esp + opened.jobs[refused].len - 1;
                opened.buffer[icv as usize] ^= 1;
                cpu::process(&mut opened);
                for (number, job) in opened.jobs.iter().enumerate() {
                    let body = job.esp as usize + 8 + transform.iv_len();
                    let len = transform.block_align() * cases[number].units;
                    let found = &opened.buffer[body..body + len];
                    if number == refused {
                        assert_eq!(job.status, JobStatus::AuthFailed);
                        assert!(found.iter().all(|&byte| byte == 0), "{tier} {transform}");
                    } else {
                        assert_eq!(job.status, JobStatus::Done);
                        assert!(
                            found == &plain.buffer[body..body + len],
                            "{tier} {transform}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn long_packets() {
    for tier in tiers() {
        for transform in transforms(tier) {
            let units = |len: usize| len / transform.block_align();
            let case = |len| PairCase {
                transform,
                units: units(len),
                esn: true,
                key: 5,
            };
            agree(
                tier,
                &[case(9000), case(64), case(65_400), case(1456), case(1456)],
                5,
            );
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for tier in tiers() {
        for transform in transforms(tier) {
            let case = PairCase {
                transform,
                units: 2,
                esn: true,
                key: 4,
            };
            let mut one = batch(tier, Direction::Seal, &[case], 6);
            cpu::process(&mut one);
            let start = one.jobs[0].esp as usize;
            let sealed = one.buffer[start..start + case.len()].to_vec();
            let cases = vec![case; 8 * case.len()];
            let mut flipped = batch(tier, Direction::Open, &cases, 6);
            for (bit, job) in flipped.jobs.iter_mut().enumerate() {
                let place = job.esp as usize..(job.esp + job.len) as usize;
                flipped.buffer[place.clone()].copy_from_slice(&sealed);
                flipped.buffer[place.start + bit / 8] ^= 1 << (bit % 8);
                job.sequence = one.jobs[0].sequence;
            }
            cpu::process(&mut flipped);
            assert_eq!(statuses(&flipped), vec![JobStatus::AuthFailed; cases.len()]);
            for job in &flipped.jobs {
                let body = job.esp as usize + 8 + transform.iv_len();
                let len = transform.block_align() * case.units;
                assert!(
                    flipped.buffer[body..body + len]
                        .iter()
                        .all(|&byte| byte == 0)
                );
            }
        }
    }
}

#[test]
fn the_high_half_of_the_sequence_number_counts_under_esn() {
    for tier in tiers() {
        for transform in transforms(tier) {
            for esn in [false, true] {
                let case = PairCase {
                    transform,
                    units: 3,
                    esn,
                    key: 4,
                };
                let mut sealed = batch(tier, Direction::Seal, &[case], 6);
                cpu::process(&mut sealed);
                sealed.direction = Direction::Open;
                sealed.jobs[0].sequence ^= 1 << 40;
                cpu::process(&mut sealed);
                let expected = if esn {
                    JobStatus::AuthFailed
                } else {
                    JobStatus::Done
                };
                assert_eq!(statuses(&sealed), [expected]);
            }
        }
    }
}
