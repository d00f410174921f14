//! The data plane as the control thread holds it: TUN, sockets, workers, routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use esplanade_engines::{ChildSaDevice, EngineHost, Engines};
use esplanade_ike::{EspSpiAllocator, Routes, Transmit};
use esplanade_ipsec::pmtu::{MtuSource, PathMtus};
use esplanade_ipsec::{Database, Event};
use socket2::{Domain, Socket, Type};
use tokio::sync::{mpsc, watch};

use super::TICK;
use super::counts::{WorkerCounts, traffic_counters};
use super::host::device_routes::{self, DeviceRoutes};
use super::host::devices::{self, TunDevice};
use super::host::forwarding::forwards;
use super::host::guards::Guards;
use super::host::keeper::{Keeper, Repairs};
use super::host::links::OpenedLinks;
use super::host::shield;
use super::load::{LoadSampler, Loads};
use crate::config::{GatewayConfig, InterfaceConfig, OnStop};
use crate::explain::PacketSpec;
use crate::failure::{Exit, Failure};
use crate::io::icmp::route_mtu;
use crate::io::sys::link_name;
use crate::io::tun::TunError;
use crate::join::RouteChange;
use crate::net::nft::{Nft, NftChange};
use crate::net::{
    self, Headers, KnownBy, KnownMtu, Net, NetError, NetWatch, Origin, OwnLink, RoutedTo,
};
use crate::share::LoadSample;
use crate::status::{LinkStats, Named, TrafficCounters, WorkersStats};
use crate::worker::{
    BindError, Clock, DummySas, Health, IkeDatagram, IkeSender, ListenConfig, Processing, Sockets,
    TunInterface, TunQueues, UnreachablePeers, Worker, WorkerConfig, WorkerReports, open_device,
};

/// Most IKE messages that may wait for the control thread.
const IKE_WAITING_MAX: usize = 1024;
/// Most events of the data plane that may wait for the control thread.
const EVENTS_WAITING_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Plane {
    database: Arc<Database>,
    workers: Vec<Worker>,
    sender: IkeSender,
    dummies: watch::Sender<DummySas>,
    net: Net,
    routes: Option<DeviceRoutes>,
    keeper: Keeper,
    config: GatewayConfig,
    /// Path MTUs, which the workers learn.
    paths: Arc<PathMtus>,
    unreachable: Arc<UnreachablePeers>,
    loads: Loads,
    sampler: LoadSampler,
    /// The engines that each worker has, dropped after the workers that use them.
    engines: Engines,
    /// Links whose ESP goes to the workers past the kernel's stack.
    links: OpenedLinks,
}

/// The reason why the data plane stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Somebody has ordered the stop.
    Ordered,
    /// Nobody has ordered the stop: whatever `on_stop` says, nothing may leave in the clear.
    Failure,
}

impl Ending {
    fn opens(self, on_stop: OnStop) -> bool {
        (self, on_stop) == (Self::Ordered, OnStop::Open)
    }
}

/// The queues from the data plane to the control thread.
#[derive(Debug)]
pub(super) struct FromPlane {
    pub ike: mpsc::Receiver<IkeDatagram>,
    pub events: mpsc::Receiver<Event>,
    /// Tells when others change the network's settings.
    pub watch: NetWatch,
    /// Routes were refused, so that a repair is due.
    pub routes_lag: bool,
}

impl Plane {
    /// Binds the sockets, sets up the TUN devices, starts the workers and leads traffic in. A failure ends what was
    /// begun. It takes away nothing that keeps traffic in, even if an earlier gateway made it.
    pub async fn start(
        config: &GatewayConfig,
        clock: Clock,
        database: Arc<Database>,
        guards: crate::net::Result<Guards>,
    ) -> Result<(Self, FromPlane), Failure> {
        let workers = config.workers;
        let mut sockets = bind(config).map_err(bind_failure)?;
        let net = guards.as_ref().ok().map(|guards| &guards.net);
        let mut devices = devices::open(config, net).await.map_err(tun_failure)?;
        let Guards {
            net,
            mut routes,
            mut keeper,
            watch,
            mut routes_lag,
        } = guards.map_err(net_failure)?;
        for device in devices.interfaces.iter_mut().chain([&mut devices.common]) {
            device.set_up(&net, config).await.map_err(net_failure)?;
            keeper.adopt(device.link.clone());
        }
        let made = devices.indices();
        let links = OpenedLinks::open(config, &net, &mut sockets.workers).await?;

        let mut front = open_device(config)?;
        let engines = Engines::start(config)?;

        let (ike, from_ike) = mpsc::channel(IKE_WAITING_MAX);
        let (events, from_events) = mpsc::channel(EVENTS_WAITING_MAX);
        let reports = WorkerReports { ike, events };
        let mut plane = Self {
            database,
            workers: Vec::with_capacity(workers),
            sender: sockets.sender,
            dummies: watch::Sender::default(),
            net,
            routes: None,
            keeper,
            config: config.clone(),
            paths: sockets.paths,
            unreachable: sockets.unreachable,
            loads: Loads::default(),
            sampler: LoadSampler::default(),
            engines,
            links,
        };
        let processing = Processing {
            mss_clamp: config.mss_clamp.then_some(config.mtu),
            reassemble: config.reassemble,
            report_discards: config.icmp_unreachable,
        };
        let tuns = devices.for_workers(config);
        for (index, ((tun, interfaces), sockets)) in tuns.zip(sockets.workers).enumerate() {
            let database = plane.database.clone();
            let worker = WorkerConfig {
                index,
                count: workers,
                cpu: None,
                clock,
                tun,
                interfaces,
                sockets,
                database,
                reports: reports.clone(),
                flows: config.flow_cache_size,
                processing,
                front: front.take(),
                dummies: (index == 0).then(|| plane.dummies.subscribe()),
                engines: plane.engines.sources(),
            };
            match spawn(worker) {
                Ok(worker) => plane.workers.push(worker),
                Err(failure) => {
                    plane.stop(Ending::Failure).await;
                    return Err(failure);
                }
            }
        }
        let mut devices = plane.workers.iter().map(|worker| worker.device.clone());
        let device = devices.find_map(|device| device);
        plane.engines = plane.engines.with_device(device);
        // Routes lead into the TUN device only now. Before a worker reads them, packets would be lost, and their
        // senders would not be told.
        if let Err(error) = routes.lead_into_all(&plane.net, &made).await {
            tracing::error!("routes do not follow the policies and are tried again: {error}");
            routes_lag = true;
        }
        plane.routes = Some(routes);
        let from = FromPlane {
            ike: from_ike,
            events: from_events,
            watch,
            routes_lag,
        };
        Ok((plane, from))
    }

    pub fn database(&self) -> Arc<Database> {
        self.database.clone()
    }

    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// Lets the device in front follow the tables, if there is one.
    pub fn follow_tables(&self) {
        if let Some(device) = self.engines.device().and_then(EngineHost::device) {
            device.follow();
        }
    }

    /// Returns the workers' engines, each with the worst health that any worker has met.
    pub fn engine_health(&self) -> Vec<(&'static str, Health)> {
        let worst = |index: usize| {
            let of_workers = self.workers.iter();
            let health = of_workers.filter_map(|worker| Some(worker.engines.get(index)?.get()));
            health.max().unwrap_or_default()
        };
        let hosts = self.engines.workers().iter().enumerate();
        hosts
            .map(|(index, host)| (host.name(), worst(index)))
            .collect()
    }

    pub fn spi_allocator(&self) -> Box<dyn EspSpiAllocator> {
        Box::new(SadSpis(self.database.clone()))
    }

    pub fn workers_run(&self) -> bool {
        self.workers.iter().all(Worker::is_running)
    }

    /// Sends a message or a keepalive of IKE. A failure is the network's: IKE retransmits.
    pub fn send_ike(&self, transmit: &Transmit, now_ms: u64) {
        let (local, remote) = (transmit.local, transmit.remote);
        // The lower two bits are ECN's.
        let (tos, df) = (transmit.dscp << 2, transmit.path_probe);
        if df {
            (self.paths).sent_ike(remote.ip(), &transmit.payload, now_ms);
        }
        let sent = (self.sender).send((local, remote), tos, df, &transmit.payload);
        if let Err(error) = sent {
            tracing::debug!(%local, %remote, "cannot send an IKE message: {error}");
        }
    }

    /// Sends what holds a NAT's mapping open: one octet of 0xff (RFC 3948 §2.3).
    pub fn send_nat_keepalive(&self, local: SocketAddr, remote: SocketAddr) {
        let keepalive = Transmit {
            local,
            remote,
            dscp: 0,
            payload: vec![0xff],
            path_probe: false,
        };
        self.send_ike(&keepalive, 0);
    }

    /// Lets these SAs send dummy packets from now on, and no others.
    pub fn schedule_dummies(&self, sas: DummySas) {
        self.dummies.send_replace(sas);
    }

    pub fn routes(&self) -> Box<dyn Routes> {
        Box::new(KernelRoutes {
            mark: self.config.mark,
        })
    }

    /// Returns the length in bytes that packets to `remote` may have, or `None` if nothing is known.
    pub fn path_mtu(&self, remote: IpAddr, now_ms: u64) -> Option<KnownMtu> {
        let by_route = |mtu| KnownMtu {
            mtu,
            by: KnownBy::Route,
        };
        let known = self.narrow_path(remote, now_ms);
        known.or_else(|| route_mtu(remote, Some(self.config.mark)).ok().map(by_route))
    }

    /// The same, if the path is known to take less than its first link.
    pub fn narrow_path(&self, remote: IpAddr, now_ms: u64) -> Option<KnownMtu> {
        let (mtu, source) = self.paths.known(remote, now_ms)?;
        let by = match source {
            MtuSource::Told => KnownBy::Error,
            MtuSource::Probed => KnownBy::Probes,
        };
        Some(KnownMtu {
            mtu: mtu.into(),
            by,
        })
    }

    /// Returns the longest packet that is worth a probe of the path: what the route takes, and ICMP errors allow.
    pub fn probe_limit(&self, remote: IpAddr, now_ms: u64) -> Option<u16> {
        let route = route_mtu(remote, Some(self.config.mark)).ok()?;
        let route = u16::try_from(route).unwrap_or(u16::MAX);
        let told = self.paths.told(remote, now_ms);
        Some(told.map_or(route, |told| told.min(route)))
    }

    /// Has what probes have found count for packets to `remote`, up to this time of the clock.
    pub fn set_probed(&self, remote: IpAddr, found: Option<(u16, u64)>, now_ms: u64) {
        if let Err(error) = self.paths.set_probed(remote, found, now_ms) {
            tracing::warn!(%remote, ?error, "no room for what probes have found of the path");
        }
    }

    /// Returns what the newest ICMP error says of a peer, and the seconds since then.
    pub fn unreachable(&self, remote: IpAddr, now_ms: u64) -> Option<(&'static str, u64)> {
        self.unreachable.hint(remote, now_ms)
    }

    /// Asks the kernel where its routes lead a packet that is not the gateway's own.
    pub fn led(&self, packet: &PacketSpec) -> Option<RoutedTo> {
        let headers = Headers {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            ports: packet.ports,
            tos: packet.dscp << 2,
        };
        let origin = net::origin(packet.source).ok();
        if let Some(Origin::Link(link)) = origin {
            let link = link_name(link);
            if !forwards(packet.source, &link) {
                return Some(RoutedTo::NotForwarded(link));
            }
        }
        match net::route_to(&headers, origin) {
            Ok(out) if self.keeper.is_common(out) => Some(RoutedTo::Tun),
            Ok(out) => Some(RoutedTo::Past(link_name(out))),
            Err(error) => {
                let nowhere = [libc::EHOSTUNREACH, libc::ENETUNREACH];
                let number = error.raw_os_error();
                number
                    .is_some_and(|number| nowhere.contains(&number))
                    .then_some(RoutedTo::Nowhere)
            }
        }
    }

    /// Makes a change of a route. Returns false if that failed. Then only [`Plane::repair`] puts the routes right.
    pub async fn change_route(&mut self, change: &RouteChange) -> bool {
        match &mut self.routes {
            Some(routes) => routes.follow(&self.net, change).await,
            None => true,
        }
    }

    /// Removes what an earlier gateway left behind, now that the routes of all policies are there.
    pub async fn settle_routes(&self) {
        if let Some(routes) = &self.routes
            && let Err(error) = routes.settle(&self.net, &self.config).await
        {
            tracing::error!("routes of an earlier gateway are left: {error}");
        }
        devices::settle(&self.net, &self.config).await;
    }

    /// Keeps what drops packets that must not be in the clear.
    pub fn keeper(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    /// Tells whether a worker has met a TUN device that is gone.
    pub fn has_lost_tun(&self) -> bool {
        let lost = self.workers.iter().map(Worker::has_lost_tun);
        lost.fold(false, |any, lost| any | lost)
    }

    /// Puts back what others have changed. Returns the time to try again what did not work.
    pub async fn repair(&mut self, now: Instant) -> Option<Instant> {
        let mut repairs = Repairs::default();
        // The shield comes first: it holds the traffic that the routes would let out meanwhile.
        self.keeper.repair_shield(now, &mut repairs);
        for link in self.keeper.gone(&self.net).await {
            let name = link.name.clone();
            match self.remake(link).await {
                Ok(()) => repairs.done.push(format!("the TUN device {name}")),
                Err(error) => repairs.failed.push(error),
            }
        }
        if let Some(routes) = &mut self.routes {
            let routings = routes.iter_mut();
            self.keeper.repair(&self.net, routings, &mut repairs).await;
        }
        self.keeper.tell(&repairs, now);
        self.links.follow(&self.net, &self.workers, now).await;
        match repairs.failed.is_empty() {
            true => self.links.due(),
            false => Some(now + TICK),
        }
    }

    pub fn report_links(&self) -> Named<LinkStats> {
        self.links.report()
    }

    /// Makes a TUN device again that somebody has deleted, and gives it to the workers.
    async fn remake(&mut self, link: OwnLink) -> Result<(), String> {
        let net_error = |error: NetError| error.to_string();
        if let Some(routes) = &mut self.routes {
            routes.lose_tun(link.interface);
        }
        let device = TunDevice::open(link, self.workers.len(), Some(&self.net)).await;
        let mut device = device.map_err(|error| error.to_string())?;
        let set_up = device.set_up(&self.net, &self.config).await;
        set_up.map_err(net_error)?;
        self.give_to_workers(device).await.map_err(net_error)
    }

    /// Gives a device to the workers, and leads its traffic into it.
    async fn give_to_workers(&mut self, device: TunDevice) -> net::Result<()> {
        let TunDevice { link, queues } = device;
        let (interface, index) = (link.interface, link.index);
        for (worker, tun) in self.workers.iter().zip(TunQueues::for_workers(queues)) {
            worker.set_tun(TunInterface {
                id: interface,
                tun,
                mtu: self.config.interface_mtu(interface),
            });
        }
        self.keeper.adopt(link);
        match &mut self.routes {
            Some(routes) => routes.lead_into(&self.net, interface, index).await,
            None => Ok(()),
        }
    }

    /// Makes the devices, the rules and the routes for the marks of a new configuration. After an error everything is
    /// as it was.
    pub async fn add_marks(&mut self, config: &GatewayConfig) -> Result<(), Failure> {
        let is_new = |interface: &&InterfaceConfig| {
            let mut known = self.config.interfaces.iter();
            !known.any(|known| known.if_id == interface.if_id)
        };
        let mut devices = Vec::new();
        for interface in config.marked_interfaces().filter(is_new) {
            let link = devices::own_link(interface);
            let device = TunDevice::open(link, self.workers.len(), Some(&self.net)).await;
            let mut device = device.map_err(tun_failure)?;
            let set_up = device.set_up(&self.net, &self.config).await;
            set_up.map_err(net_failure)?;
            devices.push(device);
        }
        if let Some(routes) = &mut self.routes {
            let added = routes.add_marks(&self.net, config).await;
            if let Err(error) = added {
                // The former rules and routes stand again as far as the kernel lets them.
                let _ = routes.add_marks(&self.net, &self.config).await;
                let _ = routes.drop_marks(&self.net, &self.config).await;
                return Err(net_failure(error));
            }
            self.keeper.watch_tables(routes.tables());
        }
        self.config.interfaces.clone_from(&config.interfaces);
        self.keeper.set_config(&self.config);
        for device in devices {
            if let Err(error) = self.give_to_workers(device).await {
                tracing::error!("routes do not follow the policies and are tried again: {error}");
            }
        }
        Ok(())
    }

    /// Gives up the devices, the rules and the routes for marks that the configuration no longer has.
    /// The routes of the new policies stand before.
    pub async fn drop_marks(&mut self) {
        for interface in self.keeper.unnamed() {
            self.keeper.release(interface);
            for worker in &self.workers {
                worker.remove_tun(interface);
            }
        }
        if let Some(routes) = &mut self.routes {
            if let Err(error) = routes.drop_marks(&self.net, &self.config).await {
                tracing::error!("rules or routes for former marks are left: {error}");
            }
            self.keeper.watch_tables(routes.tables());
        }
    }

    /// Takes over the setting of a new configuration.
    pub fn set_on_stop(&mut self, on_stop: OnStop) {
        self.config.on_stop = on_stop;
    }

    /// Looks at how busy the workers are, and warns of workers that are too busy for long.
    pub fn follow_loads(&mut self, now: Instant) {
        self.loads.follow(&self.workers, now);
    }

    /// Measures the load since the last call. Returns `None` if no engine shares it with the CPU, or if there was no call
    /// shortly before.
    pub fn load_sample(&mut self, now: Instant) -> Option<LoadSample> {
        let (index, shared) = self.engines.shared()?;
        let health = self.engine_health();
        let of_workers = health.get(usize::from(index)).map(|(_, health)| *health);
        let in_service = shared.is_in_service() && of_workers == Some(Health::InService);
        self.sampler
            .sample(&self.workers, shared.latency(), in_service, now)
    }

    pub fn report_workers(&self, now: Instant) -> WorkersStats {
        self.loads.report(&self.workers, now)
    }

    /// Returns the sums of the counters over all workers.
    pub fn counters(&self) -> TrafficCounters {
        let workers = self.workers.iter().map(|worker| WorkerCounts {
            outbound: &worker.outbound,
            inbound: &worker.inbound,
            io: &worker.io,
        });
        let device = self.engines.device().and_then(EngineHost::device);
        let core = device.map(ChildSaDevice::counters);
        TrafficCounters {
            core,
            ..traffic_counters(workers)
        }
    }

    /// Stops the workers. The common TUN device goes with its last descriptor. An ordered stop takes back rules and
    /// routes if the configuration says so. Otherwise everything stays that keeps protected traffic in.
    pub async fn stop(&mut self, ending: Ending) {
        self.workers.iter().for_each(Worker::stop);
        self.workers.clear();
        self.links.close();
        let Some(routes) = self.routes.take() else {
            return;
        };
        let result = match ending.opens(self.config.on_stop) {
            true => {
                self.keeper.lift();
                let closed = routes.close(&self.net).await;
                closed.and(devices::clear(&self.net, &self.config).await)
            }
            false => routes.leave_closed(&self.net).await,
        };
        if let Err(error) = result {
            tracing::warn!("routes or rules are not as they should be: {error}");
        }
    }
}

/// Returns the address that packets to `remote` leave from. `mark` is the firewall mark of our own packets.
pub(super) fn source_for(remote: IpAddr, mark: u32) -> Option<IpAddr> {
    KernelRoutes { mark }.source(remote, None)
}

/// Lets traffic leave in the clear again that a gateway with this configuration has protected.
pub(super) async fn clear_guards(config: &GatewayConfig) -> Result<(), Failure> {
    let net = Net::connect().map_err(Failure::runtime)?;
    let cleared = device_routes::clear(&net, config).await;
    cleared.map_err(net_failure)?;
    let cleared = devices::clear(&net, config).await;
    cleared.map_err(net_failure)?;
    // A kernel without nf_tables has no table.
    if let Ok(nft) = Nft::connect() {
        match nft.commit(&NftChange::remove(&shield::name(config))) {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                let what = format!("cannot delete the table of nf_tables: {error}");
                return Err(Failure::runtime(what));
            }
            _ => {}
        }
    }
    Ok(())
}

fn spawn(config: WorkerConfig) -> Result<Worker, Failure> {
    let spawned = Worker::spawn(config);
    spawned.map_err(|error| Failure::runtime(format!("cannot start a worker: {error}")))
}

fn bind(config: &GatewayConfig) -> Result<Sockets, BindError> {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    Sockets::bind(&ListenConfig {
        addresses: if config.listen == any {
            Vec::new()
        } else {
            config.listen.clone()
        },
        ike_port: config.ports.ike,
        nat_t_port: config.ports.nat_t,
        raw_esp: config.raw_esp,
        mark: Some(config.mark),
        workers: config.workers,
    })
}

fn bind_failure(error: BindError) -> Failure {
    match error {
        BindError::NoPermission { .. } => Failure::forbidden(error),
        _ => Failure::runtime(error),
    }
}

fn net_failure(error: NetError) -> Failure {
    let failure = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Failure::forbidden(&error),
        _ => Failure::runtime(&error),
    };
    failure.help("interfaces and routes need CAP_NET_ADMIN")
}

fn tun_failure(error: TunError) -> Failure {
    match error {
        TunError::NoDevice | TunError::NoPermission(_) => Failure::new(Exit::Forbidden, error),
        _ => Failure::runtime(error),
    }
}

/// An allocator of SPIs. The SAD gives out the SPIs that it finds its SAs by.
#[derive(Debug)]
struct SadSpis(Arc<Database>);

impl EspSpiAllocator for SadSpis {
    fn allocate(&mut self) -> Option<u32> {
        self.0.sad().allocate_spi()
    }

    fn release(&mut self, spi: u32) {
        self.0.sad().remove(spi);
    }
}

/// The kernel's routes, as they are for packets that we send ourselves.
#[derive(Debug)]
struct KernelRoutes {
    /// The firewall mark that leads packets around our own routes into the TUN device.
    mark: u32,
}

impl Routes for KernelRoutes {
    fn source(&self, remote: IpAddr, local: Option<IpAddr>) -> Option<IpAddr> {
        let domain = match remote {
            IpAddr::V4(_) => Domain::IPV4,
            IpAddr::V6(_) => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::DGRAM, None).ok()?;
        socket.set_mark(self.mark).ok()?;
        if let Some(local) = local {
            socket.bind(&SocketAddr::new(local, 0).into()).ok()?;
        }
        socket.connect(&SocketAddr::new(remote, 9).into()).ok()?;
        let local = socket.local_addr().ok()?.as_socket()?.ip();
        (!local.is_unspecified()).then_some(local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_opens_nothing() {
        assert!(Ending::Ordered.opens(OnStop::Open));
        assert!(!Ending::Ordered.opens(OnStop::Closed));
        for on_stop in [OnStop::Open, OnStop::Closed] {
            assert!(!Ending::Failure.opens(on_stop));
        }
    }
}
