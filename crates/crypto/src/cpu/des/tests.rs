//! Tests every tier against the library and against the published vectors.

use esplanade_testkit::net::Rng;
use esplanade_testkit::vectors::primitives;

use super::*;

/// Bytes on each side of a body that nobody may touch.
const MARGIN: usize = 64;

fn tiers() -> impl Iterator<Item = Tier> {
    // The portable tier has words of 64 bits. No machine uses it, but every machine can test it.
    Tier::ALL.into_iter().filter(|tier| tier.available())
}

struct Case {
    key: Vec<u8>,
    iv: [u8; 8],
    body: Vec<u8>,
}

impl Case {
    fn random(random: &mut Rng, triple: bool, blocks: usize) -> Self {
        let mut bytes = |len| {
            let mut bytes = vec![0; len];
            random.fill(&mut bytes);
            bytes
        };
        Self {
            key: bytes(if triple { 24 } else { 8 }),
            iv: bytes(8).try_into().expect("eight bytes"),
            body: bytes(blocks * BLOCK),
        }
    }
}

/// Returns what the kernel makes of the cases.
fn by_kernel(tier: Tier, encrypt: bool, cases: &[Case]) -> Vec<Vec<u8>> {
    let keys: Vec<Key> = cases
        .iter()
        .filter_map(|case| Key::new(&case.key))
        .collect();
    let mut buffers: Vec<Vec<u8>> = cases
        .iter()
        .map(|case| [&[0xa5; MARGIN], &case.body[..], &[0x5a; MARGIN]].concat())
        .collect();
    let chains: Vec<Chain> = cases
        .iter()
        .zip(&keys)
        .zip(&mut buffers)
        .map(|((case, key), buffer)| Chain {
            key,
            iv: case.iv,
            body: buffer[MARGIN..].as_mut_ptr(),
            len: case.body.len() as u32,
        })
        .collect();
    // SAFETY: the tier is available, and the bodies lie in the buffers.
    unsafe {
        match encrypt {
            true => super::encrypt(tier, &chains),
            false => super::decrypt(tier, &chains),
        }
    }
    buffers
        .into_iter()
        .map(|buffer| {
            let (before, rest) = buffer.split_at(MARGIN);
            let (body, after) = rest.split_at(rest.len() - MARGIN);
            assert!(before.iter().all(|&b| b == 0xa5) && after.iter().all(|&b| b == 0x5a));
            body.to_vec()
        })
        .collect()
}

fn by_library(encrypt: bool, cases: &[Case]) -> Vec<Vec<u8>> {
    let one = |case: &Case| {
        let key = DesKey::new(&case.key).expect("a good length");
        let mut body = case.body.clone();
        match encrypt {
            true => key.encrypt(case.iv, &mut body),
            false => key.decrypt(case.iv, &mut body),
        }
        body
    };
    cases.iter().map(one).collect()
}

fn compare(tier: Tier, cases: &[Case]) {
    for encrypt in [true, false] {
        let (ours, theirs) = (by_kernel(tier, encrypt, cases), by_library(encrypt, cases));
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let (of, blocks) = (cases.len(), cases[number].body.len() / BLOCK);
            assert!(
                ours == theirs,
                "{tier}, encrypt {encrypt}: chain {number} of {of}, {blocks} blocks"
            );
        }
    }
}

#[test]
fn lanes_of_one_length() {
    let mut random = Rng::new(1);
    for tier in tiers() {
        for count in [1, 5, 6, 7, 8, 9, 63, 64, 65, 128, 255, 257, 511, 512, 513] {
            for (triple, blocks) in [(false, 1), (true, 2), (true, 9)] {
                let case = |_| Case::random(&mut random, triple, blocks);
                let cases: Vec<_> = (0..count).map(case).collect();
                compare(tier, &cases);
            }
        }
    }
}

#[test]
fn every_length_around_the_pieces() {
    let mut random = Rng::new(2);
    for tier in tiers() {
        for triple in [false, true] {
            let cases: Vec<_> = (0..=33)
                .map(|blocks| Case::random(&mut random, triple, blocks))
                .collect();
            compare(tier, &cases);
            for case in cases {
                compare(tier, &[case]);
            }
        }
    }
}

#[test]
fn ragged_mixes() {
    let mut random = Rng::new(3);
    for tier in tiers() {
        for round in 0..12 {
            let count = 1 + random.below(600);
            let longest = [4, 40, 190][round % 3];
            let cases: Vec<_> = (0..count)
                .map(|_| {
                    let blocks = random.below(longest) as usize;
                    let triple = random.chance(0.7);
                    Case::random(&mut random, triple, blocks)
                })
                .collect();
            compare(tier, &cases);
        }
    }
}

#[test]
fn published_vectors() {
    for tier in tiers() {
        for name in [
            "primitives/nist-des-cbc.json",
            "primitives/nist-3des-cbc.json",
        ] {
            let file = primitives(name);
            let case = |key: &[u8], iv: &[u8], body: &[u8]| Case {
                key: key.to_vec(),
                iv: iv.try_into().expect("eight bytes"),
                body: body.to_vec(),
            };
            // Each case runs sixteen times, so that no case has too few lanes.
            let many = || std::iter::repeat_n(&file.cases, 16).flatten();
            let plain: Vec<_> = many().map(|c| case(&c.key, &c.iv, &c.input)).collect();
            let sealed: Vec<_> = many().map(|c| case(&c.key, &c.iv, &c.output)).collect();
            for (encrypt, from, to) in [(true, &plain, &sealed), (false, &sealed, &plain)] {
                let made = by_kernel(tier, encrypt, from);
                assert!(made.iter().eq(to.iter().map(|case| &case.body)), "{tier}");
            }
        }
    }
}

#[test]
fn hostile_overlap_is_survived() {
    let mut random = Rng::new(4);
    let cases = [Case::random(&mut random, true, 40)];
    let key = Key::new(&cases[0].key).expect("a good length");
    for tier in tiers() {
        let mut body = cases[0].body.clone();
        let chains: Vec<_> = (0..32)
            .map(|at| Chain {
                key: &key,
                iv: [0; 8],
                body: body[at..].as_mut_ptr(),
                len: 64,
            })
            .collect();
        // SAFETY: the bodies lie in the buffer.
        unsafe {
            encrypt(tier, &chains);
            decrypt(tier, &chains);
        }
        assert_eq!(body[95..], cases[0].body[95..]);
    }
}

#[test]
fn gates_are_their_tables() {
    /// Bit `n` of the words is input `n` of the table.
    fn check<const TABLE: i32>() {
        assert_eq!(u64::gate::<TABLE>(0xf0, 0xcc, 0xaa) & 0xff, TABLE as u64);
    }
    check::<0x00>();
    check::<0xff>();
    check::<0x96>();
    check::<0xca>();
    check::<0x28>();
    check::<0x1b>();
    check::<0x73>();
    check::<0xe8>();
}

#[test]
fn keys_have_eight_or_twenty_four_bytes() {
    let made = |len| Key::new(&vec![1; len]).map(|key| key.triple);
    let lengths = [0, 7, 8, 16, 23, 24, 25].map(made);
    let expected = [None, None, Some(false), None, None, Some(true), None];
    assert_eq!(lengths, expected);
}
