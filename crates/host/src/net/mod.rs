//! Links, addresses, routes, rules and packet filters of the kernel, over netlink. It offers only
//! what a gateway and its test networks need.
//!
//! A [`Net`] talks to the network namespace that its thread was in when it connected. It needs a
//! tokio runtime.

pub mod classifier;
mod kept;
mod lookup;
mod next_hop;
pub mod nft;
mod ranges;
mod repair;
mod routing;
mod rules;
mod source;
mod watch;
mod xdp;

use esplanade_prefix::Prefix;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::sys::{AsyncSocket, TokioSocket, protocols};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::task::JoinHandle;

pub use lookup::{Headers, KnownBy, KnownMtu, Origin, RoutedTo, origin, route_to};
pub use next_hop::{
    LinkFacts, LinkKind, Neighbour, NextHop, link_facts, link_kind, neighbour, next_hop,
};
pub use ranges::{Destinations, of_the_link};
pub use repair::OwnLink;
pub use routing::{AddressRange, Routing, RuleConfig, RulePackets, shadowed};
pub use source::of_own_networks;
pub use watch::{NetWatch, TableWatch, Watched, WatchedNumbers};
pub use xdp::{XdpAttachment, detach_leftover};

/// An operation that failed, with the kernel's error number if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct NetError {
    what: String,
    source: io::Error,
}

impl NetError {
    fn new(what: impl Into<String>, error: rtnetlink::Error) -> Self {
        let source = match error {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            other => io::Error::other(other.to_string()),
        };
        Self {
            what: what.into(),
            source,
        }
    }

    fn not_found(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: io::Error::from_raw_os_error(libc::ENODEV),
        }
    }

    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

pub type Result<T> = std::result::Result<T, NetError>;

/// An address of an interface, with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkAddress {
    pub link: u32,
    pub address: IpAddr,
    pub prefix_len: u8,
    /// Packets to other hosts can come from the address.
    pub is_source: bool,
    /// The host has the address for good, and not for a time, as from DHCP or a router (RFC 4862).
    pub is_permanent: bool,
}

impl LinkAddress {
    /// Returns the network of the address, or `None` if other hosts of it cannot be on the link.
    pub fn network(&self) -> Option<Prefix> {
        let network = Prefix::new(self.address, self.prefix_len)?;
        let alone = network == Prefix::host(self.address);
        (!alone && !self.address.is_loopback()).then_some(network)
    }
}

/// The place to which a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteTarget {
    /// Out of a link, through a gateway or directly.
    Link {
        index: u32,
        gateway: Option<IpAddr>,
        source: Option<IpAddr>,
    },
    /// Out of a link, where no other route to the destination has a source. The kernel takes a route with the address
    /// that is its source, and IPv6 looks again with any source where the first look ends nowhere.
    Held { index: u32 },
    /// To the next routing rule, as if the table had no such route.
    Throw,
    /// Nowhere. Such a route has the last metric: any other route to the same destination precedes
    /// it.
    Unreachable,
}

impl RouteTarget {
    /// Routes to one destination with different metrics stand beside each other.
    fn metric(self) -> u32 {
        match self {
            Self::Link { .. } | Self::Throw => METRIC_FIRST,
            Self::Held { .. } => METRIC_HELD,
            Self::Unreachable => METRIC_LAST,
        }
    }

    /// Tells whether the route goes when its link goes.
    fn has_link(self) -> bool {
        matches!(self, Self::Link { .. } | Self::Held { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    pub destination: Prefix,
    pub target: RouteTarget,
    pub table: u32,
}

/// A route as the kernel lists it.
#[derive(Debug)]
struct ListedRoute {
    destination: Prefix,
    /// `None` means a kind of route that this module does not make.
    target: Option<RouteTarget>,
    message: RouteMessage,
}

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The metric of the route that every other route precedes.
const METRIC_LAST: u32 = 65_535;
/// The metric of the route that is left when another one has gone with its source.
const METRIC_HELD: u32 = 32_768;
/// The metric that the kernel gives to IPv6 routes by default. We name it, because a deletion
/// without a metric may delete any route to the destination.
const METRIC_FIRST: u32 = 1024;

/// The main routing table.
pub const TABLE_MAIN: u32 = 254;

#[derive(Debug)]
pub struct Net {
    handle: Handle,
    /// Port number of our netlink socket. The kernel marks announcements of our own changes with
    /// it.
    port: u32,
    task: JoinHandle<()>,
}

impl Drop for Net {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Net {
    /// Connects to the network namespace of the calling thread.
    pub fn connect() -> Result<Self> {
        let bound = || {
            let mut socket = TokioSocket::new(protocols::NETLINK_ROUTE)?;
            let address = socket.socket_mut().bind_auto()?;
            Ok((socket, address.port_number()))
        };
        let (socket, port) = bound().map_err(|source| NetError {
            what: "cannot open a netlink socket".into(),
            source,
        })?;
        let (connection, handle, _) = rtnetlink::from_socket(socket);
        Ok(Self {
            handle,
            port,
            task: tokio::spawn(connection),
        })
    }

    pub async fn link_index(&self, name: &str) -> Result<u32> {
        Ok(self.link(name).await?.header.index)
    }

    /// Returns the index of the link with this name, and whether it is up. `None` means that there is no such link.
    pub async fn link_state(&self, name: &str) -> Result<Option<(u32, bool)>> {
        match self.link(name).await {
            Ok(link) => {
                let up = link.header.flags.contains(LinkFlags::Up);
                Ok(Some((link.header.index, up)))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn link(&self, name: &str) -> Result<LinkMessage> {
        let what = || format!("cannot find the interface {name}");
        let mut links = Box::pin(
            self.handle
                .link()
                .get()
                .match_name(name.to_owned())
                .execute(),
        );
        links
            .try_next()
            .await
            .map_err(|e| NetError::new(what(), e))?
            .ok_or_else(|| NetError::not_found(what()))
    }

    pub async fn link_mtu(&self, name: &str) -> Result<u32> {
        let mtu = mtu(&self.link(name).await?);
        mtu.ok_or_else(|| NetError::not_found(format!("the interface {name} has no MTU")))
    }

    /// Returns the kernel's description of the link with this index.
    async fn link_at(&self, index: u32) -> Result<LinkMessage> {
        let what = || format!("cannot find the interface with index {index}");
        let mut links = Box::pin(self.handle.link().get().match_index(index).execute());
        let link = links.try_next().await;
        let link = link.map_err(|e| NetError::new(what(), e))?;
        link.ok_or_else(|| NetError::not_found(what()))
    }

    pub async fn link_add_veth(&self, name: &str, peer: &str) -> Result<()> {
        let message = LinkVeth::new(name, peer).build();
        let result = self.handle.link().add(message).execute().await;
        result.map_err(|e| NetError::new(format!("cannot make the veth pair {name}–{peer}"), e))
    }

    pub async fn link_set_up(&self, index: u32) -> Result<()> {
        self.link_set("set up", LinkUnspec::new_with_index(index).up())
            .await
    }

    pub async fn link_set_down(&self, index: u32) -> Result<()> {
        self.link_set("set down", LinkUnspec::new_with_index(index).down())
            .await
    }

    pub async fn link_set_mtu(&self, index: u32, mtu: u32) -> Result<()> {
        self.link_set("set the MTU of", LinkUnspec::new_with_index(index).mtu(mtu))
            .await
    }

    /// Moves the link into the network namespace that `netns` refers to.
    pub async fn link_move_to_netns(&self, index: u32, netns: BorrowedFd<'_>) -> Result<()> {
        self.link_set(
            "move",
            LinkUnspec::new_with_index(index).setns_by_fd(netns.as_raw_fd()),
        )
        .await
    }

    async fn link_set(&self, verb: &str, message: LinkMessageBuilder<LinkUnspec>) -> Result<()> {
        let message = message.build();
        let what = format!("cannot {verb} interface {}", message.header.index);
        self.handle
            .link()
            .set(message)
            .execute()
            .await
            .map_err(|e| NetError::new(what, e))
    }

    /// Adds an address without duplicate address detection: a gateway's IPv6 address must work at
    /// once.
    pub async fn address_add(&self, index: u32, address: IpAddr, prefix_len: u8) -> Result<()> {
        let mut request = self
            .handle
            .address()
            .add(index, address, prefix_len)
            .replace();
        if address.is_ipv6() {
            let message = request.message_mut();
            message.header.flags |= AddressHeaderFlags::Nodad;
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let result = request.execute().await;
        result
            .map_err(|e| NetError::new(format!("cannot add the address {address}/{prefix_len}"), e))
    }

    /// Lists all addresses of this namespace.
    pub async fn addresses(&self) -> Result<Vec<LinkAddress>> {
        let messages: Vec<AddressMessage> = Box::pin(self.handle.address().get().execute())
            .try_collect()
            .await
            .map_err(|e| NetError::new("cannot list the addresses", e))?;
        Ok(messages.iter().filter_map(link_address).collect())
    }

    /// Adds the route, or replaces the route with the same destination.
    pub async fn route_add(&self, route: &Route) -> Result<()> {
        let result = self
            .handle
            .route()
            .add(route_message(route))
            .replace()
            .execute()
            .await;
        result
            .map_err(|e| NetError::new(format!("cannot add the route to {}", route.destination), e))
    }

    /// Deletes the route. A route that does not exist is no error.
    pub async fn route_delete(&self, route: &Route) -> Result<()> {
        self.delete(route.destination, route_message(route)).await
    }

    async fn delete(&self, destination: Prefix, message: RouteMessage) -> Result<()> {
        let result = self.handle.route().del(message).execute().await;
        let what = || format!("cannot delete the route to {destination}");
        let result = result.map_err(|e| NetError::new(what(), e));
        ignore(result, &[libc::ESRCH, libc::ENODEV])
    }

    /// Lists the routes of a table that lead to no link. They survive every link.
    pub async fn routes_without_link(&self, family: Family, table: u32) -> Result<Vec<Route>> {
        let found = self.routes(family, table).await?.into_iter();
        let without = |found: ListedRoute| {
            let target = found.target?;
            (!target.has_link()).then_some(Route {
                destination: found.destination,
                target,
                table,
            })
        };
        Ok(found.filter_map(without).collect())
    }

    /// Lists the routes of a table.
    async fn routes(&self, family: Family, table: u32) -> Result<Vec<ListedRoute>> {
        let request = match family {
            Family::V4 => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                .table_id(table)
                .build(),
            Family::V6 => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                .table_id(table)
                .build(),
        };
        let messages: Vec<RouteMessage> = Box::pin(self.handle.route().get(request).execute())
            .try_collect()
            .await
            .map_err(|e| NetError::new(format!("cannot list the routes of table {table}"), e))?;
        // Without strict checking, the kernel lists the routes of every table.
        let of_table = messages.into_iter().filter(|one| table_of(one) == table);
        let found = |message: RouteMessage| {
            Some(ListedRoute {
                destination: destination(&message, family)?,
                target: target(&message),
                message,
            })
        };
        Ok(of_table.filter_map(found).collect())
    }
}

fn ignore(result: Result<()>, errors: &[i32]) -> Result<()> {
    match result {
        Err(error)
            if error
                .raw_os_error()
                .is_some_and(|number| errors.contains(&number)) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|one| match one {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn mtu(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|one| match one {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

fn link_address(message: &AddressMessage) -> Option<LinkAddress> {
    // On a point-to-point link, IFA_LOCAL is our end and IFA_ADDRESS is the other end.
    let local = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
    let address = local.or_else(|| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
    })?;
    Some(LinkAddress {
        link: message.header.index,
        address,
        prefix_len: message.header.prefix_len,
        is_source: source::is_source(message, address),
        is_permanent: source::flags(message).contains(AddressFlags::Permanent),
    })
}

fn target(message: &RouteMessage) -> Option<RouteTarget> {
    match message.header.kind {
        RouteType::Throw => return Some(RouteTarget::Throw),
        RouteType::Unreachable => return Some(RouteTarget::Unreachable),
        RouteType::Unicast => {}
        _ => return None,
    }
    let address = |address: &RouteAddress| match address {
        RouteAddress::Inet(address) => Some(IpAddr::from(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::from(*address)),
        _ => None,
    };
    let (mut link, mut gateway, mut source) = (None, None, None);
    let mut is_held = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Gateway(to) => gateway = address(to),
            RouteAttribute::PrefSource(from) => source = address(from),
            RouteAttribute::Priority(METRIC_HELD) => is_held = true,
            _ => {}
        }
    }
    let index = link?;
    let held = RouteTarget::Held { index };
    Some(match is_held && (gateway, source) == (None, None) {
        true => held,
        false => RouteTarget::Link {
            index,
            gateway,
            source,
        },
    })
}

fn table_of(message: &RouteMessage) -> u32 {
    let attribute = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or(message.header.table.into())
}

fn destination(message: &RouteMessage, family: Family) -> Option<Prefix> {
    let address = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::from(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    });
    // A default route has no destination attribute.
    let address = address.unwrap_or(match family {
        Family::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    });
    Prefix::new(address, message.header.destination_prefix_length)
}

fn route_message(route: &Route) -> RouteMessage {
    let length = route.destination.length();
    let kind = match route.target {
        RouteTarget::Link { .. } | RouteTarget::Held { .. } => RouteType::Unicast,
        RouteTarget::Throw => RouteType::Throw,
        RouteTarget::Unreachable => RouteType::Unreachable,
    };
    macro_rules! build {
        ($family:ty, $destination:expr, $variant:path) => {{
            let mut builder = RouteMessageBuilder::<$family>::new()
                .table_id(route.table)
                .kind(kind)
                .destination_prefix($destination, length);
            if let RouteTarget::Link {
                index,
                gateway,
                source,
            } = route.target
            {
                builder = builder.output_interface(index);
                if let Some($variant(gateway)) = gateway {
                    builder = builder.gateway(gateway);
                }
                if let Some($variant(source)) = source {
                    builder = builder.pref_source(source);
                }
            }
            if let RouteTarget::Held { index } = route.target {
                builder = builder.output_interface(index);
            }
            let metric = route.target.metric();
            if metric != METRIC_FIRST || route.destination.address().is_ipv6() {
                builder = builder.priority(metric);
            }
            builder.build()
        }};
    }
    match route.destination.address() {
        IpAddr::V4(address) => build!(std::net::Ipv4Addr, address, IpAddr::V4),
        IpAddr::V6(address) => build!(std::net::Ipv6Addr, address, IpAddr::V6),
    }
}
