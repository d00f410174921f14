//! The frames of a lane, word by word (docs/ace-cores.md, "The ESP lane"), and answers that are none.

use esplanade_ace::lane::{BODY_LEN_MAX, Frames, PacketFrame, key_frame, take_answer};
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{Direction, Job, JobStatus, KeyContext, Transform};
use proptest::prelude::*;

fn job(sequence: u64, len: usize) -> Job {
    Job {
        key: 0,
        esp: 0,
        len: len as u32,
        icv: 0,
        sequence,
        class: 0,
        status: JobStatus::Pending,
    }
}

fn packet(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

#[test]
fn a_key_frame_has_the_key_the_nonce_and_both_states() {
    let sha2 = Some(Integrity::HmacSha2_256_128);
    for (bits, code) in [(128, 0), (192, 1), (256, 2)] {
        let transform = Transform::esp(Encryption::AesCtr, bits, sha2).unwrap();
        let material: Vec<u8> = (1..).take(transform.key_material_len()).collect();
        let key = KeyContext::new(transform, true, &material).unwrap();
        let frame = key_frame(&key).unwrap();
        let (words, len) = (usize::from(bits) / 32, usize::from(bits) / 8);
        let mut wanted = vec![0x0100_0000 | code];
        let cipher = material[..len]
            .chunks(4)
            .map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
        wanted.extend(cipher);
        wanted.resize(9, 0);
        wanted.push(u32::from_be_bytes(
            material[len..len + 4].try_into().unwrap(),
        ));
        assert_eq!(frame[..10], wanted, "{words} words");
        let states = key.material().hmac_states().unwrap();
        assert_eq!(
            (&frame[10..18], &frame[18..]),
            (&states[0][..], &states[1][..])
        );
    }
}

#[test]
fn a_transform_that_no_lane_has_makes_no_frame() {
    for name in [
        "AES_GCM_16_128",
        "AES_CTR_128/HMAC_SHA1_96",
        "AES_CBC_128/HMAC_SHA2_256_128",
    ] {
        let transform = Transform::from_name(name).unwrap();
        let key =
            KeyContext::new(transform, false, &vec![7; transform.key_material_len()]).unwrap();
        assert!(key_frame(&key).is_none(), "{name}");
    }
}

#[test]
fn a_packet_frame_has_header_and_body_and_to_open_the_icv() {
    let bytes = packet(16 + 8 + 16);
    let mut frame = PacketFrame::default();
    let sealing = frame
        .make(
            Direction::Seal,
            &job(0x5_0000_0001, bytes.len()),
            true,
            &bytes,
        )
        .unwrap();
    let fixed = [
        0x0202_0008,
        0x0001_0203,
        0x0405_0607,
        5,
        0x0809_0a0b,
        0x0c0d_0e0f,
        0x1011_1213,
        0x1415_1617,
    ];
    assert_eq!(sealing, fixed);
    let opening = frame
        .make(Direction::Open, &job(1, bytes.len()), false, &bytes)
        .unwrap();
    assert_eq!(opening[0], 0x0201_0008);
    assert_eq!(
        opening[8..],
        [0x1819_1a1b, 0x1c1d_1e1f, 0x2021_2223, 0x2425_2627]
    );
}

#[test]
fn packets_that_no_lane_takes_make_no_frame() {
    let mut frame = PacketFrame::default();
    for len in [0, 31, 33, 34, 35, 32 + BODY_LEN_MAX + 4] {
        let bytes = packet(len);
        for direction in [Direction::Seal, Direction::Open] {
            assert!(
                frame.make(direction, &job(1, len), false, &bytes).is_none(),
                "{len}"
            );
        }
    }
    for len in [32, 36, 32 + BODY_LEN_MAX] {
        let bytes = packet(len);
        assert!(
            frame
                .make(Direction::Seal, &job(1, len), false, &bytes)
                .is_some(),
            "{len}"
        );
    }
}

#[test]
fn frames_do_not_outgrow_their_memory() {
    let mut frames = Frames::with_capacity(5);
    assert!(frames.push(&[1, 2, 3]) && !frames.push(&[4, 5, 6]) && frames.push(&[7, 8]));
    assert_eq!(frames.iter().collect::<Vec<_>>(), [&[1, 2, 3][..], &[7, 8]]);
    frames.clear();
    assert!(frames.is_empty() && frames.push(&[9; 5]));
}

#[test]
fn an_answer_for_a_body_of_odd_length_is_none() {
    let before = packet(37 + 32);
    let mut after = before.clone();
    let answer: Vec<u32> = std::iter::once(0x0100_0025).chain([0; 13]).collect();
    assert_eq!(take_answer(Direction::Seal, &answer, &mut after), None);
    assert_eq!(after, before);
}

proptest! {
    /// A lane that has lost itself may give anything.
    #[test]
    fn an_answer_to_something_else_leaves_the_packet(
        head in prop_oneof![any::<u32>(), (0u32..6, 0u32..80).prop_map(|(status, len)| status << 24 | len)],
        words in proptest::collection::vec(any::<u32>(), 0..40),
        len in 0usize..120,
        opens in any::<bool>(),
    ) {
        let direction = if opens { Direction::Open } else { Direction::Seal };
        let answer: Vec<u32> = std::iter::once(head).chain(words.iter().copied()).collect();
        let before = packet(len);
        let mut after = before.clone();
        let status = take_answer(direction, &answer, &mut after);
        let body = len.checked_sub(32);
        let written = body.map(|body| if opens { body } else { body + 16 });
        let fits = (head & 0xffff) as usize == body.unwrap_or(usize::MAX) && written == Some(4 * words.len());
        let wanted = match (head >> 24, opens) {
            (1, false) | (2, true) if fits => Some(JobStatus::Done),
            (3, true) if words.is_empty() && len >= 16 && body.is_some() => Some(JobStatus::AuthFailed),
            _ => None,
        };
        prop_assert_eq!(status, wanted);
        match status {
            None => prop_assert_eq!(after, before),
            Some(JobStatus::AuthFailed) => prop_assert!(after[16..].iter().all(|byte| *byte == 0)),
            Some(_) => prop_assert_eq!(&after[..16], &before[..16]),
        }
    }
}
