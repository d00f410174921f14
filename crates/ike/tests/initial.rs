//! IKE_SA_INIT and IKE_AUTH of peers that do them in another order, get them wrong, or put in what nobody knows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::AddressMatch;
use esplanade_ike::failure::UnusableResponse;
use esplanade_ike::wire::{
    Configuration, ConfigurationType, Delete, ExchangeType, Header, Message, Notify, NotifyType,
    Payload, PayloadType, ProtocolId, Transform, TransformType, encode_chain,
};
use esplanade_ike::{DownReason, Event, Refusal};
use esplanade_testkit::net::{Conditions, Datagram};

const SECOND: Duration = Duration::from_secs(1);
const PSK: &[u8] = b"a shared secret";

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data.to_vec()))
}

/// The body of a payload, to be changed.
fn body(payload: &Payload) -> Vec<u8> {
    let mut chain = Vec::new();
    encode_chain(std::slice::from_ref(payload), &mut chain).unwrap();
    chain.split_off(4)
}

/// The payload with another body, whatever is in it.
fn with_body(payload: &Payload, change: impl FnOnce(&mut Vec<u8>)) -> Payload {
    let mut body = body(payload);
    change(&mut body);
    let kind = payload.kind();
    Payload::Unknown { kind, body }
}

/// The requests of IKE_SA_INIT that A has sent.
fn init_requests(pair: &Pair) -> Vec<Message> {
    let sent = pair.a.sent.iter();
    let decoded = sent.filter_map(|sent| Message::decode(&sent.payload).ok());
    decoded
        .filter(|message| message.header.exchange == ExchangeType::IKE_SA_INIT)
        .collect()
}

/// B, which has answered IKE_SA_INIT with `extra` in the request.
fn half_open(extra: Vec<Payload>) -> (Side, Instant, Script, Message) {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    payloads.extend(extra);
    let answer = script.init(&mut side, now, payloads).unwrap();
    (side, now, script, answer)
}

/// Makes IKE_AUTH with these payloads. Returns the response.
fn auth(side: &mut Side, now: Instant, script: &mut Script, payloads: &[Payload]) -> Message {
    let answer = script.exchange(side, now, ExchangeType::IKE_AUTH, payloads);
    answer.expect("a response")
}

fn has(message: &Message, kind: PayloadType) -> bool {
    message
        .payloads
        .iter()
        .any(|payload| payload.kind() == kind)
}

// RFC 7296 R85
#[test]
fn the_request_comes_again_unchanged_but_for_the_cookie() {
    let (a, b) = default_configs();
    let mut b = config(b);
    b.limits.cookie_threshold = 0;
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let [first, second] = &init_requests(&pair)[..] else {
        panic!("two requests");
    };
    assert_eq!(first.header, second.header);
    assert!(matches!(&second.payloads[0], Payload::Notify(n) if n.kind == NotifyType::COOKIE));
    assert_eq!(first.payloads, second.payloads[1..]);
}

#[test]
fn a_cookie_that_nobody_asked_for_does_no_harm() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = vec![notify(NotifyType::COOKIE, &[7; 64])];
    payloads.extend(script.init_payloads());
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_eq!(answer.notification(NotifyType::COOKIE), None);
    let payloads = script.auth_payloads(PSK);
    auth(&mut side, now, &mut script, &payloads);
    assert_eq!(side.ike_sas().len(), 1);
}

/// The two demands come in either order. Each request has the SPI and the nonce of the first.
// RFC 7296 R4, R5, R52, R89, R90
#[test]
fn a_cookie_and_another_group_are_demanded_in_either_order() {
    for cookie_first in [true, false] {
        let (mut a, b) = default_configs();
        a.proposals[0].groups = vec![Group::Ecp256, Group::Curve25519];
        let mut demanding = config(b.clone());
        demanding.limits.cookie_threshold = 0;
        let b = if cookie_first {
            demanding.clone()
        } else {
            config(b)
        };
        let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
        pair.initiate();
        if !cookie_first {
            while pair.b.sent.is_empty() {
                assert!(pair.step(pair.now + SECOND));
            }
            pair.b.endpoint.set_config(demanding);
        }
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        let demands: Vec<_> = pair.b.sent.iter().take(2).collect();
        let demands = demands.iter().map(|sent| {
            let message = Message::decode(&sent.payload).unwrap();
            message.notifications().next().map(|notify| notify.kind)
        });
        let mut expected = [NotifyType::INVALID_KE_PAYLOAD, NotifyType::COOKIE].map(Some);
        if cookie_first {
            expected.reverse();
        }
        assert_eq!(demands.collect::<Vec<_>>(), expected);
        let requests = init_requests(&pair);
        assert_eq!(requests.len(), 3);
        let of = |message: &Message, kind| {
            let mut payloads = message.payloads.iter();
            payloads.find(|payload| payload.kind() == kind).cloned()
        };
        for request in &requests {
            let first = &requests[0];
            assert_eq!(request.header, first.header);
            for kind in [PayloadType::SA, PayloadType::NONCE] {
                assert_eq!(of(request, kind), of(first, kind));
            }
        }
        pair.assert_clean_end();
    }
}

/// Anybody can send these refusals, so A follows a few of them, and goes back to no group for ever.
#[test]
fn refusals_of_one_group_after_the_other_end_the_attempt() {
    let mut pair =
        Pair::with(|a, _| a.proposals[0].groups = vec![Group::Ecp256, Group::Curve25519]);
    pair.b.dead = true;
    pair.initiate();
    let mut asked = 0;
    let failed = |event: &Event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    for round in 0..20_usize {
        let request = pair.a.sent.last().unwrap().clone();
        let group = [Group::Curve25519, Group::Ecp256][round % 2];
        let header = Header {
            response: true,
            from_initiator: false,
            ..Header::decode(&request.payload).unwrap()
        };
        let data = group.number().to_be_bytes();
        let payloads = vec![notify(NotifyType::INVALID_KE_PAYLOAD, &data)];
        let refusal = Message { header, payloads }.encode().unwrap();
        let (local, remote) = (request.local, request.remote);
        let endpoint = &mut pair.a.endpoint;
        endpoint.handle_datagram(pair.now, local, remote, &refusal);
        pair.flush();
        asked += 1;
        if pair.a.sent.len() == asked {
            break;
        }
    }
    assert_eq!(asked, 7, "the first request, and six more");
    let spis = init_requests(&pair);
    assert!(spis.iter().all(|r| r.header == spis[0].header));
    pair.run(60 * SECOND);
    let why = UnusableResponse::KeyExchangeMethodNotOffered;
    let expected = DownReason::UnusableResponse(why);
    assert_eq!(pair.a.events.iter().find_map(failed), Some(expected));
}

// RFC 7296 R198, R199
#[test]
fn a_first_message_without_our_spi_but_with_the_peers_begins_an_ike_sa() {
    let good = Script::new().header(ExchangeType::IKE_SA_INIT, 0);
    for (header, taken) in [
        (good, true),
        (
            Header {
                initiator_spi: 0,
                ..good
            },
            false,
        ),
        (
            Header {
                responder_spi: 9,
                ..good
            },
            false,
        ),
        (
            Header {
                message_id: 1,
                ..good
            },
            false,
        ),
        (
            Header {
                from_initiator: false,
                ..good
            },
            false,
        ),
    ] {
        let (mut side, now) = b_with(|_| {});
        let script = Script::new();
        let payloads = script.init_payloads();
        let request = Message { header, payloads }.encode().unwrap();
        let answers = script.send(&mut side, now, &request);
        assert_eq!(answers.len(), usize::from(taken), "{header:?}");
        assert_eq!(side.endpoint.half_open(), usize::from(taken));
        assert_eq!(side.refused(Refusal::Malformed), u64::from(!taken));
    }
}

// RFC 7296 R240
#[test]
fn bad_public_values_and_nonces_leave_no_state() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(PayloadType, Change); 8] = [
        (PayloadType::KE, |body| body.truncate(4)),
        (PayloadType::KE, |body| body.truncate(2)),
        (PayloadType::KE, |body| body.truncate(4 + 31)),
        (PayloadType::KE, |body| body.push(9)),
        (PayloadType::KE, |body| body[4..].fill(0)),
        (PayloadType::NONCE, |body| body.clear()),
        (PayloadType::NONCE, |body| body.truncate(15)),
        (PayloadType::NONCE, |body| body.resize(257, 7)),
    ];
    let script = Script::new();
    let good = script.init_payloads();
    let bent = changes.map(|(kind, change)| {
        let mut payloads = good.clone();
        let found = payloads.iter_mut().find(|payload| payload.kind() == kind);
        let found = found.unwrap();
        *found = with_body(found, change);
        payloads
    });
    let absent = [PayloadType::KE, PayloadType::NONCE].map(|kind| {
        let mut payloads = good.clone();
        payloads.retain(|payload| payload.kind() != kind);
        payloads
    });
    for payloads in bent.into_iter().chain(absent) {
        let (mut side, now) = b_with(|_| {});
        let header = script.header(ExchangeType::IKE_SA_INIT, 0);
        let request = Message { header, payloads }.encode().unwrap();
        let answers = script.send(&mut side, now, &request);
        let [answer] = &answers[..] else {
            panic!("one answer");
        };
        let error = error_of(&Message::decode(answer).unwrap());
        assert_eq!(error, Some(NotifyType::INVALID_SYNTAX), "{request:02x?}");
        assert_eq!(side.endpoint.half_open(), 0);
        // The same initiator may do better.
        let mut script = Script::new();
        assert!(script.init(&mut side, now, good.clone()).is_some());
    }
}

/// Sets all reserved bytes of an SA payload's body.
fn fill_reserved_of_sa(body: &mut [u8]) {
    body[1] = 0xff;
    let mut at = 8 + usize::from(body[6]);
    while at < body.len() {
        let len = usize::from(u16::from_be_bytes([body[at + 2], body[at + 3]]));
        body[at + 1] = 0xff;
        body[at + 5] = 0xff;
        at += len;
    }
}

/// Sets all reserved bytes of a payload, but those of an ID payload.
fn with_reserved(payload: &Payload) -> Payload {
    with_body(payload, |body| match payload.kind() {
        PayloadType::SA => fill_reserved_of_sa(body),
        PayloadType::KE => body[2..4].fill(0xff),
        PayloadType::AUTH | PayloadType::TSI | PayloadType::TSR | PayloadType::CP => {
            body[1..4].fill(0xff);
        }
        _ => {}
    })
}

// RFC 7296 R74
#[test]
fn reserved_bytes_inside_payloads_are_ignored_and_those_of_the_id_are_signed() {
    for (id, signed, accepted) in [
        ([0; 3], [0; 3], true),
        ([1, 2, 3], [1, 2, 3], true),
        ([1, 2, 3], [0; 3], false),
        ([0; 3], [1, 2, 3], false),
    ] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        let payloads: Vec<_> = script.init_payloads().iter().map(with_reserved).collect();
        script.init(&mut side, now, payloads).unwrap();
        script.id.reserved = signed;
        let mut payloads = script.auth_payloads(PSK);
        if let Payload::IdI(claimed) = &mut payloads[0] {
            claimed.reserved = id;
        }
        let payloads: Vec<_> = payloads.iter().map(with_reserved).collect();
        let answer = auth(&mut side, now, &mut script, &payloads);
        assert_eq!(has(&answer, PayloadType::TSR), accepted, "{answer:?}");
        assert_eq!(side.ike_sas().len(), usize::from(accepted));
    }
}

/// An unknown payload in a request of every exchange, critical and not.
// RFC 7296 R75, R76
#[test]
fn unknown_payloads_are_skipped_or_refused_in_every_exchange() {
    let kind = PayloadType(200);
    let body = vec![1, 2, 3];
    let unknown = Payload::Unknown { kind, body };
    let fragments = notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
    for critical in [false, true] {
        for exchange in [
            ExchangeType::IKE_AUTH,
            ExchangeType::CREATE_CHILD_SA,
            ExchangeType::INFORMATIONAL,
        ] {
            let (mut side, now, mut script, _) =
                half_open(vec![fragments.clone(), unknown.clone()]);
            let mut payloads = script.auth_payloads(PSK);
            if exchange != ExchangeType::IKE_AUTH {
                auth(&mut side, now, &mut script, &payloads);
                payloads = match exchange {
                    ExchangeType::INFORMATIONAL => vec![],
                    _ => Script::child_payloads(),
                };
                if exchange == ExchangeType::CREATE_CHILD_SA {
                    payloads.push(Payload::Nonce(vec![9; 32]));
                }
            }
            payloads.insert(0, unknown.clone());
            let mut content = Vec::new();
            let first = encode_chain(&payloads, &mut content).unwrap();
            content[1] = if critical { 0x80 } else { 0 };
            let header = script.header(exchange, script.next_id);
            let request = script.seal_fragment(&header, first, (1, 1), &content);
            let answers = script.send(&mut side, now, &request);
            let answer = script.open(&answers[0]);
            let error = answer.notifications().find(|notify| notify.kind.is_error());
            let named = error.map(|error| (error.kind, error.data.clone()));
            let refused = (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![kind.0]);
            assert_eq!(named, critical.then_some(refused), "{exchange}");
            // On an established IKE SA it refuses the request alone.
            let up = !critical || exchange != ExchangeType::IKE_AUTH;
            assert_eq!(side.ike_sas().len(), usize::from(up), "{exchange}");
        }
    }
}

// RFC 7296 R23
#[test]
fn nothing_but_ike_auth_has_an_effect_before_the_peer_is_authenticated() {
    let mut create = Script::child_payloads();
    create.push(Payload::Nonce(vec![9; 32]));
    let delete = vec![Payload::Delete(Delete {
        protocol: ProtocolId::IKE,
        spis: vec![],
    })];
    for (exchange, payloads) in [
        (ExchangeType::CREATE_CHILD_SA, create),
        (ExchangeType::INFORMATIONAL, delete),
        (ExchangeType::INFORMATIONAL, vec![]),
    ] {
        let (mut side, now, mut script, _) = half_open(vec![]);
        let answer = script.exchange(&mut side, now, exchange, &payloads);
        assert_eq!(answer, None);
        assert_eq!(side.refused(Refusal::UnexpectedExchange), 1);
        assert_eq!(side.endpoint.half_open(), 1);
        assert!(side.children.is_empty());
        // The message ID is still that of IKE_AUTH.
        let payloads = script.auth_payloads(PSK);
        auth(&mut side, now, &mut script, &payloads);
        assert_eq!(side.ike_sas().len(), 1);
    }
}

/// B is established and asks for more, before A has its response to IKE_AUTH.
// RFC 7296 R23
#[test]
fn an_initiator_answers_nothing_before_the_responder_is_authenticated() {
    for rekeys in [true, false] {
        let mut pair = Pair::with(|_, _| {});
        pair.initiate();
        let mut lost = 0;
        pair.attacker = Some(Box::new(move |datagram: &mut Datagram| {
            let header = Header::decode(&datagram.payload);
            let is_auth = header
                .is_ok_and(|header| header.exchange == ExchangeType::IKE_AUTH && header.response);
            if is_auth && lost < 2 {
                lost += 1;
                datagram.payload.clear();
            }
        }));
        while pair.b.ike_sas().is_empty() {
            assert!(pair.step(pair.now + SECOND));
        }
        if rekeys {
            let child = pair.b.endpoint.rekey(pair.now, "site", Some("net"));
            assert_eq!(child, Ok(1));
        } else {
            pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
        }
        pair.flush();
        pair.run(SECOND);
        assert!(pair.a.refused(Refusal::UnexpectedExchange) >= 1);
        assert!(pair.a.ike_sas().is_empty() && pair.a.children.is_empty());
        assert_eq!(pair.a.sent.len(), 2, "IKE_SA_INIT and IKE_AUTH");
        // The request comes again when A is established.
        pair.run(60 * SECOND);
        pair.assert_agreed(usize::from(rekeys), usize::from(rekeys));
        pair.attacker = None;
        pair.assert_clean_end();
    }
}

/// Announcements and demands of extensions that are not there.
#[test]
fn extensions_that_are_not_there_are_neither_answered_nor_in_the_way() {
    let kinds = [
        NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED,
        NotifyType::REDIRECT_SUPPORTED,
        NotifyType::USE_PPK,
        NotifyType::HTTP_CERT_LOOKUP_SUPPORTED,
        NotifyType::MOBIKE_SUPPORTED,
        NotifyType::MULTIPLE_AUTH_SUPPORTED,
        NotifyType::EAP_ONLY_AUTHENTICATION,
        NotifyType::IPCOMP_SUPPORTED,
        NotifyType::ADDITIONAL_TS_POSSIBLE,
        NotifyType(40_999),
    ];
    let all = || kinds.map(|kind| notify(kind, &[0x12, 0x34, 2]));
    let (mut side, now, mut script, answer) = half_open(all().to_vec());
    let request = Configuration {
        kind: ConfigurationType::CFG_REQUEST,
        attributes: vec![],
    };
    let mut payloads = script.auth_payloads(PSK);
    payloads.extend(all());
    payloads.push(Payload::Configuration(request));
    let response = auth(&mut side, now, &mut script, &payloads);
    assert!(has(&response, PayloadType::TSR));
    assert!(!has(&response, PayloadType::CP));
    for message in [answer, response] {
        for kind in kinds {
            assert_eq!(message.notification(kind), None);
        }
    }
}

/// The same in the response: A goes on with IKE_AUTH.
#[test]
fn an_initiator_ignores_extensions_that_it_did_not_announce() {
    let mut pair = Pair::with(|_, _| {});
    pair.attacker = Some(Box::new(|datagram: &mut Datagram| {
        if let Ok(mut message) = Message::decode(&datagram.payload)
            && message.header.exchange == ExchangeType::IKE_SA_INIT
            && message.header.response
        {
            message.payloads.extend([
                notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, &[]),
                notify(NotifyType::USE_PPK, &[]),
                notify(NotifyType(40_999), &[1]),
            ]);
            datagram.payload = message.encode().unwrap();
        }
    }));
    pair.initiate();
    pair.run(SECOND);
    let exchanges = pair.a.sent.iter().map(|sent| {
        let header = Header::decode(&sent.payload).unwrap();
        (header.exchange, header.message_id)
    });
    let first: Vec<_> = exchanges.take(2).collect();
    let expected = [(ExchangeType::IKE_SA_INIT, 0), (ExchangeType::IKE_AUTH, 1)];
    assert_eq!(first, expected);
}

/// The NAT in front of A lets in what comes to its ports 500 and 4500.
#[test]
fn a_responder_behind_a_nat() {
    let outside = "203.0.113.9".parse().unwrap();
    let mut pair = Pair::with(|_, b| b.remote_addrs = vec![AddressMatch::Host(outside)]);
    pair.nat = Some((outside, 0));
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (a, b) = (&pair.a.endpoint.status()[0], &pair.b.endpoint.status()[0]);
    assert!(a.nat_local && !a.nat_remote && !b.nat_local && b.nat_remote);
    assert_eq!(b.remote, SocketAddr::new(outside, 4500));
    let mut installed = pair.a.children.values().chain(pair.b.children.values());
    assert!(installed.all(|(child, _)| child.udp_encap));
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

/// An SA payload of IKE whose first transform has these attributes, as bytes.
fn sa_with_attributes(attributes: &[u8]) -> Payload {
    let [Payload::Sa(proposals), ..] = &Script::new().init_payloads()[..] else {
        panic!("an SA payload");
    };
    let mut others = proposals.clone();
    others[0].transforms.remove(0);
    let others = body(&Payload::Sa(others));
    let len = u8::try_from(8 + attributes.len()).unwrap();
    let cipher = [&[3, 0, 0, len, 1, 0, 0, 20], attributes].concat();
    let mut body = [&others[..8], &cipher, &others[8..]].concat();
    body[7] += 1;
    let len = u16::try_from(body.len()).unwrap();
    body[2..4].copy_from_slice(&len.to_be_bytes());
    let kind = PayloadType::SA;
    Payload::Unknown { kind, body }
}

// RFC 7296 R219
#[test]
fn odd_key_lengths_end_in_a_good_proposal_or_a_refusal() {
    const BITS_128: [u8; 4] = [0x80, 14, 0, 128];
    const BITS_256: [u8; 4] = [0x80, 14, 1, 0];
    for (attributes, taken) in [
        (BITS_128.to_vec(), true),
        (vec![], false),
        ([BITS_128, BITS_128].concat(), false),
        ([BITS_128, BITS_256].concat(), false),
        ([BITS_256, BITS_128].concat(), false),
        (vec![0x80, 14, 0, 129], false),
        (vec![0x80, 14, 0, 0], false),
        (vec![0x80, 15, 0, 128], false),
        ([&BITS_128[..], &[0x80, 15, 0, 1]].concat(), false),
        (vec![0, 14, 0, 2, 0, 128], false),
    ] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        let mut payloads = script.init_payloads();
        payloads[0] = sa_with_attributes(&attributes);
        let answer = script.init(&mut side, now, payloads).unwrap();
        assert_eq!(error_of(&answer).is_none(), taken, "{attributes:02x?}");
        assert_eq!(side.endpoint.half_open(), usize::from(taken));
    }
}

/// Integrity NONE beside an AEAD cipher, for the IKE SA and for ESP.
#[test]
fn integrity_none_goes_with_an_aead_cipher() {
    let with_none = |payloads: &mut [Payload]| {
        for payload in payloads {
            if let Payload::Sa(proposals) = payload {
                let none = Transform::new(TransformType::INTEGRITY, 0);
                proposals[0].transforms.push(none);
            }
        }
    };
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    with_none(&mut payloads);
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_eq!(error_of(&answer), None);
    let mut payloads = script.auth_payloads(PSK);
    with_none(&mut payloads);
    let answer = auth(&mut side, now, &mut script, &payloads);
    assert_eq!(error_of(&answer), None);
    assert!(has(&answer, PayloadType::TSR));
}
