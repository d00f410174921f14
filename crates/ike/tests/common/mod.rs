//! Two endpoints, a network between them and a virtual clock. A model of the data plane checks every event.
#![allow(dead_code)]

pub mod script;
pub mod wiretap;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esplanade_crypto::iana::{Encryption, Group, Prf, SequenceNumbers};
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_ike::config::generators::plain_connection;
use esplanade_ike::config::{
    AddressMatch, Child, Connection, EspProposal, Identity, IkeProposal, Lifetime, LocalAuth,
    LocalMethod, RemoteAuth, RemoteMethod, Secret, Selector,
};
use esplanade_ike::status::{ChildSaState, IkeSaState};
use esplanade_ike::{
    ChildSaId, ChildSaInstalled, Config, Endpoint, EspSpiAllocator, Event, Host, IkeSaId,
    IkeSaStatus, Random, Refusal, Routes, Transmit,
};
use esplanade_testkit::net::{Conditions, Datagram, Network, Rng};

pub const A: &str = "192.0.2.1";
pub const B: &str = "198.51.100.1";
/// The headers of IPv4 and UDP.
pub const IPV4_AND_UDP: usize = 28;

pub struct SeededRandom(pub Rng);

impl Random for SeededRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// SPIs in use: those that the endpoint has reserved, and those of installed SAs.
#[derive(Debug, Default)]
pub struct Spis {
    next: u32,
    pub used: BTreeSet<u32>,
    pub limit: Option<usize>,
}

#[derive(Clone, Default)]
pub struct SharedSpis(pub Arc<Mutex<Spis>>);

impl EspSpiAllocator for SharedSpis {
    fn allocate(&mut self) -> Option<u32> {
        let mut spis = self.0.lock().unwrap();
        if spis.limit.is_some_and(|limit| spis.used.len() >= limit) {
            return None;
        }
        spis.next += 1;
        let spi = 0x1000 + spis.next;
        assert!(spis.used.insert(spi));
        Some(spi)
    }

    fn release(&mut self, spi: u32) {
        assert!(
            self.0.lock().unwrap().used.remove(&spi),
            "released {spi:x} that was not reserved"
        );
    }
}

/// The route to the peer. A test can take it away, with the address or without.
#[derive(Clone)]
pub struct SharedRoutes(pub Arc<Mutex<Option<IpAddr>>>);

impl Routes for SharedRoutes {
    fn source(&self, _remote: IpAddr, local: Option<IpAddr>) -> Option<IpAddr> {
        let own = *self.0.lock().unwrap();
        own.filter(|own| local.is_none_or(|local| local == *own))
    }
}

pub fn subnet(text: &str) -> Selector {
    let (from, to) = text.split_once('-').unwrap();
    Selector::range(from.parse().unwrap(), to.parse().unwrap())
}

pub fn ike_proposal() -> IkeProposal {
    IkeProposal {
        encryption: vec![(Encryption::AesGcm16, 128)],
        integrity: vec![],
        prf: vec![Prf::HmacSha2_256],
        groups: vec![Group::Curve25519],
    }
}

pub fn esp_proposal() -> EspProposal {
    EspProposal {
        encryption: vec![(Encryption::AesGcm16, 128)],
        integrity: vec![],
        groups: vec![],
        sequence_numbers: vec![SequenceNumbers::Bits32],
    }
}

pub fn id(text: &str) -> Identity {
    text.parse().unwrap()
}

pub fn child(name: &str, local: &str, remote: &str) -> Child {
    Child {
        name: name.to_owned(),
        local_ts: vec![subnet(local)],
        remote_ts: vec![subnet(remote)],
        esp_proposals: vec![esp_proposal()],
        lifetime: Lifetime {
            rekey_time: Duration::ZERO,
            life_time: Duration::ZERO,
            ..Lifetime::default()
        },
        ..Child::default()
    }
}

pub fn connection(
    local: &str,
    remote: &str,
    ids: (&str, &str),
    children: Vec<Child>,
) -> Connection {
    Connection {
        local_addrs: vec![AddressMatch::Host(local.parse().unwrap())],
        remote_addrs: vec![AddressMatch::Host(remote.parse().unwrap())],
        proposals: vec![ike_proposal()],
        local: LocalAuth {
            id: id(ids.0),
            method: LocalMethod::Psk,
        },
        remote: RemoteAuth {
            id: id(ids.1),
            method: RemoteMethod::Psk,
        },
        children: children.into_iter().map(Arc::new).collect(),
        ..plain_connection()
    }
}

pub fn config(connection: Connection) -> Config {
    Config {
        connections: vec![Arc::new(connection)],
        secrets: vec![Secret {
            owners: vec![],
            key: Arc::new(SecretBytes::from(b"a shared secret".as_slice())),
        }],
        trace_messages: std::env::var_os("ESPLANADE_IKE_TRACE").is_some(),
        ..Config::default()
    }
}

/// Changes the only connection.
pub fn change_connection(config: &mut Config, change: impl FnOnce(&mut Connection)) {
    change(Arc::make_mut(&mut config.connections[0]));
}

pub fn change_children(connection: &mut Connection, change: impl FnMut(&mut Child)) {
    connection
        .children
        .iter_mut()
        .map(Arc::make_mut)
        .for_each(change);
}

/// Has the selectors take UDP alone, so that the traffic may need no answer.
pub fn udp_alone(connection: &mut Connection) {
    change_children(connection, |child| {
        for ts in child.local_ts.iter_mut().chain(&mut child.remote_ts) {
            ts.protocol = 17;
        }
    });
}

/// The configuration of B alone.
pub fn b_with(change: impl FnOnce(&mut Config)) -> (Side, Instant) {
    let mut b = config(default_configs().1);
    change(&mut b);
    let now = Instant::now();
    (Side::new("b", B, b, now, 7), now)
}

/// The networks behind A and behind B.
pub const NET_A: &str = "10.1.0.0-10.1.255.255";
pub const NET_B: &str = "10.2.0.0-10.2.255.255";

/// The configurations of A and of B.
pub fn default_configs() -> (Connection, Connection) {
    (
        connection(
            A,
            B,
            ("a.example", "b.example"),
            vec![child("net", NET_A, NET_B)],
        ),
        connection(
            B,
            A,
            ("b.example", "a.example"),
            vec![child("net", NET_B, NET_A)],
        ),
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    Not,
    Used,
}

fn random(seed: u64) -> Box<dyn Random> {
    Box::new(SeededRandom(Rng::new(seed ^ 0x5eed)))
}

/// An endpoint, and the SAs that its data plane holds.
pub struct Side {
    pub name: &'static str,
    pub address: IpAddr,
    /// Addresses that it had before.
    pub formerly: Vec<IpAddr>,
    pub endpoint: Endpoint,
    pub spis: SharedSpis,
    pub routes: SharedRoutes,
    pub children: BTreeMap<ChildSaId, (Box<ChildSaInstalled>, Outbound)>,
    pub up: BTreeSet<IkeSaId>,
    /// All SAs that were ever installed, for the comparison with the peer.
    pub installed: Vec<ChildSaInstalled>,
    seen: HashSet<ChildSaId>,
    pub events: Vec<Event>,
    pub sent: Vec<Transmit>,
    /// Nothing leaves, and nothing arrives.
    pub dead: bool,
    /// The data plane has seen traffic that it has not reported.
    pub sees_traffic: bool,
    /// The length of packets that the embedder names when it is asked about the path to the peer. `None`: it is silent.
    pub longest_packet: Option<u16>,
}

impl Side {
    pub fn new(name: &'static str, address: &str, config: Config, now: Instant, seed: u64) -> Self {
        Self::with_host(name, address, config, now, seed, |host| {
            host.random = random(seed);
        })
    }

    pub fn with_host(
        name: &'static str,
        address: &str,
        config: Config,
        now: Instant,
        seed: u64,
        change: impl FnOnce(&mut Host),
    ) -> Self {
        let spis = SharedSpis::default();
        // The numbers are far apart, so that the two sides never have the same SPI by chance.
        spis.0.lock().unwrap().next = (seed as u32) << 16;
        let own: IpAddr = address.parse().unwrap();
        let routes = SharedRoutes(Arc::new(Mutex::new(Some(own))));
        let mut host = Host::new(Box::new(spis.clone()), Box::new(routes.clone()));
        change(&mut host);
        Self {
            name,
            address: own,
            formerly: Vec::new(),
            endpoint: Endpoint::new(config, host, now),
            spis,
            routes,
            children: BTreeMap::new(),
            up: BTreeSet::new(),
            installed: Vec::new(),
            seen: HashSet::new(),
            events: Vec::new(),
            sent: Vec::new(),
            dead: false,
            sees_traffic: false,
            longest_packet: None,
        }
    }

    /// With `ESPLANADE_IKE_TRACE` set the events are printed.
    pub fn take_events(&mut self, now: Instant, at: Duration) {
        while let Some(event) = self.endpoint.poll_event() {
            if std::env::var_os("ESPLANADE_IKE_TRACE").is_some() {
                eprintln!("{at:?} {} {event:?}", self.name);
            }
            self.check(&event);
            if let Event::ChildSaIdle { child } = event
                && !self.sees_traffic
            {
                let _ = self.endpoint.close_idle_child_sa(now, child);
            }
            if let Event::PathProbeDue { ike_sa, .. } = event
                && self.longest_packet.is_some()
            {
                let longest = self.longest_packet;
                self.endpoint.probe_path(now, ike_sa, longest);
            }
            self.events.push(event);
        }
    }

    /// Checks the rules that hold for every event.
    fn check(&mut self, event: &Event) {
        match event {
            Event::IkeSaUp(up) => assert!(self.up.insert(up.ike_sa), "{} up twice", up.ike_sa),
            Event::IkeSaRekeyed { old, new, .. } => {
                assert!(
                    self.up.remove(old),
                    "{}: {old} rekeyed but not up",
                    self.name
                );
                assert!(self.up.insert(*new));
            }
            Event::IkeSaDown { ike_sa, .. } => assert!(
                self.up.remove(ike_sa),
                "{}: {ike_sa} down but not up",
                self.name
            ),
            Event::ChildSaInstalled(child) => {
                assert!(self.seen.insert(child.child), "child id used again");
                let in_use = self
                    .children
                    .values()
                    .any(|(live, _)| live.spi_in == child.spi_in);
                assert!(!in_use, "SPI used again while live");
                assert!(self.spis.0.lock().unwrap().used.contains(&child.spi_in));
                assert_ne!(child.key_in, child.key_out);
                self.installed.push((**child).clone());
                self.children
                    .insert(child.child, (child.clone(), Outbound::Not));
            }
            Event::ChildSaUseOutbound { child } => {
                let (_, outbound) = self
                    .children
                    .get_mut(child)
                    .expect("outbound of a child that is not there");
                assert_eq!(*outbound, Outbound::Not, "outbound used twice");
                *outbound = Outbound::Used;
            }
            Event::ChildSaDeleted(deleted) => {
                assert!(
                    self.children.remove(&deleted.child).is_some(),
                    "{}: deleted what is not there",
                    self.name
                );
                assert!(self.spis.0.lock().unwrap().used.remove(&deleted.spi_in));
            }
            Event::PeerMoved { children, .. } => {
                assert!(
                    children
                        .iter()
                        .all(|child| self.children.contains_key(child))
                );
            }
            _ => {}
        }
    }

    /// Established IKE SAs by their SPIs.
    pub fn ike_sas(&self) -> BTreeSet<(u64, u64)> {
        let up = |state| matches!(state, IkeSaState::Established | IkeSaState::Rekeying);
        let status = self.endpoint.status();
        status
            .iter()
            .filter(|sa| up(sa.state))
            .map(|sa| (sa.spi_i, sa.spi_r))
            .collect()
    }

    /// SPIs of the child SAs in use, inbound and outbound.
    pub fn child_spis(&self) -> BTreeSet<(u32, u32)> {
        self.children
            .values()
            .map(|(child, _)| (child.spi_in, child.spi_out))
            .collect()
    }

    pub fn refused(&self, reason: Refusal) -> u64 {
        self.endpoint.counters().refused(reason)
    }

    /// The status of the endpoint must have the children that its events tell of.
    pub fn check_status(&self) {
        self.check_children(&self.endpoint.status());
    }

    pub fn check_children(&self, status: &[IkeSaStatus]) {
        let mut listed = BTreeSet::new();
        for child in status.iter().flat_map(|sa| &sa.children) {
            assert!(listed.insert(child.id), "child listed twice");
            assert!(!matches!(child.state, ChildSaState::Rekeying) || child.rekey_at.is_none());
        }
        assert_eq!(
            listed,
            self.children.keys().copied().collect(),
            "{}: events and status differ",
            self.name
        );
    }
}

pub struct Pair {
    pub start: Instant,
    pub now: Instant,
    pub a: Side,
    pub b: Side,
    pub network: Network,
    /// A NAT in front of A: B sees its address and shifted ports.
    pub nat: Option<(IpAddr, u16)>,
    /// A NAT in front of B.
    pub nat_of_b: Option<(IpAddr, u16)>,
    /// An attacker on the path, who can change every datagram.
    pub attacker: Option<Attacker>,
    /// The longest IPv4 packets that arrive. Longer ones are lost in silence.
    pub path_mtu: Option<usize>,
}

pub type Attacker = Box<dyn FnMut(&mut Datagram)>;

impl Pair {
    pub fn new(a: Config, b: Config, conditions: Conditions, seed: u64) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            a: Side::new("a", A, a, start, 2 * seed),
            b: Side::new("b", B, b, start, 2 * seed + 1),
            network: Network::new(conditions, seed),
            nat: None,
            nat_of_b: None,
            attacker: None,
            path_mtu: None,
        }
    }

    /// The default pair on a perfect network, as the caller changes it.
    pub fn with(change: impl FnOnce(&mut Connection, &mut Connection)) -> Self {
        let (mut a, mut b) = default_configs();
        change(&mut a, &mut b);
        Self::new(config(a), config(b), Conditions::PERFECT, 1)
    }

    pub fn initiate(&mut self) {
        self.a.endpoint.initiate(self.now, "site", None).unwrap();
        self.flush();
    }

    /// An established pair on a perfect network.
    pub fn established() -> Self {
        let mut pair = Self::with(|_, _| {});
        pair.initiate();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(1, 1);
        pair
    }

    /// A rekeys the child SA while B rekeys the IKE SA.
    pub fn collide(&mut self) {
        let child = self.a.endpoint.rekey(self.now, "site", Some("net"));
        child.unwrap();
        self.b.endpoint.rekey(self.now, "site", None).unwrap();
        self.flush();
        self.run(Duration::from_secs(60));
    }

    /// Takes the events, then puts the datagrams into the network.
    pub fn flush(&mut self) {
        let nats = [self.nat, self.nat_of_b];
        for side in [&mut self.a, &mut self.b] {
            side.take_events(self.now, self.now - self.start);
            while let Some(transmit) = side.endpoint.poll_transmit() {
                side.sent.push(transmit.clone());
                let mut from = transmit.local;
                assert!(from.ip() == side.address || side.formerly.contains(&from.ip()));
                let mut to = transmit.remote;
                let (own, (peers, inside)) = match side.name {
                    "a" => (nats[0], (nats[1], B)),
                    _ => (nats[1], (nats[0], A)),
                };
                if let Some((outside, shift)) = own {
                    from = SocketAddr::new(outside, from.port() + shift);
                }
                let len = IPV4_AND_UDP + transmit.payload.len();
                let mut passes = !side.dead && self.path_mtu.is_none_or(|mtu| len <= mtu);
                if let Some((_, shift)) = peers.filter(|(outside, _)| to.ip() == *outside) {
                    let port = to.port().wrapping_sub(shift);
                    // There is no way in but for these two ports.
                    passes &= matches!(port, 500 | 4500);
                    to = SocketAddr::new(inside.parse().unwrap(), port);
                }
                if passes {
                    let payload = transmit.payload;
                    let mut datagram = Datagram { from, to, payload };
                    if let Some(attacker) = &mut self.attacker {
                        attacker(&mut datagram);
                    }
                    self.network.send(self.now, datagram);
                }
            }
        }
    }

    /// Goes on to the next arrival or timer. Returns false if there is none before `until`.
    pub fn step(&mut self, until: Instant) -> bool {
        let timers = [
            self.network.next_arrival(),
            self.a.endpoint.poll_timeout(),
            self.b.endpoint.poll_timeout(),
        ];
        let Some(next) = timers
            .into_iter()
            .flatten()
            .min()
            .filter(|next| *next <= until)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(datagram) = self.network.arrive(self.now) {
            let side = if datagram.to.ip() == self.a.address {
                &mut self.a
            } else {
                &mut self.b
            };
            if !side.dead {
                side.endpoint.handle_datagram(
                    self.now,
                    datagram.to,
                    datagram.from,
                    &datagram.payload,
                );
            }
            self.flush();
        }
        for side in [&mut self.a, &mut self.b] {
            if side
                .endpoint
                .poll_timeout()
                .is_some_and(|at| at <= self.now)
            {
                side.endpoint.handle_timeout(self.now);
            }
        }
        self.flush();
        true
    }

    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0u32;
        while self.step(until) {
            steps += 1;
            assert!(steps < 100_000, "the endpoints do not come to rest");
        }
        self.now = until;
    }

    /// Checks that both ends hold the same SAs, with the same keys.
    pub fn assert_agreed(&self, ike_sas: usize, children: usize) {
        self.assert_same();
        assert_eq!(self.a.ike_sas().len(), ike_sas);
        assert_eq!(self.a.children.len(), children);
    }

    pub fn assert_same(&self) {
        assert_eq!(self.a.ike_sas(), self.b.ike_sas(), "IKE SAs differ");
        let crossed: BTreeSet<_> = self
            .b
            .child_spis()
            .into_iter()
            .map(|(i, o)| (o, i))
            .collect();
        assert_eq!(self.a.child_spis(), crossed, "child SAs differ");
        for (child, outbound) in self.a.children.values().chain(self.b.children.values()) {
            assert_eq!(*outbound, Outbound::Used, "{} cannot send", child.name);
        }
        self.a.check_status();
        self.b.check_status();
        self.assert_keys();
    }

    /// Checks for every child SA of both ends that one opens what the other seals.
    pub fn assert_keys(&self) {
        for a in &self.a.installed {
            for b in self
                .b
                .installed
                .iter()
                .filter(|b| b.spi_in == a.spi_out && b.spi_out == a.spi_in)
            {
                assert_eq!(a.key_out, b.key_in);
                assert_eq!(a.key_in, b.key_out);
                assert_eq!(a.esp, b.esp);
                assert_eq!((&a.local_ts, &a.remote_ts), (&b.remote_ts, &b.local_ts));
                assert_ne!(a.initiator, b.initiator);
                assert_eq!(a.udp_encap, b.udp_encap);
            }
        }
    }

    /// Ends everything, and checks that nothing was forgotten.
    pub fn assert_clean_end(&mut self) {
        self.a.endpoint.terminate_all(self.now);
        self.b.endpoint.terminate_all(self.now);
        self.flush();
        self.run(Duration::from_secs(900));
        for side in [&self.a, &self.b] {
            assert!(
                side.children.is_empty(),
                "{}: {:?}",
                side.name,
                side.children
            );
            assert!(side.up.is_empty());
            assert!(
                side.endpoint.status().is_empty(),
                "{}: {:#?}",
                side.name,
                side.endpoint.status()
            );
            assert!(
                side.spis.0.lock().unwrap().used.is_empty(),
                "{}: SPIs leak",
                side.name
            );
            assert_eq!(side.endpoint.half_open(), 0);
            assert_eq!(side.endpoint.poll_timeout(), None);
        }
    }
}
