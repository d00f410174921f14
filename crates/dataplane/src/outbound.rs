//! The outbound path: the SPD decides about packets from the protected side, and they are written
//! into ESP slots.

use std::fmt;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_ipsec::audit::{AuditEvent, AuditKind};
use esplanade_ipsec::fragment::Pieces;
use esplanade_ipsec::outbound::{Outcome, ReserveRefused, Segments as Cut};
use esplanade_ipsec::sa::{Mode, OutboundSa};
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::tunnel::DfPolicy;
use esplanade_ipsec::wire::icmp::IcmpProblem;
use esplanade_ipsec::wire::ip::PROTOCOL_UDP;
use esplanade_ipsec::wire::{IpVersion, IpView, Malformed, ah, esp};
use esplanade_ipsec::{DropReason, pmtu};

use super::DataPlane;
use super::fragments::Admitted;
use super::pipelines::OutboundPipeline;
use super::turns::WAIT_NS;
use crate::counters::add;
use crate::gso::GsoSegments;
use crate::mss;
use crate::packet_io::PacketIo;
use crate::virtio::{HEADER_LEN, VnetHeader};

/// Most dummy packets of one round.
const DUMMIES_MAX: usize = 64;

/// A complete packet or super-segment from the protected side.
pub struct InnerPacket<'a> {
    port: usize,
    /// The segmentation and checksum that the sender left unfinished.
    header: VnetHeader,
    packet: PacketBytes<'a>,
    view: IpView,
}

// A packet in clear is not for the log.
impl fmt::Debug for InnerPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InnerPacket").finish_non_exhaustive()
    }
}

/// The bytes of exactly one packet.
enum PacketBytes<'a> {
    Read(&'a mut [u8]),
    /// The bytes of a datagram that arrived in fragments.
    Whole(Vec<u8>),
}

impl Deref for PacketBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Whole(bytes) => bytes,
        }
    }
}

impl DerefMut for PacketBytes<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Whole(bytes) => bytes,
        }
    }
}

impl<'a> InnerPacket<'a> {
    /// Creates a packet that arrived at the port with nothing left unfinished.
    pub fn plain(port: usize, packet: &'a mut [u8]) -> Result<Self, Malformed> {
        let view = IpView::parse(packet)?;
        let packet = packet.get_mut(..view.total_len).unwrap_or_default();
        Ok(Self {
            port,
            header: VnetHeader::default(),
            packet: PacketBytes::Read(packet),
            view,
        })
    }

    pub fn segments(&self) -> Option<GsoSegments<'_>> {
        GsoSegments::new(&self.header, &self.packet).ok()
    }
}

/// A packet or piece for an SA that exists only in the accelerator in front. The walk has counted
/// it.
#[derive(Debug)]
pub struct AcceleratorPacket {
    sa: Arc<OutboundSa>,
    pub packet: Vec<u8>,
    /// The packet was not cut.
    pub is_whole: bool,
}

impl<I: PacketIo> DataPlane<I> {
    /// Tells whether another packet from the protected side finds room.
    pub fn can_seal(&mut self) -> bool {
        self.takes_packets() || {
            self.seal_and_send();
            self.takes_packets()
        }
    }

    /// Processes one read from a port: a packet or super-segment after its virtio header.
    pub fn handle_inner(&mut self, spd: &Spd, port: usize, read: &mut [u8]) {
        if let Some(mut inner) = self.admit(spd, port, read) {
            self.decide(spd, &mut inner);
        }
    }

    /// Checks one read from a port. Returns `None` if the packet was dropped, or waits for the rest
    /// of its datagram.
    pub fn admit<'a>(
        &mut self,
        spd: &Spd,
        port: usize,
        read: &'a mut [u8],
    ) -> Option<InnerPacket<'a>> {
        let Some((header, packet)) = read.split_first_chunk_mut::<HEADER_LEN>() else {
            self.seal[0].walk.drop_malformed(0);
            return None;
        };
        let Ok(view) = IpView::parse(packet) else {
            self.seal[0].walk.drop_malformed(packet.len());
            return None;
        };
        // Cut off bytes after the IP packet, which would be sealed with it.
        let packet = packet.get_mut(..view.total_len).unwrap_or_default();
        let header = VnetHeader::decode(header).ok();
        let Some(header) = header.filter(|header| stays_behind_ports(header, &view)) else {
            add(&self.counters.tun_malformed, 1);
            self.seal[0].walk.drop_malformed(packet.len());
            return None;
        };
        let admitted = match self.processing.reassemble && header == VnetHeader::default() {
            true => {
                self.ports[port]
                    .fragments
                    .admit(&self.counters, spd, (packet, &view), self.now_ms)
            }
            false => Admitted::AsItIs,
        };
        let (packet, view) = match admitted {
            Admitted::AsItIs => (PacketBytes::Read(packet), view),
            Admitted::Behind(view) => (PacketBytes::Read(packet), view),
            Admitted::Held => return None,
            Admitted::Whole(whole) => match IpView::parse(&whole) {
                Ok(mut view) => {
                    // Its sender permitted fragmentation, in IPv6 as well.
                    view.dont_fragment = false;
                    (PacketBytes::Whole(whole), view)
                }
                Err(_) => {
                    self.seal[0].walk.drop_malformed(whole.len());
                    return None;
                }
            },
            Admitted::Refused => {
                let reason = DropReason::FragmentRefused;
                self.seal[0].walk.drop_packet(reason, packet.len());
                return None;
            }
        };
        Some(InnerPacket {
            port,
            header,
            packet,
            view,
        })
    }

    /// Does with a packet what the SPD decides.
    pub fn decide(&mut self, spd: &Spd, inner: &mut InnerPacket<'_>) {
        self.apply_policy(spd, inner);
        if self.seal.iter().any(OutboundPipeline::has_enough) {
            self.seal_and_send();
        }
    }

    fn apply_policy(&mut self, spd: &Spd, inner: &mut InnerPacket<'_>) {
        let InnerPacket {
            port,
            header,
            packet,
            view,
        } = inner;
        let (port, packet) = (*port, &mut **packet);
        let Ok(segments) = GsoSegments::new(header, packet) else {
            add(&self.counters.tun_malformed, 1);
            self.seal[0].walk.drop_malformed(packet.len());
            return;
        };
        let cut = Cut {
            count: segments.count() as u32,
            segment_len: segments.len(0),
            last_len: segments.len(segments.count() - 1),
        };
        let walk = &mut self.seal[0].walk;
        walk.set_interface(self.ports[port].interface);
        let sa = match walk.decide(spd, (packet, view), &cut) {
            Outcome::Protect(sa) => sa,
            Outcome::Bypass => return self.bypass(&segments),
            Outcome::Dropped(reason) => return self.dropped(port, reason, packet, view),
        };
        if port != 0 && is_of_sa(&sa, view) {
            return walk.drop_decided(&sa, DropReason::NestedTooDeep, &cut);
        }
        let longest = cut.segment_len.max(cut.last_len);
        if sa.sequence.is_given_away() {
            // Two cases lead here. The accelerator returned the packet because it does not know the
            // SA yet, or the packet was too long for it.
            let limit = self.accelerator_limit(&sa, view).filter(|_| port == 0);
            return match limit.filter(|limit| longest > *limit) {
                Some(limit) => self.too_big(port, &sa, &cut, (packet, view), limit),
                None => self.give(&sa, &segments, &cut, true),
            };
        }
        let limit = self.limit(&sa, view);
        if let Some(limit) = limit.filter(|limit| longest > *limit) {
            return self.too_big(port, &sa, &cut, (packet, view), limit);
        }
        if self.ports[port].mss_clamp.is_some() && mss::is_syn(packet, view) {
            self.clamp(port, (packet, view), limit, header.checksum.is_some());
            if let Ok(segments) = GsoSegments::new(header, packet) {
                self.protect(&sa, &segments, &cut, view);
            }
            return;
        }
        self.protect(&sa, &segments, &cut, view);
    }

    fn protect(
        &mut self,
        sa: &Arc<OutboundSa>,
        segments: &GsoSegments<'_>,
        cut: &Cut,
        view: &IpView,
    ) {
        if sa.sequence.is_given_away() {
            return self.give(sa, segments, cut, false);
        }
        // The second try finds an empty batch.
        let index = self.outbound_index(sa);
        for _ in 0..2 {
            if !self.take_turn(sa, index) {
                break;
            }
            let refused = match self.seal[index].walk.reserve(sa, view, cut) {
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
                ReserveRefused::BatchFull => self.make_room(),
                ReserveRefused::Dropped(reason) => {
                    return self.audit(reason, Some(sa.common.spi), view);
                }
            }
        }
        self.seal[0].walk.give_up(sa, cut);
    }

    /// Keeps a packet, or a piece of one, for the accelerator in front.
    fn give(
        &mut self,
        sa: &Arc<OutboundSa>,
        segments: &GsoSegments<'_>,
        cut: &Cut,
        is_whole: bool,
    ) {
        if self.accelerator.is_none() || cut.count != 1 {
            return self.seal[0].walk.give_up(sa, cut);
        }
        let mut packet = vec![0; segments.len(0)];
        segments.write(0, &mut packet);
        self.given.push(AcceleratorPacket {
            sa: Arc::clone(sa),
            packet,
            is_whole,
        });
    }

    /// From now on a device in front may own SAs, and takes packets of at most `frame_max` bytes.
    /// `None` means that the device failed.
    pub fn set_accelerator(&mut self, frame_max: Option<usize>) {
        self.accelerator = frame_max;
    }

    /// Returns the packets that were kept for the accelerator since the last call.
    pub fn take_given(&mut self) -> Vec<AcceleratorPacket> {
        std::mem::take(&mut self.given)
    }

    /// Counts as lost a packet that the accelerator did not take.
    pub fn give_up(&mut self, given: &AcceleratorPacket) {
        let one = Cut::one(given.packet.len());
        self.seal[0].walk.give_up(&given.sa, &one);
    }

    /// Counts bytes that are no valid packet.
    pub fn drop_malformed(&mut self, len: usize) {
        self.seal[0].walk.drop_malformed(len);
    }

    /// Counts a dropped packet from the protected side.
    pub fn drop_inner(&mut self, reason: DropReason, len: usize) {
        self.seal[0].walk.drop_packet(reason, len);
    }

    /// Returns the most bytes of a packet of the SA that the accelerator and the path take.
    fn accelerator_limit(&self, sa: &OutboundSa, view: &IpView) -> Option<usize> {
        let frame_max = self.accelerator?;
        let least = match view.version {
            IpVersion::V4 => 0,
            IpVersion::V6 => pmtu::V6_MIN.into(),
        };
        let path_mtu = self.paths.mtu(sa.common.path().remote.ip(), self.now_ms);
        let through = path_mtu.map(|mtu| sa.inner_mtu(mtu.into()).max(least));
        Some(through.map_or(frame_max, |limit| limit.min(frame_max)))
    }

    /// Waits until the worker may take sequence numbers of the SA. While it waits, it holds none:
    /// all its packets are sent first.
    fn take_turn(&mut self, sa: &Arc<OutboundSa>, index: usize) -> bool {
        self.seal[index].turns.begin(sa) || self.wait_for_turn(sa, index)
    }

    fn wait_for_turn(&mut self, sa: &Arc<OutboundSa>, index: usize) -> bool {
        self.drain();
        self.pause();
        let (io, turns) = (&mut self.io, &mut self.seal[index].turns);
        let begun_ns = self.now_ns;
        let is_ours = turns.wait(sa, || io.pause().saturating_sub(begun_ns) < WAIT_NS);
        // Read the clock again, so that the next batches do not look late.
        self.pause();
        is_ours
    }

    /// Returns the longest packet that may go through the SA, if its path is known to be narrow.
    fn limit(&self, sa: &OutboundSa, view: &IpView) -> Option<usize> {
        let remote = sa.common.path().remote.ip();
        let path_mtu = self.paths.mtu(remote, self.now_ms);
        sa.set_path_mtu(path_mtu);
        size_limit(sa, view, path_mtu?.into())
    }

    /// Handles a packet that is too long for the path (RFC 4301 §8.2.1). If the sender forbids
    /// fragmentation, it gets an ICMP error; otherwise the packet is cut before encryption.
    fn too_big(
        &mut self,
        port: usize,
        sa: &Arc<OutboundSa>,
        cut: &Cut,
        (packet, view): (&[u8], &IpView),
        limit: usize,
    ) {
        let pieces = Pieces::new(packet, view, limit);
        let Some(pieces) = pieces.ok().filter(|_| cut.count == 1) else {
            self.seal[0].walk.drop_decided(sa, DropReason::TooBig, cut);
            let problem = IcmpProblem::TooBig { mtu: limit as u32 };
            return self.reply(port, (packet, view), problem);
        };
        // The walk counted one packet, but this many more pieces come out.
        let more = pieces.count() as u64 - 1;
        self.seal[0]
            .walk
            .counters()
            .packets_in
            .fetch_add(more, Ordering::Relaxed);
        add(&self.counters.fragmented, 1);
        let mut piece = Vec::new();
        for index in 0..pieces.count() {
            piece.resize(pieces.len(index), 0);
            let written = pieces.write(index, &mut piece);
            let segments = GsoSegments::new(&VnetHeader::default(), &piece);
            let one = Cut::one(piece.len());
            match (written, segments, IpView::parse(&piece)) {
                (Some(()), Ok(segments), Ok(view)) => self.protect(sa, &segments, &one, &view),
                _ => self.seal[0].walk.give_up(sa, &one),
            }
        }
    }

    /// Lowers the MSS of a SYN to what fits the port and `limit`. `partial` means that the checksum
    /// is not complete.
    fn clamp(
        &self,
        port: usize,
        (packet, view): (&mut [u8], &IpView),
        limit: Option<usize>,
        partial: bool,
    ) {
        let mss_clamp = self.ports[port].mss_clamp;
        let mtu = mss_clamp.map_or(usize::MAX, usize::from);
        let mss = mss::mss_for(view.version, mtu.min(limit.unwrap_or(usize::MAX)));
        let clamped = mss::clamp(packet, view, mss, partial);
        add(&self.counters.mss_clamped, u64::from(clamped));
    }

    /// Lowers the MSS of a packet for the accelerator to what fits the port, as for a packet that
    /// leaves by software.
    pub fn clamp_inner(&self, inner: &mut InnerPacket<'_>) {
        let InnerPacket {
            port,
            header,
            packet,
            view,
        } = inner;
        if self.ports[*port].mss_clamp.is_some() && mss::is_syn(packet, view) {
            self.clamp(*port, (packet, view), None, header.checksum.is_some());
        }
    }

    fn reply(&mut self, port: usize, about: (&[u8], &IpView), problem: IcmpProblem) {
        let to = (&mut self.io, port);
        self.replies
            .send(to, &self.counters, about, problem, self.now_ms);
    }

    fn dropped(&mut self, port: usize, reason: DropReason, packet: &[u8], view: &IpView) {
        // The kernel itself sends such packets to neighbours, which a TUN device does not have.
        // They would never leave the link, so do not audit them.
        if !is_link_scope(view.destination) {
            self.audit(reason, None, view);
        }
        let by_policy = matches!(reason, DropReason::PolicyDiscard | DropReason::NoPolicy);
        if by_policy && self.processing.report_discards {
            self.reply(port, (packet, view), IcmpProblem::Prohibited);
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

    fn bypass(&mut self, segments: &GsoSegments<'_>) {
        let mut packet = Vec::new();
        for index in 0..segments.count() {
            packet.resize(segments.len(index), 0);
            segments.write(index, &mut packet);
            let sent = self.io.bypass(&packet);
            add(&self.counters.bypass_errors, u64::from(sent.is_err()));
        }
    }

    /// Sends dummy packets of silent SAs, at most `DUMMIES_MAX` per call.
    pub fn send_dummies(&mut self) {
        let Some(dummies) = &mut self.dummies else {
            return;
        };
        dummies.follow(self.now_ms);
        let mut sent = 0;
        while let Some((sa, len)) = self.dummies.as_mut().and_then(|d| d.next(self.now_ms)) {
            let remote = sa.common.path().remote.ip();
            sa.set_path_mtu(self.paths.mtu(remote, self.now_ms));
            let index = self.outbound_index(&sa);
            if !self.take_turn(&sa, index) {
                continue;
            }
            if self.seal[index].walk.push_dummy(&sa, len) == Err(ReserveRefused::BatchFull) {
                if !self.wait_for_turn(&sa, index) {
                    continue;
                }
                // A dummy that does not fit into an empty batch is not sent: nobody waits for it.
                let _ = self.seal[index].walk.push_dummy(&sa, len);
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
}

/// Returns the longest packet for an SA whose outer packets must not, or cannot, be fragmented on their way. An IPv6
/// sender need not send less than 1280 bytes (RFC 8200 §5); an outer packet that becomes too long because of this is
/// fragmented.
pub fn size_limit(sa: &OutboundSa, view: &IpView, path_mtu: usize) -> Option<usize> {
    let limit = sa.inner_mtu(path_mtu);
    let limit = match view.version {
        IpVersion::V4 => limit,
        IpVersion::V6 => limit.max(pmtu::V6_MIN.into()),
    };
    let outer = sa.common.path().version();
    leaves_whole(sa.common.mode, sa.common.tunnel.df, outer, view).then_some(limit)
}

/// Tells whether nobody may fragment the sealed packet, or nobody would. In transport mode, the packet's own header
/// decides. Routers do not fragment IPv6 (RFC 8200 §5), and our kernel knows only what ICMP errors tell it, but not what
/// probes have found.
fn leaves_whole(mode: Mode, df: DfPolicy, outer: IpVersion, view: &IpView) -> bool {
    match (mode, df) {
        (Mode::Transport, _) => view.dont_fragment,
        (Mode::Tunnel, DfPolicy::Copy) => view.dont_fragment || outer == IpVersion::V6,
        (Mode::Tunnel, DfPolicy::Set) => view.dont_fragment || view.version == IpVersion::V4,
        (Mode::Tunnel, DfPolicy::Clear) => false,
    }
}

/// Tells whether the packet was sent by the SA itself. The administrator's routes can lead such a
/// packet back into the SA's interface, where it would grow and multiply for ever. The common
/// device needs no check: our rule skips marked packets.
pub fn is_of_sa(sa: &OutboundSa, view: &IpView) -> bool {
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

/// Tells whether the destination is link-local multicast: 224.0.0.0/24 or ff02::/16.
fn is_link_scope(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] == 0xff02,
    }
}

/// Tells whether checksums and segmentation leave the fields alone that the SPD decides on. A host
/// with packet sockets chooses freely where a checksum is written, and the kernel forwards that
/// request.
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
