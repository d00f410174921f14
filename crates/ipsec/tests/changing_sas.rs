//! Tests inbound SAs that are replaced and removed while their packets are under way.

use std::sync::{Arc, Weak};

use crate::common::{
    POLICY, RIGHT, SlowEngine, Tunnel, address, facts, inner, key_material, parameters,
};
use esplanade_crypto::{Batch, Engine, JobStatus, KeyContext, Rejected, Transform, cpu};
use esplanade_ipsec::inbound::{Inbound, OpenedBatch};
use esplanade_ipsec::sa::{InboundSa, SaParameters};
use esplanade_ipsec::sad::GroupKey;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::{Database, DropReason};

const GCM: Transform = Transform::ESP[0];

/// The key of generation `n`.
fn key(n: u8) -> Vec<u8> {
    key_material(GCM).iter().map(|byte| byte ^ n).collect()
}

fn inbound_sa(spi: u32, generation: u8) -> Arc<InboundSa> {
    let key = key(generation);
    let parameters = SaParameters {
        selectors: crate::common::selectors(RIGHT, crate::common::LEFT),
        ..parameters(GCM, false, spi, &key)
    };
    Arc::new(InboundSa::new(parameters).expect("good keys"))
}

/// Makes an ESP packet under the key of a generation.
fn sealed(spi: u32, generation: u8, sequence: u32) -> Vec<u8> {
    let payload = inner(4, &[generation, sequence as u8]);
    let mut esp = spi.to_be_bytes().to_vec();
    esp.extend(sequence.to_be_bytes());
    esp.extend(u64::from(sequence).to_be_bytes());
    esp.extend(&payload);
    let padding = (2 - payload.len() % 4) % 4;
    esp.extend((1..=padding as u8).chain([padding as u8, 4]));
    esp.extend([0; 16]);
    let key = KeyContext::new(GCM, false, &key(generation)).expect("a good key");
    let status = cpu::seal(&key, u64::from(sequence), &mut esp);
    assert_eq!(status, JobStatus::Done);
    esp
}

/// The generation and the number of each delivered packet.
fn delivered(opened: &OpenedBatch) -> Vec<(u8, u8)> {
    let packets = opened.delivered().iter().map(|d| opened.packet(d));
    packets.map(|p| (p[p.len() - 2], p[p.len() - 1])).collect()
}

struct End {
    database: Database,
    inbound: Inbound,
}

impl End {
    fn new() -> Self {
        let Tunnel {
            database, inbound, ..
        } = Tunnel::new(GCM, false);
        Self { database, inbound }
    }

    fn install(&self, sa: &Arc<InboundSa>) {
        let installed = self.database.sad().insert(Arc::clone(sa));
        installed.expect("allocated");
    }

    fn push(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        self.inbound
            .push_copy(self.database.sad(), packet, &facts())
    }

    fn refresh(&mut self) {
        self.inbound.refresh(self.database.sad());
    }
}

#[test]
fn packets_in_the_engine_stay_with_the_sa_that_they_came_for() {
    let mut end = End::new();
    let mut engine = SlowEngine::new(8, 2);
    let spi = end.database.sad().allocate_spi().expect("room");
    let [first, second, third] = [1, 2, 3].map(|generation| inbound_sa(spi, generation));
    end.install(&first);
    assert_eq!(end.push(&sealed(spi, 1, 1)), Ok(()));
    // The SA changes within one batch.
    end.install(&second);
    for (generation, sequence) in [(2, 1), (1, 2), (2, 2)] {
        assert_eq!(end.push(&sealed(spi, generation, sequence)), Ok(()));
    }
    end.inbound.submit(&mut engine).expect("it takes it");
    // The SA changes again while that batch is in the engine.
    end.install(&third);
    assert_eq!(end.push(&sealed(spi, 3, 1)), Ok(()));
    end.inbound.submit(&mut engine).expect("it takes it");
    end.database.sad().remove(spi).expect("installed");
    end.refresh();
    assert_eq!(end.push(&sealed(spi, 3, 2)), Err(DropReason::UnknownSpi));

    assert!(end.inbound.poll(&mut engine).is_none());
    let opened = end.inbound.poll(&mut engine).expect("finished");
    assert_eq!(delivered(&opened), [(1, 1), (2, 1), (2, 2)]);
    end.inbound.recycle(opened);
    let opened = end.inbound.poll(&mut engine).expect("finished");
    assert_eq!(delivered(&opened), [(3, 1)]);
    end.inbound.recycle(opened);
    let passed = [&first, &second, &third].map(|sa| sa.common.lifetime.packets());
    assert_eq!(passed, [1, 2, 1]);
    let refused = second.common.drops.get(DropReason::AuthenticationFailed);
    assert_eq!(refused, 1, "the packet of the first, after it was replaced");
    crate::common::assert_reconciled(end.inbound.counters());
}

/// An engine that notes the keys of its batches.
struct Noting {
    engine: SlowEngine,
    keys: Vec<Weak<KeyContext>>,
}

impl Engine for Noting {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        let keys = batch.jobs.iter().map(|job| batch.keys.get(job.key));
        self.keys.extend(keys.flatten().map(Arc::downgrade));
        self.engine.submit(batch)
    }

    fn poll(&mut self) -> Option<Batch> {
        self.engine.poll()
    }
}

#[test]
fn a_removed_sa_and_its_key_live_until_its_last_batch_is_done() {
    let mut end = End::new();
    let mut engine = Noting {
        engine: SlowEngine::new(8, 1),
        keys: Vec::new(),
    };
    let spi = end.database.sad().allocate_spi().expect("room");
    let sa = inbound_sa(spi, 1);
    end.install(&sa);
    let sa = {
        let weak = Arc::downgrade(&sa);
        drop(sa);
        weak
    };
    let alive = |sa: &Weak<InboundSa>| sa.strong_count() > 0;
    assert_eq!(end.push(&sealed(spi, 1, 1)), Ok(()));
    end.database.sad().remove(spi);
    end.refresh();
    assert!(alive(&sa), "it has a packet in the batch being filled");
    end.inbound.submit(&mut engine).expect("it takes it");
    end.refresh();
    assert!(alive(&sa), "it has a packet in the engine");
    assert_eq!(engine.keys.len(), 1);

    let opened = end.inbound.poll(&mut engine).expect("finished");
    assert_eq!(delivered(&opened), [(1, 1)]);
    end.inbound.recycle(opened);
    end.refresh();
    assert!(!alive(&sa));
    assert_eq!(engine.keys[0].strong_count(), 0, "nobody has the key");
}

#[test]
fn nothing_keeps_an_sa_without_packets_under_way() {
    let mut end = End::new();
    let mut engine = SlowEngine::new(8, 1);
    let spi = end.database.sad().allocate_spi().expect("room");
    let sa = inbound_sa(spi, 1);
    end.install(&sa);
    assert_eq!(end.push(&sealed(spi, 1, 1)), Ok(()));
    end.inbound.submit(&mut engine).expect("it takes it");
    let opened = end.inbound.poll(&mut engine).expect("finished");
    end.database.sad().remove(spi);
    // The caller has the batch, which does not need the SA any more.
    end.refresh();
    assert_eq!(Arc::strong_count(&sa), 1);
    end.inbound.recycle(opened);

    let spi = end.database.sad().allocate_spi().expect("room");
    let sa = inbound_sa(spi, 2);
    end.install(&sa);
    assert_eq!(end.push(&sealed(spi, 2, 1)), Ok(()));
    end.inbound.submit(&mut engine).expect("it takes it");
    end.inbound.engine_lost();
    end.database.sad().remove(spi);
    end.refresh();
    assert_eq!(Arc::strong_count(&sa), 1);
    let lost = sa.common.drops.get(DropReason::EngineFailed);
    assert_eq!(lost, 1, "the engine's loss is counted for the SA");
}

/// There are more changes than slots, so numbers are used again. Every packet must be opened with the key that sealed
/// it.
#[test]
fn numbers_are_used_again_without_mistaking_one_sa_for_another() {
    let mut end = End::new();
    let mut engine = SlowEngine::new(3, 3);
    let spis: Vec<u32> = (0..4)
        .filter_map(|_| end.database.sad().allocate_spi())
        .collect();
    let (mut pushed, mut opened) = (Vec::new(), Vec::new());
    for round in 0..200u8 {
        for (i, &spi) in spis.iter().enumerate() {
            if (usize::from(round) + i).is_multiple_of(3) {
                end.install(&inbound_sa(spi, round));
                assert_eq!(end.push(&sealed(spi, round, 1)), Ok(()));
                pushed.push((round, 1));
            }
        }
        let _ = end.inbound.submit(&mut engine);
        while let Some(batch) = end.inbound.poll(&mut engine) {
            opened.extend(delivered(&batch));
            end.inbound.recycle(batch);
        }
    }
    while end.inbound.waiting() > 0 || opened.len() < pushed.len() {
        let _ = end.inbound.submit(&mut engine);
        while let Some(batch) = end.inbound.poll(&mut engine) {
            opened.extend(delivered(&batch));
            end.inbound.recycle(batch);
        }
    }
    assert_eq!(opened, pushed);
}

#[test]
fn an_sa_of_a_group_stays_for_its_packets() {
    let mut end = End::new();
    let mut engine = SlowEngine::new(8, 1);
    let spi = 0x0100_0001;
    let sa = inbound_sa(spi, 1);
    let group = GroupKey {
        spi,
        destination: address("233.252.0.5"),
        source: None,
    };
    let sad = end.database.sad();
    sad.insert_group(group, Arc::clone(&sa)).expect("room");
    let outer = crate::common::ipv4("192.0.2.7", "233.252.0.5", 50, 0, &[]);
    let facts = OuterFacts {
        header_len: 20,
        ..OuterFacts::new(facts().remote, false, 0)
    };
    for sequence in 1..=3 {
        let packet = [outer.clone(), sealed(spi, 1, sequence)].concat();
        let pushed = end.inbound.push_copy(sad, &packet, &facts);
        assert_eq!(pushed, Ok(()));
    }
    sad.remove_group(&group).expect("installed");
    end.inbound.submit(&mut engine).expect("it takes it");
    let opened = end.inbound.poll(&mut engine).expect("finished");
    assert_eq!(delivered(&opened), [(1, 1), (1, 2), (1, 3)]);
    end.inbound.recycle(opened);
    end.refresh();
    assert_eq!(Arc::strong_count(&sa), 1);
    assert_eq!(sa.common.policy, POLICY);
}
