//! Networks that one site can have to itself. Limits per source count by these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceNetwork {
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
}

impl SourceNetwork {
    pub(crate) fn of(address: IpAddr, prefix_len: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len));
                Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len));
                Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
        };
        Self {
            address,
            prefix_len,
        }
    }

    /// The smallest network with both addresses. Those of two IP versions have none, and get all of the first one's.
    pub(crate) fn around(one: IpAddr, other: IpAddr) -> Self {
        let common = match (one, other) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => 0,
        };
        // It is 128 at most.
        Self::of(one, common as u8)
    }

    /// The network that counts as one source. An IPv6 host has a whole /64 to send from.
    pub(crate) fn of_source(address: IpAddr) -> Self {
        Self::of(address, prefix_lens(address)[0])
    }
}

/// The part of an address that one sender surely has: an IPv6 host may use all addresses of its /64.
pub fn source_of(address: IpAddr) -> IpAddr {
    SourceNetwork::of_source(address).address
}

/// Prefix lengths of the networks that one site can have to itself, from long to short. IPv6 providers give a
/// customer a /64, a /56 or a /48.
pub(crate) fn prefix_lens(address: IpAddr) -> &'static [u8] {
    match address {
        IpAddr::V4(_) => &[32, 24],
        IpAddr::V6(_) => &[64, 56, 48],
    }
}
