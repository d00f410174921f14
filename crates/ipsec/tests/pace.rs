//! Workers take numbers from one SA and send them late. The tests measure how far the peer sees the numbers
//! displaced.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use esplanade_ipsec::pace::{Pace, SHARED_WINDOW};
use esplanade_ipsec::replay::ReplayWindow;
use esplanade_ipsec::sequence::SequenceAllocator;

const WORKERS: u64 = 4;
const BATCHES: u64 = 3000;
const RUN_MAX: u64 = 64;

/// Returns the largest distance by which a number came behind the newest one, and how often workers waited. One
/// worker stops again and again while it holds numbers.
fn displacement(window: u32) -> (u64, u32) {
    let (pace, sequence) = (Pace::new(window), SequenceAllocator::new(true));
    let peer = Mutex::new(ReplayWindow::new(window, true));
    let (newest, behind, waits) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
    let worker = |index: u64| {
        for batch in 0..BATCHES {
            let wait = || {
                waits.fetch_add(1, Ordering::Relaxed);
                pace.wait(&sequence, || {
                    thread::yield_now();
                    true
                })
            };
            let hold = pace.begin(&sequence).or_else(wait).unwrap();
            let mut runs = Vec::new();
            for run in 0..3 {
                if pace.goes_on(hold, &sequence) {
                    let count = (batch * 7 + run * 13 + index) % RUN_MAX + 1;
                    runs.push(sequence.take(count as u32).unwrap());
                }
            }
            if index == 0 && batch % 64 == 0 {
                thread::sleep(std::time::Duration::from_millis(2));
            }
            for run in runs {
                let numbers = run.first..run.first + u64::from(run.count);
                let peer = peer.lock().unwrap();
                for number in numbers {
                    let top = newest.fetch_max(number, Ordering::Relaxed);
                    behind.fetch_max(top.saturating_sub(number), Ordering::Relaxed);
                    let low = number as u32;
                    assert_eq!(peer.check(low), Ok(number), "window {window}, newest {top}");
                    peer.commit(number).unwrap();
                }
            }
            pace.end(hold);
        }
    };
    thread::scope(|scope| {
        for index in 0..WORKERS {
            let worker = &worker;
            scope.spawn(move || worker(index));
        }
    });
    (behind.into_inner(), waits.into_inner())
}

#[test]
fn numbers_leave_in_order_where_the_window_is_small() {
    for window in [32, 1024, SHARED_WINDOW - 1] {
        assert_eq!(displacement(window).0, 0, "{window}");
    }
}

#[test]
fn who_waits_goes_before_who_has_just_ended() {
    let (pace, sequence) = (Pace::new(32), SequenceAllocator::new(true));
    let mut held = Some(pace.begin(&sequence).unwrap());
    let waited = pace.wait(&sequence, || {
        if let Some(hold) = held.take() {
            pace.end(hold);
            let mut tries = 0;
            let again = pace.wait(&sequence, || {
                tries += 1;
                tries < 4
            });
            assert!(again.is_none(), "it overtook the one that waits");
        }
        true
    });
    pace.end(waited.unwrap());
    // Nobody waits any more.
    pace.end(pace.wait(&sequence, || true).unwrap());
}

#[test]
fn who_waits_and_does_not_look_holds_nobody_up() {
    let (pace, sequence) = (Pace::new(32), SequenceAllocator::new(true));
    let mut served = Vec::new();
    let first = pace.wait(&sequence, || {
        // The other workers come while this one is stopped. They wait for it and for each other.
        if served.is_empty() {
            let third = |served: &mut Vec<u8>| {
                let mut tries = 0;
                let hold = pace.wait(&sequence, || {
                    tries += 1;
                    tries < 100_000
                });
                pace.end(hold.expect("the others do not look"));
                served.push(3);
            };
            let mut is_begun = false;
            let second = pace.wait(&sequence, || {
                if !is_begun {
                    is_begun = true;
                    third(&mut served);
                }
                true
            });
            pace.end(second.unwrap());
            served.push(2);
        }
        true
    });
    pace.end(first.unwrap());
    assert_eq!(served, [3, 2]);
}

#[test]
fn no_number_comes_behind_a_large_window() {
    let (behind, waits) = displacement(SHARED_WINDOW);
    let rounds = u64::from(SHARED_WINDOW) / 2;
    assert!(behind <= rounds + WORKERS * RUN_MAX, "{behind} behind");
    assert!(behind > 0 && waits > 0, "nothing was held for long enough");
}

#[test]
fn who_holds_numbers_of_a_round_lets_two_rounds_begin() {
    let (pace, round) = (Pace::new(SHARED_WINDOW), SHARED_WINDOW / 4);
    let sequence = SequenceAllocator::starting_at(u64::from(round), true);
    let first = pace.begin(&sequence).unwrap();
    sequence.take(round).unwrap();
    assert!(!pace.goes_on(first, &sequence));
    let second = pace.begin(&sequence).unwrap();
    sequence.take(round).unwrap();
    assert!(pace.begin(&sequence).is_none(), "two rounds ahead");
    pace.end(second);
    assert!(pace.begin(&sequence).is_none());
    pace.end(first);
    let third = pace.begin(&sequence).unwrap();
    assert!(pace.goes_on(third, &sequence));
    pace.end(third);
}
