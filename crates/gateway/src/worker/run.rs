//! The worker's loop: drain what is ready in bounded bursts, inbound first, then wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use esplanade_crypto::Direction;
use esplanade_ipsec::inbound::{Inbound, Share};
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::placement::Settled;
use esplanade_ipsec::{Database, DropReason, WalkCounters};

use crate::io::slots::Slots;
use crate::io::sys::{self, EVENTS_MAX};
use crate::io::tun;
use crate::io::udp::Receiver;

use super::auditor::Auditor;
use super::core::{CoreHandle, Driver};
use super::counters::{IoCounters, Load, add};
use super::dummies::Dummies;
use super::lane::{EngineHealth, EngineSource, Lane, SUSPECT_MS};
use super::paths::PathErrors;
use super::port::Port;
use super::processing::Processing;
use super::replies::Replies;
use super::turns::Turns;
use super::wakers::{Paused, Purpose, Wakers};
use super::ways::{Opening, Sealing};
use super::{Clock, Control, EventQueue, Reports, WorkerConfig, WorkerSockets};

mod engines;
mod in_core;
mod inward;
mod outward;

pub(crate) use outward::{is_of_sa, size_limit};

/// Bytes of the longest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// How often a worker without packets looks after what it remembers.
const IDLE_MS: u64 = 1000;
/// Sets of the flow cache that are looked at for each millisecond that has passed, at least.
const SWEPT: usize = 4;
/// And more where the cache is so large that a round of all sets would take longer than this.
const ROUND_MS: usize = 30_000;
/// But no more at a time: a few milliseconds, in which a packet could arrive.
const SWEPT_MAX: usize = 1 << 14;
/// From a UDP socket. Eight coalesced datagrams are half a megabyte, as much as the cache near the processor keeps.
const UDP_SLOTS: Slots = Slots {
    count: 8,
    len: DATAGRAM_MAX,
    more: 0,
};
/// From a raw socket, where nothing is coalesced: packets as most links carry them, and seldom long ones.
const RAW_SLOTS: Slots = Slots {
    count: 64,
    len: 2048,
    more: DATAGRAM_MAX - 2048,
};
const PACKETS_MAX: usize = 2048;
const TOKEN_CONTROL: u64 = 0;
const TOKEN_SEALED: u64 = 1;
const TOKEN_OPENED: u64 = 2;
/// Of the first port; the others and then the sockets follow.
const TOKEN_PORTS: u64 = 3;

/// A socket to receive from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Ike(usize),
    NatT(usize),
    Esp(usize),
    Ah(usize),
    Icmp(usize),
}

impl Source {
    fn slots(self) -> Slots {
        match self {
            Self::Esp(_) | Self::Ah(_) => RAW_SLOTS,
            _ => UDP_SLOTS,
        }
    }

    fn purpose(self) -> Purpose {
        match self {
            Self::Icmp(_) => Purpose::Other,
            _ => Purpose::Inbound,
        }
    }
}

pub(super) struct Run {
    control: Arc<Control>,
    cpu: Option<usize>,
    clock: Clock,
    /// By interface; the common one is first.
    ports: Vec<Port>,
    /// The port that outbound packets are being read from.
    port: usize,
    sockets: WorkerSockets,
    sources: Vec<Source>,
    database: Arc<Database>,
    reports: Reports,
    wakers: Wakers,
    /// By engine; the first has the flow cache and decides for all.
    seal: Vec<Sealing>,
    /// By engine; datagrams are received for the first.
    open: Vec<Opening>,
    engines: Vec<EngineHealth>,
    sealed: Settled,
    opened: Settled,
    receiver: Receiver,
    found: inward::Found,
    shares: Vec<Share>,
    read_buffer: Vec<u8>,
    events: EventQueue,
    io: Arc<IoCounters>,
    load: Arc<Load>,
    now_ms: u64,
    processing: Processing,
    replies: Replies,
    path_errors: PathErrors,
    auditor: Auditor,
    dummies: Option<Dummies>,
    core: Option<Driver>,
    core_handle: Option<CoreHandle>,
}

impl Run {
    pub(super) fn new(config: WorkerConfig, control: Arc<Control>) -> io::Result<Self> {
        let WorkerConfig {
            cpu,
            clock,
            tun,
            interfaces,
            sockets,
            database,
            reports,
            flows,
            processing,
            core,
            dummies,
            count,
            engines: made_by,
            ..
        } = config;
        let mut ports = vec![Port::new(0, tun, processing.mss_clamp)];
        ports.extend(interfaces.into_iter().map(|interface| {
            let mss_clamp = processing.mss_clamp.map(|_| interface.mtu);
            Port::new(interface.id, interface.tun, mss_clamp)
        }));
        ports.sort_unstable_by_key(|port| port.interface);
        let mut sources: Vec<Source> = (0..sockets.nat_t.len()).map(Source::NatT).collect();
        sources.extend((0..sockets.ike.len()).map(Source::Ike));
        sources.extend((0..sockets.esp.len()).map(Source::Esp));
        sources.extend((0..sockets.ah.len()).map(Source::Ah));
        sources.extend((0..sockets.icmp.len()).map(Source::Icmp));
        let engines = vec![EngineHealth::default(); made_by.len()];
        let seal = ways_out(&made_by, &engines, flows, count)?;
        let open = ways_in(&made_by, &engines)?;
        let sealed = seal.iter().map(|way| (&way.lane, TOKEN_SEALED));
        let opened = open.iter().map(|way| (&way.lane, TOKEN_OPENED));
        let ready = sealed.chain(opened);
        let ready = ready.filter_map(|(lane, token)| Some((lane.ready_fd()?, token)));
        let wakers = Wakers::new(ready.clone().next().is_some())?;
        wakers.add(control.wake.as_fd(), TOKEN_CONTROL, Purpose::Other)?;
        for (fd, token) in ready {
            wakers.add(fd, token, Purpose::Other)?;
        }
        let mut tokens = TOKEN_PORTS..;
        for (port, token) in ports.iter().zip(&mut tokens) {
            wakers.add(port.tun.own().as_fd(), token, Purpose::Outbound)?;
        }
        for (source, token) in sources.iter().zip(tokens) {
            wakers.add(descriptor(&sockets, *source), token, source.purpose())?;
        }
        let core = core.map(|core| {
            let walks = [
                seal[0].walk.counters().clone(),
                open[0].walk.counters().clone(),
            ];
            let (control, paths) = (Arc::clone(&control), Arc::clone(&sockets.paths));
            Driver::new(core, control, Arc::clone(&database), paths, walks)
        });
        let (core, core_handle) = core.unzip();
        Ok(Self {
            control,
            cpu,
            clock,
            ports,
            port: 0,
            sockets,
            sources,
            database,
            reports,
            wakers,
            seal,
            open,
            engines,
            sealed: Settled::default(),
            opened: Settled::default(),
            receiver: Receiver::new(RAW_SLOTS.count),
            found: inward::Found::default(),
            shares: Vec::new(),
            read_buffer: vec![0; tun::READ_MAX],
            events: EventQueue::default(),
            io: Arc::default(),
            load: Arc::default(),
            now_ms: clock.now_ms(),
            processing,
            replies: Replies::new(),
            path_errors: PathErrors::new(),
            auditor: Auditor::new(),
            dummies: dummies.map(Dummies::new),
            core,
            core_handle,
        })
    }

    pub(super) fn core_handle(&mut self) -> Option<CoreHandle> {
        self.core_handle.take()
    }

    pub(super) fn counters(&self) -> (Arc<IoCounters>, Arc<WalkCounters>, Arc<WalkCounters>) {
        (
            Arc::clone(&self.io),
            Arc::clone(self.seal[0].walk.counters()),
            Arc::clone(self.open[0].walk.counters()),
        )
    }

    pub(super) fn engines(&self) -> Vec<EngineHealth> {
        self.engines.clone()
    }

    pub(super) fn load(&self) -> Arc<Load> {
        Arc::clone(&self.load)
    }

    pub(super) fn run(&mut self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = sys::pin_to_cpu(cpu)
        {
            tracing::warn!("cannot keep a worker on processor {cpu}: {error}");
        }
        let mut tokens = [0; EVENTS_MAX];
        let first_source = TOKEN_PORTS + self.ports.len() as u64;
        let mut woke_ns = self.clock.now_ns();
        while !self.control.stop.load(Ordering::Acquire) {
            self.load.count(self.clock.now_ns().saturating_sub(woke_ns));
            let wait = self
                .wakers
                .wait(self.paused(), &mut tokens, self.timeout_ms());
            let ready = match wait {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!("a worker cannot wait for packets and ends: {error}");
                    return;
                }
            };
            woke_ns = self.clock.now_ns();
            let last_ms = std::mem::replace(&mut self.now_ms, Clock::ms(woke_ns));
            for way in &mut self.open {
                way.walk.set_now_ms(self.now_ms);
            }
            for way in &mut self.seal {
                way.walk.set_now_ms(self.now_ms);
            }
            if let Some(core) = &mut self.core {
                core.keep_time(self.now_ms);
                core.serve();
            }
            for token in &tokens[..ready] {
                if *token == TOKEN_CONTROL {
                    self.control.wake.clear();
                    if let Err(error) = self.take_tuns() {
                        tracing::error!("a worker cannot read its new TUN and ends: {error}");
                        return;
                    }
                    self.core.iter_mut().for_each(Driver::serve);
                } else if *token == TOKEN_SEALED {
                    self.seal_and_send();
                } else if *token == TOKEN_OPENED {
                    self.open_and_deliver();
                } else if let Some(source) = token
                    .checked_sub(first_source)
                    .and_then(|index| self.sources.get(index as usize).copied())
                {
                    self.receive(source);
                }
            }
            for token in tokens[..ready]
                .iter()
                .filter(|token| **token < first_source)
            {
                let Some(port) = token.checked_sub(TOKEN_PORTS) else {
                    continue;
                };
                let result = self.read_tun(port as usize);
                if let Err(error) = result.or_else(|error| self.lose_tun(error)) {
                    let tun = self.ports[self.port].tun.own().name();
                    tracing::error!("the TUN {tun} cannot be read and its worker ends: {error}");
                    return;
                }
            }
            self.go_on_with_core();
            self.look_after_engines();
            self.report_events();
            if self.now_ms != last_ms {
                self.keep_time();
                self.let_go(self.now_ms.saturating_sub(last_ms));
            }
        }
    }

    fn paused(&self) -> Paused {
        Paused {
            inbound: !self.takes_datagrams(),
            outbound: !self.takes_packets(),
        }
    }

    /// Goes on without the port that was read last, if its device is gone: the control thread makes another.
    fn lose_tun(&mut self, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(libc::EBADFD) {
            return Err(error);
        }
        let tun = self.ports[self.port].tun.own();
        self.wakers.remove(tun.as_fd(), Purpose::Outbound)?;
        self.control.lost.store(true, Ordering::Release);
        Ok(())
    }

    fn take_tuns(&mut self) -> io::Result<()> {
        let mut tuns = self
            .control
            .tuns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (interface, tun) in tuns.drain(..) {
            let mut ports = (TOKEN_PORTS..).zip(&mut self.ports);
            if let Some((token, port)) = ports.find(|(_, port)| port.interface == interface) {
                let purpose = Purpose::Outbound;
                self.wakers.add(tun.own().as_fd(), token, purpose)?;
                // Others may have the old one still. It is in the set no more if its loss was seen.
                let _ = self.wakers.remove(port.tun.own().as_fd(), purpose);
                port.tun = tun;
            }
        }
        Ok(())
    }

    fn timeout_ms(&self) -> i32 {
        if !self.events.is_empty() {
            // Events that found the control thread's queue full are tried again soon.
            return 10;
        }
        if self.core.as_ref().is_some_and(Driver::is_busy) || self.waits_for_nobody() {
            return 1;
        }
        // An engine that has something is not to be late for long before that is seen.
        let longest = if self.engines_are_busy() {
            SUSPECT_MS
        } else {
            IDLE_MS
        };
        let dummy = self.dummies.as_ref().and_then(Dummies::next_ms);
        let wait = dummy.map_or(longest, |due| due.saturating_sub(self.now_ms));
        wait.min(longest) as i32
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
            add(&self.io.reassembly_timeouts, datagrams as u64);
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

    fn report_events(&mut self) {
        let mut dropped = 0;
        let outbound = self.seal.iter_mut();
        let outbound = outbound.flat_map(|way| way.walk.drain_events());
        let inbound = self.open.iter_mut();
        let inbound = inbound.flat_map(|way| way.walk.drain_events());
        for event in outbound.chain(inbound) {
            dropped += u64::from(!self.events.push(event));
        }
        for event in self.core.iter_mut().flat_map(|core| core.events.drain(..)) {
            dropped += u64::from(!self.events.push(event));
        }
        add(&self.io.events_dropped, dropped);
        let audits = self.open.iter_mut();
        for (event, packets) in audits.flat_map(|way| way.walk.drain_audits()) {
            self.auditor.record(event, packets, self.now_ms);
        }
        self.events.flush(&self.reports.events);
    }
}

fn ways_out(
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

fn ways_in(engines: &[EngineSource], health: &[EngineHealth]) -> io::Result<Vec<Opening>> {
    let mut ways: Vec<Opening> = Vec::with_capacity(engines.len());
    for (source, health) in engines.iter().zip(health) {
        let lane = Lane::new(source.clone(), Direction::Open, health.clone())?;
        let limits = WalkLimits {
            buffer_len: RAW_SLOTS.total(),
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

/// Sets of a flow cache to look at after so much time: wakes alone, for dummies too, make no work.
fn swept(sets: usize, passed_ms: u64) -> usize {
    let of_ms = sets.div_ceil(ROUND_MS).max(SWEPT);
    let passed_ms = usize::try_from(passed_ms).unwrap_or(usize::MAX);
    of_ms.saturating_mul(passed_ms).min(SWEPT_MAX)
}

fn descriptor(sockets: &WorkerSockets, source: Source) -> BorrowedFd<'_> {
    match source {
        Source::Ike(index) => sockets.ike[index].as_fd(),
        Source::NatT(index) => sockets.nat_t[index].as_fd(),
        Source::Esp(index) => sockets.esp[index].as_fd(),
        Source::Ah(index) => sockets.ah[index].as_fd(),
        Source::Icmp(index) => sockets.icmp[index].as_fd(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_goes_with_time() {
        assert_eq!(swept(8192, 0), 0);
        assert_eq!(swept(8192, 1), SWEPT);
        assert_eq!(swept(8192, 10), 10 * SWEPT);
        assert_eq!(swept(8192, u64::MAX), SWEPT_MAX);
        // A round takes no longer than it may, whatever number of flows was asked for.
        for flows in [1024, 600_000, 1_100_000] {
            let sets = Outbound::new(WalkLimits::default())
                .with_flows(flows)
                .flow_sets();
            assert!(sets * 8 >= flows, "{flows}: {sets} sets");
            assert!(swept(sets, 1) * ROUND_MS >= sets, "{flows}: {sets} sets");
        }
    }
}
