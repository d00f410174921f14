//! Tests SAs in SAs (RFC 4301 §4.3, appendix E): bundles on the way out, and packets that are IPsec again on the way
//! in.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::common::whole::{ends, facts_of, frames, open};
use crate::common::{
    SlowEngine, Tunnel, assert_reconciled, inner, ipv4, ipv6, key_material, parameters, prefix,
};
use esplanade_crypto::{Batch, Engine, EngineInfo, RejectReason, Rejected, Transform, cpu};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::spd::{Policy, PolicyId};
use esplanade_ipsec::wire::{IpView, checksum};

const GCM: Transform = Transform::ESP[0];
const AH: Transform = Transform::AH[0];

/// Puts the SA of a tunnel behind another: `outer` seals the packets that the tunnel sealed.
fn nest(tunnel: &mut Tunnel, transform: Transform, change: impl Fn(&mut SaParameters<'_>)) {
    let everything = SelectorSet::new(vec![
        Selector::between(prefix("0.0.0.0/0"), prefix("0.0.0.0/0")),
        Selector::between(prefix("::/0"), prefix("::/0")),
    ])
    .expect("two are not too many");
    let sad = tunnel.database.sad();
    let spi = sad.allocate_spi().expect("room");
    let key = key_material(transform);
    let make = |turned: bool| {
        let mut p = parameters(transform, false, spi, &key);
        p.selectors = everything.clone();
        change(&mut p);
        if turned {
            (p.path.local, p.path.remote) = (p.path.remote, p.path.local);
        }
        p
    };
    let outer = Arc::new(Policy::new(PolicyId(8), "outer"));
    outer.install(Arc::new(OutboundSa::new(make(false)).expect("good keys")));
    let inbound = InboundSa::new(make(true)).expect("good keys");
    sad.insert(Arc::new(inbound)).expect("allocated");

    let key = key_material(tunnel.outbound_sa.common.transform());
    let common = &tunnel.outbound_sa.common;
    let inner = parameters(common.transform(), common.esn(), common.spi, &key);
    let inner = SaParameters {
        mode: common.mode,
        path: common.path(),
        ..inner
    };
    let inner = OutboundSa::new(inner).expect("good keys").through(outer.id);
    tunnel.policy.install(Arc::new(inner));
    tunnel.add_policy(outer);
}

fn open_nested(tunnel: &mut Tunnel, frame: &[u8]) -> Vec<Vec<u8>> {
    let facts = facts_of(frame);
    let sad = tunnel.database.sad();
    let _ = tunnel.inbound.push_copy(sad, frame, &facts);
    let mut out = Vec::new();
    while tunnel.inbound.waiting() > 0 {
        let engine = &mut tunnel.open_engine;
        tunnel.inbound.submit(engine).expect("it takes all");
        while let Some(mut opened) = tunnel.inbound.poll(engine) {
            out.extend(opened.delivered().iter().map(|d| opened.packet(d).to_vec()));
            tunnel.inbound.push_nested(sad, &mut opened);
            tunnel.inbound.recycle(opened);
        }
    }
    assert_reconciled(tunnel.inbound.counters());
    out
}

/// Tests AH over ESP in transport mode, and a tunnel in a tunnel (RFC 4301 §4.3, appendix E).
#[test]
fn a_packet_goes_through_two_sas_and_back() {
    for (inner_mode, outer_transform, outer_mode) in [
        (Mode::Transport, AH, Mode::Transport),
        (Mode::Tunnel, AH, Mode::Transport),
        (Mode::Tunnel, GCM, Mode::Tunnel),
    ] {
        for version in [4, 6] {
            let path = ends(version, false);
            let mut tunnel = Tunnel::with(GCM, false, |p| {
                p.mode = inner_mode;
                p.path = path;
            });
            nest(&mut tunnel, outer_transform, |p| {
                p.mode = outer_mode;
                p.path = path;
            });
            let packet = inner(version, b"twice protected");
            let sent = frames(&mut tunnel, std::slice::from_ref(&packet));
            let [frame] = &sent[..] else {
                panic!("one packet, but {}", sent.len())
            };
            let outermost = IpView::parse(frame).expect("well-formed").protocol;
            assert_eq!(outermost, outer_transform.protocol().number());
            assert_eq!(open_nested(&mut tunnel, frame), [packet]);
        }
    }
}

#[test]
fn what_nobody_takes_out_of_its_second_sa_is_counted() {
    let path = ends(4, false);
    let mut tunnel = Tunnel::with(GCM, false, |p| p.path = path);
    nest(&mut tunnel, AH, |p| {
        p.mode = Mode::Transport;
        p.path = path;
    });
    let sent = frames(&mut tunnel, &[inner(4, b"nested")]);
    assert!(open(&mut tunnel, &sent).is_empty());
    let drops = &tunnel.inbound.counters().drops;
    assert_eq!(drops.get(DropReason::NestedTooDeep), 1);
}

/// A fragment of a nested packet goes to the kernel, which reassembles it first (RFC 4303 §3.4.1).
#[test]
fn a_fragment_of_an_ipsec_packet_is_not_nested() {
    let mut tunnel = Tunnel::with(GCM, false, |p| p.path = ends(4, false));
    let mut first = ipv4("10.1.0.7", "10.2.0.9", 50, 0, &[7; 64]);
    first[6] = 0x20;
    first[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &first[..20]));
    first[10..12].copy_from_slice(&sum.to_be_bytes());
    let sent = frames(&mut tunnel, std::slice::from_ref(&first));
    assert_eq!(open_nested(&mut tunnel, &sent[0]), [first]);
}

/// Only what is addressed to this end is opened again (RFC 4301 §5.2). The host's packet is authentic for the SA, so
/// that nothing but its address tells that it is the host's.
#[test]
fn an_esp_packet_to_a_host_behind_this_end_is_delivered() {
    for version in [4, 6] {
        let mut tunnel = Tunnel::new(GCM, false);
        let esp = tunnel.seal(&[inner(version, b"the host's own")]).remove(0);
        let packet = match version {
            4 => ipv4("10.1.0.7", "10.2.0.9", 50, 0, &esp),
            _ => ipv6("2001:db8:1::7", "2001:db8:2::9", 50, 0, &esp),
        };
        let sent = frames(&mut tunnel, std::slice::from_ref(&packet));
        assert_eq!(open_nested(&mut tunnel, &sent[0]), [packet]);
        assert_eq!(tunnel.inbound.counters().drops.total(), 0);
    }
}

/// A slow engine holds every batch while packets come back that need another batch.
#[test]
fn a_late_engine_loses_nothing_of_a_bundle() {
    let path = ends(4, false);
    let mut tunnel = Tunnel::with(GCM, false, |p| p.path = path);
    nest(&mut tunnel, GCM, |p| p.path = path);
    let packets: Vec<_> = (0..300u16).map(|n| inner(4, &n.to_be_bytes())).collect();
    for (capacity, period) in [(1, 1), (1, 7), (2, 3), (3, 5), (16, 11)] {
        let limits = WalkLimits {
            batches_max: capacity + 1,
            jobs_max: 8,
            buffer_len: 1 << 14,
        };
        tunnel.outbound = Outbound::new(limits);
        tunnel.inbound = Inbound::new(limits);
        let sent = seal_late(
            &mut tunnel,
            &packets,
            &mut SlowEngine::new(capacity, period),
        );
        assert_eq!(sent.len(), packets.len());
        let opened = open_late(&mut tunnel, &sent, &mut SlowEngine::new(capacity, period));
        assert!(opened == packets, "each once, in order");
        for counters in [tunnel.outbound.counters(), tunnel.inbound.counters()] {
            assert_eq!(counters.drops.total(), 0);
            assert_reconciled(counters);
        }
    }
}

/// An engine that processes its batches and keeps them.
struct LostEngine {
    ready: File,
    kept: Vec<Batch>,
}

impl LostEngine {
    fn new() -> Self {
        Self {
            ready: File::open("/dev/null").expect("it is there"),
            kept: Vec::new(),
        }
    }
}

impl Engine for LostEngine {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        if self.kept.len() == self.info().depth {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        cpu::process(&mut batch);
        batch.buffer.fill(0xee);
        self.kept.push(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        None
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn info(&self) -> EngineInfo {
        EngineInfo {
            depth: 6,
            ..EngineInfo::AT_ONCE
        }
    }
}

/// The lost batches are more than the next engine takes at a time. They are lost twice, and have packets with headers
/// in front.
#[test]
fn what_a_lost_engine_has_is_done_again() {
    for (mode, transform) in [
        (Mode::Tunnel, GCM),
        (Mode::Transport, GCM),
        (Mode::Transport, AH),
    ] {
        let path = ends(4, false);
        let mut tunnel = Tunnel::with(transform, false, |p| (p.path, p.mode) = (path, mode));
        let limits = WalkLimits {
            batches_max: 7,
            ..WalkLimits::default()
        };
        tunnel.outbound = Outbound::new(limits);
        tunnel.inbound = Inbound::new(limits);
        let packets: Vec<_> = (0..7u16).map(|n| inner(4, &n.to_be_bytes())).collect();
        let mut lost = [LostEngine::new(), LostEngine::new()];
        for packet in &packets {
            let _ = tunnel.outbound.push(&tunnel.spd, packet).expect("room");
            let _ = tunnel.outbound.submit(&mut lost[0]);
        }
        assert_eq!(
            (tunnel.outbound.in_engine(), tunnel.outbound.waiting()),
            (6, 1)
        );
        tunnel.outbound.engine_lost();
        let refused = tunnel.outbound.submit(&mut lost[1]);
        assert_eq!(refused, Err(RejectReason::Full));
        tunnel.outbound.engine_lost();
        let mut next = SlowEngine::new(2, 2);
        let mut sent = seal_late(&mut tunnel, &[], &mut next);
        // The sequence numbers are those that were taken at first.
        sent.extend(frames(&mut tunnel, &packets[..1]));
        let at = if transform == AH { 20 + 8 } else { 20 + 4 };
        let numbers = sent.iter().map(|frame| frame[at + 3]);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);

        let mut lost = LostEngine::new();
        for frame in &sent[..7] {
            let sad = tunnel.database.sad();
            let pushed = tunnel.inbound.push_copy(sad, frame, &facts_of(frame));
            pushed.expect("room");
            let _ = tunnel.inbound.submit(&mut lost);
        }
        tunnel.inbound.engine_lost();
        let opened = open_late(&mut tunnel, &sent[7..], &mut next);
        assert_eq!(opened[..7], packets);
        assert_eq!(opened[7..], packets[..1]);
        for counters in [tunnel.outbound.counters(), tunnel.inbound.counters()] {
            assert_eq!(counters.drops.total(), 0);
            assert_reconciled(counters);
        }
    }
}

fn seal_late(tunnel: &mut Tunnel, packets: &[Vec<u8>], engine: &mut SlowEngine) -> Vec<Vec<u8>> {
    let outbound = &mut tunnel.outbound;
    let (mut sent, mut identification) = (Vec::new(), 0);
    let mut packets = packets.iter().peekable();
    while packets.peek().is_some() || outbound.waiting() > 0 || outbound.in_engine() > 0 {
        while outbound.can_take()
            && let Some(packet) = packets.next()
        {
            let pushed = outbound.push(&tunnel.spd, packet);
            if pushed.is_err() {
                outbound.submit(engine).expect("there is another batch");
                let _ = outbound.push(&tunnel.spd, packet).expect("room");
            }
        }
        let submitted = outbound.submit(engine);
        assert!(matches!(submitted, Ok(()) | Err(RejectReason::Full)));
        while let Some(mut sealed) = outbound.poll(engine, &tunnel.spd) {
            let failed = sealed.for_each_frame(&mut identification, |f| sent.push(f.to_vec()));
            assert_eq!(failed, 0);
            outbound.recycle(sealed);
        }
    }
    sent
}

fn open_late(tunnel: &mut Tunnel, frames: &[Vec<u8>], engine: &mut SlowEngine) -> Vec<Vec<u8>> {
    let (inbound, sad) = (&mut tunnel.inbound, tunnel.database.sad());
    let mut out = Vec::new();
    let mut bursts = frames.chunks(8).peekable();
    while bursts.peek().is_some() || inbound.waiting() > 0 || inbound.in_engine() > 0 {
        if inbound.can_take()
            && let Some(burst) = bursts.next()
        {
            for frame in burst {
                inbound
                    .push_copy(sad, frame, &facts_of(frame))
                    .expect("room");
            }
        }
        inbound.push_held(sad);
        let submitted = inbound.submit(engine);
        assert!(matches!(submitted, Ok(()) | Err(RejectReason::Full)));
        while let Some(mut opened) = inbound.poll(engine) {
            out.extend(opened.delivered().iter().map(|d| opened.packet(d).to_vec()));
            inbound.push_nested(sad, &mut opened);
            inbound.recycle(opened);
        }
    }
    out
}
