//! Each exchange on a perfect network.

use std::time::Duration;

use crate::common::script::Script;
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_ike::config::{IkeProposal, Lifetime, Ports, SelectorAddresses, Unique};
use esplanade_ike::wire::ExchangeType;
use esplanade_ike::{Config, DownReason, Event, Refusal};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

// RFC 4301 R27; RFC 7296 R31, R53, R70, R166, R199, R202, R204
#[test]
fn two_exchanges_make_an_ike_sa_and_a_child() {
    let mut pair = Pair::established();
    assert_eq!(
        pair.a.sent.len() + pair.b.sent.len(),
        4,
        "RFC 7296 section 1.2"
    );
    assert!(
        pair.a
            .sent
            .iter()
            .all(|transmit| transmit.remote.port() == 500),
        "no NAT, no float"
    );
    let (child, _) = pair.a.children.values().next().unwrap();
    assert!(!child.udp_encap);
    assert_eq!(child.key_in.len(), 20);
    pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_clean_end();
    assert!(pair.a.events.iter().any(|e| matches!(
        e,
        Event::IkeSaDown {
            reason: DownReason::Terminated,
            ..
        }
    )));
    assert!(pair.b.events.iter().any(|e| matches!(
        e,
        Event::IkeSaDown {
            reason: DownReason::PeerDeleted,
            ..
        }
    )));
}

// RFC 7296 R16, R17, R19, R140, R193
#[test]
fn every_suite_and_group() {
    let cbc = |bits, integrity, prf, group| IkeProposal {
        encryption: vec![(Encryption::AesCbc, bits)],
        integrity: vec![integrity],
        prf: vec![prf],
        groups: vec![group],
    };
    let gcm = |bits, group| IkeProposal {
        encryption: vec![(Encryption::AesGcm16, bits)],
        groups: vec![group],
        ..ike_proposal()
    };
    let proposals = [
        cbc(
            128,
            Integrity::HmacSha2_256_128,
            Prf::HmacSha2_256,
            Group::Modp2048,
        ),
        cbc(
            192,
            Integrity::HmacSha2_384_192,
            Prf::HmacSha2_384,
            Group::Ecp256,
        ),
        cbc(
            256,
            Integrity::HmacSha2_512_256,
            Prf::HmacSha2_512,
            Group::Ecp384,
        ),
        gcm(192, Group::Modp3072),
        gcm(256, Group::Modp4096),
    ];
    for proposal in proposals {
        let mut pair = Pair::with(|a, b| {
            a.proposals = vec![proposal.clone()];
            b.proposals = vec![proposal.clone()];
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}

#[test]
fn esp_suites_with_fresh_key_exchange() {
    let mut pair = Pair::with(|a, b| {
        for connection in [a, b] {
            let mut child = (*connection.children[0]).clone();
            child.esp_proposals[0].encryption = vec![(Encryption::AesCbc, 256)];
            child.esp_proposals[0].integrity = vec![Integrity::HmacSha2_256_128];
            child.esp_proposals[0].groups = vec![Group::Ecp256];
            child.esp_proposals[0].sequence_numbers =
                vec![SequenceNumbers::Bits64, SequenceNumbers::Bits32];
            connection.children = vec![child.into()];
        }
    });
    pair.initiate();
    pair.run(SECOND);
    let (child, _) = pair.a.children.values().next().unwrap();
    assert_eq!(child.key_out.len(), 64);
    assert_eq!(child.esp.sequence_numbers, SequenceNumbers::Bits64);
    assert_eq!(pair.a.endpoint.rekey(pair.now, "site", Some("net")), Ok(1));
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.installed.len(), 2);
    pair.assert_clean_end();
}

// RFC 7296 R4, R52, R129, R228
#[test]
fn another_group_costs_one_round_trip() {
    let mut pair = Pair::with(|a, b| {
        a.proposals[0].groups = vec![Group::Ecp256, Group::Curve25519];
        b.proposals[0].groups = vec![Group::Curve25519];
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.b.refused(Refusal::InvalidKePayload), 1);
    assert_eq!(pair.a.sent.len(), 3);
}

// RFC 7296 R8, R9, R225
#[test]
fn a_child_rekey_asks_for_another_group() {
    let mut pair = Pair::with(|a, b| {
        let groups = |groups: &[Group]| {
            let mut child = child("net", NET_A, NET_B);
            child.esp_proposals[0].groups = groups.to_vec();
            child
        };
        a.children = vec![groups(&[Group::Ecp256, Group::Curve25519]).into()];
        let mut other = groups(&[Group::Curve25519]);
        std::mem::swap(&mut other.local_ts, &mut other.remote_ts);
        b.children = vec![other.into()];
    });
    pair.initiate();
    pair.run(SECOND);
    for _ in 0..2 {
        pair.a
            .endpoint
            .rekey(pair.now, "site", Some("net"))
            .unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
    }
    assert_eq!(
        pair.b.refused(Refusal::InvalidKePayload),
        1,
        "the second rekey remembers"
    );
    pair.assert_clean_end();
}

// RFC 4301 R26, R89, R99; RFC 7296 R113
#[test]
fn selectors_are_narrowed() {
    let mut pair = Pair::with(|a, _| {
        let mut wide = child("net", "0.0.0.0-255.255.255.255", "0.0.0.0-255.255.255.255");
        wide.name = "net".to_owned();
        a.children = vec![wide.into()];
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (child, _) = pair.a.children.values().next().unwrap();
    assert_eq!(
        child.local_ts[0].start,
        "10.1.0.0".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(
        child.remote_ts[0].end,
        "10.2.255.255".parse::<std::net::IpAddr>().unwrap()
    );
}

// RFC 4301 R97
#[test]
fn dynamic_selectors_are_the_gateways() {
    let mut pair = Pair::with(|a, b| {
        for connection in [a, b] {
            let mut child = (*connection.children[0]).clone();
            for selector in child.local_ts.iter_mut().chain(&mut child.remote_ts) {
                selector.addresses = SelectorAddresses::Dynamic;
            }
            connection.children = vec![child.into()];
        }
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (child, _) = pair.b.children.values().next().unwrap();
    assert_eq!(
        child.remote_ts[0].start,
        A.parse::<std::net::IpAddr>().unwrap()
    );
}

// RFC 7296 R27
#[test]
fn several_children_share_an_ike_sa() {
    let mut pair = Pair::with(|a, b| {
        a.children
            .push(child("v6", "fd01::-fd01::ffff", "fd02::-fd02::ffff").into());
        b.children.insert(
            0,
            child("v6", "fd02::-fd02::ffff", "fd01::-fd01::ffff").into(),
        );
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    assert_eq!(
        pair.a.endpoint.terminate(pair.now, "site", Some("v6")),
        Ok(1)
    );
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair.a.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    pair.assert_clean_end();
}

// RFC 7296 R39, R166, R167, R168, R170, R172
#[test]
fn forced_encapsulation_floats_the_port() {
    for forced_by_a in [true, false] {
        let mut pair = Pair::with(|a, b| {
            a.encap = forced_by_a;
            b.encap = !forced_by_a;
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        for side in [&pair.a, &pair.b] {
            let (child, _) = side.children.values().next().unwrap();
            assert!(child.udp_encap);
            assert_eq!((child.local.port(), child.remote.port()), (4500, 4500));
        }
        let auth = &pair.a.sent[1];
        assert_eq!(auth.payload[..4], [0; 4], "non-ESP marker");
        pair.assert_clean_end();
    }
}

// RFC 7296 R81, R120, R121, R167, R171, R172, R173, R174
#[test]
fn a_nat_is_found_and_followed() {
    let outside = "203.0.113.9".parse().unwrap();
    let mut pair = Pair::with(|_, b| b.remote_addrs = vec![]);
    pair.nat = Some((outside, 1000));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (child, _) = pair.b.children.values().next().unwrap();
    assert_eq!(child.remote, std::net::SocketAddr::new(outside, 5500));
    pair.run(60 * SECOND);
    assert!(
        pair.a
            .events
            .iter()
            .any(|e| matches!(e, Event::NatKeepalive { .. })),
        "the inside keeps the mapping"
    );
    assert!(
        !pair
            .b
            .events
            .iter()
            .any(|e| matches!(e, Event::NatKeepalive { .. }))
    );
    pair.nat = Some((outside, 2000));
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let moved = pair
        .b
        .events
        .iter()
        .any(|e| matches!(e, Event::PeerMoved { remote, .. } if remote.port() == 6500));
    assert!(moved, "RFC 7296 section 2.23");
    pair.assert_clean_end();
}

// RFC 7296 R39
#[test]
fn unusual_ports() {
    let mut pair = Pair::with(|a, _| {
        a.local_port = Some(Ports::default().nat_t);
        a.remote_port = Ports::default().nat_t;
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert!(
        pair.a
            .sent
            .iter()
            .all(|transmit| transmit.payload[..4] == [0; 4])
    );
    pair.assert_clean_end();
}

// RFC 4301 R21; RFC 7296 R99
#[test]
fn lifetimes_rekey_make_before_break() {
    let mut pair = Pair::with(|a, b| {
        a.rekey_time = Duration::from_secs(300);
        a.rand_time = Duration::from_secs(30);
        for connection in [a, b] {
            let mut child = (*connection.children[0]).clone();
            child.lifetime = Lifetime {
                rekey_time: Duration::from_secs(100),
                life_time: Duration::from_secs(110),
                rand_time: Duration::from_secs(10),
                ..child.lifetime
            };
            connection.children = vec![child.into()];
        }
    });
    pair.initiate();
    for _ in 0..2000 {
        pair.run(SECOND);
        for side in [&pair.a, &pair.b] {
            let usable = side
                .children
                .values()
                .filter(|(_, outbound)| *outbound == Outbound::Used)
                .count();
            assert!(
                usable >= 1,
                "{} could not send at {:?}",
                side.name,
                pair.now - pair.start
            );
        }
    }
    pair.run(20 * SECOND);
    pair.assert_agreed(1, 1);
    let counters = pair.a.endpoint.counters();
    assert!(counters.child_rekeys >= 19, "{counters:?}");
    assert!(counters.ike_rekeys >= 6, "{counters:?}");
    pair.assert_clean_end();
}

// RFC 7296 R20, R21, R101, R102
#[test]
fn the_responder_switches_on_traffic_or_delete() {
    let mut pair = Pair::established();
    pair.network.conditions.delay = SECOND..SECOND;
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND + SECOND / 2);
    let new = *pair.b.children.keys().last().unwrap();
    assert_eq!(pair.b.children.len(), 2);
    assert_eq!(
        pair.b.children[&new].1,
        Outbound::Not,
        "the initiator may not be ready"
    );
    pair.b.endpoint.note_inbound_traffic(pair.now, new);
    pair.flush();
    assert_eq!(pair.b.children[&new].1, Outbound::Used);
    pair.network.conditions = Conditions::PERFECT;
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

// RFC 7296 R57, R105, R106, R107, R186, R190
#[test]
fn simultaneous_rekeys_leave_one() {
    for what in [Some("net"), None] {
        for seed in 0..20 {
            let (a, b) = default_configs();
            let mut pair = Pair::new(config(a), config(b), Conditions::PERFECT, seed);
            pair.initiate();
            pair.run(SECOND);
            pair.a.endpoint.rekey(pair.now, "site", what).unwrap();
            pair.b.endpoint.rekey(pair.now, "site", what).unwrap();
            pair.flush();
            pair.run(60 * SECOND);
            pair.assert_agreed(1, 1);
            pair.assert_clean_end();
        }
    }
}

// RFC 7296 R26, R45, R46, R64, R67
#[test]
fn liveness_finds_a_dead_peer_and_comes_back() {
    let mut pair = Pair::with(|a, _| {
        a.dpd_delay = Duration::from_secs(30);
        let mut child = (*a.children[0]).clone();
        child.dpd_action = esplanade_ike::config::EndAction::Start;
        a.children = vec![child.into()];
        a.keyingtries = 0;
    });
    pair.initiate();
    pair.run(300 * SECOND);
    pair.assert_agreed(1, 1);
    assert!(pair.a.sent.len() >= 10, "silence is checked");
    pair.b.dead = true;
    pair.run(300 * SECOND);
    assert!(pair.a.events.iter().any(|e| matches!(
        e,
        Event::IkeSaDown {
            reason: DownReason::Timeout,
            ..
        }
    )));
    assert!(pair.a.children.is_empty());
    pair.b.dead = false;
    pair.run(600 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

// RFC 7296 R62, R64
#[test]
fn a_restarted_peer_announces_itself() {
    let mut pair = Pair::established();
    let (a, _) = default_configs();
    pair.a = Side::new("a", A, config(a), pair.now, 99);
    pair.initiate();
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 1);
    assert!(pair.b.events.iter().any(|e| matches!(
        e,
        Event::IkeSaDown {
            reason: DownReason::InitialContact,
            ..
        }
    )));
    pair.assert_clean_end();
}

#[test]
fn both_initiate_at_once() {
    for unique in [Unique::Never, Unique::No, Unique::Keep, Unique::Replace] {
        let mut pair = Pair::with(|a, b| {
            a.unique = unique;
            b.unique = unique;
        });
        pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.initiate();
        pair.run(60 * SECOND);
        pair.assert_same();
        let left = pair.a.ike_sas().len();
        match unique {
            Unique::No | Unique::Replace => assert_eq!(left, 1),
            _ => assert!((1..=2).contains(&left), "{unique:?}: {left}"),
        }
        pair.assert_clean_end();
    }
}

#[test]
fn start_and_close_actions() {
    let mut pair = Pair::with(|a, _| {
        let mut child = (*a.children[0]).clone();
        child.start_action = esplanade_ike::config::StartAction::Start;
        child.close_action = esplanade_ike::config::EndAction::Start;
        a.children = vec![child.into()];
    });
    pair.a.endpoint.start(pair.now);
    pair.a.endpoint.start(pair.now);
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair.b
        .endpoint
        .terminate(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 1);
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.installed.len(), 3);
    pair.assert_clean_end();
}

#[test]
fn keys_leave_only_when_asked() {
    for wanted in [false, true] {
        let (a, b) = default_configs();
        let mut pair = Pair::new(
            Config {
                key_log: wanted,
                ..config(a)
            },
            config(b),
            Conditions::PERFECT,
            1,
        );
        pair.initiate();
        pair.run(SECOND);
        let logs: Vec<_> = pair
            .a
            .events
            .iter()
            .filter(|e| matches!(e, Event::KeyLog(_)))
            .collect();
        assert_eq!(logs.len(), usize::from(wanted));
        if let Some(Event::KeyLog(log)) = logs.first() {
            let line = String::from_utf8(log.wireshark_line().unwrap().expose().to_vec()).unwrap();
            assert!(
                line.contains("AES-GCM-128 with 16 octet ICV [RFC5282]"),
                "{line}"
            );
            assert_eq!(format!("{log:?}"), "KeyLog(#1, keys withheld)");
        }
        let text = format!("{:?}", pair.a.events);
        let key = hex::encode(pair.a.installed[0].key_in.expose());
        assert!(!text.contains(&key[..16]));
    }
}

#[test]
fn the_next_child_is_taken_where_the_first_does_not_fit() {
    let mut pair = Pair::with(|_, b| {
        let mut first = (*b.children[0]).clone();
        first.name = "first".to_owned();
        first.esp_proposals[0].encryption[0].1 = 256;
        b.children.insert(0, first.into());
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.b.installed[0].name, "net");
    pair.assert_clean_end();
}

// RFC 7296 R226
#[test]
fn the_responder_may_choose_a_proposal_without_fresh_key_exchange() {
    let mut pair = Pair::with(|a, b| {
        let mut child = (*a.children[0]).clone();
        let mut fresh = esp_proposal();
        fresh.encryption[0].1 = 256;
        fresh.groups = vec![Group::Curve25519];
        child.esp_proposals.insert(0, fresh);
        a.children = vec![child.into()];
        assert!(b.children[0].esp_proposals[0].groups.is_empty());
    });
    pair.initiate();
    pair.run(SECOND);
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    assert_eq!(pair.a.endpoint.counters().child_rekeys, 1);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

#[test]
fn lifetimes_are_kept_however_long_the_queue() {
    let (a, mut b) = default_configs();
    let mut child = (*b.children[0]).clone();
    child.lifetime.rekey_time = 10 * SECOND;
    child.lifetime.rand_time = Duration::ZERO;
    b.children = vec![child.into()];
    let mut b = config(b);
    b.limits.queued_tasks_max = 0;
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(15 * SECOND);
    assert_eq!(pair.b.endpoint.counters().child_rekeys, 1);
    pair.assert_agreed(1, 1);
}

/// An initiator with MOBIKE does this (RFC 4555 §3.3).
#[test]
fn the_initiator_may_float_its_port_without_a_nat() {
    let now = std::time::Instant::now();
    let mut side = Side::new("b", B, config(default_configs().1), now, 7);
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    script.local.set_port(4500);
    script.remote.set_port(4500);
    let payloads = script.auth_payloads(b"a shared secret");
    script
        .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
        .unwrap();
    let status = &side.endpoint.status()[0];
    assert_eq!((status.local, status.remote), (script.remote, script.local));
    assert!(!status.children[0].udp_encap);
}
