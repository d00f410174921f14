//! The FPGA core in front of the software path: clear packets go into its outbound lane, ESP for its SAs into the inbound
//! one. What it leaves to software goes the software's way.

use std::sync::Arc;

use esplanade_ipsec::outbound::{Segments as Cut, Train};
use esplanade_ipsec::pmtu::V6_MIN;
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::tunnel::OuterMeta;
use esplanade_ipsec::wire::{IpVersion, IpView, esp};
use esplanade_ipsec::{DropReason, mss};

use super::outward::Sending;
use super::{Run, inward};
use crate::io::gro::Packets;
use crate::io::gso::Segments;
use crate::io::virtio::VnetHeader;
use crate::worker::core::Driver;
use esplanade_fpga::core::FRAME_MAX;

/// Packets that the core gave back may be cut for it once; more rounds are only for those that overtake.
const ROUNDS_MAX: usize = 4;

impl Run {
    /// Whether what is read now goes to the core first. SAs of other interfaces are never in it.
    pub(super) fn core_leads(&self) -> bool {
        self.port == 0 && self.core.as_ref().is_some_and(Driver::works)
    }

    /// Gives a packet or the segments of one to the outbound lane. False if they are too long for it.
    pub(super) fn offer_core(
        &mut self,
        header: &VnetHeader,
        packet: &mut [u8],
        view: &IpView,
    ) -> bool {
        if self.ports[0].mss_clamp.is_some() && mss::is_syn(packet, view) {
            self.clamp(packet, view, None, header.checksum.is_some());
        }
        let Ok(segments) = Segments::new(header, packet) else {
            return false;
        };
        if (0..segments.count()).any(|index| segments.len(index) > FRAME_MAX) {
            return false;
        }
        let mut segment = Vec::new();
        for index in 0..segments.count() {
            segment.resize(segments.len(index), 0);
            segments.write(index, &mut segment);
            if !self.send_to_core(&segment, false) {
                let reason = DropReason::EngineFailed;
                self.seal[0].walk.drop_packet(reason, segment.len());
            }
        }
        true
    }

    fn send_to_core(&mut self, packet: &[u8], counted: bool) -> bool {
        let Some(core) = &mut self.core else {
            return false;
        };
        if core.send(packet, counted) {
            return true;
        }
        self.run_core();
        let core = self.core.as_mut();
        core.is_some_and(|core| core.send(packet, counted))
    }

    /// A packet that the core gave back, or never got, although its SA is there.
    pub(super) fn of_core(
        &mut self,
        sa: &Arc<OutboundSa>,
        cut: &Cut,
        (packet, view): (&[u8], &IpView),
    ) {
        let remote = sa.common.path().remote.ip();
        let path_mtu = self.sockets.paths.mtu(remote, self.now_ms);
        let least = match view.version {
            IpVersion::V4 => 0,
            IpVersion::V6 => V6_MIN.into(),
        };
        let limit = path_mtu.map_or(FRAME_MAX, |mtu| {
            sa.inner_mtu(mtu.into()).max(least).min(FRAME_MAX)
        });
        if self.core_leads() && cut.segment_len.max(cut.last_len) > limit {
            return self.too_big(sa, cut, (packet, view), limit);
        }
        self.seal[0].walk.give_up(sa, cut);
    }

    /// A piece of a packet that was too long. The walk has counted it.
    pub(super) fn piece_to_core(
        &mut self,
        sa: &Arc<OutboundSa>,
        segments: &Segments<'_>,
        cut: &Cut,
    ) {
        let mut piece = vec![0; segments.len(0)];
        segments.write(0, &mut piece);
        if !self.send_to_core(&piece, true) {
            self.seal[0].walk.give_up(sa, cut);
        }
    }

    /// Lets the core work; what it has sealed leaves.
    fn run_core(&mut self) {
        let Some(core) = &mut self.core else {
            return;
        };
        core.serve();
        core.work();
        let sealed = core.take_sealed();
        let metas: Vec<OuterMeta> = (sealed.iter())
            .map(|(sealed, _)| OuterMeta {
                path: sealed.sa.common.path().into(),
                tos: sealed.tos,
                dont_fragment: sealed.dont_fragment,
                ttl: sealed.sa.common.tunnel.ttl,
                flow_label: 0,
            })
            .collect();
        let mut sending = Sending::default();
        for ((sealed, frame), meta) in sealed.iter().zip(&metas) {
            let packet = frame.get(sealed.header_len..).unwrap_or_default();
            let train = Train {
                meta,
                protocol: esp::PROTOCOL,
                esp: packet,
                segment_len: packet.len(),
                segments: 1,
                class: 0,
                frame: None,
            };
            self.queue(&mut sending, &train);
        }
        self.flush(&mut sending);
    }

    /// Lets the core go on with what it has not finished, and takes what it has done meanwhile.
    pub(super) fn go_on_with_core(&mut self) {
        if self.core.as_ref().is_some_and(Driver::is_busy) {
            self.open_in_core();
            self.port = 0;
            let spd = self.database.spd();
            self.finish_core(&spd);
        }
    }

    /// After a burst: nothing of it is left in the core, or of what the core gave back.
    pub(super) fn finish_core(&mut self, spd: &Spd) {
        if self.port != 0 {
            return;
        }
        // Also where the core has failed meanwhile: what it gave back before is counted.
        for _ in 0..ROUNDS_MAX {
            self.run_core();
            let returned = self.core.as_mut().map(Driver::take_returned);
            let returned = returned.unwrap_or_default();
            if returned.is_empty() {
                return;
            }
            for mut packet in returned {
                match IpView::parse(&packet) {
                    Ok(view) => {
                        self.host_packet(spd, &VnetHeader::default(), &mut packet, &view);
                    }
                    Err(_) => drop(self.seal[0].walk.drop_malformed(packet.len())),
                }
            }
        }
    }

    /// Opens the datagrams that were kept for the core.
    pub(super) fn open_in_core(&mut self) {
        let Some(core) = &mut self.core else {
            return;
        };
        let refused = core.open_kept();
        self.open[0]
            .walk
            .counters()
            .drops
            .add(DropReason::EngineFailed, refused);
        self.run_core();
        let opened = self.core.as_mut().map(Driver::take_opened);
        let mut opened = Opened(opened.unwrap_or_default());
        if opened.0.is_empty() {
            return;
        }
        let all = 0..opened.0.len();
        let Some(port) = self.ports.first_mut() else {
            return;
        };
        if let Some(mtu) = port.mss_clamp {
            inward::clamp(&mut opened, all.clone(), mtu, &self.io);
        }
        for index in all {
            port.coalescer.push(&opened, index);
        }
        let (writes, failed) = inward::write_out(port, &mut opened);
        self.count_writes(writes, failed);
    }
}

/// Inner packets of the core, in order.
struct Opened(Vec<Vec<u8>>);

impl Packets for Opened {
    fn packet(&self, index: usize) -> &[u8] {
        self.0.get(index).map_or(&[], Vec::as_slice)
    }

    fn packet_mut(&mut self, index: usize) -> &mut [u8] {
        self.0.get_mut(index).map_or(&mut [], Vec::as_mut_slice)
    }
}
