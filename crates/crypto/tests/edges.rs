//! Runs every kernel between pages that may not be touched, and flips every bit.

use crate::common::{self, Bytes, Packets, key, on_each_tier, with_kernel};
use esplanade_crypto::{JobStatus, KeyContext, Tier, Transform};
use esplanade_testkit::guard::{Flush, Guarded};

const PACKETS: usize = 130;
/// Length of a packet with the longest body.
const ROOM: usize = 8 + 16 + 2080 + 32;

/// Body lengths of a batch: short ones, and some around the sizes of wide blocks.
fn body_lens(transform: Transform, round: usize) -> Vec<usize> {
    let align = transform.block_align();
    let len = |number: usize| match number % 8 {
        7 => [256, 512, 768, 1024, 1536, 2048][(number / 8 + round) % 6] + number / 8 % 3 * align,
        6 => 240 + number % 32,
        _ => (number * 29 + round * 11) % 200,
    };
    (0..PACKETS).map(len).collect()
}

fn done(keys: &[(u64, KeyContext)], packets: &[Vec<u8>], seal: bool) -> Vec<Vec<u8>> {
    let mut packets = packets.to_vec();
    let batch: Packets = keys
        .iter()
        .zip(&mut packets)
        .map(|((sequence, key), bytes)| (key, *sequence, &mut bytes[..]))
        .collect();
    let statuses = if seal {
        common::seal(batch)
    } else {
        common::open(batch)
    };
    assert!(statuses.iter().all(|&status| status == JobStatus::Done));
    packets
}

#[test]
fn nothing_outside_of_a_packet_is_touched() {
    let mut memory = Guarded::new(PACKETS, ROOM).expect("memory");
    on_each_tier(|tier| {
        for (round, transform) in with_kernel(tier).into_iter().enumerate() {
            let mut random = Bytes::new(round as u64 + 99);
            let keys = |tier| -> Vec<(u64, KeyContext)> {
                let made = |number: u64| {
                    (
                        number << 30,
                        key(tier, transform, number.is_multiple_of(2), number),
                    )
                };
                (0..PACKETS as u64).map(made).collect()
            };
            let (ours, portable) = (keys(tier), keys(Tier::Portable));
            let plain: Vec<Vec<u8>> = body_lens(transform, round)
                .into_iter()
                .zip(&ours)
                .map(|(body, (sequence, _))| {
                    common::packet(transform, *sequence, body, &mut random)
                })
                .collect();
            let sealed = done(&portable, &plain, true);
            let opened = done(&portable, &sealed, false);
            for flush in [Flush::Begin, Flush::End] {
                for (direction, input, expected) in
                    [("seal", &plain, &sealed), ("open", &sealed, &opened)]
                {
                    let lens = input.iter().map(Vec::len);
                    let slices = memory.slices(flush, lens).zip(input).zip(&ours);
                    let batch: Packets = slices
                        .map(|((bytes, input), (sequence, key))| {
                            bytes.copy_from_slice(input);
                            (key, *sequence, bytes)
                        })
                        .collect();
                    let statuses = match direction {
                        "seal" => common::seal(batch),
                        _ => common::open(batch),
                    };
                    assert!(
                        statuses.iter().all(|&status| status == JobStatus::Done),
                        "{transform}"
                    );
                    let lens = expected.iter().map(Vec::len);
                    for (bytes, expected) in memory.slices(flush, lens).zip(expected) {
                        assert!(
                            bytes == expected,
                            "{tier} {transform} {direction} {flush:?}, {} bytes",
                            bytes.len()
                        );
                    }
                }
            }
        }
    });
}

/// Opens many copies of a packet, each with one bit flipped, and some with none.
#[test]
fn every_flipped_bit_is_refused() {
    on_each_tier(|tier| {
        for transform in with_kernel(tier) {
            for (esn, body) in [(true, 4), (false, 36)] {
                flip_packet(tier, transform, esn, body);
            }
            flip_sequence(tier, transform);
        }
    });
}

/// With a kernel or with the library.
#[test]
fn a_forgery_leaves_no_payload() {
    on_each_tier(|tier| {
        for transform in Transform::ESP {
            let key = key(tier, transform, true, 7);
            let mut packet = common::packet(transform, 1, 64, &mut Bytes::new(8));
            let sealed = common::seal(vec![(&key, 1, &mut packet)]);
            assert_eq!(sealed, [JobStatus::Done], "{tier} {transform}");
            *packet.last_mut().expect("an ICV") ^= 1;
            let opened = common::open(vec![(&key, 1, &mut packet)]);
            assert_eq!(opened, [JobStatus::AuthFailed], "{tier} {transform}");
            let body = common::body(transform, &packet);
            assert!(body.iter().all(|byte| *byte == 0), "{tier} {transform}");
        }
    });
}

fn flip_packet(tier: Tier, transform: Transform, esn: bool, body: usize) {
    let key = key(tier, transform, esn, 5);
    let sequence = 0x0123_4567_89ab_cdef;
    let plain = common::packet(transform, sequence, body, &mut Bytes::new(3));
    let mut sealed = plain.clone();
    assert_eq!(
        common::seal(vec![(&key, sequence, &mut sealed)]),
        [JobStatus::Done]
    );
    let bits = sealed.len() * 8;
    let whole = |number: usize| number % 9 == 4;
    let mut copies: Vec<Vec<u8>> = (0..bits + bits / 8)
        .map(|number| {
            let mut copy = sealed.clone();
            let bit = number - (number + 4) / 9;
            if !whole(number) {
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            copy
        })
        .collect();
    let statuses = common::open(
        copies
            .iter_mut()
            .map(|copy| (&key, sequence, &mut copy[..]))
            .collect(),
    );
    for (number, (status, copy)) in statuses.into_iter().zip(&copies).enumerate() {
        let body = common::body(transform, copy);
        if whole(number) {
            assert_eq!(status, JobStatus::Done, "{tier} {transform}");
            assert_eq!(body, common::body(transform, &plain), "{tier} {transform}");
        } else {
            assert_eq!(
                status,
                JobStatus::AuthFailed,
                "{tier} {transform} copy {number}"
            );
            assert!(
                body.iter().all(|&byte| byte == 0),
                "{tier} {transform} copy {number}"
            );
        }
    }
}

/// The packet does not contain the high half of the sequence number.
fn flip_sequence(tier: Tier, transform: Transform) {
    for (esn, expected) in [(true, JobStatus::AuthFailed), (false, JobStatus::Done)] {
        let key = key(tier, transform, esn, 6);
        let sequence = 0x0123_4567_89ab_cdef;
        let mut sealed = common::packet(transform, sequence, 20, &mut Bytes::new(4));
        common::seal(vec![(&key, sequence, &mut sealed)]);
        let mut copies = vec![sealed; 32];
        let flipped = (32..64).map(|bit| sequence ^ 1 << bit);
        let batch = copies
            .iter_mut()
            .zip(flipped)
            .map(|(copy, sequence)| (&key, sequence, &mut copy[..]));
        let statuses = common::open(batch.collect());
        assert_eq!(statuses, [expected; 32], "{tier} {transform} esn {esn}");
    }
}
