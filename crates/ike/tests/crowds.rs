//! Many IKE SAs at once: a responder takes few half-open ones of one address, and still all of them are established.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use esplanade_ike::config::{AddressMatch, Config, Connection};
use esplanade_ike::wire::{ExchangeType, Header};
use esplanade_ike::{Event, Refusal};
use esplanade_testkit::net::{Conditions, Datagram, Network};

const SECOND: Duration = Duration::from_secs(1);

/// The initiators, and the one responder B.
struct Crowd {
    start: Instant,
    now: Instant,
    initiators: Vec<Side>,
    by_address: HashMap<IpAddr, usize>,
    /// The connections that all initiators have in common.
    connections: Vec<String>,
    b: Side,
    network: Network,
    /// The responder drops IKE_SA_INIT requests of one address in silence when it has this many half-open SAs.
    drops_beyond: Option<usize>,
    dropped: usize,
    /// The times at which the IKE SAs of B were established.
    up: Vec<Duration>,
}

impl Crowd {
    fn new(initiators: Vec<(String, Config)>, b: Config) -> Self {
        let start = Instant::now();
        let connections = initiators[0].1.connections.iter();
        let connections = connections.map(|one| one.name.clone()).collect();
        let side = |(number, (address, config)): (usize, (String, Config))| {
            Side::new("a", &address, config, start, 2 * number as u64 + 10)
        };
        let initiators: Vec<_> = initiators.into_iter().enumerate().map(side).collect();
        let by_address = initiators.iter().enumerate();
        Self {
            start,
            now: start,
            by_address: by_address.map(|(n, side)| (side.address, n)).collect(),
            initiators,
            connections,
            b: Side::new("b", B, b, start, 3),
            network: Network::new(Conditions::PERFECT, 1),
            drops_beyond: None,
            dropped: 0,
            up: Vec::new(),
        }
    }

    /// `count` connections of A with B, told apart by identities.
    fn of_one_gateway(count: usize, b: impl FnOnce(&mut Config)) -> Self {
        let named = |number: usize, mut connection: Connection, (local, remote): (&str, &str)| {
            connection.name = format!("site-{number}");
            connection.local.id = id(&format!("{local}{number}.example"));
            connection.remote.id = id(&format!("{remote}{number}.example"));
            let mut child = (*connection.children[0]).clone();
            let (ours, theirs) = (number / 256, number % 256);
            let net = |first: u8| {
                subnet(&format!(
                    "{first}.{ours}.{theirs}.0-{first}.{ours}.{theirs}.255"
                ))
            };
            let (first, last) = if local == "a" { (11, 12) } else { (12, 11) };
            (child.local_ts, child.remote_ts) = (vec![net(first)], vec![net(last)]);
            connection.children = vec![child.into()];
            Arc::new(connection)
        };
        let (one, other) = default_configs();
        let (mut a, mut config_b) = (config(one.clone()), config(other.clone()));
        a.connections = (0..count)
            .map(|n| named(n, one.clone(), ("a", "b")))
            .collect();
        config_b.connections = (0..count)
            .map(|n| named(n, other.clone(), ("b", "a")))
            .collect();
        b(&mut config_b);
        Self::new(vec![(A.to_owned(), a)], config_b)
    }

    fn initiate_all(&mut self) {
        for number in 0..self.initiators.len() {
            let endpoint = &mut self.initiators[number].endpoint;
            for connection in &self.connections {
                endpoint.initiate(self.now, connection, None).unwrap();
            }
            self.flush(Some(number));
        }
    }

    fn flush(&mut self, initiator: Option<usize>) {
        let at = self.now - self.start;
        let side = match initiator {
            Some(number) => &mut self.initiators[number],
            None => &mut self.b,
        };
        while let Some(event) = side.endpoint.poll_event() {
            if initiator.is_none() && matches!(event, Event::IkeSaUp(_)) {
                self.up.push(at);
            }
            side.events.push(event);
        }
        while let Some(transmit) = side.endpoint.poll_transmit() {
            let datagram = Datagram {
                from: transmit.local,
                to: transmit.remote,
                payload: transmit.payload,
            };
            self.network.send(self.now, datagram);
        }
    }

    fn drops(&self, datagram: &Datagram) -> bool {
        let opens = Header::decode(&datagram.payload)
            .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.response);
        opens
            && self
                .drops_beyond
                .is_some_and(|most| self.b.endpoint.half_open() >= most)
    }

    fn arrive(&mut self, datagram: &Datagram) {
        let to_b = datagram.to.ip() == self.b.address;
        if to_b && self.drops(datagram) {
            self.dropped += 1;
            return;
        }
        let number = self.by_address.get(&datagram.to.ip()).copied();
        let side = match number.filter(|_| !to_b) {
            Some(number) => &mut self.initiators[number],
            None => &mut self.b,
        };
        side.endpoint
            .handle_datagram(self.now, datagram.to, datagram.from, &datagram.payload);
        self.flush(number.filter(|_| !to_b));
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let timers = self
                .initiators
                .iter()
                .map(|side| side.endpoint.poll_timeout());
            let timers =
                timers.chain([self.b.endpoint.poll_timeout(), self.network.next_arrival()]);
            let Some(next) = timers.flatten().min().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(datagram) = self.network.arrive(self.now) {
                self.arrive(&datagram);
            }
            for number in 0..self.initiators.len() {
                let endpoint = &mut self.initiators[number].endpoint;
                if endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
                    endpoint.handle_timeout(self.now);
                    self.flush(Some(number));
                }
            }
            if self
                .b
                .endpoint
                .poll_timeout()
                .is_some_and(|at| at <= self.now)
            {
                self.b.endpoint.handle_timeout(self.now);
                self.flush(None);
            }
        }
        self.now = until;
    }

    /// Checks that all SAs are established at B, the last one before `time`.
    fn assert_up(&self, count: usize, time: Duration) {
        assert_eq!(self.up.len(), count, "after {:?}", self.now - self.start);
        let last = self.up.last().unwrap();
        assert!(*last < time, "the last one after {last:?}");
        assert_eq!(self.b.ike_sas().len(), count);
    }
}

#[test]
fn a_thousand_connections_of_one_gateway_are_up_soon() {
    let mut crowd = Crowd::of_one_gateway(1000, |_| {});
    let delay = Duration::from_millis(30)..Duration::from_millis(40);
    crowd.network.conditions.delay = delay;
    crowd.initiate_all();
    crowd.run(30 * SECOND);
    crowd.assert_up(1000, 20 * SECOND);
    assert_eq!(crowd.initiators[0].ike_sas(), crowd.b.ike_sas());
}

#[test]
fn a_peer_that_takes_five_of_an_address_gets_no_more_at_once() {
    let mut crowd = Crowd::of_one_gateway(100, |b| {
        // No cookie warns the initiator.
        b.limits.cookie_threshold = usize::MAX;
        b.limits.half_open_per_network_max = 1000;
    });
    crowd.drops_beyond = Some(5);
    crowd.initiate_all();
    crowd.run(30 * SECOND);
    crowd.assert_up(100, 15 * SECOND);
    assert!(crowd.dropped > 0 && crowd.dropped < 30, "{}", crowd.dropped);
}

#[test]
fn an_esplanade_that_takes_five_of_an_address_is_served_likewise() {
    let mut crowd = Crowd::of_one_gateway(100, |b| {
        b.limits.half_open_per_source_max = 5;
        b.limits.half_open_per_network_max = 5;
    });
    crowd.initiate_all();
    crowd.run(30 * SECOND);
    crowd.assert_up(100, 15 * SECOND);
}

/// Sites with an address each, in four networks, and a hub that knows none of them.
fn sites(count: usize) -> Crowd {
    let mut initiators = Vec::new();
    for number in 0..count {
        let address = format!("203.0.{}.{}", number / 250, 1 + number % 250);
        let mut connection = default_configs().0;
        connection.local_addrs = vec![AddressMatch::Host(address.parse().unwrap())];
        connection.local.id = id(&format!("a{number}.example"));
        let mut child = (*connection.children[0]).clone();
        let net = format!("11.{}.{}", number / 256, number % 256);
        child.local_ts = vec![subnet(&format!("{net}.0-{net}.255"))];
        connection.children = vec![child.into()];
        initiators.push((address, config(connection)));
    }
    let mut hub = default_configs().1;
    hub.remote_addrs = vec![AddressMatch::Any];
    hub.remote.id = id("*.example");
    let mut child = (*hub.children[0]).clone();
    child.remote_ts = vec![subnet("11.0.0.0-11.255.255.255")];
    hub.children = vec![child.into()];
    Crowd::new(initiators, config(hub))
}

/// All sites connect at once, as after a power cut.
// RFC 7296 R83
#[test]
fn a_thousand_gateways_that_start_at_once_are_up_soon() {
    let mut crowd = sites(1000);
    crowd.initiate_all();
    crowd.run(30 * SECOND);
    crowd.assert_up(1000, 20 * SECOND);
    assert!(crowd.b.refused(Refusal::CookieRequired) > 900);
}

/// Most events of one step. A child SA counts twice, its route too.
const EVENTS_OF_STEP_MAX: usize = 128;

/// Takes the events of the hub step by step, and returns how many there were in each step.
fn steps(crowd: &mut Crowd) -> Vec<usize> {
    let mut steps = Vec::new();
    loop {
        let endpoint = &mut crowd.b.endpoint;
        steps.push(std::iter::from_fn(|| endpoint.poll_event()).count());
        let at = endpoint.poll_timeout();
        if at.is_none_or(|at| at > crowd.now) {
            return steps;
        }
        assert!(endpoint.is_ending());
        endpoint.handle_timeout(crowd.now);
    }
}

/// A stop and a command that ends many SAs are carried out in steps, so that nobody waits for all of it.
#[test]
fn many_sas_that_end_together_end_in_steps() {
    for by_command in [false, true] {
        let mut crowd = sites(200);
        crowd.initiate_all();
        crowd.run(30 * SECOND);
        crowd.assert_up(200, 20 * SECOND);
        let ended = match by_command {
            true => crowd.b.endpoint.terminate(crowd.now, "site", None).unwrap(),
            false => crowd.b.endpoint.terminate_all(crowd.now),
        };
        assert_eq!(ended, 200);
        assert!(crowd.b.endpoint.is_ending());
        let steps = steps(&mut crowd);
        assert!(steps.len() > 5, "{steps:?}");
        assert!(
            steps.iter().all(|step| *step <= EVENTS_OF_STEP_MAX),
            "{steps:?}"
        );
        assert_eq!(
            steps.iter().sum::<usize>(),
            400,
            "each child SA and each IKE SA"
        );
        assert!(!crowd.b.endpoint.is_ending());
        crowd.flush(None);
        crowd.run(SECOND);
        assert_eq!(
            crowd.b.endpoint.states().count(),
            0,
            "the peers have confirmed"
        );
    }
}

/// An SA whose end waits for its turn does not keep another peer from being served.
#[test]
fn a_peer_is_served_while_others_end() {
    let mut crowd = sites(200);
    let last = crowd.initiators.len() - 1;
    crowd.initiate_all();
    crowd.run(30 * SECOND);
    let now = crowd.now;
    let site = &mut crowd.initiators[last].endpoint;
    site.terminate(now, "site", None).unwrap();
    crowd.flush(Some(last));
    crowd.run(SECOND);
    assert_eq!(crowd.b.endpoint.terminate_all(crowd.now), 199);
    // The first step was made. The site comes again, and each of its messages makes one step.
    crowd.flush(None);
    let before = crowd.up.len();
    let now = crowd.now;
    let site = &mut crowd.initiators[last].endpoint;
    site.initiate(now, "site", None).unwrap();
    crowd.flush(Some(last));
    let own = crowd.initiators[last].address;
    while crowd.up.len() == before {
        let next = crowd.network.next_arrival();
        crowd.now = next.expect("an answer without a wait for all that ends");
        let datagram = crowd.network.arrive(crowd.now).expect("it has come");
        // Messages of the others would make steps too.
        if [datagram.from, datagram.to]
            .iter()
            .any(|end| end.ip() == own)
        {
            crowd.arrive(&datagram);
        }
    }
    assert!(crowd.b.endpoint.is_ending());
}

/// A peer that rekeys an SA before its turn to end comes keeps nothing by that.
#[test]
fn an_sa_that_is_to_end_does_not_escape_by_a_rekey() {
    for (ended, rekeyed) in [
        (None, None),
        (None, Some("net")),
        (Some("net"), None),
        (Some("net"), Some("net")),
    ] {
        let mut crowd = sites(200);
        let last = crowd.initiators.len() - 1;
        crowd.initiate_all();
        crowd.run(30 * SECOND);
        let count = crowd.b.endpoint.terminate(crowd.now, "site", ended);
        assert_eq!(count, Ok(200));
        // Its request is the next that comes.
        let site = &mut crowd.initiators[last].endpoint;
        assert_eq!(site.rekey(crowd.now, "site", rekeyed), Ok(1));
        let request = site.poll_transmit().unwrap();
        crowd.b.endpoint.handle_datagram(
            crowd.now,
            request.remote,
            request.local,
            &request.payload,
        );
        assert!(crowd.b.endpoint.is_ending());
        let counters = crowd.b.endpoint.counters();
        assert_eq!(counters.ike_rekeys + counters.child_rekeys, 1);
        crowd.flush(None);
        crowd.run(SECOND);
        let states = crowd.b.endpoint.status();
        let children = states.iter().flat_map(|sa| &sa.children);
        assert_eq!(children.count(), 0, "{ended:?}, {rekeyed:?}");
        let left = if ended.is_some() { 200 } else { 0 };
        assert_eq!(states.len(), left, "{ended:?}, {rekeyed:?}");
    }
}

#[test]
fn who_waits_for_a_turn_can_be_ended_and_is_not_begun() {
    let mut crowd = Crowd::of_one_gateway(10, |_| {});
    crowd.initiate_all();
    let now = crowd.now;
    let side = &mut crowd.initiators[0];
    assert_eq!(side.endpoint.status().len(), 10, "all are on their way");
    assert_eq!(side.endpoint.terminate(now, "site-9", None), Ok(1));
    crowd.flush(Some(0));
    crowd.run(10 * SECOND);
    crowd.assert_up(9, SECOND);
}

#[test]
fn everyone_gets_a_turn_with_a_peer_that_is_silent() {
    let mut crowd = Crowd::of_one_gateway(20, |_| {});
    crowd.drops_beyond = Some(0);
    crowd.initiate_all();
    crowd.run(60 * SECOND);
    assert!(crowd.up.is_empty());
    // The hub is back. An SA that was not tried yet waits for no time-out.
    crowd.drops_beyond = None;
    let back = crowd.now - crowd.start;
    crowd.run(60 * SECOND);
    crowd.assert_up(20, back + 45 * SECOND);
}
