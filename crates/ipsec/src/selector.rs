//! Selectors: which packets a policy or an SA is for (RFC 4301 §4.4.1).

use std::net::IpAddr;
use std::sync::Arc;

/// The selector fields of one packet, seen from this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub local: IpAddr,
    pub remote: IpAddr,
    pub protocol: u8,
    /// Local and remote port; none in later fragments and in protocols without ports.
    pub ports: Option<(u16, u16)>,
}

/// An inclusive range of addresses of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// Both ends must have the same IP version and be in order.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The addresses of a prefix; host bits of `address` are ignored.
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

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, self.last, address) {
            (IpAddr::V4(first), IpAddr::V4(last), IpAddr::V4(a)) => first <= a && a <= last,
            (IpAddr::V6(first), IpAddr::V6(last), IpAddr::V6(a)) => first <= a && a <= last,
            _ => false,
        }
    }
}

/// Which ports match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortRange {
    /// Any port, and packets whose ports cannot be seen.
    Any,
    /// Only packets whose ports cannot be seen (RFC 4301 §4.4.1.1, OPAQUE).
    Opaque,
    /// First and last, inclusive.
    Range(u16, u16),
}

impl PortRange {
    /// From the start and end ports of an IKE traffic selector (RFC 7296 §3.13.1).
    pub fn from_wire(start: u16, end: u16) -> Option<Self> {
        match (start, end) {
            (0, u16::MAX) => Some(Self::Any),
            (u16::MAX, 0) => Some(Self::Opaque),
            _ if start <= end => Some(Self::Range(start, end)),
            _ => None,
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

/// One end of a selector, as IKE negotiates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSelector {
    pub addresses: AddressRange,
    /// 0 is any protocol.
    pub protocol: u8,
    pub ports: PortRange,
}

/// One combination of a local and a remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    pub local: AddressRange,
    pub remote: AddressRange,
    /// None is any protocol.
    pub protocol: Option<u8>,
    pub local_ports: PortRange,
    pub remote_ports: PortRange,
}

impl Selector {
    /// Everything between two address ranges.
    pub fn between(local: AddressRange, remote: AddressRange) -> Self {
        Self {
            local,
            remote,
            protocol: None,
            local_ports: PortRange::Any,
            remote_ports: PortRange::Any,
        }
    }

    /// The combination of two negotiated ends; none if IP versions or protocols contradict each other.
    pub fn combine(local: &TrafficSelector, remote: &TrafficSelector) -> Option<Self> {
        let protocol = match (local.protocol, remote.protocol) {
            (0, 0) => None,
            (0, p) | (p, 0) => Some(p),
            (p, q) if p == q => Some(p),
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

    pub fn matches(&self, flow: &Flow) -> bool {
        self.matches_whatever_ports(flow)
            && self
                .local_ports
                .contains(flow.ports.map(|(local, _)| local))
            && self
                .remote_ports
                .contains(flow.ports.map(|(_, remote)| remote))
    }

    fn matches_whatever_ports(&self, flow: &Flow) -> bool {
        self.remote.contains(flow.remote)
            && self.local.contains(flow.local)
            && self.protocol.is_none_or(|p| p == flow.protocol)
    }
}

/// A packet matches a set if it matches one of its selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectorSet(Arc<[Selector]>);

/// Bounds what a peer can make every packet walk through.
const SELECTORS_MAX: usize = 1024;

impl SelectorSet {
    /// None if there are more selectors than a packet should have to walk through.
    pub fn new(selectors: Vec<Selector>) -> Option<Self> {
        (selectors.len() <= SELECTORS_MAX).then(|| Self(selectors.into()))
    }

    /// All combinations of the negotiated ends (RFC 7296 §2.9).
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

    /// Whether one selector matches but for its ports.
    pub fn matches_whatever_ports(&self, flow: &Flow) -> bool {
        self.0
            .iter()
            .any(|selector| selector.matches_whatever_ports(flow))
    }

    pub fn as_slice(&self) -> &[Selector] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
