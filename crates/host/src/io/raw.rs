//! Raw sockets: one kind for ESP without UDP (IP protocol 50), and one for packets that bypass
//! IPsec.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use esplanade_dataplane::datagram::{Outgoing, SendReport};
use socket2::{Domain, Protocol, Socket, Type};

use super::message;
use super::steer::{self, SpiShare};
use super::sys::set_option;
use super::udp::{DfState, SocketOptions, open, send_items};

const PROTOCOL_ESP: i32 = 50;

/// A raw socket for IP protocol 50 of one IP version. On send, the kernel writes the outer IP
/// header. On receive, an IPv4 packet has its header and an IPv6 packet does not;
/// [`esplanade_dataplane::datagram::esp_payload`] hides the difference.
#[derive(Debug)]
pub struct EspSocket {
    socket: Socket,
    local: IpAddr,
    v4: bool,
    df: Mutex<DfState>,
}

impl EspSocket {
    /// Opens a socket for one local address. An unspecified address stands for all addresses of its
    /// IP version.
    pub fn open(local: IpAddr, options: &SocketOptions) -> io::Result<Self> {
        let v4 = local.is_ipv4();
        let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = open(domain, Type::RAW, Protocol::from(PROTOCOL_ESP), options)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(Self {
            socket,
            local,
            v4,
            df: Mutex::new(DfState::new(v4)),
        })
    }

    /// From now on the socket receives only the SPIs of its share. Sockets for one address must
    /// have different shares.
    pub fn take_share(&self, share: SpiShare) -> io::Result<()> {
        steer::take_share(self.as_fd(), self.v4, 0, share)
    }

    /// Tells whether this socket can send packets of this IP version from this local address.
    pub fn serves(&self, local: IpAddr, v4: bool) -> bool {
        self.v4 == v4 && (self.local.is_unspecified() || self.local == local)
    }

    /// Sends ESP packets in order. The port of every remote address must be zero: a raw IPv6 socket
    /// refuses any other.
    pub fn send(&self, items: &[Outgoing<'_>]) -> SendReport {
        let mut report = SendReport::default();
        let mut df = self.df.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = items;
        while let Some(first) = rest.first() {
            df.set(self.as_fd(), first.df);
            let run = rest.iter().take_while(|item| item.df == first.df).count();
            rest = &rest[send_items(self.as_fd(), &rest[..run], &mut report, |_| {})..];
        }
        report
    }

    pub fn is_v4(&self) -> bool {
        self.v4
    }
}

impl AsFd for EspSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends whole IP packets, with their headers, that a bypass policy lets pass.
#[derive(Debug)]
pub struct BypassSocket {
    v4: Socket,
    v6: Option<Socket>,
}

impl BypassSocket {
    pub fn open(options: &SocketOptions) -> io::Result<Self> {
        let v4 = open(
            Domain::IPV4,
            Type::RAW,
            Protocol::from(libc::IPPROTO_RAW),
            options,
        )?;
        let v6 = match open(
            Domain::IPV6,
            Type::RAW,
            Protocol::from(libc::IPPROTO_RAW),
            options,
        ) {
            Ok(socket) => {
                set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
                Some(socket)
            }
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { v4, v6 })
    }

    /// Sends one IP packet to the destination in its header.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let no_route = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
        let (fd, remote): (_, IpAddr) = match packet.first().map(|byte| byte >> 4) {
            Some(4) => {
                let address: [u8; 4] = packet
                    .get(16..20)
                    .and_then(|b| b.try_into().ok())
                    .ok_or_else(no_route)?;
                (self.v4.as_fd(), Ipv4Addr::from(address).into())
            }
            Some(6) => {
                let address: [u8; 16] = packet
                    .get(24..40)
                    .and_then(|b| b.try_into().ok())
                    .ok_or_else(no_route)?;
                (
                    self.v6.as_ref().ok_or_else(no_route)?.as_fd(),
                    Ipv6Addr::from(address).into(),
                )
            }
            _ => return Err(no_route()),
        };
        let remote = SocketAddr::new(remote, 0);
        let item = Outgoing {
            remote,
            payload: packet,
            ..Outgoing::NONE
        };
        message::send(fd, &[item]).map(drop)
    }
}
