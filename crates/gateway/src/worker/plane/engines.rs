//! Several engines side by side, each of which may be late, full or lost.

use esplanade_crypto::{Direction, RejectReason};
use esplanade_ipsec::sa::OutboundSa;

use super::DataPlane;
use super::lane::Lane;
use super::ways::{Opening, Sealing, Which};
use crate::worker::Clock;
use crate::worker::counters::{IoCounters, add};
use crate::worker::packet_io::PacketIo;

impl<I: PacketIo> DataPlane<I> {
    /// Gives the engines what is due, and sends what has come back.
    pub fn seal_and_send(&mut self) {
        self.seal_waiting(Which::Due);
    }

    fn seal_waiting(&mut self, which: Which) {
        for way in 0..self.seal.len() {
            self.seal_through(way, which);
        }
    }

    fn seal_through(&mut self, way: usize, which: Which) {
        let now_ms = self.now_ms;
        if self.seal[way].walk.in_engine() == 0 {
            self.seal[way].lane.moved(now_ms);
        }
        let spd = self.database.spd();
        // Also without packets: what is left of those that could not be laid out goes.
        loop {
            let submitted = self.seal[way].submit(which, self.now_ns);
            if submitted == Err(RejectReason::OutOfService) && self.lose_seal(way) {
                continue;
            }
            let mut came = false;
            while let Some(sealed) = self.seal[way].poll(&spd) {
                came = true;
                self.send(&sealed);
                self.seal[way].recycle(sealed);
            }
            if came {
                self.seal[way].lane.moved(now_ms);
            }
            // If nothing came back, what waits does so for the engine.
            if !came || self.seal[way].walk.waiting() == 0 {
                break;
            }
        }
        if self.seal[way].is_empty() {
            self.seal[way].turns.end();
        }
    }

    /// Gives the engines what is due, and delivers what has come back.
    pub fn open_and_deliver(&mut self) {
        self.open_waiting(Which::Due);
    }

    fn open_waiting(&mut self, which: Which) {
        for way in 0..self.open.len() {
            self.open_through(way, which);
        }
    }

    fn open_through(&mut self, way: usize, which: Which) {
        let now_ms = self.now_ms;
        if self.open[way].walk.in_engine() == 0 {
            self.open[way].lane.moved(now_ms);
        }
        let spd = self.database.spd();
        loop {
            let submitted = self.open[way].submit(self.database.sad(), which, self.now_ns);
            if submitted == Err(RejectReason::OutOfService) && self.lose_open(way) {
                continue;
            }
            let mut came = false;
            while let Some(mut opened) = self.open[way].poll(&spd) {
                came = true;
                self.deliver(&mut opened);
                let walk = &mut self.open[way].walk;
                walk.push_nested(self.database.sad(), &mut opened);
                walk.recycle(opened);
            }
            if came {
                self.open[way].lane.moved(now_ms);
            }
            if !came || self.open[way].walk.waiting() == 0 {
                return;
            }
        }
    }

    /// Which engine the SA's packets go to now. Where it was moved, those that went before are sent first.
    pub(super) fn way_out(&mut self, sa: &OutboundSa) -> usize {
        if self.seal.len() == 1 {
            return 0;
        }
        let placed = sa.common.placement.get();
        if !self.sealed.knows(placed) {
            self.drain();
            self.sealed.settle(placed);
        }
        usize::from(placed.engine).min(self.seal.len() - 1)
    }

    /// Whether another read of a TUN finds room, at need after [`Self::make_room`].
    pub(super) fn takes_packets(&self) -> bool {
        self.seal.iter().all(|way| way.takes_packets())
    }

    /// Whether each engine has room for what comes in.
    pub(super) fn takes_datagrams(&self) -> bool {
        self.open.iter().all(|way| way.takes_datagrams())
    }

    /// Seals and sends until any packet finds room. An engine that is late holds the worker up, but not for ever.
    pub(super) fn make_room(&mut self) {
        self.seal_waiting(Which::All);
        for way in 0..self.seal.len() {
            while !self.seal[way].walk.can_take() && self.wait_for_seal(way) {}
        }
    }

    /// Seals and sends all there is.
    pub fn drain(&mut self) {
        self.seal_waiting(Which::All);
        for way in 0..self.seal.len() {
            while !self.seal[way].is_empty() && self.wait_for_seal(way) {}
        }
    }

    /// False if it will never come.
    fn wait_for_seal(&mut self, way: usize) -> bool {
        self.pause();
        let waiting = self.seal[way].walk.waiting();
        self.seal_waiting(Which::All);
        if self.seal[way].is_late(self.now_ms) {
            let lost = self.lose_seal(way);
            self.seal_through(way, Which::All);
            return lost;
        }
        // An engine with nothing inside that takes nothing.
        let walk = &self.seal[way].walk;
        walk.in_engine() > 0 || walk.waiting() < waiting
    }

    /// Opens and delivers all there is.
    pub fn drain_inbound(&mut self) {
        self.open_waiting(Which::All);
        for way in 0..self.open.len() {
            while !self.open[way].is_empty() && self.wait_for_open(way) {}
        }
    }

    /// As [`Self::wait_for_seal`].
    fn wait_for_open(&mut self, way: usize) -> bool {
        self.pause();
        let waiting = self.open[way].walk.waiting();
        self.open_waiting(Which::All);
        if self.open[way].is_late(self.now_ms) {
            let lost = self.lose_open(way);
            self.open_through(way, Which::All);
            return lost;
        }
        let walk = &self.open[way].walk;
        walk.in_engine() > 0 || walk.waiting() < waiting
    }

    pub(super) fn waits_for_nobody(&self) -> bool {
        let now_ns = self.now_ns;
        self.seal.iter().any(|way| way.waits_for_nobody(now_ns))
            || self.open.iter().any(|way| way.waits_for_nobody(now_ns))
    }

    /// When the first of the batches that wait for more is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let now_ns = self.now_ns;
        let sealing = self.seal.iter().filter_map(|way| way.due_ns(now_ns));
        let opening = self.open.iter().filter_map(|way| way.due_ns(now_ns));
        sealing.chain(opening).min()
    }

    fn any_is_due(&self) -> bool {
        let now_ns = self.now_ns;
        self.seal.iter().any(|way| way.is_due(now_ns))
            || self.open.iter().any(|way| way.is_due(now_ns))
    }

    /// Lets engines and other workers go on for a moment.
    pub(super) fn pause(&mut self) {
        self.now_ns = self.io.pause();
        self.now_ms = Clock::ms(self.now_ns);
    }

    pub(super) fn engines_are_busy(&self) -> bool {
        self.seal.iter().any(|way| way.walk.in_engine() > 0)
            || self.open.iter().any(|way| way.walk.in_engine() > 0)
    }

    pub(super) fn look_after_engines(&mut self) {
        if self.any_is_due() || self.waits_for_nobody() {
            self.seal_and_send();
            self.open_and_deliver();
        }
        for way in 0..self.seal.len() {
            // It may have answered long ago, if the worker was held up.
            if self.seal[way].is_late(self.now_ms) {
                self.seal_through(way, Which::Due);
            }
            if self.seal[way].is_late(self.now_ms) && self.lose_seal(way) {
                self.seal_through(way, Which::Due);
            }
            let Sealing { walk, lane, .. } = &mut self.seal[way];
            if walk.in_engine() == 0 {
                look_for(lane, Direction::Seal, &mut self.io, self.now_ms);
            }
        }
        for way in 0..self.open.len() {
            if self.open[way].is_late(self.now_ms) {
                self.open_through(way, Which::Due);
            }
            if self.open[way].is_late(self.now_ms) && self.lose_open(way) {
                self.open_through(way, Which::Due);
            }
            let Opening { walk, lane, .. } = &mut self.open[way];
            if walk.in_engine() == 0 {
                look_for(lane, Direction::Open, &mut self.io, self.now_ms);
            }
        }
    }

    /// The CPU does what the engine has inside, and what waits. False if it has done so already.
    fn lose_seal(&mut self, way: usize) -> bool {
        let Sealing { walk, lane, .. } = &mut self.seal[way];
        let lost = lose(lane, &mut self.io, &self.counters, self.now_ms);
        if lost {
            walk.engine_lost();
        }
        lost
    }

    fn lose_open(&mut self, way: usize) -> bool {
        let Opening { walk, lane, .. } = &mut self.open[way];
        let lost = lose(lane, &mut self.io, &self.counters, self.now_ms);
        if lost {
            walk.engine_lost();
        }
        lost
    }
}

/// False if the CPU is in its place already.
fn lose(lane: &mut Lane, io: &mut impl PacketIo, counters: &IoCounters, now_ms: u64) -> bool {
    if let Some(fd) = lane.ready_fd() {
        io.unwatch(fd);
    }
    if !lane.replace(now_ms) {
        return false;
    }
    add(&counters.engines_lost, 1);
    tracing::warn!(
        "the engine {lane} does not answer: the CPU does what it has, and goes on in its place"
    );
    true
}

/// Looks whether a lost engine, in whose place nothing is inside, is in service again.
fn look_for(lane: &mut Lane, direction: Direction, io: &mut impl PacketIo, now_ms: u64) {
    if !lane.comes_back(now_ms) {
        return;
    }
    let watched = lane.ready_fd().map(|fd| io.watch(fd, direction));
    match watched.unwrap_or(Ok(())) {
        Ok(()) => tracing::info!("the engine {lane} is in service again"),
        Err(error) => {
            tracing::error!("cannot wait for the engine {lane}: {error}");
            lane.replace(now_ms);
        }
    }
}
