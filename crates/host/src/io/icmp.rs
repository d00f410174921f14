//! Receives ICMP errors that the network sends about our outer packets. It does not decide whether
//! to believe them.
//!
//! It uses raw sockets and not the error queues of the sending sockets: there, every forged error
//! makes one of our sends fail.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use esplanade_ipsec::wire::icmp::{self, Reported};
use esplanade_ipsec::wire::{IpVersion, IpView};
use socket2::{Domain, Protocol, Socket, Type};

use super::sys::{check, set_option, would_block};

/// Level and names of the type filters, from linux/icmp.h and linux/icmpv6.h. `libc` lacks them.
const SOL_RAW: i32 = 255;
const ICMP_FILTER: i32 = 1;
const ICMPV6_FILTER: i32 = 1;

const V4_UNREACHABLE: u8 = 3;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;

/// An ICMPv6 error has at most 1280 bytes (RFC 4443 §2.4). A longer message is truncated.
const MESSAGE_MAX: usize = 1500;

/// A socket that receives "destination unreachable", and of IPv6 "packet too big".
#[derive(Debug)]
pub struct IcmpSocket {
    socket: Socket,
    v4: bool,
}

impl IcmpSocket {
    /// Opens the socket. It needs CAP_NET_RAW.
    pub fn open(v4: bool) -> io::Result<Self> {
        let (domain, protocol) = if v4 {
            (Domain::IPV4, Protocol::ICMPV4)
        } else {
            (Domain::IPV6, Protocol::ICMPV6)
        };
        let socket = Socket::new(domain, Type::RAW.nonblocking().cloexec(), Some(protocol))?;
        // A set bit blocks its type.
        if v4 {
            let blocked = !(1u32 << V4_UNREACHABLE);
            set_option(socket.as_fd(), SOL_RAW, ICMP_FILTER, blocked as i32)?;
        } else {
            let mut blocked = [u32::MAX; 8];
            blocked[0] = !(1 << V6_TOO_BIG | 1 << V6_UNREACHABLE);
            set_filter(socket.as_fd(), &blocked)?;
        }
        Ok(Self { socket, v4 })
    }

    /// Receives the next message. The outer `None` means that no message waits; the inner `None`
    /// means that the message does not name a packet.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut IcmpBuffer,
    ) -> io::Result<Option<Option<Reported<'a>>>> {
        let len = match (&self.socket).read(&mut buffer.0) {
            Ok(len) => len,
            Err(error) if would_block(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = buffer.0.get(..len).unwrap_or_default();
        if !self.v4 {
            // The message comes without its IP header, and the kernel has verified its checksum (RFC 3542 §3.1).
            return Ok(Some(icmp::read_error(IpVersion::V6, bytes)));
        }
        let reported = IpView::parse(bytes)
            .ok()
            .and_then(|view| icmp::parse_error(bytes, &view));
        Ok(Some(reported))
    }
}

impl AsFd for IcmpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffer for one message.
#[derive(Debug)]
pub struct IcmpBuffer([u8; MESSAGE_MAX]);

impl Default for IcmpBuffer {
    fn default() -> Self {
        Self([0; MESSAGE_MAX])
    }
}

fn set_filter(fd: BorrowedFd<'_>, blocked: &[u32; 8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `blocked`, which outlives the call. The kernel
    // only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_ICMPV6,
            ICMPV6_FILTER,
            blocked.as_ptr().cast(),
            size_of_val(blocked) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// Returns the MTU in bytes of the route to `remote`, from the kernel's routing table.
pub fn route_mtu(remote: IpAddr, mark: Option<u32>) -> io::Result<u32> {
    let (domain, level, name) = match remote {
        IpAddr::V4(_) => (Domain::IPV4, libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (Domain::IPV6, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), None)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    socket.connect(&SocketAddr::new(remote, 9).into())?;
    let mut value = MaybeUninit::<i32>::uninit();
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `value`. `value` and
    // `len` outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(result)?;
    // SAFETY: the call succeeded, so the kernel initialised the whole integer.
    let value = unsafe { value.assume_init() };
    u32::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
