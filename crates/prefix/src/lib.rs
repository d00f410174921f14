//! Network prefixes, and the conversion of an address range into prefixes.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address prefix. Its host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns the prefix of `length` bits that contains `address`, or `None` if `length` exceeds
    /// the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let width = width(address);
        if length > width {
            return None;
        }
        let mask = if length == 0 {
            0
        } else {
            u128::MAX << (width - length)
        };
        Some(Self {
            address: from_bits(to_bits(address) & mask, address.is_ipv4()),
            length,
        })
    }

    pub fn host(address: IpAddr) -> Self {
        Self {
            address,
            length: width(address),
        }
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn length(&self) -> u8 {
        self.length
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.length).as_ref() == Some(self)
    }

    /// Returns the last address of the prefix.
    pub fn last(&self) -> IpAddr {
        let width = u32::from(width(self.address));
        let host = u128::MAX.checked_shr(128 - (width - u32::from(self.length)));
        let bits = to_bits(self.address) | host.unwrap_or(0);
        from_bits(bits, self.address.is_ipv4())
    }

    /// Tells whether `other` lies inside this prefix or equals it.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

pub fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

pub fn from_bits(bits: u128, v4: bool) -> IpAddr {
    if v4 {
        Ipv4Addr::from_bits(bits as u32).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

/// Splits a range into the fewest prefixes: at most 2·width − 2, where width is the bits of an
/// address. Returns no prefix if the ends differ in family or order.
pub fn prefixes_of_range(first: IpAddr, last: IpAddr) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    if first.is_ipv4() != last.is_ipv4() {
        return prefixes;
    }
    let (v4, width) = (first.is_ipv4(), u32::from(width(first)));
    let (mut low, high) = (to_bits(first), to_bits(last));
    while low <= high {
        // The largest block at `low` is bounded by the alignment of `low` and by the size of the
        // rest.
        let aligned = low.trailing_zeros().min(width);
        let fits = match (high - low).checked_add(1) {
            Some(count) => count.ilog2(),
            None => 128,
        };
        let bits = aligned.min(fits);
        prefixes.push(Prefix {
            address: from_bits(low, v4),
            length: (width - bits) as u8,
        });
        let Some(next) = 1u128
            .checked_shl(bits)
            .and_then(|size| low.checked_add(size))
        else {
            break;
        };
        low = next;
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> Vec<String> {
        prefixes_of_range(first.parse().unwrap(), last.parse().unwrap())
            .iter()
            .map(Prefix::to_string)
            .collect()
    }

    #[test]
    fn ranges_become_the_fewest_prefixes() {
        assert_eq!(range("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(
            range("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(range("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(
            range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ["::/0"]
        );
        assert_eq!(range("fd00::1", "fd00::1"), ["fd00::1/128"]);
        assert_eq!(
            range("255.255.255.255", "255.255.255.255"),
            ["255.255.255.255/32"]
        );
        assert!(range("10.0.0.2", "10.0.0.1").is_empty());
        assert!(range("10.0.0.2", "fd00::1").is_empty());
        assert_eq!(range("0.0.0.1", "255.255.255.254").len(), 62);
    }

    #[test]
    fn prefixes_mask_and_cover() {
        let net = Prefix::new("10.1.2.3".parse().unwrap(), 16).unwrap();
        assert_eq!(net.to_string(), "10.1.0.0/16");
        assert!(net.contains("10.1.9.9".parse().unwrap()));
        assert!(!net.contains("10.2.0.0".parse().unwrap()));
        assert!(!net.contains("fd00::1".parse().unwrap()));
        assert!(
            Prefix::new("0.0.0.0".parse().unwrap(), 0)
                .unwrap()
                .covers(&net)
        );
        assert!(Prefix::new("10.0.0.0".parse().unwrap(), 33).is_none());
        let last = |address: &str, length| {
            let prefix = Prefix::new(address.parse().unwrap(), length);
            prefix.unwrap().last().to_string()
        };
        assert_eq!(last("10.1.2.3", 16), "10.1.255.255");
        assert_eq!(last("10.1.2.3", 32), "10.1.2.3");
        assert_eq!(last("0.0.0.0", 0), "255.255.255.255");
        assert_eq!(last("fd00::", 64), "fd00::ffff:ffff:ffff:ffff");
        assert_eq!(last("::", 0), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    }
}
