//! Two data planes with static keys, in two network namespaces that a veth pair joins. They test the packet path
//! without IKE.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use esplanade::config::SaOptions;
use esplanade::io::netns::NetworkNamespace;
use esplanade::io::tun::Tun;
use esplanade::net::{Net, Route, RouteTarget, TABLE_MAIN};
use esplanade::worker::{
    Clock, EngineSource, Front, IkeDatagram, ListenConfig, Processing, Sockets, TunQueues, Worker,
    WorkerConfig, WorkerReports,
};
use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::inner_mtu;
use esplanade_ipsec::wire::IpVersion;
use esplanade_ipsec::{Database, Event};
use esplanade_prefix::Prefix;
use tokio::sync::mpsc;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The addresses of the veth pair.
pub const OUTER_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const OUTER_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
];
/// The addresses of the two TUN devices.
pub const INNER_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];
pub const INNER_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1),
];

#[derive(Clone, Copy)]
pub struct PairOptions {
    pub transform: Transform,
    pub udp_encap: bool,
    pub outer_v6: bool,
    pub workers: usize,
    /// Both ends have this replay window and know it of each other.
    pub peer_replay_window: u32,
}

/// Options that few tests change.
#[derive(Clone, Copy)]
pub struct Extras {
    pub processing: [Processing; 2],
    /// The remote ports of outbound policies and SAs.
    pub remote_ports: PortRange,
    /// Makes a device in front of the first site, which has the SAs of the site.
    pub front: Option<fn() -> Front>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            processing: [Processing::default(); 2],
            remote_ports: PortRange::Any,
            front: None,
        }
    }
}

pub struct Pair {
    pub namespaces: [NetworkNamespace; 2],
    pub sites: [Site; 2],
}

pub struct Site {
    pub database: Arc<Database>,
    pub workers: Vec<Worker>,
    #[allow(dead_code, reason = "not every user of this module reads it")]
    pub events: mpsc::Receiver<Event>,
    #[allow(dead_code, reason = "not every user of this module reads it")]
    pub ike: mpsc::Receiver<IkeDatagram>,
}

/// Runs `work` in a thread inside the namespace.
pub fn inside<T: Send>(
    namespace: &NetworkNamespace,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            namespace.enter()?;
            work()
        });
        thread.join().map_err(|_| "a thread panicked")?
    })
}

fn configure<F: Future<Output = Result<(), Error>>>(work: impl FnOnce() -> F) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { work().await })
}

impl Pair {
    #[allow(dead_code, reason = "not every user of this module calls it")]
    pub fn new(options: &PairOptions) -> Result<Self, Error> {
        Self::with(options, &Extras::default())
    }

    pub fn with(options: &PairOptions, extras: &Extras) -> Result<Self, Error> {
        let namespaces = [NetworkNamespace::create()?, NetworkNamespace::create()?];
        inside(&namespaces[0], || {
            configure(async || {
                let net = Net::connect()?;
                net.link_add_veth("outer0", "outer1").await?;
                let peer = net.link_index("outer1").await?;
                Ok(net.link_move_to_netns(peer, namespaces[1].as_fd()).await?)
            })
        })?;
        let sites = [
            site(&namespaces[0], 0, options, extras)?,
            site(&namespaces[1], 1, options, extras)?,
        ];
        associate(&sites, options, extras)?;
        Ok(Self { namespaces, sites })
    }
}

fn site(
    namespace: &NetworkNamespace,
    site: usize,
    options: &PairOptions,
    extras: &Extras,
) -> Result<Site, Error> {
    inside(namespace, || {
        let mut tuns = Vec::new();
        for _ in 0..options.workers {
            tuns.push(Tun::open("ipsec0", options.workers > 1)?);
        }
        configure(async || network(site, options).await)?;
        let sockets = Sockets::bind(&ListenConfig {
            workers: options.workers,
            ..ListenConfig::default()
        })?;
        let database = Arc::new(Database::new());
        let (events_sender, events) = mpsc::channel(64);
        let (ike_sender, ike) = mpsc::channel(64);
        let reports = WorkerReports {
            ike: ike_sender,
            events: events_sender,
        };
        let clock = Clock::start();
        let mut workers = Vec::new();
        let tuns = TunQueues::for_workers(tuns);
        for (index, (tun, sockets)) in tuns.zip(sockets.workers).enumerate() {
            let config = WorkerConfig {
                index,
                count: options.workers,
                cpu: None,
                clock,
                tun,
                interfaces: Vec::new(),
                sockets,
                database: Arc::clone(&database),
                reports: reports.clone(),
                flows: 4096,
                processing: extras.processing[site],
                front: extras.front.filter(|_| site == 0).map(|front| front()),
                dummies: None,
                engines: vec![EngineSource::cpu()],
            };
            workers.push(Worker::spawn(config)?);
        }
        Ok(Site {
            database,
            workers,
            events,
            ike,
        })
    })
}

async fn network(index: usize, options: &PairOptions) -> Result<(), Error> {
    let net = Net::connect()?;
    net.link_set_up(net.link_index("lo").await?).await?;
    let outer = net.link_index(&format!("outer{index}")).await?;
    net.address_add(outer, OUTER_V4[index].into(), 24).await?;
    net.address_add(outer, OUTER_V6[index].into(), 64).await?;
    net.link_set_up(outer).await?;
    let tun = net.link_index("ipsec0").await?;
    let version = if options.outer_v6 {
        IpVersion::V6
    } else {
        IpVersion::V4
    };
    let mtu = inner_mtu(1500, options.transform, version, options.udp_encap);
    net.link_set_mtu(tun, mtu as u32).await?;
    net.link_set_up(tun).await?;
    for (own, other, length) in [
        (
            IpAddr::V4(INNER_V4[index]),
            IpAddr::V4(INNER_V4[1 - index]),
            24,
        ),
        (
            IpAddr::V6(INNER_V6[index]),
            IpAddr::V6(INNER_V6[1 - index]),
            64,
        ),
    ] {
        net.address_add(tun, own, length).await?;
        let destination = Prefix::new(other, length).ok_or("bad prefix")?;
        let target = RouteTarget::Link {
            index: tun,
            gateway: None,
            source: None,
        };
        net.route_add(&Route {
            destination,
            target,
            table: TABLE_MAIN,
        })
        .await?;
    }
    Ok(())
}

/// Installs one SA in each direction.
fn associate(sites: &[Site; 2], options: &PairOptions, extras: &Extras) -> Result<(), Error> {
    let port = if options.udp_encap { 4500 } else { 0 };
    let key = vec![0x42; options.transform.key_material_len()];
    let outer = |index: usize| -> SocketAddr {
        match options.outer_v6 {
            true => SocketAddr::new(OUTER_V6[index].into(), port),
            false => SocketAddr::new(OUTER_V4[index].into(), port),
        }
    };
    let mut in_device = (None, None);
    for (from, to) in [(0, 1), (1, 0)] {
        let spi = sites[to].database.sad().allocate_spi().ok_or("no SPI")?;
        let parameters = |local, remote, ports| -> Result<SaParameters<'_>, Error> {
            Ok(SaParameters {
                esn: true,
                replay_window: options.peer_replay_window,
                peer_replay_window: options.peer_replay_window,
                ..SaParameters::new(
                    spi,
                    PolicyId(1),
                    options.transform,
                    &key,
                    selectors(local, remote, ports)?,
                    Path {
                        local: outer(local),
                        remote: outer(remote),
                        udp_encap: options.udp_encap,
                    },
                )
            })
        };
        let inbound = Arc::new(InboundSa::new(parameters(to, from, PortRange::Any)?)?);
        sites[to].database.sad().insert(inbound.clone())?;
        let policy = Arc::new(Policy::new(PolicyId(1), "pair"));
        let outbound = parameters(from, to, extras.remote_ports)?;
        let outbound = Arc::new(OutboundSa::new(outbound)?);
        policy.install(outbound.clone());
        match from {
            0 => in_device.0 = Some(outbound),
            _ => in_device.1 = Some(inbound),
        }
        let entry = SpdEntry::new(
            selectors(from, to, extras.remote_ports)?,
            Action::Protect(policy),
        );
        sites[from].database.publish_spd(Spd::new(vec![entry]));
    }
    let host = sites[0].workers.iter().find_map(|w| w.device.as_ref());
    let device = host.and_then(|host| host.device());
    if let (Some(device), (Some(outbound), Some(inbound))) = (device, in_device) {
        device.install(outbound, inbound, &SaOptions::default())?;
        device.follow();
    }
    Ok(())
}

fn selectors(local: usize, remote: usize, ports: PortRange) -> Result<SelectorSet, Error> {
    let v4 =
        |index: usize| AddressRange::from_prefix(INNER_V4[index].into(), 24).ok_or("bad prefix");
    let v6 =
        |index: usize| AddressRange::from_prefix(INNER_V6[index].into(), 64).ok_or("bad prefix");
    let between = |local, remote| Selector {
        remote_ports: ports,
        ..Selector::between(local, remote)
    };
    let both = vec![
        between(v4(local)?, v4(remote)?),
        between(v6(local)?, v6(remote)?),
    ];
    Ok(SelectorSet::new(both).ok_or("too many selectors")?)
}
