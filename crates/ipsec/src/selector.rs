//! Selectors: they say for which packets a policy or an SA is (RFC 4301 §4.4.1).

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

#[cfg(feature = "generators")]
pub mod generators;

/// The fields of one packet that policies look at, seen from this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub local: IpAddr,
    pub remote: IpAddr,
    /// The next layer protocol. It is `None` if extension headers hide it, as in later fragments of IPv6.
    pub protocol: Option<u8>,
    /// The local and the remote port. They are `None` in later fragments and in protocols without ports. ICMP's type
    /// and code stand in both (RFC 7296 §3.13.1).
    pub ports: Option<(u16, u16)>,
    /// The DSCP. It chooses among the SAs of a policy and never chooses the policy (RFC 4301 §4.1).
    pub dscp: u8,
    /// The interface that the packet was routed into; 0 is the gateway's common interface. Each interface has its own
    /// part of the SPD (the SPD selection of RFC 4301 §4.4.1).
    pub interface: u32,
}

impl Flow {
    /// Makes a flow from the common interface with DSCP 0.
    pub fn new(local: IpAddr, remote: IpAddr, protocol: u8, ports: Option<(u16, u16)>) -> Self {
        Self {
            local,
            remote,
            protocol: Some(protocol),
            ports,
            dscp: 0,
            interface: 0,
        }
    }
}

/// An inclusive range of addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// Makes a range. Returns `None` unless both ends have the same IP version and are in order.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The addresses of a prefix. The host bits of `address` are ignored.
    pub fn from_prefix(address: IpAddr, prefix_len: u8) -> Option<Self> {
        match address {
            IpAddr::V4(a) => {
                let host = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
                let first = a.to_bits() & !host;
                (prefix_len <= 32).then(|| Self {
                    first: IpAddr::V4(first.into()),
                    last: IpAddr::V4((first | host).into()),
                })
            }
            IpAddr::V6(a) => {
                let host = u128::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
                let first = a.to_bits() & !host;
                (prefix_len <= 128).then(|| Self {
                    first: IpAddr::V6(first.into()),
                    last: IpAddr::V6((first | host).into()),
                })
            }
        }
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// The range of a single address.
    pub fn host(address: IpAddr) -> Self {
        Self {
            first: address,
            last: address,
        }
    }

    /// The ends as numbers, if they are IPv4 addresses.
    pub(crate) fn v4(&self) -> Option<(u32, u32)> {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Some((first.to_bits(), last.to_bits())),
            _ => None,
        }
    }

    /// The ends as numbers, if they are IPv6 addresses.
    pub(crate) fn v6(&self) -> Option<(u128, u128)> {
        match (self.first, self.last) {
            (IpAddr::V6(first), IpAddr::V6(last)) => Some((first.to_bits(), last.to_bits())),
            _ => None,
        }
    }

    /// Returns true if an address is in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        let same_version = self.first.is_ipv4() == other.first.is_ipv4();
        same_version && self.first <= other.last && other.first <= self.last
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, self.last, address) {
            (IpAddr::V4(first), IpAddr::V4(last), IpAddr::V4(a)) => first <= a && a <= last,
            (IpAddr::V6(first), IpAddr::V6(last), IpAddr::V6(a)) => first <= a && a <= last,
            _ => false,
        }
    }
}

/// The ports that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRange {
    /// Any port matches, and so does a packet whose ports cannot be seen.
    Any,
    /// Only packets match whose ports cannot be seen (RFC 4301 §4.4.1.1, OPAQUE).
    Opaque,
    /// The first and the last port, both included. For ICMP and ICMPv6 the type is the high byte and the code the low
    /// one (RFC 7296 §3.13.1).
    Range(u16, u16),
}

impl PortRange {
    /// The ports of ICMP messages of one type with a range of codes (RFC 4301 §4.4.1.1).
    pub fn icmp(message_type: u8, first_code: u8, last_code: u8) -> Option<Self> {
        let with = |code| u16::from_be_bytes([message_type, code]);
        (first_code <= last_code).then(|| Self::Range(with(first_code), with(last_code)))
    }

    /// Converts the start and end ports of an IKE traffic selector (RFC 7296 §3.13.1).
    pub fn from_wire(start: u16, end: u16) -> Option<Self> {
        match (start, end) {
            (0, u16::MAX) => Some(Self::Any),
            (u16::MAX, 0) => Some(Self::Opaque),
            _ if start <= end => Some(Self::Range(start, end)),
            _ => None,
        }
    }

    /// Returns true if a packet can match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Any, _) | (_, Self::Any) | (Self::Opaque, Self::Opaque) => true,
            (Self::Range(first, last), Self::Range(from, to)) => first <= to && from <= last,
            (Self::Opaque, Self::Range(..)) | (Self::Range(..), Self::Opaque) => false,
        }
    }

    pub fn contains(&self, port: Option<u16>) -> bool {
        match (*self, port) {
            (Self::Any, _) | (Self::Opaque, None) => true,
            (Self::Range(first, last), Some(port)) => (first..=last).contains(&port),
            (Self::Opaque, Some(_)) | (Self::Range(..), None) => false,
        }
    }
}

/// The next layer protocols that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextLayer {
    /// Any protocol matches, and so does a packet whose protocol cannot be seen.
    Any,
    /// Only packets match whose protocol cannot be seen. Such packets are IPv6 (RFC 4301 §4.4.1.1, OPAQUE).
    Opaque,
    Is(u8),
}

impl NextLayer {
    /// Returns true if a packet can match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self == other || [self, other].contains(&&Self::Any)
    }

    pub fn contains(&self, protocol: Option<u8>) -> bool {
        match *self {
            Self::Any => true,
            Self::Opaque => protocol.is_none(),
            Self::Is(number) => protocol == Some(number),
        }
    }
}

/// An end of a selector, in the form that IKE negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSelector {
    pub addresses: AddressRange,
    /// The protocol number; 0 means any protocol.
    pub protocol: u8,
    pub ports: PortRange,
}

/// A combination of a local and a remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    pub local: AddressRange,
    pub remote: AddressRange,
    pub protocol: NextLayer,
    pub local_ports: PortRange,
    pub remote_ports: PortRange,
}

impl Selector {
    /// Selects all packets between two address ranges.
    pub fn between(local: AddressRange, remote: AddressRange) -> Self {
        Self {
            local,
            remote,
            protocol: NextLayer::Any,
            local_ports: PortRange::Any,
            remote_ports: PortRange::Any,
        }
    }

    /// Returns true if the local or the remote ports are OPAQUE: only packets match whose ports cannot be seen
    /// (RFC 4301 §4.4.1.1).
    pub(crate) fn has_opaque_ports(&self) -> bool {
        [self.local_ports, self.remote_ports].contains(&PortRange::Opaque)
    }

    /// Combines two negotiated ends. Returns `None` if their IP versions or protocols contradict each other.
    pub fn combine(local: &TrafficSelector, remote: &TrafficSelector) -> Option<Self> {
        let protocol = match (local.protocol, remote.protocol) {
            (0, 0) => NextLayer::Any,
            (0, p) | (p, 0) => NextLayer::Is(p),
            (p, q) if p == q => NextLayer::Is(p),
            _ => return None,
        };
        let same_version = local.addresses.first.is_ipv4() == remote.addresses.first.is_ipv4();
        same_version.then_some(Self {
            local: local.addresses,
            remote: remote.addresses,
            protocol,
            local_ports: local.ports,
            remote_ports: remote.ports,
        })
    }

    /// Returns true if a packet can match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.remote.overlaps(&other.remote)
            && self.local.overlaps(&other.local)
            && self.protocol.overlaps(&other.protocol)
            && self.local_ports.overlaps(&other.local_ports)
            && self.remote_ports.overlaps(&other.remote_ports)
    }

    pub fn matches(&self, flow: &Flow) -> bool {
        self.remote.contains(flow.remote)
            && self.local.contains(flow.local)
            && self.protocol.contains(flow.protocol)
            && self
                .local_ports
                .contains(flow.ports.map(|(local, _)| local))
            && self
                .remote_ports
                .contains(flow.ports.map(|(_, remote)| remote))
    }
}

/// The fields that an SA takes from the packet that asks for it, instead of from the policy (PFP, RFC 4301 §4.4.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PopulateFromPacket {
    pub local: bool,
    pub remote: bool,
    pub protocol: bool,
    pub local_port: bool,
    pub remote_port: bool,
}

impl PopulateFromPacket {
    pub const NONE: Self = Self {
        local: false,
        remote: false,
        protocol: false,
        local_port: false,
        remote_port: false,
    };

    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The selector to negotiate for a packet, given the policy's `selector` that matches it.
    pub fn narrow(&self, selector: &Selector, flow: &Flow) -> Selector {
        let mut narrowed = *selector;
        if self.local {
            narrowed.local = AddressRange::host(flow.local);
        }
        if self.remote {
            narrowed.remote = AddressRange::host(flow.remote);
        }
        if self.protocol {
            narrowed.protocol = flow.protocol.map_or(NextLayer::Opaque, NextLayer::Is);
        }
        let port = |port: Option<u16>| port.map_or(PortRange::Opaque, |p| PortRange::Range(p, p));
        if self.local_port {
            narrowed.local_ports = port(flow.ports.map(|(local, _)| local));
        }
        if self.remote_port {
            narrowed.remote_ports = port(flow.ports.map(|(_, remote)| remote));
        }
        narrowed
    }
}

/// A set of selectors. A packet matches the set if it matches one of its selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorSet(Arc<[Selector]>, SetHash);

/// The hash of a set, which is computed once: a peer chooses how long its sets are, and a table that grows hashes all of
/// its keys again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SetHash(u64);

/// The key of the hashes. Peers must not find sets with one hash.
static SET_HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Hash for SelectorSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.1.0);
    }
}

/// Bounds the number of selectors that a peer can make every packet walk through.
const SELECTORS_MAX: usize = 1024;

impl SelectorSet {
    /// Makes a set. Returns `None` if the set has more selectors than a packet should have to walk through.
    pub fn new(selectors: Vec<Selector>) -> Option<Self> {
        if selectors.len() > SELECTORS_MAX {
            return None;
        }
        let hash = match selectors.is_empty() {
            true => SetHash::default(),
            false => SetHash(SET_HASHES.hash_one(&selectors)),
        };
        Some(Self(selectors.into(), hash))
    }

    /// Makes a set of all combinations of the negotiated ends (RFC 7296 §2.9).
    pub fn from_ends(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Option<Self> {
        if local.len().checked_mul(remote.len())? > SELECTORS_MAX {
            return None;
        }
        let pairs = local
            .iter()
            .flat_map(|l| remote.iter().map(move |r| (l, r)));
        Self::new(pairs.filter_map(|(l, r)| Selector::combine(l, r)).collect())
    }

    pub fn matches(&self, flow: &Flow) -> bool {
        self.0.iter().any(|selector| selector.matches(flow))
    }

    /// Returns true if a packet can match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut own = self.0.iter();
        own.any(|one| other.0.iter().any(|other| one.overlaps(other)))
    }

    pub fn as_slice(&self) -> &[Selector] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
