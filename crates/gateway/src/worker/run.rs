//! The worker's loop: drain what is ready in bounded bursts, inbound first, then wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_crypto::RejectReason;
use esplanade_ipsec::inbound::{Inbound, OpenedBatch};
use esplanade_ipsec::outbound::{
    Outbound, Outcome, Refused, SealedBatch, Segments as Cut, Train, TrainLimits, WalkLimits,
};
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::IpView;
use esplanade_ipsec::wire::udp_encap::{self, Classified};
use esplanade_ipsec::{Database, WalkCounters};

use crate::io::gro::{Coalescer, Packets};
use crate::io::gso::Segments;
use crate::io::raw::EspSocket;
use crate::io::sys::{self, EVENTS_MAX, Epoll};
use crate::io::tun::{self, Tun};
use crate::io::udp::{self, Outgoing, Received, Receiver, SEND_MAX};
use crate::io::virtio::{HEADER_LEN, VnetHeader};

use super::counters::{IoCounters, add};
use super::{Clock, Datagram, Engines, EventQueue, Reports, Stop, WorkerConfig, WorkerSockets};

/// Room for any datagram.
const SLOT: usize = 65_536;
/// Datagrams of one receive. Eight coalesced ones are half a megabyte, as much as the cache near the processor keeps.
const RECEIVE_BURST: usize = 8;
/// TUN reads of one burst.
const READ_BURST: usize = 128;
/// Packets after which a batch is sealed. A super-segment of 64 KiB is some 47 packets, and 44 of them fill a UDP GSO
/// send: three in one batch need four sends and not six.
const SEAL_AT: usize = 128;
const PACKETS_MAX: usize = 2048;
/// A train of packets is one UDP GSO send.
const TRAINS: TrainLimits = TrainLimits {
    segments: udp::SEGMENTS_MAX,
    bytes: udp::PAYLOAD_MAX,
};

const TOKEN_STOP: u64 = 0;
const TOKEN_TUN: u64 = 1;
const TOKEN_SOCKETS: u64 = 2;

/// A socket to receive from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Ike(usize),
    NatT(usize),
    Esp(usize),
}

/// A socket to send through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    NatT(usize),
    Esp(usize),
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
    /// ESP packets found in a receive: offset and length in the arena, and their outer header.
    found: Vec<(usize, usize, OuterFacts)>,
    coalescer: Coalescer,
    read_buffer: Vec<u8>,
    events: EventQueue,
    io: Arc<IoCounters>,
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
            ..
        } = config;
        let mut sources: Vec<Source> = (0..sockets.nat_t.len()).map(Source::NatT).collect();
        sources.extend((0..sockets.ike.len()).map(Source::Ike));
        if sockets.receives_esp {
            sources.extend((0..sockets.esp.len()).map(Source::Esp));
        }
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
            found: Vec::with_capacity(PACKETS_MAX),
            read_buffer: vec![0; tun::READ_MAX],
            events: EventQueue::default(),
            io: Arc::default(),
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
            // Events that found the control thread's queue full are tried again soon.
            let timeout_ms = if self.events.is_empty() { -1 } else { 10 };
            let ready = match self.epoll.wait(&mut tokens, timeout_ms) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!("a worker cannot wait for packets and ends: {error}");
                    return;
                }
            };
            let now_ms = self.clock.now_ms();
            self.inbound.set_now_ms(now_ms);
            self.outbound.set_now_ms(now_ms);
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
        self.events.flush(&self.reports.events);
    }

    // Outbound: TUN to sockets.

    fn read_tun(&mut self) -> io::Result<()> {
        let spd = self.database.spd();
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut reads = 0;
        let result = loop {
            if reads == READ_BURST {
                break Ok(());
            }
            match self.tun.read(&mut buffer) {
                Ok(Some(length)) => {
                    reads += 1;
                    self.outbound_packet(&spd, buffer.get(..length).unwrap_or_default());
                    if self.outbound.waiting() >= SEAL_AT {
                        self.seal_and_send();
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.read_buffer = buffer;
        self.seal_and_send();
        add(&self.io.tun_reads, reads as u64);
        result
    }

    /// Decides on one TUN read and writes its packets into their ESP slots.
    fn outbound_packet(&mut self, spd: &Spd, read: &[u8]) {
        let split = read.split_first_chunk::<HEADER_LEN>();
        let header = split.and_then(|(header, _)| VnetHeader::decode(header).ok());
        let packet = split.map_or(&[][..], |(_, packet)| packet);
        let Ok(view) = IpView::parse(packet) else {
            self.outbound.drop_malformed(packet.len());
            return;
        };
        // Bytes behind the IP packet would be sealed with it.
        let packet = packet.get(..view.total_len).unwrap_or_default();
        let header = header.filter(|header| stays_behind_ports(header, &view));
        let Some(Ok(segments)) = header.map(|header| Segments::new(&header, packet)) else {
            add(&self.io.tun_malformed, 1);
            self.outbound.drop_malformed(packet.len());
            return;
        };
        let cut = Cut {
            count: segments.count() as u32,
            segment_len: segments.len(0),
            last_len: segments.len(segments.count() - 1),
        };
        let sa = match self.outbound.decide(spd, &view, &cut) {
            Outcome::Protect(sa) => sa,
            Outcome::Bypass => return self.bypass(&segments),
            Outcome::Dropped(_) => return,
        };
        // A second try has an empty batch to itself.
        for _ in 0..2 {
            let refused = match self.outbound.reserve(&sa, &view, &cut) {
                Ok(mut slots) => {
                    let mut index = 0;
                    while let Some(slot) = slots.next_slot() {
                        segments.write(index, slot);
                        index += 1;
                    }
                    return;
                }
                Err(refused) => refused,
            };
            match refused {
                Refused::BatchFull => self.seal_and_send(),
                Refused::Dropped(_) => return,
            }
        }
        self.outbound.give_up(&sa, &cut);
    }

    fn bypass(&self, segments: &Segments<'_>) {
        let mut packet = Vec::new();
        for index in 0..segments.count() {
            packet.resize(segments.len(index), 0);
            segments.write(index, &mut packet);
            let sent = self
                .sockets
                .bypass
                .as_ref()
                .is_some_and(|socket| socket.send(&packet).is_ok());
            add(&self.io.bypass_errors, u64::from(!sent));
        }
    }

    fn seal_and_send(&mut self) {
        while self.outbound.waiting() > 0 {
            let submitted = self.outbound.submit(&mut *self.engines.seal);
            while let Some(sealed) = self.outbound.poll(&mut *self.engines.seal) {
                self.send(&sealed);
                self.outbound.recycle(sealed);
            }
            if submitted == Err(RejectReason::OutOfService) {
                return;
            }
        }
    }

    fn send(&self, sealed: &SealedBatch) {
        let mut items = [Outgoing::NONE; SEND_MAX];
        let mut queued = 0;
        let mut sink = None;
        for train in sealed.trains(TRAINS) {
            let Some(next) = self.sink(&train) else {
                add(&self.io.send_errors, train.segments as u64);
                continue;
            };
            if sink != Some(next) || queued == SEND_MAX {
                self.send_items(sink, &items[..queued]);
                queued = 0;
                sink = Some(next);
            }
            let item = outgoing(&train);
            if matches!(next, Sink::NatT(_)) {
                items[queued] = item;
                queued += 1;
                continue;
            }
            // No segmentation for raw ESP.
            for payload in train.esp.chunks(train.segment_len.max(1)) {
                if queued == SEND_MAX {
                    self.send_items(sink, &items[..queued]);
                    queued = 0;
                }
                items[queued] = Outgoing {
                    payload,
                    segment: 0,
                    ..item
                };
                queued += 1;
            }
        }
        self.send_items(sink, &items[..queued]);
    }

    fn send_items(&self, sink: Option<Sink>, items: &[Outgoing<'_>]) {
        let report = match sink {
            Some(Sink::NatT(index)) => self.sockets.nat_t[index].send(items),
            Some(Sink::Esp(index)) => self.sockets.esp[index].send(items),
            None => return,
        };
        add(&self.io.sent, report.sent);
        add(&self.io.send_too_big, report.too_big);
        add(&self.io.send_errors, report.failed);
    }

    fn sink(&self, train: &Train<'_>) -> Option<Sink> {
        let path = &train.meta.path;
        let v4 = path.remote.is_ipv4();
        if !path.udp_encap {
            return self
                .sockets
                .esp
                .iter()
                .position(|socket| socket.serves(path.local.ip(), v4))
                .map(Sink::Esp);
        }
        let serves = |bound: SocketAddr| {
            bound.is_ipv4() == v4 && (bound.ip().is_unspecified() || bound.ip() == path.local.ip())
        };
        self.sockets
            .nat_t
            .iter()
            .position(|socket| serves(socket.local()))
            .map(Sink::NatT)
    }

    // Inbound: sockets to TUN.

    fn receive(&mut self, source: Source) {
        let Some(buffer) = self.inbound.receive_buffer() else {
            return;
        };
        let base = buffer.offset;
        let fd = descriptor(&self.sockets, source);
        let received = match self.receiver.receive(fd, buffer.bytes, SLOT) {
            Ok(received) => received,
            Err(error) => {
                // An ICMP error, say. It is taken off the socket by being reported.
                tracing::trace!("cannot receive: {error}");
                add(&self.io.receive_errors, 1);
                return;
            }
        };
        add(&self.io.receives, received.len() as u64);
        self.found.clear();
        for (index, meta) in received.iter().enumerate() {
            let start = index * SLOT;
            let datagram = buffer
                .bytes
                .get(start..start + meta.len)
                .unwrap_or_default();
            if meta.truncated {
                add(&self.io.receive_truncated, 1);
                continue;
            }
            let sorter = Sorter {
                io: &self.io,
                reports: &self.reports,
                found: &mut self.found,
                at: base + start,
            };
            match source {
                Source::Ike(socket) => sorter.ike(self.sockets.ike[socket].local(), meta, datagram),
                Source::NatT(socket) => {
                    sorter.nat_t(self.sockets.nat_t[socket].local(), meta, datagram)
                }
                Source::Esp(socket) => sorter.esp(&self.sockets.esp[socket], meta, datagram),
            }
        }
        let used = received.len() * SLOT;
        self.inbound.commit_received(used);
        let sad = self.database.sad();
        for (offset, len, facts) in &self.found {
            // A drop is counted there.
            let _ = self.inbound.push(sad, *offset, *len, facts);
        }
        self.open_and_deliver();
    }

    fn open_and_deliver(&mut self) {
        loop {
            let submitted = self.inbound.submit(&mut *self.engines.open);
            while let Some(mut opened) = self.inbound.poll(&mut *self.engines.open) {
                self.deliver(&mut opened);
                self.inbound.push_nested(self.database.sad(), &mut opened);
                self.inbound.recycle(opened);
            }
            let again = submitted == Err(RejectReason::Full)
                || submitted.is_ok() && self.inbound.waiting() > 0;
            if !again {
                return;
            }
        }
    }

    fn deliver(&mut self, opened: &mut OpenedBatch) {
        for index in 0..opened.delivered().len() {
            self.coalescer.push(opened, index);
        }
        let (mut writes, mut failed) = (0, 0);
        self.coalescer.flush(opened, |slices, packets| {
            writes += 1;
            if let Err(error) = self.tun.write(slices) {
                tracing::trace!("cannot write to the TUN: {error}");
                failed += u64::from(packets);
            }
        });
        add(&self.io.tun_writes, writes);
        add(&self.io.tun_write_errors, failed);
    }
}

impl Packets for OpenedBatch {
    fn packet(&self, index: usize) -> &[u8] {
        self.delivered()
            .get(index)
            .map_or(&[], |delivered| self.packet(delivered))
    }

    fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        match self.delivered().get(index).copied() {
            Some(delivered) => self.packet_mut(&delivered),
            None => &mut [],
        }
    }
}

/// Whether completing checksums and cutting segments leaves alone what the SPD looks at. A neighbour with packet
/// sockets chooses freely where a checksum is to be written; the kernel carries that through forwarding.
fn stays_behind_ports(header: &VnetHeader, view: &IpView) -> bool {
    const PORTS_LEN: usize = 4;
    match (header.checksum, header.gso) {
        (None, None) => true,
        (Some((start, offset)), None) => {
            let start = usize::from(start);
            start >= view.upper && start + usize::from(offset) >= view.upper + PORTS_LEN
        }
        (Some((start, _)), Some((kind, _))) => {
            usize::from(start) == view.upper
                && !view.later_fragment
                && view.protocol == kind.protocol()
        }
        (None, Some(_)) => false,
    }
}

fn descriptor(sockets: &WorkerSockets, source: Source) -> BorrowedFd<'_> {
    match source {
        Source::Ike(index) => sockets.ike[index].as_fd(),
        Source::NatT(index) => sockets.nat_t[index].as_fd(),
        Source::Esp(index) => sockets.esp[index].as_fd(),
    }
}

fn outgoing<'a>(train: &Train<'a>) -> Outgoing<'a> {
    let path = &train.meta.path;
    let local = path.local.ip();
    Outgoing {
        // A raw socket's address has no port: IPv6 refuses any but zero.
        remote: SocketAddr::new(
            path.remote.ip(),
            if path.udp_encap {
                path.remote.port()
            } else {
                0
            },
        ),
        local: (!local.is_unspecified()).then_some(local),
        tos: train.meta.tos,
        df: train.meta.dont_fragment,
        payload: train.esp,
        segment: if train.segments > 1 {
            train.segment_len as u16
        } else {
            0
        },
    }
}

/// Sorts one received datagram: IKE to the control thread, ESP to the list of packets found.
struct Sorter<'a> {
    io: &'a IoCounters,
    reports: &'a Reports,
    found: &'a mut Vec<(usize, usize, OuterFacts)>,
    /// Where in the arena the datagram lies.
    at: usize,
}

impl Sorter<'_> {
    fn ike(&self, bound: SocketAddr, meta: &Received, datagram: &[u8]) {
        for payload in datagram.chunks(meta.segment.max(1)) {
            if payload == [0xff] {
                add(&self.io.keepalives, 1);
            } else {
                self.report_ike(bound, meta, payload);
            }
        }
    }

    fn nat_t(self, bound: SocketAddr, meta: &Received, datagram: &[u8]) {
        let facts = OuterFacts::new(meta.remote, true, meta.tos);
        let mut at = self.at;
        for payload in datagram.chunks(meta.segment.max(1)) {
            match udp_encap::classify(payload) {
                Classified::Esp => self.found.push((at, payload.len(), facts)),
                Classified::Ike => self.report_ike(bound, meta, payload),
                Classified::Keepalive => add(&self.io.keepalives, 1),
                Classified::Runt => add(&self.io.runts, 1),
            }
            at += payload.len();
        }
    }

    fn esp(self, socket: &EspSocket, meta: &Received, datagram: &[u8]) {
        let remote = SocketAddr::new(meta.remote.ip(), 0);
        let facts = OuterFacts::new(remote, false, meta.tos);
        match socket.payload(datagram) {
            Some(range) => self.found.push((self.at + range.start, range.len(), facts)),
            None => add(&self.io.runts, 1),
        }
    }

    fn report_ike(&self, bound: SocketAddr, meta: &Received, payload: &[u8]) {
        let local = SocketAddr::new(meta.local.unwrap_or(bound.ip()), bound.port());
        let datagram = Datagram {
            local,
            remote: meta.remote,
            payload: payload.to_vec(),
        };
        let counter = match self.reports.ike.try_send(datagram) {
            Ok(()) => &self.io.ike_messages,
            Err(_) => &self.io.ike_dropped,
        };
        add(counter, 1);
    }
}

#[cfg(test)]
mod tests;
