//! Checks published answers on every tier: whole packets, primitives in the shape of ESP, and records.
//!
//! The cases of a file go through the engine in batches. Each case runs several times, so that it meets all lanes.

use std::collections::HashMap;

use crate::common::{self, Packets, on_each_tier};
use esplanade_crypto::lookaside::{AeadAlgorithm, AeadKey, Record, open_records, seal_records};
use esplanade_crypto::{JobStatus, KeyContext, Protocol, Tier, Transform, cpu};
use esplanade_testkit::vectors::{
    PacketProtocol, PrimitiveCase, packet_files, primitive_files, primitives,
};

const COPIES: usize = 5;

/// An ESP packet before and after sealing. A part of `sealed` may be unknown.
struct Case {
    name: String,
    key: KeyContext,
    sequence: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    /// The bytes of the packet that the answer covers.
    known: std::ops::Range<usize>,
}

/// Seals and opens all cases in one batch.
fn check(tier: Tier, cases: &[Case]) {
    let cases: Vec<&Case> = (0..COPIES).flat_map(|_| cases).collect();
    let mut packets: Vec<Vec<u8>> = cases.iter().map(|case| case.plain.clone()).collect();
    assert!(
        common::seal(batch(&cases, &mut packets))
            .iter()
            .all(|&s| s == JobStatus::Done)
    );
    for (case, packet) in cases.iter().zip(&packets) {
        let known = case.known.clone();
        assert_eq!(
            packet[known.clone()],
            case.sealed[known],
            "{tier}: {}",
            case.name
        );
    }
    // If only the cipher's answer is known, the ICV comes from sealing.
    let statuses = common::open(batch(&cases, &mut packets));
    for ((case, packet), status) in cases.iter().zip(&packets).zip(statuses) {
        assert_eq!(status, JobStatus::Done, "{tier}: {}", case.name);
        let transform = case.key.transform();
        let (ours, plain) = (
            common::body(transform, packet),
            common::body(transform, &case.plain),
        );
        assert_eq!(ours, plain, "{tier}: {}", case.name);
    }
}

fn batch<'a>(cases: &[&'a Case], packets: &'a mut [Vec<u8>]) -> Packets<'a> {
    let cases = cases.iter().zip(packets);
    cases
        .map(|(case, packet)| (&case.key, case.sequence, &mut packet[..]))
        .collect()
}

fn transform(name: &str) -> Transform {
    Transform::from_name(name).expect("a transform")
}

/// Runs the ESP and AH packets that scapy and pyca/cryptography made.
#[test]
fn whole_packets() {
    on_each_tier(|tier| {
        let mut cases = Vec::new();
        let mut seen = 0;
        for file in packet_files() {
            let transform = transform(&file.transform);
            for case in file.cases.iter().filter(|case| case.delivered.is_some()) {
                seen += 1;
                let key =
                    KeyContext::for_tier(tier, transform, case.esn, &case.key).expect("a good key");
                if file.protocol == PacketProtocol::Ah {
                    assert_eq!(transform.protocol(), Protocol::Ah);
                    continue;
                }
                let sealed = case.payload().to_vec();
                let portable = KeyContext::for_tier(Tier::Portable, transform, case.esn, &case.key);
                let mut plain = sealed.clone();
                let status = cpu::open(&portable.expect("a good key"), case.sequence, &mut plain);
                assert_eq!(status, JobStatus::Done, "{}", case.name);
                cases.push(Case {
                    name: format!("{transform}: {}", case.name),
                    key,
                    sequence: case.sequence,
                    plain,
                    known: 0..sealed.len(),
                    sealed,
                });
            }
        }
        assert!(seen > 500 && cases.len() > 400, "{seen}, {}", cases.len());
        check(tier, &cases);
    });
}

/// Runs AES-GCM in ESP with every key length.
#[test]
fn gcm_in_esp() {
    on_each_tier(|tier| {
        let mut cases = Vec::new();
        for case in primitives("esp/gcm-mcgrew.json").cases {
            let name = format!("AES_GCM_16_{}", (case.key.len() - 4) * 8);
            let key = KeyContext::for_tier(tier, transform(&name), case.esn, &case.key);
            let header = [
                &case.spi[..],
                &(case.sequence as u32).to_be_bytes(),
                &case.iv,
            ]
            .concat();
            let sealed = [&header[..], &case.output].concat();
            cases.push(Case {
                name: case.name,
                key: key.expect("a good key"),
                sequence: case.sequence,
                plain: [&header[..], &case.input, &[0; 16]].concat(),
                known: 0..sealed.len(),
                sealed,
            });
        }
        assert!(cases.len() >= 3);
        check(tier, &cases);
    });
}

/// Runs the ciphers and MACs that ESP combines, each with a fixed partner.
#[test]
fn ciphers_and_macs_in_esp() {
    on_each_tier(|tier| {
        let mut counts = HashMap::<String, usize>::new();
        let mut cases = Vec::new();
        for file in primitive_files() {
            for case in &file.cases {
                let made = cipher(tier, &file.algorithm, case);
                if let Some(made) = made.or_else(|| mac(tier, &file.algorithm, case)) {
                    *counts.entry(file.algorithm.clone()).or_default() += 1;
                    cases.push(made);
                }
            }
        }
        for (algorithm, least) in [
            ("AES-CBC", 8),
            ("AES-CTR", 9),
            ("3DES-CBC", 5),
            ("DES-CBC", 5),
            ("HMAC-SHA1", 8),
            ("HMAC-SHA256", 10),
        ] {
            let count = counts.get(algorithm).copied().unwrap_or_default();
            assert!(count >= least, "{algorithm}: {count}");
        }
        check(tier, &cases);
    });
}

/// Returns the cipher's answer followed by HMAC-SHA1-96. Returns None for other algorithms, for lengths that ESP does
/// not have, and for keys that it refuses.
fn cipher(tier: Tier, algorithm: &str, case: &PrimitiveCase) -> Option<Case> {
    let bits = case.key.len() * 8;
    let (name, salt, iv) = match algorithm {
        "AES-CBC" => (format!("AES_CBC_{bits}/HMAC_SHA1_96"), 0, &case.iv[..]),
        // The counter block is salt, IV and a counter that begins with one.
        "AES-CTR" => (format!("AES_CTR_{bits}/HMAC_SHA1_96"), 4, &case.iv[4..12]),
        "3DES-CBC" => ("3DES/HMAC_SHA1_96".to_owned(), 0, &case.iv[..]),
        "DES-CBC" => ("DES/HMAC_SHA1_96".to_owned(), 0, &case.iv[..]),
        _ => return None,
    };
    let material = [&case.key[..], &case.iv[..salt], &[0x5a; 20]].concat();
    packet(tier, &name, &material, case, iv)
}

/// Returns a message as an ESP packet without encryption.
fn mac(tier: Tier, algorithm: &str, case: &PrimitiveCase) -> Option<Case> {
    let (name, icv) = match algorithm {
        "HMAC-MD5" => ("NULL/HMAC_MD5_96", 12),
        "HMAC-SHA1" => ("NULL/HMAC_SHA1_96", 12),
        "HMAC-SHA256" => ("NULL/HMAC_SHA2_256_128", 16),
        "HMAC-SHA384" => ("NULL/HMAC_SHA2_384_192", 24),
        "HMAC-SHA512" => ("NULL/HMAC_SHA2_512_256", 32),
        "AES-XCBC" => ("NULL/AES_XCBC_96", 12),
        "AES-CMAC" => ("NULL/AES_CMAC_96", 12),
        _ => return None,
    };
    if !case.valid || case.icv.len() < icv {
        return None;
    }
    let transform = transform(name);
    let key = KeyContext::for_tier(tier, transform, false, &case.key).ok()?;
    let sealed = [&case.input[..], &case.icv[..icv]].concat();
    let mut plain = sealed.clone();
    plain[case.input.len()..].fill(0);
    fits(transform, &plain).then(|| Case {
        name: format!("{name}: {}", case.name),
        key,
        sequence: 0,
        plain,
        known: 0..sealed.len(),
        sealed,
    })
}

fn packet(
    tier: Tier,
    name: &str,
    material: &[u8],
    case: &PrimitiveCase,
    iv: &[u8],
) -> Option<Case> {
    let transform = transform(name);
    let key = KeyContext::for_tier(tier, transform, false, material).ok()?;
    let around = |body: &[u8]| [&[7; 8], iv, body, &[0; 12]].concat();
    let plain = around(&case.input);
    fits(transform, &plain).then(|| Case {
        name: format!("{name}: {}", case.name),
        key,
        sequence: 0,
        known: 0..plain.len() - 12,
        plain,
        sealed: around(&case.output),
    })
}

fn fits(transform: Transform, packet: &[u8]) -> bool {
    let fixed = 8 + transform.iv_len() + transform.icv_len();
    packet.len() >= transform.sealed_len_min()
        && (packet.len() - fixed).is_multiple_of(transform.block_align())
}

struct Aead<'a> {
    name: String,
    key: AeadKey,
    case: &'a PrimitiveCase,
}

impl Aead<'_> {
    fn record<'a>(&'a self, from: &'a [u8], to: &'a mut [u8]) -> Record<'a> {
        let nonce = self.case.iv[..].try_into().expect("twelve bytes");
        Record::apart(&self.key, nonce, &self.case.aad, from, to).expect("one length")
    }
}

/// Runs AES-GCM, AES-GMAC and ChaCha20-Poly1305 of NIST, Wycheproof and the RFCs, valid and invalid cases mixed.
#[test]
fn records() {
    let files = primitive_files();
    on_each_tier(|tier| {
        let mut cases = Vec::new();
        for file in &files {
            for case in &file.cases {
                let algorithm = match (file.algorithm.as_str(), case.key.len()) {
                    ("AES-GCM", 16) => AeadAlgorithm::Aes128Gcm,
                    ("AES-GCM", 24) => AeadAlgorithm::Aes192Gcm,
                    ("AES-GCM", 32) => AeadAlgorithm::Aes256Gcm,
                    ("ChaCha20-Poly1305", 32) => AeadAlgorithm::ChaCha20Poly1305,
                    _ => continue,
                };
                match AeadKey::for_tier(tier, algorithm, &case.key) {
                    Ok(key) if case.icv.len() == 16 => cases.push(Aead {
                        name: format!("{tier}: {algorithm}: {}", case.name),
                        key,
                        case,
                    }),
                    // The bytes stay zero.
                    _ => {}
                }
            }
        }
        assert!(cases.len() > 450, "{}", cases.len());
        for _ in 0..2 {
            check_records(&cases);
            cases.rotate_left(7);
        }
    });
}

fn check_records(cases: &[Aead]) {
    let outputs = |text: fn(&PrimitiveCase) -> &Vec<u8>| -> Vec<Vec<u8>> {
        cases
            .iter()
            .map(|c| vec![0xee; text(c.case).len()])
            .collect()
    };
    let mut sealed = outputs(|case| &case.input);
    let mut records: Vec<Record> = cases
        .iter()
        .zip(&mut sealed)
        .map(|(aead, to)| aead.record(&aead.case.input, to))
        .collect();
    seal_records(&mut records);
    let tags: Vec<_> = records
        .iter()
        .map(|record| (record.status(), *record.tag()))
        .collect();
    for ((aead, sealed), (status, tag)) in cases.iter().zip(&sealed).zip(tags) {
        assert_eq!(status, JobStatus::Done, "{}", aead.name);
        let same = *sealed == aead.case.output && tag == aead.case.icv[..];
        assert_eq!(same, aead.case.valid, "{}", aead.name);
    }
    let mut opened = outputs(|case| &case.output);
    let mut records: Vec<Record> = cases
        .iter()
        .zip(&mut opened)
        .map(|(aead, to)| {
            let tag = aead.case.icv[..].try_into().expect("sixteen bytes");
            aead.record(&aead.case.output, to).with_tag(tag)
        })
        .collect();
    open_records(&mut records);
    let statuses: Vec<JobStatus> = records.iter().map(Record::status).collect();
    for ((aead, opened), status) in cases.iter().zip(&opened).zip(statuses) {
        if aead.case.valid {
            assert_eq!(
                (status, opened),
                (JobStatus::Done, &aead.case.input),
                "{}",
                aead.name
            );
        } else {
            assert_eq!(status, JobStatus::AuthFailed, "{}", aead.name);
            assert!(opened.iter().all(|&byte| byte == 0), "{}", aead.name);
        }
    }
}
