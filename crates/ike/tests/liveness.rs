//! Peers that are gone: traffic that is not answered, hints that nobody has authenticated, and crash tokens.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use esplanade_crypto::dh::DhError;
use esplanade_crypto::iana::Group;
use esplanade_crypto::secret::Secret;
use esplanade_ike::config::{Child, Config, Connection, EndAction, StartAction};
use esplanade_ike::failure::UnusableResponse;
use esplanade_ike::suite::{ActiveKeyExchange, DiffieHellman, KeyExchange, KeyExchangeAnswer};
use esplanade_ike::wire::{
    ExchangeType, Header, Message, Notify, NotifyType, Payload, PayloadType,
};
use esplanade_ike::{DownReason, Event, Refusal};
use esplanade_testkit::net::{Conditions, Datagram};

const SECOND: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(30);

/// The defaults of a connection that says nothing about `dpd_delay`.
fn by_traffic(connection: &mut Connection) {
    connection.dpd_delay = IDLE;
    connection.dpd_by_traffic = true;
    connection.dpd_timeout = 10 * SECOND;
}

fn established(more: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        by_traffic(a);
        by_traffic(b);
        more(a, b);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// The data plane of A has seen packets in these directions since it was looked at last.
fn traffic(pair: &mut Pair, inbound: bool, outbound: bool) {
    let child = *pair.a.children.keys().next().unwrap();
    let now = pair.now;
    if inbound {
        pair.a.endpoint.note_inbound_traffic(now, child);
    }
    if outbound {
        pair.a.endpoint.note_outbound_traffic(now, child);
    }
    pair.flush();
}

fn down(side: &Side) -> Vec<&DownReason> {
    let events = side.events.iter();
    let reasons = events.filter_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

/// The IKE_SA_INIT messages that the end has sent.
fn inits(side: &Side) -> usize {
    let of_init = |payload: &[u8]| {
        let header = Header::decode(payload).unwrap();
        header.exchange == ExchangeType::IKE_SA_INIT
    };
    let sent = side.sent.iter();
    sent.filter(|sent| of_init(&sent.payload)).count()
}

// RFC 7296 R46, R64, R67
#[test]
fn traffic_that_is_not_answered_finds_a_dead_peer_within_forty_seconds() {
    let mut pair = established(|_, _| {});
    pair.b.dead = true;
    for _ in 0..60 {
        if pair.a.children.is_empty() {
            break;
        }
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    let took = pair.now - pair.start;
    assert_eq!(down(&pair.a), [&DownReason::Timeout]);
    assert!(took > 36 * SECOND && took < 43 * SECOND, "{took:?}");
}

#[test]
fn a_living_peer_of_one_way_traffic_is_asked_now_and_then() {
    // In UDP already: there is nothing to try.
    let mut pair = established(|a, _| a.encap = true);
    let before = pair.a.sent.len();
    for _ in 0..300 {
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    let asked = pair.a.sent.len() - before;
    assert!((9..=11).contains(&asked), "once in thirty seconds: {asked}");
    pair.assert_agreed(1, 1);
}

#[test]
fn nobody_is_asked_in_silence_or_while_traffic_is_answered() {
    let mut pair = established(|_, _| {});
    let before = pair.a.sent.len();
    pair.run(3600 * SECOND);
    for _ in 0..300 {
        traffic(&mut pair, true, true);
        pair.run(SECOND);
    }
    // The last packets are both ways. What comes in alone is no question.
    for _ in 0..100 {
        traffic(&mut pair, true, false);
        pair.run(SECOND);
    }
    pair.run(3600 * SECOND);
    assert_eq!(pair.a.sent.len(), before);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_delay_of_zero_turns_the_checks_off() {
    let mut pair = established(|a, _| a.dpd_delay = Duration::ZERO);
    pair.b.dead = true;
    let before = pair.a.sent.len();
    for _ in 0..300 {
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    assert_eq!(pair.a.sent.len(), before);
    assert_eq!(pair.a.children.len(), 1);
}

#[test]
fn a_request_under_way_is_the_question() {
    let mut pair = established(|_, _| {});
    pair.b.dead = true;
    // With its own timing the rekey would wait for 165 s.
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    for _ in 0..43 {
        if !pair.a.children.is_empty() {
            traffic(&mut pair, false, true);
        }
        pair.run(SECOND);
    }
    assert_eq!(down(&pair.a), [&DownReason::Timeout]);
}

#[test]
fn a_timeout_of_zero_leaves_the_verdict_to_retransmission() {
    let mut pair = established(|a, _| {
        (a.dpd_delay, a.dpd_timeout) = (5 * SECOND, Duration::ZERO);
        a.dpd_by_traffic = false;
    });
    pair.b.dead = true;
    pair.run(100 * SECOND);
    assert!(down(&pair.a).is_empty());
    pair.run(100 * SECOND);
    assert_eq!(down(&pair.a), [&DownReason::Timeout]);
}

#[test]
fn a_retransmission_that_ends_sooner_than_the_bound_stays() {
    let mut pair = established(|a, _| {
        (a.dpd_delay, a.dpd_by_traffic) = (5 * SECOND, false);
        (a.retransmission.tries, a.retransmission.timeout) = (1, SECOND);
    });
    pair.b.dead = true;
    pair.run(9 * SECOND);
    assert_eq!(down(&pair.a), [&DownReason::Timeout]);
}

#[test]
fn a_dead_peer_that_comes_back_is_called_again() {
    let mut pair = established(|a, _| {
        a.keyingtries = 0;
        change_children(a, |child| {
            child.start_action = StartAction::Start;
            child.dpd_action = EndAction::Start;
        });
    });
    let b = config(default_configs().1);
    pair.b = Side::new("b", B, b, pair.now, 77);
    for _ in 0..60 {
        if down(&pair.a).is_empty() {
            traffic(&mut pair, false, true);
        }
        pair.run(SECOND);
    }
    assert_eq!(down(&pair.a).len(), 1);
    pair.assert_agreed(1, 1);
}

/// The peer was silent, but for messages that nobody has authenticated.
fn told() -> DownReason {
    let error = UnusableResponse::UnprotectedError(NotifyType::INVALID_IKE_SPI);
    DownReason::UnusableResponse(error)
}

/// Both ends, with a secret for crash tokens at B. A wants its child at all times.
fn with_tokens(secret: Option<&[u8]>, more: impl FnOnce(&mut Config, &mut Config)) -> Pair {
    let (mut a, mut b) = default_configs();
    by_traffic(&mut a);
    by_traffic(&mut b);
    a.keyingtries = 0;
    change_children(&mut a, |child| child.start_action = StartAction::Start);
    let (mut a, mut b) = (config(a), config(b));
    b.token_secret = secret.map(|secret| Arc::new(Secret::from(secret)));
    more(&mut a, &mut b);
    let mut pair = Pair::new(a, b, Conditions::PERFECT, 1);
    pair.a.endpoint.start(pair.now);
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// B loses all its SAs.
fn restart(pair: &mut Pair, secret: Option<&[u8]>) {
    let mut b = default_configs().1;
    by_traffic(&mut b);
    let mut b = config(b);
    b.token_secret = secret.map(|secret| Arc::new(Secret::from(secret)));
    pair.b = Side::new("b", B, b, pair.now, 77);
}

/// ESP of A arrives at B, which has no SA for it.
fn esp_arrives(pair: &mut Pair) {
    let spi = pair.a.children.values().next().unwrap().0.spi_out;
    let from = SocketAddr::new(pair.a.address, 0);
    pair.b.endpoint.note_unknown_spi(pair.now, from, spi);
    pair.flush();
}

fn hint(spi: u32) -> Vec<u8> {
    let notify = Notify::new(NotifyType::INVALID_SPI, spi.to_be_bytes().to_vec());
    let header = Header {
        initiator_spi: 0,
        responder_spi: 0,
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: true,
        response: false,
        message_id: 0,
    };
    let payloads = vec![Payload::Notify(notify)];
    Message { header, payloads }.encode().unwrap()
}

/// `from` sends A an unprotected message.
fn tell(pair: &mut Pair, from: &str, message: &[u8]) {
    let (local, remote) = (format!("{A}:500"), format!("{from}:500"));
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    let now = pair.now;
    pair.a.endpoint.handle_datagram(now, local, remote, message);
    pair.flush();
}

/// Retransmissions last for minutes. Where the peer says that it does not know the SA, they decide nothing.
#[test]
fn a_peer_that_has_lost_the_sa_is_given_up_soon_whatever_the_timeout() {
    for timeout in [Duration::ZERO, 10 * SECOND] {
        let mut pair = established(|a, _| {
            (a.dpd_delay, a.dpd_timeout) = (5 * SECOND, timeout);
            a.dpd_by_traffic = false;
        });
        restart(&mut pair, None);
        pair.run(20 * SECOND);
        assert_eq!(down(&pair.a), [&told()], "{timeout:?}");
    }
}

// RFC 7296 R63, R161
#[test]
fn an_unprotected_hint_has_the_peer_asked_and_proves_nothing() {
    let mut pair = established(|_, _| {});
    let spi = pair.a.children.values().next().unwrap().0.spi_out;
    let before = pair.a.sent.len();
    for (from, spi) in [(B, spi ^ 1), ("203.0.113.9", spi)] {
        tell(&mut pair, from, &hint(spi));
    }
    assert_eq!(pair.a.sent.len(), before, "another SA, or another sender");
    // A flood of hints makes one question in ten seconds, which the peer answers.
    for _ in 0..1000 {
        tell(&mut pair, B, &hint(spi));
        pair.run(SECOND / 50);
    }
    let asked = pair.a.sent.len() - before;
    assert!((2..=3).contains(&asked), "{asked} in twenty seconds");
    pair.assert_agreed(1, 1);
}

#[test]
fn a_restarted_peer_that_says_nothing_is_back_within_fifteen_seconds() {
    for says_nothing in [false, true] {
        let mut pair = with_tokens(None, |_, _| {});
        let before = pair.a.child_spis();
        restart(&mut pair, None);
        let restarted = pair.now;
        if says_nothing {
            pair.attacker = Some(Box::new(|datagram: &mut Datagram| {
                let header = Header::decode(&datagram.payload).unwrap();
                if header.exchange == ExchangeType::INFORMATIONAL && header.response {
                    datagram.payload.clear();
                }
            }));
        }
        while pair.a.child_spis().is_subset(&before) {
            traffic(&mut pair, false, true);
            pair.run(SECOND);
            assert!(pair.now - restarted < 15 * SECOND);
        }
        assert!(pair.now - restarted > 9 * SECOND);
        pair.attacker = None;
        pair.run(60 * SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(down(&pair.a), [&DownReason::Reauthenticated]);
        let failed = |event: &Event| matches!(event, Event::ConnectFailed { .. });
        assert!(!pair.a.events.iter().any(failed));
    }
}

/// The peer answers the message that tried a new IKE SA when the path is back. That does no harm.
#[test]
fn a_new_ike_sa_that_was_tried_in_vain_does_no_harm() {
    for seconds in [8, 14, 30, 38, 60] {
        let mut pair = with_tokens(None, |_, _| {});
        pair.b.dead = true;
        for _ in 0..seconds {
            // A child that is gone has no traffic.
            if !pair.a.children.is_empty() {
                traffic(&mut pair, false, true);
            }
            pair.run(SECOND);
        }
        pair.b.dead = false;
        pair.run(120 * SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(
            down(&pair.a).len(),
            usize::from(seconds > 10),
            "{seconds} s"
        );
    }
}

#[test]
fn no_new_ike_sa_is_tried_for_a_child_that_would_not_come_back() {
    let mut pair = established(|_, _| {});
    pair.b.dead = true;
    let before = inits(&pair.a);
    for _ in 0..30 {
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    assert_eq!(inits(&pair.a), before);
}

/// Sends for ten minutes: packets for some half seconds, then none for some. The peer sends as many back, or none.
fn sends_in_bursts(pair: &mut Pair, burst: u32, pause: u32, answered: bool) {
    let half_trips = (2 * pair.network.conditions.delay.start)
        .as_millis()
        .div_ceil(500) as u32;
    for at in 0..1200 {
        let sends = |at: u32| at % (burst + pause) < burst;
        let back = answered && at >= half_trips && sends(at - half_trips);
        traffic(pair, back, sends(at));
        pair.run(SECOND / 2);
    }
}

#[test]
fn a_peer_that_answers_keeps_its_ike_sa_whatever_the_traffic_and_the_round_trip() {
    let patterns = [(1, 0), (1, 11), (1, 62), (4, 36), (20, 30), (70, 3)];
    for trip in [0, 30, 300, 1000, 2000].map(Duration::from_millis) {
        for (burst, pause) in patterns {
            for answered in [false, true] {
                // Other traffic without any answer has one trial of UDP encapsulation.
                let mut pair = with_tokens(None, |a, b| {
                    if !answered {
                        change_connection(a, udp_alone);
                        change_connection(b, udp_alone);
                    }
                });
                let spis = pair.a.child_spis();
                pair.network.conditions.delay = trip / 2..trip / 2;
                sends_in_bursts(&mut pair, burst, pause, answered);
                let case = format!("{trip:?}, {burst}, {pause}, {answered}");
                assert_eq!(inits(&pair.a), 1, "{case}");
                assert_eq!(pair.a.child_spis(), spis, "{case}");
            }
        }
    }
}

#[test]
fn a_question_that_is_lost_once_is_asked_again_before_a_new_ike_sa_is_tried() {
    let mut pair = with_tokens(None, |a, b| {
        change_connection(a, udp_alone);
        change_connection(b, udp_alone);
    });
    let mut seen = HashSet::new();
    pair.network.conditions.delay = SECOND..SECOND;
    pair.attacker = Some(Box::new(move |datagram: &mut Datagram| {
        if seen.insert(datagram.payload.clone()) {
            datagram.payload.clear();
        }
    }));
    sends_in_bursts(&mut pair, 1, 0, false);
    assert_eq!(inits(&pair.a), 1);
    assert!(down(&pair.a).is_empty());
}

#[test]
fn an_attempt_ends_when_the_silent_peer_is_heard_again() {
    let mut pair = with_tokens(None, |_, _| {});
    let spis = pair.a.child_spis();
    pair.b.dead = true;
    for _ in 0..14 {
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    assert_eq!(inits(&pair.a), 2);
    traffic(&mut pair, true, false);
    pair.b.dead = false;
    pair.run(60 * SECOND);
    assert_eq!((inits(&pair.a), pair.a.child_spis()), (2, spis));
    let failed = |event: &Event| matches!(event, Event::ConnectFailed { .. });
    assert!(!pair.a.events.iter().any(failed));
    pair.assert_agreed(1, 1);
}

#[test]
fn a_path_that_is_down_for_half_a_minute_ends_nothing() {
    let mut pair = established(|_, _| {});
    pair.b.dead = true;
    for _ in 0..30 {
        traffic(&mut pair, false, true);
        pair.run(SECOND);
    }
    pair.b.dead = false;
    for _ in 0..60 {
        traffic(&mut pair, true, true);
        pair.run(SECOND);
    }
    assert!(down(&pair.a).is_empty());
    pair.assert_agreed(1, 1);
}

#[test]
fn a_flood_of_hints_from_the_address_of_a_peer_is_limited() {
    let mut pair = established(|_, _| {});
    let spi = pair.a.children.values().next().unwrap().0.spi_out;
    for _ in 0..1000 {
        tell(&mut pair, B, &hint(7));
    }
    let before = pair.a.sent.len();
    tell(&mut pair, B, &hint(spi));
    assert_eq!(pair.a.sent.len(), before, "the limit is reached");
    assert!(pair.a.refused(Refusal::RateLimited) > 900);
}

// RFC 7296 R34, R159
#[test]
fn a_message_outside_an_ike_sa_gets_no_response() {
    let (mut b, now) = b_with(|_| {});
    let (local, remote) = (format!("{B}:500"), format!("{A}:500"));
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    b.endpoint
        .handle_datagram(now, local, remote, &hint(0x1234));
    assert_eq!(b.endpoint.poll_transmit(), None);
    assert_eq!(b.refused(Refusal::UnauthenticatedNotify), 1);
}

#[test]
fn a_peer_without_tokens_is_given_up_ten_seconds_after_its_hint() {
    let mut pair = with_tokens(None, |_, _| {});
    restart(&mut pair, None);
    let restarted = pair.now;
    esp_arrives(&mut pair);
    while down(&pair.a).is_empty() {
        pair.run(SECOND / 10);
        assert!(pair.now - restarted < 11 * SECOND);
    }
    assert_eq!(pair.b.refused(Refusal::UnknownSpi), 5, "the question");
    pair.run(2 * SECOND);
    pair.assert_agreed(1, 1);
}

#[test]
fn who_sends_to_an_spi_that_nobody_has_is_told_within_limits() {
    let (mut b, now) = b_with(|_| {});
    let told = |b: &mut Side, from: &str| {
        let from = format!("{from}:0").parse().unwrap();
        b.endpoint.note_unknown_spi(now, from, 0x1234_5678);
        let mut told = 0;
        while let Some(sent) = b.endpoint.poll_transmit() {
            assert_eq!(sent.payload, hint(0x1234_5678));
            assert_eq!(sent.remote, format!("{A}:500").parse().unwrap());
            told += 1;
        }
        told
    };
    assert_eq!(told(&mut b, "203.0.113.9"), 0, "no connection names it");
    let count: u32 = (0..1000).map(|_| told(&mut b, A)).sum();
    assert_eq!(count, 5);
}

/// The peer of a lost IKE SA may send whole messages or fragments (RFC 7383 §2.5).
#[test]
fn whole_messages_and_fragments_of_lost_sas_are_answered() {
    for first in [PayloadType::SK, PayloadType::SKF] {
        let (mut b, now) = b_with(|_| {});
        let (local, remote) = (format!("{B}:500"), format!("{A}:500"));
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        let mut message = hint(0x1234);
        message[..16].fill(7);
        message[16] = first.0;
        b.endpoint.handle_datagram(now, local, remote, &message);
        let answer = b.endpoint.poll_transmit().expect("an answer");
        let answer = Message::decode(&answer.payload).unwrap();
        assert!(answer.notification(NotifyType::INVALID_IKE_SPI).is_some());
    }
}

// RFC 6290 R2, R7, R8, R9
#[test]
fn a_crash_token_ends_the_sa_at_once() {
    let mut pair = with_tokens(Some(b"secret of B"), |_, _| {});
    restart(&mut pair, Some(b"secret of B"));
    let restarted = pair.now;
    esp_arrives(&mut pair);
    while pair.b.children.is_empty() {
        pair.run(SECOND / 100);
        assert!(pair.now - restarted < SECOND);
    }
    assert_eq!(down(&pair.a), [&DownReason::PeerRestarted]);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
}

/// Somebody asks B about an SA that it does not have, and sends it ESP. Returns the number of answers.
fn ask_of_unknown(pair: &mut Pair, from: IpAddr) -> usize {
    let mut request = hint(0x1234);
    request[..16].fill(7);
    request[16] = PayloadType::SK.0;
    let (local, now) = (SocketAddr::new(pair.b.address, 500), pair.now);
    let b = &mut pair.b.endpoint;
    b.handle_datagram(now, local, SocketAddr::new(from, 500), &request);
    b.note_unknown_spi(now, SocketAddr::new(from, 0), 0x1234_5678);
    std::iter::from_fn(|| b.poll_transmit()).count()
}

#[test]
fn a_flood_of_strangers_does_not_hide_a_crash() {
    let mut pair = with_tokens(Some(b"secret of B"), |_, _| {});
    restart(&mut pair, Some(b"secret of B"));
    let restarted = pair.now;
    let (mut strangers, mut answers) = (0u32, 0);
    while pair.b.children.is_empty() {
        for _ in 0..100 {
            strangers += 1;
            let from = Ipv4Addr::from_bits(0xcb00_0000 + strangers);
            answers += ask_of_unknown(&mut pair, from.into());
            // Hints of strangers at A take nothing from those of B.
            tell(&mut pair, "203.0.113.9", &hint(0x1234));
        }
        // Until A has given its SAs up.
        if !pair.a.children.is_empty() {
            esp_arrives(&mut pair);
        }
        pair.run(SECOND / 100);
        assert!(pair.now - restarted < SECOND, "{strangers} strangers");
    }
    assert_eq!(down(&pair.a), [&DownReason::PeerRestarted]);
    assert!(answers <= 20, "{answers}");
    // Who sends from the address of the peer gets few answers too.
    pair.run(2 * SECOND);
    let peer = pair.a.address;
    let answers: usize = (0..1000).map(|_| ask_of_unknown(&mut pair, peer)).sum();
    assert_eq!(answers, 10, "5 to IKE, 5 to ESP");
}

// RFC 6290 R10, R13
#[test]
fn a_token_of_another_secret_or_of_another_sa_is_no_proof() {
    let mut pair = with_tokens(Some(b"secret of B"), |_, _| {});
    restart(&mut pair, Some(b"another secret"));
    esp_arrives(&mut pair);
    pair.run(8 * SECOND);
    assert!(down(&pair.a).is_empty());
    pair.run(3 * SECOND);
    assert_eq!(down(&pair.a), [&told()]);
}

/// B has lost its SAs after IKE SAs were replaced, by either end.
// RFC 6290 R3, R4, R5, R6
#[test]
fn a_rekeyed_ike_sa_has_a_token_of_its_own() {
    for by_a in [true, false] {
        let mut pair = with_tokens(Some(b"secret of B"), |a, _| {
            a.token_secret = Some(Arc::new(Secret::from(b"secret of A".as_slice())));
        });
        let (side, now) = match by_a {
            true => (&mut pair.a, pair.now),
            false => (&mut pair.b, pair.now),
        };
        assert_eq!(side.endpoint.rekey(now, "site", None), Ok(1));
        pair.flush();
        pair.run(5 * SECOND);
        pair.assert_agreed(1, 1);
        restart(&mut pair, Some(b"secret of B"));
        esp_arrives(&mut pair);
        pair.run(SECOND);
        assert_eq!(down(&pair.a), [&DownReason::PeerRestarted], "by A: {by_a}");
        pair.assert_agreed(1, 1);
    }
}

/// Somebody who sees the messages of a living SA asks for its token, with the roles as they are and exchanged.
// RFC 6290 R16
#[test]
fn nobody_gets_the_token_of_an_sa_that_lives() {
    let mut pair = with_tokens(Some(b"secret of B"), |_, _| {});
    let (spi_i, spi_r) = *pair.b.ike_sas().first().unwrap();
    let before = pair.b.sent.len();
    for (initiator_spi, responder_spi) in [(spi_i, spi_r), (spi_r, spi_i), (7, spi_r), (spi_r, 7)] {
        for flags in [0x00, 0x08, 0x20, 0x28] {
            for exchange in [35, 36, 37] {
                let mut datagram =
                    [initiator_spi.to_be_bytes(), responder_spi.to_be_bytes()].concat();
                datagram.extend([46, 0x20, exchange, flags, 0, 0, 0, 9, 0, 0, 0, 60]);
                datagram.extend([0, 0, 0, 32]);
                datagram.extend([0x5a; 28]);
                let (local, remote) = (format!("{B}:500"), format!("{A}:500"));
                let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
                let endpoint = &mut pair.b.endpoint;
                endpoint.handle_datagram(pair.now, local, remote, &datagram);
                pair.flush();
            }
        }
        pair.run(2 * SECOND);
    }
    for sent in &pair.b.sent[before..] {
        let message = Message::decode(&sent.payload).unwrap();
        let token = message.notification(NotifyType::QUICK_CRASH_DETECTION);
        assert!(token.is_none(), "{message:?}");
    }
    pair.assert_agreed(1, 1);
}

#[test]
fn tokens_can_be_turned_off_at_either_end() {
    for at_a in [true, false] {
        let mut pair = with_tokens(Some(b"secret of B"), |a, b| {
            match at_a {
                true => a.quick_crash_detection = false,
                false => b.quick_crash_detection = false,
            };
        });
        restart(&mut pair, Some(b"secret of B"));
        esp_arrives(&mut pair);
        pair.run(11 * SECOND);
        assert_eq!(down(&pair.a), [&told()]);
    }
}

/// The answers of a key exchange fail while this is set.
#[derive(Clone, Default)]
struct Exhausted(Arc<AtomicBool>);

impl KeyExchange for Exhausted {
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError> {
        DiffieHellman.start(method)
    }

    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError> {
        DiffieHellman.check(method, initiator)
    }

    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(DhError::Generate(method)),
            false => DiffieHellman.answer(method, initiator),
        }
    }
}

// RFC 7296 R182
#[test]
fn a_peer_that_is_busy_for_minutes_gets_a_new_ike_sa() {
    let mut pair = with_tokens(None, |_, _| {});
    let exhausted = Exhausted::default();
    let b = config(default_configs().1);
    pair.b = Side::with_host("b", B, b, pair.now, 77, |host| {
        host.key_exchange = Arc::new(exhausted.clone());
    });
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.run(200 * SECOND);
    pair.assert_agreed(1, 1);
    let first = down(&pair.a).len();
    exhausted.0.store(true, Ordering::Relaxed);
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(170 * SECOND);
    assert_eq!(down(&pair.a).len(), first, "it may be busy for a while");
    pair.run(80 * SECOND);
    assert_eq!(down(&pair.a)[first..], [&DownReason::PeerBusy]);
    exhausted.0.store(false, Ordering::Relaxed);
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
}

/// The peer wants no key exchange for the child, so that it refuses every rekey. In IKE_AUTH there is none.
// RFC 7296 R95
#[test]
fn a_child_that_cannot_be_rekeyed_ends_its_ike_sa() {
    let limited = |child: &mut Child| {
        child.lifetime.rekey_time = 60 * SECOND;
        child.lifetime.life_time = 200 * SECOND;
        child.esp_proposals[0].groups = vec![Group::Curve25519];
    };
    let mut pair = with_tokens(None, |a, _| {
        change_connection(a, |a| change_children(a, limited));
    });
    pair.run(190 * SECOND);
    pair.assert_agreed(1, 1);
    let failed = |event: &Event| matches!(event, Event::ChildFailed { .. });
    assert!(pair.a.events.iter().any(failed));
    pair.run(20 * SECOND);
    assert_eq!(down(&pair.a), [&DownReason::Expired]);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_child_whose_lifetime_is_to_end_ends_alone() {
    let mut pair = established(|a, _| {
        change_children(a, |child| child.lifetime.life_time = 60 * SECOND);
    });
    pair.run(70 * SECOND);
    pair.assert_agreed(1, 0);
}
