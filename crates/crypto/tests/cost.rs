//! Measured costs of transforms.

use std::cell::Cell;
use std::time::Duration;

use esplanade_crypto::{Tier, Transform, testing};

/// A process that is held up for a while, by another one or by a limit of its group, is not slow.
#[test]
fn one_pause_does_not_count() {
    let calls = Cell::new(0);
    let now = || {
        let call = calls.replace(calls.get() + 1);
        // Each measurement takes 1 ms, and the first one 1 s more.
        Duration::from_millis(call + if call > 0 { 1000 } else { 0 })
    };
    let transform = Transform::from_name("AES_GCM_16_128").expect("a transform");
    let found = testing::costs_by_tier(&[Tier::Portable], transform, now);
    let bytes: usize = testing::MIX
        .iter()
        .map(|len| transform.sealed_len(*len))
        .sum();
    assert!(found[0].1 < 1000 * 1_000_000 / bytes as u64, "{found:?}");
}
