//! The addresses that requests may go to.
//!
//! The URIs come from certificates, CRLs and redirections, so others have written them. None of them may lead to what
//! only this host reaches: its own addresses, and those of one link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use serde::{Deserialize, Serialize};

use crate::net::Prefix;

/// The prefix of NAT64 (RFC 6052 §2.1), that for local use (RFC 8215), and that of 6to4 (RFC 3056 §2).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
const NAT64_LOCAL: [u16; 3] = [0x64, 0xff9b, 1];
const SIX_TO_FOUR: u16 = 0x2002;

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

/// Returns the address, or what it stands for, and the IPv4 address that a translator may take out of it.
fn meant_by(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else {
        return vec![address];
    };
    let segments = v6.segments();
    let [.., high, low] = segments;
    let last = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    if v6.to_ipv4_mapped().is_some() {
        return vec![last.into()];
    }
    let inner = match segments {
        [SIX_TO_FOUR, high, low, ..] => {
            Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        // Addresses of the form ::192.0.2.1 are out of use (RFC 4291 §2.5.5.1).
        [0, 0, 0, 0, 0, 0, high, _] if high > 0 => Some(last),
        _ if segments.starts_with(&NAT64) || segments.starts_with(&NAT64_LOCAL) => Some(last),
        _ => None,
    };
    [Some(address), inner.map(IpAddr::V4)]
        .into_iter()
        .flatten()
        .collect()
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
