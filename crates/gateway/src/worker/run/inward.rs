//! Inbound: sockets to TUN.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;

use esplanade_crypto::Protocol;
use esplanade_ipsec::inbound::{OpenedBatch, Received as Place};
use esplanade_ipsec::mss;
use esplanade_ipsec::placement::{Placed, Settled};
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::IpView;
use esplanade_ipsec::wire::udp_encap::{self, Classified};

use super::{Run, Source, descriptor};
use crate::io::ah;
use crate::io::gro::Packets;
use crate::io::raw::EspSocket;
use crate::io::slots;
use crate::io::tun::Tun;
use crate::io::udp::Received;
use crate::worker::core::Driver;
use crate::worker::counters::{IoCounters, add};
use crate::worker::port::Port;
use crate::worker::ways::Opening;
use crate::worker::{Datagram, Reports};

impl Run {
    /// Takes what has come to one socket, a burst at most.
    pub(super) fn receive(&mut self, source: Source) {
        if let Source::Icmp(index) = source {
            let (sockets, io) = (&self.sockets, &self.io);
            return self.path_errors.hear(sockets, index, io, self.now_ms);
        }
        if !self.can_open() {
            return;
        }
        let Some((first, others)) = self.open.split_first_mut() else {
            return;
        };
        let Some(buffer) = first.walk.receive_buffer() else {
            return;
        };
        let base = buffer.offset;
        let fd = descriptor(&self.sockets, source);
        let received = match self.receiver.receive(fd, buffer.bytes, source.slots()) {
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
        for meta in received {
            let slot = buffer.bytes.get_mut(slots::with_spare(meta));
            let slot = slot.unwrap_or_default();
            if meta.truncated || slot.len() < meta.len {
                add(&self.io.receive_truncated, 1);
                continue;
            }
            let sorter = Sorter {
                io: &self.io,
                reports: &self.reports,
                found: &mut self.found,
                at: base + meta.at,
            };
            if let Source::Ah(_) = source {
                sorter.ah(meta, slot);
                continue;
            }
            let datagram = slot.get(..meta.len).unwrap_or_default();
            match source {
                Source::Ike(socket) => sorter.ike(self.sockets.ike[socket].local(), meta, datagram),
                Source::NatT(socket) => {
                    sorter.nat_t(self.sockets.nat_t[socket].local(), meta, datagram)
                }
                Source::Esp(socket) => sorter.esp(&self.sockets.esp[socket], meta, datagram),
                Source::Ah(_) | Source::Icmp(_) => {}
            }
        }
        if let Some(core) = &mut self.core {
            self.found.keep_for(core, (&*buffer.bytes, base));
        }
        let sad = self.database.sad();
        if !others.is_empty() && self.database.placements().any() {
            let arena = (&*buffer.bytes, base);
            self.found.place(arena, sad, &self.opened, others);
        }
        first.walk.commit_received(slots::used(received));
        first
            .walk
            .push_burst(sad, &self.found.facts, &self.found.packets);
        self.open_and_deliver();
        self.follow_moved();
        self.open_in_core();
    }

    /// Whether another receive finds room.
    fn can_open(&mut self) -> bool {
        self.takes_datagrams() || {
            self.open_and_deliver();
            self.takes_datagrams()
        }
    }

    /// Goes on with packets whose SAs were moved: behind all that came before them.
    fn follow_moved(&mut self) {
        if self.found.moved.is_empty() {
            return;
        }
        let last = self.open.len() - 1;
        for (placed, packet, facts) in std::mem::take(&mut self.found.moved) {
            // It may have been moved twice within the burst.
            if !self.opened.knows(placed) {
                self.drain_inbound();
                self.opened.settle(placed);
            }
            let way = usize::from(placed.engine).min(last);
            let sad = self.database.sad();
            // A drop is counted there.
            let _ = self.open[way].walk.push_copy(sad, &packet, &facts);
        }
        self.open_and_deliver();
    }

    pub(super) fn deliver(&mut self, opened: &mut OpenedBatch) {
        let (mut writes, mut failed) = (0, 0);
        self.shares.clear();
        self.shares.extend(opened.by_interface());
        for share in &self.shares {
            let packets = share.packets.clone();
            let port = self
                .ports
                .binary_search_by_key(&share.interface, |port| port.interface);
            let Some(port) = port.ok().and_then(|index| self.ports.get_mut(index)) else {
                failed += packets.len() as u64;
                continue;
            };
            if let Some(mtu) = port.mss_clamp {
                clamp(opened, packets.clone(), mtu, &self.io);
            }
            let coalescer = match share.shared {
                true => &mut port.coalescer,
                false => &mut port.unshared,
            };
            for index in packets {
                coalescer.push(opened, index);
            }
        }
        for port in &mut self.ports {
            let (written, lost) = write_out(port, opened);
            (writes, failed) = (writes + written, failed + lost);
        }
        self.count_writes(writes, failed);
    }

    pub(super) fn count_writes(&self, writes: u64, failed: u64) {
        add(&self.io.tun_writes, writes);
        add(&self.io.tun_write_errors, failed);
    }
}

/// Writes what a port's coalescers have. How many writes it took, and the packets in those that failed.
pub(super) fn write_out(port: &mut Port, packets: &mut impl Packets) -> (u64, u64) {
    let (mut writes, mut failed) = (0, 0);
    let Port {
        tun,
        coalescer,
        unshared,
        ..
    } = port;
    let mut write = |queue: &Tun, slices: &[IoSlice<'_>], packets: u16| {
        writes += 1;
        if let Err(error) = queue.write(slices) {
            tracing::trace!("cannot write to the TUN: {error}");
            failed += u64::from(packets);
        }
    };
    coalescer.flush(packets, |slices, packets| {
        // Behind the virtio header comes the first packet.
        let first = slices.get(1).map_or(&[][..], |slice| slice);
        write(tun.of_flow(first), slices, packets);
    });
    unshared.flush(packets, |slices, packets| {
        write(tun.own(), slices, packets);
    });
    (writes, failed)
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

/// Lowers the MSS in SYN packets, so that answers to them fit packets of `mtu` bytes.
pub(super) fn clamp(opened: &mut impl Packets, share: Range<usize>, mtu: u16, io: &IoCounters) {
    for index in share {
        let packet = opened.packet_mut(index);
        if !may_be_syn(packet) {
            continue;
        }
        if let Ok(view) = IpView::parse(packet) {
            let mss = mss::mss_for(view.version, mtu.into());
            let clamped = mss::clamp(packet, &view, mss, false);
            add(&io.mss_clamped, u64::from(clamped));
        }
    }
}

/// Sorts out most packets that are none, without parsing them. Behind extension headers one is missed.
fn may_be_syn(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    const SYN: u8 = 2;
    let (protocol, tcp) = match packet.first().map(|byte| byte >> 4) {
        Some(4) => (packet.get(9), usize::from(packet[0] & 15) * 4),
        _ => (packet.get(6), 40),
    };
    protocol == Some(&TCP) && packet.get(tcp + 13).is_some_and(|flags| flags & SYN != 0)
}

/// ESP and AH packets found in a receive: their places in the arena, and the outer headers of each datagram.
#[derive(Debug, Default)]
pub(super) struct Found {
    facts: Vec<OuterFacts>,
    packets: Vec<Place>,
    /// Packets of SAs that were moved to another engine just now, with their outer headers.
    moved: Vec<(Placed, Vec<u8>, OuterFacts)>,
}

impl Found {
    fn clear(&mut self) {
        self.facts.clear();
        self.packets.clear();
    }

    /// Takes out the packets whose SAs are in the core; the arena's bytes begin at `base`.
    fn keep_for(&mut self, core: &mut Driver, (bytes, base): (&[u8], usize)) {
        let facts = &self.facts;
        self.packets.retain(|place| {
            let start = (place.offset as usize).wrapping_sub(base);
            let esp = bytes.get(start..start.saturating_add(place.len as usize));
            let facts = facts.get(place.facts as usize);
            let (Some(esp), Some(facts)) = (esp, facts) else {
                return true;
            };
            let spi = esp.first_chunk().map(|spi| u32::from_be_bytes(*spi));
            let is_its = facts.protocol == Protocol::Esp && spi.is_some_and(|spi| core.opens(spi));
            if is_its {
                core.keep(esp, *facts);
            }
            !is_its
        });
    }

    /// Takes out the packets whose SAs are with other engines than the first, and gives them to those; the arena's bytes
    /// begin at `base`.
    fn place(
        &mut self,
        (bytes, base): (&[u8], usize),
        sad: &Sad,
        opened: &Settled,
        others: &mut [Opening],
    ) {
        let Self {
            facts,
            packets,
            moved,
        } = self;
        packets.retain(|place| {
            let Some(facts) = facts.get(place.facts as usize) else {
                return true;
            };
            let start = (place.offset as usize).wrapping_sub(base);
            let headers = usize::from(facts.header_len);
            let end = start.saturating_add(place.len as usize);
            let Some(packet) = bytes.get(start.wrapping_sub(headers)..end) else {
                return true;
            };
            let spi_at = match facts.protocol {
                Protocol::Esp => headers,
                Protocol::Ah => headers + 4,
            };
            let spi = packet.get(spi_at..).and_then(|packet| packet.first_chunk());
            let sa = spi.and_then(|spi| sad.lookup(u32::from_be_bytes(*spi)));
            let placed = sa.map_or(Placed::default(), |sa| sa.common.placement.get());
            if !opened.knows(placed) {
                moved.push((placed, packet.to_vec(), *facts));
                return false;
            }
            let other = usize::from(placed.engine).checked_sub(1);
            let Some(other) = other.and_then(|other| others.get_mut(other)) else {
                return true;
            };
            // A drop is counted there.
            let _ = other.walk.push_copy(sad, packet, facts);
            false
        });
    }

    fn push(&mut self, offset: usize, len: usize, facts: &OuterFacts) {
        // Packets that were coalesced have one header.
        if self.facts.last() != Some(facts) {
            self.facts.push(*facts);
        }
        self.packets.push(Place {
            offset: offset as u32,
            len: len as u32,
            facts: (self.facts.len() - 1) as u32,
        });
    }
}

/// Sorts one received datagram: IKE to the control thread, ESP to the list of packets found.
struct Sorter<'a> {
    io: &'a IoCounters,
    reports: &'a Reports,
    found: &'a mut Found,
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
                Classified::Esp => self.found.push(at, payload.len(), &facts),
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
            Some(range) => self.found.push(self.at + range.start, range.len(), &facts),
            None => add(&self.io.runts, 1),
        }
    }

    fn ah(self, meta: &Received, slot: &mut [u8]) {
        let restored = ah::restore(meta, slot);
        let Some((header_len, len)) = restored.filter(|(header_len, len)| header_len <= len) else {
            add(&self.io.runts, 1);
            return;
        };
        let facts = OuterFacts {
            header_len: header_len as u16,
            protocol: Protocol::Ah,
            ..OuterFacts::new(SocketAddr::new(meta.remote.ip(), 0), false, meta.tos)
        };
        self.found
            .push(self.at + header_len, len - header_len, &facts);
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
