//! The settings of policies and SAs as plain values: what a negotiation or an administrator chooses. This module
//! depends on no other module, so that the SPD, the SAs and the headers can share its types.

use std::num::NonZeroU8;
use std::sync::Arc;

/// Names a policy towards the control plane. Its SAs and its events carry this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(pub u32);

/// The direction of an SA: each SA carries packets one way only (RFC 4301 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaDirection {
    Outbound,
    Inbound,
}

/// What an SA does with the IP header of the packets it protects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The whole packet goes behind a new header (RFC 4303 §3.1.2).
    #[default]
    Tunnel,
    /// The packet's own header stays in front (RFC 4303 §3.1.1).
    Transport,
}

/// Traffic flow confidentiality padding (RFC 4303 §2.7); tunnel mode only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TfcPadding {
    #[default]
    None,
    /// Inner packets shorter than this many bytes are padded to it. A path that takes less is padded to what it takes:
    /// see [`OutboundSa::set_path_mtu`](crate::sa::OutboundSa::set_path_mtu).
    To(u16),
}

/// A set of DSCPs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DscpSet(u64);

impl DscpSet {
    pub const ALL: Self = Self(u64::MAX);
    pub const EMPTY: Self = Self(0);

    /// Adds a code point. A code point above 63 is ignored.
    #[must_use]
    pub const fn with(self, code_point: u8) -> Self {
        match code_point {
            0..64 => Self(self.0 | 1 << code_point),
            _ => self,
        }
    }

    pub const fn contains(self, code_point: u8) -> bool {
        code_point < 64 && self.0 >> code_point & 1 == 1
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |&code_point| self.contains(code_point))
    }
}

impl Default for DscpSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<u8> for DscpSet {
    fn from_iter<I: IntoIterator<Item = u8>>(code_points: I) -> Self {
        code_points.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl std::fmt::Debug for DscpSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            set => f.debug_set().entries(set.iter()).finish(),
        }
    }
}

/// How a tunnel makes the outer header from the inner one, and corrects the inner one on the way in
/// (RFC 4301 §5.1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelOptions {
    pub dscp: DscpPolicy,
    pub df: DfPolicy,
    pub ecn: EcnPolicy,
    pub flow_label: FlowLabelPolicy,
    /// TTL or hop limit of the outer header. The sending back end chooses one where this is `None`.
    pub ttl: Option<NonZeroU8>,
    /// Inbound: the outer DSCP replaces the inner one. Nothing authenticates the outer DSCP.
    pub dscp_from_outer: bool,
}

/// Don't Fragment in an outer IPv4 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DfPolicy {
    #[default]
    Copy,
    Set,
    Clear,
}

/// DSCP in the outer header (RFC 4301 §5.1.2.1, note 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DscpPolicy {
    #[default]
    Copy,
    /// The SAs of a policy share one map.
    Map(Arc<DscpMap>),
}

impl DscpPolicy {
    /// Every outer header has this code point, 0 to 63.
    pub fn fixed(code_point: u8) -> Self {
        Self::Map(Arc::new(DscpMap::fixed(code_point)))
    }
}

/// The outer DSCP for each inner one (RFC 2983 §4).
#[derive(Clone, PartialEq, Eq)]
pub struct DscpMap([u8; 64]);

impl DscpMap {
    /// Maps every code point to itself.
    pub fn identity() -> Self {
        Self(std::array::from_fn(|code_point| code_point as u8))
    }

    /// Maps every code point to this one.
    pub const fn fixed(code_point: u8) -> Self {
        Self([code_point & 63; 64])
    }

    /// Maps one inner code point to another outer one; both are 0 to 63.
    #[must_use]
    pub fn with(mut self, inner: u8, outer: u8) -> Self {
        if let Some(place) = self.0.get_mut(usize::from(inner)) {
            *place = outer & 63;
        }
        self
    }

    /// The outer code point for an inner one.
    #[inline(always)]
    pub fn get(&self, inner: u8) -> u8 {
        let Self(map) = self;
        map[usize::from(inner & 63)]
    }
}

impl std::fmt::Debug for DscpMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changed = (0..64).map(|inner| (inner, self.get(inner)));
        f.debug_map()
            .entries(changed.filter(|(inner, outer)| inner != outer))
            .finish()
    }
}

/// ECN in the outer header. RFC 6040 §4.2 applies at the tunnel's end in either mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnPolicy {
    /// Normal mode: the tunnel copies the inner field.
    #[default]
    Copy,
    /// Compatibility mode: the outer field is Not-ECT, for peers that ignore it on arrival (RFC 6040 §4.3).
    Clear,
}

/// Flow label in an outer IPv6 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowLabelPolicy {
    #[default]
    Zero,
    /// The inner IPv6 flow label; zero around IPv4.
    Copy,
    /// A keyed hash of the inner flow, so that paths of equal cost share the load (RFC 6438 §3).
    Hash,
}

/// Which header decides whether an SA takes an ICMP error. The check of the quoted packet keeps a peer from reporting
/// errors about traffic that is not its own (RFC 4301 §6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IcmpErrors {
    /// The error's own header, as with any packet. If no selector takes it, the packet that the error quotes.
    #[default]
    Quoted,
    /// The error's own header alone.
    Header,
    /// The packet that the error quotes, whatever the error's own header says.
    Strict,
}
