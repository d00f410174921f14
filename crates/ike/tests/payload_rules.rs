//! What single payloads must contain, what is ignored, and what is taken from whom (RFC 7296 §2.21 to §2.23, and §3).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of, seemingly_sealed};
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group};
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_ike::config::{Connection, EspProposal, IkeProposal};
use esplanade_ike::wire::{
    Configuration, ConfigurationType, ExchangeType, Header, Id, IdType, Message, Notify,
    NotifyType, Payload, PayloadType, Proposal, TransformType, encode_chain,
};
use esplanade_ike::{Config, Event, Random};
use esplanade_testkit::net::{Conditions, Datagram, Rng};

const SECOND: Duration = Duration::from_secs(1);
const PSK: &[u8] = b"a shared secret";

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data.to_vec()))
}

fn raw(kind: PayloadType, body: Vec<u8>) -> Payload {
    Payload::Unknown { kind, body }
}

/// B, which has answered IKE_SA_INIT with `extra` in the request.
fn half_open(extra: &[Payload]) -> (Side, Instant, Script) {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let payloads = [script.init_payloads(), extra.to_vec()].concat();
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_eq!(error_of(&answer), None);
    (side, now, script)
}

fn established(change: impl FnOnce(&mut Connection)) -> (Side, Instant, Script) {
    let (mut side, now) = b_with(|config| change_connection(config, change));
    let script = Script::established(&mut side, now);
    (side, now, script)
}

/// B's request to rekey the child SA.
fn rekey_request(change: impl FnMut(&mut EspProposal) + Copy) -> Message {
    let (mut side, now, script) = established(|connection| {
        change_children(connection, |child| {
            child.esp_proposals.iter_mut().for_each(change);
        });
    });
    side.endpoint.rekey(now, "site", Some("net")).unwrap();
    script.open(&Script::take(&mut side)[0])
}

fn proposals(message: &Message) -> &[Proposal] {
    let found = message.payloads.iter().find_map(|payload| match payload {
        Payload::Sa(proposals) => Some(proposals),
        _ => None,
    });
    found.expect("an SA payload")
}

fn has(message: &Message, kind: PayloadType) -> bool {
    let mut payloads = message.payloads.iter();
    payloads.any(|payload| payload.kind() == kind)
}

// RFC 7296 R131
#[test]
fn every_byte_of_a_long_secret_counts() {
    let with = |connection, key: &str| {
        let mut config: Config = config(connection);
        config.secrets[0].key = Arc::new(SecretBytes::from(key.as_bytes()));
        config
    };
    for len in [64, 65, 300] {
        let secret = "s".repeat(len);
        let other = format!("{}t", &secret[1..]);
        for (of_b, up) in [(&secret, 1), (&other, 0)] {
            let (a, b) = default_configs();
            let (a, b) = (with(a, &secret), with(b, of_b));
            let mut pair = Pair::new(a, b, Conditions::PERFECT, 1);
            pair.initiate();
            pair.run(SECOND);
            pair.assert_agreed(up, up);
        }
    }
}

// RFC 7296 R151
#[test]
fn a_broken_ike_auth_request_is_rejected_as_a_whole() {
    /// The payload that comes last.
    type Last = fn(&Script) -> Payload;
    let second_auth: Last = |script| {
        let mut payloads = script.auth_payloads(PSK);
        payloads.retain(|payload| payload.kind() == PayloadType::AUTH);
        payloads.remove(0)
    };
    let cases: [(Last, bool); 4] = [
        (|_| raw(PayloadType::DELETE, vec![3, 9, 0, 1]), false),
        (|_| raw(PayloadType::NOTIFY, vec![0, 8, 0x40, 0]), false),
        (second_auth, false),
        (|_| raw(PayloadType(200), vec![1, 2, 3]), true),
    ];
    for (last, critical) in cases {
        let announced = notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
        let (mut side, now, mut script) = half_open(&[announced]);
        let mut payloads = script.auth_payloads(PSK);
        let mut content = Vec::new();
        encode_chain(&payloads, &mut content).unwrap();
        let critical_at = content.len() + 1;
        content.clear();
        payloads.push(last(&script));
        let first = encode_chain(&payloads, &mut content).unwrap();
        content[critical_at] = if critical { 0x80 } else { 0 };
        let header = script.header(ExchangeType::IKE_AUTH, 1);
        let request = script.seal_fragment(&header, first, (1, 1), &content);
        let answers = script.send(&mut side, now, &request);
        let answer = script.open(&answers[0]);
        let expected = match critical {
            true => notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, &[200]),
            false => notify(NotifyType::INVALID_SYNTAX, &[]),
        };
        assert_eq!(answer.payloads, [expected]);
        assert!(side.ike_sas().is_empty());
        let installed = |event: &Event| matches!(event, Event::ChildSaInstalled(_));
        assert!(!side.events.iter().any(installed));
    }
}

// RFC 7296 R158
#[test]
fn a_response_of_an_unknown_ike_sa_gets_no_response() {
    let (mut side, now, script) = established(|_| {});
    for exchange in [
        ExchangeType::IKE_SA_INIT,
        ExchangeType::IKE_AUTH,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::INFORMATIONAL,
    ] {
        for from_initiator in [true, false] {
            let header = Header {
                initiator_spi: 5,
                responder_spi: 6,
                response: true,
                from_initiator,
                ..script.header(exchange, 1)
            };
            let error = notify(NotifyType::INVALID_SYNTAX, &[]);
            let payloads = vec![error];
            let plain = Message { header, payloads }.encode().unwrap();
            for response in [seemingly_sealed(header), plain] {
                assert!(script.send(&mut side, now, &response).is_empty());
            }
        }
    }
    let request = seemingly_sealed(Header {
        responder_spi: 6,
        ..script.header(ExchangeType::INFORMATIONAL, 1)
    });
    let answers = script.send(&mut side, now, &request);
    assert_eq!(answers.len(), 1, "a request gets one");
}

// RFC 7296 R163
#[test]
fn invalid_spi_and_invalid_ike_spi_change_no_sa() {
    let sas = |side: &Side| {
        let status = side.endpoint.status();
        let children = status.iter().flat_map(|sa| &sa.children);
        let children: Vec<_> = children.map(|child| (child.spi_in, child.state)).collect();
        let ike_sas: Vec<_> = status.iter().map(|sa| (sa.spi_i, sa.state)).collect();
        (ike_sas, children)
    };
    for (kind, data) in [
        (NotifyType::INVALID_SPI, &[0, 0, 0x44, 0x44][..]),
        (NotifyType::INVALID_IKE_SPI, &[]),
    ] {
        let (mut side, now, mut script) = established(|_| {});
        let before = sas(&side);
        assert_eq!((before.0.len(), before.1.len()), (1, 1));
        let hint = notify(kind, data);
        let informational = ExchangeType::INFORMATIONAL;
        let payloads = vec![hint.clone()];
        let answer = script.exchange(&mut side, now, informational, &payloads);
        assert!(answer.unwrap().payloads.is_empty());
        assert_eq!(sas(&side), before, "inside the IKE SA");
        assert_eq!(side.endpoint.poll_timeout(), None);
        for spi in [0, SPI] {
            let header = Header {
                initiator_spi: spi,
                ..script.header(informational, 0)
            };
            let payloads = payloads.clone();
            let plain = Message { header, payloads }.encode().unwrap();
            script.send(&mut side, now, &plain);
            assert_eq!(sas(&side), before, "outside an IKE SA");
        }
    }
}

/// Both ends are behind a NAT, and the NAT of B takes another port.
// RFC 7296 R175
#[test]
fn an_end_behind_a_nat_does_not_follow_its_peer() {
    let moved = 4_600;
    let mut pair = Pair::with(|_, b| {
        b.remote_addrs = vec![];
        b.encap = true;
    });
    pair.nat = Some(("203.0.113.9".parse().unwrap(), 1000));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair.attacker = Some(Box::new(move |datagram: &mut Datagram| {
        if datagram.from.ip().to_string() == B {
            datagram.from.set_port(moved);
        }
    }));
    let rekey = pair.b.endpoint.rekey(pair.now, "site", Some("net"));
    assert_eq!(rekey, Ok(1));
    pair.flush();
    pair.run(SECOND);
    let answers = pair
        .a
        .sent
        .iter()
        .filter(|sent| sent.remote.port() == moved);
    assert!(answers.count() > 0, "A has taken the request");
    let follows = |event: &Event| matches!(event, Event::PeerMoved { .. });
    assert!(!pair.a.events.iter().any(follows));
    pair.attacker = None;
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    assert!(!pair.a.events.iter().any(follows));
}

/// The first numbers are zero.
struct ZerosFirst {
    left: usize,
    then: SeededRandom,
}

impl Random for ZerosFirst {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.then.fill(bytes);
        if bytes.len() == 8 && self.left > 0 {
            self.left -= 1;
            bytes.fill(0);
        }
    }
}

// RFC 7296 R198
#[test]
fn no_spi_of_ours_is_zero() {
    let now = Instant::now();
    let with_zeros = || {
        let b = config(default_configs().1);
        Side::with_host("b", B, b, now, 7, |host| {
            let then = SeededRandom(Rng::new(7));
            host.random = Box::new(ZerosFirst { left: 20, then });
        })
    };
    let mut side = with_zeros();
    side.endpoint.initiate(now, "site", None).unwrap();
    let request = Script::take(&mut side).remove(0);
    assert_ne!(Header::decode(&request).unwrap().initiator_spi, 0);
    let mut side = with_zeros();
    let mut script = Script::new();
    let payloads = script.init_payloads();
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_ne!(answer.header.responder_spi, 0);
}

/// The numbers of the proposals, and the first cipher of each.
fn order(proposals: &[Proposal]) -> Vec<(u8, Option<u16>)> {
    let first = |proposal: &Proposal| {
        let cipher = proposal.of_kind(TransformType::ENCRYPTION).next();
        (proposal.number, cipher.and_then(|cipher| cipher.key_bits))
    };
    proposals.iter().map(first).collect()
}

// RFC 7296 R207
#[test]
fn proposals_come_in_the_configured_order_with_numbers_from_one() {
    for bits in [[128, 256, 192], [256, 192, 128]] {
        let gcm = |bits| vec![(Encryption::AesGcm16, bits)];
        let expected: Vec<_> = (1..).zip(bits.map(Some)).collect();
        let (mut side, now, mut script) = established(|connection| {
            connection.proposals = bits
                .map(|bits| IkeProposal {
                    encryption: gcm(bits),
                    ..ike_proposal()
                })
                .into();
            change_children(connection, |child| {
                child.esp_proposals = bits
                    .map(|bits| EspProposal {
                        encryption: gcm(bits),
                        ..esp_proposal()
                    })
                    .into();
            });
        });
        // The child SA has 128 bits, and a rekey offers first what the SA has.
        let mut kept = bits;
        kept.sort_by_key(|bits| *bits != 128);
        let of_child: Vec<_> = (1..).zip(kept.map(Some)).collect();
        for (what, expected) in [(Some("net"), of_child), (None, expected)] {
            side.endpoint.rekey(now, "site", what).unwrap();
            let request = Script::take(&mut side).remove(0);
            let opened = script.open(&request);
            assert_eq!(order(proposals(&opened)), expected, "{what:?}");
            // The next exchange begins after this one.
            let refusal = [notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])];
            script.answer(&mut side, now, &request, &refusal);
        }
    }
}

// RFC 7296 R229
#[test]
fn without_a_group_there_is_no_ke_payload() {
    let without = rekey_request(|_| {});
    assert!(!has(&without, PayloadType::KE));
    let with = rekey_request(|proposal| proposal.groups = vec![Group::Curve25519]);
    assert!(has(&with, PayloadType::KE));
    for (message, count) in [(without, 0), (with, 1)] {
        let offered = proposals(&message)[0].of_kind(TransformType::KEY_EXCHANGE);
        assert_eq!(offered.count(), count);
    }
}

/// In the identity that B sends, and in the one that it expects.
// RFC 7296 R231
#[test]
fn names_have_no_terminators() {
    for (kind, name) in [
        (IdType::FQDN, "gateway.example"),
        (IdType::RFC822_ADDR, "gateway@example"),
    ] {
        let own = format!("our-{name}");
        for (terminator, taken) in [("", true), ("\0", false), ("\r\n", false)] {
            let (mut side, now) = b_with(|config| {
                change_connection(config, |connection| {
                    connection.local.id = id(&own);
                    connection.remote.id = id(name);
                });
            });
            let mut script = Script::new();
            script.id = Id::new(kind, format!("{name}{terminator}").into_bytes());
            let payloads = script.init_payloads();
            script.init(&mut side, now, payloads).unwrap();
            let payloads = script.auth_payloads(PSK);
            let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
            let answer = answer.unwrap();
            let sent = Payload::IdR(Id::new(kind, own.clone().into_bytes()));
            assert_eq!(answer.payloads.contains(&sent), taken);
            assert_eq!(side.ike_sas().len(), usize::from(taken), "{terminator:?}");
        }
    }
}

// RFC 7296 R240
#[test]
fn nonces_of_every_legal_length_are_taken() {
    for len in [16, 17, 32, 255, 256] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        script.nonce = vec![0x31; len];
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        let payloads = script.auth_payloads(PSK);
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(error_of(&answer.unwrap()), None);
        script.rekey_ike(&mut side, now);
        assert_eq!(side.endpoint.counters().ike_rekeys, 1);
    }
    for len in [0, 15, 257] {
        let (mut side, now, mut script) = established(|_| {});
        let mut payloads = Script::child_payloads();
        payloads.push(raw(PayloadType::NONCE, vec![0x31; len]));
        let answer = script.exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(error_of(&answer.unwrap()), Some(NotifyType::INVALID_SYNTAX));
    }
}

// RFC 7296 R241
#[test]
fn every_exchange_has_its_own_nonce() {
    let (mut side, now) = b_with(|_| {});
    let mut nonces = Vec::new();
    let mut keep = |message: &Message| {
        let found = message.payloads.iter().filter_map(|payload| match payload {
            Payload::Nonce(nonce) => Some(nonce.clone()),
            _ => None,
        });
        nonces.extend(found);
    };
    // The peer's nonce is always the same.
    for peer in 0..4 {
        let mut script = Script::new();
        script.spi_i = SPI + 100 * peer;
        let payloads = script.init_payloads();
        keep(&script.init(&mut side, now, payloads).unwrap());
        let auth = script.auth_payloads(PSK);
        let create = Script::create_child_payloads();
        let rekey_ike = script.rekey_ike_payloads();
        script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &auth);
        for payloads in [&create, &create, &rekey_ike] {
            let exchange = ExchangeType::CREATE_CHILD_SA;
            keep(&script.exchange(&mut side, now, exchange, payloads).unwrap());
        }
    }
    let mut script = Script::new();
    script.spi_i = SPI + 1000;
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    let auth = script.auth_payloads(PSK);
    script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &auth);
    for what in [Some("net"), None, Some("net")] {
        let _ = side.endpoint.rekey(now, "site", what);
        for request in Script::take(&mut side) {
            if Header::decode(&request).unwrap().initiator_spi != script.spi_i {
                continue;
            }
            keep(&script.open(&request));
            let busy = [notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])];
            script.answer(&mut side, now, &request, &busy);
        }
    }
    assert!(nonces.len() >= 18, "{}", nonces.len());
    let different: BTreeSet<_> = nonces.iter().collect();
    assert_eq!(different.len(), nonces.len());
}

/// Sends every request with `extra`. The IKE SA and its children come up as without.
fn ignores(extra: &[Payload]) {
    let (mut side, now, mut script) = half_open(extra);
    let auth = script.auth_payloads(PSK);
    let create = Script::create_child_payloads();
    for (exchange, payloads, answers) in [
        (ExchangeType::IKE_AUTH, auth, PayloadType::TSR),
        (ExchangeType::CREATE_CHILD_SA, create, PayloadType::TSR),
        (ExchangeType::INFORMATIONAL, vec![], PayloadType::NONE),
    ] {
        // First or last, they are not looked at.
        let payloads = [extra, &payloads[..], extra].concat();
        let answer = script.exchange(&mut side, now, exchange, &payloads);
        let answer = answer.unwrap();
        assert_eq!(error_of(&answer), None);
        assert!(!has(&answer, PayloadType::CP));
        let empty = answers == PayloadType::NONE;
        assert!(has(&answer, answers) || empty && answer.payloads.is_empty());
    }
    assert_eq!(side.ike_sas().len(), 1);
}

// RFC 7296 R245
#[test]
fn unknown_notifications_in_requests_are_ignored() {
    for kind in [9_999, 16_383, 40_959, 65_535].map(NotifyType) {
        ignores(&[notify(kind, &[1, 2, 3])]);
    }
}

// RFC 7296 R260
#[test]
fn a_responder_ignores_configuration_payloads() {
    for kind in [ConfigurationType::CFG_REQUEST, ConfigurationType::CFG_SET] {
        let attributes = vec![(1, vec![]), (3, vec![10, 0, 0, 1]), (999, vec![7; 9])];
        ignores(&[Payload::Configuration(Configuration { kind, attributes })]);
    }
}
