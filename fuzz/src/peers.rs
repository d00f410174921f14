//! Fuzzes two IKE endpoints whose configurations, credentials and commands the input chooses. Beside [`ike_endpoint`],
//! which decides on every datagram, the network here delivers by itself, and an insider changes what it is told to.
//!
//! [`ike_endpoint`]: crate::ike_endpoint

mod insider;
mod material;
mod scripts;
mod setup;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_ike::config::{Demand, HostName};
use esplanade_ike::jobs::Job;
use esplanade_ike::status::Refusal;
use esplanade_ike::{ChildSaId, Event, PolicyRoom, TrafficSelector, WantedPolicy};
use esplanade_pki::{RevocationStore, StatusSource};
use esplanade_testkit::net::{Conditions, Datagram, Network};

use crate::endpoint::Script;
use crate::endpoint::common::{A, B, IPV4_AND_UDP, Pair, SharedSpis, Side};
use crate::endpoint::ephemeral::Repeatable;
use material::Material;
pub(crate) use material::der_of;
pub use scripts::scripts;
use setup::Setup;

/// 2026-06-01, when the certificates are valid.
const NOW: Duration = Duration::from_secs(1_780_272_000);
/// The most knobs, and the most steps, of an input.
const KNOBS_MAX: usize = 64;
const STEPS_MAX: usize = 64;
/// The most arrivals and timers of a step of time.
const EVENTS_MAX: usize = 4000;
const OTHER: &str = "192.0.2.77";
/// The number that a NAT adds to A's source port.
const SHIFT: u16 = 1000;
/// The pair's own network delivers nothing: the network of [`Run`] does.
const LOST: Conditions = Conditions {
    loss: 1.0,
    ..Conditions::PERFECT
};

/// Steps of an input, by their number.
pub mod step {
    pub const RUN: u8 = 0;
    pub const COMMAND: u8 = 1;
    pub const OF_SA: u8 = 2;
    pub const ACQUIRE: u8 = 3;
    pub const RECONFIGURE: u8 = 4;
    pub const STATUS_IS_THERE: u8 = 5;
    pub const SIGN: u8 = 6;
    pub const NAMES: u8 = 7;
    pub const ADDRESS: u8 = 8;
    pub const PATH: u8 = 9;
    pub const DEAD: u8 = 10;
    pub const RESTART: u8 = 11;
    pub const INSIDER: u8 = 12;
    pub const CONDITIONS: u8 = 13;
    pub const SPIS: u8 = 14;
    pub const UNKNOWN_SPI: u8 = 15;
    pub const STEPS: u8 = 16;
}

/// Pairs of a knob and its value, up to a knob of 0. Then pairs of a step and its parameter follow, some with more
/// bytes.
pub fn ike_peers(data: &[u8]) {
    let mut run = Run::play(data);
    run.finish();
}

struct Room(u8);

impl PolicyRoom for Room {
    fn has_room(&mut self, wanted: &WantedPolicy<'_>) -> bool {
        assert!(!wanted.connection.is_empty());
        let has = self.0 > 0;
        self.0 = self.0.saturating_sub(u8::from(self.0 != u8::MAX));
        has
    }
}

struct Run {
    pair: Pair,
    setup: Setup,
    network: Network,
    /// The number of each side's datagrams and events that are taken over.
    taken: [usize; 2],
    seen: [usize; 2],
    nat: bool,
    /// What the insider does to the next messages of each end.
    insider: [Vec<Vec<u8>>; 2],
    jobs: [Vec<Job>; 2],
    /// Places that an end wants to be asked.
    wanted: [Vec<StatusSource>; 2],
}

impl Run {
    fn new(setup: Setup) -> Self {
        let start = Instant::now();
        let network = Network::new(setup.conditions.clone(), 1);
        let pair = Pair {
            start,
            now: start,
            a: side(&setup, 0, start, 2),
            b: side(&setup, 1, start, 3),
            network: Network::new(LOST, 1),
            nat: None,
            nat_of_b: None,
            attacker: None,
            path_mtu: None,
        };
        Self {
            pair,
            setup,
            network,
            taken: [0; 2],
            seen: [0; 2],
            nat: false,
            insider: Default::default(),
            jobs: Default::default(),
            wanted: Default::default(),
        }
    }

    fn play(data: &[u8]) -> Self {
        let mut script = Script(data);
        let mut setup = Setup::default();
        for _ in 0..KNOBS_MAX {
            match script.next() {
                0 => break,
                knob => setup.turn(knob, script.next()),
            }
        }
        let mut run = Self::new(setup);
        for _ in 0..STEPS_MAX {
            let Some(step) = script.byte() else { break };
            run.step(step, &mut script);
            run.flush();
            run.check_bounds();
        }
        run
    }

    /// Runs one step. The high bit says whose it is.
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let (end, value) = (usize::from(step >> 7), script.next());
        match step % step::STEPS {
            step::RUN => self.run(Duration::from_millis(10 << (value % 17))),
            step::COMMAND => self.command(end, value),
            step::OF_SA => self.of_sa(end, value),
            step::ACQUIRE => self.acquire(end, value),
            step::RECONFIGURE => {
                self.setup.turn(value, script.next());
                let now = self.pair.now;
                let config = self.setup.ends[end].clone();
                let endpoint = &mut self.side(end).endpoint;
                endpoint.set_config(config);
                endpoint.start(now);
            }
            step::STATUS_IS_THERE => self.status_is_there(end, value),
            step::SIGN => {
                self.setup.key.set(value);
                let now = self.pair.now;
                self.side(end).endpoint.signatures_made(now);
            }
            step::NAMES => self.names(end, value),
            step::ADDRESS => self.address(end, value),
            step::PATH => {
                self.nat = value & 1 != 0;
                // Longer packets are lost in silence.
                self.pair.path_mtu = (value > 1).then_some(1100 + 2 * usize::from(value));
            }
            step::DEAD => self.side(end).dead = value & 1 != 0,
            step::RESTART => self.restart(end),
            step::INSIDER => {
                let edits = script.bytes(usize::from(value >> 3)).to_vec();
                // The messages before stay as they are.
                self.insider[end].resize_with(usize::from(value & 7), Vec::new);
                self.insider[end].push(edits);
            }
            step::CONDITIONS => self.network.conditions = setup::conditions_of(value),
            step::SPIS => {
                let limit = (value != 0).then_some(usize::from(value) / 4);
                let SharedSpis(spis) = &self.side(end).spis;
                spis.lock().expect("no panic before").limit = limit;
            }
            _ => {
                let (now, remote) = (self.pair.now, self.side(1 - end).address);
                let remote = SocketAddr::new(remote, if value & 1 == 0 { 500 } else { 4500 });
                let spi = u32::from(value) << 8;
                self.side(end).endpoint.note_unknown_spi(now, remote, spi);
            }
        }
    }

    fn side(&mut self, end: usize) -> &mut Side {
        match end {
            0 => &mut self.pair.a,
            _ => &mut self.pair.b,
        }
    }

    /// A command of the administrator. It may find nothing to do.
    fn command(&mut self, end: usize, value: u8) {
        let now = self.pair.now;
        let connections = &self.setup.ends[end].connections;
        let Some(connection) = connections.get(usize::from(value >> 6) % connections.len().max(1))
        else {
            return;
        };
        let (name, children) = (connection.name.clone(), connection.children.clone());
        let child = match value >> 4 & 3 {
            0 => None,
            1 => children.first().map(|child| child.name.as_str()),
            2 => children.last().map(|child| child.name.as_str()),
            _ => Some("no such child"),
        };
        let endpoint = &mut self.side(end).endpoint;
        let refused = match value & 15 {
            0..=2 => endpoint.initiate(now, &name, child).err(),
            3..=5 => endpoint.rekey(now, &name, child).err(),
            6 | 7 => endpoint.terminate(now, &name, child).err(),
            8 => {
                endpoint.start(now);
                None
            }
            9 => {
                endpoint.withdraw(now, &name, child);
                None
            }
            10 => {
                endpoint.terminate_all(now);
                None
            }
            11 => endpoint.initiate(now, "no such connection", child).err(),
            _ => {
                self.look(end);
                None
            }
        };
        drop(refused.map(|error| format!("{error} {error:?}")));
    }

    /// What the control socket shows.
    fn look(&mut self, end: usize) {
        let endpoint = &self.side(end).endpoint;
        for sa in endpoint.status() {
            drop(format!("{:?} {}", sa.clone(), sa.state.name()));
            assert_eq!(endpoint.state_of(sa.id), Some(sa.state));
            drop(sa.suite.map(|suite| suite.to_string()));
            for child in &sa.children {
                assert_eq!(endpoint.child_state_of(child.id), Some(child.state));
                assert!(endpoint.peer_of(child.id).is_some());
                let around = endpoint.status_around(child.id);
                assert!(around.is_some_and(|around| around.id == sa.id));
                drop((child.state.name(), child.esp.to_string()));
            }
        }
        for child in endpoint.configured() {
            drop(format!("{child:?} {}", child.state.name()));
            let name = Some(child.child.as_str());
            let _ = endpoint.is_established(&child.connection, name);
        }
        drop(format!("{:?} {endpoint:?}", endpoint.counters().clone()));
        let counters = endpoint.counters();
        let refused = |refusal: &&Refusal| counters.refused(**refusal) > 0;
        let names = Refusal::ALL.iter().filter(refused);
        drop(names.map(|refusal| refusal.name()).collect::<Vec<_>>());
        let _ = (endpoint.states().count(), endpoint.half_open());
    }

    /// An event of the data plane, or a command about one SA, which may be gone.
    fn of_sa(&mut self, end: usize, value: u8) {
        let now = self.pair.now;
        let peer = self.side(1 - end).address;
        let side = self.side(end);
        let newest = side
            .installed
            .len()
            .checked_sub(1 + usize::from(value >> 6));
        let Some(at) = newest else { return };
        let (ike_sa, child) = (side.installed[at].ike_sa, side.installed[at].child);
        let child = if value & 32 == 0 {
            child
        } else {
            ChildSaId(9999)
        };
        let local = SocketAddr::new(side.address, 4500);
        let remote = SocketAddr::new(peer, 4500 + if end == 0 { 0 } else { SHIFT });
        let endpoint = &mut side.endpoint;
        let refused = match value & 15 {
            0 => {
                endpoint.note_inbound_traffic(now, child);
                Ok(())
            }
            1 => {
                endpoint.note_outbound_traffic(now, child);
                Ok(())
            }
            2 => endpoint.rekey_child_sa(now, child),
            3 => endpoint.terminate_child_sa(now, child),
            4 => endpoint.reauthenticate_ike_sa(now, ike_sa),
            5 => endpoint.expire_child_sa(now, child),
            6 => endpoint.reject_child_sa(now, child),
            7 => endpoint.terminate_ike_sa(now, ike_sa),
            8 => endpoint.rekey_ike_sa(now, ike_sa),
            9 => endpoint.close_idle_child_sa(now, child),
            10 => {
                side.sees_traffic = !side.sees_traffic;
                Ok(())
            }
            _ => {
                endpoint.note_peer_address(now, child, local, remote);
                Ok(())
            }
        };
        drop(refused.map_err(|error| error.to_string()));
    }

    /// A packet without an SA.
    fn acquire(&mut self, end: usize, value: u8) {
        let now = self.pair.now;
        let (own, peers) = if end == 0 { (1, 2) } else { (2, 1) };
        let host = |net: u8, port: u16| TrafficSelector {
            protocol: [6, 17, 1, 0][usize::from(value & 3)],
            start_port: port,
            end_port: port,
            start: [10, net, 0, 7].into(),
            end: [10, net, 0, 7].into(),
        };
        let demand = Demand {
            packet: (host(own, u16::from(value >> 2)), host(peers, 80)),
            selectors: (
                host(own, u16::from(value >> 2)),
                TrafficSelector::addresses([10, peers, 0, 0].into(), [10, peers, 255, 255].into()),
            ),
        };
        let endpoint = &mut self.side(end).endpoint;
        let refused = endpoint.acquire(now, "site", "net", &demand);
        drop(refused.map_err(|error| error.to_string()));
    }

    /// The places that were to be asked have been asked.
    fn status_is_there(&mut self, end: usize, value: u8) {
        let stores = &Material::get().stores;
        let mut store: RevocationStore = (*stores[usize::from(value >> 1) % stores.len()]).clone();
        store.set_fetches();
        for source in std::mem::take(&mut self.wanted[end]) {
            if value & 1 == 0 {
                store.note_tried(source);
            }
        }
        let now = self.pair.now;
        let store = Arc::new(store);
        self.setup.ends[end].revocation = store.clone();
        self.side(end).endpoint.set_revocation(now, store);
    }

    fn names(&mut self, end: usize, value: u8) {
        let addresses = match value & 7 {
            0 | 1 => Ok(vec![self.side(1 - end).address]),
            2 => Ok(vec![]),
            3 => Err("the name does not exist".to_owned()),
            4 => Ok(vec![[203, 0, 113, 9].into(), self.side(1 - end).address]),
            _ => Ok(vec![[203, 0, 113, 9].into()]),
        };
        let name = "sun.example".to_owned();
        let known = HostName { name, addresses };
        let config = &mut self.setup.ends[end];
        if config.set_names(|name| (name == known.name).then_some(&known)) {
            let config = config.clone();
            self.side(end).endpoint.set_config(config);
        }
        let now = self.pair.now;
        let names = BTreeSet::from([known.name]);
        self.side(end).endpoint.names_looked_up(now, &names);
    }

    /// An end has another address from now on, or none.
    fn address(&mut self, end: usize, value: u8) {
        let now = self.pair.now;
        let own = if end == 0 { A } else { B };
        let address: Option<IpAddr> = match value & 3 {
            0 => own.parse().ok(),
            1 => None,
            _ if end == 0 => OTHER.parse().ok(),
            _ => own.parse().ok(),
        };
        let side = self.side(end);
        if let Some(address) = address {
            side.formerly.push(side.address);
            side.address = address;
        }
        *side.routes.0.lock().expect("no panic before") = address;
        if value & 4 == 0 {
            side.endpoint.addresses_changed(now);
        }
    }

    /// An end has lost all of its SAs.
    fn restart(&mut self, end: usize) {
        self.flush();
        let seed = 5 + 2 * self.taken[0] as u64 + 2 * self.taken[1] as u64 + end as u64;
        let new = side(&self.setup, end, self.pair.now, seed);
        *self.side(end) = new;
        (self.taken[end], self.seen[end]) = (0, 0);
        self.jobs[end].clear();
    }

    fn flush(&mut self) {
        for _ in 0..3 {
            self.work();
            self.pair.flush();
            self.note_events();
            self.send();
        }
    }

    /// Runs the jobs of the ends that leave them to others.
    fn work(&mut self) {
        let now = self.pair.now;
        for end in 0..2 {
            while let Some(job) = self.side(end).endpoint.poll_job(now) {
                let fails = self.side(end).sent.len() % 32 == 31;
                let done = if fails { job.failed() } else { job.run() };
                let cost = Duration::from_millis(1);
                self.side(end).endpoint.job_done(now, done, cost);
            }
        }
    }

    /// The log formats every event.
    fn note_events(&mut self) {
        for end in 0..2 {
            let events = self.side(end).events.len();
            for at in self.seen[end]..events {
                let event = self.side(end).events[at].clone();
                drop(format!("{event:?}"));
                match event {
                    Event::StatusNeeded(sources) => self.wanted[end].extend(sources),
                    Event::ConnectFailed { reason, .. } => drop(reason.to_string()),
                    Event::IkeSaDown { reason, .. } => drop(reason.to_string()),
                    Event::ChildFailed { reason, .. } | Event::RekeyFailed { reason, .. } => {
                        drop(reason.to_string());
                    }
                    Event::KeyLog(log) => drop(log.wireshark_line()),
                    Event::IkeSaUp(up) => drop(format!("{} {}", up.local_id, up.remote_id)),
                    Event::ChildSaInstalled(child) => drop(child.esp.to_string()),
                    _ => {}
                }
            }
            self.seen[end] = events;
        }
    }

    /// Takes the datagrams that the ends have sent into the network, past the insider and the NAT.
    fn send(&mut self) {
        let now = self.pair.now;
        for end in 0..2 {
            let sent = self.side(end).sent.len();
            for at in self.taken[end]..sent {
                let side = self.side(end);
                let (mut lost, transmit) = (side.dead, side.sent[at].clone());
                let len = IPV4_AND_UDP + transmit.payload.len();
                // Other messages may be fragmented.
                lost |= transmit.path_probe && self.pair.path_mtu.is_some_and(|mtu| len > mtu);
                let mut payload = transmit.payload;
                if let Some(edits) = (!self.insider[end].is_empty())
                    .then(|| self.insider[end].remove(0))
                    .filter(|edits| !edits.is_empty())
                {
                    let events = [&self.pair.a.events[..], &self.pair.b.events[..]];
                    insider::change(events, &mut payload, &mut Script(&edits));
                }
                let (mut from, mut to) = (transmit.local, transmit.remote);
                if end == 0 && self.nat {
                    from.set_port(from.port() + SHIFT);
                }
                let inside = to.port().wrapping_sub(SHIFT);
                if end == 1 && matches!(inside, 500 | 600 | 4500) {
                    to.set_port(inside);
                }
                if !lost {
                    self.network.send(now, Datagram { from, to, payload });
                }
            }
            self.taken[end] = sent;
        }
    }

    /// Lets time pass, with the arrivals and timers in it.
    fn run(&mut self, time: Duration) {
        let until = self.pair.now + time;
        for _ in 0..EVENTS_MAX {
            self.flush();
            let timers = [
                self.network.next_arrival(),
                self.pair.a.endpoint.poll_timeout(),
                self.pair.b.endpoint.poll_timeout(),
            ];
            let next = timers.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.pair.now = self.pair.now.max(next);
            let now = self.pair.now;
            while let Some(datagram) = self.network.arrive(now) {
                let Datagram { from, to, payload } = datagram;
                for end in 0..2 {
                    let side = self.side(end);
                    if !side.dead && side.address == to.ip() {
                        side.endpoint.handle_datagram(now, to, from, &payload);
                    }
                }
                self.flush();
            }
            for end in 0..2 {
                let endpoint = &mut self.side(end).endpoint;
                if endpoint.poll_timeout().is_some_and(|at| at <= now) {
                    endpoint.handle_timeout(now);
                }
            }
        }
        self.flush();
        self.pair.now = self.pair.now.max(until);
    }

    fn check_bounds(&self) {
        for side in [&self.pair.a, &self.pair.b] {
            let status = side.endpoint.status();
            side.check_children(&status);
            assert!(status.len() < 100, "{} IKE SAs", status.len());
        }
    }

    /// Ends everything, and checks that nothing was forgotten.
    fn finish(&mut self) {
        for end in 0..2 {
            self.look(end);
            let now = self.pair.now;
            self.side(end).endpoint.terminate_all(now);
        }
        self.run(Duration::from_secs(1800));
        for end in 0..2 {
            let side = self.side(end);
            assert!(side.children.is_empty(), "{:?}", side.children);
            assert!(side.up.is_empty());
            assert_eq!(side.endpoint.status().len(), 0);
            let used = side.spis.0.lock().expect("no panic before").used.len();
            assert_eq!((used, side.endpoint.half_open()), (0, 0));
        }
    }
}

fn side(setup: &Setup, end: usize, now: Instant, seed: u64) -> Side {
    let (name, address) = [("a", A), ("b", B)][end];
    let numbers = Repeatable::new(seed);
    let config = setup.ends[end].clone();
    let mut side = Side::with_host(name, address, config, now, seed, |host| {
        host.random = Box::new(numbers.clone());
        if !setup.real_exchanges {
            host.key_exchange = Arc::new(numbers);
        }
        host.policies = Box::new(Room(setup.room[end]));
        host.runs_jobs = !setup.late_jobs[end];
    });
    side.longest_packet = Some(1500);
    let clock = SystemTime::UNIX_EPOCH + NOW;
    let clock = match setup.clock {
        ahead @ 0.. => clock + Duration::from_secs(ahead.unsigned_abs()),
        behind => clock - Duration::from_secs(behind.unsigned_abs()),
    };
    side.endpoint.set_wall_clock(now, clock);
    side
}

#[cfg(test)]
mod tests {
    use esplanade_ike::event::PathFound;

    use super::*;

    /// The pair after the script of this name, before everything is ended.
    fn play(name: &str) -> Run {
        let mut scripts = scripts().into_iter();
        let (_, script) = scripts.find(|(one, _)| *one == name).expect("a name");
        Run::play(&script)
    }

    #[test]
    fn scripts_come_as_far_as_their_names_say() {
        for name in [
            "up",
            "certificate",
            "raw-key",
            "member",
            "external-key",
            "rekeys",
            "late-jobs",
            "by-name",
            "another-address",
        ] {
            let mut run = play(name);
            assert_eq!(run.pair.a.ike_sas().len(), 1, "{name}");
            assert_eq!(run.pair.a.children.len(), 1, "{name}");
            run.pair.assert_same();
            run.finish();
        }
        for name in ["down", "insider"] {
            let mut run = play(name);
            assert!(
                run.pair.a.up.is_empty() && run.pair.b.up.is_empty(),
                "{name}"
            );
            run.finish();
        }
        assert_eq!(play("down").pair.b.installed.len(), 1);
        assert!(play("insider").pair.b.installed.is_empty());
    }

    #[test]
    fn scripts_take_the_ways_that_their_names_say() {
        let status = play("status-is-fetched");
        let asked = |event: &Event| matches!(event, Event::StatusNeeded(_));
        assert!(status.pair.b.events.iter().any(asked));
        let restarted = play("restart");
        assert!(restarted.pair.a.installed.len() > 1);
        restarted.pair.assert_same();
        let found = |name| {
            let events = play(name).pair.a.events;
            let found = events.into_iter().filter_map(|event| match event {
                Event::PathProbed { found, .. } => Some(found),
                _ => None,
            });
            found.collect::<Vec<_>>()
        };
        assert!(matches!(
            found("narrow-path")[..],
            [.., PathFound::Narrow { mtu: 1300, .. }]
        ));
        assert_eq!(found("wider-path").last(), Some(&PathFound::Whole));
        let one_way = |event: &Event| matches!(event, Event::OneWay(_));
        assert!(play("one-way").pair.a.events.iter().any(one_way));
        let moved = play("another-address");
        assert_eq!(
            moved.pair.a.endpoint.status()[0].local.ip().to_string(),
            OTHER
        );
        assert!(play("rekeys").pair.a.endpoint.counters().ike_rekeys > 0);
    }
}
