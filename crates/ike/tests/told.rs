//! The administrator's reports of refused peers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::script::Script;
use crate::common::*;
use esplanade_crypto::iana::Encryption;
use esplanade_ike::config::{AddressMatch, Connection, Identity};
use esplanade_ike::event::RefusedPeer;
use esplanade_ike::wire::{ExchangeType, Id, IdType, Payload};
use esplanade_ike::{Config, Event, Refusal};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

fn told(side: &Side) -> Vec<&RefusedPeer> {
    let mut told = Vec::new();
    for event in &side.events {
        if let Event::Refused(refused) = event {
            told.push(&**refused);
        }
    }
    told
}

/// A connects to B, which refuses. Returns B's report.
fn refused_by_b(change: impl FnOnce(&mut Connection, &mut Config)) -> RefusedPeer {
    let (mut a, b) = default_configs();
    let mut b = config(b);
    change(&mut a, &mut b);
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(3 * SECOND);
    let told = told(&pair.b);
    let [refused] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(refused.remote.ip(), pair.a.address);
    assert_eq!(refused.local.ip(), pair.b.address);
    assert_eq!(refused.unreported, 0);
    assert!(
        told_nothing(&pair.a),
        "the initiator is refused, and refuses nobody"
    );
    refused.clone()
}

fn told_nothing(side: &Side) -> bool {
    told(side).is_empty()
}

#[test]
fn no_connection_for_its_address() {
    let refused = refused_by_b(|_, b| {
        change_connection(b, |b| {
            let other = "203.0.113.9".parse().unwrap();
            b.remote_addrs = vec![AddressMatch::Host(other)];
        });
    });
    assert_eq!(refused.refusal, Refusal::NoConnection);
    assert!(
        refused
            .configured
            .contains("site: 198.51.100.1 === 203.0.113.9")
    );
    assert!(refused.offered.contains("AES_GCM_16-128"));
    assert_eq!((refused.connection, refused.remote_id), (None, None));
}

/// The reasons that A, which has initiated, gives for a failure.
fn failures_at_a(change: impl FnOnce(&mut Connection, &mut Config)) -> Vec<String> {
    let (mut a, b) = default_configs();
    let mut b = config(b);
    change(&mut a, &mut b);
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(30 * SECOND);
    let failures = pair.a.events.iter().filter_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
        Event::ChildFailed { reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    failures.collect()
}

#[test]
fn an_initiator_that_is_refused_names_its_own_offer() {
    let ike = failures_at_a(|_, b| {
        change_connection(b, |b| {
            b.proposals[0].encryption = vec![(Encryption::AesGcm16, 256)]
        });
    });
    let offer = "we offered AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE25519";
    assert!(ike[0].ends_with(offer), "{ike:?}");
    let esp = failures_at_a(|a, _| {
        change_children(a, |child| {
            child.esp_proposals[0].encryption = vec![(Encryption::AesGcm16, 256)];
        });
    });
    assert!(
        esp[0].ends_with("we offered AES_GCM_16-256/NO_ESN"),
        "{esp:?}"
    );
    let ts = failures_at_a(|a, _| {
        a.children = vec![child("net", NET_A, "10.9.0.0-10.9.255.255").into()];
    });
    let offer = "we offered 10.1.0.0-10.1.255.255 === 10.9.0.0-10.9.255.255";
    assert!(ts[0].ends_with(offer), "{ts:?}");
}

// RFC 7296 R216
#[test]
fn no_proposal_in_common() {
    let refused = refused_by_b(|_, b| {
        change_connection(b, |b| {
            b.proposals[0].encryption = vec![(Encryption::AesGcm16, 256)]
        });
    });
    assert_eq!(refused.refusal, Refusal::NoProposalChosen);
    assert_eq!(
        refused.offered,
        "AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE25519"
    );
    assert_eq!(
        refused.configured,
        "site: AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE25519"
    );
    assert_eq!(refused.connection.as_deref(), Some("site"));
}

#[test]
fn a_wrong_secret() {
    let refused = refused_by_b(|_, b| b.secrets[0].key = Arc::new(b"another".as_slice().into()));
    assert_eq!(refused.refusal, Refusal::AuthenticationFailed);
    assert_eq!(refused.remote_id.as_deref(), Some("a.example"));
    assert_eq!(refused.local_id.as_deref(), Some("b.example"));
    assert!(!refused.why.is_empty() && !refused.why.contains("another"));
    assert_eq!(refused.connection.as_deref(), Some("site"));
}

#[test]
fn the_connection_is_named_if_the_peer_can_mean_only_one() {
    let refused = |second: Option<&str>| {
        let refused = refused_by_b(|_, b| {
            b.secrets[0].key = Arc::new(b"another".as_slice().into());
            let mut more = (*b.connections[0]).clone();
            more.name = "second".into();
            if let Some(remote) = second {
                more.remote.id = id(remote);
            }
            b.connections.push(more.into());
        });
        assert_eq!(refused.refusal, Refusal::AuthenticationFailed);
        refused.connection
    };
    assert_eq!(refused(Some("c.example")).as_deref(), Some("site"));
    assert_eq!(refused(None), None);
}

#[test]
fn an_identity_that_no_connection_is_for() {
    let refused = refused_by_b(|a, _| a.local.id = id("mallory.example"));
    assert_eq!(refused.refusal, Refusal::NoConnection);
    assert_eq!(refused.remote_id.as_deref(), Some("mallory.example"));
    assert_eq!(refused.configured, "site: b.example === a.example");
    assert_eq!(refused.connection.as_deref(), Some("site"));
}

// RFC 7296 R110
#[test]
fn traffic_selectors_that_do_not_meet() {
    let refused = refused_by_b(|a, _| {
        a.children = vec![child("net", NET_A, "10.9.0.0-10.9.255.255").into()];
    });
    assert_eq!(refused.refusal, Refusal::TsUnacceptable);
    assert_eq!(refused.connection.as_deref(), Some("site"));
    assert_eq!(refused.remote_id.as_deref(), Some("a.example"));
    assert_eq!(
        refused.offered,
        "10.9.0.0-10.9.255.255 === 10.1.0.0-10.1.255.255"
    );
    assert_eq!(
        refused.configured,
        "net: 10.2.0.0-10.2.255.255 === 10.1.0.0-10.1.255.255"
    );
}

// RFC 7296 R216
#[test]
fn no_esp_proposal_in_common() {
    let refused = refused_by_b(|a, _| {
        change_children(a, |child| {
            child.esp_proposals[0].encryption = vec![(Encryption::AesGcm16, 256)];
        });
    });
    assert_eq!(refused.refusal, Refusal::NoProposalChosen);
    assert_eq!(refused.offered, "AES_GCM_16-256/NO_ESN");
    assert_eq!(refused.configured, "net: AES_GCM_16-128/NO_ESN");
}

#[test]
fn a_child_of_its_own_exchange() {
    let mut pair = Pair::with(|a, _| {
        a.children
            .push(child("two", "10.3.0.0-10.3.0.255", "10.4.0.0-10.4.0.255").into());
    });
    pair.initiate();
    pair.run(SECOND);
    let [refused] = told(&pair.b)[..] else {
        panic!("{:?}", told(&pair.b))
    };
    assert_eq!(refused.refusal, Refusal::TsUnacceptable);
}

// RFC 7296 R180
#[test]
fn collisions_are_no_refusals() {
    let mut pair = Pair::established();
    for _ in 0..3 {
        pair.collide();
    }
    assert!(
        pair.a.refused(Refusal::TemporaryFailure) + pair.b.refused(Refusal::TemporaryFailure) > 0
    );
    assert!(told_nothing(&pair.a) && told_nothing(&pair.b));
}

#[test]
fn a_hostile_identity_is_escaped_and_cut() {
    let mut b = config(default_configs().1);
    change_connection(&mut b, |b| b.remote.id = id("nobody.example"));
    let now = Instant::now();
    let mut side = Side::new("b", B, b, now, 7);
    let hostile = "\u{1b}[2J\nWARN forged line \u{202e}";
    let fqdn = hostile.to_owned() + &"x".repeat(900);
    // Printable characters that turn text or end a line.
    let marks = "\u{202e}\u{61c}\u{2028}WARN\u{2029}forged\u{200f}";
    let name = format!("CN=\"{marks}{}\"", "x".repeat(900));
    let Identity::Dn(name) = id(&name) else {
        panic!("no name")
    };
    for (number, id) in [
        Id::new(IdType::FQDN, fqdn.into_bytes()),
        Id::new(IdType::DER_ASN1_DN, name.der().to_vec()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut script = Script::new();
        script.spi_i += number as u64;
        script.id = id;
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        let payloads = script.auth_payloads(b"a shared secret");
        script
            .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
            .unwrap();
    }
    let told = told(&side);
    assert_eq!(told.len(), 2);
    for text in told
        .iter()
        .flat_map(|one| [&one.why, one.remote_id.as_ref().unwrap()])
    {
        assert!(text.len() < 1000, "{} bytes", text.len());
        let steers = |c: char| c.is_control() || (marks.contains(c) && !c.is_ascii());
        assert!(!text.contains(steers), "{text:?}");
    }
    let shown = told[1].remote_id.as_ref().unwrap();
    assert!(shown.contains("\\u{202e}\\u{61c}\\u{2028}WARN"), "{shown}");
}

/// Refusals in the name of a false address do not use up the reports of its owner.
#[test]
fn a_forged_source_silences_nobody() {
    let mut b = config(default_configs().1);
    change_connection(&mut b, |b| b.remote_addrs = vec![AddressMatch::Any]);
    let now = Instant::now();
    let mut side = Side::new("b", B, b, now, 7);
    let victim = "203.0.113.7";
    let mut attempt = |number: u64, from: &str, then: &str, init: bool| {
        let mut script = Script::new();
        script.spi_i += number;
        script.local = format!("{from}:500").parse().unwrap();
        let mut payloads = script.init_payloads_behind_nat();
        if let (false, Payload::Sa(proposals)) = (init, &mut payloads[0]) {
            proposals[0].transforms.clear();
        }
        script.init(&mut side, now, payloads).unwrap();
        if init {
            script.local = format!("{then}:4500").parse().unwrap();
            script.remote.set_port(4500);
            let payloads = script.auth_payloads(b"guess");
            script
                .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
                .unwrap();
        }
        told(&side).len()
    };
    // The peers have no proposal in common with us, and have proved no address.
    let unproven = (0..4).map(|number| attempt(number, victim, victim, false));
    assert_eq!(unproven.last(), Some(1), "the same is told once");
    let elsewhere = (4..8).map(|number| attempt(number, "203.0.113.1", victim, true));
    assert_eq!(elsewhere.last(), Some(2), "one of the one who was answered");
    assert_eq!(attempt(8, victim, victim, true), 3);
}

#[test]
fn a_flood_of_refusals_is_told_a_few_times() {
    let mut b = config(default_configs().1);
    change_connection(&mut b, |b| {
        b.proposals[0].encryption = vec![(Encryption::AesGcm16, 256)]
    });
    let start = Instant::now();
    let mut side = Side::new("b", B, b, start, 7);
    for number in 0..5000u32 {
        let mut script = Script::new();
        script.spi_i += u64::from(number);
        let source = std::net::Ipv4Addr::from(0x0b00_0000 + number);
        script.local = (source, 500).into();
        let payloads = script.init_payloads();
        let now = start + Duration::from_millis(10) * number;
        script.init(&mut side, now, payloads);
    }
    let told = told(&side);
    assert!((10..=16).contains(&told.len()), "{} in 50 s", told.len());
    let untold: u64 = told.iter().map(|refused| refused.unreported).sum();
    // The others were asked for a cookie first.
    assert!(untold > 800, "{untold} are told of as a number");
}
