//! The batches of one walk: one is being filled, some are in the engine or with the caller, the rest is spare. Nothing is
//! allocated once they are made.

use std::collections::VecDeque;

use esplanade_crypto::{Batch, Direction, Engine, RejectReason};

use crate::drop_reason::{DropReason, WalkCounters};
use crate::outbound::WalkLimits;

/// Free space of the arena; `bytes[0]` is at `offset`.
#[derive(Debug)]
pub struct ReceiveBuffer<'a> {
    pub offset: usize,
    pub bytes: &'a mut [u8],
}

/// What a walk knows about a batch that the engine does not need.
pub(crate) trait Side: Default {
    /// Where it finds the SAs of its packets.
    type Sas;

    fn clear(&mut self);

    /// Counts all its packets as dropped, each for its SA.
    fn count_drops(&self, sas: &Self::Sas, reason: DropReason);
}

pub(crate) struct Circulation<S> {
    /// None while all are in the engine or with the caller.
    pub filling: Option<(Batch, S)>,
    /// With the number of jobs of each.
    in_engine: VecDeque<(S, u64)>,
    spare: Vec<(Batch, S)>,
    /// The engine has refused the batch being filled, and none has come back since.
    refused: bool,
    direction: Direction,
    limits: WalkLimits,
}

impl<S: Side> Circulation<S> {
    pub fn new(direction: Direction, limits: &WalkLimits) -> Self {
        let new_batch = |_| {
            let batch = Batch::new(direction, limits.buffer_len, limits.jobs_max);
            (batch, S::default())
        };
        let mut spare: Vec<_> = (0..limits.batches_max.max(1)).map(new_batch).collect();
        Self {
            filling: spare.pop(),
            in_engine: VecDeque::with_capacity(limits.batches_max),
            spare,
            refused: false,
            direction,
            limits: *limits,
        }
    }

    /// The part of the arena that is free. None while every batch is busy.
    pub fn free(&mut self) -> Option<ReceiveBuffer<'_>> {
        let (batch, _) = self.filling.as_mut()?;
        let offset = batch.used();
        let bytes = batch.buffer.get_mut(offset..)?;
        Some(ReceiveBuffer { offset, bytes })
    }

    /// Keeps the first `len` bytes of what is free. False if there are not so many.
    pub fn keep(&mut self, len: usize) -> bool {
        let batch = self.filling.as_mut().map(|(batch, _)| batch);
        batch.and_then(|batch| batch.reserve(len)).is_some()
    }

    /// How many packets the batch still takes.
    pub fn room(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| {
            self.limits.jobs_max.saturating_sub(batch.jobs.len())
        })
    }

    /// Packets that wait for [`Self::submit`].
    pub fn waiting(&self) -> usize {
        let filling = self.filling.as_ref();
        filling.map_or(0, |(batch, _)| batch.jobs.len())
    }

    pub fn in_engine(&self) -> usize {
        self.in_engine.len()
    }

    /// Whether there is an empty batch, or one can be had by [`Self::submit`].
    pub fn has_empty(&self) -> bool {
        let is_empty = |(batch, _): &(Batch, S)| batch.jobs.is_empty();
        self.filling.as_ref().is_some_and(is_empty)
            || self.filling.is_some() && !self.spare.is_empty() && !self.refused
    }

    /// Whether half of the batch being filled is free.
    pub fn is_half_free(&self) -> bool {
        let filling = self.filling.as_ref();
        filling.is_some_and(|(batch, _)| {
            batch.used() <= self.limits.buffer_len / 2
                && batch.jobs.len() <= self.limits.jobs_max / 2
        })
    }

    /// Gives the batch being filled to the engine. One that refuses it leaves it as it was. A batch without jobs stays,
    /// emptied: what was received for none of them still takes up the arena.
    pub fn submit(&mut self, engine: &mut dyn Engine) -> Result<(), RejectReason> {
        let Some((mut batch, mut side)) = self.filling.take() else {
            return Ok(());
        };
        if batch.jobs.is_empty() {
            batch.clear();
            side.clear();
            self.filling = Some((batch, side));
            return Ok(());
        }
        let jobs = batch.jobs.len() as u64;
        match engine.submit(batch) {
            Ok(()) => {
                self.refused = false;
                self.in_engine.push_back((side, jobs));
                self.filling = self.spare.pop();
                Ok(())
            }
            Err(rejected) => {
                self.refused = true;
                self.filling = Some((rejected.batch, side));
                Err(rejected.reason)
            }
        }
    }

    /// The next finished batch, in the order of submission.
    pub fn poll(&mut self, engine: &mut dyn Engine) -> Option<(Batch, S)> {
        let batch = engine.poll()?;
        self.refused = false;
        let (side, _) = self.in_engine.pop_front().unwrap_or_default();
        Some((batch, side))
    }

    /// Gives up what is in the engine, which will not come back, and makes new batches for it. The packets are
    /// counted as dropped; their sequence numbers stay used.
    pub fn abandon(&mut self, counters: &WalkCounters, sas: &S::Sas) {
        self.refused = false;
        while let Some((mut side, jobs)) = self.in_engine.pop_front() {
            counters.count_drop(DropReason::EngineFailed, jobs);
            side.count_drops(sas, DropReason::EngineFailed);
            side.clear();
            let batch = Batch::new(self.direction, self.limits.buffer_len, self.limits.jobs_max);
            self.recycle(batch, side);
        }
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
