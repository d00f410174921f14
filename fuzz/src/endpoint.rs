//! Fuzzes two IKE endpoints, with a network that the input controls and a virtual clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::iana::Group;
use esplanade_crypto::secret::Secret;
use esplanade_ike::config::{Fragmentation, Limits, Unique};
use esplanade_ike::{Config, Transmit};
use esplanade_testkit::net::{Conditions, Network};

// This module's model of the data plane checks every event.
#[path = "../../crates/ike/tests/common/mod.rs"]
pub(crate) mod common;
pub(crate) mod ephemeral;
use common::{A, B, Pair, Side, change_connection, config, default_configs};
use ephemeral::Repeatable;

const STEPS_MAX: usize = 200;
const IN_FLIGHT_MAX: usize = 64;
/// The pair's own network delivers nothing: the script delivers datagrams.
const LOST: Conditions = Conditions {
    loss: 1.0,
    ..Conditions::PERFECT
};
/// The number that a NAT adds to A's source port.
const SHIFT: u16 = 1000;
const HALF_OPEN_MAX: usize = 6;
const CHILDREN_MAX: usize = 4;
const QUEUED_MAX: usize = 4;
const CONFIGURED_IKE_SAS_MAX: usize = 8;
/// The most IKE SAs of an end. During a rekey an end holds the old and the new SA.
const IKE_SAS_MAX: usize = 2 * CONFIGURED_IKE_SAS_MAX;
const SPIS_MAX: usize = IKE_SAS_MAX * (CHILDREN_MAX + QUEUED_MAX);

/// Bytes 0 and 1 choose the configuration. A script follows (see `Run::step`).
pub fn ike_endpoint(data: &[u8]) {
    if let Some(mut run) = Run::play(data) {
        run.pair.assert_clean_end();
    }
}

/// The rest of the input. It continues with zeros.
pub(crate) struct Script<'a>(pub &'a [u8]);

impl Script<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    pub fn bytes(&mut self, len: usize) -> &[u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
}

#[derive(Clone)]
struct InFlight {
    from_a: bool,
    transmit: Transmit,
}

struct Run {
    pair: Pair,
    in_flight: Vec<InFlight>,
    /// The number of each side's datagrams that are taken over.
    taken: [usize; 2],
    nat: bool,
}

impl Run {
    fn new(options: u16) -> Self {
        let (a, b) = configs(options);
        let start = Instant::now();
        let side = |name, address, config, seed| {
            let numbers = Repeatable::new(seed);
            Side::with_host(name, address, config, start, seed, |host| {
                host.random = Box::new(numbers.clone());
                host.key_exchange = Arc::new(numbers);
            })
        };
        let pair = Pair {
            start,
            now: start,
            a: side("a", A, a, 2),
            b: side("b", B, b, 3),
            network: Network::new(LOST, 1),
            nat: None,
            nat_of_b: None,
            attacker: None,
            path_mtu: None,
        };
        Self {
            pair,
            in_flight: Vec::new(),
            taken: [0; 2],
            nat: false,
        }
    }

    fn play(data: &[u8]) -> Option<Self> {
        let (options, script) = data.split_first_chunk()?;
        let mut run = Self::new(u16::from_le_bytes(*options));
        let mut script = Script(script);
        for _ in 0..STEPS_MAX {
            let Some(step) = script.byte() else { break };
            run.step(step, &mut script);
            run.collect();
            run.check_bounds();
        }
        Some(run)
    }

    /// Runs one step. The low four bits of `step` give the action, and the high bits are its parameter.
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let parameter = step >> 4;
        match step & 15 {
            0 => self.command(parameter, script.next()),
            1 => self.deliver_at(0, |_| {}),
            2 => self.deliver_all(),
            3 => self.deliver_at(parameter.into(), |_| {}),
            4 => drop(self.take(parameter.into())),
            5 => {
                if let Some(copy) = self.in_flight.get(usize::from(parameter)).cloned() {
                    self.deliver(&copy);
                }
            }
            6 => {
                let (at, flip) = (script.next(), script.next());
                self.deliver_at(parameter.into(), |payload| {
                    if let Some(byte) = payload.get_mut(usize::from(at)) {
                        *byte ^= flip;
                    }
                });
            }
            7 => {
                let len = usize::from(script.next());
                self.deliver_at(parameter.into(), |payload| payload.truncate(len));
            }
            8 => {
                let side = self.sent(parameter & 1 == 0);
                let old = side.len().checked_sub(1 + usize::from(script.next()));
                if let Some(transmit) = old.map(|at| side[at].clone()) {
                    let from_a = parameter & 1 == 0;
                    self.deliver(&InFlight { from_a, transmit });
                }
            }
            9 => {
                let len = usize::from(script.next());
                self.raw(parameter, script.bytes(len).to_vec());
            }
            10 => self.pair.run(Duration::from_millis(4 << parameter)),
            11 => self.run_to_next_timer(),
            12 => self.nat = !self.nat,
            13 => self.fail_spis(parameter),
            14 => self.data_plane(parameter, script.next()),
            _ => self.in_flight.clear(),
        }
    }

    fn sent(&self, from_a: bool) -> &[Transmit] {
        if from_a {
            &self.pair.a.sent
        } else {
            &self.pair.b.sent
        }
    }

    fn side(&mut self, a: bool) -> &mut Side {
        if a {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        }
    }

    fn take(&mut self, at: usize) -> Option<InFlight> {
        (at < self.in_flight.len()).then(|| self.in_flight.remove(at))
    }

    fn deliver_at(&mut self, at: usize, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(mut datagram) = self.take(at) {
            change(&mut datagram.transmit.payload);
            self.deliver(&datagram);
        }
    }

    fn deliver_all(&mut self) {
        for _ in 0..IN_FLIGHT_MAX {
            let Some(datagram) = self.take(0) else { break };
            self.deliver(&datagram);
            self.collect();
        }
    }

    fn deliver(&mut self, datagram: &InFlight) {
        let (mut from, mut to) = (datagram.transmit.local, datagram.transmit.remote);
        if datagram.from_a && self.nat {
            from.set_port(from.port() + SHIFT);
        }
        if !datagram.from_a && to.port() > SHIFT && [500, 4500].contains(&(to.port() - SHIFT)) {
            to.set_port(to.port() - SHIFT);
        }
        self.receive(!datagram.from_a, to, from, &datagram.transmit.payload);
    }

    fn receive(&mut self, a: bool, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        let now = self.pair.now;
        self.side(a)
            .endpoint
            .handle_datagram(now, local, remote, payload);
        self.pair.flush();
    }

    /// Sends bytes of the input as a datagram. The parameter may put the SPIs of a live IKE SA into it.
    fn raw(&mut self, parameter: u8, mut payload: Vec<u8>) {
        let to_a = parameter & 1 == 0;
        let port = if parameter & 2 == 0 { 500 } else { 4500 };
        let local = SocketAddr::new(self.side(to_a).address, port);
        let remote = SocketAddr::new(self.side(!to_a).address, port);
        if parameter & 4 != 0
            && let Some(sa) = self.side(to_a).endpoint.status().first()
        {
            let spis = [sa.spi_i.to_be_bytes(), sa.spi_r.to_be_bytes()].concat();
            let begin = if port == 500 { 0 } else { 4 };
            if let Some(place) = payload.get_mut(begin..begin + 16) {
                place.copy_from_slice(&spis);
            }
        }
        self.receive(to_a, local, remote, &payload);
    }

    fn run_to_next_timer(&mut self) {
        let timers = [&self.pair.a, &self.pair.b].map(|side| side.endpoint.poll_timeout());
        if let Some(next) = timers.into_iter().flatten().min() {
            self.pair.step(next);
        }
    }

    fn fail_spis(&mut self, parameter: u8) {
        let limit = match parameter >> 1 {
            0 => None,
            limit => Some(usize::from(limit)),
        };
        let side = self.side(parameter & 1 == 0);
        side.spis.0.lock().expect("no panic before").limit = limit;
    }

    fn command(&mut self, parameter: u8, choice: u8) {
        let now = self.pair.now;
        let endpoint = &mut self.side(parameter & 1 == 0).endpoint;
        let child = (parameter & 2 != 0).then_some("net");
        // An end refuses a command that finds nothing to do. This check is not about refusals.
        match choice % 6 {
            0 => drop(endpoint.initiate(now, "site", child)),
            1 => drop(endpoint.rekey(now, "site", child)),
            2 => drop(endpoint.terminate(now, "site", child)),
            3 => drop(endpoint.terminate_all(now)),
            4 => endpoint.start(now),
            _ => drop(endpoint.initiate(now, "site", Some("other"))),
        }
        self.pair.flush();
    }

    /// Reports an event of the data plane for a child SA, which may be gone.
    fn data_plane(&mut self, parameter: u8, pick: u8) {
        let now = self.pair.now;
        let (a, b) = (self.pair.a.address, self.pair.b.address);
        let to_a = parameter & 1 == 0;
        let side = self.side(to_a);
        let installed = side.installed.get(usize::from(pick));
        let Some((ike_sa, child)) = installed.map(|one| (one.ike_sa, one.child)) else {
            return;
        };
        match parameter >> 1 {
            0 => side.endpoint.note_inbound_traffic(now, child),
            1 => side.endpoint.note_outbound_traffic(now, child),
            2 => drop(side.endpoint.rekey_child_sa(now, child)),
            3 => drop(side.endpoint.terminate_child_sa(now, child)),
            6 => drop(side.endpoint.reauthenticate_ike_sa(now, ike_sa)),
            _ => {
                let (local, remote) = if to_a { (a, b) } else { (b, a) };
                let remote = SocketAddr::new(remote, 4500 + if to_a { 0 } else { SHIFT });
                let local = SocketAddr::new(local, 4500);
                side.endpoint.note_peer_address(now, child, local, remote);
            }
        }
        self.pair.flush();
    }

    /// Takes the datagrams that the endpoints sent into flight.
    fn collect(&mut self) {
        for (index, from_a) in [true, false].into_iter().enumerate() {
            let sent = self.sent(from_a);
            let new = sent[self.taken[index]..].to_vec();
            self.taken[index] = sent.len();
            self.in_flight.extend(
                new.into_iter()
                    .map(|transmit| InFlight { from_a, transmit }),
            );
        }
        let excess = self.in_flight.len().saturating_sub(IN_FLIGHT_MAX);
        self.in_flight.drain(..excess);
    }

    fn check_bounds(&self) {
        for side in [&self.pair.a, &self.pair.b] {
            let status = side.endpoint.status();
            side.check_children(&status);
            assert!(status.len() <= IKE_SAS_MAX, "{} IKE SAs", status.len());
            for sa in &status {
                // A rekeyed child SA stays until it is deleted.
                assert!(sa.children.len() <= 2 * CHILDREN_MAX);
            }
            assert!(side.endpoint.half_open() <= HALF_OPEN_MAX);
            let spis = side.spis.0.lock().expect("no panic before").used.len();
            assert!(spis <= SPIS_MAX, "{spis} SPIs");
        }
    }
}

/// The default pair of configurations, in which each bit of `options` changes one thing.
fn configs(options: u16) -> (Config, Config) {
    let has = |bit: u16| options & (1 << bit) != 0;
    let (mut a, mut b) = default_configs();
    for connection in [&mut a, &mut b] {
        connection.encap = has(0);
        if has(1) {
            connection.rekey_time = Duration::from_secs(100);
        }
        if has(2) {
            connection.dpd_delay = Duration::from_secs(10);
        }
        if has(3) {
            connection.unique = Unique::Replace;
        }
        let mut other = (*connection.children[0]).clone();
        other.name = "other".to_owned();
        for child in [Arc::make_mut(&mut connection.children[0]), &mut other] {
            if has(4) {
                child.esp_proposals[0].groups = vec![Group::Curve25519];
                child.lifetime.rekey_time = Duration::from_secs(50);
                child.lifetime.life_time = Duration::from_secs(60);
            }
        }
        connection.children.push(Arc::new(other));
    }
    if has(5) {
        // A's first guess of the group is wrong.
        a.proposals[0].groups.insert(0, Group::Ecp256);
    }
    let (mut a, mut b) = (config(a), config(b));
    for config in [&mut a, &mut b] {
        config.limits = Limits {
            cookie_threshold: if has(6) { 0 } else { 4 },
            half_open_max: HALF_OPEN_MAX,
            half_open_per_source_max: 4,
            ike_sas_max: CONFIGURED_IKE_SAS_MAX,
            children_per_sa_max: CHILDREN_MAX,
            queued_tasks_max: QUEUED_MAX,
            ..Limits::default()
        };
    }
    if has(8) {
        // IKE_AUTH and CREATE_CHILD_SA go in some fragments.
        (a.fragment_size, b.fragment_size) = (200, 200);
    }
    for (bit, config, fragmentation) in [
        (9, &mut a, Fragmentation::Accept),
        (10, &mut b, Fragmentation::No),
    ] {
        if has(bit) {
            change_connection(config, |one| one.fragmentation = fragmentation);
        }
    }
    (a.full_transcript_auth, b.full_transcript_auth) = (!has(11), !has(12));
    for (bit, config) in [(13, &mut a), (14, &mut b)] {
        change_connection(config, |one| one.full_transcript_required = has(bit));
    }
    if has(7) {
        a.secrets[0].key = Arc::new(Secret::from(b"another secret".as_slice()));
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(seed: &[u8]) -> Pair {
        Run::play(seed).expect("not empty").pair
    }

    /// The seeds must make the endpoints meet: without that they would be worth nothing.
    #[test]
    fn seeds_come_as_far_as_their_names_say() {
        for seed in [
            &include_bytes!("../corpus/ike_endpoint/up")[..],
            include_bytes!("../corpus/ike_endpoint/cookie"),
            include_bytes!("../corpus/ike_endpoint/wrong-group"),
            include_bytes!("../corpus/ike_endpoint/encapsulated"),
        ] {
            let pair = play(seed);
            assert_eq!(pair.a.ike_sas().len(), 1);
            assert!(!pair.a.children.is_empty());
            pair.assert_same();
        }
        for seed in [
            &include_bytes!("../corpus/ike_endpoint/rekeys-cross")[..],
            include_bytes!("../corpus/ike_endpoint/rekey-by-timer"),
            include_bytes!("../corpus/ike_endpoint/nat"),
        ] {
            let pair = play(seed);
            assert!(pair.b.installed.len() > 2, "nothing was rekeyed");
            pair.assert_same();
        }
        let down = play(include_bytes!("../corpus/ike_endpoint/up-and-down"));
        assert_eq!((down.b.installed.len(), down.b.up.len()), (2, 0));
        let fragmented = play(include_bytes!("../corpus/ike_endpoint/fragments"));
        let counters = fragmented.b.endpoint.counters();
        assert!(counters.messages_reassembled > 1, "{counters:?}");
        fragmented.assert_same();
        for seed in [
            &include_bytes!("../corpus/ike_endpoint/wrong-key")[..],
            include_bytes!("../corpus/ike_endpoint/transcript-not-announced-to-a"),
            include_bytes!("../corpus/ike_endpoint/transcript-not-announced-to-b"),
        ] {
            let refused = play(seed);
            assert!(refused.a.installed.is_empty() && refused.b.installed.is_empty());
        }
        for (seed, full) in [
            (&include_bytes!("../corpus/ike_endpoint/up")[..], true),
            (
                include_bytes!("../corpus/ike_endpoint/transcript-half-announced"),
                false,
            ),
        ] {
            let status = play(seed).b.endpoint.status();
            assert_eq!(status[0].full_transcript, full);
        }
    }
}
