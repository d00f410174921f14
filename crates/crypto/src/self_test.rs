//! Known answers for every transform, checked before an engine may work.
//!
//! The answers come from an independent implementation (`vectors/generate_esp.py`).

use crate::cpu;
use crate::job::JobStatus;
use crate::key::KeyContext;
use crate::transform::Transform;

/// One line a transform: name, esn, sequence, key material, packet before and after sealing.
const ANSWERS: &str = include_str!("../../../vectors/esp/self-test.txt");

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "self test of {transform} failed: {step}; this build or this machine must not process packets"
)]
pub struct SelfTestError {
    pub transform: Transform,
    pub step: &'static str,
}

/// Seals and opens the known packet of every transform, and checks that a forged one is refused.
pub fn run() -> Result<(), SelfTestError> {
    for transform in Transform::ESP.into_iter().take(12) {
        let mut tested = false;
        for line in ANSWERS.lines().filter(|l| !l.starts_with('#')) {
            if line.split(' ').next() == Some(transform.name().as_str()) {
                check(transform, line).map_err(|step| SelfTestError { transform, step })?;
                tested = true;
            }
        }
        if !tested {
            let step = "there is no known answer";
            return Err(SelfTestError { transform, step });
        }
    }
    Ok(())
}

fn check(transform: Transform, line: &str) -> Result<(), &'static str> {
    const UNREADABLE: &str = "the known answer cannot be read";
    let fields: Vec<&str> = line.split(' ').collect();
    let &[_, esn, sequence, key, plain, sealed] = fields.as_slice() else {
        return Err(UNREADABLE);
    };
    let sequence: u64 = sequence.parse().map_err(|_| UNREADABLE)?;
    let key = unhex(key).ok_or(UNREADABLE)?;
    let plain = unhex(plain).ok_or(UNREADABLE)?;
    let sealed = unhex(sealed).ok_or(UNREADABLE)?;
    let key = KeyContext::new(transform, esn == "esn", &key).map_err(|_| "key refused")?;

    let mut packet = plain.clone();
    let status = cpu::seal(&key, sequence, &mut packet);
    if status != JobStatus::Done || packet != sealed {
        return Err("sealing gives another packet");
    }
    let status = cpu::open(&key, sequence, &mut packet);
    let covered = plain.len().saturating_sub(transform.icv_len());
    if status != JobStatus::Done || packet[..covered] != plain[..covered] {
        return Err("opening gives another payload");
    }
    let mut forged = sealed;
    if let Some(last) = forged.last_mut() {
        *last ^= 1;
    }
    if cpu::open(&key, sequence, &mut forged) != JobStatus::AuthFailed {
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
    fn passes_on_this_machine() {
        assert_eq!(run(), Ok(()));
    }

    #[test]
    fn a_wrong_answer_is_noticed() {
        let transform = Transform::ESP[0];
        let line = ANSWERS
            .lines()
            .find(|l| l.starts_with(&transform.name()))
            .expect("there is an answer");
        let mut wrong = line.to_owned();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        assert_eq!(
            check(transform, &wrong),
            Err("sealing gives another packet")
        );
        assert!(check(transform, "short").is_err());
    }
}
