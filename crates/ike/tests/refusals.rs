//! Every reason to refuse a message is produced once, and the peer's answer is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::script::{Script, error_of, seemingly_sealed};
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group};
use esplanade_ike::config::{AddressMatch, Config, HostName, Unique};
use esplanade_ike::wire::{
    ExchangeType, Header, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId,
    TransformType,
};
use esplanade_ike::{DownReason, Event, Host, PolicyRoom, Refusal, WantedPolicy};

const SECOND: Duration = Duration::from_secs(1);

fn b() -> (Side, Instant) {
    b_with(|_| {})
}

/// Sends IKE_SA_INIT, changed by `bend`, to a fresh endpoint.
fn init(
    change: impl FnOnce(&mut Config),
    bend: impl FnOnce(&mut Vec<Payload>),
) -> (Side, Option<Message>) {
    let (mut side, now) = b_with(change);
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    bend(&mut payloads);
    let answer = script.init(&mut side, now, payloads);
    (side, answer)
}

/// Sends one datagram to a fresh endpoint.
fn raw(datagram: &[u8]) -> (Side, Vec<Vec<u8>>) {
    let (mut side, now) = b();
    let answers = Script::new().send(&mut side, now, datagram);
    (side, answers)
}

fn plain(header: Header) -> Vec<u8> {
    Message {
        header,
        payloads: vec![],
    }
    .encode()
    .unwrap()
}

fn first_error(answers: &[Vec<u8>]) -> Option<NotifyType> {
    error_of(&Message::decode(answers.first()?).unwrap())
}

fn headers() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let (side, answers) = raw(b"no IKE at all");
    assert!(answers.is_empty());
    cases.push((Refusal::Malformed, side));

    let (mut side, now) = b();
    let local = format!("{B}:4500").parse().unwrap();
    side.endpoint
        .handle_datagram(now, local, format!("{A}:4500").parse().unwrap(), &[1; 60]);
    side.endpoint
        .handle_datagram(now, local, format!("{A}:4500").parse().unwrap(), &[0xff]);
    cases.push((Refusal::NoMarker, side));

    let mut version = plain(Script::new().header(ExchangeType::IKE_SA_INIT, 0));
    version[17] = 0x30;
    let (side, answers) = raw(&version);
    assert_eq!(
        first_error(&answers),
        Some(NotifyType::INVALID_MAJOR_VERSION)
    );
    cases.push((Refusal::Version, side));

    let (side, answers) = raw(&plain(Script::new().header(ExchangeType(99), 0)));
    assert!(answers.is_empty());
    cases.push((Refusal::ExchangeType, side));

    let header = Header {
        responder_spi: 9,
        ..Script::new().header(ExchangeType::INFORMATIONAL, 0)
    };
    let (side, answers) = raw(&seemingly_sealed(header));
    assert_eq!(first_error(&answers), Some(NotifyType::INVALID_IKE_SPI));
    cases.push((Refusal::UnknownSpi, side));
    let notice = Message {
        header,
        payloads: vec![Payload::Notify(Notify::new(
            NotifyType::INVALID_SPI,
            vec![0; 4],
        ))],
    };
    let (side, answers) = raw(&notice.encode().unwrap());
    assert!(
        answers.is_empty(),
        "no response to a notification (RFC 7296 §1.5)"
    );
    cases.push((Refusal::UnauthenticatedNotify, side));

    let (mut side, now) = b();
    let script = Script::new();
    for _ in 0..30 {
        script.send(&mut side, now, &seemingly_sealed(header));
    }
    cases.push((Refusal::RateLimited, side));

    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    let own = pair.a.sent[0].clone();
    pair.a
        .endpoint
        .handle_datagram(pair.now, own.local, own.remote, &own.payload);
    cases.push((Refusal::Reflected, pair.a));
    cases
}

fn init_requests() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let mut case =
        |refusal, expected: Option<NotifyType>, (side, answer): (Side, Option<Message>)| {
            assert_eq!(answer.as_ref().and_then(error_of), expected, "{refusal:?}");
            cases.push((refusal, side));
        };
    case(
        Refusal::InvalidSyntax,
        Some(NotifyType::INVALID_SYNTAX),
        init(|_| {}, |p| drop(p.remove(0))),
    );
    case(
        Refusal::NoProposalChosen,
        Some(NotifyType::NO_PROPOSAL_CHOSEN),
        init(
            |_| {},
            |p| {
                let Payload::Sa(proposals) = &mut p[0] else {
                    panic!()
                };
                proposals[0]
                    .transforms
                    .retain(|t| t.kind != TransformType::PRF);
            },
        ),
    );
    case(
        Refusal::InvalidKePayload,
        Some(NotifyType::INVALID_KE_PAYLOAD),
        init(
            |_| {},
            |p| {
                let Payload::Ke(ke) = &mut p[1] else { panic!() };
                ke.method = Group::Ecp256.number();
            },
        ),
    );
    case(
        Refusal::NoConnection,
        Some(NotifyType::NO_PROPOSAL_CHOSEN),
        init(|c| c.connections.clear(), |_| {}),
    );
    let named = |c: &mut Config| {
        let name = HostName::new("a.example");
        change_connection(c, |b| b.remote_addrs = vec![AddressMatch::Name(name)]);
    };
    case(Refusal::NamesUnknown, None, init(named, |_| {}));
    case(
        Refusal::IkeSaLimit,
        None,
        init(|c| c.limits.ike_sas_max = 0, |_| {}),
    );
    case(
        Refusal::HalfOpenLimit,
        None,
        init(|c| c.limits.half_open_max = 0, |_| {}),
    );
    case(
        Refusal::HalfOpenBytes,
        None,
        init(
            |c| c.limits.half_open_bytes_max = 0,
            |p| p.push(Payload::Vendor(vec![0; 5000])),
        ),
    );
    case(
        Refusal::CookieRequired,
        None,
        init(|c| c.limits.cookie_threshold = 0, |_| {}),
    );
    case(
        Refusal::CookieInvalid,
        None,
        init(
            |c| c.limits.cookie_threshold = 0,
            |p| {
                p.insert(
                    0,
                    Payload::Notify(Notify::new(NotifyType::COOKIE, vec![0; 33])),
                );
            },
        ),
    );

    cases
}

fn init_sequences() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let script = Script::new();
    let header = script.header(ExchangeType::IKE_SA_INIT, 0);
    let unknown = Payload::Unknown {
        kind: esplanade_ike::wire::PayloadType(200),
        body: vec![1, 2],
    };
    let mut critical = Message {
        header,
        payloads: vec![unknown],
    }
    .encode()
    .unwrap();
    critical[29] = 0x80;
    let (side, answers) = raw(&critical);
    assert_eq!(
        first_error(&answers),
        Some(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD)
    );
    cases.push((Refusal::UnsupportedCriticalPayload, side));

    let (mut side, now) = b();
    let request = Message {
        header,
        payloads: script.init_payloads(),
    }
    .encode()
    .unwrap();
    let first = script.send(&mut side, now, &request);
    assert_eq!(
        script.send(&mut side, now, &request),
        first,
        "answered from the cache"
    );
    cases.push((Refusal::Retransmission, side));

    let (mut side, now) = b();
    script.send(&mut side, now, &request);
    let mut other = script.init_payloads();
    other.reverse();
    let other = Message {
        header,
        payloads: other,
    }
    .encode()
    .unwrap();
    assert!(script.send(&mut side, now, &other).is_empty());
    cases.push((Refusal::MessageIdReuse, side));

    let (mut side, now) = b_with(|c| {
        c.limits.half_open_per_source_max = 0;
        c.limits.half_open_per_network_max = 0;
    });
    let mut script = Script::new();
    let payloads = script.init_payloads();
    assert!(script.init(&mut side, now, payloads).is_none());
    cases.push((Refusal::HalfOpenPerSource, side));

    let (mut side, now) = b_with(|c| c.limits.half_open_per_source_max = 1);
    for guess in 0..=20 {
        let mut script = Script::new();
        script.spi_i += guess;
        let mut payloads = script.init_payloads();
        let mut answer = script.init(&mut side, now, payloads.clone());
        let message = answer.as_ref();
        if let Some(cookie) = message.and_then(|one| one.notification(NotifyType::COOKIE)) {
            payloads.insert(0, Payload::Notify(cookie.clone()));
            answer = script.init(&mut side, now, payloads);
        }
        assert_eq!(answer.is_some(), guess < 20);
        if answer.is_some() {
            let payloads = script.auth_payloads(b"guess");
            script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        }
    }
    cases.push((Refusal::RefusedPerSource, side));

    let mut pair = Pair::with(|_, b| b.proposals[0].encryption = vec![(Encryption::AesGcm16, 256)]);
    pair.initiate();
    pair.run(2 * SECOND);
    assert!(
        pair.a.events.is_empty(),
        "an unauthenticated refusal is not believed at once"
    );
    pair.run(10 * SECOND);
    let reason = |e: &Event| {
        matches!(
            e,
            Event::ConnectFailed {
                reason: DownReason::NoProposalChosen { .. },
                ..
            }
        )
    };
    assert!(pair.a.events.iter().any(reason));
    cases.push((Refusal::UnauthenticatedNotify, pair.a));
    cases
}

/// Requests wait for jobs that nobody runs.
fn full_queue() -> Vec<(Refusal, Side)> {
    let now = Instant::now();
    let mut b = config(default_configs().1);
    b.limits.half_open_per_source_max = 100;
    b.limits.half_open_per_network_max = 100;
    let mut side = Side::with_host("b", B, b, now, 7, |host| host.runs_jobs = false);
    for number in 0..60 {
        let mut script = Script::new();
        script.spi_i += number;
        let mut payloads = script.init_payloads();
        payloads.push(Payload::Vendor(vec![0; 60_000]));
        let answer = script.init(&mut side, now, payloads.clone());
        if let Some(cookie) = answer.and_then(|one| one.notification(NotifyType::COOKIE).cloned()) {
            payloads.insert(0, Payload::Notify(cookie));
            script.init(&mut side, now, payloads);
        }
    }
    vec![(Refusal::JobQueueFull, side)]
}

fn protected_messages() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let script_case = |act: &dyn Fn(&mut Script, &mut Side, Instant)| {
        let (mut side, now) = b();
        let mut script = Script::established(&mut side, now);
        act(&mut script, &mut side, now);
        side
    };
    cases.push((
        Refusal::Integrity,
        script_case(&|script, side, now| {
            let header = script.header(ExchangeType::INFORMATIONAL, script.next_id);
            let mut forged = script.seal(&header, &[]);
            *forged.last_mut().unwrap() ^= 1;
            assert!(script.send(side, now, &forged).is_empty());
            assert!(
                script
                    .exchange(side, now, ExchangeType::INFORMATIONAL, &[])
                    .is_some(),
                "nothing has changed"
            );
        }),
    ));
    cases.push((
        Refusal::MessageId,
        script_case(&|script, side, now| {
            let header = script.header(ExchangeType::INFORMATIONAL, 100);
            let early = script.seal(&header, &[]);
            assert!(script.send(side, now, &early).is_empty());
        }),
    ));
    cases.push((
        Refusal::UnexpectedResponse,
        script_case(&|script, side, now| {
            let header = Header {
                response: true,
                ..script.header(ExchangeType::INFORMATIONAL, 0)
            };
            let stray = script.seal(&header, &[]);
            assert!(script.send(side, now, &stray).is_empty());
        }),
    ));
    cases.push((
        Refusal::UnexpectedExchange,
        script_case(&|script, side, now| {
            let answer = script.exchange(side, now, ExchangeType::IKE_AUTH, &[]);
            // RFC 7296 §2.21.3: the response names the error, and both ends forget the SA.
            assert_eq!(error_of(&answer.unwrap()), Some(NotifyType::INVALID_SYNTAX));
            assert!(side.endpoint.status().is_empty());
        }),
    ));
    cases.push((
        Refusal::ChildSaNotFound,
        script_case(&|script, side, now| {
            let rekey = Notify::about_child(NotifyType::REKEY_SA, ProtocolId::ESP, 0x9999);
            let answer = script
                .exchange(
                    side,
                    now,
                    ExchangeType::CREATE_CHILD_SA,
                    &[Payload::Notify(rekey)],
                )
                .unwrap();
            assert_eq!(error_of(&answer), Some(NotifyType::CHILD_SA_NOT_FOUND));
            assert_eq!(
                answer.notifications().next().unwrap().spi_u32(),
                Some(0x9999)
            );
        }),
    ));
    cases.push((
        Refusal::TsUnacceptable,
        script_case(&|script, side, now| {
            let mut payloads = Script::child_payloads();
            payloads.swap(1, 2);
            let (Payload::TsR(r), Payload::TsI(i)) = (payloads[1].clone(), payloads[2].clone())
            else {
                panic!()
            };
            (payloads[1], payloads[2]) = (Payload::TsI(r), Payload::TsR(i));
            payloads.push(Payload::Nonce(vec![3; 32]));
            let answer = script
                .exchange(side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
                .unwrap();
            assert_eq!(error_of(&answer), Some(NotifyType::TS_UNACCEPTABLE));
            assert_eq!(
                side.endpoint.status()[0].children.len(),
                1,
                "the rest stays"
            );
        }),
    ));
    cases
}

/// There is no room for policies.
struct NoRoom;

impl PolicyRoom for NoRoom {
    fn has_room(&mut self, _: &WantedPolicy<'_>) -> bool {
        false
    }
}

fn shares_of_embedder_and_time() -> Vec<(Refusal, Side)> {
    let (mut busy, now) = b_with(|c| c.limits.child_requests_per_second = 1);
    let mut script = Script::established(&mut busy, now);
    let payloads = Script::create_child_payloads();
    let exchange = ExchangeType::CREATE_CHILD_SA;
    let mut answers = (0..30).map(|_| {
        let answer = script.exchange(&mut busy, now, exchange, &payloads);
        error_of(&answer.unwrap())
    });
    assert!(answers.any(|error| error == Some(NotifyType::TEMPORARY_FAILURE)));
    drop(answers);

    let with_room = |host: &mut Host| host.policies = Box::new(NoRoom);
    let mut full = Side::with_host("b", B, config(default_configs().1), now, 7, with_room);
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut full, now, payloads);
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut full, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(
        error_of(&answer.unwrap()),
        Some(NotifyType::TS_UNACCEPTABLE)
    );
    vec![(Refusal::WorkPerPeer, busy), (Refusal::NoPolicyRoom, full)]
}

fn limits_and_secrets() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let no_more = NotifyType::NO_ADDITIONAL_SAS;
    for (refusal, kind, change) in [
        (
            Refusal::ChildSaLimit,
            no_more,
            (|c: &mut Config| c.limits.children_per_sa_max = 1) as fn(&mut Config),
        ),
        (Refusal::ChildSaPerPeer, no_more, |c| {
            c.limits.children_per_peer_max = 1;
        }),
        (
            Refusal::SelectorsPerPeer,
            NotifyType::TS_UNACCEPTABLE,
            |c| {
                c.limits.selectors_per_peer_max = 1;
            },
        ),
        (Refusal::SpiExhausted, no_more, |_| {}),
    ] {
        let (mut side, now) = b_with(change);
        let mut script = Script::established(&mut side, now);
        side.spis.0.lock().unwrap().limit = Some(1);
        let mut payloads = Script::child_payloads();
        payloads.push(Payload::Nonce(vec![3; 32]));
        let answer = script
            .exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
            .unwrap();
        assert_eq!(error_of(&answer), Some(kind));
        cases.push((refusal, side));
    }
    cases.extend(shares_of_embedder_and_time());
    let (mut side, now) = b();
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads);
    let payloads = script.auth_payloads(b"another secret");
    let answer = script
        .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
        .unwrap();
    assert_eq!(error_of(&answer), Some(NotifyType::AUTHENTICATION_FAILED));
    assert!(side.endpoint.status().is_empty());
    cases.push((Refusal::AuthenticationFailed, side));
    let (mut side, now) = b_with(|config| {
        let mut anybody = (*config.connections[0]).clone();
        anybody.remote.id = id("%any");
        config.connections = vec![anybody.into()];
    });
    for (name, refused) in [
        ("a.example", None),
        ("c.example", Some(NotifyType::TS_UNACCEPTABLE)),
    ] {
        let mut script = Script::new();
        script.id = id(name).to_payload().unwrap();
        script.spi_i += u64::from(refused.is_some());
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads);
        let payloads = script.auth_payloads(b"a shared secret");
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(error_of(&answer.unwrap()), refused);
    }
    cases.push((Refusal::TrafficHeld, side));
    cases
}

/// Fragments that are not used.
fn fragments() -> Vec<(Refusal, Side)> {
    let cases = [
        (Refusal::FragmentNotAgreed, &[(1, 2)][..]),
        (Refusal::FragmentPlace, &[(0, 2)]),
        (Refusal::FragmentDuplicate, &[(1, 2), (1, 2)]),
        (Refusal::FragmentsIncomplete, &[(1, 2), (1, 3)]),
        (Refusal::FragmentLimit, &[(1, 256)]),
    ];
    cases
        .into_iter()
        .map(|(refusal, places)| {
            let (mut side, now) = b();
            let mut script = Script::new();
            let mut payloads = script.init_payloads();
            if refusal != Refusal::FragmentNotAgreed {
                let kind = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
                payloads.push(Payload::Notify(Notify::new(kind, vec![])));
            }
            script.init(&mut side, now, payloads).unwrap();
            let header = script.header(ExchangeType::IKE_AUTH, 1);
            for place in places {
                let part = script.seal_fragment(&header, PayloadType::IDI, *place, &[0; 9]);
                assert!(script.send(&mut side, now, &part).is_empty());
            }
            (refusal, side)
        })
        .collect()
}

fn between_two_endpoints() -> Vec<(Refusal, Side)> {
    let mut cases = Vec::new();
    let mut pair = Pair::with(|_, b| {
        b.unique = Unique::Keep;
        b.remote_addrs = vec![AddressMatch::Any];
    });
    let elsewhere = "192.0.2.2";
    let mut again = config(default_configs().0);
    change_connection(&mut again, |a| {
        a.unique = Unique::Never;
        a.local_addrs = vec![AddressMatch::Host(elsewhere.parse().unwrap())];
    });
    pair.initiate();
    pair.run(SECOND);
    pair.a = Side::new("a", elsewhere, again, pair.now, 77);
    pair.initiate();
    pair.run(SECOND);
    assert!(
        pair.a
            .events
            .iter()
            .any(|e| matches!(e, Event::ConnectFailed { .. }))
    );
    cases.push((Refusal::Duplicate, pair.b));

    let mut pair = Pair::established();
    pair.collide();
    pair.assert_agreed(1, 1);
    assert_eq!(pair.b.endpoint.counters().ike_rekeys, 1, "tried again");
    cases.push((Refusal::TemporaryFailure, pair.b));
    cases
}

// RFC 7296 R10, R15, R34, R39, R41, R48, R53, R59, R61, R71, R76, R83, R86, R91, R110, R149, R150, R154, R159, R180, R183, R189, R194, R203, R246
#[test]
fn every_refusal_is_counted() {
    let mut seen = BTreeMap::new();
    for (refusal, side) in headers()
        .into_iter()
        .chain(init_requests())
        .chain(init_sequences())
        .chain(full_queue())
        .chain(protected_messages())
        .chain(limits_and_secrets())
        .chain(fragments())
        .chain(between_two_endpoints())
    {
        assert!(side.refused(refusal) >= 1, "{refusal:?} was not counted");
        seen.insert(refusal.name(), ());
    }
    for refusal in Refusal::ALL {
        assert!(seen.contains_key(refusal.name()), "{refusal:?} has no test");
    }
}

// RFC 7296 R154, R156, R246
#[test]
fn malformed_content_ends_the_sa() {
    let (mut side, now) = b();
    let mut script = Script::established(&mut side, now);
    let bad = Payload::Unknown {
        kind: esplanade_ike::wire::PayloadType::DELETE,
        body: vec![3, 9, 0, 1],
    };
    let answer = script
        .exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[bad])
        .unwrap();
    assert_eq!(error_of(&answer), Some(NotifyType::INVALID_SYNTAX));
    assert!(side.endpoint.status().is_empty());
}

// RFC 7296 R2, R153
#[test]
fn a_wrong_secret_ends_clearly_on_both_sides() {
    let (a, b) = default_configs();
    let mut other = config(b);
    other.secrets[0].key = Arc::new(b"another".as_slice().into());
    let mut pair = Pair::new(
        config(a),
        other,
        esplanade_testkit::net::Conditions::PERFECT,
        1,
    );
    pair.initiate();
    pair.run(SECOND);
    let refused = |e: &Event| {
        matches!(
            e,
            Event::ConnectFailed {
                reason: DownReason::PeerRefused(_),
                ..
            }
        )
    };
    assert!(pair.a.events.iter().any(refused));
    let told = |e: &Event| matches!(e, Event::Refused(_));
    assert!(
        pair.b.events.iter().all(told),
        "a stranger raises no other event"
    );
    pair.assert_clean_end();
}

#[test]
fn an_end_without_a_secret_says_so() {
    for a_lacks in [true, false] {
        let (a, b) = default_configs();
        let (mut a, mut b) = (config(a), config(b));
        let lacking = if a_lacks { &mut a } else { &mut b };
        lacking.secrets.clear();
        let mut pair = Pair::new(a, b, esplanade_testkit::net::Conditions::PERFECT, 1);
        pair.initiate();
        pair.run(SECOND);
        let reason = pair.a.events.iter().find_map(|event| match event {
            Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
            _ => None,
        });
        let told = pair.b.events.iter().find_map(|event| match event {
            Event::Refused(refused) => Some(refused.why.clone()),
            _ => None,
        });
        let why = "no secret for";
        if a_lacks {
            assert!(reason.unwrap().contains(why));
            assert_eq!(told, None);
        } else {
            assert_eq!(reason.unwrap(), "the peer refuses: AUTHENTICATION_FAILED");
            assert!(told.unwrap().contains(why));
        }
        pair.assert_clean_end();
    }
}

#[test]
fn two_gateways_with_the_same_configuration_end_clearly() {
    let mut pair = Pair::with(|a, b| {
        b.local.id = a.local.id.clone();
        b.remote.id = a.remote.id.clone();
        b.children = a.children.clone();
    });
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.initiate();
    pair.run(10 * SECOND);
    for side in [&pair.a, &pair.b] {
        assert!(
            side.events
                .iter()
                .any(|e| matches!(e, Event::ConnectFailed { .. }))
        );
        assert!(side.children.is_empty());
    }
    pair.assert_clean_end();
}

// RFC 7296 R52, R85, R129, R199
#[test]
fn cookies_let_the_honest_through() {
    let (a, b) = default_configs();
    let mut loaded = config(b);
    loaded.limits.cookie_threshold = 0;
    let mut pair = Pair::new(
        config(a),
        loaded,
        esplanade_testkit::net::Conditions::PERFECT,
        1,
    );
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.b.refused(Refusal::CookieRequired), 1);
    assert_eq!(pair.b.refused(Refusal::CookieInvalid), 0);
}
