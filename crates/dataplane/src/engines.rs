//! Runs several engines side by side. Each may be late, full or lost.

use esplanade_crypto::{Direction, RejectReason};
use esplanade_ipsec::sa::OutboundSa;

use super::engine_slot::{EngineSlot, LATE_MS, STANDING_MS};
use super::pipelines::{BatchChoice, InboundPipeline, OutboundPipeline};
use super::{DataPlane, ms};
use crate::counters::{IoCounters, add};
use crate::packet_io::PacketIo;

impl<I: PacketIo> DataPlane<I> {
    /// Submits the batches that are due, and sends the results.
    pub fn seal_and_send(&mut self) {
        self.seal_waiting(BatchChoice::Due);
    }

    fn seal_waiting(&mut self, which: BatchChoice) {
        for index in 0..self.seal.len() {
            self.seal_through(index, which);
        }
    }

    fn seal_through(&mut self, index: usize, which: BatchChoice) {
        let now_ms = self.now_ms;
        if self.seal[index].walk.in_engine() == 0 {
            self.seal[index].slot.moved(now_ms);
        }
        let spd = self.database.spd();
        // Submit even if no packet waits: this frees the space of packets whose layout failed.
        loop {
            let submitted = self.seal[index].submit(which, self.now_ns);
            if submitted == Err(RejectReason::OutOfService) && self.lose_seal(index) {
                continue;
            }
            let mut came = false;
            while let Some(sealed) = self.seal[index].poll(&spd) {
                came = true;
                self.send(&sealed);
                self.seal[index].recycle(sealed);
            }
            if came {
                self.seal[index].slot.moved(now_ms);
            }
            // If nothing came back, the remaining packets wait for the engine.
            if !came || self.seal[index].walk.waiting() == 0 {
                break;
            }
        }
        if self.seal[index].is_empty() {
            self.seal[index].turns.end();
        }
    }

    /// Submits the batches that are due, and delivers the results.
    pub fn open_and_deliver(&mut self) {
        self.open_waiting(BatchChoice::Due);
    }

    fn open_waiting(&mut self, which: BatchChoice) {
        for index in 0..self.open.len() {
            self.open_through(index, which);
        }
    }

    fn open_through(&mut self, index: usize, which: BatchChoice) {
        let now_ms = self.now_ms;
        if self.open[index].walk.in_engine() == 0 {
            self.open[index].slot.moved(now_ms);
        }
        let spd = self.database.spd();
        loop {
            let submitted = self.open[index].submit(self.database.sad(), which, self.now_ns);
            if submitted == Err(RejectReason::OutOfService) && self.lose_open(index) {
                continue;
            }
            let mut came = false;
            while let Some(mut opened) = self.open[index].poll(&spd) {
                came = true;
                self.deliver(&mut opened);
                let walk = &mut self.open[index].walk;
                walk.push_nested(self.database.sad(), &mut opened);
                walk.recycle(opened);
            }
            if came {
                self.open[index].slot.moved(now_ms);
            }
            if !came || self.open[index].walk.waiting() == 0 {
                return;
            }
        }
    }

    /// Returns the engine that now serves the SA. If the SA was moved, or takes over from another, earlier packets are
    /// sent first.
    pub(crate) fn outbound_index(&mut self, sa: &OutboundSa) -> usize {
        if self.seal.len() == 1 {
            return 0;
        }
        let last = self.seal.len() - 1;
        let placement = &sa.common.placement;
        loop {
            let placed = placement.get();
            if self.sealed.knows(placed) {
                return usize::from(placed.engine).min(last);
            }
            let meeting = self.database.placements().meet(placement);
            self.drain_all_but(Some(usize::from(meeting.engine()).min(last)));
            self.sealed.settle(meeting);
        }
    }

    /// Tells whether another read of a TUN device finds room, if necessary after
    /// [`Self::make_room`].
    pub(crate) fn takes_packets(&self) -> bool {
        self.seal.iter().all(|pipeline| pipeline.takes_packets())
    }

    /// Tells whether every engine has room for received datagrams.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.open.iter().all(|pipeline| pipeline.takes_datagrams())
    }

    /// Seals and sends until any packet finds room. A late engine delays the worker, but not for
    /// ever.
    pub(crate) fn make_room(&mut self) {
        self.seal_waiting(BatchChoice::All);
        for index in 0..self.seal.len() {
            while !self.seal[index].walk.can_take() && self.wait_for_seal(index, LATE_MS) {}
        }
    }

    /// Seals and sends every packet. An engine that stands still is lost sooner than usual, because the worker stands
    /// still with it. The CPU then does what the engine has.
    pub fn drain(&mut self) {
        self.drain_all_but(None);
    }

    fn drain_all_but(&mut self, spared: Option<usize>) {
        for index in (0..self.seal.len()).filter(|index| Some(*index) != spared) {
            self.seal_through(index, BatchChoice::All);
        }
        for index in (0..self.seal.len()).filter(|index| Some(*index) != spared) {
            while !self.seal[index].is_empty() && self.wait_for_seal(index, STANDING_MS) {}
        }
    }

    /// Waits for the engine. Returns false if its results will never come.
    fn wait_for_seal(&mut self, index: usize, late_ms: u64) -> bool {
        self.pause();
        let waiting = self.seal[index].walk.waiting();
        self.seal_waiting(BatchChoice::All);
        if self.seal[index].is_late(late_ms, self.now_ms) {
            let lost = self.lose_seal(index);
            self.seal_through(index, BatchChoice::All);
            return lost;
        }
        // The engine is empty and still takes nothing.
        let walk = &self.seal[index].walk;
        walk.in_engine() > 0 || walk.waiting() < waiting
    }

    /// Opens and delivers every packet, like [`Self::drain`].
    pub fn drain_inbound(&mut self) {
        self.drain_inbound_all_but(None);
    }

    pub(crate) fn drain_inbound_all_but(&mut self, spared: Option<usize>) {
        for index in (0..self.open.len()).filter(|index| Some(*index) != spared) {
            self.open_through(index, BatchChoice::All);
        }
        for index in (0..self.open.len()).filter(|index| Some(*index) != spared) {
            while !self.open[index].is_empty() && self.wait_for_open(index) {}
        }
    }

    /// Like [`Self::wait_for_seal`].
    fn wait_for_open(&mut self, index: usize) -> bool {
        self.pause();
        let waiting = self.open[index].walk.waiting();
        self.open_waiting(BatchChoice::All);
        if self.open[index].is_late(STANDING_MS, self.now_ms) {
            let lost = self.lose_open(index);
            self.open_through(index, BatchChoice::All);
            return lost;
        }
        let walk = &self.open[index].walk;
        walk.in_engine() > 0 || walk.waiting() < waiting
    }

    pub(crate) fn is_stalled(&self) -> bool {
        let now_ns = self.now_ns;
        self.seal.iter().any(|pipeline| pipeline.is_stalled(now_ns))
            || self.open.iter().any(|pipeline| pipeline.is_stalled(now_ns))
    }

    /// Returns when the first of the waiting batches is due, in nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let now_ns = self.now_ns;
        let sealing = self
            .seal
            .iter()
            .filter_map(|pipeline| pipeline.due_ns(now_ns));
        let opening = self
            .open
            .iter()
            .filter_map(|pipeline| pipeline.due_ns(now_ns));
        sealing.chain(opening).min()
    }

    fn any_is_due(&self) -> bool {
        let now_ns = self.now_ns;
        self.seal.iter().any(|pipeline| pipeline.is_due(now_ns))
            || self.open.iter().any(|pipeline| pipeline.is_due(now_ns))
    }

    /// Lets engines and other workers run for a moment.
    pub(crate) fn pause(&mut self) {
        self.now_ns = self.io.pause();
        self.now_ms = ms(self.now_ns);
    }

    pub(crate) fn engines_are_busy(&self) -> bool {
        self.seal
            .iter()
            .any(|pipeline| pipeline.walk.in_engine() > 0)
            || self
                .open
                .iter()
                .any(|pipeline| pipeline.walk.in_engine() > 0)
    }

    pub(crate) fn check_engines(&mut self) {
        if self.any_is_due() || self.is_stalled() {
            self.seal_and_send();
            self.open_and_deliver();
        }
        for index in 0..self.seal.len() {
            self.check_seal(index);
        }
        for index in 0..self.open.len() {
            self.check_open(index);
        }
    }

    fn check_seal(&mut self, index: usize) {
        // If the worker was delayed, the results may have been there for a long time.
        if self.seal[index].is_late(LATE_MS, self.now_ms) {
            self.seal_through(index, BatchChoice::Due);
        }
        let is_gone = self.seal[index].slot.engine.is_out_of_service();
        if (is_gone || self.seal[index].is_late(LATE_MS, self.now_ms)) && self.lose_seal(index) {
            self.seal_through(index, BatchChoice::Due);
        }
        let OutboundPipeline { walk, slot, .. } = &mut self.seal[index];
        if walk.in_engine() == 0 && restore_engine(slot, Direction::Seal, &mut self.io, self.now_ms)
        {
            walk.use_arenas_of(&*slot.engine);
        }
    }

    /// Like [`Self::check_seal`].
    fn check_open(&mut self, index: usize) {
        if self.open[index].is_late(LATE_MS, self.now_ms) {
            self.open_through(index, BatchChoice::Due);
        }
        let is_gone = self.open[index].slot.engine.is_out_of_service();
        if (is_gone || self.open[index].is_late(LATE_MS, self.now_ms)) && self.lose_open(index) {
            self.open_through(index, BatchChoice::Due);
        }
        let InboundPipeline { walk, slot, .. } = &mut self.open[index];
        if walk.in_engine() == 0 && restore_engine(slot, Direction::Open, &mut self.io, self.now_ms)
        {
            walk.use_arenas_of(&*slot.engine);
        }
    }

    /// Replaces the engine by the CPU, which processes the packets in the engine and the waiting
    /// ones. Returns false if the CPU had already replaced it.
    fn lose_seal(&mut self, index: usize) -> bool {
        let OutboundPipeline { walk, slot, .. } = &mut self.seal[index];
        let lost = lose(slot, &mut self.io, &self.counters, self.now_ms);
        if lost {
            walk.engine_lost();
        }
        lost
    }

    fn lose_open(&mut self, index: usize) -> bool {
        let InboundPipeline { walk, slot, .. } = &mut self.open[index];
        let lost = lose(slot, &mut self.io, &self.counters, self.now_ms);
        if lost {
            walk.engine_lost();
        }
        lost
    }
}

/// Replaces the engine of a slot by the CPU. Returns false if the CPU had already replaced it.
fn lose(slot: &mut EngineSlot, io: &mut impl PacketIo, counters: &IoCounters, now_ms: u64) -> bool {
    if let Some(fd) = slot.ready_fd() {
        io.unwatch(fd);
    }
    if !slot.replace(now_ms) {
        return false;
    }
    add(&counters.engines_lost, 1);
    tracing::warn!(
        "the engine {slot} does not answer: the CPU does what it has, and goes on in its place"
    );
    true
}

/// Checks whether a lost engine is in service again, and returns true then. The CPU in its place must be empty.
fn restore_engine(
    slot: &mut EngineSlot,
    direction: Direction,
    io: &mut impl PacketIo,
    now_ms: u64,
) -> bool {
    if !slot.comes_back(now_ms) {
        return false;
    }
    let watched = slot.ready_fd().map(|fd| io.watch(fd, direction));
    match watched.unwrap_or(Ok(())) {
        Ok(()) => {
            tracing::info!("the engine {slot} is in service again");
            true
        }
        Err(error) => {
            tracing::error!("cannot wait for the engine {slot}: {error}");
            slot.replace(now_ms);
            false
        }
    }
}
