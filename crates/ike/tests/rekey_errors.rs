//! Errors and collisions of the exchanges on an established IKE SA (RFC 7296 §2.18, §2.21.3 and §2.25).

use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::failure::{ChildResponseFault, RequestFault, UnusableResponse};
use esplanade_ike::status::IkeSaState;
use esplanade_ike::wire::{
    Delete, ExchangeType, Header, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId,
    TrafficSelector, Transform, TransformType,
};
use esplanade_ike::{ChildFailure, DownReason, Event};
use esplanade_testkit::net::Datagram;

const SECOND: Duration = Duration::from_secs(1);
const UNKNOWN: NotifyType = NotifyType(9_999);
/// The SPI of the first child SA at the script.
const PEER_SPI: u32 = 0x4444;

/// B with an IKE SA of the script, and a second child that is not up.
fn established() -> (Side, Instant, Script) {
    let (mut side, now) = b_with(|config| {
        let second = child("second", "10.4.0.0-10.4.255.255", "10.3.0.0-10.3.255.255");
        change_connection(config, |connection| connection.children.push(second.into()));
    });
    let script = Script::established(&mut side, now);
    (side, now, script)
}

/// Makes B begin an exchange.
type Begin = fn(&mut Side, Instant);

const CREATE: Begin = |side, now| {
    side.endpoint.initiate(now, "site", Some("second")).unwrap();
};
const REKEY_CHILD: Begin = |side, now| {
    side.endpoint.rekey(now, "site", Some("net")).unwrap();
};
const REKEY_IKE: Begin = |side, now| {
    side.endpoint.rekey(now, "site", None).unwrap();
};
const CLOSE_CHILD: Begin = |side, now| {
    side.endpoint.terminate(now, "site", Some("net")).unwrap();
};
const CLOSE_IDLE_CHILD: Begin = |side, now| {
    let child = side.endpoint.status()[0].children[0].id;
    side.endpoint.close_idle_child_sa(now, child).unwrap();
};
const CLOSE_IKE: Begin = |side, now| {
    side.endpoint.terminate(now, "site", None).unwrap();
};

/// The one request with which B begins.
fn begin(side: &mut Side, now: Instant, begin: Begin) -> Vec<u8> {
    begin(side, now);
    let mut sent = Script::take(side);
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

/// The messages that B sends within this time.
fn sent_within(side: &mut Side, now: &mut Instant, time: Duration) -> Vec<Vec<u8>> {
    let until = *now + time;
    let mut sent = Vec::new();
    while let Some(at) = side.endpoint.poll_timeout().filter(|at| *at <= until) {
        *now = at.max(*now);
        side.endpoint.handle_timeout(*now);
        sent.extend(Script::take(side));
    }
    *now = until;
    sent
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}

fn delete(protocol: ProtocolId, spis: &[u32]) -> Payload {
    let spis = spis.to_vec();
    Payload::Delete(Delete { protocol, spis })
}

fn create(script: &mut Script, side: &mut Side, now: Instant, payloads: &[Payload]) -> Message {
    let answer = script.exchange(side, now, ExchangeType::CREATE_CHILD_SA, payloads);
    answer.expect("a response")
}

fn inform(script: &mut Script, side: &mut Side, now: Instant, payload: Payload) -> Message {
    let answer = script.exchange(side, now, ExchangeType::INFORMATIONAL, &[payload]);
    answer.expect("a response")
}

/// The SPI with which B receives on its first child SA.
fn own_spi(side: &Side) -> u32 {
    side.endpoint.status()[0].children[0].spi_in
}

// RFC 7296 R147, R155
#[test]
fn an_error_in_a_response_is_neither_answered_nor_reported() {
    let broken = Payload::Unknown {
        kind: PayloadType::DELETE,
        body: vec![3, 9, 0, 1],
    };
    let errors = [
        NotifyType::NO_PROPOSAL_CHOSEN,
        NotifyType::TS_UNACCEPTABLE,
        NotifyType::NO_ADDITIONAL_SAS,
        NotifyType::TEMPORARY_FAILURE,
        NotifyType::INVALID_SYNTAX,
        NotifyType::AUTHENTICATION_FAILED,
        UNKNOWN,
    ];
    let mut answers: Vec<_> = errors.map(|kind| vec![notify(kind)]).into();
    answers.extend([vec![broken], vec![Payload::Nonce(vec![1; 32])]]);
    for request in [CREATE, REKEY_CHILD, REKEY_IKE, CLOSE_CHILD] {
        for answer in &answers {
            let (mut side, mut now, mut script) = established();
            let request = begin(&mut side, now, request);
            let mut sent = script.answer(&mut side, now, &request, answer);
            sent.extend(sent_within(&mut side, &mut now, 30 * SECOND));
            // A new IKE SA is begun where the old one has ended.
            let of_sa = |message: &&Vec<u8>| Header::decode(message).unwrap().initiator_spi == SPI;
            for message in sent.iter().filter(of_sa) {
                let message = script.open(message);
                assert!(!message.header.response, "nobody asked");
                assert_eq!(error_of(&message), None, "{answer:?}");
                let refused = matches!(answer[..], [Payload::Notify(_)]);
                let informs = message.header.exchange == ExchangeType::INFORMATIONAL;
                assert!(!(refused && informs), "{answer:?}: {message:?}");
            }
        }
    }
}

// RFC 7296 R181
#[test]
fn after_temporary_failure_the_request_waits() {
    for request in [CREATE, REKEY_CHILD, REKEY_IKE] {
        let (mut side, mut now, mut script) = established();
        let request = begin(&mut side, now, request);
        let busy = [notify(NotifyType::TEMPORARY_FAILURE)];
        assert!(script.answer(&mut side, now, &request, &busy).is_empty());
        let soon = sent_within(&mut side, &mut now, SECOND - Duration::from_millis(1));
        assert!(soon.is_empty());
        let later = sent_within(&mut side, &mut now, 600 * SECOND);
        let again = script.open(&later[0]);
        let kinds = |message: &Message| {
            let kinds = message.payloads.iter().map(Payload::kind);
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(kinds(&again), kinds(&script.open(&request)));
    }
}

// RFC 7296 R185
#[test]
fn a_child_that_is_being_closed_is_not_rekeyed() {
    for close in [CLOSE_CHILD, CLOSE_IDLE_CHILD] {
        let (mut side, now, mut script) = established();
        let request = begin(&mut side, now, close);
        let rekey = Script::rekey_child_payloads();
        let answer = create(&mut script, &mut side, now, &rekey);
        assert_eq!(error_of(&answer), Some(NotifyType::TEMPORARY_FAILURE));
        // When it is closed, it is not known any more.
        let closed = [delete(ProtocolId::ESP, &[PEER_SPI])];
        script.answer(&mut side, now, &request, &closed);
        let answer = create(&mut script, &mut side, now, &rekey);
        assert_eq!(error_of(&answer), Some(NotifyType::CHILD_SA_NOT_FOUND));
        assert!(side.endpoint.status()[0].children.is_empty());
    }
}

/// The rekey of it is under way. Whatever the peer answers, no SA comes in its place.
#[test]
fn a_child_that_is_closed_during_its_rekey_stays_closed() {
    for answer in [
        NotifyType::CHILD_SA_NOT_FOUND,
        NotifyType::TEMPORARY_FAILURE,
        NotifyType::NO_PROPOSAL_CHOSEN,
    ] {
        let (mut side, mut now, mut script) = established();
        let request = begin(&mut side, now, REKEY_CHILD);
        CLOSE_CHILD(&mut side, now);
        let mut sent = script.answer(&mut side, now, &request, &[notify(answer)]);
        sent.extend(sent_within(&mut side, &mut now, 5 * SECOND));
        let exchanges = sent.iter().map(|one| Header::decode(one).unwrap().exchange);
        let mut others = exchanges.filter(|one| *one != ExchangeType::INFORMATIONAL);
        assert_eq!(others.next(), None, "{answer}");
    }
}

/// The child SA waits for its end behind another exchange.
// RFC 7296 R185
#[test]
fn a_child_that_is_to_be_closed_is_not_rekeyed() {
    let (mut side, now, mut script) = established();
    let request = begin(&mut side, now, REKEY_IKE);
    CLOSE_CHILD(&mut side, now);
    assert!(Script::take(&mut side).is_empty());
    let rekey = Script::rekey_child_payloads();
    let answer = create(&mut script, &mut side, now, &rekey);
    assert_eq!(error_of(&answer), Some(NotifyType::TEMPORARY_FAILURE));
    let refused = [notify(NotifyType::NO_PROPOSAL_CHOSEN)];
    let next = script.answer(&mut side, now, &request, &refused);
    let closes = script.open(&next[0]);
    assert_eq!(closes.header.exchange, ExchangeType::INFORMATIONAL);
}

// RFC 7296 R187
#[test]
fn a_delete_of_a_child_that_is_being_rekeyed_is_answered_with_a_delete() {
    let (mut side, now, mut script) = established();
    let expected = delete(ProtocolId::ESP, &[own_spi(&side)]);
    begin(&mut side, now, REKEY_CHILD);
    let deleted = delete(ProtocolId::ESP, &[PEER_SPI]);
    let answer = inform(&mut script, &mut side, now, deleted);
    assert_eq!(answer.payloads, [expected]);
    assert!(side.endpoint.status()[0].children.is_empty());
}

// RFC 7296 R191
#[test]
fn an_ike_sa_that_is_being_closed_is_not_rekeyed() {
    let (mut side, now, mut script) = established();
    let request = begin(&mut side, now, CLOSE_IKE);
    let rekey = script.rekey_ike_payloads();
    let answer = create(&mut script, &mut side, now, &rekey);
    assert_eq!(error_of(&answer), Some(NotifyType::TEMPORARY_FAILURE));
    script.answer(&mut side, now, &request, &[]);
    assert!(side.endpoint.status().is_empty());
    assert_eq!(side.endpoint.counters().ike_rekeys, 0);
}

// RFC 7296 R192
#[test]
fn a_delete_of_an_ike_sa_that_is_being_rekeyed_ends_the_rekey() {
    let (mut side, mut now, mut script) = established();
    let request = begin(&mut side, now, REKEY_IKE);
    let deleted = delete(ProtocolId::IKE, &[]);
    let answer = inform(&mut script, &mut side, now, deleted);
    assert!(answer.payloads.is_empty());
    assert!(side.ike_sas().is_empty());
    let ended = |event: &Event| {
        let reason = DownReason::PeerDeleted;
        matches!(event, Event::IkeSaDown { reason: why, .. } if *why == reason)
    };
    assert!(side.events.iter().any(ended));
    // The response to the rekey comes too late, and the request is not sent again.
    let late = script.rekey_ike_payloads();
    assert!(script.answer(&mut side, now, &request, &late).is_empty());
    assert!(sent_within(&mut side, &mut now, 300 * SECOND).is_empty());
    assert!(side.endpoint.status().is_empty());
    assert_eq!(side.endpoint.counters().ike_rekeys, 0);
}

// RFC 7296 R195
#[test]
fn a_child_is_deleted_while_the_ike_sa_is_being_rekeyed() {
    let (mut side, now, mut script) = established();
    let expected = delete(ProtocolId::ESP, &[own_spi(&side)]);
    begin(&mut side, now, REKEY_IKE);
    let deleted = delete(ProtocolId::ESP, &[PEER_SPI]);
    let answer = inform(&mut script, &mut side, now, deleted);
    assert_eq!(answer.payloads, [expected]);
    let status = side.endpoint.status();
    assert_eq!(status.len(), 1);
    assert_eq!(status[0].state, IkeSaState::Rekeying);
    assert!(status[0].children.is_empty());
}

/// The groups of a proposal for an IKE SA.
fn groups(payloads: &[Payload]) -> Vec<u16> {
    let Some(Payload::Sa(proposals)) = payloads.iter().find(|p| p.kind() == PayloadType::SA) else {
        panic!("{payloads:?}")
    };
    let of = |of: &esplanade_ike::wire::Proposal| {
        let groups = of.of_kind(TransformType::KEY_EXCHANGE);
        groups.map(|group| group.id).collect::<Vec<_>>()
    };
    proposals.iter().flat_map(of).collect()
}

/// A rekey of the IKE SA with these groups, or its answer.
fn with_groups(script: &Script, groups: &[u16]) -> Vec<Payload> {
    let mut payloads = script.rekey_ike_payloads();
    if let Payload::Sa(proposals) = &mut payloads[0] {
        let transforms = &mut proposals[0].transforms;
        transforms.retain(|transform| transform.kind != TransformType::KEY_EXCHANGE);
        let group = |&id| Transform::new(TransformType::KEY_EXCHANGE, id);
        transforms.extend(groups.iter().map(group));
    }
    payloads
}

// RFC 7296 R140
#[test]
fn an_ike_sa_is_not_rekeyed_without_a_key_exchange() {
    let (none, x25519) = (0, 31);
    for keeps_ke in [true, false] {
        let (mut side, now, mut script) = established();
        let mut payloads = with_groups(&script, &[none]);
        payloads.retain(|payload| keeps_ke || payload.kind() != PayloadType::KE);
        let answer = create(&mut script, &mut side, now, &payloads);
        assert!(error_of(&answer).is_some());
        assert_eq!(side.endpoint.counters().ike_rekeys, 0);
    }
    let (mut side, now, mut script) = established();
    let payloads = with_groups(&script, &[none, x25519]);
    let answer = create(&mut script, &mut side, now, &payloads);
    assert_eq!(groups(&answer.payloads), [x25519]);
    // As the initiator.
    for keeps_ke in [true, false] {
        let (mut side, now, mut script) = established();
        let request = begin(&mut side, now, REKEY_IKE);
        let offer = script.open(&request).payloads;
        assert_eq!(groups(&offer), [x25519]);
        assert!(
            offer
                .iter()
                .any(|payload| payload.kind() == PayloadType::KE)
        );
        let mut payloads = with_groups(&script, &[none]);
        payloads.retain(|payload| keeps_ke || payload.kind() != PayloadType::KE);
        script.answer(&mut side, now, &request, &payloads);
        assert_eq!(side.endpoint.counters().ike_rekeys, 0);
        assert!(side.ike_sas().is_empty(), "the peer has another one");
    }
}

/// The SPI of an IKE SA is never zero (RFC 7296 §3.1). The old SA ends, as with any invalid message (§2.21.3).
#[test]
fn an_ike_sa_is_not_rekeyed_with_spi_0() {
    let (mut side, now, mut script) = established();
    let payloads = script.rekey_payloads(0);
    let answer = create(&mut script, &mut side, now, &payloads);
    assert_eq!(error_of(&answer), Some(NotifyType::INVALID_SYNTAX));
    assert_eq!(side.endpoint.counters().ike_rekeys, 0);
    assert!(side.ike_sas().is_empty());
    // As the initiator.
    let (mut side, now, mut script) = established();
    let request = begin(&mut side, now, REKEY_IKE);
    let payloads = script.rekey_payloads(0);
    script.answer(&mut side, now, &request, &payloads);
    assert_eq!(side.endpoint.counters().ike_rekeys, 0);
    assert!(side.ike_sas().is_empty());
    let reason = DownReason::UnusableResponse(UnusableResponse::InvalidIkeRekey);
    assert_eq!(downs(&side), [reason]);
}

/// The reasons for which IKE SAs of B have ended.
fn downs(side: &Side) -> Vec<DownReason> {
    let downs = side.events.iter().filter_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    downs.collect()
}

#[test]
fn a_faulty_request_ends_the_ike_sa_and_is_named() {
    let broken = Payload::Unknown {
        kind: PayloadType::DELETE,
        body: vec![3, 9, 0, 1],
    };
    let (mut side, now, mut script) = established();
    inform(&mut script, &mut side, now, broken);
    let [DownReason::PeerMisbehaved(RequestFault::Malformed(error))] = &downs(&side)[..] else {
        panic!("{:?}", downs(&side))
    };
    assert!(error.to_string().contains("DELETE"), "{error}");
    let (mut side, now, mut script) = established();
    let payloads = script.rekey_payloads(0);
    create(&mut script, &mut side, now, &payloads);
    let fault = RequestFault::InvalidSyntax;
    assert_eq!(downs(&side), [DownReason::PeerMisbehaved(fault)]);
    let (mut side, now, mut script) = established();
    script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &[]);
    let fault = RequestFault::OtherExchange(ExchangeType::IKE_AUTH);
    assert_eq!(downs(&side), [DownReason::PeerMisbehaved(fault)]);
}

/// A response of another exchange is not the one that B waits for. It says why B gives up.
#[test]
fn a_response_of_another_exchange_is_named() {
    let (mut side, mut now, mut script) = established();
    let request = begin(&mut side, now, CREATE);
    let header = Header {
        response: true,
        ..script.header(
            ExchangeType::INFORMATIONAL,
            Header::decode(&request).unwrap().message_id,
        )
    };
    let datagram = script.seal(&header, &[]);
    assert!(script.send(&mut side, now, &datagram).is_empty());
    assert_eq!(downs(&side), []);
    sent_within(&mut side, &mut now, 600 * SECOND);
    let other = UnusableResponse::OtherExchange(ExchangeType::INFORMATIONAL);
    assert_eq!(downs(&side), [DownReason::UnusableResponse(other)]);
}

/// The good response to a request of B for a child SA.
fn made(script: &Script, request: &[u8]) -> Vec<Payload> {
    let mut payloads = script.open(request).payloads;
    payloads.retain(|payload| payload.kind() != PayloadType::NOTIFY);
    for payload in &mut payloads {
        match payload {
            Payload::Sa(proposals) => proposals[0].spi = vec![0, 0, 0x55, 0x55],
            Payload::Nonce(nonce) => nonce.fill(3),
            _ => {}
        }
    }
    payloads
}

/// Changes the good response. The payload of this type is handed to the closure.
fn change(kind: PayloadType, change: impl Fn(&mut Payload)) -> impl Fn(&mut Vec<Payload>) {
    move |payloads| {
        let payload = payloads.iter_mut().find(|payload| payload.kind() == kind);
        change(payload.unwrap());
    }
}

fn without(kind: PayloadType) -> impl Fn(&mut Vec<Payload>) {
    move |payloads| payloads.retain(|payload| payload.kind() != kind)
}

fn selectors(from: &str, to: &str) -> Vec<TrafficSelector> {
    vec![TrafficSelector::addresses(
        from.parse().unwrap(),
        to.parse().unwrap(),
    )]
}

type Bend = Box<dyn Fn(&mut Vec<Payload>)>;

/// Requests of B, what the peer makes of the good response, and the fault in that.
fn responses() -> Vec<(Begin, Bend, Option<ChildResponseFault>)> {
    let everything = || selectors("0.0.0.0", "255.255.255.255");
    let other_group = || Notify::new(NotifyType::INVALID_KE_PAYLOAD, vec![0, 19]);
    vec![
        (CREATE, Box::new(|_| {}), None),
        (
            CREATE,
            Box::new(without(PayloadType::TSR)),
            Some(ChildResponseFault::MissingPayload),
        ),
        (
            CREATE,
            Box::new(without(PayloadType::NONCE)),
            Some(ChildResponseFault::NoNonce),
        ),
        (
            CREATE,
            Box::new(change(PayloadType::KE, |payload| {
                let Payload::Ke(ke) = payload else { panic!() };
                ke.data.fill(0);
            })),
            Some(ChildResponseFault::InvalidKeyExchangeData),
        ),
        (
            CREATE,
            Box::new(change(PayloadType::KE, |payload| {
                let Payload::Ke(ke) = payload else { panic!() };
                ke.method = 19;
            })),
            Some(ChildResponseFault::OtherKeyExchangeMethod),
        ),
        (
            CREATE,
            Box::new(move |payloads| *payloads = vec![Payload::Notify(other_group())]),
            Some(ChildResponseFault::KeyExchangeMethodNotOffered),
        ),
        (
            CREATE,
            Box::new(change(PayloadType::SA, |payload| {
                let Payload::Sa(proposals) = payload else {
                    panic!()
                };
                proposals[0].transforms[0].key_bits = Some(256);
            })),
            Some(ChildResponseFault::NotOffered),
        ),
        (
            CREATE,
            Box::new(without(PayloadType::KE)),
            Some(ChildResponseFault::NotOffered),
        ),
        (
            CREATE,
            Box::new(change(PayloadType::TSR, move |payload| {
                *payload = Payload::TsR(everything());
            })),
            Some(ChildResponseFault::SelectorsTooWide),
        ),
        (
            CREATE,
            Box::new(|payloads| payloads.push(notify(NotifyType::USE_TRANSPORT_MODE))),
            Some(ChildResponseFault::TransportNotRequested),
        ),
        (
            REKEY_CHILD,
            Box::new(change(PayloadType::TSR, |payload| {
                *payload = Payload::TsR(selectors("10.1.0.0", "10.1.0.255"));
            })),
            Some(ChildResponseFault::SelectorsTooNarrow),
        ),
    ]
}

#[test]
fn a_response_that_makes_no_child_is_named() {
    for (request, bend, expected) in responses() {
        let (mut side, now) = b_with(|config| {
            let mut second = child("second", "10.4.0.0-10.4.255.255", "10.3.0.0-10.3.255.255");
            second.esp_proposals[0].groups = vec![Group::Curve25519];
            change_connection(config, |connection| connection.children.push(second.into()));
        });
        let mut script = Script::established(&mut side, now);
        let request = begin(&mut side, now, request);
        let mut payloads = made(&script, &request);
        bend(&mut payloads);
        let sent = script.answer(&mut side, now, &request, &payloads);
        let failed: Vec<_> = (side.events.iter())
            .filter_map(|event| match event {
                Event::ChildFailed { reason, .. } => Some(reason.clone()),
                _ => None,
            })
            .collect();
        let expected = expected.map(ChildFailure::PeerMisbehaved);
        assert_eq!(failed, Vec::from_iter(expected.clone()));
        // The peer has the SA where it does not refuse it, and is told that it is not wanted.
        let refused = payloads
            .iter()
            .any(|payload| payload.kind() == PayloadType::NOTIFY)
            && payloads.len() == 1;
        let deletes = usize::from(expected.is_some() && !refused);
        assert_eq!(sent.len(), deletes, "{expected:?}");
        let count = if expected.is_none() { 2 } else { 1 };
        assert_eq!(side.endpoint.status()[0].children.len(), count);
    }
}

// RFC 7296 R244
#[test]
fn an_unknown_error_in_a_response_is_a_failure() {
    let unknown = [notify(UNKNOWN)];
    for (request, is_shown) in [(CREATE, false), (REKEY_CHILD, false), (REKEY_IKE, true)] {
        let (mut side, now, mut script) = established();
        let request = begin(&mut side, now, request);
        // The other payloads do not make it a success.
        let mut payloads = Script::create_child_payloads();
        payloads.extend(unknown.clone());
        script.answer(&mut side, now, &request, &payloads);
        let failed = |event: &&Event| {
            let (Event::ChildFailed { reason, .. } | Event::RekeyFailed { reason, .. }) = event
            else {
                return false;
            };
            matches!(reason, ChildFailure::PeerRefused(UNKNOWN))
        };
        assert_eq!(side.events.iter().filter(failed).count(), 1);
        let status = side.endpoint.status();
        assert_eq!((status.len(), status[0].children.len()), (1, 1));
        let shown = status[0].rekey_failure.as_ref().map(|failure| failure.at);
        assert_eq!(shown, is_shown.then_some(now));
    }
    let mut pair = Pair::with(|_, _| {});
    pair.attacker = Some(Box::new(move |datagram: &mut Datagram| {
        let header = Header::decode(&datagram.payload).unwrap();
        if header.response {
            let payloads = unknown.to_vec();
            datagram.payload = Message { header, payloads }.encode().unwrap();
        }
    }));
    pair.initiate();
    pair.run(300 * SECOND);
    let reason = pair.a.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, Some(&DownReason::PeerRefused(UNKNOWN)));
}
