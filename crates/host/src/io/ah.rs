//! Raw sockets for AH (IP protocol 51). AH's ICV covers the IP header, so the sockets send and
//! deliver whole packets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use esplanade_ipsec::wire::ah::PROTOCOL;
use socket2::{Domain, Protocol, Socket, Type};

use super::message::Outgoing;
use super::received::ReceivedDatagram;
use super::steer::{self, SpiShare};
use super::sys::set_option;
use super::udp::{SendReport, SocketOptions, open, send_items};

const IPV6_HEADER_LEN: usize = 40;
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

/// Restores the whole packet from what was received at the start of `slot`. Returns the length of
/// its IP header and of the packet, or `None` if the packet cannot be restored.
///
/// The kernel does not deliver IPv6 headers. A header without extension headers can be rebuilt, because AH covers only
/// fields that are known. The flow label and the hop limit count as zero (RFC 4302 §3.3.3.1.2).
pub fn restore(meta: &ReceivedDatagram, slot: &mut [u8]) -> Option<(usize, usize)> {
    match (meta.remote.ip(), meta.local) {
        (IpAddr::V4(_), _) => {
            let packet = slot.get(..meta.len)?;
            let header = usize::from(packet.first()? & 15) * 4;
            (header >= 20 && header <= packet.len()).then_some((header, packet.len()))
        }
        (IpAddr::V6(remote), Some(IpAddr::V6(local))) => {
            let len = IPV6_HEADER_LEN + meta.len;
            let packet = slot.get_mut(..len)?;
            packet.copy_within(..meta.len, IPV6_HEADER_LEN);
            let (header, _) = packet.split_first_chunk_mut::<IPV6_HEADER_LEN>()?;
            let class = u32::from(meta.tos) << 20;
            header[..4].copy_from_slice(&(6 << 28 | class).to_be_bytes());
            header[4..6].copy_from_slice(&u16::try_from(meta.len).ok()?.to_be_bytes());
            (header[6], header[7]) = (PROTOCOL, 0);
            header[8..24].copy_from_slice(&remote.octets());
            header[24..].copy_from_slice(&local.octets());
            Some((IPV6_HEADER_LEN, len))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_header_comes_back() {
        let mut meta = ReceivedDatagram::NONE;
        meta.remote = "[2001:db8::1]:0".parse().unwrap();
        meta.local = Some("2001:db8::2".parse().unwrap());
        (meta.len, meta.tos) = (5, 0xb9);
        let mut slot = [0xee; 64];
        slot[..5].copy_from_slice(b"AH...");
        assert_eq!(restore(&meta, &mut slot), Some((40, 45)));
        let header =
            "6b900000 0005 33 00 20010db8000000000000000000000001 20010db8000000000000000000000002";
        assert_eq!(slot[..40], hex::decode(header.replace(' ', "")).unwrap());
        assert_eq!(slot[40..45], *b"AH...");
        assert_eq!(restore(&meta, &mut slot[..44]), None, "no room");
        meta.local = None;
        assert_eq!(restore(&meta, &mut slot), None, "no destination");
    }

    #[test]
    fn an_ipv4_header_is_checked() {
        let mut meta = ReceivedDatagram::NONE;
        meta.remote = "192.0.2.1:0".parse().unwrap();
        let mut slot = [0x46; 64];
        for (len, expected) in [(23, None), (24, Some((24, 24))), (60, Some((24, 60)))] {
            meta.len = len;
            assert_eq!(restore(&meta, &mut slot), expected, "{len}");
        }
        slot[0] = 0x44;
        assert_eq!(restore(&meta, &mut slot), None, "a header of 16 bytes");
        meta.len = 0;
        assert_eq!(restore(&meta, &mut slot), None);
    }
}
