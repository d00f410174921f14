//! Compares the replay window with a set of numbers, and the inference of the high half with its definition.

use std::collections::HashSet;

use esplanade_ipsec::replay::{Committed, ReplayError, ReplayWindow, WINDOW_MAX, WINDOW_MIN};
use proptest::prelude::*;

/// RFC 4303 §3.4.3 as a set of numbers, without a window's tricks.
struct Model {
    top: u64,
    size: u64,
    seen: HashSet<u64>,
}

impl Model {
    fn check(&self, sequence: u64) -> Result<(), ReplayError> {
        if sequence > self.top {
            Ok(())
        } else if sequence == 0 || sequence + self.size <= self.top {
            Err(ReplayError::BeforeWindow)
        } else if self.seen.contains(&sequence) {
            Err(ReplayError::Replayed)
        } else {
            Ok(())
        }
    }

    fn commit(&mut self, sequence: u64) -> Result<bool, ReplayError> {
        self.check(sequence)?;
        let newest = sequence > self.top;
        self.top = self.top.max(sequence);
        self.seen.insert(sequence);
        Ok(newest)
    }
}

/// The only number with this low half among the 2^32 numbers from the window's lower edge on (RFC 4303 appendix
/// A2.1).
fn reference(top: u64, size: u64, low: u32) -> Option<u64> {
    let bottom = i128::from(top) - i128::from(size) + 1;
    let high = i128::from(top >> 32);
    (high - 1..=high + 1)
        .map(|high| (high << 32) + i128::from(low))
        .find(|&n| n >= bottom && n < bottom + (1 << 32))
        .and_then(|n| u64::try_from(n).ok())
}

fn any_size() -> impl Strategy<Value = u32> {
    prop_oneof![
        WINDOW_MIN..=130,
        Just(1024),
        WINDOW_MIN..=WINDOW_MAX,
        Just(WINDOW_MAX)
    ]
}

proptest! {
    #[test]
    fn a_run_is_its_commits_in_order(
        esn in any::<bool>(),
        size in any_size(),
        start in prop_oneof![0u64..300, Just((1 << 32) - 100)],
        runs in proptest::collection::vec((-6i64..7, any::<u32>(), any::<u32>()), 1..80),
    ) {
        let start = if esn { start } else { start.min(1 << 31) };
        let (run_window, window) = (ReplayWindow::starting_at(start, size, esn), ReplayWindow::starting_at(start, size, esn));
        let mut block = start / 32;
        for (step, wanted, also) in runs {
            block = block.saturating_add_signed(step);
            // Half of the masks have long holes.
            let wanted = if also & 1 == 0 { wanted & also } else { wanted };
            let mut expected = Committed::default();
            for i in (0..32).filter(|i| wanted >> i & 1 == 1) {
                match window.commit(block * 32 + i) {
                    Ok(newest) => {
                        expected.accepted |= 1 << i;
                        expected.newest = newest;
                    }
                    Err(ReplayError::BeforeWindow) => expected.before |= 1 << i,
                    Err(ReplayError::Replayed) => {}
                }
            }
            prop_assert_eq!(run_window.commit_block(block, wanted), expected, "{} {:#x}", block, wanted);
            prop_assert_eq!(run_window.top(), window.top());
        }
    }

    // RFC 4302 R24, R27, R44; RFC 4303 R32, R36, R37, R41, R61
    #[test]
    fn agrees_with_a_set(
        esn in any::<bool>(),
        size in any_size(),
        start in prop_oneof![Just(0u64), 0u64..10_000, Just((1 << 32) - 3000)],
        // Most steps stay within the window. Some go far ahead, and some go behind it.
        steps in proptest::collection::vec(prop_oneof![8 => -70i64..70, 3 => -5000i64..5000, 2 => -70_000i64..70_000, 1 => 0i64..200_000], 1..300),
    ) {
        let start = if esn { start } else { start.min(1 << 31) };
        let window = ReplayWindow::starting_at(start, size, esn);
        let mut model = Model { top: start, size: size.into(), seen: HashSet::from([start]) };
        let mut at = start;
        for step in steps {
            at = at.saturating_add_signed(step);
            // A packet carries the low half only, so numbers are skipped that it cannot mean.
            if esn && reference(model.top, model.size, at as u32) != Some(at) {
                continue;
            }
            let expected = model.check(at).map(|()| at);
            prop_assert_eq!(window.check(at as u32), expected, "check {} at top {}", at, model.top);
            prop_assert_eq!(window.commit(at), model.commit(at), "commit {}", at);
            prop_assert_eq!(window.top(), model.top);
        }
    }
}

// RFC 4303 R55
#[test]
fn the_high_half_is_inferred_as_defined() {
    let near = |wrap: u64, reach: u64| (wrap.saturating_sub(reach)..wrap + reach).step_by(3);
    for size in [32, 33, 64, 128] {
        for wrap in [0, 1 << 32, 2 << 32, 0x7fff_ffff << 32] {
            for top in near(wrap, 200) {
                let window = ReplayWindow::starting_at(top, size, true);
                for low in (0..400u32).flat_map(|d| [d, d.wrapping_neg(), d ^ 1 << 31]) {
                    let inferred = window.check(low);
                    match reference(top, size.into(), low) {
                        // Only the top is marked. Number 0 is never sent.
                        Some(n) if n == top && n > 0 => {
                            assert_eq!(inferred, Err(ReplayError::Replayed))
                        }
                        Some(n) if n > 0 => assert_eq!(inferred, Ok(n), "{top:#x} {low:#x}"),
                        _ => assert_eq!(inferred, Err(ReplayError::BeforeWindow)),
                    }
                }
            }
        }
    }
}

// RFC 4303 R55
#[test]
fn the_last_subspace_does_not_overflow() {
    let window = ReplayWindow::starting_at(u64::MAX - 100, 64, true);
    assert_eq!(window.check(5), Err(ReplayError::BeforeWindow));
    assert_eq!(window.check(u32::MAX), Ok(u64::MAX));
    assert_eq!(window.commit(u64::MAX), Ok(true));
    assert_eq!(window.commit(u64::MAX), Err(ReplayError::Replayed));
}

#[test]
fn the_first_and_the_last_block_are_whole() {
    let window = ReplayWindow::starting_at(u64::MAX - 40, 64, true);
    let run = window.commit_block(u64::MAX / 32, u32::MAX);
    assert_eq!((run.accepted, run.newest), (u32::MAX, true));
    assert_eq!(window.top(), u64::MAX);
    let none = ReplayWindow::new(64, true).commit_block(0, 1);
    assert_eq!(
        (none.accepted, none.before),
        (0, 1),
        "number 0 is never sent"
    );
}

/// Random numbers seldom lie at the edge.
#[test]
fn the_lower_edge_is_exact() {
    for size in [WINDOW_MIN, 100, 1024, WINDOW_MAX] {
        for top in [70_000, 70_001, 70_063, 200_000] {
            let window = ReplayWindow::new(size, false);
            window.commit(top).expect("the first number");
            let last = top - u64::from(size) + 1;
            assert_eq!(window.check(last as u32), Ok(last), "{size} {top}");
            let before = window.check(last as u32 - 1);
            assert_eq!(before, Err(ReplayError::BeforeWindow), "{size} {top}");
            assert!(window.commit(last - 1).is_err(), "{size} {top}");
            assert!(window.commit(last).is_ok(), "{size} {top}");
        }
    }
}

#[test]
fn nothing_wanted_changes_nothing() {
    for size in [0, 64] {
        let window = ReplayWindow::starting_at(5, size, false);
        assert_eq!(window.commit_block(9, 0), Committed::default());
        assert_eq!(window.top(), 5);
    }
}

/// Lets three threads receive all numbers of these blocks of 64, each in another order. Each is accepted once.
fn race(size: u32, blocks: std::ops::Range<u64>) {
    let window = ReplayWindow::new(size, true);
    let last = blocks.end * 64 - 1;
    let receive = |worker: u64| {
        let order =
            (blocks.clone()).flat_map(|base| (0..64).map(move |i| base * 64 + (i ^ (worker * 21))));
        let accept =
            |n: &u64| *n > 0 && window.check(*n as u32).is_ok() && window.commit(*n).is_ok();
        order.filter(accept).collect::<Vec<u64>>()
    };
    let mut accepted: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| scope.spawn(move || receive(worker)))
            .collect();
        let accepted = workers.into_iter().map(|w| w.join().expect("no panic"));
        accepted.flatten().collect()
    });
    let count = accepted.len();
    accepted.sort_unstable();
    accepted.dedup();
    assert_eq!(accepted.len(), count, "a number was accepted twice");
    assert_eq!(window.top(), last);
}

/// Tests what loom cannot: many numbers, on the machine's own atomics.
#[test]
fn threads_that_see_the_same_packets_accept_each_once() {
    race(1024, 0..3125);
    race(8192, 0..3125);
    // The first packet that needs more than the window has in itself.
    (0..100).for_each(|_| race(8192, 31..34));
}

// RFC 4302 R30; RFC 4303 R41
#[test]
fn sizes_are_brought_into_bounds() {
    assert_eq!(ReplayWindow::new(1, false).size(), WINDOW_MIN);
    let window = ReplayWindow::new(1 << 20, false);
    assert_eq!(window.size(), WINDOW_MAX);
    assert_eq!(ReplayWindow::new(100, false).size(), 100);
}

// RFC 4303 R32
#[test]
fn off_means_off_but_not_with_esn() {
    let window = ReplayWindow::new(0, false);
    assert_eq!(window.size(), 0);
    for sequence in [5, 5, 1, 5000, 1] {
        assert_eq!(window.check(sequence), Ok(sequence.into()));
        assert!(window.commit(sequence.into()).is_ok());
    }
    assert!(ReplayWindow::new(0, true).size() > 0);
}
