//! Reauthentication: a new IKE SA with the same children replaces an old one without a gap (RFC 7296 §2.8.3).

use std::time::{Duration, Instant};

use crate::common::*;
use esplanade_ike::CommandError;
use esplanade_ike::config::{AddressMatch, Config, Connection, EndAction, Unique};
use esplanade_ike::event::{DownReason, Event};

const REAUTH: Duration = Duration::from_secs(100);
const CHILDREN: [&str; 3] = ["first", "second", "third"];

/// Three children at each end.
fn three(pair: (&mut Connection, &mut Connection)) {
    let net = |side: u8, at: usize| format!("10.{side}.{at}.0-10.{side}.{at}.255");
    let children = |own, peer| {
        let named = CHILDREN.iter().enumerate();
        let child = named.map(|(at, name)| child(name, &net(own, at), &net(peer, at)));
        child.map(std::sync::Arc::new).collect()
    };
    pair.0.children = children(1, 2);
    pair.1.children = children(2, 1);
}

/// Checks that each child can be sent on at both ends, by an SA that the other end can receive on.
fn assert_no_gap(pair: &Pair) {
    for name in CHILDREN {
        for (own, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let mut usable = own.children.values().filter(|(sa, outbound)| {
                let there = peer
                    .children
                    .values()
                    .any(|(other, _)| other.spi_in == sa.spi_out);
                sa.name == name && *outbound == Outbound::Used && there
            });
            assert!(usable.next().is_some(), "{}: {name} has a gap", own.name);
        }
    }
}

fn run_without_gap(pair: &mut Pair, time: Duration) {
    let until = pair.now + time;
    while pair.step(until) {
        assert_no_gap(pair);
    }
    pair.now = until;
}

/// Three children over one IKE SA.
fn established(change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        three((a, b));
        change(a, b);
    });
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 3);
    pair
}

fn reauth_at(side: &Side) -> Vec<Option<Instant>> {
    side.endpoint
        .status()
        .iter()
        .map(|sa| sa.reauth_at)
        .collect()
}

fn ups(side: &Side) -> usize {
    let up = |event: &&Event| matches!(event, Event::IkeSaUp(_));
    side.events.iter().filter(up).count()
}

// RFC 7296 R263
#[test]
fn the_children_move_to_a_new_ike_sa_without_a_gap() {
    for (by_a, unique) in [
        (true, Unique::No),
        (true, Unique::Replace),
        (true, Unique::Never),
        (true, Unique::Keep),
        (false, Unique::No),
        (false, Unique::Replace),
    ] {
        let mut pair = established(|a, b| {
            (a.unique, b.unique) = (unique, unique);
            let by = if by_a { a } else { b };
            by.reauth_time = REAUTH;
            change_children(by, |child| {
                (child.close_action, child.dpd_action) = (EndAction::Start, EndAction::Start);
            });
        });
        let (before, spis) = (pair.a.ike_sas(), pair.a.child_spis());
        run_without_gap(&mut pair, REAUTH + Duration::from_secs(5));
        pair.assert_agreed(1, 3);
        assert!(pair.a.ike_sas().is_disjoint(&before));
        assert!(pair.a.child_spis().is_disjoint(&spis));
        assert_eq!(
            (ups(&pair.a), ups(&pair.b)),
            (2, 2),
            "nothing is started beside"
        );
        // Both ends say that the children go on.
        for event in pair.a.events.iter().chain(&pair.b.events) {
            if let Event::ChildSaDeleted(deleted) = event {
                assert!(deleted.replaced);
                assert_eq!(deleted.then, EndAction::Clear);
            }
        }
        let by = if by_a { &pair.a } else { &pair.b };
        for event in &by.events {
            if let Event::ChildSaInstalled(child) = event {
                assert_eq!(
                    child.rekeyed_from.is_some(),
                    !spis_of(child.spi_in, by_a, &spis)
                );
            }
        }
        // It is done again and again.
        run_without_gap(&mut pair, REAUTH * 3);
        pair.assert_agreed(1, 3);
        assert_eq!((ups(&pair.a), ups(&pair.b)), (5, 5));
        pair.assert_clean_end();
    }
}

fn spis_of(spi_in: u32, at_a: bool, first: &std::collections::BTreeSet<(u32, u32)>) -> bool {
    first
        .iter()
        .any(|(a, b)| spi_in == if at_a { *a } else { *b })
}

// RFC 7296 R263
#[test]
fn both_ends_can_reauthenticate_at_once() {
    for unique in [Unique::No, Unique::Replace] {
        let mut pair = established(|a, b| {
            (a.unique, b.unique) = (unique, unique);
            (a.reauth_time, b.reauth_time) = (REAUTH, REAUTH);
        });
        for _ in 0..4 {
            run_without_gap(&mut pair, REAUTH + Duration::from_secs(5));
            pair.assert_agreed(1, 3);
        }
        pair.assert_clean_end();
    }
}

// RFC 7296 R263
#[test]
fn a_rekey_does_not_put_the_reauthentication_off() {
    let mut pair = established(|a, b| {
        (a.reauth_time, a.rekey_time) = (REAUTH, Duration::from_secs(30));
        (b.reauth_time, b.rekey_time) = (REAUTH * 2, Duration::from_secs(40));
    });
    let (at, start) = (reauth_at(&pair.a), pair.start);
    run_without_gap(&mut pair, Duration::from_secs(84));
    assert!(pair.a.endpoint.counters().ike_rekeys >= 2);
    assert_eq!(reauth_at(&pair.a), at);
    assert!(at[0].unwrap() <= start + REAUTH + Duration::from_secs(1));
    assert_eq!(ups(&pair.a), 1);
    run_without_gap(&mut pair, Duration::from_secs(20));
    assert_eq!(ups(&pair.a), 2);
    pair.assert_agreed(1, 3);
    // A rekey of either SA while the new one comes up.
    for old in [true, false] {
        let status = pair.a.endpoint.status();
        let id = status[0].id;
        pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
        pair.flush();
        for _ in 0..3 {
            let until = pair.now + Duration::from_secs(1);
            pair.step(until);
        }
        let status = pair.b.endpoint.status();
        let at = if old { 0 } else { status.len() - 1 };
        let _ = pair.b.endpoint.rekey_ike_sa(pair.now, status[at].id);
        pair.flush();
        run_without_gap(&mut pair, Duration::from_secs(5));
        pair.assert_agreed(1, 3);
    }
    pair.assert_clean_end();
}

#[test]
fn an_ike_sa_that_cannot_be_reauthenticated_ends_at_its_hard_lifetime() {
    let mut pair = established(|a, _| {
        (a.reauth_time, a.over_time) = (REAUTH, Duration::from_secs(150));
        a.retransmission.tries = 1;
    });
    // The peer refuses to authenticate again, and goes on with what it has.
    let mut refusing = config(default_configs().1);
    change_connection(&mut refusing, |b| b.name = "other".to_owned());
    refusing.secrets.clear();
    let Config { connections, .. } = &mut refusing;
    connections.clear();
    pair.b.endpoint.set_config(refusing);
    run_without_gap(&mut pair, Duration::from_secs(240));
    pair.assert_agreed(1, 3);
    let failed = |event: &&Event| matches!(event, Event::ReauthenticationFailed { .. });
    assert!(
        pair.a.events.iter().filter(failed).count() >= 2,
        "it is tried again"
    );
    // It stays visible as long as the SA does, and a rekey does not hide it.
    let failure = |pair: &Pair| pair.a.endpoint.status()[0].reauth_failure.clone();
    let before = failure(&pair).expect("a failed reauthentication");
    assert!(
        before.why.contains("no connection for our address"),
        "{}",
        before.why
    );
    let id = pair.a.endpoint.status()[0].id;
    pair.a.endpoint.rekey_ike_sa(pair.now, id).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
    assert_ne!(pair.a.endpoint.status()[0].id, id);
    assert_eq!(failure(&pair), Some(before));
    pair.run(Duration::from_secs(30));
    let expired = |event: &&Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::Expired);
    assert_eq!(pair.a.events.iter().filter(expired).count(), 1);
    assert!(pair.a.children.is_empty() && pair.b.children.is_empty());
}

#[test]
fn a_child_that_the_peer_refuses_now_does_not_stop_the_others() {
    let mut pair = established(|a, _| a.reauth_time = REAUTH);
    let mut narrower = default_configs().1;
    three((&mut default_configs().0, &mut narrower));
    narrower.children.remove(0);
    pair.b.endpoint.set_config(config(narrower));
    pair.run(REAUTH + Duration::from_secs(5));
    pair.assert_agreed(1, 2);
    assert_eq!(reauthenticated(&pair.a), 1);
}

fn reauthenticated(side: &Side) -> usize {
    let done = |event: &&Event| matches!(event, Event::IkeSaReauthenticated { .. });
    side.events.iter().filter(done).count()
}

/// The new IKE SA has no child, so the old one goes on, and that is no success.
#[test]
fn a_reauthentication_without_a_child_has_failed() {
    let mut pair = established(|a, _| a.reauth_time = REAUTH);
    let mut other = default_configs().1;
    three((&mut default_configs().0, &mut other));
    change_children(&mut other, |child| child.local_ts = child.remote_ts.clone());
    pair.b.endpoint.set_config(config(other));
    pair.run(REAUTH + Duration::from_secs(5));
    pair.assert_agreed(1, 3);
    assert_eq!(reauthenticated(&pair.a), 0);
    let failure = pair.a.endpoint.status()[0].reauth_failure.clone();
    assert_eq!(
        failure.unwrap().why,
        DownReason::NoChildTakenOver.to_string()
    );
}

#[test]
fn the_end_of_the_old_ike_sa_by_command_ends_the_new_one_too() {
    let mut pair = established(|a, _| a.reauth_time = REAUTH);
    let id = pair.a.endpoint.status()[0].id;
    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
    pair.a.endpoint.terminate_ike_sa(pair.now, id).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(60));
    pair.assert_agreed(0, 0);
    pair.assert_clean_end();
}

#[test]
fn a_peer_behind_a_nat_is_left_to_reauthenticate() {
    let mut pair = Pair::with(|_, b| {
        b.remote_addrs = vec![AddressMatch::Any];
        (b.reauth_time, b.over_time) = (REAUTH, Duration::from_secs(20));
    });
    pair.nat = Some(("203.0.113.5".parse().unwrap(), 1000));
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    pair.run(REAUTH + Duration::from_secs(10));
    assert_eq!(ups(&pair.b), 1);
    pair.run(Duration::from_secs(20));
    let expired = |event: &&Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::Expired);
    assert_eq!(pair.b.events.iter().filter(expired).count(), 1);
}

/// The old IKE SA was made at another address. The peer was heard from the new one since.
#[test]
fn a_peer_with_another_nat_address_reauthenticates_without_a_gap() {
    for unique in [Unique::No, Unique::Replace] {
        let mut pair = Pair::with(|a, b| {
            three((a, b));
            b.remote_addrs = vec![AddressMatch::Any];
            (a.unique, b.unique) = (unique, unique);
            (a.reauth_time, a.over_time) = (REAUTH, Duration::from_secs(20));
        });
        pair.nat = Some(("203.0.113.5".parse().unwrap(), 1000));
        pair.initiate();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(1, 3);
        let moved = "203.0.113.6".parse().unwrap();
        pair.nat = Some((moved, 2000));
        pair.a
            .endpoint
            .rekey(pair.now, "site", Some("first"))
            .unwrap();
        pair.flush();
        run_without_gap(&mut pair, Duration::from_secs(30));
        assert_eq!(pair.b.endpoint.status()[0].remote.ip(), moved);
        run_without_gap(&mut pair, REAUTH);
        assert_eq!(ups(&pair.b), 2);
        pair.assert_agreed(1, 3);
        pair.assert_clean_end();
    }
}

// RFC 7296 R263
#[test]
fn an_sa_that_was_just_made_can_be_reauthenticated_by_the_responder() {
    for unique in [Unique::No, Unique::Replace] {
        for seed in 0..8 {
            let mut pair = established(|a, b| (a.unique, b.unique) = (unique, unique));
            run_without_gap(&mut pair, Duration::from_millis(200 * seed));
            for both in [false, true] {
                let id = pair.b.endpoint.status()[0].id;
                pair.b.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
                if both {
                    let id = pair.a.endpoint.status()[0].id;
                    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
                }
                pair.flush();
                run_without_gap(&mut pair, Duration::from_secs(2));
            }
            run_without_gap(&mut pair, Duration::from_secs(20));
            pair.assert_agreed(1, 3);
        }
    }
}

/// Runs until all children are up on a second IKE SA at both ends.
fn run_until_reauthenticated(pair: &mut Pair) {
    let before = pair.a.child_spis();
    let up = |pair: &Pair| pair.a.child_spis().difference(&before).count() == CHILDREN.len();
    let until = pair.now + REAUTH + Duration::from_secs(5);
    while !up(pair) {
        assert!(pair.step(until), "not authenticated again");
    }
}

// RFC 7296 R263
#[test]
fn packets_on_the_old_children_can_arrive_before_the_delete() {
    let mut pair = established(|a, _| a.reauth_time = REAUTH);
    let (old, before) = (pair.b.ike_sas(), pair.b.child_spis());
    run_until_reauthenticated(&mut pair);
    pair.run(Duration::from_millis(400));
    assert!(pair.b.ike_sas().is_superset(&old) && pair.b.child_spis().is_superset(&before));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 3);
    assert!(pair.b.ike_sas().is_disjoint(&old));
}

// RFC 7296 R263
#[test]
fn a_command_does_not_wait_for_the_packets_of_the_old_children() {
    let mut pair = established(|a, _| a.reauth_time = REAUTH);
    run_until_reauthenticated(&mut pair);
    let status = pair.a.endpoint.status();
    assert_eq!(status.len(), 2);
    for ike_sa in status {
        let now = pair.now;
        pair.a.endpoint.terminate_ike_sa(now, ike_sa.id).unwrap();
    }
    pair.flush();
    pair.run(Duration::from_millis(300));
    pair.assert_agreed(0, 0);
}

#[test]
fn a_command_does_not_end_an_ike_sa_without_children() {
    let mut pair = Pair::established();
    let ended = pair.a.endpoint.terminate(pair.now, "site", Some("net"));
    assert_eq!(ended, Ok(1));
    pair.flush();
    pair.run(Duration::from_secs(10));
    pair.assert_agreed(1, 0);
    let id = *pair.a.up.last().unwrap();
    let refused = pair.a.endpoint.reauthenticate_ike_sa(pair.now, id);
    assert_eq!(
        refused,
        Err(CommandError::WithoutChildren("site".to_owned()))
    );
    pair.flush();
    pair.run(Duration::from_secs(10));
    pair.assert_agreed(1, 0);
}
