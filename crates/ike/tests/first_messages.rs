//! The first messages: what stands in a response outside an IKE SA, whose first message is whose, and when one comes
//! again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of, seemingly_sealed};
use crate::common::wiretap::{sent_by, tapped};
use crate::common::*;
use esplanade_crypto::iana::{Group, Prf};
use esplanade_ike::config::AddressMatch;
use esplanade_ike::failure::UnusableResponse;
use esplanade_ike::wire::{
    ExchangeType, Header, KePayload, Message, Notify, NotifyType, Payload, Transform, TransformType,
};
use esplanade_ike::{Config, DownReason, Event, Random, Refusal};
use esplanade_testkit::net::{Conditions, Rng};

const SECOND: Duration = Duration::from_secs(1);

/// B, which takes anybody's address.
fn open_to_all() -> (Side, Instant) {
    b_with(|config| {
        change_connection(config, |connection| {
            connection.remote_addrs = vec![AddressMatch::Any];
        });
    })
}

// RFC 7296 R35
#[test]
fn an_error_outside_an_ike_sa_has_the_header_of_its_request() {
    for exchange in [
        ExchangeType::IKE_AUTH,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::INFORMATIONAL,
    ] {
        for from_initiator in [true, false] {
            let (mut side, now) = b_with(|_| {});
            let script = Script::new();
            let header = Header {
                responder_spi: 0x1234_5678_9abc_def0,
                from_initiator,
                ..script.header(exchange, 0x0102_0304)
            };
            let unknown = seemingly_sealed(header);
            let mut newer = unknown.clone();
            newer[17] = 0x30;
            for (request, error) in [
                (unknown, NotifyType::INVALID_IKE_SPI),
                (newer, NotifyType::INVALID_MAJOR_VERSION),
            ] {
                let answers = script.send(&mut side, now, &request);
                let answer = Message::decode(&answers[0]).unwrap();
                assert_eq!(error_of(&answer), Some(error));
                let expected = Header {
                    response: true,
                    from_initiator: answer.header.from_initiator,
                    ..header
                };
                assert_eq!(answer.header, expected);
                assert_eq!(answers[0][17], 0x20, "our version");
            }
        }
    }
}

/// Or else two gateways would answer each other for ever (RFC 7296 §2.5 and §2.21).
#[test]
fn a_response_with_a_newer_version_is_not_answered() {
    for exchange in [ExchangeType::IKE_SA_INIT, ExchangeType::INFORMATIONAL] {
        for response in [false, true] {
            let (mut side, now) = b_with(|_| {});
            let script = Script::new();
            let header = Header {
                responder_spi: 7,
                response,
                ..script.header(exchange, 1)
            };
            let mut newer = seemingly_sealed(header);
            newer[17] = 0x30;
            let answers = script.send(&mut side, now, &newer);
            assert_eq!(answers.len(), usize::from(!response), "{exchange:?}");
            assert_eq!(side.refused(Refusal::Version), 1);
        }
    }
}

// RFC 7296 R82
#[test]
fn a_response_that_makes_no_half_open_sa_has_no_responder_spi() {
    type Case = (NotifyType, fn(&mut Config), fn(&mut Vec<Payload>));
    let cases: [Case; 3] = [
        (
            NotifyType::COOKIE,
            |config| config.limits.cookie_threshold = 0,
            |_| {},
        ),
        (
            NotifyType::INVALID_KE_PAYLOAD,
            |_| {},
            |payloads| {
                if let Payload::Sa(proposals) = &mut payloads[0] {
                    let other = Transform::new(TransformType::KEY_EXCHANGE, 19);
                    proposals[0].transforms.push(other);
                }
                payloads[1] = Payload::Ke(KePayload {
                    method: 19,
                    data: vec![4; 64],
                });
            },
        ),
        (
            NotifyType::NO_PROPOSAL_CHOSEN,
            |config| {
                change_connection(config, |connection| {
                    connection.proposals[0].encryption[0].1 = 256;
                });
            },
            |_| {},
        ),
    ];
    for (expected, change, bend) in cases {
        let (mut side, now) = b_with(change);
        let mut script = Script::new();
        let mut payloads = script.init_payloads();
        bend(&mut payloads);
        let answer = script.init(&mut side, now, payloads).unwrap();
        let kinds: Vec<_> = answer.notifications().map(|notify| notify.kind).collect();
        assert_eq!(kinds, [expected]);
        assert_eq!(answer.header.responder_spi, 0);
        assert_eq!(side.endpoint.half_open(), 0);
    }
}

/// Nothing but a copy of the request makes the responder send its response again, however long it waits.
// RFC 7296 R40
#[test]
fn no_timer_repeats_a_response() {
    let (mut side, start) = b_with(|_| {});
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, start, payloads).unwrap();
    let wait = |side: &mut Side, from: Instant| {
        for second in 1..=10 {
            side.endpoint.handle_timeout(from + second * SECOND);
            assert_eq!(Script::take(side), Vec::<Vec<u8>>::new());
        }
        from + 10 * SECOND
    };
    let now = wait(&mut side, start);
    assert_eq!(side.endpoint.half_open(), 1);
    let payloads = script.auth_payloads(b"a shared secret");
    for (exchange, id, payloads) in [
        (ExchangeType::IKE_AUTH, 1, &payloads[..]),
        (ExchangeType::INFORMATIONAL, 2, &[]),
    ] {
        let request = script.seal(&script.header(exchange, id), payloads);
        let answers = script.send(&mut side, now, &request);
        assert_eq!(answers.len(), 1);
        let later = wait(&mut side, now);
        assert_eq!(script.send(&mut side, later, &request), answers);
        assert_eq!(side.ike_sas().len(), 1);
    }
}

// RFC 7296 R49
#[test]
fn a_copy_of_ike_sa_init_means_nothing_after_ike_auth() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    let copy = script.request.clone();
    for _ in 0..10 {
        assert_eq!(script.send(&mut side, now, &copy), Vec::<Vec<u8>>::new());
    }
    assert_eq!(side.refused(Refusal::MessageIdReuse), 10);
    assert_eq!((side.ike_sas().len(), side.endpoint.half_open()), (1, 0));
    let exchange = ExchangeType::INFORMATIONAL;
    assert!(script.exchange(&mut side, now, exchange, &[]).is_some());
}

/// The NAT has one address, and gives each peer ports of its own.
// RFC 7296 R50
#[test]
fn two_peers_behind_one_nat_may_have_the_same_spi() {
    let (mut side, now) = open_to_all();
    let mut peers = [1500, 2500].map(|port| {
        let mut script = Script::new();
        script.local = format!("203.0.113.9:{port}").parse().unwrap();
        script
    });
    let mut answers = Vec::new();
    for script in &mut peers {
        let payloads = script.init_payloads_behind_nat();
        script.init(&mut side, now, payloads).unwrap();
        // The copy is answered with the response to this peer.
        answers.push(script.send(&mut side, now, &script.request.clone()));
    }
    assert_ne!(answers[0], answers[1]);
    assert_eq!(side.endpoint.half_open(), 2);
    for script in &mut peers {
        script.local.set_port(script.local.port() + 4000);
        script.remote.set_port(4500);
        let payloads = script.auth_payloads(b"a shared secret");
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(error_of(&answer.unwrap()), None);
    }
    let spis: Vec<_> = side.ike_sas().iter().map(|(spi, _)| *spi).collect();
    assert_eq!(spis, [SPI, SPI]);
    for script in &mut peers {
        let exchange = ExchangeType::INFORMATIONAL;
        assert!(script.exchange(&mut side, now, exchange, &[]).is_some());
    }
}

/// Each number of eight bytes comes twice, and the first is zero.
struct Repetitive {
    others: SeededRandom,
    given: u64,
}

impl Random for Repetitive {
    fn fill(&mut self, bytes: &mut [u8]) {
        match <&mut [u8; 8]>::try_from(&mut *bytes) {
            Ok(number) => {
                *number = (self.given / 2).to_be_bytes();
                self.given += 1;
            }
            Err(_) => self.others.fill(bytes),
        }
    }
}

/// B answers four peers, one of them rekeys, and B begins an IKE SA itself.
// RFC 7296 R80
#[test]
fn an_spi_that_comes_twice_is_used_once() {
    let now = Instant::now();
    let mut side = Side::with_host("b", B, config(default_configs().1), now, 7, |host| {
        host.random = Box::new(Repetitive {
            others: SeededRandom(Rng::new(7)),
            given: 0,
        });
    });
    side.endpoint.initiate(now, "site", None).unwrap();
    let own = Script::take(&mut side).remove(0);
    let mut spis = vec![Header::decode(&own).unwrap().initiator_spi];
    for number in 1..=4 {
        let mut script = Script::new();
        script.spi_i = SPI + 100 * number;
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        spis.push(script.spi_r);
        if number == 1 {
            let payloads = script.auth_payloads(b"a shared secret");
            let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
            assert_eq!(error_of(&answer.unwrap()), None);
            script.rekey_ike(&mut side, now);
            spis.push(script.spi_r);
        }
    }
    assert!(!spis.contains(&0));
    let different: BTreeSet<_> = spis.iter().collect();
    assert_eq!(different.len(), 6, "{spis:x?}");
}

/// A response to the last request of A, from nobody.
fn answer_without_key(pair: &mut Pair, notify: Notify) {
    let request = pair.a.sent.last().unwrap().clone();
    let header = Header {
        response: true,
        from_initiator: false,
        ..Header::decode(&request.payload).unwrap()
    };
    let payloads = vec![Payload::Notify(notify)];
    let answer = Message { header, payloads }.encode().unwrap();
    let (local, remote) = (request.local, request.remote);
    let endpoint = &mut pair.a.endpoint;
    endpoint.handle_datagram(pair.now, local, remote, &answer);
    pair.flush();
}

// RFC 7296 R88
#[test]
fn cookies_without_end_end_the_attempt() {
    let mut pair = Pair::with(|_, _| {});
    pair.b.dead = true;
    pair.initiate();
    for number in 0..20 {
        let cookie = Notify::new(NotifyType::COOKIE, vec![number; 20]);
        answer_without_key(&mut pair, cookie);
    }
    assert_eq!(pair.a.sent.len(), 7, "the first request, and six more");
    pair.run(60 * SECOND);
    let expected = DownReason::UnusableResponse(UnusableResponse::TooManyCookies);
    let failed =
        |event: &Event| matches!(event, Event::ConnectFailed { reason, .. } if *reason == expected);
    assert!(pair.a.events.iter().any(failed), "{:?}", pair.a.events);
}

/// B demands a cookie, then another group, and then knows its cookie no more.
// RFC 7296 R90
#[test]
fn another_cookie_after_another_group_is_followed() {
    let (mut a, b) = default_configs();
    a.proposals[0].groups = vec![Group::Ecp256, Group::Curve25519];
    let mut demanding = config(b);
    demanding.limits.cookie_threshold = 0;
    let mut pair = Pair::new(config(a), demanding.clone(), Conditions::PERFECT, 1);
    pair.initiate();
    while pair.b.sent.len() < 2 {
        assert!(pair.step(pair.now + SECOND));
    }
    let mut demands = pair.b.sent.clone();
    pair.b = Side::new("b", B, demanding, pair.now, 99);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    demands.push(pair.b.sent[0].clone());
    let kinds = demands.iter().map(|sent| {
        let message = Message::decode(&sent.payload).unwrap();
        message.notifications().next().map(|notify| notify.kind)
    });
    let expected = [
        NotifyType::COOKIE,
        NotifyType::INVALID_KE_PAYLOAD,
        NotifyType::COOKIE,
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected.map(Some));
    pair.assert_clean_end();
}

/// Keeps all that it gives.
struct Recorded {
    random: SeededRandom,
    given: Arc<Mutex<BTreeSet<Vec<u8>>>>,
}

impl Random for Recorded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.random.fill(bytes);
        self.given.lock().unwrap().insert(bytes.to_vec());
    }
}

fn nonces(pair: &Pair, side: &Side) -> Vec<Vec<u8>> {
    let sent = sent_by(pair, side).into_iter();
    let payloads = sent.flat_map(|sent| sent.message.payloads);
    let nonces = payloads.filter_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(nonce),
        _ => None,
    });
    nonces.collect()
}

/// The PRF has the longest key of all, which has 512 bits.
// RFC 7296 R119
#[test]
fn every_nonce_comes_whole_from_the_random_source_and_is_long_enough() {
    let mut configs = Vec::new();
    let mut pair = tapped(|a, b| {
        for connection in [a, b] {
            connection.proposals[0].prf = vec![Prf::HmacSha2_512];
            configs.push(Config {
                key_log: true,
                ..config(connection.clone())
            });
        }
    });
    let given = [(); 2].map(|()| Arc::new(Mutex::new(BTreeSet::new())));
    for (number, config) in (0..).zip(configs) {
        let (name, address, side) = match number {
            0 => ("a", A, &mut pair.a),
            _ => ("b", B, &mut pair.b),
        };
        let recorded = Recorded {
            random: SeededRandom(Rng::new(number)),
            given: Arc::clone(&given[number as usize]),
        };
        *side = Side::with_host(name, address, config, pair.now, number, |host| {
            host.random = Box::new(recorded);
        });
    }
    pair.initiate();
    pair.run(SECOND);
    for what in [Some("net"), None] {
        pair.a.endpoint.rekey(pair.now, "site", what).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.b.endpoint.rekey(pair.now, "site", what).unwrap();
        pair.flush();
        pair.run(SECOND);
    }
    pair.assert_agreed(1, 1);
    let mut all = BTreeSet::new();
    for (side, given) in [&pair.a, &pair.b].into_iter().zip(&given) {
        let nonces = nonces(&pair, side);
        assert_eq!(nonces.len(), 5, "of {}", side.name);
        for nonce in nonces {
            assert!(nonce.len() >= 512 / 8 / 2, "{} bytes", nonce.len());
            assert!(given.lock().unwrap().contains(&nonce), "not by chance");
            assert!(all.insert(nonce), "the same nonce twice");
        }
    }
}
