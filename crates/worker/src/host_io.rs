//! The real I/O of a worker: its TUN queues, its sockets and its clock.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::{Direction, Protocol};
use esplanade_dataplane::Paused;
use esplanade_dataplane::counters::{IoCounters, add};
use esplanade_dataplane::packet_io::{PacketIo, ReceiveSocket, SendSocket, TunQueue};
use esplanade_dataplane::slots::ReceiveSlots;
use esplanade_ipsec::sa::Path;

use super::links::{LinkQueue, XdpLinks};
use super::paths::PathErrors;
use super::queues::TunQueues;
use super::wakers::{Purpose, Wakers};
use super::{Clock, WorkerSockets};
use esplanade_host::io::sys::EVENTS_MAX;
use esplanade_host::io::udp::{Outgoing, ReceivedDatagram, SendReport};

/// Length of the longest datagram in bytes.
const DATAGRAM_MAX: usize = 65_536;
/// Layout for a UDP socket. Eight coalesced datagrams take half a megabyte, which fits into the
/// cache of a CPU.
const UDP_SLOTS: ReceiveSlots = ReceiveSlots {
    count: 8,
    len: DATAGRAM_MAX,
    more: 0,
};
/// Layout for a raw socket, where nothing is coalesced. Most packets fit their slot, and a few need
/// the overflow area.
pub(super) const RAW_SLOTS: ReceiveSlots = ReceiveSlots {
    count: 64,
    len: 2048,
    more: DATAGRAM_MAX - 2048,
};

/// The interval, in milliseconds, at which the worker asks the kernel how much it dropped.
const COUNT_EVERY_MS: u64 = 500;

const TOKEN_CONTROL: u64 = 0;
const TOKEN_SEALED: u64 = 1;
const TOKEN_OPENED: u64 = 2;
/// Epoll token of the first socket. The tokens of the ports follow those of the sockets, because
/// ports come and go.
const TOKEN_SOURCES: u64 = 3;

/// A socket to receive from, by its index among the sockets of its kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReceiveSource {
    Ike(usize),
    NatT(usize),
    Esp(usize),
    Ah(usize),
    Icmp(usize),
    /// An AF_XDP link, past the kernel's stack.
    Link(usize),
}

impl ReceiveSource {
    pub fn slots(self) -> ReceiveSlots {
        match self {
            Self::Esp(_) | Self::Ah(_) => RAW_SLOTS,
            _ => UDP_SLOTS,
        }
    }

    fn purpose(self) -> Purpose {
        match self {
            Self::Icmp(_) => Purpose::Other,
            _ => Purpose::Inbound,
        }
    }
}

/// The reason why a worker woke.
#[derive(Debug, Clone, Copy)]
pub(super) enum WakeReason {
    /// The control thread wants something.
    Control,
    /// An engine of this direction has results.
    Engine(Direction),
    Port(usize),
    Socket(ReceiveSource),
}

/// A TUN device with the interface that the SPD's entries name.
#[derive(Debug)]
struct TunDevice {
    interface: u32,
    tun: TunQueues,
}

#[derive(Debug)]
pub(super) struct HostIo {
    clock: Clock,
    /// The devices, by the index of their port. `None` stands for a port without a device.
    devices: Vec<Option<TunDevice>>,
    sockets: WorkerSockets,
    sources: Vec<ReceiveSource>,
    wakers: Wakers,
    path_errors: PathErrors,
    links: XdpLinks,
    counts_at_ms: u64,
    counters: Arc<IoCounters>,
}

impl HostIo {
    /// Opens the I/O. `tuns` is in the order of the ports, and `control` wakes the worker.
    /// `may_pause` means that an engine may return its batches late.
    pub fn new(
        clock: Clock,
        tuns: Vec<(u32, TunQueues)>,
        mut sockets: WorkerSockets,
        control: BorrowedFd<'_>,
        may_pause: bool,
        counters: Arc<IoCounters>,
    ) -> io::Result<Self> {
        let mut sources: Vec<ReceiveSource> =
            (0..sockets.nat_t.len()).map(ReceiveSource::NatT).collect();
        sources.extend((0..sockets.ike.len()).map(ReceiveSource::Ike));
        sources.extend((0..sockets.esp.len()).map(ReceiveSource::Esp));
        sources.extend((0..sockets.ah.len()).map(ReceiveSource::Ah));
        sources.extend((0..sockets.icmp.len()).map(ReceiveSource::Icmp));
        let links = std::mem::take(&mut sockets.links);
        let links = XdpLinks::new(links, sockets.mark.unwrap_or(0));
        sources.extend((0..links.count()).map(ReceiveSource::Link));
        let mut host = Self {
            clock,
            devices: Vec::new(),
            sockets,
            sources,
            wakers: Wakers::new(may_pause)?,
            path_errors: PathErrors::new(),
            links,
            counts_at_ms: 0,
            counters,
        };
        host.wakers.add(control, TOKEN_CONTROL, Purpose::Other)?;
        for (source, token) in host.sources.iter().zip(TOKEN_SOURCES..) {
            host.watch_source(*source, token)?;
        }
        for (interface, tun) in tuns {
            host.set_tun(interface, tun)?;
        }
        Ok(host)
    }

    /// Waits until a descriptor is ready. Returns the number of tokens.
    pub fn wait(
        &self,
        paused: Paused,
        tokens: &mut [u64; EVENTS_MAX],
        timeout: Duration,
    ) -> io::Result<usize> {
        self.wakers.wait(paused, tokens, timeout)
    }

    /// Returns what a token stands for.
    pub fn ready(&self, token: u64) -> Option<WakeReason> {
        match token {
            TOKEN_CONTROL => return Some(WakeReason::Control),
            TOKEN_SEALED => return Some(WakeReason::Engine(Direction::Seal)),
            TOKEN_OPENED => return Some(WakeReason::Engine(Direction::Open)),
            _ => {}
        }
        let index = usize::try_from(token.checked_sub(TOKEN_SOURCES)?).ok()?;
        Some(match self.sources.get(index) {
            Some(source) => WakeReason::Socket(*source),
            None => WakeReason::Port(index - self.sources.len()),
        })
    }

    /// Reads the next packet that was routed into a port, after its virtio header. Returns `None`
    /// when none waits.
    pub fn read(&self, port: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device(port) {
            Some(device) => device.tun.own().read(buffer),
            None => Ok(None),
        }
    }

    /// Returns the kind of packets that a socket brings. Returns `None` for a socket that brings
    /// none.
    pub fn receive_socket(&self, source: ReceiveSource) -> Option<ReceiveSocket> {
        Some(match source {
            ReceiveSource::Ike(index) => ReceiveSocket::Ike(self.sockets.ike[index].local()),
            ReceiveSource::NatT(index) => ReceiveSocket::NatT(self.sockets.nat_t[index].local()),
            ReceiveSource::Esp(index) => {
                let with_header = self.sockets.esp[index].is_v4();
                ReceiveSocket::Esp { with_header }
            }
            ReceiveSource::Link(_) => ReceiveSocket::Esp { with_header: false },
            ReceiveSource::Ah(_) => ReceiveSocket::Ah,
            ReceiveSource::Icmp(_) => return None,
        })
    }

    /// Returns the descriptor of a socket, or `None` for a link's queue that failed.
    pub fn descriptor(&self, source: ReceiveSource) -> Option<BorrowedFd<'_>> {
        Some(match source {
            ReceiveSource::Ike(index) => self.sockets.ike[index].as_fd(),
            ReceiveSource::NatT(index) => self.sockets.nat_t[index].as_fd(),
            ReceiveSource::Esp(index) => self.sockets.esp[index].as_fd(),
            ReceiveSource::Ah(index) => self.sockets.ah[index].as_fd(),
            ReceiveSource::Icmp(index) => self.sockets.icmp[index].as_fd(),
            ReceiveSource::Link(index) => return self.links.descriptor(index),
        })
    }

    /// Tells whether packets wait for room on a link. Then [`Self::retry_sends`] must be called soon.
    pub fn is_stuck(&self) -> bool {
        self.links.is_stuck()
    }

    /// Sends the waiting packets again. Counts, from time to time, what the kernel dropped.
    pub fn retry_sends(&mut self, now_ms: u64) {
        if self.links.is_empty() {
            return;
        }
        self.links.retry_sends();
        if now_ms >= self.counts_at_ms {
            self.counts_at_ms = now_ms + COUNT_EVERY_MS;
            add(&self.counters.link_dropped, self.links.take_dropped());
            self.links.give_up_all_dead();
        }
    }

    /// Receives from a link past the kernel's stack.
    pub fn receive(&mut self, link: usize, buffer: &mut [u8], packets: &mut Vec<ReceivedDatagram>) {
        let others = self.links.receive(link, buffer, packets);
        add(&self.counters.runts, others);
        add(&self.counters.link_received, packets.len() as u64);
    }

    /// From now on this queue stands for the link of its name.
    pub fn set_link(&mut self, queue: LinkQueue) -> io::Result<()> {
        let Some(index) = self.links.replace(queue) else {
            return Ok(());
        };
        let is_it =
            |source: &ReceiveSource| matches!(source, ReceiveSource::Link(at) if *at == index);
        let Some(at) = self.sources.iter().position(is_it) else {
            return Ok(());
        };
        self.watch_source(ReceiveSource::Link(index), TOKEN_SOURCES + at as u64)
    }

    /// Gives up the queue of a link that is gone.
    pub fn lose_link(&mut self, name: &str) {
        self.links.lose(name);
    }

    fn watch_source(&self, source: ReceiveSource, token: u64) -> io::Result<()> {
        match self.descriptor(source) {
            Some(fd) => self.wakers.add(fd, token, source.purpose()),
            None => Ok(()),
        }
    }

    /// Reads the waiting ICMP errors, if the socket is for them.
    pub fn receive_errors(&mut self, source: ReceiveSource) {
        if let ReceiveSource::Icmp(index) = source {
            let now_ms = self.clock.now_ms();
            let (sockets, counters) = (&self.sockets, &self.counters);
            self.path_errors
                .receive_errors(sockets, index, counters, now_ms);
        }
    }

    /// Stops watching a TUN device that is gone.
    pub fn lose_tun(&mut self, port: usize) -> io::Result<()> {
        match self.device(port) {
            Some(device) => {
                let fd = device.tun.own().as_fd();
                self.wakers.remove(fd, Purpose::Outbound)
            }
            None => Ok(()),
        }
    }

    pub fn tun_name(&self, port: usize) -> &str {
        self.device(port)
            .map_or("", |device| device.tun.own().name())
    }

    fn device(&self, port: usize) -> Option<&TunDevice> {
        self.devices.get(port)?.as_ref()
    }

    fn port_of(&self, interface: u32) -> Option<usize> {
        let is_of = |device: &TunDevice| device.interface == interface;
        let mut devices = self.devices.iter();
        devices.position(|device| device.as_ref().is_some_and(is_of))
    }

    /// From now on these queues carry the interface's packets. Returns the index of its port if the
    /// port is new.
    pub fn set_tun(&mut self, interface: u32, tun: TunQueues) -> io::Result<Option<usize>> {
        let known = self.port_of(interface);
        let free = || self.devices.iter().position(Option::is_none);
        let port = known.or_else(free).unwrap_or(self.devices.len());
        let token = TOKEN_SOURCES + (self.sources.len() + port) as u64;
        let purpose = Purpose::Outbound;
        self.wakers.add(tun.own().as_fd(), token, purpose)?;
        let device = Some(TunDevice { interface, tun });
        match self.devices.get_mut(port) {
            None => self.devices.push(device),
            Some(place) => {
                if let Some(former) = std::mem::replace(place, device) {
                    // Other workers may still hold the old device. If its loss was noticed, it is
                    // no longer in the set.
                    let _ = self.wakers.remove(former.tun.own().as_fd(), purpose);
                }
            }
        }
        Ok(known.is_none().then_some(port))
    }

    /// Gives up the device of an interface.
    pub fn remove_tun(&mut self, interface: u32) {
        let port = self.port_of(interface);
        let place = port.and_then(|port| self.devices.get_mut(port));
        if let Some(device) = place.and_then(Option::take) {
            let _ = (self.wakers).remove(device.tun.own().as_fd(), Purpose::Outbound);
        }
    }
}

impl PacketIo for HostIo {
    fn write(&mut self, port: usize, queue: TunQueue, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let Some(TunDevice { tun, .. }) = self.device(port) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let queue = match queue {
            TunQueue::Own => tun.own(),
            // The second slice is the first packet; the virtio header comes before it.
            TunQueue::OfFlow => tun.of_flow(slices.get(1).map_or(&[][..], |slice| slice)),
        };
        queue.write(slices)
    }

    fn send_socket(&self, path: &Path, protocol: Protocol) -> Option<SendSocket> {
        let WorkerSockets { nat_t, esp, ah, .. } = &self.sockets;
        let (local, v4) = (path.local.ip(), path.remote.is_ipv4());
        if protocol == Protocol::Ah {
            let serves = ah.iter().position(|socket| socket.serves(local, v4));
            return serves.map(SendSocket::Ah);
        }
        if !path.udp_encap {
            let serves = esp.iter().position(|socket| socket.serves(local, v4));
            return serves.map(SendSocket::Esp);
        }
        let serves = nat_t.iter().position(|socket| {
            let bound = socket.local();
            bound.is_ipv4() == v4 && (bound.ip().is_unspecified() || bound.ip() == local)
        });
        serves.map(SendSocket::NatT)
    }

    fn send(&mut self, send_socket: SendSocket, items: &[Outgoing<'_>]) -> SendReport {
        let report = match send_socket {
            SendSocket::NatT(index) => self.sockets.nat_t[index].send(items),
            SendSocket::Esp(index) if self.links.is_empty() => self.sockets.esp[index].send(items),
            SendSocket::Esp(index) => {
                let (socket, now_ms) = (&self.sockets.esp[index], self.clock.now_ms());
                let sent = self.links.send(items, now_ms, |items| socket.send(items));
                add(&self.counters.link_sent, sent.1);
                sent.0
            }
            SendSocket::Ah(index) => self.sockets.ah[index].send(items),
        };
        if let Some(remote) = report.too_big_for {
            let (sockets, counters) = (&self.sockets, &self.counters);
            let now_ms = self.clock.now_ms();
            self.path_errors.refused(sockets, remote, counters, now_ms);
        }
        report
    }

    fn bypass(&mut self, packet: &[u8]) -> io::Result<()> {
        match &self.sockets.bypass {
            Some(socket) => socket.send(packet),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn pause(&mut self) -> u64 {
        std::thread::yield_now();
        self.clock.now_ns()
    }

    fn watch(&mut self, engine: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
        let token = match direction {
            Direction::Seal => TOKEN_SEALED,
            Direction::Open => TOKEN_OPENED,
        };
        self.wakers.add(engine, token, Purpose::Other)
    }

    fn unwatch(&mut self, engine: BorrowedFd<'_>) {
        // A closed descriptor has already left the set.
        let _ = self.wakers.remove(engine, Purpose::Other);
    }
}
