//! A walk with the engine that does its work: each engine of a worker has one for each direction, so that what one
//! has done does not wait for another.

use std::io;

use esplanade_crypto::{Direction, RejectReason};
use esplanade_ipsec::inbound::{Inbound, OpenedBatch};
use esplanade_ipsec::outbound::{Outbound, SealedBatch, WalkLimits};
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::spd::Spd;

use super::PACKETS_MAX;
use super::lane::{EngineHealth, EngineSource, Lane};
use super::turns::Turns;

/// The way out through one engine.
pub(super) struct Sealing {
    pub walk: Outbound,
    pub lane: Lane,
    pub turns: Turns,
}

/// The way in through one engine.
pub(super) struct Opening {
    pub walk: Inbound,
    pub lane: Lane,
}

impl Sealing {
    /// Gives the engine what waits, as far as it takes it.
    pub fn submit(&mut self) -> Result<(), RejectReason> {
        let inside = self.walk.in_engine();
        let submitted = self.walk.submit(&mut *self.lane.engine);
        if self.walk.in_engine() > inside {
            self.turns.submitted();
        }
        submitted
    }

    pub fn poll(&mut self) -> Option<SealedBatch> {
        self.walk.poll(&mut *self.lane.engine)
    }

    /// Takes back a batch that was sent.
    pub fn recycle(&mut self, sealed: SealedBatch) {
        self.walk.recycle(sealed);
        self.turns.sent();
    }

    pub fn is_empty(&self) -> bool {
        self.walk.waiting() + self.walk.in_engine() == 0
    }

    /// Whether another read of a TUN finds room, at need behind a submit.
    pub fn takes_packets(&self) -> bool {
        self.walk.can_take() || self.walk.is_half_free()
    }

    /// Whether packets wait for an engine that has nothing inside, so that nothing of it will wake the worker.
    pub fn waits_for_nobody(&self) -> bool {
        self.walk.waiting() > 0 && self.walk.in_engine() == 0
    }

    pub fn is_late(&mut self, now_ms: u64) -> bool {
        self.lane.is_late(self.walk.in_engine(), now_ms)
    }
}

impl Opening {
    /// Gives the engine what waits, as far as it takes it.
    pub fn submit(&mut self, sad: &Sad) -> Result<(), RejectReason> {
        self.walk.push_held(sad);
        self.walk.submit(&mut *self.lane.engine)
    }

    pub fn poll(&mut self, spd: &Spd) -> Option<OpenedBatch> {
        self.walk.poll_against(&mut *self.lane.engine, spd)
    }

    pub fn is_empty(&self) -> bool {
        self.walk.waiting() + self.walk.in_engine() == 0
    }

    /// As [`Sealing::waits_for_nobody`].
    pub fn waits_for_nobody(&self) -> bool {
        self.walk.waiting() > 0 && self.walk.in_engine() == 0
    }

    pub fn is_late(&mut self, now_ms: u64) -> bool {
        self.lane.is_late(self.walk.in_engine(), now_ms)
    }
}

/// One for each engine; the first has the flow cache.
pub(super) fn ways_out(
    engines: &[EngineSource],
    health: &[EngineHealth],
    flows: usize,
    workers: usize,
) -> io::Result<Vec<Sealing>> {
    let mut ways: Vec<Sealing> = Vec::with_capacity(engines.len());
    for (source, health) in engines.iter().zip(health) {
        let lane = Lane::new(source.clone(), Direction::Seal, health.clone())?;
        let limits = WalkLimits {
            jobs_max: PACKETS_MAX,
            batches_max: lane.batches_max(),
            ..WalkLimits::default()
        };
        let walk = Outbound::new(limits);
        let walk = match ways.first() {
            None => walk.with_flows(flows),
            // Nothing is looked up there.
            Some(first) => walk
                .with_flows(0)
                .with_counters(first.walk.counters().clone()),
        };
        ways.push(Sealing {
            walk,
            lane,
            turns: Turns::new(workers),
        });
    }
    Ok(ways)
}

/// One for each engine. A receive may need `receive_len` bytes.
pub(super) fn ways_in(
    engines: &[EngineSource],
    health: &[EngineHealth],
    receive_len: usize,
) -> io::Result<Vec<Opening>> {
    let mut ways: Vec<Opening> = Vec::with_capacity(engines.len());
    for (source, health) in engines.iter().zip(health) {
        let lane = Lane::new(source.clone(), Direction::Open, health.clone())?;
        let limits = WalkLimits {
            buffer_len: receive_len,
            jobs_max: PACKETS_MAX,
            batches_max: lane.batches_max(),
        };
        let walk = Inbound::new(limits);
        let walk = match ways.first() {
            None => walk,
            Some(first) => walk.with_counters(first.walk.counters().clone()),
        };
        ways.push(Opening { walk, lane });
    }
    Ok(ways)
}
