//! An IKE SA outlives what goes wrong in its exchanges, and repeated connections follow `unique`.

use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Encryption;
use esplanade_ike::Refusal;
use esplanade_ike::config::{Childless, Unique};
use esplanade_ike::wire::{
    ExchangeType, Header, Id, IdType, Message, Notify, NotifyType, Payload, PayloadType,
    ProtocolId, TrafficSelector,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const PSK: &[u8] = b"a shared secret";

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data.to_vec()))
}

fn create(script: &mut Script, side: &mut Side, now: Instant, payloads: &[Payload]) -> Message {
    let answer = script.exchange(side, now, ExchangeType::CREATE_CHILD_SA, payloads);
    answer.expect("a response")
}

fn ts(list: &[(&str, &str)]) -> Vec<TrafficSelector> {
    let one = |(from, to): &(&str, &str)| {
        TrafficSelector::addresses(from.parse().unwrap(), to.parse().unwrap())
    };
    list.iter().map(one).collect()
}

/// IKE_AUTH whose child SA is refused. Another child SA can be made at once.
#[test]
fn an_ike_sa_whose_first_child_was_refused_makes_another() {
    type Change = fn(&mut Payload);
    let other_cipher: Change = |payload| {
        if let Payload::Sa(proposals) = payload {
            proposals[0].transforms[0].id = 12;
        }
    };
    let other_traffic: Change = |payload| {
        if let Payload::TsR(selectors) = payload {
            *selectors = ts(&[("10.9.0.0", "10.9.255.255")]);
        }
    };
    for (change, error) in [
        (other_cipher, NotifyType::NO_PROPOSAL_CHOSEN),
        (other_traffic, NotifyType::TS_UNACCEPTABLE),
    ] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        let mut payloads = script.auth_payloads(PSK);
        payloads.iter_mut().for_each(change);
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        let answer = answer.unwrap();
        assert_eq!(error_of(&answer), Some(error));
        assert!(
            answer
                .payloads
                .iter()
                .any(|p| p.kind() == PayloadType::AUTH)
        );
        let mut payloads = Script::create_child_payloads();
        payloads.iter_mut().for_each(change);
        let refused = create(&mut script, &mut side, now, &payloads);
        assert_eq!(error_of(&refused), Some(error));
        let made = create(
            &mut script,
            &mut side,
            now,
            &Script::create_child_payloads(),
        );
        assert_eq!(error_of(&made), None);
        assert_eq!(side.endpoint.status()[0].children.len(), 1);
    }
}

/// The second of three children is refused, whichever exchange it is in.
#[test]
fn what_waits_survives_the_failure_of_the_exchange_before_it() {
    for childless in [Childless::Allow, Childless::Prefer] {
        let mut pair = Pair::with(|a, b| {
            let nets = ["10.3.0.0-10.3.255.255", "10.4.0.0-10.4.255.255"];
            let more = ["10.5.0.0-10.5.255.255", "10.6.0.0-10.6.255.255"];
            let mut foreign = child("second", nets[0], nets[1]);
            foreign.esp_proposals[0].encryption = vec![(Encryption::AesGcm16, 256)];
            a.children.push(foreign.into());
            a.children.push(child("third", more[0], more[1]).into());
            b.children.push(child("second", nets[1], nets[0]).into());
            b.children.push(child("third", more[1], more[0]).into());
            a.childless = childless;
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 2);
        let names = pair.a.children.values().map(|(child, _)| &child.name);
        assert_eq!(names.collect::<Vec<_>>(), ["net", "third"]);
        assert_eq!(pair.b.refused(Refusal::NoProposalChosen), 1);
        pair.assert_clean_end();
    }
}

/// The peer does not have the child SA that we rekey, and makes another with us.
// RFC 7296 R184
#[test]
fn a_child_that_the_peer_has_lost_is_made_anew() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    let before = side.endpoint.status()[0].children[0].clone();
    side.endpoint.rekey(now, "site", Some("net")).unwrap();
    let rekey = Script::take(&mut side).remove(0);
    let opened = script.open(&rekey);
    assert!(opened.notification(NotifyType::REKEY_SA).is_some());
    let lost = Notify::about_child(
        NotifyType::CHILD_SA_NOT_FOUND,
        ProtocolId::ESP,
        before.spi_in,
    );
    let next = script.answer(&mut side, now, &rekey, &[Payload::Notify(lost)]);
    assert_eq!(next.len(), 1, "no Delete");
    let made = script.open(&next[0]);
    assert_eq!(made.header.exchange, ExchangeType::CREATE_CHILD_SA);
    assert_eq!(made.notification(NotifyType::REKEY_SA), None);
    assert!(side.endpoint.status()[0].children.is_empty());
    assert_eq!(side.ike_sas().len(), 1);
}

#[test]
fn a_rekey_and_a_delete_with_an_spi_of_another_length_are_refused() {
    for len in [0, 3, 5, 8] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::established(&mut side, now);
        let mut rekey = Script::create_child_payloads();
        let spi = vec![0x44; len];
        rekey.push(Payload::Notify(Notify {
            protocol: ProtocolId::ESP,
            spi,
            ..Notify::new(NotifyType::REKEY_SA, vec![])
        }));
        let answer = create(&mut script, &mut side, now, &rekey);
        assert_eq!(error_of(&answer), Some(NotifyType::INVALID_SYNTAX), "{len}");

        let (mut side, now) = b_with(|_| {});
        let mut script = Script::established(&mut side, now);
        let mut body = vec![ProtocolId::ESP.0, u8::try_from(len).unwrap(), 0, 1];
        body.extend(vec![0x44; len]);
        let kind = PayloadType::DELETE;
        let delete = Payload::Unknown { kind, body };
        let answer = script.exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[delete]);
        let error = error_of(&answer.unwrap());
        assert_eq!(error, Some(NotifyType::INVALID_SYNTAX), "{len}");
    }
}

/// A peer that comes again from its address, with INITIAL_CONTACT and without. It may authenticate again, so that it has
/// ten seconds to delete its former SA.
#[test]
fn unique_decides_about_a_peer_that_comes_again() {
    for (unique, plain, initial_contact) in [
        (Unique::Never, [true, true], [true, true]),
        (Unique::No, [true, true], [false, true]),
        (Unique::Keep, [true, true], [false, true]),
        (Unique::Replace, [false, true], [false, true]),
    ] {
        for (initial, expected) in [(false, plain), (true, initial_contact)] {
            let (mut side, now) = b_with(|b| change_connection(b, |b| b.unique = unique));
            Script::established(&mut side, now);
            let mut script = Script::new();
            script.spi_i = SPI + 1;
            let payloads = script.init_payloads();
            script.init(&mut side, now, payloads).unwrap();
            let mut payloads = script.auth_payloads(PSK);
            payloads.extend(initial.then(|| notify(NotifyType::INITIAL_CONTACT, &[])));
            script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
            side.endpoint.handle_timeout(now + Duration::from_secs(11));
            let up = side.ike_sas();
            let is_up = |spi| up.iter().any(|(spi_i, _)| *spi_i == spi);
            let found = [is_up(SPI), is_up(SPI + 1)];
            assert_eq!(found, expected, "{unique:?}, initial contact {initial}");
        }
    }
}

// RFC 7296 R111, R113
#[test]
fn several_selectors_are_narrowed_in_both_directions() {
    let (mut side, now) = b_with(|b| {
        change_connection(b, |b| {
            change_children(b, |child| {
                child.local_ts = vec![
                    subnet("10.2.0.0-10.2.255.255"),
                    subnet("10.4.0.0-10.4.255.255"),
                ];
                child.remote_ts = vec![
                    subnet("10.1.0.0-10.1.255.255"),
                    subnet("10.3.0.0-10.3.255.255"),
                ];
            });
        });
    });
    let mut script = Script::established(&mut side, now);
    let mut payloads = Script::create_child_payloads();
    for payload in &mut payloads {
        match payload {
            Payload::TsI(selectors) => {
                *selectors = ts(&[
                    ("10.1.0.0", "10.1.0.255"),
                    ("10.3.128.0", "10.9.0.0"),
                    ("172.16.0.0", "172.16.255.255"),
                ]);
            }
            Payload::TsR(selectors) => {
                *selectors = ts(&[("10.0.0.0", "10.2.0.9"), ("10.4.7.0", "10.4.7.255")]);
            }
            _ => {}
        }
    }
    let answer = create(&mut script, &mut side, now, &payloads);
    let chosen = answer.payloads.iter().filter_map(|payload| match payload {
        Payload::TsI(selectors) | Payload::TsR(selectors) => Some(selectors.clone()),
        _ => None,
    });
    let expected = [
        ts(&[("10.1.0.0", "10.1.0.255"), ("10.3.128.0", "10.3.255.255")]),
        ts(&[("10.2.0.0", "10.2.0.9"), ("10.4.7.0", "10.4.7.255")]),
    ];
    assert_eq!(chosen.collect::<Vec<_>>(), expected);
}

#[test]
fn an_identity_of_ours_that_no_connection_has_is_refused() {
    for (asked, taken) in [("b.example", true), ("nobody.example", false)] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        let mut payloads = script.auth_payloads(PSK);
        let id = Id::new(IdType::FQDN, asked.as_bytes().to_vec());
        payloads.insert(1, Payload::IdR(id));
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        let error = error_of(&answer.unwrap());
        let refused = NotifyType::AUTHENTICATION_FAILED;
        assert_eq!(error, (!taken).then_some(refused));
        assert_eq!(side.refused(Refusal::NoConnection), u64::from(!taken));
        assert_eq!(side.ike_sas().len(), usize::from(taken));
    }
}

/// Requests of an authenticated peer with as much in them as a message takes.
#[test]
fn huge_numbers_within_an_ike_sa_are_answered_once_and_leave_it() {
    let many = |payload: Payload, count| vec![payload; count];
    let mut proposals = Script::create_child_payloads();
    let mut selectors = Script::create_child_payloads();
    for (a, b) in proposals.iter_mut().zip(&mut selectors) {
        if let Payload::Sa(list) = a {
            let one = list[0].clone();
            *list = (1..=255)
                .map(|number| {
                    let mut one = one.clone();
                    one.number = number;
                    // Nobody has this cipher, but for the last proposal.
                    one.transforms[0].id = if number == 255 { 20 } else { 99 };
                    one
                })
                .collect();
        }
        if let Payload::TsI(list) | Payload::TsR(list) = b {
            *list = vec![list[0]; 255];
        }
    }
    for (exchange, payloads) in [
        (
            ExchangeType::INFORMATIONAL,
            many(notify(NotifyType(40_999), &[]), 7000),
        ),
        (
            ExchangeType::INFORMATIONAL,
            many(
                Payload::Delete(esplanade_ike::wire::Delete {
                    protocol: ProtocolId::ESP,
                    spis: (1..=15_000).collect(),
                }),
                1,
            ),
        ),
        (ExchangeType::CREATE_CHILD_SA, proposals),
        (ExchangeType::CREATE_CHILD_SA, selectors),
    ] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::established(&mut side, now);
        let header = script.header(exchange, script.next_id);
        let request = script.seal(&header, &payloads);
        let answers = script.send(&mut side, now, &request);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].len() < 2000, "{}", answers[0].len());
        assert_eq!(error_of(&script.open(&answers[0])), None);
        assert_eq!(side.ike_sas().len(), 1);
        script.next_id += 1;
        let alive = script.exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[]);
        assert!(alive.is_some());
    }
}

/// Fragments without their last bytes do no harm to the whole ones.
// RFC 7383 R19
#[test]
fn fragments_that_are_cut_short_are_dropped() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    payloads.push(notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]));
    script.init(&mut side, now, payloads).unwrap();
    let payloads = script.auth_payloads(PSK);
    let header = script.header(ExchangeType::IKE_AUTH, 1);
    let fragments = script.seal_fragments(&header, &payloads, 60);
    assert!(fragments.len() > 2);
    for fragment in &fragments {
        for len in 0..fragment.len() {
            let mut short = fragment[..len].to_vec();
            assert!(script.send(&mut side, now, &short).is_empty());
            // With a length in the header that fits.
            if len >= 28 {
                short[24..28].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
                assert!(script.send(&mut side, now, &short).is_empty());
            }
        }
    }
    assert_eq!(side.endpoint.counters().fragments_received, 0);
    assert_eq!(side.endpoint.half_open(), 1);
    let answers = fragments
        .iter()
        .map(|one| script.send(&mut side, now, one).len());
    assert_eq!(answers.sum::<usize>(), 1);
    assert_eq!(side.ike_sas().len(), 1);
}

/// With fragments agreed upon, a rekey and a liveness check go whole.
#[test]
fn short_messages_go_whole() {
    let (a, b) = default_configs();
    let (mut a, mut b) = (config(a), config(b));
    (a.fragment_size, b.fragment_size) = (576, 576);
    change_connection(&mut a, |a| a.dpd_delay = 30 * SECOND);
    let mut pair = Pair::new(a, b, esplanade_testkit::net::Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert!(pair.a.endpoint.status()[0].fragmentation);
    let sent = pair.a.sent.len();
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    let exchanges: Vec<_> = pair.a.sent[sent..]
        .iter()
        .map(|sent| Header::decode(&sent.payload).unwrap().exchange)
        .collect();
    assert!(exchanges.contains(&ExchangeType::CREATE_CHILD_SA));
    assert!(exchanges.contains(&ExchangeType::INFORMATIONAL));
    for side in [&pair.a, &pair.b] {
        assert_eq!(side.endpoint.counters().fragments_sent, 0);
    }
}

/// The command of one end, by its name.
fn command(side: &mut Side, now: Instant, what: &str) {
    let endpoint = &mut side.endpoint;
    let _ = match what {
        "delete child" => endpoint.terminate(now, "site", Some("net")),
        "delete IKE SA" => endpoint.terminate(now, "site", None),
        "rekey child" => endpoint.rekey(now, "site", Some("net")),
        _ => endpoint.rekey(now, "site", None),
    };
}

/// A message takes 10 milliseconds. B begins before A, with A, and after it, so that requests cross, and responses do.
#[test]
fn deletes_cross_everything_in_every_order_of_arrival() {
    let commands = [
        "delete child",
        "delete IKE SA",
        "rekey child",
        "rekey IKE SA",
    ];
    for of_a in &commands[..2] {
        for of_b in commands {
            for offset in (-35..=35).step_by(5) {
                let mut pair = Pair::established();
                let (a, b) = (pair.now + 50 * MS, pair.now + MS * (50 + offset) as u32);
                let mut todo = [(a, *of_a, true), (b, of_b, false)];
                todo.sort_by_key(|(at, ..)| *at);
                for (at, what, is_a) in todo {
                    pair.run(at - pair.now);
                    let side = if is_a { &mut pair.a } else { &mut pair.b };
                    command(side, at, what);
                    pair.flush();
                }
                pair.run(120 * SECOND);
                pair.assert_same();
                let case = format!("{of_a}, {of_b} {offset} ms later");
                let deletes_ike = [*of_a, of_b].contains(&"delete IKE SA");
                let ike_sas = usize::from(!deletes_ike);
                assert_eq!(pair.a.ike_sas().len(), ike_sas, "{case}");
                assert_eq!(pair.a.children.len(), 0, "{case}");
                for side in [&pair.a, &pair.b] {
                    assert_eq!(side.refused(Refusal::InvalidSyntax), 0, "{case}");
                    assert_eq!(side.endpoint.counters().peers_timed_out, 0, "{case}");
                }
                pair.assert_clean_end();
            }
        }
    }
}
