//! UDP sockets with segmentation on send and coalescing on receive.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use super::UDP_PAYLOAD_MAX;
use super::message::{self, Outgoing, SEND_MAX};
use super::sys::{check, set_option, would_block};

pub use super::message::{Received, Receiver};

/// The kernel's older limit for the segments of one send (UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: usize = 64;

/// Receive and send buffers of a socket, where the system allows so much.
const SOCKET_BUFFER: i32 = 8 << 20;

/// Options common to UDP and raw sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// Mark on everything sent, so that routing rules can tell it from the traffic to protect.
    pub mark: Option<u32>,
    /// Several sockets share the port; the kernel keeps a peer on one of them.
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
        socket.set_only_v6(true)?;
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

/// Sets or clears DF; without it the kernel fragments what exceeds the link's MTU.
pub(super) fn set_df(fd: BorrowedFd<'_>, v4: bool, df: bool) -> io::Result<()> {
    match (v4, df) {
        (true, true) => set_option(
            fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        (true, false) => set_option(
            fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        (false, true) => set_option(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
        (false, false) => set_option(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    }
}

/// A bound UDP socket. Threads may share it; each sends with a [`SendQueue`] of its own.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
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
            segmentation: AtomicBool::new(true),
        })
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends one datagram.
    pub fn send(
        &self,
        local: Option<IpAddr>,
        remote: SocketAddr,
        payload: &[u8],
    ) -> io::Result<()> {
        let item = Outgoing {
            remote,
            local,
            tos: 0,
            df: false,
            offset: 0,
            len: payload.len(),
            segment: 0,
        };
        message::send(self.socket.as_fd(), payload, &[item]).map(drop)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where and how a packet goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    pub tos: u8,
    pub df: bool,
}

/// What a flush did, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    pub sent: u64,
    /// Larger than the path allows, with DF.
    pub too_big: u64,
    /// Refused otherwise, or no room in the socket's buffer.
    pub failed: u64,
}

/// Packets of one arena on their way to a socket. Neighbours of equal length to the same destination become one send.
#[derive(Debug, Default)]
pub struct SendQueue {
    items: Vec<Outgoing>,
    df: bool,
}

impl SendQueue {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Queues `arena[offset..offset + len]`.
    pub fn push(&mut self, destination: &Destination, offset: usize, len: usize) {
        if let Some(last) = self.items.last_mut() {
            let segment = if last.segment == 0 {
                last.len
            } else {
                usize::from(last.segment)
            };
            let joins = last.offset + last.len == offset
                && len <= segment
                // A shorter packet was the last of its send.
                && last.len.is_multiple_of(segment.max(1))
                && last.len / segment.max(1) < SEGMENTS_MAX
                && last.len + len <= UDP_PAYLOAD_MAX
                && last.remote == destination.remote
                && last.local == destination.local
                && last.tos == destination.tos
                && last.df == destination.df;
            if joins {
                last.segment = segment as u16;
                last.len += len;
                return;
            }
        }
        let Destination {
            remote,
            local,
            tos,
            df,
        } = *destination;
        self.items.push(Outgoing {
            remote,
            local,
            tos,
            df,
            offset,
            len,
            segment: 0,
        });
    }

    /// Sends everything queued from `arena`.
    pub fn flush(&mut self, socket: &UdpSocket, arena: &[u8]) -> SendReport {
        let segmentation = socket.segmentation.load(Ordering::Relaxed);
        let v4 = socket.local.is_ipv4();
        let mut report = SendReport::default();
        let mut start = 0;
        while let Some(first) = self.items.get(start) {
            if first.df != self.df {
                self.df = first.df;
                if let Err(error) = set_df(socket.as_fd(), v4, first.df) {
                    tracing::trace!("cannot change DF: {error}");
                }
            }
            let run = self.items[start..]
                .iter()
                .take(SEND_MAX)
                .take_while(|item| item.df == first.df)
                .count();
            let run = if segmentation { run } else { 1 };
            let items = &self.items[start..start + run];
            if !segmentation && first.segment != 0 {
                send_pieces(socket.as_fd(), arena, first, &mut report);
                start += 1;
                continue;
            }
            start += send_items(socket.as_fd(), arena, items, &mut report, |error| {
                socket.refuse_segmentation(error)
            });
        }
        self.items.clear();
        report
    }
}

impl UdpSocket {
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

fn packets(item: &Outgoing) -> u64 {
    if item.segment == 0 {
        1
    } else {
        item.len.div_ceil(usize::from(item.segment)) as u64
    }
}

/// One sendmmsg; returns how many items are done with, at least 1.
pub(super) fn send_items(
    fd: BorrowedFd<'_>,
    arena: &[u8],
    items: &[Outgoing],
    report: &mut SendReport,
    refused: impl Fn(&io::Error),
) -> usize {
    let Some(first) = items.first() else { return 1 };
    let error = match message::send(fd, arena, items) {
        Ok(count) => {
            report.sent += items[..count].iter().map(packets).sum::<u64>();
            return count.max(1);
        }
        Err(error) => error,
    };
    match error.raw_os_error() {
        _ if would_block(&error) => {
            if wait_writable(fd) {
                return 0;
            }
            report.failed += packets(first);
        }
        // EINVAL and EMSGSIZE: a segment exceeds the MTU, where a plain packet can be fragmented.
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if first.segment != 0 => {
            refused(&error);
            send_pieces(fd, arena, first, report);
        }
        Some(libc::EMSGSIZE) => report.too_big += packets(first),
        _ => {
            tracing::trace!("cannot send to {}: {error}", first.remote);
            report.failed += packets(first);
        }
    }
    1
}

/// Sends the segments of one item as packets of their own.
fn send_pieces(fd: BorrowedFd<'_>, arena: &[u8], item: &Outgoing, report: &mut SendReport) {
    let end = item.offset + item.len;
    let pieces: Vec<Outgoing> = (item.offset..end)
        .step_by(usize::from(item.segment).max(1))
        .map(|offset| Outgoing {
            offset,
            len: usize::from(item.segment).min(end - offset),
            segment: 0,
            ..*item
        })
        .collect();
    let mut done = 0;
    while done < pieces.len() {
        done += send_items(fd, arena, &pieces[done..], report, |_| {});
    }
}

/// Waits a moment for room in the send buffer; a link that stays stuck costs packets, not the other tunnels.
fn wait_writable(fd: BorrowedFd<'_>) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd, which outlives the call.
    check(unsafe { libc::poll(&raw mut poll, 1, 2) }).is_ok_and(|ready| ready == 1)
}
