//! Tests of what a child has carried over all its SAs.

use super::*;

/// Counts packets of 100 bytes at an installed SA.
fn carry(join: &Join, id: u64, inbound: u64, outbound: u64) {
    let child = join.child(ChildSaId(id)).unwrap();
    child
        .inbound
        .common
        .lifetime
        .count(inbound, inbound * 100, 1);
    child
        .outbound
        .common
        .lifetime
        .count(outbound, outbound * 100, 1);
}

/// Returns the packets in and out, and the time since when the child is up.
fn carried(join: &Join) -> (u64, u64, Option<u64>) {
    let carried = join.carried("site", "net").unwrap();
    assert_eq!(carried.inbound.bytes, carried.inbound.packets * 100);
    let (inbound, outbound) = (carried.inbound.packets, carried.outbound.packets);
    (inbound, outbound, carried.up_since_ms)
}

#[test]
fn counts_go_on_through_rekeys_and_ends() {
    let begun = Instant::now();
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    assert!(join.carried("site", "net").is_none());
    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&first, 1000).unwrap();
    carry(&join, 1, 3, 5);
    assert_eq!(carried(&join), (3, 5, Some(1000)));

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&second, 9000).unwrap();
    carry(&join, 2, 10, 20);
    let old = join.child(ChildSaId(1)).unwrap().inbound.clone();
    join.delete_now(&deleted(&first, true, EndAction::Clear), begun);
    assert_eq!(carried(&join), (13, 25, Some(1000)));
    // Packets in flight come in for the old SA.
    old.common.lifetime.count(1, 100, 2);
    old.common.drops.add(DropReason::Replayed, 4);
    assert_eq!(carried(&join), (14, 25, Some(1000)));
    join.free_spis(begun + Duration::from_secs(60));
    assert_eq!(carried(&join), (14, 25, Some(1000)));
    let drops = join.carried("site", "net").unwrap().drops;
    assert_eq!(drops.into_iter().collect::<Vec<_>>(), [("replayed", 4)]);

    join.delete_now(&deleted(&second, false, EndAction::Clear), begun);
    assert_eq!(carried(&join), (14, 25, None));
    let third = installed(&join, 3, "10.2.0.0/16", None);
    join.install_now(&third, 70_000).unwrap();
    assert_eq!(carried(&join), (14, 25, Some(70_000)));
}

#[test]
fn a_child_that_is_no_longer_configured_is_forgotten_with_its_last_sa() {
    let begun = Instant::now();
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.configure(Vec::new());
    assert!(join.carried("site", "net").is_some());
    join.delete_now(&deleted(&sa, false, EndAction::Clear), begun);
    join.free_spis(begun + Duration::from_secs(60));
    join.configure(Vec::new());
    assert!(join.carried("site", "net").is_none());
}
