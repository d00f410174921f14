//! The memory of gateways with many peers: what each configured connection takes, each tunnel that is up, and what a rekey
//! of all of them leaves. Two gateways without a host hold each other's tunnels, and an allocator counts their blocks.
//!
//! The bounds have a tenth of room above what was counted.

#[allow(dead_code)]
#[path = "simulation/gateway.rs"]
mod gateway;
#[allow(dead_code)]
#[path = "simulation/seen.rs"]
mod seen;

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use esplanade_testkit::counted::{CountedAllocator, bytes_in_use};

use gateway::{Gateway, HostOptions};

#[global_allocator]
static ALLOCATOR: CountedAllocator = CountedAllocator;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(172, 16, 1, 1), Ipv4Addr::new(172, 16, 1, 2)];
/// Two numbers of tunnels, for which hash tables are equally full. What both have is not counted.
const FEW: usize = 200;
const MANY: usize = 2 * FEW;
/// Longer than an SPI that was replaced receives, and than exchanges take.
const SETTLED: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(20);

/// Most bytes of a [`Cost`].
const CONFIGURED_MAX: usize = 7_300;
const UP_MAX: usize = 7_900;
/// Tables that had room for two SAs of each child keep that room.
const REKEY_MAX: usize = 500;

/// Bytes for each tunnel, at one of its ends.
#[derive(Debug)]
struct Cost {
    configured: usize,
    /// Beside what is configured.
    up: usize,
    /// The same after a rekey of all children.
    rekeyed: usize,
}

fn text(at: usize, tunnels: usize) -> String {
    let [local, remote] = [ADDRESSES[at], ADDRESSES[1 - at]];
    let start = ["start", "none"][at];
    let mut text = String::from("connections {\n");
    for n in 0..tunnels {
        let nets = [10, 20].map(|first| format!("{first}.{}.{}.0/28", n / 256, n % 256));
        let [own, theirs] = [&nets[at], &nets[1 - at]];
        write!(
            text,
            "c{n} {{\nlocal_addrs = {local}\nremote_addrs = {remote}\n\
             proposals = aes128gcm16-prfsha256-x25519\n\
             local {{\nauth = psk\nid = {at}-{n}.example\n}}\n\
             remote {{\nauth = psk\nid = {}-{n}.example\n}}\n\
             children {{\nk{n} {{\nlocal_ts = {own}\nremote_ts = {theirs}\nesp_proposals = aes128gcm16\n\
             start_action = {start}\nrekey_time = 0s\nlife_time = 0s\n}}\n}}\n}}\n",
            1 - at
        )
        .unwrap();
    }
    text + "}\nsecrets {\nike {\nsecret = \"a secret that all ends have\"\n}\n}\n"
}

struct Ends {
    now: Instant,
    gateways: [Gateway; 2],
}

impl Ends {
    fn new(tunnels: usize) -> Self {
        let now = Instant::now();
        let gateways = [0, 1].map(|at| {
            let options = HostOptions {
                address: ADDRESSES[at],
                seed: at as u64,
                job_time: Duration::ZERO,
                path_mtu: None,
            };
            Gateway::start(&text(at, tunnels), options, now)
        });
        Self { now, gateways }
    }

    /// Lets both ends do what is due, and brings their datagrams, until neither has anything for the other.
    fn exchange(&mut self) {
        loop {
            let mut is_quiet = true;
            for at in [0, 1] {
                while self.gateways[at].deadline() <= self.now {
                    self.gateways[at].tick(self.now);
                }
                for datagram in self.gateways[at].take_output().sent {
                    is_quiet = false;
                    assert_eq!(datagram.to.ip(), IpAddr::from(ADDRESSES[1 - at]));
                    self.gateways[1 - at].receive(&datagram, self.now);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            let due = self.gateways.iter().map(Gateway::deadline).min().unwrap();
            self.now = due.max(self.now + STEP).min(until);
            self.exchange();
        }
    }

    fn up(&self) -> usize {
        let of_ends = self.gateways.iter();
        let up = of_ends.map(|one| {
            let status = one.endpoint.status();
            status.iter().map(|sa| sa.children.len()).sum()
        });
        up.min().unwrap()
    }
}

/// Returns the bytes that both ends take with so many tunnels: configured, up, and after a rekey.
fn bytes(tunnels: usize) -> [usize; 3] {
    let before = bytes_in_use();
    let taken = |ends: &mut Ends| {
        for gateway in &mut ends.gateways {
            // The harness remembers the keys of each SA.
            gateway.newest = Vec::new();
            gateway.loaded.forget_text();
        }
        bytes_in_use() - before
    };
    let mut ends = Ends::new(tunnels);
    let configured = taken(&mut ends);
    for _ in 0..600 {
        ends.exchange();
        if ends.up() == tunnels {
            break;
        }
        ends.pass(Duration::from_secs(1));
    }
    assert_eq!(ends.up(), tunnels);
    ends.pass(SETTLED);
    let up = taken(&mut ends);
    for n in 0..tunnels {
        let now = ends.now;
        let (connection, child) = (format!("c{n}"), format!("k{n}"));
        let rekey =
            |endpoint: &mut esplanade_ike::Endpoint| endpoint.rekey(now, &connection, Some(&child));
        assert_eq!(ends.gateways[0].command(now, rekey), Ok(1));
        ends.exchange();
    }
    ends.pass(SETTLED);
    assert_eq!(ends.up(), tunnels);
    [configured, up, taken(&mut ends)]
}

fn cost() -> Cost {
    let (few, many) = (bytes(FEW), bytes(MANY));
    let of_one = |at: usize| (many[at] - few[at]) / (MANY - FEW) / 2;
    let [configured, up, rekeyed] = [0, 1, 2].map(of_one);
    Cost {
        configured,
        up: up - configured,
        rekeyed: rekeyed - configured,
    }
}

#[test]
fn ten_thousand_tunnels_take_little_memory() {
    let cost = cost();
    assert!(cost.configured <= CONFIGURED_MAX, "{cost:?}");
    assert!(cost.up <= UP_MAX, "{cost:?}");
    assert!(cost.rekeyed <= UP_MAX + REKEY_MAX, "{cost:?}");
}
