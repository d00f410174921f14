//! Tests engines that are late, lost, tried again, or wrong.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use esplanade_crypto::{Batch, JobStatus, Rejected, cpu};

use super::*;

/// The behaviour of the engines of a device.
#[derive(Debug, Default)]
struct FakeDevice {
    answers: AtomicBool,
    lies: AtomicBool,
    opened: Mutex<u32>,
}

struct FakeEngine {
    device: Arc<FakeDevice>,
    inside: VecDeque<Batch>,
}

impl Engine for FakeEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        self.inside.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if !self.device.answers.load(Ordering::Relaxed) {
            return None;
        }
        let mut batch = self.inside.pop_front()?;
        cpu::process(&mut batch);
        if self.device.lies.load(Ordering::Relaxed) {
            let last = batch.jobs.iter().rfind(|job| job.status == JobStatus::Done);
            let at = last.map_or(0, |job| job.esp as usize);
            batch.buffer[at] ^= 1;
        }
        Some(batch)
    }
}

fn slot(device: &Arc<FakeDevice>, direction: Direction) -> (EngineSlot, EngineHealth) {
    let health = EngineHealth::default();
    let device = Arc::clone(device);
    let source = EngineSource::new("device", move || {
        *device.opened.lock().unwrap() += 1;
        Ok(Box::new(FakeEngine {
            device: Arc::clone(&device),
            inside: VecDeque::new(),
        }))
    });
    let slot = EngineSlot::new(source, direction, health.clone()).unwrap();
    (slot, health)
}

fn set(flag: &AtomicBool, value: bool) {
    flag.store(value, Ordering::Relaxed);
}

#[test]
fn a_late_engine_is_suspect_before_it_is_lost() {
    let (mut slot, health) = slot(&Arc::default(), Direction::Seal);
    slot.moved(1000);
    assert!(!slot.is_late(0, LATE_MS, 9000), "nothing is inside");
    assert!(!slot.is_late(1, LATE_MS, 1000 + SUSPECT_MS));
    assert_eq!(health.get(), Health::InService);
    assert!(!slot.is_late(1, LATE_MS, 1001 + SUSPECT_MS));
    assert_eq!(health.get(), Health::Suspect);
    slot.moved(1200);
    assert_eq!(health.get(), Health::InService);
    assert!(!slot.is_late(1, LATE_MS, 1201 + STANDING_MS));
    assert!(slot.is_late(1, STANDING_MS, 1201 + STANDING_MS));
    assert!(slot.is_late(1, LATE_MS, 1201 + LATE_MS));
    assert!(slot.replace(3000));
    assert_eq!(health.get(), Health::Lost);
    slot.moved(3001);
    assert_eq!(health.get(), Health::Lost, "it is the CPU that answers");
    assert!(!slot.replace(3001), "the CPU is in its place already");
}

#[test]
fn a_lost_engine_comes_back_when_it_passes() {
    for direction in [Direction::Seal, Direction::Open] {
        let device = Arc::<FakeDevice>::default();
        let (mut slot, health) = slot(&device, direction);
        assert!(slot.replace(1000));
        assert!(!slot.comes_back(1000 + REST_MS), "it rests");
        assert_eq!(*device.opened.lock().unwrap(), 1);

        // The first trial gets no answer.
        let mut now = 1001 + REST_MS;
        assert!(!slot.comes_back(now));
        assert_eq!(*device.opened.lock().unwrap(), 2);
        now += LATE_MS + 1;
        assert!(!slot.comes_back(now));

        // The second trial returns a wrong byte.
        set(&device.answers, true);
        set(&device.lies, true);
        now += REST_MS + 1;
        assert!(!slot.comes_back(now) && !slot.comes_back(now));
        assert_eq!(health.get(), Health::Lost);

        set(&device.lies, false);
        assert!(!slot.comes_back(now + REST_MS), "it rests again");
        now += REST_MS + 1;
        assert!(!slot.comes_back(now));
        assert!(slot.comes_back(now), "{direction:?}");
        assert_eq!(*device.opened.lock().unwrap(), 4);
        assert_eq!(health.get(), Health::InService);
        assert!(!slot.comes_back(now + 10 * REST_MS), "it is there");
        assert!(slot.replace(now), "and can be lost again");
    }
}
