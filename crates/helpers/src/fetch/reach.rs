//! The addresses that requests may go to.
//!
//! The URIs come from certificates, CRLs and redirections, so others have written them. None of them may lead to what
//! only this host reaches: its own addresses, and those of one link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use serde::{Deserialize, Serialize};

use esplanade_prefix::Prefix;

/// The prefix of NAT64 (RFC 6052 §2.1), and that for local use (RFC 8215).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
const NAT64_LOCAL: [u16; 3] = [0x64, 0xff9b, 1];
/// The octets of an IPv4 address behind prefixes of NAT64: of 48, 56, 64 and 96 bits. The octet 8 is left out
/// (RFC 6052 §2.2).
const BEHIND_NAT64: [[usize; 4]; 4] = [
    [6, 7, 9, 10],
    [7, 9, 10, 11],
    [9, 10, 11, 12],
    [12, 13, 14, 15],
];
/// The prefixes of 6to4 (RFC 3056 §2) and of Teredo (RFC 4380 §2.6), and what is in front of an IPv4 address that a
/// stateless translator has made (RFC 2765 §2.1).
const SIX_TO_FOUR: u16 = 0x2002;
const TEREDO: [u16; 2] = [0x2001, 0];
const TRANSLATED: [u16; 6] = [0, 0, 0, 0, 0xffff, 0];
/// ISATAP's interface identifiers, without the bits for universal and group addresses (RFC 5214 §6.1).
const ISATAP: [u16; 2] = [0, 0x5efe];
const UNIVERSAL_AND_GROUP: u16 = 0x300;

/// The addresses that a request may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reach {
    /// The configuration names the URI, so that it may lead anywhere.
    everywhere: bool,
    /// Prefixes that are allowed although they are special.
    allowed: Vec<(IpAddr, u8)>,
}

impl Reach {
    pub(super) fn new(everywhere: bool, allowed: &[Prefix]) -> Self {
        let pairs = allowed
            .iter()
            .map(|prefix| (prefix.address(), prefix.length()));
        Self {
            everywhere,
            allowed: pairs.collect(),
        }
    }

    /// Returns the reach of a redirection: somebody else has written it.
    pub(super) fn of_redirection(&self) -> Self {
        Self {
            everywhere: false,
            ..self.clone()
        }
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.has_address(address, is_own)
    }

    fn has_address(&self, address: IpAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let mut all = meant_by(address).into_iter();
        self.everywhere || all.all(|one| self.allows(one) || !(is_special(one) || is_own(one)))
    }

    fn allows(&self, address: IpAddr) -> bool {
        let prefixes = self.allowed.iter();
        let mut prefixes = prefixes.filter_map(|(base, length)| Prefix::new(*base, *length));
        prefixes.any(|prefix| prefix.contains(address))
    }
}

/// Returns the address, or what it stands for, and the IPv4 addresses that a translator or a tunnel may take out of it.
fn meant_by(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else {
        return vec![address];
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return vec![v4.into()];
    }
    let inner = embedded_in(v6).into_iter().map(IpAddr::V4);
    [address].into_iter().chain(inner).collect()
}

/// Returns the IPv4 addresses that the form of an IPv6 address has.
fn embedded_in(v6: Ipv6Addr) -> Vec<Ipv4Addr> {
    let (segments, octets) = (v6.segments(), v6.octets());
    let of = |places: [usize; 4]| Ipv4Addr::from(places.map(|at| octets[at]));
    let last = of([12, 13, 14, 15]);
    let mut found = Vec::new();
    // Addresses of the form ::192.0.2.1 are out of use (RFC 4291 §2.5.5.1).
    let prefixes = [[0; 6], TRANSLATED, NAT64];
    if prefixes.iter().any(|prefix| segments.starts_with(prefix)) {
        found.push(last);
    }
    if segments.starts_with(&NAT64_LOCAL) {
        // Nobody sees how long the translator's prefix is. What is in 0.0.0.0/8 is behind another prefix.
        let all = BEHIND_NAT64.map(of).into_iter();
        found.extend(all.filter(|v4| v4.octets()[0] != 0));
        if found.is_empty() {
            found.push(last);
        }
    }
    if segments[0] == SIX_TO_FOUR {
        found.push(of([2, 3, 4, 5]));
    }
    if segments.starts_with(&TEREDO) {
        // The server, and the client, whose bits are turned over.
        found.push(of([4, 5, 6, 7]));
        found.push(Ipv4Addr::from(!u32::from(last)));
    }
    if [segments[4] & !UNIVERSAL_AND_GROUP, segments[5]] == ISATAP {
        found.push(last);
    }
    found
}

/// Says whether the address is for this host, for one link, or for several hosts.
fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.octets()[0] == 0
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
        }
    }
}

/// Says whether the address is one of this host. Its kernel then sends from the same address.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent. The port is that of `discard`.
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_this_host_reaches_are_refused() {
        let own: IpAddr = "192.0.2.99".parse().unwrap();
        let reach = Reach::new(false, &[]);
        let everywhere = Reach::new(true, &[]);
        for (address, expected) in [
            ("192.0.2.1", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("192.0.2.99", false),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("169.254.169.254", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:192.0.2.1", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:192.0.2.99", false),
            ("::127.0.0.1", false),
            ("64:ff9b::192.0.2.1", true),
            ("64:ff9b::169.254.169.254", false),
            ("64:ff9b:1::127.0.0.1", false),
            ("64:ff9b:1::192.0.2.1", true),
            ("2002:7f00:1::1", false),
            ("2002:c000:201::1", true),
            ("::ffff:0:127.0.0.1", false),
            ("::ffff:0:192.0.2.99", false),
            ("::ffff:0:192.0.2.1", true),
            ("::192.0.2.1", true),
            ("::2", false),
            // Behind prefixes of 48, 56 and 64 bits.
            ("64:ff9b:1:7f00:0:100::", false),
            ("64:ff9b:1:aa7f:0:1::", false),
            ("64:ff9b:1:aabb:7f:0:100:0", false),
            ("64:ff9b:1:c000:2:6300::", false),
            ("64:ff9b:1:c000:2:100::", true),
            ("64:ff9b:1:aac0:0:201::", true),
            ("64:ff9b:1:aabb:c0:2:100:0", true),
            ("64:ff9b:1::", false),
            // Teredo: the server, and the client.
            ("2001:0:c000:201:0:0:3fff:fdfe", true),
            ("2001:0:7f00:1:0:0:3fff:fdfe", false),
            ("2001:0:c000:201:0:0:80ff:fffe", false),
            ("2001:db8::80ff:fffe", true),
            ("2001:db8::5efe:127.0.0.1", false),
            ("2001:db8::200:5efe:169.254.169.254", false),
            ("fd00::300:5efe:192.0.2.99", false),
            ("2001:db8::200:5efe:192.0.2.1", true),
            ("2002:c000:201::5efe:127.0.0.1", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let is_own = |one| one == own;
            assert_eq!(reach.has_address(address, is_own), expected, "{address}");
            assert!(everywhere.has_address(address, is_own));
            let redirected = everywhere.of_redirection();
            assert_eq!(
                redirected.has_address(address, is_own),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn the_configuration_makes_exceptions() {
        let prefix = |address: &str, length| Prefix::new(address.parse().unwrap(), length).unwrap();
        let reach = Reach::new(false, &[prefix("127.0.0.0", 8), prefix("fe80::", 10)]);
        let has = |address: &str| reach.has_address(address.parse().unwrap(), |_| false);
        for allowed in ["127.0.0.1", "::ffff:127.0.0.2", "fe80::1", "192.0.2.1"] {
            assert!(has(allowed), "{allowed}");
        }
        // The translator's address is as good as its own, and the inner one is allowed.
        assert!(has("64:ff9b::127.0.0.1"));
        assert!(!has("::1") && !has("169.254.1.1"));
    }

    #[test]
    fn the_kernel_knows_our_addresses() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        // TEST-NET-3 is nobody's (RFC 5737).
        assert!(!is_own("203.0.113.7".parse().unwrap()));
    }
}
