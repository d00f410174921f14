//! Known answers, and agreement of many blocks with one at a time.

use esplanade_crypto::testing::finalists::{FinalistName, Key};
use esplanade_testkit::vectors::primitives;

const BLOCK: usize = 16;

type Block = [u8; BLOCK];

const FINALISTS: [(FinalistName, &str); 4] = [
    (FinalistName::Serpent, "ace/serpent.json"),
    (FinalistName::Twofish, "ace/twofish.json"),
    (FinalistName::Rc6, "ace/rc6.json"),
    (FinalistName::Mars, "ace/mars.json"),
];

/// Fixed bytes that look random.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn block(bytes: &[u8]) -> Block {
    bytes.try_into().expect("16 bytes")
}

/// The place of the block among others says which code does it: vectors, planes or one block at a time.
#[test]
fn published_answers_and_those_of_the_model() {
    for (name, file) in FINALISTS {
        let cases = primitives(file).cases;
        for case in &cases {
            let key = Key::new(name, &case.key).expect("a good key");
            for among in [1, 9, 40] {
                let mut blocks = vec![[0; BLOCK]; among];
                blocks[among - 1] = block(&case.input);
                for _ in 0..case.chain {
                    key.encrypt(&mut blocks);
                }
                assert_eq!(blocks[among - 1][..], case.output, "{file} {}", case.name);
                for _ in 0..case.chain {
                    key.decrypt(&mut blocks);
                }
                assert_eq!(blocks[among - 1][..], case.input, "{file} {}", case.name);
            }
        }
        for len in [16, 24, 32] {
            let of_len = cases.iter().filter(|case| case.key.len() == len);
            assert!(of_len.count() > 40, "{file}: keys of {len} bytes");
        }
    }
}

#[test]
fn blocks_do_not_depend_on_their_neighbours() {
    for (name, _) in FINALISTS {
        for key_len in [16, 24, 32] {
            let key = Key::new(name, &bytes(key_len)).expect("a good key");
            let all: Vec<Block> = bytes(16 * 200).chunks(16).map(block).collect();
            let each = |work: &dyn Fn(&mut [Block])| {
                let mut alone = all.clone();
                alone.chunks_mut(1).for_each(work);
                for count in (1..70).chain([127, 128, 129, 200]) {
                    let mut blocks = all[..count].to_vec();
                    work(&mut blocks);
                    assert_eq!(blocks, alone[..count], "{name:?}");
                }
            };
            each(&|blocks| key.encrypt(blocks));
            each(&|blocks| key.decrypt(blocks));
        }
    }
}

/// RFC 3686 §4, with another cipher in the place of AES.
#[test]
fn counter_mode_is_that_of_rfc_3686() {
    for (name, _) in FINALISTS {
        let key = Key::new(name, &bytes(32)).expect("a good key");
        let text = bytes(5000);
        let mut sealed = text.clone();
        key.ctr(*b"none", *b"sequence", &mut sealed);
        let parts = text.chunks(16).zip(sealed.chunks(16));
        for (number, (text, sealed)) in (1u32..).zip(parts) {
            let nonce = [b"nonesequence", &number.to_be_bytes()[..]].concat();
            let mut stream = [block(&nonce)];
            key.encrypt(&mut stream);
            let expected: Vec<u8> = text.iter().zip(&stream[0]).map(|(a, b)| a ^ b).collect();
            assert_eq!(sealed, expected, "{name:?}");
        }
        for len in 0..200 {
            let mut part = text[..len].to_vec();
            key.ctr(*b"none", *b"sequence", &mut part);
            assert_eq!(part, sealed[..len], "{name:?}");
        }
    }
}

#[test]
fn cbc_chains_blocks_in_both_directions() {
    for (name, _) in FINALISTS {
        let key = Key::new(name, &bytes(24)).expect("a good key");
        let text = bytes(16 * 300);
        let iv = block(b"initialisation v");
        let mut sealed = text.clone();
        key.cbc_encrypt(iv, &mut sealed);
        let mut before = iv;
        for (text, sealed) in text.chunks(16).zip(sealed.chunks(16)) {
            let mut one = [block(text)];
            for (byte, before) in one[0].iter_mut().zip(before) {
                *byte ^= before;
            }
            key.encrypt(&mut one);
            assert_eq!(sealed, one[0], "{name:?}");
            before = one[0];
        }
        key.cbc_decrypt(iv, &mut sealed);
        assert_eq!(sealed, text, "{name:?}");
    }
}

#[test]
fn other_lengths_of_keys_are_refused() {
    for (name, _) in FINALISTS {
        for len in (0..40).filter(|len| ![16, 24, 32].contains(len)) {
            assert!(Key::new(name, &bytes(len)).is_none(), "{name:?} {len}");
        }
    }
}
