//! Asks where the kernel would send a packet on its link. Senders that bypass the kernel's network
//! stack need this.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};

use super::lookup::{ask, ask_one, out_of, request, unusable};

/// The next host on the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    pub link: u32,
    /// Address of the router, or of the destination if it is on the link.
    pub address: IpAddr,
    /// The source address that the caller asked for, or else the address that the kernel would
    /// choose.
    pub source: Option<IpAddr>,
    /// Path MTU in bytes, if the kernel knows one.
    pub path_mtu: Option<usize>,
}

/// A host on a link, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub mac: [u8; 6],
    /// The kernel has confirmed the address lately, and would send without asking for it again.
    pub is_sure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    pub mac: [u8; 6],
    /// Longest packet in bytes.
    pub mtu: usize,
}

/// Returns the next hop of a packet that the gateway itself sends with this mark.
pub fn next_hop(destination: IpAddr, source: Option<IpAddr>, mark: u32) -> io::Result<NextHop> {
    let mut message = request(destination);
    if let Some(source) = source {
        message.header.source_prefix_length = message.header.destination_prefix_length;
        let source = RouteAttribute::Source(source.into());
        message.attributes.push(source);
    }
    message.attributes.push(RouteAttribute::Mark(mark));
    let answer = ask(message)?;
    if answer.header.kind != RouteType::Unicast {
        return Err(unusable());
    }
    let mut hop = NextHop {
        link: out_of(&answer)?,
        address: destination,
        source,
        path_mtu: None,
    };
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => hop.address = ip(address).ok_or_else(unusable)?,
            RouteAttribute::Via(RouteVia::Inet(address)) => hop.address = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet6(address)) => hop.address = (*address).into(),
            RouteAttribute::Via(_) => return Err(unusable()),
            RouteAttribute::PrefSource(address) if source.is_none() => hop.source = ip(address),
            RouteAttribute::Metrics(metrics) => {
                let mut mtus = metrics.iter().filter_map(|one| match one {
                    RouteMetric::Mtu(mtu) => usize::try_from(*mtu).ok(),
                    _ => None,
                });
                hop.path_mtu = mtus.next();
            }
            _ => {}
        }
    }
    if goes_elsewhere(&answer) {
        return Err(unusable());
    }
    Ok(hop)
}

/// Tells whether the route leads into a tunnel of the kernel. The link is then only the start of
/// the path.
fn goes_elsewhere(answer: &RouteMessage) -> bool {
    let is_tunnel = |attribute: &RouteAttribute| {
        matches!(
            attribute,
            RouteAttribute::Encap(_) | RouteAttribute::EncapType(_)
        )
    };
    answer.attributes.iter().any(is_tunnel)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// Returns what the kernel knows of a host on a link. `None` means that the kernel would first have
/// to ask for it.
pub fn neighbour(link: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = link;
    let destination = match address {
        IpAddr::V4(v4) => {
            message.header.family = rtnetlink::packet_route::AddressFamily::Inet;
            NeighbourAddress::Inet(v4)
        }
        IpAddr::V6(v6) => {
            message.header.family = rtnetlink::packet_route::AddressFamily::Inet6;
            NeighbourAddress::Inet6(v6)
        }
    };
    let destination = NeighbourAttribute::Destination(destination);
    message.attributes.push(destination);
    let answer = match ask_one(RouteNetlinkMessage::GetNeighbour(message)) {
        Ok(RouteNetlinkMessage::NewNeighbour(answer)) => answer,
        Ok(_) => return Err(unusable()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    use NeighbourState as State;
    let is_sure = match answer.header.state {
        State::Reachable | State::Permanent | State::Noarp => true,
        State::Stale | State::Delay | State::Probe => false,
        _ => return Ok(None),
    };
    let mac = answer.attributes.iter().find_map(|one| match one {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes[..].try_into().ok(),
        _ => None,
    });
    Ok(mac.map(|mac| Neighbour { mac, is_sure }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A device of a program, for IP packets.
    Tun,
    Other,
}

/// Returns the kind of the link with this name, or `None` if there is no such link.
pub fn link_kind(name: &str) -> io::Result<Option<LinkKind>> {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    let answer = match ask_one(RouteNetlinkMessage::GetLink(message)) {
        Ok(RouteNetlinkMessage::NewLink(answer)) => answer,
        Ok(_) => return Err(unusable()),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    // A TAP device has the same name for its kind, and is an Ethernet link.
    let tun = LinkInfo::Kind(InfoKind::Tun);
    let is_tun = answer.header.link_layer_type == LinkLayerType::None
        && answer.attributes.iter().any(
            |attribute| matches!(attribute, LinkAttribute::LinkInfo(info) if info.contains(&tun)),
        );
    Ok(Some(if is_tun {
        LinkKind::Tun
    } else {
        LinkKind::Other
    }))
}

/// Returns the address and the MTU of an Ethernet link.
pub fn link_facts(link: u32) -> io::Result<LinkFacts> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    let answer = match ask_one(RouteNetlinkMessage::GetLink(message))? {
        RouteNetlinkMessage::NewLink(answer) => answer,
        _ => return Err(unusable()),
    };
    if answer.header.link_layer_type != LinkLayerType::Ether {
        return Err(io::Error::other("it is no Ethernet link"));
    }
    let (mut mac, mut mtu) = (None, None);
    for attribute in &answer.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => mac = bytes[..].try_into().ok(),
            LinkAttribute::Mtu(bytes) => mtu = usize::try_from(*bytes).ok(),
            _ => {}
        }
    }
    match (mac, mtu) {
        (Some(mac), Some(mtu)) => Ok(LinkFacts { mac, mtu }),
        _ => Err(unusable()),
    }
}
