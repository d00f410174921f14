//! Two data planes with static keys, for tests. Lists and a number take the place of sockets,
//! devices and a clock.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_crypto::{Direction, Protocol, Transform};
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters, TunnelOptions};
use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::DfPolicy;
use esplanade_ipsec::wire::checksum;
use esplanade_ipsec::{Database, DropReason, WalkCounters};

use super::counters::IoCounters;
use super::datagram::IkeDatagram;
use super::packet_io::{PacketIo, ReceiveSocket, SendSocket, TunQueue};
use super::{DataPlane, EngineSource, PlaneConfig, Processing, TunPort};
use crate::datagram::{Outgoing, ReceivedDatagram, SendReport};
use crate::slots;
use crate::virtio::{HEADER_LEN, VnetHeader};

/// The interface of the port beside the common one.
pub const OTHER: u32 = 2;
/// UDP packets to this port leave unprotected, by the SPD.
pub const CLEAR_PORT: u16 = 53;
/// UDP packets to this port are discarded, by the SPD.
pub const CLOSED_PORT: u16 = 99;
const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// A packet or super-segment that was written to a port, without its virtio header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub port: usize,
    pub queue: TunQueue,
    pub packet: Vec<u8>,
}

/// An item that was sent, as in [`Outgoing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentItem {
    pub send_socket: SendSocket,
    pub remote: SocketAddr,
    pub tos: u8,
    pub df: bool,
    pub payload: Vec<u8>,
    pub segment: usize,
}

impl SentItem {
    /// Returns the payload as the datagrams that arrive.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let len = match self.segment {
            0 => self.payload.len(),
            len => len,
        };
        self.payload.chunks(len.max(1))
    }
}

#[derive(Debug, Default)]
pub struct RecordedIo {
    pub now_ns: u64,
    /// Length of a pause in nanoseconds.
    pub pause_ns: u64,
    pub written: Vec<Written>,
    pub sent: Vec<SentItem>,
    pub bypassed: Vec<Vec<u8>>,
    /// Number of engines that wake the worker: sealing, opening.
    pub watched: [usize; 2],
    /// There is no socket to send through.
    pub is_shut: bool,
}

impl PacketIo for RecordedIo {
    fn write(&mut self, port: usize, queue: TunQueue, slices: &[IoSlice<'_>]) -> io::Result<()> {
        assert_eq!(slices[0].len(), HEADER_LEN);
        let packet = slices[1..].iter().flat_map(|slice| slice.to_vec());
        self.written.push(Written {
            port,
            queue,
            packet: packet.collect(),
        });
        Ok(())
    }

    fn send_socket(&self, path: &Path, protocol: Protocol) -> Option<SendSocket> {
        assert_eq!(protocol, Protocol::Esp);
        let send_socket = match path.udp_encap {
            true => SendSocket::NatT(0),
            false => SendSocket::Esp(0),
        };
        (!self.is_shut).then_some(send_socket)
    }

    fn send(&mut self, send_socket: SendSocket, items: &[Outgoing<'_>]) -> SendReport {
        let sent = items.iter().map(|item| SentItem {
            send_socket,
            remote: item.remote,
            tos: item.tos,
            df: item.df,
            payload: item.payload.to_vec(),
            segment: item.segment.into(),
        });
        self.sent.extend(sent);
        SendReport {
            sent: items.iter().map(Outgoing::packets).sum(),
            ..SendReport::default()
        }
    }

    fn bypass(&mut self, packet: &[u8]) -> io::Result<()> {
        self.bypassed.push(packet.to_vec());
        Ok(())
    }

    fn pause(&mut self) -> u64 {
        self.now_ns += self.pause_ns;
        self.now_ns
    }

    fn watch(&mut self, _: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
        self.watched[usize::from(direction == Direction::Open)] += 1;
        Ok(())
    }

    fn unwatch(&mut self, _: BorrowedFd<'_>) {}
}

#[derive(Debug)]
pub struct PairSite {
    pub plane: DataPlane<RecordedIo>,
    pub database: Arc<Database>,
    pub outbound: Arc<OutboundSa>,
    pub inbound: Arc<InboundSa>,
    pub paths: Arc<PathMtus>,
    pub counters: Arc<IoCounters>,
    pub ike: Vec<IkeDatagram>,
    index: usize,
    udp_encap: bool,
}

/// The options that differ between tests.
#[derive(Debug)]
pub struct PairOptions {
    pub transform: Transform,
    pub udp_encap: bool,
    pub df: DfPolicy,
    pub processing: Processing,
    pub engines: [Vec<EngineSource>; 2],
    pub workers: usize,
    /// The inbound SAs are not there yet.
    pub early: bool,
    /// The interface of the SAs, by which they find the port of what they open.
    pub interface: u32,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            transform: Transform::ESP[0],
            udp_encap: true,
            df: DfPolicy::default(),
            processing: Processing::default(),
            engines: [vec![EngineSource::cpu()], vec![EngineSource::cpu()]],
            workers: 1,
            early: false,
            interface: 0,
        }
    }
}

/// Makes two sites with one SA in each direction. The time is one second.
pub fn pair(options: PairOptions) -> [PairSite; 2] {
    let port = if options.udp_encap { 4500 } else { 0 };
    let databases = [0, 1].map(|_| Arc::new(Database::new()));
    let spis = databases
        .each_ref()
        .map(|database| database.sad().allocate_spi().unwrap());
    let key: Vec<u8> = (0..options.transform.key_material_len())
        .map(|at| (at * 7 + 1) as u8)
        .collect();
    let parameters = |spi, local: usize, remote: usize| SaParameters {
        esn: true,
        interface: options.interface,
        // A whole burst may arrive in another order.
        replay_window: 8192,
        peer_replay_window: 8192,
        tunnel: TunnelOptions {
            df: options.df,
            ..TunnelOptions::default()
        },
        ..SaParameters::new(
            spi,
            PolicyId(1),
            options.transform,
            &key,
            selectors(local, remote),
            Path {
                local: SocketAddr::new(OUTER[local].into(), port),
                remote: SocketAddr::new(OUTER[remote].into(), port),
                udp_encap: options.udp_encap,
            },
        )
    };
    let mut engines = options.engines.into_iter();
    [0, 1].map(|index| {
        let (database, other) = (Arc::clone(&databases[index]), 1 - index);
        let inbound = Arc::new(InboundSa::new(parameters(spis[index], index, other)).unwrap());
        if !options.early {
            database.sad().insert(Arc::clone(&inbound)).unwrap();
        }
        let outbound = Arc::new(OutboundSa::new(parameters(spis[other], index, other)).unwrap());
        let policy = Arc::new(Policy::new(PolicyId(1), "pair"));
        policy.install(Arc::clone(&outbound));
        database.publish_spd(spd(index, policy));
        let sas = (outbound, inbound);
        let options = (options.udp_encap, options.processing, options.workers);
        site(
            index,
            database,
            sas,
            engines.next().unwrap_or_default(),
            options,
        )
    })
}

/// Makes one of two sites, with the SAs in its database. The options are: encapsulation in UDP, processing, workers.
pub fn site(
    index: usize,
    database: Arc<Database>,
    (outbound, inbound): (Arc<OutboundSa>, Arc<InboundSa>),
    engines: Vec<EngineSource>,
    (udp_encap, processing, workers): (bool, Processing, usize),
) -> PairSite {
    let (paths, counters) = (Arc::<PathMtus>::default(), Arc::<IoCounters>::default());
    let config = PlaneConfig {
        ports: vec![TunPort::new(0, true, processing.mss_clamp), {
            TunPort::new(OTHER, true, None)
        }],
        database: Arc::clone(&database),
        paths: Arc::clone(&paths),
        receive_len: 1 << 18,
        flows: 1024,
        workers,
        processing,
        dummies: None,
        engines,
        counters: Arc::clone(&counters),
        now_ns: 0,
    };
    let mut site = PairSite {
        plane: DataPlane::new(RecordedIo::default(), config).unwrap(),
        database,
        outbound,
        inbound,
        paths,
        counters,
        ike: Vec::new(),
        index,
        udp_encap,
    };
    site.at(1000);
    site
}

fn net(index: usize) -> AddressRange {
    AddressRange::from_prefix(IpAddr::from([10, index as u8 + 1, 0, 0]), 16).unwrap()
}

fn selectors(local: usize, remote: usize) -> SelectorSet {
    SelectorSet::new(vec![Selector::between(net(local), net(remote))]).unwrap()
}

fn spd(index: usize, policy: Arc<Policy>) -> Spd {
    let to_port = |port, action| {
        let selector = Selector {
            protocol: NextLayer::Is(17),
            remote_ports: PortRange::Range(port, port),
            ..Selector::between(net(index), net(1 - index))
        };
        SpdEntry::new(SelectorSet::new(vec![selector]).unwrap(), action)
    };
    Spd::new(vec![
        to_port(CLEAR_PORT, Action::Bypass),
        to_port(CLOSED_PORT, Action::Discard),
        SpdEntry::new(selectors(index, 1 - index), Action::Protect(policy)),
    ])
}

impl PairSite {
    /// Sets the time in milliseconds.
    pub fn at(&mut self, now_ms: u64) {
        // The clock counts milliseconds from 1.
        self.at_ns((now_ms - 1) * 1_000_000);
    }

    pub fn at_ns(&mut self, now_ns: u64) {
        self.plane.io.now_ns = now_ns;
        self.plane.handle_time(now_ns);
    }

    /// Sends with a new SA from now on, and returns it. The other site has no such SA.
    pub fn take_next_outbound(&mut self) -> Arc<OutboundSa> {
        let former = &self.outbound.common;
        let (transform, path) = (former.transform(), former.path());
        let key = vec![7; transform.key_material_len()];
        let selectors = selectors(self.index, 1 - self.index);
        let next = SaParameters::new(
            former.spi + 1,
            PolicyId(1),
            transform,
            &key,
            selectors,
            path,
        );
        self.outbound = Arc::new(OutboundSa::new(next).unwrap());
        let policy = Arc::new(Policy::new(PolicyId(1), "pair"));
        policy.install(Arc::clone(&self.outbound));
        self.database.publish_spd(spd(self.index, policy));
        Arc::clone(&self.outbound)
    }

    /// Reads packets from a port as one burst.
    pub fn read<'a>(&mut self, port: usize, packets: impl IntoIterator<Item = &'a Vec<u8>>) {
        for packet in packets {
            self.read_as(port, &VnetHeader::default(), packet);
        }
        self.plane.seal_and_send();
    }

    /// Reads one packet or super-segment, and does not end the burst.
    pub fn read_as(&mut self, port: usize, header: &VnetHeader, packet: &[u8]) {
        assert!(self.plane.can_seal());
        let mut read = [&header.encode()[..], packet].concat();
        let spd = self.database.spd();
        self.plane.handle_inner(&spd, port, &mut read);
    }

    /// Returns the kind of socket on which ESP arrives.
    pub fn receive_socket(&self) -> ReceiveSocket {
        match self.udp_encap {
            true => ReceiveSocket::NatT(SocketAddr::new(OUTER[self.index].into(), 4500)),
            false => ReceiveSocket::Esp { with_header: false },
        }
    }

    /// Receives datagrams from the other site in one burst.
    pub fn receive<D: AsRef<[u8]>>(&mut self, datagrams: &[D]) {
        let (receive_socket, received) = (self.receive_socket(), self.write_down(datagrams));
        let Self { plane, ike, .. } = self;
        plane.handle_outer(receive_socket, &received, |datagram| ike.push(datagram));
    }

    /// Writes datagrams into the data plane's receive buffer.
    pub fn write_down<D: AsRef<[u8]>>(&mut self, datagrams: &[D]) -> Vec<ReceivedDatagram> {
        let port = if self.udp_encap { 4500 } else { 0 };
        let remote = SocketAddr::new(OUTER[1 - self.index].into(), port);
        let (_, room) = self.plane.room().unwrap();
        let mut at = 0;
        let mut received = Vec::new();
        for datagram in datagrams {
            let datagram = datagram.as_ref();
            let meta = ReceivedDatagram {
                at,
                len: datagram.len(),
                remote,
                local: Some(OUTER[self.index].into()),
                tos: 0,
                segment: datagram.len(),
                truncated: false,
            };
            room[at..][..datagram.len()].copy_from_slice(datagram);
            at = slots::with_spare(&meta).end;
            received.push(meta);
        }
        received
    }

    /// Returns what the site sent since the last call, as datagrams.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut self.plane.io.sent);
        sent.iter()
            .flat_map(|sent| sent.datagrams().map(<[u8]>::to_vec))
            .collect()
    }

    /// Returns what the site wrote since the last call.
    pub fn take_written(&mut self) -> Vec<Vec<u8>> {
        let written = std::mem::take(&mut self.plane.io.written);
        written.into_iter().map(|written| written.packet).collect()
    }

    pub fn outbound_drops(&self, reason: DropReason) -> u64 {
        self.plane.walk_counters()[0].drops.get(reason)
    }

    pub fn inbound_drops(&self, reason: DropReason) -> u64 {
        self.plane.walk_counters()[1].drops.get(reason)
    }
}

/// Returns how many packets entered a walk, and how many left it in any way.
pub fn balance(counters: &WalkCounters) -> (u64, u64) {
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let drops: u64 = DropReason::ALL
        .iter()
        .map(|reason| counters.drops.get(*reason))
        .sum();
    let out = get(&counters.packets_out) + get(&counters.packets_bypassed) + drops;
    (get(&counters.packets_in) + get(&counters.dummies), out)
}

/// Makes a UDP packet from one site's network to the other's. It has no checksum, so packets of a
/// flow are not merged.
pub fn udp(from: usize, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(from, 17, 28 + payload.len());
    packet.extend(40_000u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// Makes an IPv4 header that permits fragmentation.
pub fn ipv4(from: usize, protocol: u8, total_len: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
    header.extend([10, from as u8 + 1, 0, 7]);
    header.extend([10, 2 - from as u8, 0, 9]);
    seal_header(&mut header);
    header
}

/// Sets DF in a packet.
pub fn whole(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6] |= 0x40;
    seal_header(&mut packet);
    packet
}

/// Computes the checksum of an IPv4 header.
pub fn seal_header(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Makes packets of many lengths, each with its number.
pub fn packets(from: usize, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let payload = |number: u32| {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(4 + (number as usize * 37) % 1200, number as u8);
        payload
    };
    numbers
        .map(|number| udp(from, 7000, &payload(number)))
        .collect()
}
