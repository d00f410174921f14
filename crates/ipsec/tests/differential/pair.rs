//! The two ends of a connection, each of them twice: the real one and the model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use esplanade_crypto::{Batch, Engine, Protocol, Rejected, Transform};
use esplanade_ipsec::drop_reason::WalkCounters;
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::lifetime::{LifetimeEvent, LifetimeLimits};
use esplanade_ipsec::outbound::{
    ArenaPacket, HEADROOM, Outbound, Outcome, TAILROOM, Train, TrainLimits, WalkLimits,
};
use esplanade_ipsec::replay::ReplayWindow;
use esplanade_ipsec::sa::{
    DscpSet, InboundSa, Mode, OutboundSa, Path, SaCommon, SaParameters, TfcPadding, TunnelOptions,
};
use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::{self, DfPolicy, DscpMap, DscpPolicy, EcnPolicy, OuterFacts};
use esplanade_ipsec::{Database, DropReason, Event};
use esplanade_testkit::model;

use super::cipher::{self, Keyed, not_random};

const LIMITS: WalkLimits = WalkLimits {
    buffer_len: 16 * 1024,
    jobs_max: 32,
    batches_max: 2,
};

/// The size of the flow cache. There are more flows, so that some are evicted.
const FLOWS: usize = 64;

/// The longest traffic flow confidentiality padding, in bytes.
pub const TFC_MAX: usize = 150;

/// The parameters that IKE would have agreed on, seen from the sender.
pub struct Agreed {
    pub policy: u32,
    pub transform: Transform,
    pub key: Vec<u8>,
    /// The same key, for the model.
    pub cipher: Keyed,
    pub options: model::SaOptions,
    pub first_sequence: u64,
    /// The number of packets by which the receiver's window is ahead of the sender, as if those packets had been
    /// lost.
    pub ahead: u64,
    pub replay_window: u32,
}

/// A packet on its way: its bytes as the model wrote them, and the address that it seems to come from.
pub type InFlight = (Vec<u8>, SocketAddr);

pub struct Sender {
    pub model: model::Gateway,
    outbound: Outbound,
    engine: Direct,
    spd: Spd,
    policies: BTreeMap<u32, Arc<Policy>>,
    /// All SAs that ever existed, the installed ones included.
    sas: Vec<Arc<OutboundSa>>,
    hard: BTreeSet<u32>,
    soft: BTreeSet<u32>,
    acquiring: BTreeSet<u32>,
}

pub struct Receiver {
    pub model: model::Gateway,
    inbound: Inbound,
    engine: Direct,
    database: &'static Database,
    sas: BTreeMap<u32, Arc<InboundSa>>,
    /// The addresses of the peers that moved, by SPI.
    peers: BTreeMap<u32, SocketAddr>,
    hard: BTreeSet<u32>,
    soft: BTreeSet<u32>,
}

/// The CPU engine without its self-test, which would take longer than a scenario.
#[derive(Default)]
struct Direct(VecDeque<Batch>);

impl Engine for Direct {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        cipher::process(&mut batch);
        self.0.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.0.pop_front()
    }
}

fn set(selectors: &[model::Selector]) -> SelectorSet {
    let ports = |ports: model::Ports| match ports {
        model::Ports::Any => PortRange::Any,
        model::Ports::Opaque => PortRange::Opaque,
        model::Ports::Range(first, last) => PortRange::Range(first, last),
    };
    let one = |s: &model::Selector| Selector {
        local: AddressRange::new(s.local.0, s.local.1).expect("in order"),
        remote: AddressRange::new(s.remote.0, s.remote.1).expect("in order"),
        protocol: match s.protocol {
            model::Protocol::Any => NextLayer::Any,
            model::Protocol::Opaque => NextLayer::Opaque,
            model::Protocol::Is(number) => NextLayer::Is(number),
        },
        local_ports: ports(s.local_ports),
        remote_ports: ports(s.remote_ports),
    };
    SelectorSet::new(selectors.iter().map(one).collect()).expect("few")
}

fn parameters<'a>(agreed: &'a Agreed, options: &model::SaOptions) -> SaParameters<'a> {
    let limits = options.limits;
    SaParameters {
        esn: options.esn,
        mode: match options.mode {
            model::Mode::Tunnel => Mode::Tunnel,
            model::Mode::Transport => Mode::Transport,
        },
        tunnel: TunnelOptions {
            df: match options.outer_df {
                None => DfPolicy::Copy,
                Some(true) => DfPolicy::Set,
                Some(false) => DfPolicy::Clear,
            },
            dscp: options.outer_dscp.map_or(DscpPolicy::Copy, |outer| {
                let into = |map: DscpMap, inner| map.with(inner, outer(inner));
                DscpPolicy::Map(Arc::new((0..64).fold(DscpMap::identity(), into)))
            }),
            ecn: match options.outer_ecn_clear {
                true => EcnPolicy::Clear,
                false => EcnPolicy::Copy,
            },
            dscp_from_outer: options.inner_dscp,
            ..TunnelOptions::default()
        },
        lifetime: LifetimeLimits {
            bytes_soft: limits.bytes_soft,
            bytes_hard: limits.bytes_hard,
            packets_soft: limits.packets_soft,
            packets_hard: limits.packets_hard,
            ..LifetimeLimits::default()
        },
        tfc: match options.tfc {
            0 => TfcPadding::None,
            len => TfcPadding::To(len as u16),
        },
        icmp_errors: match options.icmp_errors {
            model::IcmpErrors::Quoted => IcmpErrors::Quoted,
            model::IcmpErrors::Header => IcmpErrors::Header,
            model::IcmpErrors::Strict => IcmpErrors::Strict,
        },
        non_first_fragments: options.non_first_fragments,
        replay_window: agreed.replay_window,
        dscp: (0..64)
            .filter(|dscp| options.dscps >> dscp & 1 == 1)
            .collect::<DscpSet>(),
        ..SaParameters::new(
            options.spi,
            PolicyId(agreed.policy),
            agreed.transform,
            &agreed.key,
            set(&options.selectors),
            Path {
                local: options.path.local,
                remote: options.path.remote,
                udp_encap: options.path.udp,
            },
        )
    }
}

fn named(drops: impl Iterator<Item = (DropReason, u64)>) -> BTreeMap<model::Reason, u64> {
    let counted = drops.filter(|&(_, packets)| packets > 0);
    counted
        .map(|(reason, packets)| (reason.name(), packets))
        .collect()
}

fn check_counters(real: &WalkCounters, model: &model::PacketCounts) {
    let real = model::PacketCounts {
        packets_in: real.packets_in.load(Relaxed),
        packets_out: real.packets_out.load(Relaxed),
        packets_bypassed: real.packets_bypassed.load(Relaxed),
        drops: named(real.drops.iter()),
    };
    assert_eq!(&real, model);
    let accounted = real.packets_out + real.packets_bypassed + real.dropped();
    assert_eq!(real.packets_in, accounted, "packets went missing");
}

fn check_usage(real: &SaCommon, usage: model::Usage, drops: &BTreeMap<model::Reason, u64>) {
    let spi = real.spi;
    assert_eq!(
        real.lifetime.packets(),
        usage.packets,
        "packets of {spi:#x}"
    );
    assert_eq!(real.lifetime.bytes(), usage.bytes, "bytes of {spi:#x}");
    assert_eq!(&named(real.drops.iter()), drops, "drops of {spi:#x}");
}

fn check_limits(
    limits: &model::Limits,
    usage: model::Usage,
    exhausted: bool,
    (soft, hard): (bool, bool),
    spi: u32,
) {
    let hard_due = limits.hard_reached(usage) || exhausted;
    assert_eq!(
        hard, hard_due,
        "hard limit of {spi:#x}: {limits:?}, {usage:?}"
    );
    if limits.soft_reached(usage) && !hard_due {
        assert!(soft, "soft limit of {spi:#x}: {limits:?}, {usage:?}");
    }
}

impl Sender {
    pub fn new() -> Self {
        Self {
            model: model::Gateway::default(),
            outbound: Outbound::with_random(LIMITS, not_random, FLOWS),
            engine: Direct::default(),
            spd: Spd::default(),
            policies: BTreeMap::new(),
            sas: Vec::new(),
            hard: BTreeSet::new(),
            soft: BTreeSet::new(),
            acquiring: BTreeSet::new(),
        }
    }

    pub fn publish(&mut self, entries: Vec<model::Entry>) {
        let mut real = Vec::new();
        for entry in &entries {
            let action = match entry.action {
                model::EntryAction::Bypass => Action::Bypass,
                model::EntryAction::Discard => Action::Discard,
                model::EntryAction::Protect(id) => {
                    let policy = self.policies.entry(id);
                    let new = || Arc::new(Policy::new(PolicyId(id), "policy"));
                    Action::Protect(Arc::clone(policy.or_insert_with(new)))
                }
            };
            real.push(SpdEntry::new(set(&entry.selectors), action));
        }
        self.spd = Spd::new(real);
        self.model.policies = entries;
    }

    pub fn install(&mut self, agreed: &Agreed) {
        let options = &agreed.options;
        let sequence = SequenceAllocator::starting_at(agreed.first_sequence, options.esn);
        let sa = OutboundSa::with_sequence(parameters(agreed, options), sequence);
        let sa = Arc::new(sa.expect("good keys"));
        if let Some(policy) = self.policies.get(&agreed.policy) {
            policy.install(Arc::clone(&sa));
        }
        self.sas.push(sa);
        let sas = self.model.outbound.entry(agreed.policy).or_default();
        sas.retain(|old| {
            old.options.selectors != options.selectors || old.options.dscps != options.dscps
        });
        let first = agreed.first_sequence.max(1);
        sas.push(model::OutboundSa::new(
            options.clone(),
            Box::new(agreed.cipher.clone()),
            first,
        ));
        self.model
            .acquiring
            .retain(|&policy| policy != agreed.policy);
        self.acquiring.remove(&agreed.policy);
    }

    pub fn remove(&mut self, policy: u32, spi: u32) {
        if let Some(policy) = self.policies.get(&policy) {
            policy.remove(spi);
        }
        let sas = self.model.outbound.entry(policy).or_default();
        sas.retain(|sa| sa.options.spi != spi);
    }

    /// Sends packets one by one, or as a burst in place. Returns the packets that are on their way now.
    pub fn send(&mut self, burst: &[Vec<u8>], in_place: bool) -> Vec<Vec<u8>> {
        let outcomes: Vec<_> = burst.iter().map(|packet| self.model.send(packet)).collect();
        if in_place {
            self.push_burst(burst, &outcomes);
        } else {
            for (packet, outcome) in burst.iter().zip(&outcomes) {
                self.push(packet, outcome);
            }
        }
        let frames = outcomes.into_iter().filter_map(|outcome| match outcome {
            model::Outbound::Sealed { frame, .. } => Some(frame),
            _ => None,
        });
        let expected: Vec<_> = frames.collect();
        self.outbound
            .submit(&mut self.engine)
            .expect("an idle engine");
        let mut sealed = Vec::new();
        while let Some(batch) = self.outbound.poll(&mut self.engine, &self.spd) {
            let one = TrainLimits {
                segments: 1,
                bytes: 65_535,
            };
            for train in batch.trains(one) {
                sealed.push(train.frame.map_or_else(|| framed(&train), <[u8]>::to_vec));
            }
            self.outbound.recycle(batch);
        }
        assert_eq!(sealed.len(), expected.len(), "sealed packets");
        for (real, model) in sealed.iter().zip(&expected) {
            assert!(
                real == model,
                "{}, but the model: {}",
                hex(real),
                hex(model)
            );
        }
        self.check();
        expected
    }

    fn push(&mut self, packet: &[u8], outcome: &model::Outbound) {
        let real = self.outbound.push(&self.spd, packet).expect("room");
        match (&real, outcome) {
            (Outcome::Protect(sa), model::Outbound::Sealed { spi, .. }) => {
                assert_eq!(sa.common.spi, *spi);
            }
            (Outcome::Bypass, model::Outbound::Bypass) => {}
            (Outcome::Dropped(real), model::Outbound::Dropped(reason)) => {
                assert_eq!(real.name(), *reason, "{}", hex(packet));
            }
            (real, model) => panic!("{real:?}, but the model: {model:?}: {}", hex(packet)),
        }
    }

    /// Pushes a burst. Drops are compared by their counters.
    fn push_burst(&mut self, burst: &[Vec<u8>], outcomes: &[model::Outbound]) {
        let buffer = self.outbound.receive_buffer().expect("an empty batch");
        let (mut places, mut end) = (Vec::new(), 0);
        for packet in burst {
            let (offset, len) = (end + HEADROOM, packet.len());
            buffer.bytes[offset..offset + len].copy_from_slice(packet);
            let slot_end = offset + len + TAILROOM + TFC_MAX;
            let at = |within: usize| (buffer.offset + within) as u32;
            places.push(ArenaPacket {
                slot_start: at(end),
                slot_end: at(slot_end),
                offset: at(offset),
                len: len as u32,
            });
            end = slot_end;
        }
        assert!(self.outbound.commit_received(end));
        self.outbound.push_burst(&self.spd, &places);
        let bypassed: Vec<u32> = (0u32..)
            .zip(outcomes)
            .filter(|(_, outcome)| **outcome == model::Outbound::Bypass)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(self.outbound.bypassed(), bypassed);
    }

    fn check(&mut self) {
        for event in self.outbound.drain_events() {
            match event {
                Event::Acquire { policy, .. } => {
                    assert!(self.acquiring.insert(policy.0), "{policy:?} asks twice");
                }
                Event::Lifetime { spi, event, .. } => {
                    note(&mut self.soft, &mut self.hard, spi, event)
                }
                Event::PeerMoved { .. } | Event::UnknownSpi { .. } => {
                    panic!("an outbound SA has no peer that moves, nor an SPI of others")
                }
            }
        }
        let acquiring: BTreeSet<u32> = self.model.acquiring.iter().copied().collect();
        assert_eq!(self.acquiring, acquiring);
        check_counters(self.outbound.counters(), &self.model.outbound_counters);
        for sa in self.model.outbound.values().flatten() {
            let spi = sa.options.spi;
            let real = self.sas.iter().rfind(|real| real.common.spi == spi);
            let real = real.expect("installed in both");
            check_usage(&real.common, sa.usage, &sa.drops);
            // An SA that has expired may leave numbers unused.
            if !sa.options.limits.hard_reached(sa.usage) {
                assert_eq!(real.sequence.next(), sa.sequence, "next number of {spi:#x}");
            }
            let exhausted = sa.drops.contains_key("sequence-exhausted");
            let events = (self.soft.contains(&spi), self.hard.contains(&spi));
            check_limits(&sa.options.limits, sa.usage, exhausted, events, spi);
        }
    }
}

/// Makes the frame of a packet of ESP in tunnel mode, with its outer header.
fn framed(train: &Train<'_>) -> Vec<u8> {
    let mut frame = vec![0; train.meta.header_len()];
    frame.extend(train.esp);
    tunnel::write_outer(train.meta, 0, &mut frame).expect("room for headers");
    frame
}

fn note(soft: &mut BTreeSet<u32>, hard: &mut BTreeSet<u32>, spi: u32, event: LifetimeEvent) {
    let new = match event {
        LifetimeEvent::Soft => soft.insert(spi),
        LifetimeEvent::Hard => hard.insert(spi),
        LifetimeEvent::Idle => panic!("no SA has an idle limit"),
    };
    assert!(new, "{spi:#x} says {event:?} twice");
}

impl Drop for Receiver {
    /// Brings the database back to its former state.
    fn drop(&mut self) {
        for spi in self.model.inbound.keys() {
            self.database.sad().remove(*spi);
        }
    }
}

thread_local! {
    /// All scenarios share one database, because making one takes longer than most scenarios.
    static DATABASE: &'static Database = Box::leak(Box::new(Database::with_plain_spis()));
}

impl Receiver {
    pub fn new() -> Self {
        Self {
            model: model::Gateway::default(),
            inbound: Inbound::new(LIMITS),
            engine: Direct::default(),
            database: DATABASE.with(|database| *database),
            sas: BTreeMap::new(),
            peers: BTreeMap::new(),
            hard: BTreeSet::new(),
            soft: BTreeSet::new(),
        }
    }

    /// Installs the SA at both ends. Returns false if the SPI's slot is taken.
    pub fn install(&mut self, agreed: &Agreed, options: model::SaOptions) -> bool {
        if !self.database.sad().claim_spi(options.spi) {
            return false;
        }
        let last = if options.esn {
            u64::MAX - 1
        } else {
            u32::MAX.into()
        };
        let top = (agreed.first_sequence.max(1) - 1)
            .saturating_add(agreed.ahead)
            .min(last);
        let window = ReplayWindow::starting_at(top, agreed.replay_window, options.esn);
        let size = u64::from(window.size());
        let sa = InboundSa::with_replay(parameters(agreed, &options), window);
        let sa = Arc::new(sa.expect("good keys"));
        self.database
            .sad()
            .insert(Arc::clone(&sa))
            .expect("claimed");
        self.sas.insert(options.spi, sa);
        self.soft.remove(&options.spi);
        self.hard.remove(&options.spi);
        let replay = model::ReplaySet::starting_at(top, size, options.esn);
        let sa = model::InboundSa::new(options, Box::new(agreed.cipher.clone()), replay);
        self.model.inbound.insert(sa.options.spi, sa);
        true
    }

    pub fn remove(&mut self, spi: u32) {
        let removed = self.database.sad().remove(spi).is_some();
        assert_eq!(removed, self.model.inbound.remove(&spi).is_some());
    }

    /// Receives a burst. Returns the number of delivered packets.
    pub fn receive(&mut self, burst: &[InFlight]) -> usize {
        let outcomes = self.model.receive(burst);
        for ((frame, from), outcome) in burst.iter().zip(&outcomes) {
            let facts = facts(frame, *from);
            let pushed = self.inbound.push_copy(self.database.sad(), frame, &facts);
            if let Err(real) = pushed {
                let model = model::Inbound::Dropped(real.name());
                assert_eq!(*outcome, model, "{}", hex(frame));
            }
        }
        self.inbound
            .submit(&mut self.engine)
            .expect("an idle engine");
        let mut delivered = Vec::new();
        while let Some(batch) = self.inbound.poll(&mut self.engine) {
            let packets = batch.delivered().iter();
            delivered.extend(packets.map(|packet| batch.packet(packet).to_vec()));
            self.inbound.recycle(batch);
        }
        let expected = outcomes.iter().filter_map(|outcome| match outcome {
            model::Inbound::Delivered(packet) => Some(packet),
            model::Inbound::Dropped(_) => None,
        });
        if !expected.clone().eq(&delivered) {
            let hex = |packets: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<String> {
                packets.map(|packet| hex(packet)).collect()
            };
            let dropped: Vec<_> = burst
                .iter()
                .zip(&outcomes)
                .filter(|(_, outcome)| matches!(outcome, model::Inbound::Dropped(_)))
                .map(|((frame, _), outcome)| (hex(&mut [frame].into_iter()), outcome))
                .collect();
            let (real, model) = (hex(&mut delivered.iter()), hex(&mut expected.into_iter()));
            panic!("{real:#?}, but the model: {model:#?}; it drops {dropped:#?}");
        }
        self.check();
        delivered.len()
    }

    fn check(&mut self) {
        for event in self.inbound.drain_events() {
            match event {
                Event::Lifetime { spi, event, .. } => {
                    note(&mut self.soft, &mut self.hard, spi, event)
                }
                // A peer may move more than once in a burst.
                Event::UnknownSpi { .. } => {}
                Event::PeerMoved { spi, to, .. } => {
                    self.peers.insert(spi, to);
                }
                Event::Acquire { .. } => panic!("an inbound packet needs no SA"),
            }
        }
        check_counters(self.inbound.counters(), &self.model.inbound_counters);
        for (spi, sa) in &self.model.inbound {
            let real = &self.sas[spi];
            check_usage(&real.common, sa.usage, &sa.drops);
            assert_eq!(real.replay.top(), sa.replay.top, "window of {spi:#x}");
            let peer = self.peers.get(spi).copied();
            let peer = peer.unwrap_or(sa.options.path.remote);
            assert_eq!(peer, sa.seen_from, "peer of {spi:#x}");
            let events = (self.soft.contains(spi), self.hard.contains(spi));
            check_limits(&sa.options.limits, sa.usage, false, events, *spi);
        }
    }
}

/// The length of the IP header with its extensions, and of UDP, in front of ESP or AH.
pub fn header_len(frame: &[u8]) -> usize {
    let (mut protocol, mut at) = (frame[9], usize::from(frame[0] & 15) * 4);
    if frame[0] >> 4 == 6 {
        (protocol, at) = (frame[6], 40);
        while !matches!(protocol, 17 | 50 | 51) {
            (protocol, at) = (frame[at], at + 8 + usize::from(frame[at + 1]) * 8);
        }
    }
    at + if protocol == 17 { 8 } else { 0 }
}

/// The facts that a back end knows about the headers of a packet.
fn facts(frame: &[u8], from: SocketAddr) -> OuterFacts {
    let ip = model::Ip::parse(frame).expect("headers are not meddled with");
    OuterFacts {
        header_len: header_len(frame) as u16,
        protocol: match ip.protocol {
            51 => Protocol::Ah,
            _ => Protocol::Esp,
        },
        ..OuterFacts::new(from, ip.protocol == 17, ip.tos)
    }
}

pub fn other_address(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(_) => SocketAddr::new(IpAddr::from([203, 0, 113, 77]), 31_000),
        IpAddr::V6(_) => SocketAddr::new(IpAddr::from([0x20; 16]), 31_000),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
