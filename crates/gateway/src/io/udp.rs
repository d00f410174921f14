//! UDP sockets with segmentation on send and coalescing on receive.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::AddAssign;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use super::sys::{check, set_option, would_block};
use super::{message, steer};

pub use super::message::{Outgoing, Receiver, SEND_MAX};
pub use super::received::Received;

/// The kernel's older limit for the segments of one send (UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 64;
/// Largest UDP payload over IPv4, and so the most bytes of one send.
pub const PAYLOAD_MAX: usize = 65_507;

/// Receive and send buffers of a socket, where the system allows so much.
const SOCKET_BUFFER: i32 = 8 << 20;

/// Options common to UDP and raw sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// Mark on everything sent, so that routing rules can tell it from the traffic to protect.
    pub mark: Option<u32>,
    /// Several sockets share the port. Unless they [`UdpSocket::spread`], the kernel keeps a peer on one.
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

/// Sets or clears DF. With it a packet may be as long as the interface takes: what ICMP errors say about the path is
/// for [`esplanade_ipsec::pmtu`] to believe or not, as the kernel believes anybody. Without it the kernel fragments what
/// exceeds the interface's MTU, and in IPv6, where nobody else can, what exceeds the path's.
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
    /// UDP_SEGMENT works, as far as is known.
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
        // Best effort: a kernel without it gives one datagram at a time.
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

    /// Spreads ESP over the first `sockets` that were bound to this one's address and port, by the SPI; all else goes to
    /// the first.
    pub fn spread(&self, sockets: u32) -> io::Result<()> {
        steer::spread(self.as_fd(), sockets)
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends `items` in order. A super-packet that the kernel will not cut is cut here.
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
        // EIO: the route's device cannot complete checksums; then nothing segmented will ever leave by it.
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

/// What a send did, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    pub sent: u64,
    /// Larger than the interface takes, with DF.
    pub too_big: u64,
    /// Where one of those was to go.
    pub too_big_for: Option<IpAddr>,
    /// Refused otherwise, or no room in the socket's buffer.
    pub failed: u64,
}

impl AddAssign for SendReport {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.too_big += other.too_big;
        self.too_big_for = other.too_big_for.or(self.too_big_for);
        self.failed += other.failed;
    }
}

/// The socket's DF setting. It is an option of the socket and not of a message, so senders take turns.
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

/// One sendmmsg of items with the same DF; returns how many are done with.
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
        // EINVAL and EMSGSIZE: a segment exceeds the MTU, where a plain packet can be fragmented.
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

/// Sends the segments of one item as packets of their own.
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

/// Waits a moment for room in the send buffer; a link that stays stuck costs packets, not the other tunnels.
fn wait_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd, which outlives the call.
    check(unsafe { libc::poll(&raw mut poll, 1, 2) }).is_ok_and(|ready| ready == 1)
}
