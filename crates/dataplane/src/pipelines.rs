//! A walk together with the engine that works for it. A worker has one for each engine and
//! direction, so that the results of one engine do not wait for another.

use std::io;

use esplanade_crypto::{Direction, EngineInfo, RejectReason};
use esplanade_ipsec::inbound::{Inbound, OpenedBatch};
use esplanade_ipsec::outbound::{Outbound, SealedBatch, WalkLimits};
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::spd::Spd;

use super::PACKETS_MAX;
use super::engine_slot::{EngineHealth, EngineSlot, EngineSource};
use super::turns::SequenceTurns;

/// Most packets that one receive brings.
const RECEIVED_MAX: usize = PACKETS_MAX / 2;

/// Measures how long packets have waited for more, so that their engine gets larger batches.
#[derive(Debug, Default)]
pub(crate) struct BatchDelay {
    since_ns: Option<u64>,
}

impl BatchDelay {
    /// Tells whether the waiting packets waited long enough, or are enough for the engine.
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

    /// Returns when the delay ends, in nanoseconds.
    fn ends_ns(&self, info: &EngineInfo) -> Option<u64> {
        Some(Self::end(self.since_ns?, info))
    }

    fn begin_anew(&mut self) {
        self.since_ns = None;
    }
}

/// The batches that an engine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchChoice {
    /// Batches that are due.
    Due,
    /// All batches.
    All,
}

/// The outbound pipeline of one engine.
pub(crate) struct OutboundPipeline {
    pub walk: Outbound,
    pub slot: EngineSlot,
    pub turns: SequenceTurns,
    delay: BatchDelay,
}

/// The inbound pipeline of one engine.
pub(crate) struct InboundPipeline {
    pub walk: Inbound,
    pub slot: EngineSlot,
    delay: BatchDelay,
    /// Most bytes that one receive takes.
    receive_len: usize,
}

impl OutboundPipeline {
    /// Gives the engine as many waiting packets as it takes.
    pub fn submit(&mut self, which: BatchChoice, now_ns: u64) -> Result<(), RejectReason> {
        let waiting = (self.walk.waiting(), self.walk.waiting_bytes());
        let is_due = self.delay.ends(self.slot.info(), waiting, now_ns);
        if which == BatchChoice::Due && !is_due && self.walk.is_half_free() {
            return Ok(());
        }
        let inside = self.walk.in_engine();
        let submitted = self.walk.submit(&mut *self.slot.engine);
        if self.walk.in_engine() > inside {
            self.turns.submitted();
            self.delay.begin_anew();
        }
        submitted
    }

    /// Tells whether the waiting packets are enough for the engine.
    pub fn has_enough(&self) -> bool {
        self.walk.waiting() >= self.slot.info().jobs
    }

    /// Returns when the waiting packets are due, in nanoseconds. Returns `None` if they are due
    /// already: then the engine signals when it has room.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let ends_ns = self.delay.ends_ns(self.slot.info());
        ends_ns.filter(|ends_ns| *ends_ns > now_ns)
    }

    /// Tells whether the waiting packets have waited long enough.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let ends_ns = self.delay.ends_ns(self.slot.info());
        ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns)
    }

    pub fn poll(&mut self, spd: &Spd) -> Option<SealedBatch> {
        self.walk.poll(&mut *self.slot.engine, spd)
    }

    /// Takes back a batch that was sent.
    pub fn recycle(&mut self, sealed: SealedBatch) {
        self.walk.recycle(sealed);
        self.turns.sent();
    }

    pub fn is_empty(&self) -> bool {
        self.walk.waiting() + self.walk.in_engine() == 0
    }

    /// Tells whether another read of a TUN device finds room, if necessary after a submit.
    pub fn takes_packets(&self) -> bool {
        self.walk.can_take() || self.walk.is_half_free()
    }

    /// Tells whether packets are due while the engine is empty. Then no event would wake the
    /// worker.
    pub fn is_stalled(&self, now_ns: u64) -> bool {
        let waits = self.walk.waiting() > 0 && self.walk.in_engine() == 0;
        waits && self.due_ns(now_ns).is_none()
    }

    pub fn is_late(&mut self, late_ms: u64, now_ms: u64) -> bool {
        let in_engine = self.walk.in_engine();
        self.slot.is_late(in_engine, late_ms, now_ms)
    }
}

impl InboundPipeline {
    /// Gives the engine as many waiting packets as it takes.
    pub fn submit(
        &mut self,
        sad: &Sad,
        which: BatchChoice,
        now_ns: u64,
    ) -> Result<(), RejectReason> {
        self.walk.push_held(sad);
        let waiting = (self.walk.waiting(), self.walk.waiting_bytes());
        let is_due = self.delay.ends(self.slot.info(), waiting, now_ns);
        if which == BatchChoice::Due && !is_due && self.takes_datagrams() {
            return Ok(());
        }
        let inside = self.walk.in_engine();
        let submitted = self.walk.submit(&mut *self.slot.engine);
        if self.walk.in_engine() > inside {
            self.delay.begin_anew();
        }
        submitted
    }

    /// Tells whether there is room for a whole receive.
    pub fn takes_datagrams(&self) -> bool {
        self.walk.has_free(self.receive_len, RECEIVED_MAX)
    }

    /// Like [`OutboundPipeline::due_ns`].
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let ends_ns = self.delay.ends_ns(self.slot.info());
        ends_ns.filter(|ends_ns| *ends_ns > now_ns)
    }

    /// Like [`OutboundPipeline::is_due`].
    pub fn is_due(&self, now_ns: u64) -> bool {
        let ends_ns = self.delay.ends_ns(self.slot.info());
        ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns)
    }

    pub fn poll(&mut self, spd: &Spd) -> Option<OpenedBatch> {
        self.walk.poll_against(&mut *self.slot.engine, spd)
    }

    pub fn is_empty(&self) -> bool {
        self.walk.waiting() + self.walk.in_engine() == 0
    }

    /// Like [`OutboundPipeline::is_stalled`].
    pub fn is_stalled(&self, now_ns: u64) -> bool {
        let waits = self.walk.waiting() > 0 && self.walk.in_engine() == 0;
        waits && self.due_ns(now_ns).is_none()
    }

    pub fn is_late(&mut self, late_ms: u64, now_ms: u64) -> bool {
        let in_engine = self.walk.in_engine();
        self.slot.is_late(in_engine, late_ms, now_ms)
    }
}

/// Makes one outbound pipeline for each engine. The first one has the flow cache.
pub(crate) fn outbound_pipelines(
    engines: &[EngineSource],
    health: &[EngineHealth],
    flows: usize,
    workers: usize,
) -> io::Result<Vec<OutboundPipeline>> {
    let mut pipelines: Vec<OutboundPipeline> = Vec::with_capacity(engines.len());
    for (source, health) in engines.iter().zip(health) {
        let slot = EngineSlot::new(source.clone(), Direction::Seal, health.clone())?;
        let limits = slot.limits(WalkLimits::default().buffer_len);
        let walk = Outbound::new(limits).with_arenas_of(&*slot.engine);
        let walk = match pipelines.first() {
            None => walk.with_flows(flows),
            // The other pipelines look up no flows.
            Some(first) => walk
                .with_flows(0)
                .with_counters(first.walk.counters().clone()),
        };
        pipelines.push(OutboundPipeline {
            walk,
            slot,
            turns: SequenceTurns::new(workers),
            delay: BatchDelay::default(),
        });
    }
    Ok(pipelines)
}

/// Makes one inbound pipeline for each engine. `receive_len` is the most bytes that one receive
/// takes.
pub(crate) fn inbound_pipelines(
    engines: &[EngineSource],
    health: &[EngineHealth],
    receive_len: usize,
) -> io::Result<Vec<InboundPipeline>> {
    let mut pipelines: Vec<InboundPipeline> = Vec::with_capacity(engines.len());
    for (source, health) in engines.iter().zip(health) {
        let slot = EngineSlot::new(source.clone(), Direction::Open, health.clone())?;
        let walk = Inbound::new(slot.limits(receive_len)).with_arenas_of(&*slot.engine);
        let walk = match pipelines.first() {
            None => walk,
            Some(first) => walk.with_counters(first.walk.counters().clone()),
        };
        pipelines.push(InboundPipeline {
            walk,
            slot,
            delay: BatchDelay::default(),
            receive_len,
        });
    }
    Ok(pipelines)
}
