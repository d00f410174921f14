//! The whole path on one core: packets copied in from memory, policy, SA, sequence number, ESP, crypto, outer header.
//!
//! One tunnel SA without ESN and anti-replay, eight flows, the same eight packets again and again: what DPDK's
//! ipsec-secgw does when it is fed by its pcap driver. One line of JSON a case, in core cycles, a chain of instructions
//! that wait for each other being the clock. Nothing reads the packets that come out. Arguments: `--cases PARTS,OF,NAMES`,
//! `--samples N`, `--burst N`, `--tier NAME`; `--pcap FOLDER` writes the packets into files instead.

use std::hint::black_box;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::{CpuEngine, Tier, Transform};
use esplanade_ipsec::Database;
use esplanade_ipsec::inbound::{Inbound, Received};
use esplanade_ipsec::outbound::{HEADROOM, Outbound, Packet, TAILROOM, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::checksum;
use esplanade_testkit::clock::Watch;

const TRANSFORMS: [&str; 2] = ["AES_GCM_16_256", "AES_CBC_128/HMAC_SHA1_96"];
const LENGTHS: [usize; 2] = [64, 1400];
const FLOWS: usize = 8;
const HERE: [u8; 4] = [10, 1, 0, 1];
const THERE: [u8; 4] = [10, 2, 0, 1];
const GATEWAY: [u8; 4] = [172, 16, 1, 5];
const PEER: [u8; 4] = [172, 16, 2, 5];
const OUTER: usize = 20;
/// Bursts of a sample.
const BURSTS: usize = 32;

fn address(bytes: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(bytes))
}

fn net(bytes: [u8; 4]) -> AddressRange {
    let [a, b, ..] = bytes;
    let range = AddressRange::new(address([a, b, 0, 0]), address([a, b, 255, 255]));
    range.expect("in order")
}

/// bench/path.py makes the peer's keys in the same way.
fn material(transform: Transform) -> Vec<u8> {
    let len = transform.key_material_len();
    (0..len).map(|i| (i * 7 + 1) as u8).collect()
}

fn parameters(transform: Transform, spi: u32, key: &[u8], here: bool) -> SaParameters<'_> {
    let selectors = SelectorSet::new(vec![Selector::between(net(HERE), net(THERE))]);
    let (local, remote) = if here {
        (GATEWAY, PEER)
    } else {
        (PEER, GATEWAY)
    };
    let path = Path {
        local: SocketAddr::new(address(local), 500),
        remote: SocketAddr::new(address(remote), 500),
        udp_encap: false,
    };
    SaParameters {
        replay_window: 0,
        ..SaParameters::new(
            spi,
            PolicyId(1),
            transform,
            key,
            selectors.expect("one"),
            path,
        )
    }
}

/// A UDP packet of `len` bytes.
fn inner(len: usize, from: [u8; 4], to: [u8; 4], port: u16) -> Vec<u8> {
    let mut packet = vec![0; len];
    let [high, low] = (len as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&53u16.to_be_bytes());
    packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn flows(len: usize, from: [u8; 4], to: [u8; 4]) -> Vec<Vec<u8>> {
    (0..FLOWS)
        .map(|i| inner(len, from, to, 1000 + i as u16))
        .collect()
}

fn limits(burst: usize) -> WalkLimits {
    WalkLimits {
        buffer_len: 512 * 1024,
        jobs_max: burst,
        batches_max: 1,
    }
}

struct Case {
    inbound: bool,
    transform: Transform,
    len: usize,
}

impl Case {
    fn direction(&self) -> &'static str {
        if self.inbound { "inbound" } else { "outbound" }
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.direction(), self.transform, self.len)
    }
}

/// A walk and the packets that go through it.
trait Way {
    /// Copies a burst in, works on it, and gives how many packets came out.
    fn burst(&mut self) -> usize;
}

struct Out {
    walk: Outbound,
    engine: CpuEngine,
    spd: Spd,
    sources: Vec<Vec<u8>>,
    packets: Vec<Packet>,
    identification: u16,
}

impl Out {
    /// From `from` to `to`, through an SA with this SPI that the peer of an inbound SA has.
    fn new(case: &Case, spi: u32, burst: usize) -> Self {
        let key = material(case.transform);
        // What comes in here was sent by the other side.
        let (from, to) = if case.inbound {
            (THERE, HERE)
        } else {
            (HERE, THERE)
        };
        let selector = Selector::between(net(from), net(to));
        let selectors = || SelectorSet::new(vec![selector]).expect("one");
        let parameters = SaParameters {
            selectors: selectors(),
            ..parameters(case.transform, spi, &key, !case.inbound)
        };
        let policy = Policy::new(PolicyId(1), "bench");
        policy.install(Arc::new(OutboundSa::new(parameters).expect("a good key")));
        let entry = Entry::new(selectors(), Action::Protect(Arc::new(policy)));
        let slot = (HEADROOM + case.len + TAILROOM).next_multiple_of(64);
        let packets = (0..burst).map(|i| Packet {
            slot_start: (i * slot) as u32,
            slot_end: ((i + 1) * slot) as u32,
            offset: (i * slot + HEADROOM) as u32,
            len: case.len as u32,
        });
        Self {
            walk: Outbound::new(limits(burst)).with_flows(64),
            engine: CpuEngine::new(1).expect("the self-test passes"),
            spd: Spd::new(vec![entry]),
            sources: flows(case.len, from, to),
            packets: packets.collect(),
            identification: 0,
        }
    }

    fn frames(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let buffer = self.walk.receive_buffer().expect("a batch").bytes;
        let sources = self.sources.iter().cycle();
        for (packet, source) in self.packets.iter().zip(sources) {
            buffer[packet.offset as usize..][..source.len()].copy_from_slice(source);
        }
        let end = self.packets.last().map_or(0, |packet| packet.slot_end);
        assert!(self.walk.commit_received(end as usize));
        self.walk.push_burst(&self.spd, &self.packets);
        self.walk.submit(&mut self.engine).expect("it takes all");
        let mut sent = 0;
        while let Some(mut sealed) = self.walk.poll(&mut self.engine, &self.spd) {
            sealed.for_each_frame(&mut self.identification, |frame| {
                sent += 1;
                each(frame);
            });
            self.walk.recycle(sealed);
        }
        sent
    }
}

impl Way for Out {
    fn burst(&mut self) -> usize {
        self.frames(|frame| {
            black_box(frame.as_ptr());
        })
    }
}

struct In {
    walk: Inbound,
    engine: CpuEngine,
    database: Database,
    spi: u32,
    /// Outer header and ESP.
    sources: Vec<Vec<u8>>,
    packets: Vec<Received>,
    slot: usize,
}

impl In {
    fn new(case: &Case, burst: usize) -> Self {
        let key = material(case.transform);
        let database = Database::new();
        let spi = database.sad().allocate_spi().expect("room");
        let sa = InboundSa::new(parameters(case.transform, spi, &key, true));
        let sa = Arc::new(sa.expect("a good key"));
        database.sad().insert(sa).expect("allocated");
        let mut sources = Vec::new();
        let mut sender = Out::new(case, spi, FLOWS);
        sender.frames(|frame| sources.push(frame.to_vec()));
        let len = sources[0].len();
        let slot = len.next_multiple_of(64) + 64;
        let packets = (0..burst).map(|i| Received {
            offset: (i * slot + OUTER) as u32,
            len: (len - OUTER) as u32,
            facts: 0,
        });
        Self {
            walk: Inbound::new(limits(burst)),
            engine: CpuEngine::new(1).expect("the self-test passes"),
            database,
            spi,
            sources,
            packets: packets.collect(),
            slot,
        }
    }
}

impl Way for In {
    fn burst(&mut self) -> usize {
        let buffer = self.walk.receive_buffer().expect("a batch").bytes;
        let sources = self.sources.iter().cycle();
        for (packet, source) in self.packets.iter().zip(sources) {
            buffer[packet.offset as usize - OUTER..][..source.len()].copy_from_slice(source);
        }
        assert!(self.walk.commit_received(self.packets.len() * self.slot));
        let remote = SocketAddr::new(address(PEER), 0);
        let facts = [OuterFacts::new(remote, false, 0)];
        let sad = self.database.sad();
        self.walk.push_burst(sad, &facts, &self.packets);
        self.walk.submit(&mut self.engine).expect("it takes all");
        let mut delivered = 0;
        while let Some(opened) = self.walk.poll(&mut self.engine) {
            for packet in opened.delivered() {
                black_box(opened.packet(packet).as_ptr());
            }
            delivered += opened.delivered().len();
            self.walk.recycle(opened);
        }
        delivered
    }
}

fn way(case: &Case, burst: usize) -> Box<dyn Way> {
    if case.inbound {
        Box::new(In::new(case, burst))
    } else {
        Box::new(Out::new(case, 5, burst))
    }
}

/// Of each sample, in order of size: per packet.
struct Measured {
    cycles: Vec<f64>,
    ns: Vec<f64>,
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(way: &mut dyn Way, burst: usize, samples: usize) -> Measured {
    for _ in 0..64 {
        assert_eq!(way.burst(), burst, "a packet was dropped");
    }
    let (mut cycles, mut ns) = (Vec::new(), Vec::new());
    let mut watch = Watch::start();
    for _ in 0..samples * 4 {
        let start = Instant::now();
        for _ in 0..BURSTS {
            assert_eq!(way.burst(), burst, "a packet was dropped");
        }
        let spent = start.elapsed().as_nanos() as f64 / (burst * BURSTS) as f64;
        if let Some(cycle) = watch.lap() {
            cycles.push(spent / cycle);
            ns.push(spent);
        }
        if cycles.len() == samples {
            break;
        }
    }
    cycles.sort_unstable_by(f64::total_cmp);
    ns.sort_unstable_by(f64::total_cmp);
    Measured { cycles, ns }
}

/// The packets as Ethernet frames, for programs that take those.
fn write_pcap(case: &Case, folder: &str) -> std::io::Result<()> {
    let (spi, frames) = if case.inbound {
        let way = In::new(case, FLOWS);
        (way.spi, way.sources)
    } else {
        (5, flows(case.len, HERE, THERE))
    };
    let path = format!("{folder}/{}.pcap", case.name().replace([' ', '/'], "-"));
    let mut file = std::fs::File::create(&path)?;
    let words = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1];
    file.write_all(&words.map(u32::to_le_bytes).concat())?;
    for frame in frames {
        let len = frame.len() as u32 + 14;
        file.write_all(&[0, 0, len, len].map(u32::to_le_bytes).concat())?;
        file.write_all(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])?;
        file.write_all(&frame)?;
    }
    println!(
        "{{\"case\": \"{}\", \"pcap\": \"{path}\", \"spi\": {spi}}}",
        case.name()
    );
    Ok(())
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn number(name: &str, default: usize) -> usize {
    argument(name).map_or(default, |n| n.parse().expect("a number"))
}

fn main() {
    let wanted = argument("--cases").unwrap_or_default();
    let (burst, samples) = (number("--burst", 128), number("--samples", 60));
    if let Some(tier) = argument("--tier") {
        let tier: Tier = tier.parse().expect("a tier");
        tier.force().expect("this machine has it");
    }
    let mut cases = Vec::new();
    for inbound in [false, true] {
        for name in TRANSFORMS {
            for len in LENGTHS {
                let transform = Transform::from_name(name).expect("a transform");
                cases.push(Case {
                    inbound,
                    transform,
                    len,
                });
            }
        }
    }
    cases.retain(|case| wanted.split(',').any(|part| case.name().contains(part)));
    for case in cases {
        if let Some(folder) = argument("--pcap") {
            write_pcap(&case, &folder).expect("a folder to write to");
            continue;
        }
        let Measured { cycles, ns } = measure(way(&case, burst).as_mut(), burst, samples);
        let least = cycles.first().copied().unwrap_or(f64::NAN);
        let mpps = 1e3 / median(&ns);
        println!(
            "{{\"bench\": \"path\", \"case\": \"{}\", \"tier\": \"{}\", \"bytes\": {}, \"burst\": {burst}, \
             \"cycles_median\": {:.1}, \"cycles_min\": {least:.1}, \"samples\": {}, \"mpps\": {mpps:.3}, \
             \"gbit_s\": {:.2}}}",
            case.name(),
            Tier::current(),
            case.len,
            median(&cycles),
            cycles.len(),
            mpps * case.len as f64 * 8.0 / 1e3
        );
    }
}
