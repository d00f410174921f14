//! Slots in the arena for the segments of one packet, side by side.

use super::prepare::{self, PacketPlace, Plan, Preparer};
use super::{Segments, refuse};
use crate::drop_reason::{DropReason, WalkCounters};
use crate::sa::OutboundSa;

/// The slots for a packet's segments. A slot that is not asked for is sealed as zeros, because the arena still has
/// the bytes of earlier packets.
#[derive(Debug)]
pub struct Slots<'a> {
    preparer: Preparer<'a>,
    counters: &'a WalkCounters,
    sa: &'a OutboundSa,
    plan: Plan,
    /// The sequence number of the next packet that is completed.
    sequence: u64,
    left: Segments,
    /// The offset at which the next slot begins.
    slot: usize,
    /// The offset at which the first slot begins, and the number of jobs before it.
    begin: (usize, usize),
    /// A packet whose header is part of its slot. It is completed after the caller has written it.
    open: Option<PacketPlace>,
    dropped: Option<DropReason>,
}

impl<'a> Slots<'a> {
    /// `slot` is where the first slot begins. The arena must have been reserved.
    pub(super) fn new(
        preparer: Preparer<'a>,
        counters: &'a WalkCounters,
        sa: &'a OutboundSa,
        plan: Plan,
        sequence: u64,
        segments: Segments,
        slot: usize,
    ) -> Result<Self, DropReason> {
        let mut slots = Self {
            begin: (slot, preparer.batch.jobs.len()),
            preparer,
            counters,
            sa,
            plan,
            sequence,
            left: segments,
            slot,
            open: None,
            dropped: None,
        };
        if plan.shape.layout.is_esp_tunnel() {
            slots.prepare_all(segments)?;
        }
        Ok(slots)
    }

    /// Writes header, IV and trailer of an ESP tunnel's packets, which do not depend on the packets' bytes.
    fn prepare_all(&mut self, segments: Segments) -> Result<(), DropReason> {
        let (first_job, count) = (self.preparer.batch.jobs.len(), segments.count);
        let (plan, mut slot, mut left) = (self.plan, self.slot, segments);
        let places = std::iter::from_fn(|| next_place(&plan, &mut slot, &mut left));
        let Preparer { batch, ivs, .. } = &mut self.preparer;
        let result = prepare::esp_tunnel(batch, ivs, &plan.shape, self.sequence, places);
        if let Err((reason, _)) = result {
            let batch = &mut *self.preparer.batch;
            batch.jobs.truncate(first_job);
            batch.release(self.slot);
            self.left.count = 0;
            refuse(self.counters, self.sa, reason, count);
            return Err(reason);
        }
        self.sequence += u64::from(count);
        self.preparer
            .side
            .add_jobs(self.sa, &plan.meta, plan.depth, first_job as u32, count);
        Ok(())
    }

    /// Returns the slot of the next inner packet, exactly as long as [`Segments`] says. The slot contains bytes of
    /// earlier packets, so the caller must write all of it.
    pub fn next_slot(&mut self) -> Option<&mut [u8]> {
        self.complete();
        let place = next_place(&self.plan, &mut self.slot, &mut self.left)?;
        if !self.plan.shape.layout.is_esp_tunnel() {
            self.open = Some(place);
        }
        let range = place.start..place.start + place.len;
        self.preparer.batch.buffer.get_mut(range)
    }

    fn complete(&mut self) {
        let Some(place) = self.open.take() else {
            return;
        };
        let result = self
            .preparer
            .framed(self.sa, &self.plan, self.sequence, &place);
        self.sequence += 1;
        if let Err(reason) = result {
            refuse(self.counters, self.sa, reason, 1);
            self.dropped = Some(reason);
        }
    }

    fn complete_all(&mut self) {
        while let Some(slot) = self.next_slot() {
            slot.fill(0);
        }
    }

    /// Completes the remaining slots, as dropping does, and reports whether a packet could not be laid out. Such
    /// packets are counted already.
    pub fn finish(mut self) -> Result<(), DropReason> {
        self.complete_all();
        self.dropped.take().map_or(Ok(()), Err)
    }
}

/// Returns the next slot's bounds. `slot` is where it begins.
fn next_place(plan: &Plan, slot: &mut usize, left: &mut Segments) -> Option<PacketPlace> {
    left.count = left.count.checked_sub(1)?;
    let len = match left.count {
        0 => left.last_len,
        _ => left.segment_len,
    };
    let (front, whole) = plan.room(len);
    let slot_start = *slot;
    *slot += whole;
    Some(PacketPlace {
        slot_start,
        slot_end: slot_start + whole,
        start: slot_start + front,
        len,
    })
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        self.complete_all();
        // If no job was added, the arena is released: nobody might submit the batch and thereby empty it.
        let (arena, jobs) = self.begin;
        let batch = &mut *self.preparer.batch;
        if batch.jobs.len() == jobs {
            batch.release(arena);
        }
    }
}
