//! Seeds for compressed configurations and bitstreams.

use std::io::Result;
use std::path::Path;

use esplanade_ace::compress::{Phase, compress};

use super::others::{Seeds, put};

pub fn write(corpus: &Path) -> Result<()> {
    put(corpus, "ace_bitstream", bitstreams())?;
    put(corpus, "ace_packed", packed())
}

/// The frames of an LFE5U-25F.
const FRAMES_LEN: usize = 7562 * 74;

/// What is around the frames of a bitstream for the LFE5U-25F, up to them and behind them.
fn around(blocks: u8) -> [Vec<u8>; 2] {
    let before = [
        &b"\xff\0Part: LFE5U-25F-6CABGA381\0\xff\xff\xff\xbd\xb3\xff\xff\xff\xff"[..],
        &[0x3b, 0, 0, 0],
        &[0xe2, 0, 0, 0, 0x41, 0x11, 0x10, 0x43],
        &[0x22, 0, 0, 0, 0x40, 0, 0, 0],
        &[0x46, 0, 0, 0],
        &[0x82, 0x91, 0x1d, 0x8a],
    ];
    let mut behind = vec![0xff; 12];
    behind.extend([0xc2, 0x80, 0, 0, 0, 0, 0, 0]);
    for number in 0..blocks {
        behind.extend([0xf6, 0, 0, 0, 0, 0, number << 3, 0]);
        behind.extend([0xb2, 0xd0, 0, 2]);
        behind.extend([number; 18]);
    }
    behind.extend([0x5e, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    [before.concat(), behind]
}

fn bitstreams() -> Seeds {
    let [before, behind] = around(2);
    vec![
        ("file-until-frames", [&[0], &before[..], &[0; 74]].concat()),
        ("around-frames", [&[1], &before[..], &behind].concat()),
        ("partial-one-frame", [vec![2], one_frame()].concat()),
        (
            "partial-around-frames",
            [vec![3], around_partial()].concat(),
        ),
    ]
}

/// A partial stream of ecppack's, in which one frame differs.
fn one_frame() -> Vec<u8> {
    let vectors = include_str!("../../../crates/ace/tests/partial/ecppack.json");
    let begin = "{\"name\":\"one frame\"";
    let case = &vectors[vectors.find(begin).expect("the case")..];
    let digits = case
        .split("\"stream\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let digits = digits.expect("a stream").as_bytes();
    let value = |digit: &u8| {
        char::from(*digit)
            .to_digit(16)
            .expect("a hexadecimal digit") as u8
    };
    digits
        .chunks(2)
        .map(|pair| value(&pair[0]) << 4 | value(&pair[1]))
        .collect()
}

/// What is around the frames of a partial stream: two runs, and a block RAM.
fn around_partial() -> Vec<u8> {
    let parts = [
        &b"\xff\0\0\xff\xff\xff\xbd\xb3\xff\xff\xff\xff"[..],
        &[0x3b, 0, 0, 0],
        &[0xe2, 0, 0, 0, 0x41, 0x11, 0x20, 0x43],
        &[0xb4, 0, 0, 0, 0, 0, 0x10, 0x85, 0x82, 0x91, 0, 2],
        &[0xb4, 0, 0, 0, 0, 0, 0x4a, 0xa3, 0x82, 0x91, 0, 1],
        &[0xf6, 0, 0, 0, 0, 0, 8, 0, 0xb2, 0xd0, 0, 2],
        &[7; 18],
        &[0x5e, 0, 0, 0],
    ];
    parts.concat()
}

fn packed() -> Seeds {
    let pack = |inputs: &[&[u8]], phase| compress(inputs, phase).expect("short").pack();
    let [before, behind] = around(1);
    let (mut skeleton, mut mask) = (vec![0; FRAMES_LEN], vec![0; FRAMES_LEN]);
    skeleton[4711] = 0x5a;
    mask[4712] = 0x0f;
    let domain = [&skeleton[..], &mask, &[0x0a], &[before, behind].concat()];
    let text = b"COMPUTING COMPUTATION ".repeat(8);
    vec![
        ("domain", pack(&domain, Phase::Three)),
        ("text", pack(&[&text, b"", &text[4..]], Phase::Two)),
        ("text-lzw", pack(&[b"abababab"], Phase::Lzw)),
    ]
}
