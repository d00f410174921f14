//! Outbound: TUN to sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_ipsec::audit::{AuditEvent, AuditKind};
use esplanade_ipsec::class::{Class, ClassQueue};
use esplanade_ipsec::fragment::Pieces;
use esplanade_ipsec::outbound::{
    Outcome, Refused, SealedBatch, Segments as Cut, Train, TrainLimits,
};
use esplanade_ipsec::sa::{Mode, OutboundSa};
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::tunnel::DfPolicy;
use esplanade_ipsec::wire::icmp::Problem;
use esplanade_ipsec::wire::ip::PROTOCOL_UDP;
use esplanade_ipsec::wire::{IpVersion, IpView, ah, esp};
use esplanade_ipsec::{DropReason, mss, pmtu};

use super::{PACKETS_MAX, Run};
use crate::io::gso::Segments;
use crate::io::udp::{self, Outgoing, SEND_MAX};
use crate::io::virtio::{HEADER_LEN, VnetHeader};
use crate::worker::counters::add;
use crate::worker::fragments::Admitted;

/// TUN reads of one burst.
const READ_BURST: usize = 128;
/// Packets after which a batch is sealed. A super-segment of 64 KiB is some 47 packets, and 44 of them fill a UDP GSO
/// send: three in one batch need four sends and not six.
const SEAL_AT: usize = 128;
/// A train of packets is one UDP GSO send.
const TRAINS: TrainLimits = TrainLimits {
    segments: udp::SEGMENTS_MAX,
    bytes: udp::PAYLOAD_MAX,
};

/// Dummy packets of one round.
const DUMMIES_MAX: usize = 64;

/// Sends of higher classes for which a lower one waits at most.
const PATIENCE: u64 = 64;

/// A socket to send through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    NatT(usize),
    Esp(usize),
    Ah(usize),
}

/// Packets on their way into one `sendmmsg`.
pub(super) struct Sending<'a> {
    items: [Outgoing<'a>; SEND_MAX],
    queued: usize,
    sink: Option<Sink>,
}

impl Default for Sending<'_> {
    fn default() -> Self {
        Self {
            items: [Outgoing::NONE; SEND_MAX],
            queued: 0,
            sink: None,
        }
    }
}

impl Run {
    /// Reads and seals a burst of the packets that are led into one interface.
    pub(super) fn read_tun(&mut self, port: usize) -> io::Result<()> {
        self.port = port;
        self.seal[0].walk.set_interface(self.ports[port].interface);
        let spd = self.database.spd();
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut reads = 0;
        let result = loop {
            if reads == READ_BURST || !self.can_seal() {
                break Ok(());
            }
            match self.ports[port].tun.own().read(&mut buffer) {
                Ok(Some(length)) => {
                    reads += 1;
                    self.outbound_read(&spd, buffer.get_mut(..length).unwrap_or_default());
                    if self.seal.iter().any(|way| way.walk.waiting() >= SEAL_AT) {
                        self.seal_and_send();
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.read_buffer = buffer;
        self.finish_core(&spd);
        self.seal_and_send();
        add(&self.io.tun_reads, reads as u64);
        result
    }

    /// Whether another read finds room.
    fn can_seal(&mut self) -> bool {
        self.takes_packets() || {
            self.seal_and_send();
            self.takes_packets()
        }
    }

    /// Decides on one TUN read and writes its packets into their ESP slots.
    fn outbound_read(&mut self, spd: &Spd, read: &mut [u8]) {
        let Some((header, packet)) = read.split_first_chunk_mut::<HEADER_LEN>() else {
            self.seal[0].walk.drop_malformed(0);
            return;
        };
        let Ok(view) = IpView::parse(packet) else {
            self.seal[0].walk.drop_malformed(packet.len());
            return;
        };
        // Bytes behind the IP packet would be sealed with it.
        let packet = packet.get_mut(..view.total_len).unwrap_or_default();
        let header = VnetHeader::decode(header).ok();
        let Some(header) = header.filter(|header| stays_behind_ports(header, &view)) else {
            add(&self.io.tun_malformed, 1);
            self.seal[0].walk.drop_malformed(packet.len());
            return;
        };
        if !self.processing.reassemble || header != VnetHeader::default() {
            return self.outbound_packet(spd, &header, packet, &view);
        }
        match self.ports[self.port]
            .fragments
            .admit(&self.io, spd, (packet, &view), self.now_ms)
        {
            Admitted::AsItIs => self.outbound_packet(spd, &header, packet, &view),
            Admitted::Held => {}
            Admitted::Behind(view) => self.outbound_packet(spd, &header, packet, &view),
            Admitted::Whole(mut whole) => match IpView::parse(&whole) {
                Ok(mut view) => {
                    // Its sender let it be fragmented, in IPv6 too.
                    view.dont_fragment = false;
                    self.outbound_packet(spd, &header, &mut whole, &view);
                }
                Err(_) => drop(self.seal[0].walk.drop_malformed(whole.len())),
            },
            Admitted::Refused => {
                let reason = DropReason::FragmentRefused;
                self.seal[0].walk.drop_packet(reason, packet.len());
            }
        }
    }

    /// `view` was parsed from `packet`, which has nothing behind it.
    fn outbound_packet(
        &mut self,
        spd: &Spd,
        header: &VnetHeader,
        packet: &mut [u8],
        view: &IpView,
    ) {
        if !(self.core_leads() && self.offer_core(header, packet, view)) {
            self.host_packet(spd, header, packet, view);
        }
    }

    /// As [`Self::outbound_packet`], by the software path.
    pub(super) fn host_packet(
        &mut self,
        spd: &Spd,
        header: &VnetHeader,
        packet: &mut [u8],
        view: &IpView,
    ) {
        let Ok(segments) = Segments::new(header, packet) else {
            add(&self.io.tun_malformed, 1);
            self.seal[0].walk.drop_malformed(packet.len());
            return;
        };
        let cut = Cut {
            count: segments.count() as u32,
            segment_len: segments.len(0),
            last_len: segments.len(segments.count() - 1),
        };
        let sa = match self.seal[0].walk.decide(spd, (packet, view), &cut) {
            Outcome::Protect(sa) => sa,
            Outcome::Bypass => return self.bypass(&segments),
            Outcome::Dropped(reason) => return self.dropped(reason, packet, view),
        };
        if self.port != 0 && is_of_sa(&sa, view) {
            let reason = DropReason::NestedTooDeep;
            return self.seal[0].walk.drop_decided(&sa, reason, &cut);
        }
        if sa.sequence.is_given_away() {
            return self.of_core(&sa, &cut, (packet, view));
        }
        let limit = self.limit(&sa, view);
        if limit.is_some_and(|limit| cut.segment_len.max(cut.last_len) > limit) {
            return self.too_big(&sa, &cut, (packet, view), limit.unwrap_or_default());
        }
        if self.ports[self.port].mss_clamp.is_some() && mss::is_syn(packet, view) {
            self.clamp(packet, view, limit, header.checksum.is_some());
            if let Ok(segments) = Segments::new(header, packet) {
                self.protect(&sa, &segments, &cut, view);
            }
            return;
        }
        self.protect(&sa, &segments, &cut, view);
    }

    fn protect(&mut self, sa: &Arc<OutboundSa>, segments: &Segments<'_>, cut: &Cut, view: &IpView) {
        if sa.sequence.is_given_away() {
            return self.piece_to_core(sa, segments, cut);
        }
        // A second try has an empty batch to itself.
        let way = self.way_out(sa);
        for _ in 0..2 {
            if !self.take_turn(sa, way) {
                break;
            }
            let refused = match self.seal[way].walk.reserve(sa, view, cut) {
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
                Refused::BatchFull => self.make_room(),
                Refused::Dropped(reason) => return self.audit(reason, Some(sa.common.spi), view),
            }
        }
        self.seal[0].walk.give_up(sa, cut);
    }

    /// Waits until sequence numbers of the SA may be taken. Meanwhile it holds none itself: what it has is sent.
    fn take_turn(&mut self, sa: &Arc<OutboundSa>, way: usize) -> bool {
        self.seal[way].turns.begin(sa) || self.wait_for_turn(sa, way)
    }

    fn wait_for_turn(&mut self, sa: &Arc<OutboundSa>, way: usize) -> bool {
        self.drain();
        let is_ours = self.seal[way].turns.wait(sa);
        // What goes to an engine from now on is not late yet.
        self.now_ms = self.clock.now_ms();
        is_ours
    }

    /// The longest packet that may go through the SA, if its path is known to be narrow.
    fn limit(&self, sa: &OutboundSa, view: &IpView) -> Option<usize> {
        let remote = sa.common.path().remote.ip();
        let path_mtu = self.sockets.paths.mtu(remote, self.now_ms);
        sa.set_path_mtu(path_mtu);
        size_limit(sa, view, path_mtu?.into())
    }

    /// RFC 4301 §8.2.1: a sender that forbids fragmentation is told; a packet of any other is cut before it goes in.
    pub(super) fn too_big(
        &mut self,
        sa: &Arc<OutboundSa>,
        cut: &Cut,
        (packet, view): (&[u8], &IpView),
        limit: usize,
    ) {
        let pieces = Pieces::new(packet, view, limit);
        let Some(pieces) = pieces.ok().filter(|_| cut.count == 1) else {
            self.seal[0].walk.drop_decided(sa, DropReason::TooBig, cut);
            let problem = Problem::TooBig { mtu: limit as u32 };
            let about = (packet, view);
            return self.replies.send(
                self.ports[self.port].tun.own(),
                &self.io,
                about,
                problem,
                self.now_ms,
            );
        };
        // One packet was counted; as many come out as pieces are made.
        let more = pieces.count() as u64 - 1;
        self.seal[0]
            .walk
            .counters()
            .packets_in
            .fetch_add(more, Ordering::Relaxed);
        add(&self.io.fragmented, 1);
        let mut piece = Vec::new();
        for index in 0..pieces.count() {
            piece.resize(pieces.len(index), 0);
            let written = pieces.write(index, &mut piece);
            let segments = Segments::new(&VnetHeader::default(), &piece);
            let one = Cut::one(piece.len());
            match (written, segments, IpView::parse(&piece)) {
                (Some(()), Ok(segments), Ok(view)) => self.protect(sa, &segments, &one, &view),
                _ => self.seal[0].walk.give_up(sa, &one),
            }
        }
    }

    pub(super) fn clamp(
        &self,
        packet: &mut [u8],
        view: &IpView,
        limit: Option<usize>,
        partial: bool,
    ) {
        let mss_clamp = self.ports[self.port].mss_clamp;
        let mtu = mss_clamp.map_or(usize::MAX, usize::from);
        let mss = mss::mss_for(view.version, mtu.min(limit.unwrap_or(usize::MAX)));
        let clamped = mss::clamp(packet, view, mss, partial);
        add(&self.io.mss_clamped, u64::from(clamped));
    }

    fn dropped(&mut self, reason: DropReason, packet: &[u8], view: &IpView) {
        // What the kernel says on its own to the neighbours that a TUN does not have was never to leave the link.
        if !is_link_scope(view.destination) {
            self.audit(reason, None, view);
        }
        let by_policy = matches!(reason, DropReason::PolicyDiscard | DropReason::NoPolicy);
        if by_policy && self.processing.report_discards {
            let about = (packet, view);
            self.replies.send(
                self.ports[self.port].tun.own(),
                &self.io,
                about,
                Problem::Prohibited,
                self.now_ms,
            );
        }
    }

    fn audit(&mut self, reason: DropReason, spi: Option<u32>, view: &IpView) {
        if let Some(kind) = AuditKind::of(reason) {
            let event = AuditEvent {
                kind,
                spi,
                sequence: None,
                source: Some(view.source),
                destination: Some(view.destination),
                flow_label: (view.version == IpVersion::V6).then_some(view.flow_label),
            };
            self.auditor.record(event, 1, self.now_ms);
        }
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

    /// Dummies of the SAs that are silent, a bounded number at a time.
    pub(super) fn send_dummies(&mut self) {
        let Some(dummies) = &mut self.dummies else {
            return;
        };
        dummies.follow(self.now_ms);
        let mut sent = 0;
        while let Some((sa, len)) = self.dummies.as_mut().and_then(|d| d.next(self.now_ms)) {
            let remote = sa.common.path().remote.ip();
            sa.set_path_mtu(self.sockets.paths.mtu(remote, self.now_ms));
            let way = self.way_out(&sa);
            if !self.take_turn(&sa, way) {
                continue;
            }
            if self.seal[way].walk.push_dummy(&sa, len) == Err(Refused::BatchFull) {
                if !self.wait_for_turn(&sa, way) {
                    continue;
                }
                // What does not fit an empty batch is not made: nobody waits for it.
                let _ = self.seal[way].walk.push_dummy(&sa, len);
            }
            sent += 1;
            if sent == DUMMIES_MAX {
                break;
            }
        }
        if sent > 0 {
            self.seal_and_send();
        }
    }

    /// Higher classes first. In one batch that is all the same class, as most are, nothing is queued.
    pub(super) fn send(&mut self, sealed: &SealedBatch) {
        let mut sending = Sending::default();
        if sealed.is_of_one_class() {
            for train in sealed.trains(TRAINS) {
                self.queue(&mut sending, &train);
            }
        } else {
            let mut queue = ClassQueue::new(PACKETS_MAX, PATIENCE);
            for train in sealed.trains(TRAINS) {
                let class = Class::new(train.class).unwrap_or_default();
                // A batch has no more packets than a lane has room.
                let _ = queue.push(class, train);
            }
            while let Some((_, train)) = queue.pop() {
                self.queue(&mut sending, &train);
            }
        }
        self.flush(&mut sending);
    }

    pub(super) fn queue<'a>(&mut self, sending: &mut Sending<'a>, train: &Train<'a>) {
        let Some(sink) = self.sink(train) else {
            add(&self.io.send_errors, train.segments as u64);
            return;
        };
        if sending.sink != Some(sink) {
            self.flush(sending);
            sending.sink = Some(sink);
        }
        self.remember(train);
        let item = self.outgoing(train);
        if matches!(sink, Sink::NatT(_)) {
            return self.queue_item(sending, item);
        }
        if let (Sink::Ah(_), Some(payload)) = (sink, train.frame) {
            return self.queue_item(sending, Outgoing { payload, ..item });
        }
        // No segmentation for raw ESP.
        for payload in train.esp.chunks(train.segment_len.max(1)) {
            let segment = 0;
            let item = Outgoing {
                payload,
                segment,
                ..item
            };
            self.queue_item(sending, item);
        }
    }

    fn queue_item<'a>(&mut self, sending: &mut Sending<'a>, item: Outgoing<'a>) {
        if sending.queued == SEND_MAX {
            self.flush(sending);
        }
        sending.items[sending.queued] = item;
        sending.queued += 1;
    }

    pub(super) fn flush(&mut self, sending: &mut Sending<'_>) {
        let items = &sending.items[..sending.queued];
        sending.queued = 0;
        let report = match sending.sink {
            Some(Sink::NatT(index)) => self.sockets.nat_t[index].send(items),
            Some(Sink::Esp(index)) => self.sockets.esp[index].send(items),
            Some(Sink::Ah(index)) => self.sockets.ah[index].send(items),
            None => return,
        };
        add(&self.io.sent, report.sent);
        add(&self.io.send_too_big, report.too_big);
        add(&self.io.send_errors, report.failed);
        if let Some(remote) = report.too_big_for {
            let (sockets, io) = (&self.sockets, &self.io);
            self.path_errors.refused(sockets, remote, io, self.now_ms);
        }
    }

    /// So that an ICMP error about it is believed.
    fn remember(&self, train: &Train<'_>) {
        if !train.meta.dont_fragment {
            return;
        }
        let last = train.segment_len * train.segments.saturating_sub(1);
        let at = match train.protocol {
            ah::PROTOCOL => last + 4,
            _ => last,
        };
        let word = |at: usize| Some(u32::from_be_bytes(*train.esp.get(at..)?.first_chunk()?));
        if let (Some(spi), Some(sequence_low)) = (word(at), word(at + 4)) {
            let remote = train.meta.path().remote.ip();
            let (paths, now_ms) = (&self.sockets.paths, self.now_ms);
            paths.sent(remote, spi, sequence_low, now_ms);
        }
    }

    fn sink(&self, train: &Train<'_>) -> Option<Sink> {
        let path = train.meta.path();
        let v4 = path.remote.is_ipv4();
        let local = path.local.ip();
        if train.protocol == ah::PROTOCOL {
            let serves = self
                .sockets
                .ah
                .iter()
                .position(|socket| socket.serves(local, v4));
            return serves.map(Sink::Ah);
        }
        if !path.udp_encap {
            let serves = self
                .sockets
                .esp
                .iter()
                .position(|socket| socket.serves(local, v4));
            return serves.map(Sink::Esp);
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

    fn outgoing<'a>(&self, train: &Train<'a>) -> Outgoing<'a> {
        let path = train.meta.path();
        // Packets for narrow paths were refused before, but for those that may not be.
        let path_mtu = self.sockets.paths.mtu(path.remote.ip(), self.now_ms);
        let len = train.meta.header_len() + train.segment_len;
        let fits = path_mtu.is_none_or(|mtu| len <= mtu.into());
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
            ttl: train.meta.ttl,
            df: train.meta.dont_fragment && fits,
            payload: train.esp,
            segment: if train.segments > 1 {
                train.segment_len as u16
            } else {
                0
            },
        }
    }
}

/// The longest packet that may go through an SA whose outer packets must not be fragmented. An IPv6 sender need not
/// send less than 1280 bytes (RFC 8200 §5): what that makes too long is fragmented behind the SA.
pub(crate) fn size_limit(sa: &OutboundSa, view: &IpView, path_mtu: usize) -> Option<usize> {
    let limit = sa.inner_mtu(path_mtu);
    let limit = match view.version {
        IpVersion::V4 => limit,
        IpVersion::V6 => limit.max(pmtu::V6_MIN.into()),
    };
    leaves_whole(sa.common.mode, sa.common.tunnel.df, view).then_some(limit)
}

/// Whether nobody may cut what is sealed of this packet. In transport mode its own header says so.
fn leaves_whole(mode: Mode, df: DfPolicy, view: &IpView) -> bool {
    match (mode, df) {
        (Mode::Transport, _) | (_, DfPolicy::Copy) => view.dont_fragment,
        (Mode::Tunnel, DfPolicy::Set) => view.dont_fragment || view.version == IpVersion::V4,
        (Mode::Tunnel, DfPolicy::Clear) => false,
    }
}

/// Whether a packet is what the SA itself sends: the administrator's routes lead it back into its interface, where it
/// would grow and multiply without end. Ours around the common device skip marked packets.
pub(crate) fn is_of_sa(sa: &OutboundSa, view: &IpView) -> bool {
    let path = sa.common.path();
    let (local, remote) = (path.local.ip(), path.remote);
    if view.destination != remote.ip() || view.source != local && !local.is_unspecified() {
        return false;
    }
    match path.udp_encap {
        false => matches!(view.protocol, esp::PROTOCOL | ah::PROTOCOL),
        true => {
            let ports = view.ports;
            view.protocol == PROTOCOL_UDP && ports.is_some_and(|ports| ports.1 == remote.port())
        }
    }
}

/// Link-local multicast: 224.0.0.0/24 and ff02::/16.
fn is_link_scope(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] == 0xff02,
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

#[cfg(test)]
mod tests;
