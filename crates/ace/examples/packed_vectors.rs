//! Writes short packed files with what they were made of, for readers of the format that are written apart from this crate.
//!
//!     cargo run -p esplanade-ace --example packed_vectors -- vectors/ace/packed.json

use std::error::Error;
use std::fs;
use std::path::Path;

use esplanade_ace::compress::{Phase, compress};
use esplanade_ace::library::{Library, Trust};
use serde_json::{Value, json};

const PHASES: [(&str, Phase); 4] = [
    ("LZW", Phase::Lzw),
    ("I", Phase::One),
    ("II", Phase::Two),
    ("past II", Phase::Three),
];

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("a file is wanted")?;
    let mut cases: Vec<Value> = Vec::new();
    for (name, inputs) in inputs()? {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        for (phase, which) in PHASES {
            let compressed = compress(&inputs, which)?;
            cases.push(json!({
                "name": format!("{name}, {phase}"),
                "width": compressed.accounting().width(),
                "codewords": compressed.accounting().codewords,
                "packed": hex::encode(compressed.pack()),
                "parts": inputs.iter().map(hex::encode).collect::<Vec<_>>(),
            }));
        }
    }
    let source = "crates/ace/examples/packed_vectors.rs; the bitstream is Project Trellis'";
    let vectors = json!({"source": source, "licence": "Apache-2.0 OR MIT", "cases": cases});
    fs::write(file, serde_json::to_string_pretty(&vectors)? + "\n")?;
    Ok(())
}

/// A name and the parts.
type Input = (&'static str, Vec<Vec<u8>>);

fn inputs() -> Result<Vec<Input>, Box<dyn Error>> {
    let repeated = b"the same string again, ".repeat(20);
    let mixed: Vec<u8> = (0..900u32)
        .map(|at| (at * at / 7 % 5) as u8 + u8::from(at % 64 == 0) * 200)
        .collect();
    // A generator of no quality: nothing comes again, so phrases are short.
    let noise: Vec<u8> = (0..300u32)
        .scan(1u32, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*state >> 24) as u8)
        })
        .collect();
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real");
    let library = Library::open(&real, &Trust::Directory, 1)?;
    let bitstream: Vec<u8> = library
        .bitstream("aes-cbc-seal", "seal-128")
        .ok_or("the bitstream of the tests is not there")?
        .collect::<Result<_, _>>()?;
    Ok(vec![
        ("one symbol", vec![vec![7]]),
        ("a run", vec![vec![0; 500]]),
        ("two symbols", vec![b"abaabbaaabbb".to_vec()]),
        ("strings that come again", vec![repeated.clone()]),
        ("few symbols", vec![mixed.clone()]),
        ("noise", vec![noise.clone()]),
        (
            "an empty part between others",
            vec![mixed, vec![], repeated, noise],
        ),
        (
            "a piece of a bitstream",
            vec![bitstream[200_000..202_000].to_vec()],
        ),
    ])
}
