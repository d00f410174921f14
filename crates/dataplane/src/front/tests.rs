//! Tests the front with a device that behaves as the test demands.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::{Event, WalkCounters};

use super::*;
use crate::EngineSource;
use crate::gate::{EngineGate, behind};
use crate::packet_io::SendSocket;
use crate::pair::{PairOptions, PairSite, balance, ipv4, pair, udp, whole};
use crate::virtio::{GsoKind, VnetHeader};

const FRAME_MAX: usize = 1500;
/// Length in bytes of the outer headers that the device writes.
const HEADER_LEN: usize = 4;

struct FakeAccelerator {
    works: bool,
    /// Most packets that the device holds.
    room: usize,
    /// The device returns nothing.
    is_slow: bool,
    /// The SA for which the device seals. `None` leaves every packet to software.
    seals_for: Option<Arc<OutboundSa>>,
    opens: Option<u32>,
    inside: Vec<FakeWork>,
    sealed: Vec<SealedByDevice>,
    returned: Vec<Vec<u8>>,
    opened: Vec<Vec<u8>>,
    walks: [Arc<WalkCounters>; 2],
    /// The number of times that the device was asked to take a packet.
    asked: u32,
    inside_when_served: Option<usize>,
    /// The SA that the device knows after its tables were updated.
    learns: Option<Arc<OutboundSa>>,
}

enum FakeWork {
    Seal(Vec<u8>),
    Open(Vec<u8>),
}

impl FakeAccelerator {
    fn take(&mut self, work: FakeWork) -> bool {
        self.asked += 1;
        let takes = self.works && self.inside.len() < self.room;
        if takes {
            self.inside.push(work);
        }
        takes
    }
}

impl Accelerator for FakeAccelerator {
    const FRAME_MAX: usize = FRAME_MAX;

    fn serve(&mut self) {
        self.inside_when_served = Some(self.inside.len());
    }

    fn keep_time(&mut self, _: u64) -> bool {
        false
    }

    fn do_due(&mut self) {}

    fn update_tables(&mut self) {
        self.seals_for = self.learns.take().or(self.seals_for.take());
    }

    fn works(&self) -> bool {
        self.works
    }

    fn opens(&self, spi: u32) -> bool {
        self.opens == Some(spi)
    }

    fn seal(&mut self, packet: &[u8], counted: bool) -> bool {
        assert!(packet.len() <= FRAME_MAX);
        let takes = self.take(FakeWork::Seal(packet.to_vec()));
        if takes && !counted {
            self.walks[0].packets_in.fetch_add(1, Ordering::Relaxed);
        }
        takes
    }

    fn open(&mut self, esp: &[u8], _: &OuterFacts) -> bool {
        self.take(FakeWork::Open(esp.to_vec()))
    }

    fn work(&mut self) {
        if self.is_slow {
            return;
        }
        for work in self.inside.drain(..) {
            match (work, &self.seals_for) {
                (FakeWork::Open(esp), _) => {
                    self.walks[1].packets_out.fetch_add(1, Ordering::Relaxed);
                    // Only the SPI precedes the packet.
                    self.opened.push(esp[4..].to_vec());
                }
                (FakeWork::Seal(packet), Some(sa)) => {
                    self.walks[0].packets_out.fetch_add(1, Ordering::Relaxed);
                    self.sealed.push(SealedByDevice {
                        sa: Arc::clone(sa),
                        tos: 8,
                        dont_fragment: true,
                        header_len: HEADER_LEN,
                        frame: [&[0; HEADER_LEN], &packet[..]].concat(),
                    });
                }
                (FakeWork::Seal(packet), None) => {
                    self.walks[0].packets_in.fetch_sub(1, Ordering::Relaxed);
                    self.returned.push(packet);
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.inside.is_empty()
    }

    fn take_sealed(&mut self) -> Vec<SealedByDevice> {
        std::mem::take(&mut self.sealed)
    }

    fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    fn take_opened(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.opened)
    }

    fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}

/// Makes a site with a device in front, and a second site without one.
fn sites() -> (AcceleratorFront<FakeAccelerator>, [PairSite; 2]) {
    sites_with(PairOptions::default())
}

fn sites_with(options: PairOptions) -> (AcceleratorFront<FakeAccelerator>, [PairSite; 2]) {
    let sites = pair(options);
    let front = AcceleratorFront::new(FakeAccelerator {
        works: true,
        room: 8,
        is_slow: false,
        seals_for: None,
        opens: None,
        inside: Vec::new(),
        sealed: Vec::new(),
        returned: Vec::new(),
        opened: Vec::new(),
        walks: sites[0].plane.walk_counters(),
        asked: 0,
        inside_when_served: None,
        learns: None,
    });
    (front, sites)
}

/// Processes reads of the common port as a worker does.
fn read(
    front: &mut AcceleratorFront<FakeAccelerator>,
    site: &mut PairSite,
    header: &VnetHeader,
    packets: &[Vec<u8>],
) {
    let spd = site.database.spd();
    front.handle_time(&mut site.plane, &spd, 1000);
    for packet in packets {
        let mut read = [&header.encode()[..], packet].concat();
        front.handle_inner(&mut site.plane, &spd, &mut read);
    }
    front.finish_inner(&mut site.plane, &spd);
    site.plane.seal_and_send();
    let (given, counted) = balance(&site.plane.walk_counters()[0]);
    assert_eq!(given, counted + front.device.inside.len() as u64);
}

fn receive(
    front: &mut AcceleratorFront<FakeAccelerator>,
    site: &mut PairSite,
    datagrams: &[Vec<u8>],
) {
    front.handle_time(&mut site.plane, &site.database.spd(), 1000);
    receive_some(front, site, datagrams);
    let (given, counted) = balance(&site.plane.walk_counters()[1]);
    assert_eq!(given, counted);
}

/// Leaves packets where they are: with an engine that is late.
fn read_some(
    front: &mut AcceleratorFront<FakeAccelerator>,
    site: &mut PairSite,
    packets: &[Vec<u8>],
) {
    let spd = site.database.spd();
    front.handle_time(&mut site.plane, &spd, 1000);
    for packet in packets {
        let mut read = [&VnetHeader::default().encode()[..], packet].concat();
        front.handle_inner(&mut site.plane, &spd, &mut read);
    }
    front.finish_inner(&mut site.plane, &spd);
    site.plane.seal_and_send();
}

/// Leaves packets where they are: with a device or an engine that is late, or with those that wait for their SA.
fn receive_some(
    front: &mut AcceleratorFront<FakeAccelerator>,
    site: &mut PairSite,
    datagrams: &[Vec<u8>],
) {
    let (receive_socket, received) = (site.receive_socket(), site.write_down(datagrams));
    front.handle_outer(&mut site.plane, receive_socket, &received, |ike| {
        panic!("{ike:?}");
    });
}

fn packets(numbers: Range<u16>) -> Vec<Vec<u8>> {
    numbers
        .map(|number| udp(0, 7000, &number.to_be_bytes()))
        .collect()
}

#[test]
fn what_it_leaves_to_software_software_does() {
    let (mut front, [mut a, mut b]) = sites();
    let there = packets(0..30);
    read(&mut front, &mut a, &VnetHeader::default(), &there);
    assert!(front.device.asked >= 30, "it was asked first");
    b.receive(&a.take_sent());
    assert_eq!(b.take_written(), there);
}

#[test]
fn what_it_makes_leaves_without_its_headers() {
    let (mut front, [mut a, _]) = sites();
    front.device.seals_for = Some(Arc::clone(&a.outbound));
    let there = packets(0..30);
    read(&mut front, &mut a, &VnetHeader::default(), &there);
    let sent = &a.plane.io.sent;
    assert!(sent.iter().map(|sent| &sent.payload).eq(&there));
    let path = a.outbound.common.path();
    for sent in sent {
        assert_eq!(
            (sent.send_socket, sent.remote),
            (SendSocket::NatT(0), path.remote)
        );
        assert_eq!((sent.tos, sent.df), (8, true));
    }
}

#[test]
fn it_gets_the_segments_of_what_is_to_be_segmented() {
    let (mut front, [mut a, _]) = sites();
    front.device.seals_for = Some(Arc::clone(&a.outbound));
    let header = |segment| VnetHeader {
        gso: Some((GsoKind::UdpL4, segment)),
        checksum: Some((20, 6)),
        header_len: 28,
    };
    let long = udp(0, 7000, &[7; 4000]);
    read(
        &mut front,
        &mut a,
        &header(1000),
        std::slice::from_ref(&long),
    );
    let lens: Vec<usize> = a.take_sent().iter().map(Vec::len).collect();
    assert_eq!(lens, [1028; 4]);
    // Segments that are too long for the device do not reach it.
    let asked = front.device.asked;
    read(&mut front, &mut a, &header(2000), &[long]);
    assert_eq!(front.device.asked, asked);
    assert_eq!(a.plane.io.sent.len(), 1, "software seals both");
}

#[test]
fn it_opens_what_is_for_its_sas() {
    let spi = 77;
    // A burst holds the last packets of an old SA and the first of its successor. Either SA may be
    // in the device.
    for device_first in [true, false] {
        let (mut front, [mut a, mut b]) = sites();
        front.device.opens = Some(spi);
        let [soft, hard] = [0..20, 20..40].map(|numbers: Range<u8>| -> Vec<_> {
            numbers.map(|number| udp(1, 7000, &[number])).collect()
        });
        b.read(0, &soft);
        let device = hard.iter();
        let device: Vec<_> = device
            .map(|packet| [&spi.to_be_bytes(), &packet[..]].concat())
            .collect();
        let mut parts = [(soft, b.take_sent()), (hard, device)];
        if device_first {
            parts.reverse();
        }
        let [(former, first), (new, second)] = parts;
        receive(&mut front, &mut a, &[first, second].concat());
        assert_eq!(front.device.asked, 20 + 2, "eight at a time");
        assert_eq!(a.take_written(), [former, new].concat());
    }
}

/// An engine may still have packets of the old SA when the device gets the first of the new one, or the other way round.
#[test]
fn packets_of_an_sa_that_takes_over_wait_for_those_before() {
    let gate = Arc::<EngineGate>::default();
    gate.is_open.store(true, Ordering::Relaxed);
    gate.is_slow.store(true, Ordering::Relaxed);
    for in_database in [true, false] {
        let (mut front, [mut a, mut b]) = sites_with(PairOptions {
            engines: [vec![behind(&gate)], vec![EngineSource::cpu()]],
            ..PairOptions::default()
        });
        let there: Vec<_> = (0..3).map(|number| udp(1, 7000, &[number])).collect();
        b.read(0, &there[..1]);
        receive_some(&mut front, &mut a, &b.take_sent());
        assert!(a.take_written().is_empty(), "the engine is late");
        let spi = match in_database {
            true => a.inbound.common.spi,
            false => 77,
        };
        a.database.placements().expect(&a.inbound.common.placement);
        front.device.opens = Some(spi);
        let device = [&spi.to_be_bytes()[..], &there[1]].concat();
        receive_some(&mut front, &mut a, std::slice::from_ref(&device));
        assert_eq!(a.take_written(), there[..2]);
        // Now the device is late.
        front.device.is_slow = true;
        receive_some(&mut front, &mut a, &[device]);
        assert!(a.take_written().is_empty());
        front.device.is_slow = false;
        front.device.opens = None;
        b.read(0, &there[2..]);
        receive_some(&mut front, &mut a, &b.take_sent());
        a.plane.drain_inbound();
        assert_eq!(a.take_written(), there[1..]);
    }
}

#[test]
fn packets_that_the_device_seals_late_wait_for_those_before() {
    let gate = Arc::<EngineGate>::default();
    gate.is_open.store(true, Ordering::Relaxed);
    gate.is_slow.store(true, Ordering::Relaxed);
    let (mut front, [mut a, mut b]) = sites_with(PairOptions {
        engines: [vec![behind(&gate)], vec![EngineSource::cpu()]],
        ..PairOptions::default()
    });
    let there = packets(0..10);
    read_some(&mut front, &mut a, &there[..5]);
    assert!(a.plane.io.sent.is_empty(), "the engine is late");
    // The SA goes into the device before the device's tables lead to it.
    let next = a.take_next_outbound();
    assert!(next.sequence.give_away());
    front.device.learns = Some(next);
    read_some(&mut front, &mut a, &there[5..]);
    let sent = a.take_sent();
    assert_eq!(sent[5..], there[5..]);
    b.receive(&sent[..5]);
    assert_eq!(b.take_written(), there[..5]);
}

#[test]
fn nothing_is_under_way_where_sas_come_and_go() {
    let gate = Arc::<EngineGate>::default();
    gate.is_open.store(true, Ordering::Relaxed);
    gate.is_slow.store(true, Ordering::Relaxed);
    let engines = [vec![behind(&gate)], vec![EngineSource::cpu()]];
    let (mut front, [mut a, mut b]) = sites_with(PairOptions {
        engines,
        ..PairOptions::default()
    });
    let there = packets(0..5);
    let spd = a.database.spd();
    read_some(&mut front, &mut a, &there);
    assert!(a.plane.io.sent.is_empty(), "the engine is late");
    front.device.is_slow = true;
    front.device.opens = Some(77);
    let (receive_socket, received) = (a.receive_socket(), a.write_down(&[[0, 0, 0, 77].repeat(5)]));
    front.handle_outer(&mut a.plane, receive_socket, &received, drop);
    assert_eq!(front.device.inside.len(), 1);
    front.device.is_slow = false;
    front.serve(&mut a.plane, &spd);
    assert_eq!(front.device.inside_when_served, Some(0));
    b.receive(&a.take_sent());
    assert_eq!(b.take_written(), there);
}

#[test]
fn what_it_gives_back_of_its_own_sas_is_dropped() {
    let (mut front, [mut a, _]) = sites();
    assert!(a.outbound.sequence.give_away());
    read(&mut front, &mut a, &VnetHeader::default(), &packets(0..300));
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 300);
}

#[test]
fn packets_that_come_before_it_knows_their_sa_are_not_lost() {
    let (mut front, [mut a, _]) = sites();
    assert!(a.outbound.sequence.give_away());
    front.device.learns = Some(Arc::clone(&a.outbound));
    let there = packets(0..30);
    read(&mut front, &mut a, &VnetHeader::default(), &there);
    let sent = &a.plane.io.sent;
    assert!(sent.iter().map(|sent| &sent.payload).eq(&there));
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 0);
}

#[test]
fn what_is_too_long_for_it_is_cut_once() {
    let (mut front, [mut a, _]) = sites();
    assert!(a.outbound.sequence.give_away());
    let long = udp(0, 7000, &[3; 4000]);
    // The device returns the pieces, even with updated tables. Software does not cut them again.
    read(
        &mut front,
        &mut a,
        &VnetHeader::default(),
        std::slice::from_ref(&long),
    );
    assert_eq!(front.device.asked, 6);
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 3);
    assert!(a.plane.io.sent.is_empty());
    // Now the device seals the pieces.
    front.device.seals_for = Some(Arc::clone(&a.outbound));
    read(
        &mut front,
        &mut a,
        &VnetHeader::default(),
        std::slice::from_ref(&long),
    );
    let pieces = a.take_sent();
    assert_eq!(pieces.len(), 3);
    let payload = pieces.iter().flat_map(|piece| piece[20..].to_vec());
    assert!(payload.eq(long[20..].to_vec()));
    // A sender that forbids fragmentation gets an ICMP error.
    read(&mut front, &mut a, &VnetHeader::default(), &[whole(long)]);
    assert_eq!(a.outbound_drops(DropReason::TooBig), 1);
    assert_eq!(a.take_written()[0][20..22], [3, 4]);
}

#[test]
fn what_a_full_one_does_not_take_is_counted() {
    let (mut front, [mut a, _]) = sites();
    front.device.room = 0;
    front.device.opens = Some(77);
    read(&mut front, &mut a, &VnetHeader::default(), &packets(0..5));
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 5);
    receive(&mut front, &mut a, &[[0, 0, 0, 77].repeat(5)]);
    assert_eq!(a.inbound_drops(DropReason::EngineFailed), 1);
    // A piece that was counted when it was made is not counted again.
    assert!(a.outbound.sequence.give_away());
    let long = udp(0, 7000, &[3; 4000]);
    read(&mut front, &mut a, &VnetHeader::default(), &[long]);
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 5 + 3);
}

#[test]
fn one_that_has_failed_gets_no_packets() {
    let (mut front, [mut a, mut b]) = sites();
    front.device.works = false;
    front.device.opens = Some(77);
    let there = packets(0..5);
    read(&mut front, &mut a, &VnetHeader::default(), &there);
    assert_eq!(front.device.asked, 0);
    b.receive(&a.take_sent());
    assert_eq!(b.take_written(), there);
    // The SAs of the device carry nothing. No ICMP error is sent, because no length would help.
    receive(&mut front, &mut a, &[[0, 0, 0, 77].repeat(5)]);
    assert_eq!(a.inbound_drops(DropReason::EngineFailed), 1);
}

/// The device has the SA's replay window, so software must not open its packets.
#[test]
fn packets_that_came_before_its_sa_go_into_it() {
    let (mut front, [mut a, _]) = sites_with(PairOptions {
        early: true,
        ..PairOptions::default()
    });
    let spi = a.inbound.common.spi;
    let packet = [&spi.to_be_bytes()[..], &udp(1, 7000, b"early")].concat();
    let (receive_socket, received) = (a.receive_socket(), a.write_down(&[&packet]));
    front.handle_outer(&mut a.plane, receive_socket, &received, |_| ());
    front.device.opens = Some(spi);
    front.follow_early(&mut a.plane);
    assert_eq!(front.device.asked, 0, "the SA is not there yet");
    a.database.sad().insert(Arc::clone(&a.inbound)).unwrap();
    front.follow_early(&mut a.plane);
    assert_eq!(a.take_written(), [packet[4..].to_vec()]);
    let (given, counted) = balance(&a.plane.walk_counters()[1]);
    assert_eq!((given, counted), (1, 1));
}

/// The device knows an SA before the database does.
#[test]
fn packets_behind_those_that_came_before_its_sa_wait_too() {
    let (mut front, [mut a, _]) = sites_with(PairOptions {
        early: true,
        ..PairOptions::default()
    });
    let spi = a.inbound.common.spi;
    let packet = |text: &[u8]| [&spi.to_be_bytes()[..], &udp(1, 7000, text)].concat();
    let packets = [packet(b"early"), packet(b"later")];
    for (index, packet) in packets.iter().enumerate() {
        front.device.opens = (index > 0).then_some(spi);
        receive_some(&mut front, &mut a, std::slice::from_ref(packet));
    }
    assert_eq!(front.device.asked, 0, "both wait");
    a.database.sad().insert(Arc::clone(&a.inbound)).unwrap();
    front.follow_early(&mut a.plane);
    assert_eq!(a.take_written(), packets.map(|packet| packet[4..].to_vec()));
}

/// The device may still have packets of the SA from which the new one takes over.
#[test]
fn packets_that_came_before_their_sa_wait_for_the_device() {
    let (mut front, [mut a, mut b]) = sites_with(PairOptions {
        early: true,
        ..PairOptions::default()
    });
    let there: Vec<_> = (0..2).map(|number| udp(1, 7000, &[number])).collect();
    front.device.is_slow = true;
    front.device.opens = Some(77);
    let device = [&77_u32.to_be_bytes()[..], &there[0]].concat();
    receive_some(&mut front, &mut a, &[device]);
    b.read(0, &there[1..]);
    receive_some(&mut front, &mut a, &b.take_sent());
    assert!(a.take_written().is_empty());
    front.device.is_slow = false;
    a.database.sad().insert(Arc::clone(&a.inbound)).unwrap();
    front.follow_early(&mut a.plane);
    assert_eq!(a.take_written(), there);
}

/// A packet that another SA has opened begins with its IP header. The device takes ESP.
#[test]
fn a_nested_packet_that_came_before_its_sa_goes_into_it() {
    let (mut front, [mut a, _]) = sites_with(PairOptions {
        early: true,
        ..PairOptions::default()
    });
    let spi = a.inbound.common.spi;
    let esp = [&spi.to_be_bytes()[..], &udp(1, 7000, b"nested")].concat();
    let frame = [ipv4(0, 50, 20 + esp.len()), esp.clone()].concat();
    let facts = OuterFacts {
        header_len: 20,
        ..OuterFacts::new("192.0.2.2:0".parse().unwrap(), false, 0)
    };
    let sad = a.database.sad();
    assert!(a.plane.open[0].walk.push_copy(sad, &frame, &facts).is_err());
    front.device.opens = Some(spi);
    sad.insert(Arc::clone(&a.inbound)).unwrap();
    front.follow_early(&mut a.plane);
    assert_eq!(a.take_written(), [esp[4..].to_vec()]);
}

#[test]
fn no_length_helps_where_it_has_failed() {
    let (mut front, [mut a, _]) = sites();
    front.device.works = false;
    assert!(a.outbound.sequence.give_away());
    let long = udp(0, 7000, &[3; 4000]);
    let both = [whole(long.clone()), long];
    read(&mut front, &mut a, &VnetHeader::default(), &both);
    assert_eq!(a.outbound_drops(DropReason::EngineFailed), 2);
    assert!(a.plane.io.written.is_empty());
}

#[test]
fn other_ports_go_past_it() {
    let (mut front, [mut a, _]) = sites();
    front.device.is_slow = true;
    let there = packets(0..5);
    read(&mut front, &mut a, &VnetHeader::default(), &there);
    assert!(front.is_busy());
    let mut packet = ipv4(0, 1, 28);
    packet.extend([8, 0, 0, 0, 0, 0, 0, 0]);
    a.read(1, [&packet]);
    assert_eq!(front.device.asked, 5);
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 1);
    // Packets that the device returns later arrived on the common port, whatever was read
    // meanwhile.
    front.device.is_slow = false;
    front.poll_device(&mut a.plane, &a.database.spd());
    a.plane.seal_and_send();
    assert_eq!(a.take_sent().len(), there.len());
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 1);
}
