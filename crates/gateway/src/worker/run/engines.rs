//! Engines that are late, full or lost.

use esplanade_crypto::RejectReason;

use super::{Purpose, Run};
use crate::worker::counters::add;

impl Run {
    /// Gives the engine what waits, and sends what has come back.
    pub(super) fn seal_and_send(&mut self) {
        if self.outbound.in_engine() == 0 {
            self.seal.moved(self.now_ms);
        }
        // Also without packets: what is left of those that could not be laid out goes.
        loop {
            let inside = self.outbound.in_engine();
            let submitted = self.outbound.submit(&mut *self.seal.engine);
            if self.outbound.in_engine() > inside {
                self.turns.submitted();
            }
            if submitted == Err(RejectReason::OutOfService) && self.lose_seal() {
                continue;
            }
            let mut came = false;
            while let Some(sealed) = self.outbound.poll(&mut *self.seal.engine) {
                came = true;
                self.send(&sealed);
                self.outbound.recycle(sealed);
                self.turns.sent();
            }
            if came {
                self.seal.moved(self.now_ms);
            }
            // If nothing came back, what waits does so for the engine.
            if !came || self.outbound.waiting() == 0 {
                break;
            }
        }
        if self.outbound.waiting() + self.outbound.in_engine() == 0 {
            self.turns.end();
        }
    }

    /// The same inbound.
    pub(super) fn open_and_deliver(&mut self) {
        if self.inbound.in_engine() == 0 {
            self.open.moved(self.now_ms);
        }
        let spd = self.database.spd();
        loop {
            self.inbound.push_held(self.database.sad());
            let submitted = self.inbound.submit(&mut *self.open.engine);
            if submitted == Err(RejectReason::OutOfService) && self.lose_open() {
                continue;
            }
            let mut came = false;
            while let Some(mut opened) = self.inbound.poll_against(&mut *self.open.engine, &spd) {
                came = true;
                self.deliver(&mut opened);
                self.inbound.push_nested(self.database.sad(), &mut opened);
                self.inbound.recycle(opened);
            }
            if came {
                self.open.moved(self.now_ms);
            }
            if !came || self.inbound.waiting() == 0 {
                return;
            }
        }
    }

    /// Whether another read of a TUN finds room, at need after [`Self::make_room`].
    pub(super) fn takes_packets(&self) -> bool {
        self.outbound.can_take() || self.outbound.is_half_free()
    }

    /// Seals and sends until any packet finds room. An engine that is late holds the worker up, but not for ever.
    pub(super) fn make_room(&mut self) {
        self.seal_and_send();
        while !self.outbound.can_take() && self.wait_for_seal() {}
    }

    /// Seals and sends all there is.
    pub(super) fn drain(&mut self) {
        self.seal_and_send();
        while self.outbound.waiting() + self.outbound.in_engine() > 0 && self.wait_for_seal() {}
    }

    /// False if it will never come.
    fn wait_for_seal(&mut self) -> bool {
        std::thread::yield_now();
        self.now_ms = self.clock.now_ms();
        let inside = self.outbound.in_engine();
        if self.seal.is_late(inside, self.now_ms) && !self.lose_seal() {
            return false;
        }
        let waiting = self.outbound.waiting();
        self.seal_and_send();
        // An engine with nothing inside that takes nothing.
        let (inside, left) = (self.outbound.in_engine(), self.outbound.waiting());
        inside > 0 || left < waiting
    }

    /// Whether packets wait for an engine that has nothing inside, so that nothing of it will wake the worker.
    pub(super) fn waits_for_nobody(&self) -> bool {
        self.outbound.waiting() > 0 && self.outbound.in_engine() == 0
            || self.inbound.waiting() > 0 && self.inbound.in_engine() == 0
    }

    pub(super) fn look_after_engines(&mut self) {
        if self.waits_for_nobody() {
            self.seal_and_send();
            self.open_and_deliver();
        }
        if self.seal.is_late(self.outbound.in_engine(), self.now_ms) && self.lose_seal() {
            self.seal_and_send();
        }
        if self.open.is_late(self.inbound.in_engine(), self.now_ms) && self.lose_open() {
            self.open_and_deliver();
        }
    }

    /// The CPU does what the engine has inside, and what waits. False if it is the CPU already.
    fn lose_seal(&mut self) -> bool {
        if let Some(fd) = self.seal.ready_fd() {
            let _ = self.wakers.remove(fd, Purpose::Other);
        }
        if !self.seal.replace() {
            return false;
        }
        self.outbound.engine_lost();
        self.tell_lost("seals");
        true
    }

    fn lose_open(&mut self) -> bool {
        if let Some(fd) = self.open.ready_fd() {
            let _ = self.wakers.remove(fd, Purpose::Other);
        }
        if !self.open.replace() {
            return false;
        }
        self.inbound.engine_lost();
        self.tell_lost("opens");
        true
    }

    fn tell_lost(&self, what: &str) {
        add(&self.io.engines_lost, 1);
        tracing::warn!(
            "the engine that {what} packets does not answer: the CPU does what it has, and goes on in its place"
        );
    }
}
