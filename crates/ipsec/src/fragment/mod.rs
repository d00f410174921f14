//! Fragments (RFC 4301 §7): parsing, reassembly, stateful checking and fragmentation.

mod arrival;
mod cut;
mod reassemble;
mod track;

use std::net::IpAddr;
use std::ops::Range;

use crate::wire::ip::{IPV6_HEADER_LEN, IpView, Malformed};
use crate::wire::{IpVersion, be16, be32};

pub(crate) use arrival::{Arrivals, check_arrival};
pub use cut::{CutError, Pieces};
pub use reassemble::{FragmentRefusal, Pushed, Reassembler, ReassemblyLimits};
pub use track::Tracker;

use reassemble::check;

const FRAGMENT: u8 = 44;
pub(crate) const FRAGMENT_HEADER_LEN: usize = 8;

/// The fields that the fragments of one datagram have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The IPv4 protocol. It is zero for IPv6, where it is no part of the key.
    pub protocol: u8,
    pub id: u32,
}

/// A fragment whose lengths were checked against the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub key: FragmentKey,
    /// Length of the IP header and of the extension headers that every fragment repeats.
    pub unfragmentable_len: usize,
    /// Offset of the field that names the first header of the data after reassembly.
    pub next_header_at: usize,
    pub next_header: u8,
    pub ecn: u8,
    /// The range of the data in the packet.
    pub data: Range<usize>,
    /// The offset of the data in the datagram.
    pub offset: usize,
    pub more: bool,
}

impl Fragment {
    /// Parses a fragment. Returns `None` if `packet` is whole. `view` must have been parsed from `packet`.
    pub fn parse(packet: &[u8], view: &IpView) -> Result<Option<Self>, Malformed> {
        let fragment = match view.version {
            IpVersion::V4 => Self::parse_v4(packet, view),
            IpVersion::V6 => Self::parse_v6(packet, view),
        };
        fragment.ok_or(Malformed)
    }

    /// Returns true if this is an IPv6 datagram in one piece that nevertheless has a fragment header (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Returns true if the fragment can be judged without the other fragments of its datagram. The first fragment
    /// must contain the ports and TCP flags completely, and a later one must not overlap them (RFC 1858, RFC 3128).
    pub fn is_sound(&self, packet: &[u8]) -> bool {
        let data = packet.get(self.data.clone()).unwrap_or_default();
        check(packet, self, data).is_ok()
    }

    fn parse_v4(packet: &[u8], view: &IpView) -> Option<Option<Self>> {
        let field = be16(packet, 6)?;
        if field & 0x3fff == 0 {
            return Some(None);
        }
        let fragment = Self {
            key: FragmentKey {
                source: view.source,
                destination: view.destination,
                protocol: view.protocol,
                id: be16(packet, 4)?.into(),
            },
            unfragmentable_len: view.header_len,
            next_header_at: 9,
            next_header: view.protocol,
            ecn: view.tos & 3,
            data: view.header_len..view.total_len,
            offset: usize::from(field & 0x1fff) * 8,
            more: field & 0x2000 != 0,
        };
        Some(Some(fragment))
    }

    fn parse_v6(packet: &[u8], view: &IpView) -> Option<Option<Self>> {
        let (mut at, mut next_header_at) = (IPV6_HEADER_LEN, 6);
        // The view was parsed through this chain, so the chain is short and complete. For a later fragment it ends at
        // the fragment header, for other packets at `upper`.
        while at < view.upper {
            let kind = *packet.get(next_header_at)?;
            if kind == FRAGMENT {
                let field = be16(packet, at + 2)?;
                let data = at + FRAGMENT_HEADER_LEN;
                let fragment = Self {
                    key: FragmentKey {
                        source: view.source,
                        destination: view.destination,
                        protocol: 0,
                        id: be32(packet, at + 4)?,
                    },
                    unfragmentable_len: at,
                    next_header_at,
                    next_header: *packet.get(at)?,
                    ecn: view.tos & 3,
                    data: data..view.total_len,
                    offset: usize::from(field & 0xfff8),
                    more: field & 1 != 0,
                };
                return Some(Some(fragment));
            }
            next_header_at = at;
            at += 8 + usize::from(*packet.get(at + 1)?) * 8;
        }
        Some(None)
    }
}

/// Length of the longest packet that IP can carry.
pub(crate) const PACKET_LEN_MAX: usize = 65_535;

/// The most bytes that may follow the headers every fragment repeats. An IPv6 payload length does not count the fixed
/// header.
const fn payload_max(version: IpVersion, unfragmentable_len: usize) -> usize {
    let counted = match version {
        IpVersion::V4 => unfragmentable_len,
        IpVersion::V6 => unfragmentable_len.saturating_sub(IPV6_HEADER_LEN),
    };
    PACKET_LEN_MAX.saturating_sub(counted)
}
