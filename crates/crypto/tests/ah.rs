//! Tests AH by properties: the engine accepts what it signed, and nothing else.

use std::sync::Arc;

use esplanade_crypto::generators;
use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, Transform, cpu};
use proptest::prelude::*;

fn key(transform: Transform, esn: bool, seed: u8) -> KeyContext {
    let material: Vec<u8> = (0..transform.key_material_len())
        .map(|i| (i as u8).wrapping_mul(30) ^ seed << 1)
        .collect();
    KeyContext::new(transform, esn, &material).expect("good keys")
}

/// Makes an IP packet whose header has `ip_len` bytes, with room for the ICV. Returns the packet and the ICV's
/// offset.
fn packet(transform: Transform, ip_len: usize, payload: &[u8]) -> (Vec<u8>, usize) {
    let icv_at = ip_len + 12 + transform.iv_len();
    let mut packet = vec![0x5a; icv_at];
    packet.resize(icv_at + transform.icv_len(), 0);
    packet.extend(payload);
    (packet, icv_at)
}

proptest! {
    #[test]
    fn opening_accepts_what_sealing_signed(
        (transform, material) in generators::keyed(generators::ah()), esn: bool, sequence: u64, ip_len in 20usize..200, payload: Vec<u8>,
    ) {
        let key = KeyContext::new(transform, esn, &material).expect("good keys");
        let (unsigned, icv_at) = packet(transform, ip_len, &payload);
        let mut signed = unsigned.clone();
        prop_assert_eq!(cpu::seal_ah(&key, sequence, &mut signed, icv_at), JobStatus::Done);
        let icv = icv_at..icv_at + transform.icv_len();
        prop_assert!(signed[icv.clone()].iter().any(|&byte| byte != 0));
        prop_assert_eq!(&signed[..icv.start], &unsigned[..icv.start]);
        prop_assert_eq!(&signed[icv.end..], &unsigned[icv.end..]);
        prop_assert_eq!(cpu::open_ah(&key, sequence, &mut signed, icv_at), JobStatus::Done);
        prop_assert_eq!(signed, unsigned, "the place of the ICV is zero again");
    }

    #[test]
    fn a_changed_packet_is_refused(
        transform in generators::ah(), esn: bool, sequence: u64, at: proptest::sample::Index, mask in 1u8..,
    ) {
        let key = key(transform, esn, 2);
        let (mut signed, icv_at) = packet(transform, 20, &[7; 50]);
        cpu::seal_ah(&key, sequence, &mut signed, icv_at);
        let at = at.index(signed.len());
        signed[at] ^= mask;
        prop_assert_eq!(cpu::open_ah(&key, sequence, &mut signed, icv_at), JobStatus::AuthFailed);
        prop_assert!(signed[icv_at..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_high_half_is_authenticated_under_esn_only(
        transform in generators::ah(), sequence: u64, flip in 32u32..64,
    ) {
        for (esn, expected) in [(true, JobStatus::AuthFailed), (false, JobStatus::Done)] {
            let key = key(transform, esn, 3);
            let (mut signed, icv_at) = packet(transform, 40, &[7; 50]);
            cpu::seal_ah(&key, sequence, &mut signed, icv_at);
            let other = sequence ^ 1 << flip;
            prop_assert_eq!(cpu::open_ah(&key, other, &mut signed, icv_at), expected);
        }
    }

    #[test]
    fn an_icv_outside_the_packet_is_malformed_and_untouched(
        transform in generators::ah(), len in 0usize..150, icv_at: usize, near in 0usize..200, far: bool, seal: bool,
    ) {
        let icv_at = if far { icv_at } else { near };
        let inside = icv_at >= 12 + transform.iv_len()
            && icv_at.checked_add(transform.icv_len()).is_some_and(|end| end <= len);
        prop_assume!(!inside);
        let key = key(transform, true, 4);
        let mut bytes = vec![0x3c; len];
        let status = match seal {
            true => cpu::seal_ah(&key, 1, &mut bytes, icv_at),
            false => cpu::open_ah(&key, 1, &mut bytes, icv_at),
        };
        prop_assert_eq!(status, JobStatus::Malformed);
        prop_assert_eq!(bytes, vec![0x3c; len]);
    }
}

/// A key of one protocol does not touch packets of the other.
#[test]
fn esp_and_ah_do_not_mix() {
    for ah in Transform::AH {
        let mut bytes = vec![0x3c; 120];
        let ah = key(ah, false, 5);
        assert_eq!(cpu::seal(&ah, 1, &mut bytes), JobStatus::Malformed);
        assert_eq!(cpu::open(&ah, 1, &mut bytes), JobStatus::Malformed);
        let esp = key(Transform::ESP[0], false, 5);
        assert_eq!(cpu::seal_ah(&esp, 1, &mut bytes, 40), JobStatus::Malformed);
        assert_eq!(cpu::open_ah(&esp, 1, &mut bytes, 40), JobStatus::Malformed);
        assert_eq!(bytes, vec![0x3c; 120]);
    }
}

/// One batch holds a packet of every transform of both protocols, at odd offsets.
#[test]
fn a_batch_mixes_transforms_and_protocols() {
    let mut batch = Batch::new(Direction::Seal, 64 * 1024, 128);
    let mut originals = Vec::new();
    for transform in Transform::all() {
        let (bytes, icv) = match transform.encryption() {
            None => packet(transform, 28, &[9; 33]),
            Some(_) => (vec![0x21; transform.sealed_len(100)], 0),
        };
        batch.reserve(3).expect("room");
        let offset = batch.reserve(bytes.len()).expect("room");
        batch.buffer[offset..offset + bytes.len()].copy_from_slice(&bytes);
        let number = batch.jobs.len() as u32;
        batch.keys.insert(number, Arc::new(key(transform, true, 6)));
        batch.jobs.push(Job {
            key: number,
            esp: offset as u32,
            len: bytes.len() as u32,
            icv: icv as u32,
            sequence: 0x7_0000_0001,
            class: 0,
            status: JobStatus::Pending,
        });
        originals.push((transform, offset, bytes));
    }
    cpu::process(&mut batch);
    assert!(batch.jobs.iter().all(|job| job.status == JobStatus::Done));
    batch.direction = Direction::Open;
    cpu::process(&mut batch);
    for (job, (transform, offset, bytes)) in batch.jobs.iter().zip(&originals) {
        assert_eq!(job.status, JobStatus::Done, "{transform}");
        let covered = match transform.encryption() {
            None => bytes.len(),
            Some(_) => bytes.len() - transform.icv_len(),
        };
        assert_eq!(batch.buffer[*offset..][..covered], bytes[..covered]);
    }
}

/// Several workers may seal with one context at once.
#[test]
fn contexts_are_used_by_many_threads_at_once() {
    for transform in Transform::ESP {
        let key = key(transform, true, 7);
        let sealed = |sequence: u64| {
            let mut packet = vec![0x44; transform.sealed_len(200)];
            assert_eq!(cpu::seal(&key, sequence, &mut packet), JobStatus::Done);
            packet
        };
        let alone: Vec<_> = (0..8).map(sealed).collect();
        std::thread::scope(|scope| {
            let work = || {
                for _ in 0..4 {
                    assert_eq!((0..8).map(sealed).collect::<Vec<_>>(), alone);
                }
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                thread.join().expect("no panic");
            }
        });
    }
}
