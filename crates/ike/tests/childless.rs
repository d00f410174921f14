//! IKE SAs that begin without a child SA (RFC 6023).

use std::time::Duration;

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_ike::config::{Child, Childless};
use esplanade_ike::wire::{
    ExchangeType, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId,
};
use esplanade_ike::{DownReason, Event, Refusal};

const VALUES: [Childless; 4] = [
    Childless::Allow,
    Childless::Prefer,
    Childless::Force,
    Childless::Never,
];

fn second(local: &str, remote: &str) -> Child {
    child("second", local, remote)
}

/// A pair with two children and these values of `childless`.
fn pair(a: Childless, b: Childless) -> Pair {
    let (mut config_a, mut config_b) = default_configs();
    let (net_a, net_b) = ("10.3.0.0-10.3.255.255", "10.4.0.0-10.4.255.255");
    config_a.children.push(second(net_a, net_b).into());
    config_b.children.push(second(net_b, net_a).into());
    (config_a.childless, config_b.childless) = (a, b);
    let mut config_a = config(config_a);
    config_a.trace_messages = true;
    Pair::new(
        config_a,
        config(config_b),
        esplanade_testkit::net::Conditions::PERFECT,
        1,
    )
}

/// The requests of an exchange that A has sent.
fn requests(pair: &Pair, name: &str) -> Vec<String> {
    let sent = pair.a.events.iter().filter_map(|event| match event {
        Event::Message(message) if message.exchange == name && !message.response => {
            Some(message.payloads.clone())
        }
        _ => None,
    });
    sent.collect()
}

fn failure(pair: &Pair) -> Option<&DownReason> {
    pair.a.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason),
        _ => None,
    })
}

// RFC 6023 R2, R3, R4, R5
#[test]
fn every_value_at_both_ends() {
    for a in VALUES {
        for b in VALUES {
            let mut pair = pair(a, b);
            pair.initiate();
            pair.run(Duration::from_secs(5));
            let wants = matches!(a, Childless::Prefer | Childless::Force);
            let refused = match (a, b) {
                (Childless::Force, Childless::Never) => Some(DownReason::NotChildless),
                (Childless::Allow | Childless::Never, Childless::Force) => {
                    Some(DownReason::PeerRefused(NotifyType::INVALID_SYNTAX))
                }
                _ => None,
            };
            assert_eq!(failure(&pair), refused.as_ref(), "{a:?} {b:?}");
            let auth = requests(&pair, "IKE_AUTH");
            if let Some(refused) = refused {
                pair.assert_agreed(0, 0);
                assert_eq!(auth.is_empty(), refused == DownReason::NotChildless);
                assert_eq!(pair.b.refused(Refusal::InvalidSyntax), auth.len() as u64);
            } else {
                pair.assert_agreed(1, 2);
                let childless = wants && b != Childless::Never;
                assert_eq!(auth[0].contains("TSI"), !childless, "{a:?} {b:?}: {auth:?}");
                let created = requests(&pair, "CREATE_CHILD_SA").len();
                assert_eq!(created, if childless { 2 } else { 1 }, "{a:?} {b:?}");
            }
            pair.assert_clean_end();
        }
    }
}

/// The response of B to IKE_SA_INIT.
fn init(script: &mut Script, value: Childless) -> (Side, std::time::Instant, Message) {
    let (mut side, now) = b_with(|b| change_connection(b, |b| b.childless = value));
    let payloads = script.init_payloads();
    let message = script.init(&mut side, now, payloads).unwrap();
    (side, now, message)
}

// RFC 6023 R1, R7
#[test]
fn the_responder_announces_what_it_takes() {
    for value in VALUES {
        let (_, _, message) = init(&mut Script::new(), value);
        let announced = Notify {
            protocol: ProtocolId::IKE,
            ..Notify::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED, vec![])
        };
        let found = message.notification(NotifyType::CHILDLESS_IKEV2_SUPPORTED);
        let expected = (value != Childless::Never).then_some(&announced);
        assert_eq!(found, expected, "{value:?}");
    }
}

/// Makes IKE_AUTH with the payloads that `keep` names. Returns B and its response.
fn auth(value: Childless, keep: impl Fn(PayloadType) -> bool) -> (Side, Message) {
    let mut script = Script::new();
    let (mut side, now, _) = init(&mut script, value);
    let mut payloads = script.auth_payloads(b"a shared secret");
    payloads.retain(|payload| keep(payload.kind()));
    let response = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    (side, response.unwrap())
}

const OF_CHILD: [PayloadType; 3] = [PayloadType::SA, PayloadType::TSI, PayloadType::TSR];

// RFC 6023 R4, R6
#[test]
fn an_ike_sa_without_a_child_stays_up() {
    let (mut side, response) = auth(Childless::Allow, |kind| !OF_CHILD.contains(&kind));
    let kinds: Vec<_> = response.payloads.iter().map(Payload::kind).collect();
    assert!(kinds.contains(&PayloadType::IDR) && kinds.contains(&PayloadType::AUTH));
    assert!(!OF_CHILD.iter().any(|kind| kinds.contains(kind)));
    assert_eq!(error_of(&response), None);
    let now = std::time::Instant::now() + Duration::from_secs(3600);
    side.endpoint.handle_timeout(now);
    assert_eq!(side.ike_sas().len(), 1);
    assert!(side.endpoint.status()[0].children.is_empty());
}

// RFC 6023 R8
#[test]
fn a_request_without_a_child_that_was_not_announced_is_refused() {
    let (side, response) = auth(Childless::Never, |kind| !OF_CHILD.contains(&kind));
    assert_eq!(error_of(&response), Some(NotifyType::INVALID_SYNTAX));
    assert!(side.ike_sas().is_empty());
    assert_eq!(side.refused(Refusal::InvalidSyntax), 1);
}

#[test]
fn half_a_child_is_no_childless_request() {
    for missing in OF_CHILD {
        let (side, response) = auth(Childless::Allow, |kind| kind != missing);
        assert_eq!(error_of(&response), Some(NotifyType::INVALID_SYNTAX));
        assert!(side.ike_sas().is_empty());
    }
}

/// The command takes back the only child while IKE_AUTH is under way.
#[test]
fn a_child_that_is_not_wanted_any_more_is_not_made() {
    let mut pair = Pair::with(|a, _| a.childless = Childless::Prefer);
    pair.initiate();
    let auth_is_sent = |pair: &Pair| pair.a.sent.len() == 2;
    while !auth_is_sent(&pair) {
        assert!(pair.step(pair.now + Duration::from_secs(5)));
    }
    let now = pair.now;
    let _ = pair.a.endpoint.terminate(now, "site", Some("net"));
    pair.flush();
    pair.run(Duration::from_secs(5));
    pair.assert_agreed(1, 0);
    pair.assert_clean_end();
}
