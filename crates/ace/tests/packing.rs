//! Whatever is compressed comes back, and whatever is not so made is refused.

use esplanade_ace::compress::{CompressError, Compressed, Phase, compress};
use esplanade_ace::decompress::{Extent, Packed, PackedError};
use proptest::collection::vec;
use proptest::prelude::*;

const PHASES: [Phase; 4] = [Phase::Lzw, Phase::One, Phase::Two, Phase::Three];

/// Bytes as bitstreams have them: runs, strings that come again, and noise.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..200usize).prop_map(|(byte, count)| vec![byte; count]),
        (vec(0..4u8, 1..12), 1..20usize).prop_map(|(string, count)| string.repeat(count)),
        vec(any::<u8>(), 1..40),
        vec(0..3u8, 1..80),
    ];
    vec(piece, 1..12).prop_map(|pieces| pieces.concat())
}

fn packed(inputs: &[&[u8]], phase: Phase) -> (Compressed, Vec<u8>) {
    let compressed = compress(inputs, phase).expect("short inputs");
    let bytes = compressed.pack();
    (compressed, bytes)
}

fn unpacked(bytes: &[u8], part: u16) -> Result<Vec<u8>, PackedError> {
    Packed::parse(bytes)?.part(part).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_goes_in_comes_out(inputs in vec(bytes(), 1..4)) {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut sizes = Vec::new();
        for phase in PHASES {
            let (compressed, bytes) = packed(&inputs, phase);
            for (part, input) in (0u16..).zip(&inputs) {
                prop_assert_eq!(unpacked(&bytes, part), Ok(input.to_vec()));
            }
            let accounting = compressed.accounting();
            let header = 12 + 8 * inputs.len() as u64;
            // The dictionary and each index begin with a byte.
            let rounding = 1 + inputs.len() as u64;
            let counted = header + accounting.bits() / 8;
            prop_assert!((counted..=counted + rounding).contains(&(bytes.len() as u64)));
            sizes.push(accounting);
        }
        let [lzw, one, two, three] = sizes[..] else { unreachable!() };
        prop_assert_eq!(lzw.phrases, 256 + lzw.codewords - inputs.len() as u64);
        prop_assert_eq!(lzw.codewords, one.codewords);
        prop_assert!(one.phrases <= lzw.phrases && two.phrases <= one.phrases);
        prop_assert!(two.bits() <= one.bits() && three.bits() <= two.bits());
    }

    #[test]
    fn pieces_are_the_whole(input in bytes(), size in 1..70usize) {
        let (_, bytes) = packed(&[&input], Phase::Three);
        let mut symbols = Packed::parse(&bytes).unwrap().part(0);
        let (mut whole, mut piece) = (Vec::new(), vec![0; size]);
        loop {
            prop_assert_eq!(symbols.remaining() as usize, input.len() - whole.len());
            let read = symbols.read(&mut piece).unwrap();
            whole.extend_from_slice(&piece[..read]);
            if read < size {
                break;
            }
        }
        prop_assert_eq!(whole, input);
    }

    /// Bytes of which some were changed are refused, or give as many symbols as they say.
    #[test]
    fn changed_bytes_do_no_harm(
        input in bytes(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let (_, mut bytes) = packed(&[&input, &input], Phase::Two);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        if let Ok(packed) = Packed::parse(&bytes) {
            for part in 0..packed.parts() {
                let Extent { symbols, codewords } = packed.extent(part);
                // A header may ask for billions of symbols, which no memory is taken for.
                let count = packed.part(part).take_while(Result::is_ok).count() as u64;
                prop_assert!(count <= u64::from(symbols));
                prop_assert!(count <= u64::from(codewords) * u64::from(packed.phrases()));
            }
        }
    }
}

#[test]
fn the_papers_example_shares_its_strings() {
    let text = b"COMPUTING COMPUTATION ".repeat(40);
    let (lzw, _) = packed(&[&text], Phase::Lzw);
    let (three, bytes) = packed(&[&text], Phase::Three);
    assert_eq!(unpacked(&bytes, 0).as_deref(), Ok(&text[..]));
    assert!(three.accounting().bits() * 5 < lzw.accounting().bits());
}

#[test]
fn inputs_that_are_alike_share_a_dictionary() {
    let one: Vec<u8> = (0..4000u32).map(|n| (n * n / 7 % 251) as u8).collect();
    let mut other = one.clone();
    other[2000] ^= 0x10;
    let alone: usize = [&one, &other]
        .map(|input| packed(&[input], Phase::Three).1.len())
        .iter()
        .sum();
    let together = packed(&[&one, &other], Phase::Three).1.len();
    assert!(together * 5 < alone * 4, "{together} and {alone} bytes");
}

#[test]
fn inputs_without_bytes_are_refused_or_empty() {
    assert_eq!(compress(&[], Phase::One).err(), Some(CompressError::Empty));
    assert_eq!(
        compress(&[b"", b""], Phase::Two).err(),
        Some(CompressError::Empty)
    );
    let many = vec![&b"a"[..]; 65_536];
    let error = compress(&many, Phase::One).err();
    assert_eq!(error, Some(CompressError::TooManyInputs(65_536)));

    let (_, bytes) = packed(&[b"", b"aaaa", b""], Phase::Three);
    assert_eq!(unpacked(&bytes, 0), Ok(Vec::new()));
    assert_eq!(unpacked(&bytes, 1), Ok(b"aaaa".to_vec()));
    assert_eq!(unpacked(&bytes, 2), Ok(Vec::new()));
    // A part that is not there.
    assert_eq!(unpacked(&bytes, 3), Ok(Vec::new()));
}

/// Two phrases of one bit: `a`, and `b` in front of it. Codewords: `ba`, `a`.
fn by_hand() -> Vec<u8> {
    let mut bytes = b"ACEP".to_vec();
    bytes.extend([1, 1, 0, 1, 0, 0, 0, 2]);
    bytes.extend([0, 0, 0, 2, 0, 0, 0, 3]);
    // Nodes of nine bits: 'a' and link 0, 'b' and link 0.
    bytes.extend([0b0110_0001, 0b0011_0001, 0b0000_0000]);
    bytes.push(0b1000_0000);
    bytes
}

fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = by_hand();
    bytes[at] = byte;
    bytes
}

#[test]
fn the_format_is_as_documented() {
    assert_eq!(unpacked(&by_hand(), 0), Ok(b"baa".to_vec()));
    let packed_bytes = by_hand();
    let packed = Packed::parse(&packed_bytes).unwrap();
    assert_eq!(
        (packed.width(), packed.phrases(), packed.parts()),
        (1, 2, 1)
    );
}

#[test]
fn each_refusal_says_what_and_where() {
    let longer = [by_hand(), vec![0]].concat();
    let cases = [
        (with(0, b'B'), PackedError::Magic),
        (with(4, 2), PackedError::Version(2)),
        (with(5, 0), PackedError::Width(0)),
        (with(5, 29), PackedError::Width(29)),
        (with(7, 0), PackedError::NoParts),
        (with(11, 0), PackedError::Phrases(0)),
        (with(11, 3), PackedError::Phrases(3)),
        (
            by_hand()[..11].to_vec(),
            PackedError::Length {
                wanted: 12,
                found: 11,
            },
        ),
        (
            by_hand()[..14].to_vec(),
            PackedError::Length {
                wanted: 20,
                found: 14,
            },
        ),
        (
            longer,
            PackedError::Length {
                wanted: 24,
                found: 25,
            },
        ),
        // One phrase, and a codeword that names the second.
        (
            [
                &b"ACEP\x01\x01\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x02"[..],
                &[0x61, 0, 0x40],
            ]
            .concat(),
            PackedError::Codeword { at: 1, phrase: 1 },
        ),
        // The first phrase goes on with the second.
        (
            with(21, 0b1011_0001),
            PackedError::Link { phrase: 0, link: 1 },
        ),
        (with(19, 4), PackedError::Short { missing: 1 }),
        (with(19, 2), PackedError::Long),
    ];
    for (bytes, error) in cases {
        assert_eq!(unpacked(&bytes, 0), Err(error), "{error}");
        assert!(error.to_string().len() > 20);
    }
}

#[test]
fn an_error_stays() {
    let bytes = with(19, 2);
    let mut symbols = Packed::parse(&bytes).unwrap().part(0);
    assert_eq!(symbols.next(), Some(Ok(b'b')));
    assert_eq!(symbols.next(), Some(Ok(b'a')));
    for _ in 0..3 {
        assert_eq!(symbols.next(), Some(Err(PackedError::Long)));
        assert_eq!(symbols.read(&mut [0; 4]), Err(PackedError::Long));
    }
}
