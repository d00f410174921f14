//! Does the jobs of a batch, or packets in buffers of their own, in the caller's thread. The packets are sorted by
//! kernel, so that a kernel sees all of its packets together and can have several in flight.

use super::group::{GroupedPacket, PacketGroup};
use super::kernel::GROUP;
use super::row;
use crate::job::{Batch, EspPacket, Job};
use crate::key::KeyContext;
use crate::slots::SlotTable;
use crate::spec::{Direction, JobStatus};
use crate::transform::Protocol;

/// Processes some jobs of a batch, by their numbers, and sets their status. The others stay as they are. A number that
/// comes again changes nothing: a packet that is sealed twice is in the clear under a counter mode.
pub fn process_some(batch: &mut Batch, numbers: &[u32]) {
    let mut taken = vec![false; batch.jobs.len()];
    let mut some = Vec::with_capacity(numbers.len());
    for number in numbers {
        let place = *number as usize;
        if let (Some(job), Some(taken)) = (batch.jobs.get(place), taken.get_mut(place))
            && !std::mem::replace(taken, true)
        {
            some.push((place, *job));
        }
    }
    let jobs = some.iter().map(|(_, job)| *job).collect();
    let all = std::mem::replace(&mut batch.jobs, jobs);
    process(batch);
    let done = std::mem::replace(&mut batch.jobs, all);
    for ((place, _), done) in some.into_iter().zip(done) {
        if let Some(job) = batch.jobs.get_mut(place) {
            job.status = done.status;
        }
    }
}

/// Processes every job of a batch and sets its status.
pub fn process(batch: &mut Batch) {
    let Batch {
        direction,
        buffer,
        jobs,
        keys,
        ..
    } = batch;
    let mut jobs = &mut jobs[..];
    while !jobs.is_empty() {
        let mut done = row::run(*direction, jobs, keys, buffer);
        if done == 0 {
            done = jobs.len().min(GROUP);
            sorted(*direction, &mut jobs[..done], keys, buffer);
        }
        jobs = &mut jobs[done..];
    }
}

/// Processes at most [`GROUP`] jobs, whose keys may be of any kind.
fn sorted(direction: Direction, jobs: &mut [Job], keys: &SlotTable<KeyContext>, buffer: &mut [u8]) {
    let (room, buffer) = (buffer.len(), buffer.as_mut_ptr());
    let mut group = PacketGroup::new(direction);
    for (index, job) in jobs.iter_mut().enumerate() {
        let (start, len) = (job.esp as usize, job.len as usize);
        let inside = start.checked_add(len).is_some_and(|end| end <= room);
        match keys.get(job.key) {
            Some(key) if inside => group.push(GroupedPacket {
                key,
                // SAFETY: the check above guarantees that the offset lies inside the buffer.
                bytes: unsafe { buffer.add(start) },
                len: job.len,
                icv_at: job.icv,
                sequence: job.sequence,
                index: index as u32,
            }),
            _ => job.status = JobStatus::Malformed,
        }
    }
    // SAFETY: the packets lie in the buffer, which is borrowed mutably.
    unsafe { group.run(|index, status| jobs[index as usize].status = status) };
}

/// Processes ESP packets that have buffers of their own, and sets the status of each.
pub(crate) fn process_packets(direction: Direction, packets: &mut [EspPacket<'_>]) {
    for packets in packets.chunks_mut(GROUP) {
        let mut group = PacketGroup::new(direction);
        for (index, packet) in packets.iter_mut().enumerate() {
            match u32::try_from(packet.bytes.len()) {
                Ok(len) if packet.key.transform().protocol() == Protocol::Esp => {
                    group.push(GroupedPacket {
                        key: packet.key,
                        bytes: packet.bytes.as_mut_ptr(),
                        len,
                        icv_at: 0,
                        sequence: packet.sequence,
                        index: index as u32,
                    });
                }
                _ => packet.status = JobStatus::Malformed,
            }
        }
        // SAFETY: each packet's bytes are borrowed mutably for longer than the call.
        unsafe { group.run(|index, status| packets[index as usize].status = status) };
    }
}

/// Seals one ESP packet in place: header, IV, payload with trailer, room for the ICV.
pub fn seal(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    one(Direction::Seal, Protocol::Esp, key, sequence, esp, 0)
}

/// Opens one ESP packet in place. The payload is zeroed if the ICV is wrong.
pub fn open(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    one(Direction::Open, Protocol::Esp, key, sequence, esp, 0)
}

/// Writes the ICV of one IP packet with AH at offset `icv_at`. The packet's mutable fields must be zero.
pub fn seal_ah(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    one(Direction::Seal, Protocol::Ah, key, sequence, packet, icv_at)
}

/// Checks the ICV at offset `icv_at` of one IP packet with AH, and leaves zeros there. The packet's mutable fields
/// must be zero. All bytes behind the ICV are zeroed if it is wrong.
pub fn open_ah(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    one(Direction::Open, Protocol::Ah, key, sequence, packet, icv_at)
}

fn one(
    direction: Direction,
    protocol: Protocol,
    key: &KeyContext,
    sequence: u64,
    packet: &mut [u8],
    icv_at: usize,
) -> JobStatus {
    let mut status = JobStatus::Malformed;
    let (Ok(len), Ok(icv_at)) = (u32::try_from(packet.len()), u32::try_from(icv_at)) else {
        return status;
    };
    if key.transform().protocol() == protocol {
        let mut group = PacketGroup::new(direction);
        group.push(GroupedPacket {
            key,
            bytes: packet.as_mut_ptr(),
            len,
            icv_at,
            sequence,
            index: 0,
        });
        // SAFETY: the packet is borrowed mutably.
        unsafe { group.run(|_, done| status = done) };
    }
    status
}
