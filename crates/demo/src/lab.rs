//! Builds the network of the demo: two sites behind gateways, and a router between them that has no
//! route to the sites.
//!
//! ```text
//!  host-a ------- gw-a ------- internet ------- gw-b ------- host-b
//!     10.1.0.0/24    192.0.2.0/24   198.51.100.0/24   10.2.0.0/24
//! ```
//!
//! Every name is a network namespace. The namespaces have no name outside this process, and they
//! end with it.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use esplanade_host::io::netns;
use esplanade_host::net::{Net, Route, RouteTarget, TABLE_MAIN};
use esplanade_prefix::Prefix;

use super::Error;

pub const HOST_A: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
pub const HOST_B: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
pub const GATEWAY_A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const GATEWAY_B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const SITE_A: &str = "10.1.0.0/24";
pub const SITE_B: &str = "10.2.0.0/24";
const INSIDE_A: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const INSIDE_B: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const INTERNET_A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const INTERNET_B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PREFIX_LEN: u8 = 24;

/// The router's interface that every packet between the sites passes.
pub const WIRE: &str = "to-a";
/// A gateway's interface to the internet.
const OUTSIDE: &str = "outside";
/// A gateway's interface to its site. The host at the other end calls its interface `lan`.
const INSIDE: &str = "inside";
pub const LAN: &str = "lan";

#[derive(Debug)]
pub struct Namespace {
    pub name: &'static str,
    pub network: netns::NetworkNamespace,
}

impl Namespace {
    fn new(name: &'static str) -> Result<Self, Error> {
        let network = netns::NetworkNamespace::create()
            .map_err(|source| Error::system(format!("cannot make the namespace {name}"), source))?;
        let namespace = Self { name, network };
        namespace
            .run(|| block_on(async |net| net.link_set_up(net.link_index("lo").await?).await))?;
        Ok(namespace)
    }

    /// Runs a closure in a thread inside the namespace. Sockets that it opens stay in the
    /// namespace.
    pub fn run<T: Send, E: Send + From<io::Error>>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.network.enter()?;
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The packets that found a full queue in this namespace: that of a TUN device or of a UDP socket. On a busy machine
    /// their reader comes too late.
    fn unread(&self) -> Result<u64, Error> {
        let (devices, protocols) = self
            .run(|| {
                let devices = std::fs::read_to_string("/proc/thread-self/net/dev")?;
                let protocols = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
                Ok::<_, io::Error>((devices, protocols))
            })
            .map_err(|source| {
                Error::system(format!("cannot read the counters of {}", self.name), source)
            })?;
        Ok(tun_drops(&devices) + udp_buffer_errors(&protocols))
    }

    fn forward(&self) -> Result<(), Error> {
        let path = "/proc/sys/net/ipv4/ip_forward";
        self.run(|| std::fs::write(path, "1")).map_err(|source| match source.raw_os_error() {
            Some(libc::EROFS) => Error::Forbidden(format!(
                "{path} is read-only here, so no namespace can forward packets.\n\
                 In a container, start it with --security-opt systempaths=unconfined or --privileged."
            )),
            _ => Error::system(format!("cannot write {path} in {}", self.name), source),
        })
    }
}

/// The packets that TUN devices had no room for, in the text of `/proc/net/dev`.
fn tun_drops(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let veth = ["lo", INSIDE, OUTSIDE, LAN].contains(&name.trim());
        // Eight columns are about receiving; the fourth about sending is of drops.
        let drops = counts.split_ascii_whitespace().nth(11)?;
        (!veth).then(|| drops.parse::<u64>().ok())?
    });
    counts.sum()
}

/// `RcvbufErrors` of UDP, in the text of `/proc/net/snmp`: a line of names, then a line of values.
fn udp_buffer_errors(text: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let mut pairs = names
        .split_ascii_whitespace()
        .zip(values.split_ascii_whitespace());
    pairs
        .find(|(name, _)| *name == "RcvbufErrors")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

#[derive(Debug)]
pub struct Lab {
    pub host_a: Namespace,
    pub gw_a: Namespace,
    pub internet: Namespace,
    pub gw_b: Namespace,
    pub host_b: Namespace,
}

impl Lab {
    /// The packets from host-a to host-b that found a full queue.
    pub fn unread(&self) -> Result<u64, Error> {
        Ok(self.gw_a.unread()? + self.gw_b.unread()? + self.host_b.unread()?)
    }

    pub fn build() -> Result<Self, Error> {
        let lab = Self {
            host_a: Namespace::new("host-a")?,
            gw_a: Namespace::new("gw-a")?,
            internet: Namespace::new("internet")?,
            gw_b: Namespace::new("gw-b")?,
            host_b: Namespace::new("host-b")?,
        };
        join((&lab.host_a, LAN, HOST_A), (&lab.gw_a, INSIDE, INSIDE_A))?;
        join((&lab.host_b, LAN, HOST_B), (&lab.gw_b, INSIDE, INSIDE_B))?;
        join(
            (&lab.gw_a, OUTSIDE, GATEWAY_A),
            (&lab.internet, WIRE, INTERNET_A),
        )?;
        join(
            (&lab.gw_b, OUTSIDE, GATEWAY_B),
            (&lab.internet, "to-b", INTERNET_B),
        )?;
        for router in [&lab.gw_a, &lab.internet, &lab.gw_b] {
            router.forward()?;
        }
        add_route(&lab.host_a, LAN, Ipv4Addr::UNSPECIFIED, 0, INSIDE_A)?;
        add_route(&lab.host_b, LAN, Ipv4Addr::UNSPECIFIED, 0, INSIDE_B)?;
        add_route(&lab.gw_a, OUTSIDE, Ipv4Addr::UNSPECIFIED, 0, INTERNET_A)?;
        add_route(&lab.gw_b, OUTSIDE, Ipv4Addr::UNSPECIFIED, 0, INTERNET_B)?;
        Ok(lab)
    }

    /// Gives the router routes to the sites, so that packets cross it in clear.
    pub fn route_in_clear(&self) -> Result<(), Error> {
        add_route(
            &self.internet,
            WIRE,
            Ipv4Addr::new(10, 1, 0, 0),
            PREFIX_LEN,
            GATEWAY_A,
        )?;
        add_route(
            &self.internet,
            "to-b",
            Ipv4Addr::new(10, 2, 0, 0),
            PREFIX_LEN,
            GATEWAY_B,
        )
    }
}

type End<'a> = (&'a Namespace, &'a str, Ipv4Addr);

/// Joins two namespaces by a veth pair. The pair is created in the first namespace, and one end is
/// moved to the second.
fn join(first: End<'_>, second: End<'_>) -> Result<(), Error> {
    first.0.run(|| {
        block_on(async |net| {
            net.link_add_veth(first.1, second.1).await?;
            let moving = net.link_index(second.1).await?;
            net.link_move_to_netns(moving, second.0.network.as_fd())
                .await
        })
    })?;
    for (namespace, interface, address) in [first, second] {
        namespace.run(|| {
            block_on(async |net| {
                let index = net.link_index(interface).await?;
                net.address_add(index, IpAddr::V4(address), PREFIX_LEN)
                    .await?;
                net.link_set_up(index).await
            })
        })?;
    }
    Ok(())
}

fn add_route(
    at: &Namespace,
    interface: &str,
    destination: Ipv4Addr,
    length: u8,
    gateway: Ipv4Addr,
) -> Result<(), Error> {
    let Some(destination) = Prefix::new(IpAddr::V4(destination), length) else {
        return Err(Error::system(
            "cannot add a route",
            io::ErrorKind::InvalidInput.into(),
        ));
    };
    at.run(|| {
        block_on(async |net| {
            let index = net.link_index(interface).await?;
            let target = RouteTarget::Link {
                index,
                gateway: Some(IpAddr::V4(gateway)),
                source: None,
            };
            net.route_add(&Route {
                destination,
                target,
                table: TABLE_MAIN,
            })
            .await
        })
    })
}

/// Runs netlink operations in the namespace of the calling thread.
fn block_on<T>(work: impl AsyncFnOnce(&Net) -> esplanade_host::net::Result<T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::system("cannot start the netlink runtime", source))?;
    runtime
        .block_on(async { work(&Net::connect()?).await })
        .map_err(|error| Error::system("cannot build the network", io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::{tun_drops, udp_buffer_errors};

    #[test]
    fn full_queues_are_read_from_the_kernels_tables() {
        let devices = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
            outside: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
            esp0: 1 2 3 4 5 6 7 8 9 10 11 495 13 14 15 16\n";
        assert_eq!(tun_drops(devices), 495);
        let protocols = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
            Udp: 2 3 4 5 6 7\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_buffer_errors(protocols), 6);
    }
}
