//! Tests of the balancer against models of a worker and a GPU.

mod simulation;

use proptest::prelude::*;

use super::*;
use simulation::{Course, World};

const LIMITS: ShareLimits = ShareLimits {
    latency: Duration::from_millis(1),
    threshold: 80,
};

/// Looks in a minute.
const MINUTE: usize = 600;

fn world() -> World {
    World::new(vec![1.0; 40])
}

#[test]
fn the_cpu_alone_carries_a_small_load() {
    for load in [0.01, 0.1, 0.5, 0.75] {
        let mut course = Course::new(world().with_load(load));
        course.run(MINUTE);
        assert_eq!(course.balancer.report().moves, 0, "{load}");
    }
}

#[test]
fn a_large_load_finds_its_place_soon() {
    for (load, gpu) in [(1.5, 4.0), (3.0, 4.0), (8.0, 20.0)] {
        let world = world().with_load(load).with_gpu(gpu, 100);
        let best = world.best(LIMITS);
        let mut course = Course::new(world);
        course.run(50);
        let passed = course.run(20);
        assert!(passed >= 0.97 * best, "{load}, {gpu}: {passed} of {best}");
    }
}

#[test]
fn a_slow_device_is_left_at_once_and_tried_seldom() {
    // A device that runs its kernels on the CPU, for one peer: each half is much of the load.
    for parts in [vec![1.0], vec![1.0, 0.9], vec![1.0; 40]] {
        for batch_us in [2_000, 20_000, 400_000] {
            let world = World::new(parts.clone()).with_load(3.0);
            let world = world.with_gpu(0.05, batch_us);
            let cpu = world.flowing(|_| false).passed;
            let mut course = Course::new(world);
            // The first minutes have the first trial, which nothing has paid for yet.
            course.run(2 * MINUTE);
            let before = course.balancer.report();
            let passed = course.run(5 * MINUTE);
            let trials = course.balancer.report().trials - before.trials;
            assert!(trials <= 6, "{batch_us}: {trials} trials");
            assert!(passed >= 0.97 * cpu, "{batch_us}: {passed} of {cpu}");
        }
    }
}

#[test]
fn a_device_that_fails_loses_its_share_and_begins_anew() {
    let mut course = Course::new(world().with_load(3.0).with_gpu(10.0, 100));
    course.run(MINUTE);
    assert!(course.on_gpu.contains(&true));
    course.world.in_service = false;
    course.run(1);
    assert!(!course.on_gpu.contains(&true));
    let moves = course.balancer.report().moves;
    course.run(MINUTE);
    assert!(!course.balancer.report().in_service);
    assert_eq!(
        course.balancer.report().moves,
        moves,
        "it is out of service"
    );
    course.world.in_service = true;
    course.run(1);
    assert!(course.balancer.report().in_service);
    assert!(!course.on_gpu.contains(&true));
    let best = course.world.best(LIMITS);
    course.run(MINUTE);
    let passed = course.run(100);
    assert!(passed >= 0.97 * best, "{passed} of {best}");
}

#[test]
fn a_batch_that_is_late_now_and_then_ends_nothing() {
    let mut world = world().with_load(3.0).with_gpu(10.0, 100);
    world.hiccups = Some(20);
    let best = world.best(LIMITS);
    let mut course = Course::new(world);
    course.run(2 * MINUTE);
    let passed = course.run(MINUTE);
    assert!(passed >= 0.97 * best, "{passed} of {best}");
}

#[test]
fn the_cpu_takes_back_what_it_can_carry() {
    let mut course = Course::new(world().with_load(3.0).with_gpu(10.0, 100));
    course.run(MINUTE);
    assert!(course.balancer.report().percent > 50);
    course.world = course.world.clone().with_load(0.3);
    course.run(100);
    assert!(!course.on_gpu.contains(&true));
}

#[test]
fn elephants_go_first() {
    let mut parts = vec![1.0; 200];
    parts[150] = 30.0;
    let mut course = Course::new(World::new(parts).with_load(0.85).with_gpu(10.0, 100));
    course.run(20);
    let moved: Vec<_> = (0..200).filter(|half| course.on_gpu[*half]).collect();
    assert_eq!(moved, [150]);
}

#[test]
fn a_half_begins_where_the_one_is_that_it_replaces() {
    let mut course = Course::new(world().with_load(3.0).with_gpu(10.0, 100));
    course.run(MINUTE);
    let there = course.on_gpu.iter().position(|on_gpu| *on_gpu).unwrap();
    let before = course.balancer.report();
    assert!(course.balancer.add(1000, Some(there)));
    course.balancer.remove(there);
    let report = course.balancer.report();
    assert_eq!(
        (report.on_gpu, report.halves, report.percent),
        (before.on_gpu, before.halves, before.percent)
    );
    assert!(!course.balancer.add(1001, None));
    for half in 0..1002 {
        course.balancer.remove(half);
    }
    assert!(course.balancer.is_empty());
    assert_eq!(course.balancer.report().on_gpu, 0);
}

#[test]
fn a_step_takes_few_of_very_many() {
    let mut halves = Halves::default();
    for half in 0..20_000u64 {
        halves.add(half, None);
        halves.measure(half, 0, Duration::ZERO);
        halves.measure(half, half, Duration::from_secs(1));
    }
    let chosen = halves.largest_on_cpu(1.0);
    assert_eq!(chosen.len(), 4096);
    assert!(chosen.iter().all(|half| *half >= 20_000 - 4096));
    for half in 0..20_000 {
        halves.place(half, true);
    }
    let chosen = halves.smallest_on_gpu(1.0);
    assert_eq!(chosen.len(), 4096);
    assert!(chosen.iter().all(|half| *half < 4096));
}

#[test]
fn every_half_is_looked_at_in_turn() {
    let mut balancer = Balancer::new(LIMITS);
    for half in 0..10 {
        balancer.add(half, None);
    }
    let mut seen: Vec<_> = (0..5).flat_map(|_| balancer.next_halves(4)).collect();
    balancer.remove(seen[19]);
    assert_eq!(balancer.next_halves(100).len(), 9);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

/// Worlds of many kinds: loads, elephants, good and bad devices.
fn worlds() -> impl Strategy<Value = World> {
    let halves = (1usize..40, 0.0..1.5f64, 0.0..0.3f64);
    let load = (-4.0..2.0f64).prop_map(f64::exp2);
    let gpu = (
        (-5.0..4.0f64).prop_map(f64::exp2),
        (4.0..19.0f64).prop_map(f64::exp2),
    );
    let costs = (0.05..0.7f64, 0.0..1.3f64, 0.0..0.01f64);
    (halves, load, gpu, costs).prop_map(|((count, skew, fixed), load, (gpu, batch_us), costs)| {
        let (io, copy, noise) = costs;
        let parts = (1..=count).map(|rank| (rank as f64).powf(-skew));
        let world = World {
            io,
            crypto: 1.0 - io,
            copy: copy * (1.0 - io),
            fixed: (count as f64 * fixed) as usize,
            noise,
            ..World::new(parts.collect())
        };
        world.with_load(load).with_gpu(gpu, batch_us as u64)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_better_of_both_alone_is_never_missed(world in worlds()) {
        let best = world.best(LIMITS);
        let mut course = Course::new(world);
        course.run(2 * MINUTE);
        let before = course.balancer.report();
        let passed = course.run(4 * MINUTE);
        let report = course.balancer.report();
        prop_assert!(passed >= 0.97 * best, "{} of {best}: {report:?} after {before:?}", passed);
        // Nothing swings to and fro.
        prop_assert!(report.trials - before.trials <= 60, "{report:?} after {before:?}");
    }

    #[test]
    fn a_load_that_changes_costs_little(
        world in worlds(),
        loads in proptest::collection::vec(((-4.0..2.0f64).prop_map(f64::exp2), 50usize..200), 2..6),
    ) {
        let (mut passed, mut alone) = (0.0, 0.0);
        let mut course = Course::new(world.clone());
        for (load, looks) in loads {
            course.world = world.clone().with_load(load);
            alone += course.world.flowing(|_| false).passed * looks as f64;
            passed += course.run(looks) * looks as f64;
        }
        prop_assert!(passed >= 0.90 * alone, "{passed} of {alone}");
    }
}

/// A full worker passes little more than before, even if far more packets come.
#[test]
fn a_worker_that_becomes_full_is_worth_another_trial() {
    let load = |passed, is_full| Before { passed, is_full };
    let mut patience = Patience::default();
    let second = Duration::from_secs(1);
    patience.in_vain(load(100.0, false), second);
    patience.follow(load(120.0, false));
    assert_eq!(patience.until(), second + PAUSE);
    patience.follow(load(120.0, true));
    assert_eq!(
        (patience.until(), patience.vain.failures),
        (Duration::ZERO, 0)
    );
    // Another load says nothing of a device that is late.
    patience.late(second);
    patience.in_vain(load(100.0, false), second);
    patience.follow(load(120.0, true));
    assert_eq!(patience.until(), second + LATE_PAUSE);
}

#[test]
fn pauses_double_up_to_the_longest() {
    let mut pauses = Pauses::default();
    let (mut now, mut pause) = (Duration::ZERO, PAUSE);
    for _ in 0..20 {
        pauses.fail(PAUSE, now);
        assert_eq!(pauses.until, now + pause);
        (now, pause) = (pauses.until, (2 * pause).min(PAUSE_MAX));
    }
}

/// The end of a trial, or time without one.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Vain,
    Late,
    Success,
    Good(u64),
}

fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Vain),
        3 => Just(Outcome::Late),
        1 => Just(Outcome::Success),
        1 => (0u64..200).prop_map(Outcome::Good),
    ];
    proptest::collection::vec(outcome, 0..60)
}

proptest! {
    #[test]
    fn pauses_follow_their_own_failures_and_good_time_heals(outcomes in outcomes()) {
        let load = Before { passed: 100.0, is_full: true };
        let longest = |first: Duration, failures: u32| {
            first.saturating_mul(1 << (failures - 1).min(16)).min(PAUSE_MAX)
        };
        let mut patience = Patience::default();
        let (mut now, mut vain, mut late) = (Duration::ZERO, 0, 0);
        for outcome in outcomes {
            // No trial begins during a pause.
            now = now.max(patience.until());
            match outcome {
                Outcome::Vain => {
                    let other = patience.late.until;
                    patience.in_vain(load, now);
                    vain += 1;
                    let pause = patience.vain.until - now;
                    prop_assert!(pause >= PAUSE && pause <= longest(PAUSE, vain), "{pause:?}");
                    prop_assert_eq!(patience.late.until, other);
                }
                Outcome::Late => {
                    let other = patience.vain.until;
                    patience.late(now);
                    late += 1;
                    let pause = patience.late.until - now;
                    prop_assert!(pause >= LATE_PAUSE && pause <= longest(LATE_PAUSE, late), "{pause:?}");
                    prop_assert_eq!(patience.vain.until, other);
                }
                Outcome::Success => drop(patience.succeed(now)),
                Outcome::Good(seconds) => now += Duration::from_secs(seconds),
            }
        }
        let left = patience.vain.failures.max(patience.late.failures);
        prop_assert!(left <= vain.max(late));
        now = now.max(patience.until()) + GOOD_TIME * left;
        patience.in_vain(load, now);
        prop_assert_eq!(patience.vain.until, now + PAUSE);
        patience.late(now);
        prop_assert_eq!(patience.late.until, now + LATE_PAUSE);
    }
}

#[test]
fn an_adopted_half_stays_where_it_is() {
    let mut course = Course::new(world().with_load(0.3).with_gpu(10.0, 100));
    assert!(course.balancer.adopt(1000, true) && !course.balancer.adopt(1001, false));
    assert!(course.balancer.adopt(1000, false), "it is known");
    assert_eq!(course.balancer.report().on_gpu, 1);
}

#[test]
fn a_load_that_ends_costs_no_trial() {
    let mut balancer = Balancer::<u8>::new(LIMITS);
    balancer.add(1, None);
    balancer.trial = Some(Trial {
        to_gpu: true,
        moved: vec![1],
        before: Before {
            passed: 1e6,
            is_full: true,
        },
    });
    let mut sample = LoadSample {
        time: PERIOD,
        busy: 0.1,
        in_service: true,
        ..LoadSample::default()
    };
    balancer.pay(&sample);
    assert_eq!(balancer.debt, 0.0);
    // A worker that has no time left does less than before.
    sample.busy = 1.0;
    balancer.pay(&sample);
    assert!(balancer.debt > 0.0);
    balancer.remove(1);
    assert!(balancer.trial.is_none() && balancer.debt == 0.0);
}
