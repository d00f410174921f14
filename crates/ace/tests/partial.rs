//! Partial streams: what `ecppack --delta` writes is read, what is written here gives the wanted frames, and the rest is
//! refused.

use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use esplanade_ace::frames::{
    Bitstream, BitstreamError, Configuration, Part, Partial, PartialError, Reader,
};
use esplanade_ace::library::{Library, Trust};
use made::Made;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

mod made;

const PART: &str = "LFE5U-45F";
const FRAMES: u16 = 9470;
const FRAME_LEN: usize = 106;

fn parse(made: &Made) -> Bitstream {
    Bitstream::parse(&made.bytes()).unwrap_or_else(|(at, error)| panic!("{at}: {error}"))
}

fn loaded(made: &Made) -> Configuration {
    parse(made).into_configuration()
}

/// The bytes from one configuration to the other.
fn stream(former: &Configuration, wanted: Bitstream) -> Vec<u8> {
    let mut partial = Partial::new(former, wanted).expect("a part with addresses");
    let (len, mut bytes) = (partial.total_len(), Vec::new());
    while partial.fill(&mut bytes, 0) {
        let most = bytes.len() + 1000;
        partial.fill(&mut bytes, most);
    }
    assert_eq!(bytes.len(), len);
    bytes
}

fn apply(former: &Configuration, bytes: &[u8]) -> Result<Configuration, (usize, BitstreamError)> {
    let mut reader = Reader::partial(former.clone());
    for piece in bytes.chunks(997) {
        reader.take(piece)?;
    }
    reader.into_configuration()
}

/// A file of rtl/syn/partial_vectors.py.
fn ecppack() -> Value {
    serde_json::from_str(include_str!("partial/ecppack.json")).expect("JSON")
}

/// Frames of which some bytes are not zero.
fn made(places: &Value) -> Made {
    let mut made = Made::background("");
    for place in places.as_array().expect("a list") {
        let number = |at: usize| place[at].as_u64().expect("a number") as usize;
        made.frames[number(0) * FRAME_LEN + number(1)] = number(2) as u8;
    }
    made
}

#[test]
fn addresses_are_those_of_ecppack() {
    let part = Part::named(PART).expect("a part");
    let addresses: Vec<u32> = (0..FRAMES)
        .filter_map(|frame| part.address(frame))
        .collect();
    let bytes: Vec<u8> = addresses
        .iter()
        .flat_map(|address| address.to_be_bytes())
        .collect();
    let vectors = ecppack();
    assert_eq!(vectors["addresses"], addresses.len());
    assert_eq!(
        vectors["addresses_sha256"],
        hex::encode(digest(&SHA256, &bytes)).as_str()
    );
    for (frame, &address) in (0..).zip(&addresses) {
        assert_eq!(part.frame_at(address), Some(frame));
    }
    // No other address has a frame.
    let all = (0..=0xffff).filter_map(|address| part.frame_at(address));
    assert_eq!(all.count(), addresses.len());
    assert_eq!(
        (part.address(FRAMES), part.frame_at(u32::MAX)),
        (None, None)
    );
}

#[test]
fn partial_streams_of_ecppack_give_the_wanted_frames() {
    for case in ecppack()["cases"].as_array().expect("a list") {
        let former = loaded(&made(&case["former"]));
        let wanted = parse(&made(&case["wanted"]));
        let bytes =
            hex::decode(case["stream"].as_str().expect("text")).expect("hexadecimal digits");
        let theirs = apply(&former, &bytes).unwrap_or_else(|(at, error)| panic!("{at}: {error}"));
        assert!(theirs.frames() == wanted.frames(), "{}", case["name"]);
        assert_ne!(former.frames(), wanted.frames());
        let ours = stream(&former, wanted.clone());
        if case["name"] == "one frame" {
            // Behind the header of text, byte for byte.
            assert_eq!(ours[4..], bytes[3..]);
        }
        assert!(ours.len() <= bytes.len() + 1);
        let ours = apply(&former, &ours).expect("written here");
        assert!(ours.frames() == wanted.frames(), "{}", case["name"]);
    }
}

#[test]
fn ecppack_has_no_partial_streams_for_the_part_of_the_library() {
    assert_eq!(ecppack()["refused_for"], serde_json::json!(["LFE5U-25F"]));
    assert!(!Part::named("LFE5U-25F").expect("a part").has_addresses());
    let [former, wanted] = [1, 2].map(|byte| {
        let mut made = Made::new("");
        made.frames[4711] = byte;
        parse(&made)
    });
    let refused = Partial::new(former.configuration(), wanted).map(|_| ());
    assert_eq!(refused, Err(PartialError::NoAddresses("LFE5U-25F")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_partial_stream_gives_the_wanted_configuration(
        former in vec((0..usize::from(FRAMES) * FRAME_LEN, any::<u8>()), 0..60),
        wanted in vec((0..usize::from(FRAMES) * FRAME_LEN, any::<u8>()), 0..60),
        span in (0..usize::from(FRAMES), 1..300usize),
        blocks in (vec(any::<u8>(), 0..3), vec(any::<u8>(), 0..3)),
    ) {
        let (mut before, mut after) = (Made::background("before"), Made::background("after"));
        for (at, byte) in former {
            before.frames[at] = byte;
        }
        for (at, byte) in wanted {
            after.frames[at] = byte;
        }
        // Frames behind one another.
        let frames = after.frames.chunks_exact_mut(FRAME_LEN).skip(span.0).take(span.1);
        frames.for_each(|frame| frame[5] ^= 0x40);
        (before.blocks, after.blocks) = blocks;
        let (before, after) = (loaded(&before), parse(&after));
        let bytes = stream(&before, after.clone());
        let found = apply(&before, &bytes).expect("written here");
        prop_assert!(found.frames() == after.frames());
        // Block RAMs that the wanted configuration does not write keep what they have.
        let wanted = after.configuration().blocks();
        prop_assert!(wanted.iter().all(|block| found.blocks().contains(block)));
        prop_assert_eq!(found.blocks().len(), wanted.len().max(before.blocks().len()));
        prop_assert!(found.is_background());
        // All that differs, and nothing else, is written.
        let pairs = before.frames().chunks(FRAME_LEN).zip(after.frames().chunks(FRAME_LEN));
        let differ = pairs.filter(|(one, other)| one != other).count();
        let runs = Partial::runs(&before, after.configuration());
        prop_assert_eq!(runs.iter().map(ExactSizeIterator::len).sum::<usize>(), differ);
    }

    #[test]
    fn a_stream_with_another_byte_is_refused(at in 0..1200usize, other in 1..=255u8) {
        let before = loaded(&Made::background("a"));
        let mut after = Made::background("a");
        (0..8).for_each(|frame| after.frames[(4000 + frame) * FRAME_LEN + 9] = 1);
        after.blocks = vec![7];
        let mut bytes = stream(&before, parse(&after));
        // The CRC begins behind the command that resets it, which has three operands that mean nothing.
        let at = 17 + at % (bytes.len() - 17 - 8);
        bytes[at] ^= other;
        let found = apply(&before, &bytes);
        prop_assert!(found.is_err(), "byte {at}");
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(noise in vec(any::<u8>(), 0..300), cut in 0..1000usize) {
        let before = loaded(&Made::background("a"));
        let mut after = Made::background("a");
        (0..8).for_each(|frame| after.frames[(4000 + frame) * FRAME_LEN + 9] = 1);
        let bytes = stream(&before, parse(&after));
        let cut = cut.min(bytes.len() - 1);
        let joined = [&bytes[..cut], &noise[..]].concat();
        if let Err((at, _)) = apply(&before, &joined) {
            prop_assert!(at <= joined.len());
        }
        prop_assert!(cut > bytes.len() - 5 || apply(&before, &bytes[..cut]).is_err());
    }
}

/// The commands of a stream, without text.
fn commands(parts: &[&[u8]]) -> Vec<u8> {
    let begin: [&[u8]; 3] = [
        &[0xff, 0, 0, 0xff, 0xff, 0xff, 0xbd, 0xb3],
        &[0x3b, 0, 0, 0],
        &[0xe2, 0, 0, 0, 0x41, 0x11, 0x20, 0x43],
    ];
    [&begin[..], parts, &[&[0x5e, 0, 0, 0]]].concat().concat()
}

#[test]
fn hostile_streams_are_refused_for_a_reason() {
    let former = loaded(&Made::background("a"));
    let refused = |parts: &[&[u8]]| {
        apply(&former, &commands(parts))
            .err()
            .map(|(_, error)| error)
    };
    assert_eq!(refused(&[]), None);
    let frames = |count: u16| [[0x82, 0x91], count.to_be_bytes()].concat();
    let address = |address: u32| [[0xb4, 0, 0, 0], address.to_be_bytes()].concat();
    use BitstreamError::*;
    assert_eq!(refused(&[&frames(1)]), Some(NoAddress));
    for unknown in [
        106,
        127,
        12 << 7,
        0x4000 | 21 << 7 | 36,
        0x5000,
        0x1_0000,
        u32::MAX,
    ] {
        assert_eq!(refused(&[&address(unknown)]), Some(Address(unknown)));
    }
    let last = 0x4000 | 21 << 7 | 35;
    assert_eq!(refused(&[&address(last), &frames(2)]), Some(Frame(9471)));
    assert_eq!(refused(&[&address(0), &frames(0)]), Some(Frame(0)));
    assert_eq!(
        refused(&[&address(0), &[0x82, 0x11, 0, 1]]),
        Some(NoChecksums(0x11))
    );
    // What is for whole bitstreams: control register 0, USERCODE, a jump, the security bit, the speed of a flash memory.
    for code in [0x22, 0xc2, 0x7e, 0xce, 0x79] {
        assert_eq!(refused(&[&[code, 0, 0, 0]]), Some(Command(code)));
    }
    assert_eq!(refused(&[&[0xb8, 0, 0, 0]]), Some(Compressed));
    assert_eq!(
        refused(&[&[0xe2, 0, 0, 0, 0x41, 0x11, 0x10, 0x43]]),
        Some(Idcode(0x4111_1043))
    );
    // A frame twice, with good checksums.
    let mut made = Made::background("a");
    made.frames[0] = 1;
    let once = stream(&former, parse(&made));
    let frame = &once[25..once.len() - 8];
    let twice = [
        &once[..once.len() - 8],
        &[0x3b, 0, 0, 0],
        &commands(&[])[12..20],
        frame,
    ]
    .concat();
    assert_eq!(
        apply(&former, &twice).err().map(|(_, error)| error),
        Some(Frame(0))
    );
    // A whole bitstream is not for a partial stream's reader, and the other way round.
    let whole = Made::background("a").bytes();
    assert_eq!(
        apply(&former, &whole).err().map(|(_, error)| error),
        Some(Command(0x22))
    );
    assert_eq!(
        Bitstream::parse(&once).err().map(|(_, error)| error),
        Some(Command(0xb4))
    );
}

#[test]
fn configurations_that_are_not_for_it_get_none() {
    let before = Made::background("a");
    let other = Made::new("a");
    let mixed = Partial::new(&loaded(&before), parse(&other)).map(|_| ());
    assert_eq!(mixed, Err(PartialError::Parts(PART, "LFE5U-25F")));
    let mut closed = Made::background("a");
    closed.control = 0x4000_0000;
    for (former, wanted) in [(&before, &closed), (&closed, &before)] {
        let found = Partial::new(&loaded(former), parse(wanted)).map(|_| ());
        assert_eq!(found, Err(PartialError::NoBackground));
    }
}

/// The lanes that are shipped are for a part without known addresses. What would be written is known all the same.
#[test]
fn runs_of_every_pair_of_lanes_are_all_that_differs() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("library");
    let library = Library::open(&folder, &Trust::Directory, 0).expect("a good library");
    let mut lanes = Vec::new();
    for domain in &library.manifest().domains {
        for variant in &domain.variants {
            let merge = library
                .bitstream(&domain.name, &variant.name)
                .expect("a variant");
            let bytes: Vec<u8> = merge
                .collect::<Result<_, _>>()
                .expect("checked when opened");
            lanes.push((bytes.len(), Bitstream::parse(&bytes).expect("a bitstream")));
        }
    }
    for (_, former) in &lanes {
        for (whole, wanted) in &lanes {
            let frame_len = wanted.part().frame_len;
            let mut frames = former.frames().to_vec();
            let runs = Partial::runs(former.configuration(), wanted.configuration());
            for run in &runs {
                let bytes = usize::from(run.start) * frame_len..usize::from(run.end) * frame_len;
                frames[bytes.clone()].copy_from_slice(&wanted.frames()[bytes]);
            }
            assert!(frames == wanted.frames());
            // A stream with an address for each run is never longer than the bitstream.
            assert!(Partial::len_of(&runs, wanted) <= *whole);
        }
    }
}
