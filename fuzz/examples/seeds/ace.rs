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
    ]
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
