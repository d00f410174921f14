//! NATs in front of both ends, or of one, and ports that are not the usual ones.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::common::*;
use esplanade_ike::config::{AddressMatch, Config, Connection, EndAction, Ports};
use esplanade_ike::{DownReason, Event};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

fn outside(host: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, host])
}

fn downs(side: &Side) -> Vec<&DownReason> {
    let events = side.events.iter();
    let reasons = events.filter_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

fn remotes(side: &Side) -> Vec<SocketAddr> {
    let status = side.endpoint.status();
    status.iter().map(|sa| sa.remote).collect()
}

// RFC 7296 R172, R173
#[test]
fn both_ends_are_behind_nats() {
    let mut pair = Pair::with(|a, b| {
        a.remote_addrs = vec![AddressMatch::Host(outside(20))];
        b.remote_addrs = vec![AddressMatch::Any];
    });
    pair.nat = Some((outside(9), 1000));
    // The ports of B are forwarded as they are.
    pair.nat_of_b = Some((outside(20), 0));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    for side in [&pair.a, &pair.b] {
        let sa = &side.endpoint.status()[0];
        assert!(sa.nat_local && sa.nat_remote, "{}", side.name);
    }
    assert_eq!(remotes(&pair.a), [SocketAddr::new(outside(20), 4500)]);
    assert_eq!(remotes(&pair.b), [SocketAddr::new(outside(9), 5500)]);
    pair.run(60 * SECOND);
    let keeps = |event: &Event| matches!(event, Event::NatKeepalive { .. });
    assert!(pair.a.events.iter().any(keeps) && pair.b.events.iter().any(keeps));
    for (side, child) in [(&mut pair.a, Some("net")), (&mut pair.b, None)] {
        side.endpoint.rekey(pair.now, "site", child).unwrap();
    }
    pair.flush();
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

/// They meet at the outer side of the NAT, which leads back inside. A port of it is forwarded to B.
#[test]
fn both_ends_are_behind_one_nat() {
    let mut pair = Pair::with(|a, b| {
        a.remote_addrs = vec![AddressMatch::Host(outside(9))];
        (a.local_port, a.remote_port) = (Some(Ports::default().nat_t), 24_500);
        b.remote_addrs = vec![AddressMatch::Any];
    });
    pair.nat = Some((outside(9), 1000));
    pair.nat_of_b = Some((outside(9), 20_000));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(remotes(&pair.a), [SocketAddr::new(outside(9), 24_500)]);
    assert_eq!(remotes(&pair.b), [SocketAddr::new(outside(9), 5500)]);
    pair.b.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

/// Both ends listen on ports of their own. The port of the first message says whether it has a non-ESP marker.
// RFC 7296 R39
#[test]
fn configured_ports() {
    const OWN: [Ports; 2] = [
        Ports {
            ike: 1500,
            nat_t: 14_500,
        },
        Ports {
            ike: 2500,
            nat_t: 24_500,
        },
    ];
    let ends = |from_nat_t: bool, encap: bool| {
        let (mut a, mut b) = default_configs();
        for (connection, peers) in [(&mut a, OWN[1]), (&mut b, OWN[0])] {
            connection.remote_port = if from_nat_t { peers.nat_t } else { peers.ike };
            connection.encap = encap;
        }
        let with_ports = |connection: Connection, ports: Ports| {
            let local_port = from_nat_t.then_some(ports.nat_t);
            let connection = Connection {
                local_port,
                ..connection
            };
            Config {
                ports,
                ..config(connection)
            }
        };
        (with_ports(a, OWN[0]), with_ports(b, OWN[1]))
    };
    for (from_nat_t, encap) in [(false, false), (true, false), (true, true)] {
        for by_a in [true, false] {
            let (a, b) = ends(from_nat_t, encap);
            let mut pair = Pair::new(a, b, Conditions::PERFECT, 1);
            let side = if by_a { &mut pair.a } else { &mut pair.b };
            side.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(SECOND);
            pair.assert_agreed(1, 1);
            let ports = |ports: Ports| if from_nat_t { ports.nat_t } else { ports.ike };
            let sent = |side: &Side, own: Ports, peers: Ports| {
                let mut sent = side.sent.iter();
                assert!(sent.all(|one| {
                    let marked = one.payload.starts_with(&[0; 4]);
                    (one.local.port(), one.remote.port()) == (ports(own), ports(peers))
                        && marked == from_nat_t
                }));
            };
            sent(&pair.a, OWN[0], OWN[1]);
            sent(&pair.b, OWN[1], OWN[0]);
            assert!(
                pair.a
                    .installed
                    .iter()
                    .all(|child| child.udp_encap == encap)
            );
            pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(60 * SECOND);
            pair.assert_agreed(1, 1);
            pair.assert_clean_end();
        }
    }
}

/// A is behind the NAT and says nothing by itself. Only B asks whether its peer lives.
fn silent_inside(change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        a.dpd_delay = Duration::ZERO;
        (b.dpd_delay, b.dpd_by_traffic) = (10 * SECOND, false);
        b.remote_addrs = vec![AddressMatch::Any];
        change(a, b);
    });
    pair.nat = Some((outside(9), 1000));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// The question of B goes to a mapping that is gone. A word of A shows the new one, and the question comes again there.
// RFC 7296 R174
#[test]
fn the_question_of_the_outer_end_follows_the_peer_to_its_new_port() {
    let mut pair = silent_inside(|_, _| {});
    pair.nat = Some((outside(9), 2000));
    let asked = pair.b.sent.len();
    pair.run(12 * SECOND);
    assert!(pair.b.sent.len() > asked, "B has asked");
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(300 * SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(remotes(&pair.b), [SocketAddr::new(outside(9), 6500)]);
    assert!(downs(&pair.a).is_empty() && downs(&pair.b).is_empty());
    pair.assert_clean_end();
}

/// B gives its peer up. The end inside hears of that when it speaks, and makes a tunnel through a new mapping.
#[test]
fn a_peer_that_the_outer_end_has_given_up_comes_back_through_a_new_mapping() {
    let mut pair = silent_inside(|a, _| {
        (a.dpd_delay, a.dpd_by_traffic) = (300 * SECOND, false);
        change_children(a, |child| child.dpd_action = EndAction::Start);
    });
    pair.nat = Some((outside(9), 2000));
    pair.run(290 * SECOND);
    assert_eq!(downs(&pair.b), [&DownReason::Timeout]);
    assert!(pair.b.children.is_empty());
    pair.run(300 * SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(remotes(&pair.b), [SocketAddr::new(outside(9), 6500)]);
    pair.assert_clean_end();
}

/// Where the end sends the ESP of its newest child SA.
fn esp_remote(side: &Side) -> SocketAddr {
    let newest = *side.children.keys().next_back().unwrap();
    let mut told = side.events.iter().rev().filter_map(|event| match event {
        Event::ChildSaInstalled(sa) if sa.child == newest => Some(sa.remote),
        Event::PeerMoved {
            children, remote, ..
        } if children.contains(&newest) => Some(*remote),
        _ => None,
    });
    told.next().unwrap()
}

/// ESP of A has come to B from this port of A's NAT.
fn esp_comes_from(pair: &mut Pair, port: u16) {
    let child = *pair.b.children.keys().next_back().unwrap();
    let local = SocketAddr::new(B.parse().unwrap(), 4500);
    let remote = SocketAddr::new(outside(9), port);
    let (now, endpoint) = (pair.now, &mut pair.b.endpoint);
    endpoint.note_peer_address(now, child, local, remote);
    pair.flush();
}

/// The NAT maps ESP of A to another port than its IKE.
#[test]
fn esp_keeps_its_port_while_ike_uses_another() {
    let mut pair = silent_inside(|_, _| {});
    esp_comes_from(&mut pair, 4600);
    for child in [None, Some("net"), None, None] {
        for of_a in [true, false] {
            let side = if of_a { &mut pair.a } else { &mut pair.b };
            side.endpoint.rekey(pair.now, "site", child).unwrap();
            pair.flush();
            pair.run(20 * SECOND);
            assert_eq!(remotes(&pair.b), [SocketAddr::new(outside(9), 5500)]);
            assert_eq!(esp_remote(&pair.b).port(), 4600);
        }
    }
    // The mapping of both is gone.
    pair.nat = Some((outside(8), 2000));
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    assert_eq!(esp_remote(&pair.b), SocketAddr::new(outside(8), 6500));
    assert!(downs(&pair.a).is_empty() && downs(&pair.b).is_empty());
    pair.assert_clean_end();
}

/// A message that left before the mapping changed comes after ESP from the new one.
#[test]
fn a_late_message_of_an_old_mapping_moves_no_esp_and_costs_no_tunnel() {
    let mut pair = silent_inside(|_, _| {});
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.nat = Some((outside(9), 2000));
    esp_comes_from(&mut pair, 6500);
    pair.run(SECOND / 2);
    assert_eq!(remotes(&pair.b)[0].port(), 5500);
    assert_eq!(esp_remote(&pair.b).port(), 6500);
    pair.run(300 * SECOND);
    assert_eq!(esp_remote(&pair.b).port(), 6500);
    pair.assert_agreed(1, 1);
    assert!(downs(&pair.a).is_empty() && downs(&pair.b).is_empty());
    pair.assert_clean_end();
}

/// Only the end behind the NAT keeps the mapping, whatever timer of the SA goes off at the other (RFC 3948 §4).
#[test]
fn an_end_that_is_behind_no_nat_sends_no_keepalives() {
    let keeps = |side: &Side| {
        let kept = |event: &&Event| matches!(event, Event::NatKeepalive { .. });
        side.events.iter().filter(kept).count()
    };
    for nat in [None, Some((outside(9), 1000))] {
        let mut pair = Pair::with(|a, b| {
            for connection in [a, &mut *b] {
                (connection.dpd_delay, connection.dpd_by_traffic) = (60 * SECOND, false);
            }
            b.remote_addrs = vec![AddressMatch::Any];
        });
        pair.nat = nat;
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        let asked = pair.b.sent.len();
        pair.run(300 * SECOND);
        assert!(pair.b.sent.len() > asked, "a timer of B has gone off");
        assert_eq!(keeps(&pair.a) > 0, nat.is_some());
        assert_eq!(keeps(&pair.b), 0);
        pair.assert_clean_end();
    }
}
