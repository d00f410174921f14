//! The worker's loop: drain what is ready in bounded bursts, inbound first, then wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::{Database, DropReason, WalkCounters};

use crate::io::gro::Coalescer;
use crate::io::sys::{self, EVENTS_MAX, Epoll};
use crate::io::tun::{self, Tun};
use crate::io::udp::Receiver;

use super::auditor::Auditor;
use super::counters::{IoCounters, add};
use super::fragments::Fragments;
use super::paths::PathErrors;
use super::processing::Processing;
use super::replies::Replies;
use super::{Clock, Engines, EventQueue, Reports, Stop, WorkerConfig, WorkerSockets};

mod inward;
mod outward;

/// Room for any datagram.
const SLOT: usize = 65_536;
/// How often a worker without packets looks after what it remembers.
const IDLE_MS: i32 = 1000;
/// Sets of the flow cache that a round with packets looks at.
const SWEPT: usize = 4;
/// Datagrams of one receive. Eight coalesced ones are half a megabyte, as much as the cache near the processor keeps.
const RECEIVE_BURST: usize = 8;
const PACKETS_MAX: usize = 2048;
const TOKEN_STOP: u64 = 0;
const TOKEN_TUN: u64 = 1;
const TOKEN_SOCKETS: u64 = 2;

/// A socket to receive from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Ike(usize),
    NatT(usize),
    Esp(usize),
    Ah(usize),
    Icmp(usize),
}

pub(super) struct Run {
    stop: Arc<Stop>,
    cpu: Option<usize>,
    clock: Clock,
    tun: Tun,
    sockets: WorkerSockets,
    sources: Vec<Source>,
    database: Arc<Database>,
    reports: Reports,
    engines: Engines,
    epoll: Epoll,
    outbound: Outbound,
    inbound: Inbound,
    receiver: Receiver,
    found: inward::Found,
    coalescer: Coalescer,
    read_buffer: Vec<u8>,
    events: EventQueue,
    io: Arc<IoCounters>,
    now_ms: u64,
    processing: Processing,
    fragments: Fragments,
    replies: Replies,
    path_errors: PathErrors,
    auditor: Auditor,
}

impl Run {
    pub(super) fn new(config: WorkerConfig, engines: Engines, stop: Arc<Stop>) -> io::Result<Self> {
        let WorkerConfig {
            cpu,
            clock,
            tun,
            sockets,
            database,
            reports,
            processing,
            ..
        } = config;
        let mut sources: Vec<Source> = (0..sockets.nat_t.len()).map(Source::NatT).collect();
        sources.extend((0..sockets.ike.len()).map(Source::Ike));
        if sockets.receives_esp {
            sources.extend((0..sockets.esp.len()).map(Source::Esp));
            sources.extend((0..sockets.ah.len()).map(Source::Ah));
        }
        sources.extend((0..sockets.icmp.len()).map(Source::Icmp));
        let epoll = Epoll::new()?;
        epoll.add(stop.wake.as_fd(), TOKEN_STOP)?;
        epoll.add(tun.as_fd(), TOKEN_TUN)?;
        for (index, source) in sources.iter().enumerate() {
            epoll.add(descriptor(&sockets, *source), TOKEN_SOCKETS + index as u64)?;
        }
        let outbound = WalkLimits {
            jobs_max: PACKETS_MAX,
            batches_max: 2,
            ..WalkLimits::default()
        };
        let inbound = WalkLimits {
            buffer_len: RECEIVE_BURST * SLOT,
            ..outbound
        };
        Ok(Self {
            stop,
            cpu,
            clock,
            coalescer: Coalescer::new(tun.udp_segmentation()),
            tun,
            sockets,
            sources,
            database,
            reports,
            engines,
            epoll,
            outbound: Outbound::new(outbound),
            inbound: Inbound::new(inbound),
            receiver: Receiver::new(RECEIVE_BURST),
            found: inward::Found::default(),
            read_buffer: vec![0; tun::READ_MAX],
            events: EventQueue::default(),
            io: Arc::default(),
            now_ms: clock.now_ms(),
            processing,
            fragments: Fragments::new(),
            replies: Replies::new(),
            path_errors: PathErrors::new(),
            auditor: Auditor::new(),
        })
    }

    pub(super) fn counters(&self) -> (Arc<IoCounters>, Arc<WalkCounters>, Arc<WalkCounters>) {
        (
            Arc::clone(&self.io),
            Arc::clone(self.outbound.counters()),
            Arc::clone(self.inbound.counters()),
        )
    }

    pub(super) fn run(&mut self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = sys::pin_to_cpu(cpu)
        {
            tracing::warn!("cannot keep a worker on processor {cpu}: {error}");
        }
        let mut tokens = [0; EVENTS_MAX];
        while !self.stop.requested.load(Ordering::Acquire) {
            let ready = match self.epoll.wait(&mut tokens, self.timeout_ms()) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!("a worker cannot wait for packets and ends: {error}");
                    return;
                }
            };
            self.now_ms = self.clock.now_ms();
            self.inbound.set_now_ms(self.now_ms);
            self.outbound.set_now_ms(self.now_ms);
            for token in &tokens[..ready] {
                if *token == TOKEN_STOP {
                    self.stop.wake.clear();
                } else if let Some(source) = token
                    .checked_sub(TOKEN_SOCKETS)
                    .and_then(|index| self.sources.get(index as usize).copied())
                {
                    self.receive(source);
                }
            }
            if tokens[..ready].contains(&TOKEN_TUN)
                && let Err(error) = self.read_tun()
            {
                tracing::error!(
                    "the TUN {} cannot be read and its worker ends: {error}",
                    self.tun.name()
                );
                return;
            }
            self.report_events();
            self.keep_time();
            self.let_go(ready == 0);
        }
    }

    fn timeout_ms(&self) -> i32 {
        if !self.events.is_empty() {
            // Events that found the control thread's queue full are tried again soon.
            10
        } else {
            IDLE_MS
        }
    }

    /// SAs that were removed, with their keys, do not stay in what this worker remembers.
    fn let_go(&mut self, idle: bool) {
        self.inbound.refresh(self.database.sad());
        self.outbound
            .sweep_flows(if idle { usize::MAX } else { SWEPT });
    }

    fn keep_time(&mut self) {
        if self.fragments.is_waiting() {
            let datagrams = self.fragments.expire(self.now_ms);
            add(&self.io.reassembly_timeouts, datagrams as u64);
            for _ in 0..datagrams {
                self.outbound.drop_packet(DropReason::FragmentRefused, 0);
            }
        }
        if self.auditor.is_pending() {
            self.auditor.flush(self.now_ms);
        }
    }

    fn report_events(&mut self) {
        let mut dropped = 0;
        for event in self
            .outbound
            .drain_events()
            .chain(self.inbound.drain_events())
        {
            dropped += u64::from(!self.events.push(event));
        }
        add(&self.io.events_dropped, dropped);
        for (event, packets) in self.inbound.drain_audits() {
            self.auditor.record(event, packets, self.now_ms);
        }
        self.events.flush(&self.reports.events);
    }
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
