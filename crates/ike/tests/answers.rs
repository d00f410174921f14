//! Responses that cannot be used are reported by their cause, and end nothing that the right response would save.

use std::time::Duration;

use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::EndAction;
use esplanade_ike::failure::UnusableResponse;
use esplanade_ike::wire::{
    Encrypted, ExchangeType, Header, Message, Notify, NotifyType, Payload, PayloadType, Problem,
};
use esplanade_ike::{ChildFailure, DownReason, Event, Transmit};

const SECOND: Duration = Duration::from_secs(1);

/// A has sent IKE_SA_INIT. B, which would answer, is away.
fn waiting() -> (Pair, Transmit) {
    let mut pair = Pair::with(|_, _| {});
    pair.b.dead = true;
    pair.initiate();
    let request = pair.a.sent[0].clone();
    (pair, request)
}

/// The response of a good responder.
fn answer() -> Message {
    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    while pair.b.sent.is_empty() {
        pair.step(pair.now + SECOND);
    }
    Message::decode(&pair.b.sent[0].payload).unwrap()
}

/// Gives A `payload` as the response to its request.
fn deliver(pair: &mut Pair, request: &Transmit, payload: &[u8]) {
    let (local, remote) = (request.local, request.remote);
    pair.a
        .endpoint
        .handle_datagram(pair.now, local, remote, payload);
    pair.flush();
}

fn failure(pair: &Pair) -> Option<&DownReason> {
    pair.a.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason),
        _ => None,
    })
}

fn why(reason: Option<&DownReason>) -> UnusableResponse {
    let Some(DownReason::UnusableResponse(why)) = reason else {
        panic!("{reason:?}")
    };
    why.clone()
}

/// Answers A's IKE_SA_INIT with a changed message. The right response follows in one run, and not in the other.
fn bent_init(bend: impl Fn(&mut Message), bytes: impl Fn(&mut Vec<u8>)) -> UnusableResponse {
    let (mut pair, request) = waiting();
    let mut answer = answer();
    answer.header.initiator_spi = Header::decode(&request.payload).unwrap().initiator_spi;
    bend(&mut answer);
    let mut datagram = answer.encode().unwrap();
    bytes(&mut datagram);
    deliver(&mut pair, &request, &datagram);
    assert_eq!(failure(&pair), None, "anybody may have sent it");
    pair.run(30 * SECOND);
    let reason = why(failure(&pair));

    // The same, while B is there.
    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    let request = pair.a.sent[0].clone();
    answer.header.initiator_spi = Header::decode(&request.payload).unwrap().initiator_spi;
    let mut datagram = answer.encode().unwrap();
    bytes(&mut datagram);
    deliver(&mut pair, &request, &datagram);
    pair.run(30 * SECOND);
    pair.assert_agreed(1, 1);
    reason
}

// RFC 7296 R149, R211, R222
#[test]
fn an_answer_to_ike_sa_init_is_named() {
    let unchanged = |_: &mut Vec<u8>| {};
    let unknown = |answer: &mut Message| {
        let body = vec![1, 2];
        let kind = PayloadType(200);
        answer.payloads.insert(0, Payload::Unknown { kind, body });
    };
    // Sets the critical bit of the first payload.
    let critical = bent_init(unknown, |datagram| datagram[29] |= 0x80);
    assert!(
        matches!(&critical, UnusableResponse::Malformed(error) if error.problem == Problem::UnsupportedCritical(200)),
        "{critical}"
    );
    let number = bent_init(
        |answer| {
            let Payload::Sa(proposals) = &mut answer.payloads[0] else {
                panic!()
            };
            proposals[0].number = 9;
        },
        unchanged,
    );
    assert_eq!(number, UnusableResponse::NotOffered);
    let missing = bent_init(
        |answer| {
            answer
                .payloads
                .retain(|payload| !matches!(payload, Payload::Nonce(_)))
        },
        unchanged,
    );
    assert_eq!(missing, UnusableResponse::MissingPayload);
    let zero = bent_init(|answer| answer.header.responder_spi = 0, unchanged);
    assert_eq!(zero, UnusableResponse::ZeroSpi);
    let group = bent_init(
        |answer| {
            let ke = answer
                .payloads
                .iter_mut()
                .find_map(|payload| match payload {
                    Payload::Ke(ke) => Some(ke),
                    _ => None,
                });
            ke.unwrap().method = 19;
        },
        unchanged,
    );
    let curve = Group::Curve25519;
    let expected = UnusableResponse::OtherKeyExchangeMethod {
        chosen: curve,
        sent: 19,
        started: curve,
    };
    assert_eq!(group, expected);
    let public = bent_init(
        |answer| {
            let ke = answer
                .payloads
                .iter_mut()
                .find_map(|payload| match payload {
                    Payload::Ke(ke) => Some(ke),
                    _ => None,
                });
            ke.unwrap().data = vec![0; 32];
        },
        unchanged,
    );
    assert_eq!(public, UnusableResponse::InvalidKeyExchangeData);
    let malformed = bent_init(
        |_| {},
        |datagram| {
            // Changes the length of the first payload.
            datagram[30..32].copy_from_slice(&u16::MAX.to_be_bytes());
        },
    );
    assert!(
        matches!(&malformed, UnusableResponse::Malformed(error) if matches!(error.problem, Problem::Length { .. })),
        "{malformed}"
    );
    let other_group = bent_init(
        |answer| {
            let data = 19u16.to_be_bytes().to_vec();
            let notify = Notify::new(NotifyType::INVALID_KE_PAYLOAD, data);
            answer.payloads = vec![Payload::Notify(notify)];
        },
        unchanged,
    );
    assert_eq!(other_group, UnusableResponse::KeyExchangeMethodNotOffered);
}

/// `payloads` answer A's outstanding request, without protection or with a false one.
fn bent_answer(pair: &mut Pair, payloads: Vec<Payload>) {
    let request = pair.a.sent.last().unwrap().clone();
    let header = Header::decode(&request.payload).unwrap();
    let header = Header {
        response: true,
        from_initiator: !header.from_initiator,
        ..header
    };
    let datagram = Message { header, payloads }.encode().unwrap();
    deliver(pair, &request, &datagram);
}

fn forged() -> Payload {
    Payload::Encrypted(Encrypted {
        first: PayloadType::NOTIFY,
        body: vec![7; 60],
    })
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}

// RFC 7296 R63, R160
#[test]
fn an_answer_to_ike_auth_is_named() {
    for (payload, expected) in [
        (forged(), UnusableResponse::Forged),
        (
            notify(NotifyType::INVALID_IKE_SPI),
            UnusableResponse::UnprotectedError(NotifyType::INVALID_IKE_SPI),
        ),
        (Payload::Nonce(vec![1; 32]), UnusableResponse::NotProtected),
    ] {
        let mut pair = Pair::with(|_, _| {});
        pair.initiate();
        while pair.a.sent.len() < 2 {
            pair.step(pair.now + SECOND);
        }
        pair.b.dead = true;
        bent_answer(&mut pair, vec![payload]);
        pair.run(100 * SECOND);
        assert_eq!(failure(&pair), None, "the right answer is waited for");
        pair.run(100 * SECOND);
        assert_eq!(why(failure(&pair)), expected);
    }
}

// RFC 7296 R160
#[test]
fn an_established_sa_tells_why_it_was_given_up() {
    for (payload, expected) in [
        (
            Some(forged()),
            DownReason::UnusableResponse(UnusableResponse::Forged),
        ),
        (
            Some(notify(NotifyType::INVALID_IKE_SPI)),
            DownReason::UnusableResponse(UnusableResponse::UnprotectedError(
                NotifyType::INVALID_IKE_SPI,
            )),
        ),
        (None, DownReason::Timeout),
    ] {
        let mut pair = Pair::with(|a, _| {
            a.dpd_delay = 10 * SECOND;
            let mut child = (*a.children[0]).clone();
            child.dpd_action = EndAction::Start;
            a.children = vec![child.into()];
            a.keyingtries = 0;
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.b.dead = true;
        pair.run(15 * SECOND);
        if let Some(payload) = payload {
            bent_answer(&mut pair, vec![payload]);
        }
        pair.run(300 * SECOND);
        let down = pair.a.events.iter().find_map(|event| match event {
            Event::IkeSaDown { reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(down, Some(&expected));
        pair.b.dead = false;
        pair.run(600 * SECOND);
        assert_eq!(pair.a.children.len(), 1, "`dpd_action` is carried out");
    }
}

// RFC 7296 R148
#[test]
fn a_protected_answer_that_is_malformed_is_named() {
    use crate::common::script::Script;
    let (_, b) = default_configs();
    let now = std::time::Instant::now();
    let mut side = Side::new("b", B, config(b), now, 7);
    let mut script = Script::established(&mut side, now);
    side.endpoint.rekey(now, "site", Some("net")).unwrap();
    let request = Script::take(&mut side).pop().unwrap();
    assert_eq!(
        Header::decode(&request).unwrap().exchange,
        ExchangeType::CREATE_CHILD_SA
    );
    let body = vec![3, 9, 0, 1];
    let kind = PayloadType::DELETE;
    script.answer(&mut side, now, &request, &[Payload::Unknown { kind, body }]);
    let down = side.events.iter().find_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(
        matches!(why(down), UnusableResponse::Malformed(error) if error.to_string().contains("DELETE")),
        "{down:?}"
    );
}

#[test]
fn a_refused_rekey_of_the_ike_sa_is_told() {
    use esplanade_crypto::iana::Encryption;
    let mut pair = Pair::established();
    let (_, mut b) = default_configs();
    b.proposals[0].encryption = vec![(Encryption::AesGcm16, 256)];
    pair.b.endpoint.set_config(config(b));
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    let failed = |event: &&Event| {
        matches!(
            event,
            Event::RekeyFailed {
                reason: ChildFailure::NoProposalChosen { .. },
                ..
            }
        )
    };
    assert_eq!(pair.a.events.iter().filter(failed).count(), 1);
    let told = |event: &&Event| matches!(event, Event::Refused(_));
    assert_eq!(pair.b.events.iter().filter(told).count(), 1);
    pair.assert_agreed(1, 1);
}
