//! Fuzzes both walks of the packet path together: SAs of every kind, that come and go while packets of every shape are
//! sealed, lost, changed and opened.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use esplanade::dataplane::mss;
use esplanade_crypto::Transform;
use esplanade_ipsec::Event;
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::outbound::{
    ArenaPacket, HEADROOM, Outcome, ReserveRefused, Segments, TAILROOM,
};
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::sa::{DscpSet, InboundSa, Mode, OutboundSa, SaParameters, TfcPadding};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::{DfPolicy, DscpPolicy, EcnPolicy, FlowLabelPolicy};
use esplanade_ipsec::wire::icmp::{self, IcmpProblem};
use esplanade_ipsec::wire::{IpView, ah};

use crate::endpoint::Script;
use crate::esp::common::whole::{ends, facts_of, flush};
use crate::esp::common::{
    LEFT, RIGHT, Tunnel, assert_reconciled, inner, ipv4, ipv6, key_material, parameters, prefix,
    selectors,
};

const STEPS_MAX: usize = 40;
const PACKETS_MAX: usize = 40;
const SAS_MAX: usize = 6;

/// The choices that hold for all SAs of an input.
#[derive(Clone, Copy)]
struct Options([u8; 4]);

impl Options {
    fn has(self, byte: usize, bit: u8) -> bool {
        self.0[byte] & (1 << bit) != 0
    }

    /// Changes the parameters of either end.
    fn change(self, p: &mut SaParameters<'_>) {
        let part = |byte: usize, shift: u8, len: usize| usize::from(self.0[byte] >> shift) % len;
        p.mode = if self.has(0, 0) {
            Mode::Transport
        } else {
            Mode::Tunnel
        };
        p.path = ends(if self.has(0, 1) { 6 } else { 4 }, self.has(0, 2));
        p.tunnel.df = [DfPolicy::Copy, DfPolicy::Set, DfPolicy::Clear][part(0, 3, 3)];
        p.tunnel.ecn = if self.has(0, 5) {
            EcnPolicy::Clear
        } else {
            EcnPolicy::Copy
        };
        p.tunnel.flow_label = [
            FlowLabelPolicy::Zero,
            FlowLabelPolicy::Copy,
            FlowLabelPolicy::Hash,
        ][part(0, 6, 3)];
        p.tunnel.ttl = NonZeroU8::new(if self.has(1, 0) { 9 } else { 0 });
        p.tunnel.dscp_from_outer = self.has(1, 1);
        p.tunnel.dscp = if self.has(1, 2) {
            DscpPolicy::fixed(46)
        } else {
            DscpPolicy::Copy
        };
        p.tfc = [TfcPadding::None, TfcPadding::To(300), TfcPadding::None][part(1, 3, 3)];
        p.icmp_errors = [IcmpErrors::Quoted, IcmpErrors::Header, IcmpErrors::Strict][part(1, 5, 3)];
        p.non_first_fragments = self.has(1, 7);
        p.replay_window = [64, 0, 1024, 32][part(2, 0, 4)];
        p.peer_replay_window = [32, 64, 8192, 0][part(2, 2, 4)];
        p.class = [None, Some(3), Some(7), None][part(2, 4, 4)];
        if self.has(2, 6) {
            p.dscp = DscpSet::EMPTY.with(0).with(46);
        }
        if self.has(2, 7) {
            p.interface = 7;
        }
        if self.has(3, 0) {
            p.lifetime = LifetimeLimits {
                packets_soft: Some(3),
                packets_hard: Some(6),
                bytes_soft: Some(400),
                ..LifetimeLimits::default()
            };
        }
        if self.has(3, 1) {
            p.lifetime.time_soft_ms = Some(1000);
            p.lifetime.time_hard_ms = Some(5000);
            p.lifetime.idle_ms = Some(700);
        }
        let narrow = |text: &str| Selector {
            protocol: esplanade_ipsec::selector::NextLayer::Is(17),
            ..Selector::between(
                prefix(text),
                prefix(if text == LEFT[0] { RIGHT[0] } else { LEFT[0] }),
            )
        };
        if self.has(3, 2) {
            p.selectors = SelectorSet::new(vec![narrow(LEFT[0])]).expect("one");
        }
    }
}

struct Run {
    tunnel: Tunnel,
    options: Options,
    transform: Transform,
    esn: bool,
    now_ms: u64,
    in_flight: Vec<Vec<u8>>,
    /// Inbound SAs whose outbound halves are in use already.
    awaited: Vec<Arc<InboundSa>>,
    sas: Vec<Arc<OutboundSa>>,
    mtus: PathMtus,
}

/// Byte 0 chooses the transform and the sequence numbers, and four bytes the options of the SAs. Then steps follow.
pub fn tunnels(data: &[u8]) {
    let Some((&[pick, options @ ..], rest)) = data.split_first_chunk::<5>() else {
        return;
    };
    let transforms = crate::transforms();
    let transform = transforms[usize::from(pick >> 1) % transforms.len()];
    let (esn, options) = (pick & 1 != 0, Options(options));
    let tunnel = Tunnel::with(transform, esn, |p| options.change(p));
    let mut run = Run {
        sas: vec![tunnel.outbound_sa.clone()],
        tunnel,
        options,
        transform,
        esn,
        now_ms: 0,
        in_flight: Vec::new(),
        awaited: Vec::new(),
        mtus: PathMtus::new(4),
    };
    let mut script = Script(rest);
    for _ in 0..STEPS_MAX {
        let Some(step) = script.byte() else { break };
        run.step(step, &mut script);
        run.in_flight.truncate(PACKETS_MAX);
    }
    run.deliver(false);
    run.follow();
    run.look();
}

impl Run {
    /// Runs one step. The low four bits give the action, and the high bits are its parameter.
    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let parameter = step >> 4;
        match step & 15 {
            0 => {
                let packets = packets(parameter, script);
                for packet in &packets {
                    let _ = self.tunnel.outbound.push(&self.tunnel.spd, packet);
                }
                self.collect();
            }
            1 => {
                let packets = packets(parameter, script);
                self.burst(&packets);
            }
            2 => self.deliver(parameter & 1 != 0),
            3 => self.change(parameter, script),
            4 => self.install(parameter),
            5 => self.remove(parameter),
            6 => self.follow(),
            7 => self.pass_time(parameter),
            8 => self.policies(parameter),
            9 => {
                let len = usize::from(script.next()) * 8;
                if let Some(sa) = self.sas.last() {
                    let _ = self.tunnel.outbound.push_dummy(&sa.clone(), len);
                }
                self.collect();
            }
            10 => self.reserve(parameter, script),
            11 => self.errors(parameter, script),
            12 => self.nest(parameter),
            13 => self.in_flight.clear(),
            14 => {
                let len = usize::from(script.next());
                self.in_flight.push(script.bytes(len).to_vec());
            }
            _ => self.look(),
        }
    }

    /// Takes what is sealed into flight.
    fn collect(&mut self) {
        self.in_flight.extend(flush(&mut self.tunnel));
    }

    /// Packets that lie in the arena.
    fn burst(&mut self, packets: &[Vec<u8>]) {
        let Some(buffer) = self.tunnel.outbound.receive_buffer() else {
            return;
        };
        let (mut end, mut places) = (0, Vec::new());
        for packet in packets {
            let at = end + HEADROOM;
            let Some(place) = buffer.bytes.get_mut(at..at + packet.len()) else {
                break;
            };
            place.copy_from_slice(packet);
            let offset = buffer.offset + at;
            places.push(ArenaPacket {
                slot_start: (offset - HEADROOM) as u32,
                slot_end: (offset + packet.len() + TAILROOM) as u32,
                offset: offset as u32,
                len: packet.len() as u32,
            });
            end = at + packet.len() + TAILROOM;
        }
        if self.tunnel.outbound.commit_received(end) {
            self.tunnel.outbound.push_burst(&self.tunnel.spd, &places);
        }
        let _ = self.tunnel.outbound.bypassed().len();
        self.collect();
    }

    /// Opens what is in flight, packet by packet, or the last one first.
    fn deliver(&mut self, reversed: bool) {
        let mut frames = std::mem::take(&mut self.in_flight);
        if reversed {
            frames.reverse();
        }
        for frame in frames {
            let is_ipsec = IpView::parse(&frame)
                .is_ok_and(|view| matches!(view.protocol, 17 | 50 | 51) && !view.fragment);
            let facts = match is_ipsec {
                true => facts_of(&frame),
                false => crate::esp::common::facts(),
            };
            let sad = self.tunnel.database.sad();
            let _ = self.tunnel.inbound.push_copy(sad, &frame, &facts);
        }
        self.open();
    }

    fn open(&mut self) {
        let Tunnel {
            inbound,
            database,
            open_engine,
            ..
        } = &mut self.tunnel;
        while inbound.waiting() > 0 {
            inbound.submit(open_engine).expect("it takes all");
            while let Some(mut opened) = inbound.poll(open_engine) {
                for delivered in opened.delivered() {
                    let packet = opened.packet(delivered);
                    assert!(IpView::parse(packet).is_ok(), "{packet:02x?}");
                }
                inbound.push_nested(database.sad(), &mut opened);
                inbound.recycle(opened);
            }
        }
        // Packets that wait for their SA are counted, and not yet delivered or dropped.
        if self.awaited.is_empty() {
            assert_reconciled(inbound.counters());
        }
    }

    /// Changes, copies or loses a packet in flight.
    fn change(&mut self, parameter: u8, script: &mut Script<'_>) {
        let (at, value) = (usize::from(script.next()), script.next());
        let count = self.in_flight.len();
        let Some(frame) = self
            .in_flight
            .get_mut(usize::from(parameter >> 2) % count.max(1))
        else {
            return;
        };
        let copy = frame.clone();
        match parameter & 3 {
            0 => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= value;
                }
            }
            1 => frame.truncate(at),
            2 => self.in_flight.push(copy),
            _ => self.in_flight.reverse(),
        }
    }

    /// Installs another SA. Its inbound half can come later.
    fn install(&mut self, parameter: u8) {
        if self.sas.len() >= SAS_MAX {
            return;
        }
        let Some(spi) = self.tunnel.database.sad().allocate_spi() else {
            return;
        };
        let key = key_material(self.transform);
        let options = self.options;
        let mut left = parameters(self.transform, self.esn, spi, &key);
        let mut right = parameters(self.transform, self.esn, spi, &key);
        options.change(&mut left);
        options.change(&mut right);
        right.selectors = selectors(RIGHT, LEFT);
        (right.path.local, right.path.remote) = (left.path.remote, left.path.local);
        if parameter & 2 != 0 {
            left.dscp = DscpSet::EMPTY.with(10);
        }
        let outbound = Arc::new(OutboundSa::new(left).expect("good keys"));
        let inbound = Arc::new(InboundSa::new(right).expect("good keys"));
        self.tunnel.policy.install(outbound.clone());
        self.tunnel.policy.acquire_done();
        self.sas.push(outbound);
        match parameter & 1 {
            0 => self
                .tunnel
                .database
                .sad()
                .insert(inbound)
                .expect("allocated"),
            _ => self.awaited.push(inbound),
        }
    }

    fn remove(&mut self, parameter: u8) {
        let at = usize::from(parameter >> 1) % self.sas.len().max(1);
        if self.sas.is_empty() {
            return;
        }
        let sa = self.sas.remove(at);
        match parameter & 1 {
            0 => drop(self.tunnel.policy.remove(sa.common.spi)),
            _ => {
                self.tunnel.policy.retire(&sa);
                self.tunnel.policy.let_go();
            }
        }
        let _ = self.tunnel.database.sad().remove(sa.common.spi);
    }

    /// The SAs have come that packets wait for.
    fn follow(&mut self) {
        for sa in self.awaited.drain(..) {
            let _ = self.tunnel.database.sad().insert(sa);
        }
        let Tunnel {
            inbound, database, ..
        } = &mut self.tunnel;
        for early in inbound.take_early(database.sad()) {
            let _ = inbound.push_early(database.sad(), &early);
        }
        self.open();
    }

    fn pass_time(&mut self, parameter: u8) {
        self.now_ms += 10 << parameter;
        self.tunnel.outbound.set_now_ms(self.now_ms);
        self.tunnel.inbound.set_now_ms(self.now_ms);
        for sa in &self.sas {
            let _ = sa.common.lifetime.poll(self.now_ms);
        }
        self.tunnel.outbound.sweep_flows(4);
    }

    /// Publishes other policies in front of the tunnel's.
    fn policies(&mut self, parameter: u8) {
        let mut entries = self.tunnel.spd.entries().to_vec();
        let hosts = [
            "10.1.0.0/24",
            "10.2.0.0/24",
            "10.1.0.7/32",
            "2001:db8:1::/64",
        ];
        let range = prefix(hosts[usize::from(parameter & 3)]);
        let everything = prefix(if parameter & 3 == 3 {
            "::/0"
        } else {
            "0.0.0.0/0"
        });
        let set = SelectorSet::new(vec![Selector::between(range, everything)]).expect("one");
        let action = match parameter >> 2 {
            0 => Action::Bypass,
            1 => Action::Discard,
            2 => Action::Protect(Arc::new(Policy::new(PolicyId(99), "another"))),
            _ => {
                self.tunnel.outbound.set_interface(7);
                Action::Bypass
            }
        };
        let interface = if parameter >> 2 == 3 { 7 } else { 0 };
        let entry = SpdEntry {
            interface,
            ..SpdEntry::new(set, action)
        };
        match entries.len() > 5 {
            true => entries.truncate(1),
            false => entries.insert(0, entry),
        }
        self.tunnel.spd = Spd::new(entries);
    }

    /// Segments of one packet that are written in place.
    fn reserve(&mut self, parameter: u8, script: &mut Script<'_>) {
        let len = 100 + usize::from(script.next());
        let packet = inner(if parameter & 1 == 0 { 4 } else { 6 }, &vec![7; len]);
        let view = IpView::parse(&packet).expect("well-formed");
        let segments = Segments {
            count: 1 + u32::from(parameter >> 1 & 3),
            segment_len: packet.len(),
            last_len: packet.len(),
        };
        let outbound = &mut self.tunnel.outbound;
        if let Outcome::Protect(sa) = outbound.decide(&self.tunnel.spd, (&packet, &view), &segments)
        {
            let refused = match outbound.reserve(&sa, &view, &segments) {
                Ok(mut slots) => {
                    while let Some(slot) = slots.next_slot() {
                        let len = slot.len().min(packet.len());
                        slot[..len].copy_from_slice(&packet[..len]);
                    }
                    let _ = slots.finish();
                    None
                }
                Err(refused) => Some(refused),
            };
            if refused == Some(ReserveRefused::BatchFull) {
                outbound.give_up(&sa, &segments);
            }
        }
        self.collect();
    }

    /// ICMP errors about packets in flight, and what follows for the path MTU.
    fn errors(&mut self, parameter: u8, script: &mut Script<'_>) {
        let mtu = 500 + 8 * u16::from(script.next());
        for frame in self.in_flight.clone() {
            let Ok(view) = IpView::parse(&frame) else {
                continue;
            };
            let problem = match parameter & 3 {
                0 | 1 => IcmpProblem::TooBig { mtu: mtu.into() },
                _ => IcmpProblem::Prohibited,
            };
            if let Some(error) = icmp::error_about(&frame, &view, problem) {
                let view = IpView::parse(&error).expect("an ICMP error");
                let _ = icmp::parse_error(&error, &view);
                let _ = (
                    icmp::is_transit_error(&error, &view),
                    icmp::quoted(&error, &view),
                );
                let _ = self.tunnel.outbound.push(&self.tunnel.spd, &error);
            }
            let mut copy = frame.clone();
            if mss::is_syn(&copy, &view) {
                mss::clamp(
                    &mut copy,
                    &view,
                    mss::mss_for(view.version, mtu.into()),
                    false,
                );
            }
            let mut saved = Vec::new();
            if ah::zero_mutable(&mut copy, &mut saved).is_ok() {
                ah::restore(&mut copy, &saved);
            }
        }
        for sa in &self.sas {
            sa.set_path_mtu(
                self.mtus
                    .mtu(sa.common.path().remote.ip(), self.now_ms)
                    .or(Some(mtu)),
            );
            let _ = (sa.inner_mtu(mtu.into()), sa.outer_len(1400));
        }
        self.collect();
    }

    /// What the last SA seals is sealed once more by the SA of another policy.
    fn nest(&mut self, parameter: u8) {
        let everything = SelectorSet::new(vec![
            Selector::between(prefix("0.0.0.0/0"), prefix("0.0.0.0/0")),
            Selector::between(prefix("::/0"), prefix("::/0")),
        ]);
        let everything = everything.expect("two");
        let Some(spi) = self.tunnel.database.sad().allocate_spi() else {
            return;
        };
        let transform = if parameter & 1 == 0 {
            Transform::ESP[0]
        } else {
            Transform::AH[0]
        };
        let key = key_material(transform);
        let make = |turned: bool| {
            let mut p = parameters(transform, false, spi, &key);
            p.selectors = everything.clone();
            p.path = ends(4, transform == Transform::ESP[0]);
            if turned {
                (p.path.local, p.path.remote) = (p.path.remote, p.path.local);
            }
            p
        };
        let outer = Arc::new(Policy::new(PolicyId(8), "outer"));
        if parameter & 2 == 0 {
            outer.install(Arc::new(OutboundSa::new(make(false)).expect("good keys")));
        }
        let inbound = InboundSa::new(make(true)).expect("good keys");
        self.tunnel
            .database
            .sad()
            .insert(Arc::new(inbound))
            .expect("allocated");
        let own = self.tunnel.outbound_sa.common.spi;
        let key = key_material(self.transform);
        let mut left = parameters(self.transform, self.esn, own, &key);
        self.options.change(&mut left);
        let inner = OutboundSa::new(left).expect("good keys").through(outer.id);
        self.tunnel.policy.install(Arc::new(inner));
        self.tunnel.add_policy(outer);
    }

    /// What the log and the status show.
    fn look(&mut self) {
        let Tunnel {
            inbound, outbound, ..
        } = &mut self.tunnel;
        for event in outbound.drain_events().chain(inbound.drain_events()) {
            drop(format!("{event:?}"));
            if let Event::Acquire { policy, .. } = event {
                assert!([7, 8, 99].contains(&policy.0));
            }
        }
        for audit in inbound.drain_audits() {
            drop(format!("{audit:?}"));
        }
        for sa in &self.sas {
            let drops = sa.common.drops.iter();
            drop(
                drops
                    .map(|(reason, count)| format!("{reason} {count}"))
                    .collect::<Vec<_>>(),
            );
            drop(format!("{:?}", sa.common.path()));
        }
        let counters = inbound.counters();
        assert!(counters.packets_out.load(Relaxed) <= counters.packets_in.load(Relaxed) + 1000);
    }
}

/// Packets from the left site to the right one, and some that are none.
fn packets(parameter: u8, script: &mut Script<'_>) -> Vec<Vec<u8>> {
    let (kind, count) = (script.next(), 1 + usize::from(parameter & 7));
    let len = usize::from(script.next()) * if parameter & 8 == 0 { 1 } else { 12 };
    let tos = kind >> 4 << 2;
    let one = |number: usize| {
        let payload = vec![number as u8; len + number];
        let tcp = |flags: u8| {
            let mut tcp = vec![
                0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, flags, 0, 9, 0, 0, 0, 0,
            ];
            tcp.extend([2, 4, 5, 0xb4]);
            tcp.extend(&payload);
            tcp
        };
        match kind & 15 {
            0 => inner(4, &payload),
            1 => inner(6, &payload),
            2 => ipv4("10.1.0.7", "10.2.0.9", 6, tos, &tcp(2)),
            3 => ipv6("2001:db8:1::7", "2001:db8:2::9", 6, tos, &tcp(18)),
            4 => ipv4(
                "10.1.0.7",
                "10.2.0.9",
                1,
                tos,
                &[&[8, 0, 0, 0], &payload[..]].concat(),
            ),
            5 => ipv4("10.9.0.7", "10.2.0.9", 17, tos, &payload),
            6 => ipv6(
                "2001:db8:1::7",
                "2001:db8:2::9",
                58,
                tos,
                &[&[128, 0, 0, 0], &payload[..]].concat(),
            ),
            7 => ipv4(
                "10.1.0.7",
                &format!("10.2.0.{}", number % 200 + 1),
                17,
                tos,
                &payload,
            ),
            8 => fragment(inner(4, &payload), 0x2000),
            9 => fragment(inner(4, &payload), 0x2000 | 3),
            10 => fragment(inner(4, &payload), 5),
            11 => fragment(inner(4, &payload), 0x4000),
            12 => ipv6(
                "2001:db8:1::7",
                "2001:db8:2::9",
                44,
                tos,
                &[&[17, 0, 0, 1, 0, 0, 0, 9], &payload[..]].concat(),
            ),
            13 => ipv6(
                "2001:db8:1::7",
                "2001:db8:2::9",
                60,
                tos,
                &[&[17, 0, 1, 4, 0, 0, 0, 0], &payload[..]].concat(),
            ),
            14 => payload,
            _ => ipv4(
                "10.1.0.7",
                "10.2.0.9",
                50,
                tos,
                &[&[0, 0, 16, 1, 0, 0, 0, 1], &payload[..]].concat(),
            ),
        }
    };
    (0..count).map(one).collect()
}

/// The packet with other fragment fields, and the right checksum.
fn fragment(mut packet: Vec<u8>, field: u16) -> Vec<u8> {
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    esplanade_testkit::model::complete(&mut packet);
    packet
}
