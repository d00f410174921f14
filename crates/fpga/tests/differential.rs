//! Runs the simulated core beside the packet path of `esplanade-ipsec` on the CPU engine. The same packets must give
//! the same bytes, or the same reasons to drop.

#[path = "../../ipsec/tests/common/mod.rs"]
mod common;
mod device;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{LEFT, ONE, RIGHT, Tunnel, address, inner, ipv4, ipv6, selectors};
use esplanade_crypto::KeyMaterial;
use esplanade_fpga::core::{Core, Lane, LaneCounters, reasons};
use esplanade_fpga::device_key::{DeviceKey, Suite};
use esplanade_fpga::policy::{self, CoreAction};
use esplanade_fpga::sa::{self, Udp};
use esplanade_fpga::simulated::Simulated;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::replay::ReplayWindow;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::spd::{Spd, SpdEntry};
use esplanade_ipsec::tunnel::{self, DfPolicy, DscpPolicy, EcnPolicy, FlowLabelPolicy};

const ROW: u16 = 700;

fn core(test: &str) -> Option<Core<Simulated>> {
    device::simulated(test).map(|device| Core::open(device).expect("a core"))
}

/// Random numbers that are the same in every run.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Makes a packet from the left site to the right one, or back.
    fn packet(&mut self, back: bool) -> Vec<u8> {
        let len = match self.below(4) {
            0 => self.below(24),
            1 => 1380,
            _ => self.below(1360),
        };
        let payload = self.bytes(len);
        let (tos, protocol) = (self.next() as u8, [6, 17, 1, 50, 253][self.below(5)]);
        let ends = |left, right| if back { (right, left) } else { (left, right) };
        if self.below(2) == 0 {
            let (from, to) = ends("10.1.0.7", "10.2.0.9");
            let mut packet = ipv4(from, to, protocol, tos, &payload);
            if self.below(2) == 0 {
                packet[6] = 0x40;
                packet[10..12].fill(0);
                let sum = esplanade_ipsec::wire::checksum::fold(
                    esplanade_ipsec::wire::checksum::sum(0, &packet[..20]),
                );
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            packet
        } else {
            let (from, to) = ends("2001:db8:1::7", "2001:db8:2::9");
            // Protocol 50 would need a real ESP header, so another number takes its place.
            let protocol = if protocol == 50 { 58 } else { protocol };
            let mut packet = ipv6(from, to, protocol, tos, &payload);
            let label = self.next().to_be_bytes();
            packet[1] |= label[0] & 15;
            packet[2..4].copy_from_slice(&label[1..3]);
            packet
        }
    }
}

/// The paths that packets take: their outer addresses and encapsulation.
fn paths() -> [Path; 4] {
    let path = |local: &str, remote: &str, udp_encap| Path {
        local: SocketAddr::new(address(local), 4500),
        remote: SocketAddr::new(address(remote), if udp_encap { 40_123 } else { 4500 }),
        udp_encap,
    };
    let v6 = ["2001:db8:ffff::1", "2001:db8:ffff::2"];
    [
        path("192.0.2.1", "198.51.100.2", false),
        path("192.0.2.1", "198.51.100.2", true),
        path(v6[0], v6[1], false),
        path(v6[0], v6[1], true),
    ]
}

/// Makes a tunnel of the software path whose SAs begin with these sequence numbers.
fn tunnel(suite: Suite, esn: bool, first: u64, change: impl Fn(&mut SaParameters<'_>)) -> Tunnel {
    let transform = suite.transform().expect("known");
    let mut tunnel = Tunnel::with(transform, esn, &change);
    let spi = tunnel.inbound_sa.common.spi;
    let key = common::key_material(transform);
    let mut left = common::parameters(transform, esn, spi, &key);
    change(&mut left);
    let mut right = common::parameters(transform, esn, spi, &key);
    change(&mut right);
    right.selectors = selectors(RIGHT, LEFT);
    (right.path.local, right.path.remote) = (left.path.remote, left.path.local);
    let sequence = SequenceAllocator::starting_at(first, esn);
    let out = OutboundSa::with_sequence(left, sequence).expect("good keys");
    tunnel.outbound_sa = Arc::new(out);
    tunnel.policy.install(Arc::clone(&tunnel.outbound_sa));
    let window = ReplayWindow::starting_at(first - 1, 64, esn);
    let inbound = InboundSa::with_replay(right, window).expect("good keys");
    tunnel.inbound_sa = Arc::new(inbound);
    let inserted = tunnel.database.sad().insert(Arc::clone(&tunnel.inbound_sa));
    inserted.expect("allocated");
    tunnel
}

fn device_key(suite: Suite) -> DeviceKey {
    let transform = suite.transform().expect("known");
    let material = KeyMaterial::new(transform, true, &common::key_material(transform));
    DeviceKey::new(&material.expect("a good key")).expect("a key")
}

/// Puts the outbound SA into the core, with policies that lead to it.
fn install_outbound(core: &mut Core<Simulated>, tunnel: &Tunnel, suite: Suite) {
    let sa = &tunnel.outbound_sa;
    let (common, path) = (&sa.common, sa.common.path());
    let ports = Udp {
        local: path.local.port(),
        remote: path.remote.port(),
    };
    let row = sa::OutboundSaRow {
        udp: path.udp_encap.then_some(ports),
        df: common.tunnel.df,
        ecn: common.tunnel.ecn,
        copy_flow_label: common.tunnel.flow_label == FlowLabelPolicy::Copy,
        dscp: (common.tunnel.dscp != DscpPolicy::Copy).then_some(46),
        sequence: sa.sequence.next() - 1,
        ..sa::OutboundSaRow::new(common.spi, common.esn(), path.local.ip(), path.remote.ip())
    };
    core.install_outbound(ROW.into(), &row, &device_key(suite))
        .expect("a row");
    protect(core);
}

/// Sets policies that protect with the SA that is in the row now.
fn protect(core: &mut Core<Simulated>) {
    let set = selectors(LEFT, RIGHT);
    let entries = set.as_slice().iter();
    let entries: Vec<_> = entries
        .flat_map(|selector| policy::entries(selector, CoreAction::Protect(ROW), 64).expect("few"))
        .collect();
    core.set_policies(Lane::Outbound, &entries).expect("room");
    core.enable(Lane::Outbound, true).expect("enabled");
}

fn install_inbound(core: &mut Core<Simulated>, tunnel: &Tunnel, suite: Suite, top: u64) {
    let common = &tunnel.inbound_sa.common;
    let row = sa::InboundSaRow {
        sequence: top,
        ..sa::InboundSaRow::new(common.spi, common.esn(), 9)
    };
    core.install_inbound(&row, &device_key(suite))
        .expect("a row");
    let set = selectors(RIGHT, LEFT);
    let entries = set.as_slice().iter();
    let entries: Vec<_> = entries
        .flat_map(|selector| policy::tunnelled(selector, CoreAction::Protect(9), 64).expect("few"))
        .collect();
    core.set_policies(Lane::Inbound, &entries).expect("room");
    core.enable(Lane::Inbound, true).expect("enabled");
}

/// Returns what the software path sends. Its outer headers get the identification of `like`.
fn sealed(tunnel: &mut Tunnel, packet: &[u8], like: Option<&[u8]>) -> Option<Vec<u8>> {
    let _ = tunnel.outbound.push(&tunnel.spd, packet).expect("room");
    tunnel
        .outbound
        .submit(&mut tunnel.seal_engine)
        .expect("taken");
    let mut frames = Vec::new();
    while let Some(batch) = tunnel.outbound.poll(&mut tunnel.seal_engine, &tunnel.spd) {
        for train in batch.trains(ONE) {
            let mut frame = vec![0; train.meta.header_len()];
            frame.extend(train.esp);
            let identification = like.map_or(7, |like| u16::from_be_bytes([like[4], like[5]]));
            tunnel::write_outer(train.meta, identification, &mut frame).expect("it fits");
            frames.push(frame);
        }
        tunnel.outbound.recycle(batch);
    }
    assert!(frames.len() <= 1);
    frames.pop()
}

/// Sends packets through a lane and returns the packets that come out.
fn through(core: &mut Core<Simulated>, lane: Lane, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut packet = Vec::new();
    for chunk in packets.chunks(32) {
        for packet in chunk {
            assert_eq!(core.send(lane, packet), Ok(true));
        }
        core.work();
        while let Some(facts) = core.receive(lane, &mut packet).expect("it answers") {
            assert!(!facts.to_host);
            out.push(packet.clone());
        }
    }
    out
}

#[test]
fn both_seal_the_same_bytes() {
    let Some(mut core) = core("seal") else {
        return;
    };
    let mut source = Source(1);
    for suite in Suite::ALL {
        for (esn, first) in [(false, 1), (true, 0xffff_fff0)] {
            for (index, path) in paths().into_iter().enumerate() {
                let mut tunnel = tunnel(suite, esn, first, |parameters| {
                    parameters.path = path;
                    parameters.tunnel.df =
                        [DfPolicy::Copy, DfPolicy::Set, DfPolicy::Clear][index % 3];
                    if index % 2 == 1 {
                        parameters.tunnel.flow_label = FlowLabelPolicy::Copy;
                        parameters.tunnel.ecn = EcnPolicy::Clear;
                    }
                    if index == 2 {
                        parameters.tunnel.dscp = DscpPolicy::fixed(46);
                    }
                });
                install_outbound(&mut core, &tunnel, suite);
                let packets: Vec<_> = (0..24).map(|_| source.packet(false)).collect();
                let from_core = through(&mut core, Lane::Outbound, &packets);
                assert_eq!(from_core.len(), packets.len(), "{suite:?} {path:?}");
                for (packet, frame) in packets.iter().zip(&from_core) {
                    let expected = sealed(&mut tunnel, packet, Some(frame)).expect("it is sent");
                    let what = format!("{suite:?} esn {esn} {path:?} {} bytes", packet.len());
                    assert_eq!(hex(frame), hex(&expected), "{what}");
                }
                let snapshot = core
                    .snapshot(Lane::Outbound, ROW.into())
                    .expect("it answers");
                assert_eq!(snapshot.sequence, tunnel.outbound_sa.sequence.next() - 1);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns what the software path makes of a datagram.
fn opened(tunnel: &mut Tunnel, frame: &[u8], path: Path) -> Result<Vec<u8>, DropReason> {
    let header_len = if frame[0] >> 4 == 4 { 20 } else { 40 } + if path.udp_encap { 8 } else { 0 };
    let tos = match frame[0] >> 4 {
        4 => frame[1],
        _ => frame[0] << 4 | frame[1] >> 4,
    };
    let before = drops(tunnel);
    let outer = esplanade_ipsec::tunnel::OuterFacts {
        header_len,
        ..esplanade_ipsec::tunnel::OuterFacts::new(path.local, path.udp_encap, tos)
    };
    let mut packets = tunnel.open_from(&[frame.to_vec()], &outer);
    match packets.pop() {
        Some(packet) => Ok(packet),
        None => {
            let after = drops(tunnel);
            let changed = before.iter().zip(&after).find(|(b, a)| b.1 != a.1);
            Err(changed.expect("dropped for a reason").1.0)
        }
    }
}

fn drops(tunnel: &Tunnel) -> Vec<(DropReason, u64)> {
    tunnel.inbound.counters().drops.iter().collect()
}

/// Returns the core's number of a reason, as `drop_e` in `rtl/common/esp_pkg.sv` defines it.
fn number(reason: DropReason) -> usize {
    // The core has one window, and does not tell at which end a packet missed it.
    let reason = match reason {
        DropReason::BeforeWindow => DropReason::Replayed,
        other => other,
    };
    let names = reasons(Lane::Inbound);
    let at = names.iter().position(|name| *name == reason.name());
    1 + at.unwrap_or_else(|| panic!("the core has no {reason}"))
}

/// Returns the reason for which the core dropped one packet between the two readings.
fn dropped(before: &LaneCounters, after: &LaneCounters) -> Option<usize> {
    let changed = before
        .drops
        .iter()
        .zip(&after.drops)
        .position(|(b, a)| b != a);
    let all = |counters: &LaneCounters| counters.drops.iter().sum::<u32>();
    assert!(all(after) - all(before) <= 1);
    changed
}

#[test]
fn both_open_the_same_bytes_and_drop_for_the_same_reasons() {
    let Some(mut core) = core("open") else {
        return;
    };
    let mut source = Source(2);
    let (mut delivered, mut reasons) = (0, std::collections::BTreeSet::new());
    for suite in Suite::ALL {
        for (esn, first) in [(false, 1), (true, 0xffff_fff8)] {
            for path in paths() {
                // The datagram goes to port 4500, where the core looks for encapsulated packets.
                let path = Path {
                    remote: SocketAddr::new(path.remote.ip(), 4500),
                    ..path
                };
                let mut tunnel = tunnel(suite, esn, first, |parameters| parameters.path = path);
                install_inbound(&mut core, &tunnel, suite, first - 1);
                let mut frames = Vec::new();
                for _ in 0..3 {
                    let packet = source.packet(false);
                    let frame = sealed(&mut tunnel, &packet, None).expect("it is sent");
                    frames.extend(disturbed(&mut source, frame, path));
                }
                for frame in frames {
                    let expected = opened(&mut tunnel, &frame, path);
                    let before = core.counters(Lane::Inbound).expect("it answers");
                    let from_core = through(&mut core, Lane::Inbound, std::slice::from_ref(&frame));
                    let after = core.counters(Lane::Inbound).expect("it answers");
                    let what = format!("{suite:?} esn {esn} {path:?}: {}", hex(&frame));
                    match expected {
                        Ok(packet) => {
                            assert_eq!(from_core, [packet], "{what}");
                            delivered += 1;
                        }
                        Err(reason) => {
                            assert!(from_core.is_empty(), "{what}: {reason}");
                            assert_eq!(
                                dropped(&before, &after),
                                Some(number(reason)),
                                "{what}: {reason}"
                            );
                            reasons.insert(reason.name());
                        }
                    }
                }
            }
        }
    }
    println!("{delivered} delivered; dropped: {reasons:?}");
    assert!(delivered > 90);
    for reason in [
        "unknown-spi",
        "replayed",
        "authentication-failed",
        "malformed-esp",
    ] {
        assert!(reasons.contains(reason), "nothing was dropped as {reason}");
    }
}

/// Returns a frame with disturbances: copies, flipped bits, other lengths, other SPIs.
fn disturbed(source: &mut Source, frame: Vec<u8>, path: Path) -> Vec<Vec<u8>> {
    let esp = frame.len() - payload(&frame, path).len();
    let mut flipped = frame.clone();
    let at = esp + 4 + source.below(frame.len() - esp - 4);
    flipped[at] ^= 1 << source.below(8);
    let mut unknown = frame.clone();
    unknown[esp + 1] ^= 0x10;
    let kept = [8, 12, 31, 35][source.below(4)];
    let short = shortened(&frame, esp, kept, path);
    let mut frames = vec![unknown, flipped, short, frame.clone()];
    if source.below(2) == 0 {
        frames.push(frame);
    }
    frames
}

fn payload(frame: &[u8], path: Path) -> &[u8] {
    let header_len = if frame[0] >> 4 == 4 { 20 } else { 40 } + if path.udp_encap { 8 } else { 0 };
    &frame[header_len..]
}

/// Shortens a frame to `kept` bytes of ESP, with headers that say `esp` bytes.
fn shortened(frame: &[u8], esp: usize, kept: usize, path: Path) -> Vec<u8> {
    let mut short = frame[..esp + kept].to_vec();
    let ip_len = esp - if path.udp_encap { 8 } else { 0 };
    if path.udp_encap {
        let udp_len = (short.len() - ip_len) as u16;
        short[ip_len + 4..ip_len + 6].copy_from_slice(&udp_len.to_be_bytes());
    }
    if frame[0] >> 4 == 4 {
        let len = short.len() as u16;
        short[2..4].copy_from_slice(&len.to_be_bytes());
        short[10..12].fill(0);
        let sum = esplanade_ipsec::wire::checksum::sum(0, &short[..20]);
        let sum = esplanade_ipsec::wire::checksum::fold(sum);
        short[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let len = (short.len() - 40) as u16;
        short[4..6].copy_from_slice(&len.to_be_bytes());
    }
    short
}

#[test]
fn policies_decide_alike() {
    let Some(mut core) = core("policy") else {
        return;
    };
    let host = |text| AddressRange::host(address(text));
    let cases = [
        ("10.1.0.7", "10.2.0.9", None),
        ("10.1.0.8", "10.2.0.9", Some(CoreAction::Bypass)),
        ("10.1.0.9", "10.2.0.9", Some(CoreAction::Discard)),
    ];
    let mut tunnel = tunnel(Suite::Gcm256, true, 1, |_| ());
    install_outbound(&mut core, &tunnel, Suite::Gcm256);
    let (mut entries, mut software) = (Vec::new(), Vec::new());
    for (local, remote, action) in &cases {
        let selector = Selector::between(host(local), host(remote));
        let set = esplanade_ipsec::selector::SelectorSet::new(vec![selector]).expect("one");
        let (in_core, in_software) = match action {
            None => (
                CoreAction::Protect(ROW),
                esplanade_ipsec::spd::Action::Protect(Arc::clone(&tunnel.policy)),
            ),
            Some(CoreAction::Bypass) => (CoreAction::Bypass, esplanade_ipsec::spd::Action::Bypass),
            Some(_) => (CoreAction::Discard, esplanade_ipsec::spd::Action::Discard),
        };
        entries.extend(policy::entries(&selector, in_core, 64).expect("few"));
        software.push(SpdEntry::new(set, in_software));
    }
    core.set_policies(Lane::Outbound, &entries).expect("room");
    tunnel.spd = Spd::new(software);
    let counters = Arc::clone(tunnel.outbound.counters());
    for (local, remote) in [
        ("10.1.0.7", "10.2.0.9"),
        ("10.1.0.8", "10.2.0.9"),
        ("10.1.0.9", "10.2.0.9"),
        ("10.1.0.6", "10.2.0.9"),
    ] {
        let packet = ipv4(local, remote, 17, 0, &[0; 12]);
        let before = core.counters(Lane::Outbound).expect("it answers");
        let from_core = through(&mut core, Lane::Outbound, std::slice::from_ref(&packet));
        let after = core.counters(Lane::Outbound).expect("it answers");
        let sent = sealed(&mut tunnel, &packet, from_core.first().map(Vec::as_slice));
        let bypassed = counters
            .packets_bypassed
            .load(std::sync::atomic::Ordering::Relaxed);
        match local {
            "10.1.0.7" => assert_eq!(from_core, [sent.expect("it is sent")]),
            "10.1.0.8" => assert_eq!((from_core, bypassed), (vec![packet], 1)),
            "10.1.0.9" => {
                assert_eq!(counters.drops.get(DropReason::PolicyDiscard), 1);
                assert_eq!(dropped(&before, &after), Some(4));
            }
            _ => {
                assert_eq!(counters.drops.get(DropReason::NoPolicy), 1);
                assert_eq!(dropped(&before, &after), Some(3));
            }
        }
    }
}

#[test]
fn sequence_numbers_end_and_keys_go() {
    let Some(mut core) = core("sequence_end") else {
        return;
    };
    let suite = Suite::Gcm128;
    let last = u64::from(u32::MAX);
    let tunnel = tunnel(suite, false, last - 1, |_| ());
    install_outbound(&mut core, &tunnel, suite);
    let packets = vec![inner(4, b"again"); 5];
    let sent = through(&mut core, Lane::Outbound, &packets);
    assert_eq!(
        sent.len(),
        2,
        "the last two numbers are used, and none twice"
    );
    let counters = core.counters(Lane::Outbound).expect("it answers");
    assert_eq!((counters.drops[7], counters.packets), (3, 2));
    let snapshot = core
        .snapshot(Lane::Outbound, ROW.into())
        .expect("it answers");
    assert_eq!(snapshot.sequence, last);
    let mut kinds = Vec::new();
    while let Some(event) = core.next_event().expect("it answers") {
        assert_eq!((event.lane, event.row), (Lane::Outbound, ROW));
        kinds.push(event.kind);
    }
    assert!(kinds.contains(&3), "{kinds:?}");
    core.remove(Lane::Outbound, ROW.into()).expect("a row");
    assert!(through(&mut core, Lane::Outbound, &packets).is_empty());
    let counters = core.counters(Lane::Outbound).expect("it answers");
    assert_eq!(counters.drops[6], 5);
}

#[test]
fn ivs_begin_anywhere_and_follow_the_sequence_number() {
    let Some(mut core) = core("iv") else {
        return;
    };
    for suite in Suite::ALL {
        let path = paths()[0];
        let mut tunnel = tunnel(suite, true, 1, |parameters| parameters.path = path);
        install_outbound(&mut core, &tunnel, suite);
        let common = &tunnel.outbound_sa.common;
        let iv_base = 0xfedc_ba98_7654_3210;
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let row = sa::OutboundSaRow {
            iv_base,
            ..sa::OutboundSaRow::new(common.spi, true, local, remote)
        };
        core.install_outbound(ROW.into(), &row, &device_key(suite))
            .expect("a row");
        // The policies still mean the SA before.
        let packets: Vec<_> = (0..5).map(|n| inner(4 + n % 2 * 2, &[n; 99])).collect();
        assert!(through(&mut core, Lane::Outbound, &packets).is_empty());
        protect(&mut core);
        let frames = through(&mut core, Lane::Outbound, &packets);
        for ((sequence, frame), packet) in (1u64..).zip(&frames).zip(&packets) {
            assert_eq!(frame[28..36], (iv_base ^ sequence).to_be_bytes());
            assert_eq!(opened(&mut tunnel, frame, path).as_ref(), Ok(packet));
        }
        assert_eq!(frames.len(), packets.len());
    }
}
