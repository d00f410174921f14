//! The CPU engine. It finishes each batch at once, with the kernels of the keys' tiers and with aws-lc for the rest.
//!
//! The packets of a batch are sorted by kernel. Each kernel then sees all of its packets together and can overlap
//! several.

use std::collections::VecDeque;

use crate::engine::{Engine, RejectReason, Rejected};
use crate::job::{Batch, Direction, Job, JobStatus};
use crate::key::{KeyContext, Keys};
use crate::lookaside::EspPacket;
use crate::self_test::SelfTestError;
use crate::slots::SlotTable;
use crate::transform::{Protocol, Transform};

#[cfg(target_arch = "x86_64")]
mod aes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod chacha;
#[cfg(target_arch = "x86_64")]
pub(crate) mod des;
#[cfg(test)]
pub(crate) mod fault;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gcm;
mod group;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pair;
#[cfg(target_arch = "x86_64")]
pub(crate) mod records;
mod registers;
mod row;
pub mod tier;
mod work;

use group::{GROUP, Group, Packet};
pub use tier::Tier;
pub(crate) use work::{Family, Kernel, Kind, Work};

/// An engine that works in the caller's thread.
#[derive(Debug)]
pub struct CpuEngine {
    finished: VecDeque<Batch>,
    capacity: usize,
}

impl CpuEngine {
    /// Makes an engine that holds at most `capacity` finished batches. Fails unless one tier at least gives the known
    /// answer of every transform.
    pub fn new(capacity: usize) -> Result<Self, SelfTestError> {
        tier::selection()?;
        Ok(Self {
            finished: VecDeque::with_capacity(capacity),
            capacity,
        })
    }
}

impl Engine for CpuEngine {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        if self.finished.len() >= self.capacity {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        process(&mut batch);
        self.finished.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.finished.pop_front()
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
    let mut group = Group::new(direction);
    for (index, job) in jobs.iter_mut().enumerate() {
        let (start, len) = (job.esp as usize, job.len as usize);
        let inside = start.checked_add(len).is_some_and(|end| end <= room);
        match keys.get(job.key) {
            Some(key) if inside => group.push(Packet {
                key,
                // SAFETY: inside the buffer, as just checked.
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
        let mut group = Group::new(direction);
        for (index, packet) in packets.iter_mut().enumerate() {
            match u32::try_from(packet.bytes.len()) {
                Ok(len) if packet.key.transform().protocol() == Protocol::Esp => {
                    group.push(Packet {
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
        let mut group = Group::new(direction);
        group.push(Packet {
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

/// Makes the key of the tier's kernel for an ESP transform. Returns None if the tier has no kernel for it. The key
/// material must have the transform's length.
#[cfg(target_arch = "x86_64")]
pub(crate) fn kernel_keys(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<Keys> {
    use crate::iana::Encryption::*;
    match transform.encryption()? {
        ChaCha20Poly1305 | ChaCha20Poly1305Iiv => {
            chacha::Key::new(tier, transform, esn, key_material).map(Keys::ChaCha)
        }
        Des | TripleDes => {
            des::EspKey::new(tier, transform, esn, key_material).map(Keys::DesKernel)
        }
        AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv => {
            gcm::key(tier, transform, esn, key_material).map(Keys::Gcm)
        }
        NullAuthAesGmac => gcm::gmac_key(tier, transform, esn, key_material).map(Keys::GmacKernel),
        _ => pair::Key::new(tier, transform, esn, key_material).map(Keys::PairKernel),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn kernel_keys(_: Tier, _: Transform, _: bool, _: &[u8]) -> Option<Keys> {
    None
}
