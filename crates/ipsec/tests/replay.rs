//! The replay window against a set of numbers, and the inference of the high half against its definition.

use std::collections::HashSet;

use esplanade_ipsec::replay::{ReplayError, ReplayWindow, WINDOW_MAX, WINDOW_MIN};
use proptest::prelude::*;

/// RFC 4303 §3.4.3 without a window's tricks.
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

/// The only number with this low half in the 2^32 numbers from the window's lower edge on
/// (RFC 4303 appendix A2.1).
fn reference(top: u64, size: u64, low: u32) -> Option<u64> {
    let bottom = i128::from(top) - i128::from(size) + 1;
    let high = i128::from(top >> 32);
    (high - 1..=high + 1)
        .map(|high| (high << 32) + i128::from(low))
        .find(|&n| n >= bottom && n < bottom + (1 << 32))
        .and_then(|n| u64::try_from(n).ok())
}

proptest! {
    #[test]
    fn agrees_with_a_set(
        esn in any::<bool>(),
        size in WINDOW_MIN..=WINDOW_MAX,
        start in prop_oneof![Just(0u64), 0u64..10_000, Just((1 << 32) - 3000)],
        // Steps mostly within the window, some far ahead, some behind it.
        steps in proptest::collection::vec(prop_oneof![8 => -70i64..70, 3 => -5000i64..5000, 1 => 0i64..20_000], 1..300),
    ) {
        let start = if esn { start } else { start.min(1 << 31) };
        let window = ReplayWindow::starting_at(start, size, esn);
        let mut model = Model { top: start, size: size.into(), seen: HashSet::from([start]) };
        let mut at = start;
        for step in steps {
            at = at.saturating_add_signed(step);
            // The low half is all that a packet carries; skip numbers that it cannot mean.
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
                        // Only the top is marked; number 0 is never sent.
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

#[test]
fn the_last_subspace_does_not_overflow() {
    let window = ReplayWindow::starting_at(u64::MAX - 100, 64, true);
    assert_eq!(window.check(5), Err(ReplayError::BeforeWindow));
    assert_eq!(window.check(u32::MAX), Ok(u64::MAX));
    assert_eq!(window.commit(u64::MAX), Ok(true));
    assert_eq!(window.commit(u64::MAX), Err(ReplayError::Replayed));
}

#[test]
fn sizes_are_brought_into_bounds() {
    assert_eq!(ReplayWindow::new(1, false).size(), WINDOW_MIN);
    let window = ReplayWindow::new(1 << 20, false);
    assert_eq!(window.size(), WINDOW_MAX);
    assert_eq!(ReplayWindow::new(100, false).size(), 100);
}

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
