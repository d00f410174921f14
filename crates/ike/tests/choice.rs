//! A responder takes the connection that names a peer most exactly, and not the first one.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_ike::config::{
    AddressMatch, Child, Connection, Credential, LocalMethod, RemoteMethod, Secret,
};
use esplanade_ike::wire::{ExchangeType, NotifyType};
use esplanade_ike::{DownReason, Event, Refusal};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
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
fn an_address_is_worth_more_than_an_identity() {
    let by_id = named("by identity", |connection| {
        connection.remote.id = id("a.example");
        // What is of one identity is for no peer of another connection.
        connection.children = behind(9);
    });
    let by_pattern = named("by pattern", |connection| {
        connection.remote.id = id("*.example");
        connection.remote_addrs = vec![range("192.0.2.0", "192.0.2.255")];
    });
    let by_address = named("by address", |connection| {
        connection.remote_addrs = vec![host(A)];
    });
    let all = [by_id, by_pattern, by_address];
    assert_eq!(chosen(&all), "by address");
    assert_eq!(chosen(&all[..2]), "by pattern");
    // Two connections know the address, so that the identity decides.
    let twin = named("by address and identity", |connection| {
        connection.remote.id = id("a.example");
        connection.remote_addrs = vec![host(A)];
    });
    assert_eq!(chosen(&[all[2].clone(), twin]), "by address and identity");
}

/// The children of a gateway with one network for each of the connections.
fn behind(number: usize) -> Vec<Arc<Child>> {
    let net = format!("10.{number}.0.0-10.{number}.255.255");
    vec![Arc::new(child("net", &net, NET_A))]
}

const NOW: Duration = Duration::from_secs(1_780_272_000);

/// A connects to B, which has these connections. Returns the connection of B that is up.
fn joined(mut a: Connection, connections: &[Connection], secrets: &[&str]) -> Pair {
    a.remote.id = id("%any");
    let mut b = config(connections[0].clone());
    b.connections = connections.iter().cloned().map(Into::into).collect();
    b.secrets = secrets.iter().map(|text| secret(text, &[])).collect();
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    for side in [&mut pair.a, &mut pair.b] {
        side.endpoint
            .set_wall_clock(pair.start, SystemTime::UNIX_EPOCH + NOW);
    }
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair
}

fn secret(key: &str, owners: &[&str]) -> Secret {
    Secret {
        owners: owners.iter().map(|owner| id(owner)).collect(),
        key: Arc::new(key.as_bytes().into()),
    }
}

fn name_of_b(pair: &Pair) -> Option<String> {
    pair.b.endpoint.status().first()?.connection.clone()
}

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

fn below(authority: &[u8]) -> RemoteMethod {
    RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&load(authority)).unwrap()),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    }
}

/// The initiator, as moon.example.org with a certificate.
fn moon() -> Connection {
    let mut a = default_configs().0;
    a.local.id = id("moon.example.org");
    let chain = load(file!("moon-ecdsa256.pem"));
    let credential = Credential::new(file!("moon-ecdsa256.key"), chain).unwrap();
    a.local.method = LocalMethod::Signature(vec![Arc::new(credential)]);
    a
}

const PSK: &str = "a shared secret";

#[test]
fn the_method_of_the_peer_chooses_among_roadwarriors() {
    let psk = named("psk", |_| {});
    let pubkey = named("pubkey", |connection| {
        connection.remote.method = below(file!("root.pem"));
    });
    for connections in [[psk.clone(), pubkey.clone()], [pubkey, psk]] {
        let pair = joined(moon(), &connections, &[PSK]);
        assert_eq!(name_of_b(&pair).as_deref(), Some("pubkey"));
        let pair = joined(default_configs().0, &connections, &[PSK]);
        assert_eq!(name_of_b(&pair).as_deref(), Some("psk"));
    }
}

#[test]
fn the_issuer_chooses_among_roadwarriors() {
    let of = |name: &str, authority| {
        named(name, |connection| {
            connection.remote.method = below(authority);
        })
    };
    let other = of("other", file!("other-root.pem"));
    let ours = of("ours", file!("root.pem"));
    for connections in [[other.clone(), ours.clone()], [ours, other]] {
        let pair = joined(moon(), &connections, &[PSK]);
        assert_eq!(name_of_b(&pair).as_deref(), Some("ours"));
    }
}

#[test]
fn the_certificate_that_is_configured_chooses() {
    let any = named("any", |connection| {
        connection.remote.method = below(file!("root.pem"));
    });
    let pinned_to = |name: &str, certificate| {
        let mut connection = any.clone();
        connection.name = name.to_owned();
        if let RemoteMethod::Certificate { pinned, .. } = &mut connection.remote.method {
            *pinned = load(certificate);
        }
        connection
    };
    let moon_only = pinned_to("moon", file!("moon-ecdsa256.pem"));
    let sun_only = pinned_to("sun", file!("sun.pem"));
    let all = [any.clone(), sun_only.clone(), moon_only];
    assert_eq!(
        name_of_b(&joined(moon(), &all, &[PSK])).as_deref(),
        Some("moon")
    );
    let pair = joined(moon(), &[sun_only, any], &[PSK]);
    assert_eq!(name_of_b(&pair).as_deref(), Some("any"));
}

#[test]
fn the_secret_chooses_where_nothing_else_does() {
    // Each connection has an identity of its own, and a secret with it.
    let own = |name: &str, own: &str, number| {
        named(name, |connection| {
            connection.local.id = id(own);
            connection.children = behind(number);
        })
    };
    let connections = [
        own("first", "one.example", 3),
        own("second", "two.example", 2),
    ];
    let mut b = config(connections[0].clone());
    b.connections.push(connections[1].clone().into());
    b.secrets = vec![
        secret("of the first", &["one.example"]),
        secret(PSK, &["two.example"]),
    ];
    let mut a = default_configs().0;
    a.remote.id = id("%any");
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    // The response is of the connection that was chosen: its identity, its secret and its child.
    pair.assert_agreed(1, 1);
    assert_eq!(name_of_b(&pair).as_deref(), Some("second"));
    let up = pair.a.events.iter().find_map(|event| match event {
        Event::IkeSaUp(up) => Some(up.remote_id.clone()),
        _ => None,
    });
    assert_eq!(up, Some(id("two.example")));
}

#[test]
fn the_identity_that_the_peer_asks_for_chooses() {
    let own = |own: &str| named(own, |connection| connection.local.id = id(own));
    let mut b = config(own("b.example"));
    b.connections.push(own("c.example").into());
    b.connections.push(own("d.example").into());
    let mut a = default_configs().0;
    a.remote.id = id("c.example");
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    assert_eq!(name_of_b(&pair).as_deref(), Some("c.example"));
}

#[test]
fn a_peer_that_none_accepts_is_told_nothing_and_the_log_everything() {
    let psk = named("psk", |_| {});
    let other = named("other", |connection| {
        connection.remote.method = below(file!("other-root.pem"));
    });
    let sun = named("sun", |connection| {
        connection.remote.id = id("sun.example.org");
        connection.remote.method = below(file!("root.pem"));
    });
    let pinned = named("pinned", |connection| {
        connection.remote.method = below(file!("root.pem"));
        if let RemoteMethod::Certificate { pinned, .. } = &mut connection.remote.method {
            *pinned = load(file!("sun.pem"));
        }
    });
    let pair = joined(moon(), &[psk, other, sun, pinned], &[PSK]);
    assert_eq!(name_of_b(&pair), None);
    assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 1);
    let [Event::Refused(refused)] = &pair.b.events[..] else {
        panic!("{:?}", pair.b.events)
    };
    assert_eq!(
        refused.why,
        "pinned: not one of the certificates that are configured for the peer; \
         other: no trusted authority issued the certificate"
    );
    let rejected = |event: &Event| {
        matches!(
            event,
            Event::ConnectFailed {
                reason: DownReason::PeerRefused(NotifyType::AUTHENTICATION_FAILED),
                ..
            }
        )
    };
    assert!(pair.a.events.iter().any(rejected), "{:?}", pair.a.events);
}

#[test]
fn a_bounded_number_of_secrets_is_tried() {
    // 40 connections that differ in their own identity, each with a secret.
    let own = |number: usize| format!("gw{number}.example");
    let connections: Vec<_> = (0..40)
        .map(|number| named(&own(number), |c| c.local.id = id(&own(number))))
        .collect();
    let up_with = |right: usize| {
        let mut b = config(connections[0].clone());
        b.connections = connections.iter().cloned().map(Into::into).collect();
        b.secrets = (0..40)
            .map(|number| {
                let text = format!("secret {number}");
                let key = if number == right { PSK } else { &text };
                secret(key, &[&own(number)])
            })
            .collect();
        let mut a = default_configs().0;
        a.remote.id = id("%any");
        let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
        pair.initiate();
        pair.run(Duration::from_secs(1));
        name_of_b(&pair)
    };
    assert_eq!(up_with(15).as_deref(), Some("gw15.example"));
    assert_eq!(up_with(16), None);
}

/// Whoever sends IKE_AUTH from an address where it does not receive gets the response for a copy from its own.
#[test]
fn the_address_of_ike_sa_init_counts() {
    const TRUSTED: &str = "203.0.113.5";
    let anybody = named("anybody", |_| {});
    let mut b = config(named("trusted", |connection| {
        connection.remote_addrs = vec![host(TRUSTED)];
    }));
    b.connections.push(anybody.into());
    for behind_nat in [false, true] {
        let now = Instant::now();
        let mut side = Side::new("b", B, b.clone(), now, 7);
        let mut script = Script::new();
        let payloads = match behind_nat {
            true => script.init_payloads_behind_nat(),
            false => script.init_payloads(),
        };
        script.init(&mut side, now, payloads).unwrap();
        let header = script.header(ExchangeType::IKE_AUTH, 1);
        let payloads = script.auth_payloads(b"a shared secret");
        let request = script.seal(&header, &payloads);
        let own = script.local;
        script.local.set_ip(TRUSTED.parse().unwrap());
        assert_eq!(script.send(&mut side, now, &request).len(), 1);
        script.local = own;
        let answer = script.send(&mut side, now, &request).pop().unwrap();
        assert_eq!(error_of(&script.open(&answer)), None);
        let status = side.endpoint.status();
        assert_eq!(status[0].connection.as_deref(), Some("anybody"));
    }
}
