//! The two ends of an SA on the outer network, and a cell for them that costs readers a few loads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use crate::wire::IpVersion;

/// The two ends of the tunnel on the outer network. Ports matter only with UDP encapsulation.
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

/// A path in six words. Two of them are enough for a path between IPv4 addresses.
///
/// The first word has the flags and the ports, the local port first. The second word has both IPv4 addresses, the
/// local one first. If either address is IPv6, the second word is the first half of the local address instead. Then
/// follow the second half, the remote address and both scopes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PackedPath([u64; NEAR + FAR]);

const NEAR: usize = 2;
const FAR: usize = 4;
const LOCAL_V6: u64 = 1 << 63;
const REMOTE_V6: u64 = 1 << 62;
const UDP_ENCAP: u64 = 1 << 61;

impl PackedPath {
    #[inline(always)]
    pub fn version(&self) -> IpVersion {
        match self.0[0] & REMOTE_V6 {
            0 => IpVersion::V4,
            _ => IpVersion::V6,
        }
    }

    #[inline(always)]
    pub fn udp_encap(&self) -> bool {
        self.0[0] & UDP_ENCAP != 0
    }

    pub fn unpack(&self) -> Path {
        let [ports, near, local_low, remote_high, remote_low, scopes] = self.0;
        let (local_port, remote_port) = ((ports >> 16) as u16, ports as u16);
        if ports & (LOCAL_V6 | REMOTE_V6) == 0 {
            let v4 = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
            return Path {
                local: SocketAddr::new(v4(near >> 32), local_port),
                remote: SocketAddr::new(v4(near), remote_port),
                udp_encap: self.udp_encap(),
            };
        }
        let address = |flag: u64, high: u64, low: u64, port: u16, scope: u64| {
            if ports & flag == 0 {
                return SocketAddr::new(Ipv4Addr::from_bits(low as u32).into(), port);
            }
            let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
            SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope as u32))
        };
        Path {
            local: address(LOCAL_V6, near, local_low, local_port, scopes >> 32),
            remote: address(REMOTE_V6, remote_high, remote_low, remote_port, scopes),
            udp_encap: self.udp_encap(),
        }
    }
}

impl From<Path> for PackedPath {
    fn from(path: Path) -> Self {
        let (local, remote) = (&path.local, &path.remote);
        let mut ports = u64::from(local.port()) << 16 | u64::from(remote.port());
        if path.udp_encap {
            ports |= UDP_ENCAP;
        }
        if let (IpAddr::V4(local), IpAddr::V4(remote)) = (local.ip(), remote.ip()) {
            let near = u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits());
            return Self([ports, near, 0, 0, 0, 0]);
        }
        if local.is_ipv6() {
            ports |= LOCAL_V6;
        }
        if remote.is_ipv6() {
            ports |= REMOTE_V6;
        }
        let [local_high, local_low, local_scope] = words(local);
        let [remote_high, remote_low, remote_scope] = words(remote);
        let scopes = local_scope << 32 | remote_scope;
        Self([
            ports,
            local_high,
            local_low,
            remote_high,
            remote_low,
            scopes,
        ])
    }
}

/// Returns the address in two words, and its scope. The flow information is dropped, because outer headers have their
/// own policy for it.
fn words(address: &SocketAddr) -> [u64; 3] {
    match address {
        SocketAddr::V4(v4) => [0, v4.ip().to_bits().into(), 0],
        SocketAddr::V6(v6) => {
            let bits = v6.ip().to_bits();
            [(bits >> 64) as u64, bits as u64, v6.scope_id().into()]
        }
    }
}

impl std::fmt::Debug for PackedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.unpack().fmt(f)
    }
}

/// A path that the control plane changes and workers read.
///
/// There are two places, and the low bit of `version` names the valid one. The writer fills the other place and then
/// increments `version`. A reader that finds `version` changed afterwards reads again. No reader waits for a writer.
#[derive(Debug)]
pub(crate) struct PathCell {
    version: AtomicU64,
    /// The near words of the even place. Most paths never change.
    near: [AtomicU64; NEAR],
    far: Box<Far>,
}

/// The words that a reader does not need for an SA's first path between IPv4 addresses.
#[derive(Debug)]
struct Far {
    odd_near: [AtomicU64; NEAR],
    even: [AtomicU64; FAR],
    odd: [AtomicU64; FAR],
    writer: Mutex<()>,
}

impl PathCell {
    pub fn new(path: Path) -> Self {
        let [a, b, c, d, e, f] = PackedPath::from(path).0;
        let (near, far) = ([a, b], [c, d, e, f]);
        Self {
            version: AtomicU64::new(0),
            near: near.map(AtomicU64::new),
            far: Box::new(Far {
                odd_near: near.map(AtomicU64::new),
                even: far.map(AtomicU64::new),
                odd: far.map(AtomicU64::new),
                writer: Mutex::new(()),
            }),
        }
    }

    #[inline(always)]
    fn places(&self, version: u64) -> (&[AtomicU64; NEAR], &[AtomicU64; FAR]) {
        match version & 1 {
            0 => (&self.near, &self.far.even),
            _ => (&self.far.odd_near, &self.far.odd),
        }
    }

    /// Reads a path between IPv4 addresses. Returns `None` for other paths, and while the path changes.
    #[inline(always)]
    pub fn load_near(&self) -> Option<PackedPath> {
        let version = self.version.load(Ordering::Acquire);
        let [ports, addresses] = self.places(version).0;
        let ports = ports.load(Ordering::Relaxed);
        let addresses = addresses.load(Ordering::Relaxed);
        self.is_still(version)
            .filter(|()| ports & (LOCAL_V6 | REMOTE_V6) == 0)
            .map(|()| PackedPath([ports, addresses, 0, 0, 0, 0]))
    }

    pub fn load(&self) -> PackedPath {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let (near, far) = self.places(version);
            let [a, b] = near.each_ref().map(|word| word.load(Ordering::Relaxed));
            let [c, d, e, f] = far.each_ref().map(|word| word.load(Ordering::Relaxed));
            if self.is_still(version).is_some() {
                return PackedPath([a, b, c, d, e, f]);
            }
        }
    }

    #[inline(always)]
    fn is_still(&self, version: u64) -> Option<()> {
        // A reader that saw a word of the writer after the next one also sees the version before that writer.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(())
    }

    pub fn store(&self, path: Path) {
        let writer = self.far.writer.lock();
        let _one_writer = writer.unwrap_or_else(PoisonError::into_inner);
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        let (near, far) = self.places(version);
        fence(Ordering::Release);
        for (word, value) in near.iter().chain(far).zip(PackedPath::from(path).0) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
    }
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
        assert_eq!(cell.load().unpack(), first);
        assert!(cell.load_near() == Some(cell.load()));
        for next in [
            path("[2001:db8::1]:0", "[2001:db8::2]:65535", false),
            path("[fe80::1%7]:500", "[fe80::2%4294967295]:4500", true),
            path("0.0.0.0:0", "255.255.255.255:65535", false),
            path("192.0.2.1:1", "[fe80::2%9]:2", true),
            path("[fe80::2%9]:3", "192.0.2.1:4", false),
        ] {
            cell.store(next);
            assert_eq!(cell.load().unpack(), next);
            let near = next.local.is_ipv4() && next.remote.is_ipv4();
            assert!(cell.load_near() == near.then(|| cell.load()));
            assert_eq!(cell.load().version(), next.version());
            assert_eq!(cell.load().udp_encap(), next.udp_encap);
        }
    }

    #[test]
    fn readers_never_see_half_of_a_path() {
        let of = |n: u32| {
            let ip = match n % 3 {
                0 => Ipv4Addr::from_bits(n).into(),
                _ => Ipv6Addr::from_bits(u128::from(n) << 64 | u128::from(n)).into(),
            };
            let address = SocketAddr::new(ip, n as u16);
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
                    let packed = cell.load_near().unwrap_or_else(|| cell.load());
                    let path = packed.unpack();
                    assert_eq!(path.local, path.remote);
                    if let IpAddr::V6(ip) = path.local.ip() {
                        assert_eq!((ip.to_bits() >> 64) as u64, ip.to_bits() as u64);
                    }
                    assert_eq!(path.local.port().is_multiple_of(2), path.udp_encap);
                }
            });
        });
    }
}
