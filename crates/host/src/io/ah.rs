//! Raw sockets for AH (IP protocol 51). AH's ICV covers the IP header, so the sockets send and
//! deliver whole packets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use esplanade_dataplane::datagram::{Outgoing, SendReport};
use esplanade_ipsec::wire::ah::PROTOCOL;
use socket2::{Domain, Protocol, Socket, Type};

use super::steer::{self, SpiShare};
use super::sys::set_option;
use super::udp::{SocketOptions, open, send_items};

/// Offset of the SPI in AH's header (RFC 4302 §2).
const SPI_AT: u32 = 4;

/// A raw socket for IP protocol 51 of one IP version. On send it takes whole IP packets. The kernel
/// changes two IPv4 fields: it writes the header checksum, and an identification where ours is
/// zero. A changed identification would break the ICV, so senders never use zero.
#[derive(Debug)]
pub struct AhSocket {
    socket: Socket,
    local: IpAddr,
}

impl AhSocket {
    /// Opens a socket for one local address. An unspecified address stands for all addresses of its
    /// IP version.
    pub fn open(local: IpAddr, options: &SocketOptions) -> io::Result<Self> {
        let (domain, level, name) = match local {
            IpAddr::V4(_) => (Domain::IPV4, libc::IPPROTO_IP, libc::IP_HDRINCL),
            IpAddr::V6(_) => (Domain::IPV6, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL),
        };
        let protocol = Protocol::from(i32::from(PROTOCOL));
        let socket = open(domain, Type::RAW, protocol, options)?;
        set_option(socket.as_fd(), level, name, 1)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(Self { socket, local })
    }

    /// From now on the socket receives only the SPIs of its share. Sockets for one address must
    /// have different shares.
    pub fn take_share(&self, share: SpiShare) -> io::Result<()> {
        steer::take_share(self.as_fd(), self.local.is_ipv4(), SPI_AT, share)
    }

    /// Tells whether this socket can send packets of this IP version from this local address.
    pub fn serves(&self, local: IpAddr, v4: bool) -> bool {
        self.local.is_ipv4() == v4 && (self.local.is_unspecified() || self.local == local)
    }

    /// Sends whole IP packets in order.
    pub fn send(&self, items: &[Outgoing<'_>]) -> SendReport {
        let mut report = SendReport::default();
        let mut rest = items;
        while !rest.is_empty() {
            rest = &rest[send_items(self.as_fd(), rest, &mut report, |_| {})..];
        }
        report
    }
}

impl AsFd for AhSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
