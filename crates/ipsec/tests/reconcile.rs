//! Asserts that every packet is accounted for, per SA and in total: in = out + bypassed + drops + in flight. It must
//! hold at every moment, whatever the traffic is and whatever the engine does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::{DeadEngine, SlowEngine};
use esplanade_crypto::{Engine, JobStatus, KeyContext, RejectReason, Transform, cpu};
use esplanade_ipsec::drop_reason::WalkCounters;
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::outbound::{Outbound, Outcome, ReserveRefused, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, Spd, SpdEntry};
use esplanade_ipsec::{Database, DropReason};
use esplanade_testkit::net::Rng;

const SAS: usize = 3;
const STEPS: usize = 400;
const LIMITS: WalkLimits = WalkLimits {
    buffer_len: 8 * 1024,
    jobs_max: 8,
    batches_max: 3,
};

fn transform(index: usize) -> Transform {
    let names = [
        "AES_GCM_16_128",
        "AES_CBC_128/HMAC_SHA1_96",
        "CHACHA20_POLY1305",
    ];
    Transform::from_name(names[index]).expect("a transform")
}

fn selectors(local: &str, remote: &str) -> SelectorSet {
    let pair = Selector::between(crate::common::prefix(local), crate::common::prefix(remote));
    SelectorSet::new(vec![pair]).expect("one")
}

fn limits(index: usize) -> LifetimeLimits {
    LifetimeLimits {
        packets_hard: (index == 2).then_some(60),
        ..LifetimeLimits::default()
    }
}

/// The batches in the engine: for each, the number of packets of every SA.
#[derive(Default)]
struct Flight {
    filling: [u64; SAS],
    submitted: VecDeque<[u64; SAS]>,
}

impl Flight {
    fn of(&self, sa: usize) -> u64 {
        self.filling[sa] + self.submitted.iter().map(|batch| batch[sa]).sum::<u64>()
    }

    /// Records the engine's answer to a batch.
    fn submitted(&mut self, result: Result<(), RejectReason>) {
        let batch = std::mem::take(&mut self.filling);
        match result {
            Ok(()) if batch != [0; SAS] => self.submitted.push_back(batch),
            Ok(()) => {}
            Err(_) => self.filling = batch,
        }
    }

    fn total(&self) -> u64 {
        (0..SAS).map(|sa| self.of(sa)).sum()
    }
}

fn assert_total(counters: &WalkCounters, in_flight: u64) {
    let accounted = counters.packets_out.load(Relaxed)
        + counters.packets_bypassed.load(Relaxed)
        + counters.drops.total()
        + in_flight;
    assert_eq!(counters.packets_in.load(Relaxed), accounted, "{counters:?}");
}

/// Submits to a slow engine, which is dead for a while.
fn submit(rng: &mut Rng, slow: &mut SlowEngine, mut give: impl FnMut(&mut dyn Engine)) {
    match rng.below(12) {
        0 => give(&mut DeadEngine),
        _ => give(slow),
    }
}

#[test]
fn inbound_packets_are_accounted_for() {
    for seed in 0..20 {
        inbound(&mut Rng::new(seed));
    }
}

fn inbound(rng: &mut Rng) {
    let database = Database::new();
    let mut sas = Vec::new();
    let mut keys = Vec::new();
    for index in 0..SAS {
        let spi = database.sad().allocate_spi().expect("an empty SAD");
        let key = crate::common::key_material(transform(index));
        let remote = format!("10.2.{index}.0/24");
        let sa = InboundSa::new(SaParameters {
            selectors: selectors("10.1.0.0/16", &remote),
            lifetime: limits(index),
            ..crate::common::parameters(transform(index), false, spi, &key)
        });
        let sa = Arc::new(sa.expect("good keys"));
        database.sad().insert(Arc::clone(&sa)).expect("allocated");
        keys.push(KeyContext::new(transform(index), false, &key).expect("good keys"));
        sas.push(sa);
    }
    let mut walk = Inbound::new(LIMITS);
    let mut engine = SlowEngine::new(2, 3);
    let (mut flight, mut arrived, mut delivered) = (Flight::default(), [0; SAS], [0; SAS]);
    for step in 0..STEPS {
        let sa = rng.below(SAS as u64) as usize;
        let number = 1 + step as u32 / 2 + rng.below(3) as u32;
        let spi = sas[sa].common.spi;
        let mut packet = sealed(&keys[sa], spi, number, sa, rng);
        let known = !rng.chance(0.05);
        if !known {
            packet[3] ^= 0x40;
        }
        if walk.has_room() {
            arrived[sa] += u64::from(known);
            let pushed = walk.push_copy(database.sad(), &packet, &crate::common::facts());
            flight.filling[sa] += u64::from(pushed.is_ok());
        }
        if rng.chance(0.3) {
            submit(rng, &mut engine, |engine| {
                let result = walk.submit(engine);
                flight.submitted(result);
            });
        }
        if rng.chance(0.02) {
            walk.engine_lost();
            flight.submitted.clear();
            engine = SlowEngine::new(2, 3);
        }
        if let Some(opened) = walk.poll(&mut engine) {
            flight.submitted.pop_front();
            for packet in opened.delivered() {
                // The inner source says which SA the packet came through.
                delivered[usize::from(opened.packet(packet)[14])] += 1;
            }
            walk.recycle(opened);
        }
        assert_total(walk.counters(), flight.total());
        for (index, sa) in sas.iter().enumerate() {
            let accounted = delivered[index] + sa.common.drops.total() + flight.of(index);
            assert_eq!(
                arrived[index], accounted,
                "SA {index}: {:?}",
                sa.common.drops
            );
        }
    }
    assert!(delivered.iter().all(|&packets| packets > 0));
    assert!(walk.counters().drops.get(DropReason::EngineFailed) > 0);
}

/// Makes a packet of this SA. Some packets do not open, or must not pass.
fn sealed(key: &KeyContext, spi: u32, number: u32, sa: usize, rng: &mut Rng) -> Vec<u8> {
    let from = if rng.chance(0.1) {
        "10.3.0.1"
    } else {
        &format!("10.2.{sa}.7")
    };
    let inner = crate::common::ipv4(from, "10.1.0.9", 17, 0, &[0; 20]);
    let transform = key.transform();
    let mut esp = [spi.to_be_bytes(), number.to_be_bytes()].concat();
    esp.resize(8 + transform.iv_len(), 0x33);
    esp.extend(&inner);
    let padding = (inner.len() + 2).next_multiple_of(transform.block_align()) - inner.len() - 2;
    esp.extend((1..=padding).map(|byte| byte as u8));
    esp.extend([padding as u8, 4]);
    esp.resize(esp.len() + transform.icv_len(), 0);
    assert_eq!(cpu::seal(key, number.into(), &mut esp), JobStatus::Done);
    if rng.chance(0.1) {
        let at = 8 + rng.below(esp.len() as u64 - 8) as usize;
        esp[at] ^= 1;
    }
    if rng.chance(0.05) {
        esp.pop();
    }
    esp
}

#[test]
fn outbound_packets_are_accounted_for() {
    for seed in 0..20 {
        outbound(&mut Rng::new(seed));
    }
}

fn outbound(rng: &mut Rng) {
    let (mut sas, mut entries) = (Vec::new(), Vec::new());
    for index in 0..SAS {
        let key = crate::common::key_material(transform(index));
        let chosen = selectors("10.1.0.0/16", &format!("10.2.{index}.0/24"));
        let sa = OutboundSa::new(SaParameters {
            selectors: chosen.clone(),
            lifetime: limits(index),
            ..crate::common::parameters(transform(index), false, 0x1000 + index as u32, &key)
        });
        let sa = Arc::new(sa.expect("good keys"));
        let policy = Arc::new(Policy::new(crate::common::POLICY, "site"));
        policy.install(Arc::clone(&sa));
        entries.push(SpdEntry::new(chosen, Action::Protect(policy)));
        sas.push(sa);
    }
    entries.push(SpdEntry::new(
        selectors("10.1.0.0/16", "10.9.0.0/16"),
        Action::Bypass,
    ));
    let spd = Spd::new(entries);
    let mut walk = Outbound::new(LIMITS);
    let mut engine = SlowEngine::new(2, 3);
    let (mut flight, mut chosen, mut sent) = (Flight::default(), [0; SAS], [0; SAS]);
    for _ in 0..STEPS {
        let net = rng.below(SAS as u64 + 1) as usize;
        let to = if rng.chance(0.1) {
            "10.9.0.1"
        } else {
            &format!("10.2.{net}.7")
        };
        let mut packet = crate::common::ipv4("10.1.0.9", to, 17, 0, &[0; 20]);
        if rng.chance(0.05) {
            packet[8] ^= 1;
        }
        let before: Vec<u64> = sas.iter().map(|sa| sa.common.drops.total()).collect();
        match walk.push(&spd, &packet) {
            Ok(Outcome::Protect(sa)) => {
                let index = (sa.common.spi - 0x1000) as usize;
                chosen[index] += 1;
                flight.filling[index] += 1;
            }
            // An SA that refuses a packet counts it too.
            Ok(Outcome::Dropped(_)) => {
                for (index, sa) in sas.iter().enumerate() {
                    chosen[index] += sa.common.drops.total() - before[index];
                }
            }
            Ok(Outcome::Bypass) | Err(ReserveRefused::BatchFull) => {}
            Err(ReserveRefused::Dropped(reason)) => panic!("push says {reason} as an outcome"),
        }
        if rng.chance(0.3) {
            submit(rng, &mut engine, |engine| {
                let result = walk.submit(engine);
                flight.submitted(result);
            });
        }
        if rng.chance(0.02) {
            walk.engine_lost();
            flight.submitted.clear();
            engine = SlowEngine::new(2, 3);
        }
        if let Some(sealed) = walk.poll(&mut engine, &spd) {
            let batch = flight.submitted.pop_front().expect("it was submitted");
            let packets = sealed.trains(crate::common::ONE).count() as u64;
            assert_eq!(
                packets,
                batch.iter().sum::<u64>(),
                "all of the batch is sealed"
            );
            (0..SAS).for_each(|index| sent[index] += batch[index]);
            walk.recycle(sealed);
        }
        assert_total(walk.counters(), flight.total());
        for (index, sa) in sas.iter().enumerate() {
            let accounted = sent[index] + sa.common.drops.total() + flight.of(index);
            assert_eq!(
                chosen[index], accounted,
                "SA {index}: {:?}",
                sa.common.drops
            );
        }
    }
    assert!(sent.iter().all(|&packets| packets > 0));
    assert!(walk.counters().drops.get(DropReason::EngineFailed) > 0);
    assert!(walk.counters().drops.get(DropReason::LifetimeExpired) > 0);
}
