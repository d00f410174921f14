//! A whole gateway without a host: configuration, IKE, the join, SAD, SPD and a data plane. Lists take the place of
//! sockets and devices. [`Gateway::on_plane_event`], [`Gateway::reload`] and the others do what the control thread of
//! the daemon does, in the same order.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade::config::{Loaded, load_text};
use esplanade::daemon::settings::policies;
use esplanade::io::udp::{Outgoing, ReceivedDatagram, SendReport};
use esplanade::join::{self, Activity, Change, Join};
use esplanade::worker::DummyList;
use esplanade_crypto::{Direction, Protocol};
use esplanade_dataplane::counters::IoCounters;
use esplanade_dataplane::datagram::IkeDatagram;
use esplanade_dataplane::packet_io::{PacketIo, ReceiveSocket, SendSocket, TunQueue};
use esplanade_dataplane::virtio::{HEADER_LEN, VnetHeader};
use esplanade_dataplane::{
    DataPlane, DummySas, EngineSource, PlaneConfig, Processing, TunPort, slots,
};
use esplanade_engines::Engines;
use esplanade_ike::jobs::JobDone;
use esplanade_ike::{
    ChildSaId, ChildSaInstalled, Endpoint, EspSpiAllocator, Event, Host, Random, Routes,
};
use esplanade_ipsec::Database;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::pmtu::{Evidence, PathMtus};
use esplanade_ipsec::sa::{OutboundSa, Path, SaDirection};
use esplanade_ipsec::spd::{Action, Policy, Spd, SpdEntry};
use esplanade_testkit::net::{Datagram, Rng};
use tokio::sync::watch;

use crate::seen::Seen;

/// The interval at which the control thread looks at its SAs.
const TICK: Duration = Duration::from_millis(500);
const IKE_PORT: u16 = 500;
pub const NAT_T_PORT: u16 = 4500;
/// Stands for the raw socket of ESP, which has no ports.
pub const ESP_PORT: u16 = 0;

struct SeededRandom(Rng);

impl Random for SeededRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

struct SadSpis(Arc<Database>);

impl EspSpiAllocator for SadSpis {
    fn allocate(&mut self) -> Option<u32> {
        self.0.sad().allocate_spi()
    }

    fn release(&mut self, spi: u32) {
        self.0.sad().remove(spi);
    }
}

/// Every peer is reached from the one address.
struct OneAddress(IpAddr);

impl Routes for OneAddress {
    fn source(&self, _: IpAddr, local: Option<IpAddr>) -> Option<IpAddr> {
        Some(self.0).filter(|own| local.is_none_or(|local| local == *own))
    }
}

/// What the data plane gave to the host.
#[derive(Debug)]
pub struct RecordedIo {
    address: IpAddr,
    now_ns: u64,
    written: Vec<Vec<u8>>,
    sent: Vec<Datagram>,
    bypassed: Vec<Vec<u8>>,
}

impl RecordedIo {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            now_ns: 0,
            written: Vec::new(),
            sent: Vec::new(),
            bypassed: Vec::new(),
        }
    }
}

impl PacketIo for RecordedIo {
    fn write(&mut self, port: usize, _: TunQueue, slices: &[IoSlice<'_>]) -> io::Result<()> {
        assert_eq!((port, slices[0].len()), (0, HEADER_LEN));
        self.written.push(slices[1..].concat_bytes());
        Ok(())
    }

    fn send_socket(&self, path: &Path, protocol: Protocol) -> Option<SendSocket> {
        assert_eq!(protocol, Protocol::Esp);
        Some(match path.udp_encap {
            true => SendSocket::NatT(0),
            false => SendSocket::Esp(0),
        })
    }

    fn send(&mut self, send_socket: SendSocket, items: &[Outgoing<'_>]) -> SendReport {
        let port = match send_socket {
            SendSocket::NatT(_) => NAT_T_PORT,
            SendSocket::Esp(_) | SendSocket::Ah(_) => ESP_PORT,
        };
        for item in items {
            let segment = match item.segment {
                0 => item.payload.len(),
                segment => segment.into(),
            };
            let to = match send_socket {
                SendSocket::NatT(_) => item.remote,
                SendSocket::Esp(_) | SendSocket::Ah(_) => {
                    SocketAddr::new(item.remote.ip(), ESP_PORT)
                }
            };
            let from = SocketAddr::new(item.local.unwrap_or(self.address), port);
            let parts = item.payload.chunks(segment.max(1));
            self.sent.extend(parts.map(|part| Datagram {
                from,
                to,
                payload: part.to_vec(),
            }));
        }
        SendReport {
            sent: items.iter().map(Outgoing::packets).sum(),
            ..SendReport::default()
        }
    }

    fn bypass(&mut self, packet: &[u8]) -> io::Result<()> {
        self.bypassed.push(packet.to_vec());
        Ok(())
    }

    fn pause(&mut self) -> u64 {
        self.now_ns
    }

    fn watch(&mut self, _: BorrowedFd<'_>, _: Direction) -> io::Result<()> {
        Ok(())
    }

    fn unwatch(&mut self, _: BorrowedFd<'_>) {}
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for [IoSlice<'_>] {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|slice| slice.iter().copied())
            .collect()
    }
}

/// What a gateway did since the last look.
#[derive(Debug, Default)]
pub struct Output {
    /// Datagrams for the outer link.
    pub sent: Vec<Datagram>,
    /// Packets for the inner network.
    pub written: Vec<Vec<u8>>,
    /// Packets that left unprotected.
    pub bypassed: Vec<Vec<u8>>,
}

/// The choices of a gateway that are not part of its configuration.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    pub address: Ipv4Addr,
    pub seed: u64,
    /// The time that each job of IKE takes.
    pub job_time: Duration,
    /// The MTU of the path to any peer, with the peers that the gateway has.
    pub path_mtu: Option<(u16, Ipv4Addr)>,
}

pub struct Gateway {
    address: IpAddr,
    started: Instant,
    now: Instant,
    next_tick: Instant,
    /// The time at which the data plane has something to do.
    plane_due: Instant,
    pub loaded: Loaded,
    pub database: Arc<Database>,
    pub join: Join,
    pub endpoint: Endpoint,
    plane: DataPlane<RecordedIo>,
    dummies: watch::Sender<DummySas>,
    jobs: Vec<(Instant, JobDone)>,
    job_time: Duration,
    /// The latest child SA of each name, with its keys.
    pub newest: Vec<ChildSaInstalled>,
    /// The time at which the last SA of each child has ended.
    pub ended: HashMap<String, Instant>,
    trace: Option<String>,
    pub seen: Seen,
}

impl Gateway {
    pub fn start(config: &str, options: HostOptions, now: Instant) -> Self {
        let loaded = read(config);
        let address = IpAddr::from(options.address);
        let database = Arc::new(Database::new());
        let mut join = Join::new(Arc::clone(&database));
        join.configure(policies::configured(&loaded, |_| Some(address)));
        join.set_engines(Engines::cpu());
        let host = Host {
            random: Box::new(SeededRandom(Rng::new(options.seed))),
            runs_jobs: false,
            ..Host::new(
                Box::new(SadSpis(Arc::clone(&database))),
                Box::new(OneAddress(address)),
            )
        };
        let endpoint = Endpoint::new(loaded.ike.clone(), host, now);
        let paths = Arc::<PathMtus>::default();
        if let Some((mtu, peer)) = options.path_mtu {
            let learned = paths.learn(peer.into(), mtu.into(), Evidence::Local, 1);
            learned.expect("a path MTU of the gateway's own link");
        }
        let dummies = watch::Sender::default();
        let config = plane_config(Arc::clone(&database), paths, Some(dummies.subscribe()));
        let io = RecordedIo::new(address);
        let trace = std::env::var_os("ESPLANADE_SIMULATION_TRACE");
        let mut gateway = Self {
            address,
            started: now,
            now,
            next_tick: now + TICK,
            plane_due: now,
            loaded,
            database,
            join,
            endpoint,
            plane: DataPlane::new(io, config).expect("a data plane needs no host"),
            dummies,
            jobs: Vec::new(),
            job_time: options.job_time,
            newest: Vec::new(),
            ended: HashMap::new(),
            trace: trace.map(|_| address.to_string()),
            seen: Seen::default(),
        };
        gateway.endpoint.start(now);
        gateway.flush();
        gateway
    }

    /// Returns the time at which [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Instant {
        let jobs = self.jobs.iter().map(|(at, _)| *at);
        let others = [self.endpoint.poll_timeout(), self.join.next_drained()];
        let all = jobs.chain(others.into_iter().flatten());
        all.fold(self.next_tick.min(self.plane_due), Instant::min)
    }

    /// Does what is due by the clock.
    pub fn tick(&mut self, now: Instant) {
        self.set_time(now);
        self.plane.follow_early(|_, _, _| false);
        self.finish_plane();
        let (done, waiting) = std::mem::take(&mut self.jobs)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.jobs = waiting;
        for (_, job) in done {
            self.endpoint.job_done(now, job, self.job_time);
            self.flush();
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.join.free_spis(now);
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            for active in self.join.take_activity(self.now_ms()) {
                self.on_activity(active);
            }
            self.join.renew_acquires();
            self.join.expire(now);
        }
        self.flush();
    }

    /// Takes a datagram of the outer network. The port says which socket it is for.
    pub fn receive(&mut self, datagram: &Datagram, now: Instant) {
        self.set_time(now);
        let bound = SocketAddr::new(self.address, datagram.to.port());
        let receive_socket = match datagram.to.port() {
            IKE_PORT => ReceiveSocket::Ike(bound),
            NAT_T_PORT => ReceiveSocket::NatT(bound),
            ESP_PORT => ReceiveSocket::Esp { with_header: false },
            _ => return,
        };
        let Some((_, room)) = self.plane.room() else {
            return;
        };
        let len = datagram.payload.len();
        let meta = ReceivedDatagram {
            at: 0,
            len,
            remote: datagram.from,
            local: Some(self.address),
            tos: 0,
            segment: len,
            truncated: false,
        };
        assert!(slots::with_spare(&meta).end <= room.len());
        room[..len].copy_from_slice(&datagram.payload);
        let mut ike: Vec<IkeDatagram> = Vec::new();
        let mut take = |one| ike.push(one);
        self.plane.handle_outer(receive_socket, &[meta], &mut take);
        self.finish_plane();
        for message in ike {
            let (local, remote) = (message.local, message.remote);
            self.endpoint
                .handle_datagram(now, local, remote, &message.payload);
        }
        self.flush();
    }

    /// Takes packets of the inner network as one burst.
    pub fn read(&mut self, packets: &[Vec<u8>], now: Instant) {
        self.set_time(now);
        let spd = self.database.spd();
        for packet in packets {
            assert!(self.plane.can_seal());
            let mut read = [&VnetHeader::default().encode()[..], packet].concat();
            self.plane.handle_inner(&spd, 0, &mut read);
        }
        self.plane.seal_and_send();
        self.finish_plane();
        self.flush();
    }

    /// Seals a packet with an SA of the caller, and sends it.
    pub fn seal(&mut self, sa: &Arc<OutboundSa>, packet: &[u8]) {
        let policy = Arc::new(Policy::new(sa.common.policy, "forged"));
        policy.install(Arc::clone(sa));
        let entry = SpdEntry::new(sa.common.selectors.clone(), Action::Protect(policy));
        let database = Arc::new(Database::new());
        let now_ns = self.now_ns();
        let io = RecordedIo::new(self.address);
        let config = plane_config(Arc::clone(&database), Arc::default(), None);
        let mut plane = DataPlane::new(io, config).expect("a data plane needs no host");
        plane.handle_time(now_ns);
        let mut read = [&VnetHeader::default().encode()[..], packet].concat();
        plane.handle_inner(&Spd::new(vec![entry]), 0, &mut read);
        plane.seal_and_send();
        self.plane.io.sent.append(&mut plane.io.sent);
    }

    /// Follows a new configuration, as a reload does.
    pub fn reload(&mut self, config: &str, now: Instant) {
        self.set_time(now);
        let loaded = read(config);
        let mut diff = self.loaded.diff(&loaded);
        let source = |_| Some(self.address);
        let configured = policies::configured(&loaded, source);
        let former = policies::configured(&self.loaded, source);
        for policy in policies::changed(&former, &configured) {
            diff.affect(&policy.connection, &policy.child);
        }
        for subject in diff.ended() {
            self.endpoint
                .withdraw(now, &subject.connection, subject.child.as_deref());
        }
        self.endpoint.set_config(loaded.ike.clone());
        self.endpoint.signatures_made(now);
        self.loaded = loaded;
        self.join.configure(configured);
        self.endpoint.start(now);
        self.flush();
    }

    /// Gives the endpoint a command of the administrator. One that does not apply is refused.
    pub fn command<T, E>(
        &mut self,
        now: Instant,
        command: impl FnOnce(&mut Endpoint) -> Result<T, E>,
    ) -> Result<T, E> {
        self.set_time(now);
        let result = command(&mut self.endpoint);
        self.flush();
        result
    }

    /// Returns the entries of the SPD, and those that a gateway without SAs has with this configuration.
    pub fn entries(&self) -> [Vec<String>; 2] {
        let database = Arc::new(Database::new());
        let mut fresh = Join::new(Arc::clone(&database));
        fresh.configure(policies::configured(&self.loaded, |_| Some(self.address)));
        fresh.take_changes();
        [&self.database, &database].map(|database| {
            let spd = database.spd();
            let entries = spd.entries().iter();
            let texts = entries.map(|entry| format!("{} {:?}", entry.name, entry.selectors));
            texts.collect()
        })
    }

    pub fn take_output(&mut self) -> Output {
        let io = &mut self.plane.io;
        Output {
            sent: std::mem::take(&mut io.sent),
            written: std::mem::take(&mut io.written),
            bypassed: std::mem::take(&mut io.bypassed),
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000 + 1
    }

    fn now_ns(&self) -> u64 {
        (self.now - self.started).as_nanos() as u64
    }

    fn set_time(&mut self, now: Instant) {
        self.now = now;
        let now_ns = self.now_ns();
        self.plane.io.now_ns = now_ns;
        self.plane.handle_time(now_ns);
    }

    /// Ends a burst of the data plane, and takes its events.
    fn finish_plane(&mut self) {
        self.plane.finish();
        self.plane_due = self.now + self.plane.timeout();
        let events: Vec<_> = self.plane.events().collect();
        for event in events {
            self.on_plane_event(event);
        }
    }

    fn on_plane_event(&mut self, event: esplanade_ipsec::Event) {
        self.trace(|| format!("{event:?}"));
        let now = self.now;
        match event {
            esplanade_ipsec::Event::Acquire {
                policy,
                flow,
                selector,
            } => {
                self.seen.count("packet without an SA");
                let wanted = self.join.children_to_ask(policy, flow.dscp);
                let demand = join::demand(&flow, &selector);
                let (Some((connection, children)), Some(demand)) = (wanted, demand) else {
                    return;
                };
                for child in children {
                    let _ = self.endpoint.acquire(now, connection, child, &demand);
                }
            }
            esplanade_ipsec::Event::Lifetime {
                direction,
                spi,
                policy,
                event,
            } => {
                let Some((child, installed)) = self.join.child_of(direction, policy, spi) else {
                    return;
                };
                let common = match direction {
                    SaDirection::Inbound => &installed.inbound.common,
                    SaDirection::Outbound => &installed.outbound.common,
                };
                if common.lifetime.take(event) {
                    self.on_lifetime(child, event);
                }
            }
            esplanade_ipsec::Event::PeerMoved {
                spi, policy, to, ..
            } => {
                let found = self.join.child_of(SaDirection::Inbound, policy, spi);
                let Some((child, installed)) = found else {
                    return;
                };
                let local = installed.inbound.common.path().local;
                self.endpoint.note_peer_address(now, child, local, to);
            }
            esplanade_ipsec::Event::UnknownSpi { spi, remote } => {
                self.seen.count("packet with an unknown SPI");
                self.endpoint.note_unknown_spi(now, remote, spi);
            }
        }
    }

    fn on_activity(&mut self, active: Activity) {
        if active.inbound {
            self.endpoint.note_inbound_traffic(self.now, active.child);
        }
        if active.outbound {
            self.endpoint.note_outbound_traffic(self.now, active.child);
        }
        if let Some(event) = active.due {
            self.on_lifetime(active.child, event);
        }
    }

    fn on_lifetime(&mut self, child: ChildSaId, event: LifetimeEvent) {
        let _ = match event {
            LifetimeEvent::Soft => self.endpoint.rekey_child_sa(self.now, child),
            LifetimeEvent::Hard => self.endpoint.expire_child_sa(self.now, child),
            LifetimeEvent::Idle => self.endpoint.close_idle_child_sa(self.now, child),
        };
    }

    /// Carries out what the endpoint wants: events first, then what follows from them, then datagrams.
    fn flush(&mut self) {
        loop {
            while let Some(event) = self.endpoint.poll_event() {
                self.on_event(event);
            }
            let changes = self.join.take_changes();
            if changes.is_empty() {
                break;
            }
            for change in changes {
                match change {
                    Change::Dummies(sas) => {
                        self.dummies.send_replace(sas);
                    }
                    Change::Renew(child) => {
                        let _ = self.endpoint.rekey_child_sa(self.now, child);
                    }
                    Change::Tables | Change::PeerPolicy(..) | Change::Route(_) => {}
                }
            }
        }
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.send_ike(transmit.local, transmit.remote, transmit.payload);
        }
        while let Some(job) = self.endpoint.poll_job(self.now) {
            self.jobs.push((self.now + self.job_time, job.run()));
        }
        if let Some(merge) = self.join.take_merge() {
            drop(self.join.merged(merge.run()));
        }
    }

    fn send_ike(&mut self, from: SocketAddr, to: SocketAddr, payload: Vec<u8>) {
        self.plane.io.sent.push(Datagram { from, to, payload });
    }

    fn on_event(&mut self, event: Event) {
        self.trace(|| format!("{event:?}"));
        let now = self.now;
        match event {
            Event::ChildSaIdle { child } => {
                let active = self.join.activity_of(child, self.now_ms());
                match active.filter(Activity::is_used) {
                    Some(active) => self.on_activity(active),
                    None => self.on_lifetime(child, LifetimeEvent::Idle),
                }
            }
            Event::ChildSaInstalled(sa) => {
                if self.join.install(&sa, self.now_ms()).is_err() {
                    let _ = self.endpoint.reject_child_sa(now, sa.child);
                    return;
                }
                if sa.rekeyed_from.is_some() {
                    self.seen.count("rekey of a child SA");
                }
                let name = |one: &ChildSaInstalled| (one.connection.clone(), one.name.clone());
                self.newest.retain(|one| name(one) != name(&sa));
                self.newest.push(*sa);
            }
            Event::IkeSaRekeyed { .. } => self.seen.count("rekey of an IKE SA"),
            Event::ChildSaUseOutbound { child } => self.join.use_outbound(child, now),
            Event::ChildSaDeleted(deleted) => {
                self.join.delete(&deleted, now);
                self.ended.insert(deleted.name, now);
            }
            Event::PeerMoved {
                children,
                local,
                remote,
                ..
            } => {
                self.seen.count("move of a peer");
                self.join.peer_moved(&children, local, remote);
            }
            // An Ethernet's packets.
            Event::PathProbeDue { ike_sa, .. } => {
                self.endpoint.probe_path(now, ike_sa, Some(1500));
            }
            Event::NatKeepalive { local, remote } => self.send_ike(local, remote, vec![0xff]),
            // The log, the control socket and helper processes have the others.
            _ => {}
        }
    }

    /// With `ESPLANADE_SIMULATION_TRACE` set, events are printed.
    fn trace(&self, text: impl FnOnce() -> String) {
        if let Some(name) = &self.trace {
            let at = self.now.saturating_duration_since(self.started);
            eprintln!("{at:?} {name}: {}", text());
        }
    }
}

fn plane_config(
    database: Arc<Database>,
    paths: Arc<PathMtus>,
    dummies: Option<watch::Receiver<DummySas>>,
) -> PlaneConfig {
    PlaneConfig {
        ports: vec![TunPort::new(0, false, None)],
        database,
        paths,
        receive_len: 1 << 16,
        flows: 64,
        workers: 1,
        processing: Processing::default(),
        dummies: dummies.map(|published| Box::new(DummyList::new(published)) as _),
        engines: vec![EngineSource::cpu()],
        counters: Arc::<IoCounters>::default(),
        now_ns: 0,
    }
}

fn read(config: &str) -> Loaded {
    load_text(FilePath::new("simulation.conf"), config)
        .unwrap_or_else(|errors| panic!("{}\n{config}", errors.render(false)))
}
