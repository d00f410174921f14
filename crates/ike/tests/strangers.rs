//! Messages whose source address may be false are answered within limits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of, seemingly_sealed};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::AddressMatch;
use esplanade_ike::wire::{ExchangeType, Header, Message, NotifyType, Payload};
use esplanade_ike::{Config, Refusal};

const SECOND: Duration = Duration::from_secs(1);

/// B, for peers of any address.
fn open_to_all() -> (Side, Instant) {
    let mut connection = default_configs().1;
    connection.remote_addrs = vec![AddressMatch::Any];
    let now = Instant::now();
    (Side::new("b", B, config(connection), now, 7), now)
}

fn encode(header: Header, payloads: Vec<Payload>) -> Vec<u8> {
    Message { header, payloads }.encode().unwrap()
}

/// The IKE_SA_INIT request with this number, as the caller has changed it.
fn init_with(number: u64, change: impl FnOnce(&mut Vec<Payload>)) -> Vec<u8> {
    let mut script = Script::new();
    script.spi_i = SPI + number;
    let mut payloads = script.init_payloads();
    change(&mut payloads);
    encode(script.header(ExchangeType::IKE_SA_INIT, 0), payloads)
}

fn key(payloads: &mut [Payload], group: Group, public: Vec<u8>) {
    let Payload::Ke(ke) = &mut payloads[1] else {
        panic!()
    };
    (ke.method, ke.data) = (group.number(), public);
}

fn critical(number: u64) -> Vec<u8> {
    let mut message = init_with(number, |payloads| {
        let body = vec![1, 2];
        let kind = esplanade_ike::wire::PayloadType(200);
        *payloads = vec![Payload::Unknown { kind, body }];
    });
    message[29] = 0x80;
    message
}

/// A request of an IKE SA that does not exist.
fn protected(number: u64, exchange: ExchangeType) -> Vec<u8> {
    let mut script = Script::new();
    (script.spi_i, script.spi_r) = (SPI + number, 1 + number);
    seemingly_sealed(script.header(exchange, 3))
}

fn newer(number: u64) -> Vec<u8> {
    let mut message = protected(number, ExchangeType::INFORMATIONAL);
    message[17] = 0x30;
    message
}

type Request = fn(u64) -> Vec<u8>;

/// Every request of a sender without authentication that an error answers.
const ANSWERED: [(NotifyType, Request); 8] = [
    (NotifyType::INVALID_MAJOR_VERSION, newer),
    (NotifyType::INVALID_IKE_SPI, |n| {
        protected(n, ExchangeType::INFORMATIONAL)
    }),
    (NotifyType::INVALID_IKE_SPI, |n| {
        protected(n, ExchangeType::IKE_AUTH)
    }),
    (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, critical),
    (NotifyType::INVALID_SYNTAX, |n| {
        init_with(n, |payloads| drop(payloads.remove(0)))
    }),
    // A key of small order.
    (NotifyType::INVALID_SYNTAX, |n| {
        init_with(n, |payloads| key(payloads, Group::Curve25519, vec![0; 32]))
    }),
    (NotifyType::INVALID_KE_PAYLOAD, |n| {
        init_with(n, |payloads| key(payloads, Group::Ecp256, vec![9; 64]))
    }),
    (NotifyType::NO_PROPOSAL_CHOSEN, |n| {
        init_with(n, |payloads| {
            let Payload::Sa(proposals) = &mut payloads[0] else {
                panic!()
            };
            proposals[0].transforms.truncate(1);
        })
    }),
];

/// The responses by their notify. A cookie must not be longer than the request that it answers.
fn answers(side: &mut Side, now: Instant, from: &str, request: &[u8]) -> Vec<NotifyType> {
    let mut script = Script::new();
    script.local = from.parse().unwrap();
    if script.local.is_ipv6() {
        script.remote = "[2001:db8:ffff::1]:500".parse().unwrap();
    }
    let mut kinds = Vec::new();
    for answer in script.send(side, now, request) {
        let message = Message::decode(&answer).unwrap();
        let kind = message.notifications().next().unwrap().kind;
        assert!(kind != NotifyType::COOKIE || answer.len() <= request.len());
        kinds.push(kind);
    }
    kinds
}

fn count(kinds: &[NotifyType]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind.to_string()).or_default() += 1;
    }
    counts
}

// RFC 7296 R65, R72, R120, R157, R159
#[test]
fn one_source_gets_few_errors() {
    for (error, request) in ANSWERED {
        let (mut side, now) = open_to_all();
        let mut kinds = Vec::new();
        for number in 0..500 {
            let from = format!("203.0.113.7:{}", 500 + number);
            kinds.extend(answers(&mut side, now, &from, &request(number)));
        }
        kinds.retain(|kind| *kind != NotifyType::COOKIE);
        assert_eq!(kinds, vec![error; 5], "{error}");
        let other = answers(&mut side, now, "203.0.113.8:500", &request(1000));
        assert_eq!(other, [error], "another source");
        let later = answers(&mut side, now + SECOND, "203.0.113.7:500", &request(1001));
        assert_eq!(later, [error], "a second later");
        assert_eq!(side.endpoint.half_open(), 0);
    }
}

// RFC 7296 R157
#[test]
fn an_ipv6_network_is_one_source() {
    for (error, request) in ANSWERED {
        let connection = |config: &mut Config| {
            let mut connection = (*config.connections[0]).clone();
            connection.local_addrs = vec![AddressMatch::Any];
            connection.remote_addrs = vec![AddressMatch::Any];
            config.connections = vec![connection.into()];
        };
        let mut config = config(default_configs().1);
        connection(&mut config);
        let now = Instant::now();
        let mut side = Side::new("b", B, config, now, 7);
        let mut kinds = Vec::new();
        for number in 0..100 {
            let from = format!("[2001:db8::{number:x}]:500");
            kinds.extend(answers(&mut side, now, &from, &request(number)));
        }
        kinds.retain(|kind| *kind != NotifyType::COOKIE);
        assert_eq!(kinds, vec![error; 5], "{error}");
    }
}

// RFC 7296 R65, R157
#[test]
fn all_sources_together_get_few_errors() {
    let (mut side, now) = open_to_all();
    let mut kinds = Vec::new();
    for number in 0..400u64 {
        let (_, request) = ANSWERED[number as usize % ANSWERED.len()];
        let from = format!("203.0.{}.7:500", number % 256);
        kinds.extend(answers(&mut side, now, &from, &request(number)));
    }
    kinds.retain(|kind| *kind != NotifyType::COOKIE);
    assert_eq!(kinds.len(), 20, "{:?}", count(&kinds));
    assert!(side.refused(Refusal::RateLimited) > 100);
}

#[test]
fn who_shows_a_cookie_is_told_its_error_nevertheless() {
    let (mut side, now) = open_to_all();
    for number in 0..30 {
        let from = format!("203.0.{number}.7:500");
        let stray = protected(number, ExchangeType::INFORMATIONAL);
        answers(&mut side, now, &from, &stray);
    }
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    key(&mut payloads, Group::Ecp256, vec![9; 64]);
    let answer = script.init(&mut side, now, payloads.clone()).unwrap();
    let cookie = answer.notification(NotifyType::COOKIE).unwrap().clone();
    payloads.insert(0, Payload::Notify(cookie));
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_eq!(error_of(&answer), Some(NotifyType::INVALID_KE_PAYLOAD));
}

#[test]
fn a_repeated_ike_sa_init_is_answered_a_bounded_number_of_times() {
    let (mut side, now) = open_to_all();
    let script = Script::new();
    let request = init_with(0, |_| {});
    let (mut sent, mut answered) = (0, 0);
    for moment in 0..3000 {
        let now = now + moment * Duration::from_millis(9);
        sent += request.len();
        let answers = script.send(&mut side, now, &request);
        answered += answers.iter().map(Vec::len).sum::<usize>();
    }
    assert!(answered < 9 * 2 * request.len(), "{answered} for {sent}");
    assert_eq!(side.refused(Refusal::Retransmission), 8);
    assert_eq!(side.refused(Refusal::RateLimited), 2991);
}

// RFC 7296 R40, R48
#[test]
fn who_loses_answers_to_ike_sa_init_gets_them_again() {
    let (mut side, now) = open_to_all();
    let script = Script::new();
    let request = init_with(0, |_| {});
    let first = script.send(&mut side, now, &request);
    for at in [500, 1500, 3500, 7500, 15_500, 29_000] {
        let now = now + Duration::from_millis(at);
        assert_eq!(script.send(&mut side, now, &request), first);
    }
}

// RFC 7296 R25, R41
#[test]
fn a_captured_request_makes_no_flood_of_answers() {
    let (mut side, now) = open_to_all();
    let mut script = Script::established(&mut side, now);
    let header = script.header(ExchangeType::INFORMATIONAL, script.next_id);
    let request = script.seal(&header, &[]);
    let answer = script.send(&mut side, now, &request);
    assert_eq!(answer.len(), 1);
    let peer = script.local;
    script.local = "203.0.113.7:500".parse().unwrap();
    let flood = (0..1000).flat_map(|_| script.send(&mut side, now, &request));
    assert_eq!(flood.count(), 4);
    script.local = peer;
    let again = script.send(&mut side, now + SECOND, &request);
    assert_eq!(again, answer, "the peer itself is answered");
}
