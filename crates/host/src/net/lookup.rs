//! Asks the kernel where its routes lead a packet. It changes no route.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, protocols};

/// The header fields that rules and routes may look at.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    pub tos: u8,
}

/// The way in which a packet with this source address reaches the kernel's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host sends the packet.
    Host,
    /// The packet arrives on this interface. The routes back to its source leave by the same
    /// interface.
    Link(u32),
}

/// The place to which the kernel's routes lead a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutedTo {
    /// Into the common TUN device.
    Tun,
    /// Out of this other interface, or to this host itself.
    Past(String),
    /// Nowhere: the packet arrived on this interface, and the host does not forward packets from it.
    NotForwarded(String),
    /// Nowhere: no route takes the packet.
    Nowhere,
}

/// The longest packet that may go to a peer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMtu {
    pub mtu: u32,
    pub by: KnownBy,
}

/// The way in which an MTU is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// It is the MTU of the route, which no packet has tested yet.
    Route,
    /// A refused packet or an ICMP error told it.
    Error,
    /// Probes have found it.
    Probes,
}

/// Returns the origin of packets from `source`. Fails if no route leads back to `source`.
pub fn origin(source: IpAddr) -> io::Result<Origin> {
    let answer = ask(request(source))?;
    match answer.header.kind {
        RouteType::Local => Ok(Origin::Host),
        _ => out_of(&answer).map(Origin::Link),
    }
}

/// Returns the index of the interface by which a packet leaves. Without an origin, the look-up
/// ignores the packet's source.
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
    // The kernel accepts only these protocols in a look-up, and ports only with TCP and UDP.
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

/// Sends one request and returns its answer. It never blocks.
pub(super) fn ask_one(message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    match exchange(message, NLM_F_REQUEST)? {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(unusable()),
    }
}

/// Has the kernel change a setting, and returns whether it did.
pub(super) fn order(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    match exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)? {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(unusable()),
    }
}

fn exchange(
    message: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<NetlinkPayload<RouteNetlinkMessage>> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // The kernel has put the answer into the socket before `send` returns.
    socket.set_non_blocking(true)?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
    Ok(answer.map_err(io::Error::other)?.payload)
}

pub(super) fn unusable() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
