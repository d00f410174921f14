//! Tests outbound SAs and their keys by number: batches keep the SAs and keys that they were made with, and nothing
//! keeps more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use crate::common::{ONE, POLICY, Tunnel, inner, ipv4, key_material, parameters, prefix};
use esplanade_crypto::{
    Arena, Batch, Engine, JobStatus, KeyContext, RejectReason, Rejected, Transform, cpu,
};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::{Outbound, WalkLimits};
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, Spd, SpdEntry};

const GCM: Transform = Transform::ESP[0];

/// An engine that holds batches until it is told to go on, and records their keys.
#[derive(Default)]
struct HoldingEngine {
    held: VecDeque<Batch>,
    goes_on: bool,
    /// The engine takes no batch now.
    is_full: bool,
    /// The engine may be late, so the walk keeps a copy of each batch.
    late: Option<File>,
    keys: Vec<Weak<KeyContext>>,
    /// The engine's arenas are longer than it was asked for.
    is_roomy: bool,
}

impl Engine for HoldingEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        if self.is_full {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        for job in &batch.jobs {
            let key = batch.keys.get(job.key).expect("the job's key");
            self.keys.push(Arc::downgrade(key));
        }
        self.held.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        let mut batch = self.held.pop_front().filter(|_| self.goes_on)?;
        cpu::process(&mut batch);
        assert!(batch.jobs.iter().all(|job| job.status == JobStatus::Done));
        Some(batch)
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.late.as_ref().map(AsFd::as_fd)
    }

    fn arena(&self, len: usize) -> Arena {
        Arena::heap(if self.is_roomy { 2 * len } else { len })
    }
}

impl HoldingEngine {
    fn keys_left(&self) -> usize {
        self.keys
            .iter()
            .filter(|key| key.strong_count() > 0)
            .count()
    }
}

/// Returns the sealed packets.
fn finish(outbound: &mut Outbound, engine: &mut HoldingEngine) -> Vec<Vec<u8>> {
    engine.goes_on = true;
    let mut sealed = Vec::new();
    while let Some(batch) = outbound.poll(engine, &Spd::default()) {
        sealed.extend(batch.trains(ONE).map(|train| train.esp.to_vec()));
        outbound.recycle(batch);
    }
    sealed
}

#[test]
fn a_removed_sa_lives_as_long_as_its_batch() {
    let mut tunnel = Tunnel::new(GCM, true);
    let mut engine = HoldingEngine::default();
    let packet = inner(4, b"under way");
    tunnel.outbound.push(&tunnel.spd, &packet).expect("room");
    tunnel.outbound.submit(&mut engine).expect("taken");
    let (spi, number) = (tunnel.outbound_sa.common.spi, tunnel.outbound_sa.number());
    let sa = Arc::downgrade(&tunnel.policy.remove(spi).expect("installed"));
    let other = Tunnel::new(GCM, true);
    tunnel.outbound_sa = Arc::clone(&other.outbound_sa);
    tunnel.outbound.sweep_flows(usize::MAX);
    assert!(sa.upgrade().is_some() && engine.keys_left() == 1);
    let later: Vec<_> = (0..100).map(|_| Tunnel::new(GCM, true)).collect();
    assert!(later.iter().all(|t| t.outbound_sa.number() != number));
    let sealed = finish(&mut tunnel.outbound, &mut engine);
    assert!(sa.upgrade().is_none() && engine.keys_left() == 0);
    assert_eq!(tunnel.open(&sealed), [packet]);
}

/// A batch that its copy does not hold is lost with the engine. Nobody seals other bytes under its numbers.
#[test]
fn a_batch_without_a_whole_copy_is_dropped_with_its_engine() {
    for (packets, dropped) in [(100, 0), (300, 300)] {
        let mut tunnel = Tunnel::new(GCM, true);
        let mut engine = HoldingEngine {
            late: Some(File::open("/dev/null").expect("there")),
            is_roomy: true,
            ..HoldingEngine::default()
        };
        tunnel.outbound.use_arenas_of(&engine);
        for _ in 0..packets {
            let packet = inner(4, &[0x5a; 1000]);
            tunnel.outbound.push(&tunnel.spd, &packet).expect("room");
        }
        tunnel.outbound.submit(&mut engine).expect("taken");
        tunnel.outbound.engine_lost();
        let drops = &tunnel.outbound.counters().drops;
        assert_eq!(drops.get(DropReason::EngineFailed), dropped);
        assert_eq!(tunnel.outbound.waiting() > 0, dropped == 0);
    }
}

/// The copy of a batch for which a late engine had no room is for later use. It keeps no key.
#[test]
fn a_refused_batch_leaves_no_key_behind() {
    let mut tunnel = Tunnel::new(GCM, true);
    let mut engine = HoldingEngine {
        late: Some(File::open("/dev/null").expect("there")),
        ..HoldingEngine::default()
    };
    let push = |outbound: &mut Outbound| outbound.push(&tunnel.spd, &inner(4, b"one"));
    push(&mut tunnel.outbound).expect("room");
    tunnel.outbound.submit(&mut engine).expect("taken");
    push(&mut tunnel.outbound).expect("room");
    engine.is_full = true;
    let refused = tunnel.outbound.submit(&mut engine);
    assert_eq!(refused, Err(RejectReason::Full));
    engine.is_full = false;
    assert_eq!(finish(&mut tunnel.outbound, &mut engine).len(), 1);
    tunnel.outbound.submit(&mut engine).expect("taken");
    assert_eq!(finish(&mut tunnel.outbound, &mut engine).len(), 1);
    let spi = tunnel.outbound_sa.common.spi;
    drop(tunnel.policy.remove(spi));
    tunnel.outbound_sa = Arc::clone(&Tunnel::new(GCM, true).outbound_sa);
    tunnel.outbound.sweep_flows(usize::MAX);
    assert_eq!(engine.keys_left(), 0);
}

#[test]
fn an_sa_of_waiting_packets_is_not_let_go() {
    let mut tunnel = Tunnel::new(GCM, true);
    let mut engine = HoldingEngine::default();
    tunnel
        .outbound
        .push(&tunnel.spd, &inner(4, b"waiting"))
        .expect("room");
    tunnel.policy.remove(tunnel.outbound_sa.common.spi);
    tunnel.outbound.sweep_flows(usize::MAX);
    tunnel.outbound.submit(&mut engine).expect("taken");
    assert_eq!(finish(&mut tunnel.outbound, &mut engine).len(), 1);
    assert!(Arc::strong_count(&tunnel.outbound_sa) > 1);
    tunnel.outbound.sweep_flows(usize::MAX);
    assert_eq!(Arc::strong_count(&tunnel.outbound_sa), 1);
}

fn host(n: u8) -> AddressRange {
    AddressRange::host([10, 2, 0, n].into())
}

/// Makes a policy with one SA per host.
fn hosts(count: u8) -> (Arc<Policy>, Spd) {
    let policy = Arc::new(Policy::new(POLICY, "hosts"));
    let key = key_material(GCM);
    let left = prefix("10.1.0.0/16");
    for n in 0..count {
        let mut parameters = parameters(GCM, true, 0x1000 + u32::from(n), &key);
        let selector = Selector::between(left, host(n));
        parameters.selectors = SelectorSet::new(vec![selector]).expect("one");
        let sa = OutboundSa::new(parameters).expect("good keys");
        policy.install(Arc::new(sa));
    }
    let selector = Selector::between(left, prefix("10.2.0.0/16"));
    let selectors = SelectorSet::new(vec![selector]).expect("one");
    let protect = Action::Protect(Arc::clone(&policy));
    let spd = Spd::new(vec![SpdEntry::new(selectors, protect)]);
    (policy, spd)
}

#[test]
fn flows_that_give_way_take_nothing_from_their_batch() {
    let (policy, spd) = hosts(200);
    let mut outbound = Outbound::new(WalkLimits::default()).with_flows(8);
    let mut engine = HoldingEngine::default();
    for round in 0..3 {
        for n in 0..200 {
            let to = format!("10.2.0.{n}");
            let packet = ipv4("10.1.0.7", &to, 17, 0, &[n; 20]);
            outbound.push(&spd, &packet).expect("room");
        }
        outbound.submit(&mut engine).expect("taken");
        // The batch of the first round is still in the engine.
        if round > 0 {
            outbound.sweep_flows(usize::MAX);
        }
    }
    let sealed = finish(&mut outbound, &mut engine);
    let spis: HashSet<&[u8]> = sealed.iter().map(|esp| &esp[..4]).collect();
    assert_eq!((sealed.len(), spis.len()), (600, 200));
    // Eight flows still have an SA, and no other SA is kept.
    outbound.sweep_flows(usize::MAX);
    let kept = |sa: &&Arc<OutboundSa>| Arc::strong_count(sa) > 2;
    let sas = policy.outbound_sas();
    assert!(sas.iter().filter(kept).count() <= 8);
    drop(sas);
    for n in 0..200 {
        policy.remove(0x1000 + n);
    }
    outbound.sweep_flows(usize::MAX);
    assert_eq!(engine.keys_left(), 0);
}

#[test]
fn a_round_of_all_sets_lets_go_of_what_is_removed() {
    let (policy, spd) = hosts(200);
    // The size is rounded up to 128 sets of eight.
    let mut outbound = Outbound::new(WalkLimits::default()).with_flows(600);
    let mut engine = HoldingEngine::default();
    for n in 0..200 {
        let packet = ipv4("10.1.0.7", &format!("10.2.0.{n}"), 17, 0, &[n; 20]);
        outbound.push(&spd, &packet).expect("room");
    }
    outbound.submit(&mut engine).expect("taken");
    assert_eq!(finish(&mut outbound, &mut engine).len(), 200);
    for n in 0..200 {
        policy.remove(0x1000 + n);
    }
    for _ in 1..outbound.flow_sets() {
        outbound.sweep_flows(1);
    }
    assert!(engine.keys_left() > 0, "one set is left");
    outbound.sweep_flows(1);
    assert_eq!(engine.keys_left(), 0);
}

#[test]
fn an_sa_without_a_flow_is_kept_for_its_packets() {
    let mut tunnel = Tunnel::new(GCM, true);
    let mut engine = HoldingEngine::default();
    let sa = Arc::clone(&tunnel.outbound_sa);
    let before = Arc::strong_count(&sa);
    for _ in 0..3 {
        tunnel.outbound.push_dummy(&sa, 64).expect("room");
    }
    tunnel.outbound.submit(&mut engine).expect("taken");
    assert_eq!(finish(&mut tunnel.outbound, &mut engine).len(), 3);
    assert!(Arc::strong_count(&sa) > before);
    tunnel.outbound.sweep_flows(usize::MAX);
    assert_eq!(Arc::strong_count(&sa), before);
}

/// A number passes to another SA with another key, while the walk and its tables stay.
#[test]
fn a_number_never_stands_for_the_key_of_a_former_sa() {
    let (policy, spd) = hosts(1);
    let mut outbound = Outbound::new(WalkLimits::default());
    let packet = ipv4("10.1.0.7", "10.2.0.0", 17, 0, &[0; 20]);
    let mut reused = HashSet::new();
    let mut rounds = 0;
    let mut used = key_material(GCM);
    for n in 0..50u32 {
        let mut engine = HoldingEngine::default();
        outbound.push(&spd, &packet).expect("room");
        outbound.submit(&mut engine).expect("taken");
        let sa = policy.outbound_sa().expect("one");
        rounds += u32::from(!reused.insert(sa.number()));
        let mut key = key_material(GCM);
        key[0] = n as u8;
        let mut parameters = parameters(GCM, true, 0x2000 + n, &key);
        parameters.selectors = sa.common.selectors.clone();
        policy.install(Arc::new(OutboundSa::new(parameters).expect("good keys")));
        drop(sa);
        outbound.sweep_flows(usize::MAX);
        let mut sealed = finish(&mut outbound, &mut engine);
        let context = KeyContext::new(GCM, true, &used).expect("good keys");
        assert_eq!(cpu::open(&context, 1, &mut sealed[0]), JobStatus::Done);
        used = key;
        outbound.sweep_flows(usize::MAX);
        assert_eq!(engine.keys_left(), 0, "round {n}");
    }
    assert!(rounds > 0, "no number came back");
}

/// Key forms by slot, as a device keeps them that all workers share.
#[derive(Default)]
struct Device {
    forms: HashMap<u32, (u32, Vec<u8>)>,
    made: usize,
}

/// A worker's access to the device.
struct OfDevice {
    device: Arc<Mutex<Device>>,
    inside: VecDeque<Batch>,
}

impl Device {
    /// The form in the key's slot. It is made anew if it belongs to a former key.
    fn form(&mut self, key: &KeyContext) -> &[u8] {
        let slot = key.slot();
        let known = self.forms.get(&slot.index);
        if known.is_none_or(|(generation, _)| *generation != slot.generation) {
            let form = key.material().expose().to_vec();
            self.forms.insert(slot.index, (slot.generation, form));
            self.made += 1;
        }
        &self.forms[&slot.index].1
    }
}

impl Engine for OfDevice {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        let mut device = self.device.lock().expect("no panic");
        for job in &batch.jobs {
            let key = batch.keys.get(job.key).expect("the job's key");
            assert_eq!(device.form(key), key.material().expose());
        }
        cpu::process(&mut batch);
        self.inside.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.inside.pop_front()
    }
}

#[test]
fn workers_share_a_device_and_no_key_is_another_ones() {
    const HOSTS: u8 = 8;
    let (policy, spd) = hosts(HOSTS);
    let device = Arc::<Mutex<Device>>::default();
    let mut workers = [(), ()].map(|()| {
        let engine = OfDevice {
            device: Arc::clone(&device),
            inside: VecDeque::new(),
        };
        (Outbound::new(WalkLimits::default()), engine)
    });
    let rounds = 20;
    for round in 0..rounds {
        for (outbound, engine) in &mut workers {
            for n in 0..HOSTS {
                let to = format!("10.2.0.{n}");
                let packet = ipv4("10.1.0.7", &to, 17, 0, &[n; 20]);
                outbound.push(&spd, &packet).expect("room");
            }
            outbound.submit(engine).expect("taken");
            while let Some(batch) = outbound.poll(engine, &spd) {
                assert_eq!(batch.trains(ONE).count(), usize::from(HOSTS));
                outbound.recycle(batch);
            }
        }
        // All SAs are rekeyed, and the slots of their keys are free again.
        for n in 0..HOSTS {
            let mut key = key_material(GCM);
            key[..2].copy_from_slice(&[round + 1, n]);
            let spi = 0x3000 + u32::from(round) * 256 + u32::from(n);
            let mut parameters = parameters(GCM, true, spi, &key);
            let selector = Selector::between(prefix("10.1.0.0/16"), host(n));
            parameters.selectors = SelectorSet::new(vec![selector]).expect("one");
            policy.install(Arc::new(OutboundSa::new(parameters).expect("good keys")));
        }
        for (outbound, _) in &mut workers {
            outbound.sweep_flows(usize::MAX);
        }
    }
    let device = device.lock().expect("no panic");
    let keys = usize::from(HOSTS) * usize::from(rounds);
    assert_eq!(device.made, keys, "each once, for both workers");
    assert!(device.forms.len() < keys, "slots were used again");
}
