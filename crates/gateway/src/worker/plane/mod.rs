//! The packet path of a worker, without sockets, devices and clock: what it needs of them is [`PacketIo`].
//!
//! Whoever has packets calls [`DataPlane::handle_inner`] and [`DataPlane::handle_outer`]; what comes of them leaves
//! through the [`PacketIo`], at the latest with [`DataPlane::finish`]. Time is what [`DataPlane::handle_time`] was told.

mod auditor;
mod dummies;
mod engines;
mod fragments;
mod inbound;
mod lane;
mod outbound;
mod port;
mod processing;
mod replies;
mod sending;
mod turns;
mod ways;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::Direction;
use esplanade_ipsec::inbound::Share;
use esplanade_ipsec::placement::Settled;
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::{Database, DropReason, Event, WalkCounters};
use tokio::sync::watch;

use super::Clock;
use super::counters::{IoCounters, add};
use super::packet_io::PacketIo;
use super::wakers::Paused;
use auditor::Auditor;
use dummies::Dummies;
use inbound::Found;
use lane::SUSPECT_MS;
use replies::Replies;
use ways::{Opening, Sealing, ways_in, ways_out};

pub use dummies::{DummySa, DummySas};
pub use lane::{EngineHealth, EngineSource, Health};
pub(super) use outbound::{Given, Inner};
pub(crate) use outbound::{is_of_sa, size_limit};
pub(super) use port::Port;
pub use processing::Processing;

/// Packets of a batch that does not wait for more.
const PACKETS_MAX: usize = 2048;
/// Packets of any batch.
const JOBS_MAX: usize = 1 << 14;
/// How often a data plane without packets looks after what it remembers.
const IDLE_MS: u64 = 1000;
/// Sets of the flow cache that are looked at for each millisecond that has passed, at least.
const SWEPT: usize = 4;
/// And more where the cache is so large that a round of all sets would take longer than this.
const ROUND_MS: usize = 30_000;
/// But no more at a time: a few milliseconds, in which a packet could arrive.
const SWEPT_MAX: usize = 1 << 14;

/// What a data plane works with.
pub(super) struct PlaneConfig {
    /// By interface; the common one is first.
    pub ports: Vec<Port>,
    pub database: Arc<Database>,
    pub paths: Arc<PathMtus>,
    /// Bytes that the datagrams of one receive may need.
    pub receive_len: usize,
    /// Flows of each IP version to remember the decision of.
    pub flows: usize,
    /// Data planes that share the SAs.
    pub workers: usize,
    pub processing: Processing,
    pub dummies: Option<watch::Receiver<DummySas>>,
    pub engines: Vec<EngineSource>,
    pub counters: Arc<IoCounters>,
    pub now_ns: u64,
}

pub(super) struct DataPlane<I> {
    pub io: I,
    database: Arc<Database>,
    paths: Arc<PathMtus>,
    ports: Vec<Port>,
    /// By engine; the first has the flow cache and decides for all.
    seal: Vec<Sealing>,
    /// By engine; datagrams are received for the first.
    open: Vec<Opening>,
    engines: Vec<EngineHealth>,
    sealed: Settled,
    opened: Settled,
    found: Found,
    shares: Vec<Share>,
    counters: Arc<IoCounters>,
    now_ns: u64,
    /// The same.
    now_ms: u64,
    /// The time when [`Self::finish`] was called last.
    finished_ms: u64,
    processing: Processing,
    replies: Replies,
    auditor: Auditor,
    dummies: Option<Dummies>,
    /// Bytes of the longest packet that the accelerator in front takes; None where there is none that works.
    accelerator: Option<usize>,
    given: Vec<Given>,
}

impl<I: PacketIo> DataPlane<I> {
    pub fn new(io: I, config: PlaneConfig) -> io::Result<Self> {
        let engines = vec![EngineHealth::default(); config.engines.len()];
        let seal = ways_out(&config.engines, &engines, config.flows, config.workers)?;
        let open = ways_in(&config.engines, &engines, config.receive_len)?;
        let mut plane = Self {
            io,
            database: config.database,
            paths: config.paths,
            ports: config.ports,
            seal,
            open,
            engines,
            sealed: Settled::default(),
            opened: Settled::default(),
            found: Found::default(),
            shares: Vec::new(),
            counters: config.counters,
            now_ns: config.now_ns,
            now_ms: Clock::ms(config.now_ns),
            finished_ms: Clock::ms(config.now_ns),
            processing: config.processing,
            replies: Replies::new(),
            auditor: Auditor::new(),
            dummies: config.dummies.map(Dummies::new),
            accelerator: None,
            given: Vec::new(),
        };
        let out = plane.seal.iter().map(|way| (&way.lane, Direction::Seal));
        let back = plane.open.iter().map(|way| (&way.lane, Direction::Open));
        for (lane, direction) in out.chain(back) {
            if let Some(fd) = lane.ready_fd() {
                plane.io.watch(fd, direction)?;
            }
        }
        Ok(plane)
    }

    /// Outbound, inbound.
    pub fn walk_counters(&self) -> [Arc<WalkCounters>; 2] {
        [
            Arc::clone(self.seal[0].walk.counters()),
            Arc::clone(self.open[0].walk.counters()),
        ]
    }

    pub fn engines(&self) -> Vec<EngineHealth> {
        self.engines.clone()
    }

    /// What comes now comes at this time.
    pub fn handle_time(&mut self, now_ns: u64) {
        let now_ms = Clock::ms(now_ns);
        (self.now_ns, self.now_ms) = (now_ns, now_ms);
        for way in &mut self.open {
            way.walk.set_now_ms(now_ms);
        }
        for way in &mut self.seal {
            way.walk.set_now_ms(now_ms);
        }
    }

    /// Whose packets it takes none of now, because an engine has all that it can have of them.
    pub fn paused(&self) -> Paused {
        Paused {
            inbound: !self.takes_datagrams(),
            outbound: !self.takes_packets(),
        }
    }

    /// What is due behind the packets that came: of engines, and of the time that has passed.
    pub fn finish(&mut self) {
        self.look_after_engines();
        let audits = self.open.iter_mut();
        for (event, packets) in audits.flat_map(|way| way.walk.drain_audits()) {
            self.auditor.record(event, packets, self.now_ms);
        }
        let last_ms = std::mem::replace(&mut self.finished_ms, self.now_ms);
        if self.now_ms != last_ms {
            self.keep_time();
            self.let_go(self.now_ms.saturating_sub(last_ms));
        }
    }

    /// After how long [`Self::finish`] has something to do without packets.
    pub fn timeout(&self) -> Duration {
        if self.waits_for_nobody() {
            return Duration::from_millis(1);
        }
        // An engine that has something is not to be late for long before that is seen.
        let longest = if self.engines_are_busy() {
            SUSPECT_MS
        } else {
            IDLE_MS
        };
        let dummy = self.dummies.as_ref().and_then(Dummies::next_ms);
        let wait = dummy.map_or(longest, |due| due.saturating_sub(self.now_ms));
        let wait = Duration::from_millis(wait.min(longest));
        let due = self.due_ns().map(|due| due.saturating_sub(self.now_ns));
        due.map_or(wait, |due| wait.min(Duration::from_nanos(due)))
    }

    /// What the control thread is to know.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        let outbound = self.seal.iter_mut();
        let outbound = outbound.flat_map(|way| way.walk.drain_events());
        let inbound = self.open.iter_mut();
        outbound.chain(inbound.flat_map(|way| way.walk.drain_events()))
    }

    /// SAs that were removed, with their keys, do not stay in what this worker remembers.
    fn let_go(&mut self, passed_ms: u64) {
        for way in &mut self.open {
            way.walk.refresh(self.database.sad());
        }
        for way in &mut self.seal {
            let sets = swept(way.walk.flow_sets(), passed_ms);
            way.walk.sweep_flows(sets);
        }
    }

    fn keep_time(&mut self) {
        let waiting = self.ports.iter_mut();
        for port in waiting.filter(|port| port.fragments.is_waiting()) {
            let datagrams = port.fragments.expire(self.now_ms);
            add(&self.counters.reassembly_timeouts, datagrams as u64);
            for _ in 0..datagrams {
                self.seal[0]
                    .walk
                    .drop_packet(DropReason::FragmentRefused, 0);
            }
        }
        if self.auditor.is_pending() {
            self.auditor.flush(self.now_ms);
        }
        self.send_dummies();
    }
}

/// Sets of a flow cache to look at after so much time: wakes alone, for dummies too, make no work.
fn swept(sets: usize, passed_ms: u64) -> usize {
    let of_ms = sets.div_ceil(ROUND_MS).max(SWEPT);
    let passed_ms = usize::try_from(passed_ms).unwrap_or(usize::MAX);
    of_ms.saturating_mul(passed_ms).min(SWEPT_MAX)
}

#[cfg(test)]
mod tests;
