//! The services that a data plane needs from its surroundings: writing inner packets, sending outer packets, and
//! passing time. Tests implement it without a host.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use esplanade_crypto::{Direction, Protocol};
use esplanade_ipsec::sa::Path;

use crate::io::udp::{Outgoing, SendReport};

/// A choice among the queues of a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunQueue {
    /// The worker's own queue.
    Own,
    /// The queue by which packets of the reverse flow shall arrive.
    OfFlow,
}

/// A socket to send through, by its index among the sockets of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendSocket {
    NatT(usize),
    Esp(usize),
    Ah(usize),
}

/// The kind of socket that received a datagram, with the address to which it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveSocket {
    Ike(SocketAddr),
    NatT(SocketAddr),
    Esp {
        /// The packet starts with an IPv4 header, as raw sockets deliver IPv4.
        with_header: bool,
    },
    Ah,
}

/// The surroundings of a data plane. A port is a TUN device, by its index in the data plane's list.
pub trait PacketIo {
    /// Writes a packet or super-segment, after its virtio header.
    fn write(&mut self, port: usize, queue: TunQueue, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Returns the socket by which packets of the path leave, or `None` if there is none.
    fn send_socket(&self, path: &Path, protocol: Protocol) -> Option<SendSocket>;

    /// Sends items in order. The report says how many packets left.
    fn send(&mut self, send_socket: SendSocket, items: &[Outgoing<'_>]) -> SendReport;

    /// Sends a whole IP packet without protection.
    fn bypass(&mut self, packet: &[u8]) -> io::Result<()>;

    /// Lets engines and other workers run for a moment. Returns the time afterwards, in
    /// nanoseconds.
    fn pause(&mut self) -> u64;

    /// From now on the worker wakes when an engine of this direction has results.
    fn watch(&mut self, engine: BorrowedFd<'_>, direction: Direction) -> io::Result<()>;

    fn unwatch(&mut self, engine: BorrowedFd<'_>);
}
