//! Known answers for a device, before it gets packets.

use std::sync::Arc;

use esplanade_crypto::self_test::Trial;
use esplanade_crypto::{Arena, Batch, Direction, Job, JobStatus, KeyContext, Transform, cpu};

use crate::device::DeviceError;
use crate::engine::Gpu;
use crate::suite::Suite;

/// Packets of a batch that fills lanes: two work-groups of pairs, and a rest.
const PACKETS: usize = 2 * 128 + 9;
/// Keys of such a batch.
const KEYS: usize = 5;
/// Bytes of such a batch, at most.
const BYTES: usize = 256 << 10;

/// Gives the device the known answers of every transform, then batches that fill its lanes. The CPU engine, which has
/// passed its own self-test, says what comes out. Transforms that the device does wrong are disabled.
pub fn run(gpu: &mut Gpu) -> Result<(), DeviceError> {
    let residue = gpu.set_residue(true);
    let done = known_answers(gpu).and_then(|()| {
        for transform in Transform::ESP {
            let is_on = Suite::of(transform, gpu.tables()).is_some()
                && !gpu.disabled().contains(&transform);
            if is_on && !fills_lanes(gpu, transform)? {
                gpu.disable(transform);
            }
        }
        Ok(())
    });
    gpu.set_residue(residue);
    gpu.begin_counting();
    done
}

fn known_answers(gpu: &mut Gpu) -> Result<(), DeviceError> {
    for direction in [Direction::Seal, Direction::Open] {
        loop {
            let Some((trial, batch)) = Trial::new(direction) else {
                return Err(DeviceError::Wrong("the known answers".to_owned()));
            };
            let done = gpu.carry(vec![batch])?;
            let checked = done.first().map(|batch| trial.check(batch));
            match checked {
                Some(Ok(())) => break,
                Some(Err(Some(wrong))) if !gpu.disabled().contains(&wrong) => gpu.disable(wrong),
                _ => return Err(DeviceError::Wrong("the known answers".to_owned())),
            }
        }
    }
    Ok(())
}

/// Seals and opens packets of many lengths with several keys, some of them forged. Returns false if a byte differs from
/// the CPU's.
fn fills_lanes(gpu: &mut Gpu, transform: Transform) -> Result<bool, DeviceError> {
    let Some(plain) = batch(transform, gpu.arena(BYTES)) else {
        return Ok(false);
    };
    let mut sealed = plain.copied();
    cpu::process(&mut sealed);
    let mut done = gpu.carry(vec![plain])?;
    if !is_same(&done, &sealed) {
        return Ok(false);
    }
    sealed.direction = Direction::Open;
    for (number, job) in sealed.jobs.iter_mut().enumerate() {
        job.status = JobStatus::Pending;
        if number % 5 == 2 {
            let at = job.esp as usize + number * 3 % job.len as usize;
            sealed.buffer[at] ^= 1 << (number % 8);
        }
    }
    let mut opened = sealed.copied();
    cpu::process(&mut opened);
    for batch in &mut done {
        if !batch.copy_from(&sealed, None) {
            return Ok(false);
        }
    }
    Ok(is_same(&gpu.carry(done)?, &opened))
}

fn batch(transform: Transform, arena: Arena) -> Option<Batch> {
    let payload = |number: usize| match number % 32 {
        21 => 1400 + number,
        11 => 513 + number,
        _ => number * 13 % 190,
    };
    let lens = (0..PACKETS).map(|number| transform.sealed_len(payload(number)));
    let mut batch = Batch::in_arena(Direction::Seal, arena, PACKETS);
    for key in 0..KEYS {
        let bytes: Vec<u8> = (0..transform.key_material_len())
            .map(|at| (at * 11 + key * 7 + 1) as u8)
            .collect();
        let context = KeyContext::new(transform, key % 2 == 1, &bytes).ok()?;
        let mut keys = batch.keys.clone();
        keys.insert(key as u32, Arc::new(context));
        batch.keys = keys;
    }
    for (number, len) in lens.enumerate() {
        let esp = batch.reserve(len)?;
        let sequence = ((number as u64) << 32) | (number as u64 * 0x0101);
        for (at, byte) in batch.buffer.get_mut(esp..esp + len)?.iter_mut().enumerate() {
            *byte = (at * 7 + number * 31) as u8;
        }
        let low = (sequence as u32).to_be_bytes();
        batch
            .buffer
            .get_mut(esp + 4..esp + 8)?
            .copy_from_slice(&low);
        batch.jobs.push(Job {
            key: (number % KEYS) as u32,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    Some(batch)
}

fn is_same(done: &[Batch], wanted: &Batch) -> bool {
    let statuses =
        |batch: &Batch| -> Vec<JobStatus> { batch.jobs.iter().map(|job| job.status).collect() };
    let [done] = done else { return false };
    let used = ..wanted.used();
    done.buffer.get(used) == wanted.buffer.get(used) && statuses(done) == statuses(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_all_lanes_keys_and_lengths() {
        for transform in Transform::ESP
            .into_iter()
            .filter(|t| Suite::of(*t, false).is_some())
        {
            let batch = batch(transform, Arena::heap(BYTES)).unwrap();
            assert_eq!(batch.jobs.len(), PACKETS);
            assert_eq!(batch.keys.iter().count(), KEYS);
        }
    }
}
