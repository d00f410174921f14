//! The batches of one walk: one is being filled, some are in the engine or with the caller, and the others are spare.
//! Nothing is allocated after they are made.

use std::collections::VecDeque;

use esplanade_crypto::{Arena, Batch, Direction, Engine, RejectReason};

use crate::drop_reason::{DropReason, WalkCounters};

/// Sizes of one walk's buffers.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// Bytes of one batch's arena. At least one super-segment with its ESP overhead must fit.
    pub buffer_len: usize,
    /// The most packets in a batch.
    pub jobs_max: usize,
    /// Number of batches that are being filled, in the engine, or waiting to be sent.
    pub batches_max: usize,
}

impl WalkLimits {
    /// The most packets in all batches.
    pub const fn packets_max(&self) -> usize {
        self.batches_max * self.jobs_max
    }
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            buffer_len: 256 * 1024,
            jobs_max: 1024,
            batches_max: 4,
        }
    }
}

/// Free space of the arena. `bytes[0]` is at `offset`.
#[derive(Debug)]
pub struct ReceiveBuffer<'a> {
    pub offset: usize,
    pub bytes: &'a mut [u8],
}

/// The data that a walk keeps about a batch and that the engine does not need.
pub(crate) trait WalkState: Default {
    /// The table in which a batch finds the SAs of its packets.
    type Sas;

    fn clear(&mut self);

    /// Counts all packets of the batch as dropped, each for its SA.
    fn count_drops(&self, sas: &Self::Sas, reason: DropReason);

    /// Returns the number of bytes in front of each job that belong to its packet. Returns `None` if all bytes up to
    /// the previous job do.
    fn front(&self) -> Option<usize>;
}

/// A batch that the engine has.
struct Inside<S> {
    side: S,
    jobs: u64,
    /// A copy from the time of submission, if the engine may be late. Another engine can process the copy.
    copy: Option<Batch>,
}

pub(crate) struct Circulation<S> {
    /// The batch being filled. It is `None` while all batches are in the engine or with the caller.
    pub filling: Option<(Batch, S)>,
    in_engine: VecDeque<Inside<S>>,
    /// Batches that a lost engine had. They are submitted before the one being filled.
    again: VecDeque<(Batch, S)>,
    spare: Vec<(Batch, S)>,
    /// Empty batches for copies.
    blank: Vec<Batch>,
    /// True if the engine refused the batch being filled, and none has come back since.
    refused: bool,
    direction: Direction,
    limits: WalkLimits,
}

impl<S: WalkState> Circulation<S> {
    /// Makes the batches. Their arenas are on the heap, or where the engine wants them.
    pub fn new(direction: Direction, limits: &WalkLimits, engine: Option<&dyn Engine>) -> Self {
        let new_batch = |_| {
            let len = limits.buffer_len.min(u32::MAX as usize);
            let arena = engine.map_or_else(|| Arena::heap(len), |engine| engine.arena(len));
            let batch = Batch::in_arena(direction, arena, limits.jobs_max);
            (batch, S::default())
        };
        let mut spare: Vec<_> = (0..limits.batches_max.max(1)).map(new_batch).collect();
        Self {
            filling: spare.pop(),
            in_engine: VecDeque::with_capacity(limits.batches_max),
            again: VecDeque::new(),
            spare,
            blank: Vec::new(),
            refused: false,
            direction,
            limits: *limits,
        }
    }

    /// Moves the empty batches into arenas that the engine wants. Others keep theirs, which every engine takes.
    pub fn use_arenas_of(&mut self, engine: &dyn Engine) {
        let filling = self.filling.as_mut();
        let filling = filling.filter(|(batch, _)| batch.used() == 0 && batch.jobs.is_empty());
        for (batch, _) in self.spare.iter_mut().chain(filling) {
            batch.buffer = engine.arena(batch.buffer.len());
        }
    }

    /// Returns the free part of the arena, or `None` while every batch is busy.
    pub fn free(&mut self) -> Option<ReceiveBuffer<'_>> {
        let (batch, _) = self.filling.as_mut()?;
        let offset = batch.used();
        let bytes = batch.buffer.get_mut(offset..)?;
        Some(ReceiveBuffer { offset, bytes })
    }

    /// Reserves the first `len` bytes of the free part. Returns false if fewer are free.
    pub fn keep(&mut self, len: usize) -> bool {
        let batch = self.filling.as_mut().map(|(batch, _)| batch);
        batch.and_then(|batch| batch.reserve(len)).is_some()
    }

    /// The number of packets for which the batch still has room.
    pub fn room(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| {
            self.limits.jobs_max.saturating_sub(batch.jobs.len())
        })
    }

    /// Number of packets that wait for [`Self::submit`].
    pub fn waiting(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| batch.jobs.len())
    }

    /// Bytes of the arena that are taken by packets or by what was received with them.
    pub fn used(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| batch.used())
    }

    /// Bytes of the arena that are free; 0 while no batch is being filled.
    pub fn free_len(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| batch.free())
    }

    /// Number of batches that were submitted and have not come back.
    pub fn in_engine(&self) -> usize {
        self.in_engine.len() + self.again.len()
    }

    /// Number of batches that are to be submitted again.
    pub fn again(&self) -> usize {
        self.again.len()
    }

    /// Returns true if the arena of the batch being filled is empty. Returns false while no batch is being filled.
    pub fn is_empty(&self) -> bool {
        let filling = self.filling.as_ref();
        filling.is_some_and(|(batch, _)| batch.used() == 0)
    }

    /// Returns true if there is an empty batch, or [`Self::submit`] can make one available.
    pub fn has_empty(&self) -> bool {
        let is_empty = |(batch, _): &(Batch, S)| batch.jobs.is_empty();
        self.filling.as_ref().is_some_and(is_empty)
            || self.filling.is_some() && !self.spare.is_empty() && !self.refused
    }

    /// Returns true if half of the batch being filled is free.
    pub fn is_half_free(&self) -> bool {
        let filling = self.filling.as_ref();
        filling.is_some_and(|(batch, _)| {
            batch.used() <= self.limits.buffer_len / 2
                && batch.jobs.len() <= self.limits.jobs_max / 2
        })
    }

    /// Submits the batch being filled. If the engine refuses it, the batch stays as it was. A batch without jobs is
    /// emptied and not submitted: bytes that were received for no job would otherwise fill the arena.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        while let Some((batch, side)) = self.again.pop_front() {
            if let Err((reason, batch, side)) = self.give(engine, batch, side) {
                self.again.push_front((batch, side));
                return Err(reason);
            }
        }
        let Some((mut batch, mut side)) = self.filling.take() else {
            return Ok(());
        };
        if batch.jobs.is_empty() {
            batch.clear();
            side.clear();
            self.filling = Some((batch, side));
            return Ok(());
        }
        match self.give(engine, batch, side) {
            Ok(()) => {
                self.filling = self.spare.pop();
                Ok(())
            }
            Err((reason, batch, side)) => {
                self.filling = Some((batch, side));
                Err(reason)
            }
        }
    }

    fn give(
        &mut self,
        engine: &mut dyn Engine,
        batch: Batch,
        side: S,
    ) -> Result<(), (RejectReason, Batch, S)> {
        let copy = engine.ready_fd().and_then(|_| {
            let blank = self.blank.pop();
            let mut copy = blank.unwrap_or_else(|| self.new_batch());
            // Without a copy the packets are lost if the engine is.
            copy.copy_from(&batch, side.front()).then_some(copy)
        });
        let jobs = batch.jobs.len() as u64;
        match engine.submit(batch) {
            Ok(()) => {
                self.refused = false;
                self.in_engine.push_back(Inside { side, jobs, copy });
                Ok(())
            }
            Err(rejected) => {
                self.refused = true;
                copy.into_iter().for_each(|copy| self.take_blank(copy));
                Err((rejected.reason, rejected.batch, side))
            }
        }
    }

    /// Empties a copy for its next use. It may not be used for long, so it keeps no keys.
    fn take_blank(&mut self, mut copy: Batch) {
        copy.clear();
        self.blank.push(copy);
    }

    fn new_batch(&self) -> Batch {
        Batch::new(self.direction, self.limits.buffer_len, self.limits.jobs_max)
    }

    /// Takes the next finished batch, in the order of submission.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<(Batch, S)> {
        let batch = engine.poll()?;
        self.refused = false;
        let Some(Inside { side, copy, .. }) = self.in_engine.pop_front() else {
            return Some((batch, S::default()));
        };
        copy.into_iter().for_each(|copy| self.take_blank(copy));
        Some((batch, side))
    }

    /// Gives up the batches in the engine, which will not come back. Batches with a copy are submitted to the next
    /// engine, with the sequence numbers that they have. The packets of other batches are counted as dropped, and
    /// their numbers stay used.
    pub fn abandon(&mut self, counters: &WalkCounters, sas: &S::Sas) {
        self.refused = false;
        // Batches that the engine did not get a second time come after those that it had.
        let mut again = VecDeque::with_capacity(self.in_engine());
        while let Some(inside) = self.in_engine.pop_front() {
            let Inside {
                mut side,
                jobs,
                copy,
            } = inside;
            match copy {
                Some(copy) => again.push_back((copy, side)),
                None => {
                    counters.count_drop(DropReason::EngineFailed, jobs);
                    side.count_drops(sas, DropReason::EngineFailed);
                    side.clear();
                    let batch = self.new_batch();
                    self.recycle(batch, side);
                }
            }
        }
        again.append(&mut self.again);
        self.again = again;
    }

    /// Takes a batch back for its next use.
    pub fn recycle(&mut self, mut batch: Batch, mut side: S) {
        batch.clear();
        side.clear();
        match &self.filling {
            None => self.filling = Some((batch, side)),
            Some(_) => self.spare.push((batch, side)),
        }
    }
}
