//! A branch and a hub on one link, where a test says what goes wrong and when.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use esplanade_ike::status::IkeSaState;
use esplanade_ike::wire::{ExchangeType, Header};
use esplanade_testkit::net::{Conditions, Datagram, Network};

use crate::config::{ADDRESSES, BRANCH, HUB, SITE};
use crate::gateway::{Gateway, HostOptions, NAT_T_PORT};
use crate::ledger::Ledger;

const SECOND: Duration = Duration::from_secs(1);
const HALF: Duration = Duration::from_millis(500);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The port outside of IKE without the NAT-T port.
const OUTSIDE_IKE: u16 = 1500;
const HOSTS: [[u8; 4]; 2] = [[10, 1, 0, 7], [10, 2, 0, 9]];
const STEPS_MAX: usize = 100_000;

/// The ports outside of the NAT-T port of the branch, for IKE and for ESP.
#[derive(Clone, Copy, Debug)]
struct Nat {
    ike: u16,
    esp: u16,
}

struct Site {
    start: Instant,
    now: Instant,
    gateways: [Gateway; 2],
    link: Network,
    nat: Option<Nat>,
    /// The IKE messages of this gateway are lost until then.
    mute: Option<(usize, Instant)>,
    ledger: Ledger,
    /// The IKE_SA_INIT requests on the link.
    inits: usize,
}

/// The IKE message in a datagram.
fn ike_of(datagram: &Datagram) -> Option<&[u8]> {
    match (datagram.from.port(), datagram.to.port()) {
        (500, _) | (_, 500) => Some(&datagram.payload),
        (NAT_T_PORT, _) | (_, NAT_T_PORT) => datagram.payload.strip_prefix(&[0; 4]),
        _ => None,
    }
}

/// The configuration of one end. `gateway`, `connection` and `child` are lines of these sections.
fn text(at: usize, [gateway, connection, child]: [&str; 3], nat: bool) -> String {
    let peer = 1 - at;
    let remote = match nat && at == HUB {
        true => "%any".to_owned(),
        false => ADDRESSES[peer].to_string(),
    };
    let [local_ts, remote_ts] = [at, peer].map(|end| ["10.1.0.0/16", "10.2.0.0/16"][end]);
    let start = ["start", "none"][at];
    format!(
        "gateway {{\n{gateway}\n}}\nconnections {{\n{SITE} {{\nlocal_addrs = {}\nremote_addrs = {remote}\n\
         proposals = aes128gcm16-prfsha256-x25519\n{connection}\n\
         local {{\nauth = psk\nid = {at}.example\n}}\nremote {{\nauth = psk\nid = {peer}.example\n}}\n\
         children {{\nnet {{\nlocal_ts = {local_ts}\nremote_ts = {remote_ts}\nesp_proposals = aes128gcm16\n\
         start_action = {start}\n{child}\n}}\n}}\n}}\n}}\n\
         secrets {{\nike {{\nid-1 = 0.example\nid-2 = 1.example\nsecret = \"a secret that both ends have\"\n}}\n}}\n",
        ADDRESSES[at]
    )
}

impl Site {
    /// Both ends, with the tunnel up.
    fn new(seed: u64, lines: [&str; 3], nat: Option<Nat>) -> Self {
        let now = Instant::now();
        let gateway = |at| {
            let options = HostOptions {
                address: ADDRESSES[at],
                seed: seed << 1 | at as u64,
                job_time: Duration::ZERO,
                path_mtu: None,
            };
            Gateway::start(&text(at, lines, nat.is_some()), options, now)
        };
        let mut site = Self {
            start: now,
            now,
            gateways: [gateway(BRANCH), gateway(HUB)],
            link: Network::new(Conditions::PERFECT, seed),
            nat,
            mute: None,
            ledger: Ledger::default(),
            inits: 0,
        };
        site.drain();
        site.pass(2 * SECOND);
        assert!(site.deliver_both(), "the tunnel is up");
        assert_eq!(site.inits, 1);
        site
    }

    fn at(&self) -> Duration {
        self.now - self.start
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..STEPS_MAX {
            let gateways = self.gateways.iter().map(Gateway::deadline);
            let next = gateways.chain(self.link.next_arrival()).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(datagram) = self.link.arrive(self.now) {
                self.arrive(datagram);
            }
            for gateway in &mut self.gateways {
                if gateway.deadline() <= self.now {
                    gateway.tick(self.now);
                }
            }
            self.drain();
        }
        panic!("the gateways do not come to rest");
    }

    /// Brings a datagram to the gateway behind its address, unless the NAT has no mapping for it.
    fn arrive(&mut self, mut datagram: Datagram) {
        if datagram.to.ip() == IpAddr::from(OUTSIDE) {
            let Some(nat) = self.nat else { return };
            let is_ike = datagram.payload.starts_with(&[0; 4]);
            let inside = match datagram.to.port() {
                OUTSIDE_IKE => 500,
                port if port == nat.ike && (is_ike || nat.esp == port) => NAT_T_PORT,
                port if port == nat.esp => NAT_T_PORT,
                _ => return,
            };
            datagram.to = SocketAddr::new(ADDRESSES[BRANCH].into(), inside);
        }
        let at = usize::from(datagram.to.ip() == IpAddr::from(ADDRESSES[HUB]));
        self.gateways[at].receive(&datagram, self.now);
        self.drain();
    }

    /// Takes what both gateways have sent and delivered.
    fn drain(&mut self) {
        for at in [BRANCH, HUB] {
            let output = self.gateways[at].take_output();
            assert!(output.bypassed.is_empty());
            for packet in output.written {
                self.ledger.deliver(at, &packet).unwrap();
            }
            for datagram in output.sent {
                self.transmit(at, datagram);
            }
        }
    }

    fn transmit(&mut self, at: usize, mut datagram: Datagram) {
        if let Some(message) = ike_of(&datagram) {
            let header = Header::decode(message);
            let is_init = header.is_ok_and(|header| {
                header.exchange == ExchangeType::IKE_SA_INIT && !header.response
            });
            self.inits += usize::from(is_init);
            if self
                .mute
                .is_some_and(|(of, until)| of == at && self.now < until)
            {
                return;
            }
        }
        if let Some(nat) = self.nat.filter(|_| at == BRANCH) {
            let port = match datagram.from.port() {
                500 => OUTSIDE_IKE,
                _ if datagram.payload.starts_with(&[0; 4]) => nat.ike,
                _ => nat.esp,
            };
            datagram.from = SocketAddr::new(OUTSIDE.into(), port);
        }
        self.link.send(self.now, datagram);
    }

    /// Sends one inner packet. Returns its number.
    fn send(&mut self, from: usize) -> usize {
        let ends = [from, 1 - from].map(|at| (at, HOSTS[at]));
        let (number, packet) = self.ledger.packet(ends[0], ends[1], 7000, 100);
        self.gateways[from].read(&[packet], self.now);
        self.drain();
        number
    }

    /// Sends a packet to the hub, and one back. Returns true if both come within half a second.
    fn deliver_both(&mut self) -> bool {
        [BRANCH, HUB].iter().all(|from| {
            let number = self.send(*from);
            self.pass(HALF / 2);
            self.ledger.is_delivered(number)
        })
    }

    fn rekey(&mut self, at: usize, child: Option<&str>) {
        let now = self.now;
        let command = self.gateways[at].command(now, |endpoint| endpoint.rekey(now, SITE, child));
        assert_eq!(command, Ok(1));
        self.drain();
    }

    fn states(&self, at: usize) -> Vec<IkeSaState> {
        let status = self.gateways[at].endpoint.status();
        status.iter().map(|sa| sa.state).collect()
    }

    /// Checks that the tunnel has never ended, and that nothing but it is left.
    fn assert_one_tunnel(&mut self, case: &str) {
        assert_eq!(self.inits, 1, "{case}: {:?}", self.at());
        for at in [BRANCH, HUB] {
            assert_eq!(self.states(at), [IkeSaState::Established], "{case}");
        }
        assert!(self.deliver_both(), "{case}");
    }
}

fn round_trip(trip: Duration) -> Conditions {
    Conditions {
        delay: trip / 2..trip / 2,
        ..Conditions::PERFECT
    }
}

/// Packets go to the hub in bursts, and none comes back.
#[test]
fn traffic_in_one_direction_costs_no_ike_sa() {
    for trip in [0, 30, 2000].map(Duration::from_millis) {
        for (burst, pause) in [(1, 0), (6, 60), (1, 70)] {
            let mut site = Site::new(1, ["", "", ""], None);
            site.link.conditions = round_trip(trip);
            for at in 0..600 {
                if at % (burst + pause) < burst {
                    site.send(BRANCH);
                }
                site.pass(HALF);
            }
            site.link.conditions = Conditions::PERFECT;
            site.pass(2 * SECOND);
            site.assert_one_tunnel(&format!("{trip:?}, {burst}, {pause}"));
        }
    }
}

#[test]
fn esp_is_answered_where_it_comes_from_whatever_the_port_of_ike() {
    let mut site = Site::new(
        2,
        ["", "", ""],
        Some(Nat {
            ike: 4500,
            esp: 4500,
        }),
    );
    // A port for both, ports of their own, and other ports of their own.
    for (ike, esp) in [(4501, 4501), (4501, 4600), (4502, 4601), (4503, 4503)] {
        site.nat = Some(Nat { ike, esp });
        for (round, at) in [BRANCH, BRANCH, HUB, BRANCH].into_iter().enumerate() {
            // The first packet shows where the branch is.
            site.send(BRANCH);
            site.pass(SECOND);
            for _ in 0..4 {
                assert!(site.deliver_both(), "{ike}, {esp}, round {round}");
            }
            site.rekey(at, if round == 1 { Some("net") } else { None });
            site.pass(SECOND);
            for _ in 0..4 {
                assert!(site.deliver_both(), "{ike}, {esp}, round {round}");
            }
        }
    }
    site.assert_one_tunnel("in the end");
}

/// IKE messages that left before the mapping changed come after ESP from the new one. ESP goes on.
#[test]
fn a_late_ike_message_takes_no_answers_away() {
    let mut site = Site::new(
        3,
        ["", "", ""],
        Some(Nat {
            ike: 4500,
            esp: 4500,
        }),
    );
    for port in 4501..4509 {
        site.link.conditions = round_trip(2 * SECOND);
        site.rekey(BRANCH, None);
        site.link.conditions = Conditions::PERFECT;
        site.nat = Some(Nat {
            ike: port,
            esp: port,
        });
        site.send(BRANCH);
        site.pass(SECOND / 4);
        assert!(site.deliver_both(), "{port}, before");
        site.pass(SECOND);
        assert!(site.deliver_both(), "{port}, after");
        site.pass(10 * SECOND);
    }
    site.assert_one_tunnel("in the end");
}

/// The hub answers the rekey of the branch, and the answers are lost for a while.
#[test]
fn a_rekey_whose_answers_are_lost_costs_no_tunnel() {
    for seconds in [3, 32, 60] {
        for (traffic, hub_rekeys) in [(true, false), (false, false), (true, true)] {
            let case = format!("{seconds} s, {traffic}, {hub_rekeys}");
            let mut site = Site::new(4, ["", "", ""], None);
            site.mute = Some((HUB, site.now + seconds * SECOND));
            site.rekey(BRANCH, None);
            for at in 0..300 {
                if traffic {
                    assert!(site.deliver_both(), "{case}: {:?}", site.at());
                }
                if hub_rekeys && at == 20 {
                    site.rekey(HUB, Some("net"));
                }
                site.pass(HALF);
            }
            site.assert_one_tunnel(&case);
        }
    }
}

/// Both ends rekey all the time, and the link loses much. Retransmissions go on for so long that none is in vain.
#[test]
fn loss_costs_no_tunnel() {
    let gateway = "retransmit_tries = 12\nretransmit_timeout = 1.0\nretransmit_base = 1.4";
    let connection = "rekey_time = 60s\nover_time = 300s";
    let child = "rekey_time = 45s\nlife_time = 400s\nrand_time = 10s";
    for seed in 0..8 {
        let mut site = Site::new(seed, [gateway, connection, child], None);
        site.link.conditions = Conditions {
            loss: 0.2,
            delay: Duration::from_millis(10)..Duration::from_millis(80),
            ..Conditions::PERFECT
        };
        for _ in 0..1200 {
            site.send(BRANCH);
            site.send(HUB);
            site.pass(HALF);
        }
        assert_eq!(site.inits, 1, "seed {seed}");
        site.link.conditions = Conditions::PERFECT;
        site.pass(20 * SECOND);
        assert!(site.deliver_both(), "seed {seed}");
        assert_eq!(site.inits, 1, "seed {seed}");
    }
}
