//! Known answers for every transform. A tier must give them before it may be used.
//!
//! The answers come from an independent implementation (`vectors/generate_self_test.py`). They are short and few, and
//! a kernel has many lanes. Therefore a kernel also does batches that fill all of its lanes. These hold known answers
//! and packets of varied lengths, and the result must be the same as aws-lc's.

mod trial;

use std::collections::HashMap;

use crate::cpu::process;
use crate::job::EspPacket;
use crate::key::KeyContext;
use crate::lookaside::{self, AeadKey, Record};
use crate::spec::{AeadAlgorithm, ESP_HEADER_LEN as HEADER_LEN, JobStatus};
use crate::tier::Tier;
use crate::transform::{Protocol, Transform};

pub use crate::tier::SelfTestError;
pub use trial::Trial;

/// The answers. A line has the transform, esn, sequence, offset of AH's ICV, key material, packet before and after
/// sealing.
pub(crate) const ANSWERS: &str = include_str!("../../../vectors/esp/self-test.txt");

/// Seals and opens the known packets of every transform, and checks that a forged packet is refused.
pub fn run(tier: Tier) -> Result<(), SelfTestError> {
    for (transform, known) in answers() {
        check_known(tier, transform, &known)?;
    }
    for algorithm in AeadAlgorithm::ALL {
        check_records(tier, algorithm).map_err(|step| SelfTestError {
            tier,
            transform: algorithm.in_esp(),
            step,
        })?;
    }
    Ok(())
}

/// Does the same for one transform.
pub(crate) fn run_one(tier: Tier, transform: Transform) -> Result<(), SelfTestError> {
    let known = answers().find(|(answered, _)| *answered == transform);
    let known = known.map(|(_, known)| known).unwrap_or_default();
    check_known(tier, transform, &known)
}

fn check_known(tier: Tier, transform: Transform, known: &[&str]) -> Result<(), SelfTestError> {
    let failed = |step| SelfTestError {
        tier,
        transform,
        step,
    };
    if known.is_empty() {
        return Err(failed("there is no known answer"));
    }
    for answer in known {
        check(tier, transform, answer).map_err(failed)?;
    }
    check_batch(tier, transform, known).map_err(failed)
}

/// Returns the lines of every transform, without its name.
fn answers() -> impl Iterator<Item = (Transform, Vec<&'static str>)> {
    let mut answers = HashMap::<&str, Vec<&str>>::new();
    for line in ANSWERS.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, answer)) = line.split_once(' ') {
            answers.entry(name).or_default().push(answer);
        }
    }
    Transform::all().map(move |transform| {
        let known = answers.remove(transform.name().as_str());
        (transform, known.unwrap_or_default())
    })
}

/// A packet of the file. `icv_at` is the offset of the ICV for AH.
struct KnownAnswer {
    key: KeyContext,
    sequence: u64,
    icv_at: usize,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl KnownAnswer {
    fn parse(tier: Tier, transform: Transform, answer: &str) -> Result<Self, &'static str> {
        let read = || {
            let fields: Vec<&str> = answer.split(' ').collect();
            let &[esn, sequence, icv_at, key, plain, sealed] = fields.as_slice() else {
                return None;
            };
            let key = KeyContext::for_tier(tier, transform, esn == "esn", &unhex(key)?).ok()?;
            Some(Self {
                key,
                sequence: sequence.parse().ok()?,
                icv_at: icv_at.parse().ok()?,
                plain: unhex(plain)?,
                sealed: unhex(sealed)?,
            })
        };
        read().ok_or("the known answer cannot be read")
    }

    fn seal(&self, packet: &mut [u8]) -> JobStatus {
        match self.key.transform().protocol() {
            Protocol::Esp => process::seal(&self.key, self.sequence, packet),
            Protocol::Ah => process::seal_ah(&self.key, self.sequence, packet, self.icv_at),
        }
    }

    fn open(&self, packet: &mut [u8]) -> JobStatus {
        match self.key.transform().protocol() {
            Protocol::Esp => process::open(&self.key, self.sequence, packet),
            Protocol::Ah => process::open_ah(&self.key, self.sequence, packet, self.icv_at),
        }
    }
}

pub(crate) fn check(tier: Tier, transform: Transform, answer: &str) -> Result<(), &'static str> {
    let answer = KnownAnswer::parse(tier, transform, answer)?;
    let mut packet = answer.plain.clone();
    if answer.seal(&mut packet) != JobStatus::Done || packet != answer.sealed {
        return Err("sealing gives another packet");
    }
    let opened = answer.open(&mut packet);
    let payload = match transform.protocol() {
        Protocol::Esp => 0..answer.plain.len().saturating_sub(transform.icv_len()),
        Protocol::Ah => 0..answer.plain.len(),
    };
    if opened != JobStatus::Done || packet.get(payload.clone()) != answer.plain.get(payload) {
        return Err("opening gives another payload");
    }
    let mut forged = answer.sealed.clone();
    if let Some(last) = forged.last_mut() {
        *last ^= 1;
    }
    if answer.open(&mut forged) != JobStatus::AuthFailed {
        return Err("a forged packet is accepted");
    }
    Ok(())
}

/// A packet of a batch, and the index of its key.
struct Member {
    key: usize,
    sequence: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

/// Fills all lanes of the tier's kernel more than once, if the tier has one.
pub(crate) fn check_batch(
    tier: Tier,
    transform: Transform,
    known: &[&str],
) -> Result<(), &'static str> {
    let parse = |tier| -> Result<Vec<KnownAnswer>, _> {
        let answer = |answer: &&str| KnownAnswer::parse(tier, transform, answer);
        known.iter().map(answer).collect()
    };
    let answers = parse(tier)?;
    if !answers.iter().any(|answer| answer.key.has_kernel()) {
        return Ok(());
    }
    let reference = parse(Tier::Portable)?;
    let mut members = Vec::new();
    for number in 0..lanes(transform) {
        // Neighbours have different keys, and every key comes to every lane.
        let key = (number + number / 16) % answers.len();
        members.push(match number % 4 {
            0 => Member {
                key,
                sequence: answers[key].sequence,
                plain: answers[key].plain.clone(),
                sealed: answers[key].sealed.clone(),
            },
            _ => Member::of_aws_lc(&reference, key, number)?,
        });
    }
    seal_members(&answers, &members)?;
    open_members(&answers, &members)
}

/// Number of packets: more than the widest kernel takes at once, so that a few are left for a second call.
fn lanes(transform: Transform) -> usize {
    use crate::iana::Encryption::{Des, TripleDes};
    match transform.encryption() {
        Some(Des | TripleDes) => 512 + 9,
        _ => 128 + 9,
    }
}

impl Member {
    fn of_aws_lc(
        reference: &[KnownAnswer],
        key: usize,
        number: usize,
    ) -> Result<Self, &'static str> {
        let answer = &reference[key];
        let transform = answer.key.transform();
        let payload = match number % 64 {
            // These lengths span several wide blocks, and not whole ones.
            21 => 1400 + number,
            42 => 513 + number % 32,
            _ => number * 13 % 190,
        };
        let mut plain = answer.plain.clone();
        plain.resize(transform.sealed_len(payload), 0);
        let body = HEADER_LEN + transform.iv_len();
        for (at, byte) in plain.iter_mut().enumerate().skip(body) {
            *byte = (at * 7 + number * 31) as u8;
        }
        let mut sealed = plain.clone();
        if answer.seal(&mut sealed) != JobStatus::Done {
            return Err("a packet cannot be sealed");
        }
        Ok(Self {
            key,
            sequence: answer.sequence,
            plain,
            sealed,
        })
    }
}

/// Returns the part of the packet between IV and ICV.
fn body(transform: Transform, packet: &[u8]) -> Option<&[u8]> {
    let start = HEADER_LEN + transform.iv_len();
    packet.get(start..packet.len().checked_sub(transform.icv_len())?)
}

fn batch<'a>(
    answers: &'a [KnownAnswer],
    members: &[Member],
    bytes: &'a mut [Vec<u8>],
) -> Vec<EspPacket<'a>> {
    let members = members.iter().zip(bytes);
    members
        .map(|(member, bytes)| EspPacket::new(&answers[member.key].key, member.sequence, bytes))
        .collect()
}

fn seal_members(answers: &[KnownAnswer], members: &[Member]) -> Result<(), &'static str> {
    let mut bytes: Vec<_> = members.iter().map(|member| member.plain.clone()).collect();
    let mut packets = batch(answers, members, &mut bytes);
    lookaside::seal_esp(&mut packets);
    let good = packets
        .iter()
        .zip(members)
        .all(|(packet, member)| packet.status == JobStatus::Done && packet.bytes == member.sealed);
    if !good {
        return Err("sealing a batch gives another packet");
    }
    Ok(())
}

/// Opens the packets, of which some are forged.
fn open_members(answers: &[KnownAnswer], members: &[Member]) -> Result<(), &'static str> {
    let forged = |number: usize| number % 5 == 2;
    let mut bytes: Vec<_> = members.iter().map(|member| member.sealed.clone()).collect();
    for (number, bytes) in bytes.iter_mut().enumerate().filter(|(n, _)| forged(*n)) {
        let at = number * 3 % bytes.len();
        bytes[at] ^= 1 << (number % 8);
    }
    let mut packets = batch(answers, members, &mut bytes);
    lookaside::open_esp(&mut packets);
    for (number, (packet, member)) in packets.iter().zip(members).enumerate() {
        let transform = packet.key.transform();
        let body = body(transform, packet.bytes);
        if forged(number) {
            if packet.status != JobStatus::AuthFailed {
                return Err("a forged packet of a batch is accepted");
            }
            if body.is_none_or(|body| body.iter().any(|&byte| byte != 0)) {
                return Err("a forged packet of a batch leaves plaintext");
            }
        } else if packet.status != JobStatus::Done || body != self::body(transform, &member.plain) {
            return Err("opening a batch gives another payload");
        }
    }
    Ok(())
}

/// Checks a batch of records of a general AEAD against aws-lc, which has passed its own test.
pub(crate) fn check_records(tier: Tier, algorithm: AeadAlgorithm) -> Result<(), &'static str> {
    const WRONG: &str = "a batch of records gives another text or tag";
    let key: Vec<u8> = (1..=algorithm.key_len() as u8).collect();
    let make = |tier| AeadKey::for_tier(tier, algorithm, &key).map_err(|_| WRONG);
    let (ours, reference) = (make(tier)?, make(Tier::Portable)?);
    if !ours.has_kernel() {
        return Ok(());
    }
    let len = |number: usize| match number % 40 {
        11 => 1400 + number,
        _ => number * 13 % 190,
    };
    let plain: Vec<Vec<u8>> = (0..128 + 9)
        .map(|number| (0..len(number)).map(|at| (at * 7 + number) as u8).collect())
        .collect();
    let nonce = |number: usize| [number as u8; lookaside::NONCE_LEN];
    let aad = |number: usize| &key[..number % 14];
    let seal = |key: &AeadKey, texts: &mut [Vec<u8>]| -> Result<Vec<_>, &'static str> {
        let mut records = Vec::new();
        for (number, text) in texts.iter_mut().enumerate() {
            let record = Record::in_place(key, nonce(number), aad(number), text);
            records.push(record.map_err(|_| WRONG)?);
        }
        lookaside::seal_records(&mut records);
        Ok(records.iter().map(|record| *record.tag()).collect())
    };
    let (mut sealed, mut expected) = (plain.clone(), plain.clone());
    let tags = seal(&ours, &mut sealed)?;
    if tags != seal(&reference, &mut expected)? || sealed != expected {
        return Err(WRONG);
    }
    let forged = |number: usize| number % 5 == 2;
    let mut records = Vec::new();
    for (number, (text, mut tag)) in sealed.iter_mut().zip(tags).enumerate() {
        tag[number % tag.len()] ^= u8::from(forged(number));
        let record = Record::in_place(&ours, nonce(number), aad(number), text);
        records.push(record.map_err(|_| WRONG)?.with_tag(tag));
    }
    lookaside::open_records(&mut records);
    let statuses: Vec<JobStatus> = records.iter().map(Record::status).collect();
    for (number, (text, plain)) in sealed.iter().zip(&plain).enumerate() {
        let good = match (forged(number), statuses[number]) {
            (false, JobStatus::Done) => text == plain,
            (true, JobStatus::AuthFailed) => text.iter().all(|&byte| byte == 0),
            _ => false,
        };
        if !good {
            return Err("opening a batch of records gives another text");
        }
    }
    Ok(())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
    digits
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}
