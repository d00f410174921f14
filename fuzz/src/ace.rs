//! Compressed configurations and the bitstreams that are merged from them.

use std::sync::LazyLock;

use esplanade_ace::compress::{Phase, compress};
use esplanade_ace::decompress::{Packed, PackedError};
use esplanade_ace::frames::{Bitstream, Expected, Merge, MergeError, Partial, Reader, Walker};

/// The symbols that are read of a part. A few bytes can ask for billions.
const SYMBOLS_MAX: usize = 1 << 16;

/// Compressed data: each part is read to its end, and the first four are merged. The input is also compressed, and comes
/// back.
pub fn ace_packed(data: &[u8]) {
    if let Ok(packed) = Packed::parse(data) {
        for part in 0..packed.parts().min(16) {
            let extent = packed.extent(part);
            let mut symbols = packed.part(part);
            let read = symbols
                .by_ref()
                .take(SYMBOLS_MAX)
                .take_while(Result::is_ok)
                .count();
            let left = symbols.remaining() as usize;
            match symbols.next() {
                None => assert_eq!((read, left), (extent.symbols as usize, 0)),
                Some(Err(PackedError::Long)) => assert_eq!(left, 0),
                Some(Ok(_)) => assert_eq!(read, SYMBOLS_MAX),
                Some(Err(error)) => assert_eq!(symbols.next(), Some(Err(error))),
            }
        }
        merge(&packed);
    }
    let data = &data[..data.len().min(4096)];
    if let Ok(compressed) = compress(&[data, data], Phase::Three) {
        let bytes = compressed.pack();
        let packed = Packed::parse(&bytes).expect("compressed here");
        for part in 0..2 {
            let symbols: Result<Vec<u8>, PackedError> = packed.part(part).collect();
            assert_eq!(symbols.as_deref(), Ok(data));
        }
    }
}

/// A merged bitstream that ends well is a bitstream.
fn merge(packed: &Packed<'_>) {
    let [skeleton, mask, difference, envelope] = [0, 1, 2, 3].map(|part| packed.part(part));
    let merging = Merge::new(skeleton, mask, difference, envelope);
    let merged: Result<Vec<u8>, MergeError> = merging.take(1 << 21).collect();
    if let Ok(bytes) = merged {
        let whole = Bitstream::parse(&bytes);
        assert!(whole.is_ok() || bytes.len() == 1 << 21);
    }
}

/// Byte 0 chooses. 0: the rest is a `.bit` file. 1: the rest is what is around the frames of one, and frames of zeros,
/// fillers and checksums are put in. 2 and 3: the same of a partial stream, which goes onto frames of zeros.
pub fn ace_bitstream(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    match choice % 4 {
        0 => {
            if let Err((at, _)) = Bitstream::parse(data) {
                assert!(at <= data.len());
            }
        }
        1 => {
            let (bytes, ended) = filled(Walker::default(), data);
            match Bitstream::parse(&bytes) {
                Ok(bitstream) => {
                    assert!(ended);
                    assert_eq!(bitstream.envelope(), data);
                    assert!(bitstream.frames().iter().all(|&byte| byte == 0));
                }
                Err((at, _)) => assert!(at <= bytes.len()),
            }
        }
        2 => apply(data, None),
        _ => {
            let (bytes, ended) = filled(Walker::partial(), data);
            apply(&bytes, Some(ended));
        }
    }
}

/// A partial stream onto an empty part. Frames of zeros change nothing.
fn apply(bytes: &[u8], ended: Option<bool>) {
    let former = EMPTY.configuration();
    let mut reader = Reader::partial(former.clone());
    let found = reader
        .take(bytes)
        .and_then(|()| reader.into_configuration());
    match found {
        Ok(found) => {
            assert_eq!((ended.unwrap_or(true), found.part()), (true, former.part()));
            let runs = Partial::runs(former, &found);
            assert!(ended.is_none() || runs.is_empty());
        }
        Err((at, _)) => assert!(at <= bytes.len()),
    }
}

/// An empty LFE5U-45F.
static EMPTY: LazyLock<Bitstream> = LazyLock::new(|| {
    let before = [
        &b"\xff\0\0\xff\xff\xff\xbd\xb3"[..],
        &[0x3b, 0, 0, 0],
        &[0xe2, 0, 0, 0, 0x41, 0x11, 0x20, 0x43],
        &[0x22, 0, 0, 0, 0x6e, 0, 0, 0],
        &[0x46, 0, 0, 0],
        &[0x82, 0x91, 0x24, 0xfe],
        &[0x5e, 0, 0, 0],
    ];
    let (bytes, _) = filled(Walker::default(), &before.concat());
    Bitstream::parse(&bytes).expect("written here")
});

/// A stream with frames of zeros, fillers and checksums where they belong, and whether it may end there.
fn filled(mut walker: Walker, around: &[u8]) -> (Vec<u8>, bool) {
    let (mut bytes, mut around) = (Vec::new(), around.iter());
    loop {
        let byte = match walker.expected() {
            Expected::Checksum => {
                bytes.extend_from_slice(&walker.checksum().to_be_bytes());
                continue;
            }
            Expected::Frame => 0,
            Expected::Filler => 0xff,
            Expected::Envelope | Expected::Block => match around.next() {
                Some(&byte) => byte,
                None => break,
            },
        };
        bytes.push(byte);
        if walker.take(byte).is_err() {
            break;
        }
    }
    let ended = walker.finish().is_ok();
    (bytes, ended)
}
