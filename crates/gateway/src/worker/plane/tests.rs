//! Tests the packet path between two data planes, without a host around them.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use esplanade_crypto::arena::Memory;
use esplanade_crypto::{Arena, Batch, Engine, EngineInfo, RejectReason, Rejected, Transform, cpu};
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::pmtu::Evidence;
use esplanade_ipsec::tunnel::DfPolicy;
use proptest::prelude::*;

use super::*;
use crate::io::checksum::{fold, length_term, pseudo_header};
use crate::io::sys::EventFd;
use crate::io::virtio::{GsoKind, VnetHeader};
use crate::worker::packet_io::{ReceiveSocket, SendSocket, TunQueue};
use crate::worker::pair::{
    CLEAR_PORT, CLOSED_PORT, PairOptions, PairSite, balance, ipv4, pair, seal_header, udp, whole,
};

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Makes packets of many lengths, each with its number.
fn packets(from: usize, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let payload = |number: u32| {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(4 + (number as usize * 37) % 1200, number as u8);
        payload
    };
    numbers
        .map(|number| udp(from, 7000, &payload(number)))
        .collect()
}

/// Carries what one site sent to the other. Returns what the other wrote.
fn carry([from, to]: [&mut PairSite; 2]) -> Vec<Vec<u8>> {
    for datagrams in from.take_sent().chunks(64) {
        to.receive(datagrams);
    }
    to.take_written()
}

#[test]
fn the_sweep_goes_with_time() {
    assert_eq!(swept(8192, 0), 0);
    assert_eq!(swept(8192, 1), SWEPT);
    assert_eq!(swept(8192, 10), 10 * SWEPT);
    assert_eq!(swept(8192, u64::MAX), SWEPT_MAX);
    // A round stays within its time for every configured number of flows.
    for flows in [1024, 600_000, 1_100_000] {
        let sets = Outbound::new(WalkLimits::default())
            .with_flows(flows)
            .flow_sets();
        assert!(sets * 8 >= flows, "{flows}: {sets} sets");
        assert!(swept(sets, 1) * ROUND_MS >= sets, "{flows}: {sets} sets");
    }
}

#[test]
fn packets_come_out_as_they_went_in() {
    for transform in Transform::ESP {
        for udp_encap in [true, false] {
            let [mut a, mut b] = pair(PairOptions {
                transform,
                udp_encap,
                ..PairOptions::default()
            });
            let there = packets(0, 0..300);
            a.read(0, &there);
            let send_socket = if udp_encap {
                SendSocket::NatT(0)
            } else {
                SendSocket::Esp(0)
            };
            assert!(
                a.plane
                    .io
                    .sent
                    .iter()
                    .all(|sent| sent.send_socket == send_socket)
            );
            assert_eq!(carry([&mut a, &mut b]), there, "{transform}");
            let back = packets(1, 0..300);
            b.read(0, &back);
            assert_eq!(carry([&mut b, &mut a]), back, "{transform}");
        }
    }
}

/// The peer sends as soon as its IKE response is on the way. Here the SA has another engine than
/// packets without an SA have.
#[test]
fn packets_wait_for_an_sa_that_ike_has_offered() {
    let [mut a, mut b] = pair(PairOptions {
        engines: [
            vec![EngineSource::cpu()],
            vec![EngineSource::cpu(), EngineSource::cpu()],
        ],
        early: true,
        ..PairOptions::default()
    });
    let there = packets(0, 0..20);
    a.read(0, &there);
    assert!(carry([&mut a, &mut b]).is_empty());
    assert!(b.plane.timeout() <= Duration::from_millis(EARLY_MS));
    b.plane.follow_early(|_, _, _| false);
    assert!(b.take_written().is_empty());
    b.database
        .placements()
        .place(&b.inbound.common.placement, 1);
    b.database.sad().insert(Arc::clone(&b.inbound)).unwrap();
    b.plane.follow_early(|_, _, _| false);
    assert_eq!(b.take_written(), there);
    assert!(b.plane.timeout() > Duration::from_millis(EARLY_MS));
    assert_eq!(count(&b.counters.early_packets), 20);
    let (given, counted) = balance(&b.plane.walk_counters()[1]);
    assert_eq!((given, counted), (20, 20));
    // An exchange that fails gives its SPI up.
    a.read(0, &there);
    carry([&mut a, &mut b]);
    assert!(!b.plane.has_early());
}

#[test]
fn a_super_segment_is_cut_and_put_together() {
    let [mut a, mut b] = pair(PairOptions::default());
    let mut packet = ipv4(0, 6, 40 + 30_000);
    packet.extend([
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 255, 255,
    ]);
    // The kernel leaves the sum of the pseudo-header in the checksum field.
    let pseudo = pseudo_header(&packet[12..20], 6) + length_term(20 + 30_000);
    packet.extend(fold(pseudo).to_ne_bytes());
    packet.extend([0, 0]);
    packet.extend((0..30_000u32).map(|at| (at * 7) as u8));
    let header = VnetHeader {
        gso: Some((GsoKind::TcpV4, 1300)),
        checksum: Some((20, 16)),
        header_len: 40,
    };
    a.read_as(0, &header, &packet);
    a.plane.seal_and_send();
    let counters = a.plane.walk_counters();
    assert_eq!(count(&counters[0].packets_out), 30_000u64.div_ceil(1300));
    assert_eq!(a.plane.io.sent.len(), 1, "one send for all");
    let out = carry([&mut a, &mut b]);
    assert_eq!(out.len(), 1, "one write for all");
    assert_eq!(out[0][40..], packet[40..]);
}

#[test]
fn what_is_not_protected_is_let_out_or_dropped() {
    let processing = Processing {
        report_discards: true,
        ..Processing::default()
    };
    let [mut a, _] = pair(PairOptions {
        processing,
        ..PairOptions::default()
    });
    let (clear, closed) = (udp(0, CLEAR_PORT, b"clear"), udp(0, CLOSED_PORT, b"closed"));
    a.read(0, [&clear, &closed]);
    assert_eq!(a.plane.io.bypassed, [clear]);
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(a.outbound_drops(DropReason::PolicyDiscard), 1);
    // RFC 792: the sender gets an error (type 3, code 13) by the queue of its worker.
    let [told] = &a.plane.io.written[..] else {
        panic!("{:?}", a.plane.io.written);
    };
    assert_eq!((told.port, told.queue), (0, TunQueue::Own));
    assert_eq!(told.packet[9], 1);
    assert_eq!(told.packet[20..22], [3, 13]);
    // One read is no packet, and the other has no policy in the SPD.
    let mut strange = udp(0, 7000, b"strange");
    strange[16] = 172;
    seal_header(&mut strange);
    a.read(0, [&vec![0x45; 10], &strange]);
    assert_eq!(a.outbound_drops(DropReason::MalformedInner), 1);
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 1);
}

#[test]
fn ports_are_kept_apart() {
    let [mut a, mut b] = pair(PairOptions::default());
    // The SPD has entries for the common port only.
    a.read(1, &packets(0, 0..3));
    assert_eq!(a.outbound_drops(DropReason::NoPolicy), 3);
    let there = packets(0, 3..6);
    a.read(0, &there);
    assert_eq!(carry([&mut a, &mut b]), there);
}

#[test]
fn ike_is_for_others() {
    let [_, mut b] = pair(PairOptions::default());
    let ike = [&[0; 4][..], &[0x11; 28]].concat();
    b.receive(&[&ike[..], &[0xff], &[1, 2], &[]]);
    let [datagram] = &b.ike[..] else {
        panic!("{:?}", b.ike);
    };
    assert_eq!(datagram.payload, ike, "with its marker");
    assert_eq!(datagram.local.to_string(), "192.0.2.2:4500");
    assert_eq!(datagram.remote.to_string(), "192.0.2.1:4500");
    assert_eq!(count(&b.counters.keepalives), 1);
    assert_eq!(count(&b.counters.runts), 2);
    // The IKE port receives nothing else.
    let received = b.write_down(&[&[0x22; 28][..]]);
    let bound = "0.0.0.0:500".parse().unwrap();
    let mut told = Vec::new();
    b.plane
        .handle_outer(ReceiveSocket::Ike(bound), &received, |ike| told.push(ike));
    assert_eq!(told[0].payload, [0x22; 28]);
    assert_eq!(told[0].local.to_string(), "192.0.2.2:500");
}

#[test]
fn long_packets_are_cut_or_their_senders_told() {
    let [mut a, mut b] = pair(PairOptions {
        df: DfPolicy::Set,
        ..PairOptions::default()
    });
    let remote = a.outbound.common.path().remote.ip();
    a.paths.learn(remote, 1000, Evidence::Local, 1000).unwrap();
    let long = udp(0, 7000, &[5; 1200]);
    a.read(0, [&whole(long.clone())]);
    assert_eq!(a.outbound_drops(DropReason::TooBig), 1);
    assert!(a.plane.io.sent.is_empty());
    let told = a.take_written();
    assert_eq!(told[0][20..22], [3, 4], "fragmentation needed");
    let mtu = u16::from_be_bytes([told[0][26], told[0][27]]);
    assert!((900..1000).contains(&mtu), "{mtu}");

    // The sender permits fragmentation, but the policy forbids it after encryption.
    a.read(0, [&long]);
    let out = carry([&mut a, &mut b]);
    assert_eq!(out.len(), 2);
    assert_eq!([&out[0][20..], &out[1][20..]].concat(), long[20..]);
    assert_eq!(count(&a.counters.fragmented), 1);
    let (given, counted) = balance(&a.plane.walk_counters()[0]);
    assert_eq!(given, counted);
}

/// RFC 4301 §7.4: a port selector makes the plane put datagrams together.
#[test]
fn fragments_that_make_no_datagram_are_refused() {
    let processing = Processing {
        reassemble: true,
        ..Processing::default()
    };
    let [mut a, _] = pair(PairOptions {
        processing,
        ..PairOptions::default()
    });
    // `at` is where the data begins, in units of eight bytes; more fragments follow.
    let fragment = |identification: u8, at: u8| {
        let mut packet = ipv4(0, 17, 20 + 64);
        packet[5] = identification;
        packet[6..8].copy_from_slice(&[0x20, at]);
        seal_header(&mut packet);
        packet.extend([1; 64]);
        packet
    };
    a.read(0, [&fragment(1, 0), &fragment(1, 8)]);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 0);
    // This fragment overlaps the second one.
    a.read(0, [&fragment(1, 12)]);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 1);

    // No other fragment of this datagram comes.
    a.read(0, [&fragment(2, 0)]);
    a.at(120_000);
    a.plane.finish();
    assert_eq!(count(&a.counters.reassembly_timeouts), 1);
    assert_eq!(a.outbound_drops(DropReason::FragmentRefused), 2);
    assert!(a.plane.io.sent.is_empty());
}

#[test]
fn what_nothing_serves_is_counted() {
    let [mut a, _] = pair(PairOptions::default());
    a.plane.io.is_shut = true;
    a.read(0, &packets(0, 0..5));
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(count(&a.counters.send_errors), 5);
}

/// Controls the engines of a device. They return nothing while the gate is closed.
#[derive(Default)]
struct EngineGate {
    is_open: AtomicBool,
    /// Only every third poll returns a batch.
    is_slow: AtomicBool,
    looks: AtomicU32,
    batches: AtomicU32,
    /// The time for which batches wait for more packets, in microseconds.
    wait_us: AtomicU64,
}

struct GatedEngine {
    gate: Arc<EngineGate>,
    inside: VecDeque<Batch>,
    ready: EventFd,
}

const DEPTH: usize = 2;
const JOBS: usize = 128;
const BYTES: usize = 1 << 16;

impl Engine for GatedEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        if self.inside.len() == DEPTH {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        self.inside.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if !self.gate.is_open.load(Ordering::Relaxed) {
            return None;
        }
        let is_slow = self.gate.is_slow.load(Ordering::Relaxed);
        if is_slow && self.gate.looks.fetch_add(1, Ordering::Relaxed) % 3 < 2 {
            return None;
        }
        let mut batch = self.inside.pop_front()?;
        cpu::process(&mut batch);
        self.gate.batches.fetch_add(1, Ordering::Relaxed);
        Some(batch)
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn info(&self) -> EngineInfo {
        EngineInfo {
            depth: DEPTH,
            jobs: JOBS,
            bytes: BYTES,
            wait: Duration::from_micros(self.gate.wait_us.load(Ordering::Relaxed)),
        }
    }
}

fn behind(gate: &Arc<EngineGate>) -> EngineSource {
    let gate = Arc::clone(gate);
    EngineSource::new("behind", move || {
        Ok(Box::new(GatedEngine {
            gate: Arc::clone(&gate),
            inside: VecDeque::new(),
            ready: EventFd::new()?,
        }))
    })
}

#[test]
fn a_late_engine_holds_packets_back_and_loses_none() {
    let gates = [Arc::<EngineGate>::default(), Arc::default()];
    let [mut a, mut b] = pair(PairOptions {
        engines: gates.each_ref().map(|gate| vec![behind(gate)]),
        ..PairOptions::default()
    });
    assert_eq!(a.plane.io.watched, [1, 1]);
    let mut there = Vec::new();
    while a.plane.can_seal() {
        let next = packets(0, there.len() as u32..there.len() as u32 + 1);
        a.read(0, &next);
        there.extend(next);
    }
    assert!(a.plane.paused().outbound && !a.plane.paused().inbound);
    assert!(a.plane.io.sent.is_empty());
    let timeout = Duration::from_millis(SUSPECT_MS);
    assert_eq!(a.plane.timeout(), timeout, "the engine will tell");
    gates[0].is_open.store(true, Ordering::Relaxed);
    // The engine's descriptor would wake the worker here.
    a.plane.seal_and_send();
    assert!(!a.plane.paused().outbound);

    let (sent, mut out) = (a.take_sent(), Vec::new());
    assert_eq!(sent.len(), there.len());
    for datagrams in sent.chunks(20) {
        if b.plane.room().is_none() {
            assert!(b.plane.paused().inbound);
            gates[1].is_open.store(true, Ordering::Relaxed);
            b.plane.open_and_deliver();
            gates[1].is_open.store(false, Ordering::Relaxed);
        }
        b.receive(datagrams);
    }
    gates[1].is_open.store(true, Ordering::Relaxed);
    b.plane.open_and_deliver();
    out.extend(b.take_written());
    assert_eq!(out, there);
}

#[test]
fn what_a_lost_engine_had_is_done_by_the_cpu() {
    let gates = [Arc::<EngineGate>::default(), Arc::default()];
    let [mut a, mut b] = pair(PairOptions {
        engines: gates.each_ref().map(|gate| vec![behind(gate)]),
        ..PairOptions::default()
    });
    let there = packets(0, 0..50);
    a.read(0, &there);
    a.at(1000 + SUSPECT_MS + 1);
    a.plane.finish();
    assert_eq!(a.plane.engines()[0].get(), Health::Suspect);
    assert!(a.plane.io.sent.is_empty());
    a.at(2002);
    a.plane.finish();
    assert_eq!(a.plane.engines()[0].get(), Health::Lost);
    assert_eq!(count(&a.counters.engines_lost), 1);

    let sent = a.take_sent();
    assert_eq!(sent.len(), there.len());
    b.receive(&sent);
    assert!(b.take_written().is_empty());
    b.at(2002);
    b.plane.finish();
    assert_eq!(b.take_written(), there);
    // The gates were never opened.
    assert!(
        gates
            .iter()
            .all(|gate| gate.batches.load(Ordering::Relaxed) == 0)
    );

    // The engine passes its trial and is in service again.
    gates[0].is_open.store(true, Ordering::Relaxed);
    for now_ms in [13_000, 13_001] {
        a.at(now_ms);
        a.plane.finish();
    }
    assert_eq!(a.plane.engines()[0].get(), Health::InService);
    assert_eq!(a.plane.io.watched, [2, 1]);
    a.read(0, &packets(0, 50..60));
    assert_eq!(a.take_sent().len(), 10);
    assert_eq!(
        gates[0].batches.load(Ordering::Relaxed),
        2,
        "trial, packets"
    );
}

#[test]
fn a_packet_without_room_waits_for_the_engine_but_not_for_ever() {
    let gate = Arc::<EngineGate>::default();
    let [mut a, mut b] = pair(PairOptions {
        engines: [vec![behind(&gate)], vec![EngineSource::cpu()]],
        ..PairOptions::default()
    });
    // All batches are full, although there was room for a read.
    let mut there = Vec::new();
    while a.plane.can_seal() {
        let next = packets(0, there.len() as u32..there.len() as u32 + 1);
        a.read_as(0, &VnetHeader::default(), &next[0]);
        there.extend(next);
    }
    // Before an SA moves, its packets must leave. The worker waits until the engine is given up.
    a.plane.io.pause_ns = 10_000_000;
    a.plane.drain();
    assert_eq!(a.plane.engines()[0].get(), Health::Lost);
    assert_eq!(carry([&mut a, &mut b]), there);
}

/// An engine whose device can reach only certain memory.
#[derive(Default)]
struct Pinned {
    arenas: Mutex<HashSet<usize>>,
    done: VecDeque<Batch>,
}

struct TestMemory(Vec<u8>);

impl Memory for TestMemory {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Engine for Pinned {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        let arenas = self.arenas.lock().unwrap();
        assert!(arenas.contains(&batch.buffer.as_ptr().addr()));
        cpu::process(&mut batch);
        self.done.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.done.pop_front()
    }

    fn arena(&self, len: usize) -> Arena {
        let page = TestMemory(vec![0; len]);
        self.arenas.lock().unwrap().insert(page.0.as_ptr().addr());
        Arena::of(Box::new(page))
    }
}

#[test]
fn packets_lie_where_their_engine_wants_them() {
    let engines = [(), ()].map(|()| {
        let pinned = EngineSource::new("pinned", || Ok(Box::<Pinned>::default()));
        vec![pinned]
    });
    let [mut a, mut b] = pair(PairOptions {
        engines,
        ..PairOptions::default()
    });
    for round in 0..10 {
        let there = packets(0, round * 100..round * 100 + 100);
        a.read(0, &there);
        assert_eq!(carry([&mut a, &mut b]), there);
    }
}

/// Makes sites whose engines want many packets at a time and answer at once.
fn patient(wait_us: u64) -> ([Arc<EngineGate>; 2], [PairSite; 2]) {
    let gates = [Arc::<EngineGate>::default(), Arc::default()];
    for gate in &gates {
        gate.is_open.store(true, Ordering::Relaxed);
        gate.wait_us.store(wait_us, Ordering::Relaxed);
    }
    let engines = gates.each_ref().map(|gate| vec![behind(gate)]);
    let sites = pair(PairOptions {
        engines,
        ..PairOptions::default()
    });
    (gates, sites)
}

#[test]
fn a_small_batch_waits_for_more_but_not_for_long() {
    let (gates, [mut a, mut b]) = patient(50);
    let begun_ns = 5_000_000_000;
    let there = packets(0, 0..3);
    a.at_ns(begun_ns);
    a.read(0, &there[..1]);
    assert_eq!(a.plane.timeout(), Duration::from_micros(50));
    a.at_ns(begun_ns + 30_000);
    a.read(0, &there[1..]);
    a.plane.finish();
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(a.plane.timeout(), Duration::from_micros(20));
    a.at_ns(begun_ns + 50_000);
    a.plane.finish();
    let sent = a.take_sent();
    assert_eq!(sent.len(), 3);
    assert_eq!(gates[0].batches.load(Ordering::Relaxed), 1);
    assert_eq!(a.plane.timeout(), Duration::from_secs(1));

    b.at_ns(begun_ns);
    for datagram in &sent {
        b.receive(&[datagram]);
    }
    assert!(!b.plane.paused().inbound, "more may join");
    assert_eq!(b.plane.timeout(), Duration::from_micros(50));
    b.at_ns(begun_ns + 50_000);
    b.plane.finish();
    assert_eq!(b.take_written(), there);
    assert_eq!(gates[1].batches.load(Ordering::Relaxed), 1);
}

#[test]
fn enough_packets_or_bytes_wait_for_nothing() {
    let (gates, [mut a, mut b]) = patient(u64::from(u32::MAX));
    let batches = |gate: usize| gates[gate].batches.load(Ordering::Relaxed);
    let short: Vec<_> = (0..JOBS).map(|_| udp(0, 7000, b"short")).collect();
    a.read(0, &short[1..]);
    assert_eq!(batches(0), 0);
    a.read(0, &short[..1]);
    assert_eq!(batches(0), 1);
    let sent = a.take_sent();
    b.receive(&sent[..JOBS - 1]);
    assert_eq!(batches(1), 0);
    b.receive(&sent[JOBS - 1..]);
    assert_eq!(batches(1), 1);

    let long = udp(0, 7000, &[7; 1400]);
    a.read(0, vec![&long; BYTES / 1500 - 5]);
    assert_eq!(batches(0), 1);
    a.read(0, vec![&long; 10]);
    assert_eq!(batches(0), 2);
}

#[test]
fn what_is_due_waits_for_a_full_engine_without_haste() {
    let (gates, [mut a, _]) = patient(50);
    gates[0].is_open.store(false, Ordering::Relaxed);
    let begun_ns = 5_000_000_000;
    for round in 0..3 {
        a.at_ns(begun_ns + round * 100_000);
        a.read(0, &packets(0, 0..1));
        a.at_ns(begun_ns + round * 100_000 + 60_000);
        a.plane.finish();
    }
    // Two batches are in the engine. The third is due, and the engine will signal when it has room.
    assert!(a.plane.io.sent.is_empty());
    assert_eq!(a.plane.timeout(), Duration::from_millis(SUSPECT_MS));
    gates[0].is_open.store(true, Ordering::Relaxed);
    a.plane.seal_and_send();
    assert_eq!(a.take_sent().len(), 3);
}

#[test]
fn what_waits_for_more_goes_before_its_sa_moves() {
    let gate = Arc::<EngineGate>::default();
    gate.is_open.store(true, Ordering::Relaxed);
    gate.wait_us.store(u64::from(u32::MAX), Ordering::Relaxed);
    let [mut a, mut b] = pair(PairOptions {
        engines: [
            vec![behind(&gate), EngineSource::cpu()],
            vec![EngineSource::cpu()],
        ],
        ..PairOptions::default()
    });
    let there = packets(0, 0..10);
    a.read(0, &there[..5]);
    assert!(a.plane.io.sent.is_empty());
    let placement = &a.outbound.common.placement;
    a.database.placements().place(placement, 1);
    a.read(0, &there[5..]);
    assert_eq!(carry([&mut a, &mut b]), there);
}

#[test]
fn a_moved_sa_keeps_its_order() {
    let gates = [Arc::<EngineGate>::default(), Arc::default()];
    let [mut a, mut b] = pair(PairOptions {
        engines: gates
            .each_ref()
            .map(|gate| vec![EngineSource::cpu(), behind(gate)]),
        ..PairOptions::default()
    });
    for gate in &gates {
        gate.is_open.store(true, Ordering::Relaxed);
        gate.is_slow.store(true, Ordering::Relaxed);
    }
    let (mut there, mut out) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let engine = (round % 2) as u8;
        let to = &a.outbound.common.placement;
        a.database.placements().place(to, engine);
        let to = &b.inbound.common.placement;
        b.database.placements().place(to, 1 - engine);
        let next = packets(0, round * 50..round * 50 + 50);
        a.read(0, &next);
        there.extend(next);
        out.extend(carry([&mut a, &mut b]));
    }
    a.plane.drain();
    out.extend(carry([&mut a, &mut b]));
    b.plane.drain_inbound();
    out.extend(b.take_written());
    assert_eq!(out, there);
    for gate in gates {
        assert!(gate.batches.load(Ordering::Relaxed) >= 10);
    }
}

#[test]
fn silence_is_filled_when_it_is_time() {
    let [mut a, mut b] = pair(PairOptions::default());
    let sa = Arc::clone(&a.outbound);
    let interval_ms = 100;
    let (_publish, published) = watch::channel(DummySas::from([DummySa { sa, interval_ms }]));
    a.plane.dummies = Some(DummyScheduler::new(published));
    a.at(1001);
    a.plane.finish();
    assert_eq!(a.plane.timeout(), Duration::from_millis(100));
    a.at(1101);
    a.plane.finish();
    assert_eq!(carry([&mut a, &mut b]), Vec::<Vec<u8>>::new());
    assert_eq!(b.inbound_drops(DropReason::Dummy), 1);
}

/// A thing that happens to a datagram on its way.
#[derive(Clone, Debug)]
enum Tampering {
    Whole,
    Lost,
    Twice,
    Flipped(usize),
    Cut(usize),
}

fn way() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        3 => Just(Tampering::Whole),
        1 => Just(Tampering::Lost),
        1 => Just(Tampering::Twice),
        1 => any::<usize>().prop_map(Tampering::Flipped),
        1 => any::<usize>().prop_map(Tampering::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_comes_is_protected_opened_or_counted(
        reads in proptest::collection::vec(
            prop_oneof![
                (0u32..4000).prop_map(|number| packets(0, number..number + 1).remove(0)),
                proptest::collection::vec(any::<u8>(), 0..200),
            ],
            0..40,
        ),
        headers in proptest::collection::vec(any::<[u8; 10]>(), 0..4),
        ways in proptest::collection::vec(way(), 64),
        udp_encap in any::<bool>(),
    ) {
        let [mut a, mut b] = pair(PairOptions { udp_encap, ..PairOptions::default() });
        let spd = a.database.spd();
        for (number, read) in reads.iter().enumerate() {
            let plain = VnetHeader::default().encode();
            let header = headers.get(number).unwrap_or(&plain);
            a.plane.handle_inner(&spd, 0, &mut [&header[..], read].concat());
        }
        a.plane.seal_and_send();
        let [outbound, _] = a.plane.walk_counters();
        let (given, counted) = balance(&outbound);
        prop_assert_eq!(given, counted);
        let sent = a.take_sent();
        prop_assert_eq!(sent.len() as u64, count(&outbound.packets_out));
        // One receive takes this many datagrams, and each ESP packet is counted.
        let (mut datagrams, mut unaltered) = (Vec::new(), 0);
        for (datagram, way) in sent.iter().zip(&ways) {
            let mut altered = datagram.clone();
            match *way {
                Tampering::Lost => continue,
                Tampering::Whole => {}
                Tampering::Twice => datagrams.push(datagram.clone()),
                Tampering::Flipped(at) => altered[at % datagram.len()] ^= 1 << (at % 8),
                Tampering::Cut(at) => altered.truncate(at % datagram.len()),
            }
            unaltered += u64::from(matches!(way, Tampering::Whole | Tampering::Twice));
            datagrams.push(altered);
        }
        b.receive(&datagrams);
        let [_, inbound] = b.plane.walk_counters();
        let (given, counted) = balance(&inbound);
        prop_assert_eq!(given, counted);
        prop_assert_eq!(count(&inbound.packets_out), unaltered);
        let others = b.ike.len() as u64 + count(&b.counters.runts) + count(&b.counters.keepalives);
        prop_assert_eq!(given + others, datagrams.len() as u64);
        prop_assert!(b.take_written().len() as u64 <= unaltered);
    }
}
