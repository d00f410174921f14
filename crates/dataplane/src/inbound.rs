//! The inbound path: datagrams are sorted, opened, and written to the TUN devices.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use esplanade_crypto::Protocol;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::inbound::{EarlyPacket, Inbound, OpenedBatch, ReceivedPacket};
use esplanade_ipsec::placement::{Placed, Placement, Settled};
use esplanade_ipsec::sa::InboundSa;
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::udp_encap::{self, Classified};
use esplanade_ipsec::wire::{FixedHeader, IpView};

use super::DataPlane;
use super::pipelines::InboundPipeline;
use super::port::TunPort;
use crate::counters::{IoCounters, add};
use crate::datagram::IkeDatagram;
use crate::datagram::ReceivedDatagram;
use crate::gro::Packets;
use crate::mss;
use crate::packet_io::{PacketIo, ReceiveSocket, TunQueue};
use crate::{datagram, slots};

impl<I: PacketIo> DataPlane<I> {
    /// Returns the buffer for the next datagrams, and the I/O that fills it. Returns `None` while
    /// there is no room.
    pub fn room(&mut self) -> Option<(&mut I, &mut [u8])> {
        if !self.can_open() {
            return None;
        }
        let buffer = self.open.first_mut()?.walk.receive_buffer()?;
        Some((&mut self.io, buffer.bytes))
    }

    /// Processes the datagrams that were written into [`Self::room`]. Passes IKE messages to `ike`.
    pub fn handle_outer(
        &mut self,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        ike: impl FnMut(IkeDatagram),
    ) {
        self.sort(receive_socket, received, ike);
        self.open_sorted();
    }

    /// Finds the ESP and AH packets among the datagrams.
    pub fn sort(
        &mut self,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        mut ike: impl FnMut(IkeDatagram),
    ) {
        self.found.clear();
        let Some(buffer) = self.open[0].walk.receive_buffer() else {
            return;
        };
        add(&self.counters.receives, received.len() as u64);
        for meta in received {
            let slot = buffer.bytes.get_mut(slots::with_spare(meta));
            let slot = slot.unwrap_or_default();
            if meta.truncated || slot.len() < meta.len {
                add(&self.counters.receive_truncated, 1);
                continue;
            }
            if meta.len == 0 {
                add(&self.counters.runts, 1);
                continue;
            }
            let sorter = DatagramSorter {
                counters: &self.counters,
                found: &mut self.found,
                ike: &mut ike,
                at: buffer.offset + meta.at,
            };
            match (receive_socket, slot.get(..meta.len).unwrap_or_default()) {
                (ReceiveSocket::Ike(bound), datagram) => sorter.ike(bound, meta, datagram),
                (ReceiveSocket::NatT(bound), datagram) => sorter.nat_t(bound, meta, datagram),
                (ReceiveSocket::Esp { with_header }, datagram) => {
                    sorter.esp(with_header, meta, datagram)
                }
                (ReceiveSocket::Ah, _) => sorter.ah(meta, slot),
            }
        }
        self.found.used = slots::used(received);
    }

    /// Offers the sorted ESP packets, with their SPIs, to a device in front. A packet that the
    /// device takes is counted here and opened there. A packet behind others that wait for their SA is not offered.
    pub fn offer_sorted(&mut self, mut takes: impl FnMut(u32, &[u8], &OuterFacts) -> bool) {
        let walk = &mut self.open[0].walk;
        let early = walk.early_spis();
        let Some(buffer) = walk.receive_buffer() else {
            return;
        };
        let FoundPackets { facts, packets, .. } = &mut self.found;
        let (mut taken, mut len) = (0, 0);
        packets.retain(|place| {
            let start = (place.offset as usize).wrapping_sub(buffer.offset);
            let end = start.saturating_add(place.len as usize);
            let facts = facts.get(place.facts as usize);
            let (Some(esp), Some(facts)) = (buffer.bytes.get(start..end), facts) else {
                return true;
            };
            let spi = esp.first_chunk().map(|spi| u32::from_be_bytes(*spi));
            let spi = spi.filter(|_| facts.protocol == Protocol::Esp);
            let is_its = spi.is_some_and(|spi| !early.contains(&spi) && takes(spi, esp, facts));
            if is_its {
                taken += 1;
                len += esp.len() as u64;
            }
            !is_its
        });
        let counters = walk.counters();
        add(&counters.packets_in, taken);
        add(&counters.bytes_in, len);
    }

    /// Tells whether packets wait for their SAs.
    pub(crate) fn has_early(&self) -> bool {
        self.open.iter().any(|pipeline| pipeline.walk.has_early())
    }

    /// Goes on with packets that came before their SAs, if these are there. Offers ESP packets to a
    /// device in front, as [`Self::offer_sorted`] does.
    pub fn follow_early(&mut self, mut takes: impl FnMut(u32, &[u8], &OuterFacts) -> bool) {
        if !self.has_early() || !self.can_open() {
            return;
        }
        let database = Arc::clone(&self.database);
        let sad = database.sad();
        for from in 0..self.open.len() {
            for early in self.open[from].walk.take_early(sad) {
                let EarlyPacket {
                    spi, packet, facts, ..
                } = &early;
                let sa = sad.lookup(*spi);
                add(&self.counters.early_packets, u64::from(sa.is_some()));
                // A nested packet begins with its IP header.
                let esp = packet.get(usize::from(facts.header_len)..);
                if facts.protocol == Protocol::Esp && esp.is_some_and(|esp| takes(*spi, esp, facts))
                {
                    continue;
                }
                // The walk counts a drop.
                let _ = self.walk_of(sa.as_deref()).push_early(sad, &early);
            }
        }
        self.open_and_deliver();
    }

    /// Lets the engines finish what they have, if a device in front is about to open packets of SAs that take over from
    /// others.
    pub fn make_way(&mut self, spis: &[u32]) {
        for spi in spis {
            match self.database.sad().lookup(*spi) {
                Some(sa) => drop(self.meet(&sa.common.placement, |_| None)),
                // The device knows a new SA before the database does.
                None => self.drain_inbound(),
            }
        }
    }

    /// Counts dropped packets from outside.
    pub fn drop_outer(&mut self, reason: DropReason, packets: u64) {
        self.open[0].walk.counters().drops.add(reason, packets);
    }

    /// Delivers packets that a device in front opened. They go to the common port in order.
    pub fn deliver_plain(&mut self, packets: Vec<Vec<u8>>) {
        let all = 0..packets.len();
        let mut packets = OwnedPackets(packets);
        let Some(port) = self.ports.first_mut() else {
            return;
        };
        if let Some(mtu) = port.mss_clamp {
            clamp(&mut packets, all.clone(), mtu, &self.counters);
        }
        for index in all {
            port.coalescer.push(&packets, index);
        }
        self.write_out(&mut packets);
    }

    /// Opens and delivers the sorted packets.
    pub fn open_sorted(&mut self) {
        let Some((first, others)) = self.open.split_first_mut() else {
            return;
        };
        let sad = self.database.sad();
        if !others.is_empty() && self.database.placements().any() {
            let early = first.walk.early_spis();
            if let Some(buffer) = first.walk.receive_buffer() {
                let arena = (&*buffer.bytes, buffer.offset);
                self.found.place(arena, (sad, &early), &self.opened, others);
            }
        }
        first.walk.commit_received(self.found.used);
        first
            .walk
            .push_burst(sad, &self.found.facts, &self.found.packets);
        self.open_and_deliver();
        self.follow_moved();
    }

    /// Tells whether another receive finds room.
    fn can_open(&mut self) -> bool {
        self.takes_datagrams() || {
            self.open_and_deliver();
            self.takes_datagrams()
        }
    }

    /// Continues with the packets of SAs that were moved, after all earlier packets were delivered.
    fn follow_moved(&mut self) {
        if self.found.moved.is_empty() {
            return;
        }
        let database = Arc::clone(&self.database);
        for (sa, packet, facts) in std::mem::take(&mut self.found.moved) {
            // The walk counts a drop.
            let _ = (self.walk_of(Some(&sa))).push_copy(database.sad(), &packet, &facts);
        }
        self.open_and_deliver();
    }

    /// Returns the walk that has the SA now, or that has packets without one. Earlier packets of the SA, and of SAs
    /// from which it takes over, are delivered first. An SA may be moved twice within a burst.
    fn walk_of(&mut self, sa: Option<&InboundSa>) -> &mut Inbound {
        let last = self.open.len() - 1;
        let index = match sa {
            Some(sa) if last > 0 => self.inbound_index(&sa.common.placement, last),
            _ => 0,
        };
        &mut self.open[index].walk
    }

    fn inbound_index(&mut self, placement: &Placement, last: usize) -> usize {
        let index = |engine: u8| usize::from(engine).min(last);
        let placed = self.meet(placement, |engine| Some(index(engine)));
        index(placed.engine)
    }

    /// Returns where an SA is. Before that, the engines deliver earlier packets of its flows: all but the one that `spared`
    /// gives for the SA's engine.
    fn meet(&mut self, placement: &Placement, spared: impl Fn(u8) -> Option<usize>) -> Placed {
        loop {
            let placed = placement.get();
            if self.opened.knows(placed) {
                return placed;
            }
            let meeting = self.database.placements().meet(placement);
            self.drain_inbound_all_but(spared(meeting.engine()));
            self.opened.settle(meeting);
        }
    }

    pub(crate) fn deliver(&mut self, opened: &mut OpenedBatch) {
        let mut failed = 0;
        self.shares.clear();
        self.shares.extend(opened.by_interface());
        for share in &self.shares {
            let packets = share.packets.clone();
            let ports = &self.by_interface;
            let found = ports.binary_search_by_key(&share.interface, |(interface, _)| *interface);
            let port = found
                .ok()
                .and_then(|at| self.ports.get_mut(ports.get(at)?.1));
            let Some(port) = port else {
                failed += packets.len() as u64;
                continue;
            };
            if let Some(mtu) = port.mss_clamp {
                clamp(opened, packets.clone(), mtu, &self.counters);
            }
            let coalescer = match share.shared {
                true => &mut port.coalescer,
                false => &mut port.unshared,
            };
            for index in packets {
                coalescer.push(opened, index);
            }
        }
        add(&self.counters.tun_write_errors, failed);
        self.write_out(opened);
    }

    /// Writes the contents of all coalescers.
    fn write_out(&mut self, packets: &mut impl Packets) {
        let (mut writes, mut failed) = (0, 0);
        for (index, port) in self.ports.iter_mut().enumerate() {
            let TunPort {
                coalescer,
                unshared,
                ..
            } = port;
            for (coalescer, queue) in [(coalescer, TunQueue::OfFlow), (unshared, TunQueue::Own)] {
                coalescer.flush(packets, |slices, packets| {
                    writes += 1;
                    if let Err(error) = self.io.write(index, queue, slices) {
                        tracing::trace!("cannot write to the TUN: {error}");
                        failed += u64::from(packets);
                    }
                });
            }
        }
        add(&self.counters.tun_writes, writes);
        add(&self.counters.tun_write_errors, failed);
    }
}

/// Packets in separate vectors.
struct OwnedPackets(Vec<Vec<u8>>);

impl Packets for OwnedPackets {
    fn packet(&self, index: usize) -> &[u8] {
        self.0.get(index).map_or(&[], Vec::as_slice)
    }

    fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        self.0.get_mut(index).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Lowers the MSS in SYN packets, so that the answers fit into packets of `mtu` bytes.
fn clamp(opened: &mut impl Packets, share: Range<usize>, mtu: u16, counters: &IoCounters) {
    for index in share {
        let packet = opened.packet_mut(index);
        if !may_be_syn(packet) {
            continue;
        }
        if let Ok(view) = IpView::parse(packet) {
            let mss = mss::mss_for(view.version, mtu.into());
            let clamped = mss::clamp(packet, &view, mss, false);
            add(&counters.mss_clamped, u64::from(clamped));
        }
    }
}

/// Tests quickly, before parsing, whether a packet may be a TCP SYN. A SYN behind IPv6 extension
/// headers is not recognised, and its MSS stays as it is.
fn may_be_syn(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    const SYN: u8 = 2;
    let Some(ip) = FixedHeader::of(packet) else {
        return false;
    };
    let flags = packet.get(ip.header_len + 13);
    ip.protocol == TCP && flags.is_some_and(|flags| flags & SYN != 0)
}

/// The ESP and AH packets of one receive: their places in the arena, and the outer headers of each
/// datagram.
#[derive(Debug, Default)]
pub(crate) struct FoundPackets {
    facts: Vec<OuterFacts>,
    packets: Vec<ReceivedPacket>,
    /// Packets of SAs that were just moved to another engine, and those behind them, with their outer headers.
    moved: Vec<(Arc<InboundSa>, Vec<u8>, OuterFacts)>,
    /// Bytes of the arena that the datagrams occupy.
    used: usize,
}

impl FoundPackets {
    fn clear(&mut self) {
        self.facts.clear();
        self.packets.clear();
        self.used = 0;
    }

    /// Moves packets whose SAs belong to other engines from this list to those engines. The bytes
    /// of the arena begin at offset `base`. Packets with the SPIs of early packets stay and wait behind them.
    fn place(
        &mut self,
        (bytes, base): (&[u8], usize),
        (sad, early): (&Sad, &[u32]),
        opened: &Settled,
        others: &mut [InboundPipeline],
    ) {
        let Self {
            facts,
            packets,
            moved,
            ..
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
            let spi = spi.map(|spi| u32::from_be_bytes(*spi));
            let spi = spi.filter(|spi| !early.contains(spi));
            let Some(sa) = spi.and_then(|spi| sad.lookup(spi)) else {
                return true;
            };
            let placed = sa.common.placement.get();
            // Behind a packet that waits all others of the burst wait, because they may be of the same flow.
            if !moved.is_empty() || !opened.knows(placed) {
                moved.push((sa, packet.to_vec(), *facts));
                return false;
            }
            let other = usize::from(placed.engine).checked_sub(1);
            let Some(other) = other.and_then(|other| others.get_mut(other)) else {
                return true;
            };
            // The walk counts a drop.
            let _ = other.walk.push_copy(sad, packet, facts);
            false
        });
    }

    fn push(&mut self, offset: usize, len: usize, facts: &OuterFacts) {
        // Packets that the kernel coalesced share one header.
        if self.facts.last() != Some(facts) {
            self.facts.push(*facts);
        }
        self.packets.push(ReceivedPacket {
            offset: offset as u32,
            len: len as u32,
            facts: (self.facts.len() - 1) as u32,
        });
    }
}

/// Sorts one received datagram: IKE goes to its receiver, ESP and AH to the list of found packets.
struct DatagramSorter<'a, F> {
    counters: &'a IoCounters,
    found: &'a mut FoundPackets,
    ike: &'a mut F,
    /// Offset of the datagram in the arena.
    at: usize,
}

impl<F: FnMut(IkeDatagram)> DatagramSorter<'_, F> {
    fn ike(self, bound: SocketAddr, meta: &ReceivedDatagram, datagram: &[u8]) {
        for payload in datagram.chunks(meta.segment.max(1)) {
            if payload == [0xff] {
                add(&self.counters.keepalives, 1);
            } else {
                pass_ike(self.ike, bound, meta, payload);
            }
        }
    }

    fn nat_t(self, bound: SocketAddr, meta: &ReceivedDatagram, datagram: &[u8]) {
        let facts = OuterFacts::new(meta.remote, true, meta.tos);
        let mut at = self.at;
        for payload in datagram.chunks(meta.segment.max(1)) {
            match udp_encap::classify(payload) {
                Classified::Esp => self.found.push(at, payload.len(), &facts),
                Classified::Ike => pass_ike(self.ike, bound, meta, payload),
                Classified::Keepalive => add(&self.counters.keepalives, 1),
                Classified::Runt => add(&self.counters.runts, 1),
            }
            at += payload.len();
        }
    }

    fn esp(self, with_header: bool, meta: &ReceivedDatagram, datagram: &[u8]) {
        let remote = SocketAddr::new(meta.remote.ip(), 0);
        let facts = OuterFacts::new(remote, false, meta.tos);
        match datagram::esp_payload(with_header, datagram) {
            Some(range) => self.found.push(self.at + range.start, range.len(), &facts),
            None => add(&self.counters.runts, 1),
        }
    }

    fn ah(self, meta: &ReceivedDatagram, slot: &mut [u8]) {
        let restored = datagram::restore_ah(meta, slot);
        let Some((header_len, len)) = restored.filter(|(header_len, len)| header_len <= len) else {
            add(&self.counters.runts, 1);
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
}

fn pass_ike(
    ike: &mut impl FnMut(IkeDatagram),
    bound: SocketAddr,
    meta: &ReceivedDatagram,
    payload: &[u8],
) {
    ike(IkeDatagram {
        local: SocketAddr::new(meta.local.unwrap_or(bound.ip()), bound.port()),
        remote: meta.remote,
        payload: payload.to_vec(),
    });
}
