//! Tests the CPU engine by properties: it opens what it sealed, and it refuses everything else without a trace.

use std::sync::Arc;

use esplanade_crypto::generators;
use esplanade_crypto::{
    Batch, CpuEngine, Direction, Engine, IvKind, Job, JobStatus, KeyContext, KeyError,
    RejectReason, Tier, Transform, cpu,
};
use proptest::prelude::*;

fn key(transform: Transform, esn: bool, seed: u8) -> KeyContext {
    let material: Vec<u8> = (0..transform.key_material_len())
        .map(|i| (i as u8).wrapping_mul(30) ^ seed << 1)
        .collect();
    KeyContext::new(transform, esn, &material).expect("the length is right")
}

/// Makes an unsealed packet: header, IV, body of whole blocks, room for the ICV.
fn packet(transform: Transform, sequence: u64, blocks: usize, fill: u8) -> Vec<u8> {
    let body = transform.block_align().max(4) * (blocks + 1);
    let mut packet = vec![fill; 8 + transform.iv_len() + body + transform.icv_len()];
    packet[..4].copy_from_slice(&0x1234_5678u32.to_be_bytes());
    packet[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    packet
}

fn body(transform: Transform, packet: &[u8]) -> &[u8] {
    &packet[8 + transform.iv_len()..packet.len() - transform.icv_len()]
}

proptest! {
    #[test]
    fn opening_undoes_sealing((transform, material) in generators::keyed(generators::esp()), esn: bool, sequence: u64, blocks in 0usize..120, fill: u8) {
        let key = KeyContext::new(transform, esn, &material).expect("good keys");
        let original = packet(transform, sequence, blocks, fill);
        let mut sealed = original.clone();
        prop_assert_eq!(cpu::seal(&key, sequence, &mut sealed), JobStatus::Done);
        if transform.encrypts() {
            prop_assert_ne!(body(transform, &sealed), body(transform, &original));
        }
        prop_assert_eq!(cpu::open(&key, sequence, &mut sealed), JobStatus::Done);
        prop_assert_eq!(body(transform, &sealed), body(transform, &original));
    }

    #[test]
    fn a_changed_packet_leaves_no_payload(
        transform in generators::esp(), esn: bool, sequence: u64, blocks in 0usize..40,
        at: proptest::sample::Index, mask in 1u8..,
    ) {
        let key = key(transform, esn, 2);
        let mut sealed = packet(transform, sequence, blocks, 0x77);
        cpu::seal(&key, sequence, &mut sealed);
        let at = at.index(sealed.len());
        sealed[at] ^= mask;
        prop_assert_eq!(cpu::open(&key, sequence, &mut sealed), JobStatus::AuthFailed);
        prop_assert!(body(transform, &sealed).iter().all(|&b| b == 0));
    }

    #[test]
    fn the_high_half_is_authenticated_under_esn_only(transform in generators::esp(), sequence: u64, flip in 32u32..64) {
        let other = sequence ^ 1 << flip;
        for (esn, expected) in [(true, JobStatus::AuthFailed), (false, JobStatus::Done)] {
            let key = key(transform, esn, 3);
            let mut sealed = packet(transform, sequence, 3, 0x11);
            cpu::seal(&key, sequence, &mut sealed);
            prop_assert_eq!(cpu::open(&key, other, &mut sealed), expected);
        }
    }

    #[test]
    fn another_key_opens_nothing(transform in generators::esp(), sequence: u64) {
        let mut sealed = packet(transform, sequence, 3, 0x11);
        cpu::seal(&key(transform, false, 4), sequence, &mut sealed);
        prop_assert_eq!(cpu::open(&key(transform, false, 5), sequence, &mut sealed), JobStatus::AuthFailed);
    }

    #[test]
    fn ragged_lengths_are_malformed_and_untouched(transform in generators::esp(), len in 0usize..200, seal: bool) {
        let key = key(transform, false, 6);
        let fixed = 8 + transform.iv_len() + transform.icv_len();
        let align = transform.block_align();
        prop_assume!(len < fixed + align || !(len - fixed).is_multiple_of(align));
        let mut bytes = vec![0x3c; len];
        let status = if seal { cpu::seal(&key, 1, &mut bytes) } else { cpu::open(&key, 1, &mut bytes) };
        prop_assert_eq!(status, JobStatus::Malformed);
        prop_assert_eq!(bytes, vec![0x3c; len]);
    }
}

fn job(key: u32, esp: u32, len: u32) -> Job {
    Job {
        key,
        esp,
        len,
        icv: 0,
        sequence: 1,
        class: 0,
        status: JobStatus::Pending,
    }
}

#[test]
fn jobs_outside_the_batch_are_malformed() {
    let transform = Transform::ESP[0];
    let mut batch = Batch::new(Direction::Open, 100, 4);
    batch.keys.insert(0, Arc::new(key(transform, false, 1)));
    batch.jobs.extend([
        job(1, 0, 50),
        job(0, 90, 50),
        job(0, u32::MAX, u32::MAX),
        job(0, 0, 7),
        job(0, 0, 100),
    ]);
    cpu::process(&mut batch);
    let statuses: Vec<JobStatus> = batch.jobs.iter().map(|j| j.status).collect();
    use JobStatus::{AuthFailed, Malformed};
    assert_eq!(
        statuses,
        [Malformed, Malformed, Malformed, Malformed, AuthFailed]
    );
}

/// A batch of packets side by side, unsealed.
fn unsealed(transform: Transform, jobs: usize) -> Batch {
    let len = packet(transform, 0, 2, 0x11).len();
    let mut batch = Batch::new(Direction::Seal, len * jobs, jobs);
    batch.keys.insert(0, Arc::new(key(transform, false, 1)));
    for number in 0..jobs {
        let at = batch.reserve(len).expect("there is room");
        let packet = packet(transform, number as u64, 2, 0x11);
        batch.buffer[at..at + len].copy_from_slice(&packet);
        batch.jobs.push(Job {
            sequence: number as u64,
            ..job(0, at as u32, len as u32)
        });
    }
    batch
}

fn statuses(batch: &Batch) -> Vec<JobStatus> {
    batch.jobs.iter().map(|job| job.status).collect()
}

/// Every status goes to its own job, whatever else is in the list, and a packet is sealed once.
#[test]
fn some_jobs_of_a_batch_are_done_and_no_others() {
    use JobStatus::{Done, Malformed, Pending};
    for transform in Transform::ESP {
        let mut all = unsealed(transform, 5);
        let plain = all.copied();
        cpu::process(&mut all);
        let mut some = plain.copied();
        some.jobs[3].len = 7;
        cpu::process_some(&mut some, &[9, 3, 1, u32::MAX, 4, 1, 3, 4]);
        assert_eq!(statuses(&some), [Pending, Done, Pending, Malformed, Done]);
        for (number, job) in some.jobs.iter().enumerate() {
            let at = all.jobs[number].esp as usize..;
            let len = all.jobs[number].len as usize;
            let expected = if job.status == Done { &all } else { &plain };
            let packet = &some.buffer[at.clone()][..len];
            assert_eq!(packet, &expected.buffer[at][..len], "packet {number}");
        }
    }
}

/// What an earlier batch has left in an arena must not be sealed under a later packet's number.
#[test]
fn a_copy_that_does_not_fit_is_empty() {
    let other = unsealed(Transform::ESP[0], 3);
    let left = [0xee; 1000];
    for (room, fits) in [(other.used(), true), (other.used() - 1, false)] {
        for front in [None, Some(0), Some(8)] {
            let mut copy = Batch::new(Direction::Open, room, 3);
            copy.buffer.copy_from_slice(&left[..room]);
            assert_eq!(copy.copy_from(&other, front), fits, "{room} {front:?}");
            match fits {
                true => {
                    assert_eq!(copy.direction, Direction::Seal);
                    assert_eq!(copy.buffer[..], other.buffer[..]);
                }
                false => assert_eq!((copy.jobs.len(), copy.used()), (0, 0)),
            }
        }
    }
}

#[test]
fn the_queue_is_bounded_and_in_order() {
    let mut engine = CpuEngine::new(2).expect("the self test passes");
    let batch = |n| Batch::new(Direction::Seal, n, 1);
    assert!(engine.submit(batch(1)).is_ok());
    assert!(engine.submit(batch(2)).is_ok());
    let rejected = engine.submit(batch(3)).expect_err("full");
    assert_eq!(rejected.reason, RejectReason::Full);
    assert_eq!(rejected.batch.buffer.len(), 3, "handed back");
    assert_eq!(engine.poll().map(|b| b.buffer.len()), Some(1));
    assert!(engine.submit(rejected.batch).is_ok());
    assert_eq!(engine.poll().map(|b| b.buffer.len()), Some(2));
    assert_eq!(engine.poll().map(|b| b.buffer.len()), Some(3));
    assert!(engine.poll().is_none());
}

#[test]
fn a_cleared_batch_keeps_its_arena_and_no_key() {
    let first = Arc::new(key(Transform::ESP[0], false, 1));
    let mut batch = Batch::new(Direction::Seal, 10, 4);
    batch.keys.insert(700, Arc::clone(&first));
    assert_eq!(batch.reserve(10), Some(0));
    assert_eq!(batch.reserve(1), None);
    assert_eq!((batch.used(), batch.free()), (10, 0));
    batch.clear();
    assert_eq!(Arc::strong_count(&first), 1);
    assert_eq!(batch.free(), 10);
}

#[test]
fn key_material_of_the_wrong_length_is_refused() {
    for transform in Transform::all() {
        let expected = transform.key_material_len();
        for actual in [0, expected - 1, expected + 1] {
            let error = KeyContext::new(transform, false, &vec![0; actual]).err();
            let wrong = KeyError::WrongLength {
                transform,
                expected,
                actual,
            };
            assert_eq!(error, Some(wrong));
        }
    }
}

#[test]
fn a_tier_that_the_machine_lacks_makes_no_key() {
    for tier in Tier::ALL {
        let made = KeyContext::for_tier(tier, Transform::ESP[0], false, &[1; 20]);
        let missing = tier.require().err().map(KeyError::Missing);
        assert_eq!(made.err(), missing, "{tier}");
    }
}

#[test]
fn debug_shows_no_key() {
    let key = KeyContext::new(Transform::ESP[0], true, &[0xab; 20]).expect("good keys");
    let shown = format!("{key:?}");
    assert!(!shown.contains("171") && !shown.to_lowercase().contains("ab, "));
    assert!(shown.contains("AES_GCM_16"));
}

/// The sequence number serves as the IV. It is not sent as one, and a wrong sequence number opens nothing.
#[test]
fn implicit_ivs_follow_the_sequence_number() {
    for transform in Transform::ESP {
        if transform.iv_kind() != IvKind::Implicit {
            continue;
        }
        for esn in [false, true] {
            let key = key(transform, esn, 1);
            let seal = |sequence| {
                let mut packet = packet(transform, 0, 3, 0x55);
                assert_eq!(cpu::seal(&key, sequence, &mut packet), JobStatus::Done);
                packet
            };
            let (one, two) = (seal(1), seal(2));
            assert_ne!(body(transform, &one), body(transform, &two));
            assert_eq!(cpu::open(&key, 2, &mut one.clone()), JobStatus::AuthFailed);
            assert_eq!(cpu::open(&key, 1, &mut one.clone()), JobStatus::Done);
        }
    }
}

#[test]
fn refusals_of_keys_name_the_reason_and_no_key() {
    for (name, material, reason) in [
        (
            "DES/HMAC_SHA2_256_128",
            [[1; 8].as_slice(), &[7; 32]].concat(),
            "weak or semi-weak",
        ),
        (
            "3DES/HMAC_SHA2_256_128",
            vec![0x42; 56],
            "two of the three DES keys are equal",
        ),
        (
            "AES_GCM_16_128",
            vec![0; 20],
            "the encryption key is all zeros",
        ),
        (
            "AH/HMAC_SHA1_96",
            vec![0; 20],
            "the integrity key is all zeros",
        ),
        ("AH/HMAC_SHA1_96", vec![0x42; 21], "21 bytes"),
    ] {
        let transform = Transform::from_name(name).expect("a transform");
        let error = KeyContext::new(transform, false, &material).expect_err("refused");
        let text = format!("{error} {error:?}");
        assert!(text.contains(reason) && text.contains(name), "{text}");
        assert!(!text.contains("42") && !text.contains("66"), "{text}");
    }
}
