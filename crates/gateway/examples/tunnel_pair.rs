//! Two data planes with static keys in two network namespaces, driven with iperf3: the packet path without IKE.
//!
//! `cargo run --release --example tunnel_pair -- [gcm128|gcm256|cbc128] [udp|raw] [workers] [iperf3 arguments…]`
//!
//! Needs root, or `unshare -Urn`, and iperf3.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade::io::netns::Namespace;
use esplanade::io::tun::Tun;
use esplanade::net::{Net, Prefix, Route, RouteTarget, TABLE_MAIN};
use esplanade::worker::{Clock, Engines, ListenConfig, Reports, Sockets, Worker, WorkerConfig};
use esplanade_crypto::iana::Integrity;
use esplanade_crypto::{AesKeyLength, CpuEngine, Transform};
use esplanade_ipsec::Database;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters, TunnelOptions};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};
use esplanade_ipsec::tunnel::inner_mtu;
use esplanade_ipsec::wire::IpVersion;
use tokio::sync::mpsc;

type Error = Box<dyn std::error::Error + Send + Sync>;

const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];

struct Options {
    transform: Transform,
    udp_encap: bool,
    workers: usize,
    iperf: Vec<String>,
}

struct Site {
    database: Arc<Database>,
    workers: Vec<Worker>,
    _events: mpsc::Receiver<esplanade_ipsec::Event>,
    _ike: mpsc::Receiver<esplanade::worker::Datagram>,
}

/// Runs `work` in a thread inside the namespace.
fn inside<T: Send>(
    namespace: &Namespace,
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
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work())
}

fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .init();
    let options = options();
    let namespaces = [Namespace::create()?, Namespace::create()?];
    inside(&namespaces[0], || {
        configure(async || {
            let net = Net::connect()?;
            net.link_add_veth("outer0", "outer1").await?;
            net.link_move_to_netns(
                net.link_index("outer1").await?,
                std::os::fd::AsFd::as_fd(&namespaces[1]),
            )
            .await?;
            Ok(())
        })
    })?;
    let sites = [
        site(&namespaces, 0, &options)?,
        site(&namespaces, 1, &options)?,
    ];
    associate(&sites, &options)?;

    std::thread::scope(|scope| -> Result<(), Error> {
        let server = scope.spawn(|| {
            inside(&namespaces[1], || {
                Ok(Command::new("iperf3").args(["-s", "-1"]).output()?)
            })
        });
        std::thread::sleep(std::time::Duration::from_millis(500));
        inside(&namespaces[0], || {
            let ping = ["-q", "-c", "3", "-i", "0.2", &INNER[1].to_string()].map(str::to_owned);
            Command::new("ping").args(ping).status()?;
            Command::new("iperf3")
                .args(["-c", &INNER[1].to_string()])
                .args(&options.iperf)
                .status()?;
            Ok(())
        })?;
        server.join().map_err(|_| "the server panicked")??;
        Ok(())
    })?;
    for (name, site) in ["client", "server"].iter().zip(&sites) {
        for worker in &site.workers {
            report(name, worker);
        }
    }
    Ok(())
}

fn options() -> Options {
    let mut arguments = std::env::args().skip(1);
    let transform = match arguments.next().as_deref() {
        Some("gcm256") => Transform::AesGcm16(AesKeyLength::Bits256),
        Some("cbc128") => Transform::AesCbcHmac(AesKeyLength::Bits128, Integrity::HmacSha2_256_128),
        _ => Transform::AesGcm16(AesKeyLength::Bits128),
    };
    Options {
        transform,
        udp_encap: arguments.next().as_deref() != Some("raw"),
        workers: arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
        iperf: arguments.collect(),
    }
}

fn site(namespaces: &[Namespace; 2], index: usize, options: &Options) -> Result<Site, Error> {
    inside(&namespaces[index], || {
        let mut tuns = Vec::new();
        for _ in 0..options.workers {
            tuns.push(Tun::open("ipsec0", options.workers > 1)?);
        }
        configure(async || {
            let net = Net::connect()?;
            let outer = net.link_index(&format!("outer{index}")).await?;
            net.link_set_up(net.link_index("lo").await?).await?;
            net.address_add(outer, OUTER[index].into(), 24).await?;
            net.link_set_up(outer).await?;
            let tun = net.link_index("ipsec0").await?;
            let mtu = inner_mtu(1500, options.transform, IpVersion::V4, options.udp_encap);
            net.link_set_mtu(tun, mtu as u32).await?;
            net.address_add(tun, INNER[index].into(), 24).await?;
            net.link_set_up(tun).await?;
            let destination = Prefix::new(INNER[1 - index].into(), 24).ok_or("bad prefix")?;
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
            Ok(())
        })?;
        let listen = ListenConfig {
            workers: options.workers,
            ..ListenConfig::default()
        };
        let sockets = Sockets::bind(&listen)?;
        let database = Arc::new(Database::new());
        let (events, _events) = mpsc::channel(64);
        let (ike, _ike) = mpsc::channel(64);
        let reports = Reports { ike, events };
        let clock = Clock::start();
        let mut workers = Vec::new();
        for (index, (tun, sockets)) in tuns.into_iter().zip(sockets.workers).enumerate() {
            let config = WorkerConfig {
                index,
                cpu: None,
                clock,
                tun,
                sockets,
                database: Arc::clone(&database),
                reports: reports.clone(),
            };
            let engines = Engines {
                seal: Box::new(CpuEngine::new(4)?),
                open: Box::new(CpuEngine::new(4)?),
            };
            workers.push(Worker::spawn(config, engines)?);
        }
        Ok(Site {
            database,
            workers,
            _events,
            _ike,
        })
    })
}

/// Installs one SA in each direction.
fn associate(sites: &[Site; 2], options: &Options) -> Result<(), Error> {
    let port = if options.udp_encap { 4500 } else { 0 };
    let key = vec![0x42; options.transform.key_material_len()];
    let range =
        |index: usize| AddressRange::from_prefix(IpAddr::V4(INNER[index]), 24).ok_or("bad prefix");
    for (from, to) in [(0, 1), (1, 0)] {
        let spi = sites[to].database.sad().allocate_spi().ok_or("no SPI")?;
        let parameters = |local: usize, remote: usize| -> Result<SaParameters<'_>, Error> {
            Ok(SaParameters {
                spi,
                policy: PolicyId(1),
                transform: options.transform,
                esn: true,
                key_material: &key,
                selectors: selectors(range(local)?, range(remote)?)?,
                path: Path {
                    local: SocketAddr::new(OUTER[local].into(), port),
                    remote: SocketAddr::new(OUTER[remote].into(), port),
                    udp_encap: options.udp_encap,
                },
                tunnel: TunnelOptions::default(),
                lifetime: LifetimeLimits::default(),
                replay_window: 1024,
            })
        };
        sites[to]
            .database
            .sad()
            .insert(Arc::new(InboundSa::new(parameters(to, from)?)?))?;
        let policy = Arc::new(Policy::new(PolicyId(1), "pair"));
        policy.install(Arc::new(OutboundSa::new(parameters(from, to)?)?));
        let entry = Entry {
            selectors: selectors(range(from)?, range(to)?)?,
            action: Action::Protect(policy),
        };
        sites[from].database.publish_spd(Spd::new(vec![entry]));
    }
    Ok(())
}

fn selectors(local: AddressRange, remote: AddressRange) -> Result<SelectorSet, Error> {
    Ok(SelectorSet::new(vec![Selector::between(local, remote)]).ok_or("too many selectors")?)
}

fn report(name: &str, worker: &Worker) {
    println!("{name}:");
    for (direction, walk) in [("outbound", &worker.outbound), ("inbound", &worker.inbound)] {
        let packets = walk.packets_out.load(Ordering::Relaxed);
        let drops: Vec<_> = walk.drops.iter().filter(|(_, count)| *count > 0).collect();
        println!("  {direction}: {packets} packets, drops {drops:?}");
    }
    let counters: Vec<_> = worker.io.iter().filter(|(_, count)| *count > 0).collect();
    println!("  {counters:?}");
}
