//! Datagrams as they come from sockets and go to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU8;
use std::ops::{AddAssign, Range};

use esplanade_ipsec::wire::ah::PROTOCOL;

/// Most segments of one send: the limit of older kernels (UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 64;
/// Largest UDP payload over IPv4 in bytes, and so the most bytes of one send.
pub const PAYLOAD_MAX: usize = 65_507;
/// Most messages of one `sendmmsg`.
pub const SEND_MAX: usize = 32;
const IPV6_HEADER_LEN: usize = 40;

/// A received datagram, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Offset of the datagram in the buffer.
    pub at: usize,
    pub len: usize,
    pub remote: SocketAddr,
    /// The destination address of the datagram, if the kernel reports it.
    pub local: Option<IpAddr>,
    /// TOS or traffic class, including the ECN bits.
    pub tos: u8,
    /// Length in bytes of each coalesced datagram (UDP_GRO). It equals `len` if there is only one.
    pub segment: usize,
    /// The datagram did not fit into its buffer.
    pub truncated: bool,
}

impl ReceivedDatagram {
    pub const NONE: Self = Self {
        at: 0,
        len: 0,
        remote: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        local: None,
        tos: 0,
        segment: 0,
        truncated: false,
    };
}

/// A datagram to send. If `segment` is not zero, the kernel cuts it into pieces of `segment` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing<'a> {
    pub remote: SocketAddr,
    /// The source address. `None` lets the kernel choose.
    pub local: Option<IpAddr>,
    pub tos: u8,
    /// TTL or hop limit. `None` leaves it to the kernel.
    pub ttl: Option<NonZeroU8>,
    /// Sets the Don't Fragment bit.
    pub df: bool,
    pub payload: &'a [u8],
    pub segment: u16,
}

impl Outgoing<'_> {
    /// A value that fills arrays.
    pub const NONE: Self = Self {
        remote: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        local: None,
        tos: 0,
        ttl: None,
        df: false,
        payload: &[],
        segment: 0,
    };

    /// Returns the number of packets that leave.
    pub fn packets(&self) -> u64 {
        match usize::from(self.segment) {
            0 => 1,
            segment => self.payload.len().div_ceil(segment) as u64,
        }
    }
}

/// The result of a send, counted in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    pub sent: u64,
    /// Packets with DF that exceeded the interface's MTU.
    pub too_big: u64,
    /// The destination of one of the packets that were too big.
    pub too_big_for: Option<IpAddr>,
    /// Packets that were refused for another reason, or found no room in the socket's buffer.
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

/// An IKE message from the network. On the NAT traversal port, it still has its non-ESP marker.
#[derive(Debug)]
pub struct IkeDatagram {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub payload: Vec<u8>,
}

/// Restores the whole packet from what was received at the start of `slot`. Returns the length of
/// its IP header and of the packet, or `None` if the packet cannot be restored.
///
/// The kernel does not deliver IPv6 headers. A header without extension headers can be rebuilt, because AH covers only
/// fields that are known. The flow label and the hop limit count as zero (RFC 4302 §3.3.3.1.2).
pub fn restore_ah(meta: &ReceivedDatagram, slot: &mut [u8]) -> Option<(usize, usize)> {
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

/// Returns the range of the ESP packet in a received datagram. With `with_header`, it follows an
/// IPv4 header.
pub fn esp_payload(with_header: bool, datagram: &[u8]) -> Option<Range<usize>> {
    if !with_header {
        return Some(0..datagram.len());
    }
    let header = usize::from(datagram.first()? & 15) * 4;
    (header >= 20 && header <= datagram.len()).then_some(header..datagram.len())
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
        assert_eq!(restore_ah(&meta, &mut slot), Some((40, 45)));
        let header =
            "6b900000 0005 33 00 20010db8000000000000000000000001 20010db8000000000000000000000002";
        assert_eq!(slot[..40], hex::decode(header.replace(' ', "")).unwrap());
        assert_eq!(slot[40..45], *b"AH...");
        assert_eq!(restore_ah(&meta, &mut slot[..44]), None, "no room");
        meta.local = None;
        assert_eq!(restore_ah(&meta, &mut slot), None, "no destination");
    }

    #[test]
    fn an_ipv4_header_is_checked() {
        let mut meta = ReceivedDatagram::NONE;
        meta.remote = "192.0.2.1:0".parse().unwrap();
        let mut slot = [0x46; 64];
        for (len, expected) in [(23, None), (24, Some((24, 24))), (60, Some((24, 60)))] {
            meta.len = len;
            assert_eq!(restore_ah(&meta, &mut slot), expected, "{len}");
        }
        slot[0] = 0x44;
        assert_eq!(restore_ah(&meta, &mut slot), None, "a header of 16 bytes");
        meta.len = 0;
        assert_eq!(restore_ah(&meta, &mut slot), None);
    }
}
