//! What an engine works on: jobs, collected in batches.

use crate::arena::Arena;
use crate::key::KeyContext;
use crate::slots::SlotTable;

pub use crate::spec::{Direction, JobStatus};

/// One ESP or AH packet. IV, payload and ICV places, AAD and nonce follow from the key's transform.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The key's number in [`Batch::keys`].
    pub key: u32,
    /// Offset in [`Batch::buffer`] of the ESP header, or of the IP header in front of AH.
    pub esp: u32,
    /// From there to the end of the ICV; of AH the whole IP packet.
    pub len: u32,
    /// AH: offset of the ICV (behind a GMAC's IV) from [`Job::esp`]. All mutable fields of the packet
    /// must be zero (RFC 4302 §3.3.3). Zero for ESP.
    pub icv: u32,
    /// The full 64 bits; the high half is part of the ICV's input if the SA uses ESN.
    pub sequence: u64,
    /// Priority, for engines that have several queues.
    pub class: u8,
    pub status: JobStatus,
}

/// Jobs of one direction over one arena.
pub struct Batch {
    pub direction: Direction,
    pub buffer: Arena,
    pub jobs: Vec<Job>,
    /// A snapshot of the submitter's keys, so that no job counts a reference. An engine that makes a form of its own of each
    /// key ([`KeyContext::material`]) keeps it in the key's slot ([`KeyContext::slot`]): the numbers here are each
    /// submitter's own.
    pub keys: SlotTable<KeyContext>,
    used: usize,
}

impl Batch {
    /// A batch whose arena, on the heap, holds `buffer_len` bytes; at most 4 GiB, the reach of [`Job::esp`].
    pub fn new(direction: Direction, buffer_len: usize, jobs: usize) -> Self {
        let buffer_len = buffer_len.min(u32::MAX as usize);
        Self::in_arena(direction, Arena::heap(buffer_len), jobs)
    }

    /// A batch in an arena of at most 4 GiB.
    pub fn in_arena(direction: Direction, buffer: Arena, jobs: usize) -> Self {
        Self {
            direction,
            buffer,
            jobs: Vec::with_capacity(jobs),
            keys: SlotTable::new(),
            used: 0,
        }
    }

    /// Takes `len` bytes of the arena and gives their offset.
    pub fn reserve(&mut self, len: usize) -> Option<usize> {
        let offset = self.used;
        let end = offset.checked_add(len)?;
        if end > self.buffer.len() {
            return None;
        }
        self.used = end;
        Some(offset)
    }

    /// Gives the arena back from `offset` on; jobs that lie there must be gone.
    pub fn release(&mut self, offset: usize) {
        self.used = self.used.min(offset);
    }

    /// Becomes a copy of another batch with an arena of the same length: of all that is taken up, or of each job and
    /// `front` bytes before it.
    pub fn copy_from(&mut self, other: &Self, front: Option<usize>) {
        self.direction = other.direction;
        self.jobs.clone_from(&other.jobs);
        self.keys = other.keys.clone();
        self.used = other.used;
        let mut copy = |start: usize, end: usize| {
            let places = (
                self.buffer.get_mut(start..end),
                other.buffer.get(start..end),
            );
            if let (Some(to), Some(from)) = places {
                to.copy_from_slice(from);
            }
        };
        let Some(front) = front else {
            return copy(0, other.used);
        };
        for job in &other.jobs {
            let start = job.esp as usize;
            copy(start.saturating_sub(front), start + job.len as usize);
        }
    }

    /// Bytes of the arena taken by [`Batch::reserve`].
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes of the arena still free.
    pub fn free(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// Empties the batch for its next use and lets go of its keys; the arena keeps its memory.
    pub fn clear(&mut self) {
        self.jobs.clear();
        self.keys = SlotTable::new();
        self.used = 0;
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("direction", &self.direction)
            .field("jobs", &self.jobs.len())
            .field("keys", &self.keys)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// An ESP packet in a buffer of its own.
#[derive(Debug)]
pub struct EspPacket<'a> {
    pub key: &'a KeyContext,
    /// The full 64 bits; the high half is part of the ICV's input if the key is for ESN.
    pub sequence: u64,
    /// ESP header, IV, payload with trailer, ICV. For sealing, header and IV are filled in (the IV is the sequence
    /// number or random, see [`IvKind`](crate::IvKind)) and there is room for the ICV.
    pub bytes: &'a mut [u8],
    pub status: JobStatus,
}

impl<'a> EspPacket<'a> {
    pub fn new(key: &'a KeyContext, sequence: u64, bytes: &'a mut [u8]) -> Self {
        Self {
            key,
            sequence,
            bytes,
            status: JobStatus::Pending,
        }
    }
}
