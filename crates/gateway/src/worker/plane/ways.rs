//! A walk with the engine that does its work: each engine of a worker has one for each direction, so that what one
//! has done does not wait for another.

use std::io;

use esplanade_crypto::{Direction, EngineInfo, RejectReason};
use esplanade_ipsec::inbound::{Inbound, OpenedBatch};
use esplanade_ipsec::outbound::{Outbound, SealedBatch, WalkLimits};
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::spd::Spd;

use super::PACKETS_MAX;
use super::lane::{EngineHealth, EngineSource, Lane};
use super::turns::Turns;

/// Packets that one receive may bring.
const RECEIVED_MAX: usize = PACKETS_MAX / 2;

/// Since when packets wait for others, so that their engine gets more at a time.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since_ns: Option<u64>,
}

impl Patience {
    /// Whether what waits has waited long enough, or is enough.
    fn ends(&mut self, info: &EngineInfo, (jobs, bytes): (usize, usize), now_ns: u64) -> bool {
        if jobs == 0 {
            self.since_ns = None;
        }
        if jobs == 0 || info.wait.is_zero() || jobs >= info.jobs || bytes >= info.bytes {
            return true;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        Self::end(since_ns, info) <= now_ns
    }

    fn end(since_ns: u64, info: &EngineInfo) -> u64 {
        since_ns.saturating_add(info.wait.as_nanos() as u64)
    }

    /// When it ends.
    fn ends_ns(&self, info: &EngineInfo) -> Option<u64> {
        Some(Self::end(self.since_ns?, info))
    }

    fn begin_anew(&mut self) {
        self.since_ns = None;
    }
}

/// Which batches are given to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that are due.
    Due,
    /// All.
    All,
}

/// The way out through one engine.
pub(super) struct Sealing {
    pub walk: Outbound,
    pub lane: Lane,
    pub turns: Turns,
    patience: Patience,
}

/// The way in through one engine.
pub(super) struct Opening {
    pub walk: Inbound,
    pub lane: Lane,
    patience: Patience,
    /// Bytes that one receive may need.
    receive_len: usize,
}

impl Sealing {
    /// Gives the engine what waits, as far as it takes it.
    pub fn submit(&mut self, which: Which, now_ns: u64) -> Result<(), RejectReason> {
        let waiting = (self.walk.waiting(), self.walk.waiting_bytes());
        let is_due = self.patience.ends(self.lane.info(), waiting, now_ns);
        if which == Which::Due && !is_due && self.walk.is_half_free() {
            return Ok(());
        }
        let inside = self.walk.in_engine();
        let submitted = self.walk.submit(&mut *self.lane.engine);
        if self.walk.in_engine() > inside {
            self.turns.submitted();
            self.patience.begin_anew();
        }
        submitted
    }

    /// Whether what waits is enough for the engine.
    pub fn has_enough(&self) -> bool {
        self.walk.waiting() >= self.lane.info().jobs
    }

    /// When what waits for others is due. None if it is so already: the engine that has not taken it says when it does.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let ends_ns = self.patience.ends_ns(self.lane.info());
        ends_ns.filter(|ends_ns| *ends_ns > now_ns)
    }

    /// Whether what waits for others has waited long enough.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let ends_ns = self.patience.ends_ns(self.lane.info());
        ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns)
    }

    pub fn poll(&mut self, spd: &Spd) -> Option<SealedBatch> {
        self.walk.poll(&mut *self.lane.engine, spd)
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

    /// Whether packets wait, not for others and for an engine that has nothing inside, so that nothing will wake the worker.
    pub fn waits_for_nobody(&self, now_ns: u64) -> bool {
        let waits = self.walk.waiting() > 0 && self.walk.in_engine() == 0;
        waits && self.due_ns(now_ns).is_none()
    }

    pub fn is_late(&mut self, now_ms: u64) -> bool {
        self.lane.is_late(self.walk.in_engine(), now_ms)
    }
}

impl Opening {
    /// Gives the engine what waits, as far as it takes it.
    pub fn submit(&mut self, sad: &Sad, which: Which, now_ns: u64) -> Result<(), RejectReason> {
        self.walk.push_held(sad);
        let waiting = (self.walk.waiting(), self.walk.waiting_bytes());
        let is_due = self.patience.ends(self.lane.info(), waiting, now_ns);
        if which == Which::Due && !is_due && self.takes_datagrams() {
            return Ok(());
        }
        let inside = self.walk.in_engine();
        let submitted = self.walk.submit(&mut *self.lane.engine);
        if self.walk.in_engine() > inside {
            self.patience.begin_anew();
        }
        submitted
    }

    /// Whether there is room for a whole receive.
    pub fn takes_datagrams(&self) -> bool {
        self.walk.has_free(self.receive_len, RECEIVED_MAX)
    }

    /// As [`Sealing::due_ns`].
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let ends_ns = self.patience.ends_ns(self.lane.info());
        ends_ns.filter(|ends_ns| *ends_ns > now_ns)
    }

    /// As [`Sealing::is_due`].
    pub fn is_due(&self, now_ns: u64) -> bool {
        let ends_ns = self.patience.ends_ns(self.lane.info());
        ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns)
    }

    pub fn poll(&mut self, spd: &Spd) -> Option<OpenedBatch> {
        self.walk.poll_against(&mut *self.lane.engine, spd)
    }

    pub fn is_empty(&self) -> bool {
        self.walk.waiting() + self.walk.in_engine() == 0
    }

    /// As [`Sealing::waits_for_nobody`].
    pub fn waits_for_nobody(&self, now_ns: u64) -> bool {
        let waits = self.walk.waiting() > 0 && self.walk.in_engine() == 0;
        waits && self.due_ns(now_ns).is_none()
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
        let limits = lane.limits(WalkLimits::default().buffer_len);
        let walk = Outbound::new(limits).with_arenas_of(&*lane.engine);
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
            patience: Patience::default(),
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
        let walk = Inbound::new(lane.limits(receive_len)).with_arenas_of(&*lane.engine);
        let walk = match ways.first() {
            None => walk,
            Some(first) => walk.with_counters(first.walk.counters().clone()),
        };
        ways.push(Opening {
            walk,
            lane,
            patience: Patience::default(),
            receive_len,
        });
    }
    Ok(ways)
}
