//! Bitstreams, their skeletons and their merging. The bitstreams are made here, by Lattice's commands.

mod made;

use esplanade_ace::compress::{Phase, compress};
use esplanade_ace::decompress::{Packed, Symbols};
use esplanade_ace::frames::{
    Bitstream, BitstreamError, Grain, Merge, MergeError, MergeStream, Skeleton, SkeletonError, Tile,
};
use made::{FRAME_LEN, FRAMES, Made};
use proptest::collection::vec;
use proptest::prelude::*;

const GRAINS: [Grain; 3] = [Grain::Bit, Grain::Tile, Grain::Frame];

/// Tiles as the part has them: 106 frames, 12 bits.
fn tiles() -> Vec<Tile> {
    let columns = (0..71).map(|column| column * 106);
    columns
        .flat_map(|first_frame| {
            (0..49).map(move |row| Tile {
                first_frame,
                frames: 106,
                first_bit: row * 12,
                bits: 12,
            })
        })
        .collect()
}

fn parse(made: &Made) -> Bitstream {
    Bitstream::parse(&made.bytes()).unwrap_or_else(|(at, error)| panic!("{at}: {error}"))
}

/// A packed file with the streams that [`Merge`] reads.
fn streams(skeleton: &Skeleton, bitstream: &Bitstream) -> Vec<u8> {
    let difference = skeleton
        .difference(bitstream)
        .expect("a variant of the domain");
    let streams = [
        skeleton.common(),
        skeleton.mask(),
        &difference,
        bitstream.envelope(),
    ];
    compress(&streams, Phase::One)
        .expect("short streams")
        .pack()
}

fn merge(packed: &[u8]) -> Result<Vec<u8>, MergeError> {
    let packed = Packed::parse(packed).expect("made here");
    let [skeleton, mask, difference, envelope] = [0, 1, 2, 3].map(|part| packed.part(part));
    Merge::new(skeleton, mask, difference, envelope).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn merging_gives_every_variant_again(
        common in vec((0..FRAMES * FRAME_LEN, any::<u8>()), 0..400),
        variants in vec(vec((0..FRAMES * FRAME_LEN, any::<u8>()), 0..60), 1..4),
        blocks in vec(any::<u8>(), 0..3),
    ) {
        let made: Vec<Made> = (0u8..).zip(&variants).map(|(number, own)| {
            let mut made = Made::new(&format!("Variant {number}"));
            for &(at, byte) in common.iter().chain(own) {
                made.frames[at] = byte;
            }
            made.blocks = blocks.iter().map(|block| block.wrapping_mul(number)).collect();
            made
        }).collect();
        let bitstreams: Vec<Bitstream> = made.iter().map(parse).collect();
        let references: Vec<&Bitstream> = bitstreams.iter().collect();
        let mut in_common = Vec::new();
        for grain in GRAINS {
            let skeleton = Skeleton::new(&references, grain, &tiles()).unwrap();
            in_common.push(skeleton.extent().bits);
            for (made, bitstream) in made.iter().zip(&bitstreams) {
                prop_assert_eq!(merge(&streams(&skeleton, bitstream)), Ok(made.bytes()));
            }
        }
        prop_assert!(in_common[0] >= in_common[1] && in_common[0] >= in_common[2]);
    }
}

#[test]
fn frames_and_envelope_are_told_apart() {
    let mut made = Made::new("Part: LFE5U-25F-6CABGA381");
    made.frames[5] = 7;
    made.blocks = vec![1, 2];
    let bitstream = parse(&made);
    assert_eq!(bitstream.part().name, "LFE5U-25F");
    assert_eq!(bitstream.frames(), made.frames);
    let around = bitstream.envelope();
    assert!(around.starts_with(b"\xff\0Part: LFE5U-25F") && around.len() < 5000);
}

#[test]
fn grains_take_what_belongs_together() {
    let mut other = Made::new("");
    // The lowest bit of frame 0 in the numbers of Project Trellis: the last byte.
    *other.frames.last_mut().unwrap() = 1;
    let [one, two] = [&Made::new(""), &other].map(parse);
    let all = (FRAMES * FRAME_LEN * 8) as u64;
    for (grain, bits, frames) in [
        (Grain::Bit, 1, 1),
        (Grain::Tile, 12 * 106, 106),
        (Grain::Frame, 592, 1),
    ] {
        let skeleton = Skeleton::new(&[&one, &two], grain, &tiles()).unwrap();
        let extent = skeleton.extent();
        assert_eq!(
            (all - extent.bits, FRAMES as u64 - extent.frames),
            (bits, frames),
            "{grain:?}"
        );
    }
    let outside = Tile {
        first_frame: 7500,
        frames: 106,
        first_bit: 0,
        bits: 12,
    };
    let error = Skeleton::new(&[&one, &two], Grain::Tile, &[outside]).err();
    assert_eq!(error, Some(SkeletonError::Tile(outside)));
    assert_eq!(
        Skeleton::new(&[], Grain::Bit, &[]).err(),
        Some(SkeletonError::Empty)
    );

    let alone = Skeleton::new(&[&one], Grain::Bit, &[]).unwrap();
    assert_eq!(
        alone.difference(&two),
        None,
        "a bitstream that is no variant"
    );
}

/// The offset and the reason of a refusal.
fn refused(bytes: &[u8]) -> (usize, BitstreamError) {
    Bitstream::parse(bytes).expect_err("a wrong bitstream")
}

#[test]
fn wrong_bitstreams_are_refused_with_place_and_reason() {
    let good = Made::new("x").bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(refused(b""), (0, BitstreamError::End));
    assert_eq!(refused(&with(0, 0)), (0, BitstreamError::Header));
    assert_eq!(refused(&with(1, 1)), (1, BitstreamError::Header));
    let preamble = good
        .windows(2)
        .position(|pair| pair == [0xbd, 0xb3])
        .unwrap();
    assert_eq!(
        refused(&with(preamble, 0)),
        (preamble, BitstreamError::Preamble)
    );
    assert_eq!(
        refused(&with(preamble + 1, 0)),
        (preamble + 1, BitstreamError::Preamble)
    );
    let commands = preamble + 6;
    assert_eq!(
        refused(&with(commands, 0x99)),
        (commands, BitstreamError::Command(0x99))
    );
    assert_eq!(
        refused(&with(commands, 0x02)),
        (commands, BitstreamError::Compressed)
    );
    assert_eq!(
        refused(&with(commands, 0x5e)),
        (commands + 4, BitstreamError::AfterEnd(0xe2))
    );
    let idcode = commands + 8;
    assert_eq!(
        refused(&with(idcode, 0x77)).1,
        BitstreamError::Idcode(0x7711_1043)
    );
    let frames = good.iter().position(|&byte| byte == 0x82).unwrap();
    assert_eq!(
        refused(&with(frames + 3, 0)),
        (
            frames + 3,
            BitstreamError::Frames {
                wanted: 7562,
                found: 7424
            }
        )
    );
    assert_eq!(
        refused(&with(frames + 1, 0x11)).1,
        BitstreamError::NoChecksums(0x11)
    );
    assert_eq!(
        refused(&with(frames + 1, 0xd1)).1,
        BitstreamError::NoChecksums(0xd1)
    );
    let first = frames + 4;
    let (at, error) = refused(&with(first + 3, 1));
    assert!(matches!(error, BitstreamError::Checksum { .. }));
    assert_eq!(at, first + FRAME_LEN);
    assert_eq!(
        refused(&with(first + FRAME_LEN + 2, 0)).1,
        BitstreamError::Filler(0)
    );
    for end in [frames, frames + 2, first + FRAME_LEN + 1, good.len() - 8] {
        assert_eq!(refused(&good[..end]).1, BitstreamError::End);
    }
    let no_part = [&good[..commands], &good[frames..]].concat();
    assert_eq!(refused(&no_part).1, BitstreamError::NoPart);
    let done = good.len() - 8;
    let twice = [&good[..done], &good[frames..]].concat();
    assert!(matches!(refused(&twice).1, BitstreamError::Frames { .. }));
    let long_text = [&good[..2], &[b'x'; 5000], &good[2..]].concat();
    assert_eq!(refused(&long_text), (4098, BitstreamError::Long));
    let long_fillers = [&good[..commands], &[0xff; 5000], &good[commands..]].concat();
    assert_eq!(refused(&long_fillers).1, BitstreamError::Long);
    assert_eq!(refused(&vec![0; (8 << 20) + 1]).1, BitstreamError::Long);
}

#[test]
fn streams_that_do_not_fit_are_refused() {
    use MergeStream::{Difference, Envelope, Mask};
    let mut other = Made::new("");
    other.frames[9] = 3;
    let [one, two] = [&Made::new(""), &other].map(parse);
    let skeleton = Skeleton::new(&[&one, &two], Grain::Bit, &[]).unwrap();
    let (common, mask, envelope) = (skeleton.common(), skeleton.mask(), two.envelope());
    let own = skeleton.difference(&two).unwrap();
    let merged = |streams: [&[u8]; 4]| merge(&compress(&streams, Phase::One).unwrap().pack());

    assert_eq!(merged([common, mask, &own, envelope]), Ok(other.bytes()));
    let short = &common[1..];
    assert_eq!(
        merged([short, mask, &own, envelope]),
        Err(MergeError::Short(MergeStream::Skeleton))
    );
    assert_eq!(
        merged([common, &mask[..9], &own, envelope]),
        Err(MergeError::Short(Mask))
    );
    assert_eq!(
        merged([common, mask, &[], envelope]),
        Err(MergeError::Short(Difference))
    );
    assert_eq!(
        merged([common, mask, &[3, 3], envelope]),
        Err(MergeError::Long(Difference))
    );
    assert_eq!(
        merged([common, mask, &[7], envelope]),
        Err(MergeError::Overlap(Difference))
    );
    assert_eq!(
        merged([mask, mask, &own, envelope]),
        Err(MergeError::Overlap(MergeStream::Skeleton))
    );
    let end = MergeError::Bitstream(BitstreamError::End);
    assert_eq!(merged([common, mask, &own, &envelope[..20]]), Err(end));
    let after = [envelope, b"x"].concat();
    let after_end = MergeError::Bitstream(BitstreamError::AfterEnd(b'x'));
    assert_eq!(merged([common, mask, &own, &after]), Err(after_end));

    // A stream that cannot be decompressed.
    let mut packed = compress(&[common, mask, &own, envelope], Phase::One)
        .unwrap()
        .pack();
    let last = packed.len() - 3;
    packed[last..].fill(0xff);
    assert!(matches!(
        merge(&packed),
        Err(MergeError::Packed(Envelope, _))
    ));
    let mut failing = {
        let packed = Packed::parse(&packed).unwrap();
        let part = |number| -> Symbols { packed.part(number) };
        Merge::new(part(0), part(1), part(2), part(3))
    };
    let error = failing.find_map(Result::err).unwrap();
    assert_eq!(failing.next(), Some(Err(error)), "an error stays");
    assert!(error.to_string().starts_with("envelope: "));
}
