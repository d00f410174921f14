//! A responder takes the connection that names a peer most exactly, and not the first one.

mod common;

use std::time::{Duration, Instant};

use common::script::{Script, error_of};
use common::*;
use esplanade_ike::config::{AddressMatch, Connection};
use esplanade_ike::wire::ExchangeType;
use esplanade_testkit::net::Conditions;

fn host(text: &str) -> AddressMatch {
    AddressMatch::Host(text.parse().unwrap())
}

fn range(from: &str, to: &str) -> AddressMatch {
    AddressMatch::Range(from.parse().unwrap(), to.parse().unwrap())
}

/// A connection of B for any peer. The closure makes it differ from the next one.
fn named(name: &str, change: impl FnOnce(&mut Connection)) -> Connection {
    let mut connection = default_configs().1;
    connection.name = name.to_owned();
    connection.local_addrs = vec![];
    connection.remote_addrs = vec![];
    connection.remote.id = id("%any");
    change(&mut connection);
    connection
}

/// The connection that A is given.
fn chosen(connections: &[Connection]) -> String {
    let mut b = config(connections[0].clone());
    b.connections = connections.iter().cloned().map(Into::into).collect();
    let now = Instant::now();
    let mut side = Side::new("b", B, b, now, 7);
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(error_of(&answer.unwrap()), None);
    side.endpoint.status()[0].connection.clone().unwrap()
}

#[test]
fn anybody_in_front_does_not_choose_the_suite_of_a_peer_that_is_named() {
    for name_it in [
        |connection: &mut Connection| connection.remote_addrs = vec![host(A)],
        |connection: &mut Connection| {
            connection.remote_addrs = vec![range("192.0.2.0", "192.0.2.255"), AddressMatch::Any]
        },
    ] {
        let (mut a, mut site) = default_configs();
        let both = [256, 128].map(|bits| {
            let mut proposal = ike_proposal();
            proposal.encryption[0].1 = bits;
            proposal
        });
        a.proposals = both.to_vec();
        let anybody = named("anybody", |connection| {
            connection.remote.id = id("*.rw.example");
            connection.proposals = both[1..].to_vec();
        });
        site.proposals = both[..1].to_vec();
        name_it(&mut site);
        let mut b = config(anybody);
        b.connections.push(site.into());
        let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
        pair.initiate();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(1, 1);
        let status = pair.b.endpoint.status();
        assert_eq!(status[0].connection.as_deref(), Some("site"));
        assert_eq!(status[0].suite.unwrap().key_bits, 256);
    }
}

#[test]
fn the_most_exact_address_decides() {
    let at = |name: &str, remote: &[AddressMatch]| {
        named(name, |connection| {
            connection.remote_addrs = remote.to_vec();
        })
    };
    let mut connections = vec![
        at("any", &[]),
        at("any IPv4", &[range("0.0.0.0", "255.255.255.255")]),
        at("wide", &[range("192.0.0.0", "192.0.255.255")]),
        at(
            "narrow",
            &[host("203.0.113.9"), range("192.0.2.0", "192.0.2.255")],
        ),
        at("exact", &[AddressMatch::Any, host(A)]),
    ];
    while let Some(best) = connections.last().map(|best| best.name.clone()) {
        for _ in 0..connections.len() {
            connections.rotate_left(1);
            assert_eq!(chosen(&connections), best);
        }
        connections.pop();
    }
    let other = at("other", &[host("203.0.113.9")]);
    assert_eq!(chosen(&[other, at("any", &[AddressMatch::Any])]), "any");
}

#[test]
fn our_own_address_decides_among_equals_and_then_the_order() {
    let here = |connection: &mut Connection| connection.local_addrs = vec![host(B)];
    let (any, exact) = (named("any", |_| {}), named("here", here));
    assert_eq!(chosen(&[any.clone(), exact.clone()]), "here");
    // The peer's address counts more than ours.
    let peer = named("peer", |connection| {
        connection.remote_addrs = vec![host(A)];
    });
    assert_eq!(chosen(&[exact.clone(), peer.clone()]), "peer");
    let second = named("second", |_| {});
    assert_eq!(chosen(&[any.clone(), second.clone()]), "any");
    assert_eq!(chosen(&[second, any]), "second");
}

#[test]
fn an_identity_is_worth_more_than_an_address() {
    let by_id = named("by identity", |connection| {
        connection.remote.id = id("a.example");
    });
    let by_pattern = named("by pattern", |connection| {
        connection.remote.id = id("*.example");
        connection.remote_addrs = vec![range("192.0.2.0", "192.0.2.255")];
    });
    let by_address = named("by address", |connection| {
        connection.remote_addrs = vec![host(A)];
    });
    let all = [by_address, by_pattern, by_id];
    assert_eq!(chosen(&all), "by identity");
    assert_eq!(chosen(&all[..2]), "by pattern");
    // Two connections know the identity, so that the address decides.
    let twin = named("by identity, elsewhere", |connection| {
        connection.remote.id = id("a.example");
        connection.remote_addrs = vec![range("192.0.2.0", "192.0.2.255")];
    });
    assert_eq!(chosen(&[all[2].clone(), twin]), "by identity, elsewhere");
}
