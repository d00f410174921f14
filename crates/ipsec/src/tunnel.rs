//! Tunnel mode: the outer header (RFC 4301 §5.1.2), and ECN across the tunnel (RFC 6040).

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

use esplanade_crypto::{Protocol, Transform};

use crate::options::TunnelOptions;
use crate::path::{PackedPath, Path};
use crate::wire::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_UDP};
use crate::wire::udp_encap::UDP_HEADER_LEN;
use crate::wire::{IpVersion, IpView, be16, checksum, esp};

pub use crate::options::{DfPolicy, DscpMap, DscpPolicy, EcnPolicy, FlowLabelPolicy};

/// The TTL or hop limit of outer headers if nothing else sets it. The inner TTL stays as it is. The tunnel is one hop,
/// and the host that routes into and out of the tunnel counts it (RFC 4301 §5.1.2.1, note 2).
pub const OUTER_TTL: u8 = 64;

const ECN_MASK: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const CE: u8 = 0b11;

/// The outer TOS without the ECN bits.
#[inline(always)]
fn outer_dscp(policy: &DscpPolicy, inner_tos: u8) -> u8 {
    match policy {
        DscpPolicy::Copy => inner_tos & !ECN_MASK,
        DscpPolicy::Map(map) => map.get(inner_tos >> 2) << 2,
    }
}

/// The outer header of a sealed packet. Back ends with sockets hand its fields to the kernel; other back ends call
/// [`write_outer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterMeta {
    pub path: PackedPath,
    pub tos: u8,
    pub dont_fragment: bool,
    /// The TTL or hop limit. `None` takes the back end's value, or [`OUTER_TTL`] if the back end has none.
    pub ttl: Option<NonZeroU8>,
    /// The flow label of an IPv6 header; unused for IPv4.
    pub flow_label: u32,
}

impl OuterMeta {
    /// Makes the outer header of `inner`. The flow label is zero where the policy asks for a hash: the walk has the
    /// key of the hash and adds it.
    pub fn new(path: Path, options: &TunnelOptions, inner: &IpView) -> Self {
        Self::around(path.into(), options, inner.into())
    }

    fn ttl(&self) -> u8 {
        self.ttl.map_or(OUTER_TTL, NonZeroU8::get)
    }

    #[inline(always)]
    pub(crate) fn around(path: PackedPath, options: &TunnelOptions, inner: OfInner) -> Self {
        let OfInner {
            tos,
            dont_fragment,
            flow_label,
        } = inner;
        // RFC 6040 §4.1.
        let ecn = match options.ecn {
            EcnPolicy::Copy => tos & ECN_MASK,
            EcnPolicy::Clear => NOT_ECT,
        };
        Self {
            path,
            tos: outer_dscp(&options.dscp, tos) | ecn,
            ttl: options.ttl,
            dont_fragment: match options.df {
                DfPolicy::Copy => dont_fragment,
                DfPolicy::Set => true,
                DfPolicy::Clear => false,
            },
            flow_label: match options.flow_label {
                FlowLabelPolicy::Copy => flow_label,
                FlowLabelPolicy::Zero | FlowLabelPolicy::Hash => 0,
            },
        }
    }

    /// Makes the outer header under the default [`TunnelOptions`].
    #[inline(always)]
    pub(crate) fn usual(path: PackedPath, inner: OfInner) -> Self {
        Self {
            path,
            tos: inner.tos,
            dont_fragment: inner.dont_fragment,
            ttl: None,
            flow_label: 0,
        }
    }

    /// Makes the outer header of a dummy packet, which has no inner packet.
    pub(crate) fn of_dummy(path: PackedPath, options: &TunnelOptions) -> Self {
        Self {
            path,
            tos: outer_dscp(&options.dscp, 0),
            ttl: options.ttl,
            dont_fragment: options.df != DfPolicy::Clear,
            flow_label: 0,
        }
    }

    /// Both ends of the tunnel.
    pub fn path(&self) -> Path {
        self.path.unpack()
    }

    pub fn udp_encap(&self) -> bool {
        self.path.udp_encap()
    }

    pub fn version(&self) -> IpVersion {
        self.path.version()
    }

    pub(crate) fn ip_header_len(&self) -> usize {
        header_len(self.version(), false)
    }

    /// The length in bytes of the headers in front of the ESP packet.
    pub fn header_len(&self) -> usize {
        header_len(self.version(), self.udp_encap())
    }
}

/// The fields of an inner packet that its outer header may take over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfInner {
    pub tos: u8,
    pub dont_fragment: bool,
    pub flow_label: u32,
}

impl From<&IpView> for OfInner {
    fn from(view: &IpView) -> Self {
        Self {
            tos: view.tos,
            dont_fragment: view.dont_fragment,
            flow_label: view.flow_label,
        }
    }
}

/// The facts that are known about the outer header of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterFacts {
    /// The peer's address. The port is 0 without UDP encapsulation.
    pub remote: SocketAddr,
    pub udp_encap: bool,
    /// The TOS of the outer header; 0 if the back end does not know it.
    pub tos: u8,
    /// The number of bytes in front of the packet that are its IP header (and UDP header). It is 0 if the back end
    /// does not have them. Transport mode then makes a header from the addresses. AH needs the received header,
    /// because its ICV covers it.
    pub header_len: u16,
    pub protocol: Protocol,
}

impl OuterFacts {
    /// Makes the facts for an ESP packet whose IP header the back end does not have.
    pub fn new(remote: SocketAddr, udp_encap: bool, tos: u8) -> Self {
        Self {
            remote,
            udp_encap,
            tos,
            header_len: 0,
            protocol: Protocol::Esp,
        }
    }
}

pub(crate) const fn header_len(version: IpVersion, udp_encap: bool) -> usize {
    let ip = match version {
        IpVersion::V4 => IPV4_HEADER_LEN,
        IpVersion::V6 => IPV6_HEADER_LEN,
    };
    if udp_encap { ip + UDP_HEADER_LEN } else { ip }
}

/// The longest inner packet in bytes whose outer packet fits into `path_mtu` bytes.
pub const fn inner_mtu(
    path_mtu: usize,
    transform: Transform,
    version: IpVersion,
    udp_encap: bool,
) -> usize {
    transform.payload_len_max(path_mtu.saturating_sub(header_len(version, udp_encap)))
}

/// Writes the outer headers into the first [`OuterMeta::header_len`] bytes of `frame`; the sealed ESP packet is the
/// rest. Returns `None` if the frame is too short or too long, or if the path mixes IP versions.
pub fn write_outer(meta: &OuterMeta, identification: u16, frame: &mut [u8]) -> Option<()> {
    OuterHeader::new(meta).write(identification, frame)
}

/// The outer headers for the packets of one run. The headers differ only in length, identification and checksums.
pub(crate) struct OuterHeader<'a> {
    meta: &'a OuterMeta,
    protocol: u8,
    ipv4: Option<Ipv4Header>,
}

impl<'a> OuterHeader<'a> {
    pub(crate) fn new(meta: &'a OuterMeta) -> Self {
        let protocol = if meta.udp_encap() {
            PROTOCOL_UDP
        } else {
            esp::PROTOCOL
        };
        Self::of_protocol(meta, protocol)
    }

    pub(crate) fn of_protocol(meta: &'a OuterMeta, protocol: u8) -> Self {
        let ipv4 = Ipv4Header::new(meta, protocol);
        Self {
            meta,
            protocol,
            ipv4,
        }
    }

    pub(crate) fn write(&self, identification: u16, frame: &mut [u8]) -> Option<()> {
        let ip_len = self.write_ip(identification, frame)?;
        if self.protocol != PROTOCOL_UDP {
            return Some(());
        }
        write_udp(&self.meta.path(), frame.get_mut(ip_len..)?)
    }

    /// Writes the IP header only. Returns its length in bytes.
    pub(crate) fn write_ip(&self, identification: u16, frame: &mut [u8]) -> Option<usize> {
        match &self.ipv4 {
            Some(header) => header.write(identification, frame),
            None => write_ipv6(self.meta, self.protocol, frame),
        }
    }
}

/// An IPv4 header without length, identification and checksum, and the sum of its words.
struct Ipv4Header {
    words: [u32; 5],
    sum: u64,
}

impl Ipv4Header {
    fn new(meta: &OuterMeta, protocol: u8) -> Option<Self> {
        let path = meta.path();
        let (IpAddr::V4(local), IpAddr::V4(remote)) = (path.local.ip(), path.remote.ip()) else {
            return None;
        };
        let flags = if meta.dont_fragment { 0x4000 } else { 0 };
        let words = [
            0x4500_0000 | u32::from(meta.tos) << 16,
            flags,
            u32::from(meta.ttl()) << 24 | u32::from(protocol) << 16,
            u32::from(local),
            u32::from(remote),
        ];
        let sum = words.iter().map(|&word| u64::from(word)).sum();
        Some(Self { words, sum })
    }

    #[inline(always)]
    fn write(&self, identification: u16, frame: &mut [u8]) -> Option<usize> {
        let len = u32::from(u16::try_from(frame.len()).ok()?);
        let ip = frame.first_chunk_mut::<IPV4_HEADER_LEN>()?;
        let identification = u32::from(identification) << 16;
        let mut words = self.words;
        words[0] |= len;
        words[1] |= identification;
        // The sum is not read back from the stored bytes: a load that spans several stores would wait for them.
        let sum = self.sum + u64::from(len) + u64::from(identification);
        words[2] |= u32::from(checksum::fold(sum));
        for (bytes, word) in ip.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        Some(IPV4_HEADER_LEN)
    }
}

fn write_ipv6(meta: &OuterMeta, protocol: u8, frame: &mut [u8]) -> Option<usize> {
    let path = meta.path();
    let (IpAddr::V6(local), IpAddr::V6(remote)) = (path.local.ip(), path.remote.ip()) else {
        return None;
    };
    let payload_len = u16::try_from(frame.len().checked_sub(IPV6_HEADER_LEN)?).ok()?;
    let ip = frame.first_chunk_mut::<IPV6_HEADER_LEN>()?;
    let first = 6 << 28 | u32::from(meta.tos) << 20 | meta.flow_label & 0xf_ffff;
    ip[..4].copy_from_slice(&first.to_be_bytes());
    ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
    ip[6..8].copy_from_slice(&[protocol, meta.ttl()]);
    ip[8..24].copy_from_slice(&local.octets());
    ip[24..].copy_from_slice(&remote.octets());
    Some(IPV6_HEADER_LEN)
}

/// Writes the UDP header of an encapsulated ESP packet. The sealed bytes must already be behind it.
pub(crate) fn write_udp(path: &Path, datagram: &mut [u8]) -> Option<()> {
    let len = u16::try_from(datagram.len()).ok()?;
    put(datagram, 0, &path.local.port().to_be_bytes())?;
    put(datagram, 2, &path.remote.port().to_be_bytes())?;
    put(datagram, 4, &len.to_be_bytes())?;
    put(datagram, 6, &[0, 0])?;
    // Over IPv4 the checksum stays zero (RFC 3948 §2.1). Over IPv6 a receiver discards datagrams with a zero checksum
    // (RFC 8200 §8.1).
    if let (IpAddr::V6(local), IpAddr::V6(remote)) = (path.local.ip(), path.remote.ip()) {
        let pseudo = checksum::sum(u64::from(len) + u64::from(PROTOCOL_UDP), &local.octets());
        let pseudo = checksum::sum(pseudo, &remote.octets());
        let checksum = match checksum::fold(checksum::sum(pseudo, datagram)) {
            0 => 0xffff,
            checksum => checksum,
        };
        put(datagram, 6, &checksum.to_be_bytes())?;
    }
    Some(())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    let end = at.checked_add(value.len())?;
    bytes.get_mut(at..end)?.copy_from_slice(value);
    Some(())
}

/// Returns the inner ECN field behind the tunnel (RFC 6040 §4.2, figure 4). Returns `None` if the packet must be
/// dropped.
pub fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    let (inner, outer) = (inner & ECN_MASK, outer & ECN_MASK);
    match (inner, outer) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        // ECT(1) may mean a lesser degree of congestion, so the outer ECT(1) is carried over.
        (_, ECT_1) => Some(ECT_1),
        _ => Some(inner),
    }
}

/// Combines the outer ECN field with that of the inner packet, from which `view` was parsed. Returns false if the
/// packet must be dropped.
pub(crate) fn decapsulate_ecn(packet: &mut [u8], view: &mut IpView, outer_tos: u8) -> bool {
    let Some(ecn) = decapsulated_ecn(view.tos, outer_tos) else {
        return false;
    };
    rewrite_tos(packet, view, view.tos & !ECN_MASK | ecn);
    true
}

/// Copies the outer DSCP into the inner packet, from which `view` was parsed (RFC 2983 §5.1).
pub(crate) fn decapsulate_dscp(packet: &mut [u8], view: &mut IpView, outer_tos: u8) {
    rewrite_tos(packet, view, outer_tos & !ECN_MASK | view.tos & ECN_MASK);
}

fn rewrite_tos(packet: &mut [u8], view: &mut IpView, tos: u8) {
    if tos != view.tos && set_tos(packet, view.version, tos).is_some() {
        view.tos = tos;
    }
}

fn set_tos(packet: &mut [u8], version: IpVersion, tos: u8) -> Option<()> {
    let old = be16(packet, 0)?;
    match version {
        IpVersion::V4 => {
            let new = old & 0xff00 | u16::from(tos);
            let checksum = checksum::update(be16(packet, 10)?, old, new);
            put(packet, 0, &new.to_be_bytes())?;
            put(packet, 10, &checksum.to_be_bytes())
        }
        IpVersion::V6 => {
            let new = old & 0xf00f | u16::from(tos) << 4;
            put(packet, 0, &new.to_be_bytes())
        }
    }
}
