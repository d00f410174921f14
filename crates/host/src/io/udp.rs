//! UDP sockets with segmentation on send and coalescing on receive.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use super::sys::{check, set_option, would_block};
use super::{message, steer};

pub use super::message::DatagramReceiver;
pub use esplanade_dataplane::datagram::{
    Outgoing, PAYLOAD_MAX, ReceivedDatagram, SEGMENTS_MAX, SEND_MAX, SendReport,
};

/// Size in bytes of a socket's receive buffer and send buffer, if the system permits it.
const SOCKET_BUFFER: i32 = 8 << 20;

/// Options that UDP and raw sockets share.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// Firewall mark of everything sent. Routing rules use it to tell our packets from traffic to
    /// protect.
    pub mark: Option<u32>,
    /// Several sockets share the port. Without [`UdpSocket::spread`], the kernel keeps each peer on
    /// one socket.
    pub reuse_port: bool,
}

pub(super) fn open(
    domain: Domain,
    kind: Type,
    protocol: Protocol,
    options: &SocketOptions,
) -> io::Result<Socket> {
    let socket = Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol))?;
    if let Some(mark) = options.mark {
        socket.set_mark(mark)?;
    }
    for (forced, polite) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if set_option(socket.as_fd(), libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
            set_option(socket.as_fd(), libc::SOL_SOCKET, polite, SOCKET_BUFFER)?;
        }
    }
    if domain == Domain::IPV4 {
        set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    } else {
        set_option(
            socket.as_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            1,
        )?;
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    }
    set_df(socket.as_fd(), domain == Domain::IPV4, false)?;
    Ok(socket)
}

/// Sets or clears DF. With DF, a packet may be as long as the interface permits: the kernel must
/// not obey ICMP errors, because it believes all of them. [`esplanade_ipsec::pmtu`] decides which
/// errors to believe. Without DF, the kernel fragments what exceeds the interface's MTU. For IPv6
/// it also fragments what exceeds the path's MTU, because routers cannot.
fn set_df(fd: BorrowedFd<'_>, v4: bool, df: bool) -> io::Result<()> {
    let (level, name, value) = match (v4, df) {
        (true, true) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        (true, false) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_OMIT,
        ),
        (false, true) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
        (false, false) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    };
    set_option(fd, level, name, value)
}

/// A bound UDP socket. Threads may share it.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    df: Mutex<DfState>,
    /// UDP_SEGMENT has not failed on this socket.
    segmentation: AtomicBool,
}

impl UdpSocket {
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = open(domain, Type::DGRAM, Protocol::UDP, options)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        // Best effort: a kernel without UDP_GRO delivers one datagram at a time.
        if let Err(error) = set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1) {
            tracing::debug!("the kernel does not coalesce received UDP: {error}");
        }
        let local = socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        Ok(Self {
            socket,
            local,
            df: Mutex::new(DfState::new(local.is_ipv4())),
            segmentation: AtomicBool::new(true),
        })
    }

    /// Spreads ESP by its SPI over the first `sockets` sockets that share this address and port.
    /// All other packets go to the first socket.
    pub fn spread(&self, sockets: u32) -> io::Result<()> {
        steer::spread(self.as_fd(), sockets)
    }

    /// Returns the address to which the socket is bound.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends `items` in order. Cuts a super-packet here if the kernel cannot cut it.
    pub fn send(&self, items: &[Outgoing<'_>]) -> SendReport {
        let mut report = SendReport::default();
        let mut df = self.df.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = items;
        while let Some(first) = rest.first() {
            df.set(self.as_fd(), first.df);
            let sent = if first.segment != 0 && !self.segmentation.load(Ordering::Relaxed) {
                send_pieces(self.as_fd(), first, &mut report);
                1
            } else {
                let run = rest.iter().take_while(|item| item.df == first.df).count();
                send_items(self.as_fd(), &rest[..run], &mut report, |error| {
                    self.refuse_segmentation(error)
                })
            };
            rest = &rest[sent..];
        }
        report
    }

    fn refuse_segmentation(&self, error: &io::Error) {
        // EIO means that the device of the route cannot complete checksums. That does not change,
        // so stop using segmentation.
        let lasting = error.raw_os_error() == Some(libc::EIO);
        if lasting && self.segmentation.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "the kernel refuses UDP segmentation ({error}); sending packet by packet from here on"
            );
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The DF setting of a socket. DF is an option of the socket and not of a message, so senders take
/// turns.
#[derive(Debug)]
pub(super) struct DfState {
    v4: bool,
    df: bool,
}

impl DfState {
    pub(super) fn new(v4: bool) -> Self {
        Self { v4, df: false }
    }

    pub(super) fn set(&mut self, fd: BorrowedFd<'_>, df: bool) {
        if self.df == df {
            return;
        }
        match set_df(fd, self.v4, df) {
            Ok(()) => self.df = df,
            Err(error) => tracing::trace!("cannot change DF: {error}"),
        }
    }
}

/// Sends items with the same DF in one `sendmmsg`. Returns how many items are finished, whether
/// sent or counted as lost.
pub(super) fn send_items(
    fd: BorrowedFd<'_>,
    items: &[Outgoing<'_>],
    report: &mut SendReport,
    refused: impl Fn(&io::Error),
) -> usize {
    let Some(first) = items.first() else { return 0 };
    let error = match message::send(fd, items) {
        Ok(count) => {
            report.sent += items.iter().take(count).map(Outgoing::packets).sum::<u64>();
            return count;
        }
        Err(error) => error,
    };
    match error.raw_os_error() {
        _ if would_block(&error) => {
            if wait_writable(fd) {
                return 0;
            }
            report.failed += first.packets();
        }
        // EINVAL and EMSGSIZE mean that a segment exceeds the MTU. Single packets can be
        // fragmented.
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if first.segment != 0 => {
            refused(&error);
            send_pieces(fd, first, report);
        }
        Some(libc::EMSGSIZE) => {
            report.too_big += 1;
            report.too_big_for = Some(first.remote.ip());
        }
        _ => {
            tracing::trace!("cannot send to {}: {error}", first.remote);
            report.failed += first.packets();
        }
    }
    1
}

/// Sends the segments of one item as separate packets.
fn send_pieces(fd: BorrowedFd<'_>, item: &Outgoing<'_>, report: &mut SendReport) {
    let chunks = item.payload.chunks(usize::from(item.segment).max(1));
    let pieces: Vec<Outgoing<'_>> = chunks
        .map(|payload| Outgoing {
            payload,
            segment: 0,
            ..*item
        })
        .collect();
    let mut rest = &pieces[..];
    while !rest.is_empty() {
        rest = &rest[send_items(fd, rest, report, |_| {})..];
    }
}

/// Waits up to 2 ms for room in the send buffer. A link that stays blocked loses packets and does
/// not delay the other tunnels.
fn wait_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the pointer names one pollfd, which outlives the call.
    check(unsafe { libc::poll(&raw mut poll, 1, 2) }).is_ok_and(|ready| ready == 1)
}
