//! The two ends of an SA on the outer network, and a cell for them that readers pay a few loads for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use crate::wire::IpVersion;

/// The two ends of the tunnel on the outer network. Ports count only with UDP encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub udp_encap: bool,
}

impl Path {
    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.remote.ip())
    }
}

/// A socket address takes an address (two words) and one word of port, scope and version.
const WORDS: usize = 6;
const VERSION_6: u64 = 1 << 63;
const UDP_ENCAP: u64 = 1 << 62;

/// A path that the control plane changes and workers read.
///
/// Two places, of which `version`'s low bit names the valid one. The writer fills the other and then moves
/// `version`; a reader that finds it moved afterwards reads again. No reader waits for a writer.
#[derive(Debug)]
pub(crate) struct PathCell {
    version: AtomicU64,
    places: [[AtomicU64; WORDS]; 2],
    writer: Mutex<()>,
}

impl PathCell {
    pub fn new(path: Path) -> Self {
        let words = encode(&path);
        Self {
            version: AtomicU64::new(0),
            places: [words.map(AtomicU64::new), words.map(AtomicU64::new)],
            writer: Mutex::new(()),
        }
    }

    #[inline(always)]
    pub fn load(&self) -> Path {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let [even, odd] = &self.places;
            let place = if version & 1 == 0 { even } else { odd };
            let words = place.each_ref().map(|word| word.load(Ordering::Relaxed));
            // Whoever sees a word of the next writer but one sees the version that came before it.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return decode(&words);
            }
        }
    }

    pub fn store(&self, path: Path) {
        let _one_writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        let [even, odd] = &self.places;
        let place = if version & 1 == 0 { even } else { odd };
        fence(Ordering::Release);
        for (word, value) in place.iter().zip(encode(&path)) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
    }
}

fn encode(path: &Path) -> [u64; WORDS] {
    let [local_high, local_low, local_rest] = encode_address(&path.local);
    let [remote_high, remote_low, mut remote_rest] = encode_address(&path.remote);
    if path.udp_encap {
        remote_rest |= UDP_ENCAP;
    }
    [
        local_high,
        local_low,
        local_rest,
        remote_high,
        remote_low,
        remote_rest,
    ]
}

#[inline(always)]
fn decode(words: &[u64; WORDS]) -> Path {
    let &[
        local_high,
        local_low,
        local_rest,
        remote_high,
        remote_low,
        remote_rest,
    ] = words;
    Path {
        local: decode_address(local_high, local_low, local_rest),
        remote: decode_address(remote_high, remote_low, remote_rest),
        udp_encap: remote_rest & UDP_ENCAP != 0,
    }
}

/// Flow information is not kept: outer headers have a policy for it.
fn encode_address(address: &SocketAddr) -> [u64; 3] {
    let port = u64::from(address.port());
    match address {
        SocketAddr::V4(v4) => [0, v4.ip().to_bits().into(), port],
        SocketAddr::V6(v6) => {
            let bits = v6.ip().to_bits();
            let scope = u64::from(v6.scope_id()) << 16;
            [(bits >> 64) as u64, bits as u64, port | scope | VERSION_6]
        }
    }
}

#[inline(always)]
fn decode_address(high: u64, low: u64, rest: u64) -> SocketAddr {
    let port = rest as u16;
    if rest & VERSION_6 == 0 {
        return SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(low as u32)), port);
    }
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let scope = (rest >> 16) as u32;
    SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(local: &str, remote: &str, udp_encap: bool) -> Path {
        Path {
            local: local.parse().expect("an address"),
            remote: remote.parse().expect("an address"),
            udp_encap,
        }
    }

    #[test]
    fn every_kind_of_address_is_read_as_written() {
        let first = path("192.0.2.1:4500", "198.51.100.2:1024", true);
        let cell = PathCell::new(first);
        assert_eq!(cell.load(), first);
        for next in [
            path("[2001:db8::1]:0", "[2001:db8::2]:65535", false),
            path("[fe80::1%7]:500", "[fe80::2%4294967295]:4500", true),
            path("0.0.0.0:0", "255.255.255.255:65535", false),
        ] {
            cell.store(next);
            assert_eq!(cell.load(), next);
        }
    }

    #[test]
    fn readers_never_see_half_of_a_path() {
        let of = |n: u32| {
            let address = SocketAddr::new(Ipv4Addr::from_bits(n).into(), n as u16);
            Path {
                local: address,
                remote: address,
                udp_encap: n.is_multiple_of(2),
            }
        };
        let cell = PathCell::new(of(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..200_000).for_each(|n| cell.store(of(n))));
            scope.spawn(|| {
                for _ in 0..200_000 {
                    let path = cell.load();
                    assert_eq!(path.local, path.remote);
                    assert_eq!(path.local.port().is_multiple_of(2), path.udp_encap);
                }
            });
        });
    }
}
