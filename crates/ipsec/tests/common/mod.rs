//! Two gateways that share no memory but the packets: what the tests of the packet path begin with.
#![allow(dead_code, reason = "every test binary uses another part")]

pub mod whole;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use esplanade_crypto::{
    Batch, CpuEngine, Engine, JobStatus, KeyContext, RejectReason, Rejected, Transform, cpu,
};
use esplanade_ipsec::Database;
use esplanade_ipsec::drop_reason::WalkCounters;
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, TrainLimits, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::{checksum, ip};

pub const LEFT: [&str; 2] = ["10.1.0.0/16", "2001:db8:1::/48"];
pub const RIGHT: [&str; 2] = ["10.2.0.0/16", "2001:db8:2::/48"];
pub const POLICY: PolicyId = PolicyId(7);
pub const ONE: TrainLimits = TrainLimits {
    segments: 1,
    bytes: 65_535,
};

pub fn prefix(text: &str) -> AddressRange {
    let (address, len) = text.split_once('/').expect("a prefix");
    let address: IpAddr = address.parse().expect("an address");
    AddressRange::from_prefix(address, len.parse().expect("a length")).expect("a valid length")
}

pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The selectors of a tunnel between two sites, for each IP version.
pub fn selectors(local: [&str; 2], remote: [&str; 2]) -> SelectorSet {
    let pair = |i: usize| Selector::between(prefix(local[i]), prefix(remote[i]));
    SelectorSet::new(vec![pair(0), pair(1)]).expect("two are not too many")
}

pub fn path() -> Path {
    Path {
        local: SocketAddr::new(address("192.0.2.1"), 4500),
        remote: SocketAddr::new(address("198.51.100.2"), 4500),
        udp_encap: true,
    }
}

pub fn facts() -> OuterFacts {
    OuterFacts::new(path().remote, true, 0)
}

pub fn key_material(transform: Transform) -> Vec<u8> {
    (0..transform.key_material_len())
        .map(|i| i as u8 ^ 0x5a)
        .collect()
}

/// The left end's parameters; the right end's selectors are turned round.
pub fn parameters(transform: Transform, esn: bool, spi: u32, key: &[u8]) -> SaParameters<'_> {
    SaParameters {
        esn,
        ..SaParameters::new(spi, POLICY, transform, key, selectors(LEFT, RIGHT), path())
    }
}

pub fn ipv4(source: &str, destination: &str, protocol: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (address(source), address(destination))
    else {
        panic!("IPv4 addresses are needed");
    };
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, tos];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 7, 0, 0, 63, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum::fold(checksum::sum(0, &packet));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

pub fn ipv6(source: &str, destination: &str, next: u8, class: u8, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (address(source), address(destination))
    else {
        panic!("IPv6 addresses are needed");
    };
    let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 63]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(payload);
    packet
}

/// A UDP packet from the left site to the right one.
pub fn inner(version: u8, payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![0x13, 0x88, 0x9c, 0x41];
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    match version {
        4 => ipv4("10.1.0.7", "10.2.0.9", ip::PROTOCOL_UDP, 0, &udp),
        _ => ipv6("2001:db8:1::7", "2001:db8:2::9", ip::PROTOCOL_UDP, 0, &udp),
    }
}

pub fn engine() -> CpuEngine {
    CpuEngine::new(8).expect("the self test passes")
}

/// One tunnel with its two ends: left seals, right opens.
pub struct Tunnel {
    pub policy: Arc<Policy>,
    pub spd: Spd,
    pub outbound: Outbound,
    pub outbound_sa: Arc<OutboundSa>,
    pub database: Database,
    pub inbound: Inbound,
    pub inbound_sa: Arc<InboundSa>,
    pub seal_engine: CpuEngine,
    pub open_engine: CpuEngine,
}

impl Tunnel {
    pub fn new(transform: Transform, esn: bool) -> Self {
        Self::with(transform, esn, |_| {})
    }

    /// With other parameters; `change` sees the left end's.
    pub fn with(transform: Transform, esn: bool, change: impl Fn(&mut SaParameters<'_>)) -> Self {
        let database = Database::new();
        let spi = database.sad().allocate_spi().expect("an empty SAD");
        let key = key_material(transform);
        let mut left = parameters(transform, esn, spi, &key);
        change(&mut left);
        let mut right = parameters(transform, esn, spi, &key);
        change(&mut right);
        right.selectors = selectors(RIGHT, LEFT);
        (right.path.local, right.path.remote) = (left.path.remote, left.path.local);
        right.path.remote = facts().remote;
        let outbound_sa = Arc::new(OutboundSa::new(left).expect("good keys"));
        let inbound_sa = Arc::new(InboundSa::new(right).expect("good keys"));
        database
            .sad()
            .insert(Arc::clone(&inbound_sa))
            .expect("allocated");
        let policy = Arc::new(Policy::new(POLICY, "site"));
        policy.install(Arc::clone(&outbound_sa));
        let spd = Spd::new(vec![Entry::new(
            selectors(LEFT, RIGHT),
            Action::Protect(Arc::clone(&policy)),
        )]);
        Self {
            policy,
            spd,
            outbound: Outbound::new(WalkLimits::default()),
            outbound_sa,
            database,
            inbound: Inbound::new(WalkLimits::default()),
            inbound_sa,
            seal_engine: engine(),
            open_engine: engine(),
        }
    }

    /// Publishes an SPD whose last entry protects IPv4 with another policy: a bundle's next one.
    #[allow(dead_code)]
    pub fn add_policy(&mut self, policy: Arc<Policy>) {
        let everything = prefix("0.0.0.0/0");
        let everything = SelectorSet::new(vec![Selector::between(everything, everything)]);
        let everything = everything.expect("one is not too many");
        let mut entries = self.spd.entries().to_vec();
        entries.push(Entry::new(everything, Action::Protect(policy)));
        self.spd = Spd::new(entries);
    }

    /// Seals packets of the left site; each ESP packet alone.
    pub fn seal(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for packet in packets {
            let _ = self
                .outbound
                .push(&self.spd, packet)
                .expect("room in the batch");
        }
        self.outbound
            .submit(&mut self.seal_engine)
            .expect("the engine takes it");
        let mut sealed = Vec::new();
        while let Some(batch) = self.outbound.poll(&mut self.seal_engine, &self.spd) {
            sealed.extend(batch.trains(ONE).map(|train| train.esp.to_vec()));
            self.outbound.recycle(batch);
        }
        sealed
    }

    /// Opens packets at the right site and gives what is delivered.
    pub fn open(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.open_from(packets, &facts())
    }

    pub fn open_from(&mut self, packets: &[Vec<u8>], facts: &OuterFacts) -> Vec<Vec<u8>> {
        for packet in packets {
            let _ = self.inbound.push_copy(self.database.sad(), packet, facts);
        }
        self.inbound
            .submit(&mut self.open_engine)
            .expect("the engine takes it");
        let mut opened = Vec::new();
        while let Some(batch) = self.inbound.poll(&mut self.open_engine) {
            opened.extend(batch.delivered().iter().map(|d| batch.packet(d).to_vec()));
            self.inbound.recycle(batch);
        }
        opened
    }
}

/// Drives the inbound walk with arbitrary bytes: as they are, aimed at the SA, and as the body of an authentic
/// packet, which reaches the trailer and the inner packet. A fuzz target can include this file and call it.
pub fn drive_inbound(tunnel: &mut Tunnel, data: &[u8]) {
    let sa = Arc::clone(&tunnel.inbound_sa);
    let transform = sa.common.transform();
    let sequence = sa.replay.top() + 1;
    let mut aimed = data.to_vec();
    if let Some(spi) = aimed.get_mut(..4) {
        spi.copy_from_slice(&sa.common.spi.to_be_bytes());
    }
    let mut authentic = sa.common.spi.to_be_bytes().to_vec();
    authentic.extend((sequence as u32).to_be_bytes());
    authentic.resize(8 + transform.iv_len(), 0x1f);
    authentic.extend(data);
    let body = (data.len().max(1)).next_multiple_of(transform.block_align());
    authentic.resize(8 + transform.iv_len() + body + transform.icv_len(), 0);
    let key = KeyContext::new(transform, sa.common.esn(), &key_material(transform));
    let key = key.expect("good keys");
    assert_eq!(cpu::seal(&key, sequence, &mut authentic), JobStatus::Done);
    for packet in tunnel.open(&[data.to_vec(), aimed, authentic]) {
        assert!(packet.len() <= data.len(), "more came out than went in");
    }
    assert!(
        sa.replay.top() >= sequence,
        "the authentic packet was not taken"
    );
    assert_reconciled(tunnel.inbound.counters());
}

/// Packets in must be packets out, bypassed or dropped.
pub fn assert_reconciled(counters: &WalkCounters) {
    use std::sync::atomic::Ordering::Relaxed;
    let accounted = counters.packets_out.load(Relaxed)
        + counters.packets_bypassed.load(Relaxed)
        + counters.drops.total();
    let taken = counters.packets_in.load(Relaxed) + counters.dummies.load(Relaxed);
    assert_eq!(taken, accounted, "{counters:?}");
}

/// Finishes only at every `period`-th poll, and then everything it holds, the last batch first.
pub struct SlowEngine {
    pub capacity: usize,
    pub period: usize,
    polls: usize,
    held: Vec<Batch>,
    finished: VecDeque<Batch>,
}

impl SlowEngine {
    pub fn new(capacity: usize, period: usize) -> Self {
        Self {
            capacity,
            period,
            polls: 0,
            held: Vec::new(),
            finished: VecDeque::new(),
        }
    }
}

impl Engine for SlowEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        if self.held.len() + self.finished.len() >= self.capacity {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        self.held.push(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.polls += 1;
        if self.polls.is_multiple_of(self.period) {
            self.held.iter_mut().rev().for_each(cpu::process);
            self.finished.extend(self.held.drain(..));
        }
        self.finished.pop_front()
    }
}

/// Takes nothing any more.
pub struct DeadEngine;

impl Engine for DeadEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        let reason = RejectReason::OutOfService;
        Err(Rejected { batch, reason })
    }

    fn poll(&mut self) -> Option<Batch> {
        None
    }
}
