//! Times the two walks without crypto, in core cycles: the cost of a packet from the arena to the engine and back.
//!
//! The benchmark prints one line of JSON per case. The engine only marks every job as done. A repetition times a few
//! bursts. It does not time the writing of the packets in between, which stands for the network card. The times are
//! scaled to core cycles by a chain of dependent instructions, timed before and after. A repetition during which the
//! clock changed does not count. The replay windows are as large as those of the gateway. Arguments: `--cases SUBSTRING`, `--repetitions N`.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::{Batch, Engine, JobStatus, Rejected, Transform};
use esplanade_ipsec::Database;
use esplanade_ipsec::inbound::{Inbound, ReceivedPacket};
use esplanade_ipsec::outbound::{
    ArenaPacket, HEADROOM, Outbound, Outcome, Segments, TAILROOM, TrainLimits, WalkLimits,
};
use esplanade_ipsec::pace::SHARED_WINDOW;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::{IpView, checksum};
use esplanade_testkit::clock::Watch;

const GCM: Transform = Transform::ESP[0];
/// The number of packets in a burst, and in a batch.
const BURST: usize = 128;
/// The number of packets that a read of 64 KiB is cut into.
const SEGMENTS: u32 = 44;
/// The number of bursts in a repetition.
const BURSTS: usize = 16;
const LOCAL: u32 = 0x0a00_0001;
const REMOTE: u32 = 0x6400_0000;
const EACH: TrainLimits = TrainLimits {
    segments: 64,
    bytes: 65_000,
};

/// An engine that marks every job as done.
#[derive(Default)]
struct NullEngine(Option<Batch>);

impl Engine for NullEngine {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        for job in &mut batch.jobs {
            job.status = JobStatus::Done;
        }
        self.0 = Some(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.0.take()
    }
}

/// The Splitmix64 generator. It yields the same order in every run.
struct Random(u64);

/// The order in which the SAs get packets: each of `n` SAs once, and then random SAs.
struct Order {
    begun: usize,
    n: usize,
    random: Random,
}

impl Order {
    fn new(n: usize) -> Self {
        let random = Random(1);
        Self {
            begun: 0,
            n,
            random,
        }
    }

    fn next(&mut self) -> usize {
        if self.begun < self.n {
            self.begun += 1;
            return self.begun - 1;
        }
        self.random.below(self.n)
    }
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as usize % n
    }
}

struct Case {
    direction: &'static str,
    sas: usize,
    policies: usize,
    len: usize,
}

impl Case {
    fn name(&self) -> String {
        let Self {
            direction,
            sas,
            policies,
            len,
        } = self;
        format!("{direction} {len} bytes {sas} SAs {policies} policies")
    }
}

fn host(bits: u32) -> AddressRange {
    AddressRange::host(v4(bits))
}

fn v4(bits: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(bits))
}

fn path() -> Path {
    Path {
        local: SocketAddr::new(v4(0xc000_0201), 4500),
        remote: SocketAddr::new(v4(0xc633_6402), 4500),
        udp_encap: true,
    }
}

fn parameters(spi: u32, policy: usize, key: &[u8], selector: Selector) -> SaParameters<'_> {
    let selectors = SelectorSet::new(vec![selector]).expect("one");
    let policy = PolicyId(policy as u32);
    SaParameters {
        esn: true,
        replay_window: SHARED_WINDOW,
        ..SaParameters::new(spi, policy, GCM, key, selectors, path())
    }
}

/// Makes an SPD in which remote host i has SA i. The policies share the hosts evenly. Policies without a host come
/// first and match nothing.
fn outbound_tables(sas: usize, policies: usize) -> Spd {
    let key = vec![7; GCM.key_material_len()];
    let each = sas.div_ceil(policies);
    let used = sas.div_ceil(each);
    let mut entries = Vec::new();
    for unused in 0..policies - used {
        let elsewhere = host(0x0b00_0000 + unused as u32);
        let set = SelectorSet::new(vec![Selector::between(elsewhere, elsewhere)]);
        entries.push(SpdEntry::new(set.expect("one"), Action::Discard));
    }
    for p in 0..used {
        let policy = Policy::new(PolicyId(p as u32), "bench");
        let hosts = p * each..sas.min((p + 1) * each);
        for i in hosts.clone() {
            let selector = Selector::between(host(LOCAL), host(REMOTE + i as u32));
            let sa = OutboundSa::new(parameters(0x1000 + i as u32, p, &key, selector));
            policy.install(Arc::new(sa.expect("a good key")));
        }
        let (first, last) = (REMOTE + hosts.start as u32, REMOTE + hosts.end as u32 - 1);
        let range = AddressRange::new(v4(first), v4(last)).expect("in order");
        let set = SelectorSet::new(vec![Selector::between(host(LOCAL), range)]);
        entries.push(SpdEntry::new(
            set.expect("one"),
            Action::Protect(Arc::new(policy)),
        ));
    }
    Spd::new(entries)
}

fn inbound_tables(sas: usize) -> (Database, Vec<u32>) {
    let key = vec![7; GCM.key_material_len()];
    let database = Database::new();
    let mut spis = Vec::with_capacity(sas);
    for i in 0..sas {
        let spi = database.sad().allocate_spi().expect("room");
        let selector = Selector::between(host(LOCAL), host(REMOTE + i as u32));
        let sa = InboundSa::new(parameters(spi, i, &key, selector)).expect("a good key");
        database.sad().insert(Arc::new(sa)).expect("allocated");
        spis.push(spi);
    }
    (database, spis)
}

/// Writes a UDP packet of `len` bytes.
fn write_inner(packet: &mut [u8], from: u32, to: u32) {
    let len = packet.len() as u16;
    let [high, low] = len.to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[12..16].copy_from_slice(&from.to_be_bytes());
    packet[16..20].copy_from_slice(&to.to_be_bytes());
    packet[20..24].copy_from_slice(&[0x12, 0x34, 0, 53]);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A walk, with packets to put through it.
trait Bench {
    /// Writes the packets of the next burst.
    fn fill(&mut self);
    /// Does the work that is timed. Returns the number of packets that came through.
    fn run(&mut self) -> usize;

    /// The number of packets in a burst.
    fn packets(&self) -> usize {
        BURST
    }
}

/// Seals the waiting packets. Returns their number.
fn send(walk: &mut Outbound, engine: &mut NullEngine, spd: &Spd) -> usize {
    let mut sent = 0;
    walk.submit(engine).expect("it takes all");
    while let Some(sealed) = walk.poll(engine, spd) {
        for train in sealed.trains(EACH) {
            sent += train.segments;
            black_box((train.esp.as_ptr(), train.meta));
        }
        walk.recycle(sealed);
    }
    sent
}

struct OutboundBench {
    walk: Outbound,
    engine: NullEngine,
    spd: Spd,
    order: Order,
    len: usize,
    packets: Vec<ArenaPacket>,
}

impl OutboundBench {
    fn new(case: &Case) -> Self {
        let slot = HEADROOM + case.len + TAILROOM;
        let slot = slot.next_multiple_of(64);
        let packets = (0..BURST).map(|i| ArenaPacket {
            slot_start: (i * slot) as u32,
            slot_end: ((i + 1) * slot) as u32,
            offset: (i * slot + HEADROOM) as u32,
            len: case.len as u32,
        });
        Self {
            walk: Outbound::new(limits()).with_flows(case.sas * 2),
            engine: NullEngine::default(),
            spd: outbound_tables(case.sas, case.policies),
            order: Order::new(case.sas),
            len: case.len,
            packets: packets.collect(),
        }
    }
}

impl Bench for OutboundBench {
    fn fill(&mut self) {
        let buffer = self.walk.receive_buffer().expect("a batch").bytes;
        for packet in &self.packets {
            let start = packet.offset as usize;
            let to = REMOTE + self.order.next() as u32;
            write_inner(&mut buffer[start..start + self.len], LOCAL, to);
        }
        let end = self.packets.last().map_or(0, |packet| packet.slot_end);
        assert!(self.walk.commit_received(end as usize));
    }

    fn run(&mut self) -> usize {
        self.walk.push_burst(&self.spd, &self.packets);
        send(&mut self.walk, &mut self.engine, &self.spd)
    }
}

/// The gateway's work for each read of a TUN device: it decides on the packet and cuts it into slots of the arena.
/// Reads of several segments have the form that the kernel gives them. The benchmark does not make their headers
/// anew.
struct ReadBench {
    walk: Outbound,
    engine: NullEngine,
    spd: Spd,
    order: Order,
    segments: Segments,
    reads: Vec<Vec<u8>>,
}

impl ReadBench {
    fn new(case: &Case, segments: u32) -> Self {
        let segments = Segments {
            count: segments,
            segment_len: case.len,
            last_len: case.len,
        };
        let reads = BURST / segments.count as usize;
        Self {
            walk: Outbound::new(limits()).with_flows(case.sas * 2),
            engine: NullEngine::default(),
            spd: outbound_tables(case.sas, case.policies),
            order: Order::new(case.sas),
            segments,
            reads: vec![vec![0; case.len * segments.count as usize]; reads],
        }
    }
}

impl Bench for ReadBench {
    fn fill(&mut self) {
        for read in &mut self.reads {
            let to = REMOTE + self.order.next() as u32;
            write_inner(read, LOCAL, to);
        }
    }

    fn packets(&self) -> usize {
        self.reads.len() * self.segments.count as usize
    }

    fn run(&mut self) -> usize {
        for read in &self.reads {
            let view = IpView::parse(read).expect("a packet");
            let decided = self.walk.decide(&self.spd, (read, &view), &self.segments);
            let Outcome::Protect(sa) = decided else {
                panic!("a packet was dropped");
            };
            let slots = self.walk.reserve(&sa, &view, &self.segments);
            let mut slots = slots.expect("room");
            let mut cut = read.chunks(self.segments.segment_len);
            while let (Some(slot), Some(segment)) = (slots.next_slot(), cut.next()) {
                slot.copy_from_slice(segment);
            }
        }
        send(&mut self.walk, &mut self.engine, &self.spd)
    }
}

struct InboundBench {
    walk: Inbound,
    engine: NullEngine,
    database: Database,
    spis: Vec<u32>,
    sequences: Vec<u64>,
    order: Order,
    len: usize,
    slot: usize,
    packets: Vec<ReceivedPacket>,
}

impl InboundBench {
    fn new(case: &Case) -> Self {
        let (database, spis) = inbound_tables(case.sas);
        let sealed = GCM.sealed_len(case.len);
        let slot = sealed.next_multiple_of(64) + 64;
        let packets = (0..BURST).map(|i| ReceivedPacket {
            offset: (i * slot) as u32,
            len: sealed as u32,
            facts: 0,
        });
        Self {
            walk: Inbound::new(limits()),
            engine: NullEngine::default(),
            database,
            sequences: vec![0; spis.len()],
            spis,
            order: Order::new(case.sas),
            len: case.len,
            slot,
            packets: packets.collect(),
        }
    }
}

impl Bench for InboundBench {
    fn fill(&mut self) {
        let buffer = self.walk.receive_buffer().expect("a batch").bytes;
        for packet in &self.packets {
            let sa = self.order.next();
            self.sequences[sa] += 1;
            let sequence = self.sequences[sa];
            let esp = &mut buffer[packet.offset as usize..][..packet.len as usize];
            esp[..4].copy_from_slice(&self.spis[sa].to_be_bytes());
            esp[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
            esp[8..16].copy_from_slice(&sequence.to_be_bytes());
            write_inner(&mut esp[16..16 + self.len], REMOTE + sa as u32, LOCAL);
            let icv = esp.len() - 16;
            let padding = icv - 16 - self.len - 2;
            for (i, byte) in esp[16 + self.len..icv - 2].iter_mut().enumerate() {
                *byte = i as u8 + 1;
            }
            esp[icv - 2..icv].copy_from_slice(&[padding as u8, 4]);
        }
        assert!(self.walk.commit_received(self.packets.len() * self.slot));
    }

    fn run(&mut self) -> usize {
        let facts = [OuterFacts::new(path().remote, true, 0)];
        let mut delivered = 0;
        let sad = self.database.sad();
        self.walk.push_burst(sad, &facts, &self.packets);
        self.walk.submit(&mut self.engine).expect("it takes all");
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

fn limits() -> WalkLimits {
    WalkLimits {
        buffer_len: 256 * 1024,
        jobs_max: BURST,
        batches_max: 1,
    }
}

/// The cycles per packet: the least, and the median.
fn measure(bench: &mut dyn Bench, repetitions: usize, warm_up: usize) -> (f64, f64, usize) {
    for _ in 0..warm_up {
        bench.fill();
        assert_eq!(bench.run(), bench.packets(), "a packet was dropped");
    }
    let clock = clock_ns();
    let mut cycles = Vec::new();
    let mut watch = Watch::start();
    for _ in 0..repetitions * 4 {
        let mut spent = 0.0;
        for _ in 0..BURSTS {
            bench.fill();
            let start = Instant::now();
            let done = black_box(bench.run());
            spent += start.elapsed().as_nanos() as f64 - clock;
            assert_eq!(done, bench.packets(), "a packet was dropped");
        }
        if let Some(cycle) = watch.lap() {
            cycles.push(spent / cycle / (bench.packets() * BURSTS) as f64);
        }
        if cycles.len() == repetitions {
            break;
        }
    }
    cycles.sort_unstable_by(f64::total_cmp);
    let median = cycles.get(cycles.len() / 2).copied();
    let least = cycles.first().copied();
    (
        least.unwrap_or(f64::NAN),
        median.unwrap_or(f64::NAN),
        cycles.len(),
    )
}

/// The cost in nanoseconds of reading the clock twice.
fn clock_ns() -> f64 {
    let least = (0..1000).map(|_| {
        let start = Instant::now();
        start.elapsed()
    });
    least.min().unwrap_or_default().as_nanos() as f64
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let case = |direction, sas, policies, len| Case {
        direction,
        sas,
        policies,
        len,
    };
    for len in [64, 576, 1446] {
        for policies in [1, 100, 10_000] {
            cases.push(case("outbound", 1, policies, len));
        }
        cases.push(case("inbound", 1, 1, len));
    }
    // In this case every run is one packet, and all data is in the nearest cache.
    cases.push(case("outbound", 32, 32, 64));
    cases.push(case("inbound", 32, 1, 64));
    for (sas, policies) in [
        (10_000, 100),
        (10_000, 10_000),
        (100_000, 10_000),
        (1_000_000, 10_000),
    ] {
        for len in [64, 576, 1446] {
            cases.push(case("outbound", sas, policies, len));
        }
    }
    for sas in [1, 10_000, 100_000] {
        for len in [64, 576, 1446] {
            cases.push(case("reads", sas, sas.min(10_000), len));
        }
        cases.push(case("super-segments", sas, sas.min(10_000), 1446));
    }
    for sas in [10_000, 100_000, 1_000_000] {
        for len in [64, 576, 1446] {
            cases.push(case("inbound", sas, 1, len));
        }
    }
    cases
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    let wanted = argument("--cases").unwrap_or_default();
    let repetitions = argument("--repetitions").and_then(|n| n.parse().ok());
    let repetitions = repetitions.unwrap_or(200);
    for case in cases() {
        if !case.name().contains(&wanted) {
            continue;
        }
        let mut bench: Box<dyn Bench> = match case.direction {
            "outbound" => Box::new(OutboundBench::new(&case)),
            "reads" => Box::new(ReadBench::new(&case, 1)),
            "super-segments" => Box::new(ReadBench::new(&case, SEGMENTS)),
            _ => Box::new(InboundBench::new(&case)),
        };
        // The warm-up brings every SA's flow into the cache.
        let warm_up = 64 + case.sas * 4 / BURST;
        let (least, median, used) = measure(bench.as_mut(), repetitions, warm_up);
        let Case {
            direction,
            sas,
            policies,
            len,
        } = case;
        println!(
            "{{\"bench\": \"walk\", \"direction\": \"{direction}\", \"bytes\": {len}, \"sas\": {sas}, \
             \"policies\": {policies}, \"window\": {SHARED_WINDOW}, \"cycles_min\": {least:.1}, \"cycles_median\": {median:.1}, \
             \"repetitions\": {used}}}"
        );
    }
}
