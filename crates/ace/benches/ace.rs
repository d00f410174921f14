//! Sizes and speeds of bitstreams in each phase, and of domains as a library stores them. A line of JSON for each case.
//!
//!     cargo bench -p esplanade-ace --bench ace -- phases FILE..
//!     cargo bench -p esplanade-ace --bench ace -- together FILE..
//!     cargo bench -p esplanade-ace --bench ace -- extract FOLDER FOLDER
//!     cargo bench -p esplanade-ace --bench ace -- pairs FOLDER NAME=FILE..
//!     cargo bench -p esplanade-ace --bench ace -- apply FORMER.bit STREAM WANTED.bit OUT.bit
//!     cargo bench -p esplanade-ace --bench ace -- domain NAME TILES FOLDER VARIANT=FILE..
//!
//! TILES has four numbers in a line for each tile: first frame, frames, first bit, bits. FOLDER gets a library, and the
//! bitstreams as they come out of it; with `pairs`, the partial stream from each bitstream to each other one. `apply` puts a
//! partial stream onto a bitstream, checks that its frames are then the wanted one's, and writes that as a bitstream.

use std::fs;
use std::path::Path;
use std::time::Instant;

use esplanade_ace::compress::{Phase, compress};
use esplanade_ace::decompress::Packed;
use esplanade_ace::frames::{Bitstream, Expected, Grain, Partial, Reader, Tile, Walker};
use esplanade_ace::library::{Library, Trust, pack, publish};

const PHASES: [(&str, Phase); 4] = [
    ("LZW", Phase::Lzw),
    ("I", Phase::One),
    ("II", Phase::Two),
    ("past II", Phase::Three),
];

fn main() {
    // Cargo adds an argument of its own.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|each| each != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        ["phases", files @ ..] => files.iter().for_each(|file| phases(file)),
        ["together", files @ ..] => together(files),
        ["extract", folder, out] => extract(Path::new(folder), Path::new(out)),
        ["pairs", folder, files @ ..] => pairs(Path::new(folder), files),
        ["apply", former, stream, wanted, out] => apply(former, stream, wanted, out),
        ["domain", name, tiles, folder, variants @ ..] => domain(name, tiles, folder, variants),
        // `cargo test --benches` and a bench without files have nothing to do.
        [] => (),
        _ => panic!(
            "phases FILE.., together FILE.., extract FOLDER FOLDER, pairs FOLDER NAME=FILE.., apply FORMER STREAM WANTED OUT \
             or domain NAME TILES FOLDER VARIANT=FILE.."
        ),
    }
}

/// The characters of a file as Xilinx's tools wrote it for people: a character for each bit, 32 in a line.
fn characters(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 9);
    for word in bytes.chunks(4) {
        for byte in word {
            text.extend((0..8).rev().map(|bit| b'0' + (byte >> bit & 1)));
        }
        text.extend_from_slice(b"\r\n");
    }
    text
}

/// Each phase, for the bytes of a file (input A, in bits) and for its characters (input B, in characters).
fn phases(file: &str) {
    let bytes = fs::read(file).expect("a readable file");
    let text = characters(&bytes);
    let inputs = [("A", &bytes, bytes.len() * 8), ("B", &text, text.len())];
    for (input, symbols, size) in inputs {
        for (name, phase) in PHASES {
            let begin = Instant::now();
            let compressed = compress(&[symbols], phase).expect("a file of a few megabytes");
            let seconds = begin.elapsed().as_secs_f64();
            let packed = compressed.pack();
            let begin = Instant::now();
            let (mut out, mut piece) = (Vec::new(), [0; 4096]);
            let mut reading = Packed::parse(&packed).expect("made here").part(0);
            loop {
                let read = reading.read(&mut piece).expect("made here");
                out.extend_from_slice(&piece[..read]);
                if read < piece.len() {
                    break;
                }
            }
            let unpack_seconds = begin.elapsed().as_secs_f64();
            assert!(out == *symbols, "{file}: what came out is not what went in");
            let accounting = compressed.accounting();
            println!(
                "{{\"file\":{file:?},\"input\":\"{input}\",\"phase\":\"{name}\",\"size\":{size},\"width\":{},\
                 \"codewords\":{},\"phrases\":{},\"index_bits\":{},\"dictionary_bits\":{},\"percent\":{:.2},\
                 \"bytes\":{},\"seconds\":{seconds:.3},\"reads_per_symbol\":{:.3},\"unpack_mb_s\":{:.1}}}",
                accounting.width(),
                accounting.codewords,
                accounting.phrases,
                accounting.index_bits(),
                accounting.dictionary_bits(),
                accounting.percent(size as u64),
                packed.len(),
                // One of the dictionary for each symbol, one of the index for each codeword.
                1.0 + accounting.codewords as f64 / symbols.len() as f64,
                symbols.len() as f64 / 1e6 / unpack_seconds,
            );
        }
    }
}

/// The bitstreams of a library as files, in a folder for each domain.
fn extract(folder: &Path, out: &Path) {
    let library = Library::open(folder, &Trust::Directory, 0).expect("a good library");
    for domain in &library.manifest().domains {
        let folder = out.join(&domain.name);
        fs::create_dir_all(&folder).expect("a writable folder");
        for variant in &domain.variants {
            let merge = library.bitstream(&domain.name, &variant.name);
            let bytes: Result<Vec<u8>, _> = merge.expect("a variant of the library").collect();
            let file = folder.join(format!("{}.bit", variant.name));
            fs::write(file, bytes.expect("checked when opened")).expect("a writable folder");
        }
        let (stored, variants) = (domain.bytes, domain.variants.len());
        let bytes: u64 = domain.variants.iter().map(|variant| variant.bytes).sum();
        println!(
            "{{\"domain\":\"{}\",\"variants\":{variants},\"bitstreams_bytes\":{bytes},\"stored_bytes\":{stored}}}",
            domain.name
        );
    }
}

/// Whole bitstreams with a dictionary each, and with one for all of them.
fn together(files: &[&str]) {
    let files: Vec<Vec<u8>> = files
        .iter()
        .map(|file| fs::read(file).expect("a readable file"))
        .collect();
    let inputs: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let packed = |inputs: &[&[u8]]| {
        compress(inputs, Phase::Three)
            .expect("a few megabytes")
            .pack()
            .len()
    };
    let apart: usize = inputs.iter().map(|input| packed(&[input])).sum();
    println!(
        "{{\"files\":{},\"bitstreams_bytes\":{},\"apart_bytes\":{apart},\"together_bytes\":{}}}",
        files.len(),
        inputs.iter().map(|input| input.len()).sum::<usize>(),
        packed(&inputs),
    );
}

fn bitstream(file: &str) -> (usize, Bitstream) {
    let bytes = fs::read(file).expect("a readable file");
    let parsed = Bitstream::parse(&bytes);
    let parsed = parsed.unwrap_or_else(|(at, error)| panic!("{file}, byte {at}: {error}"));
    (bytes.len(), parsed)
}

/// From each bitstream to each other one: what differs, and a partial stream. Where the part's addresses are not known there
/// is only its length, which does not depend on them.
fn pairs(folder: &Path, files: &[&str]) {
    fs::create_dir_all(folder).expect("a writable folder");
    let files = files.iter().map(|file| {
        let (name, file) = file.split_once('=').expect("NAME=FILE");
        (name, bitstream(file))
    });
    let files: Vec<_> = files.collect();
    for (former_name, (_, former)) in &files {
        for (name, (whole, wanted)) in files.iter().filter(|(name, _)| name != former_name) {
            let begin = Instant::now();
            let runs = Partial::runs(former.configuration(), wanted.configuration());
            let frames: usize = runs.iter().map(ExactSizeIterator::len).sum();
            let blocks = wanted.configuration().blocks().iter();
            let blocks: usize = blocks.map(|block| block.content.len()).sum();
            let bytes = Partial::len_of(&runs, wanted);
            let made = Partial::new(former.configuration(), wanted.clone()).map(|mut partial| {
                let mut stream = Vec::new();
                while partial.fill(&mut stream, usize::MAX) {}
                stream
            });
            let seconds = begin.elapsed().as_secs_f64();
            let made = match made {
                Ok(stream) => {
                    assert_eq!(stream.len(), bytes);
                    fs::write(folder.join(format!("{former_name}-{name}.bit")), stream)
                        .expect("a writable folder");
                    "made".to_owned()
                }
                Err(error) => error.to_string(),
            };
            println!(
                "{}",
                serde_json::json!({
                    "part": wanted.part().name, "from": former_name, "to": name, "whole_bytes": whole, "frames": frames,
                    "of_frames": wanted.part().frames, "runs": runs.len(), "block_ram_bytes": blocks, "partial_bytes": bytes,
                    "stream": made, "seconds": seconds,
                })
            );
        }
    }
}

fn apply(former: &str, stream: &str, wanted: &str, out: &str) {
    let (_, former) = bitstream(former);
    let mut reader = Reader::partial(former.into_configuration());
    let stream = fs::read(stream).expect("a readable file");
    let found = reader
        .take(&stream)
        .and_then(|()| reader.into_configuration());
    let found = found.unwrap_or_else(|(at, error)| panic!("byte {at}: {error}"));
    let (_, wanted) = bitstream(wanted);
    assert!(found.frames() == wanted.frames(), "the frames are others");
    let (mut walker, mut bytes) = (Walker::default(), Vec::new());
    let (mut frames, mut envelope) = (found.frames().iter(), wanted.envelope().iter());
    loop {
        let byte = match walker.expected() {
            Expected::Checksum => {
                bytes.extend_from_slice(&walker.checksum().to_be_bytes());
                continue;
            }
            Expected::Filler => Some(&0xff),
            Expected::Frame => frames.next(),
            Expected::Envelope | Expected::Block => envelope.next(),
        };
        let Some(&byte) = byte else {
            break;
        };
        bytes.push(byte);
        walker.take(byte).expect("a bitstream's bytes");
    }
    fs::write(out, bytes).expect("a writable folder");
}

/// A domain at each grain: what its bitstreams have in common, and what a library of it takes.
fn domain(name: &str, tiles: &str, folder: &str, variants: &[&str]) {
    let text = fs::read_to_string(tiles).expect("a list of tiles");
    let tiles: Vec<Tile> = text.lines().map(tile).collect();
    let variants: Vec<(&str, Vec<u8>)> = variants
        .iter()
        .map(|variant| {
            let (name, file) = variant.split_once('=').expect("VARIANT=FILE");
            (name, fs::read(file).expect("a readable file"))
        })
        .collect();
    let named: Vec<(&str, &[u8])> = variants
        .iter()
        .map(|(name, bytes)| (*name, &bytes[..]))
        .collect();
    let total: usize = variants.iter().map(|(_, bytes)| bytes.len()).sum();
    for grain in [Grain::Bit, Grain::Tile, Grain::Frame] {
        let begin = Instant::now();
        let packed =
            pack(name, &named, grain, &tiles, Phase::Three).expect("bitstreams of a domain");
        let seconds = begin.elapsed().as_secs_f64();
        let folder = Path::new(folder).join(format!("{grain:?}").to_lowercase());
        fs::create_dir_all(&folder).expect("a folder");
        // The last run's library would have the same serial number.
        let _ = fs::remove_file(folder.join("manifest"));
        publish(&folder, 1, std::slice::from_ref(&packed), None).expect("a published library");
        let library = Library::open(&folder, &Trust::Directory, 1).expect("a library");
        for (variant, wanted) in &variants {
            let merged = library.bitstream(name, variant).expect("a variant");
            let merged: Vec<u8> = merged
                .collect::<Result<_, _>>()
                .expect("checked when opened");
            assert!(merged == *wanted, "{variant} came out otherwise");
            fs::write(folder.join(format!("{variant}.bit")), merged).expect("a written file");
        }
        let (accounting, common) = (packed.accounting(), packed.common());
        println!(
            "{{\"domain\":{name:?},\"grain\":\"{grain:?}\",\"variants\":{},\"bitstreams_bytes\":{total},\
             \"stored_bytes\":{},\"percent\":{:.2},\"bits_in_common\":{},\"frames_in_common\":{},\"width\":{},\
             \"codewords\":{},\"phrases\":{},\"seconds\":{seconds:.3}}}",
            variants.len(),
            packed.domain().bytes,
            packed.domain().bytes as f64 * 100.0 / total as f64,
            common.bits,
            common.frames,
            accounting.width(),
            accounting.codewords,
            accounting.phrases,
        );
    }
}

fn tile(line: &str) -> Tile {
    let numbers: Vec<u16> = line
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [first_frame, frames, first_bit, bits] = numbers[..] else {
        panic!("four numbers: {line}");
    };
    Tile {
        first_frame,
        frames,
        first_bit,
        bits,
    }
}
