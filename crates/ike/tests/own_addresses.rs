//! Our own address changes: the tunnel goes on from another one.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::*;
use esplanade_ike::config::{AddressMatch, Connection, EndAction, StartAction};
use esplanade_ike::event::{DownReason, Event};

const OTHER: &str = "192.0.2.77";
const SECOND: Duration = Duration::from_secs(1);

/// A may use any address of its own. B takes peers from anywhere.
fn anywhere(a: &mut Connection, b: &mut Connection) {
    a.local_addrs = vec![AddressMatch::Any];
    b.remote_addrs = vec![AddressMatch::Any];
}

fn established(change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        anywhere(a, b);
        change(a, b);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// A has this address from now on, or none.
fn change_address(pair: &mut Pair, address: Option<&str>) {
    let address: Option<IpAddr> = address.map(|address| address.parse().unwrap());
    if let Some(address) = address {
        pair.a.address = address;
    }
    *pair.a.routes.0.lock().unwrap() = address;
    pair.a.endpoint.addresses_changed(pair.now);
    pair.flush();
}

fn downs(side: &Side) -> Vec<DownReason> {
    let down = |event: &Event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    side.events.iter().filter_map(down).collect()
}

#[test]
fn the_children_go_on_from_another_address() {
    let mut pair = established(|_, _| {});
    let spis = pair.a.child_spis();
    change_address(&mut pair, Some(OTHER));
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert!(pair.a.child_spis().is_disjoint(&spis));
    let here = pair.a.endpoint.status()[0].local.ip();
    assert_eq!(here, pair.a.address);
    assert_eq!(pair.b.endpoint.status()[0].remote.ip(), here);
    // The peer hears of the end of the old IKE SA, from the new address.
    assert_eq!(downs(&pair.a), [DownReason::Reauthenticated]);
    assert_eq!(downs(&pair.b), [DownReason::PeerDeleted]);
    pair.assert_clean_end();
}

#[test]
fn it_waits_for_another_address_and_its_route() {
    let mut pair = established(|_, _| {});
    let spis = pair.a.child_spis();
    change_address(&mut pair, None);
    pair.run(SECOND * 5);
    assert_eq!(pair.a.child_spis(), spis, "nothing is sent from nowhere");
    // The route comes without notice.
    pair.a.address = OTHER.parse().unwrap();
    *pair.a.routes.0.lock().unwrap() = Some(pair.a.address);
    pair.run(SECOND * 8);
    pair.assert_agreed(1, 1);
    assert!(pair.a.child_spis().is_disjoint(&spis));
    pair.assert_clean_end();
}

#[test]
fn an_address_that_comes_back_changes_nothing() {
    let mut pair = established(|_, _| {});
    let spis = pair.a.child_spis();
    change_address(&mut pair, None);
    pair.run(SECOND);
    change_address(&mut pair, Some(A));
    pair.run(SECOND * 20);
    assert_eq!(pair.a.child_spis(), spis);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

#[test]
fn an_address_that_the_connection_does_not_name_is_not_used() {
    let mut pair = established(|a, _| {
        a.local_addrs = vec![AddressMatch::Host(A.parse().unwrap())];
    });
    let spis = pair.a.child_spis();
    pair.a.address = OTHER.parse().unwrap();
    *pair.a.routes.0.lock().unwrap() = Some(pair.a.address);
    pair.a.endpoint.addresses_changed(pair.now);
    pair.run(SECOND * 5);
    assert_eq!(pair.a.child_spis(), spis);
}

#[test]
fn a_peer_that_refuses_the_new_address_leaves_no_dead_tunnel() {
    let mut pair = established(|a, b| {
        b.remote_addrs = vec![AddressMatch::Host(A.parse().unwrap())];
        a.keyingtries = 0;
        change_children(a, |child| {
            (child.start_action, child.dpd_action) = (StartAction::Start, EndAction::Start);
        });
    });
    change_address(&mut pair, Some(OTHER));
    pair.run(SECOND * 30);
    assert_eq!(downs(&pair.a), [DownReason::AddressGone]);
    assert_eq!(downs(&pair.b), [DownReason::PeerDeleted]);
    assert!(pair.a.children.is_empty() && pair.b.children.is_empty());
    // It goes on trying, and comes up when it has its address again.
    change_address(&mut pair, Some(A));
    pair.run(SECOND * 120);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_peer_that_cannot_follow_is_told() {
    let mut pair = Pair::with(|_, b| {
        b.local_addrs = vec![AddressMatch::Any];
        b.remote_addrs = vec![AddressMatch::Any];
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair.b.address = OTHER.parse().unwrap();
    *pair.b.routes.0.lock().unwrap() = Some(pair.b.address);
    pair.b.endpoint.addresses_changed(pair.now);
    pair.flush();
    pair.run(SECOND * 30);
    assert_eq!(downs(&pair.b), [DownReason::AddressGone]);
    assert_eq!(downs(&pair.a), [DownReason::PeerDeleted]);
}
