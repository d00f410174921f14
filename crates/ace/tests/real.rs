//! Bitstreams that Project Trellis made: AES-CBC with both key lengths on an LFE5U-25F.
//!
//! `bench/ace_designs.py aes-cbc-seal` makes them, and `bench/ace.py` this library of them. The manifest has the hashes
//! of the tool's files.

use std::path::PathBuf;

use esplanade_ace::compress::{Phase, compress};
use esplanade_ace::frames::{Bitstream, Grain, Merge, Skeleton, Tile};
use esplanade_ace::library::{Library, Trust, pack, publish};

fn library() -> Library {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real");
    // It is open only if what is merged has the hashes.
    Library::open(&folder, &Trust::Directory, 1).expect("a good library")
}

fn bitstream(library: &Library, variant: &str) -> Vec<u8> {
    let merge: Merge = library
        .bitstream("aes-cbc-seal", variant)
        .expect("a variant");
    merge
        .collect::<Result<_, _>>()
        .expect("checked when opened")
}

#[test]
fn key_lengths_differ_by_the_contents_of_a_lut() {
    let library = library();
    let [short, long] = ["seal-128", "seal-256"].map(|variant| bitstream(&library, variant));
    let [short, long] = [short, long].map(|bytes| Bitstream::parse(&bytes).expect("a bitstream"));
    assert_eq!(
        (short.part().name, short.part()),
        ("LFE5U-25F", long.part())
    );
    assert_eq!(short.envelope(), long.envelope());

    let skeleton = Skeleton::new(&[&short, &long], Grain::Bit, &[]).expect("one part");
    let extent = skeleton.extent();
    // The contents of a LUT lie in 16 frames at most.
    assert_eq!(extent.bits, 7562 * 592 - 16);
    assert!(extent.frames >= 7562 - 16);
}

#[test]
fn a_library_takes_a_tenth_of_its_bitstreams() {
    let library = library();
    let [short, long] = ["seal-128", "seal-256"].map(|variant| bitstream(&library, variant));
    let variants = [("seal-128", &short[..]), ("seal-256", &long[..])];
    let columns = (36..7400).step_by(106);
    let tiles: Vec<Tile> = columns
        .map(|first_frame| Tile {
            first_frame,
            frames: 106,
            first_bit: 1,
            bits: 12,
        })
        .collect();
    for grain in [Grain::Bit, Grain::Tile, Grain::Frame] {
        let packed =
            pack("aes-cbc-seal", &variants, grain, &tiles, Phase::Three).expect("a domain");
        let percent = packed.domain().bytes * 100 / (short.len() + long.len()) as u64;
        assert!(percent <= 10, "{grain:?}: {percent} %");
        let folder = tempfile::tempdir().expect("a directory");
        publish(folder.path(), 1, &[packed], None).expect("published");
        let again = Library::open(folder.path(), &Trust::Directory, 1).expect("a good library");
        assert!(bitstream(&again, "seal-256") == long);
    }
}

/// The paper's best bitstream comes to 65.11 % in phase I and, with its misprint mended, to 64.05 % in phase II.
#[test]
fn phases_take_less_one_after_the_other() {
    let bytes = bitstream(&library(), "seal-128");
    let phases = [Phase::Lzw, Phase::One, Phase::Two, Phase::Three];
    let percent = phases.map(|phase| {
        let compressed = compress(&[&bytes], phase).expect("a short input");
        compressed.accounting().percent(bytes.len() as u64 * 8)
    });
    for (percent, most) in percent.into_iter().zip([60.0, 32.5, 28.5, 20.5]) {
        assert!(percent <= most, "{percent} %, and {most} % before");
    }
}
