//! Tests every tier against the library and against the published vectors.

use std::ops::Range;

use esplanade_crypto::Tier;
use esplanade_crypto::testing::des::{
    self, ArenaChain, decrypt, encrypt, gate, library_decrypt, library_encrypt,
};
use esplanade_testkit::net::Rng;
use esplanade_testkit::vectors::primitives;

const BLOCK: usize = 8;

/// Bytes on each side of a body that nobody may touch.
const MARGIN: usize = 64;

fn tiers() -> impl Iterator<Item = Tier> {
    // The portable tier has words of 64 bits. No machine uses it, but every machine can test it.
    Tier::ALL.into_iter().filter(|tier| tier.available())
}

struct DesCase {
    key: Vec<u8>,
    iv: [u8; 8],
    body: Vec<u8>,
}

impl DesCase {
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
fn by_kernel(tier: Tier, encrypt: bool, cases: &[DesCase]) -> Vec<Vec<u8>> {
    let mut arena = Vec::new();
    let mut places: Vec<Range<usize>> = Vec::new();
    for case in cases {
        arena.extend([0xa5; MARGIN]);
        places.push(arena.len()..arena.len() + case.body.len());
        arena.extend(&case.body);
        arena.extend([0x5a; MARGIN]);
    }
    let chains: Vec<ArenaChain<'_>> = cases
        .iter()
        .zip(&places)
        .map(|(case, place)| (&case.key[..], case.iv, place.clone()))
        .collect();
    match encrypt {
        true => des::encrypt(tier, &mut arena, &chains),
        false => des::decrypt(tier, &mut arena, &chains),
    }
    let margin = |from: usize, byte: u8| arena[from..from + MARGIN].iter().all(|&b| b == byte);
    for place in &places {
        assert!(margin(place.start - MARGIN, 0xa5) && margin(place.end, 0x5a));
    }
    places
        .iter()
        .map(|place| arena[place.clone()].to_vec())
        .collect()
}

fn by_library(encrypt: bool, cases: &[DesCase]) -> Vec<Vec<u8>> {
    let one = |case: &DesCase| {
        let mut body = case.body.clone();
        match encrypt {
            true => library_encrypt(&case.key, case.iv, &mut body),
            false => library_decrypt(&case.key, case.iv, &mut body),
        }
        body
    };
    cases.iter().map(one).collect()
}

fn compare(tier: Tier, cases: &[DesCase]) {
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
                let case = |_| DesCase::random(&mut random, triple, blocks);
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
                .map(|blocks| DesCase::random(&mut random, triple, blocks))
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
                    DesCase::random(&mut random, triple, blocks)
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
            let case = |key: &[u8], iv: &[u8], body: &[u8]| DesCase {
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
    let cases = [DesCase::random(&mut random, true, 40)];
    let key = &cases[0].key[..];
    let chains: Vec<ArenaChain<'_>> = (0..32).map(|at| (key, [0; 8], at..at + 64)).collect();
    for tier in tiers() {
        let mut body = cases[0].body.clone();
        encrypt(tier, &mut body, &chains);
        decrypt(tier, &mut body, &chains);
        assert_eq!(body[95..], cases[0].body[95..]);
    }
}

#[test]
fn gates_are_their_tables() {
    /// Bit `n` of the words is input `n` of the table.
    fn check<const TABLE: i32>() {
        assert_eq!(gate::<TABLE>(0xf0, 0xcc, 0xaa) & 0xff, TABLE as u64);
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
    let made = |len| des::is_triple(&vec![1; len]);
    let lengths = [0, 7, 8, 16, 23, 24, 25].map(made);
    let expected = [None, None, Some(false), None, None, Some(true), None];
    assert_eq!(lengths, expected);
}
