//! Puts an accelerator in front of a data plane, with the same entry points. Clear packets, and ESP
//! for the device's SAs, go into the device. Packets that the device leaves to software take the
//! software path.

use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::Train;
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::tunnel::{OuterFacts, OuterMeta};
use esplanade_ipsec::wire::esp;

use super::accelerator::{Accelerator, SealedByDevice};
use super::datagram::IkeDatagram;
use super::packet_io::{PacketIo, ReceiveSocket};
use super::{DataPlane, InnerPacket};
use crate::datagram::ReceivedDatagram;

/// Index of the port whose packets may go into the device. The device never has SAs of other
/// interfaces.
pub const COMMON: usize = 0;
/// Upper bound of the rounds between device and software. Software may cut a returned packet once
/// for the device; further rounds serve packets that arrive meanwhile.
const ROUNDS_MAX: usize = 4;

#[derive(Debug)]
pub struct AcceleratorFront<A> {
    device: A,
    /// Datagrams that wait to go into the device, with their SPIs.
    kept: Vec<(u32, Vec<u8>, OuterFacts)>,
}

/// Decides whether a packet that the device returned goes into the device once more.
#[derive(Clone, Copy, Debug)]
enum Retry {
    /// Yes, after the device's tables were updated.
    May,
    /// Yes, the device's tables are up to date.
    Yes,
    No,
}

impl Retry {
    /// Returns the answer for the next round: packets that come back again under updated tables are
    /// refused.
    fn next_round(self) -> Self {
        match self {
            Self::May => Self::May,
            Self::Yes | Self::No => Self::No,
        }
    }
}

impl<A: Accelerator> AcceleratorFront<A> {
    pub fn new(device: A) -> Self {
        Self {
            device,
            kept: Vec::new(),
        }
    }

    /// Runs the jobs that other threads asked of the device.
    pub fn serve<I: PacketIo>(&mut self, plane: &mut DataPlane<I>, spd: &Spd) {
        self.settle(plane, spd);
        self.device.serve();
    }

    /// Like [`DataPlane::handle_time`]. The caller has called that function first.
    pub fn handle_time<I: PacketIo>(&mut self, plane: &mut DataPlane<I>, spd: &Spd, now_ms: u64) {
        if self.device.keep_time(now_ms) {
            self.settle(plane, spd);
            self.device.do_due();
        }
        plane.set_accelerator(self.device.works().then_some(A::FRAME_MAX));
    }

    /// Finishes the packets in the device and in the engines. So when an SA moves, no packet
    /// overtakes an earlier packet of its flow.
    fn settle<I: PacketIo>(&mut self, plane: &mut DataPlane<I>, spd: &Spd) {
        for _ in 0..ROUNDS_MAX {
            if !self.device.is_busy() {
                break;
            }
            self.poll_device(plane, spd);
        }
        plane.drain();
        plane.drain_inbound();
    }

    /// Like [`DataPlane::handle_inner`], for the port [`COMMON`].
    pub fn handle_inner<I: PacketIo>(
        &mut self,
        plane: &mut DataPlane<I>,
        spd: &Spd,
        read: &mut [u8],
    ) {
        if let Some(mut inner) = plane.admit(spd, COMMON, read)
            && !(self.device.works() && self.offer(plane, &mut inner))
        {
            self.decide(plane, spd, &mut inner, &mut Retry::No);
        }
    }

    /// Like [`DataPlane::handle_outer`].
    pub fn handle_outer<I: PacketIo>(
        &mut self,
        plane: &mut DataPlane<I>,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        ike: impl FnMut(IkeDatagram),
    ) {
        plane.sort(receive_socket, received, ike);
        let Self { device, kept } = self;
        let mut first = None;
        plane.offer_sorted(|spi, esp, facts| {
            // The SA exists only in the device. So its packets go there even if the device failed.
            let is_its = device.opens(spi);
            first.get_or_insert(is_its);
            if is_its {
                kept.push((spi, esp.to_vec(), *facts));
            }
            is_its
        });
        // When a new SA takes over within a burst, the packets of the old SA go first.
        if first == Some(true) {
            self.open_kept(plane);
            self.finish_opening(plane);
            plane.open_sorted();
        } else {
            self.finish_opening(plane);
            plane.open_sorted();
            if !self.kept.is_empty() {
                plane.drain_inbound();
            }
            self.open_kept(plane);
        }
    }

    /// Like [`DataPlane::follow_early`].
    pub fn follow_early<I: PacketIo>(&mut self, plane: &mut DataPlane<I>) {
        if !plane.has_early() {
            return;
        }
        self.finish_opening(plane);
        let Self { device, kept } = self;
        plane.follow_early(|spi, esp, facts| {
            let is_its = device.opens(spi);
            if is_its {
                kept.push((spi, esp.to_vec(), *facts));
            }
            is_its
        });
        if !self.kept.is_empty() {
            self.open_kept(plane);
        }
    }

    /// Ends a burst from the port [`COMMON`]. Afterwards no packet of the burst is left in the
    /// device, and everything it returned is processed.
    pub fn finish_inner<I: PacketIo>(&mut self, plane: &mut DataPlane<I>, spd: &Spd) {
        let mut again = Retry::May;
        // Continue even if the device failed: packets that it returned before were counted.
        for _ in 0..ROUNDS_MAX {
            self.work(plane);
            let returned = self.device.take_returned();
            if returned.is_empty() {
                return;
            }
            for mut packet in returned {
                match InnerPacket::plain(COMMON, &mut packet) {
                    Ok(mut inner) => self.decide(plane, spd, &mut inner, &mut again),
                    Err(_) => plane.drop_malformed(packet.len()),
                }
            }
            again = again.next_round();
        }
    }

    /// Lets the device continue, and fetches its results.
    pub fn poll_device<I: PacketIo>(&mut self, plane: &mut DataPlane<I>, spd: &Spd) {
        if self.device.is_busy() {
            self.open_kept(plane);
            self.finish_inner(plane, spd);
        }
    }

    /// Tells whether the device needs attention soon.
    pub fn is_busy(&self) -> bool {
        self.device.is_busy()
    }

    pub fn take_events(&mut self) -> Vec<esplanade_ipsec::Event> {
        self.device.take_events()
    }

    /// Gives a packet, or each of its segments, to the device. Returns false if a segment is too
    /// long for the device.
    fn offer<I: PacketIo>(
        &mut self,
        plane: &mut DataPlane<I>,
        inner: &mut InnerPacket<'_>,
    ) -> bool {
        plane.clamp_inner(inner);
        let Some(segments) = inner.segments() else {
            return false;
        };
        if (0..segments.count()).any(|index| segments.len(index) > A::FRAME_MAX) {
            return false;
        }
        let mut segment = Vec::new();
        for index in 0..segments.count() {
            segment.resize(segments.len(index), 0);
            segments.write(index, &mut segment);
            if !self.seal(plane, &segment, false) {
                plane.drop_inner(DropReason::EngineFailed, segment.len());
            }
        }
        true
    }

    /// Processes a packet by software. Software may have cut the packet for an SA of the device.
    fn decide<I: PacketIo>(
        &mut self,
        plane: &mut DataPlane<I>,
        spd: &Spd,
        inner: &mut InnerPacket<'_>,
        again: &mut Retry,
    ) {
        plane.decide(spd, inner);
        for given in plane.take_given() {
            if given.is_whole {
                // The policy has an SA in the device, but the device's tables do not lead to it
                // yet.
                match again {
                    Retry::No => {
                        plane.give_up(&given);
                        continue;
                    }
                    Retry::May => {
                        // The engines took earlier packets of the flow.
                        plane.drain();
                        self.device.update_tables();
                        *again = Retry::Yes;
                    }
                    Retry::Yes => {}
                }
            }
            if !self.seal(plane, &given.packet, true) {
                plane.give_up(&given);
            }
        }
    }

    fn seal<I: PacketIo>(
        &mut self,
        plane: &mut DataPlane<I>,
        packet: &[u8],
        counted: bool,
    ) -> bool {
        self.device.seal(packet, counted) || {
            self.work(plane);
            self.device.seal(packet, counted)
        }
    }

    /// Lets the device process its packets, and sends those that it sealed.
    fn work<I: PacketIo>(&mut self, plane: &mut DataPlane<I>) {
        self.device.work();
        let made = self.device.take_sealed();
        let metas: Vec<OuterMeta> = made.iter().map(outer).collect();
        let trains = made.iter().zip(&metas).map(|(made, meta)| {
            let packet = made.frame.get(made.header_len..).unwrap_or_default();
            Train {
                meta,
                protocol: esp::PROTOCOL,
                esp: packet,
                segment_len: packet.len(),
                segments: 1,
                class: 0,
                frame: None,
            }
        });
        plane.send_trains(trains);
    }

    /// Gives the waiting datagrams to the device and delivers what it opens.
    fn open_kept<I: PacketIo>(&mut self, plane: &mut DataPlane<I>) {
        let mut spis: Vec<_> = self.kept.iter().map(|(spi, ..)| *spi).collect();
        spis.dedup();
        plane.make_way(&spis);
        let mut refused = 0;
        for (_, esp, facts) in std::mem::take(&mut self.kept) {
            let opened = self.device.open(&esp, &facts) || {
                self.work(plane);
                self.device.open(&esp, &facts)
            };
            refused += u64::from(!opened);
        }
        plane.drop_outer(DropReason::EngineFailed, refused);
        self.deliver_opened(plane);
    }

    /// Delivers what the device still has, before software opens packets that may be of the same flows.
    fn finish_opening<I: PacketIo>(&mut self, plane: &mut DataPlane<I>) {
        for _ in 0..ROUNDS_MAX {
            if !self.device.is_busy() {
                return;
            }
            self.deliver_opened(plane);
        }
    }

    fn deliver_opened<I: PacketIo>(&mut self, plane: &mut DataPlane<I>) {
        self.work(plane);
        let opened = self.device.take_opened();
        if !opened.is_empty() {
            plane.deliver_plain(opened);
        }
    }
}

fn outer(made: &SealedByDevice) -> OuterMeta {
    OuterMeta {
        path: made.sa.common.path().into(),
        tos: made.tos,
        dont_fragment: made.dont_fragment,
        ttl: made.sa.common.tunnel.ttl,
        flow_label: 0,
    }
}

#[cfg(test)]
mod tests;
