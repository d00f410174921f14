//! The packet path of a worker, without sockets, devices and clock. [`PacketIo`] provides what it
//! needs of them.
//!
//! The caller passes packets to [`DataPlane::handle_inner`] and [`DataPlane::handle_outer`]. The
//! results leave through the [`PacketIo`], at the latest with [`DataPlane::finish`]. The time is
//! what [`DataPlane::handle_time`] was told. [`Doors`] are the same for a plane with an accelerator
//! in front.

pub mod accelerator;
mod audit;
mod auditor;
pub mod checksum;
pub mod class;
pub mod counters;
pub mod datagram;
pub mod doors;
mod dummies;
mod engine_slot;
mod engines;
mod fragments;
pub mod front;
#[cfg(any(test, feature = "pair"))]
pub mod gate;
pub mod gro;
pub mod gso;
mod inbound;
pub mod mss;
mod outbound;
pub mod packet_io;
#[cfg(any(test, feature = "pair"))]
pub mod pair;
mod pipelines;
mod port;
mod processing;
pub mod rate;
mod replies;
#[cfg(test)]
mod segments_tests;
mod sending;
pub mod slots;
mod turns;
pub mod virtio;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::Direction;
use esplanade_ipsec::inbound::Share;
use esplanade_ipsec::placement::Settled;
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::{Database, DropReason, Event, WalkCounters};

use auditor::Auditor;
use counters::{IoCounters, add};
use dummies::DummyScheduler;
use engine_slot::SUSPECT_MS;
use inbound::FoundPackets;
use packet_io::PacketIo;
use pipelines::{InboundPipeline, OutboundPipeline, inbound_pipelines, outbound_pipelines};
use replies::IcmpReplies;

pub use doors::{Doors, FrontPlane};
pub use dummies::{DummySa, DummySas, DummySource};
pub use engine_slot::{EngineHealth, EngineSource, Health, STANDING_MS};
pub use outbound::{AcceleratorPacket, InnerPacket};
pub use outbound::{is_of_sa, size_limit};
pub use port::TunPort;
pub use processing::Processing;

/// Most packets of a batch that does not wait for more.
const PACKETS_MAX: usize = 2048;
/// Most packets of any batch.
const JOBS_MAX: usize = 1 << 14;
/// The interval, in milliseconds, at which a data plane without packets clears its caches.
const IDLE_MS: u64 = 1000;
/// The interval, in milliseconds, at which a data plane looks for the SAs that packets wait for.
const EARLY_MS: u64 = 2;
/// Least number of flow cache sets that are swept per millisecond.
const SWEPT: usize = 4;
/// A sweep of all sets takes at most this many milliseconds, however large the cache is.
const ROUND_MS: usize = 30_000;
/// Most sets of one sweep. It takes a few milliseconds, during which a packet may arrive.
const SWEPT_MAX: usize = 1 << 14;

/// Milliseconds of nanoseconds. The last use of an SA is measured in this time.
pub fn ms(ns: u64) -> u64 {
    // The time starts at 1, because 0 means "never".
    ns / 1_000_000 + 1
}

/// The directions that currently take no packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paused {
    pub inbound: bool,
    pub outbound: bool,
}

/// The parts that a data plane needs.
#[derive(Debug)]
pub struct PlaneConfig {
    /// The ports. The common port is the first.
    pub ports: Vec<TunPort>,
    pub database: Arc<Database>,
    pub paths: Arc<PathMtus>,
    /// Most bytes that the datagrams of one receive take.
    pub receive_len: usize,
    /// The number of flows of each IP version that the flow cache holds.
    pub flows: usize,
    /// Number of data planes that share the SAs.
    pub workers: usize,
    pub processing: Processing,
    pub dummies: Option<Box<dyn DummySource>>,
    pub engines: Vec<EngineSource>,
    pub counters: Arc<IoCounters>,
    pub now_ns: u64,
}

pub struct DataPlane<I> {
    pub io: I,
    database: Arc<Database>,
    paths: Arc<PathMtus>,
    ports: Vec<TunPort>,
    /// The interfaces, sorted, each with the index of its port.
    by_interface: Vec<(u32, usize)>,
    /// The outbound pipelines, one for each engine. The first has the flow cache and decides about
    /// every packet.
    seal: Vec<OutboundPipeline>,
    /// The inbound pipelines, one for each engine. Datagrams are received for the first.
    open: Vec<InboundPipeline>,
    engines: Vec<EngineHealth>,
    sealed: Settled,
    opened: Settled,
    found: FoundPackets,
    shares: Vec<Share>,
    counters: Arc<IoCounters>,
    now_ns: u64,
    /// `now_ns` in milliseconds.
    now_ms: u64,
    /// The time of the last call of [`Self::finish`].
    finished_ms: u64,
    processing: Processing,
    replies: IcmpReplies,
    auditor: Auditor,
    dummies: Option<DummyScheduler>,
    /// Most bytes of a packet that the accelerator in front takes. `None` means that there is none,
    /// or that it failed.
    accelerator: Option<usize>,
    given: Vec<AcceleratorPacket>,
}

impl<I> fmt::Debug for DataPlane<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPlane").finish_non_exhaustive()
    }
}

impl<I: PacketIo> DataPlane<I> {
    pub fn new(io: I, config: PlaneConfig) -> io::Result<Self> {
        let engines = vec![EngineHealth::default(); config.engines.len()];
        let seal = outbound_pipelines(&config.engines, &engines, config.flows, config.workers)?;
        let open = inbound_pipelines(&config.engines, &engines, config.receive_len)?;
        let interfaces = config.ports.iter().map(|port| port.interface);
        let mut by_interface: Vec<_> = interfaces.zip(0..).collect();
        by_interface.sort_unstable();
        let mut plane = Self {
            io,
            by_interface,
            database: config.database,
            paths: config.paths,
            ports: config.ports,
            seal,
            open,
            engines,
            sealed: Settled::default(),
            opened: Settled::default(),
            found: FoundPackets::default(),
            shares: Vec::new(),
            counters: config.counters,
            now_ns: config.now_ns,
            now_ms: ms(config.now_ns),
            finished_ms: ms(config.now_ns),
            processing: config.processing,
            replies: IcmpReplies::new(),
            auditor: Auditor::new(),
            dummies: config.dummies.map(DummyScheduler::new),
            accelerator: None,
            given: Vec::new(),
        };
        let out = plane
            .seal
            .iter()
            .map(|pipeline| (&pipeline.slot, Direction::Seal));
        let back = plane
            .open
            .iter()
            .map(|pipeline| (&pipeline.slot, Direction::Open));
        for (slot, direction) in out.chain(back) {
            if let Some(fd) = slot.ready_fd() {
                plane.io.watch(fd, direction)?;
            }
        }
        Ok(plane)
    }

    /// Adds a port for an interface, at an index that no port has now.
    pub fn add_port(&mut self, index: usize, interface: u32, udp: bool, mtu: u16) {
        let mss_clamp = self.processing.mss_clamp.map(|_| mtu);
        let port = TunPort::new(interface, udp, mss_clamp);
        match self.ports.get_mut(index) {
            Some(former) => *former = port,
            None => self.ports.push(port),
        }
        self.by_interface.push((interface, index));
        self.by_interface.sort_unstable();
    }

    /// Forgets the port of an interface. What still comes for the interface is dropped.
    pub fn remove_port(&mut self, interface: u32) {
        self.by_interface.retain(|(one, _)| *one != interface);
    }

    /// Returns the counters of the walks: outbound, inbound.
    pub fn walk_counters(&self) -> [Arc<WalkCounters>; 2] {
        [
            Arc::clone(self.seal[0].walk.counters()),
            Arc::clone(self.open[0].walk.counters()),
        ]
    }

    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub fn engines(&self) -> Vec<EngineHealth> {
        self.engines.clone()
    }

    /// Sets the time for all that follows.
    pub fn handle_time(&mut self, now_ns: u64) {
        let now_ms = ms(now_ns);
        (self.now_ns, self.now_ms) = (now_ns, now_ms);
        for pipeline in &mut self.open {
            pipeline.walk.set_now_ms(now_ms);
        }
        for pipeline in &mut self.seal {
            pipeline.walk.set_now_ms(now_ms);
        }
    }

    /// Returns the directions that take no packets, because an engine has no room for more.
    pub fn paused(&self) -> Paused {
        Paused {
            inbound: !self.takes_datagrams(),
            outbound: !self.takes_packets(),
        }
    }

    /// Does what is due after a burst: for the engines, and because time has passed.
    pub fn finish(&mut self) {
        self.check_engines();
        let audits = self.open.iter_mut();
        for (event, packets) in audits.flat_map(|pipeline| pipeline.walk.drain_audits()) {
            self.auditor.record(event, packets, self.now_ms);
        }
        let last_ms = std::mem::replace(&mut self.finished_ms, self.now_ms);
        if self.now_ms != last_ms {
            self.expire();
            self.drop_removed_sas(self.now_ms.saturating_sub(last_ms));
        }
    }

    /// Returns after how long [`Self::finish`] has something to do without new packets.
    pub fn timeout(&self) -> Duration {
        if self.is_stalled() {
            return Duration::from_millis(1);
        }
        // Notice soon if a busy engine becomes late.
        let longest = if self.engines_are_busy() {
            SUSPECT_MS
        } else {
            IDLE_MS
        };
        let dummy = self.dummies.as_ref().and_then(DummyScheduler::next_ms);
        let wait = dummy.map_or(longest, |due| due.saturating_sub(self.now_ms));
        let early = if self.has_early() { EARLY_MS } else { longest };
        let wait = Duration::from_millis(wait.min(longest).min(early));
        let due = self.due_ns().map(|due| due.saturating_sub(self.now_ns));
        due.map_or(wait, |due| wait.min(Duration::from_nanos(due)))
    }

    /// Returns the events for the control thread.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        let outbound = self.seal.iter_mut();
        let outbound = outbound.flat_map(|pipeline| pipeline.walk.drain_events());
        let inbound = self.open.iter_mut();
        outbound.chain(inbound.flat_map(|pipeline| pipeline.walk.drain_events()))
    }

    /// Drops removed SAs, and so their keys, from the caches of this worker.
    fn drop_removed_sas(&mut self, passed_ms: u64) {
        for pipeline in &mut self.open {
            pipeline.walk.refresh(self.database.sad());
        }
        for pipeline in &mut self.seal {
            let sets = swept(pipeline.walk.flow_sets(), passed_ms);
            pipeline.walk.sweep_flows(sets);
        }
    }

    fn expire(&mut self) {
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

/// Returns the number of flow cache sets to sweep after `passed_ms`. Frequent wakes cause no
/// additional work.
fn swept(sets: usize, passed_ms: u64) -> usize {
    let of_ms = sets.div_ceil(ROUND_MS).max(SWEPT);
    let passed_ms = usize::try_from(passed_ms).unwrap_or(usize::MAX);
    of_ms.saturating_mul(passed_ms).min(SWEPT_MAX)
}

#[cfg(test)]
mod tests;
