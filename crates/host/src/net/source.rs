//! Chooses the source address that the host's own packets should have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::route::RouteAttribute;

use super::lookup::{ask, origin, out_of, request};
use super::{AddressRange, LinkAddress, Origin, RulePackets};

/// Addresses that no network has (RFC 5737, RFC 3849). The routes to them are those to the outside.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The links by which the host reaches the outside, for IPv4 and for IPv6.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OuterLinks([Option<u32>; 2]);

impl OuterLinks {
    /// Asks the kernel. The gateway's own packets take these links: they bypass the tunnels.
    pub fn find(packets: RulePackets) -> Self {
        match packets {
            RulePackets::OfPolicies { own_mark, .. } => Self::of_mark(Some(own_mark)),
            RulePackets::Marked { .. } => Self::of_mark(None),
        }
    }

    fn of_mark(own_mark: Option<u32>) -> Self {
        let link = |destination: IpAddr| {
            let mut message = request(destination);
            let mark = own_mark.map(RouteAttribute::Mark);
            message.attributes.extend(mark);
            out_of(&ask(message).ok()?).ok()
        };
        Self([link(OUTSIDE_V4.into()), link(OUTSIDE_V6.into())])
    }

    pub fn has(self, address: &LinkAddress) -> bool {
        let [v4, v6] = self.0;
        let outside = if address.address.is_ipv4() { v4 } else { v6 };
        outside == Some(address.link)
    }
}

/// Tells whether the kernel would choose the address for packets to other hosts (RFC 6724 §5, rules 2 and 3). A
/// tentative address does not work yet (RFC 4862 §5.4).
pub(super) fn is_source(message: &AddressMessage, address: IpAddr) -> bool {
    let unfit = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    let elsewhere = matches!(
        message.header.scope,
        AddressScope::Universe | AddressScope::Site
    );
    elsewhere && !address.is_loopback() && !flags(message).intersects(unfit)
}

/// Returns the flags of an address. The header has only the lowest of them.
pub(super) fn flags(message: &AddressMessage) -> AddressFlags {
    let flags = message.attributes.iter().find_map(|one| match one {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let low = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    flags.unwrap_or(low)
}

/// Returns the addresses whose networks may stay out of a tunnel that covers them. Whoever gives the host an address
/// must not choose what leaves in the clear. So no address on the link to the outside counts, and none that the host
/// has for a time. `own_mark` is that of the gateway's own packets.
pub fn of_own_networks(
    addresses: &[LinkAddress],
    own_mark: u32,
) -> impl Iterator<Item = &LinkAddress> {
    let outside = OuterLinks::of_mark(Some(own_mark));
    let trusted = move |one: &&LinkAddress| one.is_permanent && !outside.has(one);
    addresses.iter().filter(trusted)
}

/// Returns one of the host's addresses inside `local`, or `None` if no packet can come from any. An address that faces
/// `local` is better than one on the link to the outside.
pub(super) fn source(
    addresses: &[LinkAddress],
    outside: OuterLinks,
    v4: bool,
    local: &[AddressRange],
) -> Option<IpAddr> {
    let fits = |one: &&LinkAddress| {
        one.is_source
            && one.address.is_ipv4() == v4
            && local.iter().any(|range| range.contains(one.address))
    };
    let mut fitting: Vec<_> = addresses.iter().filter(fits).collect();
    fitting.sort_by_key(|one| outside.has(one));
    let mut fitting = fitting.into_iter().map(|one| one.address);
    // The kernel refuses an address that has gone since they were listed.
    fitting.find(|address| origin(*address).is_ok_and(|origin| origin == Origin::Host))
}
