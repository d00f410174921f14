//! The work of an engine: jobs, collected in batches.

use std::sync::Arc;

use crate::arena::Arena;
use crate::key::KeyContext;
use crate::slots::SlotTable;

pub use crate::spec::{Direction, JobStatus};

/// An ESP or AH packet. The key's transform determines the places of IV, payload and ICV, the AAD and the nonce.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The key's number in [`Batch::keys`].
    pub key: u32,
    /// Offset in [`Batch::buffer`] of the ESP header, or of the IP header in front of AH.
    pub esp: u32,
    /// Bytes from there to the end of the ICV. For AH, the length of the whole IP packet.
    pub len: u32,
    /// For AH: offset of the ICV (behind AES-GMAC's IV) from [`Job::esp`]. All mutable fields of the packet must be
    /// zero (RFC 4302 §3.3.3). For ESP: zero.
    pub icv: u32,
    /// All 64 bits of the sequence number. With ESN the high half is part of the ICV's input.
    pub sequence: u64,
    /// The priority, for engines that have several queues.
    pub class: u8,
    pub status: JobStatus,
}

/// Jobs of one direction over one arena.
pub struct Batch {
    pub direction: Direction,
    pub buffer: Arena,
    pub jobs: Vec<Job>,
    /// A snapshot of the submitter's keys, so that no job counts a reference. An engine with its own form of each key
    /// makes it from [`KeyContext::material`] and keeps it in a table by the key's slot ([`KeyContext::slot`]). It
    /// cannot use the numbers here, because every submitter has its own.
    pub keys: SlotTable<KeyContext>,
    used: usize,
}

impl Batch {
    /// A batch whose arena is on the heap and holds `buffer_len` bytes. At most 4 GiB are possible, the reach of
    /// [`Job::esp`].
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

    /// Takes `len` bytes of the arena and returns their offset, or `None` if fewer are free.
    pub fn reserve(&mut self, len: usize) -> Option<usize> {
        let offset = self.used;
        let end = offset.checked_add(len)?;
        if end > self.buffer.len() {
            return None;
        }
        self.used = end;
        Some(offset)
    }

    /// Gives the arena back from `offset` on. No job may lie there any more.
    pub fn release(&mut self, offset: usize) {
        self.used = self.used.min(offset);
    }

    /// Becomes a copy of another batch. Without `front` all taken bytes are copied; otherwise each job's bytes and
    /// `front` bytes before them. Returns false, and empties the batch, if a part does not fit: what an earlier batch
    /// has left in the arena must not be sealed under a packet's number.
    #[must_use = "a batch that was not copied is empty"]
    pub fn copy_from(&mut self, other: &Self, front: Option<usize>) -> bool {
        self.direction = other.direction;
        self.jobs.clone_from(&other.jobs);
        self.keys = other.keys.clone();
        self.used = other.used;
        let mut copy = |start: usize, end: Option<usize>| {
            let to = self.buffer.get_mut(start..end?)?;
            to.copy_from_slice(other.buffer.get(start..end?)?);
            Some(())
        };
        let copied = match front {
            None => copy(0, Some(other.used)),
            Some(front) => other.jobs.iter().try_for_each(|job| {
                let start = job.esp as usize;
                copy(
                    start.saturating_sub(front),
                    start.checked_add(job.len as usize),
                )
            }),
        };
        // Later packets are reserved behind what is used.
        let fits = copied.is_some() && other.used <= self.buffer.len();
        if !fits {
            self.clear();
        }
        fits
    }

    /// Returns a copy on the heap.
    pub fn copied(&self) -> Self {
        let mut copied = Self::new(self.direction, self.buffer.len(), self.jobs.len());
        // The arena has the length of the other's, which the bytes in use do not exceed.
        let _ = copied.copy_from(self, None);
        copied
    }

    /// Returns key, job and bytes of a packet, by its job's number.
    pub fn packet(&self, number: u32) -> Option<(&Arc<KeyContext>, &Job, &[u8])> {
        let job = self.jobs.get(number as usize)?;
        let key = self.keys.get(job.key)?;
        let bytes = self.buffer.get(job.esp as usize..)?;
        Some((key, job, bytes.get(..job.len as usize)?))
    }

    /// Bytes of the arena taken by [`Batch::reserve`].
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes of the arena that are free.
    pub fn free(&self) -> usize {
        self.buffer.len() - self.used
    }

    /// Empties the batch for its next use and drops its keys. The arena keeps its memory.
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

/// An ESP packet in its own buffer.
#[derive(Debug)]
pub struct EspPacket<'a> {
    pub key: &'a KeyContext,
    /// All 64 bits of the sequence number. With ESN the high half is part of the ICV's input.
    pub sequence: u64,
    /// ESP header, IV, payload with trailer, ICV. For sealing, the caller fills in header and IV and leaves room for
    /// the ICV. The IV is the sequence number or random (see [`IvKind`](crate::IvKind)).
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
