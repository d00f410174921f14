//! Checks the state that workers share on loom's atomics: every interleaving of a few threads, and every value that
//! the memory model lets a load return. The modules are compiled here a second time, with another `crate::atomic`.

#[allow(dead_code)]
mod atomic;
#[allow(dead_code)]
#[path = "../../src/sad/changes.rs"]
mod changes;
#[allow(dead_code)]
#[path = "../../src/lifetime.rs"]
mod lifetime;
#[allow(dead_code)]
#[path = "../../src/pace.rs"]
mod pace;
#[allow(dead_code)]
#[path = "../../src/placement.rs"]
mod placement;
#[allow(dead_code)]
#[path = "../../src/replay.rs"]
mod replay;
#[allow(dead_code)]
#[path = "../../src/sequence.rs"]
mod sequence;

use atomic::{AtomicU64, Loads, Ordering, set_loads};
use changes::Changes;
use lifetime::{Lifetime, LifetimeEvent, LifetimeLimits};
use loom::sync::Arc;
use loom::thread;
use pace::{Pace, SHARED_WINDOW};
use placement::{Placement, Placements, Settled};
use replay::{ReplayError, ReplayWindow};
use sequence::SequenceAllocator;

/// Runs one closure per thread in every interleaving. The last closure runs on the thread that waits for the others.
fn on_threads<T, R, F>(shared: &Arc<T>, mut jobs: Vec<F>) -> Vec<R>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    F: FnOnce(&T) -> R + Send + 'static,
{
    let last = jobs.pop().expect("at least one");
    let spawn = |job: F| {
        let shared = Arc::clone(shared);
        thread::spawn(move || job(&shared))
    };
    let threads: Vec<_> = jobs.into_iter().map(spawn).collect();
    let own = last(shared);
    let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
    let mut results: Vec<R> = joined.collect();
    results.push(own);
    results
}

const SIZE: u64 = 32;

/// Some cases have too many interleavings. Those with at most this many pre-emptions are run.
const PREEMPTIONS: usize = 3;

fn model(preemptions: Option<usize>, body: impl Fn() + Copy + Send + Sync + 'static) {
    for loads in [Loads::Latest, Loads::Weak] {
        set_loads(loads);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(body);
    }
}

/// Commits the numbers of each script in order, on one thread per script. The ring has 64 words: 5, 2053 and 4101
/// share a word, and 5 leaves the window when 37 or more arrives.
fn check_commits(preemptions: Option<usize>, scripts: &'static [&'static [u64]]) {
    model(preemptions, move || {
        let window = Arc::new(ReplayWindow::new(SIZE as u32, true));
        let job = |script: &&'static [u64]| {
            let script = *script;
            move |window: &ReplayWindow| -> Vec<(u64, Result<bool, ReplayError>)> {
                script.iter().map(|&n| (n, window.commit(n))).collect()
            }
        };
        let outcomes = on_threads(&window, scripts.iter().map(job).collect());
        let outcomes = outcomes.concat();
        let accepted = outcomes.iter().filter_map(|&(n, o)| Some((n, o.ok()?)));
        let mut accepted: Vec<(u64, bool)> = accepted.collect();
        accepted.sort_unstable();
        let top = outcomes.iter().map(|&(n, _)| n).max().expect("some");
        assert_eq!(accepted.last(), Some(&(top, true)), "{outcomes:?}");
        let is_accepted = |n| accepted.iter().filter(|&&(m, _)| m == n).count() == 1;
        for &(n, outcome) in &outcomes {
            match outcome {
                // A thread that commits 2053 at the same time may or may not have moved the window already.
                Err(ReplayError::BeforeWindow) => assert!(n + SIZE <= top, "{outcomes:?}"),
                Ok(_) | Err(ReplayError::Replayed) => assert!(is_accepted(n), "{outcomes:?}"),
            }
            assert!(window.commit(n).is_err(), "{n} twice: {outcomes:?}");
        }
        assert_eq!(window.top(), top);
    });
}

// RFC 4302 R28; RFC 4303 R37
#[test]
fn copies_of_a_number_are_accepted_once() {
    check_commits(Some(PREEMPTIONS), &[&[5], &[5], &[5]]);
    check_commits(None, &[&[5, 6], &[6, 5]]);
}

#[test]
fn a_number_stays_accepted_while_its_word_passes_to_a_later_block() {
    check_commits(None, &[&[5, 2053], &[5]]);
    check_commits(None, &[&[5, 5], &[2053]]);
    check_commits(None, &[&[2053, 5], &[5]]);
    check_commits(None, &[&[5, 2053], &[5, 2053]]);
    check_commits(Some(PREEMPTIONS), &[&[5], &[5], &[2053]]);
}

// RFC 4303 R37
#[test]
fn a_word_never_passes_back_to_an_earlier_block() {
    check_commits(None, &[&[2053], &[5, 2053]]);
    check_commits(None, &[&[4101, 2053], &[2053]]);
    check_commits(Some(PREEMPTIONS), &[&[40, 4101], &[2053, 40]]);
    check_commits(Some(PREEMPTIONS), &[&[5], &[2053], &[4101]]);
}

#[test]
fn runs_of_a_block_accept_each_number_once() {
    model(Some(PREEMPTIONS), || {
        let window = Arc::new(ReplayWindow::new(SIZE as u32, true));
        // Block 64 takes the word of block 0 and pushes all of block 0 out of the window.
        let job = |script: &'static [(u64, u32)]| {
            move |window: &ReplayWindow| -> Vec<_> {
                let commit = |&(block, wanted)| (block, wanted, window.commit_block(block, wanted));
                script.iter().map(commit).collect()
            }
        };
        let runs = vec![
            job(&[(0, 0b1011_0110), (64, 0b11)]),
            job(&[(0, 0b0111_0010)]),
        ];
        let outcomes = on_threads(&window, runs).concat();
        for block in [0, 64] {
            let of_block = |&&(b, ..): &&(u64, u32, replay::Committed)| b == block;
            let of_block = || outcomes.iter().filter(of_block);
            let all = of_block().fold(0, |all, (_, _, run)| all | run.accepted);
            let sum: u32 = of_block()
                .map(|(_, _, run)| run.accepted.count_ones())
                .sum();
            assert_eq!(all.count_ones(), sum, "one twice: {outcomes:?}");
            for (_, wanted, run) in of_block() {
                let refused = wanted & !run.accepted;
                assert_eq!(run.accepted & !wanted, 0, "{outcomes:?}");
                // A refused number is a replay of an accepted one, or block 64 pushed it out.
                assert_eq!(refused & !run.before & !all, 0, "{outcomes:?}");
                assert!(run.before == 0 || block == 0, "{outcomes:?}");
            }
        }
        assert_eq!(window.top(), 2049);
    });
}

/// Takes runs from an allocator that has `left` numbers left.
fn check_takes(left: u64, esn: bool, takes: &'static [&'static [u32]]) {
    model(None, move || {
        let last = if esn { u64::MAX - 1 } else { u32::MAX.into() };
        let first = last - left + 1;
        let allocator = Arc::new(SequenceAllocator::starting_at(first, esn));
        let job = |counts: &&'static [u32]| {
            let counts = *counts;
            move |allocator: &SequenceAllocator| -> Vec<_> {
                let take = |&count| (count, allocator.take(count));
                counts.iter().map(take).collect()
            }
        };
        let taken = on_threads(&allocator, takes.iter().map(job).collect()).concat();
        let mut numbers = Vec::new();
        for (count, run) in &taken {
            if let Ok(run) = run {
                assert_eq!(run.count, *count, "all or none");
                numbers.extend((0..u64::from(run.count)).map(|i| run.first + i));
            }
        }
        numbers.sort_unstable();
        let given = numbers.len() as u64;
        let expected: Vec<u64> = (first..=last).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "{taken:?}");
        let refused = taken.iter().filter(|(_, run)| run.is_err());
        for (count, _) in refused {
            assert!(
                u64::from(*count) > left - given,
                "refused without need: {taken:?}"
            );
        }
    });
}

// RFC 4302 R8, R15; RFC 4303 R8, R25
#[test]
fn no_sequence_number_is_given_out_twice_nor_past_the_last() {
    for esn in [false, true] {
        check_takes(20, esn, &[&[2], &[3], &[1]]);
        check_takes(4, esn, &[&[2], &[3], &[1]]);
        check_takes(0, esn, &[&[1], &[2]]);
        check_takes(20, esn, &[&[2, 1], &[3, 1]]);
        check_takes(5, esn, &[&[2, 1], &[3, 1]]);
    }
}

/// Admits each script's runs in order, on one thread per script.
fn check_admissions(limits: LifetimeLimits, scripts: &'static [&'static [u64]]) {
    model(Some(PREEMPTIONS), move || {
        let lifetime = Arc::new(Lifetime::new(&limits, 0));
        let job = |runs: &&'static [u64]| {
            let runs = *runs;
            move |lifetime: &Lifetime| -> Vec<_> {
                runs.iter()
                    .map(|&run| (run, lifetime.admit(run, 100 * run, 1)))
                    .collect()
            }
        };
        let outcomes = on_threads(&lifetime, scripts.iter().map(job).collect()).concat();
        let passed = outcomes.iter().filter(|(_, a)| a.passes);
        let passed: Vec<u64> = passed.map(|&(run, _)| run).collect();
        let (sum, longest) = (passed.iter().sum(), passed.iter().max().copied());
        let totals = (lifetime.packets(), lifetime.bytes());
        assert_eq!(
            totals,
            (sum, sum * 100),
            "what is refused is not counted: {outcomes:?}"
        );
        let hard = limits.packets_hard.unwrap_or(u64::MAX);
        let soft = limits.packets_soft.unwrap_or(u64::MAX);
        assert!(
            sum < hard.saturating_add(longest.unwrap_or(0)),
            "{outcomes:?}"
        );
        let refused = outcomes.len() > passed.len();
        assert!(
            !refused || sum >= hard,
            "refused without need: {outcomes:?}"
        );
        assert_eq!(lifetime.expired(1), sum >= hard);
        let raised = |event| {
            let events = outcomes.iter().filter_map(|(_, a)| a.event);
            events.filter(|&e| e == event).count()
        };
        let (softs, hards) = (raised(LifetimeEvent::Soft), raised(LifetimeEvent::Hard));
        assert_eq!(hards, usize::from(sum >= hard), "{outcomes:?}");
        assert!(softs <= 1, "{outcomes:?}");
        if hards == 0 {
            assert_eq!(softs, usize::from(sum >= soft), "{outcomes:?}");
        }
    });
}

#[test]
fn workers_together_exceed_a_lifetime_by_less_than_one_run() {
    let limits = |soft, hard| LifetimeLimits {
        packets_soft: soft,
        packets_hard: hard,
        ..LifetimeLimits::default()
    };
    check_admissions(limits(Some(3), Some(6)), &[&[3, 2], &[4]]);
    check_admissions(limits(Some(2), None), &[&[1, 1], &[2, 1]]);
    check_admissions(limits(None, Some(5)), &[&[2], &[3], &[4]]);
    // The second run is too long for the word.
    check_admissions(limits(Some(2), Some(6)), &[&[1, 4], &[1 << 20]]);
}

/// Two slots count up. A reader copies them, and looks again only at slots that are reported as changed.
#[test]
fn no_change_of_a_slot_is_missed() {
    const KEPT: usize = 2;
    model(None, || {
        let slots = || [AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Arc::new((slots(), Changes::new(KEPT)));
        let writer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (slots, changes) = &*writer;
            for (slot, value) in [(0, 1), (1, 1), (1, 2)] {
                slots[slot].store(value, Ordering::Release);
                changes.record(slot as u32);
            }
        });
        let (slots, changes) = &*shared;
        let (mut copy, mut seen) = ([0; 2], 0);
        let refresh = |copy: &mut [u64; 2], seen: &mut u64| {
            let before = changes.count();
            let look = |slot: usize| slots[slot].load(Ordering::Acquire);
            let told = changes.since(*seen, |slot| copy[slot as usize] = look(slot as usize));
            if told.is_err() {
                *copy = [look(0), look(1)];
            }
            *seen = told.unwrap_or(before);
            // The copy must have all changes that were recorded before the count was read.
            let newest = [[0, 0], [1, 0], [1, 1], [1, 2]][*seen as usize];
            assert!(
                copy[0] >= newest[0] && copy[1] >= newest[1],
                "{copy:?} at {seen}"
            );
        };
        refresh(&mut copy, &mut seen);
        refresh(&mut copy, &mut seen);
        writer.join().expect("no panic");
        refresh(&mut copy, &mut seen);
        assert_eq!((copy, seen), ([1, 2], 3));
    });
}

/// The threads take whole rounds. The first thread holds one round while the second takes as many as it may.
#[test]
fn no_worker_gets_three_rounds_ahead_of_another() {
    const ROUND: u32 = SHARED_WINDOW / 4;
    model(Some(PREEMPTIONS), || {
        let sequence = SequenceAllocator::starting_at(ROUND.into(), true);
        let shared = Arc::new((Pace::new(SHARED_WINDOW), sequence, AtomicU64::new(0)));
        let job = |takes: u32| {
            move |(pace, sequence, newest): &(Pace, SequenceAllocator, AtomicU64)| {
                for _ in 0..takes {
                    let Some(hold) = pace.begin(sequence) else {
                        continue;
                    };
                    if let Ok(run) = sequence.take(ROUND) {
                        let last = run.first + u64::from(ROUND) - 1;
                        let newest = newest.fetch_max(last, Ordering::AcqRel).max(last);
                        assert!(newest - run.first < 3 * u64::from(ROUND));
                    }
                    pace.end(hold);
                }
            }
        };
        on_threads(&shared, vec![job(1), job(3)]);
    });
}

#[test]
fn one_worker_at_a_time_holds_numbers_for_a_small_window() {
    model(None, || {
        let shared = Arc::new((
            Pace::new(32),
            SequenceAllocator::new(true),
            AtomicU64::new(0),
        ));
        let job = |takes: u32| {
            move |(pace, sequence, newest): &(Pace, SequenceAllocator, AtomicU64)| {
                for _ in 0..takes {
                    let Some(hold) = pace.begin(sequence) else {
                        continue;
                    };
                    if let Ok(run) = sequence.take(1) {
                        assert!(newest.fetch_max(run.first, Ordering::AcqRel) < run.first);
                    }
                    pace.end(hold);
                }
            }
        };
        on_threads(&shared, vec![job(2), job(2)]);
    });
}

/// Two SAs and the number of the one that carries the flow, as a policy has it.
#[derive(Default)]
struct Succession {
    placements: Placements,
    sas: [Placement; 2],
    other: Placement,
    sends: AtomicU64,
}

/// A worker with two engines that give nothing back before they have to.
#[derive(Default)]
struct TwoEngines {
    settled: Settled,
    /// The engine has packets of the flow.
    pending: [bool; 2],
}

impl TwoEngines {
    fn send(&mut self, shared: &Succession, placement: &Placement) -> usize {
        loop {
            let placed = placement.get();
            if self.settled.knows(placed) {
                return placed.engine.into();
            }
            let meeting = shared.placements.meet(placement);
            self.pending[1 - usize::from(meeting.engine())] = false;
            self.settled.settle(meeting);
        }
    }

    fn send_flow(&mut self, shared: &Succession) {
        let sa = shared.sends.load(Ordering::Acquire) as usize;
        let engine = self.send(shared, &shared.sas[sa]);
        assert!(!self.pending[1 - engine], "a packet is overtaken");
        self.pending[engine] = true;
    }

    fn send_other(&mut self, shared: &Succession) {
        self.send(shared, &shared.other);
    }
}

type SuccessionJob = fn(&Succession);

/// The second SA has another engine than the first, and takes over.
fn take_over(shared: &Succession) {
    shared.placements.expect(&shared.sas[1]);
    shared.sends.store(1, Ordering::Release);
}

fn move_twice(shared: &Succession) {
    shared.placements.place(&shared.sas[0], 1);
    shared.placements.place(&shared.sas[0], 0);
}

fn work(shared: &Succession) {
    let mut engines = TwoEngines::default();
    engines.send_flow(shared);
    engines.send_other(shared);
    engines.send_flow(shared);
}

/// This worker settles the moves of another SA, and so other moments than the flow's.
fn move_other(shared: &Succession) {
    let mut engines = TwoEngines::default();
    engines.send_flow(shared);
    shared.placements.place(&shared.other, 1);
    engines.send_other(shared);
    engines.send_flow(shared);
}

#[test]
fn workers_let_engines_finish_whatever_moves_beside_it() {
    const CASES: [(&[SuccessionJob], usize); 4] = [
        (&[work, take_over, work], 2),
        (&[move_other, take_over], PREEMPTIONS),
        (&[work, move_twice, work], 2),
        (&[work, move_twice], PREEMPTIONS),
    ];
    for (jobs, preemptions) in CASES {
        model(Some(preemptions), move || {
            let shared = Arc::new(Succession::default());
            shared.sas[1].begin(1);
            on_threads(&shared, jobs.to_vec());
        });
    }
}
