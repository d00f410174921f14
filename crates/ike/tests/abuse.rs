//! Abuse by strangers, and by malicious peers that are authenticated. The tests show what neither can get out of an
//! endpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_ike::config::{AddressMatch, Secret};
use esplanade_ike::wire::{ExchangeType, Header, Message, Notify, NotifyType, Payload, ProtocolId};
use esplanade_ike::{Event, Refusal};

const SECOND: Duration = Duration::from_secs(1);

fn init(script: &mut Script, side: &mut Side, now: Instant) -> Option<Message> {
    let payloads = script.init_payloads();
    script.init(side, now, payloads)
}

/// Runs IKE_SA_INIT and IKE_AUTH with this key. Returns the error of the response.
fn authenticate(
    script: &mut Script,
    side: &mut Side,
    now: Instant,
    psk: &[u8],
    extra: Option<NotifyType>,
) -> Option<NotifyType> {
    init(script, side, now).unwrap();
    let mut payloads = script.auth_payloads(psk);
    payloads.extend(extra.map(|kind| Payload::Notify(Notify::new(kind, vec![]))));
    let answer = script.exchange(side, now, ExchangeType::IKE_AUTH, &payloads);
    error_of(&answer.unwrap())
}

// RFC 7296 R83
#[test]
fn an_ipv6_host_is_one_source_whatever_address_it_uses() {
    let (mut side, now) = b_with(|config| {
        change_connection(config, |connection| {
            connection.local_addrs = vec![AddressMatch::Any];
            connection.remote_addrs = vec![AddressMatch::Any];
        });
    });
    let mut attempts = |network: u16| {
        let admitted = |attempt: &u16| {
            let mut script = Script::new();
            script.local = format!("[2001:db8:0:{network:x}::{attempt:x}]:500")
                .parse()
                .unwrap();
            script.remote = "[2001:db8:ffff::1]:500".parse().unwrap();
            let answer = init(&mut script, &mut side, now).unwrap();
            answer.notification(NotifyType::COOKIE).is_none()
        };
        (1..=30).filter(admitted).count()
    };
    assert_eq!(attempts(1), 10);
    assert_eq!(attempts(2), 10, "another network is another source");
}

// RFC 7296 R17, R78, R97, R142, R212
#[test]
fn a_peer_that_rekeys_without_end_leaves_no_trail() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    for _ in 0..10 {
        script.rekey_ike(&mut side, now);
    }
    assert_eq!(side.endpoint.counters().ike_rekeys, 10);
    let status = side.endpoint.status();
    assert_eq!(status.len(), 2, "{status:#?}");
    assert_eq!(status[1].children.len(), 1);
    assert!(
        script
            .exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[])
            .is_some()
    );
}

// RFC 7296 R150
#[test]
fn one_identity_has_a_limited_number_of_ike_sas() {
    let (mut side, now) = b_with(|config| config.limits.ike_sas_per_peer_max = 2);
    let mut connect = |attempt| {
        let mut script = Script::new();
        script.spi_i = SPI + attempt;
        authenticate(&mut script, &mut side, now, b"a shared secret", None)
    };
    assert_eq!(connect(0), None);
    assert_eq!(connect(1), None);
    assert_eq!(connect(2), Some(NotifyType::AUTHENTICATION_FAILED));
    assert_eq!(side.refused(Refusal::IkeSaLimit), 1);
}

#[test]
fn a_rekey_obeys_invalid_ke_payload_once() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    side.endpoint.rekey(now, "site", None).unwrap();
    let mut requests = Script::take(&mut side);
    let wants = Notify::new(NotifyType::INVALID_KE_PAYLOAD, vec![0, 31]);
    let mut rounds = 0;
    while let Some(request) = requests.pop() {
        rounds += 1;
        assert!(
            rounds <= 2,
            "asked for the group that it had, it tries for ever"
        );
        requests = script.answer(&mut side, now, &request, &[Payload::Notify(wants.clone())]);
    }
    assert_eq!(rounds, 2);
}

/// B knows A by one connection. A second one, with the same secret, is for anybody.
// RFC 7296 R6
#[test]
fn initial_contact_ends_only_what_was_proved_in_the_same_way() {
    let strong = |connection: &mut esplanade_ike::config::Connection| {
        connection.proposals[0].encryption[0].1 = 256;
    };
    let (mut a, mut b) = default_configs();
    strong(&mut a);
    let mut anybody = b.clone();
    anybody.name = "anybody".to_owned();
    anybody.remote.id = id("%any");
    strong(&mut b);
    let mut b = config(b);
    b.connections.push(anybody.into());
    let mut pair = Pair::new(config(a), b, esplanade_testkit::net::Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let contact = Some(NotifyType::INITIAL_CONTACT);
    for attempt in 0..2 {
        let mut script = Script::new();
        script.spi_i = SPI + attempt;
        let error = authenticate(
            &mut script,
            &mut pair.b,
            pair.now,
            b"a shared secret",
            contact,
        );
        let not_its_traffic = Some(NotifyType::TS_UNACCEPTABLE);
        assert_eq!(error, not_its_traffic, "the IKE SA stands all the same");
    }
    let names: Vec<_> = pair
        .b
        .endpoint
        .status()
        .iter()
        .map(|sa| sa.connection.clone().unwrap())
        .collect();
    assert_eq!(names, ["site", "anybody"], "its own earlier one has ended");
}

// RFC 7296 R3
#[test]
fn a_secret_of_others_proves_no_identity_that_it_does_not_name() {
    let owned_by = |owners: &[&str]| {
        let (mut side, now) = b_with(|config| {
            change_connection(config, |connection| connection.remote.id = id("%any"));
            config.secrets = vec![Secret {
                owners: owners.iter().map(|owner| id(owner)).collect(),
                key: Arc::new(SecretBytes::from(b"shared".as_slice())),
            }];
        });
        authenticate(&mut Script::new(), &mut side, now, b"shared", None)
    };
    assert_eq!(
        owned_by(&["b.example", "carol.example"]),
        Some(NotifyType::AUTHENTICATION_FAILED)
    );
    assert_eq!(owned_by(&["b.example", "a.example"]), None);
    assert_eq!(owned_by(&["a.example"]), None);
    assert_eq!(owned_by(&["b.example"]), None, "for all peers of B");
    assert_eq!(owned_by(&["b.example", "%any"]), None);
    assert_eq!(owned_by(&[]), None);
}

// RFC 7296 R156
#[test]
fn invalid_syntax_in_an_answer_ends_the_sa() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    let child = side.endpoint.status()[0].children[0].id;
    side.endpoint.terminate_child_sa(now, child).unwrap();
    let request = Script::take(&mut side).pop().unwrap();
    let syntax = Notify::new(NotifyType::INVALID_SYNTAX, vec![]);
    script.answer(&mut side, now, &request, &[Payload::Notify(syntax)]);
    let down = |event: &Event| matches!(event, Event::IkeSaDown { .. });
    assert!(side.events.iter().any(down));
    assert!(side.endpoint.status().is_empty());
}

// RFC 7296 R10, R79
#[test]
fn a_full_ike_sa_still_rekeys_its_children() {
    let (mut side, now) = b_with(|config| config.limits.children_per_sa_max = 1);
    let mut script = Script::established(&mut side, now);
    let mut rekey = |spi: u32, next: u8| {
        let mut payloads = Script::child_payloads();
        if let Payload::Sa(proposals) = &mut payloads[0] {
            proposals[0].spi = vec![0, 0, 0x44, next];
        }
        payloads.push(Payload::Nonce(vec![3; 32]));
        payloads.push(Payload::Notify(Notify::about_child(
            NotifyType::REKEY_SA,
            ProtocolId::ESP,
            spi,
        )));
        let answer = script.exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads);
        error_of(&answer.unwrap())
    };
    assert_eq!(rekey(0x4444, 0x45), None);
    assert_eq!(
        rekey(0x4445, 0x46),
        Some(NotifyType::NO_ADDITIONAL_SAS),
        "until the replaced one is deleted"
    );
}

// RFC 7296 R150
#[test]
fn an_initiator_that_wants_eap_is_not_authenticated() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    init(&mut script, &mut side, now).unwrap();
    let mut payloads = script.auth_payloads(b"a shared secret");
    payloads.retain(|payload| !matches!(payload, Payload::Auth(_)));
    let answer = script
        .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
        .unwrap();
    assert_eq!(error_of(&answer), Some(NotifyType::AUTHENTICATION_FAILED));
}

// RFC 7296 R149
#[test]
fn a_forged_refusal_is_forgotten_when_the_responder_answers_otherwise() {
    let mut pair = Pair::with(|_, _| {});
    pair.a.endpoint.initiate(pair.now, "site", None).unwrap();
    let (local, remote) = (format!("{A}:500"), format!("{B}:500"));
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    let request = pair.a.endpoint.poll_transmit().unwrap();
    let header = Message::decode(&request.payload).unwrap().header;
    for (kind, data) in [
        (NotifyType::NO_PROPOSAL_CHOSEN, vec![]),
        (NotifyType::COOKIE, vec![7; 32]),
    ] {
        let answer = Message {
            header: Header {
                from_initiator: false,
                response: true,
                ..header
            },
            payloads: vec![Payload::Notify(Notify::new(kind, data))],
        };
        pair.a
            .endpoint
            .handle_datagram(pair.now, local, remote, &answer.encode().unwrap());
    }
    assert!(pair.a.endpoint.poll_transmit().is_some(), "with the cookie");
    // The first message is lost, the next one is not.
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 1);
}

#[test]
fn lifetimes_beyond_the_clock_are_no_lifetimes() {
    let mut pair = Pair::with(|a, b| {
        for connection in [a, b] {
            connection.rekey_time = Duration::MAX;
            connection.over_time = Duration::MAX;
            connection.dpd_delay = Duration::MAX;
            let mut child = (*connection.children[0]).clone();
            child.lifetime.rekey_time = Duration::MAX;
            child.lifetime.life_time = Duration::MAX;
            child.lifetime.rand_time = Duration::ZERO;
            connection.children = vec![child.into()];
        }
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.endpoint.poll_timeout(), None);
    pair.assert_clean_end();
}

// RFC 7296 R57, R186
#[test]
fn a_child_that_the_peer_has_rekeyed_is_not_rekeyed_again_with_another_group() {
    let (mut side, now) = b_with(|config| {
        change_connection(config, |connection| {
            let mut child = (*connection.children[0]).clone();
            let mut fresh = esp_proposal();
            fresh.encryption[0].1 = 256;
            fresh.groups = vec![Group::Curve25519];
            child.esp_proposals.push(fresh);
            connection.children = vec![child.into()];
        });
    });
    let mut script = Script::established(&mut side, now);
    side.endpoint.rekey(now, "site", Some("net")).unwrap();
    let request = Script::take(&mut side).pop().unwrap();
    let payloads = Script::rekey_child_payloads();
    let answer = script
        .exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
        .unwrap();
    assert_eq!(error_of(&answer), None);
    let wants = Notify::new(NotifyType::INVALID_KE_PAYLOAD, vec![0, 31]);
    let next = script.answer(&mut side, now, &request, &[Payload::Notify(wants)]);
    assert!(next.is_empty(), "the peer's rekey holds");
}
