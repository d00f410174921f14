//! What a data plane asks of its surroundings: to write inner packets, to send outer ones, and to let time pass.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use esplanade_crypto::{Direction, Protocol};
use esplanade_ipsec::sa::Path;

use crate::io::udp::{Outgoing, SendReport};

/// A queue of a TUN device with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// The worker's own.
    Own,
    /// The one that the reverse flow is to come by.
    OfFlow,
}

/// A socket to send through; the number is that of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    NatT(usize),
    Esp(usize),
    Ah(usize),
}

/// What kind of socket datagrams came by, and the address that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    Ike(SocketAddr),
    NatT(SocketAddr),
    Esp {
        /// IPv4 packets come with their header from raw sockets.
        with_header: bool,
    },
    Ah,
}

/// The surroundings of a data plane. Ports are TUN devices, by their place in the data plane's list.
pub(super) trait PacketIo {
    /// Writes a packet or super-segment, behind its virtio header.
    fn write(&mut self, port: usize, queue: Queue, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Where packets of the path leave; None if nothing serves it.
    fn door(&self, path: &Path, protocol: Protocol) -> Option<Door>;

    /// Sends in order, as far as it goes.
    fn send(&mut self, door: Door, items: &[Outgoing<'_>]) -> SendReport;

    /// Sends a whole IP packet that is not to be protected.
    fn bypass(&mut self, packet: &[u8]) -> io::Result<()>;

    /// Lets engines and other workers go on for a moment; the time then, in nanoseconds.
    fn pause(&mut self) -> u64;

    /// From now on the worker wakes when an engine of this direction has something.
    fn watch(&mut self, engine: BorrowedFd<'_>, direction: Direction) -> io::Result<()>;

    fn unwatch(&mut self, engine: BorrowedFd<'_>);
}
