//! Tests the SAD while it changes: a worker's copy, SAs of groups, and traffic beside rekeying.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{RIGHT, address, key_material, parameters, selectors};
use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{InboundSa, SaParameters};
use esplanade_ipsec::sad::{GROUPS_MAX, GroupKey, GroupRefused, Sad, SadReader};
use proptest::prelude::*;

fn inbound_sa(spi: u32) -> Arc<InboundSa> {
    let transform = Transform::ESP[0];
    let key = key_material(transform);
    let parameters = SaParameters {
        selectors: selectors(RIGHT, crate::common::LEFT),
        ..parameters(transform, false, spi, &key)
    };
    Arc::new(InboundSa::new(parameters).expect("good keys"))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add,
    Replace(usize),
    Remove(usize),
    Refresh,
    Lookup(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Add),
        1 => (0usize..64).prop_map(Step::Replace),
        1 => (0usize..64).prop_map(Step::Remove),
        1 => Just(Step::Refresh),
        4 => (0usize..64).prop_map(Step::Lookup),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    // RFC 4303 R5
    #[test]
    fn after_a_refresh_the_copy_is_the_sad(steps in proptest::collection::vec(any_step(), 1..80)) {
        let sad = Sad::new();
        let mut reader = SadReader::new();
        let mut spis = Vec::new();
        for step in steps {
            match step {
                Step::Add => {
                    let spi = sad.allocate_spi().expect("room");
                    sad.insert(inbound_sa(spi)).expect("allocated");
                    spis.push(spi);
                }
                Step::Replace(i) => {
                    // Removed SAs are refused.
                    if let Some(&spi) = spis.get(i) {
                        let _ = sad.insert(inbound_sa(spi));
                    }
                }
                Step::Remove(i) => drop(spis.get(i).and_then(|&spi| sad.remove(spi))),
                Step::Refresh => reader.refresh(&sad),
                Step::Lookup(i) => {
                    if let Some(&spi) = spis.get(i) {
                        let found = reader.lookup(&sad, spi);
                        prop_assert!(found.is_none_or(|sa| sa.common.spi == spi));
                    }
                }
            }
        }
        reader.refresh(&sad);
        for &spi in &spis {
            let there = sad.lookup(spi);
            let copied = reader.lookup(&sad, spi).cloned();
            prop_assert_eq!(there.is_some(), copied.is_some());
            let same = there.zip(copied).is_none_or(|(a, b)| Arc::ptr_eq(&a, &b));
            prop_assert!(same);
        }
    }
}

#[test]
fn a_removed_sa_is_gone_after_the_next_refresh() {
    let sad = Sad::new();
    let mut reader = SadReader::new();
    let spi = sad.allocate_spi().expect("room");
    let sa = inbound_sa(spi);
    sad.insert(Arc::clone(&sa)).expect("allocated");
    assert!(reader.lookup(&sad, spi).is_some());
    sad.remove(spi);
    assert_eq!(Arc::strong_count(&sa), 2, "ours and the copy's");
    reader.refresh(&sad);
    assert_eq!(Arc::strong_count(&sa), 1);
    assert!(reader.lookup(&sad, spi).is_none());
}

#[test]
fn a_reader_that_slept_through_more_than_is_kept_begins_anew() {
    let sad = Sad::new();
    let mut reader = SadReader::new();
    let spi = sad.allocate_spi().expect("room");
    sad.insert(inbound_sa(spi)).expect("allocated");
    assert!(reader.lookup(&sad, spi).is_some());
    sad.remove(spi);
    let other = sad.allocate_spi().expect("room");
    let sa = inbound_sa(other);
    for _ in 0..20_000 {
        sad.insert(Arc::clone(&sa)).expect("allocated");
    }
    reader.refresh(&sad);
    assert!(reader.lookup(&sad, spi).is_none());
    assert!(reader.lookup(&sad, other).is_some());
}

// RFC 4301 R2, R72, R73, R74; RFC 4302 R5, R41, R42, R43; RFC 4303 R4, R5, R58, R59, R60
#[test]
fn the_longest_match_finds_the_sa_of_a_group() {
    let sad = Sad::new();
    let spi = sad.allocate_spi().expect("room");
    let unicast = inbound_sa(spi);
    sad.insert(Arc::clone(&unicast)).expect("allocated");
    let (group, sender) = (address("233.252.0.5"), address("192.0.2.7"));
    let (other_group, other_sender) = (address("ff0e::5"), address("192.0.2.8"));
    let key = |source: Option<IpAddr>| GroupKey {
        spi,
        destination: group,
        source,
    };
    assert!(!sad.has_groups());
    let (any_source, one_source) = (inbound_sa(spi), inbound_sa(spi));
    sad.insert_group(key(None), Arc::clone(&any_source))
        .expect("room");
    sad.insert_group(key(Some(sender)), Arc::clone(&one_source))
        .expect("room");
    assert!(sad.has_groups());
    assert_eq!(sad.all().len(), 3);
    let finds = |destination, source, sa: &Arc<InboundSa>| {
        let found = sad.lookup_addressed(spi, destination, source);
        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, sa)));
    };
    finds(group, sender, &one_source);
    finds(group, other_sender, &any_source);
    finds(other_group, sender, &unicast);
    assert!(sad.remove_group(&key(Some(sender))).is_some());
    assert!(sad.remove_group(&key(Some(sender))).is_none());
    finds(group, sender, &any_source);
    assert!(sad.remove_group(&key(None)).is_some());
    assert!(!sad.has_groups());
    finds(group, sender, &unicast);
    let reserved = GroupKey {
        spi: 255,
        ..key(None)
    };
    assert_eq!(sad.insert_group(reserved, unicast), Err(GroupRefused));
}

#[test]
fn groups_are_bounded() {
    let sad = Sad::new();
    let sa = inbound_sa(1000);
    let key = |n: usize| GroupKey {
        spi: 1000 + n as u32,
        destination: address("233.252.0.5"),
        source: None,
    };
    // Every insertion copies the table, so the loop makes 4,096 copies.
    let refused = (0..=GROUPS_MAX).find(|&n| sad.insert_group(key(n), Arc::clone(&sa)).is_err());
    assert_eq!(refused, Some(GROUPS_MAX));
    assert!(
        sad.insert_group(key(0), Arc::clone(&sa)).is_ok(),
        "replaced"
    );
}

/// Readers look up SAs while SAs are rekeyed. A found SA has the SPI that was asked for. An SA that stays is always
/// found. An SA that was removed before a refresh is not found.
#[test]
fn traffic_goes_on_while_sas_are_rekeyed() {
    let sad = Sad::new();
    let stable: Vec<u32> = (0..64).filter_map(|_| sad.allocate_spi()).collect();
    for &spi in &stable {
        sad.insert(inbound_sa(spi)).expect("allocated");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let mut reader = SadReader::new();
            let mut rounds = 0u32;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                reader.refresh(&sad);
                for &spi in &stable {
                    let found = reader.lookup(&sad, spi);
                    assert!(found.is_some_and(|sa| sa.common.spi == spi));
                }
                for slot in 0..128 {
                    let spi = stable[0] & 0xfff0_0000 | slot;
                    let found = reader.lookup(&sad, spi);
                    assert!(found.is_none_or(|sa| sa.common.spi == spi));
                }
                rounds += 1;
            }
            reader.refresh(&sad);
            sad.all().len()
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut current = sad.allocate_spi().expect("room");
        sad.insert(inbound_sa(current)).expect("allocated");
        for round in 0..400 {
            let next = sad.allocate_spi().expect("room");
            sad.insert(inbound_sa(next)).expect("allocated");
            let old = sad.remove(current).expect("installed");
            assert_eq!(old.common.spi, current);
            current = next;
            let replaced = stable[round % stable.len()];
            sad.insert(inbound_sa(replaced)).expect("allocated");
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let installed = reader.join().expect("no assertion failed");
            assert_eq!(installed, stable.len() + 1);
        }
    });
}
