//! Times the SPD's lookups: the first match among 1 to 10,000 policies with random traffic, and hits of the flow
//! cache.
//!
//! The benchmark prints one line of JSON per case. `cycles` are core cycles: a chain of dependent instructions, timed
//! beside the case, gives the clock.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Flow, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, FlowCache, FlowKey, Policy, PolicyId, Spd, SpdEntry};
use esplanade_testkit::clock::cycle_ns;

/// The Splitmix64 generator. It yields the same rules and traffic in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const FLOWS: usize = 1 << 14;
const ROUNDS: usize = 101;

fn v4(bits: u32) -> IpAddr {
    IpAddr::V4(bits.into())
}

fn v6(bits: u128) -> IpAddr {
    IpAddr::V6(bits.into())
}

fn prefix(address: IpAddr, len: u8) -> AddressRange {
    AddressRange::from_prefix(address, len).expect("a prefix length")
}

fn entry(selector: Selector, index: usize) -> SpdEntry {
    let set = SelectorSet::new(vec![selector]).expect("one");
    let policy = Policy::new(PolicyId(index as u32), "bench");
    SpdEntry::new(set, Action::Protect(Arc::new(policy)))
}

/// A set of rules, and traffic of which most packets match.
struct Case {
    name: &'static str,
    entries: fn(usize, &mut Random) -> Vec<Selector>,
}

/// The policies of an IPsec gateway: one subnet behind each peer, and one subnet of our own.
fn sites_v4(count: usize, random: &mut Random) -> Vec<Selector> {
    let local = prefix(v4(0x0a00_0000), 16);
    let mut subnets: Vec<u32> = (0..4 * count as u32)
        .map(|n| 0x0a01_0000 + (n << 8))
        .collect();
    let mut pick = || {
        let at = random.below(subnets.len() as u64) as usize;
        Selector::between(local, prefix(v4(subnets.swap_remove(at)), 24))
    };
    (0..count).map(|_| pick()).collect()
}

fn sites_v6(count: usize, random: &mut Random) -> Vec<Selector> {
    let subnet = |n: u64| v6(0xfd00 << 112 | u128::from(n) << 64);
    let local = prefix(subnet(0), 64);
    let mut pick = || Selector::between(local, prefix(subnet(1 + random.below(1 << 40)), 64));
    (0..count).map(|_| pick()).collect()
}

/// The rules of a packet filter: overlapping prefixes of all lengths, ports, protocols, and address ranges.
fn filter_v4(count: usize, random: &mut Random) -> Vec<Selector> {
    let addresses = |random: &mut Random| {
        let address = v4(0x0a00_0000 | random.next() as u32 & 0xff_ffff);
        match random.below(10) {
            0 => prefix(address, 0),
            1 => AddressRange::new(address, v4(0x0aff_ffff)).expect("in order"),
            2..6 => prefix(address, 24),
            6..9 => prefix(address, 16 + random.below(17) as u8),
            _ => prefix(address, 10 + random.below(14) as u8),
        }
    };
    let ports = |random: &mut Random| match random.below(4) {
        0 => {
            let port = [22, 53, 80, 123, 443, 5060][random.below(6) as usize];
            PortRange::Range(port, port)
        }
        1 => PortRange::Range(1024 + random.below(1000) as u16, 40_000),
        _ => PortRange::Any,
    };
    let mut rule = || {
        let (local, remote) = (addresses(random), addresses(random));
        let protocol = match random.below(3) {
            0 => NextLayer::Any,
            1 => NextLayer::Is(6),
            _ => NextLayer::Is(17),
        };
        match protocol {
            NextLayer::Any => Selector::between(local, remote),
            _ => Selector {
                protocol,
                local_ports: PortRange::Any,
                remote_ports: ports(random),
                ..Selector::between(local, remote)
            },
        }
    };
    (0..count).map(|_| rule()).collect()
}

/// Nested ranges: every range contains the next one, so that no lookup can leave a rule out.
fn nested_v4(count: usize, _: &mut Random) -> Vec<Selector> {
    let rule = |n: u32| {
        let range = AddressRange::new(v4(n), v4(4 * count as u32 - n)).expect("in order");
        Selector::between(range, range)
    };
    (0..count as u32).rev().map(rule).collect()
}

/// A mesh: every local subnet with every remote subnet. All rules share their addresses with many others.
fn mesh_v4(count: usize, random: &mut Random) -> Vec<Selector> {
    let side = count.isqrt() as u32;
    let subnet = |site: u32, n: u32| prefix(v4(site << 24 | n << 8), 24);
    let mut pairs: Vec<(u32, u32)> = (0..count as u32).map(|n| (n % side, n / side)).collect();
    let mut pick = || {
        let at = random.below(pairs.len() as u64) as usize;
        let (local, remote) = pairs.swap_remove(at);
        Selector::between(subnet(10, local), subnet(11, remote))
    };
    (0..count).map(|_| pick()).collect()
}

/// Hosts and small subnets that crowd in a few corners of the address space, each within a wider policy.
fn crowded_v4(count: usize, random: &mut Random) -> Vec<Selector> {
    let corners: Vec<u32> = (0..8).map(|_| random.next() as u32 & !0xffff).collect();
    let local = prefix(v4(0x0a00_0000), 16);
    let mut rule = |n: usize| {
        let corner = corners[random.below(8) as usize];
        match n * 8 < count * 7 {
            true => {
                let len = 26 + random.below(7) as u8;
                Selector::between(
                    local,
                    prefix(v4(corner | random.next() as u32 & 0xffff), len),
                )
            }
            false => {
                let len = 8 + random.below(17) as u8;
                Selector::between(
                    local,
                    prefix(v4(corner | random.next() as u32 & 0xffff), len),
                )
            }
        }
    };
    (0..count).map(&mut rule).collect()
}

fn inside(range: &AddressRange, random: &mut Random) -> IpAddr {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let span = u64::from(last.to_bits() - first.to_bits()) + 1;
            v4(first.to_bits() + random.below(span) as u32)
        }
        (IpAddr::V6(first), _) => v6(first.to_bits() | u128::from(random.next())),
        _ => range.first(),
    }
}

/// Makes traffic. Most packets match a rule that is chosen at random; one packet in ten comes from anywhere.
fn traffic(rules: &[Selector], random: &mut Random) -> Vec<Flow> {
    let mut flow = || {
        let rule = &rules[random.below(rules.len() as u64) as usize];
        let (local, mut remote) = (inside(&rule.local, random), inside(&rule.remote, random));
        if random.below(10) == 0 && remote.is_ipv4() {
            remote = v4(random.next() as u32);
        }
        let protocol = match rule.protocol {
            NextLayer::Is(protocol) => protocol,
            _ => 17,
        };
        let port = match rule.remote_ports {
            PortRange::Range(first, _) => first,
            _ => random.next() as u16,
        };
        Flow::new(local, remote, protocol, Some((random.next() as u16, port)))
    };
    (0..FLOWS).map(|_| flow()).collect()
}

/// The nanoseconds of the best and of the median round.
fn time(mut round: impl FnMut()) -> (f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[0], rounds[ROUNDS / 2])
}

/// The number of core cycles in a nanosecond, at the highest clock that was seen.
fn cycles_per_ns() -> f64 {
    let cycles = (0..ROUNDS).map(|_| cycle_ns());
    1.0 / cycles.fold(f64::MAX, f64::min)
}

fn report(case: &str, policies: usize, ns: (f64, f64), clock: f64, more: &str) {
    println!(
        "{{\"case\": \"{case}\", \"policies\": {policies}, \"ns\": {:.1}, \"ns_median\": {:.1}, \"cycles\": {:.0}{more}}}",
        ns.0,
        ns.1,
        ns.0 * clock
    );
}

fn classify(case: &Case, policies: usize, clock: f64) {
    let mut random = Random(policies as u64);
    let rules = (case.entries)(policies, &mut random);
    let entries: Vec<SpdEntry> = rules
        .iter()
        .zip(0..)
        .map(|(rule, i)| entry(*rule, i))
        .collect();
    let compiling = Instant::now();
    let spd = Spd::new(entries);
    let compile_ms = compiling.elapsed().as_secs_f64() * 1e3;
    let flows = traffic(&rules, &mut random);
    let per = |ns: (f64, f64)| (ns.0 / FLOWS as f64, ns.1 / FLOWS as f64);
    let lookups = per(time(|| {
        for flow in &flows {
            black_box(spd.inbound_bypass(black_box(flow)).is_ok());
        }
    }));
    let memory = spd.compiled_len();
    let more = format!(", \"compile_ms\": {compile_ms:.2}, \"compiled_bytes\": {memory}");
    report(case.name, policies, lookups, clock, &more);
}

fn sa(selectors: SelectorSet) -> Arc<OutboundSa> {
    let transform = Transform::ESP[0];
    let key = vec![7; transform.key_material_len()];
    let end = |text: &str| text.parse().expect("valid");
    let path = Path {
        local: end("192.0.2.1:0"),
        remote: end("192.0.2.2:0"),
        udp_encap: false,
    };
    let parameters = SaParameters::new(300, PolicyId(1), transform, &key, selectors, path);
    Arc::new(OutboundSa::new(parameters).expect("good keys"))
}

/// Times hits of the cache in the steps of the walk, over bursts of 64: hashes, then searches, then SAs.
fn cache_hits(flows: usize, clock: f64) {
    let mut random = Random(1);
    let rules = sites_v4(1000, &mut random);
    let entries: Vec<SpdEntry> = rules
        .iter()
        .zip(0..)
        .map(|(rule, i)| entry(*rule, i))
        .collect();
    for entry in &entries {
        if let Action::Protect(policy) = &entry.action {
            policy.install(sa(entry.selectors.clone()));
        }
    }
    let spd = Spd::new(entries);
    let chosen = traffic(&rules, &mut random);
    let chosen = chosen
        .iter()
        .filter(|flow| rules.iter().any(|rule| rule.matches(flow)));
    let keys = chosen.take(flows).filter_map(FlowKey::from_flow);
    let chosen: Vec<FlowKey> = keys.collect();
    let mut cache = FlowCache::new(4 * flows, [3, 5, 7, 11, 13, 17].map(|n| Random(n).next()));
    let mut order: Vec<u32> = (0..FLOWS)
        .map(|_| random.below(chosen.len() as u64) as u32)
        .collect();
    order.truncate(FLOWS / 64 * 64);
    let mut round = || {
        let mut keys = Vec::with_capacity(64);
        for burst in order.chunks(64) {
            cache.begin_burst(&spd, 0);
            keys.clear();
            for at in burst {
                let key = chosen[*at as usize];
                keys.push((key, cache.hash(&key)));
            }
            for (key, hash) in &keys {
                black_box(cache.find(&spd, key, *hash));
            }
        }
    };
    round();
    let ns = time(round);
    let per = order.len() as f64;
    let more = format!(", \"flows\": {}", chosen.len());
    report(
        "flow cache, v4 hit",
        1000,
        (ns.0 / per, ns.1 / per),
        clock,
        &more,
    );
}

fn main() {
    let clock = cycles_per_ns();
    println!("{{\"core_ghz\": {clock:.2}}}");
    let cases = [
        Case {
            name: "sites v4",
            entries: sites_v4,
        },
        Case {
            name: "sites v6",
            entries: sites_v6,
        },
        Case {
            name: "filter v4",
            entries: filter_v4,
        },
        Case {
            name: "mesh v4",
            entries: mesh_v4,
        },
        Case {
            name: "crowded v4",
            entries: crowded_v4,
        },
        Case {
            name: "nested v4 (worst case)",
            entries: nested_v4,
        },
    ];
    for case in &cases {
        for policies in [1, 10, 100, 1_000, 10_000] {
            classify(case, policies, clock);
        }
    }
    for flows in [1, 1_000, 50_000] {
        cache_hits(flows, clock);
    }
}
