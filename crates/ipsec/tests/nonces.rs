//! Asserts that no sequence number, and so no nonce, is used twice with one key. The tests run every script of engine
//! behaviour up to a length, with two workers that share the SA.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use crate::common::{
    LEFT, POLICY, RIGHT, Tunnel, assert_reconciled, inner, key_material, parameters, selectors,
};
use esplanade_crypto::iana::Encryption;
use esplanade_crypto::{Batch, Engine, JobStatus, RejectReason, Rejected, Transform, cpu};
use esplanade_ipsec::outbound::{Outbound, TrainLimits, WalkLimits};
use esplanade_ipsec::sa::{OutboundSa, SaParameters};
use esplanade_ipsec::selector::SelectorSet;
use esplanade_ipsec::spd::{Action, Policy, Spd, SpdEntry};

/// The engine's behaviour with the next batch that it is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Seals,
    /// The engine refuses for now, and the walk offers the same batch again.
    Full,
    /// The engine refuses for ever: the batch is dropped, and the engine is replaced.
    Dies,
    /// The engine takes the batch, seals its first half, and gives up the rest.
    FailsHalfway,
    /// The engine takes the batch and is lost with it.
    IsLost,
}

const BEHAVIOURS: [Behaviour; 5] = [
    Behaviour::Seals,
    Behaviour::Full,
    Behaviour::Dies,
    Behaviour::FailsHalfway,
    Behaviour::IsLost,
];

/// The record of all sealing: the sequence number and IV of one key, and the plaintext with them.
#[derive(Default)]
struct Seen {
    plaintexts: HashMap<(u64, Vec<u8>), Vec<u8>>,
}

impl Seen {
    /// Records that an engine processes the first `jobs` jobs of `batch` from here on. No job may be processed twice.
    fn enters(&mut self, batch: &Batch, jobs: usize) {
        for job in batch.jobs.iter().take(jobs) {
            let packet = &batch.buffer[job.esp as usize..(job.esp + job.len) as usize];
            let iv = packet[8..16].to_vec();
            assert_eq!(
                iv,
                job.sequence.to_be_bytes(),
                "the IV is the sequence number"
            );
            assert_eq!(packet[4..8], (job.sequence as u32).to_be_bytes());
            let former = self
                .plaintexts
                .insert((job.sequence, iv), packet[16..].to_vec());
            assert!(
                former.is_none(),
                "number {} entered an engine twice",
                job.sequence
            );
        }
    }
}

struct Scripted {
    seen: Arc<Mutex<Seen>>,
    script: Vec<Behaviour>,
    done: Vec<Batch>,
    lost: bool,
}

impl Engine for Scripted {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        let reject = |batch, reason| Err(Rejected { batch, reason });
        let behaviour = self.script.pop().unwrap_or(Behaviour::Seals);
        let mut seen = self.seen.lock().expect("no panic before");
        match behaviour {
            _ if self.lost => return reject(batch, RejectReason::OutOfService),
            Behaviour::Full => return reject(batch, RejectReason::Full),
            Behaviour::Dies => {
                self.lost = true;
                return reject(batch, RejectReason::OutOfService);
            }
            Behaviour::IsLost => {
                seen.enters(&batch, usize::MAX);
                self.lost = true;
                return Ok(());
            }
            Behaviour::Seals => {
                seen.enters(&batch, usize::MAX);
                cpu::process(&mut batch);
            }
            Behaviour::FailsHalfway => {
                let half = batch.jobs.len() / 2;
                seen.enters(&batch, half);
                let mut rest = batch.jobs.split_off(half);
                cpu::process(&mut batch);
                rest.iter_mut()
                    .for_each(|job| job.status = JobStatus::Malformed);
                batch.jobs.append(&mut rest);
            }
        }
        self.done.push(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        (!self.done.is_empty()).then(|| self.done.remove(0))
    }
}

struct Worker {
    walk: Outbound,
    engine: Scripted,
}

impl Worker {
    fn new(seen: &Arc<Mutex<Seen>>, script: &[Behaviour]) -> Self {
        let limits = WalkLimits {
            buffer_len: 4096,
            jobs_max: 4,
            batches_max: 3,
        };
        Self {
            walk: Outbound::new(limits),
            engine: Scripted {
                seen: Arc::clone(seen),
                script: script.iter().rev().copied().collect(),
                done: Vec::new(),
                lost: false,
            },
        }
    }

    /// Runs one round: some packets, one offer to the engine, and its result. Returns the sequence numbers that went
    /// out.
    fn round(&mut self, spd: &Spd, packets: usize) -> Vec<u32> {
        for n in 0..packets {
            // A batch that waits for a full engine has no room for more, so those packets are dropped.
            let _ = self.walk.push(spd, &inner(4, &[n as u8; 20]));
        }
        if self.walk.submit(&mut self.engine) == Err(RejectReason::OutOfService) {
            // The fallback begins with the next batch. The batches of the lost engine are gone.
            self.walk.engine_lost();
            self.engine.lost = false;
            self.engine.script.clear();
        }
        let mut sent = Vec::new();
        while let Some(sealed) = self.walk.poll(&mut self.engine, spd) {
            let one = TrainLimits {
                segments: 1,
                bytes: 65_535,
            };
            for train in sealed.trains(one) {
                sent.push(u32::from_be_bytes(
                    train.esp[4..8].try_into().expect("four"),
                ));
            }
            self.walk.recycle(sealed);
        }
        sent
    }
}

fn run(script: &[Behaviour]) {
    let transform = Transform::from_name("AES_GCM_16_128").expect("registered");
    let key = key_material(transform);
    let sa = OutboundSa::new(SaParameters {
        esn: true,
        ..parameters(transform, true, 0x1000, &key)
    });
    let policy = Arc::new(Policy::new(POLICY, "site"));
    policy.install(Arc::new(sa.expect("good keys")));
    let set: SelectorSet = selectors(LEFT, RIGHT);
    let spd = Spd::new(vec![SpdEntry::new(set, Action::Protect(policy))]);
    let seen = Arc::default();
    // The second worker runs the script backwards.
    let backwards: Vec<_> = script.iter().rev().copied().collect();
    let mut workers = [Worker::new(&seen, script), Worker::new(&seen, &backwards)];
    let mut sent = Vec::new();
    for round in 0..script.len() + 2 {
        for worker in &mut workers {
            sent.extend(worker.round(&spd, 2 + round % 2));
        }
    }
    for worker in &workers {
        assert_reconciled(worker.walk.counters());
    }
    let count = sent.len();
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent.len(), count, "a number was sent twice: {script:?}");
    assert!(!sent.is_empty(), "the fallback sends: {script:?}");
    let seen = seen.lock().expect("no panic before");
    assert!(
        sent.iter()
            .all(|&n| seen.plaintexts.keys().any(|(m, _)| *m == u64::from(n)))
    );
}

#[test]
fn no_engine_failure_makes_a_nonce_enter_an_engine_twice() {
    const LEN: u32 = 4;
    let count = BEHAVIOURS.len();
    for number in 0..count.pow(LEN) {
        let behaviour = |i| BEHAVIOURS[number / count.pow(i) % count];
        run(&(0..LEN).map(behaviour).collect::<Vec<_>>());
    }
}

/// More of them than are drawn at once. An IV of CBC must also be unpredictable, so it is no counter.
#[test]
fn no_iv_of_cbc_comes_again() {
    let is_cbc = |transform: &Transform| transform.encryption() == Some(Encryption::AesCbc);
    let transform = Transform::ESP.into_iter().find(is_cbc).expect("AES-CBC");
    let mut tunnel = Tunnel::new(transform, false);
    let mut ivs = HashSet::new();
    for _ in 0..75 {
        for esp in tunnel.seal(&vec![inner(4, b"the same"); 8]) {
            let iv: [u8; 16] = *esp[8..].first_chunk().expect("an IV");
            assert!(iv.iter().any(|byte| *byte != 0));
            assert!(ivs.insert(iv), "{iv:?} came before");
        }
    }
    assert_eq!(ivs.len(), 600);
}
