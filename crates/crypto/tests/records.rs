//! Tests records of the general AEADs: every tier against the portable one, at the edges of memory, and forged.

use crate::common::{Bytes, on_each_tier};
use esplanade_crypto::lookaside::{
    AeadAlgorithm, AeadError, AeadKey, Record, open_records, seal_records,
};
use esplanade_crypto::{JobStatus, Tier};
use esplanade_testkit::guard::{Flush, Guarded};

const RECORDS: usize = 150;
const ROOM: usize = 4000;

fn key(tier: Tier, algorithm: AeadAlgorithm, seed: u64) -> AeadKey {
    let bytes = Bytes::new(seed << 8 | 0x5a).take(algorithm.key_len());
    AeadKey::for_tier(tier, algorithm, &bytes).expect("a good key")
}

struct Spec {
    algorithm: AeadAlgorithm,
    nonce: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
}

/// Over the rounds every length up to 300 occurs; the AADs have all lengths around blocks.
fn specs(round: usize, algorithms: &[AeadAlgorithm]) -> Vec<Spec> {
    let mut random = Bytes::new(round as u64 * 31 + 7);
    let spec = |number: usize| {
        let len = match number % 10 {
            9 => {
                [255, 256, 511, 512, 513, 1024, 1500, 3990][(number / 10 + round) % 8] + number % 3
            }
            _ => (number * 37 + round * 151) % 301,
        };
        let aad = match number % 7 {
            6 => random.below(300),
            _ => (number + round) % 35,
        };
        Spec {
            algorithm: algorithms[number % algorithms.len()],
            nonce: random.take(12).try_into().expect("twelve bytes"),
            aad: random.take(aad),
            plain: random.take(len),
        }
    };
    (0..RECORDS).map(spec).collect()
}

fn keys(tier: Tier, specs: &[Spec]) -> Vec<AeadKey> {
    let made = |(number, spec): (usize, &Spec)| key(tier, spec.algorithm, number as u64);
    specs.iter().enumerate().map(made).collect()
}

type Sealed = Vec<(Vec<u8>, [u8; 16])>;

fn sealed_by_library(specs: &[Spec]) -> Sealed {
    let keys = keys(Tier::Portable, specs);
    let mut texts: Vec<Vec<u8>> = specs.iter().map(|spec| spec.plain.clone()).collect();
    let mut records: Vec<Record> = specs
        .iter()
        .zip(&keys)
        .zip(&mut texts)
        .map(|((spec, key), text)| {
            Record::in_place(key, spec.nonce, &spec.aad, text).expect("fits")
        })
        .collect();
    seal_records(&mut records);
    let tags: Vec<[u8; 16]> = records.iter().map(|record| *record.tag()).collect();
    texts.into_iter().zip(tags).collect()
}

/// Puts input, AAD and output each between pages that may not be touched, in place and apart.
#[test]
fn records_between_guard_pages() {
    let memory = || Guarded::new(RECORDS, ROOM).expect("memory");
    let (mut input, mut aads, mut output) = (memory(), memory(), memory());
    on_each_tier(|tier| {
        for round in 0..8 {
            let one = [AeadAlgorithm::ALL[round % 4]];
            let mixed = &AeadAlgorithm::ALL[..];
            let specs = specs(round, if round < 4 { &one } else { mixed });
            let keys = keys(tier, &specs);
            let sealed = sealed_by_library(&specs);
            let flush = if round % 2 == 0 {
                Flush::End
            } else {
                Flush::Begin
            };
            for (seal, apart) in [(true, true), (true, false), (false, true), (false, false)] {
                let lens = || specs.iter().map(|spec| spec.plain.len());
                let mut places = input.slices(flush, lens()).collect::<Vec<_>>();
                let mut others = output.slices(flush, lens()).collect::<Vec<_>>();
                let mut aads = aads
                    .slices(flush, specs.iter().map(|s| s.aad.len()))
                    .collect::<Vec<_>>();
                for (number, spec) in specs.iter().enumerate() {
                    places[number].copy_from_slice(if seal {
                        &spec.plain
                    } else {
                        &sealed[number].0
                    });
                    others[number].fill(0xcc);
                    aads[number].copy_from_slice(&spec.aad);
                }
                let mut records: Vec<Record> = Vec::new();
                let buffers = places.iter_mut().zip(&mut others).zip(&aads);
                for (number, ((place, other), aad)) in buffers.enumerate() {
                    let (key, nonce) = (&keys[number], specs[number].nonce);
                    let record = match apart {
                        true => Record::apart(key, nonce, aad, place, other),
                        false => Record::in_place(key, nonce, aad, place),
                    };
                    records.push(record.expect("fits").with_tag(sealed[number].1));
                }
                match seal {
                    true => seal_records(&mut records),
                    false => open_records(&mut records),
                }
                assert!(
                    records
                        .iter()
                        .all(|record| record.status() == JobStatus::Done)
                );
                let tags: Vec<[u8; 16]> = records.iter().map(|record| *record.tag()).collect();
                for (number, spec) in specs.iter().enumerate() {
                    let name = format!(
                        "{tier} {} seal {seal} apart {apart} number {number}",
                        spec.algorithm
                    );
                    let result = if apart {
                        &others[number]
                    } else {
                        &places[number]
                    };
                    let expected = if seal { &sealed[number].0 } else { &spec.plain };
                    assert!(*result == &expected[..], "{name}, {} bytes", expected.len());
                    assert_eq!(tags[number], sealed[number].1, "{name}");
                }
            }
        }
    });
}

/// Flips every bit of a short record: text, AAD, nonce and tag.
#[test]
fn every_flipped_bit_is_refused() {
    on_each_tier(|tier| {
        for algorithm in AeadAlgorithm::ALL {
            let key = key(tier, algorithm, 77);
            let mut random = Bytes::new(9);
            let (nonce, aad, plain) = (random.take(12), random.take(13), random.take(21));
            let mut text = plain.clone();
            let mut record =
                [Record::in_place(&key, nonce[..].try_into().unwrap(), &aad, &mut text).unwrap()];
            seal_records(&mut record);
            let tag = *record[0].tag();
            let whole = [&nonce[..], &aad, &text, &tag].concat();
            let mut copies: Vec<Vec<u8>> = (0..=whole.len() * 8)
                .map(|bit| {
                    let mut copy = whole.clone();
                    if let Some(byte) = copy.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                    copy
                })
                .collect();
            let mut records: Vec<Record> = Vec::new();
            for copy in &mut copies {
                let (nonce, rest) = copy.split_at_mut(12);
                let (aad, rest) = rest.split_at_mut(13);
                let (text, tag) = rest.split_at_mut(21);
                let tag = (&*tag).try_into().unwrap();
                let nonce = (&*nonce).try_into().unwrap();
                records.push(
                    Record::in_place(&key, nonce, aad, text)
                        .unwrap()
                        .with_tag(tag),
                );
            }
            open_records(&mut records);
            let statuses: Vec<JobStatus> = records.iter().map(Record::status).collect();
            for (bit, (copy, status)) in copies.iter().zip(statuses).enumerate() {
                let text = &copy[25..46];
                if bit == whole.len() * 8 {
                    assert_eq!(
                        (status, text),
                        (JobStatus::Done, &plain[..]),
                        "{tier} {algorithm}"
                    );
                } else {
                    assert_eq!(
                        status,
                        JobStatus::AuthFailed,
                        "{tier} {algorithm} bit {bit}"
                    );
                    assert!(
                        text.iter().all(|&byte| byte == 0),
                        "{tier} {algorithm} bit {bit}"
                    );
                }
            }
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_beforehand() {
    let algorithm = AeadAlgorithm::Aes128Gcm;
    let key = AeadKey::new(algorithm, &[1; 16]).expect("a good key");
    assert_eq!(key.tier(), Tier::current());
    let record = Record::apart(&key, [0; 12], b"", &[0; 3], &mut []);
    assert_eq!(record.err(), Some(AeadError::Lengths { from: 3, to: 0 }));
    for (bytes, error) in [
        (
            &[1; 15][..],
            AeadError::KeyLength {
                algorithm,
                actual: 15,
            },
        ),
        (&[0; 16][..], AeadError::ZeroKey),
    ] {
        assert_eq!(AeadKey::new(algorithm, bytes).err(), Some(error));
    }
    for tier in Tier::ALL {
        let made = AeadKey::for_tier(tier, algorithm, &[1; 16]);
        let missing = tier.require().err().map(AeadError::Missing);
        assert_eq!(made.err(), missing, "{tier}");
    }
    let shown = format!("{key:?}");
    assert!(
        shown.contains("Aes128Gcm") && !shown.contains("1, 1"),
        "{shown}"
    );
    seal_records(&mut []);
}
