//! Tests of outbound traffic that changes to another SA.

use std::thread;

use esplanade_ipsec::sa::DscpSet;

use super::policy_book::join_with_voice;
use super::*;
use crate::join::handover::HANDOVER;

#[test]
fn a_rekey_moves_traffic_without_a_gap() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    assert_eq!(
        send(&join, "10.3.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );

    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&first, 0).unwrap();
    assert!(
        join.database.sad().lookup(first.spi_in).is_some(),
        "receives before it sends"
    );
    assert!(send(&join, "10.2.0.1").is_err());
    join.use_outbound(first.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&second, 0).unwrap();
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(first.spi_out),
        "the old one until told otherwise"
    );
    join.use_outbound(second.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));

    join.delete_now(&deleted(&first, true, EndAction::Clear), now);
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));
    assert!(
        join.database.sad().lookup(first.spi_in).is_some(),
        "packets in flight"
    );
    join.free_spis(now + Duration::from_secs(6));
    assert!(join.database.sad().lookup(first.spi_in).is_none());
    assert!(join.database.sad().lookup(second.spi_in).is_some());
}

// RFC 4301 R4
#[test]
fn redundant_sas_fall_back_on_each_other() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let (first, second) = (
        installed(&join, 1, "10.2.0.0/16", None),
        installed(&join, 2, "10.2.0.0/16", None),
    );
    for sa in [&first, &second] {
        join.install_now(sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
    }
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));
    join.delete_now(&deleted(&second, false, EndAction::Clear), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));
}

#[test]
fn packets_always_find_one_of_redundant_sas() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&first, 0).unwrap();
    join.use_outbound(first.child, Instant::now());
    let database = join.database();
    let come_and_go = thread::spawn(move || {
        for id in 2..250 {
            let other = installed(&join, id, "10.2.0.0/16", None);
            join.install_now(&other, 0).unwrap();
            join.use_outbound(other.child, Instant::now());
            join.delete_now(&deleted(&other, false, EndAction::Clear), Instant::now());
        }
    });
    let mut without = 0;
    while !come_and_go.is_finished() {
        let spd = database.spd();
        let found = matches!(spd.outbound(&flow("10.2.0.1")), Decision::Protect(_));
        without += usize::from(!found);
    }
    come_and_go.join().unwrap();
    assert_eq!(without, 0);
}

// The SPD leads packets to the wider policy only when it is published.
#[test]
fn the_last_sa_of_a_policy_sends_until_another_policy_has_its_packets() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let (narrow, wide) = (
        installed(&join, 1, "10.2.3.0/24", None),
        installed(&join, 2, "10.2.0.0/16", None),
    );
    for sa in [&narrow, &wide] {
        join.install_now(sa, 0).unwrap();
        join.use_outbound(sa.child, now);
    }
    join.take_changes();
    assert_eq!(send(&join, "10.2.3.1"), Ok(narrow.spi_out));
    join.delete(&deleted(&narrow, false, EndAction::Clear), now);
    assert_eq!(send(&join, "10.2.3.1"), Ok(narrow.spi_out));
    join.take_changes();
    assert_eq!(send(&join, "10.2.3.1"), Ok(wide.spi_out));
    join.delete_now(&deleted(&wide, false, EndAction::Clear), now);
    assert!(send(&join, "10.2.3.1").is_err());
}

#[test]
fn an_sa_that_the_peer_makes_beside_ours_waits_for_the_peer() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let beside = |join: &mut Join, id| {
        let mut sa = installed(join, id, "10.2.0.0/16", None);
        sa.initiator = false;
        join.install_now(&sa, 0).unwrap();
        join.use_outbound(sa.child, now);
        sa
    };
    let first = beside(&mut join, 1);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(first.spi_out),
        "nothing to wait for"
    );
    let second = beside(&mut join, 2);
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));
    join.expire(now + HANDOVER);
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));

    let third = beside(&mut join, 3);
    let rekeyed = installed(&join, 4, "10.2.0.0/16", Some(2));
    join.install_now(&rekeyed, 0).unwrap();
    join.use_outbound(rekeyed.child, now);
    join.expire(now + HANDOVER);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(rekeyed.spi_out),
        "not back to an older one"
    );

    let last = beside(&mut join, 5);
    for older in [&first, &second, &third, &rekeyed] {
        join.delete_now(&deleted(older, false, EndAction::Clear), now);
    }
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(last.spi_out),
        "the only one left"
    );
}

/// Peers choose the SPIs that we send with.
#[test]
fn of_two_sas_with_one_spi_the_deleted_one_stops() {
    let mut join = join_with_voice();
    let sas: Vec<_> = [(1, "net"), (2, "voice")]
        .into_iter()
        .map(|(id, name)| {
            let mut sa = installed(&join, id, "10.2.0.0/16", None);
            (sa.name, sa.spi_out) = (name.into(), 0x2000);
            join.install_now(&sa, 0).unwrap();
            join.use_outbound(sa.child, Instant::now());
            sa
        })
        .collect();
    join.delete_now(&deleted(&sas[0], false, EndAction::Clear), Instant::now());
    let Decision::Protect(left) = join.database.spd().outbound(&flow("10.2.0.1")) else {
        panic!("voice is left")
    };
    assert_eq!(left.common.dscp, DscpSet::EMPTY.with(46));
}
