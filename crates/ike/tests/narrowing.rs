//! A peer that narrows the selectors of a child: packets ask for what it leaves out (RFC 7296 §2.9).

use std::time::Duration;

use crate::common::*;
use esplanade_ike::config::{Config, Demand};
use esplanade_ike::failure::Shortage;
use esplanade_ike::wire::TrafficSelector;
use esplanade_ike::{ChildFailure, Event};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);
const OURS: &str = "10.1.0.0-10.1.255.255";

/// A packet from 10.1.0.7 to this address.
fn packet_to(remote: &str) -> Demand {
    let host = |address: &str| {
        let address = address.parse().unwrap();
        TrafficSelector {
            protocol: 17,
            start_port: 53,
            end_port: 53,
            ..TrafficSelector::addresses(address, address)
        }
    };
    let packet = (host("10.1.0.7"), host(remote));
    Demand {
        packet,
        selectors: packet,
    }
}

fn ask(pair: &mut Pair, remote: &str) {
    let asked = (pair.a.endpoint).acquire(pair.now, "site", "net", &packet_to(remote));
    assert_eq!(asked, Ok(()));
    pair.flush();
    pair.run(SECOND);
}

/// A has one child for two networks. B has one for each of `theirs`.
fn one_for(theirs: &[&str], change: impl FnOnce(&mut Config)) -> Pair {
    let (mut a, mut b) = default_configs();
    change_children(&mut a, |child| {
        child.remote_ts = vec![
            subnet("10.2.0.0-10.2.255.255"),
            subnet("10.12.0.0-10.12.255.255"),
        ];
    });
    let named = |(n, own): (usize, &&str)| child(&format!("net{n}"), own, OURS).into();
    b.children = theirs.iter().enumerate().map(named).collect();
    let (mut a, b) = (config(a), config(b));
    change(&mut a);
    Pair::new(a, b, Conditions::PERFECT, 7)
}

fn refusals(pair: &Pair) -> Vec<&ChildFailure> {
    let events = pair.a.events.iter();
    let failures = events.filter_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason),
        _ => None,
    });
    failures.collect()
}

fn networks(pair: &Pair) -> Vec<String> {
    let children = pair.a.children.values();
    let mut all: Vec<_> = children
        .map(|(sa, _)| sa.remote_ts[0].start.to_string())
        .collect();
    all.sort();
    all
}

const BOTH: [&str; 2] = ["10.2.0.0-10.2.255.255", "10.12.0.0-10.12.255.255"];

// RFC 7296 R109, R111, R115
#[test]
fn what_a_peer_narrows_away_is_asked_for_by_its_own_packet() {
    let mut pair = one_for(&BOTH, |_| {});
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(networks(&pair), ["10.2.0.0"]);
    for _ in 0..3 {
        ask(&mut pair, "10.2.0.9");
        assert_eq!(networks(&pair), ["10.2.0.0"], "its SA is there");
    }
    for _ in 0..3 {
        ask(&mut pair, "10.12.0.9");
        assert_eq!(networks(&pair), ["10.12.0.0", "10.2.0.0"]);
    }
    pair.assert_agreed(1, 2);
    assert!(refusals(&pair).is_empty());
    assert_eq!(
        pair.a.endpoint.refuses_traffic(pair.now, "site", "net"),
        None
    );
    pair.assert_clean_end();
}

/// The proposal has one child's network exactly, and a part of the other's.
// RFC 7296 R111
#[test]
fn a_responder_chooses_the_child_that_takes_the_packet() {
    let mut pair = one_for(&[BOTH[0], "10.12.0.0-10.13.255.255"], |_| {});
    ask(&mut pair, "10.12.0.9");
    assert_eq!(networks(&pair), ["10.12.0.0"]);
    ask(&mut pair, "10.2.0.9");
    assert_eq!(networks(&pair), ["10.12.0.0", "10.2.0.0"]);
}

#[test]
fn a_peer_that_always_leaves_the_packet_out_costs_little() {
    let mut pair = one_for(&BOTH[..1], |_| {});
    pair.initiate();
    pair.run(SECOND);
    let minutes = 20;
    for _ in 0..60 * minutes {
        ask(&mut pair, "10.12.0.9");
        assert_eq!(pair.a.children.len(), 1, "only what is asked for is kept");
    }
    let refused = refusals(&pair).len();
    assert!(
        (2 * minutes - 2..=2 * minutes + 4).contains(&refused),
        "{refused} requests"
    );
    assert_eq!(pair.a.installed.len(), 1);
    assert!(pair.b.children.len() <= 2);
    let only = |failure: &&ChildFailure| **failure == ChildFailure::PacketLeftOut;
    assert!(refusals(&pair).iter().all(only));

    // The administrator is told, and the log has it once.
    let endpoint = &pair.a.endpoint;
    assert!(endpoint.refuses_again("site", "net"));
    let why = ChildFailure::PacketLeftOut.to_string();
    let (left, told) = endpoint.refuses_traffic(pair.now, "site", "net").unwrap();
    assert_eq!(told, why);
    assert!(left <= 30 * SECOND);
    let child = endpoint.configured().remove(0);
    assert_eq!(child.failure.map(|failure| failure.why), Some(why));

    // What the child carries goes on.
    ask(&mut pair, "10.2.0.9");
    assert_eq!(networks(&pair), ["10.2.0.0"]);
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_peer_that_refuses_the_packet_is_not_asked_at_every_packet() {
    let mut pair = one_for(&BOTH, |_| {});
    pair.initiate();
    pair.run(SECOND);
    // B has the second network no more.
    let (_, mut b) = default_configs();
    b.children = vec![child("net0", "10.12.7.0-10.12.7.255", "10.1.99.0-10.1.99.255").into()];
    pair.b.endpoint.set_config(config(b));
    for _ in 0..60 {
        ask(&mut pair, "10.12.0.9");
    }
    let refused = refusals(&pair);
    assert!((2..=5).contains(&refused.len()), "{refused:?}");
    assert_eq!(pair.a.children.len(), 1);
}

/// A peer may give each packet an SA of its own.
#[test]
fn packets_ask_for_as_many_sas_as_an_ike_sa_may_have() {
    let hosts: Vec<String> = (0..6).map(|n| format!("10.12.0.{n}-10.12.0.{n}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut pair = one_for(&hosts, |a| a.limits.children_per_sa_max = 3);
    for n in 0..6 {
        ask(&mut pair, &format!("10.12.0.{n}"));
    }
    assert_eq!(networks(&pair), ["10.12.0.0", "10.12.0.1", "10.12.0.2"]);
    let full = ChildFailure::Resources(Shortage::ChildSas);
    assert_eq!(refusals(&pair), [&full], "the others wait");
}

/// Without SAs of the child, a connection asks as it always did.
#[test]
fn a_further_sa_is_not_wanted_for_ever() {
    let mut pair = one_for(&BOTH, |_| {});
    for remote in ["10.2.0.9", "10.12.0.9"] {
        ask(&mut pair, remote);
    }
    for sa in [0, 1] {
        let child = pair.b.installed[sa].child;
        assert_eq!(pair.b.endpoint.terminate_child_sa(pair.now, child), Ok(()));
        pair.flush();
        pair.run(SECOND);
    }
    pair.run(600 * SECOND);
    assert!(pair.a.children.is_empty(), "only packets want it");
    ask(&mut pair, "10.12.0.9");
    assert_eq!(networks(&pair), ["10.12.0.0"]);
}
