//! Asks the kernel where its routes lead a packet.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, protocols};

/// What rules and routes look at.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Source and destination.
    pub ports: Option<(u16, u16)>,
    pub tos: u8,
}

/// How a packet with this source gets to the kernel's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host sends it.
    Host,
    /// It comes in by this interface: the routes lead back to its source there.
    Link(u32),
}

/// Where the kernel's routes lead a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutedTo {
    /// Into the common TUN device.
    Tun,
    /// Out of this other interface, or to this host itself.
    Past(String),
    /// Nowhere: the packet came in by this interface, and the host does not forward what comes in there.
    NotForwarded(String),
    /// Nowhere: no route takes the packet.
    Nowhere,
}

/// How long packets to a peer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMtu {
    pub mtu: u32,
    /// True: a refused packet or an ICMP error said so. False: it is the MTU of the route, which no packet has met yet.
    pub learned: bool,
}

/// Fails where no route leads back to the source.
pub fn origin(source: IpAddr) -> io::Result<Origin> {
    let answer = ask(request(source))?;
    match answer.header.kind {
        RouteType::Local => Ok(Origin::Host),
        _ => out_of(&answer).map(Origin::Link),
    }
}

/// The interface that a packet leaves by. Without an origin only what does not depend on its source counts.
pub fn route_to(packet: &Headers, origin: Option<Origin>) -> io::Result<u32> {
    let mut message = request(packet.destination);
    message.header.tos = packet.tos;
    if let Some(origin) = origin {
        message.header.source_prefix_length = message.header.destination_prefix_length;
        let source = RouteAttribute::Source(packet.source.into());
        message.attributes.push(source);
        if let Origin::Link(link) = origin {
            message.attributes.push(RouteAttribute::Iif(link));
        }
    }
    // The kernel takes these protocols alone, and ports with the first two.
    let protocol = i32::from(packet.protocol);
    let with_ports = [libc::IPPROTO_TCP, libc::IPPROTO_UDP].contains(&protocol);
    if with_ports || [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&protocol) {
        let protocol = RouteAttribute::IpProto(packet.protocol);
        message.attributes.push(protocol);
    }
    if let Some((from, to)) = packet.ports.filter(|_| with_ports) {
        let ports = [RouteAttribute::Sport(from), RouteAttribute::Dport(to)];
        message.attributes.extend(ports);
    }
    out_of(&ask(message)?)
}

pub(super) fn request(destination: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    (
        message.header.address_family,
        message.header.destination_prefix_length,
    ) = match destination {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let destination = RouteAttribute::Destination(destination.into());
    message.attributes.push(destination);
    message
}

pub(super) fn out_of(answer: &RouteMessage) -> io::Result<u32> {
    let link = answer.attributes.iter().find_map(|one| match one {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    link.ok_or_else(unusable)
}

pub(super) fn ask(message: RouteMessage) -> io::Result<RouteMessage> {
    match ask_one(RouteNetlinkMessage::GetRoute(message))? {
        RouteNetlinkMessage::NewRoute(route) => Ok(route),
        _ => Err(unusable()),
    }
}

/// Asks once for one thing, without waiting for anything else.
pub(super) fn ask_one(message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // The kernel has answered before `send` returns.
    socket.set_non_blocking(true)?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
    match answer.map_err(io::Error::other)?.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(unusable()),
    }
}

pub(super) fn unusable() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
