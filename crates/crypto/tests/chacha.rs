//! Tests every tier against the library. Where the library offers no comparison, a plain arithmetic takes its place.

use std::ops::Range;

use esplanade_crypto::iana::Encryption;
use esplanade_crypto::lookaside::{self, AeadAlgorithm, AeadKey, EspPacket, Record};
use esplanade_crypto::testing::chacha::{
    MESSAGES, Message, open_by_kernel, same, seal_by_kernel, tags,
};
use esplanade_crypto::testing::fault::{self, Effect};
use esplanade_crypto::testing::{self, ArenaPacket, Family, family};
use esplanade_crypto::{IvKind, JobStatus, KeyContext, Tier, Transform, cpu};
use esplanade_testkit::vectors::primitive_files;

const TAG_LEN: usize = 16;

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ x >> 29
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.next() as u8)
    }

    fn vec(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn tiers() -> impl Iterator<Item = Tier> {
    let kernels = [Tier::AesNi, Tier::Avx512].into_iter();
    kernels.filter(|tier| tier.available())
}

fn transform(implicit: bool) -> Transform {
    let kind = |t: &Transform| t.iv_kind() == IvKind::Implicit;
    let found = Transform::ESP.iter().find(|t| {
        let ours = [
            Encryption::ChaCha20Poly1305,
            Encryption::ChaCha20Poly1305Iiv,
        ];
        t.encryption().is_some_and(|e| ours.contains(&e)) && kind(t) == implicit
    });
    *found.expect("both transforms are there")
}

/// A message of the general form, with the library's result for it.
struct AeadCase {
    material: [u8; 36],
    nonce: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    tag: [u8; 16],
}

impl AeadCase {
    fn new(random: &mut Random, len: usize, aad_len: usize) -> Self {
        let material: [u8; 36] = random.bytes();
        let iv: [u8; 8] = random.bytes();
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&material[32..]);
        nonce[4..].copy_from_slice(&iv);
        let (aad, plain) = (random.vec(aad_len), random.vec(len));
        let library = (Encryption::ChaCha20Poly1305, 16, &material[..]);
        let (mut sealed, mut tag) = (plain.clone(), [0; 16]);
        testing::aead_seal(library, iv, &aad, &mut sealed, &mut tag).expect("the lengths fit");
        Self {
            material,
            nonce,
            aad,
            plain,
            sealed,
            tag,
        }
    }
}

const GUARD: usize = 80;

/// Seals and opens the cases in one call, in place and apart, and checks the bytes around the bodies.
fn check(tier: Tier, cases: &[AeadCase]) {
    for (opening, apart) in [(false, false), (false, true), (true, false), (true, true)] {
        let input = |case: &AeadCase| {
            if opening {
                case.sealed.clone()
            } else {
                case.plain.clone()
            }
        };
        let guarded = |text: &[u8]| [&[0xa5; GUARD][..], text, &[0xa5; GUARD]].concat();
        let sources: Vec<Vec<u8>> = cases.iter().map(|case| guarded(&input(case))).collect();
        let mut targets: Vec<Vec<u8>> = if apart {
            let blank = |case: &AeadCase| guarded(&vec![0; case.plain.len()]);
            cases.iter().map(blank).collect()
        } else {
            sources.clone()
        };
        let texts = cases.iter().zip(&sources).zip(&mut targets);
        let mut messages: Vec<Message<'_>> = texts
            .map(|((case, source), target)| {
                let body = GUARD..GUARD + case.plain.len();
                Message {
                    material: case.material,
                    nonce: case.nonce,
                    aad: &case.aad,
                    from: apart.then(|| &source[body.clone()]),
                    to: &mut target[body],
                }
            })
            .collect();
        let tags = match opening {
            true => open_by_kernel(tier, &mut messages),
            false => seal_by_kernel(tier, &mut messages),
        };
        for (at, case) in cases.iter().enumerate() {
            let expected = if opening { &case.plain } else { &case.sealed };
            let (len, aad_len) = (case.plain.len(), case.aad.len());
            let what = format!("{tier}, case {at}, {len} and {aad_len} bytes, {opening} {apart}");
            assert_eq!(targets[at], guarded(expected), "{what}");
            assert_eq!(tags[at], case.tag, "{what}");
            if apart {
                assert_eq!(sources[at], guarded(&input(case)), "{what}");
            }
        }
    }
}

#[test]
fn every_length_alone() {
    let mut random = Random(1);
    for tier in tiers() {
        for len in (0..700).chain([1023, 1024, 1025, 1446, 2047, 2049, 4097, 9000, 65_536]) {
            let aad_len = random.below(40);
            check(tier, &[AeadCase::new(&mut random, len, aad_len)]);
        }
    }
}

#[test]
fn every_length_of_aad() {
    let mut random = Random(2);
    for tier in tiers() {
        let cases: Vec<AeadCase> = (0..100)
            .map(|aad_len| AeadCase::new(&mut random, 80, aad_len))
            .collect();
        check(tier, &cases);
        for case in &cases {
            check(tier, std::slice::from_ref(case));
        }
        check(tier, &[AeadCase::new(&mut random, 1, 5000)]);
    }
}

#[test]
fn ragged_mixes() {
    let mut random = Random(3);
    for tier in tiers() {
        for round in 0..250 {
            let count = 1 + random.below(MESSAGES);
            // Lengths of the rounds: short ones, all sizes, all equal, one long one among short ones.
            let longest = [70, 300, 1500, 4000][round % 4];
            let alike = random.below(longest);
            let cases: Vec<AeadCase> = (0..count)
                .map(|at| {
                    let len = match round % 5 {
                        0 => alike,
                        1 if at == count / 2 => 20_000,
                        1 => alike % 100,
                        _ => random.below(longest),
                    };
                    let aad_len = [8, 12][at % 2];
                    AeadCase::new(&mut random, len, aad_len)
                })
                .collect();
            check(tier, &cases);
        }
    }
}

/// Every count of messages around the sizes of groups, with lengths around the sizes of blocks.
#[test]
fn every_count_of_messages() {
    let mut random = Random(4);
    for tier in tiers() {
        for count in (1..=36).chain([63, 64, 65, 127, MESSAGES]) {
            let cases: Vec<AeadCase> = (0..count)
                .map(|at| {
                    let len = [0, 16, 63, 64, 65, 128, 1024][at % 7] + at % 3;
                    AeadCase::new(&mut random, len, 12)
                })
                .collect();
            check(tier, &cases);
        }
    }
}

/// A packet of a batch, before and after sealing by the library.
struct TestPacket {
    key: KeyContext,
    sequence: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl TestPacket {
    fn new(tier: Tier, random: &mut Random, len: usize) -> Self {
        let (implicit, esn) = (random.below(2) == 0, random.below(2) == 0);
        let (transform, sequence) = (transform(implicit), random.next());
        let material: [u8; 36] = random.bytes();
        let key = |tier| KeyContext::for_tier(tier, transform, esn, &material).expect("a good key");
        let mut plain = random.vec(8 + transform.iv_len() + len + TAG_LEN);
        plain[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        let mut sealed = plain.clone();
        let status = cpu::seal(&key(Tier::Portable), sequence, &mut sealed);
        assert_eq!(status, JobStatus::Done);
        assert_eq!(family(&key(tier)), Family::ChaCha);
        Self {
            key: key(tier),
            sequence,
            plain,
            sealed,
        }
    }
}

/// Lays out texts one after the other.
fn arena<'a>(texts: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for text in texts {
        places.push(bytes.len()..bytes.len() + text.len());
        bytes.extend_from_slice(text);
    }
    (bytes, places)
}

#[test]
fn packets_of_both_transforms_and_all_flags() {
    let mut random = Random(5);
    for tier in tiers() {
        for count in [1, 5, 16, 17, 100, MESSAGES] {
            let packets: Vec<TestPacket> = (0..count)
                .map(|_| {
                    let len = 4 * (1 + random.below(400));
                    TestPacket::new(tier, &mut random, len)
                })
                .collect();
            let (mut bytes, places) = arena(packets.iter().map(|packet| &packet.plain[..]));
            let work: Vec<ArenaPacket<'_>> = packets
                .iter()
                .zip(&places)
                .map(|(packet, place)| (&packet.key, place.clone(), packet.sequence))
                .collect();
            assert_eq!(testing::seal(tier, &mut bytes, &work), vec![true; count]);
            for (packet, place) in packets.iter().zip(&places) {
                assert_eq!(bytes[place.clone()], packet.sealed);
            }

            // One bit at a random place is wrong in every third packet.
            for (at, place) in places.iter().enumerate().filter(|(at, _)| at % 3 == 1) {
                let byte = place.start + random.below(place.len());
                bytes[byte] ^= 1 << (at % 8);
            }
            let authentic = testing::open(tier, &mut bytes, &work);
            for (at, (packet, place)) in packets.iter().zip(&places).enumerate() {
                assert_eq!(authentic[at], at % 3 != 1, "packet {at} of {count}");
                if authentic[at] {
                    let body = ..packet.plain.len() - TAG_LEN;
                    assert_eq!(bytes[place.clone()][body], packet.plain[body]);
                }
            }
        }
    }
}

#[test]
fn every_bit_of_a_tag_counts() {
    for bit in 0..128 {
        let tag = 0x0123_4567_89ab_cdef_u128.wrapping_mul(0xffff_ffff_fedc);
        assert!(same(&tag.to_le_bytes(), &tag.to_le_bytes()));
        assert!(!same(&tag.to_le_bytes(), &(tag ^ 1 << bit).to_le_bytes()));
    }
}

/// Poly1305 of an AEAD's ciphertext, bit by bit. Numbers are 64-bit digits, reduced by subtraction.
mod plain_poly {
    type Wide = [u64; 5];

    fn less(a: &Wide, b: &Wide) -> bool {
        a.iter().rev().lt(b.iter().rev())
    }

    fn add(a: &Wide, b: &Wide) -> Wide {
        let mut carry = 0;
        std::array::from_fn(|at| {
            let sum = u128::from(a[at]) + u128::from(b[at]) + carry;
            carry = sum >> 64;
            sum as u64
        })
    }

    const P: Wide = [0xffff_ffff_ffff_fffb, u64::MAX, 3, 0, 0];

    fn reduced(a: Wide) -> Wide {
        if less(&a, &P) {
            return a;
        }
        // a - p = a + (2^320 - p), cut to 320 bits.
        add(&a, &[5, 0, 0u64.wrapping_sub(4), u64::MAX, u64::MAX])
    }

    fn wide(bytes: &[u8]) -> Wide {
        let mut all = [0; 40];
        all[..bytes.len()].copy_from_slice(bytes);
        std::array::from_fn(|at| {
            let digit: [u8; 8] = all[8 * at..8 * at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(digit)
        })
    }

    pub(super) fn tag(once: &[u8; 64], blocks: &[[u8; 16]]) -> [u8; 16] {
        let mut r: [u8; 16] = once[..16].try_into().expect("sixteen bytes");
        for at in [3, 7, 11, 15] {
            r[at] &= 15;
        }
        for at in [4, 8, 12] {
            r[at] &= 252;
        }
        let mut h = [0; 5];
        for block in blocks {
            let number = wide(&[&block[..], &[1]].concat());
            let sum = reduced(reduced(add(&h, &number)));
            h = [0; 5];
            for bit in (0..128).rev() {
                h = reduced(add(&h, &h));
                if r[bit / 8] >> (bit % 8) & 1 == 1 {
                    h = reduced(add(&h, &sum));
                }
            }
        }
        let total = add(&h, &wide(&once[16..32]));
        let low = u128::from(total[0]) | u128::from(total[1]) << 64;
        low.to_le_bytes()
    }
}

/// Tests one-time keys and texts at the edges of Poly1305's arithmetic, which no choice of AEAD keys would reach. The
/// edges are limbs full of ones, sums at and around 2^130 - 5, and an s that carries. The texts run alone, across
/// lanes, and long enough for powers of r.
#[test]
fn poly1305_at_its_limits() {
    let edges: [[u8; 16]; 7] = [
        [0xff; 16],
        [0; 16],
        (u128::MAX - 4).to_le_bytes(),
        (u128::MAX - 5).to_le_bytes(),
        (u128::MAX << 44).to_le_bytes(),
        (u128::MAX >> 40).to_le_bytes(),
        1u128.to_le_bytes(),
    ];
    for tier in tiers() {
        let mut random = Random(6);
        for round in 0..60 {
            let count = [1, 3, 8, 9, 16, 21][round % 6];
            let blocks = [1, 2, 5, 40, 67, 260][round / 6 % 6];
            let mut texts: Vec<Vec<[u8; 16]>> = Vec::new();
            let mut once: Vec<[u8; 64]> = Vec::new();
            for _ in 0..count {
                let mut edge = || edges[random.below(edges.len())];
                texts.push((0..blocks).map(|_| edge()).collect());
                let mut block = [0; 64];
                block[..16].copy_from_slice(&edge());
                block[16..32].copy_from_slice(&edge());
                once.push(block);
            }
            let found = tags(tier, &edges[0], &texts, &once);
            for ((tag, text), once) in found.iter().zip(&texts).zip(&once) {
                let lengths = 16u128 | (16 * blocks as u128) << 64;
                let all = [&[edges[0]], &text[..], &[lengths.to_le_bytes()]].concat();
                let expected = plain_poly::tag(once, &all);
                assert_eq!(*tag, expected, "{tier}, round {round}");
            }
        }
    }
}

/// Runs Wycheproof's vectors and those of the RFCs.
#[test]
fn published_vectors() {
    let files = primitive_files();
    let files = files.iter().filter(|f| f.algorithm == "ChaCha20-Poly1305");
    let cases: Vec<_> = files.flat_map(|file| &file.cases).collect();
    assert!(cases.len() >= 300, "{} cases", cases.len());
    for tier in tiers() {
        for cases in cases.chunks(50) {
            let mut bodies: Vec<Vec<u8>> = cases.iter().map(|case| case.input.clone()).collect();
            let mut messages: Vec<Message<'_>> = cases
                .iter()
                .zip(&mut bodies)
                .map(|(case, body)| {
                    let material = [&case.key[..], &[0; 4]].concat();
                    Message {
                        material: material.try_into().expect("32 bytes of key"),
                        nonce: case.iv[..].try_into().expect("twelve bytes"),
                        aad: &case.aad,
                        from: None,
                        to: body,
                    }
                })
                .collect();
            let tags = seal_by_kernel(tier, &mut messages);
            for ((case, body), tag) in cases.iter().zip(&bodies).zip(&tags) {
                let same = body == &case.output && tag[..] == case.icv[..];
                assert_eq!(same, case.valid, "{tier}: {}", case.name);
            }
        }
    }
}

/// A packet or a record that the library refuses to seal does not count as sealed.
#[test]
fn a_refusal_of_the_library_is_malformed() {
    for tier in tiers() {
        let _fault = fault::inject(tier, 1, Effect::Unsealed);
        let key = KeyContext::for_tier(tier, transform(false), false, &[7; 36]);
        let key = key.expect("a good key");
        let mut bytes = [[0x5a; 100]; 3];
        // So few and short packets are the library's.
        let mut packets = bytes.each_mut().map(|bytes| EspPacket::new(&key, 1, bytes));
        lookaside::seal_esp(&mut packets);
        let expected = [JobStatus::Done, JobStatus::Malformed, JobStatus::Done];
        assert_eq!(packets.map(|packet| packet.status), expected, "{tier}");

        let key = AeadKey::for_tier(tier, AeadAlgorithm::ChaCha20Poly1305, &[7; 32]);
        let key = key.expect("a good key");
        let mut texts = [[0x5a; 100]; 3];
        let record = |text| Record::in_place(&key, [1; 12], b"head", text).expect("it fits");
        let mut records = texts.each_mut().map(|text| record(text));
        lookaside::seal_records(&mut records);
        assert_eq!(records.map(|record| record.status()), expected, "{tier}");
    }
}
