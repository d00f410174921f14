//! Known answers for every transform, checked on a tier before it may be used.
//!
//! The answers come from an independent implementation (`vectors/generate_self_test.py`).

use std::collections::HashMap;

use crate::cpu::{self, Tier};
use crate::job::JobStatus;
use crate::key::KeyContext;
use crate::transform::{Protocol, Transform};

/// A line: transform, esn, sequence, offset of AH's ICV, key material, packet before and after sealing.
const ANSWERS: &str = include_str!("../../../vectors/esp/self-test.txt");

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "self-test of {transform} on the tier {tier} failed: {step}; this build must not process packets with it on this machine"
)]
pub struct SelfTestError {
    pub tier: Tier,
    pub transform: Transform,
    pub step: &'static str,
}

/// Seals and opens the known packets of every transform, and checks that a forged one is refused.
pub fn run(tier: Tier) -> Result<(), SelfTestError> {
    let mut answers = HashMap::<&str, Vec<&str>>::new();
    for line in ANSWERS.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, answer)) = line.split_once(' ') {
            answers.entry(name).or_default().push(answer);
        }
    }
    for transform in Transform::all() {
        let failed = |step| SelfTestError {
            tier,
            transform,
            step,
        };
        let known = answers.get(transform.name().as_str());
        for answer in known.ok_or(failed("there is no known answer"))? {
            check(tier, transform, answer).map_err(failed)?;
        }
    }
    Ok(())
}

/// One packet of the file: of AH, with the place of the ICV.
struct Answer {
    key: KeyContext,
    sequence: u64,
    icv_at: usize,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Answer {
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
            Protocol::Esp => cpu::seal(&self.key, self.sequence, packet),
            Protocol::Ah => cpu::seal_ah(&self.key, self.sequence, packet, self.icv_at),
        }
    }

    fn open(&self, packet: &mut [u8]) -> JobStatus {
        match self.key.transform().protocol() {
            Protocol::Esp => cpu::open(&self.key, self.sequence, packet),
            Protocol::Ah => cpu::open_ah(&self.key, self.sequence, packet, self.icv_at),
        }
    }
}

fn check(tier: Tier, transform: Transform, answer: &str) -> Result<(), &'static str> {
    let answer = Answer::parse(tier, transform, answer)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_on_every_tier_of_this_machine() {
        for tier in Tier::ALL.into_iter().filter(|tier| tier.available()) {
            assert_eq!(run(tier), Ok(()));
        }
    }

    #[test]
    fn a_wrong_answer_is_noticed() {
        let transform = Transform::ESP[0];
        let name = transform.name();
        let answer = ANSWERS
            .lines()
            .find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))
            .expect("there is an answer");
        let mut wrong = answer.to_owned();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        let expected = Err("sealing gives another packet");
        assert_eq!(check(Tier::Portable, transform, &wrong), expected);
        assert!(check(Tier::Portable, transform, "short").is_err());
    }
}
