//! Tables of shared values.

use std::sync::Arc;

use esplanade_crypto::{SlotTable, testing};

fn numbers(table: &SlotTable<u32>) -> Vec<(u32, u32)> {
    table.iter().map(|(at, value)| (at, **value)).collect()
}

#[test]
fn values_are_found_by_their_numbers() {
    let mut table = SlotTable::new();
    assert!(table.get(0).is_none() && table.remove(7).is_none());
    for number in [0, 511, 512, 5000] {
        assert_eq!(table.insert(number, Arc::new(number)), None);
    }
    assert_eq!(table.insert(511, Arc::new(9)).as_deref(), Some(&511));
    assert_eq!(table.get(511).map(|v| **v), Some(9));
    assert_eq!(
        numbers(&table),
        [(0, 0), (511, 9), (512, 512), (5000, 5000)]
    );
    assert!(table.get(1).is_none() && table.get(u32::MAX).is_none());
    assert_eq!(table.remove(5000).as_deref(), Some(&5000));
    assert!(table.get(5000).is_none() && table.remove(5000).is_none());
    assert_eq!(numbers(&table), [(0, 0), (511, 9), (512, 512)]);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let mut table = SlotTable::new();
    let (old, new) = (Arc::new(1), Arc::new(2));
    table.insert(3, Arc::clone(&old));
    table.insert(600, Arc::clone(&old));
    let snapshot = table.clone();
    table.insert(3, Arc::clone(&new));
    table.insert(4, Arc::clone(&new));
    table.insert(9000, Arc::clone(&new));
    table.remove(600);
    assert_eq!(numbers(&snapshot), [(3, 1), (600, 1)]);
    assert_eq!(numbers(&table), [(3, 2), (4, 2), (9000, 2)]);
    // Nothing is dropped before its last snapshot, and nothing is kept longer.
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (3, 4));
    drop(snapshot);
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 4));
    drop(table);
    assert_eq!(Arc::strong_count(&new), 1);
}

#[test]
fn an_empty_table_keeps_no_memory() {
    let mut table = SlotTable::new();
    table.insert(100_000, Arc::new(1));
    table.insert(100, Arc::new(1));
    table.remove(100_000);
    assert_eq!(testing::chunks(&table), Some(1));
    table.remove(100);
    assert_eq!(testing::chunks(&table), Some(0));
}

#[test]
fn a_snapshot_goes_to_another_thread() {
    let mut table = SlotTable::new();
    table.insert(1, Arc::new(5));
    let snapshot = table.clone();
    let reader = std::thread::spawn(move || snapshot.get(1).map(|v| **v));
    table.remove(1);
    assert_eq!(reader.join().ok().flatten(), Some(5));
}
