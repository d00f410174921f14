//! Slots of keys.

use std::collections::HashSet;

use esplanade_crypto::KeySlot;
use esplanade_crypto::testing::{HeldSlot, hold_slot};

#[test]
fn a_slot_is_of_one_key_at_a_time_and_then_of_another() {
    let mut held: Vec<HeldSlot> = (0..100).map(|_| hold_slot()).collect();
    let indices =
        |held: &[HeldSlot]| -> HashSet<u32> { held.iter().map(|held| held.get().index).collect() };
    assert_eq!(indices(&held).len(), 100);
    let highest = indices(&held).into_iter().max();
    let mut all: HashSet<KeySlot> = held.iter().map(HeldSlot::get).collect();
    for _ in 0..10_000 {
        held.pop();
        let next = hold_slot();
        assert!(all.insert(next.get()), "{:?} was there before", next.get());
        held.push(next);
    }
    assert_eq!(indices(&held).len(), 100);
    assert!(indices(&held).into_iter().max() < highest.map(|highest| highest + 1000));
}
