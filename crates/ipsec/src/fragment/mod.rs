//! Fragments (RFC 4301 §7): read, put together, remembered, made.

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
pub use reassemble::{Limits, Pushed, Reassembler, Refusal};
pub use track::Tracker;

use reassemble::check;

const FRAGMENT: u8 = 44;
pub(crate) const FRAGMENT_HEADER_LEN: usize = 8;

/// What the fragments of one datagram have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Zero in IPv6, where it is no part of the key.
    pub protocol: u8,
    pub id: u32,
}

/// One fragment, checked against the bytes there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub key: FragmentKey,
    /// IP header and extension headers that every fragment repeats.
    pub unfragmentable_len: usize,
    /// Where the field lies that will name the first header of the data.
    pub next_header_at: usize,
    pub next_header: u8,
    pub ecn: u8,
    /// Where the data lies in the packet.
    pub data: Range<usize>,
    /// Where it belongs in the datagram.
    pub offset: usize,
    pub more: bool,
}

impl Fragment {
    /// None if `packet` is whole. `view` was parsed from it.
    pub fn parse(packet: &[u8], view: &IpView) -> Result<Option<Self>, Malformed> {
        let fragment = match view.version {
            IpVersion::V4 => Self::parse_v4(packet, view),
            IpVersion::V6 => Self::parse_v6(packet, view),
        };
        fragment.ok_or(Malformed)
    }

    /// In IPv6 a datagram in one piece that has a fragment header nonetheless (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Whether it can be judged by itself, without what the others of its datagram say: the ports and TCP's flags are
    /// in the first one whole, and this one does not lie on them (RFC 1858, RFC 3128).
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
        // The view has been through this chain, so it is short and all there. A later fragment's chain ends at
        // its fragment header, any other's at `upper`.
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

/// The longest packet that IP can carry.
pub(crate) const PACKET_LEN_MAX: usize = 65_535;

/// The fixed header's length, as reassembly counts it: IPv6 payload lengths leave it out.
const fn payload_max(version: IpVersion, unfragmentable_len: usize) -> usize {
    let counted = match version {
        IpVersion::V4 => unfragmentable_len,
        IpVersion::V6 => unfragmentable_len.saturating_sub(IPV6_HEADER_LEN),
    };
    PACKET_LEN_MAX.saturating_sub(counted)
}
