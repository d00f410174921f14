//! Tests of what a child has carried over all its SAs.

use esplanade_ipsec::outbound::{Outbound, Outcome, WalkLimits};
use esplanade_ipsec::wire::checksum;

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

/// An IPv4 packet of UDP from the protected side.
fn packet_to(remote: &str) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[3] = 28;
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&[10, 1, 0, 1]);
    packet[16..20].copy_from_slice(&remote.parse::<std::net::Ipv4Addr>().unwrap().octets());
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn packets_without_an_sa_count_with_their_child() {
    let children = || {
        vec![
            policy("net", TRAP, "10.2.0.0/16"),
            policy("other", TRAP, "10.3.0.0/16"),
        ]
    };
    let mut join = join_with(children());
    let drops = |join: &Join, child| {
        let carried = join.carried("site", child)?;
        Some(carried.drops.into_iter().collect::<Vec<_>>())
    };
    let drop = |join: &Join, remote| {
        let mut outbound = Outbound::new(WalkLimits::default());
        let outcome = outbound.push(&join.database.spd(), &packet_to(remote));
        let reason = DropReason::NoSa;
        assert!(
            matches!(outcome, Ok(Outcome::Dropped(why)) if why == reason),
            "{outcome:?}"
        );
    };
    drop(&join, "10.2.7.9");
    assert_eq!(drops(&join, "net"), Some(vec![("no-sa", 1)]));
    assert_eq!(drops(&join, "other"), None);
    assert_eq!(join.carried("site", "net").unwrap().up_since_ms, None);
    // An SA for a part of the child has a policy of its own, whose packets count with the child's.
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install_now(&sa, 1000).unwrap();
    drop(&join, "10.2.8.9");
    let own = &join.child(ChildSaId(1)).unwrap().outbound;
    own.common.drops.add(DropReason::TooLong, 4);
    assert_eq!(
        drops(&join, "net"),
        Some(vec![("no-sa", 2), ("too-long", 4)])
    );
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    drop(&join, "10.2.7.9");
    join.configure(children());
    assert_eq!(drops(&join, "net").unwrap()[0], ("no-sa", 3));
    join.configure(Vec::new());
    assert_eq!(drops(&join, "other"), None);
}
