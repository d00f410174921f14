//! Strangers get few half-open IKE SAs, and keep out neither configured peers nor those peers' neighbours.

use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_ike::Refusal;
use esplanade_ike::config::{AddressMatch, Config, Connection};
use esplanade_ike::wire::{ExchangeType, NotifyType, Payload};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &[u8] = b"a shared secret";

/// B, with a connection for A's address and one for everybody.
struct Gateway {
    side: Side,
    now: Instant,
    attempts: u64,
}

impl Gateway {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let exact = default_configs().1;
        let anybody = Connection {
            name: "anybody".to_owned(),
            local_addrs: vec![AddressMatch::Any],
            remote_addrs: vec![AddressMatch::Any],
            ..exact.clone()
        };
        let mut config = config(exact);
        config.connections.push(anybody.into());
        change(&mut config);
        let now = Instant::now();
        Self {
            side: Side::new("b", B, config, now, 7),
            now,
            attempts: 0,
        }
    }

    fn script(&mut self, from: &str) -> Script {
        let mut script = Script::new();
        self.attempts += 1;
        script.spi_i = SPI + self.attempts;
        script.local = match from.contains(':') {
            true => format!("[{from}]:500").parse().unwrap(),
            false => format!("{from}:500").parse().unwrap(),
        };
        if from.contains(':') {
            script.remote = "[2001:db8:ffff::1]:500".parse().unwrap();
        }
        script
    }

    /// Sends IKE_SA_INIT, and sends it again with a cookie if one is asked for. Returns whether there is a half-open
    /// SA.
    fn begin(&mut self, script: &mut Script) -> bool {
        let payloads = script.init_payloads();
        self.begin_with(script, payloads)
    }

    fn begin_with(&mut self, script: &mut Script, mut payloads: Vec<Payload>) -> bool {
        let Some(answer) = script.init(&mut self.side, self.now, payloads.clone()) else {
            return false;
        };
        let Some(cookie) = answer.notification(NotifyType::COOKIE).cloned() else {
            return true;
        };
        payloads.insert(0, Payload::Notify(cookie));
        let answer = script.init(&mut self.side, self.now, payloads);
        answer.is_some_and(|answer| answer.notification(NotifyType::COOKIE).is_none())
    }

    fn open(&mut self, from: &str) -> bool {
        let mut script = self.script(from);
        self.begin(&mut script)
    }

    /// Runs both exchanges. Returns the error of the last response, if there is one.
    fn authenticate(&mut self, script: &mut Script, psk: &[u8]) -> Option<Option<NotifyType>> {
        let payloads = script.auth_payloads(psk);
        let answer = script.exchange(&mut self.side, self.now, ExchangeType::IKE_AUTH, &payloads);
        answer.map(|answer| error_of(&answer))
    }

    fn is_served(&mut self, from: &str) -> bool {
        let mut script = self.script(from);
        self.begin(&mut script) && self.authenticate(&mut script, KEY) == Some(None)
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.side.endpoint.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.side.endpoint.handle_timeout(self.now);
        }
        self.now = until;
    }
}

#[test]
fn strangers_who_answer_cookies_keep_no_configured_peer_out() {
    let mut gateway = Gateway::new(|_| {});
    // The requests come at once, from as many networks.
    let opened = (0..1500u16).filter(|site| gateway.open(&format!("2001:db8:{site:x}::1")));
    assert_eq!(opened.count(), 1000);
    assert_eq!(gateway.side.refused(Refusal::HalfOpenLimit), 500);
    assert!(gateway.is_served(A), "named by address");
    assert!(
        !gateway.open("203.0.113.1"),
        "a stranger like all the others"
    );
    // An SA whose peer has not answered for this long makes room.
    gateway.wait(6 * SECOND);
    assert!(gateway.is_served("203.0.113.1"));
    assert_eq!(gateway.side.endpoint.counters().half_open_dropped, 1);
    assert_eq!(gateway.side.endpoint.half_open(), 999);
}

#[test]
fn a_site_has_a_share_whatever_the_networks_that_it_sends_from() {
    let mut gateway = Gateway::new(|_| {});
    let mut opened = |prefix: &dyn Fn(u16, u16) -> String| {
        let all = (0..50).flat_map(|network| (0..20).map(move |host| (network, host)));
        all.filter(|(network, host)| gateway.open(&prefix(*network, *host)))
            .count()
    };
    // The sites send from one /64, fifty /64 of one /56, fifty /64 of one /48, and 250 addresses of an IPv4 /24.
    let one = |_, host| format!("2001:db8:1::{host:x}");
    assert_eq!(opened(&one), 20);
    let few = |network, host| format!("2001:db8:2:{network:x}::{host:x}");
    assert_eq!(opened(&few), 40);
    let many = |network, host| format!("2001:db8:3:{:x}::{host:x}", network * 0x100);
    assert_eq!(opened(&many), 80);
    let v4 = |network: u16, host: u16| format!("203.0.113.{}", 1 + (network * 20 + host) % 250);
    assert_eq!(opened(&v4), 80);
    assert_eq!(gateway.side.endpoint.half_open(), 220);
    assert!(gateway.is_served("2001:db8:4::1"), "the next site");
    assert!(gateway.is_served("198.51.100.77"));
}

#[test]
fn the_largest_network_makes_room_when_places_go_fast() {
    let mut gateway = Gateway::new(|config| config.limits.half_open_max = 40);
    for site in 0..2 {
        for host in 0..20 {
            assert!(gateway.open(&format!("2001:db8:{site:x}::{host:x}")));
        }
    }
    assert!(gateway.is_served("203.0.113.1"), "of a network without any");
    assert_eq!(gateway.side.endpoint.half_open(), 39);
}

#[test]
fn refused_peers_keep_no_neighbour_out() {
    let mut gateway = Gateway::new(|_| {});
    for _ in 0..50 {
        let mut script = gateway.script("203.0.113.1");
        assert!(gateway.begin(&mut script));
        let refused = gateway.authenticate(&mut script, b"guess");
        assert_eq!(refused, Some(Some(NotifyType::AUTHENTICATION_FAILED)));
        assert_eq!(gateway.side.endpoint.half_open(), 0, "free at once");
    }
    assert!(gateway.is_served("203.0.113.1"), "behind the same NAT");
}

#[test]
fn guesses_of_a_key_stay_slow() {
    let mut gateway = Gateway::new(|_| {});
    let mut guesses = 0;
    for _ in 0..500 {
        let mut script = gateway.script("203.0.113.1");
        if gateway.begin(&mut script) {
            gateway.authenticate(&mut script, b"guess").unwrap();
            guesses += 1;
        }
    }
    assert_eq!(guesses, 210);
    assert_eq!(gateway.side.refused(Refusal::RefusedPerSource), 290);
    assert!(gateway.is_served("203.0.113.2"), "another address");
    gateway.wait(SECOND / 10);
    assert!(gateway.is_served("203.0.113.1"), "a neighbour");
    assert!(!gateway.open("203.0.113.1"), "ten times a second");
    gateway.wait(31 * SECOND);
    for _ in 0..20 {
        assert!(gateway.is_served("203.0.113.1"), "it is forgotten");
    }
}

/// IKE_SA_INIT tells of a NAT, so that IKE_AUTH may come from another address. The source of IKE_AUTH has proved
/// nothing.
#[test]
fn guesses_are_charged_to_the_address_that_was_answered() {
    let mut gateway = Gateway::new(|_| {});
    let (guesser, victim) = ("203.0.113.1", "198.51.100.77");
    let mut guesses = 0;
    for _ in 0..300 {
        let mut script = gateway.script(guesser);
        let payloads = script.init_payloads_behind_nat();
        if gateway.begin_with(&mut script, payloads) {
            script.local = format!("{victim}:4500").parse().unwrap();
            script.remote.set_port(4500);
            let refused = gateway.authenticate(&mut script, b"guess");
            assert_eq!(refused, Some(Some(NotifyType::AUTHENTICATION_FAILED)));
            guesses += 1;
        }
    }
    assert_eq!(guesses, 210, "of one address");
    assert!(!gateway.is_served(guesser));
    assert!(gateway.is_served(victim));
}

#[test]
fn the_last_replies_to_strangers_do_not_pile_up() {
    let mut gateway = Gateway::new(|config| config.limits.half_open_max = 30);
    let mut scripts = Vec::new();
    for site in 0..40u16 {
        let mut script = gateway.script(&format!("2001:db8:{site:x}::1"));
        assert!(gateway.begin(&mut script));
        let header = script.header(ExchangeType::IKE_AUTH, 1);
        let payloads = script.auth_payloads(b"guess");
        let request = script.seal(&header, &payloads);
        let answer = script.send(&mut gateway.side, gateway.now, &request);
        assert_eq!(answer.len(), 1);
        scripts.push((script, request, answer));
    }
    for (number, (script, request, answer)) in scripts.iter().enumerate() {
        let again = script.send(&mut gateway.side, gateway.now, request);
        assert_eq!(
            again == *answer,
            number >= 10,
            "{number}: the last 30 are kept"
        );
    }
    gateway.wait(60 * SECOND);
    assert_eq!(gateway.side.endpoint.poll_timeout(), None);
}

#[test]
fn silent_neighbours_make_room_after_a_while() {
    let mut gateway = Gateway::new(|_| {});
    let opened = (0..30).filter(|_| gateway.open("203.0.113.1")).count();
    assert_eq!(opened, 20);
    assert!(!gateway.open("203.0.113.1"), "a crowd that has just come");
    gateway.wait(6 * SECOND);
    assert!(gateway.is_served("203.0.113.1"));
}
