//! Tests engines that are late, lost, full or side by side.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use esplanade_crypto::arena::Memory;
use esplanade_crypto::{Arena, Batch, Engine, Rejected, cpu};

use super::*;
use crate::engine_slot::STANDING_MS;
use crate::gate::{BYTES, EngineGate, JOBS, behind};

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
fn an_idle_engine_out_of_service_is_lost_at_once() {
    let gate = Arc::<EngineGate>::default();
    let [mut a, _] = pair(PairOptions {
        engines: [
            vec![EngineSource::cpu(), behind(&gate)],
            vec![EngineSource::cpu()],
        ],
        ..PairOptions::default()
    });
    a.plane.finish();
    assert_eq!(a.plane.engines()[1].get(), Health::InService);
    gate.is_out.store(true, Ordering::Relaxed);
    a.plane.finish();
    assert_eq!(a.plane.engines()[1].get(), Health::Lost);
    assert_eq!(count(&a.counters.engines_lost), 2, "each direction");
    // It stays lost while it takes nothing, and comes back afterwards.
    gate.is_open.store(true, Ordering::Relaxed);
    gate.is_out.store(false, Ordering::Relaxed);
    for now_ms in [13_000, 13_001] {
        a.at(now_ms);
        a.plane.finish();
    }
    assert_eq!(a.plane.engines()[1].get(), Health::InService);
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
    let begun_ms = a.plane.now_ms;
    a.plane.drain();
    assert_eq!(a.plane.engines()[0].get(), Health::Lost);
    let stood_ms = a.plane.now_ms - begun_ms;
    assert!(stood_ms <= STANDING_MS + 20, "{stood_ms} ms");
    assert_eq!(carry([&mut a, &mut b]), there);
}

/// An engine whose device can reach only certain memory.
#[derive(Default)]
struct Pinned {
    arenas: Mutex<HashSet<usize>>,
    done: VecDeque<Batch>,
    is_lost: Arc<AtomicBool>,
    /// Batches of the trial lie on the heap.
    elsewhere: Arc<AtomicU32>,
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
        if !arenas.contains(&batch.buffer.as_ptr().addr()) {
            self.elsewhere.fetch_add(1, Ordering::Relaxed);
        }
        cpu::process(&mut batch);
        self.done.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.done.pop_front()
    }

    fn is_out_of_service(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn arena(&self, len: usize) -> Arena {
        let page = TestMemory(vec![0; len]);
        self.arenas.lock().unwrap().insert(page.0.as_ptr().addr());
        Arena::of(Box::new(page))
    }
}

#[test]
fn packets_lie_where_their_engine_wants_them() {
    let (lost, elsewhere) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let pinned = || {
        let (is_lost, elsewhere) = (Arc::clone(&lost), Arc::clone(&elsewhere));
        EngineSource::new("pinned", move || {
            Ok(Box::new(Pinned {
                is_lost: Arc::clone(&is_lost),
                elsewhere: Arc::clone(&elsewhere),
                ..Pinned::default()
            }))
        })
    };
    let [mut a, mut b] = pair(PairOptions {
        engines: [vec![pinned()], vec![pinned()]],
        ..PairOptions::default()
    });
    let carried = |a: &mut PairSite, b: &mut PairSite| {
        for round in 0..10 {
            let there = packets(0, round * 100..round * 100 + 100);
            a.read(0, &there);
            assert_eq!(carry([&mut *a, &mut *b]), there);
        }
        elsewhere.swap(0, Ordering::Relaxed)
    };
    assert_eq!(carried(&mut a, &mut b), 0);
    // The device fails and is opened again. Its memory is another now.
    lost.store(true, Ordering::Relaxed);
    for site in [&mut a, &mut b] {
        site.plane.finish();
        assert_eq!(site.plane.engines()[0].get(), Health::Lost);
    }
    assert_eq!(carried(&mut a, &mut b), 0, "the CPU has them");
    lost.store(false, Ordering::Relaxed);
    for site in [&mut a, &mut b] {
        for now_ms in [13_000, 13_001] {
            site.at(now_ms);
            site.plane.finish();
        }
        assert_eq!(site.plane.engines()[0].get(), Health::InService);
    }
    let trials = 2 * 2;
    assert_eq!(elsewhere.load(Ordering::Relaxed), trials);
    assert_eq!(carried(&mut a, &mut b), trials, "no packet lies elsewhere");
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
